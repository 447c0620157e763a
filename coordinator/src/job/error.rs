//! What can end a job.

use iceferry_common::fault::{Class, Classified};
use iceferry_common::filter::FilterError;
use iceferry_common::model::SnapshotId;

use crate::catalog::CatalogError;

/// Why a job cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The catalog of one side could not be opened, or a call to it failed.
    #[error("{side} catalog")]
    Catalog {
        /// `source` or `target`.
        side: &'static str,
        /// Why.
        source: Box<CatalogError>,
    },
    /// A column of source and target do not fit together.
    #[error("the schema of target {target} does not fit source {table}: column {column:?}: {problem}")]
    Schema {
        /// The source table.
        table: String,
        /// The target table.
        target: String,
        /// Full name of the column.
        column: String,
        /// What does not fit, and what to do.
        problem: String,
    },
    /// Columns are chosen that are not there, or so that nothing is left.
    #[error("source.{key}: column {column:?} of {table}: {problem}")]
    Projection {
        /// `keep` or `drop`.
        key: &'static str,
        /// The source table.
        table: String,
        /// The column as it was given.
        column: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A key column cannot be one.
    #[error("target.equality_columns: key column {column:?} of {table}: {problem}")]
    Key {
        /// The source table.
        table: String,
        /// The column as it was given.
        column: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A column cannot tell the rows of a changelog apart.
    #[error("source.identifier_columns: column {column:?} of {table}: {problem}")]
    Identifier {
        /// The source table.
        table: String,
        /// The column as it was given.
        column: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The snapshot of each change is asked for, of changes over a history that is no line.
    #[error(
        "source.include_metadata_columns: {column}: with on_rollback: resync a change of {table} is the outcome of \
         snapshots of two histories, and which one last made it is not told; leave the column out, or make a new target"
    )]
    NetCommit {
        /// The source table.
        table: String,
        /// The column.
        column: String,
    },
    /// The snapshot of each change is asked for, of changes from a beginning that is gone.
    #[error(
        "history gap: source.include_metadata_columns: {column}: the changes of {table} up to snapshot {oldest} are asked \
         for, and the snapshots that made them were expired; leave the column out, or begin with after_snapshot: {oldest}"
    )]
    NetBeginning {
        /// The source table.
        table: String,
        /// The column.
        column: String,
        /// The oldest snapshot that is left.
        oldest: SnapshotId,
    },
    /// Rows left the source, and there is nothing to delete them by.
    #[error(
        "rows of {table} were deleted or updated, and the target has no key to delete them by; name the columns that \
         identify a row in target.equality_columns, and a new target if this one holds rows already"
    )]
    KeyNeeded {
        /// The source table.
        table: String,
    },
    /// Rows left the source of a plain append target.
    #[error(
        "rows of {table} were deleted or updated ({file}), which a plain append cannot carry; use mode: merge-on-read, \
         and a new target if this one holds rows already"
    )]
    AppendOnly {
        /// The source table.
        table: String,
        /// A data file whose rows went.
        file: String,
    },
    /// The target is not one that this job may write.
    #[error("target {table}: {problem}")]
    Target {
        /// The target table.
        table: String,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// The filter does not fit the source.
    #[error("source.filter does not fit {table}")]
    Filter {
        /// The source table.
        table: String,
        /// Why.
        source: Box<FilterError>,
    },
    /// What defines the mirror is no longer what the target was made with.
    #[error("target {table}: {problem}")]
    MirrorChanged {
        /// The target table.
        table: String,
        /// What changed, and what to do.
        problem: String,
    },
    /// The source is not the table that the checkpoint is of.
    #[error(
        "source {table} was replaced: the target holds table {held}, the catalog has {found}; make a new target, or \
         bring the old table back"
    )]
    SourceReplaced {
        /// The source table.
        table: String,
        /// The table uuid of the checkpoint.
        held: String,
        /// The table uuid in the catalog.
        found: String,
    },
    /// The source is the target.
    #[error("target.table: {table} is the source's own table: a job reads one table and writes another")]
    OwnTable {
        /// The table.
        table: String,
    },
    /// A part of the source that is not carried.
    #[error("source {table}: {problem}")]
    Source {
        /// The source table.
        table: String,
        /// What is not carried, and what to do.
        problem: String,
    },
    /// Choosing the range failed.
    #[error(transparent)]
    Range(Box<crate::plan::RangeError>),
    /// Planning failed.
    #[error(transparent)]
    Plan(Box<crate::plan::PlanError>),
    /// Distributing or a task failed.
    #[error(transparent)]
    Distribute(Box<crate::distribute::DistributeError>),
    /// Committing failed.
    #[error(transparent)]
    Commit(Box<crate::commit::CommitError>),
    /// The run was asked to stop.
    #[error("stopped as asked; {committed} epochs were committed, a later run goes on from there")]
    Interrupted {
        /// Epochs that were committed before.
        committed: usize,
    },
}

impl Classified for JobError {
    fn class(&self) -> Class {
        match self {
            Self::Catalog { source, .. } => source.class(),
            Self::Schema { .. } | Self::Source { .. } | Self::AppendOnly { .. } | Self::Target { .. } => Class::Refused,
            Self::Projection { .. }
            | Self::NetCommit { .. }
            | Self::OwnTable { .. }
            | Self::Key { .. }
            | Self::Identifier { .. }
            | Self::KeyNeeded { .. }
            | Self::MirrorChanged { .. } => Class::Config,
            Self::SourceReplaced { .. } | Self::NetBeginning { .. } => Class::HistoryGap,
            Self::Filter { source, .. } => source.class(),
            Self::Range(error) => error.class(),
            Self::Plan(error) => error.class(),
            Self::Distribute(error) => error.class(),
            Self::Commit(error) => error.class(),
            Self::Interrupted { .. } => Class::Interrupted,
        }
    }
}

macro_rules! from_room {
    ($($room:ident($error:ty)),*) => {
        $(impl From<$error> for JobError {
            fn from(error: $error) -> Self {
                Self::$room(Box::new(error))
            }
        })*
    };
}

from_room!(
    Range(crate::plan::RangeError),
    Plan(crate::plan::PlanError),
    Distribute(crate::distribute::DistributeError),
    Commit(crate::commit::CommitError)
);

impl JobError {
    /// A call to the catalog of one side failed; made for `map_err`.
    pub(crate) fn catalog(side: &'static str) -> impl Fn(CatalogError) -> Self + Copy {
        move |source| Self::Catalog { side, source: Box::new(source) }
    }
}
