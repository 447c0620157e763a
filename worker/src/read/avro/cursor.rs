//! Values of Avro's binary encoding, taken from bytes that nobody vouches for.

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// The bytes of a block that are still to be decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The beginning of a part of an array or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Items {
    /// Items of the part; none at the end of the array or map.
    pub(super) count: u64,
    /// Their bytes, where the writer tells.
    pub(super) bytes: Option<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Broken("a value goes beyond its block"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Broken("a value goes beyond its block"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn long(&mut self) -> Result<i64, Broken> {
        let (value, length) = varint(self.rest)?.ok_or(Broken("a number goes beyond its block"))?;
        self.rest = &self.rest[length..];
        Ok(value)
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

    pub(super) fn float(&mut self) -> Result<f32, Broken> {
        self.array().map(f32::from_le_bytes)
    }

    pub(super) fn double(&mut self) -> Result<f64, Broken> {
        self.array().map(f64::from_le_bytes)
    }

    /// Bytes behind their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Broken> {
        let length = self.long()?;
        self.take(usize::try_from(length).map_err(|_| Broken("a length is negative"))?)
    }

    /// Which of so many branches of a union or symbols of an enum.
    pub(super) fn index(&mut self, count: usize) -> Result<usize, Broken> {
        let index = usize::try_from(self.long()?).ok();
        index.filter(|index| *index < count).ok_or(Broken("a union or enum names a branch that its schema lacks"))
    }

    /// The beginning of the next part of an array or map.
    pub(super) fn items(&mut self) -> Result<Items, Broken> {
        let count = self.long()?;
        if count >= 0 {
            return Ok(Items { count: count.unsigned_abs(), bytes: None });
        }
        let bytes = usize::try_from(self.long()?).map_err(|_| Broken("a length is negative"))?;
        Ok(Items { count: count.unsigned_abs(), bytes: Some(bytes) })
    }
}

/// Bytes of a number at most.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// The number that bytes begin with, and its length; `None` when the bytes end before it does.
pub(super) fn varint(bytes: &[u8]) -> Result<Option<(i64, usize)>, Broken> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        if index == VARINT_BYTES_MAX - 1 && *byte > 1 {
            return Err(Broken("a number does not fit 64 bits"));
        }
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let sign = (value & 1).wrapping_neg();
            return Ok(Some((((value >> 1) ^ sign) as i64, index + 1)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_varints() {
        let cases: [(&[u8], i64); 7] = [
            (&[0], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x7F], -64),
            (&[0x80, 1], 64),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], i64::MIN),
            (&[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], i64::MAX),
        ];
        for (bytes, expected) in cases {
            let mut cursor = Cursor::new(bytes);
            assert_eq!((cursor.long(), cursor.left()), (Ok(expected), 0), "{bytes:?}");
            assert!(Cursor::new(&bytes[..bytes.len() - 1]).long().is_err(), "{bytes:?} cut short");
        }
        assert!(Cursor::new(&[0xFF; 20]).long().is_err(), "longer than any number");
        assert!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x10]).int().is_err(), "beyond 32 bits");
    }

    #[test]
    fn what_does_not_fit_its_block_is_told() {
        assert!(Cursor::new(&[4, b'a']).bytes().is_err());
        assert!(Cursor::new(&[1]).bytes().is_err(), "a negative length");
        assert!(Cursor::new(&[0, 0, 0]).float().is_err());
        assert!(Cursor::new(&[2]).boolean().is_err());
        assert!(Cursor::new(&[4]).index(2).is_err());
        assert_eq!(Cursor::new(&[3, 20]).items(), Ok(Items { count: 2, bytes: Some(10) }));
    }
}
