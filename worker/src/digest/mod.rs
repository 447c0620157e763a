//! Digest: the rows of a table state counted and hashed, so that two tables can be compared without moving their rows.
//!
//! [`digest`] reads a scan task's rows once. It adds their hashes up by bucket of key, and writes aside what tells a single
//! row: a hash of its key, one of all its columns, and its place. Where the buckets of two tables differ, the coordinator
//! finds the rows in these, and [`show`] reads those rows alone.
//!
//! A row is hashed as the bytes that the tag step compares rows by, so both have one notion of what is equal. The hash is
//! XXH3, which is the same in every process; it finds damage and mistakes, not someone who makes rows to deceive it.
//!
//! `hash` is pure; `rows` writes hashes of single rows, a bounded number of which it holds.

mod error;
mod hash;
mod rows;
mod show;
mod task;

#[cfg(test)]
mod tests;

pub use error::DigestError;
pub(crate) use show::show;
pub(crate) use task::digest;
