//! The link: data and commands in one TCP connection, for both handles.
//!
//! `rfc2217.rs` opens it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::socket::{IoDirection, SocketLink, wait_ready};
use super::client::{ServerState, SettingsScope};
use super::command::{self, code};
use super::telnet::{self, IAC, TelnetDecoder, TelnetEvent};
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::serial_line::{
    self, ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors,
};
use crate::link::{Caps, Facts, Fault, Link};
use linkgauge_model::warnings::UNDOUBLED_FACT;

/// A serial port at the remote end of a connection.
pub(crate) struct PortLink {
    pub(crate) socket: SocketLink,
    pub(crate) state: Arc<PortLinkState>,
}

/// State shared by the handles of a link. The locks are contended only if both handles work on the same
/// direction of the stream at the same time; then they keep the stream consistent.
pub(crate) struct PortLinkState {
    requested: SerialSettings,
    /// Timeout for a reply.
    reply_timeout: Duration,
    /// Lock that is held while bytes are sent, so that nothing is inserted between the two bytes of an FF or into a command.
    /// Contains the buffer for data with doubled FF.
    writer: Mutex<Vec<u8>>,
    /// Output that is sent before anything else: commands, replies, the second half of an FF.
    pending_output: Mutex<Vec<u8>>,
    has_pending_output: AtomicBool,
    reader: Mutex<PortReader>,
    server_state: Mutex<ServerState>,
    /// The state of the server has changed.
    state_changed: Condvar,
}

struct PortReader {
    decoder: TelnetDecoder,
    receive_buffer: Box<[u8]>,
    /// Data received during the wait for a reply.
    inbox: Vec<u8>,
}

/// Maximum size of one receive or send operation.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// Limit of pending output for a server that does not receive; further output is dropped. A correct server
/// causes only a few bytes.
const MAX_PENDING_BYTES: usize = 64 * 1024;

/// Limit of data stored during the wait for a reply: more than a port receives in that time.
const MAX_INBOX_BYTES: usize = 8 << 20;

/// Duration of one attempt while two conditions are awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PortLinkState {
    pub fn new(requested: SerialSettings, reply_timeout: Duration) -> PortLinkState {
        PortLinkState {
            requested,
            reply_timeout,
            writer: Mutex::new(Vec::with_capacity(2 * MAX_CHUNK_BYTES)),
            pending_output: Mutex::default(),
            has_pending_output: AtomicBool::new(false),
            reader: Mutex::new(PortReader {
                decoder: TelnetDecoder::default(),
                receive_buffer: vec![0; MAX_CHUNK_BYTES].into(),
                inbox: Vec::new(),
            }),
            server_state: Mutex::default(),
            state_changed: Condvar::new(),
        }
    }

    /// The state of the server so far.
    pub(crate) fn server_state(&self) -> MutexGuard<'_, ServerState> {
        lock(&self.server_state)
    }

    /// Takes the data received before any receive call.
    pub(crate) fn take_inbox(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.reader).inbox)
    }

    /// Queues output; it is sent as soon as the socket takes it.
    pub(crate) fn queue_output(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut pending = lock(&self.pending_output);
        let before = pending.len();
        write(&mut pending);
        if pending.len() > MAX_PENDING_BYTES {
            pending.truncate(before);
        }
        self.has_pending_output.store(!pending.is_empty(), SeqCst);
    }

    /// Queues output that depends on the state of the server.
    pub(crate) fn queue_with_state(&self, write: impl FnOnce(&mut ServerState, &mut Vec<u8>)) {
        let mut server = lock(&self.server_state);
        self.queue_output(|out| write(&mut server, out));
    }

    /// Sends pending output as far as the socket takes it now. Does nothing while the other handle is
    /// sending, because that handle sends it.
    fn flush_pending(&self, socket: &mut SocketLink) -> Result<(), Fault> {
        if !self.has_pending_output.load(SeqCst) {
            return Ok(());
        }
        match self.writer.try_lock() {
            Ok(_writing) => self.flush_pending_locked(socket),
            Err(_) => Ok(()),
        }
    }

    /// Sends pending output in the handle that is sending.
    fn flush_pending_locked(&self, socket: &mut SocketLink) -> Result<(), Fault> {
        let mut pending = lock(&self.pending_output);
        if !pending.is_empty() {
            match socket.send(&pending, Duration::ZERO) {
                Ok(sent) => drop(pending.drain(..sent)),
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.has_pending_output.store(!pending.is_empty(), SeqCst);
        Ok(())
    }

    fn send(&self, socket: &mut SocketLink, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        let mut escaped = lock(&self.writer);
        let mut left = within;
        if self.has_pending_output.load(SeqCst) {
            let until = socket.clock.now() + within;
            self.flush_pending_locked(socket)?;
            while self.has_pending_output.load(SeqCst) {
                left = until.since(socket.clock.now());
                if left.is_zero() {
                    return Err(Fault::TimedOut);
                }
                wait_ready(&socket.socket, IoDirection::Send, left);
                self.flush_pending_locked(socket)?;
            }
            left = until.since(socket.clock.now());
        }
        let chunk = &bytes[..bytes.len().min(MAX_CHUNK_BYTES)];
        if !chunk.contains(&IAC) {
            return socket.send(chunk, left);
        }
        escaped.clear();
        telnet::escape(chunk, &mut escaped);
        let sent = socket.send(&escaped, left)?;
        let (taken, is_cut) = unescaped_length(chunk, sent);
        if is_cut {
            // Must precede the output that the other handle has queued meanwhile.
            lock(&self.pending_output).insert(0, IAC);
            self.has_pending_output.store(true, SeqCst);
        }
        Ok(taken)
    }

    fn receive(&self, socket: &mut SocketLink, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = socket.clock.now() + within;
        let mut reader = lock(&self.reader);
        let mut left = within;
        loop {
            if !reader.inbox.is_empty() {
                let length = reader.inbox.len().min(into.len());
                into[..length].copy_from_slice(&reader.inbox[..length]);
                reader.inbox.drain(..length);
                return Ok(length);
            }
            self.flush_pending(socket)?;
            let slice = if self.has_pending_output.load(SeqCst) { left.min(POLL_INTERVAL) } else { left };
            let mut length = 0;
            let PortReader { decoder, receive_buffer: raw, .. } = &mut *reader;
            let max_bytes = into.len().min(MAX_CHUNK_BYTES);
            let received = self.receive_events(socket, decoder, &mut raw[..max_bytes], slice, |data| {
                into[length..length + data.len()].copy_from_slice(data);
                length += data.len();
            });
            match received {
                Ok(()) if length > 0 => return Ok(length),
                Ok(()) => {}
                Err(Fault::TimedOut) if slice < left => {}
                Err(fault) => return Err(fault),
            }
            left = until.since(socket.clock.now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
        }
    }

    /// Performs one socket operation: delivers data, handles commands and replies to them.
    fn receive_events(
        &self,
        socket: &mut SocketLink,
        decoder: &mut TelnetDecoder,
        raw: &mut [u8],
        within: Duration,
        mut keep: impl FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let length = socket.receive(raw, within)?;
        let mut rest = &raw[..length];
        while let Some(event) = decoder.next_event(&mut rest) {
            match event {
                TelnetEvent::Data(data) => keep(data),
                event => {
                    self.queue_with_state(|server, replies| server.handle_event(event, replies));
                    self.state_changed.notify_all();
                }
            }
        }
        self.flush_pending(socket)
    }

    /// Waits until `done` holds, whichever handle receives the change; `false` if it does not within
    /// `max_wait`.
    pub(crate) fn wait_until(
        &self,
        socket: &mut SocketLink,
        max_wait: Duration,
        mut done: impl FnMut(&ServerState) -> bool,
    ) -> Result<bool, Fault> {
        let until = socket.clock.now() + max_wait;
        loop {
            self.flush_pending(socket)?;
            let server = lock(&self.server_state);
            if done(&server) {
                return Ok(true);
            }
            let slice = until.since(socket.clock.now()).min(POLL_INTERVAL);
            if slice.is_zero() {
                return Ok(false);
            }
            match self.reader.try_lock() {
                Ok(mut reader) => {
                    drop(server);
                    self.receive_into_inbox(socket, &mut reader, slice)?;
                }
                Err(_) => drop(self.state_changed.wait_timeout(server, slice)),
            }
        }
    }

    fn receive_into_inbox(
        &self,
        socket: &mut SocketLink,
        reader: &mut PortReader,
        within: Duration,
    ) -> Result<(), Fault> {
        let PortReader { decoder, receive_buffer: raw, inbox } = reader;
        if inbox.len() > MAX_INBOX_BYTES {
            return Err(Fault::UnexpectedData(
                "the port sends data without end and does not reply to commands".to_owned(),
            ));
        }
        match self.receive_events(socket, decoder, raw, within, |data| inbox.extend_from_slice(data)) {
            Err(Fault::TimedOut) => Ok(()),
            done => done,
        }
    }
}

/// Number of these bytes that the first `sent` bytes of their escaped form cover, and whether only one half of a final FF was
/// sent.
fn unescaped_length(bytes: &[u8], sent: usize) -> (usize, bool) {
    let mut escaped = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if escaped >= sent {
            return (index, false);
        }
        escaped += if byte == IAC { 2 } else { 1 };
        if escaped > sent {
            return (index + 1, true);
        }
    }
    (bytes.len(), false)
}

impl PortLink {
    pub(crate) fn wait_until(
        &mut self,
        max_wait: Duration,
        done: impl FnMut(&ServerState) -> bool,
    ) -> Result<bool, Fault> {
        self.state.wait_until(&mut self.socket, max_wait, done)
    }

    /// Requests settings.
    ///
    /// # Errors
    ///
    /// Fails unless the server replies to each command.
    pub(crate) fn apply_settings(
        &mut self,
        wanted: &SerialSettings,
        scope: SettingsScope,
    ) -> Result<SerialSettings, Fault> {
        self.state.queue_with_state(|server, out| server.write_settings(wanted, scope, out));
        let max_wait = self.state.reply_timeout;
        self.wait_until(max_wait, |server| server.missing_replies().is_empty() || server.is_echo)?;
        let server = self.state.server_state();
        let missing = server.missing_replies();
        if server.is_echo {
            return Err(Fault::Unsupported(
                "sent bytes come back: this is a raw port with a loopback plug. Use tcp://…?baud=…"
                    .to_owned(),
            ));
        }
        if !missing.is_empty() {
            return Err(Fault::NoReply(format!(
                "no reply in {} s to the setting of the {}. See the device server's log",
                max_wait.as_secs(),
                missing.join(", ")
            )));
        }
        Ok(server.settings)
    }
}

impl Link for PortLink {
    fn caps(&self) -> &Caps {
        &self.socket.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.socket.facts();
        let server = self.state.server_state();
        serial_line::insert_line_facts(&mut facts, &self.state.requested, &server.settings);
        if let Some(signature) = &server.signature {
            facts.insert("signature".to_owned(), signature.as_str().into());
        }
        let undoubled = lock(&self.state.reader).decoder.undoubled_bytes;
        if undoubled > 0 {
            facts.insert(UNDOUBLED_FACT.to_owned(), undoubled.into());
        }
        facts
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.state.send(&mut self.socket, bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.state.receive(&mut self.socket, into, within)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(PortLink { socket: self.socket.duplicate()?, state: self.state.clone() }))
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        Some(self)
    }

    delegate_link!(self => self.socket; status tune abort);
    plain_link!(send_batch receive_batch finish_sending reopen read_send_stamps descriptor);
}

impl PortControl for PortLink {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        Ok(self.state.server_state().settings)
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        self.apply_settings(wanted, SettingsScope::Changed)
    }

    /// Does not wait for a reply: some servers send none if their port lacks the wire.
    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        let value = command::encode_signal(signal, on);
        self.state.queue_output(|out| command::write_command(code::CONTROL, &[value], out));
        self.state.flush_pending(&mut self.socket)
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        self.state.server_state().modem_lines
    }

    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault> {
        let value = command::encode_purge(purge);
        self.state.queue_output(|out| command::write_command(code::PURGE, &[value], out));
        self.state.flush_pending(&mut self.socket)
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        Some(self.state.server_state().uart_errors)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wherever_the_socket_cuts_nothing_is_doubled_or_lost(
            data in prop::collection::vec(prop_oneof![Just(0xffu8), any::<u8>()], 1..200),
            cuts in prop::collection::vec(1usize..9, 1..400),
        ) {
            let (mut wire, mut left) = (Vec::new(), &data[..]);
            for cut in cuts.into_iter().cycle() {
                let mut escaped = Vec::new();
                telnet::escape(left, &mut escaped);
                let sent = cut.min(escaped.len());
                wire.extend_from_slice(&escaped[..sent]);
                let (used, is_cut) = unescaped_length(left, sent);
                if is_cut {
                    wire.push(IAC);
                }
                prop_assert!(used > 0);
                left = &left[used..];
                if left.is_empty() {
                    break;
                }
            }
            let mut expected = Vec::new();
            telnet::escape(&data, &mut expected);
            prop_assert_eq!(wire, expected);
        }
    }
}
