//! Blocks decompressed, up to a bound.

use std::io::Read;

use super::super::ReadError;

/// A block takes no more than this, compressed or not: it is held whole. Writers end a block after some 64 KiB, or after
/// one row that is larger.
pub(super) const BLOCK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How the blocks of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl Codec {
    /// The codec of this name.
    pub(super) fn of(location: &str, name: &[u8]) -> Result<Self, ReadError> {
        match name {
            b"null" => Ok(Self::Null),
            b"deflate" => Ok(Self::Deflate),
            b"snappy" => Ok(Self::Snappy),
            b"zstandard" => Ok(Self::Zstandard),
            other => {
                let other = String::from_utf8_lossy(other);
                let what =
                    format!("it is compressed with {other:?}, which is not supported: rewrite it with zstandard");
                Err(ReadError::unsupported(location, what))
            }
        }
    }

    /// The bytes of a block; what is wrong with them otherwise.
    pub(super) fn decompress(self, block: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Null => Ok(block.to_vec()),
            Self::Deflate => bounded(flate2::read::DeflateDecoder::new(block)),
            Self::Zstandard => {
                bounded(zstd::Decoder::with_buffer(block).map_err(|error| format!("a block is no Zstandard: {error}"))?)
            }
            Self::Snappy => snappy(block),
        }
    }
}

fn bounded(decoder: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    decoder
        .take(BLOCK_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("a block cannot be decompressed: {error}"))?;
    if bytes.len() as u64 > BLOCK_BYTES_MAX {
        return Err(too_large());
    }
    Ok(bytes)
}

/// A Snappy block ends with the checksum of what it holds.
fn snappy(block: &[u8]) -> Result<Vec<u8>, String> {
    let (compressed, checksum) = block.split_last_chunk::<4>().ok_or("a block is too short for its checksum")?;
    let wrong = |error: snap::Error| format!("a block cannot be decompressed: {error}");
    if snap::raw::decompress_len(compressed).map_err(wrong)? as u64 > BLOCK_BYTES_MAX {
        return Err(too_large());
    }
    let bytes = snap::raw::Decoder::new().decompress_vec(compressed).map_err(wrong)?;
    let (expected, actual) = (u32::from_be_bytes(*checksum), crc32fast::hash(&bytes));
    if expected != actual {
        return Err(format!("a block's checksum is {actual:08x} and should be {expected:08x}"));
    }
    Ok(bytes)
}

fn too_large() -> String {
    format!("a block has more than {BLOCK_BYTES_MAX} bytes")
}
