//! The fence: who may commit for a job.
//!
//! A run that takes over writes a higher fence into the target, as an empty snapshot and as a table property. A run that
//! finds a fence above its own stops. Fences only ever rise, so the highest mark counts wherever it is found, also after
//! the target was rolled back.

use iceberg::spec::TableMetadata;
use iceferry_common::model::{Fence, JobName, RunId};
use serde::{Deserialize, Serialize};

use super::CommitError;
use super::checkpoint::{Ancestors, SUMMARY_FENCE, SUMMARY_JOB, SUMMARY_RUN, property_checkpoint};

/// A fence's table property is this and the job's name.
pub const FENCE_PROPERTY_PREFIX: &str = "iceferry.fence.";

/// The highest fence of a job, and the run that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceHolder {
    /// The fence.
    pub fence: Fence,
    /// Who took it.
    pub run: RunId,
}

/// The table property that holds the fence of `job`.
pub fn fence_property(job: &JobName) -> String {
    format!("{FENCE_PROPERTY_PREFIX}{job}")
}

/// The highest fence of `job` in a target; `None` while the job never committed there. Where there is none a run has
/// fence 0. The one who took a fence over is its holder; others may commit under it when they started after that.
///
/// # Errors
/// [`CommitError::MarkDamaged`] when a mark cannot be read.
pub fn current_fence(metadata: &TableMetadata, job: &JobName) -> Result<Option<FenceHolder>, CommitError> {
    let damaged = |place: String, problem: String| CommitError::MarkDamaged {
        place,
        location: metadata.location().to_owned(),
        problem,
    };
    let key = fence_property(job);
    let mut highest: Option<FenceHolder> = match metadata.properties().get(&key) {
        Some(text) => {
            let parsed = serde_json::from_str(text);
            Some(parsed.map_err(|error| damaged(format!("table property {key:?}"), error.to_string()))?)
        }
        None => None,
    };
    // The property names the one who took the fence over, so it wins against equal marks of those who came after.
    let mut raise = |found: FenceHolder| {
        if highest.as_ref().is_none_or(|highest| found.fence > highest.fence) {
            highest = Some(found);
        }
    };
    if let Some(checkpoint) = property_checkpoint(metadata, job)? {
        raise(FenceHolder { fence: checkpoint.fence, run: checkpoint.run });
    }
    for snapshot in Ancestors::of_main(metadata) {
        let entries = &snapshot.summary().additional_properties;
        if entries.get(SUMMARY_JOB).is_none_or(|name| name != job.as_str()) {
            continue;
        }
        let Some(text) = entries.get(SUMMARY_FENCE) else { continue };
        let place = || format!("the summary of snapshot {}", snapshot.snapshot_id());
        let fence = text.parse().map_err(|_| damaged(place(), format!("{SUMMARY_FENCE} is {text:?}, not a number")))?;
        let run = entries.get(SUMMARY_RUN).cloned().unwrap_or_default();
        raise(FenceHolder { fence: Fence(fence), run: RunId(run) });
    }
    Ok(highest)
}
