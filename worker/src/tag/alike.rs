//! Rows that are equal in all that they have, counted instead of held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::error::ArrowError;

use super::encode::RowEncoder;
use crate::exchange::{BATCH_ROWS_MAX, Side, batch_rows, memory_bytes};
use crate::{Change, ChangeBatch, Columns};

/// Counts of rows by content. For rows of one hash, so there is one content, or a few when hashes collide.
#[derive(Default)]
pub(super) struct Alike {
    encoder: Option<RowEncoder>,
    kinds: HashMap<Box<[u8]>, Kind>,
    memory_bytes: u64,
}

/// Rows of one content.
struct Kind {
    /// One of them.
    row: RecordBatch,
    went: u64,
    came: u64,
}

impl Alike {
    /// Memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Different contents that were counted.
    pub(super) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Counts the rows of a batch.
    pub(super) fn count(&mut self, side: Side, batch: &RecordBatch) -> Result<(), ArrowError> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(RowEncoder::new(batch.columns())?),
        };
        let mut rows = encoder.empty();
        encoder.append(&mut rows, batch.columns())?;
        for (at, row) in rows.iter().enumerate() {
            // A look first, so that only the first row of a kind has its bytes copied.
            if let Some(kind) = self.kinds.get_mut(row.as_ref()) {
                kind.add(side);
                continue;
            }
            if let Entry::Vacant(entry) = self.kinds.entry(row.as_ref().into()) {
                // A copy of its own, so that the batch can go.
                let one = take_record_batch(batch, &UInt32Array::from(vec![at as u32]))?;
                self.memory_bytes += memory_bytes(&one) + row.as_ref().len() as u64;
                entry.insert(Kind { row: one, went: 0, came: 0 }).add(side);
            }
        }
        Ok(())
    }

    /// Equal pairs that cancelled, and the rows that are left.
    pub(super) fn finish(self) -> (u64, Surplus) {
        let kinds: Vec<Kind> = self.kinds.into_values().collect();
        (kinds.iter().map(|kind| kind.went.min(kind.came)).sum(), Surplus { kinds })
    }
}

impl Kind {
    fn add(&mut self, side: Side) {
        match side {
            Side::Went => self.went += 1,
            Side::Came => self.came += 1,
        }
    }
}

/// Gives the rows of the side that has more, one kind after the other.
pub(super) struct Surplus {
    kinds: Vec<Kind>,
}

impl Surplus {
    /// The next rows.
    pub(super) fn next(&mut self) -> Result<Option<ChangeBatch>, ArrowError> {
        while let Some(kind) = self.kinds.last_mut() {
            let left = kind.went.abs_diff(kind.came);
            if left == 0 {
                self.kinds.pop();
                continue;
            }
            let rows_max = batch_rows(1, memory_bytes(&kind.row)).min(BATCH_ROWS_MAX);
            let count = left.min(rows_max as u64);
            let rows = take_record_batch(&kind.row, &UInt32Array::from(vec![0; count as usize]))?;
            let change = if kind.went > kind.came { Change::Delete } else { Change::Insert };
            let larger = if kind.went > kind.came { &mut kind.went } else { &mut kind.came };
            *larger -= count;
            return Ok(Some(ChangeBatch { change, columns: Columns::All, rows }));
        }
        Ok(None)
    }
}
