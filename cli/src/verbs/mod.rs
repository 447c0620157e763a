//! The verbs, one file each.

mod check;
mod coordinator;
mod plan;
mod run;
mod verify;
mod worker;

use std::path::Path;

use iceferry_common::config::JobFile;
use iceferry_common::fault::Class;

use crate::failure::Failure;

pub(crate) use check::check;
pub(crate) use coordinator::coordinator;
pub(crate) use plan::plan;
pub(crate) use run::{run, run_job};
pub(crate) use verify::verify;
pub(crate) use worker::worker;

/// Reads and checks a job file; touches nothing else.
pub(crate) fn job_file(path: &Path) -> Result<JobFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Class::Config, format!("read job file {}: {error}", path.display())))?;
    let job = JobFile::parse(&text, &|name| std::env::var(name).ok());
    job.map_err(|error| Failure::new(Class::Config, format!("job file {}: {error}", path.display())))
}
