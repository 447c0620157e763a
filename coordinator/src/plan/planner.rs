//! From entries to differences, and from these to tasks on their way.

use std::collections::HashSet;

use iceferry_common::model::{
    Constant, DataFile, DeleteFile, DeleteKind, ExchangeWork, FileDifference, FileFormat, Identity, PassDeletesWork,
    Resolution, ScanTask, Side, SourceCommit, TaskId, Work,
};
use tokio::sync::mpsc;

use super::carry::{self, Carried};
use super::entry::{DataEntry, DeleteEntry};
use super::error::{FileProblem, PlanError};
use super::group::{self, Change};
use super::pack::{self, Packer, Weighed};
use super::pass::Passed;
use super::reach::{DeleteId, DeleteIndex, Deletes, State};
use super::ways::{self, DecodeReason, Ways};
use super::{PlanOptions, PlanRequest, PlanSummary, Together};

/// Files that are looked at before other work gets its turn on this thread.
const FILES_PER_TURN: usize = 256;
/// What a row takes in memory, as a multiple of its bytes in a file: a guess for compressed columns.
const MEMORY_PER_FILE_BYTE: u64 = 4;

/// Why planning ended early.
pub(super) enum Stop {
    /// Nobody takes the tasks any more.
    NobodyThere,
    Failed(Box<PlanError>),
}

impl From<PlanError> for Stop {
    fn from(error: PlanError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Turns entries into differences, and these into tasks on their way.
pub(super) struct Planner<'a> {
    pub(super) table: &'a str,
    pub(super) options: &'a PlanOptions,
    pub(super) deletes: &'a Deletes,
    pub(super) before: DeleteIndex<'a>,
    pub(super) after: DeleteIndex<'a>,
    /// Deletes that some task has.
    pub(super) used: HashSet<DeleteId>,
    /// Differences whose rows go straight through.
    pub(super) keep: Packer,
    /// Files that are carried as bytes.
    pub(super) carry: Packer<Carried>,
    pub(super) ways: &'a Ways,
    pub(super) tasks: mpsc::Sender<ScanTask>,
    pub(super) summary: &'a mut PlanSummary,
    /// The number of the next task.
    pub(super) next_task: u64,
    pub(super) files_seen: usize,
    pub(super) together: &'a Together,
    /// Differences of a changelog that wait for those that may hold the other side of a change.
    pub(super) waiting: Vec<Waiting>,
}

/// A file that differs, and how.
pub(super) struct Waiting {
    pub(super) entry: DataEntry,
    pub(super) event: Event,
}

/// What became of a file.
pub(super) enum Event {
    Added,
    Removed,
    /// It is in both states, with other deletes.
    Changed {
        before: Vec<DeleteId>,
        after: Vec<DeleteId>,
    },
    /// It differs around a snapshot, one of several whose changes come together.
    OfSnapshot {
        before: Side,
        after: Side,
        commit: SourceCommit,
    },
}

impl Waiting {
    /// Whether rows of it may go.
    pub(super) fn goes(&self) -> bool {
        match &self.event {
            Event::Added => false,
            Event::Removed => true,
            Event::Changed { before, after } => has_others(after, before),
            Event::OfSnapshot { before, after, .. } => has_more(before, after),
        }
    }

    /// Whether rows of it may come.
    pub(super) fn comes(&self) -> bool {
        match &self.event {
            Event::Added => true,
            Event::Removed => false,
            Event::Changed { before, after } => has_others(before, after),
            Event::OfSnapshot { before, after, .. } => has_more(after, before),
        }
    }
}

/// Whether some deletes are not among the others.
fn has_others(deletes: &[DeleteId], others: &[DeleteId]) -> bool {
    deletes.iter().any(|delete| !others.contains(delete))
}

/// Whether one side of a file may have rows that the other has not.
fn has_more(one: &Side, other: &Side) -> bool {
    match (one, other) {
        (Side::Absent, _) => false,
        (Side::Present(_), Side::Absent) => true,
        (Side::Present(one), Side::Present(other)) => has_others(other, one),
    }
}

impl<'a> Planner<'a> {
    /// A planner of a request that has sent nothing yet.
    pub(super) fn new(
        request: &'a PlanRequest,
        deletes: &'a Deletes,
        tasks: mpsc::Sender<ScanTask>,
        summary: &'a mut PlanSummary,
    ) -> Self {
        let options = &request.options;
        let PlanOptions { split_bytes, open_file_cost_bytes, differences_per_task_max, .. } = *options;
        Self {
            table: &request.table,
            options,
            before: deletes.index(State::Before),
            after: deletes.index(State::After),
            deletes,
            used: HashSet::new(),
            keep: Packer::new(split_bytes, open_file_cost_bytes, differences_per_task_max),
            carry: Packer::new(
                split_bytes.saturating_mul(carry::COPY_TASK_FACTOR),
                open_file_cost_bytes,
                differences_per_task_max,
            ),
            ways: &request.ways,
            tasks,
            summary,
            next_task: 0,
            files_seen: 0,
            together: &request.together,
            waiting: Vec::new(),
        }
    }
}

impl Planner<'_> {
    /// Matching files with deletes holds the CPU; heartbeats and the like must not wait for a large manifest.
    async fn take_turns(&mut self) {
        self.files_seen += 1;
        if self.files_seen.is_multiple_of(FILES_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }

    /// Whether a file is left out, since the filter keeps none of its rows; not yet where they may tell updates.
    pub(super) fn leaves_out(&mut self, entry: &DataEntry, may_be_updates: bool) -> bool {
        let leaves_out = !entry.may_match && !may_be_updates;
        self.summary.files_filtered += u64::from(leaves_out);
        leaves_out
    }

    pub(super) async fn added(&mut self, entry: &DataEntry) -> Result<(), Stop> {
        self.take_turns().await;
        let difference = self.as_added(entry)?;
        self.keep(entry, difference).await
    }

    fn as_added(&mut self, entry: &DataEntry) -> Result<FileDifference, Stop> {
        let after = self.reaching(State::After, entry)?;
        self.summary.files_added += 1;
        self.summary.records_added += entry.record_count;
        self.difference(entry, Side::Absent, Side::Present(after))
    }

    fn as_removed(&mut self, entry: &DataEntry) -> Result<FileDifference, Stop> {
        let before = self.reaching(State::Before, entry)?;
        self.summary.files_removed += 1;
        self.summary.records_removed += entry.record_count;
        self.difference(entry, Side::Present(before), Side::Absent)
    }

    /// A file whose entry moved from one manifest to another, or that was added again under the same path. Each side
    /// has its own sequence number and partition, and so its own deletes.
    pub(super) async fn in_both(&mut self, earlier: &DataEntry, later: DataEntry) -> Result<(), Stop> {
        self.take_turns().await;
        if earlier.record_count != later.record_count || earlier.size_bytes != later.size_bytes {
            let problem = "its size or row count differs between two states: a data file must not change; the table \
                           is damaged";
            return Err(FileProblem::corrupt(&later.path, problem).of_table(self.table).into());
        }
        let before = self.reaching(State::Before, earlier)?;
        let after = self.reaching(State::After, &later)?;
        self.changed(&later, before, after).await
    }

    /// A file in a manifest that both states share.
    pub(super) async fn unmoved(&mut self, entry: &DataEntry) -> Result<(), Stop> {
        self.take_turns().await;
        let before = self.reaching(State::Before, entry)?;
        let after = self.reaching(State::After, entry)?;
        self.changed(entry, before, after).await
    }

    async fn changed(&mut self, entry: &DataEntry, before: Vec<DeleteId>, after: Vec<DeleteId>) -> Result<(), Stop> {
        if before == after {
            return Ok(());
        }
        match self.together {
            Together::CarryOver => {
                let difference = self.as_changed(entry, before, after)?;
                self.keep(entry, difference).await
            }
            Together::Changes(_) => {
                self.waiting.push(Waiting { entry: entry.clone(), event: Event::Changed { before, after } });
                Ok(())
            }
        }
    }

    fn as_changed(
        &mut self,
        entry: &DataEntry,
        before: Vec<DeleteId>,
        after: Vec<DeleteId>,
    ) -> Result<FileDifference, Stop> {
        self.summary.files_changed += 1;
        self.summary.records_changed += entry.record_count;
        self.difference(entry, Side::Present(before), Side::Present(after))
    }

    fn difference_of(&mut self, entry: &DataEntry, event: Event) -> Result<FileDifference, Stop> {
        match event {
            Event::Added => self.as_added(entry),
            Event::Removed => self.as_removed(entry),
            Event::Changed { before, after } => self.as_changed(entry, before, after),
            Event::OfSnapshot { before, after, commit } => {
                let (files, records) = match (&before, &after) {
                    (Side::Absent, _) => (&mut self.summary.files_added, &mut self.summary.records_added),
                    (_, Side::Absent) => (&mut self.summary.files_removed, &mut self.summary.records_removed),
                    _ => (&mut self.summary.files_changed, &mut self.summary.records_changed),
                };
                *files += 1;
                *records += entry.record_count;
                let difference = self.difference(entry, before, after)?;
                Ok(FileDifference { commit: Some(commit), ..difference })
            }
        }
    }

    /// All that differs, for a changelog: what may hold both sides of a change becomes one task, or a group whose rows are
    /// exchanged when that would be too large.
    pub(super) async fn changes(
        &mut self,
        removed: Vec<DataEntry>,
        added: Vec<DataEntry>,
        columns: &[i32],
        by_partition: bool,
    ) -> Result<(), Stop> {
        let mut items = std::mem::take(&mut self.waiting);
        items.extend(removed.into_iter().map(|entry| Waiting { entry, event: Event::Removed }));
        items.extend(added.into_iter().map(|entry| Waiting { entry, event: Event::Added }));
        let is_net = items.iter().any(|item| matches!(item.event, Event::OfSnapshot { .. }));
        let resolution = match self.together {
            _ if is_net => Resolution::Net,
            Together::Changes(Identity::None) | Together::CarryOver => Resolution::CarryOver,
            Together::Changes(Identity::Columns(_) | Identity::RowId) => Resolution::Updates,
        };
        let mut items: Vec<Option<Waiting>> = items.into_iter().map(Some).collect();
        let changes: Vec<Change<'_>> = items.iter().flatten().map(Change::of).collect();
        let groups = group::changes(&changes, columns, by_partition);
        let mut packer = Packer::new(
            self.options.split_bytes,
            self.options.open_file_cost_bytes,
            self.options.differences_per_task_max,
        );
        for indexes in groups {
            let group: Vec<Waiting> = indexes.into_iter().filter_map(|index| items[index].take()).collect();
            let may_meet = group.iter().any(Waiting::goes) && group.iter().any(Waiting::comes);
            if may_meet {
                // A row that the filter leaves out still tells that the row it was paired with was updated.
                if !group.iter().any(|item| item.entry.may_match) {
                    self.summary.files_filtered += group.len() as u64;
                    continue;
                }
                let mut different = Vec::with_capacity(group.len());
                for Waiting { entry, event } in group {
                    let difference = self.difference_of(&entry, event)?;
                    different.push((entry, difference));
                }
                different.iter().for_each(|(_, difference)| self.decodes(ways::of_compared(difference)));
                if self.exchanges(&different) {
                    self.exchange(different, resolution).await?;
                    continue;
                }
                let differences = different.into_iter().map(|(_, difference)| difference).collect();
                if let Some(full) = packer.add(differences) {
                    self.send(full, resolution).await?;
                }
            } else {
                for Waiting { entry, event } in group {
                    if !self.leaves_out(&entry, false) {
                        let difference = self.difference_of(&entry, event)?;
                        self.keep(&entry, difference).await?;
                    }
                }
            }
        }
        for rest in packer.finish() {
            self.send(rest, resolution).await?;
        }
        Ok(())
    }

    /// Files that went and files that came, where the latter may be a rewrite of the former.
    pub(super) async fn rewritten(
        &mut self,
        removed: &[DataEntry],
        added: &[DataEntry],
        columns: &[i32],
    ) -> Result<(), Stop> {
        let removed: Vec<&DataEntry> = removed.iter().collect();
        let added: Vec<&DataEntry> = added.iter().collect();
        let grouping = group::group(&removed, &added, columns);
        for index in grouping.removed {
            let difference = self.as_removed(removed[index])?;
            self.keep(removed[index], difference).await?;
        }
        for index in grouping.added {
            let difference = self.as_added(added[index])?;
            self.keep(added[index], difference).await?;
        }
        let bytes_max = self.options.carry_over_bytes_max / MEMORY_PER_FILE_BYTE;
        let mut cancelling = Packer::new(
            self.options.split_bytes.min(bytes_max),
            self.options.open_file_cost_bytes,
            self.options.differences_per_task_max,
        );
        for group in grouping.groups {
            let mut unit = Vec::with_capacity(group.removed.len() + group.added.len());
            for index in &group.removed {
                unit.push((removed[*index], self.as_removed(removed[*index])?));
            }
            for index in &group.added {
                unit.push((added[*index], self.as_added(added[*index])?));
            }
            let bytes = unit.iter().map(|(_, difference)| difference.data_bytes()).sum::<u64>();
            if bytes <= bytes_max && unit.len() <= self.options.differences_per_task_max {
                unit.iter().for_each(|(_, difference)| self.decodes(ways::of_compared(difference)));
                let unit = unit.into_iter().map(|(_, difference)| difference).collect();
                if let Some(full) = cancelling.add(unit) {
                    self.send(full, Resolution::CarryOver).await?;
                }
            } else {
                for (entry, difference) in unit {
                    self.keep(entry, difference).await?;
                }
            }
        }
        for rest in cancelling.finish() {
            self.send(rest, Resolution::CarryOver).await?;
        }
        Ok(())
    }

    pub(super) fn reaching(&self, state: State, entry: &DataEntry) -> Result<Vec<DeleteId>, Stop> {
        let index = match state {
            State::Before => &self.before,
            State::After => &self.after,
        };
        Ok(index.reaching(entry).map_err(|problem| problem.of_table(self.table))?)
    }

    /// The difference of a whole file, if everything that it needs can be read.
    fn difference(&mut self, entry: &DataEntry, before: Side, after: Side) -> Result<FileDifference, Stop> {
        let refused = |problem: FileProblem| Stop::from(problem.of_table(self.table));
        let constants = readable(entry).map_err(refused)?;
        let partition = entry.partition_values.clone();
        let partition = partition.map_err(|problem| refused(FileProblem::refused(&entry.path, problem)))?;
        for side in [&before, &after] {
            let Side::Present(ids) = side else { continue };
            for id in ids {
                self.uses(*id)?;
            }
        }
        self.summary.data_bytes += entry.size_bytes;
        let file = DataFile {
            location: entry.path.clone(),
            format: entry.format,
            size_bytes: entry.size_bytes,
            record_count: entry.record_count,
            constants,
            sequence_number: entry.sequence,
            first_row_id: entry.first_row_id,
            spec_id: entry.partition.spec_id,
            partition,
        };
        Ok(FileDifference { file, split: None, before, after, commit: None })
    }

    /// A task reads a delete.
    fn uses(&mut self, id: DeleteId) -> Result<(), Stop> {
        if !self.used.insert(id) {
            return Ok(());
        }
        let delete = self.deletes.entry(id);
        deletes_readable(delete).map_err(|problem| problem.of_table(self.table))?;
        self.summary.delete_files += 1;
        self.summary.delete_records += delete.record_count;
        self.summary.delete_bytes += match self.deletes.file(id).kind {
            DeleteKind::Vector { length, .. } => length,
            DeleteKind::Position | DeleteKind::Equality { .. } => delete.size_bytes,
        };
        Ok(())
    }

    /// Sends deletes that go straight through.
    pub(super) async fn pass(&mut self, passed: Vec<Passed>) -> Result<(), Stop> {
        let mut files = Vec::with_capacity(passed.len());
        for Passed { id, constants } in passed {
            self.uses(id)?;
            let file = self.deletes.file(id);
            self.summary.delete_files_passed += 1;
            self.summary.delete_records_passed += file.record_count;
            files.push(PassedFile { file, constants });
        }
        let PlanOptions { split_bytes, open_file_cost_bytes, differences_per_task_max, .. } = *self.options;
        for task in pack::in_order(files, split_bytes, open_file_cost_bytes, differences_per_task_max) {
            let (deletes, constants) = task.into_iter().map(|passed| (passed.file, passed.constants)).unzip();
            self.send_task(ScanTask {
                id: TaskId(self.next_task),
                differences: Vec::new(),
                deletes,
                resolution: Resolution::Keep,
                work: Work::PassDeletes(PassDeletesWork { constants }),
            })
            .await?;
        }
        Ok(())
    }

    /// Whether a group is larger than a task may be, and its rows can be exchanged. Rows that are told by `_row_id` would
    /// have to be exchanged twice, first by their content: one task does that by itself.
    fn exchanges(&self, group: &[(DataEntry, FileDifference)]) -> bool {
        let bytes = group.iter().map(|(_, difference)| difference.data_bytes()).sum::<u64>();
        let is_large = bytes > self.options.split_bytes || group.len() > self.options.differences_per_task_max;
        is_large && *self.together != Together::Changes(Identity::RowId)
    }

    /// Sends a group in tasks that exchange its rows; others will resolve them, bucket by bucket.
    async fn exchange(&mut self, group: Vec<(DataEntry, FileDifference)>, resolution: Resolution) -> Result<(), Stop> {
        let parts = group.into_iter().flat_map(|(entry, difference)| self.parts(&entry, difference)).collect();
        let (task_bytes, open_file_cost) = (self.options.split_bytes, self.options.open_file_cost_bytes);
        // In the order of the group, so that rows of one identity are paired in it, whoever exchanged them.
        let tasks = pack::in_order(parts, task_bytes, open_file_cost, self.options.differences_per_task_max);
        let count = tasks.len() as u64;
        let first_resolve = TaskId(self.next_task + count);
        self.summary.groups_exchanged += 1;
        for differences in tasks {
            let hash_version = ExchangeWork::HASH_VERSION;
            let work = Work::Exchange(ExchangeWork { tasks: count, first_resolve, hash_version });
            self.send_work(differences, resolution, work).await?;
        }
        self.next_task += u64::from(ExchangeWork::BUCKETS);
        Ok(())
    }

    /// A difference, cut if it is large.
    fn parts(&self, entry: &DataEntry, difference: FileDifference) -> Vec<FileDifference> {
        let splits = match entry.format {
            FileFormat::Parquet => pack::splits(entry.size_bytes, &entry.split_offsets, self.options.split_bytes),
            // The rows of an Avro file have positions only when it is read from its beginning.
            FileFormat::Avro | FileFormat::Orc | FileFormat::Puffin => Vec::new(),
        };
        match splits.is_empty() {
            true => vec![difference],
            false => {
                let part = |split| FileDifference { split: Some(split), ..difference.clone() };
                splits.into_iter().map(part).collect()
            }
        }
    }

    fn decodes(&mut self, reason: DecodeReason) {
        *self.summary.files_decoded.entry(reason).or_default() += 1;
    }

    /// Sends a difference straight through: as bytes where that may be, else cut if it is large.
    async fn keep(&mut self, entry: &DataEntry, difference: FileDifference) -> Result<(), Stop> {
        let Some(reason) = ways::decodes(self.ways, &difference) else {
            self.summary.files_as_bytes += 1;
            if let Some(full) = self.carry.add(vec![Carried::new(entry, difference)]) {
                self.send_carried(full).await?;
            }
            return Ok(());
        };
        self.decodes(reason);
        for part in self.parts(entry, difference) {
            if let Some(full) = self.keep.add(vec![part]) {
                self.send(full, Resolution::Keep).await?;
            }
        }
        Ok(())
    }

    async fn send_carried(&mut self, carried: Vec<Carried>) -> Result<(), Stop> {
        let (differences, work) = carry::work(carried, self.options.split_bytes);
        self.send_work(differences, Resolution::Keep, Work::Copy(work)).await
    }

    async fn send(&mut self, differences: Vec<FileDifference>, resolution: Resolution) -> Result<(), Stop> {
        self.send_work(differences, resolution, Work::Stage).await
    }

    async fn send_work(
        &mut self,
        differences: Vec<FileDifference>,
        resolution: Resolution,
        work: Work,
    ) -> Result<(), Stop> {
        let task = pack::task(TaskId(self.next_task), differences, self.deletes, resolution, work);
        self.send_task(task).await
    }

    async fn send_task(&mut self, task: ScanTask) -> Result<(), Stop> {
        let resolution = task.resolution;
        self.tasks.send(task).await.map_err(|_| Stop::NobodyThere)?;
        self.next_task += 1;
        self.summary.tasks += 1;
        if resolution != Resolution::Keep {
            self.summary.tasks_cancelling += 1;
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<(), Stop> {
        let keep = std::mem::replace(&mut self.keep, Packer::new(0, 0, 1));
        for rest in keep.finish_balanced(self.options.slots) {
            self.send(rest, Resolution::Keep).await?;
        }
        let carry = std::mem::replace(&mut self.carry, Packer::new(0, 0, 1));
        for rest in carry.finish_balanced(self.options.slots) {
            self.send_carried(rest).await?;
        }
        Ok(())
    }
}

/// A delete file that goes straight through.
struct PassedFile {
    file: DeleteFile,
    constants: Vec<Constant>,
}

impl Weighed for PassedFile {
    fn data_bytes(&self) -> u64 {
        self.file.size_bytes
    }
}

/// The file's constants, if it can be read.
fn readable(entry: &DataEntry) -> Result<Vec<Constant>, FileProblem> {
    let format = match entry.format {
        FileFormat::Parquet | FileFormat::Avro => None,
        FileFormat::Orc => Some("ORC"),
        FileFormat::Puffin => Some("Puffin"),
    };
    if let Some(format) = format {
        let problem = format!("{format} data files are not supported; rewrite it as Parquet");
        return Err(FileProblem::refused(&entry.path, problem));
    }
    if entry.is_encrypted {
        let problem = "encrypted data files are not supported yet; rewrite it unencrypted";
        return Err(FileProblem::refused(&entry.path, problem));
    }
    entry.constants.clone().map_err(|problem| FileProblem::refused(&entry.path, problem))
}

/// What speaks against reading a delete file.
pub(super) fn deletes_readable(delete: &DeleteEntry) -> Result<(), FileProblem> {
    if let Some(problem) = &delete.problem {
        let problem = format!("{problem}; compact the table's deletes");
        return Err(FileProblem::refused(&delete.location, problem));
    }
    if delete.format == FileFormat::Orc {
        let problem = "ORC delete files are not supported; rewrite the data files that it reaches";
        return Err(FileProblem::refused(&delete.location, problem));
    }
    if delete.is_encrypted {
        let problem = "encrypted delete files are not supported yet; rewrite the data files that it reaches";
        return Err(FileProblem::refused(&delete.location, problem));
    }
    Ok(())
}
