//! Blocks decompressed, up to a bound.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{DCtx, ResetDirective};

use super::Unreadable;

/// A block takes no more than this when it is decompressed. Writers end one after some 64 KiB, or after the whole manifest,
/// which by default is 8 MiB.
const BLOCK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What the output begins with and grows by at least.
const GROWTH_BYTES: usize = 64 * 1024;

/// Decompresses one block after another, and keeps what that takes.
pub(super) enum Codec {
    Null,
    Deflate(Decompress),
    Snappy(snap::raw::Decoder),
    Zstandard(DCtx<'static>),
}

impl Codec {
    /// The codec of this name.
    pub(super) fn of(name: &[u8]) -> Result<Self, Unreadable> {
        match name {
            b"null" => Ok(Self::Null),
            b"deflate" => Ok(Self::Deflate(Decompress::new(false))),
            b"snappy" => Ok(Self::Snappy(snap::raw::Decoder::new())),
            b"zstandard" => {
                let context = DCtx::try_create();
                context.map(Self::Zstandard).ok_or_else(|| Unreadable::damaged("there is no memory to decompress it"))
            }
            other => Err(Unreadable::Unsupported(format!(
                "the manifest is compressed with {:?}, which is not supported; rewrite the table's manifests with gzip",
                String::from_utf8_lossy(other)
            ))),
        }
    }

    /// The bytes of a block, in `scratch` unless they are not compressed.
    pub(super) fn decompress<'a>(&mut self, block: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Unreadable> {
        scratch.clear();
        match self {
            Self::Null => return Ok(block),
            Self::Deflate(decompress) => inflate(decompress, block, scratch)?,
            Self::Snappy(decoder) => snappy(decoder, block, scratch)?,
            Self::Zstandard(context) => zstandard(context, block, scratch)?,
        }
        Ok(scratch)
    }
}

fn wrong(error: impl std::fmt::Display) -> Unreadable {
    Unreadable::damaged(format!("a block cannot be decompressed: {error}"))
}

fn too_large() -> Unreadable {
    Unreadable::damaged(format!("a block has more than {BLOCK_BYTES_MAX} bytes"))
}

fn inflate(decompress: &mut Decompress, block: &[u8], into: &mut Vec<u8>) -> Result<(), Unreadable> {
    decompress.reset(false);
    loop {
        if into.len() == into.capacity() {
            let growth = into.len().max(GROWTH_BYTES).min((BLOCK_BYTES_MAX + 1).saturating_sub(into.len()));
            if growth == 0 {
                return Err(too_large());
            }
            into.reserve_exact(growth);
        }
        let taken = decompress.total_in() as usize;
        let status = decompress.decompress_vec(&block[taken..], into, FlushDecompress::None).map_err(wrong)?;
        let is_stuck = decompress.total_in() as usize == block.len() && into.len() < into.capacity();
        match status {
            Status::StreamEnd if into.len() > BLOCK_BYTES_MAX => return Err(too_large()),
            Status::StreamEnd => return Ok(()),
            Status::Ok | Status::BufError if is_stuck => return Err(wrong("it ends too early")),
            Status::Ok | Status::BufError => {}
        }
    }
}

/// A Snappy block ends with the checksum of what it holds.
fn snappy(decoder: &mut snap::raw::Decoder, block: &[u8], into: &mut Vec<u8>) -> Result<(), Unreadable> {
    let (compressed, checksum) = block.split_last_chunk::<4>().ok_or_else(|| wrong("it has no checksum"))?;
    let length = snap::raw::decompress_len(compressed).map_err(wrong)?;
    // It cannot be more than 64 bytes for each two.
    if length > BLOCK_BYTES_MAX || length > compressed.len().saturating_mul(32) {
        return Err(too_large());
    }
    into.resize(length, 0);
    let length = decoder.decompress(compressed, into).map_err(wrong)?;
    into.truncate(length);
    let (expected, actual) = (u32::from_be_bytes(*checksum), crc32fast::hash(into));
    if expected != actual {
        return Err(wrong(format!("its checksum is {actual:08x} and should be {expected:08x}")));
    }
    Ok(())
}

fn zstandard(context: &mut DCtx<'static>, block: &[u8], into: &mut Vec<u8>) -> Result<(), Unreadable> {
    context.reset(ResetDirective::SessionOnly).map_err(|code| wrong(zstd::zstd_safe::get_error_name(code)))?;
    let decoder = zstd::Decoder::with_context(block, context);
    decoder.take(BLOCK_BYTES_MAX as u64 + 1).read_to_end(into).map_err(wrong)?;
    if into.len() > BLOCK_BYTES_MAX {
        return Err(too_large());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The bytes as a block of this codec.
    fn compressed(codec: &str, bytes: &[u8]) -> Vec<u8> {
        super::super::tests::compress(codec, bytes)
    }

    #[test]
    fn blocks_of_every_codec_come_out_as_they_went_in() {
        for name in ["null", "deflate", "snappy", "zstandard"] {
            let mut codec = Codec::of(name.as_bytes()).unwrap();
            let mut scratch = Vec::new();
            for length in [0usize, 1, 1000, 70_000, 1_000_000, 3] {
                let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                let block = compressed(name, &bytes);
                assert_eq!(codec.decompress(&block, &mut scratch).unwrap(), bytes, "{name} {length}");
                if name != "null" && length > 0 {
                    let cut = &block[..block.len() - block.len().min(7)];
                    assert!(codec.decompress(cut, &mut scratch).is_err(), "{name} {length}, cut");
                }
            }
        }
        assert!(matches!(Codec::of(b"bzip2"), Err(Unreadable::Unsupported(_))));
    }

    #[test]
    fn a_block_that_swells_without_end_is_refused() {
        let chunk = vec![0; 1 << 20];
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..257).for_each(|_| deflate.write_all(&chunk).unwrap());
        let block = deflate.finish().unwrap();
        assert!(Codec::of(b"deflate").unwrap().decompress(&block, &mut Vec::new()).is_err());
        // A length of 4 GB in front of nothing.
        assert!(
            Codec::of(b"snappy")
                .unwrap()
                .decompress(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0], &mut Vec::new())
                .is_err()
        );
    }
}
