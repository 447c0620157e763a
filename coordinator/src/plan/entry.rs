//! Manifest entries, cut down to what planning needs. What they inherit from their manifest is filled in here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, Datum, Manifest, ManifestEntry, ManifestFile, ManifestStatus,
    PartitionSpec, Schema, StructType, TableMetadata,
};
use iceferry_common::model::{ColumnMetrics, Constant, FileFormat};

use super::bounds::{self, ColumnBounds, PathRange};
use super::error::FileProblem;
use super::filter::FileFilter;
use super::partition::{self, Columns, Partition, Promotions};

/// Field id of `file_path` in position delete files; fixed by the specification.
const DELETE_FILE_PATH_ID: i32 = 2_147_483_546;

/// A live data file.
#[derive(Debug, Clone)]
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
    #[allow(dead_code, reason = "files that are carried as bytes have no sort order until a target has one")]
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
    columns: Columns,
    partition_type: Option<StructType>,
    promotions: Promotions,
    filter: FileFilter,
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
            unpartitioned: table.partition_specs_iter().map(|spec| (spec.spec_id(), spec.is_unpartitioned())).collect(),
            top_level: bounds::top_level(table.schemas_iter()),
            columns: Columns::of(table, read_schema),
            partition_type,
            promotions: Promotions::of(table),
        }
    }

    /// Of these columns, those whose bounds can be compared.
    pub(super) fn comparable(&self, columns: &[i32]) -> Vec<i32> {
        columns.iter().copied().filter(|column| self.top_level.contains(column)).collect()
    }

    /// The live data files of a manifest.
    pub(super) fn data(
        &self,
        of: &ManifestFile,
        manifest: &Manifest,
        wanted: &Wanted,
    ) -> Result<Vec<DataEntry>, FileProblem> {
        let spec = manifest.metadata().partition_spec();
        let mut partitions = Partitions::new(self.promotions.of_spec(of.partition_spec_id));
        let mut row_ids = RowIds::new(of);
        let filter = self.filter.of_spec(spec);
        let entry = |entry: &ManifestEntry| {
            let may_match = filter.may_match(entry.data_file());
            let entry = self.data_entry(of, spec, entry, wanted, &mut partitions, &mut row_ids)?;
            Ok(DataEntry { may_match, ..entry })
        };
        live(manifest).map(entry).collect()
    }

    fn data_entry(
        &self,
        of: &ManifestFile,
        spec: &PartitionSpec,
        entry: &ManifestEntry,
        wanted: &Wanted,
        partitions: &mut Partitions<'_>,
        row_ids: &mut RowIds,
    ) -> Result<DataEntry, FileProblem> {
        let file = entry.data_file();
        if file.content_type() != DataContentType::Data {
            let problem = format!("data manifest {} lists it as a delete file", of.manifest_path);
            return Err(FileProblem::corrupt(file.file_path(), problem));
        }
        Ok(DataEntry {
            path: file.file_path().to_owned(),
            sequence: sequence(of, entry)?,
            partition: partitions.intern(of.partition_spec_id, file.partition()),
            format: format(file.file_format()),
            is_encrypted: file.key_metadata().is_some_and(|key| !key.is_empty()),
            size_bytes: file.file_size_in_bytes(),
            record_count: file.record_count(),
            split_offsets: file.split_offsets().unwrap_or_default().into(),
            bounds: bounds::of_file(file, &wanted.bounds_of),
            constants: partition::constants(spec, file.partition(), &self.columns),
            partition_values: match &self.partition_type {
                Some(partition_type) => partition::values(spec, file.partition(), partition_type),
                None => Ok(Vec::new()),
            },
            first_row_id: row_ids.first_of(file.first_row_id(), file.record_count()),
            sort_order_id: file.sort_order_id(),
            metrics: match wanted.with_metrics {
                true => Some(metrics(&of.manifest_path, file)?),
                false => None,
            },
            may_match: true,
        })
    }

    /// The live delete files of a manifest.
    pub(super) fn deletes(&self, of: &ManifestFile, manifest: &Manifest) -> Result<Vec<DeleteEntry>, FileProblem> {
        let mut partitions = Partitions::new(self.promotions.of_spec(of.partition_spec_id));
        let is_unpartitioned = self
            .unpartitioned
            .get(&of.partition_spec_id)
            .copied()
            .unwrap_or_else(|| manifest.metadata().partition_spec().is_unpartitioned());
        live(manifest).map(|entry| self.delete_entry(of, is_unpartitioned, entry, &mut partitions)).collect()
    }

    fn delete_entry(
        &self,
        of: &ManifestFile,
        is_unpartitioned: bool,
        entry: &ManifestEntry,
        partitions: &mut Partitions<'_>,
    ) -> Result<DeleteEntry, FileProblem> {
        let file = entry.data_file();
        let corrupt = |problem: &str| FileProblem::corrupt(file.file_path(), problem);
        let format = format(file.file_format());
        let mut problem = None;
        let scope = match (file.content_type(), format) {
            (DataContentType::Data, _) => return Err(corrupt("a delete manifest lists it as a data file")),
            (DataContentType::EqualityDeletes, FileFormat::Puffin) => {
                return Err(corrupt("an equality delete file cannot be in Puffin format"));
            }
            (DataContentType::EqualityDeletes, _) => {
                let field_ids = file.equality_ids().unwrap_or_default();
                if field_ids.is_empty() {
                    return Err(corrupt("the manifest does not say by which columns it deletes"));
                }
                problem = field_ids.iter().find_map(|id| self.columns.key_problem(*id));
                let bounds = bounds::of_file(file, &self.comparable(&field_ids));
                Scope::Equality { field_ids, is_global: is_unpartitioned, bounds }
            }
            (DataContentType::PositionDeletes, FileFormat::Puffin) => {
                let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
                match (file.referenced_data_file(), number(file.content_offset()), number(file.content_size_in_bytes()))
                {
                    (Some(referenced), Some(offset), Some(length)) => Scope::Vector { referenced, offset, length },
                    _ => {
                        return Err(corrupt("the manifest lacks the data file, offset or length of a deletion vector"));
                    }
                }
            }
            (DataContentType::PositionDeletes, _) => {
                let path = |bounds: &HashMap<i32, iceberg::spec::Datum>| match bounds.get(&DELETE_FILE_PATH_ID) {
                    Some(datum) => match datum.literal() {
                        iceberg::spec::PrimitiveLiteral::String(path) => Some(path.clone()),
                        _ => None,
                    },
                    None => None,
                };
                let paths = PathRange::new(path(file.lower_bounds()), path(file.upper_bounds()));
                Scope::Position { referenced: file.referenced_data_file(), paths }
            }
        };
        Ok(DeleteEntry {
            location: file.file_path().to_owned(),
            sequence: sequence(of, entry)?,
            partition: partitions.intern(of.partition_spec_id, file.partition()),
            format,
            is_encrypted: file.key_metadata().is_some_and(|key| !key.is_empty()),
            size_bytes: file.file_size_in_bytes(),
            record_count: file.record_count(),
            scope,
            problem,
        })
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

/// Partitions of one manifest, each kept once: a manifest has few of them and many files.
struct Partitions<'a> {
    known: HashSet<Arc<Partition>>,
    promoted: &'a [Option<i64>],
}

impl<'a> Partitions<'a> {
    fn new(promoted: &'a [Option<i64>]) -> Self {
        Self { known: HashSet::new(), promoted }
    }

    fn intern(&mut self, spec_id: i32, tuple: &iceberg::spec::Struct) -> Arc<Partition> {
        let partition = Partition::new(spec_id, tuple, self.promoted);
        if let Some(known) = self.known.get(&partition) {
            return Arc::clone(known);
        }
        let partition = Arc::new(partition);
        self.known.insert(Arc::clone(&partition));
        partition
    }
}

fn live(manifest: &Manifest) -> impl Iterator<Item = &ManifestEntry> {
    manifest.entries().iter().map(AsRef::as_ref).filter(|entry| entry.is_alive())
}

/// The data sequence number. An added file takes that of its manifest unless it has its own; in manifests from before
/// sequence numbers every file has 0.
fn sequence(of: &ManifestFile, entry: &ManifestEntry) -> Result<i64, FileProblem> {
    match entry.sequence_number() {
        Some(sequence) => Ok(sequence),
        None if entry.status() == ManifestStatus::Added || of.sequence_number == 0 => Ok(of.sequence_number),
        None => {
            let problem = format!("manifest {} does not say its sequence number", of.manifest_path);
            Err(FileProblem::corrupt(entry.file_path(), problem))
        }
    }
}

/// All that a manifest says of the columns of a file.
fn metrics(manifest: &str, file: &DataFile) -> Result<Box<[ColumnMetrics]>, FileProblem> {
    let mut columns: BTreeMap<i32, ColumnMetrics> = BTreeMap::new();
    let mut column = |field_id: i32, set: &mut dyn FnMut(&mut ColumnMetrics)| {
        set(columns.entry(field_id).or_insert_with(|| ColumnMetrics { field_id, ..ColumnMetrics::default() }));
    };
    file.value_counts().iter().for_each(|(id, count)| column(*id, &mut |of| of.value_count = Some(*count)));
    file.null_value_counts().iter().for_each(|(id, count)| column(*id, &mut |of| of.null_count = Some(*count)));
    file.nan_value_counts().iter().for_each(|(id, count)| column(*id, &mut |of| of.nan_count = Some(*count)));
    let bytes = |datum: &Datum| match datum.to_bytes() {
        Ok(bytes) => Ok(bytes.into_vec()),
        Err(error) => {
            let problem = format!("manifest {manifest} has a bound that is no value: {error}");
            Err(FileProblem::corrupt(file.file_path(), problem))
        }
    };
    for (id, bound) in file.lower_bounds() {
        let bytes = bytes(bound)?;
        column(*id, &mut |of| of.lower_bound = Some(bytes.clone()));
    }
    for (id, bound) in file.upper_bounds() {
        let bytes = bytes(bound)?;
        column(*id, &mut |of| of.upper_bound = Some(bytes.clone()));
    }
    Ok(columns.into_values().collect())
}

fn format(format: DataFileFormat) -> FileFormat {
    match format {
        DataFileFormat::Parquet => FileFormat::Parquet,
        DataFileFormat::Avro => FileFormat::Avro,
        DataFileFormat::Orc => FileFormat::Orc,
        DataFileFormat::Puffin => FileFormat::Puffin,
    }
}
