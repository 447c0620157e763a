//! The tag step against a slow, plain multiset.

mod cases;
mod exchanged;
mod long;
mod net;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int32Type, Int64Type, Schema};
use iceferry_common::fault::{Class, Classified};
use iceferry_common::storage::{Storage, StorageProperties};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::held::{Held, Matched};
use super::*;
use crate::exchange::Space;
use crate::{Change, Columns};

/// An entry of a map.
type TextEntry = (&'static str, Option<i32>);

/// A struct of a number and a map.
type Inner = (Option<i64>, Vec<(i32, i32)>);

/// One row: an id, a float by its bits, text, bytes, a list, a map in the order of writing, a struct with a map inside.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    id: Option<i64>,
    float: Option<u64>,
    text: Option<&'static str>,
    bytes: Option<Vec<u8>>,
    list: Option<Vec<Option<i32>>>,
    map: Option<Vec<TextEntry>>,
    inner: Option<Inner>,
}

impl Row {
    fn of(id: i64) -> Self {
        Self { id: Some(id), float: None, text: None, bytes: None, list: None, map: None, inner: None }
    }

    /// Equal rows, and only those, print alike.
    fn identity(&self) -> String {
        let mut row = self.clone();
        if let Some(map) = &mut row.map {
            map.sort();
        }
        if let Some((_, map)) = &mut row.inner {
            map.sort();
        }
        format!("{row:?}")
    }
}

fn fields() -> Fields {
    let entries = |key: DataType, value: Field| {
        let fields = Fields::from(vec![Field::new("key", key, false), value]);
        DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(fields), false)), false)
    };
    let inner = entries(DataType::Int32, Field::new("value", DataType::Int32, false));
    Fields::from(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("float", DataType::Float64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("bytes", DataType::Binary, true),
        Field::new_list("list", Field::new("element", DataType::Int32, true), true),
        Field::new("map", entries(DataType::Utf8, Field::new("value", DataType::Int32, true)), true),
        Field::new(
            "inner",
            DataType::Struct(Fields::from(vec![
                Field::new("number", DataType::Int64, true),
                Field::new("map", inner, false),
            ])),
            true,
        ),
    ])
}

fn offsets(lengths: impl Iterator<Item = usize>) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths(lengths)
}

fn map_of(
    data_type: &DataType,
    keys: ArrayRef,
    values: ArrayRef,
    offsets: OffsetBuffer<i32>,
    nulls: Option<NullBuffer>,
) -> MapArray {
    let DataType::Map(field, _) = data_type else { panic!("a map") };
    let DataType::Struct(fields) = field.data_type() else { panic!("entries") };
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    MapArray::new(Arc::clone(field), offsets, entries, nulls, false)
}

fn batch(rows: &[Row]) -> RecordBatch {
    let fields = fields();
    let lists: Vec<Option<i32>> = rows.iter().flat_map(|row| row.list.clone().unwrap_or_default()).collect();
    let list = ListArray::new(
        Arc::new(Field::new("element", DataType::Int32, true)),
        offsets(rows.iter().map(|row| row.list.as_ref().map_or(0, Vec::len))),
        Arc::new(Int32Array::from(lists)),
        Some(NullBuffer::from_iter(rows.iter().map(|row| row.list.is_some()))),
    );
    let entries: Vec<_> = rows.iter().flat_map(|row| row.map.clone().unwrap_or_default()).collect();
    let map = map_of(
        fields[5].data_type(),
        Arc::new(StringArray::from_iter_values(entries.iter().map(|entry| entry.0))),
        Arc::new(Int32Array::from_iter(entries.iter().map(|entry| entry.1))),
        offsets(rows.iter().map(|row| row.map.as_ref().map_or(0, Vec::len))),
        Some(NullBuffer::from_iter(rows.iter().map(|row| row.map.is_some()))),
    );
    let DataType::Struct(inner_fields) = fields[6].data_type() else { panic!("a struct") };
    let entries: Vec<_> = rows.iter().flat_map(|row| row.inner.clone().map_or(Vec::new(), |inner| inner.1)).collect();
    let inner_map = map_of(
        inner_fields[1].data_type(),
        Arc::new(Int32Array::from_iter_values(entries.iter().map(|entry| entry.0))),
        Arc::new(Int32Array::from_iter_values(entries.iter().map(|entry| entry.1))),
        offsets(rows.iter().map(|row| row.inner.as_ref().map_or(0, |inner| inner.1.len()))),
        None,
    );
    let inner = StructArray::new(
        inner_fields.clone(),
        vec![
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.inner.as_ref().and_then(|inner| inner.0)))),
            Arc::new(inner_map),
        ],
        Some(NullBuffer::from_iter(rows.iter().map(|row| row.inner.is_some()))),
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.id))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.float.map(f64::from_bits)))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.text))),
        Arc::new(BinaryArray::from_iter(rows.iter().map(|row| row.bytes.clone()))),
        Arc::new(list),
        Arc::new(map),
        Arc::new(inner),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// The rows of a batch, read back.
fn rows(batch: &RecordBatch) -> Vec<Row> {
    let texts = ["", "a", "b", "c", "aa"];
    let text = |text: &str| *texts.iter().find(|known| **known == text).unwrap();
    let some = |column: usize, row: usize| batch.column(column).is_valid(row);
    let map_entries = |map: &MapArray, row: usize| map.value(row);
    (0..batch.num_rows())
        .map(|row| Row {
            id: some(0, row).then(|| batch.column(0).as_primitive::<Int64Type>().value(row)),
            float: some(1, row).then(|| batch.column(1).as_primitive::<Float64Type>().value(row).to_bits()),
            text: some(2, row).then(|| text(batch.column(2).as_string::<i32>().value(row))),
            bytes: some(3, row).then(|| batch.column(3).as_binary::<i32>().value(row).to_vec()),
            list: some(4, row)
                .then(|| batch.column(4).as_list::<i32>().value(row).as_primitive::<Int32Type>().iter().collect()),
            map: some(5, row).then(|| {
                let entries = map_entries(batch.column(5).as_map(), row);
                let keys = entries.column(0).as_string::<i32>();
                let values = entries.column(1).as_primitive::<Int32Type>();
                keys.iter().map(|key| text(key.unwrap())).zip(values.iter()).collect()
            }),
            inner: some(6, row).then(|| {
                let inner = batch.column(6).as_struct();
                let numbers = inner.column(0).as_primitive::<Int64Type>();
                let entries = map_entries(inner.column(1).as_map(), row);
                let keys = entries.column(0).as_primitive::<Int32Type>().values().to_vec();
                let values = entries.column(1).as_primitive::<Int32Type>().values().to_vec();
                (numbers.is_valid(row).then(|| numbers.value(row)), keys.into_iter().zip(values).collect())
            }),
        })
        .collect()
}

/// What [`tag`] gives, with a folder for what is exchanged; checks in the end that nothing is left there.
struct Run<I> {
    tagged: Tagged<I>,
    folder: TempDir,
}

impl<I> Deref for Run<I> {
    type Target = Tagged<I>;

    fn deref(&self) -> &Tagged<I> {
        &self.tagged
    }
}

impl<I> DerefMut for Run<I> {
    fn deref_mut(&mut self) -> &mut Tagged<I> {
        &mut self.tagged
    }
}

impl<I, E> Iterator for Run<I>
where
    I: Iterator<Item = Result<ChangeBatch, E>>,
{
    type Item = Result<ChangeBatch, TagError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.tagged.next()
    }
}

impl<I> Drop for Run<I> {
    fn drop(&mut self) {
        let left_behind = self.tagged.close();
        if !std::thread::panicking() {
            assert_eq!(left_behind, [""; 0]);
            assert_eq!(std::fs::read_dir(self.folder.path()).unwrap().count(), 0, "exchange files are gone");
        }
    }
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// Exchange files in a folder.
fn space(folder: &TempDir, cancel: CancellationToken) -> Space {
    let path = folder.path().to_owned();
    let location = move |number| path.join(format!("exchange/{number}")).display().to_string();
    Space::new(Storage::new(StorageProperties::default()), RUNTIME.handle().clone(), cancel, location)
}

fn tag<I, E>(reader: I, tagging: Tagging) -> Run<I::IntoIter>
where
    I: IntoIterator<Item = Result<ChangeBatch, E>>,
{
    let folder = tempfile::tempdir().unwrap();
    Run { tagged: super::tag(reader, tagging, space(&folder, CancellationToken::new())), folder }
}

fn tagging(resolution: Resolution, key: &[usize], memory_bytes_max: u64) -> Tagging {
    let (table, key) = ("db.t".to_owned(), key.to_vec());
    Tagging { table, resolution, compared: usize::MAX, key, changelog: None, ordinal: None, memory_bytes_max, level: 0 }
}

fn changes(change: Change, given: &[Row], size: usize) -> Vec<Result<ChangeBatch, TagTestError>> {
    given.chunks(size).map(|rows| Ok(ChangeBatch { change, columns: Columns::All, rows: batch(rows) })).collect()
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the reader failed")]
struct TagTestError;

impl Classified for TagTestError {
    fn class(&self) -> Class {
        Class::Transient
    }
}

type Counts = BTreeMap<String, u64>;

fn counts(rows: impl IntoIterator<Item = Row>) -> Counts {
    let mut counts = Counts::new();
    for row in rows {
        *counts.entry(row.identity()).or_default() += 1;
    }
    counts
}

/// What is left of `minuend` when equal rows of `subtrahend` are taken away, one for one.
fn minus(minuend: &Counts, subtrahend: &Counts) -> Counts {
    let left = minuend
        .iter()
        .map(|(row, count)| (row.clone(), count.saturating_sub(subtrahend.get(row).copied().unwrap_or(0))));
    left.filter(|(_, count)| *count > 0).collect()
}

/// Runs the step; gives the rows that went, those that came, and the pairs that cancelled.
fn run(deletes: &[Row], inserts: &[Row], size: usize, memory_bytes_max: u64) -> (Counts, Counts, u64) {
    let input = changes(Change::Delete, deletes, size).into_iter().chain(changes(Change::Insert, inserts, size));
    let mut tagged = tag(input, tagging(Resolution::CarryOver, &[], memory_bytes_max));
    let (mut went, mut came) = (Vec::new(), Vec::new());
    for batch in tagged.by_ref() {
        let batch = batch.unwrap();
        assert!(batch.rows.num_rows() > 0, "no batch is empty");
        match batch.change {
            Change::Delete => went.extend(rows(&batch.rows)),
            Change::Insert => came.extend(rows(&batch.rows)),
            change => panic!("{change:?} without an identity"),
        }
    }
    (counts(went), counts(came), tagged.carried_over())
}

const PLENTY: u64 = 1 << 30;

#[test]
fn a_map_is_what_its_entries_are_in_any_order() {
    let with = |id, map: &[TextEntry]| Row { map: Some(map.to_vec()), ..Row::of(id) };
    let deletes = [with(1, &[("a", Some(1)), ("b", Some(2))]), with(2, &[("c", Some(3))])];
    let inserts = [with(1, &[("b", Some(2)), ("a", Some(1))])];
    let (went, came, carried_over) = run(&deletes, &inserts, 10, PLENTY);
    assert_eq!((went, came, carried_over), (counts([deletes[1].clone()]), Counts::new(), 1));
    // Same keys, values the other way round: another map.
    let swapped = [with(1, &[("a", Some(2)), ("b", Some(1))])];
    assert_eq!(run(&deletes[..1], &swapped, 10, PLENTY).2, 0);
}

#[test]
fn floats_are_equal_by_their_bits() {
    let with = |bits| Row { float: Some(bits), ..Row::of(1) };
    let carried_over = |a: f64, b: f64| run(&[with(a.to_bits())], &[with(b.to_bits())], 10, PLENTY).2;
    assert_eq!(carried_over(f64::NAN, f64::NAN), 1);
    assert_eq!(carried_over(0.0, -0.0), 0);
    assert_eq!(carried_over(-0.0, -0.0), 1);
}

#[test]
fn null_is_a_value_of_its_own() {
    let null = Row { id: None, ..Row::of(0) };
    assert_eq!(run(std::slice::from_ref(&null), std::slice::from_ref(&null), 10, PLENTY).2, 1);
    assert_eq!(run(std::slice::from_ref(&null), &[Row::of(0)], 10, PLENTY).2, 0);
    let list = |list| Row { list, ..Row::of(1) };
    assert_eq!(run(&[list(None)], &[list(Some(vec![]))], 10, PLENTY).2, 0);
    assert_eq!(run(&[list(Some(vec![None]))], &[list(Some(vec![]))], 10, PLENTY).2, 0);
}

#[test]
fn one_went_cancels_one_came() {
    let (went, came, carried_over) = run(&vec![Row::of(1); 3], &vec![Row::of(1); 5], 2, PLENTY);
    assert_eq!((went, came, carried_over), (Counts::new(), counts(vec![Row::of(1); 2]), 3));
}

#[test]
fn a_batch_in_which_nothing_cancels_passes_untouched() {
    let input =
        changes(Change::Delete, &[Row::of(1)], 10).into_iter().chain(changes(Change::Insert, &[Row::of(2)], 10));
    let out: Vec<_> = tag(input, tagging(Resolution::CarryOver, &[0], PLENTY)).map(Result::unwrap).collect();
    assert_eq!(out.len(), 2);
    assert_eq!((out[0].change, out[0].columns), (Change::Insert, Columns::All));
    assert_eq!((out[1].change, out[1].columns), (Change::Delete, Columns::Key));
    assert_eq!(out[1].rows.schema().fields().len(), 1);
}

#[test]
fn equal_keys_with_other_columns_do_not_cancel() {
    let after = Row { text: Some("a"), ..Row::of(1) };
    let input = changes(Change::Delete, &[Row::of(1)], 10).into_iter().chain(changes(Change::Insert, &[after], 10));
    let out: Vec<_> = tag(input, tagging(Resolution::CarryOver, &[0], PLENTY)).map(Result::unwrap).collect();
    assert_eq!(out.iter().map(|batch| batch.rows.num_rows()).sum::<usize>(), 2);
}

#[test]
fn a_key_of_which_one_row_goes_and_another_stays_is_refused() {
    let with = |id, text| Row { text: Some(text), ..Row::of(id) };
    let outcome = |deletes: &[Row], inserts: &[Row], key: &[usize]| {
        let input = changes(Change::Delete, deletes, 1).into_iter().chain(changes(Change::Insert, inserts, 1));
        tag(input, tagging(Resolution::CarryOver, key, PLENTY)).find_map(Result::err).map(|error| error.to_string())
    };
    let before = [with(1, "a"), with(1, "b"), with(2, "c")];
    // (1, a) is carried over, and the delete of (1, b) would take it along.
    let refused = outcome(&before, &[with(1, "a"), with(1, "z"), with(2, "c")], &[0]).unwrap();
    assert!(refused.contains("db.t has two rows with the key id=1"), "{refused}");
    assert!(outcome(&before, &[with(1, "a"), with(2, "c")], &[0]).is_some(), "a row that only went");
    assert!(outcome(&vec![Row::of(1); 2], &[Row::of(1)], &[0]).is_some(), "one of two equal rows");
    assert_eq!(outcome(&before, &[with(1, "a"), with(1, "b"), with(2, "z")], &[0]), None, "both stay");
    assert_eq!(outcome(&before, &[with(2, "c")], &[0]), None, "both go");
    assert_eq!(outcome(&before, &[with(1, "a"), with(2, "c")], &[]), None, "without a key whole rows are deleted");
}

#[test]
fn what_does_not_fit_into_memory_cancels_all_the_same() {
    let all: Vec<Row> = (0..200).map(Row::of).collect();
    assert_eq!(run(&all, &all, 10, 4096), (Counts::new(), Counts::new(), 200));
}

#[test]
fn kept_batches_pass_as_they_are() {
    let all = [Row::of(1), Row::of(2)];
    let input = changes(Change::Insert, &all, 1).into_iter().chain(changes(Change::Delete, &all, 2));
    let mut tagged = tag(input, tagging(Resolution::Keep, &[0], 0));
    let out: Vec<_> = tagged.by_ref().map(Result::unwrap).collect();
    let seen: Vec<_> = out.iter().map(|batch| (batch.change, batch.columns, batch.rows.num_rows())).collect();
    assert_eq!(
        seen,
        [(Change::Insert, Columns::All, 1), (Change::Insert, Columns::All, 1), (Change::Delete, Columns::All, 2)]
    );
    assert_eq!(tagged.carried_over(), 0);
}

#[test]
fn a_reader_that_fails_gives_its_error_and_no_deletes() {
    let input = changes(Change::Delete, &[Row::of(1)], 1).into_iter().chain([Err(TagTestError)]);
    let out: Vec<_> = tag(input, tagging(Resolution::CarryOver, &[], PLENTY)).collect();
    assert!(matches!(out.as_slice(), [Err(TagError::Read(TagTestError))]), "{out:?}");
}

/// Gives every row the same hash.
#[derive(Default)]
struct Same;

impl std::hash::Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn rows_of_one_hash_and_different_content_do_not_cancel() {
    let all: Vec<Row> = (0..100).map(Row::of).collect();
    let other: Vec<Row> = all.iter().map(|row| Row { bytes: Some(vec![0]), ..row.clone() }).collect();
    let mut held = Held::with_hasher(Vec::new(), usize::MAX, std::hash::BuildHasherDefault::<Same>::default());
    held.hold(batch(&all)).unwrap();
    assert!(matches!(held.match_inserts(&batch(&other)).unwrap(), Matched::None));
    let Matched::Some { came, count } = held.match_inserts(&batch(&[other[0].clone(), all[50].clone()])).unwrap()
    else {
        panic!("one row is equal")
    };
    assert_eq!((came.value(0), came.value(1), count), (true, false, 1));
    let left: usize = held.into_unmatched().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(left, 99);
}

#[test]
fn many_rows_cancel_over_batches_of_any_size() {
    let all: Vec<Row> = (0..5000).map(|id| Row { bytes: Some(vec![0; 3]), ..Row::of(id) }).collect();
    assert_eq!(run(&all, &all, 777, PLENTY), (Counts::new(), Counts::new(), 5000));
}

fn any_row() -> impl Strategy<Value = Row> {
    let float = prop_oneof![
        Just(0.0_f64.to_bits()),
        Just((-0.0_f64).to_bits()),
        Just(f64::NAN.to_bits()),
        Just(1.5_f64.to_bits())
    ];
    let text = prop_oneof![Just(""), Just("a"), Just("b"), Just("aa")];
    let map = Just(vec![("a", Some(1)), ("b", None), ("c", Some(2))]).prop_shuffle();
    let map = (map, 0..4_usize).prop_map(|(map, length)| map[..length].to_vec());
    let inner = Just(vec![(1, 1), (2, 2)]).prop_shuffle();
    let inner = (proptest::option::of(0..2_i64), inner, 0..3_usize)
        .prop_map(|(number, map, length)| (number, map[..length].to_vec()));
    // Few values each, so that rows are often equal.
    (
        proptest::option::of(0..3_i64),
        proptest::option::weighted(0.3, float),
        proptest::option::weighted(0.3, text),
        proptest::option::weighted(0.2, proptest::collection::vec(0..2_u8, 0..2)),
        proptest::option::weighted(0.2, proptest::collection::vec(proptest::option::of(0..2_i32), 0..3)),
        proptest::option::weighted(0.3, map),
        proptest::option::weighted(0.2, inner),
    )
        .prop_map(|(id, float, text, bytes, list, map, inner)| Row { id, float, text, bytes, list, map, inner })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn carry_over_is_the_multiset_of_rows_on_both_sides(
        deletes in proptest::collection::vec(any_row(), 0..60),
        mut inserts in proptest::collection::vec(any_row(), 0..60),
        kept in 0..60_usize,
        size in 1..20_usize,
    ) {
        // Some rows are carried over for sure, in another order.
        inserts.extend(deletes.iter().rev().take(kept).cloned());
        let (went, came, carried_over) = run(&deletes, &inserts, size, PLENTY);
        let (before, after) = (counts(deletes.clone()), counts(inserts.clone()));
        prop_assert_eq!(&went, &minus(&before, &after));
        prop_assert_eq!(&came, &minus(&after, &before));
        prop_assert_eq!(carried_over, deletes.len() as u64 - went.values().sum::<u64>());
        // Whatever the memory, the net of the two sides is the same.
        let (went, came, carried_over) = run(&deletes, &inserts, size, 2000);
        prop_assert_eq!(minus(&went, &came), minus(&before, &after));
        prop_assert_eq!(minus(&came, &went), minus(&after, &before));
        prop_assert_eq!(carried_over, deletes.len() as u64 - went.values().sum::<u64>());
    }
}

#[test]
fn slices_of_a_longer_batch_are_compared_by_their_own_rows() {
    let with = |id, map: &[TextEntry]| Row { map: Some(map.to_vec()), list: Some(vec![Some(7)]), ..Row::of(id) };
    let whole = batch(&[with(1, &[("a", Some(1))]), with(2, &[("b", Some(2)), ("c", None)]), with(3, &[])]);
    let went = ChangeBatch { change: Change::Delete, columns: Columns::All, rows: whole.slice(1, 2) };
    let came = ChangeBatch {
        change: Change::Insert,
        columns: Columns::All,
        rows: batch(&[with(2, &[("c", None), ("b", Some(2))])]),
    };
    let mut tagged = tag([Ok::<_, TagTestError>(went), Ok(came)], tagging(Resolution::CarryOver, &[], PLENTY));
    let out: Vec<_> = tagged.by_ref().map(Result::unwrap).collect();
    assert_eq!(tagged.carried_over(), 1);
    assert_eq!(out.len(), 1);
    assert_eq!(rows(&out[0].rows), [with(3, &[])]);
}

/// A changelog's events: change type and id with float bits, sorted.
fn events(deletes: &[Row], inserts: &[Row], by: Pairing) -> Result<Vec<String>, String> {
    let in_memory = events_within(deletes, inserts, by.clone(), PLENTY);
    // Exchanged they are the same: one batch of any kind is too much, a key or two are not.
    assert_eq!(events_within(deletes, inserts, by, 1500), in_memory);
    in_memory
}

fn events_within(deletes: &[Row], inserts: &[Row], by: Pairing, memory_bytes_max: u64) -> Result<Vec<String>, String> {
    let input = changes(Change::Delete, deletes, 2).into_iter().chain(changes(Change::Insert, inserts, 3));
    let tagging = Tagging { changelog: Some(by), ..tagging(Resolution::Updates, &[], memory_bytes_max) };
    let mut events = Vec::new();
    for batch in tag(input, tagging) {
        let batch = batch.map_err(|error| error.to_string())?;
        assert!(batch.rows.num_rows() > 0, "no batch is empty");
        let event = |row: Row| format!("{} {:?} {:?}", batch.change.name(), row.id, row.text);
        events.extend(rows(&batch.rows).into_iter().map(event));
    }
    events.sort();
    Ok(events)
}

/// Rows are told by their id.
fn by_id() -> Pairing {
    Pairing { columns: vec![0], nulls_pair: true, duplicates: true }
}

fn text(id: Option<i64>, text: &'static str) -> Row {
    Row { id, text: Some(text), ..Row::of(0) }
}

#[test]
fn what_is_left_of_a_key_on_both_sides_is_an_update() {
    let deletes = [text(Some(1), "a"), text(Some(2), "b"), text(Some(3), "c")];
    let inserts = [text(Some(1), "aa"), text(Some(2), "b"), text(Some(4), "a")];
    let expected = [
        "DELETE Some(3) Some(\"c\")",
        "INSERT Some(4) Some(\"a\")",
        "UPDATE_AFTER Some(1) Some(\"aa\")",
        "UPDATE_BEFORE Some(1) Some(\"a\")",
    ];
    assert_eq!(events(&deletes, &inserts, by_id()).unwrap(), expected);
}

#[test]
fn a_key_that_changes_is_a_delete_and_an_insert() {
    let events = events(&[text(Some(1), "a")], &[text(Some(5), "a")], by_id()).unwrap();
    assert_eq!(events, ["DELETE Some(1) Some(\"a\")", "INSERT Some(5) Some(\"a\")"]);
}

#[test]
fn equal_rows_cancel_before_any_pairs_in_whatever_order_they_come() {
    // Of one key: a row that is carried over, one that goes, one that comes.
    let (kept, old, new) = (text(Some(1), "a"), text(Some(1), "b"), text(Some(1), "c"));
    for deletes in [[kept.clone(), old.clone()], [old, kept.clone()]] {
        for inserts in [[kept.clone(), new.clone()], [new.clone(), kept.clone()]] {
            let expected = ["UPDATE_AFTER Some(1) Some(\"c\")", "UPDATE_BEFORE Some(1) Some(\"b\")"];
            assert_eq!(events(&deletes, &inserts, by_id()).unwrap(), expected);
        }
    }
}

#[test]
fn a_null_key_pairs_unless_it_identifies_nothing() {
    let (went, came) = ([text(None, "a")], [text(None, "b")]);
    let expected = ["UPDATE_AFTER None Some(\"b\")", "UPDATE_BEFORE None Some(\"a\")"];
    assert_eq!(events(&went, &came, by_id()).unwrap(), expected);
    let apart = Pairing { nulls_pair: false, ..by_id() };
    assert_eq!(events(&went, &came, apart).unwrap(), ["DELETE None Some(\"a\")", "INSERT None Some(\"b\")"]);
}

#[test]
fn duplicates_pair_in_order_or_are_refused_by_name() {
    let (went, came) = ([text(Some(1), "a"), text(Some(1), "b")], [text(Some(1), "c")]);
    let expected =
        ["DELETE Some(1) Some(\"b\")", "UPDATE_AFTER Some(1) Some(\"c\")", "UPDATE_BEFORE Some(1) Some(\"a\")"];
    assert_eq!(events(&went, &came, by_id()).unwrap(), expected);
    let error = events(&went, &came, Pairing { duplicates: false, ..by_id() }).unwrap_err();
    assert!(error.contains("id=1") && error.contains("duplicate_keys"), "{error}");
}

#[test]
fn without_a_changelog_no_row_waits_for_the_other_half_of_an_update() {
    let input = changes(Change::Delete, &[Row::of(1)], 1).into_iter().chain(changes(Change::Insert, &[Row::of(2)], 1));
    let out: Vec<_> = tag(input, tagging(Resolution::Updates, &[], PLENTY)).map(Result::unwrap).collect();
    let mut kinds: Vec<&str> = out.iter().map(|batch| batch.change.name()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["DELETE", "INSERT"]);
}
