//! A run in one process and one in many come to the same; and neither a kill nor a termination, at any moment, loses a
//! row, carries an epoch twice or leaves files behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use iceferry_integration_tests::{
    Catalog, Child, Component, Engine, Finished, Fixture, Iceferry, Job, Lab, Reader, Report, Scratch, Source,
    free_port, listing, seed, wait_until,
};
use serde_json::json;

/// Time for anything here to end by itself on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Exit code of a run that was asked to stop before its end.
const INTERRUPTED: i32 = 130;

/// One test's surroundings: a source that takes a while to carry, and a place for targets.
struct Place {
    lab: Lab,
    iceferry: Iceferry,
    scratch: Scratch,
    source: Source,
}

impl Place {
    fn new(files: usize, rows: usize) -> Option<Self> {
        let lab = Lab::with(&[Component::Core])?;
        let scratch = Scratch::new();
        let source = Source::make(&lab, &scratch.join("source"), files, rows);
        Some(Self { iceferry: Iceferry::find(), lab, scratch, source })
    }

    fn warehouse(&self, target: &str) -> PathBuf {
        self.scratch.join(target)
    }

    fn job(&self, target: &str) -> Job {
        Job::of_source(&self.source, &Catalog::hadoop(self.warehouse(target)), "mirror.t")
    }

    fn write(&self, target: &str, job: &Job) -> PathBuf {
        job.write(&self.scratch.join(format!("{target}.yaml")))
    }

    /// The whole source, once.
    fn whole(&self, target: &str) -> PathBuf {
        self.write(target, &self.job(target))
    }

    fn reader(&self) -> Reader {
        Reader::start(&self.lab, Engine::DuckDb)
    }

    /// Starts a coordinator and `count` workers of one slot.
    fn cluster(&self, job: &Path, count: usize) -> (Child, Vec<Child>) {
        let address = format!("127.0.0.1:{}", free_port());
        let job = job.to_str().expect("UTF-8");
        let args = ["coordinator", job, "--listen", &address, "--output", "json"];
        let coordinator = Child::start(&mut self.iceferry.command(&args));
        let url = format!("http://{address}");
        let worker = || Child::start(&mut self.iceferry.command(&["worker", "--coordinator", &url, "--slots", "1"]));
        (coordinator, (0..count).map(|_| worker()).collect())
    }

    /// Waits until a file is staged below the target: from then on there is a middle to be stopped in.
    fn wait_for_staged(&self, target: &str) {
        let folder = self.warehouse(target);
        let staged = || listing(&folder).keys().any(|path| path.extension().is_some_and(|e| e == "parquet"));
        assert!(wait_until(LIMIT, staged), "nothing was staged below {}", folder.display());
    }
}

/// The target shows the source; every data file below it is in a snapshot, none is there twice.
fn check(place: &Place, reader: &mut Reader, target: &str, report: &Report, what: &str) {
    let metadata = report.metadata();
    assert_eq!(reader.digest(&metadata), reader.digest(&place.source.metadata), "{what}: the rows");
    let referenced: BTreeSet<PathBuf> = reader.files(&metadata).into_iter().map(|file| file.path.into()).collect();
    let on_disk: BTreeSet<PathBuf> = listing(&place.warehouse(target))
        .into_keys()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "metadata"))
        .collect();
    let left: Vec<_> = on_disk.difference(&referenced).collect();
    let gone: Vec<_> = referenced.difference(&on_disk).collect();
    assert!(left.is_empty(), "{what}: files that nobody references: {left:#?}");
    assert!(gone.is_empty(), "{what}: files that are not there: {gone:#?}");
}

/// The same after one more run, which moves nothing, and has removed what a lost attempt left.
fn check_after_next(place: &Place, job: &Path, report: &Report, what: &str) {
    let next = place.iceferry.run(job).report;
    assert!(next.is_nothing_to_do(), "{what}: {next:?}");
    assert_eq!(next.target.metadata_location, report.target.metadata_location, "{what}");
    check(place, &mut place.reader(), "target", &next, what);
}

/// The number of target snapshots that carry rows. A takeover may add ones that carry none.
fn snapshots_with_rows(metadata: &Path) -> usize {
    let text = std::fs::read_to_string(metadata).expect("the report names the metadata file");
    let metadata: serde_json::Value = serde_json::from_str(&text).expect("metadata is JSON");
    let count = |snapshot: &serde_json::Value, key: &str| {
        snapshot["summary"][key].as_str().map_or(0, |text| text.parse::<u64>().expect("a count"))
    };
    let snapshots = metadata["snapshots"].as_array().expect("a list of snapshots");
    snapshots.iter().filter(|s| count(s, "added-data-files") + count(s, "added-delete-files") > 0).count()
}

/// The spacing of kills, and what else a test leaves to chance: a splitmix64 generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}

fn cases(default: usize) -> usize {
    std::env::var("ICEFERRY_CASES").map_or(default, |text| text.parse().expect("ICEFERRY_CASES is a number"))
}

#[test]
fn a_coordinator_and_its_workers_in_processes_of_their_own_carry_a_table() {
    let Some(place) = Place::new(6, 2000) else { return };
    let job = place.whole("target");
    let (coordinator, _workers) = place.cluster(&job, 2);
    let report = Finished::of(coordinator.finish(LIMIT)).report;
    check(&place, &mut place.reader(), "target", &report, "separate processes");
}

#[test]
fn separate_processes_carry_a_fixture_through_all_its_snapshots() {
    let Some(place) = Place::new(1, 10) else { return };
    let fixture = Fixture::load("k_keyed");
    let mut reader = place.reader();
    for snapshot in &fixture.main {
        let job = Job::of_fixture(&fixture, &Catalog::hadoop(place.warehouse("fixture")), "mirror.k_keyed", &[]);
        let job = place.write("fixture", &job.to_snapshot(&snapshot.id));
        let (coordinator, _workers) = place.cluster(&job, 2);
        let report = Finished::of(coordinator.finish(LIMIT)).report;
        assert_eq!(reader.rows(&report.metadata()), snapshot.lines, "at {}", snapshot.id);
    }
}

#[test]
fn a_worker_killed_in_the_middle_costs_nothing_but_time() {
    let Some(place) = Place::new(40, 8000) else { return };
    let job = place.whole("target");
    let (mut coordinator, mut workers) = place.cluster(&job, 2);
    place.wait_for_staged("target");
    assert!(coordinator.is_running(), "the source is too small to be stopped in the middle");
    workers[0].kill();
    let report = Finished::of(coordinator.finish(LIMIT)).report;
    assert_eq!(report.epochs.len(), 1, "{report:?}");
    check_after_next(&place, &job, &report, "one of two workers killed");
}

#[test]
fn a_worker_killed_while_rows_are_exchanged_loses_none_of_them() {
    let Some(place) = Place::new(2, 20_000) else { return };
    let changelog = |target: &str| {
        let job = Job::new(
            "log",
            &place.source.catalog(),
            &place.source.table,
            &Catalog::hadoop(place.warehouse(target)),
            "log.t",
        )
        .target("mode", "append".into())
        .target("change_type_column", "_change_type".into())
        .source("starting_strategy", "earliest".into())
        .source("identifier_columns", json!(["id"]));
        place.write(target, &job)
    };
    let mut reader = place.reader();
    let expected = reader.rows(&place.iceferry.run(&changelog("undisturbed")).report.metadata());
    // Nothing fits into one task from here on.
    place.source.set_property("read.split.target-size", "1");
    let job = changelog("target");
    let (coordinator, mut workers) = place.cluster(&job, 2);
    let exchanged =
        || listing(&place.warehouse("target")).keys().any(|path| path.to_string_lossy().contains("exchange.arrows"));
    assert!(wait_until(LIMIT, exchanged), "nothing was exchanged");
    workers[0].kill();
    let report = Finished::of(coordinator.finish(LIMIT)).report;
    let rows = reader.rows(&report.metadata());
    assert!(rows == expected, "{} rows, {} without a kill", rows.len(), expected.len());
    assert!(place.iceferry.run(&job).report.is_nothing_to_do());
    assert!(!exchanged(), "the next run has removed what the killed worker left");
}

#[test]
fn a_terminated_worker_drains_and_the_others_finish() {
    let Some(place) = Place::new(40, 8000) else { return };
    let job = place.whole("target");
    let (mut coordinator, mut workers) = place.cluster(&job, 2);
    place.wait_for_staged("target");
    assert!(coordinator.is_running(), "the source is too small to be stopped in the middle");
    let drained = workers.remove(0);
    drained.terminate();
    let said = drained.finish(LIMIT);
    assert_eq!(said.code, Some(0), "a worker that drained ends well\n{}", said.stderr);
    let report = Finished::of(coordinator.finish(LIMIT)).report;
    check_after_next(&place, &job, &report, "one of two workers terminated");
}

#[test]
fn a_terminated_run_stops_soon_and_the_next_one_finishes_it() {
    let Some(place) = Place::new(40, 8000) else { return };
    let job = place.whole("target");
    let run = place.iceferry.start_run(&job);
    place.wait_for_staged("target");
    let begin = Instant::now();
    run.terminate();
    let said = run.finish(LIMIT);
    assert!(matches!(said.code, Some(0 | INTERRUPTED)), "{:?}\n{}", said.code, said.stderr);
    assert!(begin.elapsed() < Duration::from_secs(60), "it took {:?} to stop", begin.elapsed());
    let report = place.iceferry.run(&job).report;
    check(&place, &mut place.reader(), "target", &report, "terminated, then run again");
}

/// The write lock of a SQLite database, until it is dropped.
struct Held(std::process::Child);

impl Held {
    fn new(lab: &Lab, database: &Path) -> Self {
        let mut command = lab.command("core", "hold.py");
        let piped = command.arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("the virtualenv's Python starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut said).expect("it says that it holds the lock");
        assert_eq!(said, "held\n");
        Self(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it ends");
    }
}

#[test]
fn a_run_terminated_while_it_commits_ends_the_commit_and_removes_nothing_of_it() {
    let Some(place) = Place::new(2, 500) else { return };
    let folder = place.warehouse("target");
    std::fs::create_dir_all(&folder).expect("a folder for the catalog");
    let job = Job::of_source(&place.source, &Catalog::sqlite(&folder), "mirror.t");
    place.iceferry.run(&place.write("first", &job.clone().to_snapshot(place.source.full())));
    let job = place.write("second", &job);

    let held = Held::new(&place.lab, &folder.join("catalog.db"));
    let run = place.iceferry.start_run(&job);
    // The second version is written, and its row waits for the lock.
    let version = || listing(&folder).keys().any(|path| path.to_string_lossy().contains("/metadata/00001-"));
    assert!(wait_until(LIMIT, version), "the run did not come to its commit");
    run.terminate();
    // Time to do the wrong thing.
    std::thread::sleep(Duration::from_millis(500));
    drop(held);
    let said = run.finish(LIMIT);
    assert!(matches!(said.code, Some(0 | INTERRUPTED)), "{:?}\n{}", said.code, said.stderr);
    let report = place.iceferry.run(&job).report;
    let metadata = report.metadata();
    assert_eq!(place.reader().digest(&metadata), place.reader().digest(&place.source.metadata));
    assert!(report.is_nothing_to_do(), "the commit that was on its way is in the table: {report:?}");
}

#[test]
fn a_run_killed_at_any_moment_is_finished_by_the_next() {
    let Some(place) = Place::new(6, 4000) else { return };
    let mut reader = place.reader();
    // What an undisturbed pair of runs takes and leaves: a backfill, then the changes.
    let first = place.job("undisturbed").to_snapshot(place.source.full());
    let first = place.write("undisturbed-first", &first);
    let begin = Instant::now();
    place.iceferry.run(&first);
    let first_takes = begin.elapsed();
    let begin = Instant::now();
    let undisturbed = place.iceferry.run(&place.whole("undisturbed")).report;
    let second_takes = begin.elapsed();
    check(&place, &mut reader, "undisturbed", &undisturbed, "undisturbed");
    let expected = snapshots_with_rows(&undisturbed.metadata());

    let mut chance = Chance(seed());
    for case in 0..cases(12) {
        let target = format!("killed-{case}");
        let first = place.write(&format!("{target}-first"), &place.job(&target).to_snapshot(place.source.full()));
        let second = place.whole(&target);
        let mut what = format!("case {case}:");
        for (job, takes) in [(&first, first_takes), (&second, second_takes)] {
            // Up to two kills of each, most of them before its end, some of them after it.
            for _ in 0..=chance.below(2) {
                let moment = Duration::from_micros(chance.below(takes.as_micros() as u64 * 11 / 10));
                let mut run = place.iceferry.start_run(job);
                std::thread::sleep(moment);
                run.kill();
                drop(run);
                what.push_str(&format!(" killed after {moment:?} of {takes:?}"));
            }
            place.iceferry.run(job);
        }
        let report = place.iceferry.run(&second).report;
        assert!(report.is_nothing_to_do(), "{what}: {report:?}");
        check(&place, &mut reader, &target, &report, &what);
        assert_eq!(snapshots_with_rows(&report.metadata()), expected, "{what}: an epoch is there twice, or not at all");
    }
}
