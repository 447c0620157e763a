//! Attempts at groups that do not fit into their memory, from files to files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use iceberg::spec::{NestedField, PrimitiveType, Schema, StructType, Type};
use iceferry_common::model::{
    Changelog, ColumnSource, DataFile, DeleteFile, DeleteKind, DuplicateKeys, EpochId, ExchangeFile, ExchangeWork,
    FileDifference, FileFormat, Identity, MetricsMode, ParquetSettings, PassDeletesWork, Resolution, ResolveWork,
    RunId, Side, SnapshotId, SourceCommit, SourceContext, StagedContent, TargetContext, TargetMode, TaskId, Work,
};
use iceferry_common::storage::StorageProperties;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};

use super::*;

const ROWS: i64 = 60_000;

struct Bench {
    folder: tempfile::TempDir,
    context: EpochContext,
    task: ScanTask,
}

fn schema(names: &[&str]) -> Arc<Schema> {
    let field = |(id, name): (i32, &&str)| {
        let of = if id == 1 { PrimitiveType::Long } else { PrimitiveType::String };
        Arc::new(NestedField::required(id, *name, Type::Primitive(of)))
    };
    Arc::new(Schema::builder().with_fields((1..).zip(names).map(field)).build().unwrap())
}

/// A group that rewrites `ROWS` rows and updates every hundredth.
impl Bench {
    fn new(resolution: Resolution) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = |id: i64, updated: &str| format!("{:x}{updated}", (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let file = |name: &str, updated: &str| {
            let field = |name: &str, id: &str, of| {
                Field::new(name, of, false).with_metadata([(PARQUET_FIELD_ID_META_KEY.into(), id.into())].into())
            };
            let fields = vec![field("id", "1", DataType::Int64), field("v", "2", DataType::Utf8)];
            let ids = Int64Array::from_iter_values(0..ROWS);
            let texts = (0..ROWS).map(|id| text(id, if id % 100 == 0 { updated } else { "" }));
            let texts = StringArray::from_iter_values(texts);
            let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), vec![Arc::new(ids), Arc::new(texts)]);
            let (batch, location) = (batch.unwrap(), folder.path().join(name).display().to_string());
            let file = std::fs::File::create(&location).unwrap();
            let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            let size_bytes = std::fs::metadata(&location).unwrap().len();
            DataFile {
                location,
                format: FileFormat::Parquet,
                size_bytes,
                record_count: ROWS as u64,
                constants: Vec::new(),
                sequence_number: 0,
                first_row_id: None,
                spec_id: 0,
                partition: Vec::new(),
            }
        };
        let difference = |file, before, after| FileDifference { file, split: None, before, after, commit: None };
        let present = || Side::Present(Vec::new());
        let differences = vec![
            difference(file("before.parquet", "a"), present(), Side::Absent),
            difference(file("after.parquet", "b"), Side::Absent, present()),
        ];
        let task = ScanTask { id: TaskId(4), differences, deletes: Vec::new(), resolution, work: Work::Stage };
        let changelog = (resolution == Resolution::Updates).then(|| Changelog {
            compared_schema: None,
            commit: SourceCommit { snapshot_id: SnapshotId(1), sequence_number: 1, timestamp_ms: 0, change_ordinal: 0 },
            metadata_columns: Vec::new(),
            partition_type: StructType::new(Vec::new()),
            identity: Identity::Columns(vec![1]),
            duplicate_keys: DuplicateKeys::Fail,
            columns: vec![ColumnSource::Read(0), ColumnSource::Read(1), ColumnSource::ChangeType],
        });
        let is_changelog = changelog.is_some();
        let read_schema = schema(&["id", "v"]);
        let context = EpochContext {
            job: "orders".parse().unwrap(),
            run: RunId("run".to_owned()),
            epoch: EpochId(3),
            changelog,
            source: SourceContext {
                filter: None,
                table: "db.orders".to_owned(),
                equality_schema: Arc::clone(&read_schema),
                read_schema: Arc::clone(&read_schema),
                name_mapping: None,
                storage: StorageProperties::default(),
            },
            target: TargetContext {
                table: "lake.orders".to_owned(),
                write_schema: if is_changelog { schema(&["id", "v", "_change_type"]) } else { read_schema },
                key: if is_changelog { Vec::new() } else { vec![1] },
                mode: if is_changelog { TargetMode::Append } else { TargetMode::MergeOnRead },
                data_location: format!("{}/data", folder.path().display()),
                format_version: 2,
                last_column_id: 0,
                name_mapping: None,
                parquet: ParquetSettings {
                    compression_codec: "zstd".to_owned(),
                    compression_level: None,
                    row_group_bytes: 1 << 20,
                    page_bytes: 1 << 20,
                    dictionary_bytes: 1 << 20,
                    metrics_default: MetricsMode::Full,
                    metrics_columns: HashMap::new(),
                },
                target_file_bytes: 1 << 30,
                storage: StorageProperties::default(),
            },
        };
        Self { folder, context, task }
    }

    fn run(&self, memory_bytes: u64, cancel: &CancellationToken) -> Result<TaskOutput, AttemptError> {
        self.attempt(&self.task, memory_bytes, cancel)
    }

    fn attempt(
        &self,
        task: &ScanTask,
        memory_bytes: u64,
        cancel: &CancellationToken,
    ) -> Result<TaskOutput, AttemptError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (context, task) = (Arc::new(self.context.clone()), Arc::new(task.clone()));
        let runner = PipelineRunner::new(1, memory_bytes);
        runtime.block_on(runner.run(context, task, Attempt(2), Arc::default(), cancel.clone()))
    }

    /// The rows of the changelog that an output holds: id, change type, text.
    fn changes(&self, output: &TaskOutput) -> Vec<(i64, String, String)> {
        let mut found = Vec::new();
        for file in &output.files {
            let file = std::fs::File::open(&file.location).unwrap();
            for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
                let batch = batch.unwrap();
                let ids = batch.column(0).as_primitive::<Int64Type>();
                let (texts, changes) = (batch.column(1).as_string::<i32>(), batch.column(2).as_string::<i32>());
                found.extend(
                    (0..batch.num_rows())
                        .map(|row| (ids.value(row), changes.value(row).to_owned(), texts.value(row).to_owned())),
                );
            }
        }
        found.sort();
        found
    }

    /// Files of the run, by name.
    fn files(&self) -> Vec<String> {
        let Ok(found) = std::fs::read_dir(self.folder.path().join("data/iceferry/orders/run")) else {
            return Vec::new();
        };
        let mut names: Vec<_> = found.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Memory of a slot: a quarter of it is for rows that are compared, of which one side takes some two mebibytes.
const TIGHT: u64 = 2 << 20;

#[test]
fn a_changelog_whose_group_does_not_fit_is_what_it_is_when_it_does() {
    let bench = Bench::new(Resolution::Updates);
    let rows_of = |memory_bytes| {
        let output = bench.run(memory_bytes, &CancellationToken::new()).unwrap();
        let (updates, rows) = (ROWS as u64 / 100, output.rows);
        assert_eq!((rows.updated, rows.inserted, rows.deleted), (updates, 0, 0));
        assert_eq!((rows.read, rows.carried_over), (2 * ROWS as u64, ROWS as u64 - updates));
        let names: Vec<_> = output.files.iter().map(|file| file.location.rsplit('/').next().unwrap()).collect();
        assert_eq!(bench.files(), names, "nothing but what is handed over");
        bench.changes(&output)
    };
    let rows = rows_of(TIGHT);
    assert_eq!(rows.len(), 2 * ROWS as usize / 100);
    assert!(
        rows.chunks(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 == "UPDATE_AFTER" && pair[0].2.ends_with('b'))
    );
    assert_eq!(rows_of(1 << 30), rows);
}

#[test]
fn a_mirror_whose_group_does_not_fit_writes_only_what_changed() {
    let bench = Bench::new(Resolution::CarryOver);
    let rows = bench.run(TIGHT, &CancellationToken::new()).unwrap().rows;
    assert_eq!((rows.inserted, rows.deleted), (ROWS as u64 / 100, ROWS as u64 / 100));
    assert_eq!(rows.carried_over, ROWS as u64 - ROWS as u64 / 100);
    assert!(bench.files().iter().all(|name| name.ends_with(".parquet")), "{:?}", bench.files());
}

#[test]
fn an_attempt_that_fails_or_stops_leaves_no_exchange_file() {
    // Damage that is met when a part of the group is exchanged.
    let mut bench = Bench::new(Resolution::Updates);
    bench.task.differences[1].file.location.push_str(".missing");
    let error = bench.run(TIGHT, &CancellationToken::new()).unwrap_err();
    assert_eq!((error.class, error.left_behind.len()), (Class::NotFound, 0), "{error}");
    assert_eq!(bench.files(), [""; 0]);
    let stopped = CancellationToken::new();
    stopped.cancel();
    let error = Bench::new(Resolution::Updates).run(TIGHT, &stopped).unwrap_err();
    assert_eq!((error.class, error.left_behind.len()), (Class::Interrupted, 0), "{error}");
}

/// Exchanges each file of the group in a task of its own.
fn exchange(bench: &Bench, memory_bytes: u64) -> Vec<TaskOutput> {
    let differences = bench.task.differences.iter().cloned();
    let outputs = (0..).zip(differences).map(|(id, difference)| {
        let work = ExchangeWork { tasks: 2, first_resolve: TaskId(100), hash_version: ExchangeWork::HASH_VERSION };
        let work = Work::Exchange(work);
        let task = ScanTask { id: TaskId(id), differences: vec![difference], work, ..bench.task.clone() };
        let output = bench.attempt(&task, memory_bytes, &CancellationToken::new()).unwrap();
        let rows: u64 = output.exchanged.iter().flat_map(|file| &file.blocks).map(|block| block.rows).sum();
        assert_eq!((output.files.len(), output.rows.read, rows), (0, ROWS as u64, ROWS as u64));
        output
    });
    outputs.collect()
}

/// The task that resolves a bucket.
fn resolving(bench: &Bench, exchanged: &[TaskOutput], bucket: u32) -> ScanTask {
    let of_bucket = |file: &ExchangeFile| ExchangeFile {
        location: file.location.clone(),
        blocks: file.blocks.iter().filter(|block| block.bucket == bucket).copied().collect(),
    };
    let files = exchanged.iter().filter_map(|output| output.exchanged.as_ref()).map(of_bucket).collect();
    let work = Work::Resolve(ResolveWork { bucket, files });
    ScanTask { id: TaskId(100 + u64::from(bucket)), differences: Vec::new(), work, ..bench.task.clone() }
}

#[test]
fn a_group_that_several_tasks_exchange_and_resolve_is_what_one_makes_of_it() {
    let bench = Bench::new(Resolution::Updates);
    let expected = bench.changes(&bench.run(1 << 30, &CancellationToken::new()).unwrap());
    let exchanged = exchange(&bench, TIGHT);
    // The second one has to exchange its bucket again.
    for memory_bytes in [1 << 30, 64 << 10] {
        let (mut found, mut carried_over, mut read) = (Vec::new(), 0, 0);
        for bucket in 0..ExchangeWork::BUCKETS {
            let task = resolving(&bench, &exchanged, bucket);
            let output = bench.attempt(&task, memory_bytes, &CancellationToken::new()).unwrap();
            found.extend(bench.changes(&output));
            carried_over += output.rows.carried_over;
            read += output.rows.read;
        }
        found.sort();
        assert_eq!(found, expected);
        assert_eq!((carried_over, read), (ROWS as u64 - ROWS as u64 / 100, 2 * ROWS as u64));
    }
    let files = bench.files();
    let left: Vec<_> = files.iter().filter(|name| name.ends_with("-exchange.arrows")).collect();
    assert_eq!(left.len(), 2, "those that were handed over are others' to remove: {left:?}");
}

#[test]
fn a_bucket_whose_file_is_gone_or_whose_exchange_is_of_another_version_is_an_error() {
    let bench = Bench::new(Resolution::Updates);
    let exchanged = exchange(&bench, TIGHT);
    std::fs::remove_file(&exchanged[1].exchanged.as_ref().unwrap().location).unwrap();
    let error = bench.attempt(&resolving(&bench, &exchanged, 5), TIGHT, &CancellationToken::new()).unwrap_err();
    assert_eq!(error.class, Class::NotFound, "{error}");
    let work = ExchangeWork { tasks: 1, first_resolve: TaskId(1), hash_version: 0 };
    let other = ScanTask { work: Work::Exchange(work), ..bench.task.clone() };
    let error = bench.attempt(&other, TIGHT, &CancellationToken::new()).unwrap_err();
    assert!(error.class == Class::Refused && error.message.contains("hash version 0"), "{error}");
}

#[test]
fn rows_that_are_told_by_their_row_id_are_not_resolved_bucket_by_bucket() {
    let mut bench = Bench::new(Resolution::Updates);
    let changelog = bench.context.changelog.as_mut().unwrap();
    changelog.identity = Identity::RowId;
    changelog.metadata_columns = vec![iceferry_common::model::MetadataColumn::RowId];
    let work = ExchangeWork { tasks: 1, first_resolve: TaskId(1), hash_version: ExchangeWork::HASH_VERSION };
    let exchange = ScanTask { work: Work::Exchange(work), ..bench.task.clone() };
    let resolve = ScanTask {
        differences: Vec::new(),
        work: Work::Resolve(ResolveWork { bucket: 0, files: Vec::new() }),
        ..bench.task.clone()
    };
    for task in [exchange, resolve] {
        let error = bench.attempt(&task, TIGHT, &CancellationToken::new()).unwrap_err();
        assert!(error.class == Class::Bug && error.message.contains("_row_id"), "{error}");
    }
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn an_exchange_that_nobody_wants_any_more_is_removed() {
    let bench = Bench::new(Resolution::Updates);
    let output = exchange(&bench, TIGHT).remove(0);
    assert_eq!(bench.files().len(), 2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let runner = PipelineRunner::new(1, TIGHT);
    let discarded = runner.discard(Arc::new(bench.context.clone()), output);
    assert_eq!(runtime.block_on(discarded), [""; 0]);
    assert_eq!(bench.files().len(), 1);
}

#[test]
fn passed_deletes_become_equality_deletes_of_the_target_and_twice_is_no_error() {
    let bench = Bench::new(Resolution::Keep);
    // The key columns of a data file are as good a delete file as any.
    let file = &bench.task.differences[0].file;
    let delete = DeleteFile {
        location: file.location.clone(),
        format: FileFormat::Parquet,
        size_bytes: file.size_bytes,
        record_count: file.record_count,
        kind: DeleteKind::Equality { field_ids: vec![1] },
    };
    let work = Work::PassDeletes(PassDeletesWork { constants: vec![Vec::new(); 2] });
    let task = ScanTask { differences: Vec::new(), deletes: vec![delete.clone(), delete], work, ..bench.task.clone() };
    let output = bench.attempt(&task, 64 << 20, &CancellationToken::new()).unwrap();
    let (rows, keys) = (output.rows, 2 * ROWS as u64);
    assert_eq!((rows.read, rows.deleted, rows.inserted), (keys, keys, 0));
    assert!(rows.bytes_read > 0 && rows.bytes_read < 2 * file.size_bytes, "the key column alone: {rows:?}");
    let [staged] = &output.files[..] else { panic!("{output:?}") };
    assert_eq!((staged.content, staged.record_count), (StagedContent::EqualityDeletes, keys));
    let facts = iceferry_common::entry::Facts::read(&staged.data_file).unwrap();
    assert_eq!((facts.content, facts.equality_fields), (iceberg::spec::DataContentType::EqualityDeletes, 1));
    let stopped = CancellationToken::new();
    stopped.cancel();
    let error = bench.attempt(&task, 64 << 20, &stopped).unwrap_err();
    assert_eq!((error.class, error.left_behind.len()), (Class::Interrupted, 0), "{error}");
}
