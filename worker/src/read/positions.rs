//! Position delete files: (data file, position) rows, in Parquet or Avro.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use iceberg::spec::{MappedField, NameMapping, NestedField, NestedFieldRef, PrimitiveType, Type};
use iceferry_common::model::DeleteFile;
use parquet::file::statistics::Statistics;
use roaring::RoaringTreemap;

use super::delete_columns::{DeleteColumns, nullable_schema};
use super::fetch::{Fetch, Fetcher};
use super::file_schema::{FallbackIds, FileSchema};
use super::footer::OpenFile;
use super::select::row_groups_with_rows;
use super::{ReadError, ReadOptions};

/// Reserved field ids of the spec.
const FILE_PATH_ID: i32 = 2_147_483_546;
const POS_ID: i32 = 2_147_483_545;

/// Deleted positions by location of the data file.
pub(super) type PositionsByFile = HashMap<String, RoaringTreemap>;

/// The deleted positions of the wanted data files in a delete file. Its rows may be in any order and repeat, speak of other
/// data files as well, and have more columns. `ahead` is its first request, under way.
pub(super) fn load(
    fetcher: &Fetcher,
    options: &ReadOptions,
    file: &DeleteFile,
    ahead: Option<Fetch>,
    wanted: &HashSet<String>,
) -> Result<PositionsByFile, ReadError> {
    let location = &*file.location;
    let primitive = |id, name, of| -> NestedFieldRef { NestedField::required(id, name, Type::Primitive(of)).into() };
    let fields =
        [primitive(FILE_PATH_ID, "file_path", PrimitiveType::String), primitive(POS_ID, "pos", PrimitiveType::Long)];
    let schema = nullable_schema(&fields).map_err(|error| ReadError::unsupported(location, error.to_string()))?;
    let names = fields.iter().map(|field| MappedField::new(Some(field.id), vec![field.name.clone()], Vec::new()));
    let ids = FallbackIds::Names(Arc::new(NameMapping::new(names.collect())));
    let pick = |file: &OpenFile, schema: &FileSchema| row_groups(file, schema, wanted);
    let mut columns = DeleteColumns::open(fetcher, options, (file, ahead), (&fields, &schema), &ids, pick)?;
    let mut sink = Sink::new(location, wanted);
    while let Some(columns) = columns.next()? {
        if columns.iter().any(|column| column.null_count() > 0) {
            return Err(ReadError::damaged(location, "it has a delete without a file or without a position"));
        }
        let (paths, positions) = (columns[0].as_string::<i32>(), columns[1].as_primitive::<Int64Type>().values());
        // Rows of one data file mostly follow each other.
        let mut last: (&str, Option<usize>) = ("", None);
        for (row, position) in positions.iter().enumerate() {
            let path = paths.value(row);
            if path != last.0 {
                last = (path, sink.wanted.get(path).copied());
            }
            if let Some(file) = last.1 {
                sink.insert(file, *position)?;
            }
        }
    }
    Ok(sink.finish())
}

/// Adds rows to the positions of the wanted files.
struct Sink<'a> {
    location: &'a str,
    /// The wanted files, and where their positions are in `positions`.
    wanted: HashMap<&'a str, usize>,
    positions: Vec<RoaringTreemap>,
}

impl<'a> Sink<'a> {
    fn new(location: &'a str, wanted: &'a HashSet<String>) -> Self {
        let positions = vec![RoaringTreemap::new(); wanted.len()];
        Self { location, wanted: wanted.iter().map(String::as_str).zip(0..).collect(), positions }
    }

    fn insert(&mut self, file: usize, position: i64) -> Result<(), ReadError> {
        let position = u64::try_from(position)
            .map_err(|_| ReadError::damaged(self.location, format!("it deletes position {position}")))?;
        self.positions[file].insert(position);
        Ok(())
    }

    fn finish(mut self) -> PositionsByFile {
        let mut take = |index: usize| std::mem::take(&mut self.positions[index]);
        self.wanted.iter().map(|(file, index)| ((*file).to_owned(), take(*index))).collect()
    }
}

/// The row groups that can hold a wanted data file by the bounds of their file_path column.
fn row_groups(file: &OpenFile, schema: &FileSchema, wanted: &HashSet<String>) -> Vec<usize> {
    let leaf = schema.fields.iter().find(|field| field.id == Some(FILE_PATH_ID)).map(|field| field.leaves.start);
    let may_hold = |index: &usize| {
        let statistics = leaf.and_then(|leaf| file.metadata.row_group(*index).column(leaf).statistics());
        // Bounds may be cut short, and are still bounds: the lower one is never above, the upper one never below.
        let Some(bounds @ Statistics::ByteArray(_)) = statistics else { return true };
        match (bounds.min_bytes_opt(), bounds.max_bytes_opt()) {
            // The bounds of old writers compare bytes as signed numbers.
            (Some(min), Some(max)) if !bounds.is_min_max_deprecated() => {
                wanted.iter().any(|path| min <= path.as_bytes() && path.as_bytes() <= max)
            }
            _ => true,
        }
    };
    row_groups_with_rows(&file.metadata).filter(may_hold).collect()
}
