//! Tables that Spark with Iceberg Java wrote, in a Hadoop warehouse at `ICEFERRY_TEST_HADOOP_WAREHOUSE`: all load, and
//! nothing that their metadata says is lost when a commit writes it again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use iceberg::spec::FormatVersion;
use iceberg::{TableIdent, TableUpdate};
use iceferry_coordinator::catalog::{self, CommitOutcome};
use serde_json::Value;

/// Paths of what `after` lacks or has otherwise. Keys that a commit moves by itself are not looked at.
fn lost(before: &Value, after: Option<&Value>, path: &str, found: &mut Vec<String>) {
    const MOVES: [&str; 4] = ["last-updated-ms", "metadata-log", "properties", "schema"];
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match (before, after) {
        (before, None) if empty(before) || *before == -1 => {}
        (Value::Object(fields), Some(Value::Object(others))) => {
            for (key, value) in fields.iter().filter(|(key, _)| !path.is_empty() || !MOVES.contains(&key.as_str())) {
                lost(value, others.get(key), &format!("{path}/{key}"), found);
            }
        }
        (Value::Array(items), Some(Value::Array(others))) if items.len() == others.len() => {
            // Lists of things with ids, and of ids alone, come in any order.
            let id = |value: &Value| {
                let keys = ["snapshot-id", "schema-id", "spec-id", "order-id"];
                let own = value.is_i64().then_some(value);
                own.or_else(|| keys.iter().find_map(|key| value.get(key))).map(Value::to_string).unwrap_or_default()
            };
            let (mut items, mut others) = (items.clone(), others.clone());
            items.sort_by_key(id);
            others.sort_by_key(id);
            for (index, item) in items.iter().enumerate() {
                lost(item, others.get(index), &format!("{path}/{index}"), found);
            }
        }
        (before, Some(after)) if before == after => {}
        (before, after) => found.push(format!("{path}: {before} became {after:?}")),
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn tables(warehouse: &Path) -> Vec<(String, String, PathBuf)> {
    let folders = |path: &Path| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found = Vec::new();
    for namespace in folders(warehouse) {
        for table in folders(&namespace) {
            if table.join("metadata").is_dir() {
                found.push((name(&namespace), name(&table), table));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn all_tables_load_and_a_commit_loses_nothing_of_them() {
    let Ok(warehouse) = std::env::var("ICEFERRY_TEST_HADOOP_WAREHOUSE") else {
        eprintln!(
            "LEFT OUT: all_tables_load_and_a_commit_loses_nothing_of_them, for ICEFERRY_TEST_HADOOP_WAREHOUSE is not set"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(Path::new(&warehouse));
    assert!(!tables.is_empty());
    let properties = HashMap::from([
        ("type".to_owned(), "hadoop".to_owned()),
        ("warehouse".to_owned(), folder.path().display().to_string()),
    ]);
    let catalog = catalog::open(&properties).await.unwrap();
    for (namespace, name, path) in tables {
        copy(&path.join("metadata"), &folder.path().join(&namespace).join(&name).join("metadata"));
        let table = TableIdent::from_strs([&namespace, &name]).unwrap();
        let loaded = catalog.load_table(&table).await.unwrap();
        assert!(loaded.metadata.current_snapshot().is_some(), "{table}");
        let updates = vec![TableUpdate::SetProperties { updates: HashMap::from([("a".to_owned(), "b".to_owned())]) }];
        let outcome = catalog.commit(&loaded, vec![], updates).await;
        if loaded.metadata.format_version() == FormatVersion::V1 {
            assert!(matches!(outcome, CommitOutcome::Refused(_)), "{table}: {outcome:?}");
            continue;
        }
        let CommitOutcome::Committed(after) = outcome else { panic!("{table}: {outcome:?}") };
        let json = |location: &str| -> Value { serde_json::from_slice(&std::fs::read(location).unwrap()).unwrap() };
        let mut found = Vec::new();
        lost(&json(&loaded.metadata_location), Some(&json(&after.metadata_location)), "", &mut found);
        assert!(found.is_empty(), "{table}: {found:#?}");
    }
}
