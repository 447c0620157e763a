//! Rows with their hashes -> blocks of one bucket each, in one staged file.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

use super::partition::partition;
use super::space::File;
use super::{Block, ExchangeError, Reader, Side, Space, batch_rows};
use crate::stage::upload::Sink;

/// Writes an exchange file.
pub struct Writer {
    // First, so that it is gone when the file waits for the end of its upload.
    sink: Sink,
    file: File,
    level: u32,
    memory_bytes_max: u64,
    went: Waiting,
    came: Waiting,
    blocks: Vec<Block>,
}

/// Rows of one side that are not written yet.
#[derive(Default)]
struct Waiting {
    batches: Vec<RecordBatch>,
    hashes: Vec<u64>,
    bytes: u64,
}

impl Waiting {
    fn memory_bytes(&self) -> u64 {
        self.bytes + (self.hashes.capacity() * size_of::<u64>()) as u64
    }
}

impl Writer {
    /// Begins a file. Rows are spread by the bits of their hashes that `level` looks at; those that are not written yet take
    /// `memory_bytes_max` at most, and a batch.
    ///
    /// # Errors
    /// When no storage knows the file's location.
    pub fn begin(space: &mut Space, level: u32, memory_bytes_max: u64) -> Result<Self, ExchangeError> {
        let (file, sink) = space.begin()?;
        let (went, came) = (Waiting::default(), Waiting::default());
        Ok(Self { sink, file, level, memory_bytes_max, went, came, blocks: Vec::new() })
    }

    /// Takes rows of a side, with the hash of each. All batches of a side have one schema.
    ///
    /// # Errors
    /// When rows cannot be encoded or the storage does not take them; the writer is of no use then.
    pub fn write(&mut self, side: Side, rows: RecordBatch, hashes: &[u64]) -> Result<(), ExchangeError> {
        self.file.go_on()?;
        if rows.num_rows() != hashes.len() {
            let location = self.file.location.clone();
            return Err(ExchangeError::Hashes { location, rows: rows.num_rows(), hashes: hashes.len() });
        }
        if hashes.is_empty() {
            return Ok(());
        }
        let waiting = self.waiting(side);
        waiting.bytes += memory_bytes(&rows);
        waiting.batches.push(rows);
        waiting.hashes.extend_from_slice(hashes);
        if self.went.memory_bytes() + self.came.memory_bytes() >= self.memory_bytes_max {
            // All buckets of the larger side: its batches are taken apart once, and none stays behind for a few of its rows.
            let larger = if self.went.memory_bytes() > self.came.memory_bytes() { Side::Went } else { Side::Came };
            self.flush(larger)?;
        }
        Ok(())
    }

    /// Memory that it holds: rows that are not written yet, and the index.
    pub fn memory_bytes(&self) -> u64 {
        let index = self.blocks.capacity() * size_of::<Block>();
        self.went.memory_bytes() + self.came.memory_bytes() + index as u64
    }

    /// Writes the rest, waits until the storage has the file, and gives its reader.
    ///
    /// # Errors
    /// As for [`Self::write`]. The file is removed then.
    pub fn finish(mut self) -> Result<Reader, ExchangeError> {
        self.flush(Side::Went)?;
        self.flush(Side::Came)?;
        let completed = self.sink.complete();
        // The storage's own answer says more than that it takes no more bytes.
        self.file.settle()?;
        let Self { file, blocks, level, .. } = self;
        completed.map_err(|error| encode(&file, error.into()))?;
        Ok(Reader::new(file, level, blocks))
    }

    /// Gives the file up, and waits until it is gone. Gives its location when it may still be there.
    pub fn abort(mut self) -> Option<String> {
        self.sink.discard();
        self.file.remove()
    }

    fn waiting(&mut self, side: Side) -> &mut Waiting {
        match side {
            Side::Went => &mut self.went,
            Side::Came => &mut self.came,
        }
    }

    fn flush(&mut self, side: Side) -> Result<(), ExchangeError> {
        self.file.go_on()?;
        let waiting = std::mem::take(self.waiting(side));
        match self.write_blocks(side, &waiting) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.sink.discard();
                self.file.settle()?;
                Err(encode(&self.file, error))
            }
        }
    }

    /// Writes a block for each bucket.
    fn write_blocks(&mut self, side: Side, waiting: &Waiting) -> Result<(), ArrowError> {
        let Some(first) = waiting.batches.first() else { return Ok(()) };
        let schema = first.schema();
        let batches: Vec<&RecordBatch> = waiting.batches.iter().collect();
        let ends: Vec<usize> = ends(&waiting.batches);
        let rows_all = waiting.hashes.len() as u64;
        let chunk_rows = batch_rows(rows_all, waiting.bytes);
        let parts = partition(&waiting.hashes, self.level);
        let mut places = Vec::with_capacity(chunk_rows);
        for part in parts.parts {
            let offset = self.sink.written();
            let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
            let mut writer = StreamWriter::try_new_with_options(&mut self.sink, &schema, options)?;
            let rows = &parts.order[part.rows];
            for chunk in rows.chunks(chunk_rows) {
                places.clear();
                places.extend(chunk.iter().map(|row| place(&ends, *row as usize)));
                writer.write(&interleave_record_batch(&batches, &places)?)?;
            }
            writer.finish()?;
            drop(writer);
            let rows = rows.len() as u64;
            self.blocks.push(Block {
                bucket: part.bucket,
                side,
                offset,
                length: self.sink.written() - offset,
                rows,
                memory_bytes: waiting.bytes * rows / rows_all,
                hash_min: part.hash_min,
                hash_max: part.hash_max,
            });
        }
        Ok(())
    }
}

/// One past the last row of each batch, where rows are numbered over all of them.
pub(crate) fn ends(batches: &[RecordBatch]) -> Vec<usize> {
    let ends = batches.iter().scan(0, |end, batch| {
        *end += batch.num_rows();
        Some(*end)
    });
    ends.collect()
}

/// The batch of a row, and its place in it.
pub(crate) fn place(ends: &[usize], row: usize) -> (usize, usize) {
    let batch = ends.partition_point(|end| *end <= row);
    (batch, row - if batch == 0 { 0 } else { ends[batch - 1] })
}

/// Memory of the part of a batch's buffers that it uses: it may be a slice of a longer one.
pub(crate) fn memory_bytes(batch: &RecordBatch) -> u64 {
    let bytes = |array: &ArrayRef| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()) as u64
    };
    batch.columns().iter().map(bytes).sum()
}

fn encode(file: &File, source: ArrowError) -> ExchangeError {
    ExchangeError::Encode { location: file.location.clone(), source }
}
