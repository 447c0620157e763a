//! Which snapshots a run carries: bounds and checkpoint in, epochs out. Pure: it looks at the table's metadata alone.
//!
//! History is walked by parents from the newest snapshot of the branch or tag that is followed; a clock never decides
//! an order. A range is (after, through]. It is cut at `replace` snapshots, which by the specification change no rows: an
//! epoch ends before one, the replace itself only moves the checkpoint, and the next epoch begins from its state. Where
//! the changes of each snapshot are wanted, every other snapshot is an epoch as well; where the net changes of a range are
//! wanted as rows, it is not cut at all.

mod error;
mod followed;
mod history;
mod line;

use iceberg::spec::TableMetadata;
use iceferry_common::config::{Bounds, Changes, EndBound, FollowedRef, OnRollback, StartBound, StartingStrategy};
use iceferry_common::model::SnapshotId;

pub use error::RangeError;
use history::{Cut, History};
pub use line::{NoLine, line};

/// The latest millisecond that is taken for one: in the year 5138. What is later was surely given in microseconds.
const TIMESTAMP_MS_MAX: i64 = 100_000_000_000_000;

/// The part of a range that becomes one target snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The state before; `None` is the empty state.
    pub before: Option<SnapshotId>,
    /// The state after.
    pub through: SnapshotId,
    /// The epoch holds `replace` snapshots alone: there are no rows to carry, only the checkpoint moves.
    pub rewrites_only: bool,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// These epochs, in this order; never empty.
    Epochs(Vec<Epoch>),
    /// Nothing, for this reason.
    Nothing(Nothing),
}

impl Range {
    /// The checkpoint and the snapshot that is gone to, where the one is no ancestor of the other: after a rollback.
    pub fn resync(&self, table: &TableMetadata) -> Option<(SnapshotId, SnapshotId)> {
        let Self::Epochs(epochs) = self else { return None };
        let first = epochs.first()?;
        let before = first.before?;
        (!history::is_ancestor(table, before, first.through)).then_some((before, first.through))
    }
}

/// Why there is nothing to do. The checkpoint does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// The table has no snapshot yet.
    EmptyTable,
    /// The target holds the end of the range.
    UpToDate {
        /// The checkpoint, which is the end.
        checkpoint: SnapshotId,
    },
    /// The end of the range lies before what the target holds.
    EndBeforeCheckpoint {
        /// The end.
        end: SnapshotId,
        /// What the target holds.
        checkpoint: SnapshotId,
    },
    /// No snapshot lies between the bounds.
    EmptyWindow,
}

/// What decides a range, beside the source's metadata.
#[derive(Debug, Clone, Copy)]
pub struct RangeRequest<'a> {
    /// Where the job starts and ends.
    pub bounds: Bounds,
    /// Whose history is followed.
    pub followed: &'a FollowedRef,
    /// What to do when the checkpoint is no longer in that history.
    pub on_rollback: OnRollback,
    /// Whether each snapshot is an epoch of its own.
    pub changes: Changes,
    /// The source snapshot that the target holds.
    pub checkpoint: Option<SnapshotId>,
    /// Whether the target is kept equal to the source; a changelog may leave out what lies between its checkpoint and an
    /// explicit start.
    pub mirror: bool,
}

/// What a run is to carry.
///
/// A checkpoint of another branch is as good as one of this, if it is in this one's history: the state is the same.
///
/// # Errors
/// [`RangeError`], whose class tells a wrong bound from a gap in the history.
pub fn epochs(table: &TableMetadata, request: &RangeRequest<'_>) -> Result<Range, RangeError> {
    let RangeRequest { bounds, checkpoint, mirror, .. } = *request;
    check_timestamps(bounds)?;
    check_known(table, bounds)?;
    let Some(history) = History::of(table, request.followed, Cut::of(request.changes, mirror))? else {
        return match checkpoint {
            Some(checkpoint) => Err(RangeError::Emptied { checkpoint }),
            None => Ok(Range::Nothing(Nothing::EmptyTable)),
        };
    };
    let Some(end) = history.end(bounds)? else {
        return Ok(Range::Nothing(Nothing::EmptyWindow));
    };
    if let Some(checkpoint) = checkpoint {
        let at = match history.position_of_checkpoint(checkpoint, end) {
            // Both states are there, so their difference can be had, whatever lies between them.
            Err(RangeError::RolledBack { .. } | RangeError::Replaced { .. })
                if request.on_rollback == OnRollback::Resync && table.snapshot_by_id(checkpoint.0).is_some() =>
            {
                return resync(&history, bounds.start, checkpoint, end);
            }
            at => at?,
        };
        match bounds.start {
            None | Some(StartBound::Strategy(_)) => return Ok(history.after_checkpoint(at, end)),
            Some(start) => {
                let first = history.first(start, bounds.end, end)?;
                if at >= end || first == Some(at + 1) {
                    return Ok(history.after_checkpoint(at, end));
                }
                // A changelog may leave snapshots out when its owner asks for it; no epoch may land in it twice.
                if mirror || first.is_some_and(|first| first <= at) {
                    return Err(RangeError::StartDiffersFromCheckpoint { start: describe_start(start), checkpoint });
                }
            }
        }
    }
    match bounds.start {
        Some(start @ StartBound::Strategy(StartingStrategy::Earliest)) if request.changes == Changes::PerSnapshot => {
            history.beginning_at(0, end, start)
        }
        None | Some(StartBound::Strategy(StartingStrategy::Initial | StartingStrategy::Earliest)) => {
            // A backfill needs its last state only, whatever became of the history before.
            let through = history.id(end);
            Ok(Range::Epochs(vec![Epoch { before: None, through, rewrites_only: false }]))
        }
        Some(start) => match history.first(start, bounds.end, end)? {
            Some(first) if first <= end => history.beginning_at(first, end, start),
            _ => Ok(Range::Nothing(Nothing::EmptyWindow)),
        },
    }
}

/// After a rollback: the difference of what the target holds and where the source is now, whatever lies between.
fn resync(
    history: &History<'_>,
    start: Option<StartBound>,
    checkpoint: SnapshotId,
    end: usize,
) -> Result<Range, RangeError> {
    match start {
        None | Some(StartBound::Strategy(_)) => {
            let through = history.id(end);
            Ok(Range::Epochs(vec![Epoch { before: Some(checkpoint), through, rewrites_only: false }]))
        }
        // The difference begins with the checkpoint and with nothing else.
        Some(start) => Err(RangeError::StartDiffersFromCheckpoint { start: describe_start(start), checkpoint }),
    }
}

fn check_timestamps(bounds: Bounds) -> Result<(), RangeError> {
    let start = match bounds.start {
        Some(StartBound::FromTimestamp(value)) => Some(("from_timestamp", value)),
        _ => None,
    };
    let end = match bounds.end {
        Some(EndBound::ToTimestamp(value)) => Some(("to_timestamp", value)),
        _ => None,
    };
    for (bound, value) in start.into_iter().chain(end) {
        if value > TIMESTAMP_MS_MAX {
            return Err(RangeError::TimestampUnit { bound, value });
        }
    }
    match (start, end) {
        (Some((_, from)), Some((_, to))) if from > to => Err(RangeError::StartAfterEnd {
            start: format!("from_timestamp {from}"),
            end: format!("to_timestamp {to}"),
        }),
        _ => Ok(()),
    }
}

fn named_snapshots(bounds: Bounds) -> impl Iterator<Item = (&'static str, SnapshotId)> {
    let start = match bounds.start {
        Some(StartBound::FromSnapshot(id)) => Some(("from_snapshot", id)),
        Some(StartBound::AfterSnapshot(id)) => Some(("after_snapshot", id)),
        Some(StartBound::FromTimestamp(_) | StartBound::Strategy(_)) | None => None,
    };
    let end = match bounds.end {
        Some(EndBound::ToSnapshot(id)) => Some(("to_snapshot", id)),
        Some(EndBound::ToTimestamp(_)) | None => None,
    };
    start.into_iter().chain(end)
}

fn check_known(table: &TableMetadata, bounds: Bounds) -> Result<(), RangeError> {
    for (bound, snapshot) in named_snapshots(bounds) {
        if table.snapshot_by_id(snapshot.0).is_none() {
            return Err(RangeError::UnknownSnapshot { bound, snapshot });
        }
    }
    Ok(())
}

fn describe_start(start: StartBound) -> String {
    match start {
        StartBound::FromSnapshot(id) => format!("from_snapshot {id}"),
        StartBound::AfterSnapshot(id) => format!("after_snapshot {id}"),
        StartBound::FromTimestamp(ms) => format!("from_timestamp {ms}"),
        StartBound::Strategy(strategy) => format!("by strategy {strategy:?}").to_lowercase(),
    }
}
