//! How the source is read: in which of its schemas, which of its columns and rows, and by which key. Pure.

use std::sync::Arc;

use iceberg::spec::{Schema, SchemaRef, TableMetadata};
use iceferry_common::config::{ColumnChoice, FollowedRef, JobFile};
use iceferry_common::filter::TableFilter;
use iceferry_common::model::{SnapshotId, TargetMode};

use super::schema::{self, Misfit};
use super::{JobError, columns, projection};
use crate::catalog::LoadedTable;
use crate::commit::Checkpoint;
use crate::plan::{Nothing, Range};

/// The schemas that the range's last state may be read with, the one to prefer first: that of its snapshot when an end was
/// asked for or a tag is followed, as a read of that snapshot has it; the table's current one otherwise. Where there is
/// nothing to do, the one that the target was brought to before is as good.
pub(super) fn schemas_of_range(metadata: &TableMetadata, job: &JobFile, range: &Range) -> Vec<SchemaRef> {
    let of_snapshot = |SnapshotId(id): SnapshotId| metadata.snapshot_by_id(id)?.schema(metadata).ok();
    let current = Arc::clone(metadata.current_schema());
    let stays = job.source.bounds.end.is_some() || matches!(job.source.followed, FollowedRef::Tag(_));
    match range {
        Range::Epochs(epochs) if stays => {
            let through = epochs.last().and_then(|epoch| of_snapshot(epoch.through));
            vec![through.unwrap_or(current)]
        }
        Range::Epochs(_) => vec![current],
        Range::Nothing(Nothing::UpToDate { checkpoint } | Nothing::EndBeforeCheckpoint { checkpoint, .. }) => {
            std::iter::once(current).chain(of_snapshot(*checkpoint)).collect()
        }
        Range::Nothing(_) => vec![current],
    }
}

/// A schema of the source.
pub(super) struct Candidate {
    /// All of its columns.
    pub(super) all: SchemaRef,
    /// Those that the job carries.
    pub(super) carried: SchemaRef,
}

impl Candidate {
    /// That all of these key columns are carried.
    pub(super) fn carries(&self, ids: &[i32]) -> Result<(), Misfit> {
        match ids.iter().find(|id| self.carried.field_by_id(**id).is_none()) {
            None => Ok(()),
            Some(id) => Err(Misfit {
                column: self.all.name_by_field_id(*id).unwrap_or("?").to_owned(),
                problem: "source.keep or source.drop leaves it out, and a key column must be carried".into(),
            }),
        }
    }
}

/// What the job carries of each of these schemas.
pub(super) fn candidates(
    job: &JobFile,
    source: &LoadedTable,
    schemas: Vec<SchemaRef>,
) -> Result<Vec<Candidate>, JobError> {
    let choice = &job.source.projection;
    let carried = schemas.into_iter().map(|all| {
        let carried =
            projection::projected(&all, choice).map_err(|Misfit { column, problem }| JobError::Projection {
                key: if matches!(choice, ColumnChoice::Keep(_)) { "keep" } else { "drop" },
                table: source.ident.to_string(),
                column,
                problem,
            })?;
        Ok(Candidate { all, carried })
    });
    carried.collect()
}

/// The schemas that fit the target, each with the schema to read it in; what the first lacks when none does.
pub(super) fn those_that_fit(candidates: Vec<Candidate>, write: &Schema) -> Result<Vec<(Candidate, Schema)>, Misfit> {
    let mut fitting = Vec::with_capacity(candidates.len());
    let mut first = None;
    for candidate in candidates {
        match schema::read_schema(&candidate.carried, write) {
            Ok(read) => fitting.push((candidate, read)),
            Err(misfit) => first = first.or(Some(misfit)),
        }
    }
    match first {
        Some(misfit) if fitting.is_empty() => Err(misfit),
        _ => Ok(fitting),
    }
}

/// How the source is read.
pub(super) struct Reading {
    pub(super) schemas: Candidate,
    pub(super) read_schema: SchemaRef,
    pub(super) mirror_hash: String,
}

/// The first of the schemas under which the target's rows still are what the source shows; what is wrong with the first
/// of all when none is.
pub(super) fn reading(
    job: &JobFile,
    source: &LoadedTable,
    fitting: Vec<(Candidate, Schema)>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Reading, Misfit> {
    let mut first = None;
    for (schemas, read_schema) in fitting {
        let held = checkpoint.map(|checkpoint| checkpoint.mirror_hash.as_str());
        // One that does not bind is an error of its own.
        let filter = filter(job, source, &schemas).ok().flatten();
        let stale = held.and_then(|held| {
            let stale_filter = filter.as_ref().filter(|filter| columns::is_filter_stale(held, filter));
            columns::stale(held, &source.metadata, &read_schema).or_else(|| stale_filter.map(stale_filter_column))
        });
        match stale {
            Some(misfit) => first = first.or(Some(misfit)),
            None => {
                let mirror_hash = columns::mirror_hash(job, &read_schema, filter.as_ref());
                return Ok(Reading { schemas, read_schema: Arc::new(read_schema), mirror_hash });
            }
        }
    }
    Err(first.unwrap_or_else(|| Misfit { column: "*".into(), problem: "the source has no schema".into() }))
}

fn stale_filter_column(filter: &TableFilter) -> Misfit {
    let names: Vec<&str> = filter.schema().as_struct().fields().iter().map(|field| field.name.as_str()).collect();
    Misfit {
        column: names.join(", "),
        problem: "source.filter asks for it, and it is another column, or of another type, than when the target was \
                  brought up to date, so that rows of the target may be stale; make a new target"
            .into(),
    }
}

/// The key in the source's field ids and in the target's.
pub(super) fn key(
    job: &JobFile,
    source: &LoadedTable,
    schemas: &Candidate,
    write_schema: &Schema,
) -> Result<(Vec<i32>, Vec<i32>), JobError> {
    if job.target.mode == TargetMode::Append {
        return Ok((Vec::new(), Vec::new()));
    }
    let table = || source.ident.to_string();
    let read_key = schema::key_fields(&schemas.all, &job.target.equality_columns);
    let read_key = read_key.and_then(|key| schemas.carries(&key).map(|()| key));
    let read_key = read_key.map_err(|Misfit { column, problem }| JobError::Key { table: table(), column, problem })?;
    let mut write_key = Vec::with_capacity(read_key.len());
    for id in &read_key {
        let name = schemas.all.name_by_field_id(*id).unwrap_or_default();
        let field = write_schema.as_struct().fields().iter().find(|field| field.name == name);
        let Some(field) = field else {
            let problem = "the target has no such column".to_owned();
            return Err(JobError::Key { table: table(), column: name.to_owned(), problem });
        };
        write_key.push(field.id);
    }
    if let Some((at, id)) = read_key.iter().enumerate().find(|(at, id)| read_key[..*at].contains(id)) {
        let column = job.target.equality_columns.get(at).cloned().unwrap_or_else(|| id.to_string());
        return Err(JobError::Key { table: table(), column, problem: "it is named twice".into() });
    }
    Ok((read_key, write_key))
}

/// The filter, bound to the source's columns.
pub(super) fn filter(
    job: &JobFile,
    source: &LoadedTable,
    schemas: &Candidate,
) -> Result<Option<TableFilter>, JobError> {
    let bound = job.source.filter.clone().map(|filter| TableFilter::new(filter, &schemas.all)).transpose();
    bound.map_err(|error| JobError::Filter { table: source.ident.to_string(), source: Box::new(error) })
}
