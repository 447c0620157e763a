//! What can go wrong with a catalog.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::StorageError;

/// A failed call to a catalog; says what was being done, and to what.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A catalog property is missing, wrong or unknown.
    #[error("catalog property {key:?}: {problem}")]
    Property {
        /// The key.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// There is no such table.
    #[error("table {table} is not in the {catalog}")]
    TableNotFound {
        /// `namespace.name`.
        table: String,
        /// The catalog's description.
        catalog: String,
    },
    /// There is such a table already.
    #[error("table {table} is in the {catalog} already")]
    TableExists {
        /// `namespace.name`.
        table: String,
        /// The catalog's description.
        catalog: String,
    },
    /// The catalog or its warehouse is not there.
    #[error("{act}: {missing} is not there")]
    NotFound {
        /// What was being done.
        act: String,
        /// What is missing.
        missing: String,
    },
    /// The catalog says no to who we are.
    #[error("{act}: access denied: {answer}")]
    Denied {
        /// What was being done.
        act: String,
        /// The catalog's words.
        answer: String,
    },
    /// What the catalog asks for, or holds, is not carried.
    #[error("{act}: {problem}")]
    Refused {
        /// What was being done.
        act: String,
        /// What is not carried, and what to do.
        problem: String,
    },
    /// Metadata that breaks the format's rules.
    #[error("{act}: {problem}")]
    Corrupt {
        /// What was being done.
        act: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Storage failed.
    #[error("{act}")]
    Storage {
        /// What was being done.
        act: String,
        /// Why.
        source: Box<StorageError>,
    },
    /// The iceberg crate refused or failed.
    #[error("{act}")]
    Iceberg {
        /// What was being done.
        act: String,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// The catalog's server or database did not answer as it should; another try may succeed.
    #[error("{act}: {problem}")]
    Unavailable {
        /// What was being done.
        act: String,
        /// What happened, without secrets.
        problem: String,
    },
}

impl CatalogError {
    /// Storage failed in the middle of an act.
    pub(crate) fn storage(act: impl Into<String>, source: StorageError) -> Self {
        Self::Storage { act: act.into(), source: Box::new(source) }
    }
}

impl Classified for CatalogError {
    fn class(&self) -> Class {
        match self {
            Self::Property { .. } => Class::Config,
            Self::TableNotFound { .. } | Self::NotFound { .. } => Class::NotFound,
            Self::TableExists { .. } => Class::Conflict,
            Self::Denied { .. } => Class::Denied,
            Self::Refused { .. } => Class::Refused,
            Self::Corrupt { .. } => Class::Corrupt,
            Self::Storage { source, .. } => source.class(),
            Self::Iceberg { source, .. } => iceberg_class(source),
            Self::Unavailable { .. } => Class::Transient,
        }
    }
}

/// The class of an error of the iceberg crate: that of our storage when it is the cause, else by its kind.
pub(crate) fn iceberg_class(error: &iceberg::Error) -> Class {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(storage) = error.downcast_ref::<StorageError>() {
            return storage.class();
        }
        cause = error.source();
    }
    match error.kind() {
        iceberg::ErrorKind::FeatureUnsupported => Class::Refused,
        iceberg::ErrorKind::DataInvalid => Class::Corrupt,
        iceberg::ErrorKind::CatalogCommitConflicts => Class::Conflict,
        iceberg::ErrorKind::TableNotFound | iceberg::ErrorKind::NamespaceNotFound => Class::NotFound,
        _ => Class::Transient,
    }
}
