//! Where exchange files lie, and that none stays behind.

use std::fmt;
use std::sync::Arc;

use iceferry_common::fault::{Class, Classified, chain};
use iceferry_common::storage::Storage;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::ExchangeError;
use crate::stage::upload::{Ended, Sink, Upload};

/// Where the exchange files of one attempt go.
#[derive(Clone)]
pub struct Space {
    storage: Storage,
    runtime: Handle,
    cancel: CancellationToken,
    location: Arc<dyn Fn(usize) -> String + Send + Sync>,
    begun: usize,
}

impl Space {
    /// Files in `storage`; `location` names the one with a number. Requests run on `runtime`; once `cancel` is set nothing
    /// is written or read any more.
    pub fn new(
        storage: Storage,
        runtime: Handle,
        cancel: CancellationToken,
        location: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { storage, runtime, cancel, location: Arc::new(location), begun: 0 }
    }

    /// How many files were begun.
    pub fn files_begun(&self) -> usize {
        self.begun
    }

    /// Begins the next file.
    pub(super) fn begin(&mut self) -> Result<(File, Sink), ExchangeError> {
        let location = (self.location)(self.begun);
        self.begun += 1;
        let begun = Upload::begin(&self.storage, &self.runtime, &location);
        let (upload, sink) =
            begun.map_err(|source| ExchangeError::Upload { location: location.clone(), source: Box::new(source) })?;
        let (storage, runtime, cancel) = (self.storage.clone(), self.runtime.clone(), self.cancel.clone());
        Ok((File { storage, runtime, cancel, location, upload: Some(upload), is_removed: false }, sink))
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// A file that is removed when it is not wanted any more.
pub(super) struct File {
    pub(super) storage: Storage,
    pub(super) runtime: Handle,
    cancel: CancellationToken,
    pub(super) location: String,
    /// While it is being written.
    upload: Option<Upload>,
    /// Or given away.
    is_removed: bool,
}

impl File {
    /// An error once the attempt was told to stop.
    pub(super) fn go_on(&self) -> Result<(), ExchangeError> {
        if self.cancel.is_cancelled() { Err(ExchangeError::Cancelled) } else { Ok(()) }
    }

    /// Waits for the storage's answer. The sink must have completed or be gone.
    pub(super) fn settle(&mut self) -> Result<(), ExchangeError> {
        let Some(upload) = self.upload.take() else { return Ok(()) };
        let location = self.location.clone();
        match self.runtime.block_on(upload.ended()) {
            Ended::Well => Ok(()),
            Ended::Failed(source) => Err(ExchangeError::Upload { location, source: Box::new(source) }),
            Ended::CutOff => Err(ExchangeError::CutOff { location }),
        }
    }

    /// Leaves it to others, who will remove it. Gives its location.
    pub(super) fn hand_over(mut self) -> String {
        self.is_removed = true;
        self.location.clone()
    }

    /// Removes it, and waits for that. Gives its location when it may still be there. The sink must have completed or be
    /// gone.
    pub(super) fn remove(mut self) -> Option<String> {
        self.is_removed = true;
        let removal = remove(self.storage.clone(), self.upload.take(), self.location.clone());
        self.runtime.block_on(removal)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_removed {
            // A panic, or a caller that went away. Dropping must not wait, so the removal runs beside; what it misses is
            // removed with the run's folder.
            let removal = remove(self.storage.clone(), self.upload.take(), self.location.clone());
            drop(self.runtime.spawn(removal));
        }
    }
}

/// Waits for an upload to end and removes the file, however it ended: one whose answer was lost may have arrived.
async fn remove(storage: Storage, upload: Option<Upload>, location: String) -> Option<String> {
    if let Some(upload) = upload
        && let Ended::Failed(error) = upload.ended().await
    {
        tracing::debug!(location, error = %chain(&error), "upload of a given up exchange file failed");
    }
    match storage.delete(&location).await {
        Err(error) if error.class() != Class::NotFound => {
            tracing::warn!(location, error = %chain(&error), "exchange file could not be removed");
            Some(location)
        }
        Ok(()) | Err(_) => None,
    }
}
