//! Cleaning up after a run that was killed: what it wrote and nobody references goes, and nothing else.

use std::collections::{BTreeMap, HashSet};

use iceberg::spec::Manifest;
use iceferry_common::model::{JobName, RunId, staging_folder};
use iceferry_common::storage::Storage;

use super::attempt::{read_manifest_list, require_all};
use super::runs::{RunMarker, note_taken_over};
use super::{CommitError, current_fence};
use crate::catalog::{Catalog, CatalogError, LoadedTable};

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files, metadata files among them.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes what a dead run left: staged files, manifests and manifest lists that no snapshot of the table references. Only
/// files in that run's own folders are ever looked at. `table` is the table as [`super::take_over`] gave it to the run
/// `by`, or any later one. The run may be alive nevertheless, so its marker stays for a day, and runs until then look again.
///
/// # Errors
/// [`CommitError::NotTakenOver`] unless `by` holds the job's fence in `table`, or the dead run was taken over before: until
/// then it might still commit what is to be removed. Others when a file cannot be read, listed or removed; what is left is found by the next run.
pub async fn clean_up(
    table: &LoadedTable,
    job: &JobName,
    dead: &RunMarker,
    by: &RunId,
) -> Result<Removed, CommitError> {
    let holder = current_fence(&table.metadata, job)?;
    let is_fenced = dead.is_fenced(holder.as_ref()) || holder.is_some_and(|holder| holder.run == *by);
    if !is_fenced || dead.run == *by {
        let (job, run, dead) = (job.clone(), by.clone(), dead.run.clone());
        return Err(CommitError::NotTakenOver { job, table: table.ident.to_string(), run, dead });
    }
    let written = Unreferenced::list(table, job, dead).await?;
    let found = written.len();
    let removed = match dead.taken_over {
        Some(then) if then.files_kept == found => Removed::default(),
        _ => sweep(table, job, dead, written).await?,
    };
    note_taken_over(table, job, dead, found - removed.files).await?;
    Ok(removed)
}

/// Removes what this very run left: files of attempts that failed or lost. Its marker stays; [`end_run`] takes it away.
/// Only for a run whose commits are all settled and whose workers write nothing any more. `table` is the table as the run
/// knows it; what it references now is asked of the catalog, after the files are listed.
///
/// # Errors
/// When the table cannot be loaded, or a file cannot be read, listed or removed.
pub async fn clean_up_own(
    catalog: &dyn Catalog,
    table: &LoadedTable,
    job: &JobName,
    marker: &RunMarker,
) -> Result<Removed, CommitError> {
    let written = Unreferenced::list(table, job, marker).await?;
    if written.is_empty() {
        return Ok(Removed::default());
    }
    let now = match catalog.load_table(&table.ident).await {
        Ok(now) => now,
        // A table that was not made references nothing.
        Err(CatalogError::TableNotFound { .. } | CatalogError::NotFound { .. }) if table.is_staged() => table.clone(),
        Err(error) => return Err(CommitError::Catalog(Box::new(error))),
    };
    sweep(&now, job, marker, written).await
}

async fn sweep(
    table: &LoadedTable,
    job: &JobName,
    of: &RunMarker,
    mut unreferenced: Unreferenced,
) -> Result<Removed, CommitError> {
    unreferenced.subtract(table).await?;
    let mut removed = Removed::default();
    // Manifests last: while a staged file is there, the metadata files that may name it are too.
    for folder in [unreferenced.staged, unreferenced.metadata] {
        for (name, bytes) in folder.files {
            let location = format!("{}/{name}", folder.location);
            let deleted = table.storage.delete(&location).await;
            deleted.map_err(|source| CommitError::storage(format!("clean up after run {}", of.run), source))?;
            removed.files += 1;
            removed.bytes += bytes;
        }
    }
    tracing::info!(
        job = job.as_str(),
        table = %table.ident,
        run = of.run.0,
        files = removed.files,
        bytes = removed.bytes,
        "removed what a run left behind"
    );
    Ok(removed)
}

fn is_run_folder(folder: &str, job: &JobName, run: &RunId) -> bool {
    folder.ends_with(&format!("/iceferry/{job}/{run}"))
}

/// Files in one folder, by their name below it, with their sizes.
#[derive(Debug, Default)]
struct Folder {
    location: String,
    files: BTreeMap<String, u64>,
}

impl Folder {
    async fn list(storage: &Storage, location: String) -> Result<Self, CommitError> {
        let listed = storage.list(&location).await;
        let listed = listed.map_err(|source| CommitError::storage("look for files of an unfinished run", source))?;
        let name = |found: &str| found.strip_prefix(&location).map(|rest| rest.trim_start_matches('/').to_owned());
        let files = listed.into_iter().filter_map(|found| Some((name(&found.location)?, found.size_bytes))).collect();
        Ok(Self { location, files })
    }
}

/// The run's files, fewer and fewer as references to them are found.
#[derive(Debug)]
struct Unreferenced {
    staged: Folder,
    metadata: Folder,
    /// The part of a path that is the run's own. The run's id is unlike any other, so a reference is told by it and by
    /// what follows, in whatever form others wrote the beginning (`file:/a`, `/a`).
    of: String,
}

impl Unreferenced {
    /// All that the run wrote, referenced or not.
    async fn list(table: &LoadedTable, job: &JobName, of: &RunMarker) -> Result<Self, CommitError> {
        let staged = Folder::list(&table.storage, staging_folder(&of.data_location, job, &of.run)).await?;
        let metadata = match is_run_folder(&of.metadata_folder, job, &of.run) {
            true => Folder::list(&table.storage, of.metadata_folder.clone()).await?,
            // A marker that somebody edited: what it names is not the run's own.
            false => Folder::default(),
        };
        Ok(Self { staged, metadata, of: format!("/iceferry/{job}/{}/", of.run) })
    }

    fn len(&self) -> u64 {
        (self.staged.files.len() + self.metadata.files.len()) as u64
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out what any snapshot of the table references. Each manifest is read once, one at a time, and none when
    /// nothing is left that it could save.
    async fn subtract(&mut self, table: &LoadedTable) -> Result<(), CommitError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        for snapshot in table.metadata.snapshots() {
            reference(&mut self.metadata, &self.of, snapshot.manifest_list());
            for manifest in read_manifest_list(&table.storage, &table.metadata, snapshot).await? {
                if !seen.insert(manifest.manifest_path.clone()) {
                    continue;
                }
                reference(&mut self.metadata, &self.of, &manifest.manifest_path);
                if self.staged.files.is_empty() {
                    continue;
                }
                let act = || format!("read manifest {}", manifest.manifest_path);
                let bytes = table.storage.read(&manifest.manifest_path).await;
                let bytes = bytes.map_err(|source| CommitError::storage(act(), source))?;
                let parsed = Manifest::parse_avro(&bytes).map_err(|error| CommitError::iceberg(act(), error))?;
                require_all(&bytes, parsed.entries().len()).map_err(|error| CommitError::iceberg(act(), error))?;
                for entry in parsed.entries() {
                    // Deleted entries too: an older snapshot may still show the file, and expiry removes it.
                    reference(&mut self.staged, &self.of, entry.file_path());
                }
            }
        }
        Ok(())
    }
}

fn reference(folder: &mut Folder, of: &str, path: &str) {
    if let Some((_, name)) = path.rsplit_once(of) {
        folder.files.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_counts_in_whatever_form_it_is_written() {
        for (path, is_reference) in [
            ("/w/t/data/iceferry/orders/r1/a.parquet", true),
            ("file:/w/t/data/iceferry/orders/r1/a.parquet", true),
            ("s3a://b/t/data/iceferry/orders/r1/a.parquet", true),
            ("/w/iceferry/orders/r1/t/data/iceferry/orders/r1/a.parquet", true),
            ("/w/t/data/iceferry/orders/r2/a.parquet", false),
            ("/w/t/data/iceferry/orders2/r1/a.parquet", false),
            ("/w/t/data/iceferry/orders/r1/b/a.parquet", false),
            ("/w/t/data/a.parquet", false),
        ] {
            let files = BTreeMap::from([("a.parquet".to_owned(), 1)]);
            let mut folder = Folder { location: "/w/t/data/iceferry/orders/r1".to_owned(), files };
            reference(&mut folder, "/iceferry/orders/r1/", path);
            assert_eq!(folder.files.is_empty(), is_reference, "{path}");
        }
    }
}
