//! Partition values: equality across the types that a partition field can go through, the summaries of a manifest, and
//! the constants that identity partitions give to their columns.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{
    FieldSummary, Literal, NestedFieldRef, PartitionSpec, PrimitiveLiteral, PrimitiveType, Schema, Struct, StructType,
    TableMetadata, Transform, Type,
};
use iceferry_common::model::Constant;

/// One value of a partition tuple. Int and long are one, as are float and double: manifests of one spec may have been
/// written before and after the column was widened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    /// A moment of a column that held dates before.
    Moment {
        at: i128,
        /// What a day has of its units.
        per_day: i64,
    },
    /// The bits of the double; every NaN is one value.
    Double(u64),
    Bytes(Vec<u8>),
    Wide(i128),
    Uuid(u128),
}

/// A partition: the spec and its tuple. All unpartitioned files of a spec are in one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Partition {
    pub(super) spec_id: i32,
    pub(super) values: Box<[Value]>,
}

/// Partition fields whose columns held dates and hold timestamps now (spec, schema evolution): a date and the timestamp of
/// its midnight are one value of them.
#[derive(Debug, Default)]
pub(super) struct Promotions(HashMap<i32, Box<[Option<i64>]>>);

impl Promotions {
    /// Those of all specs of a table.
    pub(super) fn of(table: &TableMetadata) -> Self {
        let per_day = |source_id: i32| {
            let types = table.schemas_iter().filter_map(|schema| schema.field_by_id(source_id));
            let types: Vec<&PrimitiveType> = types.filter_map(|field| field.field_type.as_primitive_type()).collect();
            let was_date = types.contains(&&PrimitiveType::Date);
            types.into_iter().find_map(units_per_day).filter(|_| was_date)
        };
        let of_spec = |spec: &PartitionSpec| -> Box<[Option<i64>]> {
            let identity = |transform| transform == Transform::Identity;
            spec.fields().iter().map(|field| per_day(field.source_id).filter(|_| identity(field.transform))).collect()
        };
        Self(table.partition_specs_iter().map(|spec| (spec.spec_id(), of_spec(spec))).collect())
    }

    /// For each field of a spec what a day has of its units now; shorter where nothing changed.
    pub(super) fn of_spec(&self, spec_id: i32) -> &[Option<i64>] {
        self.0.get(&spec_id).map_or(&[], AsRef::as_ref)
    }
}

/// What a day has of the units of a type that dates can be promoted to.
fn units_per_day(of: &PrimitiveType) -> Option<i64> {
    match of {
        PrimitiveType::Timestamp => Some(86_400 * 1_000_000),
        PrimitiveType::TimestampNs => Some(86_400 * 1_000_000_000),
        _ => None,
    }
}

impl Partition {
    /// The partition of a tuple; `promoted` is what [`Promotions`] has for its spec.
    pub(super) fn new(spec_id: i32, tuple: &Struct, promoted: &[Option<i64>]) -> Self {
        let promoted = promoted.iter().copied().chain(std::iter::repeat(None));
        Self { spec_id, values: tuple.iter().zip(promoted).map(|(value, per_day)| Value::of(value, per_day)).collect() }
    }

    /// Whether a manifest with these summaries may hold a file of this partition; the specs are equal.
    pub(super) fn may_be_in(&self, summaries: Option<&[FieldSummary]>) -> bool {
        let Some(summaries) = summaries else { return true };
        if summaries.len() != self.values.len() {
            return true;
        }
        self.values.iter().zip(summaries).all(|(value, summary)| value.may_be_in(summary))
    }
}

impl Value {
    fn of(literal: Option<&Literal>, per_day: Option<i64>) -> Self {
        let Some(Literal::Primitive(literal)) = literal else { return Self::Null };
        match (literal, per_day) {
            (PrimitiveLiteral::Int(days), Some(per_day)) => return Self::midnight(*days, per_day),
            (PrimitiveLiteral::Long(at), Some(per_day)) => return Self::Moment { at: i128::from(*at), per_day },
            _ => {}
        }
        match literal {
            PrimitiveLiteral::Boolean(value) => Self::Boolean(*value),
            PrimitiveLiteral::Int(value) => Self::Integer(i64::from(*value)),
            PrimitiveLiteral::Long(value) => Self::Integer(*value),
            PrimitiveLiteral::Float(value) => Self::double(f64::from(value.0)),
            PrimitiveLiteral::Double(value) => Self::double(value.0),
            PrimitiveLiteral::String(value) => Self::Bytes(value.as_bytes().to_vec()),
            PrimitiveLiteral::Binary(value) => Self::Bytes(value.clone()),
            PrimitiveLiteral::Int128(value) => Self::Wide(*value),
            PrimitiveLiteral::UInt128(value) => Self::Uuid(*value),
            // Not values of a table: they stand for the ends of a range in expressions.
            PrimitiveLiteral::AboveMax => Self::Integer(i64::MAX),
            PrimitiveLiteral::BelowMin => Self::Integer(i64::MIN),
        }
    }

    fn midnight(days: i32, per_day: i64) -> Self {
        Self::Moment { at: i128::from(days) * i128::from(per_day), per_day }
    }

    fn double(value: f64) -> Self {
        Self::Double(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
    }

    fn may_be_in(&self, summary: &FieldSummary) -> bool {
        let within = |lower_fits: bool, upper_fits: bool| lower_fits && upper_fits;
        match self {
            Self::Null => summary.contains_null,
            Self::Integer(value) => within(
                summary.lower_bound.as_ref().and_then(|bytes| integer(bytes)).is_none_or(|lower| lower <= *value),
                summary.upper_bound.as_ref().and_then(|bytes| integer(bytes)).is_none_or(|upper| *value <= upper),
            ),
            Self::Moment { at, per_day } => {
                // A manifest from before the promotion has days.
                let moment = |bytes: &[u8]| match bytes.len() {
                    4 => integer(bytes).map(|days| i128::from(days) * i128::from(*per_day)),
                    _ => integer(bytes).map(i128::from),
                };
                within(
                    summary.lower_bound.as_ref().and_then(|bytes| moment(bytes)).is_none_or(|lower| lower <= *at),
                    summary.upper_bound.as_ref().and_then(|bytes| moment(bytes)).is_none_or(|upper| *at <= upper),
                )
            }
            Self::Bytes(value) => within(
                summary.lower_bound.as_ref().is_none_or(|lower| lower.as_slice() <= value.as_slice()),
                summary
                    .upper_bound
                    .as_ref()
                    .is_none_or(|upper| value.as_slice() <= upper.as_slice() || value.starts_with(upper)),
            ),
            // Their summaries seldom exclude anything, and their order has traps (NaN, signed zero, uuid).
            Self::Boolean(_) | Self::Double(_) | Self::Wide(_) | Self::Uuid(_) => true,
        }
    }
}

fn integer(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|bytes| i64::from(i32::from_le_bytes(bytes))),
        8 => bytes.try_into().ok().map(i64::from_le_bytes),
        _ => None,
    }
}

/// A file's partition values by partition field id, in the types of `partition_type`, which has the fields of all specs.
/// The error names the field that cannot be widened.
pub(super) fn values(
    spec: &PartitionSpec,
    tuple: &Struct,
    partition_type: &StructType,
) -> Result<Vec<Constant>, String> {
    let mut values = Vec::new();
    for (field, value) in spec.fields().iter().zip(tuple.iter()) {
        let Some(wanted) = partition_type.field_by_id(field.field_id) else { continue };
        let unreadable =
            || format!("the partition value of field {:?} cannot be read as {}", field.name, wanted.field_type);
        let value = match value {
            None => None,
            Some(Literal::Primitive(literal)) => Some(widened(literal, &wanted.field_type).ok_or_else(unreadable)?),
            Some(_) => return Err(unreadable()),
        };
        values.push(Constant { field_id: field.field_id, value });
    }
    Ok(values)
}

/// The columns that constants are given in the types of, by id.
#[derive(Debug)]
pub(super) struct Columns(HashMap<i32, NestedFieldRef>);

impl Columns {
    /// Those of the read schema, and of all other columns that a table has or had the newest definition: equality deletes
    /// may be keyed on columns that are not read.
    pub(super) fn of(table: &TableMetadata, read_schema: &Schema) -> Self {
        let mut schemas: Vec<&Schema> = table.schemas_iter().map(AsRef::as_ref).collect();
        schemas.sort_by_key(|schema| (schema.schema_id() == table.current_schema_id(), schema.schema_id()));
        schemas.push(read_schema);
        let mut columns = HashMap::new();
        schemas.into_iter().for_each(|schema| add_columns(schema.as_struct(), &mut columns));
        Self(columns)
    }

    /// Why equality deletes cannot be keyed on a field; `None` when they can.
    pub(super) fn key_problem(&self, field_id: i32) -> Option<String> {
        match self.0.get(&field_id) {
            Some(field) if field.field_type.is_primitive() => None,
            Some(field) => Some(format!("it deletes by column {:?}, which is nested", field.name)),
            None => Some(format!("it deletes by field {field_id}, which is in a list or map or in no schema")),
        }
    }
}

fn add_columns(fields: &StructType, columns: &mut HashMap<i32, NestedFieldRef>) {
    for field in fields.fields() {
        columns.insert(field.id, Arc::clone(field));
        if let Type::Struct(inner) = field.field_type.as_ref() {
            add_columns(inner, columns);
        }
    }
}

/// The constants that the identity partitions of a file give to columns. The tuple's literals have the types of the time of
/// writing; the error names the column that cannot be widened.
pub(super) fn constants(spec: &PartitionSpec, tuple: &Struct, columns: &Columns) -> Result<Vec<Constant>, String> {
    let mut constants = Vec::new();
    for (field, value) in spec.fields().iter().zip(tuple.iter()) {
        if field.transform != Transform::Identity {
            continue;
        }
        let Some(column) = columns.0.get(&field.source_id) else { continue };
        let value = match value {
            None => None,
            Some(Literal::Primitive(literal)) => Some(widened(literal, &column.field_type).ok_or_else(|| {
                format!(
                    "the partition value of column {:?} cannot be read as {}; rewrite the files or drop the column",
                    column.name, column.field_type
                )
            })?),
            Some(_) => return Err(format!("the partition value of column {:?} is not a primitive", column.name)),
        };
        constants.push(Constant { field_id: field.source_id, value });
    }
    Ok(constants)
}

/// The single-value serialization of a literal in the type of a column that may have been widened since.
fn widened(literal: &PrimitiveLiteral, column: &Type) -> Option<Vec<u8>> {
    use PrimitiveLiteral as L;
    use PrimitiveType as T;
    let Type::Primitive(column) = column else { return None };
    match (literal, column) {
        (L::Boolean(value), T::Boolean) => Some(vec![u8::from(*value)]),
        (L::Int(value), T::Int | T::Date) => Some(value.to_le_bytes().to_vec()),
        (L::Int(value), T::Long) => Some(i64::from(*value).to_le_bytes().to_vec()),
        (L::Int(days), T::Timestamp | T::TimestampNs) => {
            let midnight = i64::from(*days).checked_mul(units_per_day(column)?)?;
            Some(midnight.to_le_bytes().to_vec())
        }
        (L::Long(value), T::Long | T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs) => {
            Some(value.to_le_bytes().to_vec())
        }
        (L::Float(value), T::Float) => Some(value.0.to_le_bytes().to_vec()),
        (L::Float(value), T::Double) => Some(f64::from(value.0).to_le_bytes().to_vec()),
        (L::Double(value), T::Double) => Some(value.0.to_le_bytes().to_vec()),
        (L::String(value), T::String) => Some(value.as_bytes().to_vec()),
        (L::Binary(value), T::Binary) => Some(value.clone()),
        (L::Binary(value), T::Fixed(length)) if value.len() as u64 == *length => Some(value.clone()),
        (L::Int128(value), T::Decimal { .. }) => Some(shortest(*value)),
        (L::UInt128(value), T::Uuid) => Some(value.to_be_bytes().to_vec()),
        _ => None,
    }
}

/// Two's complement, big-endian, without leading bytes that say nothing.
fn shortest(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let mut first = 0;
    while first < bytes.len() - 1 && bytes[first] == sign && (bytes[first + 1] & 0x80 != 0) == (value < 0) {
        first += 1;
    }
    bytes[first..].to_vec()
}

#[cfg(test)]
mod tests {
    use iceberg::spec::NestedField;

    use super::*;

    fn schema(of: PrimitiveType) -> Schema {
        Schema::builder().with_fields([Arc::new(NestedField::optional(1, "c", Type::Primitive(of)))]).build().unwrap()
    }

    fn columns(schema: &Schema) -> Columns {
        let mut columns = HashMap::new();
        add_columns(schema.as_struct(), &mut columns);
        Columns(columns)
    }

    fn identity(schema: &Schema) -> PartitionSpec {
        PartitionSpec::builder(schema.clone())
            .add_partition_field("c", "c", Transform::Identity)
            .unwrap()
            .build()
            .unwrap()
    }

    #[test]
    fn a_partition_value_is_read_as_written_and_then_widened() {
        use PrimitiveType as T;
        let cases = [
            (T::Int, Literal::int(-2), T::Long, Some((-2i64).to_le_bytes().to_vec())),
            (T::Int, Literal::int(7), T::Int, Some(7i32.to_le_bytes().to_vec())),
            (T::Float, Literal::float(0.5f32), T::Double, Some(0.5f64.to_le_bytes().to_vec())),
            (T::String, Literal::string("ü"), T::String, Some("ü".into())),
            (T::Long, Literal::long(7), T::Int, None),
            (T::Date, Literal::date(-1), T::Timestamp, Some((-86_400_000_000i64).to_le_bytes().to_vec())),
            (T::Date, Literal::date(1), T::TimestampNs, Some(86_400_000_000_000i64.to_le_bytes().to_vec())),
            (T::Date, Literal::date(i32::MAX), T::TimestampNs, None),
            (T::Date, Literal::date(1), T::Timestamptz, None),
        ];
        for (written, value, read, bytes) in cases {
            let spec = identity(&schema(written.clone()));
            let tuple = Struct::from_iter([Some(value)]);
            let constants = constants(&spec, &tuple, &columns(&schema(read.clone())));
            match bytes {
                Some(bytes) => {
                    assert_eq!(constants, Ok(vec![Constant { field_id: 1, value: Some(bytes) }]), "{written} {read}");
                }
                None => assert!(constants.unwrap_err().contains("\"c\""), "{written} {read}"),
            }
        }
        let spec = identity(&schema(T::Int));
        let null = Struct::from_iter([None]);
        assert_eq!(
            constants(&spec, &null, &columns(&schema(T::Long))),
            Ok(vec![Constant { field_id: 1, value: None }])
        );
    }

    #[test]
    fn decimals_take_the_fewest_bytes_that_keep_the_sign() {
        let cases: [(i128, &[u8]); 7] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0, 0x80]),
            (-1, &[0xff]),
            (-128, &[0x80]),
            (-129, &[0xff, 0x7f]),
            (1234, &[0x04, 0xd2]),
        ];
        for (value, bytes) in cases {
            assert_eq!(shortest(value), bytes, "{value}");
        }
    }

    #[test]
    fn a_partition_is_equal_before_and_after_widening() {
        let partition = |literal| Partition::new(3, &Struct::from_iter([Some(literal)]), &[]);
        assert_eq!(partition(Literal::int(5)), partition(Literal::long(5)));
        assert_eq!(partition(Literal::float(f32::NAN)), partition(Literal::double(f64::NAN)));
        assert_ne!(partition(Literal::int(0)), Partition::new(3, &Struct::from_iter([None]), &[]));
        assert_ne!(partition(Literal::int(5)), Partition::new(4, &Struct::from_iter([Some(Literal::int(5))]), &[]));
    }

    #[test]
    fn a_date_and_its_midnight_are_one_partition_after_a_promotion() {
        for per_day in [86_400_000_000i64, 86_400_000_000_000] {
            let partition = |literal| Partition::new(3, &Struct::from_iter([Some(literal)]), &[Some(per_day)]);
            let day = partition(Literal::date(-3));
            assert_eq!(day, partition(Literal::long(-3 * per_day)));
            assert_ne!(day, partition(Literal::long(-3)));
            let summary = |lower: Vec<u8>, upper: Vec<u8>| FieldSummary {
                contains_null: false,
                contains_nan: None,
                lower_bound: Some(lower.into()),
                upper_bound: Some(upper.into()),
            };
            let days = |days: i32| days.to_le_bytes().to_vec();
            let moment = |days: i64| (days * per_day).to_le_bytes().to_vec();
            assert!(day.may_be_in(Some(&[summary(days(-5), days(-3))])));
            assert!(!day.may_be_in(Some(&[summary(days(-2), days(9))])));
            assert!(day.may_be_in(Some(&[summary(moment(-3), moment(1))])));
            assert!(!day.may_be_in(Some(&[summary(moment(-9), moment(-4))])));
        }
    }

    #[test]
    fn summaries_exclude_only_what_they_certainly_exclude() {
        let summary = |lower: Option<Vec<u8>>, upper: Option<Vec<u8>>, contains_null| FieldSummary {
            contains_null,
            contains_nan: None,
            lower_bound: lower.map(Into::into),
            upper_bound: upper.map(Into::into),
        };
        let partition = |value: Option<Literal>| Partition::new(0, &Struct::from_iter([value]), &[]);
        let of = |partition: &Partition, summary: FieldSummary| partition.may_be_in(Some(&[summary]));
        let five = partition(Some(Literal::long(5)));
        let int = |value: i32| Some(value.to_le_bytes().to_vec());
        assert!(of(&five, summary(int(1), int(5), false)), "written as int, asked as long");
        assert!(!of(&five, summary(int(6), int(9), true)));
        assert!(!of(&five, summary(int(1), int(4), true)));
        assert!(of(&five, summary(None, None, false)));
        assert!(of(&partition(None), summary(int(1), int(4), true)));
        assert!(!of(&partition(None), summary(int(1), int(4), false)));
        assert!(of(
            &partition(Some(Literal::string("abc"))),
            summary(Some(b"ab".to_vec()), Some(b"ab".to_vec()), false)
        ));
        assert!(five.may_be_in(None));
    }
}
