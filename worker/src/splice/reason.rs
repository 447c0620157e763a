//! Why a file is not carried over in the cheapest way.

use std::fmt;

/// Why a file is decoded, or spliced where a copy would be cheaper. Few and without names, so that they can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The job has a filter on rows.
    Filter,
    /// The data file is no Parquet file.
    Format,
    /// The file, or a column of it, is encrypted.
    Encrypted,
    /// Its writer is known for footers or pages that are only right together with the writer's name.
    OldWriter,
    /// The file, or a row group of it, has no rows.
    Empty,
    /// The footer contradicts itself, or the manifest.
    Contradiction,
    /// A column's type or encoding is none that readers take for the target's type.
    Encoding,
    /// A list or a map in a shape of old writers.
    Nesting,
    /// A column is required, and the file may have nulls in it, or has no column and no default.
    Required,
    /// A column differs by row and is in no file: a position or a row id.
    RowMetadata,
    /// A column inside another one is missing, and its value is not null.
    NestedDefault,
    /// The file has no field ids, and its columns are not certain without them.
    Names,
    /// A constant or default does not fit its column.
    Constant,
    /// Columns are added: constants of the file, defaults, or what a changelog tells.
    AddedColumns,
    /// The field ids of the target differ from those in the file, or are not in the file.
    FieldIds,
    /// The file has columns that the target may come to use.
    ExtraColumns,
}

impl Reason {
    /// A name that does not change, for counters.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Format => "format",
            Self::Encrypted => "encrypted",
            Self::OldWriter => "old-writer",
            Self::Empty => "empty",
            Self::Contradiction => "contradiction",
            Self::Encoding => "encoding",
            Self::Nesting => "nesting",
            Self::Required => "required",
            Self::RowMetadata => "row-metadata",
            Self::NestedDefault => "nested-default",
            Self::Names => "names",
            Self::Constant => "constant",
            Self::AddedColumns => "added-columns",
            Self::FieldIds => "field-ids",
            Self::ExtraColumns => "extra-columns",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter => "rows are filtered",
            Self::Format => "it is no parquet file",
            Self::Encrypted => "it is encrypted",
            Self::OldWriter => "its writer is too old",
            Self::Empty => "it has no rows, or a row group without any",
            Self::Contradiction => "its footer contradicts itself or the manifest",
            Self::Encoding => "a column is not encoded as the target's type",
            Self::Nesting => "a list or a map has a shape of old writers",
            Self::Required => "a required column may be null",
            Self::RowMetadata => "a metadata column differs by row",
            Self::NestedDefault => "a column inside another one is missing",
            Self::Names => "its columns have no field ids",
            Self::Constant => "a constant does not fit its column",
            Self::AddedColumns => "columns are added",
            Self::FieldIds => "the target has other field ids",
            Self::ExtraColumns => "it has columns that the target may come to use",
        })
    }
}
