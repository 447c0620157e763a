//! Where everything comes to lie in a new file, worked out before a byte is moved.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetColumnIndex, ParquetMetaData, ParquetOffsetIndex, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::chunk::{Place, is_ordered, moved, sorting, trusted};
use super::constant::Encoded;
use super::recipe::{LeafSource, Recipe};
use super::whole::Indexes;
use crate::read::footer::chunk_bytes;

/// The first and last bytes of every Parquet file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";

/// The row groups of one source file that a new file takes.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) indexes: &'a Indexes,
    pub(super) recipe: &'a Recipe,
    pub(super) row_groups: &'a [usize],
    /// Where the bloom filters of the file lie, by row group and leaf.
    pub(super) bloom_filters: HashMap<(usize, usize), Range<u64>>,
}

/// Bytes of a new file, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Bytes of a source file, by its place among those that are taken.
    File { part: usize, bytes: Range<u64> },
    /// These bytes.
    Given(Bytes),
}

/// A new file but for its footer.
#[derive(Debug)]
pub(super) struct Laid {
    /// What lies between the magic and the page indexes.
    pub(super) pieces: Vec<Piece>,
    pub(super) row_groups: Vec<RowGroupMetaData>,
    /// For all columns or for none: readers take nothing less.
    pub(super) indexes: Option<(ParquetColumnIndex, ParquetOffsetIndex)>,
}

/// Lays out the row groups of files one after another.
pub(super) fn lay(parts: &[Taken<'_>]) -> Result<Laid, ParquetError> {
    let has_offsets = |part: &Taken<'_>| part.indexes.metadata.offset_index().is_some();
    let mut laid = Laying {
        pieces: Vec::new(),
        row_groups: Vec::new(),
        columns: Vec::new(),
        offsets: Vec::new(),
        has_indexes: parts.iter().all(has_offsets),
        at: MAGIC.len() as u64,
    };
    for (place, part) in parts.iter().enumerate() {
        let mut constants = HashMap::new();
        for row_group in part.row_groups {
            laid.row_group(place, part, *row_group, &mut constants)?;
        }
    }
    // Behind all rows, so that rows of a file lie together and are read in one sweep.
    let mut group = 0;
    for (place, part) in parts.iter().enumerate() {
        for row_group in part.row_groups {
            laid.bloom_filters(place, part, *row_group, group)?;
            group += 1;
        }
    }
    let Laying { pieces, row_groups, columns, offsets, has_indexes, .. } = laid;
    Ok(Laid { pieces, row_groups, indexes: has_indexes.then_some((columns, offsets)) })
}

struct Laying {
    pieces: Vec<Piece>,
    row_groups: Vec<RowGroupMetaData>,
    columns: ParquetColumnIndex,
    offsets: ParquetOffsetIndex,
    has_indexes: bool,
    at: u64,
}

impl Laying {
    fn row_group(
        &mut self,
        place: usize,
        part: &Taken<'_>,
        row_group: usize,
        constants: &mut HashMap<(usize, u64), Encoded>,
    ) -> Result<(), ParquetError> {
        let metadata = &part.indexes.metadata;
        let has_column_orders = metadata.file_metadata().column_orders().is_some();
        let group = metadata.row_group(row_group);
        let rows = group.num_rows().unsigned_abs();
        let start = self.at;
        let (mut chunks, mut columns, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for (new, source) in part.recipe.leaves.iter().enumerate() {
            let column = part.recipe.schema.column(new);
            match source {
                LeafSource::File(leaf) => {
                    let chunk = group.column(*leaf);
                    let bytes =
                        chunk_bytes(chunk).ok_or_else(|| ParquetError::General("a chunk has no bytes".into()))?;
                    let to = Place { from: bytes.start, to: self.at };
                    let encodings = part.indexes.encodings(row_group, *leaf);
                    chunks.push(moved(chunk, column, to, trusted(chunk, has_column_orders), encodings)?);
                    if self.has_indexes {
                        let (index, offset) = page_indexes(metadata, row_group, *leaf)?;
                        columns.push(if is_ordered(chunk, has_column_orders) {
                            index
                        } else {
                            ColumnIndexMetaData::NONE
                        });
                        offsets.push(shifted(offset, to));
                    }
                    self.take(place, bytes);
                }
                LeafSource::Constant(constant) => {
                    let encoded = match constants.entry((new, rows)) {
                        std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
                        std::collections::hash_map::Entry::Vacant(free) => free.insert(constant.encode(&column, rows)?),
                    };
                    let to = Place { from: 0, to: self.at };
                    let chunk = &encoded.chunk;
                    let statistics = chunk.statistics().cloned();
                    chunks.push(moved(chunk, column, to, statistics, chunk.page_encoding_stats())?);
                    if self.has_indexes {
                        columns.push(encoded.column_index.clone());
                        offsets.push(shifted(encoded.offset_index.clone(), to));
                    }
                    self.at += encoded.bytes.len() as u64;
                    self.pieces.push(Piece::Given(encoded.bytes.clone()));
                }
            }
        }
        let leaf_of = |old: usize| part.recipe.leaves.iter().position(|leaf| *leaf == LeafSource::File(old));
        let mut builder = RowGroupMetaData::builder(part.recipe.schema.clone())
            .set_num_rows(group.num_rows())
            .set_total_byte_size(chunks.iter().fold(0, |bytes, chunk| chunk.uncompressed_size().saturating_add(bytes)))
            .set_sorting_columns(sorting(group, leaf_of))
            .set_file_offset(signed(start)?)
            .set_column_metadata(chunks);
        if let Ok(ordinal) = i16::try_from(self.row_groups.len()) {
            builder = builder.set_ordinal(ordinal);
        }
        self.row_groups.push(builder.build()?);
        self.columns.push(columns);
        self.offsets.push(offsets);
        Ok(())
    }

    /// Places the bloom filters of a row group, which is the new file's `group`.
    fn bloom_filters(
        &mut self,
        place: usize,
        part: &Taken<'_>,
        row_group: usize,
        group: usize,
    ) -> Result<(), ParquetError> {
        for (new, source) in part.recipe.leaves.iter().enumerate() {
            let LeafSource::File(leaf) = source else { continue };
            let Some(bytes) = part.bloom_filters.get(&(row_group, *leaf)) else { continue };
            let length = i32::try_from(bytes.end - bytes.start);
            let length = length.map_err(|_| ParquetError::General("a bloom filter is too long".to_owned()))?;
            let chunk = &mut self.row_groups[group].columns_mut()[new];
            *chunk = chunk
                .clone()
                .into_builder()
                .set_bloom_filter_offset(Some(signed(self.at)?))
                .set_bloom_filter_length(Some(length))
                .build()?;
            self.take(place, bytes.clone());
        }
        Ok(())
    }

    /// Takes bytes of a file, together with those before them when they are its neighbours there too.
    fn take(&mut self, place: usize, bytes: Range<u64>) {
        self.at += bytes.end - bytes.start;
        match self.pieces.last_mut() {
            Some(Piece::File { part, bytes: before }) if *part == place && before.end == bytes.start => {
                before.end = bytes.end;
            }
            _ => self.pieces.push(Piece::File { part: place, bytes }),
        }
    }
}

/// The page indexes of a chunk; no column index where it speaks of other pages than the offset index.
fn page_indexes(
    metadata: &ParquetMetaData,
    row_group: usize,
    leaf: usize,
) -> Result<(ColumnIndexMetaData, OffsetIndexMetaData), ParquetError> {
    let missing = || ParquetError::General("an offset index is missing".to_owned());
    let offsets = metadata.offset_index().ok_or_else(missing)?[row_group][leaf].clone();
    let column = metadata.column_index().map(|index| index[row_group][leaf].clone());
    let is_none = |index: &ColumnIndexMetaData| matches!(index, ColumnIndexMetaData::NONE);
    let is_of_these =
        |index: &ColumnIndexMetaData| !is_none(index) && index.num_pages() == offsets.page_locations().len() as u64;
    Ok((column.filter(is_of_these).unwrap_or(ColumnIndexMetaData::NONE), offsets))
}

fn shifted(mut index: OffsetIndexMetaData, place: Place) -> OffsetIndexMetaData {
    for page in &mut index.page_locations {
        page.offset = place.moved(page.offset);
    }
    index
}

fn signed(offset: u64) -> Result<i64, ParquetError> {
    i64::try_from(offset).map_err(|_| ParquetError::General("a file is too large".to_owned()))
}
