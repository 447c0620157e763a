//! Child processes under a time limit that never outlive their test.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// What a process left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

/// A running process with its output collected; killed when dropped.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    description: String,
}

impl Child {
    /// Starts the command without standard input.
    pub fn start(command: &mut Command) -> Self {
        let description = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("start {description}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, stdout, stderr, description }
    }

    /// Whether it is still there.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process is ours").is_none()
    }

    /// SIGKILL: nothing of it runs after this.
    pub fn kill(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
    }

    /// SIGTERM: asks it to drain.
    pub fn terminate(&self) {
        let done = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(done.success(), "no process {} to end", self.child.id());
    }

    /// Waits for its end. One that takes longer is killed, and the test fails with what it said.
    pub fn finish(mut self, limit: Duration) -> Output {
        let status = self.wait(limit);
        let output = self.output(status);
        assert!(
            status.is_some(),
            "{} did not end within {limit:?}\nstdout: {}\nstderr: {}",
            self.description,
            output.stdout,
            output.stderr
        );
        output
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                return Some(status);
            }
            if Instant::now() >= deadline {
                self.kill();
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn output(&mut self, status: Option<ExitStatus>) -> Output {
        let text = |reader: &mut Option<JoinHandle<String>>| {
            reader.take().map(|thread| thread.join().expect("the reader ends")).unwrap_or_default()
        };
        Output { code: status.and_then(|s| s.code()), stdout: text(&mut self.stdout), stderr: text(&mut self.stderr) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // Reaps it; there is nobody to tell of a failure.
        let _ = self.child.wait();
    }
}

/// Reads to the end on a thread of its own, so that a full pipe never holds the process up.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before a broken pipe is worth having.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A port that nobody listens on right now.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("loopback has ports").port()
}

/// Polls until it holds; false when the time is up.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// The seed of this test's random choices, printed: `ICEFERRY_SEED`, or one from the clock.
pub fn seed() -> u64 {
    let seed = std::env::var("ICEFERRY_SEED").ok().map(|text| text.parse().expect("ICEFERRY_SEED is a number"));
    let seed = seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").subsec_nanos().into()
    });
    eprintln!("ICEFERRY_SEED={seed}");
    seed
}
