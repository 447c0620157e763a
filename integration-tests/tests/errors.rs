//! Bad input gives one clear line and its exit code, and leaves no trace in the target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use iceferry_integration_tests::{
    Catalog, Component, Damage, Engine, Fixture, Iceferry, Job, Lab, Output, Reader, Scratch, Source, listing,
};
use serde_json::json;

const CONFIG: i32 = 2;
const REFUSED: i32 = 4;
const NOT_FOUND: i32 = 7;
const DENIED: i32 = 8;
const CORRUPT: i32 = 9;

/// One line tells what happened, with these words in it.
fn says(done: &Output, code: i32, words: &[&str]) {
    assert_eq!(done.code, Some(code), "exit code\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
    let errors: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(errors.len(), 1, "one line that starts with \"error\"\nstderr: {}", done.stderr);
    for word in words {
        assert!(errors[0].contains(word), "{word:?} is not in: {}", errors[0]);
    }
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    assert!(!done.stderr.contains("RUST_BACKTRACE"), "{}", done.stderr);
}

/// Runs a job without JSON, as a person does.
fn run(job: &Path) -> Output {
    Iceferry::find().output(&["run", job.to_str().expect("UTF-8")])
}

/// A target that does not exist when the job starts.
struct Fresh {
    scratch: Scratch,
}

impl Fresh {
    fn new() -> Self {
        Self { scratch: Scratch::new() }
    }

    fn lake(&self) -> PathBuf {
        self.scratch.join("lake")
    }

    fn target(&self) -> Catalog {
        Catalog::hadoop(self.lake())
    }

    fn run(&self, job: &Job) -> Output {
        run(&job.write(&self.scratch.join("job.yaml")))
    }

    fn fails(&self, job: &Job, code: i32, words: &[&str]) {
        says(&self.run(job), code, words);
        assert_eq!(listing(&self.lake()), BTreeMap::new(), "a trace in the target");
    }
}

fn fixture_job(target: &Catalog) -> Job {
    Job::of_fixture(&Fixture::load("g_cow"), target, "lake.t", &["id"])
}

#[test]
fn a_missing_table() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fresh = Fresh::new();
    let job = fixture_job(&fresh.target()).source("table", json!("db.nowhere"));
    fresh.fails(&job, NOT_FOUND, &["db.nowhere"]);
}

#[test]
fn a_missing_snapshot() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fresh = Fresh::new();
    let job = fixture_job(&fresh.target()).source("to_snapshot", json!(42));
    let done = fresh.run(&job);
    // A snapshot that is not there may be a slip of the pen or a gap in the history: both are said by name.
    assert!(matches!(done.code, Some(2 | 3 | NOT_FOUND)), "{:?}: {}", done.code, done.stderr);
    says(&done, done.code.unwrap_or_default(), &["42"]);
    assert_eq!(listing(&fresh.lake()), BTreeMap::new(), "a trace in the target");
}

#[test]
fn a_wrong_warehouse() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fresh = Fresh::new();
    let source = Catalog::hadoop(fresh.scratch.join("no-such-warehouse"));
    let job = Job::new("wrong", &source, "db.g_cow", &fresh.target(), "lake.t").keys(&["id"]);
    fresh.fails(&job, NOT_FOUND, &["db.g_cow", "no-such-warehouse"]);
}

#[test]
fn a_key_column_that_does_not_exist() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fresh = Fresh::new();
    let job = fixture_job(&fresh.target()).keys(&["nope"]);
    fresh.fails(&job, CONFIG, &["nope", "equality_columns"]);
}

#[test]
fn an_unknown_key_in_the_job_file() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fresh = Fresh::new();
    let job = fixture_job(&fresh.target()).target("equality_colums", json!(["id"]));
    fresh.fails(&job, CONFIG, &["equality_colums", "equality_columns"]);
}

#[test]
fn a_job_file_that_is_not_there() {
    let scratch = Scratch::new();
    let done = run(&scratch.join("absent.yaml"));
    assert!(matches!(done.code, Some(CONFIG | NOT_FOUND)), "{:?}: {}", done.code, done.stderr);
    says(&done, done.code.unwrap_or_default(), &["absent.yaml"]);
}

/// A damaged source, first carried into a new target, then into one that held the state before the damage.
fn damaged(damage: Damage, code: i32, words: &[&str]) {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let fresh = Fresh::new();
    let whole = Source::make(&lab, &fresh.scratch.join("source"), 2, 100);
    let held = Catalog::hadoop(fresh.scratch.join("held"));
    let job = Job::of_source(&whole, &held, "lake.t").write(&fresh.scratch.join("held.yaml"));
    let before = Iceferry::find().run(&job).report;
    let files = listing(&fresh.scratch.join("held"));

    let source = whole.append(&lab, 5).damage(&lab, damage);
    // A run that has staged files has made the table; what it may not leave is rows.
    let done = fresh.run(&Job::of_source(&source, &fresh.target(), "lake.t"));
    says(&done, code, words);
    let left: Vec<PathBuf> = listing(&fresh.lake()).into_keys().collect();
    if damage == Damage::Truncated {
        assert!(!left.iter().any(|path| path.extension().is_some_and(|e| e == "parquet")), "rows were left: {left:#?}");
    } else {
        assert!(left.is_empty(), "a trace in the target: {left:#?}");
    }

    let done = run(&job);
    says(&done, code, words);
    assert_eq!(listing(&fresh.scratch.join("held")), files, "a trace in the target");
    let rows = Reader::start(&lab, Engine::DuckDb).digest(&before.metadata()).rows;
    assert_eq!(rows, 175, "the target is as it was");
}

#[test]
fn a_truncated_parquet_file() {
    damaged(Damage::Truncated, CORRUPT, &[".parquet"]);
}

#[test]
fn a_manifest_that_is_gone() {
    damaged(Damage::ManifestGone, NOT_FOUND, &[".avro", "db.t"]);
}

#[test]
fn an_orc_data_file() {
    damaged(Damage::Orc, REFUSED, &["extra.orc", "ORC"]);
}

#[test]
fn an_unsupported_type() {
    damaged(Damage::UnsupportedType, REFUSED, &["shape", "variant"]);
}

#[test]
fn a_name_mapping_that_is_none() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let fresh = Fresh::new();
    let source = Source::make(&lab, &fresh.scratch.join("source"), 1, 10);
    source.set_property("schema.name-mapping.default", "[{\"field-id\": 1, names: }]");
    let job = Job::of_source(&source, &fresh.target(), "lake.t");
    fresh.fails(&job, REFUSED, &["schema.name-mapping.default", "no name mapping", "db.t"]);
    let check = Iceferry::find().output(&["check", fresh.scratch.join("job.yaml").to_str().expect("UTF-8")]);
    says(&check, REFUSED, &["schema.name-mapping.default"]);
}

#[test]
fn a_target_that_is_the_source() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = Source::make(&lab, &scratch.join("source"), 1, 10);
    let before = listing(&scratch.join("source"));
    let job = Job::new("own", &source.catalog(), &source.table, &source.catalog(), &source.table).keys(&["id"]);
    let job = job.write(&scratch.join("job.yaml"));
    for verb in ["run", "plan", "check"] {
        let done = Iceferry::find().output(&[verb, job.to_str().expect("UTF-8")]);
        says(&done, CONFIG, &["target.table", "source's own table"]);
    }
    assert_eq!(listing(&scratch.join("source")), before, "a trace in the table");
}

#[test]
fn a_target_with_another_schema() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let target = Catalog::hadoop(scratch.join("lake"));
    let iceferry = Iceferry::find();
    let h_ow = Fixture::load("h_ow");
    let other = Job::of_fixture(&h_ow, &target, "lake.t", &["id"]).write(&scratch.join("other.yaml"));
    let before = iceferry.run(&other).report;
    let files = listing(&scratch.join("lake"));
    let job = Job::new("another", &Catalog::hadoop(Fixture::warehouse()), "db.g_cow", &target, "lake.t").keys(&["id"]);
    let done = run(&job.write(&scratch.join("job.yaml")));
    says(&done, REFUSED, &["lake.t"]);
    assert_eq!(listing(&scratch.join("lake")), files, "a trace in the target");
    let rows = Reader::start(&lab, Engine::DuckDb).rows(&before.metadata());
    assert_eq!(rows, h_ow.main.last().expect("it has snapshots").lines);
}

#[test]
fn a_read_only_target() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let Some(folder) = ReadOnly::new(&scratch) else {
        eprintln!("LEFT OUT: a_read_only_target: this user can write everywhere");
        return;
    };
    let job = fixture_job(&Catalog::hadoop(folder.path())).write(&scratch.join("job.yaml"));
    let before = listing(folder.path());
    says(&run(&job), DENIED, &[folder.path().to_str().expect("UTF-8")]);
    assert_eq!(listing(folder.path()), before, "a trace in the target");
}

#[test]
fn a_wrong_flag_is_said_in_json_when_that_is_asked_for() {
    for (flags, words) in [
        (&["run", "--output", "json"][..], &["required arguments", "<JOB>"][..]),
        (&["--output=json", "frob"], &["frob"]),
        (&["--output", "json", "--log-level", "loud", "check", "absent.yaml"], &["\"loud\"", "log level"]),
    ] {
        let done = Iceferry::find().output(flags);
        says(&done, CONFIG, words);
        let said: serde_json::Value = serde_json::from_str(&done.stdout).expect("one JSON object");
        assert_eq!((&said["outcome"], &said["class"]), (&json!("failed"), &json!("config")), "{flags:?}");
        for word in words {
            assert!(said["error"].as_str().is_some_and(|error| error.contains(word)), "{word}: {said}");
        }
    }
}

#[test]
fn a_first_run_that_fails_leaves_no_namespace_in_a_sql_catalog() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = Source::make(&lab, &scratch.join("source"), 2, 100).append(&lab, 5).damage(&lab, Damage::Truncated);
    let folder = scratch.folder("target");
    let job = Job::of_source(&source, &Catalog::sqlite(&folder), "new.t").write(&scratch.join("job.yaml"));
    says(&run(&job), CORRUPT, &[".parquet"]);
    assert_eq!(listing(&folder), BTreeMap::new(), "a trace in the target: not even the database is made");
}

#[test]
fn deletes_that_the_target_cannot_carry() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let fixture = Fixture::load("b_posdel");
    let first = &fixture.main.first().expect("it has snapshots").id;
    for (mode, code, words) in [
        ("merge-on-read", CONFIG, ["db.b_posdel", "equality_columns", "new target"]),
        ("append", REFUSED, ["db.b_posdel", "merge-on-read", "new target"]),
    ] {
        let fresh = Fresh::new();
        let job = Job::of_fixture(&fixture, &fresh.target(), "lake.t", &[]).target("mode", json!(mode));
        assert_eq!(fresh.run(&job.clone().to_snapshot(first)).code, Some(0), "{mode}");
        let before = listing(&fresh.lake());
        says(&fresh.run(&job), code, &words);
        assert_eq!(listing(&fresh.lake()), before, "a trace in the target");
    }
}

#[test]
fn an_empty_warehouse_is_still_there_after_check_and_after_a_run_that_failed() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let fresh = Fresh::new();
    let source = Source::make(&lab, &fresh.scratch.join("source"), 2, 100).append(&lab, 5);
    let namespace = fresh.lake().join("lake");
    std::fs::create_dir_all(&namespace).expect("make a folder");
    let job = Job::of_source(&source, &fresh.target(), "lake.t").write(&fresh.scratch.join("job.yaml"));
    assert_eq!(Iceferry::find().output(&["check", job.to_str().expect("UTF-8")]).code, Some(0));
    assert!(namespace.exists(), "check removed it");
    fresh.fails(&Job::of_source(&source.damage(&lab, Damage::Truncated), &fresh.target(), "lake.t"), CORRUPT, &[]);
    assert!(namespace.exists(), "the run removed it");
}

#[test]
fn a_database_whose_folder_is_missing() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.join("nowhere");
    let job = fixture_job(&Catalog::sqlite(&folder)).write(&scratch.join("job.yaml"));
    for verb in ["check", "run"] {
        let done = Iceferry::find().output(&[verb, job.to_str().expect("UTF-8")]);
        says(&done, NOT_FOUND, &["nowhere", "is not there"]);
    }
    assert!(!folder.exists(), "a trace in the target");
}

/// A folder where even root may not write: without write permission, or immutable. Set free again when dropped.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn new(scratch: &Scratch) -> Option<Self> {
        let folder = Self(scratch.folder("read-only"));
        for command in [&["chmod", "0555"][..], &["chattr", "+i"]] {
            // Not every user, file system and kernel knows the second.
            let _ = Command::new(command[0]).args(&command[1..]).arg(&folder.0).status();
            if std::fs::create_dir(folder.0.join("probe")).is_err() {
                return Some(folder);
            }
            std::fs::remove_dir(folder.0.join("probe")).expect("it was made");
        }
        None
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // Both are right to fail where they were not needed.
        let _ = Command::new("chattr").arg("-i").arg(&self.0).stderr(std::process::Stdio::null()).status();
        let _ = Command::new("chmod").arg("0755").arg(&self.0).status();
    }
}
