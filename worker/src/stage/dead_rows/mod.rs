//! Dead rows of data files that were carried over as bytes: staged beside them, so that one commit brings both.
//!
//! A target of format version 3 gets deletion vectors, one for each data file, all of an attempt in one Puffin file. An
//! older one gets position delete files, one for each data file, so that a reader of one need not read those of others.

mod positions;
mod vectors;

use iceferry_common::model::{Attempt, EpochContext, StagedFile, TaskId};
use iceferry_common::storage::Storage;
use roaring::RoaringTreemap;
use tokio::runtime::Handle;

use super::StageError;

/// The first format version that has deletion vectors, and takes no other new position deletes (spec, deletion vectors).
const VECTORS_SINCE: u8 = 3;

/// Rows of one data file that are dead.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeadRows {
    /// The data file, as it is staged.
    pub(crate) data_file: String,
    /// Their positions in it; at least one.
    pub(crate) positions: RoaringTreemap,
}

/// Whose files are staged.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) context: &'a EpochContext,
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    pub(crate) storage: &'a Storage,
    pub(crate) runtime: &'a Handle,
}

/// Stages the deletes of data files, in files that are numbered from `first_file` on. Every location is put into `begun`
/// before anything is written there. It blocks.
///
/// # Errors
/// When the storage does not take a file; what `begun` names is to be removed then.
pub(crate) fn stage_dead_rows(
    of: Of<'_>,
    dead: Vec<DeadRows>,
    first_file: usize,
    begun: &mut Vec<String>,
) -> Result<Vec<StagedFile>, StageError> {
    if dead.is_empty() {
        return Ok(Vec::new());
    }
    match of.context.target.format_version >= VECTORS_SINCE {
        true => vectors::stage(of, dead, first_file, begun),
        false => positions::stage(of, &dead, first_file, begun),
    }
}
