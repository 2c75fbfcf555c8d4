//! `linkgauge lab device-server`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::builder::PossibleValue;
use clap::{ArgGroup, Args};
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::device_server::{
    BusyPolicy, DeviceServer, DeviceServerOptions, PortCounters, TransferCosts,
};
use linkgauge::lab::packing::{DelimiterProcess, PackingRules};
use linkgauge::lab::uart::{self, LabUarts};
use linkgauge::link::serial_line::{self, SerialSettings};
use linkgauge::study::TwinModel;
use linkgauge::twin::transfer_costs;
use linkgauge::units::{BitRate, ByteTime, Bytes, Share, Span, format_bytes, format_plural};

use super::like::LikeTwin;
use crate::cmd::help::{DURATION, OUTPUT, SERVER, TARGET};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Share serial ports over the network, as a serial device server does
///
/// Each port has its own listener: the first on --listen, the others counted up from it. Input from a line without a client is
/// dropped.
#[derive(Args)]
#[command(group = ArgGroup::new("lines").required(true))]
pub struct Flags {
    /// Where the first port listens; with port 0 each gets a free one
    #[arg(long, help_heading = SERVER, value_name = "URL", default_value = "tcp://127.0.0.1:7001")]
    listen: Endpoint,
    /// Serial ports: /dev/ttyS0, or serial:///dev/ttyS0?baud=115200
    #[arg(long, help_heading = TARGET, value_name = "DEV", num_args = 1.., group = "lines")]
    serial: Vec<String>,
    /// Emulated serial ports instead, each with a loopback plug (linkgauge lab uart)
    #[arg(long, help_heading = TARGET, group = "lines")]
    plug: bool,
    /// N ports, counted up from the given one
    #[arg(long, help_heading = TARGET, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ports: Option<u32>,
    /// Settings of ports that are not URLs, like 115200 or 9600,7E1,rtscts [default: 9600,8N1]
    #[arg(long, help_heading = TARGET, value_name = "SETTINGS")]
    line: Option<SerialSettings>,
    /// Clients speak Telnet and can control the port (RFC 2217), instead of raw bytes
    #[arg(long, help_heading = SERVER)]
    rfc2217: bool,
    /// Clients that may share a port; all of them get its input
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// One client too many: refuse it, or replace the oldest
    #[arg(long, help_heading = SERVER, value_name = "WHAT", value_parser = busy_policy_values(), default_value = "refuse")]
    busy: String,
    #[command(flatten)]
    packing: PackingFlags,
    /// Be as slow as a published device server, like sena/STS1600; other flags change it [list: linkgauge lab --like list]
    #[arg(long, help_heading = "Delays", value_name = "STUDY/NAME")]
    like: Option<LikeTwin>,
    /// Move bytes only at multiples of this time, like a slow device [default: 0s]
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "TIME")]
    poll: Option<Span>,
    /// Processing time of each transfer, on one processor for all ports [default: 0s]
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "TIME")]
    budget: Option<Span>,
    /// Largest transfer; from the line it is sent when it is full or the line is idle [default: no limit]
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "SIZE")]
    block: Option<Bytes>,
    /// Additional processing time per byte, like 2.3us
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "TIME")]
    byte_time: Option<ByteTime>,
    /// Additional processing time per open session; the poll interval grows by it per port [default: 0s]
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "TIME")]
    port_time: Option<Span>,
    /// Share of the processor that each active line takes, like 5.5%
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "SHARE")]
    line_load: Option<Share>,
    /// Rest of the line after each full block, at all rates or from a rate on: 52ms, 52ms@33kbit/s
    #[arg(long, hide_short_help = true, help_heading = "Delays", value_name = "TIME[@RATE]", value_parser = parse_drain_pause)]
    drain_pause: Option<(Span, BitRate)>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

/// When to send input from the line. Default: at once.
#[derive(Args)]
#[command(next_help_heading = "Packing")]
struct PackingFlags {
    /// Send when the line was silent for this time
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "0s")]
    inter_character_timeout: Span,
    /// Send this time after the first byte
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "0s")]
    force_transmit: Span,
    /// Send when this many bytes have arrived
    #[arg(long, hide_short_help = true, value_name = "SIZE", default_value = "0")]
    length: Bytes,
    /// Send after this byte, or after this sequence of two, in hex, like 0D,0A
    #[arg(long, hide_short_help = true, value_name = "HEX", value_delimiter = ',', value_parser = parse_hex_byte)]
    delimiter: Vec<u8>,
    /// Keep or strip the delimiter; +1 and +2: 1 or 2 bytes after it belong to the packet
    #[arg(long, hide_short_help = true, value_name = "WHAT", value_parser = delimiter_process_values(), default_value = "keep", allow_hyphen_values = true)]
    delimiter_process: String,
    /// Send at the latest when this much has arrived
    #[arg(long, hide_short_help = true, value_name = "SIZE", default_value = "1Ki")]
    buffer: Bytes,
}

fn busy_policy_values() -> clap::builder::PossibleValuesParser {
    ["refuse", "replace"].map(PossibleValue::new).into()
}

fn delimiter_process_values() -> clap::builder::PossibleValuesParser {
    ["keep", "strip", "+1", "+2"].map(PossibleValue::new).into()
}

fn parse_hex_byte(text: &str) -> Result<u8> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 2 && !digits.starts_with('+'));
    byte.ok_or_else(|| anyhow!("use one or two hexadecimal digits, like 0D"))
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

fn parse_drain_pause(text: &str) -> Result<(Span, BitRate)> {
    let Some((pause, rate)) = text.split_once('@') else { return Ok((text.parse()?, BitRate(0.0))) };
    Ok((pause.parse()?, rate.parse()?))
}

impl Flags {
    /// What transfers cost: as in the twin of --like, unless another flag says so.
    fn costs(&self) -> Result<TransferCosts> {
        let known = match &self.like {
            None => TransferCosts::default(),
            Some(LikeTwin { model: TwinModel::DeviceServer(twin), .. }) => transfer_costs(twin),
            Some(other) => return Err(other.mismatch("device server")),
        };
        let time = |flag: Option<Span>, known: Duration| flag.map_or(known, |span| span.0);
        let block = |size: Bytes| usize::try_from(size.0).unwrap_or(usize::MAX);
        let (drain_pause, drain_from_bps) = self
            .drain_pause
            .map_or((known.drain_pause, known.drain_from_bps), |(pause, from)| (pause.0, from.0));
        Ok(TransferCosts {
            poll_interval: time(self.poll, known.poll_interval),
            transfer_time: time(self.budget, known.transfer_time),
            byte_ns: self.byte_time.map_or(known.byte_ns, |time| time.0),
            port_time: time(self.port_time, known.port_time),
            line_load: self.line_load.map_or(known.line_load, |share| share.0),
            block_bytes: self.block.map_or(known.block_bytes, block),
            drain_pause,
            drain_from_bps,
        })
    }

    /// Emulated ports, if requested. They run until they are dropped.
    fn start_plugs(&self) -> Result<Option<LabUarts>> {
        let ports = self.ports.unwrap_or(1);
        let options = uart::UartOptions {
            ports: ports as usize,
            delivery: uart::DeliveryMode::Batch(uart::default_batch_interval(ports)),
            ..uart::UartOptions::default()
        };
        Ok(self.plug.then(|| LabUarts::start(&options)).transpose()?)
    }

    /// The serial ports, one endpoint each.
    fn serial_endpoints(&self, plugs: Option<&LabUarts>) -> Result<Vec<Endpoint>> {
        let line = self.line.unwrap_or_default();
        if let Some(plugs) = plugs {
            return plugs.paths().iter().map(|path| Ok(serial_line::port_endpoint(path, &line)?)).collect();
        }
        let given =
            self.serial.iter().map(|text| parse_serial_port(text, &line)).collect::<Result<Vec<_>>>()?;
        match (self.ports, given.as_slice()) {
            (None, _) => Ok(given),
            (Some(ports), [first]) => (0..ports).map(|n| Ok(first.with_number_offset(n)?)).collect(),
            (Some(ports), given) if given.len() == ports as usize => Ok(given.to_vec()),
            (Some(ports), given) => {
                bail!("--ports {ports}, but --serial names {}. Use only one of them", given.len())
            }
        }
    }
}

/// Parses an endpoint, or the path of a device.
pub fn parse_serial_port(text: &str, line: &SerialSettings) -> Result<Endpoint> {
    if text.contains("://") {
        return Ok(text.parse()?);
    }
    if !text.starts_with('/') {
        bail!("'{text}' is not a serial port. Write its absolute path, like /dev/{text}");
    }
    Ok(serial_line::port_endpoint(Path::new(text), line)?)
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
        costs: flags.costs()?,
        ..DeviceServerOptions::new(flags.listen.clone(), serial.clone())
    })?;
    if !flags.quiet {
        print_text(|stdout| {
            serial.iter().zip(server.endpoints()).try_for_each(|(serial, endpoint)| {
                let line = serial_line::settings_of(serial).unwrap_or_default();
                writeln!(stdout, "serving {} ({line}) on {endpoint}", serial.address())
            })
        })?;
    }
    let tell_events = || server.events().filter(|_| !flags.quiet).for_each(print_message);
    wait_until_interrupted(&cancel, flags.time, || {
        tell_events();
        if server.open_ports() == 0 {
            tell_events();
            bail!("all serial ports have failed");
        }
        Ok(())
    })?;
    tell_events();
    if !flags.quiet {
        print_message(summary(&server));
    }
    Ok(Status::Complete)
}

/// The counts of all ports together.
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
        text += &format!(", of which {} without a client", format_bytes(unclaimed));
    }
    let overruns = sum(|counters| &counters.overruns);
    if overruns > 0 {
        text += &format!("; {} lost by overruns", format_plural(overruns, "character"));
    }
    text
}
