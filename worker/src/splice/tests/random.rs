//! Random schemas, random versions of them, and random rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array,
    Int64Array, LargeBinaryArray, ListArray, MapArray, StringArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use iceberg::spec::{ListType, Literal, MapType, NestedField, NestedFieldRef, PrimitiveType, StructType, Type};

/// A small generator of random numbers (SplitMix64).
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

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index as u64 + 1) as usize);
        }
    }
}

/// Gives ids one after another.
pub(super) struct Ids(pub(super) i32);

impl Ids {
    pub(super) fn next(&mut self) -> i32 {
        self.0 += 1;
        self.0
    }
}

pub(super) fn primitive(random: &mut Random) -> PrimitiveType {
    match random.below(16) {
        0 => PrimitiveType::Boolean,
        1 | 2 => PrimitiveType::Int,
        3 => PrimitiveType::Long,
        4 => PrimitiveType::Float,
        5 => PrimitiveType::Double,
        6 => PrimitiveType::Decimal { precision: 7, scale: 2 },
        7 => PrimitiveType::Decimal { precision: 15, scale: 3 },
        8 => PrimitiveType::Decimal { precision: 25, scale: 4 },
        9 => PrimitiveType::Date,
        10 => PrimitiveType::Time,
        11 => PrimitiveType::Timestamp,
        12 => PrimitiveType::Uuid,
        13 => PrimitiveType::Fixed(5),
        14 => PrimitiveType::Binary,
        _ => PrimitiveType::String,
    }
}

fn field(random: &mut Random, id: i32, name: String, of: Type) -> NestedFieldRef {
    match random.chance(30) {
        true => NestedField::required(id, name, of).into(),
        false => NestedField::optional(id, name, of).into(),
    }
}

/// A field of any type.
pub(super) fn any_field(random: &mut Random, ids: &mut Ids, name: String, depth: u32) -> NestedFieldRef {
    let id = ids.next();
    let kind = if depth == 0 { 0 } else { random.below(8) };
    let of = match kind {
        5 => {
            let count = 1 + random.below(3);
            let fields = (0..count).map(|place| any_field(random, ids, format!("c{place}"), depth - 1));
            Type::Struct(StructType::new(fields.collect()))
        }
        6 => {
            let element = any_field(random, ids, "element".to_owned(), depth - 1);
            Type::List(ListType { element_field: element })
        }
        7 => {
            let key = NestedField::map_key_element(ids.next(), Type::Primitive(PrimitiveType::String)).into();
            let value = any_field(random, ids, "value".to_owned(), depth - 1);
            Type::Map(MapType { key_field: key, value_field: value })
        }
        _ => Type::Primitive(primitive(random)),
    };
    field(random, id, name, of)
}

/// A later version of a field: promoted, less strict, with other children. The name stays, `rename` apart.
pub(super) fn evolved(random: &mut Random, ids: &mut Ids, field: &NestedField, rename: bool) -> NestedFieldRef {
    let of = match field.field_type.as_ref() {
        Type::Primitive(of) => Type::Primitive(match of {
            PrimitiveType::Int if random.chance(40) => PrimitiveType::Long,
            PrimitiveType::Float if random.chance(40) => PrimitiveType::Double,
            PrimitiveType::Decimal { precision, scale } if random.chance(40) => {
                PrimitiveType::Decimal { precision: precision + 4, scale: *scale }
            }
            of => of.clone(),
        }),
        Type::Struct(of) => {
            let mut fields: Vec<NestedFieldRef> =
                of.fields().iter().map(|field| evolved(random, ids, field, rename)).collect();
            if random.chance(20) && fields.len() > 1 {
                let _ = fields.remove(0);
            }
            if random.chance(20) {
                let mut added = NestedField::optional(ids.next(), "added", Type::Primitive(PrimitiveType::Int));
                if random.chance(30) {
                    added = added.with_initial_default(Literal::int(4));
                }
                fields.push(added.into());
            }
            if random.chance(30) {
                random.shuffle(&mut fields);
            }
            Type::Struct(StructType::new(fields))
        }
        Type::List(of) => Type::List(ListType { element_field: evolved(random, ids, &of.element_field, false) }),
        Type::Map(of) => Type::Map(MapType {
            key_field: Arc::clone(&of.key_field),
            value_field: evolved(random, ids, &of.value_field, false),
        }),
    };
    let name = if rename && random.chance(30) { format!("{}_new", field.name) } else { field.name.clone() };
    let required = if field.required { random.chance(70) } else { random.chance(4) };
    match required {
        true => NestedField::required(field.id, name, of).into(),
        false => NestedField::optional(field.id, name, of).into(),
    }
}

/// The same field with ids of another table.
pub(super) fn renumbered(field: &NestedField, ids: &mut Ids) -> NestedFieldRef {
    let id = ids.next();
    let of = match field.field_type.as_ref() {
        Type::Primitive(of) => Type::Primitive(of.clone()),
        Type::Struct(of) => {
            Type::Struct(StructType::new(of.fields().iter().map(|field| renumbered(field, ids)).collect()))
        }
        Type::List(of) => Type::List(ListType { element_field: renumbered(&of.element_field, ids) }),
        Type::Map(of) => Type::Map(MapType {
            key_field: renumbered(&of.key_field, ids),
            value_field: renumbered(&of.value_field, ids),
        }),
    };
    match field.required {
        true => NestedField::required(id, field.name.clone(), of).into(),
        false => NestedField::optional(id, field.name.clone(), of).into(),
    }
}

/// A value of a type, as metadata has it.
pub(super) fn literal(random: &mut Random, of: &PrimitiveType) -> Literal {
    let number = random.below(100) as i64 - 50;
    match of {
        PrimitiveType::Boolean => Literal::bool(number > 0),
        PrimitiveType::Int => Literal::int(number as i32),
        PrimitiveType::Date => Literal::date(number as i32),
        PrimitiveType::Long => Literal::long(number),
        PrimitiveType::Float if random.chance(20) => Literal::float(f32::NAN),
        PrimitiveType::Float => Literal::float(number as f32),
        PrimitiveType::Double => Literal::double(number as f64),
        PrimitiveType::Decimal { .. } => Literal::decimal(number.into()),
        PrimitiveType::Time => Literal::time(number + 50),
        PrimitiveType::Timestamp | PrimitiveType::Timestamptz => Literal::timestamp(number),
        PrimitiveType::Uuid => Literal::uuid_from_str("01234567-89ab-cdef-0123-456789abcdef").unwrap(),
        PrimitiveType::Fixed(length) => Literal::fixed((0..*length).map(|byte| byte as u8)),
        PrimitiveType::Binary => Literal::binary(vec![7; random.below(20) as usize]),
        _ => Literal::string("text".repeat(random.below(5) as usize)),
    }
}

/// Random values. `distinct` bounds how many there are, so that dictionaries are built, kept or given up.
pub(super) fn array(random: &mut Random, field: &Field, rows: usize, distinct: u64, nulls: u64) -> ArrayRef {
    let validity = |random: &mut Random| -> Option<NullBuffer> {
        let valid: Vec<bool> = (0..rows).map(|_| !random.chance(nulls)).collect();
        field.is_nullable().then(|| NullBuffer::from(valid))
    };
    let valid = validity(random);
    let numbers: Vec<i64> = (0..rows).map(|_| random.below(distinct) as i64 - distinct as i64 / 2).collect();
    macro_rules! numbers {
        ($array:ty, $number:ty) => {
            <$array>::new(numbers.iter().map(|number| *number as $number).collect(), valid)
        };
    }
    let text = |number: &i64| format!("ä{}-{number}", "x".repeat(number.unsigned_abs() as usize % 20));
    let is_valid = |row: usize| valid.as_ref().is_none_or(|valid| valid.is_valid(row));
    match field.data_type() {
        DataType::Boolean => Arc::new(BooleanArray::new(numbers.iter().map(|number| *number > 0).collect(), valid)),
        DataType::Int32 => Arc::new(numbers!(Int32Array, i32)),
        DataType::Int64 => Arc::new(numbers!(Int64Array, i64)),
        DataType::Date32 => Arc::new(numbers!(Date32Array, i32)),
        DataType::Time64(_) => {
            Arc::new(Time64MicrosecondArray::new(numbers.iter().map(|number| number.abs()).collect(), valid))
        }
        DataType::Timestamp(_, zone) => {
            Arc::new(numbers!(TimestampMicrosecondArray, i64).with_timezone_opt(zone.clone()))
        }
        DataType::Float32 => {
            let values = numbers.iter().map(|number| if number % 13 == 5 { f32::NAN } else { *number as f32 / 4.0 });
            Arc::new(Float32Array::new(values.collect(), valid))
        }
        DataType::Float64 => {
            let values = numbers.iter().map(|number| if *number == 0 { -0.0 } else { *number as f64 / 3.0 });
            Arc::new(Float64Array::new(values.collect(), valid))
        }
        DataType::Decimal128(precision, scale) => {
            let values = Decimal128Array::new(numbers.iter().map(|number| i128::from(*number)).collect(), valid);
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Utf8 => {
            let values = numbers.iter().enumerate().map(|(row, number)| is_valid(row).then(|| text(number)));
            Arc::new(StringArray::from_iter(values))
        }
        DataType::LargeBinary => {
            let values =
                numbers.iter().enumerate().map(|(row, number)| is_valid(row).then(|| text(number).into_bytes()));
            Arc::new(LargeBinaryArray::from_iter(values))
        }
        DataType::FixedSizeBinary(length) => {
            let value = |number: &i64| {
                let mut bytes = vec![0xF0; *length as usize];
                bytes[..4].copy_from_slice(&(*number as i32).to_be_bytes());
                bytes
            };
            let values = numbers.iter().flat_map(value).collect::<Vec<u8>>();
            Arc::new(FixedSizeBinaryArray::new(*length, values.into(), valid))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| array(random, field, rows, distinct, nulls)).collect();
            Arc::new(StructArray::new(fields.clone(), columns, valid))
        }
        DataType::List(element) => {
            let lengths: Vec<usize> =
                (0..rows).map(|row| if is_valid(row) { random.below(4) as usize } else { 0 }).collect();
            let values = array(random, element, lengths.iter().sum(), distinct, nulls);
            Arc::new(ListArray::new(Arc::clone(element), OffsetBuffer::from_lengths(lengths), values, valid))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else { panic!("a map without entries") };
            let lengths: Vec<usize> =
                (0..rows).map(|row| if is_valid(row) { random.below(3) as usize } else { 0 }).collect();
            let total = lengths.iter().sum();
            let columns = fields.iter().map(|field| array(random, field, total, distinct, nulls)).collect();
            let pairs = StructArray::try_new_with_length(fields.clone(), columns, None, total).unwrap();
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, valid, *sorted))
        }
        other => panic!("no values of {other}"),
    }
}
