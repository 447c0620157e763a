//! A data or delete file that is open, whatever its format.

use std::sync::Arc;

use arrow::array::RecordBatch;
use iceferry_common::model::FileFormat;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;

use super::avro::{AvroFile, AvroRows, start_head};
use super::fetch::{Fetch, Fetcher, FileHandle};
use super::file_schema::{FallbackIds, FileSchema};
use super::filter::Chosen;
use super::footer::{OpenFile, start_tail};
use super::project::Projection;
use super::rows::{FileRows, Request};
use super::select::Rows;
use super::{ReadError, ReadOptions};

/// A file whose columns are known.
#[derive(Debug, Clone)]
pub(super) enum Opened {
    Parquet { file: Arc<OpenFile>, schema: Arc<FileSchema>, arrow: ArrowReaderMetadata },
    Avro { file: Arc<AvroFile>, schema: Arc<FileSchema> },
}

/// The chosen rows of a file.
pub(super) enum OpenedRows {
    Parquet(Box<FileRows>),
    Avro(Box<AvroRows>),
}

/// Asks for what [`Opened::open`] needs first, ahead of it; `None` for a format that is not read.
pub(super) fn start_open(fetcher: &Fetcher, file: &FileHandle, format: FileFormat) -> Option<Fetch> {
    match format {
        FileFormat::Parquet => Some(start_tail(fetcher, file)),
        FileFormat::Avro => Some(start_head(fetcher, file)),
        FileFormat::Orc | FileFormat::Puffin => None,
    }
}

impl Opened {
    /// Opens a file. `ahead` is what [`start_open`] began.
    pub(super) fn open(
        fetcher: &Fetcher,
        handle: &FileHandle,
        format: FileFormat,
        ahead: Option<Fetch>,
        ids: &FallbackIds,
    ) -> Result<Self, ReadError> {
        let ahead = ahead.or_else(|| start_open(fetcher, handle, format));
        match (format, ahead) {
            (FileFormat::Parquet, Some(tail)) => {
                let file = OpenFile::open(fetcher, handle, tail)?;
                let (schema, arrow) = FileSchema::of_parquet(&handle.location, &file.metadata, ids)?;
                Ok(Self::Parquet { file: Arc::new(file), schema: Arc::new(schema), arrow })
            }
            (FileFormat::Avro, Some(head)) => {
                let (file, schema) = AvroFile::open(fetcher, handle, head, ids)?;
                Ok(Self::Avro { file: Arc::new(file), schema: Arc::new(schema) })
            }
            (format, _) => {
                let what = format!("files in {format:?} are not supported: rewrite it as Parquet");
                Err(ReadError::unsupported(&handle.location, what))
            }
        }
    }

    pub(super) fn handle(&self) -> &FileHandle {
        match self {
            Self::Parquet { file, .. } => &file.handle,
            Self::Avro { file, .. } => &file.handle,
        }
    }

    pub(super) fn schema(&self) -> &Arc<FileSchema> {
        match self {
            Self::Parquet { schema, .. } | Self::Avro { schema, .. } => schema,
        }
    }

    /// Rows of the whole file, where it tells before it is read.
    pub(super) fn row_count(&self) -> Option<u64> {
        match self {
            Self::Parquet { file, .. } => Some(file.row_count()),
            Self::Avro { .. } => None,
        }
    }

    /// The row groups that `pick` takes of a Parquet file; an Avro file has none.
    pub(super) fn choose(&self, pick: impl FnOnce(&OpenFile, &FileSchema) -> Vec<usize>) -> Chosen {
        let row_groups = match self {
            Self::Parquet { file, schema, .. } => pick(file, schema),
            Self::Avro { .. } => Vec::new(),
        };
        Chosen { row_groups, ..Chosen::default() }
    }

    /// Begins to read rows of the columns of a projection: of what is chosen in a Parquet file, of the whole file in Avro.
    /// An Avro file that has not `record_count` rows is damaged.
    pub(super) fn rows(
        &self,
        projection: &Projection<'_>,
        chosen: Chosen,
        rows: Rows,
        record_count: Option<u64>,
        fetcher: &Fetcher,
        options: &ReadOptions,
    ) -> Result<OpenedRows, ReadError> {
        let wanted = projection.leaves();
        match self {
            Self::Parquet { file, arrow, .. } => {
                let leaves = (0..wanted.len()).filter(|leaf| wanted[*leaf]).collect();
                let request = Request {
                    leaves,
                    row_groups: chosen.row_groups,
                    rows,
                    within: chosen.within,
                    metadata: chosen.metadata,
                };
                let rows = FileRows::new(Arc::clone(file), arrow, request, fetcher, options)?;
                Ok(OpenedRows::Parquet(Box::new(rows)))
            }
            Self::Avro { file, schema } => {
                let rows = AvroRows::new(Arc::clone(file), schema, wanted, rows, record_count, fetcher, options);
                Ok(OpenedRows::Avro(Box::new(rows)))
            }
        }
    }
}

impl OpenedRows {
    /// The next rows, with the columns that were asked for as the file has them; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, ReadError> {
        match self {
            Self::Parquet(rows) => rows.next(),
            Self::Avro(rows) => rows.next(),
        }
    }

    /// The positions in the file of the rows of the batch that came last. To be asked for once for each batch, for all
    /// batches or for none.
    pub(super) fn positions(&mut self, rows: usize) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Parquet(of) => Box::new(of.positions(rows)),
            Self::Avro(of) => Box::new(of.positions(rows)),
        }
    }
}
