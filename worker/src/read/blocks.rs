//! The bytes of one row group, as the Parquet decoder asks for them.
//!
//! The decoder walks all column chunks of a row group side by side, each from its start to its end. So each chunk gets a
//! *lane*: the pieces of the file that it needs, of which the current one and the next are held. A row group of any
//! size passes through a bounded number of bytes. When all that a row group needs fits the bound, one lane holds all of
//! it, in few large requests.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::ReadError;
use super::fetch::{Fetch, Fetcher, FileHandle};

/// Largest request: larger ones only delay the first byte.
const PIECE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Largest piece of a lane: half of what it holds.
const LANE_PIECE_BYTES_MAX: u64 = 1024 * 1024;
/// Smallest piece of a lane, whatever the number of columns: below this, requests cost more than bytes.
const LANE_PIECE_BYTES_MIN: u64 = 16 * 1024;
/// Bytes that are read for nothing rather than starting another request.
const GAP_BYTES_MAX: u64 = 32 * 1024;

/// What one column chunk needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The whole chunk: the decoder may not leave it.
    pub(super) bytes: Range<u64>,
    /// The parts that the row selection needs, ascending and disjoint.
    pub(super) needed: Vec<Range<u64>>,
}

#[derive(Debug, PartialEq, Eq)]
struct LanePlan {
    pieces: Vec<Range<u64>>,
    /// Pieces asked for beyond the one in use.
    ahead: usize,
    /// Whether pieces are held until the row group is done.
    keep: bool,
}

/// How to fetch what the chunks need with about `budget` bytes in memory. The chunks ascend and are disjoint.
fn plan(chunks: &[Chunk], budget: u64) -> Vec<LanePlan> {
    let needed = || chunks.iter().flat_map(|chunk| chunk.needed.iter().cloned());
    let all = merged(needed(), GAP_BYTES_MAX);
    if all.iter().map(length).sum::<u64>() <= budget {
        let pieces = cut(all, PIECE_BYTES_MAX);
        return if pieces.is_empty() { Vec::new() } else { vec![LanePlan { ahead: pieces.len(), pieces, keep: true }] };
    }
    let lanes = chunks.iter().filter(|chunk| !chunk.needed.is_empty()).count().max(1) as u64;
    let piece_bytes = (budget / (2 * lanes)).clamp(LANE_PIECE_BYTES_MIN, LANE_PIECE_BYTES_MAX);
    let lane = |chunk: &Chunk| {
        let pieces = cut(merged(chunk.needed.iter().cloned(), GAP_BYTES_MAX.min(piece_bytes / 4)), piece_bytes);
        LanePlan { pieces, ahead: 1, keep: false }
    };
    chunks.iter().filter(|chunk| !chunk.needed.is_empty()).map(lane).collect()
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Ascending ranges, with those joined that lie no further apart than `gap`.
fn merged(ranges: impl Iterator<Item = Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn cut(ranges: Vec<Range<u64>>, bytes_max: u64) -> Vec<Range<u64>> {
    let cut_one = |range: Range<u64>| {
        let end = range.end;
        range.step_by(bytes_max as usize).map(move |start| start..end.min(start + bytes_max))
    };
    ranges.into_iter().flat_map(cut_one).collect()
}

#[derive(Debug)]
enum Slot {
    Ready(Bytes),
    Pending(Fetch),
    /// The request failed; the error is with [`Blocks`].
    Failed,
}

#[derive(Debug)]
struct Lane {
    plan: LanePlan,
    /// Index of the piece that `held` begins with.
    first: usize,
    held: VecDeque<Slot>,
}

/// The bytes of one row group. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fetcher: Fetcher,
    file: FileHandle,
    /// The end of the file, which came with the footer.
    tail: Bytes,
    chunks: Vec<Range<u64>>,
    /// One decoder on one thread uses this; the lock is only there because the decoder's trait wants `Sync`.
    lanes: Mutex<Vec<Lane>>,
    /// The decoder's error type cannot carry ours through all of its layers, so it waits here.
    failure: Mutex<Option<ReadError>>,
}

impl Blocks {
    /// Begins to fetch what the chunks need.
    pub(super) fn start(
        fetcher: &Fetcher,
        file: &FileHandle,
        tail: Bytes,
        mut chunks: Vec<Chunk>,
        budget: u64,
    ) -> Result<Self, ReadError> {
        chunks.sort_unstable_by_key(|chunk| chunk.bytes.start);
        if chunks.windows(2).any(|pair| pair[0].bytes.end > pair[1].bytes.start) {
            return Err(ReadError::damaged(&file.location, "two column chunks overlap"));
        }
        let lanes = plan(&chunks, budget).into_iter();
        let lanes = lanes.map(|plan| Lane { plan, first: 0, held: VecDeque::new() }).collect();
        let inner = Inner {
            fetcher: fetcher.clone(),
            file: file.clone(),
            tail,
            chunks: chunks.into_iter().map(|chunk| chunk.bytes).collect(),
            lanes: Mutex::new(lanes),
            failure: Mutex::new(None),
        };
        {
            let mut lanes = inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.iter_mut().for_each(|lane| inner.fill(lane, 0));
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What went wrong when the decoder failed because of its input's storage and not because of its content.
    pub(super) fn take_failure(&self) -> Option<ReadError> {
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn fail(&self, error: ReadError) -> ParquetError {
        let text = error.to_string();
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        ParquetError::General(text)
    }

    /// The piece that holds `offset`, and where it begins.
    fn piece(&self, offset: u64) -> Result<(u64, Bytes), ReadError> {
        self.inner.piece(offset)
    }
}

impl Inner {
    /// Starts requests until the lane holds its piece `index` and those ahead of it.
    fn fill(&self, lane: &mut Lane, index: usize) {
        let end = index.saturating_add(lane.plan.ahead).saturating_add(1).min(lane.plan.pieces.len());
        while lane.first + lane.held.len() < end {
            let range = lane.plan.pieces[lane.first + lane.held.len()].clone();
            lane.held.push_back(match self.within_tail(&range) {
                Some(bytes) => Slot::Ready(bytes),
                None => Slot::Pending(self.fetcher.start(&self.file, range)),
            });
        }
    }

    fn within_tail(&self, range: &Range<u64>) -> Option<Bytes> {
        let tail_start = self.file.size_bytes - self.tail.len() as u64;
        let within = range.start >= tail_start && range.end <= self.file.size_bytes;
        within.then(|| self.tail.slice((range.start - tail_start) as usize..(range.end - tail_start) as usize))
    }

    fn piece(&self, offset: u64) -> Result<(u64, Bytes), ReadError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.partition_point(|lane| lane.plan.pieces[0].start <= offset);
        let found = lane.checked_sub(1).and_then(|lane| {
            let pieces = &lanes[lane].plan.pieces;
            let index = pieces.partition_point(|piece| piece.start <= offset) - 1;
            (offset < pieces[index].end).then_some((lane, index))
        });
        match found {
            Some((lane, index)) if index >= lanes[lane].first => self.take(&mut lanes[lane], index),
            // Outside of the plan, or behind it: right all the same, only slower.
            _ => self.fetch_beside(offset),
        }
    }

    fn take(&self, lane: &mut Lane, index: usize) -> Result<(u64, Bytes), ReadError> {
        if !lane.plan.keep {
            let passed = (index - lane.first).min(lane.held.len());
            lane.held.drain(..passed);
            lane.first = index;
        }
        self.fill(lane, index);
        let start = lane.plan.pieces[index].start;
        let slot = &mut lane.held[index - lane.first];
        let bytes = match std::mem::replace(slot, Slot::Failed) {
            Slot::Ready(bytes) => bytes,
            Slot::Pending(fetch) => fetch.wait()?,
            Slot::Failed => return Err(ReadError::Interrupted { location: self.file.location.to_string() }),
        };
        *slot = Slot::Ready(bytes.clone());
        Ok((start, bytes))
    }

    fn fetch_beside(&self, offset: u64) -> Result<(u64, Bytes), ReadError> {
        let chunk = self.chunks.iter().find(|chunk| chunk.contains(&offset));
        let Some(chunk) = chunk else {
            let what = format!("a page header points to byte {offset}, outside of its column chunk");
            return Err(ReadError::damaged(&self.file.location, what));
        };
        let range = offset..chunk.end.min(offset + LANE_PIECE_BYTES_MIN);
        Ok((offset, self.fetcher.start(&self.file, range).wait()?))
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.inner.file.size_bytes
    }
}

impl ChunkReader for Blocks {
    type T = BlockRead;

    fn get_read(&self, start: u64) -> Result<BlockRead, ParquetError> {
        Ok(BlockRead { blocks: self.clone(), position: start, current: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // The length stands in a page header, so nothing is allocated by it: the pieces are, and they lie in the file.
        let inside = |chunk: &Range<u64>| start >= chunk.start && start.saturating_add(length as u64) <= chunk.end;
        if length > 0 && !self.inner.chunks.iter().any(inside) {
            let what = format!("a page of {length} bytes at byte {start} leaves its column chunk");
            return Err(self.fail(ReadError::damaged(&self.inner.file.location, what)));
        }
        let mut whole: Option<BytesMut> = None;
        let mut done = 0;
        while done < length {
            let position = start + done as u64;
            let (piece_start, piece) = self.piece(position).map_err(|error| self.fail(error))?;
            let from = (position - piece_start) as usize;
            let part = piece.slice(from..piece.len().min(from + length - done));
            done += part.len();
            match &mut whole {
                // A page within one piece is not copied.
                None if part.len() == length => return Ok(part),
                None => {
                    let mut buffer = BytesMut::with_capacity(length);
                    buffer.extend_from_slice(&part);
                    whole = Some(buffer);
                }
                Some(buffer) => buffer.extend_from_slice(&part),
            }
        }
        Ok(whole.map(BytesMut::freeze).unwrap_or_default())
    }
}

/// Reads on from an offset; only page headers come this way.
#[derive(Debug)]
pub(super) struct BlockRead {
    blocks: Blocks,
    position: u64,
    current: Bytes,
}

impl Read for BlockRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.current.is_empty() {
            let (start, piece) =
                self.blocks.piece(self.position).map_err(|error| std::io::Error::other(self.blocks.fail(error)))?;
            self.current = piece.slice((self.position - start) as usize..);
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current.split_to(count));
        self.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn whole(bytes: Range<u64>) -> Chunk {
        Chunk { needed: std::iter::once(bytes.clone()).collect(), bytes }
    }

    #[test]
    fn what_fits_the_budget_is_fetched_in_few_large_requests() {
        let chunks = [whole(4..MIB), whole(MIB..2 * MIB), whole(2 * MIB + 100..6 * MIB)];
        let plans = plan(&chunks, 16 * MIB);
        assert_eq!(plans, [LanePlan { pieces: vec![4..4 * MIB + 4, 4 * MIB + 4..6 * MIB], ahead: 2, keep: true }]);
    }

    #[test]
    fn what_does_not_fit_is_held_in_two_pieces_for_each_chunk() {
        for columns in [1u64, 3, 16, 100] {
            let chunk = |column: u64| whole(column * 40 * MIB..(column + 1) * 40 * MIB);
            let chunks: Vec<Chunk> = (0..columns).map(chunk).collect();
            let plans = plan(&chunks, 16 * MIB);
            assert_eq!(plans.len() as u64, columns);
            let held: u64 = plans.iter().map(|plan| (plan.ahead as u64 + 1) * length(&plan.pieces[0])).sum();
            assert!(held <= 16 * MIB, "{columns} columns hold {held} bytes");
            for (plan, chunk) in plans.iter().zip(&chunks) {
                assert_eq!(merged(plan.pieces.iter().cloned(), 0), chunk.needed, "every byte once");
                assert!(plan.pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }

    #[test]
    fn ranges_that_are_not_needed_are_left_out_where_that_saves_more_than_a_request() {
        let chunk = Chunk { bytes: 0..10 * MIB, needed: vec![0..10, 20..30, 5 * MIB..5 * MIB + 7] };
        let plans = plan(&[chunk], 16 * MIB);
        assert_eq!(plans[0].pieces, [0..30, 5 * MIB..5 * MIB + 7]);
        assert_eq!(plan(&[], 16 * MIB), []);
    }
}
