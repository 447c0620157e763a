//! What iceferry's own reader and stager want to know of a table that stands for source and target at once.

use std::sync::Arc;

use iceferry_common::model::{EpochContext, EpochId, JobName, RunId, SourceContext, TargetContext, TargetMode};
use iceferry_coordinator::catalog::LoadedTable;
use iceferry_coordinator::commit;

use crate::failure::Failure;

/// The context of an epoch of its own, with the key as field ids.
pub(super) fn context(
    table: &LoadedTable,
    job: JobName,
    key: Vec<i32>,
    mode: TargetMode,
) -> Result<EpochContext, Failure> {
    let schema = Arc::clone(table.metadata.current_schema());
    Ok(EpochContext {
        job,
        run: RunId::new(),
        epoch: EpochId(0),
        changelog: None,
        source: SourceContext {
            table: table.ident.to_string(),
            read_schema: Arc::clone(&schema),
            equality_schema: Arc::clone(&schema),
            name_mapping: None,
            filter: None,
            storage: table.storage.properties().clone(),
        },
        target: TargetContext {
            table: table.ident.to_string(),
            write_schema: schema,
            key,
            mode,
            data_location: commit::data_location(&table.metadata),
            format_version: table.metadata.format_version() as u8,
            last_column_id: 0,
            name_mapping: None,
            parquet: commit::parquet_settings(&table.metadata)?,
            target_file_bytes: commit::target_file_bytes(&table.metadata)?,
            storage: table.storage.properties().clone(),
        },
    })
}
