//! The history of a branch or tag: where bounds and checkpoint lie in it, and how a range of it is cut.

use iceberg::spec::{Operation, SnapshotRef, TableMetadata};
use iceferry_common::config::{Bounds, Changes, EndBound, FollowedRef, StartBound, StartingStrategy};
use iceferry_common::model::SnapshotId;

use super::{Epoch, Nothing, Range, RangeError, describe_start, followed};

/// The history of what is followed, as far as it is there, oldest first. Positions are indexes into it.
pub(super) struct History<'a> {
    table: &'a TableMetadata,
    followed: &'a FollowedRef,
    snapshots: Vec<SnapshotRef>,
    /// The parent of the oldest snapshot, when it was expired.
    missing: Option<SnapshotId>,
    cut: Cut,
}

/// Where a range is cut into epochs, beside its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Before and after rewrites, so that a rewrite of the source does not rewrite a mirror.
    AtRewrites,
    /// After every snapshot.
    EverySnapshot,
    /// Nowhere: changes that take each other back must meet, whatever was rewritten between them.
    Nowhere,
}

impl Cut {
    pub(super) fn of(changes: Changes, mirror: bool) -> Self {
        match (changes, mirror) {
            (Changes::PerSnapshot, _) => Self::EverySnapshot,
            (Changes::Net, true) => Self::AtRewrites,
            (Changes::Net, false) => Self::Nowhere,
        }
    }
}

/// Whether one snapshot is the other or comes before it, as far as the metadata has the history of `of`.
pub(super) fn is_ancestor(table: &TableMetadata, ancestor: SnapshotId, of: SnapshotId) -> bool {
    let mut next = Some(of.0);
    for _ in 0..table.snapshots().len() {
        if next == Some(ancestor.0) {
            return true;
        }
        next = next.and_then(|id| table.snapshot_by_id(id)?.parent_snapshot_id());
    }
    next == Some(ancestor.0)
}

impl<'a> History<'a> {
    /// `None` when the table has no snapshot on main, and main is followed.
    pub(super) fn of(
        table: &'a TableMetadata,
        followed: &'a FollowedRef,
        cut: Cut,
    ) -> Result<Option<Self>, RangeError> {
        let Some(head) = followed::head(table, followed)? else { return Ok(None) };
        let mut snapshots = vec![head.clone()];
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
        Ok(Some(Self { table, followed, snapshots, missing, cut }))
    }

    pub(super) fn id(&self, position: usize) -> SnapshotId {
        SnapshotId(self.snapshots[position].snapshot_id())
    }

    pub(super) fn current(&self) -> SnapshotId {
        self.id(self.snapshots.len() - 1)
    }

    fn position(&self, id: SnapshotId) -> Option<usize> {
        self.snapshots.iter().position(|snapshot| snapshot.snapshot_id() == id.0)
    }

    /// Whether a snapshot that is not in the history comes from it: then it lies on another branch, or was rolled back,
    /// and no gap in the history can hide it. That holds for a child of the gap's first snapshot too: a snapshot cannot
    /// be its parent's ancestor.
    fn branched_off(&self, id: SnapshotId) -> bool {
        let mut ancestor = self.table.snapshot_by_id(id.0);
        for _ in 0..self.table.snapshots().len() {
            let Some(snapshot) = ancestor else { return false };
            if self.position(SnapshotId(snapshot.snapshot_id())).is_some() {
                return true;
            }
            let parent = snapshot.parent_snapshot_id();
            if parent.is_some() && parent == self.missing.map(|missing| missing.0) {
                return true;
            }
            ancestor = parent.and_then(|parent| self.table.snapshot_by_id(parent));
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
            _ => {
                let followed = self.followed.clone();
                Err(RangeError::NotAnAncestor { bound, snapshot, followed, current: self.current() })
            }
        }
    }

    /// The position of the range's last snapshot; `None` when it ends before the table began.
    pub(super) fn end(&self, bounds: Bounds) -> Result<Option<usize>, RangeError> {
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
    pub(super) fn first(
        &self,
        start: StartBound,
        end_bound: Option<EndBound>,
        end: usize,
    ) -> Result<Option<usize>, RangeError> {
        let too_late = || RangeError::StartAfterEnd {
            start: describe_start(start),
            end: match end_bound {
                Some(EndBound::ToSnapshot(id)) => format!("to_snapshot {id}"),
                Some(EndBound::ToTimestamp(ms)) => format!("to_timestamp {ms}"),
                None => format!("newest snapshot {}", self.current()),
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
            StartBound::Strategy(StartingStrategy::Latest) => {
                let newest = self.snapshots.len() - 1;
                if newest > end { Err(too_late()) } else { Ok(Some(newest)) }
            }
            StartBound::Strategy(StartingStrategy::Initial | StartingStrategy::Earliest) => Ok(Some(0)),
        }
    }

    /// Epochs that begin with the changes of the snapshot at `first`.
    pub(super) fn beginning_at(&self, first: usize, end: usize, start: StartBound) -> Result<Range, RangeError> {
        if first > 0 {
            return Ok(Range::Epochs(self.cut(first - 1, end)));
        }
        match self.missing {
            Some(missing) => {
                let start = describe_start(start);
                Err(RangeError::BeginningExpired { missing, start, oldest: self.id(0) })
            }
            // The first snapshot of all changes the empty state: the same as a backfill.
            None => {
                let last = if self.cut == Cut::EverySnapshot { 0 } else { end };
                let mut epochs = vec![Epoch { before: None, through: self.id(last), rewrites_only: false }];
                epochs.extend(self.cut(last, end));
                Ok(Range::Epochs(epochs))
            }
        }
    }

    pub(super) fn after_checkpoint(&self, checkpoint: usize, end: usize) -> Range {
        match checkpoint.cmp(&end) {
            std::cmp::Ordering::Less => Range::Epochs(self.cut(checkpoint, end)),
            std::cmp::Ordering::Equal => Range::Nothing(Nothing::UpToDate { checkpoint: self.id(checkpoint) }),
            std::cmp::Ordering::Greater => {
                Range::Nothing(Nothing::EndBeforeCheckpoint { end: self.id(end), checkpoint: self.id(checkpoint) })
            }
        }
    }

    /// Cuts (before, end] into epochs. Rewrites are epochs of their own save where nothing is cut.
    fn cut(&self, before: usize, end: usize) -> Vec<Epoch> {
        let is_rewrite = |position: usize| self.snapshots[position].summary().operation == Operation::Replace;
        let mut epochs = Vec::new();
        let mut state = before;
        for position in before + 1..=end {
            let ends = position == end
                || match self.cut {
                    Cut::Nowhere => false,
                    Cut::AtRewrites => is_rewrite(position + 1) != is_rewrite(position),
                    Cut::EverySnapshot => !is_rewrite(position) || !is_rewrite(position + 1),
                };
            if ends {
                let rewrites_only = (state + 1..=position).all(is_rewrite);
                epochs.push(Epoch { before: Some(self.id(state)), through: self.id(position), rewrites_only });
                state = position;
            }
        }
        epochs
    }

    /// Where the checkpoint is in the history; if it is not there, why.
    pub(super) fn position_of_checkpoint(&self, checkpoint: SnapshotId, end: usize) -> Result<usize, RangeError> {
        if let Some(position) = self.position(checkpoint) {
            return Ok(position);
        }
        if self.branched_off(checkpoint) {
            let followed = self.followed.clone();
            return Err(RangeError::RolledBack { checkpoint, followed, current: self.current() });
        }
        match self.missing {
            Some(missing) => {
                let from = format!("checkpoint {checkpoint}");
                Err(RangeError::Expired { missing, from, through: self.id(end) })
            }
            None => {
                let advice = match self.table.snapshot_by_id(checkpoint.0) {
                    Some(_) => "set source.on_rollback: resync to apply the difference, or copy the table anew",
                    None => "copy the table anew",
                };
                Err(RangeError::Replaced { checkpoint, followed: self.followed.clone(), root: self.id(0), advice })
            }
        }
    }
}
