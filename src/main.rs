//! The program: reads the command line, runs one command, and returns its exit status.

mod cmd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::main()
}
