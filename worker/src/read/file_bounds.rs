//! The bounds that a Parquet file has of a column, as values of the table. Pure. What is not surely the bound of the same
//! values is none.

use arrow::datatypes::{DataType, TimeUnit};
use iceberg::spec::{Datum, PrimitiveType};
use iceferry_common::filter::whole_datum;
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics as ChunkStatistics;
use parquet::schema::types::ColumnDescriptor;

use super::file_schema::{FileField, Shape};

/// How the bounds of one column of a file become values of the table.
#[derive(Debug)]
pub(super) struct BoundForm {
    kind: PrimitiveType,
    form: Form,
    /// Bytes of each value, where all have so many.
    value_bytes: Option<usize>,
}

/// What kind of values a bound is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Boolean,
    /// So many units of the table are one of the file's.
    Whole(i64),
    Float,
    Decimal,
    Bytes,
}

/// A bound as the file has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    Boolean(bool),
    Whole(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

impl BoundForm {
    /// The form of a file's column that is read as one of this type; `None` where its bounds say nothing.
    pub(super) fn of(kind: &PrimitiveType, file: &FileField, leaf: &ColumnDescriptor) -> Option<Self> {
        let is_fixed = leaf.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY;
        let value_bytes = usize::try_from(leaf.type_length()).ok().filter(|_| is_fixed);
        Some(Self { kind: kind.clone(), form: form(kind, file)?, value_bytes })
    }

    /// Whether the order of the bounds is that of the values. Older writers ordered bytes as if they had a sign.
    pub(super) fn is_ordered(&self, order: ColumnOrder, is_deprecated: bool) -> bool {
        match self.form {
            Form::Boolean | Form::Whole(_) | Form::Float => !matches!(order, ColumnOrder::UNKNOWN),
            Form::Decimal => !is_deprecated && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::SIGNED)),
            Form::Bytes => !is_deprecated && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNSIGNED)),
        }
    }

    /// The value of a bound; `None` where it is none of the table's.
    pub(super) fn datum(&self, raw: Raw<'_>) -> Option<Datum> {
        let whole = |value: i128| whole_datum(&self.kind, value);
        match (self.form, raw) {
            (Form::Boolean, Raw::Boolean(value)) => Some(Datum::bool(value)),
            (Form::Whole(factor), Raw::Whole(value)) => whole(i128::from(value) * i128::from(factor)),
            (Form::Float, Raw::Float(value)) => Some(match self.kind {
                PrimitiveType::Float => Datum::float(value as f32),
                _ => Datum::double(value),
            }),
            (Form::Decimal, Raw::Whole(value)) => whole(i128::from(value)),
            // The bytes of a number say nothing when they were cut.
            (Form::Decimal, Raw::Bytes(bytes)) if Some(bytes.len()) == self.value_bytes => whole(big_endian(bytes)?),
            (Form::Bytes, Raw::Bytes(bytes)) => Datum::try_from_bytes(bytes, self.kind.clone()).ok(),
            _ => None,
        }
    }
}

fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = bytes.first()?;
    let mut wide = [if first & 0x80 == 0 { 0 } else { 0xff }; 16];
    wide.get_mut(16_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// The lower or the upper bound of a column chunk.
pub(super) fn of_chunk(statistics: &ChunkStatistics, is_upper: bool) -> Option<Raw<'_>> {
    fn of<T>(values: (Option<T>, Option<T>), is_upper: bool) -> Option<T> {
        if is_upper { values.1 } else { values.0 }
    }
    match statistics {
        ChunkStatistics::Boolean(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Boolean(*value))
        }
        ChunkStatistics::Int32(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Whole(i64::from(*value)))
        }
        ChunkStatistics::Int64(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Whole(*value))
        }
        ChunkStatistics::Float(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Float(f64::from(*value)))
        }
        ChunkStatistics::Double(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Float(*value))
        }
        ChunkStatistics::ByteArray(_) | ChunkStatistics::FixedLenByteArray(_) => {
            of((statistics.min_bytes_opt(), statistics.max_bytes_opt()), is_upper).map(Raw::Bytes)
        }
        ChunkStatistics::Int96(_) => None,
    }
}

/// The lower or the upper bound of a page that holds more than nulls.
pub(super) fn of_page(index: &ColumnIndexMetaData, page: usize, is_upper: bool) -> Option<Raw<'_>> {
    macro_rules! bound {
        ($index:expr) => {
            if is_upper { $index.max_value(page) } else { $index.min_value(page) }
        };
    }
    match index {
        ColumnIndexMetaData::NONE | ColumnIndexMetaData::INT96(_) => None,
        ColumnIndexMetaData::BOOLEAN(index) => bound!(index).map(|value| Raw::Boolean(*value)),
        ColumnIndexMetaData::INT32(index) => bound!(index).map(|value| Raw::Whole(i64::from(*value))),
        ColumnIndexMetaData::INT64(index) => bound!(index).map(|value| Raw::Whole(*value)),
        ColumnIndexMetaData::FLOAT(index) => bound!(index).map(|value| Raw::Float(f64::from(*value))),
        ColumnIndexMetaData::DOUBLE(index) => bound!(index).map(|value| Raw::Float(*value)),
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            bound!(index).map(Raw::Bytes)
        }
    }
}

fn form(kind: &PrimitiveType, file: &FileField) -> Option<Form> {
    use DataType as A;
    use PrimitiveType as T;
    if !matches!(file.shape, Shape::Leaf { int96: false }) {
        return None;
    }
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000_i64,
    };
    match (kind, &file.arrow_type) {
        (T::Boolean, A::Boolean) => Some(Form::Boolean),
        (T::Int, A::Int8 | A::Int16 | A::Int32) | (T::Long, A::Int8 | A::Int16 | A::Int32 | A::Int64) => {
            Some(Form::Whole(1))
        }
        (T::Float, A::Float32) | (T::Double, A::Float32 | A::Float64) => Some(Form::Float),
        (T::Date, A::Date32) => Some(Form::Whole(1)),
        (T::Time, A::Time32(unit) | A::Time64(unit)) | (T::Timestamp | T::Timestamptz, A::Timestamp(unit, _)) => {
            whole_units(1_000_000, per_second(unit))
        }
        (T::TimestampNs | T::TimestamptzNs, A::Timestamp(unit, _)) => whole_units(1_000_000_000, per_second(unit)),
        (T::Decimal { scale, .. }, A::Decimal128(_, of_file)) if i64::from(*scale) == i64::from(*of_file) => {
            Some(Form::Decimal)
        }
        (T::String, A::Utf8) | (T::Binary, A::Binary) | (T::Uuid | T::Fixed(_), A::FixedSizeBinary(_)) => {
            Some(Form::Bytes)
        }
        _ => None,
    }
}

fn whole_units(table: i64, file: i64) -> Option<Form> {
    (table >= file).then(|| Form::Whole(table / file))
}
