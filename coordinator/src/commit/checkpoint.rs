//! The checkpoint: which source snapshot a target holds, as the target itself tells it.
//!
//! It is written by the same commit that adds the files, twice: into the snapshot's summary, and into the table property
//! `iceferry.checkpoint.<job>`, which outlives the expiry of snapshots and which an epoch without rows moves alone.

use std::collections::HashMap;

use iceberg::spec::{Snapshot, SnapshotRef, TableMetadata};
use iceferry_common::model::{EpochId, Fence, JobName, RunId, SnapshotId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::CommitError;

/// A checkpoint's table property is this and the job's name.
pub const CHECKPOINT_PROPERTY_PREFIX: &str = "iceferry.checkpoint.";

/// Summary entry: the job that made the snapshot.
pub const SUMMARY_JOB: &str = "iceferry.job";
/// Summary entry: the run of the job.
pub const SUMMARY_RUN: &str = "iceferry.run";
/// Summary entry: the epoch within the run.
pub const SUMMARY_EPOCH: &str = "iceferry.epoch";
/// Summary entry: the fence of the run.
pub const SUMMARY_FENCE: &str = "iceferry.fence";
/// Summary entry: UUID of the source table.
pub const SUMMARY_SOURCE_UUID: &str = "iceferry.source-uuid";
/// Summary entry: the source snapshot that the target holds with this snapshot.
pub const SUMMARY_SOURCE_SNAPSHOT: &str = "iceferry.source-snapshot-id";
/// Summary entry: that snapshot's sequence number.
pub const SUMMARY_SOURCE_SEQUENCE: &str = "iceferry.source-sequence-number";
/// Summary entry: hash of what defines the mirror.
pub const SUMMARY_MIRROR_HASH: &str = "iceferry.mirror-hash";
/// Summary entry: the `_change_ordinal` of the snapshot whose changes come next.
pub const SUMMARY_NEXT_CHANGE_ORDINAL: &str = "iceferry.next-change-ordinal";

/// Version of the property's JSON.
const VERSION: u32 = 1;

/// Which source snapshot a target holds, and who brought it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The job.
    pub job: JobName,
    /// The run that committed it.
    pub run: RunId,
    /// The epoch within that run.
    pub epoch: EpochId,
    /// The run's fence.
    pub fence: Fence,
    /// UUID of the source table.
    pub source_uuid: Uuid,
    /// The source snapshot that the target holds.
    pub source_snapshot_id: SnapshotId,
    /// Its sequence number.
    pub source_sequence_number: i64,
    /// The target's snapshot on main when the checkpoint was written; `None` while the target had none.
    pub target_snapshot_id: Option<SnapshotId>,
    /// That snapshot's sequence number: it tells an expired snapshot from one that was rolled back.
    pub target_sequence_number: Option<i64>,
    /// Hash of what defines the mirror: keys, projection, filter, source.
    pub mirror_hash: String,
    /// The `_change_ordinal` of the snapshot whose changes come next.
    pub next_change_ordinal: i32,
}

/// The JSON of the property. Snapshot ids are text: many JSON readers round large numbers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Json {
    version: u32,
    job: JobName,
    run: RunId,
    epoch: EpochId,
    fence: Fence,
    source_uuid: String,
    source_snapshot_id: String,
    source_sequence_number: i64,
    target_snapshot_id: Option<String>,
    target_sequence_number: Option<i64>,
    mirror_hash: String,
    /// Absent in checkpoints from before there were changelogs.
    #[serde(default)]
    next_change_ordinal: i32,
}

impl Checkpoint {
    /// The value of the table property.
    pub fn to_json(&self) -> String {
        let json = Json {
            version: VERSION,
            job: self.job.clone(),
            run: self.run.clone(),
            epoch: self.epoch,
            fence: self.fence,
            source_uuid: self.source_uuid.to_string(),
            source_snapshot_id: self.source_snapshot_id.to_string(),
            source_sequence_number: self.source_sequence_number,
            target_snapshot_id: self.target_snapshot_id.map(|id| id.to_string()),
            target_sequence_number: self.target_sequence_number,
            mirror_hash: self.mirror_hash.clone(),
            next_change_ordinal: self.next_change_ordinal,
        };
        serde_json::to_string(&json).expect("numbers, texts and no maps always serialise")
    }

    /// Reads the value of the table property; the error says what is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| format!("not a checkpoint: {error}"))?;
        if json.version != VERSION {
            return Err(format!("a checkpoint of version {}, written by another version of iceferry", json.version));
        }
        let target = json.target_snapshot_id.as_deref().map(|id| snapshot_id("target-snapshot-id", id)).transpose()?;
        Ok(Self {
            job: json.job,
            run: json.run,
            epoch: json.epoch,
            fence: json.fence,
            source_uuid: uuid("source-uuid", &json.source_uuid)?,
            source_snapshot_id: snapshot_id("source-snapshot-id", &json.source_snapshot_id)?,
            source_sequence_number: json.source_sequence_number,
            target_snapshot_id: target,
            target_sequence_number: json.target_sequence_number,
            mirror_hash: json.mirror_hash,
            next_change_ordinal: json.next_change_ordinal,
        })
    }

    /// The entries of a snapshot's summary. The target snapshot is the one that carries them.
    pub fn to_summary(&self) -> HashMap<String, String> {
        HashMap::from([
            (SUMMARY_JOB.to_owned(), self.job.to_string()),
            (SUMMARY_RUN.to_owned(), self.run.to_string()),
            (SUMMARY_EPOCH.to_owned(), self.epoch.to_string()),
            (SUMMARY_FENCE.to_owned(), self.fence.to_string()),
            (SUMMARY_SOURCE_UUID.to_owned(), self.source_uuid.to_string()),
            (SUMMARY_SOURCE_SNAPSHOT.to_owned(), self.source_snapshot_id.to_string()),
            (SUMMARY_SOURCE_SEQUENCE.to_owned(), self.source_sequence_number.to_string()),
            (SUMMARY_MIRROR_HASH.to_owned(), self.mirror_hash.clone()),
            (SUMMARY_NEXT_CHANGE_ORDINAL.to_owned(), self.next_change_ordinal.to_string()),
        ])
    }

    /// Reads the checkpoint that a snapshot of the job carries; `None` where it is not the job's, or carries none, as a
    /// take-over's. The error says what is wrong with it.
    pub fn from_summary(snapshot: &Snapshot, job: &JobName) -> Result<Option<Self>, String> {
        let entries = &snapshot.summary().additional_properties;
        let is_ours = entries.get(SUMMARY_JOB).is_some_and(|name| name == job.as_str());
        let Some(source_snapshot) = entries.get(SUMMARY_SOURCE_SNAPSHOT).filter(|_| is_ours) else {
            return Ok(None);
        };
        let entry = |key: &str| entries.get(key).ok_or_else(|| format!("summary entry {key:?} is missing"));
        Ok(Some(Self {
            job: job.clone(),
            run: RunId(entry(SUMMARY_RUN)?.clone()),
            epoch: EpochId(number(SUMMARY_EPOCH, entry(SUMMARY_EPOCH)?)?),
            fence: Fence(number(SUMMARY_FENCE, entry(SUMMARY_FENCE)?)?),
            source_uuid: uuid(SUMMARY_SOURCE_UUID, entry(SUMMARY_SOURCE_UUID)?)?,
            source_snapshot_id: snapshot_id(SUMMARY_SOURCE_SNAPSHOT, source_snapshot)?,
            source_sequence_number: number(SUMMARY_SOURCE_SEQUENCE, entry(SUMMARY_SOURCE_SEQUENCE)?)?,
            target_snapshot_id: Some(SnapshotId(snapshot.snapshot_id())),
            target_sequence_number: Some(snapshot.sequence_number()),
            mirror_hash: entry(SUMMARY_MIRROR_HASH)?.clone(),
            next_change_ordinal: match entries.get(SUMMARY_NEXT_CHANGE_ORDINAL) {
                Some(text) => number(SUMMARY_NEXT_CHANGE_ORDINAL, text)?,
                None => 0,
            },
        }))
    }
}

/// The table property that holds the checkpoint of `job`.
pub fn checkpoint_property(job: &JobName) -> String {
    format!("{CHECKPOINT_PROPERTY_PREFIX}{job}")
}

/// Jobs other than `job` that have a checkpoint in this target, sorted.
pub fn other_jobs(metadata: &TableMetadata, job: &JobName) -> Vec<String> {
    let names = metadata.properties().keys().filter_map(|key| key.strip_prefix(CHECKPOINT_PROPERTY_PREFIX));
    let mut others: Vec<String> = names.filter(|name| *name != job.as_str()).map(str::to_owned).collect();
    others.sort();
    others
}

/// The checkpoint of `job` in a target.
///
/// Main's history is walked from its head. The property is taken where the walk meets its target snapshot; a snapshot of
/// the job that is met before is newer than the property, so the target was rolled back or the property restored, and
/// that snapshot's summary is taken. Where the history ends at an expired snapshot, the property is taken when its
/// snapshot is expired too and, by its sequence number, older than all that is left; a run begins with
/// [`super::confirm_checkpoint`], which makes sure of that.
///
/// # Errors
/// [`CommitError::MarkDamaged`] when the property, or the summary that counts, cannot be read;
/// [`CommitError::CheckpointLost`] when the property's snapshot was rolled back and older history is expired.
pub fn find_checkpoint(metadata: &TableMetadata, job: &JobName) -> Result<Option<Checkpoint>, CommitError> {
    let property = property_checkpoint(metadata, job)?;
    let target = property.as_ref().and_then(|checkpoint| checkpoint.target_snapshot_id);
    let mut walk = Ancestors::of_main(metadata);
    let mut oldest = None;
    for snapshot in walk.by_ref() {
        if target == Some(SnapshotId(snapshot.snapshot_id())) {
            return Ok(property);
        }
        let found = Checkpoint::from_summary(snapshot, job).map_err(|problem| CommitError::MarkDamaged {
            place: format!("the summary of snapshot {}", snapshot.snapshot_id()),
            location: metadata.location().to_owned(),
            problem,
        })?;
        if found.is_some() {
            return Ok(found);
        }
        oldest = Some(snapshot);
    }
    let Some(property) = property else { return Ok(None) };
    let Some(target) = property.target_snapshot_id else {
        // Written while the target had no snapshot at all: every history begins behind that.
        return Ok(Some(property));
    };
    match walk.expired() {
        Some(expired) if expired == target.0 => Ok(Some(property)),
        // The whole history is there and the snapshot is not in it: main is where it was before the job's first epoch.
        None if metadata.snapshot_by_id(target.0).is_some() || oldest.is_none_or(is_first) => Ok(None),
        parent if may_be_behind(metadata, &property, oldest, parent.is_some()) => Ok(Some(property)),
        _ => {
            let location = metadata.location().to_owned();
            Err(CommitError::CheckpointLost { job: job.clone(), snapshot: target, location })
        }
    }
}

/// The oldest snapshot that is left of main's history, and the checkpoint's own, where the metadata does not show that the
/// one is behind the other.
pub(super) fn in_doubt(
    metadata: &TableMetadata,
    job: &JobName,
) -> Result<Option<(SnapshotId, SnapshotId)>, CommitError> {
    let Some(target) = find_checkpoint(metadata, job)?.and_then(|found| found.target_snapshot_id) else {
        return Ok(None);
    };
    let mut walk = Ancestors::of_main(metadata);
    let mut oldest = None;
    for snapshot in walk.by_ref() {
        if snapshot.snapshot_id() == target.0 {
            return Ok(None);
        }
        oldest = Some(SnapshotId(snapshot.snapshot_id()));
    }
    Ok(oldest.filter(|_| walk.expired() != Some(target.0)).map(|oldest| (oldest, target)))
}

/// Whether a snapshot without a parent never had one. pyiceberg, when it expires a snapshot, takes it from its children as
/// their parent; but a table's first snapshot has number 1, or 0 from before an upgrade.
fn is_first(oldest: &SnapshotRef) -> bool {
    oldest.sequence_number() <= 1
}

/// Whether the checkpoint's snapshot may be behind the oldest snapshot that is left of main's history. That one's parent
/// is expired too and has a number of its own, so at least one number must lie between the two; where it has no parent any
/// more, nobody knows which that was.
fn may_be_behind(
    metadata: &TableMetadata,
    checkpoint: &Checkpoint,
    oldest: Option<&SnapshotRef>,
    has_parent: bool,
) -> bool {
    let Some((oldest, sequence)) = oldest.zip(checkpoint.target_sequence_number) else { return false };
    let is_expired = checkpoint.target_snapshot_id.is_some_and(|id| metadata.snapshot_by_id(id.0).is_none());
    is_expired && sequence.saturating_add(i64::from(has_parent)) < oldest.sequence_number()
}

/// The property as it stands, trusted or not.
pub(super) fn property_checkpoint(metadata: &TableMetadata, job: &JobName) -> Result<Option<Checkpoint>, CommitError> {
    let key = checkpoint_property(job);
    let Some(text) = metadata.properties().get(&key) else { return Ok(None) };
    let parsed = Checkpoint::from_json(text).and_then(|checkpoint| match checkpoint.job == *job {
        true => Ok(checkpoint),
        false => Err(format!("it is the checkpoint of job {}", checkpoint.job)),
    });
    let damaged = |problem| CommitError::MarkDamaged {
        place: format!("table property {key:?}"),
        location: metadata.location().to_owned(),
        problem,
    };
    parsed.map(Some).map_err(damaged)
}

/// Main's history, newest first, as far as the metadata has it.
pub(super) struct Ancestors<'a> {
    metadata: &'a TableMetadata,
    next: Option<i64>,
    /// A damaged table could have a circle of parents; no honest history is longer than this.
    steps_left: usize,
}

impl<'a> Ancestors<'a> {
    pub(super) fn of_main(metadata: &'a TableMetadata) -> Self {
        Self { metadata, next: metadata.current_snapshot_id(), steps_left: metadata.snapshots().len() }
    }

    /// After the walk: the parent that is not in the metadata any more; `None` when the walk came to a root.
    pub(super) fn expired(&self) -> Option<i64> {
        self.next.filter(|id| self.metadata.snapshot_by_id(*id).is_none())
    }
}

impl<'a> Iterator for Ancestors<'a> {
    type Item = &'a SnapshotRef;

    fn next(&mut self) -> Option<Self::Item> {
        let snapshot = self.metadata.snapshot_by_id(self.next?)?;
        self.steps_left = self.steps_left.checked_sub(1)?;
        self.next = snapshot.parent_snapshot_id();
        Some(snapshot)
    }
}

fn number<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{key} is {text:?}, not a number"))
}

fn snapshot_id(key: &str, text: &str) -> Result<SnapshotId, String> {
    number(key, text).map(SnapshotId)
}

fn uuid(key: &str, text: &str) -> Result<Uuid, String> {
    Uuid::parse_str(text).map_err(|_| format!("{key} is {text:?}, not a UUID"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SOURCE, job, schema};
    use super::*;
    use iceberg::spec::{
        FormatVersion, MAIN_BRANCH, Operation, PartitionSpec, SortOrder, Summary, TableMetadataBuilder,
    };

    fn checkpoint(source: i64, target: Option<(i64, i64)>) -> Checkpoint {
        Checkpoint {
            job: job(),
            run: RunId("r1".to_owned()),
            epoch: EpochId(3),
            fence: Fence(2),
            source_uuid: SOURCE,
            source_snapshot_id: SnapshotId(source),
            source_sequence_number: 5,
            target_snapshot_id: target.map(|(id, _)| SnapshotId(id)),
            target_sequence_number: target.map(|(_, sequence)| sequence),
            mirror_hash: "h".to_owned(),
            next_change_ordinal: 3,
        }
    }

    /// What happened to a target, in order.
    enum Event {
        /// A snapshot of ours that holds this source snapshot.
        Ours(i64, i64),
        /// A snapshot of somebody else's.
        Foreign(i64),
        /// Main set to an older snapshot.
        RollBack(i64),
        /// Snapshots taken out of the metadata.
        Expire(Vec<i64>),
        /// The property moved alone.
        Empty(i64),
        /// The property set to this text.
        Property(&'static str),
        /// Somebody takes the property away.
        NoProperty,
    }

    fn target(events: Vec<Event>) -> TableMetadata {
        let spec = PartitionSpec::unpartition_spec().into_unbound();
        let (order, location) = (SortOrder::unsorted_order(), "/t".to_owned());
        let built = TableMetadataBuilder::new(schema(), spec, order, location, FormatVersion::V2, HashMap::new());
        let mut metadata = built.unwrap().build().unwrap().metadata;
        for event in events {
            let property = |text: String| HashMap::from([(checkpoint_property(&job()), text)]);
            let head = metadata.current_snapshot().map(|main| (main.snapshot_id(), main.sequence_number()));
            let (sequence, parent) = (metadata.next_sequence_number(), metadata.current_snapshot_id());
            let snapshot = |id: i64, extra: HashMap<String, String>| {
                Snapshot::builder()
                    .with_snapshot_id(id)
                    .with_parent_snapshot_id(parent)
                    .with_sequence_number(sequence)
                    .with_timestamp_ms(iceferry_common::clock::unix_ms())
                    .with_manifest_list("/t/list.avro")
                    .with_summary(Summary { operation: Operation::Append, additional_properties: extra })
                    .with_schema_id(0)
                    .build()
            };
            let builder = metadata.clone().into_builder(None);
            let builder = match event {
                Event::Ours(id, source) => {
                    let checkpoint = checkpoint(source, Some((id, sequence)));
                    let added =
                        builder.set_branch_snapshot(snapshot(id, checkpoint.to_summary()), MAIN_BRANCH).unwrap();
                    added.set_properties(property(checkpoint.to_json()))
                }
                Event::Foreign(id) => builder.set_branch_snapshot(snapshot(id, HashMap::new()), MAIN_BRANCH),
                Event::RollBack(id) => {
                    let retention = iceberg::spec::SnapshotRetention::branch(None, None, None);
                    builder.set_ref(MAIN_BRANCH, iceberg::spec::SnapshotReference::new(id, retention))
                }
                Event::Expire(ids) => Ok(builder.remove_snapshots(&ids)),
                Event::Empty(source) => builder.set_properties(property(checkpoint(source, head).to_json())),
                Event::Property(text) => builder.set_properties(property(text.to_owned())),
                Event::NoProperty => builder.remove_properties(&[checkpoint_property(&job())]),
            };
            metadata = builder.unwrap().build().unwrap().metadata;
        }
        metadata
    }

    #[test]
    fn a_checkpoint_survives_json_and_summary() {
        for target in [None, Some((i64::MAX, 9))] {
            let checkpoint = checkpoint(i64::MAX - 1, target);
            assert_eq!(Checkpoint::from_json(&checkpoint.to_json()).unwrap(), checkpoint);
            assert!(checkpoint.to_json().contains("\"9223372036854775806\""), "ids are text");
        }
        let metadata = target(vec![Event::Ours(1, 11)]);
        let found = Checkpoint::from_summary(metadata.current_snapshot().unwrap(), &job()).unwrap().unwrap();
        assert_eq!(found, checkpoint(11, Some((1, 1))));
        let other = "other".parse().unwrap();
        assert_eq!(Checkpoint::from_summary(metadata.current_snapshot().unwrap(), &other).unwrap(), None);
    }

    #[test]
    fn a_checkpoint_of_version_1_still_parses() {
        let text = r#"{"version":1,"job":"orders","run":"r1","epoch":3,"fence":2,
            "source-uuid":"00000000-0000-0000-0000-000000000007","source-snapshot-id":"11","source-sequence-number":5,
            "target-snapshot-id":"1","target-sequence-number":1,"mirror-hash":"h"}"#;
        let expected = Checkpoint { next_change_ordinal: 0, ..checkpoint(11, Some((1, 1))) };
        assert_eq!(Checkpoint::from_json(text).unwrap(), expected);
    }

    #[test]
    fn the_property_is_trusted_only_while_its_snapshot_is_in_mains_history() {
        use Event::{Empty, Expire, Foreign, NoProperty, Ours, RollBack};
        let cases = [
            ("nothing yet", vec![Foreign(1)], None),
            ("at the head", vec![Ours(1, 11)], Some(11)),
            ("behind others", vec![Ours(1, 11), Foreign(2), Foreign(3)], Some(11)),
            ("moved alone", vec![Ours(1, 11), Foreign(2), Empty(12), Foreign(3)], Some(12)),
            ("moved alone on an empty table", vec![Empty(12)], Some(12)),
            ("moved alone before all others", vec![Empty(12), Foreign(1), Foreign(2)], Some(12)),
            ("rolled back to an older one", vec![Ours(1, 11), Ours(2, 12), RollBack(1)], Some(11)),
            ("rolled back behind a move alone", vec![Ours(1, 11), Foreign(2), Empty(12), RollBack(1)], Some(11)),
            ("rolled back, then others", vec![Ours(1, 11), Ours(2, 12), RollBack(1), Foreign(3)], Some(11)),
            ("rolled back to before the first", vec![Foreign(1), Ours(2, 12), RollBack(1)], None),
            ("expired right behind", vec![Ours(1, 11), Foreign(2), Expire(vec![1])], Some(11)),
            ("expired far behind", vec![Ours(1, 11), Foreign(2), Foreign(3), Expire(vec![1, 2])], Some(11)),
            ("property gone, summary there", vec![Ours(1, 11), Foreign(2), NoProperty], Some(11)),
        ];
        for (name, events, source) in cases {
            let metadata = target(events);
            let found = find_checkpoint(&metadata, &job()).unwrap();
            assert_eq!(found.map(|found| found.source_snapshot_id.0), source, "{name}");
            assert_eq!(in_doubt(&metadata, &job()).unwrap().is_some(), name == "expired far behind", "{name}");
        }
    }

    #[test]
    fn a_checkpoint_that_nobody_can_tell_is_an_error() {
        use Event::{Expire, Foreign, Ours, RollBack};
        // As pyiceberg expires: what is left of the history seems to begin there.
        let mut orphaned = serde_json::to_value(target(vec![Ours(1, 11), Foreign(2), Expire(vec![1])])).unwrap();
        orphaned["snapshots"][0].as_object_mut().unwrap().remove("parent-snapshot-id");
        let orphaned: TableMetadata = serde_json::from_value(orphaned).unwrap();
        assert_eq!(find_checkpoint(&orphaned, &job()).unwrap().unwrap().source_snapshot_id, SnapshotId(11));
        assert_eq!(in_doubt(&orphaned, &job()).unwrap(), Some((SnapshotId(2), SnapshotId(1))));
        for events in [
            vec![Foreign(1), Foreign(2), Ours(3, 13), RollBack(2), Expire(vec![1])],
            // Snapshot 2 of ours was rolled back; 3 was made on 1 right after it; then 1 and 2 expired.
            vec![Ours(1, 11), Ours(2, 12), RollBack(1), Foreign(3), Expire(vec![1, 2])],
        ] {
            let found = find_checkpoint(&target(events), &job());
            assert!(matches!(found, Err(CommitError::CheckpointLost { .. })), "{found:?}");
        }
    }

    #[test]
    fn a_property_that_cannot_be_read_is_an_error_by_name() {
        let good = checkpoint(11, None).to_json();
        let other_version = Box::leak(good.replace("\"version\":1", "\"version\":2").into_boxed_str());
        let other_job = Box::leak(good.replace("\"orders\"", "\"other\"").into_boxed_str());
        let bad_id = Box::leak(good.replace("\"11\"", "\"x\"").into_boxed_str());
        for text in ["", "{}", other_version, other_job, bad_id] {
            let error = find_checkpoint(&target(vec![Event::Property(text)]), &job()).unwrap_err();
            assert!(error.to_string().contains("iceferry.checkpoint.orders"), "{error}");
        }
    }

    #[test]
    fn other_jobs_are_told_apart() {
        let metadata = target(vec![Event::Ours(1, 11)]);
        assert_eq!(other_jobs(&metadata, &"orders.eu".parse().unwrap()), ["orders"]);
        assert!(other_jobs(&metadata, &job()).is_empty());
        assert_eq!(find_checkpoint(&metadata, &"orders.eu".parse().unwrap()).unwrap(), None);
    }
}
