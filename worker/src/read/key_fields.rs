//! Fields that equality deletes are keyed on, inside of structs as well.
//!
//! A key field is read as a top-level column that is cut down to the structs that lead to it, and is then taken out of
//! them: it is null where one of them is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use iceberg::arrow::type_to_arrow_type;
use iceberg::spec::{Literal, NestedField, NestedFieldRef, Schema, Struct, StructType, Type};

use super::delete_columns::nullable_schema;

/// The fields of a key.
#[derive(Debug, Clone)]
pub(super) struct KeyFields {
    /// As they are read: optional at every level, and null where a data file lacks them.
    pub(super) columns: Vec<NestedFieldRef>,
    /// The same as a delete file must have them.
    pub(super) required: Vec<NestedFieldRef>,
    /// The Arrow schema of both.
    pub(super) read_schema: SchemaRef,
    /// The Arrow schema of the fields themselves.
    pub(super) schema: SchemaRef,
}

impl KeyFields {
    /// The fields of these ids in a schema; what is wrong otherwise.
    pub(super) fn of(schema: &Schema, ids: &[i32]) -> Result<Self, String> {
        let (mut columns, mut required, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            let field = schema.field_by_id(*id).ok_or_else(|| unknown(*id))?;
            let name = schema.name_by_field_id(*id).unwrap_or(&field.name);
            if !field.field_type.is_primitive() {
                return Err(format!("it has equality deletes on column {name}, which is nested: compact the table"));
            }
            let in_a_list =
                || format!("it has equality deletes on {name}, which stands in a list or map: compact the table");
            columns.push(cut_down(schema.as_struct(), *id, false).ok_or_else(in_a_list)?);
            required.push(cut_down(schema.as_struct(), *id, true).ok_or_else(in_a_list)?);
            let arrow = type_to_arrow_type(&field.field_type).map_err(|error| error.to_string())?;
            leaves.push(Field::new(&field.name, arrow, true));
        }
        let read_schema = nullable_schema(&columns).map_err(|error| error.to_string())?;
        Ok(Self { columns, required, read_schema, schema: Arc::new(ArrowSchema::new(leaves)) })
    }
}

fn unknown(id: i32) -> String {
    format!("it has equality deletes on field {id}, which no schema of the table has")
}

/// The fields themselves, out of the columns that lead to them.
pub(super) fn leaves(columns: Vec<ArrayRef>) -> Result<Vec<ArrayRef>, ArrowError> {
    columns.into_iter().map(leaf).collect()
}

fn leaf(mut column: ArrayRef) -> Result<ArrayRef, ArrowError> {
    while let Some(parent) = column.as_struct_opt() {
        let [child] = parent.columns() else {
            return Err(ArrowError::SchemaError("a key column has other fields beside the key".to_owned()));
        };
        let nulls = NullBuffer::union(parent.nulls(), child.logical_nulls().as_ref());
        column = make_array(child.to_data().into_builder().nulls(nulls).build()?);
    }
    Ok(column)
}

/// The top-level field that leads to the one of this id, with nothing in it but what does.
fn cut_down(fields: &StructType, id: i32, required: bool) -> Option<NestedFieldRef> {
    fields.fields().iter().find_map(|field| {
        let (of, default) = match field.field_type.as_ref() {
            of if field.id == id => (of.clone(), field.initial_default.clone()),
            Type::Struct(inner) => {
                let inner = Type::Struct(StructType::new(vec![cut_down(inner, id, required)?]));
                // A struct's default leaves its children to their own.
                (inner, field.initial_default.as_ref().map(|_| Literal::Struct(Struct::from_iter([None]))))
            }
            _ => return None,
        };
        let mut cut = NestedField::new(field.id, &field.name, of, required);
        // What a data file lacks has its initial default, for a delete as well; a delete file lacks nothing.
        cut.initial_default = default.filter(|_| !required);
        Some(Arc::new(cut))
    })
}
