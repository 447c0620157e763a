//! Our storage as the iceberg crate wants it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, StorageConfig, StorageFactory,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::{Storage, StorageError, StorageProperties};
use crate::fault::{Class, Classified};

/// Makes [`FileIO`]s whose bytes go through [`Storage`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectStoreFactory {
    properties: StorageProperties,
}

/// [`Storage`] behind the iceberg crate's trait. It serialises as its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "StorageProperties", into = "StorageProperties")]
struct ObjectStoreIo {
    storage: Storage,
}

impl From<StorageProperties> for ObjectStoreIo {
    fn from(properties: StorageProperties) -> Self {
        Self { storage: Storage::new(properties) }
    }
}

impl From<ObjectStoreIo> for StorageProperties {
    fn from(io: ObjectStoreIo) -> Self {
        io.storage.properties
    }
}

pub(super) fn file_io(storage: &Storage) -> FileIO {
    FileIOBuilder::new(Arc::new(ObjectStoreFactory { properties: storage.properties.clone() })).build()
}

fn failed(error: StorageError) -> iceberg::Error {
    let kind = match error.class() {
        Class::Corrupt => iceberg::ErrorKind::DataInvalid,
        Class::Refused => iceberg::ErrorKind::FeatureUnsupported,
        _ => iceberg::ErrorKind::Unexpected,
    };
    iceberg::Error::new(kind, error.to_string()).with_source(error)
}

#[typetag::serde]
impl StorageFactory for ObjectStoreFactory {
    fn build(&self, _config: &StorageConfig) -> iceberg::Result<Arc<dyn iceberg::io::Storage>> {
        Ok(Arc::new(ObjectStoreIo { storage: Storage::new(self.properties.clone()) }))
    }
}

#[async_trait]
#[typetag::serde]
impl iceberg::io::Storage for ObjectStoreIo {
    async fn exists(&self, path: &str) -> iceberg::Result<bool> {
        Ok(self.storage.size(path).await.map_err(failed)?.is_some())
    }

    async fn metadata(&self, path: &str) -> iceberg::Result<FileMetadata> {
        match self.storage.size(path).await.map_err(failed)? {
            Some(size) => Ok(FileMetadata { size }),
            None => Err(iceberg::Error::new(iceberg::ErrorKind::Unexpected, format!("{path} is not there"))),
        }
    }

    async fn read(&self, path: &str) -> iceberg::Result<Bytes> {
        self.storage.read(path).await.map_err(failed)
    }

    async fn reader(&self, path: &str) -> iceberg::Result<Box<dyn FileRead>> {
        Ok(Box::new(RangeReader { storage: self.storage.clone(), location: path.to_owned() }))
    }

    async fn write(&self, path: &str, bs: Bytes) -> iceberg::Result<()> {
        self.storage.write(path, bs).await.map_err(failed)
    }

    async fn writer(&self, path: &str) -> iceberg::Result<Box<dyn FileWrite>> {
        let upload = self.storage.upload(path).map_err(failed)?;
        Ok(Box::new(Upload { upload, location: path.to_owned() }))
    }

    async fn delete(&self, path: &str) -> iceberg::Result<()> {
        self.storage.delete(path).await.map_err(failed)
    }

    async fn delete_prefix(&self, path: &str) -> iceberg::Result<()> {
        for found in self.storage.list(path).await.map_err(failed)? {
            self.storage.delete(&found.location).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> iceberg::Result<()> {
        while let Some(path) = paths.next().await {
            self.storage.delete(&path).await.map_err(failed)?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> iceberg::Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.to_owned()))
    }

    fn new_output(&self, path: &str) -> iceberg::Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.to_owned()))
    }
}

struct RangeReader {
    storage: Storage,
    location: String,
}

#[async_trait]
impl FileRead for RangeReader {
    async fn read(&self, range: Range<u64>) -> iceberg::Result<Bytes> {
        self.storage.read_range(&self.location, range).await.map_err(failed)
    }
}

struct Upload {
    upload: object_store::buffered::BufWriter,
    location: String,
}

impl Upload {
    fn failed(&self, error: std::io::Error) -> iceberg::Error {
        iceberg::Error::new(iceberg::ErrorKind::Unexpected, format!("write {}", self.location)).with_source(error)
    }
}

#[async_trait]
impl FileWrite for Upload {
    async fn write(&mut self, bs: Bytes) -> iceberg::Result<()> {
        // put() hands the buffer over as it is; write_all() would copy it.
        let put = self.upload.put(bs).await;
        put.map_err(|error| self.failed(error.into()))
    }

    async fn close(&mut self) -> iceberg::Result<()> {
        let closed = self.upload.shutdown().await;
        closed.map_err(|error| self.failed(error))
    }
}
