//! `iceferry run`: a job in one process.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

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

/// The longest time between two heartbeats in one process.
const HEARTBEAT_MAX: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let job = job_file(&args.job)?;
    let report = run_job(job, args.capacity, in_process_config(args.patience), output).await?;
    output::print(&report, output, output::run)
}

/// How long a coordinator waits, from its flags.
pub(super) fn distribute_config(patience: Patience) -> DistributeConfig {
    let lease_timeout = Duration::from_secs(patience.lease_timeout_seconds);
    DistributeConfig {
        lease_timeout,
        heartbeat: lease_timeout / 6,
        attempts_max: patience.task_attempts,
        ..DistributeConfig::default()
    }
}

/// Runs a job with coordinator and worker in this process.
pub(crate) async fn run_job(
    job: JobFile,
    capacity: Capacity,
    config: DistributeConfig,
    output: Output,
) -> Result<RunReport, Failure> {
    let options = RunOptions { slots_expected: capacity.slots() as usize, ..RunOptions::default() };
    in_process(capacity, config, output, async |parts: Parts<'_>| {
        job::run(job, parts.dispatcher, &options, parts.progress, parts.stop).await.map_err(Failure::from)
    })
    .await
}

/// What a coordinator works with.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a CancellationToken,
}

/// How a coordinator waits whose only worker is in the same process.
pub(super) fn in_process_config(patience: Patience) -> DistributeConfig {
    let config = distribute_config(patience);
    // Heartbeats carry the progress that is shown, and cost nothing within a process.
    DistributeConfig { heartbeat: config.heartbeat.min(HEARTBEAT_MAX), ..config }
}

/// Runs coordinator and worker in this process until `work`, which has the coordinator's part, is done.
pub(super) async fn in_process<T>(
    capacity: Capacity,
    config: DistributeConfig,
    output: Output,
    work: impl AsyncFnOnce(Parts<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stop = CancellationToken::new();
    shutdown::on_signals(stop.clone()).map_err(Failure::start)?;
    let end = CancellationToken::new();
    let dispatcher = Dispatcher::start(config, end.clone());
    let (channel, server) = local::serve(dispatcher.service(), end.clone());
    let worker = WorkerConfig::new(WorkerId("embedded".to_owned()), capacity.slots(), capacity.memory_bytes());
    let runner = Arc::new(PipelineRunner::new(capacity.slots(), capacity.memory_bytes()));
    // While the job runs the worker is told to end by the coordinator alone; a signal stops the job, which then drains. A run
    // can be over before the worker has found the coordinator: it must not go on looking for it.
    let mut working = tokio::spawn(serve::serve(channel, worker, runner, end.clone()));

    let progress = Progress::start(output, dispatcher.progress());
    let done = {
        let mut running = pin!(work(Parts { dispatcher: &dispatcher, progress: &progress, stop: &stop }));
        tokio::select! {
            done = &mut running => done,
            ended = &mut working => match ended {
                // The run has told its workers that there is no more, and tidies up.
                Ok(Ok(_)) => running.await,
                Ok(Err(error)) => Err(error.into()),
                Err(error) => Err(Failure::new(Class::Bug, format!("the embedded worker failed: {error}"))),
            },
        }
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
