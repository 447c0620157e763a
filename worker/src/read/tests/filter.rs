//! The filter while rows are read: which rows stay, and what need not be read for that.

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int64Array, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray,
};
use arrow::buffer::NullBuffer;
use iceberg::spec::{Literal, StructType};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::writer::TrackedWrite;

use super::super::file_schema::{FallbackIds, FileSchema};
use super::super::prune::FilterColumns;
use super::*;

fn filtered(schema: Schema, text: &str) -> EpochContext {
    let mut context = context(schema);
    context.source.filter = Some(table_filter(&context, text));
    context
}

/// 300 rows in three row groups of pages of ten.
fn three_groups() -> Vec<u8> {
    let texts: Vec<String> = (0..300).map(|id| format!("{id:03}")).collect();
    let rows: Vec<(i32, &str)> = (0..).zip(texts.iter().map(String::as_str)).collect();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(100))
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(10)
        .build();
    parquet(&id_v(&rows), properties)
}

#[test]
fn positions_stay_those_of_the_file_when_row_groups_and_pages_are_left_out() {
    let lab = Lab::new();
    let file = lab.data_file("f", &three_groups(), 300);
    let deletes = vec![lab.positions("d", &[(&file.location, 199), (&file.location, 250)])];
    let size = file.size_bytes;
    let whole = difference(file, None, Some(&[0]));
    let cuts = [0, size / 3, size / 2, size];
    let parts: Vec<_> = cuts.windows(2).map(|cut| split(whole.clone(), cut[0], cut[1])).collect();
    for (text, matches) in [
        ("id >= 200", (|id| id >= 200) as fn(i32) -> bool),
        ("id between 245 and 255", |id| (245..=255).contains(&id)),
        ("id = 199 or id = 198", |id| id == 198),
        ("v = '250'", |_| false),
        ("v > '197' and v <= '201'", |id| (198..=201).contains(&id)),
        ("v like '25%'", |id| (250..=259).contains(&id)),
        ("id >= 0", |_| true),
        ("id < 0", |_| false),
    ] {
        let context = filtered(id_v_schema(), text);
        let expected: Vec<String> =
            (0..300).filter(|id| ![199, 250].contains(id) && matches(*id)).map(|id| format!("{id}|{id:03}")).collect();
        let expected = inserts(&expected.iter().map(String::as_str).collect::<Vec<_>>());
        let read = |differences| lab.read(&context, &task(differences, deletes.clone())).unwrap();
        assert_eq!(read(vec![whole.clone()]), expected, "{text}");
        let of_parts: Vec<Row> = parts.iter().flat_map(|part| read(vec![part.clone()])).collect();
        assert_eq!(of_parts, expected, "{text}, by three tasks");
    }
}

/// The same file with a page index that says of two pages that they begin at one row, as some writers do.
fn with_a_faulty_page_index(bytes: &[u8]) -> Vec<u8> {
    let file = bytes::Bytes::copy_from_slice(bytes);
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = reader.parse_and_finish(&file).unwrap();
    let mut offsets = metadata.offset_index().unwrap().clone();
    for columns in &mut offsets {
        let pages = &mut columns[0].page_locations;
        pages[5].first_row_index = pages[4].first_row_index;
    }
    let rows_end = metadata.row_groups().iter().flat_map(|group| group.columns()).map(|chunk| {
        let (start, length) = chunk.byte_range();
        start + length
    });
    let rows = &bytes[..rows_end.max().unwrap() as usize];
    let changed = metadata.into_builder().set_offset_index(Some(offsets)).build();
    // The writer counts from its first byte, so it is given the rows as well.
    let mut bytes = Vec::new();
    let mut written = TrackedWrite::new(&mut bytes);
    std::io::Write::write_all(&mut written, rows).unwrap();
    ParquetMetaDataWriter::new_with_tracked(written, &changed).finish().unwrap();
    bytes
}

#[test]
fn a_faulty_page_index_is_left_out_and_costs_no_row() {
    let lab = Lab::new();
    let bytes = with_a_faulty_page_index(&three_groups());
    let file = lab.data_file("f", &bytes, 300);
    let deletes = vec![lab.positions("d", &[(&file.location, 45), (&file.location, 250)])];
    let changed = difference(file.clone(), Some(&[]), Some(&[0]));
    let read = lab.read(&context(id_v_schema()), &task(vec![changed], deletes)).unwrap();
    assert_eq!(read, super::deletes(&["45|045", "250|250"]));
    let read = lab.read(&filtered(id_v_schema(), "id between 44 and 46"), &task(vec![added(file)], Vec::new()));
    assert_eq!(read.unwrap(), inserts(&["44|044", "45|045", "46|046"]));
}

#[test]
fn what_cannot_match_is_not_fetched() {
    let lab = Lab::new();
    let payload: Vec<String> =
        (0..40_000_u64).map(|id| format!("{:064x}", id.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let rows: Vec<(i32, &str)> = (0..).zip(payload.iter().map(String::as_str)).collect();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(20_000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .set_dictionary_enabled(false)
        .build();
    let file = lab.data_file("f", &parquet(&id_v(&rows), properties), 40_000);
    let size = file.size_bytes;
    let fetched = |text: &str| {
        let storage = Storage::new(StorageProperties::default());
        let task = task(vec![added(file.clone())], Vec::new());
        let context = filtered(id_v_schema(), text);
        let options = ReadOptions::default();
        let mut reader = TaskReader::open(&context, &task, storage, lab.runtime.handle().clone(), options).unwrap();
        let rows: usize = reader.by_ref().map(|batch| batch.unwrap().rows.num_rows()).sum();
        (rows, reader.bytes_fetched())
    };
    let (rows, all) = fetched("id >= 0");
    assert_eq!(rows, 40_000);
    assert!(all >= size, "{all} of {size}");
    let (rows, half) = fetched("id >= 20000");
    assert_eq!(rows, 20_000);
    assert!(half < size * 6 / 10, "{half} of {size}: one row group");
    let (rows, little) = fetched("id in (100, 39000)");
    assert_eq!(rows, 2);
    assert!(little < size / 8, "{little} of {size}: a page of each column in each row group");
    let (rows, footer) = fetched("id < 0");
    assert_eq!(rows, 0);
    assert!(footer < size / 20, "{footer} of {size}: the footer");
}

#[test]
fn both_sides_of_a_change_are_filtered_after_the_deletes() {
    let lab = Lab::new();
    let file = lab.data("f", &id_v(&[(1, "x"), (2, "y"), (3, "x"), (4, "x")]));
    let deletes = vec![
        lab.positions("d", &[(&file.location, 0), (&file.location, 1)]),
        lab.equality("e", &[(1, "id", ints([3]))]),
    ];
    let context = filtered(id_v_schema(), "v = 'x'");
    let went = task(vec![difference(file.clone(), Some(&[]), Some(&[0, 1]))], deletes.clone());
    assert_eq!(lab.read(&context, &went).unwrap(), both(&["1|x", "3|x"], &[]));
    let came = task(vec![difference(file.clone(), Some(&[0, 1]), Some(&[1]))], deletes.clone());
    assert_eq!(lab.read(&context, &came).unwrap(), both(&[], &["1|x"]));
    // A DELETE row is cut down to the key, which the filter's column is not in.
    let mut keyed = keyed(id_v_schema(), &[1]);
    keyed.source.filter = Some(table_filter(&keyed, "v = 'x'"));
    let rows = lab.read(&keyed, &went).unwrap();
    assert_eq!(rows, [(Change::Delete, Columns::Key, "1".to_owned()), (Change::Delete, Columns::Key, "3".to_owned())]);
    // Where updates are told both halves are needed: the filter comes later.
    let mut updates = went;
    updates.resolution = Resolution::Updates;
    assert_eq!(lab.read(&context, &updates).unwrap(), both(&["1|x", "2|y", "3|x"], &[]));
}

#[test]
fn a_column_that_a_file_lacks_has_its_default_or_its_constant_or_is_null() {
    let lab = Lab::new();
    let with_default =
        NestedField::optional(3, "d", Type::Primitive(PrimitiveType::Int)).with_initial_default(Literal::int(7));
    let schema = schema([
        required(1, "id", PrimitiveType::Int),
        with_default.into(),
        optional(4, "part", PrimitiveType::Int),
        optional(5, "none", PrimitiveType::Int),
    ]);
    let mut file = lab.data("f", &batch(&[(1, "id", ints([1, 2]))]));
    file.constants = vec![iceferry_common::model::Constant { field_id: 4, value: Some(5_i32.to_le_bytes().to_vec()) }];
    for (text, rows) in [
        ("d = 7 and id = 2", 1),
        ("d <> 7", 0),
        ("part = 5", 2),
        ("part is null", 0),
        ("none is null", 2),
        ("none = 1 or none <> 1", 0),
    ] {
        let task = task(vec![added(file.clone())], Vec::new());
        assert_eq!(lab.read(&filtered(schema.clone(), text), &task).unwrap().len(), rows, "{text}");
    }
}

#[test]
fn a_field_of_a_struct_is_found_by_id_and_null_where_its_struct_is() {
    let lab = Lab::new();
    let inner = [("b", ints([10, 20, 30]), 4), ("renamed", ints([1, 2, 3]), 3)];
    let fields: Vec<Field> = inner.iter().map(|(name, _, id)| field(*id, name, DataType::Int32, false)).collect();
    let children: Vec<ArrayRef> = inner.iter().map(|(_, array, _)| Arc::clone(array)).collect();
    let nulls = NullBuffer::from(vec![true, false, true]);
    let of_file: ArrayRef = Arc::new(StructArray::new(fields.into(), children, Some(nulls)));
    let file = lab.data("f", &batch(&[(1, "id", ints([1, 2, 3])), (2, "s", of_file)]));
    let of_table = Type::Struct(StructType::new(vec![
        optional(3, "a", PrimitiveType::Int),
        optional(4, "b", PrimitiveType::Int),
        optional(6, "c", PrimitiveType::Int),
    ]));
    let schema = schema([required(1, "id", PrimitiveType::Int), NestedField::optional(2, "s", of_table).into()]);
    for (text, expected) in [
        ("s.a = 3", vec![3]),
        ("s.a <> 3", vec![1]),
        ("s.a is null", vec![2]),
        ("s.b between 10 and 20", vec![1]),
        ("s.c is null", vec![1, 2, 3]),
        ("s.a is not null and s.b > 10", vec![3]),
    ] {
        let task = task(vec![added(file.clone())], Vec::new());
        let rows = lab.read(&filtered(schema.clone(), text), &task).unwrap();
        let ids: Vec<i32> = rows.iter().map(|(.., row)| row.split('|').next().unwrap().parse().unwrap()).collect();
        assert_eq!(ids, expected, "{text}");
    }
}

#[test]
fn bounds_of_every_type_rule_out_row_groups_and_pages() {
    let lab = Lab::new();
    let uuid = |last: u8| {
        let mut bytes = [0x80; 16];
        bytes[15] = last;
        bytes
    };
    let fixed = |values: Vec<Vec<u8>>| -> ArrayRef {
        Arc::new(FixedSizeBinaryArray::try_from_iter(values.into_iter()).unwrap())
    };
    let decimal = |precision: u8| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![-150, 150]).with_precision_and_scale(precision, 2).unwrap())
    };
    use PrimitiveType as T;
    let cases: Vec<(ArrayRef, PrimitiveType, &str)> = vec![
        (ints([-5, 5]), T::Int, "= 5"),
        (ints([-5, 5]), T::Long, "= 5"),
        (Arc::new(Int64Array::from(vec![-5, 5])), T::Long, "> 4"),
        (Arc::new(BooleanArray::from(vec![false, true])), T::Boolean, "= true"),
        (Arc::new(Float32Array::from(vec![-1.5, 1.5])), T::Double, "= 1.5"),
        (Arc::new(Float64Array::from(vec![-1.5, 1.5])), T::Double, "= 1.5"),
        (Arc::new(Date32Array::from(vec![-1, 1])), T::Date, "= '1970-01-02'"),
        (Arc::new(Time64MicrosecondArray::from(vec![0, 5_000_000])), T::Time, "= '00:00:05'"),
        (Arc::new(TimestampMicrosecondArray::from(vec![-1, 1_000])), T::Timestamp, "= '1970-01-01 00:00:00.001'"),
        (Arc::new(TimestampMillisecondArray::from(vec![-1, 1])), T::Timestamp, "= '1970-01-01 00:00:00.001'"),
        (Arc::new(TimestampNanosecondArray::from(vec![-1, 1])), T::TimestampNs, "= '1970-01-01 00:00:00.000000001'"),
        (decimal(5), T::Decimal { precision: 9, scale: 2 }, "= 1.5"),
        (decimal(15), T::Decimal { precision: 18, scale: 2 }, "= 1.5"),
        (decimal(30), T::Decimal { precision: 38, scale: 2 }, "= 1.5"),
        (texts(["a", "\u{1F6A2}"]), T::String, "= '\u{1F6A2}'"),
        (texts(["a", "b"]), T::String, "like 'b%'"),
        (Arc::new(BinaryArray::from(vec![&[0x7f][..], &[0x80][..]])), T::Binary, "= X'80'"),
        (fixed(vec![vec![0x7f, 0], vec![0x80, 0]]), T::Fixed(2), "= X'8000'"),
        (fixed(vec![uuid(1).to_vec(), uuid(2).to_vec()]), T::Uuid, "= '80808080-8080-8080-8080-808080808002'"),
    ];
    for (values, kind, test) in cases {
        let schema = schema([optional(1, "c", kind.clone())]);
        let text = format!("c {test}");
        let columns = batch(&[(1, "c", Arc::clone(&values))]);
        let of_groups = parquet(&columns, WriterProperties::builder().set_max_row_group_row_count(Some(1)).build());
        let pages = WriterProperties::builder().set_data_page_row_count_limit(1).set_write_batch_size(1);
        let of_pages = parquet(&columns, pages.build());
        let filter = filtered(schema.clone(), &text).source.filter.unwrap();

        let (footer, columns) = opened(&of_groups, filter.schema());
        let chosen: Vec<usize> = (0..2).filter(|group| columns.may_match(filter.bound(), &footer, *group)).collect();
        assert_eq!(chosen, [1], "{kind} of {}", values.data_type());
        let (footer, columns) = opened(&of_pages, filter.schema());
        assert!(columns.may_match(filter.bound(), &footer, 0));
        let ranges = columns.rows_that_may_match(filter.bound(), &footer, 0, 10..12);
        assert_eq!(ranges, std::iter::once(11..12).collect::<Vec<_>>(), "{kind} of {}, by pages", values.data_type());

        for (name, bytes) in [("groups", &of_groups), ("pages", &of_pages)] {
            let task = task(vec![added(lab.data_file(name, bytes, 2))], Vec::new());
            assert_eq!(lab.read(&filtered(schema.clone(), &text), &task).unwrap().len(), 1, "{kind} {name}");
        }
    }
}

/// A file's footer with its page indexes, and the filter's columns in it.
fn opened(bytes: &[u8], wanted: &Schema) -> (ParquetMetaData, FilterColumns) {
    let bytes = Bytes::copy_from_slice(bytes);
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&bytes)
        .unwrap();
    let schema = FileSchema::of_parquet("f", &Arc::new(metadata.clone()), &FallbackIds::Convention).unwrap().0;
    let columns = FilterColumns::of(&schema, &metadata, wanted.as_struct().fields());
    (metadata, columns)
}

#[test]
fn nulls_and_nan_are_never_ruled_out_by_bounds() {
    let lab = Lab::new();
    let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), Some(f64::NAN), None]));
    let file = lab.data("f", &batch(&[(1, "c", values)]));
    for (text, count) in [("c > 5", 1), ("c is nan", 1), ("c is null", 1), ("c < 0", 0), ("c = 1", 1), ("not c = 1", 1)]
    {
        let schema = schema([optional(1, "c", PrimitiveType::Double)]);
        let task = task(vec![added(file.clone())], Vec::new());
        assert_eq!(lab.read(&filtered(schema, text), &task).unwrap().len(), count, "{text}");
    }
}

#[test]
fn a_file_without_field_ids_is_filtered_by_position() {
    let lab = Lab::new();
    let columns = vec![Field::new("x", DataType::Int32, false), Field::new("y", DataType::Utf8, false)];
    let plain =
        RecordBatch::try_new(Arc::new(ArrowSchema::new(columns)), vec![ints([1, 2]), texts(["a", "b"])]).unwrap();
    let task = task(vec![added(lab.data("f", &plain))], Vec::new());
    assert_eq!(lab.read(&filtered(id_v_schema(), "v = 'b'"), &task).unwrap(), inserts(&["2|b"]));
}
