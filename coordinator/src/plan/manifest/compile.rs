//! From the header of a manifest to its layout.

use std::collections::HashSet;

use iceberg::spec::{PartitionSpec, Schema};
use serde_json::{Value as Json, json};

use super::Unreadable;
use super::layout::{Layout, PairSlot, Pairs, Role, Slot, Step};
use super::schema::{self, AvroType, Field};
use super::tuple::Tuple;

/// The entries of the header that a layout depends on.
pub(super) const HEADER: [&str; 5] = ["avro.schema", "schema", "partition-spec", "partition-spec-id", "format-version"];

/// Field ids of a manifest; fixed by the specification.
const DATA_FILE_ID: i32 = 2;
const PARTITION_ID: i32 = 102;
/// Id of the first partition field, where a spec of version 1 does not say it.
const FIRST_PARTITION_FIELD_ID: i32 = 1_000;

/// A field that is wanted: its id, its name, and what it is taken as.
type Wanted = (i32, &'static str, Take);

#[derive(Debug, Clone, Copy)]
enum Take {
    One(Slot),
    Pairs(PairSlot),
    File,
}

/// Of an entry.
const ENTRY: [Wanted; 3] = [
    (0, "status", Take::One(Slot::Status)),
    (3, "sequence_number", Take::One(Slot::Sequence)),
    (DATA_FILE_ID, "data_file", Take::File),
];

/// Of the file in it.
const FILE: [Wanted; 19] = [
    (134, "content", Take::One(Slot::Content)),
    (100, "file_path", Take::One(Slot::Path)),
    (101, "file_format", Take::One(Slot::Format)),
    (PARTITION_ID, "partition", Take::One(Slot::Tuple)),
    (103, "record_count", Take::One(Slot::RecordCount)),
    (104, "file_size_in_bytes", Take::One(Slot::Size)),
    (109, "value_counts", Take::Pairs(PairSlot::Values)),
    (110, "null_value_counts", Take::Pairs(PairSlot::Nulls)),
    (137, "nan_value_counts", Take::Pairs(PairSlot::Nans)),
    (125, "lower_bounds", Take::Pairs(PairSlot::Lower)),
    (128, "upper_bounds", Take::Pairs(PairSlot::Upper)),
    (131, "key_metadata", Take::One(Slot::KeyMetadata)),
    (132, "split_offsets", Take::One(Slot::SplitOffsets)),
    (135, "equality_ids", Take::One(Slot::EqualityIds)),
    (140, "sort_order_id", Take::One(Slot::SortOrder)),
    (142, "first_row_id", Take::One(Slot::FirstRowId)),
    (143, "referenced_data_file", Take::One(Slot::Referenced)),
    (144, "content_offset", Take::One(Slot::ContentOffset)),
    (145, "content_size_in_bytes", Take::One(Slot::ContentSize)),
];

/// What every version of the format requires.
const REQUIRED: [&str; 6] = ["status", "data_file", "file_path", "file_format", "record_count", "file_size_in_bytes"];

/// What version 1 does not have, whatever a schema says.
const SINCE_V2: [&str; 7] = [
    "sequence_number",
    "content",
    "equality_ids",
    "first_row_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
];

/// The layout of manifests whose header has these values of [`HEADER`].
pub(super) fn layout(header: [Option<&[u8]>; HEADER.len()]) -> Result<Layout, Unreadable> {
    let [avro, schema, spec, spec_id, version] = header;
    let lacks = |key: &str| Unreadable::damaged(format!("its header has no {key}"));
    let is_v1 = match version.map(<[u8]>::trim_ascii) {
        None | Some(b"1") => true,
        Some(b"2" | b"3") => false,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(Unreadable::Unsupported(format!(
                "it is of format version {other}, which is not supported; copy the table with a newer iceferry"
            )));
        }
    };
    let avro = schema::parse(avro.ok_or_else(|| lacks(HEADER[0]))?).map_err(Unreadable::damaged)?;
    let schema: Schema = serde_json::from_slice(schema.ok_or_else(|| lacks(HEADER[1]))?)
        .map_err(|error| Unreadable::damaged(format!("the table schema in its header: {error}")))?;
    let spec = partition_spec(spec.ok_or_else(|| lacks(HEADER[2]))?, spec_id)?;
    let AvroType::Record(fields) = &avro else { return Err(Unreadable::damaged("its entries are no records")) };
    let mut seen = HashSet::new();
    let steps = steps(fields, &ENTRY, is_v1, &mut seen)?;
    if let Some(missing) = REQUIRED.into_iter().find(|name| !seen.contains(name)) {
        return Err(Unreadable::damaged(format!("its entries have no field {missing}")));
    }
    let tuple = Tuple::new(partition_tuple(fields), &spec, &schema).map_err(Unreadable::damaged)?;
    Ok(Layout { steps, is_v1, schema, spec, tuple })
}

/// What to do with each field of a record.
fn steps(
    fields: &[Field],
    wanted: &[Wanted],
    is_v1: bool,
    seen: &mut HashSet<&'static str>,
) -> Result<Box<[Step]>, Unreadable> {
    let mut steps = Vec::with_capacity(fields.len());
    for field in fields {
        let wanted = wanted.iter().find(|(id, name, _)| is_field(field, *id, name));
        let wanted = wanted.filter(|(_, name, _)| !(is_v1 && SINCE_V2.contains(name)));
        let Some((_, name, take)) = wanted else {
            steps.push(Step::Skip(field.of.clone()));
            continue;
        };
        if !seen.insert(name) {
            return Err(Unreadable::damaged(format!("its entries have two fields {name}")));
        }
        let step = match take {
            Take::File => match &field.of {
                AvroType::Record(fields) => Some(Step::File(self::steps(fields, &FILE, is_v1, seen)?)),
                _ => None,
            },
            Take::Pairs(slot) => pairs(&field.of, *slot).map(|pairs| Step::Pairs(*slot, pairs)),
            Take::One(slot) => is_kind(*slot, &field.of).then(|| Step::Read(*slot, field.of.clone())),
        };
        steps.push(step.ok_or_else(|| {
            Unreadable::damaged(format!("field {name} of its entries has a type that the format does not have for it"))
        })?);
    }
    Ok(steps.into())
}

/// Whether a field is the one of this id; in files without ids, of this name.
fn is_field(field: &Field, id: i32, name: &str) -> bool {
    match field.id {
        Some(of_field) => of_field == id,
        None => field.name == name,
    }
}

fn is_kind(slot: Slot, of: &AvroType) -> bool {
    match slot {
        Slot::Status
        | Slot::Sequence
        | Slot::Content
        | Slot::RecordCount
        | Slot::Size
        | Slot::SortOrder
        | Slot::FirstRowId
        | Slot::ContentOffset
        | Slot::ContentSize => of.is_number(),
        Slot::Path | Slot::Format | Slot::KeyMetadata | Slot::Referenced => of.is_bytes(),
        Slot::SplitOffsets | Slot::EqualityIds => {
            of.is_array_of(&|item| matches!(item, AvroType::Int | AvroType::Long))
        }
        Slot::Tuple => matches!(of, AvroType::Record(_)),
    }
}

/// How a map from field ids is written; `None` when it is none.
fn pairs(of: &AvroType, slot: PairSlot) -> Option<Pairs> {
    let (array, null_branches) = match of {
        AvroType::Union(branches) => {
            let is_null: Box<[bool]> = branches.iter().map(|branch| *branch == AvroType::Null).collect();
            let mut others = branches.iter().filter(|branch| **branch != AvroType::Null);
            (others.next().filter(|_| others.next().is_none())?, Some(is_null))
        }
        of => (of, None),
    };
    let AvroType::Array(item) = array else { return None };
    let AvroType::Record(fields) = item.as_ref() else { return None };
    let role = |field: &Field| match field.name.as_str() {
        "key" => Role::Key,
        "value" => Role::Value,
        _ => Role::Other,
    };
    let fields: Box<[(Role, AvroType)]> = fields.iter().map(|field| (role(field), field.of.clone())).collect();
    let only = |wanted: Role| {
        let mut of_role = fields.iter().filter(|(role, _)| *role == wanted);
        of_role.next().filter(|_| of_role.next().is_none()).map(|(_, of)| of)
    };
    let (key, value) = (only(Role::Key)?, only(Role::Value)?);
    let is_value = match slot {
        PairSlot::Lower | PairSlot::Upper => value.is_bytes(),
        PairSlot::Values | PairSlot::Nulls | PairSlot::Nans => value.is_number(),
    };
    (key.is_number() && is_value).then(|| Pairs { of: of.clone(), null_branches, fields })
}

/// The fields of the partition tuple in the record of an entry.
fn partition_tuple(entry: &[Field]) -> Option<&[Field]> {
    let inner = |fields: &'_ [Field], id: i32, name: &str| fields.iter().position(|field| is_field(field, id, name));
    let AvroType::Record(file) = &entry[inner(entry, DATA_FILE_ID, "data_file")?].of else { return None };
    match &file[inner(file, PARTITION_ID, "partition")?].of {
        AvroType::Record(fields) => Some(fields),
        _ => None,
    }
}

/// The partition spec of the header. It is taken as it stands: a removed (void) field may have its column's name, and a
/// column may be gone that such a field was made of.
fn partition_spec(fields: &[u8], spec_id: Option<&[u8]>) -> Result<PartitionSpec, Unreadable> {
    let wrong = |error: serde_json::Error| Unreadable::damaged(format!("the partition spec in its header: {error}"));
    let mut fields: Json = serde_json::from_slice(fields).map_err(wrong)?;
    for (field, id) in fields.as_array_mut().into_iter().flatten().zip(FIRST_PARTITION_FIELD_ID..) {
        if let Some(field) = field.as_object_mut().filter(|field| !field.contains_key("field-id")) {
            field.insert("field-id".to_owned(), id.into());
        }
    }
    let spec_id: Json = match spec_id {
        Some(id) => serde_json::from_slice(id).map_err(wrong)?,
        None => 0.into(),
    };
    serde_json::from_value(json!({"spec-id": spec_id, "fields": fields})).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(avro: &str, version: &str) -> Result<Layout, Unreadable> {
        let schema = br#"{"type": "struct", "schema-id": 0, "fields": []}"#;
        layout([Some(avro.as_bytes()), Some(schema), Some(b"[]"), Some(b"0"), Some(version.as_bytes())])
    }

    fn avro(change: impl Fn(&mut Json, &mut Json)) -> String {
        let mut file = json!([
            {"name": "file_path", "type": "string", "field-id": 100},
            {"name": "file_format", "type": "string", "field-id": 101},
            {"name": "record_count", "type": "long", "field-id": 103},
            {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        ]);
        let mut entry = json!([{"name": "status", "type": "int", "field-id": 0}]);
        change(&mut entry, &mut file);
        let of_file = json!({"type": "record", "name": "r2", "fields": file});
        entry.as_array_mut().unwrap().push(json!({"name": "data_file", "type": of_file, "field-id": 2}));
        json!({"type": "record", "name": "manifest_entry", "fields": entry}).to_string()
    }

    #[test]
    fn fields_are_told_by_id_and_by_name_where_there_are_no_ids() {
        assert!(header(&avro(|_, _| {}), "2").is_ok());
        let renamed = avro(|_, file| file[0]["name"] = "a_path".into());
        assert!(header(&renamed, "2").is_ok());
        let without_id = avro(|_, file| drop(file[0].as_object_mut().unwrap().remove("field-id")));
        assert!(header(&without_id, "2").is_ok());
        let another = avro(|_, file| file[0]["field-id"] = 999.into());
        assert!(header(&another, "2").unwrap_err() == Unreadable::damaged("its entries have no field file_path"));
    }

    #[test]
    fn what_is_missing_double_or_of_another_type_is_told() {
        let add = |field: Json| avro(move |_, file| file.as_array_mut().unwrap().push(field.clone()));
        let wrong = [
            add(json!({"name": "p", "type": "string", "field-id": 100})),
            add(json!({"name": "split_offsets", "type": "long", "field-id": 132})),
            add(json!({"name": "value_counts", "type": {"type": "map", "values": "long"}, "field-id": 109})),
            avro(|_, file| file[2]["type"] = "string".into()),
            avro(|entry, _| drop(entry.as_array_mut().unwrap().remove(0))),
            "\"long\"".to_owned(),
            "[".to_owned(),
        ];
        for avro in wrong {
            assert!(matches!(header(&avro, "2"), Err(Unreadable::Damaged(_))), "{avro}");
        }
        assert!(matches!(header(&avro(|_, _| {}), "4"), Err(Unreadable::Unsupported(_))));
    }
}
