//! Files that the Parquet crate wrote, carried over and read back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
