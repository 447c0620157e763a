//! `iceferry worker`: works for a coordinator until it says that there is no more.

use std::sync::Arc;

use iceferry_common::fault::Class;
use iceferry_common::model::WorkerId;
use iceferry_common::shutdown;
use iceferry_worker::attempt::PipelineRunner;
use iceferry_worker::serve::{self, Tally, WorkerConfig};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::args::WorkerArgs;
use crate::failure::Failure;

pub(crate) async fn worker(args: &WorkerArgs) -> Result<(), Failure> {
    let endpoint = endpoint(&args.coordinator)?;
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
    let Tally { done, failed, given_back } = served.tally;
    tracing::info!(reason = ?served.reason, done, failed, given_back, "ended");
    Ok(())
}

fn endpoint(address: &str) -> Result<Endpoint, Failure> {
    let wrong = |problem: &str| {
        Failure::new(Class::Config, format!("--coordinator {address}: {problem}; give http://HOST:PORT"))
    };
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| wrong(&error.to_string()))?;
    // An address without a scheme parses, and is then tried again and again in vain.
    match endpoint.uri().scheme_str() {
        Some("http") => Ok(endpoint),
        Some(scheme) => Err(wrong(&format!("{scheme} is not spoken"))),
        None => Err(wrong("it has no scheme")),
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
    fn only_an_address_that_can_be_reached_is_taken() {
        assert!(endpoint("http://127.0.0.1:7350").is_ok());
        for address in ["127.0.0.1:7350", "localhost", "https://host:1", "grpc://host:1", "not an address"] {
            assert!(endpoint(address).is_err(), "{address}");
        }
    }
}
