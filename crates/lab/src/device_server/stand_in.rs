//! Device servers on lab UARTs with a loopback plug each, for tests and the demo.

use super::super::uart::{self, LabUarts};
use super::super::{LabError, RunningStandIn, StandIn};
use super::{DeviceServer, DeviceServerOptions};
use linkgauge_engine::link::serial_line::{self, FlowControl, SerialSettings};
use linkgauge_engine::transport::rfc2217;
use linkgauge_model::endpoint::Endpoint;

/// Raw ports and one port with control.
pub(crate) const STAND_IN: StandIn = StandIn {
    summary: "serial ports of a device server, with a loopback plug",
    start: || Ok(Box::new(DeviceServerStandIn::start()?)),
};

/// A rate that keeps tests short, and a typical one.
const TEST_BAUD: u32 = 4_000_000;
const TYPICAL_BAUD: u32 = 115_200;

/// The field order is the drop order: servers before their ports.
struct DeviceServerStandIn {
    raw: DeviceServer,
    controlled: DeviceServer,
    _uarts: LabUarts,
}

impl DeviceServerStandIn {
    fn start() -> Result<DeviceServerStandIn, LabError> {
        let uarts = LabUarts::start(&uart::UartOptions { ports: 3, ..uart::UartOptions::default() })?;
        let listen: Endpoint = "tcp://127.0.0.1:0".parse()?;
        let lines = [TEST_BAUD, TYPICAL_BAUD, TYPICAL_BAUD].map(line_settings);
        let ports = uarts.paths().into_iter().zip(&lines);
        let serial =
            ports.map(|(path, line)| serial_line::port_endpoint(&path, line)).collect::<Result<Vec<_>, _>>();
        let mut serial = serial?;
        let controlled = DeviceServerOptions {
            rfc2217: true,
            ..DeviceServerOptions::new(listen.clone(), serial.split_off(2))
        };
        Ok(DeviceServerStandIn {
            raw: DeviceServer::start(&DeviceServerOptions::new(listen, serial))?,
            controlled: DeviceServer::start(&controlled)?,
            _uarts: uarts,
        })
    }

    /// A raw port, and the controlled one at a rate.
    fn endpoints_at(&self, raw: usize, rate: u32) -> Vec<Endpoint> {
        let raw = self.raw.link_endpoints().into_iter().nth(raw);
        let controlled = rfc2217::client_endpoint(&self.controlled.endpoints()[0], &line_settings(rate)).ok();
        raw.into_iter().chain(controlled).collect()
    }
}

fn line_settings(baud: u32) -> SerialSettings {
    SerialSettings { baud, flow_control: FlowControl::RtsCts, ..SerialSettings::default() }
}

impl RunningStandIn for DeviceServerStandIn {
    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints_at(0, TEST_BAUD)
    }

    fn typical_endpoints(&self) -> Vec<Endpoint> {
        self.endpoints_at(1, TYPICAL_BAUD)
    }
}
