//! Net changes that name the snapshot that last made each of them: whether they can be had, and how they are planned.

use iceferry_common::config::{Changes, JobFile};
use iceferry_common::model::ScanTask;
use tokio::sync::mpsc;

use super::JobError;
use super::prepare::Prepared;
use crate::catalog::LoadedTable;
use crate::plan::{self, Epoch, NoLine, PlanError, PlanSummary, Range};

/// Whether each net change is to be told with the snapshot that last made it: when a column asks for it and an epoch is the
/// outcome of several snapshots.
///
/// # Errors
/// When it is asked for, and there is no line of snapshots from one end to the other.
pub(super) fn tells_commits(job: &JobFile, source: &LoadedTable, range: &Range) -> Result<bool, JobError> {
    let column = job.source.metadata_columns.iter().find(|column| column.is_of_commit());
    let (Some(column), Range::Epochs(epochs)) = (column, range) else { return Ok(false) };
    let metadata = &source.metadata;
    let is_resync = range.resync(metadata).is_some();
    if job.changes() != Changes::Net && !is_resync {
        return Ok(false);
    }
    let is_of_one_snapshot = |epoch: &Epoch| {
        let through = metadata.snapshot_by_id(epoch.through.0);
        through.is_some_and(|through| through.parent_snapshot_id() == epoch.before.map(|before| before.0))
    };
    if epochs.iter().all(is_of_one_snapshot) {
        return Ok(false);
    }
    let (table, column) = (source.ident.to_string(), column.to_string());
    for epoch in epochs {
        match plan::line(metadata, epoch) {
            Ok(_) if !is_resync => {}
            Ok(_) | Err(NoLine::NotAnAncestor) => return Err(JobError::NetCommit { table, column }),
            Err(NoLine::BeginningGone(oldest)) => return Err(JobError::NetBeginning { table, column, oldest }),
        }
    }
    Ok(true)
}

impl Prepared {
    /// The snapshots of an epoch that its changes name, where these are several; none where it is one.
    fn steps(&self, epoch: &Epoch, first_ordinal: i32) -> Vec<plan::Step> {
        if !self.tells_commits {
            return Vec::new();
        }
        // That there is a line was seen when the job was prepared, in the same metadata.
        let steps = plan::line(&self.source.metadata, epoch).unwrap_or_default();
        let step =
            |(step, ordinal): (&Epoch, i32)| plan::Step { before: step.before, commit: self.commit_of(step, ordinal) };
        steps.iter().zip(first_ordinal..).map(step).collect()
    }

    /// How many snapshots of an epoch its changes may name.
    pub(super) fn commits_in(&self, epoch: &Epoch) -> i32 {
        match (epoch.rewrites_only, self.tells_commits) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => i32::try_from(self.steps(epoch, 0).len()).unwrap_or(i32::MAX),
        }
    }

    /// Plans an epoch, whose first snapshot with changes has the given number.
    pub(super) async fn plan(
        &self,
        request: plan::PlanRequest,
        epoch: &Epoch,
        first_ordinal: i32,
        tasks: mpsc::Sender<ScanTask>,
    ) -> Result<PlanSummary, PlanError> {
        match self.tells_commits {
            true => plan::plan_net(request, &self.steps(epoch, first_ordinal), tasks).await,
            false => plan::plan(request, tasks).await,
        }
    }
}
