//! A hash of what makes one mirror another: where rows come from and what of them is kept.

use super::{ColumnChoice, JobFile};
use crate::filter::Filter;
use crate::model::TargetMode;

/// The first line of the hashed text. Another number would make every target look like another mirror.
const HEADER: &str = "iceferry mirror 1";

/// The hash of the job's mirror; see [`JobFile::mirror_hash`].
pub(super) fn hash(job: &JobFile) -> String {
    fingerprint(&canonical(job))
}

/// 32 hex digits that tell one text from another, the same in every version.
pub fn fingerprint(text: &str) -> String {
    format!("{:032x}", fnv1a_128(text.as_bytes()))
}

/// What is hashed: one line for each thing with the number of its values, then each value with its length, so that no
/// two jobs have the same text.
fn canonical(job: &JobFile) -> String {
    let mut text = format!("{HEADER}\n");
    let mut add = |what: &str, values: &[&str]| {
        text.push_str(&format!("{what} {}\n", values.len()));
        for value in values {
            text.push_str(&format!("{}:{value}\n", value.len()));
        }
    };
    add("source", &job.source.table.parts().collect::<Vec<_>>());
    // A changelog's key tells its updates.
    let key = job.target.equality_columns.iter().chain(&job.source.identifier_columns);
    let mut key: Vec<&str> = key.map(String::as_str).collect();
    // A key is a set: in another order it is the same key.
    key.sort_unstable();
    add("key", &key);
    let (choice, mut columns): (&str, Vec<&str>) = match &job.source.projection {
        ColumnChoice::All => ("", Vec::new()),
        ColumnChoice::Keep(names) => ("keep", names.iter().map(String::as_str).collect()),
        ColumnChoice::Drop(names) => ("drop", names.iter().map(String::as_str).collect()),
    };
    columns.sort_unstable();
    if !choice.is_empty() {
        columns.insert(0, choice);
    }
    add("columns", &columns);
    let filter = job.source.filter.as_ref().map(Filter::canonical);
    add("filter", &filter.iter().map(String::as_str).collect::<Vec<_>>());
    let mode = match job.target.mode {
        TargetMode::MergeOnRead => "merge-on-read",
        TargetMode::Append => "append",
    };
    add("mode", &[mode]);
    text
}

/// FNV-1a with 128 bits: the same on every machine and in every version. It tells apart what people write by mistake;
/// nobody gains by forging it, who could write the target's properties anyway.
fn fnv1a_128(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> JobFile {
        JobFile::parse(text, &|_| None).unwrap()
    }

    const BASE: &str = "name: a
source: { table: sales.orders, catalog_properties: { type: rest } }
target: { table: lake.orders, catalog_properties: { type: sql }, equality_columns: [id, region] }
";

    #[test]
    fn the_hash_function_is_the_published_one() {
        assert_eq!(format!("{:032x}", fnv1a_128(b"")), "6c62272e07bb014262b821756295c58d");
        assert_eq!(format!("{:032x}", fnv1a_128(b"a")), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(format!("{:032x}", fnv1a_128(b"foobar")), "343e1662793c64bf6f0d3597ba446f18");
    }

    #[test]
    fn the_hash_of_a_job_never_changes() {
        let text = "iceferry mirror 1\nsource 2\n5:sales\n6:orders\nkey 2\n2:id\n6:region\ncolumns 0\nfilter 0\nmode 1\n13:merge-on-read\n";
        assert_eq!(canonical(&job(BASE)), text);
        assert_eq!(job(BASE).mirror_hash(), "27b4526ccac57b00d83fc7b29d2e4577");
    }

    #[test]
    fn what_makes_another_mirror_makes_another_hash() {
        let base = job(BASE).mirror_hash();
        for (from, to) in [
            ("table: sales.orders", "table: sales.orders2"),
            ("table: sales.orders", "table: s.ales.orders"),
            ("[id, region]", "[id]"),
            (", equality_columns: [id, region]", ""),
            (", equality_columns: [id, region]", ", mode: append"),
            ("type: rest }", "type: rest }, keep: [id, region, v]"),
            ("type: rest }", "type: rest }, drop: [v]"),
            ("type: rest }", "type: rest }, filter: a > 5"),
        ] {
            let other = BASE.replace(from, to);
            assert_ne!(other, BASE);
            assert_ne!(job(&other).mirror_hash(), base, "{to}");
        }
    }

    #[test]
    fn columns_that_are_kept_are_a_set_and_not_what_dropping_them_is() {
        let hash = |choice: &str| job(&BASE.replace("type: rest }", &format!("type: rest }}, {choice}"))).mirror_hash();
        assert_eq!(hash("keep: [a, b]"), hash("keep: [b, a]"));
        assert_ne!(hash("keep: [a, b]"), hash("drop: [a, b]"));
        assert_ne!(hash("keep: [a, b]"), hash("keep: [a]"));
    }

    #[test]
    fn another_filter_makes_another_hash_and_the_same_written_otherwise_does_not() {
        let of = |filter: &str| {
            job(&BASE.replace("type: rest }", &format!("type: rest }}, filter: \"{filter}\""))).mirror_hash()
        };
        assert_eq!(of("a > 5"), of(" 5.0 <a"));
        assert_ne!(of("a > 5"), of("a > 6"));
        assert_ne!(of("a > 5"), of("b > 5"));
    }

    #[test]
    fn what_does_not_leaves_it() {
        let base = job(BASE).mirror_hash();
        for (from, to) in [
            ("name: a", "name: b"),
            ("[id, region]", "[region, id]"),
            ("type: rest", "type: sql, uri: x"),
            ("table: lake.orders", "table: lake.orders2"),
            ("type: sql }", "type: sql }, format_version: 3, copy: decode, mode: merge-on-read"),
            ("type: rest }", "type: rest }, from_snapshot: 5"),
        ] {
            let other = BASE.replace(from, to);
            assert_ne!(other, BASE);
            assert_eq!(job(&other).mirror_hash(), base, "{to}");
        }
    }
}
