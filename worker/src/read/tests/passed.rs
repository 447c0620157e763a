//! Keys of equality deletes that go straight through.

use apache_avro::Codec;
use apache_avro::types::Value;
use arrow::array::{
    BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Int64Array, LargeBinaryArray,
    TimestampMicrosecondArray,
};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{Constant, PassDeletesWork};

use super::avro::{container, none, record, some};
use super::*;
use crate::read::KeyReader;

/// A key (p, id) of an optional long and a required long; the target has the columns under other ids.
fn context_of_two() -> EpochContext {
    let fields = [
        required(1, "id", PrimitiveType::Long),
        optional(2, "p", PrimitiveType::Long),
        optional(3, "v", PrimitiveType::String),
    ];
    let mut context = context(schema(fields));
    let fields = [
        required(11, "id", PrimitiveType::Long),
        optional(12, "p", PrimitiveType::Long),
        optional(13, "v", PrimitiveType::String),
    ];
    context.target.write_schema = Arc::new(schema(fields));
    context.target.key = vec![12, 11];
    context
}

fn passing(deletes: Vec<DeleteFile>, constants: Vec<Vec<Constant>>) -> ScanTask {
    ScanTask { work: Work::PassDeletes(PassDeletesWork { constants }), ..task(Vec::new(), deletes) }
}

fn read(lab: &Lab, context: &EpochContext, task: &ScanTask) -> Result<Vec<String>, ReadError> {
    let Work::PassDeletes(work) = &task.work else { panic!("{task:?}") };
    let (storage, runtime) = (Storage::new(StorageProperties::default()), lab.runtime.handle().clone());
    let mut reader = KeyReader::open(context, task, work, storage, runtime, ReadOptions::default())?;
    let schema = iceberg::arrow::schema_to_arrow_schema(&context.source.read_schema).unwrap();
    let mut rows = Vec::new();
    for batch in reader.by_ref() {
        let batch = batch?;
        assert_eq!((batch.change, batch.columns), (Change::Delete, Columns::Key));
        assert_eq!(*batch.rows.schema(), schema.project(&[1, 0]).unwrap(), "in the order of the key");
        assert!(batch.rows.num_rows() > 0, "an empty batch came out");
        rows.extend(lines(&batch.rows));
    }
    let sizes: u64 = task.deletes.iter().map(|file| file.size_bytes).sum();
    assert_eq!(reader.bytes_fetched(), sizes, "nothing is read but the delete files");
    Ok(rows)
}

fn longs(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values.iter().copied()))
}

fn constant(field_id: i32, value: Option<i64>) -> Constant {
    Constant { field_id, value: value.map(|value| value.to_le_bytes().to_vec()) }
}

#[test]
fn keys_come_in_the_order_and_types_of_the_key_whatever_wrote_them() {
    let lab = Lab::new();
    // Written when both were ints, one column more, and the columns in another order.
    let older: ArrayRef = Arc::new(Int32Array::from(vec![Some(4), None]));
    let older = lab.equality("older.parquet", &[(1, "id", ints([7, 8])), (2, "p", older)]);
    let newer =
        lab.equality("newer.parquet", &[(2, "p", longs(&[Some(5), None])), (1, "id", longs(&[Some(9), Some(9)]))]);
    let json = r#"{"type": "record", "name": "r", "fields": [
        {"name": "p", "type": ["null", "long"], "field-id": 2}, {"name": "id", "type": "long", "field-id": 1}]}"#;
    let rows = vec![
        record(&[("p", some(Value::Long(6))), ("id", Value::Long(10))]),
        record(&[("p", none()), ("id", Value::Long(11))]),
    ];
    let avro = container(json, &[rows], Codec::Null);
    let avro = DeleteFile {
        location: lab.location("d.avro"),
        format: FileFormat::Avro,
        size_bytes: lab.put("d.avro", avro),
        record_count: 2,
        kind: DeleteKind::Equality { field_ids: vec![2, 1] },
    };
    let task = passing(vec![older, newer, avro], vec![Vec::new(); 3]);
    let rows = read(&lab, &context_of_two(), &task).unwrap();
    assert_eq!(rows, ["4|7", "null|8", "5|9", "null|9", "6|10", "null|11"]);
}

#[test]
fn keys_of_other_partitions_and_nulls_that_no_row_can_have_reach_nothing() {
    let lab = Lab::new();
    let file = || {
        let p = longs(&[Some(1), Some(2), None, Some(1), None]);
        lab.equality("d.parquet", &[(1, "id", longs(&[Some(1), Some(2), Some(3), None, None])), (2, "p", p)])
    };
    for (constants, expected) in [
        (vec![], vec!["1|1", "2|2", "null|3"]),
        (vec![constant(2, Some(1))], vec!["1|1"]),
        (vec![constant(2, None)], vec!["null|3"]),
        (vec![constant(2, Some(2)), constant(1, Some(2))], vec!["2|2"]),
        (vec![constant(2, Some(7))], vec![]),
    ] {
        let task = passing(vec![file()], vec![constants.clone()]);
        assert_eq!(read(&lab, &context_of_two(), &task).unwrap(), expected, "{constants:?}");
    }
    let mut optional_id = context_of_two();
    let fields =
        |ids: [i32; 2]| [optional(ids[0], "id", PrimitiveType::Long), optional(ids[1], "p", PrimitiveType::Long)];
    optional_id.source.read_schema = Arc::new(schema(fields([1, 2])));
    optional_id.target.write_schema = Arc::new(schema(fields([11, 12])));
    let rows = read(&lab, &optional_id, &passing(vec![file()], vec![vec![]])).unwrap();
    assert_eq!(rows, ["1|1", "2|2", "null|3", "1|null", "null|null"], "nulls are keys as others are");
}

#[test]
fn what_is_not_the_key_is_refused_by_name() {
    let lab = Lab::new();
    let both = lab.equality("both.parquet", &[(1, "id", longs(&[Some(1)])), (2, "p", longs(&[Some(1)]))]);
    let of =
        |field_ids: &[i32]| DeleteFile { kind: DeleteKind::Equality { field_ids: field_ids.to_vec() }, ..both.clone() };
    let positions = lab.positions("positions.parquet", &[("f", 1)]);
    for delete in [of(&[1]), of(&[1, 2, 3]), positions] {
        let name = delete.location.clone();
        let error = read(&lab, &context_of_two(), &passing(vec![delete], vec![vec![]])).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
    }
    let fine = || passing(vec![both.clone()], vec![vec![]]);
    let mut without_key = context_of_two();
    without_key.target.key.clear();
    assert!(read(&lab, &without_key, &fine()).is_err());
    let wrong = Constant { field_id: 3, value: None };
    let error = read(&lab, &context_of_two(), &passing(vec![both.clone()], vec![vec![wrong]])).unwrap_err();
    assert!(error.to_string().contains("field 3"), "{error}");
    // One that says that it has the key, and has not: nulls must not be made up for it.
    let lacks = lab.equality("lacks.parquet", &[(1, "id", longs(&[Some(1)]))]);
    let lacks = DeleteFile { kind: DeleteKind::Equality { field_ids: vec![1, 2] }, ..lacks };
    let error = read(&lab, &context_of_two(), &passing(vec![lacks], vec![vec![]])).unwrap_err();
    assert!(error.to_string().contains("lacks.parquet"), "{error}");
    let mut gone = both.clone();
    gone.location.push_str(".gone");
    let error = read(&lab, &context_of_two(), &passing(vec![gone], vec![vec![]])).unwrap_err();
    assert_eq!(error.class(), Class::NotFound, "{error}");
}

#[test]
fn partitions_of_every_type_of_key_tell_their_keys_from_others() {
    let lab = Lab::new();
    let fixed =
        |values: &[[u8; 16]]| -> ArrayRef { Arc::new(FixedSizeBinaryArray::try_from_iter(values.iter()).unwrap()) };
    let moments = || TimestampMicrosecondArray::from(vec![7, -7]);
    let decimals = Decimal128Array::from(vec![-250, 250]).with_precision_and_scale(9, 2).unwrap();
    let of: Vec<(PrimitiveType, ArrayRef, Vec<u8>)> = vec![
        (PrimitiveType::Boolean, Arc::new(BooleanArray::from(vec![true, false])), vec![1]),
        (PrimitiveType::Int, ints([7, 8]), 7i32.to_le_bytes().into()),
        (PrimitiveType::Date, Arc::new(Date32Array::from(vec![-7, 7])), (-7i32).to_le_bytes().into()),
        (PrimitiveType::Timestamp, Arc::new(moments()), 7i64.to_le_bytes().into()),
        (PrimitiveType::Timestamptz, Arc::new(moments().with_timezone("+00:00")), 7i64.to_le_bytes().into()),
        (PrimitiveType::Decimal { precision: 9, scale: 2 }, Arc::new(decimals), (-250i128).to_be_bytes().into()),
        (PrimitiveType::String, texts(["ä", "a"]), "ä".as_bytes().into()),
        (PrimitiveType::Binary, Arc::new(LargeBinaryArray::from(vec![&b"x"[..], b"y"])), b"x".into()),
        (PrimitiveType::Fixed(16), fixed(&[[1; 16], [2; 16]]), [1; 16].into()),
        (PrimitiveType::Uuid, fixed(&[[1; 16], [2; 16]]), [1; 16].into()),
    ];
    for (of, column, value) in of {
        let first = lines(&batch(&[(1, "k", column.slice(0, 1))]));
        let context = keyed(schema([required(1, "k", of.clone())]), &[1]);
        let delete = lab.equality("d.parquet", &[(1, "k", column)]);
        let constants = vec![vec![Constant { field_id: 1, value: Some(value) }]];
        let Work::PassDeletes(work) = passing(vec![delete.clone()], constants.clone()).work else { panic!("no keys") };
        let (storage, runtime) = (Storage::new(StorageProperties::default()), lab.runtime.handle().clone());
        let task = passing(vec![delete], constants);
        let reader = KeyReader::open(&context, &task, &work, storage, runtime, ReadOptions::default()).unwrap();
        let rows: Vec<String> = reader.flat_map(|batch| lines(&batch.unwrap().rows)).collect();
        assert_eq!(rows, first, "{of}");
    }
}
