//! What the footer and the page index of a file tell of the columns of a filter: which row groups and which of their rows
//! cannot match, and which row groups hold nothing else. Pure. What is not understood tells nothing.

use std::collections::HashMap;
use std::ops::Range;

use iceberg::spec::{NestedFieldRef, Type};
use iceferry_common::filter::{BoundFilter, ColumnStatistics, Statistics};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use super::file_bounds::{BoundForm, Raw, of_chunk, of_page};
use super::file_schema::{ByName, FileField, FileSchema, Shape};

/// The columns of a filter in one file.
#[derive(Debug)]
pub(super) struct FilterColumns(Vec<FilterColumn>);

#[derive(Debug)]
struct FilterColumn {
    field_id: i32,
    /// The Parquet column.
    leaf: usize,
    form: BoundForm,
    /// Whether it stands in a struct.
    is_nested: bool,
}

struct Known(HashMap<i32, ColumnStatistics>);

impl Statistics for Known {
    fn of(&self, field_id: i32) -> ColumnStatistics {
        self.0.get(&field_id).cloned().unwrap_or_default()
    }
}

impl FilterColumns {
    /// Finds the columns of a filter, which are the primitive fields among `wanted`, in a file.
    pub(super) fn of(file: &FileSchema, footer: &ParquetMetaData, wanted: &[NestedFieldRef]) -> Self {
        let mut columns = Vec::new();
        find((file, footer), wanted, &file.fields, false, &mut columns);
        Self(columns)
    }

    /// Whether some row of a row group may match.
    pub(super) fn may_match(&self, filter: &BoundFilter, file: &ParquetMetaData, row_group: usize) -> bool {
        filter.may_match(&self.of_row_group(file, row_group))
    }

    /// Whether every row of a row group matches.
    pub(super) fn must_match(&self, filter: &BoundFilter, file: &ParquetMetaData, row_group: usize) -> bool {
        filter.must_match(&self.of_row_group(file, row_group))
    }

    /// Whether the footer says where the bounds of pages are, for some column of some of these row groups.
    pub(super) fn have_page_index(&self, file: &ParquetMetaData, row_groups: &[usize]) -> bool {
        let has_index = |row_group: &usize| {
            let chunks = file.row_group(*row_group).columns();
            self.0.iter().any(|column| chunks[column.leaf].column_index_offset().is_some())
        };
        row_groups.iter().any(has_index)
    }

    fn of_row_group(&self, file: &ParquetMetaData, row_group: usize) -> Known {
        let group = file.row_group(row_group);
        let rows = group.num_rows().unsigned_abs();
        let of_column = |column: &FilterColumn| {
            let statistics = group.columns()[column.leaf].statistics()?;
            let order = file.file_metadata().column_order(column.leaf);
            let is_ordered = column.form.is_ordered(order, statistics.is_min_max_deprecated());
            let bound = |raw: Option<Raw<'_>>| raw.filter(|_| is_ordered).and_then(|raw| column.form.datum(raw));
            let known = ColumnStatistics {
                lower: bound(of_chunk(statistics, false)),
                upper: bound(of_chunk(statistics, true)),
                is_exact: statistics.min_is_exact() && statistics.max_is_exact(),
                null_count: column.trusted(statistics.null_count_opt(), rows),
                nan_count: None,
                value_count: Some(rows),
            };
            Some((column.field_id, known))
        };
        Known(self.0.iter().filter_map(of_column).collect())
    }

    /// The rows of a row group that may match by the bounds of its pages, as ranges of positions in the file; `rows` are the
    /// positions of the row group. `file` has the indexes.
    pub(super) fn rows_that_may_match(
        &self,
        filter: &BoundFilter,
        file: &ParquetMetaData,
        row_group: usize,
        rows: Range<u64>,
    ) -> Vec<Range<u64>> {
        let count = rows.end - rows.start;
        let pages: Vec<(&FilterColumn, Pages)> =
            self.0.iter().filter_map(|column| Some((column, Pages::of(column, file, row_group, count)?))).collect();
        // Pages of different columns begin at different rows: between two beginnings each column is in one page.
        let mut starts: Vec<u64> = pages.iter().flat_map(|(_, pages)| pages.starts.iter().copied()).collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(count);
            let known = pages.iter().map(|(column, pages)| (column.field_id, pages.at(*start)));
            if !filter.may_match(&Known(known.collect())) {
                continue;
            }
            match ranges.last_mut() {
                Some(range) if range.end == rows.start + start => range.end = rows.start + end,
                _ => ranges.push(rows.start + start..rows.start + end),
            }
        }
        ranges
    }
}

/// The pages of a column chunk.
struct Pages {
    /// The first row of each.
    starts: Vec<u64>,
    known: Vec<ColumnStatistics>,
}

impl Pages {
    fn of(column: &FilterColumn, file: &ParquetMetaData, row_group: usize, rows: u64) -> Option<Self> {
        let index = file.column_index()?.get(row_group)?.get(column.leaf)?;
        let locations = file.offset_index()?.get(row_group)?.get(column.leaf)?.page_locations();
        if matches!(index, ColumnIndexMetaData::NONE) || index.num_pages() != locations.len() as u64 {
            return None;
        }
        let starts: Vec<u64> = locations.iter().map(|page| page.first_row_index.unsigned_abs()).collect();
        if starts.first() != Some(&0) {
            return None;
        }
        let is_ordered = column.form.is_ordered(file.file_metadata().column_order(column.leaf), false);
        let known = |page: usize| {
            let end = starts.get(page + 1).copied().unwrap_or(rows);
            let rows = end.saturating_sub(starts[page]);
            let is_null = index.is_null_page(page);
            let bound =
                |raw: Option<Raw<'_>>| raw.filter(|_| is_ordered && !is_null).and_then(|raw| column.form.datum(raw));
            let nulls =
                if is_null { Some(rows) } else { index.null_count(page).and_then(|nulls| nulls.try_into().ok()) };
            ColumnStatistics {
                lower: bound(of_page(index, page, false)),
                upper: bound(of_page(index, page, true)),
                // They are usually cut.
                is_exact: false,
                null_count: column.trusted(nulls, rows),
                nan_count: None,
                value_count: Some(rows),
            }
        };
        Some(Self { known: (0..locations.len()).map(known).collect(), starts })
    }

    /// What is known of the page with this row.
    fn at(&self, row: u64) -> ColumnStatistics {
        let page = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
        self.known.get(page).cloned().unwrap_or_default()
    }
}

impl FilterColumn {
    /// A count of nulls, if it is one: not every writer counts the rows whose struct is null.
    fn trusted(&self, nulls: Option<u64>, rows: u64) -> Option<u64> {
        nulls.filter(|nulls| !self.is_nested || *nulls == rows)
    }
}

/// Finds fields as rows are read: by id, and inside of structs by name where the file has no ids.
fn find(
    of: (&FileSchema, &ParquetMetaData),
    wanted: &[NestedFieldRef],
    file: &[FileField],
    is_nested: bool,
    columns: &mut Vec<FilterColumn>,
) {
    for field in wanted {
        let found = file.iter().find(|candidate| match is_nested && of.0.by_name != ByName::Never {
            true => candidate.name == field.name,
            false => candidate.id == Some(field.id),
        });
        match (field.field_type.as_ref(), found) {
            (Type::Struct(inner), Some(FileField { shape: Shape::Struct(of_file), .. })) => {
                find(of, inner.fields(), of_file, true, columns);
            }
            (Type::Primitive(kind), Some(found)) => {
                let leaf = found.leaves.start;
                let form = BoundForm::of(kind, found, &of.1.file_metadata().schema_descr().column(leaf));
                columns.extend(form.map(|form| FilterColumn { field_id: field.id, leaf, form, is_nested }));
            }
            _ => {}
        }
    }
}
