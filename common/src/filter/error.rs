//! What can be wrong with a filter. No message holds a literal, which may be a secret.

use arrow::error::ArrowError;
use iceberg::Error as IcebergError;

use crate::fault::{Class, Classified};

/// A filter that cannot be used; says where in its text, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The text breaks the rules of the language.
    #[error("at character {at}: expected {expected}, found {found}")]
    Syntax {
        /// The character, counted from 1.
        at: usize,
        /// What may stand there.
        expected: String,
        /// What kind of thing stands there.
        found: &'static str,
    },
    /// SQL that is not supported.
    #[error("at character {at}: {what}")]
    Unsupported {
        /// The character, counted from 1.
        at: usize,
        /// What is not supported, and what to do.
        what: String,
    },
    /// A name that is no column to compare.
    #[error("at character {at}: column {column} {problem}")]
    Column {
        /// The character, counted from 1.
        at: usize,
        /// The name as it is written.
        column: String,
        /// Why not.
        problem: String,
    },
    /// A literal that cannot stand beside its column.
    #[error("at character {at}: column {column} is of type {kind}, which is compared with {expected}")]
    Literal {
        /// The character, counted from 1.
        at: usize,
        /// The column's full name.
        column: String,
        /// The column's type.
        kind: String,
        /// Literals that can.
        expected: &'static str,
    },
    /// The columns of a filter make no schema, though those of the table do.
    #[error("the columns of the filter make no schema")]
    Schema {
        /// Why.
        source: Box<IcebergError>,
    },
    /// Rows were given without a column of the filter, or in another type: a broken promise of the caller.
    #[error("the filter cannot be applied to column {column}: {problem}")]
    Array {
        /// The column's full name.
        column: String,
        /// Why.
        problem: String,
    },
    /// Arrow refused to compare a column.
    #[error("comparing column {column}")]
    Compare {
        /// The column's full name.
        column: String,
        /// Arrow's reason.
        source: ArrowError,
    },
}

impl Classified for FilterError {
    fn class(&self) -> Class {
        match self {
            Self::Syntax { .. } | Self::Unsupported { .. } | Self::Column { .. } | Self::Literal { .. } => {
                Class::Config
            }
            Self::Schema { .. } | Self::Array { .. } | Self::Compare { .. } => Class::Bug,
        }
    }
}
