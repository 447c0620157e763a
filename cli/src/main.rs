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
use iceferry_common::fault::Class;
use iceferry_common::telemetry;

use args::{Args, Output, Verb};
use failure::Failure;

/// Its settings are in `.cargo/config.toml`.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_parsed(&error),
    };
    if let Err(error) = telemetry::start(args.log_format.into(), args.log_level()) {
        return Failure::from(error).report(args.output);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::start(error).report(args.output),
    };
    let done = runtime.block_on(run(&args));
    // Blocking work that was cancelled may still be under way; nobody waits for it.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(args.output),
    }
}

/// Shows help where it was asked for, and what is wrong with the flags otherwise; as JSON when that is among them.
fn not_parsed(error: &clap::Error) -> ExitCode {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let wants_json =
        flags.windows(2).any(|pair| pair == ["--output", "json"]) || flags.contains(&"--output=json".into());
    if error.use_stderr() && wants_json {
        let text = error.to_string();
        // What is wrong comes first, then an empty line and the usage.
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        return Failure::new(Class::Config, lines.join(" ").trim_start_matches("error: ")).report(Output::Json);
    }
    error.exit()
}

async fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::Run(run) => verbs::run(run, args.output).await?,
        Verb::Plan(job) => verbs::plan(job, args.output).await?,
        Verb::Check(job) => verbs::check(job, args.output).await?,
        // What it finds is a result, not a failure, and has a code of its own all the same.
        Verb::Verify(verify) => return verbs::verify(verify, args.output).await,
        Verb::Coordinator(coordinator) => verbs::coordinator(coordinator, args.output).await?,
        Verb::Worker(worker) => verbs::worker(worker).await?,
        Verb::Demo(demo) => demo::demo(demo, args.output).await?,
    }
    Ok(ExitCode::SUCCESS)
}
