//! How far an attempt is, written by it and read for heartbeats.

use std::sync::atomic::{AtomicU64, Ordering};

use iceferry_common::model::RowCounts;

/// Counters of one attempt. They only tell how far it is; what counts in the end is in its output.
#[derive(Debug, Default)]
pub struct Counters {
    read: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
    updated: AtomicU64,
    carried_over: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    files_copied: AtomicU64,
    files_spliced: AtomicU64,
    files_decoded: AtomicU64,
}

impl Counters {
    /// Puts in the counts as they stand.
    pub fn set(&self, rows: RowCounts) {
        // Readers may see some counters newer than others, which does no harm to a progress bar.
        self.read.store(rows.read, Ordering::Relaxed);
        self.inserted.store(rows.inserted, Ordering::Relaxed);
        self.deleted.store(rows.deleted, Ordering::Relaxed);
        self.updated.store(rows.updated, Ordering::Relaxed);
        self.carried_over.store(rows.carried_over, Ordering::Relaxed);
        self.bytes_read.store(rows.bytes_read, Ordering::Relaxed);
        self.bytes_written.store(rows.bytes_written, Ordering::Relaxed);
        self.files_copied.store(rows.files_copied, Ordering::Relaxed);
        self.files_spliced.store(rows.files_spliced, Ordering::Relaxed);
        self.files_decoded.store(rows.files_decoded, Ordering::Relaxed);
    }

    /// Puts in what the reader says of itself.
    pub(crate) fn set_read(&self, rows: u64, bytes: u64) {
        self.read.store(rows, Ordering::Relaxed);
        self.bytes_read.store(bytes, Ordering::Relaxed);
    }

    /// The counts as they stand.
    pub fn get(&self) -> RowCounts {
        RowCounts {
            read: self.read.load(Ordering::Relaxed),
            inserted: self.inserted.load(Ordering::Relaxed),
            deleted: self.deleted.load(Ordering::Relaxed),
            updated: self.updated.load(Ordering::Relaxed),
            carried_over: self.carried_over.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            files_copied: self.files_copied.load(Ordering::Relaxed),
            files_spliced: self.files_spliced.load(Ordering::Relaxed),
            files_decoded: self.files_decoded.load(Ordering::Relaxed),
        }
    }
}
