//! Which rows belong to which bucket. Pure.

use iceferry_common::model::ExchangeWork;

/// Bits of a hash that a level looks at.
const BUCKET_BITS: u32 = ExchangeWork::BUCKET_BITS;
/// Buckets of a level.
const BUCKETS: usize = ExchangeWork::BUCKETS as usize;
/// Levels after which the bits of a hash are used up.
pub const LEVELS: u32 = u64::BITS / BUCKET_BITS;

/// The bucket of a hash at a level: the highest bits at level 0, those below them at the next, and so on.
pub fn bucket_of(hash: u64, level: u32) -> u32 {
    let shift = u64::BITS - BUCKET_BITS * (level.min(LEVELS - 1) + 1);
    (hash >> shift) as u32 & (BUCKETS as u32 - 1)
}

/// Rows of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bucket: u32,
    /// Where its rows lie in [`Parts::order`].
    pub(super) rows: std::ops::Range<usize>,
    pub(super) hash_min: u64,
    pub(super) hash_max: u64,
}

/// Rows by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    /// Numbers of rows, bucket after bucket; within a bucket they ascend.
    pub(super) order: Vec<u32>,
    /// The buckets that have rows, in ascending order.
    pub(super) parts: Vec<Part>,
}

/// Sorts rows, numbered in the order of their hashes, by bucket: a counting sort, which keeps their order.
pub(super) fn partition(hashes: &[u64], level: u32) -> Parts {
    let mut counts = [0_usize; BUCKETS];
    let mut ranges = [(u64::MAX, 0); BUCKETS];
    for hash in hashes {
        let bucket = bucket_of(*hash, level) as usize;
        counts[bucket] += 1;
        let (least, most) = ranges[bucket];
        ranges[bucket] = (least.min(*hash), most.max(*hash));
    }
    let mut parts = Vec::new();
    let mut next = [0_usize; BUCKETS];
    let mut start = 0;
    for (bucket, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        next[bucket] = start;
        let (hash_min, hash_max) = ranges[bucket];
        parts.push(Part { bucket: bucket as u32, rows: start..start + count, hash_min, hash_max });
        start += count;
    }
    let mut order = vec![0; hashes.len()];
    for (row, hash) in (0..).zip(hashes) {
        let place = &mut next[bucket_of(*hash, level) as usize];
        order[*place] = row;
        *place += 1;
    }
    Parts { order, parts }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_level_looks_at_other_bits() {
        let hash = (1..=10_u64).fold(0, |hash, bucket| hash << BUCKET_BITS | bucket) << 4 | 0b1111;
        let buckets: Vec<u32> = (0..LEVELS).map(|level| bucket_of(hash, level)).collect();
        assert_eq!(buckets, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    proptest! {
        #[test]
        fn each_row_is_in_the_bucket_of_its_hash_and_rows_keep_their_order(
            hashes in proptest::collection::vec(prop_oneof![any::<u64>(), 0..3_u64], 0..300),
            level in 0..LEVELS,
        ) {
            let parts = partition(&hashes, level);
            // The slow, plain way: bucket by bucket through all rows.
            let mut expected = Vec::new();
            let mut order = Vec::new();
            for bucket in 0..BUCKETS as u32 {
                let rows: Vec<u32> =
                    (0..hashes.len() as u32).filter(|row| bucket_of(hashes[*row as usize], level) == bucket).collect();
                let of_bucket: Vec<u64> = rows.iter().map(|row| hashes[*row as usize]).collect();
                if let (Some(hash_min), Some(hash_max)) = (of_bucket.iter().min(), of_bucket.iter().max()) {
                    let range = order.len()..order.len() + rows.len();
                    expected.push(Part { bucket, rows: range, hash_min: *hash_min, hash_max: *hash_max });
                }
                order.extend(rows);
            }
            prop_assert_eq!(parts, Parts { order, parts: expected });
        }
    }
}
