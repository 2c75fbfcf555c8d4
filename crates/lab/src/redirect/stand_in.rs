//! A virtual COM port for tests: in front of a device server's port, whose line ends in a loopback plug.

use super::{Redirector, RedirectorOptions};
use crate::device_server::{self, DeviceServer};
use crate::uart::{self, LabUarts};
use crate::{LabError, RunningStandIn, StandIn};
use linkgauge_engine::link::serial_line::{self, FlowControl, SerialSettings};
use linkgauge_model::endpoint::Endpoint;

/// The entry in [`crate::STAND_INS`].
pub(crate) const STAND_IN: StandIn = StandIn {
    summary: "virtual COM port of a device server's port, with a loopback plug",
    start: || Ok(Box::new(ComPortStandIn::start()?)),
};

/// The field order is the drop order: users before the devices they use.
struct ComPortStandIn {
    redirector: Redirector,
    _server: DeviceServer,
    _uarts: LabUarts,
}

impl ComPortStandIn {
    fn start() -> Result<ComPortStandIn, LabError> {
        let uarts = LabUarts::start(&uart::UartOptions::default())?;
        let serial: Result<Vec<_>, _> = uarts
            .paths()
            .iter()
            .map(|path| serial_line::port_endpoint(path, &line_settings(115_200)))
            .collect();
        let listen = "tcp://127.0.0.1:0".parse()?;
        let options = device_server::DeviceServerOptions {
            rfc2217: true,
            ..device_server::DeviceServerOptions::new(listen, serial?)
        };
        let server = DeviceServer::start(&options)?;
        let remote = server.link_endpoints().into_iter().next();
        let remote = remote.ok_or_else(|| LabError::Invalid("a device server without a port".to_owned()))?;
        let redirector = Redirector::start(&RedirectorOptions::new(remote))?;
        Ok(ComPortStandIn { redirector, _server: server, _uarts: uarts })
    }

    fn endpoints_at(&self, baud: u32) -> Vec<Endpoint> {
        serial_line::port_endpoint(self.redirector.path(), &line_settings(baud)).into_iter().collect()
    }
}

fn line_settings(baud: u32) -> SerialSettings {
    SerialSettings { baud, flow_control: FlowControl::RtsCts, ..SerialSettings::default() }
}

impl RunningStandIn for ComPortStandIn {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints_at(4_000_000)
    }

    fn typical_endpoints(&self) -> Vec<Endpoint> {
        self.endpoints_at(115_200)
    }
}
