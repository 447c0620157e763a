//! An entry, read by the steps of its layout. It borrows from the block that it lies in.

use iceferry_common::model::FileFormat;

use super::Unreadable;
use super::cursor::{Broken, Cursor};
use super::layout::{PairSlot, Pairs, Role, Slot, Step};
use super::schema::{AvroType, parts};

/// Columns of which something is kept.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Columns<'a> {
    All,
    These(&'a [i32]),
}

impl Columns<'_> {
    fn has(&self, field_id: i32) -> bool {
        match self {
            Self::All => true,
            Self::These(ids) => ids.contains(&field_id),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::These([]))
    }
}

/// What of an entry is kept; the rest is passed over.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Keep<'a> {
    pub(in super::super) bounds: Columns<'a>,
    /// Of values and nulls.
    pub(in super::super) counts: Columns<'a>,
    pub(in super::super) nan_counts: Columns<'a>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) enum Content {
    #[default]
    Data,
    PositionDeletes,
    EqualityDeletes,
}

/// A manifest entry, as it is written: nothing is inherited yet.
#[derive(Debug, Default)]
pub(in super::super) struct Entry<'a> {
    /// Not deleted.
    pub(in super::super) is_live: bool,
    pub(in super::super) is_added: bool,
    /// Data sequence number.
    pub(in super::super) sequence: Option<i64>,
    pub(in super::super) content: Content,
    pub(in super::super) path: &'a str,
    /// Always there.
    format: Option<FileFormat>,
    /// The bytes of its partition tuple.
    pub(in super::super) tuple: &'a [u8],
    pub(in super::super) record_count: u64,
    pub(in super::super) size_bytes: u64,
    pub(in super::super) is_encrypted: bool,
    pub(in super::super) split_offsets: Vec<i64>,
    pub(in super::super) equality_ids: Vec<i32>,
    pub(in super::super) sort_order_id: Option<i32>,
    pub(in super::super) first_row_id: Option<i64>,
    pub(in super::super) referenced: Option<&'a str>,
    pub(in super::super) content_offset: Option<i64>,
    pub(in super::super) content_size: Option<i64>,
    pub(in super::super) value_counts: Vec<(i32, u64)>,
    pub(in super::super) null_counts: Vec<(i32, u64)>,
    pub(in super::super) nan_counts: Vec<(i32, u64)>,
    pub(in super::super) lower_bounds: Vec<(i32, &'a [u8])>,
    pub(in super::super) upper_bounds: Vec<(i32, &'a [u8])>,
}

impl Entry<'_> {
    pub(in super::super) fn format(&self) -> FileFormat {
        self.format.unwrap_or(FileFormat::Parquet)
    }

    /// Makes room for the next entry.
    pub(super) fn clear(&mut self) {
        let mut empty = Self {
            split_offsets: std::mem::take(&mut self.split_offsets),
            equality_ids: std::mem::take(&mut self.equality_ids),
            value_counts: std::mem::take(&mut self.value_counts),
            null_counts: std::mem::take(&mut self.null_counts),
            nan_counts: std::mem::take(&mut self.nan_counts),
            lower_bounds: std::mem::take(&mut self.lower_bounds),
            upper_bounds: std::mem::take(&mut self.upper_bounds),
            ..Self::default()
        };
        empty.split_offsets.clear();
        empty.equality_ids.clear();
        for counts in [&mut empty.value_counts, &mut empty.null_counts, &mut empty.nan_counts] {
            counts.clear();
        }
        for bounds in [&mut empty.lower_bounds, &mut empty.upper_bounds] {
            bounds.clear();
        }
        *self = empty;
    }
}

/// What is said of a column in pairs of its field id and that; the last word counts.
pub(in super::super) fn of_column<T: Copy>(pairs: &[(i32, T)], field_id: i32) -> Option<T> {
    pairs.iter().rev().find(|(id, _)| *id == field_id).map(|(_, of)| *of)
}

/// Reads the entries of one manifest.
pub(super) struct EntryReader<'a> {
    pub(super) steps: &'a [Step],
    pub(super) is_v1: bool,
    pub(super) keep: &'a Keep<'a>,
}

impl EntryReader<'_> {
    /// Reads the next entry into one that is clear.
    pub(super) fn read<'a>(&self, cursor: &mut Cursor<'a>, into: &mut Entry<'a>) -> Result<(), Unreadable> {
        if self.is_v1 {
            // From before there were sequence numbers.
            into.sequence = Some(0);
        }
        self.steps(self.steps, cursor, into)
    }

    fn steps<'a>(&self, steps: &[Step], cursor: &mut Cursor<'a>, into: &mut Entry<'a>) -> Result<(), Unreadable> {
        for step in steps {
            match step {
                Step::Skip(of) => of.skip(cursor)?,
                Step::Read(slot, of) => one(*slot, of, cursor, into)?,
                Step::Pairs(slot, pairs) => self.pairs(*slot, pairs, cursor, into)?,
                Step::File(steps) => self.steps(steps, cursor, into)?,
            }
        }
        Ok(())
    }

    fn pairs<'a>(
        &self,
        slot: PairSlot,
        pairs: &Pairs,
        cursor: &mut Cursor<'a>,
        into: &mut Entry<'a>,
    ) -> Result<(), Broken> {
        let Keep { bounds, counts, nan_counts } = self.keep;
        match slot {
            PairSlot::Values => numbers(pairs, counts, cursor, &mut into.value_counts),
            PairSlot::Nulls => numbers(pairs, counts, cursor, &mut into.null_counts),
            PairSlot::Nans => numbers(pairs, nan_counts, cursor, &mut into.nan_counts),
            PairSlot::Lower => texts(pairs, bounds, cursor, &mut into.lower_bounds),
            PairSlot::Upper => texts(pairs, bounds, cursor, &mut into.upper_bounds),
        }
    }
}

/// Counts; a negative one says nothing.
fn numbers(
    pairs: &Pairs,
    kept: &Columns<'_>,
    cursor: &mut Cursor<'_>,
    into: &mut Vec<(i32, u64)>,
) -> Result<(), Broken> {
    each_pair(pairs, kept, cursor, AvroType::number, |field_id, count| {
        if let Ok(count) = u64::try_from(count) {
            into.push((field_id, count));
        }
    })
}

fn texts<'a>(
    pairs: &Pairs,
    kept: &Columns<'_>,
    cursor: &mut Cursor<'a>,
    into: &mut Vec<(i32, &'a [u8])>,
) -> Result<(), Broken> {
    each_pair(pairs, kept, cursor, AvroType::bytes, |field_id, bound| into.push((field_id, bound)))
}

#[inline]
fn each_pair<'a, T>(
    pairs: &Pairs,
    kept: &Columns<'_>,
    cursor: &mut Cursor<'a>,
    value_of: impl Fn(&AvroType, &mut Cursor<'a>) -> Result<Option<T>, Broken>,
    mut take: impl FnMut(i32, T),
) -> Result<(), Broken> {
    if kept.is_empty() {
        return pairs.of.skip(cursor);
    }
    if let Some(null_branches) = &pairs.null_branches
        && null_branches[cursor.index(null_branches.len())?]
    {
        return Ok(());
    }
    parts(cursor, |cursor| {
        let (mut key, mut value) = (None, None);
        for (role, of) in &pairs.fields {
            match role {
                Role::Key => key = of.number(cursor)?,
                Role::Value => value = value_of(of, cursor)?,
                Role::Other => of.skip(cursor)?,
            }
        }
        let key = key.and_then(|key| i32::try_from(key).ok()).ok_or(Broken("a column has no possible field id"))?;
        if let Some(value) = value
            && kept.has(key)
        {
            take(key, value);
        }
        Ok(())
    })
}

fn one<'a>(slot: Slot, of: &AvroType, cursor: &mut Cursor<'a>, into: &mut Entry<'a>) -> Result<(), Unreadable> {
    match slot {
        Slot::Status => match required(of.number(cursor)?)? {
            0 => into.is_live = true,
            1 => (into.is_live, into.is_added) = (true, true),
            2 => {}
            other => return Err(Unreadable::damaged(format!("an entry has status {other}"))),
        },
        Slot::Sequence => into.sequence = of.number(cursor)?,
        Slot::Content => {
            into.content = match of.number(cursor)?.unwrap_or(0) {
                0 => Content::Data,
                1 => Content::PositionDeletes,
                2 => Content::EqualityDeletes,
                other => return Err(Unreadable::damaged(format!("an entry is of content {other}"))),
            }
        }
        Slot::Path => into.path = text(required(of.bytes(cursor)?)?)?,
        Slot::Format => into.format = Some(format(required(of.bytes(cursor)?)?)?),
        Slot::Tuple => {
            let begin = *cursor;
            of.skip(cursor)?;
            into.tuple = begin.until(cursor);
        }
        Slot::RecordCount => into.record_count = count(required(of.number(cursor)?)?)?,
        Slot::Size => into.size_bytes = count(required(of.number(cursor)?)?)?,
        Slot::KeyMetadata => into.is_encrypted = of.bytes(cursor)?.is_some_and(|key| !key.is_empty()),
        Slot::SplitOffsets => of.items(cursor, |item, cursor| {
            into.split_offsets.extend(item.number(cursor)?);
            Ok(())
        })?,
        Slot::EqualityIds => of.items(cursor, |_, cursor| {
            into.equality_ids.push(cursor.int()?);
            Ok(())
        })?,
        Slot::SortOrder => {
            let order = of.number(cursor)?.map(i32::try_from).transpose();
            into.sort_order_id = order.map_err(|_| Broken("a sort order has no possible id"))?;
        }
        Slot::FirstRowId => into.first_row_id = of.number(cursor)?,
        Slot::Referenced => into.referenced = of.bytes(cursor)?.map(text).transpose()?,
        Slot::ContentOffset => into.content_offset = of.number(cursor)?,
        Slot::ContentSize => into.content_size = of.number(cursor)?,
    }
    Ok(())
}

fn required<T>(value: Option<T>) -> Result<T, Broken> {
    value.ok_or(Broken("an entry lacks what the format requires"))
}

fn count(number: i64) -> Result<u64, Broken> {
    u64::try_from(number).map_err(|_| Broken("a size or row count is negative"))
}

fn text(bytes: &[u8]) -> Result<&str, Broken> {
    std::str::from_utf8(bytes).map_err(|_| Broken("a path is no UTF-8"))
}

fn format(name: &[u8]) -> Result<FileFormat, Unreadable> {
    let formats = [
        (&b"parquet"[..], FileFormat::Parquet),
        (b"avro", FileFormat::Avro),
        (b"orc", FileFormat::Orc),
        (b"puffin", FileFormat::Puffin),
    ];
    let found = formats.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found
        .map(|(_, format)| format)
        .ok_or_else(|| Unreadable::damaged(format!("an entry is in format {:?}", String::from_utf8_lossy(name))))
}
