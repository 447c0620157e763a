//! The reader against files that the Parquet crate wrote, in temporary folders.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod avro;
mod damage;
mod deletes;
mod evolution;
mod files;
mod filter;
mod many_deletes;
mod metadata;
mod nested;
mod passed;
mod property;
mod types;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Schema, Type};
use iceferry_common::filter::{Filter, TableFilter};
use iceferry_common::model::{
    DataFile, DeleteFile, DeleteKind, EpochContext, EpochId, FileDifference, FileFormat, MetricsMode, ParquetSettings,
    Resolution, RunId, ScanTask, Side, SourceContext, Split, TargetContext, TargetMode, TaskId, Work,
};
use iceferry_common::storage::{Storage, StorageProperties};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use roaring::RoaringTreemap;
use tokio::runtime::Runtime;

use super::{ReadError, ReadOptions, TaskReader};
use crate::{Change, Columns};

/// A folder with files, and a runtime to read them on.
struct Lab {
    folder: tempfile::TempDir,
    runtime: Runtime,
}

/// A row that came out: change, columns and values as text.
type Row = (Change, Columns, String);

impl Lab {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), runtime }
    }

    fn location(&self, name: &str) -> String {
        format!("file://{}/{name}", self.folder.path().display())
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> u64 {
        std::fs::write(self.folder.path().join(name), bytes.as_ref()).unwrap();
        bytes.as_ref().len() as u64
    }

    fn data_file(&self, name: &str, bytes: &[u8], record_count: u64) -> DataFile {
        let size_bytes = self.put(name, bytes);
        let location = self.location(name);
        DataFile {
            location,
            format: FileFormat::Parquet,
            size_bytes,
            record_count,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 0,
            partition: Vec::new(),
        }
    }

    /// A data file of one batch.
    fn data(&self, name: &str, batch: &RecordBatch) -> DataFile {
        self.data_file(name, &parquet(batch, WriterProperties::builder().build()), batch.num_rows() as u64)
    }

    fn delete_file(&self, name: &str, batch: &RecordBatch, kind: DeleteKind) -> DeleteFile {
        let size_bytes = self.put(name, parquet(batch, WriterProperties::builder().build()));
        let (location, record_count) = (self.location(name), batch.num_rows() as u64);
        DeleteFile { location, format: FileFormat::Parquet, size_bytes, record_count, kind }
    }

    /// A position delete file.
    fn positions(&self, name: &str, rows: &[(&str, i64)]) -> DeleteFile {
        let paths: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(path, _)| *path)));
        let positions: ArrayRef =
            Arc::new(arrow::array::Int64Array::from_iter_values(rows.iter().map(|(_, pos)| *pos)));
        let batch = batch(&[(2_147_483_546, "file_path", paths), (2_147_483_545, "pos", positions)]);
        self.delete_file(name, &batch, DeleteKind::Position)
    }

    /// An equality delete file on integer columns.
    fn equality(&self, name: &str, columns: &[(i32, &str, ArrayRef)]) -> DeleteFile {
        let field_ids = columns.iter().map(|(id, ..)| *id).collect();
        self.delete_file(name, &batch(columns), DeleteKind::Equality { field_ids })
    }

    /// A deletion vector in a file with other bytes around it.
    fn vector(&self, name: &str, positions: &[u64]) -> DeleteFile {
        let positions: RoaringTreemap = positions.iter().copied().collect();
        let mut content = vec![0xD1, 0xD3, 0x39, 0x64];
        positions.serialize_into(&mut content).unwrap();
        let mut bytes = b"PFA1".to_vec();
        bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&content);
        bytes.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
        let length = bytes.len() as u64 - 4;
        bytes.extend_from_slice(b"footer");
        let size_bytes = self.put(name, bytes);
        let kind = DeleteKind::Vector { offset: 4, length };
        let (location, record_count) = (self.location(name), positions.len());
        DeleteFile { location, format: FileFormat::Puffin, size_bytes, record_count, kind }
    }

    fn read(&self, context: &EpochContext, task: &ScanTask) -> Result<Vec<Row>, ReadError> {
        self.read_with(context, task, ReadOptions::default())
    }

    fn read_with(&self, context: &EpochContext, task: &ScanTask, options: ReadOptions) -> Result<Vec<Row>, ReadError> {
        let storage = Storage::new(StorageProperties::default());
        let mut reader = TaskReader::open(context, task, storage, self.runtime.handle().clone(), options)?;
        let mut rows = Vec::new();
        for batch in reader.by_ref() {
            let batch = batch?;
            assert!(batch.rows.num_rows() > 0, "an empty batch came out");
            rows.extend(lines(&batch.rows).into_iter().map(|line| (batch.change, batch.columns, line)));
        }
        assert_eq!(reader.rows_read(), rows.len() as u64);
        Ok(rows)
    }

    /// The rows of a data file without deletes, in a read schema.
    fn rows_of(&self, schema: &Schema, file: DataFile) -> Result<Vec<String>, ReadError> {
        let task = task(vec![added(file)], Vec::new());
        Ok(self.read(&context(schema.clone()), &task)?.into_iter().map(|(.., row)| row).collect())
    }
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
    let line = |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

fn parquet(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn field(id: i32, name: &str, data_type: DataType, nullable: bool) -> Field {
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Field::new(name, data_type, nullable).with_metadata([id].into())
}

fn batch(columns: &[(i32, &str, ArrayRef)]) -> RecordBatch {
    let nullable = |array: &ArrayRef| array.null_count() > 0;
    let fields = columns.iter().map(|(id, name, array)| field(*id, name, array.data_type().clone(), nullable(array)));
    let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.iter().map(|(.., array)| Arc::clone(array)).collect()).unwrap()
}

fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// The cases' default table: id required, v optional.
fn id_v_schema() -> Schema {
    schema([required(1, "id", PrimitiveType::Int), optional(2, "v", PrimitiveType::String)])
}

fn id_v(rows: &[(i32, &str)]) -> RecordBatch {
    batch(&[(1, "id", ints(rows.iter().map(|row| row.0))), (2, "v", texts(rows.iter().map(|row| row.1)))])
}

fn schema(fields: impl IntoIterator<Item = NestedFieldRef>) -> Schema {
    Schema::builder().with_fields(fields).build().unwrap()
}

fn required(id: i32, name: &str, of: PrimitiveType) -> NestedFieldRef {
    NestedField::required(id, name, Type::Primitive(of)).into()
}

fn optional(id: i32, name: &str, of: PrimitiveType) -> NestedFieldRef {
    NestedField::optional(id, name, Type::Primitive(of)).into()
}

/// A context that reads and writes one schema, keyed on nothing.
fn context(schema: Schema) -> EpochContext {
    let schema = Arc::new(schema);
    EpochContext {
        job: "job".parse().unwrap(),
        run: RunId("run".to_owned()),
        epoch: EpochId(0),
        changelog: None,
        source: SourceContext {
            table: "db.source".to_owned(),
            read_schema: Arc::clone(&schema),
            equality_schema: Arc::clone(&schema),
            name_mapping: None,
            filter: None,
            storage: StorageProperties::default(),
        },
        target: TargetContext {
            table: "db.target".to_owned(),
            write_schema: schema,
            key: Vec::new(),
            mode: TargetMode::MergeOnRead,
            data_location: "/target/data".to_owned(),
            format_version: 2,
            last_column_id: 0,
            name_mapping: None,
            parquet: ParquetSettings {
                compression_codec: "zstd".to_owned(),
                compression_level: None,
                row_group_bytes: 1,
                page_bytes: 1,
                dictionary_bytes: 1,
                metrics_default: MetricsMode::Full,
                metrics_columns: [].into(),
            },
            target_file_bytes: 1,
            storage: StorageProperties::default(),
        },
    }
}

/// A filter on the columns of a context's read schema.
fn table_filter(context: &EpochContext, text: &str) -> TableFilter {
    TableFilter::new(Filter::parse(text).unwrap(), &context.source.read_schema).unwrap()
}

fn keyed(schema: Schema, key: &[i32]) -> EpochContext {
    let mut context = context(schema);
    context.target.key = key.to_vec();
    context
}

fn task(differences: Vec<FileDifference>, deletes: Vec<DeleteFile>) -> ScanTask {
    ScanTask { id: TaskId(0), differences, deletes, resolution: Resolution::Keep, work: Work::Stage }
}

fn difference(file: DataFile, before: Option<&[u32]>, after: Option<&[u32]>) -> FileDifference {
    let side = |side: Option<&[u32]>| side.map_or(Side::Absent, |deletes| Side::Present(deletes.to_vec()));
    FileDifference { file, split: None, before: side(before), after: side(after), commit: None }
}

fn added(file: DataFile) -> FileDifference {
    difference(file, None, Some(&[]))
}

fn split(mut difference: FileDifference, start: u64, end: u64) -> FileDifference {
    difference.split = Some(Split { start, end });
    difference
}

fn inserts(rows: &[&str]) -> Vec<Row> {
    rows.iter().map(|row| (Change::Insert, Columns::All, (*row).to_owned())).collect()
}

fn deletes(rows: &[&str]) -> Vec<Row> {
    rows.iter().map(|row| (Change::Delete, Columns::All, (*row).to_owned())).collect()
}

fn both(went: &[&str], came: &[&str]) -> Vec<Row> {
    [deletes(went), inserts(came)].concat()
}

#[test]
fn the_batches_have_the_read_schema_as_arrow_has_it() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a")]));
    let context = keyed(id_v_schema(), &[2]);
    let storage = Storage::new(StorageProperties::default());
    let task = task(vec![difference(file.clone(), Some(&[]), None), added(file)], Vec::new());
    let handle = lab.runtime.handle().clone();
    let batches: Vec<_> = TaskReader::open(&context, &task, storage, handle, ReadOptions::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let schema = iceberg::arrow::schema_to_arrow_schema(&id_v_schema()).unwrap();
    assert_eq!(*batches[0].rows.schema(), schema.project(&[1]).unwrap());
    assert_eq!(batches[0].columns, Columns::Key);
    assert_eq!(*batches[1].rows.schema(), schema);
    assert_eq!(batches[1].columns, Columns::All);
}

#[test]
fn bytes_are_counted_and_a_small_file_is_fetched_once() {
    let lab = Lab::new();
    let bytes = parquet(&id_v(&[(1, "a")]), WriterProperties::builder().build());
    let file = lab.data_file("f.parquet", &Bytes::from(bytes), 1);
    let size = file.size_bytes;
    let task = task(vec![added(file)], Vec::new());
    let storage = Storage::new(StorageProperties::default());
    let handle = lab.runtime.handle().clone();
    let mut reader = TaskReader::open(&context(id_v_schema()), &task, storage, handle, ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 1);
    assert_eq!(reader.bytes_fetched(), size);
}

#[test]
fn a_column_whose_writer_gave_its_dictionary_up_is_told() {
    let lab = Lab::new();
    let rows: Vec<(i32, String)> = (0..500).map(|row| (row % 3, format!("value {row}"))).collect();
    let rows: Vec<(i32, &str)> = rows.iter().map(|(id, value)| (*id, value.as_str())).collect();
    let with = |properties: parquet::file::properties::WriterPropertiesBuilder| {
        let bytes = parquet(&id_v(&rows), properties.build());
        let task = task(vec![added(lab.data_file("f.parquet", &Bytes::from(bytes), 500))], Vec::new());
        let storage = Storage::new(StorageProperties::default());
        let handle = lab.runtime.handle().clone();
        let options = ReadOptions::default();
        let mut reader = TaskReader::open(&context(id_v_schema()), &task, storage, handle, options).unwrap();
        assert_eq!(reader.columns_without_dictionary(), [0; 0], "nothing is known before the first batch");
        reader.next().unwrap().unwrap();
        reader.columns_without_dictionary()
    };
    let builder = || WriterProperties::builder().set_write_batch_size(50);
    assert_eq!(with(builder().set_dictionary_page_size_limit(512)), [1], "its values do not fit");
    assert_eq!(with(builder()), [0; 0]);
    assert_eq!(with(builder().set_dictionary_enabled(false)), [0; 0], "a writer that never tries says nothing");
}
