//! Runs a case of a study on a twin in real time: the parts of the lab, on sockets and pseudo-terminals.

use std::any::Any;
use std::time::Duration;

use super::bench::{FILE, MAX_BLOCKS, SEED, TwinCaseError, collects_table, loses_messages};
use super::parts::{link_shapes, logger_config, transfer_costs};
use crate::study::{DeviceServerTwin, PlannedCase, TwinModel};
use linkgauge_engine::link::Dialer;
use linkgauge_engine::link::serial_line::{self, SerialSettings};
use linkgauge_engine::link::shaped::Shape;
use linkgauge_engine::protocol::pakbus::value::LoggerTime;
use linkgauge_engine::serve::Server;
use linkgauge_lab::device_server::{DeviceServer, DeviceServerOptions};
use linkgauge_lab::logger::{Logger, LoggerConfig, LoggerOptions, generate_content};
use linkgauge_lab::messages::MessageNodes;
use linkgauge_lab::shaper::{Shaper, ShaperOptions, default_queue_bytes};
use linkgauge_lab::uart::{DEFAULT_BATCH_INTERVAL, DeliveryMode, LabUarts, UartOptions};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, Direction, OneOrMany};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{Bytes, Count, Span};

/// Requests of a latency: of steady devices, and of links whose delays are random.
const STEADY_REQUESTS: u64 = 100;
const RANDOM_REQUESTS: u64 = 1000;
/// Chunks of a download.
const CHUNKS: u64 = 60;
/// Time of a case by time.
const CASE_TIME: Duration = Duration::from_secs(5);
/// Time on the line of a throughput, and its fewest blocks.
const LINE_TIME: Duration = Duration::from_secs(20);
const MIN_BLOCKS: u64 = 8;
/// Signals of a burst, as in the plan of the study.
const BURST: &str = "200";
/// Timeout that is longer than any wait here.
const TIMEOUT: Duration = Duration::from_secs(60);

const STREAM_URL: &str = "tcp://127.0.0.1:0";
const DATAGRAM_URL: &str = "udp://127.0.0.1:0";
const NODE_URL: &str = "linx://127.0.0.1:0/server";
/// Address at which a relay in front of a slow line listens: bytes in its buffers count as sent.
const SLOW_LINE_URL: &str = "tcp://127.0.0.1:0?rcvbuf=64k&sndbuf=64k";

/// Whether the lab has such a part in real time.
pub(crate) fn is_possible(model: &TwinModel) -> bool {
    !matches!(model, TwinModel::Adapter { .. })
}

/// Time to start and stop the parts of a case, and its warm-up.
const CASE_OVERHEAD: Duration = Duration::from_millis(650);

/// Expected time of a case in real time, from its result on the virtual clock.
pub(super) fn expected_time(model: &TwinModel, case: &PlannedCase, result: &CaseResult) -> Duration {
    let elapsed = Duration::from_nanos(result.elapsed_ns);
    let counts = &result.figures.counts;
    let time = match (model, case.line_rate()) {
        (TwinModel::Messages(_) | TwinModel::Board { .. }, _) => CASE_TIME,
        (TwinModel::Radio(_) | TwinModel::Frames { .. }, _) => {
            elapsed.mul_f64(RANDOM_REQUESTS as f64 / counts.sent.max(1) as f64)
        }
        (TwinModel::Logger { .. }, _) if !collects_table(case.spec()) => {
            elapsed.mul_f64(CHUNKS as f64 / counts.sent.max(1) as f64)
        }
        (TwinModel::DeviceServer(twin), Some(line)) if case.spec().workload.as_deref() != Some("latency") => {
            let blocks = u64::from(case.point.ports) * blocks_on_line(twin.block.into(), line);
            elapsed.mul_f64(blocks as f64 / counts.sent.max(1) as f64)
        }
        _ => elapsed,
    };
    time + CASE_OVERHEAD
}

/// Blocks of a throughput on a line of that rate and bits per character.
fn blocks_on_line(block_bytes: u64, (line_bps, bits): (f64, f64)) -> u64 {
    let blocks = (LINE_TIME.as_secs_f64() * line_bps / bits / block_bytes as f64) as u64;
    blocks.clamp(MIN_BLOCKS, MAX_BLOCKS)
}

/// The parts of a case.
struct RealBench<'a> {
    dialer: &'a Dialer,
    endpoints: Vec<Endpoint>,
    spec: CaseSpec,
    /// The last to start comes first, because it uses the others.
    running: Vec<Box<dyn Any>>,
}

/// The result of a case on a twin in real time, or the reason why there is none.
pub(crate) fn run_case(
    model: &TwinModel,
    case: &PlannedCase,
    dialer: &Dialer,
) -> Result<CaseResult, TwinCaseError> {
    let mut bench =
        RealBench { dialer, endpoints: Vec::new(), spec: case.spec().clone(), running: Vec::new() };
    bench.start(model, case)?;
    if !loses_messages(model) {
        bench.spec.timeout = Some(Span(TIMEOUT));
    }
    super::bench::measure(&bench.spec, &bench.endpoints, bench.dialer)
}

impl RealBench<'_> {
    fn start(&mut self, model: &TwinModel, case: &PlannedCase) -> Result<(), TwinCaseError> {
        let is_latency = self.spec.workload.as_deref() == Some("latency");
        let link = case.download.and_then(|download| download.link);
        let shapes = link_shapes(model, link);
        match model {
            TwinModel::Radio(_) | TwinModel::Frames { .. } => {
                let url = if loses_messages(model) { DATAGRAM_URL } else { STREAM_URL };
                self.start_server("echo", url)?;
                self.start_relay(shapes, url)?;
                self.spec.count = Some(Count(RANDOM_REQUESTS));
            }
            TwinModel::Messages(_) => {
                let nodes = MessageNodes::start(&NODE_URL.parse()?, shapes.unwrap_or_default(), self.dialer)?;
                self.endpoints = vec![nodes.endpoint().clone()];
                self.running.insert(0, Box::new(nodes));
                self.spec.protocol = Some("linx-bmark".to_owned());
                self.spec.protocol_options = [("burst".to_owned(), BURST.to_owned())].into();
                self.spec.time = Some(Span(CASE_TIME));
                if is_latency {
                    self.spec.protocol_options.clear();
                } else {
                    self.spec.direction = Some(OneOrMany::One(Direction::Receive));
                }
            }
            TwinModel::Board { .. } => {
                self.start_server("netio", STREAM_URL)?;
                self.start_relay(shapes, SLOW_LINE_URL)?;
                self.spec.time = Some(Span(CASE_TIME));
            }
            TwinModel::Logger { chunk, .. } => {
                self.start_logger(*chunk, logger_config(model).unwrap_or_default())?;
                self.start_relay(shapes, STREAM_URL)?;
            }
            TwinModel::DeviceServer(twin) => self.start_device_server(twin, case)?,
            TwinModel::Adapter { .. } => return Err("the adapter exists on the virtual clock only".into()),
            TwinModel::Uart { trigger, idle_characters } => {
                let delivery = DeliveryMode::Fifo { trigger: *trigger, idle_characters: *idle_characters };
                self.endpoints = self.start_uarts(1, delivery, case)?;
                self.spec.count = Some(Count(STEADY_REQUESTS));
            }
        }
        Ok(())
    }

    fn start_server(&mut self, protocol: &str, url: &str) -> Result<(), TwinCaseError> {
        let server = Server::on(url).protocol(protocol).start_with(self.dialer)?;
        self.endpoints = server.endpoints().to_vec();
        self.running.insert(0, Box::new(server));
        Ok(())
    }

    /// The link of the twin in front of the endpoint, if it has one.
    fn start_relay(&mut self, shapes: Option<[Shape; 2]>, url: &str) -> Result<(), TwinCaseError> {
        let Some(shapes) = shapes else { return Ok(()) };
        let [up, down] = shapes.map(|shape| Shape {
            queue_bytes: match shape.bits_per_second.is_finite() && shape.burst_bytes == 0 {
                true => default_queue_bytes(shape.bits_per_second),
                false => shape.queue_bytes,
            },
            ..shape
        });
        let to = self.endpoints.remove(0);
        let options = ShaperOptions { listen: url.parse()?, to, up, down, seed: SEED, log: None };
        let relay = Shaper::start(&options, self.dialer)?;
        self.endpoints = vec![relay.endpoint().clone()];
        self.running.insert(0, Box::new(relay));
        Ok(())
    }

    fn start_logger(&mut self, chunk: u32, config: LoggerConfig) -> Result<(), TwinCaseError> {
        let volume = u64::from(chunk) * CHUNKS;
        let config = LoggerConfig {
            files: vec![(FILE.to_owned(), generate_content(SEED, volume as usize))],
            ..config
        };
        let options = LoggerOptions { listen: vec![STREAM_URL.parse()?], serial_lines: Vec::new(), config };
        let logger = Logger::start_with(&options, LoggerTime::default(), self.dialer.clone())?;
        self.endpoints = logger.endpoints().to_vec();
        self.running.insert(0, Box::new(logger));
        if !collects_table(&self.spec) {
            self.spec.size = Some(OneOrMany::One(Bytes(chunk.into())));
            self.spec.volume = Some(Bytes(volume));
        }
        Ok(())
    }

    /// Starts all installed ports of the box; the case uses the first ones.
    fn start_device_server(
        &mut self,
        twin: &DeviceServerTwin,
        case: &PlannedCase,
    ) -> Result<(), TwinCaseError> {
        let costs = transfer_costs(twin);
        let delivery = DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL);
        let serial = self.start_uarts(twin.ports as usize, delivery, case)?;
        let options = DeviceServerOptions { costs, ..DeviceServerOptions::new(STREAM_URL.parse()?, serial) };
        let server = DeviceServer::start(&options)?;
        let used = case.point.ports as usize;
        // The endpoints declare the line: a device gets no end of the data.
        self.endpoints = server.link_endpoints().into_iter().take(used).collect();
        self.running.insert(0, Box::new(server));
        if self.spec.workload.as_deref() == Some("latency") {
            self.spec.count = Some(Count(STEADY_REQUESTS));
        } else {
            let block = costs.block_bytes as u64;
            let blocks = blocks_on_line(block, case.line_rate().ok_or("the case has no line")?);
            self.spec.size = Some(OneOrMany::One(Bytes(block)));
            self.spec.volume = Some(Bytes(block * blocks));
        }
        Ok(())
    }

    /// Serial ports with loopback plugs at the rate of the case.
    fn start_uarts(
        &mut self,
        ports: usize,
        delivery: DeliveryMode,
        case: &PlannedCase,
    ) -> Result<Vec<Endpoint>, TwinCaseError> {
        let uarts = LabUarts::start(&UartOptions { ports, delivery, ..UartOptions::default() })?;
        let line = SerialSettings { baud: case.point.value, ..SerialSettings::default() };
        let endpoints: Result<Vec<Endpoint>, _> =
            uarts.paths().iter().map(|path| serial_line::port_endpoint(path, &line)).collect();
        self.running.insert(0, Box::new(uarts));
        Ok(endpoints?)
    }
}
