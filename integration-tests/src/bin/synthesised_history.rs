//! Writes the metadata of a table that was never there: its data files exist in manifests alone. What `scripts/bench` plans
//! on, since a planner opens no data file.
//!
//! usage: synthesised_history WAREHOUSE FILES MANIFESTS SNAPSHOTS [null|deflate]
//!
//! The table `db.t` of a Hadoop warehouse begins with one snapshot of FILES data files in MANIFESTS manifests. Each of
//! SNAPSHOTS more adds two files, and every tenth of them removes one old file as well, which rewrites its manifest.
//! Manifests are compressed when it is told so; Iceberg's own writers do that unless it is told otherwise.

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
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
    let (codec, args) = match args.as_slice() {
        [args @ .., last] if args.len() == 4 => (last.as_str(), args),
        args => ("null", args),
    };
    let ([warehouse, files, manifests, snapshots], "null" | "deflate") = (args, codec) else {
        return Err("usage: synthesised_history WAREHOUSE FILES MANIFESTS SNAPSHOTS [null|deflate]".into());
    };
    let mut table = Table::new(Path::new(warehouse), codec == "deflate")?;
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
    is_compressed: bool,
}

fn schema_json() -> Value {
    json!({"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "day", "required": false, "type": "date"},
        {"id": 3, "name": "note", "required": false, "type": "string"},
    ]})
}

impl Table {
    fn new(warehouse: &Path, is_compressed: bool) -> Result<Self, Failure> {
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
            is_compressed,
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
        if self.is_compressed {
            let compressed = deflated(&std::fs::read(&path)?).ok_or("a manifest was written that is no Avro file")?;
            file.manifest_length = compressed.len() as i64;
            std::fs::write(&path, compressed)?;
        }
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

/// An Avro file whose blocks are not compressed, with its blocks compressed.
fn deflated(file: &[u8]) -> Option<Vec<u8>> {
    const MAGIC: &[u8] = b"Obj\x01";
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut entries = Vec::new();
    loop {
        let count = take_long(&mut rest)?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            entries.push((take_bytes(&mut rest)?, take_bytes(&mut rest)?));
        }
    }
    entries.retain(|(key, _)| *key != b"avro.codec");
    entries.push((b"avro.codec", b"deflate"));
    let (marker, mut rest) = rest.split_at_checked(16)?;
    let mut to = MAGIC.to_vec();
    put_long(&mut to, entries.len());
    for part in entries.iter().flat_map(|(key, value)| [key, value]) {
        put_long(&mut to, part.len());
        to.extend_from_slice(part);
    }
    to.push(0);
    to.extend_from_slice(marker);
    while !rest.is_empty() {
        put_long(&mut to, usize::try_from(take_long(&mut rest)?).ok()?);
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(take_bytes(&mut rest)?).ok()?;
        let block = encoder.finish().ok()?;
        put_long(&mut to, block.len());
        to.extend(block);
        to.extend_from_slice(marker);
        rest = rest.strip_prefix(marker)?;
    }
    Some(to)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_long(rest)?).ok()?;
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// Avro's long, where it is not negative.
fn take_long(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (value & 1 == 0).then_some((value >> 1) as i64);
        }
    }
    None
}

fn put_long(to: &mut Vec<u8>, value: usize) {
    let mut left = (value as u64) << 1;
    while left >= 0x80 {
        to.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}
