//! Metadata files: their bytes, their names, and the removal of old ones.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::compression::CompressionCodec;
use iceberg::spec::{TableMetadata, TableMetadataRef};
use iceferry_common::fault::chain;
use iceferry_common::storage::Storage;
use uuid::Uuid;

use super::super::CatalogError;
use super::parse;

/// The table property that puts metadata files elsewhere than in the table's own folder.
const METADATA_PATH: &str = "write.metadata.path";
/// The table property that has old metadata files removed.
const DELETE_AFTER_COMMIT: &str = "write.metadata.delete-after-commit.enabled";

/// A metadata file that is ready to be written.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// Its bytes.
    pub(crate) bytes: Bytes,
    /// What a reader makes of them.
    pub(crate) metadata: TableMetadataRef,
    /// Whether they are compressed.
    pub(crate) gzip: bool,
}

/// The metadata as the bytes of its file, compressed if the table says so. The bytes are read again here: metadata that
/// would not load must never become the table's.
pub(crate) fn encode(metadata: &TableMetadata, act: &str) -> Result<Encoded, CatalogError> {
    let refused = |problem: String| CatalogError::Refused { act: act.to_owned(), problem };
    let codec = metadata.metadata_compression_codec().map_err(|error| refused(error.message().to_owned()))?;
    let json = serde_json::to_vec(metadata)
        .map_err(|error| refused(format!("the new metadata cannot be written: {error}")))?;
    let reread = parse::parse(&json, "about to be written")?;
    let gzip = matches!(codec, CompressionCodec::Gzip(_));
    let bytes = if gzip { compress(&json).map_err(|error| refused(format!("compress: {error}")))? } else { json };
    Ok(Encoded { bytes: bytes.into(), metadata: Arc::new(reread), gzip })
}

fn compress(json: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(json)?;
    encoder.finish()
}

/// A new name for the next metadata file, in the form that catalogs other than Hadoop's use: a version that only helps
/// people, and a unique id. `current` is the name of the file before it, if there is one.
pub(crate) fn next_location(metadata: &TableMetadata, current: Option<&str>, gzip: bool) -> String {
    let folder = match metadata.properties().get(METADATA_PATH) {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", metadata.location()),
    };
    let version = current.map_or(0, |current| version_of(current).map_or(0, |version| version.saturating_add(1)));
    let packed = if gzip { ".gz" } else { "" };
    format!("{folder}/{version:05}-{}{packed}.metadata.json", Uuid::new_v4())
}

fn version_of(location: &str) -> Option<u32> {
    let name = location.rsplit('/').next()?;
    name.split('-').next()?.parse().ok()
}

/// Removes metadata files that fell out of the log, when the table asks for it. A file that stays behind does no harm.
pub(crate) async fn delete_expired(storage: &Storage, metadata: &TableMetadata, expired: &[String]) {
    let asked = metadata.properties().get(DELETE_AFTER_COMMIT).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if !asked {
        return;
    }
    for location in expired {
        if let Err(error) = storage.delete(location).await {
            tracing::warn!(location, error = chain(&error), "an expired metadata file was left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    #[test]
    fn what_is_encoded_reads_back_as_it_was() {
        for (codec, gzip) in [("none", false), ("gzip", true), ("GZIP", true)] {
            let creation = testing::creation(&[("write.metadata.compression-codec", codec)]);
            let metadata = super::super::create(&testing::table(&["ns"], "t"), "/w/t", creation).unwrap();
            let encoded = encode(&metadata, "commit").unwrap();
            assert_eq!(encoded.gzip, gzip);
            assert_eq!(*encoded.metadata, metadata);
            assert_eq!(parse::parse(&encoded.bytes, "x").unwrap(), metadata);
        }
        let creation = testing::creation(&[("write.metadata.compression-codec", "zstd")]);
        let metadata = super::super::create(&testing::table(&["ns"], "t"), "/w/t", creation).unwrap();
        assert!(encode(&metadata, "commit").is_err());
    }

    #[test]
    fn versions_count_up_and_names_are_never_used_twice() {
        let metadata = super::super::create(&testing::table(&["ns"], "t"), "/w/t", testing::creation(&[])).unwrap();
        let first = next_location(&metadata, None, false);
        assert!(first.starts_with("/w/t/metadata/00000-") && first.ends_with(".metadata.json"), "{first}");
        let second = next_location(&metadata, Some(&first), true);
        assert!(second.starts_with("/w/t/metadata/00001-") && second.ends_with(".gz.metadata.json"), "{second}");
        assert_ne!(next_location(&metadata, Some(&first), true), second);
        let odd = next_location(&metadata, Some("/w/t/metadata/v3.metadata.json"), false);
        assert!(odd.starts_with("/w/t/metadata/00000-"), "{odd}");
    }

    #[test]
    fn the_table_can_put_its_metadata_elsewhere() {
        let creation = testing::creation(&[("write.metadata.path", "/elsewhere/")]);
        let metadata = super::super::create(&testing::table(&["ns"], "t"), "/w/t", creation).unwrap();
        assert!(next_location(&metadata, None, false).starts_with("/elsewhere/00000-"));
    }
}
