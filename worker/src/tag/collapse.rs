//! Changes of several snapshots: equal rows cancel within each of them, then from one to the next, so that what is left of a
//! row is of the snapshot that last made it.

use std::cmp::Ordering;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use arrow::error::ArrowError;

use super::held::{Held, Left};
use crate::exchange::Side;

/// Equal rows that came, or went, among which the one with the same row id is looked for; beyond them any will do.
const ROW_ID_STEPS: usize = 64;
/// Memory that a row takes beside itself: the number of its snapshot, its side, and its number while updates are told.
const ROW_BYTES: u64 = 16;

/// The changes of several snapshots.
pub(super) struct Collapse {
    held: Held,
    /// The place of the column with the number of the snapshot.
    ordinal: Option<usize>,
    /// The side of each batch that is held.
    sides: Vec<Side>,
    /// For each row the number of its snapshot, and whether it came.
    changes: Vec<(i32, bool)>,
}

impl Collapse {
    /// Rows are equal as `held` takes them; column `ordinal` tells their snapshots apart, the later of them by a larger
    /// number.
    pub(super) fn new(held: Held, ordinal: Option<usize>) -> Self {
        Self { held, ordinal, sides: Vec::new(), changes: Vec::new() }
    }

    /// Memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.held.memory_bytes() as u64 + ROW_BYTES * self.changes.len() as u64
    }

    /// Any rows that it holds.
    pub(super) fn sample(&self) -> Option<&RecordBatch> {
        self.held.first_batch()
    }

    /// Takes rows of a side.
    pub(super) fn take(&mut self, side: Side, rows: RecordBatch) -> Result<(), ArrowError> {
        let ordinals = self.ordinal.and_then(|place| rows.columns().get(place)?.as_primitive_opt::<Int32Type>());
        let ordinals = ordinals.filter(|ordinals| ordinals.null_count() == 0).ok_or_else(|| {
            ArrowError::SchemaError(
                "rows of several snapshots do not say of which they are: report this as a bug".into(),
            )
        })?;
        let comes = side == Side::Came;
        self.changes.extend(ordinals.values().iter().map(|ordinal| (*ordinal, comes)));
        self.sides.push(side);
        self.held.hold(rows)
    }

    /// Lets equal rows cancel, when all that can be equal are here; says how many pairs did.
    pub(super) fn settle(&mut self) -> u64 {
        let changes = &self.changes;
        let (mut events, mut scratch, mut pairs) = (Vec::new(), Scratch::default(), 0);
        self.held.settle(|numbers, row_ids, used| {
            events.clear();
            events.extend(numbers.map(|number| {
                let (ordinal, comes) = changes[number as usize];
                let row_id = row_ids.get(number as usize).copied().flatten();
                Event { ordinal, comes, row_id, number }
            }));
            pairs += scratch.cancel(&mut events, |event| used[event.number as usize] = true);
        });
        pairs
    }

    /// What is left of both sides: all rows, unless they were settled.
    pub(super) fn into_left(self) -> Result<(Left, Vec<RecordBatch>), ArrowError> {
        let mut went = Left { batches: Vec::new(), used: Vec::new() };
        let mut came = Vec::new();
        for ((batch, used), side) in self.held.into_left().into_each().zip(self.sides) {
            match side {
                Side::Went => {
                    went.batches.push(batch);
                    went.used.extend(used);
                }
                Side::Came => {
                    let rows = super::held::unmatched(batch, &used)?;
                    if rows.num_rows() > 0 {
                        came.push(rows);
                    }
                }
            }
        }
        Ok((went, came))
    }
}

/// A change of one of several equal rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    /// The number of the snapshot.
    ordinal: i32,
    comes: bool,
    /// The row's id, where rows are told by it.
    row_id: Option<i64>,
    /// The number of the row.
    number: u32,
}

/// Memory that is used again for each content.
#[derive(Default)]
struct Scratch {
    /// Changes that nothing has undone yet, all of one side, the latest last.
    open: Vec<Event>,
    /// What one snapshot leaves, all of one side.
    left: Vec<Event>,
    /// Of that, what no row of its id undoes.
    rest: Vec<Event>,
}

impl Scratch {
    /// Tells which changes of equal rows cancel, two and two, and how many pairs these are.
    ///
    /// In one snapshot a row that went and one that came were carried over. From one snapshot to the next a change undoes the
    /// latest that is open and of the other side, so that of `n` rows that are left each is of the snapshot since which
    /// there are so many. Where rows have ids, those of one id cancel first.
    fn cancel(&mut self, events: &mut [Event], mut gone: impl FnMut(&Event)) -> u64 {
        self.open.clear();
        let mut pairs = 0;
        events.sort_unstable_by_key(|event| (event.ordinal, event.comes, event.row_id, event.number));
        for of_snapshot in events.chunk_by(|one, other| one.ordinal == other.ordinal) {
            let (went, came) = of_snapshot.split_at(of_snapshot.partition_point(|event| !event.comes));
            pairs += carry_over(went, came, &mut self.left, &mut gone);
            self.rest.clear();
            for event in &self.left {
                match same_id(&self.open, event) {
                    Some(at) => {
                        gone(event);
                        gone(&self.open.remove(at));
                        pairs += 1;
                    }
                    None => self.rest.push(*event),
                }
            }
            for event in &self.rest {
                match self.open.pop_if(|open| open.comes != event.comes) {
                    Some(open) => {
                        gone(event);
                        gone(&open);
                        pairs += 1;
                    }
                    None => self.open.push(*event),
                }
            }
        }
        pairs
    }
}

/// Lets what went and what came in one snapshot cancel, each in the order of its ids; leaves the surplus of one side.
fn carry_over(went: &[Event], came: &[Event], left: &mut Vec<Event>, gone: &mut impl FnMut(&Event)) -> u64 {
    left.clear();
    let pairs = went.len().min(came.len());
    let has_id = |event: &Event| event.row_id.is_some();
    if pairs == 0 || went.len() == came.len() || !went.iter().any(has_id) || !came.iter().any(has_id) {
        went[..pairs].iter().chain(&came[..pairs]).for_each(gone);
        left.extend(went[pairs..].iter().chain(&came[pairs..]));
        return pairs as u64;
    }
    let (mut went_alone, mut came_alone) = (Vec::new(), Vec::new());
    let (mut went, mut came) = (went.iter().peekable(), came.iter().peekable());
    while let (Some(one), Some(other)) = (went.peek(), came.peek()) {
        // A row without an id is like no other, and comes first.
        match one.row_id.cmp(&other.row_id) {
            Ordering::Equal if one.row_id.is_some() => went.next().into_iter().chain(came.next()).for_each(&mut *gone),
            Ordering::Less | Ordering::Equal => went_alone.extend(went.next()),
            Ordering::Greater => came_alone.extend(came.next()),
        }
    }
    went_alone.extend(went);
    came_alone.extend(came);
    let others = went_alone.len().min(came_alone.len());
    went_alone.drain(..others).chain(came_alone.drain(..others)).for_each(gone);
    left.extend(went_alone.into_iter().chain(came_alone));
    pairs as u64
}

/// The place of the latest open change of the other side that has the id of this one.
fn same_id(open: &[Event], event: &Event) -> Option<usize> {
    let row_id = event.row_id?;
    let near = open.len().saturating_sub(ROW_ID_STEPS);
    let is_it = |open: &Event| open.comes != event.comes && open.row_id == Some(row_id);
    open[near..].iter().rposition(is_it).map(|at| near + at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Events by their ordinal, side and id, numbered as they come.
    fn events(of: &[(i32, bool, Option<i64>)]) -> Vec<Event> {
        let event = |(number, (ordinal, comes, row_id)): (u32, &(i32, bool, Option<i64>))| Event {
            ordinal: *ordinal,
            comes: *comes,
            row_id: *row_id,
            number,
        };
        (0..).zip(of).map(event).collect()
    }

    fn left(of: &[(i32, bool, Option<i64>)]) -> (Vec<Event>, u64) {
        let mut left = events(of);
        let pairs = Scratch::default().cancel(&mut events(of), |gone| {
            let before = left.len();
            left.retain(|event| event != gone);
            assert_eq!(left.len() + 1, before, "an event goes once");
        });
        (left, pairs)
    }

    /// The slow, plain way: rows are counted from snapshot to snapshot, and the last time that the count passed a level is
    /// when the row of this level last came, or went.
    fn model(of: &[(i32, bool, Option<i64>)]) -> Vec<(i32, bool)> {
        let mut deltas: BTreeMap<i32, i64> = BTreeMap::new();
        of.iter().for_each(|(ordinal, comes, _)| *deltas.entry(*ordinal).or_default() += if *comes { 1 } else { -1 });
        let total: i64 = deltas.values().sum();
        let passed = |level: i64| {
            let (mut count, mut at) = (0, None);
            for (ordinal, delta) in &deltas {
                let before = count;
                count += delta;
                if (total > 0 && before < level && level <= count) || (total < 0 && before > -level && -level >= count)
                {
                    at = Some((*ordinal, total > 0));
                }
            }
            at
        };
        let mut left: Vec<_> = (1..=total.abs()).filter_map(passed).collect();
        left.sort_unstable();
        left
    }

    fn any_events() -> impl Strategy<Value = Vec<(i32, bool, Option<i64>)>> {
        proptest::collection::vec((0..5_i32, any::<bool>(), proptest::option::of(0..4_i64)), 0..16)
    }

    proptest! {
        #[test]
        fn each_row_that_is_left_is_of_the_snapshot_since_which_there_are_so_many(mut of in any_events()) {
            of.iter_mut().for_each(|event| event.2 = None);
            let (found, pairs) = left(&of);
            prop_assert_eq!(2 * pairs as usize + found.len(), of.len());
            let mut found: Vec<_> = found.iter().map(|event| (event.ordinal, event.comes)).collect();
            found.sort_unstable();
            prop_assert_eq!(found, model(&of));
        }

        #[test]
        fn ids_decide_which_rows_are_left_and_not_how_many(of in any_events()) {
            let (found, pairs) = left(&of);
            prop_assert_eq!(2 * pairs as usize + found.len(), of.len());
            prop_assert_eq!(found.len(), model(&of).len());
            prop_assert!(found.windows(2).all(|pair| pair[0].comes == pair[1].comes));
        }
    }

    #[test]
    fn of_equal_rows_those_of_one_id_cancel() {
        let (went, came) = (false, true);
        for (what, of, expected) in [
            ("the older of two is deleted", vec![(0, came, Some(5)), (1, came, Some(6)), (2, went, Some(5))], vec![1]),
            (
                "one without an id takes the latest",
                vec![(0, came, Some(5)), (1, came, Some(6)), (2, went, None)],
                vec![0],
            ),
            (
                "of two that are rewritten one goes",
                vec![(0, went, Some(5)), (0, went, Some(6)), (0, came, Some(6))],
                vec![0],
            ),
            (
                "an id is looked for before any other row is taken",
                vec![
                    (0, came, Some(5)),
                    (1, came, Some(6)),
                    (2, came, Some(7)),
                    (3, went, Some(1)),
                    (3, went, Some(7)),
                ],
                vec![0],
            ),
        ] {
            let numbers: Vec<u32> = left(&of).0.iter().map(|event| event.number).collect();
            assert_eq!(numbers, expected, "{what}");
        }
    }
}
