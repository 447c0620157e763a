//! Keys of equality deletes that go straight through to the target: read from the delete files alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{and, filter_record_batch, is_not_null};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{NestedFieldRef, Schema};
use iceferry_common::model::{Constant, DeleteKind, EpochContext, PassDeletesWork, ScanTask};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;

use super::delete_columns::DeleteColumns;
use super::deletes::Ahead;
use super::fetch::Fetcher;
use super::file_schema::FallbackIds;
use super::key_fields::KeyFields;
use super::literal::one_row;
use super::project::constant_value;
use super::select::row_groups_with_rows;
use super::{ReadError, ReadOptions};
use crate::{Change, ChangeBatch, Columns};

/// Reads the keys of a task's delete files, one file after the other, as DELETEs with the key columns alone. It blocks, as
/// [`TaskReader`](super::TaskReader) does.
///
/// An iterator that ends after its first error.
pub struct KeyReader {
    task: Arc<ScanTask>,
    fetcher: Fetcher,
    options: ReadOptions,
    ids: FallbackIds,
    fields: KeyFields,
    /// The key columns as the read schema has them, in the order of the key.
    schema: SchemaRef,
    /// Whether neither source nor target can have a null there: a null reaches no row then.
    required: Vec<bool>,
    /// For each delete file what its partition says of key columns, by their place in the key.
    constants: Vec<Vec<(usize, Scalar<ArrayRef>)>>,
    ahead: Ahead,
    /// The file that is read, by its index.
    current: Option<(usize, DeleteColumns)>,
    rows_read: u64,
    failed: bool,
}

impl KeyReader {
    /// Makes a reader of a task's keys. No bytes are asked for yet.
    ///
    /// # Errors
    /// When the task or its context contradicts itself.
    pub fn open(
        context: &EpochContext,
        task: &ScanTask,
        work: &PassDeletesWork,
        storage: Storage,
        runtime: Handle,
        options: ReadOptions,
    ) -> Result<Self, ReadError> {
        let source = &context.source;
        let contradiction = |what: String| ReadError::Task { task: task.id.0, what };
        let (read, written) =
            (source.read_schema.as_struct().fields(), context.target.write_schema.as_struct().fields());
        if read.len() != written.len() || context.target.key.is_empty() || work.constants.len() != task.deletes.len() {
            let what = "equality deletes go straight through only to a mirror with a key, each with its constants";
            return Err(contradiction(what.to_owned()));
        }
        let place = |id: &i32| {
            let place = written.iter().position(|field| field.id == *id);
            place.ok_or_else(|| contradiction(format!("key field {id} is no top-level column of the target")))
        };
        let places = context.target.key.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let key: Vec<i32> = places.iter().map(|place| read[*place].id).collect();
        check_keys(task, &key).map_err(contradiction)?;
        let refuse = |what: String| ReadError::Table { table: source.table.clone(), what };
        let fields = KeyFields::of(&source.read_schema, &key).map_err(refuse)?;
        let schema = schema_to_arrow_schema(&source.read_schema).map_err(|error| refuse(error.to_string()))?;
        let schema = Arc::new(schema.project(&places).map_err(|error| contradiction(error.to_string()))?);
        let of_file = |constants: &Vec<Constant>| known(constants, &key, &source.read_schema, &schema);
        let constants = work.constants.iter().map(of_file).collect::<Result<_, _>>().map_err(contradiction)?;
        let ids = FallbackIds::of_table(&source.table, source.name_mapping.as_deref())?.certain();
        Ok(Self {
            ahead: Ahead::of((0..task.deletes.len() as u32).collect()),
            task: Arc::new(task.clone()),
            fetcher: Fetcher::new(storage, runtime, options.cancel.clone()),
            options,
            ids,
            fields,
            schema,
            required: places.iter().map(|place| read[*place].required || written[*place].required).collect(),
            constants,
            current: None,
            rows_read: 0,
            failed: false,
        })
    }

    /// Keys read so far, those included that were left out.
    pub fn rows_read(&self) -> u64 {
        self.rows_read
    }

    /// Bytes that storage gave so far.
    pub fn bytes_fetched(&self) -> u64 {
        self.fetcher.bytes_fetched()
    }

    fn next_batch(&mut self) -> Result<Option<ChangeBatch>, ReadError> {
        loop {
            let Some((index, columns)) = &mut self.current else {
                let Some((index, ahead)) = self.ahead.next(&self.task, &self.fetcher) else { return Ok(None) };
                let index = index as usize;
                let columns = DeleteColumns::open(
                    &self.fetcher,
                    &self.options,
                    (&self.task.deletes[index], ahead),
                    (&self.fields.required, &self.fields.read_schema),
                    // By its position or an older name, another column might pass for the key.
                    &self.ids,
                    |file, _| row_groups_with_rows(&file.metadata).collect(),
                )?;
                self.current = Some((index, columns));
                continue;
            };
            let index = *index;
            let Some(columns) = columns.next()? else {
                self.current = None;
                continue;
            };
            self.rows_read += columns.first().map_or(0, |column| column.len() as u64);
            let rows = self.that_reach(index, columns).map_err(|error| {
                let what = format!("its keys are not comparable: {error}");
                ReadError::unsupported(&self.task.deletes[index].location, what)
            })?;
            if rows.num_rows() > 0 {
                return Ok(Some(ChangeBatch { change: Change::Delete, columns: Columns::Key, rows }));
            }
        }
    }

    /// The keys that may reach a row.
    fn that_reach(&self, file: usize, columns: Vec<ArrayRef>) -> Result<RecordBatch, ArrowError> {
        let mut reach: Option<BooleanArray> = None;
        let mut all_of = |kept: BooleanArray| {
            reach = Some(match reach.take() {
                Some(others) => and(&others, &kept)?,
                None => kept,
            });
            Ok::<_, ArrowError>(())
        };
        for (column, is_required) in columns.iter().zip(&self.required) {
            if *is_required && column.null_count() > 0 {
                all_of(is_not_null(column)?)?;
            }
        }
        for (place, value) in &self.constants[file] {
            all_of(not_distinct(&columns[*place], value)?)?;
        }
        let Some(reach) = reach else { return RecordBatch::try_new(Arc::clone(&self.schema), columns) };
        let all = RecordBatch::try_new(Arc::clone(&self.fields.read_schema), columns)?;
        let kept = filter_record_batch(&all, &reach)?;
        RecordBatch::try_new(Arc::clone(&self.schema), kept.columns().to_vec())
    }
}

impl Iterator for KeyReader {
    type Item = Result<ChangeBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let batch = self.next_batch().transpose();
        self.failed = !matches!(batch, Some(Ok(_)));
        batch
    }
}

/// That all delete files of a task are keyed on the key, and on nothing else.
fn check_keys(task: &ScanTask, key: &[i32]) -> Result<(), String> {
    let is_on_the_key = |kind: &DeleteKind| match kind {
        DeleteKind::Equality { field_ids } => {
            key.iter().all(|id| field_ids.contains(id)) && field_ids.iter().all(|id| key.contains(id))
        }
        DeleteKind::Position | DeleteKind::Vector { .. } => false,
    };
    match task.deletes.iter().find(|file| !is_on_the_key(&file.kind)) {
        None => Ok(()),
        Some(file) => Err(format!("{} is no equality delete on the key, fields {key:?}", file.location)),
    }
}

/// The constants of a delete file as arrays of one row.
fn known(
    constants: &[Constant],
    key: &[i32],
    read_schema: &Schema,
    schema: &SchemaRef,
) -> Result<Vec<(usize, Scalar<ArrayRef>)>, String> {
    let one = |constant: &Constant| {
        let id = constant.field_id;
        let place = key.iter().position(|of_key| *of_key == id);
        let place = place.ok_or_else(|| format!("field {id} of a delete file's partition is not in the key"))?;
        let field: &NestedFieldRef = read_schema.field_by_id(id).ok_or_else(|| format!("field {id} is not read"))?;
        let primitive = field.field_type.as_primitive_type().ok_or_else(|| format!("key field {id} is nested"))?;
        let value = constant.value.as_deref().map(|bytes| constant_value(bytes, primitive)).transpose()?;
        let array = one_row(value.as_ref(), &field.field_type, schema.field(place).data_type())?;
        Ok((place, Scalar::new(array)))
    };
    constants.iter().map(one).collect()
}
