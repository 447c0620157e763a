//! Carry-over groups: removed and added files that a rewrite may have made one of the other. Pure.

use std::collections::HashMap;

use super::bounds;
use super::entry::DataEntry;
use super::planner::Waiting;

/// Pairs of files that are compared at most for one set of files; beyond it they go straight through, which is right as
/// well.
const COMPARISONS_MAX: usize = 4_000_000;

/// Which removed and added files belong together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Grouping {
    /// Groups of at least one file of each side, as indexes.
    pub(super) groups: Vec<Group>,
    /// Removed files without a counterpart.
    pub(super) removed: Vec<usize>,
    /// Added files without a counterpart.
    pub(super) added: Vec<usize>,
}

/// Files that may have rows in common.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) removed: Vec<usize>,
    pub(super) added: Vec<usize>,
}

/// Groups files that may have equal rows: those whose partitions are equal or of different specs, and whose bounds of
/// `columns` overlap.
pub(super) fn group(removed: &[&DataEntry], added: &[&DataEntry], columns: &[i32]) -> Grouping {
    let mut grouping = Grouping::default();
    for (removed_of_set, added_of_set) in sets(removed, added) {
        if removed_of_set.len().saturating_mul(added_of_set.len()) > COMPARISONS_MAX {
            grouping.removed.extend(removed_of_set);
            grouping.added.extend(added_of_set);
            continue;
        }
        let mut components = Components::new(removed_of_set.len() + added_of_set.len());
        for (at_removed, removed_index) in removed_of_set.iter().enumerate() {
            for (at_added, added_index) in added_of_set.iter().enumerate() {
                if may_share(removed[*removed_index], added[*added_index], columns) {
                    components.join(at_removed, removed_of_set.len() + at_added);
                }
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut place_of_root = HashMap::new();
        for at in 0..removed_of_set.len() + added_of_set.len() {
            let place = *place_of_root.entry(components.root(at)).or_insert_with(|| {
                groups.push(Group::default());
                groups.len() - 1
            });
            match at.checked_sub(removed_of_set.len()) {
                None => groups[place].removed.push(removed_of_set[at]),
                Some(at_added) => groups[place].added.push(added_of_set[at_added]),
            }
        }
        for group in groups {
            if group.added.is_empty() {
                grouping.removed.extend(group.removed);
            } else if group.removed.is_empty() {
                grouping.added.extend(group.added);
            } else {
                grouping.groups.push(group);
            }
        }
    }
    grouping
}

/// A difference as grouping sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) entry: &'a DataEntry,
    /// Rows of it may go.
    pub(super) goes: bool,
    /// Rows of it may come.
    pub(super) comes: bool,
}

impl<'a> Change<'a> {
    pub(super) fn of(waiting: &'a Waiting) -> Self {
        Self { entry: &waiting.entry, goes: waiting.goes(), comes: waiting.comes() }
    }

    /// Whether one may hold a row that went and the other the same one that came.
    fn may_meet(&self, other: &Self, columns: &[i32], by_partition: bool) -> bool {
        let sides_meet = (self.goes && other.comes) || (self.comes && other.goes);
        let (one, other) = (self.entry, other.entry);
        let apart =
            by_partition && one.partition.spec_id == other.partition.spec_id && one.partition != other.partition;
        sides_meet && !apart && bounds::may_share(&one.bounds, &other.bounds, columns)
    }
}

/// Differences in groups, as indexes in ascending order: those of different groups have no row in common, told by the
/// bounds of `columns` and, where a row cannot move between partitions, by these. When there are too many pairs to
/// compare, all are one group.
pub(super) fn changes(items: &[Change<'_>], columns: &[i32], by_partition: bool) -> Vec<Vec<usize>> {
    let going: Vec<usize> = (0..items.len()).filter(|item| items[*item].goes).collect();
    let coming: Vec<usize> = (0..items.len()).filter(|item| items[*item].comes).collect();
    let mut components = Components::new(items.len());
    if going.len().saturating_mul(coming.len()) > COMPARISONS_MAX {
        (1..items.len()).for_each(|item| components.join(0, item));
    } else {
        for one in &going {
            for other in &coming {
                if one != other && items[*one].may_meet(&items[*other], columns, by_partition) {
                    components.join(*one, *other);
                }
            }
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut place_of_root = HashMap::new();
    for item in 0..items.len() {
        let place = *place_of_root.entry(components.root(item)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(item);
    }
    groups
}

/// Sets of files that are surely apart from each other: the partitions, when all files have one spec.
fn sets(removed: &[&DataEntry], added: &[&DataEntry]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut specs = removed.iter().chain(added).map(|entry| entry.partition.spec_id);
    let first = specs.next();
    if !specs.all(|spec| Some(spec) == first) {
        return vec![((0..removed.len()).collect(), (0..added.len()).collect())];
    }
    let mut sets: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    let mut places = HashMap::new();
    let mut place_of = |entry: &DataEntry, sets: &mut Vec<(Vec<usize>, Vec<usize>)>| {
        *places.entry(entry.partition.clone()).or_insert_with(|| {
            sets.push(Default::default());
            sets.len() - 1
        })
    };
    for (index, entry) in removed.iter().enumerate() {
        let place = place_of(entry, &mut sets);
        sets[place].0.push(index);
    }
    for (index, entry) in added.iter().enumerate() {
        let place = place_of(entry, &mut sets);
        sets[place].1.push(index);
    }
    sets
}

fn may_share(removed: &DataEntry, added: &DataEntry, columns: &[i32]) -> bool {
    let partitions_meet = removed.partition.spec_id != added.partition.spec_id || removed.partition == added.partition;
    partitions_meet && bounds::may_share(&removed.bounds, &added.bounds, columns)
}

/// Connected components by union and find.
struct Components(Vec<usize>);

impl Components {
    fn new(size: usize) -> Self {
        Self((0..size).collect())
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[b] = a;
    }
}
