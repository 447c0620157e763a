//! What the source's manifest says of a file, beside what its footer says.
//!
//! Both are somebody's word on the same bytes. Where they agree, each fills in what the other lacks; where they do not, one
//! of them is wrong, and only the rows can tell.

use std::cmp::Ordering;

use iceberg::spec::PrimitiveType;
use iceferry_common::model::ColumnMetrics;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use super::chunk::trusted;
use super::recipe::{LeafSource, Recipe};
use crate::stage::bounds::{Value, extremes, unscaled};
use crate::stage::layout::{Layout, Leaf};

/// Whether the entry and the footer cannot both be right about a column that the recipe takes.
pub(super) fn contradicts(layout: &Layout, recipe: &Recipe, footer: &ParquetMetaData, entry: &[ColumnMetrics]) -> bool {
    let leaves = layout.leaves.iter().zip(&recipe.targets);
    leaves.filter(|(leaf, _)| !leaf.repeated).any(|(leaf, target)| {
        let source = target.leaf.map(|leaf| &recipe.leaves[leaf]);
        match (source, target.read_id.and_then(|id| of(entry, id))) {
            (Some(LeafSource::File(index)), Some(column)) => column_contradicts(leaf, *index, footer, column),
            _ => false,
        }
    })
}

/// What the entry says of a field.
pub(super) fn of(entry: &[ColumnMetrics], field_id: i32) -> Option<&ColumnMetrics> {
    entry.iter().find(|column| column.field_id == field_id)
}

fn column_contradicts(leaf: &Leaf, index: usize, footer: &ParquetMetaData, entry: &ColumnMetrics) -> bool {
    let chunks = || footer.row_groups().iter().map(|group| group.column(index));
    let values: u64 = chunks().map(|chunk| chunk.num_values().unsigned_abs()).sum();
    let nulls: Option<u64> =
        chunks().map(|chunk| chunk.statistics().and_then(|statistics| statistics.null_count_opt())).sum();
    let differs =
        |one: Option<u64>, other: Option<u64>| matches!((one, other), (Some(one), Some(other)) if one != other);
    // Some writers do not count the fields of a struct that is null.
    let is_inside = leaf.path.len() > 1;
    if !is_inside && (differs(entry.value_count, Some(values)) || differs(entry.null_count, nulls)) {
        return true;
    }
    let not_null = values.saturating_sub(nulls.or(entry.null_count).unwrap_or(0));
    if entry.nan_count.is_some_and(|nans| nans > not_null) {
        return true;
    }
    let bound = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(|bytes| value(&leaf.primitive, bytes));
    let (lower, upper) = (bound(&entry.lower_bound), bound(&entry.upper_bound));
    // Bytes that are no value of the column's type.
    if matches!(lower, Some(None)) || matches!(upper, Some(None)) {
        return true;
    }
    let (lower, upper) = (lower.flatten(), upper.flatten());
    let has_column_orders = footer.file_metadata().column_orders().is_some();
    chunks().filter_map(|chunk| trusted(chunk, has_column_orders)).any(|statistics| {
        let (min, max) = known(&leaf.primitive, &statistics);
        let (exact_min, exact_max) = exactness(&statistics);
        // A minimum that was cut is below the real one, which the entry may have; but the entry's lower bound is below
        // the maximum in any case.
        let above = |lower: &Value| {
            let than = if exact_min { min.as_ref() } else { max.as_ref() };
            than.is_some_and(|than| order(lower, than) == Ordering::Greater)
        };
        let below = |upper: &Value| {
            let than = if exact_max { max.as_ref() } else { min.as_ref() };
            than.is_some_and(|than| order(upper, than) == Ordering::Less)
        };
        lower.as_ref().is_some_and(above) || upper.as_ref().is_some_and(below)
    })
}

/// Zero has two signs and writers bound it by either.
fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) if *one == 0.0 && *other == 0.0 => Ordering::Equal,
        (Value::Double(one), Value::Double(other)) if *one == 0.0 && *other == 0.0 => Ordering::Equal,
        _ => one.order(other),
    }
}

/// Whether minimum and maximum are values of the column. Only bytes are ever cut, and not every writer says so.
fn exactness(statistics: &Statistics) -> (bool, bool) {
    match statistics {
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            (statistics.min_is_exact(), statistics.max_is_exact())
        }
        _ => (true, true),
    }
}

/// Minimum and maximum of a chunk, widened to what they are sure to bound: a NaN bounds nothing, a zero is of either sign,
/// and text is text.
pub(super) fn known(primitive: &PrimitiveType, statistics: &Statistics) -> (Option<Value>, Option<Value>) {
    let (min, max) = extremes(primitive, statistics);
    (min.and_then(|min| widened(primitive, min, -0.0)), max.and_then(|max| widened(primitive, max, 0.0)))
}

/// A bound of a manifest as a value of the column; `None` for bytes that are none. Columns may have been promoted since.
pub(super) fn value(primitive: &PrimitiveType, bytes: &[u8]) -> Option<Value> {
    let int = |bytes: &[u8]| bytes.try_into().ok().map(|bytes| Value::Integer(i32::from_le_bytes(bytes).into()));
    let long = |bytes: &[u8]| bytes.try_into().ok().map(|bytes| Value::Integer(i64::from_le_bytes(bytes)));
    match primitive {
        PrimitiveType::Boolean => match bytes {
            [byte] => Some(Value::Boolean(*byte != 0)),
            _ => None,
        },
        PrimitiveType::Int | PrimitiveType::Date => int(bytes),
        PrimitiveType::Long => int(bytes).or_else(|| long(bytes)),
        PrimitiveType::Time
        | PrimitiveType::Timestamp
        | PrimitiveType::Timestamptz
        | PrimitiveType::TimestampNs
        | PrimitiveType::TimestamptzNs => long(bytes),
        PrimitiveType::Float => Some(Value::Float(f32::from_le_bytes(bytes.try_into().ok()?))),
        PrimitiveType::Double => match bytes.len() {
            4 => Some(Value::Double(f32::from_le_bytes(bytes.try_into().ok()?).into())),
            _ => Some(Value::Double(f64::from_le_bytes(bytes.try_into().ok()?))),
        },
        PrimitiveType::Decimal { .. } => (1..=16).contains(&bytes.len()).then(|| Value::Decimal(unscaled(bytes))),
        PrimitiveType::String => std::str::from_utf8(bytes).ok().map(|text| Value::Bytes(text.as_bytes().to_vec())),
        PrimitiveType::Uuid => (bytes.len() == 16).then(|| Value::Bytes(bytes.to_vec())),
        PrimitiveType::Fixed(_) | PrimitiveType::Binary => Some(Value::Bytes(bytes.to_vec())),
    }
}

/// The entry's bounds as far as they are sure to bound the column.
pub(super) fn bounds(primitive: &PrimitiveType, entry: &ColumnMetrics) -> (Option<Value>, Option<Value>) {
    let of = |bytes: &Option<Vec<u8>>, zero| {
        let value = value(primitive, bytes.as_deref()?)?;
        widened(primitive, value, zero)
    };
    (of(&entry.lower_bound, -0.0), of(&entry.upper_bound, 0.0))
}

fn widened(primitive: &PrimitiveType, value: Value, zero: f32) -> Option<Value> {
    match value {
        Value::Float(number) if number.is_nan() => None,
        Value::Double(number) if number.is_nan() => None,
        Value::Float(0.0) => Some(Value::Float(zero)),
        Value::Double(0.0) => Some(Value::Double(zero.into())),
        Value::Bytes(bytes) if *primitive == PrimitiveType::String && std::str::from_utf8(&bytes).is_err() => None,
        value => Some(value),
    }
}
