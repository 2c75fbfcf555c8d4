//! The Python of the tests, with the packages that `tests/packages.txt` lists.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::Running;

/// Where `./check --all` installs it.
pub fn interpreter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-venv/bin/python")
}

fn start(command: &mut Command) -> Running {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| {
        panic!("{}: {error}: ./check --all installs it", command.get_program().display())
    });
    Running(child)
}

/// Python with these arguments, ended with the test.
pub fn python(arguments: &[&str]) -> Running {
    start(Command::new(interpreter()).args(arguments))
}

/// Runs a script to its end, without an exception.
pub fn passes(script: &str, arguments: &[&str]) {
    let mut command = Command::new(interpreter());
    let running = start(command.args(["-c", script]).args(arguments).stderr(Stdio::piped()));
    let ended = running.ended_within(Duration::from_secs(60));
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
}
