//! Merging changes no live entry, whatever the manifests are, and stops no commit.

use std::collections::{BTreeMap, HashMap};

use iceberg::TableUpdate;
use iceberg::spec::{
    DataContentType, DataFile, FormatVersion, ManifestContentType, ManifestFile, ManifestStatus, ManifestWriterBuilder,
    TableMetadata,
};
use iceferry_common::entry;
use iceferry_common::model::RunId;
use proptest::prelude::*;

use super::attempt::{NewSnapshot, read_manifest_list};
use super::merge::merge;
use super::summary::Added;
use super::testing::{Answer, POLICY, TestCatalog, data_file, epoch_commit};
use super::*;
use crate::catalog::LoadedTable;

/// All that an entry says once it has inherited what it inherits.
#[derive(Debug, Clone, PartialEq)]
struct Live {
    snapshot_id: Option<i64>,
    sequence_number: Option<i64>,
    file_sequence_number: Option<i64>,
    first_row_id: Option<i64>,
    file: DataFile,
}

/// The live entries of manifests by path, the slow way.
async fn live(catalog: &TestCatalog, manifests: &[ManifestFile]) -> BTreeMap<String, Live> {
    let mut found = BTreeMap::new();
    for manifest in manifests {
        let mut next_row_id = manifest.first_row_id.map(|id| id as i64);
        for entry in manifest.load_manifest(&catalog.storage.file_io()).await.unwrap().entries() {
            if entry.status() == ManifestStatus::Deleted {
                continue;
            }
            let own = entry.data_file().first_row_id();
            let first_row_id = match (next_row_id, own) {
                (Some(next), None) => {
                    next_row_id = Some(next + entry.record_count() as i64);
                    Some(next)
                }
                (_, own) => own,
            };
            let live = Live {
                snapshot_id: entry.snapshot_id(),
                sequence_number: entry.sequence_number(),
                file_sequence_number: entry.file_sequence_number,
                first_row_id,
                file: with_row_id(entry.data_file(), None),
            };
            assert!(found.insert(entry.file_path().to_owned(), live).is_none(), "{} twice", entry.file_path());
        }
    }
    found
}

fn with_row_id(file: &DataFile, first_row_id: Option<i64>) -> DataFile {
    entry::decode(&entry::encode(file, first_row_id).unwrap(), &testing::schema()).unwrap()
}

async fn list(catalog: &TestCatalog, metadata: &TableMetadata) -> Vec<ManifestFile> {
    read_manifest_list(&catalog.storage, metadata, metadata.current_snapshot().unwrap()).await.unwrap()
}

fn set(catalog: &TestCatalog, properties: &[(&str, &str)]) {
    let updates = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    catalog.change(vec![TableUpdate::SetProperties { updates }]);
}

fn run() -> RunId {
    RunId("r1".to_owned())
}

async fn commit(catalog: &TestCatalog, epoch: u64, data: usize, deletes: usize) -> Committed {
    let staged = catalog.stage(&run(), epoch, data, deletes).await;
    let after = (epoch > 0).then_some(epoch as i64);
    let commit = epoch_commit(&catalog.now(), &run(), epoch, after, epoch as i64 + 1, staged);
    commit_epoch(catalog, catalog.now(), &commit, &POLICY).await.unwrap()
}

fn count(done: &Committed, key: &str) -> u64 {
    let entries = &done.table.metadata.current_snapshot().unwrap().summary().additional_properties;
    entries.get(key).map_or(0, |text| text.parse().unwrap())
}

#[tokio::test]
async fn many_small_commits_have_few_manifests_and_the_same_entries() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let catalog = TestCatalog::new(version);
        set(&catalog, &[("commit.manifest.min-count-to-merge", "4")]);
        let mut expected = BTreeMap::new();
        let mut merges = 0;
        for epoch in 0..13 {
            let done = commit(&catalog, epoch, 1, usize::from(epoch % 2 == 0)).await;
            let metadata = &done.table.metadata;
            let manifests = list(&catalog, metadata).await;
            let of = |content| manifests.iter().filter(|manifest| manifest.content == content).count();
            assert!(of(ManifestContentType::Data) < 4 && of(ManifestContentType::Deletes) < 4, "{manifests:#?}");
            let found = live(&catalog, &manifests).await;
            let sequence_number = metadata.current_snapshot().unwrap().sequence_number();
            for (path, entry) in &found {
                match expected.get(path) {
                    Some(before) => assert_eq!(entry, before, "{path}"),
                    None => assert_eq!(entry.sequence_number, Some(sequence_number), "{path}"),
                }
            }
            assert_eq!(found.len() as u64, count(&done, "total-data-files") + count(&done, "total-delete-files"));
            assert!(
                version == FormatVersion::V2
                    || found
                        .iter()
                        .all(|(path, entry)| { entry.first_row_id.is_some() == path.ends_with("data.parquet") })
            );
            expected = found;
            let replaced = count(&done, "manifests-replaced");
            merges += u64::from(replaced > 0);
            assert_eq!(count(&done, "entries-processed") > 0, replaced > 0);
            let (created, kept) = (count(&done, "manifests-created"), count(&done, "manifests-kept"));
            assert_eq!(created + kept, manifests.len() as u64);
        }
        assert!(merges >= 4, "{merges}");
        assert_eq!(expected.len(), 13 + 7);
        assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new());
        catalog.audit().await;
    }
}

#[tokio::test]
async fn what_a_refused_attempt_merged_goes_and_what_may_be_in_the_table_stays() {
    for (answers, is_certain) in [
        (vec![Answer::ForeignFirst, Answer::ForeignFirst], true),
        (vec![Answer::LostNotApplied, Answer::FalseConflict, Answer::ForeignFirst], true),
        (vec![Answer::LostApplied], true),
        (vec![Answer::LostLate(2)], true),
        (vec![Answer::Refused], true),
        (vec![Answer::LostAppliedAway(9)], false),
    ] {
        let catalog = TestCatalog::new(FormatVersion::V3);
        for epoch in 0..5 {
            commit(&catalog, epoch, 1, 1).await;
        }
        set(&catalog, &[("commit.manifest.min-count-to-merge", "2")]);
        let before = live(&catalog, &list(&catalog, &catalog.now().metadata).await).await;
        let files = catalog.files("metadata/iceferry").await;
        catalog.script(answers.clone());
        let staged = catalog.stage(&run(), 5, 1, 1).await;
        let epoch = epoch_commit(&catalog.now(), &run(), 5, Some(5), 6, staged);
        let done = commit_epoch(&catalog, catalog.now(), &epoch, &POLICY).await;
        match (&done, answers[0]) {
            (Err(_), Answer::Refused) => assert_eq!(catalog.files("metadata/iceferry").await, files),
            (Err(error), Answer::LostAppliedAway(_)) => assert!(error.leaves_files_in_doubt()),
            (done, _) => assert!(done.is_ok(), "{answers:?}: {done:?}"),
        }
        if is_certain {
            assert_eq!(catalog.unreferenced_metadata().await, Vec::<String>::new(), "{answers:?}");
        }
        let after = live(&catalog, &list(&catalog, &catalog.now().metadata).await).await;
        assert!(before.iter().all(|(path, entry)| after.get(path) == Some(entry)), "{answers:?}");
        assert!(answers[0] == Answer::Refused || after.len() >= before.len() + 2, "{answers:?}");
        catalog.audit().await;
    }
}

#[tokio::test]
async fn manifests_that_cannot_be_merged_stay_and_the_commit_goes_on() {
    let catalog = TestCatalog::new(FormatVersion::V3);
    for epoch in 0..3 {
        commit(&catalog, epoch, 1, 1).await;
    }
    set(&catalog, &[("commit.manifest.min-count-to-merge", "2")]);
    let old = list(&catalog, &catalog.now().metadata).await;
    let damaged = old.iter().find(|manifest| manifest.content == ManifestContentType::Data).unwrap();
    catalog.storage.write(&damaged.manifest_path, bytes::Bytes::from_static(b"Obj\x01rubbish")).await.unwrap();
    let done = commit(&catalog, 3, 1, 1).await;
    let new = list(&catalog, &done.table.metadata).await;
    let of = |content| new.iter().filter(|manifest| manifest.content == content).count();
    assert_eq!(of(ManifestContentType::Data), 4, "none of them is merged");
    assert_eq!(of(ManifestContentType::Deletes), 2, "the others are");
    assert!(old.iter().filter(|file| file.content == damaged.content).all(|file| new.contains(file)));
}

/// The same file with an empty block before its first one, which Avro allows and some readers take for the end.
async fn with_an_empty_block(catalog: &TestCatalog, location: &str) {
    let bytes = catalog.storage.read(location).await.unwrap();
    let marker = &bytes[bytes.len() - 16..];
    let header = bytes.windows(16).position(|window| window == marker).unwrap() + 16;
    let all = [&bytes[..header], &[0, 0], marker, &bytes[header..]].concat();
    catalog.storage.write(location, all.into()).await.unwrap();
}

#[tokio::test]
async fn what_stands_behind_an_empty_block_is_never_lost() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    for epoch in 0..3 {
        commit(&catalog, epoch, 1, 0).await;
    }
    set(&catalog, &[("commit.manifest.min-count-to-merge", "2")]);
    let old = list(&catalog, &catalog.now().metadata).await;
    with_an_empty_block(&catalog, &old[0].manifest_path).await;
    let done = commit(&catalog, 3, 1, 0).await;
    let new = list(&catalog, &done.table.metadata).await;
    assert!(old.iter().all(|file| new.contains(file)), "a manifest that cannot be read whole is not merged");

    let before = catalog.now();
    let location = before.metadata.current_snapshot().unwrap().manifest_list().to_owned();
    with_an_empty_block(&catalog, &location).await;
    let staged = catalog.stage(&run(), 4, 1, 0).await;
    let epoch = epoch_commit(&before, &run(), 4, Some(4), 5, staged);
    let error = commit_epoch(&catalog, before.clone(), &epoch, &POLICY).await.unwrap_err();
    assert!(iceferry_common::fault::chain(&error).contains("4 entries, of which 0 can be read"), "{error}");
    assert_eq!(catalog.now().metadata.current_snapshot_id(), before.metadata.current_snapshot_id());
}

#[tokio::test]
async fn nothing_is_merged_where_it_is_switched_off() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    set(&catalog, &[("commit.manifest.min-count-to-merge", "2"), ("commit.manifest-merge.enabled", "false")]);
    for epoch in 0..4 {
        let done = commit(&catalog, epoch, 1, 0).await;
        assert_eq!(list(&catalog, &done.table.metadata).await.len() as u64, epoch + 1);
    }
}

/// An entry of an old manifest.
#[derive(Debug, Clone)]
struct Old {
    status: u8,
    sequence_number: Option<i64>,
    row_id: Option<i64>,
    records: u64,
}

fn old_manifests() -> impl Strategy<Value = Vec<(bool, Option<u64>, Vec<Old>)>> {
    let entry = (0_u8..4, proptest::option::of(0_i64..9), proptest::option::of(1_000_i64..2_000), 0_u64..9);
    let entry =
        entry.prop_map(|(status, sequence_number, row_id, records)| Old { status, sequence_number, row_id, records });
    let manifest = (any::<bool>(), proptest::option::of(5_000_u64..6_000), proptest::collection::vec(entry, 0..5));
    proptest::collection::vec(manifest, 0..12)
}

/// A manifest as others write it, and its line in a list.
async fn write_old(
    base: &LoadedTable,
    number: usize,
    is_data: bool,
    first_row_id: Option<u64>,
    entries: &[Old],
) -> ManifestFile {
    let metadata = &base.metadata;
    let is_v3 = metadata.format_version() == FormatVersion::V3;
    let location = format!("{}/metadata/old-{number}.avro", metadata.location());
    let output = base.storage.file_io().new_output(location).unwrap();
    let spec = metadata.default_partition_spec().as_ref().clone();
    let builder =
        ManifestWriterBuilder::new(output, Some(100 + number as i64), metadata.current_schema().clone(), spec);
    let mut writer = match (is_data, is_v3) {
        (true, false) => builder.build_v2_data(),
        (true, true) => builder.build_v3_data(),
        (false, false) => builder.build_v2_deletes(),
        (false, true) => builder.build_v3_deletes(),
    };
    for (at, old) in entries.iter().enumerate() {
        let content = if is_data { DataContentType::Data } else { DataContentType::EqualityDeletes };
        let file = data_file(&format!("/old/{number}-{at}.parquet"), content, old.records);
        let file = with_row_id(&file, old.row_id.filter(|_| is_data && is_v3 && first_row_id.is_some()));
        let (by, of) = (old.records as i64 + 50, old.sequence_number.unwrap_or(3));
        match old.status {
            0 => writer.add_existing_file(file, by, of, Some(of + 1)).unwrap(),
            1 => writer.add_delete_file(file, of, Some(of + 1)).unwrap(),
            _ => writer.add_file(file, old.sequence_number.unwrap_or(-1)).unwrap(),
        }
    }
    let mut file = writer.write_manifest_file().await.unwrap();
    file.sequence_number = 20 + number as i64;
    file.min_sequence_number = 0;
    file.first_row_id = first_row_id.filter(|_| is_data && is_v3);
    file
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is merged with what, every live entry is there afterwards, with all that it said or inherited.
    #[test]
    fn merging_changes_no_live_entry(
        olds in old_manifests(),
        is_v3 in any::<bool>(),
        target in 1_u64..60_000,
        min_count in 0_usize..8,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let catalog = TestCatalog::new(if is_v3 { FormatVersion::V3 } else { FormatVersion::V2 });
            set(&catalog, &[
                ("commit.manifest.target-size-bytes", &target.to_string()),
                ("commit.manifest.min-count-to-merge", &min_count.to_string()),
            ]);
            let base = catalog.now();
            let mut carried = Vec::new();
            for (number, (is_data, first_row_id, entries)) in olds.iter().enumerate() {
                carried.push(write_old(&base, number, *is_data, *first_row_id, entries).await);
            }
            let expected = live(&catalog, &carried).await;
            let mut own = write_old(&base, 99, true, None, &[]).await;
            own.sequence_number = -1;
            let new = NewSnapshot {
                id: 7,
                added: Added::default(),
                manifests: vec![own],
                folder: metadata_location(&base.metadata),
            };
            let merged = merge(&base, &new, carried.clone(), 0).await.unwrap();
            assert_eq!(merged.list[0], new.manifests[0]);
            // As the manifest list gives it.
            let mut listed = merged.list[1..].to_vec();
            listed.iter_mut().filter(|file| file.sequence_number < 0).for_each(|file| file.sequence_number = 500);
            let found = live(&catalog, &listed).await;
            assert_eq!(found, expected);
            // Others are carried over as they are, merged ones count and bound what they have.
            let mut counts = HashMap::new();
            for file in &merged.list[1..] {
                if !merged.merged.contains(&file.manifest_path) {
                    assert!(carried.contains(file));
                    continue;
                }
                let entries = live(&catalog, &[ManifestFile { sequence_number: 500, ..file.clone() }]).await;
                let rows: u64 = entries.values().map(|entry| entry.file.record_count()).sum();
                assert_eq!(file.existing_files_count, Some(entries.len() as u32));
                assert_eq!(file.existing_rows_count, Some(rows));
                assert_eq!((file.added_files_count, file.deleted_files_count), (Some(0), Some(0)));
                let min = entries.values().filter_map(|entry| entry.sequence_number).min();
                assert_eq!(Some(file.min_sequence_number), min);
                assert_eq!((file.first_row_id, file.added_snapshot_id), (None, 7));
                counts.insert(file.manifest_path.clone(), entries.len());
            }
            assert_eq!(counts.len(), merged.merged.len());
            let left = catalog.files("metadata").await.into_iter().filter(|file| file.ends_with("-merged.avro")).count();
            assert_eq!(left, merged.merged.len());
        });
    }
}
