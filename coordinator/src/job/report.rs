//! What a run did, for people and for programs.

use iceferry_common::model::{EpochId, JobName, RowCounts, RunId, SnapshotId};
use serde::{Serialize, Serializer};

/// What a run did. In JSON snapshot ids are strings, since many readers take numbers for doubles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The job.
    pub job: JobName,
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why there was nothing to do, when there was nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was committed, in order.
    pub epochs: Vec<EpochReport>,
    /// Files of earlier, killed runs that nobody references and that were removed.
    pub files_cleaned_up: u64,
    /// The target as it is now; absent when it does not exist.
    pub target: Option<TargetReport>,
}

/// How a run ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// At least one epoch was committed.
    Applied,
    /// The target held everything already.
    NothingToDo,
}

/// One committed epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EpochReport {
    /// Its number within the run.
    pub epoch: EpochId,
    /// The source snapshot that the target holds since.
    #[serde(serialize_with = "as_text")]
    pub source_snapshot_id: SnapshotId,
    /// The target snapshot that brought it; absent when only the checkpoint moved.
    #[serde(serialize_with = "as_optional_text")]
    pub target_snapshot_id: Option<SnapshotId>,
    /// Scan tasks.
    pub tasks: usize,
    /// Staged files.
    pub files: usize,
    /// Rows read and written, and the files that were carried each way.
    pub rows: RowCounts,
    /// Equality delete files of the source whose keys went straight through.
    pub delete_files_passed: u64,
    /// Keys in these.
    pub deletes_passed: u64,
}

/// The target after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetReport {
    /// `namespace.table`.
    pub table: String,
    /// Its current metadata file.
    pub metadata_location: String,
}

fn as_text<S: Serializer>(id: &SnapshotId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn as_optional_text<S: Serializer>(id: &Option<SnapshotId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}
