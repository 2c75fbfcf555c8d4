//! `linkgauge connect`.

use anyhow::Result;
use clap::{Args, Command};
use linkgauge::plan::CaseSpec;
use linkgauge::units::{MessageRate, RateTarget};

use super::help::{TRAFFIC, change_arguments};
use super::measure::{Aims, CaseFlags, run_spec, with_protocols};
use super::status::Status;

/// Measure how long connections take to open, and how many open in a second
///
/// Nothing is sent on them, so any server will do. Without --rate each of --parallel flows opens the next connection when it
/// has closed the one before. With --rate connections are due on a schedule, and the response time includes the wait.
#[derive(Args)]
pub struct Flags {
    #[command(flatten)]
    case: CaseFlags,
    /// Connections per second, like 1k/s [default: max]
    #[arg(long, help_heading = TRAFFIC, value_name = "RATE|max")]
    rate: Option<RateTarget<MessageRate>>,
}

/// The defaults and protocols of this command in the help of the shared flags.
pub fn with_own_help(command: Command) -> Command {
    change_arguments(
        command,
        &[
            ("protocol", &|protocol| with_protocols(protocol, "connect").hide(true)),
            ("size", &|size| size.hide(true)),
            ("server_socket", &|options| options.hide(true)),
            ("parallel", &|parallel| {
                parallel.help("Flows, each with one connection at a time [list: one case each]")
            }),
            ("time", &|time| time.help("Stop after this time [default: 10s]")),
            ("count", &|count| {
                count.help(
                    "Stop after this number of connections of each flow [default: 10000, and at least 2s]",
                )
            }),
            ("warm_up", &|warm_up| {
                let help = "Leave out the first connections, by number or time [default: 100, at most 500ms]";
                warm_up.help("Leave out the first connections [default: 100]").long_help(help)
            }),
            ("timeout", &|timeout| timeout.help("Give up a connection after this time [default: 1s]")),
        ],
    )
}

pub fn run(flags: Flags) -> Result<Status> {
    let case = flags.case.spec("connect")?;
    let spec = CaseSpec { rate: flags.rate, ..case };
    let _changes = flags.case.change_devices()?;
    run_spec(spec, &flags.case.plan, Aims::default())
}
