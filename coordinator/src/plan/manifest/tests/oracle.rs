//! The slow, plain way: what the iceberg crate makes of a manifest, put into entries field by field.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, Datum, Manifest, ManifestEntry, ManifestFile, ManifestStatus,
    PrimitiveLiteral, PrimitiveType, TableMetadata,
};
use iceferry_common::filter::{BoundFilter, ColumnStatistics, Filter, Statistics};
use iceferry_common::model::{ColumnMetrics, FileFormat};

use super::super::super::bounds::{self, Bound, ColumnBounds, PathRange};
use super::super::super::entry::{DataEntry, DeleteEntry, Scope, Wanted};
use super::super::super::partition::{self, Columns, Partition, Promotions};

pub(super) struct Oracle<'a> {
    table: &'a TableMetadata,
    filter: Option<BoundFilter>,
    columns: Columns,
    promotions: Promotions,
    top_level: HashSet<i32>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(table: &'a TableMetadata, filter: Option<&str>) -> Self {
        Self {
            table,
            filter: filter.map(|text| Filter::parse(text).unwrap().bind(table.current_schema()).unwrap()),
            columns: Columns::of(table, table.current_schema()),
            promotions: Promotions::of(table),
            top_level: bounds::top_level(table.schemas_iter()),
        }
    }

    pub(super) fn data(&self, of: &ManifestFile, bytes: &[u8], wanted: &Wanted) -> Vec<DataEntry> {
        let manifest = Manifest::parse_avro(bytes).unwrap();
        let spec = manifest.metadata().partition_spec();
        let mut next_row_id = of.first_row_id.map(|first| first as i64);
        let mut entries = Vec::new();
        for entry in manifest.entries().iter().filter(|entry| entry.is_alive()) {
            let file = entry.data_file();
            let mut first_row_id = None;
            if let Some(next) = &mut next_row_id {
                first_row_id = file.first_row_id().or(Some(*next));
                if file.first_row_id().is_none() {
                    *next += file.record_count() as i64;
                }
            }
            entries.push(DataEntry {
                path: file.file_path().to_owned(),
                sequence: sequence(of, entry),
                partition: self.partition(of, file),
                format: format(file.file_format()),
                is_encrypted: file.key_metadata().is_some_and(|key| !key.is_empty()),
                size_bytes: file.file_size_in_bytes(),
                record_count: file.record_count(),
                split_offsets: file.split_offsets().unwrap_or_default().into(),
                bounds: of_file(file, &wanted.bounds_of),
                constants: partition::constants(spec, file.partition(), &self.columns),
                partition_values: Ok(Vec::new()),
                first_row_id,
                sort_order_id: file.sort_order_id(),
                metrics: wanted.with_metrics.then(|| metrics(file)),
                may_match: self.filter.as_ref().is_none_or(|filter| {
                    filter.project(spec).may_match_partition(file.partition())
                        && filter.may_match(&OfFile { file, top_level: &self.top_level })
                }),
            });
        }
        entries
    }

    pub(super) fn deletes(&self, of: &ManifestFile, bytes: &[u8]) -> Vec<DeleteEntry> {
        let manifest = Manifest::parse_avro(bytes).unwrap();
        let spec = self.table.partition_spec_by_id(of.partition_spec_id).unwrap();
        let mut entries = Vec::new();
        for entry in manifest.entries().iter().filter(|entry| entry.is_alive()) {
            let file = entry.data_file();
            let mut problem = None;
            let scope = match (file.content_type(), file.file_format()) {
                (DataContentType::EqualityDeletes, _) => {
                    let field_ids = file.equality_ids().unwrap();
                    problem = field_ids.iter().find_map(|id| self.columns.key_problem(*id));
                    let compared: Vec<i32> =
                        field_ids.iter().copied().filter(|id| self.top_level.contains(id)).collect();
                    let bounds = of_file(file, &compared);
                    Scope::Equality { field_ids, is_global: spec.is_unpartitioned(), bounds }
                }
                (_, DataFileFormat::Puffin) => Scope::Vector {
                    referenced: file.referenced_data_file().unwrap(),
                    offset: file.content_offset().unwrap() as u64,
                    length: file.content_size_in_bytes().unwrap() as u64,
                },
                _ => {
                    let path = |bounds: &HashMap<i32, Datum>| match bounds.get(&2_147_483_546)?.literal() {
                        PrimitiveLiteral::String(path) => Some(path.clone()),
                        _ => None,
                    };
                    let paths = PathRange::new(path(file.lower_bounds()), path(file.upper_bounds()));
                    Scope::Position { referenced: file.referenced_data_file(), paths }
                }
            };
            entries.push(DeleteEntry {
                location: file.file_path().to_owned(),
                sequence: sequence(of, entry),
                partition: self.partition(of, file),
                format: format(file.file_format()),
                is_encrypted: file.key_metadata().is_some_and(|key| !key.is_empty()),
                size_bytes: file.file_size_in_bytes(),
                record_count: file.record_count(),
                scope,
                problem,
            });
        }
        entries
    }

    fn partition(&self, of: &ManifestFile, file: &DataFile) -> Arc<Partition> {
        let promoted = self.promotions.of_spec(of.partition_spec_id);
        Arc::new(Partition::new(of.partition_spec_id, file.partition(), promoted))
    }
}

fn sequence(of: &ManifestFile, entry: &ManifestEntry) -> i64 {
    entry.sequence_number().unwrap_or_else(|| {
        assert!(entry.status() == ManifestStatus::Added || of.sequence_number == 0);
        of.sequence_number
    })
}

fn format(format: DataFileFormat) -> FileFormat {
    match format {
        DataFileFormat::Parquet => FileFormat::Parquet,
        DataFileFormat::Avro => FileFormat::Avro,
        DataFileFormat::Orc => FileFormat::Orc,
        DataFileFormat::Puffin => FileFormat::Puffin,
    }
}

fn of_file(file: &DataFile, columns: &[i32]) -> Box<[ColumnBounds]> {
    let of_column = |field_id: &i32| {
        let nulls = file.null_value_counts().get(field_id).copied();
        let values = file.value_counts().get(field_id).copied();
        let bounds = ColumnBounds {
            field_id: *field_id,
            lower: file.lower_bounds().get(field_id).and_then(bound),
            upper: file.upper_bounds().get(field_id).and_then(bound),
            may_have_null: nulls != Some(0),
            may_have_value: nulls.is_none() || nulls != values,
        };
        let says_nothing =
            bounds.lower.is_none() && bounds.upper.is_none() && bounds.may_have_null && bounds.may_have_value;
        (!says_nothing).then_some(bounds)
    };
    columns.iter().filter_map(of_column).collect()
}

fn bound(datum: &Datum) -> Option<Bound> {
    use PrimitiveLiteral as L;
    use PrimitiveType as T;
    match (datum.data_type(), datum.literal()) {
        (T::Int | T::Long, L::Int(value)) => Some(Bound::Integer(i64::from(*value))),
        (T::Int | T::Long, L::Long(value)) => Some(Bound::Integer(*value)),
        (T::Date, L::Int(value)) => Some(Bound::Moment(T::Date, i64::from(*value))),
        (T::Float | T::Double | T::Boolean | T::Uuid, _) => None,
        (moment, L::Long(value)) => Some(Bound::Moment(moment.clone(), *value)),
        (T::Decimal { scale, .. }, L::Int128(value)) => Some(Bound::Decimal(*value, *scale)),
        (T::String, L::String(value)) => Some(Bound::Bytes(value.as_bytes().to_vec())),
        (T::Binary | T::Fixed(_), L::Binary(value)) => Some(Bound::Bytes(value.clone())),
        (kind, literal) => panic!("{literal:?} is no {kind}"),
    }
}

fn metrics(file: &DataFile) -> Box<[ColumnMetrics]> {
    let mut columns: BTreeMap<i32, ColumnMetrics> = BTreeMap::new();
    let mut column = |id: &i32, set: &dyn Fn(&mut ColumnMetrics)| {
        set(columns.entry(*id).or_insert_with(|| ColumnMetrics { field_id: *id, ..ColumnMetrics::default() }));
    };
    file.value_counts().iter().for_each(|(id, count)| column(id, &|of| of.value_count = Some(*count)));
    file.null_value_counts().iter().for_each(|(id, count)| column(id, &|of| of.null_count = Some(*count)));
    file.nan_value_counts().iter().for_each(|(id, count)| column(id, &|of| of.nan_count = Some(*count)));
    let bytes = |datum: &Datum| Some(datum.to_bytes().unwrap().into_vec());
    file.lower_bounds().iter().for_each(|(id, datum)| column(id, &|of| of.lower_bound = bytes(datum)));
    file.upper_bounds().iter().for_each(|(id, datum)| column(id, &|of| of.upper_bound = bytes(datum)));
    columns.into_values().collect()
}

struct OfFile<'a> {
    file: &'a DataFile,
    top_level: &'a HashSet<i32>,
}

impl Statistics for OfFile<'_> {
    fn of(&self, field_id: i32) -> ColumnStatistics {
        let count = |counts: &HashMap<i32, u64>| counts.get(&field_id).copied();
        let value_count = count(self.file.value_counts());
        ColumnStatistics {
            lower: self.file.lower_bounds().get(&field_id).cloned(),
            upper: self.file.upper_bounds().get(&field_id).cloned(),
            is_exact: false,
            null_count: count(self.file.null_value_counts())
                .filter(|nulls| self.top_level.contains(&field_id) || Some(*nulls) == value_count),
            nan_count: count(self.file.nan_value_counts()),
            value_count,
        }
    }
}
