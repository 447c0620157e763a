//! What decides, against tables of small histories, and against a random one with a plain model beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use iceferry_common::fault::Classified;
use iceferry_common::model::{
    DataFile, ExchangeBlock, ExchangeFile, ExchangeSide, ExchangeWork, FileDifference, FileFormat, Resolution,
    ResolveWork, RowCounts, Side, StagedContent, StagedFile, Work,
};
use proptest::prelude::*;

use super::*;

const FOLDER: &str = "/t/iceferry/orders/r";

fn config() -> DistributeConfig {
    DistributeConfig {
        lease_timeout: Duration::from_secs(10),
        retry_delay: Duration::from_secs(1),
        retry_delay_max: Duration::from_secs(3),
        waiting_tasks_min: 6,
        ..DistributeConfig::default()
    }
}

fn scan(id: u64) -> ScanTask {
    let file = DataFile {
        location: format!("/s/{id}.parquet"),
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

fn staged(task: u64, attempt: u32) -> String {
    format!("{FOLDER}/{task}-{attempt}")
}

fn output(task: u64, attempt: u32) -> TaskOutput {
    let file = StagedFile {
        location: staged(task, attempt),
        content: StagedContent::Data,
        record_count: 10,
        size_bytes: 50,
        data_file: "{}".into(),
    };
    let rows = RowCounts { read: 10, inserted: 10, ..RowCounts::default() };
    TaskOutput { task: TaskId(task), attempt: Attempt(attempt), files: vec![file], exchanged: None, rows }
}

/// A decider, a clock, and what it said.
struct Bench {
    decider: Decider,
    now: Instant,
    /// Leases as they were sent.
    sent: Vec<(SessionId, Lease)>,
    revoked: Vec<(SessionId, LeaseId)>,
    contexts: Vec<SessionId>,
    closed: Vec<SessionId>,
    notes: Vec<Note>,
    finished: Option<EpochOutput>,
    failed: Option<EpochFailed>,
}

impl Bench {
    fn new(tasks: u64) -> Self {
        let mut bench = Self {
            decider: Decider::new(config()),
            now: Instant::now(),
            sent: vec![],
            revoked: vec![],
            contexts: vec![],
            closed: vec![],
            notes: vec![],
            finished: None,
            failed: None,
        };
        bench.begin(0, tasks);
        bench
    }

    fn begin(&mut self, epoch: u64, tasks: u64) {
        self.on(Event::EpochBegun { epoch: EpochId(epoch), staging_folder: FOLDER.into() });
        (0..tasks).for_each(|id| self.on(Event::TaskArrived(scan(id))));
        self.on(Event::TasksEnded);
    }

    fn on(&mut self, event: Event) {
        for action in self.decider.handle(self.now, event) {
            match action {
                Action::SendContext(session) => self.contexts.push(session),
                Action::Send(session, lease) => self.sent.push((session, lease)),
                Action::Revoke(session, lease) => self.revoked.push((session, lease)),
                Action::Close(session) => self.closed.push(session),
                Action::Finish(output) => assert!(self.finished.replace(output).is_none()),
                Action::Fail(failed) => assert!(self.failed.replace(failed).is_none()),
                Action::Note(note) => self.notes.push(note),
            }
        }
        self.decider.check();
    }

    fn join(&mut self, session: u64, slots: u32) {
        self.join_as(session, &format!("w{session}"), slots);
    }

    fn join_as(&mut self, session: u64, worker: &str, slots: u32) {
        let register =
            Register { worker: WorkerId(worker.into()), slots, memory_bytes: 1 << 30, version: String::new() };
        self.on(Event::WorkerJoined { session: SessionId(session), register });
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.on(Event::Tick);
    }

    /// (session, lease, task, attempt) of the last lease sent.
    fn last(&self) -> (SessionId, LeaseId, u64, u32) {
        let (session, lease) = self.sent.last().expect("a lease was sent");
        (*session, lease.lease, lease.task.id.0, lease.attempt.0)
    }

    fn done(&mut self, session: SessionId, lease: LeaseId, task: u64, attempt: u32) {
        self.on(Event::Done { session, lease, output: output(task, attempt) });
    }

    fn fails(&mut self, session: SessionId, lease: LeaseId, class: Class) {
        let (message, left_behind) = ("disk on fire".into(), vec![]);
        self.on(Event::Failed { session, lease, class, message, left_behind });
    }

    fn lose(&mut self, session: SessionId) {
        self.on(Event::WorkerLost { session, why: "it died".into() });
    }

    fn beat(&mut self, session: u64) {
        self.on(Event::Heartbeat { session: SessionId(session), progress: vec![] });
    }
}

#[test]
fn an_epoch_without_tasks_is_done_at_once() {
    let bench = Bench::new(0);
    assert_eq!(bench.finished, Some(EpochOutput::default()));
}

#[test]
fn each_task_is_given_once_and_its_output_taken() {
    let mut bench = Bench::new(3);
    bench.join(1, 2);
    assert_eq!((bench.sent.len(), bench.contexts.len()), (2, 1), "no more leases than slots, one context");
    let mut given = 0;
    while let Some((session, lease)) = bench.sent.get(given).cloned() {
        bench.done(session, lease.lease, lease.task.id.0, lease.attempt.0);
        given += 1;
    }
    let output = bench.finished.expect("it is finished");
    assert_eq!(output.outputs.iter().map(|output| output.task.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((output.rows.read, output.left_behind.len()), (30, 0));
}

#[test]
fn the_least_loaded_worker_comes_first() {
    let mut bench = Bench::new(0);
    bench.finished = None;
    for (session, slots) in [(1, 2), (2, 4), (3, 1)] {
        bench.join(session, slots);
    }
    bench.begin(1, 8);
    let order: Vec<u64> = bench.sent.iter().map(|(session, _)| session.0).collect();
    assert_eq!(order, [3, 1, 2, 2, 1, 2, 2], "by share of slots in use; equal ones by memory for a slot, then by age");
}

#[test]
fn a_silent_worker_loses_its_lease_and_the_task_goes_to_another() {
    let mut bench = Bench::new(1);
    bench.join(1, 1);
    let (silent, lost, ..) = bench.last();
    bench.join(2, 1);
    bench.pass(9);
    bench.beat(2);
    assert!(bench.revoked.is_empty());
    bench.pass(1);
    assert_eq!(bench.revoked, [(silent, lost)]);
    assert_eq!(bench.decider.progress().workers, 1);
    bench.pass(1);
    let (session, lease, task, attempt) = bench.last();
    assert_eq!((session, task, attempt), (SessionId(2), 0, 1), "another worker, another attempt");
    assert_ne!(lease, lost);
    // What the silent one brings late is refused, and its files are to be removed.
    bench.done(silent, lost, 0, 0);
    assert!(bench.finished.is_none());
    bench.done(session, lease, 0, 1);
    let output = bench.finished.take().expect("it is finished");
    assert_eq!(output.outputs, [self::output(0, 1)]);
    assert_eq!(output.left_behind, [staged(0, 0)]);
    // It spoke, so it may work again.
    assert_eq!(bench.decider.progress().workers, 2);
}

#[test]
fn files_of_an_answer_that_was_once_taken_are_never_named_for_removal() {
    let mut bench = Bench::new(2);
    bench.join(1, 1);
    let (session, lease, ..) = bench.last();
    bench.done(session, lease, 0, 0);
    // Said twice, and said by another: the files are in the accepted output.
    bench.done(session, lease, 0, 0);
    bench.join(2, 1);
    bench.done(SessionId(2), lease, 0, 0);
    let (session, lease, ..) = bench.last();
    bench.done(session, lease, 1, 0);
    let output = bench.finished.take().expect("it is finished");
    assert!(output.left_behind.is_empty());
    bench.done(session, lease, 1, 0);
    assert!(bench.decider.take_left_behind().is_empty());
    assert_eq!(bench.notes.iter().filter(|note| matches!(note, Note::StrangeAnswer { .. })).count(), 3);
}

#[test]
fn a_passing_failure_is_tried_again_elsewhere_and_then_ends_with_its_own_error() {
    let mut bench = Bench::new(1);
    bench.join(1, 1);
    bench.join(2, 1);
    let mut seen = vec![];
    for _ in 0..3 {
        let (session, lease, _, attempt) = bench.last();
        seen.push((session.0, attempt));
        bench.fails(session, lease, Class::Transient);
        let sent = bench.sent.len();
        bench.on(Event::Tick);
        assert_eq!(bench.sent.len(), sent, "there is a wait before the next try");
        bench.beat(1);
        bench.beat(2);
        bench.pass(4);
    }
    let (session, lease, _, attempt) = bench.last();
    seen.push((session.0, attempt));
    assert_eq!(seen[..2], [(1, 0), (2, 1)]);
    assert_eq!(seen.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), [0, 1, 2, 3]);
    bench.fails(session, lease, Class::Transient);
    let failed = bench.failed.expect("it failed");
    assert_eq!(failed.class(), Class::Transient);
    let text = failed.to_string();
    assert!(text.contains("task 0") && text.contains("4 times") && text.contains("disk on fire"), "{text}");
}

#[test]
fn a_failed_task_waits_for_another_worker_that_is_busy() {
    let mut bench = Bench::new(2);
    bench.join(1, 1);
    bench.join(2, 1);
    let (first, second) = (bench.sent[0].clone(), bench.sent[1].clone());
    bench.fails(first.0, first.1.lease, Class::Transient);
    bench.pass(2);
    assert_eq!(bench.sent.len(), 2, "worker 1 is free but was unlucky with it");
    bench.done(second.0, second.1.lease, 1, 0);
    assert_eq!(bench.last().0, second.0);
    // With nobody else left it is given to whoever there is.
    bench.lose(second.0);
    bench.pass(3);
    assert_eq!(bench.last().0, first.0);
}

#[test]
fn every_other_class_ends_the_epoch_at_once() {
    for class in Class::ALL {
        let mut bench = Bench::new(2);
        bench.join(1, 2);
        let (session, lease, ..) = bench.last();
        bench.done(session, bench.sent[0].1.lease, 0, 0);
        bench.fails(session, lease, class);
        if matches!(class, Class::Transient | Class::Interrupted) {
            assert!(bench.failed.is_none(), "{class}");
            continue;
        }
        let failed = bench.failed.expect("it failed");
        assert_eq!(failed.class(), class);
        assert!(failed.to_string().contains("disk on fire"));
        assert_eq!(failed.left_behind, [staged(0, 0)], "what was accepted is of no use any more");
    }
}

#[test]
fn a_failing_epoch_revokes_its_leases_and_late_results_are_cleaned_up_by_the_next() {
    let mut bench = Bench::new(2);
    bench.join(1, 2);
    let (session, lease, ..) = bench.last();
    let other = bench.sent[0].1.lease;
    bench.fails(session, lease, Class::Corrupt);
    assert_eq!(bench.revoked, [(session, other)]);
    bench.done(session, other, 0, 0);
    bench.begin(1, 0);
    assert_eq!(bench.finished.expect("it is finished").left_behind, [staged(0, 0)]);
    assert_eq!(bench.contexts.len(), 1);
}

#[test]
fn a_task_that_kills_its_workers_ends_the_epoch_by_name() {
    let mut bench = Bench::new(1);
    for session in 1..=8 {
        assert!(bench.failed.is_none(), "after {} losses", session - 1);
        bench.join(session, 1);
        bench.pass(5);
        assert_eq!(bench.last().0, SessionId(session));
        bench.lose(SessionId(session));
    }
    let failed = bench.failed.expect("it failed");
    assert_eq!(failed.class(), Class::Exhausted);
    let text = failed.to_string();
    for word in ["task 0", "/s/0.parquet", "8 times", "w8", "it died", "memory"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn what_is_given_back_is_nobodys_failure() {
    let mut bench = Bench::new(2);
    for session in 1..=20 {
        bench.join(session, 2);
        let leases = bench.sent[bench.sent.len() - 2..].iter().map(|(_, lease)| lease.lease).collect();
        let sent = bench.sent.len();
        bench.on(Event::GaveBack { session: SessionId(session), leases });
        assert_eq!(bench.sent.len(), sent, "a draining worker gets nothing");
    }
    assert!(bench.failed.is_none());
    bench.join(21, 2);
    assert_eq!(bench.last().3, 20, "each time it was another attempt");
}

#[test]
fn a_worker_that_comes_back_is_one_worker() {
    let mut bench = Bench::new(1);
    bench.join_as(1, "w", 1);
    bench.join_as(2, "w", 1);
    assert_eq!(bench.closed, [SessionId(1)]);
    assert_eq!(bench.decider.progress().workers, 1);
    bench.pass(2);
    assert_eq!((bench.last().0, bench.last().3), (SessionId(2), 1));
}

#[test]
fn a_result_that_is_not_the_leases_own_breaks_the_epoch() {
    let twice = || {
        let mut output = output(0, 0);
        output.files.push(output.files[0].clone());
        output
    };
    let elsewhere = || {
        let mut output = output(0, 0);
        output.files[0].location = "/t/data/somebody-elses".into();
        output
    };
    let wrong = [("task", output(1, 0)), ("attempt", output(0, 1)), ("twice", twice()), ("folder", elsewhere())];
    for (word, output) in wrong {
        let mut bench = Bench::new(1);
        bench.join(1, 1);
        let (session, lease, ..) = bench.last();
        bench.on(Event::Done { session, lease, output });
        let failed = bench.failed.expect("it failed");
        assert_eq!(failed.class(), Class::Bug);
        assert!(failed.to_string().contains(word), "{word}: {failed}");
        assert!(failed.left_behind.iter().all(|file| file.starts_with(FOLDER)), "{failed:?}");
    }
}

#[test]
fn a_worker_cannot_have_files_removed_that_are_not_staged() {
    let mut bench = Bench::new(1);
    bench.join(1, 1);
    let (session, lease, ..) = bench.last();
    let left_behind = vec![staged(0, 0), "/t/data/1.parquet".into(), format!("{FOLDER}x/1"), FOLDER.into()];
    bench.on(Event::Failed { session, lease, class: Class::Corrupt, message: String::new(), left_behind });
    assert_eq!(bench.failed.expect("it failed").left_behind, [staged(0, 0)]);
    assert!(bench.notes.iter().any(|note| matches!(note, Note::StrangeFiles { files: 3, .. })));
}

#[test]
fn a_task_planned_twice_is_a_bug() {
    let mut bench = Bench::new(0);
    bench.finished = None;
    bench.on(Event::EpochBegun { epoch: EpochId(1), staging_folder: FOLDER.into() });
    bench.on(Event::TaskArrived(scan(4)));
    bench.on(Event::TaskArrived(scan(4)));
    assert_eq!(bench.failed.expect("it failed").class(), Class::Bug);
}

#[test]
fn intake_stops_at_its_bound_and_goes_on_below_it() {
    let mut bench = Bench::new(0);
    bench.finished = None;
    bench.on(Event::EpochBegun { epoch: EpochId(1), staging_folder: FOLDER.into() });
    let fill = |bench: &mut Bench, from: u64| {
        let mut next = from;
        while bench.decider.wants_tasks() {
            bench.on(Event::TaskArrived(scan(next)));
            next += 1;
        }
        next
    };
    assert_eq!(fill(&mut bench, 0), 6, "the least bound without a worker");
    bench.join(1, 2);
    assert_eq!(fill(&mut bench, 6), 10, "2 leased and four waiting for each slot");
    let (session, lease) = bench.sent[0].clone();
    bench.done(session, lease.lease, lease.task.id.0, 0);
    assert_eq!(fill(&mut bench, 10), 11);
    assert!(bench.decider.wants_tasks() || bench.decider.epoch().is_some());
}

#[test]
fn waiting_without_any_worker_is_told_now_and_then() {
    let mut bench = Bench::new(2);
    bench.pass(4);
    assert_eq!(bench.notes, []);
    bench.pass(1);
    bench.pass(1);
    assert_eq!(bench.notes, [Note::NoWorker { waiting: 2 }]);
    bench.join(1, 1);
    bench.pass(9);
    assert_eq!(bench.notes.len(), 1);
}

#[test]
fn progress_counts_attempts_under_way_by_their_last_heartbeat() {
    let mut bench = Bench::new(3);
    bench.join(1, 2);
    let (session, lease) = bench.sent[0].clone();
    bench.done(session, lease.lease, 0, 0);
    let rows = RowCounts { read: 7, ..RowCounts::default() };
    let lease = bench.sent[1].1.lease;
    bench.on(Event::Heartbeat { session, progress: vec![LeaseProgress { lease, rows }] });
    let progress = bench.decider.progress();
    assert_eq!((progress.tasks_done, progress.tasks_leased, progress.tasks_waiting), (1, 2, 0));
    assert_eq!((progress.files_done, progress.files_seen, progress.bytes_done, progress.bytes_seen), (1, 3, 100, 300));
    assert_eq!((progress.rows.read, progress.workers, progress.slots, progress.all_planned), (17, 1, 2, true));
}

/// One step of a random history; indexes pick among what is there.
#[derive(Debug, Clone)]
enum Step {
    Join(u32),
    Lose(usize),
    Beat(usize),
    Done(usize),
    Fail(usize),
    GiveBack(usize),
    Pass(u64),
    Task,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1_u32..4).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::Lose),
        4 => any::<usize>().prop_map(Step::Beat),
        8 => any::<usize>().prop_map(Step::Done),
        2 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::GiveBack),
        4 => (1_u64..12).prop_map(Step::Pass),
        6 => Just(Step::Task),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever workers do, in the end each task has one output, that of the lease which was last given for it, and no
    /// accepted file is named for removal. The plain model beside it knows only who was last given which task.
    #[test]
    fn whatever_happens_each_task_is_accepted_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new(0);
        bench.finished = None;
        bench.decider.config.attempts_max = u32::MAX;
        bench.decider.config.losses_max = u32::MAX;
        bench.on(Event::EpochBegun { epoch: EpochId(1), staging_folder: FOLDER.into() });
        let (mut tasks, mut sessions) = (0, 0);
        let mut open = BTreeSet::new();
        let mut accepted = BTreeMap::new();
        for step in steps {
            let sent = bench.sent.clone();
            let any = |index: usize| (!sent.is_empty()).then(|| sent[index % sent.len()].clone());
            let one = |index: usize| open.iter().copied().nth(index % open.len().max(1));
            match step {
                Step::Join(slots) => {
                    sessions += 1;
                    open.insert(sessions);
                    bench.join(sessions, slots);
                }
                Step::Lose(index) => if let Some(session) = one(index) {
                    open.remove(&session);
                    bench.lose(SessionId(session));
                },
                Step::Beat(index) => if let Some(session) = one(index) { bench.beat(session) },
                // Any lease ever given may be answered, held or not, by a worker that is there or is gone.
                Step::Done(index) => if let Some((session, lease)) = any(index) {
                    let task = lease.task.id;
                    let newest = sent.iter().rev().find(|(_, other)| other.task.id == task).map(|(_, it)| it.lease);
                    let before = bench.decider.progress().tasks_done;
                    bench.done(session, lease.lease, task.0, lease.attempt.0);
                    if bench.decider.progress().tasks_done > before {
                        prop_assert_eq!(newest, Some(lease.lease), "an old lease was believed");
                        prop_assert!(accepted.insert(task, lease.attempt).is_none(), "accepted twice");
                    }
                },
                Step::Fail(index) => if let Some((session, lease)) = any(index) {
                    bench.fails(session, lease.lease, Class::Transient);
                },
                Step::GiveBack(index) => if let Some((session, lease)) = any(index) {
                    bench.on(Event::GaveBack { session, leases: vec![lease.lease] });
                },
                Step::Pass(seconds) => bench.pass(seconds),
                Step::Task => if bench.decider.wants_tasks() {
                    bench.on(Event::TaskArrived(scan(tasks)));
                    tasks += 1;
                },
            }
        }
        // Then one good worker works off what is left.
        bench.on(Event::TasksEnded);
        bench.join_as(u64::MAX, "good", 3);
        for _ in 0..1000 {
            if bench.finished.is_some() {
                break;
            }
            bench.beat(u64::MAX);
            bench.pass(4);
            let held: HashMap<TaskId, Lease> = bench.sent.iter()
                .filter(|(session, _)| session.0 == u64::MAX)
                .map(|(_, lease)| (lease.task.id, lease.clone()))
                .collect();
            for (task, lease) in held {
                if let std::collections::btree_map::Entry::Vacant(open) = accepted.entry(task) {
                    bench.done(SessionId(u64::MAX), lease.lease, task.0, lease.attempt.0);
                    open.insert(lease.attempt);
                }
            }
        }
        let output = bench.finished.expect("it is finished");
        let got: Vec<_> = output.outputs.iter().map(|output| (output.task, output.attempt)).collect();
        prop_assert_eq!(&got, &accepted.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(got.len() as u64, tasks);
        let files: BTreeSet<&str> =
            output.outputs.iter().flat_map(|output| &output.files).map(|file| file.location.as_str()).collect();
        prop_assert!(output.left_behind.iter().all(|file| !files.contains(file.as_str())));
        let leases: BTreeSet<LeaseId> = bench.sent.iter().map(|(_, lease)| lease.lease).collect();
        prop_assert_eq!(leases.len(), bench.sent.len(), "a lease was given twice");
        let tries: BTreeSet<(TaskId, Attempt)> =
            bench.sent.iter().map(|(_, lease)| (lease.task.id, lease.attempt)).collect();
        prop_assert_eq!(tries.len(), bench.sent.len(), "two leases share staged paths");
    }
}

fn exchanging(id: u64, tasks: u64, first_resolve: u64) -> ScanTask {
    let hash_version = ExchangeWork::HASH_VERSION;
    let work = Work::Exchange(ExchangeWork { tasks, first_resolve: TaskId(first_resolve), hash_version });
    ScanTask { work, resolution: Resolution::Updates, ..scan(id) }
}

/// Ten rows in each of these buckets.
fn exchanged(task: u64, attempt: u32, buckets: &[u32]) -> TaskOutput {
    let blocks = (0..).zip(buckets).map(|(place, bucket)| ExchangeBlock {
        bucket: *bucket,
        side: ExchangeSide::Came,
        offset: place * 100,
        length: 100,
        rows: 10,
        memory_bytes: 1_000,
        hash_min: 0,
        hash_max: u64::MAX,
    });
    let file = ExchangeFile { location: staged(task, attempt), blocks: blocks.collect() };
    let rows = RowCounts { read: 10 * buckets.len() as u64, ..RowCounts::default() };
    TaskOutput { files: vec![], exchanged: Some(file), rows, ..output(task, attempt) }
}

fn resolved(task: u64, attempt: u32, read: u64) -> TaskOutput {
    TaskOutput { rows: RowCounts { read, inserted: 1, ..RowCounts::default() }, ..output(task, attempt) }
}

/// An epoch of a group of two tasks and a plain task, and one worker.
fn group_bench() -> Bench {
    let mut bench = Bench::new(0);
    bench.finished = None;
    bench.on(Event::EpochBegun { epoch: EpochId(1), staging_folder: FOLDER.into() });
    bench.on(Event::TaskArrived(exchanging(0, 2, 2)));
    bench.on(Event::TaskArrived(exchanging(1, 2, 2)));
    bench.on(Event::TaskArrived(scan(66)));
    bench.join(1, 10);
    bench
}

impl Bench {
    fn lease_of(&self, task: u64) -> (SessionId, LeaseId, Lease) {
        let of_task = self.sent.iter().rev().find(|(_, lease)| lease.task.id.0 == task);
        let (session, lease) = of_task.expect("it was sent").clone();
        (session, lease.lease, lease)
    }

    fn says(&mut self, task: u64, output: TaskOutput) {
        let (session, lease, _) = self.lease_of(task);
        self.on(Event::Done { session, lease, output });
    }
}

#[test]
fn a_group_is_resolved_when_all_its_rows_are_exchanged_and_from_accepted_attempts_alone() {
    let mut bench = group_bench();
    bench.on(Event::TasksEnded);
    bench.says(1, exchanged(1, 0, &[0, 9, 9]));
    assert_eq!(bench.sent.len(), 3, "the other half is not there");
    // The worker of the other half is lost when its file is written, and so is the plain task.
    bench.lose(SessionId(1));
    bench.pass(4);
    bench.join(2, 10);
    bench.says(0, exchanged(0, 1, &[9, 63]));
    let ids: BTreeSet<u64> = bench.sent[5..].iter().map(|(_, lease)| lease.task.id.0).collect();
    assert_eq!(ids, BTreeSet::from([2, 11, 65]), "a task for each bucket that has rows");
    let (.., lease) = bench.lease_of(11);
    assert_eq!((lease.task.differences.len(), lease.task.resolution), (0, Resolution::Updates));
    let Work::Resolve(ResolveWork { bucket: 9, files }) = &lease.task.work else { panic!("{:?}", lease.task.work) };
    let blocks: Vec<_> = files.iter().map(|file| (file.location.clone(), file.blocks.len())).collect();
    assert_eq!(blocks, [(staged(0, 1), 1), (staged(1, 0), 2)], "in the order of the tasks, not of their answers");

    bench.says(66, output(66, 1));
    bench.says(11, resolved(11, 0, 30));
    bench.says(65, resolved(65, 0, 10));
    assert!(bench.finished.is_none(), "a bucket is missing");
    bench.says(2, resolved(2, 0, 10));
    let finished = bench.finished.expect("all is done");
    let staged_files: Vec<_> = finished.outputs.iter().flat_map(|output| &output.files).collect();
    assert_eq!(staged_files.len(), 4);
    assert_eq!((finished.rows.read, finished.rows.inserted), (60, 13), "rows are counted once");
    // The files are of no use any more.
    assert_eq!(finished.left_behind.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&staged(0, 1), &staged(1, 0)]));
}

#[test]
fn exchanged_rows_of_an_epoch_that_fails_are_named_for_removal() {
    let mut bench = group_bench();
    bench.says(1, exchanged(1, 0, &[3]));
    let (session, lease, _) = bench.lease_of(0);
    bench.fails(session, lease, Class::Corrupt);
    assert_eq!(bench.failed.expect("it failed").left_behind, [staged(1, 0)]);
}

#[test]
fn a_late_exchange_is_refused_and_its_file_removed() {
    let mut bench = group_bench();
    bench.on(Event::TasksEnded);
    let (session, lease, _) = bench.lease_of(0);
    bench.pass(11);
    bench.on(Event::Done { session, lease, output: exchanged(0, 0, &[1]) });
    assert!(bench.notes.iter().any(|note| matches!(note, Note::LateAnswer { files: 1, .. })), "{:?}", bench.notes);
    assert_eq!(bench.decider.epoch.as_ref().expect("an epoch").left_behind, [staged(0, 0)]);
}

#[test]
fn an_exchange_that_loses_rows_or_is_something_else_breaks_the_epoch() {
    let mut short = exchanged(0, 0, &[1, 2]);
    short.rows.read = 21;
    let mut outside = exchanged(0, 0, &[1]);
    outside.exchanged.as_mut().expect("a file").location = "/elsewhere/0".into();
    let none = TaskOutput { exchanged: None, ..exchanged(0, 0, &[1]) };
    let staging = TaskOutput { files: output(0, 0).files, ..exchanged(0, 0, &[1]) };
    for (wrong, words) in [
        (short, "exchanged 20 of 21 rows"),
        (outside, "not in the staging folder"),
        (none, "exchanged 0 of 10 rows"),
        (staging, "staged files for the target"),
    ] {
        let mut bench = group_bench();
        bench.says(0, wrong);
        let error = bench.failed.expect("it failed").error.to_string();
        assert!(error.contains(words), "{error}");
    }
    // One that resolves has to have read all rows: an older worker would find nothing to do.
    let mut bench = group_bench();
    bench.says(0, exchanged(0, 0, &[1, 1]));
    bench.says(1, exchanged(1, 0, &[1]));
    bench.says(3, TaskOutput { files: vec![], ..resolved(3, 0, 0) });
    let error = bench.failed.expect("it failed").error.to_string();
    assert!(error.contains("resolved 0 of 30 rows"), "{error}");
    let mut bench = group_bench();
    bench.says(66, TaskOutput { task: TaskId(66), ..exchanged(66, 0, &[1]) });
    assert!(bench.failed.expect("it failed").error.to_string().contains("that were to be staged"));
}

#[test]
fn a_group_of_which_a_task_was_never_planned_is_a_bug() {
    let mut bench = Bench::new(0);
    bench.finished = None;
    bench.on(Event::EpochBegun { epoch: EpochId(1), staging_folder: FOLDER.into() });
    bench.on(Event::TaskArrived(exchanging(0, 2, 2)));
    bench.on(Event::TasksEnded);
    bench.join(1, 1);
    bench.says(0, exchanged(0, 0, &[1]));
    let failed = bench.failed.expect("it failed");
    assert_eq!((failed.error.class(), failed.left_behind), (Class::Bug, vec![staged(0, 0)]));
}

#[test]
fn a_group_without_rows_is_done_when_its_tasks_are() {
    let mut bench = group_bench();
    bench.on(Event::TasksEnded);
    for task in [0, 1] {
        bench.says(task, TaskOutput { exchanged: None, rows: RowCounts::default(), ..exchanged(task, 0, &[]) });
    }
    bench.says(66, output(66, 0));
    assert_eq!(bench.finished.expect("all is done").outputs.len(), 3);
}

#[test]
fn scans_are_not_copied_for_another_try() {
    let mut bench = Bench::new(1);
    bench.join(1, 1);
    bench.lose(SessionId(1));
    bench.join(2, 1);
    bench.pass(2);
    assert!(Arc::ptr_eq(&bench.sent[0].1.task, &bench.sent[1].1.task));
}
