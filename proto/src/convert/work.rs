//! What is done with the rows of a scan task.

use iceferry_common::model::{
    ColumnMetrics, CopyWork, DigestWork, ExchangeBlock, ExchangeFile, ExchangeSide, ExchangeWork, PassDeletesWork,
    ResolveWork, ShowWork, TaskId, Work,
};

use super::{ConvertError, required_text};
use crate::wire;
use crate::wire::scan_task::Work as Wire;

pub(super) fn to_wire(work: &Work) -> Option<Wire> {
    match work {
        Work::Stage => None,
        Work::Digest(DigestWork { key, bucket_bits }) => {
            Some(Wire::Digest(wire::DigestWork { key: key.clone(), bucket_bits: u32::from(*bucket_bits) }))
        }
        Work::Show(ShowWork { rows }) => {
            let rows = rows.iter().map(|positions| wire::Positions { positions: positions.clone() });
            Some(Wire::Show(wire::ShowWork { rows: rows.collect() }))
        }
        Work::Exchange(ExchangeWork { tasks, first_resolve, hash_version }) => {
            Some(Wire::Exchange(wire::ExchangeWork {
                tasks: *tasks,
                first_resolve: first_resolve.0,
                hash_version: *hash_version,
            }))
        }
        Work::Resolve(ResolveWork { bucket, files }) => {
            Some(Wire::Resolve(wire::ResolveWork { bucket: *bucket, files: files.iter().map(Into::into).collect() }))
        }
        Work::Copy(CopyWork { metrics, dead_percent_max }) => {
            let of_file =
                |columns: &Vec<ColumnMetrics>| wire::FileMetrics { columns: columns.iter().map(Into::into).collect() };
            let metrics = metrics.iter().map(of_file).collect();
            Some(Wire::Copy(wire::CopyWork { metrics, dead_percent_max: u32::from(*dead_percent_max) }))
        }
        Work::PassDeletes(PassDeletesWork { constants }) => {
            let constants = constants
                .iter()
                .map(|constants| wire::Constants { constants: constants.iter().map(Into::into).collect() });
            Some(Wire::PassDeletes(wire::PassDeletesWork { constants: constants.collect() }))
        }
    }
}

/// The work of a task with so many file differences and delete files.
pub(super) fn from_wire(work: Option<Wire>, differences: usize, deletes: usize) -> Result<Work, ConvertError> {
    match work {
        None => Ok(Work::Stage),
        Some(Wire::Digest(wire::DigestWork { key, bucket_bits })) => {
            let bits = u8::try_from(bucket_bits).ok().filter(|bits| (1..=DigestWork::BUCKET_BITS_MAX).contains(bits));
            let bucket_bits = bits.ok_or_else(|| ConvertError::Invalid {
                message: "DigestWork",
                field: "bucket_bits",
                problem: format!("2^{bucket_bits} is no number of buckets"),
            })?;
            Ok(Work::Digest(DigestWork { key, bucket_bits }))
        }
        Some(Wire::Show(wire::ShowWork { rows })) => {
            let rows: Vec<Vec<u64>> = rows.into_iter().map(|rows| rows.positions).collect();
            let problem = match rows.iter().find(|positions| !positions.is_sorted()) {
                Some(_) => Some("positions are not ascending".to_owned()),
                None if rows.len() != differences => {
                    Some(format!("it has rows of {} files in a task of {differences}", rows.len()))
                }
                None => None,
            };
            match problem {
                Some(problem) => Err(ConvertError::Invalid { message: "ShowWork", field: "rows", problem }),
                None => Ok(Work::Show(ShowWork { rows })),
            }
        }
        Some(Wire::Exchange(wire::ExchangeWork { tasks, first_resolve, hash_version })) => {
            let first_resolve = TaskId(first_resolve);
            Ok(Work::Exchange(ExchangeWork { tasks, first_resolve, hash_version }))
        }
        Some(Wire::Resolve(wire::ResolveWork { bucket, files })) => {
            let files = files.into_iter().map(TryInto::try_into).collect::<Result<Vec<ExchangeFile>, _>>()?;
            let other = files.iter().flat_map(|file| &file.blocks).find(|block| block.bucket != bucket);
            let problem = match other {
                Some(block) => Some(format!("a block of bucket {} is named for bucket {bucket}", block.bucket)),
                None if differences > 0 => Some(format!("it comes with {differences} file differences")),
                None => None,
            };
            match problem {
                Some(problem) => Err(ConvertError::Invalid { message: "ResolveWork", field: "files", problem }),
                None => Ok(Work::Resolve(ResolveWork { bucket, files })),
            }
        }
        Some(Wire::Copy(wire::CopyWork { metrics, dead_percent_max })) => {
            let invalid = |field, problem| Err(ConvertError::Invalid { message: "CopyWork", field, problem });
            if metrics.len() != differences {
                let problem = format!("it has metrics of {} files in a task of {differences}", metrics.len());
                return invalid("metrics", problem);
            }
            let Some(dead_percent_max) = u8::try_from(dead_percent_max).ok().filter(|percent| *percent <= 100) else {
                return invalid("dead_percent_max", format!("{dead_percent_max} in a hundred is no share"));
            };
            let metrics = metrics.into_iter().map(|of_file| of_file.columns.into_iter().map(Into::into).collect());
            Ok(Work::Copy(CopyWork { metrics: metrics.collect(), dead_percent_max }))
        }
        Some(Wire::PassDeletes(wire::PassDeletesWork { constants })) => {
            let problem = match constants.len() == deletes {
                false => Some(format!("it has constants of {} delete files in a task of {deletes}", constants.len())),
                true if differences > 0 => Some(format!("it comes with {differences} file differences")),
                true => None,
            };
            if let Some(problem) = problem {
                return Err(ConvertError::Invalid { message: "PassDeletesWork", field: "constants", problem });
            }
            let constants = constants.into_iter().map(|of| of.constants.into_iter().map(Into::into).collect());
            Ok(Work::PassDeletes(PassDeletesWork { constants: constants.collect() }))
        }
    }
}

impl From<&ColumnMetrics> for wire::ColumnMetrics {
    fn from(metrics: &ColumnMetrics) -> Self {
        Self {
            field_id: metrics.field_id,
            value_count: metrics.value_count,
            null_count: metrics.null_count,
            nan_count: metrics.nan_count,
            lower_bound: metrics.lower_bound.clone(),
            upper_bound: metrics.upper_bound.clone(),
        }
    }
}

impl From<wire::ColumnMetrics> for ColumnMetrics {
    fn from(metrics: wire::ColumnMetrics) -> Self {
        let wire::ColumnMetrics { field_id, value_count, null_count, nan_count, lower_bound, upper_bound } = metrics;
        Self { field_id, value_count, null_count, nan_count, lower_bound, upper_bound }
    }
}

impl From<&ExchangeFile> for wire::ExchangeFile {
    fn from(file: &ExchangeFile) -> Self {
        Self { location: file.location.clone(), blocks: file.blocks.iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::ExchangeFile> for ExchangeFile {
    type Error = ConvertError;

    fn try_from(file: wire::ExchangeFile) -> Result<Self, ConvertError> {
        Ok(Self {
            location: required_text(file.location, "ExchangeFile", "location")?,
            blocks: file.blocks.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&ExchangeBlock> for wire::ExchangeBlock {
    fn from(block: &ExchangeBlock) -> Self {
        let ExchangeBlock { bucket, side, offset, length, rows, memory_bytes, hash_min, hash_max } = *block;
        let side = match side {
            ExchangeSide::Went => wire::ExchangeSide::Went,
            ExchangeSide::Came => wire::ExchangeSide::Came,
        };
        Self { bucket, side: side.into(), offset, length, rows, memory_bytes, hash_min, hash_max }
    }
}

impl TryFrom<wire::ExchangeBlock> for ExchangeBlock {
    type Error = ConvertError;

    fn try_from(block: wire::ExchangeBlock) -> Result<Self, ConvertError> {
        let message = "ExchangeBlock";
        let side = match wire::ExchangeSide::try_from(block.side) {
            Ok(wire::ExchangeSide::Went) => ExchangeSide::Went,
            Ok(wire::ExchangeSide::Came) => ExchangeSide::Came,
            Ok(wire::ExchangeSide::Unspecified) => return Err(ConvertError::Missing { message, field: "side" }),
            Err(_) => return Err(ConvertError::UnknownValue { message, field: "side", value: block.side }),
        };
        let invalid = |field, problem| Err(ConvertError::Invalid { message, field, problem });
        if block.bucket >= ExchangeWork::BUCKETS {
            return invalid("bucket", format!("there is no bucket {}", block.bucket));
        }
        if block.offset.checked_add(block.length).is_none() {
            return invalid("length", format!("{} bytes from byte {} on are too many", block.length, block.offset));
        }
        let wire::ExchangeBlock { bucket, offset, length, rows, memory_bytes, hash_min, hash_max, .. } = block;
        Ok(Self { bucket, side, offset, length, rows, memory_bytes, hash_min, hash_max })
    }
}
