//! What can go wrong while planning.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::StorageError;

use super::range::RangeError;

/// A failed plan; says what was being done, and to what.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The range of snapshots cannot be had.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A state of the range is not in the table's metadata.
    #[error("plan table {table}: snapshot {snapshot} is not in its metadata; it may just have expired: run again")]
    SnapshotGone {
        /// The table.
        table: String,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// A manifest list or manifest is not there, or cannot be read.
    #[error("read {what} {location} of snapshot {snapshot} of table {table}")]
    Read {
        /// Manifest list or manifest.
        what: &'static str,
        /// The file.
        location: String,
        /// The snapshot that names it.
        snapshot: SnapshotId,
        /// The table.
        table: String,
        /// Why.
        source: StorageError,
    },
    /// A manifest list or manifest is not one.
    #[error("decode {what} {location} of snapshot {snapshot} of table {table}")]
    Decode {
        /// Manifest list or manifest.
        what: &'static str,
        /// The file.
        location: String,
        /// The snapshot that names it.
        snapshot: SnapshotId,
        /// The table.
        table: String,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// The table's files contradict each other or the format.
    #[error("table {table}, file {file}: {problem}")]
    Corrupt {
        /// The table.
        table: String,
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// Something that is not carried.
    #[error("table {table}, file {file}: {problem}")]
    Refused {
        /// The table.
        table: String,
        /// The file.
        file: String,
        /// What is not carried, and what to do.
        problem: String,
    },
    /// Decoding a manifest broke off.
    #[error("decode {location} of table {table}: the decoder broke off; please report this")]
    Broken {
        /// The file.
        location: String,
        /// The table.
        table: String,
        /// Why.
        source: tokio::task::JoinError,
    },
}

impl Classified for PlanError {
    fn class(&self) -> Class {
        match self {
            Self::Range(error) => error.class(),
            Self::SnapshotGone { .. } => Class::NotFound,
            Self::Read { source, .. } => source.class(),
            // The bytes were in memory: what fails is what they say.
            Self::Decode { source, .. } => match source.kind() {
                iceberg::ErrorKind::FeatureUnsupported => Class::Refused,
                _ => Class::Corrupt,
            },
            Self::Corrupt { .. } => Class::Corrupt,
            Self::Refused { .. } => Class::Refused,
            Self::Broken { .. } => Class::Bug,
        }
    }
}

/// What is wrong with one file, found where the table's name is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileProblem {
    /// It contradicts another file or the format.
    Corrupt { file: String, problem: String },
    /// It is not carried.
    Refused { file: String, problem: String },
}

impl FileProblem {
    pub(super) fn corrupt(file: &str, problem: impl Into<String>) -> Self {
        Self::Corrupt { file: file.to_owned(), problem: problem.into() }
    }

    pub(super) fn refused(file: &str, problem: impl Into<String>) -> Self {
        Self::Refused { file: file.to_owned(), problem: problem.into() }
    }

    pub(super) fn of_table(self, table: &str) -> PlanError {
        let table = table.to_owned();
        match self {
            Self::Corrupt { file, problem } => PlanError::Corrupt { table, file, problem },
            Self::Refused { file, problem } => PlanError::Refused { table, file, problem },
        }
    }
}
