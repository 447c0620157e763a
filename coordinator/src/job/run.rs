//! Carrying the epochs: plan, distribute, commit, one epoch after another.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use iceberg::spec::{SchemaRef, TableMetadata};
use iceferry_common::config::JobFile;
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::model::{
    EpochContext, EpochId, Fence, Resolution, RowCounts, RunId, ScanTask, Side, SnapshotId, SourceCommit,
    SourceContext, StagedFile, TargetContext, TargetMode, staging_folder,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::prepare::{Prepared, Target, name_mapping, prepare};
use super::report::{EpochReport, Outcome, RunReport, TargetReport};
use super::{JobError, outline};
use crate::catalog::{CatalogError, LoadedTable};
use crate::commit::{self, CommitError, CommitPolicy, EpochCommit, RunMarker};
use crate::distribute::{Dispatcher, DistributeError, Drained};
use crate::plan::{self, Epoch, PlanSummary, Range, Together};

/// Scan tasks between planner and dispatcher; more would only hold memory, since the dispatcher has a queue of its own.
const TASKS_BETWEEN: usize = 16;

/// What a run may be told beside its job file.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Patience of commits.
    pub commit: CommitPolicy,
    /// Slots of workers that will come; those that are there are known.
    pub slots_expected: usize,
}

/// Hears how a run goes; for progress.
pub trait Observer: Send + Sync {
    /// The run is about to carry these epochs.
    fn started(&self, prepared: &Prepared, epochs: usize);
    /// An epoch's planning has ended: all its tasks are known.
    fn planned(&self, epoch: EpochId, summary: &PlanSummary);
    /// An epoch is in the target.
    fn committed(&self, epoch: &EpochReport);
}

/// Does the job: brings the target to the end of the range.
///
/// # Errors
/// [`JobError`]. The target then holds the epochs that were committed before, whole; files of the others are removed,
/// or found by the next run.
pub async fn run(
    job: JobFile,
    dispatcher: &Dispatcher,
    options: &RunOptions,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<RunReport, JobError> {
    let run = RunId::new();
    let prepared = prepare(job).await?;
    for note in &prepared.notes {
        tracing::info!(job = %prepared.job.name, note, "noted before the start");
    }
    let mut report = RunReport {
        job: prepared.job.name.clone(),
        run: run.clone(),
        outcome: Outcome::NothingToDo,
        reason: None,
        epochs: Vec::new(),
        files_cleaned_up: 0,
        target: None,
    };
    let (epochs, reason) = work(&prepared.range);
    if epochs.is_empty() && !has_unfinished_runs(&prepared, &run).await? {
        report.reason = reason;
        report.target = existing(&prepared).map(target_report);
        return Ok(report);
    }
    let table = target_table(&prepared).await?;
    // Before anything is staged, and before looking for others: of two runs that start together each finds the other.
    let marker = commit::start_run(&table, &prepared.job.name, &run).await?;
    let (fence, referenced) = (Fence(0), HashSet::new());
    let mut carrier = Carrier {
        prepared,
        dispatcher,
        options,
        run,
        marker,
        fence,
        table,
        referenced,
        last_with_rows: None,
        all_ours: true,
    };
    let mut done = carrier.work(&mut report, observer, stop).await;
    if let Err(failure) = done {
        done = Err(carrier.unless_taken_over(failure).await);
    }
    // Workers first: when they have ended, nothing new is staged any more, and what is left can be told.
    let drained = dispatcher.drain().await;
    carrier.leave(done.as_ref().err(), &drained).await;
    done?;
    report.target = (!carrier.table.is_staged()).then(|| target_report(&carrier.table));
    Ok(report)
}

fn existing(prepared: &Prepared) -> Option<&LoadedTable> {
    match &prepared.target {
        Target::Existing(table) => Some(table),
        Target::New(_) => None,
    }
}

async fn has_unfinished_runs(prepared: &Prepared, run: &RunId) -> Result<bool, JobError> {
    match existing(prepared) {
        Some(table) => Ok(!commit::unfinished_runs(table, &prepared.job.name, run).await?.is_empty()),
        None => Ok(false),
    }
}

/// The target, as it is or as its first epoch will make it.
async fn target_table(prepared: &Prepared) -> Result<LoadedTable, JobError> {
    match &prepared.target {
        Target::Existing(table) => Ok(table.clone()),
        Target::New(creation) => {
            let (ident, catalog) = (prepared.job.target.table.ident(), prepared.target_catalog.as_ref());
            let staged = match catalog.stage_table(&ident, creation.as_ref().clone()).await {
                // Some servers stage tables only in a namespace that is there. Elsewhere it is made with the first
                // commit, so that a run that fails before leaves nothing.
                Err(error) if error.class() == Class::NotFound => {
                    catalog.ensure_namespace(ident.namespace()).await.map_err(JobError::catalog("target"))?;
                    catalog.stage_table(&ident, creation.as_ref().clone()).await
                }
                staged => staged,
            };
            staged.map_err(JobError::catalog("target"))
        }
    }
}

/// The epochs to carry, or why there are none.
pub(super) fn work(range: &Range) -> (Vec<Epoch>, Option<String>) {
    match range {
        Range::Epochs(epochs) => (epochs.clone(), None),
        Range::Nothing(nothing) => (Vec::new(), Some(outline::describe_nothing(nothing))),
    }
}

fn target_report(table: &LoadedTable) -> TargetReport {
    TargetReport { table: table.ident.to_string(), metadata_location: table.metadata_location.clone() }
}

/// What the tasks of an epoch came to.
#[derive(Default)]
struct Staged {
    tasks: usize,
    files: Vec<StagedFile>,
    rows: RowCounts,
    summary: PlanSummary,
}

/// One run at its work: the target's table moves with each committed epoch.
struct Carrier<'a> {
    prepared: Prepared,
    dispatcher: &'a Dispatcher,
    options: &'a RunOptions,
    run: RunId,
    marker: RunMarker,
    fence: Fence,
    table: LoadedTable,
    /// Locations of the files that this run committed.
    referenced: HashSet<String>,
    /// The last of its epochs that had rows.
    last_with_rows: Option<EpochId>,
    /// Whether no other run brought one of its epochs.
    all_ours: bool,
}

impl Carrier<'_> {
    /// Settles earlier runs, then carries the epochs one after another.
    async fn work(
        &mut self,
        report: &mut RunReport,
        observer: &dyn Observer,
        stop: &CancellationToken,
    ) -> Result<(), JobError> {
        if !self.table.is_staged() {
            report.files_cleaned_up += self.settle().await?;
        }
        let was_staged = self.table.is_staged();
        let (epochs, reason) = work(&self.prepared.range);
        report.reason = reason;
        if !epochs.is_empty() {
            observer.started(&self.prepared, epochs.len());
        }
        for (number, epoch) in epochs.iter().enumerate() {
            let interrupted = JobError::Interrupted { committed: report.epochs.len() };
            let Some(done) = self.carry(EpochId(number as u64), epoch, observer, stop).await? else {
                return Err(interrupted);
            };
            observer.committed(&done);
            report.epochs.push(done);
            report.outcome = Outcome::Applied;
        }
        if was_staged && !self.table.is_staged() {
            // Runs that were killed before the table was there left files beside its place.
            report.files_cleaned_up += self.settle().await?;
        }
        Ok(())
    }

    /// Takes over from runs that did not end, unless that was done before, and removes what they left: whatever they had
    /// under way is in the target by then, or never will be.
    async fn settle(&mut self) -> Result<u64, JobError> {
        let job = self.prepared.job.name.clone();
        let unfinished = commit::unfinished_runs(&self.table, &job, &self.run).await?;
        let holder = commit::current_fence(&self.table.metadata, &job)?;
        let must_take_over = unfinished.iter().any(|dead| !dead.is_fenced(holder.as_ref()));
        if must_take_over {
            tracing::info!(%job, runs = unfinished.len(), "takes over from runs that did not end");
            self.take_over().await?;
        } else {
            self.fence = holder.map_or(self.fence, |holder| holder.fence);
        }
        let mut files = 0;
        for dead in &unfinished {
            files += commit::clean_up(&self.table, &job, dead, &self.run).await?.files;
        }
        if must_take_over {
            // The dead run may have committed after we looked: look again, its last epoch is not ours to repeat.
            self.prepared = prepare(self.prepared.job.clone()).await?;
            if let Target::Existing(table) = &self.prepared.target {
                self.table = table.clone();
            }
        }
        Ok(files)
    }

    async fn take_over(&mut self) -> Result<(), JobError> {
        let (job, catalog) = (&self.prepared.job.name, self.prepared.target_catalog.as_ref());
        let table = self.table.clone();
        (self.table, self.fence) = commit::take_over(catalog, table, job, &self.run, &self.options.commit).await?;
        Ok(())
    }

    /// Carries one epoch; `None` when it was stopped before its commit began. A commit is never broken off: whoever drops
    /// one that is under way no longer knows whether its files are referenced.
    async fn carry(
        &mut self,
        id: EpochId,
        epoch: &Epoch,
        observer: &dyn Observer,
        stop: &CancellationToken,
    ) -> Result<Option<EpochReport>, JobError> {
        let Staged { tasks, files, rows, summary } = if epoch.rewrites_only {
            Staged::default()
        } else {
            tokio::select! {
                staged = self.distribute(id, epoch, observer) => staged?,
                () = stop.cancelled() => return Ok(None),
            }
        };
        let count = files.len();
        let committed = self.commit(id, epoch, files).await?;
        Ok(Some(EpochReport {
            epoch: id,
            source_snapshot_id: epoch.through,
            // Without files the checkpoint moved alone, and the snapshot it stands at is an older one.
            target_snapshot_id: committed.filter(|_| count > 0),
            tasks,
            files: count,
            rows,
            delete_files_passed: summary.delete_files_passed,
            deletes_passed: summary.delete_records_passed,
        }))
    }

    /// Plans and distributes at the same time: tasks go out while planning still runs.
    async fn distribute(&self, id: EpochId, epoch: &Epoch, observer: &dyn Observer) -> Result<Staged, JobError> {
        let (planned, checked) = mpsc::channel(TASKS_BETWEEN);
        let (accepted, taken) = mpsc::channel(TASKS_BETWEEN);
        let planning = async {
            let mut request = self.prepared.plan_request(epoch);
            request.options.slots = self.options.slots_expected.max(self.dispatcher.progress().borrow().slots);
            let ordinal = self.change_ordinal()?;
            let plan = async { self.prepared.plan(request, epoch, ordinal, planned).await.map_err(JobError::from) };
            let (summary, ()) = tokio::try_join!(plan, self.check_tasks(checked, accepted))?;
            observer.planned(id, &summary);
            Ok::<_, JobError>(summary)
        };
        let mut planning = pin!(planning);
        let mut distributing = pin!(self.dispatcher.run_epoch(Arc::new(self.context(id, epoch)?), taken));
        // A plan that fails drops the other future, which takes the leases back; a task that fails ends planning. Neither
        // alone is a success: outputs count only when the plan they belong to is whole.
        let (summary, output) = tokio::select! {
            summary = &mut planning => (summary?, distributing.await.map_err(DistributeError::from)?),
            output = &mut distributing => {
                let output = output.map_err(DistributeError::from)?;
                (planning.await?, output)
            }
        };
        for location in &output.left_behind {
            if let Err(error) = self.table.storage.delete(location).await {
                tracing::warn!(location, %error, "could not remove a staged file of a failed attempt");
            }
        }
        let tasks = output.outputs.len();
        let files = output.outputs.into_iter().flat_map(|output| output.files).collect();
        Ok(Staged { tasks, files, rows: output.rows, summary })
    }

    /// Passes tasks on, unless one needs what the target cannot do.
    async fn check_tasks(
        &self,
        mut planned: mpsc::Receiver<ScanTask>,
        accepted: mpsc::Sender<ScanTask>,
    ) -> Result<(), JobError> {
        while let Some(task) = planned.recv().await {
            self.prepared.check_task(&task)?;
            if accepted.send(task).await.is_err() {
                // Distributing has failed and says so itself.
                return Ok(());
            }
        }
        Ok(())
    }

    fn context(&self, id: EpochId, epoch: &Epoch) -> Result<EpochContext, JobError> {
        let prepared = &self.prepared;
        let metadata = &self.table.metadata;
        let change_ordinal = self.change_ordinal()?;
        let changelog =
            prepared.changelog.as_ref().map(|shape| shape.of_commit(prepared.commit_of(epoch, change_ordinal)));
        Ok(EpochContext {
            job: prepared.job.name.clone(),
            run: self.run.clone(),
            epoch: id,
            changelog,
            source: SourceContext {
                table: prepared.source_name(),
                read_schema: prepared.read_schema.clone(),
                equality_schema: prepared.equality_schema.clone(),
                name_mapping: name_mapping(&prepared.source.metadata),
                filter: prepared.filter.clone(),
                storage: prepared.source.storage.properties().clone(),
            },
            target: TargetContext {
                table: prepared.target_name(),
                write_schema: prepared.write_schema.clone(),
                key: prepared.write_key.clone(),
                mode: prepared.job.target.mode,
                data_location: commit::data_location(metadata),
                format_version: metadata.format_version() as u8,
                last_column_id: metadata.last_column_id(),
                name_mapping: name_mapping(metadata),
                parquet: commit::parquet_settings(metadata)?,
                target_file_bytes: commit::target_file_bytes(metadata)?,
                storage: self.table.storage.properties().clone(),
            },
        })
    }

    /// The number of the snapshot whose changes come next, as the target itself has it.
    fn change_ordinal(&self) -> Result<i32, JobError> {
        let checkpoint = commit::find_checkpoint(&self.table.metadata, &self.prepared.job.name)?;
        Ok(checkpoint.map_or(0, |checkpoint| checkpoint.next_change_ordinal))
    }

    async fn commit(
        &mut self,
        id: EpochId,
        epoch: &Epoch,
        staged: Vec<StagedFile>,
    ) -> Result<Option<SnapshotId>, JobError> {
        let prepared = &self.prepared;
        let source = &prepared.source.metadata;
        let after = commit::find_checkpoint(&self.table.metadata, &prepared.job.name)?;
        let request = EpochCommit {
            job: prepared.job.name.clone(),
            run: self.run.clone(),
            epoch: id,
            fence: self.fence,
            source_uuid: source.uuid(),
            after: after.map(|checkpoint| checkpoint.source_snapshot_id),
            last_with_rows: self.last_with_rows,
            source_snapshot_id: epoch.through,
            source_sequence_number: sequence_number(source, epoch.through),
            mirror_hash: prepared.mirror_hash.clone(),
            next_change_ordinal: self.change_ordinal()?.saturating_add(prepared.commits_in(epoch)),
            data_location: commit::data_location(&self.table.metadata),
            staged: Arc::new(staged),
        };
        let catalog = prepared.target_catalog.as_ref();
        if self.table.is_staged() {
            let made = catalog.ensure_namespace(self.table.ident.namespace()).await;
            made.map_err(JobError::catalog("target"))?;
        }
        let committed = commit::commit_epoch(catalog, self.table.clone(), &request, &self.options.commit).await?;
        self.table = committed.table;
        if !request.staged.is_empty() {
            self.last_with_rows = Some(id);
        }
        if committed.ours {
            self.referenced.extend(request.staged.iter().map(|file| file.location.clone()));
        } else {
            self.all_ours = false;
            tracing::warn!(epoch = %id, "another run of the job brought this epoch first");
        }
        Ok(committed.snapshot_id)
    }

    /// Why the run failed: one that took over removes what this one is still at work on, so whatever went wrong then went
    /// wrong because of that.
    async fn unless_taken_over(&self, failure: JobError) -> JobError {
        let (job, ident) = (&self.prepared.job.name, &self.table.ident);
        if !matches!(failure, JobError::Distribute(_)) {
            return failure;
        }
        let Ok(now) = self.prepared.target_catalog.load_table(ident).await else { return failure };
        match commit::current_fence(&now.metadata, job) {
            Ok(Some(holder)) if holder.fence > self.fence => JobError::from(CommitError::Fenced {
                job: job.clone(),
                table: ident.to_string(),
                ours: self.fence,
                found: holder.fence,
                run: holder.run,
            }),
            _ => failure,
        }
    }

    /// Ends the run: nothing of it is left that nobody references, or its marker stays so that the next run looks.
    async fn leave(&self, failure: Option<&JobError>, drained: &Drained) {
        let job = &self.prepared.job.name;
        if let Some(JobError::Commit(error)) = failure
            && error.leaves_files_in_doubt()
        {
            tracing::warn!(run = %self.run, "the outcome of a commit is unknown; its files stay until the next run");
            return;
        }
        if !drained.all_closed {
            tracing::warn!(run = %self.run, "workers may still be writing; what they leave is removed by the next run");
            return;
        }
        let tidied = match failure {
            None if self.all_ours => self.remove_lost_attempts().await,
            _ => {
                let catalog = self.prepared.target_catalog.as_ref();
                let removed = commit::clean_up_own(catalog, &self.table, job, &self.marker).await;
                removed.map(drop).map_err(JobError::from)
            }
        };
        let left = match tidied {
            Ok(()) => commit::end_run(&self.table, job, &self.run).await.map_err(JobError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = left {
            tracing::warn!(run = %self.run, error = chain(&error), "could not tidy up after the run; the next run does it");
        }
    }

    /// Removes files of attempts that failed or lost on the way to success. What this run committed it knows itself, so
    /// that the target's manifests need not be read.
    async fn remove_lost_attempts(&self) -> Result<(), JobError> {
        let folder = staging_folder(&self.marker.data_location, &self.prepared.job.name, &self.run);
        let storage = &self.table.storage;
        let failed = |source| JobError::catalog("target")(CatalogError::storage("tidy up after the run", source));
        for found in storage.list(&folder).await.map_err(failed)? {
            if !self.referenced.contains(&found.location) {
                storage.delete(&found.location).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Prepared {
    /// What the planner is asked for an epoch.
    pub(super) fn plan_request(&self, epoch: &Epoch) -> plan::PlanRequest {
        plan::PlanRequest {
            table: self.source_name(),
            storage: self.source.storage.clone(),
            metadata: self.source.metadata.clone(),
            before: epoch.before,
            after: epoch.through,
            read_schema: self.compared_schema().clone(),
            key: self.read_key.clone(),
            filter: self.filter.as_ref().map(|filter| filter.bound().clone()),
            together: self.together(),
            ways: self.ways(),
            partition_type: self.changelog.as_ref().map(|shape| shape.partition_type.clone()),
            manifest_lists: self.manifest_lists.clone(),
            options: plan::PlanOptions::of_table(&self.source.metadata),
        }
    }

    /// The columns that decide whether rows are equal.
    fn compared_schema(&self) -> &SchemaRef {
        let compared = self.changelog.as_ref().and_then(|shape| shape.compared_schema.as_ref());
        compared.unwrap_or(&self.read_schema)
    }

    /// Which differences the planner puts together.
    fn together(&self) -> Together {
        match &self.changelog {
            Some(shape) if shape.has_change_type || self.tells_commits => Together::Changes(shape.identity.clone()),
            _ => Together::CarryOver,
        }
    }

    /// The snapshot that an epoch's changes are of.
    pub(super) fn commit_of(&self, epoch: &Epoch, change_ordinal: i32) -> SourceCommit {
        let snapshot = self.source.metadata.snapshot_by_id(epoch.through.0);
        SourceCommit {
            snapshot_id: epoch.through,
            sequence_number: sequence_number(&self.source.metadata, epoch.through),
            timestamp_ms: snapshot.map_or(0, |snapshot| snapshot.timestamp_ms()),
            change_ordinal,
        }
    }

    /// Whether the target can carry what a task will find.
    pub(super) fn check_task(&self, task: &ScanTask) -> Result<(), JobError> {
        // Where rows are compared, those that went may all be carried over; if not, the task itself refuses them.
        let may_cancel = task.resolution != Resolution::Keep;
        let going = task.differences.iter().find(|difference| difference.before != Side::Absent && !may_cancel);
        match (going, self.job.target.mode) {
            (Some(_), TargetMode::Append) if self.changelog.as_ref().is_some_and(|shape| shape.has_change_type) => {
                Ok(())
            }
            (Some(difference), TargetMode::Append) => {
                Err(JobError::AppendOnly { table: self.source_name(), file: difference.file.location.clone() })
            }
            (Some(_), TargetMode::MergeOnRead) if self.write_key.is_empty() => {
                Err(JobError::KeyNeeded { table: self.source_name() })
            }
            _ => Ok(()),
        }
    }
}

fn sequence_number(metadata: &TableMetadata, SnapshotId(id): SnapshotId) -> i64 {
    metadata.snapshot_by_id(id).map_or(0, |snapshot| snapshot.sequence_number())
}
