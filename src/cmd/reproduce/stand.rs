//! What stands in the lab for the cells of a study: pieces in threads of this process, or a process of
//! this program, that stop when they are dropped.

use std::any::Any;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, anyhow, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{self, DeviceServer};
use linkgauge::lab::logger::{self, Device, Logger, content};
use linkgauge::lab::redirect::{self, Redirector};
use linkgauge::lab::shaper::{self, PROFILES, Shaper, usual_queue};
use linkgauge::lab::uart::{self, Uarts};
use linkgauge::link::line::Settings;
use linkgauge::link::shaped::Shape;
use linkgauge::link::{self, Dialer, tty};
use linkgauge::paper::{Cell, Download, Place, PlannedCase};

const LISTEN: &str = "tcp://127.0.0.1:0";
/// What the emulated logger holds: more than any download of a study.
const FILE: &str = "CPU:bench.bin";
const FILE_BYTES: usize = 1_000_000;
/// Requests that it bears at once: more than a real one is known to, so that a window meets the link first.
const QUEUE: usize = 64;

/// In a command: an endpoint of this host of the transport that follows.
const HERE: &str = "here:";

/// Where one can listen and connect on this host over that transport.
fn here(scheme: &str) -> Result<String> {
    let transport = link::TRANSPORTS.iter().find(|transport| transport.scheme == scheme);
    let transport = transport.ok_or_else(|| anyhow!("there is no transport {scheme}"))?;
    let endpoints = (transport.loopback)("/tmp").into_iter();
    endpoints.into_iter().next().ok_or_else(|| anyhow!("{scheme} does not lead from this host to itself"))
}

/// A place of the study in the lab.
pub struct Stand {
    /// Where the links to its ports lead.
    pub endpoints: Vec<Endpoint>,
    /// From the line up: what was started last uses those before, and must go first.
    pieces: Vec<Box<dyn Any>>,
}

impl Drop for Stand {
    fn drop(&mut self) {
        while self.pieces.pop().is_some() {}
    }
}

/// A process that ends when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stand {
    /// Starts what the cell of a case needs.
    pub fn start(cell: &Cell, case: &PlannedCase, dialer: &Dialer, quick: bool) -> Result<Stand> {
        let mut stand = Stand { endpoints: Vec::new(), pieces: Vec::new() };
        match (cell.lab.as_deref(), &case.download) {
            (Some("process"), _) => {
                stand.put_process(cell, &case.place, quick)?;
                cell.shaper.iter().try_for_each(|profile| stand.put_profile(profile, dialer))?;
            }
            (Some("logger"), Some(download)) => stand.put_logger(download, dialer)?,
            (Some(piece), None) => stand.put_line(piece, cell, &case.place)?,
            (lab, _) => bail!("the lab has no {}", lab.unwrap_or("such thing")),
        }
        Ok(stand)
    }

    /// A server in a process of its own, that says where it listens, port by port.
    fn put_process(&mut self, cell: &Cell, place: &Place, quick: bool) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        for word in cell.command(quick) {
            let word =
                word.replace("{ports}", &place.ports.to_string()).replace("{at}", &place.at.to_string());
            command.arg(match word.strip_prefix(HERE) {
                Some(scheme) => here(scheme)?,
                None => word,
            });
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C is for the end that measures; this one is ended when that is through with it.
        let mut process = Process(command.process_group(0).spawn()?);
        let mut said = process.0.stdout.as_mut().map(BufReader::new);
        for _ in 0..place.ports {
            let mut line = String::new();
            said.as_mut().map_or(Ok(0), |said| said.read_line(&mut line))?;
            let (_, url) =
                line.rsplit_once(" on ").ok_or_else(|| anyhow!("the server process did not start"))?;
            let endpoint = cell.on_line(&url.trim().parse()?, place.at).map_err(|what| anyhow!(what))?;
            self.endpoints.push(endpoint);
        }
        self.pieces.push(Box::new(process));
        Ok(())
    }

    /// A link of that profile in front of what is there.
    fn put_profile(&mut self, profile: &str, dialer: &Dialer) -> Result<()> {
        let profile = PROFILES.iter().find(|known| known.name == profile);
        let profile = profile.ok_or_else(|| anyhow!("the shaper has no such profile"))?;
        let shape = |rate| Shape { delay: profile.delay, rate, queue: usual_queue(rate), ..Shape::default() };
        let (up, down) = (shape(profile.rate_up), shape(profile.rate_down));
        for endpoint in &mut self.endpoints {
            let (listen, to) = (endpoint.with_port(0)?, endpoint.clone());
            let options = shaper::Options { listen, to, up: up.clone(), down: down.clone(), seed: 1 };
            let shaper = Shaper::start(&options, dialer)?;
            *endpoint = shaper.endpoint().clone();
            self.pieces.push(Box::new(shaper));
        }
        Ok(())
    }

    /// An emulated logger, behind a shaper where the study had one.
    fn put_logger(&mut self, download: &Download, dialer: &Dialer) -> Result<()> {
        let device = Device {
            files: vec![(FILE.to_owned(), content(1, FILE_BYTES))],
            processing: download.exchange.processing.0,
            queue: QUEUE,
            ..Device::default()
        };
        let logger =
            Logger::start(&logger::Options { listen: vec![LISTEN.parse()?], device, ..Default::default() })?;
        self.endpoints = logger.endpoints().to_vec();
        self.pieces.push(Box::new(logger));
        if let (Some(path), [to]) = (&download.path, self.endpoints.as_slice()) {
            let shape =
                |rate| Shape { delay: path.delay, rate, queue: usual_queue(rate), ..Shape::default() };
            let (up, down) = (shape(path.rate_to), shape(path.rate_from));
            let options = shaper::Options { listen: LISTEN.parse()?, to: to.clone(), up, down, seed: 1 };
            let shaper = Shaper::start(&options, dialer)?;
            self.endpoints = vec![shaper.endpoint().clone()];
            self.pieces.push(Box::new(shaper));
        }
        Ok(())
    }

    /// Serial lines, and what stands before them. A device server leaves the line as it was started with, so each rate has
    /// one of its own.
    fn put_line(&mut self, piece: &str, cell: &Cell, place: &Place) -> Result<()> {
        let listen: Endpoint = LISTEN.parse()?;
        let on_line = |endpoint: &Endpoint| cell.on_line(endpoint, place.at).map_err(|what| anyhow!(what));
        let line = Settings::of(&on_line(&listen)?)?;
        self.put_uarts(place.ports as usize, &line)?;
        match piece {
            "uart" => {}
            "device-server" => {
                self.put_server(listen)?;
                self.endpoints = self.endpoints.iter().map(on_line).collect::<Result<_>>()?;
            }
            "redirect" => {
                self.put_server(listen)?;
                self.put_redirectors(on_line, &line)?;
            }
            other => bail!("the lab has no {other}"),
        }
        Ok(())
    }

    /// Serial ports with a plug in each.
    fn put_uarts(&mut self, ports: usize, line: &Settings) -> Result<()> {
        let uarts = Uarts::start(&uart::Options { ports, ..uart::Options::default() })?;
        let terminals = uarts.paths();
        self.endpoints = terminals.iter().map(|path| tty::endpoint(path, line)).collect::<Result<_, _>>()?;
        self.pieces.push(Box::new(uarts));
        Ok(())
    }

    /// A device server in front of them.
    fn put_server(&mut self, listen: Endpoint) -> Result<()> {
        let serial = std::mem::take(&mut self.endpoints);
        let server = DeviceServer::start(&device_server::Options::new(listen, serial))?;
        self.endpoints = server.endpoints().to_vec();
        self.pieces.push(Box::new(server));
        Ok(())
    }

    /// A virtual COM port in front of each port of the device server.
    fn put_redirectors(
        &mut self,
        on_line: impl Fn(&Endpoint) -> Result<Endpoint>,
        line: &Settings,
    ) -> Result<()> {
        for endpoint in &mut self.endpoints {
            let redirector = Redirector::start(&redirect::Options::new(on_line(endpoint)?))?;
            *endpoint = tty::endpoint(redirector.path(), line)?;
            self.pieces.push(Box::new(redirector));
        }
        Ok(())
    }
}
