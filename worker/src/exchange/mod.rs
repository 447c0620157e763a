//! The exchange: rows with a hash each -> the same rows by bucket of hash, through one staged file, in bounded memory.
//!
//! Rows that have to meet have the same hash. A [`Writer`] takes the rows of both sides of a difference and writes them as
//! blocks of one bucket and one side each; a [`Reader`] gives them back bucket by bucket, the rows that went before those
//! that came, each side in the order of arrival, with one block in memory at a time. A bucket that is still too large is
//! exchanged again, at the next level: each level looks at other bits of the hash.
//!
//! A block is a self-contained Arrow IPC stream (schema, record batches, end), its buffers compressed with zstd, so any
//! Arrow reader can open a part of the file when it knows where the block begins. The index of the blocks stays in memory;
//! the file has none. It lies in the staging folder of its run and is removed with its writer or reader, however these end;
//! what a killed process leaves is removed with that folder.
//!
//! A file that was handed over ([`Reader::hand_over`]) is others' to read: [`Blocks`] gives the rows of one bucket from the
//! files of many tasks.
//!
//! `partition` is pure: which rows belong to which bucket. `writer`, `reader`, `blocks` and `space` act. All of it blocks,
//! and belongs on a thread that may.

mod blocks;
mod error;
mod partition;
mod reader;
mod space;
mod writer;

#[cfg(test)]
mod tests;

pub use iceferry_common::model::{ExchangeBlock as Block, ExchangeSide as Side};

pub use blocks::Blocks;
pub use error::ExchangeError;
pub use partition::{LEVELS, bucket_of};
pub use reader::{Bucket, Reader};
pub use space::Space;
pub use writer::Writer;
pub(crate) use writer::{ends, memory_bytes, place};

/// Rows of a batch that comes out, at most.
pub const BATCH_ROWS_MAX: usize = 8192;
/// Bytes of a batch that comes out, about, where its rows are large.
const BATCH_BYTES: u64 = 1024 * 1024;

/// How many rows of a kind make a batch: `bytes` is what `rows` of them take.
pub fn batch_rows(rows: u64, bytes: u64) -> usize {
    let fit = rows.saturating_mul(BATCH_BYTES) / bytes.max(1);
    usize::try_from(fit).unwrap_or(BATCH_ROWS_MAX).clamp(1, BATCH_ROWS_MAX)
}
