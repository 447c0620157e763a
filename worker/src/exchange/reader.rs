//! Blocks of an exchange file -> rows, bucket by bucket.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;

use super::space::File;
use super::{Block, ExchangeError, LEVELS, Side};

/// Reads an exchange file back: one bucket after the other, and one block at a time.
pub struct Reader {
    file: File,
    level: u32,
    /// By bucket, then by side, then in the order of arrival.
    blocks: Vec<Block>,
    /// The block that is opened next.
    next: usize,
    bucket: Option<u32>,
    open: Option<OpenBlock>,
}

/// What is known of a bucket before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its number at its level.
    pub number: u32,
    /// Rows of both sides.
    pub rows: u64,
    /// Memory that they take, about.
    pub memory_bytes: u64,
    /// Whether another level would take it apart. Not when all its rows have the same hash.
    pub can_be_split: bool,
}

struct OpenBlock {
    block: Block,
    batches: StreamReader<Cursor<Bytes>>,
    rows_left: u64,
}

impl Reader {
    pub(super) fn new(file: File, level: u32, mut blocks: Vec<Block>) -> Self {
        blocks.sort_unstable_by_key(|block| (block.bucket, block.side, block.offset));
        Self { file, level, blocks, next: 0, bucket: None, open: None }
    }

    /// The index: by bucket, then by side, then in the order of arrival.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Goes to the next bucket that has rows; what was not read of the one before it is left out.
    pub fn next_bucket(&mut self) -> Option<Bucket> {
        self.open = None;
        self.next += self.blocks[self.next..].iter().take_while(|block| Some(block.bucket) == self.bucket).count();
        let number = self.blocks.get(self.next)?.bucket;
        self.bucket = Some(number);
        let blocks = self.blocks[self.next..].iter().take_while(|block| block.bucket == number);
        let (mut rows, mut memory_bytes, mut hash_min, mut hash_max) = (0, 0, u64::MAX, 0);
        for block in blocks {
            rows += block.rows;
            memory_bytes += block.memory_bytes;
            hash_min = hash_min.min(block.hash_min);
            hash_max = hash_max.max(block.hash_max);
        }
        Some(Bucket { number, rows, memory_bytes, can_be_split: hash_min != hash_max && self.level + 1 < LEVELS })
    }

    /// The next rows of the bucket; nothing at its end.
    ///
    /// # Errors
    /// When the storage does not give a block back, or it is not what was written.
    pub fn next_batch(&mut self) -> Result<Option<(Side, RecordBatch)>, ExchangeError> {
        loop {
            self.file.go_on()?;
            let Some(mut open) = self.open.take() else {
                let block = self.blocks.get(self.next).filter(|block| Some(block.bucket) == self.bucket);
                let Some(block) = block.copied() else { return Ok(None) };
                self.open = Some(self.open(block)?);
                self.next += 1;
                continue;
            };
            let block = open.block;
            let Some(batch) = open.batches.next() else {
                match open.rows_left {
                    0 => continue,
                    rows_left => return Err(self.miscounted(&block, block.rows - rows_left)),
                }
            };
            let batch = batch.map_err(|error| self.undecodable(&block, error))?;
            let Some(left) = open.rows_left.checked_sub(batch.num_rows() as u64) else {
                return Err(self.miscounted(&block, block.rows - open.rows_left + batch.num_rows() as u64));
            };
            open.rows_left = left;
            self.open = Some(open);
            if batch.num_rows() > 0 {
                return Ok(Some((block.side, batch)));
            }
        }
    }

    /// Memory that it holds: the block that is open, and the index.
    pub fn memory_bytes(&self) -> u64 {
        let index = self.blocks.capacity() * size_of::<Block>();
        let open = self.open.as_ref().map_or(0, |open| open.block.length + open.block.memory_bytes);
        index as u64 + open
    }

    /// Removes the file, and waits for that. Gives its location when it may still be there.
    pub fn remove(self) -> Option<String> {
        self.file.remove()
    }

    fn open(&self, block: Block) -> Result<OpenBlock, ExchangeError> {
        let range = block.offset..block.offset + block.length;
        let bytes = self.file.runtime.block_on(self.file.storage.read_range(&self.file.location, range));
        let bytes = bytes.map_err(|source| {
            let location = self.file.location.clone();
            ExchangeError::Read { location, source: Box::new(source) }
        })?;
        let batches = StreamReader::try_new(Cursor::new(bytes), None);
        let batches = batches.map_err(|error| self.undecodable(&block, error))?;
        Ok(OpenBlock { block, batches, rows_left: block.rows })
    }

    fn undecodable(&self, block: &Block, source: ArrowError) -> ExchangeError {
        ExchangeError::Decode { location: self.file.location.clone(), offset: block.offset, source }
    }

    fn miscounted(&self, block: &Block, found: u64) -> ExchangeError {
        let location = self.file.location.clone();
        ExchangeError::RowCount { location, offset: block.offset, expected: block.rows, found }
    }
}
