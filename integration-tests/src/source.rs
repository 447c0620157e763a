//! Source tables of any size, written by pyiceberg (`lab/source.py`).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Catalog, Lab};

/// How a source is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The newest data file is cut in half.
    Truncated,
    /// The newest manifest is removed.
    ManifestGone,
    /// An ORC data file is added.
    Orc,
    /// The schema gets a column of a type that few know.
    UnsupportedType,
}

/// A table `db.t` (id long, name string, amount decimal, day date) in an SQL catalog of its own.
#[derive(Debug, Clone, Deserialize)]
pub struct Source {
    uri: String,
    warehouse: PathBuf,
    /// Its name.
    pub table: String,
    /// Its current metadata file.
    pub metadata: PathBuf,
    full: Option<String>,
    /// Its current snapshot.
    pub last: String,
    #[serde(skip)]
    folder: PathBuf,
}

impl Source {
    /// `files` files of `rows` rows, an append each; then a delete and an append that gives some keys new values.
    pub fn make(lab: &Lab, folder: &Path, files: usize, rows: usize) -> Self {
        Self::run(lab, folder, &["make", "--files", &files.to_string(), "--rows", &rows.to_string()])
    }

    /// Three files of `rows` rows with many row groups and pages, a page index and bloom filters. Without field ids they
    /// have a name mapping.
    pub fn prunable(lab: &Lab, folder: &Path, rows: usize, with_ids: bool) -> Self {
        let rows = rows.to_string();
        let mut args = vec!["prunable", "--rows", rows.as_str()];
        if !with_ids {
            args.push("--without-ids");
        }
        Self::run(lab, folder, &args)
    }

    /// The same source with one more append.
    pub fn append(self, lab: &Lab, rows: usize) -> Self {
        let full = self.full;
        Self { full, ..Self::run(lab, &self.folder, &["append", "--rows", &rows.to_string()]) }
    }

    /// The same source, broken.
    pub fn damage(self, lab: &Lab, damage: Damage) -> Self {
        let kind = match damage {
            Damage::Truncated => "truncated",
            Damage::ManifestGone => "manifest-gone",
            Damage::Orc => "orc",
            Damage::UnsupportedType => "unsupported-type",
        };
        let full = self.full;
        Self { full, ..Self::run(lab, &self.folder, &["damage", kind]) }
    }

    /// The snapshot after the first appends.
    pub fn full(&self) -> &str {
        self.full.as_deref().expect("a source that was made knows it")
    }

    /// Sets a property of the table, in its current metadata file: nothing else of the table changes.
    pub fn set_property(&self, key: &str, value: &str) {
        let text = std::fs::read_to_string(&self.metadata).expect("the metadata file");
        let mut metadata: serde_json::Value = serde_json::from_str(&text).expect("metadata is JSON");
        metadata["properties"][key] = value.into();
        std::fs::write(&self.metadata, metadata.to_string()).expect("the metadata file is written");
    }

    /// The ids of its snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.metadata).expect("the metadata file");
        let metadata: serde_json::Value = serde_json::from_str(&text).expect("metadata is JSON");
        let snapshots = metadata["snapshots"].as_array().expect("snapshots");
        snapshots.iter().map(|snapshot| snapshot["snapshot-id"].to_string()).collect()
    }

    /// Its catalog.
    pub fn catalog(&self) -> Catalog {
        Catalog::Sql { uri: self.uri.clone(), warehouse: self.warehouse.clone() }
    }

    /// Gives row 11 of another table of the same columns another amount, takes row 7 away, and adds a row. The table is in
    /// an SQL catalog in `folder`.
    pub fn alter_other(lab: &Lab, folder: &Path, table: &str) {
        let mut command = lab.command("core", "source.py");
        command.arg("alter").arg(folder).args(["--table", table]);
        let done = command.output().expect("the virtualenv's Python starts");
        assert!(done.status.success(), "source.py alter: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn run(lab: &Lab, folder: &Path, args: &[&str]) -> Self {
        let mut command = lab.command("core", "source.py");
        command.arg(args[0]).arg(folder).args(&args[1..]);
        let done = command.output().expect("the virtualenv's Python starts");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "source.py {args:?}: {stderr}");
        let mut source: Self = serde_json::from_slice(&done.stdout).expect("source.py answers in JSON");
        source.folder = folder.to_owned();
        source
    }
}
