//! Random histories, carried as changelogs and as mirrors and read back by DuckDB, against a plain model of the table: with
//! files carried over as bytes where that may be, and with all rows decoded.
//!
//! `ICEFERRY_CASES` sets how many are tried, `ICEFERRY_SEED` with which first one; a case says its own on failure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use iceferry_integration_tests::model::{Author, Kind, ModelTable};
use iceferry_integration_tests::{Catalog, Component, Engine, Iceferry, Job, Lab, Reader, Scratch, seed};
use serde_json::{Value, json};

/// Histories that are tried when nobody says how many.
const CASES: u64 = 24;
const SNAPSHOTS: usize = 8;

/// What tells a row before an update from the one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    Id,
    RowId,
    Nothing,
}

#[test]
fn changelogs_and_mirrors_of_random_histories_are_what_the_model_says() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let cases = std::env::var("ICEFERRY_CASES").map_or(CASES, |cases| cases.parse().expect("a number"));
    let first = seed();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut reader = Reader::start(&lab, Engine::DuckDb);
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases {
                        return;
                    }
                    let seed = first.wrapping_add(case);
                    let told = Told(seed);
                    one(&mut reader, seed);
                    std::mem::forget(told);
                    if case % 1000 == 999 {
                        println!("{} histories", case + 1);
                    }
                }
            });
        }
    });
}

/// Says on the way out of a failed case how to have it again.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("again: ICEFERRY_SEED={} ICEFERRY_CASES=1", self.0);
    }
}

fn one(reader: &mut Reader, seed: u64) {
    let scratch = Scratch::new();
    let kind = Kind {
        version: [1, 2, 2, 3, 3][(seed % 5) as usize],
        has_unique_ids: !seed.is_multiple_of(3),
        evolves: seed % 7 < 3,
    };
    let mut table = Author::write(&scratch.join("source"), seed, kind, SNAPSHOTS);
    let last = table.snapshots.len() - 1;
    let identity = match (seed / 2) % 4 {
        // Which of several equal rows is carried over is open, and so is whose row id is left.
        0 | 1 if table.version() >= 3 && kind.has_unique_ids => Identity::RowId,
        0 | 1 if table.version() < 3 => Identity::Nothing,
        _ => Identity::Id,
    };
    let choice = Choice::ALL[(seed % 11) as usize % Choice::ALL.len()];
    let condition = CONDITIONS[(seed / 3 % 13) as usize % CONDITIONS.len()];
    let shown = Shown { identity, kind, choice, condition };
    let job = |target: &str| {
        let (source, lake) = (Catalog::hadoop(scratch.join("source")), Catalog::hadoop(scratch.join("lake")));
        let mut job = Job::new("random", &source, "db.t", &lake, &format!("lake.{target}"));
        // Files are small: one in three histories decodes them all for that.
        if !(seed / 2).is_multiple_of(3) {
            job = job.of_small_files(if (seed / 6).is_multiple_of(2) { 1 } else { 1 << 20 });
        }
        if let Some((sql, _)) = condition {
            job = job.source("filter", sql.into());
        }
        if seed % 8 < 3 {
            job = job.target("copy", "decode".into());
        }
        match choice {
            Choice::All => job,
            Choice::Keep(names) => job.source("keep", json!(names)),
            Choice::Drop(names) => job.source("drop", json!(names)),
        }
    };
    let log = |target: &str| {
        // Every other history decodes all rows.
        let copy = if seed.is_multiple_of(2) { "auto" } else { "decode" };
        let job = job(target)
            .target("copy", copy.into())
            .target("mode", "append".into())
            .target("change_type_column", "_change_type".into());
        if identity == Identity::Id { job.source("identifier_columns", json!(["id"])) } else { job }
    };
    let run = |job: Job| Iceferry::find().run(&job.write(&scratch.join("job.yaml"))).report.metadata();

    let log_of_all = log("log")
        .source("starting_strategy", "earliest".into())
        .source("include_metadata_columns", json!(["_change_ordinal", "_commit_snapshot_id"]));
    let metadata = run(log_of_all);
    let mut of_snapshot: BTreeMap<i64, Vec<Event>> = BTreeMap::new();
    let rows = reader.rows(&metadata);
    rows.iter().map(|line| Event::parse(line)).for_each(|event| {
        of_snapshot.entry(event.snapshot).or_default().push(event);
    });
    let mut ordinal = 0;
    for at in 0..=last {
        let snapshot = &table.snapshots[at];
        let events = of_snapshot.remove(&snapshot.id).unwrap_or_default();
        let (went, came) = difference(&table, at.checked_sub(1), at);
        check(&went, &came, &events, &shown);
        for event in &events {
            assert_eq!(event.ordinal, ordinal, "snapshot {}", snapshot.id);
        }
        ordinal += i64::from(snapshot.operation != "replace");
    }
    assert!(of_snapshot.is_empty(), "events of no snapshot: {of_snapshot:?}");

    let middle = (seed % 5) as usize;
    let net = log("net").source("changes", "net".into()).source("after_snapshot", table.snapshots[middle].id.into());
    let events: Vec<Event> = reader.rows(&run(net)).iter().map(|line| Event::parse(line)).collect();
    let (went, came) = difference(&table, Some(middle), last);
    check(&went, &came, &events, &shown);

    // The same, each change with the snapshot that last made it: in small tasks that exchange rows, and in one.
    for (target, from, split_bytes) in [("told", Some(middle), 1_500), ("told_whole", None, 1 << 30)] {
        table.set_split_bytes(split_bytes);
        let net = log(target).source("changes", "net".into());
        let net = net.source("include_metadata_columns", json!(["_change_ordinal", "_commit_snapshot_id"]));
        let net = match from {
            Some(from) => net.source("after_snapshot", table.snapshots[from].id.into()),
            None => net.source("starting_strategy", "earliest".into()),
        };
        let events: Vec<Event> = reader.rows(&run(net)).iter().map(|line| Event::parse(line)).collect();
        check_collapsed(&table, from, last, &events, &shown);
    }
    table.set_split_bytes(1_500);

    if kind.has_unique_ids {
        let stops: &[usize] = if table.has_one_schema() { &[0, middle, last] } else { &[last] };
        for stop in stops {
            for copy in ["auto", "decode"] {
                if copy == "decode" && *stop != last {
                    continue;
                }
                let mirror = job(&format!("mirror_{copy}")).keys(&["id"]).target("copy", copy.into());
                let metadata = run(mirror.to_snapshot(&table.snapshots[*stop].id.to_string()));
                let mut rows: Vec<String> = reader.rows(&metadata).iter().map(|line| Choice::All.of(line)).collect();
                rows.sort();
                let mut expected: Vec<String> =
                    shown.matching(table.rows(*stop, *stop)).iter().map(|(line, ..)| choice.of(line)).collect();
                expected.sort();
                assert_eq!(rows, expected, "the mirror at snapshot {}, copy: {copy}", table.snapshots[*stop].id);
            }
        }
    }
}

/// What of a table's changes is to be seen.
#[derive(Debug, Clone, Copy)]
struct Shown {
    identity: Identity,
    kind: Kind,
    choice: Choice,
    condition: Condition,
}

impl Shown {
    /// The rows for which the condition is true.
    fn matching(&self, mut rows: Rows) -> Rows {
        if let Some((_, matches)) = self.condition {
            rows.retain(|(line, ..)| matches(&serde_json::from_str(line).expect("a row is JSON")));
        }
        rows
    }
}

/// A filter, and whether it is true of a row.
type Condition = Option<(&'static str, fn(&Value) -> bool)>;

const CONDITIONS: &[Condition] = &[
    None,
    None,
    None,
    Some(("id <= 6", |row| row["id"].as_i64() <= Some(6))),
    Some(("p = 1 OR p IS NULL", |row| row["p"] == 1 || row["p"].is_null())),
    // Of a null nothing is true, and neither is its opposite.
    Some(("NOT (s.a > 0)", |row| row["s"]["a"].as_i64().is_some_and(|a| a <= 0))),
    Some(("f IS NAN OR f > 1", |row| row["f"] == "NaN" || row["f"].as_f64().is_some_and(|f| f > 1.0))),
    Some(("id BETWEEN 3 AND 9 AND p <> 2", |row| {
        row["id"].as_i64().is_some_and(|id| (3..=9).contains(&id)) && row["p"].as_i64().is_some_and(|p| p != 2)
    })),
];

/// Columns that a job carries.
#[derive(Debug, Clone, Copy)]
enum Choice {
    All,
    Keep(&'static [&'static str]),
    Drop(&'static [&'static str]),
}

impl Choice {
    const ALL: [Self; 6] = [
        Self::All,
        Self::All,
        Self::Keep(&["id", "p"]),
        Self::Keep(&["s.a", "id"]),
        Self::Drop(&["f"]),
        Self::Drop(&["tags", "p"]),
    ];

    /// What of a row is carried, its fields in the order of their names.
    fn of(self, line: &str) -> String {
        let mut row: serde_json::Map<String, Value> = serde_json::from_str(line).expect("a row is JSON");
        match self {
            Self::All => {}
            Self::Drop(names) => row.retain(|name, _| !names.contains(&name.as_str())),
            Self::Keep(names) => {
                row.retain(|name, _| names.iter().any(|kept| kept.split('.').next() == Some(name)));
                if let (true, Some(Value::Object(s))) = (names.contains(&"s.a"), row.get_mut("s")) {
                    s.retain(|name, _| name == "a");
                }
            }
        }
        Value::Object(row).to_string()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    line: String,
    change: String,
    ordinal: i64,
    snapshot: i64,
}

impl Event {
    fn parse(line: &str) -> Self {
        let (row, rest) = line.rsplit_once(",\"_change_type\":").expect("a change type");
        let rest: serde_json::Value = serde_json::from_str(&format!("{{\"t\":{rest}")).expect("JSON");
        Self {
            line: Choice::All.of(&format!("{row}}}")),
            change: rest["t"].as_str().expect("a text").to_owned(),
            // Net changes have neither unless they are asked for.
            ordinal: rest["_change_ordinal"].as_i64().unwrap_or(-1),
            snapshot: rest["_commit_snapshot_id"].as_i64().unwrap_or(-1),
        }
    }
}

type Rows = Vec<(String, i64, Option<i64>)>;

/// The rows that went and those that came between two states, of which the first may be the empty one.
fn difference(table: &ModelTable, before: Option<usize>, after: usize) -> (Rows, Rows) {
    let before_rows = before.map(|before| table.rows(before, after)).unwrap_or_default();
    let after_rows = table.rows(after, after);
    (surplus(&before_rows, &after_rows), surplus(&after_rows, &before_rows))
}

/// A row of a net change, with the place of the snapshot that made it and its number among those that change rows.
type Made = ((String, i64, Option<i64>), usize, i64);

/// The net changes over the snapshots behind one, or from the empty state on: the changes of each snapshot in turn, of which
/// each undoes the latest that is open and opposite to it.
fn collapsed(table: &ModelTable, from: Option<usize>, to: usize) -> (Vec<Made>, Vec<Made>) {
    let (mut went, mut came): (Vec<Made>, Vec<Made>) = (Vec::new(), Vec::new());
    let mut ordinal = 0;
    for at in from.map_or(0, |from| from + 1)..=to {
        if table.snapshots[at].operation == "replace" {
            continue;
        }
        let (gone, new) = difference(table, at.checked_sub(1), at);
        for (is_new, rows) in [(false, gone), (true, new)] {
            let (open, other) = if is_new { (&mut came, &mut went) } else { (&mut went, &mut came) };
            for row in rows {
                match other.iter().rposition(|(open, ..)| open.0 == row.0) {
                    Some(undone) => drop(other.remove(undone)),
                    None => open.push((row, at, ordinal)),
                }
            }
        }
        ordinal += 1;
    }
    (went, came)
}

/// The events over several snapshots are the difference of the two ends, and each is of the snapshot that last made it.
fn check_collapsed(table: &ModelTable, from: Option<usize>, to: usize, events: &[Event], shown: &Shown) {
    let (went, came) = collapsed(table, from, to);
    let rows = |made: &[Made]| made.iter().map(|(row, ..)| row.clone()).collect::<Rows>();
    check(&rows(&went), &rows(&came), events, shown);
    for (types, made) in [(["DELETE", "UPDATE_BEFORE"], &went), (["INSERT", "UPDATE_AFTER"], &came)] {
        let mut expected: Vec<(String, i64, i64)> = made
            .iter()
            .filter(|(row, ..)| !shown.matching(vec![row.clone()]).is_empty())
            .map(|(row, at, ordinal)| (shown.choice.of(&row.0), table.snapshots[*at].id, *ordinal))
            .collect();
        expected.sort();
        let of_side = events.iter().filter(|event| types.contains(&event.change.as_str()));
        let mut found: Vec<_> = of_side.map(|event| (event.line.clone(), event.snapshot, event.ordinal)).collect();
        found.sort();
        assert_eq!(found, expected, "{types:?} from {from:?} to {to}, {shown:?}");
    }
    // Their sum is what the two ends say.
    let (by_ends_went, by_ends_came) = difference(table, from, to);
    for (one, other) in [(went, by_ends_went), (came, by_ends_came)] {
        let mut one: Vec<String> = one.into_iter().map(|((line, ..), ..)| line).collect();
        let mut other: Vec<String> = other.into_iter().map(|(line, ..)| line).collect();
        one.sort();
        other.sort();
        assert_eq!(one, other, "the model contradicts itself");
    }
}

/// The events are these rows that went and came, and nothing else.
fn check(went: &Rows, came: &Rows, events: &[Event], shown: &Shown) {
    let Shown { identity, kind, choice, .. } = *shown;
    let of = |types: [&str; 2]| {
        let lines = events.iter().filter(|event| types.contains(&event.change.as_str())).map(|event| &event.line);
        let mut lines: Vec<&String> = lines.collect();
        lines.sort();
        lines
    };
    let sorted = |rows: &Rows| {
        // All columns of all rows have decided, and these are shown.
        let mut lines: Vec<String> = shown.matching(rows.clone()).iter().map(|(line, ..)| choice.of(line)).collect();
        lines.sort();
        lines
    };
    let told: Vec<String> = events.iter().map(|event| format!("{} {}", event.change, event.line)).collect();
    let what = format!("{shown:?}: {told:#?}");
    assert!(
        of(["DELETE", "UPDATE_BEFORE"]).into_iter().eq(&sorted(went)),
        "rows that went, expected {went:#?}\n{what}"
    );
    assert!(of(["INSERT", "UPDATE_AFTER"]).into_iter().eq(&sorted(came)), "rows that came, expected {came:#?}\n{what}");

    // By what identifies a row: as many updates as both sides have rows.
    let (mut of_went, mut of_came) = (BTreeMap::<i64, usize>::new(), BTreeMap::<i64, usize>::new());
    for (rows, counts) in [(went, &mut of_went), (came, &mut of_came)] {
        for (_, id, row_id) in rows {
            match (identity, row_id) {
                (Identity::Id, _) => *counts.entry(*id).or_default() += 1,
                (Identity::RowId, Some(row_id)) => *counts.entry(*row_id).or_default() += 1,
                (Identity::RowId, None) | (Identity::Nothing, _) => {}
            }
        }
    }
    let updates: usize = of_went.iter().map(|(id, count)| *count.min(of_came.get(id).unwrap_or(&0))).sum();
    for change in ["UPDATE_BEFORE", "UPDATE_AFTER"] {
        if shown.condition.is_some() {
            break;
        }
        let told = events.iter().filter(|event| event.change == change).count();
        assert_eq!(told, updates, "rows of {change}\n{what}");
    }
    if kind.has_unique_ids {
        // With unique ids it is clear which rows these are.
        let is_update = |(_, id, row_id): &(String, i64, Option<i64>), other: &BTreeMap<i64, usize>| match identity {
            Identity::Id => other.contains_key(id),
            Identity::RowId => row_id.is_some_and(|row_id| other.contains_key(&row_id)),
            Identity::Nothing => false,
        };
        for (change, rows, other) in [("UPDATE_BEFORE", went, &of_came), ("UPDATE_AFTER", came, &of_went)] {
            let expected: Rows = rows.iter().filter(|row| is_update(row, other)).cloned().collect();
            assert!(
                of([change, change]).into_iter().eq(&sorted(&expected)),
                "{change}, expected {expected:#?}\n{what}"
            );
        }
    }
}

/// The rows of one bag that another lacks, told by their lines.
fn surplus(one: &Rows, other: &Rows) -> Rows {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    other.iter().for_each(|(line, ..)| *counts.entry(line.clone()).or_default() += 1);
    let is_surplus = |(line, ..): &&(String, i64, Option<i64>)| {
        let count = counts.entry(line.clone()).or_default();
        *count -= 1;
        *count < 0
    };
    one.iter().filter(is_surplus).cloned().collect()
}
