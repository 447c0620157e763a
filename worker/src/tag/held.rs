//! The DELETE rows of a task as a multiset, until the INSERT rows have come by; or, of several snapshots, all of its rows.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, Rows, SortField};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::encode::{RowEncoder, canonical_schema};
use crate::Columns;
use crate::exchange::memory_bytes;
use crate::key_text::printed;

/// The end of a chain of equal rows.
const NONE: u32 = u32::MAX;
/// Rows that are encoded together: what is encoded never moves, as it would in one growing buffer.
const CHUNK_ROWS: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 15;
/// Equal rows among which the one with the same row id is looked for; beyond them any will do.
const ROW_ID_STEPS: usize = 64;

/// DELETE rows that wait for an equal INSERT row.
pub(super) struct Held<S = RandomState> {
    /// Columns that come out; all of them when empty.
    key: Vec<usize>,
    /// How many columns decide whether rows are equal; those behind them ride along.
    compared: usize,
    /// The place of the row id, where rows have one: of equal rows those of one id cancel first.
    row_id: Option<usize>,
    hasher: S,
    encoded: Option<Encoded>,
    /// What comes out of each batch: its key columns, or the batch.
    batches: Vec<RecordBatch>,
    batch_bytes: usize,
    /// For each different row, the last of its equal rows that is not used yet. Rows are numbered over all batches.
    table: HashTable<Slot>,
    /// For each row the next equal one that is not used yet.
    next: Vec<u32>,
    /// For each row its id; empty where rows have none.
    row_ids: Vec<Option<i64>>,
    used: Vec<bool>,
}

/// A row by its number, with its hash: the table grows, and most lookups end, without a look at the rows, which are all over
/// the memory.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    hash: u32,
}

impl Slot {
    /// The hash of the slot of a row whose bytes hash to `hash`.
    fn part(hash: u64) -> u32 {
        (hash ^ (hash >> 32)) as u32
    }

    /// The hash that the table works with, which looks at its highest and its lowest bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

struct Encoded {
    encoder: RowEncoder,
    chunks: Vec<Rows>,
    /// The columns that are encoded, as [`canonical_schema`] has them.
    schema: SchemaRef,
}

/// What was held, batch by batch, and which of its rows an INSERT row was equal to.
pub(super) struct Left {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) used: Vec<bool>,
}

impl Left {
    /// Each batch with what of its rows is gone.
    pub(super) fn into_each(self) -> impl Iterator<Item = (RecordBatch, Vec<bool>)> {
        let (mut first, used) = (0, self.used);
        self.batches.into_iter().map(move |batch| {
            let of_batch = used[first..first + batch.num_rows()].to_vec();
            first += batch.num_rows();
            (batch, of_batch)
        })
    }

    /// The rows that are not gone, batch by batch; a batch may be empty.
    pub(super) fn into_unmatched(self) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
        self.into_each().map(|(batch, used)| unmatched(batch, &used))
    }
}

/// What became of a batch of INSERT rows.
pub(super) enum Matched {
    /// No row equals a held one.
    None,
    /// Some do, and both are gone.
    Some {
        /// The rows that came: those that equal none.
        came: BooleanArray,
        /// How many cancelled.
        count: u64,
    },
}

impl Held {
    /// Holds nothing yet; gives out the columns `key` by index, or all if there are none. Rows are equal when their first
    /// `compared` columns are; of several equal ones that with the same value in column `row_id` is taken.
    pub(super) fn new(key: Vec<usize>, compared: usize, row_id: Option<usize>) -> Self {
        Self { row_id, ..Self::with_hasher(key, compared, RandomState::default()) }
    }
}

impl<S: BuildHasher> Held<S> {
    /// As [`Held::new`], with a hasher of one's own.
    pub(super) fn with_hasher(key: Vec<usize>, compared: usize, hasher: S) -> Self {
        Self {
            key,
            compared,
            row_id: None,
            hasher,
            encoded: None,
            batches: Vec::new(),
            batch_bytes: 0,
            table: HashTable::new(),
            next: Vec::new(),
            row_ids: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Which columns come out.
    pub(super) fn columns(&self) -> Columns {
        if self.key.is_empty() { Columns::All } else { Columns::Key }
    }

    /// The first batch, as it comes out.
    pub(super) fn first_batch(&self) -> Option<&RecordBatch> {
        self.batches.first()
    }

    /// Memory that is held, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let encoded = self.encoded.iter().flat_map(|encoded| &encoded.chunks).map(Rows::size).sum::<usize>();
        let row_ids = self.row_ids.capacity() * size_of::<Option<i64>>();
        let numbers = self.next.capacity() * size_of::<u32>() + self.table.capacity() * (size_of::<Slot>() + 1);
        self.batch_bytes + encoded + row_ids + numbers + self.used.capacity()
    }

    /// Holds the rows of a batch with all its columns.
    pub(super) fn hold(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let encoded = match &mut self.encoded {
            Some(encoded) => encoded,
            none => {
                let encoder = RowEncoder::new(compared(&batch, self.compared))?;
                let schema = canonical_schema(&batch.schema(), self.compared);
                none.insert(Encoded { encoder, chunks: Vec::new(), schema })
            }
        };
        encoded.append(compared(&batch, self.compared))?;
        self.row_ids.extend(row_ids(&batch, self.row_id).into_iter().flatten());
        let (hasher, encoded) = (&self.hasher, &*encoded);
        for _ in 0..batch.num_rows() {
            let number = u32::try_from(self.next.len()).ok().filter(|number| *number != NONE);
            let Some(number) = number else {
                return Err(ArrowError::ComputeError("too many rows in one task".to_owned()));
            };
            let row = encoded.row(number);
            let hash = Slot::part(hasher.hash_one(row.as_ref()));
            let equal = |other: &Slot| other.hash == hash && encoded.row(other.number) == row;
            match self.table.entry(Slot::spread(hash), equal, |other| Slot::spread(other.hash)) {
                Entry::Occupied(mut entry) => {
                    self.next.push(entry.get().number);
                    entry.get_mut().number = number;
                }
                Entry::Vacant(entry) => {
                    self.next.push(NONE);
                    entry.insert(Slot { number, hash });
                }
            }
            self.used.push(false);
        }
        let kept = if self.key.is_empty() { batch } else { batch.project(&self.key)? };
        self.batch_bytes += usize::try_from(memory_bytes(&kept)).unwrap_or(usize::MAX);
        self.batches.push(kept);
        Ok(())
    }

    /// Looks for a held row for each row of a batch; both are gone then.
    pub(super) fn match_inserts(&mut self, batch: &RecordBatch) -> Result<Matched, ArrowError> {
        let Some(encoded) = &self.encoded else { return Ok(Matched::None) };
        if self.table.is_empty() {
            return Ok(Matched::None);
        }
        let mut rows = encoded.encoder.empty();
        encoded.encoder.append(&mut rows, compared(batch, self.compared))?;
        let ids: Option<Vec<Option<i64>>> = row_ids(batch, self.row_id).map(Iterator::collect);
        let mut count = 0;
        let (table, next, used, hasher) = (&mut self.table, &mut self.next, &mut self.used, &self.hasher);
        let held_ids = &self.row_ids;
        let came = BooleanBuffer::collect_bool(batch.num_rows(), |place| {
            let row = rows.row(place);
            let hash = Slot::part(hasher.hash_one(row.as_ref()));
            let found = table.find_entry(Slot::spread(hash), |slot| {
                slot.hash == hash && encoded.row(slot.number).as_ref() == row.as_ref()
            });
            let Ok(mut entry) = found else { return true };
            let id = ids.as_ref().and_then(|ids| ids[place]);
            if let Some(before) = id.and_then(|id| before_row_id(entry.get().number, next, held_ids, id)) {
                // One behind the first of the chain is taken out of it.
                let number = next[before as usize];
                next[before as usize] = next[number as usize];
                used[number as usize] = true;
                count += 1;
                return false;
            }
            let number = entry.get().number;
            used[number as usize] = true;
            match next[number as usize] {
                NONE => drop(entry.remove()),
                next => entry.get_mut().number = next,
            }
            count += 1;
            false
        });
        if count == 0 { Ok(Matched::None) } else { Ok(Matched::Some { came: BooleanArray::new(came, None), count }) }
    }

    /// Asks of the rows of each different content that several have, by their numbers, which are gone. For when all rows
    /// are held, of whichever side; they are not compared any more after it.
    pub(super) fn settle(&mut self, mut gone: impl FnMut(&mut dyn Iterator<Item = u32>, &[Option<i64>], &mut [bool])) {
        let next = &self.next;
        let follows = |row: &u32| Some(next[*row as usize]).filter(|next| *next != NONE);
        for slot in &self.table {
            if follows(&slot.number).is_some() {
                let mut numbers = std::iter::successors(Some(slot.number), follows);
                gone(&mut numbers, &self.row_ids, &mut self.used);
            }
        }
        self.table = HashTable::new();
    }

    /// A key, as text, of which one row goes and another was carried over: a delete by the key would reach both. For
    /// when all INSERT rows have come by; rows are not compared any more after it.
    pub(super) fn key_that_goes_and_stays(&mut self) -> Result<Option<String>, ArrowError> {
        // Memory of the whole rows makes room for that of the keys.
        self.encoded = None;
        self.table = HashTable::new();
        let Some(first) = self.batches.first().filter(|_| !self.key.is_empty() && self.used.contains(&true)) else {
            return Ok(None);
        };
        let types = first.columns().iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let converter = RowConverter::new(types)?;
        let mut gone: HashSet<Box<[u8]>, RandomState> = HashSet::default();
        for (batch, used) in with_used(&self.batches, &self.used) {
            if used.contains(&false) {
                let keys = converter.convert_columns(batch.columns())?;
                gone.extend(keys.iter().zip(used).filter(|(_, used)| !**used).map(|(key, _)| key.as_ref().into()));
            }
        }
        if gone.is_empty() {
            return Ok(None);
        }
        for (batch, used) in with_used(&self.batches, &self.used) {
            let keys = converter.convert_columns(batch.columns())?;
            if let Some(row) = (0..used.len()).find(|row| used[*row] && gone.contains(keys.row(*row).as_ref())) {
                return Ok(Some(printed(&batch.schema(), batch.columns(), row)));
            }
        }
        Ok(None)
    }

    /// The rows that no INSERT row was equal to, batch by batch; a batch may be empty.
    pub(super) fn into_unmatched(self) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> + use<S> {
        self.into_left().into_unmatched()
    }

    /// The batches themselves, and which of their rows are gone. What compares them is freed.
    pub(super) fn into_left(self) -> Left {
        Left { batches: self.batches, used: self.used }
    }

    /// The rows that no INSERT row was equal to with all that decides whether they are equal, batch by batch: as they came,
    /// or where only a key was kept as [`super::encode::canonical_batch`] gives them.
    pub(super) fn into_rows(self) -> Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>
    where
        S: 'static,
    {
        if self.key.is_empty() {
            return Box::new(self.into_unmatched());
        }
        let Some(encoded) = self.encoded else { return Box::new(std::iter::empty()) };
        let (mut first, used) = (0, self.used);
        let counts: Vec<usize> = self.batches.iter().map(RecordBatch::num_rows).collect();
        Box::new(counts.into_iter().map(move |count| {
            let numbers = first..first + count;
            first += count;
            let rows = numbers.filter(|number| !used[*number]).map(|number| encoded.row(number as u32));
            RecordBatch::try_new(Arc::clone(&encoded.schema), encoded.encoder.decode(rows)?)
        }))
    }
}

impl Encoded {
    /// Encodes columns behind what there is.
    fn append(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let (mut start, rows) = (0, columns.first().map_or(0, |column| column.len()));
        while start < rows {
            let room = self.chunks.last().map_or(0, |chunk| CHUNK_ROWS - chunk.num_rows());
            if room == 0 {
                self.chunks.push(self.encoder.empty());
                continue;
            }
            let count = room.min(rows - start);
            let part: Vec<ArrayRef> = columns.iter().map(|column| column.slice(start, count)).collect();
            if let Some(chunk) = self.chunks.last_mut() {
                self.encoder.append(chunk, &part)?;
            }
            start += count;
        }
        Ok(())
    }

    fn row(&self, number: u32) -> Row<'_> {
        let (chunk, row) = (number >> CHUNK_BITS, number as usize & (CHUNK_ROWS - 1));
        self.chunks[chunk as usize].row(row)
    }
}

/// The ids of a batch's rows, where they have them.
fn row_ids(batch: &RecordBatch, place: Option<usize>) -> Option<impl Iterator<Item = Option<i64>> + '_> {
    batch.columns().get(place?)?.as_primitive_opt::<Int64Type>().map(|ids| ids.iter())
}

/// The row before the one of this id in a chain of equal rows; none when it is the first, or not near.
fn before_row_id(first: u32, next: &[u32], ids: &[Option<i64>], id: i64) -> Option<u32> {
    let is_it = |row: u32| ids.get(row as usize).copied().flatten() == Some(id);
    if is_it(first) {
        return None;
    }
    let follows = |row: &u32| Some(next[*row as usize]).filter(|next| *next != NONE);
    let chain = std::iter::successors(Some(first), follows).take(ROW_ID_STEPS);
    chain.into_iter().find(|row| follows(row).is_some_and(is_it))
}

/// The rows of a batch that are not used.
pub(super) fn unmatched(batch: RecordBatch, used: &[bool]) -> Result<RecordBatch, ArrowError> {
    if used.iter().all(|used| !used) {
        return Ok(batch);
    }
    let left = BooleanArray::new(BooleanBuffer::collect_bool(used.len(), |row| !used[row]), None);
    filter_record_batch(&batch, &left)
}

fn compared(batch: &RecordBatch, columns: usize) -> &[ArrayRef] {
    &batch.columns()[..columns.min(batch.num_columns())]
}

/// Each batch with the part of `used` that is its rows'.
fn with_used<'a>(batches: &'a [RecordBatch], used: &'a [bool]) -> impl Iterator<Item = (&'a RecordBatch, &'a [bool])> {
    let mut left = used;
    batches.iter().map(move |batch| {
        let (of_batch, rest) = left.split_at(batch.num_rows());
        left = rest;
        (batch, of_batch)
    })
}
