//! What a coordinator and its workers say to each other, in the domain's own types.

use std::sync::Arc;

use iceferry_common::fault::Class;
use iceferry_common::model::{Attempt, EpochContext, EpochId, LeaseId, RowCounts, ScanTask, TaskOutput, WorkerId};

/// A worker's words.
#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// The first word on a stream.
    Register(Register),
    /// Keeps every lease of the worker, and says how far they are.
    Heartbeat(Vec<Progress>),
    /// The attempt is done; its files are staged.
    Done {
        /// The lease.
        lease: LeaseId,
        /// What was staged.
        output: TaskOutput,
    },
    /// The attempt failed.
    Failed {
        /// The lease.
        lease: LeaseId,
        /// The class of its error.
        class: Class,
        /// The error and its causes.
        message: String,
        /// Staged files that could not be removed.
        left_behind: Vec<String>,
    },
    /// The worker is draining: it takes no more leases and will not finish these, of which nothing is left.
    GiveBack(Vec<LeaseId>),
}

/// Who a worker is and what it can bear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Its own name.
    pub worker: WorkerId,
    /// Tasks that it runs at once; at least 1.
    pub slots: u32,
    /// Memory that its tasks may use together.
    pub memory_bytes: u64,
    /// Its version, for messages.
    pub version: String,
}

/// How far one attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The lease.
    pub lease: LeaseId,
    /// Rows until now.
    pub rows: RowCounts,
}

/// A coordinator's words.
#[derive(Debug, Clone, PartialEq)]
pub enum ToWorker {
    /// The answer to [`FromWorker::Register`].
    Welcome(Welcome),
    /// What the tasks of an epoch share; sent before the first of their leases.
    Context(Arc<EpochContext>),
    /// The right to one attempt.
    Lease(Lease),
    /// The lease is no longer the worker's: it stops and removes what it staged.
    Revoke(LeaseId),
    /// There is no more work: the worker closes the stream.
    Drain,
}

/// Terms that a worker works under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The coordinator's name and version, for messages.
    pub coordinator: String,
    /// The worker sends a heartbeat at least this often.
    pub heartbeat_ms: u64,
    /// After this long without one, its leases are lost.
    pub lease_timeout_ms: u64,
}

/// The right to one attempt at a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Never given twice.
    pub lease: LeaseId,
    /// The epoch whose context the task needs.
    pub epoch: EpochId,
    /// Goes into every path that the attempt stages.
    pub attempt: Attempt,
    /// The work.
    pub task: Arc<ScanTask>,
}
