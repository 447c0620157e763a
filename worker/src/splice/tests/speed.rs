//! What carrying over costs, beside a plain copy: `cargo nextest run --run-ignored only -E 'test(speed)' --no-capture`.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::random::Random;
use super::*;

/// The most memory that the process has held, in MiB; set back by [`forget_peak`].
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn plain_copy(from: &str, to: &str) {
    let (mut from, mut to) = (std::fs::File::open(from).unwrap(), std::fs::File::create(to).unwrap());
    let mut block = vec![0; 1 << 20];
    loop {
        match from.read(&mut block).unwrap() {
            0 => break,
            read => to.write_all(&block[..read]).unwrap(),
        }
    }
    to.sync_all().unwrap();
}

fn timed(times: &mut Vec<Duration>, act: impl FnOnce()) {
    let begun = Instant::now();
    act();
    times.push(begun.elapsed());
}

#[test]
#[ignore = "takes a quiet machine"]
fn speed_of_a_splice_beside_a_plain_copy() {
    const COLUMNS: usize = 16;
    let mut random = Random(1);
    let fields = (1..=COLUMNS as i32).map(|id| {
        let id_of = [(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())];
        Field::new(format!("c{id}"), DataType::Int64, true).with_metadata(id_of.into())
    });
    let arrow = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(500_000))
        .build();
    let batches: Vec<RecordBatch> = (0..125)
        .map(|_| {
            let column =
                |_| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..10_000).map(|_| random.next() as i64))) };
            RecordBatch::try_new(Arc::clone(&arrow), (0..COLUMNS).map(column).collect()).unwrap()
        })
        .collect();
    let columns = |first: i32| {
        let fields =
            (0..COLUMNS as i32).map(|place| optional(first + place, &format!("c{place}"), PrimitiveType::Long));
        schema(fields)
    };
    let lab = Lab::new(columns(1), columns(101));
    let bytes = parquet(&batches, ArrowWriterOptions::new().with_properties(properties));
    let file = lab.put("file", &bytes, 1_250_000);
    drop((bytes, batches));
    let (mut copies, mut splices, mut objects, mut joins) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut grown = 0;
    for round in 0..7 {
        let to = |name: &str| lab.location(&format!("{name}-{round}"));
        timed(&mut copies, || plain_copy(&file.location, &to("plain")));
        forget_peak();
        let before = peak_mib();
        let splicer = lab.splicer();
        let splice = |parts: usize, location: String| {
            let wholes: Vec<Whole> = (0..parts).map(|_| splicer.open(&file).unwrap()).collect();
            let ways: Vec<_> = wholes.iter().map(|whole| splicer.way(&file, None, whole, &[])).collect();
            let parts = wholes.iter().zip(&ways).map(|(whole, way)| (whole, way.recipe().unwrap(), &[][..]));
            splice_all(&splicer, &parts.collect::<Vec<_>>(), location);
        };
        timed(&mut splices, || splice(1, to("spliced")));
        grown = grown.max(peak_mib() - before);
        timed(&mut joins, || splice(2, to("joined")));
        timed(&mut objects, || {
            let whole = splicer.open(&file).unwrap();
            let way = splicer.way(&file, None, &whole, &[]);
            drop(splicer.copy(&whole, way.recipe().unwrap(), &[], to("copied")).unwrap());
        });
        for name in ["plain", "spliced", "joined", "copied"] {
            std::fs::remove_file(to(name)).unwrap();
        }
    }
    let show = |name: &str, times: &mut Vec<Duration>| {
        times.sort();
        println!("{name}: min {:?}, median {:?}", times[0], times[times.len() / 2]);
    };
    println!("{} bytes; memory grew by {grown} MiB", file.size_bytes);
    show("plain copy and fsync", &mut copies);
    show("splice", &mut splices);
    show("splice of two into one", &mut joins);
    show("copy of the object", &mut objects);
}
