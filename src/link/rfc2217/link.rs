//! The link itself: data and commands in one TCP connection, whichever of its halves sends or receives.
//!
//! Not for opening one: `rfc2217.rs` does that.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::line::{self, Errors, Modem, Port, Purge, Settings, Signal};
use super::super::party::Tuning;
use super::super::socket::{SocketLink, Wants, wait_for};
use super::super::{Caps, Facts, Fault, Link};
use super::client::Heard;
use super::command::{self, code};
use super::telnet::{self, Decoder, Event, IAC};

/// A serial port at the far end of a connection.
pub struct PortLink {
    pub socket: SocketLink,
    pub shared: Arc<Shared>,
}

/// What the halves of a link share. The locks are free unless both halves are at the same end of the stream at the same
/// time; then they are what keeps the stream whole.
pub struct Shared {
    asked: Settings,
    /// How long an answer may take.
    patience: Duration,
    /// Held while bytes go out, so that nothing comes between the two bytes of an FF or into the middle of a command.
    /// Room for data in which FF is doubled.
    writing: Mutex<Vec<u8>>,
    /// Goes out before anything else: commands, answers, the second half of an FF.
    owed: Mutex<Vec<u8>>,
    owes: AtomicBool,
    reading: Mutex<Reader>,
    heard: Mutex<Heard>,
    /// Something was heard.
    changed: Condvar,
}

struct Reader {
    decoder: Decoder,
    raw: Box<[u8]>,
    /// Data that came while an answer was waited for.
    inbox: Vec<u8>,
}

/// Most bytes of one receive or send operation.
const PIECE: usize = 64 * 1024;

/// Most that is kept for a far end that does not take it; what is beyond is not said. Honest ones are owed some bytes.
const MOST_OWED: usize = 64 * 1024;

/// Most data that are kept while an answer is waited for: more than a port brings in that time.
const MOST_KEPT: usize = 8 << 20;

/// How long one attempt lasts while two things are waited for.
const SLICE: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(asked: Settings, patience: Duration) -> Shared {
        Shared {
            asked,
            patience,
            writing: Mutex::new(Vec::with_capacity(2 * PIECE)),
            owed: Mutex::default(),
            owes: AtomicBool::new(false),
            reading: Mutex::new(Reader {
                decoder: Decoder::default(),
                raw: vec![0; PIECE].into(),
                inbox: Vec::new(),
            }),
            heard: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What has been heard so far.
    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        lock(&self.heard)
    }

    /// Data that came before anybody received them; they are gone then.
    pub fn take_inbox(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.reading).inbox)
    }

    /// Has something said as soon as the socket takes it.
    pub fn say(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut owed = lock(&self.owed);
        let before = owed.len();
        write(&mut owed);
        if owed.len() > MOST_OWED {
            owed.truncate(before);
        }
        self.owes.store(!owed.is_empty(), SeqCst);
    }

    /// The same, where what is said depends on what was heard.
    pub fn say_with_heard(&self, write: impl FnOnce(&mut Heard, &mut Vec<u8>)) {
        let mut heard = lock(&self.heard);
        self.say(|out| write(&mut heard, out));
    }

    /// Sends what is owed as far as the socket takes it now, unless the other half is sending: then that one does.
    fn settle(&self, socket: &mut SocketLink) -> Result<(), Fault> {
        if !self.owes.load(SeqCst) {
            return Ok(());
        }
        match self.writing.try_lock() {
            Ok(_writing) => self.settle_as_writer(socket),
            Err(_) => Ok(()),
        }
    }

    /// The same for the half that is sending.
    fn settle_as_writer(&self, socket: &mut SocketLink) -> Result<(), Fault> {
        let mut owed = lock(&self.owed);
        if !owed.is_empty() {
            match socket.send(&owed, Duration::ZERO) {
                Ok(sent) => drop(owed.drain(..sent)),
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.owes.store(!owed.is_empty(), SeqCst);
        Ok(())
    }

    fn send(&self, socket: &mut SocketLink, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        let mut escaped = lock(&self.writing);
        let mut left = within;
        if self.owes.load(SeqCst) {
            let until = socket.clock.now() + within;
            self.settle_as_writer(socket)?;
            while self.owes.load(SeqCst) {
                left = until.since(socket.clock.now());
                if left.is_zero() {
                    return Err(Fault::TimedOut);
                }
                wait_for(&socket.socket, Wants::ToSend, left);
                self.settle_as_writer(socket)?;
            }
            left = until.since(socket.clock.now());
        }
        let piece = &bytes[..bytes.len().min(PIECE)];
        if !piece.contains(&IAC) {
            return socket.send(piece, left);
        }
        escaped.clear();
        telnet::escape(piece, &mut escaped);
        let sent = socket.send(&escaped, left)?;
        let (taken, is_cut) = taken(piece, sent);
        if is_cut {
            // Before anything that the other half has come to owe meanwhile.
            lock(&self.owed).insert(0, IAC);
            self.owes.store(true, SeqCst);
        }
        Ok(taken)
    }

    fn receive(&self, socket: &mut SocketLink, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = socket.clock.now() + within;
        let mut reader = lock(&self.reading);
        let mut left = within;
        loop {
            if !reader.inbox.is_empty() {
                let length = reader.inbox.len().min(into.len());
                into[..length].copy_from_slice(&reader.inbox[..length]);
                reader.inbox.drain(..length);
                return Ok(length);
            }
            self.settle(socket)?;
            let slice = if self.owes.load(SeqCst) { left.min(SLICE) } else { left };
            let mut length = 0;
            let Reader { decoder, raw, .. } = &mut *reader;
            let most = into.len().min(PIECE);
            let came = self.read(socket, decoder, &mut raw[..most], slice, |data| {
                into[length..length + data.len()].copy_from_slice(data);
                length += data.len();
            });
            match came {
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

    /// One operation of the socket: hands data on, hears the rest, answers it.
    fn read(
        &self,
        socket: &mut SocketLink,
        decoder: &mut Decoder,
        raw: &mut [u8],
        within: Duration,
        mut keep: impl FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let length = socket.receive(raw, within)?;
        let mut rest = &raw[..length];
        while let Some(event) = decoder.next(&mut rest) {
            match event {
                Event::Data(data) => keep(data),
                event => {
                    self.say_with_heard(|heard, answers| heard.take(event, answers));
                    self.changed.notify_all();
                }
            }
        }
        self.settle(socket)
    }

    /// Waits until something was heard, whichever half receives it; false if it was not within `patience`.
    pub fn wait(
        &self,
        socket: &mut SocketLink,
        patience: Duration,
        mut done: impl FnMut(&Heard) -> bool,
    ) -> Result<bool, Fault> {
        let until = socket.clock.now() + patience;
        loop {
            self.settle(socket)?;
            let heard = lock(&self.heard);
            if done(&heard) {
                return Ok(true);
            }
            let slice = until.since(socket.clock.now()).min(SLICE);
            if slice.is_zero() {
                return Ok(false);
            }
            match self.reading.try_lock() {
                Ok(mut reader) => {
                    drop(heard);
                    self.keep_data(socket, &mut reader, slice)?;
                }
                Err(_) => drop(self.changed.wait_timeout(heard, slice)),
            }
        }
    }

    fn keep_data(&self, socket: &mut SocketLink, reader: &mut Reader, within: Duration) -> Result<(), Fault> {
        let Reader { decoder, raw, inbox } = reader;
        if inbox.len() > MOST_KEPT {
            return Err(Fault::Other("the port sends and sends, and does not answer commands".to_owned()));
        }
        match self.read(socket, decoder, raw, within, |data| inbox.extend_from_slice(data)) {
            Err(Fault::TimedOut) => Ok(()),
            done => done,
        }
    }
}

/// How many of these bytes went out with so many of their escaped form, and whether the last is an FF of which only one
/// half did.
fn taken(bytes: &[u8], sent: usize) -> (usize, bool) {
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
    pub fn wait(&mut self, patience: Duration, done: impl FnMut(&Heard) -> bool) -> Result<bool, Fault> {
        self.shared.wait(&mut self.socket, patience, done)
    }

    /// Asks for settings, all of them or those that differ; fails unless each is answered.
    pub fn ask(&mut self, wanted: &Settings, all: bool) -> Result<Settings, Fault> {
        self.shared.say_with_heard(|heard, out| heard.ask(wanted, all, out));
        let patience = self.shared.patience;
        self.wait(patience, |heard| heard.unanswered().is_empty() || heard.echoes)?;
        let heard = self.shared.heard();
        let missing = heard.unanswered();
        if heard.echoes {
            return Err(Fault::Other(
                "what is sent comes back: this is a raw port with a plug on its line; use tcp://…?baud=…"
                    .to_owned(),
            ));
        }
        if !missing.is_empty() {
            return Err(Fault::Other(format!(
                "no answer in {} s to the setting of the {}: see the device server's log",
                patience.as_secs(),
                missing.join(", ")
            )));
        }
        Ok(heard.settings)
    }
}

impl Link for PortLink {
    fn caps(&self) -> &Caps {
        &self.socket.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = self.socket.facts();
        let heard = self.shared.heard();
        line::note(&mut facts, &self.shared.asked, &heard.settings);
        if let Some(signature) = &heard.signature {
            facts.insert("signature".to_owned(), signature.as_str().into());
        }
        facts
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.socket.tune(tuning);
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.shared.send(&mut self.socket, bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        self.shared.receive(&mut self.socket, into, within)
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(PortLink { socket: self.socket.half()?, shared: self.shared.clone() }))
    }

    /// The device behind the port is never told.
    fn polled(&self) -> Duration {
        self.socket.polled()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn port(&mut self) -> Option<&mut dyn Port> {
        Some(self)
    }
}

impl Port for PortLink {
    fn settings(&mut self) -> Result<Settings, Fault> {
        Ok(self.shared.heard().settings)
    }

    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault> {
        self.ask(wanted, false)
    }

    /// Not waited for: some servers do not answer where their port has no such wire.
    fn signal(&mut self, signal: Signal, on: bool) -> Result<(), Fault> {
        let value = command::signal(signal, on);
        self.shared.say(|out| command::write(code::CONTROL, &[value], out));
        self.shared.settle(&mut self.socket)
    }

    fn modem(&mut self) -> Option<Modem> {
        self.shared.heard().modem
    }

    fn purge(&mut self, purge: Purge) -> Result<(), Fault> {
        let value = command::purge(purge);
        self.shared.say(|out| command::write(code::PURGE, &[value], out));
        self.shared.settle(&mut self.socket)
    }

    fn errors(&mut self) -> Option<Errors> {
        Some(self.shared.heard().errors)
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
                let (used, is_cut) = taken(left, sent);
                if is_cut {
                    wire.push(IAC);
                }
                prop_assert!(used > 0);
                left = &left[used..];
                if left.is_empty() {
                    break;
                }
            }
            let mut whole = Vec::new();
            telnet::escape(&data, &mut whole);
            prop_assert_eq!(wire, whole);
        }
    }
}
