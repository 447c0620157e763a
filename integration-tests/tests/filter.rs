//! Filtered jobs: the tables that Spark wrote, mirrored and followed with a filter, against the rows that Spark read, filtered
//! here. The targets are read back by engines that share no code with us.

use std::path::PathBuf;

use iceferry_integration_tests::{Catalog, Component, Engine, Fixture, Iceferry, Job, Lab, Reader, Report, Scratch};
use serde_json::{Value, json};

/// A condition, and what it means of a row.
type Condition = (&'static str, fn(&Value) -> bool);

/// How a fixture is filtered.
struct Case {
    table: &'static str,
    keys: &'static [&'static str],
    /// DuckDB misreads equality deletes with null keys.
    reader: Engine,
    filters: &'static [Condition],
}

const fn case(table: &'static str, reader: Engine, filters: &'static [Condition]) -> Case {
    Case { table, keys: &["id"], reader, filters }
}

const CASES: &[Case] = &[
    case(
        "a_append",
        Engine::DuckDb,
        &[
            ("amt < 3.5 and st.x >= 1", |row| number(&row["amt"]) < 3.5 && number(&row["st"]["x"]) >= 1.0),
            ("ok and d = '2026-01-01'", |row| row["ok"] == true && row["d"] == "2026-01-01"),
            ("f > 5 or name in ('n1', 'n2')", |row| {
                number(&row["f"]) > 5.0 || ["n1", "n2"].contains(&text(&row["name"]))
            }),
        ],
    ),
    case(
        "c_eqdel",
        Engine::Sidequery,
        &[
            ("name LIKE 'n1%'", |row| text(&row["name"]).starts_with("n1")),
            ("id IS NULL OR id > 50", |row| row["id"].is_null() || number(&row["id"]) > 50.0),
        ],
    ),
    case(
        "d_dv",
        Engine::DuckDb,
        &[
            ("id BETWEEN 10 AND 30", |row| (10.0..=30.0).contains(&number(&row["id"]))),
            ("NOT name = 'n5'", |row| row["name"] != "n5" && !row["name"].is_null()),
        ],
    ),
    case(
        "e_part",
        Engine::DuckDb,
        &[
            ("region = 'eu' AND id IN (0, 3, 6, 9)", |row| {
                row["region"] == "eu" && [0, 3, 6, 9].contains(&row["id"].as_i64().unwrap_or(-1))
            }),
            ("\"TS\" >= TIMESTAMP '2026-01-01 10:00:00'", |row| text(&row["ts"]) >= "2026-01-01T10:00:00"),
            ("id = 5", |row| row["id"] == 5),
        ],
    ),
    case(
        "g_cow",
        Engine::DuckDb,
        &[
            ("id >= 10", |row| number(&row["id"]) >= 10.0),
            ("name LIKE 'n%' AND name <> 'n3'", |row| text(&row["name"]).starts_with('n') && row["name"] != "n3"),
        ],
    ),
    case(
        "i_types",
        Engine::DuckDb,
        &[
            ("dec9 = 1.5", |row| row["dec9"] == "1.50"),
            ("u = 'F79C3E09-677C-4BBD-A479-3F349CB785E7' or fx = X'0001feff'", |row| {
                row["u"] == "f79c3e09-677c-4bbd-a479-3f349cb785e7" || row["fx"] == "0001feff"
            }),
            ("st.p.q > 0 and dt >= '2026-01-31'", |row| {
                row["st"]["p"]["q"].as_f64().is_some_and(|q| q > 0.0) && text(&row["dt"]) >= "2026-01-31"
            }),
            ("i is null", |row| row["i"].is_null()),
        ],
    ),
    Case {
        table: "k_keyed",
        keys: &[],
        reader: Engine::DuckDb,
        filters: &[
            ("amount > 50", |row| number(&row["amount"]) > 50.0),
            ("tenant = 'a' and name like 'n0%'", |row| row["tenant"] == "a" && text(&row["name"]).starts_with("n0")),
            ("updated >= '2026-01-01 00:00:03'", |row| text(&row["updated"]) >= "2026-01-01T00:00:03"),
        ],
    },
    Case {
        table: "k_keyed_v3",
        keys: &[],
        reader: Engine::DuckDb,
        filters: &[("tenant = 'a' and amount < 99.995", |row| row["tenant"] == "a" && number(&row["amount"]) < 99.995)],
    },
    case(
        "l_multi_rg",
        Engine::DuckDb,
        &[
            ("id BETWEEN 700 AND 720", |row| (700.0..=720.0).contains(&number(&row["id"]))),
            ("payload LIKE '4%'", |row| text(&row["payload"]).starts_with('4')),
        ],
    ),
    case(
        "o_null_part",
        Engine::Sidequery,
        &[
            ("n < 0", |row| row["n"].as_i64().is_some_and(|n| n < 0)),
            ("n = -11", |row| row["n"] == -11),
            ("d < '2026-03-01' OR p IS NULL", |row| {
                row["p"].is_null() || row["d"].as_str().is_some_and(|day| day < "2026-03-01")
            }),
            ("p = 'null'", |row| row["p"] == "null"),
        ],
    ),
];

/// Exit code of what a person has to put right in the job file.
const CONFIG: i32 = 2;

fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(f64::NAN),
        value => value.as_f64().unwrap_or(f64::NAN),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn filtered<'a>(lines: impl IntoIterator<Item = &'a String>, matches: fn(&Value) -> bool) -> Vec<String> {
    let is_match = |line: &&String| matches(&serde_json::from_str(line).expect("a row is JSON"));
    lines.into_iter().filter(is_match).cloned().collect()
}

macro_rules! tables {
    ($($table:ident)*) => {
        mod mirror {
            $(
                #[test]
                fn $table() {
                    super::mirror(stringify!($table));
                }
            )*

            #[test]
            fn every_case_has_a_test() {
                let cases: Vec<&str> = super::CASES.iter().map(|case| case.table).collect();
                assert_eq!(cases, [$(stringify!($table)),*]);
            }
        }
    };
}

tables! { a_append c_eqdel d_dv e_part g_cow i_types k_keyed k_keyed_v3 l_multi_rg o_null_part }

/// The target is the filtered source at every snapshot.
fn mirror(table: &str) {
    let Some(lab) = Lab::with(&[Component::Core, Component::Side]) else { return };
    let case = CASES.iter().find(|case| case.table == table).expect("every test has a case");
    let (fixture, iceferry, scratch) = (Fixture::load(table), Iceferry::find(), Scratch::new());
    let mut reader = Reader::start(&lab, case.reader);
    let catalog = Catalog::hadoop(scratch.join("lake"));
    for (number, (filter, matches)) in case.filters.iter().enumerate() {
        let job = |target: &str, to: usize| -> PathBuf {
            Job::of_fixture(&fixture, &catalog, &format!("mirror.{target}_{number}"), case.keys)
                .source("filter", (*filter).into())
                .to_snapshot(&fixture.main[to].id)
                .write(&scratch.join(format!("{target}-{number}-{to}.yaml")))
        };
        let mut compare = |what: &str, report: &Report, at: usize| {
            let expected = filtered(&fixture.main[at].lines, *matches);
            let rows = reader.rows(&report.metadata());
            assert!(rows == expected, "{table} {what} at {at}: {filter}\nfound {rows:#?}\nexpected {expected:#?}");
        };
        let last = fixture.main.len() - 1;
        let all: usize = fixture.main.iter().map(|snapshot| snapshot.lines.len()).sum();
        let kept: usize = fixture.main.iter().map(|snapshot| filtered(&snapshot.lines, *matches).len()).sum();
        assert!(0 < kept && kept < all, "{table}: {filter} keeps {kept} of {all} rows");
        for to in 0..=last {
            let report = iceferry.run(&job("chain", to)).report;
            compare("step by step", &report, to);
        }
        let report = iceferry.run(&job("once", last)).report;
        compare("at once", &report, last);
        assert_eq!(report.deleted(), 0, "{table}: a backfill deletes nothing");
        assert!(iceferry.run(&job("once", last)).report.is_nothing_to_do(), "{table}");
    }
}

/// A filtered changelog has the rows of the whole changelog that match, each with its type and number.
#[test]
fn a_filtered_changelog_is_the_changelog_filtered() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (iceferry, scratch) = (Iceferry::find(), Scratch::new());
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let mut half_updates = 0;
    for case in CASES.iter().filter(|case| !matches!(case.table, "i_types" | "l_multi_rg")) {
        let fixture = Fixture::load(case.table);
        for (number, (filter, matches)) in case.filters.iter().enumerate() {
            let mut rows = |filter: Option<&str>| {
                let name = format!("{}_{number}_{}", case.table, filter.is_some());
                let mut job = Job::of_fixture(&fixture, &catalog, &format!("log.{name}"), &[])
                    .target("mode", "append".into())
                    .target("change_type_column", "_change_type".into())
                    .source("starting_strategy", "earliest".into())
                    .source("include_metadata_columns", json!(["_change_ordinal", "_file", "_pos"]));
                if fixture.identifier_columns.is_empty() {
                    job = job.source("identifier_columns", json!(["id"]));
                }
                if let Some(filter) = filter {
                    job = job.source("filter", filter.into());
                }
                let report = iceferry.run(&job.write(&scratch.join(format!("{name}.yaml")))).report;
                reader.rows(&report.metadata())
            };
            let (all, found) = (rows(None), rows(Some(filter)));
            let expected = filtered(&all, *matches);
            assert!(found == expected, "{}: {filter}\nfound {found:#?}\nexpected {expected:#?}", case.table);
            let of_type = |change: &str| found.iter().filter(|row| row.contains(change)).count();
            half_updates += of_type("UPDATE_BEFORE").abs_diff(of_type("UPDATE_AFTER"));
        }
    }
    assert!(half_updates > 0, "some update goes across a filter's edge");
}

/// Files from before columns were renamed, added and widened are filtered by the names and types that the table has now.
#[test]
fn an_evolved_table_is_filtered_by_its_current_columns() {
    let Some(lab) = Lab::with(&[Component::Core]) else { return };
    let (iceferry, scratch, fixture) = (Iceferry::find(), Scratch::new(), Fixture::load("f_evo"));
    let mut reader = Reader::start(&lab, Engine::DuckDb);
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let filters: [Condition; 6] = [
        ("full_name = 'a'", |row| row["full_name"] == "a"),
        ("st.b IS NULL", |row| row["st"]["b"].is_null()),
        ("st.b = 'y' AND id > 1", |row| row["st"]["b"] == "y" && number(&row["id"]) > 1.0),
        ("id = 1", |row| row["id"] == 1),
        ("id > 4000000000", |row| number(&row["id"]) > 4e9),
        ("st.a < 3", |row| number(&row["st"]["a"]) < 3.0),
    ];
    let last = fixture.main.last().expect("a snapshot");
    for (at, (filter, matches)) in filters.into_iter().enumerate() {
        let job = Job::of_fixture(&fixture, &catalog, &format!("mirror.t{at}"), &["id"])
            .source("filter", filter.into())
            .to_snapshot(&last.id)
            .write(&scratch.join(format!("{at}.yaml")));
        let rows = reader.rows(&iceferry.run(&job).report.metadata());
        assert_eq!(rows, filtered(&last.lines, matches), "{filter}");
        assert!(!rows.is_empty() && rows.len() < last.lines.len(), "{filter}: {rows:#?}");
    }
}

#[test]
fn a_filter_that_does_not_fit_or_that_changed_is_refused_by_name() {
    if Lab::with(&[Component::Core]).is_none() {
        return;
    }
    let (iceferry, scratch, fixture) = (Iceferry::find(), Scratch::new(), Fixture::load("d_dv"));
    let catalog = Catalog::hadoop(scratch.join("lake"));
    let job = |filter: Option<&str>| {
        let mut job = Job::of_fixture(&fixture, &catalog, "mirror.t", &["id"]).to_snapshot(&fixture.main[0].id);
        if let Some(filter) = filter {
            job = job.source("filter", filter.into());
        }
        job.write(&scratch.join("job.yaml"))
    };
    let refused = |filter: Option<&str>, said: &[&str]| {
        let output = iceferry.try_run(&job(filter));
        assert_eq!(output.code, Some(CONFIG), "{filter:?}\n{}", output.stderr);
        for said in said {
            assert!(output.stderr.contains(said), "{filter:?} does not say {said}: {}", output.stderr);
        }
        assert!(!output.stderr.contains("secret"), "{}", output.stderr);
    };
    refused(Some("id = "), &["source.filter", "at character 6: expected a literal"]);
    refused(Some("upper(name) = 'secret'"), &["source.filter", "function upper is not supported"]);
    refused(Some("nope = 'secret'"), &["source.filter", "db.d_dv", "column nope is not in the table"]);
    refused(Some("id = 'secret'"), &["source.filter", "db.d_dv", "column id is of type long"]);
    assert!(!scratch.join("lake").join("mirror").exists(), "nothing was made");
    iceferry.run(&job(Some("id > 5")));
    assert!(iceferry.run(&job(Some(" 5<ID ".to_lowercase().as_str()))).report.is_nothing_to_do());
    refused(Some("id > 6"), &["mirror.t", "filter"]);
    refused(None, &["mirror.t", "filter"]);
}
