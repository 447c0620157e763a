//! Which columns of the source are carried: `source.keep` and `source.drop` on a schema. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::{ListType, MapType, NestedField, NestedFieldRef, Schema, SchemaRef, StructType, Type};
use iceferry_common::config::ColumnChoice;

use super::schema::Misfit;

/// The schema with the columns that are chosen, in its order and with its ids. Identifier fields stay only when all do.
///
/// # Errors
/// A name that is no column, or a choice that leaves nothing of the table or of a struct.
pub(super) fn projected(schema: &SchemaRef, choice: &ColumnChoice) -> Result<SchemaRef, Misfit> {
    let (names, keeps) = match choice {
        ColumnChoice::All => return Ok(Arc::clone(schema)),
        ColumnChoice::Keep(names) => (names, true),
        ColumnChoice::Drop(names) => (names, false),
    };
    let mut ids = BTreeSet::new();
    for name in names {
        ids.insert(find(schema, name)?.id);
    }
    let fields = fields_of(schema.as_struct(), &ids, keeps);
    if fields.is_empty() {
        return Err(Misfit { column: "*".into(), problem: "no column is left; keep one at least".into() });
    }
    let of_kept = Schema::builder().with_schema_id(schema.schema_id()).with_fields(fields);
    let misfit = |error: iceberg::Error| Misfit { column: "*".into(), problem: error.to_string() };
    let plain = of_kept.build().map_err(misfit)?;
    let identifiers: Vec<i32> = schema.identifier_field_ids().collect();
    if identifiers.is_empty() || identifiers.iter().any(|id| plain.field_by_id(*id).is_none()) {
        return Ok(Arc::new(plain));
    }
    plain.into_builder().with_identifier_field_ids(identifiers).build().map(Arc::new).map_err(misfit)
}

/// The fields that stay. A struct of which nothing stays goes; a map keeps its key as it is.
fn fields_of(fields: &StructType, ids: &BTreeSet<i32>, keeps: bool) -> Vec<NestedFieldRef> {
    fields.fields().iter().filter_map(|field| field_of(field, ids, keeps)).collect()
}

fn field_of(field: &NestedFieldRef, ids: &BTreeSet<i32>, keeps: bool) -> Option<NestedFieldRef> {
    if ids.contains(&field.id) {
        return keeps.then(|| Arc::clone(field));
    }
    let field_type = match field.field_type.as_ref() {
        Type::Primitive(_) => return (!keeps).then(|| Arc::clone(field)),
        Type::Struct(fields) => {
            let left = fields_of(fields, ids, keeps);
            if left.is_empty() {
                return None;
            }
            Type::Struct(StructType::new(left))
        }
        Type::List(list) => Type::List(ListType::new(field_of(&list.element_field, ids, keeps)?)),
        Type::Map(map) => Type::Map(MapType::new(Arc::clone(&map.key_field), field_of(&map.value_field, ids, keeps)?)),
    };
    let mut field = NestedField::clone(field);
    field.field_type = Box::new(field_type);
    Some(Arc::new(field))
}

/// The field of a name or path: at each level the exact name first, any case only if that is unique. A name with dots in
/// it is taken before a path.
fn find<'a>(schema: &'a Schema, name: &str) -> Result<&'a NestedFieldRef, Misfit> {
    let misfit = |problem: String| Misfit { column: name.to_owned(), problem };
    match among(schema.as_struct().fields(), name) {
        Found::One(field) => Ok(field),
        Found::Several => Err(misfit("several columns differ from it in case only; write it as the table does".into())),
        Found::InKey => Err(misfit("it is inside a map's key, which stays whole; name the map".into())),
        Found::None => {
            let known: Vec<&str> = schema.as_struct().fields().iter().map(|field| field.name.as_str()).collect();
            Err(misfit(format!("there is no such column; there are {}", known.join(", "))))
        }
    }
}

enum Found<'a> {
    One(&'a NestedFieldRef),
    Several,
    InKey,
    None,
}

fn among<'a>(fields: &'a [NestedFieldRef], path: &str) -> Found<'a> {
    let here = among_here(fields, path);
    if !matches!(here, Found::None) {
        return here;
    }
    // A column's own name may have dots: each beginning that is a column is tried.
    for (dot, _) in path.match_indices('.') {
        if let Found::One(parent) = among_here(fields, &path[..dot]) {
            let found = in_type(&parent.field_type, &path[dot + 1..]);
            if !matches!(found, Found::None) {
                return found;
            }
        }
    }
    Found::None
}

/// A field of this level alone.
fn among_here<'a>(fields: &'a [NestedFieldRef], name: &str) -> Found<'a> {
    match fields.iter().find(|field| field.name == name) {
        Some(exact) => Found::One(exact),
        None => {
            let mut folded = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            match (folded.next(), folded.next()) {
                (Some(only), None) => Found::One(only),
                (Some(_), Some(_)) => Found::Several,
                (None, _) => Found::None,
            }
        }
    }
}

fn in_type<'a>(of: &'a Type, path: &str) -> Found<'a> {
    match of {
        Type::Primitive(_) => Found::None,
        Type::Struct(fields) => among(fields.fields(), path),
        Type::List(list) => among(std::slice::from_ref(&list.element_field), path),
        Type::Map(map) if path.split('.').next() == Some("key") && map.key_field.name == "key" => Found::InKey,
        Type::Map(map) => among(std::slice::from_ref(&map.value_field), path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// id, s struct(a, b), l list(struct(x, y)), m map(string, struct(u, v)), "d.o.t", CASE and case.
    fn schema() -> SchemaRef {
        let json = serde_json::json!({"type": "struct", "schema-id": 7, "identifier-field-ids": [1], "fields": [
            {"id": 1, "name": "id", "required": true, "type": "int"},
            {"id": 2, "name": "s", "required": false, "type": {"type": "struct", "fields": [
                {"id": 3, "name": "a", "required": false, "type": "int"},
                {"id": 4, "name": "b", "required": false, "type": "int"}]}},
            {"id": 5, "name": "l", "required": false, "type": {"type": "list", "element-id": 6, "element-required": true,
                "element": {"type": "struct", "fields": [
                    {"id": 7, "name": "x", "required": false, "type": "int"},
                    {"id": 8, "name": "y", "required": false, "type": "int"}]}}},
            {"id": 9, "name": "m", "required": false, "type": {"type": "map", "key-id": 10, "key": "string",
                "value-id": 11, "value-required": false, "value": {"type": "struct", "fields": [
                    {"id": 12, "name": "u", "required": false, "type": "int"},
                    {"id": 13, "name": "v", "required": false, "type": "int"}]}}},
            {"id": 14, "name": "d.o.t", "required": false, "type": "int"},
            {"id": 15, "name": "CASE", "required": false, "type": "int"},
            {"id": 16, "name": "case", "required": false, "type": "int"},
        ]});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Ids of the primitive fields that are left.
    fn left(choice: &ColumnChoice) -> Vec<i32> {
        let schema = projected(&schema(), choice).unwrap();
        (1..=16).filter(|id| schema.field_by_id(*id).is_some_and(|field| field.field_type.is_primitive())).collect()
    }

    #[test]
    fn columns_and_fields_inside_them_are_kept_or_dropped() {
        let cases: [(&[&str], &[i32]); 8] = [
            (&["id"], &[1]),
            (&["s"], &[3, 4]),
            (&["s.b", "ID"], &[1, 4]),
            (&["l.element.y"], &[8]),
            (&["m.value.u"], &[10, 12]),
            (&["m"], &[10, 12, 13]),
            (&["d.o.t"], &[14]),
            (&["case"], &[16]),
        ];
        let all = left(&ColumnChoice::All);
        for (choice, expected) in cases {
            assert_eq!(left(&ColumnChoice::Keep(names(choice))), expected, "{choice:?}");
            // A map's key stays as long as something of its value does.
            let mut rest: Vec<i32> = all.iter().filter(|id| !expected.contains(id)).copied().collect();
            if choice.contains(&"m.value.u") {
                rest.push(10);
                rest.sort_unstable();
            }
            assert_eq!(left(&ColumnChoice::Drop(names(choice))), rest, "{choice:?}");
        }
    }

    #[test]
    fn identifier_fields_stay_when_all_of_them_are_carried() {
        let of = |choice| -> Vec<i32> { projected(&schema(), &choice).unwrap().identifier_field_ids().collect() };
        assert_eq!(of(ColumnChoice::Keep(names(&["id", "s.a"]))), [1]);
        assert_eq!(of(ColumnChoice::Drop(names(&["id"]))), [0; 0]);
        assert_eq!(projected(&schema(), &ColumnChoice::All).unwrap().schema_id(), 7);
    }

    #[test]
    fn what_cannot_be_chosen_is_named() {
        for (name, problem) in [
            ("nope", "there are id, s"),
            ("s.nope", "no such column"),
            ("Case", "in case only"),
            ("m.key", "map's key"),
            ("id.x", "no such column"),
        ] {
            for choice in [ColumnChoice::Keep(names(&[name])), ColumnChoice::Drop(names(&[name]))] {
                let misfit = projected(&schema(), &choice).unwrap_err();
                assert_eq!(misfit.column, name);
                assert!(misfit.problem.contains(problem), "{misfit:?}");
            }
        }
        let all = ColumnChoice::Drop(names(&["id", "s", "l", "m", "d.o.t", "CASE", "case"]));
        assert!(projected(&schema(), &all).unwrap_err().problem.contains("keep one"));
    }
}
