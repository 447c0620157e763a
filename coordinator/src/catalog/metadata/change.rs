//! The next metadata of a table from its base, by requirements and updates.

use iceberg::spec::{FormatVersion, TableMetadata};
use iceberg::{ErrorKind, TableRequirement, TableUpdate};

use super::super::{CatalogError, LoadedTable};

/// What the updates made of the base.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The next metadata.
    pub(crate) metadata: TableMetadata,
    /// Metadata files that fell out of the metadata log.
    pub(crate) expired: Vec<String>,
}

/// Why the base was not changed.
#[derive(Debug)]
pub(crate) enum NotChanged {
    /// The base does not meet a requirement.
    Conflicted,
    /// The updates do not fit the base.
    Refused(Box<CatalogError>),
}

/// The base with the updates, when it meets the requirements.
pub(crate) fn change(
    base: &LoadedTable,
    requirements: &[TableRequirement],
    updates: Vec<TableUpdate>,
    act: &str,
) -> Result<Changed, NotChanged> {
    // The iceberg crate drops branches and tags of version 1 metadata when it parses, so writing it back would lose them.
    if base.metadata.format_version() == FormatVersion::V1 {
        return Err(NotChanged::Refused(Box::new(CatalogError::Refused {
            act: act.to_owned(),
            problem: "the table has format version 1, which is only read; set its property format-version to 2".into(),
        })));
    }
    for requirement in requirements {
        requirement.check(Some(&base.metadata)).map_err(|error| not_changed(error, act))?;
    }
    let previous = (!base.is_staged()).then(|| base.metadata_location.clone());
    if updates.is_empty() && base.is_staged() {
        return Ok(Changed { metadata: (*base.metadata).clone(), expired: Vec::new() });
    }
    let mut builder = (*base.metadata).clone().into_builder(previous);
    for update in updates {
        builder = update.apply(builder).map_err(|error| not_changed(error, act))?;
    }
    let built = builder.build().map_err(|error| not_changed(error, act))?;
    let expired = built.expired_metadata_logs.into_iter().map(|entry| entry.metadata_file).collect();
    Ok(Changed { metadata: built.metadata, expired })
}

fn not_changed(error: iceberg::Error, act: &str) -> NotChanged {
    if error.kind() == ErrorKind::CatalogCommitConflicts {
        return NotChanged::Conflicted;
    }
    NotChanged::Refused(Box::new(CatalogError::Refused {
        act: act.to_owned(),
        problem: format!("the updates do not fit the table: {}", error.message()),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use iceferry_common::storage::{Storage, StorageProperties};
    use uuid::Uuid;

    use super::super::super::testing;
    use super::*;

    fn base(properties: &[(&str, &str)]) -> LoadedTable {
        let table = testing::table(&["ns"], "t");
        let metadata = super::super::create(&table, "/w/ns/t", testing::creation(properties)).unwrap();
        LoadedTable {
            ident: table,
            metadata: Arc::new(metadata),
            metadata_location: "/w/ns/t/metadata/v7.metadata.json".into(),
            storage: Storage::new(StorageProperties::default()),
        }
    }

    fn set(key: &str, value: &str) -> TableUpdate {
        TableUpdate::SetProperties { updates: HashMap::from([(key.to_owned(), value.to_owned())]) }
    }

    #[test]
    fn a_change_keeps_the_base_in_the_metadata_log() {
        let base = base(&[]);
        let requirements = [TableRequirement::UuidMatch { uuid: base.metadata.uuid() }];
        let changed = change(&base, &requirements, vec![set("a", "1")], "commit").unwrap();
        assert_eq!(changed.metadata.properties().get("a").map(String::as_str), Some("1"));
        let log: Vec<&str> = changed.metadata.metadata_log().iter().map(|entry| &*entry.metadata_file).collect();
        assert_eq!(log, ["/w/ns/t/metadata/v7.metadata.json"]);
        assert!(changed.expired.is_empty());
    }

    #[test]
    fn the_log_is_no_longer_than_the_table_says() {
        let mut base = base(&[("write.metadata.previous-versions-max", "2")]);
        let mut expired = Vec::new();
        for version in 8..12 {
            let changed = change(&base, &[], vec![set("a", "1")], "commit").unwrap();
            expired.extend(changed.expired);
            base.metadata = Arc::new(changed.metadata);
            base.metadata_location = format!("/w/ns/t/metadata/v{version}.metadata.json");
        }
        assert_eq!(base.metadata.metadata_log().len(), 2);
        assert_eq!(expired, ["/w/ns/t/metadata/v7.metadata.json", "/w/ns/t/metadata/v8.metadata.json"]);
    }

    #[test]
    fn a_requirement_that_is_not_met_is_a_conflict_and_an_update_that_does_not_fit_is_refused() {
        let base = base(&[]);
        let stranger = [TableRequirement::UuidMatch { uuid: Uuid::nil() }];
        assert!(matches!(change(&base, &stranger, vec![], "commit"), Err(NotChanged::Conflicted)));
        assert!(matches!(change(&base, &[TableRequirement::NotExist], vec![], "commit"), Err(NotChanged::Conflicted)));
        let misfit = vec![TableUpdate::SetCurrentSchema { schema_id: 77 }];
        assert!(matches!(change(&base, &[], misfit, "commit"), Err(NotChanged::Refused(_))));
    }
}
