//! What does not fit into memory: into an exchange, and bucket by bucket out of it again.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};

use super::{Now, Tagged, change, nothing_takes_rows, resolver};
use crate::exchange::{LEVELS, Reader, Side};
use crate::tag::alike::Alike;
use crate::tag::exchanging::Exchange;
use crate::tag::resolve::Resolver;
use crate::tag::spread::{By, in_common};
use crate::tag::{Pairing, TagError};
use crate::{ChangeBatch, Columns};

impl<I> Tagged<I> {
    /// Exchanges what is compared when it takes more memory than it may.
    pub(super) fn keep_within_memory<E>(&mut self) -> Result<(), TagError<E>> {
        let resolver = match std::mem::replace(&mut self.now, Now::Ended) {
            Now::Resolve(resolver) if resolver.memory_bytes() > self.tagging.memory_bytes_max => resolver,
            now => {
                self.now = now;
                return Ok(());
            }
        };
        self.note_memory(resolver.memory_bytes());
        if self.bucket.is_some_and(|bucket| !bucket.can_be_split) {
            return self.take_whole(*resolver);
        }
        let level = self.levels.len();
        let bytes = resolver.memory_bytes();
        tracing::debug!(bytes, level, "rows that are compared do not fit into memory and are exchanged");
        let exchange = self.begin_exchange(self.by().clone(), level)?;
        self.now = Now::Exchange(Box::new(exchange));
        let (went, came) = resolver.into_rows().map_err(TagError::Compare)?;
        for rows in went {
            self.exchange(Side::Went, rows.map_err(TagError::Compare)?)?;
            self.note_memory(bytes);
        }
        for rows in came {
            self.exchange(Side::Came, rows)?;
            self.note_memory(bytes);
        }
        Ok(())
    }

    /// Rows that do not fit, and that no hash takes apart.
    pub(super) fn take_whole<E>(&mut self, resolver: Resolver) -> Result<(), TagError<E>> {
        let is_all = |batch: &RecordBatch| batch.num_columns() <= self.tagging.compared;
        let is_last = self.is_second || self.plan.then.is_none();
        if is_last && *self.by() == By::Content && resolver.sample().is_some_and(is_all) {
            let mut alike = Alike::default();
            let (went, came) = resolver.into_rows().map_err(TagError::Compare)?;
            for rows in went {
                alike.count(Side::Went, &rows.map_err(TagError::Compare)?).map_err(TagError::Compare)?;
            }
            for rows in came {
                alike.count(Side::Came, &rows).map_err(TagError::Compare)?;
            }
            self.now = Now::Count(Box::new(alike));
            return Ok(());
        }
        if self.tagging.changelog.is_some() {
            return Err(self.too_large(resolver.sample()));
        }
        // Nothing has cancelled: a mirror does not hold what came, so it is what went that does not fit.
        self.output = Some(resolver.into_unmatched().map_err(TagError::Compare)?);
        self.now = Now::Pass;
        Ok(())
    }

    /// Goes to the next bucket: of the deepest exchange that has one.
    pub(super) fn next_bucket<E>(&mut self) -> Result<(), TagError<E>> {
        loop {
            while let Some(level) = self.levels.last_mut() {
                self.bucket = level.next_bucket();
                if self.bucket.is_some() {
                    self.now = resolver(&self.tagging);
                    return Ok(());
                }
                self.left_behind.extend(self.levels.pop().and_then(Reader::remove));
            }
            let Some(then) = self.then.take() else { return Ok(()) };
            self.is_second = true;
            self.levels.push(then.finish().map_err(|source| self.exchange_failed(source))?);
        }
    }

    /// What is left of a bucket, and may have its other half in any other one, goes to the second exchange.
    pub(super) fn exchange_what_is_left<E>(
        &mut self,
        resolver: Resolver,
        pairing: &Pairing,
        by: By,
    ) -> Result<(), TagError<E>> {
        let bytes = resolver.memory_bytes();
        let (went, came) = resolver.into_rows().map_err(TagError::Compare)?;
        let rows = went.map(|rows| (Side::Went, rows)).chain(came.into_iter().map(|rows| (Side::Came, Ok(rows))));
        for (side, rows) in rows {
            let mut rows = rows.map_err(TagError::Compare)?;
            // A row that nothing identifies has no other half; all of them would be in one bucket.
            if let Some(may_pair) = pairing.may_pair(&rows).map_err(TagError::Compare)? {
                let may_pair = BooleanArray::new(may_pair, None);
                let alone = not(&may_pair).and_then(|alone| filter_record_batch(&rows, &alone));
                self.push(ChangeBatch {
                    change: change(side),
                    columns: Columns::All,
                    rows: alone.map_err(TagError::Filter)?,
                });
                rows = filter_record_batch(&rows, &may_pair).map_err(TagError::Filter)?;
            }
            if rows.num_rows() == 0 {
                continue;
            }
            let mut then = match self.then.take() {
                Some(then) => then,
                None => self.begin_exchange(by.clone(), 0)?,
            };
            let written = then.write(side, rows);
            self.then = Some(then);
            written.map_err(|problem| problem.of(&self.tagging))?;
            self.note_memory(bytes);
        }
        Ok(())
    }

    pub(super) fn begin_exchange<E>(&mut self, by: By, level: usize) -> Result<Exchange, TagError<E>> {
        // It goes on where others left off. A bucket of the last level is never exchanged again.
        let level = u32::try_from(level).unwrap_or(u32::MAX).saturating_add(self.tagging.level).min(LEVELS - 1);
        Exchange::begin(&mut self.space, &self.tagging, by, level).map_err(|source| self.exchange_failed(source))
    }

    pub(super) fn exchange<E>(&mut self, side: Side, rows: RecordBatch) -> Result<(), TagError<E>> {
        let Now::Exchange(exchange) = &mut self.now else { return Err(nothing_takes_rows()) };
        exchange.write(side, rows).map_err(|problem| problem.of(&self.tagging))
    }

    /// By what rows are exchanged at present.
    pub(super) fn by(&self) -> &By {
        match &self.plan.then {
            Some(then) if self.is_second => then,
            _ => &self.plan.first,
        }
    }

    pub(super) fn too_large<E>(&self, rows: Option<&RecordBatch>) -> TagError<E> {
        let what = rows.map_or_else(String::new, |rows| in_common(self.by(), rows));
        let bytes_max = self.tagging.memory_bytes_max;
        TagError::TooLarge { table: self.tagging.table.clone(), what, bytes_max }
    }
}
