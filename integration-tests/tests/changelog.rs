//! Changelog targets: the changes of every table that Spark wrote, snapshot by snapshot, against the difference of the rows
//! that Spark read at each snapshot. The targets are read back by an engine that shares no code with us.

use std::collections::{BTreeMap, HashMap};

use iceferry_integration_tests::{
    Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Reader, Scratch, Source, listing,
};
use serde_json::{Value, json};

/// Columns that tell rows apart, unless the table itself says which.
const KEY: &[&str] = &["id"];

macro_rules! changelogs {
    ($($table:ident)*) => {
        $(
            #[test]
            fn $table() {
                follow(stringify!($table));
            }
        )*

        #[test]
        fn every_fixture_of_one_schema_has_a_test() {
            if Lab::with(&[Component::Core]).is_none() {
                return;
            }
            let mut names = Fixture::names();
            names.retain(|name| {
                let main = Fixture::load(name).main;
                main.iter().all(|snapshot| snapshot.schema_id == main[0].schema_id)
            });
            let mut tests = [$(stringify!($table)),*];
            tests.sort_unstable();
            assert_eq!(tests, *names);
        }
    };
}

changelogs! {
    a_append b_posdel c_eqdel c_eqdel_part d_dv d_upg e_part g_cow h_ow i_time i_types j_cow_mor_mix k_keyed k_keyed_v3
    l_multi_rg m_rollback n_v1 o_null_part
}

/// Carries the history in three runs, and compares what came with key and without.
fn follow(table: &str) {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, iceferry, scratch) = (Fixture::load(table), Iceferry::find(), Scratch::new());
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let keyed = fixture.identifier_columns.is_empty().then_some(KEY);
    let mut ways = [0; 3];
    for (target, keys) in [("keyed", keyed), ("plain", None)] {
        let job = |to: usize| {
            let mut job = Job::of_fixture(&fixture, &catalog, &format!("log.{target}"), &[])
                .target("mode", "append".into())
                .target("change_type_column", "_change_type".into())
                .source("starting_strategy", "earliest".into())
                .source("include_metadata_columns", json!(["_change_ordinal", "_commit_snapshot_id"]))
                .to_snapshot(&fixture.main[to].id);
            if let Some(keys) = keys {
                job = job.source("identifier_columns", json!(keys)).of_small_files(1 << 20);
            }
            job.write(&scratch.join(format!("{target}-{to}.yaml")))
        };
        let last = fixture.main.len() - 1;
        let mut metadata = None;
        for to in [0, last / 2, last] {
            let report = iceferry.run(&job(to)).report;
            ways.iter_mut().zip(report.ways()).for_each(|(sum, count)| *sum += count);
            metadata = Some(report.metadata());
            let again = iceferry.run(&job(to)).report;
            assert!(again.is_nothing_to_do(), "{table} {target} to {to}, again: {again:?}");
        }
        let names: Vec<&str> = match (keys, target) {
            (Some(keys), _) => keys.to_vec(),
            (None, "keyed") => fixture.identifier_columns.iter().map(String::as_str).collect(),
            // Without a key a table of format version 3 has the ids of its rows, which the expected rows do not tell.
            (None, _) if fixture.format_version >= 3 => continue,
            (None, _) => fixture.identifier_columns.iter().map(String::as_str).collect(),
        };
        let rows = reader.rows(&metadata.expect("a run"));
        let expected = expected(&fixture, &names);
        let extra: Vec<_> = rows.iter().filter(|row| !expected.contains(row)).take(5).collect();
        let missing: Vec<_> = expected.iter().filter(|row| !rows.contains(row)).take(5).collect();
        assert!(
            rows == expected,
            "{table} {target}: {} rows, expected {}\nextra: {extra:#?}\nmissing: {missing:#?}",
            rows.len(),
            expected.len()
        );
    }
    let [copied, spliced, decoded] = ways;
    println!("{table}: changelogs copied {copied} files, spliced {spliced} and decoded {decoded}");
}

#[test]
fn a_rewrite_that_is_larger_than_a_task_is_exchanged_and_gives_the_same_changes() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (iceferry, scratch) = (Iceferry::find(), Scratch::new());
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    let catalog = Catalog::hadoop(scratch.join("lake"));
    // A delete that rewrites a file: most of its rows are carried over.
    let source = Source::make(&lab, &scratch.join("source"), 2, 2_000);
    let mut carry = |target: &str| {
        let job = Job::new("rewrite", &source.catalog(), &source.table, &catalog, target)
            .target("mode", "append".into())
            .target("change_type_column", "_change_type".into())
            .source("starting_strategy", "earliest".into())
            .source("identifier_columns", json!(KEY));
        let report = iceferry.run(&job.write(&scratch.join(format!("{target}.yaml")))).report;
        let tasks: u64 = report.epochs.iter().map(|epoch| epoch.tasks).sum();
        (reader.rows(&report.metadata()), tasks)
    };
    let (whole, tasks_whole) = carry("log.whole");
    source.set_property("read.split.target-size", "1");
    let (cut, tasks_cut) = carry("log.cut");
    assert!(whole == cut, "{} rows in one task, {} in many", whole.len(), cut.len());
    assert_eq!(whole.iter().filter(|row| row.contains("\"DELETE\"")).count(), 1_000);
    // Both sides of the rewrite, and a task for each bucket that has rows.
    assert!(tasks_cut > tasks_whole + 50, "{tasks_cut} tasks, {tasks_whole} before");
    let files = listing(&scratch.join("lake"));
    let left: Vec<_> = files.keys().filter(|path| path.extension().is_some_and(|e| e == "arrows")).collect();
    assert!(left.is_empty(), "what was exchanged is gone: {left:?}");
}

/// The changelog as the rows of each snapshot tell it: their difference as bags, and of it rows of one key in pairs.
fn expected(fixture: &Fixture, key: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut ordinal = 0;
    let mut before: BTreeMap<&str, i64> = BTreeMap::new();
    for snapshot in &fixture.main {
        let mut after: BTreeMap<&str, i64> = BTreeMap::new();
        snapshot.lines.iter().for_each(|line| *after.entry(line).or_default() += 1);
        if snapshot.operation == "replace" {
            assert_eq!(before, after, "a rewrite changes no rows");
            continue;
        }
        let (went, mut came) = (surplus(&before, &after), surplus(&after, &before));
        let mut of_key: HashMap<String, Vec<usize>> = HashMap::new();
        came.iter().enumerate().rev().for_each(|(at, line)| of_key.entry(key_of(line, key)).or_default().push(at));
        let mut paired = vec![false; came.len()];
        let tagged = |line: &str, change: &str| {
            let open = line.strip_suffix('}').expect("an object");
            format!(
                "{open},\"_change_type\":\"{change}\",\"_change_ordinal\":{ordinal},\"_commit_snapshot_id\":{}}}",
                snapshot.id
            )
        };
        for line in &went {
            let pair = if key.is_empty() { None } else { of_key.get_mut(&key_of(line, key)).and_then(Vec::pop) };
            match pair {
                Some(at) => {
                    paired[at] = true;
                    lines.push(tagged(line, "UPDATE_BEFORE"));
                }
                None => lines.push(tagged(line, "DELETE")),
            }
        }
        for (line, paired) in came.drain(..).zip(paired) {
            lines.push(tagged(&line, if paired { "UPDATE_AFTER" } else { "INSERT" }));
        }
        ordinal += 1;
        before = after;
    }
    lines.sort();
    lines
}

fn key_of(line: &str, key: &[&str]) -> String {
    let row: Value = serde_json::from_str(line).expect("a row is JSON");
    key.iter().map(|column| format!("{};", row[column])).collect()
}

/// The lines of one bag that another lacks.
fn surplus(one: &BTreeMap<&str, i64>, other: &BTreeMap<&str, i64>) -> Vec<String> {
    let mut lines = Vec::new();
    for (line, count) in one {
        let count = count - other.get(line).unwrap_or(&0);
        lines.extend((0..count).map(|_| (*line).to_owned()));
    }
    lines
}
