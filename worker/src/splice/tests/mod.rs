//! Files that the Parquet crate wrote, carried over, and read back beside what decoding makes of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod cases;
mod property;
mod random;
mod speed;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use iceberg::spec::{
    DataFile as Described, Datum, NestedField, NestedFieldRef, PrimitiveType, Schema, SchemaRef, StructType, Type,
};
use iceferry_common::model::{
    Attempt, ColumnMetrics, DataFile, EpochContext, EpochId, FileDifference, FileFormat, MetricsMode, ParquetSettings,
    Resolution, RunId, ScanTask, Side, SourceContext, StagedFile, TargetContext, TargetMode, TaskId, Work,
};
use iceferry_common::storage::{Storage, StorageProperties};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::splicer::Spliced;
use super::{Part, Recipe, Splicer, Whole};
use crate::read::{ReadOptions, TaskReader};
use crate::stage::{StageOptions, Stager};

/// A folder with files, a runtime, and the context of an epoch.
struct Lab {
    folder: tempfile::TempDir,
    runtime: Runtime,
    context: EpochContext,
}

impl Lab {
    fn new(read_schema: SchemaRef, write_schema: SchemaRef) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let last_column_id = write_schema.highest_field_id().max(read_schema.highest_field_id());
        let context = EpochContext {
            job: "job".parse().unwrap(),
            run: RunId("run".to_owned()),
            epoch: EpochId(0),
            changelog: None,
            source: SourceContext {
                table: "db.source".to_owned(),
                equality_schema: Arc::clone(&read_schema),
                read_schema,
                name_mapping: None,
                filter: None,
                storage: StorageProperties::default(),
            },
            target: TargetContext {
                table: "db.target".to_owned(),
                write_schema,
                key: Vec::new(),
                mode: TargetMode::MergeOnRead,
                data_location: format!("{}/data", folder.path().display()),
                format_version: 2,
                last_column_id,
                name_mapping: None,
                parquet: ParquetSettings {
                    compression_codec: "zstd".to_owned(),
                    compression_level: None,
                    row_group_bytes: 1 << 30,
                    page_bytes: 1 << 20,
                    dictionary_bytes: 1 << 20,
                    metrics_default: MetricsMode::Truncate(8),
                    metrics_columns: HashMap::new(),
                },
                target_file_bytes: 1 << 30,
                storage: StorageProperties::default(),
            },
        };
        Self { folder, runtime, context }
    }

    fn location(&self, name: &str) -> String {
        format!("{}/{name}", self.folder.path().display())
    }

    /// Puts a data file into the folder.
    fn put(&self, name: &str, bytes: &[u8], record_count: u64) -> DataFile {
        std::fs::write(self.location(name), bytes).unwrap();
        DataFile {
            location: self.location(name),
            format: FileFormat::Parquet,
            size_bytes: bytes.len() as u64,
            record_count,
            constants: Vec::new(),
            sequence_number: 7,
            first_row_id: None,
            spec_id: 3,
            partition: Vec::new(),
        }
    }

    fn storage(&self) -> Storage {
        Storage::new(StorageProperties::default())
    }

    fn splicer(&self) -> Splicer {
        let (storage, runtime) = (self.storage(), self.runtime.handle().clone());
        let context = Arc::new(self.context.clone());
        Splicer::new(context, storage.clone(), storage, runtime, CancellationToken::new()).unwrap()
    }

    /// What the way that decodes makes of a file.
    fn decode(&self, file: &DataFile, number: u64) -> Result<Vec<StagedFile>, String> {
        let (storage, runtime) = (self.storage(), self.runtime.handle().clone());
        let task = task(vec![file.clone()]);
        let open = TaskReader::open(&self.context, &task, storage.clone(), runtime.clone(), ReadOptions::default());
        let options =
            StageOptions { row_group_memory_bytes: 1 << 30, unique_keys: false, key_memory_bytes: 0, first_file: 0 };
        let context = Arc::new(self.context.clone());
        let mut stager = Stager::new(context, TaskId(number), Attempt(0), storage, runtime, options).unwrap();
        for batch in open.map_err(|error| error.to_string())? {
            stager.write(&batch.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        }
        stager.finish().map_err(|error| error.to_string())
    }

    /// Rows of staged files as readers of the target see them.
    fn rows(&self, files: &[StagedFile]) -> Vec<String> {
        let mut context = self.context.clone();
        context.changelog = None;
        context.source.read_schema = Arc::clone(&context.target.write_schema);
        context.source.equality_schema = Arc::clone(&context.target.write_schema);
        context.source.name_mapping = context.target.name_mapping.clone();
        let files = files.iter().map(|file| DataFile {
            location: file.location.clone(),
            format: FileFormat::Parquet,
            size_bytes: std::fs::metadata(&file.location).unwrap().len(),
            record_count: file.record_count,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 0,
            partition: Vec::new(),
        });
        let task = task(files.collect());
        let (storage, runtime) = (self.storage(), self.runtime.handle().clone());
        let reader = TaskReader::open(&context, &task, storage, runtime, ReadOptions::default()).unwrap();
        reader.flat_map(|batch| lines(&batch.unwrap().rows)).collect()
    }

    fn described(&self, file: &StagedFile) -> Described {
        assert_eq!(std::fs::metadata(&file.location).unwrap().len(), file.size_bytes);
        let schema = &self.context.target.write_schema;
        iceferry_common::entry::decode(&file.data_file, schema).unwrap()
    }
}

/// All row groups of files, in one new file.
fn splice_all(splicer: &Splicer, files: &[(&Whole, &Recipe, &[ColumnMetrics])], location: String) -> Spliced {
    let parts = files.iter().map(|(whole, recipe, metrics)| Part {
        whole,
        recipe,
        row_groups: (0..whole.row_groups()).collect(),
        metrics,
    });
    splicer.splice(&parts.collect::<Vec<_>>(), location).unwrap()
}

fn task(files: Vec<DataFile>) -> ScanTask {
    let added = |file| FileDifference {
        file,
        split: None,
        before: Side::Absent,
        after: Side::Present(Vec::new()),
        commit: None,
    };
    ScanTask {
        id: TaskId(0),
        differences: files.into_iter().map(added).collect(),
        deletes: Vec::new(),
        resolution: Resolution::Keep,
        work: Work::Stage,
    }
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    // Arrow prints zones only with a table of time zones.
    let local = |column: &ArrayRef| match column.data_type() {
        DataType::Timestamp(unit, Some(_)) => cast(column, &DataType::Timestamp(*unit, None)).unwrap(),
        _ => Arc::clone(column),
    };
    let arrays: Vec<ArrayRef> = batch.columns().iter().map(local).collect();
    let columns: Vec<_> =
        arrays.iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
    let value =
        |column: &ArrayFormatter<'_>, row| column.value(row).try_to_string().unwrap_or_else(|error| error.to_string());
    let line = |row: usize| columns.iter().map(|column| value(column, row)).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

/// What the source's manifest says, were it as the target's.
fn metrics_of(described: &Described, write: &Schema, read: &Schema) -> Vec<ColumnMetrics> {
    let (mut ids, mut reads) = (Vec::new(), Vec::new());
    write.as_struct().fields().iter().for_each(|field| leaves(field, &mut ids));
    read.as_struct().fields().iter().for_each(|field| leaves(field, &mut reads));
    let bytes = |datum: Option<&Datum>| datum.map(|datum| datum.to_bytes().unwrap().to_vec());
    let metrics = ids.iter().zip(reads).map(|((id, _), (field_id, _))| ColumnMetrics {
        field_id,
        value_count: described.value_counts().get(id).copied(),
        null_count: described.null_value_counts().get(id).copied(),
        nan_count: described.nan_value_counts().get(id).copied(),
        lower_bound: bytes(described.lower_bounds().get(id)),
        upper_bound: bytes(described.upper_bounds().get(id)),
    });
    metrics.collect()
}

/// Ids and types of the leaves below a field.
fn leaves(field: &NestedField, found: &mut Vec<(i32, PrimitiveType)>) {
    match field.field_type.as_ref() {
        Type::Primitive(primitive) => found.push((field.id, primitive.clone())),
        Type::Struct(of) => of.fields().iter().for_each(|field| leaves(field, found)),
        Type::List(of) => leaves(&of.element_field, found),
        Type::Map(of) => {
            leaves(&of.key_field, found);
            leaves(&of.value_field, found);
        }
    }
}

fn schema(fields: impl IntoIterator<Item = NestedFieldRef>) -> SchemaRef {
    Arc::new(Schema::builder().with_fields(fields).build().unwrap())
}

fn optional(id: i32, name: &str, of: PrimitiveType) -> NestedFieldRef {
    NestedField::optional(id, name, Type::Primitive(of)).into()
}

fn required(id: i32, name: &str, of: PrimitiveType) -> NestedFieldRef {
    NestedField::required(id, name, Type::Primitive(of)).into()
}

fn parquet(batches: &[RecordBatch], options: ArrowWriterOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, batches[0].schema(), options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.close().unwrap();
    bytes
}
