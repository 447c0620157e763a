//! Step 6, commit: all staged files of an epoch -> one target snapshot, at most once.
//!
//! [`commit_epoch`] takes the accepted outputs of an epoch and gives the target with one snapshot more. The checkpoint
//! moves in the same commit. What decides is pure: `check` says what must hold of a staged file, [`checkpoint`] which
//! source snapshot a target holds, [`fence`] who may commit, `look` what a target's history says about a commit whose
//! answer was a conflict or was lost, `bins` which manifests are merged, and `summary` what a snapshot says about itself.
//! What acts: `row_delta` writes manifests, `merge` makes fewer of many, `attempt` writes a manifest list and composes the
//! request for one base, `drive` sends it until it is in the table or certainly is not.
//!
//! Around a run: [`start_run`] leaves a marker before anything is staged and [`end_run`] takes it away. A later run
//! that finds a marker ([`unfinished_runs`]) takes over ([`take_over`]), so that nothing of the older run can land any
//! more, and then removes what that run staged and nobody references ([`clean_up`]). It may be alive and stage more until
//! it notices: its marker stays for a day, and the runs until then look again.

mod attempt;
mod bins;
mod check;
pub mod checkpoint;
mod clean_up;
mod confirm;
mod drive;
mod epoch;
mod error;
pub mod fence;
mod look;
mod manifest;
mod merge;
mod row_delta;
mod runs;
mod settings;
mod summary;
mod take_over;

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use check::StagedProblem;
pub use checkpoint::{Checkpoint, find_checkpoint, other_jobs};
pub use clean_up::{Removed, clean_up, clean_up_own};
pub use confirm::confirm_checkpoint;
pub use drive::CommitPolicy;
pub use epoch::{Committed, EpochCommit, commit_epoch};
pub use error::CommitError;
pub use fence::{FenceHolder, current_fence};
pub use runs::{RunMarker, TakenOver, end_run, start_run, unfinished_runs};
pub use settings::{data_location, metadata_location, parquet_settings, target_file_bytes};
pub use take_over::take_over;
