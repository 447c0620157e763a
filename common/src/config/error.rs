//! What can be wrong with a job file, and the report that gathers it while the file is read.

use std::fmt;

use crate::fault::{Class, Classified};

/// A job file that cannot be run as it stands. No message holds a catalog property's value or an environment
/// variable's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not YAML.
    #[error("it is not well-formed YAML: {problem}")]
    Syntax {
        /// Line in the text, counted from 1, when the parser knows it.
        line: Option<usize>,
        /// The parser's words, the place included.
        problem: String,
    },
    /// Keys or values are wrong: all that was found in one reading.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// The file is right, and asks for what this version does not do: every such key, with its value where the key has
    /// supported ones too.
    #[error("not supported yet: {}", .0.join(", "))]
    NotSupportedYet(Vec<String>),
}

impl Classified for ConfigError {
    fn class(&self) -> Class {
        match self {
            Self::Syntax { .. } | Self::Invalid(_) | Self::NotSupportedYet(_) => Class::Config,
        }
    }
}

/// One thing that is wrong with a job file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The full path of the key, such as `source.table`; empty for the file as a whole.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.key, self.message) }
    }
}

/// One problem is one line; several are a list under a line that counts them.
fn lines(problems: &[Problem]) -> String {
    match problems {
        [problem] => problem.to_string(),
        problems => {
            let mut text = format!("{} problems in the job file", problems.len());
            for problem in problems {
                text.push_str("\n  ");
                text.push_str(&problem.to_string());
            }
            text
        }
    }
}

/// Everything found while a file is read. Reading goes on after a problem, so that one run shows them all.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: Vec<Problem>,
    not_yet: Vec<String>,
    suggested: Vec<String>,
}

impl Report {
    /// Something is wrong with the key at `path`.
    pub(super) fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { key: path.into(), message: message.into() });
    }

    /// What the file asks for with this key is for a later version.
    pub(super) fn not_yet(&mut self, key: String) {
        self.not_yet.push(key);
    }

    /// The key at `path` was offered in place of an unknown one.
    pub(super) fn suggested(&mut self, path: String) {
        self.suggested.push(path);
    }

    /// Whether the key at `path` was offered in place of an unknown one. It is not called missing then: that line would
    /// say the same mistake again.
    pub(super) fn is_suggested(&self, path: &str) -> bool {
        self.suggested.iter().any(|suggested| suggested == path)
    }

    /// The value, if nothing speaks against it. What is wrong comes before what is not supported: a person repairs the
    /// one and must give up the other.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError::Invalid(self.problems));
        }
        if !self.not_yet.is_empty() {
            return Err(ConfigError::NotSupportedYet(self.not_yet));
        }
        value.ok_or_else(|| {
            ConfigError::Invalid(vec![Problem {
                key: String::new(),
                message: "the job file could not be read, and iceferry does not know why: please report this"
                    .to_owned(),
            }])
        })
    }
}

/// Characters of a name or value that a message shows at most: a mistake is recognised by its beginning.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// Text of the file for a message: on one line, and not longer than a person reads.
pub(super) fn shown(text: &str) -> String {
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN_CHARACTERS_MAX {
            line.push_str("...");
            break;
        }
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}
