//! How the columns of source and target meet. Everything here is pure.
//!
//! Columns meet by name, at every level; files are read by the source's field ids and written with the target's. A read
//! schema is the target's shape (columns, order, types, nullability) with the source's ids in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{
    FormatVersion, ListType, MapType, NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, TableMetadata,
    Type,
};

/// Digits of a decimal (spec, primitive types).
const DECIMAL_DIGITS_MAX: u32 = 38;

/// One column that does not fit: its full name, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Full name of the column.
    pub(super) column: String,
    /// What does not fit, and what to do.
    pub(super) problem: String,
}

impl Misfit {
    fn new(path: &[&str], problem: impl Into<String>) -> Self {
        Self { column: path.join("."), problem: problem.into() }
    }
}

/// The schema to read `source` in so that rows fit `target`.
///
/// # Errors
/// The first column that is missing on either side, of another type, or required where the source's may be null.
pub(super) fn read_schema(source: &Schema, target: &Schema) -> Result<Schema, Misfit> {
    let fields = fit_struct(source.as_struct(), target.as_struct(), &mut Vec::new())?;
    build(source.schema_id(), fields)
}

pub(super) fn build(schema_id: i32, fields: Vec<NestedFieldRef>) -> Result<Schema, Misfit> {
    let built = Schema::builder().with_schema_id(schema_id).with_fields(fields).build();
    built.map_err(|error| Misfit { column: "*".into(), problem: error.to_string() })
}

fn fit_struct<'a>(
    source: &'a StructType,
    target: &'a StructType,
    path: &mut Vec<&'a str>,
) -> Result<Vec<NestedFieldRef>, Misfit> {
    let by_name: HashMap<&str, &NestedFieldRef> = source.fields().iter().map(|f| (f.name.as_str(), f)).collect();
    let wanted: HashSet<&str> = target.fields().iter().map(|f| f.name.as_str()).collect();
    if let Some(extra) = source.fields().iter().find(|f| !wanted.contains(f.name.as_str())) {
        path.push(&extra.name);
        return Err(Misfit::new(
            path,
            "the source has it, the target does not; targets do not evolve yet, so add it to the target, or rename the \
             target's column if the source's was renamed, or make a new target",
        ));
    }
    let mut fields = Vec::with_capacity(target.fields().len());
    for field in target.fields() {
        path.push(&field.name);
        let Some(from) = by_name.get(field.name.as_str()) else {
            return Err(Misfit::new(
                path,
                "the target has it, the source does not; drop it from the target or make a new one",
            ));
        };
        fields.push(Arc::new(fit_field(from, field, path)?));
        path.pop();
    }
    Ok(fields)
}

fn fit_field<'a>(
    source: &'a NestedField,
    target: &'a NestedField,
    path: &mut Vec<&'a str>,
) -> Result<NestedField, Misfit> {
    if target.required && !source.required {
        return Err(Misfit::new(path, "it is required in the target and may be null in the source"));
    }
    let mut field = source.clone();
    field.required = target.required;
    field.field_type = Box::new(fit_type(&source.field_type, &target.field_type, path)?);
    Ok(field)
}

fn fit_type<'a>(source: &'a Type, target: &'a Type, path: &mut Vec<&'a str>) -> Result<Type, Misfit> {
    match (source, target) {
        (Type::Primitive(from), Type::Primitive(to)) if from == to => Ok(source.clone()),
        (Type::Struct(from), Type::Struct(to)) => Ok(Type::Struct(StructType::new(fit_struct(from, to, path)?))),
        (Type::List(from), Type::List(to)) => {
            path.push("element");
            let element = fit_field(&from.element_field, &to.element_field, path)?;
            path.pop();
            Ok(Type::List(ListType::new(Arc::new(element))))
        }
        (Type::Map(from), Type::Map(to)) => {
            path.push("key");
            let key = fit_field(&from.key_field, &to.key_field, path)?;
            path.pop();
            path.push("value");
            let value = fit_field(&from.value_field, &to.value_field, path)?;
            path.pop();
            Ok(Type::Map(MapType::new(Arc::new(key), Arc::new(value))))
        }
        _ => Err(Misfit::new(
            path,
            format!(
                "it is {source} in the source and {target} in the target; targets do not evolve yet, so make them equal"
            ),
        )),
    }
}

/// The first column, at any depth, of a type that no reader has: a decimal of more digits than the format allows.
pub(super) fn unreadable(schema: &Schema) -> Option<Misfit> {
    fn inside(fields: &[NestedFieldRef], path: &mut Vec<String>) -> Option<String> {
        fields.iter().find_map(|field| {
            path.push(field.name.clone());
            let found = match field.field_type.as_ref() {
                Type::Primitive(PrimitiveType::Decimal { precision, .. }) if *precision > DECIMAL_DIGITS_MAX => {
                    Some(format!("it is {}", field.field_type))
                }
                Type::Primitive(_) => None,
                Type::Struct(inner) => inside(inner.fields(), path),
                Type::List(list) => inside(std::slice::from_ref(&list.element_field), path),
                Type::Map(map) => inside(&[Arc::clone(&map.key_field), Arc::clone(&map.value_field)], path),
            };
            if found.is_none() {
                path.pop();
            }
            found
        })
    }
    let mut path = Vec::new();
    let what = inside(schema.as_struct().fields(), &mut path)?;
    let problem =
        format!("{what}, and a decimal has {DECIMAL_DIGITS_MAX} digits at most; leave it out with source.drop");
    Some(Misfit { column: path.join("."), problem })
}

/// Every field, at top level and inside of structs, that any schema of the table has or had, in its newest definition. Delete
/// files may be keyed on columns that were dropped since.
///
/// # Errors
/// When the table's schemas contradict each other.
pub(super) fn equality_schema(source: &TableMetadata) -> Result<Schema, Misfit> {
    let mut schemas: Vec<_> = source.schemas_iter().collect();
    schemas.sort_by_key(|schema| (schema.schema_id() == source.current_schema_id(), schema.schema_id()));
    let history: Vec<&StructType> = schemas.iter().map(|schema| schema.as_struct()).collect();
    build(source.current_schema_id(), newest_fields(&history))
}

/// The fields of a struct that has become what is last in its history.
fn newest_fields(history: &[&StructType]) -> Vec<NestedFieldRef> {
    let mut by_id: BTreeMap<i32, Vec<&NestedFieldRef>> = BTreeMap::new();
    for field in history.iter().flat_map(|fields| fields.fields()) {
        by_id.entry(field.id).or_default().push(field);
    }
    // A name may have been dropped and given again: only ids are used, but a schema wants its names apart.
    let mut names = HashSet::new();
    let newest = |definitions: Vec<&NestedFieldRef>| {
        let mut field = NestedField::clone(definitions.last()?);
        if field.field_type.is_struct() {
            let structs: Vec<&StructType> = definitions
                .iter()
                .filter_map(|definition| match definition.field_type.as_ref() {
                    Type::Struct(fields) => Some(fields),
                    _ => None,
                })
                .collect();
            field.field_type = Box::new(Type::Struct(StructType::new(newest_fields(&structs))));
        }
        if !names.insert(field.name.clone()) {
            field.name = format!("{}@{}", field.name, field.id);
        }
        Some(Arc::new(field))
    };
    by_id.into_values().filter_map(newest).collect()
}

/// The schema of a target that is made: the source's, ids, docs, required flags and identifier fields alike.
///
/// # Errors
/// A column whose type the target's format version lacks.
pub(super) fn target_schema(source: &Schema, version: FormatVersion) -> Result<Schema, Misfit> {
    let fields = source.as_struct().fields().iter().map(|f| target_field(f, version, &mut Vec::new()));
    let built = Schema::builder()
        .with_schema_id(0)
        .with_fields(fields.collect::<Result<Vec<_>, _>>()?)
        .with_identifier_field_ids(source.identifier_field_ids())
        .build();
    built.map_err(|error| Misfit { column: "*".into(), problem: error.to_string() })
}

fn target_field<'a>(
    field: &'a NestedField,
    version: FormatVersion,
    path: &mut Vec<&'a str>,
) -> Result<NestedFieldRef, Misfit> {
    path.push(&field.name);
    let mut made = field.clone();
    // Every file of the target has every column, so there is nothing for an initial default to fill.
    made.initial_default = None;
    if version < FormatVersion::V3 {
        made.write_default = None;
    }
    made.field_type = Box::new(match field.field_type.as_ref() {
        Type::Primitive(PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs) if version < FormatVersion::V3 => {
            return Err(Misfit::new(path, "nanosecond timestamps need format version 3; set target.format_version: 3"));
        }
        Type::Primitive(primitive) => Type::Primitive(primitive.clone()),
        Type::Struct(inner) => {
            let fields = inner.fields().iter().map(|f| target_field(f, version, path));
            Type::Struct(StructType::new(fields.collect::<Result<_, _>>()?))
        }
        Type::List(list) => Type::List(ListType::new(target_field(&list.element_field, version, path)?)),
        Type::Map(map) => Type::Map(MapType::new(
            target_field(&map.key_field, version, path)?,
            target_field(&map.value_field, version, path)?,
        )),
    });
    path.pop();
    Ok(Arc::new(made))
}

/// The key's field ids in `schema`: the named columns, or with none named its identifier fields in the order of the
/// columns. Empty when there are neither.
///
/// # Errors
/// A column that is not there, not at top level, or of a type that cannot be a key (spec: no float, double or nested).
pub(super) fn key_fields(schema: &Schema, named: &[String]) -> Result<Vec<i32>, Misfit> {
    if named.is_empty() {
        let identifiers: HashSet<i32> = schema.identifier_field_ids().collect();
        let mut key = Vec::with_capacity(identifiers.len());
        for field in schema.as_struct().fields().iter().filter(|f| identifiers.contains(&f.id)) {
            key.push(key_field(field)?);
        }
        return match identifiers.into_iter().find(|id| !key.contains(id)) {
            None => Ok(key),
            Some(id) => {
                let name = schema.name_by_field_id(id).unwrap_or("?");
                Err(Misfit { column: name.into(), problem: NESTED_KEY.into() })
            }
        };
    }
    named.iter().map(|name| key_field(named_field(schema, name)?)).collect()
}

const NESTED_KEY: &str = "a key column must stand at the top level; name others";

fn named_field<'a>(schema: &'a Schema, name: &str) -> Result<&'a NestedField, Misfit> {
    let fields = schema.as_struct().fields();
    if let Some(exact) = fields.iter().find(|f| f.name == name) {
        return Ok(exact);
    }
    let mut folded = fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name));
    match (folded.next(), folded.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            Err(Misfit { column: name.into(), problem: "several columns differ from it in case only".into() })
        }
        (None, _) if schema.field_by_name(name).is_some() => {
            Err(Misfit { column: name.into(), problem: NESTED_KEY.into() })
        }
        (None, _) => {
            let known: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
            Err(Misfit {
                column: name.into(),
                problem: format!("there is no such column; there are {}", known.join(", ")),
            })
        }
    }
}

fn key_field(field: &NestedField) -> Result<i32, Misfit> {
    match field.field_type.as_ref() {
        Type::Primitive(PrimitiveType::Float | PrimitiveType::Double) => Err(Misfit {
            column: field.name.clone(),
            problem: format!("a {} cannot be a key column, since its equality is not exact", field.field_type),
        }),
        Type::Primitive(_) => Ok(field.id),
        nested => {
            let kind = match nested {
                Type::Struct(_) => "struct",
                Type::List(_) => "list",
                _ => "map",
            };
            Err(Misfit { column: field.name.clone(), problem: format!("a {kind} cannot be a key column") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primitive(id: i32, name: &str, required: bool, kind: PrimitiveType) -> NestedFieldRef {
        Arc::new(NestedField::new(id, name, Type::Primitive(kind), required))
    }

    fn schema(fields: Vec<NestedFieldRef>) -> Schema {
        Schema::builder().with_fields(fields).build().unwrap()
    }

    #[test]
    fn a_decimal_of_too_many_digits_is_named_wherever_it_stands() {
        let decimal = |precision| Type::Primitive(PrimitiveType::Decimal { precision, scale: 2 });
        let field = |id, name: &str, of| Arc::new(NestedField::optional(id, name, of));
        assert_eq!(unreadable(&schema(vec![field(1, "price", decimal(38))])), None);
        let list = Type::List(ListType::new(Arc::new(NestedField::list_element(4, decimal(39), false))));
        let inner = Type::Struct(StructType::new(vec![field(3, "prices", list)]));
        let nested = schema(vec![field(1, "price", decimal(38)), field(2, "s", inner)]);
        let misfit = unreadable(&nested).unwrap();
        assert_eq!(misfit.column, "s.prices.element");
        assert!(misfit.problem.contains("39") && misfit.problem.contains("source.drop"), "{}", misfit.problem);
    }

    #[test]
    fn the_read_schema_has_the_targets_shape_and_the_sources_ids() {
        let inner = |a, b| {
            let fields =
                vec![primitive(a, "x", false, PrimitiveType::Int), primitive(b, "y", false, PrimitiveType::Int)];
            Type::Struct(StructType::new(if a < b { fields } else { fields.into_iter().rev().collect() }))
        };
        let source = schema(vec![
            primitive(5, "id", true, PrimitiveType::Long),
            Arc::new(NestedField::new(9, "s", inner(10, 11), false)),
        ]);
        let target = schema(vec![
            Arc::new(NestedField::new(1, "s", inner(4, 3), false)),
            primitive(2, "id", false, PrimitiveType::Long),
        ]);
        let read = read_schema(&source, &target).unwrap();
        let fields = read.as_struct().fields();
        assert_eq!((fields[0].id, fields[0].name.as_str(), fields[1].id), (9, "s", 5));
        assert!(!fields[1].required, "nullability is the target's");
        let Type::Struct(s) = fields[0].field_type.as_ref() else { panic!("{fields:?}") };
        let nested: Vec<_> = s.fields().iter().map(|f| (f.name.as_str(), f.id)).collect();
        assert_eq!(nested, [("y", 11), ("x", 10)]);
    }

    #[test]
    fn a_column_that_does_not_fit_is_named() {
        let id = || primitive(1, "id", true, PrimitiveType::Int);
        let v = |required, kind| primitive(2, "v", required, kind);
        let cases = [
            (vec![id(), v(false, PrimitiveType::Int)], vec![id()], "v", "the source has it"),
            (vec![id()], vec![id(), v(false, PrimitiveType::Int)], "v", "the target has it"),
            (
                vec![v(false, PrimitiveType::Int)],
                vec![v(false, PrimitiveType::Long)],
                "v",
                "int in the source and long",
            ),
            (vec![v(false, PrimitiveType::Int)], vec![v(true, PrimitiveType::Int)], "v", "may be null"),
        ];
        for (source, target, column, problem) in cases {
            let misfit = read_schema(&schema(source), &schema(target)).unwrap_err();
            assert_eq!(misfit.column, column);
            assert!(misfit.problem.contains(problem), "{misfit:?}");
        }
    }

    #[test]
    fn fields_that_were_dropped_are_still_known_to_equality_deletes() {
        let nested =
            |id, name: &str, fields| Arc::new(NestedField::new(id, name, Type::Struct(StructType::new(fields)), false));
        let int = |id, name| primitive(id, name, false, PrimitiveType::Int);
        let oldest = schema(vec![
            int(1, "id"),
            int(2, "v"),
            nested(3, "s", vec![int(4, "x"), nested(5, "t", vec![int(6, "deep")])]),
        ]);
        let newest = schema(vec![
            primitive(1, "id", true, PrimitiveType::Long),
            int(7, "v"),
            nested(3, "renamed", vec![int(8, "x")]),
        ]);
        let fields = newest_fields(&[oldest.as_struct(), newest.as_struct()]);
        let all = build(0, fields).unwrap();
        for (id, name, of) in [
            (1, "id", PrimitiveType::Long),
            (2, "v", PrimitiveType::Int),
            (7, "v@7", PrimitiveType::Int),
            (4, "renamed.x", PrimitiveType::Int),
            (6, "renamed.t.deep", PrimitiveType::Int),
            (8, "renamed.x@8", PrimitiveType::Int),
        ] {
            assert_eq!(all.name_by_field_id(id), Some(name));
            assert_eq!(*all.field_by_id(id).unwrap().field_type, Type::Primitive(of), "{name}");
        }
    }

    #[test]
    fn keys_are_top_level_columns_of_exact_types() {
        let table = Schema::builder()
            .with_fields(vec![
                primitive(1, "Id", true, PrimitiveType::Int),
                primitive(2, "price", false, PrimitiveType::Double),
                primitive(3, "a", false, PrimitiveType::Int),
                primitive(4, "A", false, PrimitiveType::Int),
                Arc::new(NestedField::new(
                    5,
                    "s",
                    Type::Struct(StructType::new(vec![primitive(6, "x", false, PrimitiveType::Int)])),
                    false,
                )),
            ])
            .with_identifier_field_ids(vec![1])
            .build()
            .unwrap();
        let key = |names: &[&str]| key_fields(&table, &names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(key(&[]), Ok(vec![1]));
        assert_eq!(key(&["a", "id"]), Ok(vec![3, 1]), "exact case first, any case when it is unique");
        for (name, problem) in [
            ("price", "double"),
            ("s", "struct"),
            ("s.x", "top level"),
            ("none", "there are Id, price"),
            ("P", "no such"),
        ] {
            assert!(key(&[name]).unwrap_err().problem.contains(problem), "{name}");
        }
    }

    #[test]
    fn a_made_target_keeps_ids_docs_and_identifiers() {
        let mut id = NestedField::required(5, "id", Type::Primitive(PrimitiveType::Long));
        id.doc = Some("the key".into());
        let source = Schema::builder()
            .with_fields(vec![Arc::new(id), primitive(9, "v", false, PrimitiveType::String)])
            .with_identifier_field_ids(vec![5])
            .build()
            .unwrap();
        let made = target_schema(&source, FormatVersion::V2).unwrap();
        assert_eq!(made.as_struct(), source.as_struct());
        assert_eq!(made.identifier_field_ids().collect::<Vec<_>>(), [5]);
        let nanos = schema(vec![primitive(1, "t", false, PrimitiveType::TimestampNs)]);
        assert!(target_schema(&nanos, FormatVersion::V2).unwrap_err().problem.contains("version 3"));
        assert!(target_schema(&nanos, FormatVersion::V3).is_ok());
    }
}
