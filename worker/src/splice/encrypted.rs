//! Whether a footer that can be read tells of encrypted columns.
//!
//! The decoder of footers skips what it does not know, encryption among it, so the bytes are looked at once more: a footer
//! in Thrift's compact protocol whose eighth field is there (`FileMetaData.encryption_algorithm`) is one of a file with
//! encrypted columns.

const ENCRYPTION_ALGORITHM: i16 = 8;
/// Deeper than any footer; damaged bytes must not exhaust the stack.
const DEPTH_MAX: usize = 32;

/// Whether the file of this footer has encrypted columns; `None` for bytes that are no footer.
pub(super) fn has_encrypted_columns(footer: &[u8]) -> Option<bool> {
    let mut bytes = Cursor { rest: footer };
    let mut id = 0;
    while let Some((field, kind)) = bytes.field(id)? {
        if field == ENCRYPTION_ALGORITHM {
            return Some(true);
        }
        id = field;
        bytes.skip(kind, DEPTH_MAX)?;
    }
    Some(false)
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, length: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Id and kind of the next field of a struct; `Some(None)` at its end.
    fn field(&mut self, before: i16) -> Option<Option<(i16, u8)>> {
        let head = self.byte()?;
        let kind = head & 0x0F;
        if kind == 0 {
            return Some(None);
        }
        let id = match head >> 4 {
            0 => {
                let zigzag = self.varint()?;
                i16::try_from((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)).ok()?
            }
            delta => before.checked_add(i16::from(delta))?,
        };
        Some(Some((id, kind)))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A boolean field is its own value.
            1 | 2 => Some(()),
            3 => self.take(1),
            4..=6 => self.varint().map(drop),
            7 => self.take(8),
            8 => {
                let length = self.varint()?;
                self.take(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                self.elements(count, head & 0x0F, depth)
            }
            11 => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.elements(1, kinds >> 4, depth)?;
                    self.elements(1, kinds & 0x0F, depth)?;
                }
                Some(())
            }
            12 => {
                let mut id = 0;
                while let Some((field, kind)) = self.field(id)? {
                    id = field;
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            13 => self.take(16),
            _ => None,
        }
    }

    fn elements(&mut self, count: u64, kind: u8, depth: usize) -> Option<()> {
        match kind {
            // Booleans in a collection take a byte each.
            1 | 2 => self.take(count),
            // Whatever else takes no byte would be counted forever.
            _ => (0..count).try_for_each(|_| self.skip(kind, depth)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_of_encryption_is_found_behind_all_others_and_damage_is_no_answer() {
        // version: 2, a list of a struct with text, num_rows: 5, and then with or without field 8, an empty union.
        let before = [0x15, 0x04, 0x19, 0x1C, 0x48, 0x01, b'a', 0x00, 0x16, 0x0A];
        let plain: Vec<u8> = before.into_iter().chain([0x00]).collect();
        let encrypted: Vec<u8> = before.into_iter().chain([0x5C, 0x00, 0x00]).collect();
        assert_eq!(has_encrypted_columns(&plain), Some(false));
        assert_eq!(has_encrypted_columns(&encrypted), Some(true));
        assert_eq!(has_encrypted_columns(&plain[..plain.len() - 1]), None);
        assert_eq!(has_encrypted_columns(&[0x1C; 4096]), None);
        assert_eq!(has_encrypted_columns(&[0x19, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), None);
    }
}
