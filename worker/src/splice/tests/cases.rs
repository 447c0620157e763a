//! Which way, case by case; files of other writers; damage.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float32Array, Int32Array, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use iceberg::spec::Literal;
use iceferry_common::model::{Changelog, ColumnSource, Constant, DuplicateKeys, Identity, SnapshotId, SourceCommit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::file::metadata::{
    KeyValue, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter, SortingColumn,
};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::TrackedWrite;

use super::random::Random;
use super::*;
use crate::splice::{Reason, Way};

fn ints(values: impl IntoIterator<Item = Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from_iter(values))
}

/// A batch of columns with ids, names and arrays; all optional. An id of 0 is none.
fn batch(columns: &[(i32, &str, ArrayRef)]) -> RecordBatch {
    let field = |(id, name, array): &(i32, &str, ArrayRef)| {
        let field = Field::new(*name, array.data_type().clone(), true);
        match id {
            0 => field,
            id => field.with_metadata([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())].into()),
        }
    };
    let schema = Arc::new(ArrowSchema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.iter().map(|column| Arc::clone(&column.2)).collect()).unwrap()
}

fn plain(batch: &RecordBatch) -> Vec<u8> {
    parquet(std::slice::from_ref(batch), ArrowWriterOptions::new())
}

/// `1: a int, 2: b string` in a file with ids.
fn a_b() -> RecordBatch {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["x", "y", "z"]));
    batch(&[(1, "a", ints([Some(1), None, Some(3)])), (2, "b", texts)])
}

fn int(id: i32, name: &str) -> NestedFieldRef {
    optional(id, name, PrimitiveType::Int)
}

fn text(id: i32, name: &str) -> NestedFieldRef {
    optional(id, name, PrimitiveType::String)
}

fn with_default(id: i32, name: &str) -> NestedFieldRef {
    NestedField::optional(id, name, Type::Primitive(PrimitiveType::Int)).with_initial_default(Literal::int(9)).into()
}

/// The way for a file whose table and target have these columns.
fn way_of(
    batch: &RecordBatch,
    read: Vec<NestedFieldRef>,
    write: Vec<NestedFieldRef>,
    change: impl FnOnce(&mut Lab, &mut DataFile),
) -> Way {
    let mut lab = Lab::new(schema(read), schema(write));
    let mut file = lab.put("file", &plain(batch), batch.num_rows() as u64);
    change(&mut lab, &mut file);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    splicer.way(&file, None, &whole, &[])
}

fn said(way: &Way) -> String {
    match way {
        Way::Copy(_) => "copy".to_owned(),
        Way::Splice(_, reason) => format!("splice {}", reason.as_str()),
        Way::Decode(reason) => format!("decode {}", reason.as_str()),
    }
}

const MAPPING: &str = r#"[{"field-id":1,"names":["a"]},{"field-id":2,"names":["b"]}]"#;

#[test]
fn a_file_is_copied_only_where_the_target_reads_in_it_what_decoding_gives() {
    let no_change = |_: &mut Lab, _: &mut DataFile| {};
    let both = || vec![int(1, "a"), text(2, "b")];
    let three = |third: NestedFieldRef| vec![int(1, "a"), text(2, "b"), third];
    let way = |read: Vec<NestedFieldRef>, write: Vec<NestedFieldRef>| said(&way_of(&a_b(), read, write, no_change));
    let same = |fields: Vec<NestedFieldRef>| way(fields.clone(), fields);
    let long = || optional(1, "a", PrimitiveType::Long);
    let cases = [
        ("the same", same(both()), "copy"),
        ("other names", same(vec![int(1, "one"), text(2, "two")]), "copy"),
        ("another order", same(vec![text(2, "b"), int(1, "a")]), "copy"),
        ("promoted", same(vec![long(), text(2, "b")]), "copy"),
        ("a column that is null where it is missing", same(three(int(3, "c"))), "copy"),
        ("a default in both", same(three(with_default(3, "c"))), "splice added-columns"),
        ("a default in the target alone", way(three(int(3, "c")), three(with_default(3, "c"))), "splice added-columns"),
        ("a missing column that is required", same(three(required(3, "c", PrimitiveType::Int))), "decode required"),
        ("other ids", way(both(), vec![int(2, "a"), text(1, "b")]), "splice field-ids"),
        ("a required column with nulls", same(vec![required(1, "a", PrimitiveType::Int)]), "decode required"),
        ("a required column without", same(vec![required(2, "b", PrimitiveType::String), int(1, "a")]), "copy"),
        ("a column left out whose id the target may come to use", same(vec![int(1, "a")]), "splice extra-columns"),
        ("another type", same(vec![optional(1, "a", PrimitiveType::Date)]), "decode encoding"),
    ];
    for (name, found, expected) in cases {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_file_is_not_carried_over_as_it_is_when_what_lies_around_it_differs() {
    let both = || vec![int(1, "a"), text(2, "b")];
    let way = |batch: &RecordBatch, fields: Vec<NestedFieldRef>, change: &dyn Fn(&mut Lab, &mut DataFile)| {
        said(&way_of(batch, fields.clone(), fields, |lab, file| change(lab, file)))
    };
    let columns = a_b().columns().to_vec();
    let bare = batch(&[(0, "a", columns[0].clone()), (0, "b", columns[1].clone())]);
    let some = batch(&[(1, "a", columns[0].clone()), (0, "b", columns[1].clone())]);
    let row_id = batch(&[(1, "a", columns[0].clone()), (2_147_483_540, "_row_id", columns[0].clone())]);
    let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1, 2]));
    let millis = batch(&[(1, "a", millis)]);
    let none = a_b().slice(0, 0);
    let constant = |id: i32| Constant { field_id: id, value: Some(4i32.to_le_bytes().to_vec()) };
    let mapped = |source: Option<&'static str>, target: Option<&'static str>| {
        move |lab: &mut Lab, _: &mut DataFile| {
            lab.context.source.name_mapping = source.map(str::to_owned);
            lab.context.target.name_mapping = target.map(str::to_owned);
        }
    };
    let no_change = |_: &mut Lab, _: &mut DataFile| {};
    let three = || vec![int(1, "a"), text(2, "b"), int(3, "c")];
    let timestamp = || vec![optional(1, "a", PrimitiveType::Timestamp)];
    let cases = [
        ("a constant", way(&a_b(), three(), &|_, file| file.constants = vec![constant(3)]), "splice added-columns"),
        (
            "a constant of a column that it has",
            way(&a_b(), both(), &|_, file| file.constants = vec![constant(1)]),
            "copy",
        ),
        (
            "an id that the target gave up",
            way(&a_b(), vec![int(1, "a")], &|lab, _| lab.context.target.last_column_id = 2),
            "copy",
        ),
        (
            "a row id",
            way(&row_id, vec![int(1, "a")], &|lab, _| lab.context.target.last_column_id = i32::MAX),
            "splice extra-columns",
        ),
        ("no ids", way(&bare, both(), &no_change), "splice field-ids"),
        ("no ids, one mapping", way(&bare, both(), &mapped(Some(MAPPING), Some(MAPPING))), "copy"),
        ("no ids, two mappings", way(&bare, both(), &mapped(Some(MAPPING), Some("[]"))), "splice field-ids"),
        ("no ids, a mapping of the source", way(&bare, both(), &mapped(Some(MAPPING), None)), "splice field-ids"),
        ("some ids", way(&some, vec![int(1, "a"), text(2, "b")], &no_change), "splice field-ids"),
        ("milliseconds", way(&millis, timestamp(), &no_change), "decode encoding"),
        ("no rows", way(&none, both(), &no_change), "decode empty"),
        (
            "other rows than the manifest says",
            way(&a_b(), both(), &|_, file| file.record_count = 4),
            "decode contradiction",
        ),
        ("another format", way(&a_b(), both(), &|_, file| file.format = FileFormat::Orc), "decode format"),
    ];
    for (name, found, expected) in cases {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_manifest_that_contradicts_the_footer_is_not_believed() {
    let lab = Lab::new(schema([int(1, "a"), text(2, "b")]), schema([int(1, "a"), text(2, "b")]));
    let file = lab.put("file", &plain(&a_b()), 3);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    let a = ColumnMetrics { field_id: 1, ..ColumnMetrics::default() };
    let b = ColumnMetrics { field_id: 2, ..ColumnMetrics::default() };
    let int = |value: i32| Some(value.to_le_bytes().to_vec());
    let text = |value: &str| Some(value.as_bytes().to_vec());
    let cases = [
        (ColumnMetrics { value_count: Some(3), null_count: Some(1), ..a.clone() }, true),
        (ColumnMetrics { value_count: Some(4), ..a.clone() }, false),
        (ColumnMetrics { null_count: Some(0), ..a.clone() }, false),
        (ColumnMetrics { nan_count: Some(3), ..a.clone() }, false),
        (ColumnMetrics { lower_bound: int(1), upper_bound: int(3), ..a.clone() }, true),
        (ColumnMetrics { lower_bound: int(-9), upper_bound: int(9), ..a.clone() }, true),
        (ColumnMetrics { lower_bound: int(2), ..a.clone() }, false),
        (ColumnMetrics { upper_bound: int(2), ..a.clone() }, false),
        (ColumnMetrics { lower_bound: Some(vec![1]), ..a }, false),
        (ColumnMetrics { lower_bound: text("w"), upper_bound: text("z"), ..b.clone() }, true),
        (ColumnMetrics { lower_bound: text("xx"), ..b.clone() }, false),
        (ColumnMetrics { upper_bound: text("yz"), ..b.clone() }, false),
        (ColumnMetrics { upper_bound: Some(vec![0xFF]), ..b }, false),
    ];
    for (metrics, is_believed) in cases {
        let found = said(&splicer.way(&file, None, &whole, std::slice::from_ref(&metrics)));
        assert_eq!(found, if is_believed { "copy" } else { "decode contradiction" }, "{metrics:?}");
    }
}

#[test]
fn a_changelog_gets_its_constants_and_nothing_that_differs_by_row() {
    let read = vec![int(1, "a"), text(2, "b")];
    let write = vec![text(3, "_change_type"), int(1, "a"), text(2, "b")];
    let mut lab = Lab::new(schema(read), schema(write));
    lab.context.changelog = Some(Changelog {
        commit: SourceCommit { snapshot_id: SnapshotId(9), sequence_number: 1, timestamp_ms: 0, change_ordinal: 0 },
        metadata_columns: Vec::new(),
        partition_type: StructType::new(Vec::new()),
        identity: Identity::None,
        duplicate_keys: DuplicateKeys::Pair,
        compared_schema: None,
        columns: vec![ColumnSource::ChangeType, ColumnSource::Read(0), ColumnSource::Read(1)],
    });
    let file = lab.put("file", &plain(&a_b()), 3);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    let way = splicer.way(&file, None, &whole, &[]);
    assert_eq!(said(&way), "splice added-columns");
    let recipe = way.recipe().unwrap();
    let spliced = splice_all(&splicer, &[(&whole, recipe, &[])], lab.location("new"));
    assert_eq!(lab.rows(std::slice::from_ref(&spliced.file)), ["INSERT|1|x", "INSERT|null|y", "INSERT|3|z"]);
    let described = lab.described(&spliced.file);
    assert_eq!(described.lower_bounds()[&3], Datum::string("INSERT"));
    assert_eq!(described.null_value_counts()[&3], 0);
}

/// The same file with another footer.
fn with_footer(bytes: &[u8], change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
    let source = bytes::Bytes::copy_from_slice(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&source).unwrap();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let mut written = TrackedWrite::new(Vec::new());
    std::io::Write::write_all(&mut written, &bytes[..bytes.len() - 8 - length]).unwrap();
    let changed = change(metadata);
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &changed).finish().unwrap();
    let mut all = written.into_inner().unwrap();
    all.extend_from_slice(&footer);
    all
}

#[test]
fn a_bloom_filter_whose_length_is_not_in_the_footer_goes_with_its_column() {
    let properties = WriterProperties::builder().set_bloom_filter_enabled(true).build();
    let bytes = parquet(&[a_b()], ArrowWriterOptions::new().with_properties(properties));
    let bytes = with_footer(&bytes, |metadata| {
        let mut builder = ParquetMetaDataBuilder::new(metadata.file_metadata().clone());
        for group in metadata.row_groups() {
            let columns = group.columns().iter().map(|column| {
                assert!(column.bloom_filter_length().is_some());
                column.clone().into_builder().set_bloom_filter_length(None).build().unwrap()
            });
            let columns = columns.collect();
            builder = builder.add_row_group(group.clone().into_builder().set_column_metadata(columns).build().unwrap());
        }
        builder.build()
    });
    let lab = Lab::new(schema([int(1, "a"), text(2, "b")]), schema([int(1, "a"), text(2, "b")]));
    let file = lab.put("file", &bytes, 3);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    let way = splicer.way(&file, None, &whole, &[]);
    let spliced = splice_all(&splicer, &[(&whole, way.recipe().unwrap(), &[])], lab.location("new"));
    let new = std::fs::File::open(&spliced.file.location).unwrap();
    let new = SerializedFileReader::new(new).unwrap();
    let column = new.metadata().row_group(0).column(0);
    let source = std::fs::File::open(&spliced.file.location).unwrap();
    let filter = parquet::bloom_filter::Sbbf::read_from_column_chunk(column, &source).unwrap().unwrap();
    assert!(filter.check(&1i32) && filter.check(&3i32) && !filter.check(&77i32));
    assert!(column.bloom_filter_length().is_some());
}

#[test]
fn the_order_of_rows_and_words_of_others_are_handed_on_as_far_as_they_hold() {
    let pair = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
    let sorted = |leaf: i32| SortingColumn { column_idx: leaf, descending: true, nulls_first: false };
    let properties = WriterProperties::builder()
        .set_sorting_columns(Some(vec![sorted(1), sorted(0)]))
        .set_key_value_metadata(Some(vec![pair("iceberg.schema", "theirs"), pair("owner", "them")]))
        .build();
    let bytes = parquet(&[a_b()], ArrowWriterOptions::new().with_properties(properties));
    for (fields, expected) in [
        (vec![text(2, "b"), int(1, "a")], Some(vec![sorted(0), sorted(1)])),
        (vec![text(2, "b")], Some(vec![sorted(0)])),
        (vec![int(1, "a")], None),
    ] {
        let lab = Lab::new(schema(fields.clone()), schema(fields));
        let file = lab.put("file", &bytes, 3);
        let splicer = lab.splicer();
        let whole = splicer.open(&file).unwrap();
        let way = splicer.way(&file, None, &whole, &[]);
        let spliced = splice_all(&splicer, &[(&whole, way.recipe().unwrap(), &[])], lab.location("new"));
        let new = SerializedFileReader::new(std::fs::File::open(&spliced.file.location).unwrap()).unwrap();
        assert_eq!(new.metadata().row_group(0).sorting_columns(), expected.as_ref());
        let pairs = new.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(pairs.contains(&pair("owner", "them")) && !pairs.iter().any(|pair| pair.key == "ARROW:schema"));
        let of_schema = pairs.iter().find(|pair| pair.key == "iceberg.schema").unwrap();
        assert!(of_schema.value.as_ref().unwrap().contains("\"fields\""));
    }
}

#[test]
fn parts_that_do_not_fit_are_refused_before_anything_is_written() {
    let lab = Lab::new(schema([int(1, "a")]), schema([int(1, "a")]));
    let one = lab.put("one", &plain(&batch(&[(1, "a", ints([Some(1)]))])), 1);
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let splicer = lab.splicer();
    let whole = splicer.open(&one).unwrap();
    let way = splicer.way(&one, None, &whole, &[]);
    let recipe = way.recipe().unwrap();
    let part = |row_groups: Vec<usize>| Part { whole: &whole, recipe, row_groups, metrics: &[] };
    for parts in [vec![], vec![part(vec![])], vec![part(vec![1])], vec![part(vec![0, 0])]] {
        let error = splicer.splice(&parts, lab.location("new")).unwrap_err();
        assert!(matches!(error, crate::splice::SpliceError::Parts { .. }), "{error}");
    }
    // An int and a long that are both read as longs are not of one form.
    let lab =
        Lab::new(schema([optional(1, "a", PrimitiveType::Long)]), schema([optional(1, "a", PrimitiveType::Long)]));
    let narrow = lab.put("narrow", &plain(&batch(&[(1, "a", ints([Some(1)]))])), 1);
    let wide = lab.put("wide", &plain(&batch(&[(1, "a", wide)])), 1);
    let splicer = lab.splicer();
    let (narrow_whole, wide_whole) = (splicer.open(&narrow).unwrap(), splicer.open(&wide).unwrap());
    let (narrow_way, wide_way) =
        (splicer.way(&narrow, None, &narrow_whole, &[]), splicer.way(&wide, None, &wide_whole, &[]));
    let (narrow, wide) = (narrow_way.recipe().unwrap(), wide_way.recipe().unwrap());
    assert!(!narrow.joins(wide) && narrow.joins(narrow));
    assert!(!std::path::Path::new(&lab.location("new")).exists());
}

#[test]
fn bounds_of_floats_are_not_told_where_nobody_knows_of_nans() {
    let fields = || vec![optional(1, "a", PrimitiveType::Float)];
    let lab = Lab::new(schema(fields()), schema(fields()));
    let nans: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN; 3]));
    let file = lab.put("file", &plain(&batch(&[(1, "a", nans)])), 3);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    let known = ColumnMetrics { field_id: 1, nan_count: Some(3), ..ColumnMetrics::default() };
    for metrics in [vec![], vec![known]] {
        let way = splicer.way(&file, None, &whole, &metrics);
        let name = lab.location(&format!("new-{}", metrics.len()));
        let staged = splicer.copy(&whole, way.recipe().unwrap(), &metrics, name).unwrap();
        let described = lab.described(&staged);
        assert!(described.lower_bounds().is_empty() && described.upper_bounds().is_empty());
        assert_eq!(described.nan_value_counts().get(&1).copied(), metrics.first().and_then(|of| of.nan_count));
    }
}

#[test]
fn a_source_that_fails_or_a_target_that_is_taken_leaves_nothing_behind() {
    let lab = Lab::new(schema([int(1, "a")]), schema([int(1, "a")]));
    let file = lab.put("file", &plain(&batch(&[(1, "a", ints((0..600_000).map(Some)))])), 600_000);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    let way = splicer.way(&file, None, &whole, &[]);
    let recipe = way.recipe().unwrap();
    assert!(file.size_bytes > 1 << 20, "it is not held whole");
    // Cut short after its footer was read.
    let bytes = std::fs::read(&file.location).unwrap();
    std::fs::write(&file.location, &bytes[..bytes.len() / 2]).unwrap();
    let parts = [Part { whole: &whole, recipe, row_groups: vec![0], metrics: &[] }];
    let error = splicer.splice(&parts, lab.location("data/new")).unwrap_err();
    assert!(matches!(error, crate::splice::SpliceError::Read(_)), "{error}");
    splicer.copy(&whole, recipe, &[], lab.location("data/new")).unwrap_err();
    std::fs::write(&file.location, &bytes).unwrap();
    std::fs::write(lab.location("taken"), b"theirs").unwrap();
    splicer.copy(&whole, recipe, &[], lab.location("taken")).unwrap_err();
    assert_eq!(std::fs::read(lab.location("taken")).unwrap(), b"theirs");
    let names = std::fs::read_dir(lab.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter(|name| name != "file" && name != "taken").collect();
    assert!(
        names.is_empty() || !std::path::Path::new(&lab.location("data")).read_dir().unwrap().any(|_| true),
        "{names:?}"
    );
    splicer.splice(&parts, lab.location("data/new")).unwrap();
}

#[test]
fn a_damaged_file_is_an_error_or_carried_over_but_never_a_panic() {
    let seed = std::env::var("ICEFERRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let values = ints((0..500).map(|value| (value % 7 != 0).then_some(value % 40)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..500).map(|value| format!("text {}", value % 90))));
    let properties = WriterProperties::builder()
        .set_bloom_filter_enabled(true)
        .set_max_row_group_row_count(Some(120))
        .set_data_page_row_count_limit(30)
        .set_write_batch_size(10)
        .build();
    let whole_file = batch(&[(1, "a", values), (2, "b", texts)]);
    let bytes = parquet(&[whole_file], ArrowWriterOptions::new().with_properties(properties));
    let lab = Lab::new(schema([int(1, "a"), text(2, "b")]), schema([int(7, "a"), text(2, "b")]));
    let splicer = lab.splicer();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let footer = bytes.len() - 8 - length;
    let (mut carried, mut refused) = (0, 0);
    for round in 0..600 {
        let mut damaged = bytes.clone();
        // Half of the damage is in the footer, half before it: page indexes and bloom filters lie there.
        let from = if round % 2 == 0 { footer } else { footer - 3000.min(footer) };
        for _ in 0..1 + random.below(3) {
            let at = from + random.below((bytes.len() - from) as u64) as usize;
            damaged[at] = random.below(256) as u8;
        }
        let file = lab.put("file", &damaged, 500);
        let Ok(whole) = splicer.open(&file) else {
            refused += 1;
            continue;
        };
        let way = splicer.way(&file, None, &whole, &[]);
        let Some(recipe) = way.recipe() else {
            refused += 1;
            continue;
        };
        let row_groups = (0..whole.row_groups()).collect();
        let part = Part { whole: &whole, recipe, row_groups, metrics: &[] };
        match splicer.splice(&[part], lab.location("new")) {
            Ok(_) => carried += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(carried > 50 && refused > 50, "{carried} {refused}");
}

#[test]
fn every_reason_has_a_name_and_a_text_of_its_own() {
    let all = [
        Reason::Filter,
        Reason::Format,
        Reason::Encrypted,
        Reason::OldWriter,
        Reason::Empty,
        Reason::Contradiction,
        Reason::Encoding,
        Reason::Nesting,
        Reason::Required,
        Reason::RowMetadata,
        Reason::NestedDefault,
        Reason::Names,
        Reason::Constant,
        Reason::AddedColumns,
        Reason::FieldIds,
        Reason::ExtraColumns,
    ];
    let names: std::collections::HashSet<_> = all.iter().map(|reason| reason.as_str()).collect();
    let texts: std::collections::HashSet<_> = all.iter().map(|reason| reason.to_string()).collect();
    assert_eq!((names.len(), texts.len()), (all.len(), all.len()));
}

#[test]
fn a_file_with_other_columns_in_its_nested_ones_keeps_those_of_the_target() {
    let field = |name: &str, id: i32, of: DataType| {
        Field::new(name, of, true).with_metadata([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())].into())
    };
    let inner = vec![field("x", 2, DataType::Int32), field("y", 3, DataType::Int32)];
    let columns = vec![ints([Some(1), None, Some(3)]), ints([Some(4), Some(5), None])];
    let array = arrow::array::StructArray::new(inner.into(), columns, Some(vec![true, true, false].into()));
    let arrow = Arc::new(ArrowSchema::new(vec![field("s", 1, array.data_type().clone())]));
    let batch = RecordBatch::try_new(arrow, vec![Arc::new(array)]).unwrap();
    let of = |fields: Vec<NestedFieldRef>| -> Vec<NestedFieldRef> {
        vec![NestedField::optional(1, "s", Type::Struct(StructType::new(fields))).into()]
    };
    let read = of(vec![int(3, "why"), int(4, "new")]);
    let lab = Lab::new(schema(read.clone()), schema(read));
    let file = lab.put("file", &plain(&batch), 3);
    let splicer = lab.splicer();
    let whole = splicer.open(&file).unwrap();
    // Id 2 is below the last column id of the target, which will not give it to another column.
    let way = splicer.way(&file, None, &whole, &[]);
    assert_eq!(said(&way), "copy");
    // Iceberg's own writer counts no field of the struct that is null.
    let counted = ColumnMetrics { field_id: 3, value_count: Some(2), null_count: Some(0), ..ColumnMetrics::default() };
    assert_eq!(said(&splicer.way(&file, None, &whole, &[counted])), "copy");
    let spliced = splice_all(&splicer, &[(&whole, way.recipe().unwrap(), &[])], lab.location("new"));
    let expected = lab.rows(&lab.decode(&file, 0).unwrap());
    assert_eq!(expected, ["{why: 4, new: null}", "{why: 5, new: null}", "null"]);
    assert_eq!(lab.rows(std::slice::from_ref(&spliced.file)), expected);
    let new = SerializedFileReader::new(std::fs::File::open(&spliced.file.location).unwrap()).unwrap();
    assert_eq!(new.metadata().row_group(0).num_columns(), 1, "what is null by itself is left out");
}
