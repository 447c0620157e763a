//! One staged file while it is written.

use std::sync::Arc;

use arrow::array::RecordBatch;
use iceberg::spec::DataContentType;
use iceferry_common::entry;
use iceferry_common::model::{StagedContent, StagedFile};
use iceferry_common::storage::Storage;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use tokio::runtime::Handle;

use super::StageError;
use super::layout::Layout;
use super::metrics::{Closed, Holds, describe};
use super::nan::NanCounter;
use super::upload::{Ended, Sink, Upload};

/// How all files of one content are written.
#[derive(Debug)]
pub(super) struct Form {
    /// What they hold.
    pub(super) content: StagedContent,
    /// Their columns.
    pub(super) layout: Arc<Layout>,
    /// Settings of the encoder.
    pub(super) properties: WriterProperties,
    /// The fields that they delete by; empty for files that delete by none.
    pub(super) equality_ids: Vec<i32>,
    /// The data file that they are for, of position deletes.
    pub(super) referenced_data_file: Option<String>,
}

/// A file that rows can be added to. Dropped, it leaves nothing behind.
pub(super) struct OpenFile {
    location: String,
    writer: ArrowWriter<Sink>,
    /// Taken when the file is closed or fails.
    upload: Option<Upload>,
    nans: NanCounter,
}

/// A file that is encoded; its upload may still be under way.
pub(super) struct ClosedFile {
    pub(super) file: StagedFile,
    pub(super) upload: Upload,
}

impl OpenFile {
    /// Begins a file at `location`.
    pub(super) fn begin(
        form: &Form,
        storage: &Storage,
        runtime: &Handle,
        location: String,
    ) -> Result<Self, StageError> {
        let (upload, sink) = match Upload::begin(storage, runtime, &location) {
            Ok(begun) => begun,
            Err(source) => return Err(StageError::Upload { location, source: Box::new(source) }),
        };
        let options = ArrowWriterOptions::new()
            .with_properties(form.properties.clone())
            .with_parquet_schema(form.layout.parquet.clone())
            .with_skip_arrow_metadata(true);
        match ArrowWriter::try_new_with_options(sink, Arc::clone(&form.layout.arrow), options) {
            Ok(writer) => {
                let nans = NanCounter::new(&form.layout.leaves);
                Ok(Self { location, writer, upload: Some(upload), nans })
            }
            Err(source) => Err(StageError::Encode { location, source }),
        }
    }

    /// Encodes rows in the layout's columns.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        self.nans.add(rows.columns());
        self.writer.write(rows)
    }

    /// Closes the row group.
    pub(super) fn end_row_group(&mut self) -> Result<(), ParquetError> {
        self.writer.flush()
    }

    /// Memory that the row group in progress takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        // The encoder's own figure leaves out the finished pages of columns with a dictionary, which wait for it to be
        // complete; its estimate of the row group's size has them.
        self.writer.memory_size().max(self.writer.in_progress_size()) as u64
    }

    /// Encoded bytes of the row group in progress, as far as can be told.
    pub(super) fn row_group_bytes(&self) -> u64 {
        self.writer.in_progress_size() as u64
    }

    /// Bytes of the file so far, the row group in progress included.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64 + self.row_group_bytes()
    }

    /// Writes the footer and lets the upload complete. When that fails, the upload has ended.
    pub(super) fn close(mut self, form: &Form, runtime: &Handle) -> Result<ClosedFile, StageError> {
        let footer = match self.writer.finish() {
            Ok(footer) => footer,
            Err(error) => return Err(self.failed(error, runtime)),
        };
        // Before the upload is told to complete, so that a file that cannot be described is never there.
        let file = match self.describe(form, &footer) {
            Ok(file) => file,
            Err(source) => {
                self.end_upload(runtime);
                return Err(StageError::Describe { location: self.location.clone(), source: Box::new(source) });
            }
        };
        if let Err(error) = self.writer.inner_mut().complete() {
            return Err(self.failed(error.into(), runtime));
        }
        let upload = self.upload.take().ok_or_else(|| StageError::CutOff { location: self.location.clone() })?;
        Ok(ClosedFile { file, upload })
    }

    fn describe(&self, form: &Form, footer: &ParquetMetaData) -> iceberg::Result<StagedFile> {
        let closed = Closed {
            location: &self.location,
            size_bytes: self.writer.inner().written(),
            footer,
            nans: &self.nans,
            holds: Holds {
                content: match form.content {
                    StagedContent::EqualityDeletes => DataContentType::EqualityDeletes,
                    StagedContent::PositionDeletes | StagedContent::DeletionVector => DataContentType::PositionDeletes,
                    _ => DataContentType::Data,
                },
                equality_ids: &form.equality_ids,
                referenced_data_file: form.referenced_data_file.as_deref(),
            },
        };
        let data_file = describe(&form.layout, &closed)?;
        let record_count = data_file.record_count();
        Ok(StagedFile {
            location: self.location.clone(),
            content: form.content,
            record_count,
            size_bytes: closed.size_bytes,
            data_file: entry::encode(&data_file, None)?,
        })
    }

    /// What made a call on this file fail: the storage's own answer, if it was the storage. The upload has ended.
    pub(super) fn failed(mut self, error: ParquetError, runtime: &Handle) -> StageError {
        let location = self.location.clone();
        match self.end_upload(runtime) {
            Some(Ended::Failed(source)) => StageError::Upload { location, source: Box::new(source) },
            Some(Ended::CutOff) => StageError::CutOff { location },
            Some(Ended::Well) | None => StageError::Encode { location, source: error },
        }
    }

    fn end_upload(&mut self, runtime: &Handle) -> Option<Ended> {
        self.writer.inner_mut().discard();
        self.upload.take().map(|upload| runtime.block_on(upload.ended()))
    }

    /// Gives the file up. The upload ends on its own.
    pub(super) fn discard(mut self) -> Option<Upload> {
        self.writer.inner_mut().discard();
        self.upload.take()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // The encoder empties its buffers when it is dropped; they must not block an async thread that drops us.
        self.writer.inner_mut().discard();
    }
}
