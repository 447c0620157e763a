//! Merging: manifests of earlier commits -> fewer ones with the same live entries.
//!
//! A commit of a few files leaves a small manifest or two. A reader opens them all, so from time to time a commit rewrites
//! many into one. Manifests that are not merged are carried over unread. Whatever stands in the way of a merge is logged,
//! and the old manifests stay as they are: no commit fails because of it.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{
    FormatVersion, Manifest as Parsed, ManifestContentType, ManifestEntry, ManifestFile, ManifestStatus,
};
use iceferry_common::entry;
use iceferry_common::fault::chain;
use iceferry_common::storage::{Storage, StorageError};
use uuid::Uuid;

use super::CommitError;
use super::attempt::{NewSnapshot, remove, require_all};
use super::bins::{MergeSettings, to_merge};
use super::manifest::{Form, Manifest, Origin};
use super::row_delta::off_thread;
use super::settings::merge_settings;
use crate::catalog::LoadedTable;

/// Manifests that are read at once; together those of a bin have the target size at most.
const READ_AT_ONCE: usize = 16;
/// From this attempt on nothing is merged: others commit faster than a merge takes.
const ATTEMPTS_WITH_MERGE: u32 = 3;

/// The manifests of a snapshot that is to be.
#[derive(Debug)]
pub(super) struct Manifests {
    /// All of them, those of the commit itself first.
    pub(super) list: Vec<ManifestFile>,
    /// Locations of those that were merged for this very attempt.
    pub(super) merged: Vec<String>,
    /// How many a merge took the place of.
    replaced: usize,
    /// Live entries that were rewritten.
    entries: u64,
}

impl Manifests {
    /// What the snapshot's summary says about them, in the words of Iceberg's own writers.
    pub(super) fn counts(&self, new: usize) -> impl Iterator<Item = (String, String)> {
        let created = new + self.merged.len();
        let processed = (self.replaced > 0).then_some(("entries-processed", self.entries));
        [
            ("manifests-created", created as u64),
            ("manifests-kept", self.list.len().saturating_sub(created) as u64),
            ("manifests-replaced", self.replaced as u64),
        ]
        .into_iter()
        .chain(processed)
        .map(|(key, count)| (key.to_owned(), count.to_string()))
    }

    pub(super) async fn remove_merged(&self, storage: &Storage) {
        for location in &self.merged {
            remove(storage, location).await;
        }
    }
}

/// Why a merge did not come about.
#[derive(Debug, thiserror::Error)]
enum MergeError {
    #[error("manifest {0} is encrypted")]
    Encrypted(String),
    #[error("storage failed")]
    Storage(#[from] StorageError),
    #[error("manifest {location} cannot be read")]
    Unreadable { location: String, source: Box<iceberg::Error> },
    #[error("entry {file} of manifest {location} has no {what}")]
    Incomplete { location: String, file: String, what: &'static str },
    #[error("entry {file} of manifest {location} cannot be written again")]
    Unwritable { location: String, file: String, source: Box<iceberg::Error> },
    #[error("begin a manifest")]
    Form(#[source] Box<iceberg::Error>),
    #[error(transparent)]
    Thread(#[from] CommitError),
}

/// The manifests of a snapshot on this base: the new ones, then those of its parent, merged where there are many. The
/// `number`th attempt.
///
/// # Errors
/// [`CommitError::Property`] alone.
pub(super) async fn merge(
    base: &LoadedTable,
    new: &NewSnapshot,
    carried_over: Vec<ManifestFile>,
    number: u32,
) -> Result<Manifests, CommitError> {
    let settings = merge_settings(&base.metadata)?;
    let list = new.manifests.iter().cloned().chain(carried_over).collect();
    let mut manifests = Manifests { list, merged: Vec::new(), replaced: 0, entries: 0 };
    if new.manifests.is_empty() || number >= ATTEMPTS_WITH_MERGE {
        return Ok(manifests);
    }
    let mut kept: Vec<Option<ManifestFile>> = std::mem::take(&mut manifests.list).into_iter().map(Some).collect();
    for content in [ManifestContentType::Data, ManifestContentType::Deletes] {
        for bin in bins(&kept, new.manifests.len(), content, base, &settings) {
            let old: Vec<ManifestFile> = bin.iter().filter_map(|at| kept[*at].clone()).collect();
            match merge_bin(base, new, content, &old).await {
                Ok((merged, entries)) => {
                    bin.iter().for_each(|at| kept[*at] = None);
                    manifests.replaced += old.len();
                    manifests.entries += entries;
                    manifests.merged.extend(merged.iter().map(|merged| merged.manifest_path.clone()));
                    // The place of the newest of them.
                    kept[bin[0]] = merged;
                }
                Err(error) => {
                    let (table, error, manifests) = (base.ident.to_string(), chain(&error), old.len());
                    tracing::warn!(table, manifests, error, "manifests could not be merged; they stay as they are");
                }
            }
        }
    }
    if manifests.replaced > 0 {
        let (table, merged, replaced) = (base.ident.to_string(), manifests.merged.len(), manifests.replaced);
        tracing::info!(table, replaced, merged, entries = manifests.entries, "manifests merged");
    }
    manifests.list = kept.into_iter().flatten().collect();
    Ok(manifests)
}

/// The bins to merge, as places in the list. Manifests of other specs than the default one stay: targets are written in
/// the default spec alone, so they do not grow in number.
fn bins(
    list: &[Option<ManifestFile>],
    new: usize,
    content: ManifestContentType,
    base: &LoadedTable,
    settings: &MergeSettings,
) -> Vec<Vec<usize>> {
    let spec = base.metadata.default_partition_spec_id();
    let is_one = |file: &ManifestFile| file.content == content && file.partition_spec_id == spec;
    let places: Vec<(usize, u64)> = list
        .iter()
        .enumerate()
        .filter_map(|(at, file)| file.as_ref().filter(|file| is_one(file)).map(|file| (at, file)))
        .map(|(at, file)| (at, u64::try_from(file.manifest_length).unwrap_or(0)))
        .collect();
    let sizes: Vec<u64> = places.iter().map(|(_, size)| *size).collect();
    let new = places.iter().take_while(|(at, _)| *at < new).count();
    let ranges = to_merge(&sizes, new, settings).into_iter();
    ranges.map(|range| places[range].iter().map(|(at, _)| *at).collect()).collect()
}

/// Rewrites manifests into one; none when nothing in them is alive. Gives how many entries are.
async fn merge_bin(
    base: &LoadedTable,
    new: &NewSnapshot,
    content: ManifestContentType,
    old: &[ManifestFile],
) -> Result<(Option<ManifestFile>, u64), MergeError> {
    let form = Form::new(&base.metadata, content, new.id).await.map_err(|source| MergeError::Form(Box::new(source)))?;
    let reading = old.iter().cloned().map(|file| {
        let storage = base.storage.clone();
        async move {
            if file.key_metadata.as_ref().is_some_and(|key| !key.is_empty()) {
                return Err(MergeError::Encrypted(file.manifest_path));
            }
            let bytes = storage.read(&file.manifest_path).await?;
            Ok((file, bytes))
        }
    });
    let read: Vec<(ManifestFile, Bytes)> = stream::iter(reading).buffered(READ_AT_ONCE).try_collect().await?;
    let location = format!("{}/{}-merged.avro", new.folder, Uuid::new_v4());
    let has_row_ids = base.metadata.format_version() >= FormatVersion::V3;
    let made = off_thread("merge manifests", move || rewrite(read, form, has_row_ids, location)).await??;
    let Some((bytes, merged, entries)) = made else { return Ok((None, 0)) };
    if let Err(error) = base.storage.write(&merged.manifest_path, bytes).await {
        remove(&base.storage, &merged.manifest_path).await;
        return Err(error.into());
    }
    Ok((Some(merged), entries))
}

type Made = Option<(Bytes, ManifestFile, u64)>;

fn rewrite(old: Vec<(ManifestFile, Bytes)>, form: Form, has_row_ids: bool, to: String) -> Result<Made, MergeError> {
    let bytes = old.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut manifest = Manifest::new(form, bytes);
    let mut entries = 0;
    // One after another, each gone before the next is taken apart.
    for (file, bytes) in old {
        let location = &file.manifest_path;
        let parsed =
            Parsed::parse_avro(&bytes).and_then(|parsed| require_all(&bytes, parsed.entries().len()).map(|()| parsed));
        let parsed =
            parsed.map_err(|source| MergeError::Unreadable { location: location.clone(), source: Box::new(source) })?;
        let mut row_ids = RowIds::of(&file, has_row_ids);
        for entry in parsed.entries().iter().filter(|entry| entry.is_alive()) {
            let data_file = entry.data_file();
            let of = || (location.clone(), data_file.file_path().to_owned());
            let origin = origin(&file, entry).map_err(|what| {
                let (location, file) = of();
                MergeError::Incomplete { location, file, what }
            })?;
            let first_row_id = row_ids.next(data_file.first_row_id(), data_file.record_count());
            let encoded = entry::encode(data_file, first_row_id).map_err(|source| {
                let (location, file) = of();
                MergeError::Unwritable { location, file, source: Box::new(source) }
            })?;
            manifest.add(origin, &encoded, data_file.record_count());
            entries += 1;
        }
    }
    Ok((entries > 0).then(|| {
        let (bytes, file) = manifest.finish(to);
        (bytes, file, entries)
    }))
}

/// What an entry says, or inherits from its manifest, of where it comes from: written out, since in another manifest it
/// would inherit something else.
fn origin(file: &ManifestFile, entry: &ManifestEntry) -> Result<Origin, &'static str> {
    // In manifests from before sequence numbers, all that is missing is 0.
    let inherits = entry.status() == ManifestStatus::Added || file.sequence_number == 0;
    let inherited = inherits.then_some(file.sequence_number);
    Ok(Origin {
        status: ManifestStatus::Existing,
        snapshot_id: entry.snapshot_id().unwrap_or(file.added_snapshot_id),
        sequence_number: Some(entry.sequence_number().or(inherited).ok_or("sequence number")?),
        file_sequence_number: Some(entry.file_sequence_number.or(inherited).ok_or("file sequence number")?),
    })
}

/// First row ids, as live entries inherit them from their manifest one after another. A manifest from before an upgrade has
/// none to give: its files inherit theirs from the merged manifest, to which the commit gives one.
struct RowIds {
    next: Option<u64>,
}

impl RowIds {
    fn of(file: &ManifestFile, has_row_ids: bool) -> Self {
        let is_data = file.content == ManifestContentType::Data;
        Self { next: file.first_row_id.filter(|_| has_row_ids && is_data) }
    }

    fn next(&mut self, own: Option<i64>, record_count: u64) -> Option<i64> {
        let next = self.next?;
        if own.is_some() {
            return own;
        }
        self.next = next.checked_add(record_count);
        i64::try_from(next).ok()
    }
}
