//! The class of an error: what a caller would do about it, whichever room it comes from.

use std::fmt;

/// What a caller would do about an error. Each class is acted on differently; the message says the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The job file, a flag or an environment variable is wrong: a person changes it.
    Config,
    /// A type, format, operation or schema that is not carried: refused before anything is written.
    Refused,
    /// The source's history does not lead from the checkpoint to where it is to go.
    HistoryGap,
    /// Something that must be there is not: a table, a file, a snapshot.
    NotFound,
    /// The storage or catalog says no to who we are.
    Denied,
    /// Bytes that break their format's rules: the same again on every try.
    Corrupt,
    /// A passing fault: try again.
    Transient,
    /// Somebody else changed the table first: look, then try again on the new base.
    Conflict,
    /// Another coordinator took over: stop.
    Fenced,
    /// A commit's answer was lost and could not be settled: look at the target before anything else.
    CommitUnknown,
    /// The run was asked to stop.
    Interrupted,
    /// Memory or another bound that configuration sets does not suffice.
    Exhausted,
    /// A broken promise of our own code.
    Bug,
}

impl Class {
    /// Every class, for tables and tests.
    pub const ALL: [Self; 13] = [
        Self::Config,
        Self::Refused,
        Self::HistoryGap,
        Self::NotFound,
        Self::Denied,
        Self::Corrupt,
        Self::Transient,
        Self::Conflict,
        Self::Fenced,
        Self::CommitUnknown,
        Self::Interrupted,
        Self::Exhausted,
        Self::Bug,
    ];

    /// Whether the same call may succeed when it is simply made again.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Transient)
    }

    /// The process's exit code for a run that ends with this class. 0 is success; 1 is a failure with no better
    /// code; 6 is that of a comparison that found a difference.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Config => 2,
            Self::HistoryGap => 3,
            Self::Refused => 4,
            Self::CommitUnknown => 5,
            Self::NotFound => 7,
            Self::Denied => 8,
            Self::Corrupt => 9,
            Self::Fenced => 10,
            Self::Transient | Self::Conflict => 11,
            Self::Exhausted => 12,
            Self::Bug => 70,
            Self::Interrupted => 130,
        }
    }

    /// The class's name, as it stands in logs, JSON output and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Refused => "refused",
            Self::HistoryGap => "history-gap",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Corrupt => "corrupt",
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Fenced => "fenced",
            Self::CommitUnknown => "commit-unknown",
            Self::Interrupted => "interrupted",
            Self::Exhausted => "exhausted",
            Self::Bug => "bug",
        }
    }

    /// The class of this name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error that says its class. Every room's error enum answers to this.
pub trait Classified: std::error::Error {
    /// What a caller would do about it.
    fn class(&self) -> Class;
}

/// The error and its causes on one line, each cause once: what a person sees.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        // Some libraries print their cause in their own message; do not say it twice.
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_that_parses_back() {
        for class in Class::ALL {
            assert_eq!(Class::parse(class.as_str()), Some(class));
        }
    }

    #[test]
    fn no_class_exits_like_a_success_or_a_mismatch() {
        for class in Class::ALL {
            assert!(![0, 1, 6].contains(&class.exit_code()), "{class}");
        }
    }
}
