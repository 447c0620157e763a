//! Who may name whom, and how files open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use iceferry_integration_tests::{Iceferry, listing, package_folder};
use serde_json::Value;

/// What each crate may build on: common <- proto <- {coordinator, worker} <- cli. The integration tests see the binary
/// only, from outside.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("iceferry-common", &[]),
    ("iceferry-proto", &["iceferry-common"]),
    ("iceferry-coordinator", &["iceferry-common", "iceferry-proto"]),
    ("iceferry-worker", &["iceferry-common", "iceferry-proto"]),
    ("iceferry", &["iceferry-common", "iceferry-proto", "iceferry-coordinator", "iceferry-worker"]),
    ("iceferry-integration-tests", &[]),
];

fn root() -> PathBuf {
    package_folder().parent().expect("the workspace").to_owned()
}

/// The members of the workspace and what they depend on by path, for building and for tests alike.
fn members() -> BTreeMap<String, (PathBuf, Vec<String>)> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let done = command.output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let metadata: Value = serde_json::from_slice(&done.stdout).expect("cargo answers in JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let member = |package: &Value| {
        let uses = package["dependencies"].as_array().expect("a list").iter();
        let uses = uses.filter(|d| d["path"].is_string()).map(|d| text(&d["name"])).collect();
        let folder = Path::new(&text(&package["manifest_path"])).parent().expect("a folder").to_owned();
        (text(&package["name"]), (folder, uses))
    };
    metadata["packages"].as_array().expect("a list").iter().map(member).collect()
}

/// All Rust files of a crate.
fn rust_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let files = listing(folder).into_keys().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("source text");
        (path, text)
    };
    // A target folder may lie below a crate.
    files.filter(|path| !path.components().any(|part| part.as_os_str() == "target")).map(read).collect()
}

#[test]
fn crates_depend_in_one_direction() {
    let members = members();
    let known: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    for (name, (_, uses)) in &members {
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| known == name) else {
            panic!("{name} is new: say here what it may use; known are {known:?}");
        };
        let wrong: Vec<_> = uses.iter().filter(|used| !allowed.contains(&used.as_str())).collect();
        assert!(wrong.is_empty(), "{name} may not depend on {wrong:?}");
    }
    assert_eq!(members.len(), MAY_USE.len(), "{:?}", members.keys());
}

#[test]
fn coordinator_and_worker_never_name_each_other() {
    let members = members();
    for (one, other) in [("coordinator", "worker"), ("worker", "coordinator")] {
        let (folder, _) = &members[&format!("iceferry-{one}")];
        let name = format!("iceferry_{other}");
        for (path, text) in rust_files(folder) {
            assert!(!text.contains(&name), "{} names {name}", path.display());
        }
    }
}

#[test]
fn only_the_coordinator_talks_to_catalogs() {
    let members = members();
    let (folder, _) = &members["iceferry-worker"];
    for (path, text) in rust_files(folder) {
        for name in ["sqlx", "reqwest"] {
            assert!(!text.contains(&format!("{name}::")), "{} uses {name}", path.display());
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is() {
    for (folder, _) in members().values() {
        for (path, text) in rust_files(folder) {
            assert!(text.starts_with("//! "), "{} does not open with a //! header", path.display());
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together here, so that this file does not name them.
    let unfinished = ["to", "unimplement", "db"].map(|start| match start {
        "to" => format!("{start}do!("),
        "db" => format!("{start}g!("),
        _ => format!("{start}ed!("),
    });
    for (folder, _) in members().values() {
        for (path, text) in rust_files(folder) {
            for word in &unfinished {
                assert!(!text.contains(word.as_str()), "{} has {word}...)", path.display());
            }
        }
    }
}

#[test]
fn the_allocator_has_the_settings_that_keep_memory_small() {
    let mut command = Iceferry::find().command(&["--version"]);
    let done = command.env("MALLOC_CONF", "confirm_conf:true").output().expect("iceferry runs");
    let settings = String::from_utf8_lossy(&done.stderr).into_owned();
    // Those of .cargo/config.toml, which a build elsewhere would leave out without a word.
    for setting in ["narenas:1", "dirty_decay_ms:1000", "muzzy_decay_ms:0"] {
        assert!(settings.contains(&format!("Set conf value: {setting}")), "{setting} is not in: {settings}");
    }
}
