//! The keys of the job file, and which of them a misspelt one was meant to be.

use super::error::shown;

/// Keys of the file itself.
pub(super) const TOP: &[&str] = &["name", "source", "target"];

/// Keys of `source`.
pub(super) const SOURCE: &[&str] = &[
    "table",
    "catalog_properties",
    "from_snapshot",
    "start_snapshot_id",
    "from_timestamp",
    "start_timestamp",
    "to_snapshot",
    "end_snapshot_id",
    "to_timestamp",
    "end_timestamp",
    "after_snapshot",
    "starting_strategy",
    "streaming",
    "poll_interval_seconds",
    "keep",
    "drop",
    "filter",
    "include_metadata_columns",
    "identifier_columns",
    "branch",
    "tag",
    "changes",
    "duplicate_keys",
    "on_rollback",
    "on_gap",
];

/// Keys of `target`.
pub(super) const TARGET: &[&str] = &[
    "table",
    "catalog_properties",
    "mode",
    "equality_columns",
    "change_type_column",
    "change_type_map",
    "sequence_number_column",
    "upsert",
    "keep",
    "drop",
    "only",
    "partition_fields",
    "sort_fields",
    "table_properties",
    "triggering_frequency_seconds",
    "delete_format",
    "format_version",
    "schema_evolution",
    "copy",
];

/// Keys that Beam's managed Iceberg I/O knows in either block and this file does not, and what to do instead.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("catalog_name", "catalog_properties describe the catalog alone: leave it out"),
    ("config_properties", "there is no Hadoop configuration here: put settings for storage into catalog_properties"),
    ("watermark_column", "progress is counted in the source's snapshots: leave it out"),
    ("watermark_time_unit", "progress is counted in the source's snapshots: leave it out"),
    ("direct_write_byte_limit", "every file is staged by a worker: leave it out"),
];

/// Likeness, from 0 to 1, from which on an unknown key is taken for a known one misspelt.
const LIKENESS_MIN: f64 = 0.8;

/// The path of `key` below `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { shown(key) } else { format!("{path}.{}", shown(key)) }
}

/// The path of the known key that is most like the unknown `key` of the block at `path`; one of the same block unless
/// another's is nearer.
pub(super) fn nearest(path: &str, key: &str) -> Option<String> {
    let plain = |key: &str| key.to_lowercase().replace(['-', ' '], "_");
    let key = plain(key);
    let mut best: Option<(f64, String)> = None;
    let mut blocks = [("", TOP), ("source", SOURCE), ("target", TARGET)];
    blocks.sort_by_key(|(block, _)| *block != path);
    for (block, known) in blocks {
        for candidate in known {
            let likeness = strsim::jaro_winkler(&key, candidate);
            if likeness >= LIKENESS_MIN && best.as_ref().is_none_or(|(most, _)| likeness > *most) {
                best = Some((likeness, join(block, candidate)));
            }
        }
    }
    best.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_nearest_key_is_of_the_same_block_unless_another_is_nearer() {
        let cases = [
            ("source", "tabel", Some("source.table")),
            ("target", "Table", Some("target.table")),
            ("source", "equality_columns", Some("target.equality_columns")),
            ("source", "equality-column", Some("target.equality_columns")),
            ("target", "from_snapshot", Some("source.from_snapshot")),
            ("target", "keeps", Some("target.keep")),
            ("source", "poll_interval", Some("source.poll_interval_seconds")),
            ("source", "starting_stategy", Some("source.starting_strategy")),
            ("source", "from_snapshot_id", Some("source.from_snapshot")),
            ("source", "catalog", Some("source.catalog_properties")),
            ("", "sources", Some("source")),
            ("", "table", Some("source.table")),
            ("", "mode", Some("target.mode")),
            ("source", "zzz", None),
            ("", "", None),
        ];
        for (path, key, expected) in cases {
            assert_eq!(nearest(path, key).as_deref(), expected, "{path} {key}");
        }
    }

    #[test]
    fn no_key_is_listed_twice() {
        for keys in [TOP, SOURCE, TARGET] {
            let unique: BTreeSet<_> = keys.iter().collect();
            assert_eq!(unique.len(), keys.len());
            for (elsewhere, _) in ELSEWHERE {
                assert!(!unique.contains(elsewhere), "{elsewhere}");
            }
        }
    }
}
