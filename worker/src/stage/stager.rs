//! The stager: which files are open, when they close, and what is left of them when something fails.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{
    Attempt, EpochContext, RowCounts, StagedContent, StagedFile, TargetMode, TaskId, staged_file_location,
};
use iceferry_common::storage::Storage;
use parquet::schema::types::ColumnPath;
use tokio::runtime::Handle;

use super::StageError;
use super::admit::Admission;
use super::file::{ClosedFile, Form, OpenFile};
use super::layout::{Layout, key_schema};
use super::settings::writer_properties;
use super::upload::{Ended, Upload};
use crate::{Change, ChangeBatch};

/// Bounds of a [`Stager`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageOptions {
    /// Memory that the row groups in progress of all open files may take together; one is closed when it is reached.
    pub row_group_memory_bytes: u64,
    /// Whether each key is to come once only on each side. For tasks that can have DELETEs; a task of INSERTs alone, a
    /// backfill or an append, keeps its path bare.
    pub unique_keys: bool,
    /// Memory for the keys that `unique_keys` remembers. What comes beyond it is not looked at, with a warning.
    pub key_memory_bytes: u64,
    /// The number of the first file, where others of the attempt come before.
    pub first_file: usize,
}

/// Stages the changes of one attempt. Not for async threads: every call may block.
pub struct Stager {
    context: Arc<EpochContext>,
    task: TaskId,
    attempt: Attempt,
    storage: Storage,
    runtime: Handle,
    options: StageOptions,
    data: Kind,
    /// Absent when the target has no key.
    deletes: Option<Kind>,
    admission: Admission,
    /// Every location that was begun, until they are handed over or removed.
    begun: Vec<String>,
    /// Encoded, not yet known to have arrived.
    closed: VecDeque<ClosedFile>,
    /// Bytes of all files that were closed.
    closed_bytes: u64,
    inserted: u64,
    deleted: u64,
    updated: u64,
    staged: Vec<StagedFile>,
}

/// Files of one content.
struct Kind {
    form: Form,
    open: Option<OpenFile>,
}

impl Stager {
    /// A stager for one attempt. Nothing is written before the first row.
    ///
    /// # Errors
    /// When the target's schema, key or Parquet settings cannot be written.
    pub fn new(
        context: Arc<EpochContext>,
        task: TaskId,
        attempt: Attempt,
        storage: Storage,
        runtime: Handle,
        options: StageOptions,
    ) -> Result<Self, StageError> {
        let target = &context.target;
        let kind = |content, schema, equality_ids: Vec<i32>| {
            let layout = Arc::new(Layout::new(&target.table, schema, &target.parquet)?);
            let properties = writer_properties(&target.parquet, &layout, &equality_ids)?;
            let form = Form { content, layout, properties, equality_ids, referenced_data_file: None };
            Ok(Kind { form, open: None })
        };
        let data = kind(StagedContent::Data, Arc::clone(&target.write_schema), Vec::new())?;
        let deletes = if target.mode == TargetMode::MergeOnRead && !target.key.is_empty() {
            let schema = key_schema(&target.table, &target.write_schema, &target.key)?;
            Some(kind(StagedContent::EqualityDeletes, schema, target.key.clone())?)
        } else {
            None
        };
        let layout = |kind: &Kind| Arc::clone(&kind.form.layout);
        let key_memory_bytes = options.unique_keys.then_some(options.key_memory_bytes);
        let admission =
            Admission::new(Arc::clone(&context), task, layout(&data), deletes.as_ref().map(layout), key_memory_bytes)?;
        Ok(Self {
            task,
            attempt,
            storage,
            runtime,
            options,
            data,
            deletes,
            admission,
            begun: Vec::new(),
            closed: VecDeque::new(),
            closed_bytes: 0,
            inserted: 0,
            deleted: 0,
            updated: 0,
            staged: Vec::new(),
            context,
        })
    }

    /// Leaves the dictionary out of these top-level columns, by their place in the read schema, in data files that are
    /// begun from here on. For columns whose values repeat too little for one: it would be built and then given up.
    pub fn without_dictionary(&mut self, columns: &[usize]) {
        let fields = self.context.target.write_schema.as_struct().fields();
        let columns = columns.iter().filter_map(|column| self.admission.place_of(*column));
        let mut properties = self.data.form.properties.clone().into_builder();
        for field in columns.filter_map(|column| fields.get(column)) {
            properties = properties.set_column_dictionary_enabled(ColumnPath::new(vec![field.name.clone()]), false);
        }
        self.data.form.properties = properties.build();
    }

    /// Stages the rows of a batch.
    ///
    /// # Errors
    /// When the rows cannot be in the target, or the storage did not take a file. The attempt has failed then: call
    /// [`Self::abort`].
    pub fn write(&mut self, batch: &ChangeBatch) -> Result<(), StageError> {
        if batch.rows.num_rows() == 0 {
            return Ok(());
        }
        let rows = self.admission.admit(batch)?;
        let count = rows.num_rows() as u64;
        match batch.change {
            Change::Insert => self.inserted += count,
            Change::Delete => self.deleted += count,
            Change::UpdateAfter => self.updated += count,
            Change::UpdateBefore => {}
        }
        // In a changelog every change is a row; in a mirror it is what it does to one.
        match batch.change.comes() || self.context.changelog.is_some() {
            true => self.append(StagedContent::Data, &rows),
            false => self.append(StagedContent::EqualityDeletes, &rows),
        }
    }

    /// Rows staged so far, and bytes written; bytes of open files are an estimate. The reader's counters are zero.
    pub fn rows(&self) -> RowCounts {
        let kinds = [Some(&self.data), self.deletes.as_ref()];
        let open: u64 = kinds.into_iter().flatten().filter_map(|kind| kind.open.as_ref()).map(OpenFile::bytes).sum();
        let (inserted, deleted, updated) = (self.inserted, self.deleted, self.updated);
        RowCounts { inserted, deleted, updated, bytes_written: self.closed_bytes + open, ..RowCounts::default() }
    }

    /// Closes the files and waits until the storage has them all. Files in the order of writing; none when there were no
    /// rows.
    ///
    /// # Errors
    /// When the storage did not take a file. Everything that was staged is removed then; what could not be is in
    /// [`StageError::left_behind`].
    pub fn finish(mut self) -> Result<Vec<StagedFile>, StageError> {
        let closed = self.close_open_files().and_then(|()| self.settle());
        match closed {
            Ok(()) => {
                self.begun.clear();
                Ok(std::mem::take(&mut self.staged))
            }
            Err(error) => match self.remove_all() {
                locations if locations.is_empty() => Err(error),
                locations => Err(StageError::LeftBehind { failure: Box::new(error), locations }),
            },
        }
    }

    /// Removes everything that was staged. Returns the locations that may still be there, because they could not be
    /// removed.
    pub fn abort(mut self) -> Vec<String> {
        self.remove_all()
    }

    /// Adds rows to the open file of their kind, and closes what has become large enough.
    fn append(&mut self, content: StagedContent, rows: &RecordBatch) -> Result<(), StageError> {
        let mut open = match self.kind(content)?.open.take() {
            Some(open) => open,
            None => self.begin(content)?,
        };
        if let Err(error) = open.write(rows) {
            return Err(open.failed(error, &self.runtime));
        }
        if open.row_group_bytes() >= self.context.target.parquet.row_group_bytes
            && let Err(error) = open.end_row_group()
        {
            return Err(open.failed(error, &self.runtime));
        }
        let whole = open.bytes() >= self.context.target.target_file_bytes;
        self.kind(content)?.open = Some(open);
        if whole {
            self.close(content)?;
        }
        self.keep_within_memory()
    }

    fn begin(&mut self, content: StagedContent) -> Result<OpenFile, StageError> {
        let number = self.options.first_file + self.begun.len();
        let location = staged_file_location(&self.context, self.task, self.attempt, content, number);
        self.begun.push(location.clone());
        let (storage, runtime) = (self.storage.clone(), self.runtime.clone());
        OpenFile::begin(&self.kind(content)?.form, &storage, &runtime, location)
    }

    /// Closes row groups, the largest first, while they take more memory than they may.
    fn keep_within_memory(&mut self) -> Result<(), StageError> {
        loop {
            let memory = |kind: &Kind| kind.open.as_ref().map_or(0, OpenFile::memory_bytes);
            let data = memory(&self.data);
            let deletes = self.deletes.as_ref().map_or(0, memory);
            let total = data + deletes;
            if total == 0 || total < self.options.row_group_memory_bytes {
                return Ok(());
            }
            let larger = if data >= deletes { StagedContent::Data } else { StagedContent::EqualityDeletes };
            let kind = self.kind(larger)?;
            let Some(mut open) = kind.open.take() else { return Ok(()) };
            match open.end_row_group() {
                Ok(()) => kind.open = Some(open),
                Err(error) => return Err(open.failed(error, &self.runtime)),
            }
        }
    }

    fn kind(&mut self, content: StagedContent) -> Result<&mut Kind, StageError> {
        match content {
            StagedContent::Data => Ok(&mut self.data),
            _ => {
                let table = &self.context.target.table;
                self.deletes.as_mut().ok_or_else(|| StageError::NoKey { table: table.clone() })
            }
        }
    }

    /// Closes the open file of a kind, if there is one. The file before it must have arrived by then, so that uploads do
    /// not pile up.
    fn close(&mut self, content: StagedContent) -> Result<(), StageError> {
        self.settle()?;
        let runtime = self.runtime.clone();
        let kind = self.kind(content)?;
        if let Some(open) = kind.open.take() {
            let closed = open.close(&kind.form, &runtime)?;
            self.closed_bytes += closed.file.size_bytes;
            self.closed.push_back(closed);
        }
        Ok(())
    }

    fn close_open_files(&mut self) -> Result<(), StageError> {
        self.close(StagedContent::Data)?;
        if self.deletes.is_some() {
            self.close(StagedContent::EqualityDeletes)?;
        }
        Ok(())
    }

    /// Waits until the storage has every closed file. Those after one that failed stay to be given up.
    fn settle(&mut self) -> Result<(), StageError> {
        while let Some(ClosedFile { file, upload }) = self.closed.pop_front() {
            let location = file.location.clone();
            match self.runtime.block_on(upload.ended()) {
                Ended::Well => self.staged.push(file),
                Ended::Failed(source) => return Err(StageError::Upload { location, source: Box::new(source) }),
                Ended::CutOff => return Err(StageError::CutOff { location }),
            }
        }
        Ok(())
    }

    fn remove_all(&mut self) -> Vec<String> {
        let (uploads, locations) = self.give_up();
        self.runtime.block_on(remove(self.storage.clone(), uploads, locations))
    }

    /// Gives every file up. Returns what is under way and where something may be.
    fn give_up(&mut self) -> (Vec<Upload>, Vec<String>) {
        let kinds = [Some(&mut self.data), self.deletes.as_mut()];
        let open = kinds.into_iter().flatten().filter_map(|kind| kind.open.take().and_then(OpenFile::discard));
        let mut uploads: Vec<Upload> = open.collect();
        uploads.extend(std::mem::take(&mut self.closed).into_iter().map(|closed| closed.upload));
        self.staged.clear();
        (uploads, std::mem::take(&mut self.begun))
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        let (uploads, locations) = self.give_up();
        if !locations.is_empty() {
            // Neither finished nor aborted: a panic, or a caller that went away. Dropping must not wait, so the removal
            // runs beside; what it misses is found by the job's next run.
            let removal = remove(self.storage.clone(), uploads, locations);
            drop(self.runtime.spawn(removal));
        }
    }
}

/// Waits for uploads to end, then removes whatever is at the locations. Returns those that could not be removed.
async fn remove(storage: Storage, uploads: Vec<Upload>, locations: Vec<String>) -> Vec<String> {
    for upload in uploads {
        // An upload whose answer was lost may have arrived, so each location is removed however its upload ended.
        match upload.ended().await {
            Ended::Well | Ended::CutOff => {}
            Ended::Failed(error) => {
                tracing::debug!(error = %chain(&error), "upload of a given up file failed");
            }
        }
    }
    let mut left = Vec::new();
    for location in locations {
        // Where not even the folder can be, there is no file.
        if let Err(error) = storage.delete(&location).await
            && error.class() != Class::NotFound
        {
            tracing::warn!(location, error = %chain(&error), "staged file could not be removed");
            left.push(location);
        }
    }
    left
}
