//! Avro data and delete files.

use apache_avro::types::Value;
use apache_avro::{Codec, Schema as AvroSchema, ZstandardSettings, to_avro_datum};
use arrow::array::{Int64Array, StructArray};
use iceberg::spec::{ListType, Literal, MapType, StructType};
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::MetadataColumn;

use super::property::{Random, seed, setting};
use super::*;

const MARKER: [u8; 16] = *b"sixteen byte mrk";

fn number(bytes: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// A file of these blocks, with the schema as it is given.
pub(super) fn container(json: &str, blocks: &[Vec<Value>], codec: Codec) -> Vec<u8> {
    let schema = AvroSchema::parse_str(json).unwrap();
    let name: &str = codec.into();
    let mut bytes = b"Obj\x01".to_vec();
    number(&mut bytes, 2);
    for text in ["avro.schema", json, "avro.codec", name] {
        number(&mut bytes, text.len() as i64);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&MARKER);
    for rows in blocks {
        let rows_of_block: Vec<Vec<u8>> = rows.iter().map(|row| to_avro_datum(&schema, row.clone()).unwrap()).collect();
        let mut block = rows_of_block.concat();
        codec.compress(&mut block).unwrap();
        number(&mut bytes, rows.len() as i64);
        number(&mut bytes, block.len() as i64);
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(&MARKER);
    }
    bytes
}

pub(super) fn record(fields: &[(&str, Value)]) -> Value {
    Value::Record(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// A value of a union of null and something else.
pub(super) fn some(value: Value) -> Value {
    Value::Union(1, Box::new(value))
}

pub(super) fn none() -> Value {
    Value::Union(0, Box::new(Value::Null))
}

const ID_V: &str = r#"{"type":"record","name":"table","fields":[{"name":"id","type":"int","field-id":1},
    {"name":"v","type":["null","string"],"default":null,"field-id":2}]}"#;

fn row(id: i32, v: &str) -> Value {
    record(&[("id", Value::Int(id)), ("v", some(Value::String(v.to_owned())))])
}

fn avro_data(lab: &Lab, name: &str, json: &str, blocks: &[Vec<Value>], codec: Codec) -> DataFile {
    let rows = blocks.iter().map(Vec::len).sum::<usize>() as u64;
    DataFile { format: FileFormat::Avro, ..lab.data_file(name, &container(json, blocks, codec), rows) }
}

/// A data file of one column.
fn one_column(lab: &Lab, of: &str, values: &[Value]) -> DataFile {
    let json = format!(r#"{{"type":"record","name":"t","fields":[{{"name":"c","type":{of},"field-id":1}}]}}"#);
    let rows = values.iter().map(|value| record(&[("c", value.clone())])).collect();
    avro_data(lab, "f.avro", &json, &[rows], Codec::Null)
}

fn avro_delete(lab: &Lab, name: &str, json: &str, rows: Vec<Value>, kind: DeleteKind) -> DeleteFile {
    let record_count = rows.len() as u64;
    let size_bytes = lab.put(name, container(json, &[rows], Codec::Null));
    DeleteFile { location: lab.location(name), format: FileFormat::Avro, size_bytes, record_count, kind }
}

#[test]
fn avro_values_come_as_the_tables_type_or_the_column_is_refused() {
    use PrimitiveType as To;
    let long = |logical: &str| format!(r#"{{"type":"long","logicalType":"{logical}"}}"#);
    let decimal = r#"{"type":"fixed","name":"d","size":3,"logicalType":"decimal","precision":6,"scale":2}"#;
    let fixed = |size: usize| format!(r#"{{"type":"fixed","name":"f","size":{size}}}"#);
    let uuid = r#"{"type":"fixed","name":"uuid_fixed","size":16,"logicalType":"uuid"}"#;
    // 1969-12-31T23:59:59.999999 and 2024-03-10T02:30:00, an hour that New York skipped.
    let (before, skipped) = (-1, 1_710_037_800_000_000);
    let local = r#"{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":false}"#;
    let to_decimal = |precision, scale| To::Decimal { precision, scale };
    let cases: Vec<(String, Value, To, Option<&str>)> = vec![
        (r#""boolean""#.into(), Value::Boolean(true), To::Boolean, Some("true")),
        (r#""int""#.into(), Value::Int(i32::MIN), To::Int, Some("-2147483648")),
        (r#""int""#.into(), Value::Int(5), To::Long, Some("5")),
        (r#""long""#.into(), Value::Long(i64::MIN), To::Long, Some("-9223372036854775808")),
        (r#""long""#.into(), Value::Long(5), To::Int, None),
        (r#""float""#.into(), Value::Float(0.5), To::Double, Some("0.5")),
        (r#""double""#.into(), Value::Double(f64::NAN), To::Double, Some("NaN")),
        (r#""double""#.into(), Value::Double(0.5), To::Float, None),
        (r#"{"type":"int","logicalType":"date"}"#.into(), Value::Date(-1), To::Date, Some("1969-12-31")),
        (
            r#"{"type":"int","logicalType":"time-millis"}"#.into(),
            Value::TimeMillis(1_001),
            To::Time,
            Some("00:00:01.001"),
        ),
        (long("time-micros"), Value::TimeMicros(1_000_001), To::Time, Some("00:00:01.000001")),
        (long("timestamp-micros"), Value::TimestampMicros(before), To::Timestamp, Some("1969-12-31T23:59:59.999999")),
        (long("timestamp-micros"), Value::TimestampMicros(skipped), To::Timestamptz, Some("2024-03-10T02:30:00Z")),
        (local.into(), Value::TimestampMicros(skipped), To::Timestamp, Some("2024-03-10T02:30:00")),
        (
            long("local-timestamp-micros"),
            Value::LocalTimestampMicros(before),
            To::Timestamp,
            Some("1969-12-31T23:59:59.999999"),
        ),
        (long("timestamp-millis"), Value::TimestampMillis(-1), To::Timestamp, Some("1969-12-31T23:59:59.999")),
        (long("timestamp-nanos"), Value::TimestampNanos(-1), To::TimestampNs, Some("1969-12-31T23:59:59.999999999")),
        (long("timestamp-nanos"), Value::TimestampNanos(-1), To::Timestamp, None),
        (r#""long""#.into(), Value::Long(1), To::Timestamp, None),
        (r#""string""#.into(), Value::String("ü".into()), To::String, Some("ü")),
        (r#""bytes""#.into(), Value::Bytes(vec![1, 255]), To::Binary, Some("01ff")),
        (r#""bytes""#.into(), Value::Bytes(vec![1, 255]), To::String, None),
        (fixed(3), Value::Fixed(3, vec![1, 2, 3]), To::Fixed(3), Some("010203")),
        (fixed(3), Value::Fixed(3, vec![1, 2, 3]), To::Fixed(4), None),
        (
            uuid.replace(r#","logicalType":"uuid""#, ""),
            Value::Fixed(16, vec![7; 16]),
            To::Uuid,
            Some("07070707070707070707070707070707"),
        ),
        (decimal.into(), Value::Decimal(vec![0, 4, 0xD2].into()), to_decimal(9, 2), Some("12.34")),
        (decimal.into(), Value::Decimal(vec![0xFF, 0xFF, 0xFF].into()), to_decimal(6, 2), Some("-0.01")),
        (decimal.into(), Value::Decimal(vec![0, 4, 0xD2].into()), to_decimal(9, 3), None),
        (decimal.into(), Value::Decimal(vec![0, 4, 0xD2].into()), to_decimal(5, 2), None),
        (
            r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#.into(),
            Value::Decimal(vec![4, 0xD2].into()),
            to_decimal(4, 2),
            Some("12.34"),
        ),
        (r#"["null","int"]"#.into(), some(Value::Int(1)), To::Int, Some("1")),
        (r#"["int","null"]"#.into(), Value::Union(1, Box::new(Value::Null)), To::Int, Some("null")),
        (r#""null""#.into(), Value::Null, To::Int, Some("null")),
        (r#"["null","int","string"]"#.into(), some(Value::Int(1)), To::Int, None),
        (r#"{"type":"enum","name":"e","symbols":["A","B"]}"#.into(), Value::Enum(1, "B".into()), To::String, Some("B")),
    ];
    let lab = Lab::new();
    for (of, value, to, expected) in cases {
        let name = format!("{of} as {to}");
        let file = one_column(&lab, &of, &[value]);
        match (lab.rows_of(&schema([optional(1, "c", to)]), file), expected) {
            (Ok(got), Some(expected)) => assert_eq!(got, [expected], "{name}"),
            (Err(error), None) => {
                assert_eq!(error.class(), Class::Refused, "{name}: {error:?}");
                assert!(error.to_string().contains("column c of file:"), "{name}: {error}");
            }
            (got, expected) => panic!("{name}: {got:?} and not {expected:?}"),
        }
    }
}

fn struct_of(fields: impl IntoIterator<Item = NestedFieldRef>) -> Type {
    Type::Struct(StructType::new(fields.into_iter().collect()))
}

#[test]
fn avro_fields_are_found_by_id_in_structs_lists_and_maps() {
    let pair = |name: &str, base: i32| {
        format!(
            r#"{{"type":"record","name":"{name}","fields":[
                {{"name":"a","type":"int","field-id":{}}},
                {{"name":"gone","type":["null",{{"type":"map","values":"string","key-id":{},"value-id":{}}}],"field-id":{}}},
                {{"name":"c","type":["null","int"],"field-id":{}}}]}}"#,
            base + 1,
            base + 7,
            base + 8,
            base + 9,
            base + 3
        )
    };
    let json = format!(
        r#"{{"type":"record","name":"table","fields":[
            {{"name":"s","type":["null",{}],"field-id":1}},
            {{"name":"l","type":["null",{{"type":"array","items":["null",{}],"element-id":20}}],"field-id":2}},
            {{"name":"m","type":{{"type":"map","values":["null",{}],"key-id":35,"value-id":36}},"field-id":3}},
            {{"name":"p","type":["null",{{"type":"array","logicalType":"map","items":{{"type":"record","name":"k45_v46",
                "fields":[{{"name":"key","type":"int","field-id":45}},
                {{"name":"value","type":["null","int"],"field-id":46}}]}}}}],"field-id":4}}]}}"#,
        pair("r1", 10),
        pair("r20", 20),
        pair("r36", 30)
    );
    let a_c = |a: i32| {
        let gone = Value::Map([("x".to_owned(), Value::String("y".to_owned()))].into());
        record(&[("a", Value::Int(a)), ("gone", some(gone)), ("c", some(Value::Int(a * 10)))])
    };
    let key_value = |key: i32, value: Value| record(&[("key", Value::Int(key)), ("value", value)]);
    let rows = vec![
        record(&[
            ("s", some(a_c(1))),
            ("l", some(Value::Array(vec![some(a_c(1)), none()]))),
            ("m", Value::Map([("x".to_owned(), some(a_c(1)))].into())),
            ("p", some(Value::Array(vec![key_value(7, some(Value::Int(70))), key_value(8, none())]))),
        ]),
        record(&[("s", none()), ("l", none()), ("m", Value::Map([].into())), ("p", none())]),
        record(&[
            ("s", some(a_c(3))),
            ("l", some(Value::Array(vec![]))),
            ("m", Value::Map([("z".to_owned(), none())].into())),
            ("p", some(Value::Array(vec![]))),
        ]),
    ];
    let lab = Lab::new();
    let file = avro_data(&lab, "f.avro", &json, &[rows], Codec::Deflate(Default::default()));
    // Read: c renamed to a and first, b added with a default, a widened and renamed.
    let evolved = |base: i32| {
        let b = (*optional(base + 2, "b", PrimitiveType::String)).clone().with_initial_default(Literal::string("?"));
        struct_of([
            optional(base + 3, "a", PrimitiveType::Int),
            b.into(),
            optional(base + 1, "was_a", PrimitiveType::Long),
        ])
    };
    let list = |element: Type| Type::List(ListType::new(NestedField::list_element(20, element, false).into()));
    let map = |key: i32, of: PrimitiveType, value: Type| {
        let key_field = NestedField::map_key_element(key, Type::Primitive(of));
        Type::Map(MapType::new(key_field.into(), NestedField::map_value_element(key + 1, value, false).into()))
    };
    let nested = |id, name: &str, of| -> NestedFieldRef { NestedField::optional(id, name, of).into() };
    let wanted = schema([
        nested(4, "p", map(45, PrimitiveType::Long, Type::Primitive(PrimitiveType::Long))),
        nested(3, "m", map(35, PrimitiveType::String, evolved(30))),
        nested(1, "s", evolved(10)),
        nested(2, "l", list(evolved(20))),
    ]);
    let text = |a: i32| format!("{{a: {}, b: ?, was_a: {a}}}", a * 10);
    let expected = [
        format!("{{7: 70, 8: null}}|{{x: {}}}|{}|[{}, null]", text(1), text(1), text(1)),
        "null|{}|null|null".to_owned(),
        format!("{{}}|{{z: null}}|{}|[]", text(3)),
    ];
    assert_eq!(lab.rows_of(&wanted, file.clone()).unwrap(), expected);

    // None of a struct's fields is in the file: it is still null where it was null, and nowhere else.
    let all_new = schema([nested(1, "s", struct_of([optional(99, "e", PrimitiveType::Int)]))]);
    assert_eq!(lab.rows_of(&all_new, file.clone()).unwrap(), ["{e: null}", "null", "{e: null}"]);
    let other_shape = schema([nested(1, "s", list(Type::Primitive(PrimitiveType::Int)))]);
    assert!(lab.rows_of(&other_shape, file).unwrap_err().to_string().contains("column s of file:"));
}

#[test]
fn an_avro_file_gives_what_a_parquet_file_of_the_same_rows_gives() {
    let lab = Lab::new();
    let values: Vec<(i32, String)> = (0..500).map(|id| (id, format!("value {}", id % 7))).collect();
    let parquet = {
        let rows: Vec<(i32, &str)> = values.iter().map(|(id, v)| (*id, v.as_str())).collect();
        lab.data("f", &id_v(&rows))
    };
    let deletes = |path: &str, first: u32| {
        vec![
            lab.positions(&format!("p{first}"), &[(path, 499), (path, 3), (path, 3), ("file:///x", 4)]),
            lab.vector(&format!("v{first}"), &[0, 99, 100, 250]),
            lab.equality(&format!("e{first}"), &[(2, "v", texts(["value 3"]))]),
        ]
    };
    type Side<'a> = Option<&'a [u32]>;
    let sides: [(Side<'_>, Side<'_>); 8] = [
        (None, Some(&[])),
        (None, Some(&[0, 2])),
        (Some(&[1, 2]), None),
        (Some(&[]), Some(&[1])),
        (Some(&[1]), Some(&[0])),
        (Some(&[]), Some(&[2])),
        (Some(&[2]), Some(&[0])),
        (Some(&[1, 2]), Some(&[])),
    ];
    let codecs = [Codec::Null, Codec::Deflate(Default::default()), Codec::Snappy, zstandard()];
    for (case, codec) in (0..).zip(codecs) {
        let block_rows = [1, 7, 100, 500][case as usize];
        let rows: Vec<Value> = values.iter().map(|(id, v)| row(*id, v)).collect();
        let blocks: Vec<Vec<Value>> = rows.chunks(block_rows).map(<[Value]>::to_vec).collect();
        let avro = avro_data(&lab, &format!("a{case}"), ID_V, &blocks, codec);
        for (before, after) in sides {
            let of_parquet = task(vec![difference(parquet.clone(), before, after)], deletes(&parquet.location, 10));
            let expected = lab.read(&context(id_v_schema()), &of_parquet).unwrap();
            let of_avro = task(vec![difference(avro.clone(), before, after)], deletes(&avro.location, case));
            for (batch_rows, fetch_bytes, batch_bytes) in [(8192, 1 << 24, 1 << 23), (3, 1, 1 << 23), (8192, 1, 40)] {
                let options = ReadOptions { batch_rows, fetch_bytes, batch_bytes, ..ReadOptions::default() };
                let got = lab.read_with(&context(id_v_schema()), &of_avro, options).unwrap();
                assert!(got == expected, "{codec:?} {before:?} {after:?} {batch_rows} {batch_bytes}");
            }
        }
    }
}

fn zstandard() -> Codec {
    Codec::Zstandard(ZstandardSettings::default())
}

#[test]
fn a_large_avro_file_comes_in_pieces_and_in_bounded_batches() {
    let lab = Lab::new();
    // Rows of 300 bytes, one of 3 MB among them: more than the first request, and than a piece.
    let long = |id: i32| if id == 5_000 { 3_000_000 } else { 300 };
    let rows: Vec<Value> = (0..10_000).map(|id| row(id, &"x".repeat(long(id)))).collect();
    let blocks: Vec<Vec<Value>> = rows.chunks(211).map(<[Value]>::to_vec).collect();
    let file = avro_data(&lab, "f.avro", ID_V, &blocks, Codec::Null);
    let options = ReadOptions { batch_bytes: 64 * 1024, fetch_bytes: 200_000, ..ReadOptions::default() };
    let storage = Storage::new(StorageProperties::default());
    let size = file.size_bytes;
    let task = task(vec![added(file)], Vec::new());
    let handle = lab.runtime.handle().clone();
    let mut reader = TaskReader::open(&context(id_v_schema()), &task, storage, handle, options).unwrap();
    let mut next = 0;
    for batch in reader.by_ref() {
        let rows = batch.unwrap().rows;
        assert!(rows.num_rows() <= 64 * 1024 / 300 + 1, "{} rows", rows.num_rows());
        let ids = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int32Type>(rows.column(0));
        let texts = arrow::array::AsArray::as_string::<i32>(rows.column(1));
        for row in 0..rows.num_rows() {
            assert_eq!((ids.value(row), texts.value(row).len()), (next, long(next)));
            next += 1;
        }
    }
    assert_eq!(next, 10_000);
    assert_eq!(reader.bytes_fetched(), size);
}

#[test]
fn a_block_without_a_chosen_row_is_passed_over() {
    let lab = Lab::new();
    let blocks: Vec<Vec<Value>> = (0..3).map(|block| vec![row(block, "a"), row(block + 10, "b")]).collect();
    let mut bytes = container(ID_V, &blocks, Codec::Snappy);
    // The second block is no Snappy: its checksum is not right.
    let at = |nth: usize| bytes.windows(16).enumerate().filter(|(_, part)| *part == MARKER).nth(nth).unwrap().0;
    let last_of_second = at(2) - 1;
    bytes[last_of_second] ^= 0xFF;
    let file = DataFile { format: FileFormat::Avro, ..lab.data_file("f", &bytes, 6) };
    let vector = lab.vector("v", &[1, 4]);
    let went = task(vec![difference(file.clone(), Some(&[]), Some(&[0]))], vec![vector]);
    assert_eq!(lab.read(&context(id_v_schema()), &went).unwrap(), super::deletes(&["10|b", "2|a"]));
    let error = lab.rows_of(&id_v_schema(), file).unwrap_err();
    assert!(chain(&error).contains("checksum"), "{error}");
}

#[test]
fn metadata_columns_of_avro_files_are_true() {
    let lab = Lab::new();
    let json = r#"{"type":"record","name":"t","fields":[{"name":"id","type":"int","field-id":1},
        {"name":"v","type":["null","string"],"field-id":2},
        {"name":"_row_id","type":["null","long"],"field-id":2147483540},
        {"name":"_last_updated_sequence_number","type":["null","long"],"field-id":2147483539}]}"#;
    let carried = |id: i32, row_id: Value, updated: Value| {
        record(&[
            ("id", Value::Int(id)),
            ("v", none()),
            ("_row_id", row_id),
            ("_last_updated_sequence_number", updated),
        ])
    };
    let blocks = [
        vec![carried(1, some(Value::Long(40)), some(Value::Long(2)))],
        vec![carried(2, none(), none()), carried(3, none(), none())],
    ];
    let mut file = avro_data(&lab, "f.avro", json, &blocks, Codec::Null);
    (file.first_row_id, file.sequence_number) = (Some(100), 9);
    let location = file.location.clone();
    let positions = lab.positions("p", &[(&location, 1)]);
    let wanted =
        [MetadataColumn::Pos, MetadataColumn::RowId, MetadataColumn::LastUpdatedSequenceNumber, MetadataColumn::File];
    let task = task(vec![difference(file, None, Some(&[0]))], vec![positions]);
    let rows = lab.read(&super::metadata::logged(&wanted), &task).unwrap();
    let expected = [format!("1|null|0|40|2|{location}"), format!("3|null|2|102|9|{location}")];
    assert_eq!(rows, inserts(&[&expected[0], &expected[1]]));
}

#[test]
fn avro_deletes_of_either_kind_are_those_of_parquet() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]));
    let path = |path: &str, position: i64| {
        record(&[
            ("file_path", Value::String(path.to_owned())),
            ("pos", Value::Long(position)),
            ("row", some(record(&[("id", Value::Int(9))]))),
        ])
    };
    let positions_of = |ids: [&str; 2]| {
        format!(
            r#"{{"type":"record","name":"d","fields":[{{"name":"file_path","type":"string"{}}},
                {{"name":"pos","type":"long"{}}},
                {{"name":"row","type":["null",{{"type":"record","name":"r","fields":[
                    {{"name":"id","type":"int"}}]}}]}}]}}"#,
            ids[0], ids[1]
        )
    };
    let rows =
        vec![path(&file.location, 3), path("file:///other", 0), path(&file.location, 1), path(&file.location, 3)];
    for (name, ids) in [("with ids", [r#","field-id":2147483546"#, r#","field-id":2147483545"#]), ("without", ["", ""])]
    {
        let delete = avro_delete(&lab, "p.avro", &positions_of(ids), rows.clone(), DeleteKind::Position);
        let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![delete]);
        assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), inserts(&["1|a", "3|c", "5|e"]), "{name}");
    }
    let keys = r#"{"type":"record","name":"d","fields":[{"name":"extra","type":"string","field-id":9},
        {"name":"v","type":["null","string"],"field-id":2},{"name":"id","type":"int","field-id":1}]}"#;
    let key = |id: i32, v: Value| record(&[("extra", Value::String("x".into())), ("v", v), ("id", Value::Int(id))]);
    let rows = vec![key(1, some(Value::String("a".into()))), key(2, none()), key(3, some(Value::String("x".into())))];
    let cases: [(Vec<i32>, &[&str]); 3] = [
        (vec![1], &["4|d", "5|e"]),
        (vec![1, 2], &["2|b", "3|c", "4|d", "5|e"]),
        (vec![2], &["2|b", "3|c", "4|d", "5|e"]),
    ];
    for (field_ids, left) in cases {
        let kind = DeleteKind::Equality { field_ids };
        let delete = avro_delete(&lab, "e.avro", keys, rows.clone(), kind.clone());
        let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![delete]);
        assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), inserts(left), "{kind:?}");
    }
}

#[test]
fn an_avro_file_without_ids_is_read_by_name_mapping_else_by_name() {
    let lab = Lab::new();
    let json = r#"{"type":"record","name":"t","fields":[{"name":"v","type":["null","string"]},
        {"name":"s","type":{"type":"record","name":"n","fields":[{"name":"b","type":"int"},{"name":"a","type":"int"}]}},
        {"name":"id","type":"int"}]}"#;
    let s = record(&[("b", Value::Int(2)), ("a", Value::Int(1))]);
    let rows = vec![record(&[("v", some(Value::String("x".into()))), ("s", s), ("id", Value::Int(7))])];
    let file = avro_data(&lab, "f.avro", json, &[rows], Codec::Null);
    let schema_with = |a: &str, more: Option<NestedFieldRef>| {
        let s = struct_of([optional(11, a, PrimitiveType::Int), optional(12, "b", PrimitiveType::Long)]);
        let fields = [
            required(1, "id", PrimitiveType::Long),
            optional(2, "v", PrimitiveType::String),
            NestedField::optional(3, "s", s).into(),
        ];
        schema(fields.into_iter().chain(more))
    };
    assert_eq!(lab.rows_of(&schema_with("a", None), file.clone()).unwrap(), ["7|x|{a: 1, b: 2}"]);
    let new = optional(9, "new", PrimitiveType::Int);
    assert_eq!(lab.rows_of(&schema_with("a", Some(new)), file.clone()).unwrap(), ["7|x|{a: 1, b: 2}|null"]);
    // A column under another name may be one that was renamed: only a mapping can tell.
    let error = lab.rows_of(&schema_with("renamed", None), file.clone()).unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("column s.renamed of") && error.to_string().contains("\"a\""), "{error}");
    let mut context = context(schema_with("renamed", None));
    context.source.name_mapping = Some(
        r#"[{"field-id":1,"names":["id"]},{"field-id":2,"names":["v"]},{"field-id":3,"names":["s"],"fields":[
            {"field-id":11,"names":["a","renamed"]},{"field-id":12,"names":["b"]}]}]"#
            .to_owned(),
    );
    let task = task(vec![added(file)], Vec::new());
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&["7|x|{renamed: 1, b: 2}"]));
}

#[test]
fn a_name_that_avro_does_not_take_is_known_by_the_name_it_stands_for() {
    let lab = Lab::new();
    let json = r#"{"type":"record","name":"t","fields":[
        {"name":"a_x20b","type":"int","iceberg-field-name":"a b"},{"name":"_xF0","type":"int"}]}"#;
    let rows = vec![record(&[("a_x20b", Value::Int(1)), ("_xF0", Value::Int(2))])];
    let file = avro_data(&lab, "f.avro", json, &[rows], Codec::Null);
    let mut context = context(schema([optional(1, "a b", PrimitiveType::Int), optional(2, "🦀", PrimitiveType::Int)]));
    context.source.name_mapping =
        Some(r#"[{"field-id":1,"names":["a b"]},{"field-id":2,"names":["🦀","_xF0"]}]"#.to_owned());
    let task = task(vec![added(file)], Vec::new());
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&["1|2"]));
}

#[test]
fn an_avro_file_that_cannot_be_read_fails_by_name_and_class() {
    let lab = Lab::new();
    let good = avro_data(&lab, "good", ID_V, &[vec![row(1, "a")], vec![row(2, "b")]], Codec::Null);
    let bytes = container(ID_V, &[vec![row(1, "a")], vec![row(2, "b")]], Codec::Null);
    let as_avro = |name: &str, bytes: &[u8]| DataFile { format: FileFormat::Avro, ..lab.data_file(name, bytes, 2) };
    let replaced = |from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
        [&bytes[..at], to, &bytes[at + from.len()..]].concat()
    };
    let cases: Vec<(&str, DataFile, Class, &str)> = vec![
        ("missing", DataFile { location: lab.location("none"), ..good.clone() }, Class::NotFound, "read file:"),
        ("of another size", DataFile { size_bytes: good.size_bytes - 1, ..good.clone() }, Class::Corrupt, "replaced"),
        ("cut in a block", as_avro("cut", &bytes[..bytes.len() - 3]), Class::Corrupt, "beyond its end"),
        ("cut in the header", as_avro("head", &bytes[..40]), Class::Corrupt, "beyond its end"),
        ("no Avro", as_avro("text", b"hello, this is a text"), Class::Corrupt, "does not begin like an Avro file"),
        ("tiny", as_avro("tiny", b"Obj"), Class::Corrupt, "does not begin like an Avro file"),
        ("fewer rows than said", DataFile { record_count: 3, ..good.clone() }, Class::Corrupt, "has 2 rows"),
        ("more rows than said", DataFile { record_count: 1, ..good.clone() }, Class::Corrupt, "more rows"),
        ("of an unknown codec", as_avro("xz", &replaced(b"\x08null", b"\x04xz")), Class::Refused, "\"xz\""),
        ("of another marker", as_avro("m", &replaced(&MARKER, &[7; 16])), Class::Corrupt, "marker"),
        ("of a schema without an end", as_avro("j", &replaced(b"]}\x14avro", b"]!\x14avro")), Class::Corrupt, "JSON"),
        (
            "of a type unknown",
            as_avro("u", &replaced(br#""int""#, br#""itn""#)),
            Class::Refused,
            "\"itn\" is not known",
        ),
        ("ORC", DataFile { format: FileFormat::Orc, ..good.clone() }, Class::Refused, "Orc are not supported"),
    ];
    for (name, file, class, text) in cases {
        let location = file.location.clone();
        let error = lab.rows_of(&id_v_schema(), file).unwrap_err();
        assert_eq!(error.class(), class, "{name}: {error:?}");
        assert!(chain(&error).contains(text) && chain(&error).contains(&location), "{name}: {}", chain(&error));
    }
    let part = task(vec![split(added(good), 0, 10)], Vec::new());
    assert_eq!(lab.read(&context(id_v_schema()), &part).unwrap_err().class(), Class::Bug);
}

#[test]
fn any_damage_of_an_avro_file_gives_rows_or_an_error() {
    let lab = Lab::new();
    let json = r#"{"type":"record","name":"t","fields":[{"name":"id","type":"int","field-id":1},
        {"name":"l","type":["null",{"type":"array","items":["null","string"],"element-id":3}],"field-id":2},
        {"name":"skipped","type":{"type":"array","items":"null","element-id":5},"field-id":4}]}"#;
    let row = |id: i32| {
        let list = (0..id % 4).map(|item| if item == 2 { none() } else { some(Value::String(format!("text {item}"))) });
        let list = if id % 9 == 0 { none() } else { some(Value::Array(list.collect())) };
        record(&[("id", Value::Int(id)), ("l", list), ("skipped", Value::Array(vec![Value::Null; 3]))])
    };
    let element = NestedField::list_element(3, Type::Primitive(PrimitiveType::String), false);
    let list = Type::List(ListType::new(element.into()));
    let schema = schema([required(1, "id", PrimitiveType::Int), NestedField::optional(2, "l", list).into()]);
    let blocks: Vec<Vec<Value>> = (0..100).map(row).collect::<Vec<_>>().chunks(40).map(<[Value]>::to_vec).collect();
    std::panic::set_hook(Box::new(|_| {}));
    let seed = seed();
    for (codec, name) in [(Codec::Null, "null"), (Codec::Snappy, "snappy"), (zstandard(), "zstandard")] {
        let bytes = container(json, &blocks, codec);
        let file = DataFile { format: FileFormat::Avro, ..lab.data_file(name, &bytes, 100) };
        assert_eq!(lab.rows_of(&schema, file.clone()).unwrap().len(), 100);
        for case in 0..setting("ICEFERRY_CASES", || 200) {
            println!("ICEFERRY_SEED={} ICEFERRY_CASES=1", seed.wrapping_add(case));
            let mut random = Random(seed.wrapping_add(case));
            let mut bad = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let index = random.below(bytes.len() as u64) as usize;
                bad[index] = random.next() as u8;
            }
            lab.put(name, &bad);
            match lab.rows_of(&schema, file.clone()) {
                Ok(read) => assert_eq!(read.len(), 100),
                Err(error) => assert!([Class::Corrupt, Class::Refused].contains(&error.class()), "{}", chain(&error)),
            }
        }
    }
    let _ = std::panic::take_hook();
}

#[test]
fn nested_keys_delete_rows_of_avro_and_parquet_files_alike() {
    let lab = Lab::new();
    let inner = |ids: [Option<i32>; 4]| -> ArrayRef {
        let ids: ArrayRef = Arc::new(Int32Array::from(ids.to_vec()));
        let other: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let fields = vec![field(11, "x", DataType::Int32, true), field(12, "y", DataType::Int64, true)];
        let nulls = Some(vec![true, true, true, false].into());
        Arc::new(StructArray::new(fields.into(), vec![ids, other], nulls))
    };
    let s = inner([Some(1), Some(2), None, Some(1)]);
    let with_ids = |columns: Vec<(i32, &str, ArrayRef)>| {
        let fields = columns.iter().map(|(id, name, array)| field(*id, name, array.data_type().clone(), true));
        let written = ArrowSchema::new(fields.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(written), columns.iter().map(|(.., array)| Arc::clone(array)).collect()).unwrap()
    };
    let parquet = lab.data("f.parquet", &with_ids(vec![(1, "id", ints([1, 2, 3, 4])), (10, "s", s)]));
    let json = r#"{"type":"record","name":"t","fields":[{"name":"id","type":"int","field-id":1},
        {"name":"s","type":["null",{"type":"record","name":"n","fields":[{"name":"y","type":"long","field-id":12},
        {"name":"x","type":["null","int"],"field-id":11}]}],"field-id":10}]}"#;
    let n = |y: i64, x: Value| some(record(&[("y", Value::Long(y)), ("x", x)]));
    let of_row = |id: i32, s: Value| record(&[("id", Value::Int(id)), ("s", s)]);
    let rows = vec![
        of_row(1, n(1, some(Value::Int(1)))),
        of_row(2, n(2, some(Value::Int(2)))),
        of_row(3, n(3, none())),
        of_row(4, none()),
    ];
    let avro = avro_data(&lab, "f.avro", json, &[rows], Codec::Null);
    let struct_type = struct_of([optional(11, "x", PrimitiveType::Int), required(12, "y", PrimitiveType::Long)]);
    let mut context = context(schema([required(1, "id", PrimitiveType::Int)]));
    context.source.equality_schema =
        Arc::new(schema([required(1, "id", PrimitiveType::Int), NestedField::optional(10, "s", struct_type).into()]));
    // Deletes x 2 and x null, the latter by its field and by its struct; by y null too, then.
    let parquet_keys = with_ids(vec![(10, "s", inner([Some(2), Some(2), None, Some(9)]))]);
    let cases: [(&[i32], &[&str]); 3] = [(&[11], &["1"]), (&[12], &[]), (&[12, 11], &["1"])];
    for (field_ids, left) in cases {
        let kind = DeleteKind::Equality { field_ids: field_ids.to_vec() };
        let delete = lab.delete_file("e", &parquet_keys, kind);
        for file in [&parquet, &avro] {
            let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![delete.clone()]);
            assert_eq!(lab.read(&context, &task).unwrap(), inserts(left), "{field_ids:?} {}", file.location);
        }
    }
}

#[test]
fn a_file_that_iceberg_java_wrote_is_understood() {
    // Written by Iceberg 1.10 in Spark, row by row from id alone.
    let lab = Lab::new();
    let bytes = include_bytes!("data/iceberg_java.avro");
    let file = DataFile { format: FileFormat::Avro, ..lab.data_file("f", bytes, 15) };
    let nested = |id, name: &str, of| -> NestedFieldRef { NestedField::optional(id, name, of).into() };
    let decimal = |precision, scale| PrimitiveType::Decimal { precision, scale };
    let pair = struct_of([optional(17, "a", PrimitiveType::Int), optional(18, "b", PrimitiveType::String)]);
    let deep = struct_of([optional(25, "z", decimal(20, 3))]);
    let map = |id, key, value| {
        let key = NestedField::map_key_element(id, Type::Primitive(key));
        Type::Map(MapType::new(
            key.into(),
            NestedField::map_value_element(id + 1, Type::Primitive(value), false).into(),
        ))
    };
    let schema = schema([
        optional(1, "id", PrimitiveType::Long),
        optional(2, "i", PrimitiveType::Long),
        optional(3, "f", PrimitiveType::Double),
        optional(5, "s", PrimitiveType::String),
        optional(6, "b", PrimitiveType::Binary),
        optional(7, "dec", decimal(14, 2)),
        optional(8, "dt", PrimitiveType::Date),
        optional(9, "ts", PrimitiveType::Timestamptz),
        optional(10, "tsn", PrimitiveType::Timestamp),
        optional(11, "ok", PrimitiveType::Boolean),
        nested(12, "arr", Type::List(ListType::new(NestedField::list_element(16, pair, false).into()))),
        nested(13, "m", map(19, PrimitiveType::String, PrimitiveType::Long)),
        nested(14, "mi", map(21, PrimitiveType::Int, PrimitiveType::String)),
        nested(15, "st", struct_of([nested(24, "y", deep), optional(23, "x", PrimitiveType::Int)])),
    ]);
    let rows = lab.rows_of(&schema, file).unwrap();
    let same = "1969-12-31T23:59:59.999999";
    let expected = [
        format!(
            "0|0|0.0|n0|6230|0.00|1969-12-25|1969-12-31T23:59:55Z|{same}|true|[{{a: 1, b: x}}, {{a: null, b: 0}}]|\
             {{k: 0}}|{{0: v}}|{{y: {{z: 0.000}}, x: 1}}"
        ),
        format!(
            "7|7|3.5|n7|6237|1.75|1970-01-01|1970-01-01T00:00:02.000007Z|{same}|false|[{{a: 1, b: x}}, \
             {{a: null, b: 7}}]|{{k: 7}}|{{7: v}}|{{y: {{z: 7.000}}, x: 1}}"
        ),
        format!(
            "14|14|7.0|n14|623134|3.50|1970-01-08|1970-01-01T00:00:09.000014Z|{same}|true|[{{a: 1, b: x}}, \
             {{a: null, b: 14}}]|{{k: 14}}|{{14: v}}|{{y: {{z: 14.000}}, x: 1}}"
        ),
    ];
    assert_eq!(rows.len(), 15);
    assert_eq!([&rows[0], &rows[7], &rows[14]], [&expected[0], &expected[1], &expected[2]]);
}
