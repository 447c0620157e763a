//! The metadata folder of one Hadoop table: finding the newest version, and adding the next one.

use bytes::Bytes;
use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::storage::{Created, Storage, StorageError};

use super::super::CatalogError;
use super::super::metadata::Encoded;
use super::versions::{self, Version};

const HINT: &str = "version-hint.text";

/// How many versions after the hinted one are looked for by name before the folder is listed instead.
const PROBES_MAX: u32 = 16;

/// What became of a new version.
#[derive(Debug)]
pub(super) enum Published {
    /// It is there, and ours.
    Ours(String),
    /// Somebody else has this version.
    Taken,
    /// It may be there now, or come to be there.
    Unclear(CatalogError),
    /// It is certainly not there.
    Failed(CatalogError),
}

/// A table's metadata folder.
#[derive(Debug)]
pub(super) struct Folder<'a> {
    pub(super) storage: &'a Storage,
    pub(super) location: String,
}

impl Folder<'_> {
    /// The location of a file in the folder.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }

    /// The newest version; `None` when there is none.
    pub(super) async fn newest(&self) -> Result<Option<Version>, StorageError> {
        // Whatever is wrong with the hint, the listing tells; if storage is at fault, the listing says so too.
        let hint = self.storage.read(&self.file(HINT)).await.ok();
        if let Some(hinted) = hint.as_deref().and_then(versions::parse_hint)
            && let Some(found) = self.newest_from(hinted).await?
        {
            return Ok(Some(found));
        }
        let listed = self.storage.list(&self.location).await?;
        let names = listed.iter().filter_map(|file| file.location.strip_prefix(&self.location)?.strip_prefix('/'));
        Ok(versions::newest(names))
    }

    /// The newest version when it is the hinted one or a little after it.
    async fn newest_from(&self, hinted: u32) -> Result<Option<Version>, StorageError> {
        let Some(mut newest) = self.version(hinted).await? else {
            return Ok(None);
        };
        for _ in 0..PROBES_MAX {
            match self.version(newest.number.saturating_add(1)).await? {
                Some(next) if next.number > newest.number => newest = next,
                _ => return Ok(Some(newest)),
            }
        }
        Ok(None)
    }

    /// The file of a version, in whatever spelling.
    async fn version(&self, number: u32) -> Result<Option<Version>, StorageError> {
        for name in versions::spellings(number) {
            if self.storage.size(&self.file(&name)).await?.is_some() {
                return Ok(Some(Version { number, name }));
            }
        }
        Ok(None)
    }

    /// Adds a version, if nobody has it. The create is the commit: exactly one of many writers gets a version.
    pub(super) async fn publish(&self, number: u32, encoded: &Encoded, act: &str) -> Published {
        let name = versions::name(number, encoded.gzip);
        let location = self.file(&name);
        match self.storage.create(&location, encoded.bytes.clone()).await {
            Ok(Created::New) => {}
            Ok(Created::AlreadyThere) => return Published::Taken,
            // A disk may be full, or fail, after the file got its name.
            Err(_) if self.holds(&location, &encoded.bytes).await => {}
            Err(source) if source.class() == Class::Transient => {
                return Published::Unclear(CatalogError::storage(act, source));
            }
            Err(source) => return Published::Failed(CatalogError::storage(act, source)),
        }
        self.give_way_to_other_spelling(number, &name, act).await.unwrap_or(Published::Ours(location))
    }

    /// Whether a file holds exactly these bytes: a create that failed may have been carried out.
    async fn holds(&self, location: &str, bytes: &Bytes) -> bool {
        self.storage.read(location).await.is_ok_and(|there| there == bytes)
    }

    /// A writer that compresses and one that does not create different names for one version, and both succeed. Each
    /// looks for the other's file after its own is there, so at least one sees it and gives way.
    async fn give_way_to_other_spelling(&self, number: u32, ours: &str, act: &str) -> Option<Published> {
        let failed = |source| CatalogError::storage(act, source);
        for other in versions::spellings(number) {
            if other == ours {
                continue;
            }
            match self.storage.size(&self.file(&other)).await {
                Ok(None) => {}
                Ok(Some(_)) => {
                    return Some(match self.storage.delete(&self.file(ours)).await {
                        Ok(()) => Published::Taken,
                        Err(source) => Published::Unclear(failed(source)),
                    });
                }
                Err(source) => return Some(Published::Unclear(failed(source))),
            }
        }
        None
    }

    /// Points the hint at a version. Readers find a version without it, only slower.
    pub(super) async fn hint(&self, number: u32) {
        let hint = self.file(HINT);
        if let Err(error) = self.storage.write(&hint, Bytes::from(number.to_string())).await {
            tracing::warn!(hint, error = chain(&error), "the version hint was not written");
        }
    }
}
