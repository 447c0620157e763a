//! A table on disk: manifests, lists and metadata files as a Hadoop catalog keeps them, beside the model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, ManifestFile, ManifestListWriter,
    ManifestWriterBuilder, Struct,
};
use serde_json::{Value, json};

use super::row::Key;
use super::shape::{Column, Shape, specs_json};
use super::state::{By, Delete, File, Item, ItemKey, Of, State};

const DELETE_PATH_ID: i32 = 2_147_483_546;

/// What becomes of a table in one snapshot.
#[derive(Debug, Default)]
pub(super) struct Commit {
    /// New files, with a data sequence number of their own if they are to have one.
    pub(super) files: Vec<(Arc<File>, Option<i64>)>,
    pub(super) deletes: Vec<Arc<Delete>>,
    pub(super) removed: BTreeSet<ItemKey>,
    /// All manifests are written anew, merged by spec and content.
    pub(super) merges_manifests: bool,
    pub(super) operation: &'static str,
}

/// New entries, each with a data sequence number of its own if it is to have one.
type Added = Vec<(Item, Option<i64>)>;

#[derive(Debug, Clone)]
struct Manifest {
    file: ManifestFile,
    items: Vec<Item>,
}

/// A snapshot and its rows.
#[derive(Debug, Clone)]
pub struct ModelSnapshot {
    /// Its id.
    pub id: i64,
    /// Its operation: `append`, `delete`, `overwrite`, or `replace`, which changes no rows.
    pub operation: &'static str,
    state: State,
}

/// A table with its history.
pub struct ModelTable {
    folder: PathBuf,
    pub(super) version: u8,
    pub(super) shape: Shape,
    shapes: Vec<Shape>,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<ModelSnapshot>,
    manifests: Vec<Manifest>,
    listed: Vec<Value>,
    next_row_id: i64,
    written: usize,
    versions: u32,
    is_at_one_time: bool,
    split_bytes: u64,
    io: FileIO,
}

impl ModelTable {
    /// An empty table `db.t` in a Hadoop warehouse.
    pub(super) fn new(warehouse: &Path, version: u8) -> Self {
        let folder = warehouse.join("db/t");
        std::fs::create_dir_all(folder.join("metadata")).expect("make a folder");
        std::fs::create_dir_all(folder.join("data")).expect("make a folder");
        Self {
            folder,
            version,
            shape: Shape::first(),
            shapes: vec![Shape::first()],
            snapshots: Vec::new(),
            manifests: Vec::new(),
            listed: Vec::new(),
            next_row_id: 0,
            written: 0,
            versions: 0,
            is_at_one_time: false,
            // Small tasks and many of them.
            split_bytes: 1_500,
            io: FileIO::new_with_fs(),
        }
    }

    /// The rows of a snapshot, by its place in the history, as lines in the table's present schema, sorted; each with its
    /// id and its row id, where the table has these. Files that got row ids after the snapshot have those that the state
    /// `later` shows.
    pub fn rows(&self, snapshot: usize, later: usize) -> Vec<(String, i64, Option<i64>)> {
        let later: HashMap<ItemKey, Option<i64>> =
            self.snapshots[later].state.0.iter().map(|item| (item.key(), item.first_row_id)).collect();
        let mut state = self.snapshots[snapshot].state.clone();
        for item in &mut state.0 {
            item.first_row_id = item.first_row_id.or(later.get(&item.key()).copied().flatten());
        }
        let rows = state.rows(&self.shape).into_iter();
        let mut rows: Vec<_> = rows.map(|(row, row_id)| (row.line(&self.shape), row.id, row_id)).collect();
        rows.sort();
        rows
    }

    /// Has its tasks be of this size, from the last snapshot on; small ones by default.
    pub fn set_split_bytes(&mut self, bytes: u64) {
        self.split_bytes = bytes;
        if let Some(last) = self.snapshots.last() {
            self.write_metadata(last.id);
        }
    }

    /// From here on all snapshots are committed in the same millisecond.
    pub fn at_one_time(&mut self) {
        self.is_at_one_time = true;
    }

    /// Its format version now.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether the schema was always the same.
    pub fn has_one_schema(&self) -> bool {
        self.shapes.len() == 1
    }

    pub(super) fn state(&self) -> State {
        self.snapshots.last().map(|snapshot| snapshot.state.clone()).unwrap_or_default()
    }

    /// The sequence number that the next snapshot has.
    pub(super) fn next_sequence(&self) -> i64 {
        if self.version == 1 { 0 } else { self.snapshots.len() as i64 + 1 }
    }

    pub(super) fn new_path(&mut self, kind: &str, suffix: &str) -> PathBuf {
        self.written += 1;
        self.folder.join(format!("data/{kind}-{:04}.{suffix}", self.written))
    }

    pub(super) fn evolve(&mut self, shape: Shape) {
        if shape != self.shape {
            self.shapes.push(shape.clone());
            self.shape = shape;
        }
    }

    /// What the state would be after a commit.
    pub(super) fn after(&self, commit: &Commit) -> State {
        let (sequence, snapshot) = (self.next_sequence(), self.next_snapshot());
        let mut items = self.state().0;
        items.retain(|item| !commit.removed.contains(&item.key()));
        items.extend(self.added(commit, sequence, snapshot).map(|(item, _)| item));
        State(items)
    }

    fn next_snapshot(&self) -> i64 {
        101 + self.snapshots.len() as i64
    }

    fn added<'a>(
        &self,
        commit: &'a Commit,
        sequence: i64,
        snapshot: i64,
    ) -> impl Iterator<Item = (Item, Option<i64>)> + 'a {
        let item = move |of: Of, own: Option<i64>| {
            (Item { of, sequence: own.unwrap_or(sequence), snapshot, first_row_id: None }, own)
        };
        let files = commit.files.iter().map(move |(file, own)| item(Of::Data(Arc::clone(file)), *own));
        files.chain(commit.deletes.iter().map(move |delete| item(Of::Delete(Arc::clone(delete)), None)))
    }

    /// Writes a snapshot, and metadata that has it as the current one.
    pub(super) async fn commit(&mut self, commit: Commit) {
        let (sequence, snapshot) = (self.next_sequence(), self.next_snapshot());
        let parent = self.snapshots.last().map(|snapshot| snapshot.id);
        let mut manifests = Vec::new();
        let mut merged: BTreeMap<(bool, i32), Vec<Item>> = BTreeMap::new();
        for manifest in std::mem::take(&mut self.manifests) {
            let (deleted, kept): (Vec<_>, Vec<_>) =
                manifest.items.iter().cloned().partition(|item| commit.removed.contains(&item.key()));
            if commit.merges_manifests {
                kept.into_iter().for_each(|item| merged.entry(item.place()).or_default().push(item));
            } else if deleted.is_empty() {
                manifests.push(manifest);
            } else {
                manifests.push(self.manifest(Vec::new(), kept, deleted, snapshot, sequence).await);
            }
        }
        for (_, items) in merged {
            manifests.push(self.manifest(Vec::new(), items, Vec::new(), snapshot, sequence).await);
        }
        let mut added: BTreeMap<(bool, i32), Added> = BTreeMap::new();
        for (item, own) in self.added(&commit, sequence, snapshot) {
            added.entry(item.place()).or_default().push((item, own));
        }
        for (_, items) in added {
            manifests.push(self.manifest(items, Vec::new(), Vec::new(), snapshot, sequence).await);
        }
        let first_row_id = self.next_row_id;
        self.assign_row_ids(&mut manifests);
        let list = self.folder.join(format!("metadata/list-{snapshot}.avro")).display().to_string();
        let output = self.io.new_output(&list).expect("an output").writer().await.expect("a writer");
        let mut writer = match self.version {
            1 => ManifestListWriter::v1(output, snapshot, parent),
            2 => ManifestListWriter::v2(output, snapshot, parent, sequence),
            _ => ManifestListWriter::v3(output, snapshot, parent, sequence, Some(first_row_id as u64)),
        };
        writer.add_manifests(manifests.iter().map(|manifest| manifest.file.clone())).expect("manifests");
        writer.close().await.expect("close the list");
        let mut listed = json!({
            "snapshot-id": snapshot,
            "sequence-number": sequence,
            "timestamp-ms": 1_700_000_000_000i64 + if self.is_at_one_time { 0 } else { snapshot },
            "manifest-list": list,
            "summary": {"operation": commit.operation},
            "schema-id": self.shape.schema_id,
        });
        if let Some(parent) = parent {
            listed["parent-snapshot-id"] = parent.into();
        }
        if self.version >= 3 {
            listed["first-row-id"] = first_row_id.into();
            listed["added-rows"] = (self.next_row_id - first_row_id).into();
        }
        self.listed.push(listed);
        let items = manifests.iter().flat_map(|manifest| manifest.items.clone()).collect();
        self.manifests = manifests;
        self.snapshots.push(ModelSnapshot { id: snapshot, operation: commit.operation, state: State(items) });
        self.write_metadata(snapshot);
    }

    /// Row ids as the specification gives them to new manifests: to files in them that have none yet, in their order.
    fn assign_row_ids(&mut self, manifests: &mut [Manifest]) {
        for manifest in manifests {
            if self.version < 3 || manifest.file.first_row_id.is_some() || !manifest.items.iter().all(|i| i.place().0) {
                continue;
            }
            manifest.file.first_row_id = Some(self.next_row_id as u64);
            let mut next = self.next_row_id;
            for item in &mut manifest.items {
                let Of::Data(file) = &item.of else { continue };
                if item.first_row_id.is_none() {
                    item.first_row_id = Some(next);
                    next += file.rows.len() as i64;
                }
            }
            let counted = [manifest.file.added_rows_count, manifest.file.existing_rows_count];
            self.next_row_id += counted.iter().map(|rows| rows.unwrap_or(0) as i64).sum::<i64>();
        }
    }

    /// Writes a manifest of one content and spec.
    async fn manifest(
        &mut self,
        added: Added,
        existing: Vec<Item>,
        deleted: Vec<Item>,
        snapshot: i64,
        sequence: i64,
    ) -> Manifest {
        let first = added.iter().map(|(item, _)| item).chain(&existing).chain(&deleted).next().expect("an entry");
        let (is_data, spec) = first.place();
        self.written += 1;
        let path = self.folder.join(format!("metadata/m-{:04}.avro", self.written)).display().to_string();
        let output = self.io.new_output(&path).expect("an output");
        let builder = ManifestWriterBuilder::new(output, Some(snapshot), self.shape.schema(), self.shape.spec(spec));
        let mut writer = match (self.version, is_data) {
            (1, _) => builder.build_v1(),
            (2, true) => builder.build_v2_data(),
            (2, false) => builder.build_v2_deletes(),
            (_, true) => builder.build_v3_data(),
            (_, false) => builder.build_v3_deletes(),
        };
        let mut items = Vec::new();
        for (item, own) in added {
            writer.add_file(self.entry(&item), own.unwrap_or(-1)).expect("an added entry");
            items.push(item);
        }
        for item in existing {
            let entry = self.entry(&item);
            writer
                .add_existing_file(entry, item.snapshot, item.sequence, Some(item.sequence))
                .expect("an existing one");
            items.push(item);
        }
        for item in deleted {
            writer.add_delete_file(self.entry(&item), item.sequence, Some(item.sequence)).expect("a deleted one");
        }
        let mut file = writer.write_manifest_file().await.expect("write a manifest");
        file.sequence_number = sequence;
        file.min_sequence_number = items.iter().map(|item| item.sequence).min().unwrap_or(sequence);
        Manifest { file, items }
    }

    fn entry(&self, item: &Item) -> DataFile {
        let mut builder = DataFileBuilder::default();
        match &item.of {
            Of::Data(file) => {
                builder
                    .content(DataContentType::Data)
                    .file_path(file.path.clone())
                    .file_format(DataFileFormat::Parquet)
                    .partition(partition(file.spec, file.partition))
                    .record_count(file.rows.len() as u64)
                    .file_size_in_bytes(file.size_bytes)
                    .split_offsets(Some(file.split_offsets.clone()))
                    .first_row_id(item.first_row_id);
                if file.has_bounds {
                    let ids: &[i32] = if file.shape.has(Column::V) { &[1, 2, 3] } else { &[1, 2] };
                    let keys = file.rows.iter().map(|row| ids.iter().map(|id| row.key(*id)).collect::<Vec<_>>());
                    add_bounds(&mut builder, &file.shape, ids, &keys.collect::<Vec<_>>());
                }
            }
            Of::Delete(delete) => {
                let records = match &delete.by {
                    By::Positions { rows, .. } => rows.len(),
                    By::Vector { positions, .. } => positions.len(),
                    By::Keys { keys, .. } => keys.len(),
                };
                builder
                    .file_path(delete.path.clone())
                    .file_format(DataFileFormat::Parquet)
                    .partition(partition(delete.spec, delete.partition))
                    .record_count(records as u64)
                    .file_size_in_bytes(delete.size_bytes)
                    .content(DataContentType::PositionDeletes);
                match &delete.by {
                    By::Positions { rows, referenced, has_bounds } => {
                        builder.referenced_data_file(referenced.clone());
                        if let (true, Some(first), Some(last)) = (has_bounds, rows.first(), rows.last()) {
                            builder
                                .lower_bounds(HashMap::from([(DELETE_PATH_ID, Datum::string(&first.0))]))
                                .upper_bounds(HashMap::from([(DELETE_PATH_ID, Datum::string(&last.0))]));
                        }
                    }
                    By::Vector { path, .. } => {
                        builder
                            .file_format(DataFileFormat::Puffin)
                            .referenced_data_file(Some(path.clone()))
                            .content_offset(delete.blob.map(|(offset, _)| offset as i64))
                            .content_size_in_bytes(delete.blob.map(|(_, length)| length as i64));
                    }
                    By::Keys { ids, keys, has_bounds } => {
                        builder.content(DataContentType::EqualityDeletes).equality_ids(Some(ids.clone()));
                        if *has_bounds {
                            add_bounds(&mut builder, &self.shape, ids, keys);
                        }
                    }
                }
            }
        }
        builder.build().expect("an entry")
    }

    fn write_metadata(&mut self, current: i64) {
        let metadata = json!({
            "format-version": self.version,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": self.folder,
            "last-sequence-number": self.snapshots.len(),
            "last-updated-ms": 1_700_000_000_000i64 + current,
            "last-column-id": 12,
            "current-schema-id": self.shape.schema_id,
            "schemas": self.shapes.iter().map(Shape::json).collect::<Vec<_>>(),
            "schema": self.shape.json(),
            "default-spec-id": 0,
            "partition-spec": [],
            "partition-specs": specs_json(),
            "last-partition-id": 1001,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "snapshots": self.listed,
            "current-snapshot-id": current,
            "refs": {"main": {"snapshot-id": current, "type": "branch"}},
            "next-row-id": self.next_row_id,
            "properties": {"read.split.target-size": self.split_bytes.to_string(), "read.split.open-file-cost": "10"},
        });
        self.versions += 1;
        let folder = self.folder.join("metadata");
        let text = metadata.to_string();
        std::fs::write(folder.join(format!("v{}.metadata.json", self.versions)), text).expect("write metadata");
        std::fs::write(folder.join("version-hint.text"), self.versions.to_string()).expect("write the hint");
    }
}

fn partition(spec: i32, value: Option<i32>) -> Struct {
    if spec == 0 { Struct::empty() } else { Struct::from_iter([value.map(Literal::int)]) }
}

fn add_bounds(builder: &mut DataFileBuilder, shape: &Shape, ids: &[i32], keys: &[Vec<Key>]) {
    let (mut lower, mut upper) = (HashMap::new(), HashMap::new());
    let (mut counts, mut nulls) = (HashMap::new(), HashMap::new());
    for (at, id) in ids.iter().enumerate() {
        let numbers: Vec<i64> =
            keys.iter().filter_map(|key| if let Key::Number(number) = &key[at] { *number } else { None }).collect();
        let texts: Vec<&String> =
            keys.iter().filter_map(|key| if let Key::Text(text) = &key[at] { text.as_ref() } else { None }).collect();
        let number = |value: i64| {
            if *id == 1 && shape.id_is_long { Datum::long(value) } else { Datum::int(value as i32) }
        };
        if let (Some(min), Some(max)) = (numbers.iter().min(), numbers.iter().max()) {
            lower.insert(*id, number(*min));
            upper.insert(*id, number(*max));
        }
        if let (Some(min), Some(max)) = (texts.iter().min(), texts.iter().max()) {
            lower.insert(*id, Datum::string(min));
            upper.insert(*id, Datum::string(max));
        }
        counts.insert(*id, keys.len() as u64);
        nulls.insert(*id, (keys.len() - numbers.len() - texts.len()) as u64);
    }
    builder.lower_bounds(lower).upper_bounds(upper).value_counts(counts).null_value_counts(nulls);
}
