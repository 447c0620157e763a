//! `iceferry verify`: a target that a run made is equal to its source, whatever wrote the source; what differs is counted,
//! named and shown; nothing is left behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iceferry_integration_tests::{
    Catalog, Child, Component, Fixture, Iceferry, Job, Lab, MainSnapshot, Output, Scratch, Source, listing,
};
use serde_json::{Value, json};

const REFUSED: i32 = 4;
const DIFFERENT: i32 = 6;
const NOT_FOUND: i32 = 7;
const INTERRUPTED: i32 = 130;

/// Columns that tell rows apart, unless the table itself says which.
const KEY: &[&str] = &["id"];

macro_rules! fixtures {
    ($($table:ident)*) => {
        $(
            #[test]
            fn $table() {
                follow(stringify!($table), None);
            }
        )*

        #[test]
        fn every_fixture_has_a_test() {
            if Lab::with(&[Component::Core]).is_none() {
                return;
            }
            let mut tests = [$(stringify!($table)),*];
            tests.sort_unstable();
            assert_eq!(tests, *Fixture::names());
        }
    };
}

fixtures! {
    a_append b_posdel c_eqdel c_eqdel_part d_dv d_upg e_part f_evo g_cow h_ow i_time i_types j_cow_mor_mix k_keyed
    k_keyed_v3 l_multi_rg m_rollback n_v1 o_null_part
}

/// A filter, and what it keeps.
type Condition = (&'static str, fn(&Value) -> bool);

#[test]
fn a_filtered_mirror_is_compared_with_what_the_filter_keeps_of_its_source() {
    follow("d_dv", Some(("id BETWEEN 10 AND 30", |row| row["id"].as_i64().is_some_and(|id| (10..=30).contains(&id)))));
    follow("c_eqdel", Some(("name LIKE 'n1%'", |row| row["name"].as_str().is_some_and(|name| name.starts_with("n1")))));
    follow("g_cow", Some(("id >= 10", |row| row["id"].as_i64().is_some_and(|id| id >= 10))));
    follow("k_keyed_v3", Some(("tenant = 'a'", |row| row["tenant"] == "a")));
}

/// Compares, and gives the report.
fn verify(job: &Path, code: i32, more: &[&str]) -> Value {
    let job = job.to_str().expect("UTF-8");
    let done = Iceferry::find().output(&[&["verify", job, "--output", "json"], more].concat());
    assert_eq!(done.code, Some(code), "{more:?}\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error} in {}", done.stdout))
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Carries a fixture's history in steps; after each the target equals the source, and differs from other snapshots of it by
/// just those rows by which these differ. With a filter it is the same of the rows that it keeps.
fn follow(table: &str, filter: Option<Condition>) {
    let Some(_lab) = Lab::with(&[Component::Core]) else { return };
    let (mut fixture, iceferry, scratch) = (Fixture::load(table), Iceferry::find(), Scratch::new());
    if let Some((_, keeps)) = filter {
        let lines = fixture.main.iter_mut().map(|snapshot| &mut snapshot.lines);
        lines.for_each(|lines| lines.retain(|line| keeps(&serde_json::from_str(line).expect("a row is JSON"))));
    }
    let keyed: Vec<&str> = match fixture.identifier_columns.is_empty() {
        true => KEY.to_vec(),
        false => fixture.identifier_columns.iter().map(String::as_str).collect(),
    };
    let lake = scratch.join("lake");
    let catalog = Catalog::hadoop(&lake);
    let job = |to: &MainSnapshot| {
        let mut job = Job::of_fixture(&fixture, &catalog, "mirror.t", &keyed).to_snapshot(&to.id);
        if let Some((filter, _)) = filter {
            job = job.source("filter", filter.into());
        }
        job.write(&scratch.join(format!("{}.yaml", to.id)))
    };
    // What has another schema than the target cannot be carried into it, nor compared with it.
    let (main, last) = (&fixture.main, fixture.main.len() - 1);
    let alike: Vec<&MainSnapshot> = main.iter().filter(|other| other.schema_id == main[last].schema_id).collect();
    let middle = alike.len() / 2;
    for held in [alike[0], alike[middle], alike[alike.len() - 1]] {
        let job = job(held);
        iceferry.run(&job);
        let before = listing(&lake);
        let report = verify(&job, 0, &[]);
        assert_eq!(report["outcome"], "equal", "{table}: {report}");
        assert_eq!(report["source"]["snapshot_id"], held.id, "{table}: {report}");
        for side in ["source", "target"] {
            assert_eq!(report[side]["rows"], json!(held.lines.len()), "{table} {side}: {report}");
        }
        assert_eq!(number(&report, "rows_read"), 2 * held.lines.len() as u64, "{table}: each side once, {report}");
        assert_eq!(number(&report, "rows_read_again") + number(&report, "hashes_read_again"), 0, "{table}: {report}");

        for other in &alike {
            let expected = Expected::of(other, held, &keyed);
            let code = if expected.is_equal() { 0 } else { DIFFERENT };
            let report = verify(&job, code, &["--source-snapshot", &other.id, "--rows", "10000"]);
            expected.is_found_in(&report, &format!("{table} at {} with {}", held.id, other.id));
        }
        assert_eq!(listing(&lake), before, "{table}: nothing is left, and nothing changed");
        assert!(!lake.join("mirror/t/data/iceferry-verify").exists(), "{table}: a folder is left");
    }
}

/// What a comparison of two snapshots is to find, by the rows that Spark read of them.
struct Expected {
    /// By the text of the key, what is to be told of it; several rows may have one key.
    rows: BTreeSet<(String, &'static str, usize)>,
    counts: [u64; 3],
}

impl Expected {
    fn of(source: &MainSnapshot, target: &MainSnapshot, key: &[&str]) -> Self {
        let mut bag: BTreeMap<&str, i64> = BTreeMap::new();
        source.lines.iter().for_each(|line| *bag.entry(line).or_default() += 1);
        target.lines.iter().for_each(|line| *bag.entry(line).or_default() -= 1);
        let mut by_key: HashMap<String, (usize, usize)> = HashMap::new();
        for (line, count) in bag {
            let of_key = by_key.entry(key_of(line, key)).or_default();
            of_key.0 += usize::try_from(count).unwrap_or(0);
            of_key.1 += usize::try_from(-count).unwrap_or(0);
        }
        let (mut rows, mut counts) = (BTreeSet::new(), [0; 3]);
        for (key, (more, fewer)) in by_key {
            let changed = more.min(fewer);
            for (at, (kind, count)) in [("missing", more - changed), ("surplus", fewer - changed), ("changed", changed)]
                .into_iter()
                .enumerate()
            {
                counts[at] += count as u64;
                rows.extend((0..count).map(|number| (key.clone(), kind, number)));
            }
        }
        Self { rows, counts }
    }

    fn is_equal(&self) -> bool {
        self.counts == [0; 3]
    }

    fn is_found_in(&self, report: &Value, what: &str) {
        let counts = ["missing", "surplus", "changed"].map(|name| number(report, name));
        assert_eq!(counts, self.counts, "{what}: {report}");
        assert_eq!(report["outcome"], if self.is_equal() { "equal" } else { "different" }, "{what}");
        let mut found = BTreeSet::new();
        for row in report["rows"].as_array().expect("rows") {
            let kind = ["missing", "surplus", "changed"].into_iter().find(|kind| row["difference"] == *kind);
            let kind = kind.unwrap_or_else(|| panic!("{what}: {row}"));
            let values = row["key"].as_array().expect("a key").iter().map(|value| {
                let (source, target) = (&value["source"], &value["target"]);
                if kind == "changed" {
                    assert_eq!(source, target, "{what}: both have the key of {row}");
                }
                let text = if source.is_string() { source } else { target };
                format!("{};", text.as_str().expect("a value"))
            });
            let key: String = values.collect();
            assert!(!row["columns"].as_array().expect("columns").is_empty(), "{what}: {row} says what differs");
            let number = (0..).find(|number| !found.contains(&(key.clone(), kind, *number))).expect("endless");
            found.insert((key, kind, number));
        }
        assert_eq!(found, self.rows, "{what}");
        assert_eq!(number(report, "more"), 0, "{what}");
    }
}

/// The key as it is shown.
fn key_of(line: &str, key: &[&str]) -> String {
    let row: Value = serde_json::from_str(line).expect("a row is JSON");
    key.iter()
        .map(|column| format!("{};", row[column].as_str().map_or_else(|| row[column].to_string(), str::to_owned)))
        .collect()
}

/// A target with as many rows as a comparison of some length takes, that another engine has changed since.
struct Altered {
    scratch: Scratch,
    job: PathBuf,
    rows: u64,
}

impl Altered {
    fn make(lab: &Lab) -> Self {
        let scratch = Scratch::new();
        let source = Source::make(lab, &scratch.folder("source"), 3, 20_000);
        let target = scratch.folder("target");
        let job = Job::new("generated", &source.catalog(), &source.table, &Catalog::sqlite(&target), "mirror.t")
            .keys(&["id"]);
        let job = job.write(&scratch.join("job.yaml"));
        std::fs::create_dir_all(target.join("warehouse")).expect("make a folder");
        Iceferry::find().run(&job);
        let rows = number(&verify(&job, 0, &[])["source"], "rows");
        // The rows 7 and 11 are among those that came back with other names.
        Source::alter_other(lab, &target, "mirror.t");
        Self { scratch, job, rows }
    }
}

#[test]
fn one_changed_one_missing_and_one_surplus_row_are_found_and_little_is_read_twice() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let altered = Altered::make(&lab);
    let before = listing(altered.scratch.path());
    // One slot with little memory writes row hashes in many runs.
    for more in [&[][..], &["--slots", "1", "--memory-mb", "32"]] {
        let report = verify(&altered.job, DIFFERENT, more);
        let counts = ["missing", "surplus", "changed", "more"].map(|name| number(&report, name));
        assert_eq!(counts, [1, 1, 1, 0], "{report}");
        assert!(number(&report, "buckets_different") <= 3, "{report}");
        assert_eq!(number(&report, "rows_read"), 2 * altered.rows, "each side once: {report}");
        assert_eq!(number(&report, "rows_read_again"), 4, "the rows that are shown, and no others: {report}");
        assert!(number(&report, "hashes_read_again") < altered.rows / 50, "{report}");
        let row = |kind: &str| {
            let rows = report["rows"].as_array().expect("rows");
            rows.iter().find(|row| row["difference"] == kind).unwrap_or_else(|| panic!("no {kind} in {report}"))
        };
        assert_eq!(row("missing")["key"], json!([{"column": "id", "source": "7"}]));
        assert_eq!(row("missing")["columns"][0], json!({"column": "name", "source": "back7"}));
        assert_eq!(row("surplus")["key"], json!([{"column": "id", "target": "30000000"}]));
        assert_eq!(row("surplus")["columns"][0], json!({"column": "name", "target": "extra30000000"}));
        assert_eq!(row("changed")["key"], json!([{"column": "id", "source": "11", "target": "11"}]));
        assert_eq!(
            row("changed")["columns"],
            json!([
                {"column": "name", "source": "back11", "target": "n11"},
                {"column": "amount", "source": "0.11", "target": "12.34"}
            ])
        );
    }
    assert_eq!(listing(altered.scratch.path()), before, "nothing is left");
}

#[test]
fn people_are_told_what_differs_up_to_a_number_of_rows() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let altered = Altered::make(&lab);
    let job = altered.job.to_str().expect("UTF-8");
    let said = |more: &[&str]| {
        let done = Iceferry::find().output(&[&["verify", job], more].concat());
        assert_eq!(done.code, Some(DIFFERENT), "{}\n{}", done.stdout, done.stderr);
        assert!(!done.stderr.contains("error"), "a difference is a result: {}", done.stderr);
        done.stdout
    };
    let text = said(&[]);
    for words in [
        "1 row missing in the target, 1 surplus, 1 with other values",
        "missing         id=7  (name=back7, amount=0.07, day=2026-01-08)",
        "surplus         id=30000000  (name=extra30000000",
        "changed         id=11  (name: back11 in the source, n11 in the target; amount: 0.11 in the source, 12.34 in the",
        "of these again 4 rows",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    assert!(!text.contains("more"), "{text}");
    let text = said(&["--rows", "1"]);
    assert!(text.contains("... and 2 more\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("id=")).count(), 1, "{text}");
    let text = said(&["--rows", "0"]);
    assert!(text.contains("... and 3 more\n") && !text.contains("again"), "{text}");
}

#[test]
fn without_a_key_a_changed_row_is_one_missing_and_one_surplus() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = Source::make(&lab, &scratch.folder("source"), 2, 500);
    let target = scratch.folder("target");
    std::fs::create_dir_all(target.join("warehouse")).expect("make a folder");
    let job = Job::new("generated", &source.catalog(), &source.table, &Catalog::sqlite(&target), "mirror.t");
    let job = job.target("mode", "append".into()).to_snapshot(source.full()).write(&scratch.join("job.yaml"));
    Iceferry::find().run(&job);
    let report = verify(&job, 0, &[]);
    assert_eq!(report["target"]["rows"], 1000);
    Source::alter_other(&lab, &target, "mirror.t");
    let report = verify(&job, DIFFERENT, &[]);
    let counts = ["missing", "surplus", "changed"].map(|name| number(&report, name));
    assert_eq!(counts, [2, 2, 0], "{report}");
    assert_eq!(report["rows"][0]["key"], json!([]));
    assert_eq!(report["rows"][0]["columns"].as_array().map(Vec::len), Some(4), "the whole row: {report}");
}

#[test]
fn only_the_columns_that_are_carried_are_compared() {
    let Some(_lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, iceferry, scratch) = (Fixture::load("i_types"), Iceferry::find(), Scratch::new());
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let job =
        Job::of_fixture(&fixture, &catalog, "mirror.t", KEY).source("keep", json!(["id", "s", "ls.element.a", "ms"]));
    let job = job.write(&scratch.join("job.yaml"));
    iceferry.run(&job);
    let report = verify(&job, 0, &[]);
    assert_eq!(number(&report, "rows_read"), 2 * fixture.main[fixture.main.len() - 1].lines.len() as u64);
}

/// One line tells what happened, with these words in it.
fn says(done: &Output, code: i32, words: &[&str]) {
    assert_eq!(done.code, Some(code), "stdout: {}\nstderr: {}", done.stdout, done.stderr);
    let errors: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(errors.len(), 1, "one line that starts with \"error\"\nstderr: {}", done.stderr);
    for word in words {
        assert!(errors[0].contains(word), "{word:?} is not in: {}", errors[0]);
    }
}

#[test]
fn what_cannot_be_compared_is_one_clear_line_and_leaves_no_trace() {
    let Some(_lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, iceferry, scratch) = (Fixture::load("k_keyed"), Iceferry::find(), Scratch::new());
    let lake = scratch.join("lake");
    let catalog = Catalog::hadoop(&lake);
    let write = |job: Job, name: &str| job.write(&scratch.join(format!("{name}.yaml")));
    let fails = |job: &Path, more: &[&str], code: i32, words: &[&str]| {
        let before = listing(&lake);
        let job = job.to_str().expect("UTF-8");
        says(&iceferry.output(&[&["verify", job], more].concat()), code, words);
        assert_eq!(listing(&lake), before, "{words:?}: a trace in the target");
    };
    let mirror = write(Job::of_fixture(&fixture, &catalog, "mirror.t", &[]), "mirror");
    fails(&mirror, &[], NOT_FOUND, &["mirror.t is not there", "iceferry run"]);
    iceferry.run(&mirror);
    verify(&mirror, 0, &[]);
    fails(&mirror, &["--source-snapshot", "5"], NOT_FOUND, &["source db.k_keyed has no snapshot 5"]);
    fails(&mirror, &["--target-snapshot", "5"], NOT_FOUND, &["target mirror.t has no snapshot 5"]);

    let log = Job::of_fixture(&fixture, &catalog, "mirror.log", &[]);
    let log = log.target("mode", "append".into()).target("change_type_column", "_change_type".into());
    let log = write(log, "log");
    iceferry.run(&log);
    fails(&log, &[], REFUSED, &["mirror.log is a changelog"]);

    // A job of another name has brought nothing; with a snapshot named it can be compared all the same.
    let text = std::fs::read_to_string(&mirror).expect("it was written").replace("k-keyed", "other");
    let other = scratch.join("other.yaml");
    std::fs::write(&other, text).expect("write a job file");
    fails(&other, &[], NOT_FOUND, &["no checkpoint of job other", "--source-snapshot"]);
    verify(&other, 0, &["--source-snapshot", &fixture.main[fixture.main.len() - 1].id]);

    // A file of the target that is gone: whatever was written by then is removed.
    let data =
        listing(&lake.join("mirror/t/data")).into_keys().find(|path| path.to_string_lossy().ends_with("data.parquet"));
    std::fs::remove_file(data.expect("a data file")).expect("remove it");
    fails(&mirror, &[], NOT_FOUND, &["it is not there"]);
}

#[test]
fn what_a_killed_comparison_left_goes_on_another_day_and_what_is_young_stays() {
    let Some(_lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, scratch) = (Fixture::load("a_append"), Scratch::new());
    let job = Job::of_fixture(&fixture, &Catalog::hadoop(scratch.join("lake")), "mirror.t", KEY);
    let job = job.write(&scratch.join("job.yaml"));
    Iceferry::find().run(&job);
    let folder = scratch.join("lake/mirror/t/data/iceferry-verify/iceferry/a-append");
    // Runs are named by when they began: one in 2020, one in the year 2200.
    let left = ["016f5e66e80070008000000000000000", "069a8b1a2c0070008000000000000000"].map(|run| {
        let run = folder.join(run);
        std::fs::create_dir_all(&run).expect("make a folder");
        let file = run.join("000000-000000-0-00000-digest");
        std::fs::write(&file, "left").expect("write a file");
        file
    });
    verify(&job, 0, &[]);
    assert_eq!(left.map(|file| file.exists()), [false, true]);
}

#[test]
fn an_older_state_of_the_target_is_compared_when_it_is_asked_for() {
    let Some(_lab) = Lab::with(&[Component::Core]) else { return };
    let (fixture, iceferry, scratch) = (Fixture::load("k_keyed_v3"), Iceferry::find(), Scratch::new());
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let last = fixture.main.len() - 1;
    let job = |to: usize| {
        let job = Job::of_fixture(&fixture, &catalog, "mirror.t", &[]).to_snapshot(&fixture.main[to].id);
        job.write(&scratch.join(format!("{to}.yaml")))
    };
    let first = iceferry.run(&job(0)).report.epochs[0].target_snapshot_id.clone().expect("it has rows");
    iceferry.run(&job(last));
    let source = fixture.main[0].id.as_str();
    let report = verify(&job(last), 0, &["--source-snapshot", source, "--target-snapshot", &first]);
    assert_eq!(report["target"]["snapshot_id"], json!(first));
    verify(&job(last), DIFFERENT, &["--target-snapshot", &first]);
    verify(&job(last), 0, &[]);
}

#[test]
fn two_snapshots_of_one_table_are_compared() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = Source::make(&lab, &scratch.folder("source"), 2, 100);
    let snapshots = source.snapshots();
    let job = Job::new("own", &source.catalog(), &source.table, &source.catalog(), &source.table).keys(KEY);
    let job = job.write(&scratch.join("job.yaml"));
    let (first, last) = (&snapshots[0], &snapshots[snapshots.len() - 1]);
    let before = listing(&scratch.join("source"));
    let report = verify(&job, DIFFERENT, &["--source-snapshot", first, "--target-snapshot", last]);
    assert_eq!((&report["source"]["snapshot_id"], &report["target"]["snapshot_id"]), (&json!(first), &json!(last)));
    verify(&job, 0, &["--source-snapshot", first, "--target-snapshot", first]);
    verify(&job, 0, &["--source-snapshot", last]);
    assert_eq!(listing(&scratch.join("source")), before, "nothing is left, and nothing changed");
}

#[test]
fn a_comparison_that_is_told_to_stop_leaves_nothing() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let scratch = Scratch::new();
    let source = Source::make(&lab, &scratch.folder("source"), 6, 50_000);
    let lake = scratch.join("lake");
    let job = Job::of_source(&source, &Catalog::hadoop(&lake), "mirror.t").write(&scratch.join("job.yaml"));
    let iceferry = Iceferry::find();
    iceferry.run(&job);
    let before = listing(&lake);
    let mut stopped = 0;
    for after_ms in (20..400).step_by(40) {
        let mut command = iceferry.command(&["verify", job.to_str().expect("UTF-8"), "--slots", "1"]);
        let child = Child::start(&mut command);
        std::thread::sleep(Duration::from_millis(after_ms));
        child.terminate();
        let done = child.finish(Duration::from_secs(60));
        match done.code {
            Some(INTERRUPTED) => {
                assert!(done.stderr.contains("stopped as asked; nothing was changed"), "{}", done.stderr);
                stopped += 1;
            }
            // It had ended, or had not come so far as to hear of it.
            Some(0) | None => {}
            code => panic!("{code:?}: {}", done.stderr),
        }
        assert_eq!(listing(&lake), before, "stopped after {after_ms} ms");
    }
    assert!(stopped > 0, "none was stopped on its way");
}
