//! Messages of TWAMP's control connection (RFC 5357, RFC 4656), in the mode without signatures.
//!
//! Each has a fixed length. Fields for signatures are zeros, and so are those that a session of a single reflector does not use.

use crate::protocol::stamp::time::NtpTime;

/// The mode without signatures and encryption.
pub(crate) const OPEN_MODE: u32 = 1;

pub(crate) const GREETING_BYTES: usize = 64;
pub(crate) const SET_UP_BYTES: usize = 164;
pub(crate) const START_BYTES: usize = 48;
pub(crate) const REQUEST_SESSION_BYTES: usize = 112;
pub(crate) const ACCEPT_SESSION_BYTES: usize = 48;
/// Length of the start command, of its acknowledgement, and of the command that ends sessions, in bytes.
pub(crate) const START_SESSIONS_BYTES: usize = 32;

/// Numbers of the commands.
const START_SESSIONS: u8 = 2;
const STOP_SESSIONS: u8 = 3;
const REQUEST_SESSION: u8 = 5;

/// The rounds of key derivation that a greeting states; servers without signatures state them as well.
const KEY_ROUNDS: u32 = 1024;

/// Reply of a server to a request: 0 accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept(pub(crate) u8);

impl Accept {
    pub(crate) const OK: Accept = Accept(0);
    pub(crate) const UNSUPPORTED: Accept = Accept(3);
    pub(crate) const RESOURCES: Accept = Accept(5);

    /// Reason for which the server did not accept a request.
    pub(crate) fn reason(self) -> String {
        match self.0 {
            1 => "the server refuses it".to_owned(),
            2 => "the server has an internal error".to_owned(),
            3 => "the server does not support it".to_owned(),
            4 => "the server never has the resources for it".to_owned(),
            5 => "the server lacks the resources for it now".to_owned(),
            code => format!("the server refuses it with code {code}"),
        }
    }
}

/// The first message of a server. `modes`: a sum of the modes that it supports; 0 refuses the connection. `random` makes it unique.
pub(crate) fn greeting(modes: u32, random: [u8; 32]) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[12..16].copy_from_slice(&modes.to_be_bytes());
    bytes[16..48].copy_from_slice(&random);
    bytes[48..52].copy_from_slice(&KEY_ROUNDS.to_be_bytes());
    bytes
}

/// The modes of a greeting.
pub(crate) fn read_modes(greeting: &[u8; GREETING_BYTES]) -> u32 {
    u32_at(greeting, 12)
}

/// The choice of the mode without signatures.
pub(crate) fn set_up() -> [u8; SET_UP_BYTES] {
    let mut bytes = [0; SET_UP_BYTES];
    bytes[..4].copy_from_slice(&OPEN_MODE.to_be_bytes());
    bytes
}

/// The mode that a client has chosen.
pub(crate) fn read_set_up(bytes: &[u8; SET_UP_BYTES]) -> u32 {
    u32_at(bytes, 0)
}

/// The reply to the choice of a mode. `started`: when the server was started.
pub(crate) fn server_start(accept: Accept, started: NtpTime) -> [u8; START_BYTES] {
    let mut bytes = [0; START_BYTES];
    bytes[15] = accept.0;
    bytes[32..40].copy_from_slice(&started.0.to_be_bytes());
    bytes
}

/// Reads whether the server accepts the mode.
pub(crate) fn read_server_start(bytes: &[u8; START_BYTES]) -> Accept {
    Accept(bytes[15])
}

/// The request of a session. Both addresses are those of the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestSessionRequest {
    pub(crate) is_ipv6: bool,
    /// The UDP port from which the client will send.
    pub(crate) sender_port: u16,
    /// The UDP port that the client proposes for the reflector.
    pub(crate) receiver_port: u16,
    /// Bytes of a request beyond the shortest one.
    pub(crate) padding_bytes: u32,
    /// Seconds for which the reflector replies after the end.
    pub(crate) timeout_seconds: u32,
}

impl TestSessionRequest {
    pub(crate) fn encode(&self) -> [u8; REQUEST_SESSION_BYTES] {
        let mut bytes = [0; REQUEST_SESSION_BYTES];
        bytes[0] = REQUEST_SESSION;
        bytes[1] = if self.is_ipv6 { 6 } else { 4 };
        bytes[12..14].copy_from_slice(&self.sender_port.to_be_bytes());
        bytes[14..16].copy_from_slice(&self.receiver_port.to_be_bytes());
        bytes[64..68].copy_from_slice(&self.padding_bytes.to_be_bytes());
        bytes[76..80].copy_from_slice(&self.timeout_seconds.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; REQUEST_SESSION_BYTES]) -> TestSessionRequest {
        TestSessionRequest {
            is_ipv6: bytes[1] & 0xf == 6,
            sender_port: u16::from_be_bytes([bytes[12], bytes[13]]),
            receiver_port: u16::from_be_bytes([bytes[14], bytes[15]]),
            padding_bytes: u32_at(bytes, 64),
            timeout_seconds: u32_at(bytes, 76),
        }
    }
}

/// The reply to the request of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptSession {
    pub(crate) accept: Accept,
    /// The UDP port of the reflector.
    pub(crate) port: u16,
    /// Identifies the session.
    pub(crate) session: [u8; 16],
}

impl AcceptSession {
    pub(crate) fn encode(&self) -> [u8; ACCEPT_SESSION_BYTES] {
        let mut bytes = [0; ACCEPT_SESSION_BYTES];
        bytes[0] = self.accept.0;
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.session);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; ACCEPT_SESSION_BYTES]) -> AcceptSession {
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[4..20]);
        AcceptSession { accept: Accept(bytes[0]), port: u16::from_be_bytes([bytes[2], bytes[3]]), session }
    }
}

/// The command that starts all requested sessions.
pub(crate) fn start_sessions() -> [u8; START_SESSIONS_BYTES] {
    let mut bytes = [0; START_SESSIONS_BYTES];
    bytes[0] = START_SESSIONS;
    bytes
}

/// The reply to it.
pub(crate) fn start_ack(accept: Accept) -> [u8; START_SESSIONS_BYTES] {
    let mut bytes = [0; START_SESSIONS_BYTES];
    bytes[0] = accept.0;
    bytes
}

/// Reads whether the server has started the sessions.
pub(crate) fn read_start_ack(bytes: &[u8; START_SESSIONS_BYTES]) -> Accept {
    Accept(bytes[0])
}

/// The command that ends this number of sessions.
pub(crate) fn stop_sessions(count: u32) -> [u8; START_SESSIONS_BYTES] {
    let mut bytes = [0; START_SESSIONS_BYTES];
    bytes[0] = STOP_SESSIONS;
    bytes[4..8].copy_from_slice(&count.to_be_bytes());
    bytes
}

/// A command of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlCommand {
    RequestSession(TestSessionRequest),
    StartSessions,
    StopSessions,
}

/// A command that no server of this mode understands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownCommand(pub(crate) u8);

/// Reads the first command of the input, and its length. `None`: it is incomplete.
pub(crate) fn read_command(input: &[u8]) -> Option<Result<(ControlCommand, usize), UnknownCommand>> {
    let whole = |command: ControlCommand| {
        (input.len() >= START_SESSIONS_BYTES).then_some(Ok((command, START_SESSIONS_BYTES)))
    };
    match *input.first()? {
        START_SESSIONS => whole(ControlCommand::StartSessions),
        STOP_SESSIONS => whole(ControlCommand::StopSessions),
        REQUEST_SESSION => {
            let request = TestSessionRequest::decode(input.first_chunk()?);
            Some(Ok((ControlCommand::RequestSession(request), REQUEST_SESSION_BYTES)))
        }
        other => Some(Err(UnknownCommand(other))),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = TestSessionRequest {
            is_ipv6: true,
            sender_port: 8760,
            receiver_port: 862,
            padding_bytes: 27,
            timeout_seconds: 2,
        };
        let bytes = request.encode();
        assert_eq!(read_command(&bytes), Some(Ok((ControlCommand::RequestSession(request), 112))));
        assert_eq!(read_command(&bytes[..111]), None);
        assert_eq!(read_command(&[]), None);
        assert_eq!(read_command(&[9; 200]), Some(Err(UnknownCommand(9))));
        assert_eq!(read_command(&start_sessions()), Some(Ok((ControlCommand::StartSessions, 32))));
        assert_eq!(read_command(&stop_sessions(1)[..31]), None);
    }

    #[test]
    fn replies_are_read_as_they_were_written() {
        let accept = AcceptSession { accept: Accept::RESOURCES, port: 862, session: [7; 16] };
        assert_eq!(AcceptSession::decode(&accept.encode()), accept);
        assert_eq!(read_modes(&greeting(OPEN_MODE, [1; 32])), OPEN_MODE);
        assert_eq!(read_set_up(&set_up()), OPEN_MODE);
        assert_eq!(read_server_start(&server_start(Accept::UNSUPPORTED, NtpTime(1))), Accept::UNSUPPORTED);
        assert_eq!(read_start_ack(&start_ack(Accept(2))).reason(), "the server has an internal error");
    }
}
