//! Copy tasks, from files to files: what is staged shows the rows that decoding would, whatever is dead of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use iceberg::io::FileIO;
use iceberg::puffin::PuffinReader;
use iceberg::spec::{NestedField, PrimitiveType, Schema, StructType, Type};
use iceferry_common::model::{
    Attempt, Changelog, ColumnSource, CopyWork, DataFile, DeleteFile, DeleteKind, DuplicateKeys, EpochContext, EpochId,
    FileDifference, FileFormat, Identity, MetricsMode, ParquetSettings, Resolution, RunId, ScanTask, Side, SnapshotId,
    SourceCommit, SourceContext, StagedContent, TargetContext, TargetMode, TaskId, TaskOutput, Work,
};
use iceferry_common::storage::StorageProperties;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::super::{AttemptError, PipelineRunner, Runner};
use crate::vector;

const PATH_ID: &str = "2147483546";
const POS_ID: &str = "2147483545";

/// A source file: how many rows, rows of a row group, and which are dead by position and which by key.
#[derive(Debug, Clone)]
struct Source {
    rows: i64,
    row_group: usize,
    by_position: BTreeSet<i64>,
    by_key: BTreeSet<i64>,
}

/// What of a job decides how files are carried over.
#[derive(Debug, Clone)]
struct Target {
    format_version: u8,
    is_changelog: bool,
    row_group_bytes: u64,
    target_file_bytes: u64,
    dead_percent_max: u8,
    /// Added to the field ids of the target.
    ids_from: i32,
}

struct Lab {
    folder: tempfile::TempDir,
    context: EpochContext,
    task: ScanTask,
    live: BTreeMap<i64, String>,
}

fn field(name: &str, id: &str, of: DataType) -> Field {
    Field::new(name, of, false).with_metadata([(PARQUET_FIELD_ID_META_KEY.into(), id.into())].into())
}

fn schema(names: &[&str], ids_from: i32) -> Arc<Schema> {
    let field = |(id, name): (i32, &&str)| {
        let of = if *name == "id" { PrimitiveType::Long } else { PrimitiveType::String };
        Arc::new(NestedField::required(id + ids_from, *name, Type::Primitive(of)))
    };
    Arc::new(Schema::builder().with_fields((1..).zip(names).map(field)).build().unwrap())
}

impl Lab {
    fn new(sources: &[Source], target: &Target) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut live = BTreeMap::new();
        let (mut differences, mut deletes) = (Vec::new(), Vec::new());
        for (number, source) in sources.iter().enumerate() {
            let first = number as i64 * 10_000;
            let text = |id: i64| format!("row {id}");
            let ids = first..first + source.rows;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(ids.clone())),
                Arc::new(StringArray::from_iter_values(ids.clone().map(text))),
            ];
            let fields = vec![field("id", "1", DataType::Int64), field("v", "2", DataType::Utf8)];
            let (location, size_bytes) =
                write(&folder, &format!("{number}.parquet"), fields, columns, source.row_group);
            let mut reaching = Vec::new();
            if !source.by_position.is_empty() {
                let paths = StringArray::from_iter_values(source.by_position.iter().map(|_| &location));
                let positions = Int64Array::from_iter_values(source.by_position.iter().copied());
                let fields = vec![field("file_path", PATH_ID, DataType::Utf8), field("pos", POS_ID, DataType::Int64)];
                let columns: Vec<ArrayRef> = vec![Arc::new(paths), Arc::new(positions)];
                let written = write(&folder, &format!("{number}-positions.parquet"), fields, columns, 1000);
                reaching.push(deletes.len() as u32);
                deletes.push(delete_file(written, source.by_position.len(), DeleteKind::Position));
            }
            if !source.by_key.is_empty() {
                let keys = Int64Array::from_iter_values(source.by_key.iter().map(|position| first + position));
                let fields = vec![field("id", "1", DataType::Int64)];
                let written = write(&folder, &format!("{number}-keys.parquet"), fields, vec![Arc::new(keys)], 1000);
                reaching.push(deletes.len() as u32);
                let kind = DeleteKind::Equality { field_ids: vec![1] };
                deletes.push(delete_file(written, source.by_key.len(), kind));
            }
            for id in ids {
                let position = id - first;
                if !source.by_position.contains(&position) && !source.by_key.contains(&position) {
                    live.insert(id, text(id));
                }
            }
            let file = DataFile {
                location,
                format: FileFormat::Parquet,
                size_bytes,
                record_count: source.rows as u64,
                constants: Vec::new(),
                sequence_number: 0,
                first_row_id: None,
                spec_id: 0,
                partition: Vec::new(),
            };
            differences.push(FileDifference {
                file,
                split: None,
                before: Side::Absent,
                after: Side::Present(reaching),
                commit: None,
            });
        }
        let metrics = vec![Vec::new(); differences.len()];
        let work = Work::Copy(CopyWork { metrics, dead_percent_max: target.dead_percent_max });
        let task = ScanTask { id: TaskId(4), differences, deletes, resolution: Resolution::Keep, work };
        let context = context(target, &folder);
        Self { folder, context, task, live }
    }

    fn run(&self, task: &ScanTask, cancel: &CancellationToken) -> Result<TaskOutput, AttemptError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (context, task) = (Arc::new(self.context.clone()), Arc::new(task.clone()));
        let runner = PipelineRunner::new(1, 64 << 20);
        runtime.block_on(runner.run(context, task, Attempt(2), Arc::default(), cancel.clone()))
    }

    /// Names of the staged files that are there.
    fn staged(&self) -> Vec<String> {
        let Ok(found) = std::fs::read_dir(self.folder.path().join("data/iceferry/orders/run")) else {
            return Vec::new();
        };
        let mut names: Vec<_> = found.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn write(
    folder: &tempfile::TempDir,
    name: &str,
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
    row_group: usize,
) -> (String, u64) {
    let location = folder.path().join(name).display().to_string();
    let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group)).build();
    let file = std::fs::File::create(&location).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let size = std::fs::metadata(&location).unwrap().len();
    (location, size)
}

fn delete_file((location, size_bytes): (String, u64), rows: usize, kind: DeleteKind) -> DeleteFile {
    DeleteFile { location, format: FileFormat::Parquet, size_bytes, record_count: rows as u64, kind }
}

fn context(target: &Target, folder: &tempfile::TempDir) -> EpochContext {
    let commit = SourceCommit { snapshot_id: SnapshotId(1), sequence_number: 1, timestamp_ms: 0, change_ordinal: 0 };
    let changelog = target.is_changelog.then(|| Changelog {
        compared_schema: None,
        commit,
        metadata_columns: Vec::new(),
        partition_type: StructType::new(Vec::new()),
        identity: Identity::Columns(vec![1]),
        duplicate_keys: DuplicateKeys::Fail,
        columns: vec![ColumnSource::Read(0), ColumnSource::Read(1), ColumnSource::ChangeType],
    });
    let names: &[&str] = if target.is_changelog { &["id", "v", "_change_type"] } else { &["id", "v"] };
    let read_schema = schema(&["id", "v"], 0);
    EpochContext {
        job: "orders".parse().unwrap(),
        run: RunId("run".to_owned()),
        epoch: EpochId(3),
        changelog,
        source: SourceContext {
            filter: None,
            table: "db.orders".to_owned(),
            equality_schema: Arc::clone(&read_schema),
            read_schema,
            name_mapping: None,
            storage: StorageProperties::default(),
        },
        target: TargetContext {
            table: "lake.orders".to_owned(),
            write_schema: schema(names, target.ids_from),
            key: if target.is_changelog { Vec::new() } else { vec![1 + target.ids_from] },
            mode: if target.is_changelog { TargetMode::Append } else { TargetMode::MergeOnRead },
            data_location: format!("{}/data", folder.path().display()),
            format_version: target.format_version,
            last_column_id: 10,
            name_mapping: None,
            parquet: ParquetSettings {
                compression_codec: "zstd".to_owned(),
                compression_level: None,
                row_group_bytes: target.row_group_bytes,
                page_bytes: 1 << 20,
                dictionary_bytes: 1 << 20,
                metrics_default: MetricsMode::Full,
                metrics_columns: HashMap::new(),
            },
            target_file_bytes: target.target_file_bytes,
            storage: StorageProperties::default(),
        },
    }
}

/// The rows that readers of the staged files see.
fn shown(output: &TaskOutput) -> BTreeMap<i64, String> {
    let mut dead: BTreeSet<(String, i64)> = BTreeSet::new();
    let files = |content| output.files.iter().filter(move |file| file.content == content);
    for file in files(StagedContent::PositionDeletes) {
        for batch in batches(&file.location) {
            let (paths, positions) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
            dead.extend((0..batch.num_rows()).map(|row| (paths.value(row).to_owned(), positions.value(row))));
        }
    }
    let puffins: BTreeSet<&str> = files(StagedContent::DeletionVector).map(|file| file.location.as_str()).collect();
    for location in puffins {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let reader = PuffinReader::new(FileIO::new_with_fs().new_input(location).unwrap());
            for blob in reader.file_metadata().await.unwrap().blobs() {
                let cardinality = blob.properties()["cardinality"].parse().unwrap();
                let positions = vector::decode(reader.blob(blob).await.unwrap().data(), cardinality).unwrap();
                let of = &blob.properties()["referenced-data-file"];
                dead.extend(positions.iter().map(|position| (of.clone(), position as i64)));
            }
        });
    }
    let mut rows = BTreeMap::new();
    for file in files(StagedContent::Data) {
        let mut position = 0;
        for batch in batches(&file.location) {
            let (ids, texts) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
            for row in 0..batch.num_rows() {
                if !dead.remove(&(file.location.clone(), position)) {
                    let twice = rows.insert(ids.value(row), texts.value(row).to_owned());
                    assert_eq!(twice, None, "row {} is there twice", ids.value(row));
                }
                position += 1;
            }
        }
        assert_eq!(position as u64, file.record_count);
    }
    assert!(dead.is_empty(), "deletes of rows that are not there: {dead:?}");
    rows
}

fn batches(location: &str) -> Vec<RecordBatch> {
    let file = std::fs::File::open(location).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(Result::unwrap).collect()
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let source = (1..60i64, 1..30usize).prop_flat_map(|(rows, row_group)| {
        // Dead rows in runs as well as here and there, so that row groups die as a whole.
        let dead = || {
            let run = (0..rows, 0..rows).prop_map(|(from, length)| (from..from + length).collect::<Vec<_>>());
            let few = prop::collection::vec(0..rows, 0..4);
            prop_oneof![3 => Just(Vec::new()), 2 => few, 2 => run]
        };
        (dead(), dead()).prop_map(move |(by_position, by_key)| Source {
            rows,
            row_group,
            by_position: by_position.into_iter().collect(),
            by_key: by_key.into_iter().filter(|position| *position < rows).collect(),
        })
    });
    prop::collection::vec(source, 1..6)
}

fn targets() -> impl Strategy<Value = Target> {
    let sizes = (prop_oneof![Just(1u64), Just(128 << 20)], prop_oneof![Just(1u64), Just(2000), Just(512 << 20)]);
    (2..=3u8, any::<bool>(), sizes, prop_oneof![Just(0u8), Just(30), Just(100)], prop_oneof![Just(0), Just(4)])
        .prop_map(|(format_version, is_changelog, (row_group_bytes, target_file_bytes), dead_percent_max, ids_from)| {
            Target { format_version, is_changelog, row_group_bytes, target_file_bytes, dead_percent_max, ids_from }
        })
}

proptest! {
    #[test]
    fn what_is_carried_over_shows_the_rows_that_are_live(sources in sources(), target in targets()) {
        let lab = Lab::new(&sources, &target);
        let output = lab.run(&lab.task, &CancellationToken::new()).unwrap();
        prop_assert_eq!(shown(&output), lab.live.clone());
        prop_assert_eq!(output.rows.inserted, lab.live.len() as u64);
        let rows = output.rows;
        prop_assert_eq!(rows.files_copied + rows.files_spliced + rows.files_decoded, sources.len() as u64);
        let vectors = output.files.iter().any(|file| file.content == StagedContent::DeletionVector);
        let positions = output.files.iter().any(|file| file.content == StagedContent::PositionDeletes);
        let unfit = if target.format_version < 3 { vectors } else { positions };
        prop_assert!(!unfit, "deletes that the format version has not");
        prop_assert!(!((vectors || positions) && target.is_changelog), "a changelog has no deletes");
        // Nothing but what is handed over is there.
        let mut names: Vec<_> =
            output.into_locations().iter().map(|at| at.rsplit('/').next().unwrap().to_owned()).collect();
        names.sort();
        prop_assert_eq!(lab.staged(), names);
    }
}

fn plain(target_file_bytes: u64) -> Target {
    Target {
        format_version: 3,
        is_changelog: false,
        row_group_bytes: 1,
        target_file_bytes,
        dead_percent_max: 30,
        ids_from: 0,
    }
}

fn live(rows: i64) -> Source {
    Source { rows, row_group: 10, by_position: BTreeSet::new(), by_key: BTreeSet::new() }
}

#[test]
fn large_files_are_copied_and_small_ones_are_joined() {
    let lab = Lab::new(&[live(40), live(30)], &plain(1));
    let output = lab.run(&lab.task, &CancellationToken::new()).unwrap();
    let rows = output.rows;
    assert_eq!((rows.files_copied, rows.files_spliced, rows.files_decoded), (2, 0, 0));
    for (file, difference) in output.files.iter().zip(&lab.task.differences) {
        let (copy, source) = (std::fs::read(&file.location), std::fs::read(&difference.file.location));
        assert!(copy.unwrap() == source.unwrap(), "{} is not the same", file.location);
    }
    let lab = Lab::new(&[live(40), live(30)], &plain(1 << 30));
    let output = lab.run(&lab.task, &CancellationToken::new()).unwrap();
    assert_eq!((output.rows.files_spliced, output.files.len()), (2, 1));
    assert_eq!(shown(&output), lab.live);
}

#[test]
fn a_row_group_with_many_dead_rows_is_decoded_and_its_neighbours_are_not() {
    // Of four row groups of ten rows one has one dead row, one five, one ten.
    let by_position = (11..12).chain(20..25).chain(30..40).collect();
    let lab = Lab::new(&[Source { by_position, ..live(40) }], &plain(1));
    let output = lab.run(&lab.task, &CancellationToken::new()).unwrap();
    let records: Vec<u64> = output.files.iter().map(|file| file.record_count).collect();
    assert_eq!(records, [20, 1, 5], "two row groups, their one dead row, and what is left of the third");
    assert_eq!(shown(&output), lab.live);
}

#[test]
fn an_attempt_that_fails_or_stops_leaves_nothing() {
    let mut lab = Lab::new(&[live(40), live(30)], &plain(1));
    let stopped = CancellationToken::new();
    stopped.cancel();
    assert!(lab.run(&lab.task, &stopped).unwrap_err().left_behind.is_empty());
    assert_eq!(lab.staged(), [""; 0]);
    lab.task.differences[1].file.location.push_str(".missing");
    assert!(lab.run(&lab.task, &CancellationToken::new()).unwrap_err().left_behind.is_empty());
    assert_eq!(lab.staged(), [""; 0]);
}
