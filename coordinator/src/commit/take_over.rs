//! Taking over: an empty snapshot with a higher fence. Main moves, so whatever the older run still has under way was made
//! for a base that is gone; and when the older run looks again it finds the fence and stops.
//!
//! A run may take over only from the fence that it saw when it started. Of runs that start together each sees the other's
//! marker; the first to take over removes what the others have written, so none of them may land anything after that, not
//! even a take-over of its own.

use std::collections::HashMap;

use iceberg::spec::TableMetadata;
use iceferry_common::model::{Fence, JobName, RunId, SnapshotId};
use uuid::Uuid;

use super::attempt::{Head, NewSnapshot, Proposal, Stamp, new_snapshot_id, require_supported};
use super::checkpoint::{SUMMARY_FENCE, SUMMARY_JOB, SUMMARY_RUN, checkpoint_property};
use super::drive::{CommitPolicy, drive};
use super::fence::fence_property;
use super::look::{Look, look_for_take_over};
use super::runs::run_metadata_folder;
use super::summary::Added;
use super::{Checkpoint, CommitError, FenceHolder, current_fence, find_checkpoint};
use crate::catalog::{Catalog, LoadedTable};

/// Takes a job over for `run`: after this no commit of an older run can land. Gives the table, and the fence that this
/// run's commits carry from now on. The target holds the same source snapshot as before. `table` is the table as `run` had it before it left
/// its marker, or as its own last commit gave it.
///
/// # Errors
/// [`CommitError::Fenced`] when another run took over since `table` was loaded; others as [`super::commit_epoch`].
pub async fn take_over(
    catalog: &dyn Catalog,
    table: LoadedTable,
    job: &JobName,
    run: &RunId,
    policy: &CommitPolicy,
) -> Result<(LoadedTable, Fence), CommitError> {
    require_supported(&table)?;
    let snapshot = NewSnapshot {
        id: new_snapshot_id(&table.metadata),
        added: Added::default(),
        manifests: Vec::new(),
        folder: run_metadata_folder(&table.metadata, job, run),
    };
    let seen = current_fence(&table.metadata, job)?.map_or(Fence(0), |holder| holder.fence);
    let proposal = TakeOver { job, run, uuid: table.metadata.uuid(), seen, snapshot };
    let landed = drive(catalog, table, &proposal, policy).await?;
    let fence = proposal.fence_taken(&landed.table)?;
    tracing::info!(
        job = job.as_str(),
        table = %landed.table.ident,
        fence = fence.0,
        target_snapshot_id = proposal.snapshot.id,
        "job taken over"
    );
    Ok((landed.table, fence))
}

struct TakeOver<'a> {
    job: &'a JobName,
    run: &'a RunId,
    uuid: Uuid,
    /// The fence that is taken over from.
    seen: Fence,
    snapshot: NewSnapshot,
}

impl TakeOver<'_> {
    /// The fence that our snapshot carries: another run may have taken over right behind us, its fence is not ours.
    fn fence_taken(&self, table: &LoadedTable) -> Result<Fence, CommitError> {
        let snapshot = table.metadata.snapshot_by_id(self.snapshot.id);
        let text = snapshot.and_then(|snapshot| snapshot.summary().additional_properties.get(SUMMARY_FENCE));
        text.and_then(|text| text.parse().ok()).map(Fence).ok_or_else(|| CommitError::MarkDamaged {
            place: format!("the fence of snapshot {}", self.snapshot.id),
            location: table.metadata.location().to_owned(),
            problem: format!("{SUMMARY_FENCE} is {text:?}, not a number"),
        })
    }
}

impl Proposal for TakeOver<'_> {
    fn what(&self) -> String {
        format!("the take-over of job {}", self.job)
    }

    fn look(&self, table: &LoadedTable) -> Result<Look, CommitError> {
        let (id, name) = (SnapshotId(self.snapshot.id), table.ident.to_string());
        let look = look_for_take_over(&table.metadata, &name, self.job, id, self.uuid)?;
        match current_fence(&table.metadata, self.job)? {
            Some(holder) if look == Look::Free && holder.fence > self.seen => Err(CommitError::Fenced {
                job: self.job.clone(),
                table: name,
                ours: self.seen,
                found: holder.fence,
                run: holder.run,
            }),
            _ => Ok(look),
        }
    }

    fn snapshot(&self) -> Option<&NewSnapshot> {
        Some(&self.snapshot)
    }

    fn stamp(&self, base: &TableMetadata, head: Option<Head>) -> Result<Stamp, CommitError> {
        let highest = current_fence(base, self.job)?.map_or(0, |holder| holder.fence.0);
        let holder = FenceHolder { fence: Fence(highest.saturating_add(1)), run: self.run.clone() };
        let summary = HashMap::from([
            (SUMMARY_JOB.to_owned(), self.job.to_string()),
            (SUMMARY_RUN.to_owned(), self.run.to_string()),
            (SUMMARY_FENCE.to_owned(), holder.fence.to_string()),
        ]);
        let json = serde_json::to_string(&holder).expect("a number and a text always serialise");
        let mut properties = HashMap::from([(fence_property(self.job), json)]);
        // The target shows with this snapshot what it showed before: so the checkpoint lives as long as it does.
        if let (Some(checkpoint), Some(head)) = (find_checkpoint(base, self.job)?, head) {
            let (target_snapshot_id, target_sequence_number) = (Some(head.id), Some(head.sequence_number));
            let checkpoint = Checkpoint { target_snapshot_id, target_sequence_number, ..checkpoint };
            properties.insert(checkpoint_property(self.job), checkpoint.to_json());
        }
        Ok(Stamp { summary, properties })
    }
}
