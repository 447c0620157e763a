//! Reading chosen columns of a delete file from its first row to its last.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use iceberg::arrow::type_to_arrow_type;
use iceberg::spec::NestedFieldRef;
use iceferry_common::model::DeleteFile;

use super::fetch::{Fetch, Fetcher, FileHandle};
use super::file_schema::{FallbackIds, FileSchema};
use super::footer::OpenFile;
use super::opened::{Opened, OpenedRows};
use super::project::{Adapter, IfMissing, Projection};
use super::select::Rows;
use super::{ReadError, ReadOptions};

/// Gives the columns batch by batch.
pub(super) struct DeleteColumns {
    rows: OpenedRows,
    adapter: Adapter,
}

/// The Arrow schema of fields that may all be null, whatever the table says of them.
pub(super) fn nullable_schema(fields: &[NestedFieldRef]) -> Result<SchemaRef, iceberg::Error> {
    let arrow = |field: &NestedFieldRef| Ok(Field::new(&field.name, type_to_arrow_type(&field.field_type)?, true));
    Ok(Arc::new(Schema::new(fields.iter().map(arrow).collect::<Result<Vec<_>, iceberg::Error>>()?)))
}

impl DeleteColumns {
    /// Opens a file, whose first bytes may be under way as `ahead`. `row_groups` picks among those of a Parquet file. All
    /// `fields` should be required: a delete file that lacks its own key must not pass for one that deletes nulls.
    pub(super) fn open(
        fetcher: &Fetcher,
        options: &ReadOptions,
        (file, ahead): (&DeleteFile, Option<Fetch>),
        (fields, schema): (&[NestedFieldRef], &SchemaRef),
        ids: &FallbackIds,
        row_groups: impl FnOnce(&OpenFile, &FileSchema) -> Vec<usize>,
    ) -> Result<Self, ReadError> {
        let handle = FileHandle::new(&file.location, file.size_bytes);
        let opened = Opened::open(fetcher, &handle, file.format, ahead, ids)?;
        let mut projection = Projection::new(&handle.location, opened.schema(), &[]);
        let mut adapter = projection.want(fields, schema, IfMissing::Refuse)?;
        adapter.settle(&projection);
        let chosen = opened.choose(row_groups);
        let rows = opened.rows(&projection, chosen, Rows::All, Some(file.record_count), fetcher, options)?;
        Ok(Self { rows, adapter })
    }

    /// The columns of the next rows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Vec<ArrayRef>>, ReadError> {
        self.rows.next()?.map(|batch| self.adapter.columns(&batch)).transpose()
    }
}
