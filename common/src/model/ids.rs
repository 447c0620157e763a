//! Identifiers. Each is a type of its own, so that none is taken for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// A snapshot of an Iceberg table, source or target.
    SnapshotId(i64)
);
number_id!(
    /// The part of a range that becomes one target snapshot; counted from 0 within a run.
    EpochId(u64)
);
number_id!(
    /// A scan task; counted from 0 within its epoch.
    TaskId(u64)
);
number_id!(
    /// One try at a task, counted from 0. It is part of every staged path, so two tries never write the same file.
    Attempt(u32)
);
number_id!(
    /// A worker's right to one attempt; never given twice within a run.
    LeaseId(u64)
);
number_id!(
    /// The number of a coordinator's leadership over a job; a later one is higher.
    Fence(u64)
);

/// A worker's own name for itself: unique among the workers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub String);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of a job: a UUID of version 7, so that runs sort by their start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl RunId {
    /// A new run, unlike any other.
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().simple().to_string())
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a job: it is part of staged paths and of the target's checkpoint.
///
/// Letters, digits, `-`, `_` and `.`, at most 128 of them, the first a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

/// A job name that cannot be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "job name {0:?} is not usable: take letters, digits, '-', '_' and '.', at most 128, the first a letter or a digit"
)]
pub struct JobNameError(String);

impl JobName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let well_formed = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
            && text.len() <= 128
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(JobNameError(text.to_owned())) }
    }
}

impl TryFrom<String> for JobName {
    type Error = JobNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_name_never_leaves_its_folder() {
        for good in ["orders", "a.b-c_d", "9lives"] {
            assert!(good.parse::<JobName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "-a", "é", &"x".repeat(129)] {
            assert!(bad.parse::<JobName>().is_err(), "{bad}");
        }
    }
}
