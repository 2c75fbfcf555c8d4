//! The side that has the serial port (RFC 2217's access server) as a state machine: bytes in, bytes out.
//!
//! Not for moving the bytes: whoever has the connection and the port does that, and decides who may connect.

use super::super::Fault;
use super::super::line::{self, Errors, Modem, Port, Settings, Signal};
use super::command::{self, ANSWER, code, control};
use super::telnet::{Agreement, Decoder, Event, Negotiation, Verb, option};

/// One client's session.
///
/// What the connection brings goes through [`Server::received`], what the port brings through [`escape`](super::escape); while
/// [`Server::suspended`] the latter has to wait. States and errors of the line are passed on with
/// [`Server::modem_changed`] and [`Server::line_errors`], called whenever the port is looked at. Nobody is made to read
/// answers: stop reading from a client who does not take them. When the session ends, the port's owner sets it back to
/// its defaults.
#[derive(Debug)]
pub struct Server {
    decoder: Decoder,
    session: Session,
}

#[derive(Debug)]
struct Session {
    negotiation: Negotiation,
    signature: String,
    /// As the client knows them: the rate is the one asked for where the granted one is as good.
    settings: Settings,
    dtr: bool,
    rts: bool,
    holds_break: bool,
    line_mask: u8,
    modem_mask: u8,
    modem: Modem,
    /// The inputs as the client heard of them last; none until both know that they speak option 44.
    told: Option<Modem>,
    errors: Errors,
    suspended: bool,
    /// The last character was a CR, after which a terminal sends NUL or LF.
    after_return: bool,
}

/// What a port without inputs is said to have: what a cable of three wires looks like when they are bridged in the
/// plug, so that a client which waits for a ready device goes on.
const WITHOUT_WIRES: Modem = Modem { cts: true, dsr: true, ri: false, cd: true };

/// How a Telnet terminal pads a CR that stands alone.
const NUL: u8 = 0;
const CR: u8 = b'\r';

impl Server {
    /// A session on a port that is set to `settings`. The signature is what clients are told who ask for one.
    pub fn new(settings: Settings, signature: &str) -> Server {
        let session = Session {
            negotiation: Negotiation::default(),
            signature: signature.to_owned(),
            settings,
            dtr: true,
            rts: true,
            holds_break: false,
            line_mask: 0,
            modem_mask: u8::MAX,
            modem: WITHOUT_WIRES,
            told: None,
            errors: Errors::default(),
            suspended: false,
            after_return: false,
        };
        Server { decoder: Decoder::default(), session }
    }

    /// What is said first. A client that knows only terminals can live with it.
    pub fn greeting(&mut self, out: &mut Vec<u8>) {
        let negotiation = &mut self.session.negotiation;
        for option in [option::BINARY, option::SUPPRESS_GO_AHEAD] {
            negotiation.offer(option, out);
            negotiation.ask(option, out);
        }
        negotiation.ask(option::COM_PORT, out);
    }

    /// Takes bytes from the client: appends what is for the line to `data` and what is for the client to `answers`, and
    /// does to the port what was asked for. A port that refuses a value keeps the old one, and the client is told that;
    /// a port that is gone is a fault.
    ///
    /// Returns how many bytes were used. Fewer than were given when a command follows data: what is in `data` belongs
    /// on the line before the port changes. Write it, then call again with the rest.
    pub fn received(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        answers: &mut Vec<u8>,
        port: &mut dyn Port,
    ) -> Result<usize, Fault> {
        let had = data.len();
        let mut rest = bytes;
        while let Some(event) = self.decoder.next(&mut rest) {
            match event {
                Event::Data(bytes) => self.session.take(bytes, data),
                Event::Negotiation(verb, option) => self.session.negotiated(verb, option, answers, port),
                Event::Opened if data.len() > had => break,
                Event::Subnegotiation(option::COM_PORT, said) => {
                    if let Some((&code, value)) = said.split_first() {
                        self.session.command(code, value, answers, port)?;
                    }
                }
                Event::Opened | Event::Subnegotiation(..) => {}
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// The client wants no data for now. Answers to what it asks go on.
    pub fn suspended(&self) -> bool {
        self.session.suspended
    }

    /// Says how the inputs are, if that has changed and the client wants to know.
    pub fn modem_changed(&mut self, now: Modem, out: &mut Vec<u8>) {
        self.session.modem = now;
        self.session.tell_modem(out);
    }

    /// Says what has gone wrong on the line, if there is more of it and the client wants to know. `now` is what the port
    /// counted since it was opened.
    pub fn line_errors(&mut self, now: Errors, out: &mut Vec<u8>) {
        let session = &mut self.session;
        if session.suspended {
            return;
        }
        let state = command::line_state(now, session.errors) & session.line_mask;
        session.errors = now;
        if state != 0 {
            command::write(code::LINE_STATE + ANSWER, &[state], out);
        }
    }
}

impl Session {
    fn take(&mut self, bytes: &[u8], data: &mut Vec<u8>) {
        if self.is_transparent() {
            data.extend_from_slice(bytes);
            return;
        }
        for &byte in bytes {
            if !(self.after_return && byte == NUL) {
                data.push(byte);
            }
            self.after_return = byte == CR;
        }
    }

    fn is_transparent(&self) -> bool {
        self.told.is_some() || self.negotiation.theirs(option::BINARY) == Agreement::Yes
    }

    fn negotiated(&mut self, verb: Verb, option: u8, answers: &mut Vec<u8>, port: &mut dyn Port) {
        self.negotiation.received(verb, option, answers);
        let sides = [self.negotiation.ours(option::COM_PORT), self.negotiation.theirs(option::COM_PORT)];
        if self.told.is_none() && sides.contains(&Agreement::Yes) {
            self.modem = port.modem().unwrap_or(self.modem);
            self.tell_modem_now(answers);
        }
    }

    fn tell_modem(&mut self, out: &mut Vec<u8>) {
        let Some(told) = self.told.filter(|_| !self.suspended) else { return };
        let state = command::modem_state(self.modem, told) & self.modem_mask;
        if told != self.modem {
            self.told = Some(self.modem);
            if state != 0 {
                command::write(code::MODEM_STATE + ANSWER, &[state], out);
            }
        }
    }

    fn tell_modem_now(&mut self, out: &mut Vec<u8>) {
        let state = command::modem_state(self.modem, self.told.unwrap_or(self.modem)) & self.modem_mask;
        self.told = Some(self.modem);
        command::write(code::MODEM_STATE + ANSWER, &[state], out);
    }

    /// Does what a command says and answers it. Commands that nobody knows are not answered.
    fn command(
        &mut self,
        code: u8,
        value: &[u8],
        answers: &mut Vec<u8>,
        port: &mut dyn Port,
    ) -> Result<(), Fault> {
        let first = value.first().copied().unwrap_or(0);
        let now = self.settings;
        let one = match code {
            // Asked for with nothing, or with the zero that one server wants there.
            code::SIGNATURE if value.iter().all(|&byte| byte == 0) => {
                command::write(code + ANSWER, self.signature.as_bytes(), answers);
                return Ok(());
            }
            code::BAUD => {
                let wanted = command::baud_of(value).filter(|&baud| baud > 0);
                self.set(wanted.map(|baud| Settings { baud, ..now }), port)?;
                command::write(code + ANSWER, &self.settings.baud.to_be_bytes(), answers);
                return Ok(());
            }
            code::DATA => {
                let wanted = command::data_of(first);
                self.set(wanted.map(|data_bits| Settings { data_bits, ..now }), port)?;
                self.settings.data_bits
            }
            code::PARITY => {
                let wanted = command::parity_of(first);
                self.set(wanted.map(|parity| Settings { parity, ..now }), port)?;
                command::parity(self.settings.parity)
            }
            code::STOP => {
                let wanted = command::stop_of(first);
                self.set(wanted.map(|stop| Settings { stop, ..now }), port)?;
                command::stop(self.settings.stop)
            }
            code::CONTROL => match self.control(first, port)? {
                Some(state) => state,
                None => return Ok(()),
            },
            code::LINE_STATE => 0,
            code::MODEM_STATE => {
                self.modem = port.modem().unwrap_or(self.modem);
                self.tell_modem_now(answers);
                return Ok(());
            }
            code::SUSPEND | code::RESUME => {
                self.suspended = code == code::SUSPEND;
                self.tell_modem(answers);
                return Ok(());
            }
            code::LINE_STATE_MASK => {
                self.line_mask = first;
                first
            }
            code::MODEM_STATE_MASK => {
                self.modem_mask = first;
                first
            }
            code::PURGE => {
                let Some(purge) = command::purge_of(first) else { return Ok(()) };
                let done = port.purge(purge);
                unless_gone(done, port)?;
                first
            }
            _ => return Ok(()),
        };
        command::write(code + ANSWER, &[one], answers);
        Ok(())
    }

    /// Sets the port, if there is something to set: a driver may disturb the line even where nothing changes.
    fn set(&mut self, wanted: Option<Settings>, port: &mut dyn Port) -> Result<(), Fault> {
        let Some(wanted) = wanted.filter(|wanted| *wanted != self.settings) else { return Ok(()) };
        let granted = port.set(&wanted);
        if let Some(granted) = unless_gone(granted, port)? {
            // Clients want to read the rate they asked for, not the one that a divisor makes of it.
            let is_as_good = line::check_granted(&wanted, &granted).is_ok();
            let baud = if is_as_good { wanted.baud } else { granted.baud };
            self.settings = Settings { baud, ..granted };
        }
        Ok(())
    }

    /// The state after a value of [`code::CONTROL`]; what is received is held up as what is sent is.
    fn control(&mut self, value: u8, port: &mut dyn Port) -> Result<Option<u8>, Fault> {
        if let Some(flow) = command::flow_of(value) {
            self.set(Some(Settings { flow, ..self.settings }), port)?;
        }
        if let Some((signal, wanted)) = command::signal_of(value) {
            return self.signal(signal, wanted, port).map(Some);
        }
        let flow = self.settings.flow;
        Ok(match value {
            control::ASK_FLOW..=3 | control::BY_DCD | control::BY_DSR => Some(command::flow(flow)),
            control::ASK_INBOUND_FLOW..=16 | control::BY_DTR => Some(command::inbound_flow(flow)),
            _ => None,
        })
    }

    fn signal(&mut self, signal: Signal, wanted: Option<bool>, port: &mut dyn Port) -> Result<u8, Fault> {
        let state = match signal {
            Signal::Dtr => &mut self.dtr,
            Signal::Rts => &mut self.rts,
            Signal::Break => &mut self.holds_break,
        };
        if let Some(on) = wanted {
            let done = port.signal(signal, on);
            if unless_gone(done, port)?.is_some() {
                *state = on;
            }
        }
        Ok(command::signal(signal, *state))
    }
}

/// What was done, or nothing where the port refused; a port that cannot even say how it is set is gone.
fn unless_gone<T>(done: Result<T, Fault>, port: &mut dyn Port) -> Result<Option<T>, Fault> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(_) => port.settings().map(|_| None),
    }
}

#[cfg(test)]
mod tests;
