//! Avro files taken apart and written again: with other codecs, blocks, orders of fields, and fields that nobody knows.

use std::collections::HashSet;
use std::io::Write;

use serde_json::{Value as Json, json};

use super::super::container::Container;
use super::super::cursor::Cursor;
use super::super::schema::{self, AvroType, parts};
use super::random::Random;

/// The bytes as a block of this codec.
pub(in super::super) fn compress(codec: &str, bytes: &[u8]) -> Vec<u8> {
    match codec {
        "null" => bytes.to_vec(),
        "deflate" => {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "snappy" => {
            let mut block = snap::raw::Encoder::new().compress_vec(bytes).unwrap();
            block.extend(crc32fast::hash(bytes).to_be_bytes());
            block
        }
        "zstandard" => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        other => panic!("no codec {other}"),
    }
}

/// A file, its blocks not compressed.
pub(super) struct File {
    pub(super) header: Vec<(String, Vec<u8>)>,
    pub(super) blocks: Vec<(u64, Vec<u8>)>,
}

const KEYS: [&str; 8] = [
    "avro.schema",
    "schema",
    "schema-id",
    "partition-spec",
    "partition-spec-id",
    "format-version",
    "content",
    "iceberg.schema",
];

impl File {
    pub(super) fn open(bytes: &[u8]) -> Self {
        let mut container = Container::open(bytes).unwrap();
        let value = |key: &&str| container.header(key).map(|value| ((*key).to_owned(), value.to_vec()));
        let header = KEYS.iter().filter_map(value).collect();
        let mut blocks = Vec::new();
        while let Some((count, block)) = container.next_block().unwrap() {
            blocks.push((count, block.to_vec()));
        }
        Self { header, blocks }
    }

    pub(super) fn json(&self, key: &str) -> Json {
        let (_, value) = self.header.iter().find(|(name, _)| name == key).unwrap();
        serde_json::from_slice(value).unwrap()
    }

    pub(super) fn set(&mut self, key: &str, value: &Json) {
        self.header.retain(|(name, _)| name != key);
        self.header.push((key.to_owned(), value.to_string().into_bytes()));
    }

    pub(super) fn write(&self, codec: &str) -> Vec<u8> {
        let mut file = b"Obj\x01".to_vec();
        put_long(&mut file, self.header.len() as i64 + 1);
        let codec_entry = ("avro.codec".to_owned(), codec.as_bytes().to_vec());
        for (key, value) in self.header.iter().chain([&codec_entry]) {
            put_bytes(&mut file, key.as_bytes());
            put_bytes(&mut file, value);
        }
        file.push(0);
        let marker = [7; 16];
        file.extend(marker);
        for (count, block) in &self.blocks {
            put_long(&mut file, *count as i64);
            put_bytes(&mut file, &compress(codec, block));
            file.extend(marker);
        }
        file
    }
}

fn put_long(into: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        into.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_long(into, bytes.len() as i64);
    into.extend_from_slice(bytes);
}

/// The fields of the record of a data file.
pub(super) fn file_fields(schema: &mut Json) -> &mut Vec<Json> {
    let entry = schema["fields"].as_array_mut().unwrap();
    let file = entry.iter_mut().find(|field| field["name"] == "data_file").unwrap();
    file["type"]["fields"].as_array_mut().unwrap()
}

/// The fields of the partition tuple.
pub(super) fn tuple_fields(schema: &mut Json) -> &mut Vec<Json> {
    let tuple = file_fields(schema).iter_mut().find(|field| field["name"] == "partition").unwrap();
    tuple["type"]["fields"].as_array_mut().unwrap()
}

/// A manifest whose partition fields have the same plain names in spec and tuple: the iceberg crate finds values by name.
pub(super) fn plainly_named(manifest: &[u8]) -> Vec<u8> {
    let mut file = File::open(manifest);
    let (mut schema, mut spec) = (file.json("avro.schema"), file.json("partition-spec"));
    let fields = spec.as_array_mut().unwrap();
    for (at, field) in fields.iter_mut().enumerate() {
        let id = field["field-id"].as_i64().unwrap_or(1000 + at as i64);
        field["name"] = format!("field_{id}_").into();
    }
    for (at, field) in tuple_fields(&mut schema).iter_mut().enumerate() {
        let id = field["field-id"].as_i64().unwrap_or(1000 + at as i64);
        field["name"] = format!("field_{id}_").into();
    }
    file.set("avro.schema", &schema);
    file.set("partition-spec", &spec);
    file.write("null")
}

/// A value, whatever its branch in a union.
#[derive(Debug, Clone)]
enum Tree {
    Null,
    Number(i64),
    /// Of a length that its type tells.
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Record(Vec<(String, Tree)>),
    Array(Vec<Tree>),
}

fn decode(of: &AvroType, cursor: &mut Cursor<'_>) -> Tree {
    match of.branch(cursor).unwrap() {
        AvroType::Null => Tree::Null,
        AvroType::Int | AvroType::Long | AvroType::Enum(_) => Tree::Number(cursor.long().unwrap()),
        AvroType::Boolean => Tree::Fixed(cursor.take(1).unwrap().to_vec()),
        AvroType::Float => Tree::Fixed(cursor.take(4).unwrap().to_vec()),
        AvroType::Double => Tree::Fixed(cursor.take(8).unwrap().to_vec()),
        AvroType::Fixed(length, _) => Tree::Fixed(cursor.take(*length).unwrap().to_vec()),
        AvroType::Bytes(_) | AvroType::Text(_) => Tree::Bytes(cursor.bytes().unwrap().to_vec()),
        AvroType::Record(fields) => {
            Tree::Record(fields.iter().map(|field| (field.name.clone(), decode(&field.of, cursor))).collect())
        }
        AvroType::Array(item) => {
            let mut items = Vec::new();
            parts(cursor, |cursor| {
                items.push(decode(item, cursor));
                Ok(())
            })
            .unwrap();
            Tree::Array(items)
        }
        other => panic!("manifests have no {other:?}"),
    }
}

/// Writes a value; what a record lacks is made up.
fn encode(of: &AvroType, tree: Option<&Tree>, random: &mut Random, into: &mut Vec<u8>) {
    match (of, tree) {
        (AvroType::Union(branches), tree) => {
            let is_null = |branch: &AvroType| *branch == AvroType::Null;
            let at = match tree {
                Some(Tree::Null) => branches.iter().position(is_null).unwrap(),
                Some(_) => branches.iter().position(|branch| !is_null(branch)).unwrap(),
                None => random.below(branches.len()),
            };
            put_long(into, at as i64);
            encode(&branches[at], tree, random, into);
        }
        (AvroType::Null, _) => {}
        (AvroType::Int | AvroType::Long, Some(Tree::Number(value))) => put_long(into, *value),
        (AvroType::Int, None) => put_long(into, i64::from(random.next() as i32)),
        (AvroType::Long, None) => put_long(into, random.next() as i64),
        (AvroType::Enum(symbols), None) => put_long(into, random.below(*symbols) as i64),
        (_, Some(Tree::Fixed(bytes))) => into.extend_from_slice(bytes),
        (_, Some(Tree::Bytes(bytes))) => put_bytes(into, bytes),
        (AvroType::Boolean, None) => into.push(random.below(2) as u8),
        (AvroType::Float, None) => into.extend(1.5f32.to_le_bytes()),
        (AvroType::Double, None) => into.extend(2.5f64.to_le_bytes()),
        (AvroType::Fixed(length, _), None) => into.extend((0..*length).map(|at| at as u8)),
        (AvroType::Bytes(_) | AvroType::Text(_), None) => put_bytes(into, &vec![b'x'; random.below(200)]),
        (AvroType::Record(fields), tree) => {
            for field in fields {
                let of_field = match tree {
                    Some(Tree::Record(of)) => of.iter().find(|(name, _)| *name == field.name).map(|(_, tree)| tree),
                    _ => None,
                };
                encode(&field.of, of_field, random, into);
            }
        }
        (AvroType::Array(item), tree) => {
            let items: Vec<Option<&Tree>> = match tree {
                Some(Tree::Array(items)) => items.iter().map(Some).collect(),
                _ => vec![None; random.below(4)],
            };
            put_parts(items, random, into, |item_tree, random, into| encode(item, item_tree, random, into));
        }
        (AvroType::Map(value), _) => {
            let items = vec![(); random.below(4)];
            put_parts(items, random, into, |(), random, into| {
                put_bytes(into, b"key");
                encode(value, None, random, into);
            });
        }
        (of, tree) => panic!("{tree:?} is no {of:?}"),
    }
}

/// The parts of an array or map, with their bytes told or not.
fn put_parts<T>(
    items: Vec<T>,
    random: &mut Random,
    into: &mut Vec<u8>,
    mut put: impl FnMut(T, &mut Random, &mut Vec<u8>),
) {
    let mut items = items.into_iter();
    while items.len() > 0 {
        let count = 1 + random.below(items.len());
        let mut part = Vec::new();
        items.by_ref().take(count).for_each(|item| put(item, random, &mut part));
        if random.chance(50) {
            put_long(into, -(count as i64));
            put_long(into, part.len() as i64);
        } else {
            put_long(into, count as i64);
        }
        into.extend(part);
    }
    into.push(0);
}

/// A manifest that says the same in another form.
pub(super) fn rewritten(manifest: &[u8], random: &mut Random) -> Vec<u8> {
    let mut file = File::open(manifest);
    let mut json = file.json("avro.schema");
    let old = schema::parse(json.to_string().as_bytes()).unwrap();
    let mut entries = Vec::new();
    for (count, block) in &file.blocks {
        let mut cursor = Cursor::new(block);
        entries.extend((0..*count).map(|_| decode(&old, &mut cursor)));
    }
    let mut names = HashSet::new();
    add_fields(file_fields(&mut json), random, &mut names);
    turn_unions(file_fields(&mut json), random);
    random.shuffle(file_fields(&mut json));
    // The iceberg crate reads the tuple by the names in it, so its order may be any too.
    random.shuffle(tuple_fields(&mut json));
    let fields = json["fields"].as_array_mut().unwrap();
    add_fields(fields, random, &mut names);
    random.shuffle(fields);
    let new = schema::parse(json.to_string().as_bytes()).unwrap();
    file.set("avro.schema", &json);
    file.blocks.clear();
    let mut left = entries.iter();
    // No block is empty: the iceberg crate takes one for the end of the file.
    while left.len() > 0 {
        let count = 1 + random.below(left.len());
        let mut block = Vec::new();
        left.by_ref().take(count).for_each(|entry| encode(&new, Some(entry), random, &mut block));
        file.blocks.push((count as u64, block));
    }
    random.shuffle(&mut file.header);
    let codec = ["null", "deflate", "snappy", "zstandard"][random.below(4)];
    file.write(codec)
}

/// Fields of a later version of the format, or of one writer alone.
fn add_fields(fields: &mut Vec<Json>, random: &mut Random, names: &mut HashSet<String>) {
    for _ in 0..random.below(3) {
        let name = format!("later_{}", names.len());
        let of = match random.below(9) {
            0 => json!("boolean"),
            1 => json!(["null", "double", "string"]),
            2 => json!({"type": "map", "values": ["null", "bytes"]}),
            3 => json!({"type": "array", "items": "float"}),
            4 => json!({"type": "record", "name": format!("record_{name}"), "fields": [
                {"name": "a", "type": "long"}, {"name": "b", "type": {"type": "array", "items": "string"}}]}),
            5 => json!({"type": "fixed", "name": format!("fixed_{name}"), "size": 3}),
            6 => json!({"type": "enum", "name": format!("enum_{name}"), "symbols": ["A", "B"]}),
            7 => json!(["null", {"type": "array", "items": {"type": "map", "values": "int"}}]),
            _ => json!("null"),
        };
        fields.push(json!({"name": name, "type": of, "field-id": 5_000 + names.len()}));
        names.insert(name);
    }
}

/// Optional fields with null as their second branch.
fn turn_unions(fields: &mut [Json], random: &mut Random) {
    for field in fields {
        if let Some(branches) = field["type"].as_array_mut().filter(|_| random.chance(30)) {
            branches.reverse();
            // The default of a union is of its first branch.
            field.as_object_mut().unwrap().remove("default");
        }
    }
}
