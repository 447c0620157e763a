//! `iceferry worker`: works for a coordinator until it says that there is no more.

use std::sync::Arc;

use iceferry_common::fault::Class;
use iceferry_common::model::WorkerId;
use iceferry_common::shutdown;
use iceferry_worker::attempt::PipelineRunner;
use iceferry_worker::serve::{self, WorkerConfig};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::args::WorkerArgs;
use crate::failure::Failure;

pub(crate) async fn worker(args: &WorkerArgs) -> Result<(), Failure> {
    let endpoint = address(&args.coordinator)?;
    let channel = serve::endpoint(endpoint).connect_lazy();
    let drain = CancellationToken::new();
    shutdown::on_signals(drain.clone()).map_err(Failure::start)?;
    let config = WorkerConfig::new(
        WorkerId(args.id.clone().unwrap_or_else(own_name)),
        args.capacity.slots(),
        args.capacity.memory_bytes(),
    );
    let runner = Arc::new(PipelineRunner::new(args.capacity.slots(), args.capacity.memory_bytes()));
    let served = serve::serve(channel, config, runner, drain).await?;
    tracing::info!(?served, "ended");
    Ok(())
}

/// An address that no try to connect could make right is an error at once.
fn address(coordinator: &str) -> Result<Endpoint, Failure> {
    let wrong = |problem: String| {
        Failure::new(Class::Config, format!("--coordinator {coordinator}: {problem}; give http://HOST:PORT"))
    };
    let endpoint = Endpoint::from_shared(coordinator.to_owned()).map_err(|error| wrong(error.to_string()))?;
    match endpoint.uri().scheme_str() {
        Some("http") => Ok(endpoint),
        Some(other) => Err(wrong(format!("{other} is not spoken here"))),
        None => Err(wrong("it does not begin with http://".to_owned())),
    }
}

/// Host and process, and something random: process ids come again in containers.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_can_never_be_reached_is_refused_at_once() {
        assert!(address("http://127.0.0.1:7350").is_ok());
        for wrong in ["127.0.0.1:7350", "localhost:7350", "https://localhost:7350", "ftp://x", "/x", "", "http://"] {
            assert!(address(wrong).is_err(), "{wrong:?}");
        }
    }
}
