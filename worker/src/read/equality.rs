//! Equality deletes: the keys of all delete files of a task that are keyed on the same fields, in one hash table.
//!
//! Each key knows the delete files that it stands in. One look-up so tells of a row whether it is dead before and
//! whether it is dead after, however many delete files reach it: time is linear in rows plus keys.
//!
//! Equality is that of Iceberg's Java library: null equals null; every NaN equals every NaN; 0.0 and -0.0 differ, as in
//! `Float.compare` and `Double.compare`. Keys are compared as row-format bytes, where equal values of one type have equal
//! bytes once NaNs are made one.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::HashTable;

/// Ends a list of members.
const NONE: u32 = u32::MAX;

/// Keys of delete files.
pub(super) struct KeyTable {
    converter: RowConverter,
    keys: Rows,
    table: HashTable<Entry>,
    members: Vec<Member>,
    hasher: foldhash::fast::RandomState,
    scratch: Rows,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Row in `keys`.
    key: u32,
    /// First of its members.
    first: u32,
}

/// A delete file that a key stands in.
#[derive(Debug, Clone, Copy)]
struct Member {
    file: u32,
    next: u32,
}

/// Why keys could not be taken in or looked up.
#[derive(Debug)]
pub(super) enum KeyError {
    /// The row format does not take the values.
    Arrow(ArrowError),
    /// There are more of them than can be counted.
    TooMany,
}

impl From<ArrowError> for KeyError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

impl KeyTable {
    /// Keys of columns with this schema.
    pub(super) fn new(schema: &SchemaRef) -> Result<Self, ArrowError> {
        let sort_field = |field: &Arc<arrow::datatypes::Field>| SortField::new(field.data_type().clone());
        let converter = RowConverter::new(schema.fields().iter().map(sort_field).collect())?;
        let (keys, scratch) = (converter.empty_rows(0, 0), converter.empty_rows(0, 0));
        let (table, members, hasher) = (HashTable::new(), Vec::new(), foldhash::fast::RandomState::default());
        Ok(Self { converter, keys, table, members, hasher, scratch })
    }

    /// Bytes that the keys take.
    pub(super) fn size_bytes(&self) -> u64 {
        let members = self.members.capacity() * size_of::<Member>();
        (self.keys.size() + self.scratch.size() + self.table.allocation_size() + members) as u64
    }

    /// Takes in keys of a delete file. All keys of one file come before any of the next.
    pub(super) fn insert(&mut self, file: u32, columns: &[ArrayRef]) -> Result<(), KeyError> {
        self.convert(columns)?;
        let Self { keys, table, members, hasher, scratch, .. } = self;
        for row in &*scratch {
            let hash = hasher.hash_one(row.data());
            let number = u32::try_from(members.len()).ok().filter(|number| *number < NONE).ok_or(KeyError::TooMany)?;
            match table.find_mut(hash, |entry| keys.row(entry.key as usize) == row) {
                // Twice in one file.
                Some(entry) if members[entry.first as usize].file == file => {}
                Some(entry) => members.push(Member { file, next: std::mem::replace(&mut entry.first, number) }),
                None => {
                    let key = u32::try_from(keys.num_rows()).map_err(|_| KeyError::TooMany)?;
                    keys.push(row);
                    members.push(Member { file, next: NONE });
                    let entry = Entry { key, first: number };
                    table.insert_unique(hash, entry, |entry| hasher.hash_one(keys.row(entry.key as usize).data()));
                }
            }
        }
        Ok(())
    }

    /// Adds to each row's marks those of the delete files that its key stands in; `marks_of` is by delete file.
    pub(super) fn mark(&mut self, columns: &[ArrayRef], marks_of: &[u8], rows: &mut [u8]) -> Result<(), KeyError> {
        self.convert(columns)?;
        let Self { keys, table, members, hasher, scratch, .. } = self;
        for (row, marks) in scratch.iter().zip(rows) {
            let hash = hasher.hash_one(row.data());
            let found = table.find(hash, |entry| keys.row(entry.key as usize) == row);
            let mut next = found.map_or(NONE, |entry| entry.first);
            while next != NONE {
                let member = members[next as usize];
                *marks |= marks_of.get(member.file as usize).copied().unwrap_or_default();
                next = member.next;
            }
        }
        Ok(())
    }

    fn convert(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let columns: Vec<ArrayRef> = columns.iter().map(one_nan).collect();
        self.scratch.clear();
        self.converter.append(&mut self.scratch, &columns)
    }
}

/// NaNs of all bit patterns made one.
fn one_nan(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let canonical = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(canonical))
        }
        DataType::Float64 => {
            let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(canonical))
        }
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use arrow::array::{Float64Array, Int32Array, RecordBatch, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn marks(deletes: &[Vec<ArrayRef>], rows: Vec<ArrayRef>, marks_of: &[u8]) -> Vec<u8> {
        let fields: Vec<Field> =
            rows.iter().enumerate().map(|(i, a)| Field::new(format!("c{i}"), a.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let count = RecordBatch::try_new(Arc::clone(&schema), rows.clone()).unwrap().num_rows();
        let mut table = KeyTable::new(&schema).unwrap();
        for (file, columns) in deletes.iter().enumerate() {
            table.insert(file as u32, columns).unwrap();
        }
        let mut marks = vec![0; count];
        table.mark(&rows, marks_of, &mut marks).unwrap();
        marks
    }

    #[test]
    fn null_equals_null_and_not_zero() {
        let deletes = vec![vec![Arc::new(Int32Array::from(vec![None, Some(7)])) as ArrayRef]];
        let rows = vec![Arc::new(Int32Array::from(vec![Some(0), None, Some(7), Some(8)])) as ArrayRef];
        assert_eq!(marks(&deletes, rows, &[1]), [0, 1, 1, 0]);
    }

    #[test]
    fn floats_compare_as_in_java() {
        let other_nan = f64::from_bits(0xFFF8_0000_0000_0001);
        let deletes = vec![vec![Arc::new(Float64Array::from(vec![f64::NAN, 0.0])) as ArrayRef]];
        let rows = vec![Arc::new(Float64Array::from(vec![other_nan, 0.0, -0.0, 1.0])) as ArrayRef];
        assert_eq!(marks(&deletes, rows, &[1]), [1, 1, 0, 0]);
    }

    #[test]
    fn a_row_gets_the_marks_of_every_file_its_key_stands_in() {
        let key = |ids: &[i32], names: &[&str]| -> Vec<ArrayRef> {
            vec![Arc::new(Int32Array::from(ids.to_vec())), Arc::new(StringArray::from(names.to_vec()))]
        };
        let deletes = [key(&[1, 1, 2], &["a", "a", "b"]), key(&[1], &["a"]), key(&[1], &["b"])];
        let rows = key(&[1, 2, 1, 3], &["a", "b", "b", "a"]);
        assert_eq!(marks(&deletes, rows.clone(), &[1, 2, 4]), [3, 1, 4, 0]);
        assert_eq!(marks(&deletes, rows, &[0, 2, 0]), [2, 0, 0, 0]);
    }
}
