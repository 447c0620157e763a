//! What the footer and the page index of a file tell of the columns of a filter: which row groups and which of their rows
//! cannot match, and which row groups hold nothing else. Pure. What is not understood tells nothing.

use std::collections::HashMap;
use std::ops::Range;

use arrow::datatypes::{DataType, TimeUnit};
use iceberg::spec::{Datum, NestedFieldRef, PrimitiveType, Type};
use iceferry_common::filter::{BoundFilter, ColumnStatistics, Statistics, whole_datum};
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics as ChunkStatistics;

use super::file_schema::{ByName, FileField, FileSchema, Shape};

/// The columns of a filter in one file.
#[derive(Debug)]
pub(super) struct FilterColumns(Vec<FilterColumn>);

#[derive(Debug)]
struct FilterColumn {
    field_id: i32,
    /// The Parquet column.
    leaf: usize,
    kind: PrimitiveType,
    form: Form,
    /// Whether it stands in a struct.
    is_nested: bool,
    /// Bytes of each value, where all have so many.
    value_bytes: Option<usize>,
}

/// How a file's bounds become values of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Boolean,
    /// So many units of the table are one of the file's.
    Whole(i64),
    Float,
    Decimal,
    Bytes,
}

/// A bound as the file has it.
#[derive(Debug, Clone, Copy)]
enum Raw<'a> {
    Boolean(bool),
    Whole(i64),
    Float(f64),
    Bytes(&'a [u8]),
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
        find(wanted, &file.fields, false, file.by_name != ByName::Never, &mut columns);
        let leaves = footer.file_metadata().schema_descr().columns();
        for column in &mut columns {
            let leaf = &leaves[column.leaf];
            let is_fixed = leaf.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY;
            column.value_bytes = usize::try_from(leaf.type_length()).ok().filter(|_| is_fixed);
        }
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
            let is_ordered = column.is_ordered(order, statistics.is_min_max_deprecated());
            let bound = |raw: Option<Raw<'_>>| raw.filter(|_| is_ordered).and_then(|raw| column.datum(raw));
            let known = ColumnStatistics {
                lower: bound(raw_bound(statistics, false)),
                upper: bound(raw_bound(statistics, true)),
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
        let is_ordered = column.is_ordered(file.file_metadata().column_order(column.leaf), false);
        let known = |page: usize| {
            let end = starts.get(page + 1).copied().unwrap_or(rows);
            let rows = end.saturating_sub(starts[page]);
            let is_null = index.is_null_page(page);
            let bound = |raw: Option<Raw<'_>>| raw.filter(|_| is_ordered && !is_null).and_then(|raw| column.datum(raw));
            let nulls =
                if is_null { Some(rows) } else { index.null_count(page).and_then(|nulls| nulls.try_into().ok()) };
            ColumnStatistics {
                lower: bound(raw_page_bound(index, page, false)),
                upper: bound(raw_page_bound(index, page, true)),
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
    /// Whether the order of the bounds is that of the values. Older writers ordered bytes as if they had a sign.
    fn is_ordered(&self, order: ColumnOrder, is_deprecated: bool) -> bool {
        match self.form {
            Form::Boolean | Form::Whole(_) | Form::Float => !matches!(order, ColumnOrder::UNKNOWN),
            Form::Decimal => !is_deprecated && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::SIGNED)),
            Form::Bytes => !is_deprecated && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNSIGNED)),
        }
    }

    /// A count of nulls, if it is one: not every writer counts the rows whose struct is null.
    fn trusted(&self, nulls: Option<u64>, rows: u64) -> Option<u64> {
        nulls.filter(|nulls| !self.is_nested || *nulls == rows)
    }

    fn datum(&self, raw: Raw<'_>) -> Option<Datum> {
        let whole = |value: i128| whole_datum(&self.kind, value);
        match (self.form, raw) {
            (Form::Boolean, Raw::Boolean(value)) => Some(Datum::bool(value)),
            (Form::Whole(factor), Raw::Whole(value)) => whole(i128::from(value) * i128::from(factor)),
            (Form::Float, Raw::Float(value)) => Some(match self.kind {
                PrimitiveType::Float => Datum::float(value as f32),
                _ => Datum::double(value),
            }),
            (Form::Decimal, Raw::Whole(value)) => whole(i128::from(value)),
            // The bytes of a number say nothing when they were cut.
            (Form::Decimal, Raw::Bytes(bytes)) if Some(bytes.len()) == self.value_bytes => whole(big_endian(bytes)?),
            (Form::Bytes, Raw::Bytes(bytes)) => Datum::try_from_bytes(bytes, self.kind.clone()).ok(),
            _ => None,
        }
    }
}

fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = bytes.first()?;
    let mut wide = [if first & 0x80 == 0 { 0 } else { 0xff }; 16];
    wide.get_mut(16_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

fn raw_bound(statistics: &ChunkStatistics, is_upper: bool) -> Option<Raw<'_>> {
    fn of<T>(values: (Option<T>, Option<T>), is_upper: bool) -> Option<T> {
        if is_upper { values.1 } else { values.0 }
    }
    match statistics {
        ChunkStatistics::Boolean(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Boolean(*value))
        }
        ChunkStatistics::Int32(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Whole(i64::from(*value)))
        }
        ChunkStatistics::Int64(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Whole(*value))
        }
        ChunkStatistics::Float(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Float(f64::from(*value)))
        }
        ChunkStatistics::Double(values) => {
            of((values.min_opt(), values.max_opt()), is_upper).map(|value| Raw::Float(*value))
        }
        ChunkStatistics::ByteArray(_) | ChunkStatistics::FixedLenByteArray(_) => {
            of((statistics.min_bytes_opt(), statistics.max_bytes_opt()), is_upper).map(Raw::Bytes)
        }
        ChunkStatistics::Int96(_) => None,
    }
}

fn raw_page_bound(index: &ColumnIndexMetaData, page: usize, is_upper: bool) -> Option<Raw<'_>> {
    macro_rules! bound {
        ($index:expr) => {
            if is_upper { $index.max_value(page) } else { $index.min_value(page) }
        };
    }
    match index {
        ColumnIndexMetaData::NONE | ColumnIndexMetaData::INT96(_) => None,
        ColumnIndexMetaData::BOOLEAN(index) => bound!(index).map(|value| Raw::Boolean(*value)),
        ColumnIndexMetaData::INT32(index) => bound!(index).map(|value| Raw::Whole(i64::from(*value))),
        ColumnIndexMetaData::INT64(index) => bound!(index).map(|value| Raw::Whole(*value)),
        ColumnIndexMetaData::FLOAT(index) => bound!(index).map(|value| Raw::Float(f64::from(*value))),
        ColumnIndexMetaData::DOUBLE(index) => bound!(index).map(|value| Raw::Float(*value)),
        ColumnIndexMetaData::BYTE_ARRAY(index) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            bound!(index).map(Raw::Bytes)
        }
    }
}

/// Finds fields as rows are read: by id, and inside of structs by name where the file has no ids.
fn find(
    wanted: &[NestedFieldRef],
    file: &[FileField],
    is_nested: bool,
    nested_by_name: bool,
    columns: &mut Vec<FilterColumn>,
) {
    for field in wanted {
        let found = file.iter().find(|candidate| match is_nested && nested_by_name {
            true => candidate.name == field.name,
            false => candidate.id == Some(field.id),
        });
        match (field.field_type.as_ref(), found) {
            (Type::Struct(inner), Some(FileField { shape: Shape::Struct(of_file), .. })) => {
                find(inner.fields(), of_file, true, nested_by_name, columns);
            }
            (Type::Primitive(kind), Some(found)) => {
                if let Some(form) = form(kind, found) {
                    let leaf = found.leaves.start;
                    columns.push(FilterColumn {
                        field_id: field.id,
                        leaf,
                        kind: kind.clone(),
                        form,
                        is_nested,
                        value_bytes: None,
                    });
                }
            }
            _ => {}
        }
    }
}

/// How the bounds of a file's column become values of the table; `None` where they are not those of the same values.
fn form(kind: &PrimitiveType, file: &FileField) -> Option<Form> {
    use DataType as A;
    use PrimitiveType as T;
    if !matches!(file.shape, Shape::Leaf { int96: false }) {
        return None;
    }
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000_i64,
    };
    match (kind, &file.arrow_type) {
        (T::Boolean, A::Boolean) => Some(Form::Boolean),
        (T::Int, A::Int8 | A::Int16 | A::Int32) | (T::Long, A::Int8 | A::Int16 | A::Int32 | A::Int64) => {
            Some(Form::Whole(1))
        }
        (T::Float, A::Float32) | (T::Double, A::Float32 | A::Float64) => Some(Form::Float),
        (T::Date, A::Date32) => Some(Form::Whole(1)),
        (T::Time, A::Time32(unit) | A::Time64(unit)) | (T::Timestamp | T::Timestamptz, A::Timestamp(unit, _)) => {
            whole_units(1_000_000, per_second(unit))
        }
        (T::TimestampNs | T::TimestamptzNs, A::Timestamp(unit, _)) => whole_units(1_000_000_000, per_second(unit)),
        (T::Decimal { scale, .. }, A::Decimal128(_, of_file)) if i64::from(*scale) == i64::from(*of_file) => {
            Some(Form::Decimal)
        }
        (T::String, A::Utf8) | (T::Binary, A::Binary) | (T::Uuid | T::Fixed(_), A::FixedSizeBinary(_)) => {
            Some(Form::Bytes)
        }
        _ => None,
    }
}

fn whole_units(table: i64, file: i64) -> Option<Form> {
    (table >= file).then(|| Form::Whole(table / file))
}
