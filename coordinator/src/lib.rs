//! The coordinator: it plans the difference of two table states ([`plan`]), hands the scan tasks to workers
//! ([`distribute`]) and makes one target snapshot of what they staged ([`commit`]). Only the coordinator talks to
//! catalogs ([`catalog`]). [`job`] drives a job from its file to its end; [`verify`] compares its two tables.

pub mod catalog;
pub mod commit;
pub mod distribute;
pub mod job;
pub mod plan;
pub mod verify;
