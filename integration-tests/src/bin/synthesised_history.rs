//! Writes the metadata of a table that was never there: its data files exist in manifests alone. What `scripts/bench` plans
//! on, since a planner opens no data file.
//!
//! usage: synthesised_history WAREHOUSE FILES MANIFESTS SNAPSHOTS
//!
//! The table `db.t` of a Hadoop warehouse begins with one snapshot of FILES data files in MANIFESTS manifests. Each of
//! SNAPSHOTS more adds two files, and every tenth of them removes one old file as well, which rewrites its manifest.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, ManifestFile, ManifestListWriter,
    ManifestWriterBuilder, PartitionSpec, Schema, SchemaRef, Struct,
};
use serde_json::{Value, json};

type Failure = Box<dyn Error + Send + Sync>;

/// Rows of each file.
const ROWS: u64 = 1_000_000;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [warehouse, files, manifests, snapshots] = args.as_slice() else {
        return Err("usage: synthesised_history WAREHOUSE FILES MANIFESTS SNAPSHOTS".into());
    };
    let mut table = Table::new(Path::new(warehouse))?;
    table.begin(files.parse()?, manifests.parse()?).await?;
    for number in 0..snapshots.parse()? {
        table.next(number).await?;
    }
    table.write_metadata()
}

/// A manifest and the numbers of the files that it has live.
struct Manifest {
    file: ManifestFile,
    numbers: Vec<u64>,
    snapshot: i64,
}

struct Table {
    folder: PathBuf,
    schema: SchemaRef,
    io: FileIO,
    manifests: Vec<Manifest>,
    snapshots: Vec<Value>,
    files: u64,
    written: u64,
}

fn schema_json() -> Value {
    json!({"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "day", "required": false, "type": "date"},
        {"id": 3, "name": "note", "required": false, "type": "string"},
    ]})
}

impl Table {
    fn new(warehouse: &Path) -> Result<Self, Failure> {
        let folder = warehouse.join("db/t");
        std::fs::create_dir_all(folder.join("metadata"))?;
        let schema: Schema = serde_json::from_value(schema_json())?;
        Ok(Self {
            folder,
            schema: Arc::new(schema),
            io: FileIO::new_with_fs(),
            manifests: Vec::new(),
            snapshots: Vec::new(),
            files: 0,
            written: 0,
        })
    }

    async fn begin(&mut self, files: u64, manifests: u64) -> Result<(), Failure> {
        for number in 0..manifests {
            let numbers: Vec<u64> = (number * files / manifests..(number + 1) * files / manifests).collect();
            let manifest = self.manifest(1, &numbers, &[], &[]).await?;
            self.manifests.push(manifest);
        }
        self.files = files;
        self.snapshot(1, "append").await
    }

    async fn next(&mut self, number: i64) -> Result<(), Failure> {
        let snapshot = number + 2;
        let mut operation = "append";
        if number % 10 == 9 {
            operation = "overwrite";
            let at = (number as usize * 7) % self.manifests.len();
            let mut old = self.manifests.swap_remove(at);
            let gone: Vec<u64> = old.numbers.pop().into_iter().collect();
            let (kept, gone) = ([(old.snapshot, &old.numbers)], [(old.snapshot, &gone)]);
            let rewritten = self.manifest(snapshot, &[], &kept, &gone).await?;
            self.manifests.push(Manifest { snapshot: old.snapshot, ..rewritten });
        }
        let added = [self.files, self.files + 1];
        self.files += 2;
        let manifest = self.manifest(snapshot, &added, &[], &[]).await?;
        self.manifests.push(manifest);
        self.snapshot(snapshot, operation).await
    }

    fn data_file(&self, number: u64) -> Result<DataFile, Failure> {
        let (low, high) = (number as i64 * 1000, number as i64 * 1000 + 999);
        let day = (number / 100) as i32;
        Ok(DataFileBuilder::default()
            .content(DataContentType::Data)
            .file_path(format!(
                "{}/data/{number:08}-8f3c1f9e-6a5e-4d43-9b1a-0d6f9a0e4c11.parquet",
                self.folder.display()
            ))
            .file_format(DataFileFormat::Parquet)
            .partition(Struct::empty())
            .record_count(ROWS)
            .file_size_in_bytes(128 << 20)
            .column_sizes(HashMap::from([(1, 4 << 20), (2, 1 << 20), (3, 100 << 20)]))
            .value_counts(HashMap::from([(1, ROWS), (2, ROWS), (3, ROWS)]))
            .null_value_counts(HashMap::from([(1, 0), (2, 0), (3, 7)]))
            .lower_bounds(HashMap::from([
                (1, Datum::long(low)),
                (2, Datum::date(day)),
                (3, Datum::string("aaaaaaaaaaaaaaaa")),
            ]))
            .upper_bounds(HashMap::from([
                (1, Datum::long(high)),
                (2, Datum::date(day + 1)),
                (3, Datum::string("zzzzzzzzzzzzzzzz")),
            ]))
            .split_offsets(Some(vec![4, 4 + (64 << 20)]))
            .build()?)
    }

    /// Writes a manifest: files added now, files that earlier snapshots added, and files that go.
    async fn manifest(
        &mut self,
        snapshot: i64,
        added: &[u64],
        existing: &[(i64, &Vec<u64>)],
        deleted: &[(i64, &Vec<u64>)],
    ) -> Result<Manifest, Failure> {
        self.written += 1;
        let path = self.folder.join(format!("metadata/m-{:06}.avro", self.written)).display().to_string();
        let spec = PartitionSpec::unpartition_spec();
        let builder =
            ManifestWriterBuilder::new(self.io.new_output(&path)?, Some(snapshot), Arc::clone(&self.schema), spec);
        let mut writer = builder.build_v2_data();
        let mut numbers = added.to_vec();
        for number in added {
            writer.add_file(self.data_file(*number)?, -1)?;
        }
        for (of, files) in existing {
            for number in files.iter() {
                writer.add_existing_file(self.data_file(*number)?, *of, *of, Some(*of))?;
            }
            numbers.extend_from_slice(files);
        }
        for (of, files) in deleted {
            for number in files.iter() {
                writer.add_delete_file(self.data_file(*number)?, *of, Some(*of))?;
            }
        }
        let mut file = writer.write_manifest_file().await?;
        file.sequence_number = snapshot;
        file.min_sequence_number = existing.iter().map(|(of, _)| *of).min().unwrap_or(snapshot);
        Ok(Manifest { file, numbers, snapshot })
    }

    async fn snapshot(&mut self, snapshot: i64, operation: &str) -> Result<(), Failure> {
        let list = self.folder.join(format!("metadata/list-{snapshot:06}.avro")).display().to_string();
        let output = self.io.new_output(&list)?.writer().await?;
        let parent = (snapshot > 1).then_some(snapshot - 1);
        let mut writer = ManifestListWriter::v2(output, snapshot, parent, snapshot);
        writer.add_manifests(self.manifests.iter().map(|manifest| manifest.file.clone()))?;
        writer.close().await?;
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
            "format-version": 2, "table-uuid": "5f3a9a9e-0c8b-4a0a-8f6e-0f1f5f6b7c2d", "location": self.folder,
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
