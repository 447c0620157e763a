//! Blocks -> rows: of a file of one's own, or of one bucket from the files of many tasks.

use std::collections::VecDeque;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use iceferry_common::model::ExchangeFile;
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Block, ExchangeError, Side};

/// A block that is read.
pub(super) struct OpenBlock {
    pub(super) block: Block,
    location: Arc<str>,
    batches: StreamReader<Cursor<Bytes>>,
    rows_found: u64,
}

impl OpenBlock {
    /// Reads a block, and waits for that.
    pub(super) fn open(
        storage: &Storage,
        runtime: &Handle,
        location: &Arc<str>,
        block: Block,
    ) -> Result<Self, ExchangeError> {
        let range = block.offset..block.offset.saturating_add(block.length);
        let bytes = runtime.block_on(storage.read_range(location, range)).map_err(|source| {
            let location = location.to_string();
            ExchangeError::Read { location, source: Box::new(source) }
        })?;
        let batches = StreamReader::try_new(Cursor::new(bytes), None).map_err(|source| {
            let location = location.to_string();
            ExchangeError::Decode { location, offset: block.offset, source }
        })?;
        Ok(Self { block, location: Arc::clone(location), batches, rows_found: 0 })
    }

    /// The next rows; nothing at the end, where all that were written have come.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>, ExchangeError> {
        let (location, offset) = (self.location.to_string(), self.block.offset);
        for batch in self.batches.by_ref() {
            let batch = match batch {
                Ok(batch) => batch,
                Err(source) => return Err(ExchangeError::Decode { location, offset, source }),
            };
            self.rows_found += batch.num_rows() as u64;
            if self.rows_found > self.block.rows {
                break;
            }
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        let (expected, found) = (self.block.rows, self.rows_found);
        if found == expected { Ok(None) } else { Err(ExchangeError::RowCount { location, offset, expected, found }) }
    }
}

/// Rows of one bucket from the files of many tasks, which others remove: those that went before those that came, each side
/// in the order of the files and of their blocks. One block is in memory at a time. Ends after its first error.
pub struct Blocks {
    storage: Storage,
    runtime: Handle,
    cancel: CancellationToken,
    waiting: VecDeque<(Arc<str>, Block)>,
    open: Option<OpenBlock>,
    rows_read: u64,
}

impl Blocks {
    /// Rows of the blocks that are named. Nothing is read yet; once `cancel` is set nothing is read any more.
    pub fn new(storage: Storage, runtime: Handle, cancel: CancellationToken, files: &[ExchangeFile]) -> Self {
        let located = files.iter().flat_map(|file| {
            let location: Arc<str> = file.location.as_str().into();
            file.blocks.iter().map(move |block| (Arc::clone(&location), *block))
        });
        let mut waiting: Vec<(Arc<str>, Block)> = located.collect();
        // Stable: within a side the order stays.
        waiting.sort_by_key(|(_, block)| block.side);
        Self { storage, runtime, cancel, waiting: waiting.into(), open: None, rows_read: 0 }
    }

    /// Rows given so far, on either side.
    pub fn rows_read(&self) -> u64 {
        self.rows_read
    }

    fn next_batch(&mut self) -> Result<Option<(Side, RecordBatch)>, ExchangeError> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(ExchangeError::Cancelled);
            }
            if let Some(open) = &mut self.open
                && let Some(batch) = open.next_batch()?
            {
                self.rows_read += batch.num_rows() as u64;
                return Ok(Some((open.block.side, batch)));
            }
            self.open = None;
            let Some((location, block)) = self.waiting.pop_front() else { return Ok(None) };
            self.open = Some(OpenBlock::open(&self.storage, &self.runtime, &location, block)?);
        }
    }
}

impl Iterator for Blocks {
    type Item = Result<(Side, RecordBatch), ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch().transpose()?;
        if next.is_err() {
            self.waiting.clear();
            self.open = None;
        }
        Some(next)
    }
}
