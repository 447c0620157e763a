//! Scan tasks.

use iceferry_common::model::{
    Constant, DataFile, DeleteFile, DeleteKind, FileDifference, FileFormat, Resolution, ScanTask, Side, Split, TaskId,
};

use super::{ConvertError, required, required_text, work};
use crate::wire;

impl From<&ScanTask> for wire::ScanTask {
    fn from(task: &ScanTask) -> Self {
        Self {
            id: task.id.0,
            differences: task.differences.iter().map(Into::into).collect(),
            deletes: task.deletes.iter().map(Into::into).collect(),
            resolution: match task.resolution {
                Resolution::Keep => wire::Resolution::Keep,
                Resolution::CarryOver => wire::Resolution::CarryOver,
                Resolution::Updates => wire::Resolution::Updates,
                Resolution::Net => wire::Resolution::Net,
            }
            .into(),
            work: work::to_wire(&task.work),
        }
    }
}

impl TryFrom<wire::ScanTask> for ScanTask {
    type Error = ConvertError;

    fn try_from(task: wire::ScanTask) -> Result<Self, ConvertError> {
        let deletes = task.deletes.into_iter().map(TryInto::try_into).collect::<Result<Vec<DeleteFile>, _>>()?;
        let differences = task.differences.into_iter().map(TryInto::try_into);
        let differences = differences.collect::<Result<Vec<FileDifference>, _>>()?;
        for side in differences.iter().flat_map(|difference| [&difference.before, &difference.after]) {
            check_side(side, deletes.len())?;
        }
        let message = "ScanTask";
        let resolution = match wire::Resolution::try_from(task.resolution) {
            Ok(wire::Resolution::Keep) => Resolution::Keep,
            Ok(wire::Resolution::CarryOver) => Resolution::CarryOver,
            Ok(wire::Resolution::Updates) => Resolution::Updates,
            Ok(wire::Resolution::Net) => Resolution::Net,
            Ok(wire::Resolution::Unspecified) => return Err(ConvertError::Missing { message, field: "resolution" }),
            Err(_) => {
                return Err(ConvertError::UnknownValue { message, field: "resolution", value: task.resolution });
            }
        };
        let work = work::from_wire(task.work, differences.len(), deletes.len())?;
        Ok(Self { id: TaskId(task.id), differences, deletes, resolution, work })
    }
}

/// A side that names a delete which the task does not have would be read without that delete.
fn check_side(side: &Side, deletes: usize) -> Result<(), ConvertError> {
    let Side::Present(indexes) = side else { return Ok(()) };
    match indexes.iter().find(|&&index| usize::try_from(index).map_or(true, |index| index >= deletes)) {
        Some(index) => Err(ConvertError::Invalid {
            message: "Side",
            field: "deletes",
            problem: format!("it names delete file {index} of a task that has {deletes}"),
        }),
        None => Ok(()),
    }
}

impl From<&FileDifference> for wire::FileDifference {
    fn from(difference: &FileDifference) -> Self {
        Self {
            file: Some((&difference.file).into()),
            split: difference.split.map(|split| wire::Split { start: split.start, end: split.end }),
            before: side_to_wire(&difference.before),
            after: side_to_wire(&difference.after),
            commit: difference.commit.map(Into::into),
        }
    }
}

impl TryFrom<wire::FileDifference> for FileDifference {
    type Error = ConvertError;

    fn try_from(difference: wire::FileDifference) -> Result<Self, ConvertError> {
        let message = "FileDifference";
        if difference.before.is_none() && difference.after.is_none() {
            return Err(ConvertError::Missing { message, field: "both before and after" });
        }
        Ok(Self {
            file: required(difference.file, message, "file")?.try_into()?,
            split: difference.split.map(TryInto::try_into).transpose()?,
            before: side_from_wire(difference.before),
            after: side_from_wire(difference.after),
            commit: difference.commit.map(Into::into),
        })
    }
}

fn side_to_wire(side: &Side) -> Option<wire::Side> {
    match side {
        Side::Absent => None,
        Side::Present(deletes) => Some(wire::Side { deletes: deletes.clone() }),
    }
}

fn side_from_wire(side: Option<wire::Side>) -> Side {
    side.map_or(Side::Absent, |side| Side::Present(side.deletes))
}

impl TryFrom<wire::Split> for Split {
    type Error = ConvertError;

    fn try_from(split: wire::Split) -> Result<Self, ConvertError> {
        if split.end < split.start {
            let problem = format!("it ends at byte {} and starts at byte {}", split.end, split.start);
            return Err(ConvertError::Invalid { message: "Split", field: "end", problem });
        }
        Ok(Self { start: split.start, end: split.end })
    }
}

impl From<&DataFile> for wire::DataFile {
    fn from(file: &DataFile) -> Self {
        Self {
            location: file.location.clone(),
            format: format_to_wire(file.format).into(),
            size_bytes: file.size_bytes,
            record_count: file.record_count,
            constants: file.constants.iter().map(Into::into).collect(),
            sequence_number: file.sequence_number,
            first_row_id: file.first_row_id,
            spec_id: file.spec_id,
            partition: file.partition.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::DataFile> for DataFile {
    type Error = ConvertError;

    fn try_from(file: wire::DataFile) -> Result<Self, ConvertError> {
        let message = "DataFile";
        Ok(Self {
            location: required_text(file.location, message, "location")?,
            format: format_from_wire(file.format, message)?,
            size_bytes: file.size_bytes,
            record_count: file.record_count,
            constants: file.constants.into_iter().map(Into::into).collect(),
            sequence_number: file.sequence_number,
            first_row_id: file.first_row_id,
            spec_id: file.spec_id,
            partition: file.partition.into_iter().map(Into::into).collect(),
        })
    }
}

impl From<&Constant> for wire::Constant {
    fn from(constant: &Constant) -> Self {
        Self { field_id: constant.field_id, value: constant.value.clone() }
    }
}

impl From<wire::Constant> for Constant {
    fn from(constant: wire::Constant) -> Self {
        Self { field_id: constant.field_id, value: constant.value }
    }
}

impl From<&DeleteFile> for wire::DeleteFile {
    fn from(file: &DeleteFile) -> Self {
        use wire::delete_file::Kind;
        let kind = match &file.kind {
            DeleteKind::Position => Kind::Position(wire::PositionDeletes {}),
            DeleteKind::Vector { offset, length } => {
                Kind::Vector(wire::DeletionVector { offset: *offset, length: *length })
            }
            DeleteKind::Equality { field_ids } => {
                Kind::Equality(wire::EqualityDeletes { field_ids: field_ids.clone() })
            }
        };
        Self {
            location: file.location.clone(),
            format: format_to_wire(file.format).into(),
            size_bytes: file.size_bytes,
            record_count: file.record_count,
            kind: Some(kind),
        }
    }
}

impl TryFrom<wire::DeleteFile> for DeleteFile {
    type Error = ConvertError;

    fn try_from(file: wire::DeleteFile) -> Result<Self, ConvertError> {
        use wire::delete_file::Kind;
        let message = "DeleteFile";
        let kind = match required(file.kind, message, "kind")? {
            Kind::Position(wire::PositionDeletes {}) => DeleteKind::Position,
            Kind::Vector(vector) => DeleteKind::Vector { offset: vector.offset, length: vector.length },
            // Deleting by no column at all would delete every row.
            Kind::Equality(equality) if equality.field_ids.is_empty() => {
                return Err(ConvertError::Missing { message: "EqualityDeletes", field: "field_ids" });
            }
            Kind::Equality(equality) => DeleteKind::Equality { field_ids: equality.field_ids },
        };
        Ok(Self {
            location: required_text(file.location, message, "location")?,
            format: format_from_wire(file.format, message)?,
            size_bytes: file.size_bytes,
            record_count: file.record_count,
            kind,
        })
    }
}

fn format_to_wire(format: FileFormat) -> wire::FileFormat {
    match format {
        FileFormat::Parquet => wire::FileFormat::Parquet,
        FileFormat::Avro => wire::FileFormat::Avro,
        FileFormat::Orc => wire::FileFormat::Orc,
        FileFormat::Puffin => wire::FileFormat::Puffin,
    }
}

fn format_from_wire(format: i32, message: &'static str) -> Result<FileFormat, ConvertError> {
    match wire::FileFormat::try_from(format) {
        Ok(wire::FileFormat::Parquet) => Ok(FileFormat::Parquet),
        Ok(wire::FileFormat::Avro) => Ok(FileFormat::Avro),
        Ok(wire::FileFormat::Orc) => Ok(FileFormat::Orc),
        Ok(wire::FileFormat::Puffin) => Ok(FileFormat::Puffin),
        Ok(wire::FileFormat::Unspecified) => Err(ConvertError::Missing { message, field: "format" }),
        Err(_) => Err(ConvertError::UnknownValue { message, field: "format", value: format }),
    }
}
