//! Decides what happens to a table next.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::Random;
use super::files;
use super::row::Row;
use super::shape::{BUCKETS, bucket};
use super::state::{By, Delete, File, Item, State};
use super::table::{Commit, ModelTable};

/// What kind of history it is to be.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Format version at the beginning.
    pub version: u8,
    /// Whether an id is live once at most.
    pub has_unique_ids: bool,
    /// Whether the schema changes.
    pub evolves: bool,
}

/// Writes a random history.
pub struct Author {
    table: ModelTable,
    random: Random,
    kind: Kind,
    next_id: i64,
}

impl Author {
    /// A history of so many snapshots, as table `db.t` in a Hadoop warehouse.
    pub fn write(warehouse: &Path, seed: u64, kind: Kind, snapshots: usize) -> ModelTable {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let table = ModelTable::new(warehouse, kind.version);
        let mut author = Self { table, random: Random::new(seed), kind, next_id: 0 };
        runtime.block_on(async {
            for _ in 0..snapshots {
                author.next_snapshot().await;
            }
        });
        author.table
    }

    async fn next_snapshot(&mut self) {
        if (2..3).contains(&self.table.version) && self.random.chance(6) {
            self.table.version = 3;
        }
        if self.kind.evolves && self.random.chance(35) {
            let shape = self.table.shape.evolved(&mut self.random, self.table.version);
            self.table.evolve(shape);
        }
        for _ in 0..20 {
            let commit = if self.table.snapshots.is_empty() { self.appends() } else { self.anything() };
            if self.is_allowed(&commit) {
                return self.table.commit(commit).await;
            }
        }
        let commit = self.appends();
        self.table.commit(commit).await;
    }

    /// Whether the state after it has unique ids, if it is to have them, and no path twice; a rewrite changes no rows.
    fn is_allowed(&self, commit: &Commit) -> bool {
        let after = self.table.after(commit);
        let keys: BTreeSet<_> = after.0.iter().map(Item::key).collect();
        let rows = after.rows(&self.table.shape);
        let mut ids: Vec<i64> = rows.iter().map(|(row, _)| row.id).collect();
        ids.sort_unstable();
        let is_unique = !self.kind.has_unique_ids || ids.windows(2).all(|pair| pair[0] != pair[1]);
        let lines = |state: &State| {
            let mut lines: Vec<String> =
                state.rows(&self.table.shape).iter().map(|(row, _)| row.line(&self.table.shape)).collect();
            lines.sort();
            lines
        };
        let is_honest = commit.operation != "replace" || lines(&after) == lines(&self.table.state());
        is_unique && is_honest && keys.len() == after.0.len()
    }

    fn appends(&mut self) -> Commit {
        let mut commit = Commit { operation: "append", ..Commit::default() };
        for _ in 0..1 + self.random.below(2) {
            let count = 1 + self.random.below(8);
            self.append(&mut commit, count);
        }
        commit
    }

    fn anything(&mut self) -> Commit {
        let operation = self.random.one_of(&["append", "delete", "overwrite", "overwrite"]).unwrap_or("append");
        let mut commit = Commit { operation, ..Commit::default() };
        let has_deletes = self.table.version >= 2;
        match self.random.below(14) {
            0 | 1 => return self.appends(),
            2 | 3 => self.rewrite(&mut commit, 0, 50),
            4 | 5 => self.rewrite(&mut commit, 30, 40),
            6 => {
                self.rewrite(&mut commit, 0, 0);
                commit.operation = self.random.one_of(&["replace", "replace", "overwrite"]).unwrap_or("replace");
            }
            7 if has_deletes => self.revive(&mut commit),
            8 | 9 if has_deletes => self.upsert(&mut commit),
            10 if has_deletes => self.delete_by_key(&mut commit),
            11 | 12 if has_deletes => self.update_by_position(&mut commit),
            13 => {
                commit.operation = "replace";
                commit.merges_manifests = true;
            }
            _ => self.remove_files(&mut commit),
        }
        commit.merges_manifests |= self.random.chance(10);
        commit
    }

    fn new_rows(&mut self, spec: i32, partition: Option<i32>, count: usize) -> Vec<Row> {
        let fits = |id: i64| spec != 2 || Some(bucket(id)) == partition;
        let mut rows = Vec::new();
        while rows.len() < count {
            let id = if self.kind.has_unique_ids {
                self.next_id += 1;
                self.next_id
            } else {
                self.random.below(12) as i64
            };
            if fits(id) {
                let mut row = Row::random(&mut self.random, id);
                if spec == 1 {
                    row.p = partition;
                }
                rows.push(row);
            }
        }
        rows
    }

    fn place(&mut self) -> (i32, Option<i32>) {
        match self.random.below(4) {
            0 => (1, if self.random.chance(20) { None } else { Some(self.random.below(3) as i32) }),
            1 => (2, Some(self.random.below(BUCKETS as usize) as i32)),
            _ => (0, None),
        }
    }

    fn append(&mut self, commit: &mut Commit, count: usize) {
        let (spec, partition) = self.place();
        let rows = self.new_rows(spec, partition, count);
        self.add_file(commit, spec, partition, rows, None);
    }

    fn add_file(&mut self, commit: &mut Commit, spec: i32, partition: Option<i32>, rows: Vec<Row>, own: Option<i64>) {
        if rows.is_empty() {
            return;
        }
        let shape = self.table.shape.clone();
        let mut rows: Vec<Row> = rows.into_iter().map(|row| row.written_as(&shape)).collect();
        if self.table.version < 3 {
            rows.iter_mut().for_each(|row| row.lineage = None);
        }
        let path = self.table.new_path("f", "parquet");
        let rows_per_group = self.random.one_of(&[2, 3, 1024]).unwrap_or(1024);
        let written = files::data(&path, &shape, &rows, rows_per_group);
        let file = File {
            path: path.display().to_string(),
            spec,
            partition,
            rows,
            shape,
            has_bounds: self.random.chance(80),
            size_bytes: written.size_bytes,
            split_offsets: written.split_offsets,
        };
        commit.files.push((Arc::new(file), own));
    }

    /// Rewrites some files of a partition, and leaves out or changes so many of a hundred of their rows.
    fn rewrite(&mut self, commit: &mut Commit, left_out: usize, changed: usize) {
        let state = self.table.state();
        let Some((seed, _)) = self.random.one_of(&state.files()) else { return };
        let (mut rows, mut oldest) = (Vec::new(), None::<i64>);
        let keeps_row_ids = self.random.chance(70);
        for (file, item) in state.files() {
            if file.spec != seed.spec || file.partition != seed.partition || self.random.chance(30) {
                continue;
            }
            commit.removed.insert(item.key());
            for position in state.live_positions(&file, item.sequence) {
                if self.random.chance(left_out) {
                    continue;
                }
                let row_id = file.rows[position].lineage.or(item.first_row_id.map(|first| first + position as i64));
                let mut row = file.rows[position].clone().read_as(&file.shape, &self.table.shape);
                if self.random.chance(changed) {
                    row = Row { p: row.p, ..Row::random(&mut self.random, row.id) };
                }
                row.lineage = row_id.filter(|_| keeps_row_ids);
                rows.push(row);
            }
            oldest = Some(oldest.map_or(item.sequence, |oldest| oldest.min(item.sequence)));
        }
        if self.random.chance(30) {
            rows.reverse();
        }
        // Some compactions keep an old data sequence number, so that running equality deletes still reach.
        let own = oldest.filter(|_| changed == 0 && self.random.chance(25) && self.table.version > 1);
        let half = if self.random.chance(40) { rows.len() / 2 } else { rows.len() };
        let rest = rows.split_off(half);
        for rows in [rows, rest] {
            self.add_file(commit, seed.spec, seed.partition, rows, own);
        }
        if self.random.chance(40) {
            // Deletes of removed files are often dropped with them, often not.
            for (delete, _) in state.deletes() {
                let is_dangling = match &delete.by {
                    By::Vector { path, .. } => commit.removed.contains(&(path.clone(), None)),
                    By::Positions { rows, .. } => {
                        rows.iter().all(|(path, _)| commit.removed.contains(&(path.clone(), None)))
                    }
                    By::Keys { .. } => false,
                };
                if is_dangling {
                    commit.removed.insert(delete.key());
                }
            }
        }
    }

    fn remove_files(&mut self, commit: &mut Commit) {
        for (_, item) in self.table.state().files() {
            if self.random.chance(25) {
                commit.removed.insert(item.key());
            }
        }
        if self.random.chance(50) {
            let count = 1 + self.random.below(4);
            self.append(commit, count);
        }
    }

    /// Takes deletes away, so that rows live again.
    fn revive(&mut self, commit: &mut Commit) {
        for (delete, _) in self.table.state().deletes() {
            if self.random.chance(40) {
                commit.removed.insert(delete.key());
            }
        }
    }

    /// New rows for old and new ids, with a global equality delete on the id as a stream writer has it.
    fn upsert(&mut self, commit: &mut Commit) {
        let live = self.table.state().rows(&self.table.shape);
        let mut rows = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let id = match self.random.one_of(&live) {
                Some((row, _)) if self.random.chance(70) => row.id,
                _ => self.new_rows(0, None, 1)[0].id,
            };
            if rows.iter().all(|row: &Row| row.id != id) {
                rows.push(Row::random(&mut self.random, id));
            }
        }
        let keys: Vec<_> = rows.iter().map(|row| vec![row.key(1)]).collect();
        self.add_keys(commit, 0, None, vec![1], keys);
        if !self.random.chance(25) {
            self.add_file(commit, 0, None, rows, None);
        }
    }

    /// Deletes by key: mostly keys that some file has, in that file's partition.
    fn delete_by_key(&mut self, commit: &mut Commit) {
        let mut sets = vec![vec![1], vec![2], vec![1, 2]];
        if self.table.shape.has(super::shape::Column::V) {
            sets.extend([vec![3], vec![1, 3]]);
        }
        let ids = self.random.one_of(&sets).unwrap_or(vec![1]);
        let files = self.table.state().files();
        let (mut spec, mut partition) = self.place();
        let mut keys = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let mut row = Row::random(&mut self.random, 3);
            if let Some((file, _)) = self.random.one_of(&files)
                && self.random.chance(80)
            {
                row = self.random.one_of(&file.rows).unwrap_or(row);
                if self.random.chance(60) {
                    (spec, partition) = (file.spec, file.partition);
                }
            }
            keys.push(ids.iter().map(|id| row.key(*id)).collect());
        }
        self.add_keys(commit, spec, partition, ids, keys);
    }

    fn add_keys(
        &mut self,
        commit: &mut Commit,
        spec: i32,
        partition: Option<i32>,
        ids: Vec<i32>,
        keys: Vec<Vec<super::row::Key>>,
    ) {
        let path = self.table.new_path("ed", "parquet");
        let written = files::keys(&path, &self.table.shape, &ids, &keys);
        let by = By::Keys { ids, keys, has_bounds: self.random.chance(75) };
        let (path, size_bytes) = (path.display().to_string(), written.size_bytes);
        commit.deletes.push(Arc::new(Delete { path, blob: None, size_bytes, spec, partition, by }));
    }

    /// Rows die by position, and some come again with other values.
    fn update_by_position(&mut self, commit: &mut Commit) {
        let state = self.table.state();
        let mut hit: Vec<(Arc<File>, Item, Vec<usize>)> = Vec::new();
        for (file, item) in state.files() {
            let positions = (0..file.rows.len()).filter(|_| self.random.chance(25)).collect::<Vec<_>>();
            if !positions.is_empty() {
                hit.push((file, item, positions));
            }
        }
        let mut rows = Vec::new();
        for (file, item, positions) in &hit {
            let live = state.live_positions(file, item.sequence);
            for position in positions.iter().filter(|position| live.contains(position)) {
                if self.random.chance(50) {
                    let old = &file.rows[*position];
                    let row_id = old.lineage.or(item.first_row_id.map(|first| first + *position as i64));
                    let mut row = Row::random(&mut self.random, old.id);
                    row.lineage = row_id.filter(|_| self.random.chance(80));
                    rows.push(row);
                }
            }
        }
        if self.table.version >= 3 && self.random.chance(75) {
            self.add_vectors(commit, &state, &hit);
        } else {
            self.add_positions(commit, &hit);
        }
        self.add_file(commit, 0, None, rows, None);
    }

    fn add_positions(&mut self, commit: &mut Commit, hit: &[(Arc<File>, Item, Vec<usize>)]) {
        let mut left: Vec<&(Arc<File>, Item, Vec<usize>)> = hit.iter().collect();
        while let Some((seed, ..)) = left.last() {
            let (mine, rest): (Vec<_>, Vec<_>) =
                left.iter().copied().partition(|(file, ..)| file.spec == seed.spec && file.partition == seed.partition);
            let rows: BTreeSet<(String, usize)> = mine
                .iter()
                .flat_map(|(file, _, positions)| positions.iter().map(|position| (file.path.clone(), *position)))
                .collect();
            let path = self.table.new_path("pd", "parquet");
            let written = files::positions(&path, rows.iter().map(|(path, position)| (path.as_str(), *position)));
            let referenced = (mine.len() == 1 && self.random.chance(50)).then(|| seed.path.clone());
            let by = By::Positions { rows, referenced, has_bounds: self.random.chance(60) };
            let (path, size_bytes) = (path.display().to_string(), written.size_bytes);
            let (spec, partition) = (seed.spec, seed.partition);
            commit.deletes.push(Arc::new(Delete { path, blob: None, size_bytes, spec, partition, by }));
            left = rest;
        }
    }

    /// Vectors for the files, in place of those that they have, in one Puffin file.
    fn add_vectors(&mut self, commit: &mut Commit, state: &State, hit: &[(Arc<File>, Item, Vec<usize>)]) {
        let mut all: Vec<(Arc<File>, BTreeSet<usize>)> = Vec::new();
        for (file, item, positions) in hit {
            let mut positions: BTreeSet<usize> = positions.iter().copied().collect();
            for (delete, sequence) in state.deletes() {
                let is_for_it = match &delete.by {
                    By::Vector { path, .. } => *path == file.path && sequence >= item.sequence,
                    By::Positions { .. } | By::Keys { .. } => false,
                };
                if let (true, By::Vector { positions: earlier, .. }) = (is_for_it, &delete.by) {
                    commit.removed.insert(delete.key());
                    positions.extend(earlier);
                }
                // A vector takes over what position delete files say.
                if let By::Positions { rows, .. } = &delete.by {
                    positions.extend(rows.iter().filter(|(path, _)| *path == file.path).map(|(_, position)| *position));
                }
            }
            all.push((Arc::clone(file), positions));
        }
        if all.is_empty() {
            return;
        }
        let path = self.table.new_path("dv", "puffin");
        let content: Vec<(String, Vec<u64>)> = all
            .iter()
            .map(|(file, positions)| (file.path.clone(), positions.iter().map(|position| *position as u64).collect()))
            .collect();
        let (size_bytes, blobs) = files::vectors(&path, &content);
        for ((file, positions), blob) in all.into_iter().zip(blobs) {
            let by = By::Vector { path: file.path.clone(), positions };
            let (spec, partition) = (file.spec, file.partition);
            let path = path.display().to_string();
            commit.deletes.push(Arc::new(Delete { path, blob: Some(blob), size_bytes, spec, partition, by }));
        }
    }
}
