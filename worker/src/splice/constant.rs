//! Columns that hold one value in every row, encoded without a row in sight: a dictionary of one value and runs of its index.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Compression, Encoding, PageType, Repetition, Type as Physical};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, Type as ParquetType};

/// Rows of one page. Readers that skip by pages find some to skip; a page of them takes a few bytes.
const PAGE_ROWS: u64 = 1 << 20;

/// One leaf column that holds one value in every row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConstantLeaf {
    /// How much of the path to the value is there: all of it when there is a value.
    definition_level: i16,
    /// The value in Parquet's plain encoding, the length of a byte array left out.
    pub(super) value: Option<Vec<u8>>,
}

/// The leaves under `column` for the value in the one row of `array`; `None` when the value does not fit the column.
pub(super) fn leaves(array: &ArrayRef, column: &ParquetType) -> Option<Vec<ConstantLeaf>> {
    let mut leaves = Vec::new();
    collect(Some(array), column, 0, &mut leaves)?;
    Some(leaves)
}

/// `array` is `None` below a null.
fn collect(array: Option<&ArrayRef>, column: &ParquetType, level: i16, leaves: &mut Vec<ConstantLeaf>) -> Option<()> {
    let repetition = column.get_basic_info().repetition();
    let present = array.filter(|array| array.is_valid(0));
    let level = match (array, present, repetition) {
        // A null above is the end of the path for all that is below it.
        (None, ..) => level,
        (Some(_), Some(_), Repetition::REQUIRED) => level,
        (Some(_), Some(_), Repetition::OPTIONAL) => level + 1,
        (Some(_), None, Repetition::OPTIONAL) => level,
        _ => return None,
    };
    if column.is_primitive() {
        let value = match present {
            Some(array) => Some(plain(array, column.get_physical_type())?),
            None => None,
        };
        leaves.push(ConstantLeaf { definition_level: level, value });
        return Some(());
    }
    let children = match present {
        None => None,
        // Lists and maps have no constants but null.
        Some(array) => Some(array.as_struct_opt().filter(|array| array.num_columns() == column.get_fields().len())?),
    };
    for (place, child) in column.get_fields().iter().enumerate() {
        collect(children.map(|array| array.column(place)), child, level, leaves)?;
    }
    Some(())
}

fn plain(array: &ArrayRef, physical: Physical) -> Option<Vec<u8>> {
    let bytes = match (array.data_type(), physical) {
        (DataType::Boolean, Physical::BOOLEAN) => vec![u8::from(array.as_boolean().value(0))],
        (DataType::Int32, Physical::INT32) => array.as_primitive::<Int32Type>().value(0).to_le_bytes().to_vec(),
        (DataType::Date32, Physical::INT32) => array.as_primitive::<Date32Type>().value(0).to_le_bytes().to_vec(),
        (DataType::Int64, Physical::INT64) => array.as_primitive::<Int64Type>().value(0).to_le_bytes().to_vec(),
        (DataType::Time64(TimeUnit::Microsecond), Physical::INT64) => {
            array.as_primitive::<Time64MicrosecondType>().value(0).to_le_bytes().to_vec()
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), Physical::INT64) => {
            array.as_primitive::<TimestampMicrosecondType>().value(0).to_le_bytes().to_vec()
        }
        (DataType::Timestamp(TimeUnit::Nanosecond, _), Physical::INT64) => {
            array.as_primitive::<TimestampNanosecondType>().value(0).to_le_bytes().to_vec()
        }
        (DataType::Float32, Physical::FLOAT) => array.as_primitive::<Float32Type>().value(0).to_le_bytes().to_vec(),
        (DataType::Float64, Physical::DOUBLE) => array.as_primitive::<Float64Type>().value(0).to_le_bytes().to_vec(),
        (DataType::Utf8, Physical::BYTE_ARRAY) => array.as_string::<i32>().value(0).as_bytes().to_vec(),
        (DataType::LargeBinary, Physical::BYTE_ARRAY) => array.as_binary::<i64>().value(0).to_vec(),
        (DataType::FixedSizeBinary(_), Physical::FIXED_LEN_BYTE_ARRAY) => {
            array.as_fixed_size_binary().value(0).to_vec()
        }
        (DataType::Decimal128(..), physical) => {
            let value = array.as_primitive::<Decimal128Type>().value(0);
            match physical {
                Physical::INT32 => i32::try_from(value).ok()?.to_le_bytes().to_vec(),
                Physical::INT64 => i64::try_from(value).ok()?.to_le_bytes().to_vec(),
                // Cut to the column's length when it is encoded.
                Physical::FIXED_LEN_BYTE_ARRAY => value.to_be_bytes().to_vec(),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(bytes)
}

/// A column chunk of one value, with its offsets counted from its first byte.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    pub(super) chunk: ColumnChunkMetaData,
    pub(super) column_index: ColumnIndexMetaData,
    pub(super) offset_index: OffsetIndexMetaData,
}

impl ConstantLeaf {
    /// Encodes so many rows of it. Tiny but for booleans, which have no dictionary.
    pub(super) fn encode(&self, column: &ColumnDescPtr, rows: u64) -> Result<Encoded, ParquetError> {
        let value = self.value.as_deref().map(|value| in_column(value, column)).transpose()?;
        let is_boolean = column.physical_type() == Physical::BOOLEAN;
        let has_dictionary = value.is_some() && !is_boolean;
        let mut written = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut written);
        let (mut uncompressed, mut data_offset, mut data_pages) = (0, None, 0);
        let mut offsets = OffsetIndexBuilder::new();
        let mut index = ColumnIndexBuilder::new(column.physical_type());
        index.set_boundary_order(BoundaryOrder::ASCENDING);
        if let Some(value) = value.filter(|_| has_dictionary) {
            let buf = Bytes::from(match column.physical_type() {
                Physical::BYTE_ARRAY => [&length(value)?.to_le_bytes(), value].concat(),
                _ => value.to_vec(),
            });
            let size = buf.len();
            let page = Page::DictionaryPage { buf, num_values: 1, encoding: Encoding::PLAIN, is_sorted: false };
            uncompressed += pages.write_page(CompressedPage::new(page, size))?.uncompressed_size;
        }
        let encoding = if has_dictionary { Encoding::RLE_DICTIONARY } else { Encoding::PLAIN };
        let bounds = value.and_then(|value| bounds(value, column.physical_type()));
        let mut rest = rows;
        while rest > 0 {
            let rows = rest.min(PAGE_ROWS);
            rest -= rows;
            let buf = Bytes::from(self.page(column, value, rows));
            let size = buf.len();
            let page = Page::DataPage {
                buf,
                num_values: rows as u32,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            };
            let spec = pages.write_page(CompressedPage::new(page, size))?;
            uncompressed += spec.uncompressed_size;
            data_offset.get_or_insert(spec.offset);
            data_pages += 1;
            offsets.append_row_count(rows as i64);
            offsets.append_offset_and_size(spec.offset as i64, page_size(spec.compressed_size)?);
            let (min, max) = bounds.clone().unwrap_or_default();
            index.append(value.is_none(), min, max, if value.is_none() { rows as i64 } else { 0 });
        }
        pages.close()?;
        drop(pages);
        let bytes = Bytes::from(written.into_inner()?);
        let pages_of = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        let mut stats = vec![pages_of(PageType::DATA_PAGE, encoding, data_pages)];
        if has_dictionary {
            encodings.push(Encoding::RLE_DICTIONARY);
            stats.insert(0, pages_of(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
        }
        let chunk = ColumnChunkMetaData::builder(ColumnDescPtr::clone(column))
            .set_encodings(encodings)
            .set_compression(Compression::UNCOMPRESSED)
            .set_num_values(rows as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_dictionary_page_offset(has_dictionary.then_some(0))
            .set_data_page_offset(data_offset.unwrap_or(0) as i64)
            .set_page_encoding_stats(stats)
            .set_statistics(statistics(bounds.as_ref(), value.map_or(rows, |_| 0), column.physical_type()))
            .build()?;
        // A value without an order has no bounds, and a column index has to have them.
        let column_index = match value.is_some() && bounds.is_none() {
            true => ColumnIndexMetaData::NONE,
            false => index.build()?,
        };
        Ok(Encoded { bytes, chunk, column_index, offset_index: offsets.build() })
    }

    /// The body of a page: levels as one run each, then the values.
    fn page(&self, column: &ColumnDescPtr, value: Option<&[u8]>, rows: u64) -> Vec<u8> {
        let mut page = Vec::new();
        let mut levels = |level: i16, largest: i16| {
            if largest > 0 {
                let mut run = Vec::new();
                push_run(&mut run, rows, level as u8);
                page.extend_from_slice(&(run.len() as u32).to_le_bytes());
                page.extend_from_slice(&run);
            }
        };
        levels(0, column.max_rep_level());
        levels(self.definition_level, column.max_def_level());
        match value {
            None => {}
            Some(value) if column.physical_type() == Physical::BOOLEAN => {
                let bits = if value == [1] { u8::MAX } else { 0 };
                page.resize(page.len() + rows.div_ceil(8) as usize, bits);
            }
            // Indexes of one bit: readers differ on those of none.
            Some(_) => {
                page.push(1);
                push_run(&mut page, rows, 0);
            }
        }
        page
    }
}

/// A run of one value of at most eight bits.
fn push_run(to: &mut Vec<u8>, count: u64, value: u8) {
    let mut header = count << 1;
    while header >= 0x80 {
        to.push(header as u8 | 0x80);
        header >>= 7;
    }
    to.push(header as u8);
    to.push(value);
}

/// The value in the column's own length.
fn in_column<'a>(value: &'a [u8], column: &ColumnDescPtr) -> Result<&'a [u8], ParquetError> {
    let length = match column.physical_type() {
        Physical::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).unwrap_or(0),
        _ => return Ok(value),
    };
    let start = value.len().checked_sub(length);
    start.map(|start| &value[start..]).ok_or_else(|| ParquetError::General("a constant is too short".to_owned()))
}

fn length(value: &[u8]) -> Result<u32, ParquetError> {
    u32::try_from(value.len()).map_err(|_| ParquetError::General("a constant is too long".to_owned()))
}

fn page_size(bytes: usize) -> Result<i32, ParquetError> {
    i32::try_from(bytes).map_err(|_| ParquetError::General("a constant is too long".to_owned()))
}

/// Lower and upper bound of a value; `None` for a NaN. A zero is bounded by both of its signs, as Parquet has it.
fn bounds(value: &[u8], physical: Physical) -> Option<(Vec<u8>, Vec<u8>)> {
    let same = || Some((value.to_vec(), value.to_vec()));
    match physical {
        Physical::FLOAT => match f32::from_le_bytes(value.try_into().ok()?) {
            number if number.is_nan() => None,
            0.0 => Some(((-0.0f32).to_le_bytes().to_vec(), 0.0f32.to_le_bytes().to_vec())),
            _ => same(),
        },
        Physical::DOUBLE => match f64::from_le_bytes(value.try_into().ok()?) {
            number if number.is_nan() => None,
            0.0 => Some(((-0.0f64).to_le_bytes().to_vec(), 0.0f64.to_le_bytes().to_vec())),
            _ => same(),
        },
        _ => same(),
    }
}

fn statistics(bounds: Option<&(Vec<u8>, Vec<u8>)>, nulls: u64, physical: Physical) -> Statistics {
    let nulls = Some(nulls);
    macro_rules! numbers {
        ($make:ident, $number:ty) => {{
            let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().ok().map(<$number>::from_le_bytes);
            Statistics::$make(
                bounds.and_then(|of| number(&of.0)),
                bounds.and_then(|of| number(&of.1)),
                None,
                nulls,
                false,
            )
        }};
    }
    let array = |bytes: &Vec<u8>| ByteArray::from(bytes.clone());
    match physical {
        Physical::BOOLEAN => {
            let value = bounds.map(|of| of.0 == [1]);
            Statistics::boolean(value, value, None, nulls, false)
        }
        Physical::INT32 => numbers!(int32, i32),
        Physical::FLOAT => numbers!(float, f32),
        Physical::DOUBLE => numbers!(double, f64),
        Physical::BYTE_ARRAY => {
            Statistics::byte_array(bounds.map(|of| array(&of.0)), bounds.map(|of| array(&of.1)), None, nulls, false)
        }
        Physical::FIXED_LEN_BYTE_ARRAY => {
            let fixed = |bytes: &Vec<u8>| FixedLenByteArray::from(array(bytes));
            Statistics::fixed_len_byte_array(
                bounds.map(|of| fixed(&of.0)),
                bounds.map(|of| fixed(&of.1)),
                None,
                nulls,
                false,
            )
        }
        // No column of ours is INT96, and the rest are longs.
        Physical::INT64 | Physical::INT96 => numbers!(int64, i64),
    }
}
