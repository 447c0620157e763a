//! The reader of an attempt: it says how far it is, and may run on a thread of its own.

use std::sync::mpsc::{self, IntoIter};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use super::Counters;
use crate::ChangeBatch;
use crate::read::{ReadError, TaskReader};

/// Batches that are decoded ahead of those that are compared.
const BATCHES_AHEAD: usize = 4;

/// A reader that says how far it is, also while the tag step holds it.
pub(super) struct Counted<'a> {
    pub(super) reader: TaskReader,
    pub(super) progress: &'a Counters,
    /// What the reader's first file says of its columns.
    pub(super) plain_columns: &'a Mutex<Vec<usize>>,
}

impl Iterator for Counted<'_> {
    type Item = Result<ChangeBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_first = self.reader.rows_read() == 0;
        let batch = self.reader.next();
        if is_first {
            *self.plain_columns.lock().unwrap_or_else(PoisonError::into_inner) =
                self.reader.columns_without_dictionary();
        }
        self.progress.set_read(self.reader.rows_read(), self.reader.bytes_fetched());
        batch
    }
}

/// Reads on a thread of its own: to compare rows takes about as long as to decode them. A reader that panics ends the scope
/// with a panic, so that its rows are not taken for all.
pub(super) fn ahead<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    reader: Counted<'scope>,
) -> IntoIter<Result<ChangeBatch, ReadError>> {
    let (batches, read) = mpsc::sync_channel(BATCHES_AHEAD);
    let span = tracing::Span::current();
    scope.spawn(move || {
        let _entered = span.entered();
        for batch in reader {
            // Nobody wants it any more when the comparison has failed.
            if batches.send(batch).is_err() {
                return;
            }
        }
    });
    read.into_iter()
}
