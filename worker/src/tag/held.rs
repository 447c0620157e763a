//! The DELETE rows of a task as a multiset, until the INSERT rows have come by.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::encode::{RowEncoder, canonical_schema};
use crate::Columns;
use crate::exchange::memory_bytes;
use crate::key_text::printed;

/// The end of a chain of equal rows.
const NONE: u32 = u32::MAX;

/// DELETE rows that wait for an equal INSERT row.
pub(super) struct Held<S = RandomState> {
    /// Columns that come out; all of them when empty.
    key: Vec<usize>,
    /// How many columns decide whether rows are equal; those behind them ride along.
    compared: usize,
    hasher: S,
    encoded: Option<Encoded>,
    /// What comes out of each batch: its key columns, or the batch.
    batches: Vec<RecordBatch>,
    batch_bytes: usize,
    /// For each different row, the last of its equal rows that is not used yet. Rows are numbered over all batches.
    table: HashTable<Slot>,
    /// For each row the next equal one that is not used yet.
    next: Vec<u32>,
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
    rows: Rows,
    /// The columns that are encoded, as [`canonical_schema`] has them.
    schema: SchemaRef,
}

/// What was held, batch by batch, and which of its rows an INSERT row was equal to.
pub(super) struct Left {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) used: Vec<bool>,
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
    /// `compared` columns are.
    pub(super) fn new(key: Vec<usize>, compared: usize) -> Self {
        Self::with_hasher(key, compared, RandomState::default())
    }
}

impl<S: BuildHasher> Held<S> {
    /// As [`Held::new`], with a hasher of one's own.
    pub(super) fn with_hasher(key: Vec<usize>, compared: usize, hasher: S) -> Self {
        Self {
            key,
            compared,
            hasher,
            encoded: None,
            batches: Vec::new(),
            batch_bytes: 0,
            table: HashTable::new(),
            next: Vec::new(),
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
        let encoded = self.encoded.as_ref().map_or(0, |encoded| encoded.rows.size());
        let numbers = self.next.capacity() * size_of::<u32>() + self.table.capacity() * (size_of::<Slot>() + 1);
        self.batch_bytes + encoded + numbers + self.used.capacity()
    }

    /// Holds the rows of a batch with all its columns.
    pub(super) fn hold(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let encoded = match &mut self.encoded {
            Some(encoded) => encoded,
            none => {
                let encoder = RowEncoder::new(compared(&batch, self.compared))?;
                let (rows, schema) = (encoder.empty(), canonical_schema(&batch.schema(), self.compared));
                none.insert(Encoded { encoder, rows, schema })
            }
        };
        encoded.encoder.append(&mut encoded.rows, compared(&batch, self.compared))?;
        let (hasher, rows) = (&self.hasher, &encoded.rows);
        for _ in 0..batch.num_rows() {
            let number = u32::try_from(self.next.len()).ok().filter(|number| *number != NONE);
            let Some(number) = number else {
                return Err(ArrowError::ComputeError("too many rows in one task".to_owned()));
            };
            let row = rows.row(number as usize);
            let hash = Slot::part(hasher.hash_one(row.as_ref()));
            let equal = |other: &Slot| other.hash == hash && rows.row(other.number as usize) == row;
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
        let Some(Encoded { encoder, rows: held, .. }) = &self.encoded else { return Ok(Matched::None) };
        if self.table.is_empty() {
            return Ok(Matched::None);
        }
        let mut rows = encoder.empty();
        encoder.append(&mut rows, compared(batch, self.compared))?;
        let mut count = 0;
        let (table, next, used, hasher) = (&mut self.table, &self.next, &mut self.used, &self.hasher);
        let came = BooleanBuffer::collect_bool(batch.num_rows(), |row| {
            let row = rows.row(row);
            let hash = Slot::part(hasher.hash_one(row.as_ref()));
            let found = table.find_entry(Slot::spread(hash), |slot| {
                slot.hash == hash && held.row(slot.number as usize).as_ref() == row.as_ref()
            });
            let Ok(mut entry) = found else { return true };
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
        let (mut first, used) = (0, self.used);
        self.batches.into_iter().map(move |batch| {
            let used = &used[first..first + batch.num_rows()];
            first += batch.num_rows();
            unmatched(batch, used)
        })
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
        let Some(Encoded { encoder, rows, schema }) = self.encoded else { return Box::new(std::iter::empty()) };
        let (mut first, used) = (0, self.used);
        let counts: Vec<usize> = self.batches.iter().map(RecordBatch::num_rows).collect();
        Box::new(counts.into_iter().map(move |count| {
            let numbers = first..first + count;
            first += count;
            let rows = numbers.filter(|number| !used[*number]).map(|number| rows.row(number));
            RecordBatch::try_new(Arc::clone(&schema), encoder.decode(rows)?)
        }))
    }
}

/// The rows of a batch that are not used.
fn unmatched(batch: RecordBatch, used: &[bool]) -> Result<RecordBatch, ArrowError> {
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
