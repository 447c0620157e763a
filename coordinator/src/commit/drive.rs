//! The loop: sends attempts until what was proposed is in the table, or certainly is not, or nobody can tell.

use std::time::Duration;

use iceferry_common::fault::Classified;
use iceferry_common::model::SnapshotId;
use iceferry_common::storage::Storage;
use uuid::Uuid;

use super::CommitError;
use super::attempt::{Attempt, Proposal, Written, compose};
use super::look::Look;
use crate::catalog::{Catalog, CatalogError, CommitOutcome, LoadedTable};

/// How patient a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// Attempts, and tries to load the table after each of them, at most.
    pub attempts_max: u32,
    /// The wait after the first attempt, about; it doubles with each further one.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Default for CommitPolicy {
    /// Enough for a target that others write to several times a second, and for a catalog that is away for a minute.
    fn default() -> Self {
        Self { attempts_max: 20, backoff: Duration::from_millis(100), backoff_max: Duration::from_secs(10) }
    }
}

impl CommitPolicy {
    /// The wait after so many tries: doubled each time, and jittered so that writers that collided do not collide again.
    fn wait(&self, tries: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << tries.min(16)).min(self.backoff_max);
        let share = u32::from(Uuid::new_v4().as_bytes()[0]);
        doubled.saturating_mul(256 + share) / 512
    }
}

/// What became of a proposal that is in the table.
#[derive(Debug)]
pub(super) struct Landed {
    /// The table with it.
    pub(super) table: LoadedTable,
    pub(super) snapshot_id: Option<SnapshotId>,
    /// Whether it was this run that brought it.
    pub(super) ours: bool,
    /// Whether it was found by looking, not by an answer.
    pub(super) already_there: bool,
}

/// Sends a proposal until its fate is known, then removes the metadata files that are certainly not referenced.
///
/// # Errors
/// [`CommitError::Unknown`] when an attempt may be in the table, now or later; any other error is certain that it is
/// not, save [`CommitError::RolledBack`].
pub(super) async fn drive(
    catalog: &dyn Catalog,
    base: LoadedTable,
    proposal: &dyn Proposal,
    policy: &CommitPolicy,
) -> Result<Landed, CommitError> {
    let storage = base.storage.clone();
    let table = base.ident.to_string();
    let mut drive = Drive {
        catalog,
        proposal,
        policy,
        table,
        under_way: Vec::new(),
        out_of_sight: false,
        lost: Vec::new(),
        refusal: None,
    };
    let result = drive.run(base).await;
    drive.tidy(&storage, &result).await;
    result
}

struct Drive<'a> {
    catalog: &'a dyn Catalog,
    proposal: &'a dyn Proposal,
    policy: &'a CommitPolicy,
    table: String,
    /// Attempts without an answer that may still land. All of them carry the same snapshot id.
    under_way: Vec<Attempt>,
    /// Whether one of them was settled by a table whose history does not reach back to its base. It may have landed, been
    /// built upon, and been expired before it was looked for: then its manifests are referenced all the same.
    out_of_sight: bool,
    /// What was written for attempts that were certainly refused, unless they are the one that landed.
    lost: Vec<Written>,
    /// Why the catalog refused, or did not answer, last.
    refusal: Option<CatalogError>,
}

impl Drive<'_> {
    async fn run(&mut self, base: LoadedTable) -> Result<Landed, CommitError> {
        let mut table = base;
        for number in 0..self.policy.attempts_max {
            // The base that we were given is looked at as well: it may be newer than what the files were staged on.
            if let Some(landed) = self.look(&table)? {
                return Ok(landed);
            }
            if let Some(landed) = self.send(&table, number).await? {
                return Ok(landed);
            }
            tokio::time::sleep(self.policy.wait(number)).await;
            table = self.load(&table).await?;
        }
        if let Some(landed) = self.look(&table)? {
            return Ok(landed);
        }
        let (what, attempts) = (self.proposal.what(), self.policy.attempts_max);
        let contended = CommitError::Contended { what, table: self.table.clone(), attempts };
        Err(self.unless_in_doubt(contended))
    }

    fn look(&mut self, table: &LoadedTable) -> Result<Option<Landed>, CommitError> {
        self.settle(table);
        match self.proposal.look(table) {
            Ok(Look::There { snapshot_id, ours }) => {
                Ok(Some(Landed { table: table.clone(), snapshot_id, ours, already_there: true }))
            }
            Ok(Look::Free) => Ok(None),
            Err(error) => Err(self.unless_in_doubt(error)),
        }
    }

    /// Attempts that cannot land on this table any more are lost.
    fn settle(&mut self, table: &LoadedTable) {
        let (under_way, lost): (Vec<_>, Vec<_>) =
            self.under_way.drain(..).partition(|attempt| attempt.may_land_on(&table.metadata));
        self.under_way = under_way;
        self.out_of_sight |= lost.iter().any(|attempt| !attempt.is_base_in_sight(&table.metadata));
        self.lost.extend(lost.into_iter().filter_map(|attempt| attempt.written));
    }

    /// Sends one attempt. An attempt without an answer is sent again as it is while its base is still the table's
    /// metadata: it carries the same snapshot id and requires the same main, so it can land once only, and its answer
    /// settles both.
    async fn send(&mut self, table: &LoadedTable, number: u32) -> Result<Option<Landed>, CommitError> {
        let again = self.under_way.iter().find(|attempt| attempt.base == table.metadata_location).cloned();
        let is_new = again.is_none();
        let attempt = match again {
            Some(attempt) => attempt,
            None => match compose(table, self.proposal, number).await {
                Ok(attempt) => attempt,
                Err(error) => return Err(self.unless_in_doubt(error)),
            },
        };
        let outcome = self.catalog.commit(table, attempt.requirements.clone(), attempt.updates.clone()).await;
        let what = self.proposal.what();
        match outcome {
            CommitOutcome::Committed(after) => {
                if let Ok(Look::There { snapshot_id, ours: true }) = self.proposal.look(&after) {
                    self.settle(&after);
                    return Ok(Some(Landed { table: after, snapshot_id, ours: true, already_there: false }));
                }
                // Some catalogs answer before they have checked. Its word is not enough: load and look.
                tracing::warn!(what, table = self.table, "a commit was confirmed, but the answer does not show it");
                self.keep(is_new, attempt);
            }
            CommitOutcome::Conflicted => {
                tracing::info!(what, table = self.table, number, "another writer was faster");
                self.lose(is_new, attempt);
            }
            CommitOutcome::Refused(source) if self.under_way.is_empty() => {
                self.lose(is_new, attempt);
                return self
                    .explain(table, CommitError::Refused { what, table: self.table.clone(), source: Box::new(source) })
                    .await;
            }
            CommitOutcome::Refused(source) => {
                // The refusal may be about an earlier send of ours that landed; looking settles it.
                self.lose(is_new, attempt);
                self.refusal = Some(source);
            }
            CommitOutcome::Unknown(source) => {
                let error = iceferry_common::fault::chain(&source);
                tracing::warn!(what, table = self.table, number, error, "a commit's answer was lost; looking for it");
                self.refusal = Some(source);
                self.keep(is_new, attempt);
            }
        }
        Ok(None)
    }

    /// A refusal often has a reason that the table shows better than the catalog's words do; and a catalog that tries
    /// again on its own may refuse what its first try had brought in.
    async fn explain(&mut self, table: &LoadedTable, refused: CommitError) -> Result<Option<Landed>, CommitError> {
        match self.catalog.load_table(&table.ident).await {
            Ok(table) => self.look(&table)?.map_or(Err(refused), |landed| Ok(Some(landed))),
            Err(_) => Err(refused),
        }
    }

    fn keep(&mut self, is_new: bool, attempt: Attempt) {
        if is_new {
            self.under_way.push(attempt);
        }
    }

    /// A definite no is about this send; where the same attempt was sent before, that one may still be under way.
    fn lose(&mut self, is_new: bool, attempt: Attempt) {
        if is_new {
            self.lost.extend(attempt.written);
        }
    }

    async fn load(&mut self, table: &LoadedTable) -> Result<LoadedTable, CommitError> {
        let mut tries = 0;
        loop {
            match self.catalog.load_table(&table.ident).await {
                Ok(table) => return Ok(table),
                Err(error) if error.class().is_retryable() && tries + 1 < self.policy.attempts_max => {
                    tracing::info!(table = self.table, tries, "loading the table failed; trying again");
                    tokio::time::sleep(self.policy.wait(tries)).await;
                    tries += 1;
                }
                Err(error) => return Err(self.unless_in_doubt(CommitError::Catalog(Box::new(error)))),
            }
        }
    }

    /// The error, unless an attempt may still land: then that is what counts.
    fn unless_in_doubt(&mut self, error: CommitError) -> CommitError {
        if self.under_way.is_empty() {
            return error;
        }
        let source: Box<dyn std::error::Error + Send + Sync> = match (error, self.refusal.take()) {
            (CommitError::Contended { .. }, Some(refusal)) => Box::new(refusal),
            (error, _) => Box::new(error),
        };
        CommitError::Unknown {
            what: self.proposal.what(),
            table: self.table.clone(),
            snapshot: self.proposal.snapshot().map_or_else(|| "none".to_owned(), |new| new.id.to_string()),
            source,
        }
    }

    async fn tidy(&self, storage: &Storage, result: &Result<Landed, CommitError>) {
        let Some(new) = self.proposal.snapshot() else { return };
        match result {
            Ok(landed) if landed.ours => {
                // Where our snapshot is expired already nobody can say which list was its own: keep them all.
                let Some(snapshot) = landed.table.metadata.snapshot_by_id(new.id) else { return };
                for written in self.lost.iter().filter(|written| written.manifest_list != snapshot.manifest_list()) {
                    written.remove(storage).await;
                }
            }
            Err(CommitError::RolledBack { .. }) => {}
            // The run's end sweeps its folder, and looks at what the table references by then.
            Ok(_) | Err(_) if self.out_of_sight => {}
            Ok(_) | Err(_) => {
                for written in &self.lost {
                    written.remove(storage).await;
                }
                if self.under_way.is_empty() {
                    new.remove_manifests(storage).await;
                }
            }
        }
    }
}
