//! The `iceferry` command. It only wires: flags and the job file in, the parts started, what came of it out.

mod args;
mod demo;
mod failure;
mod local;
mod output;
mod progress;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use iceferry_common::telemetry;

use args::{Args, Verb};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    telemetry::start(args.log_format.into(), args.log_level());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::start(error).report(args.output),
    };
    let done = runtime.block_on(run(&args));
    // Blocking work that was cancelled may still be under way; nobody waits for it.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(args.output),
    }
}

async fn run(args: &Args) -> Result<(), Failure> {
    match &args.verb {
        Verb::Run(run) => verbs::run(run, args.output).await,
        Verb::Plan(job) => verbs::plan(job, args.output).await,
        Verb::Check(job) => verbs::check(job, args.output).await,
        Verb::Coordinator(coordinator) => verbs::coordinator(coordinator, args.output).await,
        Verb::Worker(worker) => verbs::worker(worker).await,
        Verb::Demo(demo) => demo::demo(demo, args.output).await,
    }
}
