//! Random manifests, as the iceberg crate writes them.

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, ManifestFile, ManifestWriterBuilder,
    NestedField, PartitionSpec, PrimitiveType, Schema, Struct, StructType, TableMetadata, Transform, Type,
};
use serde_json::json;

use super::super::super::entry::Wanted;

/// Numbers that look random, the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    fn some<T>(&mut self, percent: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(percent).then(|| make(self))
    }
}

/// A manifest, its table, and what is wanted of it.
pub(super) struct Sample {
    pub(super) table: TableMetadata,
    pub(super) file: ManifestFile,
    pub(super) bytes: Vec<u8>,
    pub(super) wanted: Wanted,
    pub(super) filter: Option<String>,
}

const TYPES: [PrimitiveType; 17] = [
    PrimitiveType::Boolean,
    PrimitiveType::Int,
    PrimitiveType::Long,
    PrimitiveType::Float,
    PrimitiveType::Double,
    PrimitiveType::Date,
    PrimitiveType::Time,
    PrimitiveType::Timestamp,
    PrimitiveType::Timestamptz,
    PrimitiveType::TimestampNs,
    PrimitiveType::TimestamptzNs,
    PrimitiveType::String,
    PrimitiveType::Uuid,
    PrimitiveType::Fixed(5),
    PrimitiveType::Binary,
    PrimitiveType::Decimal { precision: 9, scale: 2 },
    PrimitiveType::Decimal { precision: 38, scale: 10 },
];

impl Sample {
    /// `None` when the crate cannot write it, or cannot read what it wrote.
    pub(super) async fn new(random: &mut Random) -> Option<Self> {
        let (schema, columns) = schema(random);
        let schema = Arc::new(schema);
        let spec = spec(&schema, &columns, random);
        let partition_type = spec.partition_type(&schema).unwrap();
        let version = 1 + random.below(3);
        let deletes = version > 1 && random.chance(30);
        let folder = tempfile::tempdir().unwrap();
        let path = format!("{}/m.avro", folder.path().display());
        let output = FileIO::new_with_fs().new_output(&path).unwrap();
        let builder = ManifestWriterBuilder::new(output, Some(5), Arc::clone(&schema), spec.clone());
        let mut writer = match (version, deletes) {
            (1, _) => builder.build_v1(),
            (2, false) => builder.build_v2_data(),
            (2, true) => builder.build_v2_deletes(),
            (_, false) => builder.build_v3_data(),
            (_, true) => builder.build_v3_deletes(),
        };
        let partitions: Vec<Struct> = (0..1 + random.below(4)).map(|_| partition(&partition_type, random)).collect();
        for _ in 0..random.below(20) {
            let file = file(&columns, &partitions, deletes, random);
            match random.below(4) {
                0 => writer.add_delete_file(file, 3, Some(3)),
                1 => writer.add_existing_file(file, 4, 2 + random.below(2) as i64, Some(2)),
                2 => writer.add_file(file, 3),
                _ => writer.add_file(file, -1),
            }
            .unwrap();
        }
        let mut file = writer.write_manifest_file().await.ok()?;
        file.sequence_number = 7;
        file.first_row_id = (version == 3 && !deletes).then_some(1_000);
        let bytes = std::fs::read(&path).unwrap();
        iceberg::spec::Manifest::parse_avro(&bytes).ok()?;
        let bounds_of = columns.iter().filter(|_| random.chance(40)).map(|(id, _)| *id).collect();
        let wanted = Wanted { bounds_of, with_metrics: random.chance(50) };
        let filter = random.some(40, |random| condition(&columns, random));
        Some(Self { table: table(&schema, &spec), file, bytes, wanted, filter })
    }
}

/// A schema, and its columns outside of structs.
fn schema(random: &mut Random) -> (Schema, Vec<(i32, PrimitiveType)>) {
    let mut id = 0;
    let mut columns = Vec::new();
    for _ in 0..1 + random.below(7) {
        id += 1 + random.below(3) as i32;
        columns.push((id, TYPES[random.below(TYPES.len())].clone()));
    }
    let mut fields: Vec<_> = columns
        .iter()
        .map(|(id, kind)| Arc::new(NestedField::optional(*id, format!("c{id}"), Type::Primitive(kind.clone()))))
        .collect();
    let inner = Arc::new(NestedField::optional(id + 2, "inner", Type::Primitive(PrimitiveType::Long)));
    fields.push(Arc::new(NestedField::optional(id + 1, "outer", Type::Struct(StructType::new(vec![inner])))));
    let schema = Schema::builder().with_fields(fields).build().unwrap();
    columns.push((id + 2, PrimitiveType::Long));
    (schema, columns)
}

fn spec(schema: &Arc<Schema>, columns: &[(i32, PrimitiveType)], random: &mut Random) -> PartitionSpec {
    let transforms = [
        Transform::Identity,
        Transform::Identity,
        Transform::Void,
        Transform::Bucket(4),
        Transform::Truncate(3),
        Transform::Year,
        Transform::Day,
        Transform::Hour,
    ];
    let mut builder = PartitionSpec::builder(Arc::clone(schema));
    let mut taken = Vec::new();
    for at in 0..random.below(4) {
        let (id, _) = &columns[random.below(columns.len() - 1)];
        if taken.contains(id) {
            continue;
        }
        let transform = transforms[random.below(transforms.len())];
        let one = PartitionSpec::builder(Arc::clone(schema));
        if one.add_partition_field(format!("c{id}"), format!("p{at}"), transform).is_ok() {
            taken.push(*id);
            builder = builder.add_partition_field(format!("c{id}"), format!("p{at}"), transform).unwrap();
        }
    }
    builder.build().unwrap()
}

fn partition(of: &StructType, random: &mut Random) -> Struct {
    let value = |kind: &PrimitiveType, random: &mut Random| {
        random.some(80, |random| Literal::Primitive(datum(kind, random).literal().clone()))
    };
    of.fields().iter().map(|field| value(field.field_type.as_primitive_type().unwrap(), random)).collect()
}

fn datum(kind: &PrimitiveType, random: &mut Random) -> Datum {
    let small = random.below(20) as i64 - 10;
    let bytes = match kind {
        PrimitiveType::Boolean => vec![random.below(2) as u8],
        PrimitiveType::Int | PrimitiveType::Date => (small as i32).to_le_bytes().to_vec(),
        PrimitiveType::Float => [1.5f32, -0.0, f32::NAN, f32::MAX][random.below(4)].to_le_bytes().to_vec(),
        PrimitiveType::Double => [1.5f64, -0.0, f64::NAN, f64::MIN][random.below(4)].to_le_bytes().to_vec(),
        PrimitiveType::String => "añb".repeat(random.below(4)).into_bytes(),
        PrimitiveType::Uuid => (0..16).map(|_| random.next() as u8).collect(),
        PrimitiveType::Fixed(length) => (0..*length).map(|_| random.next() as u8).collect(),
        PrimitiveType::Binary => (0..random.below(70)).map(|_| random.next() as u8).collect(),
        PrimitiveType::Decimal { .. } => i128::from(small * 1_000).to_be_bytes().to_vec(),
        _ => [small, random.next() as i64 >> 8][random.below(2)].to_le_bytes().to_vec(),
    };
    Datum::try_from_bytes(&bytes, kind.clone()).unwrap()
}

fn file(columns: &[(i32, PrimitiveType)], partitions: &[Struct], deletes: bool, random: &mut Random) -> DataFile {
    let content = match (deletes, random.below(2)) {
        (false, _) => DataContentType::Data,
        (true, 0) => DataContentType::PositionDeletes,
        (true, _) => DataContentType::EqualityDeletes,
    };
    let is_vector = content == DataContentType::PositionDeletes && random.chance(40);
    let formats = [DataFileFormat::Parquet, DataFileFormat::Avro, DataFileFormat::Orc];
    let rows = random.below(1_000) as u64;
    let counts = |random: &mut Random, percent| -> HashMap<i32, u64> {
        let of = |(id, _): &(i32, PrimitiveType)| random.some(percent, |random| (*id, random.below(3) as u64));
        columns.iter().filter_map(of).collect()
    };
    let (values, nulls, nans, sizes) = (counts(random, 80), counts(random, 80), counts(random, 20), counts(random, 50));
    let bounds = |random: &mut Random| -> HashMap<i32, Datum> {
        let of = |(id, kind): &(i32, PrimitiveType)| random.some(70, |random| (*id, datum(kind, random)));
        let mut bounds: HashMap<i32, Datum> = columns.iter().filter_map(of).collect();
        if content == DataContentType::PositionDeletes && random.chance(70) {
            bounds.insert(2_147_483_546, Datum::string(format!("/t/data/{}.parquet", random.below(3))));
        }
        bounds
    };
    let (lower, upper) = (bounds(random), bounds(random));
    let path = "x".repeat(random.below(200));
    let mut builder = DataFileBuilder::default();
    if random.chance(50) {
        builder.sort_order_id(random.below(3) as i32);
    }
    builder
        .content(content)
        .file_path(format!("/t/data/{path}-{}.parquet", random.next()))
        .file_format(if is_vector { DataFileFormat::Puffin } else { formats[random.below(3)] })
        .partition(partitions[random.below(partitions.len())].clone())
        .record_count(rows)
        .file_size_in_bytes(random.next() >> 30)
        .column_sizes(sizes)
        .value_counts(values)
        .null_value_counts(nulls)
        .nan_value_counts(nans)
        .lower_bounds(lower)
        .upper_bounds(upper)
        .key_metadata(random.some(10, |random| vec![1; random.below(3)]))
        .split_offsets(random.some(60, |random| (0..random.below(4) as i64).map(|at| 4 + at * 1_000_000).collect()))
        .equality_ids((content == DataContentType::EqualityDeletes).then(|| vec![columns[0].0]))
        .first_row_id(random.some(10, |random| random.below(100) as i64))
        .referenced_data_file((is_vector || random.chance(10)).then(|| format!("/t/data/{}.parquet", random.below(3))))
        .content_offset(is_vector.then_some(4))
        .content_size_in_bytes(is_vector.then_some(40))
        .build()
        .unwrap()
}

fn condition(columns: &[(i32, PrimitiveType)], random: &mut Random) -> String {
    // The last is in a struct.
    let one = |random: &mut Random| {
        let (id, kind) = &columns[random.below(columns.len() - 1)];
        match kind {
            PrimitiveType::Int | PrimitiveType::Long | PrimitiveType::Decimal { .. } if random.chance(70) => {
                format!("c{id} {} {}", ["=", "<", ">="][random.below(3)], random.below(20) as i64 - 10)
            }
            PrimitiveType::String if random.chance(70) => format!("c{id} > 'b'"),
            PrimitiveType::Date if random.chance(70) => format!("c{id} < DATE '1970-01-03'"),
            PrimitiveType::Timestamp if random.chance(70) => format!("c{id} < TIMESTAMP '1970-01-01 00:00:00'"),
            PrimitiveType::Double | PrimitiveType::Float if random.chance(70) => format!("c{id} IS NAN"),
            _ => format!("c{id} IS {}NULL", ["", "NOT "][random.below(2)]),
        }
    };
    match random.below(3) {
        0 => format!("{} OR {}", one(random), one(random)),
        1 => format!("{} AND {}", one(random), one(random)),
        _ => one(random),
    }
}

/// A table with this schema and spec, and nothing in it.
pub(super) fn table(schema: &Schema, spec: &PartitionSpec) -> TableMetadata {
    let metadata = json!({
        "format-version": 3, "table-uuid": "5f3a9a9e-0c8b-4a0a-8f6e-0f1f5f6b7c2d", "location": "/t",
        "last-sequence-number": 9, "last-updated-ms": 1_700_000_000_000i64, "last-column-id": 1_000, "next-row-id": 0,
        "current-schema-id": 0, "schemas": [schema], "default-spec-id": spec.spec_id(), "partition-specs": [spec],
        "last-partition-id": 2_000, "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
    });
    serde_json::from_value(metadata).unwrap()
}
