//! Which way a file difference takes: as bytes, or through decoded rows, and then why. Pure.
//!
//! What only a file's footer can tell is not decided here: a worker still decodes what turns out not to be fit for more.

use std::fmt;

use iceferry_common::model::{FileDifference, FileFormat, Side};
use serde::Serialize;

/// What need not go through decoded rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ways {
    /// Why no file at all is carried as bytes; without a reason that is told file by file.
    pub decode: Option<DecodeReason>,
    /// Whether rows that the epoch itself brings can be deleted in the target: not so in one that is only appended to.
    pub takes_deletes: bool,
    /// Whether equality deletes on the key may go straight through. Only where the state before is what the target has, and
    /// an ancestor of the state after.
    pub passes_deletes: bool,
}

impl Ways {
    /// Rows alone are wanted.
    pub fn rows() -> Self {
        Self { decode: Some(DecodeReason::Asked), takes_deletes: false, passes_deletes: false }
    }
}

/// Why the rows of a file are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecodeReason {
    /// It is asked for.
    Asked,
    /// A filter may leave some of its rows out.
    Filter,
    /// A column of the target differs from row to row and is in no file, or has fields of its own.
    MetadataColumns,
    /// It is not Parquet.
    Format,
    /// Deletes reach it, and the target takes none.
    Deletes,
    /// It may be a rewrite of a file that went, or hold the other half of an update.
    Compared,
    /// It is not new: rows of it went, or came back.
    NotNew,
}

impl fmt::Display for DecodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "target.copy is decode",
            Self::Filter => "source.filter may leave rows out",
            Self::MetadataColumns => "a metadata column is not one plain value for a file",
            Self::Format => "no Parquet file",
            Self::Deletes => "rows are deleted, and an append target takes no deletes",
            Self::Compared => "rows are compared with those that went",
            Self::NotNew => "rows of older files went or came back",
        })
    }
}

/// Why the rows of a difference are decoded that goes straight through; `None` when it may be carried as bytes.
pub(super) fn decodes(ways: &Ways, difference: &FileDifference) -> Option<DecodeReason> {
    let Side::Present(deletes) = &difference.after else { return Some(DecodeReason::NotNew) };
    if difference.before != Side::Absent {
        return Some(DecodeReason::NotNew);
    }
    if ways.decode.is_some() {
        return ways.decode;
    }
    if difference.file.format != FileFormat::Parquet {
        return Some(DecodeReason::Format);
    }
    (!deletes.is_empty() && !ways.takes_deletes).then_some(DecodeReason::Deletes)
}

/// Why the rows of a difference are decoded that is compared with others.
pub(super) fn of_compared(difference: &FileDifference) -> DecodeReason {
    match difference.before {
        Side::Absent => DecodeReason::Compared,
        Side::Present(_) => DecodeReason::NotNew,
    }
}

#[cfg(test)]
mod tests {
    use iceferry_common::model::DataFile;

    use super::*;

    #[test]
    fn only_a_new_parquet_file_that_nothing_speaks_against_is_carried_as_bytes() {
        use DecodeReason::{Asked, Deletes, Filter, Format, NotNew};
        use FileFormat::{Avro, Parquet};
        let free = Ways { decode: None, takes_deletes: true, passes_deletes: true };
        let append = Ways { takes_deletes: false, ..free.clone() };
        let filtered = Ways { decode: Some(Filter), ..free.clone() };
        let (gone, plain, deleted) = (Side::Absent, Side::Present(vec![]), Side::Present(vec![0]));
        for (ways, format, before, after, expected) in [
            (&free, Parquet, &gone, &plain, None),
            (&free, Parquet, &gone, &deleted, None),
            (&append, Parquet, &gone, &plain, None),
            (&append, Parquet, &gone, &deleted, Some(Deletes)),
            (&free, Avro, &gone, &plain, Some(Format)),
            (&filtered, Parquet, &gone, &plain, Some(Filter)),
            (&Ways::rows(), Parquet, &gone, &plain, Some(Asked)),
            (&free, Parquet, &plain, &gone, Some(NotNew)),
            (&free, Parquet, &plain, &deleted, Some(NotNew)),
            (&filtered, Parquet, &deleted, &plain, Some(NotNew)),
        ] {
            let file = DataFile {
                location: "f".into(),
                format,
                size_bytes: 1,
                record_count: 1,
                constants: Vec::new(),
                sequence_number: 0,
                first_row_id: None,
                spec_id: 0,
                partition: Vec::new(),
            };
            let difference =
                FileDifference { file, split: None, before: before.clone(), after: after.clone(), commit: None };
            assert_eq!(decodes(ways, &difference), expected, "{ways:?} {format:?} {before:?} {after:?}");
        }
    }
}
