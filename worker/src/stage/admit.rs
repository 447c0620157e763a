//! What of a batch goes into a file, and whether it may.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use iceferry_common::model::{EpochContext, TargetMode, TaskId};

use super::StageError;
use super::changelog::ChangelogColumns;
use super::fit::fit;
use super::keys::{Looked, UniqueKeys};
use super::layout::Layout;
use crate::key_text::printed;
use crate::{Change, ChangeBatch, Columns};

/// Takes batches of the read schema, gives rows in the layout of the files that they go to: all columns of an INSERT,
/// the key columns of a DELETE.
pub(super) struct Admission {
    context: Arc<EpochContext>,
    task: TaskId,
    data: Arc<Layout>,
    /// Absent when the target has no key.
    deletes: Option<Arc<Layout>>,
    /// Positions of the key columns among the top-level columns.
    key_positions: Vec<usize>,
    /// Where the target's columns come from, when it is a changelog.
    changelog: Option<ChangelogColumns>,
    /// Absent when keys are not looked at.
    keys: Option<UniqueKeys>,
}

impl Admission {
    /// An admission for one attempt. With `key_memory_bytes` no key may come twice on one side.
    pub(super) fn new(
        context: Arc<EpochContext>,
        task: TaskId,
        data: Arc<Layout>,
        deletes: Option<Arc<Layout>>,
        key_memory_bytes: Option<u64>,
    ) -> Result<Self, StageError> {
        let target = &context.target;
        let fields = target.write_schema.as_struct().fields();
        let position = |id: &i32| fields.iter().position(|field| field.id == *id);
        let key_positions = target.key.iter().filter_map(position).collect();
        let keys = match (&deletes, key_memory_bytes) {
            (Some(layout), Some(bytes)) => {
                let types: Vec<_> = layout.arrow.fields().iter().map(|field| field.data_type().clone()).collect();
                let keys = UniqueKeys::new(&types, usize::try_from(bytes).unwrap_or(usize::MAX));
                Some(keys.map_err(|source| StageError::Keys { table: target.table.clone(), source })?)
            }
            _ => None,
        };
        let read = context.source.read_schema.as_struct().fields().len();
        let changelog = context.changelog.as_ref().map(|changelog| ChangelogColumns::new(changelog, read));
        Ok(Self { task, data, deletes, key_positions, changelog, keys, context })
    }

    /// The place in the write schema of the column at a place in the read schema.
    pub(super) fn place_of(&self, read: usize) -> Option<usize> {
        self.changelog.as_ref().map_or(Some(read), |changelog| changelog.place_of(read))
    }

    /// The rows of a batch as they are written.
    pub(super) fn admit(&mut self, batch: &ChangeBatch) -> Result<RecordBatch, StageError> {
        if let Some(changelog) = &self.changelog {
            if batch.columns != Columns::All || batch.rows.num_columns() != changelog.expected() {
                return Err(self.wrong_columns(batch, changelog.expected()));
            }
            if batch.change != Change::Insert && !changelog.tells_changes() {
                return Err(self.delete_in_append());
            }
            return self.fitted(&self.data, &changelog.of(batch));
        }
        let rows = match batch.change {
            Change::Insert | Change::UpdateAfter => self.fitted_inserts(batch)?,
            Change::Delete | Change::UpdateBefore => self.fitted_deletes(batch)?,
        };
        self.look_at_keys(batch.change, &rows)?;
        Ok(rows)
    }

    fn delete_in_append(&self) -> StageError {
        StageError::DeleteInAppend {
            source_table: self.context.source.table.clone(),
            target_table: self.context.target.table.clone(),
        }
    }

    fn fitted_inserts(&self, batch: &ChangeBatch) -> Result<RecordBatch, StageError> {
        let expected = self.data.arrow.fields().len();
        if batch.columns != Columns::All || batch.rows.num_columns() != expected {
            return Err(self.wrong_columns(batch, expected));
        }
        self.fitted(&self.data, batch.rows.columns())
    }

    fn fitted_deletes(&self, batch: &ChangeBatch) -> Result<RecordBatch, StageError> {
        let target = &self.context.target;
        if target.mode == TargetMode::Append {
            return Err(self.delete_in_append());
        }
        let Some(deletes) = &self.deletes else {
            return Err(StageError::NoKey { table: target.table.clone() });
        };
        let expected = match batch.columns {
            Columns::All => self.data.arrow.fields().len(),
            Columns::Key => self.key_positions.len(),
        };
        if batch.rows.num_columns() != expected {
            return Err(self.wrong_columns(batch, expected));
        }
        match batch.columns {
            Columns::Key => self.fitted(deletes, batch.rows.columns()),
            Columns::All => self.fitted(deletes, &self.key_of(batch.rows.columns())),
        }
    }

    fn key_of(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.key_positions.iter().map(|position| Arc::clone(&columns[*position])).collect()
    }

    fn fitted(&self, layout: &Layout, columns: &[ArrayRef]) -> Result<RecordBatch, StageError> {
        let table = &self.context.target.table;
        let fields = layout.arrow.fields();
        let columns = fields.iter().zip(columns).map(|(field, column)| fit(table, column, field));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&layout.arrow), columns).map_err(|error| StageError::Shape {
            table: table.clone(),
            column: "(all columns)".to_owned(),
            found: error.to_string(),
            expected: "the write schema".to_owned(),
        })
    }

    fn wrong_columns(&self, batch: &ChangeBatch, expected: usize) -> StageError {
        StageError::Shape {
            table: self.context.target.table.clone(),
            column: "(all columns)".to_owned(),
            found: format!("{:?} with {} columns", batch.columns, batch.rows.num_columns()),
            expected: format!("{expected} columns"),
        }
    }

    fn look_at_keys(&mut self, change: Change, rows: &RecordBatch) -> Result<(), StageError> {
        if self.keys.is_none() {
            return Ok(());
        }
        let key = match change {
            Change::Insert | Change::UpdateAfter => self.key_of(rows.columns()),
            Change::Delete | Change::UpdateBefore => rows.columns().to_vec(),
        };
        let (Some(keys), Some(deletes)) = (&mut self.keys, &self.deletes) else { return Ok(()) };
        let table = &self.context.target.table;
        match keys.look(change, &key) {
            Ok(Looked::Unique) => Ok(()),
            Ok(Looked::Full) => {
                let bytes = keys.bytes_max();
                tracing::warn!(
                    table,
                    task = self.task.0,
                    bytes,
                    "keys of the task do not fit into memory, the rest was not looked at for duplicates"
                );
                Ok(())
            }
            Ok(Looked::Twice { row }) => Err(StageError::DuplicateKey {
                table: self.context.source.table.clone(),
                key: printed(&deletes.arrow, &key, row),
                change,
            }),
            Err(source) => Err(StageError::Keys { table: table.clone(), source }),
        }
    }
}
