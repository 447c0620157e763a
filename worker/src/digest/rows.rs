//! Hashes of single rows on their way into a temporary file: in runs, and in each run page after page, so that the rows of
//! a few buckets can be read back on their own.

use std::io::{self, Write};

use iceferry_common::model::digest::{RowHash, Run, page_bits, page_of};
use iceferry_common::model::{StagedContent, StagedFile};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;

use super::DigestError;
use crate::stage::upload::{Ended, Sink, Upload};

/// Writes hashes of rows. It holds as many as one run has.
pub(super) struct RowHashWriter {
    location: String,
    runtime: Handle,
    bucket_bits: u8,
    pages: Vec<Vec<u8>>,
    held_bytes: u64,
    run_bytes: u64,
    runs: Vec<Run>,
    rows: u64,
    upload: Option<(Upload, Sink)>,
}

impl RowHashWriter {
    /// Begins a file whose runs have about `run_bytes` bytes.
    pub(super) fn begin(
        storage: &Storage,
        runtime: Handle,
        location: String,
        bucket_bits: u8,
        run_bytes: u64,
    ) -> Result<Self, DigestError> {
        let upload = match Upload::begin(storage, &runtime, &location) {
            Ok(begun) => Some(begun),
            Err(source) => return Err(DigestError::Write { location, source: Box::new(source) }),
        };
        let pages = vec![Vec::new(); 1 << page_bits(bucket_bits)];
        // Where a row is in its run is a number of 32 bits.
        let run_bytes = run_bytes.clamp(RowHash::BYTES as u64, u64::from(u32::MAX / 2));
        Ok(Self { location, runtime, bucket_bits, pages, held_bytes: 0, run_bytes, runs: Vec::new(), rows: 0, upload })
    }

    /// Adds a row; false when its place cannot be written.
    pub(super) fn add(&mut self, row: RowHash) -> Result<bool, DigestError> {
        let Some(bytes) = row.to_bytes() else { return Ok(false) };
        self.pages[page_of(row.key, self.bucket_bits)].extend_from_slice(&bytes);
        self.held_bytes += bytes.len() as u64;
        if self.held_bytes >= self.run_bytes {
            self.end_run()?;
        }
        Ok(true)
    }

    /// Completes the file. Without rows there is none.
    pub(super) fn finish(mut self) -> Result<(Option<StagedFile>, Vec<Run>), DigestError> {
        self.end_run()?;
        if self.rows == 0 {
            self.abort();
            return Ok((None, Vec::new()));
        }
        let size_bytes = self.upload.as_ref().map_or(0, |(_, sink)| sink.written());
        if let Some((_, sink)) = &mut self.upload
            && let Err(error) = sink.complete()
        {
            return Err(self.failed(error));
        }
        match self.ended() {
            Ended::Well => {}
            Ended::Failed(source) => return Err(self.refused(source)),
            Ended::CutOff => return Err(self.failed(io::ErrorKind::BrokenPipe.into())),
        }
        let file = StagedFile {
            location: self.location,
            content: StagedContent::RowHashes,
            record_count: self.rows,
            size_bytes,
            data_file: Default::default(),
        };
        Ok((Some(file), self.runs))
    }

    /// Gives the file up; nothing of it is left.
    pub(super) fn abort(&mut self) {
        if let Ended::Failed(error) = self.ended() {
            tracing::debug!(location = self.location, %error, "upload of a given up file failed");
        }
    }

    fn end_run(&mut self) -> Result<(), DigestError> {
        if self.held_bytes == 0 {
            return Ok(());
        }
        let mut rows = 0u32;
        let mut page_ends = Vec::with_capacity(self.pages.len());
        let mut written = Ok(());
        for page in &mut self.pages {
            rows += (page.len() / RowHash::BYTES) as u32;
            page_ends.push(rows);
            if let Some((_, sink)) = &mut self.upload {
                written = written.and_then(|()| sink.write_all(page));
            }
            page.clear();
        }
        self.runs.push(Run { start: self.rows, page_ends });
        self.rows += u64::from(rows);
        self.held_bytes = 0;
        written.map_err(|error| self.failed(error))
    }

    /// Waits for the upload to end; one that was not completed is aborted by it.
    fn ended(&mut self) -> Ended {
        match self.upload.take() {
            Some((upload, sink)) => {
                drop(sink);
                self.runtime.block_on(upload.ended())
            }
            None => Ended::Well,
        }
    }

    /// What the storage says of an upload that takes nothing more.
    fn failed(&mut self, error: io::Error) -> DigestError {
        match self.ended() {
            Ended::Failed(source) => self.refused(source),
            Ended::Well | Ended::CutOff => DigestError::CutOff { location: self.location.clone(), source: error },
        }
    }

    fn refused(&self, source: iceferry_common::storage::StorageError) -> DigestError {
        DigestError::Write { location: self.location.clone(), source: Box::new(source) }
    }
}
