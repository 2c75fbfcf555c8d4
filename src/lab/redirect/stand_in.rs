//! A virtual COM port to try things on: in front of a device server's port, whose line ends in a loop-back plug.

use super::{Options, Redirector};
use crate::endpoint::Endpoint;
use crate::lab::device_server::{self, DeviceServer};
use crate::lab::uart::{self, Uarts};
use crate::lab::{LabError, StandIn, Standing};
use crate::link::line::{Flow, Settings};
use crate::link::tty;

pub const STAND_IN: StandIn = StandIn {
    summary: "virtual COM port of a device server's port, with a loop-back plug",
    start: || Ok(Box::new(ComPort::start()?)),
};

/// Who uses a piece goes before it.
struct ComPort {
    redirector: Redirector,
    _server: DeviceServer,
    _uarts: Uarts,
}

impl ComPort {
    fn start() -> Result<ComPort, LabError> {
        let refused = |error: crate::endpoint::EndpointError| LabError(error.to_string());
        let uarts = Uarts::start(&uart::Options::default())?;
        let serial: Result<Vec<_>, _> =
            uarts.paths().iter().map(|path| tty::endpoint(path, &line(115_200))).collect();
        let listen = "tcp://127.0.0.1:0".parse().map_err(refused)?;
        let options = device_server::Options {
            rfc2217: true,
            ..device_server::Options::new(listen, serial.map_err(refused)?)
        };
        let server = DeviceServer::start(&options)?;
        let remote = server.links().into_iter().next();
        let remote = remote.ok_or_else(|| LabError("a device server without a port".to_owned()))?;
        let redirector = Redirector::start(&Options::new(remote))?;
        Ok(ComPort { redirector, _server: server, _uarts: uarts })
    }

    fn at(&self, baud: u32) -> Vec<Endpoint> {
        tty::endpoint(self.redirector.path(), &line(baud)).into_iter().collect()
    }
}

fn line(baud: u32) -> Settings {
    Settings { baud, flow: Flow::RtsCts, ..Settings::default() }
}

impl Standing for ComPort {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.at(4_000_000)
    }

    fn typical(&self) -> Vec<Endpoint> {
        self.at(115_200)
    }
}
