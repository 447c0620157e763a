//! What can go wrong with storage.

use crate::fault::{Class, Classified};

/// A failed access to storage; says what was being done, and to what.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The location's scheme has no storage here.
    #[error("no storage for {location:?}: only plain absolute paths and file: locations are supported yet")]
    Scheme {
        /// The location.
        location: String,
    },
    /// The location's path is not one.
    #[error("location {location:?} is not a path")]
    Location {
        /// The location.
        location: String,
        /// Why.
        source: object_store::path::Error,
    },
    /// There is nothing at the location.
    #[error("{act} {location}: it is not there")]
    Missing {
        /// What was being done.
        act: &'static str,
        /// The location.
        location: String,
    },
    /// An object is not the one that metadata speaks of.
    #[error("{location} has {actual} bytes where {expected} were expected: it was replaced or cut short")]
    Changed {
        /// The location.
        location: String,
        /// Its size in metadata.
        expected: u64,
        /// Its size on storage.
        actual: u64,
    },
    /// The store said no, or did not answer.
    #[error("{act} {location}")]
    Access {
        /// What was being done.
        act: &'static str,
        /// The location.
        location: String,
        /// The store's answer.
        source: object_store::Error,
    },
}

impl StorageError {
    /// The store's answer to `act`. That something is not there is said in our words: a store says it in several, with
    /// the path in each.
    pub fn access(act: &'static str, location: &str, source: object_store::Error) -> Self {
        let location = location.to_owned();
        match source {
            object_store::Error::NotFound { .. } => Self::Missing { act, location },
            source => Self::Access { act, location, source },
        }
    }
}

impl Classified for StorageError {
    fn class(&self) -> Class {
        match self {
            Self::Scheme { .. } | Self::Location { .. } => Class::Refused,
            Self::Missing { .. } => Class::NotFound,
            Self::Changed { .. } => Class::Corrupt,
            Self::Access { source, .. } => access_class(source),
        }
    }
}

fn access_class(source: &object_store::Error) -> Class {
    use object_store::Error;
    match source {
        Error::NotFound { .. } => Class::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Class::Denied,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => Class::Conflict,
        Error::NotSupported { .. } | Error::NotImplemented { .. } | Error::InvalidPath { .. } => Class::Refused,
        // The local store reports an operating system's refusal as a generic error with the cause inside.
        error => match io_kind(error) {
            Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => Class::Denied,
            Some(std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Class::NotFound,
            Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => Class::Exhausted,
            // A range that lies beyond the file: it is shorter than its metadata says.
            Some(std::io::ErrorKind::UnexpectedEof) => Class::Corrupt,
            _ if error.to_string().contains("range") => Class::Corrupt,
            _ => Class::Transient,
        },
    }
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}
