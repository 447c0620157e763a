//! Every table that Spark wrote comes out right: backfilled at each snapshot of main, carried from each snapshot to the
//! next, and from each to the last. The targets are read back by an engine that shares no code with us.

use std::path::{Path, PathBuf};

use iceferry_integration_tests::{Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Reader, Report, Scratch};

/// How a fixture is mirrored and read back.
struct Case {
    table: &'static str,
    /// What tells rows apart in every snapshot; none where the source has identifier fields. `id` is unique in all
    /// tables without them, though null in a row of c_eqdel and of o_null_part, which equality deletes can carry.
    keys: &'static [&'static str],
    reader: Engine,
}

/// DuckDB reads the targets, save where an equality delete may have a null key: those it gets wrong, and sidequery right.
const fn case(table: &'static str, keys: &'static [&'static str], reader: Engine) -> Case {
    Case { table, keys, reader }
}

const CASES: [Case; 19] = [
    case("a_append", &["id"], Engine::DuckDb),
    case("b_posdel", &["id"], Engine::DuckDb),
    case("c_eqdel", &["id"], Engine::Sidequery),
    case("c_eqdel_part", &["id"], Engine::DuckDb),
    case("d_dv", &["id"], Engine::DuckDb),
    case("d_upg", &["id"], Engine::DuckDb),
    case("e_part", &["id"], Engine::DuckDb),
    case("f_evo", &["id"], Engine::DuckDb),
    case("g_cow", &["id"], Engine::DuckDb),
    case("h_ow", &["id"], Engine::DuckDb),
    case("i_time", &["id"], Engine::DuckDb),
    // sidequery would read its null lists and maps as empty ones.
    case("i_types", &["id"], Engine::DuckDb),
    case("j_cow_mor_mix", &["id"], Engine::DuckDb),
    case("k_keyed", &[], Engine::DuckDb),
    case("k_keyed_v3", &[], Engine::DuckDb),
    case("l_multi_rg", &["id"], Engine::DuckDb),
    case("m_rollback", &["id"], Engine::DuckDb),
    case("n_v1", &["id"], Engine::DuckDb),
    case("o_null_part", &["id"], Engine::Sidequery),
];

/// Exit code of a step that is refused.
const REFUSED: i32 = 4;

macro_rules! fixtures {
    ($($table:ident)*) => {
        $(
            #[test]
            fn $table() {
                mirror(stringify!($table));
            }
        )*

        #[test]
        fn every_fixture_has_a_test_and_a_case() {
            if Lab::with(&[Component::Core]).is_none() {
                return;
            }
            let mut tests = [$(stringify!($table)),*];
            let mut cases = CASES.map(|case| case.table);
            tests.sort_unstable();
            cases.sort_unstable();
            assert_eq!(tests, *Fixture::names());
            assert_eq!(cases, *Fixture::names());
        }
    };
}

fixtures! {
    a_append b_posdel c_eqdel c_eqdel_part d_dv d_upg e_part f_evo g_cow h_ow i_time i_types j_cow_mor_mix k_keyed
    k_keyed_v3 l_multi_rg m_rollback n_v1 o_null_part
}

fn mirror(table: &str) {
    let Some(lab) = Lab::with(&[Component::Core, Component::Side]) else { return };
    let case = CASES.into_iter().find(|case| case.table == table).expect("every test has a case");
    let mut bench = Bench {
        fixture: Fixture::load(table),
        rows: Reader::start(&lab, case.reader),
        files: Reader::start(&lab, Engine::PyIceberg),
        iceferry: Iceferry::find(),
        scratch: Scratch::new(),
        case,
        ways: [0; 3],
    };
    let last = bench.fixture.main.len() - 1;
    // One target goes through all snapshots in turn.
    let mut held = None;
    for next in 0..=last {
        held = Some(bench.step("chain", held, next));
    }
    // And for each snapshot one begins there and goes to the last at once.
    for first in 0..=last {
        let target = format!("from_{first}");
        bench.step(&target, None, first);
        bench.decoded(first);
        if first < last {
            bench.step(&target, Some(first), last);
        }
    }
    let [copied, spliced, decoded] = bench.ways;
    println!("{table}: backfills copied {copied} files, spliced {spliced} and decoded {decoded}");
}

struct Bench {
    case: Case,
    fixture: Fixture,
    rows: Reader,
    files: Reader,
    iceferry: Iceferry,
    scratch: Scratch,
    /// Data files that backfills copied, spliced and decoded.
    ways: [u64; 3],
}

impl Bench {
    /// Brings a target from the snapshot it holds to another, twice, and checks what it shows. Gives what it holds then.
    fn step(&mut self, target: &str, held: Option<usize>, to: usize) -> usize {
        let what = format!("{} {target}: {held:?} to {to}", self.case.table);
        let job = self.job(target, to);
        if let Some(held) = held
            && self.fixture.main[held].schema_id != self.fixture.main[to].schema_id
        {
            self.refuse(&what, target, &job, held);
            return held;
        }
        let report = self.iceferry.run(&job).report;
        self.compare(&what, &report, to);
        assert_eq!(report.target.table, format!("mirror.{target}"), "{what}");
        if let Some(epoch) = report.epochs.last() {
            assert_eq!(epoch.source_snapshot_id, self.fixture.main[to].id, "{what}: the checkpoint");
        }
        if held.is_none() {
            assert_eq!(report.deleted(), 0, "{what}: a backfill deletes nothing");
            self.ways.iter_mut().zip(report.ways()).for_each(|(sum, count)| *sum += count);
        } else if report.deleted() == 0 {
            self.added_no_delete_files(&what, &report);
        }

        let again = self.iceferry.run(&job).report;
        assert!(again.is_nothing_to_do(), "{what}, again: {again:?}");
        assert!(again.epochs.is_empty(), "{what}, again: {again:?}");
        assert_eq!(again.target.metadata_location, report.target.metadata_location, "{what}, again: a commit was made");
        to
    }

    /// A backfill that decodes every row gives the same, and needs no delete files.
    fn decoded(&mut self, to: usize) {
        let what = format!("{} decoded at {to}", self.case.table);
        let catalog = Catalog::hadoop(self.scratch.join("lake"));
        let job = Job::of_fixture(&self.fixture, &catalog, &format!("mirror.decoded_{to}"), self.case.keys)
            .to_snapshot(&self.fixture.main[to].id)
            .target("copy", "decode".into())
            .write(&self.scratch.join(format!("decoded-{to}.yaml")));
        let report = self.iceferry.run(&job).report;
        self.compare(&what, &report, to);
        self.has_no_delete_files(&what, &report);
        assert_eq!(report.ways()[..2], [0, 0], "{what}: no file was carried over as bytes");
    }

    /// A step over a change of schema is refused by name and leaves the target as it was.
    fn refuse(&mut self, what: &str, target: &str, job: &Path, held: usize) {
        let before = self.iceferry.run(&self.job(target, held)).report;
        let done = self.iceferry.try_run(job);
        assert_eq!(done.code, Some(REFUSED), "{what}\n{}", done.stderr);
        let table = self.fixture.table();
        assert!(done.stderr.contains(&table) || done.stderr.contains(target), "{what} names no table: {}", done.stderr);
        assert!(done.stderr.contains("schema"), "{what} does not say why: {}", done.stderr);
        let after = self.iceferry.run(&self.job(target, held)).report;
        assert!(after.is_nothing_to_do(), "{what}: {after:?}");
        assert_eq!(after.target.metadata_location, before.target.metadata_location, "{what}: the target moved");
        self.compare(what, &after, held);
    }

    fn compare(&mut self, what: &str, report: &Report, at: usize) {
        let rows = self.rows.rows(&report.metadata());
        let expected = &self.fixture.main[at].lines;
        let extra: Vec<_> = rows.iter().filter(|row| !expected.contains(row)).take(3).collect();
        let missing: Vec<_> = expected.iter().filter(|row| !rows.contains(row)).take(3).collect();
        assert!(
            rows == *expected,
            "{what}: {} rows, expected {}\nextra: {extra:#?}\nmissing: {missing:#?}\n{report:#?}",
            rows.len(),
            expected.len()
        );
    }

    fn has_no_delete_files(&mut self, what: &str, report: &Report) {
        let files = self.files.files(&report.metadata());
        let deletes: Vec<_> = files.iter().filter(|file| file.content != "data").collect();
        assert!(deletes.is_empty(), "{what}: {deletes:#?}");
    }

    /// Delete files that the run's own snapshots brought in, rather than ones from before.
    fn added_no_delete_files(&mut self, what: &str, report: &Report) {
        let ours: Vec<&String> = report.epochs.iter().filter_map(|epoch| epoch.target_snapshot_id.as_ref()).collect();
        let files = self.files.files(&report.metadata());
        let new = files
            .iter()
            .filter(|file| file.content != "data" && file.snapshots.iter().all(|snapshot| ours.contains(&snapshot)));
        assert_eq!(new.count(), 0, "{what}: nothing was deleted, yet there are new delete files");
    }

    fn job(&self, target: &str, to: usize) -> PathBuf {
        let catalog = Catalog::hadoop(self.scratch.join("lake"));
        let job = Job::of_fixture(&self.fixture, &catalog, &format!("mirror.{target}"), self.case.keys);
        // The files of fixtures are small: some targets take them as they are, some join them, and some decode them.
        let job = match target.rsplit('_').next().and_then(|first| first.parse::<usize>().ok()) {
            Some(first) if first.is_multiple_of(2) => job.of_small_files(1),
            Some(_) => job.of_small_files(1 << 20),
            None => job,
        };
        job.to_snapshot(&self.fixture.main[to].id).write(&self.scratch.join(format!("{target}-{to}.yaml")))
    }
}
