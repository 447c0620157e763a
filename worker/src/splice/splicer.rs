//! Carries files over: copies objects, and writes new files out of the row groups of others.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use iceferry_common::entry;
use iceferry_common::model::{ColumnMetrics, DataFile, EpochContext, SourceCommit, StagedContent, StagedFile};
use iceferry_common::storage::Storage;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::describe::{Carried, Described, describe};
use super::footer::{footer, write_footer};
use super::layout::{MAGIC, Taken, lay};
use super::stream::{Stopped, held, write};
use super::way::way;
use super::{Recipe, SpliceError, Way, Whole, bloom};
use crate::read::ReadError;
use crate::read::fetch::Fetcher;
use crate::stage::StageError;
use crate::stage::layout::Layout;
use crate::stage::upload::{Ended, Upload};

/// Carries files of one epoch over. Not for async threads: every call but [`Splicer::way`] may block.
pub(crate) struct Splicer {
    context: Arc<EpochContext>,
    layout: Layout,
    source: Storage,
    target: Storage,
    fetcher: Fetcher,
    runtime: Handle,
    cancel: CancellationToken,
}

/// Row groups of one source file that go into a new file.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    /// The file.
    pub(crate) whole: &'a Whole,
    /// The recipe that [`Splicer::way`] gave for it.
    pub(crate) recipe: &'a Recipe,
    /// The row groups that are kept, ascending.
    pub(crate) row_groups: Vec<usize>,
    /// What the source's manifest says of its columns.
    pub(crate) metrics: &'a [ColumnMetrics],
}

/// A new file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spliced {
    /// The file, as staged.
    pub(crate) file: StagedFile,
    /// Where the rows of each row group went, in the order of the new file.
    pub(crate) moved: Vec<Moved>,
}

/// Rows that went from a row group to their place in a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The place of the source file among the parts.
    pub(crate) part: usize,
    /// The row group in the source file.
    pub(crate) row_group: usize,
    /// Positions of its rows in the source file.
    pub(crate) rows: Range<u64>,
    /// Position of its first row in the new file.
    pub(crate) first_row: u64,
}

impl Splicer {
    /// For the files of an epoch, staged in its target. Nothing is read or written yet.
    ///
    /// # Errors
    /// When the target's schema has no layout.
    pub(crate) fn new(
        context: Arc<EpochContext>,
        source: Storage,
        target: Storage,
        runtime: Handle,
        cancel: CancellationToken,
    ) -> Result<Self, SpliceError> {
        let of = &context.target;
        let layout = Layout::new(&of.table, Arc::clone(&of.write_schema), &of.parquet)?;
        let fetcher = Fetcher::new(source.clone(), runtime.clone(), cancel.clone());
        Ok(Self { context, layout, source, target, fetcher, runtime, cancel })
    }

    /// Reads the footer of a Parquet file.
    ///
    /// # Errors
    /// [`SpliceError`]; the same as decoding the file would give.
    pub(crate) fn open(&self, file: &DataFile) -> Result<Whole, SpliceError> {
        Ok(Whole::open(&self.fetcher, &self.context, file)?)
    }

    /// The cheapest way for a file that gives what decoding gives. Pure: by the footer and the context alone. `metrics` is
    /// what the source's manifest says of the columns, `commit` the snapshot that brought the file where the epoch has several; empty where it says nothing. Deletes are the caller's concern.
    pub(crate) fn way(
        &self,
        file: &DataFile,
        commit: Option<SourceCommit>,
        whole: &Whole,
        metrics: &[ColumnMetrics],
    ) -> Way {
        way(&self.context, &self.layout, (file, commit), whole, metrics)
    }

    /// Bytes that were read so far, save by copies.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.fetcher.bytes_fetched()
    }

    /// Copies a file, for which the way was [`Way::Copy`], to `location`, and describes it for the manifest. Positions of rows
    /// stay what they are.
    ///
    /// # Errors
    /// [`SpliceError`]. Something may be at the location then, for the caller to remove.
    pub(crate) fn copy(
        &self,
        whole: &Whole,
        recipe: &Recipe,
        metrics: &[ColumnMetrics],
        location: String,
    ) -> Result<StagedFile, SpliceError> {
        let footer = whole.footer();
        let described = Described {
            location: &location,
            size_bytes: whole.file.handle.size_bytes,
            footer,
            is_copy: true,
            has_column_orders: footer.file_metadata().column_orders().is_some(),
        };
        let carried = Carried { row_groups: 0..footer.num_row_groups(), is_whole: true, recipe, entry: metrics };
        let file = self.describe(&described, &[carried])?;
        let copied = self.target.copy_object(&self.source, whole.location(), &location, described.size_bytes);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(SpliceError::Interrupted { location: whole.location().to_owned() }),
                copied = copied => Ok(copied?),
            }
        })?;
        Ok(file)
    }

    /// Writes row groups of one file, or of several that can be joined, to a new file at `location`.
    ///
    /// # Errors
    /// [`SpliceError`]. Something may be at the location then, for the caller to remove.
    pub(crate) fn splice(&self, parts: &[Part<'_>], location: String) -> Result<Spliced, SpliceError> {
        check(parts).map_err(|what| SpliceError::Parts { location: location.clone(), what })?;
        let indexes = parts.iter().map(|part| part.whole.indexes(&self.fetcher)).collect::<Result<Vec<_>, _>>()?;
        let taken = parts.iter().zip(&indexes).map(|(part, indexes)| {
            let bloom_filters = self.bloom_filters(part)?;
            Ok(Taken { indexes, recipe: part.recipe, row_groups: &part.row_groups, bloom_filters })
        });
        let taken = taken.collect::<Result<Vec<_>, ReadError>>()?;
        let laid = lay(&taken).map_err(|source| SpliceError::Footer { location: location.clone(), source })?;
        let (laid_pieces, footer) = footer(parts, &indexes, &self.layout, laid);
        let (upload, mut sink) = Upload::begin(&self.target, &self.runtime, &location)
            .map_err(|source| StageError::Upload { location: location.clone(), source: Box::new(source) })?;
        let files: Vec<&Whole> = parts.iter().map(|part| part.whole).collect();
        let written = sink
            .write_all(MAGIC)
            .map_err(Stopped::Write)
            .and_then(|()| write(&laid_pieces, &files, &self.fetcher, &mut sink))
            .map_err(Failure::from)
            .and_then(|()| write_footer(&footer, &mut sink).map_err(Failure::Footer))
            .and_then(|()| {
                // Before the upload is told to complete, so that a file that cannot be described is never there.
                let described = Described {
                    location: &location,
                    size_bytes: sink.written(),
                    footer: &footer,
                    is_copy: false,
                    has_column_orders: true,
                };
                self.describe(&described, &carried(parts)).map_err(Failure::Other)
            })
            .and_then(|file| sink.complete().map(|()| file).map_err(|error| Failure::Write(error.into())));
        if written.is_err() {
            sink.discard();
        }
        let ended = self.runtime.block_on(upload.ended());
        let file = settled(written, ended, &location)?;
        Ok(Spliced { file, moved: moved(parts) })
    }

    fn describe(&self, described: &Described<'_>, parts: &[Carried<'_>]) -> Result<StagedFile, SpliceError> {
        let location = described.location.to_owned();
        let file = describe(&self.layout, described, parts).and_then(|data_file| {
            Ok(StagedFile {
                location: location.clone(),
                content: StagedContent::Data,
                record_count: data_file.record_count(),
                size_bytes: described.size_bytes,
                data_file: entry::encode(&data_file, None)?,
            })
        });
        Ok(file.map_err(|source| StageError::Describe { location, source: Box::new(source) })?)
    }

    /// Where the bloom filters of a part lie. Footers before 2023 do not say how long they are; the filters themselves do.
    fn bloom_filters(&self, part: &Part<'_>) -> Result<HashMap<(usize, usize), Range<u64>>, ReadError> {
        let file = &part.whole.file;
        let size_bytes = file.handle.size_bytes;
        let mut found = HashMap::new();
        let wanted: HashSet<usize> = part.recipe.file_leaves().collect();
        for row_group in &part.row_groups {
            for leaf in &wanted {
                let chunk = part.whole.footer().row_group(*row_group).column(*leaf);
                let Some(offset) = chunk.bloom_filter_offset().and_then(|offset| u64::try_from(offset).ok()) else {
                    continue;
                };
                let length = match chunk.bloom_filter_length() {
                    Some(length) => u64::try_from(length).ok(),
                    None => {
                        let head = offset..offset.saturating_add(bloom::HEADER_BYTES).min(size_bytes);
                        if head.is_empty() {
                            continue;
                        }
                        let head = match held(size_bytes, &file.tail, &head) {
                            Some(head) => head,
                            None => self.fetcher.start(&file.handle, head).wait()?,
                        };
                        bloom::length(&head)
                    }
                };
                let range = length.and_then(|length| Some(offset..offset.checked_add(length)?));
                // One that is not in the file is none: it only ever saves reading.
                if let Some(range) = range.filter(|range| !range.is_empty() && range.end <= size_bytes) {
                    found.insert((*row_group, *leaf), range);
                }
            }
        }
        Ok(found)
    }
}

enum Failure {
    Read(ReadError),
    Write(ParquetError),
    Footer(ParquetError),
    Other(SpliceError),
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Read(error) => Self::Read(error),
            Stopped::Write(error) => Self::Write(error.into()),
        }
    }
}

/// What came of a file, from both of its ends. Where writing failed, the storage's own answer is the better one.
fn settled(written: Result<StagedFile, Failure>, ended: Ended, location: &str) -> Result<StagedFile, SpliceError> {
    let location = || location.to_owned();
    let upload = match ended {
        Ended::Well => None,
        Ended::Failed(source) => Some(StageError::Upload { location: location(), source: Box::new(source) }),
        Ended::CutOff => Some(StageError::CutOff { location: location() }),
    };
    match (written, upload) {
        (Ok(file), None) => Ok(file),
        (Err(Failure::Read(error)), _) => Err(error.into()),
        (Err(Failure::Other(error)), _) => Err(error),
        (Ok(_) | Err(Failure::Write(_) | Failure::Footer(_)), Some(upload)) => Err(upload.into()),
        (Err(Failure::Write(source)), None) => Err(StageError::Encode { location: location(), source }.into()),
        (Err(Failure::Footer(source)), None) => Err(SpliceError::Footer { location: location(), source }),
    }
}

fn check(parts: &[Part<'_>]) -> Result<(), String> {
    let Some((first, rest)) = parts.split_first() else { return Err("there are no parts".to_owned()) };
    if let Some(other) = rest.iter().find(|part| !part.recipe.joins(first.recipe)) {
        return Err(format!("{} and {} have other columns", first.whole.location(), other.whole.location()));
    }
    for part in parts {
        let ascending = part.row_groups.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || part.row_groups.last().is_none_or(|last| *last >= part.whole.row_groups()) {
            return Err(format!("{} has no row groups {:?} in this order", part.whole.location(), part.row_groups));
        }
    }
    Ok(())
}

fn carried<'a>(parts: &'a [Part<'_>]) -> Vec<Carried<'a>> {
    let mut next = 0;
    let carried = parts.iter().map(|part| {
        let first = next;
        next += part.row_groups.len();
        let is_whole = part.row_groups.len() == part.whole.row_groups();
        Carried { row_groups: first..next, is_whole, recipe: part.recipe, entry: part.metrics }
    });
    carried.collect()
}

fn moved(parts: &[Part<'_>]) -> Vec<Moved> {
    let mut first_row = 0;
    let groups = parts.iter().enumerate().flat_map(|(part, of)| {
        of.row_groups.iter().map(move |row_group| (part, *row_group, of.whole.rows_of(*row_group)))
    });
    let moved = groups.map(|(part, row_group, rows)| {
        let moved = Moved { part, row_group, first_row, rows };
        first_row += moved.rows.end - moved.rows.start;
        moved
    });
    moved.collect()
}
