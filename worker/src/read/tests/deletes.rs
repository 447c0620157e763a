//! Which rows come out, by what the two sides of a file difference delete.

use arrow::array::{Float64Array, Int64Array};
use iceferry_common::fault::{Class, Classified};

use super::*;

const ROWS: [(i32, &str); 5] = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")];

#[test]
fn rows_that_went_and_came_are_those_of_the_rule() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&ROWS));
    let path = file.location.as_str();
    // 0..: position deletes of rows 1; 3, 1, 1 and another file's; 0 and 4.
    // 3, 4: vectors of rows 2; 0 and 2. 5..7: equality deletes of ids 2 and 9; 3; and of v "e".
    let all = vec![
        lab.positions("p0", &[(path, 1)]),
        lab.positions("p1", &[(path, 3), ("file:///other", 0), (path, 1), (path, 1)]),
        lab.positions("p2", &[("file:///x", 2), (path, 4), (path, 0)]),
        lab.vector("v3", &[2]),
        lab.vector("v4", &[0, 2]),
        lab.equality("e5", &[(1, "id", ints([2, 9]))]),
        lab.equality("e6", &[(1, "id", ints([3]))]),
        lab.equality("e7", &[(2, "v", texts(["e"]))]),
    ];
    type Case<'a> = (&'a str, Option<&'a [u32]>, Option<&'a [u32]>, &'a [&'a str], &'a [&'a str]);
    let cases: [Case<'_>; 22] = [
        ("added", None, Some(&[]), &[], &["1|a", "2|b", "3|c", "4|d", "5|e"]),
        ("removed", Some(&[]), None, &["1|a", "2|b", "3|c", "4|d", "5|e"], &[]),
        ("added with a position delete", None, Some(&[0]), &[], &["1|a", "3|c", "4|d", "5|e"]),
        ("added with two", None, Some(&[1, 2]), &[], &["3|c"]),
        ("removed, partly dead", Some(&[2]), None, &["2|b", "3|c", "4|d"], &[]),
        ("added with an equality delete", None, Some(&[5]), &[], &["1|a", "3|c", "4|d", "5|e"]),
        ("added with everything", None, Some(&[0, 6, 7]), &[], &["1|a", "4|d"]),
        ("removed with equality deletes", Some(&[5, 6, 7]), None, &["1|a", "4|d"], &[]),
        ("a position delete comes", Some(&[]), Some(&[1]), &["2|b", "4|d"], &[]),
        ("one more", Some(&[0]), Some(&[0, 1]), &["4|d"], &[]),
        ("one goes", Some(&[0, 1]), Some(&[0]), &[], &["4|d"]),
        ("one takes another's place", Some(&[1]), Some(&[2]), &["1|a", "5|e"], &["2|b", "4|d"]),
        ("nothing", Some(&[1]), Some(&[1]), &[], &[]),
        ("a vector takes a vector's place", Some(&[3]), Some(&[4]), &["1|a"], &[]),
        ("a vector makes position deletes not count", Some(&[1]), Some(&[1, 3]), &["3|c"], &["2|b", "4|d"]),
        ("an equality delete comes", Some(&[]), Some(&[5]), &["2|b"], &[]),
        ("one more key set", Some(&[5]), Some(&[5, 7]), &["5|e"], &[]),
        ("one more that hits a dead row", Some(&[0]), Some(&[0, 5]), &[], &[]),
        ("one that hits nothing else goes", Some(&[5, 6]), Some(&[6]), &[], &["2|b"]),
        ("equality stays, a position comes", Some(&[5]), Some(&[5, 1]), &["4|d"], &[]),
        ("equality stays, a position goes", Some(&[5, 1]), Some(&[5]), &[], &["4|d"]),
        ("everything moves", Some(&[1, 6]), Some(&[2, 5]), &["1|a", "5|e"], &["3|c", "4|d"]),
    ];
    for (name, before, after, went, came) in cases {
        let task = task(vec![difference(file.clone(), before, after)], all.clone());
        let rows = lab.read(&context(id_v_schema()), &task).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(rows, both(went, came), "{name}");
    }
}

#[test]
fn delete_rows_have_the_key_alone_unless_carried_over_rows_are_to_be_cancelled() {
    let lab = Lab::new();
    let old = lab.data("old.parquet", &id_v(&ROWS[..2]));
    let new = lab.data("new.parquet", &id_v(&[(2, "b"), (7, "z")]));
    let mut task = task(vec![added(new), difference(old, Some(&[]), None)], Vec::new());
    // The target has ids of its own; the columns correspond by place.
    let mut context = context(id_v_schema());
    let renumbered = [optional(10, "x", PrimitiveType::Int), optional(20, "y", PrimitiveType::String)];
    context.target.write_schema = Arc::new(schema(renumbered));
    context.target.key = vec![20, 10];
    let key = |row: &str| (Change::Delete, Columns::Key, row.to_owned());
    let expected = [inserts(&["2|b", "7|z"]), vec![key("a|1"), key("b|2")]].concat();
    assert_eq!(lab.read(&context, &task).unwrap(), expected);
    task.resolution = Resolution::CarryOver;
    assert_eq!(lab.read(&context, &task).unwrap(), both(&["1|a", "2|b"], &["2|b", "7|z"]));
}

#[test]
fn rows_that_come_back_wait_for_all_that_went_when_carried_over_rows_are_to_be_cancelled() {
    let lab = Lab::new();
    let one = lab.data("one.parquet", &id_v(&ROWS));
    let two = lab.data("two.parquet", &id_v(&[(8, "y"), (9, "z")]));
    let deletes = vec![lab.positions("p", &[(&one.location, 0)]), lab.equality("e", &[(1, "id", ints([2]))])];
    let differences = vec![difference(one, Some(&[0]), Some(&[1])), difference(two, Some(&[]), None)];
    let mut task = task(differences, deletes);
    task.resolution = Resolution::CarryOver;
    assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), both(&["2|b", "8|y", "9|z"], &["1|a"]));
}

#[test]
fn equality_deletes_are_keyed_on_columns_that_are_not_read_and_on_older_types() {
    let lab = Lab::new();
    // id was an int, is a long; w was dropped and is not read; d is a double that was a float.
    let file = lab.data(
        "f.parquet",
        &batch(&[
            (1, "id", ints([1, 2, 3])),
            (2, "v", texts(["a", "b", "c"])),
            (3, "w", ints([7, 8, 9])),
            (4, "d", Arc::new(arrow::array::Float32Array::from(vec![0.5, f32::NAN, 1.5]))),
        ]),
    );
    let read = schema([optional(1, "id", PrimitiveType::Long), optional(2, "v", PrimitiveType::String)]);
    let mut context = context(read);
    context.source.equality_schema = Arc::new(schema([
        optional(1, "id", PrimitiveType::Long),
        optional(2, "v", PrimitiveType::String),
        optional(3, "w", PrimitiveType::Int),
        optional(4, "d", PrimitiveType::Double),
        optional(5, "n", PrimitiveType::Int),
    ]));
    let doubles = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let longs = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(0)]));
    type Case<'a> = (&'a str, Vec<(i32, &'a str, ArrayRef)>, &'a [&'a str]);
    let cases: [Case<'_>; 6] = [
        ("a dropped column", vec![(3, "w", ints([8]))], &["1|a", "3|c"]),
        ("the newer type", vec![(1, "id", longs(vec![3, 1 << 40]))], &["1|a", "2|b"]),
        ("the older type", vec![(1, "id", ints([3]))], &["1|a", "2|b"]),
        (
            "two columns in any order, under other names",
            vec![(3, "p", ints([7, 8])), (1, "q", ints([1, 1]))],
            &["2|b", "3|c"],
        ),
        ("floats as doubles, NaN too", vec![(4, "d", doubles(vec![f64::NAN, 1.5]))], &["1|a"]),
        ("a column that the file lacks is null in all rows", vec![(5, "n", nulls)], &[]),
    ];
    for (name, columns, left) in cases {
        let delete = lab.equality("e.parquet", &columns);
        let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![delete.clone()]);
        assert_eq!(lab.read(&context, &task).unwrap(), inserts(left), "{name}");
        let task = self::task(vec![difference(file.clone(), Some(&[]), Some(&[0]))], vec![delete]);
        let went: Vec<&str> = ["1|a", "2|b", "3|c"].into_iter().filter(|row| !left.contains(row)).collect();
        assert_eq!(lab.read(&context, &task).unwrap(), deletes(&went), "{name}, both sides");
    }
}

#[test]
fn each_data_file_gets_its_own_deletes_of_a_shared_file() {
    let lab = Lab::new();
    let files: Vec<_> = (0..4).map(|index| lab.data(&format!("f{index}"), &id_v(&ROWS))).collect();
    let path = |index: usize| files[index].location.as_str();
    let shared = lab.positions("p", &[(path(2), 1), (path(0), 0), (path(2), 4), (path(3), 2)]);
    let keys = lab.equality("e", &[(1, "id", ints([5]))]);
    let differences = vec![
        difference(files[2].clone(), None, Some(&[0, 1])),
        difference(files[1].clone(), None, Some(&[1])),
        difference(files[0].clone(), None, Some(&[0])),
        difference(files[3].clone(), Some(&[0]), None),
    ];
    let rows = lab.read(&context(id_v_schema()), &task(differences, vec![shared, keys])).unwrap();
    let mut expected = inserts(&["1|a", "3|c", "4|d", "1|a", "2|b", "3|c", "4|d", "2|b", "3|c", "4|d", "5|e"]);
    expected.extend(deletes(&["1|a", "2|b", "4|d", "5|e"]));
    assert_eq!(rows, expected);
}

#[test]
fn avro_position_deletes_are_read() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&ROWS));
    let avro = apache_avro::Schema::parse_str(
        r#"{"type":"record","name":"d","fields":[{"name":"file_path","type":"string","field-id":2147483546},
            {"name":"pos","type":"long","field-id":2147483545}]}"#,
    )
    .unwrap();
    let mut writer = apache_avro::Writer::new(&avro, Vec::new());
    for (path, position) in [(file.location.as_str(), 3i64), ("file:///other", 0), (file.location.as_str(), 1)] {
        let mut record = apache_avro::types::Record::new(&avro).unwrap();
        record.put("file_path", path);
        record.put("pos", position);
        writer.append(record).unwrap();
    }
    let size_bytes = lab.put("p.avro", writer.into_inner().unwrap());
    let delete = DeleteFile {
        location: lab.location("p.avro"),
        format: FileFormat::Avro,
        size_bytes,
        record_count: 3,
        kind: DeleteKind::Position,
    };
    let task = task(vec![difference(file, None, Some(&[0]))], vec![delete]);
    assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), inserts(&["1|a", "3|c", "5|e"]));
}

#[test]
fn fifty_thousand_keys_in_many_files_lose_nothing() {
    let lab = Lab::new();
    let rows: Vec<i32> = (0..100_000).collect();
    let file = lab.data("f.parquet", &batch(&[(1, "id", ints(rows))]));
    let deletes: Vec<_> = (0..100)
        .map(|index| {
            lab.equality(&format!("e{index}"), &[(1, "id", ints((0..500).map(|key| (key * 100 + index) * 2)))])
        })
        .collect();
    let all: Vec<u32> = (0..100).collect();
    let schema = schema([required(1, "id", PrimitiveType::Int)]);
    let task = task(vec![difference(file, None, Some(&all))], deletes);
    let options = ReadOptions { equality_bytes: 16 * 1024 * 1024, ..ReadOptions::default() };
    let left = lab.read_with(&context(schema.clone()), &task, options).unwrap();
    let expected: Vec<String> = (0..100_000).filter(|id| id % 2 == 1).map(|id| id.to_string()).collect();
    assert_eq!(left.into_iter().map(|(.., row)| row).collect::<Vec<_>>(), expected);

    let options = ReadOptions { equality_bytes: 64 * 1024, ..ReadOptions::default() };
    let error = lab.read_with(&context(schema), &task, options).unwrap_err();
    assert_eq!(error.class(), Class::Exhausted);
}
