//! Forms of manifests that the iceberg crate does not read, or reads otherwise.

use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFileBuilder, DataFileFormat, Datum, Literal, Manifest, ManifestFile, ManifestWriterBuilder,
    NestedField, PartitionSpec, PrimitiveType, Schema, Struct, Transform, Type,
};
use iceferry_common::model::Constant;
use serde_json::{Value as Json, json};

use super::super::super::bounds::Bound;
use super::super::super::entry::{DataEntry, Wanted};
use super::super::super::error::FileProblem;
use super::avro::{File, tuple_fields};
use super::random::table;
use super::{data, decoding};

fn schema(kind: PrimitiveType) -> Schema {
    let column = NestedField::optional(1, "c", Type::Primitive(kind));
    Schema::builder().with_fields([Arc::new(column)]).build().unwrap()
}

fn spec(schema: &Schema, transform: Transform) -> PartitionSpec {
    let spec = PartitionSpec::builder(schema.clone()).add_partition_field("c", "p", transform);
    spec.unwrap().build().unwrap()
}

/// A manifest of one file with this value in its partition, its bounds and no other.
async fn written(kind: PrimitiveType, value: Datum) -> (ManifestFile, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/m.avro", folder.path().display());
    let schema = schema(kind);
    let spec = spec(&schema, Transform::Identity);
    let output = FileIO::new_with_fs().new_output(&path).unwrap();
    let mut writer = ManifestWriterBuilder::new(output, Some(1), Arc::new(schema), spec).build_v2_data();
    let file = DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path("/t/data/f.parquet".to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::from_iter([Some(Literal::Primitive(value.literal().clone()))]))
        .record_count(1)
        .file_size_in_bytes(1)
        .lower_bounds([(1, value.clone())].into())
        .upper_bounds([(1, value)].into())
        .build();
    writer.add_file(file.unwrap(), 1).unwrap();
    let manifest = writer.write_manifest_file().await.unwrap();
    (manifest, std::fs::read(&path).unwrap())
}

fn only(of: &ManifestFile, bytes: &[u8], kind: PrimitiveType) -> Result<DataEntry, FileProblem> {
    let schema = schema(kind);
    let decoding = decoding(&table(&schema, &spec(&schema, Transform::Identity)), None);
    let wanted = Wanted { bounds_of: vec![1], with_metrics: true };
    data(&decoding, of, bytes, &wanted).map(|mut entries| entries.remove(0))
}

fn days(days: i32) -> Vec<u8> {
    days.to_le_bytes().to_vec()
}

#[tokio::test]
async fn a_manifest_from_before_a_promotion_that_was_merged_after_it_is_read() {
    let (of, bytes) = written(PrimitiveType::Date, Datum::date(3)).await;
    let mut file = File::open(&bytes);
    file.set("schema", &serde_json::to_value(schema(PrimitiveType::Timestamp)).unwrap());
    let merged = file.write("deflate");
    assert!(Manifest::parse_avro(&merged).is_err(), "once the crate reads this, it can be compared with");
    let entry = only(&of, &merged, PrimitiveType::Timestamp).unwrap();
    let day = Some(Bound::Moment(PrimitiveType::Date, 3));
    assert_eq!((entry.bounds[0].lower.clone(), entry.bounds[0].upper.clone()), (day.clone(), day));
    let metrics = entry.metrics.unwrap();
    assert_eq!((metrics[0].lower_bound.clone(), metrics[0].upper_bound.clone()), (Some(days(3)), Some(days(3))));
    let midnight = 3i64 * 86_400_000_000;
    let constant = Constant { field_id: 1, value: Some(midnight.to_le_bytes().to_vec()) };
    assert_eq!(entry.constants, Ok(vec![constant]));
}

#[tokio::test]
async fn bounds_of_narrower_numbers_are_read_in_a_column_that_was_widened() {
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(-5)).await;
    let mut file = File::open(&bytes);
    file.set("schema", &serde_json::to_value(schema(PrimitiveType::Long)).unwrap());
    let entry = only(&of, &file.write("zstandard"), PrimitiveType::Long).unwrap();
    assert_eq!(entry.bounds[0].lower, Some(Bound::Integer(-5)));
    let constant = Constant { field_id: 1, value: Some((-5i64).to_le_bytes().to_vec()) };
    assert_eq!(entry.constants, Ok(vec![constant]));
}

#[tokio::test]
async fn an_empty_block_does_not_end_a_manifest() {
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(7)).await;
    let expected = only(&of, &bytes, PrimitiveType::Int).unwrap();
    let mut file = File::open(&bytes);
    file.blocks.insert(0, (0, Vec::new()));
    let bytes = file.write("deflate");
    assert!(Manifest::parse_avro(&bytes).unwrap().entries().is_empty(), "the crate loses what comes behind one");
    assert_eq!(only(&of, &bytes, PrimitiveType::Int).unwrap(), expected);
}

/// The manifest with other names, or another transform, of its partition field.
fn named(bytes: &[u8], of_spec: &str, of_tuple: &str, transform: &str) -> Vec<u8> {
    let mut file = File::open(bytes);
    let (mut schema, mut spec) = (file.json("avro.schema"), file.json("partition-spec"));
    tuple_fields(&mut schema)[0]["name"] = json!(of_tuple);
    spec[0]["name"] = json!(of_spec);
    spec[0]["transform"] = json!(transform);
    file.set("avro.schema", &schema);
    file.set("partition-spec", &spec);
    file.write("null")
}

#[tokio::test]
async fn partition_values_are_read_whatever_their_writer_called_them() {
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(7)).await;
    let expected = only(&of, &bytes, PrimitiveType::Int).unwrap();
    let replaced = named(&bytes, "c d", "c_x20d", "identity");
    assert_eq!(only(&of, &replaced, PrimitiveType::Int).unwrap(), expected);
    // A removed field has its column's name in every table of format version 1.
    let removed = only(&of, &named(&bytes, "c", "c", "void"), PrimitiveType::Int).unwrap();
    assert_eq!((removed.partition, removed.constants), (expected.partition, Ok(Vec::new())));
}

#[tokio::test]
async fn a_partition_field_whose_column_is_gone_is_read_as_it_was_written() {
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(7)).await;
    let expected = only(&of, &bytes, PrimitiveType::Int).unwrap();
    let mut file = File::open(&named(&bytes, "p", "p", "void"));
    let mut schema = file.json("schema");
    schema["fields"][0]["id"] = json!(99);
    file.set("schema", &schema);
    assert_eq!(only(&of, &file.write("null"), PrimitiveType::Int).unwrap().partition, expected.partition);
}

#[tokio::test]
async fn fields_without_ids_are_told_by_their_names() {
    fn strip(json: &mut Json) {
        match json {
            Json::Object(object) => {
                object.remove("field-id");
                object.values_mut().for_each(strip);
            }
            Json::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(7)).await;
    let expected = only(&of, &bytes, PrimitiveType::Int).unwrap();
    let mut file = File::open(&bytes);
    for key in ["avro.schema", "partition-spec"] {
        let mut json = file.json(key);
        strip(&mut json);
        file.set(key, &json);
    }
    assert_eq!(only(&of, &file.write("snappy"), PrimitiveType::Int).unwrap(), expected);
}

#[tokio::test]
async fn a_tuple_of_another_spec_and_an_unknown_codec_are_told() {
    let (of, bytes) = written(PrimitiveType::Int, Datum::int(7)).await;
    let change = |change: &dyn Fn(&mut Json)| {
        let mut file = File::open(&bytes);
        let mut schema = file.json("avro.schema");
        change(&mut schema);
        file.set("avro.schema", &schema);
        file.write("null")
    };
    let another = change(&|schema| tuple_fields(schema)[0]["field-id"] = json!(1_001));
    let none = change(&|schema| tuple_fields(schema).clear());
    for bytes in [another, none] {
        let error = only(&of, &bytes, PrimitiveType::Int).unwrap_err();
        assert!(
            matches!(&error, FileProblem::Corrupt { problem, .. } if problem.contains("partition spec")),
            "{error:?}"
        );
    }
    let plain = File::open(&bytes).write("null");
    let at = plain.windows(15).position(|window| window == b"avro.codec\x08null").unwrap();
    let mut unknown = plain;
    unknown.splice(at + 11..at + 15, *b"lzma");
    let error = only(&of, &unknown, PrimitiveType::Int).unwrap_err();
    assert!(matches!(&error, FileProblem::Refused { problem, .. } if problem.contains("lzma")), "{error:?}");
}
