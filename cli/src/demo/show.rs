//! Reading a small table whole, through iceferry's own planner and reader, and printing two of them side by side.

use std::sync::Arc;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use iceferry_common::fault::Class;
use iceferry_common::model::{EpochContext, JobName, SnapshotId, TargetMode};
use iceferry_coordinator::catalog::LoadedTable;
use iceferry_coordinator::plan;
use iceferry_worker::read::{ReadOptions, TaskReader};
use tokio::sync::mpsc;

use super::context::context;
use crate::failure::Failure;

/// A table as text, sorted by its first column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Rows {
    /// The first column as numbers; what is none is left out.
    pub(super) fn first_column_as_ids(&self) -> Vec<i64> {
        self.rows.iter().filter_map(|row| row.first()?.parse().ok()).collect()
    }
}

/// All rows of the table's current state.
pub(super) async fn rows(table: &LoadedTable) -> Result<Rows, Failure> {
    let schema = Arc::clone(table.metadata.current_schema());
    let columns = schema.as_struct().fields().iter().map(|field| field.name.clone()).collect();
    let Some(snapshot) = table.metadata.current_snapshot_id() else {
        return Ok(Rows { columns, rows: Vec::new() });
    };
    let request = plan::PlanRequest {
        table: table.ident.to_string(),
        storage: table.storage.clone(),
        metadata: Arc::clone(&table.metadata),
        before: None,
        after: SnapshotId(snapshot),
        read_schema: Arc::clone(&schema),
        key: Vec::new(),
        filter: None,
        together: plan::Together::CarryOver,
        ways: plan::Ways::rows(),
        partition_type: None,
        manifest_lists: plan::ManifestLists::default(),
        options: plan::PlanOptions::of_table(&table.metadata),
    };
    let job: JobName = "show".parse().map_err(|error| Failure::new(Class::Bug, format!("{error}")))?;
    let context = context(table, job, Vec::new(), TargetMode::Append)?;
    let (tasks, mut planned) = mpsc::channel(16);
    let reading = async {
        let mut rows = Vec::new();
        while let Some(task) = planned.recv().await {
            let (context, storage) = (context.clone(), table.storage.clone());
            let runtime = tokio::runtime::Handle::current();
            let read = tokio::task::spawn_blocking(move || read(&context, &task, storage, runtime)).await;
            rows.extend(read.map_err(|error| Failure::new(Class::Bug, format!("read a demo table: {error}")))??);
        }
        Ok::<_, Failure>(rows)
    };
    let planning = async { plan::plan(request, tasks).await.map_err(Failure::from) };
    let (_, mut rows) = tokio::try_join!(planning, reading)?;
    rows.sort_by_key(|row| row.first().and_then(|id| id.parse::<i64>().ok()));
    Ok(Rows { columns, rows })
}

fn read(
    context: &EpochContext,
    task: &iceferry_common::model::ScanTask,
    storage: iceferry_common::storage::Storage,
    runtime: tokio::runtime::Handle,
) -> Result<Vec<Vec<String>>, Failure> {
    let mut rows = Vec::new();
    for batch in TaskReader::open(context, task, storage, runtime, ReadOptions::default())? {
        let batch = batch?.rows;
        let options = FormatOptions::default();
        let columns: Result<Vec<_>, _> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options)).collect();
        let columns = columns.map_err(|error| Failure::new(Class::Bug, format!("print a demo table: {error}")))?;
        for row in 0..batch.num_rows() {
            rows.push(columns.iter().map(|column| column.value(row).to_string()).collect());
        }
    }
    Ok(rows)
}

/// Two tables next to each other, with a mark before the rows that only one of them has.
pub(super) fn side_by_side(left: (&str, &Rows), right: (&str, &Rows)) -> String {
    let (left_lines, right_lines) = (lines(left.0, left.1, right.1), lines(right.0, right.1, left.1));
    let width = left_lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for at in 0..left_lines.len().max(right_lines.len()) {
        let left = left_lines.get(at).map_or("", String::as_str);
        let right = right_lines.get(at).map_or("", String::as_str);
        let padding = " ".repeat(width - left.chars().count());
        text.push_str(format!("{left}{padding}    {right}").trim_end());
        text.push('\n');
    }
    text
}

fn lines(title: &str, rows: &Rows, other: &Rows) -> Vec<String> {
    let cells = || std::iter::once(&rows.columns).chain(&rows.rows);
    let widths: Vec<usize> = (0..rows.columns.len())
        .map(|column| cells().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let padding = " ".repeat(width - cell.chars().count());
            // Numbers stand to the right.
            if cell.parse::<f64>().is_ok() { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    let mut lines = vec![format!("  {title}"), format!("  {}", line(&rows.columns))];
    lines.push(format!("  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1))));
    lines.extend(rows.rows.iter().map(|row| {
        let mark = if other.rows.contains(row) { ' ' } else { '!' };
        format!("{mark} {}", line(row))
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_one_side_lacks_is_marked() {
        let table = |rows: &[[&str; 2]]| Rows {
            columns: vec!["id".into(), "v".into()],
            rows: rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect(),
        };
        let shown = side_by_side(("a", &table(&[["1", "x"], ["22", "y"]])), ("b", &table(&[["1", "x"]])));
        assert_eq!(
            shown,
            "  a        b\n  id  v    id  v\n".replace("    id", "      id").replace("a        b", "a          b")
                + "  -----      -----\n   1  x       1  x\n! 22  y\n"
        );
    }
}
