//! Files that are missing, damaged, or of a kind that is not read: one clear error each, never a panic, never rows lost.

use iceferry_common::fault::{Class, Classified, chain};

use super::property::{Random, seed, setting};
use super::*;

fn error_of(lab: &Lab, file: DataFile) -> ReadError {
    lab.rows_of(&id_v_schema(), file).unwrap_err()
}

#[test]
fn a_file_that_cannot_be_read_fails_by_name_and_class() {
    let lab = Lab::new();
    let good = lab.data("good.parquet", &id_v(&[(1, "a"), (2, "b")]));
    let bytes = std::fs::read(lab.folder.path().join("good.parquet")).unwrap();
    let mut encrypted = bytes.clone();
    let end = encrypted.len();
    encrypted[end - 4..].copy_from_slice(b"PARE");
    let mut long_footer = bytes.clone();
    long_footer[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let as_parquet = |name: &str, bytes: &[u8]| lab.data_file(name, bytes, 2);
    let cut = as_parquet("cut.parquet", &bytes[..end - 20]);
    let cases: Vec<(&str, DataFile, Class, &str)> = vec![
        ("missing", DataFile { location: lab.location("none.parquet"), ..good.clone() }, Class::NotFound, "read file:"),
        ("shorter than said", DataFile { size_bytes: good.size_bytes, ..cut.clone() }, Class::Corrupt, "cut short"),
        ("longer than said", DataFile { size_bytes: good.size_bytes - 9, ..good.clone() }, Class::Corrupt, "replaced"),
        ("cut", cut, Class::Corrupt, "does not end like a Parquet file"),
        ("no Parquet", as_parquet("text.parquet", b"hello, this is a text"), Class::Corrupt, "does not end like"),
        ("tiny", as_parquet("tiny.parquet", b"PAR1"), Class::Corrupt, "4 bytes are no Parquet file"),
        ("encrypted", as_parquet("enc.parquet", &encrypted), Class::Refused, "encrypt"),
        ("footer too long", as_parquet("long.parquet", &long_footer), Class::Corrupt, "its footer claims"),
        ("fewer rows than said", DataFile { record_count: 3, ..good.clone() }, Class::Corrupt, "it has 2 rows"),
        ("ORC", DataFile { format: FileFormat::Orc, ..good.clone() }, Class::Refused, "Orc are not supported"),
        ("said to be Avro", DataFile { format: FileFormat::Avro, ..good }, Class::Corrupt, "like an Avro file"),
    ];
    for (name, file, class, text) in cases {
        let location = file.location.clone();
        let error = error_of(&lab, file);
        assert_eq!(error.class(), class, "{name}: {error:?}");
        assert!(chain(&error).contains(text) && chain(&error).contains(&location), "{name}: {}", chain(&error));
    }
}

#[test]
fn any_damaged_byte_gives_rows_or_an_error() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b"), (3, "c")]));
    let bytes = std::fs::read(lab.folder.path().join("f.parquet")).unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    for index in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[index] ^= 0x55;
        std::fs::write(lab.folder.path().join("f.parquet"), &bad).unwrap();
        // Parquet has no checksum over values, so a changed value may come out; a wrong number of rows may not.
        match lab.rows_of(&id_v_schema(), file.clone()) {
            Ok(rows) => assert_eq!(rows.len(), 3, "byte {index}"),
            Err(error) => {
                failed += 1;
                let fair = [Class::Corrupt, Class::Refused].contains(&error.class());
                assert!(fair, "byte {index}: {}", chain(&error));
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(failed > bytes.len() / 4, "{failed} of {}", bytes.len());
}

/// A list of texts: repetition and definition levels, dictionary and data pages, an offset index.
fn lists(lab: &Lab) -> (DataFile, Schema) {
    let mut builder = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new()).with_field(field(
        3,
        "element",
        DataType::Utf8,
        true,
    ));
    for row in 0..400 {
        for item in 0..row % 4 {
            builder.values().append_option((item != 2).then(|| format!("text {}", row % 37)));
        }
        builder.append(row % 9 != 0);
    }
    let list: ArrayRef = Arc::new(builder.finish());
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(150))
        .set_data_page_row_count_limit(20)
        .set_write_batch_size(20)
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let file =
        lab.data_file("lists.parquet", &parquet(&batch(&[(1, "id", ints(0..400)), (2, "l", list)]), properties), 400);
    let element = NestedField::list_element(3, Type::Primitive(PrimitiveType::String), false);
    let list = Type::List(iceberg::spec::ListType::new(element.into()));
    (file, schema([required(1, "id", PrimitiveType::Int), NestedField::optional(2, "l", list).into()]))
}

#[test]
fn random_damage_gives_the_right_number_of_rows_or_an_error() {
    let lab = Lab::new();
    let (file, schema) = lists(&lab);
    let wanted: Vec<u64> = vec![3, 171, 172, 399];
    let vector = lab.vector("v", &wanted);
    let whole = task(vec![added(file.clone())], Vec::new());
    let sparse = task(vec![difference(file, Some(&[]), Some(&[0]))], vec![vector]);
    let bytes = std::fs::read(lab.folder.path().join("lists.parquet")).unwrap();
    let context = context(schema);
    assert_eq!(lab.read(&context, &whole).unwrap().len(), 400);
    let rows: Vec<String> = lab.read(&context, &sparse).unwrap().into_iter().map(|(.., row)| row).collect();
    assert_eq!(rows, ["3|[text 3, text 3, null]", "171|null", "172|[]", "399|[text 29, text 29, null]"]);
    std::panic::set_hook(Box::new(|_| {}));
    let seed = seed();
    for case in 0..setting("ICEFERRY_CASES", || 150) {
        println!("ICEFERRY_SEED={} ICEFERRY_CASES=1", seed.wrapping_add(case));
        let mut random = Random(seed.wrapping_add(case));
        let mut bad = bytes.clone();
        for _ in 0..1 + random.below(4) {
            // The footer half of the time: it is a small part of the file, and leads everywhere.
            let footer = bytes.len() as u64 / 4;
            let start = if random.below(2) == 0 { bytes.len() as u64 - footer } else { 0 };
            let index = (start + random.below(bytes.len() as u64 - start)) as usize;
            bad[index] = random.next() as u8;
        }
        lab.put("lists.parquet", &bad);
        for (task, rows) in [(&whole, 400), (&sparse, 4)] {
            match lab.read(&context, task) {
                Ok(read) => assert_eq!(read.len(), rows),
                Err(error) => assert!([Class::Corrupt, Class::Refused].contains(&error.class()), "{}", chain(&error)),
            }
        }
    }
    let _ = std::panic::take_hook();
}

#[test]
fn damaged_deletes_fail_by_name() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a"), (2, "b")]));
    let vector = lab.vector("v.puffin", &[1]);
    let at = |offset, length| DeleteKind::Vector { offset, length };
    let DeleteKind::Vector { length, .. } = vector.kind else { unreachable!() };
    let position = lab.positions("p.parquet", &[(&file.location, 0)]);
    let no_pos = batch(&[(2_147_483_546, "file_path", texts(["x"]))]);
    let cases: Vec<(&str, DeleteFile, Class, &str)> = vec![
        ("beyond the file", DeleteFile { kind: at(1 << 40, 40), ..vector.clone() }, Class::Corrupt, "not within"),
        ("of endless length", DeleteFile { kind: at(4, u64::MAX), ..vector.clone() }, Class::Corrupt, "not within"),
        ("too short", DeleteFile { kind: at(4, 3), ..vector.clone() }, Class::Corrupt, "not within"),
        ("at another place", DeleteFile { kind: at(5, length), ..vector.clone() }, Class::Corrupt, "the vector's"),
        ("of another cardinality", DeleteFile { record_count: 2, ..vector.clone() }, Class::Corrupt, "has 1 positions"),
        ("of another size", DeleteFile { size_bytes: 4_000, ..vector.clone() }, Class::Corrupt, "4000"),
        ("in ORC", DeleteFile { format: FileFormat::Orc, ..position.clone() }, Class::Refused, "Orc"),
        ("missing", DeleteFile { location: lab.location("none"), ..position }, Class::NotFound, "none"),
        ("of a negative position", lab.positions("n.parquet", &[(&file.location, -1)]), Class::Corrupt, "position -1"),
        ("without positions", lab.delete_file("q", &no_pos, DeleteKind::Position), Class::Refused, "column pos"),
        (
            "without its key",
            lab.delete_file("k", &id_v(&[(1, "a")]), DeleteKind::Equality { field_ids: vec![3] }),
            Class::Refused,
            "no schema of the table has",
        ),
        (
            "lacking a key column",
            lab.delete_file("l", &batch(&[(1, "id", ints([1]))]), DeleteKind::Equality { field_ids: vec![2] }),
            Class::Refused,
            "column v",
        ),
    ];
    for (name, delete, class, text) in cases {
        let task = task(vec![difference(file.clone(), None, Some(&[0]))], vec![delete]);
        let error = lab.read(&context(id_v_schema()), &task).unwrap_err();
        assert_eq!(error.class(), class, "{name}: {error:?}");
        assert!(chain(&error).contains(text), "{name}: {}", chain(&error));
    }
    let two = vec![lab.vector("v1", &[0]), lab.vector("v2", &[1])];
    let task = task(vec![difference(file, None, Some(&[0, 1]))], two);
    assert_eq!(lab.read(&context(id_v_schema()), &task).unwrap_err().class(), Class::Corrupt);
}

#[test]
fn a_reader_ends_after_its_first_error() {
    let lab = Lab::new();
    let good = lab.data("good.parquet", &id_v(&[(1, "a")]));
    let bad = DataFile { location: lab.location("none"), ..good.clone() };
    let task = task(vec![added(bad), added(good)], Vec::new());
    let storage = Storage::new(StorageProperties::default());
    let handle = lab.runtime.handle().clone();
    let mut reader = TaskReader::open(&context(id_v_schema()), &task, storage, handle, ReadOptions::default()).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn a_task_that_contradicts_itself_is_a_bug() {
    let lab = Lab::new();
    let file = lab.data("f.parquet", &id_v(&[(1, "a")]));
    let context_of = || context(id_v_schema());
    let mut other_shape = context_of();
    other_shape.target.write_schema = Arc::new(schema([required(1, "id", PrimitiveType::Int)]));
    let cases = [
        (context_of(), task(vec![difference(file.clone(), None, None)], Vec::new())),
        (context_of(), task(vec![difference(file.clone(), None, Some(&[0]))], Vec::new())),
        (keyed(id_v_schema(), &[9]), task(vec![difference(file.clone(), Some(&[]), None)], Vec::new())),
        (other_shape, task(vec![added(file)], Vec::new())),
    ];
    for (context, task) in cases {
        assert_eq!(lab.read(&context, &task).unwrap_err().class(), Class::Bug);
    }
}
