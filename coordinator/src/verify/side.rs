//! One side of a comparison: its tasks on their way to the workers, and what the digests of all of them come to.

use std::pin::pin;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use iceferry_common::model::digest::{BucketSum, TaskDigest};
use iceferry_common::model::{
    DigestWork, EpochId, RowCounts, RunId, ScanTask, StagedContent, StagedFile, TaskOutput, Work,
};
use iceferry_common::storage::Storage;
use tokio::sync::mpsc;

use super::open::Opened;
use super::{Observer, SideName, VerifyError, VerifyOptions};
use crate::distribute::{Dispatcher, DistributeError, EpochOutput};
use crate::plan::{self, PlanError, PlanSummary};

/// Scan tasks between planner and dispatcher.
const TASKS_BETWEEN: usize = 16;
/// Temporary files that are read at once.
const FILES_AT_ONCE: usize = 4;

/// Has workers read the two sides.
pub(super) struct Reader<'a> {
    pub(super) opened: &'a Opened,
    pub(super) run: &'a RunId,
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) options: &'a VerifyOptions,
}

/// What the rows of a side came to.
pub(super) struct Digested {
    /// Its buckets.
    pub(super) sums: Vec<BucketSum>,
    /// Where the rows are told one by one.
    pub(super) tasks: Vec<TaskFiles>,
    /// What was read for it.
    pub(super) rows: RowCounts,
}

/// The temporary files of a task.
pub(super) struct TaskFiles {
    pub(super) digest: StagedFile,
    /// None of a task without rows.
    pub(super) hashes: Option<String>,
}

impl TaskFiles {
    fn of(side: SideName, output: TaskOutput) -> Result<Self, VerifyError> {
        let (mut digest, mut hashes) = (None, None);
        for file in output.files {
            match file.content {
                StagedContent::Digest => digest = Some(file),
                StagedContent::RowHashes => hashes = Some(file.location),
                other => {
                    let problem = format!("it wrote a file of {other:?}");
                    return Err(VerifyError::NotCompared { side, task: output.task.0, problem });
                }
            }
        }
        let none = || VerifyError::NotCompared { side, task: output.task.0, problem: "it gave no digest".into() };
        Ok(Self { digest: digest.ok_or_else(none)?, hashes })
    }
}

impl Reader<'_> {
    /// Storage of the temporary files.
    pub(super) fn storage(&self) -> &Storage {
        &self.opened.target.table.storage
    }

    /// Has all rows of a side counted and hashed.
    pub(super) async fn digest(
        &self,
        side: SideName,
        epoch: EpochId,
        bucket_bits: u8,
        observer: &dyn Observer,
    ) -> Result<Digested, VerifyError> {
        let work = DigestWork { key: self.opened.key.iter().map(|place| *place as u32).collect(), bucket_bits };
        let digest = |task| Some(ScanTask { work: Work::Digest(work.clone()), ..task });
        let output = self.distribute(side, epoch, digest, |summary| observer.planned(side, summary)).await?;
        observer.read(side, &output.rows);
        let tasks = output.outputs.into_iter().map(|output| TaskFiles::of(side, output));
        let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
        let sums = self.sums(&tasks, bucket_bits).await?;
        Ok(Digested { sums, tasks, rows: output.rows })
    }

    /// The buckets of all tasks, added up.
    async fn sums(&self, tasks: &[TaskFiles], bucket_bits: u8) -> Result<Vec<BucketSum>, VerifyError> {
        let mut sums = vec![BucketSum::default(); 1 << bucket_bits];
        let read = |files: &TaskFiles| self.task_digest(files.digest.clone());
        let mut digests = pin!(futures::stream::iter(tasks.iter().map(read)).buffered(FILES_AT_ONCE));
        while let Some((file, digest)) = digests.try_next().await? {
            let rows: u64 = digest.sums.iter().map(|sum| sum.rows).sum();
            if digest.bucket_bits != bucket_bits || rows != file.record_count {
                let problem = format!("it has {rows} rows in 2^{} buckets", digest.bucket_bits);
                return Err(VerifyError::Damaged { location: file.location, problem });
            }
            sums.iter_mut().zip(digest.sums).for_each(|(sum, of_task)| *sum += of_task);
        }
        Ok(sums)
    }

    /// What the rows of a task came to.
    pub(super) async fn task_digest(&self, file: StagedFile) -> Result<(StagedFile, TaskDigest), VerifyError> {
        let bytes = self.storage().read(&file.location).await.map_err(temporary("read a temporary file"))?;
        match TaskDigest::from_bytes(&bytes) {
            Ok(digest) => Ok((file, digest)),
            Err(problem) => Err(VerifyError::Damaged { location: file.location, problem }),
        }
    }

    /// Plans all rows of a side, and hands out what `work` makes of its tasks, at the same time.
    pub(super) async fn distribute(
        &self,
        side: SideName,
        epoch: EpochId,
        mut work: impl FnMut(ScanTask) -> Option<ScanTask>,
        heard: impl Fn(&PlanSummary),
    ) -> Result<EpochOutput, VerifyError> {
        let slots = self.options.slots_expected.max(self.dispatcher.progress().borrow().slots);
        let Some(request) = self.opened.side(side).plan_request(slots) else { return Ok(EpochOutput::default()) };
        let context = Arc::new(self.opened.context(side, self.run, epoch)?);
        let (planned, mut tasks) = mpsc::channel(TASKS_BETWEEN);
        let (handed, taken) = mpsc::channel(TASKS_BETWEEN);
        let handing = async move {
            while let Some(task) = tasks.recv().await {
                // A distribution that has failed takes nothing more, and says so itself.
                if let Some(task) = work(task)
                    && handed.send(task).await.is_err()
                {
                    break;
                }
            }
            Ok::<_, PlanError>(())
        };
        let planning = async {
            let (summary, ()) = tokio::try_join!(plan::plan(request, planned), handing)?;
            heard(&summary);
            Ok::<_, VerifyError>(())
        };
        let mut planning = pin!(planning);
        let mut distributing = pin!(self.dispatcher.run_epoch(context, taken));
        // As in a run: outputs count only when the plan that they belong to is whole.
        tokio::select! {
            planned = &mut planning => {
                planned?;
                Ok(distributing.await.map_err(DistributeError::from)?)
            }
            output = &mut distributing => {
                let output = output.map_err(DistributeError::from)?;
                planning.await?;
                Ok(output)
            }
        }
    }
}

/// A temporary file could not be read; made for `map_err`.
pub(super) fn temporary(act: &'static str) -> impl Fn(iceferry_common::storage::StorageError) -> VerifyError + Copy {
    move |source| VerifyError::Temporary { act, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use iceferry_common::fault::{Class, Classified};
    use iceferry_common::model::{Attempt, TaskId};

    use super::*;

    #[test]
    fn a_worker_that_did_not_compare_is_found_out() {
        let of = |contents: &[StagedContent]| {
            let file = |content: &StagedContent| StagedFile {
                location: format!("/t/{content:?}"),
                content: *content,
                record_count: 1,
                size_bytes: 1,
                data_file: Default::default(),
            };
            let files = contents.iter().map(file).collect();
            let rows = RowCounts::default();
            let exchanged = None;
            TaskFiles::of(SideName::Target, TaskOutput { task: TaskId(7), attempt: Attempt(0), files, exchanged, rows })
        };
        use StagedContent::{Data, Digest, RowHashes};
        let both = of(&[Digest, RowHashes]).unwrap();
        assert_eq!((both.digest.location.as_str(), both.hashes.as_deref()), ("/t/Digest", Some("/t/RowHashes")));
        assert!(of(&[Digest]).unwrap().hashes.is_none());
        // One of an older version stages rows, whatever the task says.
        for wrong in [&[][..], &[RowHashes], &[Data], &[Digest, Data]] {
            let error = of(wrong).err().expect("it is refused");
            assert_eq!(error.class(), Class::Bug, "{error}");
            assert!(error.to_string().contains("task 7 on the target"), "{error}");
        }
    }
}
