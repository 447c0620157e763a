//! The one task that owns the state of handing out, and the handle to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use iceferry_common::clock;
use iceferry_common::fault::{Classified, chain};
use iceferry_common::model::{EpochContext, ScanTask, WorkerId, staging_folder};
use iceferry_proto::MESSAGE_BYTES_MAX;
use iceferry_proto::convert::{Unreadable, write_coordinator_message};
use iceferry_proto::message::{FromWorker, Register, ToWorker, Welcome};
use iceferry_proto::wire::CoordinatorMessage;
use iceferry_proto::wire::dispatch_server::DispatchServer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::Instrument;

use super::decide::{Action, Decider, Event, Note, SessionId};
use super::service::{DispatchService, Heard, Outbound};
use super::{DistributeConfig, DistributeError, Drained, EpochFailed, EpochOutput, Progress};

/// Messages of all workers that wait for the dispatcher; beyond it their streams are not read.
const HEARD_MAX: usize = 1024;
/// Requests of the job that wait for the dispatcher.
const COMMANDS_MAX: usize = 8;
/// Progress is told at most so often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Hands out the tasks of epochs, one epoch after another. Cheap to clone; the dispatcher ends when it is drained, when
/// its shutdown token is cancelled, or when the last handle is gone.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    commands: mpsc::Sender<Command>,
    progress: watch::Receiver<Progress>,
    service: DispatchService,
}

#[derive(Debug)]
enum Command {
    RunEpoch { context: Arc<EpochContext>, tasks: mpsc::Receiver<ScanTask>, reply: Reply },
    Drain { reply: oneshot::Sender<Drained> },
}

type Reply = oneshot::Sender<Result<EpochOutput, EpochFailed>>;

impl Dispatcher {
    /// Starts a dispatcher. Must be called within a tokio runtime. When `shutdown` is cancelled, an epoch under way
    /// fails as stopped and workers are told that there is no more.
    pub fn start(config: DistributeConfig, shutdown: CancellationToken) -> Self {
        let (commands, commands_received) = mpsc::channel(COMMANDS_MAX);
        let (heard, heard_received) = mpsc::channel(HEARD_MAX);
        let (progress_sent, progress) = watch::channel(Progress::default());
        let tasks = TaskTracker::new();
        let mut tick = tokio::time::interval(config.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let driver = Driver {
            decider: Decider::new(config.clone()),
            config,
            commands: commands_received,
            heard: heard_received,
            shutdown,
            tick,
            sessions: HashMap::new(),
            running: None,
            draining: None,
            progress: progress_sent,
            published: clock::now(),
        };
        tasks.spawn(driver.run().instrument(tracing::info_span!("dispatcher")));
        Self {
            commands,
            progress,
            service: DispatchService { heard, tasks, next_session: Arc::new(AtomicU64::new(0)) },
        }
    }

    /// The gRPC service, for a server. It takes and sends messages up to [`MESSAGE_BYTES_MAX`].
    pub fn service(&self) -> DispatchServer<DispatchService> {
        DispatchServer::new(self.service.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// How far the epoch under way is; told at most every 50 milliseconds, and at its end.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Works off the tasks of an epoch: as they come, until `tasks` ends. Gives one accepted output for each of them.
    ///
    /// The end of `tasks` means that planning is done, and a planner that failed ends it as well: look at the planner's
    /// own result before committing what this gives. Dropping the future revokes all leases of the epoch.
    ///
    /// # Errors
    /// When a task fails for good, with the task's own error; when the run is stopped; when another epoch is under way.
    /// Whatever was staged is named for removal, nothing of it may be committed.
    pub async fn run_epoch(
        &self,
        context: Arc<EpochContext>,
        tasks: mpsc::Receiver<ScanTask>,
    ) -> Result<EpochOutput, EpochFailed> {
        let stopped = || EpochFailed { error: DistributeError::Stopped, left_behind: Vec::new() };
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::RunEpoch { context, tasks, reply }).await;
        sent.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Tells all workers that there is no more, waits a bounded time until they have stopped what they were at and their
    /// streams are closed, and ends the dispatcher.
    pub async fn drain(&self) -> Drained {
        let (reply, answer) = oneshot::channel();
        let drained = match self.commands.send(Command::Drain { reply }).await {
            Ok(()) => answer.await.unwrap_or_default(),
            // It has ended before.
            Err(_) => Drained::default(),
        };
        self.service.tasks.close();
        self.service.tasks.wait().await;
        drained
    }
}

/// The stream to one worker.
#[derive(Debug)]
struct Session {
    worker: WorkerId,
    outbound: Outbound,
    closed: CancellationToken,
}

/// The epoch under way.
#[derive(Debug)]
struct Running {
    /// Its context as it goes out.
    context: CoordinatorMessage,
    tasks: mpsc::Receiver<ScanTask>,
    reply: Reply,
}

#[derive(Debug)]
struct Draining {
    deadline: Instant,
    replies: Vec<oneshot::Sender<Drained>>,
}

#[derive(Debug)]
struct Driver {
    config: DistributeConfig,
    decider: Decider,
    commands: mpsc::Receiver<Command>,
    heard: mpsc::Receiver<Heard>,
    shutdown: CancellationToken,
    tick: Interval,
    sessions: HashMap<SessionId, Session>,
    running: Option<Running>,
    draining: Option<Draining>,
    progress: watch::Sender<Progress>,
    published: Instant,
}

/// What the driver woke up for.
enum Turn {
    Command(Option<Command>),
    Heard(Option<Heard>),
    Task(Option<ScanTask>),
    EpochDropped,
    Shutdown,
    Tick,
}

impl Driver {
    async fn run(mut self) {
        while !self.has_drained() {
            match self.turn().await {
                Turn::Command(Some(Command::RunEpoch { context, tasks, reply })) => self.begin(&context, tasks, reply),
                Turn::Command(Some(Command::Drain { reply })) => self.drain(Some(reply)),
                Turn::Command(None) | Turn::Heard(None) | Turn::Shutdown => self.drain(None),
                Turn::Heard(Some(heard)) => self.hear(heard),
                Turn::Task(Some(task)) => self.step(Event::TaskArrived(task)),
                Turn::Task(None) => self.step(Event::TasksEnded),
                Turn::EpochDropped => self.step(Event::EpochDropped(DistributeError::Stopped)),
                Turn::Tick => self.step(Event::Tick),
            }
            self.publish(false);
        }
        self.sessions.values().for_each(|session| session.closed.cancel());
        let all_closed = self.sessions.is_empty();
        let mut left_behind = self.decider.take_left_behind();
        for reply in self.draining.into_iter().flat_map(|draining| draining.replies) {
            // Only one of several callers is to remove them.
            drop(reply.send(Drained { left_behind: std::mem::take(&mut left_behind), all_closed }));
        }
    }

    /// Waits for the next thing to do. Losing the race loses nothing: all of these can be cancelled.
    async fn turn(&mut self) -> Turn {
        let wants_tasks = self.decider.wants_tasks();
        let draining = self.draining.is_some();
        let Self { commands, heard, shutdown, tick, running, .. } = self;
        let epoch = async {
            match running {
                Some(Running { tasks, reply, .. }) => tokio::select! {
                    task = tasks.recv(), if wants_tasks => Turn::Task(task),
                    () = reply.closed() => Turn::EpochDropped,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv(), if !(draining && commands.is_closed()) => Turn::Command(command),
            heard = heard.recv(), if !(draining && heard.is_closed()) => Turn::Heard(heard),
            () = shutdown.cancelled(), if !draining => Turn::Shutdown,
            turn = epoch => turn,
            _ = tick.tick() => Turn::Tick,
        }
    }

    fn begin(&mut self, context: &Arc<EpochContext>, tasks: mpsc::Receiver<ScanTask>, reply: Reply) {
        // One whose caller is gone may still be here.
        if self.running.as_ref().is_some_and(|running| running.reply.is_closed()) {
            self.step(Event::EpochDropped(DistributeError::Stopped));
        }
        let refuse = |reply: Reply, error| drop(reply.send(Err(EpochFailed { error, left_behind: Vec::new() })));
        let epoch = context.epoch;
        if self.draining.is_some() {
            return refuse(reply, DistributeError::Stopped);
        }
        if let Some(running) = self.decider.epoch() {
            return refuse(reply, DistributeError::Busy { epoch, running });
        }
        let staging_folder = staging_folder(&context.target.data_location, &context.job, &context.run);
        match write_coordinator_message(&ToWorker::Context(context.clone())) {
            Ok(context) => self.running = Some(Running { context, tasks, reply }),
            Err(source) => {
                let what = format!("the context of epoch {epoch}");
                return refuse(reply, DistributeError::Unsendable { what, source });
            }
        }
        tracing::debug!(%epoch, "handing out an epoch");
        self.step(Event::EpochBegun { epoch, staging_folder });
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Joined { session, register, outbound, closed } => self.join(session, register, outbound, closed),
            Heard::Said { session, message } => match to_event(session, message) {
                Some(event) => self.step(event),
                None => self.lose(session, "it said something that cannot be understood"),
            },
            Heard::Ended { session, why } => self.lose(session, &why),
        }
    }

    fn join(&mut self, session: SessionId, register: Register, outbound: Outbound, closed: CancellationToken) {
        tracing::info!(worker = %register.worker, slots = register.slots, version = register.version, "worker joined");
        let worker = register.worker.clone();
        self.sessions.insert(session, Session { worker, outbound, closed });
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1);
        let welcome = ToWorker::Welcome(Welcome {
            coordinator: format!("iceferry {}", env!("CARGO_PKG_VERSION")),
            heartbeat_ms: millis(self.config.heartbeat_asked()),
            lease_timeout_ms: millis(self.config.lease_timeout),
        });
        if !self.tell(session, &welcome) || (self.draining.is_some() && !self.tell(session, &ToWorker::Drain)) {
            return self.lose(session, "it does not read what it is sent");
        }
        // A worker that comes while the others are sent home is only told so.
        if self.draining.is_none() {
            self.step(Event::WorkerJoined { session, register });
        }
    }

    /// The stream is over, or is ended here.
    fn lose(&mut self, session: SessionId, why: &str) {
        if let Some(Session { worker, closed, .. }) = self.sessions.remove(&session) {
            tracing::info!(%worker, why, "worker left");
            closed.cancel();
        }
        self.step(Event::WorkerLost { session, why: why.to_owned() });
    }

    /// Lets the state take in an event and does what it says, until nothing more follows.
    fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.decider.handle(clock::now(), event) {
                events.extend(self.perform(action));
            }
        }
    }

    /// Gives what follows from an action that could not be done.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::SendContext(session) => {
                let context = self.running.as_ref().map(|running| running.context.clone())?;
                self.send(session, context)
            }
            Action::Send(session, lease) => {
                let (task, epoch) = (lease.task.id, lease.epoch);
                match write_coordinator_message(&ToWorker::Lease(lease)) {
                    Ok(message) => self.send(session, message),
                    Err(source) => {
                        let what = format!("task {task} of epoch {epoch}");
                        Some(Event::EpochDropped(DistributeError::Unsendable { what, source }))
                    }
                }
            }
            Action::Revoke(session, lease) => {
                let message = write_coordinator_message(&ToWorker::Revoke(lease)).ok()?;
                self.send(session, message)
            }
            Action::Close(session) => {
                if let Some(Session { worker, outbound, closed }) = self.sessions.remove(&session) {
                    tracing::warn!(%worker, "worker registered again; its former stream was closed");
                    let taken = format!("another stream registered as worker {worker}");
                    // It is most likely broken.
                    drop(outbound.try_send(Err(Status::already_exists(taken))));
                    closed.cancel();
                }
                None
            }
            Action::Finish(output) => {
                self.publish(true);
                if let Some(Ok(output)) = self.answer(Ok(output)) {
                    let files = output.outputs.into_iter().flat_map(|output| output.files);
                    self.decider.keep_left_behind(files.map(|file| file.location).collect());
                    self.decider.keep_left_behind(output.left_behind);
                }
                None
            }
            Action::Fail(failed) => {
                self.publish(true);
                if let Some(Err(failed)) = self.answer(Err(failed)) {
                    self.decider.keep_left_behind(failed.left_behind);
                }
                None
            }
            Action::Note(note) => {
                log(note);
                None
            }
        }
    }

    /// Gives the result back when nobody waits for it any more.
    fn answer(&mut self, result: Result<EpochOutput, EpochFailed>) -> Option<Result<EpochOutput, EpochFailed>> {
        match self.running.take() {
            Some(running) => running.reply.send(result).err(),
            None => Some(result),
        }
    }

    /// Queues a message for a worker. One whose queue is full does not read, and is lost.
    fn send(&mut self, session: SessionId, message: CoordinatorMessage) -> Option<Event> {
        let sent = self.sessions.get(&session).is_some_and(|to| to.outbound.try_send(Ok(message)).is_ok());
        if sent {
            return None;
        }
        if let Some(Session { worker, closed, .. }) = self.sessions.remove(&session) {
            tracing::warn!(%worker, "worker does not read what it is sent; its stream was closed");
            closed.cancel();
        }
        Some(Event::WorkerLost { session, why: "it does not read what it is sent".to_owned() })
    }

    fn tell(&self, session: SessionId, message: &ToWorker) -> bool {
        let Ok(message) = write_coordinator_message(message) else { return false };
        self.sessions.get(&session).is_some_and(|to| to.outbound.try_send(Ok(message)).is_ok())
    }

    fn drain(&mut self, reply: Option<oneshot::Sender<Drained>>) {
        if self.draining.is_none() {
            self.step(Event::EpochDropped(DistributeError::Stopped));
            let deadline = clock::now() + self.config.drain_timeout;
            self.draining = Some(Draining { deadline, replies: Vec::new() });
            let deaf: Vec<SessionId> =
                self.sessions.keys().copied().filter(|session| !self.tell(*session, &ToWorker::Drain)).collect();
            deaf.into_iter().for_each(|session| self.lose(session, "it does not read what it is sent"));
        }
        if let Some(draining) = &mut self.draining {
            draining.replies.extend(reply);
        }
    }

    fn has_drained(&self) -> bool {
        let Some(draining) = &self.draining else { return false };
        let late = clock::now() >= draining.deadline;
        if late && !self.sessions.is_empty() {
            tracing::warn!(workers = self.sessions.len(), "workers did not close their streams in time");
        }
        late || self.sessions.is_empty()
    }

    fn publish(&mut self, at_once: bool) {
        let now = clock::now();
        if at_once || now.saturating_duration_since(self.published) >= PROGRESS_INTERVAL {
            self.published = now;
            self.progress.send_replace(self.decider.progress());
        }
    }
}

/// A worker's words as an event; none when they make no sense.
fn to_event(session: SessionId, message: Result<FromWorker, Unreadable>) -> Option<Event> {
    Some(match message {
        Ok(FromWorker::Heartbeat(progress)) => Event::Heartbeat { session, progress },
        Ok(FromWorker::Done { lease, output }) => Event::Done { session, lease, output },
        Ok(FromWorker::Failed { lease, class, message, left_behind }) => {
            Event::Failed { session, lease, class, message, left_behind }
        }
        Ok(FromWorker::GiveBack(leases)) => Event::GaveBack { session, leases },
        Ok(FromWorker::Register(_)) => return None,
        // An answer that cannot be read is an answer: the same again on every try.
        Err(unreadable) => {
            let message = chain(&unreadable);
            tracing::warn!(message, "a worker's message was not understood");
            let lease = unreadable.lease?;
            Event::Failed { session, lease, class: unreadable.class(), message, left_behind: Vec::new() }
        }
    })
}

fn log(note: Note) {
    match note {
        Note::Retrying { task, attempt, worker, class, message } => {
            tracing::info!(%task, %attempt, %worker, %class, message, "attempt failed; the task is tried again");
        }
        Note::LeaseLost { task, attempt, worker, why } => {
            tracing::warn!(%task, %attempt, %worker, why, "lease was lost; the task is tried again");
        }
        Note::GivenBack { task, attempt, worker } => {
            tracing::info!(%task, %attempt, %worker, "task was given back");
        }
        Note::LateAnswer { lease, worker, files } => {
            tracing::info!(%lease, %worker, files, "late answer was refused; its files are to be removed");
        }
        Note::StrangeAnswer { lease, worker } => {
            tracing::warn!(%lease, %worker, "answer to a lease that the worker does not hold was refused");
        }
        Note::StrangeFiles { worker, files } => {
            tracing::warn!(%worker, files, "worker named files outside of the staging folder; they were let alone");
        }
        Note::Silent { worker, leases } => tracing::warn!(%worker, leases, "worker fell silent"),
        Note::NoWorker { waiting } => {
            tracing::warn!(waiting, "tasks wait and no worker is there; start one with iceferry worker");
        }
    }
}
