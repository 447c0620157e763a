//! Updates: rows that went and rows that came, paired by what identifies a row.

use std::collections::HashMap;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::RandomState;

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

/// What came out of pairing.
pub(super) enum Paired {
    /// The changes, batch by batch.
    Changes(Vec<ChangeBatch>),
    /// An identity that several rows of one side have, as text, where none may.
    Duplicate(String),
}

/// Pairs the rows that went with those that came: the first of an identity with the first, and so on. What has no
/// partner is a DELETE or an INSERT. Batches have at most `batch_rows` rows.
pub(super) fn pair(
    went: &[RecordBatch],
    came: &[RecordBatch],
    pairing: &Pairing,
    batch_rows: usize,
) -> Result<Paired, ArrowError> {
    let Some(schema) = went.iter().chain(came).map(RecordBatch::schema).next() else {
        return Ok(Paired::Changes(Vec::new()));
    };
    let (went, came) = (concat_batches(&schema, went)?, concat_batches(&schema, came)?);
    if pairing.columns.is_empty() || pairing.columns.iter().any(|place| *place >= schema.fields().len()) {
        let what = format!("rows cannot be told by columns {:?} of {}", pairing.columns, schema.fields().len());
        return Err(ArrowError::SchemaError(what));
    }
    let key_of = |batch: &RecordBatch| -> Vec<ArrayRef> {
        pairing.columns.iter().filter_map(|place| batch.columns().get(*place).cloned()).collect()
    };
    let (went_key, came_key) = (key_of(&went), key_of(&came));
    let fields = went_key.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    let (went_keys, came_keys) = (converter.convert_columns(&went_key)?, converter.convert_columns(&came_key)?);
    let may_pair = |key: &[ArrayRef], row: usize| pairing.nulls_pair || key.iter().all(|column| column.is_valid(row));

    if !pairing.duplicates {
        for (batch, key, keys) in [(&went, &went_key, &went_keys), (&came, &came_key, &came_keys)] {
            if let Some(row) = twice(keys, |row| may_pair(key, row)) {
                return Ok(Paired::Duplicate(printed(&schema.project(&pairing.columns)?.into(), &key_of(batch), row)));
            }
        }
    }

    // Rows that went, by identity: the last of them is on top of each stack, so they are put there from behind.
    let mut waiting: HashMap<&[u8], Vec<u32>, RandomState> = HashMap::default();
    for row in (0..went.num_rows()).rev().filter(|row| may_pair(&went_key, *row)) {
        waiting.entry(went_keys.row(row).data()).or_default().push(index(row)?);
    }
    let (mut before, mut after, mut inserts) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_paired = vec![false; went.num_rows()];
    for row in 0..came.num_rows() {
        let partner = match may_pair(&came_key, row) {
            true => waiting.get_mut(came_keys.row(row).data()).and_then(Vec::pop),
            false => None,
        };
        match partner {
            Some(partner) => {
                is_paired[partner as usize] = true;
                before.push(partner);
                after.push(index(row)?);
            }
            None => inserts.push(index(row)?),
        }
    }
    let mut deletes = Vec::new();
    for row in (0..went.num_rows()).filter(|row| !is_paired[*row]) {
        deletes.push(index(row)?);
    }

    let mut changes = Vec::new();
    let mut give = |change: Change, of: &RecordBatch, rows: &[u32]| -> Result<(), ArrowError> {
        if !rows.is_empty() {
            let rows = take_record_batch(of, &UInt32Array::from(rows.to_vec()))?;
            changes.push(ChangeBatch { change, columns: Columns::All, rows });
        }
        Ok(())
    };
    for rows in deletes.chunks(batch_rows) {
        give(Change::Delete, &went, rows)?;
    }
    for (before, after) in before.chunks(batch_rows).zip(after.chunks(batch_rows)) {
        give(Change::UpdateBefore, &went, before)?;
        give(Change::UpdateAfter, &came, after)?;
    }
    for rows in inserts.chunks(batch_rows) {
        give(Change::Insert, &came, rows)?;
    }
    Ok(Paired::Changes(changes))
}

/// A row whose key another row before it has.
fn twice(keys: &Rows, counts: impl Fn(usize) -> bool) -> Option<usize> {
    let mut seen: std::collections::HashSet<&[u8], RandomState> = std::collections::HashSet::default();
    (0..keys.num_rows()).find(|row| counts(*row) && !seen.insert(keys.row(*row).data()))
}

fn index(row: usize) -> Result<u32, ArrowError> {
    u32::try_from(row).map_err(|_| ArrowError::ComputeError("too many rows in one task".to_owned()))
}
