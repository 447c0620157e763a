//! The real attempt: rows from storage over the tag step into staged files, on a blocking thread.

use std::cell::Cell;
use std::sync::Arc;

use async_trait::async_trait;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{Attempt, EpochContext, RowCounts, ScanTask, TaskOutput};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{AttemptError, Counters, Runner};
use crate::read::{ReadError, ReadOptions, TaskReader};
use crate::stage::{StageOptions, Stager};
use crate::{ChangeBatch, tag};

/// Reads, tags and stages.
#[derive(Debug, Clone)]
pub struct PipelineRunner {
    /// Settings of the reader.
    pub read: ReadOptions,
    /// Settings of the stager.
    pub stage: StageOptions,
    /// Memory that the tag step of one attempt may use.
    pub tag_memory_bytes_max: u64,
}

#[async_trait]
impl Runner for PipelineRunner {
    async fn run(
        &self,
        context: Arc<EpochContext>,
        task: Arc<ScanTask>,
        attempt: Attempt,
        progress: Arc<Counters>,
        cancel: CancellationToken,
    ) -> Result<TaskOutput, AttemptError> {
        let (runner, span, handle) = (self.clone(), tracing::Span::current(), Handle::current());
        let ran = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            runner.run_attempt(context, &task, attempt, &progress, &cancel, handle)
        });
        match ran.await {
            Ok(result) => result,
            Err(error) => Err(AttemptError {
                class: Class::Bug,
                message: format!("the attempt broke off: {error}"),
                left_behind: Vec::new(),
            }),
        }
    }

    async fn discard(&self, context: Arc<EpochContext>, output: TaskOutput) -> Vec<String> {
        let storage = Storage::new(context.target.storage.clone());
        let mut left_behind = Vec::new();
        for file in output.files {
            if let Err(error) = storage.delete(&file.location).await {
                tracing::debug!(%error, "a staged file could not be removed");
                left_behind.push(file.location);
            }
        }
        left_behind
    }
}

/// Why the rows stopped.
enum Stop {
    Error { class: Class, message: String },
    Cancelled,
}

impl Stop {
    fn at(error: &(impl Classified + 'static)) -> Self {
        Self::Error { class: error.class(), message: iceferry_common::fault::chain(error) }
    }

    fn with(self, left_behind: Vec<String>) -> AttemptError {
        match self {
            Self::Error { class, message } => AttemptError { class, message, left_behind },
            Self::Cancelled => AttemptError::cancelled(left_behind),
        }
    }
}

impl PipelineRunner {
    /// One try, on a thread that may block. What it staged is removed unless it succeeds.
    fn run_attempt(
        &self,
        context: Arc<EpochContext>,
        task: &ScanTask,
        attempt: Attempt,
        progress: &Counters,
        cancel: &CancellationToken,
        handle: Handle,
    ) -> Result<TaskOutput, AttemptError> {
        let source = Storage::new(context.source.storage.clone());
        let target = Storage::new(context.target.storage.clone());
        let options = ReadOptions { cancel: cancel.clone(), ..self.read.clone() };
        let reader = TaskReader::open(&context, task, source, handle.clone(), options)
            .map_err(|error| AttemptError::new(&error, Vec::new()))?;
        let (read, bytes_read) = (Cell::new(0), Cell::new(0));
        let reader = Counted { reader, read: &read, bytes_read: &bytes_read };
        let key = key_columns(&context)?;
        let mut tagged = tag::tag(reader, task.carry_over, key, self.tag_memory_bytes_max);
        let mut stager = Stager::new(context.clone(), task.id, attempt, target, handle, self.stage.clone())
            .map_err(|error| AttemptError::new(&error, Vec::new()))?;
        let counts = |carried_over, staged: RowCounts| RowCounts {
            read: read.get(),
            bytes_read: bytes_read.get(),
            carried_over,
            ..staged
        };
        let piped = (|| {
            // Looked at for each batch, so that a lost lease does not go on staging.
            while let Some(batch) = tagged.next() {
                if cancel.is_cancelled() {
                    return Err(Stop::Cancelled);
                }
                let batch = batch.map_err(|error| Stop::at(&error))?;
                stager.write(&batch).map_err(|error| Stop::at(&error))?;
                progress.set(counts(tagged.carried_over(), stager.rows()));
            }
            if cancel.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
        })();
        if let Err(stop) = piped {
            let left_behind = stager.abort();
            // A reader that is cancelled ends with an error of its own.
            let stop = if cancel.is_cancelled() { Stop::Cancelled } else { stop };
            return Err(stop.with(left_behind));
        }
        let mut rows = counts(tagged.carried_over(), stager.rows());
        let files = stager.finish().map_err(|error| AttemptError::new(&error, error.left_behind().to_vec()))?;
        // What was still in buffers is written by now.
        rows.bytes_written = files.iter().map(|file| file.size_bytes).sum();
        progress.set(rows);
        Ok(TaskOutput { task: task.id, attempt, files, rows })
    }
}

/// Counts what the reader gives on its way into the tag step, which takes the reader.
struct Counted<'a> {
    reader: TaskReader,
    read: &'a Cell<u64>,
    bytes_read: &'a Cell<u64>,
}

impl Iterator for Counted<'_> {
    type Item = Result<ChangeBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next();
        self.read.set(self.reader.rows_read());
        self.bytes_read.set(self.reader.bytes_fetched());
        batch
    }
}

/// Places of the key columns in the read schema. Read and write schema have the same shape, column by column.
fn key_columns(context: &EpochContext) -> Result<Vec<usize>, AttemptError> {
    let columns = context.target.write_schema.as_struct().fields();
    let place = |id: &i32| {
        columns.iter().position(|column| column.id == *id).ok_or_else(|| AttemptError {
            class: Class::Refused,
            message: format!("key field {id} of {} is no top-level column", context.target.table),
            left_behind: Vec::new(),
        })
    };
    context.target.key.iter().map(place).collect()
}
