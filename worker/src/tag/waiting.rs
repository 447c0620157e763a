//! Rows that went and wait for the other half of their update.

use std::hash::BuildHasher;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::error::ArrowError;
use arrow::row::Rows;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::encode::RowEncoder;
use super::pairs::Pairing;

/// The end of a chain of rows of one identity.
pub(super) const NONE: u32 = u32::MAX;

/// Rows that went and wait for their partner, by identity.
#[derive(Default)]
pub(super) struct Waiting {
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
    pub(super) fn add(
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
    pub(super) fn chain(&mut self) {
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
    pub(super) fn take(&mut self, key: &[u8]) -> Option<u32> {
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

    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.keys.as_ref().map_or(0, Rows::size);
        let numbers = self.numbers.capacity() + self.next.capacity() + self.table.capacity();
        keys + numbers * size_of::<u32>() + 3 * self.waits.capacity() + self.seen.memory_bytes()
    }

    /// The rows without a partner, in the order in which they were added.
    pub(super) fn rest(self) -> Vec<u32> {
        self.numbers.into_iter().zip(self.goes).filter(|(_, goes)| *goes).map(|(number, _)| number).collect()
    }

    fn encoder(&mut self, key: &[ArrayRef]) -> Result<&RowEncoder, ArrowError> {
        match &mut self.encoder {
            Some(encoder) => Ok(encoder),
            none => Ok(none.insert(RowEncoder::new(key)?)),
        }
    }

    pub(super) fn encode(&mut self, key: &[ArrayRef]) -> Result<Rows, ArrowError> {
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
pub(super) struct Seen {
    hasher: RandomState,
    bytes: Vec<u8>,
    /// Where the key of a number begins and ends in `bytes`.
    ends: Vec<usize>,
    table: HashTable<u32>,
}

impl Seen {
    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = self.table.capacity() * (size_of::<u32>() + 1);
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>() + numbers
    }

    /// The place of a row whose key was seen before, among those that count.
    pub(super) fn twice(&mut self, keys: &Rows, counts: impl Fn(usize) -> bool) -> Option<usize> {
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
