//! From the type that a file has to the type that the table has, value by value and exactly.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Int64Type, Time32MillisecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow::error::ArrowError;
use iceberg::spec::PrimitiveType;

const SECONDS_PER_DAY: i64 = 86_400;

/// How values of a file become values of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Conversion {
    /// They are the same.
    None,
    /// Same value in a type that holds it; a value that does not fit is an error.
    Cast(DataType),
    /// A decimal of the same scale and a precision that is no smaller.
    Decimal {
        /// Precision in the table.
        precision: u8,
        /// Scale in both.
        scale: i8,
    },
    /// A time or timestamp in another unit or under another name of its zone, or a date as its midnight.
    Time {
        /// The type in the table.
        to: DataType,
    },
}

/// How a column of type `file` is read as a column of type `table`; `None` when that would not be exact.
///
/// Beside the promotions of the Iceberg spec (int to long, float to double, wider decimals, date to timestamp) these are the forms in which
/// other writers keep values of an Iceberg type: narrower and unsigned integers, other units of time, text and bytes
/// without an annotation. Time zones: a timestamp is the same integer with and without one, and older writers do not
/// say which they mean, so the table decides.
pub(super) fn conversion(file: &DataType, int96: bool, table: &PrimitiveType, arrow: &DataType) -> Option<Conversion> {
    use DataType as Arrow;
    if file == arrow {
        return Some(Conversion::None);
    }
    let cast = || Some(Conversion::Cast(arrow.clone()));
    let time = || Some(Conversion::Time { to: arrow.clone() });
    match (table, file) {
        // A column that its writer knew to be null throughout.
        (_, Arrow::Null) => cast(),
        (PrimitiveType::Int, Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 | Arrow::UInt16 | Arrow::UInt32) => cast(),
        (
            PrimitiveType::Long,
            Arrow::Int8 | Arrow::Int16 | Arrow::Int32 | Arrow::UInt8 | Arrow::UInt16 | Arrow::UInt32 | Arrow::UInt64,
        ) => cast(),
        (PrimitiveType::Double, Arrow::Float32) => cast(),
        (PrimitiveType::Decimal { precision, scale }, Arrow::Decimal128(file_precision, file_scale)) => {
            let (precision, scale) = (u8::try_from(*precision).ok()?, i8::try_from(*scale).ok()?);
            let widens = *file_scale == scale && *file_precision <= precision;
            widens.then_some(Conversion::Decimal { precision, scale })
        }
        // Fixed bytes longer than needed make Arrow take 256 bits for a precision that fits 128.
        (PrimitiveType::Decimal { precision, scale }, Arrow::Decimal256(file_precision, file_scale)) => {
            let fits = i64::from(*file_scale) == i64::from(*scale) && u32::from(*file_precision) <= *precision;
            if fits { cast() } else { None }
        }
        (PrimitiveType::Time, Arrow::Time32(TimeUnit::Millisecond) | Arrow::Time64(_)) => time(),
        (PrimitiveType::Timestamp | PrimitiveType::Timestamptz, Arrow::Timestamp(..)) => time(),
        (PrimitiveType::Timestamp | PrimitiveType::TimestampNs, Arrow::Date32) => time(),
        // INT96 is decoded to microseconds, so nanoseconds would be lost.
        (PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs, Arrow::Timestamp(..)) if !int96 => time(),
        (PrimitiveType::String, Arrow::Binary) => cast(),
        (PrimitiveType::Binary, Arrow::Binary | Arrow::Utf8) => cast(),
        _ => None,
    }
}

impl Conversion {
    /// Converts a column.
    pub(super) fn apply(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::None => Ok(Arc::clone(array)),
            // Not `safe`, which would turn what does not fit into null without a word.
            Self::Cast(to) => cast_with_options(array, to, &CastOptions { safe: false, ..CastOptions::default() }),
            Self::Decimal { precision, scale } => {
                let decimals = array.as_primitive::<Decimal128Type>().clone();
                Ok(Arc::new(decimals.with_precision_and_scale(*precision, *scale)?))
            }
            Self::Time { to } => time(array, to),
        }
    }
}

fn time(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if *array.data_type() == DataType::Date32 {
        let per_day = SECONDS_PER_DAY * per_second(unit_of(to)?);
        let midnight =
            |days: i32| i64::from(days).checked_mul(per_day).ok_or_else(|| inexact(days.into(), "too far from 1970"));
        return named(array.as_primitive::<Date32Type>().try_unary::<_, Int64Type, _>(midnight)?, to);
    }
    let (values, from): (PrimitiveArray<Int64Type>, _) = match array.data_type() {
        DataType::Time32(TimeUnit::Millisecond) => {
            let wide = array.as_primitive::<Time32MillisecondType>().unary::<_, Int64Type>(i64::from);
            (wide, TimeUnit::Millisecond)
        }
        DataType::Time64(TimeUnit::Microsecond) => (raw::<Time64MicrosecondType>(array), TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond) => (raw::<Time64NanosecondType>(array), TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (raw::<TimestampMillisecondType>(array), TimeUnit::Millisecond)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (raw::<TimestampMicrosecondType>(array), TimeUnit::Microsecond)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => (raw::<TimestampNanosecondType>(array), TimeUnit::Nanosecond),
        other => return Err(ArrowError::CastError(format!("{other} is no time of a Parquet file"))),
    };
    let values = match (per_second(from), per_second(unit_of(to)?)) {
        (from, to) if from == to => values,
        (from, to) if from < to => {
            let factor = to / from;
            let scale = |value: i64| value.checked_mul(factor).ok_or_else(|| inexact(value, "too far from 1970"));
            values.try_unary::<_, Int64Type, _>(scale)?
        }
        (from, to) => {
            let factor = from / to;
            let scale = |value: i64| {
                if value % factor == 0 { Ok(value / factor) } else { Err(inexact(value, "finer than a microsecond")) }
            };
            values.try_unary::<_, Int64Type, _>(scale)?
        }
    };
    named(values, to)
}

/// Same bits, the table's name for them.
fn named(values: PrimitiveArray<Int64Type>, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let data = values.into_data().into_builder().data_type(to.clone()).build()?;
    Ok(arrow::array::make_array(data))
}

fn raw<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> PrimitiveArray<Int64Type> {
    let times = array.as_primitive::<T>();
    PrimitiveArray::new(times.values().clone(), times.nulls().cloned())
}

fn unit_of(data_type: &DataType) -> Result<TimeUnit, ArrowError> {
    match data_type {
        DataType::Time64(unit) | DataType::Timestamp(unit, _) => Ok(*unit),
        other => Err(ArrowError::CastError(format!("{other} is no time of an Iceberg table"))),
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn inexact(value: i64, what: &str) -> ArrowError {
    ArrowError::CastError(format!("the time value {value} is {what}, and the table's type cannot hold it"))
}
