//! Damaged manifests: an error or other entries, never a panic, and never memory that the bytes do not account for.

use super::super::super::error::FileProblem;
use super::avro::{self, File};
use super::random::{Random, Sample};
use super::{data, decoding, deletes, seeds};

/// Memory of this process at its highest, in bytes, where the system tells.
fn memory_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.splice(at..at, [0xff; 9].into_iter().take(1 + random.below(9)))),
            4 => drop(bytes.drain(at..(at + 1 + random.below(20)).min(bytes.len()))),
            _ => {
                let from = random.below(bytes.len());
                let copied = bytes[from..(from + random.below(30)).min(bytes.len())].to_vec();
                bytes.splice(at..at, copied);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[tokio::test]
async fn damaged_manifests_are_errors_and_take_no_memory() {
    const MEMORY_MAX: u64 = 1024 * 1024 * 1024;
    let (mut errors, mut others) = (0, 0);
    for seed in seeds(60) {
        let mut random = Random(seed);
        let Some(Sample { table, file, bytes, wanted, filter }) = Sample::new(&mut random).await else { continue };
        let decoding = decoding(&table, filter.as_deref());
        let bytes = if random.chance(50) { bytes } else { avro::rewritten(&bytes, &mut random) };
        for _ in 0..100 {
            let mut damaged = if random.chance(50) {
                let mut bytes = bytes.clone();
                damage(&mut bytes, &mut random);
                bytes
            } else {
                // Inside of what the codec would have told by itself.
                let mut file = File::open(&bytes);
                if let Some((_, block)) = file.blocks.first_mut().filter(|(_, block)| !block.is_empty()) {
                    damage(block, &mut random);
                }
                file.write("null")
            };
            if random.chance(5) {
                damaged.clear();
            }
            let result = match file.content {
                iceberg::spec::ManifestContentType::Data => data(&decoding, &file, &damaged, &wanted).map(drop),
                iceberg::spec::ManifestContentType::Deletes => deletes(&decoding, &file, &damaged).map(drop),
            };
            match result {
                Ok(()) => others += 1,
                Err(FileProblem::Corrupt { .. } | FileProblem::Refused { .. }) => errors += 1,
            }
        }
    }
    println!("{errors} errors, {others} that look whole");
    assert!(errors > others / 2);
    if let Some(peak) = memory_peak() {
        assert!(peak < MEMORY_MAX, "{peak} bytes");
    }
}

#[tokio::test]
async fn a_manifest_that_ends_anywhere_but_behind_a_block_is_an_error() {
    let mut random = Random(7);
    let sample = loop {
        let sample = Sample::new(&mut random).await;
        if let Some(sample) = sample.filter(|sample| sample.bytes.len() > 3_000) {
            break sample;
        }
    };
    let Sample { table, file, bytes, wanted, .. } = sample;
    let decoding = decoding(&table, None);
    let whole = File::open(&bytes);
    let headless = File { header: whole.header, blocks: Vec::new() }.write("null").len();
    let bytes = File::open(&bytes).write("null");
    for length in 0..bytes.len() {
        let is_error = match file.content {
            iceberg::spec::ManifestContentType::Data => data(&decoding, &file, &bytes[..length], &wanted).is_err(),
            iceberg::spec::ManifestContentType::Deletes => deletes(&decoding, &file, &bytes[..length]).is_err(),
        };
        assert_eq!(is_error, length != headless, "cut to {length} of {} bytes", bytes.len());
    }
}
