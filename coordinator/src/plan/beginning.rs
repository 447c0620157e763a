//! Whether a table's history begins with what is left of it. Some writers cut a history off when they expire snapshots: the
//! oldest snapshot that stays then has no parent, and holds files that others added.

use std::sync::Arc;

use iceberg::spec::{ManifestFile, TableMetadata, TableMetadataRef};
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::Storage;

use super::manifests::Reader;
use super::{ManifestLists, PlanError, PlanOptions};

/// The first snapshot in the history of another, when it did not start from nothing.
///
/// # Errors
/// When its manifest list cannot be read.
pub async fn root_with_a_past(
    table: &str,
    storage: &Storage,
    metadata: &TableMetadataRef,
    lists: &ManifestLists,
    through: SnapshotId,
) -> Result<Option<SnapshotId>, PlanError> {
    let root = root(metadata, through);
    let reader = Reader {
        table: table.to_owned(),
        storage: storage.clone(),
        metadata: Arc::clone(metadata),
        at_once: PlanOptions::of_table(metadata).manifests_at_once,
        lists: lists.clone(),
        bytes_read: Arc::default(),
    };
    let list = reader.list(root, &mut 0).await?;
    Ok(list.iter().any(|named| is_older(&named.file, root)).then_some(root))
}

fn root(metadata: &TableMetadata, through: SnapshotId) -> SnapshotId {
    let parent = |id: i64| metadata.snapshot_by_id(id)?.parent_snapshot_id();
    // As many steps as there are snapshots: a loop of parents would be damaged metadata.
    let steps = std::iter::successors(Some(through.0), |id| parent(*id)).take(metadata.snapshots().len());
    SnapshotId(steps.last().unwrap_or(through.0))
}

/// Whether a manifest has files that a snapshot did not add itself: it is of another one, or was rewritten from such.
fn is_older(manifest: &ManifestFile, root: SnapshotId) -> bool {
    manifest.added_snapshot_id != root.0 || manifest.existing_files_count.is_some_and(|files| files > 0)
}
