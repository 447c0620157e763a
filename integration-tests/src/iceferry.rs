//! The `iceferry` binary, run from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::{Child, Output};

/// Far more than any run here needs, also on a busy machine in a debug build.
const LIMIT: Duration = Duration::from_secs(120);

/// The binary and where its job files go.
#[derive(Debug, Clone)]
pub struct Iceferry {
    binary: PathBuf,
}

/// A run that ended well.
#[derive(Debug)]
pub struct Finished {
    /// What it reported.
    pub report: Report,
    /// All that it said.
    pub output: Output,
}

/// The JSON object that a run prints at its end.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    /// The job's name.
    pub job: String,
    /// The run's id.
    pub run: String,
    /// `applied` or `nothing-to-do`.
    pub outcome: String,
    /// The epochs, in order.
    pub epochs: Vec<ReportEpoch>,
    /// The target.
    pub target: ReportTarget,
}

/// One epoch of a report.
#[derive(Debug, Clone, Deserialize)]
pub struct ReportEpoch {
    /// The source snapshot that the target held after it.
    pub source_snapshot_id: String,
    /// The snapshot that it became; none when it had no rows.
    pub target_snapshot_id: Option<String>,
    /// Tasks that it took.
    pub tasks: u64,
    /// Files that it added.
    pub files: u64,
    /// Rows that it moved.
    pub rows: ReportRows,
    /// Equality delete files whose keys went straight through.
    #[serde(default)]
    pub delete_files_passed: u64,
    /// Keys in these.
    #[serde(default)]
    pub deletes_passed: u64,
}

/// Row counters of an epoch.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ReportRows {
    /// Rows that came.
    pub inserted: u64,
    /// Rows that went.
    pub deleted: u64,
    /// Bytes that were asked of the source.
    pub bytes_read: u64,
    /// Data files that were carried over as they are.
    pub files_copied: u64,
    /// Data files whose pages were carried over.
    pub files_spliced: u64,
    /// Data files whose rows were decoded.
    pub files_decoded: u64,
}

/// The target of a report.
#[derive(Debug, Clone, Deserialize)]
pub struct ReportTarget {
    /// Its name.
    pub table: String,
    /// Its metadata file at the end of the run.
    pub metadata_location: String,
}

impl Report {
    /// The path of the target's metadata file.
    pub fn metadata(&self) -> PathBuf {
        let location = &self.target.metadata_location;
        match location.strip_prefix("file:") {
            Some(rest) => Path::new("/").join(rest.trim_start_matches('/')),
            None => PathBuf::from(location),
        }
    }

    /// Rows that went, over all epochs.
    pub fn deleted(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.rows.deleted).sum()
    }

    /// Data files by the way that they took: copied, spliced, decoded.
    pub fn ways(&self) -> [u64; 3] {
        let of = |count: fn(&ReportRows) -> u64| self.epochs.iter().map(|epoch| count(&epoch.rows)).sum();
        [of(|rows| rows.files_copied), of(|rows| rows.files_spliced), of(|rows| rows.files_decoded)]
    }

    /// Whether it moved anything.
    pub fn is_nothing_to_do(&self) -> bool {
        match self.outcome.as_str() {
            "nothing-to-do" => true,
            "applied" => false,
            other => panic!("no such outcome: {other}"),
        }
    }
}

impl Iceferry {
    /// The binary that `ICEFERRY_BIN` names, else the one beside the test's own.
    pub fn find() -> Self {
        let binary = std::env::var_os("ICEFERRY_BIN").map(PathBuf::from).unwrap_or_else(|| {
            let test = std::env::current_exe().expect("a test knows its executable");
            let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
            profile.join("iceferry")
        });
        assert!(binary.exists(), "{} is not there: cargo build --bin iceferry", binary.display());
        Self { binary }
    }

    /// The path of the binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A command with these arguments, in an environment that the user's settings do not reach.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("ICEFERRY_") || text == "RUST_LOG" {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Runs it to its end.
    pub fn output(&self, args: &[&str]) -> Output {
        Child::start(&mut self.command(args)).finish(LIMIT)
    }

    /// A run of a job file that is still going.
    pub fn start_run(&self, job: &Path) -> Child {
        Child::start(&mut self.command(&["run", text(job), "--output", "json"]))
    }

    /// Runs a job file, well or not.
    pub fn try_run(&self, job: &Path) -> Output {
        self.start_run(job).finish(LIMIT)
    }

    /// Runs a job file; the test fails when the run does.
    pub fn run(&self, job: &Path) -> Finished {
        Finished::of(self.try_run(job))
    }
}

impl Finished {
    /// The report in what a run printed; the test fails when the run failed.
    pub fn of(output: Output) -> Self {
        let said = || format!("stdout: {}\nstderr: {}", output.stdout, output.stderr);
        assert_eq!(output.code, Some(0), "the run failed\n{}", said());
        let last = output.stdout.lines().rev().find(|line| !line.trim().is_empty());
        // One object: on a line of its own, or all of the output.
        let report = last.and_then(|line| serde_json::from_str(line).ok());
        let report = report.or_else(|| serde_json::from_str(&output.stdout).ok());
        let report = report.unwrap_or_else(|| panic!("no report\n{}", said()));
        Self { report, output }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(code: i32, stdout: &str) -> Output {
        Output { code: Some(code), stdout: stdout.to_owned(), stderr: String::new() }
    }

    const REPORT: &str = r#"{"job": "j", "run": "r", "outcome": "applied", "target": {"table": "a.t",
        "metadata_location": "file:///lake/v1.metadata.json"}, "epochs": [{"epoch": 0, "source_snapshot_id": "1",
        "target_snapshot_id": null, "tasks": 1, "files": 0, "rows": {"inserted": 1, "deleted": 2, "carried_over": 0, "read": 3,
        "bytes_read": 5, "files_copied": 0, "files_spliced": 1, "files_decoded": 2}}]}"#;

    #[test]
    fn a_report_is_found_on_the_last_line_or_in_all_of_the_output() {
        let line = format!("copied 3 files\n{}\n\n", REPORT.replace('\n', " "));
        for stdout in [REPORT, &line] {
            let report = Finished::of(output(0, stdout)).report;
            assert_eq!(report.metadata(), Path::new("/lake/v1.metadata.json"));
            assert_eq!(report.deleted(), 2);
            assert_eq!(report.ways(), [0, 1, 2]);
            assert!(!report.is_nothing_to_do());
        }
    }

    #[test]
    #[should_panic(expected = "the run failed")]
    fn a_run_that_failed_has_no_report() {
        Finished::of(output(7, REPORT));
    }

    #[test]
    #[should_panic(expected = "no report")]
    fn a_run_that_says_nothing_has_no_report() {
        Finished::of(output(0, "done\n"));
    }
}
