//! Rows on their way into an exchange.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use iceferry_common::model::ExchangeFile;

use super::encode::canonical_batch;
use super::spread::{By, Plan, Spread};
use super::{TagError, Tagging};
use crate::ChangeBatch;
use crate::exchange::{ExchangeError, Reader, Side, Space, Writer};

/// An exchange that is written.
pub(super) struct Exchange {
    writer: Writer,
    spread: Spread,
    /// Columns that rows which went are cut down to, each map as a sorted list: where some of them are there in no other form.
    went_columns: Option<usize>,
}

/// Why rows could not be exchanged.
pub(super) enum Problem {
    Compare(ArrowError),
    Exchange(ExchangeError),
}

impl Problem {
    pub(super) fn of<E>(self, tagging: &Tagging) -> TagError<E> {
        match self {
            Self::Compare(error) => TagError::Compare(error),
            Self::Exchange(source) => TagError::Exchange { table: tagging.table.clone(), source },
        }
    }
}

impl Exchange {
    /// Begins an exchange at a level.
    pub(super) fn begin(space: &mut Space, tagging: &Tagging, by: By, level: u32) -> Result<Self, ExchangeError> {
        let writer = Writer::begin(space, level, tagging.memory_bytes_max / 2)?;
        // Of a mirror's rows that went some were held, and of these only the encoding was kept.
        let went_columns = (!tagging.key.is_empty()).then_some(tagging.compared);
        Ok(Self { writer, spread: Spread::new(by, tagging.compared), went_columns })
    }

    /// Writes rows of a side.
    pub(super) fn write(&mut self, side: Side, rows: RecordBatch) -> Result<(), Problem> {
        let rows = match self.went_columns.filter(|_| side == Side::Went) {
            Some(columns) => canonical_batch(&rows, columns).map_err(Problem::Compare)?,
            None => rows,
        };
        let hashes = self.spread.hashes(&rows).map_err(Problem::Compare)?;
        self.writer.write(side, rows, hashes).map_err(Problem::Exchange)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.writer.memory_bytes()
    }

    pub(super) fn finish(self) -> Result<Reader, ExchangeError> {
        self.writer.finish()
    }

    pub(super) fn abort(self) -> Option<String> {
        self.writer.abort()
    }
}

/// Exchanges all that `reader` gives, for others to resolve: each takes a bucket, from all who exchanged rows of the same
/// group, and gives it to [`super::tag`] with [`Tagging::level`] 1. Gives the file, or nothing when there were no rows.
///
/// # Errors
/// When the reader fails or rows cannot be exchanged; the file is removed then. When rows that have to meet do not meet in
/// one exchange.
pub fn exchange<I, E>(reader: I, tagging: &Tagging, mut space: Space) -> Result<Option<ExchangeFile>, TagError<E>>
where
    I: IntoIterator<Item = Result<ChangeBatch, E>>,
{
    let by = whole(tagging)?;
    let begun = Exchange::begin(&mut space, tagging, by, tagging.level);
    let mut exchange = begun.map_err(|source| Problem::Exchange(source).of(tagging))?;
    for batch in reader {
        let written = batch.map_err(TagError::Read).and_then(|batch| {
            let side = if batch.change.comes() { Side::Came } else { Side::Went };
            exchange.write(side, batch.rows).map_err(|problem| problem.of(tagging))
        });
        if let Err(error) = written {
            exchange.abort();
            return Err(error);
        }
    }
    let reader = exchange.finish().map_err(|source| Problem::Exchange(source).of(tagging))?;
    if reader.blocks().is_empty() {
        reader.remove();
        return Ok(None);
    }
    Ok(Some(reader.hand_over()))
}

/// By what rows are exchanged so that a bucket has all that has to meet.
pub(super) fn whole<E>(tagging: &Tagging) -> Result<By, TagError<E>> {
    match Plan::of(tagging) {
        Plan { first, then: None } => Ok(first),
        Plan { then: Some(_), .. } => Err(TagError::Apart { table: tagging.table.clone() }),
    }
}
