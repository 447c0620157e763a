//! Confirming a checkpoint whose snapshot is expired: whether it is behind what is left of main's history, older metadata
//! files still tell. Where they do not, a target that was rolled back and written to again would pass for one that was
//! only written to.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::JobName;

use super::CommitError;
use super::checkpoint::in_doubt;
use crate::catalog::{LoadedTable, parse_metadata};

/// Follows main's history from what is left of it, through the older metadata files that the table still names, to the
/// checkpoint's snapshot. Reads nothing where the metadata itself leaves no doubt.
///
/// # Errors
/// [`CommitError::CheckpointLost`] when it leads elsewhere, or the files that would tell are gone; others when the checkpoint
/// or a file cannot be read.
pub async fn confirm_checkpoint(table: &LoadedTable, job: &JobName) -> Result<(), CommitError> {
    let Some((oldest, target)) = in_doubt(&table.metadata, job)? else { return Ok(()) };
    let mut at = oldest.0;
    for entry in table.metadata.metadata_log().iter().rev() {
        let bytes = match table.storage.read(&entry.metadata_file).await {
            Ok(bytes) => bytes,
            Err(error) if error.class() == Class::NotFound => break,
            Err(source) => return Err(CommitError::storage("follow the target's history", source)),
        };
        let Ok(older) = parse_metadata(&bytes, &entry.metadata_file) else { break };
        // Where the parent is not named, a still older file may name it.
        while let Some(parent) = older.snapshot_by_id(at).and_then(|snapshot| snapshot.parent_snapshot_id()) {
            if parent == target.0 {
                return Ok(());
            }
            at = parent;
        }
    }
    let location = table.metadata.location().to_owned();
    Err(CommitError::CheckpointLost { job: job.clone(), snapshot: target, location })
}
