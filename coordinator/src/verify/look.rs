//! The second look, at buckets that differ: their row hashes tell which rows differ and where they are, and the few that are
//! to be shown are read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use iceferry_common::model::digest::{RowHash, Run};
use iceferry_common::model::{
    EpochId, FileDifference, Resolution, RowCounts, ScanTask, ShowWork, ShownRow, Side, StagedContent, StagedFile, Work,
};

use super::compare::{Differences, Found, Part, Place, Row, parts};
use super::side::{Digested, Reader, temporary};
use super::{RowReport, SideName, VerifyError};

/// Rows of both sides whose hashes are compared at once, about; each takes 32 bytes, twice while it is compared.
const ROWS_AT_ONCE: u64 = 1 << 20;
/// Keys may be spread unevenly; beyond this many rows of one side they are no keys.
const ROWS_MAX: u64 = 4 * ROWS_AT_ONCE;
/// Temporary files, or ranges of them, that are read at once.
const READS_AT_ONCE: usize = 4;

/// What the second look found.
pub(super) struct Looked {
    pub(super) differences: Differences,
    /// Row hashes that were read for it.
    pub(super) hashes_read: u64,
}

/// The rows that are shown.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) rows: Vec<RowReport>,
    /// What was read for them.
    pub(super) read: RowCounts,
}

/// Where the row hashes of a task are.
struct Hashes<'a> {
    digest: u32,
    location: &'a str,
    runs: Vec<Run>,
}

impl Reader<'_> {
    /// Finds the rows that differ, in the buckets that do.
    pub(super) async fn look(
        &self,
        source: &Digested,
        target: &Digested,
        differs: &[bool],
    ) -> Result<Looked, VerifyError> {
        let parts = parts(&source.sums, &target.sums, differs, ROWS_AT_ONCE);
        let (of_source, of_target) = (self.hashes(source).await?, self.hashes(target).await?);
        let mut looked = Looked { differences: Differences::new(self.options.rows_max), hashes_read: 0 };
        for part in parts {
            let source = self.rows(&of_source, &part, differs, &mut looked.hashes_read).await?;
            let target = self.rows(&of_target, &part, differs, &mut looked.hashes_read).await?;
            let mut differences = std::mem::take(&mut looked.differences);
            // Sorting holds the CPU.
            let compared = tokio::task::spawn_blocking(move || {
                differences.compare(source, target);
                differences
            });
            looked.differences = compared.await.map_err(|source| VerifyError::BrokenOff {
                source_table: self.opened.source.table.ident.to_string(),
                target_table: self.opened.target.table.ident.to_string(),
                source,
            })?;
        }
        Ok(looked)
    }

    /// Where all row hashes of a side are: a few bytes for each thousand rows.
    async fn hashes<'d>(&self, digested: &'d Digested) -> Result<Vec<Hashes<'d>>, VerifyError> {
        let with_rows = digested.tasks.iter().enumerate().filter_map(|(digest, files)| {
            let location: &str = files.hashes.as_ref()?;
            Some((digest as u32, location, &files.digest))
        });
        let read = |(digest, location, file): (u32, &'d str, &StagedFile)| {
            let read = self.task_digest(file.clone());
            async move { Ok(Hashes { digest, location, runs: read.await?.1.runs }) }
        };
        let reads: Vec<_> = with_rows.map(read).collect();
        futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// The rows of one side that a part looks at.
    async fn rows(
        &self,
        hashes: &[Hashes<'_>],
        part: &Part,
        differs: &[bool],
        hashes_read: &mut u64,
    ) -> Result<Vec<Row>, VerifyError> {
        let bucket_bits = differs.len().ilog2() as u8;
        let ranges = hashes.iter().flat_map(|of_task| {
            let ranges = of_task.runs.iter().map(|run| run.rows(part.pages.clone()));
            ranges.filter(|rows| !rows.is_empty()).map(move |rows| (of_task, rows))
        });
        let read = |(of_task, rows): (&Hashes<'_>, std::ops::Range<u64>)| {
            let (digest, location) = (of_task.digest, of_task.location.to_owned());
            let count = rows.end - rows.start;
            let bytes = rows.start * RowHash::BYTES as u64..rows.end * RowHash::BYTES as u64;
            async move {
                let bytes = self.storage().read_range(&location, bytes).await;
                let bytes = bytes.map_err(temporary("read row hashes"))?;
                if bytes.len() as u64 != count * RowHash::BYTES as u64 {
                    let problem = format!("{count} row hashes have {} bytes", bytes.len());
                    return Err(VerifyError::Damaged { location, problem });
                }
                Ok((digest, bytes))
            }
        };
        let mut held = Vec::new();
        let ranges: Vec<_> = ranges.map(read).collect();
        let mut ranges = pin!(futures::stream::iter(ranges).buffered(READS_AT_ONCE));
        while let Some((digest, bytes)) = ranges.try_next().await? {
            *hashes_read += (bytes.len() / RowHash::BYTES) as u64;
            let rows = RowHash::all_of(&bytes).filter(|row| part.holds(row, bucket_bits, differs));
            held.extend(rows.map(|RowHash { key, row, file, position }| Row {
                key,
                row,
                place: Place { digest, file, position },
            }));
            if held.len() as u64 > ROWS_MAX {
                return Err(VerifyError::TooMany {
                    source_table: self.opened.source.table.ident.to_string(),
                    target_table: self.opened.target.table.ident.to_string(),
                    rows_max: ROWS_MAX,
                });
            }
        }
        Ok(held)
    }

    /// Has the rows read again that are to be shown.
    pub(super) async fn show(
        &self,
        source: &Digested,
        target: &Digested,
        found: &[Found],
    ) -> Result<Shown, VerifyError> {
        let mut read = RowCounts::default();
        let mut places = (Vec::new(), Vec::new());
        for found in found {
            let (source, target) = places_of(*found);
            places.0.extend(source);
            places.1.extend(target);
        }
        let of_source = self.show_side(SideName::Source, EpochId(2), source, &places.0, &mut read).await?;
        let of_target = self.show_side(SideName::Target, EpochId(3), target, &places.1, &mut read).await?;
        let names = self.opened.columns();
        let rows = found.iter().map(|found| {
            let (source, target) = places_of(*found);
            let rows = (source.and_then(|at| of_source.get(&at)), target.and_then(|at| of_target.get(&at)));
            RowReport::of(*found, rows, &names, &self.opened.key)
        });
        Ok(Shown { rows: rows.collect(), read })
    }

    async fn show_side(
        &self,
        side: SideName,
        epoch: EpochId,
        digested: &Digested,
        places: &[Place],
        read: &mut RowCounts,
    ) -> Result<HashMap<Place, ShownRow>, VerifyError> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let named = self.named(digested, places).await?;
        let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for (location, position) in named.keys() {
            wanted.entry(location.clone()).or_default().insert(*position);
        }
        let output = self.distribute(side, epoch, |task| showing(task, &mut wanted), |_| {}).await?;
        *read += output.rows;
        let mut shown = HashMap::with_capacity(places.len());
        for file in output.outputs.into_iter().flat_map(|output| output.files) {
            if file.content != StagedContent::ShownRows {
                let problem = format!("{} is a file of {:?}", file.location, file.content);
                return Err(VerifyError::NotCompared { side, task: 0, problem });
            }
            let bytes = self.storage().read(&file.location).await.map_err(temporary("read rows to show"))?;
            let rows: Vec<ShownRow> = match serde_json::from_slice(&bytes) {
                Ok(rows) => rows,
                Err(error) => {
                    return Err(VerifyError::Damaged { location: file.location, problem: error.to_string() });
                }
            };
            for row in rows {
                if let Some(place) = named.get(&(row.location.clone(), row.position)) {
                    shown.insert(*place, row);
                }
            }
        }
        match named.into_iter().find(|(_, place)| !shown.contains_key(place)) {
            Some(((location, position), _)) => Err(VerifyError::RowGone { location, position }),
            None => Ok(shown),
        }
    }

    /// The places by their files' names.
    async fn named(&self, digested: &Digested, places: &[Place]) -> Result<HashMap<(String, u64), Place>, VerifyError> {
        let mut named = HashMap::with_capacity(places.len());
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        for of_digest in sorted.chunk_by(|one, other| one.digest == other.digest) {
            let files = &digested.tasks[of_digest[0].digest as usize];
            let (file, digest) = self.task_digest(files.digest.clone()).await?;
            for place in of_digest {
                let location = digest.locations.get(place.file as usize).ok_or_else(|| VerifyError::Damaged {
                    location: file.location.clone(),
                    problem: format!("it has no data file {}", place.file),
                })?;
                named.insert((location.clone(), place.position), *place);
            }
        }
        Ok(named)
    }
}

fn places_of(found: Found) -> (Option<Place>, Option<Place>) {
    match found {
        Found::Missing(place) => (Some(place), None),
        Found::Surplus(place) => (None, Some(place)),
        Found::Changed { source, target } => (Some(source), Some(target)),
    }
}

/// The task with those of its rows that are wanted and no task had before; none when there are none. They are known to be
/// live, so its deletes need not be read again.
fn showing(task: ScanTask, wanted: &mut BTreeMap<String, BTreeSet<u64>>) -> Option<ScanTask> {
    let (mut differences, mut rows) = (Vec::new(), Vec::new());
    for difference in task.differences {
        // Positions count from the start of the file, whatever part of it the task had.
        if let Some(positions) = wanted.remove(&difference.file.location) {
            rows.push(positions.into_iter().collect());
            let file = difference.file;
            differences.push(FileDifference {
                file,
                split: None,
                before: Side::Absent,
                after: Side::Present(vec![]),
                commit: None,
            });
        }
    }
    let work = Work::Show(ShowWork { rows });
    let task = ScanTask { id: task.id, differences, deletes: Vec::new(), resolution: Resolution::Keep, work };
    if task.differences.is_empty() { None } else { Some(task) }
}

#[cfg(test)]
mod tests {
    use iceferry_common::model::{DataFile, FileFormat, Split, TaskId};

    use super::*;

    fn difference(location: &str, split: Option<Split>) -> FileDifference {
        let file = DataFile {
            location: location.into(),
            format: FileFormat::Parquet,
            size_bytes: 100,
            record_count: 10,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 0,
            partition: Vec::new(),
        };
        FileDifference { file, split, before: Side::Absent, after: Side::Present(vec![0]), commit: None }
    }

    #[test]
    fn a_row_is_asked_for_once_also_where_its_file_is_split_over_tasks() {
        let mut wanted: BTreeMap<String, BTreeSet<u64>> =
            [("/a", vec![9, 2]), ("/b", vec![0])].map(|(file, rows)| (file.into(), rows.into_iter().collect())).into();
        let task = |id, differences| ScanTask {
            id: TaskId(id),
            differences,
            deletes: Vec::new(),
            resolution: Resolution::Keep,
            work: Work::Stage,
        };
        let half = |start, end| difference("/a", Some(Split { start, end }));
        assert_eq!(showing(task(0, vec![difference("/c", None)]), &mut wanted), None);
        let shown = showing(task(1, vec![difference("/c", None), half(0, 50)]), &mut wanted).unwrap();
        assert_eq!(shown.work, Work::Show(ShowWork { rows: vec![vec![2, 9]] }));
        assert_eq!((shown.id, shown.differences.len(), shown.differences[0].split), (TaskId(1), 1, None));
        assert_eq!(shown.differences[0].after, Side::Present(vec![]));
        assert_eq!(showing(task(2, vec![half(50, 100)]), &mut wanted), None);
        assert!(showing(task(3, vec![difference("/b", None)]), &mut wanted).is_some());
        assert!(wanted.is_empty());
    }
}
