//! Tests of a column as tests of what a partition transform makes of its values.
//!
//! The floors here are our own: those of the iceberg crate are off by one for times before 1970, and overflow next to the
//! smallest numbers.

use iceberg::spec::{PrimitiveType, Transform};
use iceberg::transform::create_transform_function;

use super::condition::Test;
use super::prune::Range;
use super::value::{Value, datum, units_per_day};

/// Which values of a partition may not be what the transform gives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doubt {
    None,
    /// Some writers cut times before 1970 toward zero, so that a value may be one too high.
    OneTooHigh,
    /// Truncating next to the smallest number overflows; such a value is a very large one, or no multiple of the width.
    Overflow {
        width: i128,
    },
}

impl Doubt {
    /// The range of what the transform may have given; `None` when that is anything.
    pub(super) fn widened(self, mut range: Range) -> Option<Range> {
        match self {
            Self::None => Some(range),
            Self::OneTooHigh => {
                if let Some(Value::Whole(lower)) = &mut range.lower
                    && *lower <= 0
                {
                    *lower -= 1;
                }
                Some(range)
            }
            Self::Overflow { width } => {
                let (Some(Value::Whole(lower)), Some(Value::Whole(upper))) = (&range.lower, &range.upper) else {
                    let is_null = range.may_be_null && !range.may_be_value;
                    return is_null.then_some(range);
                };
                let is_multiple = |value: &i128| value.rem_euclid(width) == 0;
                // The column may have been one of ints.
                let wraps = [i128::from(i32::MAX), i128::from(i64::MAX)];
                let may_have_wrapped = wraps.iter().any(|max| *lower <= *max && *upper > *max - width);
                (is_multiple(lower) && is_multiple(upper) && !may_have_wrapped).then_some(range)
            }
        }
    }
}

/// A test of a transform's value, the type of that value, and how far it can be relied on.
type Projected = (Test, PrimitiveType, Doubt);

/// What must hold of a transform's value if the test holds of the column's; `None` when nothing must.
pub(super) fn project(transform: Transform, kind: &PrimitiveType, test: &Test) -> Option<Projected> {
    if transform == Transform::Identity {
        return Some((test.clone(), kind.clone(), Doubt::None));
    }
    // Null and nothing else gives null, save what gives it always or is not known.
    let (doubt, result) = match transform {
        Transform::Bucket(_) => (Doubt::None, PrimitiveType::Int),
        Transform::Truncate(0) => return None,
        Transform::Truncate(width) => (Doubt::Overflow { width: i128::from(width) }, kind.clone()),
        Transform::Year | Transform::Month | Transform::Day | Transform::Hour => {
            (Doubt::OneTooHigh, PrimitiveType::Int)
        }
        Transform::Identity | Transform::Void | Transform::Unknown => return None,
    };
    let doubt = match (doubt, kind) {
        (Doubt::Overflow { .. }, PrimitiveType::String | PrimitiveType::Binary | PrimitiveType::Fixed(_)) => {
            Doubt::None
        }
        (doubt, _) => doubt,
    };
    let test = match (test, transform) {
        (Test::IsNull, _) => return Some((Test::IsNull, result, Doubt::None)),
        (Test::NotNan, _) => return None,
        (Test::Eq(_) | Test::In(_), Transform::Bucket(count)) => map(test, &|value| bucket(count, kind, value)),
        (_, Transform::Bucket(_)) => None,
        (Test::StartsWith(prefix), Transform::Truncate(width)) => Some(starts_with(prefix, width)),
        (Test::NotStartsWith(prefix), Transform::Truncate(width)) => {
            (prefix.chars().count() <= width as usize).then(|| test.clone())
        }
        (_, Transform::Truncate(width)) => ordered(test, &|value| truncated(width, kind, value)),
        _ => ordered(test, &|value| Some(Value::Whole(period(transform, kind, value)?))),
    };
    // Whatever else holds of a value, it is not null.
    Some(match test {
        Some(test) => (test, result, doubt),
        None => (Test::NotNull, result, Doubt::None),
    })
}

/// The test of the transform's value by a transform that keeps the order, or puts values together.
fn ordered(test: &Test, transform: &impl Fn(&Value) -> Option<Value>) -> Option<Test> {
    match test {
        // Between whole numbers there is nothing: less than 5 is 4 at most.
        Test::Lt(Value::Whole(value)) => Some(Test::LtEq(transform(&Value::Whole(value - 1))?)),
        Test::Gt(Value::Whole(value)) => Some(Test::GtEq(transform(&Value::Whole(value + 1))?)),
        Test::Lt(value) | Test::LtEq(value) => Some(Test::LtEq(transform(value)?)),
        Test::Gt(value) | Test::GtEq(value) => Some(Test::GtEq(transform(value)?)),
        _ => map(test, transform),
    }
}

fn map(test: &Test, transform: &impl Fn(&Value) -> Option<Value>) -> Option<Test> {
    match test {
        Test::Eq(value) => Some(Test::Eq(transform(value)?)),
        Test::In(values) => Some(Test::In(values.iter().map(transform).collect::<Option<_>>()?)),
        _ => None,
    }
}

fn bucket(count: u32, kind: &PrimitiveType, value: &Value) -> Option<Value> {
    let is_nanos = matches!(kind, PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs);
    if count == 0 || i32::try_from(count).is_err() || is_nanos {
        return None;
    }
    let bucket = create_transform_function(&Transform::Bucket(count)).ok()?;
    let datum = bucket.transform_literal(&datum(kind, value)?).ok()??;
    Value::of_datum(&PrimitiveType::Int, &datum)
}

fn starts_with(prefix: &str, width: u32) -> Test {
    let cut = first_chars(prefix, width);
    // A text as long as the width or longer is cut to what the longer prefix is cut to.
    if cut.len() < prefix.len() { Test::Eq(Value::Text(cut.to_owned())) } else { Test::StartsWith(prefix.to_owned()) }
}

fn first_chars(text: &str, count: u32) -> &str {
    text.char_indices().nth(count as usize).map_or(text, |(end, _)| &text[..end])
}

fn truncated(width: u32, kind: &PrimitiveType, value: &Value) -> Option<Value> {
    match value {
        Value::Whole(value) => {
            let floor = value.checked_sub(value.rem_euclid(i128::from(width)))?;
            let fits = match kind {
                PrimitiveType::Int => i32::try_from(floor).is_ok(),
                PrimitiveType::Long => i64::try_from(floor).is_ok(),
                PrimitiveType::Decimal { .. } => true,
                _ => false,
            };
            fits.then_some(Value::Whole(floor))
        }
        Value::Text(text) => Some(Value::Text(first_chars(text, width).to_owned())),
        Value::Bytes(bytes) if *kind != PrimitiveType::Uuid => {
            Some(Value::Bytes(bytes.iter().copied().take(width as usize).collect()))
        }
        Value::Bytes(_) | Value::Boolean(_) | Value::Float(_) => None,
    }
}

/// Years, months, days or hours since 1970 of a date or timestamp, the floor of them.
fn period(transform: Transform, kind: &PrimitiveType, value: &Value) -> Option<i128> {
    let Value::Whole(value) = value else { return None };
    let (days, hours) = match kind {
        PrimitiveType::Date => (*value, None),
        kind => {
            let per_day = i128::from(units_per_day(kind)?);
            (value.div_euclid(per_day), Some(value.div_euclid(per_day / 24)))
        }
    };
    match transform {
        Transform::Day => Some(days),
        Transform::Hour => hours,
        Transform::Year | Transform::Month => {
            use chrono::Datelike;
            let date = chrono::NaiveDate::from_epoch_days(i32::try_from(days).ok()?)?;
            let years = i128::from(date.year()) - 1970;
            Some(if transform == Transform::Year { years } else { years * 12 + i128::from(date.month0()) })
        }
        _ => None,
    }
}
