//! Names of metadata files in a Hadoop table, and which of them is the newest.

/// What metadata files are called after `v` and the version, in the order in which they are looked for: plain,
/// compressed as it is spelled today, compressed as it was spelled first.
const SUFFIXES: [&str; 3] = [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"];

/// A metadata file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// Its number.
    pub(super) number: u32,
    /// Its name in the metadata folder.
    pub(super) name: String,
}

/// The name that the next metadata file gets.
pub(super) fn name(number: u32, gzip: bool) -> String {
    format!("v{number}{}", SUFFIXES[usize::from(gzip)])
}

/// All names that the file of a version may have.
pub(super) fn spellings(number: u32) -> [String; 3] {
    SUFFIXES.map(|suffix| format!("v{number}{suffix}"))
}

/// The version of a metadata file's name; nothing for other names.
pub(super) fn parse_name(name: &str) -> Option<u32> {
    let rest = name.strip_prefix('v')?;
    let (number, _) = rest.split_once('.')?;
    let number = number.parse().ok()?;
    // Comparing whole names refuses `v+1` and `v01`, which no writer makes.
    spellings(number).iter().any(|spelled| spelled == name).then_some(number)
}

/// The version that a hint file's bytes name. A hint is only a hint: nothing depends on it being right, or there.
pub(super) fn parse_hint(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// The newest version among the names of a folder.
pub(super) fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<Version> {
    let versions = names.filter_map(|name| parse_name(name).map(|number| (number, name)));
    // Of two spellings of one version the plain one counts, as when the names are looked for one by one.
    let newest = versions.max_by_key(|(number, name)| (*number, std::cmp::Reverse(rank(*number, name))));
    newest.map(|(number, name)| Version { number, name: name.to_owned() })
}

fn rank(number: u32, name: &str) -> usize {
    spellings(number).iter().position(|spelled| spelled == name).unwrap_or(SUFFIXES.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_version_files_have_versions() {
        for (name, expected) in [
            ("v1.metadata.json", Some(1)),
            ("v12.gz.metadata.json", Some(12)),
            ("v3.metadata.json.gz", Some(3)),
            ("v0.metadata.json", Some(0)),
            ("v01.metadata.json", None),
            ("v+1.metadata.json", None),
            ("v1.json", None),
            ("v1.metadata.json.crc", None),
            (".v1.metadata.json.crc", None),
            ("1.metadata.json", None),
            ("v1.zst.metadata.json", None),
            ("v99999999999.metadata.json", None),
            ("00001-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", None),
            ("version-hint.text", None),
        ] {
            assert_eq!(parse_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_hint_may_be_anything() {
        for (bytes, expected) in [
            (&b"7"[..], Some(7)),
            (b" 7\n", Some(7)),
            (b"", None),
            (b"seven", None),
            (b"-1", None),
            (b"\xff\xfe", None),
            (b"99999999999999", None),
        ] {
            assert_eq!(parse_hint(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_newest_is_the_highest_number_and_then_the_plain_spelling() {
        let names = ["v9.metadata.json", "v10.metadata.json.gz", "v10.gz.metadata.json", "v10.metadata.json", "x"];
        assert_eq!(newest(names.into_iter()).unwrap().name, "v10.metadata.json");
        assert_eq!(newest(names[..3].iter().copied()).unwrap().name, "v10.gz.metadata.json");
        assert_eq!(newest(["x"].into_iter()), None);
    }

    proptest! {
        #[test]
        fn every_name_that_is_written_is_read_back(number: u32, gzip: bool) {
            prop_assert_eq!(parse_name(&name(number, gzip)), Some(number));
            let found = newest([&*name(number, gzip)].into_iter()).unwrap();
            prop_assert_eq!(found, Version { number, name: name(number, gzip) });
        }
    }
}
