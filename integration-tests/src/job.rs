//! Job files.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Fixture, Source};

/// The name that pyiceberg gives to the SQL catalogs of the tests; one database may hold several.
const SQL_CATALOG: &str = "iceferry";

/// A catalog, as a job file names it.
#[derive(Debug, Clone)]
pub enum Catalog {
    /// Folders and nothing else.
    Hadoop {
        /// Its warehouse.
        warehouse: PathBuf,
    },
    /// A database.
    Sql {
        /// Its address, as pyiceberg writes it.
        uri: String,
        /// Where new tables go.
        warehouse: PathBuf,
    },
    /// A REST server.
    Rest {
        /// Its address.
        uri: String,
    },
}

impl Catalog {
    /// A Hadoop catalog in a folder.
    pub fn hadoop(warehouse: impl Into<PathBuf>) -> Self {
        Self::Hadoop { warehouse: warehouse.into() }
    }

    /// A SQL catalog on SQLite in a folder.
    pub fn sqlite(folder: &Path) -> Self {
        let uri = format!("sqlite:///{}", folder.join("catalog.db").display());
        Self::Sql { uri, warehouse: folder.join("warehouse") }
    }

    /// The `catalog_properties` of a job file.
    pub fn properties(&self) -> Value {
        match self {
            Self::Hadoop { warehouse } => json!({"type": "hadoop", "warehouse": warehouse}),
            Self::Sql { uri, warehouse } => {
                json!({"type": "sql", "uri": uri, "warehouse": warehouse, "catalog_name": SQL_CATALOG})
            }
            Self::Rest { uri } => json!({"type": "rest", "uri": uri}),
        }
    }
}

/// A job file in the making.
#[derive(Debug, Clone)]
pub struct Job {
    name: String,
    source: Map<String, Value>,
    target: Map<String, Value>,
}

impl Job {
    /// A mirror of a source table.
    pub fn new(name: &str, source: &Catalog, source_table: &str, target: &Catalog, target_table: &str) -> Self {
        let side = |catalog: &Catalog, table: &str| {
            let mut side = Map::new();
            side.insert("table".into(), table.into());
            side.insert("catalog_properties".into(), catalog.properties());
            side
        };
        let mut job =
            Self { name: name.to_owned(), source: side(source, source_table), target: side(target, target_table) };
        job.target.insert("mode".into(), "merge-on-read".into());
        job
    }

    /// A mirror of a fixture.
    pub fn of_fixture(fixture: &Fixture, target: &Catalog, target_table: &str, keys: &[&str]) -> Self {
        let source = Catalog::hadoop(Fixture::warehouse());
        // A job's name is letters, digits and hyphens, which suits every catalog and store.
        let name = fixture.name.replace('_', "-");
        Self::new(&name, &source, &fixture.table(), target, target_table).keys(keys)
    }

    /// A mirror of a generated source, keyed by its id.
    pub fn of_source(source: &Source, target: &Catalog, target_table: &str) -> Self {
        Self::new("generated", &source.catalog(), &source.table, target, target_table).keys(&["id"])
    }

    /// A target that takes row groups of any size as they are, and whole files of at least a 32nd of these bytes.
    pub fn of_small_files(self, target_file_bytes: u64) -> Self {
        let properties = json!({
            "write.parquet.row-group-size-bytes": "1",
            "write.target-file-size-bytes": target_file_bytes.to_string(),
        });
        self.target("table_properties", properties)
    }

    /// The key columns; none leaves them to the identifier fields.
    pub fn keys(self, keys: &[&str]) -> Self {
        if keys.is_empty() { self } else { self.target("equality_columns", json!(keys)) }
    }

    /// The last source snapshot to carry.
    pub fn to_snapshot(self, id: &str) -> Self {
        let id: u64 = id.parse().expect("a snapshot id");
        self.source("to_snapshot", id.into())
    }

    /// Sets a key of the source.
    pub fn source(mut self, key: &str, value: Value) -> Self {
        self.source.insert(key.into(), value);
        self
    }

    /// Takes a key of the source away.
    pub fn without_source(mut self, key: &str) -> Self {
        self.source.remove(key);
        self
    }

    /// Sets a key of the target.
    pub fn target(mut self, key: &str, value: Value) -> Self {
        self.target.insert(key.into(), value);
        self
    }

    /// Writes the file. JSON is YAML, and leaves no question of quoting.
    pub fn write(&self, path: &Path) -> PathBuf {
        let job = json!({"name": self.name, "source": self.source, "target": self.target});
        std::fs::write(path, serde_json::to_string_pretty(&job).expect("a job is JSON")).expect("write the job file");
        path.to_owned()
    }
}
