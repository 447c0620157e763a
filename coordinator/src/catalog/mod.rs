//! Catalogs: where a table's current metadata is, and the one place where it may change.
//!
//! A [`Catalog`] takes table names and gives [`LoadedTable`]s; a commit takes requirements and updates in the words of
//! the REST specification and gives a [`CommitOutcome`]. Only the coordinator uses them.

mod error;
mod hadoop;
mod metadata;
mod properties;
mod rest;
mod sql;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{FormatVersion, Schema, TableMetadataRef};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::storage::Storage;

pub use error::CatalogError;

pub(crate) use self::metadata::parse as parse_metadata;
use self::properties::{Properties, property};

/// A table as its catalog had it at one moment.
#[derive(Debug, Clone)]
pub struct LoadedTable {
    /// Namespace and name.
    pub ident: TableIdent,
    /// The metadata.
    pub metadata: TableMetadataRef,
    /// Where the metadata file is; empty while the table is only staged.
    pub metadata_location: String,
    /// Storage of the table's files, with the settings that the catalog gave for it.
    pub storage: Storage,
}

impl LoadedTable {
    /// Whether the table is not there yet: [`Catalog::stage_table`] said how it would be, and the first commit makes it.
    pub fn is_staged(&self) -> bool {
        self.metadata_location.is_empty()
    }
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

    /// How the table would be made: its place, its uuid, its schema with the field ids as they are. Nothing is written. A
    /// commit that takes it as base makes the table and changes it in one step, so that nobody sees it empty.
    ///
    /// # Errors
    /// When it cannot be made, as far as that can be told; [`CatalogError::TableExists`] when it is there.
    async fn stage_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError>;

    /// Makes the table unless it is there, and gives the one that is there then.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    async fn ensure_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        self.ensure_namespace(table.namespace()).await?;
        match self.load_table(table).await {
            Err(CatalogError::TableNotFound { .. }) => {}
            there_or_failed => return there_or_failed,
        }
        let staged = match self.stage_table(table, creation).await {
            Err(CatalogError::TableExists { .. }) => return self.load_table(table).await,
            staged => staged?,
        };
        match self.commit(&staged, Vec::new(), Vec::new()).await {
            CommitOutcome::Committed(table) => Ok(table),
            // Somebody else made it first.
            CommitOutcome::Conflicted => self.load_table(table).await,
            CommitOutcome::Refused(error) => Err(error),
            // Whatever table is there now is the one to use, ours or not.
            CommitOutcome::Unknown(error) => self.load_table(table).await.map_err(|_| error),
        }
    }

    /// Changes the table in one step, if it still meets the requirements. `base` is the table as the updates take it; where
    /// it is staged, the table must not be there, and is made with the updates.
    ///
    /// The hadoop and sql catalogs conflict whenever the table moved since `base`. A rest catalog puts the updates onto
    /// whatever the table is by then, as long as the requirements hold: what must not have moved has to be among them.
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
    let properties = Properties(properties.clone());
    match kind(&properties)? {
        Kind::Hadoop => Ok(Arc::new(hadoop::HadoopCatalog::open(&properties)?)),
        Kind::Sql => Ok(Arc::new(sql::SqlCatalog::open(&properties)?)),
        Kind::Rest => Ok(Arc::new(rest::RestCatalog::open(&properties).await?)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hadoop,
    Sql,
    Rest,
}

/// Types that other tools know and that have no door here yet.
const NOT_YET: [&str; 9] =
    ["hive", "glue", "s3tables", "nessie", "dynamodb", "bigquery", "biglake", "snowflake", "in-memory"];

const KNOWN: &str = "hadoop, sql (or jdbc) and rest are known";

/// The type of catalog: `type`, or the class that Java tools name as `catalog-impl`.
fn kind(properties: &Properties) -> Result<Kind, CatalogError> {
    if let Some(class) = properties.get("catalog-impl") {
        return match class.rsplit('.').next() {
            Some("HadoopCatalog") => Ok(Kind::Hadoop),
            Some("JdbcCatalog") => Ok(Kind::Sql),
            Some("RESTCatalog") => Ok(Kind::Rest),
            _ => Err(property("catalog-impl", format!("{class:?} is not supported; {KNOWN} by \"type\""))),
        };
    }
    let Some(given) = properties.get("type") else {
        return Err(property("type", format!("it is missing; {KNOWN}")));
    };
    match given.to_lowercase().as_str() {
        "hadoop" => Ok(Kind::Hadoop),
        "sql" | "jdbc" => Ok(Kind::Sql),
        "rest" => Ok(Kind::Rest),
        later if NOT_YET.contains(&later) => Err(property("type", format!("{given:?} is not supported yet; {KNOWN}"))),
        _ => Err(property("type", format!("{given:?} is not a type of catalog; {KNOWN}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_type_is_known_or_the_known_ones_are_listed() {
        let open = |key: &str, value: &str| {
            let pairs = [(key, value), ("warehouse", "/w"), ("uri", "sqlite:///none/c.db"), ("other", "kept")];
            let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
            async { open(&HashMap::from(pairs)).await.map(|catalog| catalog.description()) }
        };
        assert_eq!(open("type", "hadoop").await.unwrap(), "hadoop catalog at /w");
        assert_eq!(open("type", "SQL").await.unwrap(), "sql catalog in sqlite:/none/c.db");
        assert_eq!(open("type", "jdbc").await.unwrap(), "sql catalog in sqlite:/none/c.db");
        assert_eq!(
            open("catalog-impl", "org.apache.iceberg.hadoop.HadoopCatalog").await.unwrap(),
            "hadoop catalog at /w"
        );
        for (key, value, words) in [
            ("type", "hive", "not supported yet"),
            ("type", "glue", "not supported yet"),
            ("type", "hadop", "hadoop, sql (or jdbc) and rest are known"),
            ("catalog-impl", "org.x.Y", "is not supported"),
            ("tipe", "hadoop", "it is missing"),
        ] {
            let error = open(key, value).await.unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("rest"), "{error}");
        }
    }
}
