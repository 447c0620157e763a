//! The messages of both directions.

use std::sync::Arc;

use iceferry_common::fault::Class;
use iceferry_common::model::{Attempt, EpochId, LeaseId, WorkerId};
use prost::Message;

use super::{ConvertError, Unreadable, required, required_text};
use crate::message::{FromWorker, Lease, Progress, Register, ToWorker, Welcome};
use crate::{MESSAGE_BYTES_MAX, wire};

/// A worker's message for the wire.
///
/// # Errors
/// When it is larger than a message may be.
pub fn write_worker_message(message: &FromWorker) -> Result<wire::WorkerMessage, ConvertError> {
    let name = match message {
        FromWorker::Register(_) => "Register",
        FromWorker::Heartbeat(_) => "Heartbeat",
        FromWorker::Done { .. } => "TaskDone",
        FromWorker::Failed { .. } => "TaskFailed",
        FromWorker::GiveBack(_) => "GiveBack",
    };
    let message = wire::WorkerMessage::from(message);
    check_size(&message, name)?;
    Ok(message)
}

/// A coordinator's message for the wire.
///
/// # Errors
/// When it is larger than a message may be, or a schema cannot be sent.
pub fn write_coordinator_message(message: &ToWorker) -> Result<wire::CoordinatorMessage, ConvertError> {
    let name = match message {
        ToWorker::Welcome(_) => "Welcome",
        ToWorker::Context(_) => "EpochContext",
        ToWorker::Lease(_) => "Lease",
        ToWorker::Revoke(_) => "Revoke",
        ToWorker::Drain => "Drain",
    };
    let message = wire::CoordinatorMessage::try_from(message)?;
    check_size(&message, name)?;
    Ok(message)
}

/// What a worker said.
///
/// # Errors
/// When it says something that cannot be, or that this version does not know; with what it was about.
pub fn read_worker_message(message: wire::WorkerMessage) -> Result<FromWorker, Unreadable> {
    use wire::worker_message::Kind;
    let lease = match &message.kind {
        Some(Kind::Done(done)) => Some(LeaseId(done.lease)),
        Some(Kind::Failed(failed)) => Some(LeaseId(failed.lease)),
        Some(Kind::Register(_) | Kind::Heartbeat(_) | Kind::GiveBack(_)) | None => None,
    };
    message.try_into().map_err(|source| Unreadable { from: "a worker", lease, context_of: None, source })
}

/// What a coordinator said.
///
/// # Errors
/// When it says something that cannot be, or that this version does not know; with what it was about.
pub fn read_coordinator_message(message: wire::CoordinatorMessage) -> Result<ToWorker, Unreadable> {
    use wire::coordinator_message::Kind;
    let (lease, context_of) = match &message.kind {
        Some(Kind::Lease(lease)) => (Some(LeaseId(lease.lease)), None),
        Some(Kind::Context(context)) => (None, Some(EpochId(context.epoch))),
        Some(Kind::Welcome(_) | Kind::Revoke(_) | Kind::Drain(_)) | None => (None, None),
    };
    message.try_into().map_err(|source| Unreadable { from: "the coordinator", lease, context_of, source })
}

fn check_size(message: &impl Message, name: &'static str) -> Result<(), ConvertError> {
    let bytes = message.encoded_len();
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(ConvertError::TooLarge { message: name, bytes, bytes_max: MESSAGE_BYTES_MAX })
}

impl From<&FromWorker> for wire::WorkerMessage {
    fn from(message: &FromWorker) -> Self {
        use wire::worker_message::Kind;
        let kind = match message {
            FromWorker::Register(register) => Kind::Register(wire::Register {
                worker_id: register.worker.0.clone(),
                slots: register.slots,
                memory_bytes: register.memory_bytes,
                version: register.version.clone(),
            }),
            FromWorker::Heartbeat(progress) => {
                let progress = progress.iter();
                let progress = progress.map(|it| wire::Progress { lease: it.lease.0, rows: Some(it.rows.into()) });
                Kind::Heartbeat(wire::Heartbeat { progress: progress.collect() })
            }
            FromWorker::Done { lease, output } => {
                Kind::Done(wire::TaskDone { lease: lease.0, output: Some(output.into()) })
            }
            FromWorker::Failed { lease, class, message, left_behind } => Kind::Failed(wire::TaskFailed {
                lease: lease.0,
                class: class.as_str().to_owned(),
                message: message.clone(),
                left_behind: left_behind.clone(),
            }),
            FromWorker::GiveBack(leases) => {
                Kind::GiveBack(wire::GiveBack { leases: leases.iter().map(|lease| lease.0).collect() })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<wire::WorkerMessage> for FromWorker {
    type Error = ConvertError;

    fn try_from(message: wire::WorkerMessage) -> Result<Self, ConvertError> {
        use wire::worker_message::Kind;
        Ok(match required(message.kind, "WorkerMessage", "kind")? {
            Kind::Register(register) => Self::Register(register.try_into()?),
            Kind::Heartbeat(heartbeat) => {
                let progress = heartbeat.progress.into_iter().map(TryInto::try_into);
                Self::Heartbeat(progress.collect::<Result<_, _>>()?)
            }
            Kind::Done(done) => Self::Done {
                lease: LeaseId(done.lease),
                output: required(done.output, "TaskDone", "output")?.try_into()?,
            },
            Kind::Failed(failed) => {
                let (class, message) = read_class(failed.class, failed.message);
                Self::Failed { lease: LeaseId(failed.lease), class, message, left_behind: failed.left_behind }
            }
            Kind::GiveBack(give_back) => Self::GiveBack(give_back.leases.into_iter().map(LeaseId).collect()),
        })
    }
}

/// The class of this name. One that this version does not know is taken as passing: the task is tried again a bounded
/// number of times, perhaps by another worker, and then ends the job with this message; to give up at once would make
/// every new class a breaking change.
fn read_class(name: String, message: String) -> (Class, String) {
    match Class::parse(&name) {
        Some(class) => (class, message),
        None => (Class::Transient, format!("{message} (of class {name:?}, which is not known here)")),
    }
}

impl TryFrom<wire::Register> for Register {
    type Error = ConvertError;

    fn try_from(register: wire::Register) -> Result<Self, ConvertError> {
        let message = "Register";
        if register.slots == 0 {
            return Err(ConvertError::Missing { message, field: "slots" });
        }
        Ok(Self {
            worker: WorkerId(required_text(register.worker_id, message, "worker_id")?),
            slots: register.slots,
            memory_bytes: register.memory_bytes,
            version: register.version,
        })
    }
}

impl TryFrom<wire::Progress> for Progress {
    type Error = ConvertError;

    fn try_from(progress: wire::Progress) -> Result<Self, ConvertError> {
        let rows = required(progress.rows, "Progress", "rows")?;
        Ok(Self { lease: LeaseId(progress.lease), rows: rows.into() })
    }
}

impl TryFrom<&ToWorker> for wire::CoordinatorMessage {
    type Error = ConvertError;

    fn try_from(message: &ToWorker) -> Result<Self, ConvertError> {
        use wire::coordinator_message::Kind;
        let kind = match message {
            ToWorker::Welcome(welcome) => Kind::Welcome(wire::Welcome {
                coordinator: welcome.coordinator.clone(),
                heartbeat_ms: welcome.heartbeat_ms,
                lease_timeout_ms: welcome.lease_timeout_ms,
            }),
            ToWorker::Context(context) => Kind::Context(context.as_ref().try_into()?),
            ToWorker::Lease(lease) => Kind::Lease(wire::Lease {
                lease: lease.lease.0,
                epoch: lease.epoch.0,
                attempt: lease.attempt.0,
                task: Some(lease.task.as_ref().into()),
            }),
            ToWorker::Revoke(lease) => Kind::Revoke(wire::Revoke { lease: lease.0 }),
            ToWorker::Drain => Kind::Drain(wire::Drain {}),
        };
        Ok(Self { kind: Some(kind) })
    }
}

impl TryFrom<wire::CoordinatorMessage> for ToWorker {
    type Error = ConvertError;

    fn try_from(message: wire::CoordinatorMessage) -> Result<Self, ConvertError> {
        use wire::coordinator_message::Kind;
        Ok(match required(message.kind, "CoordinatorMessage", "kind")? {
            Kind::Welcome(welcome) => Self::Welcome(welcome.try_into()?),
            Kind::Context(context) => Self::Context(Arc::new(context.try_into()?)),
            Kind::Lease(lease) => Self::Lease(lease.try_into()?),
            Kind::Revoke(revoke) => Self::Revoke(LeaseId(revoke.lease)),
            Kind::Drain(wire::Drain {}) => Self::Drain,
        })
    }
}

impl TryFrom<wire::Welcome> for Welcome {
    type Error = ConvertError;

    fn try_from(welcome: wire::Welcome) -> Result<Self, ConvertError> {
        let message = "Welcome";
        // A worker that beats at no interval would never stop sending.
        let heartbeat_ms = required(Some(welcome.heartbeat_ms).filter(|&ms| ms > 0), message, "heartbeat_ms")?;
        let timeout = Some(welcome.lease_timeout_ms).filter(|&ms| ms > 0);
        let lease_timeout_ms = required(timeout, message, "lease_timeout_ms")?;
        Ok(Self { coordinator: welcome.coordinator, heartbeat_ms, lease_timeout_ms })
    }
}

impl TryFrom<wire::Lease> for Lease {
    type Error = ConvertError;

    fn try_from(lease: wire::Lease) -> Result<Self, ConvertError> {
        Ok(Self {
            lease: LeaseId(lease.lease),
            epoch: EpochId(lease.epoch),
            attempt: Attempt(lease.attempt),
            task: Arc::new(required(lease.task, "Lease", "task")?.try_into()?),
        })
    }
}
