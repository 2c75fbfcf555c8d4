//! `linkgauge lab uart`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use linkgauge::lab::uart::{BATCH, Frame, HandOver, Noise, Options, Tally, Uarts, Wiring};
use linkgauge::link::line::Parity;
use linkgauge::serve::raise_open_files;
use linkgauge::units::{self, MessageRate, Span, print_count, print_duration, print_nanoseconds};

use crate::cmd::Status;
use crate::cmd::measure::wait;
use crate::cmd::output::{put, tell};
use crate::cmd::signals::on_interrupt;

/// Serial ports without hardware: terminals on which every character takes its time
///
/// Any program can open them. Rate, stop bits, flow control and odd parity are those that the program sets; what a
/// pseudo-terminal cannot carry are --data and --parity. Runs until Ctrl-C.
#[derive(Args)]
pub struct Flags {
    /// A loop-back plug in each port: what is sent comes back (default)
    #[arg(long, conflicts_with = "null_modem")]
    plug: bool,
    /// A null modem in each port: two terminals that send to each other
    #[arg(long)]
    null_modem: bool,
    /// Ports
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ports: u32,
    /// Symbolic link to the terminal, removed at the end; its last number is counted up for further ones
    #[arg(long, value_name = "PATH")]
    link: Option<PathBuf>,
    /// Data bits of a character: 5, 6, 7 or 8 [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(5..=8))]
    data: Option<u8>,
    /// Parity: none, odd, even, mark or space [default: what the program sets, except for even]
    #[arg(long, value_name = "PARITY", value_parser = parity)]
    parity: Option<Parity>,
    /// Hand over what came in without a gap this often; 0ms: each character by itself
    #[arg(long, value_name = "TIME", conflicts_with_all = ["fifo", "latency_timer"], default_value = batch())]
    batch: Span,
    /// Receive FIFO: hand over so many characters at once, or when nothing came for so many character times (4)
    #[arg(long, value_name = "TRIGGER[,IDLE]", value_parser = fifo, conflicts_with = "latency_timer")]
    fifo: Option<HandOver>,
    /// USB adapter: hand over 62 characters at once, or when this time is over
    #[arg(long, value_name = "TIME")]
    latency_timer: Option<Span>,
    /// All characters arrive at once: what the path itself costs
    #[arg(long)]
    no_pacing: bool,
    /// Probability that a bit arrives as its opposite
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    bit_errors: f64,
    /// Breaks per second on a busy line; each hits a character, which arrives as zero
    #[arg(long, value_name = "RATE")]
    breaks: Option<MessageRate>,
    /// Where the choices of --bit-errors and --breaks begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Do not print where the ports are, nor what they have seen
    #[arg(long, short)]
    quiet: bool,
}

fn batch() -> clap::builder::OsStr {
    print_duration(BATCH).into()
}

fn parity(text: &str) -> Result<Parity, String> {
    let named = Parity::ALL.into_iter().find(|parity| parity.name() == text);
    named.ok_or_else(|| "use none, odd, even, mark or space".to_owned())
}

fn fifo(text: &str) -> Result<HandOver, String> {
    let (trigger, idle) = text.split_once(',').unwrap_or((text, "4"));
    let number = |text: &str| text.parse().ok().filter(|number| (1..=4096).contains(number));
    match (number(trigger), number(idle)) {
        (Some(trigger), Some(idle_characters)) => Ok(HandOver::Fifo { trigger, idle_characters }),
        _ => Err("use one or two numbers from 1 to 4096, like 8 or 14,4".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share
        .or_else(|| units::share(text).ok())
        .ok_or_else(|| "use a number from 0 to 1, like 1e-6, or 0.1%".to_owned())
}

impl Flags {
    fn options(&self) -> Options {
        let hand_over = match (self.fifo, self.latency_timer) {
            (Some(fifo), _) => fifo,
            (None, Some(time)) => HandOver::Timer(time.0),
            (None, None) => HandOver::Batch(self.batch.0),
        };
        Options {
            wiring: if self.null_modem { Wiring::NullModem } else { Wiring::Plug },
            ports: self.ports as usize,
            link: self.link.clone(),
            paced: !self.no_pacing,
            hand_over,
            noise: Noise {
                bit_errors: self.bit_errors,
                breaks_per_second: self.breaks.map_or(0.0, |rate| rate.0),
                seed: self.seed,
            },
            frame: Frame { data_bits: self.data, parity: self.parity },
        }
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = on_interrupt()?;
    raise_open_files();
    let options = flags.options();
    let uarts = Uarts::start(&options)?;
    let places: Vec<String> = places(&uarts, options.wiring.ends());
    if !flags.quiet {
        put(|stdout| places.iter().try_for_each(|place| writeln!(stdout, "serial port {place}")))?;
    }
    wait(&cancel, flags.time, || Ok(()))?;
    let tallies = uarts.stop()?;
    if !flags.quiet {
        summary(&places, &tallies, options.wiring.ends());
    }
    Ok(Status::Complete)
}

/// Where each port is: its terminal and the link to it, or both of each.
fn places(uarts: &Uarts, ends: usize) -> Vec<String> {
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
const LINES: usize = 16;

fn summary(places: &[String], tallies: &[Tally], ends: usize) {
    if places.len() <= LINES {
        for (place, tallies) in places.iter().zip(tallies.chunks(ends)) {
            tell(format_args!("{place}: {}", told(tallies)));
        }
        return;
    }
    let mut sums = vec![Tally::default(); ends];
    for port in tallies.chunks(ends) {
        sums.iter_mut().zip(port).for_each(|(sum, tally)| sum.merge(tally));
    }
    tell(format_args!("{} ports: {}", places.len(), told(&sums)));
}

/// What a port has seen: characters each way, what went wrong, how late it was.
fn told(ends: &[Tally]) -> String {
    let ways: Vec<String> = ends
        .iter()
        .map(|end| format!("{} sent, {} received", print_count(end.sent), print_count(end.received)))
        .collect();
    let mut sum = Tally::default();
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
        .map(|(count, what)| format!("; {} {what}", print_count(*count)))
        .collect();
    let lateness = &sum.lateness;
    let at = |quantile| print_nanoseconds(lateness.value_at_quantile(quantile) as f64);
    let late = if lateness.is_empty() {
        String::new()
    } else {
        let max = print_nanoseconds(lateness.max() as f64);
        format!(
            "; late by {} (median), {} (p99), {max} (max), {} of {} times by more than a character",
            at(0.5),
            at(0.99),
            print_count(sum.late),
            print_count(lateness.len())
        )
    };
    format!("{}{wrong}{late}", ways.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_percent() {
        assert_eq!([share("1e-6"), share("0.5"), share("1%"), share("0")], [1e-6, 0.5, 0.01, 0.0].map(Ok));
        for wrong in ["2", "-1", "101%", "x", "", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
