//! What differs between two tables, by the sums and hashes that workers made of their rows. Pure.

use std::ops::Range;

use iceferry_common::model::DigestWork;
use iceferry_common::model::digest::{BucketSum, RowHash, bucket_of, page_bits};

/// Rows of a bucket, about: the fewer there are, the fewer are looked at when it differs.
const ROWS_OF_BUCKET: u64 = 64;
const BUCKET_BITS_MIN: u8 = 4;

/// How many buckets rows are counted in, as a power of two, for tables of so many rows.
pub(super) fn bucket_bits(rows: Option<u64>) -> u8 {
    let Some(rows) = rows else { return DigestWork::BUCKET_BITS_MAX };
    let bits = (rows / ROWS_OF_BUCKET).checked_ilog2().map_or(0, |bits| bits as u8 + 1);
    bits.clamp(BUCKET_BITS_MIN, DigestWork::BUCKET_BITS_MAX)
}

/// Which buckets differ. Both sides have the same number of them.
pub(super) fn differing(source: &[BucketSum], target: &[BucketSum]) -> Vec<bool> {
    source.iter().zip(target).map(|(source, target)| source != target).collect()
}

/// Rows that are compared one by one at the same time: those of some pages, and of their keys one part in so many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The pages, in each of which some bucket differs.
    pub(super) pages: Range<usize>,
    /// Which part it is.
    pub(super) part: u64,
    /// How many parts there are, as a power of two.
    pub(super) parts_bits: u32,
}

impl Part {
    /// Whether it is to look at a row.
    pub(super) fn holds(&self, row: &RowHash, bucket_bits: u8, differs: &[bool]) -> bool {
        let below_page = row.key << page_bits(bucket_bits);
        let part = if self.parts_bits == 0 { 0 } else { below_page >> (u64::BITS - self.parts_bits) };
        part == self.part && differs.get(bucket_of(row.key, bucket_bits)).copied().unwrap_or(false)
    }
}

/// The rows of the buckets that differ, in parts of at most about `rows_max` rows of both sides together.
pub(super) fn parts(source: &[BucketSum], target: &[BucketSum], differs: &[bool], rows_max: u64) -> Vec<Part> {
    let bucket_bits = differs.len().checked_ilog2().unwrap_or_default() as u8;
    let pages = 1usize << page_bits(bucket_bits);
    let buckets = (differs.len() / pages).max(1);
    let rows_of = |page: usize| {
        let of_page = (page * buckets..(page + 1) * buckets).filter(|bucket| differs[*bucket]);
        of_page.fold(None, |rows: Option<u64>, bucket| {
            Some(rows.unwrap_or(0).saturating_add(source[bucket].rows).saturating_add(target[bucket].rows))
        })
    };
    let mut groups: Vec<(Range<usize>, u64)> = Vec::new();
    for page in 0..pages {
        let Some(rows) = rows_of(page) else { continue };
        match groups.last_mut() {
            Some((pages, held)) if pages.end == page && held.saturating_add(rows) <= rows_max => {
                pages.end += 1;
                *held += rows;
            }
            _ => groups.push((page..page + 1, rows)),
        }
    }
    let split = |(pages, rows): (Range<usize>, u64)| {
        // More parts than keys have bits below their page would be empty.
        let bits_max = u64::BITS - u32::from(page_bits(bucket_bits)) - 1;
        let parts = rows.div_ceil(rows_max.max(1)).max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        let parts_bits = parts.ilog2().min(bits_max);
        (0..1u64 << parts_bits).map(move |part| Part { pages: pages.clone(), part, parts_bits })
    };
    groups.into_iter().flat_map(split).collect()
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// The digest that it is of, as a number among those of its side.
    pub(super) digest: u32,
    /// The file, as a number in the digest.
    pub(super) file: u32,
    /// The row's position in the file.
    pub(super) position: u64,
}

/// A row of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) key: u64,
    pub(super) row: u64,
    pub(super) place: Place,
}

/// A row that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The source has it, the target does not.
    Missing(Place),
    /// The target has it, the source does not.
    Surplus(Place),
    /// Both have a row of this key, with other values.
    Changed {
        /// The source's row.
        source: Place,
        /// The target's.
        target: Place,
    },
}

/// The rows that differ: how many of each kind, and where the first ones are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Differences {
    pub(super) missing: u64,
    pub(super) surplus: u64,
    pub(super) changed: u64,
    /// As many as are to be shown.
    pub(super) first: Vec<Found>,
    /// How many that is, at most.
    pub(super) first_max: usize,
}

impl Differences {
    pub(super) fn new(first_max: usize) -> Self {
        Self { first_max, ..Self::default() }
    }

    /// All that differ.
    pub(super) fn count(&self) -> u64 {
        self.missing + self.surplus + self.changed
    }

    /// Compares rows of both sides, which hold all rows of their keys: first equal ones cancel, one against one; then rows of
    /// one key, one against one, are the same row with other values. What is left is missing or surplus. Without a key a row
    /// is its own, so that none can have other values.
    pub(super) fn compare(&mut self, source: Vec<Row>, target: Vec<Row>) {
        let (source, target) = unequal(source, target);
        let mut target = target.into_iter().peekable();
        for row in source {
            while let Some(surplus) = target.next_if(|other| other.key < row.key) {
                self.add(Found::Surplus(surplus.place));
            }
            match target.next_if(|other| other.key == row.key) {
                Some(other) => self.add(Found::Changed { source: row.place, target: other.place }),
                None => self.add(Found::Missing(row.place)),
            }
        }
        target.for_each(|surplus| self.add(Found::Surplus(surplus.place)));
    }

    fn add(&mut self, found: Found) {
        *match found {
            Found::Missing(_) => &mut self.missing,
            Found::Surplus(_) => &mut self.surplus,
            Found::Changed { .. } => &mut self.changed,
        } += 1;
        if self.first.len() < self.first_max {
            self.first.push(found);
        }
    }
}

/// The rows that have no equal on the other side, by key.
fn unequal(mut source: Vec<Row>, mut target: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    source.sort_unstable();
    target.sort_unstable();
    let content = |row: &Row| (row.key, row.row);
    let (mut source_only, mut target_only) = (Vec::new(), Vec::new());
    let mut others = target.into_iter().peekable();
    for row in source {
        while let Some(other) = others.next_if(|other| content(other) < content(&row)) {
            target_only.push(other);
        }
        if others.next_if(|other| content(other) == content(&row)).is_none() {
            source_only.push(row);
        }
    }
    target_only.extend(others);
    (source_only, target_only)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn row(key: u64, row: u64, at: usize) -> Row {
        Row { key, row, place: Place { digest: 0, file: 0, position: at as u64 } }
    }

    fn rows(of: &[(u64, u64)]) -> Vec<Row> {
        of.iter().enumerate().map(|(at, (key, content))| row(*key, *content, at)).collect()
    }

    fn counts(source: &[(u64, u64)], target: &[(u64, u64)]) -> (u64, u64, u64) {
        let mut found = Differences::new(100);
        found.compare(rows(source), rows(target));
        assert_eq!(found.first.len() as u64, found.count());
        (found.missing, found.surplus, found.changed)
    }

    #[test]
    fn rows_are_missing_surplus_or_changed() {
        for (source, target, expected, why) in [
            (&[][..], &[][..], (0, 0, 0), "nothing"),
            (&[(1, 5), (2, 6)], &[(2, 6), (1, 5)], (0, 0, 0), "another order"),
            (&[(1, 5)], &[], (1, 0, 0), "missing"),
            (&[], &[(1, 5)], (0, 1, 0), "surplus"),
            (&[(1, 5)], &[(1, 6)], (0, 0, 1), "changed"),
            (&[(1, 5), (1, 5)], &[(1, 5)], (1, 0, 0), "a row that is there twice is not there once"),
            (&[(1, 5), (1, 6)], &[(1, 6), (1, 7)], (0, 0, 1), "what is equal cancels before keys are paired"),
            (&[(1, 5), (1, 6)], &[(1, 7)], (1, 0, 1), "one against one"),
            (&[(5, 5), (6, 6)], &[(5, 5), (7, 7)], (1, 1, 0), "without a key"),
            (&[(1, 1), (3, 3), (5, 5)], &[(0, 0), (2, 2), (4, 4), (6, 6)], (3, 4, 0), "in between"),
        ] {
            assert_eq!(counts(source, target), expected, "{why}");
        }
    }

    #[test]
    fn only_the_first_are_kept_and_all_are_counted() {
        let mut found = Differences::new(2);
        found.compare(rows(&[(1, 1), (2, 2), (3, 3)]), Vec::new());
        found.compare(Vec::new(), rows(&[(9, 1)]));
        assert_eq!((found.first.len(), found.count(), found.surplus), (2, 4, 1));
        let mut none = Differences::new(0);
        none.compare(rows(&[(1, 1)]), rows(&[(1, 2)]));
        assert_eq!((none.first.len(), none.changed), (0, 1));
    }

    #[test]
    fn buckets_are_about_as_many_as_a_bucket_of_rows_is_in_the_table() {
        for (rows, bits) in [
            (Some(0), 4),
            (Some(1_000), 4),
            (Some(64 * 64), 7),
            (Some(6_000_000), 16),
            (Some(u64::MAX), 16),
            (None, 16),
        ] {
            assert_eq!(bucket_bits(rows), bits, "{rows:?}");
        }
    }

    fn sums(rows: impl IntoIterator<Item = u64>) -> Vec<BucketSum> {
        rows.into_iter().map(|rows| BucketSum { rows, hash: rows.into() }).collect()
    }

    #[test]
    fn buckets_differ_by_their_rows_or_by_their_hashes() {
        let source = sums([1, 2, 3, 0]);
        let mut target = source.clone();
        assert_eq!(differing(&source, &target), [false; 4]);
        target[1].hash += 1;
        target[3].rows += 1;
        assert_eq!(differing(&source, &target), [false, true, false, true]);
    }

    #[test]
    fn pages_that_lie_together_are_looked_at_together_and_large_ones_in_parts() {
        let (source, target) = (sums([3; 16]), sums([2; 16]));
        let all = [true; 16];
        let shape = |parts: &[Part]| parts.iter().map(|part| (part.pages.clone(), part.parts_bits)).collect::<Vec<_>>();
        assert_eq!(shape(&parts(&source, &target, &all, 80)), [(0..16, 0)]);
        assert_eq!(shape(&parts(&source, &target, &all, 40)), [(0..8, 0), (8..16, 0)]);
        assert_eq!(shape(&parts(&source, &target, &all, 3)).len(), 32, "each page in two parts");
        let mut some = [false; 16];
        (some[0], some[4], some[5]) = (true, true, true);
        assert_eq!(shape(&parts(&source, &target, &some, 80)), [(0..1, 0), (4..6, 0)]);
        assert_eq!(shape(&parts(&source, &target, &[false; 16], 80)), []);
        // A bucket may differ without rows: its other side's are gone.
        assert_eq!(shape(&parts(&sums([0; 16]), &sums([0; 16]), &some, 80)), [(0..1, 0), (4..6, 0)]);
        // More buckets than pages.
        let (source, target) = (sums(vec![1; 1 << 12]), sums(vec![1; 1 << 12]));
        let mut some = vec![false; 1 << 12];
        (some[5], some[7], some[8]) = (true, true, true);
        assert_eq!(shape(&parts(&source, &target, &some, 100)), [(1..3, 0)]);
    }

    proptest! {
        #[test]
        fn whatever_the_parts_the_differences_are_those_of_a_plain_loop(
            source in prop::collection::vec((0u64..40, 0u64..3), 0..120),
            target in prop::collection::vec((0u64..40, 0u64..3), 0..120),
            rows_max in 1u64..300,
            bits in 4u8..=12,
        ) {
            // Keys are spread over the buckets as hashes are.
            let spread = |rows: &[(u64, u64)]| -> Vec<(u64, u64)> {
                rows.iter().map(|(key, row)| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15), *row)).collect()
            };
            let (source, target) = (spread(&source), spread(&target));
            let sums = |rows: &[(u64, u64)]| {
                let mut sums = vec![BucketSum::default(); 1 << bits];
                let mix = |key: u64, row: u64| u128::from(key ^ row.wrapping_mul(0xff51_afd7_ed55_8ccd)).pow(2);
                rows.iter().for_each(|(key, row)| sums[bucket_of(*key, bits)].add_row(mix(*key, *row)));
                sums
            };
            let (of_source, of_target) = (sums(&source), sums(&target));
            let differs = differing(&of_source, &of_target);
            let mut found = Differences::new(1_000);
            for part in parts(&of_source, &of_target, &differs, rows_max) {
                let held = |all: &[(u64, u64)]| -> Vec<Row> {
                    let hash = |row: &Row| RowHash { key: row.key, row: row.row, file: 0, position: 0 };
                    let in_pages = |row: &Row| {
                        let page = iceferry_common::model::digest::page_of(row.key, bits);
                        part.pages.contains(&page)
                    };
                    rows(all).into_iter().filter(|row| in_pages(row) && part.holds(&hash(row), bits, &differs)).collect()
                };
                found.compare(held(&source), held(&target));
            }

            let mut bag: BTreeMap<u64, BTreeMap<u64, i64>> = BTreeMap::new();
            source.iter().for_each(|(key, row)| *bag.entry(*key).or_default().entry(*row).or_default() += 1);
            target.iter().for_each(|(key, row)| *bag.entry(*key).or_default().entry(*row).or_default() -= 1);
            let (mut missing, mut surplus, mut changed) = (0, 0, 0);
            for rows in bag.values() {
                let more: i64 = rows.values().filter(|count| **count > 0).sum();
                let fewer: i64 = -rows.values().filter(|count| **count < 0).sum::<i64>();
                changed += more.min(fewer) as u64;
                missing += (more - fewer).max(0) as u64;
                surplus += (fewer - more).max(0) as u64;
            }
            prop_assert_eq!((found.missing, found.surplus, found.changed), (missing, surplus, changed));
            let places = found.first.iter().filter_map(|found| match found {
                Found::Missing(place) | Found::Changed { source: place, .. } => Some(*place),
                Found::Surplus(_) => None,
            });
            let places: Vec<Place> = places.collect();
            prop_assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len(), "each row once");
        }
    }
}
