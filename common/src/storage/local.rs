//! What the local file system holds beside finished objects: `object_store` writes an upload to `name#number` and gives it
//! its name at the end. A process that is killed in between leaves that file, which `object_store` neither lists nor deletes.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path as StorePath;

use super::location::local_path;
use super::{Listed, StorageError};

/// Folders that were there before this storage wrote anything: they are not removed when they come to be empty. A
/// warehouse or a namespace may be an empty folder, made by somebody for us to fill.
#[derive(Debug, Clone, Default)]
pub(super) struct Folders(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    found: HashSet<PathBuf>,
    made: HashSet<PathBuf>,
}

impl Folders {
    /// A file is about to be written, and the folders that it lacks made.
    pub(super) fn note(&self, path: &StorePath) {
        let file = on_disk(path);
        let mut above = file.ancestors().skip(1).peekable();
        if above.peek().is_none_or(|folder| folder.exists()) {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in above {
            if folder.exists() {
                if !known.made.contains(folder) {
                    known.found.insert(folder.to_path_buf());
                }
                return;
            }
            known.made.insert(folder.to_path_buf());
        }
    }

    fn may_go(&self, folder: &Path) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).found.contains(folder)
    }
}

fn on_disk(path: &StorePath) -> PathBuf {
    PathBuf::from(format!("/{path}"))
}

/// Removes a file, and the folders above it that are empty then and may go. One that is not there is no error.
pub(super) async fn remove(path: &StorePath, folders: &Folders) -> Result<(), StorageError> {
    let file = on_disk(path);
    match tokio::fs::remove_file(&file).await {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(failed("delete", &file, error));
        }
        _ => {}
    }
    for folder in file.ancestors().skip(1) {
        // One that is not empty says so.
        if !folders.may_go(folder) || tokio::fs::remove_dir(folder).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// All files below a folder, given as a location; uploads under way too.
pub(super) async fn list(folder: &str) -> Result<Vec<Listed>, StorageError> {
    let root = PathBuf::from(format!("/{}", local_path(folder)?));
    let walked = {
        let root = root.clone();
        tokio::task::spawn_blocking(move || walk(&root)).await
    };
    let found = match walked {
        Ok(found) => found.map_err(|error| failed("list", &root, error))?,
        Err(error) => return Err(failed("list", &root, io::Error::other(error))),
    };
    let below = |path: &Path| path.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned);
    let listed = found.into_iter().filter_map(|(path, size_bytes)| {
        // A name that is not UTF-8 is nobody's of ours.
        Some(Listed { location: format!("{folder}/{}", below(&path)?), size_bytes })
    });
    Ok(listed.collect())
}

fn walk(root: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Folders may go while we look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => found.push((entry.path(), meta.len())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

fn failed(act: &'static str, path: &Path, error: io::Error) -> StorageError {
    let source = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(error) };
    StorageError::access(act, &path.display().to_string(), source)
}
