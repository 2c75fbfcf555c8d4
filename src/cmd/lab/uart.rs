//! `linkgauge lab uart`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::uart::{
    CharacterTiming, DeliveryMode, FrameOverride, LabUarts, LineNoise, PortWiring, UartCounters, UartOptions,
    default_batch_interval,
};
use linkgauge::link::serial_line::Parity;
use linkgauge::units::{self, MessageRate, Span, format_count, format_nanoseconds};

use crate::cmd::help::{DURATION, OUTPUT, TARGET};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Emulate serial ports: terminals with the timing of a real line
///
/// Any program can open them. They follow the rate, stop bits, flow control and odd parity that the program sets. --data and
/// --parity set what a pseudo-terminal cannot carry.
#[derive(Args)]
pub struct Flags {
    /// A loopback plug in each port, which returns every byte (default)
    #[arg(long, help_heading = TARGET, conflicts_with = "null_modem")]
    plug: bool,
    /// A null modem in each port: two connected terminals
    #[arg(long, help_heading = TARGET)]
    null_modem: bool,
    /// Number of ports
    #[arg(long, help_heading = TARGET, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ports: u32,
    /// Symbolic link to the terminal, removed at the end; its last number is counted up for further ports
    #[arg(long, help_heading = TARGET, value_name = "PATH")]
    link: Option<PathBuf>,
    /// Data bits of a character: 5, 6, 7 or 8 [default: 8]
    #[arg(long, help_heading = LINE, value_name = "N", value_parser = clap::value_parser!(u8).range(5..=8))]
    data: Option<u8>,
    /// Parity: none, odd, even, mark or space [default: as set by the program, except even]
    #[arg(long, help_heading = LINE, value_name = "PARITY", value_parser = parse_parity)]
    parity: Option<Parity>,
    /// Deliver input without a gap at this interval; 0ms: each character alone [default: 1ms for each hundred ports]
    #[arg(long, help_heading = LINE, value_name = "TIME", conflicts_with_all = ["fifo", "latency_timer"])]
    batch: Option<Span>,
    /// Receive FIFO: deliver this many characters at once, or after a pause of this many character times (4)
    #[arg(long, help_heading = LINE, value_name = "TRIGGER[,IDLE]", value_parser = parse_fifo, conflicts_with = "latency_timer")]
    fifo: Option<DeliveryMode>,
    /// USB adapter: deliver 62 characters at once, or after this time
    #[arg(long, help_heading = LINE, value_name = "TIME")]
    latency_timer: Option<Span>,
    /// Deliver all characters at once, to measure the cost of the path itself
    #[arg(long, help_heading = LINE)]
    no_pacing: bool,
    /// Probability that a bit is inverted
    #[arg(long, help_heading = LINE, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_probability)]
    bit_errors: f64,
    /// Breaks per second on a busy line; each one replaces a character by zero
    #[arg(long, help_heading = LINE, value_name = "RATE")]
    breaks: Option<MessageRate>,
    /// Seed of --bit-errors and --breaks
    #[arg(long, help_heading = LINE, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

const LINE: &str = "Line";

fn parse_parity(text: &str) -> Result<Parity> {
    let named = Parity::ALL.into_iter().find(|parity| parity.name() == text);
    named.context("use none, odd, even, mark or space")
}

fn parse_fifo(text: &str) -> Result<DeliveryMode> {
    let (trigger, idle) = text.split_once(',').unwrap_or((text, "4"));
    let number = |text: &str| text.parse().ok().filter(|number| (1..=4096).contains(number));
    match (number(trigger), number(idle)) {
        (Some(trigger), Some(idle_characters)) => Ok(DeliveryMode::Fifo { trigger, idle_characters }),
        _ => bail!("use one or two numbers from 1 to 4096, like 8 or 14,4"),
    }
}

fn parse_probability(text: &str) -> Result<f64> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.or_else(|| units::parse_share(text).ok()).context("use a number from 0 to 1, like 1e-6, or 0.1%")
}

impl Flags {
    fn options(&self) -> UartOptions {
        let hand_over = match (self.fifo, self.latency_timer) {
            (Some(fifo), _) => fifo,
            (None, Some(time)) => DeliveryMode::Timer(time.0),
            (None, None) => DeliveryMode::Batch(
                self.batch.map_or_else(|| default_batch_interval(self.ports), |span| span.0),
            ),
        };
        UartOptions {
            wiring: if self.null_modem { PortWiring::NullModem } else { PortWiring::Plug },
            ports: self.ports as usize,
            link: self.link.clone(),
            timing: match self.no_pacing {
                true => CharacterTiming::Immediate,
                false => CharacterTiming::LineRate,
            },
            delivery: hand_over,
            noise: LineNoise {
                bit_error_probability: self.bit_errors,
                breaks_per_second: self.breaks.map_or(0.0, |rate| rate.0),
                seed: self.seed,
            },
            frame_override: FrameOverride { data_bits: self.data, parity: self.parity },
        }
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let options = flags.options();
    let uarts = LabUarts::start(&options)?;
    let places: Vec<String> = port_names(&uarts, options.wiring.terminals_per_port());
    if !flags.quiet {
        print_text(|stdout| places.iter().try_for_each(|place| writeln!(stdout, "serial port {place}")))?;
    }
    wait_until_interrupted(&cancel, flags.time, || Ok(()))?;
    let tallies = uarts.stop()?;
    if !flags.quiet {
        print_summary(&places, &tallies, options.wiring.terminals_per_port());
    }
    Ok(Status::Complete)
}

/// Where each port is: its terminal and the link to it, or both of each.
fn port_names(uarts: &LabUarts, ends: usize) -> Vec<String> {
    let mut links = uarts.links();
    let terminals: Vec<String> = uarts
        .paths()
        .iter()
        .map(|terminal| match links.next() {
            Some(link) => format!("{} ({})", link.display(), terminal.display()),
            None => terminal.display().to_string(),
        })
        .collect();
    terminals.chunks(ends).map(|ends| ends.join(" and ")).collect()
}

/// More ports than this are summed up in one line.
const MAX_LISTED_PORTS: usize = 16;

fn print_summary(places: &[String], tallies: &[UartCounters], ends: usize) {
    if places.len() <= MAX_LISTED_PORTS {
        for (place, tallies) in places.iter().zip(tallies.chunks(ends)) {
            print_message(format_args!("{place}: {}", describe_counters(tallies)));
        }
        return;
    }
    let mut sums = vec![UartCounters::default(); ends];
    for port in tallies.chunks(ends) {
        sums.iter_mut().zip(port).for_each(|(sum, tally)| sum.merge(tally));
    }
    print_message(format_args!("{} ports: {}", places.len(), describe_counters(&sums)));
}

/// What a port has seen: characters each way, what went wrong, how late it was.
fn describe_counters(ends: &[UartCounters]) -> String {
    let ways: Vec<String> = ends
        .iter()
        .map(|end| format!("{} sent, {} received", format_count(end.sent), format_count(end.received)))
        .collect();
    let mut sum = UartCounters::default();
    ends.iter().for_each(|end| sum.merge(end));
    let defects = sum.defects;
    let wrong = [
        (sum.overruns, "overruns"),
        (defects.changed, "changed"),
        (defects.parity, "parity errors"),
        (defects.framing, "framing errors"),
        (defects.lost, "lost"),
        (defects.breaks, "breaks"),
    ];
    let wrong: String = wrong
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("; {} {what}", format_count(*count)))
        .collect();
    let lateness = &sum.lateness;
    let at = |quantile| format_nanoseconds(lateness.value_at_quantile(quantile) as f64);
    let late = if lateness.is_empty() {
        String::new()
    } else {
        let max = format_nanoseconds(lateness.max() as f64);
        format!(
            "; late by {} (median), {} (p99), {max} (max), {} of {} times by more than a character",
            at(0.5),
            at(0.99),
            format_count(sum.late_deliveries),
            format_count(lateness.len())
        )
    };
    format!("{}{wrong}{late}", ways.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_numbers_or_percentages() {
        let parsed = ["1e-6", "0.5", "1%", "0"].map(|text| parse_probability(text).unwrap());
        assert_eq!(parsed, [1e-6, 0.5, 0.01, 0.0]);
        for wrong in ["2", "-1", "101%", "x", "", "NaN"] {
            assert!(parse_probability(wrong).is_err(), "{wrong}");
        }
    }
}
