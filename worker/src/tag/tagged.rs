//! What takes rows at each moment: memory, an exchange, or one of the exchange's buckets after the other.
//!
//! Rows come from the reader into memory. When they do not fit, all of them go to an exchange; at its end each bucket is a
//! source of rows like the reader, and what it gives comes into memory again or, when it does not fit either, goes to an
//! exchange of the next level, whose buckets are read before the next of this one. So at any moment there is one thing that
//! takes rows, and a stack of exchanges that are being read, one level deeper each.
//!
//! Where equal rows and the halves of updates do not meet in the same bucket, what is left of the buckets goes to a second
//! exchange, which is read in the same way once the first is done.

mod overflow;

use std::collections::VecDeque;
use std::iter::Fuse;

use arrow::error::ArrowError;

use super::alike::Alike;
use super::exchanging::{Exchange, Problem, whole};
use super::pairs::{self, Paired};
use super::resolve::{Output, Resolver};
use super::spread::Plan;
use super::{TagError, Tagging, compares};
use crate::exchange::{Bucket, ExchangeError, Reader, Side, Space};
use crate::{Change, ChangeBatch, Columns};

/// Contents that rows of one hash may have: more than a few would need a miracle.
const KINDS_MAX: usize = 64;

/// What [`super::tag`] gives. Ends after its first error.
pub struct Tagged<I> {
    tagging: Tagging,
    plan: Plan,
    space: Space,
    reader: Fuse<I>,
    reader_ended: bool,
    /// Rows that came were read: none that went may come any more.
    inserts_came: bool,
    now: Now,
    /// Exchanges that are read back, each one a level deeper than the one before it.
    levels: Vec<Reader>,
    /// The bucket that is read.
    bucket: Option<Bucket>,
    /// What is left of the first exchange's buckets.
    then: Option<Exchange>,
    /// The second exchange is being read.
    is_second: bool,
    output: Option<Output>,
    ready: VecDeque<ChangeBatch>,
    carried_over: u64,
    memory_bytes_peak: u64,
    failed: bool,
    left_behind: Vec<String>,
}

/// What takes rows.
enum Now {
    /// They pass as they are.
    Keep,
    /// They are compared in memory.
    Resolve(Box<Resolver>),
    /// They do not fit, and are exchanged.
    Exchange(Box<Exchange>),
    /// They are all equal, and are counted.
    Count(Box<Alike>),
    /// They do not fit and cannot be taken apart: a mirror carries them as they come.
    Pass,
    /// Nothing comes any more.
    Ended,
}

impl<I> Tagged<I> {
    pub(super) fn new(reader: I, tagging: Tagging, space: Space) -> Self
    where
        I: Iterator,
    {
        let now = if compares(tagging.resolution) { resolver(&tagging) } else { Now::Keep };
        Self {
            plan: Plan::of(&tagging),
            tagging,
            space,
            reader: reader.fuse(),
            reader_ended: false,
            inserts_came: false,
            now,
            levels: Vec::new(),
            bucket: None,
            then: None,
            is_second: false,
            output: None,
            ready: VecDeque::new(),
            carried_over: 0,
            memory_bytes_peak: 0,
            failed: false,
            left_behind: Vec::new(),
        }
    }

    /// Pairs of equal DELETE and INSERT rows that cancelled so far.
    pub fn carried_over(&self) -> u64 {
        self.carried_over
    }

    /// The most memory that was held at once so far, about: rows that are compared, those of an exchange that are not yet
    /// written, and the block of one that is being read.
    pub fn memory_bytes_peak(&self) -> u64 {
        self.memory_bytes_peak
    }

    /// Exchange files that were begun so far.
    pub fn exchange_files(&self) -> usize {
        self.space.files_begun()
    }

    /// Ends it, and waits until its exchange files are gone. Gives the locations of those that may still be there.
    pub fn close(&mut self) -> Vec<String> {
        self.failed = true;
        self.output = None;
        self.ready.clear();
        let now = match std::mem::replace(&mut self.now, Now::Ended) {
            Now::Exchange(exchange) => Some(*exchange),
            Now::Keep | Now::Resolve(_) | Now::Count(_) | Now::Pass | Now::Ended => None,
        };
        let written = now.into_iter().chain(self.then.take());
        let mut left_behind = std::mem::take(&mut self.left_behind);
        left_behind.extend(written.filter_map(Exchange::abort));
        left_behind.extend(self.levels.drain(..).filter_map(Reader::remove));
        left_behind
    }

    /// Takes the next rows of the source, or what follows when it has no more. False when all is done.
    fn step<E>(&mut self) -> Result<bool, TagError<E>>
    where
        I: Iterator<Item = Result<ChangeBatch, E>>,
    {
        let rows = match self.levels.last_mut() {
            Some(level) => {
                let rows = level.next_batch().map_err(|source| self.exchange_failed(source))?;
                rows.map(|(side, rows)| ChangeBatch { change: change(side), columns: Columns::All, rows })
            }
            None if self.reader_ended => return Ok(false),
            None => self.read()?,
        };
        match rows {
            Some(batch) => self.take(batch)?,
            None => self.source_ended()?,
        }
        self.note_memory(0);
        Ok(true)
    }

    fn read<E>(&mut self) -> Result<Option<ChangeBatch>, TagError<E>>
    where
        I: Iterator<Item = Result<ChangeBatch, E>>,
    {
        // Of rows that others exchanged, all that have to meet must be here.
        if self.tagging.level > 0 {
            whole(&self.tagging)?;
        }
        match self.reader.next().transpose().map_err(TagError::Read)? {
            None => {
                self.reader_ended = true;
                Ok(None)
            }
            Some(batch) => {
                // What came is compared with all that went, so that has to be here.
                if self.inserts_came && !batch.change.comes() && compares(self.tagging.resolution) {
                    return Err(TagError::Order { table: self.tagging.table.clone() });
                }
                self.inserts_came |= batch.change.comes();
                Ok(Some(batch))
            }
        }
    }

    fn take<E>(&mut self, batch: ChangeBatch) -> Result<(), TagError<E>> {
        // Without its other columns a row equals no other.
        if batch.columns == Columns::Key {
            self.ready.push_back(batch);
            return Ok(());
        }
        let side = if batch.change.comes() { Side::Came } else { Side::Went };
        match (&mut self.now, side) {
            (Now::Keep, _) => self.ready.push_back(batch),
            (Now::Resolve(resolver), Side::Went) => {
                resolver.went(batch.rows).map_err(TagError::Compare)?;
                self.keep_within_memory()?;
            }
            (Now::Resolve(resolver), Side::Came) => {
                let came = resolver.came(batch.rows).map_err(TagError::Compare)?;
                self.carried_over += came.carried_over;
                self.ready.extend(came.rows.map(|rows| ChangeBatch { rows, ..batch }));
                self.keep_within_memory()?;
            }
            (Now::Exchange(_), side) => self.exchange(side, batch.rows)?,
            (Now::Count(alike), side) => {
                alike.count(side, &batch.rows).map_err(TagError::Compare)?;
                if alike.kinds() > KINDS_MAX {
                    return Err(self.too_large(Some(&batch.rows)));
                }
            }
            (Now::Pass, Side::Went) if !self.tagging.key.is_empty() => {
                let rows = batch.rows.project(&self.tagging.key).map_err(TagError::Filter)?;
                self.ready.push_back(ChangeBatch { change: Change::Delete, columns: Columns::Key, rows });
            }
            (Now::Pass, _) => self.ready.push_back(batch),
            (Now::Ended, _) => return Err(nothing_takes_rows()),
        }
        Ok(())
    }

    /// The reader or a bucket has no more rows.
    fn source_ended<E>(&mut self) -> Result<(), TagError<E>> {
        match std::mem::replace(&mut self.now, Now::Ended) {
            Now::Resolve(resolver) => self.resolve(*resolver)?,
            Now::Exchange(exchange) => {
                let reader = exchange.finish().map_err(|source| self.exchange_failed(source))?;
                self.levels.push(reader);
            }
            Now::Count(alike) => {
                let (carried_over, surplus) = alike.finish();
                self.carried_over += carried_over;
                self.output = Some(Output::Surplus(surplus));
            }
            Now::Keep | Now::Pass | Now::Ended => {}
        }
        self.next_bucket()
    }

    /// All rows of a source are here: gives out what is left of them.
    fn resolve<E>(&mut self, mut resolver: Resolver) -> Result<(), TagError<E>> {
        self.carried_over += resolver.settle();
        let Some(pairing) = self.tagging.pairing().cloned() else {
            if let Some(key) = resolver.key_that_goes_and_stays().map_err(TagError::Compare)? {
                return Err(TagError::DuplicateKey { table: self.tagging.table.clone(), key });
            }
            self.output = Some(resolver.into_unmatched().map_err(TagError::Compare)?);
            return Ok(());
        };
        let has_all = self.levels.is_empty() || self.is_second;
        if let Some(by) = self.plan.then.clone().filter(|_| !has_all) {
            return self.exchange_what_is_left(resolver, &pairing, by);
        }
        let (went, came) = resolver.into_left().map_err(TagError::Compare)?;
        match pairs::pair(went, came, &pairing).map_err(TagError::Compare)? {
            Paired::Changes(pairs) => {
                self.note_memory(pairs.memory_bytes_peak());
                self.output = Some(Output::Pairs(pairs));
                Ok(())
            }
            Paired::Duplicate(key) => Err(TagError::DuplicateIdentity { table: self.tagging.table.clone(), key }),
        }
    }

    /// Remembers the memory that is held now, with `more` that is about to go.
    fn note_memory(&mut self, more: u64) {
        let now = match &self.now {
            Now::Resolve(resolver) => resolver.memory_bytes(),
            Now::Exchange(exchange) => exchange.memory_bytes(),
            Now::Count(alike) => alike.memory_bytes(),
            Now::Keep | Now::Pass | Now::Ended => 0,
        };
        let then = self.then.as_ref().map_or(0, |then| then.memory_bytes());
        let output = self.output.as_ref().map_or(0, Output::memory_bytes);
        let levels = self.levels.iter().map(Reader::memory_bytes).sum::<u64>();
        self.memory_bytes_peak = self.memory_bytes_peak.max(more + now + then + output + levels);
    }

    fn push(&mut self, batch: ChangeBatch) {
        if batch.rows.num_rows() > 0 {
            self.ready.push_back(batch);
        }
    }

    fn exchange_failed<E>(&self, source: ExchangeError) -> TagError<E> {
        Problem::Exchange(source).of(&self.tagging)
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
            let step = match self.output.as_mut().map(Output::next) {
                Some(Ok(Some(batch))) => return Some(Ok(batch)),
                Some(Ok(None)) => {
                    self.output = None;
                    Ok(true)
                }
                Some(Err(error)) => Err(TagError::Filter(error)),
                None => self.step(),
            };
            match step {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    let left_behind = self.close();
                    self.left_behind = left_behind;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

fn resolver(tagging: &Tagging) -> Now {
    Now::Resolve(Box::new(Resolver::new(tagging)))
}

/// Rows are never left out in silence, whatever state this is in.
fn nothing_takes_rows<E>() -> TagError<E> {
    let what = "rows came when nothing takes them: report this as a bug";
    TagError::Compare(ArrowError::InvalidArgumentError(what.to_owned()))
}

fn change(side: Side) -> Change {
    match side {
        Side::Went => Change::Delete,
        Side::Came => Change::Insert,
    }
}
