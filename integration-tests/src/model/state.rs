//! What one snapshot shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::row::{Key, Row};
use super::shape::Shape;

/// A data file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) spec: i32,
    pub(super) partition: Option<i32>,
    pub(super) rows: Vec<Row>,
    /// The schema that it was written with.
    pub(super) shape: Shape,
    pub(super) has_bounds: bool,
    pub(super) size_bytes: u64,
    pub(super) split_offsets: Vec<i64>,
}

/// A delete file, or a vector in one.
#[derive(Debug)]
pub(super) struct Delete {
    pub(super) path: String,
    /// Offset and length of a vector.
    pub(super) blob: Option<(u64, u64)>,
    pub(super) size_bytes: u64,
    pub(super) spec: i32,
    pub(super) partition: Option<i32>,
    pub(super) by: By,
}

/// What a delete is by.
#[derive(Debug, Clone)]
pub(super) enum By {
    Positions { rows: BTreeSet<(String, usize)>, referenced: Option<String>, has_bounds: bool },
    Vector { path: String, positions: BTreeSet<usize> },
    Keys { ids: Vec<i32>, keys: Vec<Vec<Key>>, has_bounds: bool },
}

/// A live entry.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) of: Of,
    /// Data sequence number.
    pub(super) sequence: i64,
    /// The snapshot that added it.
    pub(super) snapshot: i64,
    /// Row id of the file's first row, on version 3.
    pub(super) first_row_id: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) enum Of {
    Data(Arc<File>),
    Delete(Arc<Delete>),
}

/// What tells an entry from others: its path, and a vector's place in the file.
pub(super) type ItemKey = (String, Option<u64>);

impl Item {
    pub(super) fn key(&self) -> ItemKey {
        match &self.of {
            Of::Data(file) => (file.path.clone(), None),
            Of::Delete(delete) => delete.key(),
        }
    }

    /// Whether it is data, and its partition spec: what the entries of a manifest have in common.
    pub(super) fn place(&self) -> (bool, i32) {
        match &self.of {
            Of::Data(file) => (true, file.spec),
            Of::Delete(delete) => (false, delete.spec),
        }
    }
}

impl Delete {
    pub(super) fn key(&self) -> ItemKey {
        (self.path.clone(), self.blob.map(|(offset, _)| offset))
    }

    /// Whether a file is in the partition that it is for.
    fn is_for(&self, file: &File) -> bool {
        self.spec == file.spec && (file.spec == 0 || self.partition == file.partition)
    }
}

/// The live entries of a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct State(pub(super) Vec<Item>);

impl State {
    pub(super) fn files(&self) -> Vec<(Arc<File>, Item)> {
        let files = self.0.iter().filter_map(|item| match &item.of {
            Of::Data(file) => Some((Arc::clone(file), item.clone())),
            Of::Delete(_) => None,
        });
        files.collect()
    }

    pub(super) fn deletes(&self) -> Vec<(Arc<Delete>, i64)> {
        let deletes = self.0.iter().filter_map(|item| match &item.of {
            Of::Delete(delete) => Some((Arc::clone(delete), item.sequence)),
            Of::Data(_) => None,
        });
        deletes.collect()
    }

    /// Positions of a live file's live rows, by the specification.
    pub(super) fn live_positions(&self, file: &File, sequence: i64) -> Vec<usize> {
        let deletes = self.deletes();
        let vector = deletes.iter().find(|(delete, of)| {
            matches!(&delete.by, By::Vector { path, .. } if *path == file.path)
                && *of >= sequence
                && delete.is_for(file)
        });
        let is_dead = |position: usize| {
            deletes.iter().any(|(delete, of)| match &delete.by {
                By::Vector { positions, .. } => {
                    vector.is_some_and(|(vector, _)| Arc::ptr_eq(vector, delete)) && positions.contains(&position)
                }
                By::Positions { rows, .. } => {
                    vector.is_none()
                        && *of >= sequence
                        && delete.is_for(file)
                        && rows.contains(&(file.path.clone(), position))
                }
                By::Keys { ids, keys, .. } => {
                    let row = &file.rows[position];
                    *of > sequence
                        && (delete.spec == 0 || delete.is_for(file))
                        && keys.iter().any(|key| ids.iter().zip(key).all(|(id, value)| row.key(*id) == *value))
                }
            })
        };
        (0..file.rows.len()).filter(|position| !is_dead(*position)).collect()
    }

    /// All live rows as they are read in a shape, each with its row id where the table has them.
    pub(super) fn rows(&self, now: &Shape) -> Vec<(Row, Option<i64>)> {
        let mut rows = Vec::new();
        for (file, item) in self.files() {
            for position in self.live_positions(&file, item.sequence) {
                let row = file.rows[position].clone();
                let row_id = row.lineage.or(item.first_row_id.map(|first| first + position as i64));
                rows.push((row.read_as(&file.shape, now), row_id));
            }
        }
        rows
    }
}
