//! Many deletes of several kinds at once, against a plain model.

use std::collections::{BTreeSet, HashSet};

use apache_avro::types::Value;

use super::avro::{container, none, record, some};
use super::*;

#[test]
fn one_position_delete_file_may_name_several_files_in_any_order_and_twice() {
    let lab = Lab::new();
    let file = |name: &str, ids: std::ops::Range<i32>| lab.data(name, &batch(&[(1, "id", ints(ids))]));
    let files = [file("a", 0..10), file("b", 10..20)];
    let at = |id: i32| (files[id as usize / 10].location.as_str(), i64::from(id % 10));
    let evens: Vec<_> = [18, 4, 12, 0, 4, 16, 10, 2, 14, 8, 6, 18].map(at).into();
    let threes: Vec<_> = [9, 15, 0, 3, 12, 18, 6, 9].map(at).into();
    let deletes = vec![lab.positions("evens", &evens), lab.positions("threes", &threes)];
    let differences = files.iter().map(|file| difference(file.clone(), None, Some(&[0, 1]))).collect();
    let schema = schema([required(1, "id", PrimitiveType::Int)]);
    let rows = lab.read(&context(schema), &task(differences, deletes)).unwrap();
    assert_eq!(rows, inserts(&["1", "5", "7", "11", "13", "17", "19"]));
}

#[test]
fn rows_that_a_position_delete_file_holds_beside_its_positions_are_left_alone() {
    let lab = Lab::new();
    let file = lab.data("f", &id_v(&[(1, "a"), (2, "b"), (3, "c")]));
    let row =
        arrow::array::StructArray::new(vec![field(1, "id", DataType::Int32, false)].into(), vec![ints([99])], None);
    let positions: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1]));
    let rows = batch(&[
        (2_147_483_544, "row", Arc::new(row)),
        (2_147_483_545, "pos", positions),
        (2_147_483_546, "file_path", texts([file.location.as_str()])),
    ]);
    let delete = lab.delete_file("p", &rows, DeleteKind::Position);
    let task = task(vec![difference(file, None, Some(&[0]))], vec![delete]);
    assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), inserts(&["1|a", "3|c"]));
}

#[test]
fn a_key_that_hits_rows_of_two_files_takes_them_as_full_rows_and_one_that_hits_none_takes_nothing() {
    let lab = Lab::new();
    let files = [lab.data("f1", &id_v(&[(1, "a")])), lab.data("f2", &id_v(&[(1, "b")]))];
    let keys = vec![lab.equality("e1", &[(1, "id", ints([1]))]), lab.equality("e2", &[(1, "id", ints([99]))])];
    let step = |before: &[u32], after: &[u32]| {
        let differences = files.iter().map(|file| difference(file.clone(), Some(before), Some(after)));
        lab.read(&context(id_v_schema()), &task(differences.collect(), keys.clone())).unwrap()
    };
    assert_eq!(step(&[], &[0]), super::deletes(&["1|a", "1|b"]));
    assert_eq!(step(&[0], &[0, 1]), []);
}

/// Id, name, and a column that was dropped from the table later.
type Values = (Option<i32>, String, Option<i32>);

#[test]
fn several_key_sets_with_columns_beside_them_and_a_dropped_one_leave_what_the_model_leaves() {
    let lab = Lab::new();
    let rows: Vec<Values> = (0..600)
        .map(|n| ((n % 50 != 0).then_some(n % 97), format!("n{}", n % 13), (n % 7 != 0).then_some(n % 11)))
        .collect();
    let columns = |rows: &[Values]| -> [(i32, &'static str, ArrayRef); 3] {
        [
            (1, "id", Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.0)))),
            (2, "name", texts(rows.iter().map(|row| row.1.as_str()))),
            (3, "gone", Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.2)))),
        ]
    };
    let json = r#"{"type":"record","name":"t","fields":[{"name":"gone","type":["null","int"],"field-id":3},
        {"name":"id","type":["null","int"],"field-id":1},{"name":"name","type":"string","field-id":2}]}"#;
    let avro = |rows: &[Values]| {
        let int = |value: Option<i32>| value.map_or_else(none, |value| some(Value::Int(value)));
        let row =
            |row: &Values| record(&[("gone", int(row.2)), ("id", int(row.0)), ("name", Value::String(row.1.clone()))]);
        container(json, &[rows.iter().map(row).collect()], apache_avro::Codec::Null)
    };
    let row = |id: Option<i32>, name: &str, gone: Option<i32>| (id, name.to_owned(), gone);
    // Each file holds full rows, and is keyed on some of their columns.
    let keys: [(&[i32], Vec<Values>); 5] = [
        (&[1], vec![row(Some(3), "x", None), row(None, "y", Some(1)), row(Some(500), "n1", None)]),
        (&[2], vec![row(None, "n4", None), row(Some(1), "n4", None)]),
        (&[2, 1], (0..60).map(|n| row(Some(n), &format!("n{}", n % 5), None)).collect()),
        (&[3], vec![row(None, "", Some(5))]),
        (&[3, 1], vec![row(Some(20), "", None), row(None, "", None)]),
    ];
    let key = |row: &Values, ids: &[i32]| {
        let of = |id| ids.contains(&id);
        (of(1).then_some(row.0), of(2).then(|| row.1.clone()), of(3).then_some(row.2))
    };
    let mut context =
        context(schema([optional(1, "id", PrimitiveType::Int), required(2, "name", PrimitiveType::String)]));
    context.source.equality_schema = Arc::new(schema([
        optional(1, "id", PrimitiveType::Int),
        required(2, "name", PrimitiveType::String),
        optional(3, "gone", PrimitiveType::Int),
    ]));
    let in_parquet = lab.data("f.parquet", &batch(&columns(&rows)));
    let in_avro = DataFile { format: FileFormat::Avro, ..lab.data_file("f.avro", &avro(&rows), rows.len() as u64) };
    for avro_deletes in [false, true] {
        let delete = |(index, (ids, rows)): (usize, &(&[i32], Vec<Values>))| {
            let kind = DeleteKind::Equality { field_ids: ids.to_vec() };
            if !avro_deletes {
                return lab.delete_file(&format!("e{index}"), &batch(&columns(rows)), kind);
            }
            let size_bytes = lab.put(&format!("e{index}"), avro(rows));
            let (location, record_count) = (lab.location(&format!("e{index}")), rows.len() as u64);
            DeleteFile { location, format: FileFormat::Avro, size_bytes, record_count, kind }
        };
        let deletes: Vec<DeleteFile> = keys.iter().enumerate().map(delete).collect();
        for side in [vec![0, 1, 2, 3, 4], vec![3], vec![4, 0], vec![2, 1]] {
            let sets: Vec<(&[i32], HashSet<_>)> = side
                .iter()
                .map(|index: &u32| &keys[*index as usize])
                .map(|(ids, rows)| (*ids, rows.iter().map(|row| key(row, ids)).collect()))
                .collect();
            let lives = |row: &&Values| !sets.iter().any(|(ids, set)| set.contains(&key(row, ids)));
            let text = |row: &Values| format!("{}|{}", row.0.map_or("null".to_owned(), |id| id.to_string()), row.1);
            let expected: Vec<String> = rows.iter().filter(lives).map(text).collect();
            assert!(expected.len() < rows.len());
            for file in [&in_parquet, &in_avro] {
                let task = task(vec![difference(file.clone(), None, Some(&side))], deletes.clone());
                let got: Vec<String> = lab.read(&context, &task).unwrap().into_iter().map(|(.., row)| row).collect();
                assert!(got == expected, "{side:?} of {}: {} of {}", file.location, got.len(), expected.len());
            }
        }
    }
}

#[test]
fn tasks_in_any_order_give_the_rows_of_one_task() {
    let lab = Lab::new();
    let rows = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")];
    let files: Vec<_> = (0..4).map(|index| lab.data(&format!("f{index}"), &id_v(&rows))).collect();
    let path = |index: usize| files[index].location.as_str();
    let deletes = vec![
        lab.positions("p0", &[(path(0), 1), (path(3), 4)]),
        lab.equality("e1", &[(1, "id", ints([2, 5]))]),
        lab.positions("p2", &[(path(3), 0)]),
        lab.positions("p3", &[(path(3), 2), (path(0), 3)]),
    ];
    let sides: [&[u32]; 4] = [&[0], &[1], &[], &[2, 3]];
    let differences: Vec<_> =
        files.iter().zip(sides).map(|(file, side)| difference(file.clone(), None, Some(side))).collect();
    let read = |differences: Vec<FileDifference>| {
        lab.read(&context(id_v_schema()), &task(differences, deletes.clone())).unwrap()
    };
    let one = read(differences.clone());
    assert_eq!(one.len(), 4 + 3 + 5 + 3);
    let mut cut: Vec<Vec<super::Row>> = vec![Vec::new(); 4];
    for index in [2, 0, 3, 1] {
        cut[index] = read(vec![differences[index].clone()]);
    }
    assert_eq!(cut.concat(), one);
}

#[test]
fn a_hundred_thousand_keys_of_two_hundred_files_cost_time_by_rows_plus_keys_and_bounded_memory() {
    let lab = Lab::new();
    let id = |n: i32| n.wrapping_mul(0x9E37_79B9u32 as i32);
    let file = lab.data("f", &batch(&[(1, "id", ints((0..100_000).map(id)))]));
    let key = |file: i32, n: i32| id((file * 7_919 + n * 31) % 150_000);
    let deletes: Vec<_> = (0..200)
        .map(|file| lab.equality(&format!("e{file}"), &[(1, "id", ints((0..500).map(|n| key(file, n))))]))
        .collect();
    let dead: BTreeSet<i32> = (0..200).flat_map(|file| (0..500).map(move |n| key(file, n))).collect();
    let all: Vec<u32> = (0..200).collect();
    let task = task(vec![difference(file, None, Some(&all))], deletes);
    let options = ReadOptions { equality_bytes: 16 * 1024 * 1024, ..ReadOptions::default() };
    let schema = schema([required(1, "id", PrimitiveType::Int)]);
    let start = std::time::Instant::now();
    let got = lab.read_with(&context(schema), &task, options).unwrap();
    // Comparing every row with every key would take minutes.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    let expected: Vec<String> = (0..100_000).map(id).filter(|id| !dead.contains(id)).map(|id| id.to_string()).collect();
    assert!(!dead.is_empty() && expected.len() < 100_000);
    assert_eq!(got.into_iter().map(|(.., row)| row).collect::<Vec<_>>(), expected);
}

#[test]
fn a_key_column_that_is_only_in_the_partition_counts_even_when_it_is_not_read() {
    use iceferry_common::model::Constant;
    let lab = Lab::new();
    let mut file = lab.data("f", &batch(&[(1, "id", ints([1, 2]))]));
    file.constants = vec![Constant { field_id: 5, value: Some(b"eu".to_vec()) }];
    let mut context = context(schema([required(1, "id", PrimitiveType::Int)]));
    context.source.equality_schema =
        Arc::new(schema([required(1, "id", PrimitiveType::Int), optional(5, "region", PrimitiveType::String)]));
    let keys = |name: &str, region: &str| lab.equality(name, &[(1, "id", ints([2])), (5, "region", texts([region]))]);
    for (region, left) in [("eu", vec!["1"]), ("us", vec!["1", "2"])] {
        let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![keys("e", region)]);
        assert_eq!(lab.read(&context, &task).unwrap(), inserts(&left), "{region}");
    }
}

#[test]
fn keys_whose_columns_have_no_ids_are_refused_without_a_name_mapping() {
    use iceferry_common::fault::{Class, Classified};
    let lab = Lab::new();
    let file = lab.data("f", &id_v(&[(1, "a"), (2, "b")]));
    let plain = ArrowSchema::new(vec![Field::new("id", DataType::Int32, false)]);
    let bytes = parquet(&RecordBatch::try_new(Arc::new(plain), vec![ints([2])]).unwrap(), WriterProperties::default());
    let size_bytes = lab.put("e", bytes);
    let kind = DeleteKind::Equality { field_ids: vec![1] };
    let delete =
        DeleteFile { location: lab.location("e"), format: FileFormat::Parquet, size_bytes, record_count: 1, kind };
    let task = task(vec![difference(file, None, Some(&[0]))], vec![delete]);
    let mut context = context(id_v_schema());
    let error = lab.read(&context, &task).unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("schema.name-mapping.default"), "{error}");
    context.source.name_mapping = Some(r#"[{"field-id":1,"names":["id"]}]"#.to_owned());
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&["1|a"]));
}
