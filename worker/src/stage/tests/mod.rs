//! The stager from batches to files on a local disk, and back with the parquet crate's own reader.

mod files;
mod metrics;
mod types;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataFile, NestedField, PrimitiveType, Schema, SchemaRef, StructType, Type};
use iceferry_common::model::{
    Attempt, EpochContext, EpochId, MetricsMode, ParquetSettings, RunId, SourceContext, StagedFile, TargetContext,
    TargetMode, TaskId,
};
use iceferry_common::storage::{Storage, StorageProperties};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use tokio::runtime::Runtime;

use super::{StageError, StageOptions, Stager};
use crate::{Change, ChangeBatch, Columns};

/// A folder, a runtime for uploads, and the context of an epoch.
struct Bench {
    runtime: Runtime,
    folder: tempfile::TempDir,
    context: EpochContext,
    options: StageOptions,
}

impl Bench {
    /// Batches in `read_schema`, a target of `write_schema` that is keyed by the fields `key`.
    fn new(read_schema: Schema, write_schema: Schema, key: &[i32]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let read_schema = Arc::new(read_schema);
        let context = EpochContext {
            job: "orders".parse().unwrap(),
            run: RunId("run".to_owned()),
            epoch: EpochId(3),
            changelog: None,
            source: SourceContext {
                table: "sales.orders".to_owned(),
                equality_schema: Arc::clone(&read_schema),
                read_schema,
                name_mapping: None,
                filter: None,
                storage: StorageProperties::default(),
            },
            target: TargetContext {
                table: "lake.orders".to_owned(),
                write_schema: Arc::new(write_schema),
                key: key.to_vec(),
                mode: TargetMode::MergeOnRead,
                data_location: format!("{}/data", folder.path().display()),
                format_version: 2,
                last_column_id: 0,
                name_mapping: None,
                parquet: settings(),
                target_file_bytes: 512 << 20,
                storage: StorageProperties::default(),
            },
        };
        let options = StageOptions {
            row_group_memory_bytes: 64 << 20,
            unique_keys: true,
            key_memory_bytes: 64 << 20,
            first_file: 0,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, folder, context, options }
    }

    /// Rows of `id long required, v string`, keyed by id; other field ids in the source.
    fn simple() -> Self {
        let schema = |first: i32| {
            let fields = vec![
                NestedField::required(first, "id", Type::Primitive(PrimitiveType::Long)).into(),
                NestedField::optional(first + 1, "v", Type::Primitive(PrimitiveType::String)).into(),
            ];
            Schema::builder().with_schema_id(4).with_fields(fields).build().unwrap()
        };
        Self::new(schema(11), schema(1), &[1])
    }

    fn stager(&self) -> Stager {
        self.try_stager().unwrap()
    }

    fn try_stager(&self) -> Result<Stager, StageError> {
        Stager::new(
            Arc::new(self.context.clone()),
            TaskId(7),
            Attempt(1),
            Storage::new(StorageProperties::default()),
            self.runtime.handle().clone(),
            self.options,
        )
    }

    /// Stages batches to the end.
    fn stage(&self, batches: &[ChangeBatch]) -> Result<Vec<StagedFile>, StageError> {
        let mut stager = self.stager();
        for batch in batches {
            if let Err(error) = stager.write(batch) {
                assert_eq!(stager.abort(), Vec::<String>::new());
                assert_eq!(self.files(), Vec::<String>::new(), "a failed attempt leaves nothing");
                return Err(error);
            }
        }
        stager.finish()
    }

    /// A batch of the read schema.
    fn batch(&self, change: Change, columns: Vec<ArrayRef>) -> ChangeBatch {
        let schema = Arc::new(schema_to_arrow_schema(&self.context.source.read_schema).unwrap());
        ChangeBatch { change, columns: Columns::All, rows: RecordBatch::try_new(schema, columns).unwrap() }
    }

    /// A batch for [`Bench::simple`].
    fn rows(&self, change: Change, rows: &[(i64, Option<&str>)]) -> ChangeBatch {
        let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let values = StringArray::from_iter(rows.iter().map(|row| row.1));
        self.batch(change, vec![Arc::new(ids), Arc::new(values)])
    }

    /// Names of all files under the folder.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, names: &mut Vec<String>) {
            // Storage takes a folder away with its last file.
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, names) } else { names.push(path.display().to_string()) }
            }
        }
        let mut names = Vec::new();
        walk(self.folder.path(), &mut names);
        names.sort();
        names
    }

    /// The manifest's data file of a staged file.
    fn data_file(&self, file: &StagedFile) -> DataFile {
        described(file, &self.context.target.write_schema)
    }
}

fn described(file: &StagedFile, schema: &SchemaRef) -> DataFile {
    let data_file = iceferry_common::entry::decode(&file.data_file, schema).unwrap();
    assert_eq!(data_file.file_path(), file.location);
    assert_eq!(data_file.record_count(), file.record_count);
    assert_eq!(data_file.file_size_in_bytes(), file.size_bytes);
    assert_eq!(std::fs::metadata(&file.location).unwrap().len(), file.size_bytes);
    assert_eq!(data_file.sort_order_id(), Some(0));
    data_file
}

fn settings() -> ParquetSettings {
    ParquetSettings {
        compression_codec: "zstd".to_owned(),
        compression_level: None,
        row_group_bytes: 128 << 20,
        page_bytes: 1 << 20,
        dictionary_bytes: 2 << 20,
        metrics_default: MetricsMode::Truncate(16),
        metrics_columns: HashMap::new(),
    }
}

/// Footer and rows of a file; each row is its columns printed.
fn read_back(file: &StagedFile) -> (Arc<ParquetMetaData>, Vec<Vec<String>>) {
    let bytes = Bytes::from(std::fs::read(&file.location).unwrap());
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let footer = Arc::clone(builder.metadata());
    let rows = builder.build().unwrap().flat_map(|batch| printed(batch.unwrap().columns())).collect();
    (footer, rows)
}

fn printed(columns: &[ArrayRef]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("null");
    let print = |column: &ArrayRef, row| {
        ArrayFormatter::try_new(column.as_ref(), &options).unwrap().value(row).try_to_string().unwrap()
    };
    // Readers name the zone UTC, which Arrow prints only with a table of time zones.
    let utc = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
                Arc::new(column.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_utc())
            }
            DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => {
                Arc::new(column.as_primitive::<TimestampNanosecondType>().clone().with_timezone_utc())
            }
            _ => Arc::clone(column),
        }
    };
    let columns: Vec<ArrayRef> = columns.iter().map(utc).collect();
    let length = columns.first().map_or(0, |column| column.len());
    (0..length).map(|row| columns.iter().map(|column| print(column, row)).collect()).collect()
}
