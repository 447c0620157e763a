//! Bounds and waits of a worker.

use std::time::Duration;

use iceferry_common::model::WorkerId;

/// Who a worker is, and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Its name: unlike that of any other worker of the coordinator.
    pub id: WorkerId,
    /// Attempts that run at once; at least 1.
    pub slots: u32,
    /// Memory that its attempts may use together.
    pub memory_bytes: u64,
    /// When it is told to stop, attempts under way have so long to finish before they are given back.
    pub grace: Duration,
    /// An attempt that was cancelled has so long to end before the worker ends without it.
    pub cancel_timeout: Duration,
    /// The coordinator's answer to a new stream may take so long.
    pub connect_timeout: Duration,
    /// Without a coordinator for so long the worker gives up.
    pub reconnect_max: Duration,
    /// Wait before the second try to connect; doubled for each one after it, and jittered.
    pub reconnect_delay: Duration,
    /// The longest wait between two tries to connect.
    pub reconnect_delay_max: Duration,
}

impl WorkerConfig {
    /// A worker of this name and size, with the other bounds at their defaults.
    pub fn new(id: WorkerId, slots: u32, memory_bytes: u64) -> Self {
        Self {
            id,
            slots,
            memory_bytes,
            grace: Duration::from_secs(30),
            cancel_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(60),
            reconnect_delay: Duration::from_millis(100),
            reconnect_delay_max: Duration::from_secs(5),
        }
    }

    /// The wait after `failures` tries to connect. `random` spreads the workers of a cluster, so that they do not all
    /// come back at the same moment: between half of the wait and all of it.
    pub(super) fn reconnect_wait(&self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let whole = self.reconnect_delay.saturating_mul(1 << doublings).min(self.reconnect_delay_max);
        whole / 2 + whole.mul_f64(0.5 * (random as f64 / u64::MAX as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_bound_and_are_spread() {
        let config = WorkerConfig::new(WorkerId("w".into()), 1, 0);
        for (failures, whole_ms) in [(0, 100), (1, 100), (2, 200), (5, 1600), (7, 5000), (u32::MAX, 5000)] {
            let (least, most) = (config.reconnect_wait(failures, 0), config.reconnect_wait(failures, u64::MAX));
            assert_eq!((least.as_millis(), most.as_millis()), (whole_ms / 2, whole_ms), "{failures}");
        }
    }
}
