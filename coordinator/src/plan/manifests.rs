//! Which manifests two states have, and reading manifest lists and manifests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, Stream};
use iceberg::spec::{FormatVersion, ManifestFile, ManifestList, TableMetadataRef};
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::Storage;

use super::ahead::{Ahead, Give};
use super::entry::{DataEntry, Decoding, DeleteEntry, Wanted};
use super::error::{FileProblem, PlanError};
use super::lists::ManifestLists;
use super::manifest;

/// A manifest and the snapshot whose list names it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) file: ManifestFile,
    pub(super) snapshot: SnapshotId,
}

/// The manifests of two states.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub(super) before_only: Vec<Named>,
    pub(super) after_only: Vec<Named>,
    pub(super) shared: Vec<Named>,
}

/// Splits the manifests of two states by where they are. A manifest never changes, so one that is in both has the same
/// entries in both; an entry inherits its sequence number from the list, which is why that has to be the same too.
pub(super) fn compare(before: Vec<Named>, after: Vec<Named>) -> Result<Manifests, FileProblem> {
    let mut paths = HashSet::new();
    for list in [&before, &after] {
        paths.clear();
        for manifest in list {
            if !paths.insert(manifest.file.manifest_path.as_str()) {
                let problem = format!("snapshot {} lists this manifest twice", manifest.snapshot);
                return Err(FileProblem::corrupt(&manifest.file.manifest_path, problem));
            }
        }
    }
    let mut of_before: HashMap<String, Named> =
        before.into_iter().map(|manifest| (manifest.file.manifest_path.clone(), manifest)).collect();
    let mut manifests = Manifests::default();
    for manifest in after {
        match of_before.remove(&manifest.file.manifest_path) {
            Some(earlier)
                if earlier.file.sequence_number == manifest.file.sequence_number
                    && earlier.file.content == manifest.file.content
                    && earlier.file.partition_spec_id == manifest.file.partition_spec_id =>
            {
                manifests.shared.push(manifest);
            }
            Some(earlier) => {
                manifests.before_only.push(earlier);
                manifests.after_only.push(manifest);
            }
            None => manifests.after_only.push(manifest),
        }
    }
    manifests.before_only.extend(of_before.into_values());
    manifests.before_only.sort_by(|a, b| a.file.manifest_path.cmp(&b.file.manifest_path));
    Ok(manifests)
}

/// Reads the metadata files of one table. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) table: String,
    pub(super) storage: Storage,
    pub(super) metadata: TableMetadataRef,
    pub(super) at_once: usize,
    pub(super) lists: ManifestLists,
    /// Bytes that were read.
    pub(super) bytes_read: Arc<AtomicU64>,
}

impl Reader {
    /// The manifests of a snapshot; `read` counts the list unless an earlier plan left it.
    pub(super) async fn list(&self, snapshot: SnapshotId, read: &mut u64) -> Result<Arc<Vec<Named>>, PlanError> {
        const WHAT: &str = "manifest list";
        let metadata = self.metadata.snapshot_by_id(snapshot.0);
        let gone = || PlanError::SnapshotGone { table: self.table.clone(), snapshot };
        let metadata = metadata.ok_or_else(gone)?;
        let location = metadata.manifest_list();
        if location.is_empty() {
            let problem = "it names its manifests without a manifest list, as only very old writers do; commit to the \
                           table with a current engine, and copy it from there";
            return Err(FileProblem::refused(&format!("snapshot {snapshot}"), problem).of_table(&self.table));
        }
        if metadata.encryption_key_id().is_some() {
            let problem = "the manifest list is encrypted, which is not supported yet; copy the table unencrypted";
            return Err(FileProblem::refused(location, problem).of_table(&self.table));
        }
        if let Some(list) = self.lists.get(location) {
            return Ok(list);
        }
        *read += 1;
        let version = self.metadata.format_version();
        let bytes = self.fetch(WHAT, location.to_owned(), snapshot).await?;
        let decode = move || {
            let list = ManifestList::parse_with_version(&bytes, list_version(&bytes, version))?;
            Ok((list, manifest::entry_count(&bytes)))
        };
        let (location, table) = (location.to_owned(), self.table.clone());
        let (list, entries) = match tokio::task::spawn_blocking(decode).await {
            Ok(Ok((list, Ok(entries)))) => (list, entries),
            Ok(Ok((_, Err(problem)))) => return Err(FileProblem::corrupt(&location, problem).of_table(&table)),
            Ok(Err(source)) => {
                let source = Box::new(source);
                return Err(PlanError::Decode { what: WHAT, location, snapshot, table, source });
            }
            Err(source) => return Err(PlanError::Broken { location, table, source }),
        };
        // The crate takes an empty block for the end of a file, and the manifests behind it would be missing without a word.
        if entries != list.entries().len() as u64 {
            let problem = format!(
                "the manifest list has {entries} manifests, of which {} can be read; rewrite the table's manifests",
                list.entries().len()
            );
            return Err(FileProblem::corrupt(&location, problem).of_table(&self.table));
        }
        let named = list.consume_entries().into_iter().map(|file| Named { file, snapshot });
        let named = Arc::new(named.collect());
        self.lists.keep(&location, &named);
        Ok(named)
    }

    /// The live data files of manifests, in their order, some at a time.
    pub(super) fn data(
        &self,
        manifests: Vec<Named>,
        decoding: &Arc<Decoding>,
        wanted: &Arc<Wanted>,
    ) -> impl Stream<Item = Result<Vec<DataEntry>, PlanError>> + Send + use<> {
        let (decoding, wanted) = (Arc::clone(decoding), Arc::clone(wanted));
        let decode =
            move |of: &ManifestFile, bytes: &[u8], give: Give<'_, DataEntry>| decoding.data(of, bytes, &wanted, give);
        self.entries(manifests, decode)
    }

    /// The live delete files of manifests, likewise.
    pub(super) fn deletes(
        &self,
        manifests: Vec<Named>,
        decoding: &Arc<Decoding>,
    ) -> impl Stream<Item = Result<Vec<DeleteEntry>, PlanError>> + Send + use<> {
        let decoding = Arc::clone(decoding);
        let decode =
            move |of: &ManifestFile, bytes: &[u8], give: Give<'_, DeleteEntry>| decoding.deletes(of, bytes, give);
        self.entries(manifests, decode)
    }

    fn entries<T, D>(
        &self,
        manifests: Vec<Named>,
        decode: D,
    ) -> impl Stream<Item = Result<Vec<T>, PlanError>> + Send + use<T, D>
    where
        T: Send + 'static,
        D: Fn(&ManifestFile, &[u8], Give<'_, T>) -> Result<(), FileProblem> + Send + Sync + 'static,
    {
        let ahead = Ahead::new(self.clone(), manifests, Arc::new(decode));
        stream::try_unfold(ahead, |mut ahead| async move {
            let next = ahead.next().await?;
            Ok(next.map(|entries| (entries, ahead)))
        })
    }

    /// The bytes of a metadata file.
    pub(super) async fn fetch(
        &self,
        what: &'static str,
        location: String,
        snapshot: SnapshotId,
    ) -> Result<Bytes, PlanError> {
        match self.storage.read(&location).await {
            Ok(bytes) => {
                self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(bytes)
            }
            Err(source) => Err(PlanError::Read { what, location, snapshot, table: self.table.clone(), source }),
        }
    }
}

/// The format version that a manifest list was written in. A table that was upgraded keeps its older lists, and those
/// lack the columns of the newer ones; the file's own schema, in its header, tells.
pub(super) fn list_version(bytes: &[u8], table: FormatVersion) -> FormatVersion {
    /// Longer than any header of a manifest list, whose schema has a fixed shape.
    const HEADER_BYTES: usize = 32 * 1024;
    let name: &[u8] = b"\"sequence_number\"";
    let header = &bytes[..bytes.len().min(HEADER_BYTES)];
    if header.windows(name.len()).any(|window| window == name) {
        table.max(FormatVersion::V2)
    } else {
        FormatVersion::V1
    }
}
