//! Whole job files: one that says everything, and what is said about those that are wrong.

use std::collections::BTreeMap;

use super::*;
use crate::fault::{Class, Classified};
use crate::model::{SnapshotId, TargetMode};

/// Every key that this version acts on.
const EXAMPLE: &str = r#"
# The job's name. Its checkpoint in the target is kept under it.
name: orders

source:
  # namespace.table; a namespace may have several parts.
  table: sales.eu.orders
  # As other Iceberg tools name them. ${NAME} is the environment variable's value.
  catalog_properties:
    type: rest
    uri: https://catalog.example.com
    warehouse: sales
    token: ${SOURCE_TOKEN}
    header.x-version: 1.10
  # Where to start: one of from_snapshot (or start_snapshot_id), from_timestamp (or start_timestamp), after_snapshot,
  # starting_strategy. With none, the job goes on from the target's checkpoint.
  from_snapshot: 3051729675574597004
  # Where to end: one of to_snapshot (or end_snapshot_id), to_timestamp (or end_timestamp). With none, at the current
  # snapshot.
  to_timestamp: 2026-01-31T12:00:00Z
  streaming: false
  changes: net
  duplicate_keys: fail
  on_rollback: fail
  on_gap: fail

target:
  table: lake.orders
  catalog_properties: { type: sql, uri: "postgresql://ferry:${DB_PASSWORD}@db/catalog", warehouse: /data/lake }
  # merge-on-read mirrors the source by key; append adds rows alone.
  mode: merge-on-read
  # The key; the table's identifier fields when left out.
  equality_columns: [order_id, region]
  # For a table that is made.
  table_properties:
    write.parquet.compression-level: 3
    write.object-storage.enabled: false
  format_version: 2
  # auto | equality
  delete_format: auto
  schema_evolution: none
  # auto | decode
  copy: auto
"#;

fn env(name: &str) -> Option<String> {
    match name {
        "SOURCE_TOKEN" | "DB_PASSWORD" => Some(format!("hunter2: {{ {name} }}")),
        "SNAPSHOT" => Some("77".into()),
        "VERSION" => Some("3".into()),
        "NO" => Some("false".into()),
        "SECRET" => Some("hunter2".into()),
        _ => None,
    }
}

/// A job file with `source` and `target` lines beside the least that a job needs.
fn file(source: &str, target: &str) -> String {
    format!(
        "name: a\nsource:\n  table: s.t\n  catalog_properties: {{ type: rest }}\n{source}\ntarget:\n  table: l.t\n  \
         catalog_properties: {{ type: sql }}\n{target}\n"
    )
}

fn parse(text: &str) -> Result<JobFile, ConfigError> {
    JobFile::parse(text, &env)
}

#[test]
fn the_annotated_example_parses_to_what_it_says() {
    let job = parse(EXAMPLE).unwrap();
    assert_eq!(job.name.as_str(), "orders");
    assert_eq!(job.source.table.to_string(), "sales.eu.orders");
    assert_eq!(job.source.catalog_properties.get("token"), Some("hunter2: { SOURCE_TOKEN }"));
    assert_eq!(job.source.catalog_properties.get("header.x-version"), Some("1.10"));
    assert_eq!(job.source.catalog_properties.keys().count(), 5);
    assert_eq!(
        job.source.bounds,
        Bounds {
            start: Some(StartBound::FromSnapshot(SnapshotId(3_051_729_675_574_597_004))),
            end: Some(EndBound::ToTimestamp(1_769_860_800_000)),
        }
    );
    assert_eq!(
        job.target.catalog_properties.get("uri"),
        Some("postgresql://ferry:hunter2: { DB_PASSWORD }@db/catalog")
    );
    assert_eq!(
        job.target,
        TargetSettings {
            table: "lake.orders".parse().unwrap(),
            catalog_properties: job.target.catalog_properties.clone(),
            mode: TargetMode::MergeOnRead,
            equality_columns: vec!["order_id".into(), "region".into()],
            change_type_column: None,
            table_properties: BTreeMap::from([
                ("write.parquet.compression-level".into(), "3".into()),
                ("write.object-storage.enabled".into(), "false".into()),
            ]),
            delete_format: DeleteFormat::Auto,
            format_version: Some(2),
            copy: CopyMode::Auto,
        }
    );
    for text in [format!("{job:?}"), format!("{job:#?}")] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn the_least_file_has_every_default() {
    let job = parse(&file("", "")).unwrap();
    assert_eq!(job.source.bounds, Bounds::default());
    assert_eq!(job.source.followed, FollowedRef::Branch("main".into()));
    assert_eq!(job.source.on_rollback, OnRollback::Fail);
    assert_eq!(job.target.mode, TargetMode::MergeOnRead);
    assert_eq!((job.target.delete_format, job.target.copy), (DeleteFormat::Auto, CopyMode::Auto));
    assert_eq!(job.target.format_version, None);
    assert!(job.target.equality_columns.is_empty() && job.target.table_properties.is_empty());
}

#[test]
fn json_is_a_job_file_too() {
    let text = r#"{"name": "a", "source": {"table": "s.t", "catalog_properties": {"type": "rest"}, "from_snapshot": "5"},
        "target": {"table": "l.t", "catalog_properties": {}}}"#;
    assert_eq!(parse(text).unwrap().source.bounds.start, Some(StartBound::FromSnapshot(SnapshotId(5))));
}

#[test]
fn bounds_are_taken_in_every_spelling() {
    use StartBound::{AfterSnapshot, FromSnapshot, FromTimestamp, Strategy};
    let ms = 1_769_860_800_000;
    let starts = [
        ("from_snapshot: 5", FromSnapshot(SnapshotId(5))),
        ("from_snapshot: '5'", FromSnapshot(SnapshotId(5))),
        ("from_snapshot: 9223372036854775807", FromSnapshot(SnapshotId(i64::MAX))),
        ("from_snapshot: ${SNAPSHOT}", FromSnapshot(SnapshotId(77))),
        ("start_snapshot_id: 5", FromSnapshot(SnapshotId(5))),
        ("start_snapshot_id: '5'\n  from_snapshot: 5", FromSnapshot(SnapshotId(5))),
        ("after_snapshot: 0", AfterSnapshot(SnapshotId(0))),
        ("from_timestamp: 1769860800000", FromTimestamp(ms)),
        ("from_timestamp: '1769860800000'", FromTimestamp(ms)),
        ("start_timestamp: 2026-01-31T13:00:00+01:00\n  from_timestamp: 1769860800000", FromTimestamp(ms)),
        ("starting_strategy: initial", Strategy(StartingStrategy::Initial)),
        ("starting_strategy: EARLIEST", Strategy(StartingStrategy::Earliest)),
        ("starting_strategy: Latest", Strategy(StartingStrategy::Latest)),
    ];
    for (lines, start) in starts {
        let job = parse(&file(&format!("  {lines}"), "")).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!(job.source.bounds, Bounds { start: Some(start), end: None }, "{lines}");
    }
    let ends = [
        ("to_snapshot: 5", EndBound::ToSnapshot(SnapshotId(5))),
        ("end_snapshot_id: 5\n  to_snapshot: '5'", EndBound::ToSnapshot(SnapshotId(5))),
        ("to_timestamp: 1769860800000", EndBound::ToTimestamp(ms)),
        ("end_timestamp: 2026-01-31T12:00:00.0009Z", EndBound::ToTimestamp(ms)),
        ("from_timestamp: 1769860800000\n  to_timestamp: 2026-01-31T12:00:00Z", EndBound::ToTimestamp(ms)),
    ];
    for (lines, end) in ends {
        let job = parse(&file(&format!("  {lines}"), "")).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!(job.source.bounds.end, Some(end), "{lines}");
    }
}

#[test]
fn the_history_to_follow_is_a_branch_or_a_tag() {
    for (lines, followed) in [
        ("branch: main", FollowedRef::default()),
        ("branch: audit", FollowedRef::Branch("audit".into())),
        ("tag: end-of-2025", FollowedRef::Tag("end-of-2025".into())),
    ] {
        let job = parse(&file(&format!("  {lines}\n  on_rollback: RESYNC"), "")).unwrap();
        assert_eq!((job.source.followed, job.source.on_rollback), (followed, OnRollback::Resync), "{lines}");
    }
}

#[test]
fn words_are_taken_in_any_case_and_with_either_dash() {
    for (lines, mode) in [
        ("mode: merge-on-read", TargetMode::MergeOnRead),
        ("mode: MERGE_ON_READ", TargetMode::MergeOnRead),
        ("mode: Append", TargetMode::Append),
    ] {
        assert_eq!(parse(&file("", &format!("  {lines}"))).unwrap().target.mode, mode, "{lines}");
    }
    let job = parse(&file(
        "  streaming: ${NO}",
        "  delete_format: Equality\n  copy: DECODE\n  format_version: ${VERSION}\n  upsert: false",
    ));
    let target = job.unwrap().target;
    assert_eq!(
        (target.delete_format, target.copy, target.format_version),
        (DeleteFormat::Equality, CopyMode::Decode, Some(3))
    );
}

/// (lines of source, lines of target, the whole message).
const WRONG: &[(&str, &str, &str)] = &[
    // Unknown keys.
    ("tabel: x.y", "", "source.tabel: unknown key; did you mean source.table?"),
    ("equality_columns: [id]", "", "source.equality_columns: unknown key; did you mean target.equality_columns?"),
    ("", "from_snapshot: 1", "target.from_snapshot: unknown key; did you mean source.from_snapshot?"),
    ("zzz: 1", "", "source.zzz: unknown key"),
    (
        "catalog_name: x",
        "",
        "source.catalog_name: is not a key of this file; catalog_properties describe the catalog alone: leave it out",
    ),
    ("", "\"a\\nb\": 1", "target.a\\nb: unknown key"),
    // Keys given twice.
    ("table: s.t", "", "source.table: is given twice: keep one"),
    ("from_snapshot: 1\n  from_snapshot: 2", "", "source.from_snapshot: is given twice: keep one"),
    ("", "table_properties: { a: 1, a: 2 }", "target.table_properties.a: is given twice: keep one"),
    // Aliases.
    (
        "from_snapshot: 1\n  start_snapshot_id: 2",
        "",
        "source.start_snapshot_id: is another name of from_snapshot, and differs from it: 2 and 1",
    ),
    (
        "from_timestamp: 1769860800000\n  start_timestamp: 2026-01-31T12:00:01Z",
        "",
        "source.start_timestamp: is another name of from_timestamp, and differs from it: 2026-01-31T12:00:01Z and 1769860800000",
    ),
    (
        "to_snapshot: 1\n  end_snapshot_id: 2",
        "",
        "source.end_snapshot_id: is another name of to_snapshot, and differs from it: 2 and 1",
    ),
    (
        "to_timestamp: 1769860800000\n  end_timestamp: 1769860800001",
        "",
        "source.end_timestamp: is another name of to_timestamp, and differs from it: 1769860800001 and 1769860800000",
    ),
    // Exclusive keys.
    (
        "from_snapshot: 1\n  from_timestamp: 1769860800000",
        "",
        "source: from_snapshot and from_timestamp exclude each other: keep one",
    ),
    (
        "start_snapshot_id: 1\n  start_timestamp: 1769860800000",
        "",
        "source: start_snapshot_id and start_timestamp exclude each other: keep one",
    ),
    (
        "from_snapshot: 1\n  after_snapshot: 1",
        "",
        "source: from_snapshot and after_snapshot exclude each other: keep one",
    ),
    (
        "from_timestamp: 1769860800000\n  starting_strategy: latest",
        "",
        "source: from_timestamp and starting_strategy exclude each other: keep one",
    ),
    (
        "after_snapshot: 1\n  starting_strategy: latest\n  from_snapshot: 1",
        "",
        "source: from_snapshot, after_snapshot and starting_strategy exclude each other: keep one",
    ),
    (
        "to_snapshot: 1\n  to_timestamp: 1769860800000",
        "",
        "source: to_snapshot and to_timestamp exclude each other: keep one",
    ),
    (
        "to_snapshot: 1\n  end_timestamp: 1769860800000",
        "",
        "source: to_snapshot and end_timestamp exclude each other: keep one",
    ),
    ("branch: a\n  tag: b", "", "source: branch and tag exclude each other: keep one"),
    ("keep: [a]\n  drop: [b]", "", "source: keep and drop exclude each other: keep one"),
    ("", "keep: [a]\n  drop: [b]", "target: keep and drop exclude each other: keep one"),
    ("", "drop: [a]\n  only: b", "target: drop and only exclude each other: keep one"),
    // Bounds.
    (
        "from_timestamp: 1769860800001\n  to_timestamp: 2026-01-31T12:00:00Z",
        "",
        "source: starts later than it ends: from 1769860800001 to 2026-01-31T12:00:00Z",
    ),
    (
        "from_timestamp: 1769860800000000",
        "",
        "source.from_timestamp: 1769860800000000 seems to be in microseconds, not milliseconds: write 1769860800000",
    ),
    (
        "to_timestamp: 1769860800",
        "",
        "source.to_timestamp: 1769860800 seems to be in seconds, not milliseconds: write 1769860800000",
    ),
    (
        "to_timestamp: 5",
        "",
        "source.to_timestamp: 5 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant",
    ),
    (
        "from_timestamp: yesterday",
        "",
        "source.from_timestamp: wants milliseconds since 1970, or RFC 3339 such as 2026-01-31T12:00:00Z, not 'yesterday'",
    ),
    (
        "from_timestamp: [1]",
        "",
        "source.from_timestamp: wants milliseconds since 1970, or RFC 3339 such as 2026-01-31T12:00:00Z, not a list",
    ),
    (
        "from_timestamp: ${SNAPSHOT}0000000000",
        "",
        "source.from_timestamp: ${SNAPSHOT}0000000000 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant",
    ),
    (
        "from_timestamp: ${SNAPSHOT}0000000",
        "",
        "source.from_timestamp: ${SNAPSHOT}0000000 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant",
    ),
    ("from_snapshot: -1", "", "source.from_snapshot: -1 stands for no snapshot: leave the key out"),
    ("from_snapshot: -5", "", "source.from_snapshot: -5 is not the id of a snapshot: ids are not negative"),
    (
        "to_snapshot: 9223372036854775808",
        "",
        "source.to_snapshot: 9223372036854775808 is not the id of a snapshot: ids are at most 9223372036854775807",
    ),
    ("to_snapshot: 1.5", "", "source.to_snapshot: wants the id of a snapshot, a whole number, not '1.5'"),
    ("to_snapshot: main", "", "source.to_snapshot: wants the id of a snapshot, a whole number, not 'main'"),
    ("to_snapshot: {}", "", "source.to_snapshot: wants the id of a snapshot, a whole number, not a mapping"),
    ("to_snapshot:", "", "source.to_snapshot: has no value: give one, or leave the key out"),
    ("starting_strategy: newest", "", "source.starting_strategy: wants initial, earliest or latest, not 'newest'"),
    ("starting_strategy: 1", "", "source.starting_strategy: wants initial, earliest or latest, not '1'"),
    // Streaming.
    ("poll_interval_seconds: 5", "", "source.poll_interval_seconds: is of use only with streaming: true"),
    (
        "streaming: false\n  poll_interval_seconds: 5",
        "",
        "source.poll_interval_seconds: is of use only with streaming: true",
    ),
    (
        "streaming: true\n  poll_interval_seconds: 0",
        "",
        "source.poll_interval_seconds: wants a whole number of seconds, 1 or more, not 0",
    ),
    (
        "streaming: true\n  poll_interval_seconds: 0.5",
        "",
        "source.poll_interval_seconds: wants a whole number of seconds, 1 or more, not 0.5",
    ),
    ("streaming: yes", "", "source.streaming: wants true or false, not 'yes'"),
    ("streaming: [true]", "", "source.streaming: wants true or false, not a list"),
    // Keys for later are checked all the same.
    ("filter: ''", "", "source.filter: is empty: give a condition"),
    ("filter: [a]", "", "source.filter: wants a condition, not a list"),
    ("filter: a = ", "", "source.filter: at character 4: expected a literal, found the end"),
    (
        "filter: upper(a) = 'x'",
        "",
        "source.filter: at character 1: function upper is not supported: compare a column with a literal",
    ),
    ("filter: \"a = 5 '${SECRET}'\"", "", "source.filter: at character 7: expected AND, OR or the end, found text"),
    ("keep: a", "", "source.keep: wants a list of columns, not 'a'"),
    ("keep: []", "", "source.keep: is an empty list: name columns, or leave the key out"),
    ("include_metadata_columns: [a, a]", "", "source.include_metadata_columns[1]: 'a' is in the list twice"),
    (
        "include_metadata_columns: [_change_type]",
        "",
        "source.include_metadata_columns: _change_type is asked for by target.change_type_column",
    ),
    ("changes: gross", "", "source.changes: wants net or per_snapshot, not 'gross'"),
    ("on_rollback: ignore", "", "source.on_rollback: wants fail or resync, not 'ignore'"),
    ("branch: ''", "", "source.branch: is empty: give the name of a branch"),
    ("on_gap: skip", "", "source.on_gap: wants fail or resync, not 'skip'"),
    (
        "",
        "triggering_frequency_seconds: 0",
        "target.triggering_frequency_seconds: wants a whole number of seconds, 1 or more, not 0",
    ),
    ("", "upsert: maybe", "target.upsert: wants true or false, not 'maybe'"),
    ("", "change_type_map: { c: INSERT }", "target.change_type_map: is of use only with change_type_column"),
    (
        "",
        "change_type_column: op\n  change_type_map: { c: insert, x: UPSERT }",
        "target.change_type_map: 'x' wants INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE, not 'UPSERT'",
    ),
    ("", "schema_evolution: some", "target.schema_evolution: wants none, add_columns or full, not 'some'"),
    // The target.
    ("", "mode: upsert", "target.mode: wants merge-on-read or append, not 'upsert'"),
    (
        "",
        "mode: append\n  equality_columns: [id]\n  delete_format: auto",
        "target.mode: append deletes no rows and takes no equality_columns or delete_format: leave out, or write merge-on-read",
    ),
    ("", "equality_columns: []", "target.equality_columns: is an empty list: name columns, or leave the key out"),
    ("", "equality_columns: [id, x, id]", "target.equality_columns[2]: 'id' is in the list twice"),
    ("", "equality_columns: [id, 7]", "target.equality_columns[1]: wants one of the columns as text: put 7 in quotes"),
    ("", "equality_columns: [id, ~]", "target.equality_columns[1]: has no value: give one, or leave the key out"),
    ("", "equality_columns: id", "target.equality_columns: wants a list of columns, not 'id'"),
    ("", "delete_format: vector", "target.delete_format: wants auto, equality or position, not 'vector'"),
    ("", "format_version: 1", "target.format_version: 1 has no row-level deletes, which the target needs: take 2 or 3"),
    ("", "format_version: 4", "target.format_version: wants 2 or 3, not 4"),
    ("", "format_version: v2", "target.format_version: wants 2 or 3, not v2"),
    ("", "format_version: ${SECRET}", "target.format_version: wants 2 or 3, not ${SECRET}"),
    ("", "copy: pages", "target.copy: wants auto or decode, not 'pages'"),
    ("", "table_properties: [a]", "target.table_properties: wants a mapping of keys to text, not a list"),
    ("", "table_properties: { a: [b] }", "target.table_properties.a: wants text, not a list"),
    (
        "",
        "table_properties: { a: ~ }",
        "target.table_properties.a: has no value: give one, '' for an empty one, or leave the key out",
    ),
    (
        "",
        "table_properties: { format-version: 2 }",
        "target.table_properties: format-version has a key of its own: target.format_version",
    ),
    (
        "",
        "table_properties: { iceferry.checkpoint: x }",
        "target.table_properties: iceferry.checkpoint is reserved: the checkpoint is kept under such names",
    ),
    // Environment variables.
    ("from_snapshot: ${NONE}", "", "source.from_snapshot: environment variable NONE is not set"),
    (
        "filter: ${x y}",
        "",
        "source.filter: has '${...}' without a variable's name in it: take letters, digits and '_' only, or write '$${' for the characters themselves",
    ),
    (
        "filter: '${x'",
        "",
        "source.filter: has '${' without '}': close it, or write '$${' for the characters themselves",
    ),
    ("", "equality_columns: [a, '${NONE}']", "target.equality_columns[1]: environment variable NONE is not set"),
    (
        "from_snapshot: ${SECRET}",
        "",
        "source.from_snapshot: wants the id of a snapshot, a whole number, not '${SECRET}'",
    ),
    // Several at once.
    (
        "tag: 5\n  streaming: 1",
        "copy: x",
        "3 problems in the job file\n  source.streaming: wants true or false, not '1'\n  source.tag: wants the name of a tag as text: put 5 in quotes\n  target.copy: wants auto or decode, not 'x'",
    ),
    // What is wrong comes before what is not supported.
    ("keep: [a]\n  branch: b", "copy: x", "target.copy: wants auto or decode, not 'x'"),
];

#[test]
fn each_mistake_has_its_own_message() {
    for (source, target, message) in WRONG {
        let text = file(&format!("  {source}"), &format!("  {target}"));
        let error = parse(&text).expect_err(&text);
        assert_eq!(error.to_string(), *message, "{text}");
        assert_eq!(error.class(), Class::Config);
    }
}

#[test]
fn mistakes_of_the_whole_file_have_their_own_messages() {
    let block = "{ table: s.t, catalog_properties: {} }";
    let other = "{ table: l.t, catalog_properties: {} }";
    let cases = [
        (String::new(), "the job file is empty"),
        ("~".into(), "the job file is empty"),
        ("[a]".into(), "the job file wants a mapping of name, source and target, not a list"),
        ("orders".into(), "the job file wants a mapping of name, source and target, not text"),
        (
            "{}".into(),
            "3 problems in the job file\n  name: is missing: name the job, it is how its progress is found again\n  source: is \
             missing: describe the table to read\n  target: is missing: describe the table to write",
        ),
        (format!("name: a\nsource: s.t\ntarget: {other}"), "source: wants a mapping of keys and values, not text"),
        (
            format!("name: a\nsource: {{}}\ntarget: {other}"),
            "2 problems in the job file\n  source.table: is missing: name the table to read as namespace.table\n  \
             source.catalog_properties: is missing: describe the table's catalog, with its type first",
        ),
        (
            format!("name: a/b\nsource: {block}\ntarget: {other}"),
            "name: wants letters, digits, '-', '_' and '.', at most 128, the first a letter or a digit, not 'a/b'",
        ),
        (format!("name: 5\nsource: {block}\ntarget: {other}"), "name: wants a job name as text: put 5 in quotes"),
        (
            format!("name: '${{SECRET}} '\nsource: {block}\ntarget: {other}"),
            "name: wants letters, digits, '-', '_' and '.', at most 128, the first a letter or a digit, not '${SECRET} '",
        ),
        (format!("name: a\nsources: {block}\ntarget: {other}"), "sources: unknown key; did you mean source?"),
        (
            format!("name: a\nsource: {block}\ntarget: {other}\nmode: append"),
            "mode: unknown key; did you mean target.mode?",
        ),
        (
            format!("name: a\nsource: {{ table: orders, catalog_properties: {{}} }}\ntarget: {other}"),
            "source.table: 'orders' has no namespace: write namespace.table",
        ),
        (
            format!("name: a\nsource: {{ table: '', catalog_properties: {{}} }}\ntarget: {other}"),
            "source.table: is empty: give a table as namespace.table",
        ),
        (
            format!("name: a\nsource: {{ table: a..b, catalog_properties: {{}} }}\ntarget: {other}"),
            "source.table: 'a..b' has an empty part: write namespace.table, with one dot between parts",
        ),
        (
            format!("name: a\nsource: {{ table: \"${{SECRET}}\", catalog_properties: {{}} }}\ntarget: {other}"),
            "source.table: '${SECRET}' has no namespace: write namespace.table",
        ),
        (
            format!("name: a\nsource: {{ table: 's.t_{{x}}', catalog_properties: {{}} }}\ntarget: {other}"),
            "source.table: has braces: only the target's table may be a template",
        ),
        (
            format!("name: a\nsource: {block}\ntarget: {{ table: l.t, catalog_properties: hunter2 }}"),
            "target.catalog_properties: wants a mapping of keys to text",
        ),
        (
            format!("name: a\nsource: {block}\ntarget: {{ table: l.t, catalog_properties: {{ token: [hunter2] }} }}"),
            "target.catalog_properties.token: wants text, not a list",
        ),
        (
            format!("name: a\nsource: {block}\ntarget: {{ table: l.t, catalog_properties: {{ token: }} }}"),
            "target.catalog_properties.token: has no value: give one, '' for an empty one, or leave the key out",
        ),
        (
            format!("name: a\nsource: {block}\ntarget: {{ table: l.t, catalog_properties: {{ t: 1, t: 2 }} }}"),
            "target.catalog_properties.t: is given twice: keep one",
        ),
        (
            format!("name: a\nsource: {block}\ntarget: {{ table: l.t, catalog_properties: {{ t: '${{NONE}}' }} }}"),
            "target.catalog_properties.t: environment variable NONE is not set",
        ),
    ];
    for (text, message) in cases {
        let error = parse(&text).expect_err(&text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn broken_yaml_names_the_line_and_helps_with_braces() {
    let text = file("", "").replace("type: rest", "type: rest, token: ${TOKEN}");
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.starts_with("it is not well-formed YAML: "), "{error}");
    assert!(error.contains("line 4") && error.ends_with("inside { } or [ ], ${NAME} must be in quotes"), "{error}");
}

#[test]
fn what_is_for_later_is_listed_in_one_error() {
    let cases = [
        ("streaming: true", "", "source.streaming: true"),
        ("streaming: true\n  poll_interval_seconds: 5", "", "source.streaming: true, source.poll_interval_seconds"),
        ("on_gap: resync", "", "source.on_gap: resync"),
        ("", "keep: [a]", "target.keep"),
        ("", "drop: [a]", "target.drop"),
        ("", "only: a", "target.only"),
        ("", "change_type_column: a", "target.change_type_column"),
        (
            "",
            "change_type_column: a\n  change_type_map: { c: INSERT }",
            "target.change_type_column, target.change_type_map",
        ),
        ("", "sequence_number_column: a", "target.sequence_number_column"),
        ("", "upsert: true", "target.upsert: true"),
        ("", "partition_fields: ['day(ts)']", "target.partition_fields"),
        ("", "sort_fields: [a]", "target.sort_fields"),
        ("", "triggering_frequency_seconds: 60", "target.triggering_frequency_seconds"),
        ("", "delete_format: position", "target.delete_format: position"),
        ("", "schema_evolution: full", "target.schema_evolution: full"),
        (
            "on_gap: resync",
            "only: b\n  delete_format: position",
            "source.on_gap: resync, target.delete_format: position, target.only",
        ),
    ];
    for (source, target, keys) in cases {
        let error = parse(&file(&format!("  {source}"), &format!("  {target}"))).unwrap_err();
        assert_eq!(error.to_string(), format!("not supported yet: {keys}"));
        assert_eq!(error.class(), Class::Config);
    }
    let template = file("", "").replace("l.t", "l.t_{region}");
    assert_eq!(parse(&template).unwrap_err().to_string(), "not supported yet: target.table: a template with {column}");
}

#[test]
fn every_known_key_is_read() {
    // A key that nobody takes out of its block would be accepted and ignored: a list is wrong for most keys and a
    // mapping for the others, so each must speak up about one of the two.
    for (block, keys) in [("source", keys::SOURCE), ("target", keys::TARGET)] {
        for key in keys {
            let speaks = |value: &str| {
                let line = format!("  {key}: {value}");
                let text = if block == "source" { file(&line, "") } else { file("", &line) };
                let text = if matches!(*key, "table" | "catalog_properties") {
                    let own = text.find(&format!("{block}:")).unwrap();
                    let at = own + text[own..].find(&format!("  {key}: ")).unwrap();
                    let end = at + text[at..].find('\n').unwrap();
                    format!("{}{line}{}", &text[..at], &text[end..].replacen(&format!("\n{line}"), "", 1))
                } else {
                    text
                };
                match parse(&text) {
                    Err(ConfigError::Invalid(problems)) => problems
                        .iter()
                        .any(|problem| problem.key == format!("{block}.{key}") && problem.message.contains("wants")),
                    _ => false,
                }
            };
            assert!(speaks("[[x]]") || speaks("{ x: [y] }") || speaks("x"), "{block}.{key}");
        }
    }
}

#[test]
fn no_error_holds_the_value_of_a_variable_or_of_a_catalog_property() {
    let values = [
        "${SECRET}",
        "${SECRET} x",
        "/${SECRET}",
        "['${SECRET}', '${SECRET}']",
        "{ a: '${SECRET}', a: '${SECRET}' }",
        "['${SECRET}/', ~]",
    ];
    for (block, keys) in [("source", keys::SOURCE), ("target", keys::TARGET)] {
        for key in keys {
            for value in values {
                let line = format!("  {key}: {value}\n  unknown: {value}");
                let text = if block == "source" { file(&line, "") } else { file("", &line) };
                let error = parse(&text).unwrap_err();
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{key}: {value}: {error}");
            }
        }
    }
    for value in ["hunter2", "[hunter2]", "{ hunter: hunter2 }", "!!int hunter2", "'hunter2${'", "'hunter2${NONE}'"] {
        for key in ["uri", "token", "header.a"] {
            let text = file("  zzz: 1", "").replace("type: rest", &format!("{key}: {value}, {key}: {value}"));
            let error = parse(&text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{key}: {value}: {error}");
        }
    }
}

#[test]
fn a_damaged_file_is_refused_or_read_and_never_shows_a_secret() {
    // Every character of the example left out, and replaced by one that means something to YAML, each in its turn.
    let marks = ["\n", ":", " ", "'", "\"", "[", "}", "&", "*", "!", "$", "#", "-"];
    for (count, (at, c)) in EXAMPLE.char_indices().enumerate() {
        let (before, rest) = EXAMPLE.split_at(at);
        let after = &rest[c.len_utf8()..];
        for put in ["", marks[count % marks.len()]] {
            let text = format!("{before}{put}{after}");
            let shown = match parse(&text) {
                Ok(job) => format!("{:?} {:?}", job.source.catalog_properties, job.target.catalog_properties),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{text}\n{shown}");
        }
    }
}
