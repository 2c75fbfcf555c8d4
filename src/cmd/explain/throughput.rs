//! `linkgauge explain URL --workload throughput`: measures what limits the rate of a link.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use linkgauge::clock::Clock;
use linkgauge::explain::live::rate::{RateExplanation, TransferOptions, explain_rate};
use linkgauge::link::Dialer;
use linkgauge::plan::Direction;
use linkgauge::report::{self, Detail, ReportOptions};
use linkgauge::units::{BitRate, RateTarget};

use super::Flags;
use super::live::Progress;
use crate::cmd::Status;
use crate::cmd::help::TRAFFIC;
use crate::cmd::measure::parse_direction;
use crate::cmd::output::{
    check_file_writable, finish_all, is_dash, print_json, print_text, terminal_options, write_file,
};
use crate::cmd::signals::interrupt_flag;

/// What is explained of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Explained {
    /// The round trip
    Latency,
    /// The rate of a transfer
    Throughput,
}

/// The transfer whose rate is explained.
#[derive(Args)]
pub struct TransferFlags {
    /// Explain the round trip of a URL, or the rate of a transfer [default: latency; throughput with --direction or --bit-rate]
    #[arg(long, help_heading = TRAFFIC, value_name = "WORKLOAD", hide_possible_values = true)]
    workload: Option<Explained>,
    /// Direction of the transfer: upload, download or loop
    #[arg(long, short, help_heading = TRAFFIC, value_name = "DIRECTION", value_parser = parse_direction)]
    direction: Option<Direction>,
    /// Offered rate of the transfer [default: max; UDP to other hosts: 1M]
    #[arg(long, alias = "bitrate", short, help_heading = TRAFFIC, value_name = "RATE|max")]
    bit_rate: Option<RateTarget<BitRate>>,
}

impl TransferFlags {
    /// Whether a rate is to be explained.
    pub fn is_used(&self) -> bool {
        let is_implied = self.direction.is_some() || self.bit_rate.is_some();
        self.workload.map_or(is_implied, |workload| workload == Explained::Throughput)
    }

    /// Fails if a flag is set that only URLs have.
    pub fn check_unused(&self) -> Result<()> {
        let set = [
            ("--workload", self.workload.is_some()),
            ("--direction", self.direction.is_some()),
            ("--bit-rate", self.bit_rate.is_some()),
        ];
        match set.iter().find(|(_, is_set)| *is_set) {
            Some((flag, _)) => bail!("{flag} needs a URL to measure, like tcp://192.0.2.7"),
            None => Ok(()),
        }
    }

    fn options(&self) -> Result<TransferOptions> {
        if self.direction == Some(Direction::Both) {
            bail!("one direction can be explained at a time. Use --direction upload or download");
        }
        Ok(TransferOptions { direction: self.direction, bit_rate: self.bit_rate })
    }
}

pub fn run(flags: &Flags) -> Result<Status> {
    let transfer = flags.transfer.options()?;
    flags.json.iter().filter(|path| !is_dash(path)).try_for_each(|path| check_file_writable(path))?;
    let mut dialer = Dialer::new(Clock::System);
    dialer.cancel = interrupt_flag()?;
    let endpoints =
        flags.of.iter().map(|named| flags.live.options(named.parse()?)).collect::<Result<Vec<_>>>()?;
    let (mut explained, mut failure) = (Vec::<RateExplanation>::new(), None);
    for options in &endpoints {
        let progress = Progress::new(flags.quiet)?;
        let explanation =
            explain_rate(options, &transfer, &dialer, &|phase, share| progress.show(phase, share));
        progress.bar.finish_and_clear();
        match explanation {
            Ok(explanation) => explained.push(explanation),
            Err(error) => failure = Some(error),
        }
        let is_interrupted = explained.last().is_some_and(|explanation| explanation.interrupted);
        if is_interrupted || failure.is_some() {
            break;
        }
    }
    // What was explained before a failure is not lost.
    if !explained.is_empty() {
        write(flags, &explained)?;
    }
    match failure {
        Some(error) => Err(error.into()),
        None if explained.iter().any(|explanation| explanation.interrupted) => Ok(Status::Interrupted),
        None => Ok(Status::Complete),
    }
}

fn write(flags: &Flags, explained: &[RateExplanation]) -> Result<()> {
    let documents: Vec<String> =
        explained.iter().map(serde_json::to_string_pretty).collect::<Result<_, _>>()?;
    let json = documents.join("\n");
    if flags.json.as_deref().is_some_and(is_dash) {
        return print_json(|stdout| writeln!(stdout, "{json}"));
    }
    let written = flags.json.as_deref().map(|path| write_file(path, |file| writeln!(file, "{json}")));
    let detail = if flags.all { Detail::Full } else { Detail::Summary };
    let options = ReportOptions { detail, ..terminal_options() };
    let printed = (!flags.quiet).then(|| {
        print_text(|stdout| {
            for (index, explanation) in explained.iter().enumerate() {
                if index > 0 {
                    writeln!(stdout)?;
                }
                report::write_rate_explanation(explanation, &options, stdout)?;
            }
            Ok(())
        })
    });
    finish_all(written.into_iter().chain(printed))
}
