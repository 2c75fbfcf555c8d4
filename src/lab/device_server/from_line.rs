//! From the line to the clients: read, pack, send. One thread per port, with or without a client.
//!
//! It does not read while a client is slow, so that flow control acts on the line.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::super::packing::{Packer, PackingRules};
use super::client::PortClient;
use super::processor::Transfer;
use super::{DeviceServerEvent, SerialPort};
use crate::link::party::CANCEL_CHECK_INTERVAL;
use crate::link::{Fault, Link};

/// How often to ask the driver for lost characters.
const OVERRUN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A line is idle after this many character times without one, and at least this time: drivers deliver once a millisecond.
const IDLE_CHARACTERS: f64 = 1.2;
const MIN_IDLE_TIME: Duration = Duration::from_millis(1);

/// The clients at the last check.
#[derive(Default)]
struct ClientSnapshot {
    clients: Vec<Arc<PortClient>>,
    change_count: u64,
}

impl SerialPort {
    /// Runs until the port closes.
    pub fn serve_line(&self, line: &mut dyn Link) {
        if let Err(fault) = self.forward_line(line) {
            self.mark_lost(&fault);
        }
    }

    fn forward_line(&self, line: &mut dyn Link) -> Result<(), Fault> {
        let clock = &self.state.clock;
        let block = self.state.processor.costs().block_bytes;
        let character = self.line_feed().line_time(1);
        let mut packer = Packer::new(&self.packing_rules(character));
        let mut listeners = ClientSnapshot::default();
        let mut now = clock.now();
        let mut ask = now;
        while !self.is_stopping() {
            if now >= ask {
                self.count_overruns(line);
                ask = now + OVERRUN_CHECK_INTERVAL;
            }
            self.receive_into(
                line,
                packer.due_time().since(now).min(CANCEL_CHECK_INTERVAL),
                &mut packer,
                &mut listeners,
            )?;
            now = clock.now();
            let waiting = Transfer { bytes: packer.waiting_bytes(), from_line: Some(character) };
            if block == 0 && packer.due_time() <= now && self.wait_for_turn(waiting, now) {
                // A slow box moves all available data in one transfer.
                self.receive_into(line, Duration::ZERO, &mut packer, &mut listeners)?;
                now = clock.now();
            }
            // The line is idle since its last character; the silence after it only shows that.
            let arrival = packer.last_byte_time();
            while let Some(packet) = packer.next_packet(now) {
                if block > 0 {
                    self.wait_for_turn(Transfer { bytes: packet.len(), ..waiting }, arrival);
                }
                listeners.clients.iter().for_each(|client| client.send(packet, self));
            }
        }
        Ok(())
    }

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

    /// Reads from the line into the packer, for at most the given time.
    fn receive_into(
        &self,
        line: &mut dyn Link,
        within: Duration,
        packer: &mut Packer,
        listeners: &mut ClientSnapshot,
    ) -> Result<(), Fault> {
        let bytes = match line.receive(packer.free_space(), within) {
            Ok(bytes) => bytes,
            Err(Fault::TimedOut) => 0,
            Err(fault) => return Err(fault),
        };
        self.counters.from_line.fetch_add(bytes as u64, Relaxed);
        let mut unclaimed = 0;
        if self.change_count.load(Acquire) != listeners.change_count && self.refresh_clients(listeners) {
            unclaimed += packer.discard_waiting();
        }
        if listeners.clients.is_empty() {
            unclaimed += bytes;
        } else if bytes > 0 {
            packer.commit(bytes, self.state.clock.now());
        }
        self.counters.unclaimed.fetch_add(unclaimed as u64, Relaxed);
        Ok(())
    }

    /// Updates the list of clients. Returns true if no client wants the packer's data.
    fn refresh_clients(&self, listeners: &mut ClientSnapshot) -> bool {
        let clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        listeners.change_count = self.change_count.load(Acquire);
        let before = std::mem::replace(&mut listeners.clients, clients.clone());
        let stays = |client: &Arc<PortClient>| clients.iter().any(|other| Arc::ptr_eq(client, other));
        self.purged.swap(false, Relaxed) || !before.iter().any(stays)
    }

    /// Reports characters that the driver lost since the last call.
    fn count_overruns(&self, line: &mut dyn Link) {
        let Some(errors) = line.port_control().and_then(|port| port.uart_errors()) else { return };
        let before = self.counters.overruns.swap(errors.overruns, Relaxed);
        if errors.overruns > before {
            self.emit(DeviceServerEvent::Overrun { port: self.number, characters: errors.overruns - before });
        }
    }
}
