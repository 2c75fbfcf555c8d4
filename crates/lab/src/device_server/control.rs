//! A client that controls the port within its stream (RFC 2217), and restoring the port afterwards.
//!
//! `transport::rfc2217` implements the protocol; this module applies it to the port.

use std::time::Duration;

use super::ServedPort;
use super::client::{PortClient, STALL_TIMEOUT, SessionEnd};
use linkgauge_engine::link::party::CANCEL_CHECK_INTERVAL;
use linkgauge_engine::link::serial_line::{
    ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors,
};
use linkgauge_engine::link::{Fault, Link};
use linkgauge_engine::transport::rfc2217::PortServer;
use linkgauge_model::clock::Time;
use linkgauge_model::run::TOOL;

/// Interval between checks whether a line has sent all its data.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// One session.
pub(crate) struct ControlSession {
    server: PortServer,
    data: Vec<u8>,
    replies: Vec<u8>,
    /// Time of the next check of the port's inputs and errors.
    next_report: Time,
}

impl ControlSession {
    /// Starts a session with the server's offers.
    pub(crate) fn start(
        line: &mut dyn Link,
        client: &PortClient,
        port: &ServedPort,
    ) -> Result<ControlSession, Fault> {
        let mut line = DrainingPort { line, client: None, port };
        let mut server = PortServer::new(line.settings()?, TOOL);
        let mut replies = Vec::new();
        // Errors before the session do not concern this client.
        server.report_line_errors(line.uart_errors().unwrap_or_default(), &mut replies);
        server.write_greeting(&mut replies);
        client.send_control(&replies, port);
        Ok(ControlSession { server, data: Vec::new(), replies, next_report: Time(0) })
    }

    /// Processes bytes from the client: sends replies, executes commands on the port, and passes data for the line to
    /// `write`, in stream order.
    pub(crate) fn process_input(
        &mut self,
        mut bytes: &[u8],
        line: &mut dyn Link,
        client: &PortClient,
        port: &ServedPort,
        mut write: impl FnMut(&mut dyn Link, &[u8]) -> Result<(), SessionEnd>,
    ) -> Result<(), SessionEnd> {
        while !bytes.is_empty() {
            self.data.clear();
            self.replies.clear();
            let mut controlled = DrainingPort { line, client: Some(client), port };
            let taken = self.server.handle_bytes(bytes, &mut self.data, &mut self.replies, &mut controlled);
            let used = taken.inspect_err(|fault| port.mark_lost(fault))?;
            bytes = &bytes[used..];
            client.set_suspended(self.server.is_suspended());
            client.send_control(&self.replies, port);
            write(line, &self.data)?;
        }
        Ok(())
    }

    /// Reports changed inputs and line errors to the client at intervals.
    pub(crate) fn report_changes(
        &mut self,
        now: Time,
        line: &mut dyn Link,
        client: &PortClient,
        port: &ServedPort,
    ) {
        if now < self.next_report {
            return;
        }
        self.next_report = now + CANCEL_CHECK_INTERVAL;
        self.replies.clear();
        let Some(control) = line.port_control() else { return };
        if let Some(modem) = control.modem_lines() {
            self.server.report_modem_lines(modem, &mut self.replies);
        }
        if let Some(errors) = control.uart_errors() {
            self.server.report_line_errors(errors, &mut self.replies);
        }
        client.send_control(&self.replies, port);
    }
}

/// Restores the port's settings and outputs after the line has sent its data.
pub(crate) fn restore_port(line: &mut dyn Link, port: &ServedPort) -> Result<(), Fault> {
    let mut line = DrainingPort { line, client: None, port };
    if line.settings()? != port.configured {
        line.configure(&port.configured)?;
    }
    line.set_signal(OutputSignal::Break, false)?;
    line.set_signal(OutputSignal::Dtr, true)?;
    line.set_signal(OutputSignal::Rts, true)
}

/// A port that sends all written data before each change.
struct DrainingPort<'a> {
    line: &'a mut dyn Link,
    /// The client that makes the change.
    client: Option<&'a PortClient>,
    port: &'a ServedPort,
}

impl DrainingPort<'_> {
    fn port_control(&mut self) -> Result<&mut dyn PortControl, Fault> {
        self.line.port_control().ok_or_else(no_control_fault)
    }

    /// Waits until the driver has sent its data, or is stuck.
    fn drain(&mut self) {
        let clock = &self.port.state.clock;
        let (mut before, mut moved) = (u64::MAX, clock.now());
        while !self.port.is_stopping() && !self.client.is_some_and(PortClient::has_ended) {
            let waiting = self.line.status().unacknowledged_bytes.unwrap_or(0);
            let now = clock.now();
            if waiting < before {
                (before, moved) = (waiting, now);
            }
            if waiting == 0 || now - moved >= STALL_TIMEOUT {
                return;
            }
            clock.sleep_until(now + POLL_INTERVAL);
        }
    }
}

/// Reason why port control cannot be offered on a link.
pub(crate) fn no_control_fault() -> Fault {
    Fault::Unsupported("this port cannot be controlled from here: offer it raw".to_owned())
}

impl PortControl for DrainingPort<'_> {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        self.port_control()?.settings()
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        self.drain();
        self.port_control()?.configure(wanted)
    }

    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        if signal == OutputSignal::Break && on {
            self.drain();
        }
        self.port_control()?.set_signal(signal, on)
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        self.port_control().ok()?.modem_lines()
    }

    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault> {
        if purge != PurgeTarget::ToSend {
            self.port.purge();
        }
        self.port_control()?.purge(purge)
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        self.port_control().ok()?.uart_errors()
    }
}
