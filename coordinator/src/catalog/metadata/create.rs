//! The first metadata of a table.

use iceberg::TableIdent;
use iceberg::spec::{
    FormatVersion, PrimitiveType, Schema, SortOrder, TableMetadata, TableMetadataBuilder, TableProperties, Type,
    UnboundPartitionSpec,
};
use serde_json::{Value, json};

use super::super::{CatalogError, TableCreation};
use super::parse;

/// Metadata of a new table: unpartitioned, unsorted, without snapshots, with the schema's field ids as they are.
pub(crate) fn create(
    table: &TableIdent,
    location: &str,
    creation: TableCreation,
) -> Result<TableMetadata, CatalogError> {
    let act = format!("create table {table}");
    check_schema(&act, &creation)?;
    check_properties(&act, &creation)?;
    let schema = creation.schema;
    let built = TableMetadataBuilder::new(
        schema.clone(),
        UnboundPartitionSpec::builder().build(),
        SortOrder::unsorted_order(),
        location.to_owned(),
        creation.format_version,
        creation.properties,
    )
    .and_then(TableMetadataBuilder::build)
    .map_err(|source| CatalogError::Iceberg { act: act.clone(), source: Box::new(source) })?;
    // The builder numbers the fields anew, and has no door for a schema with its own ids; the JSON form has.
    let bug = |source: serde_json::Error| refused(&act, format!("its metadata cannot be written: {source}"));
    let mut value = serde_json::to_value(&built.metadata).map_err(bug)?;
    let mut columns = serde_json::to_value(&schema).map_err(bug)?;
    columns["schema-id"] = json!(0);
    value["schemas"] = Value::Array(vec![columns]);
    value["current-schema-id"] = json!(0);
    value["last-column-id"] = json!(schema.highest_field_id());
    let metadata = parse::from_json(value, &act)?;
    if !same_columns(metadata.current_schema(), &schema) {
        return Err(refused(&act, "its schema did not keep its field ids".into()));
    }
    Ok(metadata)
}

/// Whether two schemas have the same columns: ids, names, types, docs, required flags, defaults and identifier fields.
pub(crate) fn same_columns(one: &Schema, other: &Schema) -> bool {
    let sorted = |schema: &Schema| {
        let mut ids: Vec<i32> = schema.identifier_field_ids().collect();
        ids.sort_unstable();
        ids
    };
    one.as_struct() == other.as_struct() && sorted(one) == sorted(other)
}

/// Refuses what the format version of the new table cannot hold.
pub(crate) fn check_schema(act: &str, creation: &TableCreation) -> Result<(), CatalogError> {
    if creation.format_version == FormatVersion::V1 {
        return Err(refused(act, "tables are made with format version 2 or 3, not 1".into()));
    }
    if creation.format_version >= FormatVersion::V3 {
        return Ok(());
    }
    let mut fields: Vec<_> = creation.schema.field_id_to_fields().values().collect();
    fields.sort_unstable_by_key(|field| field.id);
    for field in fields {
        let name = creation.schema.name_by_field_id(field.id).unwrap_or(&field.name);
        if let Type::Primitive(kind @ (PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs)) = &*field.field_type
        {
            return Err(refused(act, format!("column {name} has type {kind}, which needs format version 3")));
        }
        if field.initial_default.is_some() {
            return Err(refused(act, format!("column {name} has an initial default, which needs format version 3")));
        }
    }
    Ok(())
}

/// Refuses properties whose keys are not the user's to set.
pub(crate) fn check_properties(act: &str, creation: &TableCreation) -> Result<(), CatalogError> {
    let reserved =
        creation.properties.keys().filter(|key| TableProperties::RESERVED_PROPERTIES.contains(&key.as_str()));
    let mut reserved: Vec<&str> = reserved.map(String::as_str).collect();
    if reserved.is_empty() {
        return Ok(());
    }
    reserved.sort_unstable();
    Err(refused(act, format!("table properties {} are reserved; leave them out", reserved.join(", "))))
}

fn refused(act: &str, problem: String) -> CatalogError {
    CatalogError::Refused { act: act.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iceberg::spec::NestedField;
    use iceferry_common::fault::{Class, Classified};

    use super::super::super::testing;
    use super::*;

    #[test]
    fn a_new_table_keeps_ids_docs_required_flags_and_identifier_fields() {
        for format_version in [FormatVersion::V2, FormatVersion::V3] {
            let mut creation = testing::creation(&[("a", "b")]);
            creation.format_version = format_version;
            let schema = creation.schema.clone();
            let metadata = create(&testing::table(&["ns"], "t"), "/w/ns/t/", creation).unwrap();
            assert!(same_columns(metadata.current_schema(), &schema));
            assert_eq!(metadata.last_column_id(), 21);
            assert_eq!(metadata.format_version(), format_version);
            assert_eq!(metadata.location(), "/w/ns/t");
            assert!(metadata.default_partition_spec().is_unpartitioned());
            assert!(metadata.default_sort_order().is_unsorted());
            assert_eq!(metadata.properties().len(), 1);
        }
    }

    #[test]
    fn what_the_format_version_cannot_hold_is_refused_by_name() {
        let mut creation = testing::creation(&[]);
        let column = NestedField::optional(3, "at", Type::Primitive(PrimitiveType::TimestampNs));
        creation.schema = Schema::builder().with_fields([Arc::new(column)]).build().unwrap();
        let error = create(&testing::table(&["ns"], "t"), "/w", creation.clone()).unwrap_err();
        assert!(error.to_string().contains("column at has type timestamp_ns"), "{error}");
        assert_eq!(error.class(), Class::Refused);
        creation.format_version = FormatVersion::V3;
        assert!(create(&testing::table(&["ns"], "t"), "/w", creation.clone()).is_ok());
        creation.format_version = FormatVersion::V1;
        assert!(create(&testing::table(&["ns"], "t"), "/w", creation).is_err());
        let error = create(&testing::table(&["ns"], "t"), "/w", testing::creation(&[("format-version", "2")]));
        assert!(error.unwrap_err().to_string().contains("format-version"));
    }
}
