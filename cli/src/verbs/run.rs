//! `iceferry run`: a job in one process.

use std::sync::Arc;

use iceferry_common::config::JobFile;
use iceferry_common::fault::Class;
use iceferry_common::model::WorkerId;
use iceferry_common::shutdown;
use iceferry_coordinator::distribute::{Dispatcher, DistributeConfig};
use iceferry_coordinator::job::{self, RunOptions, RunReport};
use iceferry_worker::attempt::PipelineRunner;
use iceferry_worker::serve::{self, WorkerConfig};
use tokio_util::sync::CancellationToken;

use super::job_file;
use crate::args::{Capacity, Output, Patience, RunArgs};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{local, output};

pub(crate) async fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let job = job_file(&args.job)?;
    let report = run_job(job, args.capacity, distribute_config(args.patience), output).await?;
    output::print(&report, output, output::run)
}

/// How long a coordinator waits, from its flags.
pub(super) fn distribute_config(patience: Patience) -> DistributeConfig {
    let lease_timeout = std::time::Duration::from_secs(patience.lease_timeout_seconds);
    DistributeConfig {
        lease_timeout,
        heartbeat: lease_timeout / 6,
        attempts_max: patience.task_attempts,
        ..DistributeConfig::default()
    }
}

/// Runs coordinator and worker in this process until the job is done.
pub(crate) async fn run_job(
    job: JobFile,
    capacity: Capacity,
    config: DistributeConfig,
    output: Output,
) -> Result<RunReport, Failure> {
    let stop = CancellationToken::new();
    shutdown::on_signals(stop.clone()).map_err(Failure::start)?;
    let end = CancellationToken::new();
    let dispatcher = Dispatcher::start(config, end.clone());
    let (channel, server) = local::serve(dispatcher.service(), end.clone());
    let worker = WorkerConfig::new(WorkerId("embedded".to_owned()), capacity.slots(), capacity.memory_bytes());
    let runner = Arc::new(PipelineRunner::new(capacity.slots(), capacity.memory_bytes()));
    // The worker is told to end by the coordinator alone; a signal stops the job, which then drains.
    let mut working = tokio::spawn(serve::serve(channel, worker, runner, CancellationToken::new()));

    let progress = Progress::start(output, dispatcher.progress());
    let options = RunOptions::default();
    let done = tokio::select! {
        done = job::run(job, &dispatcher, &options, &progress, &stop) => done.map_err(Failure::from),
        ended = &mut working => Err(worker_ended(ended)),
    };
    progress.finish();
    dispatcher.drain().await;
    end.cancel();
    if !working.is_finished() {
        let _ = working.await;
    }
    let _ = server.await;
    done
}

fn worker_ended(ended: Result<Result<serve::Served, serve::ServeError>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Ok(_)) => Failure::new(Class::Bug, "the embedded worker ended before the job did"),
        Ok(Err(error)) => error.into(),
        Err(error) => Failure::new(Class::Bug, format!("the embedded worker failed: {error}")),
    }
}
