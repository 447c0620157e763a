//! What a run would do, without doing it.

use serde::Serialize;
use tokio::sync::mpsc;

use super::JobError;
use super::prepare::{Prepared, Target};
use super::run::work;
use crate::plan::{Nothing, PlanSummary};

/// What a run would do.
#[derive(Debug, Clone, Serialize)]
pub struct Outline {
    /// The job.
    pub job: String,
    /// `namespace.table` of the source.
    pub source: String,
    /// `namespace.table` of the target.
    pub target: String,
    /// The source snapshot that the target holds, as text.
    pub checkpoint: Option<String>,
    /// What would happen to the target table itself.
    pub target_change: String,
    /// What a person should know before the job starts.
    pub notes: Vec<String>,
    /// Why there is nothing to do, when there is nothing to do.
    pub nothing: Option<String>,
    /// The epochs, in order.
    pub epochs: Vec<EpochOutline>,
}

/// What one epoch would carry.
#[derive(Debug, Clone, Serialize)]
pub struct EpochOutline {
    /// The state before, as text; absent for the empty state.
    pub before: Option<String>,
    /// The state after, as text.
    pub through: String,
    /// The source only rewrote files: nothing is carried, the checkpoint moves.
    pub rewrites_only: bool,
    /// What the planner found.
    pub plan: PlanSummary,
}

/// Plans all epochs and counts.
///
/// # Errors
/// [`JobError`], as a run would find it while planning.
pub async fn outline(prepared: &Prepared) -> Result<Outline, JobError> {
    let (epochs, nothing) = work(&prepared.range);
    let mut outlines = Vec::with_capacity(epochs.len());
    for epoch in &epochs {
        let plan = if epoch.rewrites_only {
            PlanSummary { complete: true, ..PlanSummary::default() }
        } else {
            let (tasks, mut taken) = mpsc::channel(16);
            let checking = async {
                while let Some(task) = taken.recv().await {
                    prepared.check_task(&task)?;
                }
                Ok::<_, JobError>(())
            };
            let request = prepared.plan_request(epoch);
            let planning = async { prepared.plan(request, epoch, 0, tasks).await.map_err(JobError::from) };
            tokio::try_join!(planning, checking)?.0
        };
        outlines.push(EpochOutline {
            before: epoch.before.map(|id| id.to_string()),
            through: epoch.through.to_string(),
            rewrites_only: epoch.rewrites_only,
            plan,
        });
    }
    Ok(Outline {
        job: prepared.job.name.to_string(),
        source: prepared.source_name(),
        target: prepared.target_name(),
        checkpoint: prepared.checkpoint.as_ref().map(|checkpoint| checkpoint.source_snapshot_id.to_string()),
        target_change: target_change(prepared),
        notes: prepared.notes.clone(),
        nothing,
        epochs: outlines,
    })
}

fn target_change(prepared: &Prepared) -> String {
    match &prepared.target {
        Target::Existing(_) => "none: it is there".to_owned(),
        Target::New(creation) => {
            let fields = creation.schema.as_struct().fields();
            let name = |id: &i32| creation.schema.name_by_field_id(*id).unwrap_or("?").to_owned();
            let key: Vec<String> = prepared.write_key.iter().map(name).collect();
            let key = if key.is_empty() { "no key".to_owned() } else { format!("key {}", key.join(", ")) };
            let version = creation.format_version as u8;
            format!("made: format version {version}, {} columns, {key}, unpartitioned", fields.len())
        }
    }
}

/// Why there is nothing to do, in words.
pub(super) fn describe_nothing(nothing: &Nothing) -> String {
    match nothing {
        Nothing::EmptyTable => "the source has no snapshot yet".to_owned(),
        Nothing::UpToDate { checkpoint } => format!("the target holds source snapshot {checkpoint} already"),
        Nothing::EndBeforeCheckpoint { end, checkpoint } => {
            format!("the range ends with snapshot {end}, and the target holds snapshot {checkpoint} already")
        }
        Nothing::EmptyWindow => "no snapshot lies between the bounds".to_owned(),
    }
}
