//! What a changelog target wants of the changes beside their rows: their types, and the metadata columns that say where
//! each row was found and what made the change.

use std::fmt;
use std::str::FromStr;

use iceberg::spec::{PrimitiveType, SchemaRef, StructType, Type};

use super::{FileDifference, SnapshotId};

/// How an epoch's changes become rows of a changelog.
#[derive(Debug, Clone, PartialEq)]
pub struct Changelog {
    /// The source snapshot that made the changes, unless their file difference names another. See [`Self::commit_of`].
    pub commit: SourceCommit,
    /// Columns that the reader gives behind those of the read schema, in this order.
    pub metadata_columns: Vec<MetadataColumn>,
    /// The type of `_partition`: the fields of all specs of the source. Empty unless that column is among them.
    pub partition_type: StructType,
    /// What tells that a DELETE and an INSERT are an update.
    pub identity: Identity,
    /// What to do when several rows that changed have the same identity.
    pub duplicate_keys: DuplicateKeys,
    /// The columns that decide whether a DELETE and an INSERT are equal, where these are more than the read schema's: all
    /// of the source's, whatever of them is shown.
    pub compared_schema: Option<SchemaRef>,
    /// For each column of the write schema, where its values come from.
    pub columns: Vec<ColumnSource>,
}

impl Changelog {
    /// The source snapshot that made the changes of a file difference.
    pub fn commit_of(&self, difference: &FileDifference) -> SourceCommit {
        difference.commit.unwrap_or(self.commit)
    }
}

/// A snapshot of the source, as its changes name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceCommit {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// Its sequence number; 0 in a table of format version 1.
    pub sequence_number: i64,
    /// When it was committed, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its number among the snapshots whose changes the job carried, from 0.
    pub change_ordinal: i32,
}

/// What tells that a DELETE and an INSERT of one snapshot are one row before and after an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Nothing does: there are no updates, only DELETEs and INSERTs.
    None,
    /// Equal values in these columns, as field ids of the read schema; null equals null.
    Columns(Vec<i32>),
    /// The same `_row_id`, where both have one.
    RowId,
}

/// What to do when several rows of one change type in one snapshot have the same identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// Pair them in the order in which they are read; what is left over stays a DELETE or an INSERT.
    #[default]
    Pair,
    /// Refuse them by name.
    Fail,
}

/// Where the values of a column of the target come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnSource {
    /// The column of the read schema at this place.
    Read(usize),
    /// The metadata column at this place of [`Changelog::metadata_columns`].
    Metadata(usize),
    /// The type of the change: `INSERT`, `UPDATE_BEFORE`, `UPDATE_AFTER` or `DELETE`.
    ChangeType,
}

/// A column that no data file needs to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetadataColumn {
    /// The snapshot that made the change.
    CommitSnapshotId,
    /// Its sequence number.
    CommitSnapshotSequenceNumber,
    /// When it was committed.
    CommitTimestamp,
    /// Its number among the snapshots whose changes were carried.
    ChangeOrdinal,
    /// The data file that holds the row.
    File,
    /// The row's position in it.
    Pos,
    /// The row's id for its whole life (format version 3).
    RowId,
    /// The sequence number of the snapshot that last wrote the row's values (format version 3).
    LastUpdatedSequenceNumber,
    /// The partition spec of the data file.
    SpecId,
    /// The partition of the data file, with the fields of all specs.
    Partition,
}

impl MetadataColumn {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 10] = [
        Self::CommitSnapshotId,
        Self::CommitSnapshotSequenceNumber,
        Self::CommitTimestamp,
        Self::ChangeOrdinal,
        Self::File,
        Self::Pos,
        Self::RowId,
        Self::LastUpdatedSequenceNumber,
        Self::SpecId,
        Self::Partition,
    ];

    /// The name that it has in queries and in the target; Iceberg's, where Iceberg has the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::CommitSnapshotId => "_commit_snapshot_id",
            Self::CommitSnapshotSequenceNumber => "_commit_snapshot_sequence_number",
            Self::CommitTimestamp => "_commit_timestamp",
            Self::ChangeOrdinal => "_change_ordinal",
            Self::File => "_file",
            Self::Pos => "_pos",
            Self::RowId => "_row_id",
            Self::LastUpdatedSequenceNumber => "_last_updated_sequence_number",
            Self::SpecId => "_spec_id",
            Self::Partition => "_partition",
        }
    }

    /// Its type; `partition` is that of the partition column.
    pub fn field_type(self, partition: &StructType) -> Type {
        match self {
            Self::CommitSnapshotId
            | Self::CommitSnapshotSequenceNumber
            | Self::Pos
            | Self::RowId
            | Self::LastUpdatedSequenceNumber => Type::Primitive(PrimitiveType::Long),
            Self::CommitTimestamp => Type::Primitive(PrimitiveType::Timestamptz),
            Self::File => Type::Primitive(PrimitiveType::String),
            Self::ChangeOrdinal | Self::SpecId => Type::Primitive(PrimitiveType::Int),
            Self::Partition => Type::Struct(partition.clone()),
        }
    }

    /// Whether it tells of the snapshot that made a change.
    pub fn is_of_commit(self) -> bool {
        matches!(
            self,
            Self::CommitSnapshotId | Self::CommitSnapshotSequenceNumber | Self::CommitTimestamp | Self::ChangeOrdinal
        )
    }

    /// Whether only tables of format version 3 have it.
    pub fn is_lineage(self) -> bool {
        matches!(self, Self::RowId | Self::LastUpdatedSequenceNumber)
    }
}

impl fmt::Display for MetadataColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No metadata column has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no metadata column {0:?}")]
pub struct UnknownMetadataColumn(pub String);

impl FromStr for MetadataColumn {
    type Err = UnknownMetadataColumn;

    fn from_str(name: &str) -> Result<Self, UnknownMetadataColumn> {
        Self::ALL.into_iter().find(|column| column.name() == name).ok_or_else(|| UnknownMetadataColumn(name.to_owned()))
    }
}
