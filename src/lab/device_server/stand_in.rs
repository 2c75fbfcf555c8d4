//! Device servers on lab UARTs with a plug in each, for tests and the demo.

use super::super::uart::{self, Uarts};
use super::super::{LabError, StandIn, Standing};
use super::{DeviceServer, Options, link};
use crate::endpoint::{Endpoint, EndpointError};
use crate::link::line::{Flow, Settings};
use crate::link::tty;

/// Raw ports and one that clients control.
pub const STAND_IN: StandIn = StandIn {
    summary: "serial ports of a device server, with a loop-back plug",
    start: || Ok(Box::new(Boxes::start()?)),
};

/// A rate at which tests need not wait, and one that people meet.
const FAST: u32 = 4_000_000;
const USUAL: u32 = 115_200;

/// The servers go before the ports that they use.
struct Boxes {
    raw: DeviceServer,
    controlled: DeviceServer,
    _uarts: Uarts,
}

impl Boxes {
    fn start() -> Result<Boxes, LabError> {
        let uarts = Uarts::start(&uart::Options { ports: 3, ..uart::Options::default() })?;
        let listen: Endpoint = "tcp://127.0.0.1:0".parse().map_err(refused)?;
        let lines = [FAST, USUAL, USUAL].map(line);
        let ports = uarts.paths().into_iter().zip(&lines);
        let serial = ports.map(|(path, line)| tty::endpoint(&path, line)).collect::<Result<Vec<_>, _>>();
        let mut serial = serial.map_err(refused)?;
        let controlled = Options { rfc2217: true, ..Options::new(listen.clone(), serial.split_off(2)) };
        Ok(Boxes {
            raw: DeviceServer::start(&Options::new(listen, serial))?,
            controlled: DeviceServer::start(&controlled)?,
            _uarts: uarts,
        })
    }

    /// A raw port, and the controlled one set to a rate.
    fn links(&self, raw: usize, rate: u32) -> Vec<Endpoint> {
        let raw = self.raw.links().into_iter().nth(raw);
        let controlled = link(&self.controlled.endpoints()[0], true, &line(rate));
        raw.into_iter().chain(controlled).collect()
    }
}

fn refused(error: EndpointError) -> LabError {
    LabError(error.to_string())
}

fn line(baud: u32) -> Settings {
    Settings { baud, flow: Flow::RtsCts, ..Settings::default() }
}

impl Standing for Boxes {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.links(0, FAST)
    }

    fn typical(&self) -> Vec<Endpoint> {
        self.links(1, USUAL)
    }
}
