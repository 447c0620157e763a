//! Scan tasks: the difference of two table states, cut into pieces of work for one worker each.

use super::SourceCommit;

/// File differences for one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanTask {
    /// Its number within the epoch.
    pub id: super::TaskId,
    /// What differs; a file occurs more than once only with disjoint splits.
    pub differences: Vec<FileDifference>,
    /// Every delete file that a difference names, each once; [`Side`] refers to them by index.
    pub deletes: Vec<DeleteFile>,
    /// What its rows are compared for before they are staged.
    pub resolution: Resolution,
    /// What is done with its rows.
    pub work: super::Work,
}

impl ScanTask {
    /// Rows in the files of this task, before any delete: an upper bound of what reading gives for each side.
    pub fn record_count(&self) -> u64 {
        self.differences.iter().map(|difference| difference.file.record_count).sum()
    }

    /// Bytes of the files, or of their splits, that this task reads at most, delete files left out.
    pub fn data_bytes(&self) -> u64 {
        self.differences.iter().map(FileDifference::data_bytes).sum()
    }
}

/// What a task compares its rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Nothing: rows are staged as they come. Right for a mirror in any case, only more to write when a row was carried
    /// over; right for a changelog when the task holds all rows of one side alone.
    Keep,
    /// The task holds both sides of what may be a rewrite: equal DELETE and INSERT rows cancel.
    CarryOver,
    /// The task holds both sides of every change that its rows are a part of: equal rows cancel, and a DELETE and an
    /// INSERT of one identity become an update.
    Updates,
    /// As [`Self::Updates`], of the changes of several snapshots: in each of them equal rows cancel, then a DELETE and an
    /// INSERT of equal rows in different ones, so that what is left is the difference of the two ends, and each row of it is
    /// of the snapshot that last made it. Updates are told last, where anything tells them.
    Net,
}

impl Resolution {
    /// Whether rows that a filter leaves out are compared nevertheless, since they may be the other half of an update: the
    /// filter then comes behind the comparison.
    pub fn compares_all_rows(self) -> bool {
        match self {
            Self::Updates | Self::Net => true,
            Self::Keep | Self::CarryOver => false,
        }
    }
}

/// One data file with its deletes before and after. A row that was live before and is not after is a DELETE; one that
/// is live after and was not before is an INSERT.
#[derive(Debug, Clone, PartialEq)]
pub struct FileDifference {
    /// The data file.
    pub file: DataFile,
    /// The part of the file to read; the whole file when absent.
    pub split: Option<Split>,
    /// The file in the state that the target has.
    pub before: Side,
    /// The file in the state that the target is to have.
    pub after: Side,
    /// The snapshot that made the difference, where the epoch's changes are told snapshot by snapshot: both states are
    /// those around it then. Otherwise it is that of the epoch.
    pub commit: Option<SourceCommit>,
}

impl FileDifference {
    /// Bytes of the file, or of its split.
    pub fn data_bytes(&self) -> u64 {
        self.split.map_or(self.file.size_bytes, |split| split.end - split.start)
    }
}

/// One file in one table state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// The state does not have the file.
    Absent,
    /// The state has the file, and these deletes reach it (indexes into [`ScanTask::deletes`]).
    Present(Vec<u32>),
}

/// A part of a data file in bytes, [start, end): it holds the row groups whose midpoint lies in it, where a row group
/// is the bytes from its first page to its last. Splits that cover a file so have each row group exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// A data file as a reader needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    /// Location as the manifest has it: position deletes name files by this very text.
    pub location: String,
    /// How rows are encoded.
    pub format: FileFormat,
    /// Size from the manifest; saves a request before the footer is read.
    pub size_bytes: u64,
    /// Rows in the file, deleted ones included.
    pub record_count: u64,
    /// Values of identity-partitioned columns; they hold where the file itself lacks the column (spec, column
    /// projection).
    pub constants: Vec<Constant>,
    /// Data sequence number.
    pub sequence_number: i64,
    /// The id of the file's first row, where the table has row lineage and the file a part in it (spec, row lineage).
    pub first_row_id: Option<i64>,
    /// The partition spec that it was written under.
    pub spec_id: i32,
    /// Its partition values by the ids of the partition fields. Empty unless `_partition` is wanted.
    pub partition: Vec<Constant>,
}

/// The one value that a column has in all rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Field id in the read schema, or in the partition type.
    pub field_id: i32,
    /// Iceberg single-value binary serialization in the type of the read schema; `None` is null.
    pub value: Option<Vec<u8>>,
}

/// How a data or delete file is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// Apache Avro object container.
    Avro,
    /// Apache ORC.
    Orc,
    /// Puffin, for deletion vectors.
    Puffin,
}

/// A delete file, or one blob of a file of deletion vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteFile {
    /// Location of the file.
    pub location: String,
    /// How it is encoded.
    pub format: FileFormat,
    /// Size of the whole file in bytes.
    pub size_bytes: u64,
    /// Rows of the delete file, or the cardinality of the vector.
    pub record_count: u64,
    /// What it deletes by.
    pub kind: DeleteKind,
}

/// What a delete file deletes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteKind {
    /// (file_path, pos) rows, for one or several data files.
    Position,
    /// A deletion vector: positions of one data file, as a blob inside a Puffin file.
    Vector {
        /// First byte of the blob.
        offset: u64,
        /// Length of the blob in bytes.
        length: u64,
    },
    /// Rows whose values in these fields equal one of the file's rows, null equal to null.
    Equality {
        /// Field ids in the source table, as the manifest has them.
        field_ids: Vec<i32>,
    },
}
