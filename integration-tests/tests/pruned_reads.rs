//! Files that were carried over as bytes keep what readers prune by: bounds in manifests, statistics, page indexes, bloom
//! filters. Engines that share no code with us read source and target with filters, and get the same.

use iceferry_integration_tests::{Catalog, Component, Engine, Iceferry, Job, Lab, Reader, Scratch, Source};
use serde_json::json;

const ROWS: usize = 20_000;
const CONDITIONS: [&str; 6] = [
    "id = 31234",
    "id >= 4999 and id <= 5001",
    "name = 'n59999'",
    "name = 'no such name'",
    "day = '2026-03-05' and id < 2000",
    "amount > 599.90",
];

/// Who reads, unless the lab of this machine has no Spark.
fn engines(lab: &Lab) -> Vec<Reader> {
    let mut engines = vec![Engine::DuckDb, Engine::PyIceberg];
    if Lab::with(&[Component::Core, Component::Spark]).is_some() {
        engines.push(Engine::Spark);
    }
    engines.into_iter().map(|engine| Reader::start(lab, engine)).collect()
}

#[test]
fn engines_prune_in_copied_and_spliced_files_as_in_the_source() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (iceferry, scratch) = (Iceferry::find(), Scratch::new());
    let lake = Catalog::hadoop(scratch.join("lake"));
    let with_ids = Source::prunable(&lab, &scratch.join("ids"), ROWS, true);
    let mapped = Source::prunable(&lab, &scratch.join("mapped"), ROWS, false);
    let mirror = |source: &Source, target: &str| {
        Job::new("mirror", &source.catalog(), &source.table, &lake, target).keys(&["id"])
    };
    let log = |source: &Source, target: &str| {
        Job::new("log", &source.catalog(), &source.table, &lake, target)
            .target("mode", "append".into())
            .target("change_type_column", "change".into())
    };
    let narrow = |job: Job| job.source("drop", json!(["day"]));
    let each = |job: Job| job.of_small_files(1);
    let joined = |job: Job| job.of_small_files(1 << 30);
    let cases = [
        ("lake.copied", &with_ids, each(mirror(&with_ids, "lake.copied")), Some([3, 0, 0])),
        ("lake.joined", &with_ids, joined(mirror(&with_ids, "lake.joined")), None),
        ("lake.mapped", &mapped, each(mirror(&mapped, "lake.mapped")), Some([0, 3, 0])),
        ("lake.log", &with_ids, each(log(&with_ids, "lake.log")), Some([0, 3, 0])),
        ("lake.narrow", &with_ids, narrow(joined(log(&with_ids, "lake.narrow"))), Some([0, 3, 0])),
    ];
    let mut targets = Vec::new();
    for (name, source, job, ways) in cases {
        let report = iceferry.run(&job.write(&scratch.join(format!("{name}.yaml")))).report;
        // How many of them come into one task, to be joined, follows from the slots; one that is alone is copied.
        let [copied, spliced, decoded] = report.ways();
        assert_eq!((copied + spliced, decoded), (3, 0), "{name}");
        assert!(ways.is_none_or(|ways| ways == report.ways()), "{name}: {:?}", report.ways());
        targets.push((name, source, report.metadata()));
    }
    for mut engine in engines(&lab) {
        for (name, source, metadata) in &targets {
            for condition in CONDITIONS {
                if *name == "lake.narrow" && condition.contains("day") {
                    continue;
                }
                let of_source = engine.rows_where(&source.metadata, condition);
                let of_target = engine.rows_where(metadata, condition);
                let shown = |line: &String| match *name {
                    "lake.log" => format!("{},\"change\":\"INSERT\"}}", line.strip_suffix('}').expect("an object")),
                    "lake.narrow" => {
                        let mut row: serde_json::Map<_, _> = serde_json::from_str(line).expect("a row is JSON");
                        row.remove("day");
                        row.insert("change".into(), "INSERT".into());
                        serde_json::Value::Object(row).to_string()
                    }
                    _ => line.clone(),
                };
                let parsed = |line: String| serde_json::from_str::<serde_json::Value>(&line).expect("a row is JSON");
                let expected: Vec<_> = of_source.iter().map(shown).map(parsed).collect();
                let found: Vec<_> = of_target.into_iter().map(parsed).collect();
                assert_eq!(found, expected, "{name} where {condition}");
                assert_eq!(expected.is_empty(), condition.contains("no such"), "{condition}");
            }
        }
    }
}
