//! What a file difference asks for: in which order its two sides are read, and which rows differ.

use std::collections::HashMap;

use iceferry_common::model::{Resolution, ScanTask, Side};
use roaring::RoaringTreemap;

use super::ReadError;
use super::deletes::{KeyIds, SideDeletes};
use crate::Change;

/// A row is dead before.
pub(super) const DEAD_BEFORE: u8 = 1;
/// A row is dead after.
pub(super) const DEAD_AFTER: u8 = 2;

/// One change type of one file difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Index of the file difference.
    pub(super) difference: usize,
    pub(super) change: Change,
    /// Nothing of the difference comes after.
    pub(super) last: bool,
}

/// The steps of a task in their order. One file difference after the other; where carried-over rows are to be
/// cancelled, all DELETE rows before any INSERT row, since the DELETE side is what is held to compare with.
pub(super) fn steps(task: &ScanTask) -> Result<Vec<Step>, ReadError> {
    let mut steps = Vec::with_capacity(task.differences.len());
    for (index, difference) in task.differences.iter().enumerate() {
        let step = |change, last| Step { difference: index, change, last };
        match (&difference.before, &difference.after) {
            (Side::Absent, Side::Absent) => {
                let what = format!("{} is in neither state", difference.file.location);
                return Err(ReadError::Task { task: task.id.0, what });
            }
            (Side::Absent, Side::Present(_)) => steps.push(step(Change::Insert, true)),
            (Side::Present(_), Side::Absent) => steps.push(step(Change::Delete, true)),
            (Side::Present(_), Side::Present(_)) => {
                steps.push(step(Change::Delete, false));
                steps.push(step(Change::Insert, true));
            }
        }
    }
    if task.resolution != Resolution::Keep {
        // Stable: within a change type the order stays.
        steps.sort_by_key(|step| step.change == Change::Insert);
    }
    Ok(steps)
}

/// Equality delete files that count for a reading, by the fields they are keyed on: for each delete file of the task,
/// the marks that its keys give a row.
pub(super) type Marks = HashMap<KeyIds, Vec<u8>>;

/// The marks of the equality deletes of both sides, for a task with so many delete files.
pub(super) fn marks(before: Option<&SideDeletes>, after: Option<&SideDeletes>, delete_files: usize) -> Marks {
    let mut marks = Marks::new();
    let mut add = |side: Option<&SideDeletes>, mark: u8| {
        let by_ids = side.into_iter().flat_map(|side| &side.equality);
        for (ids, files) in by_ids {
            let of_ids = marks.entry(ids.clone()).or_insert_with(|| vec![0; delete_files]);
            files.iter().for_each(|file| of_ids[*file as usize] |= mark);
        }
    };
    add(before, DEAD_BEFORE);
    add(after, DEAD_AFTER);
    marks
}

/// The rows of a file that both states have which can differ.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Candidates {
    /// Only positions changed: the first went and the second came, unless an equality delete has them on both sides.
    ByPosition(RoaringTreemap, RoaringTreemap),
    /// Equality deletes changed: the keys of all rows but these have to be looked at.
    ByKey {
        /// Dead by position on both sides.
        dead: RoaringTreemap,
    },
}

/// Which rows of a file that both states have can differ.
pub(super) fn candidates(before: &SideDeletes, after: &SideDeletes) -> Candidates {
    if before.equality == after.equality {
        Candidates::ByPosition(&after.positions - &before.positions, &before.positions - &after.positions)
    } else {
        Candidates::ByKey { dead: &before.positions & &after.positions }
    }
}

/// Adds rows that went and came to `went` and `came`, from the marks that their keys gave them.
pub(super) fn compare(
    (before, after): (&SideDeletes, &SideDeletes),
    positions: impl Iterator<Item = u64>,
    marks: &[u8],
    (went, came): (&mut RoaringTreemap, &mut RoaringTreemap),
) {
    for (position, marks) in positions.zip(marks) {
        let dead_before = marks & DEAD_BEFORE != 0 || before.positions.contains(position);
        let dead_after = marks & DEAD_AFTER != 0 || after.positions.contains(position);
        match (dead_before, dead_after) {
            (false, true) => drop(went.insert(position)),
            (true, false) => drop(came.insert(position)),
            (true, true) | (false, false) => {}
        }
    }
}
