//! Read: a scan task in, Arrow batches of the rows that went or came out.
//!
//! [`TaskReader`] takes an epoch's context and a [`ScanTask`](iceferry_common::model::ScanTask) and gives
//! [`ChangeBatch`](crate::ChangeBatch)es in the read schema of the context. A row that was live before and is not after
//! is a DELETE, one that is live after and was not before an INSERT; there is no other rule.
//!
//! What decides is apart from what acts:
//!
//! | decides, pure | acts |
//! |---|---|
//! | `difference`: what differs, in which order | `reader`: goes through the steps of a task; `dead`: finds dead rows alone |
//! | `select`, `prune`, `file_bounds`: row groups and rows | `rows`: decodes them; `avro`: the same for Avro files; `filter`: keeps those that match |
//! | `file_schema`, `project`, `convert`, `literal`, `metadata`: columns by field id, in the table's types | `opened`, `footer`: open a file |
//! | [`vector`](crate::vector), `equality`, `key_fields`: what a delete says | `deletes`, `positions`, `delete_columns`: load deletes; `passed`: gives their keys |
//! | `blocks`: what to fetch when | `fetch`: asks storage |
//!
//! Memory is bounded by [`ReadOptions`], whatever the size of a file or row group, with two exceptions that are in the
//! nature of the thing: a single page of a column, or block of an Avro file, is held whole, and so are the deleted positions (Roaring bitmaps) of
//! the data files of one task.

mod avro;
mod blocks;
mod convert;
mod dead;
mod delete_columns;
mod deletes;
mod difference;
mod equality;
pub(crate) mod error;
pub(crate) mod fetch;
mod file_bounds;
pub(crate) mod file_schema;
mod filter;
pub(crate) mod footer;
mod key_fields;
pub(crate) mod literal;
pub(crate) mod metadata;
mod opened;
mod passed;
mod positions;
pub(crate) mod project;
mod prune;
mod reader;
mod rows;
pub(crate) mod select;
mod width;

#[cfg(test)]
mod tests;

use tokio_util::sync::CancellationToken;

pub use error::ReadError;
pub use passed::KeyReader;
pub use reader::TaskReader;
pub(crate) use select::split_of;

/// Bounds of one reader.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Bytes of a batch, about, before compression: a batch of wide rows has fewer of them.
    pub batch_bytes: u64,
    /// Bytes of data files that are fetched and not yet decoded, about.
    pub fetch_bytes: u64,
    /// Bytes of the keys of equality deletes at most.
    pub equality_bytes: u64,
    /// Gives behind all other columns each row's position in its file, as longs. Not for a changelog, which has metadata
    /// columns of its own.
    pub positions: bool,
    /// Stops the reader, also while it waits for storage.
    pub cancel: CancellationToken,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            batch_rows: 8192,
            batch_bytes: 8 * 1024 * 1024,
            fetch_bytes: 16 * 1024 * 1024,
            equality_bytes: 64 * 1024 * 1024,
            positions: false,
            cancel: CancellationToken::new(),
        }
    }
}
