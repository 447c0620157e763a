//! What must hold of a staged file before it may become a part of the target. Pure: a staged file in, its manifest entry's
//! data file out, or the promise that it breaks.

use std::collections::{HashMap, HashSet};

use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, FormatVersion, StructType, TableMetadata,
    deserialize_data_file_from_json,
};
use iceferry_common::model::{StagedContent, StagedFile, staging_folder};

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
    /// Its data file is no data file.
    #[error("its data file is not readable: {0}")]
    Unreadable(#[source] Box<iceberg::Error>),
    /// Its data file says something else than the staged file.
    #[error("its data file has {what} {found}, not {expected}")]
    Contradiction {
        /// Of what.
        what: &'static str,
        /// What the data file says.
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

/// Checks what can be told without reading a data file: each file once, and each of this very run and epoch, and none that
/// the target's format version does not allow.
///
/// # Errors
/// [`CommitError::Staged`] names the first file that breaks this.
pub(super) fn check_locations(commit: &EpochCommit, version: FormatVersion) -> Result<(), CommitError> {
    let folder = staging_folder(&commit.data_location, &commit.job, &commit.run);
    let start = format!("{folder}/{:06}-", commit.epoch.0);
    let mut seen = HashMap::with_capacity(commit.staged.len());
    for file in &commit.staged {
        let is_ours = file.location.strip_prefix(&start).is_some_and(|name| !name.contains('/'));
        let is_v3 = version >= FormatVersion::V3;
        let before = seen.insert(file.location.as_str(), file.content);
        let is_vector = file.content == StagedContent::DeletionVector;
        let problem = if !is_ours {
            StagedProblem::NotOfEpoch(start.clone())
        } else if !file.content.is_committed() {
            StagedProblem::NeverCommitted
        } else if before.is_some_and(|before| !is_vector || before != StagedContent::DeletionVector) {
            StagedProblem::Twice
        } else if is_vector && !is_v3 {
            StagedProblem::VectorTooEarly(version)
        } else if file.content == StagedContent::PositionDeletes && is_v3 {
            StagedProblem::PositionsTooLate(version)
        } else {
            continue;
        };
        return Err(broken(commit, file, problem));
    }
    Ok(())
}

/// The manifest entry's data file; it must say what the staged file says.
///
/// # Errors
/// [`CommitError::Staged`].
pub(super) fn data_file(
    metadata: &TableMetadata,
    commit: &EpochCommit,
    file: &StagedFile,
) -> Result<DataFile, CommitError> {
    let spec = metadata.default_partition_spec_id();
    let unpartitioned = StructType::new(Vec::new());
    let parsed = deserialize_data_file_from_json(&file.data_file, spec, &unpartitioned, metadata.current_schema());
    let parsed = parsed.map_err(|error| broken(commit, file, StagedProblem::Unreadable(Box::new(error))))?;
    match contradiction(&parsed, file) {
        None => Ok(parsed),
        Some(problem) => Err(broken(commit, file, problem)),
    }
}

fn contradiction(parsed: &DataFile, file: &StagedFile) -> Option<StagedProblem> {
    let differs = |what, found: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
        let (found, expected) = (found.to_string(), expected.to_string());
        (found != expected).then_some(StagedProblem::Contradiction { what, found, expected })
    };
    let (content, format) = match file.content {
        StagedContent::EqualityDeletes => (DataContentType::EqualityDeletes, DataFileFormat::Parquet),
        StagedContent::PositionDeletes => (DataContentType::PositionDeletes, DataFileFormat::Parquet),
        StagedContent::DeletionVector => (DataContentType::PositionDeletes, DataFileFormat::Puffin),
        // What is never committed was refused before.
        _ => (DataContentType::Data, DataFileFormat::Parquet),
    };
    let has_key = parsed.equality_ids().is_some_and(|ids| !ids.is_empty());
    let is_vector = file.content == StagedContent::DeletionVector;
    let has_place = parsed.content_offset().is_some() || parsed.content_size_in_bytes().is_some();
    differs("location", &parsed.file_path(), &file.location)
        .or_else(|| differs("content", &content_name(parsed.content_type()), &content_name(content)))
        .or_else(|| differs("format", &parsed.file_format(), &format))
        .or_else(|| differs("record count", &parsed.record_count(), &file.record_count))
        .or_else(|| differs("size", &parsed.file_size_in_bytes(), &file.size_bytes))
        .or_else(|| (has_key != (content == DataContentType::EqualityDeletes)).then_some(StagedProblem::EqualityFields))
        .or_else(|| parsed.first_row_id().is_some().then_some(StagedProblem::FirstRowId))
        .or_else(|| (has_place && !is_vector).then_some(StagedProblem::PlaceWithoutVector))
        .or_else(|| {
            let may_refer = content == DataContentType::PositionDeletes;
            (parsed.referenced_data_file().is_some() && !may_refer).then_some(StagedProblem::StrangeReference)
        })
}

fn content_name(content: DataContentType) -> &'static str {
    match content {
        DataContentType::Data => "data",
        DataContentType::EqualityDeletes => "equality deletes",
        DataContentType::PositionDeletes => "position deletes",
    }
}

/// The data files that position deletes of a commit may be of, and what was found of them.
#[derive(Debug)]
pub(super) struct References<'a> {
    pub(super) commit: &'a EpochCommit,
    /// Rows of each data file, by its location; empty where nobody asks.
    rows: HashMap<&'a str, u64>,
    with_vector: HashSet<String>,
    places: HashSet<(&'a str, i64)>,
}

impl<'a> References<'a> {
    pub(super) fn new(commit: &'a EpochCommit) -> Self {
        let has_positions = commit.staged.iter().any(|file| is_positions(file.content));
        let data = commit.staged.iter().filter(|file| has_positions && file.content == StagedContent::Data);
        Self {
            commit,
            rows: data.map(|file| (file.location.as_str(), file.record_count)).collect(),
            with_vector: HashSet::new(),
            places: HashSet::new(),
        }
    }

    /// Takes in a file whose own words are right.
    ///
    /// # Errors
    /// [`CommitError::Staged`] when what it deletes is not of this commit, or has a vector already.
    pub(super) fn check(&mut self, file: &'a StagedFile, parsed: &DataFile) -> Result<(), CommitError> {
        if !is_positions(file.content) {
            return Ok(());
        }
        self.problem(file, parsed).map_or(Ok(()), |problem| Err(broken(self.commit, file, problem)))
    }

    fn problem(&mut self, file: &'a StagedFile, parsed: &DataFile) -> Option<StagedProblem> {
        let is_vector = file.content == StagedContent::DeletionVector;
        let data_file = match parsed.referenced_data_file() {
            Some(data_file) => data_file,
            None => return is_vector.then_some(StagedProblem::VectorOfNothing),
        };
        let deleted = parsed.record_count();
        match self.rows.get(data_file.as_str()) {
            None => return Some(StagedProblem::ForeignDataFile(data_file)),
            Some(rows) if is_vector && deleted > *rows => {
                return Some(StagedProblem::TooManyDeleted { deleted, data_file, rows: *rows });
            }
            Some(_) => {}
        }
        if !is_vector {
            return None;
        }
        let (offset, size, file_bytes) =
            (parsed.content_offset(), parsed.content_size_in_bytes(), parsed.file_size_in_bytes());
        let end = offset.zip(size).and_then(|(offset, size)| {
            let is_place = offset >= 0 && size > 0;
            is_place.then(|| offset.checked_add(size)).flatten().and_then(|end| u64::try_from(end).ok())
        });
        let Some(at) = offset.filter(|_| end.is_some_and(|end| end <= file_bytes)) else {
            return Some(StagedProblem::VectorPlace { offset, size, file_bytes });
        };
        if !self.places.insert((&file.location, at)) {
            return Some(StagedProblem::SamePlace(at));
        }
        match self.with_vector.insert(data_file.clone()) {
            true => None,
            false => Some(StagedProblem::SecondVector(data_file)),
        }
    }
}

fn is_positions(content: StagedContent) -> bool {
    matches!(content, StagedContent::PositionDeletes | StagedContent::DeletionVector)
}

fn broken(commit: &EpochCommit, file: &StagedFile, problem: StagedProblem) -> CommitError {
    CommitError::Staged { location: file.location.clone(), epoch: commit.epoch, problem }
}
