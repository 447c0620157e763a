//! Which two states are compared, and how their rows are read.

use iceberg::spec::SchemaRef;
use iceferry_common::config::JobFile;
use iceferry_common::fault::{Class, Classified};
use iceferry_common::filter::TableFilter;
use iceferry_common::model::{EpochContext, EpochId, RunId, SnapshotId, SourceContext, TargetContext};

use super::{SideName, SideReport, VerifyError, VerifyOptions, temporary};
use crate::catalog::{self, CatalogError, LoadedTable};
use crate::commit;
use crate::job::{self, JobError, Meeting};
use crate::plan::{ManifestLists, PlanOptions, PlanRequest, Together, Ways};

/// The two states of a comparison.
pub(super) struct Opened {
    pub(super) job: JobFile,
    pub(super) source: State,
    pub(super) target: State,
    /// Places of the key's columns; empty without one.
    pub(super) key: Vec<usize>,
}

/// A state of one side.
pub(super) struct State {
    pub(super) table: LoadedTable,
    /// Which of its rows count; all without one.
    filter: Option<TableFilter>,
    /// None is a table without rows.
    pub(super) snapshot: Option<SnapshotId>,
    /// Its field ids in the shape that both sides are read in.
    schema: SchemaRef,
    equality_schema: SchemaRef,
}

/// Finds the two states. Reads no data, and writes nothing.
pub(super) async fn open(job: JobFile, options: &VerifyOptions) -> Result<Opened, VerifyError> {
    let (source, target) = tables(&job).await?;
    let target_name = || target.ident.to_string();
    if job.target.change_type_column.is_some() || !job.source.metadata_columns.is_empty() {
        return Err(VerifyError::Changelog { table: target_name() });
    }
    let (source_snapshot, checkpoint) = match options.source_snapshot {
        Some(snapshot) => (snapshot, None),
        None => {
            let checkpoint = job::checkpoint(&job, &source, &target).await?;
            let none = || VerifyError::NoCheckpoint { table: target_name(), job: job.name.clone() };
            let checkpoint = checkpoint.ok_or_else(none)?;
            (checkpoint.source_snapshot_id, Some(checkpoint))
        }
    };
    let hint = match checkpoint {
        Some(_) => ", which the target holds: it was expired; run the job and verify again",
        None => "; it may have been expired",
    };
    require(SideName::Source, &source, source_snapshot, hint)?;
    let target_snapshot = match options.target_snapshot {
        Some(snapshot) => {
            require(SideName::Target, &target, snapshot, "; it may have been expired")?;
            Some(snapshot)
        }
        None => target.metadata.current_snapshot_id().map(SnapshotId),
    };
    let Meeting { filter, read_schema, write_schema, source_equality_schema, target_equality_schema, key } =
        job::meet(&job, &source, &target, Some(source_snapshot), checkpoint.as_ref())?;
    let snapshot = Some(source_snapshot);
    let equality_schema = source_equality_schema;
    let source = State { table: source, filter, snapshot, schema: read_schema, equality_schema };
    let target = State {
        table: target,
        filter: None,
        snapshot: target_snapshot,
        schema: write_schema,
        equality_schema: target_equality_schema,
    };
    Ok(Opened { job, source, target, key })
}

async fn tables(job: &JobFile) -> Result<(LoadedTable, LoadedTable), VerifyError> {
    let (of_source, of_target) = (JobError::catalog("source"), JobError::catalog("target"));
    let catalog = catalog::open(&job.source.catalog_properties.expose()).await.map_err(of_source)?;
    let source = catalog.load_table(&job.source.table.ident()).await.map_err(of_source)?;
    let catalog = catalog::open(&job.target.catalog_properties.expose()).await.map_err(of_target)?;
    match catalog.load_table(&job.target.table.ident()).await {
        Ok(target) => Ok((source, target)),
        Err(error) if error.class() == Class::NotFound => {
            let missing = matches!(error, CatalogError::TableNotFound { .. } | CatalogError::NotFound { .. });
            let table = job.target.table.ident().to_string();
            if missing { Err(VerifyError::NoTarget { table }) } else { Err(of_target(error).into()) }
        }
        Err(error) => Err(of_target(error).into()),
    }
}

fn require(
    side: SideName,
    table: &LoadedTable,
    SnapshotId(snapshot): SnapshotId,
    hint: &'static str,
) -> Result<(), VerifyError> {
    match table.metadata.snapshot_by_id(snapshot) {
        Some(_) => Ok(()),
        None => Err(VerifyError::NoSnapshot { side, table: table.ident.to_string(), snapshot, hint }),
    }
}

impl Opened {
    pub(super) fn side(&self, side: SideName) -> &State {
        match side {
            SideName::Source => &self.source,
            SideName::Target => &self.target,
        }
    }

    /// The names of the columns that both sides have.
    pub(super) fn columns(&self) -> Vec<String> {
        self.target.schema.as_struct().fields().iter().map(|field| field.name.clone()).collect()
    }

    /// What the tasks of a side share: they read it, and write temporary files for the target's storage.
    pub(super) fn context(&self, side: SideName, run: &RunId, epoch: EpochId) -> Result<EpochContext, VerifyError> {
        let State { table, filter, schema, equality_schema, .. } = self.side(side);
        let target = &self.target.table;
        Ok(EpochContext {
            job: self.job.name.clone(),
            run: run.clone(),
            epoch,
            changelog: None,
            source: SourceContext {
                table: table.ident.to_string(),
                read_schema: schema.clone(),
                filter: filter.clone(),
                equality_schema: equality_schema.clone(),
                name_mapping: table.metadata.properties().get("schema.name-mapping.default").cloned(),
                storage: table.storage.properties().clone(),
            },
            target: TargetContext {
                table: target.ident.to_string(),
                write_schema: self.target.schema.clone(),
                key: Vec::new(),
                mode: self.job.target.mode,
                data_location: temporary::location(target),
                format_version: target.metadata.format_version() as u8,
                last_column_id: target.metadata.last_column_id(),
                name_mapping: None,
                parquet: commit::parquet_settings(&target.metadata)?,
                target_file_bytes: commit::target_file_bytes(&target.metadata)?,
                storage: target.storage.properties().clone(),
            },
        })
    }
}

impl State {
    /// What is planned for it: all of its rows. None when it has none.
    pub(super) fn plan_request(&self, slots: usize) -> Option<PlanRequest> {
        Some(PlanRequest {
            table: self.table.ident.to_string(),
            storage: self.table.storage.clone(),
            metadata: self.table.metadata.clone(),
            before: None,
            after: self.snapshot?,
            read_schema: self.schema.clone(),
            filter: self.filter.as_ref().map(|filter| filter.bound().clone()),
            key: Vec::new(),
            together: Together::CarryOver,
            ways: Ways::rows(),
            partition_type: None,
            manifest_lists: ManifestLists::default(),
            options: PlanOptions { slots, ..PlanOptions::of_table(&self.table.metadata) },
        })
    }

    /// How many rows there are, about, as the snapshot itself has it.
    pub(super) fn rows_expected(&self) -> Option<u64> {
        let Some(SnapshotId(snapshot)) = self.snapshot else { return Some(0) };
        let snapshot = self.table.metadata.snapshot_by_id(snapshot)?;
        snapshot.summary().additional_properties.get("total-records")?.parse().ok()
    }

    pub(super) fn report(&self, rows: Option<u64>) -> SideReport {
        let snapshot_id = self.snapshot.map(|snapshot| snapshot.to_string());
        SideReport { table: self.table.ident.to_string(), snapshot_id, rows }
    }
}
