//! Rows of a changelog: the columns of a change batch, its metadata columns and the type of the change, in the order of
//! the target's columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use iceferry_common::model::{Changelog, ColumnSource};

use crate::ChangeBatch;

/// Where the columns of the target come from.
#[derive(Debug)]
pub(super) struct ChangelogColumns {
    sources: Vec<ColumnSource>,
    /// Columns of the read schema; the metadata columns come behind them.
    read: usize,
    metadata: usize,
}

impl ChangelogColumns {
    /// For batches with so many columns of the read schema.
    pub(super) fn new(changelog: &Changelog, read: usize) -> Self {
        Self { sources: changelog.columns.clone(), read, metadata: changelog.metadata_columns.len() }
    }

    /// The place in the target of a column of the read schema.
    pub(super) fn place_of(&self, read: usize) -> Option<usize> {
        self.sources.iter().position(|source| *source == ColumnSource::Read(read))
    }

    /// Whether a row says by what change it is there. Without that only rows that came can be written.
    pub(super) fn tells_changes(&self) -> bool {
        self.sources.contains(&ColumnSource::ChangeType)
    }

    /// How many columns a batch has.
    pub(super) fn expected(&self) -> usize {
        self.read + self.metadata
    }

    /// The batch's columns as the target has them. The batch has as many as [`Self::expected`].
    pub(super) fn of(&self, batch: &ChangeBatch) -> Vec<ArrayRef> {
        let columns = batch.rows.columns();
        let column = |source: &ColumnSource| match *source {
            ColumnSource::Read(place) => columns.get(place).cloned(),
            ColumnSource::Metadata(place) => columns.get(self.read + place).cloned(),
            ColumnSource::ChangeType => {
                let names = std::iter::repeat_n(batch.change.name(), batch.rows.num_rows());
                Some(Arc::new(StringArray::from_iter_values(names)) as ArrayRef)
            }
        };
        // One that is not there makes the columns too few, which is refused as a misshapen batch.
        self.sources.iter().filter_map(column).collect()
    }
}
