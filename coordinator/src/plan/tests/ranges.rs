//! Ranges and epochs: tables of histories, bounds and what comes of them.

use iceberg::spec::TableMetadata;
use iceferry_common::config::{Bounds, Changes, EndBound, FollowedRef, OnRollback, StartBound, StartingStrategy};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;

use super::model::metadata_json;
use crate::plan::{Epoch, NoLine, Nothing, Range, RangeError, RangeRequest, epochs, line};

/// (snapshot, parent, operation); the time of snapshot n is n thousand milliseconds.
type History = [(i64, i64, &'static str)];

fn table(history: &History, current: i64) -> TableMetadata {
    table_at(2, history, current, |id| id * 1_000)
}

fn table_at(version: u8, history: &History, current: i64, ms: impl Fn(i64) -> i64) -> TableMetadata {
    let snapshots = history.iter().map(|(id, parent, operation)| {
        let mut snapshot = serde_json::json!({
            "snapshot-id": id,
            "sequence-number": id,
            "timestamp-ms": ms(*id),
            "manifest-list": format!("/list-{id}"),
            "summary": { "operation": operation },
            "schema-id": 0,
        });
        if *parent > 0 {
            snapshot["parent-snapshot-id"] = (*parent).into();
        }
        snapshot
    });
    metadata_json(version, current, snapshots.collect(), "/t")
}

/// The table with these branches and tags beside main: (name, type, snapshot).
fn with_refs(table: &TableMetadata, refs: &[(&str, &str, i64)]) -> TableMetadata {
    let mut json = serde_json::to_value(table).unwrap();
    for (name, kind, snapshot) in refs {
        json["refs"][name] = serde_json::json!({ "snapshot-id": snapshot, "type": kind });
    }
    serde_json::from_value(json).unwrap()
}

fn branch(name: &str) -> FollowedRef {
    FollowedRef::Branch(name.into())
}

fn tag(name: &str) -> FollowedRef {
    FollowedRef::Tag(name.into())
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
    ask_on(&FollowedRef::default(), OnRollback::Fail, table, start, end, checkpoint)
}

fn ask_on(
    followed: &FollowedRef,
    on_rollback: OnRollback,
    table: &TableMetadata,
    start: Option<StartBound>,
    end: Option<EndBound>,
    checkpoint: i64,
) -> Result<Range, RangeError> {
    let checkpoint = (checkpoint > 0).then_some(SnapshotId(checkpoint));
    let bounds = Bounds { start, end };
    epochs(table, &RangeRequest { bounds, followed, on_rollback, changes: Changes::Net, checkpoint, mirror: true })
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
    ];
    for (start, end, expected) in cases {
        assert_eq!(idle(ask(&table, start, end, 0)), expected, "{start:?} {end:?}");
    }
    let empty = table_without_snapshots();
    assert_eq!(idle(ask(&empty, None, None, 0)), Nothing::EmptyTable);
    assert_eq!(idle(ask(&empty, by(StartingStrategy::Latest), None, 0)), Nothing::EmptyTable);
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
    let followed = FollowedRef::default();
    let changelog = |start, end| {
        let (bounds, checkpoint) = (Bounds { start, end }, Some(SnapshotId(2)));
        let on_rollback = OnRollback::Fail;
        epochs(
            &table,
            &RangeRequest {
                bounds,
                followed: &followed,
                on_rollback,
                changes: Changes::Net,
                checkpoint,
                mirror: false,
            },
        )
    };
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

/// Main is S1, S2, S4; audit is S1, S3, S5, and S3 is tagged; S6 is staged on S4.
fn branched() -> TableMetadata {
    let history =
        [(1, 0, "append"), (2, 1, "append"), (3, 1, "append"), (4, 2, "append"), (5, 3, "delete"), (6, 4, "append")];
    with_refs(&table(&history, 4), &[("audit", "branch", 5), ("first-audit", "tag", 3)])
}

#[test]
fn a_branch_or_tag_is_followed_through_its_own_history() {
    let table = branched();
    let on = |followed: &FollowedRef, start, end, checkpoint| {
        ask_on(followed, OnRollback::Fail, &table, start, end, checkpoint)
    };
    let (main, audit, first) = (branch("main"), branch("audit"), tag("first-audit"));
    let cases = [
        ("main, named", &main, None, None, 1, epoch(1, 4)),
        ("a branch from the beginning", &audit, None, None, 0, epoch(0, 5)),
        ("a branch from where it left main", &audit, None, None, 1, epoch(1, 5)),
        ("a bound on the branch", &audit, from(3), to(3), 0, epoch(1, 3)),
        ("main's S4 is no end by time of the branch", &audit, None, until(4_500), 0, epoch(0, 3)),
        ("main's S2 is no start by time of the branch", &audit, since(1_500), None, 0, epoch(1, 5)),
        ("a tag ends where it stands", &first, None, None, 0, epoch(0, 3)),
    ];
    for (name, followed, start, end, checkpoint, expected) in cases {
        assert_eq!(carried(on(followed, start, end, checkpoint)), [expected], "{name}");
    }
    let at_tag = Nothing::UpToDate { checkpoint: SnapshotId(3) };
    assert_eq!(idle(on(&first, None, None, 3)), at_tag);
    assert_eq!(carried(on(&audit, by(StartingStrategy::Latest), None, 0)), [epoch(3, 5)]);
    for (followed, end) in [(&audit, to(4)), (&first, to(5)), (&main, to(3)), (&main, to(6))] {
        let error = on(followed, None, end, 0).unwrap_err();
        assert!(matches!(error, RangeError::NotAnAncestor { .. }), "{error}");
        assert!(error.to_string().contains(&followed.to_string()), "{error}");
    }
}

#[test]
fn an_unknown_branch_or_tag_is_refused_with_those_that_there_are() {
    let table = branched();
    for followed in [branch("adit"), tag("v1"), branch("first-audit"), tag("main")] {
        let error = ask_on(&followed, OnRollback::Resync, &table, None, None, 1).unwrap_err();
        let words = format!("no {followed}; it has the branches audit, main and the tags first-audit");
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(error.class(), Class::Config);
    }
    let names: Vec<String> = (0..50).map(|number| format!("t{number:02}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "tag", 1)).collect();
    let error = ask_on(&tag("x"), OnRollback::Fail, &with_refs(&plain(), &many), None, None, 0).unwrap_err();
    assert!(error.to_string().ends_with("t18, t19 and 30 more"), "{error}");
    let empty = table_without_snapshots();
    let error = ask_on(&branch("audit"), OnRollback::Fail, &empty, None, None, 0).unwrap_err();
    assert!(error.to_string().ends_with("it has the branches main and no tags"), "{error}");
    let old = table_at(1, &[(1, 0, "append")], 1, |id| id);
    let error = ask_on(&tag("x"), OnRollback::Fail, &old, None, None, 0).unwrap_err();
    assert!(error.to_string().contains("branches main"), "{error}");
}

#[test]
fn another_branch_is_gone_on_with_where_the_checkpoint_is_in_its_history() {
    let table = branched();
    let audit = branch("audit");
    assert_eq!(carried(ask_on(&audit, OnRollback::Fail, &table, None, None, 1)), [epoch(1, 5)]);
    let error = ask_on(&audit, OnRollback::Fail, &table, None, None, 4).unwrap_err();
    assert!(matches!(error, RangeError::RolledBack { .. }), "{error}");
    assert!(error.to_string().contains("branch audit (now at 5)"), "{error}");
    assert_eq!(carried(ask_on(&audit, OnRollback::Resync, &table, None, None, 4)), [epoch(4, 5)]);
    // Main is fast-forwarded to the branch: what came on it comes once.
    let history = [(1, 0, "append"), (2, 1, "append"), (3, 1, "append"), (4, 3, "append")];
    let forwarded = self::table(&history, 4);
    assert_eq!(carried(ask(&forwarded, None, None, 1)), [epoch(1, 4)]);
    assert_eq!(carried(ask(&forwarded, None, None, 3)), [epoch(3, 4)]);
}

#[test]
fn a_resync_applies_the_difference_of_the_two_states() {
    let resync = |table: &TableMetadata, start, end, checkpoint| {
        ask_on(&FollowedRef::default(), OnRollback::Resync, table, start, end, checkpoint)
    };
    let forked = [(1, 0, "append"), (2, 1, "append"), (3, 1, "replace"), (4, 3, "append")];
    let to_other_line = table(&forked, 4);
    let range = resync(&to_other_line, None, None, 2);
    assert_eq!(range.as_ref().unwrap().resync(&to_other_line), Some((SnapshotId(2), SnapshotId(4))));
    assert_eq!(carried(range), [epoch(2, 4)], "one net epoch, whatever lies between");
    assert_eq!(carried(resync(&to_other_line, None, to(3), 2)), [epoch(2, 3)]);
    assert_eq!(carried(resync(&to_other_line, by(StartingStrategy::Latest), None, 2)), [epoch(2, 4)]);
    let back = table(&[(1, 0, "append"), (2, 1, "append"), (3, 2, "append")], 1);
    assert_eq!(carried(resync(&back, None, None, 3)), [epoch(3, 1)], "back to an ancestor");
    // An explicit start is none of the two states.
    for start in [from(4), after(1), after(3), since(1)] {
        let error = resync(&to_other_line, start, None, 2).unwrap_err();
        assert!(matches!(error, RangeError::StartDiffersFromCheckpoint { .. }), "{start:?}: {error}");
    }
    // On a line nothing changes.
    let plain = plain();
    let range = resync(&plain, None, None, 2).unwrap();
    assert_eq!(range.resync(&plain), None);
    assert_eq!(range, ask(&plain, None, None, 2).unwrap());
}

#[test]
fn a_resync_bridges_no_gap_and_a_replaced_table_where_both_states_are_left() {
    let resync = |table: &TableMetadata, checkpoint| {
        ask_on(&FollowedRef::default(), OnRollback::Resync, table, None, None, checkpoint).unwrap_err()
    };
    let replaced = table(&[(1, 0, "append"), (2, 0, "append")], 2);
    let range = ask_on(&FollowedRef::default(), OnRollback::Resync, &replaced, None, None, 1);
    assert_eq!(carried(range), [epoch(1, 2)]);
    let gone = table(&[(2, 0, "append")], 2);
    assert!(matches!(resync(&gone, 1), RangeError::Replaced { root: SnapshotId(2), .. }));
    let start_expired = table(&[(3, 2, "append"), (4, 3, "append")], 4);
    assert!(matches!(resync(&start_expired, 1), RangeError::Expired { missing: SnapshotId(2), .. }));
    let middle_expired = table(&[(1, 0, "append"), (3, 2, "append")], 3);
    assert!(matches!(resync(&middle_expired, 1), RangeError::Expired { missing: SnapshotId(2), .. }));
    assert!(matches!(resync(&table_without_snapshots(), 1), RangeError::Emptied { .. }));
}

#[test]
fn a_fork_is_seen_though_the_snapshot_that_it_began_with_expired() {
    // S2 and S3 are children of S1, which is gone: S2 cannot be an ancestor of S3.
    let forked = table(&[(2, 1, "append"), (3, 1, "append")], 3);
    let error = ask(&forked, None, None, 2).unwrap_err();
    assert!(matches!(error, RangeError::RolledBack { checkpoint: SnapshotId(2), .. }), "{error}");
}

#[test]
fn order_is_lineage_and_never_the_clock() {
    let history = [(1, 0, "append"), (2, 1, "delete"), (3, 2, "append")];
    let at_once = table_at(2, &history, 3, |_| 5);
    assert_eq!(carried(ask(&at_once, None, None, 1)), [epoch(1, 3)]);
    assert_eq!(carried(ask(&at_once, since(5), until(5), 0)), [epoch(0, 3)], "all that were committed at that time");
    assert_eq!(idle(ask(&at_once, None, until(4), 0)), Nothing::EmptyWindow);
    let clock_set_back = table_at(2, &history, 3, |id| 100 - id);
    assert_eq!(carried(ask(&clock_set_back, None, None, 1)), [epoch(1, 3)]);
    assert_eq!(carried(ask(&clock_set_back, from(2), to(3), 0)), [epoch(1, 3)]);
}

#[test]
fn a_table_without_sequence_numbers_is_followed_by_its_parents() {
    let table = table_at(1, &[(1, 0, "append"), (7, 1, "append"), (3, 7, "append")], 3, |id| id);
    assert!(table.snapshots().all(|snapshot| snapshot.sequence_number() == 0));
    assert_eq!(carried(ask(&table, None, None, 1)), [epoch(1, 3)]);
    assert_eq!(carried(ask(&table, from(7), to(7), 0)), [epoch(1, 7)]);
}

fn per_snapshot(table: &TableMetadata, start: Option<StartBound>, end: Option<EndBound>) -> Result<Range, RangeError> {
    let (followed, on_rollback) = (FollowedRef::default(), OnRollback::Fail);
    let (bounds, changes) = (Bounds { start, end }, Changes::PerSnapshot);
    epochs(table, &RangeRequest { bounds, followed: &followed, on_rollback, changes, checkpoint: None, mirror: false })
}

#[test]
fn latest_begins_with_the_changes_of_the_newest_snapshot() {
    let table = plain();
    for range in
        [ask(&table, by(StartingStrategy::Latest), None, 0), per_snapshot(&table, by(StartingStrategy::Latest), None)]
    {
        assert_eq!(carried(range), [epoch(3, 4)]);
    }
    let alone = self::table(&[(1, 0, "append")], 1);
    assert_eq!(carried(ask(&alone, by(StartingStrategy::Latest), None, 0)), [epoch(0, 1)]);
    let error = ask(&table, by(StartingStrategy::Latest), to(3), 0).unwrap_err();
    assert!(matches!(error, RangeError::StartAfterEnd { .. }), "{error}");
}

#[test]
fn every_snapshot_from_the_earliest_is_an_epoch_of_a_changelog() {
    let table = plain();
    let range = per_snapshot(&table, by(StartingStrategy::Earliest), None);
    assert_eq!(carried(range), [epoch(0, 1), epoch(1, 2), epoch(2, 3), epoch(3, 4)]);
    let range = per_snapshot(&table, None, to(3));
    assert_eq!(carried(range), [epoch(0, 3)], "the whole state first");
    assert_eq!(carried(per_snapshot(&table, from(2), to(3))), [epoch(1, 2), epoch(2, 3)]);
}

#[test]
fn net_changes_of_a_changelog_are_those_of_the_ends_whatever_was_rewritten_between() {
    let table = compacted();
    let (followed, on_rollback) = (FollowedRef::default(), OnRollback::Fail);
    let net = |after: i64, to: i64| {
        let bounds = Bounds { start: None, end: Some(EndBound::ToSnapshot(SnapshotId(to))) };
        let checkpoint = Some(SnapshotId(after));
        let changes = Changes::Net;
        epochs(&table, &RangeRequest { bounds, followed: &followed, on_rollback, changes, checkpoint, mirror: false })
    };
    assert_eq!(carried(net(1, 6)), [epoch(1, 6)]);
    let rewrites = Epoch { rewrites_only: true, ..epoch(2, 4) };
    assert_eq!(carried(net(2, 4)), [rewrites], "nothing but rewrites changes no row");
}

#[test]
fn a_line_has_every_snapshot_that_may_have_changed_rows() {
    let table = compacted();
    assert_eq!(line(&table, &epoch(1, 6)), Ok(vec![epoch(1, 2), epoch(4, 5), epoch(5, 6)]));
    assert_eq!(line(&table, &epoch(0, 3)), Ok(vec![epoch(0, 1), epoch(1, 2)]));
    assert_eq!(line(&table, &epoch(4, 5)), Ok(vec![epoch(4, 5)]));
    assert_eq!(line(&table, &epoch(2, 4)), Ok(vec![]), "rewrites alone");
    let replaced_first = self::table(&[(1, 0, "replace"), (2, 1, "append")], 2);
    assert_eq!(line(&replaced_first, &epoch(0, 2)), Ok(vec![epoch(0, 1), epoch(1, 2)]), "the first brings what it has");
}

#[test]
fn there_is_no_line_over_a_gap_or_to_a_snapshot_that_comes_from_elsewhere() {
    let expired = table(&[(3, 2, "append"), (4, 3, "append")], 4);
    assert_eq!(line(&expired, &epoch(0, 4)), Err(NoLine::BeginningGone(SnapshotId(3))));
    assert_eq!(line(&expired, &epoch(0, 3)), Err(NoLine::BeginningGone(SnapshotId(3))));
    assert_eq!(line(&expired, &epoch(1, 4)), Err(NoLine::NotAnAncestor));
    assert_eq!(line(&expired, &epoch(3, 4)), Ok(vec![epoch(3, 4)]));
    let branched = table(&[(1, 0, "append"), (2, 1, "append"), (3, 1, "append")], 3);
    assert_eq!(line(&branched, &epoch(2, 3)), Err(NoLine::NotAnAncestor));
}

#[test]
fn changes_of_a_snapshot_whose_parent_expired_are_a_gap_that_says_how_to_begin() {
    let table = table(&[(3, 2, "append"), (4, 3, "append")], 4);
    for start in [by(StartingStrategy::Earliest), from(3), since(1)] {
        let error = per_snapshot(&table, start, None).unwrap_err();
        assert!(matches!(error, RangeError::BeginningExpired { missing: SnapshotId(2), .. }), "{start:?}: {error}");
        assert!(error.to_string().contains("starting_strategy: initial"), "{error}");
        assert_eq!(error.class(), Class::HistoryGap);
    }
    assert_eq!(carried(per_snapshot(&table, by(StartingStrategy::Initial), None)), [epoch(0, 4)]);
    assert_eq!(carried(per_snapshot(&table, after(3), None)), [epoch(3, 4)]);
}
