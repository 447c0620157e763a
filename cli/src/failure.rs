//! How a command ends that did not succeed: one clear line, and an exit code.

use std::error::Error;
use std::process::ExitCode;

use iceferry_common::fault::{self, Class, Classified};
use serde_json::json;

use crate::args::Output;

/// What a person is told.
#[derive(Debug)]
pub(crate) struct Failure {
    class: Class,
    message: String,
}

impl Failure {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// The machine would not let us start.
    pub(crate) fn start(error: std::io::Error) -> Self {
        Self::new(Class::Exhausted, format!("start the async runtime: {error}"))
    }

    pub(crate) fn report(self, output: Output) -> ExitCode {
        let code = self.class.exit_code();
        match output {
            Output::Text => eprintln!("error: {}", self.message),
            Output::Json => {
                println!("{}", json!({"outcome": "failed", "class": self.class.as_str(), "error": self.message}));
                eprintln!("error: {}", self.message);
            }
        }
        ExitCode::from(code)
    }
}

impl<E: Classified + Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: error.class(), message: fault::chain(&error) }
    }
}
