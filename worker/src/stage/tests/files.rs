//! Which files there are, when they roll, and what is left when something fails.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use arrow::array::Int32Array;
use iceberg::spec::{DataContentType, StructType};
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{
    Changelog, ColumnSource, DuplicateKeys, Identity, SnapshotId, SourceCommit, StagedContent,
};
use parquet::basic::Compression;

use super::*;

/// Numbers that do not compress, the same every time.
fn noise(bench: &Bench, first: i64, count: i64) -> ChangeBatch {
    let ids = Int64Array::from_iter_values(first..first + count);
    let text = |id: i64| format!("{:032x}", (id as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
    let values = StringArray::from_iter_values((first..first + count).map(text));
    bench.batch(Change::Insert, vec![Arc::new(ids), Arc::new(values)])
}

#[test]
fn inserts_become_rows_and_deletes_become_keys() {
    let bench = Bench::simple();
    let batches = [
        bench.rows(Change::Delete, &[(1, Some("a")), (2, None)]),
        bench.rows(Change::Insert, &[(2, Some("b")), (3, Some("c"))]),
    ];
    let staged = bench.stage(&batches).unwrap();
    assert_eq!(
        staged.iter().map(|file| file.content).collect::<Vec<_>>(),
        [StagedContent::Data, StagedContent::EqualityDeletes]
    );
    let (footer, rows) = read_back(&staged[0]);
    assert_eq!(rows, [["2", "b"], ["3", "c"]]);
    let pairs = |footer: &ParquetMetaData| {
        let pairs = footer.file_metadata().key_value_metadata().cloned().unwrap_or_default();
        pairs.into_iter().map(|pair| (pair.key, pair.value.unwrap_or_default())).collect::<HashMap<_, _>>()
    };
    assert_eq!(pairs(&footer).keys().map(String::as_str).collect::<Vec<_>>(), ["iceberg.schema"]);
    let schema: Schema = serde_json::from_str(&pairs(&footer)["iceberg.schema"]).unwrap();
    assert_eq!(&schema, bench.context.target.write_schema.as_ref());
    assert!(footer.file_metadata().created_by().unwrap().starts_with("iceferry version "));
    let column = footer.row_group(0).column(0);
    assert!(column.column_index_offset().is_some() && column.offset_index_offset().is_some());

    let (footer, rows) = read_back(&staged[1]);
    assert_eq!(rows, [["1"], ["2"]]);
    assert_eq!(pairs(&footer)["delete-type"], "equality");
    assert_eq!(pairs(&footer)["delete-field-ids"], "1");
    let file = bench.data_file(&staged[1]);
    assert_eq!(file.content_type(), DataContentType::EqualityDeletes);
    assert_eq!(file.equality_ids(), Some(vec![1]));
    assert_eq!(file.record_count(), 2);
    assert_eq!(file.lower_bounds()[&1].to_bytes().unwrap().as_ref(), 1_i64.to_le_bytes());
    let prefix = format!("{}/data/iceferry/orders/run/000003-000007-1-", bench.folder.path().display());
    assert!(staged.iter().all(|file| file.location.starts_with(&prefix)), "{staged:?}");
}

#[test]
fn the_columns_of_a_key_stand_in_the_order_of_the_key() {
    let leaf = |id, name: &str, primitive| NestedField::optional(id, name, Type::Primitive(primitive)).into();
    let schema = |first| {
        let fields = vec![
            leaf(first, "v", PrimitiveType::String),
            leaf(first + 2, "a", PrimitiveType::Int),
            leaf(first + 1, "b", PrimitiveType::Long),
        ];
        Schema::builder().with_fields(fields).build().unwrap()
    };
    let bench = Bench::new(schema(11), schema(1), &[2, 3]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let a: ArrayRef = Arc::new(Int32Array::from(vec![Some(10), None]));
    let b: ArrayRef = Arc::new(Int64Array::from(vec![20, 21]));
    let all = bench.batch(Change::Delete, vec![values, Arc::clone(&a), Arc::clone(&b)]);
    let key = ChangeBatch { columns: Columns::Key, rows: all.rows.project(&[2, 1]).unwrap(), ..all.clone() };
    for batch in [all, key] {
        let staged = bench.stage(&[batch]).unwrap();
        let (footer, rows) = read_back(&staged[0]);
        assert_eq!(rows, [["20", "10"], ["21", "null"]]);
        let ids = footer
            .file_metadata()
            .schema_descr()
            .columns()
            .iter()
            .map(|column| column.self_type().get_basic_info().id());
        assert_eq!(ids.collect::<Vec<_>>(), [2, 3]);
        assert_eq!(bench.data_file(&staged[0]).equality_ids(), Some(vec![2, 3]));
    }
}

#[test]
fn no_rows_make_no_file() {
    let bench = Bench::simple();
    assert_eq!(bench.stage(&[]).unwrap(), []);
    assert_eq!(bench.stage(&[bench.rows(Change::Insert, &[]), bench.rows(Change::Delete, &[])]).unwrap(), []);
    assert_eq!(bench.files(), Vec::<String>::new());
}

#[test]
fn files_roll_at_the_target_size_and_hold_every_row_once() {
    let mut bench = Bench::simple();
    bench.context.target.target_file_bytes = 200_000;
    bench.context.target.parquet.row_group_bytes = 60_000;
    let batches: Vec<_> = (0..40).map(|number| noise(&bench, number * 500, 500)).collect();
    let staged = bench.stage(&batches).unwrap();
    assert!(staged.len() > 2, "{}", staged.len());
    assert_eq!(staged.iter().map(|file| &file.location).collect::<BTreeSet<_>>().len(), staged.len());
    let ids: Vec<i64> = staged.iter().flat_map(|file| read_back(file).1).map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(ids, (0..20_000).collect::<Vec<_>>());
    for file in &staged[..staged.len() - 1] {
        assert!((150_000..300_000).contains(&file.size_bytes), "{}", file.size_bytes);
        assert!(read_back(file).0.num_row_groups() > 1);
        bench.data_file(file);
    }
}

#[test]
fn the_codec_of_the_table_is_used() {
    let codecs = [
        ("zstd", None, "ZSTD"),
        ("zstd", Some(9), "ZSTD"),
        ("snappy", None, "SNAPPY"),
        ("gzip", Some(6), "GZIP"),
        ("lz4", None, "LZ4_RAW"),
        ("brotli", None, "BROTLI"),
        ("uncompressed", None, "UNCOMPRESSED"),
    ];
    for (codec, level, expected) in codecs {
        let mut bench = Bench::simple();
        bench.context.target.parquet.compression_codec = codec.to_owned();
        bench.context.target.parquet.compression_level = level;
        let (footer, rows) = read_back(&bench.stage(&[bench.rows(Change::Insert, &[(1, Some("a"))])]).unwrap()[0]);
        let used: Compression = footer.row_group(0).column(0).compression();
        assert!(format!("{used:?}").starts_with(expected), "{codec}: {used:?}");
        assert_eq!(rows, [["1", "a"]], "{codec}");
    }
}

#[test]
fn a_column_without_dictionary_has_none_and_the_others_have() {
    let bench = Bench::simple();
    let mut stager = bench.stager();
    stager.without_dictionary(&[1, 99]);
    stager.write(&bench.rows(Change::Insert, &[(1, Some("a")), (2, Some("a"))])).unwrap();
    let (footer, rows) = read_back(&stager.finish().unwrap()[0]);
    let dictionary = |column: usize| footer.row_group(0).column(column).dictionary_page_offset().is_some();
    assert_eq!([dictionary(0), dictionary(1)], [true, false]);
    assert_eq!(rows, [["1", "a"], ["2", "a"]]);
}

#[test]
fn a_codec_or_level_that_is_none_is_refused() {
    for (codec, level) in [("lzo", None), ("zstd", Some(99)), ("gzip", Some(-1)), ("", None)] {
        let mut bench = Bench::simple();
        bench.context.target.parquet.compression_codec = codec.to_owned();
        bench.context.target.parquet.compression_level = level;
        let error = bench.try_stager().err().unwrap();
        assert_eq!(error.class(), Class::Refused, "{codec} {level:?}");
        assert!(error.to_string().contains("write.parquet.compression-codec"), "{error}");
    }
}

#[test]
fn an_abort_leaves_nothing() {
    let mut bench = Bench::simple();
    bench.context.target.target_file_bytes = 100_000;
    let mut stager = bench.stager();
    for number in 0..21 {
        stager.write(&noise(&bench, number * 500, 500)).unwrap();
    }
    stager.write(&bench.rows(Change::Delete, &[(1, None)])).unwrap();
    assert!(!bench.files().is_empty(), "some files were whole before");
    assert_eq!(stager.abort(), Vec::<String>::new());
    assert_eq!(bench.files(), Vec::<String>::new());
}

#[test]
fn an_abort_in_the_middle_of_a_multipart_upload_leaves_nothing() {
    let mut bench = Bench::simple();
    bench.context.target.parquet.compression_codec = "uncompressed".to_owned();
    bench.options.row_group_memory_bytes = 1 << 20;
    bench.options.unique_keys = false;
    let mut stager = bench.stager();
    for number in 0..8 {
        stager.write(&noise(&bench, number * 50_000, 50_000)).unwrap();
    }
    assert_eq!(stager.abort(), Vec::<String>::new());
    assert_eq!(bench.files(), Vec::<String>::new());
}

#[test]
fn a_stager_that_is_dropped_leaves_nothing() {
    let mut bench = Bench::simple();
    bench.context.target.target_file_bytes = 100_000;
    for in_async_context in [false, true] {
        let mut stager = bench.stager();
        for number in 0..21 {
            stager.write(&noise(&bench, number * 500, 500)).unwrap();
        }
        if in_async_context {
            bench.runtime.block_on(async move { drop(stager) });
        } else {
            drop(stager);
        }
        let begun = Instant::now();
        while !bench.files().is_empty() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert_eq!(bench.files(), Vec::<String>::new());
    }
}

#[test]
fn a_storage_that_fails_is_named_at_the_end_of_a_small_file() {
    let bench = Bench::simple();
    // A file stands where the folder is to be.
    std::fs::write(bench.folder.path().join("data"), b"in the way").unwrap();
    let mut stager = bench.stager();
    stager.write(&bench.rows(Change::Insert, &[(1, None)])).unwrap();
    let error = stager.finish().unwrap_err();
    let StageError::Upload { location, source } = &error else { panic!("{error:?}") };
    assert!(location.ends_with("-data.parquet"), "{location}");
    assert_eq!(error.class(), source.class());
    assert!(chain(&error).contains(location.as_str()), "{}", chain(&error));
}

#[test]
fn a_storage_that_fails_in_the_middle_is_named_at_a_later_write() {
    let mut bench = Bench::simple();
    bench.context.target.parquet.compression_codec = "uncompressed".to_owned();
    bench.options.row_group_memory_bytes = 1 << 20;
    bench.options.unique_keys = false;
    std::fs::write(bench.folder.path().join("data"), b"in the way").unwrap();
    let mut stager = bench.stager();
    let error = (0..60).find_map(|number| stager.write(&noise(&bench, number * 20_000, 20_000)).err());
    assert!(matches!(error, Some(StageError::Upload { .. })), "{error:?}");
    stager.abort();
}

#[test]
fn a_delete_in_an_append_target_is_refused() {
    let mut bench = Bench::simple();
    bench.context.target.mode = TargetMode::Append;
    let error = bench.stage(&[bench.rows(Change::Delete, &[(1, None)])]).unwrap_err();
    assert!(matches!(error, StageError::DeleteInAppend { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Refused);
    // Appended rows have no key to be unique by.
    let twice = bench.rows(Change::Insert, &[(1, None), (1, None)]);
    assert_eq!(bench.stage(&[twice]).unwrap()[0].record_count, 2);
}

#[test]
fn a_row_that_went_is_not_written_where_no_column_says_that_it_did() {
    let mut bench = Bench::simple();
    bench.context.target.mode = TargetMode::Append;
    bench.context.target.key.clear();
    bench.context.changelog = Some(Changelog {
        commit: SourceCommit { snapshot_id: SnapshotId(1), sequence_number: 1, timestamp_ms: 0, change_ordinal: 0 },
        metadata_columns: Vec::new(),
        partition_type: StructType::new(Vec::new()),
        identity: Identity::None,
        duplicate_keys: DuplicateKeys::Pair,
        compared_schema: None,
        columns: vec![ColumnSource::Read(0), ColumnSource::Read(1)],
    });
    for change in [Change::Delete, Change::UpdateBefore, Change::UpdateAfter] {
        let error = bench.stage(&[bench.rows(change, &[(1, None)])]).unwrap_err();
        assert!(matches!(error, StageError::DeleteInAppend { .. }), "{error:?}");
    }
    assert_eq!(bench.stage(&[bench.rows(Change::Insert, &[(1, None)])]).unwrap()[0].record_count, 1);
}

#[test]
fn a_delete_without_a_key_is_refused() {
    let mut bench = Bench::simple();
    bench.context.target.key.clear();
    let error = bench.stage(&[bench.rows(Change::Delete, &[(1, None)])]).unwrap_err();
    assert!(matches!(error, StageError::NoKey { .. }), "{error:?}");
}

#[test]
fn a_key_twice_on_one_side_is_refused_by_name() {
    let bench = Bench::simple();
    for change in [Change::Insert, Change::Delete] {
        let batches =
            [bench.rows(change, &[(1, Some("a")), (2, None)]), bench.rows(change, &[(3, None), (2, Some("b"))])];
        let error = bench.stage(&batches).unwrap_err();
        assert_eq!(error.class(), Class::Refused);
        let text = error.to_string();
        for part in ["sales.orders", "id=2", "equality_columns"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    // Once on each side is an update.
    let update = [bench.rows(Change::Delete, &[(1, Some("a"))]), bench.rows(Change::Insert, &[(1, Some("b"))])];
    assert_eq!(bench.stage(&update).unwrap().len(), 2);
}

#[test]
fn a_backfill_does_not_look_at_keys() {
    let mut bench = Bench::simple();
    bench.options.unique_keys = false;
    let staged = bench.stage(&[bench.rows(Change::Insert, &[(1, None), (1, None)])]).unwrap();
    assert_eq!(staged[0].record_count, 2);
}
