//! Deletion vectors in a Puffin file.

use std::collections::HashMap;

use iceberg::compression::CompressionCodec;
use iceberg::io::FileIO;
use iceberg::puffin::{Blob, DELETION_VECTOR_V1, PuffinWriter};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Struct};
use iceferry_common::entry;
use iceferry_common::model::{StagedContent, StagedFile, staged_file_location};

use super::super::StageError;
use super::{DeadRows, Of};
use crate::vector;

/// The reserved field of row positions, which vectors are made of (spec, deletion vectors in Puffin).
const ROW_POSITION_ID: i32 = 2_147_483_645;
/// Where the first blob of a Puffin file lies: behind its magic.
const FIRST_BLOB: u64 = 4;
/// A snapshot or sequence number that is inherited.
const INHERITED: i64 = -1;

pub(super) fn stage(
    of: Of<'_>,
    dead: Vec<DeadRows>,
    number: usize,
    begun: &mut Vec<String>,
) -> Result<Vec<StagedFile>, StageError> {
    let content = StagedContent::DeletionVector;
    let location = staged_file_location(of.context, of.task, of.attempt, content, number);
    let described = |source: iceberg::Error| StageError::Describe { location: location.clone(), source: source.into() };
    let mut blobs = Vec::with_capacity(dead.len());
    for DeadRows { data_file, positions } in dead {
        let cardinality = positions.len();
        let blob = vector::encode(positions).ok_or_else(|| StageError::Vector { data_file: data_file.clone() })?;
        blobs.push((data_file, cardinality, blob));
    }
    let lengths: Vec<u64> = blobs.iter().map(|(_, _, blob)| blob.len() as u64).collect();
    let names: Vec<(String, u64)> = blobs.iter().map(|(file, count, _)| (file.clone(), *count)).collect();
    let bytes = of.runtime.block_on(puffin(blobs)).map_err(described)?;
    let size_bytes = bytes.len() as u64;
    begun.push(location.clone());
    let written = of.runtime.block_on(of.storage.write(&location, bytes));
    written.map_err(|source| StageError::Upload { location: location.clone(), source: Box::new(source) })?;

    let mut offset = FIRST_BLOB;
    let mut staged = Vec::with_capacity(names.len());
    for ((data_file, cardinality), length) in names.into_iter().zip(lengths) {
        let described_file = of_vector(&location, size_bytes, data_file, cardinality, (offset, length));
        let entry = described_file.and_then(|file| entry::encode(&file, None));
        offset += length;
        staged.push(StagedFile {
            location: location.clone(),
            content,
            record_count: cardinality,
            size_bytes,
            data_file: entry.map_err(described)?,
        });
    }
    Ok(staged)
}

/// A Puffin file of vectors, blob after blob in their order. It is made in memory: a vector takes a few bytes for each
/// run or part of positions.
async fn puffin(blobs: Vec<(String, u64, Vec<u8>)>) -> iceberg::Result<bytes::Bytes> {
    const NAME: &str = "memory:/vectors.puffin";
    let memory = FileIO::new_with_memory();
    let properties = HashMap::from([("created-by".to_owned(), format!("iceferry {}", env!("CARGO_PKG_VERSION")))]);
    let mut writer = PuffinWriter::new(&memory.new_output(NAME)?, properties, false).await?;
    for (data_file, cardinality, blob) in blobs {
        let properties = HashMap::from([
            ("referenced-data-file".to_owned(), data_file),
            ("cardinality".to_owned(), cardinality.to_string()),
        ]);
        let blob = Blob::builder()
            .r#type(DELETION_VECTOR_V1.to_owned())
            .fields(vec![ROW_POSITION_ID])
            .snapshot_id(INHERITED)
            .sequence_number(INHERITED)
            .data(blob)
            .properties(properties)
            .build();
        writer.add(blob, CompressionCodec::None).await?;
    }
    writer.close().await?;
    memory.new_input(NAME)?.read().await
}

fn of_vector(
    location: &str,
    size_bytes: u64,
    data_file: String,
    cardinality: u64,
    (offset, length): (u64, u64),
) -> iceberg::Result<DataFile> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    DataFileBuilder::default()
        .content(DataContentType::PositionDeletes)
        .file_path(location.to_owned())
        .file_format(DataFileFormat::Puffin)
        .partition(Struct::empty())
        .partition_spec_id(0)
        .record_count(cardinality)
        .file_size_in_bytes(size_bytes)
        .referenced_data_file(Some(data_file))
        .content_offset(Some(signed(offset)))
        .content_size_in_bytes(Some(signed(length)))
        .build()
        .map_err(|error| iceberg::Error::new(iceberg::ErrorKind::DataInvalid, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blobs_lie_where_the_entries_say() {
        let positions = [vec![0, 7], (0..70_000).collect::<Vec<u64>>(), vec![1 << 33]];
        let blobs: Vec<_> = positions
            .iter()
            .map(|positions| vector::encode(positions.iter().copied().collect()).unwrap())
            .enumerate()
            .map(|(number, blob)| (format!("/t/{number}"), positions[number].len() as u64, blob))
            .collect();
        let lengths: Vec<usize> = blobs.iter().map(|(_, _, blob)| blob.len()).collect();
        let file = puffin(blobs).await.unwrap();
        let mut offset = FIRST_BLOB as usize;
        for (length, positions) in lengths.into_iter().zip(positions) {
            let decoded = vector::decode(&file[offset..offset + length], positions.len() as u64).unwrap();
            assert_eq!(decoded.iter().collect::<Vec<_>>(), positions);
            offset += length;
        }
    }
}
