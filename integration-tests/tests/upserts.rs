//! Tables that a stream keeps by upserts, as Flink writes them: each snapshot deletes keys and adds rows. Followed epoch by
//! epoch and read back by DuckDB.

use std::collections::BTreeMap;

use iceferry_integration_tests::model::{Entry, Script};
use iceferry_integration_tests::{Catalog, Component, Engine, Iceferry, Job, Lab, Reader, ReportEpoch, Scratch};
use serde_json::{Value, json};

const BASE_FILES: i64 = 4;
const ROWS_PER_FILE: i64 = 3_000;
const ROUNDS: i64 = 8;

/// A source and its mirrors.
struct Upserts {
    scratch: Scratch,
    script: Script,
    reader: Reader,
    /// What the source shows, by key.
    rows: BTreeMap<(i64, Option<i64>), String>,
}

impl Upserts {
    /// An empty table; `None` where DuckDB is not installed.
    fn new(version: u8) -> Option<Self> {
        let lab = Lab::with(&[Component::Core])?;
        let scratch = Scratch::new();
        let script = Script::new(&scratch.join("source"), version);
        Some(Self { scratch, script, reader: Reader::start(&lab, Engine::DuckDb), rows: BTreeMap::new() })
    }

    fn file(&mut self, p: Option<i32>, rows: &[(i64, String)]) -> Entry {
        self.rows.extend(rows.iter().map(|(id, v)| ((*id, p.map(i64::from)), v.clone())));
        let rows: Vec<(i64, &str)> = rows.iter().map(|(id, v)| (*id, v.as_str())).collect();
        match p {
            Some(p) => self.script.file_in(p, &rows),
            None => self.script.file(&rows),
        }
    }

    /// A job up to the newest snapshot.
    fn job(&self, target: &str, key: &[&str]) -> Job {
        let (source, lake) = (Catalog::hadoop(self.scratch.join("source")), Catalog::hadoop(self.scratch.join("lake")));
        Job::new("upserts", &source, "db.t", &lake, target).source("keep", json!(["id", "p", "v"])).keys(key)
    }

    /// Runs a job of one epoch at most, and gives what it reported of it.
    fn run(&mut self, job: &Job) -> ReportEpoch {
        let report = Iceferry::find().run(&job.write(&self.scratch.join("job.yaml"))).report;
        let rows = self.reader.rows(&report.metadata());
        let rows = rows.iter().map(|line| {
            let row: Value = serde_json::from_str(line).expect("JSON");
            let text = row["v"].as_str().expect("a text").to_owned();
            ((row["id"].as_i64().expect("an id"), row["p"].as_i64()), text)
        });
        let mut found: Vec<_> = rows.collect();
        found.sort();
        let expected: Vec<_> = self.rows.iter().map(|(key, v)| (*key, v.clone())).collect();
        assert!(found == expected, "the mirror has {} rows and the source {}", found.len(), expected.len());
        let [epoch] = &report.epochs[..] else { panic!("{report:?}") };
        epoch.clone()
    }
}

/// A text that compresses badly, so that bytes tell which files were read.
fn text(id: i64, round: i64) -> String {
    let mixed = ((id * 1_000 + round) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{mixed:016x}{:016x}", mixed.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

#[test]
fn an_epoch_of_upserts_reads_no_file_that_was_there_before() {
    for version in [2, 3] {
        let Some(mut upserts) = Upserts::new(version) else { return };
        let mut paths = Vec::new();
        for number in 0..BASE_FILES {
            let ids = number * ROWS_PER_FILE..(number + 1) * ROWS_PER_FILE;
            let file = upserts.file(None, &ids.map(|id| (id, text(id, 0))).collect::<Vec<_>>());
            upserts.script.snapshot("append", &[&file], &[]);
            paths.push(file.path().to_owned());
        }
        upserts.run(&upserts.job("lake.passed", &["id"]));
        upserts.run(&upserts.job("lake.decoded", &["id"]).target("copy", "decode".into()));
        let mut passed = Vec::new();
        for round in 1..=ROUNDS {
            // Some in each file, and some new ones.
            let ids: Vec<i64> = (0..60).map(|at| (at * 211 + round * 7) % (BASE_FILES * ROWS_PER_FILE + 600)).collect();
            let deletes = upserts.script.ids(&ids);
            let file = upserts.file(None, &ids.iter().map(|id| (*id, text(*id, round))).collect::<Vec<_>>());
            upserts.script.snapshot("overwrite", &[&deletes, &file], &[]);
            paths.push(file.path().to_owned());
            if round == ROUNDS {
                let decoded = upserts.run(&upserts.job("lake.decoded", &["id"]).target("copy", "decode".into()));
                assert_eq!((decoded.delete_files_passed, decoded.deletes_passed), (0, 0));
            }
            // What is not there cannot be read.
            for old in &paths[..paths.len() - 1] {
                std::fs::rename(old, format!("{old}.hidden")).expect("hide a file");
            }
            let epoch = upserts.run(&upserts.job("lake.passed", &["id"]));
            for old in &paths[..paths.len() - 1] {
                std::fs::rename(format!("{old}.hidden"), old).expect("show it again");
            }
            assert_eq!((epoch.delete_files_passed, epoch.deletes_passed), (1, 60));
            assert_eq!((epoch.rows.inserted, epoch.rows.deleted), (60, 60));
            passed.push(epoch.rows.bytes_read);
        }
        println!("bytes read by epoch: {passed:?}");
        let (least, most) = (passed.iter().min().expect("rounds"), passed.iter().max().expect("rounds"));
        assert!(*most * 10 <= *least * 11, "{passed:?}");
    }
}

#[test]
fn a_delete_in_a_partition_reaches_the_keys_of_that_partition_alone() {
    let Some(mut upserts) = Upserts::new(2) else { return };
    for p in [1, 2] {
        let file = upserts.file(Some(p), &[(1, text(1, 0)), (2, text(2, 0)), (3, text(3, 0))]);
        upserts.script.snapshot("append", &[&file], &[]);
    }
    upserts.run(&upserts.job("lake.t", &["p", "id"]));
    // The last key is of another partition: nothing in this one has it.
    let deletes = upserts.script.ids_and_p_in(1, &[(1, Some(1)), (2, Some(1)), (3, Some(2)), (3, None)]);
    [1, 2].into_iter().for_each(|id| drop(upserts.rows.remove(&(id, Some(1)))));
    let file = upserts.file(Some(1), &[(2, text(2, 1))]);
    upserts.script.snapshot("overwrite", &[&deletes, &file], &[]);
    let epoch = upserts.run(&upserts.job("lake.t", &["p", "id"]));
    assert_eq!((epoch.delete_files_passed, epoch.deletes_passed), (1, 4));
    assert_eq!((epoch.rows.inserted, epoch.rows.deleted), (1, 2), "keys that reach nothing are not passed on");
    // By the id alone it cannot be told which partition a row is in.
    let deletes = upserts.script.ids_in(2, &[2]);
    upserts.rows.remove(&(2, Some(2)));
    upserts.script.snapshot("delete", &[&deletes], &[]);
    let epoch = upserts.run(&upserts.job("lake.t", &["p", "id"]));
    assert_eq!((epoch.delete_files_passed, epoch.rows.deleted), (0, 1));
}

#[test]
fn a_plan_says_what_goes_as_bytes_what_is_decoded_and_why() {
    let Some(mut upserts) = Upserts::new(2) else { return };
    let file = upserts.file(None, &[(1, text(1, 0)), (2, text(2, 0))]);
    upserts.script.snapshot("append", &[&file], &[]);
    upserts.run(&upserts.job("lake.t", &["id"]));
    let deletes = upserts.script.ids(&[1]);
    let file = upserts.file(None, &[(1, text(1, 1))]);
    upserts.script.snapshot("overwrite", &[&deletes, &file], &[]);
    let path = upserts.scratch.join("job.yaml");
    let plan = |job: &Job, output: &str| {
        let job = job.write(&path);
        let said = Iceferry::find().output(&["plan", job.to_str().expect("UTF-8"), "--output", output]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    };
    let job = upserts.job("lake.t", &["id"]);
    for (job, as_bytes, decoded, passed, lines) in [
        (job.clone(), 1, json!({}), 1, ["1 file as bytes", "1 delete file straight through, with 1 key"]),
        (
            job.clone().target("copy", "decode".into()),
            0,
            json!({"asked": 1, "not_new": 1}),
            0,
            ["1 file decoded: target.copy is decode", "1 file decoded: rows of older files went or came back"],
        ),
    ] {
        let plan_json: Value = serde_json::from_str(&plan(&job, "json")).expect("JSON");
        let of = &plan_json["epochs"][0]["plan"];
        assert_eq!((&of["files_as_bytes"], &of["files_decoded"]), (&json!(as_bytes), &decoded), "{plan_json}");
        assert_eq!(of["delete_files_passed"], json!(passed), "{plan_json}");
        let text = plan(&job, "text");
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    }
    // A filter wants rows, and deletes go straight through all the same.
    let filtered = upserts.job("lake.f", &["id"]).source("filter", "id < 100".into());
    let plan_json: Value = serde_json::from_str(&plan(&filtered, "json")).expect("JSON");
    assert_eq!(plan_json["epochs"][0]["plan"]["files_decoded"], json!({"filter": 2}), "{plan_json}");
}
