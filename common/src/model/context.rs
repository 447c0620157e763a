//! What all tasks of an epoch share, sent to a worker once.

use std::collections::HashMap;

use iceberg::spec::SchemaRef;

use super::{Changelog, EpochId, JobName, RunId};
use crate::filter::TableFilter;
use crate::storage::StorageProperties;

/// Everything that a worker needs beside a scan task. A worker is stateless: nothing it does depends on anything else.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochContext {
    /// The job.
    pub job: JobName,
    /// The run of the job.
    pub run: RunId,
    /// The epoch that the tasks belong to.
    pub epoch: EpochId,
    /// Where and how to read.
    pub source: SourceContext,
    /// Where and how to stage.
    pub target: TargetContext,
    /// How changes become rows of a changelog. Without it the target has the columns of the read schema, one by one, and a
    /// change is only what it does to them.
    pub changelog: Option<Changelog>,
}

/// How to read the source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceContext {
    /// `namespace.table`, for messages.
    pub table: String,
    /// The shape that rows are read in: the source's field ids; columns, names, order and types as the target has them.
    pub read_schema: SchemaRef,
    /// The newest definition of every field of any schema of the source, by id, nested ones as well. Equality deletes
    /// may be keyed on columns that the read schema lacks.
    pub equality_schema: SchemaRef,
    /// The table's `schema.name-mapping.default`, for files without field ids.
    pub name_mapping: Option<String>,
    /// Which rows count; all without one. Rows that it leaves out are not read on either side of a change, save that an
    /// update is told from both its halves before one of them is left out.
    pub filter: Option<TableFilter>,
    /// Credentials and settings for the source's files.
    pub storage: StorageProperties,
}

/// How to stage files for the target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetContext {
    /// `namespace.table`, for messages.
    pub table: String,
    /// The target's own field ids. Same shape as the read schema, column by column, unless the target is a changelog,
    /// which says where each of its columns comes from.
    pub write_schema: SchemaRef,
    /// Key columns as field ids of the write schema, in the order of the key. Empty when the target has no key.
    pub key: Vec<i32>,
    /// What a change becomes.
    pub mode: TargetMode,
    /// Folder for data and delete files, without a slash at its end.
    pub data_location: String,
    /// Format version of the target, 2 or 3.
    pub format_version: u8,
    /// The highest field id that the target ever used, or will have used when it is made.
    pub last_column_id: i32,
    /// The target's `schema.name-mapping.default`.
    pub name_mapping: Option<String>,
    /// Parquet settings from the target's table properties.
    pub parquet: ParquetSettings,
    /// A staged file is closed when it reaches this size (`write.target-file-size-bytes`).
    pub target_file_bytes: u64,
    /// Credentials and settings for the target's files.
    pub storage: StorageProperties,
}

/// How changes are applied to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetMode {
    /// The target mirrors the source: an INSERT is a row, a DELETE deletes by key.
    MergeOnRead,
    /// Each change is a row. Without a change type column there can be INSERTs only.
    Append,
}

/// How Parquet files of the target are written; from the table properties `write.parquet.*` and `write.metadata.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct ParquetSettings {
    /// `write.parquet.compression-codec`, in lower case: zstd, snappy, gzip, lz4, brotli or uncompressed.
    pub compression_codec: String,
    /// `write.parquet.compression-level`.
    pub compression_level: Option<i32>,
    /// `write.parquet.row-group-size-bytes`.
    pub row_group_bytes: u64,
    /// `write.parquet.page-size-bytes`.
    pub page_bytes: u64,
    /// `write.parquet.dict-size-bytes`.
    pub dictionary_bytes: u64,
    /// `write.metadata.metrics.default`.
    pub metrics_default: MetricsMode,
    /// `write.metadata.metrics.column.<name>` by full column name.
    pub metrics_columns: HashMap<String, MetricsMode>,
}

/// Which metrics of a column go into the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsMode {
    /// Nothing.
    None,
    /// Counts of values, nulls and NaNs.
    Counts,
    /// Counts, and bounds cut to so many characters or bytes.
    Truncate(u32),
    /// Counts, and bounds as they are.
    Full,
}
