//! The bytes of manifests: entries are put into them as they are.
//!
//! What stands before the entries, schema, partition spec and content, is what the iceberg crate writes for a manifest
//! without any. Behind it go blocks of entries, which have the crate's fields in the crate's order.

use bytes::Bytes;
use iceberg::io::FileIO;
use iceberg::spec::{
    FormatVersion, ManifestContentType, ManifestFile, ManifestStatus, ManifestWriterBuilder, TableMetadata,
    UNASSIGNED_SEQUENCE_NUMBER,
};
use iceferry_common::entry::{put_bytes, put_long};

/// Bytes of the marker behind the header and behind each block.
const MARKER_BYTES: usize = 16;
/// Blocks hold about as much as Avro's own writers put into one.
const BLOCK_BYTES: usize = 64 * 1024;

/// What all manifests of one content and snapshot begin with.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// The header, its marker included.
    header: Bytes,
    content: ManifestContentType,
    spec_id: i32,
    snapshot_id: i64,
}

impl Form {
    /// The form of manifests in the table's current schema and default spec.
    ///
    /// # Errors
    /// When the iceberg crate cannot write a manifest of this schema and spec.
    pub(super) async fn new(
        metadata: &TableMetadata,
        content: ManifestContentType,
        snapshot_id: i64,
    ) -> iceberg::Result<Self> {
        let memory = FileIO::new_with_memory();
        let output = memory.new_output("memory:///manifest.avro")?;
        let spec = metadata.default_partition_spec().as_ref().clone();
        let schema = metadata.current_schema().clone();
        let spec_id = spec.spec_id();
        let builder = ManifestWriterBuilder::new(output, Some(snapshot_id), schema, spec);
        let writer = match (content, metadata.format_version()) {
            (ManifestContentType::Data, FormatVersion::V3) => builder.build_v3_data(),
            (ManifestContentType::Data, _) => builder.build_v2_data(),
            (ManifestContentType::Deletes, FormatVersion::V3) => builder.build_v3_deletes(),
            (ManifestContentType::Deletes, _) => builder.build_v2_deletes(),
        };
        let empty = writer.write_manifest_file().await?;
        let header = memory.new_input(&empty.manifest_path)?.read().await?;
        Ok(Self { header, content, spec_id, snapshot_id })
    }

    pub(super) fn content(&self) -> ManifestContentType {
        self.content
    }

    pub(super) fn snapshot_id(&self) -> i64 {
        self.snapshot_id
    }

    fn marker(&self) -> &[u8] {
        &self.header[self.header.len().saturating_sub(MARKER_BYTES)..]
    }
}

/// Where an entry comes from. What is `None` is inherited from the manifest list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) status: ManifestStatus,
    pub(super) snapshot_id: i64,
    pub(super) sequence_number: Option<i64>,
    pub(super) file_sequence_number: Option<i64>,
}

impl Origin {
    /// Of a file that the snapshot itself adds: whatever its base, its sequence numbers are the snapshot's.
    pub(super) fn added(snapshot_id: i64) -> Self {
        Self { status: ManifestStatus::Added, snapshot_id, sequence_number: None, file_sequence_number: None }
    }
}

/// A manifest that is being made.
#[derive(Debug)]
pub(super) struct Manifest {
    form: Form,
    out: Vec<u8>,
    block: Vec<u8>,
    block_entries: i64,
    added: (u32, u64),
    existing: (u32, u64),
    min_sequence_number: Option<i64>,
}

impl Manifest {
    /// An empty one that will have about so many bytes of entries.
    pub(super) fn new(form: Form, bytes: usize) -> Self {
        let mut out = Vec::with_capacity(form.header.len() + bytes);
        out.extend_from_slice(&form.header);
        let block = Vec::with_capacity(BLOCK_BYTES + 4 * 1024);
        Self { form, out, block, block_entries: 0, added: (0, 0), existing: (0, 0), min_sequence_number: None }
    }

    /// Puts in a live entry of a file with so many records.
    pub(super) fn add(&mut self, origin: Origin, entry: &[u8], records: u64) {
        put_long(&mut self.block, origin.status as i64);
        for number in [Some(origin.snapshot_id), origin.sequence_number, origin.file_sequence_number] {
            put_long(&mut self.block, i64::from(number.is_some()));
            if let Some(number) = number {
                put_long(&mut self.block, number);
            }
        }
        self.block.extend_from_slice(entry);
        self.block_entries += 1;
        let counts = if origin.status == ManifestStatus::Added { &mut self.added } else { &mut self.existing };
        counts.0 = counts.0.saturating_add(1);
        counts.1 = counts.1.saturating_add(records);
        if let Some(number) = origin.sequence_number {
            self.min_sequence_number = Some(self.min_sequence_number.map_or(number, |min| min.min(number)));
        }
        if self.block.len() >= BLOCK_BYTES {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        if self.block_entries > 0 {
            put_long(&mut self.out, self.block_entries);
            put_bytes(&mut self.out, &self.block);
            self.out.extend_from_slice(self.form.marker());
        }
        self.block.clear();
        self.block_entries = 0;
    }

    /// Its bytes, and its line in a manifest list. The snapshot that lists it first gives it its sequence number, and its
    /// first row id where it needs one.
    pub(super) fn finish(mut self, location: String) -> (Bytes, ManifestFile) {
        self.end_block();
        let file = ManifestFile {
            manifest_path: location,
            manifest_length: self.out.len() as i64,
            partition_spec_id: self.form.spec_id,
            content: self.form.content,
            sequence_number: UNASSIGNED_SEQUENCE_NUMBER,
            min_sequence_number: self.min_sequence_number.unwrap_or(UNASSIGNED_SEQUENCE_NUMBER),
            added_snapshot_id: self.form.snapshot_id,
            added_files_count: Some(self.added.0),
            existing_files_count: Some(self.existing.0),
            deleted_files_count: Some(0),
            added_rows_count: Some(self.added.1),
            existing_rows_count: Some(self.existing.1),
            deleted_rows_count: Some(0),
            // Of no partition field.
            partitions: Some(Vec::new()),
            key_metadata: None,
            first_row_id: None,
        };
        (Bytes::from(self.out), file)
    }
}
