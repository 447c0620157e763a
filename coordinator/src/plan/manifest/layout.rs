//! How the entries of a manifest are laid out, and the layouts that were made last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iceberg::spec::{PartitionSpec, PrimitiveType, Schema, Struct};

use super::Unreadable;
use super::compile;
use super::container::Container;
use super::entry::{EntryReader, Keep};
use super::schema::AvroType;
use super::tuple::Tuple;

/// Field id of `file_path` in position delete files; fixed by the specification.
const DELETE_FILE_PATH_ID: i32 = 2_147_483_546;

/// What is done with the next value of an entry.
#[derive(Debug)]
pub(super) enum Step {
    Skip(AvroType),
    Read(Slot, AvroType),
    /// Pairs of a column's field id and what is said of it.
    Pairs(PairSlot, Pairs),
    /// The record of the file, in the entry's.
    File(Box<[Step]>),
}

/// A field that is wanted, told by its id; the comments have what it is called where that is not its name here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Status,
    /// Data sequence number.
    Sequence,
    Content,
    Path,
    Format,
    /// The partition tuple.
    Tuple,
    RecordCount,
    /// `file_size_in_bytes`.
    Size,
    KeyMetadata,
    SplitOffsets,
    EqualityIds,
    SortOrder,
    FirstRowId,
    /// `referenced_data_file`.
    Referenced,
    ContentOffset,
    /// `content_size_in_bytes`.
    ContentSize,
}

/// The same for what is said of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairSlot {
    Values,
    Nulls,
    Nans,
    Lower,
    Upper,
}

/// How a map from field ids is written: as an array of records.
#[derive(Debug)]
pub(super) struct Pairs {
    /// The type as a whole, to pass over it.
    pub(super) of: AvroType,
    /// For each branch of a union: whether it is null.
    pub(super) null_branches: Option<Box<[bool]>>,
    /// The fields of each record, in their order.
    pub(super) fields: Box<[(Role, AvroType)]>,
}

/// What a field of a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Key,
    Value,
    Other,
}

/// How the entries of manifests with one header are laid out, and what else the header says.
#[derive(Debug)]
pub(in super::super) struct Layout {
    pub(super) steps: Box<[Step]>,
    pub(super) is_v1: bool,
    /// The table's schema when the manifest was written.
    pub(super) schema: Schema,
    pub(super) spec: PartitionSpec,
    pub(super) tuple: Tuple,
}

impl Layout {
    /// The partition spec of the files.
    pub(in super::super) fn spec(&self) -> &PartitionSpec {
        &self.spec
    }

    /// The partition values in the bytes of a tuple, in the order of the spec.
    pub(in super::super) fn partition(&self, tuple: &[u8]) -> Result<Struct, &'static str> {
        self.tuple.read(tuple).map_err(|broken| broken.0)
    }

    /// The type of a column when the manifest was written. Its bounds may be older than that, and of a type that it had
    /// before.
    pub(in super::super) fn column(&self, field_id: i32) -> Option<&PrimitiveType> {
        match field_id {
            DELETE_FILE_PATH_ID => Some(&PrimitiveType::String),
            field_id => self.schema.field_by_id(field_id)?.field_type.as_primitive_type(),
        }
    }

    pub(super) fn reader<'a>(&'a self, keep: &'a Keep<'a>) -> EntryReader<'a> {
        EntryReader { steps: &self.steps, is_v1: self.is_v1, keep }
    }
}

/// Layouts that are kept. A table has as many as it had schemas, specs and writers lately.
const KEPT_MAX: usize = 16;

/// The layouts that were made last, by the headers that they were made from: of many small manifests only the first costs
/// the parsing of its header.
#[derive(Debug, Default)]
pub(in super::super) struct Layouts(Mutex<VecDeque<(Key, Arc<Layout>)>>);

/// All of a header that a layout depends on.
type Key = [Option<Box<[u8]>>; compile::HEADER.len()];

impl Layouts {
    pub(super) fn of(&self, container: &Container<'_>) -> Result<Arc<Layout>, Unreadable> {
        let header = compile::HEADER.map(|key| container.header(key));
        let is_of = |key: &Key| key.iter().map(Option::as_deref).eq(header);
        let known = self.kept().iter().find(|(key, _)| is_of(key)).map(|(_, layout)| Arc::clone(layout));
        if let Some(layout) = known {
            return Ok(layout);
        }
        let layout = Arc::new(compile::layout(header)?);
        let mut kept = self.kept();
        kept.truncate(KEPT_MAX - 1);
        kept.push_front((header.map(|value| value.map(Into::into)), Arc::clone(&layout)));
        Ok(layout)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(Key, Arc<Layout>)>> {
        // Whole layouts come and go, so what a thread left that panicked is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
