//! What a worker hands back: files that are written and not yet referenced.

use bytes::Bytes;

use super::{Attempt, EpochContext, EpochId, ExchangeFile, JobName, RunId, TaskId};

/// The accepted result of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskOutput {
    /// The task.
    pub task: TaskId,
    /// The attempt that wrote the files.
    pub attempt: Attempt,
    /// The files, in the order of writing. Empty when nothing changed.
    pub files: Vec<StagedFile>,
    /// The rows that were exchanged, by a task whose work that is. Never a part of the target.
    pub exchanged: Option<ExchangeFile>,
    /// What was read and what became of it.
    pub rows: RowCounts,
}

impl TaskOutput {
    /// Where all that the attempt wrote lies, each place once.
    pub fn into_locations(self) -> Vec<String> {
        let files = self.files.into_iter().map(|file| file.location);
        let mut locations: Vec<String> = files.chain(self.exchanged.map(|file| file.location)).collect();
        // A file of several vectors is handed back once for each, one after another.
        locations.dedup();
        locations
    }
}

/// A file that is written and not yet referenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// Full location.
    pub location: String,
    /// What it holds.
    pub content: StagedContent,
    /// Rows in it.
    pub record_count: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The manifest entry's data file, as [`crate::entry::encode`] makes it; carries the metrics. Empty for a file that is
    /// never committed.
    pub data_file: Bytes,
}

/// What a staged file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedContent {
    /// Rows.
    Data,
    /// Keys of rows to delete.
    EqualityDeletes,
    /// Positions of dead rows in data files of the same epoch, as Parquet.
    PositionDeletes,
    /// The dead rows of one data file of the same epoch: a deletion vector, a blob in a Puffin file. A file that holds
    /// several vectors is handed back once for each.
    DeletionVector,
    /// Counts and hashes of rows, see [`TaskDigest`](super::digest::TaskDigest). Never committed.
    Digest,
    /// Hashes of single rows, see [`RowHash`](super::digest::RowHash). Never committed.
    RowHashes,
    /// Rows for a person to look at, [`ShownRow`](super::ShownRow)s as JSON. Never committed.
    ShownRows,
}

impl StagedContent {
    /// Whether it becomes a part of the target. What does not is for the coordinator alone, which removes it.
    pub fn is_committed(self) -> bool {
        match self {
            Self::Data | Self::EqualityDeletes | Self::PositionDeletes | Self::DeletionVector => true,
            Self::Digest | Self::RowHashes | Self::ShownRows => false,
        }
    }
}

/// Row counters of a task, or of many added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RowCounts {
    /// Rows that came out of the reader, on either side.
    pub read: u64,
    /// Rows staged as INSERT.
    pub inserted: u64,
    /// Rows staged as DELETE.
    pub deleted: u64,
    /// Rows staged as UPDATE_AFTER.
    pub updated: u64,
    /// Pairs of equal DELETE and INSERT rows that cancelled.
    pub carried_over: u64,
    /// Bytes asked of the source's storage.
    pub bytes_read: u64,
    /// Bytes written to the target's storage.
    pub bytes_written: u64,
    /// Data files that were carried over as they are.
    pub files_copied: u64,
    /// Data files whose pages were carried over into new files.
    pub files_spliced: u64,
    /// Data files whose rows were decoded, all of them or those of a row group.
    pub files_decoded: u64,
}

impl std::ops::AddAssign for RowCounts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.inserted += other.inserted;
        self.deleted += other.deleted;
        self.updated += other.updated;
        self.carried_over += other.carried_over;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.files_copied += other.files_copied;
        self.files_spliced += other.files_spliced;
        self.files_decoded += other.files_decoded;
    }
}

/// The folder of all files that one run of a job stages: what a later run looks through when this one was killed.
pub fn staging_folder(data_location: &str, job: &JobName, run: &RunId) -> String {
    format!("{data_location}/iceferry/{job}/{run}")
}

/// The location of the `number`th file of an attempt. Epoch, task and attempt make it unlike that of any other try.
pub fn staged_file_location(
    context: &EpochContext,
    task: TaskId,
    attempt: Attempt,
    content: StagedContent,
    number: usize,
) -> String {
    let folder = staging_folder(&context.target.data_location, &context.job, &context.run);
    let EpochId(epoch) = context.epoch;
    let suffix = match content {
        StagedContent::Data => "data.parquet",
        StagedContent::EqualityDeletes => "deletes.parquet",
        StagedContent::PositionDeletes => "positions.parquet",
        StagedContent::DeletionVector => "vectors.puffin",
        StagedContent::Digest => "digest",
        StagedContent::RowHashes => "hashes",
        StagedContent::ShownRows => "rows.json",
    };
    format!("{folder}/{epoch:06}-{task:06}-{attempt}-{number:05}-{suffix}", task = task.0, attempt = attempt.0)
}

/// The location of the `number`th exchange file of an attempt: rows that do not fit into its memory, to be read back by the
/// attempt itself or by others. Never a part of the target; in the run's own folder, so that what a killed process leaves
/// is found.
pub fn exchange_file_location(context: &EpochContext, task: TaskId, attempt: Attempt, number: usize) -> String {
    let folder = staging_folder(&context.target.data_location, &context.job, &context.run);
    let EpochId(epoch) = context.epoch;
    format!("{folder}/{epoch:06}-{task:06}-{attempt}-{number:05}-exchange.arrows", task = task.0, attempt = attempt.0)
}
