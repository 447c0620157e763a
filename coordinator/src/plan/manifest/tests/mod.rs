//! Manifests against the iceberg crate's reader, in every form that a writer may give them, and damaged.
//!
//! `ICEFERRY_SEED` repeats a random case, `ICEFERRY_CASES` sets how many are tried.

mod avro;
mod damage;
mod forms;
mod oracle;
mod random;

use std::ops::ControlFlow;

use iceberg::spec::{ManifestContentType, ManifestFile, TableMetadata};
use iceferry_common::filter::Filter;

pub(super) use avro::compress;

use super::super::entry::{DataEntry, Decoding, DeleteEntry, Wanted};
use super::super::error::FileProblem;
use super::super::filter::FileFilter;
use random::{Random, Sample};

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Seeds of random cases; each is printed, so that a case that fails can be tried again.
fn seeds(cases: u64) -> impl Iterator<Item = u64> {
    let cases = number_from_environment("ICEFERRY_CASES").unwrap_or(cases);
    let first = number_from_environment("ICEFERRY_SEED");
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let first = first.unwrap_or_else(clock);
    (0..cases).map(move |case| {
        let seed = first.wrapping_add(case);
        println!("ICEFERRY_SEED={seed} ICEFERRY_CASES=1");
        seed
    })
}

fn decoding(table: &TableMetadata, filter: Option<&str>) -> Decoding {
    let filter = filter.map(|text| Filter::parse(text).unwrap().bind(table.current_schema()).unwrap());
    Decoding::new(table, table.current_schema(), None, FileFilter::new(filter, table))
}

/// The data entries of a manifest, all of them.
fn data(decoding: &Decoding, of: &ManifestFile, bytes: &[u8], wanted: &Wanted) -> Result<Vec<DataEntry>, FileProblem> {
    let mut entries = Vec::new();
    decoding.data(of, bytes, wanted, |mut chunk| {
        entries.append(&mut chunk);
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

fn deletes(decoding: &Decoding, of: &ManifestFile, bytes: &[u8]) -> Result<Vec<DeleteEntry>, FileProblem> {
    let mut entries = Vec::new();
    decoding.deletes(of, bytes, |mut chunk| {
        entries.append(&mut chunk);
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

/// Reads a manifest both ways, and compares.
fn compare(table: &TableMetadata, of: &ManifestFile, bytes: &[u8], wanted: &Wanted, filter: Option<&str>) -> usize {
    let decoding = decoding(table, filter);
    let oracle = oracle::Oracle::new(table, filter);
    match of.content {
        ManifestContentType::Data => {
            let entries = data(&decoding, of, bytes, wanted).unwrap();
            assert_same(&entries, &oracle.data(of, bytes, wanted));
            entries.len()
        }
        ManifestContentType::Deletes => {
            let entries = deletes(&decoding, of, bytes).unwrap();
            assert_same(&entries, &oracle.deletes(of, bytes));
            entries.len()
        }
    }
}

fn assert_same<T: PartialEq + std::fmt::Debug>(entries: &[T], expected: &[T]) {
    for (entry, expected) in entries.iter().zip(expected) {
        assert_eq!(entry, expected);
    }
    assert_eq!(entries.len(), expected.len());
}

#[tokio::test]
async fn random_manifests_are_read_as_the_iceberg_crate_reads_them() {
    let (mut manifests, mut entries) = (0, 0);
    for seed in seeds(300) {
        let mut random = Random(seed);
        let Some(Sample { table, file, bytes, wanted, filter }) = Sample::new(&mut random).await else { continue };
        entries += compare(&table, &file, &bytes, &wanted, filter.as_deref());
        let other = avro::rewritten(&bytes, &mut random);
        entries += compare(&table, &file, &other, &wanted, filter.as_deref());
        manifests += 2;
    }
    println!("{entries} entries in {manifests} manifests");
    assert!(entries > 0);
}

#[test]
fn manifests_of_the_lab_are_read_as_the_iceberg_crate_reads_them() {
    let Some(warehouse) = std::env::var_os("ICEFERRY_TEST_HADOOP_WAREHOUSE") else {
        println!("left out: ICEFERRY_TEST_HADOOP_WAREHOUSE is not set");
        return;
    };
    let (mut manifests, mut entries) = (0, 0);
    for table in std::fs::read_dir(std::path::Path::new(&warehouse).join("db")).unwrap() {
        let folder = table.unwrap().path().join("metadata");
        let Ok(files) = std::fs::read_dir(&folder) else { continue };
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        let newest = files.iter().filter(|path| path.to_string_lossy().ends_with(".metadata.json"));
        let newest = newest.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
        let Ok(table) = serde_json::from_slice::<TableMetadata>(&std::fs::read(newest).unwrap()) else {
            panic!("{} is no metadata", newest.display());
        };
        for snapshot in table.snapshots() {
            let list = std::fs::read(snapshot.manifest_list().trim_start_matches("file:")).unwrap();
            let version = super::super::manifests::list_version(&list, table.format_version());
            let list = iceberg::spec::ManifestList::parse_with_version(&list, version).unwrap();
            for file in list.entries() {
                let bytes = std::fs::read(file.manifest_path.trim_start_matches("file:")).unwrap();
                let columns = table.current_schema().as_struct().fields().iter().map(|field| field.id);
                let wanted = Wanted { bounds_of: columns.collect(), with_metrics: false };
                entries += compare(&table, file, &avro::plainly_named(&bytes), &wanted, None);
                let named = decoding(&table, None);
                match file.content {
                    ManifestContentType::Data => drop(data(&named, file, &bytes, &wanted).unwrap()),
                    ManifestContentType::Deletes => drop(deletes(&named, file, &bytes).unwrap()),
                }
                manifests += 1;
            }
        }
    }
    println!("{entries} entries in {manifests} manifests");
    assert!(manifests > 0);
}
