//! The data file of a manifest entry, in the bytes that a manifest has it in.
//!
//! A worker hands back an entry for each file that it stages. As Avro, in the order of fields that the iceberg crate's
//! manifests of format versions 2 and 3 have, an entry of 16 columns takes 700 bytes, where its JSON takes 3 kB and must
//! be taken apart to become these bytes; a commit of 100,000 files copies them into manifests as they are. Partition
//! values have no place in it yet: targets are unpartitioned.

mod avro;
mod facts;

use std::collections::HashMap;

use bytes::Bytes;
use iceberg::spec::{
    DataFile, Datum, FormatVersion, Schema, StructType, read_data_files_from_avro, write_data_files_to_avro,
};

pub use avro::{put_bytes, put_long};
pub use facts::{DamagedEntry, Facts};

/// Encodes a data file. `first_row_id` takes the place of its own: the iceberg crate's data files inherit none.
///
/// # Errors
/// When the data file has partition values, or a number or bound that Iceberg cannot store.
pub fn encode(file: &DataFile, first_row_id: Option<i64>) -> iceberg::Result<Bytes> {
    if !file.partition().fields().is_empty() {
        let what = "entries with partition values are not supported yet";
        return Err(iceberg::Error::new(iceberg::ErrorKind::FeatureUnsupported, what));
    }
    let mut out = Vec::with_capacity(1024);
    put_long(&mut out, file.content_type() as i64);
    put_bytes(&mut out, file.file_path().as_bytes());
    put_bytes(&mut out, file.file_format().to_string().to_ascii_uppercase().as_bytes());
    put_count(&mut out, file.record_count())?;
    put_count(&mut out, file.file_size_in_bytes())?;
    for counts in [file.column_sizes(), file.value_counts(), file.null_value_counts(), file.nan_value_counts()] {
        put_map(&mut out, counts, |out, count| put_count(out, *count))?;
    }
    for bounds in [file.lower_bounds(), file.upper_bounds()] {
        put_map(&mut out, bounds, put_bound)?;
    }
    put_optional(&mut out, file.key_metadata(), put_bytes);
    put_optional(&mut out, file.split_offsets(), |out, offsets| put_array(out, offsets.iter().copied()));
    put_optional(&mut out, file.equality_ids(), |out, ids| put_array(out, ids.iter().map(|id| i64::from(*id))));
    put_optional(&mut out, file.sort_order_id().map(i64::from), put_long);
    put_optional(&mut out, first_row_id, put_long);
    put_optional(&mut out, file.referenced_data_file(), |out, file| put_bytes(out, file.as_bytes()));
    put_optional(&mut out, file.content_offset(), put_long);
    put_optional(&mut out, file.content_size_in_bytes(), put_long);
    Ok(Bytes::from(out))
}

/// The data file, by way of the iceberg crate; for who needs its metrics. [`Facts::read`] is much faster.
///
/// # Errors
/// When the bytes are none of an entry of a table with this schema.
pub fn decode(entry: &[u8], schema: &Schema) -> iceberg::Result<DataFile> {
    let unpartitioned = StructType::new(Vec::new());
    // A container file without a record is its header; behind it goes a block of one record.
    let mut file = Vec::new();
    write_data_files_to_avro(&mut file, [], &unpartitioned, FormatVersion::V2)?;
    let marker = file.split_off(file.len() - avro::MARKER_BYTES);
    file.extend_from_slice(&marker);
    put_long(&mut file, 1);
    put_bytes(&mut file, entry);
    file.extend_from_slice(&marker);
    let read = read_data_files_from_avro(&mut file.as_slice(), schema, 0, &unpartitioned, FormatVersion::V2)?;
    let damaged = || iceberg::Error::new(iceberg::ErrorKind::DataInvalid, "no data file in the entry");
    read.into_iter().next().ok_or_else(damaged)
}

fn put_count(out: &mut Vec<u8>, count: u64) -> iceberg::Result<()> {
    put_long(out, i64::try_from(count)?);
    Ok(())
}

fn put_bound(out: &mut Vec<u8>, bound: &Datum) -> iceberg::Result<()> {
    put_bytes(out, &bound.to_bytes()?);
    Ok(())
}

fn put_optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_long(out, i64::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

/// An array is blocks of items, each behind their number, and 0 at the end.
fn put_array(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = i64>) {
    if items.len() > 0 {
        put_long(out, items.len() as i64);
    }
    items.for_each(|item| put_long(out, item));
    put_long(out, 0);
}

/// A map with numbers as keys is an array of pairs; in the order of the keys, so that equal files have equal bytes. It is
/// there when it is empty too, as the iceberg crate writes it.
fn put_map<T>(
    out: &mut Vec<u8>,
    map: &HashMap<i32, T>,
    put: impl Fn(&mut Vec<u8>, &T) -> iceberg::Result<()>,
) -> iceberg::Result<()> {
    let mut pairs: Vec<(&i32, &T)> = map.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| **key);
    put_long(out, 1);
    if !pairs.is_empty() {
        put_long(out, pairs.len() as i64);
    }
    for (key, value) in pairs {
        put_long(out, i64::from(*key));
        put(out, value)?;
    }
    put_long(out, 0);
    Ok(())
}

#[cfg(test)]
mod tests;
