//! Data and delete files, written with the Parquet crate and by hand.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, MapArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef as ArrowSchemaRef};
use iceberg::arrow::schema_to_arrow_schema;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use roaring::RoaringTreemap;

use super::row::{Key, Row};
use super::shape::{Column, Shape};

const DELETE_PATH_ID: i32 = 2_147_483_546;
const DELETE_POSITION_ID: i32 = 2_147_483_545;
const ROW_ID: i32 = 2_147_483_540;

/// What a manifest tells of a file.
pub(super) struct Written {
    pub(super) size_bytes: u64,
    pub(super) split_offsets: Vec<i64>,
}

/// Writes rows as a data file of a shape, with row ids where rows have them.
pub(super) fn data(path: &Path, shape: &Shape, rows: &[Row], rows_per_group: usize) -> Written {
    let schema = schema_to_arrow_schema(&shape.schema()).expect("an Arrow schema");
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let mut columns: Vec<ArrayRef> = shape
        .columns
        .iter()
        .zip(&fields)
        .map(|((column, _), field)| array(*column, field.data_type(), shape, rows))
        .collect();
    if rows.iter().any(|row| row.lineage.is_some()) {
        fields.push(Arc::new(field(ROW_ID, "_row_id", DataType::Int64, true)));
        columns.push(Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.lineage))));
    }
    write(path, Arc::new(ArrowSchema::new(fields)), columns, rows_per_group)
}

fn array(column: Column, data_type: &DataType, shape: &Shape, rows: &[Row]) -> ArrayRef {
    let text = |of: fn(&Row) -> Option<&String>| -> ArrayRef { Arc::new(StringArray::from_iter(rows.iter().map(of))) };
    match column {
        Column::Id => ids(rows.iter().map(|row| Some(row.id)), shape.id_is_long),
        Column::P => Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.p))),
        Column::V => text(|row| row.v.as_ref()),
        Column::W => text(|row| row.w.as_ref()),
        Column::VAgain => text(|row| row.v_again.as_ref()),
        Column::F if shape.f_is_double => Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.f))),
        Column::F => Arc::new(Float32Array::from_iter(rows.iter().map(|row| row.f.map(|f| f as f32)))),
        Column::Tags => tags(data_type, rows),
        Column::S => {
            let DataType::Struct(fields) = data_type else { panic!("s is a struct, not {data_type}") };
            let a: ArrayRef =
                Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.s.as_ref().and_then(|(a, _)| *a))));
            let b: ArrayRef =
                Arc::new(StringArray::from_iter(rows.iter().map(|row| row.s.as_ref().and_then(|(_, b)| b.as_ref()))));
            let children = if shape.s_has_b { vec![a, b] } else { vec![a] };
            let nulls = NullBuffer::from_iter(rows.iter().map(|row| row.s.is_some()));
            Arc::new(StructArray::new(fields.clone(), children, Some(nulls)))
        }
    }
}

fn ids(values: impl Iterator<Item = Option<i64>>, is_long: bool) -> ArrayRef {
    if is_long {
        Arc::new(Int64Array::from_iter(values))
    } else {
        Arc::new(Int32Array::from_iter(values.map(|id| id.map(|id| i32::try_from(id).expect("a small id")))))
    }
}

fn tags(data_type: &DataType, rows: &[Row]) -> ArrayRef {
    let DataType::Map(entries, sorted) = data_type else { panic!("tags is a map, not {data_type}") };
    let DataType::Struct(fields) = entries.data_type() else { panic!("a map has entries") };
    let of = |row: &Row| row.tags.clone().unwrap_or_default();
    let lengths = rows.iter().map(|row| of(row).len());
    let keys: ArrayRef =
        Arc::new(StringArray::from(rows.iter().flat_map(|row| of(row).into_keys()).collect::<Vec<_>>()));
    let values: ArrayRef =
        Arc::new(Int32Array::from(rows.iter().flat_map(|row| of(row).into_values()).collect::<Vec<_>>()));
    let entry = StructArray::new(fields.clone(), vec![keys, values], None);
    let nulls = NullBuffer::from_iter(rows.iter().map(|row| row.tags.is_some()));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Arc::new(MapArray::new(Arc::clone(entries), offsets, entry, Some(nulls), *sorted))
}

/// Writes a position delete file.
pub(super) fn positions<'a>(path: &Path, rows: impl Iterator<Item = (&'a str, usize)> + Clone) -> Written {
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values(rows.clone().map(|(path, _)| path)));
    let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.map(|(_, position)| position as i64)));
    let fields = vec![
        field(DELETE_PATH_ID, "file_path", DataType::Utf8, false),
        field(DELETE_POSITION_ID, "pos", DataType::Int64, false),
    ];
    write(path, Arc::new(ArrowSchema::new(fields)), vec![paths, positions], 1024)
}

/// Writes an equality delete file, in the types that the columns have in a shape.
pub(super) fn keys(path: &Path, shape: &Shape, field_ids: &[i32], keys: &[Vec<Key>]) -> Written {
    let (mut fields, mut columns) = (Vec::new(), Vec::<ArrayRef>::new());
    for (at, id) in field_ids.iter().enumerate() {
        let number = |key: &Vec<Key>| match &key[at] {
            Key::Number(number) => *number,
            Key::Text(_) => panic!("field {id} is a number"),
        };
        let column = match id {
            1 => ids(keys.iter().map(number), shape.id_is_long),
            2 => ids(keys.iter().map(number), false),
            _ => Arc::new(StringArray::from_iter(keys.iter().map(|key| match &key[at] {
                Key::Text(text) => text.clone(),
                Key::Number(_) => panic!("field {id} is a text"),
            }))),
        };
        fields.push(field(*id, &format!("c{id}"), column.data_type().clone(), true));
        columns.push(column);
    }
    write(path, Arc::new(ArrowSchema::new(fields)), columns, 1024)
}

/// Writes a Puffin file with a deletion vector for each set of positions; tells offset and length of each.
pub(super) fn vectors(path: &Path, all: &[(String, Vec<u64>)]) -> (u64, Vec<(u64, u64)>) {
    let mut bytes = b"PFA1".to_vec();
    let (mut blobs, mut described) = (Vec::new(), Vec::new());
    for (file, positions) in all {
        let positions: RoaringTreemap = positions.iter().copied().collect();
        let mut content = vec![0xD1, 0xD3, 0x39, 0x64];
        positions.serialize_into(&mut content).expect("memory takes all");
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&content);
        bytes.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
        let length = bytes.len() as u64 - offset;
        blobs.push((offset, length));
        described.push(serde_json::json!({
            "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": offset,
            "length": length,
            "properties": {"referenced-data-file": file, "cardinality": positions.len().to_string()},
        }));
    }
    let footer = serde_json::json!({"blobs": described}).to_string();
    bytes.extend_from_slice(b"PFA1");
    bytes.extend_from_slice(footer.as_bytes());
    bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(b"PFA1");
    std::fs::write(path, &bytes).expect("write a Puffin file");
    (bytes.len() as u64, blobs)
}

fn field(id: i32, name: &str, data_type: DataType, nullable: bool) -> Field {
    let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string());
    Field::new(name, data_type, nullable).with_metadata([id].into())
}

fn write(path: &Path, schema: ArrowSchemaRef, columns: Vec<ArrayRef>, rows_per_group: usize) -> Written {
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns of the schema");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_per_group)).build();
    let file = std::fs::File::create(path).expect("create a file");
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).expect("a Parquet writer");
    writer.write(&batch).expect("write rows");
    let metadata = writer.close().expect("close a file");
    let split_offsets = metadata.row_groups().iter().map(|group| group.column(0).byte_range().0 as i64).collect();
    let size_bytes = std::fs::metadata(path).expect("the file is there").len();
    Written { size_bytes, split_offsets }
}
