//! Before a job writes anything: open, look, refuse.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{FormatVersion, NameMapping, Schema, SchemaRef, TableMetadata};
use iceferry_common::config::{Changes, ColumnChoice, JobFile, StartBound, StartingStrategy};
use iceferry_common::filter::TableFilter;
use iceferry_common::model::{Identity, TargetMode};

use super::changelog::{self, AddedColumns, ChangelogShape};
use super::reading::{Candidate, Reading, candidates, filter, key, reading, schemas_of_range, those_that_fit};
use super::schema::{self, Misfit};
use super::{JobError, columns, meet, net};
use crate::catalog::{self, Catalog, CatalogError, LoadedTable, TableCreation};
use crate::commit::{self, Checkpoint};
use crate::plan::{self, ManifestLists, Range, RangeRequest};

/// The property with a table's name mapping.
const NAME_MAPPING: &str = "schema.name-mapping.default";

/// A job that may start.
#[derive(Debug)]
pub struct Prepared {
    /// The job file.
    pub job: JobFile,
    /// The source as it was when the job looked; the run reads this very state.
    pub source: LoadedTable,
    /// The source's catalog.
    pub source_catalog: Arc<dyn Catalog>,
    /// The target's catalog.
    pub target_catalog: Arc<dyn Catalog>,
    /// The target.
    pub target: Target,
    /// What the target holds of the source.
    pub checkpoint: Option<Checkpoint>,
    /// What there is to do.
    pub range: Range,
    /// The source's field ids in the target's shape.
    pub read_schema: SchemaRef,
    /// The target's schema.
    pub write_schema: SchemaRef,
    /// Every field that the source has or had.
    pub equality_schema: SchemaRef,
    /// The key as field ids of the target, in the order of the key; empty without one.
    pub write_key: Vec<i32>,
    /// The key as field ids of the source.
    pub read_key: Vec<i32>,
    /// Which rows count; all without one.
    pub filter: Option<TableFilter>,
    /// How changes become rows, when the target is a changelog.
    pub changelog: Option<ChangelogShape>,
    /// Whether the changes of an epoch name several snapshots, each the one that last made it.
    pub tells_commits: bool,
    /// Manifest lists that were read last: an epoch begins where the one before it ended.
    pub manifest_lists: ManifestLists,
    /// The hash of what defines the mirror, the source's columns included.
    pub mirror_hash: String,
    /// What a person should know before it starts.
    pub notes: Vec<String>,
}

/// The target table.
#[derive(Debug)]
pub enum Target {
    /// It is there.
    Existing(LoadedTable),
    /// It is to be made, with its first epoch.
    New(Box<TableCreation>),
}

impl Prepared {
    /// `namespace.table` of the source.
    pub fn source_name(&self) -> String {
        self.source.ident.to_string()
    }

    /// `namespace.table` of the target.
    pub fn target_name(&self) -> String {
        self.job.target.table.ident().to_string()
    }
}

/// Opens both catalogs, loads both tables, and finds out what there is to do. Writes nothing.
///
/// # Errors
/// [`JobError`]: whatever can be told to be wrong without reading data.
pub async fn prepare(job: JobFile) -> Result<Prepared, JobError> {
    if job.reads_what_it_writes() {
        return Err(JobError::OwnTable { table: job.source.table.ident().to_string() });
    }
    let source_catalog =
        catalog::open(&job.source.catalog_properties.expose()).await.map_err(JobError::catalog("source"))?;
    let source = source_catalog.load_table(&job.source.table.ident()).await.map_err(JobError::catalog("source"))?;
    let target_catalog =
        catalog::open(&job.target.catalog_properties.expose()).await.map_err(JobError::catalog("target"))?;
    let existing = match target_catalog.load_table(&job.target.table.ident()).await {
        Ok(table) => Some(table),
        // A target's catalog is made with its first table, as other tools do it; a source's must be there.
        Err(CatalogError::TableNotFound { .. } | CatalogError::NotFound { .. }) => None,
        Err(error) => return Err(JobError::catalog("target")(error)),
    };

    let checkpoint = match &existing {
        Some(target) => meet::checkpoint(&job, &source, target).await?,
        None => None,
    };
    let mirror = job.target.mode == TargetMode::MergeOnRead;
    let held_snapshot = checkpoint.as_ref().map(|checkpoint| checkpoint.source_snapshot_id);
    let request = RangeRequest {
        bounds: job.source.bounds,
        followed: &job.source.followed,
        on_rollback: job.source.on_rollback,
        changes: job.changes(),
        checkpoint: held_snapshot,
        mirror,
    };
    let range = plan::epochs(&source.metadata, &request)?;

    let candidates = candidates(&job, &source, schemas_of_range(&source.metadata, &job, &range))?;
    let mut notes = Vec::new();
    if let Some((checkpoint, through)) = range.resync(&source.metadata) {
        notes.push(format!(
            "{}: the target holds snapshot {checkpoint}, which is not in the history of {}; the difference to snapshot \
             {through} is applied, as source.on_rollback asks for",
            source.ident, job.source.followed
        ));
    }
    let fit = |misfit: Misfit| JobError::Schema {
        table: source.ident.to_string(),
        target: job.target.table.ident().to_string(),
        column: misfit.column,
        problem: misfit.problem,
    };
    let added = AddedColumns::of(&job, &source.metadata).map_err(fit)?;
    if let Some(misfit) = candidates.iter().find_map(|candidate| added.collision(&candidate.all)) {
        return Err(fit(misfit));
    }
    // A changelog compares rows by all of their columns.
    let reads_all = job.target.change_type_column.is_some();
    let read = |candidate: &Candidate| schema::unreadable(if reads_all { &candidate.all } else { &candidate.carried });
    if let Some(misfit) = candidates.iter().find_map(read) {
        return Err(fit(misfit));
    }
    check_name_mapping(&source)?;
    let tells_commits = net::tells_commits(&job, &source, &range)?;
    let manifest_lists = ManifestLists::default();
    check_beginning(&job, &source, &range, &manifest_lists, tells_commits).await?;
    let target = match existing {
        Some(table) => {
            check_target(&job, &table, checkpoint.as_ref())?;
            Target::Existing(table)
        }
        None => Target::New(Box::new(creation(&job, &source, &candidates[0].carried, &added)?)),
    };
    let write_schema: SchemaRef = match &target {
        Target::Existing(table) => Arc::clone(table.metadata.current_schema()),
        Target::New(creation) => Arc::new(creation.schema.clone()),
    };
    let row_schema = match added.is_empty() {
        true => Arc::clone(&write_schema),
        false => Arc::new(added.taken_from(&write_schema).map_err(fit)?),
    };
    let fitting = those_that_fit(candidates, &row_schema).map_err(fit)?;
    let Reading { schemas, read_schema, mirror_hash } =
        reading(&job, &source, fitting, checkpoint.as_ref()).map_err(fit)?;
    let filter = filter(&job, &source, &schemas)?;
    let equality_schema = Arc::new(schema::equality_schema(&source.metadata).map_err(fit)?);
    let (read_key, write_key) = key(&job, &source, &schemas, &write_schema)?;
    let changelog = match added.is_empty() {
        true => None,
        false => {
            let identity = changelog::identity(&job, &source.metadata, &schemas.all);
            let identity = identity.and_then(|identity| match &identity {
                Identity::Columns(ids) => schemas.carries(ids).map(|()| identity),
                Identity::None | Identity::RowId => Ok(identity),
            });
            let identity = identity.map_err(|Misfit { column, problem }| JobError::Identifier {
                table: source.ident.to_string(),
                column,
                problem,
            })?;
            let duplicate_keys = job.source.duplicate_keys.unwrap_or_default();
            let mut shape = added.shape(&write_schema, &read_schema, identity, duplicate_keys);
            // The full row decides, the projection is shown.
            let is_narrow = job.source.projection != ColumnChoice::All;
            let compares = shape.has_change_type || tells_commits;
            shape.compared_schema = (is_narrow && compares).then(|| Arc::clone(&schemas.all));
            if tells_commits {
                shape.tell_snapshots_apart();
            }
            Some(shape)
        }
    };
    let read_key = match changelog.as_ref().map(|shape| &shape.identity) {
        Some(Identity::Columns(key)) => key.clone(),
        _ => read_key,
    };

    if !source.metadata.default_partition_spec().is_unpartitioned() {
        notes.push(format!(
            "{} is partitioned; partitioned targets are not supported yet, so {} is written unpartitioned",
            source.ident,
            job.target.table.ident()
        ));
    }
    Ok(Prepared {
        job,
        source,
        source_catalog,
        target_catalog,
        target,
        checkpoint,
        range,
        read_schema,
        write_schema,
        equality_schema,
        write_key,
        read_key,
        filter,
        changelog,
        tells_commits,
        manifest_lists,
        mirror_hash,
        notes,
    })
}

/// The columns of files without field ids are told by it, so it must be readable, whether or not there are such files.
fn check_name_mapping(source: &LoadedTable) -> Result<(), JobError> {
    let Some(text) = name_mapping(&source.metadata) else { return Ok(()) };
    match serde_json::from_str::<NameMapping>(&text) {
        Ok(_) => Ok(()),
        Err(error) => Err(JobError::Source {
            table: source.ident.to_string(),
            problem: format!(
                "its property {NAME_MAPPING} is no name mapping ({error}); correct it, or remove it when all of its files \
                 have field ids"
            ),
        }),
    }
}

/// The table's property with the names that its columns have in files without field ids.
pub(super) fn name_mapping(table: &TableMetadata) -> Option<String> {
    table.properties().get(NAME_MAPPING).cloned()
}

/// Where changes from the oldest snapshot on are asked for, that it began with nothing. Some writers cut a history off
/// when they expire snapshots: the oldest that is left has no parent then, and files of those that are gone.
async fn check_beginning(
    job: &JobFile,
    source: &LoadedTable,
    range: &Range,
    lists: &ManifestLists,
    tells_commits: bool,
) -> Result<(), JobError> {
    let Range::Epochs(epochs) = range else { return Ok(()) };
    let Some(first) = epochs.first().filter(|epoch| epoch.before.is_none()) else { return Ok(()) };
    let start = match job.source.bounds.start {
        // The whole state is asked for, whatever became of the history before.
        None | Some(StartBound::Strategy(StartingStrategy::Initial)) if !tells_commits => return Ok(()),
        Some(StartBound::Strategy(StartingStrategy::Earliest)) if job.changes() == Changes::Net && !tells_commits => {
            return Ok(());
        }
        start => start,
    };
    let name = source.ident.to_string();
    // The planner finds the list that is read here.
    match plan::root_with_a_past(&name, &source.storage, &source.metadata, lists, first.through).await? {
        None => Ok(()),
        Some(oldest) => Err(match (start, job.source.metadata_columns.iter().find(|column| column.is_of_commit())) {
            (_, Some(column)) if tells_commits => {
                JobError::NetBeginning { table: name, column: column.to_string(), oldest }
            }
            (Some(start), _) => plan::RangeError::cut_off(start, oldest).into(),
            (None, _) => return Ok(()),
        }),
    }
}

/// What the target holds, if it is of this source and of this mirror.
pub(super) fn held(job: &JobFile, source: &LoadedTable, target: &LoadedTable) -> Result<Option<Checkpoint>, JobError> {
    let Some(checkpoint) = commit::find_checkpoint(&target.metadata, &job.name)? else { return Ok(None) };
    if checkpoint.source_uuid != source.metadata.uuid() {
        return Err(JobError::SourceReplaced {
            table: source.ident.to_string(),
            held: checkpoint.source_uuid.to_string(),
            found: source.metadata.uuid().to_string(),
        });
    }
    if !columns::is_of_job(&checkpoint.mirror_hash, job) {
        return Err(JobError::MirrorChanged {
            table: target.ident.to_string(),
            problem: "the job's source table, mode, key, projection or filter is not what the target was made with, \
                      which would leave stale rows; put it back, or make a new target"
                .into(),
        });
    }
    Ok(Some(checkpoint))
}

fn creation(
    job: &JobFile,
    source: &LoadedTable,
    schema: &Schema,
    added: &AddedColumns,
) -> Result<TableCreation, JobError> {
    let format_version = match job.target.format_version {
        Some(2) => FormatVersion::V2,
        Some(_) => FormatVersion::V3,
        None => source.metadata.format_version().max(FormatVersion::V2),
    };
    let made = schema::target_schema(schema, format_version).and_then(|columns| match added.is_empty() {
        true => Ok(columns),
        false => added.added_to(&columns, source.metadata.last_column_id()),
    });
    let schema = made.map_err(|misfit| JobError::Schema {
        table: source.ident.to_string(),
        target: job.target.table.ident().to_string(),
        column: misfit.column,
        problem: misfit.problem,
    })?;
    let properties = job.target.table_properties.clone().into_iter().collect::<HashMap<_, _>>();
    Ok(TableCreation { schema, format_version, properties })
}

/// Whether this job may write the table that is there.
fn check_target(job: &JobFile, table: &LoadedTable, checkpoint: Option<&Checkpoint>) -> Result<(), JobError> {
    let refuse = |problem: String| Err(JobError::Target { table: table.ident.to_string(), problem });
    let metadata = &table.metadata;
    if metadata.format_version() < FormatVersion::V2 {
        return refuse(
            "it has format version 1, which has no row-level deletes; upgrade it to format-version 2".into(),
        );
    }
    if !metadata.default_partition_spec().is_unpartitioned() {
        return refuse("partitioned targets are not supported yet; make an unpartitioned one".into());
    }
    if job.target.format_version.is_some_and(|asked| asked != metadata.format_version() as u8) {
        return refuse(format!(
            "it has format version {}, and target.format_version asks for another; leave the key out, or upgrade the table",
            metadata.format_version() as u8
        ));
    }
    commit::parquet_settings(metadata)?;
    commit::target_file_bytes(metadata)?;
    if job.target.mode == TargetMode::Append {
        return Ok(());
    }
    let others = commit::other_jobs(metadata, &job.name);
    if !others.is_empty() {
        return refuse(format!(
            "job {} keeps it already, and two mirrors in one table undo each other; give this job a target of its own",
            others.join(", ")
        ));
    }
    let starts_from_nothing =
        checkpoint.is_none() && !matches!(job.source.bounds.start, Some(StartBound::AfterSnapshot(_)));
    match metadata.current_snapshot() {
        Some(snapshot) if starts_from_nothing && has_rows(snapshot.summary()) => refuse(format!(
            "it holds rows (snapshot {}) that no job of this name brought, so it would not become equal to the source; \
             empty it or make a new one",
            snapshot.snapshot_id()
        )),
        _ => Ok(()),
    }
}

/// Whether a snapshot may show rows: unless its summary says that there are none.
fn has_rows(summary: &iceberg::spec::Summary) -> bool {
    summary.additional_properties.get("total-records").is_none_or(|total| total != "0")
}

/// Tries what a run will need of storage: the source's newest state can be read, and the target's folder written. A
/// small object is written beside the target's metadata, and removed.
///
/// # Errors
/// [`JobError::Catalog`] when access is denied or something is not there.
pub async fn check_access(prepared: &Prepared) -> Result<(), JobError> {
    let failed = |side, act: &str| {
        let act = act.to_owned();
        move |source| JobError::catalog(side)(CatalogError::storage(act, source))
    };
    if let Some(snapshot) = prepared.source.metadata.current_snapshot() {
        let read = prepared.source.storage.read(snapshot.manifest_list()).await;
        read.map_err(failed("source", "read the newest manifest list"))?;
    }
    let table = match &prepared.target {
        Target::Existing(table) => table.clone(),
        Target::New(creation) => {
            let ident = prepared.job.target.table.ident();
            let staged = prepared.target_catalog.stage_table(&ident, creation.as_ref().clone()).await;
            staged.map_err(JobError::catalog("target"))?
        }
    };
    let probe = format!("{}/iceferry-probe-{}", commit::metadata_location(&table.metadata), uuid::Uuid::new_v4());
    let written = table.storage.write(&probe, bytes::Bytes::from_static(b"iceferry check")).await;
    written.map_err(failed("target", "try to write"))?;
    table.storage.delete(&probe).await.map_err(failed("target", "try to delete"))
}
