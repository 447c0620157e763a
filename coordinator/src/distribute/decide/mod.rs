//! What decides about tasks, leases and workers: events in, actions out. No await, no clock, no I/O: time is a
//! parameter, and the same events at the same times give the same actions.
//!
//! The rules:
//! - a worker that says nothing for the lease timeout loses its leases, and so does one whose stream ends; the tasks go
//!   to other attempts;
//! - only the holder of a lease is believed (I3). A result that comes late is refused and its files are to be removed;
//!   an answer to a lease that was never taken away is refused too, but its files are let alone: they may be referenced;
//! - a passing failure is tried again, elsewhere if there is an elsewhere; any other ends the epoch with its own error;
//! - a task that loses its worker too often ends the epoch, so that one that kills workers cannot kill them all;
//! - what a draining worker gives back is nobody's failure;
//! - a bucket of a group is resolved when all tasks that exchange the group's rows are accepted, from their rows alone.

mod epoch;
mod groups;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Instant;

use iceferry_common::fault::Class;
use iceferry_common::model::{
    Attempt, EpochId, ExchangeFile, LeaseId, ScanTask, StagedContent, TaskId, TaskOutput, Work, WorkerId,
};
use iceferry_proto::message::{Lease, Progress as LeaseProgress, Register};

use self::epoch::{Epoch, Leased, Retry, Task};
use self::pool::Pool;
pub(super) use self::pool::SessionId;
use super::{DistributeConfig, DistributeError, EpochFailed, EpochOutput, Progress};

/// Names of staged files kept for removal while no epoch is under way. More than these are left for the next run, which
/// looks through the staging folder anyway.
const LEFT_BEHIND_MAX: usize = 65_536;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// An epoch begins; its files are staged in this folder.
    EpochBegun { epoch: EpochId, staging_folder: String },
    /// Whoever wanted the epoch does not any more.
    EpochDropped(DistributeError),
    /// The planner has a task.
    TaskArrived(ScanTask),
    /// The planner has no more.
    TasksEnded,
    /// A worker registered on a new stream.
    WorkerJoined { session: SessionId, register: Register },
    /// A worker is alive.
    Heartbeat { session: SessionId, progress: Vec<LeaseProgress> },
    /// An attempt is done.
    Done { session: SessionId, lease: LeaseId, output: TaskOutput },
    /// An attempt failed.
    Failed { session: SessionId, lease: LeaseId, class: Class, message: String, left_behind: Vec<String> },
    /// A worker drains, and will not finish these.
    GaveBack { session: SessionId, leases: Vec<LeaseId> },
    /// A worker's stream ended.
    WorkerLost { session: SessionId, why: String },
    /// Time passed.
    Tick,
}

/// What to do about it.
#[derive(Debug)]
pub(super) enum Action {
    /// Send the context of the epoch; the lease follows.
    SendContext(SessionId),
    /// Send a lease.
    Send(SessionId, Lease),
    /// Tell a worker that a lease is gone.
    Revoke(SessionId, LeaseId),
    /// End a stream: its worker registered again on another one.
    Close(SessionId),
    /// The epoch is done.
    Finish(EpochOutput),
    /// The epoch failed.
    Fail(EpochFailed),
    /// Tell a person.
    Note(Note),
}

/// What a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// A task is tried again after a passing failure.
    Retrying { task: TaskId, attempt: Attempt, worker: WorkerId, class: Class, message: String },
    /// A task is tried again since its worker was lost.
    LeaseLost { task: TaskId, attempt: Attempt, worker: WorkerId, why: String },
    /// A worker gave a task back.
    GivenBack { task: TaskId, attempt: Attempt, worker: WorkerId },
    /// An answer came to a lease that was taken away.
    LateAnswer { lease: LeaseId, worker: WorkerId, files: usize },
    /// An answer came to a lease that this worker does not hold.
    StrangeAnswer { lease: LeaseId, worker: WorkerId },
    /// A worker named files outside of the staging folder; they are let alone.
    StrangeFiles { worker: WorkerId, files: usize },
    /// A worker said nothing for the lease timeout.
    Silent { worker: WorkerId, leases: usize },
    /// Tasks wait and no worker is there.
    NoWorker { waiting: usize },
}

/// The state of handing out tasks.
#[derive(Debug)]
pub(super) struct Decider {
    config: DistributeConfig,
    pool: Pool,
    epoch: Option<Epoch>,
    next_lease: u64,
    /// Where this run stages; what lies elsewhere is never removed on a worker's word.
    staging_folder: Option<String>,
    /// Staged files of no epoch under way.
    left_behind: Vec<String>,
    /// How far the epoch before was when it ended.
    ended: Progress,
    no_worker_since: Option<Instant>,
}

impl Decider {
    pub(super) fn new(config: DistributeConfig) -> Self {
        Self {
            config,
            pool: Pool::default(),
            epoch: None,
            next_lease: 0,
            staging_folder: None,
            left_behind: Vec::new(),
            ended: Progress::default(),
            no_worker_since: None,
        }
    }

    /// Whether there is room for another task. While there is none, the planner waits.
    pub(super) fn wants_tasks(&self) -> bool {
        let bound = self.config.waiting_tasks_min.max(4 * self.pool.slots()).max(1);
        self.epoch.as_ref().is_some_and(|epoch| !epoch.planned && epoch.waiting() < bound)
    }

    /// The epoch under way.
    pub(super) fn epoch(&self) -> Option<EpochId> {
        self.epoch.as_ref().map(|epoch| epoch.id)
    }

    /// How far the epoch under way is, or the last one was when it ended.
    pub(super) fn progress(&self) -> Progress {
        let mut progress = self.epoch.as_ref().map_or_else(|| self.ended.clone(), Epoch::progress);
        progress.workers = self.pool.takers();
        progress.slots = self.pool.slots();
        progress
    }

    /// Keeps names of staged files for whoever asks next.
    pub(super) fn keep_left_behind(&mut self, files: Vec<String>) {
        let kept = match &mut self.epoch {
            Some(epoch) => &mut epoch.left_behind,
            None => &mut self.left_behind,
        };
        let room = LEFT_BEHIND_MAX.saturating_sub(kept.len());
        kept.extend(files.into_iter().take(room));
    }

    /// Staged files that no epoch took along.
    pub(super) fn take_left_behind(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left_behind)
    }

    /// Takes in what happened and says what to do, in this order.
    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let failed = self.apply(now, event, &mut actions);
        match failed {
            Ok(()) => self.move_on(now, &mut actions),
            Err(error) => self.fail(error, &mut actions),
        }
        actions
    }

    /// An error ends the epoch.
    fn apply(&mut self, now: Instant, event: Event, actions: &mut Vec<Action>) -> Result<(), DistributeError> {
        match event {
            Event::EpochBegun { epoch, staging_folder } => {
                if let Some(running) = self.epoch() {
                    return Err(DistributeError::Busy { epoch, running });
                }
                self.pool.forget_context();
                self.epoch = Some(Epoch::new(epoch, self.take_left_behind()));
                self.staging_folder = Some(staging_folder);
            }
            Event::EpochDropped(why) => return Err(why),
            Event::TaskArrived(scan) => {
                if let Some(epoch) = &mut self.epoch {
                    let task = scan.id;
                    if !epoch.arrive(scan) {
                        return Err(DistributeError::PlannedTwice { epoch: epoch.id, task });
                    }
                }
            }
            Event::TasksEnded => {
                if let Some(epoch) = &mut self.epoch {
                    epoch.planned = true;
                }
            }
            Event::WorkerJoined { session, register } => {
                // A worker that comes back before its old stream was seen to end is one worker, not two.
                let former = self.pool.session_of(&register.worker);
                self.pool.join(now, session, register);
                if let Some(former) = former {
                    actions.push(Action::Close(former));
                    self.leave(now, former, "it registered again on another stream", actions)?;
                }
            }
            Event::WorkerLost { session, why } => self.leave(now, session, &why, actions)?,
            Event::Heartbeat { session, progress } => {
                if self.pool.heard(now, session) {
                    self.note_progress(session, progress);
                }
            }
            Event::Done { session, lease, output } => {
                if self.pool.heard(now, session) {
                    self.done(session, lease, output, actions)?;
                }
            }
            Event::Failed { session, lease, class, message, left_behind } => {
                if self.pool.heard(now, session) {
                    self.keep_staged(session, left_behind, actions);
                    self.failed(now, session, lease, class, message, actions)?;
                }
            }
            Event::GaveBack { session, leases } => {
                if self.pool.heard(now, session) {
                    self.pool.drain(session);
                    leases.into_iter().for_each(|lease| self.gave_back(now, session, lease, actions));
                }
            }
            Event::Tick => {
                for session in self.pool.fall_silent(now, self.config.lease_timeout) {
                    self.fell_silent(now, session, actions)?;
                }
            }
        }
        Ok(())
    }

    /// What follows from the state alone: leases for those that wait, the end of the epoch, a word about waiting.
    fn move_on(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.assign(now, actions);
        let complete = self.epoch.as_ref().filter(|epoch| epoch.is_complete());
        if let Some((epoch, group)) = complete.and_then(|epoch| Some((epoch.id, epoch.groups.first_open()?))) {
            self.fail(DistributeError::GroupIncomplete { epoch, group }, actions);
        } else if complete.is_some()
            && let Some(mut epoch) = self.epoch.take()
        {
            epoch.left_behind.extend(epoch.groups.take_locations());
            let rows = epoch.rows();
            self.ended = epoch.progress();
            epoch.outputs.sort_by_key(|output| output.task);
            actions.push(Action::Finish(EpochOutput { outputs: epoch.outputs, rows, left_behind: epoch.left_behind }));
        }
        self.mind_waiting(now, actions);
    }

    fn assign(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(epoch) = &mut self.epoch else { return };
        let mut place = 0;
        while place < epoch.retries.len() {
            let retry = &epoch.retries[place];
            let due = retry.not_before <= now;
            match due.then(|| self.pool.pick(&retry.task.avoid)).flatten() {
                Some(session) => {
                    let Retry { task, .. } = epoch.retries.remove(place);
                    grant(epoch, &mut self.pool, &mut self.next_lease, session, task, actions);
                }
                None => place += 1,
            }
        }
        while !epoch.fresh.is_empty()
            && let Some(session) = self.pool.pick(&[])
            && let Some(task) = epoch.fresh.pop_front()
        {
            grant(epoch, &mut self.pool, &mut self.next_lease, session, task, actions);
        }
    }

    fn mind_waiting(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let waiting = self.epoch.as_ref().map_or(0, Epoch::waiting);
        if waiting == 0 || self.pool.takers() > 0 {
            self.no_worker_since = None;
            return;
        }
        let since = *self.no_worker_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.config.no_worker_warning {
            actions.push(Action::Note(Note::NoWorker { waiting }));
            self.no_worker_since = Some(now);
        }
    }

    /// Ends the epoch without a result.
    fn fail(&mut self, error: DistributeError, actions: &mut Vec<Action>) {
        let Some(mut epoch) = self.epoch.take() else { return };
        self.ended = epoch.progress();
        let mut leases: Vec<(LeaseId, Leased)> = epoch.leased.drain().collect();
        leases.sort_by_key(|(lease, _)| *lease);
        for (lease, leased) in leases {
            if let Some(worker) = self.pool.get(leased.session) {
                worker.withdraw(lease);
                actions.push(Action::Revoke(leased.session, lease));
            }
        }
        let accepted = epoch.outputs.into_iter().flat_map(|output| output.files);
        epoch.left_behind.extend(accepted.map(|file| file.location));
        epoch.left_behind.extend(epoch.groups.take_locations());
        actions.push(Action::Fail(EpochFailed { error, left_behind: epoch.left_behind }));
    }

    fn note_progress(&mut self, session: SessionId, progress: Vec<LeaseProgress>) {
        let Some(epoch) = &mut self.epoch else { return };
        for LeaseProgress { lease, rows } in progress {
            if let Some(leased) = epoch.leased.get_mut(&lease).filter(|leased| leased.session == session) {
                leased.rows = rows;
            }
        }
    }

    /// The task of a lease that this worker holds; the lease is over with that.
    fn take_lease(&mut self, session: SessionId, lease: LeaseId) -> Option<(EpochId, Leased, WorkerId)> {
        let worker = self.pool.get(session)?;
        let epoch = self.epoch.as_mut()?;
        if !worker.leases.remove(&lease) {
            return None;
        }
        let id = worker.id.clone();
        epoch.leased.remove(&lease).map(|leased| (epoch.id, leased, id))
    }

    fn done(
        &mut self,
        session: SessionId,
        lease: LeaseId,
        output: TaskOutput,
        actions: &mut Vec<Action>,
    ) -> Result<(), DistributeError> {
        let Some((epoch, leased, worker)) = self.take_lease(session, lease) else {
            self.refuse_late(session, lease, output.into_locations(), actions);
            return Ok(());
        };
        let task = leased.task.scan.id;
        if let Err(problem) = check_output(&output, &leased.task.scan, leased.attempt, self.staging_folder.as_deref()) {
            self.keep_staged(session, output.into_locations(), actions);
            return Err(DistributeError::BrokenWord { epoch, task, worker, problem });
        }
        match self.epoch.as_mut().and_then(|epoch| epoch.accept(&leased.task, output)) {
            Some(task) => Err(DistributeError::PlannedTwice { epoch, task }),
            None => Ok(()),
        }
    }

    fn failed(
        &mut self,
        now: Instant,
        session: SessionId,
        lease: LeaseId,
        class: Class,
        message: String,
        actions: &mut Vec<Action>,
    ) -> Result<(), DistributeError> {
        let Some((epoch, Leased { mut task, attempt, .. }, worker)) = self.take_lease(session, lease) else {
            self.refuse_late(session, lease, Vec::new(), actions);
            return Ok(());
        };
        let id = task.scan.id;
        // A worker that is told to stop may say so of an attempt whose files it could not remove.
        if !class.is_retryable() && class != Class::Interrupted {
            return Err(DistributeError::Task { epoch, task: id, worker, attempt, class, message });
        }
        task.failures += 1;
        if task.failures >= self.config.attempts_max {
            let failures = task.failures;
            return Err(DistributeError::TriedOften { epoch, task: id, failures, worker, class, message });
        }
        task.avoid(&worker);
        actions.push(Action::Note(Note::Retrying { task: id, attempt, worker, class, message }));
        self.try_again(now, task);
        Ok(())
    }

    fn gave_back(&mut self, now: Instant, session: SessionId, lease: LeaseId, actions: &mut Vec<Action>) {
        let Some((_, Leased { task, attempt, .. }, worker)) = self.take_lease(session, lease) else {
            self.refuse_late(session, lease, Vec::new(), actions);
            return;
        };
        actions.push(Action::Note(Note::GivenBack { task: task.scan.id, attempt, worker }));
        if let Some(epoch) = &mut self.epoch {
            epoch.retries.push(Retry { task, not_before: now });
        }
    }

    fn fell_silent(
        &mut self,
        now: Instant,
        session: SessionId,
        actions: &mut Vec<Action>,
    ) -> Result<(), DistributeError> {
        let Some(worker) = self.pool.get(session) else { return Ok(()) };
        let (id, leases) = (worker.id.clone(), worker.leases.clone());
        actions.push(Action::Note(Note::Silent { worker: id.clone(), leases: leases.len() }));
        for lease in leases {
            if let Some(worker) = self.pool.get(session) {
                worker.withdraw(lease);
            }
            actions.push(Action::Revoke(session, lease));
            self.lost(now, lease, &id, "it fell silent", actions)?;
        }
        Ok(())
    }

    /// The stream is over: whatever the worker held is lost.
    fn leave(
        &mut self,
        now: Instant,
        session: SessionId,
        why: &str,
        actions: &mut Vec<Action>,
    ) -> Result<(), DistributeError> {
        let Some(worker) = self.pool.leave(session) else { return Ok(()) };
        for lease in worker.leases {
            self.lost(now, lease, &worker.id, why, actions)?;
        }
        Ok(())
    }

    fn lost(
        &mut self,
        now: Instant,
        lease: LeaseId,
        worker: &WorkerId,
        why: &str,
        actions: &mut Vec<Action>,
    ) -> Result<(), DistributeError> {
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let Some(Leased { mut task, attempt, .. }) = epoch.leased.remove(&lease) else { return Ok(()) };
        let id = task.scan.id;
        task.losses += 1;
        if task.losses >= self.config.losses_max {
            return Err(DistributeError::LostOften {
                epoch: epoch.id,
                task: id,
                files: task.files(),
                losses: task.losses,
                worker: worker.clone(),
                why: why.to_owned(),
            });
        }
        task.avoid(worker);
        let (worker, why) = (worker.clone(), why.to_owned());
        actions.push(Action::Note(Note::LeaseLost { task: id, attempt, worker, why }));
        self.try_again(now, task);
        Ok(())
    }

    fn try_again(&mut self, now: Instant, task: Task) {
        let not_before = now + self.config.retry_wait(task.failures + task.losses);
        if let Some(epoch) = &mut self.epoch {
            epoch.retries.push(Retry { task, not_before });
        }
    }

    /// An answer to a lease that its sender does not hold. Files are only removed when the lease is known to have been
    /// taken away: then no output of it was ever accepted.
    fn refuse_late(&mut self, session: SessionId, lease: LeaseId, files: Vec<String>, actions: &mut Vec<Action>) {
        let Some(sender) = self.pool.get(session) else { return };
        let worker = sender.id.clone();
        if sender.answers_withdrawn(lease) {
            actions.push(Action::Note(Note::LateAnswer { lease, worker, files: files.len() }));
            self.keep_staged(session, files, actions);
        } else {
            actions.push(Action::Note(Note::StrangeAnswer { lease, worker }));
        }
    }

    /// Keeps files for removal, as far as they are certainly ours.
    fn keep_staged(&mut self, session: SessionId, files: Vec<String>, actions: &mut Vec<Action>) {
        let folder = self.staging_folder.as_deref();
        let (ours, strange): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_staged(file, folder));
        if !strange.is_empty()
            && let Some(worker) = self.pool.get(session)
        {
            let worker = worker.id.clone();
            actions.push(Action::Note(Note::StrangeFiles { worker, files: strange.len() }));
        }
        self.keep_left_behind(ours);
    }

    #[cfg(test)]
    fn check(&self) {
        self.pool.check();
        self.epoch.iter().for_each(Epoch::check);
    }
}

fn grant(
    epoch: &mut Epoch,
    pool: &mut Pool,
    next_lease: &mut u64,
    session: SessionId,
    mut task: Task,
    actions: &mut Vec<Action>,
) {
    let Some(worker) = pool.get(session) else { return epoch.fresh.push_front(task) };
    if !worker.has_context {
        worker.has_context = true;
        actions.push(Action::SendContext(session));
    }
    let lease = LeaseId(*next_lease);
    *next_lease += 1;
    let attempt = Attempt(task.attempts);
    task.attempts += 1;
    worker.leases.insert(lease);
    actions.push(Action::Send(session, Lease { lease, epoch: epoch.id, attempt, task: task.scan.clone() }));
    epoch.leased.insert(lease, Leased { task, session, attempt, rows: Default::default() });
}

/// I3 at the door: the output is that of the lease's own attempt, in our own folder, each file once.
fn check_output(output: &TaskOutput, scan: &ScanTask, attempt: Attempt, folder: Option<&str>) -> Result<(), String> {
    let task = scan.id;
    if (output.task, output.attempt) != (task, attempt) {
        let (other, its) = (output.task, output.attempt);
        return Err(format!("its result is of task {other} attempt {its}, its lease of attempt {attempt}"));
    }
    let mut seen = HashSet::new();
    for file in &output.files {
        if !is_staged(&file.location, folder) {
            return Err(format!("it staged {}, which is not in the staging folder", file.location));
        }
        // A file of several vectors is named once for each.
        if !seen.insert(file.location.as_str()) && file.content != StagedContent::DeletionVector {
            return Err(format!("it staged {} twice", file.location));
        }
    }
    check_exchanged(output, scan, folder)
}

/// What belongs to the work of the task, and no row of an exchange less than there were.
fn check_exchanged(output: &TaskOutput, scan: &ScanTask, folder: Option<&str>) -> Result<(), String> {
    let rows_in = |file: &ExchangeFile| file.blocks.iter().map(|block| block.rows).sum::<u64>();
    let read = output.rows.read;
    match (&scan.work, &output.exchanged) {
        (Work::Stage | Work::Copy(_) | Work::PassDeletes(_) | Work::Digest(_) | Work::Show(_), None) => Ok(()),
        (Work::Exchange(_), _) if !output.files.is_empty() => {
            Err("it staged files for the target, where rows were to be exchanged".to_owned())
        }
        (Work::Exchange(_), exchanged) => {
            let written = exchanged.as_ref().map_or(0, rows_in);
            if let Some(file) = exchanged.as_ref().filter(|file| !is_staged(&file.location, folder)) {
                return Err(format!("it wrote {}, which is not in the staging folder", file.location));
            }
            match written == read {
                true => Ok(()),
                false => Err(format!("it exchanged {written} of {read} rows")),
            }
        }
        (Work::Resolve(work), None) => {
            let expected: u64 = work.files.iter().map(rows_in).sum();
            match read == expected {
                true => Ok(()),
                false => Err(format!("it resolved {read} of {expected} rows")),
            }
        }
        (Work::Stage | Work::Copy(_) | Work::PassDeletes(_) | Work::Resolve(_), Some(_)) => {
            Err("it exchanged rows that were to be staged".to_owned())
        }
        (Work::Digest(_) | Work::Show(_), Some(_)) => Err("it exchanged rows that were to be compared".to_owned()),
    }
}

fn is_staged(location: &str, folder: Option<&str>) -> bool {
    folder.is_some_and(|folder| location.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}
