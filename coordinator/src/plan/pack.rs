//! Packing: file differences into tasks of about one size, large files cut at row groups. Pure.

use std::collections::HashMap;

use iceferry_common::model::{FileDifference, Resolution, ScanTask, Side, Split, TaskId, Work};

use super::reach::Deletes;

/// Tasks that are open at once: a difference goes into the first one with room.
const OPEN_TASKS: usize = 8;

/// The parts of a file that are read on their own; empty when it is read as a whole.
///
/// Cuts are at the row groups that the manifest tells of, or anywhere when it tells of none: a row group belongs to the
/// split that holds its midpoint, so each is read once wherever the cuts are.
pub(super) fn splits(size_bytes: u64, split_offsets: &[i64], split_bytes: u64) -> Vec<Split> {
    if size_bytes <= split_bytes || split_bytes == 0 {
        return Vec::new();
    }
    let cuts = match row_group_starts(size_bytes, split_offsets) {
        Some(starts) => row_group_cuts(&starts, size_bytes, split_bytes),
        None => {
            let parts = size_bytes.div_ceil(split_bytes);
            let part_bytes = size_bytes.div_ceil(parts);
            (1..parts).map(|part| part * part_bytes).collect()
        }
    };
    if cuts.is_empty() {
        return Vec::new();
    }
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(size_bytes));
    starts.zip(ends).map(|(start, end)| Split { start, end }).collect()
}

/// The manifest's offsets, if they can be row groups of this file.
fn row_group_starts(size_bytes: u64, split_offsets: &[i64]) -> Option<Vec<u64>> {
    let starts: Vec<u64> = split_offsets.iter().map(|offset| u64::try_from(*offset)).collect::<Result<_, _>>().ok()?;
    let are_sorted = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let are_inside = starts.last().is_some_and(|last| *last < size_bytes);
    (are_sorted && are_inside).then_some(starts)
}

fn row_group_cuts(starts: &[u64], size_bytes: u64, split_bytes: u64) -> Vec<u64> {
    let mut cuts = Vec::new();
    let mut split_start = starts[0];
    for (at, start) in starts.iter().enumerate().skip(1) {
        let row_group_end = starts.get(at + 1).copied().unwrap_or(size_bytes);
        if row_group_end - split_start > split_bytes {
            cuts.push(*start);
            split_start = *start;
        }
    }
    cuts
}

/// What is packed into tasks.
pub(super) trait Weighed {
    /// Bytes that it makes a task handle.
    fn data_bytes(&self) -> u64;
}

impl Weighed for FileDifference {
    fn data_bytes(&self) -> u64 {
        FileDifference::data_bytes(self)
    }
}

/// Fills tasks. What goes in as one unit stays together.
#[derive(Debug)]
pub(super) struct Packer<T = FileDifference> {
    task_bytes: u64,
    open_file_cost: u64,
    differences_max: usize,
    open: Vec<Bin<T>>,
}

#[derive(Debug)]
struct Bin<T> {
    weight: u64,
    differences: Vec<T>,
}

impl<T> Bin<T> {
    fn new() -> Self {
        Self { weight: 0, differences: Vec::new() }
    }
}

impl<T: Weighed> Packer<T> {
    pub(super) fn new(task_bytes: u64, open_file_cost: u64, differences_max: usize) -> Self {
        Self { task_bytes, open_file_cost, differences_max: differences_max.max(1), open: Vec::new() }
    }

    /// Adds a unit, and gives the differences of a task that is full by it.
    pub(super) fn add(&mut self, unit: Vec<T>) -> Option<Vec<T>> {
        let weight = unit.iter().map(|difference| difference.data_bytes().max(self.open_file_cost)).sum::<u64>();
        let has_room = |bin: &Bin<T>| {
            bin.weight.saturating_add(weight) <= self.task_bytes
                && bin.differences.len() + unit.len() <= self.differences_max
        };
        let at = self.open.iter().position(has_room).unwrap_or_else(|| {
            self.open.push(Bin::new());
            self.open.len() - 1
        });
        let bin = &mut self.open[at];
        bin.weight = bin.weight.saturating_add(weight);
        bin.differences.extend(unit);
        let is_full = bin.weight.saturating_add(self.open_file_cost) > self.task_bytes
            || bin.differences.len() >= self.differences_max;
        if is_full {
            return Some(self.open.swap_remove(at).differences);
        }
        if self.open.len() > OPEN_TASKS {
            let heaviest = (0..self.open.len()).max_by_key(|at| self.open[*at].weight)?;
            return Some(self.open.swap_remove(heaviest).differences);
        }
        None
    }

    /// What is left.
    pub(super) fn finish(self) -> impl Iterator<Item = Vec<T>> {
        self.open.into_iter().map(|bin| bin.differences)
    }

    /// What is left, where each difference was a unit of its own: in tasks of about equal size, as many as give each of
    /// `slots` the same number. A small table so keeps all slots busy, and a large one ends on all of them at once.
    pub(super) fn finish_balanced(self, slots: usize) -> impl Iterator<Item = Vec<T>> {
        let tasks = self.open.len().next_multiple_of(slots.max(1));
        let weigh = |difference: &T| difference.data_bytes().max(self.open_file_cost);
        let mut rest: Vec<T> = self.open.into_iter().flat_map(|bin| bin.differences).collect();
        // The largest first, each to the lightest task: no task is heavier than another by more than one difference.
        rest.sort_by_key(|difference| std::cmp::Reverse(weigh(difference)));
        let mut bins: Vec<Bin<T>> = (0..tasks).map(|_| Bin::new()).collect();
        for difference in rest {
            let weight = weigh(&difference);
            let has_room = |bin: &Bin<T>| {
                bin.differences.is_empty()
                    || (bin.weight.saturating_add(weight) <= self.task_bytes
                        && bin.differences.len() < self.differences_max)
            };
            let lightest = (0..bins.len()).filter(|at| has_room(&bins[*at])).min_by_key(|at| bins[*at].weight);
            let at = lightest.unwrap_or_else(|| {
                bins.push(Bin::new());
                bins.len() - 1
            });
            bins[at].weight = bins[at].weight.saturating_add(weight);
            bins[at].differences.push(difference);
        }
        bins.into_iter().map(|bin| bin.differences).filter(|differences| !differences.is_empty())
    }
}

/// Cuts differences into tasks without changing their order: each is full, or the last.
pub(super) fn in_order<T: Weighed>(
    differences: Vec<T>,
    task_bytes: u64,
    open_file_cost: u64,
    differences_max: usize,
) -> Vec<Vec<T>> {
    let mut tasks: Vec<Bin<T>> = Vec::new();
    for difference in differences {
        let weight = difference.data_bytes().max(open_file_cost);
        match tasks.last_mut() {
            Some(task)
                if task.weight.saturating_add(weight) <= task_bytes && task.differences.len() < differences_max =>
            {
                task.weight += weight;
                task.differences.push(difference);
            }
            _ => tasks.push(Bin { weight, differences: vec![difference] }),
        }
    }
    tasks.into_iter().map(|task| task.differences).collect()
}

/// Makes a task of differences whose sides name deletes by their place in `deletes`.
pub(super) fn task(
    id: TaskId,
    mut differences: Vec<FileDifference>,
    deletes: &Deletes,
    resolution: Resolution,
    work: Work,
) -> ScanTask {
    let mut places = HashMap::new();
    let mut files = Vec::new();
    for difference in &mut differences {
        for side in [&mut difference.before, &mut difference.after] {
            let Side::Present(ids) = side else { continue };
            for id in ids {
                *id = *places.entry(*id).or_insert_with(|| {
                    files.push(deletes.file(*id));
                    (files.len() - 1) as u32
                });
            }
        }
    }
    ScanTask { id, differences, deletes: files, resolution, work }
}

#[cfg(test)]
mod tests {
    use iceferry_common::model::{DataFile, FileFormat};

    use super::*;

    fn pairs(splits: &[Split]) -> Vec<(u64, u64)> {
        splits.iter().map(|split| (split.start, split.end)).collect()
    }

    #[test]
    fn a_large_file_is_cut_at_row_groups_and_covered_once() {
        assert_eq!(pairs(&splits(100, &[4, 50], 100)), [], "not larger than a split");
        assert_eq!(pairs(&splits(100, &[4, 30, 60, 80], 50)), [(0, 30), (30, 80), (80, 100)]);
        assert_eq!(pairs(&splits(100, &[4, 30, 60, 80], 60)), [(0, 60), (60, 100)]);
        assert_eq!(pairs(&splits(100, &[4], 40)), [], "one row group cannot be cut");
        assert_eq!(pairs(&splits(100, &[4, 95], 40)), [(0, 95), (95, 100)], "a row group above the size is alone");
        assert_eq!(pairs(&splits(100, &[], 40)), [(0, 34), (34, 68), (68, 100)], "no offsets: by bytes");
        for wrong in [&[50, 4][..], &[4, 4], &[-1, 50], &[4, 200]] {
            assert_eq!(pairs(&splits(100, wrong, 50)), [(0, 50), (50, 100)], "{wrong:?} cannot be row groups");
        }
    }

    #[test]
    fn whatever_the_offsets_each_row_group_has_its_midpoint_in_one_split() {
        for size in [1_000u64, 4_096, 99_999] {
            for split_bytes in [1, 7, 100, 999, 5_000] {
                for offsets in [vec![], vec![4, 300, 310, 900], vec![4, 5, 6, 7, 8], (4..900).step_by(13).collect()] {
                    let splits = splits(size, &offsets, split_bytes);
                    for pair in splits.windows(2) {
                        assert_eq!(pair[0].end, pair[1].start);
                        assert!(pair[0].start < pair[0].end);
                    }
                    if let (Some(first), Some(last)) = (splits.first(), splits.last()) {
                        assert_eq!((first.start, last.end), (0, size));
                    }
                }
            }
        }
    }

    fn difference(name: &str, size_bytes: u64) -> FileDifference {
        let file = DataFile {
            location: name.into(),
            format: FileFormat::Parquet,
            size_bytes,
            record_count: 1,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 0,
            partition: Vec::new(),
        };
        FileDifference { file, split: None, before: Side::Absent, after: Side::Present(Vec::new()), commit: None }
    }

    fn pack(packer: Packer, sizes: &[u64]) -> Vec<Vec<u64>> {
        let mut packer = packer;
        let mut tasks: Vec<_> = sizes.iter().filter_map(|size| packer.add(vec![difference("f", *size)])).collect();
        tasks.extend(packer.finish());
        tasks.iter().map(|task| task.iter().map(|difference| difference.file.size_bytes).collect()).collect()
    }

    #[test]
    fn tasks_are_packed_up_to_their_size() {
        assert_eq!(pack(Packer::new(100, 10, 9), &[60, 60, 40, 40]), [[60, 40], [60, 40]]);
        assert_eq!(pack(Packer::new(100, 10, 9), &[500, 20]), [vec![500], vec![20]], "a larger file is alone");
        assert_eq!(pack(Packer::new(100, 25, 9), &[1; 6]), [vec![1; 4], vec![1; 2]], "opening a file costs");
        assert_eq!(pack(Packer::new(100, 0, 2), &[1; 5]), [vec![1; 2], vec![1; 2], vec![1]], "at most so many");
    }

    #[test]
    fn differences_that_stay_in_order_are_cut_into_full_tasks() {
        let cut = |sizes: &[u64], task_bytes, cost, most| -> Vec<Vec<u64>> {
            let differences: Vec<_> = sizes.iter().map(|size| difference("f", *size)).collect();
            let tasks = in_order(differences, task_bytes, cost, most);
            tasks.iter().map(|task| task.iter().map(|difference| difference.file.size_bytes).collect()).collect()
        };
        assert_eq!(cut(&[60, 60, 40, 40, 1], 100, 0, 9), [vec![60], vec![60, 40], vec![40, 1]]);
        assert_eq!(cut(&[500, 20], 100, 0, 9), [[500], [20]], "a larger file is alone");
        assert_eq!(cut(&[1; 5], 100, 25, 9), [vec![1; 4], vec![1]], "opening a file costs");
        assert_eq!(cut(&[1; 5], 100, 0, 2), [vec![1; 2], vec![1; 2], vec![1]], "at most so many");
        assert_eq!(cut(&[], 100, 0, 2), [[0; 0]; 0]);
    }

    #[test]
    fn the_last_tasks_are_of_about_equal_size_and_share_the_slots() {
        let balanced = |slots: usize, sizes: &[u64]| {
            let mut packer = Packer::new(128, 4, 100);
            let mut tasks: Vec<_> = sizes.iter().filter_map(|size| packer.add(vec![difference("f", *size)])).collect();
            assert!(tasks.is_empty(), "all of it is the rest");
            tasks.extend(packer.finish_balanced(slots));
            tasks.iter().map(|task| task.iter().map(|part| part.file.size_bytes).sum::<u64>()).collect::<Vec<_>>()
        };
        assert_eq!(balanced(2, &[20; 8]), [80, 80], "rather than 120 and 40");
        assert_eq!(balanced(4, &[20; 8]), [40; 4]);
        assert_eq!(balanced(0, &[20; 8]), [80, 80], "nobody is there yet: no more tasks than there would be");
        assert_eq!(balanced(16, &[20; 3]), [20; 3], "no empty tasks");
        assert_eq!(balanced(2, &[]), [0; 0]);
        assert_eq!(balanced(3, &[60, 50, 40, 30, 20, 10]), [70, 70, 70]);
    }

    #[test]
    fn open_tasks_are_bounded_and_nothing_is_lost() {
        let sizes: Vec<u64> = (0..500).map(|n| 51 + n * 37 % 49).collect();
        let mut packer = Packer::new(100, 1, 1_000);
        let mut packed = Vec::new();
        for size in &sizes {
            packed.extend(packer.add(vec![difference("f", *size)]).into_iter().flatten());
            assert!(packer.open.len() <= OPEN_TASKS);
        }
        packed.extend(packer.finish().flatten());
        assert_eq!(packed.len(), sizes.len());
    }
}
