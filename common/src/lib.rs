//! Nouns and machine edges that every part of iceferry shares: the [`model`] of the work, the job file ([`config`]), its
//! [`filter`] of rows, the [`entry`] of a staged file, the class of a [`fault`], [`storage`], [`shutdown`], [`telemetry`] and the [`clock`].
//!
//! No step of the data's path lives here, and nothing enters without two users.

pub mod clock;
pub mod config;
pub mod entry;
pub mod fault;
pub mod filter;
pub mod model;
pub mod shutdown;
pub mod storage;
pub mod telemetry;
