//! Why a worker gave up.

use std::time::Duration;

use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::WorkerId;
use iceferry_proto::convert::{ConvertError, Unreadable};

/// Why a worker gave up. Its attempts are stopped and their files removed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The coordinator could not be reached, or was lost, for too long.
    #[error(
        "worker {worker} had no coordinator for {waited:?}: {last}; check that it runs and that its address is right"
    )]
    NoCoordinator {
        /// The worker.
        worker: WorkerId,
        /// How long it tried.
        waited: Duration,
        /// What the last try ended with.
        last: String,
    },
    /// The coordinator does not take this worker.
    #[error("the coordinator does not take worker {worker}: {answer}")]
    NotTaken {
        /// The worker.
        worker: WorkerId,
        /// The coordinator's words.
        answer: String,
        /// What to do about it.
        class: Class,
    },
    /// The coordinator says what this version does not understand.
    #[error("worker {worker} does not understand its coordinator")]
    NotUnderstood {
        /// The worker.
        worker: WorkerId,
        /// Why.
        source: Unreadable,
    },
    /// A message of the worker's own cannot be sent.
    #[error("worker {worker} cannot say what it has to")]
    Unsendable {
        /// The worker.
        worker: WorkerId,
        /// Why.
        source: ConvertError,
    },
}

impl Classified for ServeError {
    fn class(&self) -> Class {
        match self {
            Self::NoCoordinator { .. } => Class::Transient,
            Self::NotTaken { class, .. } => *class,
            Self::NotUnderstood { source, .. } => source.class(),
            Self::Unsendable { source, .. } => source.class(),
        }
    }
}

/// The class of an answer that another try would not change; none when another try may.
pub(super) fn final_class(status: &tonic::Status) -> Option<Class> {
    use tonic::Code;
    match status.code() {
        Code::InvalidArgument | Code::AlreadyExists | Code::FailedPrecondition => Some(Class::Config),
        Code::Unimplemented => Some(Class::Refused),
        Code::PermissionDenied | Code::Unauthenticated => Some(Class::Denied),
        Code::OutOfRange => Some(Class::Exhausted),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => None,
    }
}
