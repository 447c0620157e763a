//! A catalog for tests: metadata in memory, files in a temporary folder, and answers that can be lost, late or wrong.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, FormatVersion, ManifestContentType, ManifestStatus,
    ManifestWriterBuilder, NestedField, PartitionSpec, PrimitiveType, Schema, SortOrder, TableMetadata,
    TableMetadataBuilder, TableMetadataRef, Type,
};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use iceferry_common::entry;
use iceferry_common::model::{EpochId, Fence, JobName, RunId, SnapshotId, StagedContent, StagedFile, staging_folder};
use iceferry_common::storage::{Storage, StorageProperties};
use uuid::Uuid;

use super::attempt::{Head, NewSnapshot, Proposal, Stamp, compose, new_snapshot_id, read_manifest_list};
use super::checkpoint::{Ancestors, SUMMARY_EPOCH, SUMMARY_JOB, SUMMARY_RUN};
use super::look::Look;
use super::summary::Added;
use super::{Checkpoint, CommitError, CommitPolicy, EpochCommit, data_location, find_checkpoint, metadata_location};
use crate::catalog::{Catalog, CatalogError, CommitOutcome, LoadedTable, TableCreation};

pub(super) const SOURCE: Uuid = Uuid::from_u128(7);

/// Nothing sleeps for real.
pub(super) const POLICY: CommitPolicy =
    CommitPolicy { attempts_max: 4, backoff: std::time::Duration::ZERO, backoff_max: std::time::Duration::ZERO };

/// How the catalog answers one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// As a good catalog does.
    Honest,
    /// Another writer appends first.
    ForeignFirst,
    /// Another writer sets a property first, and the whole metadata file counts as moved.
    FalseConflict,
    /// No, for good.
    Refused,
    /// Applied if it can be; the answer is lost.
    LostApplied,
    /// Not applied; the answer is lost.
    LostNotApplied,
    /// The answer is lost, and it is applied, if it still can be, before the so-manieth next call.
    LostLate(u32),
    /// Applied if it can be, the answer is lost, and the catalog is away for so many loads.
    LostAppliedAway(u32),
    /// Said to be committed, and is not.
    Lie,
}

#[derive(Debug, Default)]
struct State {
    versions: Vec<TableMetadataRef>,
    script: VecDeque<Answer>,
    late: Vec<(u32, Vec<TableRequirement>, Vec<TableUpdate>)>,
    away: u32,
    commits: u32,
}

#[derive(Debug)]
pub(super) struct TestCatalog {
    pub(super) folder: tempfile::TempDir,
    pub(super) storage: Storage,
    state: Mutex<State>,
}

enum Applied {
    Yes,
    Conflict,
    Refused(String),
}

pub(super) fn job() -> JobName {
    "orders".parse().unwrap()
}

pub(super) fn schema() -> Schema {
    let fields = [
        NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)),
        NestedField::optional(2, "name", Type::Primitive(PrimitiveType::String)),
    ];
    let fields = fields.into_iter().map(Arc::new).collect::<Vec<_>>();
    Schema::builder().with_fields(fields).with_identifier_field_ids([1]).build().unwrap()
}

impl TestCatalog {
    pub(super) fn new(version: FormatVersion) -> Self {
        Self::with_schema(version, schema())
    }

    pub(super) fn with_schema(version: FormatVersion, schema: Schema) -> Self {
        // With this variable set to a folder the tables stay there, so that other readers can open them.
        let folder = match std::env::var_os("ICEFERRY_TEST_KEEP") {
            Some(kept) => tempfile::Builder::new().disable_cleanup(true).tempdir_in(kept).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let location = format!("file://{}/t", folder.path().display());
        let spec = PartitionSpec::unpartition_spec().into_unbound();
        let order = SortOrder::unsorted_order();
        let built = TableMetadataBuilder::new(schema, spec, order, location, version, HashMap::new());
        let metadata = built.unwrap().build().unwrap().metadata;
        let storage = Storage::new(StorageProperties::default());
        let catalog = Self { folder, storage, state: Mutex::default() };
        catalog.push(metadata);
        catalog
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Through JSON, so that nothing counts that a metadata file does not hold.
    fn push(&self, metadata: TableMetadata) {
        let json = serde_json::to_vec(&metadata).unwrap();
        let file = self.folder.path().join(format!("t/metadata/{:05}.metadata.json", self.state().versions.len()));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, &json).unwrap();
        self.state().versions.push(Arc::new(serde_json::from_slice(&json).unwrap()));
    }

    pub(super) fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state().script.extend(answers);
    }

    pub(super) fn forget_script(&self) {
        self.state().script.clear();
    }

    pub(super) fn commits(&self) -> u32 {
        self.state().commits
    }

    pub(super) fn versions(&self) -> Vec<TableMetadataRef> {
        self.state().versions.clone()
    }

    pub(super) fn now(&self) -> LoadedTable {
        let state = self.state();
        let metadata = state.versions.last().unwrap().clone();
        let number = state.versions.len() - 1;
        let metadata_location = format!("{}/metadata/{number:05}.metadata.json", metadata.location());
        let ident = TableIdent::new(NamespaceIdent::new("lake".into()), "orders".into());
        LoadedTable { ident, metadata, metadata_location, storage: self.storage.clone() }
    }

    fn apply(&self, requirements: &[TableRequirement], updates: &[TableUpdate]) -> Applied {
        let now = self.now();
        if requirements.iter().any(|requirement| requirement.check(Some(&now.metadata)).is_err()) {
            return Applied::Conflict;
        }
        let mut builder = now.metadata.as_ref().clone().into_builder(Some(now.metadata_location));
        for update in updates {
            builder = match update.clone().apply(builder) {
                Ok(builder) => builder,
                Err(error) => return Applied::Refused(error.to_string()),
            };
        }
        match builder.build() {
            Ok(built) => {
                self.push(built.metadata);
                Applied::Yes
            }
            Err(error) => Applied::Refused(error.to_string()),
        }
    }

    /// Changes the table, whatever the moment.
    pub(super) fn change(&self, updates: Vec<TableUpdate>) {
        assert!(matches!(self.apply(&[], &updates), Applied::Yes), "{updates:?}");
    }

    /// Requests that were under way arrive.
    pub(super) fn land_late(&self, all: bool) {
        let mut due = Vec::new();
        self.state().late.retain_mut(|(calls, requirements, updates)| {
            *calls = calls.saturating_sub(1);
            let is_due = all || *calls == 0;
            if is_due {
                due.push((requirements.clone(), updates.clone()));
            }
            !is_due
        });
        for (requirements, updates) in due {
            let _ = self.apply(&requirements, &updates);
        }
    }

    pub(super) async fn foreign_append(&self) {
        let table = self.now();
        let id = new_snapshot_id(&table.metadata);
        let path = format!("{}/foreign-{id}.parquet", data_location(&table.metadata));
        let folder = metadata_location(&table.metadata);
        let output = self.storage.file_io().new_output(format!("{folder}/foreign-{id}-m0.avro")).unwrap();
        let spec = table.metadata.default_partition_spec().as_ref().clone();
        let writer = ManifestWriterBuilder::new(output, Some(id), table.metadata.current_schema().clone(), spec);
        let mut writer = match table.metadata.format_version() {
            FormatVersion::V3 => writer.build_v3_data(),
            _ => writer.build_v2_data(),
        };
        let file = data_file(&path, DataContentType::Data, 5);
        let mut added = Added::default();
        added.add(&entry::Facts::read(&entry::encode(&file, None).unwrap()).unwrap());
        writer.add_file(file, -1).unwrap();
        let manifests = vec![writer.write_manifest_file().await.unwrap()];
        let foreign = Foreign(NewSnapshot { id, added, manifests, folder });
        let attempt = compose(&table, &foreign, 0).await.unwrap();
        self.change(attempt.updates);
    }

    /// Sets main to a snapshot, as a person who rolls back.
    pub(super) fn roll_back_to(&self, snapshot_id: i64) {
        let reference = iceberg::spec::SnapshotReference::new(
            snapshot_id,
            iceberg::spec::SnapshotRetention::branch(None, None, None),
        );
        self.change(vec![TableUpdate::SetSnapshotRef { ref_name: "main".into(), reference }]);
    }

    /// Stages files of an epoch, as workers do: `data` data files and `deletes` delete files.
    pub(super) async fn stage(&self, run: &RunId, epoch: u64, data: usize, deletes: usize) -> Vec<StagedFile> {
        let folder = staging_folder(&data_location(&self.now().metadata), &job(), run);
        let mut staged = Vec::new();
        for (content, count) in [(StagedContent::Data, data), (StagedContent::EqualityDeletes, deletes)] {
            for number in 0..count {
                let suffix = if content == StagedContent::Data { "data" } else { "deletes" };
                let location = format!("{folder}/{epoch:06}-000000-0-{number:05}-{suffix}.parquet");
                staged.push(staged_file(&location, content, 10 + number as u64));
                self.storage.write(&location, Bytes::from_static(b"rows")).await.unwrap();
            }
        }
        staged
    }

    /// Files under a folder of the table, by their path below the table.
    pub(super) async fn files(&self, folder: &str) -> Vec<String> {
        let root = self.now().metadata.location().to_owned();
        let listed = self.storage.list(&format!("{root}/{folder}")).await.unwrap();
        let mut files: Vec<String> =
            listed.into_iter().map(|found| found.location[root.len() + 1..].to_owned()).collect();
        files.sort();
        files
    }

    /// The metadata files of iceferry that no snapshot of the table references.
    pub(super) async fn unreferenced_metadata(&self) -> Vec<String> {
        let table = self.now();
        let mut referenced = HashSet::new();
        for snapshot in table.metadata.snapshots() {
            referenced.insert(snapshot.manifest_list().to_owned());
            for manifest in read_manifest_list(&table.storage, &table.metadata, snapshot).await.unwrap() {
                referenced.insert(manifest.manifest_path);
            }
        }
        let root = table.metadata.location();
        let files = self.files("metadata/iceferry").await;
        files
            .into_iter()
            .filter(|file| file.ends_with(".avro") && !referenced.contains(&format!("{root}/{file}")))
            .collect()
    }

    /// Live files of the table by content, each as often as it is referenced.
    pub(super) async fn live(&self, metadata: &TableMetadata) -> (Vec<String>, Vec<String>) {
        let (mut data, mut deletes) = (Vec::new(), Vec::new());
        let Some(main) = metadata.current_snapshot() else { return (data, deletes) };
        for manifest in read_manifest_list(&self.storage, metadata, main).await.unwrap() {
            let loaded = manifest.load_manifest(&self.storage.file_io()).await.unwrap();
            for entry in loaded.entries().iter().filter(|entry| entry.status() != ManifestStatus::Deleted) {
                assert!(entry.sequence_number().is_some(), "{}", entry.file_path());
                match (manifest.content, entry.data_file().content_offset()) {
                    (ManifestContentType::Data, _) => data.push(entry.file_path().to_owned()),
                    (ManifestContentType::Deletes, None) => deletes.push(entry.file_path().to_owned()),
                    (ManifestContentType::Deletes, Some(offset)) => {
                        deletes.push(format!("{}@{offset}", entry.file_path()));
                    }
                }
            }
        }
        data.sort();
        deletes.sort();
        (data, deletes)
    }

    /// What must hold in every version of the table that ever was: an epoch once, a file once, the checkpoint that of
    /// the last snapshot of ours, totals that add up, row ids given once.
    pub(super) async fn audit(&self) {
        for metadata in self.versions() {
            let mut epochs = HashSet::new();
            let mut newest: Option<Checkpoint> = None;
            for snapshot in Ancestors::of_main(&metadata) {
                let entries = &snapshot.summary().additional_properties;
                let key = [SUMMARY_JOB, SUMMARY_RUN, SUMMARY_EPOCH].map(|key| entries.get(key).cloned());
                if key[2].is_some() {
                    assert!(epochs.insert(key.clone()), "twice in one history: {key:?}");
                }
                let checkpoint = Checkpoint::from_summary(snapshot, &job()).unwrap();
                newest = newest.or(checkpoint);
            }
            let found = find_checkpoint(&metadata, &job()).unwrap();
            if let Some(newest) = &newest {
                let found = found.expect("a snapshot of ours has a checkpoint");
                assert_eq!(found.target_snapshot_id.is_some(), newest.target_snapshot_id.is_some());
                let key = [job().to_string(), found.run.to_string(), found.epoch.to_string()].map(Some);
                let is_moved_alone =
                    found.source_sequence_number > newest.source_sequence_number && !epochs.contains(&key);
                assert!(
                    is_moved_alone || found.source_snapshot_id == newest.source_snapshot_id,
                    "{found:?} {newest:?}"
                );
            }
            let (data, deletes) = self.live(&metadata).await;
            for files in [&data, &deletes] {
                let distinct: HashSet<_> = files.iter().collect();
                assert_eq!(distinct.len(), files.len(), "referenced twice: {files:?}");
            }
            let Some(main) = metadata.current_snapshot() else { continue };
            let total = |key: &str| main.summary().additional_properties.get(key).map(|text| text.parse().unwrap());
            assert_eq!(total("total-data-files").unwrap_or(data.len()), data.len());
            assert_eq!(total("total-delete-files").unwrap_or(deletes.len()), deletes.len());
            if metadata.format_version() == FormatVersion::V3 {
                self.audit_row_ids(&metadata).await;
            }
        }
    }

    async fn audit_row_ids(&self, metadata: &TableMetadata) {
        let main = metadata.current_snapshot().unwrap();
        let mut ranges = Vec::new();
        for manifest in read_manifest_list(&self.storage, metadata, main).await.unwrap() {
            match manifest.content {
                ManifestContentType::Deletes => assert_eq!(manifest.first_row_id, None),
                ManifestContentType::Data => {
                    let first = manifest.first_row_id.expect("every data manifest of a v3 snapshot has row ids");
                    let rows = manifest.added_rows_count.unwrap() + manifest.existing_rows_count.unwrap();
                    ranges.push((first, first + rows));
                }
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "row ids given twice: {ranges:?}");
        assert!(ranges.last().is_none_or(|last| last.1 <= metadata.next_row_id()), "{ranges:?}");
    }
}

/// A writer that is not ours.
pub(super) struct Foreign(pub(super) NewSnapshot);

impl Proposal for Foreign {
    fn what(&self) -> String {
        "a foreign append".to_owned()
    }

    fn look(&self, _table: &LoadedTable) -> Result<Look, CommitError> {
        Ok(Look::Free)
    }

    fn snapshot(&self) -> Option<&NewSnapshot> {
        Some(&self.0)
    }

    fn stamp(&self, _base: &TableMetadata, _head: Option<Head>) -> Result<Stamp, CommitError> {
        Ok(Stamp::default())
    }
}

pub(super) fn data_file(path: &str, content: DataContentType, records: u64) -> DataFile {
    let mut builder = DataFileBuilder::default();
    builder
        .content(content)
        .file_path(path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .record_count(records)
        .file_size_in_bytes(100);
    if content == DataContentType::EqualityDeletes {
        builder.equality_ids(Some(vec![1]));
    }
    builder.build().unwrap()
}

pub(super) fn staged_file(location: &str, content: StagedContent, record_count: u64) -> StagedFile {
    let kind = match content {
        StagedContent::Data => DataContentType::Data,
        _ => DataContentType::EqualityDeletes,
    };
    staged(&data_file(location, kind, record_count), content)
}

/// A position delete file, or a deletion vector at an offset, of a staged data file.
pub(super) fn positions_file(location: &str, of: Option<&str>, vector_at: Option<i64>, deleted: u64) -> StagedFile {
    let mut builder = DataFileBuilder::default();
    builder
        .content(DataContentType::PositionDeletes)
        .file_path(location.to_owned())
        .file_format(if vector_at.is_some() { DataFileFormat::Puffin } else { DataFileFormat::Parquet })
        .record_count(deleted)
        .file_size_in_bytes(1_000)
        .referenced_data_file(of.map(str::to_owned))
        .content_offset(vector_at)
        .content_size_in_bytes(vector_at.map(|_| 40));
    let content = if vector_at.is_some() { StagedContent::DeletionVector } else { StagedContent::PositionDeletes };
    staged(&builder.build().unwrap(), content)
}

/// A data file as a worker hands it back.
pub(super) fn staged(file: &DataFile, content: StagedContent) -> StagedFile {
    StagedFile {
        location: file.file_path().to_owned(),
        content,
        record_count: file.record_count(),
        size_bytes: file.file_size_in_bytes(),
        data_file: entry::encode(file, None).unwrap(),
    }
}

pub(super) fn epoch_commit(
    table: &LoadedTable,
    run: &RunId,
    epoch: u64,
    after: Option<i64>,
    through: i64,
    staged: Vec<StagedFile>,
) -> EpochCommit {
    EpochCommit {
        last_with_rows: epoch.checked_sub(1).map(EpochId),
        job: job(),
        run: run.clone(),
        epoch: EpochId(epoch),
        fence: Fence(0),
        source_uuid: SOURCE,
        after: after.map(SnapshotId),
        source_snapshot_id: SnapshotId(through),
        source_sequence_number: through,
        mirror_hash: "h".to_owned(),
        next_change_ordinal: 0,
        data_location: data_location(&table.metadata),
        staged: Arc::new(staged),
    }
}

fn away() -> CatalogError {
    CatalogError::Unavailable { act: "ask the test catalog".to_owned(), problem: "no answer".to_owned() }
}

#[async_trait]
impl Catalog for TestCatalog {
    fn description(&self) -> String {
        "test catalog".to_owned()
    }

    async fn load_table(&self, _table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        if self.state().away > 0 {
            self.state().away -= 1;
            return Err(away());
        }
        self.land_late(false);
        Ok(self.now())
    }

    async fn ensure_namespace(&self, _namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        Ok(())
    }

    async fn stage_table(&self, table: &TableIdent, _creation: TableCreation) -> Result<LoadedTable, CatalogError> {
        self.load_table(table).await
    }

    async fn commit(
        &self,
        base: &LoadedTable,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
    ) -> CommitOutcome {
        self.land_late(false);
        self.state().commits += 1;
        let answer = self.state().script.pop_front().unwrap_or(Answer::Honest);
        match answer {
            Answer::Honest | Answer::ForeignFirst => {
                if answer == Answer::ForeignFirst {
                    self.foreign_append().await;
                }
                match self.apply(&requirements, &updates) {
                    Applied::Yes => CommitOutcome::Committed(self.now()),
                    Applied::Conflict => CommitOutcome::Conflicted,
                    Applied::Refused(problem) => {
                        CommitOutcome::Refused(CatalogError::Refused { act: "commit".to_owned(), problem })
                    }
                }
            }
            Answer::FalseConflict => {
                let updates = HashMap::from([("foreign".to_owned(), Uuid::new_v4().to_string())]);
                self.change(vec![TableUpdate::SetProperties { updates }]);
                CommitOutcome::Conflicted
            }
            Answer::Refused => {
                CommitOutcome::Refused(CatalogError::Denied { act: "commit".to_owned(), answer: "not you".to_owned() })
            }
            Answer::LostApplied => {
                let _ = self.apply(&requirements, &updates);
                CommitOutcome::Unknown(away())
            }
            Answer::LostNotApplied => CommitOutcome::Unknown(away()),
            Answer::LostLate(calls) => {
                self.state().late.push((calls, requirements, updates));
                CommitOutcome::Unknown(away())
            }
            Answer::LostAppliedAway(loads) => {
                let _ = self.apply(&requirements, &updates);
                self.state().away = loads;
                CommitOutcome::Unknown(away())
            }
            Answer::Lie => CommitOutcome::Committed(base.clone()),
        }
    }
}
