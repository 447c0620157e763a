//! A job from its file to its end.
//!
//! [`prepare`] opens both catalogs and looks at both tables: what the target holds, which epochs there are to do, how the
//! columns meet. It writes nothing, and refuses whatever would go wrong later (together with [`check_access`], that is all that a check does).
//! [`outline`] plans every epoch and counts. [`run`] carries the epochs, one after another: plan, distribute, commit.

mod changelog;
mod columns;
mod error;
mod meet;
mod net;
mod outline;
mod prepare;
mod projection;
mod reading;
mod report;
mod run;
mod schema;
mod ways;

pub use changelog::ChangelogShape;
pub use error::JobError;
pub(crate) use meet::{Meeting, checkpoint, meet};
pub use outline::{EpochOutline, Outline, outline};
pub use prepare::{Prepared, Target, check_access, prepare};
pub use report::{EpochReport, Outcome, RunReport, TargetReport};
pub use run::{Observer, RunOptions, run};
