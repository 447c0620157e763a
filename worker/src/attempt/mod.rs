//! One try at a scan task: read, tag and stage.
//!
//! A [`Runner`] takes a task with its context and its attempt number and gives the staged files, or an error that names
//! what it could not remove. Two attempts never share a path, so a try needs to know nothing of others.

mod copy;
mod counted;
mod counters;
mod keep;
mod pass_deletes;
mod pipeline;
mod shown;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{Attempt, EpochContext, ScanTask, TaskOutput};
use tokio_util::sync::CancellationToken;

pub use counters::Counters;
pub use pipeline::PipelineRunner;

/// A try that did not succeed. It crosses the wire, so its causes are text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AttemptError {
    /// The class of the cause.
    pub class: Class,
    /// What was being done, and the causes.
    pub message: String,
    /// Staged files that could not be removed.
    pub left_behind: Vec<String>,
}

impl AttemptError {
    /// A try that ended with this error.
    pub fn new(error: &(impl Classified + 'static), left_behind: Vec<String>) -> Self {
        Self { class: error.class(), message: chain(error), left_behind }
    }

    /// A try that was told to stop, and did.
    pub fn cancelled(left_behind: Vec<String>) -> Self {
        Self { class: Class::Interrupted, message: "the attempt was told to stop".to_owned(), left_behind }
    }
}

impl Classified for AttemptError {
    fn class(&self) -> Class {
        self.class
    }
}

/// Runs attempts.
#[async_trait]
pub trait Runner: Debug + Send + Sync {
    /// Makes one try. Work that holds the CPU runs on blocking threads, so that heartbeats go on.
    ///
    /// Looks at `cancel` at least once a batch, and returns soon after it is set. Whatever the result is, when it is not
    /// an output the try has removed what it staged, or names it in the error.
    ///
    /// # Errors
    /// [`AttemptError`]; of class interrupted when it was told to stop.
    async fn run(
        &self,
        context: Arc<EpochContext>,
        task: Arc<ScanTask>,
        attempt: Attempt,
        progress: Arc<Counters>,
        cancel: CancellationToken,
    ) -> Result<TaskOutput, AttemptError>;

    /// Removes the files of a try that succeeded and that nobody wants any more. Gives those that it could not remove.
    async fn discard(&self, context: Arc<EpochContext>, output: TaskOutput) -> Vec<String>;
}
