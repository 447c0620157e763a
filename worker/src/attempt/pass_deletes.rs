//! Equality deletes that go straight through: the keys of delete files become equality deletes of the target.

use std::sync::Mutex;

use iceferry_common::model::{PassDeletesWork, TaskOutput};
use iceferry_common::storage::Storage;

use super::AttemptError;
use super::pipeline::{Made, PipelineRunner, closed, with_read};
use crate::exchange::Space;
use crate::read::KeyReader;
use crate::tag::{self, Tagging};

impl PipelineRunner {
    /// Reads keys and stages them. A key that several of the delete files have is staged as often: it deletes the same rows.
    pub(super) fn pass_deletes(
        self,
        made: &Made<'_>,
        tagging: Tagging,
        work: &PassDeletesWork,
        space: Space,
    ) -> Result<TaskOutput, AttemptError> {
        let source = Storage::new(made.context.source.storage.clone());
        let options = self.read_options(made.cancel);
        let reader = KeyReader::open(&made.context, made.task, work, source, made.runtime.clone(), options);
        let mut reader = reader.map_err(|error| AttemptError::new(&error, Vec::new()))?;
        let counted = std::iter::from_fn(|| {
            let batch = reader.next();
            made.progress.set_read(reader.rows_read(), reader.bytes_fetched());
            batch
        });
        let mut tagged = tag::tag(counted, tagging, space);
        let staged = self.stage(made, &mut tagged, &Mutex::default());
        let (files, rows) = closed(&mut tagged, staged)?;
        let rows = with_read(rows, made.progress);
        made.progress.set(rows);
        Ok(TaskOutput { task: made.task.id, attempt: made.attempt, files, exchanged: None, rows })
    }
}
