//! `linkgauge lab device-server`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, bail};
use clap::builder::PossibleValue;
use clap::{ArgGroup, Args};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{BusyPolicy, DeviceServer, DeviceServerOptions, PortCounters};
use linkgauge::lab::packing::{DelimiterProcess, PackingRules};
use linkgauge::lab::uart::{self, LabUarts};
use linkgauge::link::serial_line::SerialSettings;
use linkgauge::link::tty;
use linkgauge::serve::raise_open_file_limit;
use linkgauge::units::{Bytes, Span, format_bytes, format_plural};

use crate::cmd::Status;
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;

/// Offer serial ports over the network, as a serial device server does
///
/// One client a port, one listener a port: the first on --listen, the others counted up from it. What comes from a line
/// while no client is there is dropped.
#[derive(Args)]
#[command(group = ArgGroup::new("lines").required(true))]
pub struct Flags {
    /// Where the first port listens; with port 0 each gets a free one
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:7001")]
    listen: Endpoint,
    /// The serial ports: /dev/ttyS0, or serial:///dev/ttyS0?baud=115200
    #[arg(long, value_name = "DEV", num_args = 1.., group = "lines")]
    serial: Vec<String>,
    /// Serial ports of software instead, with a loop-back plug in each (linkgauge lab uart)
    #[arg(long, group = "lines")]
    plug: bool,
    /// So many ports, counted up from the one given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ports: Option<u32>,
    /// Settings of the ports that are no URL, like 115200 or 9600,7E1,rtscts [default: 9600,8N1]
    #[arg(long, value_name = "SETTINGS")]
    line: Option<SerialSettings>,
    /// Clients speak Telnet and can control the port (RFC 2217), instead of raw bytes
    #[arg(long)]
    rfc2217: bool,
    /// Clients that share a port; all of them get what the line says
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// One client too many: refuse it, or replace the oldest
    #[arg(long, value_name = "WHAT", value_parser = busy_policy_values(), default_value = "refuse")]
    busy: String,
    #[command(flatten)]
    packing: PackingFlags,
    /// Slow box: bytes move only at multiples of this
    #[arg(long, value_name = "TIME", default_value = "0s")]
    poll: Span,
    /// Slow box: each transfer occupies its one processor, which all ports share, for so long
    #[arg(long, value_name = "TIME", default_value = "0s")]
    budget: Span,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Print neither where it listens nor what happens
    #[arg(long, short)]
    quiet: bool,
}

/// When to send what came from the line; without any of these, at once.
#[derive(Args)]
struct PackingFlags {
    /// Packing: send once the line was silent for so long
    #[arg(long, value_name = "TIME", default_value = "0s")]
    inter_character_timeout: Span,
    /// Packing: send so long after the first byte
    #[arg(long, value_name = "TIME", default_value = "0s")]
    force_transmit: Span,
    /// Packing: send when so many bytes are there
    #[arg(long, value_name = "SIZE", default_value = "0")]
    length: Bytes,
    /// Packing: send after this byte, or these two one after the other, in hex, like 0D,0A
    #[arg(long, value_name = "HEX", value_delimiter = ',', value_parser = parse_hex_byte)]
    delimiter: Vec<u8>,
    /// What becomes of the delimiter; +1 and +2: so many bytes behind it belong to the packet
    #[arg(long, value_name = "WHAT", value_parser = delimiter_process_values(), default_value = "keep", allow_hyphen_values = true)]
    delimiter_process: String,
    /// Packing: send at the latest when so much is there
    #[arg(long, value_name = "SIZE", default_value = "1Ki")]
    buffer: Bytes,
}

fn busy_policy_values() -> clap::builder::PossibleValuesParser {
    ["refuse", "replace"].map(PossibleValue::new).into()
}

fn delimiter_process_values() -> clap::builder::PossibleValuesParser {
    ["keep", "strip", "+1", "+2"].map(PossibleValue::new).into()
}

fn parse_hex_byte(text: &str) -> Result<u8, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 2 && !digits.starts_with('+'));
    byte.ok_or_else(|| "write a byte as one or two hexadecimal digits, like 0D".to_owned())
}

impl PackingFlags {
    fn rules(&self) -> PackingRules {
        let size = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        PackingRules {
            inter_character_timeout: self.inter_character_timeout.0,
            force_transmit_after: self.force_transmit.0,
            packet_bytes: size(self.length),
            delimiter: self.delimiter.clone(),
            delimiter_process: match self.delimiter_process.as_str() {
                "strip" => DelimiterProcess::Strip,
                "+1" => DelimiterProcess::Plus(1),
                "+2" => DelimiterProcess::Plus(2),
                _ => DelimiterProcess::Keep,
            },
            buffer_bytes: size(self.buffer),
        }
    }
}

impl Flags {
    /// Ports of software, if they are wanted; they run until they are dropped.
    fn start_plugs(&self) -> Result<Option<LabUarts>> {
        let ports = self.ports.unwrap_or(1) as usize;
        let options = uart::UartOptions { ports, ..uart::UartOptions::default() };
        Ok(self.plug.then(|| LabUarts::start(&options)).transpose()?)
    }

    /// The serial ports, one endpoint each.
    fn serial_endpoints(&self, plugs: Option<&LabUarts>) -> Result<Vec<Endpoint>> {
        let line = self.line.unwrap_or_default();
        if let Some(plugs) = plugs {
            return plugs.paths().iter().map(|path| Ok(tty::endpoint(path, &line)?)).collect();
        }
        let given =
            self.serial.iter().map(|text| parse_serial_port(text, &line)).collect::<Result<Vec<_>>>()?;
        match (self.ports, given.as_slice()) {
            (None, _) => Ok(given),
            (Some(ports), [first]) => (0..ports).map(|n| Ok(first.with_number_offset(n)?)).collect(),
            (Some(ports), given) if given.len() == ports as usize => Ok(given.to_vec()),
            (Some(ports), given) => {
                bail!("--ports {ports}, but --serial names {}: leave one out", given.len())
            }
        }
    }
}

/// An endpoint as typed, or that of a device's path.
pub fn parse_serial_port(text: &str, line: &SerialSettings) -> Result<Endpoint> {
    if text.contains("://") {
        return Ok(text.parse()?);
    }
    if !text.starts_with('/') {
        bail!("'{text}' is no serial port: write its path from the root, like /dev/{text}");
    }
    Ok(tty::endpoint(Path::new(text), line)?)
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let plugs = flags.start_plugs()?;
    let serial = flags.serial_endpoints(plugs.as_ref())?;
    let server = DeviceServer::start(&DeviceServerOptions {
        rfc2217: flags.rfc2217,
        packing: flags.packing.rules(),
        max_clients: flags.clients,
        busy_policy: if flags.busy == "replace" { BusyPolicy::Replace } else { BusyPolicy::Refuse },
        poll_interval: flags.poll.0,
        transfer_time: flags.budget.0,
        ..DeviceServerOptions::new(flags.listen.clone(), serial.clone())
    })?;
    if !flags.quiet {
        print_text(|stdout| {
            serial.iter().zip(server.endpoints()).try_for_each(|(serial, endpoint)| {
                let line = SerialSettings::from_endpoint(serial).unwrap_or_default();
                writeln!(stdout, "serving {} ({line}) on {endpoint}", serial.address())
            })
        })?;
    }
    let tell_events = || server.events().filter(|_| !flags.quiet).for_each(print_message);
    wait_until_interrupted(&cancel, flags.time, || {
        tell_events();
        if server.open_ports() == 0 {
            tell_events();
            bail!("no serial port is left to serve");
        }
        Ok(())
    })?;
    tell_events();
    if !flags.quiet {
        print_message(summary(&server));
    }
    Ok(Status::Complete)
}

/// All ports together.
fn summary(server: &DeviceServer) -> String {
    let sum = |counter: fn(&PortCounters) -> &AtomicU64| -> u64 {
        server.counters().map(|counters| counter(counters).load(Relaxed)).sum()
    };
    let mut text = format!(
        "served {}, refused {}; {} to the lines, {} from them",
        format_plural(sum(|counters| &counters.sessions), "session"),
        sum(|counters| &counters.refused),
        format_bytes(sum(|counters| &counters.to_line)),
        format_bytes(sum(|counters| &counters.from_line)),
    );
    let unclaimed = sum(|counters| &counters.unclaimed);
    if unclaimed > 0 {
        text += &format!(", of which {} with no client", format_bytes(unclaimed));
    }
    let overruns = sum(|counters| &counters.overruns);
    if overruns > 0 {
        text += &format!("; {} lost by overruns", format_plural(overruns, "character"));
    }
    text
}
