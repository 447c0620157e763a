//! What consecutive epochs read: each manifest list once, and the manifests that changed.

use std::sync::Arc;

use super::model::{Commit, Table, row, run};
use crate::plan::ManifestLists;

#[tokio::test]
async fn consecutive_epochs_read_each_list_once_and_open_what_changed() {
    const SNAPSHOTS: i32 = 100;
    let mut table = Table::new(2);
    for number in 0..SNAPSHOTS {
        let file = Arc::new(table.file(0, None, vec![row(number, 0, 0)]));
        table.commit(Commit { added: vec![(file, None)], operation: "append", ..Commit::default() }).await;
    }
    let states: Vec<_> = table.states.iter().map(|(id, _)| *id).collect();
    let metadata = table.metadata();
    let lists = ManifestLists::default();
    let (mut lists_read, mut manifests_opened) = (0, 0);
    for ends in states.windows(2) {
        let mut request = table.request(Some(ends[0]), ends[1]);
        request.manifest_lists = lists.clone();
        let (tasks, summary) = run(request).await.unwrap();
        assert_eq!(table.interpret(&tasks), table.expected(Some(ends[0]), ends[1]), "to {}", ends[1]);
        lists_read += summary.manifest_lists_read;
        manifests_opened += summary.manifests_opened;
        // Whoever read it again would fail.
        std::fs::remove_file(metadata.snapshot_by_id(ends[1].0).unwrap().manifest_list()).unwrap();
    }
    let snapshots = u64::try_from(SNAPSHOTS).unwrap();
    assert_eq!((lists_read, manifests_opened), (snapshots, snapshots - 1));
}
