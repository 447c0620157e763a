//! Bounds and waits of handing out tasks.

use std::time::Duration;

/// Bounds and waits; the defaults suit a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistributeConfig {
    /// A worker that says nothing for so long loses its leases.
    pub lease_timeout: Duration,
    /// A worker sends a heartbeat at least this often. At most a third of the lease timeout is asked for, whatever
    /// stands here, so that one late heartbeat loses nothing.
    pub heartbeat: Duration,
    /// A task that fails in passing so often ends the epoch; at least 1.
    pub attempts_max: u32,
    /// A task whose worker is lost so often ends the epoch; at least 1. Higher than `attempts_max`, since a lost worker
    /// takes innocent tasks with it.
    pub losses_max: u32,
    /// Wait before the second try; doubled for each one after it.
    pub retry_delay: Duration,
    /// The longest wait before another try.
    pub retry_delay_max: Duration,
    /// Planning waits while this many tasks wait for a worker, or four for each slot if that is more.
    pub waiting_tasks_min: usize,
    /// A warning tells when tasks wait for so long and there is no worker at all.
    pub no_worker_warning: Duration,
    /// At the end, workers have so long to close their streams.
    pub drain_timeout: Duration,
}

impl Default for DistributeConfig {
    fn default() -> Self {
        Self {
            lease_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(3),
            attempts_max: 4,
            losses_max: 8,
            retry_delay: Duration::from_millis(200),
            retry_delay_max: Duration::from_secs(10),
            waiting_tasks_min: 64,
            no_worker_warning: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl DistributeConfig {
    /// The heartbeat that workers are told.
    pub(super) fn heartbeat_asked(&self) -> Duration {
        self.heartbeat.min(self.lease_timeout / 3).max(Duration::from_millis(1))
    }

    /// How often the state is looked at for what time alone changes.
    pub(super) fn tick(&self) -> Duration {
        (self.lease_timeout / 8).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }

    /// The wait before the try that follows `tries` unlucky ones.
    pub(super) fn retry_wait(&self, tries: u32) -> Duration {
        let doublings = tries.saturating_sub(1).min(16);
        self.retry_delay.saturating_mul(1 << doublings).min(self.retry_delay_max)
    }
}
