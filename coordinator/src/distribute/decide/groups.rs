//! Groups whose rows several tasks exchange: once all of these are accepted, one task for each bucket resolves it.

use std::collections::BTreeMap;

use iceferry_common::model::{ExchangeFile, ExchangeWork, Resolution, ResolveWork, ScanTask, TaskId, Work};

/// The groups of an epoch.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Those that are not whole yet, by the number of the task that resolves their first bucket.
    open: BTreeMap<TaskId, Group>,
    /// Where exchanged rows of accepted attempts lie. They are of no use once the epoch is over.
    locations: Vec<String>,
}

#[derive(Debug)]
struct Group {
    tasks: u64,
    tasks_accepted: u64,
    resolution: Resolution,
    /// By task, so that the rows of a bucket have the same order whichever task was done first.
    files: BTreeMap<TaskId, ExchangeFile>,
}

impl Groups {
    /// Takes the accepted rows of a task. With those of the last task of its group it gives the tasks that resolve it.
    pub(super) fn accept(
        &mut self,
        task: &ScanTask,
        work: &ExchangeWork,
        exchanged: Option<ExchangeFile>,
    ) -> Vec<ScanTask> {
        self.locations.extend(exchanged.iter().map(|file| file.location.clone()));
        let group = self.open.entry(work.first_resolve).or_insert_with(|| Group {
            tasks: work.tasks,
            tasks_accepted: 0,
            resolution: task.resolution,
            files: BTreeMap::new(),
        });
        group.tasks_accepted += 1;
        group.files.extend(exchanged.map(|file| (task.id, file)));
        if group.tasks_accepted < group.tasks {
            return Vec::new();
        }
        let group = self.open.remove(&work.first_resolve);
        group.map(|group| resolving(&group, work.first_resolve)).unwrap_or_default()
    }

    /// A group that not all tasks are accepted of.
    pub(super) fn first_open(&self) -> Option<TaskId> {
        self.open.keys().next().copied()
    }

    /// Where all exchanged rows lie.
    pub(super) fn take_locations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.locations)
    }
}

/// One task for each bucket that has rows.
fn resolving(group: &Group, TaskId(first): TaskId) -> Vec<ScanTask> {
    let mut buckets: BTreeMap<u32, Vec<ExchangeFile>> = BTreeMap::new();
    for file in group.files.values() {
        for block in &file.blocks {
            let files = buckets.entry(block.bucket).or_default();
            match files.last_mut() {
                Some(last) if last.location == file.location => last.blocks.push(*block),
                _ => files.push(ExchangeFile { location: file.location.clone(), blocks: vec![*block] }),
            }
        }
    }
    let task = |(bucket, files): (u32, Vec<ExchangeFile>)| ScanTask {
        id: TaskId(first + u64::from(bucket)),
        differences: Vec::new(),
        deletes: Vec::new(),
        resolution: group.resolution,
        work: Work::Resolve(ResolveWork { bucket, files }),
    };
    buckets.into_iter().map(task).collect()
}
