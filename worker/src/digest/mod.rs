//! Digest: the rows of a table state counted and hashed, so that two tables can be compared without moving their rows.
//!
//! [`digest`] reads a scan task's rows once. It adds their hashes up by bucket of key, and writes aside what tells a single
//! row: a hash of its key, one of all its columns, and its place. Where the buckets of two tables differ, the coordinator
//! finds the rows in these, and [`show`] reads those rows alone.
//!
//! Rows are equal here when the tag step takes them for equal: bit by bit, a map whatever the order of its entries. The hash
//! is XXH3, which is the same in every process; it finds damage and mistakes, not someone who makes rows to deceive it.
//!
//! `bytes` and `hash` are pure; `rows` writes hashes of single rows, a bounded number of which it holds.

mod bytes;
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
