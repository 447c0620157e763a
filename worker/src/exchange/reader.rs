//! Blocks of an exchange file -> rows, bucket by bucket.

use std::sync::Arc;

use arrow::array::RecordBatch;
use iceferry_common::model::ExchangeFile;

use super::blocks::OpenBlock;
use super::space::File;
use super::{Block, ExchangeError, LEVELS, Side};

/// Reads an exchange file back: one bucket after the other, and one block at a time.
pub struct Reader {
    file: File,
    location: Arc<str>,
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

impl Reader {
    pub(super) fn new(file: File, level: u32, mut blocks: Vec<Block>) -> Self {
        blocks.sort_unstable_by_key(|block| (block.bucket, block.side, block.offset));
        let location = file.location.as_str().into();
        Self { file, location, level, blocks, next: 0, bucket: None, open: None }
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
            if let Some(open) = &mut self.open
                && let Some(batch) = open.next_batch()?
            {
                return Ok(Some((open.block.side, batch)));
            }
            self.open = None;
            let block = self.blocks.get(self.next).filter(|block| Some(block.bucket) == self.bucket);
            let Some(block) = block.copied() else { return Ok(None) };
            self.open = Some(OpenBlock::open(&self.file.storage, &self.file.runtime, &self.location, block)?);
            self.next += 1;
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

    /// Leaves the file to others, who read and in the end remove it.
    pub fn hand_over(self) -> ExchangeFile {
        ExchangeFile { location: self.file.hand_over(), blocks: self.blocks }
    }
}
