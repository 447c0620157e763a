//! Values of Avro's binary encoding, taken from bytes that nobody vouches for.

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// Bytes that are still to be decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The beginning of a part of an array or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its items; none at the end of the array or map.
    pub(super) count: u64,
    /// Their bytes, where the writer tells.
    pub(super) bytes: Option<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes from here to where `later` stands, a cursor on the same bytes that has gone further.
    pub(super) fn until(&self, later: &Self) -> &'a [u8] {
        &self.rest[..self.rest.len().saturating_sub(later.rest.len())]
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Broken("a value goes beyond its block"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Broken("a value goes beyond its block"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Int or long: zigzag, seven bits a byte, the lowest first. Most numbers of a manifest take one byte.
    #[inline]
    pub(super) fn long(&mut self) -> Result<i64, Broken> {
        match self.rest.split_first() {
            Some((byte, rest)) if byte & 0x80 == 0 => {
                self.rest = rest;
                Ok(unzigzag(u64::from(*byte)))
            }
            _ => self.long_of_several_bytes(),
        }
    }

    fn long_of_several_bytes(&mut self) -> Result<i64, Broken> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            if index == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(unzigzag(value));
            }
        }
        Err(if self.rest.len() < 10 {
            Broken("a number goes beyond its block")
        } else {
            Broken("a number does not fit 64 bits")
        })
    }

    /// Passes over an int or long.
    #[inline]
    pub(super) fn skip_long(&mut self) -> Result<(), Broken> {
        self.long().map(drop)
    }

    pub(super) fn int(&mut self) -> Result<i32, Broken> {
        i32::try_from(self.long()?).map_err(|_| Broken("an int does not fit 32 bits"))
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Broken> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(Broken("a boolean is neither true nor false")),
        }
    }

    /// A length, or a number of bytes.
    pub(super) fn length(&mut self) -> Result<usize, Broken> {
        usize::try_from(self.long()?).map_err(|_| Broken("a length is negative"))
    }

    /// Bytes behind their length.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Broken> {
        let length = self.length()?;
        self.take(length)
    }

    /// Which of so many branches of a union or symbols of an enum.
    #[inline]
    pub(super) fn index(&mut self, count: usize) -> Result<usize, Broken> {
        let index = usize::try_from(self.long()?).ok();
        index.filter(|index| *index < count).ok_or(Broken("a union or enum names a branch that its schema lacks"))
    }

    /// The beginning of the next part of an array or map.
    #[inline]
    pub(super) fn part(&mut self) -> Result<Part, Broken> {
        let count = self.long()?;
        let bytes = if count < 0 { Some(self.length()?) } else { None };
        Ok(Part { count: count.unsigned_abs(), bytes })
    }
}

fn unzigzag(value: u64) -> i64 {
    ((value >> 1) ^ (value & 1).wrapping_neg()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_and_cut_or_endless_ones_are_told() {
        let cases: [(&[u8], i64); 7] = [
            (&[0], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x7f], -64),
            (&[0x80, 1], 64),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], i64::MIN),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], i64::MAX),
        ];
        for (bytes, expected) in cases {
            let mut cursor = Cursor::new(bytes);
            assert_eq!((cursor.long(), cursor.is_at_end()), (Ok(expected), true), "{bytes:?}");
            assert!(Cursor::new(&bytes[..bytes.len() - 1]).long().is_err(), "{bytes:?} cut short");
        }
        assert!(Cursor::new(&[0xff; 20]).long().is_err(), "longer than any number");
        assert!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x10]).int().is_err(), "beyond 32 bits");
    }

    #[test]
    fn what_goes_beyond_its_block_is_told() {
        assert!(Cursor::new(&[4, b'a']).bytes().is_err());
        assert!(Cursor::new(&[1]).bytes().is_err(), "a negative length");
        assert!(Cursor::new(&[2]).boolean().is_err());
        assert!(Cursor::new(&[4]).index(2).is_err());
        assert_eq!(Cursor::new(&[3, 20]).part(), Ok(Part { count: 2, bytes: Some(10) }));
        assert_eq!(Cursor::new(&[4]).part(), Ok(Part { count: 2, bytes: None }));
    }
}
