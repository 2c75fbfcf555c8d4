//! The commands, one file each with its flags. Only this layer prints, reads the environment and ends the process.

mod ab;
mod agent;
mod backup;
mod compare;
mod completions;
mod connect;
mod demo;
mod device_changes;
mod doctor;
mod download;
mod explain;
mod export;
mod fleet;
mod habits;
mod help;
mod history;
mod import;
mod input;
mod ip;
mod lab;
mod latency;
mod measure;
mod mesh;
mod monitor;
mod output;
mod path;
mod progress;
mod prune;
mod replies;
mod reproduce;
mod responsiveness;
mod run;
mod serve;
mod show;
mod signals;
mod stamp_cost;
mod status;
mod store;
mod tag;
mod throughput;
mod usage;
mod windows;

use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use status::Status;

/// Measures latency and throughput over any link: network, serial line, Bluetooth, data logger
///
/// Latency is the round-trip time, never half of it. k is 1000 and Ki is 1024. A time without a unit is in seconds.
#[derive(Parser)]
#[command(name = "linkgauge", version, max_term_width = 100, override_usage = USAGE, after_long_help = AFTER_LONG_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Stop when standard input ends: the program at its other end has ended then, for whatever reason
    #[arg(long, global = true, hide = true)]
    until_input_ends: bool,
}

const USAGE: &str = "linkgauge <COMMAND>  (-h after a command: its main flags; --help: all of them)";
const AFTER_LONG_HELP: &str = "\
Exit status: 0 success; 1 threshold failed or regression found; 2 measurement incomplete; 130 interrupted.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Flags),
    #[command(visible_alias = "ping")]
    Latency(Box<latency::Flags>),
    Throughput(throughput::Flags),
    #[command(visible_alias = "rpm")]
    Responsiveness(responsiveness::Flags),
    Download(download::Flags),
    Connect(connect::Flags),
    Path(path::Flags),
    Mesh(mesh::Flags),
    Fleet(fleet::Flags),
    Serve(serve::Flags),
    Agent(agent::Flags),
    Lab(lab::Flags),
    Run(run::Flags),
    Monitor(monitor::Flags),
    Reproduce(reproduce::Flags),
    Explain(explain::Flags),
    #[command(visible_alias = "report")]
    Show(show::Flags),
    History(history::Flags),
    Tag(tag::Flags),
    Prune(prune::Flags),
    Compare(compare::Flags),
    Ab(ab::Flags),
    Export(export::Flags),
    Import(import::Flags),
    Windows(windows::Flags),
    Backup(backup::Flags),
    Restore(backup::RestoreFlags),
    Doctor(doctor::Flags),
    Completions(completions::Flags),
    Man(completions::ManFlags),
    /// Restores what `--allow-change` changed; a measuring command starts it.
    #[command(hide = true)]
    RestoreSettings(device_changes::Flags),
}

/// The command line with its aliases, and with the defaults of each command in its help.
fn plain_definition() -> clap::Command {
    let command = Cli::command()
        .mut_subcommand("latency", latency::with_own_help)
        .mut_subcommand("monitor", monitor::with_own_help)
        .mut_subcommand("throughput", throughput::with_own_help)
        .mut_subcommand("connect", connect::with_own_help)
        .mut_subcommand("path", path::with_own_help)
        .mut_subcommand("responsiveness", responsiveness::with_own_help);
    habits::with_aliases(command)
}

/// The same with its help pages.
fn definition() -> clap::Command {
    help::with_help(plain_definition())
}

fn parse() -> Result<Cli, ExitCode> {
    let matches = definition().try_get_matches();
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let typed: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        match usage::line(&error, &typed) {
            Some(line) => {
                output::print_error(&line);
                Status::Incomplete.into()
            }
            None => output::print_usage(&error).into(),
        }
    })
}

/// Whether the command was typed by this name, which may be an alias.
fn has_typed(name: &str) -> bool {
    std::env::args().skip(1).find(|word| !word.starts_with('-')).is_some_and(|word| word == name)
}

/// A thread has panicked: something is missing from the result, or it does not happen any more.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Remembers panics of all threads, which are also printed.
fn watch_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        HAS_PANICKED.store(true, Relaxed);
        print(panic);
    }));
}

/// The status after a panic of a thread is never that of a success.
fn status_after_panics(status: Status) -> Status {
    if !HAS_PANICKED.load(Relaxed) {
        return status;
    }
    output::print_error(
        "a part of this program panicked, so the result is incomplete: report the message above as a bug",
    );
    if status == Status::Complete { Status::Incomplete } else { status }
}

pub fn main() -> ExitCode {
    watch_panics();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    if cli.until_input_ends {
        signals::terminate_when_input_ends();
    }
    let ended = match cli.command {
        Command::Demo(flags) => demo::run(flags),
        Command::Latency(flags) => latency::run(*flags, has_typed("ping")),
        Command::Throughput(flags) => throughput::run(flags),
        Command::Responsiveness(flags) => responsiveness::run(flags),
        Command::Download(flags) => download::run(flags),
        Command::Connect(flags) => connect::run(flags),
        Command::Path(flags) => path::run(flags),
        Command::Mesh(flags) => mesh::run(flags),
        Command::Fleet(flags) => fleet::run(flags),
        Command::Serve(flags) => serve::run(flags),
        Command::Agent(flags) => agent::run(flags),
        Command::Lab(flags) => lab::run(flags),
        Command::Run(flags) => run::run(flags),
        Command::Monitor(flags) => monitor::run(flags),
        Command::Reproduce(flags) => reproduce::run(flags),
        Command::Explain(flags) => explain::run(flags),
        Command::Show(flags) => show::run(flags),
        Command::History(flags) => history::run(flags),
        Command::Tag(flags) => tag::run(flags),
        Command::Compare(flags) => compare::run(flags),
        Command::Ab(flags) => ab::run(flags),
        Command::Prune(flags) => prune::run(flags),
        Command::Export(flags) => export::run(flags),
        Command::Import(flags) => import::run(flags),
        Command::Windows(flags) => windows::run(flags),
        Command::Backup(flags) => backup::run(flags),
        Command::Restore(flags) => backup::restore(flags),
        Command::Doctor(flags) => doctor::run(flags),
        Command::RestoreSettings(flags) => device_changes::run(flags),
        Command::Completions(flags) => completions::run(flags, definition()),
        Command::Man(flags) => {
            completions::write_man_pages(flags, help::with_examples_after(plain_definition()))
        }
    };
    let status = ended.unwrap_or_else(|error| {
        output::print_error(&format!("{error:#}"));
        Status::Incomplete
    });
    status_after_panics(status).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_any_thread_is_no_success() {
        assert_eq!(status_after_panics(Status::Complete), Status::Complete);
        watch_panics();
        let thread = std::thread::spawn(|| panic!("as a bug would"));
        assert!(thread.join().is_err());
        assert_eq!(status_after_panics(Status::Complete), Status::Incomplete);
        assert_eq!(status_after_panics(Status::Interrupted), Status::Interrupted);
        HAS_PANICKED.store(false, Relaxed);
    }
}
