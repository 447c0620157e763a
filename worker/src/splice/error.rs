//! What can go wrong while a file is carried over.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::StorageError;
use parquet::errors::ParquetError;

use crate::read::ReadError;
use crate::stage::StageError;

/// A file that could not be carried over; says which, and what was being done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpliceError {
    /// The source file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The new file could not be staged, or described for the manifest.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The object could not be copied.
    #[error(transparent)]
    Copy(#[from] StorageError),
    /// The metadata of the new file could not be put together.
    #[error("put together the footer of {location}")]
    Footer {
        /// The new file.
        location: String,
        /// Why.
        source: ParquetError,
    },
    /// The caller asked for what cannot be: files of different columns in one, a row group that is not there.
    #[error("{location} cannot be spliced: {what}")]
    Parts {
        /// The new file.
        location: String,
        /// Why.
        what: String,
    },
    /// The attempt was stopped.
    #[error("copying {location} was interrupted")]
    Interrupted {
        /// The file that was being copied.
        location: String,
    },
}

impl Classified for SpliceError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::Stage(error) => error.class(),
            Self::Copy(error) => error.class(),
            Self::Footer { .. } | Self::Parts { .. } => Class::Bug,
            Self::Interrupted { .. } => Class::Interrupted,
        }
    }
}
