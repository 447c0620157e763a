//! The SQL catalog on SQLite, and on PostgreSQL where there is one.

use std::collections::HashMap;
use std::path::Path;

use iceferry_common::fault::{Class, Classified};

use super::super::testing::{self, committed, count_in_parallel, number, set, set_once, table};
use super::*;

fn catalog(folder: &Path, more: &[(&str, &str)]) -> Arc<SqlCatalog> {
    let uri = format!("sqlite:///{}/catalog.db", folder.display());
    let warehouse = format!("{}/w", folder.display());
    let pairs = [("uri", uri.as_str()), ("warehouse", warehouse.as_str())];
    let pairs = pairs.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Arc::new(SqlCatalog::open(&Properties(pairs.collect())).unwrap())
}

struct Here {
    folder: tempfile::TempDir,
    catalog: Arc<SqlCatalog>,
    table: TableIdent,
}

impl Here {
    async fn new(properties: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(folder.path(), &[]);
        let table = table(&["a", "b"], "t");
        catalog.ensure_namespace(table.namespace()).await.unwrap();
        catalog.ensure_table(&table, testing::creation(properties)).await.unwrap();
        Self { folder, catalog, table }
    }

    fn metadata_files(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("w/a/b/t/metadata")).unwrap().count()
    }

    async fn rows(&self, sql: &str) -> Vec<database::Row> {
        self.catalog.database.rows("test", sql, &[]).await.unwrap()
    }

    async fn execute(&self, sql: &str) {
        self.catalog.database.change("test", sql, &[]).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_table_has_a_row_as_other_tools_write_it() {
    let here = Here::new(&[]).await;
    let loaded = here.catalog.load_table(&here.table).await.unwrap();
    let rows = here.rows("SELECT * FROM iceberg_tables").await;
    let expected = [Some("default"), Some("a.b"), Some("t"), Some(&*loaded.metadata_location), None, Some("TABLE")];
    assert_eq!(rows, [expected.map(|value| value.map(str::to_owned)).to_vec()]);
    let rows = here.rows("SELECT * FROM iceberg_namespace_properties").await;
    assert_eq!(rows, [["default", "a.b", "exists", "true"].map(|value| Some(value.to_owned())).to_vec()]);
    assert_eq!(loaded.metadata.location(), format!("{}/w/a/b/t", here.folder.path().display()));
    let again = here.catalog.ensure_table(&here.table, testing::creation(&[("other", "1")])).await.unwrap();
    assert_eq!(again.metadata, loaded.metadata);
    here.catalog.ensure_namespace(here.table.namespace()).await.unwrap();
}

#[tokio::test]
async fn a_commit_swaps_the_location_and_keeps_the_one_before() {
    let here = Here::new(&[]).await;
    let base = here.catalog.load_table(&here.table).await.unwrap();
    let after = committed(set_once(&*here.catalog, &here.table, "n", "1").await);
    let rows = here.rows("SELECT metadata_location, previous_metadata_location FROM iceberg_tables").await;
    assert_eq!(rows, [vec![Some(after.metadata_location.clone()), Some(base.metadata_location.clone())]]);
    assert!(after.metadata_location.contains("/metadata/00001-"));
    let loaded = here.catalog.load_table(&here.table).await.unwrap();
    assert_eq!(loaded.metadata, after.metadata);
    assert_eq!(loaded.metadata.metadata_log()[0].metadata_file, base.metadata_location);
}

#[tokio::test]
async fn a_stale_base_conflicts_and_leaves_no_file() {
    let here = Here::new(&[]).await;
    let base = here.catalog.load_table(&here.table).await.unwrap();
    committed(set_once(&*here.catalog, &here.table, "n", "1").await);
    let files = here.metadata_files();
    let outcome = here.catalog.commit(&base, vec![], vec![set("n", 2)]).await;
    assert!(matches!(outcome, CommitOutcome::Conflicted), "{outcome:?}");
    assert_eq!(here.metadata_files(), files);
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_leaves_no_file() {
    let here = Here::new(&[]).await;
    here.execute("CREATE TRIGGER t BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE(ABORT, 'no'); END").await;
    let files = here.metadata_files();
    let outcome = set_once(&*here.catalog, &here.table, "n", "1").await;
    assert!(matches!(outcome, CommitOutcome::Refused(_)), "{outcome:?}");
    assert_eq!(here.metadata_files(), files);
    // A swap that finds the row changed after the first look: the row stays as it is, and so does the other's file.
    here.execute("DROP TRIGGER t").await;
    here.execute("CREATE TRIGGER u BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE(IGNORE); END").await;
    let outcome = set_once(&*here.catalog, &here.table, "n", "1").await;
    assert!(matches!(outcome, CommitOutcome::Conflicted), "{outcome:?}");
    assert_eq!(here.metadata_files(), files);
    assert_eq!(number(&here.catalog.load_table(&here.table).await.unwrap(), "n"), 0);
}

#[tokio::test]
async fn a_failing_commit_of_the_transaction_is_unknown_and_keeps_its_file() {
    let here = Here::new(&[]).await;
    // A deferred constraint is checked by COMMIT itself.
    here.execute("CREATE TABLE parent (id TEXT PRIMARY KEY)").await;
    here.execute("CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)").await;
    here.execute("CREATE TRIGGER t AFTER UPDATE ON iceberg_tables BEGIN INSERT INTO child VALUES ('none'); END").await;
    let files = here.metadata_files();
    let outcome = set_once(&*here.catalog, &here.table, "n", "1").await;
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(here.metadata_files(), files + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_committers_at_once_count_exactly() {
    let here = Here::new(&[]).await;
    let catalogs = (0..8).map(|_| catalog(here.folder.path(), &[]) as Arc<dyn Catalog>).collect();
    count_in_parallel(catalogs, &here.table, 5).await;
    assert_eq!(here.metadata_files(), 41, "losers leave no files");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_creators_one_wins_and_both_get_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (catalog(folder.path(), &[]), catalog(folder.path(), &[]));
    let table = table(&["ns"], "t");
    let (one, other) = tokio::join!(
        one.ensure_table(&table, testing::creation(&[])),
        other.ensure_table(&table, testing::creation(&[]))
    );
    assert_eq!(one.unwrap().metadata.uuid(), other.unwrap().metadata.uuid());
    assert_eq!(std::fs::read_dir(folder.path().join("w/ns/t/metadata")).unwrap().count(), 1);
}

#[tokio::test]
async fn the_older_layout_is_read_and_written_as_it_is() {
    let here = Here::new(&[]).await;
    here.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type").await;
    committed(set_once(&*here.catalog, &here.table, "n", "1").await);
    let other = table(&["a", "b"], "other");
    here.catalog.ensure_table(&other, testing::creation(&[])).await.unwrap();
    assert_eq!(here.rows("SELECT * FROM iceberg_tables").await[0].len(), 5);
    assert_eq!(here.catalog.load_table(&other).await.unwrap().ident, other);
}

#[tokio::test]
async fn rows_without_a_type_are_tables_and_views_are_not_opened() {
    let here = Here::new(&[]).await;
    here.execute("UPDATE iceberg_tables SET iceberg_type = NULL").await;
    committed(set_once(&*here.catalog, &here.table, "n", "1").await);
    here.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'").await;
    let error = here.catalog.load_table(&here.table).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("it is a view"), "{error}");
}

#[tokio::test]
async fn the_only_catalog_name_is_used_and_several_are_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(&["ns"], "t");
    let prod = catalog(folder.path(), &[("catalog_name", "prod")]);
    prod.ensure_table(&table, testing::creation(&[])).await.unwrap();
    let unnamed = catalog(folder.path(), &[]);
    assert!(unnamed.load_table(&table).await.is_ok());
    let error = catalog(folder.path(), &[("catalog_name", "dev")]).load_table(&table).await.unwrap_err();
    assert!(error.to_string().contains("sql catalog dev in sqlite:"), "{error}");
    let dev = catalog(folder.path(), &[("catalog_name", "dev")]);
    dev.ensure_namespace(table.namespace()).await.unwrap();
    let error = unnamed.load_table(&table).await.unwrap_err();
    assert_eq!(error.class(), Class::Config);
    assert!(error.to_string().contains("dev, prod"), "{error}");
}

#[tokio::test]
async fn asking_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = catalog(folder.path(), &[]);
    let table = table(&["ns"], "t");
    let error = catalog.load_table(&table).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert!(error.to_string().contains("the database sqlite:/"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(folder.path().join("catalog.db"), "").unwrap();
    let error = catalog.load_table(&table).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert!(error.to_string().contains("iceberg_tables"), "{error}");
    assert_eq!(std::fs::metadata(folder.path().join("catalog.db")).unwrap().len(), 0);
    std::fs::write(folder.path().join("catalog.db"), "this is no database at all, it is some text").unwrap();
    let error = catalog.load_table(&table).await.unwrap_err();
    assert_eq!(error.class(), Class::Corrupt, "{error}");
}

#[tokio::test]
async fn the_namespaces_own_location_comes_first() {
    let here = Here::new(&[]).await;
    let elsewhere = format!("{}/elsewhere/", here.folder.path().display());
    here.execute(&format!(
        "INSERT INTO iceberg_namespace_properties VALUES ('default','a.b','location','{elsewhere}')"
    ))
    .await;
    let made = here.catalog.ensure_table(&table(&["a", "b"], "x.y z"), testing::creation(&[])).await.unwrap();
    assert_eq!(made.metadata.location(), format!("{elsewhere}x.y z"));
}

#[tokio::test]
async fn compressed_metadata_is_written_and_read() {
    let here = Here::new(&[("write.metadata.compression-codec", "gzip")]).await;
    let after = committed(set_once(&*here.catalog, &here.table, "n", "1").await);
    assert!(after.metadata_location.ends_with(".gz.metadata.json"));
    assert_eq!(number(&here.catalog.load_table(&here.table).await.unwrap(), "n"), 1);
}

/// What a server does differently: waiting for row locks, errors, types. Needs a server, and leaves its tables behind
/// under a name of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_counts_exactly_too() {
    let Ok(uri) = std::env::var("ICEFERRY_TEST_POSTGRES_URI") else {
        eprintln!("LEFT OUT: postgres_counts_exactly_too, for ICEFERRY_TEST_POSTGRES_URI is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let name = uuid::Uuid::new_v4().to_string();
    let warehouse = folder.path().display().to_string();
    let open = |name: &str| {
        let pairs = [("uri", uri.as_str()), ("warehouse", &warehouse), ("catalog_name", name)];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Arc::new(SqlCatalog::open(&Properties(HashMap::from(pairs))).unwrap()) as Arc<dyn Catalog>
    };
    let table = table(&["a", "b"], "t");
    let catalogs: Vec<_> = (0..8).map(|_| open(&name)).collect();
    let creators = catalogs.iter().map(|catalog| async {
        catalog.ensure_namespace(table.namespace()).await.unwrap();
        catalog.ensure_table(&table, testing::creation(&[])).await.unwrap().metadata.uuid()
    });
    let mut made = futures::future::join_all(creators).await;
    made.dedup();
    assert_eq!(made.len(), 1);
    count_in_parallel(catalogs, &table, 5).await;
    let error = open("nobody").load_table(&table).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound, "{error}");
}

#[tokio::test]
async fn a_postgres_server_that_is_not_there_is_unavailable_and_shows_no_password() {
    let pairs = [("uri", "postgresql://u:hunter2@127.0.0.1:1/d"), ("warehouse", "/w")];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let catalog = SqlCatalog::open(&Properties(HashMap::from(pairs))).unwrap();
    let error = catalog.columns("load table ns.t", "iceberg_tables").await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let shown = format!("{error} {catalog:?} {}", catalog.description());
    assert!(!shown.contains("hunter2"), "{shown}");
}
