//! Ranges and epochs: tables of histories, bounds and what comes of them.

use iceberg::spec::TableMetadata;
use iceferry_common::config::{Bounds, Changes, EndBound, StartBound, StartingStrategy};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;

use super::model::metadata_json;
use crate::plan::{Epoch, Nothing, Range, RangeError, epochs};

/// (snapshot, parent, operation); the time of snapshot n is n thousand milliseconds.
type History = [(i64, i64, &'static str)];

fn table(history: &History, current: i64) -> TableMetadata {
    let snapshots = history.iter().map(|(id, parent, operation)| {
        let mut snapshot = serde_json::json!({
            "snapshot-id": id,
            "sequence-number": id,
            "timestamp-ms": id * 1_000,
            "manifest-list": format!("/list-{id}"),
            "summary": { "operation": operation },
            "schema-id": 0,
        });
        if *parent > 0 {
            snapshot["parent-snapshot-id"] = (*parent).into();
        }
        snapshot
    });
    metadata_json(2, current, snapshots.collect(), "/t")
}

/// S1 to S6, a compaction at S3 and S4.
fn compacted() -> TableMetadata {
    table(
        &[
            (1, 0, "append"),
            (2, 1, "append"),
            (3, 2, "replace"),
            (4, 3, "replace"),
            (5, 4, "delete"),
            (6, 5, "overwrite"),
        ],
        6,
    )
}

fn plain() -> TableMetadata {
    table(&[(1, 0, "append"), (2, 1, "append"), (3, 2, "delete"), (4, 3, "append")], 4)
}

fn epoch(before: i64, through: i64) -> Epoch {
    Epoch { before: (before > 0).then_some(SnapshotId(before)), through: SnapshotId(through), rewrites_only: false }
}

fn rewrites(before: i64, through: i64) -> Epoch {
    Epoch { rewrites_only: true, ..epoch(before, through) }
}

fn from(id: i64) -> Option<StartBound> {
    Some(StartBound::FromSnapshot(SnapshotId(id)))
}

fn after(id: i64) -> Option<StartBound> {
    Some(StartBound::AfterSnapshot(SnapshotId(id)))
}

fn since(ms: i64) -> Option<StartBound> {
    Some(StartBound::FromTimestamp(ms))
}

fn by(strategy: StartingStrategy) -> Option<StartBound> {
    Some(StartBound::Strategy(strategy))
}

fn to(id: i64) -> Option<EndBound> {
    Some(EndBound::ToSnapshot(SnapshotId(id)))
}

fn until(ms: i64) -> Option<EndBound> {
    Some(EndBound::ToTimestamp(ms))
}

fn ask(
    table: &TableMetadata,
    start: Option<StartBound>,
    end: Option<EndBound>,
    checkpoint: i64,
) -> Result<Range, RangeError> {
    epochs(table, Bounds { start, end }, (checkpoint > 0).then_some(SnapshotId(checkpoint)), true, Changes::Net)
}

fn carried(range: Result<Range, RangeError>) -> Vec<Epoch> {
    match range {
        Ok(Range::Epochs(epochs)) => epochs,
        other => panic!("no epochs: {other:?}"),
    }
}

fn idle(range: Result<Range, RangeError>) -> Nothing {
    match range {
        Ok(Range::Nothing(nothing)) => nothing,
        other => panic!("there is something: {other:?}"),
    }
}

#[test]
fn bounds_are_inclusive_save_after_snapshot() {
    let table = plain();
    let cases = [
        ("nothing given", None, None, epoch(0, 4)),
        ("end only", None, to(2), epoch(0, 2)),
        ("end by time", None, until(2_500), epoch(0, 2)),
        ("end at the very time", None, until(2_000), epoch(0, 2)),
        ("start only", from(2), None, epoch(1, 4)),
        ("start at the first", from(1), None, epoch(0, 4)),
        ("both", from(2), to(3), epoch(1, 3)),
        ("one snapshot", from(2), to(2), epoch(1, 2)),
        ("exclusive start", after(1), to(3), epoch(1, 3)),
        ("start by time", since(2_000), to(3), epoch(1, 3)),
        ("start between two", since(1_001), to(3), epoch(1, 3)),
        ("start before all", since(-5), None, epoch(0, 4)),
        ("both by time", since(2_000), until(3_000), epoch(1, 3)),
        ("snapshot with time", from(3), until(9_000), epoch(2, 4)),
        ("initial", by(StartingStrategy::Initial), to(3), epoch(0, 3)),
        ("earliest", by(StartingStrategy::Earliest), None, epoch(0, 4)),
    ];
    for (name, start, end, expected) in cases {
        assert_eq!(carried(ask(&table, start, end, 0)), [expected], "{name}");
    }
}

#[test]
fn consecutive_exclusive_ranges_leave_no_hole() {
    let table = plain();
    assert_eq!(carried(ask(&table, after(1), to(2), 0)), [epoch(1, 2)]);
    assert_eq!(carried(ask(&table, after(2), to(3), 2)), [epoch(2, 3)]);
    assert_eq!(idle(ask(&table, after(2), to(2), 0)), Nothing::EmptyWindow);
}

#[test]
fn a_window_without_snapshots_is_nothing_to_do() {
    let table = plain();
    let cases = [
        (since(1_100), until(1_900), Nothing::EmptyWindow),
        (since(4_001), None, Nothing::EmptyWindow),
        (after(4), None, Nothing::EmptyWindow),
        (None, until(999), Nothing::EmptyWindow),
        (by(StartingStrategy::Latest), None, Nothing::FromLatest { start: Some(SnapshotId(4)) }),
    ];
    for (start, end, expected) in cases {
        assert_eq!(idle(ask(&table, start, end, 0)), expected, "{start:?} {end:?}");
    }
    let empty = table_without_snapshots();
    assert_eq!(idle(ask(&empty, None, None, 0)), Nothing::EmptyTable);
    assert_eq!(idle(ask(&empty, by(StartingStrategy::Latest), None, 0)), Nothing::FromLatest { start: None });
}

fn table_without_snapshots() -> TableMetadata {
    table(&[], -1)
}

#[test]
fn a_mirror_goes_on_from_its_checkpoint() {
    let table = plain();
    assert_eq!(carried(ask(&table, None, None, 2)), [epoch(2, 4)]);
    assert_eq!(carried(ask(&table, None, to(3), 2)), [epoch(2, 3)]);
    assert_eq!(carried(ask(&table, by(StartingStrategy::Initial), None, 2)), [epoch(2, 4)]);
    assert_eq!(carried(ask(&table, by(StartingStrategy::Latest), None, 2)), [epoch(2, 4)]);
    let up_to_date = Nothing::UpToDate { checkpoint: SnapshotId(4) };
    assert_eq!(idle(ask(&table, None, None, 4)), up_to_date);
    assert_eq!(idle(ask(&table, from(2), None, 4)), up_to_date, "the same job again");
    let behind = Nothing::EndBeforeCheckpoint { end: SnapshotId(2), checkpoint: SnapshotId(4) };
    assert_eq!(idle(ask(&table, None, to(2), 4)), behind);
    assert_eq!(idle(ask(&table, None, until(2_000), 4)), behind);
}

#[test]
fn an_explicit_start_has_to_meet_a_mirrors_checkpoint() {
    let table = plain();
    for meets in [after(2), from(3), since(2_500)] {
        assert_eq!(carried(ask(&table, meets, None, 2)), [epoch(2, 4)], "{meets:?}");
    }
    for differs in [after(1), after(3), from(2), from(4), since(1_000), since(3_500), since(9_000)] {
        let error = ask(&table, differs, None, 2).unwrap_err();
        assert!(matches!(error, RangeError::StartDiffersFromCheckpoint { .. }), "{differs:?}: {error}");
        assert_eq!(error.class(), Class::Config);
    }
    let changelog = |start, end| epochs(&table, Bounds { start, end }, Some(SnapshotId(2)), false, Changes::Net);
    assert_eq!(carried(changelog(from(4), None)), [epoch(3, 4)], "a changelog may leave snapshots out");
    assert_eq!(carried(changelog(from(3), None)), [epoch(2, 4)]);
    for again in [from(1), from(2)] {
        let error = changelog(again, None).unwrap_err();
        assert!(matches!(error, RangeError::StartDiffersFromCheckpoint { .. }), "nothing lands twice: {error}");
        let up_to_date = Range::Nothing(Nothing::UpToDate { checkpoint: SnapshotId(2) });
        assert_eq!(changelog(again, to(2)).unwrap(), up_to_date, "the same job, run again");
    }
}

#[test]
fn a_range_is_cut_at_rewrites_and_a_backfill_never_is() {
    let table = compacted();
    assert_eq!(carried(ask(&table, None, None, 1)), [epoch(1, 2), rewrites(2, 4), epoch(4, 6)]);
    assert_eq!(carried(ask(&table, None, None, 2)), [rewrites(2, 4), epoch(4, 6)]);
    assert_eq!(carried(ask(&table, None, None, 3)), [rewrites(3, 4), epoch(4, 6)]);
    assert_eq!(carried(ask(&table, None, to(3), 1)), [epoch(1, 2), rewrites(2, 3)]);
    assert_eq!(carried(ask(&table, from(5), None, 0)), [epoch(4, 6)]);
    assert_eq!(carried(ask(&table, None, None, 0)), [epoch(0, 6)]);
    assert_eq!(carried(ask(&table, from(1), None, 0)), [epoch(0, 6)]);
}

#[test]
fn only_mains_own_history_counts() {
    // S2 is staged, S3 is on another branch.
    let table = table(&[(1, 0, "append"), (2, 1, "append"), (3, 1, "append"), (4, 1, "append")], 4);
    assert_eq!(carried(ask(&table, None, None, 1)), [epoch(1, 4)]);
    assert_eq!(carried(ask(&table, since(1_500), None, 0)), [epoch(1, 4)]);
    for (start, end) in [(from(3), None), (after(2), None), (None, to(3))] {
        let error = ask(&table, start, end, 0).unwrap_err();
        assert!(matches!(error, RangeError::NotAnAncestor { .. }), "{error}");
        assert_eq!(error.class(), Class::Config);
    }
}

#[test]
fn a_bound_that_does_not_fit_says_which() {
    let table = plain();
    let cases = [
        (from(77), None, "77"),
        (None, to(77), "to_snapshot: snapshot 77"),
        (from(3), to(2), "(from_snapshot 3) is later than its end (to_snapshot 2)"),
        (after(3), to(2), "after_snapshot 3"),
        (since(3_000), until(2_000), "from_timestamp 3000"),
        (since(3_001), to(2), "from_timestamp 3001"),
        (from(3), until(2_000), "to_timestamp 2000"),
        (since(1_700_000_000_000_000), None, "microseconds"),
        (None, until(1_700_000_000_000_000), "microseconds"),
    ];
    for (start, end, words) in cases {
        for checkpoint in [0, 1] {
            let error = ask(&table, start, end, checkpoint).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.class(), Class::Config, "{error}");
        }
    }
}

#[test]
fn a_gap_in_history_is_named() {
    // S1 and S2 are gone.
    let expired = table(&[(3, 2, "append"), (4, 3, "append")], 4);
    let missing_two = |error: RangeError| {
        assert!(matches!(error, RangeError::Expired { missing: SnapshotId(2), .. }), "{error}");
        assert_eq!(error.class(), Class::HistoryGap);
    };
    missing_two(ask(&expired, None, None, 1).unwrap_err());
    missing_two(ask(&expired, None, None, 2).unwrap_err());
    missing_two(ask(&expired, from(3), None, 0).unwrap_err());
    missing_two(ask(&expired, since(5), None, 0).unwrap_err());
    missing_two(ask(&expired, None, until(1_000), 0).unwrap_err());
    assert_eq!(carried(ask(&expired, None, None, 0)), [epoch(0, 4)], "a backfill needs its end only");
    assert_eq!(carried(ask(&expired, None, None, 3)), [epoch(3, 4)]);
    assert_eq!(carried(ask(&expired, after(3), None, 0)), [epoch(3, 4)]);
    // The middle alone is gone.
    missing_two(ask(&table(&[(1, 0, "append"), (3, 2, "append")], 3), None, None, 1).unwrap_err());
}

#[test]
fn a_rollback_is_told_from_a_replaced_table() {
    let rolled_back = table(&[(1, 0, "append"), (2, 1, "append"), (3, 1, "append")], 3);
    let error = ask(&rolled_back, None, None, 2).unwrap_err();
    assert!(matches!(error, RangeError::RolledBack { .. }), "{error}");
    // The same when the beginning has expired since.
    let rolled_back_later = table(&[(2, 1, "append"), (3, 2, "append"), (4, 2, "append")], 4);
    let error_later = ask(&rolled_back_later, None, None, 3).unwrap_err();
    assert!(matches!(error_later, RangeError::RolledBack { .. }), "{error_later}");
    let error_bound = ask(&rolled_back_later, from(3), None, 0).unwrap_err();
    assert!(matches!(error_bound, RangeError::NotAnAncestor { .. }), "{error_bound}");
    let replaced = table(&[(1, 0, "append"), (2, 0, "append")], 2);
    let error_replaced = ask(&replaced, None, None, 1).unwrap_err();
    assert!(matches!(error_replaced, RangeError::Replaced { root: SnapshotId(2), .. }), "{error_replaced}");
    let error_emptied = ask(&table_without_snapshots(), None, None, 1).unwrap_err();
    assert!(matches!(error_emptied, RangeError::Emptied { .. }));
    for error in [error, error_replaced, error_emptied] {
        assert_eq!(error.class(), Class::HistoryGap);
    }
}
