//! Planning: the difference of two states of a table, as scan tasks.
//!
//! [`range`] decides which epochs a run has. [`plan`] takes the two ends of one epoch and gives scan tasks, which go
//! out while planning still runs. What decides is pure: which manifests count (`manifests`), what their entries say
//! (`manifest`, `entry`), which delete reaches which file (`reach`, `bounds`, `partition`), which deletes go straight through
//! (`pass`), which hold rows that count (`filter`), which files a rewrite may have made of each other (`group`), which go as
//! bytes (`ways`), and how differences become tasks (`pack`, `carry`). `difference` and `planner` drive them, `net` for the
//! changes of several snapshots, and `ahead` fetches and decodes manifests before their turn; `beginning` tells a history that was cut off.

mod ahead;
mod beginning;
mod bounds;
mod carry;
mod difference;
mod entry;
mod error;
mod filter;
mod group;
mod lists;
mod manifest;
mod manifests;
mod metrics;
mod net;
mod pack;
mod partition;
mod partitions;
mod pass;
mod planner;
pub mod range;
mod reach;
#[cfg(test)]
mod tests;
mod ways;

use std::collections::BTreeMap;

use iceberg::spec::{SchemaRef, StructType, TableMetadata, TableMetadataRef};
use iceferry_common::filter::BoundFilter;
use iceferry_common::model::{Identity, ScanTask, SnapshotId};
use iceferry_common::storage::Storage;
use serde::Serialize;
use tokio::sync::mpsc;

pub use beginning::root_with_a_past;
pub use error::PlanError;
pub use lists::ManifestLists;
pub(crate) use manifest::entry_count;
pub use net::{Step, plan_net};
pub use range::{Epoch, NoLine, Nothing, Range, RangeError, RangeRequest, epochs, line};
pub use ways::{DecodeReason, Ways};

/// Two states of a table, and how their difference is to be cut.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// `namespace.table`, for messages.
    pub table: String,
    /// Storage of the table's metadata.
    pub storage: Storage,
    /// The table's metadata; it has both snapshots.
    pub metadata: TableMetadataRef,
    /// The state before; `None` is the empty state.
    pub before: Option<SnapshotId>,
    /// The state after.
    pub after: SnapshotId,
    /// The shape that rows are read in, with the table's own field ids.
    pub read_schema: SchemaRef,
    /// Key columns as field ids of the table; may be empty. Files whose keys may overlap are looked at together.
    pub key: Vec<i32>,
    /// Which rows count; files without any are left out. All rows count without one.
    pub filter: Option<BoundFilter>,
    /// Which differences have to be in one task.
    pub together: Together,
    /// What need not go through decoded rows.
    pub ways: Ways,
    /// The fields of all partition specs, when workers are to know each file's partition.
    pub partition_type: Option<StructType>,
    /// Lists that an earlier plan read; clones share them. A plan of the next epoch finds its state before there.
    pub manifest_lists: ManifestLists,
    /// Sizes and bounds.
    pub options: PlanOptions,
}

/// Which file differences come into one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// Files that may be a rewrite of each other, where that is cheap: rows that were carried over need not be staged
    /// then. For a mirror, which is right without it as well.
    CarryOver,
    /// All that may hold both sides of a change, always: a changelog is wrong without it. Rows are told by the identity.
    Changes(Identity),
}

/// Sizes and bounds of planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOptions {
    /// Data bytes of a task; a file above it is split.
    pub split_bytes: u64,
    /// What a file counts at least when tasks are packed.
    pub open_file_cost_bytes: u64,
    /// Bytes that the rows of a task may take in memory for carried-over rows to be cancelled in it.
    pub carry_over_bytes_max: u64,
    /// File differences of a task at most.
    pub differences_per_task_max: usize,
    /// Manifests that are under way at once at most: being fetched, fetched, or being decoded.
    pub manifests_at_once: usize,
    /// Tasks that workers can run at once, as far as is known: the last tasks of a plan are shared out among them.
    pub slots: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            split_bytes: 128 * 1024 * 1024,
            open_file_cost_bytes: 4 * 1024 * 1024,
            carry_over_bytes_max: 128 * 1024 * 1024,
            differences_per_task_max: 1_000,
            manifests_at_once: 16,
            slots: 1,
        }
    }
}

impl PlanOptions {
    /// The table's own `read.split.target-size` and `read.split.open-file-cost`. A value that is no positive number is
    /// told in the log and left out: it is the source's, and reading goes on without it.
    pub fn of_table(table: &TableMetadata) -> Self {
        let mut options = Self::default();
        let properties = [
            ("read.split.target-size", &mut options.split_bytes),
            ("read.split.open-file-cost", &mut options.open_file_cost_bytes),
        ];
        for (key, option) in properties {
            let Some(value) = table.properties().get(key) else { continue };
            match value.trim().parse::<u64>() {
                Ok(value) if value > 0 => *option = value,
                _ => tracing::warn!(property = key, value, "left out a table property that is no positive number"),
            }
        }
        options
    }
}

/// What a plan holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlanSummary {
    /// Whether planning came to its end; not so when nobody took the tasks any more.
    pub complete: bool,
    /// Tasks sent.
    pub tasks: u64,
    /// Tasks in which carried-over rows are cancelled.
    pub tasks_cancelling: u64,
    /// Groups that are larger than a task may be, and whose rows are exchanged between tasks.
    pub groups_exchanged: u64,
    /// Data files that came.
    pub files_added: u64,
    /// Data files that went.
    pub files_removed: u64,
    /// Data files in both states whose deletes differ.
    pub files_changed: u64,
    /// Data files that were left out, since the filter keeps none of their rows. The other counts do not have them.
    pub files_filtered: u64,
    /// Data files that are carried as bytes, unless their footers speak against it.
    pub files_as_bytes: u64,
    /// Data files whose rows are decoded, by the reason.
    pub files_decoded: BTreeMap<DecodeReason, u64>,
    /// Rows in the data files that came, deleted ones included.
    pub records_added: u64,
    /// Rows in the data files that went, deleted ones included.
    pub records_removed: u64,
    /// Rows in the changed data files, deleted ones included.
    pub records_changed: u64,
    /// Bytes of all these data files.
    pub data_bytes: u64,
    /// Delete files, and vectors, that some task reads; each once.
    pub delete_files: u64,
    /// Bytes of the delete files; of vectors, the bytes of the vectors.
    pub delete_bytes: u64,
    /// Rows of the delete files, and positions of the vectors.
    pub delete_records: u64,
    /// Those of the delete files whose keys go straight through, without a look at data files.
    pub delete_files_passed: u64,
    /// Rows of these.
    pub delete_records_passed: u64,
    /// Manifest lists read.
    pub manifest_lists_read: u64,
    /// Manifests opened.
    pub manifests_opened: u64,
    /// Manifests of the states that did not have to be opened.
    pub manifests_skipped: u64,
    /// Bytes of the manifest lists and manifests that were read.
    pub metadata_bytes_read: u64,
}

/// Plans the difference of two states. Tasks are sent as soon as they are full. When the receiver is dropped, planning
/// ends quietly, and the summary says that it is not complete.
///
/// # Errors
/// [`PlanError`]; tasks that were sent before it are not to be used.
pub async fn plan(request: PlanRequest, tasks: mpsc::Sender<ScanTask>) -> Result<PlanSummary, PlanError> {
    difference::plan(request, tasks).await
}
