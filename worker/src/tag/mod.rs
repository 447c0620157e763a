//! Step 4, tag: change batches -> change batches with carry-over cancelled and updates told.
//!
//! A copy-on-write rewrite removes a file and adds one that holds most of the same rows. As the difference of two states
//! these rows are a DELETE and an equal INSERT each; they cancel here, where the planner put both files in one task, so
//! that they are not written for nothing. Rows are equal when all their columns are, bit by bit: null equals null, a NaN
//! equals the same NaN, -0.0 is not 0.0, and a map is what its entries are in any order. Equality is decided on the
//! content, never on a hash alone, and by count: one DELETE cancels one INSERT.
//!
//! In a changelog what is left of both sides is then paired by what identifies a row: a DELETE and an INSERT of one
//! identity are the two halves of an update.
//!
//! `encode` makes rows comparable, `held` is the multiset of DELETE rows, `pairs` tells updates.

pub(crate) mod encode;
mod held;
mod pairs;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::iter::Fuse;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::model::Resolution;

use crate::{Change, ChangeBatch, Columns};
use held::{Held, Matched};
use pairs::Paired;
pub use pairs::Pairing;

/// Rows of a batch that comes out of pairing, at most.
const PAIRED_BATCH_ROWS: usize = 8192;

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
    /// Several rows of one change type have one identity.
    #[error(
        "{table} has several rows with the identity {key} among the deletes or inserts of one snapshot, and \
         source.duplicate_keys is fail: remove the duplicate, choose source.identifier_columns that identify a row, or \
         set duplicate_keys to pair"
    )]
    DuplicateIdentity {
        /// The source table.
        table: String,
        /// Identifying columns with their values, printed.
        key: String,
    },
    /// Rows that have to be looked at together do not fit.
    #[error(
        "rows of {table} that one snapshot rewrote, and that may be each other's updates, take more than the {bytes_max} \
         bytes that a task has for them: raise --memory-mb, or run with fewer --slots"
    )]
    TooLarge {
        /// The source table.
        table: String,
        /// Memory for the rows of a task.
        bytes_max: u64,
    },
    /// Rows could not be taken out of a batch.
    #[error("take cancelled rows out of a batch")]
    Filter(#[source] ArrowError),
}

impl<E: Classified + 'static> Classified for TagError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::DuplicateKey { .. } | Self::DuplicateIdentity { .. } => Class::Refused,
            Self::TooLarge { .. } => Class::Exhausted,
            Self::Compare(_) | Self::Filter(_) => Class::Bug,
        }
    }
}

/// What the tag step does with the rows of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagging {
    /// The source table, for messages.
    pub table: String,
    /// What rows are compared for.
    pub resolution: Resolution,
    /// How many columns decide whether rows are equal: those of the read schema. Metadata columns behind them ride along.
    pub compared: usize,
    /// Columns, by place, that a DELETE row is cut down to for a mirror; all of them when empty.
    pub key: Vec<usize>,
    /// For a changelog, which is wrong unless all that cancels does, and all updates are told.
    pub changelog: Option<Pairing>,
    /// Memory for rows that are held.
    pub memory_bytes_max: u64,
}

/// Cancels carry-over in what `reader` gives, and for a changelog tells updates, as its resolution says; with
/// [`Resolution::Keep`] batches pass as they are.
///
/// Otherwise the reader gives its DELETE batches first. Batches come out with all columns, save that DELETE rows of a
/// mirror are cut down to its key. A mirror whose rows do not fit into memory carries the rest as it comes, which is right
/// as well, only more to write; a changelog fails then. A key of which one row goes and another is carried over is refused
/// for a mirror: the delete would reach both, and nothing would bring the other one back.
pub fn tag<I, E>(reader: I, tagging: Tagging) -> Tagged<I::IntoIter>
where
    I: IntoIterator<Item = Result<ChangeBatch, E>>,
{
    let held = match tagging.resolution {
        Resolution::CarryOver | Resolution::Updates => Some(Held::new(tagging.key.clone(), tagging.compared)),
        Resolution::Keep => None,
    };
    Tagged {
        reader: reader.into_iter().fuse(),
        held,
        came: Vec::new(),
        came_bytes: 0,
        ready: VecDeque::new(),
        carried_over: 0,
        failed: false,
        tagging,
    }
}

/// What [`tag()`] gives.
pub struct Tagged<I> {
    tagging: Tagging,
    reader: Fuse<I>,
    /// Absent when nothing cancels, or no longer does.
    held: Option<Held>,
    /// Rows that came and equal none that went: any may be the other half of an update.
    came: Vec<RecordBatch>,
    came_bytes: u64,
    ready: VecDeque<ChangeBatch>,
    carried_over: u64,
    failed: bool,
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
            (Change::Delete | Change::UpdateBefore, Columns::All) => {
                held.hold(batch.rows).map_err(TagError::Compare)?;
                if held.memory_bytes() as u64 > self.tagging.memory_bytes_max {
                    if self.tagging.changelog.is_some() {
                        return Err(self.too_large());
                    }
                    tracing::debug!(
                        rows = held.len(),
                        bytes = held.memory_bytes(),
                        "rows that went did not fit into memory, carry-over was not cancelled"
                    );
                    self.release()?;
                }
            }
            (Change::Insert | Change::UpdateAfter, Columns::All) => {
                match held.match_inserts(&batch.rows).map_err(TagError::Compare)? {
                    Matched::None => self.came(batch)?,
                    Matched::Some { came, count } => {
                        self.carried_over += count;
                        let rows = filter_record_batch(&batch.rows, &came).map_err(TagError::Filter)?;
                        self.came(ChangeBatch { rows, ..batch })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Rows that came and equal none that went: they wait where they may be a half of an update.
    fn came<E>(&mut self, batch: ChangeBatch) -> Result<(), TagError<E>> {
        if self.tagging.resolution != Resolution::Updates || self.tagging.changelog.is_none() {
            self.push(batch);
            return Ok(());
        }
        self.came_bytes += batch.rows.columns().iter().map(held::slice_bytes).sum::<usize>() as u64;
        self.came.push(batch.rows);
        let held = self.held.as_ref().map_or(0, Held::memory_bytes) as u64;
        if self.came_bytes + held > self.tagging.memory_bytes_max { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large<E>(&self) -> TagError<E> {
        let bytes_max = self.tagging.memory_bytes_max;
        TagError::TooLarge { table: self.tagging.table.clone(), bytes_max }
    }

    /// Pairs what is left of both sides.
    fn pair<E>(&mut self, held: Held, pairing: &Pairing) -> Result<(), TagError<E>> {
        let went = held.into_unmatched().collect::<Result<Vec<_>, _>>().map_err(TagError::Filter)?;
        let came = std::mem::take(&mut self.came);
        match pairs::pair(&went, &came, pairing, PAIRED_BATCH_ROWS).map_err(TagError::Compare)? {
            Paired::Changes(changes) => {
                self.ready.extend(changes);
                Ok(())
            }
            Paired::Duplicate(key) => Err(TagError::DuplicateIdentity { table: self.tagging.table.clone(), key }),
        }
    }

    /// Gives out what is held and was not cancelled, and holds nothing from here on.
    fn release<E>(&mut self) -> Result<(), TagError<E>> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        if let (Resolution::Updates, Some(pairing)) = (self.tagging.resolution, self.tagging.changelog.clone()) {
            return self.pair(held, &pairing);
        }
        if let Some(key) = held.key_that_goes_and_stays().map_err(TagError::Compare)? {
            return Err(TagError::DuplicateKey { table: self.tagging.table.clone(), key });
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
        // What is held or comes after an error must not come out as changes of an attempt that failed.
        while !self.failed {
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
                self.failed = true;
                return Some(Err(error));
            }
        }
        None
    }
}
