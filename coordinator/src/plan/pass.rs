//! Equality deletes that go straight through to a keyed target: which of those that came need no look at old files. Pure.
//!
//! Where one goes straight through, the target deletes its keys, whatever rows have them. That is what the source did to
//! the state before if each of its rows that has such a key is in a file that the delete reaches: the delete is newer than
//! all files of the state, is keyed on the key, and reaches every file or just those of the partition that its keys say.
//! Planning then goes on as if the state before had had the delete: what differs from there to the state after is what is
//! left to do, files that came again, deletes that were taken away and rewritten rows included.

use std::collections::BTreeSet;

use iceberg::spec::{ManifestFile, PartitionSpec, PrimitiveType, Schema, TableMetadata, Transform};
use iceferry_common::model::Constant;

use super::PlanRequest;
use super::entry::{DeleteEntry, Scope};
use super::partition::{Partition, Value};
use super::planner::deletes_readable;
use super::reach::{DeleteId, may_reach};

/// A delete that goes straight through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) id: DeleteId,
    /// What its partition says of key columns: keys with other values reach nothing.
    pub(super) constants: Vec<Constant>,
}

/// What decides whether a delete goes straight through.
#[derive(Debug)]
pub(super) struct Passing<'a> {
    table: &'a TableMetadata,
    read_schema: &'a Schema,
    key: BTreeSet<i32>,
    /// Data manifests of the state before.
    before: Vec<&'a ManifestFile>,
    /// No data file of the state before has a higher sequence number.
    sequence: i64,
}

impl<'a> Passing<'a> {
    /// `None` when no delete may go straight through; `before` are the data manifests of the state before.
    pub(super) fn of(request: &'a PlanRequest, before: Vec<&'a ManifestFile>) -> Option<Self> {
        let snapshot = request.metadata.snapshot_by_id(request.before?.0)?;
        if !request.ways.passes_deletes || request.key.is_empty() {
            return None;
        }
        // The manifests' own numbers are looked at as well: they are at hand, and a damaged history must not cost rows.
        let numbers = before.iter().map(|manifest| manifest.sequence_number);
        let sequence = numbers.chain([snapshot.sequence_number()]).max()?;
        let key = request.key.iter().copied().collect();
        Some(Self { table: &request.metadata, read_schema: &request.read_schema, key, before, sequence })
    }

    /// What a delete that came is to be passed with, if it goes straight through. One that reaches no file of the state
    /// before need not.
    pub(super) fn constants(&self, delete: &DeleteEntry) -> Option<Vec<Constant>> {
        let Scope::Equality { field_ids, is_global, .. } = &delete.scope else { return None };
        let is_on_the_key = field_ids.iter().copied().collect::<BTreeSet<_>>() == self.key;
        if !is_on_the_key || delete.sequence <= self.sequence || deletes_readable(delete).is_err() {
            return None;
        }
        if !self.before.iter().any(|manifest| may_reach(delete, manifest)) {
            return None;
        }
        if *is_global {
            return Some(Vec::new());
        }
        let spec_id = delete.partition.spec_id;
        if self.before.iter().any(|manifest| manifest.partition_spec_id != spec_id) {
            return None;
        }
        self.partition_constants(self.table.partition_spec_by_id(spec_id)?, &delete.partition)
    }

    /// The values that a partition gives to columns of the key, when the key decides the partition and nothing but these
    /// values has to be compared for that.
    fn partition_constants(&self, spec: &PartitionSpec, partition: &Partition) -> Option<Vec<Constant>> {
        if spec.fields().len() != partition.values.len() {
            return None;
        }
        let mut constants = Vec::new();
        for (field, value) in spec.fields().iter().zip(&partition.values) {
            match field.transform {
                // Null for every row: it keeps none apart.
                Transform::Void => {}
                Transform::Identity if self.key.contains(&field.source_id) => {
                    let column = self.read_schema.field_by_id(field.source_id)?;
                    let value = serialized(value, column.field_type.as_primitive_type()?)?;
                    constants.push(Constant { field_id: field.source_id, value });
                }
                _ => return None,
            }
        }
        Some(constants)
    }
}

/// The single-value serialization of a partition value in a column's type; `None` where it has none for sure.
fn serialized(value: &Value, column: &PrimitiveType) -> Option<Option<Vec<u8>>> {
    use PrimitiveType as T;
    Some(Some(match (value, column) {
        (Value::Null, _) => return Some(None),
        (Value::Boolean(value), T::Boolean) => vec![u8::from(*value)],
        (Value::Integer(value), T::Int | T::Date) => i32::try_from(*value).ok()?.to_le_bytes().to_vec(),
        (
            Value::Integer(value),
            T::Long | T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs,
        ) => value.to_le_bytes().to_vec(),
        (Value::Bytes(value), T::String | T::Binary | T::Fixed(_)) => value.clone(),
        (Value::Wide(value), T::Decimal { .. }) => value.to_be_bytes().to_vec(),
        (Value::Uuid(value), T::Uuid) => value.to_be_bytes().to_vec(),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_values_are_given_in_the_columns_type_or_not_at_all() {
        use PrimitiveType as T;
        let long = |value: i64| Some(Some(value.to_le_bytes().to_vec()));
        let cases = [
            (Value::Null, T::Int, Some(None)),
            (Value::Boolean(true), T::Boolean, Some(Some(vec![1]))),
            (Value::Integer(7), T::Int, Some(Some(vec![7, 0, 0, 0]))),
            (Value::Integer(7), T::Long, long(7)),
            (Value::Integer(-1), T::Timestamptz, long(-1)),
            (Value::Integer(i64::MAX), T::Int, None),
            (Value::Integer(7), T::String, None),
            (Value::Bytes(b"ab".to_vec()), T::String, Some(Some(b"ab".to_vec()))),
            (Value::Uuid(1), T::Uuid, Some(Some(1u128.to_be_bytes().to_vec()))),
            (Value::Wide(-2), T::Decimal { precision: 9, scale: 2 }, Some(Some((-2i128).to_be_bytes().to_vec()))),
            (Value::Double(0), T::Double, None),
            (Value::Moment { at: 5, per_day: 9 }, T::Timestamp, None),
        ];
        for (value, column, expected) in cases {
            assert_eq!(serialized(&value, &column), expected, "{value:?} as {column}");
        }
    }
}
