//! What a job lets its planner carry without decoding rows. Pure.

use iceferry_common::config::CopyMode;
use iceferry_common::model::{ColumnSource, MetadataColumn, TargetMode};

use super::ChangelogShape;
use super::prepare::Prepared;
use crate::plan::{DecodeReason, Ways};

impl Prepared {
    /// What need not go through decoded rows.
    pub(super) fn ways(&self) -> Ways {
        if self.job.target.copy == CopyMode::Decode {
            return Ways::rows();
        }
        let is_mirror = self.job.target.mode == TargetMode::MergeOnRead;
        let is_followed = self.range.resync(&self.source.metadata).is_none();
        let decode = match self.filter {
            Some(_) => Some(DecodeReason::Filter),
            None => {
                let needs_rows = self.changelog.as_ref().is_some_and(needs_rows);
                needs_rows.then_some(DecodeReason::MetadataColumns)
            }
        };
        Ways {
            decode,
            takes_deletes: is_mirror,
            passes_deletes: is_mirror && is_followed && !self.write_key.is_empty(),
        }
    }
}

/// Whether some column of a changelog is not one plain value for all rows of a file. What is read beside the rows only to
/// tell updates does not count: files that tell some are compared.
fn needs_rows(shape: &ChangelogShape) -> bool {
    shape.columns.iter().any(|column| match column {
        ColumnSource::Metadata(place) => match shape.metadata_columns.get(*place) {
            Some(
                MetadataColumn::CommitSnapshotId
                | MetadataColumn::CommitSnapshotSequenceNumber
                | MetadataColumn::CommitTimestamp
                | MetadataColumn::ChangeOrdinal
                | MetadataColumn::File
                | MetadataColumn::SpecId,
            ) => false,
            Some(
                MetadataColumn::Pos
                | MetadataColumn::RowId
                | MetadataColumn::LastUpdatedSequenceNumber
                | MetadataColumn::Partition,
            )
            | None => true,
        },
        ColumnSource::Read(_) | ColumnSource::ChangeType => false,
    })
}

#[cfg(test)]
mod tests {
    use iceberg::spec::StructType;
    use iceferry_common::model::{DuplicateKeys, Identity};

    use super::*;

    #[test]
    fn columns_that_differ_by_row_want_rows_and_those_that_are_not_shown_do_not() {
        use MetadataColumn::{CommitSnapshotId, File, LastUpdatedSequenceNumber, Partition, Pos, RowId, SpecId};
        let wants = |metadata: &[MetadataColumn], shown: &[usize]| {
            let shown = shown.iter().map(|place| ColumnSource::Metadata(*place));
            needs_rows(&ChangelogShape {
                metadata_columns: metadata.to_vec(),
                partition_type: StructType::new(Vec::new()),
                identity: Identity::RowId,
                duplicate_keys: DuplicateKeys::Pair,
                compared_schema: None,
                columns: [ColumnSource::Read(0), ColumnSource::ChangeType].into_iter().chain(shown).collect(),
                has_change_type: true,
            })
        };
        assert!(!wants(&[], &[]));
        assert!(!wants(&[CommitSnapshotId, File, SpecId], &[0, 1, 2]));
        assert!(!wants(&[File, RowId], &[0]), "it is read to tell updates, and not shown");
        for column in [Pos, RowId, LastUpdatedSequenceNumber, Partition] {
            assert!(wants(&[File, column], &[0, 1]), "{column}");
        }
    }
}
