//! From the columns of a file to the columns that are wanted: which of them to read, and how to put them into the table's
//! shape, all by field id.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use arrow::error::ArrowError;
use iceberg::spec::{Datum, Literal, NestedFieldRef, PrimitiveType, Type};
use iceferry_common::model::Constant;

use super::ReadError;
use super::convert::{Conversion, conversion};
use super::file_schema::{ByName, FileField, FileSchema, Shape};
use super::literal::{Repeated, one_row};

/// Field ids from here on are not of a table's columns but of what the specification adds to them.
pub(crate) const FIRST_RESERVED_ID: i32 = i32::MAX - 200;

const MICROS_PER_DAY: i64 = 86_400 * 1_000_000;

/// What to do about a required column that neither the file nor a default gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// The file does not fit the table: an error.
    Refuse,
    /// Null, as a row of that file has it for the purpose of an equality delete.
    Null,
}

/// Collects what is wanted of one file.
pub(super) struct Projection<'a> {
    location: &'a str,
    file: &'a FileSchema,
    constants: &'a [Constant],
    leaves: Vec<bool>,
}

/// Puts batches of a file into the wanted shape.
#[derive(Debug)]
pub(super) struct Adapter {
    location: Arc<str>,
    schema: SchemaRef,
    children: Vec<Child>,
}

#[derive(Debug)]
struct Child {
    /// Index among its siblings in the file, then (after [`Adapter::settle`]) among those that are read.
    index: Option<usize>,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Missing(Repeated),
    Leaf(Conversion),
    Struct { fields: Fields, children: Vec<Child> },
    List { element: FieldRef, node: Box<Node> },
    Map { entries: FieldRef, key: Box<Node>, value: Box<Node> },
}

impl<'a> Projection<'a> {
    pub(super) fn new(location: &'a str, file: &'a FileSchema, constants: &'a [Constant]) -> Self {
        Self { location, file, constants, leaves: vec![false; file.leaf_count] }
    }

    /// Wants these columns. `schema` is their Arrow schema, field by field. The adapter is of use after
    /// [`Adapter::settle`].
    pub(super) fn want(
        &mut self,
        fields: &[NestedFieldRef],
        schema: &SchemaRef,
        if_missing: IfMissing,
    ) -> Result<Adapter, ReadError> {
        let file = self.file;
        let children = self.children(fields, schema.fields(), &file.fields, false, "", if_missing)?;
        Ok(Adapter { location: Arc::from(self.location), schema: Arc::clone(schema), children })
    }

    /// Which leaves of the file are wanted.
    pub(super) fn leaves(&self) -> &[bool] {
        &self.leaves
    }

    fn children(
        &mut self,
        wanted: &[NestedFieldRef],
        arrow: &Fields,
        file: &[FileField],
        nested: bool,
        path: &str,
        if_missing: IfMissing,
    ) -> Result<Vec<Child>, ReadError> {
        let by_name = match self.file.by_name {
            ByName::Never => false,
            ByName::Nested => nested,
            ByName::Everywhere => true,
        };
        let mut children = Vec::with_capacity(wanted.len());
        for (field, arrow_field) in wanted.iter().zip(arrow) {
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            let found = file.iter().position(|candidate| match by_name {
                true => candidate.name == field.name,
                false => candidate.id == Some(field.id),
            });
            let node = match found {
                Some(index) => {
                    self.node(&field.field_type, arrow_field.data_type(), &file[index], &path, if_missing)?
                }
                None => {
                    if by_name && field.id < FIRST_RESERVED_ID {
                        self.refuse_unknown_names(wanted, file, &path)?;
                    }
                    Node::Missing(self.missing(field, arrow_field.data_type(), &path, if_missing)?)
                }
            };
            children.push(Child { index: found, node });
        }
        Ok(children)
    }

    fn node(
        &mut self,
        wanted: &Type,
        arrow: &DataType,
        file: &FileField,
        path: &str,
        if_missing: IfMissing,
    ) -> Result<Node, ReadError> {
        match (wanted, arrow, &file.shape) {
            (Type::Primitive(primitive), _, Shape::Leaf { int96 }) => {
                let found = conversion(&file.arrow_type, *int96, primitive, arrow);
                let conversion = found.ok_or_else(|| self.misfit(wanted, file, path))?;
                self.leaves[file.leaves.start] = true;
                Ok(Node::Leaf(conversion))
            }
            (Type::Struct(wanted), DataType::Struct(fields), Shape::Struct(file_children)) => {
                let children = self.children(wanted.fields(), fields, file_children, true, path, if_missing)?;
                if children.iter().all(|child| child.index.is_none()) {
                    // Which rows have the struct is only to be seen from a column inside of it.
                    want_presence(file, &mut self.leaves);
                }
                Ok(Node::Struct { fields: fields.clone(), children })
            }
            (Type::List(list), DataType::List(element), Shape::List(file_element)) => {
                let wanted = &list.element_field.field_type;
                let path = format!("{path}.element");
                let node = self.node(wanted, element.data_type(), file_element, &path, if_missing)?;
                Ok(Node::List { element: Arc::clone(element), node: Box::new(node) })
            }
            (Type::Map(map), DataType::Map(entries, _), Shape::Map(file_key, file_value)) => {
                let DataType::Struct(fields) = entries.data_type() else {
                    return Err(self.misfit(wanted, file, path));
                };
                let (key_type, value_type) = (&map.key_field.field_type, &map.value_field.field_type);
                let key = self.node(key_type, fields[0].data_type(), file_key, &format!("{path}.key"), if_missing)?;
                let value =
                    self.node(value_type, fields[1].data_type(), file_value, &format!("{path}.value"), if_missing)?;
                Ok(Node::Map { entries: Arc::clone(entries), key: Box::new(key), value: Box::new(value) })
            }
            _ => Err(self.misfit(wanted, file, path)),
        }
    }

    /// Found by name alone, a column that is missing may have been given another name since the file was written. Then the
    /// file has a column that nobody knows.
    fn refuse_unknown_names(&self, wanted: &[NestedFieldRef], file: &[FileField], path: &str) -> Result<(), ReadError> {
        let is_known = |field: &FileField| wanted.iter().any(|wanted| wanted.name == field.name);
        let Some(unknown) = file.iter().find(|field| !is_known(field)) else { return Ok(()) };
        let what = format!(
            "the file has no field ids and no column of this name, but one named {:?}, which may be the same under an \
             older name: set the table's property schema.name-mapping.default",
            unknown.name
        );
        Err(ReadError::Column { location: self.location.to_owned(), column: path.to_owned(), what })
    }

    fn misfit(&self, wanted: &Type, file: &FileField, path: &str) -> ReadError {
        let what = match file.shape {
            Shape::Leaf { int96: true } => {
                format!("the file has INT96, which is read to the microsecond, where the table has {wanted}")
            }
            _ => format!("the file has {} where the table has {wanted}, which is no exact promotion", file.arrow_type),
        };
        ReadError::Column { location: self.location.to_owned(), column: path.to_owned(), what }
    }

    /// The value of a column that the file lacks: the file's partition constant, else the column's initial default,
    /// else null.
    fn missing(
        &self,
        field: &NestedFieldRef,
        arrow: &DataType,
        path: &str,
        if_missing: IfMissing,
    ) -> Result<Repeated, ReadError> {
        let refuse =
            |what: String| ReadError::Column { location: self.location.to_owned(), column: path.to_owned(), what };
        let constant = self.constants.iter().find(|constant| constant.field_id == field.id);
        let value = match (constant, &*field.field_type) {
            (Some(Constant { value: Some(bytes), .. }), Type::Primitive(primitive)) => {
                Some(constant_value(bytes, primitive).map_err(refuse)?)
            }
            (Some(Constant { value: Some(_), .. }), _) => {
                return Err(refuse("a partition value cannot be nested".to_owned()));
            }
            (Some(Constant { value: None, .. }), _) => None,
            (None, _) => field.initial_default.clone(),
        };
        if value.is_none() && field.required && if_missing == IfMissing::Refuse {
            return Err(refuse("the column is required, and neither the file nor a default has it".to_owned()));
        }
        one_row(value.as_ref(), &field.field_type, arrow).map(Repeated::new).map_err(refuse)
    }
}

/// Wants the least of a field that tells where it is null.
fn want_presence(field: &FileField, leaves: &mut [bool]) {
    let effort = |field: &&FileField| match &field.shape {
        Shape::Leaf { .. } => 0,
        Shape::Struct(_) => 1,
        Shape::List(_) => 2,
        Shape::Map(..) => 3,
    };
    match &field.shape {
        Shape::Leaf { .. } => leaves[field.leaves.start] = true,
        Shape::Struct(fields) => match fields.iter().min_by_key(effort) {
            Some(field) => want_presence(field, leaves),
            None => leaves[field.leaves.start] = true,
        },
        Shape::List(element) => want_presence(element, leaves),
        // Neither key nor value is decoded without the other.
        Shape::Map(key, value) => {
            want_presence(key, leaves);
            want_presence(value, leaves);
        }
    }
}

/// A value of a partition as metadata holds it, in the type of its column or in one that it was promoted from.
pub(crate) fn constant_value(bytes: &[u8], primitive: &PrimitiveType) -> Result<Literal, String> {
    if let (Ok(days), PrimitiveType::Timestamp | PrimitiveType::TimestampNs) = (bytes.try_into(), primitive) {
        let per_day = if *primitive == PrimitiveType::Timestamp { MICROS_PER_DAY } else { MICROS_PER_DAY * 1_000 };
        let midnight = i64::from(i32::from_le_bytes(days)).checked_mul(per_day);
        return midnight
            .map(Literal::long)
            .ok_or_else(|| format!("its partition value is too far from 1970 for {primitive}"));
    }
    // The crate slices without looking at the length.
    let fits = match primitive {
        PrimitiveType::Boolean => bytes.len() == 1,
        PrimitiveType::Int | PrimitiveType::Date | PrimitiveType::Float => bytes.len() == 4,
        PrimitiveType::Long | PrimitiveType::Double => matches!(bytes.len(), 4 | 8),
        PrimitiveType::Time
        | PrimitiveType::Timestamp
        | PrimitiveType::Timestamptz
        | PrimitiveType::TimestampNs
        | PrimitiveType::TimestamptzNs => bytes.len() == 8,
        PrimitiveType::Uuid => bytes.len() == 16,
        PrimitiveType::Decimal { .. } => (1..=16).contains(&bytes.len()),
        PrimitiveType::String | PrimitiveType::Fixed(_) | PrimitiveType::Binary => true,
    };
    let damaged = || format!("its partition value of {} bytes is no {primitive}", bytes.len());
    if !fits {
        return Err(damaged());
    }
    let datum = Datum::try_from_bytes(bytes, primitive.clone()).map_err(|error| format!("{}: {error}", damaged()))?;
    Ok(Literal::Primitive(datum.literal().clone()))
}

impl Adapter {
    /// Fixes where columns stand in the decoder's batches, once all that is wanted of the file is known.
    pub(super) fn settle(&mut self, projection: &Projection<'_>) {
        settle(&mut self.children, &projection.file.fields, projection.leaves());
    }

    /// The file whose batches it takes.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// The wanted columns of a batch of the file.
    pub(super) fn columns(&mut self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ReadError> {
        let location = &self.location;
        let mut columns = Vec::with_capacity(self.children.len());
        for (child, field) in self.children.iter_mut().zip(self.schema.fields()) {
            let array = child.index.map(|index| batch.column(index));
            let column = child.node.apply(array, batch.num_rows());
            columns.push(column.map_err(|error| column_error(location, field, &error))?);
        }
        Ok(columns)
    }

    /// The wanted columns of a batch of the file, as a batch.
    pub(super) fn apply(&mut self, batch: &RecordBatch) -> Result<RecordBatch, ReadError> {
        let columns = self.columns(batch)?;
        for (field, column) in self.schema.fields().iter().zip(&columns) {
            if !field.is_nullable() && column.null_count() > 0 {
                let what = format!("the required column {} is null in {} rows", field.name(), column.null_count());
                return Err(ReadError::damaged(&self.location, what));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| ReadError::damaged(&self.location, error.to_string()))
    }
}

fn column_error(location: &str, field: &FieldRef, error: &ArrowError) -> ReadError {
    ReadError::Column {
        location: location.to_owned(),
        column: field.name().clone(),
        what: format!("a value does not fit: {error}"),
    }
}

fn settle(children: &mut [Child], file: &[FileField], leaves: &[bool]) {
    for child in children {
        let Some(index) = child.index else { continue };
        let is_read = |field: &&FileField| leaves[field.leaves.clone()].contains(&true);
        child.index = Some(file[..index].iter().filter(is_read).count());
        settle_node(&mut child.node, &file[index], leaves);
    }
}

fn settle_node(node: &mut Node, file: &FileField, leaves: &[bool]) {
    match (node, &file.shape) {
        (Node::Struct { children, .. }, Shape::Struct(fields)) => settle(children, fields, leaves),
        (Node::List { node, .. }, Shape::List(element)) => settle_node(node, element, leaves),
        (Node::Map { key, value, .. }, Shape::Map(file_key, file_value)) => {
            settle_node(key, file_key, leaves);
            settle_node(value, file_value, leaves);
        }
        _ => {}
    }
}

impl Node {
    fn apply(&mut self, array: Option<&ArrayRef>, rows: usize) -> Result<ArrayRef, ArrowError> {
        let absent = || ArrowError::SchemaError("a column that was asked for did not come".to_owned());
        match self {
            Self::Missing(repeated) => repeated.rows(rows),
            Self::Leaf(conversion) => conversion.apply(array.ok_or_else(absent)?),
            Self::Struct { fields, children } => {
                let from = array.and_then(|array| array.as_struct_opt()).ok_or_else(absent)?;
                let child =
                    |child: &mut Child| child.node.apply(child.index.map(|index| from.column(index)), from.len());
                let columns = children.iter_mut().map(child).collect::<Result<Vec<_>, _>>()?;
                let array =
                    StructArray::try_new_with_length(fields.clone(), columns, from.nulls().cloned(), from.len())?;
                Ok(Arc::new(array))
            }
            Self::List { element, node } => {
                let from = array.and_then(|array| array.as_list_opt::<i32>()).ok_or_else(absent)?;
                let values = node.apply(Some(from.values()), from.values().len())?;
                let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
                Ok(Arc::new(ListArray::try_new(Arc::clone(element), offsets, values, nulls)?))
            }
            Self::Map { entries, key, value } => {
                let from = array.and_then(|array| array.as_map_opt()).ok_or_else(absent)?;
                let keys = key.apply(Some(from.keys()), from.keys().len())?;
                let values = value.apply(Some(from.values()), from.values().len())?;
                let DataType::Struct(fields) = entries.data_type() else { return Err(absent()) };
                let pairs = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
                let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
                Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false)?))
            }
        }
    }
}
