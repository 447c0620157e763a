//! A slow, plain model of a table: files are lists of rows, deletes are lists of positions and keys, and a state is
//! what the specification says, word by word. Its manifests are written for real; a dumb interpreter reads scan tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, FormatVersion, Literal, ManifestFile,
    ManifestListWriter, ManifestWriterBuilder, PartitionSpec, Schema, Struct, TableMetadata, Transform,
};
use iceferry_common::model::{DeleteKind, FileDifference, Resolution, ScanTask, Side, SnapshotId, Work};
use iceferry_common::storage::{Storage, StorageProperties};

use crate::plan::{ManifestLists, PlanError, PlanOptions, PlanRequest, PlanSummary, Together, Ways, plan};

/// Bytes of a row group; every row is a row group of its own.
const ROW_BYTES: u64 = 10;
const DELETE_PATH_ID: i32 = 2_147_483_546;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub(super) id: Option<i32>,
    pub(super) p: Option<i32>,
    pub(super) v: Option<i32>,
}

impl Row {
    pub(super) fn get(&self, field_id: i32) -> Option<i32> {
        match field_id {
            1 => self.id,
            2 => self.p,
            3 => self.v,
            other => panic!("no field {other}"),
        }
    }
}

pub(super) fn row(id: i32, p: i32, v: i32) -> Row {
    Row { id: Some(id), p: Some(p), v: Some(v) }
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) spec: i32,
    pub(super) partition: Option<i32>,
    pub(super) rows: Vec<Row>,
    pub(super) has_bounds: bool,
    pub(super) has_offsets: bool,
    pub(super) format: DataFileFormat,
    pub(super) is_encrypted: bool,
}

impl File {
    fn size(&self) -> u64 {
        4 + ROW_BYTES * self.rows.len() as u64 + 6
    }
}

#[derive(Debug)]
pub(super) struct Delete {
    pub(super) location: String,
    pub(super) offset: Option<u64>,
    pub(super) spec: i32,
    pub(super) partition: Option<i32>,
    pub(super) kind: Kind,
    pub(super) format: DataFileFormat,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Positions { rows: BTreeSet<(String, usize)>, referenced: Option<String>, bounds: PathBounds },
    Vector { path: String, positions: BTreeSet<usize> },
    Equality { ids: Vec<i32>, keys: Vec<Vec<Option<i32>>>, has_bounds: bool },
}

/// What a manifest tells of the paths in a position delete file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathBounds {
    None,
    Full,
    /// Both ends cut to the same beginning, the upper one without rounding up.
    CutShort,
}

/// A live entry with its data sequence number.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Data { file: Arc<File>, sequence: i64, snapshot: i64 },
    Delete { delete: Arc<Delete>, sequence: i64, snapshot: i64 },
}

impl Item {
    pub(super) fn key(&self) -> (String, Option<u64>) {
        match self {
            Self::Data { file, .. } => (file.path.clone(), None),
            Self::Delete { delete, .. } => (delete.location.clone(), delete.offset),
        }
    }

    fn place(&self) -> (bool, i32) {
        match self {
            Self::Data { file, .. } => (true, file.spec),
            Self::Delete { delete, .. } => (false, delete.spec),
        }
    }
}

/// New entries, with a data sequence number of their own if they are to have one.
type Added = Vec<(Item, Option<i64>)>;

#[derive(Debug, Clone)]
pub(super) struct ModelManifest {
    pub(super) file: ManifestFile,
    pub(super) items: Vec<Item>,
}

/// What one snapshot shows.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) manifests: Vec<ModelManifest>,
}

impl State {
    pub(super) fn files(&self) -> Vec<(Arc<File>, i64)> {
        let items = self.manifests.iter().flat_map(|manifest| &manifest.items);
        items
            .filter_map(|item| match item {
                Item::Data { file, sequence, .. } => Some((Arc::clone(file), *sequence)),
                Item::Delete { .. } => None,
            })
            .collect()
    }

    pub(super) fn deletes(&self) -> Vec<(Arc<Delete>, i64)> {
        let items = self.manifests.iter().flat_map(|manifest| &manifest.items);
        items
            .filter_map(|item| match item {
                Item::Delete { delete, sequence, .. } => Some((Arc::clone(delete), *sequence)),
                Item::Data { .. } => None,
            })
            .collect()
    }

    /// Whether the row at a position of a live file is dead, by the specification.
    pub(super) fn is_dead(&self, file: &File, sequence: i64, position: usize) -> bool {
        let deletes = self.deletes();
        let in_scope =
            |delete: &Delete| delete.spec == file.spec && (file.spec == 0 || delete.partition == file.partition);
        let vector = deletes.iter().find(|(delete, of)| {
            matches!(&delete.kind, Kind::Vector { path, .. } if *path == file.path)
                && *of >= sequence
                && in_scope(delete)
        });
        deletes.iter().any(|(delete, of)| match &delete.kind {
            Kind::Vector { positions, .. } => {
                vector.is_some_and(|(vector, _)| Arc::ptr_eq(vector, delete)) && positions.contains(&position)
            }
            Kind::Positions { rows, .. } => {
                vector.is_none() && *of >= sequence && in_scope(delete) && rows.contains(&(file.path.clone(), position))
            }
            Kind::Equality { ids, keys, .. } => {
                *of > sequence && (delete.spec == 0 || in_scope(delete)) && matches(ids, keys, &file.rows[position])
            }
        })
    }

    /// How often each row is live.
    pub(super) fn rows(&self) -> BTreeMap<Row, i64> {
        let mut rows = BTreeMap::new();
        for (file, sequence) in self.files() {
            for (position, row) in file.rows.iter().enumerate() {
                if !self.is_dead(&file, sequence, position) {
                    *rows.entry(*row).or_default() += 1;
                }
            }
        }
        rows
    }
}

fn matches(ids: &[i32], keys: &[Vec<Option<i32>>], row: &Row) -> bool {
    keys.iter().any(|key| ids.iter().zip(key).all(|(id, value)| row.get(*id) == *value))
}

/// What becomes of the table in one snapshot.
#[derive(Debug, Default)]
pub(super) struct Commit {
    /// New files, with a data sequence number of their own if they are to have one.
    pub(super) added: Vec<(Arc<File>, Option<i64>)>,
    pub(super) deletes: Vec<(Arc<Delete>, Option<i64>)>,
    pub(super) removed: BTreeSet<(String, Option<u64>)>,
    /// All manifests are written anew, merged by spec and content.
    pub(super) merge_manifests: bool,
    /// Written into the summary; the planner must not care.
    pub(super) operation: &'static str,
}

/// A table with its history.
pub(super) struct Table {
    pub(super) folder: tempfile::TempDir,
    pub(super) version: u8,
    /// The partition column is a long now.
    pub(super) is_widened: bool,
    pub(super) states: Vec<(SnapshotId, State)>,
    snapshots: Vec<serde_json::Value>,
    written: usize,
    io: FileIO,
}

impl Table {
    pub(super) fn new(version: u8) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            version,
            is_widened: false,
            states: Vec::new(),
            snapshots: Vec::new(),
            written: 0,
            io: FileIO::new_with_fs(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.states.last().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    /// The sequence number that the next commit has.
    pub(super) fn next_sequence(&self) -> i64 {
        if self.version == 1 { 0 } else { self.states.len() as i64 + 1 }
    }

    pub(super) fn new_name(&mut self, kind: &str) -> String {
        self.written += 1;
        format!("{}/data/{kind}-{:04}", self.folder.path().display(), self.written)
    }

    pub(super) fn file(&mut self, spec: i32, partition: Option<i32>, rows: Vec<Row>) -> File {
        let path = self.new_name("f");
        File {
            path,
            spec,
            partition,
            rows,
            has_bounds: true,
            has_offsets: true,
            format: DataFileFormat::Parquet,
            is_encrypted: false,
        }
    }

    fn schema(&self, is_widened: bool) -> Arc<Schema> {
        Arc::new(serde_json::from_value(schema_json(is_widened)).unwrap())
    }

    fn spec(&self, spec: i32) -> PartitionSpec {
        let builder = PartitionSpec::builder(self.schema(self.is_widened)).with_spec_id(spec);
        let builder = match spec {
            0 => builder,
            1 => builder.add_partition_field("p", "p", Transform::Identity).unwrap(),
            _ => builder.add_partition_field("id", "id_bucket", Transform::Bucket(4)).unwrap(),
        };
        builder.build().unwrap()
    }

    fn partition(&self, spec: i32, value: Option<i32>) -> Struct {
        match spec {
            0 => Struct::empty(),
            1 if self.is_widened => Struct::from_iter([value.map(Literal::long)]),
            _ => Struct::from_iter([value.map(Literal::int)]),
        }
    }

    fn int(&self, field_id: i32, value: i32) -> Datum {
        if field_id == 2 && self.is_widened { Datum::long(value) } else { Datum::int(value) }
    }

    fn add_bounds(&self, builder: &mut DataFileBuilder, ids: &[i32], values: &[Vec<Option<i32>>]) {
        let (mut lower, mut upper) = (HashMap::new(), HashMap::new());
        let (mut counts, mut nulls) = (HashMap::new(), HashMap::new());
        for (at, id) in ids.iter().enumerate() {
            let column: Vec<i32> = values.iter().filter_map(|row| row[at]).collect();
            if let (Some(min), Some(max)) = (column.iter().min(), column.iter().max()) {
                lower.insert(*id, self.int(*id, *min));
                upper.insert(*id, self.int(*id, *max));
            }
            counts.insert(*id, values.len() as u64);
            nulls.insert(*id, (values.len() - column.len()) as u64);
        }
        builder.lower_bounds(lower).upper_bounds(upper).value_counts(counts).null_value_counts(nulls);
    }

    fn data_file(&self, item: &Item) -> DataFile {
        let mut builder = DataFileBuilder::default();
        match item {
            Item::Data { file, .. } => {
                builder
                    .content(DataContentType::Data)
                    .file_path(file.path.clone())
                    .file_format(file.format)
                    .partition(self.partition(file.spec, file.partition))
                    .record_count(file.rows.len() as u64)
                    .file_size_in_bytes(file.size())
                    .key_metadata(file.is_encrypted.then(|| vec![1]));
                if file.has_bounds {
                    let values: Vec<_> = file.rows.iter().map(|row| vec![row.id, row.p, row.v]).collect();
                    self.add_bounds(&mut builder, &[1, 2, 3], &values);
                }
                if file.has_offsets {
                    builder.split_offsets(Some(
                        (0..file.rows.len()).map(|at| (4 + ROW_BYTES * at as u64) as i64).collect(),
                    ));
                }
            }
            Item::Delete { delete, .. } => {
                builder
                    .file_path(delete.location.clone())
                    .file_format(delete.format)
                    .partition(self.partition(delete.spec, delete.partition))
                    .file_size_in_bytes(77);
                match &delete.kind {
                    Kind::Positions { rows, referenced, bounds } => {
                        builder
                            .content(DataContentType::PositionDeletes)
                            .record_count(rows.len() as u64)
                            .referenced_data_file(referenced.clone());
                        let cut = |path: &str| match bounds {
                            PathBounds::CutShort => path[..path.len() - 4].to_owned(),
                            PathBounds::None | PathBounds::Full => path.to_owned(),
                        };
                        if *bounds != PathBounds::None
                            && let (Some(first), Some(last)) = (rows.first(), rows.last())
                        {
                            builder
                                .lower_bounds(HashMap::from([(DELETE_PATH_ID, Datum::string(cut(&first.0)))]))
                                .upper_bounds(HashMap::from([(DELETE_PATH_ID, Datum::string(cut(&last.0)))]));
                        }
                    }
                    Kind::Vector { path, positions } => {
                        builder
                            .content(DataContentType::PositionDeletes)
                            .record_count(positions.len() as u64)
                            .referenced_data_file(Some(path.clone()))
                            .content_offset(delete.offset.map(|offset| offset as i64))
                            .content_size_in_bytes(Some(11));
                    }
                    Kind::Equality { ids, keys, has_bounds } => {
                        builder
                            .content(DataContentType::EqualityDeletes)
                            .record_count(keys.len() as u64)
                            .equality_ids(Some(ids.clone()));
                        if *has_bounds {
                            self.add_bounds(&mut builder, ids, keys);
                        }
                    }
                }
            }
        }
        builder.build().unwrap()
    }

    /// Writes a manifest of one content and spec.
    async fn write_manifest(
        &mut self,
        added: Added,
        existing: Vec<Item>,
        deleted: Vec<Item>,
        snapshot: i64,
        sequence: i64,
    ) -> ModelManifest {
        let first = added.iter().map(|(item, _)| item).chain(&existing).chain(&deleted).next().unwrap();
        let (is_data, spec) = first.place();
        self.written += 1;
        let path = format!("{}/m-{:04}.avro", self.folder.path().display(), self.written);
        let output = self.io.new_output(&path).unwrap();
        let builder = ManifestWriterBuilder::new(output, Some(snapshot), self.schema(self.is_widened), self.spec(spec));
        let mut writer = match (self.version, is_data) {
            (1, _) => builder.build_v1(),
            (2, true) => builder.build_v2_data(),
            (2, false) => builder.build_v2_deletes(),
            (_, true) => builder.build_v3_data(),
            (_, false) => builder.build_v3_deletes(),
        };
        let mut items = Vec::new();
        for (item, own_sequence) in added {
            writer.add_file(self.data_file(&item), own_sequence.unwrap_or(-1)).unwrap();
            items.push(item);
        }
        let numbers = |item: &Item| match item {
            Item::Data { sequence, snapshot, .. } | Item::Delete { sequence, snapshot, .. } => (*sequence, *snapshot),
        };
        for item in existing {
            let (of, by) = numbers(&item);
            writer.add_existing_file(self.data_file(&item), by, of, Some(of)).unwrap();
            items.push(item);
        }
        for item in deleted {
            let (of, _) = numbers(&item);
            writer.add_delete_file(self.data_file(&item), of, Some(of)).unwrap();
        }
        let mut file = writer.write_manifest_file().await.unwrap();
        file.sequence_number = sequence;
        file.min_sequence_number = items.iter().map(|item| numbers(item).0).min().unwrap_or(sequence);
        ModelManifest { file, items }
    }

    pub(super) async fn commit(&mut self, commit: Commit) -> SnapshotId {
        let number = self.states.len() as i64 + 1;
        let (snapshot, sequence) = (100 + number, self.next_sequence());
        let parent = self.states.last().map(|(id, _)| id.0);
        let mut manifests = Vec::new();
        let mut merged: BTreeMap<(bool, i32), Vec<Item>> = BTreeMap::new();
        for manifest in self.state().manifests {
            let (deleted, kept): (Vec<_>, Vec<_>) =
                manifest.items.iter().cloned().partition(|item| commit.removed.contains(&item.key()));
            if commit.merge_manifests {
                for item in kept {
                    merged.entry(item.place()).or_default().push(item);
                }
            } else if deleted.is_empty() {
                manifests.push(manifest);
            } else {
                manifests.push(self.write_manifest(Vec::new(), kept, deleted, snapshot, sequence).await);
            }
        }
        for (_, items) in merged {
            manifests.push(self.write_manifest(Vec::new(), items, Vec::new(), snapshot, sequence).await);
        }
        let mut added: BTreeMap<(bool, i32), Added> = BTreeMap::new();
        for (file, own) in commit.added {
            let item = Item::Data { file, sequence: own.unwrap_or(sequence), snapshot };
            added.entry(item.place()).or_default().push((item, own));
        }
        for (delete, own) in commit.deletes {
            let item = Item::Delete { delete, sequence: own.unwrap_or(sequence), snapshot };
            added.entry(item.place()).or_default().push((item, own));
        }
        for (_, items) in added {
            manifests.push(self.write_manifest(items, Vec::new(), Vec::new(), snapshot, sequence).await);
        }
        let list = format!("{}/list-{number}.avro", self.folder.path().display());
        let output = self.io.new_output(&list).unwrap().writer().await.unwrap();
        let mut writer = match self.version {
            1 => ManifestListWriter::v1(output, snapshot, parent),
            2 => ManifestListWriter::v2(output, snapshot, parent, sequence),
            _ => ManifestListWriter::v3(output, snapshot, parent, sequence, Some(0)),
        };
        let version = self.version;
        let listed = manifests.iter().map(|manifest| {
            let mut file = manifest.file.clone();
            // Lists of version 1 need not have counts.
            if version == 1 {
                (file.added_files_count, file.existing_files_count, file.deleted_files_count) = (None, None, None);
            }
            file
        });
        writer.add_manifests(listed).unwrap();
        writer.close().await.unwrap();
        self.snapshots.push(serde_json::json!({
            "snapshot-id": snapshot,
            "parent-snapshot-id": parent,
            "sequence-number": sequence,
            "timestamp-ms": 1_700_000_000_000i64 + number,
            "manifest-list": list,
            "summary": { "operation": commit.operation },
            "schema-id": 0,
            "first-row-id": 0,
            "added-rows": 0,
        }));
        self.states.push((SnapshotId(snapshot), State { manifests }));
        SnapshotId(snapshot)
    }

    pub(super) fn metadata(&self) -> TableMetadata {
        let current = self.states.last().map_or(-1, |(id, _)| id.0);
        let mut snapshots = self.snapshots.clone();
        for snapshot in &mut snapshots {
            if snapshot["parent-snapshot-id"].is_null() {
                snapshot.as_object_mut().unwrap().remove("parent-snapshot-id");
            }
        }
        metadata_json(self.version, current, snapshots, &self.folder.path().display().to_string())
    }

    pub(super) fn request(&self, before: Option<SnapshotId>, after: SnapshotId) -> PlanRequest {
        PlanRequest {
            table: "db.t".into(),
            storage: Storage::new(StorageProperties::default()),
            metadata: Arc::new(self.metadata()),
            before,
            after,
            read_schema: self.schema(true),
            key: vec![1],
            filter: None,
            together: Together::CarryOver,
            ways: Ways::rows(),
            partition_type: None,
            manifest_lists: ManifestLists::default(),
            options: PlanOptions {
                split_bytes: 45,
                open_file_cost_bytes: 5,
                carry_over_bytes_max: 800,
                differences_per_task_max: 7,
                manifests_at_once: 3,
                slots: 2,
            },
        }
    }

    pub(super) async fn plan(
        &self,
        before: Option<SnapshotId>,
        after: SnapshotId,
    ) -> Result<(Vec<ScanTask>, PlanSummary), PlanError> {
        run(self.request(before, after)).await
    }

    /// Rows that the tasks make come (counted up) and go (counted down), read by the dumbest reader there is, in a target
    /// that holds the state before.
    pub(super) fn applied(&self, before: Option<SnapshotId>, tasks: &[ScanTask]) -> BTreeMap<Row, i64> {
        let mut net = self.interpret(tasks);
        for (row, count) in before.map(|before| self.rows_of(before)).unwrap_or_default() {
            if tasks.iter().any(|task| self.passes(task, &row)) {
                *net.entry(row).or_default() -= count;
            }
        }
        net.retain(|_, count| *count != 0);
        net
    }

    /// Whether a task deletes a row of the target by its key.
    fn passes(&self, task: &ScanTask, row: &Row) -> bool {
        let Work::PassDeletes(work) = &task.work else { return false };
        let deletes: Vec<Arc<Delete>> =
            self.states.iter().flat_map(|(_, state)| state.deletes()).map(|of| of.0).collect();
        task.deletes.iter().zip(&work.constants).any(|(file, constants)| {
            let delete = deletes.iter().find(|delete| delete.location == file.location).unwrap();
            let Kind::Equality { ids, keys, .. } = &delete.kind else { panic!("{} has no keys", file.location) };
            let is_in_partition = constants.iter().all(|constant| {
                let value = constant.value.as_ref().map(|bytes| match bytes.len() {
                    4 => i32::from_le_bytes(bytes[..].try_into().unwrap()),
                    _ => i64::from_le_bytes(bytes[..].try_into().unwrap()) as i32,
                });
                row.get(constant.field_id) == value
            });
            is_in_partition && matches(ids, keys, row)
        })
    }

    /// Rows that the differences of tasks make come (counted up) and go (counted down).
    pub(super) fn interpret(&self, tasks: &[ScanTask]) -> BTreeMap<Row, i64> {
        let mut net = BTreeMap::new();
        for (_, _, rows) in self.interpret_each(tasks) {
            rows.into_iter().for_each(|(row, count)| *net.entry(row).or_default() += count);
        }
        net.retain(|_, count: &mut i64| *count != 0);
        net
    }

    /// The same for each file difference, with its task.
    pub(super) fn interpret_each<'a>(
        &self,
        tasks: &'a [ScanTask],
    ) -> Vec<(&'a ScanTask, &'a FileDifference, BTreeMap<Row, i64>)> {
        let mut files: HashMap<String, Arc<File>> = HashMap::new();
        let mut deletes: HashMap<(String, Option<u64>), Arc<Delete>> = HashMap::new();
        for (_, state) in &self.states {
            for item in state.manifests.iter().flat_map(|manifest| &manifest.items) {
                match item {
                    Item::Data { file, .. } => drop(files.insert(file.path.clone(), Arc::clone(file))),
                    Item::Delete { delete, .. } => drop(deletes.insert(item.key(), Arc::clone(delete))),
                }
            }
        }
        let mut each = Vec::new();
        for task in tasks {
            for difference in &task.differences {
                let mut net: BTreeMap<Row, i64> = BTreeMap::new();
                let file = &files[&difference.file.location];
                for (position, row) in file.rows.iter().enumerate().filter(|(at, _)| is_in_split(difference, *at)) {
                    let is_live = |side: &Side| match side {
                        Side::Absent => false,
                        Side::Present(ids) => !ids.iter().any(|id| {
                            let delete = &task.deletes[*id as usize];
                            let offset = match delete.kind {
                                DeleteKind::Vector { offset, .. } => Some(offset),
                                DeleteKind::Position | DeleteKind::Equality { .. } => None,
                            };
                            match &deletes[&(delete.location.clone(), offset)].kind {
                                Kind::Positions { rows, .. } => rows.contains(&(file.path.clone(), position)),
                                Kind::Vector { positions, .. } => positions.contains(&position),
                                Kind::Equality { ids, keys, .. } => matches(ids, keys, row),
                            }
                        }),
                    };
                    match (is_live(&difference.before), is_live(&difference.after)) {
                        (false, true) => *net.entry(*row).or_default() += 1,
                        (true, false) => *net.entry(*row).or_default() -= 1,
                        (true, true) | (false, false) => {}
                    }
                }
                net.retain(|_, count| *count != 0);
                each.push((task, difference, net));
            }
        }
        each
    }

    fn rows_of(&self, id: SnapshotId) -> BTreeMap<Row, i64> {
        let (_, state) = self.states.iter().find(|(of, _)| *of == id).unwrap();
        state.rows()
    }

    /// The difference of two states' rows.
    pub(super) fn expected(&self, before: Option<SnapshotId>, after: SnapshotId) -> BTreeMap<Row, i64> {
        let mut net = self.rows_of(after);
        for (row, count) in before.map(|before| self.rows_of(before)).unwrap_or_default() {
            *net.entry(row).or_default() -= count;
        }
        net.retain(|_, count| *count != 0);
        net
    }

    /// Plans and interprets, and holds the outcome against the model.
    pub(super) async fn check(&self, before: Option<SnapshotId>, after: SnapshotId) -> (Vec<ScanTask>, PlanSummary) {
        let (tasks, summary) = self.plan(before, after).await.unwrap();
        assert_eq!(self.interpret(&tasks), self.expected(before, after), "from {before:?} to {after}: {tasks:#?}");
        (tasks, summary)
    }
}

impl Table {
    /// Plans for a mirror with this key and everything that need not be decoded, and holds the outcome against the model.
    pub(super) async fn check_mirror(
        &self,
        before: Option<SnapshotId>,
        after: SnapshotId,
        key: &[i32],
    ) -> (Vec<ScanTask>, PlanSummary) {
        let mut request = self.request(before, after);
        request.key = key.to_vec();
        request.ways = Ways { decode: None, takes_deletes: true, passes_deletes: true };
        let (tasks, summary) = run(request).await.unwrap();
        let applied = self.applied(before, &tasks);
        assert_eq!(applied, self.expected(before, after), "from {before:?} to {after} by {key:?}: {tasks:#?}");
        let mut as_bytes = 0;
        for task in &tasks {
            let Work::Copy(work) = &task.work else { continue };
            as_bytes += task.differences.len() as u64;
            assert_eq!((task.resolution, work.metrics.len()), (Resolution::Keep, task.differences.len()));
            let are_new = |of: &FileDifference| of.before == Side::Absent && of.split.is_none();
            assert!(task.differences.iter().all(are_new), "only new files are carried as bytes, and whole: {task:#?}");
        }
        let files = summary.files_added + summary.files_removed + summary.files_changed;
        assert_eq!(summary.files_as_bytes, as_bytes);
        assert_eq!(summary.files_as_bytes + summary.files_decoded.values().sum::<u64>(), files, "each has its reason");
        (tasks, summary)
    }
}

fn is_in_split(difference: &FileDifference, row: usize) -> bool {
    let midpoint = 4 + ROW_BYTES * row as u64 + ROW_BYTES / 2;
    difference.split.is_none_or(|split| (split.start..split.end).contains(&midpoint))
}

pub(super) async fn run(request: PlanRequest) -> Result<(Vec<ScanTask>, PlanSummary), PlanError> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
    let collect = async {
        let mut tasks = Vec::new();
        while let Some(task) = receiver.recv().await {
            tasks.push(task);
        }
        tasks
    };
    let (summary, tasks) = tokio::join!(plan(request, sender), collect);
    Ok((tasks, summary?))
}

fn schema_json(is_widened: bool) -> serde_json::Value {
    let p = if is_widened { "long" } else { "int" };
    serde_json::json!({
        "type": "struct",
        "schema-id": i32::from(is_widened),
        "fields": [
            { "id": 1, "name": "id", "required": false, "type": "int" },
            { "id": 2, "name": "p", "required": false, "type": p },
            { "id": 3, "name": "v", "required": false, "type": "int" },
        ],
    })
}

/// Metadata of the model's table with these snapshots.
pub(super) fn metadata_json(
    version: u8,
    current: i64,
    snapshots: Vec<serde_json::Value>,
    location: &str,
) -> TableMetadata {
    let mut metadata = serde_json::json!({
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "last-sequence-number": 1_000,
        "last-updated-ms": 1_700_000_100_000i64,
        "last-column-id": 3,
        "current-schema-id": 1,
        "schemas": [schema_json(false), schema_json(true)],
        "schema": schema_json(true),
        "default-spec-id": 0,
        "partition-spec": [],
        "partition-specs": [
            { "spec-id": 0, "fields": [] },
            { "spec-id": 1, "fields": [
                { "source-id": 2, "field-id": 1000, "name": "p", "transform": "identity" }] },
            { "spec-id": 2, "fields": [
                { "source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[4]" }] },
        ],
        "last-partition-id": 1001,
        "default-sort-order-id": 0,
        "sort-orders": [{ "order-id": 0, "fields": [] }],
        "snapshots": snapshots,
        "next-row-id": 0,
    });
    if current >= 0 {
        metadata["current-snapshot-id"] = current.into();
        metadata["refs"] = serde_json::json!({ "main": { "snapshot-id": current, "type": "branch" } });
    }
    let metadata: TableMetadata = serde_json::from_value(metadata).unwrap();
    assert!(matches!(metadata.format_version(), FormatVersion::V1 | FormatVersion::V2 | FormatVersion::V3));
    metadata
}
