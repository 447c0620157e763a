//! `iceferry plan`: what a run would do.

use iceferry_coordinator::job;

use super::job_file;
use crate::args::{JobArgs, Output};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn plan(args: &JobArgs, output: Output) -> Result<(), Failure> {
    let prepared = job::prepare(job_file(&args.job)?).await?;
    let outline = job::outline(&prepared).await?;
    output::print(&outline, output, output::outline)
}
