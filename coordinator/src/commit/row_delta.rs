//! The row delta: staged files -> manifests. They are written once for an epoch and serve every attempt to commit it:
//! their entries take their sequence number from the manifest list.

use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, stream};
use iceberg::spec::{ManifestContentType, ManifestFile};
use iceferry_common::model::{StagedContent, StagedFile};
use iceferry_common::storage::Storage;
use uuid::Uuid;

use super::attempt::NewSnapshot;
use super::check::check_staged;
use super::manifest::{Form, Manifest, Origin};
use super::runs::run_metadata_folder;
use super::settings::manifest_target_bytes;
use super::{CommitError, EpochCommit};
use crate::catalog::LoadedTable;

/// Manifests that are made and written at once: enough for the cores of a small machine, while what is held of them stays
/// below a few target sizes.
pub(super) const MANIFESTS_AT_ONCE: usize = 3;
/// What an entry has beside its data file, about: status, snapshot id, two sequence numbers.
const ENTRY_OVERHEAD_BYTES: u64 = 14;

/// Checks the staged files of an epoch, then writes its manifests. Nothing of them is left behind when one cannot be
/// written.
///
/// # Errors
/// [`CommitError::Staged`] for a file that breaks a promise, before anything is written; others when a manifest cannot be
/// written.
pub(super) async fn write_manifests(
    table: &LoadedTable,
    commit: &EpochCommit,
    id: i64,
) -> Result<NewSnapshot, CommitError> {
    let version = table.metadata.format_version();
    let whole = commit.clone();
    let added = off_thread("check staged files", move || check_staged(&whole, version)).await??;
    let limit = manifest_target_bytes(&table.metadata)?;
    let folder = run_metadata_folder(&table.metadata, &commit.job, &commit.run);
    let name = Uuid::new_v4();
    let mut parts: Vec<(Form, Range<usize>)> = Vec::new();
    for content in [ManifestContentType::Data, ManifestContentType::Deletes] {
        let ranges = cut(&commit.staged, content, limit);
        if ranges.is_empty() {
            continue;
        }
        let form = Form::new(&table.metadata, content, id).await;
        let form = form.map_err(|error| CommitError::iceberg(format!("begin manifests of {commit}"), error))?;
        parts.extend(ranges.into_iter().map(|range| (form.clone(), range)));
    }
    let writing = parts.into_iter().enumerate().map(|(number, (form, range))| {
        let location = format!("{folder}/{name}-m{number}.avro");
        write_manifest(table.storage.clone(), Arc::clone(&commit.staged), form, range, location)
    });
    let mut writing = stream::iter(writing).buffered(MANIFESTS_AT_ONCE);
    let mut new = NewSnapshot { id, added, manifests: Vec::new(), folder: folder.clone() };
    let mut failure = None;
    // All that were begun are awaited: one that is under way would appear behind the back of who removes them.
    while let Some(written) = writing.next().await {
        match written {
            Ok(manifest) => new.manifests.push(manifest),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    drop(writing);
    match failure {
        None => Ok(new),
        Some(error) => {
            new.remove_manifests(&table.storage).await;
            Err(error)
        }
    }
}

async fn write_manifest(
    storage: Storage,
    staged: Arc<Vec<StagedFile>>,
    form: Form,
    range: Range<usize>,
    location: String,
) -> Result<ManifestFile, CommitError> {
    let made = off_thread("make a manifest", move || make_manifest(&staged[range], form, location));
    let (bytes, manifest) = made.await?;
    let written = storage.write(&manifest.manifest_path, bytes).await;
    written.map_err(|source| CommitError::storage(format!("write manifest {}", manifest.manifest_path), source))?;
    Ok(manifest)
}

fn make_manifest(staged: &[StagedFile], form: Form, location: String) -> (bytes::Bytes, ManifestFile) {
    let (content, origin) = (form.content(), Origin::added(form.snapshot_id()));
    let files = || staged.iter().filter(|file| content_of(file) == content);
    let bytes: u64 = files().map(entry_bytes).sum();
    let mut manifest = Manifest::new(form, usize::try_from(bytes).unwrap_or(0));
    files().for_each(|file| manifest.add(origin, &file.data_file, file.record_count));
    manifest.finish(location)
}

fn content_of(file: &StagedFile) -> ManifestContentType {
    match file.content {
        StagedContent::Data => ManifestContentType::Data,
        _ => ManifestContentType::Deletes,
    }
}

fn entry_bytes(file: &StagedFile) -> u64 {
    file.data_file.len() as u64 + ENTRY_OVERHEAD_BYTES
}

/// Cuts the staged files into ranges whose files of this content take about `limit` bytes, at least one file each.
fn cut(staged: &[StagedFile], content: ManifestContentType, limit: u64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, file) in staged.iter().enumerate().filter(|(_, file)| content_of(file) == content) {
        let more = entry_bytes(file);
        if bytes > 0 && bytes + more > limit {
            ranges.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += more;
    }
    if bytes > 0 {
        ranges.push(start..staged.len());
    }
    ranges
}

/// Does what holds the CPU on a blocking thread.
///
/// # Errors
/// [`CommitError::Broken`] when it panicked, or the process is about to end.
pub(super) async fn off_thread<T: Send + 'static>(
    act: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CommitError> {
    tokio::task::spawn_blocking(work).await.map_err(|source| CommitError::Broken { act, source })
}
