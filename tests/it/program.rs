//! The program as a process: servers and clients that can be killed, their output, their exit status.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use linkgauge::endpoint::Endpoint;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program with these arguments, its input closed, without what the caller's environment says.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    command.args(arguments).stdin(Stdio::null()).env_remove("LINKGAUGE_TOKEN").env("LC_ALL", "C.UTF-8");
    // No test writes to the store of whoever runs it.
    command.env("LINKGAUGE_STORE", "");
    command
}

/// What a run of the program left.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Ended {
    let output = command(arguments).output().unwrap();
    Ended {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
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
        assert!(began.elapsed() < patience, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when it is dropped.
pub struct Running(pub Child);

/// The Python that has pyserial, ended with the test.
pub fn python(arguments: &[&str]) -> Running {
    const REMEDY: &str = "./check installs it: target/test-venv/bin/pip install pyserial==3.5";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-venv/bin/python");
    let mut command = Command::new(&python);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}: {REMEDY}", python.display()));
    Running(child)
}

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

    /// Waits for its end; everything it said, which is not much.
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
        let urls = ["serve", "tcp://127.0.0.1:0", "udp://127.0.0.1:0"];
        let mut process = Running::start(&[&urls, flags].concat());
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let mut endpoint = || {
            let line = lines.next().expect("it says where it listens").unwrap();
            line.rsplit_once(" on ").expect("serving … on …").1.parse().unwrap()
        };
        let (tcp, udp) = (endpoint(), endpoint());
        Serving { process, tcp, udp }
    }

    pub fn pid(&self) -> String {
        self.process.0.id().to_string()
    }
}

/// Waits until an events file tells of progress with something measured.
pub fn wait_for_progress(events: &Path) {
    wait_until("progress", || {
        let text = std::fs::read_to_string(events).ok()?;
        let progress = text.lines().filter(|line| line.contains("\"event\":\"progress\""));
        progress.filter(|line| !line.contains("\"bytes\":0,")).nth(1).map(|_| ())
    });
}
