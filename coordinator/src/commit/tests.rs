//! Commits against a catalog whose answers can be lost, late or wrong.

use std::collections::HashMap;

use iceberg::TableUpdate;
use iceberg::spec::{
    DataContentType, FormatVersion, ManifestListWriter, ManifestWriterBuilder, NestedField, Operation, PrimitiveType,
    Snapshot, SnapshotReference, SnapshotRetention, Summary, Type,
};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{EpochId, Fence, RunId, SnapshotId, StagedContent, staging_folder};
use proptest::prelude::*;

use super::testing::{Answer, POLICY, TestCatalog, data_file, epoch_commit, job, schema, staged_file};
use super::*;
use crate::catalog::Catalog;

const VERSIONS: [FormatVersion; 2] = [FormatVersion::V2, FormatVersion::V3];

fn run(name: &str) -> RunId {
    RunId(name.to_owned())
}

/// Commits an epoch with one data and one delete file.
async fn commit(
    catalog: &TestCatalog,
    run: &RunId,
    epoch: u64,
    after: Option<i64>,
    through: i64,
) -> Result<Committed, CommitError> {
    let staged = catalog.stage(run, epoch, 1, 1).await;
    let commit = epoch_commit(&catalog.now(), run, epoch, after, through, staged);
    commit_epoch(catalog, catalog.now(), &commit, &POLICY).await
}

#[tokio::test]
async fn an_epoch_becomes_one_snapshot_with_its_checkpoint_and_totals() {
    for version in VERSIONS {
        let catalog = TestCatalog::new(version);
        let run = run("r1");
        for (epoch, data, deletes, operation) in
            [(0, 2, 0, Operation::Append), (1, 0, 1, Operation::Delete), (2, 1, 2, Operation::Overwrite)]
        {
            let staged = catalog.stage(&run, epoch, data, deletes).await;
            let (after, through) = ((epoch > 0).then_some(epoch as i64), epoch as i64 + 1);
            let commit = epoch_commit(&catalog.now(), &run, epoch, after, through, staged);
            let done = commit_epoch(&catalog, catalog.now(), &commit, &POLICY).await.unwrap();
            assert!(done.ours && !done.already_there);
            let main = done.table.metadata.current_snapshot().unwrap();
            assert_eq!(done.snapshot_id, Some(SnapshotId(main.snapshot_id())));
            assert_eq!(main.summary().operation, operation);
            assert_eq!(find_checkpoint(&done.table.metadata, &job()).unwrap().unwrap().source_snapshot_id.0, through);
        }
        let table = catalog.now();
        let entries = &table.metadata.current_snapshot().unwrap().summary().additional_properties;
        for (key, value) in [
            ("added-data-files", "1"),
            ("added-records", "10"),
            ("added-delete-files", "2"),
            ("added-equality-delete-files", "2"),
            ("added-equality-deletes", "21"),
            ("added-files-size", "300"),
            ("changed-partition-count", "1"),
            ("total-data-files", "3"),
            ("total-delete-files", "3"),
            ("total-records", "31"),
            ("total-files-size", "600"),
            ("total-position-deletes", "0"),
            ("total-equality-deletes", "31"),
            ("iceferry.job", "orders"),
            ("iceferry.run", "r1"),
            ("iceferry.epoch", "2"),
            ("iceferry.source-snapshot-id", "3"),
        ] {
            assert_eq!(entries.get(key).map(String::as_str), Some(value), "{key} of {version}");
        }
        if version == FormatVersion::V3 {
            assert_eq!(table.metadata.next_row_id(), 31);
            assert_eq!(table.metadata.current_snapshot().unwrap().row_range(), Some((21, 10)));
        }
        assert!(catalog.unreferenced_metadata().await.is_empty());
        catalog.audit().await;
    }
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_looking() {
    for version in VERSIONS {
        for (answers, already_there) in [
            (vec![Answer::LostApplied], true),
            (vec![Answer::LostNotApplied], false),
            (vec![Answer::LostNotApplied, Answer::LostApplied], true),
            (vec![Answer::LostLate(1)], true),
            (vec![Answer::LostLate(2)], true),
            (vec![Answer::LostLate(3)], false),
            (vec![Answer::LostLate(3), Answer::LostNotApplied], true),
            (vec![Answer::LostAppliedAway(3)], true),
            (vec![Answer::LostNotApplied, Answer::ForeignFirst], false),
            (vec![Answer::LostLate(2), Answer::Refused], true),
            (vec![Answer::Lie], false),
            (vec![Answer::FalseConflict, Answer::LostApplied], true),
            (vec![Answer::LostNotApplied, Answer::FalseConflict], false),
        ] {
            let catalog = TestCatalog::new(version);
            let run = run("r1");
            commit(&catalog, &run, 0, None, 1).await.unwrap();
            catalog.script(answers.clone());
            let done = commit(&catalog, &run, 1, Some(1), 2).await.unwrap();
            assert_eq!(done.already_there, already_there, "{answers:?}");
            assert!(done.ours, "{answers:?}");
            catalog.land_late(true);
            let next = commit(&catalog, &run, 2, Some(2), 3).await.unwrap();
            assert!(!next.already_there);
            let (data, deletes) = catalog.live(&catalog.now().metadata).await;
            let ours = |files: &[String]| files.iter().filter(|file| file.contains("/r1/")).count();
            assert_eq!((ours(&data), ours(&deletes)), (3, 3), "{answers:?}");
            assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new(), "{answers:?}");
            catalog.audit().await;
        }
    }
}

#[tokio::test]
async fn a_commit_that_cannot_be_settled_is_unknown_and_keeps_every_file() {
    for (answers, is_there) in [
        (vec![Answer::LostAppliedAway(9)], true),
        (vec![Answer::LostNotApplied; 4], false),
        (vec![Answer::LostNotApplied, Answer::Refused, Answer::Refused, Answer::Refused], false),
    ] {
        let catalog = TestCatalog::new(FormatVersion::V2);
        let run = run("r1");
        catalog.script(answers.clone());
        let staged = catalog.stage(&run, 0, 1, 1).await;
        let epoch = epoch_commit(&catalog.now(), &run, 0, None, 1, staged.clone());
        let error = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap_err();
        assert_eq!(error.class(), Class::CommitUnknown, "{answers:?}: {error}");
        assert!(error.leaves_files_in_doubt());
        let avro = catalog.files("metadata/iceferry/orders/r1").await;
        assert_eq!(avro.iter().filter(|file| file.contains("-m")).count(), 2, "{avro:?}");
        assert!(avro.iter().any(|file| file.contains("snap-")), "{avro:?}");
        assert_eq!(catalog.files("data").await.len(), 2);

        // The same epoch delivered again looks first.
        while catalog.load_table(&catalog.now().ident).await.is_err() {}
        let done = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap();
        assert_eq!((done.already_there, done.ours), (is_there, true), "{answers:?}");
        catalog.audit().await;
    }
}

#[tokio::test]
async fn a_conflict_is_rebased_with_the_same_manifests() {
    for version in VERSIONS {
        let catalog = TestCatalog::new(version);
        let run = run("r1");
        catalog.script([Answer::ForeignFirst, Answer::ForeignFirst, Answer::FalseConflict]);
        let done = commit(&catalog, &run, 0, None, 1).await.unwrap();
        assert!(!done.already_there);
        assert_eq!(catalog.commits(), 4);
        let (data, _) = catalog.live(&done.table.metadata).await;
        assert_eq!(data.len(), 3);
        let avro = catalog.files("metadata/iceferry").await;
        assert_eq!(avro.len(), 3, "two manifests and one list are left: {avro:?}");
        catalog.audit().await;
    }
}

#[tokio::test]
async fn a_commit_that_is_certainly_not_there_leaves_no_metadata_files() {
    for (answers, class) in [
        (vec![Answer::Refused], Class::Denied),
        (vec![Answer::ForeignFirst, Answer::Refused], Class::Denied),
        (vec![Answer::LostNotApplied, Answer::ForeignFirst, Answer::Refused], Class::Denied),
        (vec![Answer::ForeignFirst; 4], Class::Conflict),
    ] {
        let catalog = TestCatalog::new(FormatVersion::V2);
        catalog.script(answers.clone());
        let error = commit(&catalog, &run("r1"), 0, None, 1).await.unwrap_err();
        assert_eq!(error.class(), class, "{answers:?}: {error}");
        assert!(!error.leaves_files_in_doubt());
        assert_eq!(catalog.files("metadata/iceferry").await, Vec::<String>::new(), "{answers:?}");
        catalog.forget_script();
        commit(&catalog, &run("r1"), 0, None, 1).await.unwrap();
        catalog.audit().await;
    }
}

#[tokio::test]
async fn an_epoch_without_rows_moves_the_checkpoint_alone() {
    let catalog = TestCatalog::new(FormatVersion::V3);
    let run = run("r1");
    let empty = |epoch, after, through| epoch_commit(&catalog.now(), &run, epoch, after, through, Vec::new());
    let done = commit_epoch(&catalog, catalog.now(), &empty(0, None, 1), &POLICY).await.unwrap();
    assert_eq!((done.snapshot_id, done.table.metadata.current_snapshot_id()), (None, None));
    let main = commit(&catalog, &run, 1, Some(1), 2).await.unwrap().snapshot_id;
    catalog.script([Answer::LostApplied]);
    let done = commit_epoch(&catalog, catalog.now(), &empty(2, Some(2), 3), &POLICY).await.unwrap();
    assert!(done.already_there && done.ours);
    assert_eq!(done.snapshot_id, main);
    let found = find_checkpoint(&catalog.now().metadata, &job()).unwrap().unwrap();
    assert_eq!((found.source_snapshot_id, found.target_snapshot_id), (SnapshotId(3), main));
    assert_eq!(catalog.now().metadata.snapshots().len(), 1);
    commit(&catalog, &run, 3, Some(3), 4).await.unwrap();
    catalog.audit().await;
}

#[tokio::test]
async fn an_epoch_delivered_twice_is_there_once() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let run = run("r1");
    let staged = catalog.stage(&run, 0, 1, 0).await;
    let epoch = epoch_commit(&catalog.now(), &run, 0, None, 1, staged);
    let first = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap();
    commit(&catalog, &run, 1, Some(1), 2).await.unwrap();
    let second = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap();
    assert!(second.already_there && second.ours);
    assert_eq!(first.snapshot_id, second.snapshot_id);
    assert_eq!(catalog.now().metadata.snapshots().len(), 2);
    catalog.audit().await;
}

#[tokio::test]
async fn changes_are_committed_only_to_the_state_they_start_from() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (one, two) = (run("r1"), run("r2"));
    let start = commit(&catalog, &one, 0, None, 1).await.unwrap().table;
    commit(&catalog, &one, 1, Some(1), 2).await.unwrap();

    // Another run that started from the same checkpoint and comes later with something else.
    let staged = catalog.stage(&two, 0, 1, 1).await;
    let late = epoch_commit(&start, &two, 0, Some(1), 3, staged.clone());
    let error = commit_epoch(&catalog, start.clone(), &late, &POLICY).await.unwrap_err();
    assert!(matches!(&error, CommitError::AnotherRun { run, .. } if *run == one), "{error}");
    // The very same state: it is there, by the other run; our files are not.
    let same = epoch_commit(&start, &two, 0, Some(1), 2, staged);
    let done = commit_epoch(&catalog, start.clone(), &same, &POLICY).await.unwrap();
    assert!(done.already_there && !done.ours);
    assert!(catalog.files("metadata/iceferry/orders/r2").await.is_empty());

    // A person rolls back in the middle of a run.
    catalog.roll_back_to(start.metadata.current_snapshot_id().unwrap());
    let error = commit(&catalog, &one, 2, Some(2), 3).await.unwrap_err();
    assert!(matches!(&error, CommitError::CheckpointMoved { found, .. } if found == "1"), "{error}");
    // An epoch that was there and was rolled back is not put back in silence.
    let error = commit(&catalog, &one, 1, Some(1), 2).await.unwrap_err();
    assert!(matches!(error, CommitError::RolledBack { .. }), "{error}");
    catalog.audit().await;
}

#[tokio::test]
async fn a_target_that_changed_under_the_staged_files_is_an_error_by_name() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let base = catalog.now();
    let staged = catalog.stage(&run("r1"), 0, 1, 0).await;
    let epoch = epoch_commit(&base, &run("r1"), 0, None, 1, staged);
    catalog.change(vec![TableUpdate::UpgradeFormatVersion { format_version: FormatVersion::V3 }]);
    let error = commit_epoch(&catalog, base, &epoch, &POLICY).await.unwrap_err();
    assert!(matches!(error, CommitError::TargetChanged { what: "format version", .. }), "{error}");
    assert!(catalog.files("metadata/iceferry").await.is_empty());
}

#[tokio::test]
async fn staged_files_that_break_a_promise_are_refused_before_anything_is_written() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let r1 = run("r1");
    let good = catalog.stage(&r1, 0, 1, 1).await;
    let twice = vec![good[0].clone(), good[0].clone()];
    let other_epoch = catalog.stage(&r1, 1, 1, 0).await;
    let other_run = catalog.stage(&run("r2"), 0, 1, 0).await;
    let mut other_content = good.clone();
    other_content[0].content = StagedContent::EqualityDeletes;
    let mut never_committed = good.clone();
    never_committed[0].content = StagedContent::RowHashes;
    let mut other_count = good.clone();
    other_count[0].record_count += 1;
    let mut other_file = good.clone();
    other_file[1].data_file = good[0].data_file.clone();
    let mut garbage = good.clone();
    garbage[1].data_file = "{}".into();
    let escape = format!("{}/000000-/../x", staging_folder(&data_location(&catalog.now().metadata), &job(), &r1));
    let escape = vec![staged_file(&escape, StagedContent::Data, 1)];
    let all = [twice, other_epoch, other_run, other_content, never_committed, other_count, other_file, garbage, escape];
    for staged in all {
        let epoch = epoch_commit(&catalog.now(), &r1, 0, None, 1, staged);
        let error = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap_err();
        assert!(matches!(error, CommitError::Staged { .. }), "{error}");
        assert_eq!((catalog.commits(), catalog.files("metadata/iceferry").await.len()), (0, 0), "{error}");
    }
}

#[tokio::test]
async fn manifests_are_cut_at_the_target_size() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let updates = HashMap::from([("commit.manifest.target-size-bytes".to_owned(), "1".to_owned())]);
    catalog.change(vec![TableUpdate::SetProperties { updates }]);
    let staged = catalog.stage(&run("r1"), 0, 3, 2).await;
    let epoch = epoch_commit(&catalog.now(), &run("r1"), 0, None, 1, staged);
    commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap();
    let avro = catalog.files("metadata/iceferry").await;
    assert_eq!(avro.iter().filter(|file| file.contains("-m")).count(), 5, "{avro:?}");
    catalog.audit().await;
}

#[tokio::test]
async fn a_table_upgraded_to_v3_gives_row_ids_to_all_its_rows() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let r1 = run("r1");
    catalog.foreign_append().await;
    commit(&catalog, &r1, 0, None, 1).await.unwrap();
    catalog.change(vec![TableUpdate::UpgradeFormatVersion { format_version: FormatVersion::V3 }]);
    let done = commit(&catalog, &r1, 1, Some(1), 2).await.unwrap();
    // 5 foreign rows and 10 of the first epoch had no ids before; 10 are new.
    assert_eq!(done.table.metadata.current_snapshot().unwrap().row_range(), Some((0, 25)));
    assert_eq!(done.table.metadata.next_row_id(), 25);
    let done = commit(&catalog, &r1, 2, Some(2), 3).await.unwrap();
    assert_eq!(done.table.metadata.current_snapshot().unwrap().row_range(), Some((25, 10)));
    let (data, _) = catalog.live(&done.table.metadata).await;
    assert_eq!(data.len(), 4);
}

#[tokio::test]
async fn a_table_upgraded_from_v1_keeps_its_files() {
    let catalog = TestCatalog::new(FormatVersion::V1);
    let table = catalog.now();
    let refused = commit(&catalog, &run("r1"), 0, None, 1).await.unwrap_err();
    assert_eq!(refused.class(), Class::Refused);

    let folder = metadata_location(&table.metadata);
    let io = catalog.storage.file_io();
    let spec = table.metadata.default_partition_spec().as_ref().clone();
    let manifest = io.new_output(format!("{folder}/old-m0.avro")).unwrap();
    let mut manifest =
        ManifestWriterBuilder::new(manifest, Some(1), table.metadata.current_schema().clone(), spec).build_v1();
    manifest.add_file(data_file("/old/file.parquet", DataContentType::Data, 4), 0).unwrap();
    let manifest = manifest.write_manifest_file().await.unwrap();
    let location = format!("{folder}/snap-old.avro");
    let mut list = ManifestListWriter::v1(io.new_output(&location).unwrap().writer().await.unwrap(), 1, None);
    list.add_manifests([manifest].into_iter()).unwrap();
    list.close().await.unwrap();
    let snapshot = Snapshot::builder()
        .with_snapshot_id(1)
        .with_sequence_number(0)
        .with_timestamp_ms(iceferry_common::clock::unix_ms())
        .with_manifest_list(location)
        .with_summary(Summary { operation: Operation::Append, additional_properties: HashMap::new() })
        .with_schema_id(0)
        .build();
    catalog.change(vec![TableUpdate::AddSnapshot { snapshot }]);
    catalog.roll_back_to(1);
    catalog.change(vec![TableUpdate::UpgradeFormatVersion { format_version: FormatVersion::V2 }]);

    let done = commit(&catalog, &run("r1"), 0, None, 1).await.unwrap();
    let (data, deletes) = catalog.live(&done.table.metadata).await;
    assert_eq!((data.len(), deletes.len()), (2, 1));
    // From here on old manifests are merged with new ones; files without row ids get them all the same.
    let updates = HashMap::from([("commit.manifest.min-count-to-merge".to_owned(), "2".to_owned())]);
    catalog.change(vec![TableUpdate::SetProperties { updates }]);
    // The old snapshot tells no totals, so ours has none: better none than wrong ones.
    let entries = &done.table.metadata.current_snapshot().unwrap().summary().additional_properties;
    assert!(!entries.contains_key("total-records") && entries.contains_key("added-records"));
    catalog.change(vec![TableUpdate::UpgradeFormatVersion { format_version: FormatVersion::V3 }]);
    let done = commit(&catalog, &run("r1"), 1, Some(1), 2).await.unwrap();
    assert_eq!(done.table.metadata.current_snapshot().unwrap().row_range(), Some((0, 24)));
}

#[tokio::test]
async fn settings_of_main_and_time_are_kept() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    commit(&catalog, &run("r1"), 0, None, 1).await.unwrap();
    let main = catalog.now().metadata.current_snapshot().unwrap().clone();
    let retention = SnapshotRetention::branch(Some(7), Some(8), None);
    let reference = SnapshotReference::new(main.snapshot_id(), retention);
    catalog.change(vec![TableUpdate::SetSnapshotRef { ref_name: "main".into(), reference }]);
    // Another writer's clock is far ahead.
    let ahead = Snapshot::builder()
        .with_snapshot_id(99)
        .with_parent_snapshot_id(Some(main.snapshot_id()))
        .with_sequence_number(2)
        .with_timestamp_ms(iceferry_common::clock::unix_ms() + 86_400_000)
        .with_manifest_list(main.manifest_list())
        .with_summary(main.summary().clone())
        .with_schema_id(0)
        .build();
    let ahead_ms = ahead.timestamp_ms();
    catalog.change(vec![TableUpdate::AddSnapshot { snapshot: ahead }]);
    let done = commit(&catalog, &run("r1"), 1, Some(1), 2).await.unwrap();
    let json = serde_json::to_value(done.table.metadata.as_ref()).unwrap();
    assert_eq!(json["refs"]["main"]["min-snapshots-to-keep"], 7);
    assert_eq!(json["refs"]["main"]["max-snapshot-age-ms"], 8);
    assert!(done.table.metadata.current_snapshot().unwrap().timestamp_ms() > ahead_ms);
}

#[tokio::test]
async fn a_run_that_was_taken_over_cannot_commit() {
    for version in VERSIONS {
        let catalog = TestCatalog::new(version);
        let (old, new) = (run("r1"), run("r2"));
        // On a table without any snapshot too.
        let (_, first) = take_over(&catalog, catalog.now(), &job(), &old, &POLICY).await.unwrap();
        assert_eq!(first, Fence(1));
        let base = catalog.now();
        let staged = catalog.stage(&old, 0, 1, 1).await;
        let mut epoch = epoch_commit(&base, &old, 0, None, 1, staged);
        epoch.fence = first;
        // The old run's request hangs somewhere; to the old run its fate is unknown.
        catalog.script([Answer::LostLate(99), Answer::LostNotApplied, Answer::LostNotApplied, Answer::LostNotApplied]);
        let error = commit_epoch(&catalog, base.clone(), &epoch, &POLICY).await.unwrap_err();
        assert_eq!(error.class(), Class::CommitUnknown);

        let (table, fence) = take_over(&catalog, base.clone(), &job(), &new, &POLICY).await.unwrap();
        assert_eq!(fence, Fence(2));
        assert_eq!(current_fence(&table.metadata, &job()).unwrap().unwrap().run, new);
        let versions = catalog.versions().len();
        catalog.land_late(true);
        assert_eq!(catalog.versions().len(), versions, "a request from before the take-over is refused");
        for table in [base, catalog.now()] {
            let error = commit_epoch(&catalog, table, &epoch, &POLICY).await.unwrap_err();
            assert!(matches!(error, CommitError::Fenced { found: Fence(2), .. }), "{error}");
            assert_eq!(error.class(), Class::Fenced);
        }
        let staged = catalog.stage(&new, 0, 1, 1).await;
        let mut epoch = epoch_commit(&table, &new, 0, None, 1, staged);
        epoch.fence = fence;
        commit_epoch(&catalog, table, &epoch, &POLICY).await.unwrap();
        catalog.audit().await;
    }
}

#[tokio::test]
async fn a_take_over_lands_once_whatever_the_answer() {
    for answers in [
        vec![Answer::LostApplied],
        vec![Answer::LostNotApplied],
        vec![Answer::LostLate(2)],
        vec![Answer::ForeignFirst],
        vec![Answer::LostNotApplied, Answer::ForeignFirst, Answer::LostApplied],
    ] {
        let catalog = TestCatalog::new(FormatVersion::V3);
        commit(&catalog, &run("r1"), 0, None, 1).await.unwrap();
        catalog.script(answers.clone());
        let (table, fence) = take_over(&catalog, catalog.now(), &job(), &run("r2"), &POLICY).await.unwrap();
        assert_eq!(fence, Fence(1), "{answers:?}");
        let marks = table.metadata.snapshots().filter(|snapshot| {
            snapshot.summary().additional_properties.get("iceferry.run").is_some_and(|run| run == "r2")
        });
        assert_eq!(marks.count(), 1, "{answers:?}");
        let found = find_checkpoint(&table.metadata, &job()).unwrap().unwrap();
        assert_eq!(found.source_snapshot_id, SnapshotId(1), "the checkpoint stays");
        let head = table.metadata.current_snapshot_id().map(SnapshotId);
        assert_eq!(
            (found.run, found.target_snapshot_id),
            (run("r1"), head),
            "and outlives the snapshot that brought it"
        );
        assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new(), "{answers:?}");
        catalog.audit().await;
    }
}

#[tokio::test]
async fn cleaning_up_removes_what_a_dead_run_left_and_nothing_else() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (dead, new) = (run("r1"), run("r2"));
    start_run(&catalog.now(), &job(), &dead).await.unwrap();
    commit(&catalog, &dead, 0, None, 1).await.unwrap();
    let kept = catalog.files("data").await;
    // Killed in the middle of the next epoch, with its commit on the way.
    catalog.script([Answer::LostLate(99)]);
    let staged = catalog.stage(&dead, 1, 2, 1).await;
    let epoch = epoch_commit(&catalog.now(), &dead, 1, Some(1), 2, staged);
    let _ =
        commit_epoch(&catalog, catalog.now(), &epoch, &CommitPolicy { attempts_max: 1, ..POLICY }).await.unwrap_err();
    catalog.forget_script();
    let others = catalog.stage(&run("r0"), 7, 1, 0).await;
    catalog.stage(&new, 0, 1, 0).await;

    start_run(&catalog.now(), &job(), &new).await.unwrap();
    let markers = unfinished_runs(&catalog.now(), &job(), &new).await.unwrap();
    assert_eq!(markers.iter().map(|marker| marker.run.clone()).collect::<Vec<_>>(), std::slice::from_ref(&dead));
    let early = clean_up(&catalog.now(), &job(), &markers[0], &new).await.unwrap_err();
    assert!(matches!(early, CommitError::NotTakenOver { .. }), "{early}");
    let (table, _) = take_over(&catalog, catalog.now(), &job(), &new, &POLICY).await.unwrap();
    let removed = clean_up(&table, &job(), &markers[0], &new).await.unwrap();
    // Three staged files, two manifests, one manifest list.
    assert_eq!(removed.files, 6);
    catalog.land_late(true);
    let mut left = catalog.files("data").await;
    left.retain(|file| !file.contains("/r2/") && !file.contains("/r0/"));
    assert_eq!(left, kept);
    assert_eq!(catalog.storage.size(&others[0].location).await.unwrap(), Some(4));
    assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new());
    end_run(&catalog.now(), &job(), &new).await.unwrap();
    catalog.audit().await;
}

#[tokio::test]
async fn what_a_run_stages_after_it_was_taken_over_goes_with_a_later_run() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (old, new, third) = (run("r1"), run("r2"), run("r3"));
    start_run(&catalog.now(), &job(), &old).await.unwrap();
    commit(&catalog, &old, 0, None, 1).await.unwrap();
    let kept = catalog.files("data").await;
    let marker = unfinished_runs(&catalog.now(), &job(), &new).await.unwrap().remove(0);
    let (table, fence) = take_over(&catalog, catalog.now(), &job(), &new, &POLICY).await.unwrap();
    assert_eq!(clean_up(&table, &job(), &marker, &new).await.unwrap(), Removed::default());
    // It lives on, stages, and is killed before it sees the fence.
    catalog.stage(&old, 1, 2, 1).await;
    let versions = catalog.versions().len();
    for removed in [3, 0] {
        let (table, markers) = (catalog.now(), unfinished_runs(&catalog.now(), &job(), &third).await.unwrap());
        assert_eq!(markers.len(), 1);
        let holder = current_fence(&table.metadata, &job()).unwrap().unwrap();
        assert_eq!((holder.fence, markers[0].is_fenced(Some(&holder))), (fence, true));
        assert!(!markers[0].is_fenced(None), "a table without the fence does not hold the old run back");
        assert_eq!(clean_up(&table, &job(), &markers[0], &third).await.unwrap().files, removed);
        assert_eq!(catalog.files("data").await, kept);
    }
    assert_eq!(catalog.versions().len(), versions, "nothing needs to be committed for it");
    // A day later nobody looks any more.
    let marker = unfinished_runs(&catalog.now(), &job(), &third).await.unwrap().remove(0);
    let taken_over = marker.taken_over.map(|then| TakenOver { since_ms: then.since_ms - 25 * 60 * 60 * 1000, ..then });
    clean_up(&catalog.now(), &job(), &RunMarker { taken_over, ..marker }, &third).await.unwrap();
    assert_eq!(unfinished_runs(&catalog.now(), &job(), &third).await.unwrap(), []);
    catalog.audit().await;
}

#[tokio::test]
async fn a_run_removes_files_of_its_own_lost_attempts() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let r1 = run("r1");
    let marker = start_run(&catalog.now(), &job(), &r1).await.unwrap();
    assert!(matches!(start_run(&catalog.now(), &job(), &r1).await, Err(CommitError::Marker { .. })));
    let staged = catalog.stage(&r1, 0, 3, 1).await;
    let epoch = epoch_commit(&catalog.now(), &r1, 0, None, 1, staged[1..].to_vec());
    let done = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await.unwrap();
    let removed = clean_up_own(&catalog, &done.table, &job(), &marker).await.unwrap();
    assert_eq!(removed, Removed { files: 1, bytes: 4 });
    assert_eq!(catalog.files("data").await.len(), 3);
    end_run(&done.table, &job(), &r1).await.unwrap();
    catalog.audit().await;
}

#[tokio::test]
async fn an_expired_checkpoint_is_trusted_only_where_older_metadata_shows_it_behind() {
    for is_rolled_back in [false, true] {
        let catalog = TestCatalog::new(FormatVersion::V2);
        commit(&catalog, &run("r1"), 0, None, 1).await.unwrap();
        let first = catalog.now().metadata.current_snapshot_id().unwrap();
        commit(&catalog, &run("r1"), 1, Some(1), 2).await.unwrap();
        if is_rolled_back {
            catalog.roll_back_to(first);
        }
        catalog.foreign_append().await;
        catalog.foreign_append().await;
        let now = catalog.now().metadata;
        let head = now.current_snapshot_id();
        let snapshot_ids = now.snapshots().map(|snapshot| snapshot.snapshot_id()).filter(|id| Some(*id) != head);
        catalog.change(vec![TableUpdate::RemoveSnapshots { snapshot_ids: snapshot_ids.collect() }]);
        // By its numbers alone the history may be either.
        let found = find_checkpoint(&catalog.now().metadata, &job()).unwrap().unwrap();
        assert_eq!(found.source_snapshot_id, SnapshotId(2));
        let confirmed = confirm_checkpoint(&catalog.now(), &job()).await;
        assert_eq!(confirmed.is_err(), is_rolled_back, "{confirmed:?}");
        if let Err(error) = confirmed {
            assert!(matches!(error, CommitError::CheckpointLost { .. }), "{error}");
        }
    }
}

#[tokio::test]
async fn a_marker_that_was_cut_off_is_no_run_and_goes() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (table, r1) = (catalog.now(), run("r1"));
    start_run(&table, &job(), &r1).await.unwrap();
    let whole = catalog.files("metadata/iceferry").await;
    let runs = catalog.folder.path().join("t/metadata/iceferry/orders/runs");
    std::fs::write(runs.join("r2.json#1"), "{\"ru").unwrap();
    std::fs::write(runs.join("notes.txt"), "somebody's").unwrap();
    assert_eq!(unfinished_runs(&table, &job(), &r1).await.unwrap(), []);
    assert!(!runs.join("r2.json#1").exists());
    assert!(runs.join("notes.txt").exists());
    std::fs::remove_file(runs.join("notes.txt")).unwrap();
    assert_eq!(catalog.files("metadata/iceferry").await, whole);
}

#[tokio::test]
async fn a_run_that_lost_sight_of_its_own_commit_removes_none_of_it() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (r1, before) = (run("r1"), catalog.now());
    let marker = start_run(&before, &job(), &r1).await.unwrap();
    let left = catalog.stage(&r1, 7, 1, 0).await;
    commit(&catalog, &r1, 0, None, 1).await.unwrap();
    let kept = catalog.files("data").await.len() - left.len();
    let removed = clean_up_own(&catalog, &before, &job(), &marker).await.unwrap();
    assert_eq!((removed.files, catalog.files("data").await.len()), (left.len() as u64, kept));
    catalog.audit().await;
}

#[tokio::test]
async fn of_runs_that_start_together_one_takes_over_and_the_others_stop() {
    for version in VERSIONS {
        let catalog = TestCatalog::new(version);
        commit(&catalog, &run("r0"), 0, None, 1).await.unwrap();
        let (one, two) = (run("r1"), run("r2"));
        let base = catalog.now();
        for run in [&one, &two] {
            start_run(&base, &job(), run).await.unwrap();
        }
        let seen = unfinished_runs(&base, &job(), &one).await.unwrap();
        assert_eq!(seen.iter().map(|marker| marker.run.clone()).collect::<Vec<_>>(), std::slice::from_ref(&two));
        let (table, fence) = take_over(&catalog, base.clone(), &job(), &one, &POLICY).await.unwrap();
        // The other one sees the first one's marker as well. Whatever it wrote until now may be removed at any moment, so
        // nothing of it may land any more.
        let versions = catalog.versions().len();
        let error = take_over(&catalog, base, &job(), &two, &POLICY).await.unwrap_err();
        assert!(matches!(&error, CommitError::Fenced { found, run, .. } if *found == fence && *run == one), "{error}");
        assert_eq!(catalog.versions().len(), versions);
        assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new());
        clean_up(&table, &job(), &seen[0], &one).await.unwrap();
        catalog.audit().await;
        // A later run that saw this fence may.
        let (_, fence) = take_over(&catalog, catalog.now(), &job(), &run("r3"), &POLICY).await.unwrap();
        assert_eq!(fence, Fence(2));
    }
}

#[test]
fn commits_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let catalog = TestCatalog::new(FormatVersion::V2);
    let (table, r1) = (catalog.now(), run("r1"));
    let marker = RunMarker {
        run: r1.clone(),
        started_ms: 0,
        taken_over: None,
        data_location: data_location(&table.metadata),
        metadata_folder: String::new(),
    };
    let commit = epoch_commit(&table, &r1, 0, None, 1, Vec::new());
    is_send(&commit_epoch(&catalog, table.clone(), &commit, &POLICY));
    is_send(&take_over(&catalog, table.clone(), &job(), &r1, &POLICY));
    is_send(&clean_up(&table, &job(), &marker, &r1));
    is_send(&unfinished_runs(&table, &job(), &r1));
}

#[tokio::test]
async fn files_of_a_dead_runs_epoch_that_landed_after_all_are_kept() {
    let catalog = TestCatalog::new(FormatVersion::V3);
    let (dead, new) = (run("r1"), run("r2"));
    start_run(&catalog.now(), &job(), &dead).await.unwrap();
    catalog.script([Answer::LostAppliedAway(9)]);
    commit(&catalog, &dead, 0, None, 1).await.unwrap_err();
    while catalog.load_table(&catalog.now().ident).await.is_err() {}
    let markers = unfinished_runs(&catalog.now(), &job(), &new).await.unwrap();
    let (table, _) = take_over(&catalog, catalog.now(), &job(), &new, &POLICY).await.unwrap();
    assert_eq!(clean_up(&table, &job(), &markers[0], &new).await.unwrap(), Removed::default());
    assert_eq!(catalog.files("data").await.len(), 2);
    assert_eq!(find_checkpoint(&table.metadata, &job()).unwrap().unwrap().run, dead);
    catalog.audit().await;
}

#[tokio::test]
async fn an_attempt_asks_for_everything_that_its_files_rest_on() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let base = catalog.now();
    let new = attempt::NewSnapshot {
        id: 5,
        added: summary::Added::default(),
        manifests: Vec::new(),
        folder: metadata_location(&base.metadata),
    };
    let attempt = attempt::compose(&base, &testing::Foreign(new), 0).await.unwrap();
    let mut schema = schema().into_builder();
    schema = schema.with_fields([NestedField::optional(3, "more", Type::Primitive(PrimitiveType::Int)).into()]);
    let schema = schema.with_schema_id(1).build().unwrap();
    let holds = |catalog: &TestCatalog| {
        let now = catalog.now();
        attempt.requirements.iter().all(|requirement| requirement.check(Some(&now.metadata)).is_ok())
    };
    assert!(holds(&catalog));
    catalog.change(vec![TableUpdate::AddSchema { schema }]);
    assert!(holds(&catalog), "a schema that is not the current one is no matter");
    catalog.change(vec![TableUpdate::SetCurrentSchema { schema_id: 1 }]);
    assert!(!holds(&catalog), "the schema changed");
    catalog.change(vec![TableUpdate::SetCurrentSchema { schema_id: 0 }]);
    assert!(holds(&catalog));
    catalog.foreign_append().await;
    assert!(!holds(&catalog), "main moved");
}

#[tokio::test]
async fn a_late_landing_of_an_epoch_without_rows_stops_no_later_epoch() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let run = run("r1");
    catalog.script([Answer::LostLate(4), Answer::Honest, Answer::Honest, Answer::LostNotApplied]);
    for epoch in 0..3_u64 {
        let through = epoch as i64 + 1;
        let after = (epoch > 0).then_some(through - 1);
        let mut commit = epoch_commit(&catalog.now(), &run, epoch, after, through, Vec::new());
        commit.last_with_rows = None;
        commit_epoch(&catalog, catalog.now(), &commit, &POLICY).await.unwrap();
    }
    assert_eq!(find_checkpoint(&catalog.now().metadata, &job()).unwrap().unwrap().source_snapshot_id, SnapshotId(3));
    // Where an epoch between had rows, what the target holds is not what the next one starts from.
    let catalog = TestCatalog::new(FormatVersion::V2);
    let first = epoch_commit(&catalog.now(), &run, 0, None, 1, Vec::new());
    commit_epoch(&catalog, catalog.now(), &first, &POLICY).await.unwrap();
    let mut third = epoch_commit(&catalog.now(), &run, 2, Some(2), 3, Vec::new());
    third.last_with_rows = Some(EpochId(1));
    let error = commit_epoch(&catalog, catalog.now(), &third, &POLICY).await.unwrap_err();
    assert!(matches!(error, CommitError::CheckpointMoved { .. }), "{error}");
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        3 => Just(Answer::Honest),
        2 => Just(Answer::ForeignFirst),
        1 => Just(Answer::FalseConflict),
        1 => Just(Answer::Refused),
        2 => Just(Answer::LostApplied),
        2 => Just(Answer::LostNotApplied),
        2 => (1_u32..6).prop_map(Answer::LostLate),
        1 => (1_u32..7).prop_map(Answer::LostAppliedAway),
        1 => Just(Answer::Lie),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is answered in whatever order, epochs land once each and in order, and no file is lost or doubled.
    #[test]
    fn epochs_land_once_and_in_order_under_any_answers(
        script in proptest::collection::vec(answers(), 0..14),
        epochs in proptest::collection::vec((0_usize..3, 0_usize..2), 1..5),
        is_v3 in any::<bool>(),
        take_over_before in proptest::option::of(0_usize..5),
        min_count in 1_usize..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let catalog = TestCatalog::new(if is_v3 { FormatVersion::V3 } else { FormatVersion::V2 });
            let updates = HashMap::from([("commit.manifest.min-count-to-merge".to_owned(), min_count.to_string())]);
            catalog.change(vec![TableUpdate::SetProperties { updates }]);
            catalog.script(script);
            let (mut run, mut fence, mut number) = (run("r1"), Fence(0), 0);
            let mut is_in_doubt = false;
            let mut expected = Vec::new();
            let mut last_with_rows = None;
            for (index, (data, deletes)) in epochs.into_iter().enumerate() {
                if take_over_before == Some(index) {
                    run = RunId("r2".to_owned());
                    number = 0;
                    last_with_rows = None;
                    let mut tries = 0;
                    fence = loop {
                        tries += 1;
                        assert!(tries < 30, "the script has an end, so must this");
                        match take_over(&catalog, catalog.now(), &job(), &run, &POLICY).await {
                            Ok((_, taken)) => break taken,
                            Err(error) => is_in_doubt |= error.leaves_files_in_doubt(),
                        }
                    };
                }
                let staged = catalog.stage(&run, number, data, deletes).await;
                expected.extend(staged.iter().map(|file| file.location.clone()));
                let (after, through) = ((index > 0).then_some(index as i64), index as i64 + 1);
                let mut epoch = epoch_commit(&catalog.now(), &run, number, after, through, staged);
                epoch.fence = fence;
                epoch.last_with_rows = last_with_rows;
                if data + deletes > 0 {
                    last_with_rows = Some(EpochId(number));
                }
                number += 1;
                // A run goes on after an error by delivering the same epoch again; a script has an end.
                let mut tries = 0;
                loop {
                    tries += 1;
                    assert!(tries < 30, "the script has an end, so must this");
                    match commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await {
                        Ok(done) => {
                            assert!(done.ours);
                            break;
                        }
                        Err(error) => is_in_doubt |= error.leaves_files_in_doubt(),
                    }
                }
                let found = find_checkpoint(&catalog.now().metadata, &job()).unwrap().unwrap();
                assert_eq!((found.source_snapshot_id.0, found.epoch), (through, EpochId(number - 1)));
            }
            catalog.land_late(true);
            let (data, deletes) = catalog.live(&catalog.now().metadata).await;
            let mut live: Vec<String> = data.into_iter().chain(deletes).filter(|file| !file.contains("foreign")).collect();
            live.sort();
            expected.sort();
            assert_eq!(live, expected);
            if !is_in_doubt {
                assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new());
            }
            catalog.audit().await;
        });
    }
}
