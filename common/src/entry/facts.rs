//! What an entry says of its file, its metrics apart.

use iceberg::spec::{DataContentType, DataFileFormat};

use super::avro::Cursor;

/// Bytes that are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DamagedEntry {
    /// They end too early.
    #[error("it ends within {field}")]
    CutOff {
        /// Where.
        field: &'static str,
    },
    /// A value that cannot be.
    #[error("its {field} has a value that cannot be")]
    Impossible {
        /// Which.
        field: &'static str,
    },
    /// They go on after the last field.
    #[error("it goes on after its last field")]
    TooLong,
}

/// What an entry says of its file. All of the entry was read, its metrics too: it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Data or deletes.
    pub content: DataContentType,
    /// Full location.
    pub location: &'a str,
    /// The file's format.
    pub format: DataFileFormat,
    /// Rows, or the cardinality of a deletion vector.
    pub record_count: u64,
    /// Size of the file.
    pub size_bytes: u64,
    /// Number of the key's fields of an equality delete file.
    pub equality_fields: u64,
    /// The id of its first row, where it was written out.
    pub first_row_id: Option<i64>,
    /// The one data file that position deletes are of.
    pub referenced_data_file: Option<&'a str>,
    /// Where a deletion vector begins.
    pub content_offset: Option<i64>,
    /// Bytes of a deletion vector.
    pub content_size_bytes: Option<i64>,
}

impl<'a> Facts<'a> {
    /// Reads an entry as [`super::encode`] made it.
    ///
    /// # Errors
    /// [`DamagedEntry`] says where it is none.
    pub fn read(entry: &'a [u8]) -> Result<Self, DamagedEntry> {
        let mut at = Cursor::new(entry);
        let impossible = |field| DamagedEntry::Impossible { field };
        let content = match at.long("content")? {
            0 => DataContentType::Data,
            1 => DataContentType::PositionDeletes,
            2 => DataContentType::EqualityDeletes,
            _ => return Err(impossible("content")),
        };
        let location = at.text("location")?;
        let format = at.text("format")?.parse().map_err(|_| impossible("format"))?;
        let (record_count, size_bytes) = (at.count("record count")?, at.count("size")?);
        for field in ["column sizes", "value counts", "null value counts", "nan value counts"] {
            at.optional(field, |at| {
                at.array(field, |at| {
                    at.long(field)?;
                    at.count(field).map(drop)
                })
            })?;
        }
        for field in ["lower bounds", "upper bounds"] {
            at.optional(field, |at| {
                at.array(field, |at| {
                    at.long(field)?;
                    at.bytes(field).map(drop)
                })
            })?;
        }
        at.optional("key metadata", |at| at.bytes("key metadata"))?;
        let field = "split offsets";
        at.optional(field, |at| at.array(field, |at| at.long(field).map(drop)))?;
        let field = "equality fields";
        let equality_fields = at.optional(field, |at| at.array(field, |at| at.long(field).map(drop)))?.unwrap_or(0);
        at.optional("sort order", |at| at.long("sort order"))?;
        let facts = Self {
            content,
            location,
            format,
            record_count,
            size_bytes,
            equality_fields,
            first_row_id: at.optional("first row id", |at| at.long("first row id"))?,
            referenced_data_file: at.optional("referenced data file", |at| at.text("referenced data file"))?,
            content_offset: at.optional("content offset", |at| at.long("content offset"))?,
            content_size_bytes: at.optional("content size", |at| at.long("content size"))?,
        };
        if at.is_at_end() { Ok(facts) } else { Err(DamagedEntry::TooLong) }
    }

    /// Whether it is a deletion vector.
    pub fn is_vector(&self) -> bool {
        self.content == DataContentType::PositionDeletes && self.format == DataFileFormat::Puffin
    }
}
