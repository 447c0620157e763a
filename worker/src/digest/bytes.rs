//! Rows as bytes of one width, column by column: two rows have the same bytes exactly when they are equal in every column,
//! but that what is longer than a few bytes stands there as its hash of 128 bits. Pure.
//!
//! Values of a fixed width stand there as they are in memory, so the cost of a row is little more than that of copying it.
//! Nested ones are first encoded as the tag step does it, so that both have one notion of what is equal.

use arrow::array::{Array, ArrayRef, AsArray, GenericByteArray};
use arrow::datatypes::{BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow::error::ArrowError;
use arrow::row::Rows;
use twox_hash::XxHash3_128;

use crate::tag::encode::RowEncoder;

/// Fixed values up to this width stand in a row as they are.
const FIXED_BYTES_MAX: usize = 32;
const HASH_BYTES: usize = 16;

/// Lays out the rows of one schema.
pub(super) struct RowBytes {
    columns: Vec<Column>,
    /// Bytes of a row: the columns', and a bit for each column that is set when it is null.
    stride: usize,
    bytes: Vec<u8>,
}

struct Column {
    data_type: DataType,
    /// Its first byte in a row.
    offset: usize,
    form: Form,
}

/// How values stand in a row.
enum Form {
    /// As they are, with so many bytes.
    Fixed(usize),
    Boolean,
    /// As the hash of their bytes.
    Hashed,
    /// As the hash of their encoding.
    Encoded(Box<(RowEncoder, Rows)>),
}

impl Form {
    fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        let data_type = column.data_type();
        if let Some(width) = data_type.primitive_width() {
            return Ok(Self::Fixed(width));
        }
        Ok(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::FixedSizeBinary(width) if (1..=FIXED_BYTES_MAX as i32).contains(width) => {
                Self::Fixed(*width as usize)
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => Self::Hashed,
            _ => {
                let encoder = RowEncoder::new(std::slice::from_ref(column))?;
                let rows = encoder.empty();
                Self::Encoded(Box::new((encoder, rows)))
            }
        })
    }

    fn width(&self) -> usize {
        match self {
            Self::Fixed(width) => *width,
            Self::Boolean => 1,
            Self::Hashed | Self::Encoded(_) => HASH_BYTES,
        }
    }
}

impl RowBytes {
    /// For columns of these types.
    pub(super) fn new(columns: &[ArrayRef]) -> Result<Self, ArrowError> {
        let mut stride = 0;
        let mut laid_out = Vec::with_capacity(columns.len());
        for column in columns {
            let form = Form::of(column)?;
            let width = form.width();
            laid_out.push(Column { data_type: column.data_type().clone(), offset: stride, form });
            stride += width;
        }
        // No columns are no rows, and those of some width.
        let stride = (stride + columns.len().div_ceil(8)).max(1);
        Ok(Self { columns: laid_out, stride, bytes: Vec::new() })
    }

    /// The rows of a batch, one after another.
    pub(super) fn rows(&mut self, columns: &[ArrayRef]) -> Result<impl Iterator<Item = &[u8]>, ArrowError> {
        let differs = columns.len() != self.columns.len()
            || columns.iter().zip(&self.columns).any(|(column, known)| *column.data_type() != known.data_type);
        if differs {
            return Err(ArrowError::SchemaError("batches of one task have different columns".to_owned()));
        }
        let rows = columns.first().map_or(0, |column| column.len());
        self.bytes.clear();
        self.bytes.resize(rows * self.stride, 0);
        let nulls = self.stride - columns.len().div_ceil(8);
        for (number, (column, laid_out)) in columns.iter().zip(&mut self.columns).enumerate() {
            let offset = laid_out.offset;
            let width = laid_out.form.width();
            let values = self.bytes.chunks_exact_mut(self.stride).map(|row| &mut row[offset..offset + width]);
            put(column, &mut laid_out.form, values)?;
            if column.null_count() > 0 {
                for (index, row) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
                    if column.is_null(index) {
                        // What stands behind a null is nobody's.
                        row[offset..offset + width].fill(0);
                        row[nulls + number / 8] |= 1 << (number % 8);
                    }
                }
            }
        }
        Ok(self.bytes.chunks_exact(self.stride))
    }
}

/// Puts a column's values into the places that they have in the rows.
fn put<'a>(column: &ArrayRef, form: &mut Form, places: impl Iterator<Item = &'a mut [u8]>) -> Result<(), ArrowError> {
    match form {
        Form::Fixed(width) => {
            let data = column.to_data();
            let values = data.buffers().first().map_or(&[][..], |buffer| buffer.as_slice());
            let values = values.get(data.offset() * *width..).unwrap_or_default();
            match *width {
                1 => fixed::<1>(values, places),
                2 => fixed::<2>(values, places),
                4 => fixed::<4>(values, places),
                8 => fixed::<8>(values, places),
                16 => fixed::<16>(values, places),
                width => {
                    places.zip(values.chunks_exact(width)).for_each(|(place, value)| place.copy_from_slice(value));
                }
            }
        }
        Form::Boolean => {
            let values = column.as_boolean().values();
            places.zip(values.iter()).for_each(|(place, value)| place[0] = u8::from(value));
        }
        Form::Hashed => match column.data_type() {
            DataType::Utf8 => hashed(column.as_bytes::<Utf8Type>(), places),
            DataType::LargeUtf8 => hashed(column.as_bytes::<LargeUtf8Type>(), places),
            DataType::Binary => hashed(column.as_bytes::<BinaryType>(), places),
            _ => hashed(column.as_bytes::<LargeBinaryType>(), places),
        },
        Form::Encoded(encoded) => {
            let (encoder, rows) = encoded.as_mut();
            rows.clear();
            encoder.append(rows, std::slice::from_ref(column))?;
            places.zip(rows.iter()).for_each(|(place, row)| hash_into(row.data(), place));
        }
    }
    Ok(())
}

/// A width that is known lets values be moved as numbers are.
fn fixed<'a, const N: usize>(values: &[u8], places: impl Iterator<Item = &'a mut [u8]>) {
    let values = values.as_chunks::<N>().0;
    places.zip(values).for_each(|(place, value)| place.copy_from_slice(value));
}

fn hashed<'a, T: ByteArrayType>(array: &GenericByteArray<T>, places: impl Iterator<Item = &'a mut [u8]>) {
    places.enumerate().for_each(|(row, place)| {
        let value: &[u8] = array.value(row).as_ref();
        hash_into(value, place);
    });
}

fn hash_into(bytes: &[u8], place: &mut [u8]) {
    place.copy_from_slice(&XxHash3_128::oneshot(bytes).to_le_bytes());
}
