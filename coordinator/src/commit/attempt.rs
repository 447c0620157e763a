//! One attempt: a manifest list for one base, and the requirements and updates that a catalog takes.

use std::collections::HashMap;

use iceberg::spec::{
    FormatVersion, MAIN_BRANCH, ManifestFile, ManifestList, ManifestListWriter, Snapshot, TableMetadata,
};
use iceberg::{TableRequirement, TableUpdate};
use iceferry_common::clock;
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::Storage;
use uuid::Uuid;

use super::CommitError;
use super::checkpoint::Ancestors;
use super::look::Look;
use super::merge::merge;
use super::summary::{Added, summary};
use crate::catalog::LoadedTable;
use crate::plan::entry_count;

/// What is to be committed, whatever the base.
pub(super) trait Proposal: Send + Sync {
    /// How a person would name it: `epoch 3 of job orders (source snapshot 42)`.
    fn what(&self) -> String;

    /// Whether a table has it, may get it, or must not.
    fn look(&self, table: &LoadedTable) -> Result<Look, CommitError>;

    /// The snapshot that it adds; `None` when it moves properties alone.
    fn snapshot(&self) -> Option<&NewSnapshot>;

    /// What it writes into summary and properties, on this base. `head` is main's snapshot once it is committed.
    fn stamp(&self, base: &TableMetadata, head: Option<Head>) -> Result<Stamp, CommitError>;
}

/// A snapshot that is to be, save what depends on its base. The id is the same in every attempt, so no table can ever
/// hold it twice.
#[derive(Debug)]
pub(super) struct NewSnapshot {
    pub(super) id: i64,
    pub(super) added: Added,
    pub(super) manifests: Vec<ManifestFile>,
    /// Where its metadata files go.
    pub(super) folder: String,
}

impl NewSnapshot {
    /// Removes its manifests; for when it is certain that nobody references them.
    pub(super) async fn remove_manifests(&self, storage: &Storage) {
        for manifest in &self.manifests {
            remove(storage, &manifest.manifest_path).await;
        }
    }
}

/// The snapshot at the head of main.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) id: SnapshotId,
    pub(super) sequence_number: i64,
}

/// Entries for a snapshot's summary and for the table's properties.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    pub(super) summary: HashMap<String, String>,
    pub(super) properties: HashMap<String, String>,
}

/// Metadata files of one attempt.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) manifest_list: String,
    /// Manifests that it merged from those of its base.
    pub(super) merged: Vec<String>,
}

impl Written {
    /// Removes them; for when it is certain that nobody references them.
    pub(super) async fn remove(&self, storage: &Storage) {
        for location in std::iter::once(&self.manifest_list).chain(&self.merged) {
            remove(storage, location).await;
        }
    }
}

/// A request to a catalog, made for one base.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// The metadata file of the base.
    pub(super) base: String,
    base_uuid: Uuid,
    base_main: Option<i64>,
    base_sequence_number: i64,
    /// The metadata files that were written for it, and for no other attempt.
    pub(super) written: Option<Written>,
    pub(super) requirements: Vec<TableRequirement>,
    pub(super) updates: Vec<TableUpdate>,
}

impl Attempt {
    /// Whether a request that is still under way could land on this table. It requires main to be where the base had it,
    /// and it uses the sequence number after the base's: once another snapshot moved both, no catalog takes it any
    /// more. Both are asked for, so that a stale answer, from before the base, settles nothing.
    pub(super) fn may_land_on(&self, metadata: &TableMetadata) -> bool {
        let is_same_table = metadata.uuid() == self.base_uuid;
        let has_moved = metadata.current_snapshot_id() != self.base_main
            && metadata.last_sequence_number() > self.base_sequence_number;
        is_same_table && !has_moved
    }

    /// Whether main's history shows all that was put onto the base: what is not there then never landed.
    pub(super) fn is_base_in_sight(&self, metadata: &TableMetadata) -> bool {
        if metadata.uuid() != self.base_uuid {
            return true;
        }
        let mut walk = Ancestors::of_main(metadata);
        match self.base_main {
            Some(base) => walk.any(|snapshot| snapshot.snapshot_id() == base),
            None => {
                walk.by_ref().for_each(drop);
                walk.expired().is_none()
            }
        }
    }
}

/// Refuses targets that this room cannot write soundly.
///
/// # Errors
/// [`CommitError::Unsupported`].
pub(super) fn require_supported(table: &LoadedTable) -> Result<(), CommitError> {
    let metadata = &table.metadata;
    let problem = if metadata.format_version() == FormatVersion::V1 {
        "format version 1 has no row-level deletes; upgrade it: set the table property format-version to 2"
    } else if !metadata.default_partition_spec().is_unpartitioned() {
        "partitioned targets are not supported yet; take an unpartitioned one"
    } else if metadata.current_snapshot().is_some_and(|snapshot| snapshot.encryption_key_id().is_some()) {
        "encrypted tables are not supported; take another target"
    } else {
        return Ok(());
    };
    Err(CommitError::Unsupported { table: table.ident.to_string(), problem: problem.to_owned() })
}

/// Composes the `number`th attempt: writes the manifest list for this base, and merged manifests where the base has many.
///
/// # Errors
/// When the parent's manifest list cannot be read, or the new one cannot be written.
pub(super) async fn compose(base: &LoadedTable, proposal: &dyn Proposal, number: u32) -> Result<Attempt, CommitError> {
    let metadata = &base.metadata;
    let main = metadata.current_snapshot();
    let (written, updates) = match proposal.snapshot() {
        Some(new) => {
            let head = Head { id: SnapshotId(new.id), sequence_number: metadata.next_sequence_number() };
            let mut stamp = proposal.stamp(metadata, Some(head))?;
            let carried_over = match main {
                Some(parent) => read_manifest_list(&base.storage, metadata, parent).await?,
                None => Vec::new(),
            };
            let manifests = merge(base, new, carried_over, number).await?;
            stamp.summary.extend(manifests.counts(new.manifests.len()));
            let (manifest_list, rows) = match write_manifest_list(base, new, &manifests.list, number).await {
                Ok(written) => written,
                Err(error) => {
                    manifests.remove_merged(&base.storage).await;
                    return Err(error);
                }
            };
            let snapshot = snapshot(metadata, new, &manifest_list, rows, stamp.summary);
            let written = Written { manifest_list, merged: manifests.merged };
            (Some(written), updates(metadata, snapshot, stamp.properties)?)
        }
        None => {
            let head =
                main.map(|main| Head { id: SnapshotId(main.snapshot_id()), sequence_number: main.sequence_number() });
            let stamp = proposal.stamp(metadata, head)?;
            (None, vec![TableUpdate::SetProperties { updates: stamp.properties }])
        }
    };
    let main_id = main.map(|main| main.snapshot_id());
    Ok(Attempt {
        base: base.metadata_location.clone(),
        base_uuid: metadata.uuid(),
        base_main: main_id,
        base_sequence_number: metadata.last_sequence_number(),
        written,
        requirements: vec![
            TableRequirement::UuidMatch { uuid: metadata.uuid() },
            TableRequirement::RefSnapshotIdMatch { r#ref: MAIN_BRANCH.to_owned(), snapshot_id: main_id },
            TableRequirement::CurrentSchemaIdMatch { current_schema_id: metadata.current_schema_id() },
            TableRequirement::DefaultSpecIdMatch { default_spec_id: metadata.default_partition_spec_id() },
        ],
        updates,
    })
}

/// Row ids of a v3 snapshot: the first one, and how many are assigned.
type RowRange = Option<(u64, u64)>;

async fn write_manifest_list(
    base: &LoadedTable,
    new: &NewSnapshot,
    manifests: &[ManifestFile],
    number: u32,
) -> Result<(String, RowRange), CommitError> {
    let metadata = &base.metadata;
    let location = format!("{}/snap-{}-{number}-{}.avro", new.folder, new.id, Uuid::new_v4());
    let failed = |error| CommitError::iceberg(format!("write manifest list {location}"), error);
    let output = base.storage.file_io().new_output(&location).map_err(failed)?;
    let writer = output.writer().await.map_err(failed)?;
    let (parent, sequence_number) = (metadata.current_snapshot_id(), metadata.next_sequence_number());
    let first_row_id = metadata.next_row_id();
    let mut list = match metadata.format_version() {
        FormatVersion::V3 => ManifestListWriter::v3(writer, new.id, parent, sequence_number, Some(first_row_id)),
        FormatVersion::V1 | FormatVersion::V2 => ManifestListWriter::v2(writer, new.id, parent, sequence_number),
    };
    // On v3 the writer gives row ids to every data manifest that has none: the new ones, merged ones, whose files have
    // theirs written out, and those from before an upgrade; all of them count as assigned by this snapshot.
    list.add_manifests(manifests.iter().cloned()).map_err(failed)?;
    let rows = list.next_row_id().map(|next| (first_row_id, next.saturating_sub(first_row_id)));
    list.close().await.map_err(failed)?;
    Ok((location, rows))
}

/// The manifests of a snapshot.
///
/// # Errors
/// When the list cannot be read.
pub(super) async fn read_manifest_list(
    storage: &Storage,
    metadata: &TableMetadata,
    snapshot: &Snapshot,
) -> Result<Vec<ManifestFile>, CommitError> {
    let location = snapshot.manifest_list();
    let act = || format!("read manifest list {location} of snapshot {}", snapshot.snapshot_id());
    let bytes = storage.read(location).await.map_err(|source| CommitError::storage(act(), source))?;
    let list = ManifestList::parse_with_version(&bytes, metadata.format_version());
    let list = list.map_err(|source| CommitError::iceberg(act(), source))?;
    require_all(&bytes, list.entries().len()).map_err(|source| CommitError::iceberg(act(), source))?;
    Ok(list.consume_entries().into_iter().collect())
}

/// Refuses a file of which not all entries were found: the crate takes an empty block for the end of a file, and what comes
/// behind it would be missing without a word.
///
/// # Errors
/// When the file has more entries, or cannot be taken apart.
pub(super) fn require_all(bytes: &[u8], found: usize) -> iceberg::Result<()> {
    let invalid = |problem: String| iceberg::Error::new(iceberg::ErrorKind::DataInvalid, problem);
    let entries = entry_count(bytes).map_err(invalid)?;
    match entries == found as u64 {
        true => Ok(()),
        false => Err(invalid(format!(
            "it has {entries} entries, of which {found} can be read; rewrite the table's manifests"
        ))),
    }
}

fn snapshot(
    metadata: &TableMetadata,
    new: &NewSnapshot,
    manifest_list: &str,
    rows: RowRange,
    extra: HashMap<String, String>,
) -> Snapshot {
    let parent = metadata.current_snapshot();
    let builder = Snapshot::builder()
        .with_snapshot_id(new.id)
        .with_parent_snapshot_id(metadata.current_snapshot_id())
        .with_sequence_number(metadata.next_sequence_number())
        .with_timestamp_ms(timestamp_ms(metadata))
        .with_manifest_list(manifest_list)
        .with_summary(summary(&new.added, parent.map(AsRef::as_ref), extra))
        .with_schema_id(metadata.current_schema_id());
    match rows {
        Some((first, added)) => builder.with_row_range(first, added).build(),
        None => builder.build(),
    }
}

/// Now, or right after all that the table has seen: a clock that lags must not make time run backwards in its history.
fn timestamp_ms(metadata: &TableMetadata) -> i64 {
    let seen = [
        Some(metadata.last_updated_ms()),
        metadata.history().last().map(|entry| entry.timestamp_ms),
        metadata.current_snapshot().map(|snapshot| snapshot.timestamp_ms()),
    ];
    let last = seen.into_iter().flatten().max().unwrap_or(0);
    clock::unix_ms().max(last.saturating_add(1))
}

/// The updates, by way of the crate's builder: it checks them against the base, and it keeps main's retention settings.
fn updates(
    metadata: &TableMetadata,
    snapshot: Snapshot,
    properties: HashMap<String, String>,
) -> Result<Vec<TableUpdate>, CommitError> {
    let id = snapshot.snapshot_id();
    let builder = metadata.clone().into_builder(None);
    let built = builder
        .set_branch_snapshot(snapshot, MAIN_BRANCH)
        .and_then(|builder| builder.set_properties(properties))
        .and_then(|builder| builder.build());
    Ok(built.map_err(|error| CommitError::iceberg(format!("compose snapshot {id}"), error))?.changes)
}

/// A positive id that no snapshot of the table has.
pub(super) fn new_snapshot_id(metadata: &TableMetadata) -> i64 {
    loop {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // The sign bit is cleared, so it fits.
        let id = i64::try_from((high ^ low) >> 1).unwrap_or(i64::MAX);
        if id > 0 && metadata.snapshot_by_id(id).is_none() {
            return id;
        }
    }
}

/// Removes a file that is certainly not referenced. That it stays behind is no reason to fail what was decided.
pub(super) async fn remove(storage: &Storage, location: &str) {
    if let Err(error) = storage.delete(location).await {
        tracing::warn!(location, error = iceferry_common::fault::chain(&error), "left an unreferenced file behind");
    }
}
