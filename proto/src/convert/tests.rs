//! Every message there and back through its bytes, and every way in which a message can be wrong.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use iceberg::spec::{ListType, Literal, NestedField, PrimitiveType, Schema, StructType, Type};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::filter::{Filter, TableFilter};
use iceferry_common::model::*;
use iceferry_common::storage::StorageProperties;
use prost::Message;

use super::*;
use crate::message::{FromWorker, Lease, Progress, Register, ToWorker, Welcome};
use crate::{MESSAGE_BYTES_MAX, wire};

fn schema() -> Schema {
    let address = StructType::new(vec![
        Arc::new(NestedField::optional(5, "street", Type::Primitive(PrimitiveType::String)).with_doc("a street")),
        Arc::new(NestedField::required(
            6,
            "number",
            Type::Primitive(PrimitiveType::Decimal { precision: 9, scale: 2 }),
        )),
    ]);
    let tags = ListType::new(Arc::new(NestedField::list_element(8, Type::Primitive(PrimitiveType::Uuid), true)));
    let id =
        NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long)).with_initial_default(Literal::long(7));
    let fields = vec![
        Arc::new(id.with_write_default(Literal::long(-8))),
        Arc::new(NestedField::optional(4, "address", Type::Struct(address))),
        Arc::new(NestedField::optional(7, "tags", Type::List(tags))),
        Arc::new(NestedField::optional(9, "at", Type::Primitive(PrimitiveType::TimestamptzNs))),
    ];
    Schema::builder().with_schema_id(3).with_fields(fields).with_identifier_field_ids([1]).build().unwrap()
}

fn context() -> EpochContext {
    let storage = StorageProperties(BTreeMap::from([("s3.secret-access-key".into(), "hunter2".into())]));
    EpochContext {
        job: "orders".parse().unwrap(),
        run: RunId::new(),
        epoch: EpochId(5),
        changelog: None,
        source: SourceContext {
            table: "sales.orders".into(),
            read_schema: Arc::new(schema()),
            equality_schema: Arc::new(schema()),
            name_mapping: Some("[]".into()),
            filter: Some(TableFilter::new(Filter::parse("address.street = 'hunter2'").unwrap(), &schema()).unwrap()),
            storage: storage.clone(),
        },
        target: TargetContext {
            table: "lake.orders".into(),
            write_schema: Arc::new(schema()),
            key: vec![1],
            mode: TargetMode::MergeOnRead,
            data_location: "/lake/orders/data".into(),
            format_version: 2,
            last_column_id: 9,
            name_mapping: None,
            parquet: ParquetSettings {
                compression_codec: "zstd".into(),
                compression_level: Some(-3),
                row_group_bytes: 1 << 40,
                page_bytes: 1 << 20,
                dictionary_bytes: 2 << 20,
                metrics_default: MetricsMode::Truncate(16),
                metrics_columns: HashMap::from([
                    ("id".into(), MetricsMode::Full),
                    ("address.street".into(), MetricsMode::None),
                    ("tags".into(), MetricsMode::Counts),
                ]),
            },
            target_file_bytes: 512 << 20,
            storage,
        },
    }
}

fn changelog(identity: Identity, duplicate_keys: DuplicateKeys) -> Changelog {
    let commit =
        SourceCommit { snapshot_id: SnapshotId(-9), sequence_number: 1 << 40, timestamp_ms: 5, change_ordinal: 7 };
    let field = NestedField::optional(1000, "region", Type::Primitive(PrimitiveType::String));
    Changelog {
        commit,
        metadata_columns: MetadataColumn::ALL.to_vec(),
        partition_type: StructType::new(vec![Arc::new(field)]),
        identity,
        duplicate_keys,
        compared_schema: (duplicate_keys == DuplicateKeys::Fail).then(|| Arc::new(schema())),
        columns: vec![ColumnSource::Read(3), ColumnSource::Metadata(9), ColumnSource::ChangeType],
    }
}

fn task() -> ScanTask {
    let delete = |location: &str, format, kind| DeleteFile {
        location: location.into(),
        format,
        size_bytes: 10,
        record_count: 2,
        kind,
    };
    let file = |location: &str, format| DataFile {
        location: location.into(),
        format,
        size_bytes: 100,
        record_count: 20,
        constants: vec![
            Constant { field_id: 1, value: None },
            Constant { field_id: 5, value: Some(vec![]) },
            Constant { field_id: 6, value: Some(vec![0, 255]) },
        ],
        sequence_number: 1 << 40,
        first_row_id: (format == FileFormat::Parquet).then_some(1 << 41),
        spec_id: 3,
        partition: vec![Constant { field_id: 1000, value: Some(vec![7]) }],
    };
    ScanTask {
        id: TaskId(u64::MAX),
        differences: vec![
            FileDifference {
                file: file("file:/a b/1.parquet", FileFormat::Parquet),
                split: Some(Split { start: 4, end: 60 }),
                before: Side::Absent,
                after: Side::Present(vec![0, 2]),
                commit: None,
            },
            FileDifference {
                file: file("s3://b/2.orc", FileFormat::Orc),
                split: None,
                before: Side::Present(vec![1]),
                after: Side::Absent,
                commit: Some(SourceCommit {
                    snapshot_id: SnapshotId(-3),
                    sequence_number: 1 << 41,
                    timestamp_ms: 6,
                    change_ordinal: 2,
                }),
            },
            FileDifference {
                file: file("s3://b/3.avro", FileFormat::Avro),
                split: None,
                before: Side::Present(vec![]),
                after: Side::Present(vec![1, 2]),
                commit: None,
            },
        ],
        deletes: vec![
            delete("/d/0.parquet", FileFormat::Parquet, DeleteKind::Position),
            delete("/d/1.puffin", FileFormat::Puffin, DeleteKind::Vector { offset: 4, length: 40 }),
            delete("/d/2.avro", FileFormat::Avro, DeleteKind::Equality { field_ids: vec![1, 6] }),
        ],
        resolution: Resolution::CarryOver,
        work: Work::Stage,
    }
}

fn rows() -> RowCounts {
    RowCounts {
        read: 1,
        inserted: 2,
        deleted: 3,
        updated: 7,
        carried_over: 4,
        bytes_read: 5,
        bytes_written: 6,
        files_copied: 8,
        files_spliced: 9,
        files_decoded: 10,
    }
}

fn output() -> TaskOutput {
    let file = |location: &str, content| StagedFile {
        location: location.into(),
        content,
        record_count: 9,
        size_bytes: 90,
        data_file: "{\"content\":0}".into(),
    };
    TaskOutput {
        task: TaskId(3),
        attempt: Attempt(2),
        files: vec![
            file("/t/1", StagedContent::Data),
            file("/t/2", StagedContent::EqualityDeletes),
            StagedFile { data_file: Default::default(), ..file("/t/3", StagedContent::Digest) },
            StagedFile { data_file: Default::default(), ..file("/t/4", StagedContent::RowHashes) },
            StagedFile { data_file: Default::default(), ..file("/t/5", StagedContent::ShownRows) },
        ],
        exchanged: None,
        rows: rows(),
    }
}

fn exchanged(location: &str, buckets: &[u32]) -> ExchangeFile {
    let block = |bucket: &u32| ExchangeBlock {
        bucket: *bucket,
        side: if bucket.is_multiple_of(2) { ExchangeSide::Went } else { ExchangeSide::Came },
        offset: 1 << 40,
        length: 7,
        rows: 8,
        memory_bytes: 9,
        hash_min: 10,
        hash_max: u64::MAX,
    };
    ExchangeFile { location: location.into(), blocks: buckets.iter().map(block).collect() }
}

fn from_worker() -> Vec<FromWorker> {
    let mut all = vec![
        FromWorker::Register(Register {
            worker: WorkerId("w1".into()),
            slots: 4,
            memory_bytes: 1 << 33,
            version: "0.1.0".into(),
        }),
        FromWorker::Heartbeat(vec![]),
        FromWorker::Heartbeat(vec![Progress { lease: LeaseId(0), rows: rows() }]),
        FromWorker::Done { lease: LeaseId(8), output: output() },
        FromWorker::Done { lease: LeaseId(8), output: TaskOutput { files: vec![], ..output() } },
        FromWorker::Done {
            lease: LeaseId(8),
            output: TaskOutput { files: vec![], exchanged: Some(exchanged("/t/3", &[0, 1, 63])), ..output() },
        },
        FromWorker::GiveBack(vec![]),
        FromWorker::GiveBack(vec![LeaseId(0), LeaseId(u64::MAX)]),
    ];
    all.extend(Class::ALL.map(|class| FromWorker::Failed {
        lease: LeaseId(1),
        class,
        message: "read s3://b/2.orc".into(),
        left_behind: vec!["/t/1".into()],
    }));
    all
}

fn to_worker() -> Vec<ToWorker> {
    let append = EpochContext {
        source: SourceContext { name_mapping: None, filter: None, ..context().source },
        target: TargetContext {
            mode: TargetMode::Append,
            key: vec![],
            parquet: ParquetSettings { compression_level: None, ..context().target.parquet },
            ..context().target
        },
        changelog: Some(changelog(Identity::Columns(vec![1, 4]), DuplicateKeys::Fail)),
        ..context()
    };
    let plain = ScanTask { resolution: Resolution::Keep, ..task() };
    let digest = |bucket_bits| ScanTask { work: Work::Digest(DigestWork { key: vec![0, 3], bucket_bits }), ..task() };
    let show = ShowWork { rows: vec![vec![], vec![7, 1 << 40], vec![0]] };
    let exchange = ExchangeWork { tasks: 3, first_resolve: TaskId(1 << 40), hash_version: 1 };
    let files = vec![exchanged("/t/3", &[5]), exchanged("/t/4", &[5, 5])];
    let resolve = Work::Resolve(ResolveWork { bucket: 5, files });
    let resolve = ScanTask { differences: vec![], work: resolve, ..task() };
    let column =
        ColumnMetrics { field_id: 4, nan_count: Some(0), lower_bound: Some(vec![]), ..ColumnMetrics::default() };
    let mut metrics = vec![Vec::new(); task().differences.len()];
    metrics[0] = vec![column];
    let copy = Work::Copy(CopyWork { metrics, dead_percent_max: 30 });
    let constants = vec![vec![Constant { field_id: 3, value: None }]; task().deletes.len()];
    let pass = Work::PassDeletes(PassDeletesWork { constants });
    let pass = ScanTask { differences: vec![], work: pass, ..task() };
    let lease = |task| Lease { lease: LeaseId(9), epoch: EpochId(5), attempt: Attempt(1), task: Arc::new(task) };
    vec![
        ToWorker::Welcome(Welcome { coordinator: "c".into(), heartbeat_ms: 1, lease_timeout_ms: 30_000 }),
        ToWorker::Context(Arc::new(context())),
        ToWorker::Context(Arc::new(append)),
        ToWorker::Lease(lease(task())),
        ToWorker::Lease(lease(plain)),
        ToWorker::Lease(lease(digest(1))),
        ToWorker::Lease(lease(digest(DigestWork::BUCKET_BITS_MAX))),
        ToWorker::Lease(lease(ScanTask { work: Work::Show(show), ..task() })),
        ToWorker::Lease(lease(ScanTask { work: Work::Exchange(exchange), ..task() })),
        ToWorker::Lease(lease(resolve)),
        ToWorker::Lease(lease(ScanTask { work: copy, ..task() })),
        ToWorker::Lease(lease(pass)),
        ToWorker::Revoke(LeaseId(9)),
        ToWorker::Drain,
    ]
}

#[test]
fn every_message_of_a_worker_comes_back_as_it_was() {
    for message in from_worker() {
        let bytes = write_worker_message(&message).unwrap().encode_to_vec();
        let back = read_worker_message(wire::WorkerMessage::decode(bytes.as_slice()).unwrap()).unwrap();
        assert_eq!(back, message);
    }
}

#[test]
fn every_message_of_a_coordinator_comes_back_as_it_was() {
    for message in to_worker() {
        let bytes = write_coordinator_message(&message).unwrap().encode_to_vec();
        let back = read_coordinator_message(wire::CoordinatorMessage::decode(bytes.as_slice()).unwrap()).unwrap();
        assert_eq!(back, message);
    }
}

/// Bytes as the first version wrote them: field numbers never change their meaning.
#[test]
fn old_bytes_still_parse() {
    let done = [
        0x1a, 0x18, 0x08, 0x08, 0x12, 0x14, 0x08, 0x03, 0x10, 0x02, 0x1a, 0x0c, 0x0a, 0x01, b'f', 0x10, 0x02, 0x18,
        0x09, 0x20, 0x5a, 0x2a, 0x01, b'j', 0x22, 0x00,
    ];
    let got = read_worker_message(wire::WorkerMessage::decode(done.as_slice()).unwrap()).unwrap();
    let file = StagedFile {
        location: "f".into(),
        content: StagedContent::EqualityDeletes,
        record_count: 9,
        size_bytes: 90,
        data_file: "j".into(),
    };
    let output = TaskOutput {
        task: TaskId(3),
        attempt: Attempt(2),
        files: vec![file],
        exchanged: None,
        rows: RowCounts::default(),
    };
    assert_eq!(got, FromWorker::Done { lease: LeaseId(8), output });
}

#[test]
fn an_unknown_class_is_tried_again_and_keeps_its_words() {
    let failed = wire::TaskFailed { class: "sunspots".into(), message: "hot".into(), ..Default::default() };
    let kind = Some(wire::worker_message::Kind::Failed(failed));
    match read_worker_message(wire::WorkerMessage { kind }).unwrap() {
        FromWorker::Failed { class: Class::Transient, message, .. } => {
            assert!(message.contains("hot") && message.contains("sunspots"), "{message}");
        }
        other => unreachable!("{other:?}"),
    }
}

/// What is done to a good message, and the words that the error has to hold.
type Case<T> = (&'static str, fn(&mut T));

fn refuses<W: Clone, M: TryFrom<W, Error = ConvertError> + std::fmt::Debug>(good: &W, cases: &[Case<W>]) {
    assert!(M::try_from(good.clone()).is_ok());
    for (words, break_it) in cases {
        let mut bad = good.clone();
        break_it(&mut bad);
        let error = M::try_from(bad).expect_err(words);
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        let text = error.to_string();
        assert!(words.split(' ').all(|word| text.contains(word)), "wanted {words:?}, got {text:?}");
    }
}

#[test]
fn exchanged_rows_that_do_not_hold_together_are_refused() {
    refuses::<wire::ExchangeFile, ExchangeFile>(
        &(&exchanged("/t/3", &[0, 63])).into(),
        &[
            ("ExchangeFile location", |file| file.location.clear()),
            ("ExchangeBlock bucket 64", |file| file.blocks[0].bucket = 64),
            ("ExchangeBlock side", |file| file.blocks[1].side = 0),
            ("ExchangeBlock side 9", |file| file.blocks[1].side = 9),
            ("ExchangeBlock length", |file| file.blocks[0].length = u64::MAX),
        ],
    );
    let resolve = |bucket, files| Some(wire::scan_task::Work::Resolve(wire::ResolveWork { bucket, files }));
    let other = wire::ScanTask { work: resolve(4, vec![(&exchanged("/t/3", &[5])).into()]), ..(&task()).into() };
    let error = ScanTask::try_from(wire::ScanTask { differences: vec![], ..other }).expect_err("another bucket");
    assert!(error.to_string().contains("bucket 5 is named for bucket 4"), "{error}");
    let both = wire::ScanTask { work: resolve(4, vec![]), ..(&task()).into() };
    let error = ScanTask::try_from(both).expect_err("files to read and rows to resolve");
    assert!(error.to_string().contains("3 file differences"), "{error}");
}

#[test]
fn a_task_that_does_not_hold_together_is_refused() {
    use wire::delete_file::Kind;
    refuses::<wire::ScanTask, ScanTask>(
        &(&task()).into(),
        &[
            ("Side deletes 3", |task| task.differences[0].after.as_mut().unwrap().deletes.push(3)),
            ("Side deletes", |task| task.differences[1].before.as_mut().unwrap().deletes.push(u32::MAX)),
            ("Side deletes", |task| drop(task.deletes.pop())),
            ("FileDifference before", |task| task.differences[0].after = None),
            ("FileDifference file", |task| task.differences[0].file = None),
            ("Split end", |task| task.differences[0].split.as_mut().unwrap().end = 3),
            ("DataFile location", |task| task.differences[0].file.as_mut().unwrap().location.clear()),
            ("DataFile format", |task| task.differences[0].file.as_mut().unwrap().format = 0),
            ("DataFile unknown format 99", |task| task.differences[0].file.as_mut().unwrap().format = 99),
            ("DeleteFile kind", |task| task.deletes[0].kind = None),
            ("DeleteFile location", |task| task.deletes[0].location.clear()),
            ("DeleteFile unknown format", |task| task.deletes[0].format = -1),
            ("EqualityDeletes field_ids", |task| {
                task.deletes[0].kind = Some(Kind::Equality(wire::EqualityDeletes { field_ids: vec![] }));
            }),
        ],
    );
}

#[test]
fn an_output_that_does_not_hold_together_is_refused() {
    refuses::<wire::TaskOutput, TaskOutput>(
        &(&output()).into(),
        &[
            ("TaskOutput rows", |output| output.rows = None),
            ("StagedFile location", |output| output.files[1].location.clear()),
            ("StagedFile data_file", |output| output.files[0].data_file.clear()),
            ("StagedFile content", |output| output.files[0].content = 0),
            ("StagedFile unknown content 7", |output| output.files[0].content = 7),
        ],
    );
}

#[test]
fn a_context_that_does_not_hold_together_is_refused() {
    fn source(context: &mut wire::EpochContext) -> &mut wire::SourceContext {
        context.source.as_mut().unwrap()
    }
    fn target(context: &mut wire::EpochContext) -> &mut wire::TargetContext {
        context.target.as_mut().unwrap()
    }
    fn parquet(context: &mut wire::EpochContext) -> &mut wire::ParquetSettings {
        target(context).parquet.as_mut().unwrap()
    }
    refuses::<wire::EpochContext, EpochContext>(
        &(&context()).try_into().unwrap(),
        &[
            ("EpochContext job", |it| it.job.clear()),
            ("EpochContext wrong job", |it| it.job = "../x".into()),
            ("EpochContext run", |it| it.run.clear()),
            ("EpochContext wrong run", |it| it.run = "a/b".into()),
            ("EpochContext source", |it| it.source = None),
            ("EpochContext target", |it| it.target = None),
            ("SourceContext table", |it| source(it).table.clear()),
            ("SourceContext read_schema", |it| source(it).read_schema.clear()),
            ("SourceContext equality_schema JSON", |it| source(it).equality_schema = "{".into()),
            ("TargetContext table", |it| target(it).table.clear()),
            ("TargetContext write_schema JSON", |it| target(it).write_schema = "[]".into()),
            ("TargetContext key 77", |it| target(it).key.push(77)),
            ("TargetContext mode", |it| target(it).mode = 0),
            ("TargetContext unknown mode 3", |it| target(it).mode = 3),
            ("TargetContext data_location", |it| target(it).data_location.clear()),
            ("TargetContext format_version 0", |it| target(it).format_version = 0),
            ("TargetContext format_version 258", |it| target(it).format_version = 258),
            ("TargetContext parquet", |it| target(it).parquet = None),
            ("ParquetSettings compression_codec", |it| parquet(it).compression_codec.clear()),
            ("ParquetSettings metrics_default", |it| parquet(it).metrics_default = None),
            ("MetricsMode kind", |it| parquet(it).metrics_default.as_mut().unwrap().kind = 0),
            ("MetricsMode unknown kind 9", |it| parquet(it).metrics_columns.get_mut("id").unwrap().kind = 9),
            ("MetricsMode length", |it| parquet(it).metrics_default.as_mut().unwrap().length = 0),
        ],
    );
}

#[test]
fn an_envelope_that_does_not_hold_together_is_refused() {
    use wire::{coordinator_message, worker_message};
    let worker: Vec<(&str, Option<LeaseId>, Option<worker_message::Kind>)> = vec![
        ("WorkerMessage kind", None, None),
        (
            "Register slots",
            None,
            Some(worker_message::Kind::Register(wire::Register { worker_id: "w".into(), ..Default::default() })),
        ),
        (
            "Register worker_id",
            None,
            Some(worker_message::Kind::Register(wire::Register { slots: 1, ..Default::default() })),
        ),
        (
            "Progress rows",
            None,
            Some(worker_message::Kind::Heartbeat(wire::Heartbeat { progress: vec![wire::Progress::default()] })),
        ),
        (
            "TaskDone output",
            Some(LeaseId(4)),
            Some(worker_message::Kind::Done(wire::TaskDone { lease: 4, output: None })),
        ),
    ];
    for (words, lease, kind) in worker {
        let error = read_worker_message(wire::WorkerMessage { kind }).expect_err(words);
        assert_eq!((error.lease, error.class()), (lease, Class::Corrupt));
        assert!(words.split(' ').all(|word| error.source.to_string().contains(word)), "{words}: {}", error.source);
    }
    type Coordinator = (&'static str, Option<LeaseId>, Option<EpochId>, Option<coordinator_message::Kind>);
    let coordinator: Vec<Coordinator> = vec![
        ("CoordinatorMessage kind", None, None, None),
        (
            "Welcome heartbeat_ms",
            None,
            None,
            Some(coordinator_message::Kind::Welcome(wire::Welcome { lease_timeout_ms: 1, ..Default::default() })),
        ),
        (
            "Welcome lease_timeout_ms",
            None,
            None,
            Some(coordinator_message::Kind::Welcome(wire::Welcome { heartbeat_ms: 1, ..Default::default() })),
        ),
        (
            "Lease task",
            Some(LeaseId(6)),
            None,
            Some(coordinator_message::Kind::Lease(wire::Lease { lease: 6, ..Default::default() })),
        ),
        (
            "EpochContext job",
            None,
            Some(EpochId(2)),
            Some(coordinator_message::Kind::Context(wire::EpochContext { epoch: 2, ..Default::default() })),
        ),
    ];
    for (words, lease, context_of, kind) in coordinator {
        let error = read_coordinator_message(wire::CoordinatorMessage { kind }).expect_err(words);
        assert_eq!((error.lease, error.context_of, error.class()), (lease, context_of, Class::Corrupt));
        assert!(words.split(' ').all(|word| error.source.to_string().contains(word)), "{words}: {}", error.source);
    }
}

#[test]
fn a_message_too_large_for_the_other_side_is_not_sent() {
    let failed = FromWorker::Failed {
        lease: LeaseId(0),
        class: Class::Bug,
        message: "x".repeat(MESSAGE_BYTES_MAX),
        left_behind: vec![],
    };
    let error = write_worker_message(&failed).unwrap_err();
    assert_eq!(error.class(), Class::Exhausted);
    assert!(error.to_string().contains("TaskFailed"), "{error}");
}

#[test]
fn a_default_that_json_loses_is_not_sent() {
    // The crate reads a default that does not fit its type as none at all.
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long))
        .with_initial_default(Literal::string("seven"));
    let odd = Schema::builder().with_fields([Arc::new(id)]).build().unwrap();
    let mut context = context();
    context.source.read_schema = Arc::new(odd);
    let sent = std::panic::catch_unwind(|| wire::EpochContext::try_from(&context));
    // The crate may also panic on it; what may not happen is that it goes out.
    assert!(!matches!(sent, Ok(Ok(_))));
}

#[test]
fn printing_a_wire_context_shows_no_secret() {
    let message = write_coordinator_message(&ToWorker::Context(Arc::new(context()))).unwrap();
    let text = format!("{message:?}");
    assert!(text.contains("sales.orders") && !text.contains("hunter2"), "{text}");
}
