//! The changes of several snapshots, against a slow, plain model: their sum, each row of it of the snapshot that last made it.

use super::*;

const PLACE_OF_ROW_ID: usize = 7;
const PLACE_OF_ORDINAL: usize = 8;

/// A row that came or went in a snapshot.
#[derive(Debug, Clone)]
struct Event {
    ordinal: i32,
    comes: bool,
    row: Row,
    row_id: Option<i64>,
}

fn event(ordinal: i32, comes: bool, id: i64, text: &'static str) -> Event {
    Event { ordinal, comes, row: Row { text: Some(text), ..Row::of(id) }, row_id: Some(id) }
}

fn batch_of(events: &[&Event]) -> RecordBatch {
    let content = batch(&events.iter().map(|event| event.row.clone()).collect::<Vec<_>>());
    let mut fields = content.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("_row_id", DataType::Int64, true)));
    fields.push(Arc::new(Field::new("_change_ordinal", DataType::Int32, true)));
    let mut columns = content.columns().to_vec();
    columns.push(Arc::new(Int64Array::from_iter(events.iter().map(|event| event.row_id))));
    columns.push(Arc::new(Int32Array::from_iter_values(events.iter().map(|event| event.ordinal))));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// What tells rows apart: their id, `_row_id`, or nothing.
fn pairing(by: &str) -> Pairing {
    let columns = match by {
        "id" => vec![0],
        "row id" => vec![PLACE_OF_ROW_ID],
        _ => Vec::new(),
    };
    Pairing { columns, nulls_pair: by != "row id", duplicates: true }
}

/// A change, its row, and the number of its snapshot.
type Told = (&'static str, String, i32);

/// What comes out, sorted, and how many pairs cancelled.
fn net(
    events: &[Event],
    by: &str,
    size: usize,
    memory_bytes_max: u64,
) -> Result<(Vec<Told>, u64), TagError<TagTestError>> {
    let side = |comes: bool| {
        let change = if comes { Change::Insert } else { Change::Delete };
        let of_side: Vec<&Event> = events.iter().filter(|event| event.comes == comes).collect();
        let batches = of_side.chunks(size).map(batch_of);
        batches.map(|rows| Ok(ChangeBatch { change, columns: Columns::All, rows })).collect::<Vec<_>>()
    };
    let tagging = Tagging {
        compared: PLACE_OF_ROW_ID,
        changelog: Some(pairing(by)),
        ordinal: Some(PLACE_OF_ORDINAL),
        ..tagging(Resolution::Net, &[], memory_bytes_max)
    };
    let mut tagged = tag(side(false).into_iter().chain(side(true)), tagging);
    let mut found = Vec::new();
    for batch in tagged.by_ref() {
        let batch = batch?;
        assert!(batch.rows.num_rows() > 0, "no batch is empty");
        let ordinals = batch.rows.column(PLACE_OF_ORDINAL).as_primitive::<Int32Type>().values().to_vec();
        let rows = rows(&batch.rows).into_iter().zip(ordinals);
        found.extend(rows.map(|(row, ordinal)| (batch.change.name(), row.identity(), ordinal)));
    }
    found.sort();
    Ok((found, tagged.carried_over()))
}

/// Rows that are left, as (whether it came, content, ordinal): in each snapshot equal rows cancel, then each change undoes
/// the latest open one of equal rows.
fn model(events: &[Event]) -> Vec<(bool, String, i32)> {
    let mut open: BTreeMap<String, Vec<(bool, i32)>> = BTreeMap::new();
    for ordinal in 0..10 {
        let mut surplus: BTreeMap<String, i64> = BTreeMap::new();
        for event in events.iter().filter(|event| event.ordinal == ordinal) {
            *surplus.entry(event.row.identity()).or_default() += if event.comes { 1 } else { -1 };
        }
        for (row, count) in surplus {
            let open = open.entry(row).or_default();
            for _ in 0..count.abs() {
                match open.last() {
                    Some((comes, _)) if *comes != (count > 0) => drop(open.pop()),
                    _ => open.push((count > 0, ordinal)),
                }
            }
        }
    }
    let left =
        open.into_iter().flat_map(|(row, open)| open.into_iter().map(move |(comes, of)| (comes, row.clone(), of)));
    let mut left: Vec<_> = left.collect();
    left.sort();
    left
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let text = prop_oneof![Just("a"), Just("b")];
    let event = (0..6_i32, any::<bool>(), 0..6_i64, text);
    proptest::collection::vec(event.prop_map(|(ordinal, comes, id, text)| event_of(ordinal, comes, id, text)), 0..80)
}

/// Row ids tell the rows of one content from those of any other, and are missing now and then.
fn event_of(ordinal: i32, comes: bool, id: i64, text: &'static str) -> Event {
    let row_id = (id != 3).then_some(id * 2 + i64::from(text == "a"));
    Event { row_id, ..event(ordinal, comes, id, text) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_net_change_is_of_the_snapshot_that_last_made_it_whatever_the_memory(
        events in any_events(),
        by in prop_oneof![Just("id"), Just("row id"), Just("nothing")],
        size in 1..20_usize,
        memory_bytes_max in prop_oneof![Just(PLENTY), 2_000..20_000_u64],
    ) {
        let (found, cancelled) = match net(&events, by, size, memory_bytes_max) {
            Err(TagError::TooLarge { .. }) if memory_bytes_max < 16_000 => return Ok(()),
            found => found.unwrap(),
        };
        let expected = model(&events);
        let mut sides: Vec<_> = found
            .iter()
            .map(|(change, row, ordinal)| (matches!(*change, "INSERT" | "UPDATE_AFTER"), row.clone(), *ordinal))
            .collect();
        sides.sort();
        prop_assert_eq!(&sides, &expected);
        prop_assert_eq!(2 * cancelled as usize + found.len(), events.len());
        // As many updates as both sides have rows of one identity.
        let identity = |row: &str| {
            let event = events.iter().find(|event| event.row.identity() == row)?;
            if by == "row id" { event.row_id } else { event.row.id }
        };
        let mut counts: BTreeMap<i64, [usize; 2]> = BTreeMap::new();
        for (comes, row, _) in &expected {
            if let Some(id) = identity(row) {
                counts.entry(id).or_default()[usize::from(*comes)] += 1;
            }
        }
        let expected: usize =
            if by == "nothing" { 0 } else { counts.values().map(|[went, came]| *went.min(came)).sum() };
        for half in ["UPDATE_BEFORE", "UPDATE_AFTER"] {
            prop_assert_eq!(found.iter().filter(|(change, ..)| *change == half).count(), expected);
        }
    }
}

#[test]
fn opposite_changes_cancel_over_any_number_of_snapshots() {
    let (went, came) = (false, true);
    let show = |events: &[Event]| {
        let (found, _) = net(events, "id", 2, PLENTY).unwrap();
        found.iter().map(|(change, _, ordinal)| format!("{change}@{ordinal}")).collect::<Vec<_>>()
    };
    for (what, events, expected) in [
        ("in and out again", vec![event(0, came, 1, "a"), event(4, went, 1, "a")], vec![]),
        ("out and in again", vec![event(1, went, 1, "a"), event(2, came, 1, "a")], vec![]),
        (
            "in, out, and in for good",
            vec![event(0, came, 1, "a"), event(1, went, 1, "a"), event(2, came, 1, "a")],
            vec!["INSERT@2"],
        ),
        (
            "out, in, and out for good",
            vec![event(0, went, 1, "a"), event(1, came, 1, "a"), event(2, went, 1, "a")],
            vec!["DELETE@2"],
        ),
        ("carried over is no change", vec![event(1, went, 1, "a"), event(1, came, 1, "a")], vec![]),
        (
            "an update of an update",
            vec![event(1, went, 1, "a"), event(1, came, 1, "b"), event(2, went, 1, "b"), event(2, came, 1, "c")],
            vec!["UPDATE_AFTER@2", "UPDATE_BEFORE@1"],
        ),
        (
            "carried over between two updates",
            vec![
                event(0, came, 1, "a"),
                event(1, went, 1, "a"),
                event(1, came, 1, "a"),
                event(2, went, 1, "a"),
                event(2, came, 1, "b"),
            ],
            vec!["INSERT@2"],
        ),
    ] {
        assert_eq!(show(&events), expected, "{what}");
        assert_eq!(show(&events.into_iter().rev().collect::<Vec<_>>()), expected, "{what}, read the other way round");
    }
}

#[test]
fn rows_that_do_not_say_of_which_snapshot_they_are_are_refused() {
    let rows = batch_of(&[&event(0, true, 1, "a")]);
    let came = Ok::<_, TagTestError>(ChangeBatch { change: Change::Insert, columns: Columns::All, rows });
    let mut tagged = tag([came], Tagging { compared: PLACE_OF_ROW_ID, ..tagging(Resolution::Net, &[], PLENTY) });
    assert!(matches!(tagged.next(), Some(Err(TagError::Compare(_)))));
}
