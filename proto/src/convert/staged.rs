//! What an attempt hands back.

use iceferry_common::model::{Attempt, RowCounts, StagedContent, StagedFile, TaskId, TaskOutput};

use super::{ConvertError, required, required_text};
use crate::wire;

impl From<&TaskOutput> for wire::TaskOutput {
    fn from(output: &TaskOutput) -> Self {
        Self {
            task: output.task.0,
            attempt: output.attempt.0,
            files: output.files.iter().map(Into::into).collect(),
            rows: Some(output.rows.into()),
            exchanged: output.exchanged.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::TaskOutput> for TaskOutput {
    type Error = ConvertError;

    fn try_from(output: wire::TaskOutput) -> Result<Self, ConvertError> {
        Ok(Self {
            task: TaskId(output.task),
            attempt: Attempt(output.attempt),
            files: output.files.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            rows: required(output.rows, "TaskOutput", "rows")?.into(),
            exchanged: output.exchanged.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&StagedFile> for wire::StagedFile {
    fn from(file: &StagedFile) -> Self {
        let content = match file.content {
            StagedContent::Data => wire::StagedContent::Data,
            StagedContent::EqualityDeletes => wire::StagedContent::EqualityDeletes,
            StagedContent::PositionDeletes => wire::StagedContent::PositionDeletes,
            StagedContent::DeletionVector => wire::StagedContent::DeletionVector,
            StagedContent::Digest => wire::StagedContent::Digest,
            StagedContent::RowHashes => wire::StagedContent::RowHashes,
            StagedContent::ShownRows => wire::StagedContent::ShownRows,
        };
        Self {
            location: file.location.clone(),
            content: content.into(),
            record_count: file.record_count,
            size_bytes: file.size_bytes,
            data_file: file.data_file.to_vec(),
        }
    }
}

impl TryFrom<wire::StagedFile> for StagedFile {
    type Error = ConvertError;

    fn try_from(file: wire::StagedFile) -> Result<Self, ConvertError> {
        let message = "StagedFile";
        let content = match wire::StagedContent::try_from(file.content) {
            Ok(wire::StagedContent::Data) => StagedContent::Data,
            Ok(wire::StagedContent::EqualityDeletes) => StagedContent::EqualityDeletes,
            Ok(wire::StagedContent::PositionDeletes) => StagedContent::PositionDeletes,
            Ok(wire::StagedContent::DeletionVector) => StagedContent::DeletionVector,
            Ok(wire::StagedContent::Digest) => StagedContent::Digest,
            Ok(wire::StagedContent::RowHashes) => StagedContent::RowHashes,
            Ok(wire::StagedContent::ShownRows) => StagedContent::ShownRows,
            Ok(wire::StagedContent::Unspecified) => return Err(ConvertError::Missing { message, field: "content" }),
            Err(_) => return Err(ConvertError::UnknownValue { message, field: "content", value: file.content }),
        };
        if content.is_committed() && file.data_file.is_empty() {
            return Err(ConvertError::Missing { message, field: "data_file" });
        }
        Ok(Self {
            location: required_text(file.location, message, "location")?,
            content,
            record_count: file.record_count,
            size_bytes: file.size_bytes,
            data_file: file.data_file.into(),
        })
    }
}

impl From<RowCounts> for wire::RowCounts {
    fn from(rows: RowCounts) -> Self {
        Self {
            read: rows.read,
            inserted: rows.inserted,
            deleted: rows.deleted,
            updated: rows.updated,
            carried_over: rows.carried_over,
            bytes_read: rows.bytes_read,
            bytes_written: rows.bytes_written,
            files_copied: rows.files_copied,
            files_spliced: rows.files_spliced,
            files_decoded: rows.files_decoded,
        }
    }
}

impl From<wire::RowCounts> for RowCounts {
    fn from(rows: wire::RowCounts) -> Self {
        Self {
            read: rows.read,
            inserted: rows.inserted,
            deleted: rows.deleted,
            updated: rows.updated,
            carried_over: rows.carried_over,
            bytes_read: rows.bytes_read,
            bytes_written: rows.bytes_written,
            files_copied: rows.files_copied,
            files_spliced: rows.files_spliced,
            files_decoded: rows.files_decoded,
        }
    }
}
