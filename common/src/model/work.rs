//! What a worker does with the rows of a scan task.

/// What a worker does with the rows of a scan task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// They are staged for the target.
    Stage,
    /// They are counted and hashed, to be compared with the rows of another table.
    Digest(DigestWork),
    /// A few of them are shown to a person.
    Show(ShowWork),
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
