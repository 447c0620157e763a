//! The REST catalog, as the Iceberg REST specification has it. The server checks requirements and applies updates;
//! what matters here is to tell a commit that was certainly refused from one whose answer was lost.
//!
//! Other than the catalogs that swap one metadata file for the next, a server takes updates onto whatever the table is by
//! then, as long as the requirements hold. What must not have moved has to be among the requirements.

mod authorization;
mod config;
mod http;
mod paths;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{FormatVersion, SortOrder, TableMetadata, UnboundPartitionSpec};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::storage::{Storage, StorageProperties};
use reqwest::StatusCode;

use self::http::{Failure, Http};
use self::paths::Paths;
use super::properties::Properties;
use super::{Catalog, CatalogError, CommitOutcome, LoadedTable, TableCreation, metadata};

/// The last added schema, spec or order, in updates that make it the current one.
const LAST_ADDED: i32 = -1;

/// Tables behind a server.
#[derive(Debug)]
pub(super) struct RestCatalog {
    http: Http,
    paths: Paths,
    /// The address without user, password and query.
    shown: String,
    warehouse: Option<String>,
    /// Storage settings of the catalog, under those that the server gives for a table.
    storage: StorageProperties,
}

impl RestCatalog {
    /// The catalog that the properties describe, after asking the server for its configuration.
    pub(super) async fn open(given: &Properties) -> Result<Self, CatalogError> {
        let uri = given.required("uri", "rest")?;
        let shown = config::shown(uri)?;
        let http = Http::new(given)?;
        let answer = config::ask_config(&http, uri, given.get("warehouse"), &shown).await?;
        let merged = config::merge(answer, given);
        let uri = merged.required("uri", "rest")?;
        Ok(Self {
            shown: config::shown(uri)?,
            // The server may have added headers, a token, or a way to sign that is not there yet.
            http: Http::new(&merged)?,
            paths: Paths::new(uri, &merged),
            warehouse: given.get("warehouse").map(str::to_owned),
            storage: merged.storage().properties().clone(),
        })
    }

    fn loaded(&self, table: &TableIdent, body: &[u8], act: &str) -> Result<LoadedTable, CatalogError> {
        let answer = table_answer(body, act)?;
        let metadata = metadata::from_json(answer.metadata, act)?;
        let Some(metadata_location) = answer.metadata_location else {
            let problem = "the catalog's answer has no metadata-location".into();
            return Err(CatalogError::Corrupt { act: act.to_owned(), problem });
        };
        let storage = self.table_storage(answer.config);
        Ok(LoadedTable { ident: table.clone(), metadata: Arc::new(metadata), metadata_location, storage })
    }

    async fn post_commit(
        &self,
        table: &TableIdent,
        requirements: &[TableRequirement],
        updates: &[TableUpdate],
        act: &str,
    ) -> Result<bytes::Bytes, Posted> {
        let identifier = wire::Identifier { namespace: table.namespace(), name: table.name() };
        let body = wire::Commit { identifier, requirements, updates };
        let url = self.paths.table(table).map_err(|error| Posted::Refused(Box::new(error)))?;
        self.http.post(&url, &body).await.map_err(|failure| self.posted(table, failure, act))
    }

    /// What a commit's failure means. Only what the server says it refused, or what never left us, is refused: a server
    /// that fails after it took the request may have carried it out.
    fn posted(&self, table: &TableIdent, failure: Failure, act: &str) -> Posted {
        match &failure {
            Failure::Lost(_) => Posted::Unknown(Box::new(failure.into_error(act))),
            Failure::NotSent(_) => Posted::Refused(Box::new(failure.into_error(act))),
            Failure::Answer { status, .. } => match status.as_u16() {
                409 => Posted::Conflicted,
                404 => {
                    let (table, catalog) = (table.to_string(), self.description());
                    Posted::Refused(Box::new(CatalogError::TableNotFound { table, catalog }))
                }
                // A server, or a proxy before it, that gave up waiting does not know either.
                408 | 500.. => Posted::Unknown(Box::new(failure.into_error(act))),
                _ => Posted::Refused(Box::new(failure.into_error(act))),
            },
        }
    }

    /// Has the server say how it would make the table: where it puts it, with which properties of its own, and how its
    /// storage is reached.
    async fn stage(
        &self,
        table: &TableIdent,
        creation: &TableCreation,
        act: &str,
    ) -> Result<(TableMetadata, Storage), CatalogError> {
        let mut properties = creation.properties.clone();
        properties.insert("format-version".into(), version_number(creation.format_version).into());
        let body = wire::CreateTable { name: table.name(), schema: &creation.schema, stage_create: true, properties };
        match self.http.post(&self.paths.tables(table.namespace()), &body).await {
            Ok(body) => {
                let answer = table_answer(&body, act)?;
                let storage = self.table_storage(answer.config);
                Ok((metadata::from_json(answer.metadata, act)?, storage))
            }
            Err(failure) if failure.is_status(StatusCode::CONFLICT) => {
                Err(CatalogError::TableExists { table: table.to_string(), catalog: self.description() })
            }
            Err(failure) => Err(failure.into_error(act)),
        }
    }

    /// Storage of a table, with the settings that the server gave for it.
    fn table_storage(&self, config: Option<BTreeMap<String, Option<String>>>) -> Storage {
        let mut storage = self.storage.clone();
        // A token in a table's settings is for the catalog, and no business of those who read files.
        let config = config.unwrap_or_default().into_iter().filter(|(key, _)| key != "token");
        storage.0.extend(config.filter_map(|(key, value)| Some((key, value?))));
        Storage::new(storage)
    }

    async fn has_namespace(&self, namespace: &NamespaceIdent, act: &str) -> Result<bool, CatalogError> {
        match self.http.get(&self.paths.namespace(namespace)).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_status(StatusCode::NOT_FOUND) => Ok(false),
            Err(failure) => Err(failure.into_error(act)),
        }
    }
}

/// Why a commit was not answered with success. The errors are boxed, for the results that carry them are small.
#[derive(Debug)]
enum Posted {
    Conflicted,
    Refused(Box<CatalogError>),
    Unknown(Box<CatalogError>),
}

fn table_answer(body: &[u8], act: &str) -> Result<wire::Table, CatalogError> {
    serde_json::from_slice(body).map_err(|error| CatalogError::Corrupt {
        act: act.to_owned(),
        problem: format!("the catalog's answer is not a table: {error}"),
    })
}

fn version_number(version: FormatVersion) -> &'static str {
    match version {
        FormatVersion::V1 => "1",
        FormatVersion::V2 => "2",
        FormatVersion::V3 => "3",
    }
}

/// The updates that make a staged table, with its own schema. A plain create call would number the fields anew.
fn creating_updates(staged: &TableMetadata) -> Vec<TableUpdate> {
    let mut updates = vec![
        TableUpdate::AssignUuid { uuid: staged.uuid() },
        TableUpdate::UpgradeFormatVersion { format_version: staged.format_version() },
        TableUpdate::AddSchema { schema: staged.current_schema().as_ref().clone() },
        TableUpdate::SetCurrentSchema { schema_id: LAST_ADDED },
        TableUpdate::AddSpec { spec: UnboundPartitionSpec::builder().with_spec_id(0).build() },
        TableUpdate::SetDefaultSpec { spec_id: LAST_ADDED },
        TableUpdate::AddSortOrder { sort_order: SortOrder::unsorted_order() },
        TableUpdate::SetDefaultSortOrder { sort_order_id: i64::from(LAST_ADDED) },
        TableUpdate::SetLocation { location: staged.location().to_owned() },
    ];
    if !staged.properties().is_empty() {
        updates.push(TableUpdate::SetProperties { updates: staged.properties().clone() });
    }
    updates
}

/// Whether the table that was made has the columns that it was staged with.
fn keeps_columns(made: &LoadedTable, staged: &LoadedTable) -> bool {
    metadata::same_columns(made.metadata.current_schema(), staged.metadata.current_schema())
}

#[async_trait]
impl Catalog for RestCatalog {
    fn description(&self) -> String {
        match &self.warehouse {
            Some(warehouse) => format!("rest catalog at {}, warehouse {warehouse}", self.shown),
            None => format!("rest catalog at {}", self.shown),
        }
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        let act = format!("load table {table}");
        match self.http.get(&self.paths.table(table)?).await {
            Ok(body) => self.loaded(table, &body, &act),
            Err(failure) if failure.is_status(StatusCode::NOT_FOUND) => {
                Err(CatalogError::TableNotFound { table: table.to_string(), catalog: self.description() })
            }
            Err(failure) => Err(failure.into_error(&act)),
        }
    }

    async fn ensure_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        let act = format!("make namespace {namespace} in the {}", self.description());
        if self.has_namespace(namespace, &act).await? {
            return Ok(());
        }
        if let Some(parent) = namespace.parent() {
            self.ensure_namespace(&parent).await?;
        }
        let body = wire::CreateNamespace { namespace, properties: HashMap::new() };
        match self.http.post(&self.paths.namespaces(), &body).await {
            Ok(_) => Ok(()),
            // Somebody else made it, or the answer was lost, or the server failed over two who made it at once: it
            // is nobody's in particular, so what counts is whether it is there.
            Err(failure) => match self.has_namespace(namespace, &act).await {
                Ok(true) => Ok(()),
                _ => Err(failure.into_error(&act)),
            },
        }
    }

    async fn stage_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        let act = format!("create table {table}");
        metadata::check_schema(&act, &creation)?;
        metadata::check_properties(&act, &creation)?;
        let (staged, storage) = self.stage(table, &creation, &act).await?;
        let mut properties = staged.properties().clone();
        properties.extend(creation.properties);
        // The server has numbered the fields anew; ours is the schema that the commit brings.
        let own = metadata::create(table, staged.location(), TableCreation { properties, ..creation })?;
        let own = own.into_builder(None).assign_uuid(staged.uuid()).build();
        let own = own.map_err(|source| CatalogError::Iceberg { act, source: Box::new(source) })?;
        let metadata_location = String::new();
        Ok(LoadedTable { ident: table.clone(), metadata: Arc::new(own.metadata), metadata_location, storage })
    }

    async fn commit(
        &self,
        base: &LoadedTable,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        let act = format!("commit to table {}", base.ident);
        let (requirements, updates) = match base.is_staged() {
            true => (vec![TableRequirement::NotExist], [creating_updates(&base.metadata), updates].concat()),
            false => (requirements, updates),
        };
        let body = match self.post_commit(&base.ident, &requirements, &updates, &act).await {
            Ok(body) => body,
            Err(Posted::Conflicted) => return CommitOutcome::Conflicted,
            Err(Posted::Refused(error)) => return CommitOutcome::Refused(*error),
            Err(Posted::Unknown(error)) => return CommitOutcome::Unknown(*error),
        };
        match self.loaded(&base.ident, &body, &act) {
            Ok(table) if base.is_staged() && !keeps_columns(&table, base) => {
                let problem = "the catalog changed the schema it was given, field ids included, although it said yes; \
                               the table is there and holds files of another schema: drop it"
                    .into();
                CommitOutcome::Unknown(CatalogError::Refused { act, problem })
            }
            // A commit's answer has no settings for storage: those that the table was loaded with go on.
            Ok(table) => CommitOutcome::Committed(LoadedTable { storage: base.storage.clone(), ..table }),
            // The server said yes in words that are not understood.
            Err(error) => match self.load_table(&base.ident).await {
                Ok(table) => CommitOutcome::Committed(table),
                Err(_) => CommitOutcome::Unknown(error),
            },
        }
    }
}

#[cfg(test)]
mod tests;
