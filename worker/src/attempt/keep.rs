//! The filter where updates are told: it comes behind the tag step, so that the half of an update that it keeps is told as
//! one, whether it keeps the other half or not.

use std::collections::HashMap;

use arrow::compute::filter_record_batch;
use iceferry_common::fault::Class;
use iceferry_common::filter::{BoundFilter, FilterError};
use iceferry_common::model::{EpochContext, Resolution};

use super::AttemptError;
use crate::ChangeBatch;

/// Keeps the rows of tagged batches that match.
#[derive(Debug)]
pub(super) struct Keep {
    bound: BoundFilter,
    /// Places in the read schema by field id.
    places: HashMap<i32, usize>,
}

impl Keep {
    /// The filter for tagged rows; `None` when the reader has applied it, or there is none.
    pub(super) fn of(context: &EpochContext, resolution: Resolution) -> Result<Option<Self>, AttemptError> {
        let source = &context.source;
        let Some(filter) = source.filter.as_ref().filter(|_| resolution.compares_all_rows()) else {
            return Ok(None);
        };
        let fields = source.read_schema.as_struct().fields();
        let places: HashMap<i32, usize> = fields.iter().enumerate().map(|(place, field)| (field.id, place)).collect();
        let bound = filter.bound().clone();
        if let Some(id) = bound.top_level_ids().into_iter().find(|id| !places.contains_key(id)) {
            return Err(AttemptError {
                class: Class::Refused,
                message: format!(
                    "source.filter asks for field {id} of {}, which is not among the columns that are read, and updates are \
                     told by these; add it to them",
                    source.table
                ),
                left_behind: Vec::new(),
            });
        }
        Ok(Some(Self { bound, places }))
    }

    /// The rows of a batch that match; `None` when there are none.
    pub(super) fn apply(&self, batch: ChangeBatch) -> Result<Option<ChangeBatch>, FilterError> {
        let column = |id: i32| self.places.get(&id).and_then(|place| batch.rows.columns().get(*place)).cloned();
        let kept = self.bound.evaluate(&column, batch.rows.num_rows())?;
        let count = kept.true_count();
        if count == kept.len() {
            return Ok(Some(batch));
        }
        let rows = filter_record_batch(&batch.rows, &kept)
            .map_err(|source| FilterError::Compare { column: "*".into(), source })?;
        Ok((count > 0).then_some(ChangeBatch { rows, ..batch }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, RecordBatch, StringArray};
    use iceberg::arrow::schema_to_arrow_schema;
    use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
    use iceferry_common::filter::Filter;

    use super::*;
    use crate::{Change, Columns};

    #[test]
    fn the_half_of_an_update_that_matches_stays_an_update() {
        let field = |id, name: &str, of| Arc::new(NestedField::optional(id, name, Type::Primitive(of)));
        let fields = [field(1, "id", PrimitiveType::Int), field(2, "v", PrimitiveType::String)];
        let schema = Schema::builder().with_fields(fields).build().unwrap();
        let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
        let keep = Keep {
            bound: Filter::parse("v = 'x'").unwrap().bind(&schema).unwrap(),
            places: HashMap::from([(1, 0), (2, 1)]),
        };
        let batch = |change, values: &[&str]| {
            let ids = Int32Array::from_iter_values(0..values.len() as i32);
            let values = StringArray::from_iter_values(values);
            let rows = RecordBatch::try_new(Arc::clone(&arrow), vec![Arc::new(ids), Arc::new(values)]).unwrap();
            ChangeBatch { change, columns: Columns::All, rows }
        };
        let kept = keep.apply(batch(Change::UpdateBefore, &["x", "y", "x"])).unwrap().unwrap();
        assert_eq!((kept.change, kept.rows.num_rows()), (Change::UpdateBefore, 2));
        assert!(keep.apply(batch(Change::UpdateAfter, &["y", "z"])).unwrap().is_none());
        assert_eq!(keep.apply(batch(Change::Insert, &["x"])).unwrap().unwrap().rows.num_rows(), 1);
    }
}
