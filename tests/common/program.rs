//! The program as a process: servers and clients that can be killed, their output, their exit status.

use std::io::{BufRead, BufReader, Read};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linkgauge::endpoint::Endpoint;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program with these arguments, without input, and without the settings in the caller's environment.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    command.args(arguments).stdin(Stdio::null()).env_remove("LINKGAUGE_TOKEN").env("LC_ALL", "C.UTF-8");
    // No test writes to the user's store.
    command.env("LINKGAUGE_STORE", "");
    command
}

/// The result of a run of the program.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Longer than any run of the program in a test: a program that takes this long hangs.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Ended {
    run_within(LONGEST_RUN, &mut command(arguments))
}

/// Runs a program to its end; kills it and panics with its output when it takes longer than `longest`.
pub fn run_within(longest: Duration, command: &mut Command) -> Ended {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Running(child);
    let stdout = Gathered::of(child.0.stdout.take().unwrap());
    let stderr = Gathered::of(child.0.stderr.take().unwrap());
    let began = Instant::now();
    // Ended is a program whose output has ended as well.
    while !(stdout.thread.is_finished() && stderr.thread.is_finished()) {
        if began.elapsed() > longest {
            drop(child);
            let [stdout, stderr] = [stdout, stderr].map(|gathered| gathered.so_far());
            panic!("{command:?} did not end within {longest:?}\nstdout: {stdout}\nstderr: {stderr}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let status = child.0.wait().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|gathered| gathered.so_far());
    Ended { status: status.code(), stdout, stderr }
}

/// The bytes of a pipe, read in a thread, so that a full pipe blocks no program.
struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Gathered {
    fn of(mut pipe: impl Read + Send + 'static) -> Gathered {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut room = [0; 8192];
            while let Ok(length @ 1..) = pipe.read(&mut room) {
                shared.lock().unwrap().extend_from_slice(&room[..length]);
            }
        });
        Gathered { bytes, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
    }
}

/// How long, since the start of this host, processes have waited for a CPU: a limit of time grows by that.
pub fn cpu_waits() -> Duration {
    let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = text.lines().next().and_then(|line| line.rsplit_once("total=")?.1.parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

/// Waits until `done` gives something.
pub fn wait_until<T>(what: &str, done: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, done)
}

fn wait_within<T>(patience: Duration, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(began.elapsed() < patience, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the end of a process", || self.0.try_wait().unwrap())
    }

    /// Waits for its end; returns its output, which must be short.
    pub fn ended(self) -> Ended {
        self.ended_within(PATIENCE)
    }

    pub fn ended_within(mut self, patience: Duration) -> Ended {
        let status = wait_within(patience, "the end of a process", || self.0.try_wait().unwrap());
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ended { status: status.code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `linkgauge serve` on TCP and UDP ports of its own.
pub struct Serving {
    pub process: Running,
    pub tcp: Endpoint,
    pub udp: Endpoint,
}

impl Serving {
    pub fn start(flags: &[&str]) -> Serving {
        let urls = ["tcp://127.0.0.1:0", "udp://127.0.0.1:0"];
        let ServingOn { process, mut endpoints } = ServingOn::with_flags(&urls, flags);
        let (udp, tcp) = (endpoints.remove(1), endpoints.remove(0));
        Serving { process, tcp, udp }
    }

    pub fn pid(&self) -> String {
        self.process.0.id().to_string()
    }
}

/// `linkgauge serve` on these URLs.
pub struct ServingOn {
    pub process: Running,
    pub endpoints: Vec<Endpoint>,
}

impl ServingOn {
    pub fn start(urls: &[&str]) -> ServingOn {
        ServingOn::with_flags(urls, &[])
    }

    fn with_flags(urls: &[&str], flags: &[&str]) -> ServingOn {
        let mut process = Running::start(&[&["serve"], urls, flags].concat());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let listens = |line: String| line.rsplit_once(" on ").expect("serving … on …").1.parse().unwrap();
        let endpoints = lines.take(urls.len()).map(|line| listens(line.unwrap())).collect();
        ServingOn { process, endpoints }
    }
}

/// Waits until an events file reports progress with results.
pub fn wait_for_progress(events: &Path) {
    wait_until("progress", || {
        let text = std::fs::read_to_string(events).ok()?;
        let progress = text.lines().filter(|line| line.contains("\"event\":\"progress\""));
        progress.filter(|line| !line.contains("\"bytes\":0,")).nth(1).map(|_| ())
    });
}

#[test]
fn a_program_that_hangs_fails_its_test_with_its_output() {
    let mut hanging = Command::new("sh");
    hanging.args(["-c", "echo words; echo more >&2; exec sleep 600"]);
    let failed = std::panic::catch_unwind(AssertUnwindSafe(|| {
        run_within(Duration::from_secs(2), &mut hanging);
    }));
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("stdout: words\n") && message.contains("stderr: more\n"), "{message}");
}
