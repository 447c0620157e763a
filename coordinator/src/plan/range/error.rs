//! Why a range of snapshots cannot be had.

use iceferry_common::config::{FollowedRef, StartBound};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;

use super::describe_start;

/// Bounds that do not fit the table's history, or a history that does not lead from the checkpoint to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The table has no such branch or tag.
    #[error("the source has no {followed}; it has {known}")]
    UnknownRef {
        /// What the job follows.
        followed: FollowedRef,
        /// The branches and tags that there are, in words.
        known: String,
    },
    /// The table's references could not be looked through.
    #[error("could not look for {followed} among the references of the source: {problem}; repair its metadata")]
    RefsUnreadable {
        /// What the job follows.
        followed: FollowedRef,
        /// What is wrong.
        problem: String,
    },
    /// The snapshot of a bound does not exist.
    #[error("{bound}: snapshot {snapshot} is not in the source: it was expired or never was; take one of its history")]
    UnknownSnapshot {
        /// The bound's key and value.
        bound: &'static str,
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The snapshot of a bound exists, and is not part of the history that is followed.
    #[error("{bound}: snapshot {snapshot} is not in the history of {followed} (now at {current}); take one that is")]
    NotAnAncestor {
        /// The bound's key.
        bound: &'static str,
        /// The snapshot.
        snapshot: SnapshotId,
        /// What the job follows.
        followed: FollowedRef,
        /// Its newest snapshot.
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
    /// The changes of the oldest snapshot that is left are asked for, and its parent was expired.
    #[error(
        "history gap: the changes of snapshot {oldest} are asked for (start {start}), and its parent {missing} was \
         expired from the source; begin with the whole state (starting_strategy: initial), or with after_snapshot: {oldest}"
    )]
    BeginningExpired {
        /// The parent.
        missing: SnapshotId,
        /// The start as given.
        start: String,
        /// The oldest snapshot that is left.
        oldest: SnapshotId,
    },
    /// The changes of the oldest snapshot that is left are asked for, and it has files of snapshots that are gone.
    #[error(
        "history gap: the changes of snapshot {oldest} are asked for (start {start}), and it holds files of earlier \
         snapshots, which were expired and cut off from the history; begin with the whole state (starting_strategy: \
         initial), or with after_snapshot: {oldest}"
    )]
    BeginningCutOff {
        /// The start as given.
        start: String,
        /// The oldest snapshot that is left.
        oldest: SnapshotId,
    },
    /// The source was rolled back behind the checkpoint, or its reference was set elsewhere.
    #[error(
        "history gap: the target holds snapshot {checkpoint}, which is not in the history of {followed} (now at \
         {current}): the source was rolled back, or another branch is followed; set source.on_rollback: resync to \
         apply the difference, or copy the table anew"
    )]
    RolledBack {
        /// What the target holds.
        checkpoint: SnapshotId,
        /// What the job follows.
        followed: FollowedRef,
        /// Its newest snapshot.
        current: SnapshotId,
    },
    /// The source was replaced by another table: its history begins anew.
    #[error(
        "history gap: the target holds snapshot {checkpoint}, and the history of {followed} begins anew with \
         snapshot {root}: the source was replaced, or snapshots were expired and cut off from it; {advice}"
    )]
    Replaced {
        /// What the target holds.
        checkpoint: SnapshotId,
        /// What the job follows.
        followed: FollowedRef,
        /// The first snapshot of its history.
        root: SnapshotId,
        /// What to do.
        advice: &'static str,
    },
    /// The source has no snapshot left, and the target holds one.
    #[error("history gap: the target holds snapshot {checkpoint}, and the source is empty now; copy the table anew")]
    Emptied {
        /// What the target holds.
        checkpoint: SnapshotId,
    },
}

impl RangeError {
    /// The oldest snapshot that is left has a past that is gone.
    pub(crate) fn cut_off(start: StartBound, oldest: SnapshotId) -> Self {
        Self::BeginningCutOff { start: describe_start(start), oldest }
    }
}

impl Classified for RangeError {
    fn class(&self) -> Class {
        match self {
            Self::UnknownRef { .. }
            | Self::UnknownSnapshot { .. }
            | Self::NotAnAncestor { .. }
            | Self::StartAfterEnd { .. }
            | Self::TimestampUnit { .. }
            | Self::StartDiffersFromCheckpoint { .. } => Class::Config,
            Self::RefsUnreadable { .. } => Class::Corrupt,
            Self::Expired { .. }
            | Self::BeginningExpired { .. }
            | Self::BeginningCutOff { .. }
            | Self::RolledBack { .. }
            | Self::Replaced { .. }
            | Self::Emptied { .. } => Class::HistoryGap,
        }
    }
}
