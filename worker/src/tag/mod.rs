//! Step 4, tag: change batches -> change batches with carry-over cancelled.
//!
//! A copy-on-write rewrite removes a file and adds one that holds most of the same rows. As the difference of two states
//! these rows are a DELETE and an equal INSERT each; they cancel here, where the planner put both files in one task, so
//! that they are not written for nothing. Rows are equal when all their columns are, bit by bit: null equals null, a NaN
//! equals the same NaN, -0.0 is not 0.0, and a map is what its entries are in any order. Equality is decided on the
//! content, never on a hash alone, and by count: one DELETE cancels one INSERT.
//!
//! `encode` makes rows comparable, `held` is the multiset of DELETE rows.

mod encode;
mod held;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::iter::Fuse;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::CarryOver;

use crate::{Change, ChangeBatch, Columns};
use held::{Held, Matched};

/// A failed tag step, or the reader's own error on its way through.
#[derive(Debug, thiserror::Error)]
pub enum TagError<E> {
    /// The reader failed.
    #[error(transparent)]
    Read(E),
    /// Rows could not be compared.
    #[error("compare rows that went with rows that came")]
    Compare(#[source] ArrowError),
    /// Two rows of one key before, of which one went and one stayed.
    #[error(
        "{table} has two rows with the key {key}, and only one of them went: with equality deletes a key must be \
         unique, so remove the duplicate from the source or choose equality_columns that identify a row"
    )]
    DuplicateKey {
        /// The source table.
        table: String,
        /// Key columns with their values, printed.
        key: String,
    },
    /// Rows could not be taken out of a batch.
    #[error("take cancelled rows out of a batch")]
    Filter(#[source] ArrowError),
}

impl<E: Classified + 'static> Classified for TagError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::DuplicateKey { .. } => Class::Refused,
            Self::Compare(_) | Self::Filter(_) => Class::Bug,
        }
    }
}

/// Cancels carry-over in what `reader` gives, if `carry_over` says so; otherwise batches pass as they are.
///
/// With [`CarryOver::Cancel`] the reader gives its DELETE batches first. Batches come out with all columns, save that
/// DELETE rows are projected to the columns `key`, by index, unless that is empty. At most `memory_bytes_max` are held:
/// beyond it the rest is carried as it comes, which is right as well, only more to write. A key of which one row goes and
/// another is carried over is refused: the delete would reach both, and nothing would bring the other one back. `table`
/// is the source, for that message.
pub fn tag<I, E>(
    table: &str,
    reader: I,
    carry_over: CarryOver,
    key: impl Into<Vec<usize>>,
    memory_bytes_max: u64,
) -> Tagged<I::IntoIter>
where
    I: IntoIterator<Item = Result<ChangeBatch, E>>,
{
    let held = match carry_over {
        CarryOver::Cancel => Some(Held::new(key.into())),
        CarryOver::Keep => None,
    };
    Tagged {
        table: table.to_owned(),
        reader: reader.into_iter().fuse(),
        held,
        memory_bytes_max,
        ready: VecDeque::new(),
        carried_over: 0,
    }
}

/// What [`tag()`] gives.
pub struct Tagged<I> {
    table: String,
    reader: Fuse<I>,
    /// Absent when nothing cancels, or no longer does.
    held: Option<Held>,
    memory_bytes_max: u64,
    ready: VecDeque<ChangeBatch>,
    carried_over: u64,
}

impl<I> Tagged<I> {
    /// Pairs of equal DELETE and INSERT rows that cancelled so far.
    pub fn carried_over(&self) -> u64 {
        self.carried_over
    }

    fn take<E>(&mut self, batch: ChangeBatch) -> Result<(), TagError<E>> {
        let Some(held) = &mut self.held else {
            self.ready.push_back(batch);
            return Ok(());
        };
        match (batch.change, batch.columns) {
            // Without its other columns a row equals no other.
            (_, Columns::Key) => self.ready.push_back(batch),
            (Change::Delete, Columns::All) => {
                held.hold(batch.rows).map_err(TagError::Compare)?;
                if held.memory_bytes() as u64 > self.memory_bytes_max {
                    tracing::debug!(
                        rows = held.len(),
                        bytes = held.memory_bytes(),
                        "rows that went did not fit into memory, carry-over was not cancelled"
                    );
                    self.release()?;
                }
            }
            (Change::Insert, Columns::All) => match held.match_inserts(&batch.rows).map_err(TagError::Compare)? {
                Matched::None => self.ready.push_back(batch),
                Matched::Some { came, count } => {
                    self.carried_over += count;
                    let rows = filter_record_batch(&batch.rows, &came).map_err(TagError::Filter)?;
                    self.push(ChangeBatch { rows, ..batch });
                }
            },
        }
        Ok(())
    }

    /// Gives out what is held and was not cancelled, and holds nothing from here on.
    fn release<E>(&mut self) -> Result<(), TagError<E>> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        if let Some(key) = held.key_that_goes_and_stays().map_err(TagError::Compare)? {
            return Err(TagError::DuplicateKey { table: self.table.clone(), key });
        }
        let columns = held.columns();
        for rows in held.into_unmatched() {
            let rows: RecordBatch = rows.map_err(TagError::Filter)?;
            self.push(ChangeBatch { change: Change::Delete, columns, rows });
        }
        Ok(())
    }

    fn push(&mut self, batch: ChangeBatch) {
        if batch.rows.num_rows() > 0 {
            self.ready.push_back(batch);
        }
    }
}

impl<I, E> Iterator for Tagged<I>
where
    I: Iterator<Item = Result<ChangeBatch, E>>,
{
    type Item = Result<ChangeBatch, TagError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            let step = match self.reader.next() {
                Some(Ok(batch)) => self.take(batch),
                Some(Err(error)) => Err(TagError::Read(error)),
                None if self.held.is_some() => self.release(),
                None => return None,
            };
            if let Err(error) = step {
                // What is held must not come out as deletes of an attempt that failed.
                self.held = None;
                return Some(Err(error));
            }
        }
    }
}
