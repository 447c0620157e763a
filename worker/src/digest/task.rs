//! One try at a digest task.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use iceferry_common::model::digest::{RowHash, TaskDigest, bucket_of};
use iceferry_common::model::{
    Attempt, DigestWork, EpochContext, RowCounts, ScanTask, StagedContent, StagedFile, TaskOutput, staged_file_location,
};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;

use super::DigestError;
use super::hash::RowHasher;
use super::rows::RowHashWriter;
use crate::attempt::{AttemptError, Counters};
use crate::read::{ReadOptions, TaskReader};
use crate::{Change, ChangeBatch};

/// Counts and hashes the rows of a task, holding hashes of `run_bytes` bytes at most. It blocks.
///
/// # Errors
/// The attempt's; nothing that it wrote is left then, or it is named.
pub(crate) fn digest(
    (context, task, attempt): (&EpochContext, &ScanTask, Attempt),
    work: &DigestWork,
    options: ReadOptions,
    run_bytes: u64,
    progress: &Counters,
    runtime: Handle,
) -> Result<TaskOutput, AttemptError> {
    let cancel = options.cancel.clone();
    let failed = |error: &DigestError, left_behind: Vec<String>| match cancel.is_cancelled() {
        true => AttemptError::cancelled(left_behind),
        false => AttemptError::new(error, left_behind),
    };
    let storage = Storage::new(context.target.storage.clone());
    let place = |content| staged_file_location(context, task.id, attempt, content, 0);
    let location = place(StagedContent::RowHashes);
    let writer = RowHashWriter::begin(&storage, runtime.clone(), location.clone(), work.bucket_bits, run_bytes);
    let mut writer = writer.map_err(|error| failed(&error, Vec::new()))?;
    let mut digest = match read((context, task), work, options, &mut writer, progress, runtime.clone()) {
        Ok(digest) => digest,
        Err(error) => {
            writer.abort();
            return Err(failed(&error, Vec::new()));
        }
    };
    let (hashes, runs) = writer.finish().map_err(|error| failed(&error, vec![location.clone()]))?;
    digest.runs = runs;

    let written = write(&storage, &runtime, place(StagedContent::Digest), StagedContent::Digest, digest.to_bytes());
    let mut file = match written {
        Ok(file) => file,
        Err(error) => {
            let removed = runtime.block_on(storage.delete(&location));
            return Err(failed(&error, removed.err().map(|_| location).into_iter().collect()));
        }
    };
    file.record_count = digest.sums.iter().map(|sum| sum.rows).sum();
    let files: Vec<StagedFile> = std::iter::once(file).chain(hashes).collect();
    let RowCounts { read, bytes_read, .. } = progress.get();
    let bytes_written = files.iter().map(|file| file.size_bytes).sum();
    let rows = RowCounts { read, bytes_read, bytes_written, ..RowCounts::default() };
    progress.set(rows);
    Ok(TaskOutput { task: task.id, attempt, files, exchanged: None, rows })
}

fn read(
    (context, task): (&EpochContext, &ScanTask),
    work: &DigestWork,
    options: ReadOptions,
    writer: &mut RowHashWriter,
    progress: &Counters,
    runtime: Handle,
) -> Result<TaskDigest, DigestError> {
    let table = &context.source.table;
    let locations: Vec<String> = task.differences.iter().map(|difference| difference.file.location.clone()).collect();
    let mut digest = TaskDigest::new(work.bucket_bits, locations);
    let mut hasher = RowHasher::new(work.key.iter().map(|place| *place as usize).collect());
    let mut hashes = Vec::new();
    let mut rows = Located::open(context, task, options, runtime)?;
    while let Some(RowsOfFile { file, columns, positions }) = rows.next()? {
        hasher.hash(&columns, &mut hashes).map_err(|source| DigestError::Hash { table: table.clone(), source })?;
        for (hashes, position) in hashes.iter().zip(&positions) {
            digest.sums[bucket_of(hashes.key, work.bucket_bits)].add_row(hashes.row);
            let row = RowHash { key: hashes.key, row: hashes.row as u64, file, position: *position };
            if !writer.add(row)? {
                let location = digest.locations.get(file as usize).cloned().unwrap_or_default();
                return Err(DigestError::Place { location, position: *position });
            }
        }
        progress.set_read(rows.reader.rows_read(), rows.reader.bytes_fetched());
    }
    // Bytes of deletes and footers count also where no row was left.
    progress.set_read(rows.reader.rows_read(), rows.reader.bytes_fetched());
    Ok(digest)
}

/// Rows of one file.
pub(super) struct RowsOfFile {
    /// The file's number in the task.
    pub(super) file: u32,
    /// The columns of the read schema.
    pub(super) columns: Vec<ArrayRef>,
    /// The rows' positions in the file.
    pub(super) positions: Vec<u64>,
}

/// The rows of a state, with their places.
pub(super) struct Located {
    pub(super) reader: TaskReader,
    task: u64,
    table: String,
    columns: usize,
}

impl Located {
    pub(super) fn open(
        context: &EpochContext,
        task: &ScanTask,
        options: ReadOptions,
        runtime: Handle,
    ) -> Result<Self, DigestError> {
        let storage = Storage::new(context.source.storage.clone());
        let options = ReadOptions { positions: true, ..options };
        let reader = TaskReader::open(context, task, storage, runtime, options)?;
        let columns = context.source.read_schema.as_struct().fields().len();
        Ok(Self { reader, task: task.id.0, table: context.source.table.clone(), columns })
    }

    /// The next rows; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<RowsOfFile>, DigestError> {
        let Some(ChangeBatch { change, rows, .. }) = self.reader.next().transpose()? else { return Ok(None) };
        let wrong =
            |what: &str| DigestError::Task { task: self.task, table: self.table.clone(), what: what.to_owned() };
        if change != Change::Insert {
            return Err(wrong("it takes rows away, which no state does"));
        }
        let file = self.reader.difference().and_then(|file| u32::try_from(file).ok());
        let mut columns = rows.columns().to_vec();
        let positions = columns.split_off(self.columns.min(columns.len()));
        match (file, positions.first().and_then(|positions| positions.as_primitive_opt::<Int64Type>())) {
            (Some(file), Some(positions)) => {
                let positions = positions.values().iter().map(|position| *position as u64).collect();
                Ok(Some(RowsOfFile { file, columns, positions }))
            }
            _ => Err(wrong("its rows have no places")),
        }
    }
}

/// Writes a small temporary file.
pub(super) fn write(
    storage: &Storage,
    runtime: &Handle,
    location: String,
    content: StagedContent,
    bytes: Vec<u8>,
) -> Result<StagedFile, DigestError> {
    let size_bytes = bytes.len() as u64;
    match runtime.block_on(storage.write(&location, bytes.into())) {
        Ok(()) => Ok(StagedFile { location, content, record_count: 0, size_bytes, data_file: Default::default() }),
        Err(source) => Err(DigestError::Write { location, source: Box::new(source) }),
    }
}
