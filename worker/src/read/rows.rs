//! Decoding the chosen rows of the chosen columns of one file, row group by row group.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelectionPolicy,
};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use super::blocks::{Blocks, Chunk};
use super::error::guarded;
use super::fetch::Fetcher;
use super::footer::{OpenFile, chunk_bytes};
use super::select::{Positions, Rows, common, selection};
use super::width::batch_rows;
use super::{ReadError, ReadOptions};

/// Page locations are worth a request when at most one row in so many is read.
const SPARSE: u64 = 8;

/// What to read of a file.
pub(super) struct Request {
    /// The Parquet columns.
    pub(super) leaves: Vec<usize>,
    /// Row groups, ascending.
    pub(super) row_groups: Vec<usize>,
    /// Rows among them.
    pub(super) rows: Rows,
    /// Of some row groups the only rows that count.
    pub(super) within: HashMap<usize, Vec<Range<u64>>>,
    /// The file's metadata with its page indexes, where they are known already.
    pub(super) metadata: Option<Arc<ParquetMetaData>>,
}

/// Decodes the chosen rows of a file, in the order of the file.
pub(super) struct FileRows {
    file: Arc<OpenFile>,
    arrow: ArrowReaderMetadata,
    fetcher: Fetcher,
    options: ReadOptions,
    leaves: Vec<usize>,
    mask: ProjectionMask,
    /// Whether a column is inside of a list or map. The decoder skips rows of such columns by their repetition levels,
    /// and goes round for ever when a damaged page has too few of them; reading rows notices it. So all rows are decoded
    /// then, and the chosen ones are picked here.
    repeated: bool,
    rows: Rows,
    within: HashMap<usize, Vec<Range<u64>>>,
    row_groups: VecDeque<usize>,
    /// The next row group, whose bytes are fetched while the current one is decoded.
    ahead: Option<Prepared>,
    current: Option<Decoding>,
}

struct Prepared {
    row_group: usize,
    blocks: Blocks,
    ranges: Option<Vec<Range<u64>>>,
    selection: Option<RowSelection>,
    bytes: u64,
}

struct Decoding {
    row_group: usize,
    reader: ParquetRecordBatchReader,
    blocks: Blocks,
    /// Rows that the decoder has still to give.
    rows_left: u64,
    /// Which of them were chosen, where the decoder does not know it.
    pick: Option<Pick>,
    positions: Positions,
}

impl FileRows {
    pub(super) fn new(
        file: Arc<OpenFile>,
        arrow: &ArrowReaderMetadata,
        request: Request,
        fetcher: &Fetcher,
        options: &ReadOptions,
    ) -> Result<Self, ReadError> {
        let mut arrow = arrow.clone();
        let mask = ProjectionMask::leaves(arrow.parquet_schema(), request.leaves.iter().copied());
        let columns = arrow.parquet_schema().columns();
        let repeated = request.leaves.iter().any(|leaf| columns[*leaf].max_rep_level() > 0);
        if !repeated {
            let metadata = match request.metadata.clone() {
                None if is_sparse(&file, &request) => Some(file.with_page_locations(fetcher)?),
                metadata => metadata,
            };
            if let Some(metadata) = metadata {
                arrow = with_metadata(&file, &arrow, metadata)?;
            }
        }
        Ok(Self {
            file,
            arrow,
            fetcher: fetcher.clone(),
            options: options.clone(),
            leaves: request.leaves,
            mask,
            repeated,
            rows: request.rows,
            within: request.within,
            row_groups: request.row_groups.into(),
            ahead: None,
            current: None,
        })
    }

    /// The next rows, with the columns that were asked for as the file has them; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, ReadError> {
        loop {
            let Some(current) = &mut self.current else {
                match self.start_next()? {
                    Some(decoding) => self.current = Some(decoding),
                    None => return Ok(None),
                }
                continue;
            };
            match current.next(&self.file.handle.location)? {
                Some(batch) => return Ok(Some(batch)),
                None => self.current = None,
            }
        }
    }

    /// The positions in the file of the rows of the batch that came last. To be asked for once for each batch, for all
    /// batches or for none.
    pub(super) fn positions(&mut self, rows: usize) -> impl Iterator<Item = u64> {
        self.current.as_mut().into_iter().flat_map(move |current| current.positions.by_ref().take(rows))
    }

    fn start_next(&mut self) -> Result<Option<Decoding>, ReadError> {
        let prepared = match self.ahead.take() {
            Some(prepared) => Some(prepared),
            None => self.prepare_next(self.options.fetch_bytes)?,
        };
        let Some(prepared) = prepared else { return Ok(None) };
        let left = self.options.fetch_bytes.saturating_sub(prepared.bytes);
        let decoding = self.decode(prepared)?;
        // Small row groups: the next one's bytes come while this one is decoded, as long as both fit the bound.
        let next_fits = |file: &Self| file.row_groups.front().is_some_and(|next| file.bytes_of(*next) <= left);
        if left > 0 && next_fits(self) {
            self.ahead = self.prepare_next(left)?;
        }
        Ok(Some(decoding))
    }

    fn bytes_of(&self, row_group: usize) -> u64 {
        let columns = self.file.metadata.row_group(row_group).columns();
        self.leaves.iter().filter_map(|leaf| chunk_bytes(&columns[*leaf])).map(|bytes| bytes.end - bytes.start).sum()
    }

    /// Begins to fetch the next row group that has rows to read.
    fn prepare_next(&mut self, budget: u64) -> Result<Option<Prepared>, ReadError> {
        while let Some(row_group) = self.row_groups.pop_front() {
            let rows = self.file.rows_of(row_group);
            let ranges = match (self.rows.ranges(rows.clone()), self.within.remove(&row_group)) {
                (Some(ranges), Some(within)) => Some(common(&ranges, &within)),
                (ranges, within) => ranges.or(within),
            };
            if rows.is_empty() || ranges.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            let selection = ranges.as_ref().filter(|_| !self.repeated).map(|ranges| selection(ranges, &rows));
            let chunks = self.chunks(row_group, selection.as_ref())?;
            let bytes = chunks.iter().flat_map(|chunk| &chunk.needed).map(|range| range.end - range.start).sum();
            let blocks = Blocks::start(&self.fetcher, &self.file.handle, self.file.tail.clone(), chunks, budget)?;
            return Ok(Some(Prepared { row_group, blocks, ranges, selection, bytes }));
        }
        Ok(None)
    }

    fn chunks(&self, row_group: usize, selection: Option<&RowSelection>) -> Result<Vec<Chunk>, ReadError> {
        let columns = self.arrow.metadata().row_group(row_group).columns();
        let pages = self.arrow.metadata().offset_index().and_then(|index| index.get(row_group));
        let chunk = |leaf: &usize| {
            let bytes = chunk_bytes(&columns[*leaf])
                .ok_or_else(|| ReadError::damaged(&self.file.handle.location, "a column chunk has no place"))?;
            let locations = pages.and_then(|pages| pages.get(*leaf)).map(|pages| pages.page_locations());
            let needed = match (selection, locations) {
                (Some(selection), Some(locations)) if !locations.is_empty() => needed(&bytes, selection, locations),
                _ => std::iter::once(bytes.clone()).collect(),
            };
            Ok(Chunk { bytes, needed })
        };
        self.leaves.iter().map(chunk).collect()
    }

    fn decode(&self, prepared: Prepared) -> Result<Decoding, ReadError> {
        let Prepared { row_group, blocks, ranges, selection, .. } = prepared;
        let location = &*self.file.handle.location;
        let rows = self.file.rows_of(row_group);
        let pick = ranges.as_ref().filter(|_| self.repeated).map(|ranges| Pick::new(ranges.clone(), rows.start));
        let ranges = ranges.unwrap_or_else(|| std::iter::once(rows.clone()).collect());
        let rows_left = match &pick {
            Some(_) => rows.end - rows.start,
            None => ranges.iter().map(|range| range.end - range.start).sum(),
        };
        let group = self.file.metadata.row_group(row_group);
        let batch_rows = guarded(location, || {
            batch_rows(&self.options, group, &self.leaves, &blocks)
                .map_err(|source| decode_error(location, &blocks, source))
        })?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(blocks.clone(), self.arrow.clone())
            .with_row_groups(vec![row_group])
            .with_projection(self.mask.clone())
            .with_batch_size(batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        if self.arrow.metadata().offset_index().is_some() {
            // A mask would have the decoder look at pages that the selection leaves out, and those are not fetched.
            builder = builder.with_row_selection_policy(RowSelectionPolicy::Selectors);
        }
        let reader = guarded(location, || builder.build().map_err(|source| decode_error(location, &blocks, source)))?;
        Ok(Decoding { row_group, reader, blocks, rows_left, pick, positions: Positions::new(ranges) })
    }
}

impl Decoding {
    fn next(&mut self, location: &str) -> Result<Option<RecordBatch>, ReadError> {
        let (reader, blocks) = (&mut self.reader, &self.blocks);
        let next = guarded(location, || match reader.next().transpose() {
            Ok(batch) => Ok(batch),
            Err(error) => Err(decode_error(location, blocks, error.into())),
        });
        // A failed request that the decoder took for the end of a page must not pass for one.
        let next = match blocks.take_failure() {
            Some(failure) => return Err(failure),
            None => next?,
        };
        let rows = next.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        let done = next.is_none();
        self.rows_left = match self.rows_left.checked_sub(rows) {
            Some(left) if !done || left == 0 => left,
            left => {
                let what = match left {
                    Some(left) => format!("row group {} ends {left} rows before its footer says", self.row_group),
                    None => format!("row group {} has more rows than its footer says", self.row_group),
                };
                return Err(ReadError::damaged(location, what));
            }
        };
        match (next, &mut self.pick) {
            (Some(batch), Some(pick)) => {
                let picked = filter_record_batch(&batch, &pick.next(batch.num_rows()));
                picked.map(Some).map_err(|error| ReadError::damaged(location, error.to_string()))
            }
            (next, _) => Ok(next),
        }
    }
}

/// Picks chosen rows out of a row group that is decoded whole.
struct Pick {
    /// The chosen positions that are not passed, ascending.
    ranges: VecDeque<Range<u64>>,
    /// Position of the next row.
    position: u64,
}

impl Pick {
    fn new(ranges: Vec<Range<u64>>, start: u64) -> Self {
        Self { ranges: ranges.into(), position: start }
    }

    /// Which of the next rows are chosen.
    fn next(&mut self, rows: usize) -> BooleanArray {
        let end = self.position + rows as u64;
        let mut chosen = BooleanBufferBuilder::new(rows);
        while self.position < end {
            let (next, is_chosen) = match self.ranges.front() {
                Some(range) if range.start <= self.position => (range.end, true),
                Some(range) => (range.start, false),
                None => (end, false),
            };
            if is_chosen && next <= end {
                self.ranges.pop_front();
            }
            let next = next.min(end);
            chosen.append_n((next - self.position) as usize, is_chosen);
            self.position = next;
        }
        BooleanArray::new(chosen.finish(), None)
    }
}

fn decode_error(location: &str, blocks: &Blocks, source: parquet::errors::ParquetError) -> ReadError {
    let decode = |source| ReadError::Decode { act: "decode rows", location: location.to_owned(), source };
    blocks.take_failure().unwrap_or_else(|| decode(source))
}

/// The bytes of a chunk that a selection needs: the pages that hold chosen rows, and what comes before the first page,
/// which is the dictionary.
fn needed(chunk: &Range<u64>, selection: &RowSelection, pages: &[PageLocation]) -> Vec<Range<u64>> {
    let first_page = pages.first().map_or(chunk.end, |page| page.offset.unsigned_abs());
    let dictionary = std::iter::once(chunk.start..first_page).filter(|bytes| !bytes.is_empty());
    dictionary.chain(selection.scan_ranges(pages)).collect()
}

fn is_sparse(file: &OpenFile, request: &Request) -> bool {
    let Rows::Only(positions) = &request.rows else { return false };
    let rows: u64 = request.row_groups.iter().map(|group| file.rows_of(*group)).map(|rows| rows.end - rows.start).sum();
    !request.leaves.is_empty() && positions.len().saturating_mul(SPARSE) <= rows
}

fn with_metadata(
    file: &OpenFile,
    arrow: &ArrowReaderMetadata,
    metadata: Arc<ParquetMetaData>,
) -> Result<ArrowReaderMetadata, ReadError> {
    let options = ArrowReaderOptions::new().with_schema(Arc::clone(arrow.schema()));
    ArrowReaderMetadata::try_new(metadata, options).map_err(|source| ReadError::Decode {
        act: "decode the schema",
        location: file.handle.location.to_string(),
        source,
    })
}
