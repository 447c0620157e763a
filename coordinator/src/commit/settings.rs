//! What a target's table properties say about how it is written. Defaults are Iceberg's.

use std::collections::HashMap;
use std::str::FromStr;

use iceberg::spec::TableMetadata;
use iceferry_common::model::{MetricsMode, ParquetSettings};

use super::CommitError;
use super::bins::MergeSettings;

const METRICS_COLUMN_PREFIX: &str = "write.metadata.metrics.column.";

/// Folder of data and delete files, without a slash at its end: `write.data.path`, else `data` in the table's location.
pub fn data_location(metadata: &TableMetadata) -> String {
    folder(metadata, "write.data.path", "data")
}

/// Folder of metadata files, without a slash at its end: `write.metadata.path`, else `metadata` in the table's location.
pub fn metadata_location(metadata: &TableMetadata) -> String {
    folder(metadata, "write.metadata.path", "metadata")
}

fn folder(metadata: &TableMetadata, key: &str, name: &str) -> String {
    match metadata.properties().get(key) {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/{name}", metadata.location().trim_end_matches('/')),
    }
}

/// `write.target-file-size-bytes`.
///
/// # Errors
/// [`CommitError::Property`] when it is not a positive number.
pub fn target_file_bytes(metadata: &TableMetadata) -> Result<u64, CommitError> {
    bytes(metadata.properties(), "write.target-file-size-bytes", 512 * 1024 * 1024)
}

/// `commit.manifest.target-size-bytes`.
pub(super) fn manifest_target_bytes(metadata: &TableMetadata) -> Result<u64, CommitError> {
    manifest_target_bytes_of(metadata.properties())
}

fn manifest_target_bytes_of(properties: &HashMap<String, String>) -> Result<u64, CommitError> {
    bytes(properties, "commit.manifest.target-size-bytes", 8 * 1024 * 1024)
}

/// Which manifests of the target a commit merges.
///
/// # Errors
/// [`CommitError::Property`] when a property has a value that it cannot have.
pub(super) fn merge_settings(metadata: &TableMetadata) -> Result<MergeSettings, CommitError> {
    merge_settings_of(metadata.properties())
}

fn merge_settings_of(properties: &HashMap<String, String>) -> Result<MergeSettings, CommitError> {
    const ENABLED: &str = "commit.manifest-merge.enabled";
    const MIN_COUNT: &str = "commit.manifest.min-count-to-merge";
    let enabled = match properties.get(ENABLED) {
        Some(value) => parse(ENABLED, &value.to_ascii_lowercase(), "true or false")?,
        None => true,
    };
    let min_count = match properties.get(MIN_COUNT) {
        Some(value) => parse(MIN_COUNT, value, "a number of manifests")?,
        None => 100,
    };
    Ok(MergeSettings { enabled, target_bytes: manifest_target_bytes_of(properties)?, min_count })
}

/// How Parquet files of the target are written.
///
/// # Errors
/// [`CommitError::Property`] when a property has a value that it cannot have.
pub fn parquet_settings(metadata: &TableMetadata) -> Result<ParquetSettings, CommitError> {
    parquet_settings_of(metadata.properties())
}

fn parquet_settings_of(properties: &HashMap<String, String>) -> Result<ParquetSettings, CommitError> {
    let compression_codec = codec(properties)?;
    let metrics_default = match properties.get("write.metadata.metrics.default") {
        Some(value) => metrics_mode("write.metadata.metrics.default", value)?,
        None => MetricsMode::Truncate(16),
    };
    let mut metrics_columns = HashMap::new();
    for (key, value) in properties {
        if let Some(column) = key.strip_prefix(METRICS_COLUMN_PREFIX) {
            metrics_columns.insert(column.to_owned(), metrics_mode(key, value)?);
        }
    }
    Ok(ParquetSettings {
        compression_level: level(properties, &compression_codec)?,
        compression_codec,
        row_group_bytes: bytes(properties, "write.parquet.row-group-size-bytes", 128 * 1024 * 1024)?,
        page_bytes: bytes(properties, "write.parquet.page-size-bytes", 1024 * 1024)?,
        dictionary_bytes: bytes(properties, "write.parquet.dict-size-bytes", 2 * 1024 * 1024)?,
        metrics_default,
        metrics_columns,
    })
}

fn codec(properties: &HashMap<String, String>) -> Result<String, CommitError> {
    const KEY: &str = "write.parquet.compression-codec";
    const KNOWN: [&str; 6] = ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"];
    let Some(value) = properties.get(KEY) else { return Ok("zstd".to_owned()) };
    let codec = value.to_ascii_lowercase();
    if KNOWN.contains(&codec.as_str()) {
        return Ok(codec);
    }
    Err(bad(KEY, value, format!("take one of {}", KNOWN.join(", "))))
}

fn level(properties: &HashMap<String, String>, codec: &str) -> Result<Option<i32>, CommitError> {
    const KEY: &str = "write.parquet.compression-level";
    let Some(value) = properties.get(KEY) else { return Ok(None) };
    let level: i32 = parse(KEY, value, "a whole number")?;
    let allowed = match codec {
        "zstd" => 1..=22,
        "gzip" => 0..=9,
        "brotli" => 0..=11,
        // The others have no levels; the property is left over from another codec.
        _ => return Ok(None),
    };
    if allowed.contains(&level) {
        return Ok(Some(level));
    }
    Err(bad(KEY, value, format!("{codec} takes levels {} to {}", allowed.start(), allowed.end())))
}

fn metrics_mode(key: &str, value: &str) -> Result<MetricsMode, CommitError> {
    let mode = value.trim().to_ascii_lowercase();
    let length = mode.strip_prefix("truncate(").and_then(|rest| rest.strip_suffix(')'));
    match (mode.as_str(), length.map(u32::from_str)) {
        ("none", _) => Ok(MetricsMode::None),
        ("counts", _) => Ok(MetricsMode::Counts),
        ("full", _) => Ok(MetricsMode::Full),
        (_, Some(Ok(length))) if length > 0 => Ok(MetricsMode::Truncate(length)),
        _ => Err(bad(key, value, "take none, counts, truncate(LENGTH) or full".to_owned())),
    }
}

fn bytes(properties: &HashMap<String, String>, key: &str, default: u64) -> Result<u64, CommitError> {
    let Some(value) = properties.get(key) else { return Ok(default) };
    match parse(key, value, "a number of bytes")? {
        0 => Err(bad(key, value, "take a number of bytes above 0".to_owned())),
        bytes => Ok(bytes),
    }
}

fn parse<T: FromStr>(key: &str, value: &str, kind: &str) -> Result<T, CommitError> {
    value.trim().parse().map_err(|_| bad(key, value, format!("take {kind}")))
}

fn bad(key: &str, value: &str, problem: String) -> CommitError {
    CommitError::Property { key: key.to_owned(), value: value.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(properties: &[(&str, &str)]) -> Result<ParquetSettings, CommitError> {
        parquet_settings_of(&properties.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn defaults_are_those_of_iceberg() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.compression_codec, "zstd");
        assert_eq!(settings.compression_level, None);
        assert_eq!(settings.row_group_bytes, 134_217_728);
        assert_eq!(settings.page_bytes, 1_048_576);
        assert_eq!(settings.dictionary_bytes, 2_097_152);
        assert_eq!(settings.metrics_default, MetricsMode::Truncate(16));
        assert!(settings.metrics_columns.is_empty());
    }

    #[test]
    fn properties_are_read_as_iceberg_reads_them() {
        let settings = settings(&[
            ("write.parquet.compression-codec", "GZIP"),
            ("write.parquet.compression-level", "6"),
            ("write.metadata.metrics.default", "Counts"),
            ("write.metadata.metrics.column.a.b", "truncate(4)"),
            ("write.metadata.metrics.column.c", "FULL"),
        ])
        .unwrap();
        assert_eq!((settings.compression_codec.as_str(), settings.compression_level), ("gzip", Some(6)));
        assert_eq!(settings.metrics_default, MetricsMode::Counts);
        assert_eq!(settings.metrics_columns["a.b"], MetricsMode::Truncate(4));
        assert_eq!(settings.metrics_columns["c"], MetricsMode::Full);
    }

    #[test]
    fn manifests_are_merged_as_the_properties_say() {
        let settings = |properties: &[(&str, &str)]| {
            let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            merge_settings_of(&properties.collect())
        };
        let default = MergeSettings { enabled: true, target_bytes: 8 * 1024 * 1024, min_count: 100 };
        assert_eq!(settings(&[]).unwrap(), default);
        let all = [
            ("commit.manifest-merge.enabled", "False"),
            ("commit.manifest.target-size-bytes", "9"),
            ("commit.manifest.min-count-to-merge", "3"),
        ];
        assert_eq!(settings(&all).unwrap(), MergeSettings { enabled: false, target_bytes: 9, min_count: 3 });
        for (key, value) in all.map(|(key, _)| (key, "some")) {
            assert!(matches!(settings(&[(key, value)]), Err(CommitError::Property { key: named, .. }) if named == key));
        }
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_the_property() {
        for (key, value) in [
            ("write.parquet.compression-codec", "lzo"),
            ("write.parquet.compression-level", "23"),
            ("write.parquet.compression-level", "high"),
            ("write.parquet.row-group-size-bytes", "0"),
            ("write.parquet.page-size-bytes", "-1"),
            ("write.parquet.dict-size-bytes", "2MB"),
            ("write.metadata.metrics.default", "truncate(0)"),
            ("write.metadata.metrics.default", "truncate(x"),
            ("write.metadata.metrics.column.a", "some"),
        ] {
            let error = settings(&[(key, value)]).unwrap_err();
            assert!(
                matches!(&error, CommitError::Property { key: named, .. } if named == key),
                "{key}={value}: {error}"
            );
        }
    }
}
