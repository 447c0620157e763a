//! Which manifests a commit merges. Pure: sizes in, ranges out; the rule is that of Iceberg's own merging append.

use std::ops::Range;

/// What the table's properties say about merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergeSettings {
    /// `commit.manifest-merge.enabled`.
    pub(super) enabled: bool,
    /// `commit.manifest.target-size-bytes`.
    pub(super) target_bytes: u64,
    /// `commit.manifest.min-count-to-merge`.
    pub(super) min_count: usize,
}

/// Packs manifests of these sizes, newest first, into bins of the target size. They are packed from the oldest on and stay
/// in their order, so that it is the newest bin that is not full, and full ones are the same at every commit.
fn pack(sizes: &[u64], target_bytes: u64) -> Vec<Range<usize>> {
    let mut bins = Vec::new();
    let (mut end, mut bytes) = (sizes.len(), 0_u64);
    for (index, size) in sizes.iter().enumerate().rev() {
        if index + 1 < end && bytes.saturating_add(*size) > target_bytes {
            bins.push(index + 1..end);
            (end, bytes) = (index + 1, 0);
        }
        bytes = bytes.saturating_add(*size);
    }
    if end > 0 {
        bins.push(0..end);
    }
    bins.reverse();
    bins
}

/// The manifests to rewrite, each range into one. `sizes` are those of one content and spec, newest first, and the first
/// `new` of them are of the commit itself. These stay as they are, whatever the base, since all attempts share them; so a bin
/// that is merged leaves one manifest more than it would if they were taken in.
pub(super) fn to_merge(sizes: &[u64], new: usize, settings: &MergeSettings) -> Vec<Range<usize>> {
    if !settings.enabled {
        return Vec::new();
    }
    let is_due = |bin: &Range<usize>| bin.start > 0 || bin.len() >= settings.min_count;
    let bins = pack(sizes, settings.target_bytes).into_iter().filter(is_due);
    let old = bins.map(|bin| bin.start.max(new)..bin.end);
    old.filter(|old| old.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(target_bytes: u64, min_count: usize) -> MergeSettings {
        MergeSettings { enabled: true, target_bytes, min_count }
    }

    #[test]
    fn bins_are_packed_from_the_oldest_and_the_newest_waits() {
        for (name, sizes, new, min_count, expected) in [
            ("nothing", &[][..], 0, 2, None),
            ("the first commit", &[5], 1, 1, None),
            ("too few", &[1, 1, 1], 1, 4, None),
            ("enough", &[1, 1, 1], 1, 3, Some(1..3)),
            ("one old one alone", &[1, 1], 1, 2, None),
            ("a full bin of old ones, however few", &[1, 6, 5, 5], 1, 100, Some(2..4)),
            ("an exact fit", &[1, 5, 5], 1, 100, Some(1..3)),
            ("larger than the target", &[1, 20, 1, 1], 1, 2, Some(2..4)),
            ("large ones are let alone", &[1, 10, 10, 10], 1, 1, None),
            ("only new ones", &[10, 10, 3], 3, 1, None),
            ("new ones in a full bin are let alone", &[9, 4, 2, 2, 1], 2, 100, Some(2..5)),
            ("nothing new of this content", &[1, 1, 1], 0, 3, Some(0..3)),
        ] {
            assert_eq!(to_merge(sizes, new, &settings(10, min_count)), Vec::from_iter(expected), "{name}");
        }
        let off = MergeSettings { enabled: false, ..settings(10, 1) };
        assert!(to_merge(&[1, 1, 1], 1, &off).is_empty());
    }

    /// The rule in its plainest form: a list that is eaten up from its end.
    fn model(sizes: &[u64], target: u64) -> Vec<Vec<u64>> {
        let mut rest = sizes.to_vec();
        let mut bins = Vec::new();
        while let Some(last) = rest.pop() {
            let mut bin = vec![last];
            while rest.last().is_some_and(|next| bin.iter().sum::<u64>() + next <= target) {
                bin.insert(0, rest.pop().unwrap());
            }
            bins.insert(0, bin);
        }
        bins
    }

    proptest! {
        #[test]
        fn bins_are_those_of_a_plain_model(sizes in proptest::collection::vec(1_u64..12, 0..40), target in 1_u64..30) {
            let bins = pack(&sizes, target);
            let found: Vec<Vec<u64>> = bins.iter().map(|bin| sizes[bin.clone()].to_vec()).collect();
            prop_assert_eq!(found, model(&sizes, target));
        }

        #[test]
        fn what_is_merged_is_old_and_at_most_a_target(
            sizes in proptest::collection::vec(1_u64..12, 0..40),
            new in 0_usize..4,
            target in 1_u64..30,
            min_count in 0_usize..9,
        ) {
            let new = new.min(sizes.len());
            let mut end = 0;
            for bin in to_merge(&sizes, new, &settings(target, min_count)) {
                prop_assert!(bin.start >= new && bin.start >= end && bin.len() > 1);
                prop_assert!(sizes[bin.clone()].iter().sum::<u64>() <= target);
                end = bin.end;
            }
        }
    }
}
