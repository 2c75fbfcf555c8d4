//! The client of PakBus: downloads of files and tables from a data logger, and reads of its clock. The server is a real
//! logger or the emulated one (`lab/logger.rs`).

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_json::{Map, Value};

use super::{DEFAULT_ADDRESS, DEFAULT_PORT};
use crate::link::reopen::ReopeningLink;
use crate::link::{Caps, Framing, Link};
use crate::protocol::{
    CaseDraft, CaseError, ClientSession, ConnectContext, Flow, Protocol, ProtocolError, ProtocolOptions,
    ReadyCase, Shorthand,
};
use crate::workload::latency::Pinger;
use crate::workload::{FlowResult, FlowRole, ServerReport, TrafficKind, Workload};
use linkgauge_model::plan::Direction;

mod chunks;
mod clock;
mod collection;
mod conversation;
mod downloader;
mod job;
mod rows;

pub use downloader::Downloader;
use rows::TableFormat;

/// The `pakbus` protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "pakbus",
    summary: "a Campbell data logger: files, tables, its clock (PakBus)",
    default_ports: &[("tcp", DEFAULT_PORT)],
    traffic: &[(TrafficKind::RoundTrips, &[Direction::Loop]), (TrafficKind::Content, &[Direction::Receive])],
    options: &[
        ("node", "PakBus address of the logger, 1 to 4094 (1)"),
        ("router", "PakBus address of the router that leads to the logger, 1 to 4094 (none)"),
        ("security", "security code of the logger, 0 to 65535 (0: none)"),
        ("file", "file to download, with its drive: CPU:data.dat"),
        ("table", "table to download instead"),
        ("format", "format of a table: csv or toa5 (csv)"),
        ("window", "requests in flight, 1 to 255 (1: the next request waits for the reply)"),
        ("retries", "times that a request without a reply is repeated, 0 to 100 (3)"),
        ("reconnects", "times that a lost link is opened again without progress, 0 to 1000 (10)"),
    ],
    sizes: &[],
    is_measured_whole: false,
    shorthand: Some(Shorthand { option: Some("node") }),
    original_server: None,
    prepare_case,
    connect,
    serve: None,
};

/// Maximum chunk in bytes, in a message of 998 bytes, the longest that loggers accept.
const MAX_CHUNK_BYTES: u32 = 991;

/// Maximum bytes of records in a reply (BMP5 manual).
const RECORD_REPLY_BYTES: u32 = 512;

/// Maximum length of the name of a file (BMP5 manual).
const MAX_NAME_CHARACTERS: usize = 64;

/// Reply to a wrong security code.
const PERMISSION_DENIED: &str = "permission denied: the logger requires another security code (--security)";

/// Target of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DownloadTarget {
    File(String),
    Table { name: String, format: TableFormat },
}

impl DownloadTarget {
    fn name(&self) -> &str {
        match self {
            DownloadTarget::File(name) | DownloadTarget::Table { name, .. } => name,
        }
    }
}

/// The parsed options of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PakBusOptions {
    node: u16,
    router: Option<u16>,
    security: u16,
    target: DownloadTarget,
    window: usize,
    retries: u32,
    reconnects: u32,
}

impl PakBusOptions {
    /// Parses the options of a case.
    ///
    /// # Errors
    ///
    /// The name of the invalid option, and the reason.
    pub fn parse(options: &ProtocolOptions, workload: &Workload) -> Result<PakBusOptions, CaseError> {
        let text = |name: &str| options.get(name).map(String::as_str);
        let window = parse_number(options, "window", 1, 1..=255)?;
        let format = match text("format") {
            None => TableFormat::default(),
            Some(name) => {
                let known = TableFormat::NAMES.iter().find(|(known, _)| *known == name);
                let wrong = || format!("protocol pakbus: format '{name}' is neither csv nor toa5");
                known.ok_or_else(|| CaseError::Option(wrong()))?.1
            }
        };
        let what = match (text("file"), text("table")) {
            (Some(_), Some(_)) => {
                let what = "protocol pakbus: a file and a table: use one of them";
                return Err(CaseError::Option(what.to_owned()));
            }
            (Some(name), None) => DownloadTarget::File(parse_name("file", name)?),
            (None, Some(name)) => DownloadTarget::Table { name: parse_name("table", name)?, format },
            (None, None) if !workload.is_round_trip() => {
                let what = "protocol pakbus: nothing to download: use --file CPU:data.dat or --table NAME";
                return Err(CaseError::Option(what.to_owned()));
            }
            (None, None) => DownloadTarget::File(String::new()),
        };
        Ok(PakBusOptions {
            node: parse_number(options, "node", DEFAULT_ADDRESS, 1..=4094)?,
            router: match text("router") {
                Some(_) => Some(parse_number(options, "router", DEFAULT_ADDRESS, 1..=4094)?),
                None => None,
            },
            security: parse_number(options, "security", 0, 0..=u16::MAX)?,
            target: what,
            window,
            retries: parse_number(options, "retries", 3, 0..=100)?,
            reconnects: parse_number(options, "reconnects", 10, 0..=1000)?,
        })
    }
}

/// Parses a numeric option.
fn parse_number<T: FromStr + PartialOrd + Display>(
    options: &ProtocolOptions,
    name: &str,
    usual: T,
    range: RangeInclusive<T>,
) -> Result<T, CaseError> {
    let Some(text) = options.get(name) else { return Ok(usual) };
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        CaseError::Option(format!("protocol pakbus: {name} '{text}' is not a number from {least} to {most}"))
    })
}

/// Checks a name against the limits of loggers.
fn parse_name(what: &str, name: &str) -> Result<String, CaseError> {
    let fits = (1..=MAX_NAME_CHARACTERS).contains(&name.chars().count());
    if fits && name.chars().all(|c| !c.is_control() && u32::from(c) < 256) {
        return Ok(name.to_owned());
    }
    Err(CaseError::Option(format!(
        "protocol pakbus: {what} '{}' is not a name of a logger: use at most {MAX_NAME_CHARACTERS} letters of Latin-1",
        name.escape_debug()
    )))
}

/// Reads the options and sets the message: a clock request, a chunk of a file, or a reply with records.
fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    let options = PakBusOptions::parse(&case.options, case.workload)?;
    if caps.framing == Framing::Message {
        let what = format!("{}: a logger needs a stream, like TCP, and on lines", case.endpoints[0]);
        return Err(CaseError::Link(what));
    }
    if case.parallel != 1 {
        let what = "protocol pakbus: a logger has one connection for a client: leave out --parallel";
        return Err(CaseError::Parallel(what.to_owned()));
    }
    let fixed = match (case.workload.is_round_trip(), &options.target) {
        (true, _) => Some((clock::REQUEST_BYTES, "a clock request")),
        (false, DownloadTarget::Table { .. }) => {
            Some((RECORD_REPLY_BYTES, "a reply with records, which the logger sets"))
        }
        (false, DownloadTarget::File(_)) => None,
    };
    match (case.message_bytes, fixed) {
        (None, fixed) => case.message_bytes = Some(fixed.map_or(MAX_CHUNK_BYTES, |(bytes, _)| bytes)),
        (Some(size), Some((bytes, what))) if size != bytes => {
            return Err(CaseError::MessageSize(format!(
                "protocol pakbus: the size is that of {what} ({bytes} bytes), not {size}: leave it out"
            )));
        }
        (Some(size), None) if size > MAX_CHUNK_BYTES => {
            return Err(CaseError::MessageSize(format!(
                "protocol pakbus: a chunk of {size} bytes is too large: use a --size of at most {MAX_CHUNK_BYTES}"
            )));
        }
        _ => {}
    }
    Ok(())
}

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let options = PakBusOptions::parse(&case.options, case.workload)?;
    if context.content.is_some() && case.endpoints.len() > 1 {
        let what = "the content of several downloads cannot be saved in one file: choose one endpoint";
        return Err(CaseError::Endpoint(what.to_owned()).into());
    }
    let mut flows = Vec::new();
    for (port, endpoint) in case.endpoints.iter().enumerate() {
        if !case.workload.is_round_trip() {
            let link = Box::new(ReopeningLink::open(endpoint, context.dialer)?);
            let recorder = (context.new_recorder)(FlowRole::Download, port);
            let party = Downloader::new(
                options.clone(),
                &case.load,
                context.content.cloned(),
                context.dialer.now().0,
                recorder,
            );
            let party = party.resuming(context.partial_content.cloned());
            flows.push(Flow { role: FlowRole::Download, endpoint_index: port, link, party: Box::new(party) });
            continue;
        }
        let link = context.dialer.open(endpoint)?;
        let codec = Box::new(clock::ClockCodec::new(options.clone()));
        let party =
            Pinger::new(codec, &case.load, link.caps(), (context.new_recorder)(FlowRole::RoundTrip, port));
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) });
    }
    Ok(Box::new(LoggerSession { flows, effective_settings: Map::new() }))
}

/// Session with a logger that has replied.
struct LoggerSession {
    flows: Vec<Flow>,
    effective_settings: Map<String, Value>,
}

impl ClientSession for LoggerSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        flows: &[FlowResult],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let transfers = flows.iter().filter_map(|flow| flow.recorder.transfer_counts.as_ref());
        self.effective_settings = transfers.flat_map(|transfer| transfer.server_facts.clone()).collect();
        Ok(None)
    }

    fn effective_settings(&self) -> Map<String, Value> {
        self.effective_settings.clone()
    }
}

#[cfg(test)]
mod tests;
