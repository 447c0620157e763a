//! Updates: rows that went and rows that came, paired by what identifies a row.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;

use super::held::Left;
use super::waiting::{NONE, Seen, Waiting};
use crate::exchange::{batch_rows, ends, memory_bytes, place};
use crate::key_text::printed;
use crate::{Change, ChangeBatch, Columns};

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
    pub(super) fn key(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
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

/// The same of rows that nothing identifies: each that went is a DELETE, each that came an INSERT.
pub(super) fn unpaired(went: Left, came: Vec<RecordBatch>) -> Result<Pairs, ArrowError> {
    let last = came.iter().try_fold(0, next_first)?;
    let deletes = (0..).zip(&went.used).filter(|(_, used)| !**used).map(|(number, _)| number).collect();
    Ok(Pairs::new(went.batches, came, [deletes, Vec::new(), Vec::new(), (0..last).collect()]))
}

/// The number of the first row behind a batch.
fn next_first(first: u32, batch: &RecordBatch) -> Result<u32, ArrowError> {
    let next = u32::try_from(batch.num_rows()).ok().and_then(|rows| first.checked_add(rows));
    next.filter(|next| *next < NONE).ok_or_else(|| ArrowError::ComputeError("too many rows in one task".to_owned()))
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
