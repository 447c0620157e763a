//! Random files, schemas and changelogs: what is carried over reads as what is decoded. `ICEFERRY_SEED` repeats a run,
//! `ICEFERRY_CASES` makes it longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Fields, Schema as ArrowSchema};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{Literal, NestedField, NestedFieldRef, PrimitiveLiteral};
use iceferry_common::model::{
    Changelog, ColumnSource, Constant, DuplicateKeys, Identity, MetadataColumn, SnapshotId, SourceCommit,
};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use parquet::basic::Compression;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::{EnabledStatistics, ReaderProperties, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;

use super::random::{Ids, Random, any_field, array, evolved, literal, renumbered};
use super::*;
use crate::splice::Way;
use crate::stage::layout::Layout;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn properties(random: &mut Random) -> WriterProperties {
    let codecs =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW, Compression::ZSTD(Default::default())];
    let statistics =
        [EnabledStatistics::Page, EnabledStatistics::Page, EnabledStatistics::Chunk, EnabledStatistics::None];
    let version = if random.chance(50) { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
    WriterProperties::builder()
        .set_compression(codecs[random.below(4) as usize])
        .set_statistics_enabled(statistics[random.below(4) as usize])
        .set_writer_version(version)
        .set_dictionary_enabled(random.chance(70))
        .set_bloom_filter_enabled(random.chance(40))
        .set_max_row_group_row_count(Some(50 + random.below(300) as usize))
        .set_data_page_row_count_limit(10 + random.below(100) as usize)
        .set_write_batch_size(16)
        .set_offset_index_disabled(random.chance(15))
        .set_dictionary_page_size_limit(200 + random.below(2000) as usize)
        .build()
}

/// The Arrow schema without field ids, at any depth.
fn without_ids(fields: &Fields) -> Fields {
    use arrow::datatypes::DataType;
    let bare = |field: &Field| {
        let of = match field.data_type() {
            DataType::Struct(fields) => DataType::Struct(without_ids(fields)),
            DataType::List(element) => {
                DataType::List(without_ids(&[Arc::clone(element)].into_iter().collect())[0].clone())
            }
            DataType::Map(entries, sorted) => {
                DataType::Map(without_ids(&[Arc::clone(entries)].into_iter().collect())[0].clone(), *sorted)
            }
            of => of.clone(),
        };
        let mut metadata = field.metadata().clone();
        metadata.remove(PARQUET_FIELD_ID_META_KEY);
        Field::new(field.name(), of, field.is_nullable()).with_metadata(metadata)
    };
    fields.iter().map(|field| Arc::new(bare(field))).collect()
}

/// A name mapping of a schema's names.
fn mapping(fields: &[NestedFieldRef]) -> serde_json::Value {
    let of = |field: &NestedFieldRef| {
        let below = match field.field_type.as_ref() {
            Type::Primitive(_) => Vec::new(),
            Type::Struct(of) => of.fields().to_vec(),
            Type::List(of) => vec![Arc::clone(&of.element_field)],
            Type::Map(of) => vec![Arc::clone(&of.key_field), Arc::clone(&of.value_field)],
        };
        serde_json::json!({ "field-id": field.id, "names": [field.name], "fields": mapping(&below) })
    };
    fields.iter().map(of).collect()
}

/// Iceberg's single-value serialization.
fn single_value(value: &PrimitiveLiteral) -> Vec<u8> {
    match value {
        PrimitiveLiteral::Boolean(value) => vec![u8::from(*value)],
        PrimitiveLiteral::Int(value) => value.to_le_bytes().to_vec(),
        PrimitiveLiteral::Long(value) => value.to_le_bytes().to_vec(),
        PrimitiveLiteral::Float(value) => value.0.to_le_bytes().to_vec(),
        PrimitiveLiteral::Double(value) => value.0.to_le_bytes().to_vec(),
        PrimitiveLiteral::String(value) => value.as_bytes().to_vec(),
        PrimitiveLiteral::Binary(value) => value.clone(),
        PrimitiveLiteral::Int128(value) => value.to_be_bytes().to_vec(),
        PrimitiveLiteral::UInt128(value) => value.to_be_bytes().to_vec(),
        _ => panic!("no value"),
    }
}

struct Case {
    lab: Lab,
    files: Vec<DataFile>,
}

/// A lab whose files have one schema, whose table has a later one, and whose target has other ids, or is a changelog.
fn case(random: &mut Random) -> Case {
    let mut ids = Ids(0);
    let written: Vec<NestedFieldRef> =
        (0..1 + random.below(5)).map(|place| any_field(random, &mut ids, format!("f{place}"), 2)).collect();
    let has_ids = random.chance(80);
    let evolves = random.chance(60);
    let rename = has_ids && evolves;
    let mut read: Vec<NestedFieldRef> = match evolves {
        true => written.iter().map(|field| evolved(random, &mut ids, field, rename)).collect(),
        false => written.clone(),
    };
    if random.chance(40) && read.len() > 1 {
        let _ = read.remove(random.below(read.len() as u64) as usize);
    }
    let mut constants = Vec::new();
    if random.chance(40) && (has_ids || random.chance(20)) {
        let of = super::random::primitive(random);
        let mut added = NestedField::optional(ids.next(), "late", Type::Primitive(of.clone()));
        match random.below(3) {
            0 => {}
            1 => added = added.with_initial_default(literal(random, &of)),
            _ => {
                let value = match literal(random, &of) {
                    Literal::Primitive(value) => single_value(&value),
                    _ => panic!("not a primitive"),
                };
                let value = (!random.chance(20)).then_some(value);
                constants.push(Constant { field_id: added.id, value });
            }
        }
        read.push(added.into());
    }
    if random.chance(30) {
        random.shuffle(&mut read);
    }
    let mut target: Vec<NestedFieldRef> = read.clone();
    if random.chance(40) {
        let mut ids = Ids(100);
        target = read.iter().map(|field| renumbered(field, &mut ids)).collect();
    }
    let changelog = random.chance(30).then(|| changelog(random, read.len()));
    if let Some(changelog) = &changelog {
        let mut ids = Ids(1000);
        let column = |source: &ColumnSource| -> NestedFieldRef {
            match *source {
                ColumnSource::Read(place) => Arc::clone(&target[place]),
                ColumnSource::Metadata(place) => {
                    let column = changelog.metadata_columns[place];
                    let of = column.field_type(&changelog.partition_type);
                    let field = NestedField::optional(0, column.name(), of);
                    renumbered(&field, &mut ids)
                }
                ColumnSource::ChangeType => required(ids.next(), "_change_type", PrimitiveType::String),
            }
        };
        target = changelog.columns.iter().map(column).collect();
    }
    let mut lab = Lab::new(schema(read), schema(target));
    lab.context.target.last_column_id = lab.context.target.last_column_id.max(ids.0);
    if changelog.is_some() {
        lab.context.target.mode = TargetMode::Append;
    }
    lab.context.changelog = changelog;
    if !has_ids && random.chance(70) {
        lab.context.source.name_mapping = Some(mapping(&written).to_string());
        if random.chance(70) {
            lab.context.target.name_mapping = lab.context.source.name_mapping.clone();
        }
    }
    let written = schema(written);
    let arrow = schema_to_arrow_schema(&written).unwrap();
    let layout = Layout::new("t", written, &lab.context.target.parquet).unwrap();
    let files = (0..1 + random.below(3)).map(|number| {
        let rows = 1 + random.below(400) as usize;
        let distinct = [2, 30, 100_000][random.below(3) as usize];
        let nulls = [0, 0, 20, 100][random.below(4) as usize];
        let columns: Vec<_> = arrow.fields().iter().map(|field| array(random, field, rows, distinct, nulls)).collect();
        let batch = RecordBatch::try_new(Arc::new(arrow.clone()), columns).unwrap();
        let mut options = ArrowWriterOptions::new().with_properties(properties(random));
        let batch = match has_ids {
            true if random.chance(60) => {
                options = options.with_parquet_schema(layout.parquet.clone());
                batch
            }
            true => batch,
            false => {
                let fields = without_ids(batch.schema().fields());
                let columns = batch.columns().iter().zip(&fields);
                let columns = columns.map(|(column, field)| arrow::compute::cast(column, field.data_type()).unwrap());
                RecordBatch::try_new(Arc::new(ArrowSchema::new(fields.clone())), columns.collect()).unwrap()
            }
        };
        let mut file = lab.put(&format!("{number}.parquet"), &parquet(&[batch], options), rows as u64);
        file.constants = constants.clone();
        file.first_row_id = random.chance(30).then_some(1000);
        file
    });
    let files = files.collect();
    Case { lab, files }
}

fn changelog(random: &mut Random, read: usize) -> Changelog {
    let all = [
        MetadataColumn::CommitSnapshotId,
        MetadataColumn::CommitTimestamp,
        MetadataColumn::ChangeOrdinal,
        MetadataColumn::File,
        MetadataColumn::SpecId,
        MetadataColumn::LastUpdatedSequenceNumber,
        MetadataColumn::Partition,
    ];
    let mut metadata_columns: Vec<_> = all.into_iter().filter(|_| random.chance(40)).collect();
    if random.chance(10) {
        metadata_columns.push(MetadataColumn::Pos);
    }
    let mut columns: Vec<_> = (0..read).map(ColumnSource::Read).collect();
    columns.push(ColumnSource::ChangeType);
    columns.extend((0..metadata_columns.len()).map(ColumnSource::Metadata));
    random.shuffle(&mut columns);
    Changelog {
        commit: SourceCommit { snapshot_id: SnapshotId(99), sequence_number: 5, timestamp_ms: 1234, change_ordinal: 2 },
        metadata_columns,
        partition_type: StructType::new(vec![
            optional(1000, "p", PrimitiveType::Int),
            optional(1001, "q", PrimitiveType::String),
        ]),
        identity: Identity::None,
        duplicate_keys: DuplicateKeys::Pair,
        compared_schema: None,
        columns,
    }
}

#[test]
fn what_is_carried_over_reads_as_what_is_decoded() {
    let seed = setting("ICEFERRY_SEED", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 % 1_000_000);
    let cases = setting("ICEFERRY_CASES", 150);
    let mut ways: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..cases {
        println!("ICEFERRY_SEED={} ICEFERRY_CASES=1", seed + number);
        run(seed + number, &mut ways);
    }
    println!("{ways:#?}");
    if cases >= 100 {
        assert!(
            ["copy", "splice", "join"].iter().all(|way| ways.get(*way).is_some_and(|count| *count > 5)),
            "{ways:?}"
        );
    }
}

fn run(seed: u64, ways: &mut BTreeMap<String, u64>) {
    let mut random = Random(seed);
    let Case { lab, files } = case(&mut random);
    let splicer = lab.splicer();
    let mut found = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let decoded = lab.decode(file, number as u64);
        let Ok(mut whole) = splicer.open(file) else {
            assert!(decoded.is_err(), "a file that cannot be opened was decoded");
            continue;
        };
        if random.chance(50) {
            whole.trim();
        }
        let metrics = match &decoded {
            Ok(staged) if lab.context.changelog.is_none() && random.chance(60) => {
                let described = lab.described(&staged[0]);
                metrics_of(&described, &lab.context.target.write_schema, &lab.context.source.read_schema)
            }
            _ => Vec::new(),
        };
        let way = splicer.way(file, None, &whole, &metrics);
        let mut count = |name: String| *ways.entry(name).or_default() += 1;
        let Some(recipe) = way.recipe().cloned() else {
            count(format!("decode: {}", way.reason().unwrap()));
            continue;
        };
        let decoded = decoded.unwrap_or_else(|error| panic!("decoding failed and the way was {way:?}: {error}"));
        let rows = lab.rows(&decoded);
        assert_eq!(rows.len() as u64, file.record_count);
        let expected = lab.described(&decoded[0]);
        if let Way::Copy(recipe) = &way {
            count("copy".to_owned());
            let staged = splicer.copy(&whole, recipe, &metrics, lab.location(&format!("copied-{number}"))).unwrap();
            assert_eq!(std::fs::read(&staged.location).unwrap(), std::fs::read(&file.location).unwrap());
            compare(&lab.described(&staged), &expected, !metrics.is_empty());
            assert_eq!(lab.rows(&[staged]), rows);
        } else {
            count("splice".to_owned());
            count(format!("splice: {}", way.reason().unwrap()));
        }
        let staged = splice_all(&splicer, &[(&whole, &recipe, &metrics)], lab.location(&format!("spliced-{number}")));
        compare(&lab.described(&staged.file), &expected, !metrics.is_empty());
        assert_eq!(lab.rows(std::slice::from_ref(&staged.file)), rows);
        prune(&mut random, &staged.file.location);
        bloom(&file.location, &whole, &recipe, &staged.file.location);
        found.push((whole, recipe, metrics, rows));
    }
    join(&mut random, &lab, &splicer, &found, ways);
}

/// Joins files, with row groups left out, and looks for each row where it is said to be.
fn join(
    random: &mut Random,
    lab: &Lab,
    splicer: &Splicer,
    found: &[(Whole, Recipe, Vec<ColumnMetrics>, Vec<String>)],
    ways: &mut BTreeMap<String, u64>,
) {
    let Some((_, first, ..)) = found.first() else { return };
    let alike: Vec<_> = found.iter().filter(|(_, recipe, ..)| recipe.joins(first)).collect();
    if alike.len() > 1 {
        *ways.entry("join".to_owned()).or_default() += 1;
    }
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut all = Vec::new();
    for (whole, recipe, metrics, rows) in alike {
        let row_groups: Vec<usize> = (0..whole.row_groups()).filter(|_| random.chance(70)).collect();
        if !row_groups.is_empty() {
            parts.push(Part { whole, recipe, row_groups, metrics });
            all.push(rows);
        }
    }
    if parts.is_empty() {
        return;
    }
    let spliced = splicer.splice(&parts, lab.location("joined")).unwrap();
    let rows = lab.rows(std::slice::from_ref(&spliced.file));
    let mut next = 0;
    for moved in &spliced.moved {
        assert_eq!(moved.first_row, next);
        let expected = &all[moved.part][moved.rows.start as usize..moved.rows.end as usize];
        next += expected.len() as u64;
        assert_eq!(&rows[moved.first_row as usize..next as usize], expected);
    }
    assert_eq!(rows.len() as u64, next);
    prune(random, &spliced.file.location);
}

/// What the manifest is told is true: counts are those of decoding, and bounds are as wide or wider.
fn compare(found: &Described, expected: &Described, is_complete: bool) {
    assert_eq!(found.record_count(), expected.record_count());
    assert_eq!(found.sort_order_id(), Some(0));
    for (id, nulls) in found.null_value_counts() {
        assert_eq!(expected.null_value_counts().get(id), Some(nulls), "nulls of {id}");
    }
    for (id, values) in found.value_counts() {
        assert_eq!(expected.value_counts().get(id), Some(values), "values of {id}");
    }
    for (id, nans) in found.nan_value_counts() {
        assert_eq!(expected.nan_value_counts().get(id), Some(nans), "nans of {id}");
    }
    for (id, lower) in found.lower_bounds() {
        let expected = expected.lower_bounds().get(id).unwrap_or_else(|| panic!("a lower bound of {id}: {lower}"));
        assert!(lower <= expected || is_zero(lower), "lower bound of {id}: {lower} > {expected}");
    }
    for (id, upper) in found.upper_bounds() {
        if let Some(expected) = expected.upper_bounds().get(id) {
            assert!(upper >= expected || is_zero(upper), "upper bound of {id}: {upper} < {expected}");
        }
    }
    if is_complete {
        // What decoding knows and the entry told is handed on, whatever the footer lacks.
        for id in found.value_counts().keys() {
            assert_eq!(found.nan_value_counts().get(id), expected.nan_value_counts().get(id), "nans of {id}");
            assert!(found.null_value_counts().contains_key(id), "nulls of {id}");
            let has_lower = expected.lower_bounds().contains_key(id);
            assert_eq!(found.lower_bounds().contains_key(id), has_lower, "lower bound of {id}");
        }
    }
}

fn is_zero(datum: &Datum) -> bool {
    match datum.literal() {
        PrimitiveLiteral::Float(value) => value.0 == 0.0,
        PrimitiveLiteral::Double(value) => value.0 == 0.0,
        _ => false,
    }
}

/// Rows that are chosen with the page index are those at their places.
fn prune(random: &mut Random, location: &str) {
    let open = |page_index: PageIndexPolicy| {
        let file = std::fs::File::open(location).unwrap();
        let options = ArrowReaderOptions::new().with_page_index_policy(page_index);
        ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap()
    };
    let all: Vec<String> =
        open(PageIndexPolicy::Skip).build().unwrap().flat_map(|batch| lines(&batch.unwrap())).collect();
    let (mut selectors, mut expected, mut at) = (Vec::new(), Vec::new(), 0);
    while at < all.len() {
        let count = (1 + random.below(60) as usize).min(all.len() - at);
        match random.chance(40) {
            true => {
                selectors.push(RowSelector::select(count));
                expected.extend_from_slice(&all[at..at + count]);
            }
            false => selectors.push(RowSelector::skip(count)),
        }
        at += count;
    }
    let reader = open(PageIndexPolicy::Optional).with_row_selection(RowSelection::from(selectors)).build().unwrap();
    let chosen: Vec<String> = reader.flat_map(|batch| lines(&batch.unwrap())).collect();
    assert_eq!(chosen, expected);
}

/// Bloom filters, page indexes and encodings of a chunk went with it.
fn bloom(from: &str, whole: &Whole, recipe: &Recipe, to: &str) {
    let open = |location: &str| {
        let options = ReadOptionsBuilder::new()
            .with_page_index()
            .with_reader_properties(ReaderProperties::builder().set_read_bloom_filter(true).build());
        let file = std::fs::File::open(location).unwrap();
        SerializedFileReader::new_with_options(file, options.build()).unwrap()
    };
    let (old, new) = (open(from), open(to));
    assert_eq!(new.metadata().offset_index().is_some(), old.metadata().offset_index().is_some());
    for group in 0..whole.row_groups() {
        let (old_group, new_group) = (old.get_row_group(group).unwrap(), new.get_row_group(group).unwrap());
        assert_eq!(old_group.metadata().num_rows(), new_group.metadata().num_rows());
        for (place, source) in recipe.leaves.iter().enumerate() {
            let crate::splice::recipe::LeafSource::File(leaf) = source else { continue };
            let bits = |filter: Option<&parquet::bloom_filter::Sbbf>| {
                filter.map(|filter| {
                    let mut bytes = Vec::new();
                    filter.write_bitset(&mut bytes).unwrap();
                    bytes
                })
            };
            let (old_filter, new_filter) =
                (old_group.get_column_bloom_filter(*leaf), new_group.get_column_bloom_filter(place));
            assert_eq!(bits(old_filter), bits(new_filter));
            let (old_chunk, new_chunk) = (old_group.metadata().column(*leaf), new_group.metadata().column(place));
            assert_eq!(old_chunk.statistics(), new_chunk.statistics());
            assert_eq!(old_chunk.page_encoding_stats_mask(), new_chunk.page_encoding_stats_mask());
            assert_eq!(old_chunk.definition_level_histogram(), new_chunk.definition_level_histogram());
            let index = |reader: &SerializedFileReader<std::fs::File>, place: usize| {
                reader.metadata().column_index().map(|index| index[group][place].clone())
            };
            if old.metadata().offset_index().is_some() {
                assert_eq!(index(&old, *leaf), index(&new, place));
            }
        }
    }
}
