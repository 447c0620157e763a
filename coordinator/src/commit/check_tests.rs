//! Position deletes and deletion vectors of an epoch: what is committed of them, and what is refused.

use iceberg::spec::{DataContentType, DataFileFormat, FormatVersion, Operation};
use iceferry_common::model::{RunId, StagedFile};

use super::attempt::read_manifest_list;
use super::testing::{POLICY, TestCatalog, epoch_commit, positions_file};
use super::*;

fn run() -> RunId {
    RunId("r1".to_owned())
}

/// The location of a file beside staged data files of epoch 0.
fn beside(data: &StagedFile, name: &str) -> String {
    let (folder, _) = data.location.rsplit_once('/').unwrap();
    format!("{folder}/000000-000000-0-{name}")
}

async fn commit(catalog: &TestCatalog, staged: Vec<StagedFile>) -> Result<Committed, CommitError> {
    let commit = epoch_commit(&catalog.now(), &run(), 0, None, 1, staged);
    commit_epoch(catalog, catalog.now(), &commit, &POLICY).await
}

fn entries(done: &Committed) -> &std::collections::HashMap<String, String> {
    &done.table.metadata.current_snapshot().unwrap().summary().additional_properties
}

fn expect_entries(done: &Committed, expected: &[(&str, Option<&str>)]) {
    for (key, value) in expected {
        assert_eq!(entries(done).get(*key).map(String::as_str), *value, "{key}");
    }
}

#[tokio::test]
async fn position_deletes_and_their_data_files_are_one_snapshot() {
    let catalog = TestCatalog::new(FormatVersion::V2);
    let mut staged = catalog.stage(&run(), 0, 2, 1).await;
    let of = staged[0].location.clone();
    staged.push(positions_file(&beside(&staged[0], "00003-positions.parquet"), Some(&of), None, 3));
    staged.push(positions_file(&beside(&staged[0], "00004-positions.parquet"), None, None, 4));
    let done = commit(&catalog, staged).await.unwrap();
    assert_eq!(done.table.metadata.current_snapshot().unwrap().summary().operation, Operation::Overwrite);
    expect_entries(
        &done,
        &[
            ("added-data-files", Some("2")),
            ("added-delete-files", Some("3")),
            ("added-equality-delete-files", Some("1")),
            ("added-equality-deletes", Some("10")),
            ("added-position-delete-files", Some("2")),
            ("added-position-deletes", Some("7")),
            ("added-dvs", None),
            ("added-files-size", Some("2300")),
            ("total-delete-files", Some("3")),
            ("total-position-deletes", Some("7")),
            ("total-equality-deletes", Some("10")),
        ],
    );
    assert_eq!(catalog.live(&done.table.metadata).await.1.len(), 3);
    catalog.audit().await;
}

#[tokio::test]
async fn vectors_of_one_puffin_file_are_committed_each_with_its_place() {
    let catalog = TestCatalog::new(FormatVersion::V3);
    let mut staged = catalog.stage(&run(), 0, 3, 0).await;
    let puffin = beside(&staged[0], "00009-vectors.puffin");
    let of: Vec<String> = staged.iter().map(|file| file.location.clone()).collect();
    staged.push(positions_file(&puffin, Some(&of[1]), Some(4), 5));
    staged.push(positions_file(&puffin, Some(&of[0]), Some(44), 6));
    let done = commit(&catalog, staged).await.unwrap();
    expect_entries(
        &done,
        &[
            ("added-delete-files", Some("2")),
            ("added-dvs", Some("2")),
            ("added-position-delete-files", None),
            ("added-position-deletes", Some("11")),
            // The vectors' own bytes count, not those of their file twice.
            ("added-files-size", Some("380")),
            ("total-delete-files", Some("2")),
            ("total-position-deletes", Some("11")),
        ],
    );
    let metadata = &done.table.metadata;
    let list = read_manifest_list(&catalog.storage, metadata, metadata.current_snapshot().unwrap()).await.unwrap();
    let deletes = list.iter().find(|manifest| manifest.content == iceberg::spec::ManifestContentType::Deletes).unwrap();
    let deletes = deletes.load_manifest(&catalog.storage.file_io()).await.unwrap();
    let found: Vec<_> = deletes.entries().iter().map(|entry| entry.data_file()).collect();
    assert_eq!(found.len(), 2);
    for (file, (of, offset, deleted)) in found.into_iter().zip([(&of[1], 4, 5), (&of[0], 44, 6)]) {
        assert_eq!(file.file_path(), puffin);
        assert_eq!(
            (file.content_type(), file.file_format()),
            (DataContentType::PositionDeletes, DataFileFormat::Puffin)
        );
        assert_eq!(file.referenced_data_file().as_ref(), Some(of));
        assert_eq!((file.content_offset(), file.content_size_in_bytes()), (Some(offset), Some(40)));
        assert_eq!((file.record_count(), file.file_size_in_bytes()), (deleted, 1_000));
    }
    catalog.audit().await;
}

#[tokio::test]
async fn position_deletes_that_break_a_promise_are_refused_by_name() {
    type Make = fn(&[StagedFile]) -> Vec<StagedFile>;
    type Case = (&'static str, FormatVersion, Make, fn(&StagedProblem) -> bool);
    fn puffin(data: &[StagedFile], of: usize, at: i64) -> StagedFile {
        positions_file(&beside(&data[0], "00009-vectors.puffin"), Some(&data[of].location), Some(at), 2)
    }
    fn parquet(data: &[StagedFile], of: Option<&str>) -> StagedFile {
        positions_file(&beside(&data[0], "00009-positions.parquet"), of, None, 2)
    }
    let cases: [Case; 14] = [
        (
            "a vector in v2",
            FormatVersion::V2,
            |data| vec![puffin(data, 0, 4)],
            |problem| matches!(problem, StagedProblem::VectorTooEarly(_)),
        ),
        (
            "a position delete file in v3",
            FormatVersion::V3,
            |data| vec![parquet(data, None)],
            |problem| matches!(problem, StagedProblem::PositionsTooLate(_)),
        ),
        (
            "a vector of another epoch's file",
            FormatVersion::V3,
            |data| vec![positions_file(&beside(&data[0], "v.puffin"), Some("/t/data/old.parquet"), Some(4), 2)],
            |problem| matches!(problem, StagedProblem::ForeignDataFile(file) if file == "/t/data/old.parquet"),
        ),
        (
            "positions of another epoch's file",
            FormatVersion::V2,
            |data| vec![parquet(data, Some("/t/data/old.parquet"))],
            |problem| matches!(problem, StagedProblem::ForeignDataFile(_)),
        ),
        (
            "a vector of nothing",
            FormatVersion::V3,
            |data| vec![positions_file(&beside(&data[0], "v.puffin"), None, Some(4), 2)],
            |problem| matches!(problem, StagedProblem::VectorOfNothing),
        ),
        (
            "two vectors of one file",
            FormatVersion::V3,
            |data| vec![puffin(data, 0, 4), puffin(data, 0, 44)],
            |problem| matches!(problem, StagedProblem::SecondVector(_)),
        ),
        (
            "two vectors in one place",
            FormatVersion::V3,
            |data| vec![puffin(data, 0, 4), puffin(data, 1, 4)],
            |problem| matches!(problem, StagedProblem::SamePlace(4)),
        ),
        (
            "a vector behind the end",
            FormatVersion::V3,
            |data| vec![puffin(data, 0, 961)],
            |problem| matches!(problem, StagedProblem::VectorPlace { offset: Some(961), .. }),
        ),
        (
            "a vector before the start",
            FormatVersion::V3,
            |data| vec![puffin(data, 0, -1)],
            |problem| matches!(problem, StagedProblem::VectorPlace { .. }),
        ),
        (
            "a vector of more rows than there are",
            FormatVersion::V3,
            |data| vec![positions_file(&beside(&data[0], "v.puffin"), Some(&data[0].location), Some(4), 11)],
            |problem| matches!(problem, StagedProblem::TooManyDeleted { deleted: 11, rows: 10, .. }),
        ),
        (
            "positions handed in twice",
            FormatVersion::V2,
            |data| vec![parquet(data, None); 2],
            |problem| matches!(problem, StagedProblem::Twice),
        ),
        (
            "a vector where a data file is",
            FormatVersion::V3,
            |data| vec![positions_file(&data[1].location, Some(&data[0].location), Some(4), 2)],
            |problem| matches!(problem, StagedProblem::Twice),
        ),
        (
            "a data file with a place",
            FormatVersion::V3,
            |data| vec![StagedFile { content: iceferry_common::model::StagedContent::Data, ..puffin(data, 0, 4) }],
            |problem| matches!(problem, StagedProblem::Contradiction { what: "content", .. }),
        ),
        (
            "a vector that is called positions",
            FormatVersion::V2,
            |data| {
                vec![StagedFile {
                    content: iceferry_common::model::StagedContent::PositionDeletes,
                    ..puffin(data, 0, 4)
                }]
            },
            |problem| matches!(problem, StagedProblem::Contradiction { what: "format", .. }),
        ),
    ];
    for (name, version, make, is_it) in cases {
        let catalog = TestCatalog::new(version);
        let data = catalog.stage(&run(), 0, 2, 0).await;
        let staged = data.iter().cloned().chain(make(&data)).collect();
        let error = commit(&catalog, staged).await.unwrap_err();
        assert!(matches!(&error, CommitError::Staged { problem, .. } if is_it(problem)), "{name}: {error}");
        assert_eq!((catalog.commits(), catalog.files("metadata/iceferry").await.len()), (0, 0), "{name}");
    }
}

#[tokio::test]
async fn files_of_vectors_that_were_refused_are_removed_once_each() {
    let catalog = TestCatalog::new(FormatVersion::V3);
    let marker = start_run(&catalog.now(), &testing::job(), &run()).await.unwrap();
    let mut staged = catalog.stage(&run(), 0, 2, 0).await;
    let puffin = beside(&staged[0], "00009-vectors.puffin");
    catalog.storage.write(&puffin, bytes::Bytes::from_static(b"PFA1")).await.unwrap();
    for (at, of) in [(4, 0), (44, 1)] {
        let of = staged[of].location.clone();
        staged.push(positions_file(&puffin, Some(&of), Some(at), 2));
    }
    catalog.script([testing::Answer::Refused]);
    commit(&catalog, staged.clone()).await.unwrap_err();
    let removed = clean_up_own(&catalog, &catalog.now(), &testing::job(), &marker).await.unwrap();
    assert_eq!((removed.files, catalog.files("data").await.len()), (3, 0));

    // And those that are in the table stay, however many vectors they hold.
    let mut staged = catalog.stage(&run(), 0, 2, 0).await;
    catalog.storage.write(&puffin, bytes::Bytes::from_static(b"PFA1")).await.unwrap();
    let of = staged[1].location.clone();
    staged.push(positions_file(&puffin, Some(&of), Some(4), 2));
    let done = commit(&catalog, staged).await.unwrap();
    let removed = clean_up_own(&catalog, &done.table, &testing::job(), &marker).await.unwrap();
    assert_eq!((removed.files, catalog.files("data").await.len()), (0, 3));
}
