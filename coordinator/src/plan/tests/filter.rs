//! What a filter leaves out: manifests that are not opened, files that no task has, and nothing that counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceferry_common::filter::{BoundFilter, Filter};
use iceferry_common::model::{Identity, Resolution, ScanTask, SnapshotId};

use super::model::{Commit, File, Row, Table, row, run};
use crate::plan::{PlanSummary, Together};

pub(super) fn bound(table: &Table, text: &str) -> BoundFilter {
    Filter::parse(text).unwrap().bind(table.metadata().current_schema()).unwrap()
}

async fn planned(
    table: &Table,
    before: Option<SnapshotId>,
    after: SnapshotId,
    filter: &str,
    together: Together,
) -> (Vec<ScanTask>, PlanSummary) {
    let mut request = table.request(before, after);
    request.filter = Some(bound(table, filter));
    request.together = together;
    run(request).await.unwrap()
}

async fn append(table: &mut Table, spec: i32, partition: Option<i32>, rows: &[Row]) -> (SnapshotId, Arc<File>) {
    let file = Arc::new(table.file(spec, partition, rows.to_vec()));
    let added = vec![(Arc::clone(&file), None)];
    (table.commit(Commit { added, operation: "append", ..Commit::default() }).await, file)
}

fn files(tasks: &[ScanTask]) -> Vec<&str> {
    let mut files: Vec<&str> =
        tasks.iter().flat_map(|task| &task.differences).map(|difference| difference.file.location.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[tokio::test]
async fn a_manifest_whose_partitions_cannot_match_is_not_opened() {
    for together in [Together::CarryOver, Together::Changes(Identity::Columns(vec![1]))] {
        let mut table = Table::new(2);
        append(&mut table, 1, Some(1), &[row(1, 1, 0)]).await;
        let (last, second) = append(&mut table, 1, Some(2), &[row(2, 2, 0)]).await;
        let (tasks, summary) = planned(&table, None, last, "p = 2", together.clone()).await;
        assert_eq!(files(&tasks), [second.path.as_str()]);
        assert_eq!((summary.manifests_opened, summary.manifests_skipped), (1, 1));
        assert_eq!((summary.files_added, summary.files_filtered), (1, 0));
        let (tasks, summary) = planned(&table, None, last, "p is null", together).await;
        assert_eq!((tasks.len(), summary.manifests_opened), (0, 0));
    }
}

#[tokio::test]
async fn a_file_whose_bounds_or_partition_cannot_match_is_in_no_task() {
    let mut table = Table::new(2);
    let (_, low) = append(&mut table, 0, None, &[row(1, 1, 10), row(2, 1, 20)]).await;
    let (last, high) = append(&mut table, 0, None, &[row(8, 1, 80), row(9, 1, 90)]).await;
    for (filter, expected) in [
        ("v = 15", vec![&low]),
        ("v >= 80", vec![&high]),
        ("v > 90", vec![]),
        ("v is null", vec![]),
        ("v <> 15", vec![&low, &high]),
        ("id < 3 or v = 85", vec![&low, &high]),
    ] {
        let (tasks, summary) = planned(&table, None, last, filter, Together::CarryOver).await;
        let expected: Vec<&str> = expected.into_iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files(&tasks), expected, "{filter}");
        assert_eq!(summary.files_filtered, 2 - expected.len() as u64, "{filter}");
        assert_eq!(summary.files_added, expected.len() as u64, "{filter}");
    }
}

#[tokio::test]
async fn a_file_without_matches_stays_where_it_may_hold_the_other_half_of_an_update() {
    let mut table = Table::new(2);
    let (before, old) = append(&mut table, 0, None, &[row(1, 1, 10)]).await;
    let other = Arc::new(table.file(0, None, vec![row(50, 1, 10)]));
    let new = Arc::new(table.file(0, None, vec![row(1, 1, 99)]));
    let after = table
        .commit(Commit {
            added: vec![(Arc::clone(&new), None), (Arc::clone(&other), None)],
            removed: [(old.path.clone(), None)].into(),
            operation: "overwrite",
            ..Commit::default()
        })
        .await;
    let keyed = Together::Changes(Identity::Columns(vec![1]));
    let (tasks, summary) = planned(&table, Some(before), after, "v = 99", keyed.clone()).await;
    assert_eq!(files(&tasks), [old.path.as_str(), new.path.as_str()], "both halves are told apart by one task");
    assert_eq!(tasks[0].resolution, Resolution::Updates);
    assert_eq!(summary.files_filtered, 1, "the file whose key meets no other's");
    let (tasks, summary) = planned(&table, Some(before), after, "v = 7", keyed).await;
    assert_eq!((tasks.len(), summary.files_filtered), (0, 3), "a group without any match is not read");
    // A mirror needs no pairs.
    let (tasks, _) = planned(&table, Some(before), after, "v = 99", Together::CarryOver).await;
    assert_eq!(files(&tasks), [new.path.as_str()]);
}

/// A condition, and what it means of a row.
type Condition = (&'static str, fn(&Row) -> bool);

/// Filters of the model's table.
fn filters() -> Vec<Condition> {
    vec![
        ("id = 3", |row| row.id == Some(3)),
        ("id in (1, 2) or v is null", |row| matches!(row.id, Some(1 | 2)) || row.v.is_none()),
        ("p = 1", |row| row.p == Some(1)),
        ("p is null and id > 2", |row| row.p.is_none() && row.id > Some(2)),
        ("not (p between 0 and 1)", |row| row.p.is_some_and(|p| !(0..=1).contains(&p))),
        ("id <> 3", |row| row.id.is_some_and(|id| id != 3)),
        ("v < 0", |row| row.v.is_some_and(|v| v < 0)),
    ]
}

/// Holds a filtered plan against the filtered difference of the states.
pub(super) async fn check(table: &Table, before: Option<SnapshotId>, after: SnapshotId) -> u64 {
    let mut left_out = 0;
    for (text, matches) in filters() {
        let (tasks, summary) = planned(table, before, after, text, Together::CarryOver).await;
        let filtered = |net: BTreeMap<Row, i64>| -> BTreeMap<Row, i64> {
            net.into_iter().filter(|(row, _)| matches(row)).collect()
        };
        let (found, expected) = (filtered(table.interpret(&tasks)), filtered(table.expected(before, after)));
        assert_eq!(found, expected, "{text} from {before:?} to {after}");
        left_out += summary.files_filtered;
    }
    left_out
}
