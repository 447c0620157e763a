//! Files and manifests that hold no row that the filter keeps, told by partitions, bounds and counts. Every doubt means that
//! they may hold one. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataFile, ManifestFile, PartitionSpec, TableMetadata};
use iceferry_common::filter::{BoundFilter, ColumnStatistics, PartitionFilter, Statistics};

use super::bounds;

/// The filter as planning uses it; without one everything may match.
#[derive(Debug, Clone, Default)]
pub(super) struct FileFilter(Option<Arc<Known>>);

#[derive(Debug)]
struct Known {
    filter: BoundFilter,
    /// By the ids of the specs, as the table has them.
    partitions: HashMap<i32, PartitionFilter>,
    top_level: HashSet<i32>,
}

/// The filter for the files of one spec.
pub(super) struct SpecFilter<'a>(Option<(&'a Known, PartitionFilter)>);

impl FileFilter {
    pub(super) fn new(filter: Option<BoundFilter>, table: &TableMetadata) -> Self {
        Self(filter.map(|filter| {
            let partitions = table.partition_specs_iter().map(|spec| (spec.spec_id(), filter.project(spec))).collect();
            Arc::new(Known { filter, partitions, top_level: bounds::top_level(table.schemas_iter()) })
        }))
    }

    /// Whether a manifest may list a file with a row that matches.
    pub(super) fn may_match_manifest(&self, manifest: &ManifestFile) -> bool {
        let Some(known) = &self.0 else { return true };
        match (known.partitions.get(&manifest.partition_spec_id), &manifest.partitions) {
            (Some(filter), Some(summaries)) => filter.may_match_summaries(summaries),
            _ => true,
        }
    }

    /// The filter for files of a manifest with this spec.
    pub(super) fn of_spec(&self, spec: &PartitionSpec) -> SpecFilter<'_> {
        SpecFilter(self.0.as_ref().map(|known| (known.as_ref(), known.filter.project(spec))))
    }
}

impl SpecFilter<'_> {
    /// Whether a file may hold a row that matches.
    pub(super) fn may_match(&self, file: &DataFile) -> bool {
        let Some((known, partition)) = &self.0 else { return true };
        partition.may_match_partition(file.partition())
            && known.filter.may_match(&OfFile { file, top_level: &known.top_level })
    }
}

/// What a manifest tells of a file.
struct OfFile<'a> {
    file: &'a DataFile,
    top_level: &'a HashSet<i32>,
}

impl Statistics for OfFile<'_> {
    fn of(&self, field_id: i32) -> ColumnStatistics {
        let count = |counts: &HashMap<i32, u64>| counts.get(&field_id).copied();
        let value_count = count(self.file.value_counts());
        // Not every writer counts the rows whose struct is null among the nulls of its fields.
        let null_count = count(self.file.null_value_counts())
            .filter(|nulls| self.top_level.contains(&field_id) || Some(*nulls) == value_count);
        ColumnStatistics {
            lower: self.file.lower_bounds().get(&field_id).cloned(),
            upper: self.file.upper_bounds().get(&field_id).cloned(),
            // A manifest does not say whether its bounds were cut.
            is_exact: false,
            null_count,
            nan_count: count(self.file.nan_value_counts()),
            value_count,
        }
    }
}
