//! The demo's source table, written by iceferry's own stage and commit steps.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use iceberg::TableIdent;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{FormatVersion, NestedField, PrimitiveType, Schema, Type};
use iceferry_common::fault::Class;
use iceferry_common::model::{Attempt, EpochContext, Fence, JobName, SnapshotId, StagedFile, TargetMode, TaskId};
use iceferry_coordinator::catalog::{self, Catalog, LoadedTable, TableCreation};
use iceferry_coordinator::commit::{self, CommitPolicy, EpochCommit};
use iceferry_worker::stage::{StageOptions, Stager};
use iceferry_worker::{Change, ChangeBatch, Columns};
use uuid::Uuid;

use super::context::context;
use super::orders::{Commit, Order};
use crate::failure::Failure;

/// The writer's name in the source's snapshots.
const WRITER: &str = "demo-shop";
/// Far more than the demo's rows take.
const MEMORY_BYTES: u64 = 16 * 1024 * 1024;

/// The source table and its catalog.
pub(super) struct Source {
    catalog: Arc<dyn Catalog>,
    pub(super) table: LoadedTable,
}

fn bug(what: &str) -> impl Fn(&dyn std::fmt::Display) -> Failure + '_ {
    move |error| Failure::new(Class::Bug, format!("{what}: {error}"))
}

impl Source {
    /// The source in a demo's folder, made when it is not there.
    pub(super) async fn open(folder: &Path) -> Result<Self, Failure> {
        let warehouse = folder.join("source");
        std::fs::create_dir_all(&warehouse).map_err(|error| {
            Failure::new(Class::Denied, format!("make {}: {error}; give a folder with --dir", warehouse.display()))
        })?;
        let properties = HashMap::from([
            ("type".to_owned(), "hadoop".to_owned()),
            ("warehouse".to_owned(), warehouse.display().to_string()),
        ]);
        let catalog = catalog::open(&properties).await?;
        let ident = TableIdent::from_strs(["shop", "orders"]).map_err(|error| bug("name the source")(&error))?;
        catalog.ensure_namespace(ident.namespace()).await?;
        let creation =
            TableCreation { schema: schema()?, format_version: FormatVersion::V2, properties: HashMap::new() };
        let table = catalog.ensure_table(&ident, creation).await?;
        Ok(Self { catalog, table })
    }

    /// Commits each in a snapshot of its own.
    pub(super) async fn write(mut self, commits: &[Commit]) -> Result<(), Failure> {
        let job: JobName = WRITER.parse().map_err(|error| bug("name the writer")(&error))?;
        for change in commits {
            let held = commit::find_checkpoint(&self.table.metadata, &job)?;
            let number = held.as_ref().map_or(1, |held| held.source_snapshot_id.0 + 1);
            let context = context(&self.table, job.clone(), vec![1], TargetMode::MergeOnRead)?;
            let request = EpochCommit {
                last_with_rows: None,
                job: job.clone(),
                run: context.run.clone(),
                epoch: context.epoch,
                fence: Fence(0),
                source_uuid: Uuid::nil(),
                after: held.map(|held| held.source_snapshot_id),
                source_snapshot_id: SnapshotId(number),
                source_sequence_number: number,
                mirror_hash: WRITER.to_owned(),
                next_change_ordinal: 0,
                data_location: context.target.data_location.clone(),
                staged: stage(context, change.clone(), &self.table).await?.into(),
            };
            let committed =
                commit::commit_epoch(self.catalog.as_ref(), self.table, &request, &CommitPolicy::default()).await?;
            self.table = committed.table;
        }
        Ok(())
    }
}

fn schema() -> Result<Schema, Failure> {
    let decimal = PrimitiveType::Decimal { precision: 10, scale: 2 };
    let built = Schema::builder()
        .with_fields([
            NestedField::required(1, "order_id", Type::Primitive(PrimitiveType::Long)).into(),
            NestedField::required(2, "customer", Type::Primitive(PrimitiveType::String)).into(),
            NestedField::optional(3, "amount", Type::Primitive(decimal)).into(),
            NestedField::optional(4, "status", Type::Primitive(PrimitiveType::String)).into(),
        ])
        .with_identifier_field_ids([1])
        .build();
    built.map_err(|error| bug("make the source's schema")(&error))
}

async fn stage(context: EpochContext, change: Commit, table: &LoadedTable) -> Result<Vec<StagedFile>, Failure> {
    let storage = table.storage.clone();
    let runtime = tokio::runtime::Handle::current();
    let staging = tokio::task::spawn_blocking(move || {
        let context = Arc::new(context);
        let batches = batches(&context, &change)?;
        let options = StageOptions {
            row_group_memory_bytes: MEMORY_BYTES,
            unique_keys: true,
            key_memory_bytes: MEMORY_BYTES,
            first_file: 0,
        };
        let mut stager = Stager::new(context, TaskId(0), Attempt(0), storage, runtime, options)?;
        for batch in &batches {
            stager.write(batch)?;
        }
        Ok(stager.finish()?)
    });
    staging.await.map_err(|error| bug("write the source")(&error))?
}

fn batches(context: &EpochContext, change: &Commit) -> Result<Vec<ChangeBatch>, Failure> {
    let schema = schema_to_arrow_schema(&context.target.write_schema);
    let schema = Arc::new(schema.map_err(|error| bug("make the source's columns")(&error))?);
    let mut batches = Vec::new();
    if !change.deleted.is_empty() {
        let key = Arc::new(schema.project(&[0]).map_err(|error| bug("make the source's key")(&error))?);
        let ids: ArrayRef = Arc::new(Int64Array::from(change.deleted.clone()));
        let rows = RecordBatch::try_new(key, vec![ids]).map_err(|error| bug("make the source's deletes")(&error))?;
        batches.push(ChangeBatch { change: Change::Delete, columns: Columns::Key, rows });
    }
    if !change.inserted.is_empty() {
        let rows = RecordBatch::try_new(schema, columns(&change.inserted)?);
        let rows = rows.map_err(|error| bug("make the source's rows")(&error))?;
        batches.push(ChangeBatch { change: Change::Insert, columns: Columns::All, rows });
    }
    Ok(batches)
}

fn columns(orders: &[Order]) -> Result<Vec<ArrayRef>, Failure> {
    let amounts: Decimal128Array = orders.iter().map(|order| Some(i128::from(order.amount_cents))).collect();
    let amounts = amounts.with_precision_and_scale(10, 2).map_err(|error| bug("make the source's amounts")(&error))?;
    Ok(vec![
        Arc::new(orders.iter().map(|order| order.order_id).collect::<Int64Array>()),
        Arc::new(orders.iter().map(|order| Some(order.customer.as_str())).collect::<StringArray>()),
        Arc::new(amounts),
        Arc::new(orders.iter().map(|order| Some(order.status.as_str())).collect::<StringArray>()),
    ])
}
