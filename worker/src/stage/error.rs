//! What can go wrong while staging.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::StorageError;
use parquet::errors::ParquetError;

use crate::Change;

/// A failed staging; says what was being done, to which file, table or column.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The target takes rows only.
    #[error(
        "a row was deleted from {source_table}, and {target_table} is in append mode without a change type column: \
         use mode merge-on-read, or a source that only appends"
    )]
    DeleteInAppend {
        /// The source table.
        source_table: String,
        /// The target table.
        target_table: String,
    },
    /// Deletes need a key.
    #[error("{table} has no key to delete by: set equality_columns to columns that identify a row")]
    NoKey {
        /// The target table.
        table: String,
    },
    /// A key column is none that an equality delete can have.
    #[error("key field {field_id} of {table} is not a top-level column: set equality_columns to top-level columns")]
    KeyColumn {
        /// The target table.
        table: String,
        /// The key's field id in the write schema.
        field_id: i32,
    },
    /// Two live rows of one key.
    #[error(
        "{table} has two rows with the key {key} among the {} of one task: with equality deletes a key must be \
         unique, so remove the duplicate from the source or choose equality_columns that identify a row",
        if change.comes() { "rows that came" } else { "rows that went" }
    )]
    DuplicateKey {
        /// The source table.
        table: String,
        /// Key columns with their values, printed.
        key: String,
        /// The side that has the key twice.
        change: Change,
    },
    /// A null where the target has none.
    #[error("column {column} of {table} is required and got a null: make the target's column optional")]
    NullInRequired {
        /// The target table.
        table: String,
        /// Full name of the column.
        column: String,
    },
    /// A codec, or a level of it, that is not known.
    #[error(
        "parquet codec {codec:?} with level {level:?} cannot be written: set write.parquet.compression-codec to zstd, \
         snappy, gzip, lz4, brotli or uncompressed, and write.parquet.compression-level to a level that it has"
    )]
    Codec {
        /// The codec as the table has it.
        codec: String,
        /// The level as the table has it.
        level: Option<i32>,
    },
    /// The target's schema has no form in Parquet.
    #[error("column {column} of {table} cannot be laid out in parquet")]
    Layout {
        /// The target table.
        table: String,
        /// Full name of the column.
        column: String,
        /// Why.
        source: ParquetError,
    },
    /// The target's schema has no form in Arrow.
    #[error("schema of {table} cannot be laid out in arrow")]
    Schema {
        /// The target table.
        table: String,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// A batch that is not shaped as the write schema.
    #[error("column {column} of a batch for {table} is {found}, where {expected} belongs")]
    Shape {
        /// The target table.
        table: String,
        /// Full name of the column.
        column: String,
        /// What the batch has.
        found: String,
        /// What the write schema has.
        expected: String,
    },
    /// The encoder failed on values.
    #[error("encode {location}")]
    Encode {
        /// The file.
        location: String,
        /// Why.
        source: ParquetError,
    },
    /// The storage did not take the file.
    #[error("stage {location}")]
    Upload {
        /// The file.
        location: String,
        /// The storage's answer.
        source: Box<StorageError>,
    },
    /// The task that uploads a file ended without an answer.
    #[error("upload of {location} was cut off")]
    CutOff {
        /// The file.
        location: String,
    },
    /// The manifest entry could not be made.
    #[error("describe {location} for the manifest")]
    Describe {
        /// The file.
        location: String,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// More dead rows than a deletion vector can hold.
    #[error("the dead rows of {data_file} take more than a deletion vector can: set copy to decode")]
    Vector {
        /// The staged data file.
        data_file: String,
    },
    /// Staging failed, and what was staged could not be removed.
    #[error("{failure}; {} files stayed behind, for the job's next run to remove", locations.len())]
    LeftBehind {
        /// What failed first.
        #[source]
        failure: Box<StageError>,
        /// Locations where files may still be.
        locations: Vec<String>,
    },
    /// Keys could not be compared.
    #[error("compare keys of {table}")]
    Keys {
        /// The target table.
        table: String,
        /// Why.
        source: arrow::error::ArrowError,
    },
}

impl StageError {
    /// Locations where files of the failed attempt may still be.
    pub fn left_behind(&self) -> &[String] {
        match self {
            Self::LeftBehind { locations, .. } => locations,
            _ => &[],
        }
    }
}

impl Classified for StageError {
    fn class(&self) -> Class {
        match self {
            Self::DeleteInAppend { .. }
            | Self::NoKey { .. }
            | Self::KeyColumn { .. }
            | Self::DuplicateKey { .. }
            | Self::NullInRequired { .. }
            | Self::Codec { .. }
            | Self::Vector { .. }
            | Self::Layout { .. }
            | Self::Schema { .. } => Class::Refused,
            Self::Upload { source, .. } => source.class(),
            Self::LeftBehind { failure, .. } => failure.class(),
            Self::CutOff { .. } => Class::Interrupted,
            Self::Shape { .. } | Self::Encode { .. } | Self::Describe { .. } | Self::Keys { .. } => Class::Bug,
        }
    }
}
