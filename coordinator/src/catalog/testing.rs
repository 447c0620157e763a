//! What the tests of all catalogs share.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{FormatVersion, ListType, MapType, NestedField, PrimitiveType, Schema, StructType, Type};
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
