//! The Hadoop catalog: a warehouse folder, a folder for each namespace and table, and in each table's metadata folder
//! files that are numbered without a gap. The highest number is the table; a commit creates the next one, which the
//! storage gives to one writer only.

mod folder;
mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::{Storage, StorageError};

use self::folder::{Folder, Published};
use super::metadata::{self, Changed, NotChanged};
use super::properties::{Properties, local_folder, path_parts};
use super::{Catalog, CatalogError, CommitOutcome, LoadedTable, TableCreation};

/// How often a load looks again when the file that was the newest is gone before it was read.
const LOADS_MAX: u32 = 3;

/// Tables in folders.
#[derive(Debug)]
pub(super) struct HadoopCatalog {
    warehouse: String,
    storage: Storage,
}

impl HadoopCatalog {
    /// The catalog that the properties describe. Nothing is contacted.
    pub(super) fn open(properties: &Properties) -> Result<Self, CatalogError> {
        Ok(Self { warehouse: properties.warehouse("hadoop")?, storage: properties.storage() })
    }

    fn table_location(&self, table: &TableIdent) -> Result<String, CatalogError> {
        Ok(format!("{}/{}", self.warehouse, path_parts(table)?.join("/")))
    }

    fn folder(&self, table: &TableIdent) -> Result<Folder<'_>, CatalogError> {
        Ok(Folder { storage: &self.storage, location: format!("{}/metadata", self.table_location(table)?) })
    }

    /// Why a table is not there: the warehouse itself may be missing, which is another mistake.
    async fn not_found(&self, table: &TableIdent) -> CatalogError {
        if let Some(path) = local_folder(&self.warehouse)
            && !tokio::fs::try_exists(&path).await.unwrap_or(true)
        {
            return CatalogError::NotFound {
                act: format!("load table {table}"),
                missing: format!("the warehouse {}", self.warehouse),
            };
        }
        CatalogError::TableNotFound { table: table.to_string(), catalog: self.description() }
    }

    async fn try_load(&self, table: &TableIdent) -> Result<Option<LoadedTable>, CatalogError> {
        let folder = self.folder(table)?;
        let failed = |source: StorageError| CatalogError::storage(format!("load table {table}"), source);
        let mut loads = 1;
        loop {
            let Some(newest) = folder.newest().await.map_err(failed)? else {
                return Ok(None);
            };
            let location = folder.file(&newest.name);
            match self.storage.read(&location).await {
                Ok(bytes) => return Ok(Some(self.loaded(table, &bytes, location)?)),
                Err(error) if error.class() == Class::NotFound && loads < LOADS_MAX => loads += 1,
                Err(source) => return Err(failed(source)),
            }
        }
    }

    fn loaded(&self, table: &TableIdent, bytes: &[u8], location: String) -> Result<LoadedTable, CatalogError> {
        Ok(LoadedTable {
            ident: table.clone(),
            metadata: Arc::new(metadata::parse(bytes, &location)?),
            metadata_location: location,
            storage: self.storage.clone(),
        })
    }

    /// The number of the base's version, when it is a version of this very table.
    fn base_version(folder: &Folder<'_>, base: &LoadedTable, act: &str) -> Result<u32, CatalogError> {
        let name = base.metadata_location.strip_prefix(&folder.location).and_then(|rest| rest.strip_prefix('/'));
        name.and_then(versions::parse_name).ok_or_else(|| CatalogError::Refused {
            act: act.to_owned(),
            problem: format!("{} is no version file of {}", base.metadata_location, folder.location),
        })
    }

    async fn try_commit(
        &self,
        base: &LoadedTable,
        requirements: &[TableRequirement],
        updates: Vec<TableUpdate>,
    ) -> Result<CommitOutcome, CatalogError> {
        let act = format!("commit to table {}", base.ident);
        let failed = |source: StorageError| CatalogError::storage(&act, source);
        let folder = self.folder(&base.ident)?;
        // A staged table has no version yet; its first is 1.
        let version = match base.is_staged() {
            true => None,
            false => Some(Self::base_version(&folder, base, &act)?),
        };
        let Changed { metadata, expired } = match metadata::change(base, requirements, updates, &act) {
            Ok(changed) => changed,
            Err(NotChanged::Conflicted) => return Ok(CommitOutcome::Conflicted),
            Err(NotChanged::Refused(error)) => return Err(*error),
        };
        if metadata.location() != base.metadata.location() {
            let problem = "the place of a table in a hadoop catalog follows from its name and cannot change".into();
            return Err(CatalogError::Refused { act, problem });
        }
        let encoded = metadata::encode(&metadata, &act)?;
        // The create below only sees its own name. Where others compress, or have gone far ahead and removed the old
        // versions, that name is free and the table has moved all the same.
        let newest = folder.newest().await.map_err(failed)?;
        if newest.map(|newest| newest.number) != version {
            return Ok(CommitOutcome::Conflicted);
        }
        let next = version.unwrap_or(0).saturating_add(1);
        let location = match folder.publish(next, &encoded, &act).await {
            Published::Ours(location) => location,
            Published::Taken => return Ok(CommitOutcome::Conflicted),
            Published::Unclear(error) => return Ok(CommitOutcome::Unknown(error)),
            Published::Failed(error) => return Err(error),
        };
        // Old versions are removed oldest first: as long as the base is there, nobody had removed a version after it.
        if !base.is_staged() {
            match self.storage.size(&base.metadata_location).await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let missing = format!("{}, the version that was changed,", base.metadata_location);
                    return Ok(CommitOutcome::Unknown(CatalogError::NotFound { act, missing }));
                }
                Err(source) => return Ok(CommitOutcome::Unknown(failed(source))),
            }
        }
        folder.hint(next).await;
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
impl Catalog for HadoopCatalog {
    fn description(&self) -> String {
        format!("hadoop catalog at {}", self.warehouse)
    }

    async fn load_table(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        match self.try_load(table).await? {
            Some(loaded) => Ok(loaded),
            None => Err(self.not_found(table).await),
        }
    }

    /// An object store has no folders to make. On a file system the namespace is one, and other tools list it.
    async fn ensure_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        let Some(mut path) = local_folder(&self.warehouse) else {
            return Ok(());
        };
        // The check is that of a table's name, whose last part does not matter here.
        let parts = TableIdent::new(namespace.clone(), "table".into());
        path.extend(&path_parts(&parts)?[..namespace.len()]);
        if tokio::fs::try_exists(&path).await.unwrap_or(false) {
            return Ok(());
        }
        tokio::fs::create_dir_all(&path).await.map_err(|error| CatalogError::Denied {
            act: format!("make namespace {namespace} in the {}", self.description()),
            answer: format!("{}: {error}", path.display()),
        })
    }

    async fn stage_table(&self, table: &TableIdent, creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        let metadata = metadata::create(table, &self.table_location(table)?, creation)?;
        Ok(LoadedTable {
            ident: table.clone(),
            metadata: Arc::new(metadata),
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
