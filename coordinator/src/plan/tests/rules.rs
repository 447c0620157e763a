//! Which delete reaches which file, and what becomes of it in tasks: cases with a known answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::DataFileFormat;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::{
    Constant, DeleteKind, ExchangeWork, FileDifference, Identity, Resolution, ScanTask, Side, SnapshotId, Work,
};

use super::model::{Commit, Delete, File, Kind, PathBounds, Row, Table, row, run};
use crate::plan::{PlanError, PlanOptions, Together};

fn differences(tasks: &[ScanTask]) -> Vec<&FileDifference> {
    tasks.iter().flat_map(|task| &task.differences).collect()
}

/// The deletes of a side, by the end of their location.
fn names(task: &ScanTask, side: &Side) -> Option<BTreeSet<String>> {
    match side {
        Side::Absent => None,
        Side::Present(ids) => {
            Some(ids.iter().map(|id| task.deletes[*id as usize].location.rsplit('/').next().unwrap().into()).collect())
        }
    }
}

async fn add(table: &mut Table, files: &[&Arc<File>]) -> SnapshotId {
    let added = files.iter().map(|file| (Arc::clone(file), None)).collect();
    table.commit(Commit { added, operation: "append", ..Commit::default() }).await
}

async fn delete(table: &mut Table, deletes: &[&Arc<Delete>]) -> SnapshotId {
    let deletes = deletes.iter().map(|delete| (Arc::clone(delete), None)).collect();
    table.commit(Commit { deletes, operation: "delete", ..Commit::default() }).await
}

fn file(table: &mut Table, spec: i32, partition: Option<i32>, rows: &[Row]) -> Arc<File> {
    Arc::new(table.file(spec, partition, rows.to_vec()))
}

fn of_kind(table: &Table, name: &str, spec: i32, partition: Option<i32>, kind: Kind) -> Arc<Delete> {
    let is_vector = matches!(kind, Kind::Vector { .. });
    Arc::new(Delete {
        location: format!("{}/data/{name}", table.folder.path().display()),
        offset: is_vector.then_some(4),
        spec,
        partition,
        kind,
        format: if is_vector { DataFileFormat::Puffin } else { DataFileFormat::Parquet },
    })
}

fn positions(table: &Table, name: &str, of: &File, at: &[usize]) -> Arc<Delete> {
    let rows = at.iter().map(|at| (of.path.clone(), *at)).collect();
    of_kind(table, name, of.spec, of.partition, Kind::Positions { rows, referenced: None, bounds: PathBounds::Full })
}

fn vector(table: &Table, name: &str, of: &File, at: &[usize]) -> Arc<Delete> {
    let kind = Kind::Vector { path: of.path.clone(), positions: at.iter().copied().collect() };
    of_kind(table, name, of.spec, of.partition, kind)
}

fn keys(table: &Table, name: &str, spec: i32, partition: Option<i32>, ids: &[i32]) -> Arc<Delete> {
    let keys = ids.iter().map(|id| vec![Some(*id)]).collect();
    of_kind(table, name, spec, partition, Kind::Equality { ids: vec![1], keys, has_bounds: true })
}

#[tokio::test]
async fn each_file_gets_the_deletes_that_it_had_and_those_that_it_has() {
    let mut table = Table::new(2);
    let files: Vec<_> =
        (0..3).map(|p| file(&mut table, 0, None, &[row(1, p, 1), row(2, p, 2), row(3, p, 3)])).collect();
    let s1 = add(&mut table, &[&files[0], &files[1], &files[2]]).await;
    let d1 = positions(&table, "d1", &files[1], &[1]);
    let s2 = delete(&mut table, &[&d1]).await;
    let d2 = keys(&table, "d2", 0, None, &[1]);
    let s3 = delete(&mut table, &[&d2]).await;

    let (tasks, _) = table.check(Some(s1), s2).await;
    assert_eq!(differences(&tasks).len(), 1, "only one file is reached");

    let (tasks, summary) = table.check(Some(s2), s3).await;
    let set = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    let mut seen = 0;
    for task in &tasks {
        for difference in &task.differences {
            let sides = (names(task, &difference.before), names(task, &difference.after));
            if difference.file.location == files[1].path {
                assert_eq!(sides, (set(&["d1"]), set(&["d1", "d2"])));
            } else {
                assert_eq!(sides, (set(&[]), set(&["d2"])));
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
    assert_eq!((summary.files_changed, summary.files_added, summary.files_removed), (3, 0, 0));
    assert_eq!(summary.delete_files, 2);
}

#[tokio::test]
async fn in_one_snapshot_keys_spare_what_positions_hit() {
    let mut table = Table::new(2);
    let by_key = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let by_position = file(&mut table, 0, None, &[row(2, 0, 0)]);
    let deletes =
        vec![(keys(&table, "ed", 0, None, &[1, 2]), None), (positions(&table, "pd", &by_position, &[0]), None)];
    let added = vec![(by_key, None), (by_position, None)];
    let s1 = table.commit(Commit { added, deletes, operation: "overwrite", ..Commit::default() }).await;
    let (tasks, _) = table.check(None, s1).await;
    assert_eq!(table.interpret(&tasks).into_iter().collect::<Vec<_>>(), [(row(1, 0, 0), 1)]);
}

#[tokio::test]
async fn an_equality_delete_stays_in_its_spec_and_partition_unless_unpartitioned() {
    let mut table = Table::new(2);
    let files: Vec<_> = [1, 2].map(|p| file(&mut table, 1, Some(p), &[row(1, p, 0), row(9, p, 0)])).into();
    let plain = file(&mut table, 0, None, &[row(1, 0, 0), row(9, 0, 0)]);
    let s1 = add(&mut table, &[&files[0], &files[1], &plain]).await;
    let scoped = keys(&table, "scoped", 1, Some(1), &[1]);
    let s2 = delete(&mut table, &[&scoped]).await;
    let (tasks, _) = table.check(Some(s1), s2).await;
    let touched: Vec<_> = differences(&tasks).iter().map(|difference| &difference.file.location).collect();
    assert_eq!(touched, [&files[0].path]);
    let global = keys(&table, "global", 0, None, &[9]);
    let s3 = delete(&mut table, &[&global]).await;
    let (tasks, _) = table.check(Some(s2), s3).await;
    assert_eq!(differences(&tasks).len(), 3);
}

#[tokio::test]
async fn deletes_that_hit_no_row_by_their_bounds_make_no_task() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0), row(5, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let far = keys(&table, "far", 0, None, &[99]);
    let s2 = delete(&mut table, &[&far]).await;
    let (tasks, summary) = table.check(Some(s1), s2).await;
    assert!(tasks.is_empty());
    assert!(summary.complete);
}

#[tokio::test]
async fn a_taken_away_delete_revives_its_rows() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0), row(2, 0, 0)]);
    add(&mut table, &[&only]).await;
    let pd = positions(&table, "pd", &only, &[0]);
    let s2 = delete(&mut table, &[&pd]).await;
    let removed = BTreeSet::from([(pd.location.clone(), None)]);
    let s3 = table.commit(Commit { removed, operation: "overwrite", ..Commit::default() }).await;
    let (tasks, _) = table.check(Some(s2), s3).await;
    assert_eq!(table.interpret(&tasks).into_iter().collect::<Vec<_>>(), [(row(1, 0, 0), 1)]);
}

#[tokio::test]
async fn a_vector_stands_for_all_positions_and_each_file_has_its_own() {
    let mut table = Table::new(2);
    let files: Vec<_> = (0..2).map(|p| file(&mut table, 0, None, &[row(1, p, 0), row(2, p, 0)])).collect();
    add(&mut table, &[&files[0], &files[1]]).await;
    let pd = positions(&table, "pd", &files[0], &[0]);
    let s2 = delete(&mut table, &[&pd]).await;
    table.version = 3;
    let first = vector(&table, "dv.puffin", &files[0], &[1]);
    let mut second = Arc::try_unwrap(vector(&table, "dv.puffin", &files[1], &[0])).unwrap();
    second.offset = Some(44);
    let s3 = delete(&mut table, &[&first, &Arc::new(second)]).await;
    let (tasks, summary) = table.check(Some(s2), s3).await;
    for task in &tasks {
        for difference in &task.differences {
            let Side::Present(ids) = &difference.after else { panic!("gone") };
            let offset = if difference.file.location == files[0].path { 4 } else { 44 };
            let kinds: Vec<_> = ids.iter().map(|id| task.deletes[*id as usize].kind.clone()).collect();
            assert_eq!(kinds, [DeleteKind::Vector { offset, length: 11 }]);
        }
    }
    assert_eq!((summary.files_changed, summary.delete_files), (2, 3), "{tasks:#?}");
}

#[tokio::test]
async fn two_vectors_for_one_file_are_refused_by_name() {
    let mut table = Table::new(3);
    let only = file(&mut table, 0, None, &[row(1, 0, 0), row(2, 0, 0)]);
    add(&mut table, &[&only]).await;
    let (one, two) = (vector(&table, "one.puffin", &only, &[0]), vector(&table, "two.puffin", &only, &[1]));
    let s2 = delete(&mut table, &[&one, &two]).await;
    let error = table.plan(None, s2).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    let text = error.to_string();
    assert!(text.contains("one.puffin") && text.contains("two.puffin") && text.contains(&only.path), "{text}");
}

#[tokio::test]
async fn a_file_that_is_live_twice_is_refused_by_name() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let s2 = add(&mut table, &[&only]).await;
    let error = table.plan(None, s2).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains(&only.path), "{error}");
    table.plan(None, s1).await.unwrap();
}

#[tokio::test]
async fn a_delete_that_names_a_file_of_another_partition_is_refused_by_name() {
    let mut table = Table::new(3);
    let only = file(&mut table, 1, Some(1), &[row(1, 1, 0)]);
    add(&mut table, &[&only]).await;
    let mut lost = Arc::try_unwrap(vector(&table, "lost.puffin", &only, &[0])).unwrap();
    lost.partition = Some(2);
    let s2 = delete(&mut table, &[&Arc::new(lost)]).await;
    let error = table.plan(None, s2).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains("lost.puffin"), "{error}");
}

#[tokio::test]
async fn rewritten_manifests_are_no_change() {
    let mut table = Table::new(2);
    let files: Vec<_> = (0..4).map(|p| file(&mut table, 0, None, &[row(p, p, 0)])).collect();
    for file in &files {
        add(&mut table, &[file]).await;
    }
    let pd = positions(&table, "pd", &files[0], &[0]);
    let s5 = delete(&mut table, &[&pd]).await;
    let s6 = table.commit(Commit { merge_manifests: true, operation: "append", ..Commit::default() }).await;
    let (tasks, summary) = table.check(Some(s5), s6).await;
    assert!(tasks.is_empty());
    assert_eq!(summary.delete_files, 0);
}

#[tokio::test]
async fn an_append_opens_its_own_manifest_alone() {
    let mut table = Table::new(2);
    let files: Vec<_> = (0..6).map(|p| file(&mut table, 0, None, &[row(p, p, 0)])).collect();
    for file in &files[..5] {
        add(&mut table, &[file]).await;
    }
    let ed = keys(&table, "ed", 0, None, &[0, 1, 2]);
    let before = delete(&mut table, &[&ed]).await;
    let after = add(&mut table, &[&files[5]]).await;
    let (_, summary) = table.check(Some(before), after).await;
    assert_eq!((summary.manifests_opened, summary.manifests_skipped), (1, 6));
    assert_eq!((summary.files_added, summary.records_added), (1, 1));
}

#[tokio::test]
async fn a_removed_file_takes_the_deletes_of_its_own_snapshot_along() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0), row(2, 0, 0)]);
    let deletes = vec![(positions(&table, "pd", &only, &[0]), None)];
    let added = vec![(Arc::clone(&only), None)];
    let s1 = table.commit(Commit { added, deletes, operation: "overwrite", ..Commit::default() }).await;
    let removed = BTreeSet::from([(only.path.clone(), None)]);
    let s2 = table.commit(Commit { removed, operation: "delete", ..Commit::default() }).await;
    let (tasks, _) = table.check(Some(s1), s2).await;
    assert_eq!(table.interpret(&tasks).into_iter().collect::<Vec<_>>(), [(row(2, 0, 0), -1)]);
}

#[tokio::test]
async fn manifests_of_other_partitions_stay_closed() {
    let mut table = Table::new(2);
    for p in 0..5 {
        let of = file(&mut table, 1, Some(p), &[row(1, p, 0)]);
        add(&mut table, &[&of]).await;
    }
    let before = table.states.last().unwrap().0;
    let ed = keys(&table, "ed", 1, Some(3), &[1]);
    let after = delete(&mut table, &[&ed]).await;
    let (_, summary) = table.check(Some(before), after).await;
    assert_eq!((summary.manifests_opened, summary.manifests_skipped), (2, 4));
}

#[tokio::test]
async fn a_rewrite_is_grouped_by_overlap_and_cancels() {
    let mut table = Table::new(2);
    let old: Vec<_> =
        [[10, 18], [40, 48], [70, 78]].map(|ids| file(&mut table, 0, None, &ids.map(|id| row(id, 0, 0)))).into();
    let before = add(&mut table, &[&old[0], &old[1], &old[2]]).await;
    let overlapping = file(&mut table, 0, None, &[row(15, 0, 0), row(20, 0, 0)]);
    let apart = file(&mut table, 0, None, &[row(100, 0, 0)]);
    let removed = [&old[0], &old[1]].map(|file| (file.path.clone(), None)).into();
    let added = vec![(Arc::clone(&overlapping), None), (Arc::clone(&apart), None)];
    let after = table.commit(Commit { added, removed, operation: "overwrite", ..Commit::default() }).await;
    let (tasks, summary) = table.check(Some(before), after).await;
    let of = |resolution| {
        let tasks = tasks.iter().filter(|task| task.resolution == resolution);
        let locations = tasks.flat_map(|task| &task.differences).map(|difference| difference.file.location.clone());
        locations.collect::<BTreeSet<_>>()
    };
    assert_eq!(of(Resolution::CarryOver), BTreeSet::from([old[0].path.clone(), overlapping.path.clone()]));
    assert_eq!(of(Resolution::Keep), BTreeSet::from([old[1].path.clone(), apart.path.clone()]));
    assert_eq!(summary.tasks_cancelling, 1);

    let mut request = table.request(Some(before), after);
    request.options.carry_over_bytes_max = 100;
    let (tasks, _) = run(request).await.unwrap();
    assert!(tasks.iter().all(|task| task.resolution == Resolution::Keep), "too large for memory: straight through");
    assert_eq!(table.interpret(&tasks), table.expected(Some(before), after));
}

#[tokio::test]
async fn a_group_that_is_larger_than_a_task_is_exchanged_and_every_other_is_not() {
    let mut table = Table::new(2);
    // Ids of the small group are apart from those of the large one.
    let ids = |range: std::ops::Range<i32>, v: i32| range.map(|id| row(id, 0, v)).collect::<Vec<_>>();
    let large: Vec<_> = (0..6).map(|_| file(&mut table, 0, None, &ids(0..10, 0))).collect();
    let small = file(&mut table, 0, None, &ids(900..901, 0));
    let mut all: Vec<_> = large.iter().collect();
    all.push(&small);
    let before = add(&mut table, &all).await;
    let removed = all.iter().map(|file| (file.path.clone(), None)).collect();
    let new = file(&mut table, 0, None, &ids(0..10, 1));
    let new_small = file(&mut table, 0, None, &ids(900..901, 1));
    let added = vec![(Arc::clone(&new), None), (Arc::clone(&new_small), None)];
    let after = table.commit(Commit { added, removed, operation: "overwrite", ..Commit::default() }).await;
    for (identity, resolution, exchanges) in [
        (Identity::Columns(vec![1]), Resolution::Updates, true),
        (Identity::None, Resolution::CarryOver, true),
        (Identity::RowId, Resolution::Updates, false),
    ] {
        let mut request = table.request(Some(before), after);
        request.together = Together::Changes(identity);
        let (tasks, summary) = run(request).await.unwrap();
        assert_eq!(table.interpret(&tasks), table.expected(Some(before), after), "each difference once");
        assert!(tasks.iter().all(|task| task.resolution == resolution));
        let (exchanging, plain): (Vec<_>, Vec<_>) =
            tasks.iter().partition(|task| matches!(task.work, Work::Exchange(_)));
        let files = |tasks: &[&ScanTask]| {
            let differences = tasks.iter().flat_map(|task| &task.differences);
            differences.map(|difference| difference.file.location.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!((!exchanging.is_empty(), summary.groups_exchanged), (exchanges, u64::from(exchanges)));
        if !exchanges {
            continue;
        }
        let of_group = large.iter().chain([&new]).map(|file| file.path.clone()).collect();
        assert_eq!(files(&exchanging), of_group);
        assert_eq!(files(&plain), BTreeSet::from([small.path.clone(), new_small.path.clone()]));
        assert!(
            exchanging.len() > 2
                && exchanging.iter().all(|task| task.data_bytes() <= 45 || task.differences.len() == 1)
        );
        let numbers: BTreeSet<u64> = tasks.iter().map(|task| task.id.0).collect();
        assert_eq!(numbers.len(), tasks.len());
        for task in &exchanging {
            let Work::Exchange(work) = &task.work else { continue };
            assert_eq!((work.tasks, work.hash_version), (exchanging.len() as u64, ExchangeWork::HASH_VERSION));
            // Its buckets have numbers of their own.
            let first = work.first_resolve.0;
            assert!(numbers.range(first..first + u64::from(ExchangeWork::BUCKETS)).next().is_none());
        }
    }
}

#[tokio::test]
async fn files_without_bounds_may_be_a_rewrite_of_each_other() {
    let mut table = Table::new(2);
    let mut old = table.file(0, None, vec![row(1, 0, 0)]);
    old.has_bounds = false;
    let old = Arc::new(old);
    let new = file(&mut table, 0, None, &[row(50, 0, 0)]);
    let before = add(&mut table, &[&old]).await;
    let removed = BTreeSet::from([(old.path.clone(), None)]);
    let added = vec![(new, None)];
    let after = table.commit(Commit { added, removed, operation: "overwrite", ..Commit::default() }).await;
    let (tasks, _) = table.check(Some(before), after).await;
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].resolution, Resolution::CarryOver);
}

#[tokio::test]
async fn a_rewrite_into_another_spec_is_grouped_and_one_of_another_partition_is_not() {
    for (spec, partition, resolution) in
        [(0, None, Resolution::CarryOver), (1, Some(1), Resolution::CarryOver), (1, Some(2), Resolution::Keep)]
    {
        let mut table = Table::new(2);
        let old = file(&mut table, 1, Some(1), &[row(1, 1, 0)]);
        let new = file(&mut table, spec, partition, &[row(1, 1, 0)]);
        let before = add(&mut table, &[&old]).await;
        let removed = BTreeSet::from([(old.path.clone(), None)]);
        let added = vec![(new, None)];
        let after = table.commit(Commit { added, removed, operation: "overwrite", ..Commit::default() }).await;
        let (tasks, _) = table.check(Some(before), after).await;
        assert_eq!(tasks.len(), if resolution == Resolution::CarryOver { 1 } else { 2 }, "{spec} {partition:?}");
        assert!(tasks.iter().all(|task| task.resolution == resolution), "{spec} {partition:?}");
    }
}

#[tokio::test]
async fn identity_partitions_become_constants_in_the_read_schemas_types() {
    let mut table = Table::new(2);
    let old = file(&mut table, 1, Some(7), &[row(1, 7, 0)]);
    let null = file(&mut table, 1, None, &[Row { id: Some(1), p: None, v: None }]);
    let s1 = add(&mut table, &[&old, &null]).await;
    table.is_widened = true;
    let new = file(&mut table, 1, Some(7), &[row(2, 7, 0)]);
    let s2 = add(&mut table, &[&new]).await;
    let ed = keys(&table, "ed", 1, Some(7), &[1, 2]);
    let s3 = delete(&mut table, &[&ed]).await;
    let (tasks, _) = table.check(None, s2).await;
    for difference in differences(&tasks) {
        let seven = (difference.file.location != null.path).then(|| 7i64.to_le_bytes().to_vec());
        assert_eq!(difference.file.constants, [Constant { field_id: 2, value: seven }]);
    }
    let (tasks, _) = table.check(Some(s2), s3).await;
    assert_eq!(differences(&tasks).len(), 2, "a delete written after the widening reaches the file from before it");
    table.check(Some(s1), s3).await;
}

#[tokio::test]
async fn identity_partitions_give_constants_of_columns_that_are_not_read() {
    let mut table = Table::new(2);
    let only = file(&mut table, 1, Some(7), &[row(1, 7, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let mut request = table.request(None, s1);
    let read: Vec<_> = request.read_schema.as_struct().fields().iter().filter(|field| field.id != 2).cloned().collect();
    request.read_schema = Arc::new(iceberg::spec::Schema::builder().with_fields(read).build().unwrap());
    let (tasks, _) = run(request).await.unwrap();
    // An equality delete may be keyed on the column, and the file may lack it.
    let seven = Some(7i64.to_le_bytes().to_vec());
    assert_eq!(differences(&tasks)[0].file.constants, [Constant { field_id: 2, value: seven }]);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() {
    for (format, is_encrypted, word) in [
        (DataFileFormat::Orc, false, "ORC"),
        (DataFileFormat::Puffin, false, "Puffin"),
        (DataFileFormat::Parquet, true, "encrypted"),
    ] {
        let mut table = Table::new(2);
        let mut odd = table.file(0, None, vec![row(1, 0, 0)]);
        (odd.format, odd.is_encrypted) = (format, is_encrypted);
        let odd = Arc::new(odd);
        let s1 = add(&mut table, &[&odd]).await;
        let error = table.plan(None, s1).await.unwrap_err();
        assert_eq!(error.class(), Class::Refused);
        let text = error.to_string();
        assert!(text.contains(&odd.path) && text.contains("db.t") && text.contains(word), "{text}");
        let fine = file(&mut table, 0, None, &[row(2, 0, 0)]);
        let s2 = add(&mut table, &[&fine]).await;
        table.check(Some(s1), s2).await;
    }
}

#[tokio::test]
async fn a_large_avro_file_is_read_whole_and_a_large_parquet_file_in_parts() {
    let mut table = Table::new(2);
    let rows: Vec<Row> = (0..40).map(|id| row(id, 0, id)).collect();
    for (format, is_cut) in [(DataFileFormat::Parquet, true), (DataFileFormat::Avro, false)] {
        let mut large = table.file(0, None, rows.clone());
        large.format = format;
        let large = Arc::new(large);
        let s1 = add(&mut table, &[&large]).await;
        let (tasks, _) = table.check(None, s1).await;
        let parts = differences(&tasks).into_iter().filter(|difference| difference.file.location == large.path);
        let parts: Vec<bool> = parts.map(|difference| difference.split.is_some()).collect();
        assert_eq!((parts.len() > 1, parts[0]), (is_cut, is_cut), "{format}");
    }
}

#[tokio::test]
async fn an_orc_delete_file_is_refused_only_where_it_reaches() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let mut orc = Arc::try_unwrap(keys(&table, "orc", 0, None, &[1])).unwrap();
    orc.format = DataFileFormat::Orc;
    let s2 = delete(&mut table, &[&Arc::new(orc)]).await;
    let error = table.plan(Some(s1), s2).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("orc"), "{error}");
    let later = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s3 = add(&mut table, &[&later]).await;
    table.check(Some(s2), s3).await;
}

#[tokio::test]
async fn an_equality_delete_by_a_field_that_cannot_be_a_key_is_refused_only_where_it_reaches() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let kind = Kind::Equality { ids: vec![99], keys: vec![vec![Some(1)]], has_bounds: false };
    let odd = of_kind(&table, "odd", 0, None, kind);
    let s2 = delete(&mut table, &[&odd]).await;
    let error = table.plan(Some(s1), s2).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("odd") && error.to_string().contains("field 99"), "{error}");
    let later = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s3 = add(&mut table, &[&later]).await;
    assert_eq!(table.plan(Some(s2), s3).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_missing_manifest_or_list_is_named_with_its_snapshot() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let manifest = table.state().manifests[0].file.manifest_path.clone();
    let list = table.metadata().snapshot_by_id(s1.0).unwrap().manifest_list().to_owned();
    for gone in [manifest, list] {
        std::fs::remove_file(&gone).unwrap();
        let error = table.plan(None, s1).await.unwrap_err();
        assert_eq!(error.class(), Class::NotFound);
        let text = error.to_string();
        assert!(text.contains(&gone) && text.contains(&s1.to_string()), "{text}");
    }
    let error = table.plan(None, SnapshotId(5)).await.unwrap_err();
    assert!(matches!(error, PlanError::SnapshotGone { snapshot: SnapshotId(5), .. }));
}

#[tokio::test]
async fn a_manifest_that_is_no_avro_is_corrupt() {
    let mut table = Table::new(2);
    let only = file(&mut table, 0, None, &[row(1, 0, 0)]);
    let s1 = add(&mut table, &[&only]).await;
    let manifest = table.state().manifests[0].file.manifest_path.clone();
    std::fs::write(&manifest, b"Obj\x01 and nothing").unwrap();
    let error = table.plan(None, s1).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains(&manifest), "{error}");
}

#[tokio::test]
async fn a_dropped_receiver_ends_planning_quietly() {
    let mut table = Table::new(2);
    let files: Vec<_> = (0..9).map(|p| file(&mut table, 0, None, &[row(p, p, 0)])).collect();
    let s1 = add(&mut table, &files.iter().collect::<Vec<_>>()).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    drop(receiver);
    let summary = crate::plan::plan(table.request(None, s1), sender).await.unwrap();
    assert!(!summary.complete);
}

#[tokio::test]
async fn tasks_go_out_while_planning_still_runs() {
    let mut table = Table::new(2);
    for p in 0..40 {
        let of = file(&mut table, 0, None, &[row(p, p, 0); 4]);
        add(&mut table, &[&of]).await;
    }
    let after = table.states.last().unwrap().0;
    // The last manifest is gone: planning fails in the end, and has sent tasks by then.
    let last = table.state().manifests.last().unwrap().file.manifest_path.clone();
    std::fs::remove_file(last).unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(100);
    let outcome = crate::plan::plan(table.request(None, after), sender).await;
    assert!(outcome.is_err());
    assert!(receiver.try_recv().is_ok());
}

#[test]
fn sizes_come_from_the_tables_properties_where_these_make_sense() {
    let table = Table::new(2);
    let options = |pairs: &[(&str, &str)]| {
        let properties = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let built = table.metadata().into_builder(None).set_properties(properties).unwrap().build().unwrap();
        PlanOptions::of_table(&built.metadata)
    };
    let default = PlanOptions::default();
    assert_eq!(options(&[("other", "1")]), default);
    assert_eq!(options(&[("read.split.target-size", "1000")]), PlanOptions { split_bytes: 1_000, ..default.clone() });
    let cost = PlanOptions { open_file_cost_bytes: 7, ..default.clone() };
    assert_eq!(options(&[("read.split.open-file-cost", "7")]), cost);
    assert_eq!(options(&[("read.split.target-size", "0"), ("read.split.open-file-cost", "4 MB")]), default);
}
