//! The difference of two states, from their manifest lists to tasks on their way.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;

use futures::TryStreamExt;
use iceberg::spec::{ManifestContentType, ManifestFile};
use iceferry_common::model::{CarryOver, DataFile, DeleteKind, FileDifference, FileFormat, ScanTask, Side, TaskId};
use tokio::sync::mpsc;

use super::entry::{DataEntry, Decoding, DeleteEntry, Scope};
use super::error::{FileProblem, PlanError};
use super::group;
use super::manifests::{self, Manifests, Named, Reader};
use super::pack::{self, Packer};
use super::reach::{DeleteId, DeleteIndex, Deletes, State};
use super::{PlanOptions, PlanRequest, PlanSummary};

/// What a row takes in memory, as a multiple of its bytes in a file: a guess for compressed columns.
const MEMORY_PER_FILE_BYTE: u64 = 4;
/// Columns whose bounds are compared when there is no key.
const COLUMNS_WITHOUT_KEY_MAX: usize = 4;

/// Why planning ended early.
enum Stop {
    /// Nobody takes the tasks any more.
    NobodyThere,
    Failed(PlanError),
}

impl From<PlanError> for Stop {
    fn from(error: PlanError) -> Self {
        Self::Failed(error)
    }
}

pub(super) async fn plan(request: PlanRequest, tasks: mpsc::Sender<ScanTask>) -> Result<PlanSummary, PlanError> {
    let mut summary = PlanSummary::default();
    match run(&request, tasks, &mut summary).await {
        Ok(()) => {
            summary.complete = true;
            Ok(summary)
        }
        Err(Stop::NobodyThere) => Ok(summary),
        Err(Stop::Failed(error)) => Err(error),
    }
}

async fn run(request: &PlanRequest, tasks: mpsc::Sender<ScanTask>, summary: &mut PlanSummary) -> Result<(), Stop> {
    if request.before == Some(request.after) {
        return Ok(());
    }
    let reader = Reader {
        table: request.table.clone(),
        storage: request.storage.clone(),
        metadata: Arc::clone(&request.metadata),
        at_once: request.options.manifests_at_once,
    };
    let of_table = |problem: FileProblem| Stop::Failed(problem.of_table(&request.table));
    let before = match request.before {
        Some(snapshot) => reader.list(snapshot).await?,
        None => Vec::new(),
    };
    let after = reader.list(request.after).await?;
    let (before, dead_before): (Vec<_>, Vec<_>) = before.into_iter().partition(holds_live_entries);
    let (after, dead_after): (Vec<_>, Vec<_>) = after.into_iter().partition(holds_live_entries);
    summary.manifests_skipped += (dead_before.len() + dead_after.len()) as u64;
    let is_data = |manifest: &Named| manifest.file.content == ManifestContentType::Data;
    let (data_before, deletes_before) = before.into_iter().partition(is_data);
    let (data_after, deletes_after) = after.into_iter().partition(is_data);
    let data = manifests::compare(data_before, data_after).map_err(of_table)?;
    let delete_manifests = manifests::compare(deletes_before, deletes_after).map_err(of_table)?;

    let decoding = Arc::new(Decoding::new(&request.metadata, Arc::clone(&request.read_schema)));
    let deletes = read_deletes(&reader, &decoding, &data, delete_manifests, summary).await?;
    let group_columns = group_columns(request, &decoding);
    let mut columns = decoding.comparable(&deletes.equality_columns().into_iter().collect::<Vec<_>>());
    columns.extend(&group_columns);
    columns.sort_unstable();
    columns.dedup();
    let shared = reached_by_changes(data.shared, &deletes, summary);

    let mut planner = Planner {
        table: &request.table,
        options: &request.options,
        before: deletes.index(State::Before),
        after: deletes.index(State::After),
        deletes: &deletes,
        used: HashSet::new(),
        keep: Packer::new(
            request.options.split_bytes,
            request.options.open_file_cost_bytes,
            request.options.differences_per_task_max,
        ),
        tasks,
        summary,
    };
    let decode = Arc::new(move |file: &ManifestFile, manifest: &iceberg::spec::Manifest| {
        decoding.data(file, manifest, &columns)
    });

    let mut only_before = HashMap::new();
    let mut live_before = Paths::default();
    planner.summary.manifests_opened += data.before_only.len() as u64;
    let mut entries = pin!(reader.read(data.before_only, Arc::clone(&decode)));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_before.add(&entry.path).map_err(of_table)?;
            only_before.insert(entry.path.clone(), entry);
        }
    }

    // Files that came wait for those that went, if some may have gone: they may be a rewrite of each other.
    let may_have_removed = !only_before.is_empty();
    let mut added = Vec::new();
    let mut live_after = Paths::default();
    planner.summary.manifests_opened += data.after_only.len() as u64;
    let mut entries = pin!(reader.read(data.after_only, Arc::clone(&decode)));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_after.add(&entry.path).map_err(of_table)?;
            match only_before.remove(&entry.path) {
                Some(earlier) => planner.in_both(&earlier, entry).await?,
                None if may_have_removed => added.push(entry),
                None => planner.added(&entry).await?,
            }
        }
    }

    planner.summary.manifests_opened += shared.len() as u64;
    let mut entries = pin!(reader.read(shared, decode));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_before.add(&entry.path).map_err(of_table)?;
            live_after.add(&entry.path).map_err(of_table)?;
            planner.unmoved(&entry).await?;
        }
    }

    let mut removed: Vec<DataEntry> = only_before.into_values().collect();
    removed.sort_by(|a, b| a.path.cmp(&b.path));
    planner.rewritten(&removed, &added, &group_columns).await?;
    planner.finish().await
}

/// Whether a manifest may hold live entries, and not only the record of deleted ones. Counts that are missing say nothing.
fn holds_live_entries(manifest: &Named) -> bool {
    manifest.file.has_added_files() || manifest.file.has_existing_files()
}

/// The columns by which a row that a rewrite carried over would be known: the key, or else the first ones.
fn group_columns(request: &PlanRequest, decoding: &Decoding) -> Vec<i32> {
    if !request.key.is_empty() {
        return decoding.comparable(&request.key);
    }
    let fields = request.read_schema.as_struct().fields().iter().filter(|field| field.field_type.is_primitive());
    let columns: Vec<i32> = fields.map(|field| field.id).take(COLUMNS_WITHOUT_KEY_MAX).collect();
    decoding.comparable(&columns)
}

/// Reads the delete manifests of both states. A shared one is left out when it can be seen from the lists that it
/// reaches no file that differs: no delete came or went, and all files that did are newer.
async fn read_deletes(
    reader: &Reader,
    decoding: &Arc<Decoding>,
    data: &Manifests,
    manifests: Manifests,
    summary: &mut PlanSummary,
) -> Result<Deletes, PlanError> {
    let deletes_changed = !manifests.before_only.is_empty() || !manifests.after_only.is_empty();
    let moved = data.before_only.iter().chain(&data.after_only);
    let oldest_moved = moved.map(|manifest| manifest.file.min_sequence_number).min();
    let counts = |manifest: &Named| {
        deletes_changed || oldest_moved.is_some_and(|oldest| manifest.file.sequence_number >= oldest)
    };
    let (shared, skipped): (Vec<_>, Vec<_>) = manifests.shared.into_iter().partition(counts);
    summary.manifests_skipped += skipped.len() as u64;
    let mut deletes = Deletes::default();
    let sources = [
        (manifests.before_only, &[State::Before][..]),
        (manifests.after_only, &[State::After][..]),
        (shared, &[State::Before, State::After][..]),
    ];
    for (manifests, states) in sources {
        summary.manifests_opened += manifests.len() as u64;
        let decoding = Arc::clone(decoding);
        let decode = move |file: &ManifestFile, manifest: &iceberg::spec::Manifest| decoding.deletes(file, manifest);
        let mut entries = pin!(reader.read(manifests, Arc::new(decode)));
        while let Some(entries) = entries.try_next().await? {
            for entry in entries {
                deletes.add(entry, states);
            }
        }
    }
    Ok(deletes)
}

/// Of the data manifests that both states share, those that may hold a file that a changed delete reaches.
fn reached_by_changes(shared: Vec<Named>, deletes: &Deletes, summary: &mut PlanSummary) -> Vec<Named> {
    let changed: Vec<&DeleteEntry> = deletes.changed().collect();
    let is_reached = |manifest: &Named| changed.iter().any(|delete| may_reach(delete, &manifest.file));
    let (reached, skipped): (Vec<_>, Vec<_>) = shared.into_iter().partition(is_reached);
    summary.manifests_skipped += skipped.len() as u64;
    reached
}

fn may_reach(delete: &DeleteEntry, manifest: &ManifestFile) -> bool {
    let is_global = matches!(delete.scope, Scope::Equality { is_global: true, .. });
    let is_newer = match delete.scope {
        Scope::Equality { .. } => delete.sequence > manifest.min_sequence_number,
        Scope::Position { .. } | Scope::Vector { .. } => delete.sequence >= manifest.min_sequence_number,
    };
    is_newer
        && (is_global
            || delete.partition.spec_id == manifest.partition_spec_id
                && delete.partition.may_be_in(manifest.partitions.as_deref()))
}

/// Paths that are live in one state, by a fingerprint of 16 bytes each: far too long for two paths to share one by
/// chance in any table.
#[derive(Debug, Default)]
struct Paths(HashSet<u128>);

impl Paths {
    fn add(&mut self, path: &str) -> Result<(), FileProblem> {
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            (seed, path).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        if self.0.insert(half(0) << 64 | half(1)) {
            return Ok(());
        }
        let problem = "the data file is live twice in one state: the table is damaged; rewrite its manifests";
        Err(FileProblem::corrupt(path, problem))
    }
}

/// Turns entries into differences, and these into tasks on their way.
struct Planner<'a> {
    table: &'a str,
    options: &'a PlanOptions,
    deletes: &'a Deletes,
    before: DeleteIndex<'a>,
    after: DeleteIndex<'a>,
    /// Deletes that some task has.
    used: HashSet<DeleteId>,
    keep: Packer,
    tasks: mpsc::Sender<ScanTask>,
    summary: &'a mut PlanSummary,
}

impl Planner<'_> {
    async fn added(&mut self, entry: &DataEntry) -> Result<(), Stop> {
        let difference = self.as_added(entry)?;
        self.keep(entry, difference).await
    }

    fn as_added(&mut self, entry: &DataEntry) -> Result<FileDifference, Stop> {
        let after = self.reaching(State::After, entry)?;
        self.summary.files_added += 1;
        self.summary.records_added += entry.record_count;
        self.difference(entry, Side::Absent, Side::Present(after))
    }

    fn as_removed(&mut self, entry: &DataEntry) -> Result<FileDifference, Stop> {
        let before = self.reaching(State::Before, entry)?;
        self.summary.files_removed += 1;
        self.summary.records_removed += entry.record_count;
        self.difference(entry, Side::Present(before), Side::Absent)
    }

    /// A file whose entry moved from one manifest to another, or that was added again under the same path. Each side has
    /// its own sequence number and partition, and so its own deletes.
    async fn in_both(&mut self, earlier: &DataEntry, later: DataEntry) -> Result<(), Stop> {
        if earlier.record_count != later.record_count || earlier.size_bytes != later.size_bytes {
            let problem = "its size or row count differs between two states: a data file must not change; the table \
                           is damaged";
            return Err(FileProblem::corrupt(&later.path, problem).of_table(self.table).into());
        }
        let before = self.reaching(State::Before, earlier)?;
        let after = self.reaching(State::After, &later)?;
        self.changed(&later, before, after).await
    }

    /// A file in a manifest that both states share.
    async fn unmoved(&mut self, entry: &DataEntry) -> Result<(), Stop> {
        let before = self.reaching(State::Before, entry)?;
        let after = self.reaching(State::After, entry)?;
        self.changed(entry, before, after).await
    }

    async fn changed(&mut self, entry: &DataEntry, before: Vec<DeleteId>, after: Vec<DeleteId>) -> Result<(), Stop> {
        if before == after {
            return Ok(());
        }
        self.summary.files_changed += 1;
        self.summary.records_changed += entry.record_count;
        let difference = self.difference(entry, Side::Present(before), Side::Present(after))?;
        self.keep(entry, difference).await
    }

    /// Files that went and files that came, where the latter may be a rewrite of the former.
    async fn rewritten(&mut self, removed: &[DataEntry], added: &[DataEntry], columns: &[i32]) -> Result<(), Stop> {
        let removed: Vec<&DataEntry> = removed.iter().collect();
        let added: Vec<&DataEntry> = added.iter().collect();
        let grouping = group::group(&removed, &added, columns);
        for index in grouping.removed {
            let difference = self.as_removed(removed[index])?;
            self.keep(removed[index], difference).await?;
        }
        for index in grouping.added {
            let difference = self.as_added(added[index])?;
            self.keep(added[index], difference).await?;
        }
        let bytes_max = self.options.carry_over_bytes_max / MEMORY_PER_FILE_BYTE;
        let mut cancelling = Packer::new(
            self.options.split_bytes.min(bytes_max),
            self.options.open_file_cost_bytes,
            self.options.differences_per_task_max,
        );
        for group in grouping.groups {
            let mut unit = Vec::with_capacity(group.removed.len() + group.added.len());
            for index in &group.removed {
                unit.push((removed[*index], self.as_removed(removed[*index])?));
            }
            for index in &group.added {
                unit.push((added[*index], self.as_added(added[*index])?));
            }
            let bytes = unit.iter().map(|(_, difference)| difference.data_bytes()).sum::<u64>();
            if bytes <= bytes_max && unit.len() <= self.options.differences_per_task_max {
                let unit = unit.into_iter().map(|(_, difference)| difference).collect();
                if let Some(full) = cancelling.add(unit) {
                    self.send(full, CarryOver::Cancel).await?;
                }
            } else {
                for (entry, difference) in unit {
                    self.keep(entry, difference).await?;
                }
            }
        }
        for rest in cancelling.finish() {
            self.send(rest, CarryOver::Cancel).await?;
        }
        Ok(())
    }

    fn reaching(&self, state: State, entry: &DataEntry) -> Result<Vec<DeleteId>, Stop> {
        let index = match state {
            State::Before => &self.before,
            State::After => &self.after,
        };
        Ok(index.reaching(entry).map_err(|problem| problem.of_table(self.table))?)
    }

    /// The difference of a whole file, if everything that it needs can be read.
    fn difference(&mut self, entry: &DataEntry, before: Side, after: Side) -> Result<FileDifference, Stop> {
        let refused = |problem: FileProblem| Stop::Failed(problem.of_table(self.table));
        let constants = readable(entry).map_err(refused)?;
        for side in [&before, &after] {
            let Side::Present(ids) = side else { continue };
            for id in ids {
                if self.used.insert(*id) {
                    let delete = self.deletes.entry(*id);
                    deletes_readable(delete).map_err(refused)?;
                    self.summary.delete_files += 1;
                    self.summary.delete_records += delete.record_count;
                    self.summary.delete_bytes += match self.deletes.file(*id).kind {
                        DeleteKind::Vector { length, .. } => length,
                        DeleteKind::Position | DeleteKind::Equality { .. } => delete.size_bytes,
                    };
                }
            }
        }
        self.summary.data_bytes += entry.size_bytes;
        let file = DataFile {
            location: entry.path.clone(),
            format: entry.format,
            size_bytes: entry.size_bytes,
            record_count: entry.record_count,
            constants,
        };
        Ok(FileDifference { file, split: None, before, after })
    }

    /// Sends a difference straight through, cut if it is large.
    async fn keep(&mut self, entry: &DataEntry, difference: FileDifference) -> Result<(), Stop> {
        let splits = pack::splits(entry.size_bytes, &entry.split_offsets, self.options.split_bytes);
        let mut parts = Vec::with_capacity(splits.len().max(1));
        if splits.is_empty() {
            parts.push(difference);
        } else {
            parts.extend(splits.into_iter().map(|split| FileDifference { split: Some(split), ..difference.clone() }));
        }
        for part in parts {
            if let Some(full) = self.keep.add(vec![part]) {
                self.send(full, CarryOver::Keep).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, differences: Vec<FileDifference>, carry_over: CarryOver) -> Result<(), Stop> {
        let task = pack::task(TaskId(self.summary.tasks), differences, self.deletes, carry_over);
        self.tasks.send(task).await.map_err(|_| Stop::NobodyThere)?;
        self.summary.tasks += 1;
        if carry_over == CarryOver::Cancel {
            self.summary.tasks_cancelling += 1;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), Stop> {
        let keep = std::mem::replace(&mut self.keep, Packer::new(0, 0, 1));
        for rest in keep.finish() {
            self.send(rest, CarryOver::Keep).await?;
        }
        Ok(())
    }
}

/// The file's constants, if it can be read.
fn readable(entry: &DataEntry) -> Result<Vec<iceferry_common::model::Constant>, FileProblem> {
    let format = match entry.format {
        FileFormat::Parquet => None,
        FileFormat::Avro => Some("Avro"),
        FileFormat::Orc => Some("ORC"),
        FileFormat::Puffin => Some("Puffin"),
    };
    if let Some(format) = format {
        let problem = format!("{format} data files are not supported yet; rewrite it as Parquet");
        return Err(FileProblem::refused(&entry.path, problem));
    }
    if entry.is_encrypted {
        let problem = "encrypted data files are not supported yet; rewrite it unencrypted";
        return Err(FileProblem::refused(&entry.path, problem));
    }
    entry.constants.clone().map_err(|problem| FileProblem::refused(&entry.path, problem))
}

fn deletes_readable(delete: &DeleteEntry) -> Result<(), FileProblem> {
    if delete.format == FileFormat::Orc {
        let problem = "ORC delete files are not supported yet; rewrite the data files that it reaches";
        return Err(FileProblem::refused(&delete.location, problem));
    }
    if delete.is_encrypted {
        let problem = "encrypted delete files are not supported yet; rewrite the data files that it reaches";
        return Err(FileProblem::refused(&delete.location, problem));
    }
    Ok(())
}
