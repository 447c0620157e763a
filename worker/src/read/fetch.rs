//! Bytes from storage, fetched on the runtime while a blocking thread decodes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use bytes::Bytes;
use iceferry_common::storage::{Storage, StorageError};
use object_store::{GetOptions, GetRange, ObjectStore};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::ReadError;

/// Requests that one task has under way at once: enough to hide the latency of an object store, few enough that many
/// tasks do not crowd it.
const REQUESTS_AT_ONCE: usize = 8;

/// A file as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileHandle {
    pub(crate) location: Arc<str>,
    pub(crate) size_bytes: u64,
}

impl FileHandle {
    pub(crate) fn new(location: &str, size_bytes: u64) -> Self {
        Self { location: Arc::from(location), size_bytes }
    }
}

/// Starts requests. Cheap to clone; clones share the counter and the bound on requests.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    storage: Storage,
    runtime: Handle,
    cancel: CancellationToken,
    permits: Arc<Semaphore>,
    bytes: Arc<AtomicU64>,
}

impl Fetcher {
    pub(crate) fn new(storage: Storage, runtime: Handle, cancel: CancellationToken) -> Self {
        let permits = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        Self { storage, runtime, cancel, permits, bytes: Arc::default() }
    }

    /// Bytes that requests brought so far.
    pub(crate) fn bytes_fetched(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Asks for a range of a file. The request runs by itself until it is done or its [`Fetch`] is dropped.
    pub(crate) fn start(&self, file: &FileHandle, range: Range<u64>) -> Fetch {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (this, file_of_task) = (self.clone(), file.clone());
        let task = self.runtime.spawn(async move {
            let interrupted = || ReadError::Interrupted { location: file_of_task.location.to_string() };
            let got = tokio::select! {
                biased;
                () = this.cancel.cancelled() => Err(interrupted()),
                got = this.get(&file_of_task, range) => got,
            };
            // The receiver is gone when the reader was dropped: nobody wants the bytes then.
            let _ = sender.try_send(got);
        });
        Fetch { receiver, abort: task.abort_handle(), location: Arc::clone(&file.location) }
    }

    async fn get(&self, file: &FileHandle, range: Range<u64>) -> Result<Bytes, ReadError> {
        let interrupted = |_| ReadError::Interrupted { location: file.location.to_string() };
        let _permit = self.permits.acquire().await.map_err(interrupted)?;
        let expected = range.end.saturating_sub(range.start);
        if range.end > file.size_bytes || expected == 0 {
            let what = format!("bytes {}..{} of {} were asked for", range.start, range.end, file.size_bytes);
            return Err(ReadError::damaged(&file.location, what));
        }
        let (store, path) = self.storage.resolve(&file.location)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let access = |source| StorageError::access("read", &file.location, source);
        let answer = match store.get_opts(&path, options).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.explain(file, access(error)).await),
        };
        // The size comes with every answer: a file that was replaced is noticed before its bytes are decoded, and
        // nothing is allocated by a manifest's word alone.
        if answer.meta.size != file.size_bytes {
            return Err(size_error(file, answer.meta.size));
        }
        let bytes = answer.bytes().await.map_err(access)?;
        if bytes.len() as u64 != expected {
            return Err(size_error(file, range.start + bytes.len() as u64));
        }
        self.bytes.fetch_add(expected, Ordering::Relaxed);
        Ok(bytes)
    }

    /// A range that begins beyond the end of a file that is too short fails as a range, without saying why.
    async fn explain(&self, file: &FileHandle, error: StorageError) -> ReadError {
        match self.storage.size(&file.location).await {
            Ok(Some(actual)) if actual != file.size_bytes => size_error(file, actual),
            _ => error.into(),
        }
    }
}

fn size_error(file: &FileHandle, actual: u64) -> ReadError {
    ReadError::Size { location: file.location.to_string(), expected: file.size_bytes, actual }
}

/// A request under way. Dropping it stops the request.
#[derive(Debug)]
pub(crate) struct Fetch {
    receiver: mpsc::Receiver<Result<Bytes, ReadError>>,
    abort: AbortHandle,
    location: Arc<str>,
}

impl Fetch {
    /// Blocks until the bytes are there. Never to be called on a thread that drives the runtime.
    pub(crate) fn wait(self) -> Result<Bytes, ReadError> {
        // The sender goes away without an answer only when the runtime drops its tasks.
        let interrupted = |_| ReadError::Interrupted { location: self.location.to_string() };
        self.receiver.recv().map_err(interrupted)?
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.abort.abort();
    }
}
