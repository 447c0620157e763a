//! Other tools open our targets, whichever catalog they are in, and read the delete files that we write.

use std::path::Path;

use iceferry_integration_tests::{Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Reader, Scratch};
use serde_json::{Value, json};

/// Backfills g_cow into the catalog and carries k_keyed through its history there. pyiceberg opens the backfilled table
/// through the catalog, where it knows its kind; DuckDB reads both, from the metadata that the catalog names.
fn check(lab: &Lab, catalog: &Catalog, namespace: &str, pyiceberg: Option<&Value>, scratch: &Scratch) {
    let iceferry = Iceferry::find();
    let mut duckdb = Reader::start(lab, Engine::DuckDb);
    let mut other = Reader::start(lab, Engine::PyIceberg);

    let plain = Fixture::load("g_cow");
    let table = format!("{namespace}.g_cow");
    let job = Job::of_fixture(&plain, catalog, &table, &["id"]).write(&scratch.join("plain.yaml"));
    let report = iceferry.run(&job).report;
    let expected = &plain.main.last().expect("it has snapshots").lines;
    assert_eq!(duckdb.rows(&report.metadata()), *expected, "DuckDB");
    assert_eq!(other.rows(&report.metadata()), *expected, "pyiceberg, from the metadata file");
    if let Some(properties) = pyiceberg {
        assert_eq!(other.rows_in_catalog(properties, &table), *expected, "pyiceberg, through the catalog");
    }
    assert!(iceferry.run(&job).report.is_nothing_to_do(), "again");

    let keyed = Fixture::load("k_keyed");
    for snapshot in [0, 5, 11, 14].map(|ordinal: usize| &keyed.main[ordinal]) {
        let job = Job::of_fixture(&keyed, catalog, &format!("{namespace}.k_keyed"), &[]).to_snapshot(&snapshot.id);
        let report = iceferry.run(&job.write(&scratch.join("keyed.yaml"))).report;
        assert_eq!(duckdb.rows(&report.metadata()), snapshot.lines, "k_keyed at {}", snapshot.id);
    }
}

/// The namespace of one test in a catalog that tests share.
fn namespace() -> String {
    format!("test_{}", std::process::id())
}

#[test]
fn a_hadoop_target_opens_in_other_tools() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    check(&lab, &Catalog::hadoop(scratch.join("lake")), "lake", None, &scratch);
    let hint = scratch.join("lake/lake/g_cow/metadata/version-hint.text");
    let version = std::fs::read_to_string(&hint).expect("a Hadoop catalog keeps a hint");
    let named = hint.with_file_name(format!("v{}.metadata.json", version.trim()));
    assert!(named.exists(), "the hint names {}", named.display());
}

#[test]
fn an_sqlite_target_opens_in_other_tools() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let catalog = Catalog::sqlite(&scratch.folder("catalog"));
    check(&lab, &catalog, "lake", Some(&catalog.properties()), &scratch);
}

#[test]
fn a_postgres_target_opens_in_other_tools() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Postgres]) else { return };
    let scratch = Scratch::new();
    let uri = lab.postgres().expect("the component is there");
    let warehouse = scratch.folder("warehouse");
    let catalog = Catalog::Sql { uri: uri.clone(), warehouse: warehouse.clone() };
    let driver = uri.replacen("postgresql://", "postgresql+psycopg2://", 1);
    let properties = json!({"type": "sql", "uri": driver, "warehouse": warehouse});
    check(&lab, &catalog, &namespace(), Some(&properties), &scratch);
}

#[test]
fn a_rest_target_opens_in_other_tools() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Rest]) else { return };
    let scratch = Scratch::new();
    let catalog = Catalog::Rest { uri: lab.rest().expect("the component is there") };
    check(&lab, &catalog, &namespace(), Some(&catalog.properties()), &scratch);
}

#[test]
fn a_table_that_pyiceberg_made_is_changed_and_still_opens() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = iceferry_integration_tests::Source::make(&lab, &scratch.join("source"), 2, 100);
    // The target goes into the catalog that pyiceberg made, beside the source.
    let job = Job::of_source(&source, &source.catalog(), "mirror.t").to_snapshot(source.full());
    let iceferry = Iceferry::find();
    iceferry.run(&job.write(&scratch.join("first.yaml")));
    let job = Job::of_source(&source, &source.catalog(), "mirror.t").write(&scratch.join("second.yaml"));
    let report = iceferry.run(&job).report;
    let mut duckdb = Reader::start(&lab, Engine::DuckDb);
    assert_eq!(duckdb.digest(&report.metadata()), duckdb.digest(&source.metadata));
    let mut pyiceberg = Reader::start(&lab, Engine::PyIceberg);
    let still = pyiceberg.rows_in_catalog(&source.catalog().properties(), &source.table);
    assert_eq!(still.len() as u64, duckdb.digest(&source.metadata).rows, "the source is as it was");
}

/// Carries fixtures through their histories and reads the targets, which have equality deletes then, with the engine.
fn reads_equality_deletes(lab: &Lab, engine: Engine) {
    let scratch = Scratch::new();
    let iceferry = Iceferry::find();
    let mut reader = Reader::start(lab, engine);
    let mut files = Reader::start(lab, Engine::PyIceberg);
    // v2 with compound keys, v2 with a null key, v3.
    for (name, keys, version) in [("k_keyed", &[][..], 2), ("c_eqdel", &["id"], 2), ("k_keyed_v3", &[], 3)] {
        let fixture = Fixture::load(name);
        let mut deletes = 0;
        for snapshot in fixture.main.iter().step_by(3).chain(fixture.main.last()) {
            let catalog = Catalog::hadoop(scratch.join("lake"));
            let job = Job::of_fixture(&fixture, &catalog, &format!("lake.{name}"), keys).to_snapshot(&snapshot.id);
            let report = iceferry.run(&job.write(&scratch.join("job.yaml"))).report;
            let metadata = report.metadata();
            assert_eq!(format_version(&metadata), version, "{name}");
            assert_eq!(reader.rows(&metadata), snapshot.lines, "{engine:?}: {name} at {}", snapshot.id);
            deletes += files.files(&metadata).iter().filter(|file| file.content == "equality-deletes").count();
        }
        assert!(deletes > 0, "{name}: the target has no equality deletes, so nothing was shown");
    }
}

fn format_version(metadata: &Path) -> u64 {
    let text = std::fs::read_to_string(metadata).expect("the report names the metadata file");
    let metadata: Value = serde_json::from_str(&text).expect("metadata is JSON");
    metadata["format-version"].as_u64().expect("a number")
}

#[test]
fn sidequery_reads_targets_with_equality_deletes() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Side]) else { return };
    reads_equality_deletes(&lab, Engine::Sidequery);
}

#[test]
fn spark_reads_targets_with_equality_deletes() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Spark]) else { return };
    reads_equality_deletes(&lab, Engine::Spark);
}

#[test]
fn spark_reads_every_kind_of_value() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Spark]) else { return };
    let scratch = Scratch::new();
    let fixture = Fixture::load("i_types");
    let job = Job::of_fixture(&fixture, &Catalog::hadoop(scratch.join("lake")), "lake.i_types", &["id"]);
    let report = Iceferry::find().run(&job.write(&scratch.join("job.yaml"))).report;
    let rows = Reader::start(&lab, Engine::Spark).rows(&report.metadata());
    assert_eq!(rows, fixture.main.last().expect("it has snapshots").lines);
}
