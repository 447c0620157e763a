//! The README's first command, as a person runs it.

use std::path::PathBuf;
use std::time::Duration;

use iceferry_integration_tests::{Child, Component, Engine, Iceferry, Lab, Output, Reader, Scratch, table_metadata};

/// Runs the demo in a folder and gives what it said; the test fails when the demo does.
fn demo(iceferry: &Iceferry, scratch: &Scratch, args: &[&str]) -> Output {
    let mut command = iceferry.command(args);
    command.current_dir(scratch.path());
    let done = Child::start(&mut command).finish(Duration::from_secs(120));
    assert_eq!(done.code, Some(0), "{args:?}\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
    assert!(!done.stdout.trim().is_empty(), "{args:?} shows nothing");
    done
}

/// The two tables of the demo hold the same rows; how many.
fn equal_rows(lab: &Lab, scratch: &Scratch) -> usize {
    let tables = table_metadata(&scratch.join("iceferry-demo"));
    assert_eq!(tables.len(), 2, "a source and a target: {tables:#?}");
    // The target has equality deletes, and the source whatever the demo shows: sidequery reads them all.
    let mut reader = Reader::start(lab, Engine::Sidequery);
    let rows: Vec<_> = tables.iter().map(|metadata| reader.rows(metadata)).collect();
    assert_eq!(rows[0], rows[1], "source and target");
    rows[0].len()
}

#[test]
fn the_demo_runs_to_its_end_and_more_carries_only_what_changed() {
    let Some(lab) = Lab::with(&[Component::Core, Component::Side]) else { return };
    let scratch = Scratch::new();
    let iceferry = Iceferry::find();
    demo(&iceferry, &scratch, &["demo"]);
    let rows = equal_rows(&lab, &scratch);
    assert!(rows > 0, "an empty demo shows nothing");
    let before = snapshots(&scratch);
    demo(&iceferry, &scratch, &["demo", "--more"]);
    assert!(equal_rows(&lab, &scratch) > 0);
    assert!(snapshots(&scratch) > before, "there was more to carry");
}

/// All snapshots of both tables.
fn snapshots(scratch: &Scratch) -> usize {
    let count = |metadata: &PathBuf| {
        let text = std::fs::read_to_string(metadata).expect("it was listed");
        let metadata: serde_json::Value = serde_json::from_str(&text).expect("metadata is JSON");
        metadata["snapshots"].as_array().map_or(0, Vec::len)
    };
    table_metadata(&scratch.join("iceferry-demo")).iter().map(count).sum()
}
