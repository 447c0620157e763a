//! Values of all types, in the forms that writers keep them in.

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int8Array, Int64Array, Time32MillisecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use iceferry_common::fault::{Class, Classified};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;

fn array(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

#[test]
fn values_come_as_the_tables_type_or_the_column_is_refused() {
    use PrimitiveType as To;
    let decimal = |value: i128, precision, scale| {
        array(Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap())
    };
    let fixed = |bytes: &[u8]| array(FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes)).unwrap());
    let micros = |value| TimestampMicrosecondArray::from(vec![value]);
    let to_decimal = |precision, scale| To::Decimal { precision, scale };
    let one = [7u8; 16];
    // 1969-12-31T23:59:59.999999 and 2024-03-10T02:30:00, an hour that New York skipped.
    let (before, skipped) = (-1i64, 1_710_037_800_000_000i64);
    let cases: Vec<(ArrayRef, To, Option<&str>)> = vec![
        (array(BooleanArray::from(vec![true])), To::Boolean, Some("true")),
        (ints([i32::MIN]), To::Int, Some("-2147483648")),
        (ints([5]), To::Long, Some("5")),
        (array(Int8Array::from(vec![-3])), To::Int, Some("-3")),
        (array(UInt32Array::from(vec![u32::MAX])), To::Long, Some("4294967295")),
        (array(UInt32Array::from(vec![u32::MAX])), To::Int, None),
        (array(UInt64Array::from(vec![u64::MAX])), To::Long, None),
        (array(Int64Array::from(vec![5])), To::Int, None),
        (array(Float32Array::from(vec![0.5])), To::Double, Some("0.5")),
        (array(Float64Array::from(vec![0.5])), To::Float, None),
        (array(Float64Array::from(vec![f64::NAN])), To::Double, Some("NaN")),
        (ints([5]), To::Double, None),
        (decimal(1234, 4, 2), to_decimal(15, 2), Some("12.34")),
        (decimal(-1234, 18, 2), to_decimal(38, 2), Some("-12.34")),
        (decimal(1234, 4, 2), to_decimal(15, 3), None),
        (decimal(1234, 10, 2), to_decimal(9, 2), None),
        (array(Date32Array::from(vec![-1])), To::Date, Some("1969-12-31")),
        (array(Date32Array::from(vec![-1])), To::Timestamp, Some("1969-12-31T00:00:00")),
        (array(Date32Array::from(vec![19_792])), To::TimestampNs, Some("2024-03-10T00:00:00")),
        (array(Date32Array::from(vec![200_000])), To::TimestampNs, None),
        (array(Date32Array::from(vec![1])), To::Timestamptz, None),
        (array(micros(before)), To::Date, None),
        (array(Time64MicrosecondArray::from(vec![1_000_001])), To::Time, Some("00:00:01.000001")),
        (array(Time32MillisecondArray::from(vec![1_001])), To::Time, Some("00:00:01.001")),
        (array(Time64NanosecondArray::from(vec![1_000])), To::Time, Some("00:00:00.000001")),
        (array(Time64NanosecondArray::from(vec![1_001])), To::Time, None),
        (array(micros(before)), To::Timestamp, Some("1969-12-31T23:59:59.999999")),
        (array(micros(skipped).with_timezone("UTC")), To::Timestamptz, Some("2024-03-10T02:30:00Z")),
        (array(micros(skipped)), To::Timestamptz, Some("2024-03-10T02:30:00Z")),
        (array(micros(skipped).with_timezone("UTC")), To::Timestamp, Some("2024-03-10T02:30:00")),
        (array(TimestampMillisecondArray::from(vec![-1])), To::Timestamp, Some("1969-12-31T23:59:59.999")),
        (array(TimestampMillisecondArray::from(vec![i64::MAX])), To::Timestamp, None),
        (array(TimestampNanosecondArray::from(vec![-1_000])), To::Timestamp, Some("1969-12-31T23:59:59.999999")),
        (array(TimestampNanosecondArray::from(vec![-1])), To::Timestamp, None),
        (array(TimestampNanosecondArray::from(vec![-1])), To::TimestampNs, Some("1969-12-31T23:59:59.999999999")),
        (array(micros(before)), To::TimestamptzNs, Some("1969-12-31T23:59:59.999999Z")),
        (array(Int64Array::from(vec![1])), To::Timestamp, None),
        (texts(["ü"]), To::String, Some("ü")),
        (array(BinaryArray::from_vec(vec![b"text"])), To::String, Some("text")),
        (array(BinaryArray::from_vec(vec![b"\xFF"])), To::String, None),
        (array(BinaryArray::from_vec(vec![b"\x01\xFF"])), To::Binary, Some("01ff")),
        (texts(["ab"]), To::Binary, Some("6162")),
        (fixed(&one), To::Uuid, Some("07070707070707070707070707070707")),
        (fixed(&[1, 2, 3]), To::Fixed(3), Some("010203")),
        (fixed(&[1, 2, 3]), To::Fixed(4), None),
        (fixed(&[1, 2, 3]), To::Uuid, None),
        (texts(["1"]), To::Int, None),
    ];
    let lab = Lab::new();
    for (column, to, expected) in cases {
        let name = format!("{} as {to}", column.data_type());
        let file = lab.data("f.parquet", &batch(&[(1, "c", column)]));
        let got = lab.rows_of(&schema([optional(1, "c", to)]), file);
        match (got, expected) {
            (Ok(got), Some(expected)) => assert_eq!(got, [expected], "{name}"),
            (Err(error), None) => {
                assert_eq!(error.class(), Class::Refused, "{name}: {error:?}");
                assert!(error.to_string().contains("column c of file:"), "{name}: {error}");
            }
            (got, expected) => panic!("{name}: {got:?} and not {expected:?}"),
        }
    }
}

#[test]
fn decimals_are_read_from_every_physical_type() {
    let message = "message m {
        required int32 a (DECIMAL(9,2)) = 1;
        required int64 b (DECIMAL(18,2)) = 2;
        required binary c (DECIMAL(20,2)) = 3;
    }";
    let schema_type = Arc::new(parse_message_type(message).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema_type, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1234, -1], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1234, -1], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values = [ByteArray::from(vec![0x04, 0xD2]), ByteArray::from(vec![0xFF])];
    column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let lab = Lab::new();
    let file = lab.data_file("f.parquet", &bytes, 2);
    let to = |id, name: &str| required(id, name, PrimitiveType::Decimal { precision: 20, scale: 2 });
    let rows = lab.rows_of(&schema([to(1, "a"), to(2, "b"), to(3, "c")]), file).unwrap();
    assert_eq!(rows, ["12.34|12.34|12.34", "-0.01|-0.01|-0.01"]);
}

#[test]
fn a_null_in_a_required_column_is_damage() {
    let lab = Lab::new();
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let file = lab.data("f.parquet", &batch(&[(1, "id", nulls)]));
    let error = lab.rows_of(&schema([required(1, "id", PrimitiveType::Int)]), file).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains("required column id is null in 1 rows"), "{error}");
}
