//! The changes of several snapshots in one plan: each difference says which snapshot made it, and rows that have to meet come
//! together.

use std::collections::{BTreeMap, BTreeSet};

use iceferry_common::model::{Identity, Resolution, ScanTask, SnapshotId, SourceCommit, TaskId, Work};

use super::model::{Row, Table};
use crate::plan::{PlanSummary, Step, Together, plan_net};

fn step(before: Option<SnapshotId>, snapshot_id: SnapshotId, change_ordinal: i32) -> Step {
    Step { before, commit: SourceCommit { snapshot_id, sequence_number: 0, timestamp_ms: 0, change_ordinal } }
}

async fn planned(table: &Table, steps: &[Step], identity: Identity) -> (Vec<ScanTask>, PlanSummary) {
    let mut request = table.request(None, steps[0].commit.snapshot_id);
    request.together = Together::Changes(identity);
    let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
    let collect = async {
        let mut tasks = Vec::new();
        while let Some(task) = receiver.recv().await {
            tasks.push(task);
        }
        tasks
    };
    let (summary, tasks) = tokio::join!(plan_net(request, steps, sender), collect);
    (tasks, summary.unwrap())
}

/// Where rows are resolved together: in one task, or in the tasks of one exchange.
fn group(task: &ScanTask) -> TaskId {
    match &task.work {
        Work::Exchange(work) => work.first_resolve,
        _ => task.id,
    }
}

/// Of rows of one identity, whether they went and came, and where they are resolved, or else only kept.
type Met = ([bool; 2], BTreeSet<(TaskId, bool)>);

/// Each way to tell rows in its turn.
pub(super) fn identity(turn: u64) -> Identity {
    [Identity::None, Identity::Columns(vec![1]), Identity::RowId][(turn % 3) as usize].clone()
}

/// Plans all snapshots behind one, or from the first on, and holds the outcome against the model.
pub(super) async fn check(table: &Table, from: Option<usize>, to: usize, identity: Identity) {
    let id = |at: usize| table.states[at].0;
    let first = from.map_or(0, |from| from + 1);
    let steps: Vec<Step> =
        (first..=to).zip(0..).map(|(at, ordinal)| step(at.checked_sub(1).map(id), id(at), ordinal)).collect();
    let (tasks, summary) = planned(table, &steps, identity.clone()).await;
    assert!(summary.complete);
    let each = table.interpret_each(&tasks);
    for step in &steps {
        let mut found: BTreeMap<Row, i64> = BTreeMap::new();
        for (_, _, rows) in each.iter().filter(|(_, difference, _)| difference.commit == Some(step.commit)) {
            rows.iter().for_each(|(row, count)| *found.entry(*row).or_default() += count);
        }
        found.retain(|_, count| *count != 0);
        let expected = table.expected(step.before, step.commit.snapshot_id);
        assert_eq!(found, expected, "{step:?} of {first} to {to}: {tasks:#?}");
    }
    assert!(each.iter().all(|(_, difference, _)| difference.commit.is_some()), "each is of a snapshot");
    let told = |row: &Row| if identity == Identity::Columns(vec![1]) { Row { p: None, v: None, ..*row } } else { *row };
    let mut met: BTreeMap<Row, Met> = BTreeMap::new();
    for (task, _, rows) in each {
        for (row, count) in rows {
            let (sides, places) = met.entry(told(&row)).or_default();
            sides[usize::from(count > 0)] = true;
            places.insert((group(task), task.resolution == Resolution::Net));
        }
    }
    for (row, (sides, places)) in met {
        let is_right = sides != [true, true] || (places.len() == 1 && places.iter().all(|(_, is_net)| *is_net));
        assert!(is_right, "{row:?} both went and came, in {places:?}, told by {identity:?}: {tasks:#?}");
    }
}
