//! Step 4, tag: change batches -> change batches with carry-over cancelled and updates told.
//!
//! A copy-on-write rewrite removes a file and adds one that holds most of the same rows. As the difference of two states
//! these rows are a DELETE and an equal INSERT each; they cancel here, where the planner put both files in one task, so
//! that they are not written for nothing. Rows are equal when all their columns are, bit by bit: null equals null, a NaN
//! equals the same NaN, -0.0 is not 0.0, and a map is what its entries are in any order. Equality is decided on the
//! content, never on a hash alone, and by count: one DELETE cancels one INSERT.
//!
//! In a changelog what is left of both sides is then paired by what identifies a row: a DELETE and an INSERT of one
//! identity are the two halves of an update.
//!
//! Rows that do not fit into memory are exchanged ([`crate::exchange`]) by a hash of what rows that have to meet have in
//! common, and resolved bucket by bucket; a bucket that does not fit is exchanged again. Which of the two happened cannot be
//! told from what comes out, its order apart.
//!
//! Where the changes of several snapshots come together, equal rows cancel within each snapshot, then from one to the next.
//!
//! `encode` makes rows comparable, `held` is a multiset of rows, `collapse` cancels over several snapshots, `pairs` with
//! `waiting` tells updates, `resolve` does all of it for rows that fit. `spread` decides by what rows are exchanged, `exchanging` hands them to an exchange,
//! `alike` counts rows that nothing takes apart, and `tagged` is where rows are at each moment.

mod alike;
mod collapse;
pub(crate) mod encode;
mod error;
mod exchanging;
mod held;
mod pairs;
mod resolve;
mod spread;
mod tagged;
mod waiting;

#[cfg(test)]
mod tests;

use iceferry_common::model::Resolution;

use crate::ChangeBatch;
use crate::exchange::Space;
pub use error::TagError;
pub use exchanging::exchange;
pub use pairs::Pairing;
pub use tagged::Tagged;

/// What the tag step does with the rows of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagging {
    /// The source table, for messages.
    pub table: String,
    /// What rows are compared for.
    pub resolution: Resolution,
    /// How many columns decide whether rows are equal: those of the read schema. Metadata columns behind them ride along.
    pub compared: usize,
    /// Columns, by place, that a DELETE row is cut down to for a mirror; all of them when empty.
    pub key: Vec<usize>,
    /// For a changelog, which is wrong unless all that cancels does, and all updates are told.
    pub changelog: Option<Pairing>,
    /// The place of the column that tells the snapshots of changes apart, a later one by a larger number: where the changes of
    /// several come together. It is one of the metadata columns.
    pub ordinal: Option<usize>,
    /// Memory for rows that are held. What is exchanged takes half as much again while it is written.
    pub memory_bytes_max: u64,
    /// At how many levels the rows were exchanged before they came here.
    pub level: u32,
}

/// Cancels carry-over in what `reader` gives, and for a changelog tells updates, as its resolution says; with
/// [`Resolution::Keep`] batches pass as they are. Rows that do not fit into memory go to files in `space` and back.
///
/// Otherwise the reader gives its DELETE batches first, and it is an error when it does not. Batches come out with all
/// columns, save that DELETE rows of a mirror are cut down to its key. Of rows that have one identity those that went and
/// those that came are paired in the order in which they were read. A key of which one row goes and another is carried over
/// is refused for a mirror: the delete would reach both, and nothing would bring the other one back.
///
/// Rows that have to be compared with each other, do not fit into memory and have all one key or content are not taken
/// apart. A mirror carries them as they come, which is right as well, only more to write; rows without metadata columns that
/// are equal are counted; a changelog fails otherwise.
pub fn tag<I, E>(reader: I, tagging: Tagging, space: Space) -> Tagged<I::IntoIter>
where
    I: IntoIterator<Item = Result<ChangeBatch, E>>,
{
    Tagged::new(reader.into_iter(), tagging, space)
}

/// Whether rows are compared at all.
fn compares(resolution: Resolution) -> bool {
    match resolution {
        Resolution::CarryOver | Resolution::Updates | Resolution::Net => true,
        Resolution::Keep => false,
    }
}
