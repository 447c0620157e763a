//! Metadata files as they are read: counted, and never short of an entry without a word.

use iceferry_common::fault::{Class, Classified};

use super::model::{Commit, Table, row};

/// A table of one snapshot with one file, and where its manifest list is.
async fn small() -> (Table, iceferry_common::model::SnapshotId, String) {
    let mut table = Table::new(2);
    let file = std::sync::Arc::new(table.file(0, None, vec![row(1, 0, 0)]));
    let commit = Commit { added: vec![(file, None)], operation: "append", ..Commit::default() };
    let snapshot = table.commit(commit).await;
    let list = table.request(None, snapshot).metadata.snapshot_by_id(snapshot.0).unwrap().manifest_list().to_owned();
    (table, snapshot, list)
}

#[tokio::test]
async fn the_bytes_of_lists_and_manifests_are_counted() {
    let (table, snapshot, list) = small().await;
    let manifest = table.state().manifests[0].file.manifest_path.clone();
    let bytes: u64 = [&list, &manifest].iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let (_, summary) = table.plan(None, snapshot).await.unwrap();
    assert_eq!(summary.metadata_bytes_read, bytes);
}

#[tokio::test]
async fn a_manifest_list_that_a_reader_would_cut_short_is_corrupt() {
    let (table, snapshot, list) = small().await;
    let mut bytes = std::fs::read(&list).unwrap();
    // The marker ends the header and each block; an empty block is put between the two.
    let marker = bytes[bytes.len() - 16..].to_vec();
    let header = bytes.windows(16).position(|window| window == marker).unwrap() + 16;
    let empty: Vec<u8> = [0, 0].into_iter().chain(marker).collect();
    bytes.splice(header..header, empty);
    std::fs::write(&list, bytes).unwrap();
    let error = table.plan(None, snapshot).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains(&list), "{error}");
}
