//! Random histories: for every pair of states the plan, read dumbly, gives the difference of the model's rows.
//!
//! `ICEFERRY_SEED` repeats one history, `ICEFERRY_CASES` sets how many are tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::DataFileFormat;

use super::model::{Commit, Delete, File, Item, Kind, PathBounds, Row, Table};
use super::{filter, net};

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn value(&mut self, end: usize) -> Option<i32> {
        if self.chance(12) { None } else { Some(self.below(end) as i32) }
    }

    fn some_of<T: Clone>(&mut self, from: &[T], percent: usize) -> Vec<T> {
        from.iter().filter(|_| self.chance(percent)).cloned().collect()
    }
}

struct Author {
    table: Table,
    random: Random,
    /// Files that were removed and may come back under their path.
    gone: Vec<Arc<File>>,
    /// The one spec of all files and deletes, if there is one.
    only_spec: Option<i32>,
}

impl Author {
    fn rows_of(&mut self, spec: i32, partition: Option<i32>, count: usize) -> Vec<Row> {
        let low = [0, 0, 0, 3, 8][self.random.below(5)];
        let one = |random: &mut Random| {
            let mut row = Row { id: random.value(6).map(|id| id + low), p: random.value(3), v: random.value(4) };
            match spec {
                1 => row.p = partition,
                2 => row.id = partition.map(|bucket| bucket + 4 * random.below(4) as i32),
                _ => {}
            }
            row
        };
        (0..count).map(|_| one(&mut self.random)).collect()
    }

    fn place(&mut self) -> (i32, Option<i32>) {
        let spec = self.only_spec.unwrap_or(self.random.below(3) as i32);
        let partition = if spec == 0 { None } else { self.random.value(3) };
        (spec, partition)
    }

    fn new_file(&mut self, spec: i32, partition: Option<i32>, rows: Vec<Row>) -> Arc<File> {
        let mut file = self.table.file(spec, partition, rows);
        file.has_bounds = self.random.chance(80);
        file.has_offsets = self.random.chance(70);
        Arc::new(file)
    }

    fn append(&mut self, commit: &mut Commit) {
        for _ in 0..1 + self.random.below(2) {
            let (spec, partition) = self.place();
            let count = self.random.below(9);
            let rows = self.rows_of(spec, partition, count);
            commit.added.push((self.new_file(spec, partition, rows), None));
        }
    }

    /// Rewrites some files of a partition, with all, some or none of their live rows.
    fn rewrite(&mut self, commit: &mut Commit, keeps_all: bool) {
        let state = self.table.state();
        let files = state.files();
        if files.is_empty() {
            return;
        }
        let (seed, _) = files[self.random.below(files.len())].clone();
        let mut rows = Vec::new();
        let mut oldest = None;
        for (file, sequence) in files {
            if file.spec != seed.spec || file.partition != seed.partition || !self.random.chance(70) {
                continue;
            }
            commit.removed.insert((file.path.clone(), None));
            for (position, row) in file.rows.iter().enumerate() {
                if !state.is_dead(&file, sequence, position) && (keeps_all || self.random.chance(60)) {
                    rows.push(*row);
                }
            }
            oldest = Some(oldest.map_or(sequence, |oldest: i64| oldest.min(sequence)));
            self.gone.push(file);
        }
        if !rows.is_empty() {
            // Some compactions keep an old data sequence number, so that running equality deletes still reach.
            let own = oldest.filter(|_| self.random.chance(25) && self.table.version > 1);
            let file = self.new_file(seed.spec, seed.partition, rows);
            commit.added.push((file, own));
        }
        if self.random.chance(40) {
            // Deletes that reached only these files are often dropped with them, often not.
            let dropped: Vec<_> = state.deletes().into_iter().filter(|_| self.random.chance(30)).collect();
            commit.removed.extend(dropped.into_iter().map(|(delete, _)| (delete.location.clone(), delete.offset)));
        }
    }

    fn delete_positions(&mut self, commit: &mut Commit) {
        let mut mates: Vec<Arc<File>> = commit.added.iter().map(|(file, _)| Arc::clone(file)).collect();
        if mates.is_empty() || self.random.chance(60) {
            mates.extend(self.table.state().files().into_iter().map(|(file, _)| file));
        }
        let Some(seed) = mates.get(self.random.below(mates.len())).cloned() else { return };
        mates.retain(|file| file.spec == seed.spec && file.partition == seed.partition);
        let is_alone = self.random.chance(40);
        if is_alone {
            mates = vec![seed];
        }
        let mut rows = BTreeSet::new();
        for file in &mates {
            for position in 0..file.rows.len() {
                if self.random.chance(30) {
                    rows.insert((file.path.clone(), position));
                }
            }
        }
        if rows.is_empty() {
            return;
        }
        let referenced = (is_alone && self.random.chance(50)).then(|| mates[0].path.clone());
        let kind = Kind::Positions {
            rows,
            referenced,
            bounds: [PathBounds::None, PathBounds::Full, PathBounds::CutShort][self.random.below(3)],
        };
        self.push_delete(commit, "pd", None, mates[0].spec, mates[0].partition, kind);
    }

    fn delete_by_vectors(&mut self, commit: &mut Commit) {
        let state = self.table.state();
        let location = self.table.new_name("dv");
        for (at, (file, sequence)) in state.files().into_iter().enumerate() {
            if !self.random.chance(40) || file.rows.is_empty() {
                continue;
            }
            let mut positions: BTreeSet<usize> = (0..file.rows.len()).filter(|_| self.random.chance(30)).collect();
            for (delete, of) in state.deletes() {
                let Kind::Vector { path, positions: earlier } = &delete.kind else { continue };
                if *path == file.path && of >= sequence {
                    commit.removed.insert((delete.location.clone(), delete.offset));
                    positions.extend(earlier);
                }
            }
            let kind = Kind::Vector { path: file.path.clone(), positions };
            commit.deletes.push((
                Arc::new(Delete {
                    location: location.clone(),
                    offset: Some(4 + 20 * at as u64),
                    spec: file.spec,
                    partition: file.partition,
                    kind,
                    format: DataFileFormat::Puffin,
                }),
                None,
            ));
        }
    }

    /// Deletes by key: mostly keys that some file has, in that file's partition.
    fn delete_by_key(&mut self, commit: &mut Commit) {
        let ids = [vec![1], vec![3], vec![1, 3], vec![2]][self.random.below(4)].clone();
        let files = self.table.state().files();
        let (mut spec, mut partition) = self.place();
        let mut keys = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let mut row = Row { id: self.random.value(12), p: self.random.value(3), v: self.random.value(4) };
            if let Some((file, _)) = files.get(self.random.below(files.len()))
                && !file.rows.is_empty()
                && self.random.chance(80)
            {
                row = file.rows[self.random.below(file.rows.len())];
                if self.random.chance(60) {
                    (spec, partition) = (file.spec, file.partition);
                }
            }
            keys.push(ids.iter().map(|id| row.get(*id)).collect());
        }
        let kind = Kind::Equality { ids, keys, has_bounds: self.random.chance(75) };
        self.push_delete(commit, "ed", None, spec, partition, kind);
    }

    fn push_delete(
        &mut self,
        commit: &mut Commit,
        name: &str,
        offset: Option<u64>,
        spec: i32,
        partition: Option<i32>,
        kind: Kind,
    ) {
        let location = self.table.new_name(name);
        let delete = Delete { location, offset, spec, partition, kind, format: DataFileFormat::Parquet };
        // Some writers hand a delete file an older number than the snapshot's.
        let own = self.random.chance(10).then(|| 1 + self.random.below(self.table.next_sequence() as usize) as i64);
        commit.deletes.push((Arc::new(delete), own));
    }

    fn bring_back(&mut self, commit: &mut Commit) {
        let live: BTreeSet<String> =
            self.table.state().files().into_iter().map(|(file, _)| file.path.clone()).collect();
        let Some(file) = self.gone.get(self.random.below(self.gone.len())).cloned() else { return };
        let is_coming = commit.added.iter().any(|(added, _)| added.path == file.path);
        if !live.contains(&file.path) && !is_coming {
            commit.added.push((file, None));
        }
    }

    /// A file that goes and comes again under its path in one snapshot, with a new number.
    fn add_again(&mut self, commit: &mut Commit) {
        let files = self.table.state().files();
        for (file, _) in self.random.some_of(&files, 25) {
            if commit.removed.insert((file.path.clone(), None)) {
                commit.added.push((file, None));
            }
        }
    }

    fn revive(&mut self, commit: &mut Commit) {
        let deletes = self.table.state().deletes();
        for (delete, _) in self.random.some_of(&deletes, 30) {
            commit.removed.insert((delete.location.clone(), delete.offset));
        }
    }

    async fn write(&mut self, snapshots: usize) {
        for _ in 0..snapshots {
            if self.table.version < 3 && self.random.chance(15) {
                self.table.version += 1;
            }
            self.table.is_widened |= self.random.chance(10);
            let mut commit = Commit { operation: "append", ..Commit::default() };
            if self.table.states.is_empty() {
                self.append(&mut commit);
                self.append(&mut commit);
            }
            for _ in 0..1 + self.random.below(3) {
                let has_vectors = commit.deletes.iter().any(|(delete, _)| matches!(delete.kind, Kind::Vector { .. }));
                match (self.random.below(15), self.table.version) {
                    (2, _) => self.rewrite(&mut commit, true),
                    (3, _) => self.rewrite(&mut commit, false),
                    (4, _) => self.bring_back(&mut commit),
                    (5, _) => self.add_again(&mut commit),
                    (6, 2..) => self.revive(&mut commit),
                    (7..=9, 2..) => self.delete_by_key(&mut commit),
                    (10 | 11, 3) if !has_vectors => self.delete_by_vectors(&mut commit),
                    (10..=13, 2..) => self.delete_positions(&mut commit),
                    _ => self.append(&mut commit),
                }
            }
            // One path, one fate.
            let mut names = BTreeSet::new();
            commit.added.retain(|(file, _)| names.insert(file.path.clone()));
            commit.merge_manifests = self.random.chance(15);
            self.table.commit(commit).await;
            let live: Vec<Item> =
                self.table.state().manifests.into_iter().flat_map(|manifest| manifest.items).collect();
            let unique: BTreeSet<_> = live.iter().map(Item::key).collect();
            assert_eq!(live.len(), unique.len(), "the author must not damage the table");
        }
    }
}

/// A random table, whose files and deletes are of one spec if that is given.
async fn table(seed: u64, only_spec: Option<i32>) -> Table {
    let version = [1, 2, 2, 3, 3][(seed % 5) as usize];
    let mut author = Author { table: Table::new(version), random: Random(seed), gone: Vec::new(), only_spec };
    author.write(8).await;
    author.table
}

fn seeds() -> Vec<u64> {
    let cases = number_from_environment("ICEFERRY_CASES").unwrap_or(6);
    match number_from_environment("ICEFERRY_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
            (0..cases).map(|case| first.wrapping_add(case)).collect()
        }
    }
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_read_dumbly_is_the_difference_of_the_states() {
    for seed in seeds() {
        println!("ICEFERRY_SEED={seed}");
        let table = table(seed, None).await;
        let ends: Vec<_> = table.states.iter().map(|(id, _)| *id).collect();
        for after in &ends {
            table.check(None, *after).await;
            for before in &ends {
                table.check(Some(*before), *after).await;
            }
        }
        // Several snapshots together: those of one snapshot are seen above.
        for (turn, from) in (seed % 3..).zip([None, Some(0), Some(3)]) {
            net::check(&table, from, ends.len() - 1, net::identity(turn)).await;
        }
        // With a filter what is left are the changes of the rows that match.
        let last = ends[ends.len() - 1];
        let mut left_out = filter::check(&table, None, last).await;
        for before in &ends {
            left_out += filter::check(&table, Some(*before), last).await;
        }
        assert!(left_out > 0, "a filter must be of use");
    }
}

/// A mirror that takes each step of a history as it comes: files as bytes, and deletes on its key straight through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passed_deletes_and_what_else_is_planned_make_the_state_before_the_state_after() {
    let mut passed = 0;
    for seed in seeds() {
        println!("ICEFERRY_SEED={seed}");
        for only_spec in [None, Some(0), Some(1)] {
            let table = table(seed, only_spec).await;
            let ends: Vec<_> = table.states.iter().map(|(id, _)| *id).collect();
            for (at, after) in ends.iter().enumerate() {
                table.check_mirror(None, *after, &[1]).await;
                for (place, before) in ends[..at].iter().enumerate() {
                    let key = [&[1][..], &[2], &[3, 1]][(at + place) % 3];
                    passed += table.check_mirror(Some(*before), *after, key).await.1.delete_files_passed;
                }
            }
        }
    }
    let is_one_history = number_from_environment("ICEFERRY_SEED").is_some();
    assert!(is_one_history || passed > 0, "some deletes have to go straight through");
}
