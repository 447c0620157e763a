//! Writes a table and upserts into it as a streaming writer does: each commit has new rows and an equality delete file with
//! their keys, and looks at no old file. What `scripts/bench` follows, epoch by epoch.
//!
//! usage: upsert_history WAREHOUSE ROWS FILES COMMITS KEYS
//!
//! The table `db.t` of a Hadoop warehouse begins with one snapshot of ROWS rows in FILES data files, whose keys lie across
//! one another, so that no bounds tell them apart. Each of COMMITS more upserts KEYS keys, most of them old ones.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, ManifestFile, ManifestListWriter,
    ManifestWriterBuilder, PartitionSpec, Schema, SchemaRef, Struct,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

type Failure = Box<dyn Error + Send + Sync>;

/// Rows that are encoded at once.
const BATCH_ROWS: usize = 8192;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [warehouse, rows, files, commits, keys] = args.as_slice() else {
        return Err("usage: upsert_history WAREHOUSE ROWS FILES COMMITS KEYS".into());
    };
    let (rows, files, keys): (i64, i64, i64) = (rows.parse()?, files.parse()?, keys.parse()?);
    let mut table = Table::new(Path::new(warehouse))?;
    let mut added = Vec::new();
    for number in 0..files {
        let ids: Vec<i64> = (number..rows).step_by(files as usize).collect();
        added.push(table.data_file(&format!("base-{number:05}"), &ids, 0)?);
    }
    table.commit(added, Vec::new()).await?;
    for commit in 1..=commits.parse()? {
        // A walk that comes by all keys; one key in a hundred is new.
        let id = |number: i64| match number % 100 {
            0 => rows + commit * keys + number,
            _ => (commit * 7_919_993 + number * 104_729) % rows,
        };
        let mut ids: Vec<i64> = (0..keys).map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        let data = table.data_file(&format!("upsert-{commit:05}"), &ids, commit)?;
        let deletes = table.delete_file(&format!("upsert-{commit:05}-deletes"), &ids)?;
        table.commit(vec![data], vec![deletes]).await?;
    }
    table.write_metadata()
}

struct Table {
    folder: PathBuf,
    schema: SchemaRef,
    io: FileIO,
    manifests: Vec<ManifestFile>,
    snapshots: Vec<Value>,
}

fn schema_json() -> Value {
    json!({"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "amount", "required": false, "type": "double"},
        {"id": 3, "name": "note", "required": false, "type": "string"},
    ]})
}

impl Table {
    fn new(warehouse: &Path) -> Result<Self, Failure> {
        let folder = warehouse.join("db/t");
        std::fs::create_dir_all(folder.join("metadata"))?;
        std::fs::create_dir_all(folder.join("data"))?;
        let schema: Schema = serde_json::from_value(schema_json())?;
        let (manifests, snapshots) = (Vec::new(), Vec::new());
        Ok(Self { folder, schema: Arc::new(schema), io: FileIO::new_with_fs(), manifests, snapshots })
    }

    fn data_file(&self, name: &str, ids: &[i64], version: i64) -> Result<DataFile, Failure> {
        let columns = |ids: &[i64]| -> Vec<ArrayRef> {
            vec![
                Arc::new(Int64Array::from(ids.to_vec())),
                Arc::new(Float64Array::from_iter_values(ids.iter().map(|id| *id as f64 * 0.25 + version as f64))),
                Arc::new(StringArray::from_iter_values(
                    ids.iter().map(|id| format!("{version} of {:x}", id * 2_654_435_761)),
                )),
            ]
        };
        self.file(name, &self.schema, ids, columns, DataContentType::Data)
    }

    fn delete_file(&self, name: &str, ids: &[i64]) -> Result<DataFile, Failure> {
        let key = self.schema.as_struct().fields().iter().take(1).cloned();
        let schema = Schema::builder().with_fields(key).build()?;
        let columns = |ids: &[i64]| -> Vec<ArrayRef> { vec![Arc::new(Int64Array::from(ids.to_vec()))] };
        self.file(name, &schema, ids, columns, DataContentType::EqualityDeletes)
    }

    fn file(
        &self,
        name: &str,
        schema: &Schema,
        ids: &[i64],
        columns: impl Fn(&[i64]) -> Vec<ArrayRef>,
        content: DataContentType,
    ) -> Result<DataFile, Failure> {
        let path = self.folder.join(format!("data/{name}.parquet"));
        let arrow = Arc::new(schema_to_arrow_schema(schema)?);
        let compression = Compression::ZSTD(ZstdLevel::try_new(3)?);
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut writer = ArrowWriter::try_new(File::create(&path)?, Arc::clone(&arrow), Some(properties))?;
        for ids in ids.chunks(BATCH_ROWS) {
            writer.write(&RecordBatch::try_new(Arc::clone(&arrow), columns(ids))?)?;
        }
        writer.close()?;
        let (low, high) = (ids.first().copied().unwrap_or_default(), ids.last().copied().unwrap_or_default());
        let mut file = DataFileBuilder::default();
        file.content(content)
            .file_path(path.display().to_string())
            .file_format(DataFileFormat::Parquet)
            .partition(Struct::empty())
            .record_count(ids.len() as u64)
            .file_size_in_bytes(std::fs::metadata(&path)?.len())
            .lower_bounds([(1, Datum::long(low))].into())
            .upper_bounds([(1, Datum::long(high))].into());
        if content == DataContentType::EqualityDeletes {
            file.equality_ids(Some(vec![1]));
        }
        Ok(file.build()?)
    }

    async fn commit(&mut self, data: Vec<DataFile>, deletes: Vec<DataFile>) -> Result<(), Failure> {
        let snapshot = self.snapshots.len() as i64 + 1;
        for (files, content) in [(data, DataContentType::Data), (deletes, DataContentType::EqualityDeletes)] {
            if files.is_empty() {
                continue;
            }
            let path = self.folder.join(format!("metadata/m-{snapshot:06}-{}.avro", content as i32));
            let output = self.io.new_output(path.display().to_string())?;
            let spec = PartitionSpec::unpartition_spec();
            let builder = ManifestWriterBuilder::new(output, Some(snapshot), Arc::clone(&self.schema), spec);
            let mut writer = match content {
                DataContentType::Data => builder.build_v2_data(),
                _ => builder.build_v2_deletes(),
            };
            for file in files {
                writer.add_file(file, -1)?;
            }
            let mut manifest = writer.write_manifest_file().await?;
            (manifest.sequence_number, manifest.min_sequence_number) = (snapshot, snapshot);
            self.manifests.push(manifest);
        }
        let list = self.folder.join(format!("metadata/list-{snapshot:06}.avro")).display().to_string();
        let output = self.io.new_output(&list)?.writer().await?;
        let parent = (snapshot > 1).then_some(snapshot - 1);
        let mut writer = ManifestListWriter::v2(output, snapshot, parent, snapshot);
        writer.add_manifests(self.manifests.iter().cloned())?;
        writer.close().await?;
        let operation = if snapshot == 1 { "append" } else { "overwrite" };
        let mut listed = json!({
            "snapshot-id": snapshot, "sequence-number": snapshot, "timestamp-ms": 1_700_000_000_000i64 + snapshot,
            "manifest-list": list, "summary": {"operation": operation}, "schema-id": 0,
        });
        if let Some(parent) = parent {
            listed["parent-snapshot-id"] = parent.into();
        }
        self.snapshots.push(listed);
        Ok(())
    }

    fn write_metadata(&self) -> Result<(), Failure> {
        let current = self.snapshots.len();
        let metadata = json!({
            "format-version": 2, "table-uuid": "0c1d9c43-6d55-4f0c-9d0e-0a6d3a5f6b11", "location": self.folder,
            "last-sequence-number": current, "last-updated-ms": 1_700_000_000_000i64 + current as i64,
            "last-column-id": 3, "current-schema-id": 0, "schemas": [schema_json()], "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "snapshots": self.snapshots, "current-snapshot-id": current,
            "refs": {"main": {"snapshot-id": current, "type": "branch"}}, "properties": {},
        });
        let folder = self.folder.join("metadata");
        std::fs::write(folder.join("v1.metadata.json"), metadata.to_string())?;
        std::fs::write(folder.join("version-hint.text"), "1")?;
        Ok(())
    }
}
