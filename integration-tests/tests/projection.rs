//! `source.keep` and `source.drop` on a table with nested columns that Spark wrote, read back by an engine that is not ours.

use iceferry_integration_tests::{Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Reader, Scratch};
use serde_json::{Map, Value, json};

const CONFIG: i32 = 2;

/// A row without some columns, and without a field of the structs in its list and one of those in its map; fields in the
/// order of their names.
fn without(line: &str, columns: &[&str], in_list: &str, in_map: &str) -> String {
    let mut row: Map<String, Value> = serde_json::from_str(line).expect("a row is JSON");
    row.retain(|name, _| !columns.contains(&name.as_str()));
    let strip = |value: &mut Value, name: &str| {
        value.as_object_mut().into_iter().for_each(|fields| drop(fields.remove(name)));
    };
    if let Some(Value::Array(list)) = row.get_mut("ls") {
        list.iter_mut().for_each(|element| strip(element, in_list));
    }
    if let Some(Value::Array(pairs)) = row.get_mut("ms") {
        pairs.iter_mut().for_each(|pair| strip(&mut pair[1], in_map));
    }
    Value::Object(row).to_string()
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn columns_and_fields_inside_lists_and_maps_are_dropped_at_every_snapshot() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, scratch) = (Fixture::load("i_types"), Scratch::new());
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    for snapshot in &fixture.main {
        let catalog = Catalog::hadoop(scratch.join("lake"));
        let job = Job::of_fixture(&fixture, &catalog, "lake.t", &["id"])
            .source("drop", json!(["bin", "DEC38", "ls.element.a", "ms.value.x"]))
            .to_snapshot(&snapshot.id);
        let metadata = Iceferry::find().run(&job.write(&scratch.join("job.yaml"))).report.metadata();
        let rows = sorted(reader.rows(&metadata).iter().map(|line| without(line, &[], "", "")));
        let expected = sorted(snapshot.lines.iter().map(|line| without(line, &["bin", "dec38"], "a", "x")));
        assert_eq!(rows, expected, "snapshot {}", snapshot.id);
    }
}

#[test]
fn an_update_of_a_column_that_is_not_carried_is_an_update_all_the_same() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, scratch) = (Fixture::load("g_cow"), Scratch::new());
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let job = Job::of_fixture(&fixture, &catalog, "lake.log", &[])
        .target("mode", "append".into())
        .target("change_type_column", "change".into())
        .source("starting_strategy", "earliest".into())
        .source("identifier_columns", json!(["id"]))
        .source("keep", json!(["id"]));
    let metadata = Iceferry::find().run(&job.write(&scratch.join("job.yaml"))).report.metadata();
    let rows = Reader::start(&lab, Engine::DuckDb).rows(&metadata);
    // Names changed, and no id did: every update is a pair of equal rows.
    let of = |change: &str| sorted(rows.iter().filter(|row| row.contains(change)).map(|row| row.replace(change, "")));
    assert_eq!(of("UPDATE_BEFORE"), of("UPDATE_AFTER"));
    let updates: usize = fixture
        .main
        .windows(2)
        .map(|pair| {
            let id = |line: &String| serde_json::from_str::<Value>(line).expect("JSON")["id"].to_string();
            let went: Vec<String> = pair[0].lines.iter().filter(|line| !pair[1].lines.contains(line)).map(id).collect();
            pair[1].lines.iter().filter(|line| !pair[0].lines.contains(line) && went.contains(&id(line))).count()
        })
        .sum();
    assert_eq!(of("UPDATE_BEFORE").len(), updates);
    assert!(updates > 0, "the fixture has updates");
}

#[test]
fn a_choice_that_cannot_be_is_refused_by_name() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let (fixture, scratch) = (Fixture::load("g_cow"), Scratch::new());
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let mirror = || Job::of_fixture(&fixture, &catalog, "lake.t", &["id"]);
    let log = || {
        Job::of_fixture(&fixture, &catalog, "lake.t", &[])
            .target("mode", "append".into())
            .target("change_type_column", "change".into())
            .source("identifier_columns", json!(["id"]))
    };
    for (job, words) in [
        (
            mirror().source("keep", json!(["id", "nope"])),
            "source.keep: column \"nope\" of db.g_cow: there is no such column",
        ),
        (
            mirror().source("keep", json!(["name"])),
            "key column \"id\" of db.g_cow: source.keep or source.drop leaves it",
        ),
        (log().source("drop", json!(["id"])), "source.identifier_columns: column \"id\" of db.g_cow: source.keep or"),
        (mirror().source("drop", json!(["id", "name"])), "no column is left"),
    ] {
        let done = Iceferry::find().try_run(&job.write(&scratch.join("job.yaml")));
        assert_eq!(done.code, Some(CONFIG), "{}", done.stderr);
        assert!(done.stderr.contains(words), "{words} is not in: {}", done.stderr);
    }
    assert!(!scratch.join("lake").join("lake").join("t").exists(), "a trace in the target");
}
