//! What a comparison found, for people and for programs.

use iceferry_common::model::{JobName, ShownRow};
use serde::Serialize;

use super::compare::Found;

/// What a comparison found. In JSON snapshot ids are strings, since many readers take numbers for doubles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The job.
    pub job: JobName,
    /// Whether both sides have the same rows.
    pub outcome: Outcome,
    /// The source.
    pub source: SideReport,
    /// The target.
    pub target: SideReport,
    /// Buckets that rows were counted in.
    pub buckets: u64,
    /// Buckets whose rows differ.
    pub buckets_different: u64,
    /// Rows of the source that the target lacks.
    pub missing: u64,
    /// Rows of the target that the source does not have.
    pub surplus: u64,
    /// Rows of one key with other values.
    pub changed: u64,
    /// The first rows that differ.
    pub rows: Vec<RowReport>,
    /// How many more differ.
    pub more: u64,
    /// Rows read of both sides.
    pub rows_read: u64,
    /// Bytes read of both tables' files.
    pub bytes_read: u64,
    /// Bytes of temporary files, which are removed.
    pub temporary_bytes: u64,
    /// Row hashes that were looked at in temporary files.
    pub hashes_read_again: u64,
    /// Rows that were read a second time, to be shown.
    pub rows_read_again: u64,
    /// Bytes that were read for it.
    pub bytes_read_again: u64,
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Both sides have the same rows.
    Equal,
    /// They do not.
    Different,
}

/// One of the two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideReport {
    /// `namespace.table`.
    pub table: String,
    /// The snapshot, as text; absent when the table has none, and so no rows.
    pub snapshot_id: Option<String>,
    /// Its rows, once they are counted.
    pub rows: Option<u64>,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowReport {
    /// `missing` in the target, `surplus` in the target, or `changed`.
    pub difference: &'static str,
    /// The columns of the key; empty without one.
    pub key: Vec<ValueReport>,
    /// The columns that differ; of a row that one side lacks, all that are not the key's.
    pub columns: Vec<ValueReport>,
}

/// The values of a column, as text that is cut when it is long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueReport {
    /// The column.
    pub column: String,
    /// The source's value; absent where the source has no such row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The target's value; absent where the target has no such row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl RowReport {
    /// A row that differs, from what is shown of it on either side. `names` are the columns, `key` places of those of the
    /// key.
    pub(super) fn of(
        found: Found,
        (source, target): (Option<&ShownRow>, Option<&ShownRow>),
        names: &[String],
        key: &[usize],
    ) -> Self {
        let value = |place: usize| {
            let of = |row: Option<&ShownRow>| Some(row?.columns.get(place)?.text.clone());
            ValueReport { column: names[place].clone(), source: of(source), target: of(target) }
        };
        let differs = |place: &usize| match (source, target) {
            (Some(source), Some(target)) => source.columns.get(*place) != target.columns.get(*place),
            _ => !key.contains(place),
        };
        Self {
            difference: match found {
                Found::Missing(_) => "missing",
                Found::Surplus(_) => "surplus",
                Found::Changed { .. } => "changed",
            },
            key: key.iter().map(|place| value(*place)).collect(),
            columns: (0..names.len()).filter(differs).map(value).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use iceferry_common::model::ShownValue;

    use super::*;
    use crate::verify::compare::Place;

    fn row(values: [(&str, u64); 3]) -> ShownRow {
        let columns = values.map(|(text, hash)| ShownValue { text: text.into(), hash });
        ShownRow { location: "/f".into(), position: 0, columns: columns.into() }
    }

    #[test]
    fn a_changed_row_names_its_key_and_what_differs_and_other_rows_all_they_have() {
        let names = ["id", "v", "w"].map(str::to_owned);
        let place = Place { digest: 0, file: 0, position: 0 };
        let changed = Found::Changed { source: place, target: place };
        let (one, other) = (row([("1", 1), ("a", 2), ("long...", 3)]), row([("1", 1), ("a", 2), ("long...", 4)]));
        let columns = |report: &RowReport| report.columns.iter().map(|value| value.column.clone()).collect::<Vec<_>>();

        let report = RowReport::of(changed, (Some(&one), Some(&other)), &names, &[0]);
        assert_eq!((report.difference, columns(&report)), ("changed", vec!["w".to_owned()]), "its hash tells");
        assert_eq!(report.key[0].source.as_deref(), Some("1"));
        assert_eq!(report.columns[0].target.as_deref(), Some("long..."));

        let report = RowReport::of(Found::Missing(place), (Some(&one), None), &names, &[0]);
        assert_eq!((report.difference, columns(&report)), ("missing", vec!["v".to_owned(), "w".to_owned()]));
        assert_eq!((report.columns[0].source.as_deref(), report.columns[0].target.as_deref()), (Some("a"), None));

        let report = RowReport::of(Found::Surplus(place), (None, Some(&one)), &names, &[]);
        assert_eq!((report.difference, report.key.len(), report.columns.len()), ("surplus", 0, 3));
        assert_eq!(report.columns[0].source, None);
    }
}
