//! Support for the integration tests: they drive the `iceferry` binary from outside and read its targets back with engines
//! that share no code with it. Everything here may panic, as tests do.
//!
//! [`Lab`] says what is installed and what a missing part means; [`Fixture`] are the tables that Spark wrote, with the rows
//! of every snapshot; [`Source`] makes tables of any size; [`Job`] writes job files; [`Iceferry`] runs the binary under a
//! time limit; [`Reader`] keeps an engine running for many reads; [`model`] writes tables whose rows are known at every snapshot, by script or at random.

mod fixture;
mod iceferry;
mod job;
mod lab;
pub mod model;
mod process;

mod reader;
mod scratch;
mod source;

pub use fixture::{Fixture, MainSnapshot};
pub use iceferry::{Finished, Iceferry, Report, ReportEpoch, ReportRows, ReportTarget};
pub use job::{Catalog, Job};
pub use lab::{Component, Lab, package_folder};
pub use process::{Child, Output, free_port, seed, wait_until};
pub use reader::{Digest, Engine, ListedFile, Reader};
pub use scratch::{Scratch, listing, table_metadata};
pub use source::{Damage, Source};
