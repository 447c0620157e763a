//! The chosen rows of the chosen columns of one file, block by block.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;

use super::super::error::guarded;
use super::super::fetch::Fetcher;
use super::super::file_schema::FileSchema;
use super::super::select::{Positions, Rows};
use super::super::{ReadError, ReadOptions};
use super::codec::BLOCK_BYTES_MAX;
use super::column::Column;
use super::cursor::{Broken, Cursor};
use super::file::{AvroFile, MARKER_BYTES};
use super::stream::Stream;

/// Decodes the chosen rows of a file, in the order of the file.
pub(in super::super) struct AvroRows {
    file: Arc<AvroFile>,
    stream: Stream,
    rows: Rows,
    columns: Column,
    batch_rows: usize,
    batch_bytes: u64,
    /// Rows of the file by its manifest, where it counts.
    record_count: Option<u64>,
    /// Position of the next row.
    position: u64,
    block: Option<Block>,
    /// Positions of the rows that the columns hold.
    held: Vec<Range<u64>>,
    given: Positions,
}

/// A block under way.
struct Block {
    bytes: Vec<u8>,
    /// Where its next row begins.
    at: usize,
    rows_left: u64,
    chosen: Chosen,
}

/// The chosen positions that are not passed, ascending; all rows without them.
struct Chosen(Option<VecDeque<Range<u64>>>);

impl AvroRows {
    /// Reads the Avro leaves that are wanted. A file that has not `record_count` rows is damaged.
    pub(in super::super) fn new(
        file: Arc<AvroFile>,
        schema: &FileSchema,
        wanted: &[bool],
        rows: Rows,
        record_count: Option<u64>,
        fetcher: &Fetcher,
        options: &ReadOptions,
    ) -> Self {
        let stream = Stream::new(fetcher, &file.handle, &file.head, file.data_start, options.fetch_bytes.max(1));
        let columns = Column::of_rows(&file.row, &schema.fields, wanted);
        let by_width = options.batch_bytes / columns.row_bytes().max(1);
        let batch_rows = usize::try_from(by_width).unwrap_or(usize::MAX).clamp(1, options.batch_rows.max(1));
        Self {
            file,
            stream,
            rows,
            columns,
            batch_rows,
            batch_bytes: options.batch_bytes.max(1),
            record_count,
            position: 0,
            block: None,
            held: Vec::new(),
            given: Positions::new(Vec::new()),
        }
    }

    /// The next rows, with the columns that were asked for as the file has them; `None` at the end.
    pub(in super::super) fn next(&mut self) -> Result<Option<RecordBatch>, ReadError> {
        let (mut rows, mut bytes) = (0, 0);
        while rows < self.batch_rows && bytes < self.batch_bytes {
            if self.block.is_none() {
                self.block = self.next_block()?;
            }
            let Some(block) = &mut self.block else { break };
            let rows_max = self.batch_rows - rows;
            let (columns, position, held) = (&mut self.columns, &mut self.position, &mut self.held);
            let row = &self.file.row;
            let location = &*self.file.handle.location;
            let (more_rows, more_bytes) = guarded(location, || {
                let filled = block.fill(row, columns, position, held, rows_max, self.batch_bytes - bytes);
                filled.map_err(|broken| ReadError::damaged(location, format!("at row {position}, {}", broken.0)))
            })?;
            rows += more_rows;
            bytes += more_bytes;
            if block.rows_left == 0 {
                if block.at < block.bytes.len() {
                    let left = block.bytes.len() - block.at;
                    let what = format!("{left} bytes are left in a block after row {position}");
                    return Err(ReadError::damaged(location, what));
                }
                self.block = None;
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        self.given = Positions::new(std::mem::take(&mut self.held));
        let (location, columns, position) = (&*self.file.handle.location, &mut self.columns, self.position);
        guarded(location, || {
            let batch = columns.finish_rows().and_then(|(fields, columns)| {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            });
            batch.map(Some).map_err(|error| ReadError::damaged(location, format!("before row {position}, {error}")))
        })
    }

    /// The positions in the file of the rows of the batch that came last. To be asked for once for each batch.
    pub(in super::super) fn positions(&mut self, rows: usize) -> impl Iterator<Item = u64> {
        self.given.by_ref().take(rows)
    }

    /// The next block that has a chosen row; `None` at the end of the file.
    fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        let location = Arc::clone(&self.file.handle.location);
        loop {
            if self.stream.is_at_end() {
                return match self.record_count {
                    Some(expected) if expected != self.position => Err(ReadError::damaged(
                        &location,
                        format!("it has {} rows and its manifest says {expected}", self.position),
                    )),
                    _ => Ok(None),
                };
            }
            let start = self.stream.offset();
            let damaged = |what: &str| ReadError::damaged(&location, format!("the block at byte {start} {what}"));
            let rows = u64::try_from(self.stream.long()?).map_err(|_| damaged("has less than no rows"))?;
            let size = u64::try_from(self.stream.long()?).map_err(|_| damaged("has less than no bytes"))?;
            if size > BLOCK_BYTES_MAX {
                let what = format!("its block at byte {start} has {size} bytes, too many to be held; rewrite the file");
                return Err(ReadError::unsupported(&location, what));
            }
            let bytes = self.stream.take(size)?;
            if self.stream.take(MARKER_BYTES)? != self.file.marker {
                return Err(damaged("does not end with the file's marker"));
            }
            let end = self.position.checked_add(rows);
            let end = end.filter(|end| *end <= self.record_count.unwrap_or(i64::MAX as u64));
            let end = end.ok_or_else(|| damaged("has more rows than its manifest says"))?;
            let chosen = self.rows.ranges(self.position..end);
            if rows == 0 || chosen.as_ref().is_some_and(Vec::is_empty) {
                self.position = end;
                continue;
            }
            let codec = self.file.codec;
            let bytes = guarded(&location, || codec.decompress(&bytes).map_err(|what| damaged(&what)))?;
            return Ok(Some(Block { bytes, at: 0, rows_left: rows, chosen: Chosen(chosen.map(Into::into)) }));
        }
    }
}

impl Block {
    /// Takes in rows up to a bound, and gives how many, and the bytes that they had.
    fn fill(
        &mut self,
        row: &super::schema::AvroType,
        columns: &mut Column,
        position: &mut u64,
        held: &mut Vec<Range<u64>>,
        rows_max: usize,
        bytes_max: u64,
    ) -> Result<(usize, u64), Broken> {
        let mut cursor = Cursor::new(&self.bytes[self.at..]);
        let (mut rows, mut bytes) = (0, 0);
        while self.rows_left > 0 && rows < rows_max && bytes < bytes_max {
            let before = cursor.left();
            if self.chosen.has(*position) {
                columns.read(&mut cursor)?;
                rows += 1;
                bytes += (before - cursor.left()) as u64;
                match held.last_mut() {
                    Some(range) if range.end == *position => range.end += 1,
                    _ => held.push(*position..*position + 1),
                }
            } else {
                row.skip(&mut cursor)?;
            }
            *position += 1;
            self.rows_left -= 1;
        }
        self.at = self.bytes.len() - cursor.left();
        Ok((rows, bytes))
    }
}

impl Chosen {
    /// Whether a position is chosen; to be asked for in ascending order.
    fn has(&mut self, position: u64) -> bool {
        let Some(chosen) = &mut self.0 else { return true };
        while chosen.front().is_some_and(|range| range.end <= position) {
            chosen.pop_front();
        }
        chosen.front().is_some_and(|range| range.start <= position)
    }
}
