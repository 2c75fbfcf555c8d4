//! From the line to the clients: read, pack, send. One thread a port, whether a client is there or not.
//!
//! While a client is slow nothing is read, so that flow control acts on the line.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::super::packing::Packer;
use super::client::Client;
use super::{Event, SerialPort};
use crate::link::party::SLICE;
use crate::link::{Fault, Link};

/// How often the driver is asked what it lost.
const ASK: Duration = Duration::from_secs(1);

/// The clients as they were when this was looked at last.
#[derive(Default)]
struct Listeners {
    clients: Vec<Arc<Client>>,
    seen: u64,
}

impl SerialPort {
    /// Runs until the port is over.
    pub fn serve_line(&self, line: &mut dyn Link) {
        if let Err(fault) = self.pass_on(line) {
            self.lose(&fault);
        }
    }

    fn pass_on(&self, line: &mut dyn Link) -> Result<(), Fault> {
        let clock = &self.common.clock;
        let mut packer = Packer::new(&self.common.packing);
        let mut listeners = Listeners::default();
        let mut now = clock.now();
        let mut ask = now;
        while !self.is_over() {
            if now >= ask {
                self.count_overruns(line);
                ask = now + ASK;
            }
            self.read(line, packer.due().since(now).min(SLICE), &mut packer, &mut listeners)?;
            now = clock.now();
            if packer.due() <= now && self.wait_for_turn(now) {
                // A slow box moves all that is there when it comes to it.
                self.read(line, Duration::ZERO, &mut packer, &mut listeners)?;
                now = clock.now();
            }
            while let Some(packet) = packer.next(now) {
                listeners.clients.iter().for_each(|client| client.send(packet, self));
            }
        }
        Ok(())
    }

    /// Takes what the line brings within the time into the packer.
    fn read(
        &self,
        line: &mut dyn Link,
        within: Duration,
        packer: &mut Packer,
        listeners: &mut Listeners,
    ) -> Result<(), Fault> {
        let bytes = match line.receive(packer.room(), within) {
            Ok(bytes) => bytes,
            Err(Fault::TimedOut) => 0,
            Err(fault) => return Err(fault),
        };
        self.counters.from_line.fetch_add(bytes as u64, Relaxed);
        let mut unclaimed = 0;
        if self.changes.load(Acquire) != listeners.seen && self.look(listeners) {
            unclaimed += packer.clear();
        }
        if listeners.clients.is_empty() {
            unclaimed += bytes;
        } else if bytes > 0 {
            packer.filled(bytes, self.common.clock.now());
        }
        self.counters.unclaimed.fetch_add(unclaimed as u64, Relaxed);
        Ok(())
    }

    /// Takes over who is there now; whether nobody is left who wants what the packer has collected.
    fn look(&self, listeners: &mut Listeners) -> bool {
        let clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        listeners.seen = self.changes.load(Acquire);
        let before = std::mem::replace(&mut listeners.clients, clients.clone());
        let stays = |client: &Arc<Client>| clients.iter().any(|other| Arc::ptr_eq(client, other));
        self.purged.swap(false, Relaxed) || !before.iter().any(stays)
    }

    /// Reports what the driver has lost since this was asked last.
    fn count_overruns(&self, line: &mut dyn Link) {
        let Some(errors) = line.port().and_then(|port| port.errors()) else { return };
        let before = self.counters.overruns.swap(errors.overruns, Relaxed);
        if errors.overruns > before {
            self.tell(Event::Overrun { port: self.number, characters: errors.overruns - before });
        }
    }
}
