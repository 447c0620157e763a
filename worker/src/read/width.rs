//! How many rows of a row group a batch takes, so that batches of wide rows stay small.
//!
//! A column chunk's uncompressed size says how wide its rows are, save where it has a dictionary: a long value stands in
//! it once, and every row that has the value gets a copy. Newer writers tell how many bytes the rows come to; where they
//! do not, or where these could come all at once, the dictionary itself is looked at, before the decoder does.

use std::sync::Arc;

use parquet::basic::Type as PhysicalType;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::ReadOptions;
use super::blocks::Blocks;

/// Long values may come one after the other: then a batch may have so many times the bytes that it has by the average.
const UNEVEN: u64 = 8;

/// Bytes of texts and byte strings in a dictionary.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Dictionary {
    values: u64,
    bytes: u64,
    longest: u64,
}

/// The rows of a batch of these columns.
pub(super) fn batch_rows(
    options: &ReadOptions,
    group: &RowGroupMetaData,
    leaves: &[usize],
    blocks: &Blocks,
) -> Result<usize, ParquetError> {
    let rows_max = options.batch_rows.max(1);
    let bytes_max = options.batch_bytes.saturating_mul(UNEVEN);
    let group_rows = group.num_rows().unsigned_abs().max(1);
    let (mut bytes, mut longest_row) = (0u64, 0u64);
    for leaf in leaves {
        let column = &group.columns()[*leaf];
        let encoded = column.uncompressed_size().max(0).unsigned_abs();
        let said = column.unencoded_byte_array_data_bytes().map(|bytes| bytes.max(0).unsigned_abs());
        let mut decoded = said.unwrap_or(0).max(encoded);
        let fits_anyway = said.is_some_and(|bytes| bytes <= bytes_max)
            || encoded.saturating_mul(group_rows.min(rows_max as u64)) <= bytes_max;
        if has_dictionary(column) && !fits_anyway {
            let dictionary = dictionary(column, group, blocks)?;
            let values = column.num_values().max(0).unsigned_abs();
            if said.is_none() {
                decoded = decoded.max(dictionary.bytes.saturating_mul(values) / dictionary.values.max(1));
            }
            longest_row = longest_row.saturating_add(dictionary.longest.saturating_mul(values.div_ceil(group_rows)));
        }
        bytes = bytes.saturating_add(decoded);
    }
    let by_average = options.batch_bytes / (bytes / group_rows).max(1);
    let by_longest = bytes_max / longest_row.max(1);
    Ok(usize::try_from(by_average.min(by_longest)).unwrap_or(usize::MAX).clamp(1, rows_max))
}

fn has_dictionary(column: &ColumnChunkMetaData) -> bool {
    // Some writers say 0 for none.
    column.column_type() == PhysicalType::BYTE_ARRAY && column.dictionary_page_offset().is_some_and(|at| at > 0)
}

fn dictionary(
    column: &ColumnChunkMetaData,
    group: &RowGroupMetaData,
    blocks: &Blocks,
) -> Result<Dictionary, ParquetError> {
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let mut pages = SerializedPageReader::new(Arc::new(blocks.clone()), column, rows, None)?;
    match pages.get_next_page()? {
        Some(Page::DictionaryPage { buf, .. }) => Ok(measured(&buf)),
        _ => Ok(Dictionary::default()),
    }
}

/// Each value is its length, in four bytes, and its bytes. What is damaged the decoder will say.
fn measured(mut values: &[u8]) -> Dictionary {
    let mut measured = Dictionary::default();
    while let Some((length, rest)) = values.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let Some(rest) = rest.get(length as usize..) else { break };
        measured.values += 1;
        measured.bytes += u64::from(length);
        measured.longest = measured.longest.max(u64::from(length));
        values = rest;
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_measured_as_far_as_it_is_whole() {
        let values = b"\x02\0\0\0ab\0\0\0\0\x05\0\0\0abcde";
        assert_eq!(measured(values), Dictionary { values: 3, bytes: 7, longest: 5 });
        assert_eq!(measured(&values[..values.len() - 1]), Dictionary { values: 2, bytes: 2, longest: 2 });
        assert_eq!(measured(&[]), Dictionary::default());
    }
}
