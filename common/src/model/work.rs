//! What a worker does with the rows of a scan task.

use super::{Constant, TaskId};

/// What a worker does with the rows of a scan task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// They are staged for the target.
    Stage,
    /// They are counted and hashed, to be compared with the rows of another table.
    Digest(DigestWork),
    /// A few of them are shown to a person.
    Show(ShowWork),
    /// They are exchanged: written by the hash of what rows that have to meet have in common. The task is a part of a group
    /// that is larger than a task may be.
    Exchange(ExchangeWork),
    /// The task has no file differences: rows of one bucket, which other tasks exchanged, are resolved and staged.
    Resolve(ResolveWork),
    /// All its files came, and are carried over as bytes where that gives what staging their rows would give; the rest of
    /// their rows is staged.
    Copy(CopyWork),
    /// The task has no file differences: the keys in its delete files, all of them equality deletes on the target's key,
    /// are staged as equality deletes of the target.
    PassDeletes(PassDeletesWork),
}

/// How rows are counted and hashed. Both tables of a comparison have it alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestWork {
    /// Places in the read schema of the columns that tell rows apart; without any, a row is told by all of its columns.
    pub key: Vec<u32>,
    /// Rows are counted in two to this power buckets; from 1 to [`Self::BUCKET_BITS_MAX`].
    pub bucket_bits: u8,
}

impl DigestWork {
    /// More buckets would cost more than they tell.
    pub const BUCKET_BITS_MAX: u8 = 16;
}

/// Which rows are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowWork {
    /// For each file difference of the task, positions of rows in its file, ascending.
    pub rows: Vec<Vec<u64>>,
}

/// How files are carried over as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWork {
    /// What the source's manifest says of the columns of each file difference's file; empty where it says nothing.
    pub metrics: Vec<Vec<ColumnMetrics>>,
    /// A row group of which more than so many rows in a hundred are dead is decoded.
    pub dead_percent_max: u8,
}

impl CopyWork {
    /// Dead rows in a hundred of a row group up to which copying it and deleting them pays.
    pub const DEAD_PERCENT_MAX: u8 = 30;
}

/// What a manifest says of a column of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnMetrics {
    /// Field id in the source table.
    pub field_id: i32,
    /// Values, nulls included.
    pub value_count: Option<u64>,
    /// Nulls.
    pub null_count: Option<u64>,
    /// NaNs.
    pub nan_count: Option<u64>,
    /// Lower bound, Iceberg single-value binary serialization in the column's type when the file was written.
    pub lower_bound: Option<Vec<u8>>,
    /// Upper bound, likewise.
    pub upper_bound: Option<Vec<u8>>,
}

/// How equality deletes go straight through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassDeletesWork {
    /// For each delete file of the task, what its partition says of key columns, by field ids of the read schema: keys
    /// with other values reach no row of the source. None for one that is global.
    pub constants: Vec<Vec<Constant>>,
}

/// A row as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShownRow {
    /// The data file, as its manifest names it.
    pub location: String,
    /// The row's position in it.
    pub position: u64,
    /// Its columns, in the order of the read schema.
    pub columns: Vec<ShownValue>,
}

/// A value as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShownValue {
    /// The value as text, cut if it is long.
    pub text: String,
    /// A hash of the whole value: two values whose texts are alike may differ.
    pub hash: u64,
}

/// A part of the exchange of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeWork {
    /// How many tasks exchange the rows of the group.
    pub tasks: u64,
    /// The number of the task that resolves the first bucket; those of the other buckets follow. It stands for the group.
    pub first_resolve: TaskId,
    /// How rows are hashed: all that take part in one exchange have to agree.
    pub hash_version: u32,
}

impl ExchangeWork {
    /// Bits of a hash that tell its bucket.
    pub const BUCKET_BITS: u32 = 6;
    /// Buckets of an exchange.
    pub const BUCKETS: u32 = 1 << Self::BUCKET_BITS;
    /// The way in which this version hashes rows. It changes whenever the same row may get another hash.
    pub const HASH_VERSION: u32 = 1;
}

/// A bucket of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveWork {
    /// The bucket.
    pub bucket: u32,
    /// The files that have rows of it, with its blocks alone: those of accepted attempts, in the order of their tasks.
    pub files: Vec<ExchangeFile>,
}

/// A file of rows that are exchanged: blocks, each a self-contained Arrow IPC stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeFile {
    /// Full location.
    pub location: String,
    /// Where its blocks lie. The file itself does not say.
    pub blocks: Vec<ExchangeBlock>,
}

/// Where a block lies, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeBlock {
    /// The bucket of all its rows.
    pub bucket: u32,
    /// The side of all its rows.
    pub side: ExchangeSide,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its rows.
    pub rows: u64,
    /// Memory that the rows take, about.
    pub memory_bytes: u64,
    /// The smallest hash of a row.
    pub hash_min: u64,
    /// The largest hash of a row.
    pub hash_max: u64,
}

/// A side of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExchangeSide {
    /// Rows that went.
    Went,
    /// Rows that came.
    Came,
}
