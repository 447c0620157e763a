//! The layout of a staged file: an Iceberg schema as Parquet and as Arrow have it, and its leaf columns.
//!
//! The Parquet schema is made here and not by the Arrow converter, which lacks Iceberg's UUID annotation and stores a
//! decimal of one digit wider than Iceberg's mapping wants.

use std::sync::Arc;

use arrow::datatypes::SchemaRef as ArrowSchemaRef;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{NestedField, PrimitiveType, Schema, SchemaRef, Type};
use iceferry_common::model::{MetricsMode, ParquetSettings};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescriptor, Type as ParquetType};

use super::StageError;

/// How files of one schema are laid out. Made once for each kind of file of an attempt.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The Iceberg schema of the file.
    pub(crate) schema: SchemaRef,
    /// The same as Arrow has it.
    pub(crate) arrow: ArrowSchemaRef,
    /// The same as Parquet has it.
    pub(crate) parquet: SchemaDescriptor,
    /// Leaf columns, in the order of the Parquet schema.
    pub(crate) leaves: Vec<Leaf>,
}

/// A leaf column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leaf {
    /// Field id.
    pub(crate) field_id: i32,
    /// Type.
    pub(crate) primitive: PrimitiveType,
    /// Position of the top-level column, then of each field below it. Not of use inside lists and maps.
    pub(crate) path: Vec<usize>,
    /// Whether the column lies inside a list or a map.
    pub(crate) repeated: bool,
    /// Which metrics of it go into the manifest.
    pub(crate) metrics: MetricsMode,
}

impl Layout {
    /// The layout for `schema` in files of `table`.
    pub(crate) fn new(table: &str, schema: SchemaRef, settings: &ParquetSettings) -> Result<Self, StageError> {
        let arrow = schema_to_arrow_schema(&schema)
            .map_err(|source| StageError::Schema { table: table.to_owned(), source: Box::new(source) })?;
        let fields = schema.as_struct().fields();
        let columns = fields.iter().map(|field| {
            parquet_field(field).map(Arc::new).map_err(|source| StageError::Layout {
                table: table.to_owned(),
                column: field.name.clone(),
                source,
            })
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let root = ParquetType::group_type_builder("table").with_fields(columns).build().map_err(|source| {
            StageError::Layout { table: table.to_owned(), column: "(all columns)".to_owned(), source }
        })?;
        let mut leaves = Vec::new();
        for (position, field) in fields.iter().enumerate() {
            collect_leaves(&schema, settings, field, &mut vec![position], false, &mut leaves);
        }
        Ok(Self { arrow: Arc::new(arrow), parquet: SchemaDescriptor::new(Arc::new(root)), leaves, schema })
    }
}

/// The schema of an equality delete file: the key columns of `schema`, in the order of the key.
pub(crate) fn key_schema(table: &str, schema: &Schema, key: &[i32]) -> Result<SchemaRef, StageError> {
    let top_level = schema.as_struct();
    let fields = key.iter().map(|&field_id| {
        top_level
            .field_by_id(field_id)
            .cloned()
            .ok_or_else(|| StageError::KeyColumn { table: table.to_owned(), field_id })
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Schema::builder()
        .with_schema_id(schema.schema_id())
        .with_fields(fields)
        .build()
        .map(Arc::new)
        .map_err(|source| StageError::Schema { table: table.to_owned(), source: Box::new(source) })
}

fn collect_leaves(
    schema: &Schema,
    settings: &ParquetSettings,
    field: &NestedField,
    path: &mut Vec<usize>,
    repeated: bool,
    leaves: &mut Vec<Leaf>,
) {
    match field.field_type.as_ref() {
        Type::Primitive(primitive) => {
            let name = schema.name_by_field_id(field.id).unwrap_or(&field.name);
            let metrics = settings.metrics_columns.get(name).copied().unwrap_or(settings.metrics_default);
            let primitive = primitive.clone();
            leaves.push(Leaf { field_id: field.id, primitive, path: path.clone(), repeated, metrics });
        }
        Type::Struct(inner) => {
            for (position, child) in inner.fields().iter().enumerate() {
                path.push(position);
                collect_leaves(schema, settings, child, path, repeated, leaves);
                path.pop();
            }
        }
        Type::List(list) => collect_leaves(schema, settings, &list.element_field, path, true, leaves),
        Type::Map(map) => {
            collect_leaves(schema, settings, &map.key_field, path, true, leaves);
            collect_leaves(schema, settings, &map.value_field, path, true, leaves);
        }
    }
}

pub(crate) fn parquet_field(field: &NestedField) -> Result<ParquetType, ParquetError> {
    let name = field.name.as_str();
    let repetition = if field.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    let group = |fields: Vec<ParquetType>| {
        ParquetType::group_type_builder(name)
            .with_repetition(repetition)
            .with_id(Some(field.id))
            .with_fields(fields.into_iter().map(Arc::new).collect())
    };
    let repeated = |name: &str, fields: Vec<ParquetType>| {
        ParquetType::group_type_builder(name)
            .with_repetition(Repetition::REPEATED)
            .with_fields(fields.into_iter().map(Arc::new).collect())
            .build()
    };
    match field.field_type.as_ref() {
        Type::Primitive(primitive) => parquet_leaf(name, primitive, repetition, field.id),
        Type::Struct(inner) if inner.fields().is_empty() => {
            Err(ParquetError::General(format!("{name} is a struct without fields")))
        }
        Type::Struct(inner) => {
            let fields = inner.fields().iter().map(|child| parquet_field(child));
            group(fields.collect::<Result<_, _>>()?).build()
        }
        Type::List(list) => {
            let list = repeated("list", vec![parquet_field(&list.element_field)?])?;
            group(vec![list]).with_logical_type(Some(LogicalType::List)).build()
        }
        Type::Map(map) => {
            let entries =
                repeated("key_value", vec![parquet_field(&map.key_field)?, parquet_field(&map.value_field)?])?;
            group(vec![entries]).with_logical_type(Some(LogicalType::Map)).build()
        }
    }
}

/// Iceberg's mapping of primitive types to Parquet (spec, appendix A).
pub(crate) fn parquet_leaf(
    name: &str,
    primitive: &PrimitiveType,
    repetition: Repetition,
    id: i32,
) -> Result<ParquetType, ParquetError> {
    let timestamp = |is_adjusted_to_u_t_c, unit| LogicalType::Timestamp { is_adjusted_to_u_t_c, unit };
    let (physical, length, logical) = match primitive {
        PrimitiveType::Boolean => (PhysicalType::BOOLEAN, -1, None),
        PrimitiveType::Int => (PhysicalType::INT32, -1, None),
        PrimitiveType::Long => (PhysicalType::INT64, -1, None),
        PrimitiveType::Float => (PhysicalType::FLOAT, -1, None),
        PrimitiveType::Double => (PhysicalType::DOUBLE, -1, None),
        PrimitiveType::Decimal { precision, scale } => {
            let (precision, scale) = (small(name, *precision)?, small(name, *scale)?);
            let (physical, length) = match precision {
                ..=9 => (PhysicalType::INT32, -1),
                10..=18 => (PhysicalType::INT64, -1),
                _ => (PhysicalType::FIXED_LEN_BYTE_ARRAY, decimal_bytes(precision)),
            };
            let logical = LogicalType::Decimal { scale, precision };
            return ParquetType::primitive_type_builder(name, physical)
                .with_repetition(repetition)
                .with_id(Some(id))
                .with_length(length)
                .with_logical_type(Some(logical))
                .with_precision(precision)
                .with_scale(scale)
                .build();
        }
        PrimitiveType::Date => (PhysicalType::INT32, -1, Some(LogicalType::Date)),
        PrimitiveType::Time => {
            let logical = LogicalType::Time { is_adjusted_to_u_t_c: false, unit: TimeUnit::MICROS };
            (PhysicalType::INT64, -1, Some(logical))
        }
        PrimitiveType::Timestamp => (PhysicalType::INT64, -1, Some(timestamp(false, TimeUnit::MICROS))),
        PrimitiveType::Timestamptz => (PhysicalType::INT64, -1, Some(timestamp(true, TimeUnit::MICROS))),
        PrimitiveType::TimestampNs => (PhysicalType::INT64, -1, Some(timestamp(false, TimeUnit::NANOS))),
        PrimitiveType::TimestamptzNs => (PhysicalType::INT64, -1, Some(timestamp(true, TimeUnit::NANOS))),
        PrimitiveType::String => (PhysicalType::BYTE_ARRAY, -1, Some(LogicalType::String)),
        PrimitiveType::Uuid => (PhysicalType::FIXED_LEN_BYTE_ARRAY, 16, Some(LogicalType::Uuid)),
        PrimitiveType::Fixed(length) => (PhysicalType::FIXED_LEN_BYTE_ARRAY, small(name, *length)?, None),
        PrimitiveType::Binary => (PhysicalType::BYTE_ARRAY, -1, None),
    };
    ParquetType::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_id(Some(id))
        .with_length(length)
        .with_logical_type(logical)
        .build()
}

fn small<T: Copy + TryInto<i32> + std::fmt::Display>(name: &str, number: T) -> Result<i32, ParquetError> {
    number.try_into().map_err(|_| ParquetError::General(format!("{name} has a size of {number}")))
}

/// The fewest bytes that hold every unscaled value of so many digits in two's complement.
fn decimal_bytes(precision: i32) -> i32 {
    let largest = (0..precision).fold(0_u128, |largest, _| largest.saturating_mul(10).saturating_add(9));
    let bits_with_sign = 128 - largest.leading_zeros() + 1;
    i32::try_from(bits_with_sign.div_ceil(8)).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_takes_the_fewest_bytes_that_hold_it() {
        let expected =
            [(19, 9), (20, 9), (21, 9), (22, 10), (23, 10), (24, 11), (26, 11), (27, 12), (36, 16), (38, 16)];
        for (precision, bytes) in expected {
            assert_eq!(decimal_bytes(precision), bytes, "{precision}");
        }
    }
}
