//! The condition applied to rows: one pass over each column for each test of it.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StructArray};
use arrow::array::{ArrayAccessor, AsArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use std::cmp::Ordering;

use super::bind::{BoundFilter, Column};
use super::condition::{Node, Test};
use super::error::FilterError;
use super::value::{Value, compare_floats};

/// The key under which Arrow fields carry their field id.
const FIELD_ID: &str = "PARQUET:field_id";

impl BoundFilter {
    /// Which of `rows` rows match. `column` gives a top-level column of them by its field id, in the Arrow type that the
    /// table's schema has; fields of structs carry their ids in the metadata of their Arrow fields. A field of a struct that
    /// is null is null. The result has no nulls.
    ///
    /// # Errors
    /// When a column is not there, or is of another type.
    pub fn evaluate(&self, column: &dyn Fn(i32) -> Option<ArrayRef>, rows: usize) -> Result<BooleanArray, FilterError> {
        let columns = self.columns.iter().map(|of| Resolved::new(of, column, rows)).collect::<Result<Vec<_>, _>>()?;
        Ok(BooleanArray::new(matching(&self.root, &columns, rows, &|leaf| (leaf.column, &leaf.test))?, None))
    }
}

fn matching<L>(
    node: &Node<L>,
    columns: &[Resolved<'_>],
    rows: usize,
    test: &impl Fn(&L) -> (usize, &Test),
) -> Result<BooleanBuffer, FilterError> {
    let mut parts = match node {
        Node::Constant(true) => return Ok(BooleanBuffer::new_set(rows)),
        Node::Constant(false) => return Ok(BooleanBuffer::new_unset(rows)),
        Node::Leaf(leaf) => {
            let (column, test) = test(leaf);
            return columns[column].matching(test);
        }
        Node::And(parts) | Node::Or(parts) => parts.iter(),
    };
    let is_and = matches!(node, Node::And(_));
    let mut all = match parts.next() {
        Some(first) => matching(first, columns, rows, test)?,
        None => return Ok(if is_and { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) }),
    };
    for part in parts {
        let part = matching(part, columns, rows, test)?;
        all = if is_and { &all & &part } else { &all | &part };
    }
    Ok(all)
}

/// A column found in the rows.
struct Resolved<'c> {
    column: &'c Column,
    array: ArrayRef,
    /// Its own nulls and those of the structs that it stands in.
    nulls: Option<NullBuffer>,
}

impl<'c> Resolved<'c> {
    fn new(column: &'c Column, top_level: &dyn Fn(i32) -> Option<ArrayRef>, rows: usize) -> Result<Self, FilterError> {
        let refuse = |problem: String| FilterError::Array { column: column.name.clone(), problem };
        let mut array = top_level(column.path[0]).ok_or_else(|| refuse("the rows do not have it".into()))?;
        if array.len() != rows {
            return Err(refuse(format!("it has {} values for {rows} rows", array.len())));
        }
        let mut nulls = array.logical_nulls();
        for id in &column.path[1..] {
            let parent: &StructArray =
                array.as_struct_opt().ok_or_else(|| refuse("it stands in what is no struct".into()))?;
            let at = parent.fields().iter().position(|field| field_id(field) == Some(*id));
            let child = at.map(|at| parent.column(at)).ok_or_else(|| refuse("its struct does not have it".into()))?;
            nulls = NullBuffer::union(nulls.as_ref(), child.logical_nulls().as_ref());
            array = child.clone();
        }
        Ok(Self { column, array, nulls })
    }

    fn matching(&self, test: &Test) -> Result<BooleanBuffer, FilterError> {
        let rows = self.array.len();
        let valid = || self.nulls.as_ref().map_or_else(|| BooleanBuffer::new_set(rows), |nulls| nulls.inner().clone());
        let values = match test {
            Test::IsNull => return Ok(!&valid()),
            Test::NotNull => return Ok(valid()),
            _ => self.of_values(test)?,
        };
        Ok(match &self.nulls {
            None => values,
            Some(nulls) if test.holds_for_null() => &values | &!nulls.inner(),
            Some(nulls) => &values & nulls.inner(),
        })
    }

    /// The test of each value, whatever it may be where the row is null.
    fn of_values(&self, test: &Test) -> Result<BooleanBuffer, FilterError> {
        let array = &self.array;
        let values = match array.data_type() {
            DataType::Boolean => ordered(array.as_boolean(), test, &|value| match value {
                Value::Boolean(value) => Some(*value),
                _ => None,
            }),
            DataType::Int32 => whole::<Int32Type>(array, test),
            DataType::Int64 => whole::<Int64Type>(array, test),
            DataType::Date32 => whole::<Date32Type>(array, test),
            DataType::Time64(TimeUnit::Microsecond) => whole::<Time64MicrosecondType>(array, test),
            DataType::Timestamp(TimeUnit::Microsecond, _) => whole::<TimestampMicrosecondType>(array, test),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => whole::<TimestampNanosecondType>(array, test),
            DataType::Decimal128(_, _) => whole::<Decimal128Type>(array, test),
            DataType::Float32 => float::<Float32Type>(array, test),
            DataType::Float64 => float::<Float64Type>(array, test),
            DataType::Utf8 => text(array.as_string::<i32>(), test),
            DataType::LargeUtf8 => text(array.as_string::<i64>(), test),
            DataType::Binary => bytes(array.as_binary::<i32>(), test),
            DataType::LargeBinary => bytes(array.as_binary::<i64>(), test),
            DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary(), test),
            _ => None,
        };
        values.ok_or_else(|| FilterError::Array {
            column: self.column.name.clone(),
            problem: format!("its rows are {} and the table has {}", array.data_type(), self.column.kind),
        })
    }
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID)?.parse().ok()
}

fn each<A: ArrayAccessor>(array: A, holds: impl FnMut(A::Item) -> bool) -> BooleanBuffer {
    BooleanArray::from_unary(array, holds).values().clone()
}

/// Tests of values with an order of their own. `None` when the test is not of such.
fn ordered<'a, A, T>(array: A, test: &'a Test, value: &impl Fn(&'a Value) -> Option<T>) -> Option<BooleanBuffer>
where
    A: ArrayAccessor<Item = T>,
    T: Ord + Copy,
{
    Some(match test {
        Test::Eq(of) => {
            let of = value(of)?;
            each(array, |value| value == of)
        }
        Test::NotEq(of) => {
            let of = value(of)?;
            each(array, |value| value != of)
        }
        Test::Lt(of) => {
            let of = value(of)?;
            each(array, |value| value < of)
        }
        Test::LtEq(of) => {
            let of = value(of)?;
            each(array, |value| value <= of)
        }
        Test::Gt(of) => {
            let of = value(of)?;
            each(array, |value| value > of)
        }
        Test::GtEq(of) => {
            let of = value(of)?;
            each(array, |value| value >= of)
        }
        Test::In(of) => {
            let of = of.iter().map(value).collect::<Option<Vec<_>>>()?;
            each(array, |value| of.binary_search(&value).is_ok())
        }
        Test::NotIn(of) => {
            let of = of.iter().map(value).collect::<Option<Vec<_>>>()?;
            each(array, |value| of.binary_search(&value).is_err())
        }
        _ => return None,
    })
}

fn whole<T>(array: &ArrayRef, test: &Test) -> Option<BooleanBuffer>
where
    T: ArrowPrimitiveType,
    T::Native: Ord + TryFrom<i128>,
{
    let array: &PrimitiveArray<T> = array.as_primitive_opt()?;
    ordered(array, test, &|value| match value {
        Value::Whole(value) => T::Native::try_from(*value).ok(),
        _ => None,
    })
}

fn text<'a, A: ArrayAccessor<Item = &'a str>>(array: A, test: &'a Test) -> Option<BooleanBuffer> {
    match test {
        Test::StartsWith(prefix) => Some(each(array, |value| value.starts_with(prefix.as_str()))),
        Test::NotStartsWith(prefix) => Some(each(array, |value| !value.starts_with(prefix.as_str()))),
        _ => ordered(array, test, &|value| match value {
            Value::Text(value) => Some(value.as_str()),
            _ => None,
        }),
    }
}

fn bytes<'a, A: ArrayAccessor<Item = &'a [u8]>>(array: A, test: &'a Test) -> Option<BooleanBuffer> {
    ordered(array, test, &|value| match value {
        Value::Bytes(value) => Some(value.as_slice()),
        _ => None,
    })
}

/// Arrow's own comparisons put the zeros apart and NaN by its bits.
fn float<T>(array: &ArrayRef, test: &Test) -> Option<BooleanBuffer>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let array: &PrimitiveArray<T> = array.as_primitive_opt()?;
    let compared = |of: &Value, how: fn(Ordering) -> bool| match of {
        Value::Float(of) => Some(each(array, |value| how(compare_floats(value.into(), *of)))),
        _ => None,
    };
    let contained = |of: &[Value], wanted: bool| {
        let of = of.iter().map(|value| match value {
            Value::Float(value) => Some(*value),
            _ => None,
        });
        let of = of.collect::<Option<Vec<f64>>>()?;
        let is_in = |value: f64| of.binary_search_by(|of| compare_floats(*of, value)).is_ok();
        Some(each(array, |value| is_in(value.into()) == wanted))
    };
    match test {
        Test::IsNan => Some(each(array, |value| value.into().is_nan())),
        Test::NotNan => Some(each(array, |value| !value.into().is_nan())),
        Test::Eq(of) => compared(of, Ordering::is_eq),
        Test::NotEq(of) => compared(of, Ordering::is_ne),
        Test::Lt(of) => compared(of, Ordering::is_lt),
        Test::LtEq(of) => compared(of, Ordering::is_le),
        Test::Gt(of) => compared(of, Ordering::is_gt),
        Test::GtEq(of) => compared(of, Ordering::is_ge),
        Test::In(of) => contained(of, true),
        Test::NotIn(of) => contained(of, false),
        Test::IsNull | Test::NotNull | Test::StartsWith(_) | Test::NotStartsWith(_) => None,
    }
}
