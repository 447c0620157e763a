//! The reader of a scan task: it goes through the task's steps and gives the rows of each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::NestedFieldRef;
use iceferry_common::model::{EpochContext, FileDifference, FileFormat, Resolution, ScanTask, Side, Work};
use iceferry_common::storage::Storage;
use parquet::basic::Encoding;
use parquet::file::metadata::ColumnChunkMetaData;
use roaring::RoaringTreemap;
use tokio::runtime::Handle;

use super::deletes::{Deletes, KeyIds, SideDeletes};
use super::difference::{Candidates, DEAD_AFTER, DEAD_BEFORE, Marks, Step, candidates, compare, marks, steps};
use super::fetch::{Fetch, Fetcher, FileHandle};
use super::file_schema::{FallbackIds, Shape};
use super::filter::{Chosen, ReadFilter, RowFilter};
use super::metadata::{FileMetadata, MetadataColumns};
use super::opened::{Opened, OpenedRows, start_open};
use super::project::{Adapter, IfMissing, Projection};
use super::select::{Rows, row_groups};
use super::{ReadError, ReadOptions};
use crate::{Change, ChangeBatch, Columns};

/// A dictionary that takes more than one part in so many of its column has nearly as many values as the column: looking
/// each up costs more than the codec saves by it.
const DICTIONARY_SHARE: i64 = 10;
/// Below this a dictionary says nothing: in a small file it is always a large part.
const DICTIONARY_BYTES_MIN: i64 = 64 * 1024;

/// Reads a scan task. It blocks, so it belongs on a thread that may; the bytes come by requests on the runtime.
///
/// An iterator that ends after its first error.
pub struct TaskReader {
    pub(super) task: Arc<ScanTask>,
    fetcher: Fetcher,
    options: ReadOptions,
    ids: FallbackIds,
    all: Wanted,
    key: Option<Wanted>,
    metadata: Option<MetadataColumns>,
    filter: Option<ReadFilter>,
    pub(super) deletes: Deletes,
    steps: VecDeque<Step>,
    /// Rows that came back in files whose DELETE rows were read already.
    came: HashMap<usize, (RoaringTreemap, Marks)>,
    opened: Option<Opened>,
    /// The first request of the file that is read next, under way.
    ahead: Option<(FileHandle, Option<Fetch>)>,
    current: Option<Reading>,
    rows_read: u64,
    failed: bool,
}

/// Columns to give.
#[derive(Debug, Clone)]
struct Wanted {
    columns: Columns,
    fields: Vec<NestedFieldRef>,
    schema: SchemaRef,
}

/// A step under way.
struct Reading {
    step: Step,
    columns: Columns,
    rows: OpenedRows,
    output: Adapter,
    /// Columns that come behind those of the output, and the schema of both.
    metadata: Option<(FileMetadata, SchemaRef)>,
    filter: Option<RowFilter>,
    tests: Vec<KeyTest>,
    /// Rows with this mark are left out.
    dead: u8,
}

/// Looks rows up in the keys of equality deletes.
struct KeyTest {
    ids: KeyIds,
    adapter: Adapter,
    marks_of: Vec<u8>,
}

impl TaskReader {
    /// Makes a reader of a task. No bytes are asked for yet.
    ///
    /// # Errors
    /// When the task or its context contradicts itself, or the table has something that is not supported.
    pub fn open(
        context: &EpochContext,
        task: &ScanTask,
        storage: Storage,
        runtime: Handle,
        options: ReadOptions,
    ) -> Result<Self, ReadError> {
        let source = &context.source;
        let refuse = |what: String| ReadError::Table { table: source.table.clone(), what };
        let schema = schema_to_arrow_schema(&source.read_schema).map_err(|error| refuse(error.to_string()))?;
        let fields = source.read_schema.as_struct().fields().to_vec();
        let all = Wanted { columns: Columns::All, fields, schema: Arc::new(schema) };
        let key = key_columns(context, task, &all)?;
        let metadata = match &context.changelog {
            Some(changelog) => Some(MetadataColumns::of(changelog).map_err(refuse)?),
            None if options.positions => Some(MetadataColumns::positions().map_err(refuse)?),
            None => None,
        };
        let filter = ReadFilter::of(context, task.resolution)?;
        let ids = FallbackIds::of_table(&source.table, source.name_mapping.as_deref())?;
        let task = Arc::new(task.clone());
        let fetcher = Fetcher::new(storage, runtime, options.cancel.clone());
        let deletes = Deletes::new(&task, &fetcher, &options, &source.table, &source.equality_schema, &ids)?;
        Ok(Self {
            steps: steps(&task)?.into(),
            task,
            fetcher,
            options,
            ids,
            all,
            key,
            metadata,
            filter,
            deletes,
            came: HashMap::new(),
            opened: None,
            ahead: None,
            current: None,
            rows_read: 0,
            failed: false,
        })
    }

    /// The index of the file difference that the last batch is of.
    pub fn difference(&self) -> Option<usize> {
        self.current.as_ref().map(|reading| reading.step.difference)
    }

    /// Rows given so far, on either side.
    pub fn rows_read(&self) -> u64 {
        self.rows_read
    }

    /// Bytes that storage gave so far, footers and delete files included.
    pub fn bytes_fetched(&self) -> u64 {
        self.fetcher.bytes_fetched()
    }

    /// Places in the read schema of top-level columns for which a dictionary did not pay in the file that is open: it was
    /// begun and given up, or took much of the column. A hint for who writes the rows again; empty before the first batch.
    pub fn columns_without_dictionary(&self) -> Vec<usize> {
        let Some(Opened::Parquet { file, schema, .. }) = &self.opened else { return Vec::new() };
        let Some(row_group) = file.metadata.row_groups().first() else { return Vec::new() };
        let did_not_pay = |field: &NestedFieldRef| {
            let of_file = schema.fields.iter().find(|of_file| of_file.id == Some(field.id));
            let leaf = of_file.filter(|of_file| matches!(of_file.shape, Shape::Leaf { .. }));
            leaf.and_then(|leaf| row_group.columns().get(leaf.leaves.start)).is_some_and(dictionary_did_not_pay)
        };
        let fields = self.all.fields.iter().enumerate();
        fields.filter(|(_, field)| did_not_pay(field)).map(|(place, _)| place).collect()
    }

    fn next_batch(&mut self) -> Result<Option<ChangeBatch>, ReadError> {
        loop {
            if let Some(reading) = &mut self.current {
                if let Some(rows) = reading.next(&mut self.deletes)? {
                    self.rows_read += rows.num_rows() as u64;
                    return Ok(Some(ChangeBatch { change: reading.step.change, columns: reading.columns, rows }));
                }
                let step = reading.step;
                self.current = None;
                self.finish(step);
                continue;
            }
            let Some(step) = self.steps.pop_front() else { return Ok(None) };
            self.current = self.start(step)?;
            if self.current.is_none() {
                self.finish(step);
            }
        }
    }

    fn finish(&mut self, step: Step) {
        if step.last {
            self.deletes.release(step.difference);
        }
    }

    /// Begins a step; `None` when it has no rows.
    fn start(&mut self, step: Step) -> Result<Option<Reading>, ReadError> {
        let task = Arc::clone(&self.task);
        let difference = &task.differences[step.difference];
        let both = matches!((&difference.before, &difference.after), (Side::Present(_), Side::Present(_)));
        let (rows, marks) = match step.change {
            _ if !both => {
                let (side, before) = match step.change {
                    Change::Delete | Change::UpdateBefore => (&difference.before, true),
                    Change::Insert | Change::UpdateAfter => (&difference.after, false),
                };
                let side = self.deletes.side(&difference.file.location, side)?;
                let (before, after) = if before { (Some(&side), None) } else { (None, Some(&side)) };
                let marks = marks(before, after, task.deletes.len());
                let rows = match &task.work {
                    Work::Show(show) => {
                        let shown = show.rows.get(step.difference).into_iter().flatten().copied();
                        Rows::Only(shown.filter(|position| !side.positions.contains(*position)).collect())
                    }
                    Work::Stage
                    | Work::Copy(_)
                    | Work::PassDeletes(_)
                    | Work::Digest(_)
                    | Work::Exchange(_)
                    | Work::Resolve(_) => Rows::without(side.positions),
                };
                (rows, marks)
            }
            Change::Delete | Change::UpdateBefore => {
                let (went, came, marks) = self.differing(difference)?;
                if !came.is_empty() {
                    self.came.insert(step.difference, (came, marks.clone()));
                }
                if went.is_empty() {
                    return Ok(None);
                }
                (Rows::Only(went), marks)
            }
            Change::Insert | Change::UpdateAfter => match self.came.remove(&step.difference) {
                Some((came, marks)) => (Rows::Only(came), marks),
                None => return Ok(None),
            },
        };
        self.reading(step, difference, rows, marks).map(Some)
    }

    /// Which rows of a file that both states have went, and which came; and the equality deletes that still have to be
    /// looked at when they are read.
    fn differing(&mut self, difference: &FileDifference) -> Result<(RoaringTreemap, RoaringTreemap, Marks), ReadError> {
        let location = &difference.file.location;
        let before = self.deletes.side(location, &difference.before)?;
        let after = self.deletes.side(location, &difference.after)?;
        let marks = marks(Some(&before), Some(&after), self.task.deletes.len());
        match candidates(&before, &after) {
            Candidates::ByPosition(went, came) => Ok((went, came, marks)),
            Candidates::ByKey { dead } => {
                let (went, came) = self.differing_by_key(difference, (&before, &after), dead, marks)?;
                Ok((went, came, Marks::new()))
            }
        }
    }

    pub(super) fn differing_by_key(
        &mut self,
        difference: &FileDifference,
        sides: (&SideDeletes, &SideDeletes),
        dead: RoaringTreemap,
        marks: Marks,
    ) -> Result<(RoaringTreemap, RoaringTreemap), ReadError> {
        let file = self.open_file(difference)?;
        let mut projection = Projection::new(&difference.file.location, file.schema(), &difference.file.constants);
        let mut tests = self.key_tests(&mut projection, marks)?;
        tests.iter_mut().for_each(|test| test.adapter.settle(&projection));
        // Rows that the filter leaves out need not be compared.
        let chosen = self.choose(&file, difference)?;
        let mut rows = self.rows(&file, &projection, difference, chosen, Rows::without(dead))?;
        let (mut went, mut came) = (RoaringTreemap::new(), RoaringTreemap::new());
        while let Some(batch) = rows.next()? {
            let marks = test(&mut tests, &mut self.deletes, &difference.file.location, &batch)?;
            compare(sides, rows.positions(batch.num_rows()), &marks, (&mut went, &mut came));
        }
        Ok((went, came))
    }

    fn reading(
        &mut self,
        step: Step,
        difference: &FileDifference,
        rows: Rows,
        marks: Marks,
    ) -> Result<Reading, ReadError> {
        let file = self.open_file(difference)?;
        self.fetch_ahead();
        let wanted = match (&self.key, step.change) {
            (Some(key), Change::Delete) => key,
            _ => &self.all,
        }
        .clone();
        let mut projection = Projection::new(&difference.file.location, file.schema(), &difference.file.constants);
        let mut output = projection.want(&wanted.fields, &wanted.schema, IfMissing::Refuse)?;
        let metadata = match &self.metadata {
            Some(metadata) => {
                Some((metadata.of_difference(difference, &mut projection)?, metadata.behind(&wanted.schema)))
            }
            None => None,
        };
        let chosen = self.choose(&file, difference)?;
        let filter = self.filter.as_ref().filter(|_| !chosen.all_match);
        let mut filter = filter.map(|filter| filter.rows(&mut projection)).transpose()?;
        let mut tests = self.key_tests(&mut projection, marks)?;
        output.settle(&projection);
        if let Some(filter) = &mut filter {
            filter.settle(&projection);
        }
        let metadata = metadata.map(|(mut metadata, schema)| {
            metadata.settle(&projection);
            (metadata, schema)
        });
        tests.iter_mut().for_each(|test| test.adapter.settle(&projection));
        let rows = self.rows(&file, &projection, difference, chosen, rows)?;
        let dead = match step.change {
            Change::Delete | Change::UpdateBefore => DEAD_BEFORE,
            Change::Insert | Change::UpdateAfter => DEAD_AFTER,
        };
        Ok(Reading { step, columns: wanted.columns, rows, output, metadata, filter, tests, dead })
    }

    /// Which row groups of a file are read, and which of their rows.
    fn choose(&self, file: &Opened, difference: &FileDifference) -> Result<Chosen, ReadError> {
        let all = file.choose(|file, _| row_groups(&file.metadata, difference.split));
        match (&self.filter, file) {
            (None, _) => Ok(Chosen { all_match: true, ..all }),
            (Some(filter), Opened::Parquet { file, schema, .. }) => {
                filter.choose(file, schema, all.row_groups, &self.fetcher)
            }
            (Some(_), Opened::Avro { .. }) => Ok(all),
        }
    }

    fn rows(
        &self,
        file: &Opened,
        projection: &Projection<'_>,
        difference: &FileDifference,
        chosen: Chosen,
        rows: Rows,
    ) -> Result<OpenedRows, ReadError> {
        file.rows(projection, chosen, rows, Some(difference.file.record_count), &self.fetcher, &self.options)
    }

    fn key_tests(&mut self, projection: &mut Projection<'_>, marks: Marks) -> Result<Vec<KeyTest>, ReadError> {
        let mut tests = Vec::with_capacity(marks.len());
        for (ids, marks_of) in marks {
            let keys = self.deletes.keys(&ids)?;
            let adapter = projection.want(&keys.fields.columns, &keys.fields.read_schema, IfMissing::Null)?;
            tests.push(KeyTest { ids, adapter, marks_of });
        }
        Ok(tests)
    }

    fn open_file(&mut self, difference: &FileDifference) -> Result<Opened, ReadError> {
        let data_file = &difference.file;
        if data_file.format == FileFormat::Avro && difference.split.is_some() {
            let what = format!("{} is to be read in part, and an Avro file is read whole", data_file.location);
            return Err(ReadError::Task { task: self.task.id.0, what });
        }
        let handle = FileHandle::new(&data_file.location, data_file.size_bytes);
        if let Some(opened) = &self.opened
            && *opened.handle() == handle
        {
            return Ok(opened.clone());
        }
        let ahead = self.ahead.take().filter(|(of, _)| *of == handle).and_then(|(_, ahead)| ahead);
        let opened = Opened::open(&self.fetcher, &handle, data_file.format, ahead, &self.ids)?;
        if let Some(rows) = opened.row_count().filter(|rows| *rows != data_file.record_count) {
            let what = format!("it has {rows} rows and its manifest says {}", data_file.record_count);
            return Err(ReadError::damaged(&data_file.location, what));
        }
        self.opened = Some(opened.clone());
        Ok(opened)
    }

    /// Asks for the first bytes of the file that comes after the one that is open, so that they are there when its turn
    /// comes: many small files would else wait for one request each.
    fn fetch_ahead(&mut self) {
        let of_step = |step: &Step| &self.task.differences[step.difference];
        let is_read = |step: &&Step| match (&of_step(step).before, step.change) {
            (Side::Present(_), Change::Insert) => self.came.contains_key(&step.difference),
            _ => true,
        };
        let next = self.steps.iter().find(is_read).map(|step| &of_step(step).file);
        let Some(next) = next else { return };
        let handle = FileHandle::new(&next.location, next.size_bytes);
        let is_open = self.opened.as_ref().is_some_and(|opened| *opened.handle() == handle);
        let is_asked = self.ahead.as_ref().is_some_and(|(of, _)| *of == handle);
        if !is_open && !is_asked {
            let ahead = start_open(&self.fetcher, &handle, next.format);
            self.ahead = Some((handle, ahead));
        }
    }
}

impl Iterator for TaskReader {
    type Item = Result<ChangeBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_batch().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl Reading {
    /// The next rows that are left after the equality deletes; `None` at the end.
    fn next(&mut self, deletes: &mut Deletes) -> Result<Option<RecordBatch>, ReadError> {
        while let Some(mut batch) = self.rows.next()? {
            let needs_positions = self.metadata.as_ref().is_some_and(|(metadata, _)| metadata.needs_positions());
            let mut positions: Vec<i64> = match needs_positions {
                true => self.rows.positions(batch.num_rows()).map(|position| position as i64).collect(),
                false => Vec::new(),
            };
            if let Some(filter) = &mut self.filter {
                let kept = filter.keep(&batch)?;
                if kept.true_count() < batch.num_rows() {
                    let mut rows = kept.values().iter();
                    positions.retain(|_| rows.next().unwrap_or_default());
                    batch = filter_record_batch(&batch, &kept)
                        .map_err(|error| ReadError::damaged(self.output.location(), error.to_string()))?;
                }
                if batch.num_rows() == 0 {
                    continue;
                }
            }
            let mut rows = self.output.apply(&batch)?;
            if let Some((metadata, schema)) = &mut self.metadata {
                let location = self.output.location();
                let columns = metadata.columns(location, &batch, &positions)?;
                rows = with_columns(location, rows, columns, schema)?;
            }
            let rows = if self.tests.is_empty() {
                rows
            } else {
                let location = self.output.location();
                let marks = test(&mut self.tests, deletes, location, &batch)?;
                let live: BooleanArray = marks.iter().map(|marks| Some(marks & self.dead == 0)).collect();
                filter_record_batch(&rows, &live).map_err(|error| ReadError::damaged(location, error.to_string()))?
            };
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }
}

/// The rows with more columns behind theirs.
fn with_columns(
    location: &str,
    rows: RecordBatch,
    more: Vec<ArrayRef>,
    schema: &SchemaRef,
) -> Result<RecordBatch, ReadError> {
    let columns = rows.columns().iter().cloned().chain(more).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| ReadError::damaged(location, error.to_string()))
}

/// The marks that equality deletes give each row of a batch.
fn test(
    tests: &mut [KeyTest],
    deletes: &mut Deletes,
    location: &str,
    batch: &RecordBatch,
) -> Result<Vec<u8>, ReadError> {
    let mut marks = vec![0; batch.num_rows()];
    for test in tests {
        let columns = test.adapter.columns(batch)?;
        let marked = deletes.loaded_keys(&test.ids)?.mark(columns, &test.marks_of, &mut marks);
        marked.map_err(|error| deletes.key_error(location, error))?;
    }
    Ok(marks)
}

/// The columns that a DELETE row has when they are not all of them: the key, whose fields are known by their ids in the
/// target and found in the read schema by place, since the two have the same shape.
fn key_columns(context: &EpochContext, task: &ScanTask, all: &Wanted) -> Result<Option<Wanted>, ReadError> {
    let contradiction = |what: String| ReadError::Task { task: task.id.0, what };
    if context.changelog.is_some() {
        return Ok(None);
    }
    let written = context.target.write_schema.as_struct().fields();
    if written.len() != all.fields.len() {
        let what = format!("{} columns are read and {} are written", all.fields.len(), written.len());
        return Err(contradiction(what));
    }
    if context.target.key.is_empty() || task.resolution != Resolution::Keep {
        return Ok(None);
    }
    let place = |id: &i32| {
        let place = written.iter().position(|field| field.id == *id);
        place.ok_or_else(|| contradiction(format!("key field {id} is no top-level column of the target")))
    };
    let places = context.target.key.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let schema = all.schema.project(&places).map_err(|error| contradiction(error.to_string()))?;
    let fields = places.iter().map(|place| Arc::clone(&all.fields[*place])).collect();
    Ok(Some(Wanted { columns: Columns::Key, fields, schema: Arc::new(schema) }))
}

/// Whether a column chunk would have done better without a dictionary. A writer that never tried one says nothing.
fn dictionary_did_not_pay(chunk: &ColumnChunkMetaData) -> bool {
    let Some(dictionary) = chunk.dictionary_page_offset() else { return false };
    // The mask is of data pages: one that is plain comes after the writer had given the dictionary up.
    let given_up = chunk.page_encoding_stats_mask().is_some_and(|mask| mask.is_set(Encoding::PLAIN));
    let dictionary_bytes = chunk.data_page_offset().saturating_sub(dictionary);
    let is_large = dictionary_bytes >= DICTIONARY_BYTES_MIN;
    given_up || (is_large && dictionary_bytes.saturating_mul(DICTIONARY_SHARE) > chunk.compressed_size())
}
