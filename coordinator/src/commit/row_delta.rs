//! The row delta: staged files -> manifests. They are written once for an epoch and serve every attempt to commit it:
//! their entries take their sequence number from the manifest list.

use iceberg::spec::{FormatVersion, ManifestFile, ManifestWriter, ManifestWriterBuilder, TableMetadata};
use iceferry_common::model::{StagedContent, StagedFile};
use uuid::Uuid;

use super::attempt::NewSnapshot;
use super::check::{References, data_file};
use super::runs::run_metadata_folder;
use super::settings::manifest_target_bytes;
use super::summary::Added;
use super::{CommitError, EpochCommit};
use crate::catalog::LoadedTable;

/// The crate's marker for a sequence number that is inherited.
const INHERITED: i64 = -1;
/// A manifest entry takes about a third of its file's JSON: binary bounds there are lists of decimal numbers.
const JSON_BYTES_PER_ENTRY_BYTE: u64 = 3;

/// Writes the manifests of an epoch. Nothing of them is left behind when one cannot be written.
///
/// # Errors
/// [`CommitError::Staged`] for a file that breaks a promise; others when a manifest cannot be written.
pub(super) async fn write_manifests(
    table: &LoadedTable,
    commit: &EpochCommit,
    id: i64,
) -> Result<NewSnapshot, CommitError> {
    let folder = run_metadata_folder(&table.metadata, &commit.job, &commit.run);
    let mut new = NewSnapshot { id, added: Added::default(), manifests: Vec::new(), folder };
    let limit = manifest_target_bytes(&table.metadata)?.saturating_mul(JSON_BYTES_PER_ENTRY_BYTE);
    let name = Uuid::new_v4();
    let mut references = References::new(commit);
    for is_data in [true, false] {
        let is_wanted = |file: &&StagedFile| (file.content == StagedContent::Data) == is_data;
        let files: Vec<&StagedFile> = commit.staged.iter().filter(is_wanted).collect();
        for group in groups(&files, limit) {
            let location = format!("{}/{name}-m{}.avro", new.folder, new.manifests.len());
            match write_manifest(table, &mut references, &mut new, &location, is_data, group).await {
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

async fn write_manifest<'a>(
    table: &LoadedTable,
    references: &mut References<'a>,
    new: &mut NewSnapshot,
    location: &str,
    is_data: bool,
    files: &[&'a StagedFile],
) -> Result<ManifestFile, CommitError> {
    let act = || format!("write manifest {location}");
    let output = table.storage.file_io().new_output(location).map_err(|error| CommitError::iceberg(act(), error))?;
    let mut writer = writer(&table.metadata, output, new.id, is_data);
    for file in files {
        let data_file = data_file(&table.metadata, references.commit, file)?;
        references.check(file, &data_file)?;
        new.added.add(&data_file);
        writer.add_file(data_file, INHERITED).map_err(|error| CommitError::iceberg(act(), error))?;
    }
    writer.write_manifest_file().await.map_err(|error| CommitError::iceberg(act(), error))
}

fn writer(
    metadata: &TableMetadata,
    output: iceberg::io::OutputFile,
    snapshot_id: i64,
    is_data: bool,
) -> ManifestWriter {
    let schema = metadata.current_schema().clone();
    let spec = metadata.default_partition_spec().as_ref().clone();
    let builder = ManifestWriterBuilder::new(output, Some(snapshot_id), schema, spec);
    match (is_data, metadata.format_version()) {
        (true, FormatVersion::V3) => builder.build_v3_data(),
        (true, _) => builder.build_v2_data(),
        (false, FormatVersion::V3) => builder.build_v3_deletes(),
        _ => builder.build_v2_deletes(),
    }
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
