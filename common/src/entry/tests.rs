//! Entries against the iceberg crate's own reading of them.

use std::sync::Arc;

use iceberg::spec::{
    DataContentType, DataFileBuilder, DataFileFormat, NestedField, PrimitiveType, Type,
    deserialize_data_file_from_json, serialize_data_file_to_json,
};

use super::*;

fn schema() -> Schema {
    let types = [
        PrimitiveType::Int,
        PrimitiveType::Long,
        PrimitiveType::String,
        PrimitiveType::Double,
        PrimitiveType::Binary,
        PrimitiveType::Decimal { precision: 12, scale: 3 },
    ];
    let fields =
        types.into_iter().zip(1..).map(|(of, id)| NestedField::optional(id, format!("c{id}"), Type::Primitive(of)));
    Schema::builder().with_fields(fields.map(Arc::new).collect::<Vec<_>>()).build().unwrap()
}

fn full() -> DataFile {
    let counts = |from: u64| (1..=6).map(|id| (id, from << (id * 9))).collect::<HashMap<i32, u64>>();
    let decimal =
        |unscaled| Datum::try_from_bytes(unscaled, PrimitiveType::Decimal { precision: 12, scale: 3 }).unwrap();
    let lower = [
        Datum::int(-5),
        Datum::long(i64::MIN),
        Datum::string(""),
        Datum::double(-0.0),
        Datum::binary(vec![0, 255]),
        decimal(&[0x80]),
    ];
    let upper = [
        Datum::int(i32::MAX),
        Datum::long(i64::MAX),
        Datum::string("zwölf".repeat(40)),
        Datum::double(1e300),
        Datum::binary(vec![255; 200]),
        decimal(&[0x7F, 0xFF]),
    ];
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path("s3://b/t/data/ü.parquet".to_owned())
        .file_format(DataFileFormat::Parquet)
        .record_count(1 << 40)
        .file_size_in_bytes(127)
        .column_sizes(counts(1))
        .value_counts(counts(63))
        .null_value_counts(counts(64))
        .nan_value_counts(counts(0))
        .lower_bounds((1..).zip(lower).collect())
        .upper_bounds((1..).zip(upper).collect())
        .key_metadata(Some(vec![1, 2]))
        .split_offsets(Some(vec![4, 1 << 33]))
        .sort_order_id(0)
        .build()
        .unwrap()
}

fn others() -> Vec<DataFile> {
    let mut bare = DataFileBuilder::default();
    bare.content(DataContentType::Data)
        .file_path("/t/1".to_owned())
        .file_format(DataFileFormat::Parquet)
        .record_count(0)
        .file_size_in_bytes(0);
    let mut keys = bare.clone();
    keys.content(DataContentType::EqualityDeletes).equality_ids(Some(vec![2, 1]));
    let mut vector = bare.clone();
    vector
        .content(DataContentType::PositionDeletes)
        .file_format(DataFileFormat::Puffin)
        .referenced_data_file(Some("/t/0".to_owned()))
        .content_offset(Some(4))
        .content_size_in_bytes(Some(44));
    [bare, keys, vector].iter().map(|builder| builder.build().unwrap()).collect()
}

#[test]
fn an_entry_is_read_by_the_iceberg_crate_as_the_data_file_that_it_was() {
    for file in others().into_iter().chain([full()]) {
        let entry = encode(&file, None).unwrap();
        assert_eq!(decode(&entry, &schema()).unwrap(), file);
        // The crate's JSON keeps the same.
        let json = serialize_data_file_to_json(file.clone(), &StructType::new(Vec::new()), FormatVersion::V2).unwrap();
        let read = deserialize_data_file_from_json(&json, 0, &StructType::new(Vec::new()), &schema()).unwrap();
        assert_eq!(read, file);
        let with_rows = decode(&encode(&file, Some(1 << 50)).unwrap(), &schema()).unwrap();
        assert_eq!(with_rows.first_row_id(), Some(1 << 50));
    }
}

#[test]
fn facts_are_those_of_the_data_file() {
    for file in others().into_iter().chain([full()]) {
        let entry = encode(&file, Some(7)).unwrap();
        let facts = Facts::read(&entry).unwrap();
        assert_eq!(facts.content, file.content_type());
        assert_eq!((facts.location, facts.format), (file.file_path(), file.file_format()));
        assert_eq!((facts.record_count, facts.size_bytes), (file.record_count(), file.file_size_in_bytes()));
        assert_eq!(facts.equality_fields, file.equality_ids().map_or(0, |ids| ids.len() as u64));
        assert_eq!(facts.first_row_id, Some(7));
        assert_eq!(facts.referenced_data_file, file.referenced_data_file().as_deref());
        assert_eq!(facts.content_offset, file.content_offset());
        assert_eq!(facts.content_size_bytes, file.content_size_in_bytes());
    }
}

#[test]
fn damaged_entries_are_errors() {
    let entry = encode(&full(), None).unwrap();
    for length in 0..entry.len() {
        assert!(Facts::read(&entry[..length]).is_err(), "{length}");
    }
    let mut long = entry.to_vec();
    long.push(0);
    assert_eq!(Facts::read(&long), Err(DamagedEntry::TooLong));
    for at in 0..entry.len() {
        for value in [0, 1, 2, 0x7F, 0x80, 0xFF] {
            let mut changed = entry.to_vec();
            changed[at] = value;
            // Whatever it says, it ends, and reads nothing behind the end.
            let _ = Facts::read(&changed);
        }
    }
    assert!(Facts::read(&[0xFF; 40]).is_err());
}

#[test]
fn numbers_are_as_avro_has_them() {
    for (number, bytes) in [
        (0, &[0][..]),
        (-1, &[1]),
        (1, &[2]),
        (-64, &[0x7F]),
        (64, &[0x80, 0x01]),
        (i64::MAX, &[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]),
        (i64::MIN, &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]),
    ] {
        let mut out = Vec::new();
        put_long(&mut out, number);
        assert_eq!(out, bytes, "{number}");
        assert_eq!(avro::Cursor::new(&out).long("number"), Ok(number));
    }
}
