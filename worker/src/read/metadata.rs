//! Metadata columns: where a row was found, who it is, and what changed it (spec, reserved field ids and row lineage).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, Schema as ArrowSchema, SchemaRef};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{Literal, NestedField, NestedFieldRef, PrimitiveType, Schema, Struct, StructType, Type};
use iceferry_common::model::{
    Changelog, Constant, DataFile, DuplicateKeys, FileDifference, Identity, MetadataColumn, SnapshotId, SourceCommit,
};

use super::ReadError;
use super::literal::{Repeated, one_row};
use super::project::{Adapter, IfMissing, Projection, constant_value};

/// Reserved field ids of the columns that a file may hold for rows that came from other files (spec, reserved field ids).
pub(crate) const ROW_ID_FIELD: i32 = 2_147_483_540;
pub(crate) const LAST_UPDATED_FIELD: i32 = 2_147_483_539;
/// Field ids of the columns that are given, for their Arrow schema alone.
const FIRST_GIVEN_FIELD: i32 = 2_147_483_000;

/// The metadata columns that a task's rows are to have.
#[derive(Debug)]
pub(super) struct MetadataColumns {
    changelog: Changelog,
    /// The columns as Arrow has them.
    schema: SchemaRef,
    /// The two lineage columns as a file may hold them.
    lineage: (Vec<NestedFieldRef>, SchemaRef),
}

/// The metadata columns of the rows of one file.
#[derive(Debug)]
pub(super) struct FileMetadata {
    columns: Vec<Column>,
    /// Reads what the file itself holds of the lineage.
    lineage: Option<Adapter>,
    first_row_id: Option<i64>,
    sequence_number: i64,
}

#[derive(Debug)]
enum Column {
    Repeated(Repeated),
    Position,
    RowId,
    LastUpdated,
}

impl MetadataColumns {
    /// The columns that the changelog wants; an Arrow schema of them that cannot be made is told by its text.
    pub(super) fn of(changelog: &Changelog) -> Result<Self, String> {
        let given = changelog.metadata_columns.iter().zip(FIRST_GIVEN_FIELD..);
        let given = given.map(|(column, id)| {
            let field_type = column.field_type(&changelog.partition_type);
            Arc::new(NestedField::optional(id, column.name(), field_type))
        });
        let long = |id, column: MetadataColumn| {
            Arc::new(NestedField::optional(id, column.name(), Type::Primitive(PrimitiveType::Long)))
        };
        let lineage = vec![
            long(ROW_ID_FIELD, MetadataColumn::RowId),
            long(LAST_UPDATED_FIELD, MetadataColumn::LastUpdatedSequenceNumber),
        ];
        let schema = arrow_schema(given.collect())?;
        Ok(Self { schema, lineage: (lineage.clone(), arrow_schema(lineage)?), changelog: changelog.clone() })
    }

    /// Positions alone.
    pub(super) fn positions() -> Result<Self, String> {
        Self::of(&Changelog {
            // Nothing of it is asked for.
            commit: SourceCommit { snapshot_id: SnapshotId(0), sequence_number: 0, timestamp_ms: 0, change_ordinal: 0 },
            metadata_columns: vec![MetadataColumn::Pos],
            partition_type: StructType::new(Vec::new()),
            identity: Identity::None,
            duplicate_keys: DuplicateKeys::Pair,
            compared_schema: None,
            columns: Vec::new(),
        })
    }

    /// The schema of columns with these behind them.
    pub(super) fn behind(&self, columns: &SchemaRef) -> SchemaRef {
        let fields = columns.fields().iter().chain(self.schema.fields()).cloned();
        Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
    }

    /// The columns for the rows of a file difference, and what of its file they need.
    pub(super) fn of_difference(
        &self,
        difference: &FileDifference,
        projection: &mut Projection<'_>,
    ) -> Result<FileMetadata, ReadError> {
        let (wanted, file) = (&self.changelog.metadata_columns, &difference.file);
        let columns = wanted.iter().enumerate().map(|(place, column)| self.column(*column, place, difference));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let (fields, schema) = &self.lineage;
        let lineage = match wanted.iter().any(|column| column.is_lineage()) {
            true => Some(projection.want(fields, schema, IfMissing::Null)?),
            false => None,
        };
        Ok(FileMetadata { columns, lineage, first_row_id: file.first_row_id, sequence_number: file.sequence_number })
    }

    fn column(&self, column: MetadataColumn, place: usize, difference: &FileDifference) -> Result<Column, ReadError> {
        let (commit, file) = (self.changelog.commit_of(difference), &difference.file);
        let value = match column {
            MetadataColumn::Pos => return Ok(Column::Position),
            MetadataColumn::RowId => return Ok(Column::RowId),
            MetadataColumn::LastUpdatedSequenceNumber => return Ok(Column::LastUpdated),
            _ => file_value(&self.changelog, column, commit, file)?,
        };
        let field_type = column.field_type(&self.changelog.partition_type);
        let one = one_row(value.as_ref(), &field_type, self.schema.field(place).data_type());
        one.map(|one| Column::Repeated(Repeated::new(one))).map_err(|what| refuse(file, column.name(), what))
    }
}

/// The value that a metadata column has in all rows of a file; `None` for those that differ by row.
pub(crate) fn file_value(
    changelog: &Changelog,
    column: MetadataColumn,
    commit: SourceCommit,
    file: &DataFile,
) -> Result<Option<Literal>, ReadError> {
    Ok(Some(match column {
        MetadataColumn::Pos | MetadataColumn::RowId | MetadataColumn::LastUpdatedSequenceNumber => return Ok(None),
        MetadataColumn::CommitSnapshotId => Literal::long(commit.snapshot_id.0),
        MetadataColumn::CommitSnapshotSequenceNumber => Literal::long(commit.sequence_number),
        MetadataColumn::CommitTimestamp => Literal::long(commit.timestamp_ms.saturating_mul(1000)),
        MetadataColumn::ChangeOrdinal => Literal::int(commit.change_ordinal),
        MetadataColumn::File => Literal::string(&file.location),
        MetadataColumn::SpecId => Literal::int(file.spec_id),
        MetadataColumn::Partition => partition(&changelog.partition_type, file)?,
    }))
}

fn arrow_schema(fields: Vec<NestedFieldRef>) -> Result<SchemaRef, String> {
    let schema = Schema::builder().with_fields(fields).build().map_err(|error| error.to_string())?;
    schema_to_arrow_schema(&schema).map(Arc::new).map_err(|error| error.to_string())
}

fn refuse(file: &DataFile, column: &str, what: String) -> ReadError {
    ReadError::Column { location: file.location.clone(), column: column.to_owned(), what }
}

/// The file's partition: null in the fields of other specs.
fn partition(partition_type: &StructType, file: &DataFile) -> Result<Literal, ReadError> {
    let value = |field: &NestedFieldRef| {
        let name = || format!("{}.{}", MetadataColumn::Partition, field.name);
        let constant = file.partition.iter().find(|constant| constant.field_id == field.id);
        match (constant, field.field_type.as_ref()) {
            (Some(Constant { value: Some(bytes), .. }), Type::Primitive(primitive)) => {
                constant_value(bytes, primitive).map(Some).map_err(|what| refuse(file, &name(), what))
            }
            (Some(Constant { value: Some(_), .. }), _) => {
                Err(refuse(file, &name(), "a partition value cannot be nested".to_owned()))
            }
            (Some(Constant { value: None, .. }) | None, _) => Ok(None),
        }
    };
    let values = partition_type.fields().iter().map(value).collect::<Result<Vec<_>, _>>()?;
    Ok(Literal::Struct(Struct::from_iter(values)))
}

impl FileMetadata {
    /// Settles which columns are read, after everything that is wanted of the file is known.
    pub(super) fn settle(&mut self, projection: &Projection<'_>) {
        if let Some(lineage) = &mut self.lineage {
            lineage.settle(projection);
        }
    }

    /// Whether [`Self::columns`] needs to know positions.
    pub(super) fn needs_positions(&self) -> bool {
        self.columns.iter().any(|column| matches!(column, Column::Position | Column::RowId))
    }

    /// The columns for rows as they come from the file, with their positions in it.
    pub(super) fn columns(
        &mut self,
        location: &str,
        rows: &RecordBatch,
        positions: &[i64],
    ) -> Result<Vec<ArrayRef>, ReadError> {
        let lineage = match &mut self.lineage {
            Some(lineage) => Some(lineage.apply(rows)?),
            None => None,
        };
        let held = |place: usize| lineage.as_ref().map(|lineage| lineage.column(place).as_primitive::<Int64Type>());
        let (first_row_id, sequence_number) = (self.first_row_id, self.sequence_number);
        let column = |column: &mut Column| -> Result<ArrayRef, arrow::error::ArrowError> {
            Ok(match column {
                Column::Repeated(repeated) => repeated.rows(rows.num_rows())?,
                Column::Position => Arc::new(Int64Array::from(positions.to_vec())),
                // Rows of a file outside of the lineage have neither an id nor a last update.
                Column::RowId => or_else(held(0), rows.num_rows(), |row| {
                    first_row_id.and_then(|first| first.checked_add(positions[row]))
                }),
                Column::LastUpdated => or_else(held(1), rows.num_rows(), |_| first_row_id.map(|_| sequence_number)),
            })
        };
        let columns = self.columns.iter_mut().map(column).collect::<Result<Vec<_>, _>>();
        columns.map_err(|error| ReadError::damaged(location, format!("its metadata columns cannot be made: {error}")))
    }
}

/// The values that are held, and others where there are none.
fn or_else(held: Option<&Int64Array>, rows: usize, other: impl Fn(usize) -> Option<i64>) -> ArrayRef {
    let held = held.filter(|held| held.null_count() < held.len());
    let value = |row: usize| held.filter(|held| held.is_valid(row)).map(|held| held.value(row)).or_else(|| other(row));
    Arc::new((0..rows).map(value).collect::<Int64Array>())
}
