//! A condition on rows as one on their partition: what must hold of the partition's values if some row in it matches.
//!
//! Values of a partition are compared with literals that went through the same transform.

use iceberg::spec::{Datum, FieldSummary, Literal, PartitionSpec, PrimitiveType, Struct};

use super::bind::{BoundFilter, ColumnTest};
use super::condition::{Node, Test};
use super::prune::Range;
use super::transform::{Doubt, project};
use super::value::{Value, is_float};

/// What must hold of a partition if some row in it matches.
#[derive(Clone)]
pub struct PartitionFilter {
    root: Node<PartitionTest>,
    /// Fields of the partition.
    fields: usize,
}

/// A test of one value of the partition.
#[derive(Debug, Clone)]
struct PartitionTest {
    /// The value's place in the tuple.
    at: usize,
    /// The value's type.
    kind: PrimitiveType,
    test: Test,
    doubt: Doubt,
}

impl BoundFilter {
    /// The condition on partitions of a spec. Transforms that are not known, and conditions that say nothing of the partition,
    /// let all pass.
    pub fn project(&self, spec: &PartitionSpec) -> PartitionFilter {
        let root = self.root.map(&|leaf| self.project_leaf(leaf, spec));
        PartitionFilter { root, fields: spec.fields().len() }
    }

    fn project_leaf(&self, leaf: &ColumnTest, spec: &PartitionSpec) -> Node<PartitionTest> {
        let column = &self.columns[leaf.column];
        let mut parts = Vec::new();
        for (at, field) in spec.fields().iter().enumerate().filter(|(_, field)| field.source_id == column.id()) {
            let projected = project(field.transform, &column.kind, &leaf.test);
            parts.extend(projected.map(|(test, kind, doubt)| Node::Leaf(PartitionTest { at, kind, test, doubt })));
        }
        Node::and(parts)
    }
}

/// Literals may hold what logs must not show.
impl std::fmt::Debug for PartitionFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionFilter").field("fields", &self.fields).finish_non_exhaustive()
    }
}

impl PartitionFilter {
    /// Whether a file of this partition may hold a row that matches. `false` is certain.
    pub fn may_match_partition(&self, partition: &Struct) -> bool {
        let values: Vec<Option<&Literal>> = partition.iter().collect();
        if values.len() != self.fields {
            return true;
        }
        self.root.holds(&|leaf| {
            leaf.may_match(match values[leaf.at] {
                None => Some(Range::one(None)),
                Some(Literal::Primitive(literal)) => {
                    Value::of(&leaf.kind, literal).map(|value| Range::one(Some(value)))
                }
                Some(_) => None,
            })
        })
    }

    /// Whether a manifest with these summaries may list a file with a row that matches. `false` is certain.
    pub fn may_match_summaries(&self, summaries: &[FieldSummary]) -> bool {
        if summaries.len() != self.fields {
            return true;
        }
        self.root.holds(&|leaf| leaf.may_match(Some(summarized(&leaf.kind, &summaries[leaf.at]))))
    }
}

impl PartitionTest {
    /// Whether it may hold in a range; in one that cannot be read it may.
    fn may_match(&self, range: Option<Range>) -> bool {
        match range.and_then(|range| self.doubt.widened(range)) {
            Some(range) => range.may_match(&self.test),
            None => true,
        }
    }
}

fn summarized(kind: &PrimitiveType, summary: &FieldSummary) -> Range {
    let bound = |bytes: Option<&[u8]>| bytes.and_then(|bytes| decoded(kind, bytes));
    Range {
        lower: bound(summary.lower_bound.as_ref().map(|bytes| bytes.as_slice())),
        upper: bound(summary.upper_bound.as_ref().map(|bytes| bytes.as_slice())),
        is_exact: false,
        may_be_null: summary.contains_null,
        may_be_nan: is_float(kind) && summary.contains_nan != Some(false),
        may_be_value: true,
    }
    .trusted(kind)
}

fn decoded(kind: &PrimitiveType, bytes: &[u8]) -> Option<Value> {
    let written = match kind {
        // From before a date became a timestamp.
        PrimitiveType::Timestamp | PrimitiveType::TimestampNs if bytes.len() == 4 => PrimitiveType::Date,
        kind => kind.clone(),
    };
    Value::of_datum(kind, &Datum::try_from_bytes(bytes, written).ok()?)
}
