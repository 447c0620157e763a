//! The lab itself: the readers that the other tests believe are right, tell rows apart and survive what they cannot read.

use std::path::Path;

use iceferry_integration_tests::{Component, Damage, Engine, Fixture, Lab, Reader, Scratch, Source, table_metadata};

/// The metadata of a fixture's source.
fn metadata(fixture: &Fixture) -> std::path::PathBuf {
    let found = table_metadata(&Fixture::warehouse().join("db").join(&fixture.name));
    found.into_iter().next().expect("the fixture is unpacked")
}

/// Reads a source at all snapshots of main, as Spark read it.
fn agrees(lab: &Lab, engine: Engine, names: &[&str]) {
    let mut reader = Reader::start(lab, engine);
    for name in names {
        let fixture = Fixture::load(name);
        let metadata = metadata(&fixture);
        for snapshot in &fixture.main {
            let rows = reader.try_rows(&metadata, Some(&snapshot.id));
            assert_eq!(rows.as_ref(), Ok(&snapshot.lines), "{engine:?}: {name} at {}", snapshot.id);
        }
    }
}

#[test]
fn duckdb_reads_what_spark_wrote() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    agrees(&lab, Engine::DuckDb, &["g_cow", "k_keyed_v3", "i_types", "i_time"]);
}

#[test]
fn sidequery_reads_equality_deletes_with_null_keys_and_partitions() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Side]) else { return };
    agrees(&lab, Engine::Sidequery, &["c_eqdel", "c_eqdel_part", "o_null_part"]);
}

#[test]
fn a_reader_goes_on_after_an_error() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let fixture = Fixture::load("c_eqdel");
    let mut reader = Reader::start(&lab, Engine::PyIceberg);
    // Its equality deletes are what this engine refuses; its first snapshot has none.
    assert!(reader.try_rows(Path::new("/no/such.metadata.json"), None).is_err());
    assert!(reader.try_rows(&metadata(&fixture), None).is_err());
    let first = &fixture.main[0];
    assert_eq!(reader.try_rows(&metadata(&fixture), Some(&first.id)).as_ref(), Ok(&first.lines));
}

#[test]
fn a_digest_tells_one_changed_row() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let fixture = Fixture::load("b_posdel");
    let metadata = metadata(&fixture);
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    let digests: Vec<_> = fixture.main.iter().map(|s| reader.digest_at(&metadata, Some(&s.id))).collect();
    // Two rows deleted, three updated, and a compaction that changes no row.
    assert_eq!(digests.iter().map(|d| d.rows).collect::<Vec<_>>(), [100, 98, 98, 98]);
    assert_ne!(digests[1], digests[2]);
    assert_eq!(digests[2], digests[3]);
}

#[test]
fn listed_files_tell_their_kind() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let mut reader = Reader::start(&lab, Engine::PyIceberg);
    let files = reader.files(&metadata(&Fixture::load("c_eqdel")));
    let count = |content: &str| files.iter().filter(|file| file.content == content).count();
    assert_eq!(count("equality-deletes"), 4);
    assert!(count("position-deletes") > 0 && count("data") > 0);
    assert!(files.iter().any(|file| file.current) && files.iter().all(|file| !file.snapshots.is_empty()));
}

#[test]
fn damage_is_seen_by_others_too() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    for damage in [Damage::Truncated, Damage::Orc, Damage::UnsupportedType] {
        let source = Source::make(&lab, &scratch.join(format!("{damage:?}")), 2, 100);
        let mut reader = Reader::start(&lab, Engine::DuckDb);
        assert_eq!(reader.digest(&source.metadata).rows, 175, "{damage:?}: whole");
        assert_eq!(reader.digest_at(&source.metadata, Some(source.full())).rows, 200, "{damage:?}: whole");
        let source = source.damage(&lab, damage);
        let error = reader.try_rows(&source.metadata, None).expect_err("it is damaged");
        assert!(!error.is_empty(), "{damage:?}");
    }
}
