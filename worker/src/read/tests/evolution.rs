//! Columns by field id: schemas that changed after the file was written, and files without ids.

use arrow::array::{ListArray, MapArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Fields;
use iceberg::spec::{ListType, Literal, MapType, StructType};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::Constant;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;

fn with_default(field: NestedFieldRef, default: Literal) -> NestedFieldRef {
    (*field).clone().with_initial_default(default).into()
}

fn structs(columns: &[(i32, &str, ArrayRef)], nulls: Option<Vec<bool>>) -> StructArray {
    let batch = batch(columns);
    let fields: Fields =
        batch.schema().fields().iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true))).collect();
    StructArray::try_new(fields, batch.columns().to_vec(), nulls.map(NullBuffer::from)).unwrap()
}

fn struct_type(fields: impl IntoIterator<Item = NestedFieldRef>) -> Type {
    Type::Struct(StructType::new(fields.into_iter().collect()))
}

#[test]
fn top_level_columns_are_found_by_id_whatever_their_name_and_place() {
    let lab = Lab::new();
    let file = lab.data(
        "f.parquet",
        &batch(&[(3, "c", ints([30, 31])), (1, "was_a", ints([10, 11])), (7, "dropped", texts(["x", "y"]))]),
    );
    let schema = schema([
        required(1, "a", PrimitiveType::Long),
        with_default(required(2, "b", PrimitiveType::String), Literal::string("default")),
        required(3, "dropped", PrimitiveType::Int),
        optional(4, "was_a", PrimitiveType::Int),
    ]);
    assert_eq!(lab.rows_of(&schema, file).unwrap(), ["10|default|30|null", "11|default|31|null"]);
}

#[test]
fn a_missing_column_is_the_partition_constant_then_the_default_then_null_then_refused() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a")]));
    let lacks = |field: NestedFieldRef, constants: Vec<Constant>| {
        let file = DataFile { constants, ..file.clone() };
        lab.rows_of(&schema([required(1, "id", PrimitiveType::Int), field]), file)
    };
    let constant = |value: Option<Vec<u8>>| vec![Constant { field_id: 5, value }];
    let int = || optional(5, "p", PrimitiveType::Int);
    assert_eq!(lacks(int(), constant(Some(7i32.to_le_bytes().to_vec()))).unwrap(), ["1|7"]);
    assert_eq!(
        lacks(with_default(int(), Literal::int(9)), constant(Some(7i32.to_le_bytes().to_vec()))).unwrap(),
        ["1|7"]
    );
    assert_eq!(lacks(with_default(int(), Literal::int(9)), constant(None)).unwrap(), ["1|null"]);
    assert_eq!(lacks(with_default(int(), Literal::int(9)), Vec::new()).unwrap(), ["1|9"]);
    assert_eq!(lacks(int(), Vec::new()).unwrap(), ["1|null"]);
    let values: [(PrimitiveType, Vec<u8>, &str); 11] = [
        (PrimitiveType::Long, 7i32.to_le_bytes().to_vec(), "1|7"),
        (PrimitiveType::Double, 0.5f32.to_le_bytes().to_vec(), "1|0.5"),
        (PrimitiveType::Timestamp, (-1i32).to_le_bytes().to_vec(), "1|1969-12-31T00:00:00"),
        (PrimitiveType::TimestampNs, 1i32.to_le_bytes().to_vec(), "1|1970-01-02T00:00:00"),
        (PrimitiveType::String, b"x".to_vec(), "1|x"),
        (PrimitiveType::Date, 1i32.to_le_bytes().to_vec(), "1|1970-01-02"),
        (PrimitiveType::Timestamptz, 1i64.to_le_bytes().to_vec(), "1|1970-01-01T00:00:00.000001Z"),
        (PrimitiveType::Decimal { precision: 10, scale: 2 }, vec![0x04, 0xD2], "1|12.34"),
        (PrimitiveType::Uuid, (1u128 << 8).to_be_bytes().to_vec(), "1|00000000000000000000000000000100"),
        (PrimitiveType::Fixed(2), vec![1, 2], "1|0102"),
        (PrimitiveType::Boolean, vec![1], "1|true"),
    ];
    for (of, bytes, row) in values {
        let got = lacks(optional(5, "p", of.clone()), constant(Some(bytes))).unwrap();
        assert_eq!(got, [row], "{of}");
    }
    for error in [
        lacks(required(5, "p", PrimitiveType::Int), Vec::new()).unwrap_err(),
        lacks(int(), constant(Some(vec![1]))).unwrap_err(),
    ] {
        assert_eq!(error.class(), Class::Refused);
        assert!(error.to_string().contains("column p of file:"), "{error}");
    }
    // A constant holds only where the file lacks the column.
    let constants = vec![Constant { field_id: 1, value: Some(9i32.to_le_bytes().to_vec()) }];
    assert_eq!(lab.rows_of(&id_v_schema(), DataFile { constants, ..file.clone() }).unwrap(), ["1|a"]);
}

#[test]
fn nested_fields_are_found_by_id_in_structs_lists_and_maps() {
    let lab = Lab::new();
    // Written: s struct<a: 11, c: 13>, l list<struct<a: 21, c: 23>>, m map<text, struct<a: 31, c: 33>>.
    let pair = |base: i32, nulls: Option<Vec<bool>>| {
        structs(&[(base + 1, "a", ints([1, 2, 3])), (base + 3, "c", ints([10, 20, 30]))], nulls)
    };
    let element = Arc::new(field(20, "element", pair(20, None).data_type().clone(), true));
    let offsets = OffsetBuffer::new(vec![0, 2, 2, 3].into());
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let list = ListArray::new(element, offsets.clone(), Arc::new(pair(20, Some(vec![true, false, true]))), nulls);
    let entries = Fields::from(vec![
        field(35, "key", DataType::Utf8, false),
        field(36, "value", pair(30, None).data_type().clone(), true),
    ]);
    let pairs = StructArray::new(
        entries.clone(),
        vec![texts(["x", "y", "z"]), Arc::new(pair(30, Some(vec![true, true, false])))],
        None,
    );
    let entries = Arc::new(Field::new("key_value", DataType::Struct(entries), false));
    let map = MapArray::new(entries, offsets, pairs, None, false);
    let s = pair(10, Some(vec![true, false, true]));
    let columns: Vec<(i32, &str, ArrayRef)> =
        vec![(1, "s", Arc::new(s)), (2, "l", Arc::new(list)), (3, "m", Arc::new(map))];
    let fields = columns.iter().map(|(id, name, array)| field(*id, name, array.data_type().clone(), true));
    let written = ArrowSchema::new(fields.collect::<Vec<_>>());
    let arrays = columns.iter().map(|(.., array)| Arc::clone(array)).collect();
    let file = lab.data("f.parquet", &RecordBatch::try_new(Arc::new(written), arrays).unwrap());

    // Read: c renamed to a and first, b added with a default, a widened and renamed.
    let evolved = |base: i32| {
        struct_type([
            optional(base + 3, "a", PrimitiveType::Int),
            with_default(optional(base + 2, "b", PrimitiveType::String), Literal::string("?")),
            optional(base + 1, "was_a", PrimitiveType::Long),
            optional(base + 4, "d", PrimitiveType::Int),
        ])
    };
    let list = |element: Type| Type::List(ListType::new(NestedField::list_element(20, element, false).into()));
    let map = |value: Type| {
        let key = NestedField::map_key_element(35, Type::Primitive(PrimitiveType::String));
        Type::Map(MapType::new(key.into(), NestedField::map_value_element(36, value, false).into()))
    };
    let nested = |id, name: &str, of| -> NestedFieldRef { NestedField::optional(id, name, of).into() };
    let schema_of = |of: &dyn Fn(i32) -> Type| {
        schema([nested(3, "m", map(of(30))), nested(1, "s", of(10)), nested(2, "l", list(of(20)))])
    };
    let text = |a: i32| format!("{{a: {}, b: ?, was_a: {a}, d: null}}", a * 10);
    let expected = [
        format!("{{x: {}, y: {}}}|{}|[{}, null]", text(1), text(2), text(1), text(1)),
        "{}|null|null".to_owned(),
        format!("{{z: null}}|{}|[{}]", text(3), text(3)),
    ];
    assert_eq!(lab.rows_of(&schema_of(&evolved), file.clone()).unwrap(), expected);

    // None of a struct's fields is in the file: it is still null where it was null, and nowhere else.
    let all_new = |base: i32| struct_type([optional(base + 7, "e", PrimitiveType::Int)]);
    let expected =
        ["{x: {e: null}, y: {e: null}}|{e: null}|[{e: null}, null]", "{}|null|null", "{z: null}|{e: null}|[{e: null}]"];
    assert_eq!(lab.rows_of(&schema_of(&all_new), file.clone()).unwrap(), expected);

    let required_new = |base: i32| struct_type([required(base + 7, "e", PrimitiveType::Int)]);
    let error = lab.rows_of(&schema_of(&required_new), file).unwrap_err();
    assert!(error.to_string().contains("column m.value.e of"), "{error}");
}

#[test]
fn a_struct_that_the_file_lacks_has_the_defaults_of_its_children_or_is_null() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a")]));
    let children = || struct_type([with_default(optional(6, "x", PrimitiveType::Int), Literal::int(4))]);
    let plain: NestedFieldRef = NestedField::optional(5, "s", children()).into();
    let empty = Literal::Struct(iceberg::spec::Struct::from_iter([None]));
    let defaulted = with_default(Arc::clone(&plain), empty);
    assert_eq!(lab.rows_of(&schema([plain]), file.clone()).unwrap(), ["null"]);
    assert_eq!(lab.rows_of(&schema([defaulted]), file).unwrap(), ["{x: 4}"]);
}

#[test]
fn int96_is_a_timestamp_to_the_microsecond_before_1970_and_after_2262() {
    let day = 86_400_000_000i64;
    let moments: [(i64, &str); 4] = [
        (-1, "1969-12-31T23:59:59.999999"),
        (0, "1970-01-01T00:00:00"),
        (1_710_037_800_000_000, "2024-03-10T02:30:00"),
        (-719_162 * day, "0001-01-01T00:00:00"),
    ];
    let schema_type = Arc::new(parse_message_type("message m { required int96 at = 1; }").unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema_type, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<Int96> =
        moments.iter().map(|(at, _)| int96(at.div_euclid(day), at.rem_euclid(day) * 1000)).collect();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let lab = Lab::new();
    let file = lab.data_file("f.parquet", &bytes, 4);
    let read = |of| lab.rows_of(&schema([required(1, "at", of)]), file.clone());
    let expected: Vec<&str> = moments.iter().map(|(_, text)| *text).collect();
    assert_eq!(read(PrimitiveType::Timestamp).unwrap(), expected);
    let with_zone: Vec<String> = expected.iter().map(|text| format!("{text}Z")).collect();
    assert_eq!(read(PrimitiveType::Timestamptz).unwrap(), with_zone);
    for of in [PrimitiveType::TimestampNs, PrimitiveType::Long] {
        let error = read(of).unwrap_err();
        assert_eq!(error.class(), Class::Refused);
        assert!(error.to_string().contains("column at of") && error.to_string().contains("INT96"), "{error}");
    }
}

fn int96(days: i64, nanos: i64) -> Int96 {
    let mut at = Int96::new();
    at.set_data(nanos as u32, (nanos >> 32) as u32, (days + 2_440_588) as u32);
    at
}

/// A file of one row, as hive or an old Spark leaves it: a struct first, then `id`, then an INT96.
fn without_ids(lab: &Lab) -> DataFile {
    let message = "message spark_schema {
        optional group nested { optional int32 inner; optional binary text (UTF8); }
        optional int32 id;
        optional int96 at;
    }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    // 3332-12-14 11:33:10.965: beyond what nanoseconds since 1970 can say.
    let at = int96(497_808, (11 * 3600 + 33 * 60 + 10) * 1_000_000_000 + 965_000_000);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[41], Some(&[2]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("in")], Some(&[2]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[7], Some(&[1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&[at], Some(&[1]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    lab.data_file("hive.parquet", &bytes, 1)
}

#[test]
fn a_file_without_ids_is_read_by_name_mapping_else_by_position() {
    let lab = Lab::new();
    let file = without_ids(&lab);
    let schema_with = |ids: [i32; 5]| {
        let inner = struct_type([
            optional(ids[1], "text", PrimitiveType::String),
            optional(ids[2], "inner", PrimitiveType::Int),
        ]);
        schema([
            optional(ids[3], "id", PrimitiveType::Long),
            NestedField::optional(ids[0], "nested", inner).into(),
            optional(ids[4], "at", PrimitiveType::Timestamp),
        ])
    };
    let expected = ["7|{text: in, inner: 41}|3332-12-14T11:33:10.965"];
    // By position, the nth top-level column is field n; inside of structs names are all there is.
    assert_eq!(lab.rows_of(&schema_with([1, 11, 12, 2, 3]), file.clone()).unwrap(), expected);

    let mapping = r#"[{"field-id": 30, "names": ["nested"], "fields": [
        {"field-id": 31, "names": ["text"]}, {"field-id": 32, "names": ["old", "inner"]}]},
        {"field-id": 33, "names": ["id"]}, {"field-id": 34, "names": ["at", "At"]}]"#;
    let mut context = context(schema_with([30, 31, 32, 33, 34]));
    context.source.name_mapping = Some(mapping.to_owned());
    let task = task(vec![added(file)], Vec::new());
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&expected));

    // Under another name a nested field may be one that was renamed: only a mapping can tell.
    let renamed =
        struct_type([optional(11, "text", PrimitiveType::String), optional(12, "renamed", PrimitiveType::Int)]);
    let renamed = schema([NestedField::optional(1, "nested", renamed).into()]);
    let error = lab.rows_of(&renamed, without_ids(&lab)).unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("column nested.renamed of") && error.to_string().contains("inner"), "{error}");

    // A column that the mapping does not know is not there, even if its position fits.
    context.source.name_mapping = Some(r#"[{"field-id": 33, "names": ["id"]}]"#.to_owned());
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&["7|null|null"]));
    context.source.name_mapping = Some("no json".to_owned());
    assert_eq!(lab.read(&context, &task).unwrap_err().class(), Class::Refused);
}

#[test]
fn odd_names_are_names() {
    let lab = Lab::new();
    let names = ["a b", "a.b", "A.b", "\"quoted\"", "data#1", "🦀", "id", "ID"];
    let columns: Vec<(i32, &str, ArrayRef)> = (1..).zip(names).map(|(id, name)| (id, name, ints([id * 10]))).collect();
    let file = lab.data("f.parquet", &batch(&columns));
    let schema = schema((1..9).zip(names).rev().map(|(id, name)| required(id, name, PrimitiveType::Int)));
    assert_eq!(lab.rows_of(&schema, file).unwrap(), ["80|70|60|50|40|30|20|10"]);
}
