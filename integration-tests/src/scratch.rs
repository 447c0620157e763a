//! Folders that go when their test ends, and a look into them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A folder of one test.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new folder below the system's temporary one. `ICEFERRY_KEEP=1` leaves it there and says where.
    pub fn new() -> Self {
        let mut folder = tempfile::Builder::new().prefix("iceferry-test-").tempdir().expect("a temporary folder");
        if std::env::var_os("ICEFERRY_KEEP").is_some() {
            folder.disable_cleanup(true);
            eprintln!("kept: {}", folder.path().display());
        }
        Self(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new folder in it.
    pub fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(&path).expect("make a folder");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// All files below a folder with their sizes; empty when it is not there. Hadoop's checksum files do not count.
pub fn listing(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder may vanish between its listing and this look into it.
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) if !entry.file_name().to_string_lossy().ends_with(".crc") => {
                    found.insert(entry.path(), metadata.len());
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

/// The newest metadata file of each table below a folder, by the number in its name, whichever catalog wrote it.
pub fn table_metadata(folder: &Path) -> Vec<PathBuf> {
    let mut newest: BTreeMap<PathBuf, (u64, PathBuf)> = BTreeMap::new();
    for path in listing(folder).into_keys() {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".metadata.json") else { continue };
        let digits: String = stem.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
        let (Ok(version), Some(table)) = (digits.parse(), path.parent()) else { continue };
        let held = newest.entry(table.to_owned()).or_insert_with(|| (version, path.clone()));
        if version >= held.0 {
            *held = (version, path.clone());
        }
    }
    newest.into_values().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_metadata_of_each_table_is_told_by_its_number() {
        let scratch = Scratch::new();
        let names = ["v9.metadata.json", "v10.metadata.json", "version-hint.text", ".v11.metadata.json.crc"];
        for name in names {
            std::fs::write(scratch.folder("a/metadata").join(name), "").unwrap();
        }
        for name in ["00001-x.metadata.json", "00002-a.metadata.json", "snap-3.avro"] {
            std::fs::write(scratch.folder("b/metadata").join(name), "").unwrap();
        }
        let newest =
            ["a/metadata/v10.metadata.json", "b/metadata/00002-a.metadata.json"].map(|name| scratch.join(name));
        assert_eq!(table_metadata(scratch.path()), newest);
        assert_eq!(listing(scratch.path()).len(), 6);
        assert!(listing(&scratch.join("absent")).is_empty());
    }
}
