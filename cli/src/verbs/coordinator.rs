//! `iceferry coordinator`: a job whose workers are other processes.

use iceferry_common::fault::Class;
use iceferry_common::shutdown;
use iceferry_coordinator::distribute::{self, Dispatcher};
use iceferry_coordinator::job::{self, RunOptions};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use super::job_file;
use super::run::distribute_config;
use crate::args::{CoordinatorArgs, Output};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn coordinator(args: &CoordinatorArgs, output: Output) -> Result<(), Failure> {
    let job = job_file(&args.job)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|error| {
        Failure::new(Class::Config, format!("listen on {}: {error}; give another address with --listen", args.listen))
    })?;
    let address = listener.local_addr().map_err(Failure::start)?;

    let stop = CancellationToken::new();
    shutdown::on_signals(stop.clone()).map_err(Failure::start)?;
    let end = CancellationToken::new();
    let dispatcher = Dispatcher::start(distribute_config(args.patience), end.clone());
    let shutdown = end.clone();
    let server = distribute::server().add_service(dispatcher.service());
    let serving = tokio::spawn(server.serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
        shutdown.cancelled().await;
    }));
    tracing::info!(%address, "listening for workers");

    let progress = Progress::start(output, dispatcher.progress());
    let done = job::run(job, &dispatcher, &RunOptions::default(), &progress, &stop).await;
    progress.finish();
    dispatcher.drain().await;
    end.cancel();
    let _ = serving.await;
    output::print(&done?, output, output::run)
}
