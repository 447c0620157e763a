//! Copies of whole objects, as they are.
//!
//! Within one object store the store copies by itself. On a local disk the system does, file to file; never by a hard link,
//! which would be the source's own file under a second name. Everything else is streamed, a bounded part at a time. What is
//! compared: the size that the caller knows, with that of the source and with that of the copy. Bytes are not summed up: a
//! stream is checked by its transport, and a copy by the store or the system that makes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::TryStreamExt;
use object_store::path::Path as StorePath;
use object_store::{CopyMode, CopyOptions, ObjectStore, ObjectStoreExt};
use tokio::io::AsyncWriteExt;

use super::local::Folders;
use super::{Storage, StorageError, UPLOAD_PART_BYTES, UPLOAD_PARTS_AT_ONCE, is_local};

/// Bytes that are copied on a local disk before it is looked whether anybody still waits for them.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
/// Folders may go while a file is put into one of them; each try makes them anew.
const TRIES: usize = 64;

/// How an object was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// By the system, on a local disk.
    Locally,
    /// By the store, without its bytes passing through here.
    OnServer,
    /// As a stream.
    Streamed,
}

impl Storage {
    /// Copies an object of `size_bytes` from `source`. Nothing can be seen under the new location before it is whole, and on
    /// a local disk it is on the disk then. Nothing is written over where the store can promise that; locations of staged
    /// files are nobody else's in any case.
    ///
    /// # Errors
    /// [`StorageError`]; [`StorageError::Changed`] when the object is not of that size.
    pub async fn copy_object(
        &self,
        source: &Self,
        from: &str,
        to: &str,
        size_bytes: u64,
    ) -> Result<Copied, StorageError> {
        let ((from_store, from_path), (to_store, to_path)) = (source.resolve(from)?, self.resolve(to)?);
        if is_local(from) && is_local(to) {
            let copy = LocalCopy {
                from: PathBuf::from(format!("/{from_path}")),
                to: PathBuf::from(format!("/{to_path}")),
                to_path,
                folders: self.folders.clone(),
                size_bytes,
            };
            return copy.run(from, to).await.map(|()| Copied::Locally);
        }
        let found = from_store.head(&from_path).await.map_err(|error| StorageError::access("look up", from, error))?;
        expect(from, size_bytes, found.size)?;
        let is_same_store = source.properties == self.properties && Arc::ptr_eq(&from_store, &to_store);
        let copied = match is_same_store {
            true => on_server(&to_store, &from_path, &to_path)
                .await
                .map_err(|error| StorageError::access("copy to", to, error))?,
            false => false,
        };
        let how = if copied { Copied::OnServer } else { Copied::Streamed };
        if !copied {
            stream(from_store, from_path, to_store.clone(), to_path.clone(), from, to, size_bytes).await?;
        }
        let made = to_store.head(&to_path).await.map_err(|error| StorageError::access("look up", to, error))?;
        expect(to, size_bytes, made.size)?;
        Ok(how)
    }
}

fn expect(location: &str, expected: u64, actual: u64) -> Result<(), StorageError> {
    match expected == actual {
        true => Ok(()),
        false => Err(StorageError::Changed { location: location.to_owned(), expected, actual }),
    }
}

/// Lets the store copy; says whether it could.
async fn on_server(store: &Arc<dyn ObjectStore>, from: &StorePath, to: &StorePath) -> object_store::Result<bool> {
    use object_store::Error::{NotImplemented, NotSupported};
    // Not every store can promise to write over nothing, and not every one can copy every object.
    for mode in [CopyMode::Create, CopyMode::Overwrite] {
        match store.copy_opts(from, to, CopyOptions::new().with_mode(mode)).await {
            Ok(()) => return Ok(true),
            Err(NotSupported { .. } | NotImplemented { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

async fn stream(
    from_store: Arc<dyn ObjectStore>,
    from_path: StorePath,
    to_store: Arc<dyn ObjectStore>,
    to_path: StorePath,
    from: &str,
    to: &str,
    size_bytes: u64,
) -> Result<(), StorageError> {
    let mut bytes =
        from_store.get(&from_path).await.map_err(|error| StorageError::access("read", from, error))?.into_stream();
    let mut upload = object_store::buffered::BufWriter::with_capacity(to_store, to_path, UPLOAD_PART_BYTES)
        .with_max_concurrency(UPLOAD_PARTS_AT_ONCE);
    let mut written = 0;
    let copied = async {
        while let Some(chunk) = bytes.try_next().await.map_err(|error| StorageError::access("read", from, error))? {
            written += chunk.len() as u64;
            upload.put(chunk).await.map_err(|error| StorageError::access("write", to, error))?;
        }
        expect(from, size_bytes, written)
    };
    if let Err(error) = copied.await {
        if let Err(second) = upload.abort().await {
            tracing::debug!(location = to, error = %second, "abort of a failed upload failed");
        }
        return Err(error);
    }
    upload.shutdown().await.map_err(|error| {
        let error = match error.downcast::<object_store::Error>() {
            Ok(error) => error,
            Err(error) => object_store::Error::Generic { store: "upload", source: Box::new(error) },
        };
        StorageError::access("write", to, error)
    })
}

struct LocalCopy {
    from: PathBuf,
    to: PathBuf,
    to_path: StorePath,
    folders: Folders,
    size_bytes: u64,
}

/// What stopped a copy: an act on a location.
type LocalError = (&'static str, bool, io::Error);

impl LocalCopy {
    async fn run(self, from: &str, to: &str) -> Result<(), StorageError> {
        // Set when nobody waits any more: a blocking thread cannot be stopped otherwise.
        let given_up = Arc::new(AtomicBool::new(false));
        let guard = GivenUp(Arc::clone(&given_up));
        let size_bytes = self.size_bytes;
        let done = tokio::task::spawn_blocking(move || self.copy(&given_up)).await;
        drop(guard);
        let access = |act, location, source| {
            let source = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(source) };
            StorageError::access(act, location, source)
        };
        match done {
            Ok(Ok(copied)) => expect(from, size_bytes, copied),
            Ok(Err((act, is_source, error))) if error.kind() == io::ErrorKind::NotFound && is_source => {
                Err(StorageError::Missing { act, location: from.to_owned() })
            }
            Ok(Err((act, is_source, error))) => Err(access(act, if is_source { from } else { to }, error)),
            Err(error) => Err(access("copy to", to, io::Error::other(error))),
        }
    }

    /// Gives the bytes of the source; the copy is there only when they are as many as were expected.
    fn copy(&self, given_up: &AtomicBool) -> Result<u64, LocalError> {
        let mut from = File::open(&self.from).map_err(|error| ("read", true, error))?;
        let found = from.metadata().map_err(|error| ("look up", true, error))?.len();
        if found != self.size_bytes {
            return Ok(found);
        }
        let (mut file, staged) = self.begin().map_err(|error| ("create", false, error))?;
        let copied = self.fill(&mut from, &mut file, given_up).and_then(|copied| {
            if copied == self.size_bytes {
                file.sync_all().map_err(|error| ("write", false, error))?;
                self.publish(&staged).map_err(|error| ("create", false, error))?;
            }
            Ok(copied)
        });
        // Under its own name the file has a second name by now, or nobody wants it.
        let removed = std::fs::remove_file(&staged);
        let copied = copied?;
        removed.map_err(|error| ("clean up", false, error))?;
        Ok(copied)
    }

    /// A file beside the new one, which uploads under way are called like as well.
    fn begin(&self) -> io::Result<(File, PathBuf)> {
        let mut tries = 0;
        for number in 1u32.. {
            let staged = PathBuf::from(format!("{}#{number}", self.to.display()));
            loop {
                self.folders.note(&self.to_path);
                match OpenOptions::new().write(true).create_new(true).open(&staged) {
                    Ok(file) => return Ok((file, staged)),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {
                        tries += 1;
                        self.to.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(&self, from: &mut File, file: &mut File, given_up: &AtomicBool) -> Result<u64, LocalError> {
        let mut copied = 0;
        while copied < self.size_bytes {
            if given_up.load(Ordering::Relaxed) {
                return Err(("copy to", false, io::ErrorKind::Interrupted.into()));
            }
            // The system copies from file to file by itself, where it can without the bytes passing through here.
            let mut step = io::Read::take(&mut *from, STEP_BYTES.min(self.size_bytes - copied));
            match io::copy(&mut step, file).map_err(|error| ("copy to", false, error))? {
                0 => break,
                some => copied += some,
            }
        }
        Ok(copied)
    }

    /// Gives the file its name, unless something has it already.
    fn publish(&self, staged: &Path) -> io::Result<()> {
        std::fs::hard_link(staged, &self.to)?;
        let synced = self.to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all());
        if synced.is_err() {
            // Not to be seen by anybody when it may be gone after a crash.
            let _ = std::fs::remove_file(&self.to);
        }
        synced
    }
}

struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use bytes::Bytes;
    use object_store::memory::InMemory;

    use super::*;
    use crate::fault::{Class, Classified};
    use crate::storage::StorageProperties;

    fn storage() -> (Storage, tempfile::TempDir) {
        (Storage::new(StorageProperties::default()), tempfile::tempdir().unwrap())
    }

    #[tokio::test]
    async fn a_local_copy_is_a_file_of_its_own() {
        let (storage, folder) = storage();
        let location = |name: &str| format!("file://{}/{name}", folder.path().display());
        for size in [0usize, 1, 3 << 20] {
            let bytes = Bytes::from((0..size).map(|byte| (byte % 251) as u8).collect::<Vec<_>>());
            let (from, to) = (location(&format!("from-{size}")), location(&format!("a/b/to-{size}")));
            storage.write(&from, bytes.clone()).await.unwrap();
            let copied = storage.copy_object(&storage, &from, &to, size as u64).await.unwrap();
            assert_eq!(copied, Copied::Locally);
            assert_eq!(storage.read(&to).await.unwrap(), bytes);
            let inode = |location: &str| std::fs::metadata(location.trim_start_matches("file://")).unwrap().ino();
            assert_ne!(inode(&from), inode(&to));
        }
        assert_eq!(storage.list(&location("a")).await.unwrap().len(), 3, "nothing is left beside them");
    }

    #[tokio::test]
    async fn a_copy_writes_over_nothing_and_a_changed_or_missing_source_leaves_nothing() {
        let (storage, folder) = storage();
        let location = |name: &str| format!("{}/{name}", folder.path().display());
        storage.write(&location("from"), Bytes::from_static(b"12345")).await.unwrap();
        storage.write(&location("taken/it"), Bytes::from_static(b"theirs")).await.unwrap();
        let copy = |from: &'static str, to: &'static str, size: u64| {
            let (storage, from, to) = (storage.clone(), location(from), location(to));
            async move { storage.copy_object(&storage, &from, &to, size).await }
        };
        copy("from", "taken/it", 5).await.unwrap_err();
        assert_eq!(storage.read(&location("taken/it")).await.unwrap(), "theirs");
        for size in [4, 6] {
            let error = copy("from", "new/it", size).await.unwrap_err();
            assert!(matches!(error, StorageError::Changed { actual: 5, .. }), "{error}");
            assert_eq!(error.class(), Class::Corrupt);
        }
        assert_eq!(copy("none", "new/it", 5).await.unwrap_err().class(), Class::NotFound);
        let left = storage.list(&folder.path().display().to_string()).await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[tokio::test]
    async fn stores_copy_by_themselves_or_are_streamed_to() {
        let (one, other): (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>) =
            (Arc::new(InMemory::new()), Arc::new(InMemory::new()));
        let (from, to) = (StorePath::from("a/from"), StorePath::from("b/to"));
        let bytes = Bytes::from(vec![7; 25 << 20]);
        one.put(&from, bytes.clone().into()).await.unwrap();
        assert!(on_server(&one, &from, &to).await.unwrap());
        assert_eq!(one.get(&to).await.unwrap().bytes().await.unwrap(), bytes);
        let size = bytes.len() as u64;
        stream(one.clone(), from.clone(), other.clone(), to.clone(), "from", "to", size).await.unwrap();
        assert_eq!(other.get(&to).await.unwrap().bytes().await.unwrap(), bytes);
        let third = StorePath::from("c");
        let error = stream(one, from, other.clone(), third.clone(), "from", "to", size + 1).await.unwrap_err();
        assert!(matches!(error, StorageError::Changed { .. }), "{error}");
        assert!(other.head(&third).await.is_err());
    }
}
