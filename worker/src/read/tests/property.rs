//! Random file differences against a plain model. `ICEFERRY_SEED` repeats a run, `ICEFERRY_CASES` makes it longer.

use std::collections::BTreeSet;

use apache_avro::Codec;
use apache_avro::types::Value;
use iceberg::spec::ListType;

use super::avro::{container, none, record, some};
use super::*;

/// A small generator of random numbers (SplitMix64): enough for tests, and the same everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) fn setting(name: &str, default: impl FnOnce() -> u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(default)
}

pub(super) fn seed() -> u64 {
    setting("ICEFERRY_SEED", || std::time::UNIX_EPOCH.elapsed().map_or(1, |elapsed| elapsed.as_nanos() as u64))
}

#[derive(Debug, Clone)]
enum Delete {
    Positions(BTreeSet<(usize, u64)>),
    Vector(usize, BTreeSet<u64>),
    Ids(BTreeSet<Option<i32>>),
    IdsAndNames(BTreeSet<(Option<i32>, i32)>),
}

type Table = Vec<Vec<(Option<i32>, i32)>>;

/// The model: whether a row is dead, straight from the spec.
fn is_dead(deletes: &[Delete], side: &[u32], file: usize, position: u64, row: (Option<i32>, i32)) -> bool {
    let of_side = || side.iter().map(|index| &deletes[*index as usize]);
    let has_vector = of_side().any(|delete| matches!(delete, Delete::Vector(of, _) if *of == file));
    of_side().any(|delete| match delete {
        Delete::Positions(positions) => !has_vector && positions.contains(&(file, position)),
        Delete::Vector(of, positions) => *of == file && positions.contains(&position),
        Delete::Ids(ids) => ids.contains(&row.0),
        Delete::IdsAndNames(keys) => keys.contains(&row),
    })
}

fn rows(random: &mut Random) -> Vec<(Option<i32>, i32)> {
    let count = 1 + random.below(400);
    let row = |random: &mut Random| {
        let id = (!random.chance(10)).then(|| random.below(60) as i32);
        (id, random.below(4) as i32)
    };
    let mut rows: Vec<_> = (0..count).map(|_| row(random)).collect();
    if random.chance(50) {
        // So that row groups and pages have bounds of their own.
        rows.sort_unstable();
    }
    rows
}

fn columns(keys: impl Iterator<Item = (Option<i32>, i32)> + Clone) -> [(i32, &'static str, ArrayRef); 2] {
    let ids: ArrayRef = Arc::new(Int32Array::from_iter(keys.clone().map(|key| key.0)));
    [(1, "id", ids), (2, "n", ints(keys.map(|key| key.1)))]
}

fn random_delete(random: &mut Random, table: &Table) -> Delete {
    let position = |random: &mut Random, file: usize| random.below(table[file].len() as u64 + 3);
    let id = |random: &mut Random| (!random.chance(10)).then(|| random.below(70) as i32);
    let size = random.below(3) as usize;
    let count = random.below(1 + [3, 40, 300][size]);
    match random.below(4) {
        0 => {
            let one = |random: &mut Random| {
                let file = random.below(table.len() as u64) as usize;
                (file, position(random, file))
            };
            Delete::Positions((0..count).map(|_| one(random)).collect())
        }
        1 => {
            let file = random.below(table.len() as u64) as usize;
            Delete::Vector(file, (0..count).map(|_| position(random, file)).collect())
        }
        2 => Delete::Ids((0..count % 12).map(|_| id(random)).collect()),
        _ => Delete::IdsAndNames((0..count % 25).map(|_| (id(random), random.below(5) as i32)).collect()),
    }
}

fn write_delete(lab: &Lab, name: &str, delete: &Delete, files: &[DataFile], random: &mut Random) -> DeleteFile {
    match delete {
        Delete::Positions(positions) => {
            let mut rows: Vec<(&str, i64)> =
                positions.iter().map(|(file, position)| (files[*file].location.as_str(), *position as i64)).collect();
            for index in (1..rows.len()).rev() {
                rows.swap(index, random.below(index as u64 + 1) as usize);
            }
            if random.chance(30) {
                return avro_positions(lab, name, &rows);
            }
            lab.positions(name, &rows)
        }
        Delete::Vector(_, positions) => lab.vector(name, &positions.iter().copied().collect::<Vec<_>>()),
        Delete::Ids(ids) => {
            if random.chance(30) {
                let rows: Vec<_> = ids.iter().map(|id| (*id, 0)).collect();
                return avro_keys(lab, name, &rows, &[1]);
            }
            let [id, _] = columns(ids.iter().map(|id| (*id, 0)));
            lab.equality(name, &[id])
        }
        Delete::IdsAndNames(keys) => {
            if random.chance(30) {
                return avro_keys(lab, name, &keys.iter().copied().collect::<Vec<_>>(), &[1, 2]);
            }
            let [id, n] = columns(keys.iter().copied());
            lab.equality(name, &[n, id])
        }
    }
}

const AVRO_ROW: &str = r#"{"type":"record","name":"t","fields":[{"name":"id","type":["null","int"],"field-id":1},
    {"name":"l","type":{"type":"array","items":"int","element-id":4},"field-id":3},
    {"name":"n","type":"int","field-id":2}]}"#;

/// Rows in blocks of some size.
fn avro(rows: &[(Option<i32>, i32)], block_rows: usize, codec: Codec) -> Vec<u8> {
    let row = |row: &(Option<i32>, i32)| {
        let list = (0..row.1).map(Value::Int).collect();
        let id = row.0.map_or_else(none, |id| some(Value::Int(id)));
        record(&[("id", id), ("l", Value::Array(list)), ("n", Value::Int(row.1))])
    };
    let blocks: Vec<Vec<Value>> = rows.chunks(block_rows).map(|rows| rows.iter().map(row).collect()).collect();
    container(AVRO_ROW, &blocks, codec)
}

fn avro_keys(lab: &Lab, name: &str, rows: &[(Option<i32>, i32)], field_ids: &[i32]) -> DeleteFile {
    let size_bytes = lab.put(name, avro(rows, 5, Codec::Snappy));
    let kind = DeleteKind::Equality { field_ids: field_ids.to_vec() };
    let (location, record_count) = (lab.location(name), rows.len() as u64);
    DeleteFile { location, format: FileFormat::Avro, size_bytes, record_count, kind }
}

fn avro_positions(lab: &Lab, name: &str, rows: &[(&str, i64)]) -> DeleteFile {
    let json = r#"{"type":"record","name":"d","fields":[{"name":"file_path","type":"string","field-id":2147483546},
        {"name":"pos","type":"long","field-id":2147483545}]}"#;
    let row = |(path, position): &(&str, i64)| {
        record(&[("file_path", Value::String((*path).to_owned())), ("pos", Value::Long(*position))])
    };
    let size_bytes = lab.put(name, container(json, &[rows.iter().map(row).collect()], Codec::Null));
    let (location, record_count) = (lab.location(name), rows.len() as u64);
    DeleteFile { location, format: FileFormat::Avro, size_bytes, record_count, kind: DeleteKind::Position }
}

/// Deletes of a side: any of them, but of vectors at most one for the file and none for others.
fn random_side(random: &mut Random, deletes: &[Delete], file: usize) -> Vec<u32> {
    let mut has_vector = false;
    let mut side = Vec::new();
    for (index, delete) in (0..).zip(deletes) {
        let fits = match delete {
            Delete::Vector(of, _) => *of == file && !has_vector,
            _ => true,
        };
        if fits && random.chance(50) {
            has_vector |= matches!(delete, Delete::Vector(..));
            side.push(index);
        }
    }
    side
}

fn line(row: (Option<i32>, i32), with_list: bool) -> String {
    let list = if with_list { format!("|{:?}", (0..row.1).collect::<Vec<_>>()) } else { String::new() };
    format!("{}|{}{list}", row.0.map_or("null".to_owned(), |id| id.to_string()), row.1)
}

/// A list that follows from the row's second column.
fn list_column(rows: &[(Option<i32>, i32)]) -> ArrayRef {
    let element = field(4, "element", DataType::Int32, true);
    let mut builder = arrow::array::ListBuilder::new(arrow::array::Int32Builder::new()).with_field(element);
    for (_, length) in rows {
        builder.append_value((0..*length).map(Some));
    }
    Arc::new(builder.finish())
}

/// A condition, and what it means of a row.
type Condition = (&'static str, fn((Option<i32>, i32)) -> bool);

const FILTERS: &[Condition] = &[
    ("id = 7", |row| row.0 == Some(7)),
    ("id is null", |row| row.0.is_none()),
    ("id > 40 and n <> 1", |row| row.0 > Some(40) && row.1 != 1),
    ("not (id in (1, 2, 3) or n = 2)", |row| row.0.is_some_and(|id| !(1..=3).contains(&id)) && row.1 != 2),
    ("n >= 0", |_| true),
    ("n between 5 and 9", |_| false),
];

fn run_case(lab: &Lab, random: &mut Random) {
    let table: Table = (0..1 + random.below(3)).map(|_| rows(random)).collect();
    // Columns below a list are read in another way.
    let with_list = random.chance(30);
    let list =
        Type::List(ListType::new(NestedField::list_element(4, Type::Primitive(PrimitiveType::Int), false).into()));
    let mut fields = vec![optional(1, "id", PrimitiveType::Int), required(2, "n", PrimitiveType::Int)];
    if with_list {
        fields.push(NestedField::required(3, "l", list).into());
    }
    let schema = schema(fields);
    let group_rows = 1 + random.below(150) as usize;
    let page_rows = 1 + random.below(50) as usize;
    let codecs = [Codec::Null, Codec::Snappy, Codec::Deflate(Default::default())];
    let in_avro: Vec<Option<Codec>> =
        table.iter().map(|_| random.chance(30).then(|| codecs[random.below(3) as usize])).collect();
    let write = |(index, rows): (usize, &Vec<_>)| {
        if let Some(codec) = in_avro[index] {
            let bytes = avro(rows, page_rows, codec);
            let file = lab.data_file(&format!("f{index}"), &bytes, rows.len() as u64);
            return DataFile { format: FileFormat::Avro, ..file };
        }
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(group_rows))
            .set_data_page_row_count_limit(page_rows)
            .set_write_batch_size(page_rows)
            .build();
        let mut columns = columns(rows.iter().copied()).to_vec();
        if with_list {
            columns.push((3, "l", list_column(rows)));
        }
        let bytes = parquet(&batch(&columns), properties);
        lab.data_file(&format!("f{index}"), &bytes, rows.len() as u64)
    };
    let files: Vec<DataFile> = table.iter().enumerate().map(write).collect();
    let deletes: Vec<Delete> = (0..random.below(7)).map(|_| random_delete(random, &table)).collect();
    let written: Vec<DeleteFile> = (0..deletes.len())
        .map(|index| write_delete(lab, &format!("d{index}"), &deletes[index], &files, random))
        .collect();

    let filter = random.chance(60).then(|| FILTERS[random.below(FILTERS.len() as u64) as usize]);
    let stays = |row: (Option<i32>, i32)| filter.is_none_or(|(_, stays)| stays(row));
    let (mut differences, mut went, mut came) = (Vec::new(), Vec::new(), Vec::new());
    for (file, rows) in table.iter().enumerate() {
        let kind = random.below(4);
        let before = (kind != 0).then(|| random_side(random, &deletes, file));
        let mut after = (kind != 1).then(|| random_side(random, &deletes, file));
        if kind == 3 && random.chance(50) {
            // What happens most: nothing but one more delete.
            after.clone_from(&before);
            let extra = random.below(deletes.len() as u64) as u32;
            let is_vector = |index: u32| matches!(deletes.get(index as usize), Some(Delete::Vector(..)) | None);
            if let Some(after) = after.as_mut().filter(|after| !after.contains(&extra) && !is_vector(extra)) {
                after.push(extra);
            }
        }
        for (position, row) in (0u64..).zip(rows) {
            let live = |side: &Option<Vec<u32>>| {
                side.as_ref().is_some_and(|side| !is_dead(&deletes, side, file, position, *row))
            };
            match (live(&before), live(&after)) {
                _ if !stays(*row) => {}
                (true, false) => went.push(line(*row, with_list)),
                (false, true) => came.push(line(*row, with_list)),
                _ => {}
            }
        }
        let one = difference(files[file].clone(), before.as_deref(), after.as_deref());
        if files[file].format == FileFormat::Parquet && random.chance(40) {
            let size = files[file].size_bytes;
            let border = random.below(size);
            differences.extend([split(one.clone(), 0, border), split(one, border, size)]);
        } else {
            differences.push(one);
        }
    }
    let mut task = task(differences, written);
    if random.chance(30) {
        task.resolution = Resolution::CarryOver;
    }
    let options = ReadOptions {
        batch_rows: 1 + random.below(100) as usize,
        fetch_bytes: [1, 2_000, 1 << 24][random.below(3) as usize],
        ..ReadOptions::default()
    };
    let mut context = context(schema);
    context.source.filter = filter.map(|(text, _)| table_filter(&context, text));
    let got = lab.read_with(&context, &task, options).unwrap();
    let of = |change: Change| -> Vec<String> {
        got.iter().filter(|row| row.0 == change).map(|(.., row)| row.clone()).collect()
    };
    assert_eq!(of(Change::Delete), went, "DELETE rows");
    assert_eq!(of(Change::Insert), came, "INSERT rows");
    if task.resolution == Resolution::CarryOver {
        assert!(got.is_sorted_by_key(|row| row.0 == Change::Insert), "a DELETE row came after an INSERT row");
    }
}

#[test]
fn random_differences_are_those_of_the_model() {
    let seed = seed();
    let lab = Lab::new();
    for case in 0..setting("ICEFERRY_CASES", || 150) {
        println!("ICEFERRY_SEED={} ICEFERRY_CASES=1", seed.wrapping_add(case));
        run_case(&lab, &mut Random(seed.wrapping_add(case)));
    }
}
