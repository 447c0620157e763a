//! The snapshots between two states, one by one. Pure.

use iceberg::spec::{Operation, TableMetadata};
use iceferry_common::model::SnapshotId;

use super::Epoch;

/// Why there is no line of snapshots from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLine {
    /// It is to begin with the empty state, and what came before this snapshot was expired.
    BeginningGone(SnapshotId),
    /// The state after does not come from the state before.
    NotAnAncestor,
}

/// The snapshots of an epoch, oldest first, each with its parent as the state before. Those that only rewrote files are left
/// out: by the specification they change no rows.
///
/// # Errors
/// When parents do not lead from the epoch's last snapshot to its state before.
pub fn line(table: &TableMetadata, epoch: &Epoch) -> Result<Vec<Epoch>, NoLine> {
    let mut steps = Vec::new();
    let mut through = epoch.through;
    // A loop of parents would be damaged metadata; the number of snapshots bounds the walk. One step more finds that the
    // parent of the oldest is gone.
    for _ in 0..=table.snapshots().len() {
        let Some(snapshot) = table.snapshot_by_id(through.0) else {
            return Err(match (epoch.before, steps.last()) {
                (None, Some(Epoch { through: oldest, .. })) => NoLine::BeginningGone(*oldest),
                _ => NoLine::NotAnAncestor,
            });
        };
        let before = snapshot.parent_snapshot_id().map(SnapshotId);
        // The first snapshot of all brings whatever it has, by whichever name.
        let rewrites_only = before.is_some() && snapshot.summary().operation == Operation::Replace;
        steps.push(Epoch { before, through, rewrites_only });
        match before {
            before if before == epoch.before => {
                steps.reverse();
                steps.retain(|step| !step.rewrites_only);
                return Ok(steps);
            }
            Some(parent) => through = parent,
            None => return Err(NoLine::NotAnAncestor),
        }
    }
    Err(NoLine::NotAnAncestor)
}
