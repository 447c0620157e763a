//! Manifest entries, cut down to what planning needs. What they inherit from their manifest is filled in here.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use iceberg::spec::{ManifestFile, Schema, StructType, TableMetadata};
use iceferry_common::model::{ColumnMetrics, Constant, FileFormat};

use super::bounds::{self, ColumnBounds, PathRange};
use super::error::FileProblem;
use super::filter::{FileFilter, SpecFilter};
use super::manifest::{Columns, Content, Entry, Keep, Layout, Layouts, Manifest, of_column};
use super::metrics;
use super::partition::{self, Partition, Promotions};
use super::partitions::{OfTable, Partitions};

/// Field id of `file_path` in position delete files; fixed by the specification.
const DELETE_FILE_PATH_ID: i32 = 2_147_483_546;

/// A live data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataEntry {
    pub(super) path: String,
    /// Data sequence number.
    pub(super) sequence: i64,
    pub(super) partition: Arc<Partition>,
    pub(super) format: FileFormat,
    pub(super) is_encrypted: bool,
    pub(super) size_bytes: u64,
    pub(super) record_count: u64,
    pub(super) split_offsets: Box<[i64]>,
    pub(super) bounds: Box<[ColumnBounds]>,
    /// Constants of its identity partitions. A problem counts only when the file is to be read.
    pub(super) constants: Result<Vec<Constant>, String>,
    /// Its partition values, when workers are to know them.
    pub(super) partition_values: Result<Vec<Constant>, String>,
    /// The id of its first row, where it has a part in the table's row lineage.
    pub(super) first_row_id: Option<i64>,
    /// The sort order of its rows, if the manifest says so.
    pub(super) sort_order_id: Option<i32>,
    /// What the manifest says of its columns, by ascending field id; `None` unless it was asked for.
    pub(super) metrics: Option<Box<[ColumnMetrics]>>,
    /// False only when the filter certainly keeps none of its rows.
    pub(super) may_match: bool,
}

/// What is decoded of data files beside what always is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Columns whose bounds are kept.
    pub(super) bounds_of: Vec<i32>,
    /// Whether everything that a manifest says of columns is kept.
    pub(super) with_metrics: bool,
}

/// A live delete file, or one vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeleteEntry {
    pub(super) location: String,
    /// Data sequence number.
    pub(super) sequence: i64,
    pub(super) partition: Arc<Partition>,
    pub(super) format: FileFormat,
    pub(super) is_encrypted: bool,
    pub(super) size_bytes: u64,
    pub(super) record_count: u64,
    pub(super) scope: Scope,
    /// Why its rows cannot be compared with those of data files, if so. It counts only when the file reaches one.
    pub(super) problem: Option<String>,
}

/// Which rows a delete file may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    Equality {
        field_ids: Vec<i32>,
        /// Its spec is unpartitioned: it reaches every partition of every spec.
        is_global: bool,
        bounds: Box<[ColumnBounds]>,
    },
    Position {
        /// The one data file that it names, if the manifest says so.
        referenced: Option<String>,
        paths: PathRange,
    },
    Vector {
        referenced: String,
        offset: u64,
        length: u64,
    },
}

/// What decoding needs to know of the table.
#[derive(Debug)]
pub(super) struct Decoding {
    /// Partition specs by id that count as unpartitioned.
    unpartitioned: HashMap<i32, bool>,
    /// Columns outside lists, maps and structs.
    top_level: HashSet<i32>,
    columns: partition::Columns,
    partition_type: Option<StructType>,
    promotions: Promotions,
    filter: FileFilter,
    layouts: Layouts,
}

impl Decoding {
    pub(super) fn new(
        table: &TableMetadata,
        read_schema: &Schema,
        partition_type: Option<StructType>,
        filter: FileFilter,
    ) -> Self {
        Self {
            filter,
            layouts: Layouts::default(),
            unpartitioned: table.partition_specs_iter().map(|spec| (spec.spec_id(), spec.is_unpartitioned())).collect(),
            top_level: bounds::top_level(table.schemas_iter()),
            columns: partition::Columns::of(table, read_schema),
            partition_type,
            promotions: Promotions::of(table),
        }
    }

    /// Of these columns, those whose bounds can be compared.
    pub(super) fn comparable(&self, columns: &[i32]) -> Vec<i32> {
        columns.iter().copied().filter(|column| self.top_level.contains(column)).collect()
    }

    fn of_table(&self) -> OfTable<'_> {
        let Self { columns, partition_type, promotions, .. } = self;
        OfTable { columns, partition_type: partition_type.as_ref(), promotions }
    }

    /// Gives the live data files of a manifest in their order, some at a time, until `give` wants no more.
    pub(super) fn data(
        &self,
        of: &ManifestFile,
        bytes: &[u8],
        wanted: &Wanted,
        give: impl FnMut(Vec<DataEntry>) -> ControlFlow<()>,
    ) -> Result<(), FileProblem> {
        let manifest = Manifest::open(&of.manifest_path, bytes, &self.layouts)?;
        let layout = manifest.shared_layout();
        let filter = self.filter.of_spec(layout.spec());
        let filtered = filter.columns();
        let mut bounded = wanted.bounds_of.clone();
        bounded.extend(&filtered);
        let (bounded, with_nans) = match wanted.with_metrics {
            true => (Columns::All, Columns::All),
            false => (Columns::These(&bounded), Columns::These(&filtered)),
        };
        let keep = Keep { bounds: bounded, counts: bounded, nan_counts: with_nans };
        let mut partitions = Partitions::new(self.of_table(), of, &layout, &filter);
        let mut row_ids = RowIds::new(of);
        let mut chunks = Chunks::new(give);
        manifest.live_entries(&keep, |entry| {
            if entry.content != Content::Data {
                let problem = format!("data manifest {} lists it as a delete file", of.manifest_path);
                return Err(FileProblem::corrupt(entry.path, problem));
            }
            let tuple = partitions.of(entry)?;
            Ok(chunks.push(DataEntry {
                path: entry.path.to_owned(),
                sequence: sequence(of, entry)?,
                partition: Arc::clone(&tuple.partition),
                format: entry.format(),
                is_encrypted: entry.is_encrypted,
                size_bytes: entry.size_bytes,
                record_count: entry.record_count,
                split_offsets: entry.split_offsets.as_slice().into(),
                bounds: bounds::of_entry(&layout, entry, &wanted.bounds_of),
                constants: tuple.constants.clone(),
                partition_values: tuple.values.clone(),
                first_row_id: row_ids.first_of(entry.first_row_id, entry.record_count),
                sort_order_id: entry.sort_order_id,
                metrics: wanted.with_metrics.then(|| metrics::of_entry(entry)),
                may_match: tuple.may_match && filter.may_match(&layout, entry),
            }))
        })?;
        chunks.finish();
        Ok(())
    }

    /// Gives the live delete files of a manifest, likewise.
    pub(super) fn deletes(
        &self,
        of: &ManifestFile,
        bytes: &[u8],
        give: impl FnMut(Vec<DeleteEntry>) -> ControlFlow<()>,
    ) -> Result<(), FileProblem> {
        let manifest = Manifest::open(&of.manifest_path, bytes, &self.layouts)?;
        let layout = manifest.shared_layout();
        let is_unpartitioned = self.unpartitioned.get(&of.partition_spec_id).copied();
        let is_unpartitioned = is_unpartitioned.unwrap_or_else(|| layout.spec().is_unpartitioned());
        let no_filter = SpecFilter::none();
        // Delete files have few columns, and those that matter are told behind the bounds.
        let keep = Keep { bounds: Columns::All, counts: Columns::All, nan_counts: Columns::These(&[]) };
        let mut partitions = Partitions::new(self.of_table(), of, &layout, &no_filter);
        let mut chunks = Chunks::new(give);
        manifest.live_entries(&keep, |entry| {
            let (scope, problem) = self.scope(&layout, is_unpartitioned, entry)?;
            Ok(chunks.push(DeleteEntry {
                location: entry.path.to_owned(),
                sequence: sequence(of, entry)?,
                partition: Arc::clone(&partitions.of(entry)?.partition),
                format: entry.format(),
                is_encrypted: entry.is_encrypted,
                size_bytes: entry.size_bytes,
                record_count: entry.record_count,
                scope,
                problem,
            }))
        })?;
        chunks.finish();
        Ok(())
    }

    /// Which rows a delete file may name, and why its rows cannot be compared with those of data files.
    fn scope(
        &self,
        layout: &Layout,
        is_unpartitioned: bool,
        entry: &Entry<'_>,
    ) -> Result<(Scope, Option<String>), FileProblem> {
        let corrupt = |problem: &str| FileProblem::corrupt(entry.path, problem);
        match (entry.content, entry.format()) {
            (Content::Data, _) => Err(corrupt("a delete manifest lists it as a data file")),
            (Content::EqualityDeletes, FileFormat::Puffin) => {
                Err(corrupt("an equality delete file cannot be in Puffin format"))
            }
            (Content::EqualityDeletes, _) => {
                let field_ids = entry.equality_ids.clone();
                if field_ids.is_empty() {
                    return Err(corrupt("the manifest does not say by which columns it deletes"));
                }
                let problem = field_ids.iter().find_map(|id| self.columns.key_problem(*id));
                let bounds = bounds::of_entry(layout, entry, &self.comparable(&field_ids));
                Ok((Scope::Equality { field_ids, is_global: is_unpartitioned, bounds }, problem))
            }
            (Content::PositionDeletes, FileFormat::Puffin) => {
                let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
                match (entry.referenced, number(entry.content_offset), number(entry.content_size)) {
                    (Some(referenced), Some(offset), Some(length)) => {
                        Ok((Scope::Vector { referenced: referenced.to_owned(), offset, length }, None))
                    }
                    _ => Err(corrupt("the manifest lacks the data file, offset or length of a deletion vector")),
                }
            }
            (Content::PositionDeletes, _) => {
                let path = |bounds: &[(i32, &[u8])]| {
                    let bytes = of_column(bounds, DELETE_FILE_PATH_ID)?;
                    std::str::from_utf8(bytes).ok().map(str::to_owned)
                };
                let paths = PathRange::new(path(&entry.lower_bounds), path(&entry.upper_bounds));
                Ok((Scope::Position { referenced: entry.referenced.map(str::to_owned), paths }, None))
            }
        }
    }
}

/// Entries that go on together.
const CHUNK_ENTRIES: usize = 512;

/// Gathers entries, and gives them on some at a time.
struct Chunks<T, F> {
    entries: Vec<T>,
    give: F,
}

impl<T, F: FnMut(Vec<T>) -> ControlFlow<()>> Chunks<T, F> {
    fn new(give: F) -> Self {
        Self { entries: Vec::new(), give }
    }

    fn push(&mut self, entry: T) -> ControlFlow<()> {
        self.entries.push(entry);
        if self.entries.len() < CHUNK_ENTRIES {
            ControlFlow::Continue(())
        } else {
            (self.give)(std::mem::take(&mut self.entries))
        }
    }

    fn finish(mut self) {
        if !self.entries.is_empty() {
            let _ = (self.give)(self.entries);
        }
    }
}

/// Ids of first rows that the entries of a manifest inherit from it, one after another (spec, first row id inheritance).
/// In a manifest without one no file has one.
struct RowIds {
    next: Option<i64>,
}

impl RowIds {
    fn new(of: &ManifestFile) -> Self {
        Self { next: of.first_row_id.and_then(|first| i64::try_from(first).ok()) }
    }

    /// The first row's id of the next live entry, which may have its own.
    fn first_of(&mut self, own: Option<i64>, record_count: u64) -> Option<i64> {
        let next = self.next?;
        if own.is_some() {
            return own;
        }
        self.next = i64::try_from(record_count).ok().and_then(|count| next.checked_add(count));
        Some(next)
    }
}

/// The data sequence number. An added file takes that of its manifest unless it has its own; in manifests from before
/// sequence numbers every file has 0.
fn sequence(of: &ManifestFile, entry: &Entry<'_>) -> Result<i64, FileProblem> {
    match entry.sequence {
        Some(sequence) => Ok(sequence),
        None if entry.is_added || of.sequence_number == 0 => Ok(of.sequence_number),
        None => {
            let problem = format!("manifest {} does not say its sequence number", of.manifest_path);
            Err(FileProblem::corrupt(entry.path, problem))
        }
    }
}
