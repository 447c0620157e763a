//! The bytes of a file in their order, a piece ahead of who takes them.

use bytes::{Bytes, BytesMut};

use super::super::ReadError;
use super::super::fetch::{Fetch, Fetcher, FileHandle};
use super::cursor::{VARINT_BYTES_MAX, varint};

/// What the first request takes: the header, and all of a small file.
const HEAD_BYTES: u64 = 1024 * 1024;
/// Bounds of a piece.
const PIECE_BYTES_MIN: u64 = 64 * 1024;
const PIECE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Asks for the beginning of a file.
pub(in super::super) fn start_head(fetcher: &Fetcher, file: &FileHandle) -> Fetch {
    fetcher.start(file, 0..file.size_bytes.min(HEAD_BYTES))
}

/// A file from some place to its end.
#[derive(Debug)]
pub(super) struct Stream {
    fetcher: Fetcher,
    file: FileHandle,
    piece_bytes: u64,
    /// Whether a piece is asked for before it is needed.
    eager: bool,
    current: Bytes,
    ahead: Option<Fetch>,
    /// Where what is not asked for yet begins.
    next: u64,
    /// Bytes from here to the end of the file.
    left: u64,
}

impl Stream {
    /// From byte `start`; `head` is the beginning of the file. With no bytes to hold, nothing is asked for ahead.
    pub(super) fn new(fetcher: &Fetcher, file: &FileHandle, head: &Bytes, start: u64, fetch_bytes: u64) -> Self {
        let head_end = head.len() as u64;
        Self {
            fetcher: fetcher.clone(),
            file: file.clone(),
            piece_bytes: (fetch_bytes / 2).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX),
            eager: fetch_bytes > 0,
            current: head.slice(start.min(head_end) as usize..),
            ahead: None,
            next: head_end.max(start),
            left: file.size_bytes.saturating_sub(start),
        }
    }

    /// Where in the file it is.
    pub(super) fn offset(&self) -> u64 {
        self.file.size_bytes - self.left
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// The next bytes, whole.
    pub(super) fn take(&mut self, count: u64) -> Result<Bytes, ReadError> {
        if count > self.left {
            let what = format!("{count} bytes at byte {} go beyond its end", self.offset());
            return Err(ReadError::damaged(&self.file.location, what));
        }
        if self.eager {
            self.look_ahead();
        }
        if count <= self.current.len() as u64 {
            self.left -= count;
            return Ok(self.current.split_to(count as usize));
        }
        let mut bytes = BytesMut::with_capacity(count as usize);
        while (bytes.len() as u64) < count {
            if self.current.is_empty() {
                self.fill()?;
            }
            let part = self.current.len().min(count as usize - bytes.len());
            bytes.extend_from_slice(&self.current.split_to(part));
        }
        self.left -= count;
        Ok(bytes.freeze())
    }

    /// The next number.
    pub(super) fn long(&mut self) -> Result<i64, ReadError> {
        let offset = self.offset();
        let damaged = |what: &str| ReadError::damaged(&self.file.location, format!("at byte {offset}, {what}"));
        if let Some((value, length)) = varint(&self.current).map_err(|broken| damaged(broken.0))? {
            self.take(length as u64)?;
            return Ok(value);
        }
        // It goes on in the next piece.
        let mut bytes = Vec::with_capacity(VARINT_BYTES_MAX);
        while bytes.len() < VARINT_BYTES_MAX {
            bytes.push(self.take(1)?[0]);
            if let Some((value, _)) = varint(&bytes).map_err(|broken| damaged_at(&self.file, offset, broken.0))? {
                return Ok(value);
            }
        }
        Err(damaged_at(&self.file, offset, "a number has no end"))
    }

    /// Asks for the next piece while the current one is used.
    fn look_ahead(&mut self) {
        if self.ahead.is_none() && self.next < self.file.size_bytes {
            let end = self.next.saturating_add(self.piece_bytes).min(self.file.size_bytes);
            self.ahead = Some(self.fetcher.start(&self.file, self.next..end));
            self.next = end;
        }
    }

    fn fill(&mut self) -> Result<(), ReadError> {
        self.look_ahead();
        let ahead = self.ahead.take();
        let ended = || ReadError::damaged(&self.file.location, "it ends too early");
        self.current = ahead.ok_or_else(ended)?.wait()?;
        Ok(())
    }
}

fn damaged_at(file: &FileHandle, offset: u64, what: &str) -> ReadError {
    ReadError::damaged(&file.location, format!("at byte {offset}, {what}"))
}
