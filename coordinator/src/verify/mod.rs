//! Verify: whether the target shows what the source shows, row by row, each table read once.
//!
//! A whole state is the difference from the empty state, so planner, dispatcher and reader are those of a run. Instead of
//! staging rows, workers count and hash them by bucket of key, and write a hash and the place of each row aside, into
//! temporary files of the target's storage. Buckets whose counts and hashes are alike on both sides hold the same rows. Of the
//! others the row hashes are compared, which tells the rows that differ and where they are; only the few that are to be shown
//! are read again, and nothing else.
//!
//! Nothing is committed, and the target's run markers and fence are let alone: it may go on beside a run of the job. It sees
//! both tables as they are at its start.
//!
//! `compare` decides and is pure; `open` finds the two states, `side` has the workers digest one, `look` finds the rows that
//! differ, `temporary` removes what was written.

mod compare;
mod error;
mod look;
mod open;
mod report;
mod side;
mod temporary;

use std::fmt;

use iceferry_common::config::JobFile;
use iceferry_common::model::{EpochId, RowCounts, RunId, SnapshotId};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::distribute::Dispatcher;
use crate::plan::PlanSummary;
use compare::Differences;
use look::{Looked, Shown};
use open::Opened;
use side::{Digested, Reader};

pub use error::VerifyError;
pub use report::{Outcome, RowReport, SideReport, ValueReport, VerifyReport};

/// What is compared, and how much of it is shown.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The source's snapshot; that of the target's checkpoint when absent.
    pub source_snapshot: Option<SnapshotId>,
    /// The target's snapshot; the current one of main when absent.
    pub target_snapshot: Option<SnapshotId>,
    /// Rows that are shown at most.
    pub rows_max: usize,
    /// Slots of workers that will come; those that are there are known.
    pub slots_expected: usize,
}

/// One of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SideName {
    /// The job's source.
    Source,
    /// The job's target.
    Target,
}

impl fmt::Display for SideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// Hears how a comparison goes; for progress.
pub trait Observer: Send + Sync {
    /// The two states are known.
    fn started(&self, job: &str, source: &SideReport, target: &SideReport);
    /// What there is to read of a side is known.
    fn planned(&self, side: SideName, summary: &PlanSummary);
    /// A side was read.
    fn read(&self, side: SideName, rows: &RowCounts);
}

/// Compares a job's source, as of the target's checkpoint, with its target.
///
/// # Errors
/// [`VerifyError`], when they could not be compared. Temporary files are removed in any case, as far as storage lets us.
pub async fn verify(
    job: JobFile,
    dispatcher: &Dispatcher,
    options: &VerifyOptions,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<VerifyReport, VerifyError> {
    let opened = open::open(job, options).await?;
    temporary::remove_old(&opened.target.table).await;
    let run = RunId::new();
    let reader = Reader { opened: &opened, run: &run, dispatcher, options };
    let done = tokio::select! {
        done = work(&reader, observer) => done,
        () = stop.cancelled() => Err(VerifyError::Interrupted),
    };
    // Workers first: when they have ended, nothing new is written any more.
    let drained = dispatcher.drain().await;
    if !drained.all_closed {
        tracing::warn!(%run, "workers may still be writing; what they leave is removed by a comparison on another day");
    }
    temporary::remove(&opened.target.table, &opened.job.name, &run).await;
    done
}

async fn work(reader: &Reader<'_>, observer: &dyn Observer) -> Result<VerifyReport, VerifyError> {
    let Opened { job, source, target, .. } = reader.opened;
    let (of_source, of_target) = (source.report(None), target.report(None));
    observer.started(job.name.as_str(), &of_source, &of_target);
    let bits = compare::bucket_bits(source.rows_expected().zip(target.rows_expected()).map(|(a, b)| a.max(b)));
    let of_source = reader.digest(SideName::Source, EpochId(0), bits, observer).await?;
    let of_target = reader.digest(SideName::Target, EpochId(1), bits, observer).await?;
    let differs = compare::differing(&of_source.sums, &of_target.sums);
    let equal = !differs.contains(&true);
    let (looked, shown) = if equal {
        let looked = Looked { differences: Differences::default(), hashes_read: 0 };
        (looked, Shown::default())
    } else {
        let looked = reader.look(&of_source, &of_target, &differs).await?;
        let shown = reader.show(&of_source, &of_target, &looked.differences.first).await?;
        (looked, shown)
    };
    let count = |digested: &Digested| digested.sums.iter().map(|sum| sum.rows).sum();
    Ok(VerifyReport {
        job: job.name.clone(),
        outcome: if equal { Outcome::Equal } else { Outcome::Different },
        source: source.report(Some(count(&of_source))),
        target: target.report(Some(count(&of_target))),
        buckets: differs.len() as u64,
        buckets_different: differs.iter().filter(|differs| **differs).count() as u64,
        missing: looked.differences.missing,
        surplus: looked.differences.surplus,
        changed: looked.differences.changed,
        more: looked.differences.count() - shown.rows.len() as u64,
        rows: shown.rows,
        rows_read: of_source.rows.read + of_target.rows.read,
        bytes_read: of_source.rows.bytes_read + of_target.rows.bytes_read,
        temporary_bytes: of_source.rows.bytes_written + of_target.rows.bytes_written,
        hashes_read_again: looked.hashes_read,
        rows_read_again: shown.read.read,
        bytes_read_again: shown.read.bytes_read,
    })
}
