//! Catalogs: where a table's current metadata is, and the one place where it may change.
//!
//! A [`Catalog`] takes table names and gives [`LoadedTable`]s; a commit takes requirements and updates in the words of
//! the REST specification and gives a [`CommitOutcome`]. Only the coordinator uses them.

mod error;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{FormatVersion, Schema, TableMetadataRef};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::storage::Storage;

pub use error::CatalogError;

/// A table as its catalog had it at one moment.
#[derive(Debug, Clone)]
pub struct LoadedTable {
    /// Namespace and name.
    pub ident: TableIdent,
    /// The metadata.
    pub metadata: TableMetadataRef,
    /// Where the metadata file is.
    pub metadata_location: String,
    /// Storage of the table's files, with the settings that the catalog gave for it.
    pub storage: Storage,
}

/// What a new table is to be.
#[derive(Debug, Clone)]
pub struct TableCreation {
    /// Its schema. The field ids are kept as they are, unlike by most catalogs' plain create call.
    pub schema: Schema,
    /// Its format version.
    pub format_version: FormatVersion,
    /// Its properties.
    pub properties: HashMap<String, String>,
}

/// What became of a commit. It must be looked at: an unknown outcome is not a failure.
#[derive(Debug)]
#[must_use]
pub enum CommitOutcome {
    /// It is in the table; here is the table with it.
    Committed(LoadedTable),
    /// Certainly not in the table: the table moved since the base was loaded. Load again and look, the one who moved it
    /// may have been ourselves.
    Conflicted,
    /// Certainly not in the table, and it would not be on another try either.
    Refused(CatalogError),
    /// The answer was lost. It may be in the table now, later, or never: look before anything else.
    Unknown(CatalogError),
}

/// Where tables are found and changed.
#[async_trait]
pub trait Catalog: Debug + Send + Sync {
    /// How a person would name this catalog, without secrets; for messages.
    fn description(&self) -> String;

    /// The table as it is now.
    ///
    /// # Errors
    /// [`CatalogError::TableNotFound`] when there is none; others when that cannot be told.
    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError>;

    /// Makes the namespace and its parents unless they are there.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    async fn ensure_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError>;

    /// Makes the table unless it is there, and gives the one that is there then.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    async fn ensure_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError>;

    /// Changes the table in one step, if it still meets the requirements. `base` is the table as the updates take it.
    async fn commit(
        &self,
        base: &LoadedTable,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome;
}

/// Opens the catalog that `properties` describe: `type` is `hadoop`, `sql` or `rest`; the other keys are the type's own,
/// as other Iceberg tools name them. REST asks the server for its configuration here; nothing else is contacted.
///
/// # Errors
/// When a property is missing, wrong or unknown to the type, or the catalog cannot be reached.
pub async fn open(properties: &HashMap<String, String>) -> Result<Arc<dyn Catalog>, CatalogError> {
    Err(CatalogError::Property { key: "type".into(), problem: format!("not yet: {:?}", properties.keys()) })
}
