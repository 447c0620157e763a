//! What can go wrong while the tasks of an epoch are worked on.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{Attempt, EpochId, TaskId, WorkerId};
use iceferry_proto::convert::ConvertError;

/// Why an epoch was not carried through. Nothing of it is referenced anywhere.
#[derive(Debug, thiserror::Error)]
pub enum DistributeError {
    /// A task failed in a way that another try would not change.
    #[error("task {task} of epoch {epoch} failed on worker {worker} in attempt {attempt}: {message}")]
    Task {
        /// The epoch.
        epoch: EpochId,
        /// The task.
        task: TaskId,
        /// Who tried.
        worker: WorkerId,
        /// Which try it was.
        attempt: Attempt,
        /// The class of the task's own error.
        class: Class,
        /// The task's own error with its causes.
        message: String,
    },
    /// A task failed in passing, too often.
    #[error("task {task} of epoch {epoch} failed {failures} times, the last time on worker {worker}: {message}")]
    TriedOften {
        /// The epoch.
        epoch: EpochId,
        /// The task.
        task: TaskId,
        /// How often it failed.
        failures: u32,
        /// Who tried last.
        worker: WorkerId,
        /// The class of the last error.
        class: Class,
        /// The last error with its causes.
        message: String,
    },
    /// A task's workers were lost, too often for chance.
    #[error(
        "task {task} of epoch {epoch}, which reads {files}, lost its worker {losses} times, the last time {worker}: \
         {why}; it may need more memory than a worker has: look at the workers' ends, give them more memory or fewer \
         slots, or lower read.split.target-size"
    )]
    LostOften {
        /// The epoch.
        epoch: EpochId,
        /// The task.
        task: TaskId,
        /// What it reads: its first file, and how many more.
        files: String,
        /// How often its worker was lost.
        losses: u32,
        /// Who was lost last.
        worker: WorkerId,
        /// How the last one was lost.
        why: String,
    },
    /// A worker said something that no right worker says.
    #[error("worker {worker} broke its word about task {task} of epoch {epoch}: {problem}")]
    BrokenWord {
        /// The epoch.
        epoch: EpochId,
        /// The task.
        task: TaskId,
        /// The worker.
        worker: WorkerId,
        /// What is wrong.
        problem: String,
    },
    /// The planner gave one task number twice.
    #[error("task {task} of epoch {epoch} was planned twice")]
    PlannedTwice {
        /// The epoch.
        epoch: EpochId,
        /// The task.
        task: TaskId,
    },
    /// Not all tasks of a group were planned.
    #[error("the group of epoch {epoch} that task {group} and those after it were to resolve is not whole")]
    GroupIncomplete {
        /// The epoch.
        epoch: EpochId,
        /// The number of the task that would have resolved its first bucket.
        group: TaskId,
    },
    /// Something cannot be sent to a worker.
    #[error("send {what} to a worker")]
    Unsendable {
        /// What.
        what: String,
        /// Why not.
        source: ConvertError,
    },
    /// An epoch was begun while another one was under way.
    #[error("epoch {epoch} cannot be handed out while epoch {running} is under way")]
    Busy {
        /// The epoch that was refused.
        epoch: EpochId,
        /// The one under way.
        running: EpochId,
    },
    /// The run was asked to stop.
    #[error("handing out tasks was stopped")]
    Stopped,
}

impl Classified for DistributeError {
    fn class(&self) -> Class {
        match self {
            Self::Task { class, .. } | Self::TriedOften { class, .. } => *class,
            Self::LostOften { .. } => Class::Exhausted,
            Self::BrokenWord { .. } | Self::PlannedTwice { .. } | Self::GroupIncomplete { .. } | Self::Busy { .. } => {
                Class::Bug
            }
            Self::Unsendable { source, .. } => source.class(),
            Self::Stopped => Class::Interrupted,
        }
    }
}

/// An epoch that failed, and the files that its attempts staged and nobody will reference.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct EpochFailed {
    /// Why.
    #[source]
    pub error: DistributeError,
    /// Staged files to be removed: those of accepted attempts, and what workers could not remove themselves.
    pub left_behind: Vec<String>,
}

impl Classified for EpochFailed {
    fn class(&self) -> Class {
        self.error.class()
    }
}

impl From<EpochFailed> for DistributeError {
    fn from(failed: EpochFailed) -> Self {
        failed.error
    }
}
