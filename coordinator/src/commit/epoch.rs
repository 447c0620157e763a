//! An epoch's commit: its staged files and its checkpoint, in one step.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use iceberg::spec::TableMetadata;
use iceferry_common::model::{EpochId, Fence, JobName, RunId, SnapshotId, StagedFile};
use uuid::Uuid;

use super::attempt::{Head, NewSnapshot, Proposal, Stamp, new_snapshot_id, require_supported};
use super::checkpoint::checkpoint_property;
use super::drive::{CommitPolicy, drive};
use super::look::{Look, Shape, look_for_epoch};
use super::row_delta::write_manifests;
use super::{Checkpoint, CommitError};
use crate::catalog::{Catalog, LoadedTable};

/// All that becomes one target snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochCommit {
    /// The job.
    pub job: JobName,
    /// The run of the job.
    pub run: RunId,
    /// The epoch within the run.
    pub epoch: EpochId,
    /// The run's fence: a run that took over has the one it took, another the table's current one.
    pub fence: Fence,
    /// UUID of the source table.
    pub source_uuid: Uuid,
    /// The source snapshot that the target holds before the epoch, as [`super::find_checkpoint`] said when the epoch was
    /// planned: the files are the difference from there, and are committed to no other state.
    pub after: Option<SnapshotId>,
    /// The last epoch of this run that had rows. The epochs between it and this one left the target's rows as they were,
    /// so a checkpoint of any of them, which a late answer may bring back, stands for the same state.
    pub last_with_rows: Option<EpochId>,
    /// The source snapshot that the target holds after the epoch.
    pub source_snapshot_id: SnapshotId,
    /// Its sequence number.
    pub source_sequence_number: i64,
    /// Hash of what defines the mirror.
    pub mirror_hash: String,
    /// The `_change_ordinal` of the snapshot whose changes come after it.
    pub next_change_ordinal: i32,
    /// Folder of data and delete files, as the workers had it, without a slash at its end.
    pub data_location: String,
    /// The files of all accepted outputs. Without any, the checkpoint moves alone.
    pub staged: Arc<Vec<StagedFile>>,
}

impl fmt::Display for EpochCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} of job {} (source snapshot {})", self.epoch, self.job, self.source_snapshot_id)
    }
}

/// An epoch that is in the table.
#[derive(Debug)]
pub struct Committed {
    /// The table with it; the base of the next epoch.
    pub table: LoadedTable,
    /// The snapshot that brought it; `None` when the checkpoint moved alone on a table without snapshots.
    pub snapshot_id: Option<SnapshotId>,
    /// Whether it was found by looking: an answer was lost, or the epoch was delivered twice.
    pub already_there: bool,
    /// Whether this run brought it. Where another run of the job did, nobody references the staged files.
    pub ours: bool,
}

/// Commits an epoch to its target, at most once. Other writers' commits are rebased upon without reading data again.
///
/// # Errors
/// [`CommitError::Unknown`] when it may be in the table, now or later: all files must stay. With any other error it is
/// certainly not there, save [`CommitError::RolledBack`]; see [`CommitError::leaves_files_in_doubt`].
pub async fn commit_epoch(
    catalog: &dyn Catalog,
    table: LoadedTable,
    commit: &EpochCommit,
    policy: &CommitPolicy,
) -> Result<Committed, CommitError> {
    require_supported(&table)?;
    let shape = Shape::of(&table.metadata);
    // Looked for before anything is written: an epoch may be delivered twice.
    let name = table.ident.to_string();
    if let Look::There { snapshot_id, ours } = look_for_epoch(&table.metadata, &name, commit, None, &shape)? {
        return Ok(Committed { table, snapshot_id, already_there: true, ours });
    }
    let snapshot = match commit.staged.is_empty() {
        true => None,
        false => Some(write_manifests(&table, commit, new_snapshot_id(&table.metadata)).await?),
    };
    let landed = drive(catalog, table, &EpochProposal { commit, shape, snapshot }, policy).await?;
    tracing::info!(
        job = commit.job.as_str(),
        table = name,
        epoch = commit.epoch.0,
        source_snapshot_id = commit.source_snapshot_id.0,
        target_snapshot_id = landed.snapshot_id.map(|id| id.0),
        files = commit.staged.len(),
        already_there = landed.already_there,
        "epoch committed"
    );
    let (snapshot_id, already_there, ours) = (landed.snapshot_id, landed.already_there, landed.ours);
    Ok(Committed { table: landed.table, snapshot_id, already_there, ours })
}

struct EpochProposal<'a> {
    commit: &'a EpochCommit,
    shape: Shape,
    snapshot: Option<NewSnapshot>,
}

impl Proposal for EpochProposal<'_> {
    fn what(&self) -> String {
        self.commit.to_string()
    }

    fn look(&self, table: &LoadedTable) -> Result<Look, CommitError> {
        let id = self.snapshot.as_ref().map(|new| SnapshotId(new.id));
        look_for_epoch(&table.metadata, &table.ident.to_string(), self.commit, id, &self.shape)
    }

    fn snapshot(&self) -> Option<&NewSnapshot> {
        self.snapshot.as_ref()
    }

    fn stamp(&self, _base: &TableMetadata, head: Option<Head>) -> Result<Stamp, CommitError> {
        let commit = self.commit;
        let checkpoint = Checkpoint {
            job: commit.job.clone(),
            run: commit.run.clone(),
            epoch: commit.epoch,
            fence: commit.fence,
            source_uuid: commit.source_uuid,
            source_snapshot_id: commit.source_snapshot_id,
            source_sequence_number: commit.source_sequence_number,
            target_snapshot_id: head.map(|head| head.id),
            target_sequence_number: head.map(|head| head.sequence_number),
            mirror_hash: commit.mirror_hash.clone(),
            next_change_ordinal: commit.next_change_ordinal,
        };
        let properties = HashMap::from([(checkpoint_property(&commit.job), checkpoint.to_json())]);
        Ok(Stamp { summary: checkpoint.to_summary(), properties })
    }
}
