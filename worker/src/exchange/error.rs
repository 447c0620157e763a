//! What can go wrong while rows are exchanged.

use arrow::error::ArrowError;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::StorageError;

/// A failed exchange; says what was being done, to which file.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The storage did not take the file.
    #[error("write rows that do not fit into memory to {location}")]
    Upload {
        /// The file.
        location: String,
        /// The storage's answer.
        source: Box<StorageError>,
    },
    /// The task that uploads a file ended without an answer.
    #[error("upload of {location} was cut off")]
    CutOff {
        /// The file.
        location: String,
    },
    /// Rows have no form as a block.
    #[error("encode a block of {location}")]
    Encode {
        /// The file.
        location: String,
        /// Why.
        source: ArrowError,
    },
    /// The storage did not give a block back.
    #[error("read back rows that did not fit into memory from {location}")]
    Read {
        /// The file.
        location: String,
        /// The storage's answer.
        source: Box<StorageError>,
    },
    /// A block is not what was written.
    #[error("decode the block at byte {offset} of {location}")]
    Decode {
        /// The file.
        location: String,
        /// Where the block begins.
        offset: u64,
        /// Why.
        source: ArrowError,
    },
    /// A block has more or fewer rows than were written.
    #[error("the block at byte {offset} of {location} has {found} rows, where {expected} were written")]
    RowCount {
        /// The file.
        location: String,
        /// Where the block begins.
        offset: u64,
        /// Rows that were written.
        expected: u64,
        /// Rows that were read.
        found: u64,
    },
    /// Every row comes with its hash.
    #[error("{rows} rows for {location} came with {hashes} hashes")]
    Hashes {
        /// The file.
        location: String,
        /// Rows that came.
        rows: usize,
        /// Hashes that came.
        hashes: usize,
    },
    /// The attempt was told to stop.
    #[error("the exchange was told to stop")]
    Cancelled,
}

impl Classified for ExchangeError {
    fn class(&self) -> Class {
        match self {
            Self::Upload { source, .. } | Self::Read { source, .. } => source.class(),
            Self::Decode { .. } | Self::RowCount { .. } => Class::Corrupt,
            Self::CutOff { .. } | Self::Cancelled => Class::Interrupted,
            Self::Encode { .. } | Self::Hashes { .. } => Class::Bug,
        }
    }
}
