//! The commands: one file each, with its flags. Only here is anything printed, the environment read, the process ended.

mod ab;
mod compare;
mod completions;
mod demo;
mod doctor;
mod download;
mod explain;
mod export;
mod habits;
mod history;
mod import;
mod ip;
mod lab;
mod latency;
mod measure;
mod output;
mod prune;
mod report;
mod reproduce;
mod run;
mod serve;
mod signals;
mod store;
mod tag;
mod throughput;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::process::{Signal, getpid, kill_process};

/// Gauges any link: how long a message takes, how much gets through, and why it is not better
///
/// Latency is the round-trip time, never half of it. k is 1000 and Ki is 1024; a bare time is in seconds, a bare rate a second.
#[derive(Parser)]
#[command(name = "linkgauge", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// End when standard input does: whoever started this holds its other end, and is gone then, however it ended
    #[arg(long, global = true, hide = true)]
    until_input_ends: bool,
}

/// The flag of the same name, for those who start this program.
pub const UNTIL_INPUT_ENDS_FLAG: &str = "--until-input-ends";

/// As SIGTERM would end it.
fn terminate_when_input_ends() {
    std::thread::spawn(|| {
        // That it cannot be read is an end, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = kill_process(getpid(), Signal::TERM);
    });
}

const AFTER_HELP: &str = "\
Exit status: 0 all that was planned was measured; 1 that, but a threshold was not kept or something is worse than it was;
2 something planned was not measured (what was is kept); 130 after Ctrl-C, with the report of what was measured.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Flags),
    #[command(visible_alias = "ping")]
    Latency(latency::Flags),
    Throughput(throughput::Flags),
    Download(download::Flags),
    Serve(serve::Flags),
    Lab(lab::Flags),
    Run(run::Flags),
    Reproduce(reproduce::Flags),
    Explain(explain::Flags),
    Report(report::Flags),
    History(history::Flags),
    /// Show runs that were kept, in any format: 'report' by a shorter word
    Show(report::Flags),
    Tag(tag::Flags),
    Prune(prune::Flags),
    Compare(compare::Flags),
    Ab(ab::Flags),
    Export(export::Flags),
    Import(import::Flags),
    Doctor(doctor::Flags),
    Completions(completions::Flags),
    Man(completions::ManFlags),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Complete,
    /// All was measured, and something is worse than it may be.
    Failed,
    /// Something planned was not measured; what was is kept.
    Incomplete,
    Interrupted,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(match status {
            Status::Complete => 0,
            Status::Failed => 1,
            Status::Incomplete => 2,
            Status::Interrupted => 130,
        })
    }
}

/// The command line, as it is read and as its documents describe it.
fn definition() -> clap::Command {
    habits::with_aliases(Cli::command())
}

fn parse() -> Result<Cli, ExitCode> {
    let matches = definition().try_get_matches();
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let typed: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        match habits::advice(&error, &typed) {
            Some(advice) => {
                output::print_error(&advice);
                Status::Incomplete.into()
            }
            None => output::print_usage(&error).into(),
        }
    })
}

pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    if cli.until_input_ends {
        terminate_when_input_ends();
    }
    let ended = match cli.command {
        Command::Demo(flags) => demo::run(flags),
        Command::Latency(flags) => latency::run(flags),
        Command::Throughput(flags) => throughput::run(flags),
        Command::Download(flags) => download::run(flags),
        Command::Serve(flags) => serve::run(flags),
        Command::Lab(flags) => lab::run(flags),
        Command::Run(flags) => run::run(flags),
        Command::Reproduce(flags) => reproduce::run(flags),
        Command::Explain(flags) => explain::run(flags),
        Command::Report(flags) | Command::Show(flags) => report::run(flags),
        Command::History(flags) => history::run(flags),
        Command::Tag(flags) => tag::run(flags),
        Command::Compare(flags) => compare::run(flags),
        Command::Ab(flags) => ab::run(flags),
        Command::Prune(flags) => prune::run(flags),
        Command::Export(flags) => export::run(flags),
        Command::Import(flags) => import::run(flags),
        Command::Doctor(flags) => doctor::run(flags),
        Command::Completions(flags) => completions::run(flags, definition()),
        Command::Man(flags) => completions::write_man_pages(flags, definition()),
    };
    match ended {
        Ok(status) => status.into(),
        Err(error) => {
            output::print_error(&format!("{error:#}"));
            Status::Incomplete.into()
        }
    }
}
