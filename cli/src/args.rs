//! Flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use iceferry_common::telemetry;

/// Keeps a target Apache Iceberg table equal to a source Apache Iceberg table.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Args {
    /// How results are printed on standard output.
    #[arg(long, global = true, display_order = 100, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// How log lines are printed on standard error.
    #[arg(long, global = true, display_order = 101, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace or off. The environment variable ICEFERRY_LOG goes before it and
    /// may give modules their own level. [default: warn; info for coordinator and worker]
    #[arg(long, global = true, display_order = 102)]
    log_level: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Args {
    pub(crate) fn log_level(&self) -> &str {
        let usual = match self.verb {
            Verb::Coordinator(_) | Verb::Worker(_) => "info",
            Verb::Run(_) | Verb::Plan(_) | Verb::Check(_) | Verb::Verify(_) | Verb::Demo(_) => "warn",
        };
        self.log_level.as_deref().unwrap_or(usual)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormat> for telemetry::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Does a job in one process: brings the target to the end of the source's range.
    Run(RunArgs),
    /// Shows what `run` would do, and writes nothing.
    Plan(JobArgs),
    /// Checks the job file, the catalogs, the tables and the permissions, and moves nothing.
    Check(JobArgs),
    /// Compares the target's rows with the source's, and ends with code 6 when they differ.
    Verify(VerifyArgs),
    /// Does a job with workers that connect from other processes.
    Coordinator(CoordinatorArgs),
    /// Works for a coordinator.
    Worker(WorkerArgs),
    /// Makes a small source table and runs a job on it, to look at.
    Demo(DemoArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// The job file.
    pub(crate) job: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The job file.
    pub(crate) job: PathBuf,
    #[command(flatten)]
    pub(crate) capacity: Capacity,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The job file.
    pub(crate) job: PathBuf,
    /// The source's snapshot. [default: that of the target's checkpoint]
    #[arg(long, value_name = "ID")]
    pub(crate) source_snapshot: Option<i64>,
    /// The target's snapshot. [default: the current one]
    #[arg(long, value_name = "ID")]
    pub(crate) target_snapshot: Option<i64>,
    /// Rows that differ, shown at most.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) rows: u32,
    #[command(flatten)]
    pub(crate) capacity: Capacity,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

/// What a worker may use.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Capacity {
    /// Tasks at once. [default: one for each core]
    #[arg(long, env = "ICEFERRY_SLOTS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// Memory that the tasks may use together, in MiB. [default: 128 for each slot]
    #[arg(long, env = "ICEFERRY_MEMORY_MB", value_parser = clap::value_parser!(u64).range(32..))]
    pub(crate) memory_mb: Option<u64>,
}

impl Capacity {
    pub(crate) fn slots(self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        self.slots.unwrap_or_else(cores)
    }

    pub(crate) fn memory_bytes(self) -> u64 {
        const MEMORY_MB_PER_SLOT: u64 = 128;
        self.memory_mb.unwrap_or(MEMORY_MB_PER_SLOT * u64::from(self.slots())) * 1024 * 1024
    }
}

/// How long a coordinator waits, and how often it tries.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Patience {
    /// Tries at one task before the job fails with the task's own error.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) task_attempts: u32,
    /// Silence after which a worker's leases are lost, in seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease_timeout_seconds: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CoordinatorArgs {
    /// The job file.
    pub(crate) job: PathBuf,
    /// Address to listen on for workers; port 0 takes a free one, which the log names.
    #[arg(long, default_value = "127.0.0.1:7350")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// The coordinator's address, such as http://127.0.0.1:7350.
    #[arg(long, env = "ICEFERRY_COORDINATOR")]
    pub(crate) coordinator: String,
    /// The worker's name. [default: made from the process]
    #[arg(long)]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) capacity: Capacity,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Adds changes to the source of an earlier demo, and carries only those.
    #[arg(long)]
    pub(crate) more: bool,
    /// The folder of the demo.
    #[arg(long, default_value = "iceferry-demo")]
    pub(crate) dir: PathBuf,
}
