//! What is wrong with a message.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{EpochId, LeaseId};

/// A message that does not say what it has to; names the message and the field.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A field that must be there is not.
    #[error("wire message {message} lacks {field}")]
    Missing {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A number that stands for nothing known: the other side is newer, or broken.
    #[error("wire message {message} has the unknown {field} {value}; run the same version on both sides")]
    UnknownValue {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: i32,
    },
    /// A value that cannot be.
    #[error("wire message {message} has a wrong {field}: {problem}")]
    Invalid {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// JSON that does not parse.
    #[error("wire message {message} has a {field} that does not parse as JSON")]
    Json {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// Something of our own that cannot be written as JSON, or not so that it reads back the same.
    #[error("{field} of {message} cannot be sent: {problem}")]
    Unwritable {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Why not.
        problem: String,
    },
    /// A message of our own that the other side would not take.
    #[error(
        "{message} has {bytes} bytes and a message carries at most {bytes_max}; lower read.split.target-size of the \
         source, or compact its delete files"
    )]
    TooLarge {
        /// The message.
        message: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
}

impl Classified for ConvertError {
    fn class(&self) -> Class {
        match self {
            Self::Missing { .. } | Self::UnknownValue { .. } | Self::Invalid { .. } | Self::Json { .. } => {
                Class::Corrupt
            }
            Self::Unwritable { .. } => Class::Bug,
            Self::TooLarge { .. } => Class::Exhausted,
        }
    }
}

/// A message that cannot be read, and what it was about: enough to refuse it by name.
#[derive(Debug, thiserror::Error)]
#[error("read a message of {from}")]
pub struct Unreadable {
    /// Who sent it.
    pub from: &'static str,
    /// The lease, when it was one.
    pub lease: Option<LeaseId>,
    /// The epoch, when it was the context of one.
    pub context_of: Option<EpochId>,
    /// What is wrong with it.
    pub source: ConvertError,
}

impl Classified for Unreadable {
    fn class(&self) -> Class {
        self.source.class()
    }
}
