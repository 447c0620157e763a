//! The gRPC side: for each worker's stream a task that reads it and tells the dispatcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iceferry_common::fault::chain;
use iceferry_common::model::WorkerId;
use iceferry_proto::convert::{Unreadable, read_worker_message};
use iceferry_proto::message::{FromWorker, Register};
use iceferry_proto::wire::dispatch_server::Dispatch;
use iceferry_proto::wire::{CoordinatorMessage, WorkerMessage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use super::decide::SessionId;

/// A stream whose first message does not come for so long is ended.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// More slots than a machine can use; a greater number can only be a mistake, and would unbound the queue to the worker.
const SLOTS_MAX: u32 = 512;
/// Messages that wait for a worker to read them. It holds at most a lease and its revocation for each slot, twice over
/// when an epoch was given up; a worker behind by more does not read at all.
const OUTBOUND_MAX: usize = 4 * SLOTS_MAX as usize + 16;

/// Messages to one worker.
pub(super) type Outbound = mpsc::Sender<Result<CoordinatorMessage, Status>>;

/// What a reading task tells the dispatcher.
#[derive(Debug)]
pub(super) enum Heard {
    /// A worker registered. Cancelling `closed` ends the reading task.
    Joined { session: SessionId, register: Register, outbound: Outbound, closed: CancellationToken },
    /// It said something, or something that cannot be read.
    Said { session: SessionId, message: Result<FromWorker, Unreadable> },
    /// The stream is over.
    Ended { session: SessionId, why: String },
}

/// A server with the keep-alive that a dispatcher wants: a worker whose machine is gone is noticed though no one closes
/// its connection.
pub fn server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .tcp_nodelay(true)
}

/// Serves workers' streams; made by [`super::Dispatcher::service`].
#[derive(Debug, Clone)]
pub struct DispatchService {
    pub(super) heard: mpsc::Sender<Heard>,
    pub(super) tasks: TaskTracker,
    pub(super) next_session: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl Dispatch for DispatchService {
    type WorkStream = ReceiverStream<Result<CoordinatorMessage, Status>>;

    async fn work(&self, request: Request<Streaming<WorkerMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        if self.tasks.is_closed() {
            return Err(Status::unavailable("the coordinator has ended"));
        }
        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let (outbound, stream) = mpsc::channel(OUTBOUND_MAX);
        let reader = Reader { session, heard: self.heard.clone(), inbound: request.into_inner() };
        let span = tracing::info_span!("worker stream", session = session.0);
        self.tasks.spawn(reader.run(outbound).instrument(span));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Reads one stream to its end.
struct Reader {
    session: SessionId,
    heard: mpsc::Sender<Heard>,
    inbound: Streaming<WorkerMessage>,
}

impl Reader {
    async fn run(mut self, outbound: Outbound) {
        let register = match self.register().await {
            Ok(register) => register,
            Err(status) => {
                tracing::warn!(status = status.message(), "a worker did not register");
                // It may be gone already.
                drop(outbound.send(Err(status)).await);
                return;
            }
        };
        let session = self.session;
        let closed = CancellationToken::new();
        let joined = Heard::Joined { session, register, outbound: outbound.clone(), closed: closed.clone() };
        if self.heard.send(joined).await.is_err() {
            drop(outbound.send(Err(Status::unavailable("the coordinator has ended"))).await);
            return;
        }
        // The stream to the worker ends when the dispatcher lets go of it, so it must be the only one to hold it.
        drop(outbound);
        let why = self.read(closed).await;
        // A dispatcher that has ended needs no telling.
        drop(self.heard.send(Heard::Ended { session, why }).await);
    }

    async fn register(&mut self) -> Result<Register, Status> {
        let first = tokio::time::timeout(REGISTER_TIMEOUT, self.inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no Register message came"))??;
        let first = first.ok_or_else(|| Status::invalid_argument("the stream ended before a Register message"))?;
        match read_worker_message(first).map_err(|error| Status::invalid_argument(chain(&error)))? {
            FromWorker::Register(Register { slots, worker: WorkerId(worker), .. }) if slots > SLOTS_MAX => Err(
                Status::invalid_argument(format!("worker {worker} has {slots} slots; at most {SLOTS_MAX} are taken")),
            ),
            FromWorker::Register(register) => Ok(register),
            FromWorker::Heartbeat(_)
            | FromWorker::Done { .. }
            | FromWorker::Failed { .. }
            | FromWorker::GiveBack(_) => Err(Status::invalid_argument("the first message has to be Register")),
        }
    }

    /// Passes on what comes; gives why it ended.
    async fn read(&mut self, closed: CancellationToken) -> String {
        let session = self.session;
        loop {
            let message = tokio::select! {
                () = closed.cancelled() => return "its stream was closed".to_owned(),
                message = self.inbound.message() => message,
            };
            let message = match message {
                Ok(Some(message)) => read_worker_message(message),
                Ok(None) => return "it closed its stream".to_owned(),
                Err(status) => return format!("its stream broke: {}", status.message()),
            };
            if self.heard.send(Heard::Said { session, message }).await.is_err() {
                return "the coordinator has ended".to_owned();
            }
        }
    }
}
