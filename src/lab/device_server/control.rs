//! A client that controls the port in its stream (RFC 2217), and what becomes of the port when it has gone.
//!
//! What the words mean is the business of `link::rfc2217`; here they meet the port.

use std::time::Duration;

use super::SerialPort;
use super::client::{Client, PATIENCE};
use crate::clock::Time;
use crate::link::line::{Errors, Modem, Port, Purge, Settings, Signal};
use crate::link::party::SLICE;
use crate::link::rfc2217::Server;
use crate::link::{Fault, Link};
use crate::run::TOOL;

/// How often it is looked whether a line has taken all it was given.
const LOOK: Duration = Duration::from_millis(1);

/// One session.
pub struct Control {
    server: Server,
    data: Vec<u8>,
    answers: Vec<u8>,
    /// When to look at the inputs and the errors of the port again.
    look: Time,
}

impl Control {
    /// Begins a session: greets.
    pub fn begin(line: &mut dyn Link, client: &Client, port: &SerialPort) -> Result<Control, Fault> {
        let mut line = Line { line, client: None, port };
        let mut server = Server::new(line.settings()?, TOOL);
        let mut answers = Vec::new();
        // What went wrong before is no business of this client.
        server.line_errors(line.errors().unwrap_or_default(), &mut answers);
        server.greeting(&mut answers);
        client.answer(&answers, port);
        Ok(Control { server, data: Vec::new(), answers, look: Time(0) })
    }

    /// Takes bytes from the client: answers, does to the port what is asked for, and has `write` put what is for the
    /// line there, in the order of the stream.
    pub fn take(
        &mut self,
        mut bytes: &[u8],
        line: &mut dyn Link,
        client: &Client,
        port: &SerialPort,
        mut write: impl FnMut(&mut dyn Link, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            self.data.clear();
            self.answers.clear();
            let mut controlled = Line { line, client: Some(client), port };
            let taken = self.server.received(bytes, &mut self.data, &mut self.answers, &mut controlled);
            let used = taken.map_err(|fault| {
                port.lose(&fault);
                fault.to_string()
            })?;
            bytes = &bytes[used..];
            client.suspend(self.server.suspended());
            client.answer(&self.answers, port);
            write(line, &self.data)?;
        }
        Ok(())
    }

    /// Tells the client how the inputs of the port are and what went wrong on the line, now and then.
    pub fn look(&mut self, now: Time, line: &mut dyn Link, client: &Client, port: &SerialPort) {
        if now < self.look {
            return;
        }
        self.look = now + SLICE;
        self.answers.clear();
        let Some(control) = line.port() else { return };
        if let Some(modem) = control.modem() {
            self.server.modem_changed(modem, &mut self.answers);
        }
        if let Some(errors) = control.errors() {
            self.server.line_errors(errors, &mut self.answers);
        }
        client.answer(&self.answers, port);
    }
}

/// Gives a port back its settings and its outputs, once the line has taken what it was given.
pub fn restore(line: &mut dyn Link, port: &SerialPort) -> Result<(), Fault> {
    let mut line = Line { line, client: None, port };
    if line.settings()? != port.configured {
        line.set(&port.configured)?;
    }
    line.signal(Signal::Break, false)?;
    line.signal(Signal::Dtr, true)?;
    line.signal(Signal::Rts, true)
}

/// A port whose changes wait for what was written before them.
struct Line<'a> {
    line: &'a mut dyn Link,
    /// For whom it is changed.
    client: Option<&'a Client>,
    port: &'a SerialPort,
}

impl Line<'_> {
    fn control(&mut self) -> Result<&mut dyn Port, Fault> {
        self.line.port().ok_or_else(no_control)
    }

    /// Waits until the driver has sent all it was given, or sends nothing for too long.
    fn drain(&mut self) {
        let clock = &self.port.common.clock;
        let (mut before, mut moved) = (u64::MAX, clock.now());
        while !self.port.is_over() && !self.client.is_some_and(Client::has_ended) {
            let waiting = self.line.unacknowledged().unwrap_or(0);
            let now = clock.now();
            if waiting < before {
                (before, moved) = (waiting, now);
            }
            if waiting == 0 || now - moved >= PATIENCE {
                return;
            }
            clock.sleep_until(now + LOOK);
        }
    }
}

/// Why a link cannot be offered with control of the port.
pub fn no_control() -> Fault {
    Fault::Other("this port cannot be controlled from here: offer it raw".to_owned())
}

impl Port for Line<'_> {
    fn settings(&mut self) -> Result<Settings, Fault> {
        self.control()?.settings()
    }

    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault> {
        self.drain();
        self.control()?.set(wanted)
    }

    fn signal(&mut self, signal: Signal, on: bool) -> Result<(), Fault> {
        if signal == Signal::Break && on {
            self.drain();
        }
        self.control()?.signal(signal, on)
    }

    fn modem(&mut self) -> Option<Modem> {
        self.control().ok()?.modem()
    }

    fn purge(&mut self, purge: Purge) -> Result<(), Fault> {
        if purge != Purge::ToSend {
            self.port.purge();
        }
        self.control()?.purge(purge)
    }

    fn errors(&mut self) -> Option<Errors> {
        self.control().ok()?.errors()
    }
}
