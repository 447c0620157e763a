//! One try at showing rows.

use iceferry_common::model::{
    Attempt, EpochContext, RowCounts, ScanTask, ShownRow, ShownValue, StagedContent, TaskOutput, staged_file_location,
};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;

use super::task::{Located, RowsOfFile, write};
use super::{DigestError, hash};
use crate::attempt::{AttemptError, Counters};
use crate::key_text;
use crate::read::ReadOptions;

/// A value is cut after so many characters.
const VALUE_CHARACTERS_MAX: usize = 100;

/// Reads the rows that a task asks for, and hands them over as text. It blocks.
///
/// # Errors
/// The attempt's; nothing that it wrote is left then.
pub(crate) fn show(
    (context, task, attempt): (&EpochContext, &ScanTask, Attempt),
    options: ReadOptions,
    progress: &Counters,
    runtime: Handle,
) -> Result<TaskOutput, AttemptError> {
    let cancel = options.cancel.clone();
    let shown = rows(context, task, options, progress, runtime.clone()).and_then(|rows| {
        let storage = Storage::new(context.target.storage.clone());
        let location = staged_file_location(context, task.id, attempt, StagedContent::ShownRows, 0);
        let bytes = serde_json::to_vec(&rows).map_err(|error| DigestError::Task {
            task: task.id.0,
            table: context.source.table.clone(),
            what: format!("its rows are no JSON: {error}"),
        })?;
        let mut file = write(&storage, &runtime, location, StagedContent::ShownRows, bytes)?;
        file.record_count = rows.len() as u64;
        Ok(file)
    });
    let file = match shown {
        Ok(file) => file,
        Err(_) if cancel.is_cancelled() => return Err(AttemptError::cancelled(Vec::new())),
        Err(error) => return Err(AttemptError::new(&error, Vec::new())),
    };
    let RowCounts { read, bytes_read, .. } = progress.get();
    let rows = RowCounts { read, bytes_read, bytes_written: file.size_bytes, ..RowCounts::default() };
    progress.set(rows);
    Ok(TaskOutput { task: task.id, attempt, files: vec![file], exchanged: None, rows })
}

fn rows(
    context: &EpochContext,
    task: &ScanTask,
    options: ReadOptions,
    progress: &Counters,
    runtime: Handle,
) -> Result<Vec<ShownRow>, DigestError> {
    let mut rows = Located::open(context, task, options, runtime)?;
    let mut shown = Vec::new();
    while let Some(RowsOfFile { file, columns, positions }) = rows.next()? {
        let hashes = columns.iter().map(hash::values).collect::<Result<Vec<_>, _>>();
        let table = &context.source.table;
        let hashes = hashes.map_err(|source| DigestError::Hash { table: table.clone(), source })?;
        let location = &task.differences[file as usize].file.location;
        for (row, position) in positions.into_iter().enumerate() {
            let value = |(column, hashes): (_, &Vec<u64>)| ShownValue {
                text: key_text::value(column, row, VALUE_CHARACTERS_MAX),
                hash: hashes[row],
            };
            let columns = columns.iter().zip(&hashes).map(value).collect();
            shown.push(ShownRow { location: location.clone(), position, columns });
        }
        progress.set_read(rows.reader.rows_read(), rows.reader.bytes_fetched());
    }
    Ok(shown)
}
