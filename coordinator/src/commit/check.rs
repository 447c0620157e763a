//! What must hold of the staged files before they may become a part of the target. Pure: the staged files in, what they add
//! to the target out, or the first promise that one of them breaks.

use std::collections::{HashMap, HashSet};
use std::fmt;

use iceberg::spec::{DataContentType, DataFileFormat, FormatVersion};
use iceferry_common::entry::{DamagedEntry, Facts};
use iceferry_common::model::{StagedContent, StagedFile, staging_folder};

use super::summary::Added;
use super::{CommitError, EpochCommit};

/// The promise that a staged file breaks.
#[derive(Debug, thiserror::Error)]
pub enum StagedProblem {
    /// Its name is not one of this run and epoch.
    #[error("it is not of this run and epoch, whose files begin with {0}")]
    NotOfEpoch(String),
    /// It is for the coordinator alone.
    #[error("it is none that a table can have")]
    NeverCommitted,
    /// It is there more than once, and is not a Puffin file of several vectors.
    #[error("it was handed in twice")]
    Twice,
    /// Its manifest entry is none.
    #[error("its manifest entry is not readable: {0}")]
    Unreadable(DamagedEntry),
    /// Its manifest entry says something else than the staged file.
    #[error("its manifest entry has {what} {found}, not {expected}")]
    Contradiction {
        /// Of what.
        what: &'static str,
        /// What the entry says.
        found: String,
        /// What the staged file says, or what its content asks for.
        expected: String,
    },
    /// Equality fields belong to equality deletes.
    #[error("equality fields belong to equality deletes, and to them alone")]
    EqualityFields,
    /// A row id that somebody else gave.
    #[error("it has a first row id, which the commit assigns")]
    FirstRowId,
    /// Deletion vectors came with format version 3.
    #[error(
        "it is a deletion vector, which a target of format version {0} cannot have; position delete files can be there"
    )]
    VectorTooEarly(FormatVersion),
    /// Position delete files went with format version 3.
    #[error(
        "it is a position delete file, which a target of format version {0} may not get; deletion vectors can be there"
    )]
    PositionsTooLate(FormatVersion),
    /// A vector is of a data file.
    #[error("it is a deletion vector and does not say of which data file")]
    VectorOfNothing,
    /// Its data file is not a part of this commit.
    #[error("it deletes rows of {0}, which is not a data file of this very epoch")]
    ForeignDataFile(String),
    /// A data file has one vector at most.
    #[error("it has a second deletion vector of data file {0}, which can have one only")]
    SecondVector(String),
    /// More dead rows than there are rows.
    #[error("it deletes {deleted} rows of {data_file}, which has {rows}")]
    TooManyDeleted {
        /// Rows that it deletes.
        deleted: u64,
        /// The data file.
        data_file: String,
        /// Rows of the data file.
        rows: u64,
    },
    /// A place in a Puffin file that cannot be.
    #[error("its deletion vector is at offset {offset:?} with {size:?} bytes, in a file of {file_bytes} bytes")]
    VectorPlace {
        /// Where it begins.
        offset: Option<i64>,
        /// Its bytes.
        size: Option<i64>,
        /// Bytes of the whole file.
        file_bytes: u64,
    },
    /// Two vectors in one place.
    #[error("it has two deletion vectors at offset {0}")]
    SamePlace(i64),
    /// A place of a vector at a file that is none.
    #[error("it has a content offset or size, which belong to deletion vectors alone")]
    PlaceWithoutVector,
    /// A reference at a file that can have none.
    #[error("it refers to a data file, which position deletes alone do")]
    StrangeReference,
}

/// Checks all staged files of an epoch; each is read once. Gives what they add.
///
/// # Errors
/// [`CommitError::Staged`] names the first file that breaks a promise.
pub(super) fn check_staged(commit: &EpochCommit, version: FormatVersion) -> Result<Added, CommitError> {
    let mut names = Names::new(commit, version);
    let mut references = References::new(commit);
    let mut added = Added::default();
    for file in &*commit.staged {
        let broken = |problem| CommitError::Staged { location: file.location.clone(), epoch: commit.epoch, problem };
        if let Some(problem) = names.problem(file) {
            return Err(broken(problem));
        }
        let facts = Facts::read(&file.data_file).map_err(|damaged| broken(StagedProblem::Unreadable(damaged)))?;
        if let Some(problem) = contradiction(&facts, file).or_else(|| references.problem(&facts)) {
            return Err(broken(problem));
        }
        added.add(&facts);
    }
    Ok(added)
}

/// What can be told without reading an entry: each file once, and each of this very run and epoch, and none that the
/// target's format version does not allow.
struct Names<'a> {
    version: FormatVersion,
    /// How all names begin.
    start: String,
    seen: HashMap<&'a str, StagedContent>,
}

impl<'a> Names<'a> {
    fn new(commit: &'a EpochCommit, version: FormatVersion) -> Self {
        let folder = staging_folder(&commit.data_location, &commit.job, &commit.run);
        let start = format!("{folder}/{:06}-", commit.epoch.0);
        Self { version, start, seen: HashMap::with_capacity(commit.staged.len()) }
    }

    fn problem(&mut self, file: &'a StagedFile) -> Option<StagedProblem> {
        let is_ours = file.location.strip_prefix(&self.start).is_some_and(|name| !name.contains('/'));
        let is_v3 = self.version >= FormatVersion::V3;
        let before = self.seen.insert(file.location.as_str(), file.content);
        let is_vector = file.content == StagedContent::DeletionVector;
        if !is_ours {
            Some(StagedProblem::NotOfEpoch(self.start.clone()))
        } else if !file.content.is_committed() {
            Some(StagedProblem::NeverCommitted)
        } else if before.is_some_and(|before| !is_vector || before != StagedContent::DeletionVector) {
            Some(StagedProblem::Twice)
        } else if is_vector && !is_v3 {
            Some(StagedProblem::VectorTooEarly(self.version))
        } else if file.content == StagedContent::PositionDeletes && is_v3 {
            Some(StagedProblem::PositionsTooLate(self.version))
        } else {
            None
        }
    }
}

/// Where the entry does not say what the staged file says, or what its content asks for.
fn contradiction(facts: &Facts<'_>, file: &StagedFile) -> Option<StagedProblem> {
    let (content, format) = match file.content {
        StagedContent::EqualityDeletes => (DataContentType::EqualityDeletes, DataFileFormat::Parquet),
        StagedContent::PositionDeletes => (DataContentType::PositionDeletes, DataFileFormat::Parquet),
        StagedContent::DeletionVector => (DataContentType::PositionDeletes, DataFileFormat::Puffin),
        // What is never committed was refused before.
        _ => (DataContentType::Data, DataFileFormat::Parquet),
    };
    let has_place = facts.content_offset.is_some() || facts.content_size_bytes.is_some();
    let differ = |what, found: &dyn fmt::Display, expected: &dyn fmt::Display| {
        Some(StagedProblem::Contradiction { what, found: found.to_string(), expected: expected.to_string() })
    };
    if facts.location != file.location {
        differ("location", &facts.location, &file.location)
    } else if facts.content != content {
        differ("content", &content_name(facts.content), &content_name(content))
    } else if facts.format != format {
        differ("format", &facts.format, &format)
    } else if facts.record_count != file.record_count {
        differ("record count", &facts.record_count, &file.record_count)
    } else if facts.size_bytes != file.size_bytes {
        differ("size", &facts.size_bytes, &file.size_bytes)
    } else if (facts.equality_fields > 0) != (content == DataContentType::EqualityDeletes) {
        Some(StagedProblem::EqualityFields)
    } else if facts.first_row_id.is_some() {
        Some(StagedProblem::FirstRowId)
    } else if has_place && !facts.is_vector() {
        Some(StagedProblem::PlaceWithoutVector)
    } else if facts.referenced_data_file.is_some() && content != DataContentType::PositionDeletes {
        Some(StagedProblem::StrangeReference)
    } else {
        None
    }
}

fn content_name(content: DataContentType) -> &'static str {
    match content {
        DataContentType::Data => "data",
        DataContentType::EqualityDeletes => "equality deletes",
        DataContentType::PositionDeletes => "position deletes",
    }
}

/// The data files that position deletes of a commit may be of, and what was found of them.
struct References<'a> {
    /// Rows of each data file, by its location; empty where nobody asks.
    rows: HashMap<&'a str, u64>,
    with_vector: HashSet<&'a str>,
    places: HashSet<(&'a str, i64)>,
}

impl<'a> References<'a> {
    fn new(commit: &'a EpochCommit) -> Self {
        let is_positions =
            |file: &StagedFile| matches!(file.content, StagedContent::PositionDeletes | StagedContent::DeletionVector);
        let has_positions = commit.staged.iter().any(is_positions);
        let data = commit.staged.iter().filter(|file| has_positions && file.content == StagedContent::Data);
        Self {
            rows: data.map(|file| (file.location.as_str(), file.record_count)).collect(),
            with_vector: HashSet::new(),
            places: HashSet::new(),
        }
    }

    /// What is wrong with the data file that a file deletes from, or with the place of its vector.
    fn problem(&mut self, facts: &Facts<'a>) -> Option<StagedProblem> {
        let Some(data_file) = facts.referenced_data_file else {
            return facts.is_vector().then_some(StagedProblem::VectorOfNothing);
        };
        let Some(rows) = self.rows.get(data_file).copied() else {
            return Some(StagedProblem::ForeignDataFile(data_file.to_owned()));
        };
        if !facts.is_vector() {
            return None;
        }
        if facts.record_count > rows {
            let (deleted, data_file) = (facts.record_count, data_file.to_owned());
            return Some(StagedProblem::TooManyDeleted { deleted, data_file, rows });
        }
        let Some(offset) = place(facts) else {
            let (offset, size) = (facts.content_offset, facts.content_size_bytes);
            return Some(StagedProblem::VectorPlace { offset, size, file_bytes: facts.size_bytes });
        };
        if !self.places.insert((facts.location, offset)) {
            return Some(StagedProblem::SamePlace(offset));
        }
        (!self.with_vector.insert(data_file)).then(|| StagedProblem::SecondVector(data_file.to_owned()))
    }
}

/// Where a vector begins, if it lies within its file.
fn place(facts: &Facts<'_>) -> Option<i64> {
    let (offset, size) = facts.content_offset.zip(facts.content_size_bytes)?;
    let end = u64::try_from(offset.checked_add(size)?).ok()?;
    (offset >= 0 && size > 0 && end <= facts.size_bytes).then_some(offset)
}
