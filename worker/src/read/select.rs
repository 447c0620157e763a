//! Which row groups and which rows of a file are read.

use std::ops::Range;

use iceferry_common::model::Split;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use roaring::RoaringTreemap;

use super::footer::chunk_bytes;

/// The row groups of a file that belong to a split: those whose midpoint lies in it. All of them without a split.
pub(crate) fn row_groups(metadata: &ParquetMetaData, split: Option<Split>) -> Vec<usize> {
    let all = row_groups_with_rows(metadata);
    match split {
        None => all.collect(),
        Some(split) => all.filter(|index| (split.start..split.end).contains(&midpoint(metadata, *index))).collect(),
    }
}

/// The row groups that have rows.
pub(super) fn row_groups_with_rows(metadata: &ParquetMetaData) -> impl Iterator<Item = usize> + '_ {
    (0..metadata.num_row_groups()).filter(|index| metadata.row_group(*index).num_rows() > 0)
}

/// A split that holds this row group alone: no other has its middle there.
pub(crate) fn split_of(metadata: &ParquetMetaData, row_group: usize) -> Split {
    let middle = midpoint(metadata, row_group);
    Split { start: middle, end: middle + 1 }
}

fn midpoint(metadata: &ParquetMetaData, row_group: usize) -> u64 {
    let chunks = || metadata.row_group(row_group).columns().iter().filter_map(chunk_bytes);
    let start = chunks().map(|bytes| bytes.start).min().unwrap_or_default();
    let end = chunks().map(|bytes| bytes.end).max().unwrap_or_default();
    start + (end - start) / 2
}

/// Which rows of a file are read, by position in the file.
#[derive(Debug, Clone)]
pub(super) enum Rows {
    /// Every row.
    All,
    /// Every row that is not among these.
    Without(RoaringTreemap),
    /// These rows alone.
    Only(RoaringTreemap),
}

impl Rows {
    /// Every row but these.
    pub(super) fn without(positions: RoaringTreemap) -> Self {
        if positions.is_empty() { Self::All } else { Self::Without(positions) }
    }

    /// The positions to read among `rows`, ascending; `None` when it is all of them.
    pub(super) fn ranges(&self, rows: Range<u64>) -> Option<Vec<Range<u64>>> {
        match self {
            Self::All => None,
            Self::Only(positions) => Some(runs(positions, &rows)),
            Self::Without(positions) => {
                let left_out = runs(positions, &rows);
                if left_out.is_empty() { None } else { Some(gaps(&left_out, &rows)) }
            }
        }
    }
}

/// The positions that lie in `rows`, as runs of neighbours.
fn runs(positions: &RoaringTreemap, rows: &Range<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut inside = positions.iter();
    inside.advance_to(rows.start);
    for position in inside.take_while(|position| *position < rows.end) {
        match runs.last_mut() {
            Some(run) if run.end == position => run.end += 1,
            _ => runs.push(position..position + 1),
        }
    }
    runs
}

fn gaps(left_out: &[Range<u64>], rows: &Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::with_capacity(left_out.len() + 1);
    let mut start = rows.start;
    for run in left_out {
        if start < run.start {
            gaps.push(start..run.start);
        }
        start = run.end;
    }
    if start < rows.end {
        gaps.push(start..rows.end);
    }
    gaps
}

/// The rows that lie in ranges of both, ascending.
pub(super) fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut common = Vec::new();
    let (mut at_one, mut at_other) = (0, 0);
    while let (Some(left), Some(right)) = (one.get(at_one), other.get(at_other)) {
        let both = left.start.max(right.start)..left.end.min(right.end);
        if !both.is_empty() {
            common.push(both);
        }
        if left.end <= right.end { at_one += 1 } else { at_other += 1 }
    }
    common
}

/// The same as the decoder wants it for a row group that holds `rows`.
pub(super) fn selection(ranges: &[Range<u64>], rows: &Range<u64>) -> RowSelection {
    let within = ranges.iter().map(|range| (range.start - rows.start) as usize..(range.end - rows.start) as usize);
    RowSelection::from_consecutive_ranges(within, (rows.end - rows.start) as usize)
}

/// Goes through the positions of ascending ranges, one by one.
#[derive(Debug)]
pub(super) struct Positions {
    ranges: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Positions {
    pub(super) fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { ranges: ranges.into_iter(), current: 0..0 }
    }
}

impl Iterator for Positions {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.current.is_empty() {
            self.current = self.ranges.next()?;
        }
        self.current.next()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a range is what is meant")]
    fn common_rows_are_those_of_a_plain_loop() {
        let sets: [&[Range<u64>]; 6] = [&[], &[0..10], &[0..3, 5..7], &[2..6], &[3..5, 7..9], &[9..12]];
        for one in sets {
            for other in sets {
                let is_in = |ranges: &[Range<u64>], row: u64| ranges.iter().any(|range| range.contains(&row));
                let expected: Vec<u64> = (0..12).filter(|row| is_in(one, *row) && is_in(other, *row)).collect();
                let found: Vec<u64> = Positions::new(common(one, other)).collect();
                assert_eq!(found, expected, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn chosen_rows_are_those_of_a_plain_loop() {
        let sets: [&[u64]; 7] =
            [&[], &[0], &[9], &[0, 1, 2, 9], &[3, 5, 7], &[12, 40], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]];
        for set in sets {
            let positions: RoaringTreemap = set.iter().copied().collect();
            for rows in [0..10u64, 3..8, 9..10, 5..5, 10..20] {
                for (choice, keep) in [(Rows::Only(positions.clone()), true), (Rows::without(positions.clone()), false)]
                {
                    let expected: Vec<u64> = rows.clone().filter(|row| set.contains(row) == keep).collect();
                    let whole = || std::iter::once(rows.clone()).collect();
                    let ranges: Vec<Range<u64>> = choice.ranges(rows.clone()).unwrap_or_else(whole);
                    assert_eq!(Positions::new(ranges.clone()).collect::<Vec<_>>(), expected, "{set:?} {rows:?} {keep}");
                    assert_eq!(selection(&ranges, &rows).row_count(), expected.len());
                }
            }
        }
    }
}
