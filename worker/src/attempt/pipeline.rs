//! The real attempt: rows from storage over the tag step into staged files, on a blocking thread.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::error::ArrowError;
use async_trait::async_trait;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{
    Attempt, Changelog, CopyWork, DuplicateKeys, EpochContext, ExchangeSide, ExchangeWork, Identity, MetadataColumn,
    Resolution, ResolveWork, RowCounts, ScanTask, Side, StagedFile, TargetMode, TaskOutput, Work,
    exchange_file_location,
};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::copy;
use super::counted::{Counted, ahead};
use super::keep::Keep;
use super::shown::Shown;
use super::{AttemptError, Counters, Runner};
use crate::digest;
use crate::exchange::{Blocks, Space};
use crate::read::{ReadOptions, TaskReader};
use crate::stage::{StageOptions, Stager};
use crate::tag::{self, Pairing, Tagged, Tagging};
use crate::{Change, ChangeBatch, Columns};

/// Reads, tags and stages, each attempt within its share of the worker's memory.
#[derive(Debug, Clone, Copy)]
pub struct PipelineRunner {
    slot_memory_bytes: u64,
}

impl PipelineRunner {
    /// A runner whose attempts, `slots` at once, use about `memory_bytes` together.
    pub fn new(slots: u32, memory_bytes: u64) -> Self {
        Self { slot_memory_bytes: memory_bytes / u64::from(slots.max(1)) }
    }

    /// An eighth of a slot is for bytes that are fetched ahead.
    pub(super) fn read_options(&self, cancel: &CancellationToken) -> ReadOptions {
        ReadOptions {
            fetch_bytes: self.slot_memory_bytes / 8,
            equality_bytes: self.slot_memory_bytes / 2,
            cancel: cancel.clone(),
            ..ReadOptions::default()
        }
    }

    /// The encoder has three eighths of a slot: as much again is under way to storage while a row group is closed.
    fn stage_options(&self, context: &EpochContext, task: &ScanTask, first_file: usize) -> StageOptions {
        let has_deletes = task.differences.iter().any(|difference| difference.before != Side::Absent);
        StageOptions {
            row_group_memory_bytes: self.slot_memory_bytes * 3 / 8,
            unique_keys: has_deletes && context.target.mode == TargetMode::MergeOnRead,
            key_memory_bytes: self.slot_memory_bytes / 4,
            first_file,
        }
    }

    /// A quarter of a slot is for rows that are compared with others.
    fn tagging(&self, context: &EpochContext, resolution: Resolution, key: Vec<usize>) -> Tagging {
        let fields = context.source.read_schema.as_struct().fields();
        let pairing = |changelog: &Changelog| {
            let columns = match &changelog.identity {
                Identity::None => Vec::new(),
                Identity::Columns(ids) => {
                    ids.iter().filter_map(|id| fields.iter().position(|field| field.id == *id)).collect()
                }
                Identity::RowId => {
                    let place = changelog.metadata_columns.iter().position(|column| *column == MetadataColumn::RowId);
                    place.map(|place| fields.len() + place).into_iter().collect()
                }
            };
            Pairing {
                columns,
                nulls_pair: changelog.identity != Identity::RowId,
                duplicates: changelog.duplicate_keys == DuplicateKeys::Pair,
            }
        };
        let ordinal = |changelog: &Changelog| {
            let mut columns = changelog.metadata_columns.iter();
            columns.position(|column| *column == MetadataColumn::ChangeOrdinal).map(|place| fields.len() + place)
        };
        Tagging {
            table: context.source.table.clone(),
            resolution,
            compared: fields.len(),
            key,
            ordinal: context.changelog.as_ref().and_then(ordinal),
            changelog: context.changelog.as_ref().map(pairing),
            memory_bytes_max: self.slot_memory_bytes / 4,
            level: 0,
        }
    }

    /// One try, on a thread that may block. What it staged is removed unless it succeeds.
    fn run_blocking(
        self,
        context: Arc<EpochContext>,
        task: &ScanTask,
        attempt: Attempt,
        progress: &Counters,
        cancel: &CancellationToken,
        runtime: Handle,
    ) -> Result<TaskOutput, AttemptError> {
        let compared = compared(&context, task);
        let shown =
            compared.as_ref().map(|compared| Shown::new(&compared.source.read_schema, &context.source.read_schema));
        let shown = shown.transpose().map_err(|error| misshapen(&error))?;
        let reading = compared.map_or_else(|| Arc::clone(&context), Arc::new);
        let tagging = self.tagging(&reading, task.resolution, key_columns(&context)?);
        let target = Storage::new(context.target.storage.clone());
        let (id, located) = (task.id, Arc::clone(&context));
        let location = move |number| exchange_file_location(&located, id, attempt, number);
        let space = Space::new(target.clone(), runtime.clone(), cancel.clone(), location);
        let made = Made { context, reading, shown, task, attempt, target, runtime, progress, cancel, first_file: 0 };
        match &task.work {
            Work::Stage => self.read_and_stage(&made, tagging, space),
            Work::Copy(work) => self.carry_and_stage(&made, work, tagging, space),
            Work::PassDeletes(work) => self.pass_deletes(&made, tagging, work, space),
            Work::Exchange(work) => self.read_and_exchange(&made, &tagging, work, space),
            Work::Resolve(work) => self.resolve_and_stage(&made, tagging, work, space),
            Work::Digest(work) => {
                // An eighth of a slot is for hashes of rows that are not written yet.
                let run_bytes = self.slot_memory_bytes / 8;
                let of = (made.context.as_ref(), task, attempt);
                digest::digest(of, work, self.read_options(cancel), run_bytes, progress, made.runtime.clone())
            }
            Work::Show(_) => {
                let of = (made.context.as_ref(), task, attempt);
                digest::show(of, self.read_options(cancel), progress, made.runtime.clone())
            }
        }
    }

    /// Reads, tags and stages.
    fn read_and_stage(self, made: &Made<'_>, tagging: Tagging, space: Space) -> Result<TaskOutput, AttemptError> {
        let plain_columns = Mutex::new(Vec::new());
        let reader = self.reader(made, &plain_columns)?;
        let (files, rows) = if made.task.resolution == Resolution::Keep {
            let mut tagged = tag::tag(reader, tagging, space);
            let staged = self.stage(made, &mut tagged, &plain_columns);
            closed(&mut tagged, staged)?
        } else {
            std::thread::scope(|scope| {
                let mut tagged = tag::tag(ahead(scope, reader), tagging, space);
                let staged = self.stage(made, &mut tagged, &plain_columns);
                closed(&mut tagged, staged)
            })?
        };
        let rows = with_read(rows, made.progress);
        made.progress.set(rows);
        Ok(TaskOutput { task: made.task.id, attempt: made.attempt, files, exchanged: None, rows })
    }

    /// Carries files over as bytes, and stages the rows of what cannot be.
    fn carry_and_stage(
        self,
        made: &Made<'_>,
        work: &CopyWork,
        tagging: Tagging,
        space: Space,
    ) -> Result<TaskOutput, AttemptError> {
        let carried = copy::carry(made, work, self.read_options(made.cancel))?;
        let (task, attempt) = (made.task.id, made.attempt);
        if carried.rest.is_empty() {
            return Ok(TaskOutput { task, attempt, files: carried.files, exchanged: None, rows: carried.rows });
        }
        let rest = copy::rest_of(made.task, carried.rest);
        let first_file = carried.begun.len();
        let decoding = Made {
            context: Arc::clone(&made.context),
            reading: Arc::clone(&made.reading),
            shown: None,
            task: &rest,
            target: made.target.clone(),
            runtime: made.runtime.clone(),
            first_file,
            ..*made
        };
        match self.read_and_stage(&decoding, tagging, space) {
            Ok(mut output) => {
                output.files.splice(0..0, carried.files);
                output.rows += carried.rows;
                made.progress.set(output.rows);
                Ok(output)
            }
            Err(mut error) => {
                error.left_behind.extend(copy::remove(made, carried.begun));
                Err(error)
            }
        }
    }

    /// Reads rows and writes them by their hash, for others to resolve.
    fn read_and_exchange(
        self,
        made: &Made<'_>,
        tagging: &Tagging,
        work: &ExchangeWork,
        space: Space,
    ) -> Result<TaskOutput, AttemptError> {
        if work.hash_version != ExchangeWork::HASH_VERSION {
            let (wanted, ours) = (work.hash_version, ExchangeWork::HASH_VERSION);
            let message = format!(
                "the coordinator exchanges rows by hash version {wanted} and this worker by {ours}: run workers and \
                 coordinator of one version"
            );
            return Err(AttemptError { class: Class::Refused, message, left_behind: Vec::new() });
        }
        let plain_columns = Mutex::new(Vec::new());
        let reader = self.reader(made, &plain_columns)?;
        let exchanged = std::thread::scope(|scope| tag::exchange(ahead(scope, reader), tagging, space));
        let exchanged = exchanged.map_err(|error| match made.cancel.is_cancelled() {
            true => AttemptError::cancelled(Vec::new()),
            false => AttemptError::new(&error, Vec::new()),
        })?;
        let written = exchanged.as_ref().map_or(0, |file| file.blocks.iter().map(|block| block.length).sum());
        let rows = with_read(RowCounts { bytes_written: written, ..RowCounts::default() }, made.progress);
        made.progress.set(rows);
        Ok(TaskOutput { task: made.task.id, attempt: made.attempt, files: Vec::new(), exchanged, rows })
    }

    /// Tags and stages the rows of a bucket that others exchanged.
    fn resolve_and_stage(
        self,
        made: &Made<'_>,
        tagging: Tagging,
        work: &ResolveWork,
        space: Space,
    ) -> Result<TaskOutput, AttemptError> {
        let (storage, runtime, cancel) = (made.target.clone(), made.runtime.clone(), made.cancel.clone());
        let read = Cell::new(0);
        let mut blocks = Blocks::new(storage, runtime, cancel, &work.files);
        let reader = std::iter::from_fn(|| {
            let rows = blocks.next();
            read.set(blocks.rows_read());
            rows.map(|rows| {
                rows.map(|(side, rows)| {
                    let change = if side == ExchangeSide::Came { Change::Insert } else { Change::Delete };
                    ChangeBatch { change, columns: Columns::All, rows }
                })
            })
        });
        let mut tagged = tag::tag(reader, Tagging { level: 1, ..tagging }, space);
        let staged = self.stage(made, &mut tagged, &Mutex::default());
        let (files, rows) = closed(&mut tagged, staged)?;
        made.progress.set(with_read(rows, made.progress));
        // What was read says that no row was missed; it was counted when it was exchanged.
        let rows = RowCounts { read: read.get(), ..rows };
        Ok(TaskOutput { task: made.task.id, attempt: made.attempt, files, exchanged: None, rows })
    }

    fn reader<'a>(self, made: &Made<'a>, plain_columns: &'a Mutex<Vec<usize>>) -> Result<Counted<'a>, AttemptError> {
        let source = Storage::new(made.context.source.storage.clone());
        let reader =
            TaskReader::open(&made.reading, made.task, source, made.runtime.clone(), self.read_options(made.cancel));
        let reader = reader.map_err(|error| AttemptError::new(&error, Vec::new()))?;
        Ok(Counted { reader, progress: made.progress, plain_columns })
    }

    /// Stages what the tag step gives. What was staged is removed unless it succeeds.
    pub(super) fn stage<I, E>(
        self,
        made: &Made<'_>,
        tagged: &mut Tagged<I>,
        plain_columns: &Mutex<Vec<usize>>,
    ) -> Result<(Vec<StagedFile>, RowCounts), AttemptError>
    where
        I: Iterator<Item = Result<ChangeBatch, E>>,
        E: Classified + 'static,
    {
        let (context, task, cancel) = (&made.context, made.task, made.cancel);
        let keep = Keep::of(&made.reading, task.resolution)?;
        let options = self.stage_options(context, task, made.first_file);
        let (target, runtime) = (made.target.clone(), made.runtime.clone());
        let stager = Stager::new(Arc::clone(context), task.id, made.attempt, target, runtime, options);
        let mut stager = stager.map_err(|error| AttemptError::new(&error, Vec::new()))?;
        // The first batch opens the first file, which tells how its writer fared with dictionaries.
        let mut first = tagged.next();
        let plain = plain_columns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match &made.shown {
            Some(shown) => stager.without_dictionary(&shown.places(&plain)),
            None => stager.without_dictionary(&plain),
        }
        // Cancelling is looked at for each batch, so that an attempt whose lease is lost does not go on staging.
        while let Some(batch) = first.take().or_else(|| tagged.next()) {
            if cancel.is_cancelled() {
                return Err(AttemptError::cancelled(stager.abort()));
            }
            let batch = match batch {
                Ok(batch) => batch,
                Err(_) if cancel.is_cancelled() => return Err(AttemptError::cancelled(stager.abort())),
                Err(error) => return Err(AttemptError::new(&error, stager.abort())),
            };
            let batch = match &keep {
                None => batch,
                Some(keep) => match keep.apply(batch) {
                    Ok(Some(batch)) => batch,
                    Ok(None) => continue,
                    Err(error) => return Err(AttemptError::new(&error, stager.abort())),
                },
            };
            let batch = match &made.shown {
                Some(shown) => match shown.of(batch) {
                    Ok(batch) => batch,
                    Err(error) => return Err(AttemptError { left_behind: stager.abort(), ..misshapen(&error) }),
                },
                None => batch,
            };
            if let Err(error) = stager.write(&batch) {
                return Err(AttemptError::new(&error, stager.abort()));
            }
            let rows = RowCounts { carried_over: tagged.carried_over(), ..stager.rows() };
            made.progress.set(with_read(rows, made.progress));
        }
        if cancel.is_cancelled() {
            return Err(AttemptError::cancelled(stager.abort()));
        }
        let rows = RowCounts { carried_over: tagged.carried_over(), ..stager.rows() };
        let files = stager.finish().map_err(|error| AttemptError::new(&error, error.left_behind().to_vec()))?;
        let bytes_written = files.iter().map(|file| file.size_bytes).sum();
        Ok((files, RowCounts { bytes_written, ..rows }))
    }
}

/// What an attempt is made of.
pub(super) struct Made<'a> {
    pub(super) context: Arc<EpochContext>,
    /// The context to read in: with all columns that rows are compared by.
    reading: Arc<EpochContext>,
    /// What is shown of rows that are compared by more columns.
    shown: Option<Shown>,
    pub(super) task: &'a ScanTask,
    pub(super) attempt: Attempt,
    pub(super) target: Storage,
    pub(super) runtime: Handle,
    pub(super) progress: &'a Counters,
    pub(super) cancel: &'a CancellationToken,
    /// The number of the first file, where others of the attempt come before.
    first_file: usize,
}

/// However staging ended, no exchange file of the attempt outlives it; one that cannot be removed is named when it failed.
pub(super) fn closed<I, T>(tagged: &mut Tagged<I>, staged: Result<T, AttemptError>) -> Result<T, AttemptError> {
    let not_removed = tagged.close();
    staged.map_err(|mut error| {
        error.left_behind.extend(not_removed);
        error
    })
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
        let (runner, span, runtime) = (*self, tracing::Span::current(), Handle::current());
        let ran = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            runner.run_blocking(context, &task, attempt, &progress, &cancel, runtime)
        });
        ran.await.unwrap_or_else(|error| {
            Err(AttemptError {
                class: Class::Bug,
                message: format!("the attempt broke off: {error}"),
                left_behind: Vec::new(),
            })
        })
    }

    async fn discard(&self, context: Arc<EpochContext>, output: TaskOutput) -> Vec<String> {
        let storage = Storage::new(context.target.storage.clone());
        let mut left_behind = Vec::new();
        for location in output.into_locations() {
            if let Err(error) = storage.delete(&location).await {
                tracing::debug!(%error, "a staged file could not be removed");
                left_behind.push(location);
            }
        }
        left_behind
    }
}

/// The context to read in, where rows are compared by more columns than are shown.
fn compared(context: &EpochContext, task: &ScanTask) -> Option<EpochContext> {
    let schema = context.changelog.as_ref()?.compared_schema.as_ref()?;
    if task.resolution == Resolution::Keep {
        return None;
    }
    let mut compared = context.clone();
    compared.source.read_schema = Arc::clone(schema);
    Some(compared)
}

fn misshapen(error: &ArrowError) -> AttemptError {
    let message = format!("take the columns that are shown out of those that were compared: {error}");
    AttemptError { class: Class::Bug, message, left_behind: Vec::new() }
}

/// The counts of an attempt with what its reader has said.
pub(super) fn with_read(rows: RowCounts, progress: &Counters) -> RowCounts {
    let RowCounts { read, bytes_read, .. } = progress.get();
    RowCounts { read, bytes_read, ..rows }
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
