//! Reading chosen columns of a Parquet delete file from its first row to its last.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use iceberg::arrow::type_to_arrow_type;
use iceberg::spec::{NestedField, NestedFieldRef};

use super::fetch::{Fetch, Fetcher, FileHandle};
use super::file_schema::{FallbackIds, FileSchema};
use super::footer::OpenFile;
use super::project::{Adapter, IfMissing, Projection};
use super::rows::{FileRows, Request};
use super::select::Rows;
use super::{ReadError, ReadOptions};

/// Gives the columns batch by batch.
pub(super) struct DeleteColumns {
    rows: FileRows,
    adapter: Adapter,
}

/// The Arrow schema of fields that may all be null, whatever the table says of them.
pub(super) fn nullable_schema(fields: &[NestedFieldRef]) -> Result<SchemaRef, iceberg::Error> {
    let arrow = |field: &NestedFieldRef| Ok(Field::new(&field.name, type_to_arrow_type(&field.field_type)?, true));
    Ok(Arc::new(Schema::new(fields.iter().map(arrow).collect::<Result<Vec<_>, iceberg::Error>>()?)))
}

impl DeleteColumns {
    /// Opens the file, whose end is under way as `tail`. `row_groups` picks among its row groups.
    pub(super) fn open(
        fetcher: &Fetcher,
        options: &ReadOptions,
        (handle, tail): (&FileHandle, Fetch),
        fields: &[NestedFieldRef],
        schema: &SchemaRef,
        ids: &FallbackIds,
        row_groups: impl FnOnce(&OpenFile, &FileSchema) -> Vec<usize>,
    ) -> Result<Self, ReadError> {
        let file = Arc::new(OpenFile::open(fetcher, handle, tail)?);
        let file_schema = FileSchema::of(&handle.location, &file.metadata, ids)?;
        // A delete file that lacks its own key must not pass for one that deletes nulls, so no field is optional here.
        let required = |field: &NestedFieldRef| -> NestedFieldRef {
            NestedField::required(field.id, &field.name, (*field.field_type).clone()).into()
        };
        let required: Vec<NestedFieldRef> = fields.iter().map(required).collect();
        let mut projection = Projection::new(&handle.location, &file_schema, &[]);
        let mut adapter = projection.want(&required, schema, IfMissing::Refuse)?;
        adapter.settle(&projection);
        let row_groups = row_groups(&file, &file_schema);
        let request = Request {
            leaves: projection.leaves(),
            mask: projection.mask(),
            row_groups,
            rows: Rows::All,
            within: HashMap::new(),
            metadata: None,
        };
        Ok(Self { rows: FileRows::new(file, &file_schema, request, fetcher, options)?, adapter })
    }

    /// The columns of the next rows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Vec<ArrayRef>>, ReadError> {
        self.rows.next()?.map(|batch| self.adapter.columns(&batch)).transpose()
    }
}
