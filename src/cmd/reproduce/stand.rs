//! What stands in the lab for the cells of a study: pieces in threads of this process, that stop when they are dropped.

use std::any::Any;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::device_server::{self, DeviceServer};
use linkgauge::lab::uart::{self, Uarts};
use linkgauge::link::tty;
use linkgauge::paper::{Cell, Place};

/// Pieces of the lab that run until they are dropped, from the line up.
type Pieces = Vec<Box<dyn Any>>;

/// A place of the study in the lab.
pub struct Stand {
    /// Where the links to its ports lead.
    pub endpoints: Vec<Endpoint>,
    /// The last one started is in front of the others, and must go first.
    pieces: Pieces,
}

impl Drop for Stand {
    fn drop(&mut self) {
        while self.pieces.pop().is_some() {}
    }
}

impl Stand {
    /// Starts what the cell needs. A device server leaves the rate of a line as it was started with, so it is started
    /// for each rate anew.
    pub fn start(cell: &Cell, place: &Place) -> Result<Stand> {
        let uarts = Uarts::start(&uart::Options { ports: place.ports as usize, ..uart::Options::default() })?;
        let ports: Result<Vec<Endpoint>> = uarts.paths().iter().map(|path| terminal(path)).collect();
        let mut stand = Stand { endpoints: ports?, pieces: vec![Box::new(uarts)] };
        match cell.lab.as_deref() {
            Some("uart") => {}
            Some("device-server") => stand.put_server(cell, place)?,
            other => bail!("the lab has no {}", other.unwrap_or("such thing")),
        }
        stand.endpoints = stand.on_lines(cell, place)?;
        Ok(stand)
    }

    fn on_lines(&self, cell: &Cell, place: &Place) -> Result<Vec<Endpoint>> {
        let on_line = |endpoint| cell.on_line(endpoint, place.at).map_err(|what| anyhow!(what));
        self.endpoints.iter().map(on_line).collect()
    }

    /// A device server in front of the serial ports.
    fn put_server(&mut self, cell: &Cell, place: &Place) -> Result<()> {
        let serial = self.on_lines(cell, place)?;
        let server = DeviceServer::start(&device_server::Options::new("tcp://127.0.0.1:0".parse()?, serial))?;
        self.endpoints = server.endpoints().to_vec();
        self.pieces.push(Box::new(server));
        Ok(())
    }
}

fn terminal(path: &Path) -> Result<Endpoint> {
    Ok(tty::endpoint_with(path, "")?)
}
