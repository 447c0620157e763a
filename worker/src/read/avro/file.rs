//! Opening an Avro file: its header, and the schema in it.

use std::collections::HashMap;

use bytes::Bytes;

use super::super::ReadError;
use super::super::fetch::{Fetch, Fetcher, FileHandle};
use super::super::file_schema::{FallbackIds, FileSchema};
use super::codec::Codec;
use super::schema::{self, AvroType};
use super::stream::Stream;

const MAGIC: &[u8] = b"Obj\x01";
/// Bytes of the marker that ends the header and each block.
pub(super) const MARKER_BYTES: u64 = 16;
/// Bytes of one entry of the header at most: the largest is a schema.
const ENTRY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Entries of the header at most.
const ENTRIES_MAX: usize = 10_000;

/// An Avro file whose header has been read.
#[derive(Debug)]
pub(in super::super) struct AvroFile {
    pub(in super::super) handle: FileHandle,
    /// Its beginning.
    pub(super) head: Bytes,
    /// Where the first block begins.
    pub(super) data_start: u64,
    pub(super) codec: Codec,
    pub(super) marker: Bytes,
    /// The record that each row is.
    pub(super) row: AvroType,
}

impl AvroFile {
    /// Reads the header. `head` is what [`super::start_head`] began.
    pub(in super::super) fn open(
        fetcher: &Fetcher,
        handle: &FileHandle,
        head: Fetch,
        ids: &FallbackIds,
    ) -> Result<(Self, FileSchema), ReadError> {
        let location = &*handle.location;
        let head = head.wait()?;
        let mut stream = Stream::new(fetcher, handle, &head, 0, 0);
        if handle.size_bytes < MAGIC.len() as u64 || stream.take(MAGIC.len() as u64)? != MAGIC {
            return Err(ReadError::damaged(location, "it does not begin like an Avro file"));
        }
        let entries = header(location, &mut stream)?;
        let marker = stream.take(MARKER_BYTES)?;
        let codec = entries.get(&b"avro.codec"[..]).map_or(Ok(Codec::Null), |name| Codec::of(location, name))?;
        let json = entries.get(&b"avro.schema"[..]);
        let json = json.ok_or_else(|| ReadError::damaged(location, "its header has no schema"))?;
        let json = serde_json::from_slice(json)
            .map_err(|error| ReadError::damaged(location, format!("its schema is no JSON: {error}")))?;
        let row = schema::parse(&json)
            .map_err(|what| ReadError::unsupported(location, format!("its schema cannot be used: {what}")))?;
        let (fields, leaf_count) = schema::columns(&row)
            .ok_or_else(|| ReadError::unsupported(location, "its rows are no records, so it is no file of a table"))?;
        let schema = FileSchema::of_avro(location, fields, leaf_count, ids)?;
        let data_start = stream.offset();
        Ok((Self { handle: handle.clone(), head, data_start, codec, marker, row }, schema))
    }
}

/// The entries of the header, which is a map of bytes.
fn header(location: &str, stream: &mut Stream) -> Result<HashMap<Bytes, Bytes>, ReadError> {
    let damaged = |what: &str| ReadError::damaged(location, format!("its header {what}"));
    let text = |stream: &mut Stream| {
        let length = u64::try_from(stream.long()?).ok().filter(|length| *length <= ENTRY_BYTES_MAX);
        stream.take(length.ok_or_else(|| damaged("has an entry of no possible length"))?)
    };
    let mut entries = HashMap::new();
    loop {
        let count = stream.long()?;
        if count < 0 {
            stream.long()?;
        }
        if count == 0 {
            return Ok(entries);
        }
        for _ in 0..count.unsigned_abs() {
            let key = text(stream)?;
            entries.insert(key, text(stream)?);
            if entries.len() > ENTRIES_MAX {
                return Err(damaged("has too many entries"));
            }
        }
    }
}
