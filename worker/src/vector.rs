//! Deletion vectors: the positions of one data file's deleted rows, as a blob in a Puffin file.
//!
//! A blob is: length of magic and bitmap (big-endian u32), magic, bitmap (64-bit Roaring, portable serialization),
//! CRC-32 of magic and bitmap (big-endian u32).

use roaring::RoaringTreemap;

const MAGIC: [u8; 4] = [0xD1, 0xD3, 0x39, 0x64];
/// Length, magic, an empty bitmap's count, checksum.
pub(crate) const BLOB_BYTES_MIN: u64 = 4 + 4 + 8 + 4;

/// Positions as a blob; `None` when they take more than such a blob can.
pub(crate) fn encode(mut positions: RoaringTreemap) -> Option<Vec<u8>> {
    positions.optimize();
    let mut blob = vec![0; 4];
    blob.extend_from_slice(&MAGIC);
    positions.serialize_into(&mut blob).ok()?;
    let content = &blob[4..];
    let (length, checksum) = (u32::try_from(content.len()).ok()?, crc32fast::hash(content));
    blob[..4].copy_from_slice(&length.to_be_bytes());
    blob.extend_from_slice(&checksum.to_be_bytes());
    Some(blob)
}

/// The positions in a blob; what is wrong with it otherwise.
pub(crate) fn decode(blob: &[u8], cardinality: u64) -> Result<RoaringTreemap, String> {
    let (length, rest) = blob.split_first_chunk::<4>().ok_or("the vector is cut short")?;
    let (content, checksum) = rest.split_last_chunk::<4>().ok_or("the vector is cut short")?;
    let length = u32::from_be_bytes(*length);
    if length as usize != content.len() {
        return Err(format!("the vector's length is {length} and {} bytes are there", content.len()));
    }
    let mut bitmap = content.strip_prefix(&MAGIC).ok_or("the vector does not begin like one")?;
    let (expected, actual) = (u32::from_be_bytes(*checksum), crc32fast::hash(content));
    if expected != actual {
        return Err(format!("the vector's checksum is {actual:08x} and should be {expected:08x}"));
    }
    let positions =
        RoaringTreemap::deserialize_from(&mut bitmap).map_err(|error| format!("the vector's bitmap: {error}"))?;
    if !bitmap.is_empty() {
        return Err(format!("{} bytes follow the vector's bitmap", bitmap.len()));
    }
    if positions.len() != cardinality {
        return Err(format!("the vector has {} positions and its manifest says {cardinality}", positions.len()));
    }
    Ok(positions)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn blob(positions: &RoaringTreemap) -> Vec<u8> {
        encode(positions.clone()).unwrap()
    }

    #[test]
    fn a_vector_comes_back_as_it_was() {
        for positions in [vec![], vec![0], vec![1, 5, 70_000, 1 << 33, (1 << 40) + 3], (0..100_000).collect()] {
            let positions: RoaringTreemap = positions.into_iter().collect();
            assert_eq!(decode(&blob(&positions), positions.len()), Ok(positions));
        }
    }

    #[test]
    fn another_writers_bytes_are_understood() {
        // Positions 1 and 3 as Iceberg's Java library serializes them: one 32-bit bitmap with key 0, one array
        // container of two values.
        let content: [u8; 36] = [
            0xD1, 0xD3, 0x39, 0x64, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3A, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 16,
            0, 0, 0, 1, 0, 3, 0,
        ];
        let mut blob = 36u32.to_be_bytes().to_vec();
        blob.extend_from_slice(&content);
        blob.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
        let positions: RoaringTreemap = [1, 3].into_iter().collect();
        assert_eq!(decode(&blob, 2), Ok(positions.clone()));
        assert_eq!(encode(positions), Some(blob));
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let positions: RoaringTreemap = [3, 8, 70_000].into_iter().collect();
        let good = blob(&positions);
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x40;
            assert!(decode(&bad, 3).is_err(), "byte {index} changed");
            assert!(decode(&good[..index], 3).is_err(), "cut to {index} bytes");
        }
        assert!(decode(&good, 2).is_err(), "another cardinality");
    }

    #[test]
    fn a_huge_count_in_a_small_blob_allocates_nothing() {
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(&u64::MAX.to_le_bytes());
        content.extend_from_slice(&[0xFF; 16]);
        let mut blob = (content.len() as u32).to_be_bytes().to_vec();
        blob.extend_from_slice(&content);
        blob.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
        assert!(decode(&blob, 1).is_err());
    }
}
