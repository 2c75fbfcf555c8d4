//! What stands in the lab for the cells of a study: pieces in threads of this process, or a process of
//! this program, that stop when they are dropped.

use std::any::Any;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
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
use linkgauge::link::shaped::{Often, Shape};
use linkgauge::link::{self, Dialer, tty};
use linkgauge::paper::{Cell, Download, Path, Place, PlannedCase};
use linkgauge::report::printable;

use super::super::UNTIL_INPUT_ENDS;

const LISTEN: &str = "tcp://127.0.0.1:0";
/// What the emulated logger holds: more than any download of a study.
const FILE: &str = "CPU:bench.bin";
const FILE_BYTES: usize = 1_000_000;
/// Requests that it bears at once: more than a real one is known to, so that a window meets the link first.
const QUEUE: usize = 64;

/// Of what a process says when it cannot start.
const MOST_WORDS: u64 = 4096;

/// In a command: an endpoint of this host of the transport that follows.
const HERE: &str = "here:";

/// A word of a command as it is given to the process.
fn typed(word: &str, place: &Place) -> Result<String> {
    if let Some(scheme) = word.strip_prefix(HERE) {
        return here(scheme);
    }
    // So that the names of two runs at once differ.
    let id = std::process::id().to_string();
    let values = [("{id}", id), ("{ports}", place.ports.to_string()), ("{at}", place.at.to_string())];
    Ok(values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value)))
}

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

impl Process {
    /// Why it did not start, in its own words.
    fn why_not(&mut self) -> String {
        // It has ended already, or has said what nobody expects.
        let _ = self.0.kill();
        let mut words = String::new();
        let _ = self.0.stderr.take().map(|stderr| stderr.take(MOST_WORDS).read_to_string(&mut words));
        format!("the server process did not start: {}", printable(words.lines().last().unwrap_or_default()))
    }
}

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
                stand.put_shaper(case.link.as_ref(), dialer)?;
                cell.shaper.iter().try_for_each(|profile| stand.put_profile(profile, dialer))?;
            }
            (Some("logger"), Some(download)) => {
                stand.put_logger(download)?;
                stand.put_shaper(download.path.as_ref(), dialer)?;
            }
            (Some(piece), None) => stand.put_line(piece, cell, &case.place)?,
            (lab, _) => bail!("the lab has no {}", lab.unwrap_or("such thing")),
        }
        Ok(stand)
    }

    /// A server in a process of its own, that says where it listens, port by port.
    fn put_process(&mut self, cell: &Cell, place: &Place, quick: bool) -> Result<()> {
        let program = std::env::current_exe()?;
        let mut under = cell.under.split_whitespace().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(under.next().unwrap_or_default());
        let words: Result<Vec<String>> = cell.command(quick).map(|word| typed(word, place)).collect();
        command.args(under).args(words?);
        // Ctrl-C is for the end that measures; this one is ended when that is through with it, or ends itself when that is
        // gone and nobody holds the other end of its input.
        command.arg(UNTIL_INPUT_ENDS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(command.process_group(0).spawn()?);
        let mut said = process.0.stdout.as_mut().map(BufReader::new);
        for _ in 0..place.ports {
            let mut line = String::new();
            said.as_mut().map_or(Ok(0), |said| said.read_line(&mut line))?;
            let Some((_, url)) = line.rsplit_once(" on ") else { bail!("{}", process.why_not()) };
            let endpoint = cell.near.clone().map_or_else(|| url.trim().parse(), Ok)?;
            self.endpoints.push(cell.on_line(&endpoint, place.at).map_err(|what| anyhow!(what))?);
        }
        self.pieces.push(Box::new(process));
        Ok(())
    }

    /// A link of that profile in front of what is there.
    fn put_profile(&mut self, profile: &str, dialer: &Dialer) -> Result<()> {
        let profile = PROFILES.iter().find(|known| known.name == profile);
        let profile = profile.ok_or_else(|| anyhow!("the shaper has no such profile"))?;
        for endpoint in &mut self.endpoints {
            let (listen, to) = (endpoint.with_port(0)?, endpoint.clone());
            // A stream loses nothing.
            let loss = if shaper::carries_stream(&to)? { Often::Never } else { profile.shape.loss };
            let shape = |rate| Shape { rate, queue: usual_queue(rate), loss, ..profile.shape.clone() };
            let (up, down) = (shape(profile.rate_up), shape(profile.rate_down));
            let options = shaper::Options { listen, to, up, down, seed: 1, log: None };
            let shaper = Shaper::start(&options, dialer)?;
            *endpoint = shaper.endpoint().clone();
            self.pieces.push(Box::new(shaper));
        }
        Ok(())
    }

    /// An emulated logger.
    fn put_logger(&mut self, download: &Download) -> Result<()> {
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
        Ok(())
    }

    /// A link of such rates and delay before what stands there, if it has one. What goes over a stream is shaped as its
    /// bytes.
    fn put_shaper(&mut self, path: Option<&Path>, dialer: &Dialer) -> Result<()> {
        let (Some(path), [at]) = (path, self.endpoints.as_slice()) else { return Ok(()) };
        let shape = |rate| Shape { delay: path.delay, rate, queue: usual_queue(rate), ..Shape::default() };
        let (up, down) = (shape(path.rate_to), shape(path.rate_from));
        let listen: Endpoint = LISTEN.parse()?;
        let port = port(at)?;
        let to = listen.with_port(port.parse()?)?;
        let shaper = Shaper::start(&shaper::Options { listen, to, up, down, seed: 1, log: None }, dialer)?;
        let [of_it, of_shaper] = [port, self::port(shaper.endpoint())?].map(|port| format!(":{port}"));
        self.endpoints = vec![at.as_str().replacen(&of_it, &of_shaper, 1).parse()?];
        self.pieces.push(Box::new(shaper));
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

/// Of what the lab listens on: 127.0.0.1:PORT, and perhaps a name behind it.
fn port(endpoint: &Endpoint) -> Result<&str> {
    let port = endpoint.place().split_once(':').map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    port.ok_or_else(|| anyhow!("{endpoint} has no port"))
}
