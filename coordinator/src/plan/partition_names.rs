//! Names of partition fields in manifests, made plain before a manifest is decoded. Pure.
//!
//! The iceberg crate finds partition values by name, and takes null where it finds none. The names of a manifest's Avro
//! schema need not be those of its partition spec: Avro allows letters, digits and `_` only, and writers replace all
//! else. And the crate refuses a spec of which a removed (void) field has its column's name, as it has in every table of
//! format version 1. So both are named by field id here. Values are in Avro by their order, so nothing else changes.

use std::collections::HashSet;

use serde_json::Value;

const MAGIC: &[u8] = b"Obj\x01";
/// Keys of an Avro header.
const AVRO_SCHEMA: &str = "avro.schema";
const PARTITION_SPEC: &str = "partition-spec";
/// Field id of the partition tuple in a manifest; fixed by the specification.
const PARTITION_ID: i64 = 102;
/// Id of the first partition field, where a spec of version 1 does not say it.
const FIRST_FIELD_ID: i64 = 1_000;

/// The manifest with plain names; `None` when it has no partition fields, or is no manifest at all, which decoding will
/// say. The error is for one whose partition tuple is not that of its spec.
pub(super) fn plain(manifest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some((mut entries, rest)) = header(manifest) else { return Ok(None) };
    let json = |key: &str| -> Option<Value> {
        let (_, value) = entries.iter().find(|(name, _)| *name == key.as_bytes())?;
        serde_json::from_slice(value).ok()
    };
    let (Some(mut schema), Some(mut spec)) = (json(AVRO_SCHEMA), json(PARTITION_SPEC)) else { return Ok(None) };
    let Some(fields) = spec.as_array_mut().filter(|fields| !fields.is_empty()) else { return Ok(None) };
    let tuple = tuple_fields(&mut schema).ok_or("its Avro schema has no partition tuple")?;
    if !name_by_id(fields, tuple) {
        return Err("its partition tuple is not that of its partition spec".into());
    }
    for (key, value) in &mut entries {
        match std::str::from_utf8(key) {
            Ok(AVRO_SCHEMA) => *value = schema.to_string().into_bytes(),
            Ok(PARTITION_SPEC) => *value = spec.to_string().into_bytes(),
            _ => {}
        }
    }
    Ok(Some(with_header(&entries, rest)))
}

/// Names the fields of spec and tuple by their ids. False when they are not the same fields.
fn name_by_id(spec: &mut [Value], tuple: &mut [Value]) -> bool {
    let said = |field: &Value| field.get("field-id").and_then(Value::as_i64);
    let spec_ids: Vec<i64> =
        spec.iter().zip(FIRST_FIELD_ID..).map(|(field, in_order)| said(field).unwrap_or(in_order)).collect();
    // A tuple whose fields have no ids has them in the order of the spec.
    let tuple_ids: Vec<i64> =
        tuple.iter().zip(&spec_ids).map(|(field, in_order)| said(field).unwrap_or(*in_order)).collect();
    let (of_spec, of_tuple): (HashSet<_>, HashSet<_>) = (spec_ids.iter().collect(), tuple_ids.iter().collect());
    if spec.len() != tuple.len() || of_spec != of_tuple || of_spec.len() != spec.len() {
        return false;
    }
    for (field, id) in spec.iter_mut().zip(spec_ids).chain(tuple.iter_mut().zip(tuple_ids)) {
        field["name"] = Value::String(format!("partition_field_{id}_"));
    }
    true
}

/// The fields of the partition tuple: in the manifest's record the field of its id, or of its name in old files.
fn tuple_fields(schema: &mut Value) -> Option<&mut Vec<Value>> {
    let entry = schema.get_mut("fields")?.as_array_mut()?;
    let data_file = entry.iter_mut().find(|field| field["name"] == "data_file")?;
    let columns = data_file.get_mut("type")?.get_mut("fields")?.as_array_mut()?;
    let is_tuple = |field: &&mut Value| field["field-id"] == PARTITION_ID || field["name"] == "partition";
    columns.iter_mut().find(is_tuple)?.get_mut("type")?.get_mut("fields")?.as_array_mut()
}

/// An entry of an Avro header.
type Entry<'a> = (&'a [u8], Vec<u8>);

/// The entries of an Avro file's header, and what comes after them.
fn header(file: &[u8]) -> Option<(Vec<Entry<'_>>, &[u8])> {
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut entries = Vec::new();
    loop {
        let count = long(&mut rest)?;
        if count == 0 {
            return Some((entries, rest));
        }
        if count < 0 {
            long(&mut rest)?;
        }
        for _ in 0..count.unsigned_abs() {
            let key = bytes(&mut rest)?;
            entries.push((key, bytes(&mut rest)?.to_vec()));
        }
    }
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(long(rest)?).ok()?;
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// Avro's long: zigzag, seven bits a byte, the lowest first.
fn long(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

fn with_header(entries: &[Entry<'_>], rest: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    put_length(&mut file, entries.len());
    for (key, value) in entries {
        for part in [*key, value] {
            put_length(&mut file, part.len());
            file.extend_from_slice(part);
        }
    }
    put_length(&mut file, 0);
    file.extend_from_slice(rest);
    file
}

fn put_length(file: &mut Vec<u8>, length: usize) {
    let mut left = (length as u64) << 1;
    while left >= 0x80 {
        file.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    file.push(left as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iceberg::io::FileIO;
    use iceberg::spec::{
        DataContentType, DataFileBuilder, DataFileFormat, Literal, Manifest, ManifestWriterBuilder, NestedField,
        PartitionSpec, PrimitiveType, Schema, Struct, Transform, Type,
    };
    use serde_json::json;

    use super::*;

    /// A manifest of one file in partition c = 7, with the names that another writer gives.
    async fn written(spec_name: &str, tuple_name: &str, transform: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("{}/m.avro", folder.path().display());
        let column = NestedField::optional(1, "c", Type::Primitive(PrimitiveType::Int));
        let schema = Arc::new(Schema::builder().with_fields([Arc::new(column)]).build().unwrap());
        let spec = PartitionSpec::builder(Arc::clone(&schema)).add_partition_field("c", "c", Transform::Identity);
        let spec = spec.unwrap().build().unwrap();
        let output = FileIO::new_with_fs().new_output(&path).unwrap();
        let mut writer = ManifestWriterBuilder::new(output, Some(1), schema, spec).build_v2_data();
        let file = DataFileBuilder::default()
            .content(DataContentType::Data)
            .file_path("/t/data/f.parquet".to_owned())
            .file_format(DataFileFormat::Parquet)
            .partition(Struct::from_iter([Some(Literal::int(7))]))
            .record_count(1)
            .file_size_in_bytes(1)
            .build();
        writer.add_file(file.unwrap(), 1).unwrap();
        writer.write_manifest_file().await.unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (mut entries, rest) = header(&bytes).unwrap();
        for (key, value) in &mut entries {
            let mut json: Value = serde_json::from_slice(value).unwrap_or_default();
            match std::str::from_utf8(key).unwrap() {
                AVRO_SCHEMA => tuple_fields(&mut json).unwrap()[0]["name"] = json!(tuple_name),
                PARTITION_SPEC => {
                    json[0]["name"] = json!(spec_name);
                    json[0]["transform"] = json!(transform);
                }
                _ => continue,
            }
            *value = json.to_string().into_bytes();
        }
        with_header(&entries, rest)
    }

    #[tokio::test]
    async fn values_are_read_whatever_the_writer_called_them() {
        let value = |bytes: &[u8]| {
            let manifest = Manifest::parse_avro(bytes).unwrap();
            manifest.entries()[0].data_file().partition()[0].clone()
        };
        let replaced = written("c d", "c_x20d", "identity").await;
        assert_eq!(value(&plain(&replaced).unwrap().unwrap()), Some(Literal::int(7)));
        let removed = written("c", "c", "void").await;
        assert!(Manifest::parse_avro(&removed).is_err(), "once this is read as it is, void needs no renaming");
        assert_eq!(value(&plain(&removed).unwrap().unwrap()), Some(Literal::int(7)));
    }

    fn manifest(spec: &Value, tuple: &Value) -> Vec<u8> {
        let schema = json!({"type": "record", "name": "manifest_entry", "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "data_file", "field-id": 2, "type": {"type": "record", "name": "r2", "fields": [
                {"name": "file_path", "type": "string", "field-id": 100},
                {"name": "partition", "field-id": 102, "type": {"type": "record", "name": "r102", "fields": tuple}},
            ]}},
        ]});
        let entries: [Entry<'_>; 3] = [
            (b"avro.schema", schema.to_string().into_bytes()),
            (b"partition-spec", spec.to_string().into_bytes()),
            (b"other", vec![7; 300]),
        ];
        with_header(&entries, b"sync and blocks")
    }

    fn names(file: &[u8]) -> [Vec<String>; 2] {
        let (entries, rest) = header(file).unwrap();
        assert_eq!(rest, b"sync and blocks");
        assert_eq!(entries[2], (&b"other"[..], vec![7; 300]));
        let mut schema: Value = serde_json::from_slice(&entries[0].1).unwrap();
        let spec: Value = serde_json::from_slice(&entries[1].1).unwrap();
        let names = |fields: &[Value]| fields.iter().map(|field| field["name"].as_str().unwrap().to_owned()).collect();
        [names(spec.as_array().unwrap()), names(tuple_fields(&mut schema).unwrap())]
    }

    fn spec(ids: &[i64]) -> Value {
        let field =
            |id: &i64| json!({"name": format!("a b {id}"), "transform": "void", "source-id": 1, "field-id": id});
        ids.iter().map(field).collect()
    }

    fn tuple(ids: &[Option<i64>]) -> Value {
        let field = |id: &Option<i64>| match id {
            Some(id) => json!({"name": format!("a_x20b_x20{id}"), "type": ["null", "int"], "field-id": id}),
            None => json!({"name": "x", "type": ["null", "int"]}),
        };
        ids.iter().map(field).collect()
    }

    #[test]
    fn spec_and_tuple_get_the_same_names_by_id() {
        let [first, second] = ["partition_field_1000_", "partition_field_1004_"];
        for (of_tuple, expected) in [
            (tuple(&[Some(1000), Some(1004)]), [first, second]),
            (tuple(&[Some(1004), Some(1000)]), [second, first]),
            (tuple(&[None, None]), [first, second]),
        ] {
            let made = plain(&manifest(&spec(&[1000, 1004]), &of_tuple)).unwrap().unwrap();
            assert_eq!(names(&made), [[first, second], expected]);
        }
    }

    #[test]
    fn a_tuple_of_another_spec_is_an_error() {
        for of_tuple in [tuple(&[Some(1000)]), tuple(&[Some(1000), Some(1001)]), tuple(&[Some(1000), Some(1000)])] {
            assert!(plain(&manifest(&spec(&[1000, 1004]), &of_tuple)).is_err(), "{of_tuple}");
        }
    }

    #[test]
    fn what_has_no_partition_fields_stays_as_it_is() {
        assert_eq!(plain(&manifest(&spec(&[]), &tuple(&[]))), Ok(None));
        let whole = manifest(&spec(&[1000]), &tuple(&[Some(1000)]));
        let (_, rest) = header(&whole).unwrap();
        for length in 0..whole.len() - rest.len() {
            assert_eq!(plain(&whole[..length]), Ok(None), "cut to {length} bytes");
        }
    }
}
