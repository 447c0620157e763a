//! The net changes of several snapshots, told with the snapshot that last made each: the differences of all of them, every
//! one with the deletes of its own two states, put together as those of one snapshot are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iceferry_common::model::{Identity, ScanTask, Side, SnapshotId, SourceCommit};
use tokio::sync::mpsc;

use super::difference::{self, group_columns, rows_stay_in_partition};
use super::entry::{DataEntry, Decoding};
use super::filter::FileFilter;
use super::planner::{Event, Planner, Stop, Waiting};
use super::reach::{DeleteId, Deletes, State};
use super::{PlanError, PlanRequest, PlanSummary, Together};

/// A snapshot whose changes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The state before it; `None` is the empty state.
    pub before: Option<SnapshotId>,
    /// The snapshot, as its changes name it.
    pub commit: SourceCommit,
}

/// Plans the changes of several snapshots as one epoch: of each file difference the task says which snapshot made it. The
/// request says for all of them what is read and what comes together; its two states are not looked at.
///
/// It holds all file differences of all the snapshots before it sends the first task.
///
/// # Errors
/// As [`super::plan`].
pub async fn plan_net(
    request: PlanRequest,
    steps: &[Step],
    tasks: mpsc::Sender<ScanTask>,
) -> Result<PlanSummary, PlanError> {
    let mut summary = PlanSummary::default();
    let bytes_read = Arc::new(AtomicU64::new(0));
    let planned = run(request, steps, tasks, &mut summary, &bytes_read).await;
    summary.metadata_bytes_read = bytes_read.load(Ordering::Relaxed);
    summary.complete = difference::is_complete(planned).map_err(|error| *error)?;
    Ok(summary)
}

async fn run(
    mut request: PlanRequest,
    steps: &[Step],
    tasks: mpsc::Sender<ScanTask>,
    summary: &mut PlanSummary,
    bytes_read: &Arc<AtomicU64>,
) -> Result<(), Stop> {
    let mut line = Line::default();
    for step in steps {
        (request.before, request.after) = (step.before, step.commit.snapshot_id);
        let mut read = PlanSummary::default();
        let into = Some((&mut line, step.commit));
        difference::run(&request, tasks.clone(), &mut read, bytes_read, into).await?;
        // What differs is counted when it is known which of it is read.
        summary.manifest_lists_read += read.manifest_lists_read;
        summary.manifests_opened += read.manifests_opened;
        summary.manifests_skipped += read.manifests_skipped;
        summary.files_filtered += read.files_filtered;
    }
    let Line { deletes, waiting } = line;
    let identity = match &request.together {
        Together::Changes(identity) => identity.clone(),
        Together::CarryOver => Identity::None,
    };
    let filter = FileFilter::new(request.filter.clone(), &request.metadata);
    let decoding = Decoding::new(&request.metadata, &request.read_schema, request.partition_type.clone(), filter);
    let columns = group_columns(&request, &decoding);
    let by_partition = rows_stay_in_partition(&identity, &request.metadata);
    let mut planner = Planner::new(&request, &deletes, tasks, summary);
    planner.waiting = waiting;
    planner.changes(Vec::new(), Vec::new(), &columns, by_partition).await?;
    planner.finish().await
}

/// What differs, snapshot by snapshot, and the deletes of either side of it.
#[derive(Default)]
pub(super) struct Line {
    /// Of no state: each difference names its own.
    deletes: Deletes,
    waiting: Vec<Waiting>,
}

impl Planner<'_> {
    /// Puts all that differs into a line, as the changes of a snapshot.
    pub(super) fn collect(
        mut self,
        removed: Vec<DataEntry>,
        added: Vec<DataEntry>,
        line: &mut Line,
        commit: SourceCommit,
    ) -> Result<(), Stop> {
        let mut add =
            |planner: &Self, entry: DataEntry, before: Option<Vec<DeleteId>>, after: Option<Vec<DeleteId>>| {
                let mut side = |deletes: Option<Vec<DeleteId>>| match deletes {
                    None => Side::Absent,
                    Some(ids) => {
                        let ids = ids.into_iter().map(|id| line.deletes.add(planner.deletes.entry(id).clone(), &[]));
                        Side::Present(ids.collect())
                    }
                };
                let event = Event::OfSnapshot { before: side(before), after: side(after), commit };
                line.waiting.push(Waiting { entry, event });
            };
        for Waiting { entry, event } in std::mem::take(&mut self.waiting) {
            match event {
                Event::Changed { before, after } => add(&self, entry, Some(before), Some(after)),
                // Nothing else waits while a snapshot is read.
                Event::Added | Event::Removed | Event::OfSnapshot { .. } => {}
            }
        }
        for entry in removed {
            let before = self.reaching(State::Before, &entry)?;
            add(&self, entry, Some(before), None);
        }
        for entry in added {
            let after = self.reaching(State::After, &entry)?;
            add(&self, entry, None, Some(after));
        }
        Ok(())
    }
}
