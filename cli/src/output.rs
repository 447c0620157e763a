//! Results on standard output.

use iceferry_coordinator::job::{self, EpochOutline, EpochReport, Outline, RunReport};
use iceferry_coordinator::plan::PlanSummary;
use iceferry_coordinator::verify::{Outcome, RowReport, SideReport, ValueReport, VerifyReport};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::args::Output;
use crate::failure::Failure;
use iceferry_common::fault::Class;

/// Prints a result as one JSON object or as `text` has it.
pub(crate) fn print<T: Serialize>(result: &T, output: Output, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    match output {
        Output::Text => print!("{}", text(result)),
        Output::Json => {
            let json = serde_json::to_string(result);
            println!("{}", json.map_err(|error| Failure::new(Class::Bug, format!("print the result: {error}")))?);
        }
    }
    Ok(())
}

/// What a run did.
pub(crate) fn run(report: &RunReport) -> String {
    let mut text = String::new();
    if report.files_cleaned_up > 0 {
        text += &format!("removed {} that an earlier run left\n", counted(report.files_cleaned_up, "file"));
    }
    for epoch in &report.epochs {
        text += &format!("{}\n", self::epoch(epoch));
    }
    match report.outcome {
        job::Outcome::NothingToDo => {
            text += &format!("nothing to do: {}\n", report.reason.as_deref().unwrap_or("the target is up to date"));
        }
        job::Outcome::Applied => {
            let target = report.target.as_ref().map_or("the target", |target| target.table.as_str());
            let snapshots = report.epochs.iter().filter(|epoch| epoch.target_snapshot_id.is_some()).count();
            text += &format!("done: {target} has {snapshots} new {}\n", plural(snapshots, "snapshot"));
        }
    }
    text
}

/// What an epoch brought.
pub(crate) fn epoch(epoch: &EpochReport) -> String {
    let rows = &epoch.rows;
    if epoch.files == 0 {
        return format!("source snapshot {}: no rows to carry, checkpoint moved", epoch.source_snapshot_id);
    }
    let mut text = format!(
        "source snapshot {}: {} inserted, {} deleted, {} ({})",
        epoch.source_snapshot_id,
        counted(rows.inserted, "row"),
        HumanCount(rows.deleted),
        counted(epoch.files as u64, "file"),
        HumanBytes(rows.bytes_written),
    );
    let ways: Vec<String> =
        [(rows.files_copied, "copied"), (rows.files_spliced, "spliced"), (rows.files_decoded, "decoded")]
            .into_iter()
            .filter(|(files, _)| *files > 0)
            .map(|(files, way)| format!("{} {way}", HumanCount(files)))
            .collect();
    if !ways.is_empty() {
        text += &format!("; source files: {}", ways.join(", "));
    }
    if epoch.delete_files_passed > 0 {
        text += &format!(
            "; {} of {} went straight through",
            counted(epoch.deletes_passed, "delete"),
            counted(epoch.delete_files_passed, "file")
        );
    }
    text
}

/// What a run would do.
pub(crate) fn outline(outline: &Outline) -> String {
    let mut text = format!("{}: {} -> {}\n", outline.job, outline.source, outline.target);
    let held = outline.checkpoint.as_deref().map_or("nothing yet".to_owned(), |id| format!("source snapshot {id}"));
    text += &format!("target holds    {held}\ntarget table    {}\n", outline.target_change);
    for note in &outline.notes {
        text += &format!("note            {note}\n");
    }
    if let Some(nothing) = &outline.nothing {
        text += &format!("nothing to do   {nothing}\n");
    }
    for (number, epoch) in outline.epochs.iter().enumerate() {
        text += &epoch_outline(number, epoch);
    }
    text
}

fn epoch_outline(number: usize, epoch: &EpochOutline) -> String {
    let before = epoch.before.as_deref().unwrap_or("nothing");
    let head = format!("epoch {number}         {before} -> {}\n", epoch.through);
    if epoch.rewrites_only {
        return format!("{head}                files were rewritten only: no rows to carry\n");
    }
    let plan = &epoch.plan;
    format!(
        "{head}                {} added, {} removed, {} with other deletes; {}\n                \
         {} in {}, at most {} to look at\n{}                {} opened, {} skipped, {} read{}\n",
        counted(plan.files_added, "file"),
        HumanCount(plan.files_removed),
        HumanCount(plan.files_changed),
        counted(plan.delete_files, "delete file"),
        HumanBytes(plan.data_bytes),
        counted(plan.tasks, "task"),
        counted(plan.records_added + plan.records_removed + plan.records_changed, "row"),
        ways(plan),
        counted(plan.manifests_opened, "manifest"),
        HumanCount(plan.manifests_skipped),
        HumanBytes(plan.metadata_bytes_read),
        match plan.files_filtered {
            0 => String::new(),
            files => format!("; {} left out by the filter", counted(files, "file")),
        },
    )
}

/// Which way the files of an epoch would take, one line for each way and reason.
fn ways(plan: &PlanSummary) -> String {
    let mut text = String::new();
    if plan.files_as_bytes > 0 {
        text += &format!(
            "                {} as bytes, where their footers allow it\n",
            counted(plan.files_as_bytes, "file")
        );
    }
    for (reason, files) in &plan.files_decoded {
        text += &format!("                {} decoded: {reason}\n", counted(*files, "file"));
    }
    if plan.delete_files_passed > 0 {
        text += &format!(
            "                {} straight through, with {}\n",
            counted(plan.delete_files_passed, "delete file"),
            counted(plan.delete_records_passed, "key")
        );
    }
    text
}

/// What a comparison found.
pub(crate) fn verify(report: &VerifyReport) -> String {
    let side = |name: &str, side: &SideReport| {
        let snapshot = side.snapshot_id.as_ref().map_or("no snapshot".to_owned(), |id| format!("snapshot {id}"));
        format!("{name:<16}{} at {snapshot}: {}\n", side.table, counted(side.rows.unwrap_or_default(), "row"))
    };
    let mut text = side("source", &report.source) + &side("target", &report.target);
    match report.outcome {
        Outcome::Equal => text += "equal           both have the same rows\n",
        Outcome::Different => {
            text += &format!(
                "different       {} missing in the target, {} surplus, {} with other values ({} of {})\n",
                counted(report.missing, "row"),
                HumanCount(report.surplus),
                HumanCount(report.changed),
                HumanCount(report.buckets_different),
                counted(report.buckets, "bucket"),
            );
            report.rows.iter().for_each(|row| text += &different_row(row));
            if report.more > 0 {
                text += &format!("... and {} more\n", HumanCount(report.more));
            }
        }
    }
    text += &format!("read            {}, {}", counted(report.rows_read, "row"), HumanBytes(report.bytes_read));
    if report.rows_read_again > 0 {
        let rows = counted(report.rows_read_again, "row");
        text += &format!("; of these again {rows}, {}", HumanBytes(report.bytes_read_again));
    }
    text + "\n"
}

fn different_row(row: &RowReport) -> String {
    let one =
        |value: &ValueReport| format!("{}={}", value.column, shown(value.source.as_ref().or(value.target.as_ref())));
    let both = |value: &ValueReport| {
        let (source, target) = (shown(value.source.as_ref()), shown(value.target.as_ref()));
        format!("{}: {source} in the source, {target} in the target", value.column)
    };
    let join = |values: &[ValueReport], text: &dyn Fn(&ValueReport) -> String, between: &str| {
        values.iter().map(text).collect::<Vec<_>>().join(between)
    };
    let values = match row.difference {
        "changed" => join(&row.columns, &both, "; "),
        _ => join(&row.columns, &one, ", "),
    };
    match row.key.is_empty() {
        true => format!("{:<16}{values}\n", row.difference),
        false => format!("{:<16}{}  ({values})\n", row.difference, join(&row.key, &one, ", ")),
    }
}

/// A value on one line, whatever is in it: tables may hold what a terminal would obey.
fn shown(value: Option<&String>) -> String {
    let Some(value) = value else { return "?".to_owned() };
    let escaped = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    value.chars().map(escaped).collect()
}

/// A number with its noun.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {}", HumanCount(count), plural(count as usize, noun))
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_a_terminal_would_obey_is_shown_and_not_obeyed() {
        for (value, expected) in
            [("plain, ü", "plain, ü"), ("two\nlines", "two\\nlines"), ("\u{1b}[31mred", "\\u{1b}[31mred")]
        {
            assert_eq!(shown(Some(&value.to_owned())), expected);
        }
        assert_eq!(shown(None), "?");
    }
}
