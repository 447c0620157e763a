//! What a manifest says of the columns of a file, as a file that is carried over as bytes takes it along. Pure.

use iceferry_common::model::ColumnMetrics;

use super::manifest::Entry;

/// All that a manifest says of the columns of a file.
pub(super) fn of_entry(entry: &Entry<'_>) -> Box<[ColumnMetrics]> {
    let counts = [&entry.value_counts, &entry.null_counts, &entry.nan_counts].into_iter().flatten();
    let bounds = [&entry.lower_bounds, &entry.upper_bounds].into_iter().flatten();
    let mut ids: Vec<i32> = counts.map(|(id, _)| *id).chain(bounds.map(|(id, _)| *id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut columns: Box<[ColumnMetrics]> =
        ids.iter().map(|field_id| ColumnMetrics { field_id: *field_id, ..ColumnMetrics::default() }).collect();
    let mut each = |pairs: &[(i32, u64)], set: fn(&mut ColumnMetrics) -> &mut Option<u64>| {
        for (id, count) in pairs {
            if let Ok(at) = ids.binary_search(id) {
                *set(&mut columns[at]) = Some(*count);
            }
        }
    };
    each(&entry.value_counts, |of| &mut of.value_count);
    each(&entry.null_counts, |of| &mut of.null_count);
    each(&entry.nan_counts, |of| &mut of.nan_count);
    let mut each = |pairs: &[(i32, &[u8])], set: fn(&mut ColumnMetrics) -> &mut Option<Vec<u8>>| {
        for (id, bound) in pairs {
            if let Ok(at) = ids.binary_search(id) {
                *set(&mut columns[at]) = Some(bound.to_vec());
            }
        }
    };
    each(&entry.lower_bounds, |of| &mut of.lower_bound);
    each(&entry.upper_bounds, |of| &mut of.upper_bound);
    columns
}
