//! What a new file is made of: its schema, and where each of its leaf columns comes from.

use std::sync::Arc;

use arrow::datatypes::DataType;
use iceberg::spec::{Literal, NestedField, NestedFieldRef, Schema, Type};
use iceferry_common::model::{ColumnSource, Constant, DataFile, EpochContext, MetadataColumn, SourceCommit};
use parquet::basic::{LogicalType, Repetition};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type as ParquetType};

use super::constant::{self, ConstantLeaf};
use super::leaf::carried;
use super::{Reason, Whole};
use crate::Change;
use crate::read::file_schema::{ByName, FileField, FileSchema, Shape};
use crate::read::literal::one_row;
use crate::read::metadata::{LAST_UPDATED_FIELD, ROW_ID_FIELD, file_value};
use crate::read::project::constant_value;
use crate::stage::layout::{Layout, parquet_field};

/// How a file becomes a new one, chunk by chunk.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// The schema of the new file. Columns that are null by the table's own rules where a file lacks them are left out of
    /// structs.
    pub(super) schema: SchemaDescPtr,
    /// Where each leaf of the new file comes from.
    pub(super) leaves: Vec<LeafSource>,
    /// For each leaf of the target's layout, what it is.
    pub(super) targets: Vec<TargetLeaf>,
    /// Why the file cannot be copied as it is, as far as its columns tell.
    pub(super) not_copied: Option<Reason>,
    /// Ids of the file's fields that the recipe takes.
    pub(super) taken: Vec<i32>,
}

/// Where a leaf of a new file comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LeafSource {
    /// A leaf of the source file.
    File(usize),
    /// Nowhere: it holds one value.
    Constant(ConstantLeaf),
}

/// A leaf of the target's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TargetLeaf {
    /// Its field id in the source table; `None` for a metadata column.
    pub(super) read_id: Option<i32>,
    /// The leaf of the new file; `None` when it is left out.
    pub(super) leaf: Option<usize>,
}

impl Recipe {
    /// Whether files of both recipes can be joined: the new files have the same columns, down to their encodings.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        self.schema.root_schema() == other.schema.root_schema()
    }

    /// The leaves of the source file that are kept.
    pub(super) fn file_leaves(&self) -> impl Iterator<Item = usize> {
        self.leaves.iter().filter_map(|leaf| match leaf {
            LeafSource::File(leaf) => Some(*leaf),
            LeafSource::Constant(_) => None,
        })
    }

    /// The recipe for a file; else why there is none. By the footer and the context alone.
    pub(super) fn of(
        context: &EpochContext,
        layout: &Layout,
        (file, commit): (&DataFile, Option<SourceCommit>),
        whole: &Whole,
    ) -> Result<Self, Reason> {
        let mut builder = Builder {
            context,
            file,
            commit,
            whole,
            names: &context.source.read_schema,
            leaves: Vec::new(),
            targets: Vec::new(),
            not_copied: None,
            taken: Vec::new(),
        };
        let columns = builder.columns(layout)?;
        let root = ParquetType::group_type_builder("table").with_fields(columns).build();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(root.map_err(|_| Reason::Encoding)?)));
        let Builder { leaves, targets, not_copied, taken, .. } = builder;
        // Not to be wrong about which column is which, whatever shape a file has.
        if schema.num_columns() != leaves.len() || targets.len() != layout.leaves.len() {
            return Err(Reason::Nesting);
        }
        Ok(Self { schema, leaves, targets, not_copied, taken })
    }
}

struct Builder<'a> {
    context: &'a EpochContext,
    file: &'a DataFile,
    commit: Option<SourceCommit>,
    whole: &'a Whole,
    names: &'a Schema,
    leaves: Vec<LeafSource>,
    targets: Vec<TargetLeaf>,
    not_copied: Option<Reason>,
    taken: Vec<i32>,
}

type Columns = Vec<Arc<ParquetType>>;

impl Builder<'_> {
    fn not_copied(&mut self, reason: Reason) {
        self.not_copied.get_or_insert(reason);
    }

    fn schema(&self) -> &FileSchema {
        &self.whole.schema
    }

    fn columns(&mut self, layout: &Layout) -> Result<Columns, Reason> {
        let targets = self.context.target.write_schema.as_struct().fields().to_vec();
        let reads = self.names.as_struct().fields().to_vec();
        let sources = match &self.context.changelog {
            Some(changelog) => {
                self.not_copied(Reason::AddedColumns);
                changelog.columns.clone()
            }
            None => (0..reads.len()).map(ColumnSource::Read).collect(),
        };
        if sources.len() != targets.len() || layout.arrow.fields().len() != targets.len() {
            return Err(Reason::Contradiction);
        }
        let mut columns = Columns::new();
        for ((target, source), arrow) in targets.iter().zip(sources).zip(layout.arrow.fields()) {
            let column = match source {
                ColumnSource::Read(place) => {
                    let read = reads.get(place).ok_or(Reason::Contradiction)?;
                    self.top(target, read, arrow.data_type())?
                }
                ColumnSource::Metadata(place) => self.metadata(target, place, arrow.data_type())?,
                ColumnSource::ChangeType => {
                    let value = Literal::string(Change::Insert.name());
                    self.constant(target, None, &target.field_type, Some(&value), arrow.data_type())?
                }
            };
            columns.push(Arc::new(column));
        }
        Ok(columns)
    }

    /// A top-level column of the read schema.
    fn top(&mut self, target: &NestedField, read: &NestedFieldRef, arrow: &DataType) -> Result<ParquetType, Reason> {
        let whole = self.whole;
        let roots = whole.footer().file_metadata().schema_descr().root_schema().get_fields();
        let fields = &whole.schema.fields;
        if roots.len() != fields.len() {
            return Err(Reason::Nesting);
        }
        let found = fields.iter().zip(roots).find(|(field, _)| match self.schema().by_name {
            ByName::Everywhere => field.name == read.name,
            ByName::Never | ByName::Nested => field.id == Some(read.id),
        });
        if let Some((field, column)) = found {
            return self.node(target, read, field, column, &target.name, false);
        }
        let constant = self.file.constants.iter().find(|constant| constant.field_id == read.id);
        let value = match (constant, read.field_type.as_ref()) {
            (Some(Constant { value: Some(bytes), .. }), Type::Primitive(primitive)) => {
                Some(constant_value(bytes, primitive).map_err(|_| Reason::Constant)?)
            }
            (Some(Constant { value: Some(_), .. }), _) => return Err(Reason::Constant),
            (Some(Constant { value: None, .. }), _) => None,
            (None, _) => read.initial_default.clone(),
        };
        // Readers of the target fill in its own default, or what its partition says.
        if constant.is_some() || value.is_some() || target.initial_default.is_some() {
            self.not_copied(Reason::AddedColumns);
        }
        if value.is_none() && (read.required || target.required) {
            return Err(Reason::Required);
        }
        self.constant(target, Some(read), &read.field_type, value.as_ref(), arrow)
    }

    fn metadata(&mut self, target: &NestedField, place: usize, arrow: &DataType) -> Result<ParquetType, Reason> {
        let changelog = self.context.changelog.as_ref().ok_or(Reason::Contradiction)?;
        let column = *changelog.metadata_columns.get(place).ok_or(Reason::Contradiction)?;
        let is_held = |id: i32| self.schema().fields.iter().any(|field| field.id == Some(id));
        let value = match column {
            MetadataColumn::Pos => return Err(Reason::RowMetadata),
            // Rows of a file outside of the lineage have no ids, save those that the file itself holds.
            MetadataColumn::RowId if self.file.first_row_id.is_some() || is_held(ROW_ID_FIELD) => {
                return Err(Reason::RowMetadata);
            }
            MetadataColumn::LastUpdatedSequenceNumber if is_held(LAST_UPDATED_FIELD) => {
                return Err(Reason::RowMetadata);
            }
            MetadataColumn::RowId => None,
            MetadataColumn::LastUpdatedSequenceNumber => {
                self.file.first_row_id.map(|_| Literal::long(self.file.sequence_number))
            }
            _ => file_value(changelog, column, self.commit.unwrap_or(changelog.commit), self.file)
                .map_err(|_| Reason::Constant)?,
        };
        let field_type = column.field_type(&changelog.partition_type);
        self.constant(target, None, &field_type, value.as_ref(), arrow)
    }

    /// A column that holds one value of `from`, which has the shape of the target's column.
    fn constant(
        &mut self,
        target: &NestedField,
        read: Option<&NestedField>,
        from: &Type,
        value: Option<&Literal>,
        arrow: &DataType,
    ) -> Result<ParquetType, Reason> {
        if !same_shape(from, &target.field_type) {
            return Err(Reason::Constant);
        }
        let column = parquet_field(target).map_err(|_| Reason::Constant)?;
        let array = one_row(value, from, arrow).map_err(|_| Reason::Constant)?;
        let constants = constant::leaves(&array, &column).ok_or(Reason::Constant)?;
        let first = self.leaves.len();
        self.leaves.extend(constants.into_iter().map(LeafSource::Constant));
        let mut ids = Vec::new();
        match read {
            Some(read) => leaf_ids(read, &mut ids),
            None => leaf_ids(target, &mut ids),
        }
        let read_id = |id| read.map(|_| id);
        let leaves = ids.into_iter().zip(first..);
        self.targets.extend(leaves.map(|(id, leaf)| TargetLeaf { read_id: read_id(id), leaf: Some(leaf) }));
        Ok(column)
    }

    /// A field that the file has, as a field of the target. `name` is the one that it gets.
    fn node(
        &mut self,
        target: &NestedField,
        read: &NestedField,
        field: &FileField,
        column: &ParquetType,
        name: &str,
        repeated: bool,
    ) -> Result<ParquetType, Reason> {
        if field.id != Some(target.id) || read.id != target.id {
            self.not_copied(Reason::FieldIds);
        }
        self.taken.extend(field.id);
        let info = column.get_basic_info();
        if info.repetition() == Repetition::REPEATED {
            return Err(Reason::Nesting);
        }
        if (target.required || read.required) && column.is_optional() && (repeated || self.may_be_null(field)) {
            return Err(Reason::Required);
        }
        let group = |fields: Columns, logical: Option<LogicalType>| {
            ParquetType::group_type_builder(name)
                .with_repetition(info.repetition())
                .with_id(Some(target.id))
                .with_logical_type(logical)
                .with_fields(fields)
                .build()
                .map_err(|_| Reason::Nesting)
        };
        match (target.field_type.as_ref(), read.field_type.as_ref(), &field.shape) {
            (Type::Primitive(primitive), Type::Primitive(from), Shape::Leaf { int96: false }) if primitive == from => {
                let new = carried(column, primitive, name, target.id).ok_or(Reason::Encoding)?;
                self.targets.push(TargetLeaf { read_id: Some(read.id), leaf: Some(self.leaves.len()) });
                self.leaves.push(LeafSource::File(field.leaves.start));
                Ok(new)
            }
            (Type::Struct(of_target), Type::Struct(of_read), Shape::Struct(fields)) if column.is_group() => {
                let (targets, reads) = (of_target.fields(), of_read.fields());
                if targets.len() != reads.len() || fields.len() != column.get_fields().len() {
                    return Err(Reason::Nesting);
                }
                let mut children = Columns::new();
                for (target, read) in targets.iter().zip(reads) {
                    children.extend(self.child(target, read, fields, column, repeated)?.map(Arc::new));
                }
                // Which rows have the struct is only to be seen from a column inside of it.
                if children.is_empty() {
                    return Err(Reason::NestedDefault);
                }
                group(children, None)
            }
            (Type::List(of_target), Type::List(of_read), Shape::List(element)) => {
                let [element_column] = entries(column)? else { return Err(Reason::Nesting) };
                let (target, read) = (&of_target.element_field, &of_read.element_field);
                let element = self.node(target, read, element, element_column, "element", true)?;
                group(vec![repeated_group("list", vec![element])?], Some(LogicalType::List))
            }
            (Type::Map(of_target), Type::Map(of_read), Shape::Map(key, value)) => {
                let [key_column, value_column] = entries(column)? else { return Err(Reason::Nesting) };
                let (target, read) = (&of_target.key_field, &of_read.key_field);
                let key = self.node(target, read, key, key_column, "key", true)?;
                let (target, read) = (&of_target.value_field, &of_read.value_field);
                let value = self.node(target, read, value, value_column, "value", true)?;
                group(vec![repeated_group("key_value", vec![key, value])?], Some(LogicalType::Map))
            }
            _ => Err(Reason::Encoding),
        }
    }

    /// A field inside of a struct; `None` when it is left out since it is null wherever it is missing.
    fn child(
        &mut self,
        target: &NestedField,
        read: &NestedField,
        fields: &[FileField],
        column: &ParquetType,
        repeated: bool,
    ) -> Result<Option<ParquetType>, Reason> {
        let by_name = self.schema().by_name != ByName::Never;
        let found = fields.iter().zip(column.get_fields()).find(|(field, _)| match by_name {
            true => field.name == read.name,
            false => field.id == Some(read.id),
        });
        if let Some((field, column)) = found {
            return self.node(target, read, field, column, &target.name, repeated).map(Some);
        }
        // A missing column may have had another name when the file was written.
        if by_name {
            return Err(Reason::Names);
        }
        if read.required || target.required {
            return Err(Reason::Required);
        }
        let is_constant = self.file.constants.iter().any(|constant| constant.field_id == read.id);
        if is_constant || read.initial_default.is_some() || target.initial_default.is_some() {
            return Err(Reason::NestedDefault);
        }
        if !same_shape(&read.field_type, &target.field_type) {
            return Err(Reason::Encoding);
        }
        if read.id != target.id {
            self.not_copied(Reason::FieldIds);
        }
        let mut ids = Vec::new();
        leaf_ids(read, &mut ids);
        self.targets.extend(ids.into_iter().map(|id| TargetLeaf { read_id: Some(id), leaf: None }));
        Ok(None)
    }

    /// Whether an optional field outside of lists and maps has a null, as far as the statistics of a column in it tell.
    fn may_be_null(&self, field: &FileField) -> bool {
        let footer = self.whole.footer();
        footer.row_groups().iter().filter(|group| group.num_rows() > 0).any(|group| {
            let chunk = group.column(field.leaves.start);
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            chunk.column_descr().max_rep_level() > 0 || nulls != Some(0)
        })
    }
}

/// The fields of the repeated group in a list or map of three levels.
fn entries(column: &ParquetType) -> Result<&[Arc<ParquetType>], Reason> {
    if !column.is_group() {
        return Err(Reason::Nesting);
    }
    match column.get_fields() {
        [entries] if entries.is_group() && entries.get_basic_info().repetition() == Repetition::REPEATED => {
            Ok(entries.get_fields())
        }
        _ => Err(Reason::Nesting),
    }
}

fn repeated_group(name: &str, fields: Vec<ParquetType>) -> Result<Arc<ParquetType>, Reason> {
    ParquetType::group_type_builder(name)
        .with_repetition(Repetition::REPEATED)
        .with_fields(fields.into_iter().map(Arc::new).collect())
        .build()
        .map(Arc::new)
        .map_err(|_| Reason::Nesting)
}

/// Whether two types differ in ids, names and what is required alone.
fn same_shape(one: &Type, other: &Type) -> bool {
    let same = |one: &NestedFieldRef, other: &NestedFieldRef| same_shape(&one.field_type, &other.field_type);
    match (one, other) {
        (Type::Primitive(one), Type::Primitive(other)) => one == other,
        (Type::Struct(one), Type::Struct(other)) => {
            let (one, other) = (one.fields(), other.fields());
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Type::List(one), Type::List(other)) => same(&one.element_field, &other.element_field),
        (Type::Map(one), Type::Map(other)) => {
            same(&one.key_field, &other.key_field) && same(&one.value_field, &other.value_field)
        }
        _ => false,
    }
}

/// Field ids of the leaves below a field, in their order.
fn leaf_ids(field: &NestedField, ids: &mut Vec<i32>) {
    match field.field_type.as_ref() {
        Type::Primitive(_) => ids.push(field.id),
        Type::Struct(of) => of.fields().iter().for_each(|field| leaf_ids(field, ids)),
        Type::List(of) => leaf_ids(&of.element_field, ids),
        Type::Map(of) => {
            leaf_ids(&of.key_field, ids);
            leaf_ids(&of.value_field, ids);
        }
    }
}
