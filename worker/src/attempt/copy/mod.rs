//! Carrying files over as bytes: what of a task's files can be is copied or spliced, and its dead rows are deleted beside it;
//! what is left is given back to be decoded.
//!
//! `fate` decides what becomes of each row group; [`splice`](crate::splice) knows how a file can be carried over at all.

mod fate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{
    ColumnMetrics, CopyWork, FileDifference, RowCounts, ScanTask, StagedContent, StagedFile, TargetMode,
    staged_file_location,
};
use iceferry_common::storage::Storage;
use roaring::RoaringTreemap;

use self::fate::{Fate, fates, moved};
use super::AttemptError;
use super::pipeline::Made;
use crate::read::{ReadOptions, TaskReader, split_of};
use crate::splice::{Part, Recipe, Size, SpliceError, Splicer, Way, Whole, join};
use crate::stage::{DeadRows, Of, stage_dead_rows};

/// The part of the size that a table wants its row groups to have from which on one is worth having in a larger file.
const ROW_GROUP_SHARE: u64 = 128;
/// The part of the size that a table wants its files to have from which on one is large enough to be copied as it is.
const FILE_SHARE: u64 = 32;
/// Bytes of footers that wait for files to be joined, at most.
const FOOTER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What was carried over of a task's files.
pub(super) struct Carried {
    pub(super) files: Vec<StagedFile>,
    /// All locations that were begun; there may be something at each.
    pub(super) begun: Vec<String>,
    /// What is to be decoded.
    pub(super) rest: Vec<FileDifference>,
    pub(super) rows: RowCounts,
}

/// Carries over what can be. It blocks.
///
/// # Errors
/// The attempt's. What it staged is removed then, or named.
pub(super) fn carry(made: &Made<'_>, work: &CopyWork, options: ReadOptions) -> Result<Carried, AttemptError> {
    let mut carrier = Carrier::new(made, work, options).map_err(|error| AttemptError::new(&error, Vec::new()))?;
    match carrier.carry() {
        Ok(()) => {
            let Carrier { files, begun, rest, rows, .. } = carrier;
            Ok(Carried { files, begun, rest, rows })
        }
        Err(error) => {
            let left_behind = remove(made, std::mem::take(&mut carrier.begun));
            Err(match made.cancel.is_cancelled() {
                true => AttemptError::cancelled(left_behind),
                false => AttemptError::new(&error, left_behind),
            })
        }
    }
}

/// Removes files of the attempt; gives those that could not be.
pub(super) fn remove(made: &Made<'_>, locations: Vec<String>) -> Vec<String> {
    let remains = |location: &String| match made.runtime.block_on(made.target.delete(location)) {
        Ok(()) => false,
        // Where not even the folder can be, there is no file.
        Err(error) if error.class() == Class::NotFound => false,
        Err(error) => {
            tracing::warn!(location, error = %chain(&error), "staged file could not be removed");
            true
        }
    };
    locations.into_iter().filter(remains).collect()
}

struct Carrier<'a> {
    made: &'a Made<'a>,
    work: &'a CopyWork,
    splicer: Splicer,
    /// Finds dead rows.
    reader: TaskReader,
    files: Vec<StagedFile>,
    begun: Vec<String>,
    dead: Vec<DeadRows>,
    rest: Vec<FileDifference>,
    rows: RowCounts,
}

/// A file of which row groups are carried over.
struct Candidate<'a> {
    whole: Whole,
    recipe: Recipe,
    /// Whether the object can be taken as it is, with all of its row groups.
    is_copy: bool,
    row_groups: Vec<usize>,
    dead: RoaringTreemap,
    metrics: &'a [ColumnMetrics],
    difference: &'a FileDifference,
}

impl<'a> Carrier<'a> {
    fn new(made: &'a Made<'a>, work: &'a CopyWork, options: ReadOptions) -> Result<Self, SpliceError> {
        let source = Storage::new(made.context.source.storage.clone());
        let (runtime, cancel) = (made.runtime.clone(), made.cancel.clone());
        let reader = TaskReader::open(&made.context, made.task, source.clone(), runtime.clone(), options)?;
        Ok(Self {
            splicer: Splicer::new(Arc::clone(&made.context), source, made.target.clone(), runtime, cancel)?,
            made,
            work,
            reader,
            files: Vec::new(),
            begun: Vec::new(),
            dead: Vec::new(),
            rest: Vec::new(),
            rows: RowCounts::default(),
        })
    }

    fn carry(&mut self) -> Result<(), SpliceError> {
        let task = self.made.task;
        let (mut waiting, mut bytes, mut footers) = (Vec::new(), 0, 0);
        for (index, difference) in task.differences.iter().enumerate() {
            let metrics = self.work.metrics.get(index).map_or(&[][..], Vec::as_slice);
            let Some(mut candidate) = self.candidate(index, difference, metrics)? else { continue };
            if candidate.is_copy
                && difference.file.size_bytes >= self.made.context.target.target_file_bytes / FILE_SHARE
            {
                self.copy(candidate)?;
                continue;
            }
            candidate.whole.trim();
            bytes += candidate.size(0).bytes;
            footers += candidate.whole.footer().memory_size();
            waiting.push(candidate);
            if bytes >= self.made.context.target.target_file_bytes || footers >= FOOTER_BYTES_MAX {
                self.join(std::mem::take(&mut waiting))?;
                (bytes, footers) = (0, 0);
            }
        }
        self.join(waiting)?;
        self.stage_dead()?;
        self.told();
        Ok(())
    }

    /// What is carried over of a file; what is not is left for others. None when that is nothing.
    fn candidate(
        &mut self,
        index: usize,
        difference: &'a FileDifference,
        metrics: &'a [ColumnMetrics],
    ) -> Result<Option<Candidate<'a>>, SpliceError> {
        let whole = self.splicer.open(&difference.file)?;
        let (recipe, is_copy) = match self.splicer.way(&difference.file, difference.commit, &whole, metrics) {
            Way::Copy(recipe) => (recipe, true),
            Way::Splice(recipe, reason) => {
                tracing::debug!(
                    location = difference.file.location,
                    reason = reason.as_str(),
                    "spliced, since {reason}"
                );
                (recipe, false)
            }
            Way::Decode(reason) => {
                tracing::debug!(
                    location = difference.file.location,
                    reason = reason.as_str(),
                    "decoded, since {reason}"
                );
                self.reader.pass_over(index);
                self.decode(difference);
                return Ok(None);
            }
        };
        let dead = self.reader.dead(index)?;
        if !dead.is_empty() && self.made.context.target.mode == TargetMode::Append {
            // Deletes have no place in a table that is only appended to.
            self.decode(difference);
            return Ok(None);
        }
        let rows = (0..whole.row_groups()).map(|row_group| {
            let rows = whole.rows_of(row_group);
            rows.end - rows.start
        });
        let fates = fates(rows, &dead, self.work.dead_percent_max);
        let of = |fate: Fate| {
            let groups = fates.iter().enumerate().filter(move |(_, (of, _))| *of == fate);
            groups.map(|(row_group, _)| row_group)
        };
        let decoded = of(Fate::Decode).count() > 0;
        for row_group in of(Fate::Decode) {
            let split = Some(split_of(whole.footer(), row_group));
            self.rest.push(FileDifference { split, ..difference.clone() });
        }
        let row_groups: Vec<usize> = of(Fate::Carry).collect();
        if row_groups.is_empty() {
            match decoded {
                true => self.rows.files_decoded += 1,
                // Nothing of it is left.
                false => self.rows.files_spliced += 1,
            }
            return Ok(None);
        }
        let is_copy = is_copy && row_groups.len() == whole.row_groups();
        Ok(Some(Candidate { whole, recipe, is_copy, row_groups, dead, metrics, difference }))
    }

    fn decode(&mut self, difference: &FileDifference) {
        self.rest.push(difference.clone());
        self.rows.files_decoded += 1;
    }

    fn begin(&mut self) -> String {
        let Made { context, task, attempt, .. } = self.made;
        let location = staged_file_location(context, task.id, *attempt, StagedContent::Data, self.begun.len());
        self.begun.push(location.clone());
        location
    }

    fn copy(&mut self, candidate: Candidate<'_>) -> Result<(), SpliceError> {
        let location = self.begin();
        let Candidate { whole, recipe, metrics, dead, .. } = candidate;
        let file = self.splicer.copy(&whole, &recipe, metrics, location)?;
        self.rows.files_copied += 1;
        self.carried(file, dead);
        Ok(())
    }

    /// Carries over files that waited for others to be joined with.
    fn join(&mut self, candidates: Vec<Candidate<'_>>) -> Result<(), SpliceError> {
        let target = &self.made.context.target;
        let mut forms: Vec<&Recipe> = Vec::new();
        let sizes: Vec<Size> = candidates
            .iter()
            .map(|candidate| {
                let form = forms.iter().position(|form| form.joins(&candidate.recipe)).unwrap_or_else(|| {
                    forms.push(&candidate.recipe);
                    forms.len() - 1
                });
                candidate.size(form)
            })
            .collect();
        let row_group_bytes_min = target.parquet.row_group_bytes / ROW_GROUP_SHARE;
        let joined = join(&sizes, target.target_file_bytes, row_group_bytes_min);
        let mut candidates: Vec<Option<Candidate<'_>>> = candidates.into_iter().map(Some).collect();
        for index in joined.too_small {
            if let Some(candidate) = candidates[index].take() {
                // What of it is decoded for its dead rows comes with the rest of it.
                let location = &candidate.difference.file.location;
                self.rest.retain(|rest| rest.file.location != *location);
                self.decode(candidate.difference);
            }
        }
        for group in joined.files {
            let mut group: Vec<Candidate<'_>> =
                group.into_iter().filter_map(|index| candidates[index].take()).collect();
            match group.len() {
                1 if group[0].is_copy => group.drain(..).try_for_each(|candidate| self.copy(candidate))?,
                _ => self.splice(group)?,
            }
        }
        Ok(())
    }

    fn splice(&mut self, group: Vec<Candidate<'_>>) -> Result<(), SpliceError> {
        let location = self.begin();
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(group.len());
        for Candidate { whole, recipe, row_groups, metrics, .. } in &group {
            parts.push(Part { whole, recipe, row_groups: row_groups.clone(), metrics });
        }
        let spliced = self.splicer.splice(&parts, location)?;
        let mut dead = RoaringTreemap::new();
        for to in spliced.moved {
            dead |= moved(&group[to.part].dead, to.rows, to.first_row);
        }
        self.rows.files_spliced += group.len() as u64;
        self.carried(spliced.file, dead);
        Ok(())
    }

    /// A new file is there, and these of its rows are dead.
    fn carried(&mut self, file: StagedFile, dead: RoaringTreemap) {
        self.rows.inserted += file.record_count - dead.len().min(file.record_count);
        self.rows.bytes_written += file.size_bytes;
        if !dead.is_empty() {
            self.dead.push(DeadRows { data_file: file.location.clone(), positions: dead });
        }
        self.files.push(file);
        self.told();
    }

    fn stage_dead(&mut self) -> Result<(), SpliceError> {
        let Made { context, task, attempt, target, runtime, .. } = self.made;
        let of = Of { context, task: task.id, attempt: *attempt, storage: target, runtime };
        let first_file = self.begun.len();
        let deletes = stage_dead_rows(of, std::mem::take(&mut self.dead), first_file, &mut self.begun)?;
        self.files.extend(deletes);
        Ok(())
    }

    /// Says how far it is.
    fn told(&mut self) {
        self.rows.bytes_read = self.splicer.bytes_read() + self.reader.bytes_fetched();
        self.made.progress.set(self.rows);
    }
}

impl Candidate<'_> {
    fn size(&self, form: usize) -> Size {
        let bytes = self.row_groups.iter().map(|row_group| self.whole.bytes_of(*row_group, &self.recipe));
        Size { bytes: bytes.sum(), row_groups: self.row_groups.len(), form }
    }
}

/// The task of what is left to be decoded.
pub(super) fn rest_of(task: &ScanTask, differences: Vec<FileDifference>) -> ScanTask {
    let work = iceferry_common::model::Work::Stage;
    ScanTask { id: task.id, differences, deletes: task.deletes.clone(), resolution: task.resolution, work }
}
