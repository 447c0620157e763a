//! The filter of a job while rows are read: what of a file it rules out, and which rows of a batch it keeps.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::NestedFieldRef;
use iceferry_common::filter::BoundFilter;
use iceferry_common::model::{EpochContext, Resolution};
use parquet::file::metadata::ParquetMetaData;

use super::ReadError;
use super::fetch::Fetcher;
use super::file_schema::FileSchema;
use super::footer::OpenFile;
use super::project::{Adapter, IfMissing, Projection};
use super::prune::FilterColumns;

/// The filter of a task.
#[derive(Debug)]
pub(super) struct ReadFilter {
    bound: Arc<BoundFilter>,
    fields: Vec<NestedFieldRef>,
    schema: SchemaRef,
}

/// What of a file may match.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) row_groups: Vec<usize>,
    /// The rows of these row groups that may match, where that is known of pages.
    pub(super) within: HashMap<usize, Vec<Range<u64>>>,
    /// The file's metadata with its page indexes, where they were read.
    pub(super) metadata: Option<Arc<ParquetMetaData>>,
    /// Whether all rows match.
    pub(super) all_match: bool,
}

/// The filter on the rows of one file.
#[derive(Debug)]
pub(super) struct RowFilter {
    bound: Arc<BoundFilter>,
    adapter: Adapter,
    /// Ids of the adapter's columns.
    ids: Vec<i32>,
}

impl ReadFilter {
    /// The filter that a task's reader applies. Where updates are told it applies none: both halves of an update are needed
    /// for that, also the one that the filter leaves out.
    pub(super) fn of(context: &EpochContext, resolution: Resolution) -> Result<Option<Self>, ReadError> {
        let source = &context.source;
        let Some(filter) = source.filter.as_ref().filter(|_| !resolution.compares_all_rows()) else {
            return Ok(None);
        };
        let schema = schema_to_arrow_schema(filter.schema())
            .map_err(|error| ReadError::Table { table: source.table.clone(), what: error.to_string() })?;
        Ok(Some(Self {
            bound: Arc::new(filter.bound().clone()),
            fields: filter.schema().as_struct().fields().to_vec(),
            schema: Arc::new(schema),
        }))
    }

    /// Which of a file's row groups, and which of their rows, may match.
    pub(super) fn choose(
        &self,
        file: &OpenFile,
        schema: &FileSchema,
        row_groups: Vec<usize>,
        fetcher: &Fetcher,
    ) -> Result<Chosen, ReadError> {
        let (bound, footer) = (&self.bound, &file.metadata);
        let columns = FilterColumns::of(schema, footer, &self.fields);
        let mut row_groups = row_groups;
        row_groups.retain(|row_group| columns.may_match(bound, footer, *row_group));
        let unsure: Vec<usize> =
            row_groups.iter().copied().filter(|row_group| !columns.must_match(bound, footer, *row_group)).collect();
        let mut chosen = Chosen { row_groups, all_match: unsure.is_empty(), ..Chosen::default() };
        if !columns.have_page_index(footer, &unsure) {
            return Ok(chosen);
        }
        let metadata = file.with_page_bounds(fetcher)?;
        if metadata.offset_index().is_none() {
            return Ok(chosen);
        }
        for row_group in unsure {
            let rows = file.rows_of(row_group);
            let may_match = columns.rows_that_may_match(bound, &metadata, row_group, rows.clone());
            if may_match != [rows] {
                chosen.within.insert(row_group, may_match);
            }
        }
        chosen.metadata = (!chosen.within.is_empty()).then_some(metadata);
        Ok(chosen)
    }

    /// Wants the columns of the filter. Of use after [`RowFilter::settle`].
    pub(super) fn rows(&self, projection: &mut Projection<'_>) -> Result<RowFilter, ReadError> {
        Ok(RowFilter {
            bound: Arc::clone(&self.bound),
            adapter: projection.want(&self.fields, &self.schema, IfMissing::Null)?,
            ids: self.fields.iter().map(|field| field.id).collect(),
        })
    }
}

impl RowFilter {
    pub(super) fn settle(&mut self, projection: &Projection<'_>) {
        self.adapter.settle(projection);
    }

    /// Which rows of a batch of the file stay.
    pub(super) fn keep(&mut self, batch: &RecordBatch) -> Result<BooleanArray, ReadError> {
        let columns = self.adapter.columns(batch)?;
        let column = |id: i32| -> Option<ArrayRef> {
            let place = self.ids.iter().position(|of| *of == id)?;
            columns.get(place).cloned()
        };
        let kept = self.bound.evaluate(&column, batch.num_rows());
        kept.map_err(|source| ReadError::Filter { location: self.adapter.location().to_owned(), source })
    }
}
