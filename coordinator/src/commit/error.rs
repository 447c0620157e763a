//! What can go wrong with a commit.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{EpochId, Fence, JobName, RunId, SnapshotId};
use iceferry_common::storage::StorageError;

use super::StagedProblem;
use crate::catalog::CatalogError;

/// A commit that did not come about; says what was being done, to what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A staged file breaks a promise of the workers or the coordinator.
    #[error("staged file {location} of epoch {epoch}: {problem}; nothing was committed, please report this")]
    Staged {
        /// The file.
        location: String,
        /// The epoch.
        epoch: EpochId,
        /// What is wrong with it.
        problem: StagedProblem,
    },
    /// A table property has a value that it cannot have.
    #[error("table property {key:?} of the target is {value:?}: {problem}")]
    Property {
        /// The property.
        key: String,
        /// Its value.
        value: String,
        /// What would be right.
        problem: String,
    },
    /// A mark of ours in the target cannot be read.
    #[error(
        "read {place} of the target at {location}: {problem}; if nothing but iceferry wrote it, the table is damaged; \
         take the right value from an older metadata file, or remove it to let the job begin anew on an empty target"
    )]
    MarkDamaged {
        /// Which property, snapshot or file.
        place: String,
        /// The table's location.
        location: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The marker of a run cannot be used.
    #[error(
        "run marker {location}: {problem}; when no run of the job is under way, look for files that it left, then delete \
         the marker"
    )]
    Marker {
        /// The marker's file.
        location: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The target was rolled back, and what would tell its checkpoint is expired.
    #[error(
        "the checkpoint of job {job} belongs to snapshot {snapshot}, which is not in the history of main of the target \
         at {location}, and the older history is expired, so nobody can tell which source snapshot the target holds; \
         roll main forward to a snapshot of the job, or write to a new table"
    )]
    CheckpointLost {
        /// The job.
        job: JobName,
        /// The snapshot that the checkpoint belongs to.
        snapshot: SnapshotId,
        /// The table's location.
        location: String,
    },
    /// The target does not hold the source snapshot that the epoch's changes start from.
    #[error(
        "commit epoch {epoch} to {table}: its changes start from source snapshot {expected}, but the target holds {found}; \
         nothing was committed, run the job again"
    )]
    CheckpointMoved {
        /// The table.
        table: String,
        /// The epoch.
        epoch: EpochId,
        /// The source snapshot that the changes start from.
        expected: String,
        /// The source snapshot that the target holds.
        found: String,
    },
    /// Another run of the same job moved the target.
    #[error(
        "commit epoch {epoch} to {table}: run {run} of the same job brought the target to source snapshot {found}; \
         nothing was committed; let one run of the job go on, and no other"
    )]
    AnotherRun {
        /// The table.
        table: String,
        /// The epoch.
        epoch: EpochId,
        /// The other run.
        run: RunId,
        /// The source snapshot that the target holds.
        found: SnapshotId,
    },
    /// A later leadership took the job over.
    #[error("job {job} on {table} was taken over by run {run} with fence {found}, ours is {ours}: this run must stop")]
    Fenced {
        /// The job.
        job: JobName,
        /// The table.
        table: String,
        /// Our fence.
        ours: Fence,
        /// The fence in the table.
        found: Fence,
        /// Who holds it.
        run: RunId,
    },
    /// The snapshot was committed, and somebody took it out of main again.
    #[error(
        "{what} was committed to {table} as snapshot {snapshot}, but main was rolled back behind it; \
         roll main forward again, or run the job again from where main is"
    )]
    RolledBack {
        /// What was committed.
        what: String,
        /// The table.
        table: String,
        /// Our snapshot.
        snapshot: SnapshotId,
    },
    /// Somebody changed what the staged files were made for.
    #[error(
        "commit to {table}: its {what} changed from {before} to {now} since the files were staged; \
         nothing was committed, run the job again"
    )]
    TargetChanged {
        /// The table.
        table: String,
        /// What changed.
        what: &'static str,
        /// What the files were staged for.
        before: String,
        /// What it is.
        now: String,
    },
    /// The target is of a kind that is not carried.
    #[error("commit to {table}: {problem}")]
    Unsupported {
        /// The table.
        table: String,
        /// What is not carried, and what to do.
        problem: String,
    },
    /// Others were faster, every time.
    #[error(
        "commit {what} to {table}: other writers changed the table first, {attempts} times in a row; \
         nothing was committed, run the job again when they are quieter"
    )]
    Contended {
        /// What was to be committed.
        what: String,
        /// The table.
        table: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The catalog said no.
    #[error("commit {what} to {table}: refused by the catalog, nothing was committed")]
    Refused {
        /// What was to be committed.
        what: String,
        /// The table.
        table: String,
        /// Its answer.
        source: Box<CatalogError>,
    },
    /// The answer was lost, and looking did not settle it.
    #[error(
        "commit {what} to {table}: the answer was lost, and whether snapshot {snapshot} is in the table could not be \
         settled; all files were kept; run the job again when the catalog answers, it looks first"
    )]
    Unknown {
        /// What was to be committed.
        what: String,
        /// The table.
        table: String,
        /// The snapshot to look for; `none` where the checkpoint alone was to move.
        snapshot: String,
        /// What stood in the way.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Removing what a dead run left is allowed only to the run that took over from it.
    #[error(
        "clean up after run {dead} of job {job} on {table}: run {run} has not taken over, so the dead run might still \
         commit; take over first"
    )]
    NotTakenOver {
        /// The job.
        job: JobName,
        /// The table.
        table: String,
        /// Who wants to clean up.
        run: RunId,
        /// After whom.
        dead: RunId,
    },
    /// The catalog failed, or the table's metadata could not be read or written.
    #[error(transparent)]
    Catalog(Box<CatalogError>),
    /// A thread did not come to its end.
    #[error("{act}: the thread that did it ended early; nothing was committed, run the job again")]
    Broken {
        /// What was being done.
        act: &'static str,
        /// Why it ended.
        source: tokio::task::JoinError,
    },
    /// Storage failed.
    #[error("{act}")]
    Storage {
        /// What was being done.
        act: String,
        /// Why.
        source: Box<StorageError>,
    },
}

impl CommitError {
    pub(super) fn iceberg(act: impl Into<String>, source: iceberg::Error) -> Self {
        Self::Catalog(Box::new(CatalogError::Iceberg { act: act.into(), source: Box::new(source) }))
    }

    pub(super) fn storage(act: impl Into<String>, source: StorageError) -> Self {
        Self::Storage { act: act.into(), source: Box::new(source) }
    }

    /// Whether the staged files may be in the table, now or later. Where this is true they must not be deleted.
    pub fn leaves_files_in_doubt(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::RolledBack { .. })
    }
}

impl Classified for CommitError {
    fn class(&self) -> Class {
        match self {
            Self::Staged { .. } | Self::NotTakenOver { .. } | Self::Broken { .. } => Class::Bug,
            Self::Property { .. } => Class::Config,
            Self::MarkDamaged { .. } | Self::Marker { .. } => Class::Corrupt,
            Self::CheckpointLost { .. } | Self::Unsupported { .. } => Class::Refused,
            Self::CheckpointMoved { .. }
            | Self::RolledBack { .. }
            | Self::TargetChanged { .. }
            | Self::Contended { .. } => Class::Conflict,
            Self::AnotherRun { .. } | Self::Fenced { .. } => Class::Fenced,
            Self::Unknown { .. } => Class::CommitUnknown,
            Self::Refused { source, .. } | Self::Catalog(source) => source.class(),
            Self::Storage { source, .. } => source.class(),
        }
    }
}
