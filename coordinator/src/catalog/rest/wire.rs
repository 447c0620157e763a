//! The bodies of requests and answers that are used.

use std::collections::{BTreeMap, HashMap};

use iceberg::spec::Schema;
use iceberg::{TableRequirement, TableUpdate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The server's configuration. Overrides win over what the user says, defaults do not.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) defaults: HashMap<String, Option<String>>,
    #[serde(default)]
    pub(super) overrides: HashMap<String, Option<String>>,
}

/// A table, loaded, created or committed. The metadata stays JSON until it was looked through.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Table {
    /// Missing for a table that is only staged.
    pub(super) metadata_location: Option<String>,
    pub(super) metadata: Value,
    /// Settings and secrets for the table's files.
    pub(super) config: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Debug, Serialize)]
pub(super) struct CreateNamespace<'a> {
    pub(super) namespace: &'a [String],
    pub(super) properties: HashMap<String, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CreateTable<'a> {
    pub(super) name: &'a str,
    pub(super) schema: &'a Schema,
    pub(super) stage_create: bool,
    pub(super) properties: HashMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Identifier<'a> {
    pub(super) namespace: &'a [String],
    pub(super) name: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct Commit<'a> {
    pub(super) identifier: Identifier<'a>,
    pub(super) requirements: &'a [TableRequirement],
    pub(super) updates: &'a [TableUpdate],
}

/// The specification's error body.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: ErrorWords,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorWords {
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
}
