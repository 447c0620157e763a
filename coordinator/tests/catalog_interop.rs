//! Catalogs that other tools share with us: pyiceberg opens what we made, we open what it made, and each sees the
//! other's commits. Needs a Python with pyiceberg and pyarrow at `ICEFERRY_TEST_PYTHON`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use iceberg::spec::{FormatVersion, NestedField, PrimitiveType, Schema, Type};
use iceberg::{TableIdent, TableRequirement, TableUpdate};
use iceferry_coordinator::catalog::{self, Catalog, CommitOutcome, LoadedTable, TableCreation};

/// The Python to use, or a loud note that a test is left out.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("ICEFERRY_TEST_PYTHON").ok();
    if python.is_none() {
        eprintln!("LEFT OUT: {test}, for ICEFERRY_TEST_PYTHON is not set");
    }
    python
}

/// Runs a script with `catalog` opened by pyiceberg, and gives what it printed.
fn run(python: &str, folder: &Path, script: &str) -> String {
    let script = format!(
        "import pyarrow as pa, sys\n\
         from pyiceberg.catalog.sql import SqlCatalog\n\
         from pyiceberg.schema import Schema\n\
         from pyiceberg.types import NestedField, LongType, StringType\n\
         catalog = SqlCatalog('default', uri='sqlite:///{0}/catalog.db', warehouse='file://{0}/w')\n\
         {script}",
        folder.display()
    );
    let output = Command::new(python).args(["-W", "ignore", "-c", &script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn open(folder: &Path) -> Arc<dyn Catalog> {
    let properties = HashMap::from([
        ("type".to_owned(), "sql".to_owned()),
        ("uri".to_owned(), format!("sqlite:///{}/catalog.db", folder.display())),
        ("warehouse".to_owned(), format!("file://{}/w", folder.display())),
    ]);
    catalog::open(&properties).await.unwrap()
}

async fn set(catalog: &dyn Catalog, table: &LoadedTable, key: &str, value: &str) -> LoadedTable {
    let requirements = vec![TableRequirement::UuidMatch { uuid: table.metadata.uuid() }];
    let updates = vec![TableUpdate::SetProperties { updates: HashMap::from([(key.to_owned(), value.to_owned())]) }];
    match catalog.commit(table, requirements, updates).await {
        CommitOutcome::Committed(table) => table,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pyiceberg_opens_and_appends_to_a_table_that_we_made() {
    let Some(python) = python("pyiceberg_opens_and_appends_to_a_table_that_we_made") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let catalog = open(folder.path()).await;
    let table = TableIdent::from_strs(["my ns", "a.b x"]).unwrap();
    let id = NestedField::required(9, "id", Type::Primitive(PrimitiveType::Long)).with_doc("the key");
    let v = NestedField::optional(5, "v", Type::Primitive(PrimitiveType::String));
    let schema = Schema::builder().with_fields([id.into(), v.into()]).with_identifier_field_ids([9]).build().unwrap();
    for (codec, name) in [("none", table.clone()), ("gzip", TableIdent::from_strs(["my ns", "packed"]).unwrap())] {
        let creation = TableCreation {
            schema: schema.clone(),
            format_version: FormatVersion::V2,
            properties: HashMap::from([("write.metadata.compression-codec".to_owned(), codec.to_owned())]),
        };
        catalog.ensure_namespace(name.namespace()).await.unwrap();
        let made = catalog.ensure_table(&name, creation).await.unwrap();
        set(&*catalog, &made, "by", "us").await;
    }
    let script = "assert catalog.list_namespaces() == [('my ns',)]\n\
         for name in ['a.b x', 'packed']:\n    \
             t = catalog.load_table(('my ns', name))\n    \
             print([(f.field_id, f.name, f.required, f.doc) for f in t.schema().fields], t.schema().identifier_field_ids, t.properties['by'])\n    \
             schema = pa.schema([pa.field('id', pa.int64(), False), pa.field('v', pa.string())])\n    \
             t.append(pa.table({'id': [1, 2], 'v': ['a', None]}, schema=schema))";
    let line = "[(9, 'id', True, 'the key'), (5, 'v', False, None)] [9] us";
    assert_eq!(run(&python, folder.path(), script), format!("{line}\n{line}"));
    for name in [table, TableIdent::from_strs(["my ns", "packed"]).unwrap()] {
        let loaded = catalog.load_table(&name).await.unwrap();
        let summary = &loaded.metadata.current_snapshot().unwrap().summary().additional_properties;
        assert_eq!(summary.get("total-records").map(String::as_str), Some("2"));
        set(&*catalog, &loaded, "by", "us again").await;
    }
    let script = "for name in ['a.b x', 'packed']:\n    \
             t = catalog.load_table(('my ns', name))\n    \
             print(t.properties['by'], t.scan().to_arrow().to_pylist())";
    let line = "us again [{'id': 1, 'v': 'a'}, {'id': 2, 'v': None}]";
    assert_eq!(run(&python, folder.path(), script), format!("{line}\n{line}"));
}

#[tokio::test]
async fn we_open_and_commit_to_a_table_that_pyiceberg_made() {
    let Some(python) = python("we_open_and_commit_to_a_table_that_pyiceberg_made") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = "catalog.create_namespace('a.b')\n\
         schema = pa.schema([pa.field('id', pa.int64()), pa.field('v', pa.string())])\n\
         t = catalog.create_table('a.b.t', schema)\n\
         t.append(pa.table({'id': [1], 'v': ['a']}, schema=schema))\n\
         t.manage_snapshots().create_tag(t.current_snapshot().snapshot_id, 'kept').commit()";
    run(&python, folder.path(), script);
    let catalog = open(folder.path()).await;
    let table = TableIdent::from_strs(["a", "b", "t"]).unwrap();
    let loaded = catalog.load_table(&table).await.unwrap();
    let after = set(&*catalog, &loaded, "by", "us").await;
    assert!(after.metadata.snapshot_for_ref("kept").is_some());
    let other = TableIdent::from_strs(["a", "b", "other"]).unwrap();
    let creation = TableCreation {
        schema: loaded.metadata.current_schema().as_ref().clone(),
        format_version: FormatVersion::V2,
        properties: HashMap::new(),
    };
    catalog.ensure_namespace(other.namespace()).await.unwrap();
    catalog.ensure_table(&other, creation).await.unwrap();
    let script = "t = catalog.load_table('a.b.t')\n\
         print(t.properties['by'], t.scan().to_arrow().to_pylist(), sorted(t.refs()), sorted(catalog.list_tables('a.b')))\n\
         t.append(t.scan().to_arrow())\n\
         print(len(t.scan().to_arrow()), len(t.metadata.metadata_log))";
    let expected = "us [{'id': 1, 'v': 'a'}] ['kept', 'main'] [('a', 'b', 'other'), ('a', 'b', 't')]\n2 4";
    assert_eq!(run(&python, folder.path(), script), expected);
}
