//! The properties that open a catalog, and what may be taken from them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;

use iceberg::TableIdent;
use iceferry_common::storage::{Storage, StorageProperties, is_local};

use super::CatalogError;

/// Keys with these beginnings are about a table's files, not about the catalog; they go where the files are read.
const STORAGE_PREFIXES: [&str; 7] = ["s3.", "gcs.", "adls.", "client.", "fs.", "hadoop.", "io-impl"];

/// Catalog properties. Printing shows the keys alone, for the values hold secrets.
#[derive(Clone)]
pub(super) struct Properties(pub(super) HashMap<String, String>);

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Properties {
    /// The value of a key, when it is given and not blank.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The value of a key that must be there.
    pub(super) fn required(&self, key: &str, of: &str) -> Result<&str, CatalogError> {
        self.get(key).ok_or_else(|| property(key, format!("a {of} catalog needs it")))
    }

    /// The warehouse: an absolute location, without a slash at its end.
    pub(super) fn warehouse(&self, of: &str) -> Result<String, CatalogError> {
        let warehouse = self.required("warehouse", of)?;
        if !warehouse.starts_with('/') && !warehouse.contains(':') {
            return Err(property(
                "warehouse",
                format!("{warehouse:?} is not absolute; give a full path or a location"),
            ));
        }
        Ok(warehouse.trim_end_matches('/').to_owned())
    }

    /// Storage with those of the properties that are about files.
    pub(super) fn storage(&self) -> Storage {
        let about_files = |key: &str| STORAGE_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let kept: BTreeMap<String, String> = self
            .0
            .iter()
            .filter(|(key, _)| about_files(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Storage::new(StorageProperties(kept))
    }
}

/// A complaint about one property.
pub(super) fn property(key: &str, problem: impl Into<String>) -> CatalogError {
    CatalogError::Property { key: key.to_owned(), problem: problem.into() }
}

/// The parts of a table's name, the table last, when each can stand as one part of a path. A name may hold dots, blanks
/// and most signs, but it may not lead out of its folder.
pub(super) fn path_parts(table: &TableIdent) -> Result<Vec<&str>, CatalogError> {
    let parts: Vec<&str> = table.namespace().iter().map(String::as_str).chain(std::iter::once(table.name())).collect();
    for part in &parts {
        if part.is_empty() || *part == "." || *part == ".." || part.contains('/') || part.contains(char::is_control) {
            return Err(CatalogError::Refused {
                act: format!("find table {table}"),
                problem: format!("{part:?} cannot be a part of a table's name"),
            });
        }
    }
    Ok(parts)
}

/// The local folder that a location means, if it is a local one.
pub(super) fn local_folder(location: &str) -> Option<PathBuf> {
    if !is_local(location) {
        return None;
    }
    let path = location.strip_prefix("file:").map_or(location, |rest| rest.strip_prefix("//").unwrap_or(rest));
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        Properties(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn secrets_of_the_catalog_do_not_travel_with_the_storage() {
        let given = properties(&[("token", "t"), ("jdbc.password", "p"), ("uri", "u"), ("s3.region", "r")]);
        let keys: Vec<String> = given.storage().properties().0.keys().cloned().collect();
        assert_eq!(keys, ["s3.region"]);
        assert!(!format!("{given:?}").contains("\"p\""));
    }

    #[test]
    fn a_warehouse_is_absolute() {
        for (given, expected) in
            [("/w/", Some("/w")), ("file:///w", Some("file:///w")), ("s3://b/k/", Some("s3://b/k"))]
        {
            assert_eq!(properties(&[("warehouse", given)]).warehouse("hadoop").ok().as_deref(), expected);
        }
        assert!(properties(&[("warehouse", "w")]).warehouse("hadoop").is_err());
        assert!(properties(&[]).warehouse("hadoop").is_err());
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        for (names, fine) in [
            (vec!["my ns", "a.b"], true),
            (vec!["ns", "data#1 ü"], true),
            (vec!["ns", ".."], false),
            (vec!["..", "t"], false),
            (vec!["ns", "a/b"], false),
            (vec!["ns", ""], false),
        ] {
            let table = TableIdent::from_strs(&names).unwrap();
            assert_eq!(path_parts(&table).is_ok(), fine, "{names:?}");
        }
    }
}
