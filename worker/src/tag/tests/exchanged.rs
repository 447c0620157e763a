//! Rows that do not fit into memory: what comes out is what would come out if they did, and no file stays behind.

use arrow::array::UInt64Array;

use super::*;

/// A row with its `_row_id`, which is no part of its content.
type Identified = (Row, Option<i64>);

/// How rows are told from each other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Id,
    IdAndText,
    RowId,
    Nothing,
}

const PLACE_OF_ROW_ID: usize = 7;

fn identified(rows: &[Identified]) -> RecordBatch {
    let content = batch(&rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());
    let mut fields = content.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("_row_id", DataType::Int64, true)));
    let mut columns = content.columns().to_vec();
    columns.push(Arc::new(Int64Array::from_iter(rows.iter().map(|(_, id)| *id))));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn read_back(batch: &RecordBatch) -> Vec<String> {
    let ids = batch.column(PLACE_OF_ROW_ID).as_primitive::<Int64Type>().clone();
    rows(batch).iter().zip(ids.iter()).map(|(row, id)| format!("{} {id:?}", row.identity())).collect()
}

/// What came out: rows that went and came, and pairs of both halves of an update; each sorted.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    deletes: Vec<String>,
    inserts: Vec<String>,
    updates: Vec<(String, String)>,
    carried_over: u64,
}

impl Outcome {
    fn sorted(mut self) -> Self {
        self.deletes.sort();
        self.inserts.sort();
        self.updates.sort();
        self
    }
}

fn key_of((row, row_id): &Identified, by: By) -> Option<String> {
    match by {
        By::Id => Some(format!("{:?}", row.id)),
        By::IdAndText => Some(format!("{:?} {:?}", row.id, row.text)),
        By::RowId => row_id.map(|id| id.to_string()),
        By::Nothing => None,
    }
}

/// The slow, plain way: each row that came cancels the last equal one that went, before any other that of its own row id
/// where rows are told by it, then the first rows of an identity are partners.
fn model(deletes: &[Identified], inserts: &[Identified], by: By) -> Outcome {
    let mut went: Vec<Option<&Identified>> = deletes.iter().map(Some).collect();
    let mut came = Vec::new();
    let mut outcome = Outcome::default();
    let is_equal = |one: &Identified, other: &Identified| one.0.identity() == other.0.identity();
    for insert in inserts {
        let is_it = |went: &Identified| by == By::RowId && insert.1.is_some() && went.1 == insert.1;
        let same_id = went.iter().position(|went| went.is_some_and(|went| is_equal(went, insert) && is_it(went)));
        let last = || went.iter().rposition(|went| went.is_some_and(|went| is_equal(went, insert)));
        match same_id.or_else(last) {
            Some(place) => {
                went[place] = None;
                outcome.carried_over += 1;
            }
            None => came.push(insert),
        }
    }
    let shown = |(row, id): &Identified| format!("{} {id:?}", row.identity());
    for insert in came {
        let key = key_of(insert, by);
        let partner = went.iter().position(|went| key.is_some() && went.is_some_and(|went| key_of(went, by) == key));
        match partner {
            Some(place) => outcome.updates.extend(went[place].take().map(|went| (shown(went), shown(insert)))),
            None => outcome.inserts.push(shown(insert)),
        }
    }
    outcome.deletes = went.into_iter().flatten().map(shown).collect();
    outcome.sorted()
}

fn input(
    deletes: &[Identified],
    inserts: &[Identified],
    size: usize,
) -> impl Iterator<Item = Result<ChangeBatch, TagTestError>> {
    let batches = |change, rows: &[Identified]| -> Vec<_> {
        let columns = Columns::All;
        rows.chunks(size).map(|rows| Ok(ChangeBatch { change, columns, rows: identified(rows) })).collect()
    };
    batches(Change::Delete, deletes).into_iter().chain(batches(Change::Insert, inserts))
}

fn changelog(by: By, memory_bytes_max: u64) -> Tagging {
    let columns = match by {
        By::Id => vec![0],
        By::IdAndText => vec![0, 2],
        By::RowId => vec![PLACE_OF_ROW_ID],
        By::Nothing => vec![],
    };
    let pairing = Pairing { columns, nulls_pair: by != By::RowId, duplicates: true };
    let resolution = if by == By::Nothing { Resolution::CarryOver } else { Resolution::Updates };
    let changelog = Some(pairing);
    Tagging { compared: PLACE_OF_ROW_ID, changelog, ..tagging(resolution, &[], memory_bytes_max) }
}

/// Runs the step; gives what came out and how many files were exchanged.
fn outcome(
    deletes: &[Identified],
    inserts: &[Identified],
    size: usize,
    tagging: Tagging,
) -> Result<(Outcome, usize), TagError<TagTestError>> {
    let mut tagged = tag(input(deletes, inserts, size), tagging);
    let mut outcome = Outcome::default();
    let mut before = Vec::new();
    for batch in tagged.by_ref() {
        let batch = batch?;
        assert!(batch.rows.num_rows() > 0, "no batch is empty");
        let rows = read_back(&batch.rows);
        match batch.change {
            Change::Delete => outcome.deletes.extend(rows),
            Change::Insert => outcome.inserts.extend(rows),
            Change::UpdateBefore => before.extend(rows),
            // The other halves come right behind, in the same order.
            Change::UpdateAfter => outcome.updates.extend(before.drain(..).zip(rows)),
        }
    }
    assert!(before.is_empty(), "an update has two halves");
    outcome.carried_over = tagged.carried_over();
    Ok((outcome.sorted(), tagged.exchange_files()))
}

fn any_identity() -> impl Strategy<Value = By> {
    prop_oneof![Just(By::Id), Just(By::IdAndText), Just(By::RowId), Just(By::Nothing)]
}

/// Rows of both sides, some of them carried over, some updated; row ids are unlike each other on a side.
fn any_difference() -> impl Strategy<Value = (Vec<Identified>, Vec<Identified>)> {
    let row = || (any_row(), proptest::option::weighted(0.9, 0..30_i64)).prop_map(|(row, id)| Row { id, ..row });
    let side = || proptest::collection::vec(row(), 0..60);
    let ids = Just((0..150_i64).collect::<Vec<_>>()).prop_shuffle();
    (side(), side(), 0..60_usize, ids.clone(), ids).prop_map(|(deletes, mut inserts, kept, ids, other_ids)| {
        inserts.extend(deletes.iter().rev().take(kept).cloned());
        let with_ids = |rows: Vec<Row>, ids: Vec<i64>| -> Vec<Identified> {
            rows.into_iter().zip(ids).map(|(row, id)| (row, (id % 7 != 0).then_some(id))).collect()
        };
        (with_ids(deletes, ids), with_ids(inserts, other_ids))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_changelog_is_the_same_whatever_the_memory(
        (deletes, inserts) in any_difference(),
        by in any_identity(),
        size in 1..20_usize,
        memory_bytes_max in prop_oneof![Just(PLENTY), 1_000..20_000_u64],
    ) {
        let expected = model(&deletes, &inserts, by);
        match outcome(&deletes, &inserts, size, changelog(by, memory_bytes_max)) {
            Ok((found, _)) => prop_assert_eq!(found, expected),
            // Rows of one identity, or equal ones, may be more than so little memory.
            Err(TagError::TooLarge { .. }) if memory_bytes_max < 8_000 => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn a_mirror_is_right_whatever_the_memory(
        (deletes, inserts) in any_difference(),
        size in 1..20_usize,
        memory_bytes_max in prop_oneof![Just(PLENTY), 0..20_000_u64],
    ) {
        let plain = |rows: &[Identified]| rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>();
        let (deletes, inserts) = (plain(&deletes), plain(&inserts));
        let keyed = changes(Change::Delete, &deletes, size).into_iter().chain(changes(Change::Insert, &inserts, size));
        let (mut gone, mut came) = (Vec::new(), Vec::new());
        let mut refused = None;
        for batch in tag(keyed, tagging(Resolution::CarryOver, &[0], memory_bytes_max)) {
            match batch {
                Ok(ChangeBatch { change: Change::Delete, columns, rows }) => {
                    prop_assert_eq!((columns, rows.num_columns()), (Columns::Key, 1));
                    gone.extend(rows.column(0).as_primitive::<Int64Type>().iter());
                }
                Ok(batch) => came.extend(rows(&batch.rows)),
                Err(TagError::DuplicateKey { key, .. }) => refused = Some(key),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        let (before, after) = (counts(deletes.clone()), counts(inserts.clone()));
        match refused {
            Some(key) => {
                // One of its rows goes and another stays.
                let of_key = |row: &&Row| row.id.map_or("null".to_owned(), |id| id.to_string()) == key[3..];
                let of_key = counts(deletes.iter().filter(of_key).cloned());
                let goes = minus(&of_key, &after);
                prop_assert!(!goes.is_empty() && goes != of_key, "{key}");
            }
            None => {
                // What was there, without what is deleted by its key, and with what came.
                let stays = deletes.iter().filter(|row| !gone.contains(&row.id)).cloned();
                prop_assert_eq!(&counts(stays.chain(came)), &after);
            }
        }
        let whole = run(&deletes, &inserts, size, memory_bytes_max);
        prop_assert_eq!(whole, (minus(&before, &after), minus(&after, &before), {
            let left: u64 = minus(&before, &after).values().sum();
            deletes.len() as u64 - left
        }));
    }
}

/// Rows with ids of a range, updated in every tenth.
fn rewritten(ids: std::ops::Range<i64>) -> (Vec<Identified>, Vec<Identified>) {
    let before: Vec<Identified> = ids.map(|id| (Row { text: Some("a"), ..Row::of(id) }, Some(id))).collect();
    let after = before.iter().rev().map(|(row, id)| match id {
        Some(number) if number % 10 == 0 => (Row { text: Some("b"), ..row.clone() }, *id),
        _ => (row.clone(), *id),
    });
    let after = after.collect();
    (before, after)
}

#[test]
fn a_bucket_that_does_not_fit_is_exchanged_again() {
    let (deletes, inserts) = rewritten(0..1_500);
    for by in [By::Id, By::IdAndText, By::RowId, By::Nothing] {
        let expected = outcome(&deletes, &inserts, 500, changelog(by, PLENTY)).unwrap();
        assert_eq!(expected.1, 0, "all of it fits");
        // About 24 rows of each side go into a bucket, and a few into memory.
        let found = outcome(&deletes, &inserts, 500, changelog(by, 3_000)).unwrap();
        assert_eq!(found.0, expected.0, "{by:?}");
        assert!(found.1 > 10, "{by:?}: only {} files", found.1);
    }
}

#[test]
fn a_duplicate_identity_is_found_in_the_bucket_where_it_is() {
    let (mut deletes, inserts) = rewritten(0..500);
    deletes.push((Row { text: Some("c"), ..Row::of(10) }, Some(1_000)));
    for memory_bytes_max in [PLENTY, 5_000] {
        let mut tagging = changelog(By::Id, memory_bytes_max);
        tagging.changelog.as_mut().unwrap().duplicates = false;
        let error = outcome(&deletes, &inserts, 50, tagging).unwrap_err();
        assert!(error.to_string().contains("identity id=10 among"), "{error}");
        assert_eq!(error.class(), Class::Refused);
    }
}

#[test]
fn a_key_that_goes_and_stays_is_found_in_the_bucket_where_it_is() {
    let all: Vec<Row> = (0..500).map(|id| Row { text: Some("a"), ..Row::of(id) }).collect();
    let twice = [all.clone(), vec![Row { text: Some("b"), ..Row::of(77) }]].concat();
    for memory_bytes_max in [PLENTY, 5_000] {
        let input = changes(Change::Delete, &twice, 20).into_iter().chain(changes(Change::Insert, &all, 20));
        let error = tag(input, tagging(Resolution::CarryOver, &[0], memory_bytes_max)).find_map(Result::err).unwrap();
        assert!(error.to_string().contains("two rows with the key id=77"), "{error}");
    }
}

#[test]
fn rows_of_one_identity_that_do_not_fit_are_an_error_that_names_it() {
    let texts = ["", "a", "b", "c", "aa"];
    let rows = |bytes: u8| -> Vec<Identified> {
        let row = |text| Row { text: Some(text), bytes: Some(vec![bytes; 300]), ..Row::of(7) };
        texts.iter().map(|text| (row(text), None)).collect()
    };
    let error = outcome(&rows(1), &rows(2), 2, changelog(By::Id, 2_000)).unwrap_err();
    assert_eq!(error.class(), Class::Exhausted);
    let text = error.to_string();
    assert!(text.contains("identity id=7") && text.contains("--memory-mb") && text.contains("2000 bytes"), "{text}");
}

#[test]
fn rows_that_are_all_equal_are_counted_instead_of_held() {
    let of = |count: usize| vec![Row { text: Some("a"), ..Row::of(1) }; count];
    for (went, came) in [(20_000, 12_345), (12_345, 20_000), (20_000, 20_000), (20_000, 0)] {
        let (gone, new, carried_over) = run(&of(went), &of(came), 1_000, 10_000);
        let left =
            |count: usize| if count == 0 { Counts::new() } else { Counts::from([(of(1)[0].identity(), count as u64)]) };
        assert_eq!((gone, new), (left(went.saturating_sub(came)), left(came.saturating_sub(went))));
        assert_eq!(carried_over, went.min(came) as u64);
    }
}

#[test]
fn a_mirror_carries_rows_of_one_key_that_do_not_fit_as_they_come() {
    let all = vec![Row { text: Some("a"), ..Row::of(1) }; 2_000];
    let input = changes(Change::Delete, &all, 100).into_iter().chain(changes(Change::Insert, &all, 100));
    let mut tagged = tag(input, tagging(Resolution::CarryOver, &[0], 10_000));
    let (mut went, mut came) = (0, 0);
    for batch in tagged.by_ref() {
        let batch = batch.unwrap();
        match (batch.change, batch.columns) {
            (Change::Delete, Columns::Key) => went += batch.rows.num_rows(),
            (Change::Insert, Columns::All) => came += batch.rows.num_rows(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((went, came, tagged.carried_over()), (2_000, 2_000, 0));
}

#[test]
fn duplicates_of_a_key_pair_in_the_order_in_which_they_were_read() {
    let texts = ["a", "b", "c", "aa"];
    let side = |bytes: u8, texts: &[&'static str]| -> Vec<Identified> {
        let rows = texts.iter().flat_map(|text| {
            (0..200).map(move |id| (Row { text: Some(text), bytes: Some(vec![bytes]), ..Row::of(id) }, None))
        });
        rows.collect()
    };
    let (found, files) = outcome(&side(1, &texts), &side(2, &texts[..3]), 64, changelog(By::Id, 5_000)).unwrap();
    assert!(files > 0);
    assert_eq!((found.updates.len(), found.deletes.len(), found.inserts.len()), (600, 200, 0));
    let text = |row: &str| row.split("text: ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert!(found.updates.iter().all(|(before, after)| text(before) == text(after)), "the first with the first");
    assert!(found.deletes.iter().all(|row| text(row) == "Some(\"aa\")"), "the last is left");
}

#[test]
fn rows_that_went_after_rows_that_came_are_a_bug_of_the_reader() {
    let input = changes(Change::Insert, &[Row::of(1)], 1).into_iter().chain(changes(Change::Delete, &[Row::of(2)], 1));
    let tagging = Tagging { changelog: Some(by_id()), ..tagging(Resolution::Updates, &[], PLENTY) };
    let error = tag(input, tagging).find_map(Result::err).unwrap();
    assert!(matches!(error, TagError::Order { .. }) && error.class() == Class::Bug, "{error}");
}

/// A wide batch of rows with these numbers: about a hundred bytes each.
fn wide(numbers: std::ops::Range<u64>, value: u64) -> RecordBatch {
    let column = |factor: u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(numbers.clone().map(|number| number.wrapping_mul(factor))))
    };
    let mut columns: Vec<ArrayRef> =
        (1..12_u64).map(|place| column(if place == 1 { 1 } else { place << 40 | 1 })).collect();
    columns.push(Arc::new(UInt64Array::from(vec![value; columns[0].len()])));
    RecordBatch::try_from_iter(columns.into_iter().enumerate().map(|(place, column)| (format!("c{place}"), column)))
        .unwrap()
}

/// A group in which every hundredth batch of rows is updated; nothing of it is made before it is asked for.
fn group(rows: u64) -> impl Iterator<Item = Result<ChangeBatch, TagTestError>> {
    const ROWS: u64 = 8192;
    let batches = rows / ROWS;
    let batch = |change, number: u64, value| {
        Ok(ChangeBatch { change, columns: Columns::All, rows: wide(number * ROWS..(number + 1) * ROWS, value) })
    };
    let went = (0..batches).map(move |number| batch(Change::Delete, number, 1));
    let came = (0..batches).rev();
    went.chain(came.map(move |number| batch(Change::Insert, number, if number % 100 == 0 { 2 } else { 1 })))
}

pub(super) fn memory_of_a_group(rows: u64, memory_bytes_max: u64, resolution: Resolution) -> (u64, u64, u64, usize) {
    let changelog = (resolution == Resolution::Updates).then(by_id);
    let key: &[usize] = if changelog.is_none() { &[0] } else { &[] };
    let mut tagged = tag(group(rows), Tagging { changelog, ..tagging(resolution, key, memory_bytes_max) });
    let mut changes = 0;
    for batch in tagged.by_ref() {
        changes += batch.unwrap().rows.num_rows() as u64;
    }
    (tagged.memory_bytes_peak(), changes, tagged.carried_over(), tagged.exchange_files())
}

#[test]
fn memory_follows_the_limit_and_not_the_size_of_the_group() {
    const LIMIT: u64 = 4 << 20;
    let rows = 62 * 8192;
    for resolution in [Resolution::Updates, Resolution::CarryOver] {
        let (peak, changes, carried_over, files) = memory_of_a_group(rows, LIMIT, resolution);
        assert_eq!((changes, carried_over), (2 * 8192, rows - 8192));
        assert!(files > 0 && peak <= 2 * LIMIT, "{resolution:?}: {peak} bytes, {files} files");
    }
}

#[test]
fn files_are_gone_after_an_error_a_stop_and_a_drop() {
    let (deletes, inserts) = rewritten(0..2_000);
    let tagging = || changelog(By::Id, 5_000);
    // The reader fails while rows are exchanged.
    let failing = input(&deletes, &inserts, 100).chain([Err(TagTestError)]);
    let mut tagged = tag(failing, tagging());
    let seen: Vec<_> = tagged.by_ref().collect();
    assert!(matches!(seen.as_slice(), [Err(TagError::Read(TagTestError))]));
    assert!(tagged.exchange_files() > 0 && tagged.next().is_none());
    assert_eq!(std::fs::read_dir(tagged.folder.path()).unwrap().count(), 0, "without a word more");

    // The attempt is told to stop: while the exchange is written, and while it is read.
    for read in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let cancel = CancellationToken::new();
        let mut seen = 0;
        let told = cancel.clone();
        let stopping = input(&deletes, &inserts, 100).inspect(move |_| {
            seen += 1;
            if seen == 30 && !read {
                told.cancel();
            }
        });
        let mut tagged = super::super::tag(stopping, tagging(), space(&folder, cancel.clone()));
        if read {
            assert!(tagged.next().unwrap().is_ok());
            cancel.cancel();
        }
        let error = tagged.find_map(Result::err).unwrap();
        assert_eq!(error.class(), Class::Interrupted, "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    // Dropped halfway, without a word: the files go soon after.
    let folder = tempfile::tempdir().unwrap();
    let mut tagged =
        super::super::tag(input(&deletes, &inserts, 100), tagging(), space(&folder, CancellationToken::new()));
    assert!(tagged.next().unwrap().is_ok());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "it is exchanged");
    drop(tagged);
    for _ in 0..200 {
        if std::fs::read_dir(folder.path()).unwrap().count() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("files are still there");
}

/// Rows of each type that a read schema can have, every third column of each row null.
fn every_type(ids: std::ops::Range<i64>) -> RecordBatch {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, LargeBinaryArray,
        Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    let count = (ids.end - ids.start) as usize;
    let of = |column: i64| ids.clone().map(move |id| (id % 3 != column % 3).then_some(id));
    let bytes =
        |column: i64, length: usize| of(column).map(move |id| id.map(|id| id.to_be_bytes()[8 - length..].to_vec()));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes(8, 4), 4).unwrap();
    let structs = StructArray::new(
        Fields::from(vec![Field::new("inside", DataType::Int64, true)]),
        vec![Arc::new(Int64Array::from_iter(of(4)))],
        Some(NullBuffer::from_iter(of(10).map(|id| id.is_some()))),
    );
    // The partition of a table that has none.
    let empty = StructArray::new_empty_fields(count, None);
    let list = ListArray::new(
        Arc::new(Field::new("element", DataType::Int64, true)),
        offsets(std::iter::repeat_n(2, count)),
        Arc::new(Int64Array::from_iter(ids.clone().flat_map(|id| [Some(id), None]))),
        Some(NullBuffer::from_iter(of(11).map(|id| id.is_some()))),
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(BooleanArray::from_iter(of(0).map(|id| id.map(|id| id % 2 == 0)))),
        Arc::new(Int32Array::from_iter(of(1).map(|id| id.map(|id| id as i32)))),
        Arc::new(Float32Array::from_iter(of(2).map(|id| id.map(|id| id as f32)))),
        Arc::new(Date32Array::from_iter(of(3).map(|id| id.map(|id| id as i32)))),
        Arc::new(Time64MicrosecondArray::from_iter(of(4))),
        Arc::new(TimestampMicrosecondArray::from_iter(of(5)).with_timezone("+00:00")),
        Arc::new(TimestampNanosecondArray::from_iter(of(6))),
        Arc::new(
            Decimal128Array::from_iter(of(7).map(|id| id.map(i128::from))).with_precision_and_scale(38, 9).unwrap(),
        ),
        Arc::new(fixed),
        Arc::new(LargeBinaryArray::from_iter(bytes(9, 7))),
        Arc::new(StringArray::from_iter(of(12).map(|id| id.map(|id| id.to_string())))),
        Arc::new(structs),
        Arc::new(empty),
        Arc::new(list),
    ];
    let named = columns.into_iter().enumerate().map(|(place, column)| (format!("c{place}"), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

#[test]
fn rows_of_every_type_come_back_as_they_were() {
    let (before, after) = (every_type(0..200), every_type(100..300));
    let changelog = Pairing { columns: vec![0], nulls_pair: true, duplicates: false };
    for (changelog, resolution, key) in [
        (Some(changelog), Resolution::Updates, &[][..]),
        (None, Resolution::CarryOver, &[0][..]),
        (None, Resolution::CarryOver, &[]),
    ] {
        let side = |change, rows: &RecordBatch| {
            let columns = Columns::All;
            [
                Ok::<_, TagTestError>(ChangeBatch { change, columns, rows: rows.slice(0, 77) }),
                Ok(ChangeBatch { change, columns, rows: rows.slice(77, 123) }),
            ]
        };
        let input = side(Change::Delete, &before).into_iter().chain(side(Change::Insert, &after));
        let mut tagged = tag(input, Tagging { changelog, ..tagging(resolution, key, 4_000) });
        let (mut went, mut came) = (0, 0);
        for batch in tagged.by_ref() {
            let batch = batch.unwrap();
            let ids = batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
            match batch.change {
                Change::Delete => went += ids.len(),
                Change::Insert => came += ids.len(),
                other => panic!("{other:?}"),
            }
            for (row, id) in ids.into_iter().enumerate() {
                assert_eq!(id < 100, batch.change == Change::Delete, "{id}");
                let expected = every_type(id..id + 1);
                let expected = if batch.columns == Columns::Key { expected.project(key).unwrap() } else { expected };
                assert_eq!(batch.rows.slice(row, 1), expected);
            }
        }
        assert_eq!((went, came, tagged.carried_over()), (100, 100, 100));
        assert!(tagged.exchange_files() > 0);
    }
}
