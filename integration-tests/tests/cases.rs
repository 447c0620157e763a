//! Histories with a known answer: the changes of each snapshot, and the rows of a mirror, read back by DuckDB.

use std::collections::BTreeMap;

use iceferry_integration_tests::model::Script;
use iceferry_integration_tests::{Catalog, Component, Engine, Iceferry, Job, Lab, Output, Reader, Scratch};
use serde_json::{Value, json};

/// One history and its targets.
struct Case {
    scratch: Scratch,
    script: Script,
    reader: Reader,
    targets: usize,
}

impl Case {
    /// An empty table; `None` where DuckDB is not installed.
    fn new(version: u8) -> Option<Self> {
        let lab = Lab::with(&[Component::Core])?;
        let scratch = Scratch::new();
        let script = Script::new(&scratch.join("source"), version);
        Some(Self { scratch, script, reader: Reader::start(&lab, Engine::DuckDb), targets: 0 })
    }

    fn id(&self, snapshot: usize) -> Value {
        self.script.table.snapshots[snapshot - 1].id.into()
    }

    fn job(&self, target: &str) -> Job {
        let (source, lake) = (Catalog::hadoop(self.scratch.join("source")), Catalog::hadoop(self.scratch.join("lake")));
        Job::new("cases", &source, "db.t", &lake, target).source("keep", json!(["id", "v"]))
    }

    /// A changelog of (id, v) in a new target, its updates told by the id.
    fn log_job(&mut self) -> Job {
        self.targets += 1;
        self.job(&format!("lake.log{}", self.targets))
            .target("mode", "append".into())
            .target("change_type_column", "change".into())
            .source("starting_strategy", "earliest".into())
            .source("identifier_columns", json!(["id"]))
            .source("include_metadata_columns", json!(["_commit_snapshot_id", "_change_ordinal"]))
    }

    fn run(&self, job: &Job) -> Output {
        Iceferry::find().try_run(&job.write(&self.scratch.join("job.yaml")))
    }

    /// The rows of a job's target after a run.
    fn rows(&mut self, job: &Job) -> Vec<Value> {
        let metadata = Iceferry::find().run(&job.write(&self.scratch.join("job.yaml"))).report.metadata();
        self.reader.rows(&metadata).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// How many files a run of a job puts into its target: none when nothing changed.
    fn files_staged(&self, job: &Job) -> u64 {
        let report = Iceferry::find().run(&job.write(&self.scratch.join("job.yaml"))).report;
        report.epochs.iter().map(|epoch| epoch.files).sum()
    }

    /// The changes of each snapshot, by its number, sorted.
    fn changes(&mut self, job: &Job) -> BTreeMap<usize, Vec<String>> {
        let mut changes: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for row in self.rows(job) {
            let id = row["_commit_snapshot_id"].as_i64().expect("a snapshot");
            let of = self.script.table.snapshots.iter().position(|snapshot| snapshot.id == id).expect("a snapshot");
            changes.entry(of + 1).or_default().push(change(&row));
        }
        changes.values_mut().for_each(|changes| changes.sort());
        changes
    }

    /// Each snapshot has these changes, S1 first, in a changelog from the earliest on.
    fn has_changes(&mut self, expected: &[&str]) {
        let job = self.log_job();
        self.job_has_changes(&job, expected);
    }

    fn job_has_changes(&mut self, job: &Job, expected: &[&str]) {
        let changes = self.changes(job);
        for (at, expected) in expected.iter().enumerate() {
            let found = changes.get(&(at + 1)).cloned().unwrap_or_default();
            let mut expected: Vec<&str> = expected.split_whitespace().collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "changes of S{}; all: {changes:?}", at + 1);
        }
        assert!(changes.keys().all(|of| *of <= expected.len()), "changes of later snapshots: {changes:?}");
    }

    /// A mirror has these rows, carried in one run and snapshot by snapshot.
    fn mirror_has(&mut self, expected: &str) {
        let mut expected: Vec<&str> = expected.split_whitespace().collect();
        expected.sort_unstable();
        self.targets += 1;
        let target = format!("lake.mirror{}", self.targets);
        let step = |case: &Self, to: usize| case.job(&target).keys(&["id"]).source("to_snapshot", case.id(to));
        for to in 1..=self.script.table.snapshots.len() {
            let job = step(self, to);
            self.rows(&job);
        }
        let whole = self.job(&format!("{target}_whole")).keys(&["id"]);
        for job in [step(self, self.script.table.snapshots.len()), whole] {
            let mut rows: Vec<String> = self.rows(&job).iter().map(change).collect();
            rows.sort();
            assert_eq!(rows, expected);
        }
    }
}

/// `UB(1,a)` of a changelog, `(1,a)` of a mirror.
fn change(row: &Value) -> String {
    let short = match row["change"].as_str() {
        Some("INSERT") => "I",
        Some("UPDATE_BEFORE") => "UB",
        Some("UPDATE_AFTER") => "UA",
        Some("DELETE") => "D",
        None => "",
        Some(other) => panic!("no such change: {other}"),
    };
    format!("{short}({},{})", row["id"], row["v"].as_str().unwrap_or("null"))
}

#[test]
fn a_range_of_four_appends_gives_its_own_rows_in_order() {
    let Some(mut case) = Case::new(2) else { return };
    for (id, v) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        let file = case.script.file(&[(id, v)]);
        case.script.snapshot("append", &[&file], &[]);
    }
    let (from, to) = (case.id(2), case.id(3));
    let log = |case: &mut Case| {
        let job = case.log_job().without_source("starting_strategy");
        job.source("from_snapshot", from.clone()).source("to_snapshot", to.clone()).source("keep", json!(["id"]))
    };
    let job = log(&mut case);
    case.job_has_changes(&job, &["", "I(2,null)", "I(3,null)"]);
    let rows = case.rows(&job);
    let ordinals: Vec<_> = rows.iter().map(|row| (row["id"].as_i64(), row["_change_ordinal"].as_i64())).collect();
    assert!(ordinals.contains(&(Some(2), Some(0))) && ordinals.contains(&(Some(3), Some(1))), "{ordinals:?}");
    assert!(rows.iter().all(|row| row.get("v").is_none()), "column id only");
}

#[test]
fn one_snapshot_is_filtered_by_a_column_that_is_not_carried() {
    let Some(mut case) = Case::new(2) else { return };
    for rows in [[(1, "x"), (2, "y")], [(3, "x"), (4, "y")], [(5, "x"), (6, "y")]] {
        let file = case.script.file(&rows);
        case.script.snapshot("append", &[&file], &[]);
    }
    let columns = ["_commit_snapshot_id", "_change_ordinal", "_pos", "_commit_snapshot_sequence_number"];
    for key in [json!(["id"]), Value::Null] {
        let job = case.log_job().without_source("starting_strategy");
        let job = if key.is_null() { job.without_source("identifier_columns") } else { job };
        let job = job
            .source("from_snapshot", case.id(2))
            .source("to_snapshot", case.id(2))
            .source("keep", json!(["id"]))
            .source("filter", "v = 'y'".into())
            .source("include_metadata_columns", json!(columns));
        let rows = case.rows(&job);
        let expected = json!([{"id": 4, "change": "INSERT", "_commit_snapshot_id": case.id(2), "_change_ordinal": 0,
            "_pos": 1, "_commit_snapshot_sequence_number": 2}]);
        assert_eq!(json!(rows), expected);
    }
}

#[test]
fn an_update_over_the_filters_edge_shows_the_side_that_matches() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "x"), (2, "y"), (3, "x")]);
    case.script.snapshot("append", &[&one], &[]);
    let (two, ids) = (case.script.file(&[(1, "y"), (2, "x"), (3, "x")]), case.script.ids(&[1, 2]));
    let hit = case.script.positions(&[(&one, 2)]);
    case.script.snapshot("overwrite", &[&two, &ids, &hit], &[]);
    let log = case.log_job().source("filter", "v = 'x'".into());
    case.job_has_changes(&log, &["I(1,x) I(3,x)", "UB(1,x) UA(2,x)"]);
    // The same where the column itself is not carried.
    let narrow = case.log_job().source("filter", "v = 'x'".into()).source("keep", json!(["id"]));
    case.job_has_changes(&narrow, &["I(1,null) I(3,null)", "UB(1,null) UA(2,null)"]);
    let mirror = |case: &Case, to| {
        case.job("lake.edge").keys(&["id"]).source("filter", "v = 'x'".into()).source("to_snapshot", case.id(to))
    };
    for (to, expected) in [(1, ["(1,x)", "(3,x)"]), (2, ["(2,x)", "(3,x)"])] {
        let job = mirror(&case, to);
        let mut rows: Vec<String> = case.rows(&job).iter().map(change).collect();
        rows.sort();
        assert_eq!(rows, expected, "at S{to}");
    }
}

#[test]
fn ranges_after_one_another_have_each_change_once() {
    let Some(mut case) = Case::new(2) else { return };
    for (id, v) in [(1, "a"), (2, "b"), (3, "c")] {
        let file = case.script.file(&[(id, v)]);
        case.script.snapshot("append", &[&file], &[]);
    }
    let job = case.log_job().without_source("starting_strategy");
    let range = |case: &Case, after, to| {
        job.clone().source("after_snapshot", case.id(after)).source("to_snapshot", case.id(to))
    };
    let first = range(&case, 1, 2);
    case.job_has_changes(&first, &["", "I(2,b)"]);
    let second = range(&case, 2, 3);
    case.job_has_changes(&second, &["", "I(2,b)", "I(3,c)"]);
    let fresh = case.log_job().without_source("starting_strategy");
    let none = fresh.source("after_snapshot", case.id(2)).source("to_snapshot", case.id(2));
    let done = case.run(&none);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("nothing-to-do"), "{}", done.stdout);
}

#[test]
fn earliest_has_every_snapshot_and_initial_the_state_first() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a"), (2, "b")]);
    case.script.snapshot("append", &[&one], &[]);
    let gone = case.script.positions(&[(&one, 0)]);
    case.script.snapshot("delete", &[&gone], &[]);
    let three = case.script.file(&[(3, "c")]);
    case.script.snapshot("append", &[&three], &[]);
    case.has_changes(&["I(1,a) I(2,b)", "D(1,a)", "I(3,c)"]);
    let initial = case.log_job().source("starting_strategy", "initial".into()).source("to_snapshot", case.id(2));
    case.job_has_changes(&initial, &["", "I(2,b)"]);
    let on = initial.without_source("to_snapshot");
    case.job_has_changes(&on, &["", "I(2,b)", "I(3,c)"]);
    let latest = case.log_job().source("starting_strategy", "latest".into());
    case.job_has_changes(&latest, &["", "", "I(3,c)"]);
}

#[test]
fn a_compaction_changes_nothing_and_later_deletes_find_its_rows() {
    let Some(mut case) = Case::new(2) else { return };
    let files: Vec<_> = [(1, "a"), (2, "b"), (3, "c")].iter().map(|row| case.script.file(&[*row])).collect();
    for file in &files {
        case.script.snapshot("append", &[file], &[]);
    }
    let compacted = case.script.file(&[(1, "a"), (2, "b"), (3, "c")]);
    case.script.snapshot("replace", &[&compacted], &files.iter().collect::<Vec<_>>());
    let gone = case.script.positions(&[(&compacted, 0)]);
    case.script.snapshot("delete", &[&gone], &[]);
    case.has_changes(&["I(1,a)", "I(2,b)", "I(3,c)", "", "D(1,a)"]);
    case.mirror_has("(2,b) (3,c)");
    // The compaction moves the checkpoint, so that the run after it begins there.
    let job = case.log_job().source("to_snapshot", case.id(4));
    case.changes(&job);
    let again = case.run(&job);
    assert!(again.stdout.contains("nothing-to-do"), "{}", again.stdout);
}

#[test]
fn a_compaction_by_another_name_changes_nothing_either() {
    let Some(mut case) = Case::new(2) else { return };
    let files: Vec<_> = [(1, "a"), (2, "b")].iter().map(|row| case.script.file(&[*row])).collect();
    case.script.snapshot("append", &files.iter().collect::<Vec<_>>(), &[]);
    let compacted = case.script.file(&[(2, "b"), (1, "a")]);
    case.script.snapshot("overwrite", &[&compacted], &files.iter().collect::<Vec<_>>());
    let gone = case.script.ids(&[2]);
    case.script.snapshot("delete", &[&gone], &[]);
    case.has_changes(&["I(1,a) I(2,b)", "", "D(2,b)"]);
}

#[test]
fn rewritten_manifests_between_appends_are_no_change() {
    let Some(mut case) = Case::new(2) else { return };
    for (id, v) in [(1, "a"), (2, "b"), (3, "c")] {
        let file = case.script.file(&[(id, v)]);
        case.script.snapshot("append", &[&file], &[]);
        case.script.merge_manifests();
    }
    case.has_changes(&["I(1,a)", "", "I(2,b)", "", "I(3,c)", ""]);
    let job = case.log_job();
    let rows = case.rows(&job);
    let mut ordinals: Vec<_> = rows.iter().map(|row| (row["id"].as_i64(), row["_change_ordinal"].as_i64())).collect();
    ordinals.sort_unstable();
    assert_eq!(ordinals, [(Some(1), Some(0)), (Some(2), Some(1)), (Some(3), Some(2))]);
}

#[test]
fn no_operation_is_skipped_whatever_its_name() {
    let Some(mut case) = Case::new(2) else { return };
    let (one, two) = (case.script.file_in(1, &[(1, "a"), (2, "b")]), case.script.file_in(2, &[(3, "c")]));
    case.script.snapshot("append", &[&one, &two], &[]);
    case.script.snapshot("delete", &[], &[&one]);
    let overwritten = case.script.file_in(2, &[(3, "C"), (4, "d")]);
    case.script.snapshot("overwrite", &[&overwritten], &[&two]);
    let five = case.script.file_in(1, &[(5, "e")]);
    case.script.snapshot("append", &[&five], &[]);
    case.has_changes(&["I(1,a) I(2,b) I(3,c)", "D(1,a) D(2,b)", "UB(3,c) UA(3,C) I(4,d)", "I(5,e)"]);
    case.mirror_has("(3,C) (4,d) (5,e)");
}

#[test]
fn a_table_without_sequence_numbers_is_followed_by_its_parents() {
    let Some(mut case) = Case::new(1) else { return };
    for (id, v) in [(1, "a"), (2, "b"), (3, "c")] {
        let file = case.script.file(&[(id, v)]);
        case.script.snapshot("append", &[&file], &[]);
    }
    case.has_changes(&["I(1,a)", "I(2,b)", "I(3,c)"]);
    case.mirror_has("(1,a) (2,b) (3,c)");
}

#[test]
fn a_planned_file_that_was_deleted_is_named_and_a_new_plan_goes_on() {
    let Some(mut case) = Case::new(2) else { return };
    let (one, two) = (case.script.file(&[(1, "a")]), case.script.file(&[(2, "b")]));
    case.script.snapshot("append", &[&one], &[]);
    let mirror = case.job("lake.mirror").keys(&["id"]);
    case.rows(&mirror);
    case.script.snapshot("append", &[&two], &[]);
    let again = case.script.file(&[(2, "b")]);
    std::fs::remove_file(two.path()).expect("the file is there");
    let failed = case.run(&mirror);
    assert_eq!(failed.code, Some(7), "{}", failed.stderr);
    assert!(failed.stderr.contains(two.path()), "the file is named: {}", failed.stderr);
    case.script.snapshot("overwrite", &[&again], &[&two]);
    let rows: Vec<String> = case.rows(&mirror).iter().map(change).collect();
    assert_eq!(rows, ["(1,a)", "(2,b)"], "what was committed stays, and the rest comes");
}

#[test]
fn added_and_removed_files_and_new_deletes_give_the_rows_that_they_change() {
    let Some(mut case) = Case::new(2) else { return };
    let (one, two) = (case.script.file(&[(1, "a"), (2, "b")]), case.script.file(&[(3, "c"), (4, "d")]));
    case.script.snapshot("append", &[&one, &two], &[]);
    let (three, hit) = (case.script.file(&[(5, "e")]), case.script.positions(&[(&one, 1)]));
    case.script.snapshot("overwrite", &[&three, &hit], &[&two]);
    case.has_changes(&["I(1,a) I(2,b) I(3,c) I(4,d)", "D(2,b) D(3,c) D(4,d) I(5,e)"]);
}

#[test]
fn a_file_replaced_in_one_snapshot_has_both_sides_under_one_ordinal() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a"), (2, "b")]);
    case.script.snapshot("append", &[&one], &[]);
    let two = case.script.file(&[(3, "c")]);
    case.script.snapshot("overwrite", &[&two], &[&one]);
    case.has_changes(&["I(1,a) I(2,b)", "D(1,a) D(2,b) I(3,c)"]);
    let job = case.log_job().without_source("starting_strategy").source("from_snapshot", case.id(2));
    let rows = case.rows(&job);
    assert!(rows.len() == 3 && rows.iter().all(|row| row["_change_ordinal"] == 0), "{rows:?}");
}

#[test]
fn a_partition_that_is_overwritten_loses_its_rows_and_gains_the_new_ones() {
    let Some(mut case) = Case::new(2) else { return };
    let (a, b) = (case.script.file_in(1, &[(1, "a")]), case.script.file_in(2, &[(2, "b")]));
    case.script.snapshot("append", &[&a, &b], &[]);
    let new = case.script.file_in(2, &[(-2, "b")]);
    case.script.snapshot("overwrite", &[&new], &[&b]);
    case.has_changes(&["I(1,a) I(2,b)", "D(2,b) I(-2,b)"]);
}

#[test]
fn deletes_in_the_range_are_applied_and_no_row_is_told_twice() {
    let Some(mut case) = Case::new(2) else { return };
    let files: Vec<_> = [[(1, "a"), (2, "b")], [(3, "c"), (4, "d")], [(5, "e"), (6, "f")]]
        .iter()
        .map(|rows| case.script.file(rows))
        .collect();
    case.script.snapshot("append", &files.iter().collect::<Vec<_>>(), &[]);
    let first = case.script.positions(&[(&files[1], 0)]);
    case.script.snapshot("delete", &[&first], &[]);
    let second = case.script.ids(&[1, 3, 4, 5]);
    case.script.snapshot("delete", &[&second], &[]);
    let (third, fourth) = (case.script.positions(&[(&files[2], 1), (&files[2], 0)]), case.script.ids(&[2, 6]));
    case.script.snapshot("delete", &[&third, &fourth], &[]);
    case.has_changes(&["I(1,a) I(2,b) I(3,c) I(4,d) I(5,e) I(6,f)", "D(3,c)", "D(1,a) D(4,d) D(5,e)", "D(2,b) D(6,f)"]);
    case.mirror_has("");
}

#[test]
fn a_file_that_comes_with_deletes_of_its_own_snapshot_is_hit_by_positions_and_spared_by_keys() {
    let Some(mut case) = Case::new(2) else { return };
    let (one, two) = (case.script.file(&[(1, "a"), (2, "b")]), case.script.file(&[(3, "c")]));
    let (hit, spared) = (case.script.positions(&[(&one, 1)]), case.script.ids(&[1, 3]));
    case.script.snapshot("append", &[&one, &two, &hit, &spared], &[]);
    case.has_changes(&["I(1,a) I(3,c)"]);
    case.mirror_has("(1,a) (3,c)");
}

#[test]
fn an_equality_delete_reaches_its_own_partition_and_a_global_one_all() {
    let Some(mut case) = Case::new(2) else { return };
    let (eu, us) = (case.script.file_in(1, &[(1, "eu")]), case.script.file_in(2, &[(1, "us")]));
    case.script.snapshot("append", &[&eu, &us], &[]);
    let scoped = case.script.ids_in(1, &[1]);
    case.script.snapshot("delete", &[&scoped], &[]);
    let global = case.script.ids(&[1]);
    case.script.snapshot("delete", &[&global], &[]);
    case.has_changes(&["I(1,eu) I(1,us)", "D(1,eu)", "D(1,us)"]);
}

#[test]
fn an_equality_delete_gives_the_full_rows_that_it_hits_and_none_if_it_hits_none() {
    let Some(mut case) = Case::new(2) else { return };
    for v in ["a", "b"] {
        let file = case.script.file(&[(1, v)]);
        case.script.snapshot("append", &[&file], &[]);
    }
    for ids in [[1], [99]] {
        let hit = case.script.ids(&ids);
        case.script.snapshot("delete", &[&hit], &[]);
    }
    case.has_changes(&["I(1,a)", "I(1,b)", "D(1,a) D(1,b)", ""]);
}

#[test]
fn one_delete_file_for_two_files_with_unsorted_and_repeated_positions() {
    let Some(mut case) = Case::new(2) else { return };
    let rows = |from: i64| (from..from + 10).map(|id| (id, "x")).collect::<Vec<_>>();
    let (one, two) = (case.script.file(&rows(0)), case.script.file(&rows(10)));
    case.script.snapshot("append", &[&one, &two], &[]);
    let at = |id: usize| if id < 10 { (&one, id) } else { (&two, id - 10) };
    let mut evens: Vec<_> = (0..20).step_by(2).map(at).collect();
    evens.reverse();
    evens.push(at(4));
    let threes: Vec<_> = (0..20).step_by(3).map(at).collect();
    let (evens, threes) = (case.script.positions(&evens), case.script.positions(&threes));
    case.script.snapshot("delete", &[&evens], &[]);
    case.script.snapshot("delete", &[&threes], &[]);
    case.mirror_has("(1,x) (5,x) (7,x) (11,x) (13,x) (17,x) (19,x)");
    let log = case.log_job();
    let changes = case.changes(&log);
    assert_eq!(changes[&2].len(), 10);
    assert_eq!(changes[&3], ["D(15,x)", "D(3,x)", "D(9,x)"]);
}

#[test]
fn vectors_of_one_puffin_file_go_to_their_own_files() {
    let Some(mut case) = Case::new(3) else { return };
    let (one, two) = (case.script.file(&[(1, "a"), (2, "b")]), case.script.file(&[(3, "c"), (4, "d")]));
    case.script.snapshot("append", &[&one, &two], &[]);
    let vectors = case.script.vectors(&[(&one, &[0]), (&two, &[1])]);
    case.script.snapshot("delete", &[&vectors[0], &vectors[1]], &[]);
    // A vector that takes another's place kills what it adds.
    let more = case.script.vectors(&[(&one, &[0, 1])]);
    case.script.snapshot("delete", &[&more[0]], &[&vectors[0]]);
    case.has_changes(&["I(1,a) I(2,b) I(3,c) I(4,d)", "D(1,a) D(4,d)", "D(2,b)"]);
    case.mirror_has("(3,c)");
}

#[test]
fn a_delete_that_is_taken_away_revives_its_rows() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a")]);
    case.script.snapshot("append", &[&one], &[]);
    let hit = case.script.positions(&[(&one, 0)]);
    case.script.snapshot("delete", &[&hit], &[]);
    case.script.snapshot("overwrite", &[], &[&hit]);
    case.has_changes(&["I(1,a)", "D(1,a)", "I(1,a)"]);
    case.mirror_has("(1,a)");
}

#[test]
fn insert_delete_rewrite_and_mixed_snapshots_have_their_ordinals() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a"), (2, "b")]);
    case.script.snapshot("append", &[&one], &[]);
    let hit = case.script.positions(&[(&one, 0)]);
    case.script.snapshot("delete", &[&hit], &[]);
    let rewritten = case.script.file(&[(2, "b")]);
    case.script.snapshot("replace", &[&rewritten], &[&one, &hit]);
    let (mixed, ids) = (case.script.file(&[(2, "B"), (3, "c")]), case.script.ids(&[2]));
    case.script.snapshot("overwrite", &[&mixed, &ids], &[]);
    case.has_changes(&["I(1,a) I(2,b)", "D(1,a)", "", "UB(2,b) UA(2,B) I(3,c)"]);
    let job = case.log_job();
    let rows = case.rows(&job);
    let ordinal = |change: &str, id: i64| {
        let of = rows.iter().find(|row| row["change"] == change && row["id"] == id).expect("a change");
        of["_change_ordinal"].as_i64().expect("an ordinal")
    };
    assert_eq!([ordinal("INSERT", 1), ordinal("DELETE", 1), ordinal("UPDATE_AFTER", 2)], [0, 1, 2]);
}

#[test]
fn a_rewrite_carries_over_what_it_does_not_change() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a"), (2, "b")]);
    case.script.snapshot("append", &[&one], &[]);
    let two = case.script.file(&[(1, "a2"), (2, "b")]);
    case.script.snapshot("overwrite", &[&two], &[&one]);
    case.has_changes(&["I(1,a) I(2,b)", "UB(1,a) UA(1,a2)"]);
    // Without a key there are no pairs, and carry-over is no change all the same.
    let plain = case.log_job().without_source("identifier_columns");
    case.job_has_changes(&plain, &["I(1,a) I(2,b)", "D(1,a) I(1,a2)"]);
    case.mirror_has("(1,a2) (2,b)");
}

#[test]
fn every_metadata_column_of_a_rewrite_on_version_3_is_true() {
    let Some(mut case) = Case::new(3) else { return };
    let one = case.script.file(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    case.script.snapshot("append", &[&one], &[]);
    let two = case.script.file_with_row_ids(&[(3, "C", 2), (4, "D", 3)]);
    case.script.snapshot("overwrite", &[&two], &[&one]);
    for key in [json!(["id"]), Value::Null] {
        let job = case.log_job().source(
            "include_metadata_columns",
            json!([
                "_commit_snapshot_id",
                "_commit_snapshot_sequence_number",
                "_row_id",
                "_last_updated_sequence_number",
                "_file",
                "_pos",
                "_spec_id",
                "_commit_timestamp",
                "_change_ordinal"
            ]),
        );
        let job = if key.is_null() { job.without_source("identifier_columns") } else { job };
        case.job_has_changes(&job, &["I(1,a) I(2,b) I(3,c) I(4,d)", "D(1,a) D(2,b) UB(3,c) UA(3,C) UB(4,d) UA(4,D)"]);
        for row in case.rows(&job) {
            let id = row["id"].as_i64().expect("an id");
            let (is_first, is_new) = (row["change"] == "INSERT", row["change"] == "UPDATE_AFTER");
            let snapshot = if is_first { 1 } else { 2 };
            assert_eq!(row["_commit_snapshot_id"], case.id(snapshot), "{row}");
            assert_eq!(row["_commit_snapshot_sequence_number"], snapshot, "{row}");
            assert_eq!(row["_change_ordinal"], snapshot - 1, "{row}");
            assert_eq!(row["_row_id"], id - 1, "{row}");
            assert_eq!(row["_last_updated_sequence_number"], if is_new { 2 } else { 1 }, "{row}");
            assert_eq!(row["_file"], if is_new { two.path() } else { one.path() }, "{row}");
            assert_eq!(row["_pos"], if is_new { id - 3 } else { id - 1 }, "{row}");
            assert_eq!(row["_spec_id"], 0, "{row}");
        }
    }
}

#[test]
fn a_key_that_changes_in_three_snapshots_is_one_insert_and_two_updates() {
    let Some(mut case) = Case::new(2) else { return };
    let mut last = case.script.file(&[(1, "v1")]);
    case.script.snapshot("append", &[&last], &[]);
    for v in ["v2", "v3"] {
        let (new, hit) = (case.script.file(&[(1, v)]), case.script.positions(&[(&last, 0)]));
        case.script.snapshot("overwrite", &[&new, &hit], &[]);
        last = new;
    }
    case.has_changes(&["I(1,v1)", "UB(1,v1) UA(1,v2)", "UB(1,v2) UA(1,v3)"]);
}

#[test]
fn an_update_over_two_files_is_one_pair() {
    let Some(mut case) = Case::new(2) else { return };
    let files: Vec<_> = (0..9).map(|at| case.script.file(&[(at * 10, "x"), (at * 10 + 5, "y")])).collect();
    case.script.snapshot("append", &files.iter().collect::<Vec<_>>(), &[]);
    let (new, hit) = (case.script.file(&[(40, "z"), (7, "new")]), case.script.positions(&[(&files[4], 0)]));
    case.script.snapshot("overwrite", &[&new, &hit], &[]);
    let job = case.log_job();
    assert_eq!(case.changes(&job)[&2], ["I(7,new)", "UA(40,z)", "UB(40,x)"]);
}

#[test]
fn two_identifier_columns_tell_rows_apart() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(2, "11"), (2, "13")]);
    case.script.snapshot("append", &[&one], &[]);
    let (new, hit) = (case.script.file_in(1, &[(2, "11"), (2, "12")]), case.script.positions(&[(&one, 0)]));
    case.script.snapshot("overwrite", &[&new, &hit], &[]);
    // The new row of (2,11) has another p.
    let job = case.log_job().source("keep", json!(["id", "v", "p"])).source("identifier_columns", json!(["id", "v"]));
    case.job_has_changes(&job, &["I(2,11) I(2,13)", "UB(2,11) UA(2,11) I(2,12)"]);
}

#[test]
fn a_key_that_changes_itself_is_a_delete_and_an_insert() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a")]);
    case.script.snapshot("append", &[&one], &[]);
    let five = case.script.file(&[(5, "a")]);
    case.script.snapshot("overwrite", &[&five], &[&one]);
    case.has_changes(&["I(1,a)", "D(1,a) I(5,a)"]);
}

#[test]
fn an_upsert_has_no_before_image_that_was_not_there() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "a")]);
    case.script.snapshot("append", &[&one], &[]);
    let deletes = [case.script.ids(&[1]), case.script.ids(&[2])];
    let rows = case.script.file(&[(1, "b"), (2, "z")]);
    case.script.snapshot("overwrite", &[&deletes[0], &deletes[1], &rows], &[]);
    case.has_changes(&["I(1,a)", "UB(1,a) UA(1,b) I(2,z)"]);
    case.mirror_has("(1,b) (2,z)");
}

#[test]
fn net_changes_are_those_of_the_two_ends() {
    let Some(mut case) = Case::new(2) else { return };
    let mut last = case.script.file(&[(1, "a"), (9, "stays")]);
    case.script.snapshot("append", &[&last], &[]);
    for v in ["b", "c"] {
        let new = case.script.file(&[(1, v), (9, "stays")]);
        case.script.snapshot("overwrite", &[&new], &[&last]);
        last = new;
    }
    let (two, hit) = (case.script.file(&[(2, "x")]), case.script.ids(&[2]));
    case.script.snapshot("append", &[&two], &[]);
    case.script.snapshot("delete", &[&hit], &[]);
    let net = |case: &mut Case| case.log_job().source("changes", "net".into());
    let to = net(&mut case).without_source("include_metadata_columns").source("to_snapshot", case.id(3));
    let sorted = |rows: Vec<Value>| {
        let mut changes: Vec<String> = rows.iter().map(change).collect();
        changes.sort();
        changes
    };
    assert_eq!(sorted(case.rows(&to)), ["I(1,c)", "I(9,stays)"]);
    let job = net(&mut case).without_source("starting_strategy").source("after_snapshot", case.id(1));
    let changes = sorted(case.rows(&job.clone().without_source("include_metadata_columns")));
    assert_eq!(changes, ["UA(1,c)", "UB(1,a)"], "what comes and goes between the ends is no change");
    let one = net(&mut case).without_source("starting_strategy");
    let one = one.source("after_snapshot", case.id(2)).source("to_snapshot", case.id(3));
    case.job_has_changes(&one, &["", "", "UB(1,b) UA(1,c)"]);
}

#[test]
fn each_net_change_is_of_the_snapshot_that_last_made_it() {
    for split_bytes in [1, 1 << 30] {
        let Some(mut case) = Case::new(2) else { return };
        let mut last = case.script.file(&[(1, "a"), (8, "goes"), (9, "stays")]);
        case.script.snapshot("append", &[&last], &[]);
        for rows in [&[(1, "b"), (8, "goes"), (9, "stays")][..], &[(1, "c"), (9, "stays")], &[(1, "d"), (9, "stays")]] {
            let new = case.script.file(rows);
            case.script.snapshot("overwrite", &[&new], &[&last]);
            last = new;
        }
        let compacted = case.script.file(&[(9, "stays"), (1, "d")]);
        case.script.snapshot("replace", &[&compacted], &[&last]);
        let (two, hit) = (case.script.file(&[(2, "x")]), case.script.ids(&[2]));
        case.script.snapshot("append", &[&two], &[]);
        case.script.snapshot("delete", &[&hit], &[]);
        let three = case.script.file(&[(3, "y")]);
        case.script.snapshot("append", &[&three], &[]);
        case.script.table.set_split_bytes(split_bytes);
        let net = |case: &mut Case| case.log_job().source("changes", "net".into());
        let after =
            |case: &mut Case, id: Value| net(case).without_source("starting_strategy").source("after_snapshot", id);
        let whole = net(&mut case);
        case.job_has_changes(&whole, &["I(9,stays)", "", "", "I(1,d)", "", "", "", "I(3,y)"]);
        let from_nothing = net(&mut case).without_source("starting_strategy");
        case.job_has_changes(&from_nothing, &["I(9,stays)", "", "", "I(1,d)", "", "", "", "I(3,y)"]);
        let id = case.id(1);
        let later = after(&mut case, id).source("include_metadata_columns", json!(["_commit_snapshot_id"]));
        case.job_has_changes(&later, &["", "UB(1,a)", "D(8,goes)", "UA(1,d)", "", "", "", "I(3,y)"]);
        assert!(case.rows(&later).iter().all(|row| row.get("_change_ordinal").is_none()), "it was not asked for");
        let id = case.id(3);
        let ordinals = |case: &mut Case, job: &Job| {
            let of = |row: &Value| format!("{}@{}", change(row), row["_change_ordinal"]);
            let mut rows: Vec<String> = case.rows(job).iter().map(of).collect();
            rows.sort();
            rows
        };
        // The rewrite has no number, and the next range goes on behind the last.
        let job = after(&mut case, id).source("to_snapshot", case.id(6));
        assert_eq!(ordinals(&mut case, &job), ["I(2,x)@1", "UA(1,d)@0", "UB(1,c)@0"]);
        let on = job.without_source("to_snapshot").without_source("after_snapshot");
        assert_eq!(ordinals(&mut case, &on), ["D(2,x)@2", "I(2,x)@1", "I(3,y)@3", "UA(1,d)@0", "UB(1,c)@0"]);
    }
}

#[test]
fn opposite_changes_of_several_snapshots_cancel() {
    let Some(mut case) = Case::new(2) else { return };
    let (one, two) = (case.script.file(&[(1, "a")]), case.script.file(&[(2, "b")]));
    case.script.snapshot("append", &[&one], &[]);
    case.script.snapshot("append", &[&two], &[]);
    case.script.snapshot("delete", &[], &[&one]);
    let again = case.script.file(&[(1, "a")]);
    case.script.snapshot("append", &[&again], &[]);
    let hit = case.script.positions(&[(&again, 0)]);
    case.script.snapshot("delete", &[&hit], &[]);
    // The delete is taken away, and the row is there again.
    case.script.snapshot("overwrite", &[], &[&hit]);
    let net = |case: &mut Case, after: usize, to: usize| {
        let job = case.log_job().source("changes", "net".into()).source("to_snapshot", case.id(to));
        match after {
            0 => job,
            after => job.without_source("starting_strategy").source("after_snapshot", case.id(after)),
        }
    };
    for (after, to, expected) in [
        (0, 3, vec!["", "I(2,b)"]),
        (0, 4, vec!["", "I(2,b)", "", "I(1,a)"]),
        (0, 5, vec!["", "I(2,b)"]),
        (0, 6, vec!["", "I(2,b)", "", "", "", "I(1,a)"]),
        (1, 3, vec!["", "I(2,b)", "D(1,a)"]),
        (1, 5, vec!["", "I(2,b)", "", "", "D(1,a)"]),
        (2, 4, vec![]),
        (2, 6, vec![]),
        (3, 5, vec![]),
        (4, 6, vec![]),
    ] {
        let job = net(&mut case, after, to);
        match expected.is_empty() {
            true => assert_eq!(case.files_staged(&job), 0, "({after}, {to}]"),
            false => case.job_has_changes(&job, &expected),
        }
    }
}

#[test]
fn a_net_update_is_told_from_the_first_value_to_the_last() {
    for version in [2, 3] {
        for identity in ["id", "row id", "none"] {
            let Some(mut case) = Case::new(version) else { return };
            let mut last = None;
            for v in ["a", "b", "c"] {
                let new = match version {
                    3 => case.script.file_with_row_ids(&[(1, v, 0)]),
                    _ => case.script.file(&[(1, v)]),
                };
                case.script.snapshot("overwrite", &[&new], &last.iter().collect::<Vec<_>>());
                last = Some(new);
            }
            // Without a key rows of version 3 are told by their ids.
            let is_told = match identity {
                "id" => true,
                "row id" if version == 3 => true,
                "none" if version == 2 => false,
                _ => continue,
            };
            let net = |case: &mut Case| {
                let job = case.log_job().source("changes", "net".into());
                if identity == "id" { job } else { job.without_source("identifier_columns") }
            };
            let whole = net(&mut case);
            case.job_has_changes(&whole, &["", "", "I(1,c)"]);
            let later = net(&mut case).without_source("starting_strategy").source("after_snapshot", case.id(1));
            let expected = if is_told { ["", "UB(1,a)", "UA(1,c)"] } else { ["", "D(1,a)", "I(1,c)"] };
            case.job_has_changes(&later, &expected);
        }
    }
}

#[test]
fn net_changes_that_name_their_snapshots_are_filtered_and_narrowed_as_rows() {
    let Some(mut case) = Case::new(2) else { return };
    let one = case.script.file(&[(1, "x"), (2, "y"), (3, "x")]);
    case.script.snapshot("append", &[&one], &[]);
    let (two, hit) = (case.script.file(&[(1, "y"), (2, "x")]), case.script.ids(&[1, 2]));
    case.script.snapshot("overwrite", &[&two, &hit], &[]);
    let four = case.script.file(&[(4, "x"), (5, "y")]);
    case.script.snapshot("append", &[&four], &[]);
    let net = |case: &mut Case| {
        let job = case.log_job().source("changes", "net".into()).source("filter", "v = 'x'".into());
        job.without_source("starting_strategy").source("after_snapshot", case.id(1))
    };
    let job = net(&mut case);
    case.job_has_changes(&job, &["", "UB(1,x) UA(2,x)", "I(4,x)"]);
    let narrow = net(&mut case).source("keep", json!(["id"]));
    case.job_has_changes(&narrow, &["", "UB(1,null) UA(2,null)", "I(4,null)"]);
    // A plain append names the snapshots of its rows, and refuses a row that went.
    let plain = |case: &mut Case, from: &str, id: Value| {
        case.targets += 1;
        let job = case.job(&format!("lake.plain{}", case.targets)).target("mode", "append".into());
        job.source("changes", "net".into())
            .source("include_metadata_columns", json!(["_commit_snapshot_id"]))
            .source(from, id)
    };
    let id = case.id(1);
    let refused = plain(&mut case, "after_snapshot", id);
    let refused = case.run(&refused);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let whole = plain(&mut case, "starting_strategy", "earliest".into());
    case.job_has_changes(&whole, &["(3,x)", "(1,y) (2,x)", "(4,x) (5,y)"]);
}

#[test]
fn an_operations_name_does_not_decide_what_is_an_update() {
    for operation in ["delete", "append", "overwrite"] {
        let Some(mut case) = Case::new(2) else { return };
        let one = case.script.file(&[(1, "a"), (2, "b")]);
        case.script.snapshot("append", &[&one], &[]);
        let (new, hit) = (case.script.file(&[(1, "A")]), case.script.positions(&[(&one, 0)]));
        case.script.snapshot(operation, &[&new, &hit], &[]);
        case.has_changes(&["I(1,a) I(2,b)", "UB(1,a) UA(1,A)"]);
    }
}

#[test]
fn rows_that_come_and_go_in_snapshots_of_one_time_end_as_their_order_says() {
    let Some(mut case) = Case::new(2) else { return };
    case.script.table.at_one_time();
    let (hello, hallo) = (case.script.file(&[(1, "hello")]), case.script.file(&[(1, "hallo")]));
    case.script.snapshot("append", &[&hello], &[]);
    let hit = case.script.ids(&[1]);
    case.script.snapshot("delete", &[&hit], &[]);
    case.script.snapshot("append", &[&hallo], &[]);
    case.has_changes(&["I(1,hello)", "D(1,hello)", "I(1,hallo)"]);
    case.mirror_has("(1,hallo)");
}

#[test]
fn a_rewrite_by_another_name_ends_neither_a_plain_append_nor_a_mirror_without_a_key() {
    let Some(mut case) = Case::new(2) else { return };
    let files: Vec<_> = [(1, "a"), (2, "b")].iter().map(|row| case.script.file(&[*row])).collect();
    case.script.snapshot("append", &files.iter().collect::<Vec<_>>(), &[]);
    let compacted = case.script.file(&[(2, "b"), (1, "a")]);
    case.script.snapshot("overwrite", &[&compacted], &files.iter().collect::<Vec<_>>());
    let three = case.script.file(&[(3, "c")]);
    case.script.snapshot("append", &[&three], &[]);
    let step = |case: &Case, target: &str, to: usize| {
        let job = case.job(&format!("lake.{target}")).source("to_snapshot", case.id(to));
        if target == "plain" { job.target("mode", "append".into()).source("changes", "net".into()) } else { job }
    };
    for target in ["plain", "keyless"] {
        for (to, expected) in [(1, "(1,a) (2,b)"), (2, "(1,a) (2,b)"), (3, "(1,a) (2,b) (3,c)")] {
            let job = step(&case, target, to);
            let mut rows: Vec<String> = case.rows(&job).iter().map(change).collect();
            rows.sort();
            assert_eq!(rows.join(" "), expected, "{target} at S{to}");
        }
    }
    // A row that really went cannot be carried.
    let hit = case.script.positions(&[(&compacted, 0)]);
    case.script.snapshot("delete", &[&hit], &[]);
    for (target, code) in [("plain", 4), ("keyless", 2)] {
        let failed = case.run(&step(&case, target, 4));
        assert_eq!(failed.code, Some(code), "{}", failed.stderr);
        assert!(failed.stderr.contains("deleted or updated"), "{}", failed.stderr);
    }
}

#[test]
fn of_equal_rows_the_one_that_lives_on_keeps_its_row_id() {
    for changed in [0, 1] {
        let Some(mut case) = Case::new(3) else { return };
        let one = case.script.file(&[(1, "a"), (1, "a")]);
        case.script.snapshot("append", &[&one], &[]);
        let mut rows = vec![(1, "a", 0), (1, "a", 1)];
        rows[changed as usize].1 = "B";
        let two = case.script.file_with_row_ids(&rows);
        case.script.snapshot("overwrite", &[&two], &[&one]);
        let job = case.log_job().without_source("identifier_columns");
        let job = job.source("include_metadata_columns", json!(["_commit_snapshot_id", "_row_id"]));
        case.job_has_changes(&job, &["I(1,a) I(1,a)", "UB(1,a) UA(1,B)"]);
        let updates = case.rows(&job).into_iter().filter(|row| row["change"] != "INSERT");
        assert!(updates.into_iter().all(|row| row["_row_id"] == changed), "the row that changed is {changed}");
    }
}
