//! From names and literals to field ids and values.
//!
//! NOT goes down to the leaves on the way: `NOT (a = 1 AND b)` becomes `a <> 1 OR NOT b`. The logic of three values allows
//! that, and without NOT above it an unknown test may count as false.

use std::cmp::Ordering;
use std::fmt;

use iceberg::spec::{NestedFieldRef, PrimitiveType, Schema, StructType, Type};

use super::condition::{Node, Test};
use super::error::FilterError;
use super::literal::{Place, place};
use super::syntax::{Check, ColumnName, Comparison, Expression, Leaf, Literal, LiteralValue};
use super::value::{Value, is_float};

/// A condition on the rows of a table, by field id.
#[derive(Clone)]
pub struct BoundFilter {
    pub(super) root: Node<ColumnTest>,
    pub(super) columns: Vec<Column>,
}

/// A column that the condition asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Its full name, for messages.
    pub(super) name: String,
    /// Its field id behind those of the structs that it stands in, from the top.
    pub(super) path: Vec<i32>,
    pub(super) kind: PrimitiveType,
}

/// A test of the column of this index.
#[derive(Debug, Clone)]
pub(super) struct ColumnTest {
    pub(super) column: usize,
    pub(super) test: Test,
}

impl BoundFilter {
    /// Ids of the fields that the condition asks for, each once; they are primitive, and may stand in structs.
    pub fn field_ids(&self) -> Vec<i32> {
        self.columns.iter().map(Column::id).collect()
    }

    /// Ids of the top-level columns that hold them, each once.
    pub fn top_level_ids(&self) -> Vec<i32> {
        let mut ids = Vec::new();
        for column in &self.columns {
            if !ids.contains(&column.path[0]) {
                ids.push(column.path[0]);
            }
        }
        ids
    }

    /// One text for all conditions that mean the same column by column: field ids, operators and values. It tells what
    /// rows a filter keeps, and holds its literals.
    pub fn canonical(&self) -> String {
        self.root.canonical(&|leaf| format!("{} {}", self.columns[leaf.column].id(), leaf.test.canonical()))
    }
}

/// Literals may hold what logs must not show.
impl fmt::Debug for BoundFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundFilter").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Column {
    pub(super) fn id(&self) -> i32 {
        // Paths are never empty.
        self.path.last().copied().unwrap_or_default()
    }
}

pub(super) fn bind(root: &Expression, schema: &Schema) -> Result<BoundFilter, FilterError> {
    let mut binder = Binder { schema, columns: Vec::new() };
    let root = binder.expression(root, false)?;
    Ok(BoundFilter { root, columns: binder.columns })
}

struct Binder<'s> {
    schema: &'s Schema,
    columns: Vec<Column>,
}

type Bound = Node<ColumnTest>;

impl Binder<'_> {
    fn expression(&mut self, expression: &Expression, negated: bool) -> Result<Bound, FilterError> {
        match expression {
            Expression::Not(inner) => self.expression(inner, !negated),
            Expression::And(parts) | Expression::Or(parts) => {
                let parts = parts.iter().map(|part| self.expression(part, negated)).collect::<Result<_, _>>()?;
                let is_and = matches!(expression, Expression::And(_)) != negated;
                Ok(if is_and { Node::and(parts) } else { Node::or(parts) })
            }
            Expression::Leaf(leaf) => self.leaf(leaf, leaf.negated != negated),
        }
    }

    fn leaf(&mut self, leaf: &Leaf, negated: bool) -> Result<Bound, FilterError> {
        let (column, kind) = self.column(&leaf.column)?;
        let test = |test: Test| Node::Leaf(ColumnTest { column, test: if negated { test.negated() } else { test } });
        let compared = |comparison: Comparison, literal: &Literal| {
            Ok(compare(column, comparison, self.place(column, literal)?, negated))
        };
        match &leaf.check {
            Check::IsNull => Ok(test(Test::IsNull)),
            Check::IsNan if is_float(&kind) => Ok(test(Test::IsNan)),
            Check::IsNan => Err(self.refused(&leaf.column, &kind, "NaN is asked of float and double columns only")),
            Check::IsTrue if kind == PrimitiveType::Boolean => Ok(test(Test::Eq(Value::Boolean(true)))),
            Check::IsTrue => {
                Err(self.refused(&leaf.column, &kind, "only a boolean column is a condition alone: compare it"))
            }
            Check::Compare(comparison, literal) => compared(*comparison, literal),
            Check::Between(low, high) => {
                let parts = vec![compared(Comparison::GtEq, low)?, compared(Comparison::LtEq, high)?];
                Ok(if negated { Node::or(parts) } else { Node::and(parts) })
            }
            Check::In(literals) => {
                let mut values = Vec::with_capacity(literals.len());
                let mut has_nan = false;
                for literal in literals {
                    match self.place(column, literal)? {
                        Place::At(value) => values.push(value),
                        Place::Nan => has_nan = true,
                        // No row has such a value.
                        Place::Above(_) | Place::AboveAll | Place::BelowAll => {}
                    }
                }
                Ok(in_list(column, values, has_nan, negated))
            }
            Check::Prefix(literal) => match &literal.value {
                _ if kind != PrimitiveType::String => {
                    Err(self.refused(&leaf.column, &kind, "LIKE is asked of string columns only"))
                }
                // As true as that any text is above all: of each that is there.
                LiteralValue::Text(prefix) if prefix.is_empty() => {
                    Ok(compare(column, Comparison::NotEq, Place::AboveAll, negated))
                }
                LiteralValue::Text(prefix) => Ok(test(Test::StartsWith(prefix.clone()))),
                _ => Err(self.refused(&leaf.column, &kind, "a pattern is text")),
            },
        }
    }

    fn refused(&self, name: &ColumnName, kind: &PrimitiveType, problem: &str) -> FilterError {
        FilterError::Column { at: name.at, column: name.shown(), problem: format!("is of type {kind}: {problem}") }
    }

    fn place(&self, column: usize, literal: &Literal) -> Result<Place, FilterError> {
        let Column { name, kind, .. } = &self.columns[column];
        place(kind, &literal.value).map_err(|expected| FilterError::Literal {
            at: literal.at,
            column: name.clone(),
            kind: kind.to_string(),
            expected,
        })
    }

    /// The index of the column of a name, and its type.
    fn column(&mut self, name: &ColumnName) -> Result<(usize, PrimitiveType), FilterError> {
        let refuse =
            |problem: &str| FilterError::Column { at: name.at, column: name.shown(), problem: problem.to_owned() };
        let mut fields: &StructType = self.schema.as_struct();
        let mut path = Vec::with_capacity(name.parts.len());
        let mut full_name = Vec::with_capacity(name.parts.len());
        for (depth, part) in name.parts.iter().enumerate() {
            let field = field(fields, part).map_err(refuse)?;
            path.push(field.id);
            full_name.push(field.name.as_str());
            let is_last = depth + 1 == name.parts.len();
            match field.field_type.as_ref() {
                Type::Primitive(kind) if is_last => {
                    let column = Column { name: full_name.join("."), path, kind: kind.clone() };
                    let known = self.columns.iter().position(|known| known.path == column.path);
                    let index = known.unwrap_or_else(|| {
                        self.columns.push(column);
                        self.columns.len() - 1
                    });
                    return Ok((index, kind.clone()));
                }
                Type::Struct(inner) if !is_last => fields = inner,
                Type::Primitive(_) => return Err(refuse("is no struct, so nothing follows it after a dot")),
                Type::Struct(_) => return Err(refuse("is a struct: name one of its fields after a dot")),
                Type::List(_) => return Err(refuse("is or stands in a list, which a filter cannot look into")),
                Type::Map(_) => return Err(refuse("is or stands in a map, which a filter cannot look into")),
            }
        }
        Err(refuse("has no name"))
    }
}

/// The field of a name: as it is written, else in any letter case if it is the only one.
fn field<'f>(fields: &'f StructType, name: &str) -> Result<&'f NestedFieldRef, &'static str> {
    if let Some(field) = fields.fields().iter().find(|field| field.name == name) {
        return Ok(field);
    }
    let lower = name.to_lowercase();
    let mut alike = fields.fields().iter().filter(|field| field.name.to_lowercase() == lower);
    match (alike.next(), alike.next()) {
        (Some(field), None) => Ok(field),
        (None, _) => {
            Err("is not in the table: look at its columns; a name with dots or blanks stands in double quotes")
        }
        (Some(_), Some(_)) => Err("is the name of several columns in other letter cases: write it as the table does"),
    }
}

/// A comparison, or its opposite, with a literal that may lie between the column's values.
fn compare(column: usize, comparison: Comparison, place: Place, negated: bool) -> Bound {
    let leaf = |test: Test| Node::Leaf(ColumnTest { column, test: if negated { test.negated() } else { test } });
    // What is true of no row, or of every row that is not null; for the opposite the other way round.
    let never = || if negated { Node::Leaf(ColumnTest { column, test: Test::NotNull }) } else { Node::Constant(false) };
    let always =
        || if negated { Node::Constant(false) } else { Node::Leaf(ColumnTest { column, test: Test::NotNull }) };
    let nan = |test: bool| match (test, negated) {
        (true, false) | (false, true) => Node::Leaf(ColumnTest { column, test: Test::IsNan }),
        // Null is not NaN, and comparing it is unknown.
        (true, true) | (false, false) => Node::and(vec![
            Node::Leaf(ColumnTest { column, test: Test::NotNull }),
            Node::Leaf(ColumnTest { column, test: Test::NotNan }),
        ]),
    };
    use Comparison as C;
    match (place, comparison) {
        (Place::At(value), C::Eq) => leaf(Test::Eq(value)),
        (Place::At(value), C::NotEq) => leaf(Test::NotEq(value)),
        (Place::At(value), C::Lt) => leaf(Test::Lt(value)),
        (Place::At(value), C::LtEq) => leaf(Test::LtEq(value)),
        (Place::At(value), C::Gt) => leaf(Test::Gt(value)),
        (Place::At(value), C::GtEq) => leaf(Test::GtEq(value)),
        (Place::Above(_) | Place::AboveAll | Place::BelowAll, C::Eq) => never(),
        (Place::Above(_) | Place::AboveAll | Place::BelowAll, C::NotEq) => always(),
        (Place::Above(value), C::Lt | C::LtEq) => leaf(Test::LtEq(value)),
        (Place::Above(value), C::Gt | C::GtEq) => leaf(Test::Gt(value)),
        (Place::AboveAll, C::Lt | C::LtEq) | (Place::BelowAll, C::Gt | C::GtEq) => always(),
        (Place::AboveAll, C::Gt | C::GtEq) | (Place::BelowAll, C::Lt | C::LtEq) => never(),
        (Place::Nan, C::Eq | C::GtEq) => nan(true),
        (Place::Nan, C::NotEq | C::Lt) => nan(false),
        (Place::Nan, C::LtEq) => always(),
        (Place::Nan, C::Gt) => never(),
    }
}

fn in_list(column: usize, mut values: Vec<Value>, has_nan: bool, negated: bool) -> Bound {
    values.sort_by(|left, right| left.compare(right).unwrap_or(Ordering::Equal));
    values.dedup_by(|left, right| left.compare(right) == Some(Ordering::Equal));
    let leaf = |test: Test| Node::Leaf(ColumnTest { column, test: if negated { test.negated() } else { test } });
    let mut parts = Vec::new();
    if has_nan {
        parts.push(compare(column, Comparison::Eq, Place::Nan, negated));
    }
    match values.len() {
        0 if !has_nan => parts.push(compare(column, Comparison::Eq, Place::AboveAll, negated)),
        0 => {}
        1 => parts.push(leaf(Test::Eq(values.remove(0)))),
        _ => parts.push(leaf(Test::In(values))),
    }
    if negated { Node::and(parts) } else { Node::or(parts) }
}
