//! The types of an Avro file, as its header tells them, and how their values are passed over.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::cursor::{Broken, Cursor, Part};

/// Types inside of types at most.
const DEPTH_MAX: usize = 64;
/// Types of a schema at most, those that stand in it by their name counted each time.
const TYPES_MAX: usize = 20_000;
/// Items that take no bytes, of one array at most: nothing else bounds them.
const EMPTY_ITEMS_MAX: u64 = 1 << 16;

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AvroType {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes(Logical),
    Text(Logical),
    Fixed(usize, Logical),
    /// With so many symbols.
    Enum(usize),
    Union(Vec<AvroType>),
    Record(Vec<Field>),
    Array(Box<AvroType>),
    /// Keys are texts.
    Map(Box<AvroType>),
}

/// What bytes or a text stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logical {
    None,
    Decimal,
    Uuid,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Iceberg's id of it.
    pub(super) id: Option<i32>,
    pub(super) of: AvroType,
}

impl AvroType {
    /// Passes over a value.
    pub(super) fn skip(&self, cursor: &mut Cursor<'_>) -> Result<(), Broken> {
        match self {
            Self::Null => Ok(()),
            Self::Boolean => cursor.take(1).map(drop),
            Self::Int | Self::Long => cursor.skip_long(),
            Self::Float => cursor.take(4).map(drop),
            Self::Double => cursor.take(8).map(drop),
            Self::Bytes(_) | Self::Text(_) => cursor.bytes().map(drop),
            Self::Fixed(length, _) => cursor.take(*length).map(drop),
            Self::Enum(symbols) => cursor.index(*symbols).map(drop),
            Self::Union(branches) => branches[cursor.index(branches.len())?].skip(cursor),
            Self::Record(fields) => fields.iter().try_for_each(|field| field.of.skip(cursor)),
            Self::Array(item) => skip_parts(cursor, item.is_empty(), |cursor| item.skip(cursor)),
            Self::Map(value) => skip_parts(cursor, false, |cursor| {
                cursor.bytes()?;
                value.skip(cursor)
            }),
        }
    }

    /// Whether a value takes no bytes at all.
    fn is_empty(&self) -> bool {
        match self {
            Self::Null | Self::Fixed(0, _) => true,
            Self::Record(fields) => fields.iter().all(|field| field.of.is_empty()),
            _ => false,
        }
    }

    /// Whether a value is a number, or null where the type is a union.
    pub(super) fn is_number(&self) -> bool {
        self.all_but_null(&|of| matches!(of, Self::Int | Self::Long))
    }

    /// The same for bytes.
    pub(super) fn is_bytes(&self) -> bool {
        self.all_but_null(&|of| matches!(of, Self::Bytes(_) | Self::Text(_) | Self::Fixed(..)))
    }

    /// The same for an array whose items are such.
    pub(super) fn is_array_of(&self, is_item: &dyn Fn(&Self) -> bool) -> bool {
        self.all_but_null(&|of| matches!(of, Self::Array(item) if is_item(item)))
    }

    fn all_but_null(&self, is_kind: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::Union(branches) => {
                branches.iter().any(|branch| *branch != Self::Null)
                    && branches.iter().all(|branch| *branch == Self::Null || is_kind(branch))
            }
            of => is_kind(of),
        }
    }

    /// A number, if it is one.
    #[inline]
    pub(super) fn number(&self, cursor: &mut Cursor<'_>) -> Result<Option<i64>, Broken> {
        match self.branch(cursor)? {
            Self::Null => Ok(None),
            Self::Int | Self::Long => cursor.long().map(Some),
            _ => Err(Broken("a value that should be a number is none")),
        }
    }

    /// Bytes or a text, if there are some.
    #[inline]
    pub(super) fn bytes<'a>(&self, cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, Broken> {
        match self.branch(cursor)? {
            Self::Null => Ok(None),
            Self::Bytes(_) | Self::Text(_) => cursor.bytes().map(Some),
            Self::Fixed(length, _) => cursor.take(*length).map(Some),
            _ => Err(Broken("a value that should be bytes or a text is none")),
        }
    }

    /// Takes the items of an array, if there is one.
    #[inline]
    pub(super) fn items<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        mut take: impl FnMut(&Self, &mut Cursor<'a>) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        match self.branch(cursor)? {
            Self::Null => Ok(()),
            Self::Array(item) => parts(cursor, |cursor| take(item, cursor)),
            _ => Err(Broken("a value that should be an array is none")),
        }
    }

    /// The branch that a value has; the type itself when it is no union.
    #[inline]
    pub(super) fn branch(&self, cursor: &mut Cursor<'_>) -> Result<&Self, Broken> {
        match self {
            Self::Union(branches) => Ok(&branches[cursor.index(branches.len())?]),
            of => Ok(of),
        }
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::Union(branches) => branches.iter().map(Self::count).sum(),
            Self::Record(fields) => fields.iter().map(|field| field.of.count()).sum(),
            Self::Array(inner) | Self::Map(inner) => inner.count(),
            _ => 0,
        }
    }
}

/// Takes the items of an array, all of which take bytes.
#[inline]
pub(super) fn parts<'a>(
    cursor: &mut Cursor<'a>,
    mut take: impl FnMut(&mut Cursor<'a>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    loop {
        let Part { count, bytes } = cursor.part()?;
        if count == 0 {
            return Ok(());
        }
        let begin = *cursor;
        for _ in 0..count {
            take(cursor)?;
        }
        if bytes.is_some_and(|bytes| bytes != begin.until(cursor).len()) {
            return Err(Broken("a part of an array has not the bytes that it says"));
        }
    }
}

fn skip_parts(
    cursor: &mut Cursor<'_>,
    items_are_empty: bool,
    mut skip: impl FnMut(&mut Cursor<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    loop {
        match cursor.part()? {
            Part { count: 0, .. } => return Ok(()),
            Part { bytes: Some(bytes), .. } => drop(cursor.take(bytes)?),
            Part { count, .. } if items_are_empty => {
                if count > EMPTY_ITEMS_MAX {
                    return Err(Broken("an array has too many items that are nothing"));
                }
            }
            Part { count, .. } => (0..count).try_for_each(|_| skip(cursor))?,
        }
    }
}

/// The type that a schema describes; what is wrong with it otherwise.
pub(super) fn parse(json: &[u8]) -> Result<AvroType, String> {
    let json: Json = serde_json::from_slice(json).map_err(|error| format!("its Avro schema is no JSON: {error}"))?;
    let mut parser = Parser { named: HashMap::new(), types_left: TYPES_MAX };
    parser.parse(&json, "", 0).map_err(|what| format!("its Avro schema cannot be used: {what}"))
}

struct Parser {
    /// The types that have a name, by it.
    named: HashMap<String, AvroType>,
    types_left: usize,
}

impl Parser {
    fn parse(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<AvroType, String> {
        self.count(1)?;
        if depth > DEPTH_MAX {
            return Err(format!("it has more than {DEPTH_MAX} types inside of each other"));
        }
        match json {
            Json::String(name) => self.by_name(name, Logical::None, namespace),
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.parse(branch, namespace, depth + 1));
                branches.collect::<Result<_, _>>().map(AvroType::Union)
            }
            Json::Object(object) => match object.get("type") {
                Some(Json::String(kind)) => self.object(kind, object, namespace, depth),
                Some(inner @ (Json::Object(_) | Json::Array(_))) => self.parse(inner, namespace, depth + 1),
                _ => Err("a type has no name".to_owned()),
            },
            _ => Err("a type is neither a name, a list nor an object".to_owned()),
        }
    }

    fn count(&mut self, types: usize) -> Result<(), String> {
        let left = self.types_left.checked_sub(types);
        self.types_left = left.ok_or_else(|| format!("it has more than {TYPES_MAX} types"))?;
        Ok(())
    }

    fn by_name(&mut self, name: &str, logical: Logical, namespace: &str) -> Result<AvroType, String> {
        if let Some(primitive) = primitive(name, logical) {
            return Ok(primitive);
        }
        let known = self.named.get(&full_name(name, namespace)).or_else(|| self.named.get(name)).cloned();
        // A type that contains itself is not known yet where it does.
        let known = known.ok_or_else(|| format!("the type {name:?} is not known where it stands"))?;
        self.count(known.count())?;
        Ok(known)
    }

    fn object(
        &mut self,
        kind: &str,
        object: &Map<String, Json>,
        namespace: &str,
        depth: usize,
    ) -> Result<AvroType, String> {
        let logical = logical(object);
        let missing = |what: &str| format!("a type {kind} has no {what}");
        match kind {
            "array" | "map" => {
                let key = if kind == "array" { "items" } else { "values" };
                let inner = self.parse(object.get(key).ok_or_else(|| missing(key))?, namespace, depth + 1)?;
                Ok(if kind == "array" { AvroType::Array(Box::new(inner)) } else { AvroType::Map(Box::new(inner)) })
            }
            "record" | "error" => {
                let (name, namespace) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let fields = object.get("fields").and_then(Json::as_array).ok_or_else(|| missing("fields"))?;
                let fields = fields.iter().map(|field| self.field(field, &namespace, depth + 1));
                let record = AvroType::Record(fields.collect::<Result<_, _>>()?);
                Ok(self.keep(name, record))
            }
            "enum" => {
                let (name, _) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let symbols = object.get("symbols").and_then(Json::as_array).ok_or_else(|| missing("symbols"))?;
                Ok(self.keep(name, AvroType::Enum(symbols.len())))
            }
            "fixed" => {
                let (name, _) = own_name(object, namespace).ok_or_else(|| missing("name"))?;
                let size = object.get("size").and_then(Json::as_u64).and_then(|size| usize::try_from(size).ok());
                Ok(self.keep(name, AvroType::Fixed(size.ok_or_else(|| missing("size"))?, logical)))
            }
            name => self.by_name(name, logical, namespace),
        }
    }

    fn field(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<Field, String> {
        let name = json.get("name").and_then(Json::as_str).ok_or("a field of a record has no name")?;
        let of = json.get("type").ok_or_else(|| format!("the field {name:?} has no type"))?;
        let of = self.parse(of, namespace, depth).map_err(|what| format!("field {name:?}: {what}"))?;
        let id = json.get("field-id").and_then(Json::as_i64).and_then(|id| i32::try_from(id).ok());
        Ok(Field { name: name.to_owned(), id, of })
    }

    fn keep(&mut self, name: String, of: AvroType) -> AvroType {
        self.named.insert(name, of.clone());
        of
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// The full name of a named type, and the namespace of what stands in it.
fn own_name(object: &Map<String, Json>, namespace: &str) -> Option<(String, String)> {
    let name = object.get("name")?.as_str()?;
    let namespace = object.get("namespace").and_then(Json::as_str).unwrap_or(namespace);
    let full = full_name(name, namespace);
    let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
    Some((full, namespace))
}

fn logical(object: &Map<String, Json>) -> Logical {
    match object.get("logicalType").and_then(Json::as_str) {
        Some("decimal") => Logical::Decimal,
        Some("uuid") => Logical::Uuid,
        _ => Logical::None,
    }
}

fn primitive(name: &str, logical: Logical) -> Option<AvroType> {
    Some(match name {
        "null" => AvroType::Null,
        "boolean" => AvroType::Boolean,
        "int" => AvroType::Int,
        "long" => AvroType::Long,
        "float" => AvroType::Float,
        "double" => AvroType::Double,
        "bytes" => AvroType::Bytes(logical),
        "string" => AvroType::Text(logical),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_type_stands_for_what_it_was_first_said_to_be() {
        let json = br#"{"type": "record", "name": "a.r", "fields": [
            {"name": "x", "type": {"type": "fixed", "name": "f", "size": 3, "logicalType": "decimal"}, "field-id": 7},
            {"name": "y", "type": ["null", "f"]}, {"name": "z", "type": {"type": "a.f"}}]}"#;
        let fixed = AvroType::Fixed(3, Logical::Decimal);
        let field = |name: &str, id, of| Field { name: name.to_owned(), id, of };
        let expected = vec![
            field("x", Some(7), fixed.clone()),
            field("y", None, AvroType::Union(vec![AvroType::Null, fixed.clone()])),
            field("z", None, fixed),
        ];
        assert_eq!(parse(json), Ok(AvroType::Record(expected)));
    }

    #[test]
    fn a_schema_that_grows_without_end_is_refused() {
        let itself = r#"{"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "r"]}]}"#;
        assert!(parse(itself.as_bytes()).is_err());
        let mut json = r#"{"type": "record", "name": "r0", "fields": []}"#.to_owned();
        for n in 1..40 {
            let fields = format!(r#"{{"name": "a", "type": {json}}}, {{"name": "b", "type": "r{}"}}"#, n - 1);
            json = format!(r#"{{"type": "record", "name": "r{n}", "fields": [{fields}]}}"#);
        }
        assert!(parse(json.as_bytes()).unwrap_err().contains("types"), "twice as many at each level");
    }

    #[test]
    fn arrays_are_passed_over_whole_by_items_or_by_bytes() {
        let array = parse(br#"{"type": "array", "items": ["null", "long", "bytes"]}"#).unwrap();
        // Two items; then one item of three bytes, with its bytes told; the end; and what follows.
        let bytes = [4, 0, 2, 10, 1, 6, 4, 2, 1, 0, 99];
        let mut cursor = Cursor::new(&bytes);
        array.skip(&mut cursor).unwrap();
        assert_eq!((cursor.take(1), cursor.is_at_end()), (Ok(&[99][..]), true));
        let mut nothing = Cursor::new(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);
        assert!(parse(br#"{"type": "array", "items": "null"}"#).unwrap().skip(&mut nothing).is_err());
    }
}
