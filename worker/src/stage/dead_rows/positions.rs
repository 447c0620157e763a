//! Position delete files, one for each data file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use iceberg::spec::{NestedField, PrimitiveType, Schema, SchemaRef, Type};
use iceferry_common::model::{MetricsMode, ParquetSettings, StagedContent, StagedFile, staged_file_location};

use super::super::StageError;
use super::super::file::{ClosedFile, Form, OpenFile};
use super::super::layout::Layout;
use super::super::settings::writer_properties;
use super::super::upload::Ended;
use super::{DeadRows, Of};

/// Reserved field ids of the spec.
const FILE_PATH_ID: i32 = 2_147_483_546;
const POS_ID: i32 = 2_147_483_545;
/// Rows that are encoded at once.
const BATCH_ROWS: usize = 8192;

pub(super) fn stage(
    of: Of<'_>,
    dead: &[DeadRows],
    first_file: usize,
    begun: &mut Vec<String>,
) -> Result<Vec<StagedFile>, StageError> {
    let target = &of.context.target;
    // Readers tell by the bounds of file_path which data files a delete file is for: cut, they would tell nothing.
    let settings = ParquetSettings {
        metrics_default: MetricsMode::Full,
        metrics_columns: HashMap::new(),
        ..target.parquet.clone()
    };
    let schema =
        schema().map_err(|source| StageError::Schema { table: target.table.clone(), source: source.into() })?;
    let layout = Arc::new(Layout::new(&target.table, schema, &settings)?);
    let mut form = Form {
        content: StagedContent::PositionDeletes,
        properties: writer_properties(&settings, &layout, &[])?,
        layout,
        equality_ids: Vec::new(),
        referenced_data_file: None,
    };
    let mut staged = Vec::with_capacity(dead.len());
    for (number, dead) in dead.iter().enumerate() {
        let location = staged_file_location(of.context, of.task, of.attempt, form.content, first_file + number);
        begun.push(location.clone());
        form.referenced_data_file = Some(dead.data_file.clone());
        staged.push(stage_one(of, &form, dead, location)?);
    }
    Ok(staged)
}

fn schema() -> iceberg::Result<SchemaRef> {
    let field = |id, name, of| Arc::new(NestedField::required(id, name, Type::Primitive(of)));
    let fields = [field(FILE_PATH_ID, "file_path", PrimitiveType::String), field(POS_ID, "pos", PrimitiveType::Long)];
    Schema::builder().with_fields(fields).build().map(Arc::new)
}

fn stage_one(of: Of<'_>, form: &Form, dead: &DeadRows, location: String) -> Result<StagedFile, StageError> {
    let mut open = OpenFile::begin(form, of.storage, of.runtime, location.clone())?;
    // Positions come in ascending order, as the spec wants them.
    let mut positions = dead.positions.iter();
    loop {
        let batch: Int64Array = positions.by_ref().take(BATCH_ROWS).map(|position| position as i64).collect();
        if batch.is_empty() {
            break;
        }
        let paths = StringArray::from_iter_values(std::iter::repeat_n(dead.data_file.as_str(), batch.len()));
        let columns: Vec<ArrayRef> = vec![Arc::new(paths), Arc::new(batch)];
        let rows = RecordBatch::try_new(Arc::clone(&form.layout.arrow), columns);
        let written = rows.map_err(Into::into).and_then(|rows| open.write(&rows));
        if let Err(error) = written {
            return Err(open.failed(error, of.runtime));
        }
    }
    let ClosedFile { file, upload } = open.close(form, of.runtime)?;
    match of.runtime.block_on(upload.ended()) {
        Ended::Well => Ok(file),
        Ended::Failed(source) => Err(StageError::Upload { location, source: Box::new(source) }),
        Ended::CutOff => Err(StageError::CutOff { location }),
    }
}
