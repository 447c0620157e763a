//! Literals in the type of the column beside them, exactly: one that the column cannot hold lies between two of its values.

use iceberg::spec::PrimitiveType;

use super::syntax::{LiteralValue, Number};
use super::temporal::{self, Moment, NANOS_PER_DAY};
use super::value::{Value, units_per_day};

/// Where a literal lies among the values of a column.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// It is one of them.
    At(Value),
    /// Right above this one.
    Above(Value),
    /// Above all but NaN.
    AboveAll,
    /// Below all.
    BelowAll,
    /// It is NaN.
    Nan,
}

/// Places a literal among the values of a type. The error says what stands beside a column of the type.
pub(super) fn place(kind: &PrimitiveType, literal: &LiteralValue) -> Result<Place, &'static str> {
    use LiteralValue as L;
    use PrimitiveType as T;
    let at = |value| Ok(Place::At(value));
    match (kind, literal) {
        (T::Boolean, L::Boolean(value)) => at(Value::Boolean(*value)),
        (T::Int, L::Number(number)) => Ok(whole(number, 0, i128::from(i32::MIN), i128::from(i32::MAX))),
        (T::Long, L::Number(number)) => Ok(whole(number, 0, i128::from(i64::MIN), i128::from(i64::MAX))),
        (T::Float, L::Number(number)) => Ok(float(f64::from(number.text().parse::<f32>().unwrap_or(f32::NAN)), kind)),
        (T::Double, L::Number(number)) => Ok(float(number.text().parse::<f64>().unwrap_or(f64::NAN), kind)),
        (T::Float | T::Double, L::Text(text)) => special(text).ok_or(expected(kind)),
        (T::Decimal { precision, scale }, L::Number(number)) => Ok(decimal(number, *precision, *scale)),
        (T::Decimal { precision, scale }, L::Text(text)) => {
            let number = Number::parse(text.trim()).ok_or(expected(kind))?;
            Ok(decimal(&number, *precision, *scale))
        }
        (T::String, L::Text(text)) => at(Value::Text(text.clone())),
        (T::Uuid, L::Text(text)) => at(Value::Bytes(uuid(text).ok_or(expected(kind))?)),
        (T::Binary | T::Fixed(_), L::Bytes(bytes)) => at(Value::Bytes(bytes.clone())),
        (T::Date, L::Date(days)) => at(Value::Whole(i128::from(*days))),
        (T::Time, L::Time(nanos)) => Ok(divided(i128::from(*nanos), 1_000)),
        (T::Time, L::Text(text)) => Ok(divided(i128::from(temporal::time(text).ok_or(expected(kind))?), 1_000)),
        (T::Date, L::Timestamp(moment)) => date(*moment).ok_or(expected(kind)),
        (T::Date, L::Text(text)) => temporal::moment(text).and_then(date).ok_or(expected(kind)),
        (T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs, _) => {
            let moment = match literal {
                L::Timestamp(moment) => *moment,
                L::Date(days) => Moment::midnight(*days),
                L::Text(text) => temporal::moment(text).ok_or(expected(kind))?,
                _ => return Err(expected(kind)),
            };
            timestamp(kind, moment).ok_or(expected(kind))
        }
        _ => Err(expected(kind)),
    }
}

/// What stands beside a column of the type.
fn expected(kind: &PrimitiveType) -> &'static str {
    match kind {
        PrimitiveType::Boolean => "TRUE or FALSE",
        PrimitiveType::Int | PrimitiveType::Long => "a number without quotes",
        PrimitiveType::Float | PrimitiveType::Double => "a number without quotes, 'NaN', 'Infinity' or '-Infinity'",
        PrimitiveType::Decimal { .. } => "a number",
        PrimitiveType::String => "text in single quotes",
        PrimitiveType::Uuid => "a UUID in single quotes",
        PrimitiveType::Binary | PrimitiveType::Fixed(_) => "bytes such as X'00ff'",
        PrimitiveType::Date => "a date such as '2026-01-31'",
        PrimitiveType::Time => "a time such as '12:30:00'",
        PrimitiveType::Timestamp | PrimitiveType::TimestampNs => {
            "a timestamp without a zone such as '2026-01-31 12:30:00'"
        }
        PrimitiveType::Timestamptz | PrimitiveType::TimestamptzNs => {
            "a timestamp such as '2026-01-31 12:30:00Z' or '2026-01-31 12:30:00+01:00'"
        }
    }
}

/// A number times ten to the power of `scale`, among the whole numbers from `min` to `max`.
fn whole(number: &Number, scale: u32, min: i128, max: i128) -> Place {
    /// Any number of so many digits fits.
    const DIGITS_MAX: i64 = 38;
    let outside = if number.is_negative { Place::BelowAll } else { Place::AboveAll };
    if number.digits.is_empty() {
        return Place::At(Value::Whole(0));
    }
    let length = number.digits.len() as i64;
    let exponent = number.exponent.saturating_add(i64::from(scale));
    let places = length.saturating_add(exponent);
    if places > DIGITS_MAX {
        return outside;
    }
    let before_point = usize::try_from(places).unwrap_or(0).min(number.digits.len());
    let zeros = u32::try_from(exponent).unwrap_or(0);
    let digits = &number.digits[..before_point];
    let magnitude = if digits.is_empty() { 0 } else { digits.parse::<i128>().unwrap_or(0) * 10_i128.pow(zeros) };
    // The digits end with none that is zero, so those behind the point are a fraction.
    let has_fraction = before_point < number.digits.len();
    let floor = match (number.is_negative, has_fraction) {
        (false, _) => magnitude,
        (true, false) => -magnitude,
        (true, true) => -magnitude - 1,
    };
    if floor < min {
        Place::BelowAll
    } else if floor > max || (floor == max && has_fraction) {
        Place::AboveAll
    } else if has_fraction {
        Place::Above(Value::Whole(floor))
    } else {
        Place::At(Value::Whole(floor))
    }
}

fn decimal(number: &Number, precision: u32, scale: u32) -> Place {
    let max = 10_i128.checked_pow(precision).map_or(i128::MAX, |power| power - 1);
    whole(number, scale, -max, max)
}

/// The nearest value of a floating-point type. One that is too large for it is none of its values, and is not infinite.
fn float(nearest: f64, kind: &PrimitiveType) -> Place {
    let max = if *kind == PrimitiveType::Float { f64::from(f32::MAX) } else { f64::MAX };
    if nearest == f64::INFINITY {
        Place::Above(Value::Float(max))
    } else if nearest == f64::NEG_INFINITY {
        Place::Above(Value::Float(f64::NEG_INFINITY))
    } else if nearest == 0.0 {
        Place::At(Value::Float(0.0))
    } else {
        Place::At(Value::Float(nearest))
    }
}

fn special(text: &str) -> Option<Place> {
    let is = |word: &str| text.trim().eq_ignore_ascii_case(word);
    if is("nan") {
        Some(Place::Nan)
    } else if is("infinity") || is("+infinity") || is("inf") || is("+inf") {
        Some(Place::At(Value::Float(f64::INFINITY)))
    } else if is("-infinity") || is("-inf") {
        Some(Place::At(Value::Float(f64::NEG_INFINITY)))
    } else {
        None
    }
}

fn uuid(text: &str) -> Option<Vec<u8>> {
    const HYPHENATED: usize = 36;
    let uuid = uuid::Uuid::try_parse(text).ok()?;
    (text.len() == HYPHENATED).then(|| uuid.as_bytes().to_vec())
}

/// So many units of which `per_unit` are one of the column's.
fn divided(value: i128, per_unit: i128) -> Place {
    let floor = Value::Whole(value.div_euclid(per_unit));
    if value.rem_euclid(per_unit) == 0 { Place::At(floor) } else { Place::Above(floor) }
}

fn date(moment: Moment) -> Option<Place> {
    moment.offset_seconds.is_none().then(|| divided(moment.local_nanos(), NANOS_PER_DAY))
}

fn timestamp(kind: &PrimitiveType, moment: Moment) -> Option<Place> {
    let has_zone = matches!(kind, PrimitiveType::Timestamptz | PrimitiveType::TimestamptzNs);
    if moment.offset_seconds.is_some() && !has_zone {
        return None;
    }
    let place = divided(moment.utc_nanos(), NANOS_PER_DAY / i128::from(units_per_day(kind)?));
    let (Place::At(Value::Whole(floor)) | Place::Above(Value::Whole(floor))) = place else { return None };
    Some(if floor < i128::from(i64::MIN) {
        Place::BelowAll
    } else if floor > i128::from(i64::MAX) {
        Place::AboveAll
    } else {
        place
    })
}
