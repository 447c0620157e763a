//! Manifests, decoded from their bytes to what planning needs of each entry, and no further.
//!
//! A manifest is an Avro file whose header has the schema that its writer used. From that schema a [`Layout`] is made once:
//! steps that take a field that is wanted, told by its field id, and steps that pass over one that is not. Entries are then
//! read in one go, and borrow their texts and bounds from the block that they lie in.
//!
//! | file | what it knows |
//! |---|---|
//! | `cursor` | Avro's binary encoding |
//! | `schema` | Avro's types, and how a value is passed over |
//! | `codec`, `container` | compressed blocks; header and blocks of a file |
//! | `layout`, `compile` | the steps of a schema, and how they are made; the layouts that were made last |
//! | `entry` | an entry, read by the steps |
//! | `tuple` | partition values |
//!
//! All of it is pure, and none of it trusts the bytes: what they say wrongly is an error, and takes no memory to find.

mod codec;
mod compile;
mod container;
mod cursor;
mod entry;
mod layout;
mod schema;
#[cfg(test)]
mod tests;
mod tuple;

use std::ops::ControlFlow;
use std::sync::Arc;

use super::error::FileProblem;
use container::Container;
use cursor::Cursor;

pub(super) use entry::{Columns, Content, Entry, Keep, of_column};
pub(super) use layout::{Layout, Layouts};

/// Why a manifest cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unreadable {
    /// Its bytes break the format's rules.
    Damaged(String),
    /// It is written in a way that is not carried.
    Unsupported(String),
}

impl Unreadable {
    fn damaged(problem: impl Into<String>) -> Self {
        Self::Damaged(problem.into())
    }

    fn of_manifest(self, path: &str) -> FileProblem {
        match self {
            Self::Damaged(problem) => FileProblem::corrupt(path, format!("the manifest is damaged: {problem}")),
            Self::Unsupported(problem) => FileProblem::refused(path, problem),
        }
    }
}

impl From<cursor::Broken> for Unreadable {
    fn from(broken: cursor::Broken) -> Self {
        Self::damaged(broken.0)
    }
}

/// How many entries an Avro file has by its blocks.
pub(crate) fn entry_count(bytes: &[u8]) -> Result<u64, String> {
    let count = || {
        let (mut container, mut entries) = (Container::open(bytes)?, 0u64);
        while let Some((count, _)) = container.next_block()? {
            entries = entries.saturating_add(count);
        }
        Ok(entries)
    };
    count().map_err(|error: Unreadable| match error {
        Unreadable::Damaged(problem) | Unreadable::Unsupported(problem) => problem,
    })
}

/// A manifest whose header was read.
pub(super) struct Manifest<'a> {
    path: &'a str,
    container: Container<'a>,
    layout: Arc<Layout>,
}

impl<'a> Manifest<'a> {
    /// Reads the header. Manifests of one writer share their layout.
    pub(super) fn open(path: &'a str, bytes: &'a [u8], layouts: &Layouts) -> Result<Self, FileProblem> {
        let open = || {
            let container = Container::open(bytes)?;
            let layout = layouts.of(&container)?;
            Ok((container, layout))
        };
        let (container, layout) = open().map_err(|error: Unreadable| error.of_manifest(path))?;
        Ok(Self { path, container, layout })
    }

    /// How its entries are laid out.
    pub(super) fn shared_layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// Gives the live entries in their order, until `take` breaks off.
    pub(super) fn live_entries(
        self,
        keep: &Keep<'_>,
        mut take: impl FnMut(&Entry<'_>) -> Result<ControlFlow<()>, FileProblem>,
    ) -> Result<(), FileProblem> {
        let Self { path, mut container, layout } = self;
        let unreadable = |error: Unreadable| error.of_manifest(path);
        let reader = layout.reader(keep);
        while let Some((count, block)) = container.next_block().map_err(unreadable)? {
            let mut cursor = Cursor::new(block);
            let mut entry = Entry::default();
            for _ in 0..count {
                entry.clear();
                reader.read(&mut cursor, &mut entry).map_err(unreadable)?;
                if entry.is_live && take(&entry)?.is_break() {
                    return Ok(());
                }
            }
            if !cursor.is_at_end() {
                return Err(unreadable(Unreadable::damaged("a block has more bytes than entries")));
            }
        }
        Ok(())
    }
}
