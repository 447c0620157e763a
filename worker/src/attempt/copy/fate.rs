//! What becomes of each row group of a file that is carried over: pure.

use std::ops::Range;

use roaring::RoaringTreemap;

/// What becomes of a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is carried over as bytes; its dead rows are deleted in the target.
    Carry,
    /// All of its rows are dead, or it has none.
    Leave,
    /// So many of its rows are dead that what is left of them is written anew.
    Decode,
}

/// What becomes of row groups of so many rows, one after another, when these positions of the file are dead.
pub(super) fn fates(
    rows: impl IntoIterator<Item = u64>,
    dead: &RoaringTreemap,
    dead_percent_max: u8,
) -> Vec<(Fate, Range<u64>)> {
    let mut start = 0_u64;
    let fate = |rows: u64| {
        let positions = start..start.saturating_add(rows);
        start = positions.end;
        let dead = dead.range_cardinality(positions.clone());
        let fate = if dead == rows {
            Fate::Leave
        } else if u128::from(dead) * 100 > u128::from(rows) * u128::from(dead_percent_max) {
            Fate::Decode
        } else {
            Fate::Carry
        };
        (fate, positions)
    };
    rows.into_iter().map(fate).collect()
}

/// Dead rows of a part of a file, by their positions in the file that it becomes a part of, from `first` on.
pub(super) fn moved(dead: &RoaringTreemap, part: Range<u64>, first: u64) -> RoaringTreemap {
    let mut within = dead.clone();
    within.remove_range(..part.start);
    within.remove_range(part.end..);
    match first == part.start {
        true => within,
        false => within.iter().map(|position| position - part.start + first).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(positions: impl IntoIterator<Item = u64>) -> RoaringTreemap {
        positions.into_iter().collect()
    }

    #[test]
    fn the_share_of_dead_rows_decides_for_each_row_group() {
        use Fate::{Carry, Decode, Leave};
        let dead = dead((10..13).chain(20..24).chain(30..40));
        let fates: Vec<Fate> = fates([10, 10, 10, 10, 0, 5], &dead, 30).into_iter().map(|(fate, _)| fate).collect();
        assert_eq!(fates, [Carry, Carry, Decode, Leave, Leave, Carry]);
    }

    #[test]
    fn at_no_share_any_dead_row_is_too_many_and_at_all_none_is() {
        let dead = dead([3]);
        assert_eq!(fates([4, 4], &dead, 0), [(Fate::Decode, 0..4), (Fate::Carry, 4..8)]);
        assert_eq!(fates([4, 4], &dead, 100), [(Fate::Carry, 0..4), (Fate::Carry, 4..8)]);
        let all = fates([4], &self::dead(0..4), 100);
        assert_eq!(all, [(Fate::Leave, 0..4)]);
    }

    #[test]
    fn dead_rows_move_with_their_part() {
        let dead = dead([1, 9, 10, 14, 20]);
        assert_eq!(moved(&dead, 10..20, 10), self::dead([10, 14]));
        assert_eq!(moved(&dead, 10..20, 0), self::dead([0, 4]));
        assert_eq!(moved(&dead, 10..20, 1 << 40), self::dead([1 << 40, (1 << 40) + 4]));
    }
}
