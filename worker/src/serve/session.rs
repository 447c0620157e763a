//! One stream to the coordinator, from registering to its end.

use std::sync::Arc;
use std::time::Duration;

use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{EpochContext, EpochId, LeaseId};
use iceferry_proto::MESSAGE_BYTES_MAX;
use iceferry_proto::convert::{Unreadable, read_coordinator_message, write_worker_message};
use iceferry_proto::message::{FromWorker, Lease, Register, ToWorker, Welcome};
use iceferry_proto::wire::dispatch_client::DispatchClient;
use iceferry_proto::wire::{CoordinatorMessage, WorkerMessage};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::attempts::Attempts;
use super::error::final_class;
use super::{ServeError, Tally, WorkerConfig, not_taken};

/// Messages that wait for the coordinator to read them: small ones, so that a coordinator that reads slowly does not
/// hold up heartbeats at once, and few, so that it is noticed when it does not read at all.
const OUTBOUND_MAX: usize = 64;

/// How a stream ended.
#[derive(Debug)]
pub(super) enum Close {
    /// The coordinator has no more work.
    NoMoreWork,
    /// The worker was told to drain, and has.
    Drained,
    /// It broke; another one may hold.
    Broken(String),
    /// Another one would end the same.
    Failed(Box<ServeError>),
}

/// The context of the epoch under way, or why it cannot be read.
type Context = (EpochId, Result<Arc<EpochContext>, (Class, String)>);

/// One stream.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) config: &'a WorkerConfig,
    pub(super) attempts: &'a mut Attempts,
    pub(super) tally: &'a mut Tally,
    pub(super) drain: &'a CancellationToken,
}

/// The stream once it is open.
struct Open {
    outbound: mpsc::Sender<WorkerMessage>,
    inbound: Streaming<CoordinatorMessage>,
    welcome: Welcome,
    context: Option<Context>,
    /// Why nothing more is taken, once that is so.
    ending: Option<Ending>,
    /// Whether attempts were told to stop.
    stopping: bool,
}

/// Why a stream is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    NoMoreWork,
    Drained,
}

/// What the session woke up for.
enum Turn {
    Message(Box<Result<Option<CoordinatorMessage>, Status>>),
    Attempt(Option<FromWorker>),
    Heartbeat,
    Drain,
    GraceOver,
}

impl Session<'_> {
    /// Runs the stream to its end. `welcomed` tells whether the coordinator took the worker.
    pub(super) async fn run(mut self, channel: Channel, welcomed: &mut bool) -> Close {
        let opened = tokio::select! {
            () = self.drain.cancelled() => return Close::Drained,
            opened = timeout(self.config.connect_timeout, self.open(channel)) => opened,
        };
        let mut open = match opened {
            Ok(Ok(open)) => open,
            Ok(Err(close)) => return close,
            Err(_) => return Close::Broken(format!("no answer came within {:?}", self.config.connect_timeout)),
        };
        *welcomed = true;
        tracing::info!(worker = %self.config.id, coordinator = open.welcome.coordinator, "registered");
        match self.work(&mut open).await {
            Ok(ending) => self.close(open, ending).await,
            Err(close) => close,
        }
    }

    async fn open(&self, channel: Channel) -> Result<Open, Close> {
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        let register = FromWorker::Register(Register {
            worker: self.config.id.clone(),
            slots: self.config.slots,
            memory_bytes: self.config.memory_bytes,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        self.send(&outbound, &register, self.config.connect_timeout).await?;
        let mut client = DispatchClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let answer = client.work(ReceiverStream::new(messages)).await;
        let mut inbound = answer.map_err(|status| self.status(&status))?.into_inner();
        match self.read(inbound.message().await)? {
            Ok(ToWorker::Welcome(welcome)) => {
                Ok(Open { outbound, inbound, welcome, context: None, ending: None, stopping: false })
            }
            Ok(ToWorker::Context(_) | ToWorker::Lease(_) | ToWorker::Revoke(_) | ToWorker::Drain) => {
                Err(Close::Broken("its first message was no Welcome".to_owned()))
            }
            Err(source) => Err(self.not_understood(source)),
        }
    }

    /// Takes leases and answers them until there is nothing more to say.
    async fn work(&mut self, open: &mut Open) -> Result<Ending, Close> {
        let mut heartbeat = interval(Duration::from_millis(open.welcome.heartbeat_ms));
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let grace = tokio::time::sleep(Duration::MAX);
        tokio::pin!(grace);
        loop {
            if let Some(ending) = open.ending
                && self.may_close(ending)
            {
                return Ok(ending);
            }
            let turn = tokio::select! {
                message = open.inbound.message() => Turn::Message(Box::new(message)),
                message = self.attempts.next(), if !self.attempts.is_idle() => Turn::Attempt(message),
                _ = heartbeat.tick() => Turn::Heartbeat,
                () = self.drain.cancelled(), if open.ending.is_none() => Turn::Drain,
                () = &mut grace, if open.ending.is_some() => Turn::GraceOver,
            };
            match turn {
                Turn::Message(message) => match self.read(*message)? {
                    Ok(message) => {
                        self.hear(open, message).await?;
                        if open.ending == Some(Ending::NoMoreWork) && !std::mem::replace(&mut open.stopping, true) {
                            grace.as_mut().reset(tokio::time::Instant::now() + self.config.cancel_timeout);
                        }
                    }
                    Err(unreadable) => self.refuse(open, unreadable).await?,
                },
                Turn::Attempt(message) => {
                    if let Some(message) = message {
                        self.tally(&message);
                        self.say(open, message).await?;
                    }
                }
                Turn::Heartbeat => self.say(open, FromWorker::Heartbeat(self.attempts.progress())).await?,
                Turn::Drain => {
                    tracing::info!(worker = %self.config.id, "draining");
                    open.ending = Some(Ending::Drained);
                    grace.as_mut().reset(tokio::time::Instant::now() + self.config.grace);
                    // Says that no more is taken.
                    self.say(open, FromWorker::GiveBack(Vec::new())).await?;
                }
                // They are waited for once more when all else is over.
                Turn::GraceOver if open.ending == Some(Ending::NoMoreWork) => return Err(Close::NoMoreWork),
                Turn::GraceOver => {
                    if std::mem::replace(&mut open.stopping, true) {
                        return Err(Close::Broken("attempts did not stop in time".to_owned()));
                    }
                    self.attempts.give_back_all();
                    // They may need their time to stop; that is not waited for without end either.
                    grace.as_mut().reset(tokio::time::Instant::now() + self.config.cancel_timeout);
                }
            }
        }
    }

    /// Whether there is nothing more to say. The coordinator removes what its run left once the streams are closed, so one
    /// that sends its workers home is kept until nothing is written any more.
    fn may_close(&self, ending: Ending) -> bool {
        match ending {
            Ending::NoMoreWork => self.attempts.is_idle(),
            Ending::Drained => self.attempts.wanted() == 0,
        }
    }

    /// Does what the coordinator says.
    async fn hear(&mut self, open: &mut Open, message: ToWorker) -> Result<(), Close> {
        match message {
            ToWorker::Context(context) => open.context = Some((context.epoch, Ok(context))),
            ToWorker::Lease(lease) if open.ending.is_some() => {
                self.tally.given_back += 1;
                self.say(open, FromWorker::GiveBack(vec![lease.lease])).await?;
            }
            ToWorker::Lease(lease) => self.take(open, lease).await?,
            ToWorker::Revoke(lease) => self.attempts.revoke(lease),
            ToWorker::Drain => {
                // Whatever still runs is of no use to anybody.
                self.attempts.revoke_all();
                open.ending = Some(Ending::NoMoreWork);
            }
            ToWorker::Welcome(_) => {}
        }
        Ok(())
    }

    async fn take(&mut self, open: &mut Open, lease: Lease) -> Result<(), Close> {
        match &open.context {
            Some((epoch, Ok(context))) if *epoch == lease.epoch => {
                self.attempts.start(lease, context.clone());
                Ok(())
            }
            Some((epoch, Err((class, message)))) if *epoch == lease.epoch => {
                let (class, message) = (*class, message.clone());
                self.fail(open, lease.lease, class, message).await
            }
            Some(_) | None => {
                let message = format!("no context came for epoch {}", lease.epoch);
                self.fail(open, lease.lease, Class::Bug, message).await
            }
        }
    }

    /// What cannot be read is answered by name where that can be done, so that the job ends with the reason.
    async fn refuse(&mut self, open: &mut Open, unreadable: Unreadable) -> Result<(), Close> {
        let (class, message) = (unreadable.class(), chain(&unreadable));
        tracing::warn!(message, "a message of the coordinator was not understood");
        match (unreadable.lease, unreadable.context_of) {
            (Some(lease), _) => self.fail(open, lease, class, message).await,
            (None, Some(epoch)) => {
                open.context = Some((epoch, Err((class, message))));
                Ok(())
            }
            (None, None) => Err(self.not_understood(unreadable)),
        }
    }

    async fn fail(&mut self, open: &Open, lease: LeaseId, class: Class, message: String) -> Result<(), Close> {
        self.tally.failed += 1;
        self.say(open, FromWorker::Failed { lease, class, message, left_behind: Vec::new() }).await
    }

    fn tally(&mut self, message: &FromWorker) {
        match message {
            FromWorker::Done { .. } => self.tally.done += 1,
            FromWorker::Failed { .. } => self.tally.failed += 1,
            FromWorker::GiveBack(leases) => self.tally.given_back += leases.len() as u64,
            FromWorker::Register(_) | FromWorker::Heartbeat(_) => {}
        }
    }

    async fn say(&self, open: &Open, message: FromWorker) -> Result<(), Close> {
        self.send(&open.outbound, &message, Duration::from_millis(open.welcome.lease_timeout_ms)).await
    }

    /// Queues a message. A coordinator that reads nothing for as long as leases live has lost this worker anyway.
    async fn send(
        &self,
        outbound: &mpsc::Sender<WorkerMessage>,
        message: &FromWorker,
        within: Duration,
    ) -> Result<(), Close> {
        let wire = write_worker_message(message).map_err(|source| {
            Close::Failed(Box::new(ServeError::Unsendable { worker: self.config.id.clone(), source }))
        })?;
        match timeout(within, outbound.send(wire)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Close::Broken("the stream to it is gone".to_owned())),
            Err(_) => Err(Close::Broken("it does not read what it is sent".to_owned())),
        }
    }

    /// Ends the stream after all that was said: the coordinator ends its side once it has read ours to the end.
    async fn close(&self, open: Open, ending: Ending) -> Close {
        let Open { outbound, mut inbound, welcome, .. } = open;
        drop(outbound);
        let rest = async { while let Ok(Some(_)) = inbound.message().await {} };
        if timeout(Duration::from_millis(welcome.lease_timeout_ms), rest).await.is_err() {
            tracing::warn!(worker = %self.config.id, "the coordinator did not end its stream in time");
        }
        match ending {
            Ending::NoMoreWork => Close::NoMoreWork,
            Ending::Drained => Close::Drained,
        }
    }

    fn read(&self, message: Result<Option<CoordinatorMessage>, Status>) -> Result<Result<ToWorker, Unreadable>, Close> {
        match message {
            Ok(Some(message)) => Ok(read_coordinator_message(message)),
            Ok(None) => Err(Close::Broken("it ended the stream".to_owned())),
            Err(status) => Err(self.status(&status)),
        }
    }

    fn status(&self, status: &Status) -> Close {
        match final_class(status) {
            Some(class) => Close::Failed(Box::new(not_taken(self.config, class, status))),
            None => Close::Broken(words(status)),
        }
    }

    fn not_understood(&self, source: Unreadable) -> Close {
        Close::Failed(Box::new(ServeError::NotUnderstood { worker: self.config.id.clone(), source }))
    }
}

/// What a status says, with its causes; not its own print, which is one for programmers.
fn words(status: &Status) -> String {
    let causes = std::error::Error::source(status).map(chain).unwrap_or_default();
    match (status.message(), causes.as_str()) {
        (message, "") => message.to_owned(),
        ("", causes) => causes.to_owned(),
        (message, causes) if causes.contains(message) => causes.to_owned(),
        (message, causes) => format!("{message}: {causes}"),
    }
}
