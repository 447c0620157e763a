//! An engine that is not ours, kept running for many reads (`lab/reader.py`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Lab;

/// Spark needs a dozen seconds to start on a busy machine; the others answer in milliseconds.
const LIMIT: Duration = Duration::from_secs(180);

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Misreads null keys in equality deletes, and their partition scope.
    DuckDb,
    /// Refuses equality deletes; reads null lists and maps as empty ones.
    PyIceberg,
    /// Reads null lists and maps as empty ones.
    Sidequery,
    /// Iceberg-Java in Spark; has no time type.
    Spark,
}

impl Engine {
    fn venv(self) -> &'static str {
        match self {
            Self::DuckDb | Self::PyIceberg => "core",
            Self::Sidequery => "side",
            Self::Spark => "spark",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::PyIceberg => "pyiceberg",
            Self::Sidequery => "sidequery",
            Self::Spark => "spark",
        }
    }
}

/// A count and a sum over rows: equal for equal bags of rows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Digest {
    /// Number of rows.
    pub rows: u64,
    /// Sum of their hashes.
    pub digest: String,
}

/// A file that a table's manifests hold.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedFile {
    /// Its path, without a scheme.
    pub path: String,
    /// `data`, `position-deletes` or `equality-deletes`.
    pub content: String,
    /// Whether the current snapshot shows it.
    pub current: bool,
    /// Rows in it.
    pub records: u64,
    /// The snapshots that show it.
    pub snapshots: Vec<String>,
}

/// A reader process; killed when dropped.
#[derive(Debug)]
pub struct Reader {
    child: std::process::Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    engine: Engine,
}

impl Reader {
    /// Starts the process. The engine itself starts with the first read.
    pub fn start(lab: &Lab, engine: Engine) -> Self {
        let mut command = lab.command(engine.venv(), "reader.py");
        command.arg("--venv").arg(engine.venv()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A JVM talks a lot; its words are worth having only when something fails, and then the answer carries them.
        command.stderr(if engine == Engine::Spark { Stdio::null() } else { Stdio::inherit() });
        let mut child = command.spawn().expect("the virtualenv's Python starts");
        let requests = child.stdin.take().expect("stdin is piped");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, requests, answers, engine }
    }

    /// The table's rows as sorted canonical JSON lines: of its current snapshot, or of one by id.
    ///
    /// # Errors
    /// The engine's own message, when it cannot read the table.
    pub fn try_rows(&mut self, metadata: &Path, snapshot: Option<&str>) -> Result<Vec<String>, String> {
        lines(self.ask(&json!({
            "op": "rows", "engine": self.engine.name(), "metadata": metadata, "snapshot": snapshot,
        }))?)
    }

    /// The current rows that a condition is true of, as the engine itself filters them.
    pub fn rows_where(&mut self, metadata: &Path, condition: &str) -> Vec<String> {
        let name = self.engine.name();
        self.ask(&json!({"op": "rows", "engine": name, "metadata": metadata, "where": condition}))
            .and_then(lines)
            .unwrap_or_else(|error| panic!("{name} reads {} where {condition}: {error}", metadata.display()))
    }

    /// The current rows; the test fails when the engine cannot read them.
    pub fn rows(&mut self, metadata: &Path) -> Vec<String> {
        self.try_rows(metadata, None)
            .unwrap_or_else(|error| panic!("{:?} reads {}: {error}", self.engine, metadata.display()))
    }

    /// The current rows of a table that pyiceberg finds in a catalog of these properties.
    pub fn rows_in_catalog(&mut self, catalog: &Value, table: &str) -> Vec<String> {
        self.ask(&json!({"op": "rows", "engine": self.engine.name(), "catalog": catalog, "table": table}))
            .and_then(lines)
            .unwrap_or_else(|error| panic!("{:?} opens {table} in {catalog}: {error}", self.engine))
    }

    /// Number of rows and their digest; DuckDB's process only.
    pub fn digest(&mut self, metadata: &Path) -> Digest {
        self.digest_at(metadata, None)
    }

    /// The same at a snapshot.
    pub fn digest_at(&mut self, metadata: &Path, snapshot: Option<&str>) -> Digest {
        self.ask(&json!({"op": "digest", "metadata": metadata, "snapshot": snapshot}))
            .and_then(|answer| serde_json::from_value(answer).map_err(|error| error.to_string()))
            .unwrap_or_else(|error| panic!("digest {}: {error}", metadata.display()))
    }

    /// All files in the manifests of all snapshots; the process of DuckDB or pyiceberg only.
    pub fn files(&mut self, metadata: &Path) -> Vec<ListedFile> {
        self.ask(&json!({"op": "files", "metadata": metadata}))
            .and_then(|answer| serde_json::from_value(answer["files"].clone()).map_err(|error| error.to_string()))
            .unwrap_or_else(|error| panic!("list files of {}: {error}", metadata.display()))
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.requests, "{request}").map_err(|error| format!("the reader is gone: {error}"))?;
        let answer = self.answers.recv_timeout(LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no answer within {LIMIT:?}"),
            RecvTimeoutError::Disconnected => "the reader ended".to_owned(),
        })?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| format!("{error} in {answer}"))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(mut answer: Value) -> Result<Vec<String>, String> {
    serde_json::from_value(answer["lines"].take()).map_err(|error| error.to_string())
}
