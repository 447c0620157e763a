//! A plain model: conditions as trees that are looked at row by row, with random ones to try.

use std::cmp::Ordering;
use std::fmt::Write;

use chrono::DateTime;
use iceberg::spec::PrimitiveType;

use super::{B, F, I, Raw, RawValue, S, Y, columns};

/// A small generator of random numbers (SplitMix64): enough for tests, and the same everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// `ICEFERRY_SEED`, or one from the clock, printed.
pub(super) fn seed() -> u64 {
    let seed = setting("ICEFERRY_SEED")
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |elapsed| elapsed.as_nanos() as u64));
    println!("ICEFERRY_SEED={seed}");
    seed
}

/// `ICEFERRY_CASES`, or so many.
pub(super) fn cases(default: u64) -> u64 {
    setting("ICEFERRY_CASES").unwrap_or(default)
}

/// A condition. Literals of whole numbers are counted in parts of the column's unit, see [`parts`].
#[derive(Debug, Clone)]
pub(super) enum Condition {
    Compare(usize, &'static str, RawValue, bool),
    In(usize, bool, Vec<RawValue>),
    Between(usize, bool, RawValue, RawValue),
    IsNull(usize, bool),
    IsNan(usize, bool),
    Like(usize, bool, String, bool),
    Bare(usize),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

/// A literal counts in so many parts of the column's unit: tenths of a number, nanoseconds of a microsecond, seconds of a day.
fn parts(kind: &PrimitiveType) -> i128 {
    match kind {
        PrimitiveType::Date => 86_400,
        PrimitiveType::Time | PrimitiveType::Timestamp | PrimitiveType::Timestamptz => 1_000,
        PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs => 1,
        _ => 10,
    }
}

fn compare(kind: &PrimitiveType, value: &RawValue, literal: &RawValue) -> Ordering {
    match (value, literal) {
        (B(value), B(literal)) => value.cmp(literal),
        (I(value), I(literal)) => (value * parts(kind)).cmp(literal),
        (F(value), F(literal)) => match (value.is_nan(), literal.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => value.partial_cmp(literal).unwrap(),
        },
        (S(value), S(literal)) => value.chars().cmp(literal.chars()),
        (Y(value), Y(literal)) => value.cmp(literal),
        _ => panic!("{value:?} beside {literal:?}"),
    }
}

impl Condition {
    /// True, false or unknown.
    pub(super) fn of(&self, row: &[Raw]) -> Option<bool> {
        let kind = |column: usize| columns()[column].1.clone();
        match self {
            Self::Compare(column, operator, literal, _) => {
                let order = compare(&kind(*column), row[*column].as_ref()?, literal);
                Some(match *operator {
                    "=" => order.is_eq(),
                    "<>" => order.is_ne(),
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
            Self::In(column, not, literals) => {
                let value = row[*column].as_ref()?;
                Some(literals.iter().any(|literal| compare(&kind(*column), value, literal).is_eq()) != *not)
            }
            Self::Between(column, not, low, high) => {
                let value = row[*column].as_ref()?;
                let kind = kind(*column);
                Some((compare(&kind, value, low).is_ge() && compare(&kind, value, high).is_le()) != *not)
            }
            Self::IsNull(column, not) => Some(row[*column].is_none() != *not),
            Self::IsNan(column, not) => Some(matches!(&row[*column], Some(F(value)) if value.is_nan()) != *not),
            Self::Like(column, not, prefix, open) => {
                let Some(S(value)) = &row[*column] else { return None };
                Some((if *open { value.starts_with(prefix) } else { value == prefix }) != *not)
            }
            Self::Bare(column) => match &row[*column] {
                Some(B(value)) => Some(*value),
                _ => None,
            },
            Self::Not(inner) => inner.of(row).map(|value| !value),
            Self::And(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.of(row)).collect();
                if parts.contains(&Some(false)) {
                    Some(false)
                } else if parts.contains(&None) {
                    None
                } else {
                    Some(true)
                }
            }
            Self::Or(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.of(row)).collect();
                if parts.contains(&Some(true)) {
                    Some(true)
                } else if parts.contains(&None) {
                    None
                } else {
                    Some(false)
                }
            }
        }
    }

    pub(super) fn sql(&self) -> String {
        let name = |column: usize| match columns()[column].0 {
            plain if plain.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '.') => plain.to_owned(),
            odd => format!("\"{}\"", odd.replace('"', "\"\"")),
        };
        let literal = |column: usize, value: &RawValue| literal(&columns()[column].1, value);
        let not = |not: &bool| if *not { "NOT " } else { "" };
        let joined =
            |parts: &[Self], word: &str| format!("({})", parts.iter().map(Self::sql).collect::<Vec<_>>().join(word));
        match self {
            Self::Compare(column, operator, value, flipped) => {
                let (name, value) = (name(*column), literal(*column, value));
                let mirrored = match *operator {
                    "<" => ">",
                    "<=" => ">=",
                    ">" => "<",
                    ">=" => "<=",
                    same => same,
                };
                if *flipped { format!("{value} {mirrored} {name}") } else { format!("{name} {operator} {value}") }
            }
            Self::In(column, negated, values) => {
                let values: Vec<String> = values.iter().map(|value| literal(*column, value)).collect();
                format!("{} {}IN ({})", name(*column), not(negated), values.join(", "))
            }
            Self::Between(column, negated, low, high) => {
                let (low, high) = (literal(*column, low), literal(*column, high));
                format!("{} {}BETWEEN {low} AND {high}", name(*column), not(negated))
            }
            Self::IsNull(column, negated) => format!("{} IS {}NULL", name(*column), not(negated)),
            Self::IsNan(column, negated) => format!("{} IS {}NAN", name(*column), not(negated)),
            Self::Like(column, negated, prefix, open) => {
                format!("{} {}LIKE '{prefix}{}'", name(*column), not(negated), if *open { "%" } else { "" })
            }
            Self::Bare(column) => name(*column),
            Self::Not(inner) => format!("NOT ({})", inner.sql()),
            Self::And(parts) => joined(parts, " AND "),
            Self::Or(parts) => joined(parts, " OR "),
        }
    }

    pub(super) fn random(random: &mut Random, columns_used: &[usize], depth: u64) -> Self {
        if depth > 0 && random.chance(55) {
            let parts = |random: &mut Random| {
                (0..2 + random.below(2)).map(|_| Self::random(random, columns_used, depth - 1)).collect()
            };
            return match random.below(3) {
                0 => Self::Not(Box::new(Self::random(random, columns_used, depth - 1))),
                1 => Self::And(parts(random)),
                _ => Self::Or(parts(random)),
            };
        }
        let column = random.one(columns_used);
        let kind = &columns()[column].1;
        let not = random.chance(50);
        match random.below(10) {
            0 => Self::IsNull(column, not),
            1 if matches!(kind, PrimitiveType::Float | PrimitiveType::Double) => Self::IsNan(column, not),
            1 | 2 if *kind == PrimitiveType::String => {
                let S(prefix) = random_literal(random, kind) else { unreachable!() };
                Self::Like(column, not, prefix, random.chance(80))
            }
            1 | 2 if *kind == PrimitiveType::Boolean => Self::Bare(column),
            3 | 4 => {
                let values = (0..1 + random.below(4)).map(|_| random_literal(random, kind)).collect();
                Self::In(column, not, values)
            }
            5 => Self::Between(column, not, random_literal(random, kind), random_literal(random, kind)),
            _ => {
                let operator = random.one(&["=", "<>", "<", "<=", ">", ">="]);
                Self::Compare(column, operator, random_literal(random, kind), random.chance(30))
            }
        }
    }
}

/// A random value of a column; often near to others, sometimes at an end.
pub(super) fn random_value(random: &mut Random, kind: &PrimitiveType) -> RawValue {
    use PrimitiveType as T;
    let near = |random: &mut Random, step: i128| (i128::from(random.below(9)) - 4) * step;
    let ends = |random: &mut Random, min: i128, max: i128| random.one(&[min, min + 1, max - 1, max]);
    let small = i128::from(random.below(3)) - 1;
    match kind {
        T::Boolean => B(random.chance(50)),
        T::Int | T::Long if random.chance(80) => I(near(random, 1)),
        T::Int => I(ends(random, i128::from(i32::MIN), i128::from(i32::MAX))),
        T::Long => I(ends(random, i128::from(i64::MIN), i128::from(i64::MAX))),
        T::Float | T::Double => {
            let extremes = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
            if random.chance(40) { F(random.one(&extremes)) } else { F(near(random, 1) as f64 / 2.0) }
        }
        T::Decimal { .. } => {
            I(if random.chance(90) { near(random, 1) } else { random.one(&[999_999_999, -999_999_999]) })
        }
        T::Date => {
            let step = random.one(&[1, 200]);
            I(near(random, step))
        }
        T::Time => I(i128::from(random.below(5)) * 1_000_000 * 3_600 + i128::from(random.below(2))),
        T::Timestamp | T::Timestamptz => {
            let step = random.one(&[1, 3_600_000_000, 86_400_000_000, 86_400_000_000 * 200]);
            I(near(random, step) + small)
        }
        T::TimestampNs | T::TimestamptzNs => {
            let step = random.one(&[1, 3_600_000_000_000, 86_400_000_000_000, 86_400_000_000_000 * 200]);
            I(near(random, step) + small)
        }
        T::String => S((0..random.below(4)).map(|_| random.one(&["a", "b", "é", "𝄞", "\u{ffff}"])).collect()),
        T::Uuid => {
            let mut bytes = vec![0; 16];
            (bytes[0], bytes[8], bytes[15]) =
                (random.one(&[0, 0x7f, 0x80, 0xff]), random.one(&[0, 0x80]), random.below(2) as u8);
            Y(bytes)
        }
        T::Fixed(length) => Y((0..*length).map(|_| random.one(&[0, 1, 0xff])).collect()),
        T::Binary => Y((0..random.below(4)).map(|_| random.one(&[0, 1, 0xff])).collect()),
    }
}

/// A random literal to compare a column with: like its values, also between them and outside of its range.
fn random_literal(random: &mut Random, kind: &PrimitiveType) -> RawValue {
    match random_value(random, kind) {
        I(value) => {
            let parts = parts(kind);
            let is_number = matches!(kind, PrimitiveType::Int | PrimitiveType::Long | PrimitiveType::Decimal { .. });
            if is_number && random.chance(3) {
                return I(random.one(&[10_i128.pow(25), -10_i128.pow(25)]));
            }
            let aside = if random.chance(25) { random.one(&[-1, 1, parts / 2]) } else { 0 };
            I((value * parts + if parts > 1 { aside } else { 0 }).max(if *kind == PrimitiveType::Time {
                0
            } else {
                i128::MIN
            }))
        }
        Y(mut bytes) if *kind != PrimitiveType::Uuid && random.chance(20) => {
            bytes.truncate(1);
            Y(bytes)
        }
        F(0.0) => F(0.0),
        F(value) if value.is_nan() => F(f64::NAN),
        value => value,
    }
}

fn literal(kind: &PrimitiveType, value: &RawValue) -> String {
    use PrimitiveType as T;
    let moment = |seconds: i128, nanos: i128, format: &str| {
        let moment = DateTime::from_timestamp(i64::try_from(seconds).unwrap(), u32::try_from(nanos).unwrap()).unwrap();
        moment.format(format).to_string()
    };
    const SECOND: i128 = 1_000_000_000;
    match (kind, value) {
        (_, B(value)) => value.to_string(),
        (T::Int | T::Long, I(tenths)) => decimal(*tenths, 1),
        (T::Decimal { scale, .. }, I(parts)) => {
            let number = decimal(*parts, *scale as usize + 1);
            if parts % 3 == 0 { format!("'{number}'") } else { number }
        }
        (T::Date, I(seconds)) if seconds % 86_400 == 0 => moment(*seconds, 0, "DATE '%Y-%m-%d'"),
        (T::Date, I(seconds)) => moment(*seconds, 0, "'%Y-%m-%d %H:%M:%S'"),
        (T::Time, I(nanos)) => moment(nanos / SECOND, nanos % SECOND, "'%H:%M:%S%.9f'"),
        (T::Timestamp | T::TimestampNs, I(nanos)) => {
            moment(nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND), "TIMESTAMP '%Y-%m-%d %H:%M:%S%.9f'")
        }
        (_, I(nanos)) => moment(nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND), "'%Y-%m-%dT%H:%M:%S%.9fZ'"),
        (_, F(value)) if value.is_nan() => "'NaN'".into(),
        (_, F(value)) if value.is_infinite() => if *value > 0.0 { "'Infinity'" } else { "'-infinity'" }.into(),
        (_, F(value)) => format!("{value:?}"),
        (_, S(text)) => format!("'{}'", text.replace('\'', "''")),
        (T::Uuid, Y(bytes)) => format!("'{}'", uuid::Uuid::from_slice(bytes).unwrap()),
        (_, Y(bytes)) => {
            bytes.iter().fold("X'".to_owned(), |mut text, byte| {
                write!(text, "{byte:02X}").unwrap();
                text
            }) + "'"
        }
    }
}

/// A number with so many digits behind the point.
fn decimal(value: i128, places: usize) -> String {
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{}{whole}.{fraction}", if value < 0 { "-" } else { "" })
}
