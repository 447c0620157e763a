//! `iceferry verify`: whether the target shows what the source shows, in one process.

use std::process::ExitCode;

use iceferry_common::model::SnapshotId;
use iceferry_coordinator::verify::{self, Outcome, VerifyOptions};

use super::job_file;
use super::run::{Parts, in_process, in_process_config};
use crate::args::{Output, VerifyArgs};
use crate::failure::Failure;
use crate::output;

/// Exit code of a comparison that found a difference: a result, so that no class of failures has it.
const DIFFERENT: u8 = 6;

pub(crate) async fn verify(args: &VerifyArgs, output: Output) -> Result<ExitCode, Failure> {
    let job = job_file(&args.job)?;
    let options = VerifyOptions {
        source_snapshot: args.source_snapshot.map(SnapshotId),
        target_snapshot: args.target_snapshot.map(SnapshotId),
        rows_max: args.rows as usize,
        slots_expected: args.capacity.slots() as usize,
    };
    let config = in_process_config(args.patience);
    let report = in_process(args.capacity, config, output, async |parts: Parts<'_>| {
        let Parts { dispatcher, progress, stop } = parts;
        verify::verify(job, dispatcher, &options, progress, stop).await.map_err(Failure::from)
    })
    .await?;
    output::print(&report, output, output::verify)?;
    Ok(match report.outcome {
        Outcome::Equal => ExitCode::SUCCESS,
        Outcome::Different => ExitCode::from(DIFFERENT),
    })
}
