//! The columns of a changelog target: those of the source, the type of the change, and metadata columns. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{
    FormatVersion, NestedField, NestedFieldRef, PrimitiveType, Schema, SchemaRef, StructType, TableMetadata, Type,
};
use iceferry_common::config::JobFile;
use iceferry_common::model::{
    Changelog, ColumnSource, DuplicateKeys, Identity, MetadataColumn, SourceCommit, TargetMode,
};

use super::schema::{self, Misfit};

/// How changes become rows, whatever the snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangelogShape {
    /// What the reader gives behind the columns of the read schema.
    pub metadata_columns: Vec<MetadataColumn>,
    /// The type of `_partition`, when it is among them; else without fields.
    pub partition_type: StructType,
    /// What tells an update.
    pub identity: Identity,
    /// What happens to keys that are not unique.
    pub duplicate_keys: DuplicateKeys,
    /// All columns of the source, when not all are carried: they decide whether rows are equal.
    pub compared_schema: Option<SchemaRef>,
    /// Where each column of the target comes from.
    pub columns: Vec<ColumnSource>,
    /// Whether each change has its type; otherwise there can be INSERTs alone.
    pub has_change_type: bool,
}

impl ChangelogShape {
    /// The same for the changes of one snapshot.
    pub fn of_commit(&self, commit: SourceCommit) -> Changelog {
        Changelog {
            commit,
            metadata_columns: self.metadata_columns.clone(),
            partition_type: self.partition_type.clone(),
            identity: self.identity.clone(),
            duplicate_keys: self.duplicate_keys,
            compared_schema: self.compared_schema.clone(),
            columns: self.columns.clone(),
        }
    }

    /// Has the reader give the number of the snapshot, by which changes of several are told apart, whether or not it is
    /// written.
    pub(super) fn tell_snapshots_apart(&mut self) {
        if !self.metadata_columns.contains(&MetadataColumn::ChangeOrdinal) {
            self.metadata_columns.push(MetadataColumn::ChangeOrdinal);
        }
    }
}

/// What to do about a `_partition` column of another type.
const OTHER_PARTITION: &str =
    "; the source is partitioned by other fields than when the target was made, so make a new target";

/// Columns that the job adds to those of the source, with their types.
#[derive(Debug, Clone)]
pub(super) struct AddedColumns {
    change_type: Option<String>,
    metadata: Vec<MetadataColumn>,
    partition_type: StructType,
}

impl AddedColumns {
    /// What the job asks for, of this source.
    ///
    /// # Errors
    /// A metadata column that the source does not have.
    pub(super) fn of(job: &JobFile, source: &TableMetadata) -> Result<Self, Misfit> {
        let metadata = job.source.metadata_columns.clone();
        let misfit =
            |column: MetadataColumn, problem: &str| Misfit { column: column.to_string(), problem: problem.into() };
        if source.format_version() < FormatVersion::V3
            && let Some(column) = metadata.iter().find(|column| column.is_lineage())
        {
            let problem =
                "only tables of format version 3 have row lineage; leave it out of source.include_metadata_columns";
            return Err(misfit(*column, problem));
        }
        let partition_type = match metadata.contains(&MetadataColumn::Partition) {
            true => partition_type(source)?,
            false => StructType::new(Vec::new()),
        };
        Ok(Self { change_type: job.target.change_type_column.clone(), metadata, partition_type })
    }

    /// Whether there are none: the target has the source's columns alone.
    pub(super) fn is_empty(&self) -> bool {
        self.change_type.is_none() && self.metadata.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = (&str, Type)> {
        let change_type = self.change_type.as_deref().map(|name| (name, Type::Primitive(PrimitiveType::String)));
        let metadata = self.metadata.iter().map(|column| (column.name(), column.field_type(&self.partition_type)));
        change_type.into_iter().chain(metadata)
    }

    /// The first of these columns whose name a column of the source has.
    pub(super) fn collision(&self, source: &Schema) -> Option<Misfit> {
        let taken = |name: &str| source.as_struct().fields().iter().any(|field| field.name.eq_ignore_ascii_case(name));
        self.names().find(|(name, _)| taken(name)).map(|(name, _)| Misfit {
            column: name.to_owned(),
            problem: "the source has a column of this name; leave the metadata column out, or choose another \
                      target.change_type_column"
                .into(),
        })
    }

    /// The schema of a target that is made: `columns`, then these. A changelog has no identifier fields, since a key
    /// comes once for each change. New ids lie above `last_column_id`.
    ///
    /// # Errors
    /// When the schema cannot be built.
    pub(super) fn added_to(&self, columns: &Schema, last_column_id: i32) -> Result<Schema, Misfit> {
        let mut next = last_column_id.max(columns.highest_field_id());
        let mut id = || {
            next += 1;
            next
        };
        let mut fields = columns.as_struct().fields().to_vec();
        for (name, field_type) in self.names() {
            let required = self.change_type.as_deref() == Some(name);
            let column_id = id();
            let field_type = match field_type {
                Type::Struct(inner) => {
                    Type::Struct(StructType::new(inner.fields().iter().map(|field| renumbered(field, id())).collect()))
                }
                primitive => primitive,
            };
            fields.push(Arc::new(NestedField::new(column_id, name, field_type, required)));
        }
        schema::build(columns.schema_id(), fields)
    }

    /// The target's schema without these columns, which must be there with their types.
    ///
    /// # Errors
    /// The first of these columns that the target lacks or has in another type.
    pub(super) fn taken_from(&self, target: &Schema) -> Result<Schema, Misfit> {
        let mut left: HashMap<&str, Type> = self.names().collect();
        let mut fields = Vec::new();
        for field in target.as_struct().fields() {
            match left.remove(field.name.as_str()) {
                None => fields.push(Arc::clone(field)),
                Some(wanted) if is_like(&wanted, &field.field_type) => {}
                Some(wanted) => {
                    let is_partition = field.name == MetadataColumn::Partition.name();
                    let advice = if is_partition { OTHER_PARTITION } else { "" };
                    let (found, wanted) = (shown(&field.field_type), shown(&wanted));
                    let problem = format!("it is {found} in the target, and {wanted} is to be written{advice}");
                    return Err(Misfit { column: field.name.clone(), problem });
                }
            }
        }
        // In the order of the job file, so that the same one is named each time.
        if let Some((name, wanted)) = self.names().find(|(name, _)| left.contains_key(name)) {
            let wanted = shown(&wanted);
            let problem = format!("the target has no such column; add it as {wanted}, or make a new target");
            return Err(Misfit { column: name.to_owned(), problem });
        }
        schema::build(target.schema_id(), fields)
    }

    /// How changes become rows of `target`, whose other columns are those of `read`, in this order.
    pub(super) fn shape(
        &self,
        target: &Schema,
        read: &SchemaRef,
        identity: Identity,
        duplicate_keys: DuplicateKeys,
    ) -> ChangelogShape {
        let mut metadata_columns = self.metadata.clone();
        let place = |name: &str| metadata_columns.iter().position(|column| column.name() == name);
        let mut read_places = 0..read.as_struct().fields().len();
        let source = |field: &NestedFieldRef| match place(&field.name) {
            _ if self.change_type.as_deref() == Some(field.name.as_str()) => Some(ColumnSource::ChangeType),
            Some(place) => Some(ColumnSource::Metadata(place)),
            None => read_places.next().map(ColumnSource::Read),
        };
        let columns = target.as_struct().fields().iter().filter_map(source).collect();
        // Rows are told by it, whether or not it is written.
        if identity == Identity::RowId && !metadata_columns.contains(&MetadataColumn::RowId) {
            metadata_columns.push(MetadataColumn::RowId);
        }
        ChangelogShape {
            metadata_columns,
            partition_type: self.partition_type.clone(),
            identity,
            duplicate_keys,
            compared_schema: None,
            columns,
            has_change_type: self.change_type.is_some(),
        }
    }
}

/// What tells an update: the columns that the source block names, the table's identifier fields, or the row's own id.
///
/// # Errors
/// A column that is not there or cannot tell rows apart.
pub(super) fn identity(job: &JobFile, source: &TableMetadata, schema: &Schema) -> Result<Identity, Misfit> {
    if job.target.mode != TargetMode::Append || job.target.change_type_column.is_none() {
        return Ok(Identity::None);
    }
    let key = schema::key_fields(schema, &job.source.identifier_columns)?;
    if let Some((at, _)) = key.iter().enumerate().find(|(at, id)| key[..*at].contains(id)) {
        let column = job.source.identifier_columns.get(at).cloned().unwrap_or_default();
        return Err(Misfit { column, problem: "it is named twice".into() });
    }
    Ok(match key.is_empty() {
        false => Identity::Columns(key),
        true if source.format_version() >= FormatVersion::V3 => Identity::RowId,
        true => Identity::None,
    })
}

fn renumbered(field: &NestedField, id: i32) -> NestedFieldRef {
    let mut field = field.clone();
    field.id = id;
    Arc::new(field)
}

/// A type as a person writes it.
fn shown(of: &Type) -> String {
    match of {
        Type::Struct(inner) => {
            let fields = inner.fields().iter().map(|field| format!("{}: {}", field.name, shown(&field.field_type)));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether a column of one type takes values of the other: ids aside, they are equal.
fn is_like(wanted: &Type, found: &Type) -> bool {
    match (wanted, found) {
        (Type::Struct(wanted), Type::Struct(found)) => {
            let (wanted, found) = (wanted.fields(), found.fields());
            wanted.len() == found.len()
                && wanted.iter().zip(found).all(|(w, f)| w.name == f.name && w.field_type == f.field_type)
        }
        (wanted, found) => wanted == found,
    }
}

/// The fields of all specs of the table, each once, in the order of their ids (spec, partition field ids are unique
/// over all specs).
fn partition_type(table: &TableMetadata) -> Result<StructType, Misfit> {
    let mut fields: Vec<NestedFieldRef> = Vec::new();
    let misfit = |problem: String| Misfit { column: MetadataColumn::Partition.to_string(), problem };
    let mut specs: Vec<_> = table.partition_specs_iter().collect();
    // The newest spec's names and types count.
    specs.sort_by_key(|spec| std::cmp::Reverse((spec.spec_id() == table.default_partition_spec_id(), spec.spec_id())));
    for spec in specs {
        for field in spec.fields() {
            if fields.iter().any(|known| known.id == field.field_id) {
                continue;
            }
            let schemas = std::iter::once(table.current_schema()).chain(table.schemas_iter());
            let column = schemas.into_iter().find_map(|schema| schema.field_by_id(field.source_id));
            let Some(column) = column else { continue };
            let result = field.transform.result_type(&column.field_type);
            let result = result.map_err(|error| misfit(format!("its field {:?}: {error}", field.name)))?;
            let name = match fields.iter().any(|known| known.name == field.name) {
                true => format!("{}_{}", field.name, field.field_id),
                false => field.name.clone(),
            };
            fields.push(Arc::new(NestedField::optional(field.field_id, name, result)));
        }
    }
    if fields.is_empty() {
        let problem = "the source is not partitioned; leave it out of source.include_metadata_columns";
        return Err(misfit(problem.to_owned()));
    }
    fields.sort_by_key(|field| field.id);
    Ok(StructType::new(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_column_of_other_fields_is_told_by_their_names() {
        let field = |id, name: &str| Arc::new(NestedField::optional(id, name, Type::Primitive(PrimitiveType::Int)));
        let partition =
            |names: &[&str]| StructType::new((1_000..).zip(names).map(|(id, name)| field(id, name)).collect());
        let added = AddedColumns {
            change_type: None,
            metadata: vec![MetadataColumn::Partition],
            partition_type: partition(&["region", "day"]),
        };
        let target = |of: Type| {
            let column = Arc::new(NestedField::optional(7, MetadataColumn::Partition.name(), of));
            Schema::builder().with_fields([field(1, "id"), column]).build().unwrap()
        };
        assert!(added.taken_from(&target(Type::Struct(partition(&["region", "day"])))).is_ok());
        let misfit = added.taken_from(&target(Type::Struct(partition(&["region"])))).unwrap_err();
        assert_eq!(
            misfit.problem,
            "it is struct<region: int> in the target, and struct<region: int, day: int> is to be written; the source is \
             partitioned by other fields than when the target was made, so make a new target"
        );
        let without = Schema::builder().with_fields([field(1, "id")]).build().unwrap();
        let misfit = added.taken_from(&without).unwrap_err();
        assert!(misfit.problem.contains("add it as struct<region: int, day: int>"), "{}", misfit.problem);
    }
}
