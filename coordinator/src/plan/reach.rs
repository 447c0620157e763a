//! Which delete reaches which data file: the rules of the specification. Pure.
//!
//! - An equality delete reaches data files of a strictly lower data sequence number in its own spec and partition, or
//!   everywhere when its spec is unpartitioned.
//! - A position delete file reaches data files of a lower or equal number in its own spec and partition, if it may name
//!   them.
//! - A deletion vector reaches the one data file that it names, of a lower or equal number; position delete files do
//!   not count where there is a vector.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use iceberg::spec::ManifestFile;
use iceferry_common::model::{Constant, DeleteFile, DeleteKind};

use super::bounds;
use super::entry::{DataEntry, DeleteEntry, Scope};
use super::error::FileProblem;
use super::partition::Partition;
use super::pass::Passed;

/// A delete of either state: an index into [`Deletes`].
pub(super) type DeleteId = u32;

/// One of the two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Before,
    After,
}

/// The deletes of both states.
#[derive(Debug, Default)]
pub(super) struct Deletes {
    known: Vec<Known>,
    /// By location and offset: what a reader would open. Entries that differ in their attributes alone are next to each
    /// other here, and the first of them stands for their content.
    by_content: HashMap<(String, Option<u64>), Vec<DeleteId>>,
}

#[derive(Debug)]
struct Known {
    entry: DeleteEntry,
    content: DeleteId,
    in_before: bool,
    in_after: bool,
}

impl Deletes {
    /// Adds a live delete of the given states. Gives the one that stands for its content.
    pub(super) fn add(&mut self, entry: DeleteEntry, states: &[State]) -> DeleteId {
        let offset = match entry.scope {
            Scope::Vector { offset, .. } => Some(offset),
            Scope::Equality { .. } | Scope::Position { .. } => None,
        };
        let same_content = self.by_content.entry((entry.location.clone(), offset)).or_default();
        let known = same_content.iter().copied().find(|id| self.known[*id as usize].entry == entry);
        let id = known.unwrap_or_else(|| {
            let id = self.known.len() as DeleteId;
            same_content.push(id);
            let content = same_content[0];
            self.known.push(Known { entry, content, in_before: false, in_after: false });
            id
        });
        let known = &mut self.known[id as usize];
        known.in_before |= states.contains(&State::Before);
        known.in_after |= states.contains(&State::After);
        known.content
    }

    pub(super) fn entry(&self, id: DeleteId) -> &DeleteEntry {
        &self.known[id as usize].entry
    }

    /// Lets deletes that came go straight through, where `constants` gives what to pass them with: they count for both
    /// states from here on. Not those that the state before has under other attributes.
    pub(super) fn pass(&mut self, constants: impl Fn(&DeleteEntry) -> Option<Vec<Constant>>) -> Vec<Passed> {
        let known = (0..).zip(&self.known);
        let passed = known
            .filter(|(_, known)| known.in_after && !self.is_before(known))
            .filter_map(|(id, known)| constants(&known.entry).map(|constants| Passed { id, constants }));
        let passed: Vec<Passed> = passed.collect();
        passed.iter().for_each(|passed| self.known[passed.id as usize].in_before = true);
        passed
    }

    /// Whether the state before has what a delete holds.
    fn is_before(&self, known: &Known) -> bool {
        let content = &self.known[known.content as usize].entry;
        let offset = match content.scope {
            Scope::Vector { offset, .. } => Some(offset),
            Scope::Equality { .. } | Scope::Position { .. } => None,
        };
        let same_content = self.by_content.get(&(content.location.clone(), offset));
        same_content.into_iter().flatten().any(|id| self.known[*id as usize].in_before)
    }

    /// All columns that some delete deletes by.
    pub(super) fn equality_columns(&self) -> BTreeSet<i32> {
        let mut columns = BTreeSet::new();
        for known in &self.known {
            if let Scope::Equality { field_ids, .. } = &known.entry.scope {
                columns.extend(field_ids);
            }
        }
        columns
    }

    /// The deletes that are in one state only.
    pub(super) fn changed(&self) -> impl Iterator<Item = &DeleteEntry> {
        self.known.iter().filter(|known| known.in_before != known.in_after).map(|known| &known.entry)
    }

    /// What a reader needs to know of a delete.
    pub(super) fn file(&self, id: DeleteId) -> DeleteFile {
        let entry = self.entry(id);
        DeleteFile {
            location: entry.location.clone(),
            format: entry.format,
            size_bytes: entry.size_bytes,
            record_count: entry.record_count,
            kind: match &entry.scope {
                Scope::Equality { field_ids, .. } => DeleteKind::Equality { field_ids: field_ids.clone() },
                Scope::Position { .. } => DeleteKind::Position,
                Scope::Vector { offset, length, .. } => DeleteKind::Vector { offset: *offset, length: *length },
            },
        }
    }

    /// The deletes of one state, by what they can reach.
    pub(super) fn index(&self, state: State) -> DeleteIndex<'_> {
        let mut index = DeleteIndex {
            deletes: self,
            global: Vec::new(),
            equality: HashMap::new(),
            positions: HashMap::new(),
            single: HashMap::new(),
            single_lengths: BTreeSet::new(),
            vectors: HashMap::new(),
        };
        for (id, known) in (0..).zip(&self.known) {
            let is_live = match state {
                State::Before => known.in_before,
                State::After => known.in_after,
            };
            if is_live {
                index.add(id, &known.entry);
            }
        }
        index.sort();
        index
    }
}

/// The deletes of one state, found by data file. Lists are sorted by sequence number.
#[derive(Debug)]
pub(super) struct DeleteIndex<'a> {
    deletes: &'a Deletes,
    global: Vec<DeleteId>,
    equality: HashMap<Arc<Partition>, Vec<DeleteId>>,
    /// Position delete files that may name several data files of their partition.
    positions: HashMap<Arc<Partition>, Vec<DeleteId>>,
    /// Position delete files whose bounds are one text: one path, or a path's beginning if the bounds are cut short.
    single: HashMap<&'a str, Vec<DeleteId>>,
    single_lengths: BTreeSet<usize>,
    vectors: HashMap<&'a str, Vec<DeleteId>>,
}

impl<'a> DeleteIndex<'a> {
    fn add(&mut self, id: DeleteId, entry: &'a DeleteEntry) {
        match &entry.scope {
            Scope::Equality { is_global: true, .. } => self.global.push(id),
            Scope::Equality { .. } => self.equality.entry(Arc::clone(&entry.partition)).or_default().push(id),
            Scope::Position { referenced, paths } => match referenced.as_deref().or(paths.single()) {
                Some(path) => {
                    self.single_lengths.insert(path.len());
                    self.single.entry(path).or_default().push(id);
                }
                None => self.positions.entry(Arc::clone(&entry.partition)).or_default().push(id),
            },
            Scope::Vector { referenced, .. } => self.vectors.entry(referenced).or_default().push(id),
        }
    }

    fn sort(&mut self) {
        let deletes = self.deletes;
        let by_sequence = |ids: &mut Vec<DeleteId>| ids.sort_by_key(|id| deletes.entry(*id).sequence);
        by_sequence(&mut self.global);
        self.equality.values_mut().for_each(by_sequence);
        self.positions.values_mut().for_each(by_sequence);
    }

    /// The deletes that reach a data file, in ascending order, equal contents once.
    pub(super) fn reaching(&self, data: &DataEntry) -> Result<Vec<DeleteId>, FileProblem> {
        let mut reaching = Vec::new();
        let in_partition = self.equality.get(&data.partition).map_or(&[][..], Vec::as_slice);
        for ids in [&self.global[..], in_partition] {
            let newer = ids.partition_point(|id| self.deletes.entry(*id).sequence <= data.sequence);
            reaching.extend(ids[newer..].iter().copied().filter(|id| self.may_share_a_key(*id, data)));
        }
        match self.vector(data)? {
            Some(vector) => reaching.push(vector),
            None => self.add_positions(data, &mut reaching)?,
        }
        for id in &mut reaching {
            *id = self.deletes.known[*id as usize].content;
        }
        reaching.sort_unstable();
        reaching.dedup();
        Ok(reaching)
    }

    fn may_share_a_key(&self, id: DeleteId, data: &DataEntry) -> bool {
        match &self.deletes.entry(id).scope {
            Scope::Equality { field_ids, bounds, .. } => bounds::may_share(bounds, &data.bounds, field_ids),
            Scope::Position { .. } | Scope::Vector { .. } => true,
        }
    }

    fn vector(&self, data: &DataEntry) -> Result<Option<DeleteId>, FileProblem> {
        let mut found = None;
        for id in self.vectors.get(data.path.as_str()).into_iter().flatten().copied() {
            let entry = self.deletes.entry(id);
            if entry.sequence < data.sequence {
                continue;
            }
            check_partition(entry, data)?;
            if let Some(other) = found.replace(id) {
                let other = &self.deletes.entry(other).location;
                let problem =
                    format!("two deletion vectors in one state, in {other} and {}; rewrite the file", entry.location);
                return Err(FileProblem::corrupt(&data.path, problem));
            }
        }
        Ok(found)
    }

    fn add_positions(&self, data: &DataEntry, reaching: &mut Vec<DeleteId>) -> Result<(), FileProblem> {
        if let Some(ids) = self.positions.get(&data.partition) {
            let not_older = ids.partition_point(|id| self.deletes.entry(*id).sequence < data.sequence);
            reaching.extend(ids[not_older..].iter().copied().filter(|id| match &self.deletes.entry(*id).scope {
                Scope::Position { paths, .. } => paths.may_name(&data.path),
                Scope::Equality { .. } | Scope::Vector { .. } => false,
            }));
        }
        for length in self.single_lengths.range(..=data.path.len()) {
            let Some(beginning) = data.path.get(..*length) else { continue };
            for id in self.single.get(beginning).into_iter().flatten().copied() {
                let entry = self.deletes.entry(id);
                if entry.sequence < data.sequence {
                    continue;
                }
                let names_it = beginning == data.path;
                if names_it {
                    check_partition(entry, data)?;
                }
                let is_exact = matches!(&entry.scope, Scope::Position { referenced: Some(_), .. });
                if names_it || (!is_exact && entry.partition == data.partition) {
                    reaching.push(id);
                }
            }
        }
        Ok(())
    }
}

/// Whether a delete may reach a data file of a manifest.
pub(super) fn may_reach(delete: &DeleteEntry, manifest: &ManifestFile) -> bool {
    let is_global = matches!(delete.scope, Scope::Equality { is_global: true, .. });
    let is_newer = match delete.scope {
        Scope::Equality { .. } => delete.sequence > manifest.min_sequence_number,
        Scope::Position { .. } | Scope::Vector { .. } => delete.sequence >= manifest.min_sequence_number,
    };
    is_newer
        && (is_global
            || delete.partition.spec_id == manifest.partition_spec_id
                && delete.partition.may_be_in(manifest.partitions.as_deref()))
}

/// A delete that names a data file by its path has to be in its partition. By the specification it does not reach the
/// file otherwise, and other engines apply it all the same: nobody can say which rows such a table has.
fn check_partition(delete: &DeleteEntry, data: &DataEntry) -> Result<(), FileProblem> {
    if delete.partition == data.partition {
        return Ok(());
    }
    let problem = format!(
        "it names data file {}, which is in another partition or partition spec; rewrite that data file",
        data.path
    );
    Err(FileProblem::corrupt(&delete.location, problem))
}
