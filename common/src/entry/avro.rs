//! Avro's binary encoding, as far as manifest entries need it.

use super::DamagedEntry;

/// Bytes of the marker between the blocks of a container file.
pub(super) const MARKER_BYTES: usize = 16;

/// Appends a number: zigzag, then seven bits to a byte.
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends bytes, or a text's, behind their number.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// Reads from the beginning of bytes, and never behind their end.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn long(&mut self, field: &'static str) -> Result<i64, DamagedEntry> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.rest.split_first() else { return Err(DamagedEntry::CutOff { field }) };
            self.rest = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(DamagedEntry::Impossible { field })
    }

    pub(super) fn count(&mut self, field: &'static str) -> Result<u64, DamagedEntry> {
        u64::try_from(self.long(field)?).map_err(|_| DamagedEntry::Impossible { field })
    }

    pub(super) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], DamagedEntry> {
        let length = usize::try_from(self.long(field)?).map_err(|_| DamagedEntry::Impossible { field })?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DamagedEntry::CutOff { field })?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a str, DamagedEntry> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| DamagedEntry::Impossible { field })
    }

    pub(super) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, DamagedEntry>,
    ) -> Result<Option<T>, DamagedEntry> {
        match self.long(field)? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(DamagedEntry::Impossible { field }),
        }
    }

    /// Passes over the items of an array; gives how many there were.
    pub(super) fn array(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<(), DamagedEntry>,
    ) -> Result<u64, DamagedEntry> {
        let mut items = 0;
        loop {
            // Each item takes a byte at least, so that a false number ends at the end of the bytes. Blocks that tell their
            // size have a negative number; our own encoder makes none.
            match self.count(field)? {
                0 => return Ok(items),
                count => {
                    for _ in 0..count {
                        item(self)?;
                    }
                    items += count;
                }
            }
        }
    }
}
