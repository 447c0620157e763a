//! Change types, case by case: what one snapshot rewrote, and the events that it makes. Each case is run in memory and
//! exchanged, where one batch does not fit.

use super::*;

/// Memory that no batch of these tests fits into, while the few rows of one key do.
const TIGHT: u64 = 900;

struct Case {
    name: &'static str,
    deletes: Vec<Row>,
    inserts: Vec<Row>,
    /// Places of the identifying columns; none when nothing identifies a row.
    identity: &'static [usize],
    expected: Vec<(&'static str, Row)>,
}

fn outcome(case: &Case, memory_bytes_max: u64, size: usize) -> Vec<(String, String)> {
    let input = changes(Change::Delete, &case.deletes, size).into_iter();
    let input = input.chain(changes(Change::Insert, &case.inserts, size));
    let resolution = if case.identity.is_empty() { Resolution::CarryOver } else { Resolution::Updates };
    let pairing = Pairing { columns: case.identity.to_vec(), nulls_pair: true, duplicates: true };
    let tagging = Tagging { changelog: Some(pairing), ..tagging(resolution, &[], memory_bytes_max) };
    let mut events = Vec::new();
    for batch in tag(input, tagging) {
        let batch = batch.unwrap();
        events.extend(rows(&batch.rows).iter().map(|row| (batch.change.name().to_owned(), row.identity())));
    }
    events.sort();
    events
}

fn row(id: i64, text: &'static str) -> Row {
    Row { text: Some(text), ..Row::of(id) }
}

fn with_map(id: i64, map: &[TextEntry]) -> Row {
    Row { map: Some(map.to_vec()), ..Row::of(id) }
}

fn with_float(id: i64, bits: u64) -> Row {
    Row { float: Some(bits), ..Row::of(id) }
}

fn cases() -> Vec<Case> {
    let update = |before: Row, after: Row| vec![("UPDATE_BEFORE", before), ("UPDATE_AFTER", after)];
    // The second identifying column of the case with two.
    let of = |id: i64, part: &'static str, bytes: u8| Row { bytes: Some(vec![bytes]), ..row(id, part) };
    let null = |text| Row { id: None, text, ..Row::of(0) };
    vec![
        Case {
            name: "a rewritten file tells the row that changed, and not the one that did not",
            deletes: vec![row(1, "a"), row(2, "b")],
            inserts: vec![row(1, "aa"), row(2, "b")],
            identity: &[0],
            expected: update(row(1, "a"), row(1, "aa")),
        },
        Case {
            name: "without an identity the row that changed is a DELETE and an INSERT",
            deletes: vec![row(1, "a"), row(2, "b")],
            inserts: vec![row(1, "aa"), row(2, "b")],
            identity: &[],
            expected: vec![("DELETE", row(1, "a")), ("INSERT", row(1, "aa"))],
        },
        Case {
            name: "a key on one side alone is a DELETE or an INSERT",
            deletes: vec![row(1, "a")],
            inserts: vec![row(2, "b")],
            identity: &[0],
            expected: vec![("DELETE", row(1, "a")), ("INSERT", row(2, "b"))],
        },
        Case {
            name: "a key of two columns: one part equal is not the same key",
            deletes: vec![of(2, "a", 1)],
            inserts: vec![of(2, "a", 2), of(2, "b", 3)],
            identity: &[0, 2],
            expected: [update(of(2, "a", 1), of(2, "a", 2)), vec![("INSERT", of(2, "b", 3))]].concat(),
        },
        Case {
            name: "a key that changes is a DELETE and an INSERT",
            deletes: vec![row(1, "a")],
            inserts: vec![row(5, "a")],
            identity: &[0],
            expected: vec![("DELETE", row(1, "a")), ("INSERT", row(5, "a"))],
        },
        Case {
            name: "a map that was written in another order is carried over",
            deletes: vec![with_map(1, &[("a", Some(1)), ("b", Some(2))]), with_map(2, &[("c", Some(3))])],
            inserts: vec![with_map(1, &[("b", Some(2)), ("a", Some(1))])],
            identity: &[0],
            expected: vec![("DELETE", with_map(2, &[("c", Some(3))]))],
        },
        Case {
            name: "a map that was written in another order is carried over without an identity, too",
            deletes: vec![with_map(1, &[("a", Some(1)), ("b", Some(2))]), with_map(2, &[("c", Some(3))])],
            inserts: vec![with_map(1, &[("b", Some(2)), ("a", Some(1))])],
            identity: &[],
            expected: vec![("DELETE", with_map(2, &[("c", Some(3))]))],
        },
        Case {
            name: "NaN is carried over",
            deletes: vec![with_float(1, f64::NAN.to_bits())],
            inserts: vec![with_float(1, f64::NAN.to_bits())],
            identity: &[0],
            expected: vec![],
        },
        Case {
            name: "nulls are carried over and updated like any other value",
            deletes: vec![null(None), null(Some("a")), row(1, "a"), Row::of(2)],
            inserts: vec![null(None), null(Some("b")), Row::of(1), Row::of(2)],
            identity: &[0],
            expected: [update(null(Some("a")), null(Some("b"))), update(row(1, "a"), Row::of(1))].concat(),
        },
    ]
}

#[test]
fn each_case_gives_its_events_in_memory_and_exchanged() {
    for case in cases() {
        let mut expected: Vec<_> =
            case.expected.iter().map(|(change, row)| ((*change).to_owned(), row.identity())).collect();
        expected.sort();
        for memory_bytes_max in [PLENTY, TIGHT] {
            for size in [1, 2, 10] {
                let found = outcome(&case, memory_bytes_max, size);
                assert_eq!(found, expected, "{}, {memory_bytes_max} bytes, batches of {size}", case.name);
            }
        }
    }
}

#[test]
fn the_order_of_rows_within_a_snapshot_does_not_count() {
    // One that goes, one that comes, one that is carried over, one that is updated.
    #[derive(Clone, Copy)]
    enum Kind {
        Deleted,
        Inserted,
        CarriedOver,
        Updated,
    }
    let kinds = [Kind::Deleted, Kind::Inserted, Kind::CarriedOver, Kind::Updated];
    let mut orders = 0;
    for code in 0..4_usize.pow(4) {
        let places: Vec<usize> = (0..4).map(|place| code / 4_usize.pow(place) % 4).collect();
        if (0..4).any(|kind| !places.contains(&kind)) {
            continue;
        }
        orders += 1;
        let (mut deletes, mut inserts) = (Vec::new(), Vec::new());
        for place in places {
            match kinds[place] {
                Kind::Deleted => deletes.push(row(1, "a")),
                Kind::Inserted => inserts.push(row(2, "b")),
                Kind::CarriedOver => {
                    deletes.push(row(3, "c"));
                    inserts.push(row(3, "c"));
                }
                Kind::Updated => {
                    deletes.push(row(4, "a"));
                    inserts.push(row(4, "aa"));
                }
            }
        }
        let expected = [
            ("DELETE", row(1, "a")),
            ("INSERT", row(2, "b")),
            ("UPDATE_AFTER", row(4, "aa")),
            ("UPDATE_BEFORE", row(4, "a")),
        ];
        let expected: Vec<_> = expected.iter().map(|(change, row)| ((*change).to_owned(), row.identity())).collect();
        let case = Case { name: "", deletes, inserts, identity: &[0], expected: Vec::new() };
        for memory_bytes_max in [PLENTY, TIGHT] {
            assert_eq!(outcome(&case, memory_bytes_max, 2), expected, "order {code}, {memory_bytes_max} bytes");
        }
    }
    assert_eq!(orders, 24);
}
