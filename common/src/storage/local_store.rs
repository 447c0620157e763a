//! The local file system as an object store, where folders come and go: a file that is deleted takes the folders with it
//! that it leaves empty, and another writer may be about to put a file into one of them. In an object store there are no
//! folders, and no such race; here the writer makes its folders again.

use std::error::Error as _;
use std::fmt;
use std::io;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::local::Folders;

/// Folders are removed one by one from the bottom up, so a writer meets as many races as there are folders at most; each
/// deletion starts anew.
const TRIES: usize = 64;

#[derive(Debug)]
pub(super) struct LocalStore {
    files: LocalFileSystem,
    folders: Folders,
}

impl LocalStore {
    /// What is written is on the disk when the write returns.
    pub(super) fn new(folders: Folders) -> Self {
        // Its own clean-up of empty folders would take those of other people too.
        Self { files: LocalFileSystem::new().with_fsync(true), folders }
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

/// Whether a write failed because a folder went between its making and its use.
fn folder_is_gone(error: &Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return true;
        }
        source = error.source();
    }
    false
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mut tries = 1;
        loop {
            self.folders.note(location);
            match self.files.put_opts(location, payload.clone(), options.clone()).await {
                Err(error) if tries < TRIES && folder_is_gone(&error) => tries += 1,
                put => return put,
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let mut tries = 1;
        loop {
            self.folders.note(location);
            match self.files.put_multipart_opts(location, options.clone()).await {
                Err(error) if tries < TRIES && folder_is_gone(&error) => tries += 1,
                begun => return begun,
            }
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[std::ops::Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}
