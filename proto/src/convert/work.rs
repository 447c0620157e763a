//! What is done with the rows of a scan task.

use iceferry_common::model::{DigestWork, ShowWork, Work};

use super::ConvertError;
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
    }
}

/// The work of a task with so many file differences.
pub(super) fn from_wire(work: Option<Wire>, differences: usize) -> Result<Work, ConvertError> {
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
    }
}
