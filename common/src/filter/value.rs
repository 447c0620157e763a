//! Values of a column's type: how they are made, and the one order in which rows, bounds and partitions are compared.

use std::cmp::Ordering;

use iceberg::spec::{Datum, PrimitiveLiteral, PrimitiveType};

use super::syntax::{hex, quoted};

/// A value of a column. What the types of Iceberg that it stands for have in common is one variant, so that a value from
/// before a column was promoted is equal to one from after it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Boolean(bool),
    /// Integers, dates, times and timestamps in the column's unit, and decimals by their digits at the column's scale.
    Whole(i128),
    Float(f64),
    Text(String),
    /// Bytes and UUIDs.
    Bytes(Vec<u8>),
}

impl Value {
    /// The value of a literal, in the type that its column has now. `None` when it is of a type that the column cannot have
    /// had before.
    pub(super) fn of(column: &PrimitiveType, literal: &PrimitiveLiteral) -> Option<Self> {
        use PrimitiveLiteral as L;
        use PrimitiveType as T;
        match (column, literal) {
            (T::Boolean, L::Boolean(value)) => Some(Self::Boolean(*value)),
            (T::Int | T::Long | T::Date, L::Int(value)) => Some(Self::Whole(i128::from(*value))),
            (T::Long | T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs, L::Long(value)) => {
                Some(Self::Whole(i128::from(*value)))
            }
            // A date that has become a timestamp.
            (T::Timestamp | T::TimestampNs, L::Int(days)) => {
                Some(Self::Whole(i128::from(*days) * i128::from(units_per_day(column)?)))
            }
            (T::Float | T::Double, L::Float(value)) => Some(Self::Float(f64::from(value.0))),
            (T::Double, L::Double(value)) => Some(Self::Float(value.0)),
            (T::Decimal { .. }, L::Int128(value)) => Some(Self::Whole(*value)),
            (T::String, L::String(value)) => Some(Self::Text(value.clone())),
            (T::Uuid, L::UInt128(value)) => Some(Self::Bytes(value.to_be_bytes().to_vec())),
            (T::Fixed(_) | T::Binary, L::Binary(value)) => Some(Self::Bytes(value.clone())),
            _ => None,
        }
    }

    /// The value of a datum, as [`Self::of`]. A decimal of another scale is none of the column's.
    pub(super) fn of_datum(column: &PrimitiveType, datum: &Datum) -> Option<Self> {
        if let (PrimitiveType::Decimal { scale, .. }, PrimitiveType::Decimal { scale: found, .. }) =
            (column, datum.data_type())
            && scale != found
        {
            return None;
        }
        Self::of(column, datum.literal())
    }

    pub(super) fn is_nan(&self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    /// Whether the other begins with it: what may be left of a text or of bytes when they are cut.
    pub(super) fn begins(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(prefix), Self::Text(text)) => text.starts_with(prefix.as_str()),
            (Self::Bytes(prefix), Self::Bytes(bytes)) => bytes.starts_with(prefix),
            _ => false,
        }
    }

    /// Compares two values of one column; `None` when they are not of one.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Boolean(left), Self::Boolean(right)) => Some(left.cmp(right)),
            (Self::Whole(left), Self::Whole(right)) => Some(left.cmp(right)),
            (Self::Float(left), Self::Float(right)) => Some(compare_floats(*left, *right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Bytes(left), Self::Bytes(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }

    pub(super) fn canonical(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Whole(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Text(value) => quoted(value, '\''),
            Self::Bytes(value) => format!("x'{}'", hex(value)),
        }
    }
}

/// Zeros are equal, NaN is equal to NaN and larger than all else.
pub(super) fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

pub(super) fn is_float(kind: &PrimitiveType) -> bool {
    matches!(kind, PrimitiveType::Float | PrimitiveType::Double)
}

/// Of a timestamp.
pub(super) fn units_per_day(kind: &PrimitiveType) -> Option<i64> {
    match kind {
        PrimitiveType::Timestamp | PrimitiveType::Timestamptz => Some(86_400_000_000),
        PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs => Some(86_400_000_000_000),
        _ => None,
    }
}

/// The datum of a whole number: an integer, a date, a time, a timestamp in the type's own unit, or the digits of a decimal at
/// its scale. `None` when the type does not hold it, or holds other things.
pub fn whole_datum(kind: &PrimitiveType, value: i128) -> Option<Datum> {
    let bytes = match kind {
        PrimitiveType::Int | PrimitiveType::Date => i32::try_from(value).ok()?.to_le_bytes().to_vec(),
        PrimitiveType::Decimal { .. } => value.to_be_bytes().to_vec(),
        PrimitiveType::Long
        | PrimitiveType::Time
        | PrimitiveType::Timestamp
        | PrimitiveType::Timestamptz
        | PrimitiveType::TimestampNs
        | PrimitiveType::TimestamptzNs => i64::try_from(value).ok()?.to_le_bytes().to_vec(),
        _ => return None,
    };
    Datum::try_from_bytes(&bytes, kind.clone()).ok()
}

/// The datum of a value, as the iceberg crate takes it for its transforms. `None` when the type does not hold it, and for
/// booleans and floats, which have no use for it.
pub(super) fn datum(kind: &PrimitiveType, value: &Value) -> Option<Datum> {
    let bytes = match (kind, value) {
        (_, Value::Whole(value)) => return whole_datum(kind, *value),
        (PrimitiveType::String, Value::Text(text)) => text.as_bytes(),
        (PrimitiveType::Uuid | PrimitiveType::Fixed(_) | PrimitiveType::Binary, Value::Bytes(bytes)) => bytes,
        _ => return None,
    };
    Datum::try_from_bytes(bytes, kind.clone()).ok()
}
