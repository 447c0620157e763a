//! What is written comes back: all of it, by bucket, in order, and nothing stays behind.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::{Storage, StorageProperties};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::*;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

fn space(folder: &TempDir, cancel: &CancellationToken) -> Space {
    let path = folder.path().to_owned();
    let location = move |number| path.join(format!("run/{number}")).display().to_string();
    Space::new(Storage::new(StorageProperties::default()), RUNTIME.handle().clone(), cancel.clone(), location)
}

fn batch(numbers: &[i64]) -> RecordBatch {
    let texts = StringArray::from_iter(numbers.iter().map(|number| (number % 3 != 0).then(|| "x".repeat(20))));
    let numbers = Int64Array::from(numbers.to_vec());
    let columns = [("number", Arc::new(numbers) as _, false), ("text", Arc::new(texts) as _, true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn is_empty(folder: &TempDir) -> bool {
    std::fs::read_dir(folder.path()).unwrap().count() == 0
}

/// All rows, bucket by bucket: its number, the side, the number of the row.
fn read_all(reader: &mut Reader) -> Vec<(u32, Side, i64)> {
    let mut found = Vec::new();
    while let Some(bucket) = reader.next_bucket() {
        let before = found.len();
        while let Some((side, rows)) = reader.next_batch().unwrap() {
            assert!((1..=BATCH_ROWS_MAX).contains(&rows.num_rows()));
            assert_eq!(rows.schema(), batch(&[]).schema());
            let numbers = rows.column(0).as_primitive::<Int64Type>();
            for (row, number) in numbers.values().iter().enumerate() {
                assert_eq!(rows.column(1).is_valid(row), number % 3 != 0);
                found.push((bucket.number, side, *number));
            }
        }
        assert_eq!(found.len() - before, bucket.rows as usize);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_come_back_by_bucket_and_side_in_the_order_of_arrival(
        batches in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(prop_oneof![any::<u64>(), 0..2_u64], 0..50)),
            0..20,
        ),
        level in 0..LEVELS,
        memory_bytes_max in 0..5_000_u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut space = space(&folder, &CancellationToken::new());
        let mut writer = Writer::begin(&mut space, level, memory_bytes_max).unwrap();
        let mut expected = Vec::new();
        for (went, hashes) in &batches {
            let side = if *went { Side::Went } else { Side::Came };
            let first = expected.len() as i64;
            let numbers: Vec<i64> = (first..).take(hashes.len()).collect();
            expected.extend(hashes.iter().zip(&numbers).map(|(hash, n)| (bucket_of(*hash, level), side, *n)));
            writer.write(side, batch(&numbers), hashes).unwrap();
            prop_assert!(writer.memory_bytes() <= memory_bytes_max + 64 * 1024, "what waits has a bound");
        }
        let mut reader = writer.finish().unwrap();
        // Numbers ascend in the order of arrival.
        expected.sort_unstable();
        prop_assert_eq!(read_all(&mut reader), expected);
        prop_assert_eq!(reader.remove(), None);
        prop_assert!(is_empty(&folder));
    }
}

#[test]
fn a_bucket_whose_rows_have_one_hash_cannot_be_split() {
    let folder = tempfile::tempdir().unwrap();
    let mut space = space(&folder, &CancellationToken::new());
    let can_be_split = |space: &mut Space, level: u32, hashes: [u64; 2]| {
        let mut writer = Writer::begin(space, level, 1_000).unwrap();
        writer.write(Side::Went, batch(&[1]), &hashes[..1]).unwrap();
        writer.write(Side::Came, batch(&[2]), &hashes[1..]).unwrap();
        let mut reader = writer.finish().unwrap();
        let can_be_split = reader.next_bucket().unwrap().can_be_split;
        reader.remove();
        can_be_split
    };
    assert!(!can_be_split(&mut space, 0, [7, 7]));
    assert!(can_be_split(&mut space, 0, [7, 8]));
    assert!(!can_be_split(&mut space, LEVELS - 1, [16, 17]), "there are no more bits");
    assert_eq!(space.files_begun(), 3);
}

#[test]
fn a_block_is_an_arrow_stream_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut space = space(&folder, &CancellationToken::new());
    let mut writer = Writer::begin(&mut space, 0, 1 << 20).unwrap();
    let numbers: Vec<i64> = (0..20_000).collect();
    let hashes: Vec<u64> = numbers.iter().map(|number| (*number as u64 % 3) << 62).collect();
    writer.write(Side::Came, batch(&numbers), &hashes).unwrap();
    let reader = writer.finish().unwrap();
    let file = std::fs::read(folder.path().join("run/0")).unwrap();
    let mut end = 0;
    for block in reader.blocks() {
        assert_eq!(block.offset, end, "one behind the other");
        end += block.length;
        let bytes = &file[block.offset as usize..end as usize];
        let stream = arrow::ipc::reader::StreamReader::try_new(bytes, None).unwrap();
        assert_eq!(stream.map(|batch| batch.unwrap().num_rows() as u64).sum::<u64>(), block.rows);
    }
    assert_eq!(end, file.len() as u64);
    assert!(end < 20_000 * 20, "it is compressed");
}

#[test]
fn a_damaged_file_is_an_error_and_never_fewer_rows() {
    for damage in ["cut", "overwritten", "removed"] {
        let folder = tempfile::tempdir().unwrap();
        let mut space = space(&folder, &CancellationToken::new());
        let mut writer = Writer::begin(&mut space, 0, 0).unwrap();
        let numbers: Vec<i64> = (0..1_000).collect();
        writer.write(Side::Went, batch(&numbers), &vec![1; 1_000]).unwrap();
        let mut reader = writer.finish().unwrap();
        let path = folder.path().join("run/0");
        let mut bytes = std::fs::read(&path).unwrap();
        let class = match damage {
            "cut" => {
                bytes.truncate(bytes.len() / 2);
                std::fs::write(&path, bytes).unwrap();
                None
            }
            "overwritten" => {
                // The end of a stream, where rows should be: a reader that did not count would be content.
                let schema = batch(&[]).schema();
                let mut empty = Vec::new();
                arrow::ipc::writer::StreamWriter::try_new(&mut empty, &schema).unwrap().finish().unwrap();
                bytes[..empty.len()].copy_from_slice(&empty);
                std::fs::write(&path, bytes).unwrap();
                Some(Class::Corrupt)
            }
            _ => {
                std::fs::remove_file(&path).unwrap();
                Some(Class::NotFound)
            }
        };
        reader.next_bucket().unwrap();
        let error = std::iter::from_fn(|| reader.next_batch().transpose()).find_map(Result::err).unwrap();
        assert!(class.is_none_or(|class| error.class() == class), "{damage}: {error}");
        assert!(error.to_string().contains("run/0"), "{error}");
    }
}

#[test]
fn a_storage_that_takes_nothing_is_told_by_its_own_error() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be.
    std::fs::write(folder.path().join("run"), b"").unwrap();
    let mut space = space(&folder, &CancellationToken::new());
    let mut writer = Writer::begin(&mut space, 0, 1 << 20).unwrap();
    writer.write(Side::Went, batch(&[1]), &[1]).unwrap();
    let error = writer.finish().err().unwrap();
    assert!(matches!(error, ExchangeError::Upload { .. }), "{error}");
    let mut writer = Writer::begin(&mut space, 0, 1 << 20).unwrap();
    let error = writer.write(Side::Went, batch(&[1, 2]), &[1]).err().unwrap();
    assert!(matches!(error, ExchangeError::Hashes { rows: 2, hashes: 1, .. }), "{error}");
}

#[test]
fn a_writer_that_is_given_up_or_told_to_stop_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let mut space = space(&folder, &cancel);
    let numbers: Vec<i64> = (0..100_000).collect();
    let hashes: Vec<u64> = numbers.iter().map(|number| (*number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let mut writer = Writer::begin(&mut space, 0, 0).unwrap();
    writer.write(Side::Went, batch(&numbers), &hashes).unwrap();
    assert_eq!(writer.abort(), None);
    assert!(is_empty(&folder));

    let mut writer = Writer::begin(&mut space, 0, 0).unwrap();
    writer.write(Side::Went, batch(&numbers), &hashes).unwrap();
    cancel.cancel();
    let error = writer.write(Side::Went, batch(&[1]), &[1]).err().unwrap();
    assert_eq!(error.class(), Class::Interrupted);
    assert_eq!(writer.abort(), None);
    assert!(is_empty(&folder));
}
