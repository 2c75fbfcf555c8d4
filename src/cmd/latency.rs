//! `linkgauge latency`.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use anyhow::{Result, bail};
use clap::{Args, Command};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::{DEFAULT_PORT, Limitation};
use linkgauge::plan::{CaseSpec, OneOrMany};
use linkgauge::protocol::{RECONNECT_OPTION, lacks_server};
use linkgauge::transport::icmp;
use linkgauge::units::{MessageRate, RateTarget, Span};

use super::help::{DURATION, OUTPUT, TRAFFIC, change_arguments};
use super::measure::{Aims, CaseFlags, ExpectedResult, HalfWidth, run_spec, with_protocols};
use super::output::print_message;
use super::signals::interrupt_flag;
use super::status::Status;

/// Measure round-trip times
///
/// Without --rate the next request leaves when the reply has arrived. With --rate requests leave on a schedule, whatever
/// happens to earlier ones. Then the response time (from when a request was due) stands beside the service time (from when
/// it was sent), so that no stall is hidden.
/// As 'ping HOST', a host without a linkgauge server on port 7100 is measured by ICMP.
#[derive(Args)]
pub struct Flags {
    #[command(flatten)]
    case: CaseFlags,
    /// Send on a schedule, like 100/s [default: max; icmp: 10/s; irtt: 100/s]
    ///
    /// max: the next request leaves when the reply has arrived. Several connections (--parallel) share the schedule.
    #[arg(long, help_heading = TRAFFIC, value_name = "RATE|max", group = "schedule")]
    rate: Option<RateTarget<MessageRate>>,
    /// The same as time between requests, like 10ms
    #[arg(long, short = 'i', help_heading = TRAFFIC, value_name = "TIME", group = "schedule", conflicts_with = "rate")]
    every: Option<Span>,
    /// Print a line for each reply, as ping does; without --rate one request a second
    ///
    /// A line names the number of the request, the size and the round-trip time. Requests without a reply, late replies and
    /// duplicates have lines, too; the warm-up has none. With --stamps a line also has the time between the stamps of this kernel.
    /// Lines are left out and counted where printing is slower than the link. The measurement has one repetition.
    #[arg(long, help_heading = OUTPUT)]
    each: bool,
    /// With --rate: exponential gaps instead of equal ones
    #[arg(long, help_heading = TRAFFIC, requires = "schedule", hide_short_help = true)]
    poisson: bool,
    /// Seed of the Poisson schedule
    #[arg(long, help_heading = TRAFFIC, value_name = "N", requires = "poisson", hide_short_help = true)]
    seed: Option<u64>,
    /// Count the requests without a reply within these times; with --rate from when the request was due [default:
    /// 50ms,100ms,200ms,300ms; with --rate 16.7ms,50ms,100ms]
    #[arg(long, help_heading = OUTPUT, value_name = "TIMES", value_delimiter = ',', hide_short_help = true)]
    late: Vec<Span>,
    /// Open a new connection after every N requests, and measure how long that takes; with --protocol echo and ask [default:
    /// one connection]
    #[arg(long, help_heading = TRAFFIC, value_name = "N", hide_short_help = true)]
    reconnect_every: Option<NonZeroU64>,
    /// Measure until the median is known to this share, like 2%: ±2 %
    ///
    /// Rounds, each twice as long as the one before. The round after the first one with such an interval is
    /// the result. At most for --time [default: 1min].
    #[arg(long, help_heading = DURATION, value_name = "SHARE", conflicts_with_all = ["count", "repeat", "raw"], hide_short_help = true)]
    precision: Option<HalfWidth>,
    /// Exit with status 1 if the result is unusual here, by at least 8 saved runs
    #[arg(long, help_heading = OUTPUT, hide_short_help = true, value_name = "WHAT")]
    expect: Option<ExpectedResult>,
    /// Split round trips into stages, by stamps of the kernels at both ends (tcp, udp, icmp, linx+eth)
    ///
    /// With the linkgauge protocol at both ends, otherwise at this end. Reading the stamps makes round trips a little longer.
    #[arg(long, help_heading = TRAFFIC, hide_short_help = true)]
    stamps: bool,
    #[command(flatten)]
    ask: AskFlags,
    #[command(flatten)]
    modbus: ModbusFlags,
    #[command(flatten)]
    pakbus: PakbusFlags,
    #[command(flatten)]
    stamp: StampFlags,
}

/// The defaults and protocols of this command in the help of the shared flags.
pub fn with_own_help(command: Command) -> Command {
    change_arguments(
        command,
        &[
            ("protocol", &|protocol| with_protocols(protocol, "latency")),
            ("size", &|size| size.help("Payload of a request [list: one case each; default: 1]")),
            ("time", &|time| time.help("Stop after this time [default: 10s]")),
            ("count", &|count| {
                count.help("Stop after this number of requests [default: 10000, and at least 2s]")
            }),
            ("warm_up", &|warm_up| {
                let help = "Leave out the first requests, by number or time [default: 100, at most 500ms]";
                warm_up.help("Leave out the first requests [default: 100]").long_help(help)
            }),
            ("timeout", &|timeout| {
                let help = "Count a request as lost after this time [default: 1s; on a serial line 4 times the message's time more]";
                timeout.help("Count a request as lost after this time [default: 1s]").long_help(help)
            }),
        ],
    )
}

/// The logger whose clock is read; options of `--protocol pakbus`.
#[derive(Args)]
#[command(next_help_heading = "Protocol pakbus")]
struct PakbusFlags {
    /// PakBus address of the logger whose clock is read, as in pakbus://host:6785/ADDRESS [default: 1]
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    node: Option<String>,
    /// PakBus address of the router that leads to the logger [default: none]
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    router: Option<String>,
    /// Security code of the logger [default: none]
    #[arg(long, value_name = "CODE", hide_short_help = true)]
    security: Option<String>,
}

/// A request to a device that replies but does not echo; options of `--protocol ask`.
#[derive(Args)]
#[command(next_help_heading = "Protocol ask")]
struct AskFlags {
    /// The request, with \r \n \t \0 \\ \xHH as escapes, or in hexadecimal: 'hex:01 03 0A'
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, hide_short_help = true)]
    send: Option<String>,
    /// The reply ends with these bytes, written as those of --send
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, hide_short_help = true)]
    reply_end: Option<String>,
    /// The reply always has N bytes
    #[arg(long, value_name = "N", hide_short_help = true)]
    reply_bytes: Option<String>,
    /// The reply contains its length: offset and size of the field, big or little, what to add (Modbus/TCP: 4,2,big,6)
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true, hide_short_help = true)]
    reply_length: Option<String>,
    /// Bytes that the reply must contain, else it counts as corrupt
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, hide_short_help = true)]
    reply_contains: Option<String>,
}

/// The request to a Modbus device; options of `--protocol modbus`.
#[derive(Args)]
#[command(next_help_heading = "Protocol modbus")]
struct ModbusFlags {
    /// Address of the device, as in modbus://host/UNIT [default: 1]
    #[arg(long, value_name = "UNIT", hide_short_help = true)]
    unit: Option<String>,
    /// Read holding registers (3) or input registers (4), or have data returned (8) [default: 3]
    #[arg(long, value_name = "CODE", hide_short_help = true)]
    function: Option<String>,
    /// First register that is read, from 0 [default: 0]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    register: Option<String>,
    /// Registers of one request, 1 to 125 [default: 1]
    #[arg(long, value_name = "N", hide_short_help = true)]
    registers: Option<String>,
    /// mbap (Modbus/TCP) or rtu [default: rtu where the rate of a serial line is known, else mbap]
    #[arg(long, value_name = "MODE", hide_short_help = true)]
    mode: Option<String>,
}

/// The protocol options in the form of a plan. The protocol checks them.
fn protocol_options(
    question: AskFlags,
    device: ModbusFlags,
    logger: PakbusFlags,
) -> BTreeMap<String, String> {
    let named = [
        ("send", question.send),
        ("reply-end", question.reply_end),
        ("reply-bytes", question.reply_bytes),
        ("reply-length", question.reply_length),
        ("reply-contains", question.reply_contains),
        ("unit", device.unit),
        ("function", device.function),
        ("register", device.register),
        ("registers", device.registers),
        ("mode", device.mode),
        ("node", logger.node),
        ("router", logger.router),
        ("security", logger.security),
    ];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// How packets are sent; options of `--protocol stamp` and `irtt`.
#[derive(Args)]
#[command(next_help_heading = "Protocols stamp and irtt")]
struct StampFlags {
    /// Sign packets with the token (--token-file), and accept signed ones only
    #[arg(long, hide_short_help = true)]
    authenticated: bool,
}

/// The server of linkgauge echoes on its own port, not on that of the echo service.
fn with_port_of_linkgauge(urls: OneOrMany<Endpoint>) -> Result<OneOrMany<Endpoint>> {
    let with_port = |url: &Endpoint| match url.host_port() {
        Ok((_, None)) => url.with_port(DEFAULT_PORT),
        _ => Ok(url.clone()),
    };
    Ok(OneOrMany::Many(urls.as_slice().iter().map(with_port).collect::<Result<_, _>>()?))
}

/// What `ping` measures: an endpoint without a server of linkgauge is replaced by the kernel of its host, which replies to ICMP echo.
fn with_icmp_where_no_server_is(urls: OneOrMany<Endpoint>) -> Result<OneOrMany<Endpoint>> {
    let mut dialer = Registry::standard().dialer(Clock::System);
    dialer.cancel = interrupt_flag()?;
    let replaced = |url: &Endpoint| -> Result<Endpoint> {
        let Some(icmp) =
            icmp::kernel_of_host(url).filter(|_| lacks_server(url, Registry::standard(), &dialer))
        else {
            return Ok(url.clone());
        };
        let without = format!("{}: no linkgauge server on port {DEFAULT_PORT}", url.address());
        let transport = Registry::standard().transports.find(&icmp)?;
        if let Err(Limitation { reason, remedy, .. }) = (transport.available)() {
            bail!("{without}, and no measurement by ICMP: {reason}: {remedy}");
        }
        print_message(format_args!("{without}; measured by ICMP"));
        Ok(icmp)
    };
    Ok(OneOrMany::Many(urls.as_slice().iter().map(replaced).collect::<Result<_>>()?))
}

/// The default rate of `--each`: that of ping.
const RATE_OF_LINES: RateTarget<MessageRate> = RateTarget::Fixed(MessageRate(1.0));

pub fn run(flags: Flags, is_ping: bool) -> Result<Status> {
    let mut protocol_options = protocol_options(flags.ask, flags.modbus, flags.pakbus);
    if flags.stamp.authenticated {
        protocol_options.insert("authenticated".to_owned(), "true".to_owned());
    }
    if let Some(requests) = flags.reconnect_every {
        protocol_options.insert(RECONNECT_OPTION.to_owned(), requests.to_string());
    }
    let every = flags.every.map(|period| match period.0.as_secs_f64() {
        0.0 => RateTarget::Max,
        seconds => RateTarget::Fixed(MessageRate(1.0 / seconds)),
    });
    let mut case = flags.case.spec("latency")?;
    if flags.reconnect_every.is_some() && case.protocol.as_deref() == Some("auto") {
        case.url = case.url.map(with_port_of_linkgauge).transpose()?;
    }
    if is_ping && case.protocol.as_deref() == Some("auto") && protocol_options.is_empty() {
        case.url = case.url.map(with_icmp_where_no_server_is).transpose()?;
    }
    protocol_options.extend(case.protocol_options.clone());
    let spec = CaseSpec {
        rate: flags.rate.or(every).or(flags.each.then_some(RATE_OF_LINES)),
        poisson: Some(flags.poisson),
        seed: flags.seed,
        stamps: Some(flags.stamps),
        late: (!flags.late.is_empty()).then_some(flags.late),
        protocol_options,
        ..case
    };
    let _changes = flags.case.change_devices()?;
    run_spec(
        spec,
        &flags.case.plan,
        Aims { expect: flags.expect, precision: flags.precision, prints_replies: flags.each, path: None },
    )
}
