//! Partition values: as they are written, and in the types that their spec gives them.

use std::collections::HashMap;

use iceberg::spec::{Literal, PartitionSpec, PrimitiveLiteral, PrimitiveType, Schema, Struct};

use super::cursor::{Broken, Cursor};
use super::schema::{AvroType, Field, Logical};

/// How partition tuples are written.
#[derive(Debug)]
pub(super) struct Tuple {
    /// In the order of the file.
    fields: Box<[Value]>,
}

#[derive(Debug)]
struct Value {
    of: AvroType,
    /// Its place in the spec.
    place: usize,
    /// The type that the spec gives it, where the schema has its column.
    kind: Option<PrimitiveType>,
}

impl Tuple {
    /// The tuple with these fields. The error is for one that is not that of the spec.
    ///
    /// Fields are told by their ids: Avro allows letters, digits and `_` in a name only, and writers replace all else.
    pub(super) fn new(fields: Option<&[Field]>, spec: &PartitionSpec, schema: &Schema) -> Result<Self, &'static str> {
        if spec.fields().is_empty() {
            return Ok(Self { fields: Box::default() });
        }
        let fields = fields.ok_or("its Avro schema has no partition tuple")?;
        let another = "its partition tuple is not that of its partition spec";
        let mut places: HashMap<i32, usize> = HashMap::new();
        for (place, field) in spec.fields().iter().enumerate() {
            if places.insert(field.field_id, place).is_some() {
                return Err(another);
            }
        }
        if fields.len() != spec.fields().len() {
            return Err(another);
        }
        let mut values = Vec::with_capacity(fields.len());
        // A tuple whose fields have no ids has them in the order of the spec.
        for (field, of_spec) in fields.iter().zip(spec.fields()) {
            let place = places.remove(&field.id.unwrap_or(of_spec.field_id)).ok_or(another)?;
            let of_spec = &spec.fields()[place];
            let source = schema.field_by_id(of_spec.source_id).map(|source| source.field_type.as_ref());
            let kind = source.and_then(|source| of_spec.transform.result_type(source).ok());
            let kind = kind.and_then(|kind| kind.as_primitive_type().cloned());
            values.push(Value { of: field.of.clone(), place, kind });
        }
        Ok(Self { fields: values.into() })
    }

    /// The values of a tuple, in the order of the spec.
    pub(super) fn read(&self, bytes: &[u8]) -> Result<Struct, Broken> {
        let mut cursor = Cursor::new(bytes);
        let mut values = vec![None; self.fields.len()];
        for field in &self.fields {
            values[field.place] = literal(&field.of, field.kind.as_ref(), &mut cursor)?.map(Literal::Primitive);
        }
        Ok(Struct::from_iter(values))
    }
}

/// A value as it is written, and in the type of its spec where one of these is as good as the other. A manifest that was
/// rewritten after its column was promoted may have either.
fn literal(
    of: &AvroType,
    kind: Option<&PrimitiveType>,
    cursor: &mut Cursor<'_>,
) -> Result<Option<PrimitiveLiteral>, Broken> {
    use PrimitiveLiteral as L;
    use PrimitiveType as T;
    let of = of.branch(cursor)?;
    Ok(Some(match (of, kind) {
        (AvroType::Null, _) => return Ok(None),
        (AvroType::Boolean, _) => L::Boolean(cursor.boolean()?),
        (AvroType::Int, Some(T::Long)) => L::Long(i64::from(cursor.int()?)),
        (AvroType::Int, _) => L::Int(cursor.int()?),
        (AvroType::Long, Some(T::Int | T::Date)) => L::Int(cursor.int()?),
        (AvroType::Long, _) => L::Long(cursor.long()?),
        (AvroType::Float, Some(T::Double)) => L::Double(f64::from(f32::from_le_bytes(cursor.array()?)).into()),
        (AvroType::Float, _) => L::Float(f32::from_le_bytes(cursor.array()?).into()),
        (AvroType::Double, _) => L::Double(f64::from_le_bytes(cursor.array()?).into()),
        (AvroType::Text(_), Some(T::Uuid)) | (AvroType::Text(Logical::Uuid), None) => {
            L::UInt128(uuid::Uuid::parse_str(text(cursor.bytes()?)?).map_err(|_| Broken("a UUID is none"))?.as_u128())
        }
        (AvroType::Text(_), _) => L::String(text(cursor.bytes()?)?.to_owned()),
        (AvroType::Bytes(logical), kind) => bytes(cursor.bytes()?, *logical, kind)?,
        (AvroType::Fixed(length, logical), kind) => bytes(cursor.take(*length)?, *logical, kind)?,
        (AvroType::Enum(_) | AvroType::Union(_) | AvroType::Record(_) | AvroType::Array(_) | AvroType::Map(_), _) => {
            return Err(Broken("a partition value is of a type that the format does not have"));
        }
    }))
}

fn bytes(bytes: &[u8], logical: Logical, kind: Option<&PrimitiveType>) -> Result<PrimitiveLiteral, Broken> {
    use PrimitiveType as T;
    match (kind, logical) {
        (Some(T::Decimal { .. }), _) | (None, Logical::Decimal) => {
            unscaled(bytes).map(PrimitiveLiteral::Int128).ok_or(Broken("a decimal has no bytes, or more than 16"))
        }
        (Some(T::Uuid), _) | (None, Logical::Uuid) => {
            let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| Broken("a UUID has not 16 bytes"))?;
            Ok(PrimitiveLiteral::UInt128(u128::from_be_bytes(bytes)))
        }
        (Some(T::String), _) => Ok(PrimitiveLiteral::String(text(bytes)?.to_owned())),
        _ => Ok(PrimitiveLiteral::Binary(bytes.to_vec())),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Broken> {
    std::str::from_utf8(bytes).map_err(|_| Broken("a text is no UTF-8"))
}

/// Two's complement, big-endian.
fn unscaled(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first()? & 0x80 != 0;
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    let begin = wide.len().checked_sub(bytes.len())?;
    wide[begin..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}
