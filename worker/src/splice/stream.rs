//! Bytes of source files, read ahead in blocks and handed on, so that reading and writing overlap and no chunk is ever
//! held as a whole.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;

use super::Whole;
use super::layout::Piece;
use crate::read::ReadError;
use crate::read::fetch::{Fetch, Fetcher};
use crate::stage::upload::Sink;

/// Bytes of one request: enough that requests are not what it costs.
const BLOCK_BYTES: u64 = 1024 * 1024;
/// Blocks that are asked for before they are written.
const BLOCKS_AHEAD: usize = 6;
/// What is shorter is copied into the sink's own blocks.
const SHORT_BYTES: usize = 64 * 1024;

/// What stopped a stream.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The source.
    Read(ReadError),
    /// The sink.
    Write(io::Error),
}

enum Block {
    Asked(Fetch),
    There(Bytes),
}

/// Writes the pieces. Blocks; not for async threads.
pub(super) fn write(pieces: &[Piece], files: &[&Whole], fetcher: &Fetcher, sink: &mut Sink) -> Result<(), Stopped> {
    let mut rest = pieces.iter().flat_map(blocks);
    let mut ahead: VecDeque<Block> = VecDeque::with_capacity(BLOCKS_AHEAD);
    loop {
        while ahead.len() < BLOCKS_AHEAD
            && let Some(piece) = rest.next()
        {
            ahead.push_back(begin(piece, files, fetcher));
        }
        let bytes = match ahead.pop_front() {
            None => return Ok(()),
            Some(Block::There(bytes)) => bytes,
            Some(Block::Asked(fetch)) => fetch.wait().map_err(Stopped::Read)?,
        };
        match bytes.len() {
            ..=SHORT_BYTES => sink.write_all(&bytes).map_err(Stopped::Write)?,
            _ => sink.write_block(bytes).map_err(Stopped::Write)?,
        }
    }
}

/// A piece cut into blocks.
fn blocks(piece: &Piece) -> impl Iterator<Item = Piece> {
    let (part, bytes, given) = match piece {
        Piece::File { part, bytes } => (*part, bytes.clone(), None),
        Piece::Given(bytes) => (0, 0..0, Some(Piece::Given(bytes.clone()))),
    };
    given.into_iter().chain(cut(bytes).map(move |bytes| Piece::File { part, bytes }))
}

fn cut(bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = bytes;
    (start..end).step_by(BLOCK_BYTES as usize).map(move |at| at..end.min(at.saturating_add(BLOCK_BYTES)))
}

fn begin(piece: Piece, files: &[&Whole], fetcher: &Fetcher) -> Block {
    match piece {
        Piece::Given(bytes) => Block::There(bytes),
        Piece::File { part, bytes } => {
            let file = &files[part].file;
            // Small files came whole when they were opened.
            match held(file.handle.size_bytes, &file.tail, &bytes) {
                Some(bytes) => Block::There(bytes),
                None => Block::Asked(fetcher.start(&file.handle, bytes)),
            }
        }
    }
}

/// The bytes out of the end of a file that is held.
pub(super) fn held(size_bytes: u64, tail: &Bytes, bytes: &Range<u64>) -> Option<Bytes> {
    let start = size_bytes.checked_sub(tail.len() as u64)?;
    let from = usize::try_from(bytes.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(bytes.end.checked_sub(start)?).ok()?;
    (from <= to && to <= tail.len()).then(|| tail.slice(from..to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_without_a_gap_or_an_empty_block() {
        for (start, end) in [(4, 4), (4, 5), (4, 4 + BLOCK_BYTES), (4, 5 + BLOCK_BYTES), (7, 7 + 3 * BLOCK_BYTES)] {
            let mut at = start;
            for block in cut(start..end) {
                assert!(block.start == at && block.end > at && block.end - at <= BLOCK_BYTES);
                at = block.end;
            }
            assert_eq!(at, end);
        }
    }

    #[test]
    fn only_bytes_in_the_end_that_is_held_are_taken_from_it() {
        let tail = Bytes::from_static(b"6789");
        for (range, expected) in [(6..8, Some("67")), (9..10, Some("9")), (5..7, None), (9..11, None), (0..1, None)] {
            assert_eq!(held(10, &tail, &range), expected.map(Bytes::from), "{range:?}");
        }
    }
}
