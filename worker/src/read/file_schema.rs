//! The columns of a file, as a tree that field ids are looked up in.
//!
//! A file's fields are found by field id. A file that has no ids at all gets them from the table's name mapping, else, as
//! Iceberg's own readers do it, a Parquet file by position at top level and an Avro file by name. A file with some ids is
//! taken at its word: what has none is no column of the table.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use iceberg::spec::{MappedField, NameMapping};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;

use super::ReadError;
use super::error::guarded;

/// One field of a file.
#[derive(Debug)]
pub(crate) struct FileField {
    pub(crate) id: Option<i32>,
    pub(crate) name: String,
    /// The type that the decoder gives.
    pub(crate) arrow_type: DataType,
    /// Leaves below it: the columns of a Parquet file.
    pub(crate) leaves: Range<usize>,
    pub(crate) shape: Shape,
}

/// How a field is made.
#[derive(Debug)]
pub(crate) enum Shape {
    Leaf {
        int96: bool,
    },
    Struct(Vec<FileField>),
    /// The one element of a list. It is never looked up: a list has no other.
    List(Box<FileField>),
    /// Key and value of a map.
    Map(Box<FileField>, Box<FileField>),
}

/// The columns of a file.
#[derive(Debug)]
pub(crate) struct FileSchema {
    pub(crate) fields: Vec<FileField>,
    /// Leaves in all.
    pub(crate) leaf_count: usize,
    pub(crate) by_name: ByName,
}

/// Which fields of a file are found by name: only in a file without ids, read without a name mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByName {
    /// None: they have ids.
    Never,
    /// Those inside of structs.
    Nested,
    /// All.
    Everywhere,
}

/// Where a file without field ids gets them from.
#[derive(Debug, Clone)]
pub(crate) enum FallbackIds {
    /// The table's name mapping.
    Names(Arc<NameMapping>),
    /// What the format's readers agreed on: the nth top-level column of a Parquet file has id n, counted from 1, and the
    /// columns of an Avro file are known by their names.
    Convention,
    /// From nowhere: such a file is refused.
    Refuse,
}

impl FallbackIds {
    /// The fallback of a table.
    pub(crate) fn of_table(table: &str, name_mapping: Option<&str>) -> Result<Self, ReadError> {
        let Some(text) = name_mapping else { return Ok(Self::Convention) };
        let mapping = serde_json::from_str(text).map_err(|error| ReadError::Table {
            table: table.to_owned(),
            what: format!("its property schema.name-mapping.default is no name mapping: {error}"),
        })?;
        Ok(Self::Names(Arc::new(mapping)))
    }

    /// The same for files whose columns must not be guessed.
    pub(crate) fn certain(&self) -> Self {
        match self {
            Self::Names(mapping) => Self::Names(Arc::clone(mapping)),
            Self::Convention | Self::Refuse => Self::Refuse,
        }
    }
}

impl FileSchema {
    /// The columns of the Parquet file with this footer, and what its decoder needs.
    pub(crate) fn of_parquet(
        location: &str,
        metadata: &Arc<ParquetMetaData>,
        ids: &FallbackIds,
    ) -> Result<(Self, ArrowReaderMetadata), ReadError> {
        // The Arrow schema that some writers leave in a file is their own business: types come from Parquet.
        let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let load = |options| {
            guarded(location, || {
                ArrowReaderMetadata::try_new(Arc::clone(metadata), options).map_err(|error| {
                    ReadError::unsupported(location, format!("its schema has a type that is not supported: {error}"))
                })
            })
        };
        let mut arrow = load(options())?;
        let mut fields = field_tree(&arrow);
        let leaf_count = metadata.file_metadata().schema_descr().num_columns();
        if fields.last().map_or(0, |field| field.leaves.end) != leaf_count {
            return Err(ReadError::unsupported(location, "its schema has a shape that is not supported"));
        }
        if fields.iter().any(has_int96) {
            // Decoded as nanoseconds, INT96 would wrap around in 2262 without a word; as microseconds it holds all
            // years that people use. What is finer is cut off, as Iceberg's own readers do it.
            let hinted = Schema::new(micros_for_int96(arrow.schema().fields(), &fields));
            arrow = load(options().with_schema(Arc::new(hinted)))?;
            fields = field_tree(&arrow);
        }
        let by_position = |fields: &mut [FileField]| {
            for (field, id) in fields.iter_mut().zip(1..) {
                field.id = Some(id);
            }
            ByName::Nested
        };
        Ok((Self::of(location, fields, leaf_count, ids, by_position)?, arrow))
    }

    /// The columns of an Avro file.
    pub(crate) fn of_avro(
        location: &str,
        fields: Vec<FileField>,
        leaf_count: usize,
        ids: &FallbackIds,
    ) -> Result<Self, ReadError> {
        Self::of(location, fields, leaf_count, ids, |_| ByName::Everywhere)
    }

    fn of(
        location: &str,
        mut fields: Vec<FileField>,
        leaf_count: usize,
        ids: &FallbackIds,
        by_convention: impl FnOnce(&mut [FileField]) -> ByName,
    ) -> Result<Self, ReadError> {
        let mut by_name = ByName::Never;
        if !fields.iter().any(has_id) {
            match ids {
                FallbackIds::Names(mapping) => {
                    let top: Vec<&MappedField> = mapping.fields().iter().collect();
                    fields.iter_mut().for_each(|field| map_names(field, &top));
                }
                FallbackIds::Convention => by_name = by_convention(&mut fields),
                FallbackIds::Refuse => {
                    let what = "its columns have no field ids, so what it deletes by is not certain: set the table's \
                                property schema.name-mapping.default";
                    return Err(ReadError::unsupported(location, what));
                }
            }
        }
        let mut seen = HashSet::new();
        if let Some(id) = fields.iter().find_map(|field| repeated_id(field, &mut seen)) {
            return Err(ReadError::damaged(location, format!("two of its columns have field id {id}")));
        }
        Ok(Self { fields, leaf_count, by_name })
    }
}

fn field_tree(arrow: &ArrowReaderMetadata) -> Vec<FileField> {
    let schema = arrow.parquet_schema();
    let int96: Vec<bool> = schema.columns().iter().map(|leaf| leaf.physical_type() == PhysicalType::INT96).collect();
    let mut next_leaf = 0;
    arrow.schema().fields().iter().map(|field| file_field(field, &int96, &mut next_leaf)).collect()
}

fn file_field(field: &Field, int96: &[bool], next_leaf: &mut usize) -> FileField {
    let start = *next_leaf;
    let shape = match field.data_type() {
        DataType::Struct(fields) => {
            Shape::Struct(fields.iter().map(|field| file_field(field, int96, next_leaf)).collect())
        }
        DataType::List(element) => Shape::List(Box::new(file_field(element, int96, next_leaf))),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                let key = file_field(&fields[0], int96, next_leaf);
                Shape::Map(Box::new(key), Box::new(file_field(&fields[1], int96, next_leaf)))
            }
            // Arrow knows no such map; taking it for one leaf makes the leaf counts differ, which is refused.
            _ => leaf(int96, next_leaf),
        },
        _ => leaf(int96, next_leaf),
    };
    let id = field.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok());
    let arrow_type = field.data_type().clone();
    FileField { id, name: field.name().clone(), arrow_type, leaves: start..*next_leaf, shape }
}

fn leaf(int96: &[bool], next_leaf: &mut usize) -> Shape {
    let int96 = int96.get(*next_leaf).copied().unwrap_or_default();
    *next_leaf += 1;
    Shape::Leaf { int96 }
}

fn children(field: &FileField) -> Vec<&FileField> {
    match &field.shape {
        Shape::Leaf { .. } => Vec::new(),
        Shape::Struct(fields) => fields.iter().collect(),
        Shape::List(element) => vec![element],
        Shape::Map(key, value) => vec![key, value],
    }
}

fn has_int96(field: &FileField) -> bool {
    matches!(field.shape, Shape::Leaf { int96: true }) || children(field).into_iter().any(has_int96)
}

fn has_id(field: &FileField) -> bool {
    field.id.is_some() || children(field).into_iter().any(has_id)
}

fn repeated_id(field: &FileField, seen: &mut HashSet<i32>) -> Option<i32> {
    let own = field.id.filter(|id| !seen.insert(*id));
    own.or_else(|| children(field).into_iter().find_map(|child| repeated_id(child, seen)))
}

fn micros_for_int96(fields: &Fields, tree: &[FileField]) -> Fields {
    fields.iter().zip(tree).map(|(field, node)| micros_field(field, node)).collect()
}

fn micros_field(field: &FieldRef, node: &FileField) -> FieldRef {
    let data_type = match (&node.shape, field.data_type()) {
        (Shape::Leaf { int96: true }, _) => DataType::Timestamp(TimeUnit::Microsecond, None),
        (Shape::Struct(nodes), DataType::Struct(fields)) => DataType::Struct(micros_for_int96(fields, nodes)),
        (Shape::List(node), DataType::List(element)) => DataType::List(micros_field(element, node)),
        (Shape::Map(key, value), DataType::Map(entries, sorted)) => match entries.data_type() {
            DataType::Struct(fields) => {
                let fields: Fields = [micros_field(&fields[0], key), micros_field(&fields[1], value)].into();
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(fields))), *sorted)
            }
            _ => return Arc::clone(field),
        },
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Gives a field the id of its name, and its children theirs. A mapping speaks of list elements and map entries by the
/// names `element`, `key` and `value`, whatever the file calls them.
fn map_names(field: &mut FileField, mapping: &[&MappedField]) {
    let name = field.name.clone();
    map_as(field, &name, mapping);
}

fn map_as(field: &mut FileField, name: &str, mapping: &[&MappedField]) {
    let Some(found) = mapping.iter().find(|mapped| mapped.names().iter().any(|known| known == name)) else { return };
    field.id = found.field_id();
    let below: Vec<&MappedField> = found.fields().iter().map(Arc::as_ref).collect();
    match &mut field.shape {
        Shape::Leaf { .. } => {}
        Shape::Struct(fields) => fields.iter_mut().for_each(|field| map_names(field, &below)),
        Shape::List(element) => map_as(element, "element", &below),
        Shape::Map(key, value) => {
            map_as(key, "key", &below);
            map_as(value, "value", &below);
        }
    }
}
