//! Files that are missing, damaged, or of a kind that is not read: one clear error each, never a panic, never rows lost.

use iceferry_common::fault::{Class, Classified, chain};

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
        ("Avro", DataFile { format: FileFormat::Avro, ..good }, Class::Refused, "Avro are not supported"),
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
