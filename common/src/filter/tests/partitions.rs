//! Conditions on partitions: which partitions certainly hold no row that matches.

use chrono::{DateTime, Datelike};
use iceberg::spec::{Datum, FieldSummary, Literal, PartitionSpec, PrimitiveLiteral, Struct, Transform};
use iceberg::transform::create_transform_function;

use super::*;

/// What a writer makes of a value; a careless one cuts times before 1970 toward zero.
pub(super) fn transformed(
    transform: Transform,
    kind: &PrimitiveType,
    value: &RawValue,
    careless: bool,
) -> Option<PrimitiveLiteral> {
    use PrimitiveType as T;
    let plain = |value: &RawValue| match (kind, value) {
        (_, B(value)) => PrimitiveLiteral::Boolean(*value),
        (T::Int | T::Date, I(value)) => PrimitiveLiteral::Int(i32::try_from(*value).unwrap()),
        (T::Decimal { .. }, I(value)) => PrimitiveLiteral::Int128(*value),
        (_, I(value)) => PrimitiveLiteral::Long(i64::try_from(*value).unwrap()),
        (T::Float, F(value)) => PrimitiveLiteral::Float((*value as f32).into()),
        (_, F(value)) => PrimitiveLiteral::Double((*value).into()),
        (_, S(value)) => PrimitiveLiteral::String(value.clone()),
        (T::Uuid, Y(value)) => PrimitiveLiteral::UInt128(u128::from_be_bytes(value.as_slice().try_into().unwrap())),
        (_, Y(value)) => PrimitiveLiteral::Binary(value.clone()),
    };
    let unit = match kind {
        T::Date => 86_400_i128,
        T::Timestamp | T::Timestamptz => 1_000_000,
        _ => 1_000_000_000,
    };
    let instant = |value: i128| {
        let seconds = if *kind == T::Date { value * unit } else { value.div_euclid(unit) };
        DateTime::from_timestamp(i64::try_from(seconds).unwrap(), 0).unwrap()
    };
    let is_whole = |value: i128, per: i128| if *kind == T::Date { true } else { value % (per * unit) == 0 };
    let int = |value: i128| Some(PrimitiveLiteral::Int(i32::try_from(value).unwrap()));
    match (transform, value) {
        (Transform::Identity, value) => Some(plain(value)),
        (Transform::Void, _) => None,
        (Transform::Bucket(_), value) => {
            let nanos = matches!(kind, T::TimestampNs | T::TimestamptzNs);
            let datum = match value {
                // Nanoseconds are hashed as the microseconds that they begin in.
                I(value) if nanos => Datum::timestamp_micros(i64::try_from(value.div_euclid(1_000)).unwrap()),
                value => {
                    let bytes = match (kind, value) {
                        (T::Int | T::Date, I(value)) => i32::try_from(*value).unwrap().to_le_bytes().to_vec(),
                        (T::Decimal { .. }, I(value)) => value.to_be_bytes().to_vec(),
                        (_, I(value)) => i64::try_from(*value).unwrap().to_le_bytes().to_vec(),
                        (_, S(value)) => value.as_bytes().to_vec(),
                        (_, Y(value)) => value.clone(),
                        _ => panic!("no buckets of {kind}"),
                    };
                    Datum::try_from_bytes(&bytes, kind.clone()).unwrap()
                }
            };
            let bucket = create_transform_function(&transform).unwrap().transform_literal(&datum).unwrap().unwrap();
            Some(bucket.literal().clone())
        }
        (Transform::Truncate(width), I(value)) => {
            let width = i128::from(width);
            let floor = value - (((value % width) + width) % width);
            Some(match kind {
                // As a subtraction of the type's own overflows.
                T::Int => PrimitiveLiteral::Int(floor as i32),
                T::Long => PrimitiveLiteral::Long(floor as i64),
                _ => PrimitiveLiteral::Int128(floor),
            })
        }
        (Transform::Truncate(width), S(value)) => {
            Some(PrimitiveLiteral::String(value.chars().take(width as usize).collect()))
        }
        (Transform::Truncate(width), Y(value)) => {
            Some(PrimitiveLiteral::Binary(value[..value.len().min(width as usize)].to_vec()))
        }
        (Transform::Year | Transform::Month, I(value)) => {
            let instant = instant(*value);
            let years = i128::from(instant.year()) - 1970;
            let periods =
                if transform == Transform::Year { years } else { years * 12 + i128::from(instant.month()) - 1 };
            let is_first = instant.day() == 1 && is_whole(*value, 86_400);
            let is_start = is_first && (transform == Transform::Month || instant.month() == 1);
            int(if careless && periods < 0 && !is_start { periods + 1 } else { periods })
        }
        (Transform::Day, I(value)) if *kind == T::Date => int(*value),
        (Transform::Day | Transform::Hour, I(value)) => {
            let per = if transform == Transform::Day { 86_400 } else { 3_600 };
            int(if careless { *value / (per * unit) } else { value.div_euclid(per * unit) })
        }
        _ => panic!("no {transform} of {kind}"),
    }
}

fn spec(column: &str, transform: Transform) -> PartitionSpec {
    PartitionSpec::builder(schema()).add_partition_field(column, "p", transform).unwrap().build().unwrap()
}

fn one(value: Option<Literal>) -> Struct {
    Struct::from_iter([value])
}

/// Which of the values a partition with a row that matches may have.
fn may_match(text: &str, transform: Transform, values: &[Option<Literal>]) -> Vec<usize> {
    let column = text.split([' ', '(']).find(|word| columns().iter().any(|(name, _)| name == word)).unwrap();
    let filter = bound(text).project(&spec(column, transform));
    (0..values.len()).filter(|at| filter.may_match_partition(&one(values[*at].clone()))).collect()
}

#[test]
fn a_partition_is_compared_with_the_transformed_literal() {
    use Transform as T;
    let ints = |values: &[i32]| values.iter().map(|value| Some(Literal::int(*value))).chain([None]).collect::<Vec<_>>();
    let texts =
        |values: &[&str]| values.iter().map(|value| Some(Literal::string(*value))).chain([None]).collect::<Vec<_>>();
    // The specification's example: 34 hashes to 2017239379.
    let bucket = 2_017_239_379 % 8;
    let buckets = ints(&[bucket, (bucket + 1) % 8]);
    type Case = (&'static str, Transform, Vec<Option<Literal>>, &'static [usize]);
    let cases: Vec<Case> = vec![
        ("i = 34", T::Bucket(8), buckets.clone(), &[0]),
        ("l IN (34)", T::Bucket(8), buckets.clone(), &[0]),
        ("i <> 34", T::Bucket(8), buckets.clone(), &[0, 1]),
        ("i < 34", T::Bucket(8), buckets.clone(), &[0, 1]),
        ("i IS NULL", T::Bucket(8), buckets.clone(), &[2]),
        ("i IS NOT NULL", T::Bucket(8), buckets.clone(), &[0, 1]),
        ("i = 34", T::Bucket(0), buckets.clone(), &[0, 1]),
        ("ts = '1970-01-02 03:00:00'", T::Day, ints(&[0, 1, 2]), &[1]),
        ("ts < '1970-01-02'", T::Day, ints(&[0, 1, 2]), &[0]),
        ("ts <= '1970-01-02'", T::Day, ints(&[0, 1, 2]), &[0, 1]),
        ("ts > '1970-01-01 23:59:59.999999'", T::Day, ints(&[0, 1, 2]), &[1, 2]),
        ("ts <> '1970-01-02'", T::Day, ints(&[0, 1, 2]), &[0, 1, 2]),
        // Before 1970 a value may be one too high.
        ("ts = '1969-12-31 23:00:00'", T::Day, ints(&[-2, -1, 0, 1]), &[1, 2]),
        ("ts < '1969-12-31'", T::Day, ints(&[-2, -1, 0, 1]), &[0, 1]),
        ("tz >= '2025-06-01'", T::Month, ints(&[664, 665, 666]), &[1, 2]),
        ("day = '2025-06-24'", T::Year, ints(&[54, 55, 56]), &[1]),
        ("tsn = '1970-01-01 05:30:00'", T::Hour, ints(&[4, 5, 6]), &[1]),
        ("ts IN ('1970-01-01', '1970-01-03')", T::Day, ints(&[0, 1, 2]), &[0, 2]),
        ("i = -1", T::Truncate(10), ints(&[-20, -10, 0]), &[1]),
        ("i = -12", T::Truncate(10), ints(&[-20, -10, 0]), &[0]),
        ("i < 0", T::Truncate(10), ints(&[-20, -10, 0, 10]), &[0, 1]),
        ("i > 9", T::Truncate(10), ints(&[-10, 0, 10]), &[2]),
        // The smallest number has no floor that an int holds; its partition may be anything.
        ("i = -2147483648", T::Truncate(10), ints(&[-2_147_483_640, 2_147_483_646, 0]), &[0, 1, 2]),
        ("i < 0", T::Truncate(10), ints(&[2_147_483_646, 10]), &[0]),
        ("i = 5", T::Truncate(0), ints(&[0]), &[0, 1]),
        ("text = 'abc'", T::Truncate(2), texts(&["ab", "abc", "b"]), &[0]),
        ("text LIKE 'a%'", T::Truncate(2), texts(&["ab", "a", "b"]), &[0, 1]),
        ("text LIKE 'abc%'", T::Truncate(2), texts(&["ab", "a", "ac"]), &[0]),
        ("text NOT LIKE 'ab%'", T::Truncate(2), texts(&["ab", "a", "b"]), &[1, 2]),
        ("text NOT LIKE 'abc%'", T::Truncate(2), texts(&["ab", "a", "b"]), &[0, 1, 2]),
        ("text > 'ab'", T::Truncate(2), texts(&["aa", "ab", "b"]), &[1, 2]),
        ("text = 'éé𝄞'", T::Truncate(2), texts(&["éé", "é"]), &[0]),
        ("i = 5", T::Identity, ints(&[4, 5]), &[1]),
        ("i <> 5", T::Identity, ints(&[4, 5]), &[0]),
        ("l = 5", T::Identity, ints(&[4, 5]), &[1]),
        ("ts = '1970-01-02'", T::Identity, ints(&[0, 1]), &[1]),
        ("i = 5", T::Void, ints(&[4]), &[0, 1]),
        ("i = 5 OR flag", T::Identity, ints(&[4, 5]), &[0, 1, 2]),
        ("i = 5 AND flag", T::Identity, ints(&[4, 5]), &[1]),
    ];
    for (text, transform, values, expected) in cases {
        assert_eq!(may_match(text, transform, &values), expected, "{text} by {transform}");
    }
    let nan = [Some(Literal::double(f64::NAN)), Some(Literal::double(-0.0)), None];
    assert_eq!(may_match("d = 'NaN'", T::Identity, &nan), [0]);
    assert_eq!(may_match("d > 5", T::Identity, &nan), [0]);
    assert_eq!(may_match("d = 0", T::Identity, &nan), [1]);
}

#[test]
fn summaries_of_another_shape_and_unreadable_bounds_exclude_nothing() {
    let filter = bound("i = 5").project(&spec("i", Transform::Identity));
    let summary = |lower: &[u8], upper: &[u8]| FieldSummary {
        contains_null: true,
        contains_nan: None,
        lower_bound: Some(lower.to_vec().into()),
        upper_bound: Some(upper.to_vec().into()),
    };
    let of = |value: i32| value.to_le_bytes();
    assert!(!filter.may_match_summaries(&[summary(&of(6), &of(9))]));
    assert!(!filter.may_match_summaries(&[summary(&of(1), &of(4))]));
    assert!(filter.may_match_summaries(&[summary(&of(1), &of(5))]));
    assert!(filter.may_match_summaries(&[summary(&[6], &[6])]));
    assert!(filter.may_match_summaries(&[]));
    assert!(filter.may_match_partition(&Struct::from_iter([])));
    let bounds = |lower: i64, upper: i64| summary(&lower.to_le_bytes(), &upper.to_le_bytes());
    let day = bound("ts < '1969-12-31'").project(&spec("ts", Transform::Identity));
    assert!(!day.may_match_summaries(&[bounds(0, 1)]));
    assert!(day.may_match_summaries(&[summary(&of(-5), &of(-4))]), "from before a date became a timestamp");
    assert!(!day.may_match_summaries(&[summary(&of(0), &of(1))]));
    let days = bound("ts = '1969-12-31 23:00:00'").project(&spec("ts", Transform::Day));
    assert!(days.may_match_summaries(&[summary(&of(0), &of(5))]), "one too high");
    assert!(!days.may_match_summaries(&[summary(&of(1), &of(5))]));
    let uuid = |first: u8, ninth: u8| {
        let mut bytes = [0; 16];
        (bytes[0], bytes[8]) = (first, ninth);
        bytes
    };
    let uuids = bound("uu = '00000000-0000-0000-0000-000000000001'").project(&spec("uu", Transform::Identity));
    assert!(uuids.may_match_summaries(&[summary(&uuid(0, 0x80), &uuid(1, 0))]), "ordered by signed halves");
    assert!(!uuids.may_match_summaries(&[summary(&uuid(1, 0), &uuid(1, 0))]), "a single value");
    let text = bound("text = 'abc'").project(&spec("text", Transform::Identity));
    assert!(text.may_match_summaries(&[summary(b"a", b"ab")]), "a bound may be cut");
    assert!(!text.may_match_summaries(&[summary(b"a", b"aa")]));
}
