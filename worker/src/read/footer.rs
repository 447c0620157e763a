//! Opening a Parquet file: its footer, checked as far as reading leans on it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iceferry_common::fault::chain;
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{
    ColumnChunkMetaData, FooterTail, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
};
use parquet::file::reader::{ChunkReader, Length};

use super::ReadError;
use super::error::guarded;
use super::fetch::{Fetch, Fetcher, FileHandle};

/// Bytes that the first request takes from the end of a file: most footers lie in it, page indexes often too.
const TAIL_BYTES: u64 = 64 * 1024;
/// A file up to this size is fetched whole by the first request.
const WHOLE_FILE_BYTES: u64 = 1024 * 1024;
/// The shortest Parquet file: magic, empty footer, its length, magic.
const FILE_BYTES_MIN: u64 = 12;

/// A Parquet file whose footer has been read and checked.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: FileHandle,
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// The end of the file, of which the footer is a part.
    pub(crate) tail: Bytes,
    /// Position in the file of each row group's first row. Counted from the rows of the groups before it, in the order
    /// of the footer: the `ordinal` of a row group is the writer's word and nothing leans on it.
    pub(crate) row_starts: Vec<u64>,
}

/// Asks for the end of a file, ahead of [`OpenFile::open`].
pub(crate) fn start_tail(fetcher: &Fetcher, file: &FileHandle) -> Fetch {
    let size = file.size_bytes;
    let tail = if size <= WHOLE_FILE_BYTES { size } else { TAIL_BYTES };
    fetcher.start(file, size - tail..size)
}

impl OpenFile {
    /// Reads and checks the footer. `tail` is what [`start_tail`] began.
    pub(crate) fn open(fetcher: &Fetcher, handle: &FileHandle, tail: Fetch) -> Result<Self, ReadError> {
        let location = &*handle.location;
        if handle.size_bytes < FILE_BYTES_MIN {
            return Err(ReadError::damaged(location, format!("{} bytes are no Parquet file", handle.size_bytes)));
        }
        let mut tail = tail.wait()?;
        let footer: [u8; FOOTER_SIZE] = tail[tail.len() - FOOTER_SIZE..]
            .try_into()
            .map_err(|_| ReadError::damaged(location, "its end is missing"))?;
        let footer = FooterTail::try_new(&footer)
            .map_err(|_| ReadError::damaged(location, "it does not end like a Parquet file"))?;
        if footer.is_encrypted_footer() {
            return Err(ReadError::unsupported(location, "its footer is encrypted, and encryption is not supported"));
        }
        let footer_bytes = footer.metadata_length() as u64;
        let with_tail = footer_bytes.saturating_add(FOOTER_SIZE as u64);
        if with_tail > handle.size_bytes {
            let what = format!("its footer claims {footer_bytes} of the file's {} bytes", handle.size_bytes);
            return Err(ReadError::damaged(location, what));
        }
        if with_tail > tail.len() as u64 {
            tail = fetcher.start(handle, handle.size_bytes - with_tail..handle.size_bytes).wait()?;
        }
        let start = tail.len() - with_tail as usize;
        let metadata = guarded(location, || {
            ParquetMetaDataReader::decode_metadata(&tail[start..tail.len() - FOOTER_SIZE])
                .map_err(|source| ReadError::Decode { act: "decode the footer", location: location.to_owned(), source })
        })?;
        let metadata = with_real_dictionaries(metadata);
        let row_starts = check(handle, &metadata)?;
        Ok(Self { handle: handle.clone(), metadata: Arc::new(metadata), tail, row_starts })
    }

    /// Positions of a row group's rows in the file.
    pub(super) fn rows_of(&self, row_group: usize) -> Range<u64> {
        let start = self.row_starts[row_group];
        start..start + rows(&self.metadata, row_group)
    }

    /// Rows in the whole file.
    pub(crate) fn row_count(&self) -> u64 {
        self.row_starts.last().map_or(0, |start| start + rows(&self.metadata, self.row_starts.len() - 1))
    }

    /// The metadata with the offset index, which says where pages begin and lets whole pages be left out. The metadata
    /// as it is when the file has none, or one that is damaged: some writers get it wrong, and rows do not depend on it.
    pub(super) fn with_page_locations(&self, fetcher: &Fetcher) -> Result<Arc<ParquetMetaData>, ReadError> {
        self.with_page_indexes(fetcher, PageIndexPolicy::Skip)
    }

    /// The same with the column index too, which has bounds of the pages.
    pub(crate) fn with_page_bounds(&self, fetcher: &Fetcher) -> Result<Arc<ParquetMetaData>, ReadError> {
        self.with_page_indexes(fetcher, PageIndexPolicy::Optional)
    }

    fn with_page_indexes(
        &self,
        fetcher: &Fetcher,
        column_index: PageIndexPolicy,
    ) -> Result<Arc<ParquetMetaData>, ReadError> {
        let location = &*self.handle.location;
        let read = || {
            let mut reader = ParquetMetaDataReader::new_with_metadata(ParquetMetaData::clone(&self.metadata))
                .with_column_index_policy(column_index)
                .with_offset_index_policy(PageIndexPolicy::Optional);
            let source = IndexSource { file: self, fetcher, failure: std::sync::Mutex::new(None) };
            let read = reader.read_page_indexes(&source).and_then(|()| reader.finish());
            read.map_err(|error| match source.failure.into_inner() {
                Ok(Some(failure)) => failure,
                _ => {
                    let location = location.to_owned();
                    ReadError::Decode { act: "decode the page index", location, source: error }
                }
            })
        };
        let checked = guarded(location, read).and_then(|metadata| {
            check_page_locations(&self.handle, &metadata)?;
            Ok(Arc::new(metadata))
        });
        match checked {
            Err(error @ (ReadError::Decode { .. } | ReadError::Damaged { .. })) => {
                tracing::warn!(location, error = %chain(&error), "a page index that is damaged is left out");
                Ok(Arc::clone(&self.metadata))
            }
            checked => checked,
        }
    }
}

fn rows(metadata: &ParquetMetaData, row_group: usize) -> u64 {
    // Never negative: `check` saw to that.
    metadata.row_group(row_group).num_rows().unsigned_abs()
}

/// The bytes of a column chunk, dictionary page included, where the decoder looks for them. `None` when the footer's
/// numbers are no range.
pub(crate) fn chunk_bytes(column: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let data = u64::try_from(column.data_page_offset()).ok()?;
    let start = match column.dictionary_page_offset() {
        None => data,
        // A dictionary page comes before the data pages, and nothing but the file's magic is at 0.
        Some(offset) => u64::try_from(offset).ok().filter(|offset| (1..=data).contains(offset))?,
    };
    let length = u64::try_from(column.compressed_size()).ok()?;
    Some(start..start.checked_add(length)?)
}

/// Old writers have a dictionary page at 0, the place of the file's magic, where there is none.
fn with_real_dictionaries(metadata: ParquetMetaData) -> ParquetMetaData {
    let is_none = |column: &ColumnChunkMetaData| column.dictionary_page_offset() == Some(0);
    if !metadata.row_groups().iter().any(|group| group.columns().iter().any(is_none)) {
        return metadata;
    }
    let groups = metadata.row_groups().iter().map(|group| {
        let columns = group.columns().iter().map(|column| match is_none(column) {
            true => column.clone().into_builder().set_dictionary_page_offset(None).build(),
            false => Ok(column.clone()),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        group.clone().into_builder().set_column_metadata(columns).build()
    });
    match groups.collect::<Result<Vec<_>, _>>() {
        Ok(groups) => ParquetMetaData::new(metadata.file_metadata().clone(), groups),
        // It is checked as it is.
        Err(_) => metadata,
    }
}

/// Checks the numbers that reading leans on, and gives the first row of each row group.
fn check(handle: &FileHandle, metadata: &ParquetMetaData) -> Result<Vec<u64>, ReadError> {
    let damaged = |what: String| ReadError::damaged(&handle.location, what);
    let mut row_starts = Vec::with_capacity(metadata.num_row_groups());
    let mut next = 0u64;
    for (index, row_group) in metadata.row_groups().iter().enumerate() {
        row_starts.push(next);
        next = u64::try_from(row_group.num_rows())
            .ok()
            .and_then(|rows| next.checked_add(rows))
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| damaged(format!("row group {index} claims {} rows", row_group.num_rows())))?;
        // A row group without rows need not have pages; it is never read.
        for column in row_group.columns().iter().filter(|_| row_group.num_rows() > 0) {
            if chunk_bytes(column).is_none_or(|bytes| bytes.end > handle.size_bytes) {
                let name = column.column_path().string();
                return Err(damaged(format!("the bytes of column {name} in row group {index} are not in the file")));
            }
        }
    }
    if next != metadata.file_metadata().num_rows().max(0) as u64 {
        let total = metadata.file_metadata().num_rows();
        return Err(damaged(format!("its row groups have {next} rows and its footer says {total}")));
    }
    Ok(row_starts)
}

/// A wrong offset index would make the decoder give wrong rows without an error.
fn check_page_locations(handle: &FileHandle, metadata: &ParquetMetaData) -> Result<(), ReadError> {
    let Some(index) = metadata.offset_index() else { return Ok(()) };
    let with_rows = metadata.row_groups().iter().zip(index).filter(|(row_group, _)| row_group.num_rows() > 0);
    for (row_group, columns) in with_rows {
        for (column, offsets) in row_group.columns().iter().zip(columns) {
            let pages = offsets.page_locations();
            let ascending = pages.windows(2).all(|pair| {
                pair[0].first_row_index < pair[1].first_row_index
                    && pair[0].offset.saturating_add(i64::from(pair[0].compressed_page_size)) <= pair[1].offset
            });
            let first = pages.first().is_none_or(|page| page.first_row_index == 0);
            let last = pages.last().is_none_or(|page| page.first_row_index < row_group.num_rows().max(1));
            let chunk = chunk_bytes(column).unwrap_or_default();
            let inside = pages.iter().all(|page| {
                let (start, length) = (u64::try_from(page.offset), u64::try_from(page.compressed_page_size));
                matches!((start, length), (Ok(start), Ok(length))
                    if start >= chunk.start && start.saturating_add(length) <= chunk.end)
            });
            if !(ascending && first && last && inside) {
                let what = format!("the offset index of column {} contradicts itself", column.column_path().string());
                return Err(ReadError::damaged(&handle.location, what));
            }
        }
    }
    Ok(())
}

/// Gives the index decoder its bytes: from the tail when they lie there, else by a request.
struct IndexSource<'a> {
    file: &'a OpenFile,
    fetcher: &'a Fetcher,
    failure: std::sync::Mutex<Option<ReadError>>,
}

impl Length for IndexSource<'_> {
    fn len(&self) -> u64 {
        self.file.handle.size_bytes
    }
}

impl ChunkReader for IndexSource<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let length = self.file.handle.size_bytes.saturating_sub(start);
        Ok(bytes::Buf::reader(self.get_bytes(start, length as usize)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let tail_start = self.file.handle.size_bytes - self.file.tail.len() as u64;
        let end = start.saturating_add(length as u64);
        if start >= tail_start && end <= self.file.handle.size_bytes {
            return Ok(self.file.tail.slice((start - tail_start) as usize..(end - tail_start) as usize));
        }
        self.fetcher.start(&self.file.handle, start..end).wait().map_err(|error| {
            let text = error.to_string();
            if let Ok(mut failure) = self.failure.lock() {
                failure.get_or_insert(error);
            }
            ParquetError::General(text)
        })
    }
}
