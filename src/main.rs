//! The program: reads the command line, runs one command, turns its end into an exit status.

mod cmd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::main()
}
