//! Random conditions over random rows against the plain model. `ICEFERRY_SEED` repeats a run, `ICEFERRY_CASES` makes it
//! longer.

use std::cmp::Ordering;

use iceberg::spec::{
    Datum, FieldSummary, Literal, PartitionSpec, PrimitiveLiteral, Struct, Transform, UnboundPartitionField,
};

use super::super::{ColumnStatistics, Statistics};
use super::model::{Condition, Random, cases, random_value, seed};
use super::partitions::transformed;
use super::*;

/// Rows of which some columns may hold one value or null only, so that statistics say something.
fn random_rows(random: &mut Random) -> Vec<Vec<Raw>> {
    let columns = columns();
    let styles: Vec<_> = columns.iter().map(|(_, kind)| (random.below(4), random_value(random, kind))).collect();
    let count = random.one(&[0, 1, 2, 3, 8, 8, 30]);
    (0..count)
        .map(|_| {
            let value = |((_, kind), (style, fixed)): (&(&str, PrimitiveType), &(u64, RawValue))| match style {
                0 => Some(fixed.clone()),
                1 if random.chance(90) => None,
                2 if random.chance(30) => None,
                _ => Some(random_value(random, kind)),
            };
            columns.iter().zip(&styles).map(value).collect()
        })
        .collect()
}

fn random_condition(random: &mut Random) -> Condition {
    let mut used: Vec<usize> =
        (0..1 + random.below(3)).map(|_| random.below(columns().len() as u64) as usize).collect();
    if random.chance(10) {
        used = (0..columns().len()).collect();
    }
    let depth = random.below(4);
    Condition::random(random, &used, depth)
}

fn model(condition: &Condition, rows: &[Vec<Raw>]) -> Vec<bool> {
    rows.iter().map(|row| condition.of(row) == Some(true)).collect()
}

fn parsed(condition: &Condition) -> BoundFilter {
    let text = condition.sql();
    let filter = Filter::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.bind(&schema()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn random_conditions_keep_the_rows_that_the_plain_model_keeps() {
    let seed = seed();
    for case in 0..cases(5_000) {
        let mut random = Random(seed.wrapping_add(case));
        let rows = random_rows(&mut random);
        let condition = random_condition(&mut random);
        let found = matching(&parsed(&condition), &rows);
        assert_eq!(found, model(&condition, &rows), "seed {}: {}\n{rows:?}", seed.wrapping_add(case), condition.sql());
    }
}

pub(super) fn order(left: &RawValue, right: &RawValue) -> Ordering {
    match (left, right) {
        (B(left), B(right)) => left.cmp(right),
        (I(left), I(right)) => left.cmp(right),
        (F(left), F(right)) => left.partial_cmp(right).unwrap(),
        (S(left), S(right)) => left.cmp(right),
        (Y(left), Y(right)) => left.cmp(right),
        _ => unreachable!(),
    }
}

fn is_nan(value: &RawValue) -> bool {
    matches!(value, F(value) if value.is_nan())
}

/// The single-value serialization.
fn serialized(kind: &PrimitiveType, value: &RawValue) -> Vec<u8> {
    match (kind, value) {
        (_, B(value)) => vec![u8::from(*value)],
        (PrimitiveType::Int | PrimitiveType::Date, I(value)) => i32::try_from(*value).unwrap().to_le_bytes().to_vec(),
        (PrimitiveType::Decimal { .. }, I(value)) => value.to_be_bytes().to_vec(),
        (_, I(value)) => i64::try_from(*value).unwrap().to_le_bytes().to_vec(),
        (PrimitiveType::Float, F(value)) => (*value as f32).to_le_bytes().to_vec(),
        (_, F(value)) => value.to_le_bytes().to_vec(),
        (_, S(value)) => value.as_bytes().to_vec(),
        (_, Y(value)) => value.clone(),
    }
}

/// The type that a column may have had when its file was written.
fn earlier(kind: &PrimitiveType, values: &[&RawValue]) -> PrimitiveType {
    let fits = |value: &&RawValue| match value {
        I(value) => i32::try_from(*value).is_ok(),
        F(value) => f64::from(*value as f32) == *value,
        _ => false,
    };
    match kind {
        PrimitiveType::Long if values.iter().all(fits) => PrimitiveType::Int,
        PrimitiveType::Double if values.iter().all(fits) => PrimitiveType::Float,
        kind => kind.clone(),
    }
}

struct Known(HashMap<i32, ColumnStatistics>);

impl Statistics for Known {
    fn of(&self, field_id: i32) -> ColumnStatistics {
        self.0.get(&field_id).cloned().unwrap_or_default()
    }
}

/// True statistics of the rows, with some left out and some bounds cut.
fn random_statistics(random: &mut Random, rows: &[Vec<Raw>]) -> Known {
    let mut known = HashMap::new();
    for (column, (_, kind)) in columns().iter().enumerate() {
        if random.chance(15) {
            continue;
        }
        let values: Vec<&RawValue> = rows.iter().filter_map(|row| row[column].as_ref()).collect();
        let nans = values.iter().filter(|value| is_nan(value)).count();
        let nulls = rows.len() - values.len();
        let mut ordinary: Vec<&RawValue> = values.into_iter().filter(|value| !is_nan(value)).collect();
        ordinary.sort_by(|left, right| order(left, right));
        let written = if random.chance(30) { earlier(kind, &ordinary) } else { kind.clone() };
        let mut bounds = [ordinary.first().copied(), ordinary.last().copied()]
            .map(|bound| bound.map(|bound| serialized(&written, bound)));
        let mut is_exact = true;
        if matches!(kind, PrimitiveType::String | PrimitiveType::Binary) && random.chance(60) {
            is_exact = false;
            for bound in bounds.iter_mut().flatten() {
                let cut = match kind {
                    PrimitiveType::String => {
                        String::from_utf8(bound.clone()).unwrap().chars().take(1).collect::<String>().into_bytes()
                    }
                    _ => bound[..bound.len().min(1)].to_vec(),
                };
                *bound = cut;
            }
            // Some writers make the cut upper bound larger, as the specification has it; others do not.
            if random.chance(50)
                && let Some(upper) = &mut bounds[1]
                && *kind == PrimitiveType::String
            {
                upper.extend("\u{10ffff}".as_bytes());
            }
        }
        let datum = |bytes: &Vec<u8>| Datum::try_from_bytes(bytes, written.clone()).unwrap();
        let [lower, upper] = &bounds;
        let kept = |random: &mut Random, count: usize| random.chance(85).then_some(count as u64);
        let statistics = ColumnStatistics {
            lower: lower.as_ref().filter(|_| random.chance(90)).map(datum),
            upper: upper.as_ref().filter(|_| random.chance(90)).map(datum),
            is_exact,
            null_count: kept(random, nulls),
            nan_count: kept(random, nans),
            value_count: kept(random, rows.len()),
        };
        known.insert(id(column), statistics);
    }
    Known(known)
}

#[test]
fn statistics_never_lose_a_row_and_never_let_one_through() {
    let seed = seed();
    let total = cases(20_000);
    let (mut excluded, mut included, mut none, mut all) = (0, 0, 0, 0);
    for case in 0..total {
        let seed = seed.wrapping_add(case);
        let mut random = Random(seed);
        let rows = random_rows(&mut random);
        let condition = random_condition(&mut random);
        let filter = parsed(&condition);
        let statistics = random_statistics(&mut random, &rows);
        let matches = model(&condition, &rows);
        let what = || format!("seed {seed}: {}\n{rows:?}\n{:?}", condition.sql(), statistics.0);
        if !filter.may_match(&statistics) {
            assert!(!matches.contains(&true), "{}", what());
            excluded += 1;
        }
        if filter.must_match(&statistics) {
            assert!(!matches.contains(&false), "{}", what());
            included += 1;
        }
        none += u64::from(!matches.contains(&true));
        all += u64::from(!matches.contains(&false));
    }
    println!("of {total} cases {none} match no row and {excluded} of them are told; {all} all rows and {included}");
    assert!(total < 1_000 || (excluded * 4 > none && included * 4 > all), "statistics must be of use");
}

/// A transform that fits a type.
fn random_transform(random: &mut Random, kind: &PrimitiveType) -> Transform {
    use PrimitiveType as T;
    let width = random.one(&[1, 2, 3, 10]);
    let mut fitting = vec![Transform::Identity, Transform::Void];
    match kind {
        T::Boolean | T::Float | T::Double => {}
        T::Int | T::Long | T::Decimal { .. } | T::String | T::Binary => {
            fitting.extend([Transform::Truncate(width), Transform::Truncate(width), Transform::Bucket(4)]);
        }
        T::Date => fitting.extend([Transform::Year, Transform::Month, Transform::Day, Transform::Bucket(4)]),
        T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs => {
            fitting.extend([Transform::Year, Transform::Month, Transform::Day, Transform::Hour, Transform::Bucket(4)]);
        }
        T::Time | T::Uuid | T::Fixed(_) => fitting.push(Transform::Bucket(4)),
    }
    random.one(&fitting)
}

fn random_spec(random: &mut Random) -> (PartitionSpec, Vec<(usize, Transform)>) {
    let mut chosen: Vec<(usize, Transform)> = Vec::new();
    let fields: Vec<UnboundPartitionField> = (0..columns().len())
        .filter_map(|column| {
            if !random.chance(50) {
                return None;
            }
            let transform = random_transform(random, &columns()[column].1);
            chosen.push((column, transform));
            let name = format!("p{column}");
            Some(UnboundPartitionField { source_id: id(column), field_id: None, name, transform })
        })
        .collect();
    let spec = PartitionSpec::builder(schema()).add_unbound_fields(fields).unwrap().build().unwrap();
    (spec, chosen)
}

fn partition(random: &mut Random, fields: &[(usize, Transform)], row: &[Raw]) -> Vec<Option<PrimitiveLiteral>> {
    let careless = random.chance(30);
    let value = |(column, transform): &(usize, Transform)| {
        let value = row[*column].as_ref()?;
        transformed(*transform, &columns()[*column].1, value, careless)
    };
    fields.iter().map(value).collect()
}

fn tuple(values: &[Option<PrimitiveLiteral>]) -> Struct {
    values.iter().map(|value| value.clone().map(Literal::Primitive)).collect()
}

#[test]
fn partitions_never_lose_a_row() {
    let seed = seed();
    let total = cases(10_000);
    let (mut excluded, mut none) = (0, 0);
    for case in 0..total {
        let seed = seed.wrapping_add(case);
        let mut random = Random(seed);
        let rows = random_rows(&mut random);
        let condition = random_condition(&mut random);
        let (spec, fields) = random_spec(&mut random);
        let filter = parsed(&condition).project(&spec);
        for row in &rows {
            let values = partition(&mut random, &fields, row);
            let matches = condition.of(row) == Some(true);
            let may_match = filter.may_match_partition(&tuple(&values));
            assert!(may_match || !matches, "seed {seed}: {}\n{fields:?} {values:?}\n{row:?}", condition.sql());
            excluded += u64::from(!may_match);
            none += u64::from(!matches);
        }
    }
    println!("of {none} rows that do not match {excluded} are told by their partition");
    assert!(total < 1_000 || excluded * 10 > none, "partitions must be of use");
}

/// The summary that a manifest has of the values of one field.
fn summary(values: &[Option<&PrimitiveLiteral>], kind: &PrimitiveType) -> FieldSummary {
    let raw = |value: &PrimitiveLiteral| match value {
        PrimitiveLiteral::Boolean(value) => B(*value),
        PrimitiveLiteral::Int(value) => I(i128::from(*value)),
        PrimitiveLiteral::Long(value) => I(i128::from(*value)),
        PrimitiveLiteral::Int128(value) => I(*value),
        PrimitiveLiteral::Float(value) => F(f64::from(value.0)),
        PrimitiveLiteral::Double(value) => F(value.0),
        PrimitiveLiteral::String(value) => S(value.clone()),
        PrimitiveLiteral::Binary(value) => Y(value.clone()),
        PrimitiveLiteral::UInt128(value) => Y(value.to_be_bytes().to_vec()),
        PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin => unreachable!(),
    };
    let present: Vec<RawValue> = values.iter().flatten().map(|value| raw(value)).collect();
    let mut ordinary: Vec<&RawValue> = present.iter().filter(|value| !is_nan(value)).collect();
    ordinary.sort_by(|left, right| match (kind, left, right) {
        // As Java orders UUIDs: two signed halves.
        (PrimitiveType::Uuid, Y(left), Y(right)) => {
            let halves = |bytes: &[u8]| {
                let half = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
                (half(0), half(8))
            };
            halves(left).cmp(&halves(right))
        }
        _ => order(left, right),
    });
    let bound = |value: Option<&&RawValue>| value.map(|value| serialized(kind, value).into());
    FieldSummary {
        contains_null: values.contains(&None),
        contains_nan: matches!(kind, PrimitiveType::Float | PrimitiveType::Double).then(|| present.iter().any(is_nan)),
        lower_bound: bound(ordinary.first()),
        upper_bound: bound(ordinary.last()),
    }
}

#[test]
fn summaries_of_manifests_never_lose_a_row() {
    let seed = seed();
    let total = cases(10_000);
    let (mut excluded, mut none) = (0, 0);
    for case in 0..total {
        let seed = seed.wrapping_add(case);
        let mut random = Random(seed);
        let mut rows = random_rows(&mut random);
        rows.truncate(4);
        if rows.is_empty() {
            continue;
        }
        let condition = random_condition(&mut random);
        let (spec, fields) = random_spec(&mut random);
        let filter = parsed(&condition).project(&spec);
        let values: Vec<_> = rows.iter().map(|row| partition(&mut random, &fields, row)).collect();
        let summaries: Vec<FieldSummary> = fields
            .iter()
            .enumerate()
            .map(|(at, (column, transform))| {
                let source = &columns()[*column].1;
                let kind = match transform {
                    Transform::Identity | Transform::Truncate(_) | Transform::Void => source.clone(),
                    _ => PrimitiveType::Int,
                };
                let values: Vec<_> = values.iter().map(|values| values[at].as_ref()).collect();
                summary(&values, &kind)
            })
            .collect();
        let matches = model(&condition, &rows).contains(&true);
        let may_match = filter.may_match_summaries(&summaries);
        assert!(may_match || !matches, "seed {seed}: {}\n{fields:?} {summaries:?}\n{rows:?}", condition.sql());
        excluded += u64::from(!may_match);
        none += u64::from(!matches);
    }
    println!("of {none} manifests without a row that matches {excluded} are told by their summaries");
    assert!(total < 1_000 || excluded * 10 > none, "summaries must be of use");
}
