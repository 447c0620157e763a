//! Looking things up: the catalog's tables, its name, and a table's row.

use iceberg::TableIdent;

use super::super::CatalogError;
use super::super::properties::property;
use super::SqlCatalog;
use super::database::{Database, NotChanged};
use super::tables::{self, Layout};

/// The name of the catalog when neither the properties nor the database say one.
const DEFAULT_NAME: &str = "default";

/// A table's place in the database.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) layout: Layout,
    /// The `catalog_name` column's value.
    pub(super) catalog: String,
    pub(super) namespace: String,
    pub(super) table: String,
}

impl Place {
    /// The row's key.
    pub(super) fn key(&self) -> [&str; 3] {
        [&self.catalog, &self.namespace, &self.table]
    }
}

impl SqlCatalog {
    /// The layout of the catalog's tables; `None` when there is no database or there are no such tables in it.
    pub(super) async fn layout(&self, act: &str) -> Result<Option<Layout>, CatalogError> {
        if !self.database.is_there().await {
            return Ok(None);
        }
        let columns = self.columns(act, "iceberg_tables").await?;
        if columns.is_empty() || self.columns(act, "iceberg_namespace_properties").await?.is_empty() {
            return Ok(None);
        }
        Layout::of(&columns).map(Some).ok_or_else(|| CatalogError::Refused {
            act: act.to_owned(),
            problem: format!("iceberg_tables in {} is not an Iceberg catalog's table", self.address),
        })
    }

    pub(super) async fn columns(&self, act: &str, table: &str) -> Result<Vec<String>, CatalogError> {
        let sql = match self.database {
            Database::Sqlite { .. } => tables::COLUMNS_SQLITE,
            Database::Postgres { .. } => tables::COLUMNS_POSTGRES,
        };
        let rows = self.database.rows(act, sql, &[table]).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
    }

    pub(super) async fn existing_layout(&self, act: &str) -> Result<Layout, CatalogError> {
        let missing = if self.database.is_there().await {
            format!("a table iceberg_tables in {}", self.address)
        } else {
            format!("the database {}", self.address)
        };
        self.layout(act).await?.ok_or(CatalogError::NotFound { act: act.to_owned(), missing })
    }

    /// The layout, after the database and its tables were made where they were missing.
    pub(super) async fn made_layout(&self, act: &str) -> Result<Layout, CatalogError> {
        if let Some(layout) = self.layout(act).await? {
            return Ok(layout);
        }
        self.database.make(act).await?;
        // PostgreSQL fails one of two that make a table at the same time, although both say "if not exists". The one that
        // failed finds the tables there, or makes what the other has not.
        for sql in tables::CREATE {
            let mut made = self.database.change(act, sql, &[]).await;
            if made.is_err() {
                made = self.database.change(act, sql, &[]).await;
            }
            match made {
                Ok(_) | Err(NotChanged::Duplicate | NotChanged::Conflicted) => {}
                Err(NotChanged::Before(error) | NotChanged::AtCommit(error)) => return Err(error),
            }
        }
        self.existing_layout(act).await
    }

    /// The value of the `catalog_name` column: what the properties say, else the only one that there is.
    pub(super) async fn catalog_name(&self, act: &str) -> Result<String, CatalogError> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let rows = self.database.rows(act, tables::CATALOG_NAMES, &[]).await?;
        let mut names: Vec<String> = rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
        match names.len() {
            0 => Ok(DEFAULT_NAME.to_owned()),
            1 => Ok(names.remove(0)),
            _ => Err(property(
                "catalog_name",
                format!("{} holds several catalogs; name one of {}", self.address, names.join(", ")),
            )),
        }
    }

    pub(super) async fn place(&self, act: &str, layout: Layout, table: &TableIdent) -> Result<Place, CatalogError> {
        Ok(Place {
            layout,
            catalog: self.catalog_name(act).await?,
            namespace: table.namespace().join("."),
            table: table.name().to_owned(),
        })
    }

    /// The metadata location in a table's row; `None` when there is no row.
    pub(super) async fn location(&self, act: &str, place: &Place) -> Result<Option<String>, CatalogError> {
        let rows = self.database.rows(act, &place.layout.select(), &place.key()).await?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let mut columns = row.into_iter();
        let (location, kind) = (columns.next().flatten(), columns.next().flatten());
        if kind.is_some_and(|kind| kind != "TABLE") {
            return Err(CatalogError::Refused { act: act.to_owned(), problem: "it is a view, not a table".into() });
        }
        location.map(Some).ok_or_else(|| CatalogError::Corrupt {
            act: act.to_owned(),
            problem: "its row in iceberg_tables has no metadata_location".into(),
        })
    }
}
