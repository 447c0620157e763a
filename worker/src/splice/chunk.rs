//! Column chunks in another place: what their metadata becomes, and which of their statistics are right there.

use parquet::basic::{Compression, Type as Physical};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, PageEncodingStats, RowGroupMetaData, SortingColumn};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

/// Writers whose early versions wrote what readers mend by the writer's name. Their files without column orders are of
/// that time, and would not be mended under our name.
const NAMES_MENDED: [&str; 3] = ["parquet-mr", "parquet-cpp", "impala"];

/// Whether readers need to know the writer of the file to read it right.
pub(super) fn is_of_old_writer(file: &FileMetaData) -> bool {
    let name = file.created_by().unwrap_or_default();
    file.column_orders().is_none() && NAMES_MENDED.iter().any(|mended| name.starts_with(mended))
}

/// Whether a chunk may be handed on as it is.
pub(super) fn is_carried(chunk: &ColumnChunkMetaData) -> bool {
    let codec = match chunk.compression() {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::BROTLI(_)
        | Compression::ZSTD(_)
        | Compression::LZ4_RAW => true,
        // LZ4 has two framings under one name.
        Compression::LZ4 | Compression::LZO => false,
    };
    codec && chunk.file_path().is_none()
}

/// Whether the order of a column's minima and maxima is known. The first writers ordered bytes as signed, and footers
/// without column orders do not say that they do not.
pub(super) fn is_ordered(chunk: &ColumnChunkMetaData, has_column_orders: bool) -> bool {
    match chunk.column_type() {
        Physical::BOOLEAN | Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE => true,
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => has_column_orders,
        Physical::INT96 => false,
    }
}

/// The minima and maxima of a chunk that can be trusted, with its null count.
pub(super) fn trusted(chunk: &ColumnChunkMetaData, has_column_orders: bool) -> Option<Statistics> {
    let statistics = chunk.statistics()?;
    let is_of_bytes = matches!(statistics, Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_));
    if is_ordered(chunk, has_column_orders) && !(is_of_bytes && statistics.is_min_max_deprecated()) {
        return Some(statistics.clone());
    }
    let (distinct, nulls) = (statistics.distinct_count_opt(), statistics.null_count_opt());
    match statistics {
        Statistics::ByteArray(_) => Some(Statistics::byte_array(None::<ByteArray>, None, distinct, nulls, false)),
        Statistics::FixedLenByteArray(_) => {
            Some(Statistics::fixed_len_byte_array(None::<FixedLenByteArray>, None, distinct, nulls, false))
        }
        _ => None,
    }
}

/// Where a chunk and what belongs to it come to lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The first byte of the chunk in its old file.
    pub(super) from: u64,
    /// The same in the new one.
    pub(super) to: u64,
}

impl Place {
    /// The new offset for one in the old file.
    pub(super) fn moved(self, offset: i64) -> i64 {
        offset.wrapping_sub_unsigned(self.from).wrapping_add_unsigned(self.to)
    }
}

/// A chunk's metadata in the new file, as a chunk of `column`. Its bloom filter and page indexes are set apart.
pub(super) fn moved(
    chunk: &ColumnChunkMetaData,
    column: ColumnDescPtr,
    place: Place,
    statistics: Option<Statistics>,
    encodings: Option<&Vec<PageEncodingStats>>,
) -> Result<ColumnChunkMetaData, ParquetError> {
    let mut builder = ColumnChunkMetaData::builder(column)
        .set_encodings_mask(*chunk.encodings_mask())
        .set_compression(chunk.compression())
        .set_num_values(chunk.num_values())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_data_page_offset(place.moved(chunk.data_page_offset()))
        .set_dictionary_page_offset(chunk.dictionary_page_offset().map(|offset| place.moved(offset)))
        .set_unencoded_byte_array_data_bytes(chunk.unencoded_byte_array_data_bytes())
        .set_repetition_level_histogram(chunk.repetition_level_histogram().cloned())
        .set_definition_level_histogram(chunk.definition_level_histogram().cloned());
    if let Some(statistics) = statistics {
        builder = builder.set_statistics(statistics);
    }
    if let Some(encodings) = encodings {
        builder = builder.set_page_encoding_stats(encodings.clone());
    }
    builder.build()
}

/// The order of a row group's rows, as far as its columns are still there. `leaf_of` gives the new leaf of an old one.
pub(super) fn sorting(
    group: &RowGroupMetaData,
    leaf_of: impl Fn(usize) -> Option<usize>,
) -> Option<Vec<SortingColumn>> {
    let moved = group.sorting_columns()?.iter().map_while(|column| {
        let leaf = leaf_of(usize::try_from(column.column_idx).ok()?)?;
        Some(SortingColumn { column_idx: i32::try_from(leaf).ok()?, ..*column })
    });
    let moved: Vec<SortingColumn> = moved.collect();
    (!moved.is_empty()).then_some(moved)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    #[test]
    fn minima_of_bytes_are_trusted_only_where_their_order_is_told() {
        let schema = parse_message_type("message t { optional binary b (UTF8); optional int32 i; }").unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        let bytes = |deprecated| {
            let bound = |text: &str| Some(ByteArray::from(text));
            Statistics::byte_array(bound("a"), bound("z"), None, Some(2), deprecated)
        };
        let chunk = |leaf, statistics| {
            ColumnChunkMetaData::builder(schema.column(leaf)).set_statistics(statistics).build().unwrap()
        };
        for (deprecated, has_orders, is_trusted) in [(false, true, true), (true, true, false), (false, false, false)] {
            let found = trusted(&chunk(0, bytes(deprecated)), has_orders).unwrap();
            assert_eq!(found.min_bytes_opt().is_some(), is_trusted);
            assert_eq!(found.null_count_opt(), Some(2), "the count is right in any case");
        }
        let ints = Statistics::int32(Some(1), Some(2), None, Some(0), true);
        assert_eq!(trusted(&chunk(1, ints.clone()), false), Some(ints));
    }

    #[test]
    fn a_writer_whose_name_mends_its_files_is_told_by_it() {
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type("message t { }").unwrap())));
        let file = |name: &str, orders| FileMetaData::new(1, 0, Some(name.to_owned()), None, schema.clone(), orders);
        assert!(is_of_old_writer(&file("parquet-mr version 1.7.0 (build x)", None)));
        assert!(!is_of_old_writer(&file("parquet-mr version 1.13.1 (build x)", Some(Vec::new()))));
        assert!(!is_of_old_writer(&file("DuckDB", None)));
    }
}
