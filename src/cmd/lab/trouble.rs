//! `linkgauge lab trouble`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use linkgauge::link::serial_line::SerialSettings;
use linkgauge::units::{BitRate, Bytes, Share, Span};

use super::device_server::parse_serial_port;
use super::shaper::parse_time_share;
use crate::cmd::help::{DURATION, OUTPUT, TARGET};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Run an echo server with a fault that you choose: slow for a known reason
///
/// Use it to learn what a cause of latency looks like, and to test whether a tool finds the cause. Without a fault the
/// server is a plain echo. Faults add up. Measure it with: linkgauge latency 127.0.0.1:7333 --protocol echo
#[derive(Args)]
pub struct Flags {
    /// Endpoint to listen on; repeat for several [default: tcp://127.0.0.1:7333]
    #[arg(long, help_heading = TARGET, value_name = "URL")]
    listen: Vec<Endpoint>,
    /// Serial port to reply on: /dev/ttyS0 (9600 8N1) or serial:///dev/ttyS0?baud=115200; repeat for several
    #[arg(long, help_heading = TARGET, value_name = "DEV")]
    serial: Vec<String>,
    /// Write each reply in parts of this size (streams)
    #[arg(long, value_name = "SIZE", help_heading = FAULTS)]
    split_write: Option<Bytes>,
    /// Leave Nagle's algorithm on (TCP): the next part waits for the acknowledgement of the previous one
    #[arg(long, help_heading = FAULTS)]
    nagle: bool,
    /// Wait before each reply
    #[arg(long, value_name = "TIME", help_heading = FAULTS)]
    delay: Option<Span>,
    /// Wait longer before a random share of the replies, like 30ms@1%
    #[arg(long, value_name = "TIME@SHARE", value_parser = parse_time_share, help_heading = FAULTS)]
    pause: Option<(Span, Share)>,
    /// Do nothing for a time at the start of each period, like 50ms@1s
    #[arg(long, value_name = "TIME@PERIOD", value_parser = parse_stall, help_heading = FAULTS)]
    stall: Option<(Span, Span)>,
    /// Read input only at multiples of this time
    #[arg(long, value_name = "TIME", help_heading = FAULTS)]
    poll: Option<Span>,
    /// Send replies only at multiples of this time
    #[arg(long, value_name = "TIME", help_heading = FAULTS)]
    tick: Option<Span>,
    /// Delay the first reply after an idle time, like 100ms:40ms (idle time, delay)
    #[arg(long, value_name = "TIME:TIME", value_parser = parse_after_idle, help_heading = FAULTS)]
    after_idle: Option<(Span, Span)>,
    /// Read no faster than this rate
    #[arg(long, value_name = "RATE", help_heading = FAULTS)]
    read_rate: Option<BitRate>,
    /// Size of the receive buffer of each connection (TCP and other sockets)
    #[arg(long, value_name = "SIZE", help_heading = FAULTS)]
    receive_buffer: Option<Bytes>,
    /// Read and discard; send no replies
    #[arg(long, help_heading = FAULTS)]
    no_reply: bool,
    /// Keep this CPU busy with computing; repeat for several
    #[arg(long, value_name = "CPU", help_heading = FAULTS)]
    hog: Vec<u32>,
    /// The same seed pauses the same replies
    #[arg(long, help_heading = FAULTS, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop by itself after this time
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Do not print the endpoints
    #[arg(long, help_heading = OUTPUT, short)]
    quiet: bool,
}

/// Heading of the flags that choose a fault.
const FAULTS: &str = "Faults";

fn parse_two(text: &str, separator: char, form: &str) -> Result<(Span, Span)> {
    let (first, second) = text.split_once(separator).with_context(|| format!("write {form}"))?;
    Ok((first.parse()?, second.parse()?))
}

fn parse_stall(text: &str) -> Result<(Span, Span)> {
    parse_two(text, '@', "a time and a period, like 50ms@1s")
}

fn parse_after_idle(text: &str) -> Result<(Span, Span)> {
    parse_two(text, ':', "an idle time and a delay, like 100ms:40ms")
}

impl Flags {
    fn options(&self) -> Result<TroubleOptions> {
        let lines = self.serial.iter().map(|text| parse_serial_port(text, &SerialSettings::default()));
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let listen = match (self.listen.as_slice(), lines.as_slice()) {
            ([], []) => vec!["tcp://127.0.0.1".parse()?],
            (listen, _) => listen.to_vec(),
        };
        let listen =
            listen.iter().map(|endpoint| self.with_socket_options(endpoint)).collect::<Result<_>>()?;
        let times = |pair: Option<(Span, Span)>| pair.map(|(first, second)| (first.0, second.0));
        let faults = Faults {
            split_write_bytes: self.split_write.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
            delay: self.delay.map_or(Duration::ZERO, |span| span.0),
            pause: self.pause.map(|(time, share)| (time.0, share.0)),
            stall: times(self.stall),
            poll: self.poll.map(|span| span.0),
            tick: self.tick.map(|span| span.0),
            after_idle: times(self.after_idle),
            read_bps: self.read_rate.map(|rate| rate.0),
            never_replies: self.no_reply,
        };
        Ok(TroubleOptions {
            listen,
            serial_lines: lines,
            faults,
            busy_cpus: self.hog.clone(),
            seed: self.seed,
        })
    }

    /// The endpoint with the faults of its socket.
    fn with_socket_options(&self, endpoint: &Endpoint) -> Result<Endpoint> {
        let mut endpoint = endpoint.clone();
        if self.nagle {
            endpoint = endpoint.with_option("nodelay", "0")?;
        }
        if let Some(size) = self.receive_buffer {
            endpoint = endpoint.with_option("rcvbuf", &size.0.to_string())?;
        }
        Ok(endpoint)
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let options = flags.options()?;
    let server = TroubledServer::start(&options, Registry::standard().dialer(Clock::System))?;
    if !flags.quiet {
        let mut places = server.endpoints().iter().chain(&options.serial_lines);
        print_text(|stdout| places.try_for_each(|place| writeln!(stdout, "echo with faults on {place}")))?;
    }
    wait_until_interrupted(&cancel, flags.time, || {
        server.line_errors().for_each(print_message);
        if !server.is_reachable() {
            bail!("all serial lines have failed");
        }
        Ok(())
    })?;
    Ok(Status::Complete)
}
