//! A worker against a scripted coordinator behind a real server over in-memory pipes; its attempts do as they are told.
//!
//! Waits are short real ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::*;
use iceferry_common::storage::StorageProperties;
use iceferry_proto::convert::{read_worker_message, write_coordinator_message};
use iceferry_proto::message::{FromWorker, Lease, ToWorker, Welcome};
use iceferry_proto::wire::dispatch_server::{Dispatch, DispatchServer};
use iceferry_proto::wire::{CoordinatorMessage, WorkerMessage};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::attempt::{AttemptError, Counters};

fn context() -> Arc<EpochContext> {
    let id = Arc::new(NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)));
    let schema = Arc::new(Schema::builder().with_fields([id]).build().unwrap());
    let storage = StorageProperties(BTreeMap::new());
    Arc::new(EpochContext {
        job: "orders".parse().unwrap(),
        run: RunId("r1".into()),
        epoch: EpochId(3),
        changelog: None,
        source: SourceContext {
            table: "s.orders".into(),
            read_schema: schema.clone(),
            equality_schema: schema.clone(),
            name_mapping: None,
            filter: None,
            storage: storage.clone(),
        },
        target: TargetContext {
            table: "t.orders".into(),
            write_schema: schema,
            key: vec![1],
            mode: TargetMode::MergeOnRead,
            data_location: "/t/data".into(),
            format_version: 2,
            last_column_id: 9,
            name_mapping: None,
            parquet: ParquetSettings {
                compression_codec: "zstd".into(),
                compression_level: None,
                row_group_bytes: 1,
                page_bytes: 1,
                dictionary_bytes: 1,
                metrics_default: MetricsMode::Full,
                metrics_columns: HashMap::new(),
            },
            target_file_bytes: 1,
            storage,
        },
    })
}

fn lease(number: u64) -> Lease {
    let task = ScanTask {
        id: TaskId(number),
        differences: vec![],
        deletes: vec![],
        resolution: Resolution::Keep,
        work: Work::Stage,
    };
    Lease { lease: LeaseId(number), epoch: EpochId(3), attempt: Attempt(0), task: Arc::new(task) }
}

fn output(number: u64) -> TaskOutput {
    let file = StagedFile {
        location: format!("/t/{number}"),
        content: StagedContent::Data,
        record_count: 1,
        size_bytes: 1,
        data_file: "{}".into(),
    };
    TaskOutput {
        task: TaskId(number),
        attempt: Attempt(0),
        files: vec![file],
        exchanged: None,
        rows: RowCounts::default(),
    }
}

type Outcome = Result<TaskOutput, AttemptError>;

/// Attempts that wait until the test says how they end, or until they are cancelled.
#[derive(Debug, Default)]
struct Puppets {
    strings: Mutex<HashMap<TaskId, oneshot::Sender<Outcome>>>,
    cancelled: Mutex<Vec<TaskId>>,
    discarded: Mutex<Vec<TaskId>>,
    /// Ends well although it was cancelled, as one that was in its last step would.
    deaf: bool,
    /// How long it takes to stop.
    slow: Duration,
}

impl Puppets {
    fn running(&self) -> Vec<u64> {
        let mut running: Vec<u64> = self.strings.lock().unwrap().keys().map(|task| task.0).collect();
        running.sort_unstable();
        running
    }

    fn end(&self, task: u64, outcome: Outcome) {
        let string = self.strings.lock().unwrap().remove(&TaskId(task)).expect("it runs");
        string.send(outcome).unwrap();
    }
}

#[async_trait]
impl Runner for Puppets {
    async fn run(
        &self,
        context: Arc<EpochContext>,
        task: Arc<ScanTask>,
        _attempt: Attempt,
        progress: Arc<Counters>,
        cancel: CancellationToken,
    ) -> Outcome {
        assert_eq!(context, super::tests::context());
        progress.set(RowCounts { read: 100 + task.id.0, ..RowCounts::default() });
        let (string, outcome) = oneshot::channel();
        self.strings.lock().unwrap().insert(task.id, string);
        tokio::select! {
            outcome = outcome => outcome.expect("the test holds the string"),
            () = cancel.cancelled() => {
                tokio::time::sleep(self.slow).await;
                self.strings.lock().unwrap().remove(&task.id);
                self.cancelled.lock().unwrap().push(task.id);
                if self.deaf { Ok(output(task.id.0)) } else { Err(AttemptError::cancelled(vec![])) }
            }
        }
    }

    async fn discard(&self, _context: Arc<EpochContext>, output: TaskOutput) -> Vec<String> {
        self.discarded.lock().unwrap().push(output.task);
        vec![]
    }
}

/// The coordinator's side of one stream.
struct Stream {
    inbound: Streaming<WorkerMessage>,
    outbound: mpsc::Sender<Result<CoordinatorMessage, Status>>,
}

impl Stream {
    async fn say(&mut self, message: ToWorker) {
        self.outbound.send(Ok(write_coordinator_message(&message).unwrap())).await.unwrap();
    }

    /// The next message; none at the end of the stream.
    async fn next(&mut self) -> Option<FromWorker> {
        let message = tokio::time::timeout(Duration::from_secs(20), self.inbound.message()).await.expect("a message");
        message.unwrap().map(|message| read_worker_message(message).unwrap())
    }

    /// The next message that is no heartbeat.
    async fn word(&mut self) -> Option<FromWorker> {
        loop {
            match self.next().await {
                Some(FromWorker::Heartbeat(_)) => {}
                other => return other,
            }
        }
    }

    /// Takes the worker and sends it leases.
    async fn welcome(mut self, leases: impl IntoIterator<Item = u64>) -> Self {
        match self.next().await {
            Some(FromWorker::Register(register)) => assert_eq!((register.worker.0.as_str(), register.slots), ("w", 2)),
            other => unreachable!("{other:?}"),
        }
        let terms = Welcome { coordinator: "c".into(), heartbeat_ms: 20, lease_timeout_ms: 10_000 };
        self.say(ToWorker::Welcome(terms)).await;
        self.say(ToWorker::Context(context())).await;
        for number in leases {
            self.say(ToWorker::Lease(lease(number))).await;
        }
        self
    }
}

#[derive(Debug)]
struct Script(mpsc::Sender<Stream>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

#[tonic::async_trait]
impl Dispatch for Script {
    type WorkStream = ReceiverStream<Result<CoordinatorMessage, Status>>;

    async fn work(&self, request: Request<Streaming<WorkerMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        let (outbound, messages) = mpsc::channel(64);
        self.0.send(Stream { inbound: request.into_inner(), outbound }).await.unwrap();
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// A worker that serves, and the coordinator that the test plays.
struct Play {
    streams: mpsc::Receiver<Stream>,
    puppets: Arc<Puppets>,
    drain: CancellationToken,
    worker: JoinHandle<Result<Served, ServeError>>,
}

fn config() -> WorkerConfig {
    WorkerConfig {
        cancel_timeout: Duration::from_secs(5),
        reconnect_max: Duration::from_millis(500),
        reconnect_delay: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(50),
        ..WorkerConfig::new(WorkerId("w".into()), 2, 1 << 30)
    }
}

impl Play {
    fn start(puppets: Puppets) -> Self {
        Self::start_with(puppets, config())
    }

    fn start_with(puppets: Puppets, config: WorkerConfig) -> Self {
        let (script, streams) = mpsc::channel(8);
        let (pipes, incoming) = mpsc::channel::<tokio::io::DuplexStream>(8);
        let incoming = tokio_stream::StreamExt::map(ReceiverStream::new(incoming), Ok::<_, std::io::Error>);
        let server = tonic::transport::Server::builder().add_service(DispatchServer::new(Script(script)));
        tokio::spawn(server.serve_with_incoming(incoming));
        let connect = tower::service_fn(move |_| {
            let pipes = pipes.clone();
            async move {
                let (near, far) = tokio::io::duplex(64 * 1024);
                pipes.send(far).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(near))
            }
        });
        let channel = endpoint(Endpoint::from_static("http://coordinator")).connect_with_connector_lazy(connect);
        let (puppets, drain) = (Arc::new(puppets), CancellationToken::new());
        let worker = tokio::spawn(serve(channel, config, puppets.clone(), drain.clone()));
        Self { streams, puppets, drain, worker }
    }

    async fn stream(&mut self) -> Stream {
        tokio::time::timeout(Duration::from_secs(20), self.streams.recv()).await.expect("it connects").unwrap()
    }

    /// Waits until these attempts run, and no others.
    async fn until_running(&self, tasks: &[u64]) {
        for _ in 0..1000 {
            if self.puppets.running() == tasks {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(self.puppets.running(), tasks);
    }

    async fn served(self) -> Result<Served, ServeError> {
        tokio::time::timeout(Duration::from_secs(20), self.worker).await.expect("it ends").unwrap()
    }
}

#[tokio::test]
async fn leases_are_run_up_to_the_slots_and_answered() {
    let mut play = Play::start(Puppets::default());
    let mut stream = play.stream().await.welcome(0..3).await;
    play.until_running(&[0, 1]).await;
    play.puppets.end(1, Ok(output(1)));
    assert_eq!(stream.word().await, Some(FromWorker::Done { lease: LeaseId(1), output: output(1) }));
    play.until_running(&[0, 2]).await;
    let error = AttemptError { class: Class::Corrupt, message: "bad magic".into(), left_behind: vec!["/t/0".into()] };
    play.puppets.end(0, Err(error));
    let failed = FromWorker::Failed {
        lease: LeaseId(0),
        class: Class::Corrupt,
        message: "bad magic".into(),
        left_behind: vec!["/t/0".into()],
    };
    assert_eq!(stream.word().await, Some(failed));
    play.puppets.end(2, Ok(output(2)));
    stream.word().await;
    stream.say(ToWorker::Drain).await;
    assert_eq!(stream.word().await, None, "it closes its side");
    drop(stream);
    let tally = Tally { done: 2, failed: 1, given_back: 0 };
    assert_eq!(play.served().await.unwrap(), Served { reason: Reason::NoMoreWork, tally });
}

#[tokio::test]
async fn heartbeats_say_how_far_attempts_are() {
    let mut play = Play::start(Puppets::default());
    let mut stream = play.stream().await.welcome([7]).await;
    play.until_running(&[7]).await;
    loop {
        match stream.next().await {
            Some(FromWorker::Heartbeat(progress)) if progress.iter().any(|it| it.rows.read > 0) => {
                assert_eq!((progress.len(), progress[0].lease, progress[0].rows.read), (1, LeaseId(7), 107));
                break;
            }
            Some(FromWorker::Heartbeat(_)) => {}
            other => unreachable!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_revoked_attempt_stops_and_is_not_answered() {
    for deaf in [false, true] {
        let mut play = Play::start(Puppets { deaf, ..Puppets::default() });
        let mut stream = play.stream().await.welcome([0, 1]).await;
        play.until_running(&[0, 1]).await;
        stream.say(ToWorker::Revoke(LeaseId(0))).await;
        play.until_running(&[1]).await;
        play.puppets.end(1, Ok(output(1)));
        assert_eq!(stream.word().await, Some(FromWorker::Done { lease: LeaseId(1), output: output(1) }));
        stream.say(ToWorker::Drain).await;
        assert_eq!(stream.word().await, None);
        drop(stream);
        let puppets = play.puppets.clone();
        assert_eq!(play.served().await.unwrap().tally.done, 1);
        assert_eq!(*puppets.cancelled.lock().unwrap(), [TaskId(0)]);
        // One that ended well all the same has its files removed.
        assert_eq!(puppets.discarded.lock().unwrap().len(), usize::from(deaf));
    }
}

#[tokio::test]
async fn a_broken_stream_cancels_its_attempts_and_the_worker_comes_back() {
    let mut play = Play::start(Puppets { deaf: true, ..Puppets::default() });
    let stream = play.stream().await.welcome([0, 1]).await;
    play.until_running(&[0, 1]).await;
    drop(stream);
    // The same lease numbers again, as of a coordinator that was started anew.
    let mut stream = play.stream().await.welcome([0]).await;
    play.until_running(&[0]).await;
    play.puppets.end(0, Ok(output(0)));
    assert_eq!(stream.word().await, Some(FromWorker::Done { lease: LeaseId(0), output: output(0) }));
    let mut discarded = play.puppets.discarded.lock().unwrap().clone();
    discarded.sort_unstable();
    assert_eq!(discarded, [TaskId(0), TaskId(1)], "those of the broken stream alone");
}

#[tokio::test]
async fn draining_lets_attempts_finish_within_the_grace() {
    let mut play = Play::start(Puppets::default());
    let mut stream = play.stream().await.welcome([0]).await;
    play.until_running(&[0]).await;
    play.drain.cancel();
    assert_eq!(stream.word().await, Some(FromWorker::GiveBack(vec![])), "it says that it takes no more");
    stream.say(ToWorker::Lease(lease(5))).await;
    assert_eq!(stream.word().await, Some(FromWorker::GiveBack(vec![LeaseId(5)])));
    play.puppets.end(0, Ok(output(0)));
    assert_eq!(stream.word().await, Some(FromWorker::Done { lease: LeaseId(0), output: output(0) }));
    assert_eq!(stream.word().await, None);
    drop(stream);
    let tally = Tally { done: 1, failed: 0, given_back: 1 };
    assert_eq!(play.served().await.unwrap(), Served { reason: Reason::Drained, tally });
}

#[tokio::test]
async fn sent_home_it_closes_its_stream_only_when_nothing_is_written_any_more() {
    let mut play = Play::start(Puppets { deaf: true, slow: Duration::from_millis(300), ..Puppets::default() });
    let mut stream = play.stream().await.welcome([0]).await;
    play.until_running(&[0]).await;
    stream.say(ToWorker::Drain).await;
    assert_eq!(stream.word().await, None);
    assert_eq!(*play.puppets.discarded.lock().unwrap(), [TaskId(0)], "what it still staged is gone by now");
    drop(stream);
    assert_eq!(play.served().await.unwrap().reason, Reason::NoMoreWork);
}

#[tokio::test]
async fn draining_gives_back_what_does_not_finish() {
    let config = WorkerConfig { grace: Duration::from_millis(50), ..config() };
    let mut play = Play::start_with(Puppets::default(), config);
    let mut stream = play.stream().await.welcome([4]).await;
    play.until_running(&[4]).await;
    play.drain.cancel();
    assert_eq!(stream.word().await, Some(FromWorker::GiveBack(vec![])));
    assert_eq!(stream.word().await, Some(FromWorker::GiveBack(vec![LeaseId(4)])));
    assert_eq!(stream.word().await, None);
    drop(stream);
    assert_eq!(*play.puppets.cancelled.lock().unwrap(), [TaskId(4)]);
    assert_eq!(play.served().await.unwrap().tally.given_back, 1);
}

#[tokio::test]
async fn without_a_coordinator_it_gives_up_after_a_bound() {
    let nowhere = tower::service_fn(|_| async {
        Err::<hyper_util::rt::TokioIo<tokio::io::DuplexStream>, _>(std::io::Error::other("nobody home"))
    });
    let channel = Endpoint::from_static("http://coordinator").connect_with_connector_lazy(nowhere);
    let served = serve(channel, config(), Arc::new(Puppets::default()), CancellationToken::new());
    let error = tokio::time::timeout(Duration::from_secs(20), served).await.expect("it ends").unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let text = error.to_string();
    assert!(text.contains("worker w") && text.contains("nobody home"), "{text}");
}

#[tokio::test]
async fn a_worker_that_is_not_taken_does_not_try_again() {
    let mut play = Play::start(Puppets::default());
    let stream = play.stream().await;
    stream.outbound.send(Err(Status::already_exists("another w"))).await.unwrap();
    let error = play.served().await.unwrap_err();
    assert_eq!(error.class(), Class::Config);
    assert!(error.to_string().contains("another w"), "{error}");
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_or_has_no_context_is_answered_by_name() {
    let mut play = Play::start(Puppets::default());
    let mut stream = play.stream().await.welcome([]).await;
    let mut broken = write_coordinator_message(&ToWorker::Lease(lease(8))).unwrap();
    if let Some(iceferry_proto::wire::coordinator_message::Kind::Lease(lease)) = &mut broken.kind {
        lease.task = None;
    }
    stream.outbound.send(Ok(broken)).await.unwrap();
    match stream.word().await {
        Some(FromWorker::Failed { lease: LeaseId(8), class: Class::Corrupt, message, .. }) => {
            assert!(message.contains("task"), "{message}");
        }
        other => unreachable!("{other:?}"),
    }
    stream.say(ToWorker::Lease(Lease { epoch: EpochId(4), ..lease(9) })).await;
    match stream.word().await {
        Some(FromWorker::Failed { lease: LeaseId(9), class: Class::Bug, message, .. }) => {
            assert!(message.contains("epoch 4"), "{message}");
        }
        other => unreachable!("{other:?}"),
    }
    let mut broken = write_coordinator_message(&ToWorker::Context(context())).unwrap();
    if let Some(iceferry_proto::wire::coordinator_message::Kind::Context(context)) = &mut broken.kind {
        context.target = None;
    }
    stream.outbound.send(Ok(broken)).await.unwrap();
    stream.say(ToWorker::Lease(lease(10))).await;
    match stream.word().await {
        Some(FromWorker::Failed { lease: LeaseId(10), class: Class::Corrupt, message, .. }) => {
            assert!(message.contains("target"), "{message}");
        }
        other => unreachable!("{other:?}"),
    }
}

#[derive(Debug)]
struct Panicking;

#[async_trait]
impl Runner for Panicking {
    async fn run(
        &self,
        _context: Arc<EpochContext>,
        _task: Arc<ScanTask>,
        _attempt: Attempt,
        _progress: Arc<Counters>,
        _cancel: CancellationToken,
    ) -> Outcome {
        unreachable!("an index out of bounds");
    }

    async fn discard(&self, _context: Arc<EpochContext>, _output: TaskOutput) -> Vec<String> {
        vec![]
    }
}

#[tokio::test]
async fn an_attempt_that_panics_is_a_bug_and_leaves_its_slot() {
    let mut attempts = Attempts::new(Arc::new(Panicking), 1);
    for number in 0..3 {
        attempts.start(lease(number), context());
        match attempts.next().await {
            Some(FromWorker::Failed { class: Class::Bug, lease, message, .. }) => {
                assert_eq!(lease, LeaseId(number));
                assert!(message.contains("index out of bounds"), "{message}");
            }
            other => unreachable!("{other:?}"),
        }
    }
    assert!(attempts.is_idle());
}
