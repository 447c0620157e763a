//! Metadata columns behind the rows.

use arrow::array::Int64Array;
use iceberg::spec::StructType;
use iceferry_common::model::{Changelog, Constant, DuplicateKeys, Identity, MetadataColumn, SnapshotId, SourceCommit};

use super::*;

pub(super) fn logged(columns: &[MetadataColumn]) -> EpochContext {
    let commit = SourceCommit { snapshot_id: SnapshotId(77), sequence_number: 5, timestamp_ms: 1, change_ordinal: 3 };
    let region = NestedField::optional(1000, "region", Type::Primitive(PrimitiveType::String));
    let day = NestedField::optional(1001, "day", Type::Primitive(PrimitiveType::Int));
    let mut context = context(id_v_schema());
    context.changelog = Some(Changelog {
        commit,
        metadata_columns: columns.to_vec(),
        partition_type: StructType::new(vec![region.into(), day.into()]),
        identity: Identity::None,
        duplicate_keys: DuplicateKeys::Pair,
        compared_schema: None,
        columns: Vec::new(),
    });
    context
}

fn rows(lab: &Lab, columns: &[MetadataColumn], task: &ScanTask) -> Vec<Row> {
    lab.read(&logged(columns), task).unwrap()
}

#[test]
fn they_stand_behind_the_rows_in_the_order_asked_for() {
    let lab = Lab::new();
    let mut file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b")]));
    file.spec_id = 4;
    file.partition = vec![Constant { field_id: 1000, value: Some(b"EU".to_vec()) }];
    let columns = [
        MetadataColumn::Partition,
        MetadataColumn::SpecId,
        MetadataColumn::CommitTimestamp,
        MetadataColumn::CommitSnapshotSequenceNumber,
        MetadataColumn::CommitSnapshotId,
        MetadataColumn::ChangeOrdinal,
        MetadataColumn::Pos,
        MetadataColumn::File,
    ];
    let location = file.location.clone();
    let rows = rows(&lab, &columns, &task(vec![added(file)], Vec::new()));
    let expected = |id_v: &str, position: u64| {
        format!("{id_v}|{{region: EU, day: null}}|4|1970-01-01T00:00:00.001Z|5|77|3|{position}|{location}")
    };
    assert_eq!(rows, inserts(&[&expected("1|a", 0), &expected("2|b", 1)]));
}

#[test]
fn a_difference_of_another_snapshot_names_that_one() {
    let lab = Lab::new();
    let (one, two) = (lab.data("f.parquet", &id_v(&[(1, "a")])), lab.data("g.parquet", &id_v(&[(2, "b")])));
    let commit = SourceCommit { snapshot_id: SnapshotId(78), sequence_number: 6, timestamp_ms: 2, change_ordinal: 4 };
    let named = FileDifference { commit: Some(commit), ..added(two) };
    let columns = [MetadataColumn::CommitSnapshotId, MetadataColumn::ChangeOrdinal];
    let rows = rows(&lab, &columns, &task(vec![added(one), named], Vec::new()));
    assert_eq!(rows, inserts(&["1|a|77|3", "2|b|78|4"]));
}

#[test]
fn positions_are_those_in_the_file_whatever_is_left_out() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]));
    let positions = lab.positions("pd.parquet", &[(&file.location, 1)]);
    let equality = lab.equality("ed.parquet", &[(1, "id", ints([4]))]);
    let task = task(vec![difference(file, None, Some(&[0, 1]))], vec![positions, equality]);
    assert_eq!(rows(&lab, &[MetadataColumn::Pos], &task), inserts(&["1|a|0", "3|c|2", "5|e|4"]));
}

#[test]
fn rows_that_went_say_where_they_were() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b"), (3, "c")]));
    let deleted = lab.vector("dv.puffin", &[2]);
    let task = task(vec![difference(file, Some(&[]), Some(&[0]))], vec![deleted]);
    assert_eq!(rows(&lab, &[MetadataColumn::Pos], &task), deletes(&["3|c|2"]));
}

#[test]
fn lineage_is_the_files_own_where_it_has_it_and_follows_from_the_manifest_elsewhere() {
    let lab = Lab::new();
    let columns = [MetadataColumn::RowId, MetadataColumn::LastUpdatedSequenceNumber];
    let longs = |values: [Option<i64>; 2]| -> ArrayRef { Arc::new(Int64Array::from_iter(values)) };
    let carried = batch(&[
        (1, "id", ints([1, 2])),
        (2, "v", texts(["a", "b"])),
        (2_147_483_540, "_row_id", longs([Some(40), None])),
        (2_147_483_539, "_last_updated_sequence_number", longs([Some(2), None])),
    ]);
    for (name, batch, first_row_id, expected) in [
        ("plain", id_v(&[(1, "a"), (2, "b")]), Some(100), ["1|a|100|9", "2|b|101|9"]),
        ("carried", carried.clone(), Some(100), ["1|a|40|2", "2|b|101|9"]),
        ("no part in the lineage", id_v(&[(1, "a"), (2, "b")]), None, ["1|a|null|null", "2|b|null|null"]),
    ] {
        let mut file = lab.data(&format!("{name}.parquet"), &batch);
        file.first_row_id = first_row_id;
        file.sequence_number = 9;
        assert_eq!(rows(&lab, &columns, &task(vec![added(file)], Vec::new())), inserts(&expected), "{name}");
    }
}

#[test]
fn a_partition_value_that_is_none_is_refused_by_name() {
    let lab = Lab::new();
    let mut file = lab.data("f.parquet", &id_v(&[(1, "a")]));
    file.partition = vec![Constant { field_id: 1001, value: Some(vec![1]) }];
    let task = task(vec![added(file)], Vec::new());
    let error = lab.read(&logged(&[MetadataColumn::Partition]), &task).unwrap_err();
    assert!(error.to_string().contains("_partition.day"), "{error}");
}
