//! How the rows of a job's source and target are read so that they can be compared, column by column.

use std::sync::Arc;

use iceberg::spec::SchemaRef;
use iceferry_common::config::JobFile;
use iceferry_common::filter::TableFilter;
use iceferry_common::model::SnapshotId;

use super::JobError;
use super::prepare::held;
use super::reading::{Reading, candidates, filter, key, reading, those_that_fit};
use super::schema::{self, Misfit};
use crate::catalog::LoadedTable;
use crate::commit::{self, Checkpoint};

/// How two tables are read. Both have the same columns then, in the same order.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// Which rows of the source count; all without one.
    pub(crate) filter: Option<TableFilter>,
    /// The source's field ids in the target's shape.
    pub(crate) read_schema: SchemaRef,
    /// The target's own schema.
    pub(crate) write_schema: SchemaRef,
    /// Every field that the source has or had.
    pub(crate) source_equality_schema: SchemaRef,
    /// Every field that the target has or had.
    pub(crate) target_equality_schema: SchemaRef,
    /// Places of the key's columns; empty without one.
    pub(crate) key: Vec<usize>,
}

/// What the target holds of the source, if it is of this source and of this mirror.
///
/// # Errors
/// [`JobError`], when it is not, or cannot be told.
pub(crate) async fn checkpoint(
    job: &JobFile,
    source: &LoadedTable,
    target: &LoadedTable,
) -> Result<Option<Checkpoint>, JobError> {
    commit::confirm_checkpoint(target, &job.name).await?;
    held(job, source, target)
}

/// Finds how to read a snapshot of the source, and the target, alike. The source's columns are those that its snapshot was
/// written with, or its current ones, whichever fit the target.
///
/// # Errors
/// [`JobError`], when columns of the two do not fit together.
pub(crate) fn meet(
    job: &JobFile,
    source: &LoadedTable,
    target: &LoadedTable,
    snapshot: Option<SnapshotId>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Meeting, JobError> {
    let fit = |misfit: Misfit| JobError::Schema {
        table: source.ident.to_string(),
        target: target.ident.to_string(),
        column: misfit.column,
        problem: misfit.problem,
    };
    let write_schema = Arc::clone(target.metadata.current_schema());
    let of_snapshot = snapshot
        .and_then(|SnapshotId(id)| source.metadata.snapshot_by_id(id))
        .and_then(|snapshot| snapshot.schema(&source.metadata).ok());
    let (mut usable, mut unusable) = (Vec::new(), None);
    for schema in of_snapshot.into_iter().chain([Arc::clone(source.metadata.current_schema())]) {
        match candidates(job, source, vec![schema]) {
            Ok(carried) => usable.extend(carried),
            // A column that the job chooses may be younger than the snapshot.
            Err(error) => unusable = unusable.or(Some(error)),
        }
    }
    if let (true, Some(error)) = (usable.is_empty(), unusable) {
        return Err(error);
    }
    let fitting = those_that_fit(usable, &write_schema).map_err(fit)?;
    let Reading { schemas, read_schema, .. } = reading(job, source, fitting, checkpoint).map_err(fit)?;
    let filter = filter(job, source, &schemas)?;
    let (_, write_key) = key(job, source, &schemas, &write_schema)?;
    let fields = write_schema.as_struct().fields();
    let key = write_key.iter().filter_map(|id| fields.iter().position(|field| field.id == *id)).collect();
    Ok(Meeting {
        filter,
        read_schema,
        source_equality_schema: Arc::new(schema::equality_schema(&source.metadata).map_err(fit)?),
        target_equality_schema: Arc::new(schema::equality_schema(&target.metadata).map_err(fit)?),
        key,
        write_schema,
    })
}
