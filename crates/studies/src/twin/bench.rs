//! Runs a case of a study on a twin: its server in memory, the measurement of `schedule`, the virtual clock.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::parts::{link_shapes, logger_config, node_costs, transfer_costs};
use crate::study::{DeviceServerTwin, PlannedCase, TwinModel};
use linkgauge_engine::Registry;
use linkgauge_engine::link::party::Party;
use linkgauge_engine::link::serial_line::SerialSettings;
use linkgauge_engine::link::shaped::Shape;
use linkgauge_engine::link::{Dialer, PartyFactory};
use linkgauge_engine::protocol::pakbus::value::LoggerTime;
use linkgauge_engine::schedule::{self, RunContext};
use linkgauge_engine::serve::Server;
use linkgauge_lab::adapter::PluggedAdapter;
use linkgauge_lab::device_server::{PluggedPort, SharedProcessor};
use linkgauge_lab::logger::{Logger, LoggerConfig, LoggerOptions, generate_content};
use linkgauge_lab::packing::PackingRules;
use linkgauge_lab::uart::{DeliveryMode, PluggedUart};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, Direction, OneOrMany, Plan};
use linkgauge_model::run::{CaseResult, CpuUse};
use linkgauge_model::units::{Bytes, Count, Span};

/// The seed of all random effects.
pub(super) const SEED: u64 = 1;

/// Requests of a latency: enough for a percentile whose distribution is a few steps, and for a share of 1 % with 5 % of
/// itself as standard deviation.
const STEADY_REQUESTS: u64 = 100;
const RANDOM_REQUESTS: u64 = 50_000;

/// Blocks of a throughput on all ports together, and on one port at least, so that the first and the last take no visible
/// share.
const ALL_BLOCKS: u64 = 1600;
const MIN_BLOCKS: u64 = 200;
pub(super) const MAX_BLOCKS: u64 = 400;
/// Chunks of a download: the bucket in front of a link lets a few of them pass at once.
const CHUNKS: u64 = 600;
/// Messages of a throughput, and their most bytes.
const MESSAGES: u64 = 2000;
const MAX_VOLUME_BYTES: u64 = 20_000_000;
/// Time of a throughput by time, as in the study.
const STREAM_TIME: Duration = Duration::from_secs(10);
/// The smallest buffer of a link in memory.
const MIN_BUFFER_BYTES: u64 = 64 << 10;
/// Timeout that is longer than any wait here, even of an adapter on the slowest line.
const LONG_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The longest write to an adapter, in time on the line and in bytes.
const MAX_WRITE_TIME: Duration = Duration::from_millis(10);
const MAX_WRITE_BYTES: u64 = 64;

/// The file of the study of downloads.
pub(super) const FILE: &str = "CPU:bench.bin";

/// Error of a case that did not run: the error of the lab, of the plan or of the measurement.
pub type TwinCaseError = Box<dyn std::error::Error + Send + Sync>;

/// The device of a case.
struct Bench {
    dialer: Dialer,
    endpoints: Vec<Endpoint>,
    spec: CaseSpec,
    /// Parts of the lab that run; each stops when it is dropped.
    running: Vec<Box<dyn Any>>,
}

/// The result of a case on a twin, or the reason why there is none.
pub(crate) fn run_case(model: &TwinModel, case: &PlannedCase) -> Result<CaseResult, TwinCaseError> {
    let mut bench = Bench {
        dialer: Registry::standard().dialer(Clock::new_virtual()),
        endpoints: Vec::new(),
        spec: case.spec().clone(),
        running: Vec::new(),
    };
    bench.start(model, case)?;
    bench.spec.timeout =
        bench.spec.timeout.filter(|_| matches!(model, TwinModel::Radio(_))).or(Some(Span(LONG_TIMEOUT)));
    let mut result = measure(&bench.spec, &bench.endpoints, &bench.dialer)?;
    result.cpu = sender_cpu(model, &result);
    Ok(result)
}

/// The processor time of the sender of a stream of messages; `None` of other twins, because the virtual clock has no processors.
fn sender_cpu(model: &TwinModel, result: &CaseResult) -> Option<CpuUse> {
    let TwinModel::Messages(nodes) = model else { return None };
    let each = node_costs(nodes).sender_time(result.message_bytes.into());
    let is_stream = result.workload == "throughput" && !each.is_zero();
    is_stream.then(|| CpuUse {
        // The rate counts the times between messages, one fewer than messages.
        client_seconds: each.as_secs_f64() * result.figures.counts.sent.saturating_sub(1) as f64,
        client_busy_poll_seconds: None,
        server_seconds: None,
        seconds_per_gigabyte: None,
    })
}

/// Measures a case at these endpoints, together.
pub(super) fn measure(
    spec: &CaseSpec,
    endpoints: &[Endpoint],
    dialer: &Dialer,
) -> Result<CaseResult, TwinCaseError> {
    let url = Some(OneOrMany::Many(endpoints.to_vec()));
    let cases = CaseSpec { url, together: Some(true), ..spec.clone() }.expand()?;
    let plan = schedule::check(Plan::new(cases)?, Registry::standard())?;
    let run = schedule::run(&plan, &mut RunContext::new(dialer.clone(), &()));
    let result = run.cases.into_iter().next().ok_or("it gave no result")?;
    match result.warnings.iter().find(|_| !result.complete) {
        Some(warning) => Err(warning.text.clone().into()),
        None => Ok(result),
    }
}

impl Bench {
    /// Starts the device, and shortens the case to what the virtual clock needs.
    fn start(&mut self, model: &TwinModel, case: &PlannedCase) -> Result<(), TwinCaseError> {
        let is_latency = self.spec.workload.as_deref() == Some("latency");
        match model {
            TwinModel::Radio(_) | TwinModel::Frames { .. } => {
                self.start_server("echo", if loses_messages(model) { "?type=message" } else { "" })?;
                self.spec.count = Some(Count(RANDOM_REQUESTS));
            }
            TwinModel::Messages(_) => {
                self.start_server("linkgauge", "?type=message")?;
                self.spec.protocol = Some("linkgauge".to_owned());
                self.spec.protocol_options.clear();
                self.spec.time = None;
                if is_latency {
                    self.spec.count = Some(Count(STEADY_REQUESTS));
                } else {
                    let size = u64::from(case.point.value);
                    self.spec.direction = Some(OneOrMany::One(Direction::Send));
                    self.spec.volume = Some(Bytes((size * MESSAGES).min(MAX_VOLUME_BYTES / size * size)));
                }
            }
            TwinModel::Board { .. } => {
                // Bytes in flight count as sent, so they are few; a block that did not fit would be two calls.
                let block = u64::from(case.point.value.max(1));
                let buffer = block * MIN_BUFFER_BYTES.div_ceil(block);
                self.start_server("netio", &format!("?buffer={buffer}"))?;
                self.spec.time = Some(Span(STREAM_TIME));
            }
            TwinModel::Logger { chunk, .. } => {
                self.start_logger(*chunk, logger_config(model).unwrap_or_default())?;
            }
            TwinModel::DeviceServer(twin) => self.start_device_server(twin, case)?,
            TwinModel::Adapter { silence, length, ceiling } => {
                let rules = PackingRules {
                    inter_character_timeout: silence.0,
                    packet_bytes: *length as usize,
                    buffer_bytes: (*length as usize).next_power_of_two(),
                    ..PackingRules::default()
                };
                self.start_adapter(&rules, ceiling.0, case)?;
            }
            TwinModel::Uart { trigger, idle_characters } => {
                let delivery = DeliveryMode::Fifo { trigger: *trigger, idle_characters: *idle_characters };
                let settings = SerialSettings { baud: case.point.value, ..SerialSettings::default() };
                self.listen("port", Box::new(move |_| Box::new(PluggedUart::new(delivery, settings))))?;
                self.spec.count = Some(Count(STEADY_REQUESTS));
            }
        }
        let link = case.download.and_then(|download| download.link);
        if let Some(shapes) = link_shapes(model, link) {
            for endpoint in &self.endpoints {
                self.dialer.memory_network.shape_links(endpoint.address(), shapes.clone(), SEED);
            }
        }
        Ok(())
    }

    /// A server of a protocol at the other end of the link.
    fn start_server(&mut self, protocol: &str, options: &str) -> Result<(), TwinCaseError> {
        let url = format!("mem://twin{options}");
        let server = Server::on(&url).protocol(protocol).start_with(&self.dialer);
        self.running.push(Box::new(server?));
        self.endpoints.push(url.parse()?);
        Ok(())
    }

    fn start_logger(&mut self, chunk: u32, config: LoggerConfig) -> Result<(), TwinCaseError> {
        let volume = u64::from(chunk) * CHUNKS;
        let config = LoggerConfig {
            files: vec![(FILE.to_owned(), generate_content(SEED, volume as usize))],
            ..config
        };
        let listen = vec!["mem://twin".parse()?];
        let options = LoggerOptions { listen, serial_lines: Vec::new(), config };
        let logger = Logger::start_with(&options, LoggerTime::default(), self.dialer.clone());
        self.running.push(Box::new(logger?));
        self.endpoints = options.listen;
        if !collects_table(&self.spec) {
            self.spec.size = Some(OneOrMany::One(Bytes(chunk.into())));
            self.spec.volume = Some(Bytes(volume));
        }
        Ok(())
    }

    fn start_device_server(
        &mut self,
        twin: &DeviceServerTwin,
        case: &PlannedCase,
    ) -> Result<(), TwinCaseError> {
        let (line_bps, bits) = case.line_rate().ok_or("the case has no line")?;
        let costs = transfer_costs(twin);
        let processor = Arc::new(SharedProcessor::new(costs, twin.ports as usize, Time(0)));
        // A client that has its reply at a poll misses that poll.
        let lan =
            Shape { delay: twin.network_delay.map_or(Duration::ZERO, |delay| delay.0), ..Shape::default() };
        for port in 0..case.point.ports {
            let processor = processor.clone();
            let factory = move |_: &str| -> Box<dyn Party> {
                Box::new(PluggedPort::new(processor.clone(), line_bps, bits))
            };
            let name = format!("port{port}");
            self.listen(&name, Box::new(factory))?;
            self.dialer.memory_network.shape_links(&name, [lan.clone(), lan.clone()], SEED);
        }
        let block = costs.block_bytes as u64;
        if self.spec.workload.as_deref() == Some("latency") {
            self.spec.count = Some(Count(STEADY_REQUESTS));
        } else {
            self.spec.size = Some(OneOrMany::One(Bytes(block)));
            let blocks = (ALL_BLOCKS / u64::from(case.point.ports)).clamp(MIN_BLOCKS, MAX_BLOCKS);
            self.spec.volume = Some(Bytes(block * blocks));
        }
        Ok(())
    }

    fn start_adapter(
        &mut self,
        rules: &PackingRules,
        ceiling_bps: f64,
        case: &PlannedCase,
    ) -> Result<(), TwinCaseError> {
        let (line_bps, bits) = case.line_rate().ok_or("the case has no line")?;
        let character_ns = bits * 1e9 / line_bps.min(ceiling_bps);
        let rules = rules.clone();
        self.listen("adapter", Box::new(move |_| Box::new(PluggedAdapter::new(&rules, character_ns))))?;
        // The client's own line.
        let payload_bps = line_bps / bits * f64::from(u8::BITS);
        let line = Shape { bits_per_second: payload_bps, ..Shape::default() };
        self.dialer.memory_network.shape_links("adapter", [line.clone(), line], SEED);
        if self.spec.workload.as_deref() == Some("latency") {
            self.spec.count = Some(Count(STEADY_REQUESTS));
        } else {
            // A write arrives as a whole; a long one would look like silence on the line before it.
            let written = (payload_bps / f64::from(u8::BITS) * MAX_WRITE_TIME.as_secs_f64()) as u64;
            self.spec.size = Some(OneOrMany::One(Bytes(written.clamp(1, MAX_WRITE_BYTES))));
        }
        Ok(())
    }

    /// A device without a protocol.
    fn listen(&mut self, name: &str, factory: PartyFactory) -> Result<(), TwinCaseError> {
        let endpoint: Endpoint = format!("mem://{name}").parse()?;
        let mut listener = self.dialer.listen(&endpoint)?;
        listener.set_party_factory(factory).map_err(|_| "a link in memory takes a party")?;
        self.running.push(Box::new(listener));
        self.endpoints.push(endpoint);
        Ok(())
    }
}

/// Whether the case collects a table of a logger, not a file.
pub(super) fn collects_table(spec: &CaseSpec) -> bool {
    spec.protocol_options.contains_key("table")
}

/// Whether the link drops messages for good: then it is no stream.
pub(super) fn loses_messages(model: &TwinModel) -> bool {
    matches!(model, TwinModel::Radio(radio) if radio.retransmission.is_none())
}
