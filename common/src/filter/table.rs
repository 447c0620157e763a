//! A filter together with the columns that it asks for: all that a worker needs to apply it.

use std::collections::HashSet;
use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, Schema, SchemaRef, StructType, Type};

use super::{BoundFilter, Filter, FilterError};

/// The filter of a table: bound, and with the columns that it asks for.
#[derive(Debug, Clone)]
pub struct TableFilter {
    filter: Filter,
    schema: SchemaRef,
    bound: BoundFilter,
}

impl TableFilter {
    /// Binds a filter to a table's schema.
    ///
    /// # Errors
    /// As [`Filter::bind`].
    pub fn new(filter: Filter, schema: &Schema) -> Result<Self, FilterError> {
        let bound = filter.bind(schema)?;
        let wanted: HashSet<i32> = bound.field_ids().into_iter().collect();
        let columns = Schema::builder()
            .with_schema_id(schema.schema_id())
            .with_fields(asked_for(schema.as_struct(), &wanted))
            .build()
            .map_err(|source| FilterError::Schema { source: Box::new(source) })?;
        Ok(Self { filter, schema: Arc::new(columns), bound })
    }

    /// The filter as it was written.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The columns that it asks for and nothing else, with the table's names and ids. All may be null: what a file lacks
    /// is null to a filter.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The filter by field id.
    pub fn bound(&self) -> &BoundFilter {
        &self.bound
    }
}

/// The rest follows from these.
impl PartialEq for TableFilter {
    fn eq(&self, other: &Self) -> bool {
        self.filter == other.filter && self.schema == other.schema
    }
}

/// Fields that are wanted, and structs down to those of their fields that are.
fn asked_for(fields: &StructType, wanted: &HashSet<i32>) -> Vec<NestedFieldRef> {
    let optional = |field: &NestedField| NestedField { required: false, ..field.clone() };
    let kept = |field: &NestedFieldRef| match field.field_type.as_ref() {
        Type::Struct(inner) => {
            let inner = asked_for(inner, wanted);
            let field_type = Box::new(Type::Struct(StructType::new(inner.clone())));
            (!inner.is_empty()).then(|| Arc::new(NestedField { field_type, ..optional(field) }))
        }
        _ => wanted.contains(&field.id).then(|| Arc::new(optional(field))),
    };
    fields.fields().iter().filter_map(kept).collect()
}
