//! Random nested columns, written in Parquet and in Avro and read in a random part of their shape: both formats give the
//! same rows, and those are the ones of a plain model. `ICEFERRY_SEED` repeats a run, `ICEFERRY_CASES` makes it longer.

use apache_avro::Codec;
use apache_avro::types::Value as AvroValue;
use arrow::array::{ListArray, MapArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Fields;
use iceberg::spec::{ListType, MapType, StructType};

use super::avro::{container, none, some};
use super::property::{Random, seed, setting};
use super::*;

/// The type of a written column, its inner fields with their ids.
#[derive(Debug, Clone)]
enum Kind {
    Int,
    Text,
    Struct(Vec<Inner>),
    List(Box<Inner>),
    /// With text keys, or with int ones.
    Map(Box<Inner>, Box<Inner>),
}

#[derive(Debug, Clone)]
struct Inner {
    id: i32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Value {
    Null,
    Int(i32),
    Text(String),
    Many(Vec<Value>),
    Pairs(Vec<(Value, Value)>),
}

struct Ids(i32);

impl Ids {
    fn next(&mut self) -> i32 {
        self.0 += 1;
        self.0
    }
}

fn inner(random: &mut Random, ids: &mut Ids, depth: u64) -> Inner {
    let id = ids.next();
    let kind = match random.below(if depth == 0 { 2 } else { 7 }) {
        0 => Kind::Int,
        1 => Kind::Text,
        2..=4 => Kind::Struct((0..1 + random.below(4)).map(|_| inner(random, ids, depth - 1)).collect()),
        5 => Kind::List(Box::new(inner(random, ids, depth - 1))),
        _ => {
            let key = Inner { id: ids.next(), kind: if random.below(2) == 0 { Kind::Int } else { Kind::Text } };
            Kind::Map(Box::new(key), Box::new(inner(random, ids, depth - 1)))
        }
    };
    Inner { id, kind }
}

fn value(random: &mut Random, kind: &Kind, nullable: bool) -> Value {
    if nullable && random.below(5) == 0 {
        return Value::Null;
    }
    match kind {
        Kind::Int => Value::Int(random.next() as i32),
        Kind::Text => Value::Text("x".repeat(random.below(4) as usize) + &random.below(100).to_string()),
        Kind::Struct(fields) => Value::Many(fields.iter().map(|field| value(random, &field.kind, true)).collect()),
        Kind::List(element) => Value::Many((0..random.below(4)).map(|_| value(random, &element.kind, true)).collect()),
        Kind::Map(key, of) => {
            let pair = |n: u64, random: &mut Random| {
                let key = match key.kind {
                    Kind::Int => Value::Int(n as i32),
                    _ => Value::Text(format!("k{n}")),
                };
                (key, value(random, &of.kind, true))
            };
            Value::Pairs((0..random.below(3)).map(|n| pair(n, random)).collect())
        }
    }
}

fn array(kind: &Kind, values: &[Value]) -> ArrayRef {
    let nulls = || Some(NullBuffer::from_iter(values.iter().map(|value| !matches!(value, Value::Null))));
    let many = |value: &Value| match value {
        Value::Many(values) => values.clone(),
        _ => Vec::new(),
    };
    match kind {
        Kind::Int => Arc::new(Int32Array::from_iter(values.iter().map(|value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        }))),
        Kind::Text => Arc::new(StringArray::from_iter(values.iter().map(|value| match value {
            Value::Text(value) => Some(value.as_str()),
            _ => None,
        }))),
        Kind::Struct(fields) => {
            let child = |(place, field): (usize, &Inner)| {
                let of = |value: &Value| many(value).get(place).cloned().unwrap_or(Value::Null);
                array(&field.kind, &values.iter().map(of).collect::<Vec<_>>())
            };
            let columns: Vec<ArrayRef> = fields.iter().enumerate().map(child).collect();
            let fields = fields.iter().zip(&columns).map(|(inner, column)| arrow_field(inner, column, true));
            Arc::new(StructArray::new(fields.collect::<Fields>(), columns, nulls()))
        }
        Kind::List(element) => {
            let offsets = OffsetBuffer::from_lengths(values.iter().map(|value| many(value).len()));
            let column = array(&element.kind, &values.iter().flat_map(many).collect::<Vec<_>>());
            let element = field(element.id, "element", column.data_type().clone(), true);
            Arc::new(ListArray::new(Arc::new(element), offsets, column, nulls()))
        }
        Kind::Map(key, of) => {
            let pairs = |value: &Value| match value {
                Value::Pairs(pairs) => pairs.clone(),
                _ => Vec::new(),
            };
            let offsets = OffsetBuffer::from_lengths(values.iter().map(|value| pairs(value).len()));
            let (keys, held): (Vec<_>, Vec<_>) = values.iter().flat_map(pairs).unzip();
            let (keys, held) = (array(&key.kind, &keys), array(&of.kind, &held));
            let fields = Fields::from(vec![
                field(key.id, "key", keys.data_type().clone(), false),
                field(of.id, "value", held.data_type().clone(), true),
            ]);
            let entries = StructArray::new(fields.clone(), vec![keys, held], None);
            let name = Arc::new(Field::new("key_value", DataType::Struct(fields), false));
            Arc::new(MapArray::new(name, offsets, entries, nulls(), false))
        }
    }
}

fn arrow_field(inner: &Inner, column: &ArrayRef, nullable: bool) -> Field {
    field(inner.id, &name(inner), column.data_type().clone(), nullable)
}

fn name(inner: &Inner) -> String {
    format!("f{}", inner.id)
}

fn json(inner: &Inner) -> String {
    let id = inner.id;
    match &inner.kind {
        Kind::Int => r#""int""#.to_owned(),
        Kind::Text => r#""string""#.to_owned(),
        Kind::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(json_field).collect();
            format!(r#"{{"type":"record","name":"r{id}","fields":[{}]}}"#, fields.join(","))
        }
        Kind::List(element) => {
            format!(r#"{{"type":"array","items":["null",{}],"element-id":{}}}"#, json(element), element.id)
        }
        Kind::Map(key, of) if matches!(key.kind, Kind::Text) => {
            format!(r#"{{"type":"map","values":["null",{}],"key-id":{},"value-id":{}}}"#, json(of), key.id, of.id)
        }
        Kind::Map(key, of) => format!(
            r#"{{"type":"array","logicalType":"map","items":{{"type":"record","name":"k{}_v{}","fields":[
                {{"name":"key","type":"int","field-id":{}}},{{"name":"value","type":["null",{}],"field-id":{}}}]}}}}"#,
            key.id,
            of.id,
            key.id,
            json(of),
            of.id
        ),
    }
}

fn json_field(inner: &Inner) -> String {
    format!(r#"{{"name":"{}","type":["null",{}],"field-id":{}}}"#, name(inner), json(inner), inner.id)
}

fn avro(inner: &Inner, value: &Value) -> AvroValue {
    let of = match (&inner.kind, value) {
        (_, Value::Null) => return none(),
        (_, Value::Int(value)) => AvroValue::Int(*value),
        (_, Value::Text(value)) => AvroValue::String(value.clone()),
        (Kind::Struct(fields), Value::Many(values)) => {
            AvroValue::Record(fields.iter().zip(values).map(|(field, of)| (name(field), avro(field, of))).collect())
        }
        (Kind::List(element), Value::Many(values)) => {
            AvroValue::Array(values.iter().map(|of| avro(element, of)).collect())
        }
        (Kind::Map(_, of), Value::Pairs(pairs)) => match pairs.first() {
            Some((Value::Int(_), _)) => {
                let pair = |(key, value): &(Value, Value)| {
                    let Value::Int(key) = key else { unreachable!() };
                    let fields = [("key", AvroValue::Int(*key)), ("value", avro(of, value))];
                    AvroValue::Record(fields.map(|(name, value)| (name.to_owned(), value)).into())
                };
                AvroValue::Array(pairs.iter().map(pair).collect())
            }
            // Maps of the Avro crate have no order, so at most one pair is compared.
            Some((Value::Text(key), value)) => AvroValue::Map([(key.clone(), avro(of, value))].into()),
            _ if matches!(&inner.kind, Kind::Map(key, _) if matches!(key.kind, Kind::Int)) => {
                AvroValue::Array(Vec::new())
            }
            _ => AvroValue::Map([].into()),
        },
        (kind, value) => unreachable!("{kind:?} {value:?}"),
    };
    some(of)
}

/// Keeps one pair of a map with text keys.
fn one_pair(value: Value) -> Value {
    match value {
        Value::Many(values) => Value::Many(values.into_iter().map(one_pair).collect()),
        Value::Pairs(mut pairs) => {
            if matches!(pairs.first(), Some((Value::Text(_), _))) {
                pairs.truncate(1);
            }
            Value::Pairs(pairs.into_iter().map(|(key, value)| (key, one_pair(value))).collect())
        }
        value => value,
    }
}

/// What is read of a column: some of the fields of its structs, in any order, and some that it lacks.
fn wanted(random: &mut Random, inner: &Inner, ids: &mut Ids) -> Type {
    match &inner.kind {
        Kind::Int if random.below(2) == 0 => Type::Primitive(PrimitiveType::Long),
        Kind::Int => Type::Primitive(PrimitiveType::Int),
        Kind::Text => Type::Primitive(PrimitiveType::String),
        Kind::Struct(fields) => Type::Struct(StructType::new(wanted_fields(random, fields, ids))),
        Kind::List(element) => {
            let of = wanted(random, element, ids);
            Type::List(ListType::new(NestedField::list_element(element.id, of, false).into()))
        }
        Kind::Map(key, value) => {
            let key = NestedField::map_key_element(key.id, wanted(random, key, ids));
            let of = wanted(random, value, ids);
            Type::Map(MapType::new(key.into(), NestedField::map_value_element(value.id, of, false).into()))
        }
    }
}

fn wanted_fields(random: &mut Random, fields: &[Inner], ids: &mut Ids) -> Vec<NestedFieldRef> {
    let mut chosen: Vec<NestedFieldRef> = Vec::new();
    for field in fields {
        if random.below(3) > 0 {
            let of = wanted(random, field, ids);
            let at = random.below(chosen.len() as u64 + 1) as usize;
            chosen.insert(at, NestedField::optional(field.id, format!("w{}", field.id), of).into());
        }
    }
    if chosen.is_empty() || random.below(4) == 0 {
        let id = ids.next();
        chosen.push(optional(id, &format!("new{id}"), PrimitiveType::Int));
    }
    chosen
}

/// The text of a value as it is to be read.
fn text(of: &Type, kind: &Kind, value: &Value) -> String {
    let list = |values: Vec<String>, open: char, close: char| format!("{open}{}{close}", values.join(", "));
    match (of, kind, value) {
        (_, _, Value::Null) => "null".to_owned(),
        (_, _, Value::Int(value)) => value.to_string(),
        (_, _, Value::Text(value)) => value.clone(),
        (Type::Struct(wanted), Kind::Struct(fields), Value::Many(values)) => {
            list(texts_of(wanted.fields(), fields, values), '{', '}')
        }
        (Type::List(list_type), Kind::List(element), Value::Many(values)) => {
            let of = &list_type.element_field.field_type;
            list(values.iter().map(|value| text(of, &element.kind, value)).collect(), '[', ']')
        }
        (Type::Map(map), Kind::Map(key, held), Value::Pairs(pairs)) => {
            let pair = |(k, v): &(Value, Value)| {
                let key = text(&map.key_field.field_type, &key.kind, k);
                format!("{key}: {}", text(&map.value_field.field_type, &held.kind, v))
            };
            list(pairs.iter().map(pair).collect(), '{', '}')
        }
        other => unreachable!("{other:?}"),
    }
}

fn texts_of(wanted: &[NestedFieldRef], fields: &[Inner], values: &[Value]) -> Vec<String> {
    let one = |wanted: &NestedFieldRef| {
        let found = fields.iter().zip(values).find(|(field, _)| field.id == wanted.id);
        let text = found.map_or("null".to_owned(), |(field, value)| text(&wanted.field_type, &field.kind, value));
        (wanted.name.clone(), text)
    };
    wanted.iter().map(one).map(|(name, text)| format!("{name}: {text}")).collect()
}

fn run_case(lab: &Lab, random: &mut Random) {
    let mut ids = Ids(0);
    let columns: Vec<Inner> = (0..1 + random.below(4)).map(|_| inner(random, &mut ids, 3)).collect();
    let rows: Vec<Vec<Value>> = (0..1 + random.below(40))
        .map(|_| columns.iter().map(|column| one_pair(value(random, &column.kind, true))).collect())
        .collect();
    let arrays: Vec<ArrayRef> = (0..columns.len())
        .map(|place| array(&columns[place].kind, &rows.iter().map(|row| row[place].clone()).collect::<Vec<_>>()))
        .collect();
    let fields = columns.iter().zip(&arrays).map(|(inner, column)| arrow_field(inner, column, true));
    let written = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let in_parquet = lab.data("f.parquet", &RecordBatch::try_new(written, arrays).unwrap());
    let row = Inner { id: 0, kind: Kind::Struct(columns.clone()) };
    let blocks: Vec<Vec<AvroValue>> = rows
        .chunks(1 + random.below(10) as usize)
        .map(|rows| {
            let record = |values: &Vec<Value>| {
                let fields = columns.iter().zip(values).map(|(of, value)| (name(of), avro(of, value)));
                AvroValue::Record(fields.collect())
            };
            rows.iter().map(record).collect()
        })
        .collect();
    let bytes = container(&json(&row), &blocks, Codec::Null);
    let in_avro = DataFile { format: FileFormat::Avro, ..lab.data_file("f.avro", &bytes, rows.len() as u64) };

    let wanted = wanted_fields(random, &columns, &mut ids);
    let line = |values: &Vec<Value>| {
        let texts = texts_of(&wanted, &columns, values);
        let values = wanted.iter().zip(&texts).map(|(field, text)| text[field.name.len() + 2..].to_owned());
        values.collect::<Vec<_>>().join("|")
    };
    let expected: Vec<String> = rows.iter().map(line).collect();
    let read = |file| {
        let options = ReadOptions { batch_rows: 7, ..ReadOptions::default() };
        let rows = lab.read_with(&context(schema(wanted.clone())), &task(vec![added(file)], Vec::new()), options);
        rows.unwrap().into_iter().map(|(.., row)| row).collect::<Vec<_>>()
    };
    let (of_parquet, of_avro) = (read(in_parquet), read(in_avro));
    assert_eq!(of_avro, of_parquet, "Avro and Parquet differ");
    assert_eq!(of_avro, expected, "{columns:?} as {wanted:?}");
}

#[test]
fn any_part_of_any_nested_shape_comes_alike_from_parquet_and_avro() {
    let seed = seed();
    let lab = Lab::new();
    for case in 0..setting("ICEFERRY_CASES", || 200) {
        println!("ICEFERRY_SEED={} ICEFERRY_CASES=1", seed.wrapping_add(case));
        run_case(&lab, &mut Random(seed.wrapping_add(case)));
    }
}
