//! `linkgauge explain URL --workload throughput`: measures what limits the rate of a link.

use std::io;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use linkgauge::explain::live::rate::{RateExplanation, TransferOptions, explain_rate};
use linkgauge::plan::Direction;
use linkgauge::report::{self, ReportOptions};
use linkgauge::units::{BitRate, RateTarget};

use super::Flags;
use super::live::{LinkExplanation, explain_each};
use crate::cmd::help::TRAFFIC;
use crate::cmd::measure::parse_direction;
use crate::cmd::status::Status;

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

impl LinkExplanation for RateExplanation {
    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn lost_link(&self) -> Option<&str> {
        self.lost_link.as_deref()
    }

    fn write_text(&self, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
        report::write_rate_explanation(self, options, out)
    }

    fn write_page(explained: &[RateExplanation], out: &mut dyn io::Write) -> io::Result<()> {
        report::write_rate_explanation_page(explained, out)
    }
}

pub fn run(flags: &Flags) -> Result<Status> {
    if flags.live.allows_changes() {
        bail!("--allow-change is tested on round trips, not on a throughput. Leave it out");
    }
    let transfer = flags.transfer.options()?;
    explain_each(flags, |options, dialer, progress| explain_rate(options, &transfer, dialer, progress))
}
