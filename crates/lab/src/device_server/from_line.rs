//! Moves data from the line to the clients: receives, packs, sends. One party per port, with or without a client.
//!
//! The party does not read while a client is slow, so that flow control acts on the line.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::super::packing::{Packer, PackingRules};
use super::client::{POLL_INTERVAL, PortClient};
use super::processor::Transfer;
use super::{DeviceServerEvent, ServedPort};
use linkgauge_engine::link::party::{Party, Step};
use linkgauge_engine::link::{Batch, Fault, Link};
use linkgauge_model::clock::Time;

/// Interval at which to ask the driver for lost characters, and maximum time until the port notices that it has to stop.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A line is idle after this many character times without one, and at least this time: drivers deliver once a millisecond.
const IDLE_CHARACTERS: f64 = 1.2;
const MIN_IDLE_TIME: Duration = Duration::from_millis(1);

/// Next action of the party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// Receives until then.
    Receiving(Time),
    /// A slow box makes its transfer then, with what has arrived meanwhile.
    Turn(Time),
    /// Takes packets from the packer.
    Packing,
    /// A slow box sends the packet that it holds then.
    Holding(Time),
    /// A client has not taken everything yet.
    Sending,
}

/// The party on the line of a port.
pub(crate) struct FromLine {
    port: Arc<ServedPort>,
    /// Second handle of the line, for its counters.
    line: Box<dyn Link>,
    state: LineState,
    batch: Batch,
    packer: Packer,
    /// The time of a character, and the block of a slow box.
    character: Duration,
    block_bytes: usize,
    /// A packet that waits for its turn.
    held: Vec<u8>,
    clients: Vec<Arc<PortClient>>,
    /// Number of changes of the port when these were its clients.
    change_count: u64,
    check_at: Time,
}

impl FromLine {
    /// Creates the party of a port's line; `line` is a separate handle.
    pub fn new(port: Arc<ServedPort>, line: Box<dyn Link>) -> FromLine {
        let character = port.line_feed().line_time(1);
        let packer = Packer::new(&port.packing_rules(character));
        FromLine {
            line,
            state: LineState::Packing,
            batch: Batch::lent(0),
            packer,
            character,
            block_bytes: port.state.processor.costs().block_bytes,
            held: Vec::new(),
            clients: Vec::new(),
            change_count: 0,
            check_at: Time(0),
            port,
        }
    }

    /// The party has ended, or the line.
    pub fn end(self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.port.mark_lost(&fault);
        }
    }

    fn receive(&mut self, until: Time) -> Step<'_> {
        self.batch.slot_bytes = self.packer.free_space().len();
        Step::Receive { into: &mut self.batch, until }
    }

    /// A receive has ended, with these bytes in the free space of the packer.
    fn take_received(&mut self, bytes: usize, now: Time) {
        let counters = &self.port.counters;
        counters.from_line.fetch_add(bytes as u64, Relaxed);
        let mut unclaimed = 0;
        if self.port.change_count.load(Acquire) != self.change_count && self.refresh_clients() {
            unclaimed += self.packer.discard_waiting();
        }
        if self.clients.is_empty() {
            unclaimed += bytes;
        } else if bytes > 0 {
            self.packer.commit(bytes, now);
        }
        self.port.counters.unclaimed.fetch_add(unclaimed as u64, Relaxed);
        let is_first = matches!(self.state, LineState::Receiving(_));
        self.state = LineState::Packing;
        if is_first && self.block_bytes == 0 && self.packer.due_time() <= now {
            let waiting = Transfer { bytes: self.packer.waiting_bytes(), from_line: Some(self.character) };
            // A slow box moves all available data in one transfer.
            let turn = self.port.state.processor.schedule_transfer(waiting, now);
            self.state = turn.map_or(self.state, LineState::Turn);
        }
    }

    /// Updates the list of clients. Returns true if no client wants the packer's data.
    fn refresh_clients(&mut self) -> bool {
        let port = &self.port;
        let clients = port.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.change_count = port.change_count.load(Acquire);
        let before = std::mem::replace(&mut self.clients, clients.clone());
        let stays = |client: &Arc<PortClient>| clients.iter().any(|other| Arc::ptr_eq(client, other));
        port.purged.swap(false, Relaxed) || !before.iter().any(stays)
    }

    /// Moves complete packets to the clients, until one has to wait or no packet is left.
    fn pack(&mut self, now: Time) {
        // The line is idle since its last character; the silence after it only shows that.
        let arrival = self.packer.last_byte_time();
        while let Some(packet) = self.packer.next_packet(now) {
            if self.block_bytes > 0 {
                let transfer = Transfer { bytes: packet.len(), from_line: Some(self.character) };
                if let Some(turn) = self.port.state.processor.schedule_transfer(transfer, arrival) {
                    self.held.extend_from_slice(packet);
                    self.state = LineState::Holding(turn);
                    return;
                }
            }
            self.clients.iter().for_each(|client| client.queue(packet));
            if !flush(&self.clients) {
                self.state = LineState::Sending;
                return;
            }
        }
        self.state = LineState::Receiving(self.packer.due_time().min(now + CHECK_INTERVAL));
    }

    /// Reports characters that the driver lost since the last call.
    fn count_overruns(&mut self) {
        let Some(errors) = self.line.port_control().and_then(|port| port.uart_errors()) else { return };
        let before = self.port.counters.overruns.swap(errors.overruns, Relaxed);
        if errors.overruns > before {
            let characters = errors.overruns - before;
            self.port.emit(DeviceServerEvent::Overrun { port: self.port.number, characters });
        }
    }
}

/// Sends what these clients have not taken yet. Returns whether nothing is left.
fn flush(clients: &[Arc<PortClient>]) -> bool {
    // Each of them, also behind a slow one.
    clients.iter().filter(|client| !client.flush()).count() == 0
}

impl Party for FromLine {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.port.is_stopping() {
            return Step::Done;
        }
        if now >= self.check_at {
            self.check_at = now + CHECK_INTERVAL;
            self.count_overruns();
        }
        match self.state {
            LineState::Turn(at) | LineState::Holding(at) if now < at => {
                return Step::Sleep(at.min(now + CHECK_INTERVAL));
            }
            LineState::Turn(_) => return self.receive(now),
            LineState::Holding(_) => {
                self.clients.iter().for_each(|client| client.queue(&self.held));
                self.held.clear();
                self.state = LineState::Sending;
            }
            LineState::Receiving(_) | LineState::Packing | LineState::Sending => {}
        }
        if self.state == LineState::Sending {
            if !flush(&self.clients) {
                return Step::Sleep(now + POLL_INTERVAL);
            }
            self.state = LineState::Packing;
        }
        if self.state == LineState::Packing {
            self.pack(now);
        }
        match self.state {
            LineState::Receiving(until) => self.receive(until),
            LineState::Turn(at) | LineState::Holding(at) => Step::Sleep(at),
            LineState::Packing | LineState::Sending => Step::Sleep(now + POLL_INTERVAL),
        }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, now: Time) {
        let received = self.batch.messages().next().unwrap_or_default();
        self.packer.free_space()[..received.len()].copy_from_slice(received);
        let bytes = received.len();
        self.batch.return_memory();
        self.take_received(bytes, now);
    }

    fn on_timeout(&mut self, now: Time) {
        self.take_received(0, now);
    }
}

impl ServedPort {
    /// The rules of the options, or those of a box that moves blocks: a block is sent when it is full, or when the line is
    /// idle.
    fn packing_rules(&self, character: Duration) -> PackingRules {
        let block = self.state.processor.costs().block_bytes;
        if block == 0 {
            return self.state.packing.clone();
        }
        PackingRules {
            inter_character_timeout: character.max(MIN_IDLE_TIME).mul_f64(IDLE_CHARACTERS),
            packet_bytes: block,
            buffer_bytes: 2 * block,
            ..PackingRules::default()
        }
    }
}
