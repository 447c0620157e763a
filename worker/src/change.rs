//! What flows from read over tag to stage.

use arrow::array::RecordBatch;

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// A row that came.
    Insert,
    /// A row that went.
    Delete,
    /// A row as it was before an update.
    UpdateBefore,
    /// The same row after it.
    UpdateAfter,
}

impl Change {
    /// The name that it has in a changelog.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Delete => "DELETE",
            Self::UpdateBefore => "UPDATE_BEFORE",
            Self::UpdateAfter => "UPDATE_AFTER",
        }
    }

    /// Whether the row is there after it, not before.
    pub fn comes(self) -> bool {
        matches!(self, Self::Insert | Self::UpdateAfter)
    }
}

/// Which columns a batch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Columns {
    /// All columns of the read schema, in its order.
    All,
    /// The key columns alone, in the order of the key: all that a delete in the target needs.
    Key,
}

/// Rows of one change type.
#[derive(Debug, Clone)]
pub struct ChangeBatch {
    /// What happened to the rows.
    pub change: Change,
    /// Which columns are there.
    pub columns: Columns,
    /// The rows. Field names and types are those of the read schema as Arrow has them; never empty. With
    /// [`Columns::All`] metadata columns may stand behind those of the read schema.
    pub rows: RecordBatch,
}
