//! Which snapshots a run carries: bounds and checkpoint in, epochs out. Pure: it looks at the table's metadata alone.
//!
//! History is walked by parents from main's current snapshot; a clock never decides an order. A range is (after,
//! through]. It is cut at `replace` snapshots, which by the specification change no rows: an epoch ends before one, the
//! replace itself only moves the checkpoint, and the next epoch begins from its state.

use iceberg::spec::{Operation, SnapshotRef, TableMetadata};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::SnapshotId;

/// The latest millisecond that is taken for one: in the year 5138. What is later was surely given in microseconds.
const TIMESTAMP_MS_MAX: i64 = 100_000_000_000_000;

/// The bounds of a job, as its file gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Where to begin; when absent, from the checkpoint, and without one from the beginning.
    pub start: Option<StartBound>,
    /// Where to end; when absent, at main's current snapshot.
    pub end: Option<EndBound>,
}

/// Where a range begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartBound {
    /// With the changes of this snapshot.
    FromSnapshot(SnapshotId),
    /// With the changes after this snapshot.
    AfterSnapshot(SnapshotId),
    /// With the changes of the first snapshot at or after this time, in milliseconds.
    FromTimestamp(i64),
    /// By a strategy, which counts only while there is no checkpoint.
    Strategy(StartingStrategy),
}

/// Where to begin when no snapshot or time is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartingStrategy {
    /// The whole state, then changes.
    Initial,
    /// The changes since the first snapshot; as a net difference the same as the whole state.
    Earliest,
    /// Only what comes after the current snapshot.
    Latest,
}

/// Where a range ends; inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndBound {
    /// With this snapshot.
    ToSnapshot(SnapshotId),
    /// With the last snapshot at or before this time, in milliseconds.
    ToTimestamp(i64),
}

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
    /// The job begins with what comes after this snapshot: record it as the start.
    FromLatest {
        /// Main's current snapshot; `None` when the table is empty.
        start: Option<SnapshotId>,
    },
}

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
        "the target holds source snapshot {checkpoint}, and the job asks to start {start}: that would leave stale rows; \
         remove the start bound to go on from the checkpoint, or take a new target"
    )]
    StartDiffersFromCheckpoint {
        /// The start as given.
        start: String,
        /// What the target holds.
        checkpoint: SnapshotId,
    },
    /// A snapshot that the range needs was expired.
    #[error(
        "history gap: snapshot {missing} is needed to go from {from} to {through} and was expired from the source; copy \
         the table anew"
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
        "history gap: the target holds snapshot {checkpoint}, and the history of main begins anew with snapshot {root}: \
         the source was replaced, or rolled back and the snapshot expired; copy the table anew"
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

/// What a run is to carry. `checkpoint` is the source snapshot that the target holds; `mirror` tells a target that is
/// kept equal to the source from a changelog, which may be started again wherever its owner likes.
///
/// # Errors
/// [`RangeError`], whose class tells a wrong bound from a gap in the history.
pub fn epochs(
    table: &TableMetadata,
    bounds: Bounds,
    checkpoint: Option<SnapshotId>,
    mirror: bool,
) -> Result<Range, RangeError> {
    check_timestamps(bounds)?;
    check_known(table, bounds)?;
    let Some(history) = History::of(table) else {
        return match checkpoint {
            Some(checkpoint) => Err(RangeError::Emptied { checkpoint }),
            None if bounds.start == Some(StartBound::Strategy(StartingStrategy::Latest)) => {
                Ok(Range::Nothing(Nothing::FromLatest { start: None }))
            }
            None => Ok(Range::Nothing(Nothing::EmptyTable)),
        };
    };
    let Some(end) = history.end(bounds)? else {
        return Ok(Range::Nothing(Nothing::EmptyWindow));
    };
    if let Some(checkpoint) = checkpoint {
        let at = history.position_of_checkpoint(checkpoint, end)?;
        match bounds.start {
            None | Some(StartBound::Strategy(_)) => return Ok(history.after_checkpoint(at, end)),
            Some(start) if mirror => {
                let first = history.first(start, bounds.end, end)?;
                if at >= end {
                    return Ok(history.after_checkpoint(at, end));
                }
                if first == Some(at + 1) {
                    return Ok(history.after_checkpoint(at, end));
                }
                return Err(RangeError::StartDiffersFromCheckpoint { start: describe_start(start), checkpoint });
            }
            // A changelog takes an explicit start as it is.
            Some(_) => {}
        }
    }
    match bounds.start {
        None | Some(StartBound::Strategy(StartingStrategy::Initial | StartingStrategy::Earliest)) => {
            // A backfill needs its last state only, whatever became of the history before.
            let through = history.id(end);
            Ok(Range::Epochs(vec![Epoch { before: None, through, rewrites_only: false }]))
        }
        Some(StartBound::Strategy(StartingStrategy::Latest)) => {
            Ok(Range::Nothing(Nothing::FromLatest { start: Some(history.id(history.snapshots.len() - 1)) }))
        }
        Some(start) => match history.first(start, bounds.end, end)? {
            Some(first) if first <= end => history.from_first(first, end, start),
            _ => Ok(Range::Nothing(Nothing::EmptyWindow)),
        },
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

/// Main's history as far as it is there, oldest first. Positions are indexes into it.
struct History<'a> {
    table: &'a TableMetadata,
    snapshots: Vec<SnapshotRef>,
    /// The parent of the oldest snapshot, when it was expired.
    missing: Option<SnapshotId>,
}

impl<'a> History<'a> {
    fn of(table: &'a TableMetadata) -> Option<Self> {
        let mut snapshots = vec![table.current_snapshot()?.clone()];
        let mut missing = None;
        // A parent loop would be damaged metadata; the number of snapshots bounds the walk.
        while snapshots.len() <= table.snapshots().len() {
            let Some(parent) = snapshots.last().and_then(|snapshot| snapshot.parent_snapshot_id()) else { break };
            match table.snapshot_by_id(parent) {
                Some(snapshot) => snapshots.push(snapshot.clone()),
                None => {
                    missing = Some(SnapshotId(parent));
                    break;
                }
            }
        }
        snapshots.reverse();
        Some(Self { table, snapshots, missing })
    }

    fn id(&self, position: usize) -> SnapshotId {
        SnapshotId(self.snapshots[position].snapshot_id())
    }

    fn current(&self) -> SnapshotId {
        self.id(self.snapshots.len() - 1)
    }

    fn position(&self, id: SnapshotId) -> Option<usize> {
        self.snapshots.iter().position(|snapshot| snapshot.snapshot_id() == id.0)
    }

    /// Whether a snapshot that is not in main's history comes from it: then it lies on another branch, or was rolled
    /// back, and no gap in main's history can hide it.
    fn branched_off(&self, id: SnapshotId) -> bool {
        let mut ancestor = self.table.snapshot_by_id(id.0);
        for _ in 0..self.table.snapshots().len() {
            let Some(snapshot) = ancestor else { return false };
            if self.position(SnapshotId(snapshot.snapshot_id())).is_some() {
                return true;
            }
            ancestor = snapshot.parent_snapshot_id().and_then(|parent| self.table.snapshot_by_id(parent));
        }
        false
    }

    /// The position of a bound's snapshot, which is known to exist.
    fn bound_position(&self, bound: &'static str, snapshot: SnapshotId) -> Result<usize, RangeError> {
        if let Some(position) = self.position(snapshot) {
            return Ok(position);
        }
        match self.missing {
            // Behind the gap there is no telling whether it was an ancestor; the gap is what stops us.
            Some(missing) if !self.branched_off(snapshot) => {
                Err(RangeError::Expired { missing, from: format!("{bound} {snapshot}"), through: self.current() })
            }
            _ => Err(RangeError::NotAnAncestor { bound, snapshot, current: self.current() }),
        }
    }

    /// The position of the range's last snapshot; `None` when it ends before the table began.
    fn end(&self, bounds: Bounds) -> Result<Option<usize>, RangeError> {
        match bounds.end {
            None => Ok(Some(self.snapshots.len() - 1)),
            Some(EndBound::ToSnapshot(id)) => self.bound_position("to_snapshot", id).map(Some),
            Some(EndBound::ToTimestamp(ms)) => {
                match (self.snapshots.iter().rposition(|snapshot| snapshot.timestamp_ms() <= ms), self.missing) {
                    (Some(position), _) => Ok(Some(position)),
                    (None, None) => Ok(None),
                    (None, Some(missing)) => {
                        Err(RangeError::Expired { missing, from: "the beginning".into(), through: self.id(0) })
                    }
                }
            }
        }
    }

    /// The position of the first snapshot whose changes an explicit start asks for; it may lie one behind the last.
    /// `None` when no snapshot is late enough.
    fn first(&self, start: StartBound, end_bound: Option<EndBound>, end: usize) -> Result<Option<usize>, RangeError> {
        let too_late = || RangeError::StartAfterEnd {
            start: describe_start(start),
            end: match end_bound {
                Some(EndBound::ToSnapshot(id)) => format!("to_snapshot {id}"),
                Some(EndBound::ToTimestamp(ms)) => format!("to_timestamp {ms}"),
                None => format!("current snapshot {}", self.current()),
            },
        };
        match start {
            StartBound::FromSnapshot(id) => {
                let position = self.bound_position("from_snapshot", id)?;
                if position > end { Err(too_late()) } else { Ok(Some(position)) }
            }
            StartBound::AfterSnapshot(id) => {
                let position = self.bound_position("after_snapshot", id)?;
                if position > end { Err(too_late()) } else { Ok(Some(position + 1)) }
            }
            StartBound::FromTimestamp(ms) => {
                if let Some(EndBound::ToSnapshot(_)) = end_bound
                    && ms > self.snapshots[end].timestamp_ms()
                {
                    return Err(too_late());
                }
                Ok(self.snapshots.iter().position(|snapshot| snapshot.timestamp_ms() >= ms))
            }
            StartBound::Strategy(_) => Ok(Some(0)),
        }
    }

    /// Epochs that begin with the changes of the snapshot at `first`.
    fn from_first(&self, first: usize, end: usize, start: StartBound) -> Result<Range, RangeError> {
        if first > 0 {
            return Ok(Range::Epochs(self.cut(first - 1, end)));
        }
        match self.missing {
            Some(missing) => Err(RangeError::Expired { missing, from: describe_start(start), through: self.id(end) }),
            // The first snapshot of all changes the empty state: the same as a backfill.
            None => Ok(Range::Epochs(vec![Epoch { before: None, through: self.id(end), rewrites_only: false }])),
        }
    }

    fn after_checkpoint(&self, checkpoint: usize, end: usize) -> Range {
        match checkpoint.cmp(&end) {
            std::cmp::Ordering::Less => Range::Epochs(self.cut(checkpoint, end)),
            std::cmp::Ordering::Equal => Range::Nothing(Nothing::UpToDate { checkpoint: self.id(checkpoint) }),
            std::cmp::Ordering::Greater => {
                Range::Nothing(Nothing::EndBeforeCheckpoint { end: self.id(end), checkpoint: self.id(checkpoint) })
            }
        }
    }

    /// Cuts (before, end] at its replaces.
    fn cut(&self, before: usize, end: usize) -> Vec<Epoch> {
        let is_rewrite = |position: usize| self.snapshots[position].summary().operation == Operation::Replace;
        let mut epochs = Vec::new();
        let mut state = before;
        for position in before + 1..=end {
            let last_of_its_kind = position == end || is_rewrite(position + 1) != is_rewrite(position);
            if last_of_its_kind {
                epochs.push(Epoch {
                    before: Some(self.id(state)),
                    through: self.id(position),
                    rewrites_only: is_rewrite(position),
                });
                state = position;
            }
        }
        epochs
    }

    /// Where the checkpoint is in main's history; if it is not there, why.
    fn position_of_checkpoint(&self, checkpoint: SnapshotId, end: usize) -> Result<usize, RangeError> {
        if let Some(position) = self.position(checkpoint) {
            return Ok(position);
        }
        if self.branched_off(checkpoint) {
            return Err(RangeError::RolledBack { checkpoint, current: self.current() });
        }
        match self.missing {
            Some(missing) => {
                let from = format!("checkpoint {checkpoint}");
                Err(RangeError::Expired { missing, from, through: self.id(end) })
            }
            None => Err(RangeError::Replaced { checkpoint, root: self.id(0) }),
        }
    }
}
