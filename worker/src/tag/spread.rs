//! By what rows are exchanged: rows that have to meet get the same hash. Pure.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::error::ArrowError;
use arrow::row::Rows;
use twox_hash::XxHash64;

use super::encode::RowEncoder;
use super::{Pairing, Tagging};
use crate::key_text::printed;

/// Fixed, so that a row has the same hash on every machine.
const SEED: u64 = 0;

/// What rows are exchanged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// These columns, by place.
    Columns(Vec<usize>),
    /// All that decides whether rows are equal.
    Content,
}

/// The exchanges that a task's rows need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Where equal rows meet, and cancel.
    pub(super) first: By,
    /// Where the two halves of an update meet, when that is somewhere else.
    pub(super) then: Option<By>,
}

impl Plan {
    /// Rows of one identity or key meet where equal rows have the same one. `_row_id` is no part of a row's content: equal
    /// rows meet first, and only what is left of them goes by it. So it is where a null identifies nothing, too: all rows
    /// with one would be in one bucket.
    pub(super) fn of(tagging: &Tagging) -> Self {
        let is_content = |columns: &[usize]| columns.iter().all(|column| *column < tagging.compared);
        match tagging.pairing() {
            Some(Pairing { columns, nulls_pair: true, .. }) if is_content(columns) => {
                Self { first: By::Columns(columns.clone()), then: None }
            }
            Some(Pairing { columns, .. }) => Self { first: By::Content, then: Some(By::Columns(columns.clone())) },
            // A key of which one row goes and another stays is seen where its rows meet.
            None if !tagging.key.is_empty() => Self { first: By::Columns(tagging.key.clone()), then: None },
            None => Self { first: By::Content, then: None },
        }
    }
}

impl Tagging {
    /// How updates are told, if they are and anything tells them.
    pub(super) fn pairing(&self) -> Option<&Pairing> {
        let pairing = self.changelog.as_ref().filter(|pairing| !pairing.columns.is_empty());
        pairing.filter(|_| self.resolution.compares_all_rows())
    }
}

/// Hashes rows: by the bytes of their encoding, so equal values have equal hashes, and maps whatever their order. The
/// encoding is that of Arrow's row format, so all who take part in one exchange have to be of one version of it.
pub(super) struct Spread {
    by: By,
    compared: usize,
    encoder: Option<(RowEncoder, Rows)>,
    hashes: Vec<u64>,
}

impl Spread {
    pub(super) fn new(by: By, compared: usize) -> Self {
        Self { by, compared, encoder: None, hashes: Vec::new() }
    }

    /// The hash of each row.
    pub(super) fn hashes(&mut self, batch: &RecordBatch) -> Result<&[u64], ArrowError> {
        let columns = columns(&self.by, self.compared, batch)?;
        let (encoder, rows) = match &mut self.encoder {
            Some(encoder) => encoder,
            none => {
                let encoder = RowEncoder::new(&columns)?;
                let rows = encoder.empty();
                none.insert((encoder, rows))
            }
        };
        rows.clear();
        encoder.append(rows, &columns)?;
        self.hashes.clear();
        self.hashes.extend(rows.iter().map(|row| XxHash64::oneshot(SEED, row.as_ref())));
        Ok(&self.hashes)
    }
}

fn columns(by: &By, compared: usize, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
    match by {
        By::Columns(columns) => Ok(batch.project(columns)?.columns().to_vec()),
        By::Content => Ok(batch.columns()[..compared.min(batch.num_columns())].to_vec()),
    }
}

/// What the rows of a batch have in common when their hashes are the same, for messages.
pub(super) fn in_common(by: &By, batch: &RecordBatch) -> String {
    match by {
        By::Columns(columns) => match batch.project(columns) {
            Ok(key) if key.num_rows() > 0 => format!("with the identity {}", printed(&key.schema(), key.columns(), 0)),
            Ok(_) | Err(_) => "of one identity".to_owned(),
        },
        By::Content => "that are equal in all columns".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use iceferry_common::model::Resolution;

    use super::*;

    fn batch() -> RecordBatch {
        let fields = vec![Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
        let id = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
        let text = Arc::new(StringArray::from(vec![Some("a"), None, Some("")]));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![id, text]).unwrap()
    }

    /// When these change, so must `ExchangeWork::HASH_VERSION`: workers of both versions must not take part in one exchange.
    #[test]
    fn hashes_are_the_same_on_every_machine() {
        let mut spread = Spread::new(By::Content, usize::MAX);
        assert_eq!(
            spread.hashes(&batch()).unwrap(),
            [16_954_306_317_981_396_404, 4_911_049_797_662_973_137, 15_900_918_548_097_470_978]
        );
        let mut spread = Spread::new(By::Columns(vec![0]), usize::MAX);
        assert_eq!(
            spread.hashes(&batch()).unwrap(),
            [15_549_967_365_183_269_919, 761_705_574_210_540_369, 5_857_343_971_789_713_213]
        );
    }

    fn tagging(resolution: Resolution, key: &[usize], pairing: Option<&[usize]>) -> Tagging {
        let changelog =
            pairing.map(|columns| Pairing { columns: columns.to_vec(), nulls_pair: true, duplicates: true });
        Tagging {
            table: "t".into(),
            resolution,
            compared: 3,
            key: key.to_vec(),
            changelog,
            memory_bytes_max: 0,
            level: 0,
            ordinal: None,
        }
    }

    #[test]
    fn rows_that_have_to_meet_go_by_what_they_have_in_common() {
        let plan = |first: By, then: Option<By>| Plan { first, then };
        let by = |columns: &[usize]| By::Columns(columns.to_vec());
        for (tagging, expected) in [
            (tagging(Resolution::Updates, &[], Some(&[0, 2])), plan(by(&[0, 2]), None)),
            (tagging(Resolution::Updates, &[], Some(&[4])), plan(By::Content, Some(by(&[4])))),
            (tagging(Resolution::Updates, &[], Some(&[])), plan(By::Content, None)),
            (tagging(Resolution::CarryOver, &[], Some(&[0])), plan(By::Content, None)),
            (tagging(Resolution::Net, &[], Some(&[0])), plan(by(&[0]), None)),
            (tagging(Resolution::Net, &[], Some(&[4])), plan(By::Content, Some(by(&[4])))),
            (tagging(Resolution::Net, &[], Some(&[])), plan(By::Content, None)),
            (tagging(Resolution::CarryOver, &[1], None), plan(by(&[1]), None)),
            (tagging(Resolution::CarryOver, &[], None), plan(By::Content, None)),
        ] {
            assert_eq!(Plan::of(&tagging), expected, "{tagging:?}");
        }
    }
}
