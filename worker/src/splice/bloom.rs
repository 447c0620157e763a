//! Bloom filters say themselves how long they are, where a footer does not.

/// The longest header of a bloom filter.
pub(super) const HEADER_BYTES: u64 = 32;

/// The length of a bloom filter with this beginning, header included: the one kind of filter that there is.
pub(super) fn length(head: &[u8]) -> Option<u64> {
    // In Thrift's compact protocol: the bytes of the filter as the first field, then three unions, each with its first
    // and only choice, an empty struct.
    const CHOICE: [u8; 4] = [0x1C, 0x1C, 0, 0];
    let rest = head.strip_prefix(&[0x15])?;
    let size = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let zigzag = rest[..size]
        .iter()
        .rev()
        .try_fold(0u64, |value, byte| value.checked_mul(128).map(|value| value | u64::from(byte & 0x7F)))?;
    let unions = rest[size..].strip_prefix(&CHOICE)?.strip_prefix(&CHOICE)?.strip_prefix(&CHOICE)?;
    let is_positive = zigzag % 2 == 0;
    (unions.first() == Some(&0) && is_positive).then_some(1 + size as u64 + 13 + zigzag / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_header_and_bits() {
        let header = |size: &[u8]| [&[0x15], size, &[0x1C, 0x1C, 0, 0].repeat(3)[..], &[0, 9, 9]].concat();
        // 32 bytes, 1,024 bytes; a negative size, and one that does not end.
        assert_eq!(length(&header(&[64])), Some(15 + 32));
        assert_eq!(length(&header(&[0x80, 0x10])), Some(16 + 1024));
        assert_eq!(length(&header(&[63])), None);
        assert_eq!(length(&[0x15, 0x80, 0x80]), None);
        assert_eq!(length(&header(&[64])[..10]), None);
        assert_eq!(length(b""), None);
    }
}
