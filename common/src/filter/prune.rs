//! What statistics of many rows say of a condition: whether some row may match, and whether every row must.
//!
//! Both are safe: what is not known may be anything. Bounds leave null and NaN out, so these are followed on their own.

use std::cmp::Ordering;

use iceberg::spec::{Datum, PrimitiveType};

use super::bind::BoundFilter;
use super::condition::Test;
use super::value::{Value, is_float};

/// What is known of the columns of many rows: those of a file, a row group or a page.
pub trait Statistics {
    /// What is known of the column of this field id, in all of the rows.
    fn of(&self, field_id: i32) -> ColumnStatistics;
}

/// What is known of a column; `None` is unknown. Types may be those that the column had when it was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnStatistics {
    /// No value is less; null and NaN are not looked at.
    pub lower: Option<Datum>,
    /// No value is greater; null and NaN are not looked at. Of text and bytes it may be the first part of the greatest value.
    pub upper: Option<Datum>,
    /// Whether the bounds are the least and greatest value themselves. Counts for text and bytes, which may be cut.
    pub is_exact: bool,
    /// Nulls.
    pub null_count: Option<u64>,
    /// NaNs.
    pub nan_count: Option<u64>,
    /// Values, nulls and NaNs included.
    pub value_count: Option<u64>,
}

impl BoundFilter {
    /// Whether some row may match. `false` is certain.
    pub fn may_match(&self, statistics: &dyn Statistics) -> bool {
        self.root.holds(&|leaf| self.range(leaf.column, statistics).may_match(&leaf.test))
    }

    /// Whether every row matches, so that rows need not be looked at. `true` is certain.
    pub fn must_match(&self, statistics: &dyn Statistics) -> bool {
        self.root.holds(&|leaf| self.range(leaf.column, statistics).must_match(&leaf.test))
    }

    fn range(&self, column: usize, statistics: &dyn Statistics) -> Range {
        let column = &self.columns[column];
        Range::of(&column.kind, &statistics.of(column.id()))
    }
}

/// Values that a column may have.
#[derive(Debug, Clone)]
pub(super) struct Range {
    pub(super) lower: Option<Value>,
    pub(super) upper: Option<Value>,
    pub(super) is_exact: bool,
    pub(super) may_be_null: bool,
    pub(super) may_be_nan: bool,
    /// Whether there may be anything else.
    pub(super) may_be_value: bool,
}

impl Range {
    fn of(kind: &PrimitiveType, statistics: &ColumnStatistics) -> Self {
        let ColumnStatistics { null_count, nan_count, value_count, .. } = *statistics;
        let nans = if is_float(kind) { nan_count } else { Some(0) };
        let are_all = |count: Option<u64>| count.is_some() && count == value_count;
        let no_values = are_all(null_count) || are_all(null_count.zip(nans).and_then(|(a, b)| a.checked_add(b)));
        let bound = |datum: &Option<Datum>| datum.as_ref().and_then(|datum| Value::of_datum(kind, datum));
        Self {
            lower: bound(&statistics.lower),
            upper: bound(&statistics.upper),
            is_exact: statistics.is_exact,
            may_be_null: null_count != Some(0),
            may_be_nan: nans != Some(0) && !are_all(null_count),
            may_be_value: !no_values,
        }
        .trusted(kind)
    }

    /// Without bounds that say nothing: those that are the wrong way round, or NaN, as some writers have it; and of UUIDs, which
    /// some writers order by signed halves, all but a single value.
    pub(super) fn trusted(mut self, kind: &PrimitiveType) -> Self {
        // They have all their bytes, or are none.
        self.is_exact |= *kind == PrimitiveType::Uuid;
        let is_nan = |bound: &Option<Value>| bound.as_ref().is_some_and(Value::is_nan);
        let untrusted_uuid = *kind == PrimitiveType::Uuid && !self.is_single();
        let compared = self.lower.as_ref().zip(self.upper.as_ref()).and_then(|(lower, upper)| lower.compare(upper));
        let is_inverted = compared == Some(Ordering::Greater);
        if is_nan(&self.lower) || is_nan(&self.upper) || is_inverted || untrusted_uuid {
            (self.lower, self.upper) = (None, None);
        }
        self
    }

    /// The range of one value, or of null.
    pub(super) fn one(value: Option<Value>) -> Self {
        let is_nan = value.as_ref().is_some_and(Value::is_nan);
        let ordinary = value.clone().filter(|value| !value.is_nan());
        Self {
            lower: ordinary.clone(),
            upper: ordinary.clone(),
            is_exact: true,
            may_be_null: value.is_none(),
            may_be_nan: is_nan,
            may_be_value: ordinary.is_some(),
        }
    }

    pub(super) fn may_match(&self, test: &Test) -> bool {
        (self.may_be_null && test.holds_for_null())
            || (self.may_be_nan && test.holds_for_nan())
            || (self.may_be_value && self.may_hold(test))
    }

    pub(super) fn must_match(&self, test: &Test) -> bool {
        let fails_for_null = self.may_be_null && !test.holds_for_null();
        let fails_for_nan = self.may_be_nan && !test.holds_for_nan();
        let fails_for_value = self.may_be_value && self.may_hold(&test.negated());
        !(fails_for_null || fails_for_nan || fails_for_value)
    }

    /// Whether the test may be true of a value between the bounds, null and NaN aside.
    fn may_hold(&self, test: &Test) -> bool {
        match test {
            Test::IsNull | Test::IsNan => false,
            Test::NotNull | Test::NotNan => true,
            Test::Eq(value) => self.may_hold_value(value),
            Test::NotEq(value) => !(self.is_single() && self.lower_is(value, Ordering::is_eq)),
            Test::Lt(value) => !self.lower_is(value, Ordering::is_ge),
            Test::LtEq(value) => !self.lower_is(value, Ordering::is_gt),
            Test::Gt(value) => !self.upper_is(value, Ordering::is_le),
            Test::GtEq(value) => !self.upper_is(value, Ordering::is_lt),
            Test::In(values) => values.iter().any(|value| self.may_hold_value(value)),
            Test::NotIn(values) => {
                !(self.is_single() && values.iter().any(|value| self.lower_is(value, Ordering::is_eq)))
            }
            Test::StartsWith(prefix) => {
                let prefix = Value::Text(prefix.clone());
                let all_are_above = self.lower_is(&prefix, Ordering::is_gt) && !begins(&prefix, &self.lower);
                !all_are_above && !self.upper_is(&prefix, Ordering::is_lt)
            }
            Test::NotStartsWith(prefix) => {
                let prefix = Value::Text(prefix.clone());
                !(begins(&prefix, &self.lower) && begins(&prefix, &self.upper))
            }
        }
    }

    fn may_hold_value(&self, value: &Value) -> bool {
        !self.lower_is(value, Ordering::is_gt) && !self.upper_is(value, Ordering::is_lt)
    }

    /// Whether there is one value only.
    fn is_single(&self) -> bool {
        let cannot_be_cut = !matches!(self.lower, Some(Value::Text(_) | Value::Bytes(_)));
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) => {
                (self.is_exact || cannot_be_cut) && lower.compare(upper) == Some(Ordering::Equal)
            }
            _ => false,
        }
    }

    /// Whether the lower bound is surely so to a value, and with it, if it is greater, all values.
    fn lower_is(&self, value: &Value, how: impl Fn(Ordering) -> bool) -> bool {
        self.lower.as_ref().and_then(|lower| lower.compare(value)).is_some_and(how)
    }

    /// Whether the upper bound is surely so to a value, and with it, if it is less, all values. A bound that may be cut stands
    /// for all that begins with it.
    fn upper_is(&self, value: &Value, how: impl Fn(Ordering) -> bool) -> bool {
        let Some(upper) = &self.upper else { return false };
        (self.is_exact || !upper.begins(value)) && upper.compare(value).is_some_and(how)
    }
}

fn begins(prefix: &Value, bound: &Option<Value>) -> bool {
    bound.as_ref().is_some_and(|bound| prefix.begins(bound))
}
