//! The `source` block: the table to read, and from where to where.

use std::fmt;

use super::block::{Block, Text, alternatives};
use super::error::{Report, shown};
use super::keys::SOURCE;
use super::secret::CatalogProperties;
use super::table_name::TableName;
use super::timestamp::{self, End};
use super::yaml::Node;
use crate::filter::Filter;
use crate::model::{DuplicateKeys, MetadataColumn, SnapshotId};

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    /// The table.
    pub table: TableName,
    /// Its catalog.
    pub catalog_properties: CatalogProperties,
    /// Where the job starts and ends.
    pub bounds: Bounds,
    /// Whether each snapshot's changes count or the difference of the range's ends; by the target's mode when absent.
    pub changes: Option<Changes>,
    /// What to do when several rows of a snapshot's deletes or inserts have one key; by the target's mode when absent.
    pub duplicate_keys: Option<DuplicateKeys>,
    /// Columns that tell a row before and after an update, each once, in the file's order. Empty when the file names none:
    /// the table's identifier fields do then.
    pub identifier_columns: Vec<String>,
    /// Which columns are carried.
    pub projection: ColumnChoice,
    /// Metadata columns to carry beside the rows, each once, in the file's order.
    pub metadata_columns: Vec<MetadataColumn>,
    /// Which rows count; all without one.
    pub filter: Option<Filter>,
    /// Whose history is followed; the main branch's when the file says nothing.
    pub followed: FollowedRef,
    /// What to do when the target holds a snapshot that is no longer in that history.
    pub on_rollback: OnRollback,
}

/// The reference whose history a job follows. Other branches and staged snapshots are no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowedRef {
    /// A branch, which moves.
    Branch(String),
    /// A tag, which stays.
    Tag(String),
}

impl FollowedRef {
    /// The branch that every table has.
    pub const MAIN: &'static str = "main";

    /// The reference's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Branch(name) | Self::Tag(name) => name,
        }
    }
}

impl Default for FollowedRef {
    fn default() -> Self {
        Self::Branch(Self::MAIN.to_owned())
    }
}

impl fmt::Display for FollowedRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch {name}"),
            Self::Tag(name) => write!(f, "tag {name}"),
        }
    }
}

/// Which of a table's columns are carried, by name; a path of names, joined by dots, is a field inside a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ColumnChoice {
    /// All of them.
    #[default]
    All,
    /// These and no others.
    Keep(Vec<String>),
    /// All but these.
    Drop(Vec<String>),
}

/// What to do when the source was rolled back, or its reference set elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnRollback {
    /// End with an error.
    #[default]
    Fail,
    /// Apply the difference between what the target holds and where the source is now.
    Resync,
}

/// Where a job starts and ends, as the file says it; which snapshots these are is known when the table is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// With none, the job goes on from the target's checkpoint, or begins with [`StartingStrategy::Initial`].
    pub start: Option<StartBound>,
    /// With none, the job ends at the newest snapshot of the history that it follows.
    pub end: Option<EndBound>,
}

/// What of a range counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// The changes of each snapshot, one after the other.
    PerSnapshot,
    /// The difference of the two ends.
    Net,
}

const CHANGES: &[(&str, Changes)] = &[("net", Changes::Net), ("per_snapshot", Changes::PerSnapshot)];

const DUPLICATE_KEYS: &[(&str, DuplicateKeys)] = &[("fail", DuplicateKeys::Fail), ("pair", DuplicateKeys::Pair)];

/// Where a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartBound {
    /// With the changes of this snapshot.
    FromSnapshot(SnapshotId),
    /// With the changes that follow this snapshot, its own left out.
    AfterSnapshot(SnapshotId),
    /// With the first snapshot that was committed at this time or later, in milliseconds since 1970.
    FromTimestamp(i64),
    /// As the strategy says.
    Strategy(StartingStrategy),
}

/// Where a job starts when no snapshot or time is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartingStrategy {
    /// With the whole of the table's state, then its changes.
    Initial,
    /// With the changes of the oldest snapshot.
    Earliest,
    /// With the changes of the newest snapshot.
    Latest,
}

/// Where a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndBound {
    /// With the changes of this snapshot.
    ToSnapshot(SnapshotId),
    /// With the last snapshot that was committed at this time or earlier, in milliseconds since 1970.
    ToTimestamp(i64),
}

/// Reads the block. `None` when something was reported.
pub(super) fn read(node: Node, report: &mut Report) -> Option<SourceSettings> {
    let mut block = Block::open("source", SOURCE, node, report)?;
    block.require("table", "name the table to read as namespace.table");
    block.require("catalog_properties", "describe the table's catalog, with its type first");
    let table = table(&mut block);
    let catalog_properties = catalog_properties(&mut block);
    let bounds = bounds(&mut block);
    polling(&mut block);
    let projection = projection(&mut block);
    let filter = filter(&mut block);
    let changes = block.word("changes", CHANGES);
    let duplicate_keys = block.word("duplicate_keys", DUPLICATE_KEYS);
    let identifier_columns = block.names("identifier_columns", "columns");
    let metadata_columns = metadata_columns(&mut block);
    let followed = followed(&mut block);
    let on_rollback = block.word("on_rollback", ON_ROLLBACK);
    history(&mut block);
    Some(SourceSettings {
        table: table?,
        catalog_properties: catalog_properties?,
        bounds: bounds?,
        changes,
        duplicate_keys,
        identifier_columns: identifier_columns.unwrap_or_default(),
        projection,
        metadata_columns,
        filter,
        followed,
        on_rollback: on_rollback.unwrap_or_default(),
    })
}

fn table(block: &mut Block<'_>) -> Option<TableName> {
    let name = table_name(block)?;
    if name.is_template() {
        block.problem("table", "has braces: only the target's table may be a template");
        return None;
    }
    Some(name)
}

/// The block's table, which may be a template.
pub(super) fn table_name(block: &mut Block<'_>) -> Option<TableName> {
    let text = block.text("table", "a table as namespace.table")?;
    match text.value.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            block.problem("table", format!("'{}' {error}", text.shown));
            None
        }
    }
}

/// The block's catalog.
pub(super) fn catalog_properties(block: &mut Block<'_>) -> Option<CatalogProperties> {
    let properties = block.properties("catalog_properties")?;
    Some(properties.into_iter().map(|(key, text)| (key, text.value)).collect())
}

const STRATEGIES: &[(&str, StartingStrategy)] = &[
    ("initial", StartingStrategy::Initial),
    ("earliest", StartingStrategy::Earliest),
    ("latest", StartingStrategy::Latest),
];

fn bounds(block: &mut Block<'_>) -> Option<Bounds> {
    let from_snapshot = aliased(block, "from_snapshot", "start_snapshot_id", snapshot_id);
    let from_timestamp = aliased(block, "from_timestamp", "start_timestamp", |b, key| moment(b, key, End::Start));
    let after_snapshot = snapshot_id(block, "after_snapshot");
    let strategy = block.word("starting_strategy", STRATEGIES);
    let to_snapshot = aliased(block, "to_snapshot", "end_snapshot_id", snapshot_id);
    let to_timestamp = aliased(block, "to_timestamp", "end_timestamp", |b, key| moment(b, key, End::End));

    // A key and its alias are one; that they agree is seen above.
    let once = |key: &'static str, alias: &'static str, block: &Block<'_>| if block.has(key) { key } else { alias };
    let starts = [
        once("from_snapshot", "start_snapshot_id", block),
        once("from_timestamp", "start_timestamp", block),
        "after_snapshot",
        "starting_strategy",
    ];
    let ends = [once("to_snapshot", "end_snapshot_id", block), once("to_timestamp", "end_timestamp", block)];
    block.exclusive(&starts);
    block.exclusive(&ends);
    if let (Some(from), Some(to)) = (&from_timestamp, &to_timestamp)
        && from.value > to.value
    {
        let message = format!("starts later than it ends: from {} to {}", from.shown, to.shown);
        block.block_problem(message);
    }

    let start = from_snapshot
        .map(|given| StartBound::FromSnapshot(given.value))
        .or(after_snapshot.map(|given| StartBound::AfterSnapshot(given.value)))
        .or(from_timestamp.map(|given| StartBound::FromTimestamp(given.value)))
        .or(strategy.map(StartBound::Strategy));
    let end = to_snapshot
        .map(|given| EndBound::ToSnapshot(given.value))
        .or(to_timestamp.map(|given| EndBound::ToTimestamp(given.value)));
    Some(Bounds { start, end })
}

/// A value with how it was written.
struct Given<T> {
    value: T,
    shown: String,
}

/// The value of `key` or of its alias. Both may be given when they say the same.
fn aliased<T: PartialEq>(
    block: &mut Block<'_>,
    key: &str,
    alias: &str,
    read: impl Fn(&mut Block<'_>, &str) -> Option<Given<T>>,
) -> Option<Given<T>> {
    match (read(block, key), read(block, alias)) {
        (Some(one), Some(other)) if one.value != other.value => {
            let message = format!("is another name of {key}, and differs from it: {} and {}", other.shown, one.shown);
            block.problem(alias, message);
            Some(one)
        }
        (one, other) => one.or(other),
    }
}

fn snapshot_id(block: &mut Block<'_>, key: &str) -> Option<Given<SnapshotId>> {
    const WANTED: &str = "the id of a snapshot, a whole number";
    let Text { value, shown } = block.scalar(key, WANTED)?;
    match value.trim().parse::<i64>() {
        Ok(-1) => block.problem(key, "-1 stands for no snapshot: leave the key out"),
        Ok(id) if id >= 0 => return Some(Given { value: SnapshotId(id), shown }),
        Ok(_) => block.problem(key, format!("{shown} is not the id of a snapshot: ids are not negative")),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
            block.problem(key, format!("{shown} is not the id of a snapshot: ids are at most {}", i64::MAX));
        }
        Err(_) => block.problem(key, format!("wants {WANTED}, not '{shown}'")),
    }
    None
}

fn moment(block: &mut Block<'_>, key: &str, end: End) -> Option<Given<i64>> {
    let Text { value, shown } = block.scalar(key, timestamp::WANTED)?;
    match timestamp::parse(&value, &shown, end) {
        Ok(value) => Some(Given { value, shown }),
        Err(message) => {
            block.problem(key, message);
            None
        }
    }
}

fn polling(block: &mut Block<'_>) {
    let streaming = block.flag("streaming");
    if streaming == Some(true) {
        block.value_not_yet("streaming", "true");
    }
    block.whole("poll_interval_seconds", 1, "a whole number of seconds, 1 or more");
    if block.has("poll_interval_seconds") && (streaming == Some(false) || !block.has("streaming")) {
        block.problem("poll_interval_seconds", "is of use only with streaming: true");
    }
    block.not_yet("poll_interval_seconds");
}

fn projection(block: &mut Block<'_>) -> ColumnChoice {
    block.exclusive(&["keep", "drop"]);
    let keep = block.names("keep", "columns");
    let drop = block.names("drop", "columns");
    match (keep, drop) {
        (Some(names), _) => ColumnChoice::Keep(names),
        (None, Some(names)) => ColumnChoice::Drop(names),
        (None, None) => ColumnChoice::All,
    }
}

/// The condition, if it is well formed. Whether the table has its columns is for those who open it.
fn filter(block: &mut Block<'_>) -> Option<Filter> {
    let text = block.text("filter", "a condition")?;
    // Not the text: it may hold what must not be shown.
    Filter::parse(&text.value).map_err(|error| block.problem("filter", error.to_string())).ok()
}

/// Metadata columns by their names. What the table has to have for them is for those who open it.
fn metadata_columns(block: &mut Block<'_>) -> Vec<MetadataColumn> {
    let names = block.names("include_metadata_columns", "metadata columns").unwrap_or_default();
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        match name.parse::<MetadataColumn>() {
            Ok(column) => columns.push(column),
            Err(_) if name == "_change_type" => {
                block.problem("include_metadata_columns", "_change_type is asked for by target.change_type_column");
            }
            Err(_) => {
                let known: Vec<&str> = MetadataColumn::ALL.iter().map(|column| column.name()).collect();
                let message = format!("knows no '{}', only {}", shown(&name), alternatives(&known));
                block.problem("include_metadata_columns", message);
            }
        }
    }
    columns
}

const ON_ROLLBACK: &[(&str, OnRollback)] = &[("fail", OnRollback::Fail), ("resync", OnRollback::Resync)];

fn followed(block: &mut Block<'_>) -> FollowedRef {
    block.exclusive(&["branch", "tag"]);
    let branch = block.text("branch", "the name of a branch");
    let tag = block.text("tag", "the name of a tag");
    let branch = branch.map(|text| FollowedRef::Branch(text.value));
    branch.or(tag.map(|text| FollowedRef::Tag(text.value))).unwrap_or_default()
}

fn history(block: &mut Block<'_>) {
    // The word that each key has when it is left out comes first, and is what this version does.
    for (key, done, later) in [("on_gap", "fail", "resync")] {
        if block.word(key, &[(done, false), (later, true)]) == Some(true) {
            block.value_not_yet(key, later);
        }
    }
}
