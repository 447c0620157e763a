//! Rows as bytes: two rows have the same bytes exactly when they are equal in every column.
//!
//! Arrow's row format does it for all types but maps. A map becomes a list of its entries, sorted by their own encoding,
//! so that the order in which they were written does not count.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray, UInt32Array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, Rows, SortField};

/// Encodes rows of one schema; columns with and without their maps as lists are the same to it.
pub(crate) struct RowEncoder {
    /// Types of the columns, each map as a list.
    types: Vec<DataType>,
    converter: RowConverter,
}

impl RowEncoder {
    /// An encoder for the columns' types.
    pub(crate) fn new(columns: &[ArrayRef]) -> Result<Self, ArrowError> {
        let types: Vec<DataType> = columns.iter().map(|column| without_maps(column.data_type())).collect();
        let fields = types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        Ok(Self { types, converter: RowConverter::new(fields)? })
    }

    /// Encoded rows of nothing, to be appended to.
    pub(crate) fn empty(&self) -> Rows {
        self.converter.empty_rows(0, 0)
    }

    /// Encodes columns of the same types behind `rows`.
    pub(crate) fn append(&self, rows: &mut Rows, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let columns = columns.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        let differs = columns.len() != self.types.len()
            || columns.iter().zip(&self.types).any(|(column, data_type)| column.data_type() != data_type);
        if differs {
            return Err(ArrowError::SchemaError("batches of one task have different columns".to_owned()));
        }
        self.converter.append(rows, &columns)
    }

    /// Columns of encoded rows, each map as a sorted list.
    pub(super) fn decode<'a>(&self, rows: impl IntoIterator<Item = Row<'a>>) -> Result<Vec<ArrayRef>, ArrowError> {
        self.converter.convert_rows(rows)
    }
}

/// The first `compared` columns of a batch, each map as a sorted list: as [`RowEncoder::decode`] gives them.
pub(super) fn canonical_batch(batch: &RecordBatch, compared: usize) -> Result<RecordBatch, ArrowError> {
    let columns = compared.min(batch.num_columns());
    let columns = batch.columns()[..columns].iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(canonical_schema(&batch.schema(), compared), columns)
}

/// The schema of [`canonical_batch`].
pub(super) fn canonical_schema(schema: &SchemaRef, compared: usize) -> SchemaRef {
    let fields = schema.fields().iter().take(compared);
    let fields = fields.map(|field| field.as_ref().clone().with_data_type(without_maps(field.data_type())));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn has_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(_, _) => true,
        DataType::List(element) => has_map(element.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}

/// The type with each map as a list of its entries.
fn without_maps(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(without_maps(field.data_type())));
    match data_type {
        _ if !has_map(data_type) => data_type.clone(),
        DataType::Map(entries, _) => DataType::List(field(entries)),
        DataType::List(element) => DataType::List(field(element)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// The array with each map as a list of its entries, sorted.
fn canonical(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_map(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    match without_maps(array.data_type()) {
        DataType::Struct(fields) => {
            let array = array.as_struct();
            let children = array.columns().iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new(fields, children, array.nulls().cloned())?))
        }
        DataType::List(field) => match array.as_map_opt() {
            Some(map) => canonical_map(map, field),
            None => {
                let array = array.as_list::<i32>();
                let values = canonical(array.values())?;
                Ok(Arc::new(ListArray::try_new(field, array.offsets().clone(), values, array.nulls().cloned())?))
            }
        },
        _ => Ok(Arc::clone(array)),
    }
}

fn canonical_map(map: &MapArray, field: Arc<Field>) -> Result<ArrayRef, ArrowError> {
    let DataType::Struct(fields) = field.data_type() else {
        return Err(ArrowError::SchemaError("a map's entries are no struct".to_owned()));
    };
    let children = map.entries().columns().iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
    let encoder = RowConverter::new(children.iter().map(|child| SortField::new(child.data_type().clone())).collect())?;
    let encoded = encoder.convert_columns(&children)?;

    let mut order: Vec<u32> = Vec::with_capacity(map.entries().len());
    let mut ends: Vec<i32> = vec![0];
    for (row, window) in map.offsets().windows(2).enumerate() {
        // A null map may have entries behind it; they are nobody's.
        if map.is_valid(row) {
            let start = order.len();
            order.extend(indices(window)?);
            order[start..].sort_unstable_by(|a, b| encoded.row(*a as usize).cmp(&encoded.row(*b as usize)));
        }
        ends.push(i32::try_from(order.len()).map_err(|error| ArrowError::ExternalError(Box::new(error)))?);
    }

    let order = UInt32Array::from(order);
    let children = children.iter().map(|child| take(child, &order, None)).collect::<Result<Vec<_>, _>>()?;
    let entries = StructArray::try_new(fields.clone(), children, None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(entries), map.nulls().cloned())?))
}

fn indices(window: &[i32]) -> Result<Range<u32>, ArrowError> {
    let index = |offset: i32| u32::try_from(offset).map_err(|error| ArrowError::ExternalError(Box::new(error)));
    Ok(index(window[0])?..index(window[1])?)
}
