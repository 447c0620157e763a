//! What can go wrong while rows are counted and hashed, or shown.

use std::io;

use arrow::error::ArrowError;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::StorageError;

use crate::read::ReadError;

/// A task whose rows could not be digested or shown.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The rows could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows could not be brought into the form that is hashed.
    #[error("hash rows of {table}")]
    Hash {
        /// The table.
        table: String,
        /// Why not.
        source: ArrowError,
    },
    /// The place of a row is beyond what its hash can be written with.
    #[error("row {position} of {location} is too far back in its file, or its task has too many files, to be compared")]
    Place {
        /// The data file.
        location: String,
        /// The row.
        position: u64,
    },
    /// Storage did not take a temporary file.
    #[error("write the temporary file {location}")]
    Write {
        /// The file.
        location: String,
        /// Why not.
        source: Box<StorageError>,
    },
    /// The upload of a temporary file ended without the storage's word.
    #[error("the upload of the temporary file {location} was cut off")]
    CutOff {
        /// The file.
        location: String,
        /// What was noticed of it.
        source: io::Error,
    },
    /// The task contradicts itself: a broken promise of the coordinator.
    #[error("task {task} on {table} cannot be compared: {what}")]
    Task {
        /// The task.
        task: u64,
        /// The table.
        table: String,
        /// What contradicts what.
        what: String,
    },
}

impl Classified for DigestError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::Place { .. } => Class::Refused,
            Self::Write { source, .. } => source.class(),
            Self::CutOff { .. } => Class::Transient,
            Self::Hash { .. } | Self::Task { .. } => Class::Bug,
        }
    }
}
