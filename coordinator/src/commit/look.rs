//! Looking for ourselves: what a target's history says about a commit whose answer was a conflict, was lost, or is yet
//! to be asked for. Pure: metadata in, verdict out.

use iceberg::spec::{Snapshot, TableMetadata};
use iceferry_common::model::{JobName, RunId, SnapshotId};

use super::checkpoint::{Ancestors, SUMMARY_EPOCH, SUMMARY_JOB, SUMMARY_RUN};
use super::{Checkpoint, CommitError, EpochCommit, current_fence, find_checkpoint};

/// What a table says about a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// What the commit was to bring is in the table.
    There {
        /// The snapshot that brought it; `None` when the checkpoint moved alone on a table without snapshots.
        snapshot_id: Option<SnapshotId>,
        /// Whether this run brought it: then its staged files are in the table.
        ours: bool,
    },
    /// It is not there, and nothing stands against it.
    Free,
}

/// What staged files are made for: where one of these changes, they do not fit any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape(Vec<(&'static str, String)>);

impl Shape {
    pub(super) fn of(metadata: &TableMetadata) -> Self {
        Self(vec![
            ("table UUID", metadata.uuid().to_string()),
            ("location", metadata.location().to_owned()),
            ("format version", metadata.format_version().to_string()),
            ("schema id", metadata.current_schema_id().to_string()),
            ("partition spec id", metadata.default_partition_spec_id().to_string()),
        ])
    }

    /// # Errors
    /// [`CommitError::TargetChanged`] names the first thing that differs.
    pub(super) fn require_same(&self, table: &str, metadata: &TableMetadata) -> Result<(), CommitError> {
        let now = Self::of(metadata);
        match self.0.iter().zip(now.0).find(|(before, now)| **before != *now) {
            None => Ok(()),
            Some(((what, before), (_, now))) => {
                Err(CommitError::TargetChanged { table: table.to_owned(), what, before: before.clone(), now })
            }
        }
    }
}

/// Looks for an epoch. `snapshot_id` is the one that its attempts use, once there are attempts.
///
/// # Errors
/// When the epoch is not in the table and must not be put there: another run took over or moved the checkpoint, somebody
/// rolled the table back, or changed what the files were staged for.
pub(super) fn look_for_epoch(
    metadata: &TableMetadata,
    table: &str,
    commit: &EpochCommit,
    snapshot_id: Option<SnapshotId>,
    shape: &Shape,
) -> Result<Look, CommitError> {
    // Ourselves come first, before any reason why we could not commit: what landed has landed.
    let by_id = |snapshot: &Snapshot| snapshot_id == Some(SnapshotId(snapshot.snapshot_id()));
    let ours = Ancestors::of_main(metadata).find(|snapshot| by_id(snapshot) || is_epoch(snapshot, commit));
    if let Some(snapshot) = ours {
        return Ok(Look::There { snapshot_id: Some(SnapshotId(snapshot.snapshot_id())), ours: true });
    }
    let found = find_checkpoint(metadata, &commit.job)?;
    if let Some(found) = &found
        && found.run == commit.run
        && found.epoch >= commit.epoch
    {
        // An epoch without rows, or one whose snapshot is expired already.
        return Ok(Look::There { snapshot_id: found.target_snapshot_id, ours: true });
    }
    if let Some(snapshot) = metadata.snapshots().find(|snapshot| by_id(snapshot) || is_epoch(snapshot, commit)) {
        return Err(CommitError::RolledBack {
            what: commit.to_string(),
            table: table.to_owned(),
            snapshot: SnapshotId(snapshot.snapshot_id()),
        });
    }
    if let Some(holder) = current_fence(metadata, &commit.job)?
        && holder.fence > commit.fence
    {
        return Err(CommitError::Fenced {
            job: commit.job.clone(),
            table: table.to_owned(),
            ours: commit.fence,
            found: holder.fence,
            run: holder.run,
        });
    }
    let is_same_table = found.as_ref().is_none_or(|found| found.source_uuid == commit.source_uuid);
    let holds = found.as_ref().map(|found| found.source_snapshot_id);
    // A request for an epoch without rows that was sent twice may land once more after later ones of its kind.
    let is_put_back = found
        .as_ref()
        .is_some_and(|found| found.run == commit.run && commit.last_with_rows.is_none_or(|last| found.epoch >= last));
    if (holds != commit.after && !is_put_back) || !is_same_table {
        return look_at_foreign(table, commit, found);
    }
    shape.require_same(table, metadata)?;
    Ok(Look::Free)
}

/// The target does not hold what the epoch's changes start from.
fn look_at_foreign(table: &str, commit: &EpochCommit, found: Option<Checkpoint>) -> Result<Look, CommitError> {
    let moved = |found: String| CommitError::CheckpointMoved {
        table: table.to_owned(),
        epoch: commit.epoch,
        expected: commit.after.map_or_else(|| "none".to_owned(), |id| id.to_string()),
        found,
    };
    let Some(found) = found else { return Err(moved("none".to_owned())) };
    let is_same_state = found.source_uuid == commit.source_uuid
        && found.source_snapshot_id == commit.source_snapshot_id
        && found.mirror_hash == commit.mirror_hash;
    if is_same_state {
        return Ok(Look::There { snapshot_id: found.target_snapshot_id, ours: false });
    }
    if found.run == commit.run {
        return Err(moved(found.source_snapshot_id.to_string()));
    }
    Err(CommitError::AnotherRun {
        table: table.to_owned(),
        epoch: commit.epoch,
        run: found.run,
        found: found.source_snapshot_id,
    })
}

fn is_epoch(snapshot: &Snapshot, commit: &EpochCommit) -> bool {
    is_run(snapshot, &commit.job, &commit.run)
        && snapshot.summary().additional_properties.get(SUMMARY_EPOCH) == Some(&commit.epoch.to_string())
}

fn is_run(snapshot: &Snapshot, job: &JobName, run: &RunId) -> bool {
    let entries = &snapshot.summary().additional_properties;
    entries.get(SUMMARY_JOB).is_some_and(|name| name == job.as_str()) && entries.get(SUMMARY_RUN) == Some(&run.0)
}

/// Looks for a take-over by the id of its snapshot.
///
/// # Errors
/// When the snapshot landed and was rolled back, or the table is another one now.
pub(super) fn look_for_take_over(
    metadata: &TableMetadata,
    table: &str,
    job: &JobName,
    snapshot_id: SnapshotId,
    uuid: uuid::Uuid,
) -> Result<Look, CommitError> {
    if Ancestors::of_main(metadata).any(|snapshot| snapshot.snapshot_id() == snapshot_id.0) {
        return Ok(Look::There { snapshot_id: Some(snapshot_id), ours: true });
    }
    if metadata.snapshot_by_id(snapshot_id.0).is_some() {
        let what = format!("the take-over of job {job}");
        return Err(CommitError::RolledBack { what, table: table.to_owned(), snapshot: snapshot_id });
    }
    if metadata.uuid() != uuid {
        return Err(CommitError::TargetChanged {
            table: table.to_owned(),
            what: "table UUID",
            before: uuid.to_string(),
            now: metadata.uuid().to_string(),
        });
    }
    Ok(Look::Free)
}
