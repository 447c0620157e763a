//! The context of an epoch.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{Schema, SchemaRef};
use iceferry_common::filter::{Filter, TableFilter};
use iceferry_common::model::{
    EpochContext, EpochId, JobName, MetricsMode, ParquetSettings, RunId, SourceContext, TargetContext, TargetMode,
};
use iceferry_common::storage::StorageProperties;

use super::{ConvertError, required, required_text};
use crate::wire;

impl TryFrom<&EpochContext> for wire::EpochContext {
    type Error = ConvertError;

    fn try_from(context: &EpochContext) -> Result<Self, ConvertError> {
        Ok(Self {
            job: context.job.to_string(),
            run: context.run.0.clone(),
            epoch: context.epoch.0,
            source: Some((&context.source).try_into()?),
            target: Some((&context.target).try_into()?),
            changelog: context.changelog.as_ref().map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<wire::EpochContext> for EpochContext {
    type Error = ConvertError;

    fn try_from(context: wire::EpochContext) -> Result<Self, ConvertError> {
        let message = "EpochContext";
        let invalid = |field, problem: String| ConvertError::Invalid { message, field, problem };
        let job = required_text(context.job, message, "job")?.parse::<JobName>();
        let run = required_text(context.run, message, "run")?;
        // It is part of every staged path, as the job's name is, which checks itself.
        if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(invalid("run", format!("{run:?} is not usable in a path")));
        }
        Ok(Self {
            job: job.map_err(|error| invalid("job", error.to_string()))?,
            run: RunId(run),
            epoch: EpochId(context.epoch),
            source: required(context.source, message, "source")?.try_into()?,
            target: required(context.target, message, "target")?.try_into()?,
            changelog: context.changelog.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<&SourceContext> for wire::SourceContext {
    type Error = ConvertError;

    fn try_from(source: &SourceContext) -> Result<Self, ConvertError> {
        let message = "SourceContext";
        Ok(Self {
            table: source.table.clone(),
            read_schema: schema_to_json(&source.read_schema, message, "read_schema")?,
            equality_schema: schema_to_json(&source.equality_schema, message, "equality_schema")?,
            name_mapping: source.name_mapping.clone(),
            filter: source.filter.as_ref().map(TryInto::try_into).transpose()?,
            storage: storage_to_wire(&source.storage),
        })
    }
}

impl TryFrom<wire::SourceContext> for SourceContext {
    type Error = ConvertError;

    fn try_from(source: wire::SourceContext) -> Result<Self, ConvertError> {
        let message = "SourceContext";
        Ok(Self {
            table: required_text(source.table, message, "table")?,
            read_schema: schema_from_json(source.read_schema, message, "read_schema")?,
            equality_schema: schema_from_json(source.equality_schema, message, "equality_schema")?,
            name_mapping: source.name_mapping,
            filter: source.filter.map(TryInto::try_into).transpose()?,
            storage: storage_from_wire(source.storage),
        })
    }
}

impl TryFrom<&TableFilter> for wire::TableFilter {
    type Error = ConvertError;

    fn try_from(filter: &TableFilter) -> Result<Self, ConvertError> {
        Ok(Self {
            text: filter.filter().text().to_owned(),
            schema: schema_to_json(filter.schema(), "TableFilter", "schema")?,
        })
    }
}

impl TryFrom<wire::TableFilter> for TableFilter {
    type Error = ConvertError;

    fn try_from(filter: wire::TableFilter) -> Result<Self, ConvertError> {
        let message = "TableFilter";
        let schema = schema_from_json(filter.schema, message, "schema")?;
        let bound = Filter::parse(&filter.text).and_then(|filter| Self::new(filter, &schema));
        bound.map_err(|error| ConvertError::Invalid { message, field: "text", problem: error.to_string() })
    }
}

impl TryFrom<&TargetContext> for wire::TargetContext {
    type Error = ConvertError;

    fn try_from(target: &TargetContext) -> Result<Self, ConvertError> {
        let mode = match target.mode {
            TargetMode::MergeOnRead => wire::TargetMode::MergeOnRead,
            TargetMode::Append => wire::TargetMode::Append,
        };
        Ok(Self {
            table: target.table.clone(),
            write_schema: schema_to_json(&target.write_schema, "TargetContext", "write_schema")?,
            key: target.key.clone(),
            mode: mode.into(),
            data_location: target.data_location.clone(),
            format_version: target.format_version.into(),
            parquet: Some((&target.parquet).into()),
            target_file_bytes: target.target_file_bytes,
            storage: storage_to_wire(&target.storage),
            last_column_id: target.last_column_id,
            name_mapping: target.name_mapping.clone(),
        })
    }
}

impl TryFrom<wire::TargetContext> for TargetContext {
    type Error = ConvertError;

    fn try_from(target: wire::TargetContext) -> Result<Self, ConvertError> {
        let message = "TargetContext";
        let invalid = |field, problem: String| ConvertError::Invalid { message, field, problem };
        let mode = match wire::TargetMode::try_from(target.mode) {
            Ok(wire::TargetMode::MergeOnRead) => TargetMode::MergeOnRead,
            Ok(wire::TargetMode::Append) => TargetMode::Append,
            Ok(wire::TargetMode::Unspecified) => return Err(ConvertError::Missing { message, field: "mode" }),
            Err(_) => return Err(ConvertError::UnknownValue { message, field: "mode", value: target.mode }),
        };
        let write_schema = schema_from_json(target.write_schema, message, "write_schema")?;
        if let Some(id) = target.key.iter().find(|&&id| write_schema.field_by_id(id).is_none()) {
            return Err(invalid("key", format!("field {id} is not in the write schema")));
        }
        let format_version = u8::try_from(target.format_version).ok().filter(|version| (1..=3).contains(version));
        let format_version = format_version
            .ok_or_else(|| invalid("format_version", format!("version {} is not known here", target.format_version)))?;
        Ok(Self {
            table: required_text(target.table, message, "table")?,
            write_schema,
            key: target.key,
            mode,
            data_location: required_text(target.data_location, message, "data_location")?,
            format_version,
            parquet: required(target.parquet, message, "parquet")?.try_into()?,
            target_file_bytes: target.target_file_bytes,
            storage: storage_from_wire(target.storage),
            last_column_id: target.last_column_id,
            name_mapping: target.name_mapping,
        })
    }
}

impl From<&ParquetSettings> for wire::ParquetSettings {
    fn from(parquet: &ParquetSettings) -> Self {
        let columns = parquet.metrics_columns.iter();
        Self {
            compression_codec: parquet.compression_codec.clone(),
            compression_level: parquet.compression_level,
            row_group_bytes: parquet.row_group_bytes,
            page_bytes: parquet.page_bytes,
            dictionary_bytes: parquet.dictionary_bytes,
            metrics_default: Some(parquet.metrics_default.into()),
            metrics_columns: columns.map(|(name, mode)| (name.clone(), (*mode).into())).collect(),
        }
    }
}

impl TryFrom<wire::ParquetSettings> for ParquetSettings {
    type Error = ConvertError;

    fn try_from(parquet: wire::ParquetSettings) -> Result<Self, ConvertError> {
        let message = "ParquetSettings";
        let columns = parquet.metrics_columns.into_iter();
        let columns = columns.map(|(name, mode)| Ok((name, mode.try_into()?)));
        Ok(Self {
            compression_codec: required_text(parquet.compression_codec, message, "compression_codec")?,
            compression_level: parquet.compression_level,
            row_group_bytes: parquet.row_group_bytes,
            page_bytes: parquet.page_bytes,
            dictionary_bytes: parquet.dictionary_bytes,
            metrics_default: required(parquet.metrics_default, message, "metrics_default")?.try_into()?,
            metrics_columns: columns.collect::<Result<_, ConvertError>>()?,
        })
    }
}

impl From<MetricsMode> for wire::MetricsMode {
    fn from(mode: MetricsMode) -> Self {
        use wire::metrics_mode::Kind;
        let (kind, length) = match mode {
            MetricsMode::None => (Kind::None, 0),
            MetricsMode::Counts => (Kind::Counts, 0),
            MetricsMode::Truncate(length) => (Kind::Truncate, length),
            MetricsMode::Full => (Kind::Full, 0),
        };
        Self { kind: kind.into(), length }
    }
}

impl TryFrom<wire::MetricsMode> for MetricsMode {
    type Error = ConvertError;

    fn try_from(mode: wire::MetricsMode) -> Result<Self, ConvertError> {
        use wire::metrics_mode::Kind;
        let message = "MetricsMode";
        match Kind::try_from(mode.kind) {
            Ok(Kind::None) => Ok(Self::None),
            Ok(Kind::Counts) => Ok(Self::Counts),
            Ok(Kind::Truncate) if mode.length == 0 => Err(ConvertError::Missing { message, field: "length" }),
            Ok(Kind::Truncate) => Ok(Self::Truncate(mode.length)),
            Ok(Kind::Full) => Ok(Self::Full),
            Ok(Kind::Unspecified) => Err(ConvertError::Missing { message, field: "kind" }),
            Err(_) => Err(ConvertError::UnknownValue { message, field: "kind", value: mode.kind }),
        }
    }
}

/// The schema as Iceberg JSON. It is read back here, once an epoch: a default value that JSON cannot carry would else
/// reach the worker as no default at all.
pub(super) fn schema_to_json(
    schema: &SchemaRef,
    message: &'static str,
    field: &'static str,
) -> Result<String, ConvertError> {
    let unwritable = |problem| ConvertError::Unwritable { message, field, problem };
    let json = serde_json::to_string(schema.as_ref()).map_err(|error| unwritable(error.to_string()))?;
    let back = serde_json::from_str::<Schema>(&json).map_err(|error| unwritable(error.to_string()))?;
    if back == **schema { Ok(json) } else { Err(unwritable("its JSON reads back as another schema".to_owned())) }
}

pub(super) fn schema_from_json(
    json: String,
    message: &'static str,
    field: &'static str,
) -> Result<SchemaRef, ConvertError> {
    let json = required_text(json, message, field)?;
    let schema = serde_json::from_str::<Schema>(&json);
    schema.map(Arc::new).map_err(|source| ConvertError::Json { message, field, source })
}

fn storage_to_wire(storage: &StorageProperties) -> HashMap<String, String> {
    storage.0.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn storage_from_wire(storage: HashMap<String, String>) -> StorageProperties {
    StorageProperties(storage.into_iter().collect())
}
