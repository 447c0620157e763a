//! The tasks of the epoch under way. A task is in exactly one place: waiting fresh, waiting for another try, leased, or
//! done; moving it is moving the value.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use iceferry_common::model::{Attempt, EpochId, LeaseId, RowCounts, ScanTask, TaskId, TaskOutput, Work, WorkerId};

use super::SessionId;
use super::groups::Groups;
use crate::distribute::Progress;

/// A task that is not done.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) scan: Arc<ScanTask>,
    /// Leases given until now: the number of the next attempt. No two attempts share one, whatever became of them.
    pub(super) attempts: u32,
    /// Tries that failed in passing.
    pub(super) failures: u32,
    /// Tries whose worker was lost.
    pub(super) losses: u32,
    /// Workers that were unlucky with it.
    pub(super) avoid: Vec<WorkerId>,
}

impl Task {
    pub(super) fn new(scan: ScanTask) -> Self {
        Self { scan: Arc::new(scan), attempts: 0, failures: 0, losses: 0, avoid: Vec::new() }
    }

    pub(super) fn avoid(&mut self, worker: &WorkerId) {
        if !self.avoid.contains(worker) {
            self.avoid.push(worker.clone());
        }
    }

    /// What it reads, for messages.
    pub(super) fn files(&self) -> String {
        if let Work::Resolve(work) = &self.scan.work {
            return format!("bucket {} of {} exchange files", work.bucket, work.files.len());
        }
        match self.scan.differences.as_slice() {
            [] => "no file".to_owned(),
            [only] => only.file.location.clone(),
            [first, rest @ ..] => format!("{} and {} more", first.file.location, rest.len()),
        }
    }
}

/// A task that somebody works on.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) task: Task,
    pub(super) session: SessionId,
    pub(super) attempt: Attempt,
    /// As of the last heartbeat.
    pub(super) rows: RowCounts,
}

/// A task that waits for another try.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) task: Task,
    pub(super) not_before: Instant,
}

/// The epoch under way.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) id: EpochId,
    pub(super) fresh: VecDeque<Task>,
    pub(super) retries: Vec<Retry>,
    pub(super) leased: HashMap<LeaseId, Leased>,
    /// Accepted, one for each task that is done.
    pub(super) outputs: Vec<TaskOutput>,
    /// Staged files that nobody will reference.
    pub(super) left_behind: Vec<String>,
    /// Whether planning is done.
    pub(super) planned: bool,
    /// Groups whose rows are exchanged.
    pub(super) groups: Groups,
    seen: HashSet<TaskId>,
    done: Progress,
}

impl Epoch {
    pub(super) fn new(id: EpochId, left_behind: Vec<String>) -> Self {
        Self {
            id,
            fresh: VecDeque::new(),
            retries: Vec::new(),
            leased: HashMap::new(),
            outputs: Vec::new(),
            left_behind,
            planned: false,
            groups: Groups::default(),
            seen: HashSet::new(),
            done: Progress { epoch: Some(id), ..Progress::default() },
        }
    }

    /// Takes in a task. Gives false when its number was there before.
    pub(super) fn arrive(&mut self, scan: ScanTask) -> bool {
        if !self.seen.insert(scan.id) {
            return false;
        }
        self.done.files_seen += scan.differences.len() as u64;
        self.done.bytes_seen += scan.data_bytes();
        self.fresh.push_back(Task::new(scan));
        true
    }

    /// Takes an output, and the tasks that follow from it. Gives the number of one that was there before.
    pub(super) fn accept(&mut self, task: &Task, mut output: TaskOutput) -> Option<TaskId> {
        let exchanged = output.exchanged.take();
        let following = match &task.scan.work {
            Work::Exchange(work) => self.groups.accept(&task.scan, work, exchanged),
            Work::Resolve(_) => {
                // They were counted when they were exchanged.
                output.rows.read = 0;
                Vec::new()
            }
            Work::Stage | Work::Copy(_) | Work::PassDeletes(_) | Work::Digest(_) | Work::Show(_) => Vec::new(),
        };
        self.done.tasks_done += 1;
        self.done.files_done += task.scan.differences.len() as u64;
        self.done.bytes_done += task.scan.data_bytes();
        self.done.rows += output.rows;
        self.outputs.push(output);
        following.into_iter().find_map(|scan| {
            let id = scan.id;
            (!self.arrive(scan)).then_some(id)
        })
    }

    /// Tasks that wait for a worker.
    pub(super) fn waiting(&self) -> usize {
        self.fresh.len() + self.retries.len()
    }

    /// Whether every task that there will ever be is done.
    pub(super) fn is_complete(&self) -> bool {
        self.planned && self.waiting() == 0 && self.leased.is_empty()
    }

    /// Rows of accepted attempts.
    pub(super) fn rows(&self) -> RowCounts {
        self.done.rows
    }

    /// How far it is, attempts under way included; the workers are left out.
    pub(super) fn progress(&self) -> Progress {
        let mut progress = self.done.clone();
        progress.all_planned = self.planned;
        progress.tasks_waiting = self.waiting() as u64;
        progress.tasks_leased = self.leased.len() as u64;
        self.leased.values().for_each(|leased| progress.rows += leased.rows);
        progress
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let places = self.waiting() + self.leased.len() + self.outputs.len();
        assert_eq!(places, self.seen.len(), "a task is lost or in two places");
    }
}
