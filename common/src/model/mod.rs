//! The nouns of the work: what a coordinator plans, what a worker reads and stages, what a commit takes.
//!
//! These are the domain's own types. The wire has its own, generated ones; they meet in `proto`'s conversions only.

mod changelog;
mod context;
pub mod digest;
mod ids;
mod staged;
mod task;
mod work;

pub use changelog::{
    Changelog, ColumnSource, DuplicateKeys, Identity, MetadataColumn, SourceCommit, UnknownMetadataColumn,
};
pub use context::{EpochContext, MetricsMode, ParquetSettings, SourceContext, TargetContext, TargetMode};
pub use ids::{Attempt, EpochId, Fence, JobName, JobNameError, LeaseId, RunId, SnapshotId, TaskId, WorkerId};
pub use staged::{
    RowCounts, StagedContent, StagedFile, TaskOutput, exchange_file_location, staged_file_location, staging_folder,
};
pub use task::{
    Constant, DataFile, DeleteFile, DeleteKind, FileDifference, FileFormat, Resolution, ScanTask, Side, Split,
};
pub use work::{
    ColumnMetrics, CopyWork, DigestWork, ExchangeBlock, ExchangeFile, ExchangeSide, ExchangeWork, PassDeletesWork,
    ResolveWork, ShowWork, ShownRow, ShownValue, Work,
};
