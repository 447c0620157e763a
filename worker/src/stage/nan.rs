//! Counting NaNs: Parquet's statistics leave them out.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use iceberg::spec::PrimitiveType;
use iceferry_common::model::MetricsMode;

use super::layout::Leaf;

/// Counts the NaNs of one file, leaf by leaf.
#[derive(Debug, Clone)]
pub(super) struct NanCounter {
    /// Index of the leaf, its path, NaNs so far. Only floating-point leaves outside lists and maps.
    leaves: Vec<(usize, Vec<usize>, u64)>,
}

impl NanCounter {
    /// A counter at zero.
    pub(super) fn new(leaves: &[Leaf]) -> Self {
        let counted = |leaf: &Leaf| {
            matches!(leaf.primitive, PrimitiveType::Float | PrimitiveType::Double)
                && !leaf.repeated
                && leaf.metrics != MetricsMode::None
        };
        let leaves = leaves.iter().enumerate().filter(|(_, leaf)| counted(leaf));
        Self { leaves: leaves.map(|(index, leaf)| (index, leaf.path.clone(), 0)).collect() }
    }

    /// Counts the NaNs of a batch.
    pub(super) fn add(&mut self, columns: &[ArrayRef]) {
        for (_, path, count) in &mut self.leaves {
            if let Some((column, below)) = path.split_first() {
                *count += nans(&columns[*column], below, None);
            }
        }
    }

    /// NaNs of the leaf with this index; `None` for a leaf whose NaNs are not counted.
    pub(super) fn count(&self, leaf: usize) -> Option<u64> {
        self.leaves.iter().find(|(index, _, _)| *index == leaf).map(|(_, _, count)| *count)
    }
}

/// NaNs in the leaf under `array`, those left out that a null around them hides.
fn nans(array: &ArrayRef, below: &[usize], around: Option<&NullBuffer>) -> u64 {
    match (array.data_type(), below.split_first()) {
        (DataType::Struct(_), Some((child, below))) => {
            let array = array.as_struct();
            nans(array.column(*child), below, NullBuffer::union(around, array.nulls()).as_ref())
        }
        (DataType::Float32, None) => leaf_nans(array.as_primitive::<Float32Type>(), around, f32::is_nan),
        (DataType::Float64, None) => leaf_nans(array.as_primitive::<Float64Type>(), around, f64::is_nan),
        // The batch was fitted to the layout before, so there is nothing else.
        _ => 0,
    }
}

fn leaf_nans<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    around: Option<&NullBuffer>,
    is_nan: impl Fn(T::Native) -> bool,
) -> u64 {
    // Most columns have none, and this loop is one that vectorises.
    let all = array.values().iter().filter(|value| is_nan(**value)).count();
    if all == 0 {
        return 0;
    }
    let counted = match NullBuffer::union(around, array.nulls()) {
        None => all,
        Some(nulls) => nulls.valid_indices().filter(|&row| is_nan(array.value(row))).count(),
    };
    counted as u64
}
