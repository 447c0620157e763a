//! Splice: data files whose rows all are INSERTs, carried over as bytes.
//!
//! A [`Splicer`] opens a source file by its footer ([`Splicer::open`]) and says how it may be carried over
//! ([`Splicer::way`], by the footer and the epoch's context alone):
//!
//! - *copy*: the object as it is; the target's readers find in it what the source's find;
//! - *splice*: its column chunks, byte for byte, in a new file with columns left out, constant columns added, ids and names
//!   of the target; row groups may be left out, and several files joined ([`join`]);
//! - *decode*: neither gives what decoding gives, or nobody can be certain of it.
//!
//! What is carried over is described for the manifest like any staged file. The manifest's own word on the source file
//! fills in what the footer lacks; where the two contradict each other the file is decoded.
//!
//! What decides is pure: `way` (which way), `recipe` (where each column of the new file comes from), `leaf` (which
//! encodings a reader of the target takes), `layout` (where each chunk comes to lie), `chunk`, `constant` (columns that hold
//! one value), `footer`, `bloom`, `entry` and `describe` (what the manifest says), `join`. What acts: `whole` (a file's footer and page
//! indexes), `stream` (bytes read ahead and handed on) and `splicer`.

mod bloom;
mod chunk;
mod constant;
mod describe;
mod encrypted;
mod entry;
mod error;
mod footer;
mod join;
mod layout;
mod leaf;
mod reason;
mod recipe;
mod splicer;
mod stream;
mod way;
mod whole;

#[cfg(test)]
mod tests;

pub(crate) use error::SpliceError;
pub(crate) use join::{Size, join};
pub(crate) use reason::Reason;
pub(crate) use recipe::Recipe;
pub(crate) use splicer::{Part, Splicer};
pub(crate) use way::Way;
pub(crate) use whole::Whole;
