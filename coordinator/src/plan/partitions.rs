//! What the files of one partition have in common, worked out once for each partition of a manifest.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::{ManifestFile, StructType};
use iceferry_common::model::Constant;

use super::error::FileProblem;
use super::filter::SpecFilter;
use super::manifest::{Entry, Layout};
use super::partition::{self, Columns, Partition, Promotions};

/// What working it out needs to know of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfTable<'a> {
    pub(super) columns: &'a Columns,
    pub(super) partition_type: Option<&'a StructType>,
    pub(super) promotions: &'a Promotions,
}

/// What the partitions of one manifest come to. Each is worked out once: a manifest has few of them and many files.
pub(super) struct Partitions<'a> {
    table: OfTable<'a>,
    of: &'a ManifestFile,
    layout: &'a Layout,
    filter: &'a SpecFilter<'a>,
    /// By the bytes of their tuples.
    known: HashMap<Box<[u8]>, OfPartition>,
}

/// What the files of a partition have in common.
pub(super) struct OfPartition {
    pub(super) partition: Arc<Partition>,
    pub(super) constants: Result<Vec<Constant>, String>,
    pub(super) values: Result<Vec<Constant>, String>,
    pub(super) may_match: bool,
}

/// Partitions that are known at most.
const PARTITIONS_MAX: usize = 4_096;

impl<'a> Partitions<'a> {
    pub(super) fn new(
        table: OfTable<'a>,
        of: &'a ManifestFile,
        layout: &'a Layout,
        filter: &'a SpecFilter<'a>,
    ) -> Self {
        Self { table, of, layout, filter, known: HashMap::new() }
    }

    /// That of an entry.
    pub(super) fn of(&mut self, entry: &Entry<'_>) -> Result<&OfPartition, FileProblem> {
        if !self.known.contains_key(entry.tuple) {
            if self.known.len() == PARTITIONS_MAX {
                self.known.clear();
            }
            let made = self.make(entry)?;
            self.known.insert(entry.tuple.into(), made);
        }
        Ok(&self.known[entry.tuple])
    }

    fn make(&self, entry: &Entry<'_>) -> Result<OfPartition, FileProblem> {
        let OfTable { columns, partition_type, promotions } = self.table;
        let (spec, spec_id) = (self.layout.spec(), self.of.partition_spec_id);
        let tuple = self.layout.partition(entry.tuple);
        let tuple = tuple.map_err(|problem| FileProblem::corrupt(&self.of.manifest_path, problem))?;
        Ok(OfPartition {
            partition: Arc::new(Partition::new(spec_id, &tuple, promotions.of_spec(spec_id))),
            constants: partition::constants(spec, &tuple, columns),
            values: match partition_type {
                Some(partition_type) => partition::values(spec, &tuple, partition_type),
                None => Ok(Vec::new()),
            },
            may_match: self.filter.may_match_partition(&tuple),
        })
    }
}
