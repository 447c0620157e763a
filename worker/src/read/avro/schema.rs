//! The types of an Avro file, as its header tells them, and its columns as the tree that field ids are looked up in.
//!
//! Field ids are attributes: `field-id` of a record's field, `element-id` of an array, `key-id` and `value-id` of a map. A
//! map whose keys are no text is an array of records of a key and a value with the logical type `map`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit, UnionFields, UnionMode};
use serde_json::{Map as JsonMap, Value as Json};

use super::super::file_schema::{FileField, Shape};
use super::cursor::{Broken, Cursor};

/// Types inside of types at most.
const DEPTH_MAX: usize = 64;
/// Types of a schema at most, those that stand in it by their name counted each time.
const TYPES_MAX: usize = 100_000;
/// A value of fixed length takes no more than this; a null takes as much as any.
const FIXED_BYTES_MAX: u64 = 1024 * 1024;

/// The type of a value in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AvroType {
    Null,
    Boolean,
    /// With the type that Arrow has for it, as the three below.
    Int(DataType),
    Long(DataType),
    Float,
    Double,
    /// Bytes, or a decimal in them.
    Bytes(DataType),
    Text,
    Fixed(usize, DataType),
    Enum(Arc<[String]>),
    Union(Vec<AvroType>),
    Record(Vec<RecordField>),
    Array(Box<Inner>),
    Map {
        key_id: Option<i32>,
        value: Box<Inner>,
    },
    /// A map as an array of pairs.
    Pairs {
        key: Box<Inner>,
        value: Box<Inner>,
        /// Whether the key comes first in each pair.
        key_first: bool,
    },
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordField {
    pub(super) name: String,
    pub(super) inner: Inner,
}

/// A type with the id of the field that has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inner {
    pub(super) id: Option<i32>,
    pub(super) of: AvroType,
}

impl AvroType {
    /// Whether a value takes no bytes at all.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Null | Self::Fixed(0, _) => true,
            Self::Record(fields) => fields.iter().all(|field| field.inner.of.is_empty()),
            _ => false,
        }
    }

    /// The one branch of a union that is not null, where there is no other; the type itself when it is no union.
    pub(super) fn but_null(&self) -> Option<&Self> {
        let Self::Union(branches) = self else { return Some(self) };
        let mut others = branches.iter().filter(|branch| **branch != Self::Null);
        match (others.next(), others.next()) {
            (Some(only), None) => Some(only),
            (None, _) => branches.first(),
            (Some(_), Some(_)) => None,
        }
    }

    /// Passes over a value.
    pub(super) fn skip(&self, cursor: &mut Cursor<'_>) -> Result<(), Broken> {
        match self {
            Self::Null => Ok(()),
            Self::Boolean => cursor.take(1).map(drop),
            Self::Int(_) | Self::Long(_) => cursor.long().map(drop),
            Self::Float => cursor.take(4).map(drop),
            Self::Double => cursor.take(8).map(drop),
            Self::Bytes(_) | Self::Text => cursor.bytes().map(drop),
            Self::Fixed(length, _) => cursor.take(*length).map(drop),
            Self::Enum(symbols) => cursor.index(symbols.len()).map(drop),
            Self::Union(branches) => {
                let branch = cursor.index(branches.len())?;
                branches[branch].skip(cursor)
            }
            Self::Record(fields) => fields.iter().try_for_each(|field| field.inner.of.skip(cursor)),
            Self::Array(element) => skip_items(cursor, element.of.is_empty(), |cursor| element.of.skip(cursor)),
            Self::Map { value, .. } => skip_items(cursor, false, |cursor| {
                cursor.bytes()?;
                value.of.skip(cursor)
            }),
            Self::Pairs { key, value, .. } => {
                let is_empty = key.of.is_empty() && value.of.is_empty();
                skip_items(cursor, is_empty, |cursor| {
                    // Passing over both, their order does not matter as long as it is that of the file.
                    let (first, second) = self.in_order(key, value);
                    first.of.skip(cursor)?;
                    second.of.skip(cursor)
                })
            }
        }
    }

    fn in_order<'a>(&self, key: &'a Inner, value: &'a Inner) -> (&'a Inner, &'a Inner) {
        match self {
            Self::Pairs { key_first: false, .. } => (value, key),
            _ => (key, value),
        }
    }

    fn count(&self) -> usize {
        let inner = |inner: &Inner| inner.of.count();
        1 + match self {
            Self::Union(branches) => branches.iter().map(Self::count).sum(),
            Self::Record(fields) => fields.iter().map(|field| inner(&field.inner)).sum(),
            Self::Array(element) => inner(element),
            Self::Map { value, .. } => inner(value),
            Self::Pairs { key, value, .. } => inner(key) + inner(value),
            _ => 0,
        }
    }
}

fn skip_items(
    cursor: &mut Cursor<'_>,
    items_are_empty: bool,
    mut skip: impl FnMut(&mut Cursor<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    loop {
        let items = cursor.items()?;
        match (items.count, items.bytes) {
            (0, _) => return Ok(()),
            (_, Some(bytes)) => drop(cursor.take(bytes)?),
            (_, None) if items_are_empty => {}
            (count, None) => (0..count).try_for_each(|_| skip(cursor))?,
        }
    }
}

/// The type that a schema describes; what is wrong with it otherwise.
pub(super) fn parse(json: &Json) -> Result<AvroType, String> {
    let mut parser = Parser { named: HashMap::new(), types_left: TYPES_MAX };
    parser.parse(json, "", 0)
}

/// The types that have a name, by it.
struct Parser {
    named: HashMap<String, AvroType>,
    types_left: usize,
}

impl Parser {
    fn parse(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<AvroType, String> {
        self.count(1)?;
        if depth > DEPTH_MAX {
            return Err(format!("it has more than {DEPTH_MAX} types inside of each other"));
        }
        match json {
            Json::String(name) => self.by_name(name, &JsonMap::new(), namespace),
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.parse(branch, namespace, depth + 1));
                branches.collect::<Result<_, _>>().map(AvroType::Union)
            }
            Json::Object(object) => match object.get("type") {
                Some(Json::String(kind)) => self.object(kind, object, namespace, depth),
                Some(inner @ (Json::Object(_) | Json::Array(_))) => self.parse(inner, namespace, depth + 1),
                _ => Err("a type has no name".to_owned()),
            },
            _ => Err(format!("{json} is no type")),
        }
    }

    fn count(&mut self, types: usize) -> Result<(), String> {
        let left = self.types_left.checked_sub(types);
        self.types_left = left.ok_or_else(|| format!("it has more than {TYPES_MAX} types"))?;
        Ok(())
    }

    fn by_name(&mut self, name: &str, object: &JsonMap<String, Json>, namespace: &str) -> Result<AvroType, String> {
        let logical = object.get("logicalType").and_then(Json::as_str);
        if let Some(primitive) = primitive(name, logical, object) {
            return Ok(primitive);
        }
        let full = full_name(name, namespace);
        let known = self.named.get(&full).or_else(|| self.named.get(name)).cloned();
        // A type that contains itself is not known yet where it does.
        let known = known.ok_or_else(|| format!("the type {name:?} is not known where it stands"))?;
        self.count(known.count())?;
        Ok(known)
    }

    fn object(
        &mut self,
        kind: &str,
        object: &JsonMap<String, Json>,
        namespace: &str,
        depth: usize,
    ) -> Result<AvroType, String> {
        let logical = object.get("logicalType").and_then(Json::as_str);
        let missing = |what: &str| format!("a type {kind} has no {what}");
        let inner = |parser: &mut Self, key: &str, id: &str| -> Result<Box<Inner>, String> {
            let of = parser.parse(object.get(key).ok_or_else(|| missing(key))?, namespace, depth + 1)?;
            Ok(Box::new(Inner { id: field_id(object, id), of }))
        };
        match kind {
            "array" => {
                let element = inner(self, "items", "element-id")?;
                Ok(match (logical, element.of) {
                    (Some("map"), AvroType::Record(fields)) => pairs(fields)?,
                    (_, of) => AvroType::Array(Box::new(Inner { of, ..*element })),
                })
            }
            "map" => {
                let value = inner(self, "values", "value-id")?;
                Ok(AvroType::Map { key_id: field_id(object, "key-id"), value })
            }
            "record" | "error" => {
                let (name, namespace) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let fields = object.get("fields").and_then(Json::as_array).ok_or_else(|| missing("fields"))?;
                let fields = fields.iter().map(|field| self.field(field, &namespace, depth + 1));
                let fields = fields.collect::<Result<_, _>>()?;
                self_named(self, name, AvroType::Record(fields))
            }
            "enum" => {
                let (name, _) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let symbols = object.get("symbols").and_then(Json::as_array).ok_or_else(|| missing("symbols"))?;
                let symbol = |symbol: &Json| symbol.as_str().map(str::to_owned).ok_or_else(|| missing("symbols"));
                self_named(self, name, AvroType::Enum(symbols.iter().map(symbol).collect::<Result<_, _>>()?))
            }
            "fixed" => {
                let (name, _) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let size = object.get("size").and_then(Json::as_u64).ok_or_else(|| missing("size"))?;
                if size > FIXED_BYTES_MAX {
                    return Err(format!("a fixed type of {size} bytes is not supported"));
                }
                let arrow = decimal(logical, object).unwrap_or(DataType::FixedSizeBinary(size as i32));
                self_named(self, name, AvroType::Fixed(size as usize, arrow))
            }
            name => self.by_name(name, object, namespace),
        }
    }

    fn field(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<RecordField, String> {
        let object = json.as_object().ok_or("a field of a record is none")?;
        let name = object.get("name").and_then(Json::as_str).ok_or("a field of a record has no name")?;
        let of = object.get("type").ok_or_else(|| format!("the field {name:?} has no type"))?;
        let of = self.parse(of, namespace, depth).map_err(|what| format!("field {name:?}: {what}"))?;
        // Names that Avro does not take are written in a form that it does.
        let name = object.get("iceberg-field-name").and_then(Json::as_str).unwrap_or(name).to_owned();
        Ok(RecordField { name, inner: Inner { id: field_id(object, "field-id"), of } })
    }
}

fn self_named(parser: &mut Parser, name: String, of: AvroType) -> Result<AvroType, String> {
    parser.named.insert(name, of.clone());
    Ok(of)
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// The full name of a named type, and the namespace of what stands in it.
fn own_name(object: &JsonMap<String, Json>, namespace: &str) -> Option<(String, String)> {
    let name = object.get("name")?.as_str()?;
    let namespace = object.get("namespace").and_then(Json::as_str).unwrap_or(namespace);
    let full = full_name(name, namespace);
    let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
    Some((full, namespace))
}

fn field_id(object: &JsonMap<String, Json>, key: &str) -> Option<i32> {
    object.get(key)?.as_i64().and_then(|id| i32::try_from(id).ok())
}

fn primitive(name: &str, logical: Option<&str>, object: &JsonMap<String, Json>) -> Option<AvroType> {
    let timestamp = |unit, is_utc: bool| DataType::Timestamp(unit, is_utc.then(|| "+00:00".into()));
    // Iceberg's own attribute; local timestamps are Avro's word for those without a zone.
    let is_utc = object.get("adjust-to-utc").and_then(Json::as_bool).unwrap_or(true);
    Some(match (name, logical) {
        ("null", _) => AvroType::Null,
        ("boolean", _) => AvroType::Boolean,
        ("int", Some("date")) => AvroType::Int(DataType::Date32),
        ("int", Some("time-millis")) => AvroType::Int(DataType::Time32(TimeUnit::Millisecond)),
        ("int", _) => AvroType::Int(DataType::Int32),
        ("long", Some("time-micros")) => AvroType::Long(DataType::Time64(TimeUnit::Microsecond)),
        ("long", Some("timestamp-millis")) => AvroType::Long(timestamp(TimeUnit::Millisecond, is_utc)),
        ("long", Some("timestamp-micros")) => AvroType::Long(timestamp(TimeUnit::Microsecond, is_utc)),
        ("long", Some("timestamp-nanos")) => AvroType::Long(timestamp(TimeUnit::Nanosecond, is_utc)),
        ("long", Some("local-timestamp-millis")) => AvroType::Long(timestamp(TimeUnit::Millisecond, false)),
        ("long", Some("local-timestamp-micros")) => AvroType::Long(timestamp(TimeUnit::Microsecond, false)),
        ("long", Some("local-timestamp-nanos")) => AvroType::Long(timestamp(TimeUnit::Nanosecond, false)),
        ("long", _) => AvroType::Long(DataType::Int64),
        ("float", _) => AvroType::Float,
        ("double", _) => AvroType::Double,
        ("bytes", logical) => AvroType::Bytes(decimal(logical, object).unwrap_or(DataType::Binary)),
        ("string", _) => AvroType::Text,
        _ => return None,
    })
}

fn decimal(logical: Option<&str>, object: &JsonMap<String, Json>) -> Option<DataType> {
    if logical != Some("decimal") {
        return None;
    }
    let precision = object.get("precision")?.as_u64().and_then(|precision| u8::try_from(precision).ok())?;
    let scale = object.get("scale").map_or(Some(0), Json::as_u64).and_then(|scale| i8::try_from(scale).ok())?;
    let fits = (1..=38).contains(&precision) && scale <= precision as i8;
    fits.then_some(DataType::Decimal128(precision, scale))
}

/// A map whose pairs are records of these fields.
fn pairs(fields: Vec<RecordField>) -> Result<AvroType, String> {
    let key_first = fields.first().is_some_and(|field| field.name == "key");
    let mut fields = fields.into_iter();
    if let (Some(first), Some(second), None) = (fields.next(), fields.next(), fields.next()) {
        let (key, value) = if key_first { (first, second) } else { (second, first) };
        if key.name == "key" && value.name == "value" {
            return Ok(AvroType::Pairs { key: Box::new(key.inner), value: Box::new(value.inner), key_first });
        }
    }
    Err("an array that is to be a map has no pairs of key and value".to_owned())
}

/// The columns of rows of this type, and how many leaves they have; `None` when it is no record.
pub(super) fn columns(row: &AvroType) -> Option<(Vec<FileField>, usize)> {
    let AvroType::Record(fields) = row else { return None };
    let mut next_leaf = 0;
    let fields = fields.iter().map(|field| file_field(&field.name, &field.inner, &mut next_leaf)).collect();
    Some((fields, next_leaf))
}

fn file_field(name: &str, inner: &Inner, next_leaf: &mut usize) -> FileField {
    let start = *next_leaf;
    let of = inner.of.but_null();
    let shape = match of {
        Some(AvroType::Record(fields)) if !fields.is_empty() => {
            Shape::Struct(fields.iter().map(|field| file_field(&field.name, &field.inner, next_leaf)).collect())
        }
        Some(AvroType::Array(element)) => Shape::List(Box::new(file_field("element", element, next_leaf))),
        Some(AvroType::Map { key_id, value }) => {
            let key = file_field("key", &Inner { id: *key_id, of: AvroType::Text }, next_leaf);
            Shape::Map(Box::new(key), Box::new(file_field("value", value, next_leaf)))
        }
        Some(AvroType::Pairs { key, value, .. }) => {
            let key = file_field("key", key, next_leaf);
            Shape::Map(Box::new(key), Box::new(file_field("value", value, next_leaf)))
        }
        Some(AvroType::Record(_)) => leaf(Shape::Struct(Vec::new()), next_leaf),
        _ => leaf(Shape::Leaf { int96: false }, next_leaf),
    };
    let arrow_type = of.map_or(DataType::Union(UnionFields::empty(), UnionMode::Sparse), arrow_type);
    FileField { id: inner.id, name: name.to_owned(), arrow_type, leaves: start..*next_leaf, shape }
}

fn leaf(shape: Shape, next_leaf: &mut usize) -> Shape {
    *next_leaf += 1;
    shape
}

/// What Arrow has for values of a type that are not null.
fn arrow_type(of: &AvroType) -> DataType {
    let inner = |name: &str, of: &AvroType| {
        let of = of.but_null().map_or(DataType::Union(UnionFields::empty(), UnionMode::Sparse), arrow_type);
        Field::new(name, of, true)
    };
    let map = |key: Field, value: Field| {
        let pair = DataType::Struct(Fields::from(vec![key.with_nullable(false), value]));
        DataType::Map(Arc::new(Field::new("entries", pair, false)), false)
    };
    match of {
        AvroType::Null => DataType::Null,
        AvroType::Boolean => DataType::Boolean,
        AvroType::Int(arrow) | AvroType::Long(arrow) | AvroType::Bytes(arrow) | AvroType::Fixed(_, arrow) => {
            arrow.clone()
        }
        AvroType::Float => DataType::Float32,
        AvroType::Double => DataType::Float64,
        AvroType::Text | AvroType::Enum(_) => DataType::Utf8,
        AvroType::Union(_) => DataType::Union(UnionFields::empty(), UnionMode::Sparse),
        AvroType::Record(fields) => {
            DataType::Struct(fields.iter().map(|field| inner(&field.name, &field.inner.of)).collect())
        }
        AvroType::Array(element) => DataType::List(Arc::new(inner("element", &element.of))),
        AvroType::Map { value, .. } => map(Field::new("key", DataType::Utf8, false), inner("value", &value.of)),
        AvroType::Pairs { key, value, .. } => map(inner("key", &key.of), inner("value", &value.of)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<AvroType, String> {
        parse(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn types_are_those_that_iceberg_writes() {
        let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let cases = [
            (r#""long""#, AvroType::Long(DataType::Int64)),
            (r#"{"type":"int","logicalType":"date"}"#, AvroType::Int(DataType::Date32)),
            (r#"{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":false}"#, AvroType::Long(micros(None))),
            (
                r#"{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}"#,
                AvroType::Long(micros(Some("+00:00"))),
            ),
            (r#"{"type":"long","logicalType":"local-timestamp-micros"}"#, AvroType::Long(micros(None))),
            (
                r#"{"type":"fixed","name":"d","size":5,"logicalType":"decimal","precision":10,"scale":2}"#,
                AvroType::Fixed(5, DataType::Decimal128(10, 2)),
            ),
            (
                r#"{"type":"fixed","name":"uuid_fixed","size":16,"logicalType":"uuid"}"#,
                AvroType::Fixed(16, DataType::FixedSizeBinary(16)),
            ),
            (r#"["null",{"type":"string"}]"#, AvroType::Union(vec![AvroType::Null, AvroType::Text])),
            (
                r#"{"type":"array","items":"int","element-id":7}"#,
                AvroType::Array(Box::new(Inner { id: Some(7), of: AvroType::Int(DataType::Int32) })),
            ),
            (
                r#"{"type":"array","logicalType":"map","items":{"type":"record","name":"k1_v2","fields":[
                    {"name":"key","type":"int","field-id":1},{"name":"value","type":"string","field-id":2}]}}"#,
                AvroType::Pairs {
                    key: Box::new(Inner { id: Some(1), of: AvroType::Int(DataType::Int32) }),
                    value: Box::new(Inner { id: Some(2), of: AvroType::Text }),
                    key_first: true,
                },
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(of(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn a_type_may_stand_by_its_name_and_may_not_contain_itself() {
        let twice = r#"{"type":"record","name":"a.b.r","fields":[
            {"name":"x","type":{"type":"fixed","name":"f","size":3},"field-id":1},
            {"name":"y","type":"f","field-id":2},{"name":"z","type":"a.b.f","field-id":3}]}"#;
        let AvroType::Record(fields) = of(twice).unwrap() else { panic!("a record") };
        assert!(fields.iter().all(|field| field.inner.of == AvroType::Fixed(3, DataType::FixedSizeBinary(3))));
        let itself = r#"{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}"#;
        assert!(of(itself).unwrap_err().contains(r#"the type "r" is not known"#));
    }

    #[test]
    fn a_schema_that_grows_without_end_is_refused() {
        let deep = format!("{}\"int\"{}", "{\"type\":\"array\",\"items\":".repeat(100), "}".repeat(100));
        assert!(of(&deep).unwrap_err().contains("inside of each other"));
        let doubling =
            (1..40).fold(r#"{"name":"f0","type":{"type":"fixed","name":"t0","size":1}}"#.to_owned(), |all, n| {
                let before = n - 1;
                format!(
                    r#"{all},{{"name":"f{n}","type":{{"type":"record","name":"t{n}","fields":[
                {{"name":"a","type":"t{before}"}},{{"name":"b","type":"t{before}"}}]}}}}"#
                )
            });
        let json = format!(r#"{{"type":"record","name":"r","fields":[{doubling}]}}"#);
        assert!(of(&json).unwrap_err().contains("more than 100000 types"));
    }
}
