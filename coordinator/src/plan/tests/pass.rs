//! Deletes that go straight through, and files that go as bytes: cases with a known answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::DataFileFormat;
use iceferry_common::model::{Constant, Identity, PassDeletesWork, Resolution, ScanTask, Side, SnapshotId, Work};

use super::model::{Commit, Delete, File, Kind, PathBounds, Row, Table, row, run};
use crate::plan::{DecodeReason, PlanSummary, Together, Ways};

fn file(table: &mut Table, spec: i32, partition: Option<i32>, rows: &[Row]) -> Arc<File> {
    Arc::new(table.file(spec, partition, rows.to_vec()))
}

fn keys(table: &mut Table, spec: i32, partition: Option<i32>, ids: &[i32], keys: &[&[i32]]) -> Arc<Delete> {
    let keys = keys.iter().map(|key| key.iter().map(|value| Some(*value)).collect()).collect();
    let kind = Kind::Equality { ids: ids.to_vec(), keys, has_bounds: true };
    let location = table.new_name("ed");
    Arc::new(Delete { location, offset: None, spec, partition, kind, format: DataFileFormat::Parquet })
}

async fn commit(table: &mut Table, files: &[&Arc<File>], deletes: &[&Arc<Delete>], removed: &[&str]) -> SnapshotId {
    let added = files.iter().map(|file| (Arc::clone(file), None)).collect();
    let deletes = deletes.iter().map(|delete| (Arc::clone(delete), None)).collect();
    let removed = removed.iter().map(|path| ((*path).to_owned(), None)).collect();
    table.commit(Commit { added, deletes, removed, operation: "overwrite", ..Commit::default() }).await
}

/// The delete files that go straight through, with what they are passed with.
fn passed(tasks: &[ScanTask]) -> Vec<(&str, &[Constant])> {
    let of = |task: &'_ ScanTask| match &task.work {
        Work::PassDeletes(PassDeletesWork { constants }) => constants.len(),
        _ => 0,
    };
    let tasks = tasks.iter().filter(|task| of(task) > 0);
    tasks
        .flat_map(|task| {
            let Work::PassDeletes(work) = &task.work else { return Vec::new() };
            let files = task.deletes.iter().map(|delete| delete.location.as_str());
            files.zip(work.constants.iter().map(Vec::as_slice)).collect()
        })
        .collect()
}

fn reads_old_files(tasks: &[ScanTask]) -> bool {
    tasks.iter().flat_map(|task| &task.differences).any(|difference| difference.before != Side::Absent)
}

#[tokio::test]
async fn upserts_are_followed_without_a_look_at_what_was_there_before() {
    let mut table = Table::new(2);
    let rows: Vec<Row> = (0..40).map(|id| row(id, 0, 0)).collect();
    let first = file(&mut table, 0, None, &rows);
    let mut before = commit(&mut table, &[&first], &[], &[]).await;
    for round in 1..=12 {
        let delete = keys(&mut table, 0, None, &[1], &[&[round], &[round + 1]]);
        let added = file(&mut table, 0, None, &[row(round, 0, round), row(round + 1, 0, round)]);
        let after = commit(&mut table, &[&added], &[&delete], &[]).await;
        let (tasks, summary) = table.check_mirror(Some(before), after, &[1]).await;
        assert_eq!(passed(&tasks), [(delete.location.as_str(), &[][..])]);
        assert!(!reads_old_files(&tasks));
        assert_eq!((summary.delete_files_passed, summary.delete_records_passed), (1, 2));
        assert_eq!((summary.files_added, summary.files_as_bytes, summary.files_changed), (1, 1, 0));
        assert_eq!(summary.manifests_opened, 2, "its own, however many there were before");
        // Resolved to rows it is the same.
        table.check(Some(before), after).await;
        before = after;
    }
    // The net of all rounds: files that came and were deleted from again within the range get those deletes.
    let (tasks, summary) = table.check_mirror(Some(table.states[0].0), before, &[1]).await;
    assert_eq!((summary.delete_files_passed, summary.files_as_bytes), (12, 12));
    assert!(!reads_old_files(&tasks));
    let (tasks, summary) = table.check_mirror(None, before, &[1]).await;
    assert_eq!(
        (passed(&tasks).len(), summary.delete_files_passed),
        (0, 0),
        "there is nothing to delete in a new target"
    );
}

#[tokio::test]
async fn a_delete_is_resolved_to_rows_unless_it_says_for_sure_what_the_target_has_to_delete() {
    /// What comes, as (spec, partition, fields), how it is encoded, and whether it has an older number.
    type Case = (&'static str, [i32; 2], (i32, Option<i32>, &'static [i32]), DataFileFormat, bool, bool);
    const PARQUET: DataFileFormat = DataFileFormat::Parquet;
    let cases: [Case; 11] = [
        ("global, on the key", [0, 0], (0, None, &[1]), PARQUET, false, true),
        ("global, over several specs", [1, 0], (0, None, &[1]), PARQUET, false, true),
        ("in Avro", [0, 0], (0, None, &[1]), DataFileFormat::Avro, false, true),
        ("on more than the key", [0, 0], (0, None, &[1, 2]), PARQUET, false, false),
        ("on another column", [0, 0], (0, None, &[3]), PARQUET, false, false),
        ("older than what was there", [0, 0], (0, None, &[1]), PARQUET, true, false),
        ("in a partition that the key does not say", [1, 1], (1, Some(1), &[1]), PARQUET, false, false),
        ("in a bucket of the key", [2, 2], (2, Some(1), &[1]), PARQUET, false, false),
        ("in a partition of one of two specs", [1, 0], (1, Some(1), &[2]), PARQUET, false, false),
        ("in a partition that the key says", [1, 1], (1, Some(1), &[2]), PARQUET, false, true),
        ("in a partition without files", [1, 1], (1, Some(7), &[2]), PARQUET, false, false),
    ];
    for (name, specs, (spec, partition, ids), format, is_older, goes_through) in cases {
        let mut table = Table::new(2);
        for spec in specs {
            let partition = (spec != 0).then_some(1);
            let added = file(&mut table, spec, partition, &[row(5, 1, 0), row(9, 1, 0)]);
            commit(&mut table, &[&added], &[], &[]).await;
        }
        let before = table.states[1].0;
        let key: Vec<i32> = ids.iter().map(|id| if *id == 1 { 5 } else { 1 }).collect();
        let delete = keys(&mut table, spec, partition, ids, &[&key]);
        let delete = Arc::new(Delete { format, ..Arc::try_unwrap(delete).unwrap() });
        let deletes = vec![(Arc::clone(&delete), is_older.then_some(2))];
        let after = table.commit(Commit { deletes, operation: "delete", ..Commit::default() }).await;
        let of_table: &[i32] = if spec == 1 && ids == [2] { &[2] } else { &[1] };
        let (tasks, _) = table.check_mirror(Some(before), after, of_table).await;
        assert_eq!(!passed(&tasks).is_empty(), goes_through, "{name}: {tasks:#?}");
        if let [(_, constants)] = passed(&tasks)[..] {
            let one = [Constant { field_id: 2, value: Some(1i64.to_le_bytes().to_vec()) }];
            assert_eq!(constants, if spec == 1 { &one[..] } else { &[] }, "{name}");
        }
        let mut request = table.request(Some(before), after);
        request.ways = Ways { passes_deletes: false, takes_deletes: true, decode: None };
        let (tasks, _) = run(request).await.unwrap();
        assert!(passed(&tasks).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn rows_that_live_on_in_spite_of_a_passed_delete_come_again() {
    let mut table = Table::new(2);
    let moved = file(&mut table, 0, None, &[row(1, 0, 1), row(2, 0, 2)]);
    let hidden = file(&mut table, 0, None, &[row(3, 0, 3), row(4, 0, 4)]);
    let gone = file(&mut table, 0, None, &[row(5, 0, 5), row(6, 0, 6)]);
    let rows = [(hidden.path.clone(), 0)].into();
    let kind = Kind::Positions { rows, referenced: None, bounds: PathBounds::Full };
    let hides = Delete {
        location: table.new_name("pd"),
        offset: None,
        spec: 0,
        partition: None,
        kind,
        format: DataFileFormat::Parquet,
    };
    let hides = Arc::new(hides);
    commit(&mut table, &[&moved, &hidden, &gone], &[], &[]).await;
    let before = commit(&mut table, &[], &[&hides], &[]).await;
    let delete = keys(&mut table, 0, None, &[1], &[&[1], &[3], &[5]]);
    commit(&mut table, &[], &[&delete], &[]).await;
    // A file comes again under its path and with a new number, a row is no longer hidden, and a row that a delete took is
    // written again as it was: the first and the last are above the delete's number.
    let again = file(&mut table, 0, None, &[row(5, 0, 5), row(6, 0, 6)]);
    let removed = [&moved.path, &hides.location, &gone.path].map(String::as_str);
    let after = commit(&mut table, &[&moved, &again], &[], &removed).await;
    let (tasks, summary) = table.check_mirror(Some(before), after, &[1]).await;
    assert_eq!(summary.delete_files_passed, 1);
    assert!(tasks.iter().any(|task| task.resolution == Resolution::CarryOver), "what is carried over still cancels");
    let come: Vec<Row> =
        table.interpret(&tasks).into_iter().filter(|(_, count)| *count > 0).map(|(row, _)| row).collect();
    assert_eq!(come, [row(1, 0, 1), row(5, 0, 5)], "3 stays dead");
}

async fn planned(
    table: &Table,
    before: Option<SnapshotId>,
    together: Together,
    ways: &Ways,
) -> (Vec<ScanTask>, PlanSummary) {
    let after = table.states[table.states.len() - 1].0;
    let mut request = table.request(before, after);
    (request.together, request.ways) = (together, ways.clone());
    run(request).await.unwrap()
}

#[tokio::test]
async fn each_file_that_is_decoded_has_a_reason() {
    use DecodeReason::{Asked, Compared, Deletes, Format, NotNew};
    let mut table = Table::new(2);
    let old = file(&mut table, 0, None, &[row(1, 0, 0), row(2, 0, 0)]);
    let changed = file(&mut table, 0, None, &[row(500, 0, 0)]);
    let first = commit(&mut table, &[&old, &changed], &[], &[]).await;
    let new = file(&mut table, 0, None, &[row(100, 0, 0)]);
    let mut avro = table.file(0, None, vec![row(200, 0, 0)]);
    avro.format = DataFileFormat::Avro;
    let rewritten = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let added = [&new, &Arc::new(avro), &rewritten];
    commit(&mut table, &added, &[], &[&old.path]).await;
    let delete = keys(&mut table, 0, None, &[1], &[&[100], &[500]]);
    commit(&mut table, &[], &[&delete], &[]).await;
    let mirror = Ways { decode: None, takes_deletes: true, passes_deletes: false };
    let append = Ways { takes_deletes: false, ..mirror.clone() };
    let changes = || Together::Changes(Identity::Columns(vec![1]));
    for (together, ways, as_bytes, decoded) in [
        (Together::CarryOver, &mirror, 1, BTreeMap::from([(Format, 1), (Compared, 1), (NotNew, 2)])),
        (changes(), &append, 0, BTreeMap::from([(Format, 1), (Deletes, 1), (Compared, 1), (NotNew, 2)])),
        (Together::CarryOver, &Ways::rows(), 0, BTreeMap::from([(Asked, 2), (Compared, 1), (NotNew, 2)])),
    ] {
        let (_, summary) = planned(&table, Some(first), together, ways).await;
        assert_eq!((summary.files_as_bytes, summary.files_decoded), (as_bytes, decoded), "{ways:?}");
    }
}

#[tokio::test]
async fn files_that_go_as_bytes_are_whole_in_larger_tasks_that_share_the_slots() {
    let mut table = Table::new(2);
    let files: Vec<_> = (0..12).map(|at| file(&mut table, 0, None, &[row(at, 0, 0); 5])).collect();
    commit(&mut table, &files.iter().collect::<Vec<_>>(), &[], &[]).await;
    let ways = Ways { decode: None, takes_deletes: true, passes_deletes: true };
    let (tasks, summary) = planned(&table, None, Together::CarryOver, &ways).await;
    assert_eq!(summary.files_as_bytes, 12);
    // A file is 60 bytes, and a task of decoded rows is full with 45: it would be cut.
    assert!(tasks.iter().flat_map(|task| &task.differences).all(|difference| difference.split.is_none()));
    let sizes: Vec<usize> = tasks.iter().map(|task| task.differences.len()).collect();
    assert_eq!(sizes, [3; 4]);
    for task in &tasks {
        let Work::Copy(work) = &task.work else { panic!("{task:#?}") };
        let columns = work.metrics.iter().map(|metrics| metrics.iter().map(|of| of.field_id).collect::<Vec<_>>());
        assert!(columns.eq([[1, 2, 3], [1, 2, 3], [1, 2, 3]]), "with what the manifest says: {work:?}");
        for (metrics, difference) in work.metrics.iter().zip(&task.differences) {
            let file = files.iter().find(|file| file.path == difference.file.location).unwrap();
            assert_eq!(
                metrics[0].lower_bound.as_deref(),
                file.rows[0].id.map(i32::to_le_bytes).as_ref().map(|id| &id[..])
            );
        }
    }
}
