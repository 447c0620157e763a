//! Files that are carried as bytes, in tasks. Pure.

use std::sync::Arc;

use iceferry_common::model::{ColumnMetrics, CopyWork, FileDifference};

use super::entry::DataEntry;
use super::pack::Weighed;
use super::partition::Partition;

/// Tasks of files that are carried as bytes are so many times as large as others: copying is that much faster, and a task
/// should take long enough to be worth a lease.
pub(super) const COPY_TASK_FACTOR: u64 = 4;
/// A file below one part in so many of a task's usual size may be joined with others.
const SMALL_FILE_SHARE: u64 = 4;
/// Bytes of metrics that a task is sent with, about; the files beyond them go without, and the worker looks into footers.
const METRICS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What the metrics of a column take beside their bounds, about.
const METRICS_BYTES_OF_COLUMN: usize = 32;

/// A file that is carried as bytes.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) difference: FileDifference,
    metrics: Vec<ColumnMetrics>,
    partition: Arc<Partition>,
}

impl Weighed for Carried {
    fn data_bytes(&self) -> u64 {
        self.difference.data_bytes()
    }
}

impl Carried {
    pub(super) fn new(entry: &DataEntry, difference: FileDifference) -> Self {
        let metrics = entry.metrics.as_deref().unwrap_or_default().to_vec();
        Self { difference, metrics, partition: Arc::clone(&entry.partition) }
    }
}

/// The differences of a task and what is done with them: files of one partition next to each other, and there the small
/// ones, which the worker may join.
pub(super) fn work(mut carried: Vec<Carried>, split_bytes: u64) -> (Vec<FileDifference>, CopyWork) {
    carried.sort_by(|a, b| {
        let is_small = |of: &Carried| of.difference.file.size_bytes < split_bytes / SMALL_FILE_SHARE;
        (&a.partition, is_small(a)).cmp(&(&b.partition, is_small(b)))
    });
    let mut bytes = 0;
    let (differences, metrics) = carried
        .into_iter()
        .map(|Carried { difference, metrics, .. }| {
            bytes += metrics.iter().map(metrics_bytes).sum::<usize>();
            (difference, if bytes <= METRICS_BYTES_MAX { metrics } else { Vec::new() })
        })
        .unzip();
    (differences, CopyWork { metrics, dead_percent_max: CopyWork::DEAD_PERCENT_MAX })
}

fn metrics_bytes(metrics: &ColumnMetrics) -> usize {
    let bound = |bound: &Option<Vec<u8>>| bound.as_ref().map_or(0, Vec::len);
    METRICS_BYTES_OF_COLUMN + bound(&metrics.lower_bound) + bound(&metrics.upper_bound)
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{Literal, Struct};
    use iceferry_common::model::{DataFile, FileFormat, Side};

    use super::*;

    fn carried(name: &str, p: i32, size_bytes: u64, metrics: Vec<ColumnMetrics>) -> Carried {
        let file = DataFile {
            location: name.into(),
            format: FileFormat::Parquet,
            size_bytes,
            record_count: 1,
            constants: Vec::new(),
            sequence_number: 0,
            first_row_id: None,
            spec_id: 1,
            partition: Vec::new(),
        };
        let difference =
            FileDifference { file, split: None, before: Side::Absent, after: Side::Present(Vec::new()), commit: None };
        let partition = Arc::new(Partition::new(1, &Struct::from_iter([Some(Literal::int(p))]), &[]));
        Carried { difference, metrics, partition }
    }

    #[test]
    fn small_files_of_one_partition_lie_next_to_each_other_in_their_order() {
        let files = [("a", 2, 5), ("b", 1, 90), ("c", 1, 9), ("d", 2, 80), ("e", 1, 25), ("f", 2, 4), ("g", 1, 1)];
        let files = files.iter().map(|(name, p, size)| carried(name, *p, *size, Vec::new())).collect();
        let (differences, work) = work(files, 100);
        let names: String = differences.iter().map(|difference| difference.file.location.as_str()).collect();
        assert_eq!(names, "becgdaf");
        assert_eq!(work.metrics.len(), differences.len());
    }

    #[test]
    fn metrics_stay_with_their_file_until_they_are_too_many() {
        let large = |id| ColumnMetrics {
            field_id: id,
            lower_bound: Some(vec![0; METRICS_BYTES_MAX / 3]),
            ..ColumnMetrics::default()
        };
        let files = (0..4).map(|at| carried("f", 3 - at, 1, vec![large(at)])).collect();
        let (_, work) = work(files, 100);
        let ids: Vec<Vec<i32>> =
            work.metrics.iter().map(|metrics| metrics.iter().map(|column| column.field_id).collect()).collect();
        assert_eq!(ids, [vec![3], vec![2], vec![], vec![]]);
    }
}
