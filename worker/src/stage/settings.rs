//! The target's Parquet settings as the encoder takes them.

use iceberg::spec::PrimitiveType;
use iceferry_common::model::{MetricsMode, ParquetSettings};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::StageError;
use super::layout::Layout;

/// The writer's name in file footers, in the form that readers parse.
pub(crate) const CREATED_BY: &str = concat!("iceferry version ", env!("CARGO_PKG_VERSION"));
/// The level that Iceberg writers take for zstd when a table says none.
const ZSTD_LEVEL: i32 = 3;
/// Statistics in footers are cut to no less than this; what the encoder does by itself.
const STATISTICS_BYTES_MIN: usize = 64;
/// The most bytes of one character in UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;

/// Encoder properties for files of `layout`. `equality_ids` is empty for data files.
pub(super) fn writer_properties(
    settings: &ParquetSettings,
    layout: &Layout,
    equality_ids: &[i32],
) -> Result<WriterProperties, StageError> {
    let mut pairs = vec![("iceberg.schema", serde_json::to_string(layout.schema.as_ref()).unwrap_or_default())];
    if !equality_ids.is_empty() {
        let ids: Vec<String> = equality_ids.iter().map(i32::to_string).collect();
        pairs.push(("delete-type", "equality".to_owned()));
        pairs.push(("delete-field-ids", ids.join(", ")));
    }
    let pairs = pairs.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect();
    let properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_key_value_metadata(Some(pairs))
        .set_compression(compression(settings)?)
        .set_dictionary_page_size_limit(bytes(settings.dictionary_bytes))
        .set_data_page_size_limit(bytes(settings.page_bytes))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(statistics_bytes(layout))
        // Row groups are closed by their size in memory, after each batch; the encoder itself never closes one.
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None);
    Ok(properties.build())
}

fn bytes(bytes: u64) -> usize {
    // Zero would close a page for each value.
    usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
}

fn compression(settings: &ParquetSettings) -> Result<Compression, StageError> {
    let ParquetSettings { compression_codec: codec, compression_level: level, .. } = settings;
    let refused = || StageError::Codec { codec: codec.clone(), level: *level };
    let unsigned = |level: i32| u32::try_from(level).map_err(|_| refused());
    Ok(match codec.as_str() {
        "zstd" => Compression::ZSTD(ZstdLevel::try_new(level.unwrap_or(ZSTD_LEVEL)).map_err(|_| refused())?),
        "gzip" => Compression::GZIP(match level {
            Some(level) => GzipLevel::try_new(unsigned(*level)?).map_err(|_| refused())?,
            None => GzipLevel::default(),
        }),
        "brotli" => Compression::BROTLI(match level {
            Some(level) => BrotliLevel::try_new(unsigned(*level)?).map_err(|_| refused())?,
            None => BrotliLevel::default(),
        }),
        "snappy" => Compression::SNAPPY,
        // Parquet's older LZ4 framing is deprecated, and not every engine reads it.
        "lz4" | "lz4_raw" => Compression::LZ4_RAW,
        "uncompressed" | "none" => Compression::UNCOMPRESSED,
        _ => return Err(refused()),
    })
}

/// How long minima and maxima in the footer must be, so that the manifest's bounds can be cut from them; `None` is as
/// long as they are.
fn statistics_bytes(layout: &Layout) -> Option<usize> {
    let mut longest = STATISTICS_BYTES_MIN;
    for leaf in &layout.leaves {
        let cut = matches!(leaf.primitive, PrimitiveType::String | PrimitiveType::Binary | PrimitiveType::Fixed(_));
        match leaf.metrics {
            MetricsMode::Full if cut && !leaf.repeated => return None,
            MetricsMode::Truncate(length) if cut => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                longest = longest.max(length.saturating_mul(CHARACTER_BYTES_MAX));
            }
            MetricsMode::Full | MetricsMode::Truncate(_) | MetricsMode::None | MetricsMode::Counts => {}
        }
    }
    Some(longest)
}
