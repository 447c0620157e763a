//! Schemas, and how they evolve.

use std::sync::Arc;

use iceberg::spec::{PartitionSpec, Schema, SchemaRef, Transform};
use serde_json::{Value, json};

use super::Random;
use super::row::W_DEFAULT;

/// A column, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    P,
    V,
    F,
    Tags,
    S,
    W,
    VAgain,
}

/// A schema of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    pub(super) schema_id: i32,
    pub(super) columns: Vec<(Column, String)>,
    pub(super) id_is_long: bool,
    pub(super) f_is_double: bool,
    pub(super) s_has_b: bool,
    pub(super) w_has_default: bool,
}

impl Shape {
    pub(super) fn first() -> Self {
        let columns = [
            (Column::Id, "id"),
            (Column::P, "p"),
            (Column::V, "v"),
            (Column::F, "f"),
            (Column::Tags, "tags"),
            (Column::S, "s"),
        ];
        Self {
            schema_id: 0,
            columns: columns.map(|(column, name)| (column, name.to_owned())).into(),
            id_is_long: false,
            f_is_double: false,
            s_has_b: false,
            w_has_default: false,
        }
    }

    pub(super) fn has(&self, column: Column) -> bool {
        self.columns.iter().any(|(has, _)| *has == column)
    }

    /// The shape after one random change; the same when the change makes no sense now.
    pub(super) fn evolved(&self, random: &mut Random, version: u8) -> Self {
        let mut next = self.clone();
        match random.below(8) {
            0 => next.id_is_long = true,
            1 => next.f_is_double = true,
            2 => next.s_has_b = true,
            3 if !next.has(Column::W) => {
                next.columns.insert(random.below(3), (Column::W, "w".to_owned()));
                next.w_has_default = version >= 3 && random.chance(60);
            }
            4 => next.columns.retain(|(column, _)| *column != Column::V),
            5 if !next.has(Column::V) && !next.has(Column::VAgain) => {
                next.columns.push((Column::VAgain, "v".to_owned()));
            }
            6 => {
                let name = next.columns.iter_mut().find(|(column, _)| *column == Column::V);
                name.into_iter().for_each(|(_, name)| "renamed".clone_into(name));
            }
            7 => {
                let last = next.columns.len() - 1;
                next.columns.swap(random.below(last), last);
            }
            _ => {}
        }
        if next != *self {
            next.schema_id += 1;
        }
        next
    }

    pub(super) fn json(&self) -> Value {
        let fields: Vec<Value> = self
            .columns
            .iter()
            .map(|(column, name)| {
                let (id, kind) = match column {
                    Column::Id => (1, json!(if self.id_is_long { "long" } else { "int" })),
                    Column::P => (2, json!("int")),
                    Column::V => (3, json!("string")),
                    Column::F => (4, json!(if self.f_is_double { "double" } else { "float" })),
                    Column::Tags => (
                        5,
                        json!({"type": "map", "key-id": 6, "key": "string", "value-id": 7,
                        "value-required": false, "value": "int"}),
                    ),
                    Column::S => {
                        let mut fields = vec![json!({"id": 9, "name": "a", "required": false, "type": "int"})];
                        if self.s_has_b {
                            fields.push(json!({"id": 10, "name": "b", "required": false, "type": "string"}));
                        }
                        (8, json!({"type": "struct", "fields": fields}))
                    }
                    Column::W => (11, json!("string")),
                    Column::VAgain => (12, json!("string")),
                };
                let mut field = json!({"id": id, "name": name, "required": *column == Column::Id, "type": kind});
                if *column == Column::W && self.w_has_default {
                    field["initial-default"] = W_DEFAULT.into();
                    field["write-default"] = W_DEFAULT.into();
                }
                field
            })
            .collect();
        json!({"type": "struct", "schema-id": self.schema_id, "fields": fields})
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let schema: Schema = serde_json::from_value(self.json()).expect("a schema");
        Arc::new(schema)
    }

    pub(super) fn spec(&self, spec: i32) -> PartitionSpec {
        let builder = PartitionSpec::builder(self.schema()).with_spec_id(spec);
        let builder = match spec {
            0 => Ok(builder),
            1 => builder.add_partition_field("p", "p", Transform::Identity),
            _ => builder.add_partition_field("id", "id_bucket", Transform::Bucket(BUCKETS)),
        };
        builder.and_then(|builder| builder.build()).expect("a partition spec")
    }
}

/// Buckets of the third spec.
pub(super) const BUCKETS: u32 = 4;

/// All partition specs of a table, as its metadata has them.
pub(super) fn specs_json() -> Value {
    json!([
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [{"source-id": 2, "field-id": 1000, "name": "p", "transform": "identity"}]},
        {"spec-id": 2, "fields": [{"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[4]"}]},
    ])
}

/// The bucket of an id.
pub(super) fn bucket(id: i64) -> i32 {
    let function = iceberg::transform::create_transform_function(&Transform::Bucket(BUCKETS)).expect("bucket");
    let bucket = function.transform_literal_result(&iceberg::spec::Datum::long(id)).expect("a bucket");
    match bucket.literal() {
        iceberg::spec::PrimitiveLiteral::Int(bucket) => *bucket,
        other => panic!("a bucket is an int, not {other:?}"),
    }
}
