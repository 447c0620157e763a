//! Tables on all format versions, with all kinds of deletes, compactions and evolution, beside a slow, plain model that
//! knows the rows of every snapshot: files are lists of rows, deletes are lists of positions and keys, and a state is what
//! the specification says, word by word.
//!
//! `row` and `shape` are rows and schemas, `state` what a snapshot shows, `files` writes data and delete files, `table`
//! manifests and metadata. A history is what a test says (`script`) or a random one (`author`).

mod author;
mod files;
mod row;
mod script;
mod shape;
mod state;
mod table;

pub use author::{Author, Kind};
pub use script::{Entry, Script};
pub use table::{ModelSnapshot, ModelTable};

/// Numbers that look random, the same for the same seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn one_of<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).cloned()
    }
}
