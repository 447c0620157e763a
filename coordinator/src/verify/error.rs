//! What can keep two tables from being compared.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::JobName;
use iceferry_common::storage::StorageError;

use super::SideName;
use crate::distribute::DistributeError;
use crate::job::JobError;

/// Why source and target could not be compared. That they differ is no error.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The job, its tables or their columns; or a task.
    #[error(transparent)]
    Job(Box<JobError>),
    /// There is nothing to compare with.
    #[error("target {table} is not there, so there is nothing to compare; iceferry run makes it")]
    NoTarget {
        /// The target table.
        table: String,
    },
    /// The target does not say which snapshot of the source it holds.
    #[error(
        "target {table} holds no checkpoint of job {job}, so which snapshot of the source it is to equal is not known; \
         run the job first, or name one with --source-snapshot"
    )]
    NoCheckpoint {
        /// The target table.
        table: String,
        /// The job.
        job: JobName,
    },
    /// A snapshot is not in its table, or no longer.
    #[error("{side} {table} has no snapshot {snapshot}{hint}")]
    NoSnapshot {
        /// Which side.
        side: SideName,
        /// The table.
        table: String,
        /// The snapshot.
        snapshot: i64,
        /// Why, and what to do.
        hint: &'static str,
    },
    /// A changelog holds changes, and not the source's rows.
    #[error(
        "target {table} is a changelog: its rows are changes, so it cannot be compared with the source's rows; verify \
         compares mirrors (mode: merge-on-read) and plain appends"
    )]
    Changelog {
        /// The target table.
        table: String,
    },
    /// Temporary files of the comparison.
    #[error("{act} of the comparison")]
    Temporary {
        /// What was being done.
        act: &'static str,
        /// Why not.
        source: Box<StorageError>,
    },
    /// A temporary file does not say what it has to.
    #[error("temporary file {location} of the comparison is damaged: {problem}; run verify again")]
    Damaged {
        /// The file.
        location: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A worker did something else than it was told.
    #[error("task {task} on the {side} did not compare its rows: {problem}; run the same version on all workers")]
    NotCompared {
        /// Which side.
        side: SideName,
        /// The task.
        task: u64,
        /// What it did.
        problem: String,
    },
    /// Very many rows have one key.
    #[error(
        "more than {rows_max} rows of {source_table} and {target_table} have keys of the same hash, which is more than are \
         compared at once; the tables differ, and the rows cannot be told: choose equality_columns that identify a row"
    )]
    TooMany {
        /// The source table.
        source_table: String,
        /// The target table.
        target_table: String,
        /// Rows that are compared at once.
        rows_max: u64,
    },
    /// A row that was read before was not found again.
    #[error("row {position} of {location} was read once and not found again")]
    RowGone {
        /// The data file.
        location: String,
        /// The row.
        position: u64,
    },
    /// Comparing rows broke off.
    #[error("compare the row hashes of {source_table} and {target_table}")]
    BrokenOff {
        /// The source table.
        source_table: String,
        /// The target table.
        target_table: String,
        /// How.
        source: tokio::task::JoinError,
    },
    /// The comparison was asked to stop.
    #[error("stopped as asked; nothing was changed")]
    Interrupted,
}

impl Classified for VerifyError {
    fn class(&self) -> Class {
        match self {
            Self::Job(error) => error.class(),
            Self::NoTarget { .. } | Self::NoCheckpoint { .. } | Self::NoSnapshot { .. } => Class::NotFound,
            Self::Changelog { .. } => Class::Refused,
            Self::Temporary { source, .. } => source.class(),
            Self::Damaged { .. } => Class::Corrupt,
            Self::TooMany { .. } => Class::Exhausted,
            Self::NotCompared { .. } | Self::RowGone { .. } | Self::BrokenOff { .. } => Class::Bug,
            Self::Interrupted => Class::Interrupted,
        }
    }
}

impl From<JobError> for VerifyError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Distribute(error) if matches!(*error, DistributeError::Stopped) => Self::Interrupted,
            error => Self::Job(Box::new(error)),
        }
    }
}

macro_rules! from_room {
    ($($error:ty),*) => {
        $(impl From<$error> for VerifyError {
            fn from(error: $error) -> Self {
                JobError::from(error).into()
            }
        })*
    };
}

from_room!(DistributeError, crate::plan::PlanError, crate::commit::CommitError);
