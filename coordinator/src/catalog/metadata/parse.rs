//! Table metadata from its JSON. What cannot be carried is found in the JSON itself, so that the refusal can name the
//! column; the iceberg crate's own parser only says that nothing matched.

use std::io::Read;

use iceberg::spec::TableMetadata;
use serde_json::Value;

use super::super::CatalogError;

/// Largest metadata file that is taken, unpacked. The largest ones seen in practice have some hundred megabytes.
const METADATA_BYTES_MAX: u64 = 1 << 30;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Primitive types that are carried; `fixed` and `decimal` have arguments and are told apart below.
const PRIMITIVE_TYPES: [&str; 14] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "string",
    "uuid",
    "binary",
];

const REQUIRED_V1: [&str; 3] = ["location", "last-updated-ms", "last-column-id"];
const REQUIRED_V2: [&str; 9] = [
    "table-uuid",
    "last-sequence-number",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
];
const REQUIRED_V3: [&str; 1] = ["next-row-id"];

/// The metadata in a metadata file, compressed or not: the bytes tell, not the name.
pub(crate) fn parse(bytes: &[u8], location: &str) -> Result<TableMetadata, CatalogError> {
    let act = format!("read table metadata {location}");
    let unpacked;
    let json = if bytes.starts_with(&GZIP_MAGIC) {
        unpacked = gunzip(bytes).map_err(|problem| corrupt(&act, format!("broken gzip: {problem}")))?;
        &unpacked[..]
    } else {
        bytes
    };
    let value = serde_json::from_slice(json).map_err(|error| corrupt(&act, format!("it is not JSON: {error}")))?;
    from_json(value, &act)
}

/// The metadata in a JSON value.
pub(crate) fn from_json(mut value: Value, act: &str) -> Result<TableMetadata, CatalogError> {
    let version = format_version(&value, act)?;
    refuse_types(&value, act)?;
    complete_snapshots(&mut value);
    let missing = missing_keys(&value, version);
    let defaults = defaults(&value);
    let metadata: TableMetadata = serde_json::from_value(value).map_err(|error| {
        if missing.is_empty() {
            corrupt(act, format!("it breaks the rules of format version {version}: {error}"))
        } else {
            corrupt(act, format!("it lacks {}", missing.join(", ")))
        }
    })?;
    // The iceberg crate leaves a default out that it cannot read, and rows would have null in its place.
    let lost = defaults.iter().find(|(schema, id, ..)| {
        let schema = schema.and_then(|id| metadata.schema_by_id(id)).unwrap_or(metadata.current_schema());
        schema.field_by_id(*id).is_some_and(|field| field.initial_default.is_none())
    });
    match lost {
        None => Ok(metadata),
        Some((_, _, path, kind)) => Err(CatalogError::Refused {
            act: act.to_owned(),
            problem: format!(
                "the initial default of column {path} cannot be read as {kind}, and rows that are older than the column \
                 have it; write them again with the value in them, or drop the column"
            ),
        }),
    }
}

/// Columns with an initial default, in each schema: the schema's id, the field's, its full name and its type.
fn defaults(value: &Value) -> Vec<(Option<i32>, i32, String, String)> {
    let mut found = Vec::new();
    let listed = value.get("schemas").and_then(Value::as_array).into_iter().flatten();
    for schema in listed.chain(value.get("schema")) {
        let id = schema.get("schema-id").and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
        let mut open = vec![(String::new(), schema)];
        while let Some((path, kind)) = open.pop() {
            for field in kind.get("fields").and_then(Value::as_array).into_iter().flatten() {
                let (Some(name), Some(of)) = (field.get("name").and_then(Value::as_str), field.get("type")) else {
                    continue;
                };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let field_id = field.get("id").and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
                let default = field.get("initial-default").filter(|default| !default.is_null());
                if let (Some(field_id), Some(of), Some(_)) = (field_id, of.as_str(), default) {
                    found.push((id, field_id, path.clone(), of.to_owned()));
                }
                open.push((path, of));
            }
            for part in ["element", "value"] {
                open.extend(kind.get(part).map(|inner| (format!("{path}.{part}"), inner)));
            }
        }
    }
    found
}

/// A table that was upgraded keeps the snapshots of version 1, which may lack what later versions require: their sequence
/// number is 0 (specification, reading v1 metadata for v2), and without a summary they are taken as the iceberg crate
/// takes them in a table of version 1.
fn complete_snapshots(value: &mut Value) {
    let snapshots = value.get_mut("snapshots").and_then(Value::as_array_mut).into_iter().flatten();
    for snapshot in snapshots.filter_map(Value::as_object_mut) {
        snapshot.entry("sequence-number").or_insert(0.into());
        snapshot.entry("summary").or_insert_with(|| serde_json::json!({"operation": "append"}));
    }
}

fn gunzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(bytes).take(METADATA_BYTES_MAX + 1).read_to_end(&mut unpacked)?;
    if read as u64 > METADATA_BYTES_MAX {
        return Err(std::io::Error::other(format!("more than {METADATA_BYTES_MAX} bytes")));
    }
    Ok(unpacked)
}

fn corrupt(act: &str, problem: String) -> CatalogError {
    CatalogError::Corrupt { act: act.to_owned(), problem }
}

fn format_version(value: &Value, act: &str) -> Result<u64, CatalogError> {
    if value.get("view-uuid").is_some() {
        return Err(CatalogError::Refused { act: act.to_owned(), problem: "it is a view, not a table".into() });
    }
    match value.get("format-version").and_then(Value::as_u64) {
        Some(version @ 1..=3) => Ok(version),
        Some(version) => Err(CatalogError::Refused {
            act: act.to_owned(),
            problem: format!("format version {version} is not supported; versions 1, 2 and 3 are"),
        }),
        None => Err(corrupt(act, "it is not table metadata: it has no format-version".into())),
    }
}

fn missing_keys(value: &Value, version: u64) -> Vec<&'static str> {
    let mut required = REQUIRED_V1.to_vec();
    if version >= 2 {
        required.extend(REQUIRED_V2);
    }
    if version >= 3 {
        required.extend(REQUIRED_V3);
    }
    required.into_iter().filter(|key| value.get(key).is_none()).collect()
}

fn refuse_types(value: &Value, act: &str) -> Result<(), CatalogError> {
    let listed = value.get("schemas").and_then(Value::as_array).into_iter().flatten();
    for schema in listed.chain(value.get("schema")) {
        let mut path = Vec::new();
        if let Some(kind) = uncarried_type(schema, &mut path) {
            let current = schema.get("schema-id") == value.get("current-schema-id");
            let whence = match schema.get("schema-id") {
                Some(id) if !current => format!(" in the older schema {id}"),
                _ => String::new(),
            };
            return Err(CatalogError::Refused {
                act: act.to_owned(),
                problem: format!(
                    "column {}{whence} has type {kind}, which is not supported; the table cannot be carried with it",
                    path.join(".")
                ),
            });
        }
    }
    Ok(())
}

/// The first type that is not carried, and in `path` the column that has it.
fn uncarried_type<'a>(kind: &'a Value, path: &mut Vec<&'a str>) -> Option<&'a str> {
    if let Some(name) = kind.as_str() {
        let with_arguments = name.starts_with("fixed[") || name.starts_with("decimal(");
        return (!with_arguments && !PRIMITIVE_TYPES.contains(&name)).then_some(name);
    }
    let fields = kind.get("fields").and_then(Value::as_array).into_iter().flatten();
    let fields = fields.filter_map(|field| Some((field.get("name")?.as_str()?, field.get("type")?)));
    let inner = ["element", "key", "value"].into_iter().filter_map(|part| Some((part, kind.get(part)?)));
    for (name, kind) in fields.chain(inner) {
        path.push(name);
        if let Some(found) = uncarried_type(kind, path) {
            return Some(found);
        }
        path.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use iceberg::spec::FormatVersion;
    use iceferry_common::fault::{Class, Classified};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_default_that_would_be_lost_is_refused_by_name() {
        let with = |kind: Value, default: Value| {
            let mut metadata = v2(kind);
            metadata["format-version"] = 3.into();
            metadata["next-row-id"] = 0.into();
            metadata["schemas"][0]["fields"][1]["initial-default"] = default;
            from_json(metadata, "load it")
        };
        assert!(with(json!("int"), json!(5)).is_ok());
        assert!(with(json!("int"), Value::Null).is_ok());
        let nested = json!({"type": "list", "element-id": 3, "element-required": false, "element": {"type": "struct",
            "fields": [{"id": 4, "name": "x", "required": false, "type": "int", "initial-default": "5"}]}});
        for (kind, default, column) in [
            (json!("int"), json!("5"), "column c "),
            (json!("timestamp_ns"), json!("2026-01-01T00:00:00.000000001"), "column c "),
            (nested, Value::Null, "column c.element.x "),
        ] {
            let error = with(kind, default).unwrap_err();
            assert_eq!(error.class(), Class::Refused);
            assert!(error.to_string().contains(column), "{error}");
        }
    }

    fn v2(kind: Value) -> Value {
        json!({
            "format-version": 2, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "/t",
            "last-sequence-number": 0, "last-updated-ms": 1, "last-column-id": 9, "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "id", "required": true, "type": "int"},
                {"id": 2, "name": "c", "required": false, "type": kind}]}],
            "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0, "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
        })
    }

    fn v1() -> Value {
        json!({
            "format-version": 1, "location": "/t", "last-updated-ms": 1, "last-column-id": 1,
            "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "int"}]},
            "partition-spec": [],
        })
    }

    fn read(value: &Value) -> Result<TableMetadata, CatalogError> {
        parse(value.to_string().as_bytes(), "/t/metadata/v1.metadata.json")
    }

    #[test]
    fn all_three_format_versions_load() {
        let mut v3 = v2(json!("timestamptz_ns"));
        v3["format-version"] = json!(3);
        v3["next-row-id"] = json!(0);
        assert_eq!(read(&v1()).unwrap().format_version(), FormatVersion::V1);
        assert_eq!(read(&v2(json!("decimal(9, 2)"))).unwrap().format_version(), FormatVersion::V2);
        assert_eq!(read(&v3).unwrap().format_version(), FormatVersion::V3);
    }

    #[test]
    fn an_upgraded_table_keeps_its_snapshots_of_version_1() {
        let mut table = v2(json!("int"));
        table["next-row-id"] = json!(0);
        table["current-snapshot-id"] = json!(7);
        table["snapshots"] = json!([{"snapshot-id": 7, "timestamp-ms": 1, "manifest-list": "/t/metadata/snap-7.avro"}]);
        for version in [1, 2, 3] {
            table["format-version"] = json!(version);
            let read = read(&table).unwrap();
            assert_eq!(read.current_snapshot().unwrap().sequence_number(), 0, "version {version}");
        }
    }

    #[test]
    fn gzip_is_told_by_the_bytes() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(v2(json!("fixed[3]")).to_string().as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        assert!(parse(&packed, "v1.metadata.json").is_ok());
        let error = parse(&packed[..packed.len() / 2], "v1.metadata.json").unwrap_err();
        assert_eq!(error.class(), Class::Corrupt);
    }

    #[test]
    fn a_type_that_is_not_carried_is_refused_by_its_column() {
        let nested = json!({"type": "struct", "fields": [
            {"id": 3, "name": "list", "required": false, "type": {"type": "list", "element-id": 4,
             "element-required": false, "element": {"type": "map", "key-id": 5, "key": "string", "value-id": 6,
             "value-required": false, "value": "variant"}}}]});
        for (kind, column, name) in [
            (json!("variant"), "column c has type variant", "variant"),
            (json!("unknown"), "column c has type unknown", "unknown"),
            (json!("geometry(srid:3857)"), "column c has type geometry(srid:3857)", "geometry"),
            (json!("geography"), "column c has type geography", "geography"),
            (nested, "column c.list.element.value has type variant", "nested"),
        ] {
            let error = read(&v2(kind)).unwrap_err();
            assert_eq!(error.class(), Class::Refused, "{name}");
            assert!(error.to_string().contains(column), "{error}");
        }
    }

    #[test]
    fn broken_metadata_says_what_is_wrong() {
        let mut short = v2(json!("int"));
        short.as_object_mut().unwrap().remove("last-sequence-number");
        let mut wrong = v2(json!("int"));
        wrong["current-schema-id"] = json!(7);
        let mut view = v2(json!("int"));
        view["view-uuid"] = json!("x");
        let mut newer = v2(json!("int"));
        newer["format-version"] = json!(4);
        for (bytes, class, words) in [
            (short.to_string(), Class::Corrupt, "lacks last-sequence-number"),
            (wrong.to_string(), Class::Corrupt, "current schema id 7"),
            (view.to_string(), Class::Refused, "it is a view"),
            (newer.to_string(), Class::Refused, "format version 4"),
            ("{\"format-version\": 2".to_owned(), Class::Corrupt, "not JSON"),
            ("[]".to_owned(), Class::Corrupt, "no format-version"),
            (String::new(), Class::Corrupt, "not JSON"),
        ] {
            let error = parse(bytes.as_bytes(), "/t/x").unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.to_string().contains("/t/x"), "{error}");
        }
    }
}
