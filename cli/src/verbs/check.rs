//! `iceferry check`: whether a run could start.

use iceferry_coordinator::job;
use serde::Serialize;

use super::job_file;
use crate::args::{JobArgs, Output};
use crate::failure::Failure;
use crate::output;

/// What was looked at and found right.
#[derive(Debug, Serialize)]
struct Checked {
    outcome: &'static str,
    source: String,
    source_catalog: String,
    target: String,
    target_catalog: String,
    target_exists: bool,
    notes: Vec<String>,
}

pub(crate) async fn check(args: &JobArgs, output: Output) -> Result<(), Failure> {
    let prepared = job::prepare(job_file(&args.job)?).await?;
    job::check_access(&prepared).await?;
    let checked = Checked {
        outcome: "ok",
        source: prepared.source_name(),
        source_catalog: prepared.source_catalog.description(),
        target: prepared.target_name(),
        target_catalog: prepared.target_catalog.description(),
        target_exists: matches!(prepared.target, job::Target::Existing(_)),
        notes: prepared.notes.clone(),
    };
    output::print(&checked, output, text)
}

fn text(checked: &Checked) -> String {
    let state = if checked.target_exists { "is there and fits" } else { "will be made" };
    let mut text = format!(
        "job file        ok\nsource          {} in the {}\ntarget          {} in the {}, {state}\n",
        checked.source, checked.source_catalog, checked.target, checked.target_catalog
    );
    for note in &checked.notes {
        text += &format!("note            {note}\n");
    }
    text
}
