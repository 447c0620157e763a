//! The footer of a new file.

use std::io::Write;

use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter};
use parquet::file::writer::TrackedWrite;

use super::Part;
use super::layout::{Laid, Piece};
use super::whole::Indexes;
use crate::stage::layout::Layout;
use crate::stage::settings::CREATED_BY;
use crate::stage::upload::Sink;

/// Keys of a footer that describe the columns of the file they were written to, or what that file is to its table.
const KEYS_LEFT_OUT: [&str; 8] = [
    "ARROW:schema",
    "iceberg.schema",
    "delete-type",
    "delete-field-ids",
    "pandas",
    "parquet.avro.schema",
    "avro.schema",
    "org.apache.spark.sql.parquet.row.metadata",
];

/// The footer of a new file, and what comes before it.
pub(super) fn footer(
    parts: &[Part<'_>],
    indexes: &[Indexes],
    layout: &Layout,
    laid: Laid,
) -> (Vec<Piece>, ParquetMetaData) {
    let files = || indexes.iter().map(|indexes| indexes.metadata.file_metadata());
    let rows = laid.row_groups.iter().map(|group| group.num_rows()).sum();
    let version = files().map(FileMetaData::version).max().unwrap_or(1);
    let schema = parts[0].recipe.schema.clone();
    let pairs = Some(key_values(layout, files().map(|file| file.key_value_metadata())));
    // The writer says the order of each column itself.
    let file = FileMetaData::new(version, rows, Some(CREATED_BY.to_owned()), pairs, schema, None);
    let (columns, offsets) = laid.indexes.unzip();
    let footer = ParquetMetaDataBuilder::new(file)
        .set_row_groups(laid.row_groups)
        .set_column_index(columns)
        .set_offset_index(offsets)
        .build();
    (laid.pieces, footer)
}

/// The target's schema, and what all of the files say alike of other things than their columns.
fn key_values<'a>(layout: &Layout, mut files: impl Iterator<Item = Option<&'a Vec<KeyValue>>>) -> Vec<KeyValue> {
    let schema = serde_json::to_string(layout.schema.as_ref()).unwrap_or_default();
    let mut pairs = vec![KeyValue::new("iceberg.schema".to_owned(), schema)];
    let mut common: Vec<KeyValue> = files.next().flatten().cloned().unwrap_or_default();
    common.retain(|pair| !KEYS_LEFT_OUT.contains(&pair.key.as_str()));
    for file in files {
        common.retain(|pair| file.is_some_and(|file| file.contains(pair)));
    }
    pairs.extend(common);
    pairs
}

/// Writes page indexes and footer behind what is written already.
pub(super) fn write_footer(footer: &ParquetMetaData, sink: &mut Sink) -> Result<(), ParquetError> {
    // Offsets are counted by the writer from its first byte. It is given as many as there are, which go nowhere.
    let zeros = [0u8; 64 * 1024];
    let mut before = sink.written();
    let mut tail = TrackedWrite::new(Tail { sink, skip: before });
    while before > 0 {
        let some = zeros.len().min(usize::try_from(before).unwrap_or(zeros.len()));
        tail.write_all(&zeros[..some])?;
        before -= some as u64;
    }
    ParquetMetaDataWriter::new_with_tracked(tail, footer).finish()
}

/// Lets the first bytes go nowhere.
struct Tail<'a> {
    sink: &'a mut Sink,
    skip: u64,
}

impl Write for Tail<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.skip == 0 {
            return self.sink.write(bytes);
        }
        let skipped = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= skipped as u64;
        Ok(skipped)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}
