//! Which encodings of a file's columns are those of an Iceberg type, or of one that readers promote to it.

use iceberg::spec::PrimitiveType;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::Type as ParquetType;

use crate::stage::layout::parquet_leaf;

/// Bytes of the largest decimal.
const DECIMAL_BYTES_MAX: i32 = 16;

/// What a column's annotation says, whichever of the two kinds of annotation it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Annotation {
    None,
    Text,
    Decimal { precision: i32, scale: i32 },
    Date,
    TimeMicros,
    Timestamp { is_utc: bool, unit: TimeUnit },
    Signed { bits: i8 },
    Uuid,
    Other,
}

fn annotation(column: &ParquetType) -> Annotation {
    let info = column.get_basic_info();
    match info.logical_type_ref() {
        Some(LogicalType::String) => Annotation::Text,
        Some(LogicalType::Decimal { scale, precision }) => Annotation::Decimal { precision: *precision, scale: *scale },
        Some(LogicalType::Date) => Annotation::Date,
        // Of times of day readers do not ask for a zone, and writers disagree on what to say of it.
        Some(LogicalType::Time { unit: TimeUnit::MICROS, .. }) => Annotation::TimeMicros,
        Some(LogicalType::Timestamp { is_adjusted_to_u_t_c, unit }) => {
            Annotation::Timestamp { is_utc: *is_adjusted_to_u_t_c, unit: *unit }
        }
        Some(LogicalType::Integer { bit_width, is_signed: true }) => Annotation::Signed { bits: *bit_width },
        Some(LogicalType::Uuid) => Annotation::Uuid,
        Some(_) => Annotation::Other,
        None => match info.converted_type() {
            ConvertedType::NONE => Annotation::None,
            ConvertedType::UTF8 => Annotation::Text,
            ConvertedType::DECIMAL => {
                Annotation::Decimal { precision: column.get_precision(), scale: column.get_scale() }
            }
            ConvertedType::DATE => Annotation::Date,
            ConvertedType::TIME_MICROS => Annotation::TimeMicros,
            ConvertedType::TIMESTAMP_MICROS => Annotation::Timestamp { is_utc: true, unit: TimeUnit::MICROS },
            ConvertedType::INT_32 => Annotation::Signed { bits: 32 },
            ConvertedType::INT_64 => Annotation::Signed { bits: 64 },
            _ => Annotation::Other,
        },
    }
}

/// The column of a new file that holds the bytes of `column` as values of `primitive`; `None` when its encoding is not one
/// that readers of Iceberg take for that type. Levels, and so repetition, stay as they are.
pub(super) fn carried(column: &ParquetType, primitive: &PrimitiveType, name: &str, id: i32) -> Option<ParquetType> {
    let ParquetType::PrimitiveType { physical_type, type_length, .. } = column else { return None };
    let (physical, length) = (*physical_type, *type_length);
    let repetition = column.get_basic_info().repetition();
    // Two-level lists are lists by their own repetition.
    if repetition == Repetition::REPEATED {
        return None;
    }
    let found = annotation(column);
    let fixed = |bytes: i32| physical == Physical::FIXED_LEN_BYTE_ARRAY && length == bytes;
    let signed = |bits: i8| matches!(found, Annotation::None) || found == Annotation::Signed { bits };
    let timestamp = |is_utc, unit| physical == Physical::INT64 && found == Annotation::Timestamp { is_utc, unit };
    let stored = match (primitive, physical) {
        (PrimitiveType::Boolean, Physical::BOOLEAN) if found == Annotation::None => primitive.clone(),
        (PrimitiveType::Int | PrimitiveType::Long, Physical::INT32) if signed(32) => PrimitiveType::Int,
        (PrimitiveType::Long, Physical::INT64) if signed(64) => PrimitiveType::Long,
        (PrimitiveType::Float | PrimitiveType::Double, Physical::FLOAT) if found == Annotation::None => {
            PrimitiveType::Float
        }
        (PrimitiveType::Double, Physical::DOUBLE) if found == Annotation::None => PrimitiveType::Double,
        (PrimitiveType::Decimal { precision, scale }, _) => {
            return decimal(column, found, (*precision, *scale), name, id);
        }
        (PrimitiveType::Date, Physical::INT32) if found == Annotation::Date => primitive.clone(),
        (PrimitiveType::Time, Physical::INT64) if found == Annotation::TimeMicros => primitive.clone(),
        (PrimitiveType::Timestamp, _) if timestamp(false, TimeUnit::MICROS) => primitive.clone(),
        (PrimitiveType::Timestamptz, _) if timestamp(true, TimeUnit::MICROS) => primitive.clone(),
        (PrimitiveType::TimestampNs, _) if timestamp(false, TimeUnit::NANOS) => primitive.clone(),
        (PrimitiveType::TimestamptzNs, _) if timestamp(true, TimeUnit::NANOS) => primitive.clone(),
        (PrimitiveType::String, Physical::BYTE_ARRAY) if found == Annotation::Text => primitive.clone(),
        (PrimitiveType::Uuid, _) if fixed(16) && matches!(found, Annotation::None | Annotation::Uuid) => {
            primitive.clone()
        }
        (PrimitiveType::Fixed(bytes), _) if found == Annotation::None && i32::try_from(*bytes).is_ok_and(fixed) => {
            primitive.clone()
        }
        (PrimitiveType::Binary, Physical::BYTE_ARRAY) if found == Annotation::None => primitive.clone(),
        _ => return None,
    };
    parquet_leaf(name, &stored, repetition, id).ok()
}

/// A decimal stays in the physical type and with the precision that it was written with: readers widen it.
fn decimal(
    column: &ParquetType,
    found: Annotation,
    (precision, scale): (u32, u32),
    name: &str,
    id: i32,
) -> Option<ParquetType> {
    let ParquetType::PrimitiveType { physical_type, type_length, .. } = column else { return None };
    let Annotation::Decimal { precision: stored, scale: stored_scale } = found else { return None };
    let fits =
        u32::try_from(stored).is_ok_and(|stored| stored <= precision) && u32::try_from(stored_scale) == Ok(scale);
    let is_form = match physical_type {
        Physical::INT32 | Physical::INT64 | Physical::BYTE_ARRAY => true,
        Physical::FIXED_LEN_BYTE_ARRAY => (1..=DECIMAL_BYTES_MAX).contains(type_length),
        _ => false,
    };
    if !fits || !is_form {
        return None;
    }
    ParquetType::primitive_type_builder(name, *physical_type)
        .with_repetition(column.get_basic_info().repetition())
        .with_id(Some(id))
        .with_length(*type_length)
        .with_logical_type(Some(LogicalType::Decimal { scale: stored_scale, precision: stored }))
        .with_precision(stored)
        .with_scale(stored_scale)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn only_encodings_that_readers_promote_are_carried() {
        let decimal = |precision, scale| PrimitiveType::Decimal { precision, scale };
        let cases = [
            ("boolean", PrimitiveType::Boolean, true),
            ("int32", PrimitiveType::Int, true),
            ("int32", PrimitiveType::Long, true),
            ("int64", PrimitiveType::Int, false),
            ("int32 (INTEGER(32,true))", PrimitiveType::Long, true),
            ("int32 (INT_32)", PrimitiveType::Int, true),
            ("int32 (INTEGER(16,true))", PrimitiveType::Int, false),
            ("int32 (INTEGER(32,false))", PrimitiveType::Long, false),
            ("float", PrimitiveType::Double, true),
            ("double", PrimitiveType::Float, false),
            ("int32 (DECIMAL(9,2))", decimal(9, 2), true),
            ("int32 (DECIMAL(9,2))", decimal(20, 2), true),
            ("int64 (DECIMAL(12,2))", decimal(11, 2), false),
            ("int64 (DECIMAL(12,3))", decimal(12, 2), false),
            ("binary (DECIMAL(20,2))", decimal(20, 2), true),
            ("fixed_len_byte_array(9) (DECIMAL(20,2))", decimal(38, 2), true),
            ("fixed_len_byte_array(20) (DECIMAL(38,2))", decimal(38, 2), false),
            ("int64", decimal(18, 0), false),
            ("int32 (DATE)", PrimitiveType::Date, true),
            ("int32 (DATE)", PrimitiveType::Timestamp, false),
            ("int32", PrimitiveType::Date, false),
            ("int64 (TIME(MICROS,true))", PrimitiveType::Time, true),
            ("int64 (TIME(NANOS,false))", PrimitiveType::Time, false),
            ("int32 (TIME(MILLIS,false))", PrimitiveType::Time, false),
            ("int64 (TIMESTAMP(MICROS,false))", PrimitiveType::Timestamp, true),
            ("int64 (TIMESTAMP(MICROS,true))", PrimitiveType::Timestamp, false),
            ("int64 (TIMESTAMP(MICROS,true))", PrimitiveType::Timestamptz, true),
            ("int64 (TIMESTAMP_MICROS)", PrimitiveType::Timestamptz, true),
            ("int64 (TIMESTAMP_MICROS)", PrimitiveType::Timestamp, false),
            ("int64 (TIMESTAMP(MILLIS,false))", PrimitiveType::Timestamp, false),
            ("int64 (TIMESTAMP(NANOS,false))", PrimitiveType::TimestampNs, true),
            ("int96", PrimitiveType::Timestamp, false),
            ("binary (UTF8)", PrimitiveType::String, true),
            ("binary (STRING)", PrimitiveType::String, true),
            ("binary", PrimitiveType::String, false),
            ("binary (JSON)", PrimitiveType::String, false),
            ("binary", PrimitiveType::Binary, true),
            ("binary (STRING)", PrimitiveType::Binary, false),
            ("fixed_len_byte_array(16)", PrimitiveType::Uuid, true),
            ("fixed_len_byte_array(16) (UUID)", PrimitiveType::Uuid, true),
            ("fixed_len_byte_array(15)", PrimitiveType::Uuid, false),
            ("fixed_len_byte_array(5)", PrimitiveType::Fixed(5), true),
            ("fixed_len_byte_array(5)", PrimitiveType::Fixed(6), false),
        ];
        for (column, primitive, is_carried) in cases {
            let (physical, annotation) = column.split_once(' ').unwrap_or((column, ""));
            for repetition in ["optional", "required", "repeated"] {
                let message = format!("message t {{ {repetition} {physical} old {annotation}; }}");
                let root = parse_message_type(&message).unwrap_or_else(|error| panic!("{message}: {error}"));
                let old = &root.get_fields()[0];
                let new = carried(old, &primitive, "new", 7);
                assert_eq!(new.is_some(), is_carried && repetition != "repeated", "{message} as {primitive}");
                if let Some(new) = new {
                    assert_eq!((new.name(), new.get_basic_info().id()), ("new", 7));
                    assert_eq!(new.get_physical_type(), old.get_physical_type());
                    assert_eq!(new.get_basic_info().repetition(), old.get_basic_info().repetition());
                }
            }
        }
    }
}
