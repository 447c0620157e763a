//! The SQL catalog: a row for each table in `iceberg_tables` names its metadata file, and a commit replaces that name
//! if it is still the one that the change was made from. The tables are those of Java's JdbcCatalog and pyiceberg.

mod address;
mod database;
mod lookup;
mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::fault::chain;
use iceferry_common::storage::{Created, Storage};

use self::address::Address;
use self::database::Database;
use self::lookup::Place;
use super::metadata::{self, Changed, Encoded, NotChanged};
use super::properties::{Properties, path_parts, property};
use super::{Catalog, CatalogError, CommitOutcome, LoadedTable, TableCreation};

/// Tables in a database.
#[derive(Debug)]
pub(super) struct SqlCatalog {
    address: Address,
    database: Database,
    /// The `catalog_name` column's value, when the properties say it.
    name: Option<String>,
    warehouse: Option<String>,
    storage: Storage,
}

impl SqlCatalog {
    /// The catalog that the properties describe. Nothing is contacted.
    pub(super) fn open(properties: &Properties) -> Result<Self, CatalogError> {
        let address = address::parse(properties)?;
        let warehouse = properties.get("warehouse").map(|_| properties.warehouse("sql")).transpose()?;
        Ok(Self {
            database: Database::open(&address),
            address,
            name: properties.get("catalog_name").map(str::to_owned),
            warehouse,
            storage: properties.storage(),
        })
    }

    async fn loaded(&self, table: &TableIdent, location: String) -> Result<LoadedTable, CatalogError> {
        let act = || format!("load table {table}");
        let bytes = self.storage.read(&location).await.map_err(|source| CatalogError::storage(act(), source))?;
        Ok(LoadedTable {
            ident: table.clone(),
            metadata: Arc::new(metadata::parse(&bytes, &location)?),
            metadata_location: location,
            storage: self.storage.clone(),
        })
    }

    /// Where a new table's files go: under the namespace's own location, else in the warehouse.
    async fn new_location(&self, act: &str, place: &Place, table: &TableIdent) -> Result<String, CatalogError> {
        path_parts(table)?;
        let key = [place.catalog.as_str(), place.namespace.as_str()];
        let rows = self.database.rows(act, tables::NAMESPACE_PROPERTIES, &key).await?;
        let own = rows.into_iter().find(|row| row.first().and_then(Option::as_deref) == Some("location"));
        if let Some(Some(location)) = own.and_then(|row| row.into_iter().nth(1)) {
            return Ok(format!("{}/{}", location.trim_end_matches('/'), table.name()));
        }
        self.warehouse_location(table)
    }

    fn warehouse_location(&self, table: &TableIdent) -> Result<String, CatalogError> {
        let Some(warehouse) = &self.warehouse else {
            return Err(property("warehouse", format!("it must say where to make table {table}")));
        };
        Ok(format!("{warehouse}/{}", path_parts(table)?.join("/")))
    }

    /// Writes a metadata file under a name that nobody else has: whatever is there under it, or comes to be there by a
    /// write that seemed to fail, is ours.
    async fn write(&self, act: &str, location: &str, encoded: &Encoded) -> Result<(), CatalogError> {
        let source = match self.storage.create(location, encoded.bytes.clone()).await {
            Ok(Created::New) => return Ok(()),
            // A store that tried twice finds its own first try.
            Ok(Created::AlreadyThere) => match self.storage.read(location).await {
                Ok(bytes) if bytes == encoded.bytes => return Ok(()),
                Ok(_) => {
                    let problem = format!("{location} is there already, although its name is new");
                    return Err(CatalogError::Refused { act: act.to_owned(), problem });
                }
                Err(source) => source,
            },
            Err(source) => source,
        };
        self.discard(location).await;
        Err(CatalogError::storage(act, source))
    }

    /// Removes a metadata file of our own that certainly no row names.
    async fn discard(&self, location: &str) {
        if let Err(error) = self.storage.delete(location).await {
            tracing::warn!(location, error = chain(&error), "a metadata file that lost its commit was left behind");
        }
    }

    async fn try_commit(
        &self,
        base: &LoadedTable,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> Result<CommitOutcome, CatalogError> {
        let act = format!("commit to table {}", base.ident);
        let layout = match base.is_staged() {
            true => self.made_layout(&act).await?,
            false => self.existing_layout(&act).await?,
        };
        let place = self.place(&act, layout, &base.ident).await?;
        let Changed { metadata, expired } = match metadata::change(base, requirements, updates, &act) {
            Ok(changed) => changed,
            Err(NotChanged::Conflicted) => return Ok(CommitOutcome::Conflicted),
            Err(NotChanged::Refused(error)) => return Err(*error),
        };
        let encoded = metadata::encode(&metadata, &act)?;
        // The swap below decides. This look only saves the file of a commit that has lost already.
        let current = (!base.is_staged()).then_some(&base.metadata_location);
        if self.location(&act, &place).await?.as_ref() != current {
            return Ok(CommitOutcome::Conflicted);
        }
        let location = metadata::next_location(&metadata, current.map(String::as_str), encoded.gzip);
        self.write(&act, &location, &encoded).await?;
        let [catalog, namespace, table] = place.key();
        let changed = match current {
            Some(current) => {
                let values = [catalog, namespace, table, &location, current];
                self.database.change(&act, &layout.swap(), &values).await
            }
            None => self.database.change(&act, layout.insert(), &[catalog, namespace, table, &location]).await,
        };
        match changed {
            Ok(0) | Err(database::NotChanged::Conflicted) => {
                self.discard(&location).await;
                return Ok(CommitOutcome::Conflicted);
            }
            // Somebody else made the table first.
            Err(database::NotChanged::Duplicate) if base.is_staged() => {
                self.discard(&location).await;
                return Ok(CommitOutcome::Conflicted);
            }
            Ok(_) => {}
            Err(database::NotChanged::AtCommit(error)) => {
                // A COMMIT that failed may have been carried out. One look settles it when the row is ours; when it is
                // not, the server may still be at it.
                if !matches!(self.location(&act, &place).await, Ok(Some(there)) if there == location) {
                    return Ok(CommitOutcome::Unknown(error));
                }
            }
            Err(database::NotChanged::Before(error)) => {
                self.discard(&location).await;
                return Err(error);
            }
            Err(database::NotChanged::Duplicate) => {
                self.discard(&location).await;
                let problem = "the database refused the row as a duplicate".into();
                return Err(CatalogError::Refused { act, problem });
            }
        }
        metadata::delete_expired(&self.storage, &encoded.metadata, &expired).await;
        Ok(CommitOutcome::Committed(LoadedTable {
            ident: base.ident.clone(),
            metadata: encoded.metadata,
            metadata_location: location,
            storage: self.storage.clone(),
        }))
    }
}

#[async_trait]
impl Catalog for SqlCatalog {
    fn description(&self) -> String {
        match &self.name {
            Some(name) => format!("sql catalog {name} in {}", self.address),
            None => format!("sql catalog in {}", self.address),
        }
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        let act = format!("load table {table} from the {}", self.description());
        let layout = self.existing_layout(&act).await?;
        let place = self.place(&act, layout, table).await?;
        match self.location(&act, &place).await? {
            Some(location) => self.loaded(table, location).await,
            None => {
                let catalog = format!("sql catalog {} in {}", place.catalog, self.address);
                Err(CatalogError::TableNotFound { table: table.to_string(), catalog })
            }
        }
    }

    /// A namespace is there when it has properties or tables. Its parents need nothing of their own.
    async fn ensure_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        let act = format!("make namespace {namespace} in the {}", self.description());
        self.made_layout(&act).await?;
        let catalog = self.catalog_name(&act).await?;
        let joined = namespace.join(".");
        let key = [catalog.as_str(), joined.as_str()];
        for sql in [tables::NAMESPACE_PROPERTIES, tables::NAMESPACE_TABLES] {
            if !self.database.rows(&act, sql, &key).await?.is_empty() {
                return Ok(());
            }
        }
        match self.database.change(&act, tables::NAMESPACE_INSERT, &key).await {
            Ok(_) | Err(database::NotChanged::Duplicate | database::NotChanged::Conflicted) => Ok(()),
            Err(database::NotChanged::Before(error) | database::NotChanged::AtCommit(error)) => Err(error),
        }
    }

    async fn stage_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        let act = format!("create table {table}");
        let location = match self.layout(&act).await? {
            Some(layout) => self.new_location(&act, &self.place(&act, layout, table).await?, table).await?,
            // There is no namespace yet that could have a place of its own.
            None => {
                self.database.can_be_made(&act).await?;
                self.warehouse_location(table)?
            }
        };
        Ok(LoadedTable {
            ident: table.clone(),
            metadata: Arc::new(metadata::create(table, &location, creation)?),
            metadata_location: String::new(),
            storage: self.storage.clone(),
        })
    }

    async fn commit(
        &self,
        base: &LoadedTable,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        self.try_commit(base, &requirements, updates).await.unwrap_or_else(CommitOutcome::Refused)
    }
}

#[cfg(test)]
mod tests;
