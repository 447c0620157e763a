//! An Avro object container: its header, and its blocks one after the other.

use std::collections::BTreeMap;

use super::Unreadable;
use super::codec::Codec;
use super::cursor::Cursor;

const MAGIC: &[u8] = b"Obj\x01";
/// Bytes of the marker that ends the header and each block.
const MARKER_BYTES: usize = 16;

/// An open file.
pub(super) struct Container<'a> {
    header: BTreeMap<&'a [u8], &'a [u8]>,
    marker: &'a [u8],
    codec: Codec,
    rest: Cursor<'a>,
    /// The last block, decompressed.
    scratch: Vec<u8>,
}

impl<'a> Container<'a> {
    /// Reads the header.
    pub(super) fn open(file: &'a [u8]) -> Result<Self, Unreadable> {
        let rest = file.strip_prefix(MAGIC);
        let mut rest = Cursor::new(rest.ok_or_else(|| Unreadable::damaged("it does not begin like an Avro file"))?);
        let mut header = BTreeMap::new();
        loop {
            let count = rest.part()?.count;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                let key = rest.bytes()?;
                header.insert(key, rest.bytes()?);
            }
        }
        let marker = rest.take(MARKER_BYTES)?;
        let codec = Codec::of(header.get(&b"avro.codec"[..]).copied().unwrap_or(b"null"))?;
        Ok(Self { header, marker, codec, rest, scratch: Vec::new() })
    }

    /// An entry of the header.
    pub(super) fn header(&self, key: &str) -> Option<&'a [u8]> {
        self.header.get(key.as_bytes()).copied()
    }

    /// The next block and how many entries it says to have; `None` at the end of the file.
    pub(super) fn next_block(&mut self) -> Result<Option<(u64, &[u8])>, Unreadable> {
        if self.rest.is_at_end() {
            return Ok(None);
        }
        let count = u64::try_from(self.rest.long()?);
        let count = count.map_err(|_| Unreadable::damaged("a block has a negative number of entries"))?;
        let block = self.rest.bytes()?;
        if self.rest.take(MARKER_BYTES)? != self.marker {
            return Err(Unreadable::damaged("a block does not end with the file's marker"));
        }
        Ok(Some((count, self.codec.decompress(block, &mut self.scratch)?)))
    }
}
