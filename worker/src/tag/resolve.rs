//! Rows of both sides that fit into memory: equal ones cancel, and what is left waits to be given or paired.

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;

use super::Tagging;
use super::held::{Held, Left, Matched};
use super::pairs::Pairs;
use crate::exchange::memory_bytes;
use crate::tag::alike::Surplus;
use crate::{Change, ChangeBatch, Columns};

/// Memory that pairing takes for a row that came: its number, and room to look it up.
const PAIRING_BYTES: u64 = 8;

/// Batches that are made one after the other.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// Rows that are compared with each other.
pub(super) struct Resolver {
    held: Held,
    /// Rows that came and equal none that went, where they may be a half of an update.
    came: Vec<RecordBatch>,
    came_bytes: u64,
    keeps_what_came: bool,
}

/// What became of rows that came.
pub(super) struct CameBatch {
    /// Those that wait for nothing; none when all cancelled or wait.
    pub(super) rows: Option<RecordBatch>,
    /// How many cancelled.
    pub(super) carried_over: u64,
}

impl Resolver {
    pub(super) fn new(tagging: &Tagging) -> Self {
        // Ids are of use for rows that are told by them alone.
        let by_id = tagging.pairing().filter(|pairing| !pairing.nulls_pair);
        let row_id = by_id.and_then(|pairing| pairing.columns.first().copied());
        let held = Held::new(tagging.key.clone(), tagging.compared, row_id);
        Self { held, came: Vec::new(), came_bytes: 0, keeps_what_came: tagging.pairing().is_some() }
    }

    /// Memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.held.memory_bytes() as u64 + self.came_bytes
    }

    /// Takes rows that went. All of them come before any that came.
    pub(super) fn went(&mut self, rows: RecordBatch) -> Result<(), ArrowError> {
        self.held.hold(rows)
    }

    /// Takes rows that came.
    pub(super) fn came(&mut self, rows: RecordBatch) -> Result<CameBatch, ArrowError> {
        let (rows, carried_over) = match self.held.match_inserts(&rows)? {
            Matched::None => (rows, 0),
            Matched::Some { came, count } => (filter_record_batch(&rows, &came)?, count),
        };
        if !self.keeps_what_came {
            return Ok(CameBatch { rows: (rows.num_rows() > 0).then_some(rows), carried_over });
        }
        if rows.num_rows() > 0 {
            self.came_bytes += memory_bytes(&rows) + PAIRING_BYTES * rows.num_rows() as u64;
            self.came.push(rows);
        }
        Ok(CameBatch { rows: None, carried_over })
    }

    /// A key of which one row goes and another stays.
    pub(super) fn key_that_goes_and_stays(&mut self) -> Result<Option<String>, ArrowError> {
        self.held.key_that_goes_and_stays()
    }

    /// Any rows that it holds, with all their columns unless only keys are kept.
    pub(super) fn sample(&self) -> Option<&RecordBatch> {
        self.held.first_batch().or_else(|| self.came.first())
    }

    /// What is left of both sides, to be compared somewhere else.
    pub(super) fn into_rows(self) -> (Batches, Vec<RecordBatch>) {
        (self.held.into_rows(), self.came)
    }

    /// What is left of both sides, to be paired.
    pub(super) fn into_left(self) -> (Left, Vec<RecordBatch>) {
        (self.held.into_left(), self.came)
    }

    /// The rows that went and stay away, to be given.
    pub(super) fn into_unmatched(self) -> Output {
        let (columns, memory_bytes) = (self.held.columns(), self.held.memory_bytes() as u64);
        Output::Unmatched { columns, memory_bytes, batches: Box::new(self.held.into_unmatched()) }
    }
}

/// Changes that are made as they are asked for.
pub(super) enum Output {
    /// Rows that went.
    Unmatched { columns: Columns, memory_bytes: u64, batches: Batches },
    /// Updates, and what is none.
    Pairs(Box<Pairs>),
    /// Rows that are all equal.
    Surplus(Surplus),
}

impl Output {
    /// Memory that it holds, about, until it ends.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Unmatched { memory_bytes, .. } => *memory_bytes,
            Self::Pairs(pairs) => pairs.memory_bytes(),
            Self::Surplus(_) => 0,
        }
    }

    /// The next changes, at least one row; nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<ChangeBatch>, ArrowError> {
        match self {
            Self::Unmatched { columns, batches, .. } => {
                for rows in batches {
                    let rows = rows?;
                    if rows.num_rows() > 0 {
                        return Ok(Some(ChangeBatch { change: Change::Delete, columns: *columns, rows }));
                    }
                }
                Ok(None)
            }
            Self::Pairs(pairs) => pairs.next(),
            Self::Surplus(surplus) => surplus.next(),
        }
    }
}
