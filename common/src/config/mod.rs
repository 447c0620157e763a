//! The job file: one YAML document that says which table to keep equal to which.
//!
//! [`JobFile::parse`] takes its text and gives plain data, or every problem that it found, each with the path of its
//! key. It contacts nothing: whether tables, columns and snapshots exist is for those who open the catalogs. The keys
//! are those of Apache Beam's managed Iceberg I/O where Beam has them; all of them are checked, and those that this
//! version does not act on are refused by name, never ignored.

mod block;
mod environment;
mod error;
mod keys;
mod mirror;
mod secret;
mod source;
mod table_name;
mod target;
#[cfg(test)]
mod tests;
mod timestamp;
mod yaml;

pub use error::{ConfigError, Problem};
pub use mirror::fingerprint;
pub use secret::{CatalogProperties, SHOWN_KEYS, Secret, without_password};
pub use source::{
    Bounds, Changes, ColumnChoice, EndBound, FollowedRef, OnRollback, SourceSettings, StartBound, StartingStrategy,
};
pub use table_name::{TableName, TableNameError};
pub use target::{CopyMode, DeleteFormat, TargetSettings};

use crate::model::{DuplicateKeys, JobName, MetadataColumn, TargetMode};
use block::Block;
use error::Report;
use yaml::Node;

/// Table properties and snapshot summary entries that begin so are iceferry's own; a job file cannot set them.
pub const RESERVED_PREFIX: &str = "iceferry.";

/// A job as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// The job's name, under which its checkpoint is kept.
    pub name: JobName,
    /// What to read.
    pub source: SourceSettings,
    /// What to write, and how.
    pub target: TargetSettings,
}

impl JobFile {
    /// Reads a job file. `env` gives the value of an environment variable, for `${NAME}` in the file.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`] when the text is not YAML; [`ConfigError::Invalid`] with all that is wrong; only when
    /// nothing is, [`ConfigError::NotSupportedYet`] with all that this version does not do.
    pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut report = Report::default();
        let mut root = yaml::read(text)?;
        environment::substitute(&mut root, "", env, &mut report);
        let job = read(root, &mut report);
        report.finish(job)
    }

    /// What of a range counts: as the file says, else each snapshot for `append` and the net for a mirror.
    pub fn changes(&self) -> Changes {
        self.source.changes.unwrap_or(match self.target.mode {
            TargetMode::Append => Changes::PerSnapshot,
            TargetMode::MergeOnRead => Changes::Net,
        })
    }

    /// Whether the source is the target as well. Nothing can be carried then; two snapshots of the table can be compared.
    pub fn reads_what_it_writes(&self) -> bool {
        self.source.table == self.target.table && self.source.catalog_properties == self.target.catalog_properties
    }

    /// A hash of what makes one mirror another: the source's name, the key columns, the projection, the filter and the
    /// mode, as the file gives them. A target that was written under another hash may hold rows that this job would
    /// never touch. 32 hex digits, the same in every version for a file that says the same.
    ///
    /// What the file leaves to the tables, the source's uuid and its identifier fields, is not in it.
    pub fn mirror_hash(&self) -> String {
        mirror::hash(self)
    }
}

/// Reads the whole file. `None` when something was reported.
fn read(root: Node, report: &mut Report) -> Option<JobFile> {
    if root == Node::Null {
        report.problem("", "the job file is empty");
        return None;
    }
    let mut top = Block::open("", keys::TOP, root, report)?;
    top.require("name", "name the job, it is how its progress is found again");
    top.require("source", "describe the table to read");
    top.require("target", "describe the table to write");
    let name = name(&mut top);
    let source = top.take("source");
    let target = top.take("target");
    let source = source.and_then(|node| source::read(node, report));
    let target = target.and_then(|node| target::read(node, report));
    let job = JobFile { name: name?, source: source?, target: target? };
    check_together(&job, report);
    Some(job)
}

/// What one block says that makes sense only with the other.
fn check_together(job: &JobFile, report: &mut Report) {
    if job.target.mode == TargetMode::Append {
        let name = job.target.change_type_column.as_deref();
        let taken = |column: &&MetadataColumn| name.is_some_and(|name| name.eq_ignore_ascii_case(column.name()));
        if let Some(column) = MetadataColumn::ALL.iter().find(taken) {
            let message = format!("{column} is the name of a metadata column: choose another, such as _change_type");
            report.problem("target.change_type_column", message);
        }
        return;
    }
    for (key, is_given) in [
        ("source.include_metadata_columns", !job.source.metadata_columns.is_empty()),
        ("source.identifier_columns", !job.source.identifier_columns.is_empty()),
        ("source.duplicate_keys: pair", job.source.duplicate_keys == Some(DuplicateKeys::Pair)),
    ] {
        if is_given {
            report.problem(
                key,
                "is of use only with target.mode: append; a mirror has the source's columns and its own key",
            );
        }
    }
}

fn name(top: &mut Block<'_>) -> Option<JobName> {
    let text = top.text("name", "a job name")?;
    let name = text.value.parse().ok();
    if name.is_none() {
        let message = format!(
            "wants letters, digits, '-', '_' and '.', at most 128, the first a letter or a digit, not '{}'",
            text.shown
        );
        top.problem("name", message);
    }
    name
}
