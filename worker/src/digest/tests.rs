//! Hashes of rows, and whole tasks against files in temporary folders.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
    ListArray, MapArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema as ArrowSchema};
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use iceferry_common::fault::Class;
use iceferry_common::model::digest::{BucketSum, RowHash, TaskDigest, bucket_of, page_bits, page_of};
use iceferry_common::model::*;
use iceferry_common::storage::StorageProperties;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::hash::{Hashes, RowHasher};
use crate::attempt::Counters;
use crate::read::ReadOptions;
use crate::tag::encode::RowEncoder;

fn hashes(key: &[usize], columns: &[ArrayRef]) -> Vec<Hashes> {
    let mut hashes = Vec::new();
    RowHasher::new(key.to_vec()).hash(columns, &mut hashes).unwrap();
    hashes
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn a_row_is_told_by_each_of_its_values_and_their_places() {
    let row = |a: Option<i32>, b: Option<i32>, text: Option<&str>| {
        hashes(&[0], &[ints(&[a]), ints(&[b]), texts(&[text])])[0].row
    };
    let all = [
        row(Some(1), Some(2), Some("a")),
        row(Some(2), Some(1), Some("a")),
        row(Some(1), Some(2), Some("b")),
        row(Some(1), Some(2), None),
        row(Some(1), Some(2), Some("")),
        row(Some(1), None, Some("a")),
        row(None, Some(1), Some("a")),
        row(Some(0), Some(1), Some("a")),
    ];
    for (at, hash) in all.iter().enumerate() {
        assert!(!all[..at].contains(hash), "row {at} is another");
    }
    assert_eq!(row(Some(1), Some(2), Some("a")), all[0]);
}

#[test]
fn two_values_that_change_places_change_the_sum() {
    let sum = |ids: &[Option<i32>], names: &[Option<&str>]| {
        let mut sum = BucketSum::default();
        hashes(&[0], &[ints(ids), texts(names)]).iter().for_each(|hashes| sum.add_row(hashes.row));
        sum
    };
    let ids = [Some(1), Some(2)];
    assert_ne!(sum(&ids, &[Some("a"), Some("b")]), sum(&ids, &[Some("b"), Some("a")]));
    assert_eq!(sum(&ids, &[Some("a"), Some("b")]), sum(&[Some(2), Some(1)], &[Some("b"), Some("a")]));
}

#[test]
fn the_key_alone_decides_the_bucket_and_without_one_all_columns_do() {
    let names = texts(&[Some("a"), Some("b"), Some("a")]);
    let keyed = hashes(&[0], &[ints(&[Some(1), Some(1), Some(2)]), Arc::clone(&names)]);
    assert_eq!(keyed[0].key, keyed[1].key);
    assert_ne!(keyed[0].key, keyed[2].key);
    let plain = hashes(&[], &[ints(&[Some(1), Some(1), Some(1)]), names]);
    assert_eq!(plain[0], plain[2]);
    assert_ne!(plain[0].key, plain[1].key);
    let mut none = Vec::new();
    assert!(RowHasher::new(vec![1]).hash(&[ints(&[None])], &mut none).is_err(), "a key column that is not there");
}

/// A batch of every form that values have in a row, from few different values, so that equal rows come up.
fn batch(seed: &[u8]) -> Vec<ArrayRef> {
    let pick = |column: usize, row: usize| (seed[row] >> (column % 4 * 2)) & 3;
    let rows = 0..seed.len();
    let option = |column: usize, row: usize| (pick(column, row) != 3).then(|| pick(column, row));
    let ints = rows.clone().map(|row| option(0, row).map(i32::from));
    let longs = rows.clone().map(|row| option(1, row).map(|value| i64::from(value) - 1));
    let floats = rows.clone().map(|row| [0.0, -0.0, f64::NAN, -f64::NAN][usize::from(pick(2, row))]);
    let decimals = rows.clone().map(|row| option(3, row).map(|value| i128::from(value) << 70));
    let flags = rows.clone().map(|row| option(0, row).map(|value| value == 1));
    let long = "x".repeat(40);
    let words = rows.clone().map(|row| option(1, row).map(|value| &long[..[0, 1, 40][usize::from(value)]]));
    let fixed = rows.clone().map(|row| option(2, row).map(|value| [value; 5]));
    let wide = rows.clone().map(|row| option(3, row).map(|value| [value; 40]));
    let lists = rows.clone().map(|row| option(0, row).map(|value| vec![Some(1); usize::from(value)]));
    let entries: [&[(&str, i32)]; 4] = [&[], &[("a", 1), ("b", 2)], &[("b", 2), ("a", 1)], &[("a", 2), ("b", 1)]];
    let of_rows: Vec<&[(&str, i32)]> = rows.map(|row| entries[usize::from(pick(1, row))]).collect();
    vec![
        Arc::new(Int32Array::from_iter(ints)),
        Arc::new(Int64Array::from_iter(longs)),
        Arc::new(Float64Array::from_iter_values(floats)),
        Arc::new(Decimal128Array::from_iter(decimals)),
        Arc::new(BooleanArray::from_iter(flags)),
        Arc::new(StringArray::from_iter(words)),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 5).unwrap()),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(wide, 40).unwrap()),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        maps(&of_rows),
    ]
}

proptest! {
    #[test]
    fn two_rows_have_one_hash_exactly_when_the_tag_step_takes_them_for_equal(
        seed in prop::collection::vec(any::<u8>(), 2..60),
        columns in prop::collection::vec(0usize..10, 1..12),
        cut in 0usize..20,
    ) {
        let all = batch(&seed);
        // Some column twice, in any order; the whole batch, and a slice of it, which has the same rows.
        let columns: Vec<ArrayRef> = columns.into_iter().map(|place| Arc::clone(&all[place])).collect();
        let encoder = RowEncoder::new(&columns).unwrap();
        let mut encoded = encoder.empty();
        encoder.append(&mut encoded, &columns).unwrap();
        let hashes = hashes(&[], &columns);
        for one in 0..seed.len() {
            for other in 0..one {
                prop_assert_eq!(hashes[one] == hashes[other], encoded.row(one) == encoded.row(other));
            }
        }
        let cut = cut.min(seed.len() - 1);
        let slices: Vec<ArrayRef> = columns.iter().map(|column| column.slice(cut, seed.len() - cut)).collect();
        prop_assert_eq!(&self::hashes(&[], &slices), &hashes[cut..]);
    }
}

#[test]
fn what_stands_behind_a_null_does_not_count() {
    let nulls = Some(NullBuffer::from(vec![false, false, true]));
    let column: ArrayRef = Arc::new(Int32Array::new(vec![1, 2, 0].into(), nulls));
    let hashes = hashes(&[], &[column]);
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2], "null is not zero");
}

/// Rows of one map each, with entries in the order that they are given in.
fn maps(rows: &[&[(&str, i32)]]) -> ArrayRef {
    let fields =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int32, true)]);
    let entries: Vec<&(&str, i32)> = rows.iter().flat_map(|row| row.iter()).collect();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(entries.iter().map(|(key, _)| *key)));
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values(entries.iter().map(|(_, value)| *value)));
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    Arc::new(MapArray::new(field, OffsetBuffer::from_lengths(rows.iter().map(|row| row.len())), entries, None, false))
}

#[test]
fn maps_are_what_their_entries_are_and_floats_what_their_bits_are() {
    let same = |column: ArrayRef| {
        let hashes = hashes(&[], &[column]);
        hashes[0] == hashes[1]
    };
    assert!(same(maps(&[&[("a", 1), ("b", 2)], &[("b", 2), ("a", 1)]])));
    assert!(!same(maps(&[&[("a", 1), ("b", 2)], &[("b", 1), ("a", 2)]])));
    let floats = |a: f64, b: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![a, b])) };
    assert!(same(floats(f64::NAN, f64::NAN)));
    assert!(!same(floats(f64::NAN, -f64::NAN)));
    assert!(!same(floats(0.0, -0.0)));
    let lists = |rows: [Vec<Option<i32>>; 2]| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows.map(Some)))
    };
    assert!(same(lists([vec![Some(1), None], vec![Some(1), None]])));
    assert!(!same(lists([vec![Some(1), Some(2)], vec![Some(2), Some(1)]])));
}

#[test]
fn hashes_are_the_same_in_every_process() {
    let found = hashes(&[0], &[ints(&[Some(7)]), texts(&[Some("iceferry")])])[0];
    assert_eq!((found.key, found.row), FIXED);
}

/// What workers of all versions have to agree on.
const FIXED: (u64, u128) = (2560392659081568622, 311852160334279307883113461730909556101);

/// A folder with data files of a table (id long, v string), a runtime to read them on, and where to write.
struct Lab {
    folder: tempfile::TempDir,
    runtime: Runtime,
    context: EpochContext,
}

impl Lab {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let fields = vec![
            Arc::new(NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long))),
            Arc::new(NestedField::optional(2, "v", Type::Primitive(PrimitiveType::String))),
        ];
        let schema = Arc::new(Schema::builder().with_fields(fields).build().unwrap());
        let context = EpochContext {
            job: "job".parse().unwrap(),
            run: RunId("run".into()),
            epoch: EpochId(0),
            changelog: None,
            source: SourceContext {
                table: "a.t".into(),
                read_schema: Arc::clone(&schema),
                filter: None,
                equality_schema: Arc::clone(&schema),
                name_mapping: None,
                storage: StorageProperties::default(),
            },
            target: TargetContext {
                table: "b.t".into(),
                write_schema: schema,
                key: vec![1],
                mode: TargetMode::MergeOnRead,
                data_location: format!("{}/out", folder.path().display()),
                format_version: 2,
                last_column_id: 0,
                name_mapping: None,
                parquet: ParquetSettings {
                    compression_codec: "zstd".into(),
                    compression_level: None,
                    row_group_bytes: 1,
                    page_bytes: 1,
                    dictionary_bytes: 1,
                    metrics_default: MetricsMode::None,
                    metrics_columns: [].into(),
                },
                target_file_bytes: 1,
                storage: StorageProperties::default(),
            },
        };
        Self { folder, runtime, context }
    }

    /// A data file with these rows, as one that came.
    fn added(&self, name: &str, rows: &[(i64, String)]) -> FileDifference {
        let field = |id: i32, name: &str, data_type| {
            let id = [(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())];
            Field::new(name, data_type, true).with_metadata(id.into())
        };
        let schema = Arc::new(ArrowSchema::new(vec![field(1, "id", DataType::Int64), field(2, "v", DataType::Utf8)]));
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, text)| text)));
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&schema), None).unwrap();
        writer.write(&RecordBatch::try_new(schema, vec![ids, texts]).unwrap()).unwrap();
        writer.close().unwrap();
        let path = self.folder.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let file = DataFile {
            location: path.display().to_string(),
            format: FileFormat::Parquet,
            size_bytes: bytes.len() as u64,
            record_count: rows.len() as u64,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 0,
            partition: Vec::new(),
        };
        FileDifference { file, split: None, before: Side::Absent, after: Side::Present(Vec::new()), commit: None }
    }

    fn task(&self, differences: Vec<FileDifference>, work: Work) -> ScanTask {
        ScanTask { id: TaskId(3), differences, deletes: Vec::new(), resolution: Resolution::Keep, work }
    }

    fn try_digest(
        &self,
        task: &ScanTask,
        run_bytes: u64,
        cancel: CancellationToken,
    ) -> Result<TaskOutput, crate::attempt::AttemptError> {
        let Work::Digest(work) = &task.work else { unreachable!("a digest task") };
        let options = ReadOptions { cancel, batch_rows: 100, ..ReadOptions::default() };
        let of = (&self.context, task, Attempt(1));
        super::digest(of, work, options, run_bytes, &Counters::default(), self.runtime.handle().clone())
    }

    /// What a task came to: its digest, and the hashes of single rows page by page.
    fn digest(&self, differences: Vec<FileDifference>, bucket_bits: u8, run_bytes: u64) -> (TaskDigest, Vec<RowHash>) {
        let work = Work::Digest(DigestWork { key: vec![0], bucket_bits });
        let output = self.try_digest(&self.task(differences, work), run_bytes, CancellationToken::new()).unwrap();
        let digest = TaskDigest::from_bytes(&std::fs::read(&output.files[0].location).unwrap()).unwrap();
        let hashes = output.files.get(1).map(|file| {
            let bytes = std::fs::read(&file.location).unwrap();
            assert_eq!(file.size_bytes, bytes.len() as u64);
            bytes
        });
        let hashes = hashes.unwrap_or_default();
        let mut rows = Vec::new();
        for page in 0..1usize << page_bits(bucket_bits) {
            for run in &digest.runs {
                let range = run.rows(page..page + 1);
                let bytes = range.start as usize * RowHash::BYTES..range.end as usize * RowHash::BYTES;
                let of_page = RowHash::all_of(&hashes[bytes]);
                rows.extend(of_page.inspect(|row| assert_eq!(page_of(row.key, bucket_bits), page)));
            }
        }
        assert_eq!(rows.len() * RowHash::BYTES, hashes.len(), "every row is in a page");
        (digest, rows)
    }

    fn left(&self) -> usize {
        let mut folders = vec![self.folder.path().join("out")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
                if entry.path().is_dir() { folders.push(entry.path()) } else { files += 1 }
            }
        }
        files
    }
}

fn rows(ids: impl Iterator<Item = i64>) -> Vec<(i64, String)> {
    ids.map(|id| (id, format!("value {}", id % 17))).collect()
}

#[test]
fn however_rows_are_spread_over_files_their_sums_are_those_of_a_plain_loop() {
    let lab = Lab::new();
    let all = rows((0..900).chain(0..30));
    for bits in [1, 5, 12, 16] {
        let columns: [ArrayRef; 2] = [
            Arc::new(Int64Array::from_iter_values(all.iter().map(|(id, _)| *id))),
            Arc::new(StringArray::from_iter_values(all.iter().map(|(_, text)| text))),
        ];
        let hashed = hashes(&[0], &columns);
        let mut sums = vec![BucketSum::default(); 1 << bits];
        hashed.iter().for_each(|hashes| sums[bucket_of(hashes.key, bits)].add_row(hashes.row));
        let expected: BTreeMap<(u32, u64), Hashes> = hashed[..800]
            .iter()
            .enumerate()
            .map(|(row, hashes)| (((row >= 400) as u32, row as u64 % 400), *hashes))
            .collect();

        let (one, _) = lab.digest(vec![lab.added("all.parquet", &all)], bits, 1 << 20);
        assert_eq!(one.sums, sums);
        // Two files, in small runs.
        let files = vec![lab.added("a.parquet", &all[..400]), lab.added("b.parquet", &all[400..800])];
        let (two, found) = lab.digest(files, bits, 50 * RowHash::BYTES as u64);
        assert_eq!(two.runs.len(), 16);
        let mut first = vec![BucketSum::default(); 1 << bits];
        hashed[..800].iter().for_each(|hashes| first[bucket_of(hashes.key, bits)].add_row(hashes.row));
        assert_eq!(two.sums, first);
        assert_eq!(found.len(), 800);
        for row in found {
            let hashes = expected[&(row.file, row.position)];
            assert_eq!((row.key, row.row), (hashes.key, hashes.row as u64), "{row:?}");
        }
    }
}

#[test]
fn a_task_without_rows_has_a_digest_and_no_hashes() {
    let lab = Lab::new();
    let (digest, rows) = lab.digest(vec![lab.added("none.parquet", &[])], 4, 100);
    assert!(rows.is_empty() && digest.runs.is_empty());
    assert_eq!(digest.sums, [BucketSum::default(); 16]);
    assert_eq!(lab.left(), 1);
}

#[test]
fn a_task_that_fails_leaves_nothing() {
    let lab = Lab::new();
    let good = lab.added("a.parquet", &rows(0..500));
    let mut gone = lab.added("b.parquet", &rows(0..500));
    gone.file.location.push('x');
    let work = || Work::Digest(DigestWork { key: vec![0], bucket_bits: 4 });
    let failed = lab.try_digest(&lab.task(vec![good.clone(), gone], work()), 100, CancellationToken::new());
    let failed = failed.unwrap_err();
    assert_eq!((failed.class, failed.left_behind.len()), (Class::NotFound, 0), "{failed}");
    let mut went = good.clone();
    std::mem::swap(&mut went.before, &mut went.after);
    let failed = lab.try_digest(&lab.task(vec![went], work()), 100, CancellationToken::new()).unwrap_err();
    assert_eq!(failed.class, Class::Bug, "{failed}");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let failed = lab.try_digest(&lab.task(vec![good], work()), 100, cancel).unwrap_err();
    assert_eq!(failed.class, Class::Interrupted, "{failed}");
    assert_eq!(lab.left(), 0);
}

#[test]
fn the_rows_that_are_asked_for_are_shown_and_no_others() {
    let lab = Lab::new();
    let long = "x".repeat(150);
    let mut second = rows(100..200);
    second[7].1 = long.clone();
    let files = vec![lab.added("a.parquet", &rows(0..3)), lab.added("b.parquet", &second)];
    let location = |file: usize| files[file].file.location.clone();
    let task = lab.task(files.clone(), Work::Show(ShowWork { rows: vec![vec![1], vec![7, 99]] }));
    let (of, progress) = ((&lab.context, &task, Attempt(0)), Counters::default());
    let output = super::show(of, ReadOptions::default(), &progress, lab.runtime.handle().clone()).unwrap();
    let shown: Vec<ShownRow> = serde_json::from_slice(&std::fs::read(&output.files[0].location).unwrap()).unwrap();
    let texts = |row: &ShownRow| row.columns.iter().map(|value| value.text.clone()).collect::<Vec<_>>();
    assert_eq!(
        shown.iter().map(|row| (row.location.clone(), row.position)).collect::<Vec<_>>(),
        [(location(0), 1), (location(1), 7), (location(1), 99)]
    );
    assert_eq!(texts(&shown[0]), ["1", "value 1"]);
    assert_eq!(texts(&shown[1])[1], format!("{}...", &long[..100]), "a long value is cut");
    assert_eq!(texts(&shown[2]), ["199", "value 12"]);
    // What is cut is told apart by its hash.
    let column: ArrayRef = Arc::new(StringArray::from(vec![format!("{}y", &long[1..])]));
    assert_ne!(super::hash::values(&column).unwrap()[0], shown[1].columns[1].hash);
    assert_eq!(column.len(), 1);
}
