//! The lab for the cells of a study: threads of this process, or processes of this program. They stop when they are dropped.

use std::any::Any;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use anyhow::{Result, anyhow, bail};
use linkgauge::Registry;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{self, DeviceServer};
use linkgauge::lab::logger::{self, Logger, LoggerConfig, generate_content};
use linkgauge::lab::messages::MessageNodes;
use linkgauge::lab::redirect::{self, Redirector};
use linkgauge::lab::shaper::{self, Shaper, default_queue_bytes};
use linkgauge::lab::uart::{self, LabUarts};
use linkgauge::link::Dialer;
use linkgauge::link::serial_line::{self, SerialSettings};
use linkgauge::link::shaped::{Occurrence, Shape};
use linkgauge::report::printable;
use linkgauge::study::{Cell, DelayedLink, DownloadPlan, MeasuringPoint, PlannedCase, StudyLength};
use linkgauge::twin::link_shapes;

use super::super::lab::like::LikeTwin;
use super::super::signals::UNTIL_INPUT_ENDS_FLAG;

const LISTEN_URL: &str = "tcp://127.0.0.1:0";
/// Where the nodes of a twin listen.
const NODE_URL: &str = "linx://127.0.0.1:0/server";
/// Buffers of a stream on a slow line: bytes in them count as sent.
const SLOW_LINE_OPTIONS: &str = "rcvbuf=64k&sndbuf=64k";
/// Size of the emulated logger's file: larger than any download of a study.
const LOGGER_FILE_NAME: &str = "CPU:bench.bin";
const LOGGER_FILE_BYTES: usize = 1_000_000;
/// The table, which is full at the start.
const LOGGER_TABLE: &str = "Bench:1s:Seq=Int4,Batt=IEEE4,Temp=FP2:1000";
/// Requests that the emulated logger accepts at the same time: more than a real one, so that the link limits the window.
const LOGGER_QUEUE_COMMANDS: usize = 64;

/// Limit of the error message of a process that cannot start.
const MAX_STDERR_BYTES: u64 = 4096;

/// In a command: an endpoint of this host, of the transport that follows.
const LOOPBACK_PREFIX: &str = "here:";

/// Replaces the placeholders in a word of a command.
fn expand_word(word: &str, place: &MeasuringPoint) -> Result<String> {
    if let Some(scheme) = word.strip_prefix(LOOPBACK_PREFIX) {
        return loopback_url(scheme);
    }
    // Distinguishes simultaneous runs.
    let id = std::process::id().to_string();
    let values = [("{id}", id), ("{ports}", place.ports.to_string()), ("{at}", place.value.to_string())];
    Ok(values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value)))
}

/// An endpoint of this host on which a server can listen over that transport.
fn loopback_url(scheme: &str) -> Result<String> {
    let transport = Registry::standard().transports.0.iter().find(|transport| transport.scheme == scheme);
    let transport = transport.ok_or_else(|| anyhow!("unknown transport {scheme}"))?;
    let endpoints = (transport.loopback_urls)("/tmp").into_iter();
    endpoints.into_iter().next().ok_or_else(|| anyhow!("{scheme} has no endpoint inside this host"))
}

/// A place of the study in the lab.
pub struct LabSetup {
    /// The endpoints of its ports.
    pub endpoints: Vec<Endpoint>,
    /// In the order of their start. Later ones use earlier ones, so they stop first.
    components: Vec<Box<dyn Any>>,
}

impl Drop for LabSetup {
    fn drop(&mut self) {
        while self.components.pop().is_some() {}
    }
}

/// A process that ends when it is dropped.
struct ServerProcess(Child);

impl ServerProcess {
    /// The error message of a process that did not start.
    fn start_error(&mut self) -> String {
        // The process has ended, or printed something unexpected.
        let _ = self.0.kill();
        let mut words = String::new();
        let _ = self.0.stderr.take().map(|stderr| stderr.take(MAX_STDERR_BYTES).read_to_string(&mut words));
        format!("the server process did not start: {}", printable(words.lines().last().unwrap_or_default()))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // A process that has ended needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl LabSetup {
    /// Starts the lab for the cell of a case.
    pub fn start(cell: &Cell, case: &PlannedCase, dialer: &Dialer, length: StudyLength) -> Result<LabSetup> {
        let mut stand = LabSetup { endpoints: Vec::new(), components: Vec::new() };
        match (cell.lab.as_deref(), &case.download) {
            (Some("process"), _) => {
                stand.start_process(cell, &case.point, length)?;
                stand.start_shaper(case.link.as_ref(), dialer)?;
                cell.like.iter().try_for_each(|twin| stand.start_twin_links(twin, dialer))?;
            }
            (Some("messages"), _) => stand.start_messages(cell, dialer)?,
            (Some("logger"), Some(download)) => {
                stand.start_logger(download, cell.skips_records)?;
                stand.start_shaper(download.link.as_ref(), dialer)?;
            }
            (Some(device), None) => stand.start_serial_ports(device, cell, &case.point)?,
            (lab, _) => bail!("the lab does not emulate {}", lab.unwrap_or("this cell")),
        }
        Ok(stand)
    }

    /// Starts a server process, which prints its endpoints.
    fn start_process(&mut self, cell: &Cell, place: &MeasuringPoint, length: StudyLength) -> Result<()> {
        let program = std::env::current_exe()?;
        let mut under = cell.under.split_whitespace().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(under.next().unwrap_or_default());
        let words: Result<Vec<String>> =
            cell.command_words(length).map(|word| expand_word(word, place)).collect();
        command.args(under).args(words?);
        // Ctrl-C stops the client. The server is stopped by the client afterwards, or stops when its standard input ends.
        command.arg(UNTIL_INPUT_ENDS_FLAG);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = ServerProcess(linkgauge::system::in_own_group(&mut command).spawn()?);
        let mut stdout = process.0.stdout.as_mut().map(BufReader::new);
        for _ in 0..place.ports {
            let mut line = String::new();
            stdout.as_mut().map_or(Ok(0), |stdout| stdout.read_line(&mut line))?;
            let Some((_, url)) = line.rsplit_once(" on ") else { bail!("{}", process.start_error()) };
            let endpoint = cell.address.clone().map_or_else(|| url.trim().parse(), Ok)?;
            self.endpoints.push(cell.configure_endpoint(&endpoint, place.value)?);
        }
        self.components.push(Box::new(process));
        Ok(())
    }

    /// Puts the link of a twin in front of the place.
    fn start_twin_links(&mut self, twin: &str, dialer: &Dialer) -> Result<()> {
        let shapes = twin_shapes(twin)?;
        for endpoint in &mut self.endpoints {
            let to = endpoint.clone();
            let is_stream = shaper::is_stream_endpoint(&to)?;
            let [up, down] = shapes.clone().map(|shape| Shape {
                queue_bytes: match shape.bits_per_second.is_finite() {
                    true => default_queue_bytes(shape.bits_per_second),
                    false => shape.queue_bytes,
                },
                // Streams are reliable.
                loss: if is_stream { Occurrence::Never } else { shape.loss },
                ..shape
            });
            let mut listen = endpoint.with_port(0)?;
            if is_stream && up.bits_per_second.is_finite() {
                listen = format!("{listen}?{SLOW_LINE_OPTIONS}").parse()?;
            }
            let options = shaper::ShaperOptions { listen, to, up, down, seed: 1, log: None };
            let shaper = Shaper::start(&options, dialer)?;
            *endpoint = shaper.endpoint().clone();
            self.components.push(Box::new(shaper));
        }
        Ok(())
    }

    /// The nodes of a twin.
    fn start_messages(&mut self, cell: &Cell, dialer: &Dialer) -> Result<()> {
        let twin = cell.like.as_deref().ok_or_else(|| anyhow!("{} is like no twin", cell.name))?;
        let nodes = MessageNodes::start(&NODE_URL.parse()?, twin_shapes(twin)?, dialer)?;
        self.endpoints = vec![nodes.endpoint().clone()];
        self.components.push(Box::new(nodes));
        Ok(())
    }

    /// An emulated logger.
    fn start_logger(&mut self, download: &DownloadPlan, skip_records: bool) -> Result<()> {
        let device = LoggerConfig {
            files: vec![(LOGGER_FILE_NAME.to_owned(), generate_content(1, LOGGER_FILE_BYTES))],
            command_time: download.protocol.processing.0,
            queue_commands: LOGGER_QUEUE_COMMANDS,
            skip_records,
            tables: vec![LOGGER_TABLE.parse()?],
            ..LoggerConfig::default()
        };
        let logger = Logger::start(&logger::LoggerOptions {
            listen: vec![LISTEN_URL.parse()?],
            config: device,
            ..Default::default()
        })?;
        self.endpoints = logger.endpoints().to_vec();
        self.components.push(Box::new(logger));
        Ok(())
    }

    /// Puts a link with the study's rates and delay in front of the place, if it has one. Streams are shaped by their bytes.
    fn start_shaper(&mut self, path: Option<&DelayedLink>, dialer: &Dialer) -> Result<()> {
        let (Some(path), [at]) = (path, self.endpoints.as_slice()) else { return Ok(()) };
        let shape = |rate| Shape {
            delay: path.delay,
            bits_per_second: rate,
            queue_bytes: default_queue_bytes(rate),
            ..Shape::default()
        };
        let (up, down) = (shape(path.rate_to), shape(path.rate_from));
        let listen: Endpoint = LISTEN_URL.parse()?;
        let port = endpoint_port(at)?;
        let to = listen.with_port(port.parse()?)?;
        let shaper =
            Shaper::start(&shaper::ShaperOptions { listen, to, up, down, seed: 1, log: None }, dialer)?;
        let [of_it, of_shaper] =
            [port, self::endpoint_port(shaper.endpoint())?].map(|port| format!(":{port}"));
        self.endpoints = vec![at.as_str().replacen(&of_it, &of_shaper, 1).parse()?];
        self.components.push(Box::new(shaper));
        Ok(())
    }

    /// Starts serial lines and the devices in front of them. A device server keeps the rate it was started with, so each rate
    /// gets its own.
    fn start_serial_ports(&mut self, device: &str, cell: &Cell, place: &MeasuringPoint) -> Result<()> {
        let listen: Endpoint = LISTEN_URL.parse()?;
        let on_line = |endpoint: &Endpoint| Ok(cell.configure_endpoint(endpoint, place.value)?);
        let line = serial_line::settings_of(&on_line(&listen)?)?;
        self.start_uarts(place.ports as usize, &line)?;
        match device {
            "uart" => {}
            "device-server" => {
                self.start_device_server(listen)?;
                self.endpoints = self.endpoints.iter().map(on_line).collect::<Result<_>>()?;
            }
            "redirect" => {
                self.start_device_server(listen)?;
                self.start_redirectors(on_line, &line)?;
            }
            other => bail!("the lab does not emulate {other}"),
        }
        Ok(())
    }

    /// Starts serial ports with loopback plugs.
    fn start_uarts(&mut self, ports: usize, line: &SerialSettings) -> Result<()> {
        let uarts = LabUarts::start(&uart::UartOptions { ports, ..uart::UartOptions::default() })?;
        let terminals = uarts.paths();
        self.endpoints =
            terminals.iter().map(|path| serial_line::port_endpoint(path, line)).collect::<Result<_, _>>()?;
        self.components.push(Box::new(uarts));
        Ok(())
    }

    /// Starts a device server in front of them.
    fn start_device_server(&mut self, listen: Endpoint) -> Result<()> {
        let serial = std::mem::take(&mut self.endpoints);
        let server = DeviceServer::start(&device_server::DeviceServerOptions::new(listen, serial))?;
        self.endpoints = server.endpoints().to_vec();
        self.components.push(Box::new(server));
        Ok(())
    }

    /// Starts a virtual COM port in front of each port of the device server.
    fn start_redirectors(
        &mut self,
        on_line: impl Fn(&Endpoint) -> Result<Endpoint>,
        line: &SerialSettings,
    ) -> Result<()> {
        for endpoint in &mut self.endpoints {
            let redirector = Redirector::start(&redirect::RedirectorOptions::new(on_line(endpoint)?))?;
            *endpoint = serial_line::port_endpoint(redirector.path(), line)?;
            self.components.push(Box::new(redirector));
        }
        Ok(())
    }
}

/// The link of a twin, from the client and to it.
fn twin_shapes(name: &str) -> Result<[Shape; 2]> {
    let twin: LikeTwin = name.parse()?;
    link_shapes(&twin.model, None).ok_or_else(|| twin.mismatch("link"))
}

/// The port of an endpoint of the lab, which may end with a name.
fn endpoint_port(endpoint: &Endpoint) -> Result<&str> {
    let port = endpoint.address().split_once(':').map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    port.ok_or_else(|| anyhow!("{endpoint} has no port"))
}
