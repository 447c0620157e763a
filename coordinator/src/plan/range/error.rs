//! Why a range of snapshots cannot be had.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;

/// Bounds that do not fit the table's history, or a history that does not lead from the checkpoint to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The snapshot of a bound does not exist.
    #[error("{bound}: snapshot {snapshot} is not in the source: it was expired or never was; take one of its history")]
    UnknownSnapshot {
        /// The bound's key and value.
        bound: &'static str,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The snapshot of a bound exists, and is not part of main's history.
    #[error("{bound}: snapshot {snapshot} is not an ancestor of main's current snapshot {current}; take one that is")]
    NotAnAncestor {
        /// The bound's key.
        bound: &'static str,
        /// The snapshot.
        snapshot: SnapshotId,
        /// Main's current snapshot.
        current: SnapshotId,
    },
    /// The range begins after its end.
    #[error("the start of the range ({start}) is later than its end ({end}); exchange or correct them")]
    StartAfterEnd {
        /// The start as given.
        start: String,
        /// The end as given.
        end: String,
    },
    /// A time that is no sensible number of milliseconds.
    #[error("{bound}: {value} is not a time in milliseconds; divide by 1000 if these are microseconds")]
    TimestampUnit {
        /// The bound's key.
        bound: &'static str,
        /// The value.
        value: i64,
    },
    /// A start was given that is not what the target holds.
    #[error(
        "the target holds source snapshot {checkpoint}, and the job asks to start {start}: that would leave stale \
         rows, or bring rows twice; remove the start bound to go on from the checkpoint, or take a new target"
    )]
    StartDiffersFromCheckpoint {
        /// The start as given.
        start: String,
        /// What the target holds.
        checkpoint: SnapshotId,
    },
    /// A snapshot that the range needs was expired.
    #[error(
        "history gap: snapshot {missing} is needed to go from {from} to {through} and was expired from the source; \
         copy the table anew"
    )]
    Expired {
        /// The first snapshot that is missing, walking back from the end.
        missing: SnapshotId,
        /// Where the range begins.
        from: String,
        /// Where it ends.
        through: SnapshotId,
    },
    /// The source was rolled back behind the checkpoint.
    #[error(
        "history gap: the target holds snapshot {checkpoint}, which is no longer in the history of main (now at \
         {current}): the source was rolled back; copy the table anew"
    )]
    RolledBack {
        /// What the target holds.
        checkpoint: SnapshotId,
        /// Main's current snapshot.
        current: SnapshotId,
    },
    /// The source was replaced by another table: its history begins anew.
    #[error(
        "history gap: the target holds snapshot {checkpoint}, and the history of main begins anew with snapshot \
         {root}: the source was replaced, or rolled back and the snapshot expired; copy the table anew"
    )]
    Replaced {
        /// What the target holds.
        checkpoint: SnapshotId,
        /// The first snapshot of main's history.
        root: SnapshotId,
    },
    /// The source has no snapshot left, and the target holds one.
    #[error("history gap: the target holds snapshot {checkpoint}, and the source is empty now; copy the table anew")]
    Emptied {
        /// What the target holds.
        checkpoint: SnapshotId,
    },
}

impl Classified for RangeError {
    fn class(&self) -> Class {
        match self {
            Self::UnknownSnapshot { .. }
            | Self::NotAnAncestor { .. }
            | Self::StartAfterEnd { .. }
            | Self::TimestampUnit { .. }
            | Self::StartDiffersFromCheckpoint { .. } => Class::Config,
            Self::Expired { .. } | Self::RolledBack { .. } | Self::Replaced { .. } | Self::Emptied { .. } => {
                Class::HistoryGap
            }
        }
    }
}
