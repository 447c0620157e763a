//! Lower and upper bounds of a column, from the statistics in a Parquet footer.
//!
//! The encoder's statistics leave NaNs out, order decimals by value and give a minimum of zero as -0.0 and a maximum of
//! zero as 0.0. Where they are cut, they are valid bounds that are long enough to be cut again.

use std::cmp::Ordering;

use iceberg::spec::{Datum, PrimitiveType};
use parquet::file::statistics::Statistics;

/// A minimum or maximum, in the order of its Iceberg type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    Decimal(i128),
    Float(f32),
    Double(f64),
    /// Strings too: the order of UTF-8 bytes is that of code points.
    Bytes(Vec<u8>),
}

impl Value {
    /// The order of the column's Iceberg type.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Double(a), Self::Double(b)) => a.total_cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            // All values of one column are of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// Lower and upper bound of a column over the row groups of a file.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    lower: Option<Value>,
    upper: Option<Value>,
    /// A row group has values and no statistics of them: nothing can be said.
    unknown: bool,
}

impl Bounds {
    /// Widens the bounds by the statistics of a row group; says whether they have both.
    pub(super) fn add(&mut self, primitive: &PrimitiveType, statistics: &Statistics) -> bool {
        let (min, max) = extremes(primitive, statistics);
        self.widen(min, max)
    }

    /// Widens the bounds; says whether both are given.
    pub(crate) fn widen(&mut self, min: Option<Value>, max: Option<Value>) -> bool {
        let both = min.is_some() && max.is_some();
        if let Some(min) = min
            && self.lower.as_ref().is_none_or(|lower| min.order(lower) == Ordering::Less)
        {
            self.lower = Some(min);
        }
        if let Some(max) = max
            && self.upper.as_ref().is_none_or(|upper| max.order(upper) == Ordering::Greater)
        {
            self.upper = Some(max);
        }
        both
    }

    /// A row group has values that no statistics tell of.
    pub(crate) fn add_unknown(&mut self) {
        self.unknown = true;
    }

    /// The bounds as a manifest has them, cut to `length` characters or bytes if that is given.
    pub(crate) fn finish(
        self,
        primitive: &PrimitiveType,
        length: Option<usize>,
    ) -> iceberg::Result<(Option<Datum>, Option<Datum>)> {
        if self.unknown {
            return Ok((None, None));
        }
        let lower = self.lower.map(|value| cut_lower(primitive, value, length));
        let upper = self.upper.and_then(|value| cut_upper(primitive, value, length));
        let datum = |value: Value| Datum::try_from_bytes(&serialised(primitive, value), primitive.clone());
        Ok((lower.map(datum).transpose()?, upper.map(datum).transpose()?))
    }
}

/// Minimum and maximum of a row group. A float that is read as a double counts as one.
pub(crate) fn extremes(primitive: &PrimitiveType, statistics: &Statistics) -> (Option<Value>, Option<Value>) {
    let decimal = matches!(primitive, PrimitiveType::Decimal { .. });
    let integer = |number: i64| if decimal { Value::Decimal(number.into()) } else { Value::Integer(number) };
    let bytes = |bytes: &[u8]| if decimal { Value::Decimal(unscaled(bytes)) } else { Value::Bytes(bytes.to_vec()) };
    match statistics {
        Statistics::Boolean(found) => {
            (found.min_opt().map(|min| Value::Boolean(*min)), found.max_opt().map(|max| Value::Boolean(*max)))
        }
        Statistics::Int32(found) => {
            (found.min_opt().map(|min| integer((*min).into())), found.max_opt().map(|max| integer((*max).into())))
        }
        Statistics::Int64(found) => (found.min_opt().copied().map(integer), found.max_opt().copied().map(integer)),
        Statistics::Float(found) if *primitive == PrimitiveType::Double => {
            let double = |value: &f32| Value::Double(f64::from(*value));
            (found.min_opt().map(double), found.max_opt().map(double))
        }
        Statistics::Float(found) => {
            (found.min_opt().map(|min| Value::Float(*min)), found.max_opt().map(|max| Value::Float(*max)))
        }
        Statistics::Double(found) => {
            (found.min_opt().map(|min| Value::Double(*min)), found.max_opt().map(|max| Value::Double(*max)))
        }
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            (statistics.min_bytes_opt().map(bytes), statistics.max_bytes_opt().map(bytes))
        }
        // No Iceberg type is written as INT96.
        Statistics::Int96(_) => (None, None),
    }
}

/// A big-endian number in two's complement, of at most 16 bytes.
pub(crate) fn unscaled(bytes: &[u8]) -> i128 {
    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |number: i128, byte| (number << 8) | i128::from(*byte))
}

/// Iceberg's single-value serialization.
fn serialised(primitive: &PrimitiveType, value: Value) -> Vec<u8> {
    match value {
        Value::Boolean(value) => vec![u8::from(value)],
        Value::Integer(value) if matches!(primitive, PrimitiveType::Int | PrimitiveType::Date) => {
            // It came out of an INT32 column: the low four bytes are all of it.
            value.to_le_bytes()[..4].to_vec()
        }
        Value::Integer(value) => value.to_le_bytes().to_vec(),
        Value::Decimal(value) => value.to_be_bytes().to_vec(),
        Value::Float(value) => value.to_le_bytes().to_vec(),
        Value::Double(value) => value.to_le_bytes().to_vec(),
        Value::Bytes(value) => value,
    }
}

fn cut_lower(primitive: &PrimitiveType, value: Value, length: Option<usize>) -> Value {
    match (primitive, value, length) {
        (PrimitiveType::String, Value::Bytes(bytes), Some(length)) => {
            let end = prefix_of_characters(&bytes, length).map_or(bytes.len(), str::len);
            Value::Bytes(bytes[..end].to_vec())
        }
        (PrimitiveType::Binary | PrimitiveType::Fixed(_), Value::Bytes(mut bytes), Some(length)) => {
            bytes.truncate(length);
            Value::Bytes(bytes)
        }
        (_, value, _) => value,
    }
}

/// An upper bound must not be below the value that it was cut from, so the last character that can be incremented is,
/// and what follows it is dropped. There is none when no character can be.
fn cut_upper(primitive: &PrimitiveType, value: Value, length: Option<usize>) -> Option<Value> {
    match (primitive, value, length) {
        (PrimitiveType::String, Value::Bytes(bytes), Some(length)) => {
            let prefix = prefix_of_characters(&bytes, length)?;
            if prefix.len() == bytes.len() { Some(Value::Bytes(bytes)) } else { next_text(prefix).map(Value::Bytes) }
        }
        (PrimitiveType::Binary | PrimitiveType::Fixed(_), Value::Bytes(bytes), Some(length)) => {
            if bytes.len() <= length {
                Some(Value::Bytes(bytes))
            } else {
                next_bytes(&bytes[..length]).map(Value::Bytes)
            }
        }
        (_, value, _) => Some(value),
    }
}

/// The first `length` characters; `None` for what is not UTF-8.
fn prefix_of_characters(bytes: &[u8], length: usize) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let end = text.char_indices().nth(length).map_or(text.len(), |(end, _)| end);
    Some(&text[..end])
}

fn next_text(prefix: &str) -> Option<Vec<u8>> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Surrogates are no characters: after U+D7FF comes U+E000.
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            text.push(next);
            return Some(text.into_bytes());
        }
    }
    None
}

fn next_bytes(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bytes = prefix[..=last].to_vec();
    bytes[last] += 1;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(primitive: PrimitiveType, value: &[u8], length: usize) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let value = Value::Bytes(value.to_vec());
        let bounds = Bounds { lower: Some(value.clone()), upper: Some(value), unknown: false };
        let (lower, upper) = bounds.finish(&primitive, Some(length)).unwrap();
        (lower.map(|datum| datum.to_bytes().unwrap().to_vec()), upper.map(|datum| datum.to_bytes().unwrap().to_vec()))
    }

    #[test]
    fn strings_are_cut_by_characters_and_the_upper_bound_is_not_below_the_value() {
        let cases = [
            ("abc", 3, "abc", Some("abc")),
            ("abcd", 3, "abc", Some("abd")),
            ("äöüß", 3, "äöü", Some("äöý")),
            ("ab\u{10FFFF}x", 3, "ab\u{10FFFF}", Some("ac")),
            ("ab\u{D7FF}x", 3, "ab\u{D7FF}", Some("ab\u{E000}")),
            ("\u{10FFFF}\u{10FFFF}x", 2, "\u{10FFFF}\u{10FFFF}", None),
            ("", 3, "", Some("")),
        ];
        for (value, length, lower, upper) in cases {
            let got = cut(PrimitiveType::String, value.as_bytes(), length);
            let expected = (Some(lower.as_bytes().to_vec()), upper.map(|upper| upper.as_bytes().to_vec()));
            assert_eq!(got, expected, "{value:?}");
            assert!(got.1.is_none_or(|upper| upper.as_slice() >= value.as_bytes()), "{value:?}");
        }
    }

    #[test]
    fn binaries_are_cut_by_bytes() {
        for primitive in [PrimitiveType::Binary, PrimitiveType::Fixed(4)] {
            assert_eq!(cut(primitive.clone(), &[1, 2, 3, 4], 2), (Some(vec![1, 2]), Some(vec![1, 3])));
            assert_eq!(cut(primitive.clone(), &[1, 255, 255, 4], 3), (Some(vec![1, 255, 255]), Some(vec![2])));
            assert_eq!(cut(primitive, &[255, 255, 1, 1], 2), (Some(vec![255, 255]), None));
        }
    }

    #[test]
    fn a_uuid_is_never_cut() {
        assert_eq!(cut(PrimitiveType::Uuid, &[7; 16], 2), (Some(vec![7; 16]), Some(vec![7; 16])));
    }

    #[test]
    fn fixed_length_decimals_are_signed() {
        for number in [0, 1, -1, 127, -128, 255, -12_345_678_901_234_567_890, i128::MAX, i128::MIN] {
            assert_eq!(unscaled(&number.to_be_bytes()), number);
        }
        assert_eq!(unscaled(&[0xFF, 0x7F]), -129);
        assert_eq!(unscaled(&[0x00, 0x80]), 128);
    }
}
