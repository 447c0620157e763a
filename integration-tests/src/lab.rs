//! What of the lab is there, and what it means when a part is not.

use std::path::PathBuf;
use std::process::Command;

/// A part of the lab that a test may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// DuckDB, pyiceberg and the fixtures.
    Core,
    /// sidequery.
    Side,
    /// Spark.
    Spark,
    /// A running REST catalog; `scripts/test` starts it and names it in `ICEFERRY_TEST_REST_URI`.
    Rest,
    /// A running PostgreSQL; `scripts/test` starts it and names it in `ICEFERRY_TEST_POSTGRES_URI`.
    Postgres,
}

/// Where the lab's scripts are, and where they have installed what they run.
#[derive(Debug, Clone)]
pub struct Lab {
    scripts: PathBuf,
    home: PathBuf,
}

/// The folder of this package. Asked when a test runs: two clones may share one build folder, and with it the binary of a test.
pub fn package_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

impl Lab {
    /// The lab with all these components; `None`, said loudly, when one is not there. Then the test is left out. Where
    /// nothing may be left out (`CI=true`) that is a failure.
    pub fn with(components: &[Component]) -> Option<Self> {
        let scripts = package_folder().join("lab");
        let lab = Self { home: home(), scripts };
        let missing: Vec<String> =
            components.iter().filter(|c| !lab.has(**c)).map(|c| format!("{c:?}").to_lowercase()).collect();
        if missing.is_empty() {
            lab.unpack_fixtures();
            return Some(lab);
        }
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let missing = missing.join(", ");
        assert!(
            !std::env::var("CI").is_ok_and(|ci| ci == "true"),
            "{test} needs {missing}, and with CI=true nothing is left out: start the tests with scripts/test"
        );
        eprintln!("LEFT OUT: {test}: {missing} not there; scripts/test installs and starts what it can");
        None
    }

    fn has(&self, component: Component) -> bool {
        match component {
            Component::Core => self.python("core").exists(),
            Component::Side => self.python("side").exists(),
            Component::Spark => {
                self.python("spark").exists()
                    && self.home.join("java/sqlite-jdbc.jar").exists()
                    && Command::new("java").arg("-version").output().is_ok_and(|done| done.status.success())
            }
            Component::Rest => self.rest().is_some(),
            Component::Postgres => self.postgres().is_some(),
        }
    }

    /// The address of the REST catalog.
    pub fn rest(&self) -> Option<String> {
        std::env::var("ICEFERRY_TEST_REST_URI").ok().filter(|uri| !uri.is_empty())
    }

    /// The address of the PostgreSQL server, as `postgresql://user@host:port/database`.
    pub fn postgres(&self) -> Option<String> {
        std::env::var("ICEFERRY_TEST_POSTGRES_URI").ok().filter(|uri| !uri.is_empty())
    }

    /// A script of the lab.
    pub fn script(&self, name: &str) -> PathBuf {
        self.scripts.join(name)
    }

    /// The Python of a virtualenv.
    pub fn python(&self, venv: &str) -> PathBuf {
        self.home.join("venv").join(venv).join("bin/python")
    }

    /// A command that runs a script of the lab in a virtualenv.
    pub fn command(&self, venv: &str, script: &str) -> Command {
        let mut command = Command::new(self.python(venv));
        command.arg("-B").arg(self.script(script)).env("LAB_HOME", &self.home);
        command
    }

    /// Puts the fixtures where their metadata says that they are. Quick when they are there already.
    fn unpack_fixtures(&self) {
        let done = Command::new("bash").arg(self.script("fixtures/unpack.sh")).output().expect("bash runs");
        assert!(done.status.success(), "unpack fixtures: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// As the lab's scripts find it.
fn home() -> PathBuf {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given("LAB_HOME").unwrap_or_else(|| {
        let cache = given("ICEFERRY_CACHE")
            .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/iceferry"));
        cache.join("lab")
    })
}
