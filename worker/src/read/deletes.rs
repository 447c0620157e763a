//! The deletes of a scan task: loaded when first needed, shared by the file differences they reach, and let go after
//! the last of them.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow::array::ArrayRef;
use iceberg::spec::SchemaRef;
use iceferry_common::model::{DeleteFile, DeleteKind, FileFormat, ScanTask, Side};
use roaring::RoaringTreemap;

use super::delete_columns::DeleteColumns;
use super::equality::{KeyError, KeyTable};
use super::fetch::{Fetch, Fetcher, FileHandle};
use super::file_schema::FallbackIds;
use super::key_fields::{KeyFields, leaves};
use super::opened::start_open;
use super::positions::{self, PositionsByFile};
use super::select::row_groups_with_rows;
use super::{ReadError, ReadOptions};
use crate::vector;

/// First requests of delete files that are under way at once; each is at most a small file.
const OPENED_AT_ONCE: usize = 6;

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
    /// For each delete file: the file differences that name it.
    named_by: Vec<Vec<usize>>,
    /// For each delete file: how many of them are still to be read.
    uses: Vec<usize>,
    /// For each delete file: the fields that it is keyed on, of equality deletes alone.
    keyed_on: Vec<Option<KeyIds>>,
    by_position: HashMap<u32, PositionsByFile>,
    vector: Option<(u32, RoaringTreemap)>,
    by_key: HashMap<KeyIds, Keys>,
}

/// The keys of all delete files that are keyed on the same fields.
pub(super) struct Keys {
    /// The fields that the keys are made of, each in its newest type.
    pub(super) fields: KeyFields,
    table: KeyTable,
}

impl Keys {
    /// Adds to each row's marks those of the delete files that its key stands in; `columns` are those of the fields.
    pub(super) fn mark(&mut self, columns: Vec<ArrayRef>, marks_of: &[u8], rows: &mut [u8]) -> Result<(), KeyError> {
        self.table.mark(&leaves(columns)?, marks_of, rows)
    }
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
        let mut named_by = vec![Vec::new(); task.deletes.len()];
        for (index, difference) in task.differences.iter().enumerate() {
            for delete in used_by(task, index) {
                let by = named_by.get_mut(delete as usize).ok_or_else(|| ReadError::Task {
                    task: task.id.0,
                    what: format!("{} has a delete file that is not in the task", difference.file.location),
                })?;
                by.push(index);
            }
        }
        let keyed_on = |file: &DeleteFile| match &file.kind {
            DeleteKind::Equality { field_ids } => {
                let ids: BTreeSet<i32> = field_ids.iter().copied().collect();
                Some(ids.into_iter().collect())
            }
            DeleteKind::Position | DeleteKind::Vector { .. } => None,
        };
        Ok(Self {
            task: Arc::clone(task),
            fetcher: fetcher.clone(),
            options: options.clone(),
            table: table.to_owned(),
            equality_schema: Arc::clone(equality_schema),
            ids: ids.clone(),
            uses: named_by.iter().map(Vec::len).collect(),
            named_by,
            keyed_on: task.deletes.iter().map(keyed_on).collect(),
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
            match (&task.deletes[*index as usize].kind, &self.keyed_on[*index as usize]) {
                (_, Some(ids)) => drop(deletes.equality.entry(ids.clone()).or_default().insert(*index)),
                (DeleteKind::Vector { .. }, None) => drop(vectors.insert(*index)),
                (_, None) => drop(by_position.insert(*index)),
            }
        }
        match vectors.len() {
            0 => {
                self.load_positions(&by_position)?;
                for index in by_position {
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
    pub(super) fn keys(&mut self, ids: &KeyIds) -> Result<&mut Keys, ReadError> {
        if !self.by_key.contains_key(ids) {
            let keys = self.load_keys(ids)?;
            self.by_key.insert(ids.clone(), keys);
        }
        self.loaded_keys(ids)
    }

    /// The same when they were loaded before.
    pub(super) fn loaded_keys(&mut self, ids: &KeyIds) -> Result<&mut Keys, ReadError> {
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
        let used = |ids: &KeyIds| {
            let mut files = self.keyed_on.iter().zip(&self.uses);
            files.any(|(keyed_on, uses)| *uses > 0 && keyed_on.as_ref() == Some(ids))
        };
        self.by_key.retain(|ids, _| used(ids));
    }

    /// Loads those position delete files that are not loaded yet.
    fn load_positions(&mut self, indexes: &BTreeSet<u32>) -> Result<(), ReadError> {
        let missing = indexes.iter().copied().filter(|index| !self.by_position.contains_key(index));
        let mut ahead = Ahead::of(missing.collect());
        while let Some((index, ahead)) = ahead.next(&self.task, &self.fetcher) {
            let location = |difference: &usize| self.task.differences[*difference].file.location.clone();
            let wanted: HashSet<String> = self.named_by[index as usize].iter().map(location).collect();
            let file = &self.task.deletes[index as usize];
            let loaded = positions::load(&self.fetcher, &self.options, file, ahead, &wanted)?;
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

    fn load_keys(&self, ids: &KeyIds) -> Result<Keys, ReadError> {
        let refuse = |what: String| ReadError::Table { table: self.table.clone(), what };
        let fields = KeyFields::of(&self.equality_schema, ids).map_err(refuse)?;
        let mut table = KeyTable::new(&fields.schema)
            .map_err(|error| refuse(format!("equality deletes on fields {ids:?} are not supported: {error}")))?;
        let others: u64 = self.by_key.values().map(|keys| keys.table.size_bytes()).sum();
        let is_used =
            |index: &u32| self.keyed_on[*index as usize].as_ref() == Some(ids) && self.uses[*index as usize] > 0;
        let mut ahead = Ahead::of((0..self.uses.len() as u32).filter(is_used).collect());
        while let Some((index, ahead)) = ahead.next(&self.task, &self.fetcher) {
            let file = &self.task.deletes[index as usize];
            let mut columns = DeleteColumns::open(
                &self.fetcher,
                &self.options,
                (file, ahead),
                (&fields.required, &fields.read_schema),
                // By its position or an older name, another column might pass for the key.
                &self.ids.certain(),
                |file, _| row_groups_with_rows(&file.metadata).collect(),
            )?;
            while let Some(columns) = columns.next()? {
                let inserted = leaves(columns).map_err(KeyError::from).and_then(|keys| table.insert(index, &keys));
                inserted.map_err(|error| self.key_error(&file.location, error))?;
                if others + table.size_bytes() > self.options.equality_bytes {
                    return Err(self.key_error(&file.location, KeyError::TooMany));
                }
            }
        }
        Ok(Keys { fields, table })
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

/// Delete files to load, in their order, with the first requests of the next ones under way: they are mostly small and
/// many, and each would else wait for its own.
pub(super) struct Ahead {
    left: VecDeque<u32>,
    started: VecDeque<(u32, Option<Fetch>)>,
}

impl Ahead {
    pub(super) fn of(indexes: VecDeque<u32>) -> Self {
        Self { left: indexes, started: VecDeque::new() }
    }

    /// The next delete file, and its first request.
    pub(super) fn next(&mut self, task: &ScanTask, fetcher: &Fetcher) -> Option<(u32, Option<Fetch>)> {
        while self.started.len() < OPENED_AT_ONCE
            && let Some(index) = self.left.pop_front()
        {
            let file = &task.deletes[index as usize];
            let handle = FileHandle::new(&file.location, file.size_bytes);
            self.started.push_back((index, start_open(fetcher, &handle, file.format)));
        }
        self.started.pop_front()
    }
}
