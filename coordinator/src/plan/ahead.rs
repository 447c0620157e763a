//! Manifests under way: fetched ahead, decoded on several threads, and their entries given in the order of the manifests.
//!
//! What is held is bounded: the bytes of manifests that are fetched and not decoded, and the entries that are decoded and not
//! taken. Only the manifest whose turn it is and those right behind it are decoded, so what the others hold never keeps it
//! from going on.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::spec::ManifestFile;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::task::AbortOnDropHandle;

use super::error::{FileProblem, PlanError};
use super::manifests::{Named, Reader};

/// Bytes of the manifests that are under way at most, save that one always may be. Writers aim at 8 MiB for each.
const BYTES_AHEAD_MAX: u64 = 32 * 1024 * 1024;
/// Chunks of entries that wait to be taken at most, of all manifests that are being decoded.
const CHUNKS_AHEAD_MAX: usize = 64;
/// Manifests that are decoded at once at most, whatever the machine has: more than this the planner does not take.
const DECODERS_MAX: usize = 16;

/// What goes on with the entries that were decoded.
pub(super) type Give<'a, T> = &'a mut dyn FnMut(Vec<T>) -> ControlFlow<()>;

/// Manifests under way, decoded by `decode` to entries of `T`.
pub(super) struct Ahead<T, D> {
    reader: Reader,
    decode: Arc<D>,
    waiting: Peekable<std::vec::IntoIter<Named>>,
    fetching: VecDeque<Fetching>,
    decoding: VecDeque<Decoding<T>>,
    bytes_ahead: u64,
    decoders: usize,
}

struct Fetching {
    file: ManifestFile,
    bytes: AbortOnDropHandle<Result<Bytes, PlanError>>,
}

struct Decoding<T> {
    location: String,
    length: u64,
    chunks: mpsc::Receiver<Vec<T>>,
    /// It ends by itself once nobody takes its chunks any more.
    end: JoinHandle<Result<(), FileProblem>>,
}

/// What comes next.
enum Event<T> {
    Fetched(Result<Result<Bytes, PlanError>, JoinError>),
    Chunk(Option<Vec<T>>),
}

impl<T, D> Ahead<T, D>
where
    T: Send + 'static,
    D: Fn(&ManifestFile, &[u8], Give<'_, T>) -> Result<(), FileProblem> + Send + Sync + 'static,
{
    pub(super) fn new(reader: Reader, manifests: Vec<Named>, decode: Arc<D>) -> Self {
        let decoders = std::thread::available_parallelism().map_or(1, usize::from).min(DECODERS_MAX);
        Self {
            reader,
            decode,
            waiting: manifests.into_iter().peekable(),
            fetching: VecDeque::new(),
            decoding: VecDeque::new(),
            bytes_ahead: 0,
            decoders,
        }
    }

    /// The next entries; `None` when all have been given.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<T>>, PlanError> {
        loop {
            self.fetch_more().map_err(|error| *error)?;
            let may_decode = self.decoding.len() < self.decoders;
            let (fetching, decoding) = (self.fetching.front_mut(), self.decoding.front_mut());
            let event = match (fetching.filter(|_| may_decode), decoding) {
                (None, None) => return Ok(None),
                (Some(fetching), None) => Event::Fetched((&mut fetching.bytes).await),
                (None, Some(decoding)) => Event::Chunk(decoding.chunks.recv().await),
                (Some(fetching), Some(decoding)) => tokio::select! {
                    biased;
                    bytes = &mut fetching.bytes => Event::Fetched(bytes),
                    chunk = decoding.chunks.recv() => Event::Chunk(chunk),
                },
            };
            match event {
                Event::Fetched(bytes) => self.fetched(bytes).map_err(|error| *error)?,
                Event::Chunk(Some(chunk)) => return Ok(Some(chunk)),
                Event::Chunk(None) => self.decoded().await?,
            }
        }
    }

    /// Begins to fetch manifests while there is room for them.
    fn fetch_more(&mut self) -> Result<(), Box<PlanError>> {
        loop {
            let under_way = self.fetching.len() + self.decoding.len();
            let (bytes_ahead, at_once) = (self.bytes_ahead, self.reader.at_once.max(1));
            let has_room = |manifest: &Named| {
                let fits = bytes_ahead.saturating_add(length(&manifest.file)) <= BYTES_AHEAD_MAX;
                under_way == 0 || (under_way < at_once && fits)
            };
            let Some(Named { file, snapshot }) = self.waiting.next_if(has_room) else { return Ok(()) };
            if file.key_metadata.as_ref().is_some_and(|key| !key.is_empty()) {
                let problem = "the manifest is encrypted, which is not supported yet; copy the table unencrypted";
                return Err(FileProblem::refused(&file.manifest_path, problem).of_table(&self.reader.table).into());
            }
            self.bytes_ahead += length(&file);
            let (reader, location) = (self.reader.clone(), file.manifest_path.clone());
            let bytes = tokio::spawn(async move { reader.fetch("manifest", location, snapshot).await });
            self.fetching.push_back(Fetching { file, bytes: AbortOnDropHandle::new(bytes) });
        }
    }

    /// Begins to decode the manifest that was to be fetched first.
    fn fetched(&mut self, bytes: Result<Result<Bytes, PlanError>, JoinError>) -> Result<(), Box<PlanError>> {
        let Some(Fetching { file, .. }) = self.fetching.pop_front() else { return Ok(()) };
        let location = file.manifest_path.clone();
        let bytes = bytes.map_err(|source| self.broken(location.clone(), source))?.map_err(Box::new)?;
        let length = length(&file);
        // A file that is cut between two blocks looks whole, and its entries would be missing without a word.
        if (bytes.len() as u64) < length {
            let problem = format!("the manifest is cut short: {} bytes, and {length} by its list", bytes.len());
            return Err(FileProblem::corrupt(&location, problem).of_table(&self.reader.table).into());
        }
        let (sender, chunks) = mpsc::channel((CHUNKS_AHEAD_MAX / self.decoders).max(1));
        let decode = Arc::clone(&self.decode);
        let end = tokio::task::spawn_blocking(move || {
            let mut give = |chunk| match sender.blocking_send(chunk) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            decode(&file, &bytes, &mut give)
        });
        self.decoding.push_back(Decoding { location, length, chunks, end });
        Ok(())
    }

    /// The first manifest has been decoded, or decoding it failed.
    async fn decoded(&mut self) -> Result<(), PlanError> {
        let Some(Decoding { location, length, end, .. }) = self.decoding.pop_front() else { return Ok(()) };
        self.bytes_ahead -= length;
        let end = end.await.map_err(|source| self.broken(location, source))?;
        end.map_err(|problem| problem.of_table(&self.reader.table))
    }

    fn broken(&self, location: String, source: JoinError) -> PlanError {
        PlanError::Broken { location, table: self.reader.table.clone(), source }
    }
}

/// Bytes of a manifest by its list.
fn length(manifest: &ManifestFile) -> u64 {
    u64::try_from(manifest.manifest_length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use iceberg::spec::{ManifestContentType, PartitionSpec, Schema};
    use iceferry_common::fault::{Class, Classified};
    use iceferry_common::model::SnapshotId;
    use iceferry_common::storage::{Storage, StorageProperties};

    use super::super::ManifestLists;
    use super::*;

    fn manifest(path: String, length: i64) -> Named {
        let file = ManifestFile {
            manifest_path: path,
            manifest_length: length,
            partition_spec_id: 0,
            content: ManifestContentType::Data,
            sequence_number: 1,
            min_sequence_number: 1,
            added_snapshot_id: 1,
            added_files_count: None,
            existing_files_count: None,
            deleted_files_count: None,
            added_rows_count: None,
            existing_rows_count: None,
            deleted_rows_count: None,
            partitions: None,
            key_metadata: None,
            first_row_id: None,
        };
        Named { file, snapshot: SnapshotId(1) }
    }

    fn reader(at_once: usize) -> Reader {
        let (schema, spec) = (Schema::builder().build().unwrap(), PartitionSpec::unpartition_spec());
        let metadata = serde_json::json!({
            "format-version": 2, "table-uuid": "5f3a9a9e-0c8b-4a0a-8f6e-0f1f5f6b7c2d", "location": "/t",
            "last-sequence-number": 0, "last-updated-ms": 0, "last-column-id": 0, "current-schema-id": 0,
            "schemas": [schema], "default-spec-id": 0, "partition-specs": [spec], "last-partition-id": 999,
            "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}], "properties": {},
        });
        Reader {
            table: "db.t".to_owned(),
            storage: Storage::new(StorageProperties::default()),
            metadata: Arc::new(serde_json::from_value(metadata).unwrap()),
            at_once,
            lists: ManifestLists::default(),
            bytes_read: Arc::default(),
        }
    }

    /// Files whose first byte is their number.
    fn files(folder: &std::path::Path, count: u8, length: usize) -> Vec<Named> {
        let file = |number: u8| {
            let path = folder.join(format!("{number}.avro")).display().to_string();
            std::fs::write(&path, vec![number; length]).unwrap();
            manifest(path, length as i64)
        };
        (0..count).map(file).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn entries_come_in_the_order_of_the_manifests_however_long_each_takes() {
        for at_once in [1, 3, 50] {
            let folder = tempfile::tempdir().unwrap();
            let decode = |_: &ManifestFile, bytes: &[u8], give: Give<'_, (u8, usize)>| {
                std::thread::sleep(std::time::Duration::from_millis(u64::from(bytes[0] % 5)));
                for chunk in 0..100 {
                    if give(vec![(bytes[0], chunk)]).is_break() {
                        break;
                    }
                }
                Ok(())
            };
            let reader = reader(at_once);
            let bytes_read = Arc::clone(&reader.bytes_read);
            let mut ahead = Ahead::new(reader, files(folder.path(), 20, 10), Arc::new(decode));
            let mut given = Vec::new();
            while let Some(entries) = ahead.next().await.unwrap() {
                given.extend(entries);
            }
            let expected: Vec<(u8, usize)> =
                (0..20).flat_map(|file| (0..100).map(move |chunk| (file, chunk))).collect();
            assert_eq!(given, expected);
            assert_eq!(bytes_read.load(Ordering::Relaxed), 200);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_nobody_takes_is_not_decoded_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        let decode = move |_: &ManifestFile, _: &[u8], give: Give<'_, ()>| {
            while give(vec![()]).is_continue() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let mut ahead = Ahead::new(reader(50), files(folder.path(), 50, 1), Arc::new(decode));
        ahead.next().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(given.load(Ordering::Relaxed) <= CHUNKS_AHEAD_MAX + 1 + DECODERS_MAX);
        assert!(ahead.decoding.len() <= ahead.decoders);
    }

    #[tokio::test]
    async fn few_large_manifests_are_fetched_ahead_and_many_small_ones() {
        let decode = |_: &ManifestFile, _: &[u8], _: Give<'_, ()>| Ok(());
        let half = BYTES_AHEAD_MAX as i64 / 2;
        for (length, expected) in [(half * 4, 1), (half, 2), (half / 2, 4), (1, 7)] {
            let manifests = (0..20).map(|number| manifest(format!("/nowhere/{number}"), length)).collect();
            let mut ahead: Ahead<(), _> = Ahead::new(reader(7), manifests, Arc::new(decode));
            ahead.fetch_more().unwrap();
            assert_eq!(ahead.fetching.len(), expected, "of {length} bytes");
        }
    }

    #[tokio::test]
    async fn a_manifest_that_is_shorter_than_its_list_says_is_corrupt() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifests = files(folder.path(), 3, 10);
        manifests[1].file.manifest_length = 11;
        let decode = |_: &ManifestFile, _: &[u8], give: Give<'_, ()>| {
            let _ = give(vec![()]);
            Ok(())
        };
        let mut ahead = Ahead::new(reader(1), manifests, Arc::new(decode));
        let error = loop {
            match ahead.next().await {
                Ok(given) => assert!(given.is_some(), "the error was lost"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.class(), Class::Corrupt);
        assert!(error.to_string().contains("1.avro"), "{error}");
    }

    #[tokio::test]
    async fn a_problem_or_a_panic_in_decoding_ends_it_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let decode = |of: &ManifestFile, bytes: &[u8], give: Give<'_, ()>| match bytes[0] {
            0 => {
                let _ = give(vec![()]);
                Err(FileProblem::corrupt(&of.manifest_path, "it is broken"))
            }
            _ => panic!("it broke"),
        };
        let decode = Arc::new(decode);
        let manifests = files(folder.path(), 2, 10);
        let mut ahead = Ahead::new(reader(1), manifests[..1].to_vec(), Arc::clone(&decode));
        assert!(ahead.next().await.unwrap().is_some());
        assert_eq!(ahead.next().await.unwrap_err().class(), Class::Corrupt);
        let mut ahead = Ahead::new(reader(1), manifests[1..].to_vec(), decode);
        assert_eq!(ahead.next().await.unwrap_err().class(), Class::Bug);
    }
}
