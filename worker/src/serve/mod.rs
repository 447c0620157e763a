//! Takes leases from a coordinator and runs them.
//!
//! [`serve`] keeps one stream to the coordinator, registers on it, runs the attempts of the leases that come, up to its
//! slots at once, and says how they end. Heartbeats go out at the interval that the coordinator asks for.
//!
//! When the stream breaks, every lease on it is lost: the attempts are cancelled, their files removed, and the worker
//! connects again, each time a little later, until it gives up. When the worker is told to drain it takes nothing more,
//! lets attempts finish for a while, gives back the rest, and closes the stream once all of it is said. A result that
//! was sent and whose stream broke is neither sent again nor removed: it may have been taken, or is found by the next
//! run of the job.

mod attempts;
mod config;
mod error;
mod session;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use iceferry_common::clock;
use iceferry_common::fault::Class;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

pub use config::WorkerConfig;
pub use error::ServeError;

use self::attempts::Attempts;
use self::session::{Close, Session};
use crate::attempt::Runner;

/// Why a worker ended well, and what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Why.
    pub reason: Reason,
    /// What it did.
    pub tally: Tally,
}

/// Why a worker ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The coordinator has no more work.
    NoMoreWork,
    /// The worker was told to drain.
    Drained,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Attempts whose output was sent.
    pub done: u64,
    /// Attempts whose error was sent.
    pub failed: u64,
    /// Tasks that were given back.
    pub given_back: u64,
}

/// An endpoint with the keep-alive that a worker wants: a coordinator whose machine is gone is noticed though no one
/// closes the connection. Reconnecting is [`serve`]'s.
pub fn endpoint(endpoint: Endpoint) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(20))
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
}

/// Works for the coordinator behind `channel` until that has no more work or `drain` is cancelled. The channel is asked
/// for a new connection whenever the old one broke, so its connector must be able to make more than one.
///
/// # Errors
/// When there is no coordinator for too long, or it does not take this worker. Everything under way is stopped and its
/// files removed by then.
pub async fn serve(
    channel: Channel,
    config: WorkerConfig,
    runner: Arc<dyn Runner>,
    drain: CancellationToken,
) -> Result<Served, ServeError> {
    let mut attempts = Attempts::new(runner, config.slots);
    let mut tally = Tally::default();
    let served = keep_serving(channel, &config, &mut attempts, &mut tally, &drain).await;
    attempts.revoke_all();
    // What is said now is said to nobody.
    let ended = async { while attempts.next().await.is_some() {} };
    if tokio::time::timeout(config.cancel_timeout, ended).await.is_err() {
        tracing::warn!(worker = %config.id, "attempts did not stop in time; the job's next run removes their files");
    }
    served.map(|reason| Served { reason, tally })
}

async fn keep_serving(
    channel: Channel,
    config: &WorkerConfig,
    attempts: &mut Attempts,
    tally: &mut Tally,
    drain: &CancellationToken,
) -> Result<Reason, ServeError> {
    let mut alone_since = clock::now();
    let mut failures = 0;
    while !drain.is_cancelled() {
        let session = Session { config, attempts: &mut *attempts, tally: &mut *tally, drain };
        let mut welcomed = false;
        let close = session.run(channel.clone(), &mut welcomed).await;
        attempts.revoke_all();
        if welcomed {
            alone_since = clock::now();
            failures = 0;
        }
        let last = match close {
            Close::NoMoreWork => return Ok(Reason::NoMoreWork),
            Close::Drained => return Ok(Reason::Drained),
            Close::Failed(error) => return Err(*error),
            Close::Broken(why) => why,
        };
        failures += 1;
        let waited = clock::now().saturating_duration_since(alone_since);
        if waited >= config.reconnect_max {
            return Err(ServeError::NoCoordinator { worker: config.id.clone(), waited, last });
        }
        let wait = config.reconnect_wait(failures, RandomState::new().hash_one(failures));
        tracing::info!(worker = %config.id, why = last, ?wait, "no stream to the coordinator; it is tried again");
        tokio::select! {
            () = drain.cancelled() => {}
            () = rest(attempts, wait) => {}
        }
    }
    Ok(Reason::Drained)
}

/// Waits, and clears away attempts that end meanwhile.
async fn rest(attempts: &mut Attempts, wait: Duration) {
    let cleared = async {
        while attempts.next().await.is_some() {}
        std::future::pending::<()>().await;
    };
    // Running into the time-out is what it is for.
    drop(tokio::time::timeout(wait, cleared).await);
}

/// An answer that another try would not change.
fn not_taken(config: &WorkerConfig, class: Class, status: &tonic::Status) -> ServeError {
    ServeError::NotTaken { worker: config.id.clone(), answer: status.message().to_owned(), class }
}
