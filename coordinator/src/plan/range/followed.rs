//! The branch or tag that a job follows, among those that the table has.

use std::collections::BTreeMap;

use iceberg::spec::{SnapshotRef, TableMetadata};
use iceferry_common::config::FollowedRef;
use serde::Deserialize;

use super::RangeError;

/// References of a kind that a message lists; a table may have thousands of tags.
const LISTED_MAX: usize = 20;

/// The newest snapshot of what is followed; `None` when that is main and the table has no snapshot on it.
///
/// # Errors
/// [`RangeError::UnknownRef`] when there is no such branch or tag; one of the other kind is not taken for it.
pub(super) fn head<'a>(
    table: &'a TableMetadata,
    followed: &FollowedRef,
) -> Result<Option<&'a SnapshotRef>, RangeError> {
    if *followed == FollowedRef::default() {
        return Ok(table.current_snapshot());
    }
    let known = kinds(table).map_err(|problem| RangeError::RefsUnreadable { followed: followed.clone(), problem })?;
    let wanted = match followed {
        FollowedRef::Branch(_) => Kind::Branch,
        FollowedRef::Tag(_) => Kind::Tag,
    };
    // Metadata with a reference to a snapshot that is not there does not parse.
    match known.get(followed.name()) {
        Some(kind) if *kind == wanted => Ok(table.snapshot_for_ref(followed.name())),
        _ => Err(RangeError::UnknownRef { followed: followed.clone(), known: listed(&known) }),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Branch,
    Tag,
}

/// The table's references by name. The metadata type gives a reference's snapshot alone and does not tell branches from
/// tags, or which names there are; its JSON does. A table of version 1 has main alone.
fn kinds(table: &TableMetadata) -> Result<BTreeMap<String, Kind>, String> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        refs: BTreeMap<String, Reference>,
    }
    #[derive(Deserialize)]
    struct Reference {
        #[serde(rename = "type")]
        kind: Kind,
    }
    let json = serde_json::to_string(table).map_err(|error| error.to_string())?;
    let metadata: Metadata = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let mut kinds: BTreeMap<String, Kind> =
        metadata.refs.into_iter().map(|(name, reference)| (name, reference.kind)).collect();
    // Main is there in any table, though metadata need not name it.
    kinds.entry(FollowedRef::MAIN.to_owned()).or_insert(Kind::Branch);
    Ok(kinds)
}

fn listed(known: &BTreeMap<String, Kind>) -> String {
    let of_kind = |wanted: Kind, words: &str| {
        let names: Vec<&str> =
            known.iter().filter(|(_, kind)| **kind == wanted).map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            return format!("no {words}");
        }
        let rest = match names.len().saturating_sub(LISTED_MAX) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        format!("the {words} {}{rest}", names[..names.len().min(LISTED_MAX)].join(", "))
    };
    format!("{} and {}", of_kind(Kind::Branch, "branches"), of_kind(Kind::Tag, "tags"))
}
