//! What can go wrong while a scan task is read.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::filter::FilterError;
use iceferry_common::storage::StorageError;
use parquet::errors::ParquetError;

/// A scan task that could not be read; says which file or column, and why.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Storage did not give the bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file on storage is not the one that the manifest speaks of.
    #[error("{location} has {actual} bytes and its manifest says {expected}: it was replaced or cut short")]
    Size {
        /// The file.
        location: String,
        /// Size in the manifest.
        expected: u64,
        /// Size on storage.
        actual: u64,
    },
    /// The bytes break the rules of their format.
    #[error("{location} is damaged: {what}")]
    Damaged {
        /// The file.
        location: String,
        /// Which rule.
        what: String,
    },
    /// The Parquet decoder refused the bytes.
    #[error("{act} of {location}")]
    Decode {
        /// What was being done.
        act: &'static str,
        /// The file.
        location: String,
        /// The decoder's reason.
        source: ParquetError,
    },
    /// The file is well formed, and of a kind that is not read.
    #[error("{location} cannot be read: {what}")]
    Unsupported {
        /// The file.
        location: String,
        /// What is not supported, and what to do.
        what: String,
    },
    /// A column of the file does not fit the table.
    #[error("column {column} of {location} cannot be read: {what}")]
    Column {
        /// The file.
        location: String,
        /// Full column name.
        column: String,
        /// Why.
        what: String,
    },
    /// The table's own description cannot be used.
    #[error("table {table} cannot be read: {what}")]
    Table {
        /// The table.
        table: String,
        /// Why.
        what: String,
    },
    /// The filter could not be applied to rows.
    #[error("filter the rows of {location}")]
    Filter {
        /// The file.
        location: String,
        /// Why.
        source: FilterError,
    },
    /// A bound on memory does not suffice.
    #[error("{what} need more than {limit_bytes} bytes: give the worker more memory or compact the source's deletes")]
    Memory {
        /// What was held.
        what: &'static str,
        /// The bound.
        limit_bytes: u64,
    },
    /// The attempt was stopped, or its runtime is going away.
    #[error("reading {location} was interrupted")]
    Interrupted {
        /// The file that was being read.
        location: String,
    },
    /// The task contradicts itself: a broken promise of the planner.
    #[error("scan task {task} contradicts itself: {what}")]
    Task {
        /// The task.
        task: u64,
        /// How.
        what: String,
    },
}

impl ReadError {
    pub(crate) fn damaged(location: &str, what: impl Into<String>) -> Self {
        Self::Damaged { location: location.to_owned(), what: what.into() }
    }

    pub(super) fn unsupported(location: &str, what: impl Into<String>) -> Self {
        Self::Unsupported { location: location.to_owned(), what: what.into() }
    }
}

impl Classified for ReadError {
    fn class(&self) -> Class {
        match self {
            Self::Storage(error) => error.class(),
            Self::Size { .. } | Self::Damaged { .. } | Self::Decode { .. } => Class::Corrupt,
            Self::Unsupported { .. } | Self::Column { .. } | Self::Table { .. } => Class::Refused,
            Self::Filter { source, .. } => source.class(),
            Self::Memory { .. } => Class::Exhausted,
            Self::Interrupted { .. } => Class::Interrupted,
            Self::Task { .. } => Class::Bug,
        }
    }
}

/// Runs a decoder over bytes that nobody vouches for.
///
/// The decoders check much of what they read and still panic on some damaged input (a dictionary index out of range, a
/// level that does not fit). A damaged file must fail its task by name and not take down the worker, so a panic becomes
/// an error here. The decoder is thrown away afterwards, so no half-changed state is looked at again.
pub(crate) fn guarded<T>(location: &str, decode: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no reason given".to_owned());
        Err(ReadError::damaged(location, format!("its decoder gave up: {reason}")))
    })
}
