//! Row groups, splits, pages and the bound on memory.

use arrow::array::AsArray;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::WriterVersion;

use super::*;

/// 300 rows in row groups of 100, with pages of 10.
fn grouped(lab: &Lab) -> DataFile {
    let ids = ints(0..300);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(|id| format!("value {id}"))));
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(100))
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(10)
        .set_dictionary_enabled(false)
        .build();
    lab.data_file("grouped.parquet", &parquet(&batch(&[(1, "id", ids), (2, "v", texts)]), properties), 300)
}

fn rows(ids: impl Iterator<Item = u64>) -> Vec<String> {
    ids.map(|id| format!("{id}|value {id}")).collect()
}

#[test]
fn positions_are_absolute_and_splits_have_each_row_group_once() {
    let lab = Lab::new();
    let file = grouped(&lab);
    let deletes = vec![lab.positions("p", &[(&file.location, 199), (&file.location, 250)])];
    let expected = rows((0..300).filter(|id| ![199, 250].contains(id)));
    // Borders that meet row groups and borders that do not.
    for pieces in 1..20u64 {
        let border = |piece: u64| file.size_bytes * piece / pieces;
        let one = difference(file.clone(), None, Some(&[0]));
        let cut = (0..pieces).map(|piece| split(one.clone(), border(piece), border(piece + 1)));
        // Each split as a task of its own, on a worker of its own.
        let rows: Vec<String> = cut
            .flat_map(|split| lab.read(&context(id_v_schema()), &task(vec![split], deletes.clone())).unwrap())
            .map(|(.., row)| row)
            .collect();
        assert_eq!(rows, expected, "{pieces} pieces");
    }
}

#[test]
fn row_groups_do_not_depend_on_the_ordinals_in_the_footer() {
    let lab = Lab::new();
    let file = grouped(&lab);
    let bytes = std::fs::read(lab.folder.path().join("grouped.parquet")).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes)).unwrap();
    assert_eq!(metadata.num_row_groups(), 3);
    let positions = [0, 99, 100, 150, 299];
    let vector = lab.vector("v", &positions);
    let task = task(vec![difference(file, Some(&[]), Some(&[0]))], vec![vector]);
    let expected: Vec<Row> =
        rows(positions.into_iter()).into_iter().map(|row| (Change::Delete, Columns::All, row)).collect();
    assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap(), expected);
}

#[test]
fn a_few_rows_of_a_large_file_cost_few_bytes() {
    let lab = Lab::new();
    let ids = ints((0..400_000).map(|id: i32| id.wrapping_mul(0x9E37_79B9u32 as i32)));
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(5_000)
        .set_dictionary_enabled(false)
        .set_compression(Compression::UNCOMPRESSED)
        .build();
    let file = lab.data_file("f.parquet", &parquet(&batch(&[(1, "id", ids)]), properties), 400_000);
    let size = file.size_bytes;
    let wanted = [7u64, 200_000, 399_999];
    let vector = lab.vector("v", &wanted);
    let task = task(vec![difference(file, Some(&[]), Some(&[0]))], vec![vector]);
    let storage = Storage::new(StorageProperties::default());
    let context = context(schema([required(1, "id", PrimitiveType::Int)]));
    let handle = lab.runtime.handle().clone();
    let mut reader = TaskReader::open(&context, &task, storage, handle, ReadOptions::default()).unwrap();
    let got: Vec<String> = reader.by_ref().flat_map(|batch| lines(&batch.unwrap().rows)).collect();
    let value = |position: u64| (position as i32).wrapping_mul(0x9E37_79B9u32 as i32).to_string();
    assert_eq!(got, wanted.map(value));
    assert!(size > 1_600_000 && reader.bytes_fetched() < 220_000, "{} of {size} bytes", reader.bytes_fetched());
}

#[test]
fn any_bound_on_fetched_bytes_gives_the_same_rows() {
    let lab = Lab::new();
    let count = 60_000;
    let columns: Vec<(i32, &str, ArrayRef)> = vec![
        (1, "a", ints((0..count).map(|row: i32| row.wrapping_mul(0x9E37_79B9u32 as i32)))),
        (2, "b", Arc::new(StringArray::from_iter_values((0..count).map(|row| "x".repeat((row % 50) as usize))))),
        (3, "c", ints((0..count).map(|row| row % 7))),
    ];
    let types = [PrimitiveType::Int, PrimitiveType::String, PrimitiveType::Int];
    let schema = schema((1..).zip(["a", "b", "c"]).zip(types).map(|((id, name), of)| optional(id, name, of)));
    let mut expected = None;
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for codec in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::ZSTD(ZstdLevel::default()),
            Compression::GZIP(Default::default()),
            Compression::LZ4_RAW,
            Compression::BROTLI(Default::default()),
        ] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(codec)
                .set_max_row_group_row_count(Some(25_000))
                .build();
            let file = lab.data_file("f.parquet", &parquet(&batch(&columns), properties), count as u64);
            for fetch_bytes in [1, 100_000, 16 * 1024 * 1024] {
                let options = ReadOptions { fetch_bytes, ..ReadOptions::default() };
                let task = task(vec![added(file.clone())], Vec::new());
                let rows = lab.read_with(&context(schema.clone()), &task, options).unwrap();
                assert_eq!(rows.len(), count as usize);
                let expected = expected.get_or_insert_with(|| rows.clone());
                assert!(rows == *expected, "{version:?} {codec:?} {fetch_bytes}");
            }
        }
    }
}

#[test]
fn wide_rows_come_in_smaller_batches() {
    let lab = Lab::new();
    let wide: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|row| format!("{row}").repeat(1_000))));
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let file = lab.data_file("f.parquet", &parquet(&batch(&[(2, "v", wide)]), properties), 100);
    let task = task(vec![added(file)], Vec::new());
    let options = ReadOptions { batch_bytes: 20_000, ..ReadOptions::default() };
    let storage = Storage::new(StorageProperties::default());
    let context = context(schema([optional(2, "v", PrimitiveType::String)]));
    let reader = TaskReader::open(&context, &task, storage, lab.runtime.handle().clone(), options).unwrap();
    let sizes: Vec<usize> = reader.map(|batch| batch.unwrap().rows.num_rows()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert!(sizes.iter().all(|rows| *rows <= 12), "{sizes:?}");
}

/// The largest batch, in bytes of its values, of one text column.
fn largest_batch(lab: &Lab, values: impl IntoIterator<Item = String>, properties: WriterProperties) -> usize {
    let values: StringArray = values.into_iter().map(Some).collect();
    let rows = values.len();
    let bytes = parquet(&batch(&[(2, "v", Arc::new(values))]), properties);
    let file = lab.data_file("f.parquet", &bytes, rows as u64);
    let task = task(vec![added(file)], Vec::new());
    let options = ReadOptions { batch_bytes: 64 * 1024, ..ReadOptions::default() };
    let storage = Storage::new(StorageProperties::default());
    let context = context(schema([optional(2, "v", PrimitiveType::String)]));
    let reader = TaskReader::open(&context, &task, storage, lab.runtime.handle().clone(), options).unwrap();
    let batches: Vec<_> = reader.map(|batch| batch.unwrap().rows).collect();
    assert_eq!(batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), rows);
    let bytes = |rows: &arrow::array::RecordBatch| rows.column(0).as_string::<i32>().value_data().len();
    batches.iter().map(bytes).max().unwrap()
}

#[test]
fn a_long_value_that_stands_once_in_a_dictionary_counts_for_every_row() {
    let lab = Lab::new();
    let properties = || WriterProperties::builder().set_dictionary_page_size_limit(1 << 20);
    let repeated = || (0..2_000).map(|row| ["x", "y"][row % 2].repeat(10_000));
    assert!(largest_batch(&lab, repeated(), properties().build()) <= 64 * 1024);
    // Long values in one place are no more than a few times as much as the average allows for.
    let uneven = (0..20_200).map(|row| if row < 200 { "x".repeat(10_000) } else { (row % 10).to_string() });
    assert!(largest_batch(&lab, uneven, properties().build()) <= 8 * 64 * 1024);
}

#[test]
fn rows_count_where_the_file_has_none_of_the_columns() {
    let lab = Lab::new();
    let file = grouped(&lab);
    let vector = lab.vector("v", &[5, 199, 299]);
    let task = task(vec![difference(file, None, Some(&[0]))], vec![vector]);
    let context = context(schema([optional(9, "new", PrimitiveType::Int)]));
    assert_eq!(lab.read(&context, &task).unwrap(), inserts(&["null"; 297]));
}

#[test]
fn a_stopped_reader_ends_with_its_own_class() {
    use iceferry_common::fault::{Class, Classified};
    let lab = Lab::new();
    let task = task(vec![added(grouped(&lab))], Vec::new());
    let options = ReadOptions::default();
    options.cancel.cancel();
    let error = lab.read_with(&context(id_v_schema()), &task, options).unwrap_err();
    assert_eq!(error.class(), Class::Interrupted);
}

#[test]
fn a_file_may_have_no_rows_at_all() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[]));
    assert_eq!(lab.rows_of(&id_v_schema(), file).unwrap(), Vec::<String>::new());
}

#[test]
fn row_groups_without_rows_and_dictionaries_at_zero_are_as_good_as_none() {
    let lab = Lab::new();
    let file = grouped(&lab);
    let bytes = std::fs::read(lab.folder.path().join("grouped.parquet")).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).unwrap();
    // As pyarrow writes a row group of nothing: no data page, whose place is then 0.
    let mut groups = metadata.row_groups().to_vec();
    let columns = groups[0].columns().iter().map(|column| {
        let column = column.clone().into_builder().set_data_page_offset(0).set_dictionary_page_offset(Some(4));
        column.set_num_values(0).set_total_compressed_size(20).clear_statistics().build().unwrap()
    });
    let empty = groups[0].clone().into_builder().set_num_rows(0).set_column_metadata(columns.collect());
    groups.insert(1, empty.build().unwrap());
    groups.push(groups[1].clone());
    let columns = groups[0].columns().iter().map(|column| {
        let has_none = column.dictionary_page_offset().is_none();
        let column = column.clone().into_builder();
        // As old writers say that there is no dictionary.
        if has_none { column.set_dictionary_page_offset(Some(0)) } else { column }.build().unwrap()
    });
    let columns: Vec<_> = columns.collect();
    assert!(columns.iter().any(|column| column.dictionary_page_offset() == Some(0)), "some column has none");
    groups[0] = groups[0].clone().into_builder().set_column_metadata(columns).build().unwrap();
    let footer = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let mut odd = bytes[..bytes.len() - 8 - footer].to_vec();
    let metadata = ParquetMetaData::new(metadata.file_metadata().clone(), groups);
    ParquetMetaDataWriter::new(&mut odd, &metadata).finish().unwrap();
    let odd = lab.data_file("odd.parquet", &odd, file.record_count);
    assert_eq!(lab.rows_of(&id_v_schema(), odd).unwrap(), lab.rows_of(&id_v_schema(), file).unwrap());
}

#[test]
fn a_row_group_belongs_to_the_split_that_holds_its_midpoint() {
    let lab = Lab::new();
    let file = grouped(&lab);
    let bytes = std::fs::read(lab.folder.path().join("grouped.parquet")).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes)).unwrap();
    let group = metadata.row_group(1);
    let start = group.columns().iter().map(|column| column.byte_range().0).min().unwrap();
    let end = group.columns().iter().map(|column| column.byte_range().0 + column.byte_range().1).max().unwrap();
    let middle = start + (end - start) / 2;
    let read = |start, end| {
        let task = task(vec![split(added(file.clone()), start, end)], Vec::new());
        lab.read(&context(id_v_schema()), &task).unwrap().len()
    };
    assert_eq!(read(middle, middle + 1), 100);
    assert_eq!(read(middle - 1, middle), 0);
    assert_eq!(read(middle + 1, end), 0);
}
