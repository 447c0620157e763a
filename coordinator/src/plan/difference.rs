//! The difference of two states, from their manifest lists to tasks on their way.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use iceberg::spec::{ManifestContentType, TableMetadata, Transform};
use iceferry_common::model::{Identity, ScanTask, SourceCommit};
use tokio::sync::mpsc;

use super::entry::{DataEntry, Decoding, DeleteEntry, Wanted};
use super::error::{FileProblem, PlanError};
use super::filter::FileFilter;
use super::manifests::{self, Manifests, Named, Reader};
use super::net::Line;
use super::pass::{Passed, Passing};
use super::planner::{Planner, Stop};
use super::reach::{Deletes, State, may_reach};
use super::{PlanRequest, PlanSummary, Together};

/// Columns whose bounds are compared when there is no key.
const COLUMNS_WITHOUT_KEY_MAX: usize = 4;

pub(super) async fn plan(request: PlanRequest, tasks: mpsc::Sender<ScanTask>) -> Result<PlanSummary, PlanError> {
    let mut summary = PlanSummary::default();
    let bytes_read = Arc::new(AtomicU64::new(0));
    let planned = run(&request, tasks, &mut summary, &bytes_read, None).await;
    summary.metadata_bytes_read = bytes_read.load(Ordering::Relaxed);
    summary.complete = is_complete(planned).map_err(|error| *error)?;
    Ok(summary)
}

/// Whether a plan came to its end, and was not left alone.
pub(super) fn is_complete(planned: Result<(), Stop>) -> Result<bool, Box<PlanError>> {
    match planned {
        Ok(()) => Ok(true),
        Err(Stop::NobodyThere) => Ok(false),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Plans a difference: its tasks are sent, or all that differs goes into a line as the changes of a snapshot.
pub(super) async fn run(
    request: &PlanRequest,
    tasks: mpsc::Sender<ScanTask>,
    summary: &mut PlanSummary,
    bytes_read: &Arc<AtomicU64>,
    line: Option<(&mut Line, SourceCommit)>,
) -> Result<(), Stop> {
    if request.before == Some(request.after) {
        return Ok(());
    }
    let reader = Reader {
        table: request.table.clone(),
        storage: request.storage.clone(),
        metadata: Arc::clone(&request.metadata),
        at_once: request.options.manifests_at_once,
        lists: request.manifest_lists.clone(),
        bytes_read: Arc::clone(bytes_read),
    };
    let of_table = |problem: FileProblem| Stop::from(problem.of_table(&request.table));
    let before = match request.before {
        Some(snapshot) => reader.list(snapshot, &mut summary.manifest_lists_read).await?.as_ref().clone(),
        None => Vec::new(),
    };
    let after = reader.list(request.after, &mut summary.manifest_lists_read).await?.as_ref().clone();
    let (before, dead_before): (Vec<_>, Vec<_>) = before.into_iter().partition(holds_live_entries);
    let (after, dead_after): (Vec<_>, Vec<_>) = after.into_iter().partition(holds_live_entries);
    summary.manifests_skipped += (dead_before.len() + dead_after.len()) as u64;
    let is_data = |manifest: &Named| manifest.file.content == ManifestContentType::Data;
    let (data_before, deletes_before) = before.into_iter().partition(is_data);
    let (data_after, deletes_after) = after.into_iter().partition(is_data);
    let data = manifests::compare(data_before, data_after).map_err(of_table)?;
    let delete_manifests = manifests::compare(deletes_before, deletes_after).map_err(of_table)?;

    let filter = FileFilter::new(request.filter.clone(), &request.metadata);
    let decoding = Arc::new(Decoding::new(
        &request.metadata,
        &request.read_schema,
        request.partition_type.clone(),
        filter.clone(),
    ));
    let (deletes, passed) = read_deletes(request, &reader, &decoding, &data, delete_manifests, summary).await?;
    let group_columns = group_columns(request, &decoding);
    let mut columns = decoding.comparable(&deletes.equality_columns().into_iter().collect::<Vec<_>>());
    columns.extend(&group_columns);
    columns.sort_unstable();
    columns.dedup();
    let shared = reached_by_changes(data.shared, &deletes, summary);
    // The other half of an update, or a row that undoes a change, may be in another snapshot of the line.
    let may_be_updates = match line {
        Some(_) => request.together != Together::Changes(Identity::None),
        None => may_be_updates(&request.together, &data.before_only, &deletes),
    };
    let (mut before_only, mut after_only, mut shared) = (data.before_only, data.after_only, shared);
    if !may_be_updates {
        for manifests in [&mut before_only, &mut after_only, &mut shared] {
            let all = manifests.len();
            manifests.retain(|manifest| filter.may_match_manifest(&manifest.file));
            summary.manifests_skipped += (all - manifests.len()) as u64;
        }
    }

    let mut planner = Planner::new(request, &deletes, tasks, summary);
    planner.pass(passed).await?;
    let wanted = Arc::new(Wanted { bounds_of: columns, with_metrics: false });

    let mut only_before = HashMap::new();
    let mut live_before = Paths::default();
    planner.summary.manifests_opened += before_only.len() as u64;
    let mut entries = pin!(reader.data(before_only, &decoding, &wanted));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_before.add(&entry.path).map_err(of_table)?;
            if planner.leaves_out(&entry, may_be_updates) {
                continue;
            }
            only_before.insert(entry.path.clone(), entry);
        }
    }

    // Files that came wait for those that went, if some may have gone: they may be a rewrite of each other. In a changelog
    // they wait for files that got other deletes as well.
    let is_changelog = matches!(request.together, Together::Changes(_));
    let may_meet = line.is_some() || !only_before.is_empty() || (is_changelog && deletes.changed().next().is_some());
    // Files that wait are all held at once: without their metrics, which can be had from their footers.
    let with_metrics = request.ways.decode.is_none() && !may_meet;
    let wanted_of_added = Arc::new(Wanted { with_metrics, ..wanted.as_ref().clone() });
    let mut added = Vec::new();
    let mut live_after = Paths::default();
    planner.summary.manifests_opened += after_only.len() as u64;
    let mut entries = pin!(reader.data(after_only, &decoding, &wanted_of_added));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_after.add(&entry.path).map_err(of_table)?;
            if planner.leaves_out(&entry, may_be_updates) {
                continue;
            }
            match only_before.remove(&entry.path) {
                Some(earlier) => planner.in_both(&earlier, entry).await?,
                None if may_meet => added.push(entry),
                None => planner.added(&entry).await?,
            }
        }
    }

    planner.summary.manifests_opened += shared.len() as u64;
    let mut entries = pin!(reader.data(shared, &decoding, &wanted));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            live_before.add(&entry.path).map_err(of_table)?;
            live_after.add(&entry.path).map_err(of_table)?;
            if !planner.leaves_out(&entry, may_be_updates) {
                planner.unmoved(&entry).await?;
            }
        }
    }

    let mut removed: Vec<DataEntry> = only_before.into_values().collect();
    removed.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some((line, commit)) = line {
        return planner.collect(removed, added, line, commit);
    }
    match &request.together {
        Together::CarryOver => planner.rewritten(&removed, &added, &group_columns).await?,
        Together::Changes(identity) => {
            let by_partition = rows_stay_in_partition(identity, &request.metadata);
            planner.changes(removed, added, &group_columns, by_partition).await?;
        }
    }
    planner.finish().await
}

/// Whether some change may be one half of an update, whose other half tells that it is one, whether the filter keeps that
/// half or not. Files can be left out one by one only when none is.
fn may_be_updates(together: &Together, before_only: &[Named], deletes: &Deletes) -> bool {
    match together {
        Together::CarryOver | Together::Changes(Identity::None) => false,
        Together::Changes(Identity::Columns(_) | Identity::RowId) => {
            !before_only.is_empty() || deletes.changed().next().is_some()
        }
    }
}

/// Whether a manifest may hold live entries, and not only the record of deleted ones. Missing counts say nothing.
fn holds_live_entries(manifest: &Named) -> bool {
    manifest.file.has_added_files() || manifest.file.has_existing_files()
}

/// The columns by which a row that a rewrite carried over would be known: the key, or else the first ones.
pub(super) fn group_columns(request: &PlanRequest, decoding: &Decoding) -> Vec<i32> {
    if request.together == Together::Changes(Identity::RowId) {
        // An update may change every column.
        return Vec::new();
    }
    if !request.key.is_empty() {
        return decoding.comparable(&request.key);
    }
    let fields = request.read_schema.as_struct().fields().iter().filter(|field| field.field_type.is_primitive());
    let columns: Vec<i32> = fields.map(|field| field.id).take(COLUMNS_WITHOUT_KEY_MAX).collect();
    decoding.comparable(&columns)
}

/// Whether the two sides of a change are in one partition of each spec: equal rows are, and rows of one key when the key
/// has all columns that the specs partition by.
pub(super) fn rows_stay_in_partition(identity: &Identity, table: &TableMetadata) -> bool {
    match identity {
        Identity::None => true,
        Identity::Columns(key) => table.partition_specs_iter().all(|spec| {
            spec.fields().iter().all(|field| field.transform == Transform::Void || key.contains(&field.source_id))
        }),
        Identity::RowId => false,
    }
}

/// Reads the delete manifests of both states, and lets deletes that came go straight through where that is right. A shared
/// manifest is left out when it can be seen from the lists that it reaches no file that differs: no other delete came or
/// went, and all files that did are newer.
async fn read_deletes(
    request: &PlanRequest,
    reader: &Reader,
    decoding: &Arc<Decoding>,
    data: &Manifests,
    manifests: Manifests,
    summary: &mut PlanSummary,
) -> Result<(Deletes, Vec<Passed>), PlanError> {
    let mut deletes = Deletes::default();
    for (manifests, state) in [(manifests.before_only, State::Before), (manifests.after_only, State::After)] {
        add_deletes(&mut deletes, reader, decoding, manifests, &[state], summary).await?;
    }
    let before = data.before_only.iter().chain(&data.shared).map(|manifest| &manifest.file).collect();
    let passing = Passing::of(request, before);
    let passed = passing.map_or_else(Vec::new, |passing| deletes.pass(|delete| passing.constants(delete)));
    let deletes_changed = deletes.changed().next().is_some();
    let moved = data.before_only.iter().chain(&data.after_only);
    let oldest_moved = moved.map(|manifest| manifest.file.min_sequence_number).min();
    let counts = |manifest: &Named| {
        deletes_changed || oldest_moved.is_some_and(|oldest| manifest.file.sequence_number >= oldest)
    };
    let (shared, skipped): (Vec<_>, Vec<_>) = manifests.shared.into_iter().partition(counts);
    summary.manifests_skipped += skipped.len() as u64;
    add_deletes(&mut deletes, reader, decoding, shared, &[State::Before, State::After], summary).await?;
    Ok((deletes, passed))
}

async fn add_deletes(
    deletes: &mut Deletes,
    reader: &Reader,
    decoding: &Arc<Decoding>,
    manifests: Vec<Named>,
    states: &[State],
    summary: &mut PlanSummary,
) -> Result<(), PlanError> {
    summary.manifests_opened += manifests.len() as u64;
    let mut entries = pin!(reader.deletes(manifests, decoding));
    while let Some(entries) = entries.try_next().await? {
        for entry in entries {
            deletes.add(entry, states);
        }
    }
    Ok(())
}

/// Of the data manifests that both states share, those that may hold a file that a changed delete reaches.
fn reached_by_changes(shared: Vec<Named>, deletes: &Deletes, summary: &mut PlanSummary) -> Vec<Named> {
    let changed: Vec<&DeleteEntry> = deletes.changed().collect();
    let is_reached = |manifest: &Named| changed.iter().any(|delete| may_reach(delete, &manifest.file));
    let (reached, skipped): (Vec<_>, Vec<_>) = shared.into_iter().partition(is_reached);
    summary.manifests_skipped += skipped.len() as u64;
    reached
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
