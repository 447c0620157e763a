//! What can go wrong while rows are tagged.

use arrow::error::ArrowError;
use iceferry_common::fault::{Class, Classified};

use crate::exchange::ExchangeError;

/// A failed tag step, or the reader's own error on its way through.
#[derive(Debug, thiserror::Error)]
pub enum TagError<E> {
    /// The reader failed.
    #[error(transparent)]
    Read(E),
    /// Rows could not be compared.
    #[error("compare rows that went with rows that came")]
    Compare(#[source] ArrowError),
    /// Two rows of one key before, of which one went and one stayed.
    #[error(
        "{table} has two rows with the key {key}, and only one of them went: with equality deletes a key must be \
         unique, so remove the duplicate from the source or choose equality_columns that identify a row"
    )]
    DuplicateKey {
        /// The source table.
        table: String,
        /// Key columns with their values, printed.
        key: String,
    },
    /// Several rows of one change type have one identity.
    #[error(
        "{table} has several rows with the identity {key} among the deletes or inserts of one snapshot, and \
         source.duplicate_keys is fail: remove the duplicate, choose source.identifier_columns that identify a row, or \
         set duplicate_keys to pair"
    )]
    DuplicateIdentity {
        /// The source table.
        table: String,
        /// Identifying columns with their values, printed.
        key: String,
    },
    /// Rows that have to be looked at together do not fit, and nothing takes them apart.
    #[error(
        "rows of {table} {what} that one snapshot rewrote take more than the {bytes_max} bytes that a task has for rows \
         that it compares: raise --memory-mb, run with fewer --slots, or choose source.identifier_columns that identify a row"
    )]
    TooLarge {
        /// The source table.
        table: String,
        /// What the rows have in common.
        what: String,
        /// Memory for the rows of a task.
        bytes_max: u64,
    },
    /// Rows did not fit into memory, and could not be exchanged.
    #[error("exchange rows of {table} that do not fit into memory")]
    Exchange {
        /// The source table.
        table: String,
        /// Why.
        source: ExchangeError,
    },
    /// The reader broke its promise.
    #[error("rows of {table} that went were read after rows that came: report this as a bug")]
    Order {
        /// The source table.
        table: String,
    },
    /// A bucket of an exchange does not have all rows that have to meet.
    #[error("rows of {table} that are told by _row_id cannot be resolved bucket by bucket: report this as a bug")]
    Apart {
        /// The source table.
        table: String,
    },
    /// Rows could not be taken out of a batch.
    #[error("take cancelled rows out of a batch")]
    Filter(#[source] ArrowError),
}

impl<E: Classified + 'static> Classified for TagError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::DuplicateKey { .. } | Self::DuplicateIdentity { .. } => Class::Refused,
            Self::TooLarge { .. } => Class::Exhausted,
            Self::Exchange { source, .. } => source.class(),
            Self::Compare(_) | Self::Order { .. } | Self::Apart { .. } | Self::Filter(_) => Class::Bug,
        }
    }
}
