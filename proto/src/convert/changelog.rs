//! What a changelog target wants of the changes.

use std::sync::Arc;

use iceberg::spec::{Schema, StructType};
use iceferry_common::model::{
    Changelog, ColumnSource, DuplicateKeys, Identity, MetadataColumn, SnapshotId, SourceCommit,
};

use super::context::{schema_from_json, schema_to_json};
use super::{ConvertError, required};
use crate::wire;

const MESSAGE: &str = "Changelog";

impl TryFrom<&Changelog> for wire::Changelog {
    type Error = ConvertError;

    fn try_from(changelog: &Changelog) -> Result<Self, ConvertError> {
        Ok(Self {
            commit: Some(changelog.commit.into()),
            metadata_columns: changelog.metadata_columns.iter().map(|column| column.name().to_owned()).collect(),
            partition_fields: partition_to_json(&changelog.partition_type)?,
            identity: Some((&changelog.identity).into()),
            refuse_duplicate_keys: changelog.duplicate_keys == DuplicateKeys::Fail,
            columns: changelog.columns.iter().map(column_to_wire).collect(),
            compared_schema: match &changelog.compared_schema {
                Some(schema) => schema_to_json(schema, MESSAGE, "compared_schema")?,
                None => String::new(),
            },
        })
    }
}

impl TryFrom<wire::Changelog> for Changelog {
    type Error = ConvertError;

    fn try_from(changelog: wire::Changelog) -> Result<Self, ConvertError> {
        let metadata_columns = changelog.metadata_columns.iter().map(|name| {
            let unknown =
                |error: iceferry_common::model::UnknownMetadataColumn| invalid("metadata_columns", error.to_string());
            name.parse::<MetadataColumn>().map_err(unknown)
        });
        let metadata_columns = metadata_columns.collect::<Result<Vec<_>, _>>()?;
        let columns = changelog.columns.into_iter().map(|column| column_from_wire(column, metadata_columns.len()));
        Ok(Self {
            commit: required(changelog.commit, MESSAGE, "commit")?.into(),
            partition_type: partition_from_json(changelog.partition_fields)?,
            identity: required(changelog.identity, MESSAGE, "identity")?.try_into()?,
            duplicate_keys: if changelog.refuse_duplicate_keys { DuplicateKeys::Fail } else { DuplicateKeys::Pair },
            columns: columns.collect::<Result<_, _>>()?,
            metadata_columns,
            compared_schema: match changelog.compared_schema.is_empty() {
                true => None,
                false => Some(schema_from_json(changelog.compared_schema, MESSAGE, "compared_schema")?),
            },
        })
    }
}

fn invalid(field: &'static str, problem: String) -> ConvertError {
    ConvertError::Invalid { message: MESSAGE, field, problem }
}

fn partition_to_json(partition: &StructType) -> Result<String, ConvertError> {
    if partition.fields().is_empty() {
        return Ok(String::new());
    }
    let schema = Schema::builder().with_fields(partition.fields().iter().cloned()).build();
    let unwritable = |problem| ConvertError::Unwritable { message: MESSAGE, field: "partition_fields", problem };
    let schema = schema.map_err(|error| unwritable(error.to_string()))?;
    schema_to_json(&Arc::new(schema), MESSAGE, "partition_fields")
}

fn partition_from_json(json: String) -> Result<StructType, ConvertError> {
    if json.is_empty() {
        return Ok(StructType::new(Vec::new()));
    }
    let schema = schema_from_json(json, MESSAGE, "partition_fields")?;
    Ok(schema.as_struct().clone())
}

impl From<SourceCommit> for wire::SourceCommit {
    fn from(commit: SourceCommit) -> Self {
        let SourceCommit { snapshot_id: SnapshotId(snapshot_id), sequence_number, timestamp_ms, change_ordinal } =
            commit;
        Self { snapshot_id, sequence_number, timestamp_ms, change_ordinal }
    }
}

impl From<wire::SourceCommit> for SourceCommit {
    fn from(commit: wire::SourceCommit) -> Self {
        let wire::SourceCommit { snapshot_id, sequence_number, timestamp_ms, change_ordinal } = commit;
        Self { snapshot_id: SnapshotId(snapshot_id), sequence_number, timestamp_ms, change_ordinal }
    }
}

impl From<&Identity> for wire::Identity {
    fn from(identity: &Identity) -> Self {
        use wire::identity::Kind;
        let kind = match identity {
            Identity::None => Kind::None(wire::NoIdentity {}),
            Identity::Columns(field_ids) => Kind::Columns(wire::IdentityColumns { field_ids: field_ids.clone() }),
            Identity::RowId => Kind::RowId(wire::RowIdIdentity {}),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<wire::Identity> for Identity {
    type Error = ConvertError;

    fn try_from(identity: wire::Identity) -> Result<Self, ConvertError> {
        use wire::identity::Kind;
        match required(identity.kind, "Identity", "kind")? {
            Kind::None(wire::NoIdentity {}) => Ok(Self::None),
            // Without a column all rows would be one.
            Kind::Columns(columns) if columns.field_ids.is_empty() => {
                Err(ConvertError::Missing { message: "IdentityColumns", field: "field_ids" })
            }
            Kind::Columns(columns) => Ok(Self::Columns(columns.field_ids)),
            Kind::RowId(wire::RowIdIdentity {}) => Ok(Self::RowId),
        }
    }
}

fn column_to_wire(column: &ColumnSource) -> wire::ColumnSource {
    use wire::column_source::Kind;
    let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let kind = match *column {
        ColumnSource::Read(at) => Kind::Read(place(at)),
        ColumnSource::Metadata(at) => Kind::Metadata(place(at)),
        ColumnSource::ChangeType => Kind::ChangeType(wire::ChangeTypeColumn {}),
    };
    wire::ColumnSource { kind: Some(kind) }
}

fn column_from_wire(column: wire::ColumnSource, metadata_columns: usize) -> Result<ColumnSource, ConvertError> {
    use wire::column_source::Kind;
    match required(column.kind, "ColumnSource", "kind")? {
        Kind::Read(place) => Ok(ColumnSource::Read(place as usize)),
        Kind::Metadata(place) if (place as usize) < metadata_columns => Ok(ColumnSource::Metadata(place as usize)),
        Kind::Metadata(place) => {
            Err(invalid("columns", format!("it names metadata column {place} of {metadata_columns}")))
        }
        Kind::ChangeType(wire::ChangeTypeColumn {}) => Ok(ColumnSource::ChangeType),
    }
}
