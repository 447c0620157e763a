//! Reading manifest lists and manifests: fetched in order, a bounded number ahead, and decoded off the async threads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use iceberg::spec::{FormatVersion, Manifest, ManifestFile, ManifestList, TableMetadataRef};
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::Storage;

use super::entry::{DataEntry, Decoding, DeleteEntry, Wanted};
use super::error::{FileProblem, PlanError};
use super::lists::ManifestLists;
use super::partition_names;

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

/// Reads the metadata files of one table.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) table: String,
    pub(super) storage: Storage,
    pub(super) metadata: TableMetadataRef,
    pub(super) at_once: usize,
    pub(super) lists: ManifestLists,
}

/// Why decoding failed.
enum DecodeError {
    Iceberg(iceberg::Error),
    Problem(FileProblem),
}

impl Reader {
    /// The manifests of a snapshot; `read` counts the list unless an earlier plan left it.
    pub(super) async fn list(&self, snapshot: SnapshotId, read: &mut u64) -> Result<Arc<Vec<Named>>, PlanError> {
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
        let decode = move |bytes: &[u8]| {
            ManifestList::parse_with_version(bytes, list_version(bytes, version)).map_err(DecodeError::Iceberg)
        };
        let list = self.fetch("manifest list", location.to_owned(), snapshot, decode).await?;
        let named = list.consume_entries().into_iter().map(|file| Named { file, snapshot });
        let named = Arc::new(named.collect());
        self.lists.keep(location, &named);
        Ok(named)
    }

    /// The live data files of manifests, in their order.
    pub(super) fn data(
        &self,
        manifests: Vec<Named>,
        decoding: &Arc<Decoding>,
        wanted: &Arc<Wanted>,
    ) -> impl Stream<Item = Result<Vec<DataEntry>, PlanError>> + Send + use<'_> {
        let (decoding, wanted) = (Arc::clone(decoding), Arc::clone(wanted));
        self.read(
            manifests,
            Arc::new(move |of: &ManifestFile, manifest: &Manifest| decoding.data(of, manifest, &wanted)),
        )
    }

    /// The live delete files of manifests, in their order.
    pub(super) fn deletes(
        &self,
        manifests: Vec<Named>,
        decoding: &Arc<Decoding>,
    ) -> impl Stream<Item = Result<Vec<DeleteEntry>, PlanError>> + Send + use<'_> {
        let decoding = Arc::clone(decoding);
        self.read(manifests, Arc::new(move |of: &ManifestFile, manifest: &Manifest| decoding.deletes(of, manifest)))
    }

    /// What `decode` makes of each manifest, in their order.
    fn read<T, F>(
        &self,
        manifests: Vec<Named>,
        decode: Arc<F>,
    ) -> impl Stream<Item = Result<Vec<T>, PlanError>> + Send + '_
    where
        T: Send + 'static,
        F: Fn(&ManifestFile, &Manifest) -> Result<Vec<T>, FileProblem> + Send + Sync + 'static,
    {
        let read_one = move |manifest: Named| {
            let decode = Arc::clone(&decode);
            async move {
                let Named { file, snapshot } = manifest;
                if file.key_metadata.as_ref().is_some_and(|key| !key.is_empty()) {
                    let problem = "the manifest is encrypted, which is not supported yet; copy the table unencrypted";
                    return Err(FileProblem::refused(&file.manifest_path, problem).of_table(&self.table));
                }
                let location = file.manifest_path.clone();
                let decode = move |bytes: &[u8]| {
                    let corrupt = |problem| DecodeError::Problem(FileProblem::corrupt(&file.manifest_path, problem));
                    let plain = partition_names::plain(bytes).map_err(corrupt)?;
                    let bytes = plain.as_deref().unwrap_or(bytes);
                    let manifest = Manifest::parse_avro(bytes).map_err(DecodeError::Iceberg)?;
                    decode(&file, &manifest).map_err(DecodeError::Problem)
                };
                self.fetch("manifest", location, snapshot, decode).await
            }
        };
        stream::iter(manifests).map(read_one).buffered(self.at_once.max(1))
    }

    async fn fetch<T, F>(
        &self,
        what: &'static str,
        location: String,
        snapshot: SnapshotId,
        decode: F,
    ) -> Result<T, PlanError>
    where
        T: Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, DecodeError> + Send + 'static,
    {
        let table = || self.table.clone();
        let bytes: Bytes = match self.storage.read(&location).await {
            Ok(bytes) => bytes,
            Err(source) => return Err(PlanError::Read { what, location, snapshot, table: table(), source }),
        };
        match tokio::task::spawn_blocking(move || decode(&bytes)).await {
            Ok(Ok(decoded)) => Ok(decoded),
            Ok(Err(DecodeError::Iceberg(source))) => {
                Err(PlanError::Decode { what, location, snapshot, table: table(), source: Box::new(source) })
            }
            Ok(Err(DecodeError::Problem(problem))) => Err(problem.of_table(&self.table)),
            Err(source) => Err(PlanError::Broken { location, table: table(), source }),
        }
    }
}

/// The format version that a manifest list was written in. A table that was upgraded keeps its older lists, and those
/// lack the columns of the newer ones; the file's own schema, in its header, tells.
fn list_version(bytes: &[u8], table: FormatVersion) -> FormatVersion {
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
