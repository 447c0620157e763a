//! Step 2, distribute: scan tasks -> leases to workers over gRPC.
//!
//! [`Dispatcher::run_epoch`] takes the context of an epoch and its scan tasks as they are planned, and gives one
//! accepted [`TaskOutput`] for each task. `decide` holds the rules and is pure; `dispatcher` is the one task that owns
//! the state and acts; `service` is the gRPC side, one reading task for each worker's stream.
//!
//! Bounds: tasks that wait for a worker (the planner is held back), messages that wait for a worker (one that does not
//! read is lost), messages that wait for the dispatcher (workers are held back), tries and losses of a task.

mod config;
mod decide;
mod dispatcher;
mod error;
mod service;
#[cfg(test)]
mod tests;

use iceferry_common::model::{EpochId, RowCounts, TaskOutput};

pub use config::DistributeConfig;
pub use dispatcher::Dispatcher;
pub use error::{DistributeError, EpochFailed};
pub use service::{DispatchService, server};

/// What the workers made of an epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpochOutput {
    /// One accepted output for each task, by task number.
    pub outputs: Vec<TaskOutput>,
    /// Their counters, added up.
    pub rows: RowCounts,
    /// Staged files that nobody references and that are to be removed: of attempts that were not accepted.
    pub left_behind: Vec<String>,
}

/// How the workers were sent home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drained {
    /// Staged files that came up since the last epoch and are to be removed.
    pub left_behind: Vec<String>,
    /// Whether all streams were closed in time: no worker that was there at the end writes anything any more.
    pub all_closed: bool,
}

/// How far an epoch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The epoch; none before the first.
    pub epoch: Option<EpochId>,
    /// Whether the planner is done, so that what was seen is all there is.
    pub all_planned: bool,
    /// Tasks whose output is accepted.
    pub tasks_done: u64,
    /// Tasks that a worker has.
    pub tasks_leased: u64,
    /// Tasks that wait for a worker.
    pub tasks_waiting: u64,
    /// Files of the tasks seen until now; a split file counts for each split.
    pub files_seen: u64,
    /// Files of the tasks that are done.
    pub files_done: u64,
    /// Bytes of data files of the tasks seen until now.
    pub bytes_seen: u64,
    /// Bytes of data files of the tasks that are done.
    pub bytes_done: u64,
    /// Counters of accepted attempts and, as of the last heartbeats, of those under way.
    pub rows: RowCounts,
    /// Workers that take tasks.
    pub workers: usize,
    /// Their slots.
    pub slots: usize,
}
