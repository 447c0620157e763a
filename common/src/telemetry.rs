//! Logs. Lines go to standard error, so that standard output stays for results.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging at `level`, which the environment variable `ICEFERRY_LOG` overrides (for example
/// `iceferry_coordinator::plan=debug`). A second call is ignored.
pub fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env("ICEFERRY_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started already");
    }
}
