//! What stands in the lab for the cells of a study: pieces in threads of this process, that stop when they are dropped.

use std::any::Any;

use anyhow::{Result, anyhow, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{self, DeviceServer};
use linkgauge::lab::redirect::{self, Redirector};
use linkgauge::lab::uart::{self, Uarts};
use linkgauge::link::line::Settings;
use linkgauge::link::tty;
use linkgauge::paper::{Cell, Place};

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

impl Stand {
    /// Starts what the cell needs. A device server leaves the line as it was started with, so each rate has one of its
    /// own.
    pub fn start(cell: &Cell, place: &Place) -> Result<Stand> {
        let listen: Endpoint = "tcp://127.0.0.1:0".parse()?;
        let on_line = |endpoint: &Endpoint| cell.on_line(endpoint, place.at).map_err(|what| anyhow!(what));
        let line = Settings::of(&on_line(&listen)?)?;
        let mut stand = Stand { endpoints: Vec::new(), pieces: Vec::new() };
        stand.put_uarts(place.ports as usize, &line)?;
        match cell.lab.as_deref() {
            Some("uart") => {}
            Some("device-server") => {
                stand.put_server(listen)?;
                stand.endpoints = stand.endpoints.iter().map(on_line).collect::<Result<_>>()?;
            }
            Some("redirect") => {
                stand.put_server(listen)?;
                stand.put_redirectors(on_line, &line)?;
            }
            other => bail!("the lab has no {}", other.unwrap_or("such thing")),
        }
        Ok(stand)
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
