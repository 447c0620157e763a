//! What is shown of rows that were compared by all of their columns: the columns of the read schema.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Schema as ArrowSchema};
use arrow::error::ArrowError;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{NestedFieldRef, Schema, StructType, Type};

use crate::{ChangeBatch, Columns};

/// Takes the read schema's columns out of batches with the compared ones; metadata columns behind them stay.
#[derive(Debug)]
pub(super) struct Shown {
    /// For each column that is shown, its place among those that are compared, and how the one becomes the other where
    /// they differ.
    columns: Vec<(usize, Option<Box<Narrowing>>)>,
    compared: usize,
    schema: ArrowSchema,
}

/// Fields inside a column are left out, or stand in another order.
#[derive(Debug)]
struct Narrowing {
    from: Type,
    to: Type,
    arrow: DataType,
}

impl Shown {
    /// For rows compared in one schema and shown in another, whose fields are among those of the first.
    ///
    /// # Errors
    /// When a field is not.
    pub(super) fn new(compared: &Schema, shown: &Schema) -> Result<Self, ArrowError> {
        let schema = schema_to_arrow_schema(shown).map_err(|error| ArrowError::SchemaError(error.to_string()))?;
        let from = compared.as_struct().fields();
        let columns = shown.as_struct().fields().iter().zip(schema.fields()).map(|(field, arrow)| {
            let place = place(from, field)?;
            let (from, to) = (&from[place].field_type, &field.field_type);
            let narrowing = (from != to).then(|| Narrowing {
                from: from.as_ref().clone(),
                to: to.as_ref().clone(),
                arrow: arrow.data_type().clone(),
            });
            Ok((place, narrowing.map(Box::new)))
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        Ok(Self { columns, compared: from.len(), schema })
    }

    /// The places, among the columns that are shown, of some that are compared.
    pub(super) fn places(&self, compared: &[usize]) -> Vec<usize> {
        (0..self.columns.len()).filter(|shown| compared.contains(&self.columns[*shown].0)).collect()
    }

    /// What is shown of a batch.
    ///
    /// # Errors
    /// When the batch has not the columns that were compared.
    pub(super) fn of(&self, batch: ChangeBatch) -> Result<ChangeBatch, ArrowError> {
        if batch.columns != Columns::All {
            return Ok(batch);
        }
        let ChangeBatch { change, columns, rows } = batch;
        let mut fields = self.schema.fields().to_vec();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (place, narrowing) in &self.columns {
            let Some(column) = rows.columns().get(*place) else {
                return Err(ArrowError::SchemaError(format!("there is no column {place} of {}", rows.num_columns())));
            };
            arrays.push(match narrowing {
                None => Arc::clone(column),
                Some(narrowing) => narrowed(column, &narrowing.from, &narrowing.to, &narrowing.arrow)?,
            });
        }
        fields.extend(rows.schema().fields().iter().skip(self.compared).cloned());
        arrays.extend(rows.columns().iter().skip(self.compared).cloned());
        let rows = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)?;
        Ok(ChangeBatch { change, columns, rows })
    }
}

fn place(fields: &[NestedFieldRef], wanted: &NestedFieldRef) -> Result<usize, ArrowError> {
    let place = fields.iter().position(|field| field.id == wanted.id);
    place.ok_or_else(|| ArrowError::SchemaError(format!("field {} {:?} was not read", wanted.id, wanted.name)))
}

/// The fields of `to`, told by their ids, out of a column of `from`.
fn narrowed(column: &ArrayRef, from: &Type, to: &Type, arrow: &DataType) -> Result<ArrayRef, ArrowError> {
    match (from, to, arrow) {
        _ if from == to => Ok(Arc::clone(column)),
        (Type::Struct(from), Type::Struct(to), DataType::Struct(_)) => {
            narrowed_struct(column.as_struct(), from, to, arrow).map(|array| Arc::new(array) as ArrayRef)
        }
        (Type::List(from), Type::List(to), DataType::List(element)) => {
            let list = column.as_list::<i32>();
            let (from, to) = (&from.element_field.field_type, &to.element_field.field_type);
            let values = narrowed(list.values(), from, to, element.data_type())?;
            let list = ListArray::try_new(Arc::clone(element), list.offsets().clone(), values, list.nulls().cloned())?;
            Ok(Arc::new(list))
        }
        (Type::Map(from), Type::Map(to), DataType::Map(entries, sorted)) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("a map without entries".into()));
            };
            let map = column.as_map();
            let (from, to) = (&from.value_field.field_type, &to.value_field.field_type);
            let value = fields.get(1).map_or(&DataType::Null, |field| field.data_type());
            let values = narrowed(map.values(), from, to, value)?;
            let rows = StructArray::try_new(fields.clone(), vec![Arc::clone(map.keys()), values], None)?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, rows, nulls, *sorted)?))
        }
        _ => Err(ArrowError::SchemaError(format!("a column of {from} cannot be shown as {to}"))),
    }
}

fn narrowed_struct(
    array: &StructArray,
    from: &StructType,
    to: &StructType,
    arrow: &DataType,
) -> Result<StructArray, ArrowError> {
    let DataType::Struct(fields) = arrow else {
        return Err(ArrowError::SchemaError(format!("a struct cannot be shown as {arrow}")));
    };
    let children = to.fields().iter().zip(fields).map(|(field, arrow)| {
        let place = place(from.fields(), field)?;
        narrowed(array.column(place), &from.fields()[place].field_type, &field.field_type, arrow.data_type())
    });
    let children = children.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), children, array.nulls().cloned(), array.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use arrow::array::{Int32Array, StringArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::Field;
    use arrow::util::display::{ArrayFormatter, FormatOptions};

    use super::*;
    use crate::Change;

    /// id, if wanted, and a struct, a list of structs and a map of structs with these fields.
    fn table(names: &[&str], with_id: bool) -> Schema {
        let inner = |base: i32| {
            let fields = names.iter().map(|name| {
                let id = base + i32::from(*name == "y");
                serde_json::json!({"id": id, "name": name, "required": false, "type": "int"})
            });
            serde_json::json!({"type": "struct", "fields": fields.collect::<Vec<_>>()})
        };
        let list =
            serde_json::json!({"type": "list", "element-id": 4, "element-required": false, "element": inner(30)});
        let map = serde_json::json!({"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value-required": false,
            "value": inner(50)});
        let mut fields = vec![serde_json::json!({"id": 1, "name": "id", "required": true, "type": "int"})];
        for (id, name, of) in [(2, "s", inner(20)), (3, "l", list), (5, "m", map)] {
            fields.push(serde_json::json!({"id": id, "name": name, "required": false, "type": of}));
        }
        let fields = if with_id { &fields[..] } else { &fields[1..] };
        serde_json::from_value(serde_json::json!({"type": "struct", "schema-id": 0, "fields": fields})).unwrap()
    }

    #[test]
    fn fields_inside_structs_lists_and_maps_are_left_out_and_metadata_columns_stay() {
        let compared = table(&["x", "y"], true);
        let shown = table(&["y"], false);
        let arrow = schema_to_arrow_schema(&compared).unwrap();
        let structs = |at: usize, data_type: &DataType| {
            let DataType::Struct(fields) = data_type else { unreachable!() };
            let value =
                |plus: i32| Arc::new(Int32Array::from(vec![at as i32 + plus, at as i32 + plus + 1])) as ArrayRef;
            StructArray::new(fields.clone(), vec![value(0), value(50)], Some(NullBuffer::from(vec![true, at != 1])))
        };
        let DataType::List(element) = arrow.field(2).data_type() else { unreachable!() };
        let DataType::Map(entries, _) = arrow.field(3).data_type() else { unreachable!() };
        let DataType::Struct(pair) = entries.data_type() else { unreachable!() };
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let pairs = StructArray::new(pair.clone(), vec![keys, Arc::new(structs(30, pair[1].data_type()))], None);
        let offsets = OffsetBuffer::from_lengths([2, 0]);
        let list = ListArray::new(
            Arc::clone(element),
            offsets.clone(),
            Arc::new(structs(20, element.data_type())),
            Some(NullBuffer::from(vec![true, false])),
        );
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![1, 2])),
            Arc::new(structs(1, arrow.field(1).data_type())),
            Arc::new(list),
            Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, None, false)),
            Arc::new(Int32Array::from(vec![7, 8])),
        ];
        let mut fields = arrow.fields().to_vec();
        fields.push(Arc::new(Field::new("_pos", DataType::Int32, true)));
        let rows = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap();
        let narrowing = Shown::new(&compared, &shown).unwrap();
        let batch = ChangeBatch { change: Change::Delete, columns: Columns::All, rows };
        let batch = narrowing.of(batch).unwrap();
        let options = FormatOptions::new().with_null("null");
        let line = |row: usize| -> String {
            let cells = batch
                .rows
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap().value(row).to_string());
            cells.collect::<Vec<_>>().join(" | ")
        };
        assert_eq!(line(0), "{y: 51} | [{y: 70}, {y: 71}] | {a: {y: 80}, b: {y: 81}} | 7");
        assert_eq!(line(1), "null | null | {} | 8");
        assert_eq!(narrowing.places(&[0, 2]), [1]);
        assert!(Shown::new(&shown, &compared).is_err(), "what was not read cannot be shown");
    }
}
