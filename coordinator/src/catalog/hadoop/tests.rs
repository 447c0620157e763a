//! The hadoop catalog against folders that other tools, and crashes, may leave.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::super::testing::{self, chain_in_parallel, committed, count_in_parallel, number, set, set_once, table};
use super::*;

fn catalog(warehouse: &str) -> Arc<dyn Catalog> {
    let properties = HashMap::from([("warehouse".to_owned(), warehouse.to_owned())]);
    Arc::new(HadoopCatalog::open(&Properties(properties)).unwrap())
}

struct Place {
    folder: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    table: TableIdent,
}

impl Place {
    async fn new(properties: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&format!("file://{}", folder.path().display()));
        let table = table(&["ns"], "t");
        catalog.ensure_namespace(table.namespace()).await.unwrap();
        catalog.ensure_table(&table, testing::creation(properties)).await.unwrap();
        Self { folder, catalog, table }
    }

    fn metadata(&self, name: &str) -> PathBuf {
        self.folder.path().join("ns/t/metadata").join(name)
    }

    async fn set(&self, key: &str, value: &str) -> LoadedTable {
        committed(set_once(&*self.catalog, &self.table, key, value).await)
    }

    async fn load(&self) -> LoadedTable {
        self.catalog.load_table(&self.table).await.unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.metadata("")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_new_table_is_version_one_with_a_hint() {
    let place = Place::new(&[]).await;
    assert_eq!(place.names(), ["v1.metadata.json", "version-hint.text"]);
    assert_eq!(std::fs::read_to_string(place.metadata("version-hint.text")).unwrap(), "1");
    let loaded = place.load().await;
    assert_eq!(loaded.metadata_location, format!("file://{}", place.metadata("v1.metadata.json").display()));
    assert_eq!(loaded.metadata.location(), format!("file://{}/ns/t", place.folder.path().display()));
    let again = place.catalog.ensure_table(&place.table, testing::creation(&[("other", "1")])).await.unwrap();
    assert_eq!(again.metadata, loaded.metadata);
}

#[tokio::test]
async fn a_commit_is_the_next_version_and_its_base_is_in_the_log() {
    let place = Place::new(&[]).await;
    let base = place.load().await;
    let after = place.set("a", "1").await;
    assert_eq!(after.metadata.metadata_log()[0].metadata_file, base.metadata_location);
    assert_eq!(place.load().await.metadata, after.metadata);
    assert_eq!(std::fs::read_to_string(place.metadata("version-hint.text")).unwrap(), "2");
}

#[tokio::test]
async fn a_stale_base_conflicts_and_leaves_nothing() {
    let place = Place::new(&[]).await;
    let base = place.load().await;
    place.set("a", "1").await;
    let before = place.names();
    let outcome = place.catalog.commit(&base, vec![], vec![set("a", "2")]).await;
    assert!(matches!(outcome, CommitOutcome::Conflicted), "{outcome:?}");
    assert_eq!(place.names(), before);
    assert_eq!(number(&place.load().await, "a"), 1);
}

#[tokio::test]
async fn a_hint_that_is_stale_ahead_garbage_or_gone_does_not_matter() {
    let place = Place::new(&[]).await;
    for value in 1..=40 {
        place.set("n", &value.to_string()).await;
    }
    for hint in ["40", "41", "1", "99", "seven", ""] {
        std::fs::write(place.metadata("version-hint.text"), hint).unwrap();
        assert_eq!(number(&place.load().await, "n"), 40, "{hint:?}");
    }
    std::fs::remove_file(place.metadata("version-hint.text")).unwrap();
    assert_eq!(number(&place.load().await, "n"), 40);
    std::fs::create_dir(place.metadata("version-hint.text")).unwrap();
    assert_eq!(number(&place.set("n", "41").await, "n"), 41);
    assert_eq!(number(&place.load().await, "n"), 41);
}

#[tokio::test]
async fn a_hint_to_a_version_that_was_removed_does_not_matter() {
    let place = Place::new(&[]).await;
    for value in 1..=5 {
        place.set("n", &value.to_string()).await;
    }
    for old in 1..=3 {
        std::fs::remove_file(place.metadata(&format!("v{old}.metadata.json"))).unwrap();
    }
    std::fs::write(place.metadata("version-hint.text"), "2").unwrap();
    assert_eq!(number(&place.load().await, "n"), 5);
    assert_eq!(number(&place.set("n", "6").await, "n"), 6);
}

#[tokio::test]
async fn a_writer_killed_before_the_hint_has_committed() {
    let place = Place::new(&[]).await;
    place.set("n", "1").await;
    std::fs::write(place.metadata("version-hint.text"), "1").unwrap();
    assert_eq!(number(&place.load().await, "n"), 1);
    assert_eq!(number(&place.set("n", "2").await, "n"), 2);
    assert!(place.metadata("v3.metadata.json").exists());
}

#[tokio::test]
async fn compressed_metadata_is_written_and_read_in_every_spelling() {
    let place = Place::new(&[("write.metadata.compression-codec", "gzip")]).await;
    place.set("n", "1").await;
    assert_eq!(place.names(), ["v1.gz.metadata.json", "v2.gz.metadata.json", "version-hint.text"]);
    assert_eq!(&std::fs::read(place.metadata("v2.gz.metadata.json")).unwrap()[..2], b"\x1f\x8b");
    std::fs::rename(place.metadata("v2.gz.metadata.json"), place.metadata("v2.metadata.json.gz")).unwrap();
    assert_eq!(number(&place.load().await, "n"), 1);
    assert_eq!(number(&place.set("n", "2").await, "n"), 2);
}

#[tokio::test]
async fn a_version_that_is_there_in_another_spelling_is_taken() {
    let place = Place::new(&[]).await;
    let base = place.load().await;
    std::fs::copy(place.metadata("v1.metadata.json"), place.metadata("v2.gz.metadata.json")).unwrap();
    let outcome = place.catalog.commit(&base, vec![], vec![set("a", "1")]).await;
    assert!(matches!(outcome, CommitOutcome::Conflicted), "{outcome:?}");
    assert!(!place.metadata("v2.metadata.json").exists());
    let folder = Folder { storage: &base.storage, location: format!("{}/metadata", base.metadata.location()) };
    let encoded = metadata::encode(&base.metadata, "commit").unwrap();
    let published = folder.publish(2, &encoded, "commit").await;
    assert!(matches!(published, Published::Taken), "{published:?}");
    assert!(!place.metadata("v2.metadata.json").exists());
}

#[tokio::test]
async fn one_far_behind_does_not_fill_a_version_that_was_removed() {
    let place = Place::new(&[
        ("write.metadata.previous-versions-max", "1"),
        ("write.metadata.delete-after-commit.enabled", "true"),
    ])
    .await;
    let base = place.load().await;
    for value in 1..=5 {
        place.set("n", &value.to_string()).await;
    }
    assert_eq!(place.names(), ["v5.metadata.json", "v6.metadata.json", "version-hint.text"]);
    let outcome = place.catalog.commit(&base, vec![], vec![set("n", "9")]).await;
    assert!(matches!(outcome, CommitOutcome::Conflicted), "{outcome:?}");
    assert_eq!(number(&place.load().await, "n"), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_committers_at_once_count_exactly() {
    let place = Place::new(&[]).await;
    let warehouse = place.folder.path().display().to_string();
    let catalogs = (0..8).map(|_| catalog(&warehouse)).collect();
    count_in_parallel(catalogs, &place.table, 5).await;
    assert!(place.metadata("v41.metadata.json").exists());
    assert!(!place.metadata("v42.metadata.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn snapshots_of_many_committers_are_one_chain_in_every_format_version() {
    let folder = tempfile::tempdir().unwrap();
    let catalogs: Vec<_> = (0..4).map(|_| catalog(&folder.path().display().to_string())).collect();
    for format_version in [iceberg::spec::FormatVersion::V2, iceberg::spec::FormatVersion::V3] {
        let table = table(&["ns"], &format_version.to_string());
        let creation = TableCreation { format_version, ..testing::creation(&[]) };
        catalogs[0].ensure_table(&table, creation).await.unwrap();
        chain_in_parallel(catalogs.clone(), &table, 5).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_creators_one_wins_and_both_get_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&folder.path().display().to_string());
    let table = table(&["ns"], "t");
    let (one, other) = tokio::join!(
        catalog.ensure_table(&table, testing::creation(&[])),
        catalog.ensure_table(&table, testing::creation(&[]))
    );
    assert_eq!(one.unwrap().metadata.uuid(), other.unwrap().metadata.uuid());
}

#[tokio::test]
async fn odd_names_are_folders_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(&folder.path().display().to_string());
    for (namespace, name) in [(vec!["my ns"], "a.b"), (vec!["a", "b.c"], "data#1"), (vec!["ü"], "a b%20c=%")] {
        let table = table(&namespace, name);
        catalog.ensure_namespace(table.namespace()).await.unwrap();
        catalog.ensure_table(&table, testing::creation(&[])).await.unwrap();
        committed(set_once(&*catalog, &table, "n", "1").await);
        assert_eq!(number(&catalog.load_table(&table).await.unwrap(), "n"), 1);
        assert!(folder.path().join(namespace.join("/")).join(name).join("metadata/v2.metadata.json").exists());
    }
    let error = catalog.load_table(&table(&["ns"], "../t")).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
}

#[tokio::test]
async fn what_is_missing_or_broken_is_named() {
    let place = Place::new(&[]).await;
    let error = place.catalog.load_table(&table(&["ns"], "none")).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert!(error.to_string().starts_with("table ns.none is not in the hadoop catalog at file:///"), "{error}");
    let missing = place.folder.path().join("nowhere").display().to_string();
    let error = catalog(&missing).load_table(&place.table).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert!(error.to_string().contains("the warehouse /"), "{error}");
    std::fs::write(place.metadata("v2.metadata.json"), "{\"format-version\": 2, ").unwrap();
    let error = place.catalog.load_table(&place.table).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains("v2.metadata.json"), "{error}");
}

#[tokio::test]
async fn a_table_cannot_be_moved() {
    let place = Place::new(&[]).await;
    let base = place.load().await;
    let updates = vec![TableUpdate::SetLocation { location: "/elsewhere".into() }];
    let outcome = place.catalog.commit(&base, vec![], updates).await;
    assert!(matches!(outcome, CommitOutcome::Refused(_)), "{outcome:?}");
}

/// Root may write everywhere, so this is seen only where tests run as somebody else.
#[tokio::test]
async fn a_warehouse_that_may_not_be_written_fails_only_when_something_is_to_be_made() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(&[]).await;
    let make_writable = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    make_writable(place.folder.path(), 0o555);
    let refused = std::fs::create_dir(place.folder.path().join("probe")).is_err();
    place.catalog.ensure_namespace(place.table.namespace()).await.unwrap();
    let outcome = place.catalog.ensure_namespace(&NamespaceIdent::new("new".into())).await;
    make_writable(place.folder.path(), 0o755);
    if refused {
        assert_eq!(outcome.unwrap_err().class(), Class::Denied);
    }
}
