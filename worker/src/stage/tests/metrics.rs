//! What the manifest says of a file, against values worked out by hand.

use std::collections::BTreeMap;

use arrow::array::{
    Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, LargeBinaryArray, ListArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use iceberg::spec::{DataContentType, DataFileFormat, Datum, ListType};

use super::*;

const LONG_TEXT: &str = "ääääääääääääääääzzz";

fn schema() -> Schema {
    let leaf = |id, name: &str, primitive| NestedField::optional(id, name, Type::Primitive(primitive)).into();
    let inner = StructType::new(vec![leaf(9, "x", PrimitiveType::Float)]);
    let list = ListType::new(NestedField::list_element(11, Type::Primitive(PrimitiveType::Int), false).into());
    let fields = vec![
        NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)).into(),
        leaf(2, "f", PrimitiveType::Double),
        leaf(3, "s", PrimitiveType::String),
        leaf(4, "d", PrimitiveType::Decimal { precision: 25, scale: 2 }),
        leaf(5, "b", PrimitiveType::Binary),
        leaf(6, "x", PrimitiveType::Fixed(70)),
        leaf(7, "u", PrimitiveType::Uuid),
        NestedField::optional(8, "t", Type::Struct(inner)).into(),
        NestedField::optional(10, "l", Type::List(list)).into(),
    ];
    Schema::builder().with_fields(fields).build().unwrap()
}

fn batches(bench: &Bench) -> Vec<ChangeBatch> {
    let arrow = schema_to_arrow_schema(&schema()).unwrap();
    let batch = |ids: [i64; 3],
                 f: [Option<f64>; 3],
                 s: [Option<&str>; 3],
                 d: [Option<i128>; 3],
                 b: [Option<Vec<u8>>; 3],
                 x: Option<u8>,
                 t: [Option<f32>; 3],
                 lengths: [usize; 3]| {
        let DataType::Struct(inner) = arrow.field(7).data_type() else { panic!("a struct") };
        let DataType::List(element) = arrow.field(8).data_type() else { panic!("a list") };
        let sparse = |value: Option<u8>, size: usize| {
            let values = [value.map(|byte| vec![byte; size]), None, None];
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), size as i32).unwrap())
        };
        let inside = Float32Array::from_iter_values(t.map(|value| value.unwrap_or(f32::NAN)));
        let around = NullBuffer::from(t.map(|value| value.is_some()).to_vec());
        let elements = Int32Array::from_iter_values(0..lengths.iter().sum::<usize>() as i32);
        let offsets = OffsetBuffer::from_lengths(lengths);
        bench.batch(
            Change::Insert,
            vec![
                Arc::new(Int64Array::from(ids.to_vec())),
                Arc::new(Float64Array::from(f.to_vec())),
                Arc::new(StringArray::from(s.to_vec())),
                Arc::new(Decimal128Array::from(d.to_vec()).with_precision_and_scale(25, 2).unwrap()),
                Arc::new(LargeBinaryArray::from_iter(b)),
                sparse(x, 70),
                sparse(x, 16),
                Arc::new(StructArray::new(inner.clone(), vec![Arc::new(inside)], Some(around))),
                Arc::new(ListArray::new(Arc::clone(element), offsets, Arc::new(elements), None)),
            ],
        )
    };
    vec![
        batch(
            [5, -7, 3],
            [Some(f64::NAN), Some(0.0), None],
            [Some("b"), Some(LONG_TEXT), None],
            [Some(-1), Some(300), None],
            [Some(vec![255; 40]), Some(vec![1]), None],
            Some(200),
            [Some(f32::NAN), Some(2.5), None],
            [2, 0, 1],
        ),
        batch(
            [9, 8, 10],
            [Some(f64::NAN), Some(-0.0), Some(f64::NAN)],
            [None, None, None],
            [Some(-(1 << 70)), Some(7), None],
            [None, None, None],
            None,
            [Some(-1.0), None, Some(1.0)],
            [0, 0, 0],
        ),
    ]
}

fn sorted<T: Clone>(map: &HashMap<i32, T>) -> BTreeMap<i32, T> {
    map.iter().map(|(id, value)| (*id, value.clone())).collect()
}

fn bytes(map: &HashMap<i32, Datum>) -> BTreeMap<i32, Vec<u8>> {
    map.iter().map(|(id, datum)| (*id, datum.to_bytes().unwrap().to_vec())).collect()
}

#[test]
fn counts_and_bounds_are_those_worked_out_by_hand() {
    // A row group for each batch, and all in one: the same metrics.
    for row_group_memory_bytes in [1, 64 << 20] {
        let mut bench = Bench::new(schema(), schema(), &[1]);
        bench.options.row_group_memory_bytes = row_group_memory_bytes;
        let staged = bench.stage(&batches(&bench)).unwrap();
        assert_eq!(staged.len(), 1);
        let file = bench.data_file(&staged[0]);
        assert_eq!(file.content_type(), DataContentType::Data);
        assert_eq!(file.file_format(), DataFileFormat::Parquet);
        assert_eq!(file.equality_ids(), None);
        assert_eq!(file.record_count(), 6);

        let counts = |expected: &[(i32, u64)]| expected.iter().copied().collect::<BTreeMap<_, _>>();
        let all = [1, 2, 3, 4, 5, 6, 7, 9].map(|id| (id, 6));
        assert_eq!(sorted(file.value_counts()), counts(&all));
        let nulls = [(1, 0), (2, 1), (3, 4), (4, 2), (5, 4), (6, 5), (7, 5), (9, 2)];
        assert_eq!(sorted(file.null_value_counts()), counts(&nulls));
        // Under a null struct nothing is counted, whatever lies there.
        assert_eq!(sorted(file.nan_value_counts()), counts(&[(2, 3), (9, 1)]));
        let sizes = sorted(file.column_sizes());
        assert_eq!(sizes.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 9, 11]);

        let mut upper_text = "ä".repeat(15);
        upper_text.push('å');
        let lower: BTreeMap<i32, Vec<u8>> = BTreeMap::from([
            (1, (-7_i64).to_le_bytes().to_vec()),
            (2, (-0.0_f64).to_le_bytes().to_vec()),
            (3, b"b".to_vec()),
            (4, (-(1_i128 << 70)).to_be_bytes()[7..].to_vec()),
            (5, vec![1]),
            (6, vec![200; 16]),
            (7, vec![200; 16]),
            (9, (-1.0_f32).to_le_bytes().to_vec()),
        ]);
        let mut upper_fixed = vec![200; 15];
        upper_fixed.push(201);
        // The binary's upper bound is forty bytes of 255, which nothing of sixteen bytes is above.
        let upper: BTreeMap<i32, Vec<u8>> = BTreeMap::from([
            (1, 10_i64.to_le_bytes().to_vec()),
            (2, 0.0_f64.to_le_bytes().to_vec()),
            (3, upper_text.into_bytes()),
            (4, vec![1, 44]),
            (6, upper_fixed),
            (7, vec![200; 16]),
            (9, 2.5_f32.to_le_bytes().to_vec()),
        ]);
        assert_eq!(bytes(file.lower_bounds()), lower);
        assert_eq!(bytes(file.upper_bounds()), upper);

        let (footer, _) = read_back(&staged[0]);
        assert_eq!(footer.num_row_groups(), if row_group_memory_bytes == 1 { 2 } else { 1 });
        let offsets = file.split_offsets().unwrap();
        assert_eq!(offsets.len(), footer.num_row_groups());
        assert_eq!(offsets[0], 4);
        assert!(offsets.is_sorted());
        for (offset, row_group) in offsets.iter().zip(footer.row_groups()) {
            let (start, _) = row_group.column(0).byte_range();
            assert_eq!(*offset, start as i64);
        }
    }
}

#[test]
fn modes_choose_the_metrics_of_each_column() {
    let mut bench = Bench::new(schema(), schema(), &[1]);
    let parquet = &mut bench.context.target.parquet;
    parquet.metrics_default = MetricsMode::Counts;
    parquet.metrics_columns = HashMap::from([
        ("id".to_owned(), MetricsMode::None),
        ("s".to_owned(), MetricsMode::Full),
        ("b".to_owned(), MetricsMode::Full),
        ("t.x".to_owned(), MetricsMode::Truncate(1)),
        ("l.element".to_owned(), MetricsMode::None),
    ]);
    let file = bench.data_file(&bench.stage(&batches(&bench)).unwrap()[0]);
    assert_eq!(sorted(file.column_sizes()).keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 9]);
    assert_eq!(sorted(file.value_counts()).keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 9]);
    assert_eq!(bytes(file.lower_bounds()).keys().copied().collect::<Vec<_>>(), [3, 5, 9]);
    let upper = bytes(file.upper_bounds());
    assert_eq!(upper[&3], LONG_TEXT.as_bytes());
    assert_eq!(upper[&5], vec![255; 40]);
}

#[test]
fn bounds_of_any_length_are_cut_from_the_values_themselves() {
    // Far longer than what footers keep of a value by default.
    let mut bench = Bench::simple();
    let long = format!("{}z", "m".repeat(500));
    let rows = [(1, Some(long.as_str()))];
    let bounds = |bench: &Bench| {
        let file = bench.data_file(&bench.stage(&[bench.rows(Change::Insert, &rows)]).unwrap()[0]);
        let text = |bounds: &HashMap<i32, Datum>| String::from_utf8(bytes(bounds)[&2].clone()).unwrap();
        (text(file.lower_bounds()), text(file.upper_bounds()))
    };
    bench.context.target.parquet.metrics_default = MetricsMode::Full;
    assert_eq!(bounds(&bench), (long.clone(), long.clone()));
    bench.context.target.parquet.metrics_default = MetricsMode::Truncate(400);
    assert_eq!(bounds(&bench), ("m".repeat(400), format!("{}n", "m".repeat(399))));
}

#[test]
fn a_column_without_values_has_no_bounds() {
    let bench = Bench::simple();
    let file = bench.data_file(&bench.stage(&[bench.rows(Change::Insert, &[(1, None), (2, None)])]).unwrap()[0]);
    assert_eq!(file.null_value_counts()[&2], 2);
    assert!(!file.lower_bounds().contains_key(&2) && !file.upper_bounds().contains_key(&2));
}
