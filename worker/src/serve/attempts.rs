//! The attempts under way. They outlive a stream: when one breaks they are cancelled, and what they staged is removed
//! while the worker connects again.

use std::collections::HashMap;
use std::sync::Arc;

use iceferry_common::fault::Class;
use iceferry_common::model::{EpochContext, LeaseId, TaskOutput};
use iceferry_proto::message::{FromWorker, Lease, Progress};
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

use crate::attempt::{AttemptError, Counters, Runner};

/// Who waits for the answer of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The coordinator.
    Yes,
    /// The coordinator, which is to have the task back if it is not done.
    GiveBack,
    /// Nobody: the lease was revoked, or its stream broke.
    No,
}

#[derive(Debug)]
struct Running {
    lease: LeaseId,
    context: Arc<EpochContext>,
    counters: Arc<Counters>,
    cancel: CancellationToken,
    wanted: Wanted,
}

/// How a spawned task ended.
#[derive(Debug)]
enum End {
    Attempt(Result<TaskOutput, AttemptError>),
    /// The files of an unwanted output are removed, save these.
    Discarded(Vec<String>),
}

/// The attempts under way; no more than there are slots run, others wait.
#[derive(Debug)]
pub(super) struct Attempts {
    runner: Arc<dyn Runner>,
    slots: Arc<Semaphore>,
    cancel: CancellationToken,
    /// Nothing goes on behind a worker that was dropped.
    _cancelled_on_drop: DropGuard,
    tasks: JoinSet<End>,
    running: HashMap<Id, Running>,
}

impl Attempts {
    pub(super) fn new(runner: Arc<dyn Runner>, slots: u32) -> Self {
        let cancel = CancellationToken::new();
        Self {
            runner,
            slots: Arc::new(Semaphore::new(slots.max(1) as usize)),
            _cancelled_on_drop: cancel.clone().drop_guard(),
            cancel,
            tasks: JoinSet::new(),
            running: HashMap::new(),
        }
    }

    /// Starts the attempt of a lease. It may wait for a slot: the coordinator counts a revoked attempt as ended while it
    /// is still on its way there.
    pub(super) fn start(&mut self, lease: Lease, context: Arc<EpochContext>) {
        let (cancel, counters) = (self.cancel.child_token(), Arc::new(Counters::default()));
        let (runner, slots) = (self.runner.clone(), self.slots.clone());
        let running = Running {
            lease: lease.lease,
            context: context.clone(),
            counters: counters.clone(),
            cancel: cancel.clone(),
            wanted: Wanted::Yes,
        };
        let span = tracing::info_span!(
            "attempt",
            job = %context.job,
            epoch = %lease.epoch,
            task = %lease.task.id,
            attempt = %lease.attempt,
        );
        let attempt = async move {
            // The slot is held until the attempt has ended, also when it was cancelled.
            let slot = tokio::select! {
                () = cancel.cancelled() => return End::Attempt(Err(AttemptError::cancelled(Vec::new()))),
                slot = slots.acquire_owned() => slot,
            };
            let result = runner.run(context, lease.task, lease.attempt, counters, cancel).await;
            drop(slot);
            End::Attempt(result)
        };
        let id = self.tasks.spawn(attempt.instrument(span)).id();
        self.running.insert(id, running);
    }

    /// Attempts whose answer somebody waits for.
    pub(super) fn wanted(&self) -> usize {
        self.running.values().filter(|running| running.wanted != Wanted::No).count()
    }

    /// The lease is gone: its attempt stops.
    pub(super) fn revoke(&mut self, lease: LeaseId) {
        // A lease number of an earlier coordinator may come again; those attempts are wanted by nobody.
        let mut held = self.running.values_mut().filter(|it| it.lease == lease && it.wanted != Wanted::No);
        if let Some(running) = held.next() {
            running.wanted = Wanted::No;
            running.cancel.cancel();
        }
    }

    /// The stream is gone, and all leases with it.
    pub(super) fn revoke_all(&mut self) {
        for running in self.running.values_mut() {
            running.wanted = Wanted::No;
            running.cancel.cancel();
        }
    }

    /// Stops what runs, to give it back.
    pub(super) fn give_back_all(&mut self) {
        for running in self.running.values_mut().filter(|running| running.wanted == Wanted::Yes) {
            running.wanted = Wanted::GiveBack;
            running.cancel.cancel();
        }
    }

    /// How far the wanted ones are.
    pub(super) fn progress(&self) -> Vec<Progress> {
        let wanted = self.running.values().filter(|running| running.wanted != Wanted::No);
        wanted.map(|running| Progress { lease: running.lease, rows: running.counters.get() }).collect()
    }

    /// Waits for the next attempt to end, and gives what there is to say about it. None when nothing runs, so that a
    /// caller can wait for all; one that goes on without must not ask then.
    pub(super) async fn next(&mut self) -> Option<FromWorker> {
        loop {
            let (id, end) = match self.tasks.join_next_with_id().await? {
                Ok((id, end)) => (id, end),
                Err(error) => (error.id(), End::Attempt(Err(panicked(&error)))),
            };
            match end {
                End::Discarded(left_behind) => warn_left_behind(&left_behind),
                End::Attempt(result) => {
                    let running = self.running.remove(&id);
                    if let Some(message) = running.and_then(|running| self.ended(running, result)) {
                        return Some(message);
                    }
                }
            }
        }
    }

    /// Whether nothing runs, wanted or not.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    fn ended(&mut self, running: Running, result: Result<TaskOutput, AttemptError>) -> Option<FromWorker> {
        let lease = running.lease;
        match (running.wanted, result) {
            (Wanted::Yes | Wanted::GiveBack, Ok(output)) => Some(FromWorker::Done { lease, output }),
            (Wanted::GiveBack, Err(AttemptError { class: Class::Interrupted, left_behind, .. }))
                if left_behind.is_empty() =>
            {
                Some(FromWorker::GiveBack(vec![lease]))
            }
            (Wanted::Yes | Wanted::GiveBack, Err(AttemptError { class, message, left_behind })) => {
                Some(FromWorker::Failed { lease, class, message, left_behind })
            }
            // Nothing was said about it to any coordinator, so nobody can have taken the output.
            (Wanted::No, Ok(output)) => {
                let runner = self.runner.clone();
                self.tasks.spawn(async move { End::Discarded(runner.discard(running.context, output).await) });
                None
            }
            (Wanted::No, Err(error)) => {
                warn_left_behind(&error.left_behind);
                None
            }
        }
    }
}

fn panicked(error: &tokio::task::JoinError) -> AttemptError {
    AttemptError { class: Class::Bug, message: format!("the attempt broke off: {error}"), left_behind: Vec::new() }
}

fn warn_left_behind(files: &[String]) {
    if let Some(first) = files.first() {
        let files = files.len();
        tracing::warn!(files, first, "staged files could not be removed; the job's next run removes them");
    }
}
