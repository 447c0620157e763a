//! A dispatcher behind a real server over in-memory pipes, against scripted workers that die, fall silent or come late.
//!
//! Waits are short real ones; the rules that depend on time are tested without any in `decide`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::*;
use iceferry_common::storage::StorageProperties;
use iceferry_proto::convert::{read_coordinator_message, write_worker_message};
use iceferry_proto::message::{FromWorker, Lease, Register, ToWorker};
use iceferry_proto::wire::dispatch_client::DispatchClient;
use iceferry_proto::wire::{CoordinatorMessage, WorkerMessage};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::*;

const PIPE_BYTES: usize = 64 * 1024;

/// No lease runs out by accident, however busy the machine is.
fn config() -> DistributeConfig {
    DistributeConfig {
        retry_delay: Duration::from_millis(10),
        drain_timeout: Duration::from_secs(5),
        ..DistributeConfig::default()
    }
}

fn context(epoch: u64) -> Arc<EpochContext> {
    let id = Arc::new(NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)));
    let schema = Arc::new(Schema::builder().with_fields([id]).build().unwrap());
    let storage = StorageProperties(BTreeMap::new());
    Arc::new(EpochContext {
        job: "orders".parse().unwrap(),
        run: RunId("r1".into()),
        epoch: EpochId(epoch),
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

fn scan(id: u64) -> ScanTask {
    let file = DataFile {
        location: format!("/s/data/{id:036}.parquet"),
        format: FileFormat::Parquet,
        size_bytes: 100,
        record_count: 10,
        constants: vec![],
        sequence_number: 0,
        first_row_id: None,
        spec_id: 0,
        partition: Vec::new(),
    };
    let difference =
        FileDifference { file, split: None, before: Side::Absent, after: Side::Present(vec![]), commit: None };
    ScanTask {
        id: TaskId(id),
        differences: vec![difference],
        deletes: vec![],
        resolution: Resolution::Keep,
        work: Work::Stage,
    }
}

fn output(lease: &Lease) -> TaskOutput {
    let (task, attempt) = (lease.task.id, lease.attempt);
    let file = StagedFile {
        location: staged_file_location(&context(lease.epoch.0), task, attempt, StagedContent::Data, 0),
        content: StagedContent::Data,
        record_count: 10,
        size_bytes: 50,
        data_file: "{}".into(),
    };
    TaskOutput {
        task,
        attempt,
        files: vec![file],
        exchanged: None,
        rows: RowCounts { read: 10, ..RowCounts::default() },
    }
}

type Epoch = JoinHandle<Result<EpochOutput, EpochFailed>>;

/// What became of an epoch, which must not take for ever.
async fn ended(epoch: Epoch) -> Result<EpochOutput, EpochFailed> {
    tokio::time::timeout(Duration::from_secs(30), epoch).await.expect("it ends").unwrap()
}

/// A coordinator behind a real server.
struct Cluster {
    dispatcher: Dispatcher,
    shutdown: CancellationToken,
    pipes: mpsc::Sender<tokio::io::DuplexStream>,
    server: JoinHandle<()>,
}

impl Cluster {
    fn start(config: DistributeConfig) -> Self {
        let shutdown = CancellationToken::new();
        let dispatcher = Dispatcher::start(config, shutdown.clone());
        let (pipes, incoming) = mpsc::channel::<tokio::io::DuplexStream>(8);
        let incoming = tokio_stream::StreamExt::map(ReceiverStream::new(incoming), Ok::<_, std::io::Error>);
        let serving = server().add_service(dispatcher.service()).serve_with_incoming(incoming);
        let server = tokio::spawn(async move { serving.await.unwrap() });
        Self { dispatcher, shutdown, pipes, server }
    }

    fn channel(&self) -> Channel {
        let pipes = self.pipes.clone();
        // Each connection is a pipe of its own: one that broke cannot be used again.
        let connect = tower::service_fn(move |_| {
            let pipes = pipes.clone();
            async move {
                let (near, far) = tokio::io::duplex(PIPE_BYTES);
                pipes.send(far).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(near))
            }
        });
        Endpoint::from_static("http://coordinator").connect_with_connector_lazy(connect)
    }

    async fn worker(&self, id: &str, slots: u32) -> Worker {
        let mut worker = Worker::connect(self.channel()).await;
        worker.register(id, slots).await;
        match worker.hear().await {
            ToWorker::Welcome(_) => worker,
            other => unreachable!("{other:?}"),
        }
    }

    fn run(&self, epoch: u64, tasks: u64) -> Epoch {
        let (dispatcher, (planned, planning)) = (self.dispatcher.clone(), mpsc::channel(1));
        tokio::spawn(async move {
            let plan = async move {
                for id in 0..tasks {
                    planned.send(scan(id)).await.ok();
                }
            };
            tokio::join!(dispatcher.run_epoch(context(epoch), planning), plan).0
        })
    }
}

/// A worker that does as the test says.
struct Worker {
    outbound: mpsc::Sender<WorkerMessage>,
    inbound: Streaming<CoordinatorMessage>,
}

impl Worker {
    async fn connect(channel: Channel) -> Self {
        let (outbound, messages) = mpsc::channel(1024);
        let inbound = DispatchClient::new(channel).work(ReceiverStream::new(messages)).await.unwrap().into_inner();
        Self { outbound, inbound }
    }

    async fn register(&mut self, id: &str, slots: u32) {
        let worker = WorkerId(id.into());
        self.say(FromWorker::Register(Register { worker, slots, memory_bytes: 1, version: String::new() })).await;
    }

    async fn say(&mut self, message: FromWorker) {
        self.outbound.send(write_worker_message(&message).unwrap()).await.unwrap();
    }

    async fn beat(&mut self) {
        self.say(FromWorker::Heartbeat(vec![])).await;
    }

    async fn next(&mut self) -> Result<Option<ToWorker>, tonic::Status> {
        let message = tokio::time::timeout(Duration::from_secs(20), self.inbound.message()).await.expect("a message");
        Ok(message?.map(|message| read_coordinator_message(message).unwrap()))
    }

    async fn hear(&mut self) -> ToWorker {
        self.next().await.unwrap().expect("the stream is open")
    }

    /// The next lease; contexts before it are checked off.
    async fn lease(&mut self) -> Lease {
        loop {
            match self.hear().await {
                ToWorker::Lease(lease) => return lease,
                ToWorker::Context(_) => {}
                other => unreachable!("{other:?}"),
            }
        }
    }

    async fn done(&mut self, lease: &Lease) {
        self.say(FromWorker::Done { lease: lease.lease, output: output(lease) }).await;
    }
}

/// Answers every lease at once, until it is told that there is no more.
async fn diligent(mut worker: Worker) -> u64 {
    let mut done = 0;
    loop {
        match worker.hear().await {
            ToWorker::Lease(lease) => {
                worker.done(&lease).await;
                done += 1;
            }
            ToWorker::Drain => return done,
            ToWorker::Context(_) | ToWorker::Revoke(_) | ToWorker::Welcome(_) => {}
        }
    }
}

#[tokio::test]
async fn an_epoch_is_worked_off_by_several_workers_and_they_are_sent_home() {
    let cluster = Cluster::start(config());
    let (one, two) = (cluster.worker("w1", 2).await, cluster.worker("w2", 1).await);
    let (one, two) = (tokio::spawn(diligent(one)), tokio::spawn(diligent(two)));
    for epoch in 0..2 {
        let output = ended(cluster.run(epoch, 200)).await.unwrap();
        assert_eq!(output.outputs.iter().map(|output| output.task.0).collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        assert_eq!((output.rows.read, output.left_behind.len()), (2000, 0));
        let progress = cluster.dispatcher.progress().borrow().clone();
        assert_eq!((progress.tasks_done, progress.tasks_waiting, progress.epoch), (200, 0, Some(EpochId(epoch))));
    }
    assert_eq!(cluster.dispatcher.drain().await, Drained { left_behind: Vec::new(), all_closed: true });
    assert_eq!(one.await.unwrap() + two.await.unwrap(), 400);
    let after = ended(cluster.run(2, 1)).await.unwrap_err();
    assert_eq!(after.class(), Class::Interrupted);
    drop(cluster.pipes);
    cluster.server.abort();
}

#[tokio::test]
async fn the_context_is_sent_once_for_each_worker_and_epoch_before_its_first_lease() {
    let cluster = Cluster::start(config());
    let mut worker = cluster.worker("w1", 1).await;
    for epoch in 3..5 {
        let run = cluster.run(epoch, 3);
        assert_eq!(worker.hear().await, ToWorker::Context(context(epoch)));
        for _ in 0..3 {
            match worker.hear().await {
                ToWorker::Lease(lease) => worker.done(&lease).await,
                other => unreachable!("{other:?}"),
            }
        }
        ended(run).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_that_dies_in_the_middle_costs_nothing_but_time() {
    let cluster = Cluster::start(config());
    let mut mortal = cluster.worker("w1", 2).await;
    let run = cluster.run(0, 20);
    let first = mortal.lease().await;
    mortal.lease().await;
    mortal.done(&first).await;
    mortal.lease().await;
    drop(mortal);
    let other = tokio::spawn(diligent(cluster.worker("w2", 2).await));
    let output = ended(run).await.unwrap();
    assert_eq!(output.outputs.len(), 20);
    let again = output.outputs.iter().filter(|output| output.attempt == Attempt(1)).count();
    assert_eq!(again, 2, "the two that it held");
    assert_eq!(output.outputs[first.task.id.0 as usize].attempt, Attempt(0));
    cluster.dispatcher.drain().await;
    other.await.unwrap();
}

#[tokio::test]
async fn a_silent_worker_loses_its_lease_and_its_late_result_is_refused() {
    let cluster = Cluster::start(DistributeConfig { lease_timeout: Duration::from_secs(1), ..config() });
    let mut silent = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 1);
    let lost = silent.lease().await;
    // It is told, so that it stops when it wakes up.
    assert_eq!(silent.hear().await, ToWorker::Revoke(lost.lease));
    let mut other = cluster.worker("w2", 1).await;
    let held = other.lease().await;
    assert_eq!((held.task.id, held.attempt), (TaskId(0), Attempt(1)));
    silent.done(&lost).await;
    // A second word from it shows that the first was taken in.
    silent.beat().await;
    while cluster.dispatcher.progress().borrow().workers < 2 {
        other.beat().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!run.is_finished());
    other.done(&held).await;
    let result = ended(run).await.unwrap();
    assert_eq!(result.outputs, [output(&held)]);
    assert_eq!(result.left_behind, [output(&lost).files[0].location.clone()]);
}

#[tokio::test]
async fn heartbeats_keep_a_lease_for_longer_than_its_timeout() {
    let cluster = Cluster::start(DistributeConfig { lease_timeout: Duration::from_secs(2), ..config() });
    let mut worker = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 1);
    let lease = worker.lease().await;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        worker.beat().await;
    }
    worker.done(&lease).await;
    assert_eq!(ended(run).await.unwrap().outputs, [output(&lease)]);
}

#[tokio::test]
async fn a_task_that_keeps_failing_ends_the_epoch_with_its_own_error() {
    let cluster = Cluster::start(config());
    let mut worker = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 1);
    for attempt in 0..4 {
        let lease = worker.lease().await;
        assert_eq!(lease.attempt, Attempt(attempt));
        let (message, left_behind) = ("connection reset by storage".into(), vec![]);
        worker.say(FromWorker::Failed { lease: lease.lease, class: Class::Transient, message, left_behind }).await;
    }
    let failed = ended(run).await.unwrap_err();
    assert!(matches!(failed.error, DistributeError::TriedOften { failures: 4, .. }), "{failed:?}");
    assert!(failed.to_string().contains("connection reset by storage"));
}

#[tokio::test]
async fn a_dropped_epoch_revokes_its_leases_and_makes_room_for_the_next() {
    let cluster = Cluster::start(config());
    let mut worker = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 5);
    let lease = worker.lease().await;
    let busy = ended(cluster.run(1, 1)).await.unwrap_err();
    assert!(matches!(busy.error, DistributeError::Busy { .. }));
    run.abort();
    assert_eq!(worker.hear().await, ToWorker::Revoke(lease.lease));
    // Its result comes all the same: refused, and handed to the next epoch for removal.
    worker.done(&lease).await;
    let run = cluster.run(1, 1);
    let next = worker.lease().await;
    assert_eq!((next.epoch, next.attempt), (EpochId(1), Attempt(0)));
    worker.done(&next).await;
    let result = ended(run).await.unwrap();
    assert_eq!(result.left_behind, [output(&lease).files[0].location.clone()]);
}

#[tokio::test]
async fn planning_is_held_back_while_nobody_works() {
    let cluster = Cluster::start(config());
    let (planned, planning) = mpsc::channel(1);
    let dispatcher = cluster.dispatcher.clone();
    let run = tokio::spawn(async move { dispatcher.run_epoch(context(0), planning).await });
    let mut sent = 0;
    while let Ok(result) = tokio::time::timeout(Duration::from_millis(300), planned.send(scan(sent))).await {
        result.unwrap();
        sent += 1;
    }
    assert!((64..=66).contains(&sent), "64 wait, and at most two are on their way: {sent}");
    let worker = tokio::spawn(diligent(cluster.worker("w1", 1).await));
    for id in sent..sent + 100 {
        planned.send(scan(id)).await.unwrap();
    }
    drop(planned);
    assert_eq!(ended(run).await.unwrap().outputs.len() as u64, sent + 100);
    cluster.dispatcher.drain().await;
    worker.await.unwrap();
}

#[tokio::test]
async fn cancelling_the_run_stops_the_epoch_and_sends_workers_home() {
    let cluster = Cluster::start(config());
    let mut worker = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 5);
    let lease = worker.lease().await;
    cluster.shutdown.cancel();
    let failed = ended(run).await.unwrap_err();
    assert_eq!(failed.class(), Class::Interrupted);
    assert_eq!(worker.hear().await, ToWorker::Revoke(lease.lease));
    assert_eq!(worker.hear().await, ToWorker::Drain);
    // A result on the way is handed over for removal by the drain.
    worker.done(&lease).await;
    let Worker { outbound, mut inbound } = worker;
    let drain = tokio::spawn({
        let dispatcher = cluster.dispatcher.clone();
        async move { dispatcher.drain().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(outbound);
    assert!(inbound.message().await.unwrap().is_none(), "the coordinator ends its side last");
    let left_behind = vec![output(&lease).files[0].location.clone()];
    assert_eq!(drain.await.unwrap(), Drained { left_behind, all_closed: true });
}

#[tokio::test]
async fn a_worker_that_does_not_close_its_stream_may_still_write() {
    let cluster = Cluster::start(DistributeConfig { drain_timeout: Duration::from_millis(200), ..config() });
    let mut worker = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 1);
    worker.lease().await;
    drop(run);
    let drained = tokio::time::timeout(Duration::from_secs(20), cluster.dispatcher.drain()).await.expect("it ends");
    assert_eq!(drained, Drained { left_behind: Vec::new(), all_closed: false });
}

#[tokio::test]
async fn who_does_not_register_as_it_should_is_told_why() {
    let cluster = Cluster::start(config());
    for (slots, word) in [(0, "slots"), (100_000, "at most")] {
        let mut worker = Worker::connect(cluster.channel()).await;
        worker.register("w1", slots).await;
        let status = worker.next().await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains(word), "{status}");
    }
    let mut worker = Worker::connect(cluster.channel()).await;
    worker.beat().await;
    assert!(worker.next().await.unwrap_err().message().contains("Register"));
}

#[tokio::test]
async fn the_former_stream_of_a_worker_is_told_that_another_took_its_name() {
    let cluster = Cluster::start(config());
    let mut former = cluster.worker("w1", 1).await;
    let run = cluster.run(0, 1);
    former.lease().await;
    let mut latter = cluster.worker("w1", 1).await;
    let status = former.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::AlreadyExists);
    let lease = latter.lease().await;
    assert_eq!(lease.attempt, Attempt(1));
    latter.done(&lease).await;
    ended(run).await.unwrap();
}

#[tokio::test]
async fn a_task_larger_than_a_message_ends_the_epoch_by_name() {
    let cluster = Cluster::start(config());
    let _worker = cluster.worker("w1", 1).await;
    let (planned, planning) = mpsc::channel(1);
    let mut large = scan(0);
    large.differences[0].file.location = "x".repeat(iceferry_proto::MESSAGE_BYTES_MAX);
    planned.send(large).await.unwrap();
    let failed = cluster.dispatcher.run_epoch(context(0), planning).await.unwrap_err();
    assert_eq!(failed.class(), Class::Exhausted);
    assert!(failed.to_string().contains("task 0"), "{failed}");
    drop(planned);
}

/// By hand: `cargo nextest run -p iceferry-coordinator --run-ignored only tasks_a_second --no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; it asserts nothing about speed"]
async fn tasks_a_second() {
    let cluster = Cluster::start(DistributeConfig::default());
    let mut workers = vec![];
    for id in 0..4 {
        workers.push(tokio::spawn(diligent(cluster.worker(&format!("w{id}"), 16).await)));
    }
    let tasks = 50_000;
    let began = std::time::Instant::now();
    let output = cluster.run(0, tasks).await.unwrap().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(output.outputs.len() as u64, tasks);
    println!("{tasks} tasks in {seconds:.2} s: {:.0} a second", tasks as f64 / seconds);
    cluster.dispatcher.drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
}
