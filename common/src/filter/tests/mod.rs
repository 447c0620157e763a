//! Tests of the filter from the outside.

mod language;
mod meaning;
mod model;
mod partitions;
mod property;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryBuilder, Float32Array, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, StringArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, TimeUnit};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType, Schema, StructType, Type};

use super::{BoundFilter, Filter};

/// A value of a row in the unit of its column; `None` is null.
type Raw = Option<RawValue>;

#[derive(Debug, Clone, PartialEq)]
enum RawValue {
    B(bool),
    I(i128),
    F(f64),
    S(String),
    Y(Vec<u8>),
}

use RawValue::{B, F, I, S, Y};

/// The id of the struct, whose fields have the next two.
const STRUCT_ID: i32 = 20;

/// Columns of all primitive types, by name; ids count from 1.
fn columns() -> Vec<(&'static str, PrimitiveType)> {
    use PrimitiveType as T;
    vec![
        ("flag", T::Boolean),
        ("i", T::Int),
        ("l", T::Long),
        ("f", T::Float),
        ("d", T::Double),
        ("dec", T::Decimal { precision: 9, scale: 2 }),
        ("day", T::Date),
        ("clock", T::Time),
        ("ts", T::Timestamp),
        ("tz", T::Timestamptz),
        ("tsn", T::TimestampNs),
        ("tzn", T::TimestamptzNs),
        ("text", T::String),
        ("uu", T::Uuid),
        ("fix", T::Fixed(2)),
        ("bin", T::Binary),
        ("Odd \"name\" #1.x 🚢", T::Int),
        ("s.a", T::Int),
        ("s.b", T::String),
    ]
}

/// The place of a column among [`columns`].
fn at(name: &str) -> usize {
    columns().iter().position(|(column, _)| *column == name).unwrap()
}

/// The field id of a column of [`columns`].
fn id(column: usize) -> i32 {
    match columns()[column].0 {
        "s.a" => STRUCT_ID + 1,
        "s.b" => STRUCT_ID + 2,
        _ => i32::try_from(column).unwrap() + 1,
    }
}

fn schema() -> Schema {
    let field = |id, name: &str, of: Type| Arc::new(NestedField::optional(id, name, of));
    let columns = columns();
    let top = columns.iter().enumerate().filter(|(_, (name, _))| !name.starts_with("s."));
    let mut fields: Vec<_> =
        top.map(|(column, (name, kind))| field(id(column), name, Type::Primitive(kind.clone()))).collect();
    fields.push(field(
        STRUCT_ID,
        "s",
        Type::Struct(StructType::new(vec![
            field(STRUCT_ID + 1, "a", Type::Primitive(PrimitiveType::Int)),
            field(STRUCT_ID + 2, "b", Type::Primitive(PrimitiveType::String)),
        ])),
    ));
    fields.push(field(
        30,
        "tags",
        Type::List(ListType::new(Arc::new(NestedField::list_element(31, Type::Primitive(PrimitiveType::Int), true)))),
    ));
    fields.push(field(
        32,
        "attributes",
        Type::Map(MapType::new(
            Arc::new(NestedField::map_key_element(33, Type::Primitive(PrimitiveType::String))),
            Arc::new(NestedField::map_value_element(34, Type::Primitive(PrimitiveType::Int), true)),
        )),
    ));
    fields.push(field(35, "Case", Type::Primitive(PrimitiveType::Int)));
    fields.push(field(36, "CASE", Type::Primitive(PrimitiveType::Int)));
    Schema::builder().with_fields(fields).build().unwrap()
}

fn bound(text: &str) -> BoundFilter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).bind(&schema()).unwrap()
}

/// An array of a type of the table's Arrow schema.
fn array(kind: &DataType, values: &[Raw]) -> ArrayRef {
    let whole = |value: &Raw| match value {
        Some(I(value)) => Some(*value),
        _ => None,
    };
    let ints = || values.iter().map(|value| whole(value).map(|value| i32::try_from(value).unwrap()));
    let longs = || values.iter().map(|value| whole(value).map(|value| i64::try_from(value).unwrap()));
    let floats = || {
        values.iter().map(|value| match value {
            Some(F(value)) => Some(*value),
            _ => None,
        })
    };
    let bytes = || {
        values.iter().map(|value| match value {
            Some(Y(value)) => Some(value.as_slice()),
            _ => None,
        })
    };
    match kind {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|value| match value {
            Some(B(value)) => Some(*value),
            _ => None,
        }))),
        DataType::Int32 => Arc::new(Int32Array::from_iter(ints())),
        DataType::Int64 => Arc::new(Int64Array::from_iter(longs())),
        DataType::Float32 => Arc::new(Float32Array::from_iter(floats().map(|value| value.map(|value| value as f32)))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(floats())),
        DataType::Decimal128(precision, scale) => Arc::new(
            Decimal128Array::from_iter(values.iter().map(whole)).with_precision_and_scale(*precision, *scale).unwrap(),
        ),
        DataType::Date32 => Arc::new(Date32Array::from_iter(ints())),
        DataType::Time64(TimeUnit::Microsecond) => Arc::new(Time64MicrosecondArray::from_iter(longs())),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Arc::new(TimestampMicrosecondArray::from_iter(longs()).with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            Arc::new(TimestampNanosecondArray::from_iter(longs()).with_timezone_opt(zone.clone()))
        }
        DataType::Utf8 => Arc::new(StringArray::from_iter(values.iter().map(|value| match value {
            Some(S(value)) => Some(value.as_str()),
            _ => None,
        }))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(bytes())),
        DataType::FixedSizeBinary(length) => {
            let mut builder = FixedSizeBinaryBuilder::new(*length);
            for value in bytes() {
                match value {
                    Some(value) => builder.append_value(value).unwrap(),
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        other => panic!("no arrays of {other}"),
    }
}

/// Rows by column, as the reader gives them. Where both fields of the struct are null it is null itself, over values that
/// nobody must see.
fn arrays(rows: &[Vec<Raw>]) -> HashMap<i32, ArrayRef> {
    let arrow = schema_to_arrow_schema(&schema()).unwrap();
    let values = |column: usize| rows.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
    let mut arrays = HashMap::new();
    for (column, (name, _)) in columns().iter().enumerate().filter(|(_, (name, _))| !name.starts_with("s.")) {
        let kind = arrow.field_with_name(name).unwrap().data_type().clone();
        arrays.insert(id(column), array(&kind, &values(column)));
    }
    let DataType::Struct(fields) = arrow.field_with_name("s").unwrap().data_type().clone() else { unreachable!() };
    let (mut a, mut b) = (values(at("s.a")), values(at("s.b")));
    let mut valid = Vec::new();
    for (a, b) in a.iter_mut().zip(&mut b) {
        valid.push(a.is_some() || b.is_some());
        if a.is_none() && b.is_none() {
            (*a, *b) = (Some(I(1)), Some(S("a".into())));
        }
    }
    let children = vec![array(&DataType::Int32, &a), array(&DataType::Utf8, &b)];
    arrays.insert(STRUCT_ID, Arc::new(StructArray::new(fields, children, Some(NullBuffer::from(valid)))) as ArrayRef);
    arrays
}

/// Which rows match.
fn matching(filter: &BoundFilter, rows: &[Vec<Raw>]) -> Vec<bool> {
    let arrays = arrays(rows);
    let result = filter.evaluate(&|id| arrays.get(&id).cloned(), rows.len()).unwrap();
    assert!(result.nulls().is_none());
    result.values().iter().collect()
}

/// A row with this value in one column, and null in the others.
fn row(column: &str, value: Raw) -> Vec<Raw> {
    let mut row = vec![None; columns().len()];
    row[at(column)] = value;
    row
}
