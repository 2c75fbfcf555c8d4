//! The server side (RFC 2217's access server) as a state machine: bytes in, bytes out.
//!
//! The owner of the connection and the port moves the bytes, and decides who may connect.

use super::command::{self, REPLY_OFFSET, code, control};
use super::telnet::{OptionAgreement, OptionNegotiation, TelnetDecoder, TelnetEvent, TelnetVerb, option};
use crate::link::Fault;
use crate::link::serial_line::{self, ModemLines, OutputSignal, PortControl, SerialSettings, UartErrors};

/// One client's session.
///
/// Pass bytes of the connection through [`PortServer::handle_bytes`] and bytes of the port through
/// `escape`; hold the latter back while `PortServer::is_suspended`. Report states and
/// errors of the line with `PortServer::report_modem_lines` and `PortServer::report_line_errors` whenever
/// the port is checked. Replies have no limit of their own: stop reading from a client that does not receive
/// them. When the session ends, reset the port to its defaults.
#[derive(Debug)]
pub struct PortServer {
    decoder: TelnetDecoder,
    session: PortSession,
}

#[derive(Debug)]
struct PortSession {
    negotiation: OptionNegotiation,
    signature: String,
    /// Settings as reported to the client: the requested rate, if the effective one is close enough.
    settings: SerialSettings,
    dtr: bool,
    rts: bool,
    is_break_held: bool,
    line_mask: u8,
    modem_mask: u8,
    modem_lines: ModemLines,
    /// The last reported inputs; `None` until both sides have agreed on option 44.
    reported_modem_lines: Option<ModemLines>,
    reported_errors: UartErrors,
    is_suspended: bool,
    /// The last character was a CR, after which a terminal sends NUL or LF.
    is_after_cr: bool,
}

/// Modem lines reported for a port without inputs: the state of a three-wire cable with bridged inputs, so that a client that
/// waits for a ready device continues.
const DEFAULT_MODEM_LINES: ModemLines = ModemLines { cts: true, dsr: true, ri: false, cd: true };

/// A Telnet terminal appends NUL to a lone CR.
const NUL: u8 = 0;
const CR: u8 = b'\r';

impl PortServer {
    /// A session on a port with these `settings`. Clients can query the signature.
    pub fn new(settings: SerialSettings, signature: &str) -> PortServer {
        let session = PortSession {
            negotiation: OptionNegotiation::default(),
            signature: signature.to_owned(),
            settings,
            dtr: true,
            rts: true,
            is_break_held: false,
            line_mask: 0,
            modem_mask: u8::MAX,
            modem_lines: DEFAULT_MODEM_LINES,
            reported_modem_lines: None,
            reported_errors: UartErrors::default(),
            is_suspended: false,
            is_after_cr: false,
        };
        PortServer { decoder: TelnetDecoder::default(), session }
    }

    /// Writes the greeting. Clients that are plain terminals accept it.
    pub fn write_greeting(&mut self, out: &mut Vec<u8>) {
        let negotiation = &mut self.session.negotiation;
        for option in [option::BINARY, option::SUPPRESS_GO_AHEAD] {
            negotiation.offer(option, out);
            negotiation.request(option, out);
        }
        negotiation.request(option::COM_PORT, out);
    }

    /// Handles bytes from the client: appends data for the line to `data` and replies for the client to
    /// `replies`, and applies commands to the port. If the port refuses a value, it keeps the old one and the
    /// client receives that.
    ///
    /// Returns the number of bytes used. It is less than the length of `bytes` if a command follows data: the
    /// data must be sent on the line before the port changes. Write it, then call again with the rest.
    ///
    /// # Errors
    ///
    /// Fails if the port has disappeared.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        replies: &mut Vec<u8>,
        port: &mut dyn PortControl,
    ) -> Result<usize, Fault> {
        let had = data.len();
        let mut rest = bytes;
        while let Some(event) = self.decoder.next_event(&mut rest) {
            match event {
                TelnetEvent::Data(bytes) => self.session.unpad_data(bytes, data),
                TelnetEvent::Negotiation(verb, option) => {
                    self.session.handle_negotiation(verb, option, replies, port)
                }
                TelnetEvent::SubnegotiationStart if data.len() > had => break,
                TelnetEvent::Subnegotiation(option::COM_PORT, payload) => {
                    if let Some((&code, value)) = payload.split_first() {
                        self.session.handle_command(code, value, replies, port)?;
                    }
                }
                TelnetEvent::SubnegotiationStart | TelnetEvent::Subnegotiation(..) => {}
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// The client wants no data for now. Replies to its commands continue.
    pub fn is_suspended(&self) -> bool {
        self.session.is_suspended
    }

    /// Reports the inputs, if they have changed and the client wants this.
    pub fn report_modem_lines(&mut self, now: ModemLines, out: &mut Vec<u8>) {
        self.session.modem_lines = now;
        self.session.report_modem_changes(out);
    }

    /// Reports line errors, if there are new ones and the client wants this. `now` holds the port's counts
    /// since it was opened.
    pub fn report_line_errors(&mut self, now: UartErrors, out: &mut Vec<u8>) {
        let session = &mut self.session;
        if session.is_suspended {
            return;
        }
        let state = command::encode_line_state(now, session.reported_errors) & session.line_mask;
        session.reported_errors = now;
        if state != 0 {
            command::write_command(code::LINE_STATE + REPLY_OFFSET, &[state], out);
        }
    }
}

impl PortSession {
    fn unpad_data(&mut self, bytes: &[u8], data: &mut Vec<u8>) {
        if self.is_transparent() {
            data.extend_from_slice(bytes);
            return;
        }
        for &byte in bytes {
            if !(self.is_after_cr && byte == NUL) {
                data.push(byte);
            }
            self.is_after_cr = byte == CR;
        }
    }

    fn is_transparent(&self) -> bool {
        self.reported_modem_lines.is_some() || self.negotiation.remote(option::BINARY) == OptionAgreement::Yes
    }

    fn handle_negotiation(
        &mut self,
        verb: TelnetVerb,
        option: u8,
        replies: &mut Vec<u8>,
        port: &mut dyn PortControl,
    ) {
        self.negotiation.handle(verb, option, replies);
        let sides = [self.negotiation.local(option::COM_PORT), self.negotiation.remote(option::COM_PORT)];
        if self.reported_modem_lines.is_none() && sides.contains(&OptionAgreement::Yes) {
            self.modem_lines = port.modem_lines().unwrap_or(self.modem_lines);
            self.report_modem_state(replies);
        }
    }

    fn report_modem_changes(&mut self, out: &mut Vec<u8>) {
        let Some(reported) = self.reported_modem_lines.filter(|_| !self.is_suspended) else { return };
        let state = command::encode_modem_state(self.modem_lines, reported) & self.modem_mask;
        if reported != self.modem_lines {
            self.reported_modem_lines = Some(self.modem_lines);
            if state != 0 {
                command::write_command(code::MODEM_STATE + REPLY_OFFSET, &[state], out);
            }
        }
    }

    fn report_modem_state(&mut self, out: &mut Vec<u8>) {
        let state = command::encode_modem_state(
            self.modem_lines,
            self.reported_modem_lines.unwrap_or(self.modem_lines),
        ) & self.modem_mask;
        self.reported_modem_lines = Some(self.modem_lines);
        command::write_command(code::MODEM_STATE + REPLY_OFFSET, &[state], out);
    }

    /// Executes a command and replies to it. Unknown commands get no reply.
    fn handle_command(
        &mut self,
        code: u8,
        value: &[u8],
        replies: &mut Vec<u8>,
        port: &mut dyn PortControl,
    ) -> Result<(), Fault> {
        let first = value.first().copied().unwrap_or(0);
        let one = match code {
            // A query is empty, or a zero from one server.
            code::SIGNATURE if value.iter().all(|&byte| byte == 0) => {
                command::write_command(code + REPLY_OFFSET, self.signature.as_bytes(), replies);
                return Ok(());
            }
            code::BAUD => {
                let wanted = command::decode_baud(value).filter(|&baud| baud > 0);
                let settings = wanted.map(|baud| SerialSettings { baud, ..self.settings });
                self.apply_settings(settings, port)?;
                command::write_command(code + REPLY_OFFSET, &self.settings.baud.to_be_bytes(), replies);
                return Ok(());
            }
            code::DATA | code::PARITY | code::STOP => self.handle_framing(code, first, port)?,
            code::CONTROL => match self.handle_control(first, port)? {
                Some(state) => state,
                None => return Ok(()),
            },
            code::LINE_STATE => 0,
            code::MODEM_STATE => {
                self.modem_lines = port.modem_lines().unwrap_or(self.modem_lines);
                self.report_modem_state(replies);
                return Ok(());
            }
            code::SUSPEND | code::RESUME => {
                self.is_suspended = code == code::SUSPEND;
                self.report_modem_changes(replies);
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
                let Some(purge) = command::decode_purge(first) else { return Ok(()) };
                let done = port.purge(purge);
                ignore_refusal(done, port)?;
                first
            }
            _ => return Ok(()),
        };
        command::write_command(code + REPLY_OFFSET, &[one], replies);
        Ok(())
    }

    /// Sets data bits, parity or stop bits; returns the effective value.
    fn handle_framing(&mut self, code: u8, value: u8, port: &mut dyn PortControl) -> Result<u8, Fault> {
        let now = self.settings;
        let wanted = match code {
            code::DATA => {
                command::decode_data_bits(value).map(|data_bits| SerialSettings { data_bits, ..now })
            }
            code::PARITY => command::decode_parity(value).map(|parity| SerialSettings { parity, ..now }),
            _ => command::decode_stop_bits(value).map(|stop_bits| SerialSettings { stop_bits, ..now }),
        };
        self.apply_settings(wanted, port)?;
        Ok(match code {
            code::DATA => self.settings.data_bits,
            code::PARITY => command::encode_parity(self.settings.parity),
            _ => command::encode_stop_bits(self.settings.stop_bits),
        })
    }

    /// Configures the port only if a setting changes: a driver may disturb the line even without a change.
    fn apply_settings(
        &mut self,
        wanted: Option<SerialSettings>,
        port: &mut dyn PortControl,
    ) -> Result<(), Fault> {
        let Some(wanted) = wanted.filter(|wanted| *wanted != self.settings) else { return Ok(()) };
        let granted = port.configure(&wanted);
        if let Some(granted) = ignore_refusal(granted, port)? {
            // Clients expect the rate that they requested, not the effective one of the divisor.
            let is_as_good = serial_line::check_granted(&wanted, &granted).is_ok();
            let baud = if is_as_good { wanted.baud } else { granted.baud };
            self.settings = SerialSettings { baud, ..granted };
        }
        Ok(())
    }

    /// The state after a value of [`code::CONTROL`]. Flow control of received data follows that of sent data.
    fn handle_control(&mut self, value: u8, port: &mut dyn PortControl) -> Result<Option<u8>, Fault> {
        if let Some(flow) = command::decode_flow_control(value) {
            self.apply_settings(Some(SerialSettings { flow_control: flow, ..self.settings }), port)?;
        }
        if let Some((signal, wanted)) = command::decode_signal(value) {
            return self.handle_signal(signal, wanted, port).map(Some);
        }
        let flow = self.settings.flow_control;
        Ok(match value {
            control::QUERY_FLOW_CONTROL..=3 | control::BY_DCD | control::BY_DSR => {
                Some(command::encode_flow_control(flow))
            }
            control::QUERY_INBOUND_FLOW_CONTROL..=16 | control::BY_DTR => {
                Some(command::encode_inbound_flow_control(flow))
            }
            _ => None,
        })
    }

    fn handle_signal(
        &mut self,
        signal: OutputSignal,
        wanted: Option<bool>,
        port: &mut dyn PortControl,
    ) -> Result<u8, Fault> {
        let state = match signal {
            OutputSignal::Dtr => &mut self.dtr,
            OutputSignal::Rts => &mut self.rts,
            OutputSignal::Break => &mut self.is_break_held,
        };
        if let Some(on) = wanted {
            let done = port.set_signal(signal, on);
            if ignore_refusal(done, port)?.is_some() {
                *state = on;
            }
        }
        Ok(command::encode_signal(signal, *state))
    }
}

/// Returns the result, or `None` if the port refused. Fails if the port has disappeared: it cannot even report its
/// settings.
fn ignore_refusal<T>(done: Result<T, Fault>, port: &mut dyn PortControl) -> Result<Option<T>, Fault> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(_) => port.settings().map(|_| None),
    }
}

#[cfg(test)]
mod tests;
