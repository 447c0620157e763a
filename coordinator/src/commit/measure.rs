//! What commits cost; ignored unless asked for, best in an optimised build:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo nextest run --workspace --lib --run-ignored only --no-capture -E 'test(measure)'`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, FormatVersion, ManifestWriterBuilder,
    NestedField, PrimitiveType, Schema, StructType, Type, deserialize_data_file_from_json, serialize_data_file_to_json,
};
use iceferry_common::model::{RunId, StagedContent, staging_folder};

use super::testing::{POLICY, TestCatalog, epoch_commit, job, staged};
use super::*;

const COLUMNS: i32 = 16;

fn wide_schema() -> Schema {
    let field = |id| {
        let of = if id % 4 == 0 { PrimitiveType::String } else { PrimitiveType::Long };
        Arc::new(NestedField::optional(id, format!("c{id}"), Type::Primitive(of)))
    };
    Schema::builder().with_fields((1..=COLUMNS).map(field)).build().unwrap()
}

fn wide_file(location: String, number: i64) -> DataFile {
    let counts = |count: u64| (1..=COLUMNS).map(|id| (id, count)).collect::<HashMap<i32, u64>>();
    let bounds = |shift: i64| {
        let bound = |id: i32| match id % 4 {
            0 => Datum::string(format!("value {:010}", number + shift)),
            _ => Datum::long((number + shift) * 1_000_003),
        };
        (1..=COLUMNS).map(|id| (id, bound(id))).collect::<HashMap<i32, Datum>>()
    };
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(location)
        .file_format(DataFileFormat::Parquet)
        .record_count(1_000_000)
        .file_size_in_bytes(130_000_000)
        .column_sizes(counts(8_123_456))
        .value_counts(counts(1_000_000))
        .null_value_counts(counts(12_345))
        .lower_bounds(bounds(0))
        .upper_bounds(bounds(100))
        .split_offsets(Some(vec![4]))
        .sort_order_id(0)
        .build()
        .unwrap()
}

/// Peak and present memory of this process in MB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap_or("0");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (of("VmHWM"), of("VmRSS"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_hundred_thousand_files() {
    let catalog = TestCatalog::with_schema(FormatVersion::V3, wide_schema());
    let r1 = RunId("r1".to_owned());
    let folder = staging_folder(&data_location(&catalog.now().metadata), &job(), &r1);
    let files = (0..100_000).map(|number| {
        let location = format!("{folder}/000000-{number:06}-0-00000-data.parquet");
        staged(&wide_file(location, number), StagedContent::Data)
    });
    let files: Vec<_> = files.collect();
    let entry_bytes: usize = files.iter().map(|file| file.data_file.len()).sum();
    let commit = epoch_commit(&catalog.now(), &r1, 0, None, 1, files);
    println!("100,000 files are staged: {} MB of entries, memory {:?} MB", entry_bytes >> 20, memory());
    let began = Instant::now();
    let done = commit_epoch(&catalog, catalog.now(), &commit, &POLICY).await.unwrap();
    println!("committed in {:?}, memory (peak, now) {:?} MB", began.elapsed(), memory());
    let avro = catalog.files("metadata/iceferry").await;
    println!("{} manifests and lists, {}", avro.len(), done.table.metadata.next_row_id());
}

/// What the iceberg crate's JSON and manifest writer would cost, for comparison.
#[tokio::test]
#[ignore = "a measurement"]
async fn ten_thousand_files_by_way_of_json_and_the_crates_writer() {
    let catalog = TestCatalog::with_schema(FormatVersion::V3, wide_schema());
    let metadata = catalog.now().metadata;
    let unpartitioned = StructType::new(Vec::new());
    let file = |number| wide_file(format!("/t/data/iceferry/orders/r1/{number:06}-0-00000-data.parquet"), number);
    let json = |number| serialize_data_file_to_json(file(number), &unpartitioned, FormatVersion::V2).unwrap();
    let texts: Vec<String> = (0..10_000).map(json).collect();
    println!("10,000 files: {} MB of JSON", texts.iter().map(String::len).sum::<usize>() >> 20);
    let began = Instant::now();
    let read =
        |text: &String| deserialize_data_file_from_json(text, 0, &unpartitioned, metadata.current_schema()).unwrap();
    let files: Vec<DataFile> = texts.iter().map(read).collect();
    println!("JSON read in {:?}", began.elapsed());
    let began = Instant::now();
    let output = catalog.storage.file_io().new_output(format!("{}/m.avro", metadata.location())).unwrap();
    let spec = metadata.default_partition_spec().as_ref().clone();
    let writer = ManifestWriterBuilder::new(output, Some(1), metadata.current_schema().clone(), spec);
    let mut writer = writer.build_v3_data();
    files.into_iter().for_each(|file| writer.add_file(file, -1).unwrap());
    writer.write_manifest_file().await.unwrap();
    println!("manifest written in {:?}", began.elapsed());
}

/// Small commits one after another, as a stream makes them; older snapshots are expired, as its owner does.
#[tokio::test]
#[ignore = "a measurement"]
async fn two_thousand_small_commits() {
    for is_merging in [false, true] {
        let catalog = TestCatalog::new(FormatVersion::V3);
        let updates = HashMap::from([("commit.manifest-merge.enabled".to_owned(), is_merging.to_string())]);
        catalog.change(vec![iceberg::TableUpdate::SetProperties { updates }]);
        let r1 = RunId("r1".to_owned());
        let mut times = Vec::new();
        for epoch in 0..2_000_u64 {
            let staged = catalog.stage(&r1, epoch, 1, 1).await;
            let after = (epoch > 0).then_some(epoch as i64);
            let commit = epoch_commit(&catalog.now(), &r1, epoch, after, epoch as i64 + 1, staged);
            let began = Instant::now();
            commit_epoch(&catalog, catalog.now(), &commit, &POLICY).await.unwrap();
            times.push(began.elapsed());
            if epoch % 50 == 49 {
                let metadata = catalog.now().metadata;
                let ids = metadata.snapshots().map(|snapshot| snapshot.snapshot_id());
                let snapshot_ids = ids.filter(|id| Some(*id) != metadata.current_snapshot_id()).collect();
                catalog.change(vec![iceberg::TableUpdate::RemoveSnapshots { snapshot_ids }]);
            }
        }
        let median = |times: &[std::time::Duration]| {
            let mut times = times.to_vec();
            times.sort();
            times[times.len() / 2]
        };
        let main = catalog.now().metadata;
        let manifests = super::attempt::read_manifest_list(&catalog.storage, &main, main.current_snapshot().unwrap());
        println!(
            "merging {is_merging}: median of commits 26 to 50 {:?}, of 1951 to 2000 {:?}, longest {:?}; {} manifests",
            median(&times[25..50]),
            median(&times[1_950..]),
            times.iter().max().unwrap(),
            manifests.await.unwrap().len()
        );
    }
}
