//! Markers of runs: one small file for each run that began and did not end cleanly.
//!
//! A run leaves its marker first, then looks for those of others, and only then stages anything: of two runs that start
//! together at least one sees the other.

use bytes::Bytes;
use iceberg::spec::TableMetadata;
use iceferry_common::clock;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{JobName, RunId};
use iceferry_common::storage::Created;
use serde::{Deserialize, Serialize};

use super::{CommitError, FenceHolder, data_location, metadata_location};
use crate::catalog::LoadedTable;

/// What a run leaves behind while it is under way: where its files are, whatever the table's properties say later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunMarker {
    /// The run.
    pub run: RunId,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
    /// Folder of data and delete files that it stages into.
    pub data_location: String,
    /// Folder that its manifests and manifest lists are in: its own.
    pub metadata_folder: String,
    /// Set when another run took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
}

/// A run that another one took over commits nothing any more, but it may be alive, and stage files until it notices. Its
/// marker stays for a while, so that later runs look once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TakenOver {
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// Files in the run's folders that the table referenced when they were last looked at. As long as there are as many,
    /// nothing was added.
    pub files_kept: u64,
}

/// How long files are looked for that a run stages after it was taken over: longer than any task takes to fail.
const TAKEN_OVER_FOR_MS: i64 = 24 * 60 * 60 * 1000;

impl RunMarker {
    fn to_json(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("texts and numbers always serialise"))
    }

    /// Whether the run can commit nothing any more, so that no other needs to take over for it: one did, and its fence
    /// still stands in the table.
    pub fn is_fenced(&self, holder: Option<&FenceHolder>) -> bool {
        self.taken_over.is_some() && holder.is_some_and(|holder| holder.run != self.run)
    }
}

/// Notes in the marker of a run that it was taken over, and what its folders hold that the table references; takes the
/// marker away when that is long ago.
///
/// # Errors
/// When the marker cannot be written or removed.
pub(super) async fn note_taken_over(
    table: &LoadedTable,
    job: &JobName,
    marker: &RunMarker,
    files_kept: u64,
) -> Result<(), CommitError> {
    let now = clock::unix_ms();
    let since_ms = marker.taken_over.map_or(now, |taken_over| taken_over.since_ms);
    if now.saturating_sub(since_ms) > TAKEN_OVER_FOR_MS {
        return end_run(table, job, &marker.run).await;
    }
    let noted = RunMarker { taken_over: Some(TakenOver { since_ms, files_kept }), ..marker.clone() };
    if noted == *marker {
        return Ok(());
    }
    let written = table.storage.write(&marker_location(&table.metadata, job, &marker.run), noted.to_json()).await;
    written.map_err(|source| CommitError::storage("note that a run was taken over", source))
}

/// The folder of the manifests and manifest lists that one run of a job writes: it tells them from all others, so that a
/// later run finds those that nobody references.
pub(super) fn run_metadata_folder(metadata: &TableMetadata, job: &JobName, run: &RunId) -> String {
    format!("{}/iceferry/{job}/{run}", metadata_location(metadata))
}

/// Markers do not follow `write.metadata.path`, which may change between two runs.
fn markers_folder(metadata: &TableMetadata, job: &JobName) -> String {
    format!("{}/metadata/iceferry/{job}/runs", metadata.location().trim_end_matches('/'))
}

fn marker_location(metadata: &TableMetadata, job: &JobName, run: &RunId) -> String {
    format!("{}/{run}.json", markers_folder(metadata, job))
}

/// Tries to leave a marker: another run may take one that is being written for one that was cut off.
const TRIES_MAX: u32 = 3;

/// Marks that a run is under way; before anything is staged.
///
/// # Errors
/// When the marker cannot be written, or is there already.
pub async fn start_run(table: &LoadedTable, job: &JobName, run: &RunId) -> Result<RunMarker, CommitError> {
    let marker = RunMarker {
        run: run.clone(),
        started_ms: clock::unix_ms(),
        data_location: data_location(&table.metadata),
        metadata_folder: run_metadata_folder(&table.metadata, job, run),
        taken_over: None,
    };
    let location = marker_location(&table.metadata, job, run);
    let json = marker.to_json();
    let mut created = table.storage.create(&location, json.clone()).await;
    for _ in 1..TRIES_MAX {
        if !matches!(&created, Err(error) if error.class() == Class::NotFound) {
            break;
        }
        created = table.storage.create(&location, json.clone()).await;
    }
    match created.map_err(|source| CommitError::storage("mark the start of the run", source))? {
        Created::New => Ok(marker),
        Created::AlreadyThere => {
            Err(CommitError::Marker { location, problem: "a run with this very id is under way".to_owned() })
        }
    }
}

/// Takes a run's marker away: when everything it staged is committed or removed, and nothing is unknown.
///
/// # Errors
/// When the marker cannot be removed.
pub async fn end_run(table: &LoadedTable, job: &JobName, run: &RunId) -> Result<(), CommitError> {
    let deleted = table.storage.delete(&marker_location(&table.metadata, job, run)).await;
    deleted.map_err(|source| CommitError::storage("mark the end of the run", source))
}

/// The runs of the job, other than `ours`, that began and did not end: killed, or still at work somewhere; those that were
/// taken over lately too. Oldest first.
/// Markers that were cut off while they were written are removed: those runs had not begun.
///
/// # Errors
/// When the markers cannot be listed or read.
pub async fn unfinished_runs(table: &LoadedTable, job: &JobName, ours: &RunId) -> Result<Vec<RunMarker>, CommitError> {
    let folder = markers_folder(&table.metadata, job);
    let listed = table.storage.list(&folder).await;
    let listed = listed.map_err(|source| CommitError::storage("look for unfinished runs", source))?;
    let mut markers = Vec::new();
    for found in listed {
        if !found.location.ends_with(".json") {
            if is_cut_off(&found.location) {
                let removed = table.storage.delete(&found.location).await;
                removed.map_err(|source| CommitError::storage("remove a marker that was cut off", source))?;
            }
            continue;
        }
        let bytes = match table.storage.read(&found.location).await {
            Ok(bytes) => bytes,
            // It ended in this very moment.
            Err(error) if error.class() == Class::NotFound => continue,
            Err(source) => return Err(CommitError::storage("look for unfinished runs", source)),
        };
        let damaged = |problem: String| CommitError::Marker { location: found.location.clone(), problem };
        let marker: RunMarker = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if marker_location(&table.metadata, job, &marker.run) != found.location {
            return Err(damaged(format!("it is the marker of run {}", marker.run)));
        }
        if marker.run != *ours {
            markers.push(marker);
        }
    }
    markers.sort_by(|one, other| one.run.cmp(&other.run));
    Ok(markers)
}

/// Whether a file is a marker under the name that a local disk gives it until it is whole.
fn is_cut_off(location: &str) -> bool {
    let number = location.rsplit_once(".json#").map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
