//! Values of a file into Arrow arrays, column by column.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, ListArray, MapArray, NullArray, NullBufferBuilder, PrimitiveArray, StringArray,
    StructArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Fields, Int32Type, Int64Type};
use arrow::error::ArrowError;

use super::super::file_schema::{FileField, Shape};
use super::cursor::{Broken, Cursor};
use super::schema::AvroType;

/// Items of one array at most that take no bytes, so that nothing else bounds them.
const EMPTY_ITEMS_MAX: u64 = 1 << 16;

/// A column that is read.
#[derive(Debug)]
pub(super) struct Column {
    /// For each branch of a union: whether it is null.
    branches: Option<Box<[bool]>>,
    validity: NullBufferBuilder,
    rows: usize,
    values: Values,
}

/// What to do with a field of a record.
#[derive(Debug)]
enum Node {
    Read(String, Column),
    Skip(AvroType),
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>, DataType),
    Long(Vec<i64>, DataType),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes {
        offsets: Offsets,
        bytes: Vec<u8>,
        is_text: bool,
    },
    Enum {
        offsets: Offsets,
        bytes: Vec<u8>,
        symbols: Arc<[String]>,
    },
    Fixed {
        length: usize,
        bytes: Vec<u8>,
    },
    /// Of so many bytes each, or each behind its length.
    Decimal {
        length: Option<usize>,
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    Struct(Vec<Node>),
    List {
        offsets: Offsets,
        element: Box<Column>,
        is_empty: bool,
    },
    Map {
        offsets: Offsets,
        key: Box<Column>,
        value: Box<Column>,
        order: PairOrder,
    },
    /// Nothing of it is wanted but whether it is there.
    Ignored(AvroType),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PairOrder {
    KeyFirst,
    ValueFirst,
}

/// The ends of values of various length.
#[derive(Debug)]
struct Offsets(Vec<i32>);

impl Offsets {
    fn new() -> Self {
        Self(vec![0])
    }

    fn push(&mut self, end: usize) -> Result<(), Broken> {
        self.0.push(i32::try_from(end).map_err(|_| Broken("a batch of it does not fit 32 bits"))?);
        Ok(())
    }

    fn repeat(&mut self) {
        self.0.push(self.0.last().copied().unwrap_or_default());
    }

    fn take(&mut self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(std::mem::replace(&mut self.0, vec![0]).into())
    }
}

impl Column {
    /// The column of the rows of a file, with those of its fields that have a wanted leaf.
    pub(super) fn of_rows(row: &AvroType, fields: &[FileField], wanted: &[bool]) -> Self {
        let record = match row {
            AvroType::Record(of) => nodes(of.iter().map(|field| &field.inner.of), fields, wanted),
            _ => Vec::new(),
        };
        Self { branches: None, validity: NullBufferBuilder::new(0), rows: 0, values: Values::Struct(record) }
    }

    fn new(of: &AvroType, field: &FileField, wanted: &[bool]) -> Self {
        let branches = match of {
            AvroType::Union(branches) => Some(branches.iter().map(|branch| *branch == AvroType::Null).collect()),
            _ => None,
        };
        // Of a union with several branches that are not null nothing is read, so all of it is passed over.
        let (branches, values) = match of.but_null() {
            Some(of) => (branches, values(of, field, wanted)),
            None => (None, Values::Ignored(of.clone())),
        };
        Self { branches, validity: NullBufferBuilder::new(0), rows: 0, values }
    }

    /// Bytes of a row, at least, in memory.
    pub(super) fn row_bytes(&self) -> u64 {
        match &self.values {
            Values::Boolean(_) | Values::Ignored(_) => 1,
            Values::Int(..) | Values::Float(_) => 4,
            Values::Bytes { .. } | Values::Enum { .. } | Values::List { .. } | Values::Map { .. } => 4,
            Values::Long(..) | Values::Double(_) => 8,
            Values::Fixed { length, .. } => *length as u64,
            Values::Decimal { .. } => 16,
            Values::Struct(nodes) => nodes.iter().map(|node| node.column().map_or(0, Self::row_bytes)).sum(),
        }
    }

    /// Takes the next value in.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Broken> {
        if let Some(branches) = &self.branches
            && branches[cursor.index(branches.len())?]
        {
            self.append_null();
            return Ok(());
        }
        self.validity.append_non_null();
        self.rows += 1;
        self.values.read(cursor)
    }

    fn append_null(&mut self) {
        self.validity.append_null();
        self.rows += 1;
        self.values.append_null();
    }

    /// The values taken in so far, which it then no longer has.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let nulls = self.validity.finish();
        self.values.finish(rows, nulls)
    }

    /// The same for the column of all rows: the columns in it.
    pub(super) fn finish_rows(&mut self) -> Result<(Fields, Vec<ArrayRef>), ArrowError> {
        self.rows = 0;
        self.validity = NullBufferBuilder::new(0);
        match &mut self.values {
            Values::Struct(nodes) => finish_nodes(nodes),
            _ => Ok((Fields::empty(), Vec::new())),
        }
    }
}

impl Node {
    fn column(&self) -> Option<&Column> {
        match self {
            Self::Read(_, column) => Some(column),
            Self::Skip(_) => None,
        }
    }
}

fn nodes<'a>(of: impl Iterator<Item = &'a AvroType>, fields: &[FileField], wanted: &[bool]) -> Vec<Node> {
    let node = |(of, field): (&AvroType, &FileField)| match wanted[field.leaves.clone()].contains(&true) {
        true => Node::Read(field.name.clone(), Column::new(of, field, wanted)),
        false => Node::Skip(of.clone()),
    };
    of.zip(fields).map(node).collect()
}

fn values(of: &AvroType, field: &FileField, wanted: &[bool]) -> Values {
    match (of, &field.shape) {
        (AvroType::Boolean, _) => Values::Boolean(BooleanBufferBuilder::new(0)),
        (AvroType::Int(arrow), _) => Values::Int(Vec::new(), arrow.clone()),
        (AvroType::Long(arrow), _) => Values::Long(Vec::new(), arrow.clone()),
        (AvroType::Float, _) => Values::Float(Vec::new()),
        (AvroType::Double, _) => Values::Double(Vec::new()),
        (AvroType::Text, _) => Values::Bytes { offsets: Offsets::new(), bytes: Vec::new(), is_text: true },
        (AvroType::Bytes(DataType::Decimal128(precision, scale)), _) => {
            Values::Decimal { length: None, values: Vec::new(), precision: *precision, scale: *scale }
        }
        (AvroType::Bytes(_), _) => Values::Bytes { offsets: Offsets::new(), bytes: Vec::new(), is_text: false },
        (AvroType::Fixed(length, DataType::Decimal128(precision, scale)), _) => {
            Values::Decimal { length: Some(*length), values: Vec::new(), precision: *precision, scale: *scale }
        }
        (AvroType::Fixed(length, _), _) => Values::Fixed { length: *length, bytes: Vec::new() },
        (AvroType::Enum(symbols), _) => {
            Values::Enum { offsets: Offsets::new(), bytes: Vec::new(), symbols: Arc::clone(symbols) }
        }
        (AvroType::Record(fields), Shape::Struct(of_file)) => {
            Values::Struct(nodes(fields.iter().map(|field| &field.inner.of), of_file, wanted))
        }
        (AvroType::Array(element), Shape::List(of_file)) => Values::List {
            offsets: Offsets::new(),
            element: Box::new(Column::new(&element.of, of_file, wanted)),
            is_empty: element.of.is_empty(),
        },
        (AvroType::Map { value, .. }, Shape::Map(key_field, value_field)) => Values::Map {
            offsets: Offsets::new(),
            key: Box::new(Column::new(&AvroType::Text, key_field, wanted)),
            value: Box::new(Column::new(&value.of, value_field, wanted)),
            order: PairOrder::KeyFirst,
        },
        (AvroType::Pairs { key, value, key_first }, Shape::Map(key_field, value_field)) => Values::Map {
            offsets: Offsets::new(),
            key: Box::new(Column::new(&key.of, key_field, wanted)),
            value: Box::new(Column::new(&value.of, value_field, wanted)),
            order: if *key_first { PairOrder::KeyFirst } else { PairOrder::ValueFirst },
        },
        (of, _) => Values::Ignored(of.clone()),
    }
}

impl Values {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Broken> {
        match self {
            Self::Boolean(values) => values.append(cursor.boolean()?),
            Self::Int(values, _) => values.push(cursor.int()?),
            Self::Long(values, _) => values.push(cursor.long()?),
            Self::Float(values) => values.push(cursor.float()?),
            Self::Double(values) => values.push(cursor.double()?),
            Self::Bytes { offsets, bytes, .. } => {
                bytes.extend_from_slice(cursor.bytes()?);
                offsets.push(bytes.len())?;
            }
            Self::Enum { offsets, bytes, symbols } => {
                bytes.extend_from_slice(symbols[cursor.index(symbols.len())?].as_bytes());
                offsets.push(bytes.len())?;
            }
            Self::Fixed { length, bytes } => bytes.extend_from_slice(cursor.take(*length)?),
            Self::Decimal { length, values, .. } => {
                let bytes = match length {
                    Some(length) => cursor.take(*length)?,
                    None => cursor.bytes()?,
                };
                values.push(unscaled(bytes)?);
            }
            Self::Struct(nodes) => {
                for node in nodes {
                    match node {
                        Node::Read(_, column) => column.read(cursor)?,
                        Node::Skip(of) => of.skip(cursor)?,
                    }
                }
            }
            Self::List { offsets, element, is_empty } => {
                items(cursor, *is_empty, |cursor| element.read(cursor))?;
                offsets.push(element.rows)?;
            }
            Self::Map { offsets, key, value, order } => {
                items(cursor, false, |cursor| match order {
                    PairOrder::KeyFirst => key.read(cursor).and_then(|()| value.read(cursor)),
                    PairOrder::ValueFirst => value.read(cursor).and_then(|()| key.read(cursor)),
                })?;
                offsets.push(key.rows)?;
            }
            Self::Ignored(of) => of.skip(cursor)?,
        }
        Ok(())
    }

    fn append_null(&mut self) {
        match self {
            Self::Boolean(values) => values.append(false),
            Self::Int(values, _) => values.push(0),
            Self::Long(values, _) => values.push(0),
            Self::Float(values) => values.push(0.0),
            Self::Double(values) => values.push(0.0),
            Self::Bytes { offsets, .. }
            | Self::Enum { offsets, .. }
            | Self::List { offsets, .. }
            | Self::Map { offsets, .. } => offsets.repeat(),
            Self::Fixed { length, bytes } => bytes.resize(bytes.len() + *length, 0),
            Self::Decimal { values, .. } => values.push(0),
            Self::Struct(nodes) => {
                for node in nodes {
                    if let Node::Read(_, column) = node {
                        column.append_null();
                    }
                }
            }
            Self::Ignored(_) => {}
        }
    }

    fn finish(&mut self, rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        use std::mem::take;
        Ok(match self {
            Self::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Self::Int(values, arrow) => named(PrimitiveArray::<Int32Type>::new(take(values).into(), nulls), arrow)?,
            Self::Long(values, arrow) => named(PrimitiveArray::<Int64Type>::new(take(values).into(), nulls), arrow)?,
            Self::Float(values) => Arc::new(Float32Array::new(take(values).into(), nulls)),
            Self::Double(values) => Arc::new(Float64Array::new(take(values).into(), nulls)),
            Self::Bytes { offsets, bytes, is_text: false } => {
                Arc::new(BinaryArray::try_new(offsets.take(), Buffer::from(take(bytes)), nulls)?)
            }
            Self::Bytes { offsets, bytes, is_text: true } | Self::Enum { offsets, bytes, .. } => {
                Arc::new(StringArray::try_new(offsets.take(), Buffer::from(take(bytes)), nulls)?)
            }
            Self::Fixed { length, bytes } => {
                let length = i32::try_from(*length).map_err(|error| ArrowError::SchemaError(error.to_string()))?;
                Arc::new(FixedSizeBinaryArray::try_new(length, Buffer::from(take(bytes)), nulls)?)
            }
            Self::Decimal { values, precision, scale, .. } => {
                let decimals = Decimal128Array::new(take(values).into(), nulls);
                let decimals = decimals.with_precision_and_scale(*precision, *scale)?;
                decimals.validate_decimal_precision(*precision)?;
                Arc::new(decimals)
            }
            Self::Struct(nodes) => {
                let (fields, columns) = finish_nodes(nodes)?;
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
            }
            Self::List { offsets, element, .. } => {
                let values = element.finish()?;
                let field = Arc::new(Field::new("element", values.data_type().clone(), true));
                Arc::new(ListArray::try_new(field, offsets.take(), values, nulls)?)
            }
            Self::Map { offsets, key, value, .. } => {
                let (keys, values) = (key.finish()?, value.finish()?);
                let fields = Fields::from(vec![
                    Field::new("key", keys.data_type().clone(), false),
                    Field::new("value", values.data_type().clone(), true),
                ]);
                let pairs = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
                let entries = Arc::new(Field::new("entries", DataType::Struct(fields), false));
                Arc::new(MapArray::try_new(entries, offsets.take(), pairs, nulls, false)?)
            }
            Self::Ignored(_) => Arc::new(NullArray::new(rows)),
        })
    }
}

/// Passes through the items of an array or map.
fn items(
    cursor: &mut Cursor<'_>,
    are_empty: bool,
    mut read: impl FnMut(&mut Cursor<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    loop {
        let count = cursor.items()?.count;
        if count == 0 {
            return Ok(());
        }
        let count_max = if are_empty { EMPTY_ITEMS_MAX } else { cursor.left() as u64 };
        if count > count_max {
            return Err(Broken("an array or map has more items than its block can hold"));
        }
        (0..count).try_for_each(|_| read(cursor))?;
    }
}

fn finish_nodes(nodes: &mut [Node]) -> Result<(Fields, Vec<ArrayRef>), ArrowError> {
    let (mut fields, mut columns) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
    for node in nodes {
        let Node::Read(name, column) = node else { continue };
        let column = column.finish()?;
        fields.push(Field::new(name.as_str(), column.data_type().clone(), true));
        columns.push(column);
    }
    Ok((fields.into(), columns))
}

/// The same values under the name that their type has.
fn named<T: ArrowPrimitiveType>(values: PrimitiveArray<T>, arrow: &DataType) -> Result<ArrayRef, ArrowError> {
    let data = values.into_data().into_builder().data_type(arrow.clone()).build()?;
    Ok(arrow::array::make_array(data))
}

/// A big-endian number in two's complement.
fn unscaled(bytes: &[u8]) -> Result<i128, Broken> {
    let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xFF } else { 0 };
    let (beyond, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut value = [sign; 16];
    value[16 - low.len()..].copy_from_slice(low);
    let value = i128::from_be_bytes(value);
    // What stands before the 16 bytes may only tell the sign again.
    let fits = beyond.iter().all(|byte| *byte == sign) && (beyond.is_empty() || (value < 0) == (sign == 0xFF));
    if fits { Ok(value) } else { Err(Broken("a decimal has more than 38 digits")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimals_bytes_may_be_shorter_or_longer_than_it_needs() {
        let cases: [(&[u8], Result<i128, ()>); 8] = [
            (&[], Ok(0)),
            (&[0x04, 0xD2], Ok(1234)),
            (&[0xFF], Ok(-1)),
            (&[0x80, 0], Ok(-32768)),
            (&[0; 20], Ok(0)),
            (&[0xFF; 20], Ok(-1)),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Err(())),
            (&[0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Err(())),
        ];
        for (bytes, expected) in cases {
            assert_eq!(unscaled(bytes).map_err(drop), expected, "{bytes:?}");
        }
    }
}
