//! Files and manifests that hold no row that the filter keeps, told by partitions, bounds and counts. Every doubt means that
//! they may hold one. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{ManifestFile, PartitionSpec, Struct, TableMetadata};
use iceferry_common::filter::{BoundFilter, ColumnStatistics, PartitionFilter, Statistics};

use super::bounds;
use super::manifest::{Entry, Layout, of_column};

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
    /// One that everything matches.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// The columns that it asks for.
    pub(super) fn columns(&self) -> Vec<i32> {
        self.0.as_ref().map_or_else(Vec::new, |(known, _)| known.filter.field_ids())
    }

    /// Whether a file of this partition may hold a row that matches.
    pub(super) fn may_match_partition(&self, partition: &Struct) -> bool {
        self.0.as_ref().is_none_or(|(_, filter)| filter.may_match_partition(partition))
    }

    /// Whether a file may, by what its entry says of its columns.
    pub(super) fn may_match(&self, layout: &Layout, entry: &Entry<'_>) -> bool {
        let Some((known, _)) = &self.0 else { return true };
        known.filter.may_match(&OfEntry { layout, entry, top_level: &known.top_level })
    }
}

/// What a manifest tells of a file.
struct OfEntry<'a> {
    layout: &'a Layout,
    entry: &'a Entry<'a>,
    top_level: &'a HashSet<i32>,
}

impl Statistics for OfEntry<'_> {
    fn of(&self, field_id: i32) -> ColumnStatistics {
        let count = |counts: &[(i32, u64)]| of_column(counts, field_id);
        let kind = self.layout.column(field_id);
        let bound = |bounds: &[(i32, &[u8])]| bounds::datum(kind?, of_column(bounds, field_id)?);
        let value_count = count(&self.entry.value_counts);
        // Not every writer counts the rows whose struct is null among the nulls of its fields.
        let null_count = count(&self.entry.null_counts)
            .filter(|nulls| self.top_level.contains(&field_id) || Some(*nulls) == value_count);
        ColumnStatistics {
            lower: bound(&self.entry.lower_bounds),
            upper: bound(&self.entry.upper_bounds),
            // A manifest does not say whether its bounds were cut.
            is_exact: false,
            null_count,
            nan_count: count(&self.entry.nan_counts),
            value_count,
        }
    }
}
