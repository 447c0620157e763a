//! Every type of the format, from the read schema's Arrow form to the target's Parquet form.

use arrow::array::{
    BinaryBuilder, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int32Array, LargeBinaryArray, ListArray, MapArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use iceberg::spec::{ListType, MapType};
use parquet::schema::printer::print_schema;

use super::*;

fn leaf(primitive: PrimitiveType) -> Type {
    Type::Primitive(primitive)
}

/// All types; field ids begin at `first`. What is nested is required inside if `required`.
fn all_types(first: i32, required: bool) -> Schema {
    let mut id = first;
    let mut next = || {
        id += 1;
        id
    };
    let primitives = [
        ("boolean", PrimitiveType::Boolean),
        ("int", PrimitiveType::Int),
        ("long", PrimitiveType::Long),
        ("float", PrimitiveType::Float),
        ("double", PrimitiveType::Double),
        ("decimal1", PrimitiveType::Decimal { precision: 1, scale: 0 }),
        ("decimal9", PrimitiveType::Decimal { precision: 9, scale: 2 }),
        ("decimal18", PrimitiveType::Decimal { precision: 18, scale: 4 }),
        ("decimal38", PrimitiveType::Decimal { precision: 38, scale: 10 }),
        ("date", PrimitiveType::Date),
        ("time", PrimitiveType::Time),
        ("timestamp", PrimitiveType::Timestamp),
        ("timestamptz", PrimitiveType::Timestamptz),
        ("timestamp_ns", PrimitiveType::TimestampNs),
        ("timestamptz_ns", PrimitiveType::TimestamptzNs),
        ("a string", PrimitiveType::String),
        ("uuid", PrimitiveType::Uuid),
        ("fixed", PrimitiveType::Fixed(3)),
        ("binary", PrimitiveType::Binary),
    ];
    let mut fields: Vec<_> =
        primitives.map(|(name, primitive)| NestedField::optional(next(), name, leaf(primitive)).into()).to_vec();
    let inner = StructType::new(vec![NestedField::new(next(), "c.d", leaf(PrimitiveType::String), required).into()]);
    let outer = StructType::new(vec![
        NestedField::optional(next(), "a", leaf(PrimitiveType::Int)).into(),
        NestedField::new(next(), "b", Type::Struct(inner), required).into(),
    ]);
    fields.push(NestedField::optional(next(), "struct", Type::Struct(outer)).into());
    let element = StructType::new(vec![NestedField::new(next(), "x", leaf(PrimitiveType::Int), required).into()]);
    let list = ListType::new(NestedField::list_element(next(), Type::Struct(element), required).into());
    fields.push(NestedField::optional(next(), "list", Type::List(list)).into());
    let longs = ListType::new(NestedField::list_element(next(), leaf(PrimitiveType::Long), false).into());
    let map = MapType::new(
        NestedField::map_key_element(next(), leaf(PrimitiveType::String)).into(),
        NestedField::map_value_element(next(), Type::List(longs), required).into(),
    );
    fields.push(NestedField::optional(next(), "map", Type::Map(map)).into());
    Schema::builder().with_fields(fields).build().unwrap()
}

/// Three rows: ordinary values, extreme ones, nulls. Nested values for the read schema's own nested types.
fn all_values(bench: &Bench) -> Vec<ArrayRef> {
    let arrow = schema_to_arrow_schema(&bench.context.source.read_schema).unwrap();
    let decimal = |values: [Option<i128>; 3], precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
    };
    let fixed = |values: [Option<Vec<u8>>; 3], size| -> ArrayRef {
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), size).unwrap())
    };
    // One microsecond before 1970, and a wall-clock time that New York skips.
    let micros = [Some(-1), Some(1_710_037_800_000_000), None];
    let nanos = [Some(-1), Some(1_710_037_800_000_000_001), None];
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(Int32Array::from(vec![Some(1), Some(i32::MIN), None])),
        Arc::new(Int64Array::from(vec![Some(1), Some(i64::MAX), None])),
        Arc::new(Float32Array::from(vec![Some(-0.0), Some(f32::NAN), None])),
        Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NEG_INFINITY), None])),
        decimal([Some(9), Some(-9), None], 1, 0),
        decimal([Some(1), Some(-999_999_999), None], 9, 2),
        decimal([Some(1), Some(-999_999_999_999_999_999), None], 18, 4),
        decimal([Some(1), Some(-10_i128.pow(38) + 1), None], 38, 10),
        Arc::new(Date32Array::from(vec![Some(0), Some(-1), None])),
        Arc::new(Time64MicrosecondArray::from(vec![Some(0), Some(86_399_999_999), None])),
        Arc::new(TimestampMicrosecondArray::from(micros.to_vec())),
        Arc::new(TimestampMicrosecondArray::from(micros.to_vec()).with_timezone("+00:00")),
        Arc::new(TimestampNanosecondArray::from(nanos.to_vec())),
        Arc::new(TimestampNanosecondArray::from(nanos.to_vec()).with_timezone("+00:00")),
        Arc::new(StringArray::from(vec![Some("ä"), Some(""), None])),
        fixed([Some(vec![1; 16]), Some(vec![255; 16]), None], 16),
        fixed([Some(vec![1, 2, 3]), Some(vec![0; 3]), None], 3),
        Arc::new(LargeBinaryArray::from(vec![Some(&b"\x00\xff"[..]), Some(b""), None])),
    ];
    let nested = |position: usize| arrow.field(position).data_type();
    let validity = |valid: [bool; 3]| Some(NullBuffer::from(valid.to_vec()));

    let DataType::Struct(outer) = nested(19) else { panic!("a struct") };
    let DataType::Struct(inner) = outer[1].data_type() else { panic!("a struct") };
    let texts = StringArray::from(vec!["one", "two", "hidden"]);
    let inner = StructArray::new(inner.clone(), vec![Arc::new(texts)], None);
    let numbers = Int32Array::from(vec![Some(1), None, Some(3)]);
    let outer =
        StructArray::new(outer.clone(), vec![Arc::new(numbers), Arc::new(inner)], validity([true, true, false]));
    columns.push(Arc::new(outer));

    let DataType::List(element) = nested(20) else { panic!("a list") };
    let DataType::Struct(fields) = element.data_type() else { panic!("a struct") };
    let elements = StructArray::new(fields.clone(), vec![Arc::new(Int32Array::from(vec![1, 2, 3]))], None);
    let offsets = OffsetBuffer::from_lengths([3, 0, 0]);
    let list = ListArray::new(Arc::clone(element), offsets, Arc::new(elements), validity([true, true, false]));
    columns.push(Arc::new(list));

    let DataType::Map(entries, _) = nested(21) else { panic!("a map") };
    let DataType::Struct(fields) = entries.data_type() else { panic!("entries") };
    let DataType::List(long) = fields[1].data_type() else { panic!("a list") };
    let longs = Int64Array::from(vec![Some(1), None]);
    let lists = ListArray::new(Arc::clone(long), OffsetBuffer::from_lengths([2, 0]), Arc::new(longs), None);
    let keys = StringArray::from(vec!["k", "empty"]);
    let found = StructArray::new(fields.clone(), vec![Arc::new(keys), Arc::new(lists)], None);
    let offsets = OffsetBuffer::from_lengths([2, 0, 0]);
    let map = MapArray::new(Arc::clone(entries), offsets, found, validity([true, true, false]), false);
    columns.push(Arc::new(map));
    columns
}

/// The columns as a reader without Arrow's own schema has them.
fn as_read(columns: &[ArrayRef]) -> Vec<Vec<String>> {
    let plain = columns.iter().map(|column| match column.data_type() {
        DataType::LargeBinary => {
            let mut binary = BinaryBuilder::new();
            let large = column.as_any().downcast_ref::<LargeBinaryArray>().unwrap();
            large.iter().for_each(|value| binary.append_option(value));
            Arc::new(binary.finish())
        }
        _ => Arc::clone(column),
    });
    printed(&plain.collect::<Vec<_>>())
}

const EXPECTED_SCHEMA: &str = "\
message table {
  OPTIONAL BOOLEAN boolean [1];
  OPTIONAL INT32 int [2];
  OPTIONAL INT64 long [3];
  OPTIONAL FLOAT float [4];
  OPTIONAL DOUBLE double [5];
  OPTIONAL INT32 decimal1 [6] (DECIMAL(1,0));
  OPTIONAL INT32 decimal9 [7] (DECIMAL(9,2));
  OPTIONAL INT64 decimal18 [8] (DECIMAL(18,4));
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) decimal38 [9] (DECIMAL(38,10));
  OPTIONAL INT32 date [10] (DATE);
  OPTIONAL INT64 time [11] (TIME(MICROS,false));
  OPTIONAL INT64 timestamp [12] (TIMESTAMP(MICROS,false));
  OPTIONAL INT64 timestamptz [13] (TIMESTAMP(MICROS,true));
  OPTIONAL INT64 timestamp_ns [14] (TIMESTAMP(NANOS,false));
  OPTIONAL INT64 timestamptz_ns [15] (TIMESTAMP(NANOS,true));
  OPTIONAL BYTE_ARRAY a string [16] (STRING);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (16) uuid [17] (UUID);
  OPTIONAL FIXED_LEN_BYTE_ARRAY (3) fixed [18];
  OPTIONAL BYTE_ARRAY binary [19];
  OPTIONAL group struct [23] {
    OPTIONAL INT32 a [21];
    OPTIONAL group b [22] {
      OPTIONAL BYTE_ARRAY c.d [20] (STRING);
    }
  }
  OPTIONAL group list [26] (LIST) {
    REPEATED group list {
      OPTIONAL group element [25] {
        OPTIONAL INT32 x [24];
      }
    }
  }
  OPTIONAL group map [30] (MAP) {
    REPEATED group key_value {
      REQUIRED BYTE_ARRAY key [28] (STRING);
      OPTIONAL group value [29] (LIST) {
        REPEATED group list {
          OPTIONAL INT64 element [27];
        }
      }
    }
  }
}
";

#[test]
fn every_type_comes_back_equal_with_the_targets_field_ids() {
    // Other field ids in the source; nested fields are required there or not, and optional in the target.
    for (first, required) in [(0, false), (100, false), (100, true)] {
        let bench = Bench::new(all_types(first, required), all_types(0, false), &[3]);
        let columns = all_values(&bench);
        let staged = bench.stage(&[bench.batch(Change::Insert, columns.clone())]).unwrap();
        let (footer, rows) = read_back(&staged[0]);
        assert_eq!(rows, as_read(&columns));
        let mut schema = Vec::new();
        print_schema(&mut schema, footer.file_metadata().schema());
        assert_eq!(String::from_utf8(schema).unwrap(), EXPECTED_SCHEMA);
        bench.data_file(&staged[0]);
    }
}

#[test]
fn required_fields_inside_nested_ones_are_required_in_the_file() {
    let bench = Bench::new(all_types(100, true), all_types(0, true), &[3]);
    let columns = all_values(&bench);
    let staged = bench.stage(&[bench.batch(Change::Insert, columns.clone())]).unwrap();
    let (footer, rows) = read_back(&staged[0]);
    assert_eq!(rows, as_read(&columns));
    let mut schema = Vec::new();
    print_schema(&mut schema, footer.file_metadata().schema());
    let schema = String::from_utf8(schema).unwrap();
    for required in ["REQUIRED group b [22]", "REQUIRED BYTE_ARRAY c.d [20]", "REQUIRED INT32 x [24]"] {
        assert!(schema.contains(required), "{required} in {schema}");
    }
}

#[test]
fn slices_of_a_batch_are_written_by_their_own_rows() {
    for write_required in [false, true] {
        let bench = Bench::new(all_types(100, true), all_types(0, write_required), &[3]);
        let columns = all_values(&bench);
        let whole = bench.batch(Change::Insert, columns.clone());
        let slices: Vec<_> =
            [2, 0, 1].map(|row| ChangeBatch { rows: whole.rows.slice(row, 1), ..whole.clone() }).to_vec();
        let (_, rows) = read_back(&bench.stage(&slices).unwrap()[0]);
        let expected = as_read(&columns);
        assert_eq!(rows, [2, 0, 1].map(|row: usize| expected[row].clone()));
    }
}

#[test]
fn a_null_in_a_required_column_is_refused_by_name() {
    let optional = |first| {
        let inner = StructType::new(vec![NestedField::optional(first + 2, "x", leaf(PrimitiveType::Int)).into()]);
        vec![
            NestedField::optional(first, "id", leaf(PrimitiveType::Long)).into(),
            NestedField::optional(first + 1, "s", Type::Struct(inner)).into(),
        ]
    };
    let required = |id, inside| {
        let inner = StructType::new(vec![NestedField::new(3, "x", leaf(PrimitiveType::Int), inside).into()]);
        vec![
            NestedField::new(1, "id", leaf(PrimitiveType::Long), id).into(),
            NestedField::optional(2, "s", Type::Struct(inner)).into(),
        ]
    };
    let schema = |fields| Schema::builder().with_fields(fields).build().unwrap();
    let stage = |write, ids: Vec<Option<i64>>, inside: Vec<Option<i32>>, outside: Vec<bool>| {
        let mut bench = Bench::new(schema(optional(11)), schema(write), &[1]);
        bench.options.unique_keys = false;
        let arrow = schema_to_arrow_schema(&bench.context.source.read_schema).unwrap();
        let DataType::Struct(fields) = arrow.field(1).data_type() else { panic!("a struct") };
        let inside = Int32Array::from(inside);
        let inner = StructArray::new(fields.clone(), vec![Arc::new(inside)], Some(NullBuffer::from(outside)));
        let batch = bench.batch(Change::Insert, vec![Arc::new(Int64Array::from(ids)), Arc::new(inner)]);
        bench.stage(&[batch]).map(|staged| read_back(&staged[0]).1)
    };
    let column = |got: Result<_, StageError>| match got {
        Err(StageError::NullInRequired { column, .. }) => column,
        other => panic!("{other:?}"),
    };
    let two = || vec![Some(1), Some(2)];
    assert_eq!(column(stage(required(true, false), vec![Some(1), None], vec![None, None], vec![true, true])), "id");
    assert_eq!(column(stage(required(false, true), two(), vec![Some(1), None], vec![true, true])), "s.x");
    // A null struct hides what is in it.
    let rows = stage(required(false, true), two(), vec![Some(1), None], vec![true, false]).unwrap();
    assert_eq!(rows, [["1", "{x: 1}"], ["2", "null"]]);
}

#[test]
fn a_batch_of_another_shape_is_refused() {
    let bench = Bench::simple();
    let schema = arrow::datatypes::Schema::new(vec![
        arrow::datatypes::Field::new("id", DataType::Int32, false),
        arrow::datatypes::Field::new("v", DataType::Utf8, true),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(StringArray::from(vec!["a"]))];
    let rows = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let batch = ChangeBatch { change: Change::Insert, columns: Columns::All, rows };
    assert!(matches!(bench.stage(&[batch]), Err(StageError::Shape { column, .. }) if column == "id"));
}
