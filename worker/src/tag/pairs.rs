//! Updates: rows that went and rows that came, paired by what identifies a row.

use std::hash::BuildHasher;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, interleave_record_batch};
use arrow::error::ArrowError;
use arrow::row::Rows;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::encode::RowEncoder;
use super::held::Left;
use crate::exchange::{batch_rows, ends, memory_bytes, place};
use crate::key_text::printed;
use crate::{Change, ChangeBatch, Columns};

/// The end of a chain of rows of one identity.
const NONE: u32 = u32::MAX;

/// How rows are paired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    /// Places of the columns that identify a row.
    pub columns: Vec<usize>,
    /// Whether null identifies a row as any other value does; otherwise a row with a null is like no other.
    pub nulls_pair: bool,
    /// Whether several rows of one change type may have one identity.
    pub duplicates: bool,
}

impl Pairing {
    /// The columns that identify the rows of a batch.
    fn key(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        Ok(batch.project(&self.columns)?.columns().to_vec())
    }

    /// Which rows of a batch may have a partner; all when nothing is given.
    pub(super) fn may_pair(&self, batch: &RecordBatch) -> Result<Option<BooleanBuffer>, ArrowError> {
        if self.nulls_pair {
            return Ok(None);
        }
        let key = self.key(batch)?;
        let is_whole = |row| key.iter().all(|column| column.is_valid(row));
        let whole = BooleanBuffer::collect_bool(batch.num_rows(), is_whole);
        Ok(if whole.count_set_bits() == whole.len() { None } else { Some(whole) })
    }
}

/// What came out of pairing.
pub(super) enum Paired {
    /// The changes.
    Changes(Box<Pairs>),
    /// An identity that several rows of one side have, as text, where none may.
    Duplicate(String),
}

/// Who is whose partner; gives the changes batch by batch.
pub(super) struct Pairs {
    went: Vec<RecordBatch>,
    went_ends: Vec<usize>,
    came: Vec<RecordBatch>,
    came_ends: Vec<usize>,
    /// Rows of each kind, numbered over all batches of their side. The nth `before` is the partner of the nth `after`.
    deletes: Vec<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
    inserts: Vec<u32>,
    given: Given,
    batch_rows: usize,
    memory_bytes: u64,
    memory_bytes_peak: u64,
}

/// How many rows of each kind were given.
#[derive(Default)]
struct Given {
    deletes: usize,
    before: usize,
    after: usize,
    inserts: usize,
}

/// Pairs the rows that went with those that came: the first of an identity with the first, and so on. What has no
/// partner is a DELETE or an INSERT.
pub(super) fn pair(went: Left, came: Vec<RecordBatch>, pairing: &Pairing) -> Result<Paired, ArrowError> {
    let mut waiting = Waiting::default();
    let mut first = 0_u32;
    for batch in &went.batches {
        let used = &went.used[first as usize..first as usize + batch.num_rows()];
        if let Some(row) = waiting.add(batch, used, first, pairing)? {
            return Ok(Paired::Duplicate(printed(
                &batch.project(&pairing.columns)?.schema(),
                &pairing.key(batch)?,
                row,
            )));
        }
        first = next_first(first, batch)?;
    }
    waiting.chain();

    let (mut before, mut after, mut inserts) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = Seen::default();
    let mut first = 0_u32;
    for batch in &came {
        let key = pairing.key(batch)?;
        let may_pair = pairing.may_pair(batch)?;
        let may_pair = |row| may_pair.as_ref().is_none_or(|may| may.value(row));
        let keys = waiting.encode(&key)?;
        if !pairing.duplicates
            && let Some(row) = seen.twice(&keys, may_pair)
        {
            return Ok(Paired::Duplicate(printed(&batch.project(&pairing.columns)?.schema(), &key, row)));
        }
        for (row, number) in (0..batch.num_rows()).zip(first..) {
            let partner = if may_pair(row) { waiting.take(keys.row(row).data()) } else { None };
            match partner {
                Some(partner) => {
                    before.push(partner);
                    after.push(number);
                }
                None => inserts.push(number),
            }
        }
        first = next_first(first, batch)?;
    }
    let working_bytes = waiting.memory_bytes() + seen.memory_bytes();
    let deletes = waiting.rest();
    let mut pairs = Pairs::new(went.batches, came, [deletes, before, after, inserts]);
    pairs.memory_bytes_peak = pairs.memory_bytes + working_bytes as u64;
    Ok(Paired::Changes(Box::new(pairs)))
}

/// The number of the first row behind a batch.
fn next_first(first: u32, batch: &RecordBatch) -> Result<u32, ArrowError> {
    let next = u32::try_from(batch.num_rows()).ok().and_then(|rows| first.checked_add(rows));
    next.filter(|next| *next < NONE).ok_or_else(|| ArrowError::ComputeError("too many rows in one task".to_owned()))
}

/// Rows that went and wait for their partner, by identity.
#[derive(Default)]
struct Waiting {
    hasher: RandomState,
    encoder: Option<RowEncoder>,
    keys: Option<Rows>,
    /// The row's number, for each encoded key.
    numbers: Vec<u32>,
    /// Whether the row may have a partner, and has none yet, for each encoded key.
    waits: Vec<bool>,
    /// Whether the row went without a partner, for each encoded key.
    goes: Vec<bool>,
    table: HashTable<u32>,
    /// For each encoded key the next one of the same identity.
    next: Vec<u32>,
    seen: Seen,
}

impl Waiting {
    /// Adds the rows of a batch that are not used. Gives the place of one whose identity a row before it has, where none
    /// may.
    fn add(
        &mut self,
        batch: &RecordBatch,
        used: &[bool],
        first: u32,
        pairing: &Pairing,
    ) -> Result<Option<usize>, ArrowError> {
        let left = BooleanArray::new(BooleanBuffer::collect_bool(used.len(), |row| !used[row]), None);
        if left.true_count() == 0 {
            return Ok(None);
        }
        let key = pairing.key(batch)?.iter().map(|column| filter(column, &left)).collect::<Result<Vec<_>, _>>()?;
        let places: Vec<usize> = (0..used.len()).filter(|row| !used[*row]).collect();
        let may_pair = pairing.may_pair(batch)?;
        let may_pair = |place: usize| may_pair.as_ref().is_none_or(|may| may.value(place));
        if !pairing.duplicates {
            let keys = self.encode(&key)?;
            if let Some(at) = self.seen.twice(&keys, |at| may_pair(places[at])) {
                return Ok(Some(places[at]));
            }
        }
        self.encode_behind(&key)?;
        for (place, number) in (0..used.len()).zip(first..).filter(|(place, _)| !used[*place]) {
            self.numbers.push(number);
            self.waits.push(may_pair(place));
            self.goes.push(true);
        }
        Ok(None)
    }

    /// Puts rows of one identity behind each other, in the order in which they were added.
    fn chain(&mut self) {
        let Some(keys) = &self.keys else { return };
        let hash = |at: u32| self.hasher.hash_one(keys.row(at as usize).data());
        self.next = vec![NONE; self.numbers.len()];
        // From behind, so that the first of an identity ends up on top.
        for at in (0..self.numbers.len() as u32).rev().filter(|at| self.waits[*at as usize]) {
            let same = |other: &u32| keys.row(*other as usize) == keys.row(at as usize);
            match self.table.entry(hash(at), same, |other| hash(*other)) {
                Entry::Occupied(mut entry) => {
                    self.next[at as usize] = *entry.get();
                    *entry.get_mut() = at;
                }
                Entry::Vacant(entry) => drop(entry.insert(at)),
            }
        }
    }

    /// The first row that waits for this key, by its number; it waits no longer.
    fn take(&mut self, key: &[u8]) -> Option<u32> {
        let keys = self.keys.as_ref()?;
        let same = |at: &u32| keys.row(*at as usize).data() == key;
        let mut entry = self.table.find_entry(self.hasher.hash_one(key), same).ok()?;
        let at = *entry.get();
        match self.next[at as usize] {
            NONE => drop(entry.remove()),
            next => *entry.get_mut() = next,
        }
        self.goes[at as usize] = false;
        Some(self.numbers[at as usize])
    }

    fn memory_bytes(&self) -> usize {
        let keys = self.keys.as_ref().map_or(0, Rows::size);
        let numbers = self.numbers.capacity() + self.next.capacity() + self.table.capacity();
        keys + numbers * size_of::<u32>() + 3 * self.waits.capacity() + self.seen.memory_bytes()
    }

    /// The rows without a partner, in the order in which they were added.
    fn rest(self) -> Vec<u32> {
        self.numbers.into_iter().zip(self.goes).filter(|(_, goes)| *goes).map(|(number, _)| number).collect()
    }

    fn encoder(&mut self, key: &[ArrayRef]) -> Result<&RowEncoder, ArrowError> {
        match &mut self.encoder {
            Some(encoder) => Ok(encoder),
            none => Ok(none.insert(RowEncoder::new(key)?)),
        }
    }

    fn encode(&mut self, key: &[ArrayRef]) -> Result<Rows, ArrowError> {
        let encoder = self.encoder(key)?;
        let mut rows = encoder.empty();
        encoder.append(&mut rows, key)?;
        Ok(rows)
    }

    fn encode_behind(&mut self, key: &[ArrayRef]) -> Result<(), ArrowError> {
        let mut rows = self.keys.take();
        let encoder = self.encoder(key)?;
        encoder.append(rows.get_or_insert_with(|| encoder.empty()), key)?;
        self.keys = rows;
        Ok(())
    }
}

/// Keys that were seen.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    bytes: Vec<u8>,
    /// Where the key of a number begins and ends in `bytes`.
    ends: Vec<usize>,
    table: HashTable<u32>,
}

impl Seen {
    fn memory_bytes(&self) -> usize {
        let numbers = self.table.capacity() * (size_of::<u32>() + 1);
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>() + numbers
    }

    /// The place of a row whose key was seen before, among those that count.
    fn twice(&mut self, keys: &Rows, counts: impl Fn(usize) -> bool) -> Option<usize> {
        for at in (0..keys.num_rows()).filter(|at| counts(*at)) {
            let key = keys.row(at).data();
            let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
            let seen = |number: u32| {
                let number = number as usize;
                &bytes[if number == 0 { 0 } else { ends[number - 1] }..ends[number]]
            };
            let same = |number: &u32| seen(*number) == key;
            match self.table.entry(hasher.hash_one(key), same, |number| hasher.hash_one(seen(*number))) {
                Entry::Occupied(_) => return Some(at),
                Entry::Vacant(entry) => drop(entry.insert(ends.len() as u32)),
            }
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
        }
        None
    }
}

impl Pairs {
    fn new(went: Vec<RecordBatch>, came: Vec<RecordBatch>, rows: [Vec<u32>; 4]) -> Self {
        let bytes: u64 = went.iter().chain(&came).map(memory_bytes).sum();
        let count: usize = went.iter().chain(&came).map(RecordBatch::num_rows).sum();
        let numbers = rows.iter().map(|rows| rows.capacity() * size_of::<u32>()).sum::<usize>();
        let [deletes, before, after, inserts] = rows;
        Self {
            went_ends: ends(&went),
            came_ends: ends(&came),
            went,
            came,
            deletes,
            before,
            after,
            inserts,
            given: Given::default(),
            batch_rows: batch_rows(count as u64, bytes),
            memory_bytes: bytes + numbers as u64,
            memory_bytes_peak: 0,
        }
    }

    /// Memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Memory that it took to tell who is whose partner, about.
    pub(super) fn memory_bytes_peak(&self) -> u64 {
        self.memory_bytes_peak
    }

    /// The next changes: DELETEs, then the two halves of updates in turns, then INSERTs.
    pub(super) fn next(&mut self) -> Result<Option<ChangeBatch>, ArrowError> {
        let given = &mut self.given;
        let before_first = given.before == given.after;
        let (change, rows, at) = if given.deletes < self.deletes.len() {
            (Change::Delete, &self.deletes, &mut given.deletes)
        } else if before_first && given.before < self.before.len() {
            (Change::UpdateBefore, &self.before, &mut given.before)
        } else if !before_first {
            (Change::UpdateAfter, &self.after, &mut given.after)
        } else if given.inserts < self.inserts.len() {
            (Change::Insert, &self.inserts, &mut given.inserts)
        } else {
            return Ok(None);
        };
        let end = (*at + self.batch_rows).min(rows.len());
        let chunk = &rows[*at..end];
        *at = end;
        let (batches, ends) = match change.comes() {
            true => (&self.came, &self.came_ends),
            false => (&self.went, &self.went_ends),
        };
        let places: Vec<(usize, usize)> = chunk.iter().map(|row| place(ends, *row as usize)).collect();
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        let rows = interleave_record_batch(&batches, &places)?;
        Ok(Some(ChangeBatch { change, columns: Columns::All, rows }))
    }
}
