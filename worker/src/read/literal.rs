//! Values that stand in metadata - defaults and partition constants - as Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, StringArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, UInt32Array, new_null_array,
};
use arrow::compute;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;
use iceberg::spec::{Literal, NestedField, PrimitiveLiteral, Type};

/// An array of one row that holds a value, or null; the reason why not when the value does not fit the type.
pub(crate) fn one_row(value: Option<&Literal>, table_type: &Type, arrow_type: &DataType) -> Result<ArrayRef, String> {
    match (value, table_type) {
        (None, _) => Ok(new_null_array(arrow_type, 1)),
        (Some(Literal::Primitive(value)), Type::Primitive(_)) => primitive(value, arrow_type),
        (Some(Literal::Struct(values)), Type::Struct(fields)) => {
            let DataType::Struct(arrow_fields) = arrow_type else { return Err(misfit(arrow_type)) };
            // A struct's default names no values of its children: each child's own default counts.
            let child = |((field, arrow_field), value): ((&Arc<NestedField>, &Arc<arrow::datatypes::Field>), _)| {
                let value: Option<&Literal> = value;
                one_row(value.or(field.initial_default.as_ref()), &field.field_type, arrow_field.data_type())
            };
            let columns = fields.fields().iter().zip(arrow_fields).zip(values.iter()).map(child);
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let array = StructArray::try_new_with_length(arrow_fields.clone(), columns, None, 1);
            Ok(Arc::new(array.map_err(|error| error.to_string())?))
        }
        (Some(_), Type::List(_) | Type::Map(_)) => {
            Err("defaults of lists and maps other than null are not supported".into())
        }
        (Some(_), _) => Err(misfit(arrow_type)),
    }
}

fn misfit(arrow_type: &DataType) -> String {
    format!("its default or partition value does not fit {arrow_type}")
}

fn primitive(value: &PrimitiveLiteral, arrow_type: &DataType) -> Result<ArrayRef, String> {
    use PrimitiveLiteral as Value;
    let error = |error: ArrowError| error.to_string();
    Ok(match (value, arrow_type) {
        (Value::Boolean(value), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*value])),
        (Value::Int(value), DataType::Int32) => Arc::new(Int32Array::from(vec![*value])),
        (Value::Int(value), DataType::Int64) => Arc::new(Int64Array::from(vec![i64::from(*value)])),
        (Value::Int(value), DataType::Date32) => Arc::new(Date32Array::from(vec![*value])),
        (Value::Long(value), DataType::Int64) => Arc::new(Int64Array::from(vec![*value])),
        (Value::Long(value), DataType::Time64(TimeUnit::Microsecond)) => {
            Arc::new(Time64MicrosecondArray::from(vec![*value]))
        }
        (Value::Long(value), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            Arc::new(TimestampMicrosecondArray::from(vec![*value]).with_timezone_opt(zone.clone()))
        }
        (Value::Long(value), DataType::Timestamp(TimeUnit::Nanosecond, zone)) => {
            Arc::new(TimestampNanosecondArray::from(vec![*value]).with_timezone_opt(zone.clone()))
        }
        (Value::Float(value), DataType::Float32) => Arc::new(Float32Array::from(vec![value.0])),
        (Value::Float(value), DataType::Float64) => Arc::new(Float64Array::from(vec![f64::from(value.0)])),
        (Value::Double(value), DataType::Float64) => Arc::new(Float64Array::from(vec![value.0])),
        (Value::String(value), DataType::Utf8) => Arc::new(StringArray::from(vec![value.as_str()])),
        (Value::Binary(value), DataType::LargeBinary) => Arc::new(LargeBinaryArray::from(vec![value.as_slice()])),
        (Value::Binary(value), DataType::FixedSizeBinary(length)) if usize::try_from(*length) == Ok(value.len()) => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(value)).map_err(error)?)
        }
        (Value::Int128(value), DataType::Decimal128(precision, scale)) => {
            let array = Decimal128Array::from(vec![*value]).with_precision_and_scale(*precision, *scale);
            let array = array.map_err(error)?;
            array.validate_decimal_precision(*precision).map_err(error)?;
            Arc::new(array)
        }
        (Value::UInt128(value), DataType::FixedSizeBinary(16)) => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(value.to_be_bytes())).map_err(error)?)
        }
        _ => return Err(misfit(arrow_type)),
    })
}

/// A column that holds one value in every row.
#[derive(Debug)]
pub(super) struct Repeated {
    one: ArrayRef,
    /// The longest column made so far: all batches but the last are as long as the first.
    longest: ArrayRef,
}

impl Repeated {
    pub(super) fn new(one: ArrayRef) -> Self {
        Self { longest: Arc::clone(&one), one }
    }

    pub(super) fn rows(&mut self, count: usize) -> Result<ArrayRef, ArrowError> {
        if self.longest.len() < count {
            self.longest = if self.one.is_null(0) {
                new_null_array(self.one.data_type(), count)
            } else {
                compute::take(&self.one, &UInt32Array::from(vec![0u32; count]), None)?
            };
        }
        Ok(self.longest.slice(0, count))
    }
}
