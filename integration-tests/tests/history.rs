//! Histories that are not a line: branches, tags, rollbacks and expired snapshots of tables that Spark wrote. Only the
//! metadata file is written anew, as a catalog would when a reference is moved; the rest of the table stays as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use iceferry_integration_tests::{Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Output, Reader, Scratch};
use serde_json::{Value, json};

const CONFIG: i32 = 2;
const HISTORY_GAP: i32 = 3;

/// Tables of all kinds of deletes, on all format versions.
const TABLES: &[&str] = &["b_posdel", "c_eqdel", "d_dv", "g_cow", "j_cow_mor_mix", "k_keyed_v3"];

/// A fixture in a catalog of its own, whose references are moved.
struct Moved {
    fixture: Fixture,
    scratch: Scratch,
    versions: u32,
    /// Snapshots whose parent is expired have none.
    is_cut_off: bool,
}

impl Moved {
    fn new(name: &str) -> Self {
        Self { fixture: Fixture::load(name), scratch: Scratch::new(), versions: 0, is_cut_off: false }
    }

    fn id(&self, ordinal: usize) -> &str {
        &self.fixture.main[ordinal].id
    }

    /// The table with main at a snapshot and these references beside it, and without the snapshots `expired`.
    fn put(&mut self, main: usize, refs: &[(&str, &str, usize)], expired: &[usize]) {
        let number = |ordinal: usize| -> Value { self.id(ordinal).parse::<u64>().expect("an id").into() };
        let text = std::fs::read_to_string(&self.fixture.metadata).expect("the fixture is unpacked");
        let mut metadata: Value = serde_json::from_str(&text).expect("metadata is JSON");
        metadata["current-snapshot-id"] = number(main);
        metadata["refs"] = json!({"main": {"snapshot-id": number(main), "type": "branch"}});
        for (name, kind, ordinal) in refs {
            metadata["refs"][name] = json!({"snapshot-id": number(*ordinal), "type": kind});
        }
        let gone: Vec<Value> = expired.iter().map(|ordinal| number(*ordinal)).collect();
        for list in ["snapshots", "snapshot-log"] {
            if let Some(list) = metadata[list].as_array_mut() {
                list.retain(|entry| !gone.contains(&entry["snapshot-id"]));
            }
        }
        if self.is_cut_off {
            // As pyiceberg expires snapshots: what is left does not say that anything came before it.
            let left: Vec<Value> =
                metadata["snapshots"].as_array().expect("snapshots").iter().map(|s| s["snapshot-id"].clone()).collect();
            for snapshot in metadata["snapshots"].as_array_mut().expect("snapshots") {
                if !left.contains(&snapshot["parent-snapshot-id"]) {
                    snapshot.as_object_mut().expect("an object").remove("parent-snapshot-id");
                }
            }
        }
        // The log ends with the current snapshot, or the metadata does not parse.
        let now = metadata["last-updated-ms"].clone();
        if let Some(log) = metadata["snapshot-log"].as_array_mut() {
            log.push(json!({"snapshot-id": number(main), "timestamp-ms": now}));
        }
        let folder = self.scratch.folder("source/db/t/metadata");
        self.versions += 1;
        let text = serde_json::to_string(&metadata).expect("JSON");
        std::fs::write(folder.join(format!("v{}.metadata.json", self.versions)), text).expect("write metadata");
        std::fs::write(folder.join("version-hint.text"), self.versions.to_string()).expect("write the hint");
    }

    fn key(&self) -> Vec<&str> {
        let own = &self.fixture.identifier_columns;
        if own.is_empty() { vec!["id"] } else { own.iter().map(String::as_str).collect() }
    }

    fn mirror(&self) -> Job {
        let (source, target) =
            (Catalog::hadoop(self.scratch.join("source")), Catalog::hadoop(self.scratch.join("lake")));
        Job::new("moved", &source, "db.t", &target, "lake.mirror").keys(&self.key())
    }

    fn changelog(&self) -> Job {
        let (source, target) =
            (Catalog::hadoop(self.scratch.join("source")), Catalog::hadoop(self.scratch.join("lake")));
        Job::new("moved-log", &source, "db.t", &target, "lake.log")
            .target("mode", "append".into())
            .target("change_type_column", "change".into())
            .source("identifier_columns", json!(self.key()))
    }

    fn write(&self, job: &Job) -> PathBuf {
        job.write(&self.scratch.join("job.yaml"))
    }

    /// Runs the job and reads its target.
    fn rows(&self, reader: &mut Reader, job: &Job) -> Vec<String> {
        let mut rows = reader.rows(&Iceferry::find().run(&self.write(job)).report.metadata());
        rows.sort();
        rows
    }

    fn lines(&self, ordinal: usize) -> Vec<String> {
        let mut lines = self.fixture.main[ordinal].lines.clone();
        lines.sort();
        lines
    }

    fn fails(&self, job: &Job, code: i32, words: &[&str]) {
        let done: Output = Iceferry::find().output(&["run", self.write(job).to_str().expect("UTF-8")]);
        assert_eq!(done.code, Some(code), "stdout: {}\nstderr: {}", done.stdout, done.stderr);
        for word in words {
            assert!(done.stderr.contains(word), "{word:?} is not in: {}", done.stderr);
        }
    }
}

fn reader() -> Option<Reader> {
    Lab::with(&[Component::Core]).map(|lab| Reader::start(&lab, Engine::DuckDb))
}

#[test]
fn another_branch_and_a_tag_are_followed_and_nothing_leaks_in_from_elsewhere() {
    let Some(mut reader) = reader() else { return };
    for name in TABLES {
        let mut moved = Moved::new(name);
        let last = moved.fixture.main.len() - 1;
        moved.put(1, &[("audit", "branch", last), ("first", "tag", 0)], &[]);
        for (reference, ordinal) in [(json!({"tag": "first"}), 0), (json!({}), 1), (json!({"branch": "audit"}), last)] {
            let mut job = moved.mirror();
            for (key, value) in reference.as_object().expect("an object") {
                job = job.source(key, value.clone());
            }
            assert_eq!(moved.rows(&mut reader, &job), moved.lines(ordinal), "{name} at {ordinal}");
        }
        moved.fails(&moved.mirror().source("branch", "adit".into()), CONFIG, &["no branch adit", "audit", "first"]);
        // Main has not got what the branch brought.
        moved.fails(&moved.mirror(), HISTORY_GAP, &["branch main", "on_rollback"]);
    }
}

#[test]
fn a_rollback_ends_the_run_or_is_brought_over_as_the_difference() {
    let Some(mut reader) = reader() else { return };
    for name in TABLES {
        let mut moved = Moved::new(name);
        let last = moved.fixture.main.len() - 1;
        moved.put(last, &[], &[]);
        assert_eq!(moved.rows(&mut reader, &moved.mirror()), moved.lines(last), "{name}");
        for ordinal in [1, 0] {
            moved.put(ordinal, &[], &[]);
            moved.fails(&moved.mirror(), HISTORY_GAP, &[moved.id(ordinal), "on_rollback: resync"]);
            let resync = moved.mirror().source("on_rollback", "resync".into());
            assert_eq!(moved.rows(&mut reader, &resync), moved.lines(ordinal), "{name} back at {ordinal}");
        }
        moved.put(last, &[], &[]);
        assert_eq!(moved.rows(&mut reader, &moved.mirror()), moved.lines(last), "{name} forth again");
    }
}

#[test]
fn a_changelog_tells_a_rollback_as_the_changes_that_it_makes() {
    let Some(mut reader) = reader() else { return };
    for name in TABLES {
        let mut moved = Moved::new(name);
        let last = moved.fixture.main.len() - 1;
        moved.put(last, &[], &[]);
        moved.rows(&mut reader, &moved.changelog());
        moved.put(1, &[], &[]);
        moved.fails(&moved.changelog(), HISTORY_GAP, &["on_rollback: resync"]);
        let log = moved.rows(&mut reader, &moved.changelog().source("on_rollback", "resync".into()));
        assert_eq!(applied(&log), counted(&moved.lines(1)), "{name}");
    }
}

#[test]
fn an_expired_snapshot_that_is_needed_is_a_gap_by_name() {
    let Some(mut reader) = reader() else { return };
    for name in TABLES {
        let mut moved = Moved::new(name);
        let last = moved.fixture.main.len() - 1;
        moved.put(0, &[], &[]);
        moved.rows(&mut reader, &moved.mirror());
        for gone in [&[1][..], &[0, 1]] {
            moved.put(last, &[], gone);
            for on_rollback in ["fail", "resync"] {
                let job = moved.mirror().source("on_rollback", on_rollback.into());
                moved.fails(&job, HISTORY_GAP, &["history gap", moved.id(1)]);
            }
        }
        let earliest = moved.changelog().source("starting_strategy", "earliest".into());
        moved.fails(&earliest, HISTORY_GAP, &[moved.id(1), "starting_strategy: initial"]);
        let initial = moved.changelog().source("starting_strategy", "initial".into());
        let log = moved.rows(&mut reader, &initial);
        assert_eq!(applied(&log), counted(&moved.lines(last)), "{name}");
    }
}

#[test]
fn a_history_that_was_cut_off_does_not_begin_with_what_is_left() {
    let Some(mut reader) = reader() else { return };
    for name in TABLES {
        let mut moved = Moved::new(name);
        moved.is_cut_off = true;
        let last = moved.fixture.main.len() - 1;
        moved.put(last, &[], &[0]);
        for start in ["starting_strategy", "from_snapshot"] {
            let value: Value = if start == "starting_strategy" {
                "earliest".into()
            } else {
                moved.id(1).parse::<u64>().expect("an id").into()
            };
            moved.fails(&moved.changelog().source(start, value), HISTORY_GAP, &[moved.id(1), "cut off"]);
        }
        let log = moved.rows(&mut reader, &moved.changelog());
        assert_eq!(applied(&log), counted(&moved.lines(last)), "{name}");
    }
}

#[test]
fn net_changes_name_their_snapshots_only_where_all_of_them_are_there_and_in_a_line() {
    let Some(mut reader) = reader() else { return };
    let net = |moved: &Moved| {
        let job = moved.changelog().source("changes", "net".into());
        job.source("include_metadata_columns", json!(["_commit_snapshot_id"]))
    };
    for is_cut_off in [false, true] {
        let mut moved = Moved::new("g_cow");
        moved.is_cut_off = is_cut_off;
        let last = moved.fixture.main.len() - 1;
        moved.put(last, &[], &[0]);
        let words = ["history gap", "_commit_snapshot_id", moved.id(1), "after_snapshot"];
        for start in ["initial", "earliest"] {
            moved.fails(&net(&moved).source("starting_strategy", start.into()), HISTORY_GAP, &words);
        }
        let after = net(&moved).source("after_snapshot", moved.id(1).parse::<u64>().expect("an id").into());
        let log = moved.rows(&mut reader, &after);
        let snapshots: Vec<&str> = moved.fixture.main[2..].iter().map(|snapshot| snapshot.id.as_str()).collect();
        assert!(log.iter().all(|line| snapshots.iter().any(|id| line.contains(id))), "{log:#?}");
    }
    let mut moved = Moved::new("g_cow");
    let last = moved.fixture.main.len() - 1;
    moved.put(last, &[], &[]);
    moved.rows(&mut reader, &net(&moved));
    moved.put(1, &[], &[]);
    let resync = net(&moved).source("on_rollback", "resync".into());
    moved.fails(&resync, CONFIG, &["_commit_snapshot_id", "on_rollback: resync", "leave the column out"]);
}

/// The rows that a changelog leaves, each with how often.
fn applied(log: &[String]) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for line in log {
        let (row, change) = line.split_once(",\"change\":\"").expect("a change type at the end");
        let sign = if change.starts_with("INSERT") || change.starts_with("UPDATE_AFTER") { 1 } else { -1 };
        *rows.entry(format!("{row}}}")).or_default() += sign;
    }
    rows.retain(|_, count| *count != 0);
    rows
}

fn counted(lines: &[String]) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    lines.iter().for_each(|line| *rows.entry(line.clone()).or_default() += 1);
    rows
}
