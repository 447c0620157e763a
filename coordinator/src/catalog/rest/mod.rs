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

use std::collections::HashMap;
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
        let mut storage = self.storage.clone();
        // A token in a table's settings is for the catalog, and no business of those who read files.
        let config = answer.config.unwrap_or_default().into_iter().filter(|(key, _)| key != "token");
        storage.0.extend(config.filter_map(|(key, value)| Some((key, value?))));
        Ok(LoadedTable {
            ident: table.clone(),
            metadata: Arc::new(metadata),
            metadata_location,
            storage: Storage::new(storage),
        })
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

    /// Has the server say how it would make the table: where it puts it, and with which properties of its own.
    async fn stage(
        &self,
        table: &TableIdent,
        creation: &TableCreation,
        act: &str,
    ) -> Result<Option<TableMetadata>, CatalogError> {
        let mut properties = creation.properties.clone();
        properties.insert("format-version".into(), version_number(creation.format_version).into());
        let body = wire::CreateTable { name: table.name(), schema: &creation.schema, stage_create: true, properties };
        match self.http.post(&self.paths.tables(table.namespace()), &body).await {
            Ok(body) => Ok(Some(metadata::from_json(table_answer(&body, act)?.metadata, act)?)),
            Err(failure) if failure.is_status(StatusCode::CONFLICT) => Ok(None),
            Err(failure) => Err(failure.into_error(act)),
        }
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

/// The updates that make the table which the server staged, but with our schema. A plain create call would number the
/// fields anew.
fn creating_updates(staged: &TableMetadata, creation: TableCreation) -> Vec<TableUpdate> {
    let mut properties = staged.properties().clone();
    properties.extend(creation.properties);
    let mut updates = vec![
        TableUpdate::AssignUuid { uuid: staged.uuid() },
        TableUpdate::UpgradeFormatVersion { format_version: creation.format_version },
        TableUpdate::AddSchema { schema: creation.schema },
        TableUpdate::SetCurrentSchema { schema_id: LAST_ADDED },
        TableUpdate::AddSpec { spec: UnboundPartitionSpec::builder().with_spec_id(0).build() },
        TableUpdate::SetDefaultSpec { spec_id: LAST_ADDED },
        TableUpdate::AddSortOrder { sort_order: SortOrder::unsorted_order() },
        TableUpdate::SetDefaultSortOrder { sort_order_id: i64::from(LAST_ADDED) },
        TableUpdate::SetLocation { location: staged.location().to_owned() },
    ];
    if !properties.is_empty() {
        updates.push(TableUpdate::SetProperties { updates: properties });
    }
    updates
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

    async fn ensure_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        match self.load_table(table).await {
            Err(CatalogError::TableNotFound { .. }) => {}
            there_or_failed => return there_or_failed,
        }
        let act = format!("create table {table}");
        metadata::check_schema(&act, &creation)?;
        metadata::check_properties(&act, &creation)?;
        let Some(staged) = self.stage(table, &creation, &act).await? else {
            return self.load_table(table).await;
        };
        let schema = creation.schema.clone();
        let updates = creating_updates(&staged, creation);
        match self.post_commit(table, &[TableRequirement::NotExist], &updates, &act).await {
            Ok(_) => {}
            // Somebody else made it first; or the answer was lost, and whatever is there now is the one to use.
            Err(Posted::Conflicted) => return self.load_table(table).await,
            Err(Posted::Refused(error)) => return Err(*error),
            Err(Posted::Unknown(error)) => return self.load_table(table).await.map_err(|_| *error),
        }
        let made = self.load_table(table).await?;
        if made.metadata.uuid() == staged.uuid() && !metadata::same_columns(made.metadata.current_schema(), &schema) {
            let problem =
                "the catalog changed the schema it was given, field ids included; the table is there and can \
                           be dropped"
                    .into();
            return Err(CatalogError::Refused { act, problem });
        }
        Ok(made)
    }

    async fn commit(
        &self,
        base: &LoadedTable,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        let act = format!("commit to table {}", base.ident);
        let body = match self.post_commit(&base.ident, &requirements, &updates, &act).await {
            Ok(body) => body,
            Err(Posted::Conflicted) => return CommitOutcome::Conflicted,
            Err(Posted::Refused(error)) => return CommitOutcome::Refused(*error),
            Err(Posted::Unknown(error)) => return CommitOutcome::Unknown(*error),
        };
        match self.loaded(&base.ident, &body, &act) {
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
