//! The manifest entry of a file that was carried over.
//!
//! As of any staged file, from its footer; but the footer is that of other writers, which may lack statistics and never
//! count NaNs. What it lacks is taken from the source's manifest entry: counts when all of a file was carried over, bounds in
//! any case, since the bounds of a whole are bounds of its parts.

use std::ops::Range;

use iceberg::spec::{DataFile, PrimitiveType};
use iceferry_common::model::{ColumnMetrics, MetricsMode};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::Recipe;
use super::chunk::trusted;
use super::entry::{self, known};
use super::recipe::{LeafSource, TargetLeaf};
use crate::stage::bounds::Bounds;
use crate::stage::layout::{Layout, Leaf};
use crate::stage::metrics::{Holds, Metrics, data_file};

/// A source file in the file that is described.
#[derive(Debug)]
pub(super) struct Carried<'a> {
    /// The row groups that are its, in the footer of the file that is described.
    pub(super) row_groups: Range<usize>,
    /// Whether these are all that it had.
    pub(super) is_whole: bool,
    pub(super) recipe: &'a Recipe,
    pub(super) entry: &'a [ColumnMetrics],
}

/// A file that is described.
#[derive(Debug)]
pub(super) struct Described<'a> {
    pub(super) location: &'a str,
    pub(super) size_bytes: u64,
    pub(super) footer: &'a ParquetMetaData,
    /// Whether the footer's leaves are those of the source file, as in a copy, or those of the recipe.
    pub(super) is_copy: bool,
    /// Whether the order of minima and maxima is known.
    pub(super) has_column_orders: bool,
}

/// The manifest entry's data file. Files that are joined have one recipe but for their constants.
pub(super) fn describe(layout: &Layout, of: &Described<'_>, parts: &[Carried<'_>]) -> iceberg::Result<DataFile> {
    let mut metrics = Metrics::default();
    for (place, leaf) in layout.leaves.iter().enumerate() {
        if leaf.metrics != MetricsMode::None {
            add(&mut metrics, leaf, place, of, parts)?;
        }
    }
    data_file(metrics, of.location, of.size_bytes, of.footer, Holds::DATA)
}

/// What is known of one column over all parts.
#[derive(Default)]
struct Column {
    bytes: u64,
    values: u64,
    nulls: Option<u64>,
    nans: Option<u64>,
    bounds: Bounds,
}

fn add(
    metrics: &mut Metrics,
    leaf: &Leaf,
    place: usize,
    of: &Described<'_>,
    parts: &[Carried<'_>],
) -> iceberg::Result<()> {
    let mut column = Column { nulls: Some(0), nans: Some(0), ..Column::default() };
    for part in parts {
        let target = part.recipe.targets[place];
        let source = target.leaf.map(|new| (new, &part.recipe.leaves[new]));
        let index = match (source, of.is_copy) {
            (Some((_, LeafSource::File(index))), true) => *index,
            (Some((new, _)), false) => new,
            // The file has no such column, and says nothing of it.
            (Some((_, LeafSource::Constant(_))), true) | (None, _) => return Ok(()),
        };
        let constant = source.and_then(|(_, source)| match source {
            LeafSource::Constant(constant) => Some(constant.value.as_deref()),
            LeafSource::File(_) => None,
        });
        column.add(leaf, part, target, constant, of, index);
    }
    let id = leaf.field_id;
    metrics.column_sizes.insert(id, column.bytes);
    if leaf.repeated {
        return Ok(());
    }
    metrics.value_counts.insert(id, column.values);
    metrics.null_value_counts.extend(column.nulls.map(|nulls| (id, nulls)));
    if is_floating(leaf) {
        metrics.nan_value_counts.extend(column.nans.map(|nans| (id, nans)));
    }
    let length = match leaf.metrics {
        MetricsMode::None | MetricsMode::Counts => return Ok(()),
        MetricsMode::Truncate(length) => Some(usize::try_from(length).unwrap_or(usize::MAX)),
        MetricsMode::Full => None,
    };
    let (lower, upper) = column.bounds.finish(&leaf.primitive, length)?;
    metrics.lower_bounds.extend(lower.map(|lower| (id, lower)));
    metrics.upper_bounds.extend(upper.map(|upper| (id, upper)));
    Ok(())
}

impl Column {
    /// Adds a part, of which `constant` has the value where the column has one.
    fn add(
        &mut self,
        leaf: &Leaf,
        part: &Carried<'_>,
        target: TargetLeaf,
        constant: Option<Option<&[u8]>>,
        of: &Described<'_>,
        index: usize,
    ) {
        let chunks: Vec<&ColumnChunkMetaData> =
            of.footer.row_groups()[part.row_groups.clone()].iter().map(|group| group.column(index)).collect();
        // Nobody vouches for a footer: what repeats may claim any number of values.
        let total = |count: &dyn Fn(&ColumnChunkMetaData) -> i64| {
            chunks.iter().fold(0u64, |total, chunk| total.saturating_add(count(chunk).unsigned_abs()))
        };
        let values = total(&ColumnChunkMetaData::num_values);
        self.bytes = self.bytes.saturating_add(total(&ColumnChunkMetaData::compressed_size));
        self.values = self.values.saturating_add(values);
        let entry = target.read_id.and_then(|id| entry::of(part.entry, id)).filter(|_| constant.is_none());
        // Of none a part is none; of some nobody knows how many.
        let carried = |count: u64| (part.is_whole || count == 0).then_some(count);
        let nulls_of =
            |chunk: &ColumnChunkMetaData| chunk.statistics().and_then(|statistics| statistics.null_count_opt());
        let nulls = chunks.iter().try_fold(0u64, |nulls, chunk| Some(nulls.saturating_add(nulls_of(chunk)?)));
        let nulls = nulls.or_else(|| entry.and_then(|entry| entry.null_count).and_then(carried));
        let nans = match constant {
            Some(value) => Some(if value.is_some_and(|value| is_nan(leaf, value)) { values } else { 0 }),
            None => entry.and_then(|entry| entry.nan_count).and_then(carried),
        };
        let add = |one: Option<u64>, other: Option<u64>| {
            one.zip(other).map(|(one, other): (u64, u64)| one.saturating_add(other))
        };
        let has_bounds = nulls.zip(nans.or((!is_floating(leaf)).then_some(0)));
        let has_bounds = has_bounds.is_none_or(|(nulls, nans)| nulls.saturating_add(nans) < values);
        self.nulls = add(self.nulls, nulls);
        self.nans = add(self.nans, nans);
        // Nulls and NaNs alone have no bounds.
        if !has_bounds {
            return;
        }
        let told = chunks.iter().all(|chunk| self.widen(leaf, chunk, of.has_column_orders));
        if !told {
            let (lower, upper) = entry.map_or((None, None), |entry| entry::bounds(&leaf.primitive, entry));
            if !self.bounds.widen(lower, upper) {
                self.bounds.add_unknown();
            }
        }
    }

    /// Widens the bounds by those of a chunk; says whether they hold for all of its values.
    fn widen(&mut self, leaf: &Leaf, chunk: &ColumnChunkMetaData, has_column_orders: bool) -> bool {
        let Some(statistics) = trusted(chunk, has_column_orders) else { return false };
        let (min, max) = known(&leaf.primitive, &statistics);
        let all_null = statistics.null_count_opt() == Some(chunk.num_values().unsigned_abs());
        self.bounds.widen(min, max) || all_null
    }
}

fn is_floating(leaf: &Leaf) -> bool {
    matches!(leaf.primitive, PrimitiveType::Float | PrimitiveType::Double)
}

fn is_nan(leaf: &Leaf, value: &[u8]) -> bool {
    match leaf.primitive {
        PrimitiveType::Float => value.try_into().is_ok_and(|bytes| f32::from_le_bytes(bytes).is_nan()),
        PrimitiveType::Double => value.try_into().is_ok_and(|bytes| f64::from_le_bytes(bytes).is_nan()),
        _ => false,
    }
}
