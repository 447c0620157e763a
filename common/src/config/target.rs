//! The `target` block: the table to write, and how.

use std::collections::BTreeMap;

use super::block::{Block, Text, alternatives};
use super::error::{Report, shown};
use super::keys::TARGET;
use super::secret::CatalogProperties;
use super::source::{catalog_properties, table_name};
use super::table_name::TableName;
use super::yaml::Node;
use crate::model::TargetMode;

/// What to write, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSettings {
    /// The table.
    pub table: TableName,
    /// Its catalog.
    pub catalog_properties: CatalogProperties,
    /// What a change becomes; `merge-on-read` when the file says nothing.
    pub mode: TargetMode,
    /// The columns of the key, each once, in the file's order. Empty when the file names none: the key is then the
    /// table's identifier fields.
    pub equality_columns: Vec<String>,
    /// The column of a changelog that holds the type of each change; `append` alone has it. Without it a target takes
    /// INSERTs alone.
    pub change_type_column: Option<String>,
    /// Properties of a table that is made.
    pub table_properties: BTreeMap<String, String>,
    /// What rows are deleted with.
    pub delete_format: DeleteFormat,
    /// The format version of a table that is made, 2 or 3; the source's when absent, 2 at least.
    pub format_version: Option<u8>,
    /// How rows that only move are carried.
    pub copy: CopyMode,
}

/// What rows of the target are deleted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeleteFormat {
    /// As costs less.
    #[default]
    Auto,
    /// Equality deletes that hold the key alone.
    Equality,
}

/// How rows that only move from source to target are carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Encoded pages as they are where that is right, decoded rows elsewhere.
    #[default]
    Auto,
    /// Always through decoded rows.
    Decode,
}

const MODES: &[(&str, TargetMode)] = &[("merge-on-read", TargetMode::MergeOnRead), ("append", TargetMode::Append)];
const COPY_MODES: &[(&str, CopyMode)] = &[("auto", CopyMode::Auto), ("decode", CopyMode::Decode)];
/// `None` is for a later version.
const DELETE_FORMATS: &[(&str, Option<DeleteFormat>)] =
    &[("auto", Some(DeleteFormat::Auto)), ("equality", Some(DeleteFormat::Equality)), ("position", None)];
/// `none` refuses a source whose schema moved away from the target's; the others, for a later version, add columns, or
/// follow every change.
const SCHEMA_EVOLUTIONS: &[(&str, Option<&str>)] =
    &[("none", None), ("add_columns", Some("add_columns")), ("full", Some("full"))];
/// The names that Beam gives to kinds of change.
const CHANGE_TYPES: [&str; 4] = ["INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"];
/// Keys that mean something only where rows are deleted by key.
const MERGE_ON_READ_KEYS: [&str; 3] = ["equality_columns", "delete_format", "upsert"];

/// Reads the block. `None` when something was reported.
pub(super) fn read(node: Node, report: &mut Report) -> Option<TargetSettings> {
    let mut block = Block::open("target", TARGET, node, report)?;
    block.require("table", "name the table to write as namespace.table");
    block.require("catalog_properties", "describe the table's catalog, with its type first");
    let table = table(&mut block);
    let catalog_properties = catalog_properties(&mut block);
    let mode = block.word("mode", MODES);
    let equality_columns = block.names("equality_columns", "columns");
    let delete_format = block.word("delete_format", DELETE_FORMATS);
    if delete_format == Some(None) {
        block.value_not_yet("delete_format", "position");
    }
    if mode == Some(TargetMode::Append) {
        merge_on_read_only(&mut block);
    }
    let format_version = format_version(&mut block);
    let table_properties = table_properties(&mut block);
    let copy = block.word("copy", COPY_MODES);
    if let Some(Some(word)) = block.word("schema_evolution", SCHEMA_EVOLUTIONS) {
        block.value_not_yet("schema_evolution", word);
    }
    let change_type_column = change_feed(&mut block, mode.unwrap_or(TargetMode::MergeOnRead));
    layout(&mut block);
    Some(TargetSettings {
        table: table?,
        catalog_properties: catalog_properties?,
        mode: mode.unwrap_or(TargetMode::MergeOnRead),
        equality_columns: equality_columns.unwrap_or_default(),
        change_type_column,
        table_properties,
        delete_format: delete_format.flatten().unwrap_or_default(),
        format_version,
        copy: copy.unwrap_or_default(),
    })
}

fn table(block: &mut Block<'_>) -> Option<TableName> {
    let name = table_name(block)?;
    if name.is_template() {
        block.value_not_yet("table", "a template with {column}");
        return None;
    }
    Some(name)
}

fn merge_on_read_only(block: &mut Block<'_>) {
    let given: Vec<&str> = MERGE_ON_READ_KEYS.into_iter().filter(|key| block.has(key)).collect();
    if !given.is_empty() {
        let message =
            format!("append deletes no rows and takes no {}: leave out, or write merge-on-read", alternatives(&given));
        block.problem("mode", message);
    }
}

fn format_version(block: &mut Block<'_>) -> Option<u8> {
    let Text { value, shown } = block.scalar("format_version", "2 or 3")?;
    match value.trim() {
        "2" => return Some(2),
        "3" => return Some(3),
        "1" => block.problem("format_version", "1 has no row-level deletes, which the target needs: take 2 or 3"),
        _ => block.problem("format_version", format!("wants 2 or 3, not {shown}")),
    }
    None
}

fn table_properties(block: &mut Block<'_>) -> BTreeMap<String, String> {
    let properties = block.properties("table_properties").unwrap_or_default();
    for key in properties.keys() {
        if key == "format-version" {
            block.problem("table_properties", "format-version has a key of its own: target.format_version");
        } else if key.starts_with(super::RESERVED_PREFIX) {
            let message = format!("{} is reserved: the checkpoint is kept under such names", shown(key));
            block.problem("table_properties", message);
        }
    }
    properties.into_iter().map(|(key, text)| (key, text.value)).collect()
}

/// Keys for a source that is itself a feed of changes, and for a target that is one. Gives the column for change types
/// of a target that is one.
fn change_feed(block: &mut Block<'_>, mode: TargetMode) -> Option<String> {
    let change_type_column = block.text("change_type_column", "a column").map(|text| text.value);
    if mode == TargetMode::MergeOnRead {
        block.not_yet("change_type_column");
    }
    block.text("sequence_number_column", "a column");
    block.not_yet("sequence_number_column");
    if block.flag("upsert") == Some(true) {
        block.value_not_yet("upsert", "true");
    }
    if block.has("change_type_map") && !block.has("change_type_column") {
        block.problem("change_type_map", "is of use only with change_type_column");
    }
    for (name, text) in block.properties("change_type_map").unwrap_or_default() {
        if !CHANGE_TYPES.iter().any(|kind| kind.eq_ignore_ascii_case(text.value.trim())) {
            let message = format!("'{}' wants {}, not '{}'", shown(&name), alternatives(&CHANGE_TYPES), text.shown);
            block.problem("change_type_map", message);
        }
    }
    block.not_yet("change_type_map");
    change_type_column
}

/// Keys for which columns the target has, and how its files are cut.
fn layout(block: &mut Block<'_>) {
    block.exclusive(&["keep", "drop", "only"]);
    for key in ["keep", "drop"] {
        block.names(key, "columns");
        block.not_yet(key);
    }
    block.text("only", "a column");
    block.not_yet("only");
    for (key, of) in [("partition_fields", "partition fields"), ("sort_fields", "sort fields")] {
        block.names(key, of);
        block.not_yet(key);
    }
    block.whole("triggering_frequency_seconds", 1, "a whole number of seconds, 1 or more");
    block.not_yet("triggering_frequency_seconds");
}
