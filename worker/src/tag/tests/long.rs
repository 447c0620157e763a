//! Measurements that take long; run by name, with `--run-ignored only --no-capture`, in release.

use std::time::Instant;

use arrow::array::{Date32Array, Decimal128Array};

use super::*;

/// The most memory that the process ever had.
fn process_peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[test]
#[ignore = "takes minutes and 2 GiB of disk"]
fn two_gibibytes_are_resolved_in_64_mebibytes() {
    const LIMIT: u64 = 64 << 20;
    let rows = (2_u64 << 30) / 96 / 2 / 8192 * 8192;
    let begun = Instant::now();
    let (peak, changes, carried_over, files) = exchanged::memory_of_a_group(rows, LIMIT, Resolution::Updates);
    let (mib, seconds) = (peak >> 20, begun.elapsed().as_secs_f64());
    println!(
        "{rows} + {rows} rows, {changes} changes, {carried_over} carried over, {files} files, {seconds:.1} s; by its own \
         account {mib} MiB, process peak {:?} MiB",
        process_peak_mib()
    );
    assert!(peak <= 2 * LIMIT, "{peak}");
}

const TEXTS: [&str; 8] = [
    "egular courts above the",
    "ly final dependencies: slyly bold ",
    "riously. regular, express dep",
    "lites. fluffily even de",
    " pending foxes. slyly re",
    "arefully slyly ex",
    "ven requests. deposits breach a",
    "ongside of the furiously brave acco",
];

/// Rows like those of lineitem: its 16 columns. `shift` changes one of them.
fn lineitem(numbers: std::ops::Range<i64>, shift: i64) -> RecordBatch {
    let long =
        |value: &dyn Fn(i64) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(numbers.clone().map(value))) };
    let decimal = |value: &dyn Fn(i64) -> i64| -> ArrayRef {
        let values = Decimal128Array::from_iter_values(numbers.clone().map(|number| i128::from(value(number))));
        Arc::new(values.with_precision_and_scale(15, 2).unwrap())
    };
    let date = |value: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Date32Array::from_iter_values(numbers.clone().map(|number| value(number) as i32)))
    };
    let text = |value: &dyn Fn(i64) -> &'static str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(numbers.clone().map(value)))
    };
    let mixed = |number: i64| number.wrapping_mul(6_364_136_223_846_793_005).rotate_left(29) & 0x7fff_ffff;
    let of = |number: i64, all: &'static [&'static str]| all[(mixed(number) as usize) % all.len()];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("l_orderkey", long(&|number| number / 4)),
        ("l_partkey", long(&|number| mixed(number) % 200_000)),
        ("l_suppkey", long(&|number| mixed(number + 1) % 10_000)),
        ("l_linenumber", long(&|number| number % 4)),
        ("l_quantity", decimal(&|number| mixed(number) % 50 * 100 + shift)),
        ("l_extendedprice", decimal(&|number| mixed(number + 2) % 10_000_000)),
        ("l_discount", decimal(&|number| mixed(number) % 11)),
        ("l_tax", decimal(&|number| mixed(number) % 9)),
        ("l_returnflag", text(&|number| of(number, &["A", "N", "R"]))),
        ("l_linestatus", text(&|number| of(number, &["O", "F"]))),
        ("l_shipdate", date(&|number| 8_000 + mixed(number) % 2_500)),
        ("l_commitdate", date(&|number| 8_030 + mixed(number) % 2_500)),
        ("l_receiptdate", date(&|number| 8_010 + mixed(number) % 2_500)),
        (
            "l_shipinstruct",
            text(&|number| of(number, &["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"])),
        ),
        ("l_shipmode", text(&|number| of(number, &["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]))),
        ("l_comment", text(&|number| of(number, &TEXTS))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
#[ignore = "a measurement: 5 million rows on each side"]
fn rows_a_second_in_memory_and_through_the_exchange() {
    const ROWS: i64 = 8192;
    let batches = 5_000_000 / ROWS;
    for (name, memory_bytes_max) in
        [("in memory", 1 << 40), ("exchanged, 512 MiB", 512 << 20), ("exchanged, 64 MiB", 64 << 20)]
    {
        // Made before the clock runs: it is the tag step that is measured.
        let batch = |change, number: i64, shift| {
            Ok::<_, TagTestError>(ChangeBatch {
                change,
                columns: Columns::All,
                rows: lineitem(number * ROWS..(number + 1) * ROWS, shift),
            })
        };
        let went = (0..batches).map(|number| batch(Change::Delete, number, 0));
        let came = (0..batches).map(|number| batch(Change::Insert, number, i64::from(number % 100 == 0)));
        let input: Vec<_> = went.chain(came).collect();
        let pairing = Pairing { columns: vec![0, 3], nulls_pair: true, duplicates: true };
        let tagging = Tagging { changelog: Some(pairing), ..tagging(Resolution::Updates, &[], memory_bytes_max) };
        let begun = Instant::now();
        let mut tagged = tag(input, tagging);
        let changes: usize = tagged.by_ref().map(|batch| batch.unwrap().rows.num_rows()).sum();
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {:.2} million input rows a second, {seconds:.1} s, {changes} changes, {} carried over, {} files, \
             {} MiB by its own account, process peak {:?} MiB",
            (2 * batches * ROWS) as f64 / seconds / 1e6,
            tagged.carried_over(),
            tagged.exchange_files(),
            tagged.memory_bytes_peak() >> 20,
            process_peak_mib(),
        );
    }
}
