//! Which columns of the source a target's columns hold, by field id: columns meet by name, and a name can come to stand
//! for another column. Pure.
//!
//! A column that is dropped and added again, or two that change names, fit the target as before, while the rows that it
//! holds are of other columns. So the checkpoint's hash of the mirror tells the schema that the source was read in.

use std::collections::BTreeMap;

use iceberg::spec::{NestedField, PrimitiveType, Schema, StructType, TableMetadata, Type};
use iceferry_common::config::{JobFile, fingerprint};
use iceferry_common::filter::TableFilter;

use super::schema::Misfit;

/// Between the parts of the hash: that of the job, the id of the source's schema, and that of the columns read.
const SEPARATOR: char = '-';

/// The hash of a mirror: of its job, of the source's columns that it holds, and of those that its filter asks for.
pub(super) fn mirror_hash(job: &JobFile, read: &Schema, filter: Option<&TableFilter>) -> String {
    let job = job.mirror_hash();
    let hash = format!("{job}{SEPARATOR}{}{SEPARATOR}{}", read.schema_id(), columns_hash(read));
    match filter {
        Some(filter) => format!("{hash}{SEPARATOR}{}", filter_hash(filter)),
        None => hash,
    }
}

/// What rows a filter keeps: its condition by field id, and the types that values are compared in. A float that becomes a
/// double is compared with another value; integers and decimals that become wider are not.
fn filter_hash(filter: &TableFilter) -> String {
    let mut text = filter.bound().canonical();
    for (path, column) in columns(filter.schema()) {
        text.push_str(&format!("\n{}:{path}{} {}", path.len(), column.id, column.kind));
    }
    fingerprint(&text)
}

/// Whether a filter keeps other rows than when a target of this hash was brought up to date.
pub(super) fn is_filter_stale(mirror_hash: &str, filter: &TableFilter) -> bool {
    // Earlier versions did not tell.
    mirror_hash.split(SEPARATOR).nth(3).is_some_and(|held| held != filter_hash(filter))
}

fn columns_hash(read: &Schema) -> String {
    let line = |(path, column): (String, Column)| format!("{}:{path}{}\n", path.len(), column.id);
    fingerprint(&columns(read).into_iter().map(line).collect::<String>())
}

/// Whether a checkpoint's hash is of this job.
pub(super) fn is_of_job(mirror_hash: &str, job: &JobFile) -> bool {
    mirror_hash.split(SEPARATOR).next() == Some(job.mirror_hash().as_str())
}

/// A column by which the rows that a target of this hash holds differ from what the source shows when it is read in
/// `read`.
pub(super) fn stale(mirror_hash: &str, source: &TableMetadata, read: &Schema) -> Option<Misfit> {
    let mut parts = mirror_hash.split(SEPARATOR).skip(1);
    let (schema_id, hash) = parts.next().zip(parts.next())?;
    if hash == columns_hash(read) {
        return None;
    }
    match schema_id.parse().ok().and_then(|id| source.schema_by_id(id)) {
        Some(before) => stale_column(before, read),
        None => Some(Misfit {
            column: "*".into(),
            problem: format!(
                "columns changed since the target was brought up to date, and the source's schema {schema_id} of that \
                 time, which tells which, is gone; make a new target"
            ),
        }),
    }
}

fn stale_column(before: &Schema, now: &Schema) -> Option<Misfit> {
    let before = columns(before);
    columns(now).into_iter().find_map(|(path, column)| {
        let problem = match before.get(&path) {
            Some(known) if known.id == column.id => return None,
            Some(_) => {
                "it is another column than the one that the target holds under this name, since columns were renamed, \
                 or dropped and added again; targets do not evolve yet, so make a new one"
            }
            None if column.has_default => {
                "it was added with a default, which rows that the target holds lack; targets do not evolve yet, so \
                 make a new one"
            }
            None => return None,
        };
        Some(Misfit { column: path, problem: problem.into() })
    })
}

/// What counts of a column.
struct Column {
    id: i32,
    /// Its type, as far as comparing values goes.
    kind: String,
    /// Rows from before the column was added have a value.
    has_default: bool,
}

/// Columns by full name. A name may hold dots itself; what is compared are whole schemas, so that does no harm.
fn columns(schema: &Schema) -> BTreeMap<String, Column> {
    let mut columns = BTreeMap::new();
    add_struct(schema.as_struct(), "", &mut columns);
    columns
}

fn add_struct(fields: &StructType, parent: &str, columns: &mut BTreeMap<String, Column>) {
    for field in fields.fields() {
        let path = if parent.is_empty() { field.name.clone() } else { format!("{parent}.{}", field.name) };
        let NestedField { id, initial_default, field_type, .. } = field.as_ref();
        let kind = match field_type.as_ref() {
            Type::Primitive(PrimitiveType::Int | PrimitiveType::Long) => "integer".to_owned(),
            Type::Primitive(PrimitiveType::Decimal { scale, .. }) => format!("decimal of scale {scale}"),
            Type::Primitive(other) => other.to_string(),
            _ => String::new(),
        };
        columns.insert(path.clone(), Column { id: *id, kind, has_default: initial_default.is_some() });
        add_type(field_type, &path, columns);
    }
}

fn add_type(of: &Type, path: &str, columns: &mut BTreeMap<String, Column>) {
    match of {
        Type::Primitive(_) => {}
        Type::Struct(fields) => add_struct(fields, path, columns),
        Type::List(list) => add_type(&list.element_field.field_type, &format!("{path}.element"), columns),
        Type::Map(map) => {
            add_type(&map.key_field.field_type, &format!("{path}.key"), columns);
            add_type(&map.value_field.field_type, &format!("{path}.value"), columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iceberg::spec::{ListType, Literal, NestedFieldRef};
    use iceferry_common::filter::Filter;

    use super::*;

    fn job() -> JobFile {
        let text = "name: a\nsource: { table: s.t, catalog_properties: { type: rest } }\n\
                    target: { table: l.t, catalog_properties: { type: rest }, equality_columns: [id] }\n";
        JobFile::parse(text, &|_| None).unwrap()
    }

    fn column(id: i32, name: &str) -> NestedFieldRef {
        Arc::new(NestedField::optional(id, name, Type::Primitive(PrimitiveType::Int)))
    }

    fn schema(fields: impl IntoIterator<Item = NestedFieldRef>) -> Schema {
        Schema::builder().with_fields(fields).build().unwrap()
    }

    /// id, c and a list of structs of one field x.
    fn nested(c: i32, x: i32) -> Schema {
        let element = Type::Struct(StructType::new(vec![column(x, "x")]));
        let list = Type::List(ListType::new(Arc::new(NestedField::list_element(90, element, false))));
        schema([column(1, "id"), column(c, "c"), Arc::new(NestedField::optional(80, "l", list))])
    }

    fn stale_name(before: &Schema, now: &Schema) -> Option<String> {
        stale_column(before, now).map(|misfit| misfit.column)
    }

    #[test]
    fn another_column_of_the_same_name_makes_another_mirror() {
        let (job, base) = (job(), nested(2, 91));
        let hash = mirror_hash(&job, &base, None);
        assert_eq!(hash, mirror_hash(&job, &nested(2, 91), None));
        assert!(is_of_job(&hash, &job) && is_of_job(&job.mirror_hash(), &job));
        assert_eq!(stale_name(&base, &nested(2, 91)), None);
        for (other, name) in [(nested(3, 91), "c"), (nested(2, 92), "l.element.x")] {
            assert_ne!(hash, mirror_hash(&job, &other, None), "{name}");
            assert!(is_of_job(&mirror_hash(&job, &other, None), &job), "{name}");
            assert_eq!(stale_name(&base, &other).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_filter_on_another_column_or_another_type_is_told_from_the_one_before() {
        let of = |id: i32, of: PrimitiveType| {
            let field = Arc::new(NestedField::optional(id, "a", Type::Primitive(of)));
            let table = schema([column(1, "id"), field]);
            TableFilter::new(Filter::parse("a = 1").unwrap(), &table).unwrap()
        };
        let before = mirror_hash(&job(), &schema([column(1, "id")]), Some(&of(2, PrimitiveType::Int)));
        for (filter, is_stale) in [
            (of(2, PrimitiveType::Int), false),
            (of(2, PrimitiveType::Long), false),
            (of(3, PrimitiveType::Int), true),
            (of(2, PrimitiveType::Float), true),
        ] {
            assert_eq!(is_filter_stale(&before, &filter), is_stale, "{:?}", filter.schema());
        }
        let float = mirror_hash(&job(), &schema([column(1, "id")]), Some(&of(2, PrimitiveType::Float)));
        assert!(is_filter_stale(&float, &of(2, PrimitiveType::Double)));
    }

    #[test]
    fn only_what_makes_held_rows_stale_is_refused() {
        let base = schema([column(1, "a"), column(2, "b")]);
        let swapped = schema([column(1, "b"), column(2, "a")]);
        assert_eq!(stale_name(&base, &swapped).as_deref(), Some("a"));
        // Held rows have null in it, in the source and, once somebody adds it there too, in the target.
        assert_eq!(stale_name(&base, &schema([column(1, "a"), column(2, "b"), column(3, "c")])), None);
        assert_eq!(stale_name(&base, &schema([column(1, "a")])), None);
        let mut with_default = NestedField::clone(&column(3, "c"));
        with_default.initial_default = Some(Literal::int(7));
        let with_default = schema([column(1, "a"), column(2, "b"), Arc::new(with_default)]);
        assert_eq!(stale_name(&base, &with_default).as_deref(), Some("c"));
    }
}
