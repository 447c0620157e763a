//! The tables that Spark and Iceberg-Java wrote, with the rows that Spark read at each of their snapshots.

use std::path::{Path, PathBuf};

use serde::Deserialize;

const ROOT: &str = "/tmp/iceferry-fixtures";

/// One fixture table.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// Its name; the namespace is `db`.
    pub name: String,
    /// Format version.
    pub format_version: u8,
    /// Names of its identifier fields.
    pub identifier_columns: Vec<String>,
    /// Its current metadata file.
    pub metadata: PathBuf,
    /// The snapshots of main's history, oldest first.
    pub main: Vec<MainSnapshot>,
}

/// A snapshot of main's history.
#[derive(Debug, Clone)]
pub struct MainSnapshot {
    /// Its id.
    pub id: String,
    /// Schema that it was written with.
    pub schema_id: Option<i32>,
    /// The snapshot's operation.
    pub operation: String,
    /// Its rows: sorted canonical JSON lines.
    pub lines: Vec<String>,
}

#[derive(Deserialize)]
struct Summary {
    format_version: u8,
    metadata: PathBuf,
    identifier_field_ids: Vec<i64>,
    snapshots: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    snapshot_id: String,
    main_ordinal: Option<usize>,
    schema_id: Option<i32>,
    operation: String,
    rows: usize,
    file: String,
}

impl Fixture {
    /// The fixture of this name.
    pub fn load(name: &str) -> Self {
        let folder = Path::new(ROOT).join("expected").join(name);
        let text = std::fs::read_to_string(folder.join("snapshots.json")).expect("the fixture is unpacked");
        let summary: Summary = serde_json::from_str(&text).expect("snapshots.json as documented");
        let mut listed: Vec<Listed> = summary.snapshots.into_iter().filter(|s| s.main_ordinal.is_some()).collect();
        listed.sort_by_key(|s| s.main_ordinal);
        let main = listed.into_iter().map(|s| {
            let text = std::fs::read_to_string(folder.join(&s.file)).expect("the expected rows are unpacked");
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            assert_eq!(lines.len(), s.rows, "{name}: {} is damaged", s.file);
            MainSnapshot { id: s.snapshot_id, schema_id: s.schema_id, operation: s.operation, lines }
        });
        let identifier_columns = names_of(&summary.metadata, &summary.identifier_field_ids);
        let (format_version, main) = (summary.format_version, main.collect());
        Self { name: name.to_owned(), format_version, identifier_columns, metadata: summary.metadata, main }
    }

    /// All fixtures' names.
    pub fn names() -> Vec<String> {
        let folder = std::fs::read_dir(Path::new(ROOT).join("expected")).expect("the fixtures are unpacked");
        let mut names: Vec<String> =
            folder.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The warehouse of the Hadoop catalog with all fixtures.
    pub fn warehouse() -> PathBuf {
        Path::new(ROOT).join("spark")
    }

    /// Its name in that catalog.
    pub fn table(&self) -> String {
        format!("db.{}", self.name)
    }
}

/// Names of the top-level columns with these ids, in a table's current schema.
fn names_of(metadata: &Path, ids: &[i64]) -> Vec<String> {
    let text = std::fs::read_to_string(metadata).expect("the fixture's metadata is unpacked");
    let metadata: serde_json::Value = serde_json::from_str(&text).expect("metadata is JSON");
    let schemas = metadata["schemas"].as_array().expect("schemas");
    let schema =
        schemas.iter().find(|schema| schema["schema-id"] == metadata["current-schema-id"]).expect("a current one");
    let fields = schema["fields"].as_array().expect("fields").iter();
    let named = fields.filter(|field| field["id"].as_i64().is_some_and(|id| ids.contains(&id)));
    named.map(|field| field["name"].as_str().expect("a name").to_owned()).collect()
}
