//! Histories that a test writes down, file by file.

use std::path::Path;
use std::sync::Arc;

use super::files;
use super::row::{Key, Row};
use super::state::{By, Delete, File, ItemKey};
use super::table::{Commit, ModelTable};

/// A table whose history a test writes. Its rows are (id, v) and, where it is partitioned, p.
pub struct Script {
    /// The table.
    pub table: ModelTable,
    runtime: tokio::runtime::Runtime,
}

/// A data or delete file that may be added or removed.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A data file.
    Data(DataEntry),
    /// A delete file, or a vector in one.
    Delete(DeleteEntry),
}

/// A data file.
#[derive(Debug, Clone)]
pub struct DataEntry(Arc<File>);

/// A delete file, or a vector in one.
#[derive(Debug, Clone)]
pub struct DeleteEntry(Arc<Delete>);

impl Entry {
    fn key(&self) -> ItemKey {
        match self {
            Self::Data(DataEntry(file)) => (file.path.clone(), None),
            Self::Delete(DeleteEntry(delete)) => delete.key(),
        }
    }

    fn file(&self) -> &Arc<File> {
        match self {
            Self::Data(DataEntry(file)) => file,
            Self::Delete(DeleteEntry(delete)) => panic!("{} is no data file", delete.path),
        }
    }

    /// Where a data file is.
    pub fn path(&self) -> &str {
        &self.file().path
    }
}

impl Script {
    /// An empty table `db.t` in a Hadoop warehouse.
    pub fn new(warehouse: &Path, version: u8) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { table: ModelTable::new(warehouse, version), runtime }
    }

    /// An unpartitioned file of (id, v) rows.
    pub fn file(&mut self, rows: &[(i64, &str)]) -> Entry {
        self.place(0, None, rows.iter().map(|(id, v)| (*id, *v, None)).collect())
    }

    /// A file of rows with the row ids of version 3 written into it.
    pub fn file_with_row_ids(&mut self, rows: &[(i64, &str, i64)]) -> Entry {
        self.place(0, None, rows.iter().map(|(id, v, row_id)| (*id, *v, Some(*row_id))).collect())
    }

    /// A file of a partition by p.
    pub fn file_in(&mut self, p: i32, rows: &[(i64, &str)]) -> Entry {
        self.place(1, Some(p), rows.iter().map(|(id, v)| (*id, *v, None)).collect())
    }

    fn place(&mut self, spec: i32, p: Option<i32>, rows: Vec<(i64, &str, Option<i64>)>) -> Entry {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(id, v, lineage)| {
                let v = (!v.is_empty()).then(|| v.to_owned());
                Row { id, p, v, f: None, tags: None, s: None, w: None, v_again: None, lineage }
            })
            .collect();
        let path = self.table.new_path("f", "parquet");
        let shape = self.table.shape.clone();
        let written = files::data(&path, &shape, &rows, 1024);
        Entry::Data(DataEntry(Arc::new(File {
            path: path.display().to_string(),
            spec,
            partition: p,
            rows,
            shape,
            has_bounds: true,
            size_bytes: written.size_bytes,
            split_offsets: written.split_offsets,
        })))
    }

    /// A position delete file for rows of one or several data files of a partition, in the order given, as often as given.
    pub fn positions(&mut self, rows: &[(&Entry, usize)]) -> Entry {
        let path = self.table.new_path("pd", "parquet");
        let written = files::positions(&path, rows.iter().map(|(file, position)| (file.path(), *position)));
        let first = rows[0].0.file();
        let (spec, partition) = (first.spec, first.partition);
        let rows = rows.iter().map(|(file, position)| (file.path().to_owned(), *position)).collect();
        let by = By::Positions { rows, referenced: None, has_bounds: false };
        self.delete(path.display().to_string(), None, written.size_bytes, spec, partition, by)
    }

    /// A vector for each of these data files, all in one Puffin file.
    pub fn vectors(&mut self, of: &[(&Entry, &[usize])]) -> Vec<Entry> {
        let path = self.table.new_path("dv", "puffin");
        let content: Vec<(String, Vec<u64>)> = of
            .iter()
            .map(|(file, positions)| (file.path().to_owned(), positions.iter().map(|at| *at as u64).collect()))
            .collect();
        let (size_bytes, blobs) = files::vectors(&path, &content);
        let vectors = of.iter().zip(blobs).map(|((file, positions), blob)| {
            let by = By::Vector { path: file.path().to_owned(), positions: positions.iter().copied().collect() };
            let (spec, partition) = (file.file().spec, file.file().partition);
            self.delete(path.display().to_string(), Some(blob), size_bytes, spec, partition, by)
        });
        vectors.collect()
    }

    /// A global equality delete on the id.
    pub fn ids(&mut self, ids: &[i64]) -> Entry {
        self.equality(0, None, ids)
    }

    /// An equality delete on the id in one partition by p.
    pub fn ids_in(&mut self, p: i32, ids: &[i64]) -> Entry {
        self.equality(1, Some(p), ids)
    }

    /// An equality delete on the id and p in one partition by p.
    pub fn ids_and_p_in(&mut self, p: i32, keys: &[(i64, Option<i64>)]) -> Entry {
        let keys = keys.iter().map(|(id, p)| vec![Key::Number(Some(*id)), Key::Number(*p)]).collect();
        self.keyed(1, Some(p), &[1, 2], keys)
    }

    fn equality(&mut self, spec: i32, partition: Option<i32>, ids: &[i64]) -> Entry {
        self.keyed(spec, partition, &[1], ids.iter().map(|id| vec![Key::Number(Some(*id))]).collect())
    }

    fn keyed(&mut self, spec: i32, partition: Option<i32>, ids: &[i32], keys: Vec<Vec<Key>>) -> Entry {
        let path = self.table.new_path("ed", "parquet");
        let written = files::keys(&path, &self.table.shape, ids, &keys);
        let by = By::Keys { ids: ids.to_vec(), keys, has_bounds: true };
        self.delete(path.display().to_string(), None, written.size_bytes, spec, partition, by)
    }

    fn delete(
        &self,
        path: String,
        blob: Option<(u64, u64)>,
        size_bytes: u64,
        spec: i32,
        partition: Option<i32>,
        by: By,
    ) -> Entry {
        Entry::Delete(DeleteEntry(Arc::new(Delete { path, blob, size_bytes, spec, partition, by })))
    }

    /// A snapshot that adds and removes these.
    pub fn snapshot(&mut self, operation: &'static str, added: &[&Entry], removed: &[&Entry]) {
        let mut commit = Commit { operation, ..Commit::default() };
        for entry in added {
            match entry {
                Entry::Data(DataEntry(file)) => commit.files.push((Arc::clone(file), None)),
                Entry::Delete(DeleteEntry(delete)) => commit.deletes.push(Arc::clone(delete)),
            }
        }
        commit.removed = removed.iter().map(|entry| entry.key()).collect();
        self.runtime.block_on(self.table.commit(commit));
    }

    /// A snapshot that only merges manifests.
    pub fn merge_manifests(&mut self) {
        let commit = Commit { operation: "replace", merges_manifests: true, ..Commit::default() };
        self.runtime.block_on(self.table.commit(commit));
    }
}
