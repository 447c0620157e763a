//! Storage: every byte of a table, source or target, goes through here.
//!
//! A [`Storage`] takes the locations that stand in Iceberg metadata (`/a/b`, `file:/a/b`, `file:///a/b`) and answers
//! through `object_store`. The iceberg crate gets the same storage by [`Storage::file_io`].

mod copy;
mod error;
mod iceberg_io;
mod local;
mod local_store;
mod location;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};

pub use copy::Copied;
pub use error::StorageError;
pub use iceberg_io::ObjectStoreFactory;
pub use location::is_local;

/// Part size of a streamed upload: the smallest that all object stores take for every part, doubled.
const UPLOAD_PART_BYTES: usize = 10 * 1024 * 1024;
/// The same on a local disk, which does not mind: larger parts would only be held longer.
const LOCAL_PART_BYTES: usize = 4 * 1024 * 1024;
/// Parts of one upload that may be under way at once.
const UPLOAD_PARTS_AT_ONCE: usize = 2;

/// Settings and credentials for a table's files, as a catalog's properties give them. Printing shows the keys alone.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StorageProperties(pub BTreeMap<String, String>);

impl fmt::Debug for StorageProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Whether [`Storage::create`] wrote the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// The object is new and holds what was given.
    New,
    /// Something was there already; nothing was written.
    AlreadyThere,
}

/// An object found by [`Storage::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Full location, in the form of the prefix it was found under.
    pub location: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Reads and writes objects by location. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Storage {
    properties: StorageProperties,
    local: Arc<dyn ObjectStore>,
    folders: local::Folders,
}

impl Storage {
    /// Storage with these settings. Nothing is contacted.
    pub fn new(properties: StorageProperties) -> Self {
        let folders = local::Folders::default();
        Self { properties, local: Arc::new(local_store::LocalStore::new(folders.clone())), folders }
    }

    /// The settings it was made with.
    pub fn properties(&self) -> &StorageProperties {
        &self.properties
    }

    /// The same storage as the iceberg crate wants it.
    pub fn file_io(&self) -> iceberg::io::FileIO {
        iceberg_io::file_io(self)
    }

    /// The store that holds `location`, and the path in it. For readers and writers with patterns of their own.
    ///
    /// # Errors
    /// When no storage knows the location's scheme, or its path is not one.
    pub fn resolve(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, object_store::path::Path), StorageError> {
        let path = location::local_path(location)?;
        Ok((Arc::clone(&self.local), path))
    }

    /// The whole object.
    ///
    /// # Errors
    /// [`StorageError`], which tells a missing object from one that may not be read and from a passing fault.
    pub async fn read(&self, location: &str) -> Result<Bytes, StorageError> {
        let (store, path) = self.resolve(location)?;
        let read = async { store.get(&path).await?.bytes().await };
        read.await.map_err(|source| StorageError::access("read", location, source))
    }

    /// One range of the object, in bytes.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub async fn read_range(&self, location: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let (store, path) = self.resolve(location)?;
        store.get_range(&path, range).await.map_err(|source| StorageError::access("read", location, source))
    }

    /// Size of the object in bytes; `None` when there is none.
    ///
    /// # Errors
    /// As for [`Self::read`], a missing object apart.
    pub async fn size(&self, location: &str) -> Result<Option<u64>, StorageError> {
        let (store, path) = self.resolve(location)?;
        match store.head(&path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(StorageError::access("look up", location, source)),
        }
    }

    /// Writes an object, over one that is there.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn write(&self, location: &str, bytes: Bytes) -> Result<(), StorageError> {
        let (store, path) = self.resolve(location)?;
        let put = store.put(&path, PutPayload::from_bytes(bytes)).await;
        put.map(drop).map_err(|source| StorageError::access("write", location, source))
    }

    /// Writes an object unless one is there: atomic, exactly one of many callers gets [`Created::New`].
    ///
    /// # Errors
    /// [`StorageError`]; also when the store cannot promise this.
    pub async fn create(&self, location: &str, bytes: Bytes) -> Result<Created, StorageError> {
        let (store, path) = self.resolve(location)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match store.put_opts(&path, PutPayload::from_bytes(bytes), options).await {
            Ok(_) => Ok(Created::New),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::AlreadyThere)
            }
            Err(source) => Err(StorageError::access("create", location, source)),
        }
    }

    /// A streamed upload: nothing can be seen under the location before `shutdown` of the writer returned; `abort`
    /// leaves nothing behind.
    ///
    /// # Errors
    /// When no storage knows the location.
    pub fn upload(&self, location: &str) -> Result<object_store::buffered::BufWriter, StorageError> {
        let (store, path) = self.resolve(location)?;
        let part_bytes = if is_local(location) { LOCAL_PART_BYTES } else { UPLOAD_PART_BYTES };
        Ok(object_store::buffered::BufWriter::with_capacity(store, path, part_bytes)
            .with_max_concurrency(UPLOAD_PARTS_AT_ONCE))
    }

    /// Removes an object; one that is not there is no error. On a local disk folders that it leaves empty go too, up to
    /// those that were there before this storage wrote.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn delete(&self, location: &str) -> Result<(), StorageError> {
        if is_local(location) {
            return local::remove(&location::local_path(location)?, &self.folders).await;
        }
        let (store, path) = self.resolve(location)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StorageError::access("delete", location, source)),
        }
    }

    /// All objects under a folder, at any depth; none when there is no such folder. On a local disk an upload that was
    /// under way when its process was killed is listed too, under the name that it has there.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>, StorageError> {
        let folder = folder.trim_end_matches('/');
        if is_local(folder) {
            return local::list(folder).await;
        }
        let (store, path) = self.resolve(folder)?;
        let found = store.list(Some(&path)).map_ok(|meta| {
            let below = meta.location.as_ref().strip_prefix(path.as_ref()).unwrap_or(meta.location.as_ref());
            Listed { location: format!("{folder}{below}"), size_bytes: meta.size }
        });
        found.try_collect().await.map_err(|source| StorageError::access("list", folder, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> (Storage, tempfile::TempDir) {
        (Storage::new(StorageProperties::default()), tempfile::tempdir().unwrap())
    }

    #[tokio::test]
    async fn create_has_one_winner() {
        let (storage, folder) = storage();
        let location = format!("file://{}/a/b", folder.path().display());
        let first = storage.create(&location, Bytes::from_static(b"1")).await.unwrap();
        let second = storage.create(&location, Bytes::from_static(b"2")).await.unwrap();
        assert_eq!((first, second), (Created::New, Created::AlreadyThere));
        assert_eq!(storage.read(&location).await.unwrap(), "1");
    }

    #[tokio::test]
    async fn odd_names_come_back_as_they_are() {
        let (storage, folder) = storage();
        for name in ["a b", "c=%25", "p=a+b%2Fc%3D%25", "ü", "x#1.parquet", "d..e", "q?r&s"] {
            let location = format!("{}/odd/{name}/file.bin", folder.path().display());
            storage.write(&location, Bytes::from_static(b"x")).await.unwrap();
            assert!(std::path::Path::new(&location).exists(), "{location} on disk");
            assert_eq!(storage.size(&location).await.unwrap(), Some(1), "{location}");
            let listed = storage.list(&format!("{}/odd/{name}", folder.path().display())).await.unwrap();
            assert_eq!(listed, [Listed { location: location.clone(), size_bytes: 1 }]);
            assert_eq!(storage.read_range(&location, 0..1).await.unwrap(), "x");
            storage.delete(&location).await.unwrap();
            storage.delete(&location).await.unwrap();
            assert_eq!(storage.size(&location).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn an_upload_that_was_cut_off_is_listed_and_removed() {
        use tokio::io::AsyncWriteExt;
        let (storage, folder) = storage();
        let location = format!("{}/a/b.parquet", folder.path().display());
        let mut upload = storage.upload(&location).unwrap();
        upload.write_all(&vec![7; UPLOAD_PART_BYTES * 3]).await.unwrap();
        upload.flush().await.unwrap();
        // What a kill does: nobody completes the upload, and nobody aborts it.
        std::mem::forget(upload);
        let listed = storage.list(&format!("{}/a", folder.path().display())).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_ne!(listed[0].location, location, "it cannot be seen under its own name");
        storage.delete(&listed[0].location).await.unwrap();
        assert!(storage.list(&folder.path().display().to_string()).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn folders_that_were_there_before_stay_when_the_last_object_goes() {
        let (storage, folder) = storage();
        let warehouse = folder.path().join("empty");
        std::fs::create_dir(&warehouse).unwrap();
        let location = |name: &str| format!("{}/ns/t/{name}", warehouse.display());
        let _ = storage.create(&location("a/1"), Bytes::from_static(b"x")).await.unwrap();
        storage.write(&location("b/2"), Bytes::from_static(b"x")).await.unwrap();
        storage.delete(&location("a/1")).await.unwrap();
        assert!(warehouse.join("ns/t/b/2").exists() && !warehouse.join("ns/t/a").exists());
        storage.delete(&location("b/2")).await.unwrap();
        assert!(warehouse.exists(), "it is not ours");
        assert!(!warehouse.join("ns").exists(), "it is ours");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn folders_that_go_while_another_file_comes_do_not_fail_it() {
        use tokio::io::AsyncWriteExt;
        let (storage, folder) = storage();
        let location = |name: usize| format!("{}/a/b/c/{name}", folder.path().display());
        let writers = (0..6).map(|name| {
            let (storage, location) = (storage.clone(), location(name));
            tokio::spawn(async move {
                for round in 0..200 {
                    match (name + round) % 3 {
                        0 => storage.write(&location, Bytes::from_static(b"x")).await.unwrap(),
                        1 => drop(storage.create(&location, Bytes::from_static(b"x")).await.unwrap()),
                        _ => {
                            let mut upload = storage.upload(&location).unwrap();
                            upload.write_all(b"x").await.unwrap();
                            upload.shutdown().await.unwrap();
                        }
                    }
                    storage.delete(&location).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        assert!(!folder.path().join("a").exists());
    }

    #[tokio::test]
    async fn a_missing_object_is_told_from_other_faults() {
        use crate::fault::{Class, Classified};
        let (storage, folder) = storage();
        let error = storage.read(&format!("{}/none", folder.path().display())).await.unwrap_err();
        assert_eq!(error.class(), Class::NotFound);
        let error = storage.read("s4://bucket/none").await.unwrap_err();
        assert_eq!(error.class(), Class::Refused);
        assert!(storage.list(&format!("{}/none", folder.path().display())).await.unwrap().is_empty());
    }

    #[test]
    fn settings_print_without_values() {
        let properties = StorageProperties(BTreeMap::from([("s3.secret-access-key".into(), "hunter2".into())]));
        assert!(!format!("{properties:?}").contains("hunter2"));
    }
}
