//! The workers that are there, and which of them gets the next lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use iceferry_common::model::{LeaseId, WorkerId};
use iceferry_proto::message::Register;

/// One stream of one worker; never given twice. A worker that comes back has a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::distribute) struct SessionId(pub(in crate::distribute) u64);

/// Leases taken from a worker whose late answer is still recognised. An answer to an older one is refused as well, only
/// its files stay for the next run to find.
const WITHDRAWN_MAX: usize = 4096;

/// A worker whose stream is open.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    slots: u32,
    memory_bytes: u64,
    /// Leases that it holds.
    pub(super) leases: BTreeSet<LeaseId>,
    /// Leases that were taken from it and that it may still answer.
    withdrawn: BTreeSet<LeaseId>,
    /// When it was last heard.
    heard: Instant,
    /// It missed the lease timeout: it gets nothing until it speaks again.
    silent: bool,
    /// It said that it takes no more.
    draining: bool,
    /// Whether it has the context of the epoch under way.
    pub(super) has_context: bool,
}

impl Worker {
    fn takes_leases(&self) -> bool {
        !self.silent && !self.draining
    }

    fn has_free_slot(&self) -> bool {
        self.leases.len() < self.slots as usize
    }

    /// What the least of comes first: share of slots in use, then little memory for a slot. Whole numbers, so that the
    /// choice is the same everywhere.
    fn load(&self) -> (u64, std::cmp::Reverse<u64>) {
        let slots = u64::from(self.slots).max(1);
        ((self.leases.len() as u64).saturating_mul(1_000_000) / slots, std::cmp::Reverse(self.memory_bytes / slots))
    }

    /// Takes a lease away without a word from the worker; its answer may still come.
    pub(super) fn withdraw(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        self.withdrawn.insert(lease);
        if self.withdrawn.len() > WITHDRAWN_MAX {
            self.withdrawn.pop_first();
        }
    }

    /// Whether this is the first late answer to a lease that was taken away.
    pub(super) fn answers_withdrawn(&mut self, lease: LeaseId) -> bool {
        self.withdrawn.remove(&lease)
    }
}

/// The workers that are there.
#[derive(Debug, Default)]
pub(super) struct Pool {
    workers: BTreeMap<SessionId, Worker>,
}

impl Pool {
    pub(super) fn join(&mut self, now: Instant, session: SessionId, register: Register) {
        let worker = Worker {
            id: register.worker,
            slots: register.slots,
            memory_bytes: register.memory_bytes,
            leases: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            heard: now,
            silent: false,
            draining: false,
            has_context: false,
        };
        self.workers.insert(session, worker);
    }

    pub(super) fn leave(&mut self, session: SessionId) -> Option<Worker> {
        self.workers.remove(&session)
    }

    pub(super) fn get(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.get_mut(&session)
    }

    /// The open stream of the worker of this name.
    pub(super) fn session_of(&self, id: &WorkerId) -> Option<SessionId> {
        self.workers.iter().find(|(_, worker)| worker.id == *id).map(|(session, _)| *session)
    }

    /// The worker spoke. Gives false when there is no such stream.
    pub(super) fn heard(&mut self, now: Instant, session: SessionId) -> bool {
        let Some(worker) = self.workers.get_mut(&session) else { return false };
        worker.heard = now;
        worker.silent = false;
        true
    }

    pub(super) fn drain(&mut self, session: SessionId) {
        if let Some(worker) = self.workers.get_mut(&session) {
            worker.draining = true;
        }
    }

    /// Marks those that said nothing for `timeout`, each once.
    pub(super) fn fall_silent(&mut self, now: Instant, timeout: Duration) -> Vec<SessionId> {
        let late = |worker: &Worker| !worker.silent && now.saturating_duration_since(worker.heard) >= timeout;
        let late = self.workers.iter_mut().filter(|(_, worker)| late(worker));
        late.map(|(session, worker)| {
            worker.silent = true;
            *session
        })
        .collect()
    }

    /// A new epoch: nobody has its context.
    pub(super) fn forget_context(&mut self) {
        self.workers.values_mut().for_each(|worker| worker.has_context = false);
    }

    /// Who gets the next lease: the least loaded with a free slot. Those to avoid get none as long as there is anybody
    /// else, even one that is busy: the task waits for it.
    pub(super) fn pick(&self, avoid: &[WorkerId]) -> Option<SessionId> {
        let takers = || self.workers.iter().filter(|(_, worker)| worker.takes_leases());
        let others = !avoid.is_empty() && takers().any(|(_, worker)| !avoid.contains(&worker.id));
        takers()
            .filter(|(_, worker)| worker.has_free_slot() && !(others && avoid.contains(&worker.id)))
            .min_by_key(|(_, worker)| worker.load())
            .map(|(session, _)| *session)
    }

    /// Workers that take leases.
    pub(super) fn takers(&self) -> usize {
        self.workers.values().filter(|worker| worker.takes_leases()).count()
    }

    /// Slots of the workers that take leases.
    pub(super) fn slots(&self) -> usize {
        self.workers.values().filter(|worker| worker.takes_leases()).map(|worker| worker.slots as usize).sum()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        for worker in self.workers.values() {
            assert!(worker.leases.len() <= worker.slots as usize, "more leases than slots: {worker:?}");
            assert!(worker.leases.is_disjoint(&worker.withdrawn), "{worker:?}");
        }
    }
}
