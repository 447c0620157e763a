//! The row delta: staged files -> manifests. They are written once for an epoch and serve every attempt to commit it:
//! their entries take their sequence number from the manifest list.

use std::collections::HashSet;

use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, FormatVersion, ManifestFile, ManifestWriter, ManifestWriterBuilder,
    StructType, TableMetadata, deserialize_data_file_from_json,
};
use iceferry_common::model::{StagedContent, StagedFile, staging_folder};
use uuid::Uuid;

use super::attempt::NewSnapshot;
use super::runs::run_metadata_folder;
use super::settings::manifest_target_bytes;
use super::summary::Added;
use super::{CommitError, EpochCommit};
use crate::catalog::LoadedTable;

/// The crate's marker for a sequence number that is inherited.
const INHERITED: i64 = -1;
/// A manifest entry takes about a third of its file's JSON: binary bounds there are lists of decimal numbers.
const JSON_BYTES_PER_ENTRY_BYTE: u64 = 3;

/// Checks what can be told without reading a data file's JSON: each file once, and each of this very run and epoch.
///
/// # Errors
/// [`CommitError::Staged`] names the first file that breaks this.
pub(super) fn check_locations(commit: &EpochCommit) -> Result<(), CommitError> {
    let folder = staging_folder(&commit.data_location, &commit.job, &commit.run);
    let start = format!("{folder}/{:06}-", commit.epoch.0);
    let mut seen = HashSet::with_capacity(commit.staged.len());
    for file in &commit.staged {
        if !file.location.starts_with(&start) || file.location[start.len()..].contains('/') {
            return Err(staged(
                commit,
                file,
                format!("it is not of this run and epoch, whose files begin with {start}"),
            ));
        }
        if !file.content.is_committed() {
            return Err(staged(commit, file, "it is none that a table can have".to_owned()));
        }
        if !seen.insert(file.location.as_str()) {
            return Err(staged(commit, file, "it was handed in twice".to_owned()));
        }
    }
    Ok(())
}

/// Writes the manifests of an epoch. Nothing of them is left behind when one cannot be written.
///
/// # Errors
/// [`CommitError::Staged`] for a file whose JSON contradicts it; others when a manifest cannot be written.
pub(super) async fn write_manifests(
    table: &LoadedTable,
    commit: &EpochCommit,
    id: i64,
) -> Result<NewSnapshot, CommitError> {
    let folder = run_metadata_folder(&table.metadata, &commit.job, &commit.run);
    let mut new = NewSnapshot { id, added: Added::default(), manifests: Vec::new(), folder };
    let limit = manifest_target_bytes(&table.metadata)?.saturating_mul(JSON_BYTES_PER_ENTRY_BYTE);
    let name = Uuid::new_v4();
    for content in [StagedContent::Data, StagedContent::EqualityDeletes] {
        let files: Vec<&StagedFile> = commit.staged.iter().filter(|file| file.content == content).collect();
        for group in groups(&files, limit) {
            let location = format!("{}/{name}-m{}.avro", new.folder, new.manifests.len());
            match write_manifest(table, commit, &mut new, &location, content, group).await {
                Ok(manifest) => new.manifests.push(manifest),
                Err(error) => {
                    new.remove_manifests(&table.storage).await;
                    return Err(error);
                }
            }
        }
    }
    Ok(new)
}

async fn write_manifest(
    table: &LoadedTable,
    commit: &EpochCommit,
    new: &mut NewSnapshot,
    location: &str,
    content: StagedContent,
    files: &[&StagedFile],
) -> Result<ManifestFile, CommitError> {
    let act = || format!("write manifest {location}");
    let output = table.storage.file_io().new_output(location).map_err(|error| CommitError::iceberg(act(), error))?;
    let mut writer = writer(&table.metadata, output, new.id, content);
    for file in files {
        let data_file = data_file(&table.metadata, commit, file)?;
        new.added.add(&data_file);
        writer.add_file(data_file, INHERITED).map_err(|error| CommitError::iceberg(act(), error))?;
    }
    writer.write_manifest_file().await.map_err(|error| CommitError::iceberg(act(), error))
}

fn writer(
    metadata: &TableMetadata,
    output: iceberg::io::OutputFile,
    snapshot_id: i64,
    content: StagedContent,
) -> ManifestWriter {
    let schema = metadata.current_schema().clone();
    let spec = metadata.default_partition_spec().as_ref().clone();
    let builder = ManifestWriterBuilder::new(output, Some(snapshot_id), schema, spec);
    match (content, metadata.format_version()) {
        (StagedContent::Data, FormatVersion::V3) => builder.build_v3_data(),
        (StagedContent::Data, _) => builder.build_v2_data(),
        (_, FormatVersion::V3) => builder.build_v3_deletes(),
        _ => builder.build_v2_deletes(),
    }
}

/// The manifest entry's data file; it must say what the staged file says.
fn data_file(metadata: &TableMetadata, commit: &EpochCommit, file: &StagedFile) -> Result<DataFile, CommitError> {
    let spec = metadata.default_partition_spec_id();
    let unpartitioned = StructType::new(Vec::new());
    let parsed = deserialize_data_file_from_json(&file.data_file, spec, &unpartitioned, metadata.current_schema());
    let parsed = parsed.map_err(|error| staged(commit, file, format!("its data file is not readable: {error}")))?;
    let content =
        if file.content == StagedContent::Data { DataContentType::Data } else { DataContentType::EqualityDeletes };
    let has_key = parsed.equality_ids().is_some_and(|ids| !ids.is_empty());
    let problem = if parsed.file_path() != file.location {
        Some(format!("its data file names {}", parsed.file_path()))
    } else if parsed.content_type() != content {
        Some(format!("its data file has content {:?}, not {content:?}", parsed.content_type()))
    } else if parsed.file_format() != DataFileFormat::Parquet {
        Some(format!("its format is {}, not Parquet", parsed.file_format()))
    } else if parsed.record_count() != file.record_count || parsed.file_size_in_bytes() != file.size_bytes {
        Some("its data file has another record count or size".to_owned())
    } else if has_key != (file.content == StagedContent::EqualityDeletes) {
        Some("equality fields belong to equality deletes, and to them alone".to_owned())
    } else if parsed.first_row_id().is_some() {
        Some("it has a first row id, which the commit assigns".to_owned())
    } else {
        None
    };
    problem.map_or(Ok(parsed), |problem| Err(staged(commit, file, problem)))
}

/// Cuts files into groups of about `limit` bytes of JSON, at least one file each.
fn groups<'a, 'f>(files: &'a [&'f StagedFile], limit: u64) -> Vec<&'a [&'f StagedFile]> {
    let mut groups = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, file) in files.iter().enumerate() {
        let more = file.data_file.len() as u64;
        if index > start && bytes + more > limit {
            groups.push(&files[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += more;
    }
    if start < files.len() {
        groups.push(&files[start..]);
    }
    groups
}

fn staged(commit: &EpochCommit, file: &StagedFile, problem: String) -> CommitError {
    CommitError::Staged { location: file.location.clone(), epoch: commit.epoch, problem }
}
