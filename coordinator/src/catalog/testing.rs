//! What the tests of all catalogs share.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{
    FormatVersion, ListType, MapType, NestedField, Operation, PrimitiveType, Schema, Snapshot, SnapshotReference,
    SnapshotRetention, StructType, Summary, Type,
};
use iceberg::{TableIdent, TableRequirement, TableUpdate};

use super::{Catalog, CommitOutcome, LoadedTable, TableCreation};

pub(super) fn table(namespace: &[&str], name: &str) -> TableIdent {
    TableIdent::from_strs(namespace.iter().copied().chain([name])).unwrap()
}

/// A schema whose field ids no catalog would give out by itself: with gaps, out of order, nested.
fn schema() -> Schema {
    let text = || Type::Primitive(PrimitiveType::String);
    let long = || Type::Primitive(PrimitiveType::Long);
    let place = StructType::new(vec![
        NestedField::required(13, "lat", Type::Primitive(PrimitiveType::Double)).into(),
        NestedField::optional(12, "name", text()).with_doc("as signs say it").into(),
    ]);
    let tags = ListType::new(NestedField::list_element(16, text(), false).into());
    let counts = MapType::new(
        NestedField::map_key_element(20, text()).into(),
        NestedField::map_value_element(21, long(), true).into(),
    );
    let fields = vec![
        NestedField::required(9, "id", long()).with_doc("the key").into(),
        NestedField::optional(5, "v", text()).into(),
        NestedField::optional(11, "place", Type::Struct(place)).into(),
        NestedField::optional(15, "tags", Type::List(tags)).into(),
        NestedField::optional(19, "counts", Type::Map(counts)).into(),
        NestedField::required(3, "price", Type::decimal(10, 2).unwrap()).into(),
    ];
    Schema::builder().with_fields(fields).with_identifier_field_ids([9]).with_schema_id(4).build().unwrap()
}

pub(super) fn creation(properties: &[(&str, &str)]) -> TableCreation {
    TableCreation {
        schema: schema(),
        format_version: FormatVersion::V2,
        properties: properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

pub(super) fn set(key: &str, value: impl ToString) -> TableUpdate {
    TableUpdate::SetProperties { updates: HashMap::from([(key.to_owned(), value.to_string())]) }
}

pub(super) fn number(table: &LoadedTable, key: &str) -> u64 {
    table.metadata.properties().get(key).map_or(0, |value| value.parse().unwrap())
}

/// Sets one property on a fresh load, once.
pub(super) async fn set_once(catalog: &dyn Catalog, table: &TableIdent, key: &str, value: &str) -> CommitOutcome {
    let base = catalog.load_table(table).await.unwrap();
    catalog.commit(&base, vec![TableRequirement::UuidMatch { uuid: base.metadata.uuid() }], vec![set(key, value)]).await
}

pub(super) fn committed(outcome: CommitOutcome) -> LoadedTable {
    match outcome {
        CommitOutcome::Committed(table) => table,
        other => panic!("not committed: {other:?}"),
    }
}

/// Requirements and updates that put one empty snapshot on top of main, as a commit of files does.
fn snapshot(base: &LoadedTable) -> (Vec<TableRequirement>, Vec<TableUpdate>, i64) {
    let metadata = &base.metadata;
    let parent = metadata.current_snapshot_id();
    let id = i64::from_ne_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap()) & i64::MAX;
    let summary = Summary { operation: Operation::Append, additional_properties: HashMap::new() };
    let snapshot = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(parent)
        .with_sequence_number(metadata.next_sequence_number())
        .with_timestamp_ms(iceferry_common::clock::unix_ms().max(metadata.last_updated_ms()))
        .with_manifest_list(format!("{}/metadata/snap-{id}.avro", metadata.location()))
        .with_summary(summary)
        .with_schema_id(metadata.current_schema_id());
    let snapshot = if metadata.format_version() >= FormatVersion::V3 {
        snapshot.with_row_range(metadata.next_row_id(), 0).build()
    } else {
        snapshot.build()
    };
    let retention =
        SnapshotRetention::Branch { min_snapshots_to_keep: None, max_snapshot_age_ms: None, max_ref_age_ms: None };
    let reference = SnapshotReference { snapshot_id: id, retention };
    let requirements = vec![
        TableRequirement::UuidMatch { uuid: metadata.uuid() },
        TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: parent },
    ];
    let updates =
        vec![TableUpdate::AddSnapshot { snapshot }, TableUpdate::SetSnapshotRef { ref_name: "main".into(), reference }];
    (requirements, updates, id)
}

/// Commits of snapshots from many tasks at once: all are there in one chain, each once.
pub(super) async fn chain_in_parallel(catalogs: Vec<Arc<dyn Catalog>>, table: &TableIdent, each: usize) {
    let mut tasks = Vec::new();
    for catalog in &catalogs {
        let (catalog, table) = (Arc::clone(catalog), table.clone());
        tasks.push(tokio::spawn(async move {
            let mut done = Vec::new();
            while done.len() < each {
                let base = catalog.load_table(&table).await.unwrap();
                let (requirements, updates, id) = snapshot(&base);
                match catalog.commit(&base, requirements, updates).await {
                    CommitOutcome::Committed(after) => {
                        assert!(after.metadata.snapshot_by_id(id).is_some());
                        done.push(id);
                    }
                    CommitOutcome::Conflicted => {}
                    other => panic!("{other:?}"),
                }
            }
            done
        }));
    }
    let mut expected = Vec::new();
    for task in tasks {
        expected.extend(task.await.unwrap());
    }
    let end = catalogs[0].load_table(table).await.unwrap();
    let mut found = Vec::new();
    let mut next = end.metadata.current_snapshot();
    while let Some(snapshot) = next {
        found.push(snapshot.snapshot_id());
        next = snapshot.parent_snapshot_id().and_then(|id| end.metadata.snapshot_by_id(id));
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(end.metadata.last_sequence_number() as usize, expected.len());
}

/// Commits that add to a counter from many tasks at once: each must count exactly once, whoever wins.
pub(super) async fn count_in_parallel(catalogs: Vec<Arc<dyn Catalog>>, table: &TableIdent, each: u64) {
    let committers = catalogs.len() as u64;
    let mut tasks = Vec::new();
    for (own, catalog) in catalogs.iter().cloned().enumerate() {
        let table = table.clone();
        tasks.push(tokio::spawn(async move {
            let own = format!("own-{own}");
            let mut conflicts = 0_u64;
            let mut done = 0;
            while done < each {
                let base = catalog.load_table(&table).await.unwrap();
                let updates = vec![set("count", number(&base, "count") + 1), set(&own, number(&base, &own) + 1)];
                let requirements = vec![TableRequirement::UuidMatch { uuid: base.metadata.uuid() }];
                match catalog.commit(&base, requirements, updates).await {
                    CommitOutcome::Committed(after) => {
                        assert_eq!(number(&after, &own), done + 1);
                        done += 1;
                    }
                    CommitOutcome::Conflicted => conflicts += 1,
                    other => panic!("{other:?}"),
                }
            }
            conflicts
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let end = catalogs[0].load_table(table).await.unwrap();
    assert_eq!(number(&end, "count"), committers * each);
    for own in 0..committers {
        assert_eq!(number(&end, &format!("own-{own}")), each);
    }
    assert_eq!(end.metadata.metadata_log().len() as u64, (committers * each).min(100));
}
