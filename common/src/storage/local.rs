//! What the local file system holds beside finished objects: `object_store` writes an upload to `name#number` and gives it
//! its name at the end. A process that is killed in between leaves that file, which `object_store` neither lists nor deletes.

use std::io;
use std::path::{Path, PathBuf};

use object_store::path::Path as StorePath;

use super::location::local_path;
use super::{Listed, StorageError};

/// Whether a path is one that `object_store` keeps for an upload under way.
pub(super) fn is_partial_upload(path: &StorePath) -> bool {
    path.as_ref()
        .rsplit_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Removes a file by its path; one that is not there is no error.
pub(super) async fn remove(path: &StorePath) -> Result<(), StorageError> {
    let file = PathBuf::from(format!("/{path}"));
    match tokio::fs::remove_file(&file).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("delete", &file, error)),
        _ => Ok(()),
    }
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
