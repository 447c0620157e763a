//! Hashes of rows. Pure.

use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use twox_hash::{XxHash3_64, XxHash3_128};

use super::bytes::RowBytes;

/// The hashes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hashes {
    /// Of what tells it apart.
    pub(super) key: u64,
    /// Of all its columns.
    pub(super) row: u128,
}

/// Hashes the rows of one schema.
pub(super) struct RowHasher {
    /// Places of the columns that tell rows apart; all of them when empty.
    key: Vec<usize>,
    /// All columns, and those of the key; made with the first batch.
    bytes: Option<(RowBytes, Option<RowBytes>)>,
}

impl RowHasher {
    pub(super) fn new(key: Vec<usize>) -> Self {
        Self { key, bytes: None }
    }

    /// Puts the hashes of a batch's rows, and of nothing else, into `hashes`.
    pub(super) fn hash(&mut self, columns: &[ArrayRef], hashes: &mut Vec<Hashes>) -> Result<(), ArrowError> {
        let key: Vec<ArrayRef> = self.key.iter().filter_map(|place| columns.get(*place).cloned()).collect();
        if key.len() != self.key.len() {
            let what = format!("there are {} columns, and the key is columns {:?}", columns.len(), self.key);
            return Err(ArrowError::SchemaError(what));
        }
        let (all, of_key) = match &mut self.bytes {
            Some(bytes) => bytes,
            none => {
                let of_key = if key.is_empty() { None } else { Some(RowBytes::new(&key)?) };
                none.insert((RowBytes::new(columns)?, of_key))
            }
        };
        hashes.clear();
        // One half tells the row apart and the other what it holds, so that together they still are the whole hash.
        hashes.extend(all.rows(columns)?.map(|row| {
            let row = XxHash3_128::oneshot(row);
            Hashes { key: (row >> 64) as u64, row }
        }));
        if let Some(of_key) = of_key {
            let keys = of_key.rows(&key)?;
            hashes.iter_mut().zip(keys).for_each(|(hashes, key)| hashes.key = XxHash3_64::oneshot(key));
        }
        Ok(())
    }
}

/// A hash of each value of one column.
pub(super) fn values(column: &ArrayRef) -> Result<Vec<u64>, ArrowError> {
    let mut hashes = Vec::new();
    RowHasher::new(Vec::new()).hash(std::slice::from_ref(column), &mut hashes)?;
    Ok(hashes.into_iter().map(|hashes| hashes.row as u64).collect())
}
