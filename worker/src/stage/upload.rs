//! The way of encoded bytes from the blocking thread that encodes to the storage.
//!
//! A [`Sink`] is what the encoder writes to. It hands over chunks through a bounded channel to a task that drives the
//! upload, so encoding and I/O overlap, and a slow storage holds the encoder back instead of filling memory. The upload
//! completes only on an explicit word; a sink that is dropped, whatever the reason, aborts it.

use std::io::{self, Write};

use bytes::Bytes;
use iceferry_common::storage::{Storage, StorageError};
use object_store::buffered::BufWriter;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes that are handed over at once.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Chunks that may wait for the storage.
const CHUNKS_WAITING: usize = 4;

enum Message {
    Chunk(Bytes),
    /// The file is whole.
    Complete,
}

/// An upload under way. Ends with the storage's answer; an aborted upload ends well.
pub(crate) struct Upload {
    task: JoinHandle<Result<(), StorageError>>,
}

/// How an upload ended.
pub(crate) enum Ended {
    /// Completed or aborted, as it was told.
    Well,
    /// The storage did not take it.
    Failed(StorageError),
    /// The runtime ended the task.
    CutOff,
}

impl Upload {
    /// Begins an upload to `location`.
    pub(crate) fn begin(storage: &Storage, runtime: &Handle, location: &str) -> Result<(Self, Sink), StorageError> {
        let upload = storage.upload(location)?;
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING);
        let task = runtime.spawn(drive(upload, receiver, location.to_owned()));
        Ok((Self { task }, Sink { sender: Some(sender), chunk: Vec::new(), written: 0 }))
    }

    /// Waits for its end. The sink must have completed or be gone.
    pub(crate) async fn ended(self) -> Ended {
        match self.task.await {
            Ok(Ok(())) => Ended::Well,
            Ok(Err(error)) => Ended::Failed(error),
            Err(_) => Ended::CutOff,
        }
    }
}

async fn drive(
    mut upload: BufWriter,
    mut receiver: mpsc::Receiver<Message>,
    location: String,
) -> Result<(), StorageError> {
    let failed = |act, source| StorageError::access(act, &location, source);
    loop {
        match receiver.recv().await {
            Some(Message::Chunk(bytes)) => {
                if let Err(error) = upload.put(bytes).await {
                    if let Err(second) = upload.abort().await {
                        tracing::debug!(location, error = %second, "abort of a failed upload failed");
                    }
                    return Err(failed("write", error));
                }
            }
            Some(Message::Complete) => {
                return upload.shutdown().await.map_err(|error| failed("write", store_error(error)));
            }
            None => return upload.abort().await.map_err(|error| failed("abort the upload of", error)),
        }
    }
}

/// The store's own error, out of the I/O error that it travelled in.
fn store_error(error: io::Error) -> object_store::Error {
    match error.downcast::<object_store::Error>() {
        Ok(error) => error,
        Err(error) => object_store::Error::Generic { store: "upload", source: Box::new(error) },
    }
}

/// Where the encoder writes. Blocks while the storage is behind, so it must not be used on an async thread.
pub(crate) struct Sink {
    /// `None` once completed or discarded.
    sender: Option<mpsc::Sender<Message>>,
    chunk: Vec<u8>,
    written: u64,
}

impl Sink {
    /// Bytes written so far: the exact size of the file in the end.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Hands over bytes that are there already, without a copy of them.
    pub(crate) fn write_block(&mut self, block: Bytes) -> io::Result<()> {
        self.hand_over()?;
        self.written += block.len() as u64;
        let sender = self.sender.as_ref().ok_or_else(gone)?;
        sender.blocking_send(Message::Chunk(block)).map_err(|_| gone())
    }

    /// Hands over what is left, and says that the file is whole.
    pub(crate) fn complete(&mut self) -> io::Result<()> {
        self.hand_over()?;
        let sender = self.sender.take().ok_or_else(gone)?;
        sender.blocking_send(Message::Complete).map_err(|_| gone())
    }

    /// Aborts the upload. What is written from here on goes nowhere, and never blocks: an encoder empties its buffers
    /// when it is dropped, wherever that happens.
    pub(crate) fn discard(&mut self) {
        self.sender = None;
        self.chunk = Vec::new();
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.chunk));
        let sender = self.sender.as_ref().ok_or_else(gone)?;
        sender.blocking_send(Message::Chunk(chunk)).map_err(|_| gone())
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the upload has ended")
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.sender.is_none() {
            return Err(gone());
        }
        if self.chunk.capacity() == 0 {
            self.chunk.reserve_exact(CHUNK_BYTES);
        }
        let taken = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        self.written += taken as u64;
        if self.chunk.len() == CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Chunks are handed over full; the last one on completion.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iceferry_common::storage::StorageProperties;

    use super::*;

    #[test]
    fn only_a_completed_upload_can_be_seen() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let storage = Storage::new(StorageProperties::default());
        let folder = tempfile::tempdir().unwrap();
        // One that the storage takes at once, one in parts.
        for bytes in [10, 25 << 20] {
            for complete in [false, true] {
                let path = folder.path().join(format!("{bytes}-{complete}"));
                let location = path.display().to_string();
                let (upload, mut sink) = Upload::begin(&storage, runtime.handle(), &location).unwrap();
                sink.write_all(&vec![7; bytes]).unwrap();
                assert_eq!(sink.written(), bytes as u64);
                if complete {
                    sink.complete().unwrap();
                }
                drop(sink);
                assert!(matches!(runtime.block_on(upload.ended()), Ended::Well));
                assert_eq!(std::fs::metadata(&path).ok().map(|found| found.len()), complete.then_some(bytes as u64));
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no parts are left");
    }

    #[test]
    fn a_discarded_sink_takes_nothing_more() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let storage = Storage::new(StorageProperties::default());
        let folder = tempfile::tempdir().unwrap();
        let location = folder.path().join("file").display().to_string();
        let (upload, mut sink) = Upload::begin(&storage, runtime.handle(), &location).unwrap();
        sink.discard();
        assert!(sink.write_all(b"late").is_err());
        assert!(sink.complete().is_err());
        assert!(matches!(runtime.block_on(upload.ended()), Ended::Well));
        assert!(!folder.path().join("file").exists());
    }
}
