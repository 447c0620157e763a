//! Logs. Lines go to standard error, so that standard output stays for results.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::fault::{Class, Classified};

/// The environment variable that sets what is logged, in place of the level.
const VARIABLE: &str = "ICEFERRY_LOG";

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is to be logged is not understood.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is none.
    #[error("{given:?} is not a log level: take error, warn, info, debug, trace or off")]
    Level {
        /// What was given.
        given: String,
    },
    /// The environment variable is no list of modules and levels.
    #[error("{VARIABLE} wants a level, or modules with levels such as iceferry_coordinator::plan=debug: {problem}")]
    Variable {
        /// What is wrong with it.
        problem: String,
    },
}

impl Classified for TelemetryError {
    fn class(&self) -> Class {
        Class::Config
    }
}

/// Starts logging at `level`, which the environment variable `ICEFERRY_LOG` overrides (for example
/// `iceferry_coordinator::plan=debug`). A second call is ignored.
///
/// # Errors
/// When the level or the variable is not understood: logs that silently stay away are missed when they are needed.
pub fn start(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    let variable = std::env::var(VARIABLE).ok().filter(|directives| !directives.trim().is_empty());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(variable.as_deref(), level)?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started already");
    }
    Ok(())
}

/// The variable's directives, or else the level.
fn filter(variable: Option<&str>, level: &str) -> Result<EnvFilter, TelemetryError> {
    if let Some(directives) = variable {
        let parsed = EnvFilter::try_new(directives);
        return parsed.map_err(|error| TelemetryError::Variable { problem: error.to_string() });
    }
    // EnvFilter would take an unknown word for the name of a module.
    let level: LevelFilter = level.parse().map_err(|_| TelemetryError::Level { given: level.to_owned() })?;
    Ok(EnvFilter::default().add_directive(level.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_said() {
        for (variable, level, shown) in [
            (None, "info", "info"),
            (None, "OFF", "off"),
            (Some("iceferry_worker=trace,warn"), "info", "iceferry_worker=trace,warn"),
        ] {
            assert_eq!(filter(variable, level).unwrap().to_string(), shown);
        }
        assert!(filter(None, "blah").unwrap_err().to_string().contains("\"blah\" is not a log level"));
        assert!(filter(Some("a=b=c"), "info").unwrap_err().to_string().starts_with(VARIABLE));
    }
}
