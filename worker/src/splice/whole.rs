//! A source file as carrying it over needs it: its footer, its columns, and its page indexes when it is spliced.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iceferry_common::model::{DataFile, EpochContext};
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{
    ColumnChunkMetaData, FooterTail, PageEncodingStats, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
};

use super::encrypted::has_encrypted_columns;
use crate::read::ReadError;
use crate::read::error::guarded;
use crate::read::fetch::{Fetcher, FileHandle};
use crate::read::file_schema::{FallbackIds, FileSchema};
use crate::read::footer::{OpenFile, chunk_bytes, start_tail};

/// A Parquet data file of the source whose footer has been read and checked.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(super) file: OpenFile,
    pub(super) schema: FileSchema,
    /// Whether the file itself has field ids.
    pub(super) has_ids: bool,
    pub(super) has_encrypted_columns: bool,
}

/// What is handed on of a file beside its footer.
#[derive(Debug)]
pub(super) struct Indexes {
    /// The footer with the page indexes, where the file has them for all of its columns.
    pub(super) metadata: Arc<ParquetMetaData>,
    /// The footer once more, with how many pages of each chunk have which encoding.
    with_encodings: Option<ParquetMetaData>,
}

impl Whole {
    /// Reads the footer. Blocks; not for async threads.
    pub(super) fn open(fetcher: &Fetcher, context: &EpochContext, file: &DataFile) -> Result<Self, ReadError> {
        let handle = FileHandle::new(&file.location, file.size_bytes);
        let tail = start_tail(fetcher, &handle);
        let source = &context.source;
        let ids = FallbackIds::of_table(&source.table, source.name_mapping.as_deref())?;
        let file = OpenFile::open(fetcher, &handle, tail)?;
        let (schema, _) = FileSchema::of_parquet(&handle.location, &file.metadata, &ids)?;
        let root = file.metadata.file_metadata().schema_descr().root_schema();
        let has_ids = root.get_fields().iter().any(|field| has_id(field));
        // What cannot be told is taken for the worse.
        let has_encrypted_columns = footer_bytes(&file).and_then(has_encrypted_columns).unwrap_or(true);
        Ok(Self { file, schema, has_ids, has_encrypted_columns })
    }

    /// Its location.
    pub(crate) fn location(&self) -> &str {
        &self.file.handle.location
    }

    /// The footer, without page indexes.
    pub(crate) fn footer(&self) -> &ParquetMetaData {
        &self.file.metadata
    }

    /// How many row groups it has.
    pub(crate) fn row_groups(&self) -> usize {
        self.footer().num_row_groups()
    }

    /// Rows in the whole file.
    pub(crate) fn row_count(&self) -> u64 {
        self.file.row_count()
    }

    /// Lets go of rows that came together with the footer: small files come whole. For callers that hold many files; what
    /// is spliced is asked for again then.
    pub(crate) fn trim(&mut self) {
        let file = &mut self.file;
        let tail_start = file.handle.size_bytes.saturating_sub(file.tail.len() as u64);
        let chunks = file.metadata.row_groups().iter().flat_map(|group| group.columns()).filter_map(chunk_bytes);
        let rows_end = chunks.map(|bytes| bytes.end).max().unwrap_or(0);
        let kept = usize::try_from(rows_end.saturating_sub(tail_start)).unwrap_or(0).min(file.tail.len());
        // A copy: a part of it would keep all of it.
        file.tail = Bytes::copy_from_slice(&file.tail[kept..]);
    }

    /// Positions in the file of a row group's rows.
    pub(crate) fn rows_of(&self, row_group: usize) -> Range<u64> {
        let start = self.file.row_starts[row_group];
        start..start + self.footer().row_group(row_group).num_rows().unsigned_abs()
    }

    /// Bytes of the chunks of a row group that a recipe keeps.
    pub(crate) fn bytes_of(&self, row_group: usize, recipe: &super::Recipe) -> u64 {
        let columns = self.footer().row_group(row_group).columns();
        recipe.file_leaves().map(|leaf| columns[leaf].compressed_size().unsigned_abs()).sum()
    }

    /// Reads the page indexes. Indexes that are damaged are left out, as if there were none: rows do not depend on them.
    pub(super) fn indexes(&self, fetcher: &Fetcher) -> Result<Indexes, ReadError> {
        let metadata = self.file.with_page_bounds(fetcher)?;
        let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        let with_encodings = footer_bytes(&self.file).and_then(|footer| {
            // The same bytes were decoded once already; what fails here is only left out.
            guarded(self.location(), || {
                ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options)).map_err(|source| {
                    let location = self.location().to_owned();
                    ReadError::Decode { act: "decode the footer", location, source }
                })
            })
            .ok()
        });
        Ok(Indexes { metadata, with_encodings })
    }
}

impl Indexes {
    /// How many pages of a chunk have which encoding, where the file says it.
    pub(super) fn encodings(&self, row_group: usize, leaf: usize) -> Option<&Vec<PageEncodingStats>> {
        let metadata = self.with_encodings.as_ref()?;
        let chunk: &ColumnChunkMetaData = metadata.row_groups().get(row_group)?.columns().get(leaf)?;
        chunk.page_encoding_stats()
    }
}

fn footer_bytes(file: &OpenFile) -> Option<&[u8]> {
    let end = file.tail.len().checked_sub(FOOTER_SIZE)?;
    let tail: [u8; FOOTER_SIZE] = file.tail[end..].try_into().ok()?;
    let length = FooterTail::try_new(&tail).ok()?.metadata_length();
    file.tail.get(end.checked_sub(length)?..end)
}

fn has_id(field: &parquet::schema::types::Type) -> bool {
    field.get_basic_info().has_id() || (field.is_group() && field.get_fields().iter().any(|field| has_id(field)))
}
