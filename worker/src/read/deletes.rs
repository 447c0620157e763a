//! The deletes of a scan task: loaded when first needed, shared by the file differences they reach, and let go after
//! the last of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{NestedFieldRef, SchemaRef};
use iceferry_common::model::{DeleteFile, DeleteKind, FileFormat, ScanTask, Side};
use roaring::RoaringTreemap;

use super::delete_columns::{DeleteColumns, nullable_schema};
use super::equality::{KeyError, KeyTable};
use super::fetch::{Fetcher, FileHandle};
use super::file_schema::FallbackIds;
use super::positions::{self, PositionsByFile};
use super::vector;
use super::{ReadError, ReadOptions};

/// Field ids that equality deletes are keyed on, ascending.
pub(super) type KeyIds = Vec<i32>;

/// The deletes of a task.
pub(super) struct Deletes {
    task: Arc<ScanTask>,
    fetcher: Fetcher,
    options: ReadOptions,
    table: String,
    equality_schema: SchemaRef,
    ids: FallbackIds,
    /// For each delete file: how many file differences are still to be read with it.
    uses: Vec<usize>,
    by_position: HashMap<u32, PositionsByFile>,
    vector: Option<(u32, RoaringTreemap)>,
    by_key: HashMap<KeyIds, KeyTable>,
}

/// The deletes of one side of a file difference.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct SideDeletes {
    /// Dead by position.
    pub(super) positions: RoaringTreemap,
    /// Equality delete files, by the fields they are keyed on.
    pub(super) equality: HashMap<KeyIds, BTreeSet<u32>>,
}

/// The delete files that a side names.
pub(super) fn named(side: &Side) -> &[u32] {
    match side {
        Side::Absent => &[],
        Side::Present(deletes) => deletes,
    }
}

impl Deletes {
    pub(super) fn new(
        task: &Arc<ScanTask>,
        fetcher: &Fetcher,
        options: &ReadOptions,
        table: &str,
        equality_schema: &SchemaRef,
        ids: &FallbackIds,
    ) -> Result<Self, ReadError> {
        let mut uses = vec![0; task.deletes.len()];
        for (index, difference) in task.differences.iter().enumerate() {
            for delete in used_by(task, index) {
                let count = uses.get_mut(delete as usize).ok_or_else(|| ReadError::Task {
                    task: task.id.0,
                    what: format!("{} has a delete file that is not in the task", difference.file.location),
                })?;
                *count += 1;
            }
        }
        Ok(Self {
            task: Arc::clone(task),
            fetcher: fetcher.clone(),
            options: options.clone(),
            table: table.to_owned(),
            equality_schema: Arc::clone(equality_schema),
            ids: ids.clone(),
            uses,
            by_position: HashMap::new(),
            vector: None,
            by_key: HashMap::new(),
        })
    }

    /// What a side of a file difference deletes of the data file.
    pub(super) fn side(&mut self, data_file: &str, side: &Side) -> Result<SideDeletes, ReadError> {
        let task = Arc::clone(&self.task);
        let mut deletes = SideDeletes::default();
        let (mut by_position, mut vectors) = (BTreeSet::new(), BTreeSet::new());
        for index in named(side) {
            match &task.deletes[*index as usize].kind {
                DeleteKind::Position => drop(by_position.insert(*index)),
                DeleteKind::Vector { .. } => drop(vectors.insert(*index)),
                DeleteKind::Equality { field_ids } => {
                    let ids: BTreeSet<i32> = field_ids.iter().copied().collect();
                    deletes.equality.entry(ids.into_iter().collect()).or_default().insert(*index);
                }
            }
        }
        match vectors.len() {
            0 => {
                for index in by_position {
                    self.load_positions(index)?;
                    if let Some(positions) = self.by_position.get(&index).and_then(|by_file| by_file.get(data_file)) {
                        deletes.positions |= positions;
                    }
                }
            }
            // Where a data file has a vector, position delete files do not count for it (spec, deletion vectors).
            1 => {
                for index in vectors {
                    deletes.positions = self.load_vector(index)?;
                }
            }
            count => {
                let what = format!("{count} deletion vectors reach it, and a table may have one for each data file");
                return Err(ReadError::damaged(data_file, what));
            }
        }
        Ok(deletes)
    }

    /// The keys of all delete files of the task that are keyed on these fields.
    pub(super) fn keys(&mut self, ids: &KeyIds) -> Result<&mut KeyTable, ReadError> {
        if !self.by_key.contains_key(ids) {
            let table = self.load_keys(ids)?;
            self.by_key.insert(ids.clone(), table);
        }
        self.loaded_keys(ids)
    }

    /// The same when they were loaded before.
    pub(super) fn loaded_keys(&mut self, ids: &KeyIds) -> Result<&mut KeyTable, ReadError> {
        self.by_key.get_mut(ids).ok_or_else(|| ReadError::Task {
            task: self.task.id.0,
            what: format!("the keys of equality deletes on fields {ids:?} were let go too early"),
        })
    }

    /// A file difference was read to its end: lets go of what no other one needs.
    pub(super) fn release(&mut self, difference: usize) {
        for index in used_by(&self.task, difference) {
            let left = &mut self.uses[index as usize];
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.by_position.remove(&index);
            }
        }
        let (task, uses) = (&self.task, &self.uses);
        self.by_key.retain(|ids, _| files_keyed_on(task, ids).any(|(index, _)| uses[index as usize] > 0));
    }

    fn load_positions(&mut self, index: u32) -> Result<(), ReadError> {
        if !self.by_position.contains_key(&index) {
            let wants = |side: &Side| named(side).contains(&index);
            let differences = self.task.differences.iter();
            let wanted: HashSet<String> = differences
                .filter(|difference| wants(&difference.before) || wants(&difference.after))
                .map(|difference| difference.file.location.clone())
                .collect();
            let file = &self.task.deletes[index as usize];
            let loaded = positions::load(&self.fetcher, &self.options, file, &wanted)?;
            self.by_position.insert(index, loaded);
        }
        Ok(())
    }

    fn load_vector(&mut self, index: u32) -> Result<RoaringTreemap, ReadError> {
        if let Some((loaded, positions)) = &self.vector
            && *loaded == index
        {
            return Ok(positions.clone());
        }
        let file = &self.task.deletes[index as usize];
        let DeleteKind::Vector { offset, length } = file.kind else { return Ok(RoaringTreemap::new()) };
        if file.format != FileFormat::Puffin {
            let what = format!("a deletion vector in {:?} is not supported", file.format);
            return Err(ReadError::unsupported(&file.location, what));
        }
        let end = offset.checked_add(length).filter(|end| *end <= file.size_bytes && length >= vector::BLOB_BYTES_MIN);
        let Some(end) = end else {
            let what =
                format!("a vector of {length} bytes at byte {offset} is not within its {} bytes", file.size_bytes);
            return Err(ReadError::damaged(&file.location, what));
        };
        let blob = self.fetcher.start(&FileHandle::new(&file.location, file.size_bytes), offset..end).wait()?;
        let positions = vector::decode(&blob, file.record_count)
            .map_err(|what| ReadError::damaged(&file.location, format!("at byte {offset}, {what}")))?;
        self.vector = Some((index, positions.clone()));
        Ok(positions)
    }

    fn load_keys(&self, ids: &KeyIds) -> Result<KeyTable, ReadError> {
        let refuse = |what: String| ReadError::Table { table: self.table.clone(), what };
        let fields = ids.iter().map(|id| self.key_field(*id)).collect::<Result<Vec<_>, _>>()?;
        let schema = nullable_schema(&fields).map_err(|error| refuse(error.to_string()))?;
        let mut table = KeyTable::new(fields, Arc::clone(&schema))
            .map_err(|error| refuse(format!("equality deletes on fields {ids:?} are not supported: {error}")))?;
        let others: u64 = self.by_key.values().map(KeyTable::size_bytes).sum();
        for (index, file) in files_keyed_on(&self.task, ids).filter(|(index, _)| self.uses[*index as usize] > 0) {
            if file.format != FileFormat::Parquet {
                let what = format!("equality deletes in {:?} are not supported: compact the table", file.format);
                return Err(ReadError::unsupported(&file.location, what));
            }
            let handle = FileHandle::new(&file.location, file.size_bytes);
            let mut columns = DeleteColumns::open(
                &self.fetcher,
                &self.options,
                &handle,
                &table.fields,
                &schema,
                &self.ids,
                |file, _| (0..file.metadata.num_row_groups()).collect(),
            )?;
            while let Some(columns) = columns.next()? {
                table.insert(index, &columns).map_err(|error| self.key_error(&file.location, error))?;
                if others + table.size_bytes() > self.options.equality_bytes {
                    return Err(self.key_error(&file.location, KeyError::TooMany));
                }
            }
        }
        Ok(table)
    }

    fn key_field(&self, id: i32) -> Result<NestedFieldRef, ReadError> {
        let refuse = |what: String| ReadError::Table { table: self.table.clone(), what };
        match self.equality_schema.as_struct().field_by_id(id) {
            Some(field) if field.field_type.is_primitive() => Ok(Arc::clone(field)),
            Some(field) => Err(refuse(format!("it has equality deletes on column {}, which is nested", field.name))),
            None => Err(refuse(match self.equality_schema.name_by_field_id(id) {
                Some(name) => {
                    format!("equality deletes on the nested field {name} are not supported: compact the table")
                }
                None => format!("it has equality deletes on field {id}, which no schema of the table has"),
            })),
        }
    }

    pub(super) fn key_error(&self, location: &str, error: KeyError) -> ReadError {
        match error {
            KeyError::Arrow(error) => ReadError::unsupported(location, format!("its keys are not comparable: {error}")),
            KeyError::TooMany => {
                ReadError::Memory { what: "the keys of equality deletes", limit_bytes: self.options.equality_bytes }
            }
        }
    }
}

/// Delete files that a file difference names, each once.
fn used_by(task: &ScanTask, difference: usize) -> BTreeSet<u32> {
    let difference = &task.differences[difference];
    named(&difference.before).iter().chain(named(&difference.after)).copied().collect()
}

fn files_keyed_on<'a>(task: &'a ScanTask, ids: &'a KeyIds) -> impl Iterator<Item = (u32, &'a DeleteFile)> {
    let keyed = |file: &DeleteFile| match &file.kind {
        DeleteKind::Equality { field_ids } => field_ids.iter().copied().collect::<BTreeSet<_>>().iter().eq(ids.iter()),
        DeleteKind::Position | DeleteKind::Vector { .. } => false,
    };
    (0..).zip(&task.deletes).filter(move |(_, file)| keyed(file))
}
