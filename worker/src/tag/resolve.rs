//! Rows of both sides that fit into memory: equal ones cancel, and what is left waits to be given or paired.

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use iceferry_common::model::Resolution;

use super::Tagging;
use super::collapse::Collapse;
use super::held::{Held, Left, Matched};
use super::pairs::{self, Pairs};
use crate::exchange::{Side, memory_bytes};
use crate::tag::alike::Surplus;
use crate::{Change, ChangeBatch, Columns};

/// Memory that pairing takes for a row that came: its number, and room to look it up.
const PAIRING_BYTES: u64 = 8;

/// Batches that are made one after the other.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// Rows that are compared with each other.
pub(super) enum Resolver {
    /// Those of one difference.
    One(One),
    /// Those of the differences of several snapshots.
    Several(Collapse),
}

/// Rows of one difference: those that went are held, and those that came looked up as they come.
pub(super) struct One {
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
        match tagging.resolution {
            Resolution::Net => Self::Several(Collapse::new(held, tagging.ordinal)),
            Resolution::Keep | Resolution::CarryOver | Resolution::Updates => {
                let keeps_what_came = tagging.pairing().is_some();
                Self::One(One { held, came: Vec::new(), came_bytes: 0, keeps_what_came })
            }
        }
    }

    /// Memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::One(one) => one.held.memory_bytes() as u64 + one.came_bytes,
            Self::Several(several) => several.memory_bytes(),
        }
    }

    /// Takes rows that went. All of them come before any that came.
    pub(super) fn went(&mut self, rows: RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::One(one) => one.held.hold(rows),
            Self::Several(several) => several.take(Side::Went, rows),
        }
    }

    /// Takes rows that came.
    pub(super) fn came(&mut self, rows: RecordBatch) -> Result<CameBatch, ArrowError> {
        match self {
            Self::One(one) => one.came(rows),
            Self::Several(several) => {
                several.take(Side::Came, rows)?;
                Ok(CameBatch { rows: None, carried_over: 0 })
            }
        }
    }

    /// Lets cancel what could not before all rows were here, and says how many pairs that were.
    pub(super) fn settle(&mut self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Several(several) => several.settle(),
        }
    }

    /// A key of which one row goes and another stays, in a mirror.
    pub(super) fn key_that_goes_and_stays(&mut self) -> Result<Option<String>, ArrowError> {
        match self {
            Self::One(one) => one.held.key_that_goes_and_stays(),
            Self::Several(_) => Ok(None),
        }
    }

    /// Any rows that it holds, with all their columns unless only keys are kept.
    pub(super) fn sample(&self) -> Option<&RecordBatch> {
        match self {
            Self::One(one) => one.held.first_batch().or_else(|| one.came.first()),
            Self::Several(several) => several.sample(),
        }
    }

    /// What is left of both sides, to be compared somewhere else.
    pub(super) fn into_rows(self) -> Result<(Batches, Vec<RecordBatch>), ArrowError> {
        match self {
            Self::One(one) => Ok((one.held.into_rows(), one.came)),
            Self::Several(several) => {
                let (went, came) = several.into_left()?;
                Ok((Box::new(went.into_unmatched()), came))
            }
        }
    }

    /// What is left of both sides, to be paired.
    pub(super) fn into_left(self) -> Result<(Left, Vec<RecordBatch>), ArrowError> {
        match self {
            Self::One(one) => Ok((one.held.into_left(), one.came)),
            Self::Several(several) => several.into_left(),
        }
    }

    /// What is left and waits to be given, where nothing is paired.
    pub(super) fn into_unmatched(self) -> Result<Output, ArrowError> {
        match self {
            Self::One(one) => {
                let (columns, memory_bytes) = (one.held.columns(), one.held.memory_bytes() as u64);
                Ok(Output::Unmatched { columns, memory_bytes, batches: Box::new(one.held.into_unmatched()) })
            }
            Self::Several(several) => {
                let (went, came) = several.into_left()?;
                Ok(Output::Pairs(Box::new(pairs::unpaired(went, came)?)))
            }
        }
    }
}

impl One {
    fn came(&mut self, rows: RecordBatch) -> Result<CameBatch, ArrowError> {
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
