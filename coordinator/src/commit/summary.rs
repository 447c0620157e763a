//! What a snapshot says about itself: its operation, what it added, and the totals.

use std::collections::HashMap;

use iceberg::spec::{DataContentType, Operation, Snapshot, Summary};
use iceferry_common::entry::Facts;

/// What a commit adds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) data_files: u64,
    pub(super) records: u64,
    pub(super) equality_delete_files: u64,
    pub(super) equality_deletes: u64,
    pub(super) position_delete_files: u64,
    pub(super) deletion_vectors: u64,
    /// Rows that position delete files and deletion vectors delete.
    pub(super) position_deletes: u64,
    /// Of a deletion vector its own bytes, not those of the file that it shares with others.
    pub(super) bytes: u64,
}

impl Added {
    pub(super) fn add(&mut self, file: &Facts<'_>) {
        match file.content {
            DataContentType::Data => {
                self.data_files += 1;
                self.records += file.record_count;
            }
            DataContentType::EqualityDeletes => {
                self.equality_delete_files += 1;
                self.equality_deletes += file.record_count;
            }
            DataContentType::PositionDeletes => {
                self.position_deletes += file.record_count;
                match file.is_vector() {
                    true => self.deletion_vectors += 1,
                    false => self.position_delete_files += 1,
                }
            }
        }
        let of_vector = file.content_size_bytes.and_then(|bytes| u64::try_from(bytes).ok());
        self.bytes += of_vector.unwrap_or(file.size_bytes);
    }

    fn delete_files(&self) -> u64 {
        self.equality_delete_files + self.position_delete_files + self.deletion_vectors
    }

    fn operation(&self) -> Operation {
        match (self.data_files > 0, self.delete_files() > 0) {
            (true, true) => Operation::Overwrite,
            (false, true) => Operation::Delete,
            (_, false) => Operation::Append,
        }
    }
}

/// The summary of a snapshot that adds this to its parent; `extra` are entries of our own.
pub(super) fn summary(added: &Added, parent: Option<&Snapshot>, extra: HashMap<String, String>) -> Summary {
    let mut entries = extra;
    let counts = [
        ("added-data-files", added.data_files),
        ("added-records", added.records),
        ("added-delete-files", added.delete_files()),
        ("added-equality-delete-files", added.equality_delete_files),
        ("added-equality-deletes", added.equality_deletes),
        ("added-position-delete-files", added.position_delete_files),
        ("added-dvs", added.deletion_vectors),
        ("added-position-deletes", added.position_deletes),
        ("added-files-size", added.bytes),
    ];
    let present = counts.into_iter().filter(|(_, count)| *count > 0);
    entries.extend(present.map(|(key, count)| (key.to_owned(), count.to_string())));
    // Targets are unpartitioned: all of the table is one partition.
    let partitions = u8::from(added.data_files + added.delete_files() > 0);
    entries.insert("changed-partition-count".to_owned(), partitions.to_string());

    // As Iceberg's own writers count: records of data files, dead ones included.
    let totals = [
        ("total-data-files", added.data_files),
        ("total-delete-files", added.delete_files()),
        ("total-records", added.records),
        ("total-files-size", added.bytes),
        ("total-position-deletes", added.position_deletes),
        ("total-equality-deletes", added.equality_deletes),
    ];
    for (key, more) in totals {
        // A parent whose total is missing or no number leaves its children without one: no total beats a wrong one.
        let before = match parent {
            Some(parent) => parent.summary().additional_properties.get(key).and_then(|text| text.parse::<u64>().ok()),
            None => Some(0),
        };
        if let Some(total) = before.and_then(|before| before.checked_add(more)) {
            entries.insert(key.to_owned(), total.to_string());
        }
    }
    Summary { operation: added.operation(), additional_properties: entries }
}
