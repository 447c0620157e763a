//! Which files go into one new file.

/// What joining looks at of a file that is to be spliced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of the row groups that are kept.
    pub(crate) bytes: u64,
    /// How many they are.
    pub(crate) row_groups: usize,
    /// Files of one form only can be joined: the same columns (see [`Recipe::joins`](super::Recipe::joins)) and the same
    /// partition. Any number that tells forms apart.
    pub(crate) form: usize,
}

/// Files that become one file each, and files that are better decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Indexes of the files of each new file, in the order that they were given in.
    pub(crate) files: Vec<Vec<usize>>,
    /// Files whose row groups are too small to be worth having, when there are others to be joined with: decoded together
    /// they become one row group.
    pub(crate) too_small: Vec<usize>,
}

/// Groups files, in their order, into new files of `target_bytes` at most, save those that are larger alone. A file whose
/// row groups have fewer than `row_group_bytes_min` bytes on average is put aside when it has several of them, or there are
/// several such files of its form. A single small row group is carried over: decoding would make nothing larger of it.
pub(crate) fn join(sizes: &[Size], target_bytes: u64, row_group_bytes_min: u64) -> Joined {
    let is_small = |size: &Size| size.bytes < row_group_bytes_min.saturating_mul(size.row_groups as u64);
    let small = |form: usize| sizes.iter().filter(|size| size.form == form && is_small(size)).count();
    let mut joined = Joined::default();
    // The one new file of each form that more may go into: its place, and its bytes so far.
    let mut open: Vec<(usize, usize, u64)> = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        if is_small(size) && (size.row_groups > 1 || small(size.form) > 1) {
            joined.too_small.push(index);
            continue;
        }
        match open.iter_mut().find(|(form, ..)| *form == size.form) {
            Some((_, file, bytes)) if bytes.saturating_add(size.bytes) <= target_bytes => {
                joined.files[*file].push(index);
                *bytes += size.bytes;
            }
            found => {
                let begun = (size.form, joined.files.len(), size.bytes);
                joined.files.push(vec![index]);
                match found {
                    Some(open) => *open = begun,
                    None => open.push(begun),
                }
            }
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(bytes: u64, row_groups: usize, form: usize) -> Size {
        Size { bytes, row_groups, form }
    }

    #[test]
    fn files_are_joined_up_to_the_target_size_and_small_row_groups_are_put_aside() {
        let cases = [
            (vec![], vec![], vec![]),
            (vec![size(40, 1, 0), size(50, 1, 0), size(30, 1, 0)], vec![vec![0, 1], vec![2]], vec![]),
            (vec![size(400, 1, 0), size(20, 1, 0)], vec![vec![0], vec![1]], vec![]),
            (vec![size(40, 1, 0), size(40, 1, 1), size(40, 1, 0)], vec![vec![0, 2], vec![1]], vec![]),
            (vec![size(5, 1, 0), size(50, 1, 0), size(6, 1, 0), size(7, 1, 1)], vec![vec![1], vec![3]], vec![0, 2]),
            (vec![size(50, 10, 0)], vec![], vec![0]),
        ];
        for (sizes, files, too_small) in cases {
            assert_eq!(join(&sizes, 100, 10), Joined { files, too_small }, "{sizes:?}");
        }
    }

    proptest! {
        #[test]
        fn each_file_goes_to_one_place_and_no_joined_file_is_too_large_or_mixed(
            sizes in prop::collection::vec((0u64..150, 1usize..4, 0usize..3), 0..30),
        ) {
            let sizes: Vec<Size> = sizes.into_iter().map(|(bytes, groups, form)| size(bytes, groups, form)).collect();
            let joined = join(&sizes, 100, 10);
            let mut all: Vec<usize> = joined.files.iter().flatten().chain(&joined.too_small).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            for file in &joined.files {
                prop_assert!(file.is_sorted());
                prop_assert!(file.iter().all(|index| sizes[*index].form == sizes[file[0]].form));
                prop_assert!(file.len() == 1 || file.iter().map(|index| sizes[*index].bytes).sum::<u64>() <= 100);
            }
        }
    }
}
