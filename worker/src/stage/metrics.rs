//! The manifest's metrics of a staged file, from its footer.
//!
//! As other Iceberg writers have it: sizes for every leaf column; counts and bounds for those outside lists and maps.

use std::collections::HashMap;

use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Struct};
use iceferry_common::model::MetricsMode;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::bounds::Bounds;
use super::layout::{Layout, Leaf};
use super::nan::NanCounter;

/// What is known of a file when it is closed.
pub(super) struct Closed<'a> {
    pub(super) location: &'a str,
    pub(super) size_bytes: u64,
    pub(super) footer: &'a ParquetMetaData,
    pub(super) nans: &'a NanCounter,
    pub(super) holds: Holds<'a>,
}

/// What a manifest says of the columns of a file, by field id.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) column_sizes: HashMap<i32, u64>,
    pub(crate) value_counts: HashMap<i32, u64>,
    pub(crate) null_value_counts: HashMap<i32, u64>,
    pub(crate) nan_value_counts: HashMap<i32, u64>,
    pub(crate) lower_bounds: HashMap<i32, Datum>,
    pub(crate) upper_bounds: HashMap<i32, Datum>,
}

/// The manifest entry's data file of a closed file of `layout`.
pub(super) fn describe(layout: &Layout, closed: &Closed<'_>) -> iceberg::Result<DataFile> {
    let mut metrics = Metrics::default();
    let row_groups = closed.footer.row_groups();
    for (index, leaf) in layout.leaves.iter().enumerate() {
        metrics.add(leaf, index, row_groups, closed.nans)?;
    }
    data_file(metrics, closed.location, closed.size_bytes, closed.footer, closed.holds)
}

/// What a file holds.
#[derive(Clone, Copy)]
pub(crate) struct Holds<'a> {
    pub(crate) content: DataContentType,
    /// Field ids that an equality delete file deletes by; empty for others.
    pub(crate) equality_ids: &'a [i32],
    /// The data file that a position delete file is for.
    pub(crate) referenced_data_file: Option<&'a str>,
}

impl Holds<'_> {
    pub(crate) const DATA: Self =
        Self { content: DataContentType::Data, equality_ids: &[], referenced_data_file: None };
}

/// The manifest entry's data file with these metrics.
pub(crate) fn data_file(
    metrics: Metrics,
    location: &str,
    size_bytes: u64,
    footer: &ParquetMetaData,
    holds: Holds<'_>,
) -> iceberg::Result<DataFile> {
    let row_groups = footer.row_groups();
    let mut builder = DataFileBuilder::default();
    builder
        .content(holds.content)
        .file_path(location.to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .partition_spec_id(0)
        .record_count(row_groups.iter().map(rows).sum::<u64>())
        .file_size_in_bytes(size_bytes)
        .column_sizes(metrics.column_sizes)
        .value_counts(metrics.value_counts)
        .null_value_counts(metrics.null_value_counts)
        .nan_value_counts(metrics.nan_value_counts)
        .lower_bounds(metrics.lower_bounds)
        .upper_bounds(metrics.upper_bounds)
        .split_offsets(Some(row_groups.iter().filter_map(first_byte).collect()))
        .equality_ids((!holds.equality_ids.is_empty()).then(|| holds.equality_ids.to_vec()))
        .referenced_data_file(holds.referenced_data_file.map(str::to_owned));
    if holds.content != DataContentType::PositionDeletes {
        // Rows come as they come: the order of no rows is unsorted, which is 0. Position deletes have none (spec).
        builder.sort_order_id(0);
    }
    builder.build().map_err(|error| iceberg::Error::new(iceberg::ErrorKind::DataInvalid, error.to_string()))
}

fn rows(row_group: &RowGroupMetaData) -> u64 {
    u64::try_from(row_group.num_rows()).unwrap_or(0)
}

/// Where a row group begins: at its first page, which may be one with a dictionary.
fn first_byte(row_group: &RowGroupMetaData) -> Option<i64> {
    let column = row_group.columns().first()?;
    Some(
        column
            .dictionary_page_offset()
            .map_or(column.data_page_offset(), |offset| offset.min(column.data_page_offset())),
    )
}

impl Metrics {
    fn add(
        &mut self,
        leaf: &Leaf,
        index: usize,
        row_groups: &[RowGroupMetaData],
        nans: &NanCounter,
    ) -> iceberg::Result<()> {
        if leaf.metrics == MetricsMode::None {
            return Ok(());
        }
        let chunks = || row_groups.iter().map(|row_group| row_group.column(index));
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        self.column_sizes.insert(leaf.field_id, chunks().map(|chunk| count(chunk.compressed_size())).sum());
        if leaf.repeated {
            return Ok(());
        }
        let values: u64 = chunks().map(|chunk| count(chunk.num_values())).sum();
        self.value_counts.insert(leaf.field_id, values);
        let nulls: Option<u64> =
            chunks().map(|chunk| chunk.statistics().and_then(|statistics| statistics.null_count_opt())).sum();
        if let Some(nulls) = nulls {
            self.null_value_counts.insert(leaf.field_id, nulls);
        }
        if let Some(nans) = nans.count(index) {
            self.nan_value_counts.insert(leaf.field_id, nans);
        }
        let length = match leaf.metrics {
            MetricsMode::None | MetricsMode::Counts => return Ok(()),
            MetricsMode::Truncate(length) => Some(usize::try_from(length).unwrap_or(usize::MAX)),
            MetricsMode::Full => None,
        };
        let mut bounds = Bounds::default();
        for chunk in chunks() {
            // A chunk of NaNs alone has no bounds either; where NaNs can be, statistics are taken at their word.
            let all_null = |nulls: Option<u64>| nulls == Some(count(chunk.num_values()));
            let told = chunk.statistics().is_some_and(|statistics| {
                bounds.add(&leaf.primitive, statistics)
                    || all_null(statistics.null_count_opt())
                    || nans.count(index).is_some()
            });
            if !told {
                bounds.add_unknown();
            }
        }
        let (lower, upper) = bounds.finish(&leaf.primitive, length)?;
        self.lower_bounds.extend(lower.map(|lower| (leaf.field_id, lower)));
        self.upper_bounds.extend(upper.map(|upper| (leaf.field_id, upper)));
        Ok(())
    }
}
