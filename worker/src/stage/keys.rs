//! Keys are unique: two rows of one key on one side of a task are refused by name.
//!
//! An equality delete reaches every row that has its key, so a target with two live rows of one key would lose both when
//! the source loses one. Only what one task holds can be seen; a duplicate over several tasks, or one that the epoch does
//! not touch, cannot.

use std::hash::BuildHasher;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::Change;

/// The keys seen on each side of a task.
pub(super) struct UniqueKeys {
    converter: RowConverter,
    deleted: Seen,
    inserted: Seen,
    bytes_max: usize,
    /// The bound was reached: nothing is looked at any more.
    full: bool,
}

/// What came of looking at a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// No key twice.
    Unique,
    /// The row's key was there before.
    Twice {
        /// Row of the batch.
        row: usize,
    },
    /// The keys do not fit: those that come from here on are not looked at. Said once.
    Full,
}

#[derive(Default)]
struct Seen {
    hasher: RandomState,
    /// Numbers of keys.
    table: HashTable<u32>,
    /// Encoded keys, one behind the other.
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl UniqueKeys {
    /// No keys yet. `key` has the types of the key columns.
    pub(super) fn new(key: &[DataType], bytes_max: usize) -> Result<Self, ArrowError> {
        let fields = key.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        let converter = RowConverter::new(fields)?;
        Ok(Self { converter, deleted: Seen::default(), inserted: Seen::default(), bytes_max, full: false })
    }

    /// Memory that the keys may take.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Looks at the key columns of a batch.
    pub(super) fn look(&mut self, change: Change, key: &[ArrayRef]) -> Result<Looked, ArrowError> {
        if self.full {
            return Ok(Looked::Unique);
        }
        let rows = self.converter.convert_columns(key)?;
        let seen = match change {
            Change::Insert | Change::UpdateAfter => &mut self.inserted,
            Change::Delete | Change::UpdateBefore => &mut self.deleted,
        };
        for (row, key) in rows.iter().enumerate() {
            if !seen.insert(key.as_ref()) {
                return Ok(Looked::Twice { row });
            }
        }
        if self.deleted.memory_bytes() + self.inserted.memory_bytes() > self.bytes_max {
            self.full = true;
            self.deleted = Seen::default();
            self.inserted = Seen::default();
            return Ok(Looked::Full);
        }
        Ok(Looked::Unique)
    }
}

impl Seen {
    /// Whether the key is new.
    fn insert(&mut self, key: &[u8]) -> bool {
        let Self { hasher, table, bytes, ends } = self;
        let encoded = |number: u32| {
            let number = number as usize;
            let start = if number == 0 { 0 } else { ends[number - 1] };
            &bytes[start..ends[number]]
        };
        let hash = hasher.hash_one(key);
        if table.find(hash, |number| encoded(*number) == key).is_some() {
            return false;
        }
        let Ok(number) = u32::try_from(ends.len()) else {
            // Four thousand million keys are far beyond any bound on memory.
            return true;
        };
        table.insert_unique(hash, number, |number| hasher.hash_one(encoded(*number)));
        bytes.extend_from_slice(key);
        ends.push(bytes.len());
        true
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.table.capacity() * (size_of::<u32>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn key(ids: &[Option<i64>], names: &[&str]) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(StringArray::from(names.to_vec()))]
    }

    fn keys(bytes_max: usize) -> UniqueKeys {
        UniqueKeys::new(&[DataType::Int64, DataType::Utf8], bytes_max).unwrap()
    }

    #[test]
    fn a_key_may_come_once_on_each_side() {
        let mut keys = keys(1 << 20);
        for change in [Change::Delete, Change::Insert] {
            let first = key(&[Some(1), Some(1), None], &["a", "b", "a"]);
            assert_eq!(keys.look(change, &first).unwrap(), Looked::Unique);
        }
        let again = key(&[Some(2), None], &["a", "a"]);
        assert_eq!(keys.look(Change::Insert, &again).unwrap(), Looked::Twice { row: 1 });
        let again = key(&[Some(1)], &["b"]);
        assert_eq!(keys.look(Change::Delete, &again).unwrap(), Looked::Twice { row: 0 });
    }

    #[test]
    fn columns_do_not_run_into_each_other() {
        let mut keys = UniqueKeys::new(&[DataType::Utf8, DataType::Utf8], 1 << 20).unwrap();
        let text = |text: &str| Arc::new(StringArray::from(vec![text.to_owned()])) as ArrayRef;
        for (a, b) in [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")] {
            assert_eq!(keys.look(Change::Insert, &[text(a), text(b)]).unwrap(), Looked::Unique, "{a} {b}");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_end_of_looking_is_said_once() {
        let mut keys = keys(4096);
        let mut said = 0;
        for number in 0..2000 {
            let looked = keys.look(Change::Insert, &key(&[Some(number)], &["some text that takes room"])).unwrap();
            said += usize::from(looked == Looked::Full);
        }
        assert_eq!(said, 1);
        assert!(keys.inserted.memory_bytes() == 0);
    }
}
