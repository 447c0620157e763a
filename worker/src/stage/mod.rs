//! Step 5, stage: tagged batches -> staged data files and delete files of the target, with Iceberg metrics.
//!
//! A [`Stager`] takes the change batches of one attempt. INSERT rows become Parquet data files; DELETE rows become
//! equality delete files that hold the key columns alone. It encodes on the thread that calls it, which must be a
//! blocking one, while uploads go on beside it. Nothing it wrote is referenced by anybody before [`Stager::finish`]
//! returned, and nothing stays behind after [`Stager::abort`].
//!
//! What decides is pure: `admit` (what of a batch goes into which file), with `changelog` (a change as a row), `fit`
//! (columns into the target's layout) and `keys` (a key is unique within a task); `layout` and `settings` (the target's schema and properties as Parquet
//! has them); `metrics`, with `bounds` and `nan` (what the manifest says of a file). What acts: `stager`, `file` and
//! `upload`.

mod admit;
pub(crate) mod bounds;
mod changelog;
mod dead_rows;
mod error;
mod file;
mod fit;
mod keys;
pub(crate) mod layout;
pub(crate) mod metrics;
mod nan;
pub(crate) mod settings;
mod stager;
pub(crate) mod upload;

#[cfg(test)]
mod tests;

pub(crate) use dead_rows::{DeadRows, Of, stage_dead_rows};
pub use error::StageError;
pub use stager::{StageOptions, Stager};
