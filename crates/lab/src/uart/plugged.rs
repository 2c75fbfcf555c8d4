//! A serial port with a loopback plug as one party, for the virtual clock: the line of the lab UART without its terminal.

use super::wire::{CharacterTiming, DeliveryMode, Wire};
use crate::unsent::UnsentBytes;
use linkgauge_engine::link::Batch;
use linkgauge_engine::link::party::{Party, Step};
use linkgauge_engine::link::serial_line::SerialSettings;
use linkgauge_model::clock::Time;

/// Characters that a client may write at once.
const RECEIVE_BYTES: usize = 4096;

/// A port with a plug.
pub struct PluggedUart {
    wire: Wire,
    settings: SerialSettings,
    received: Batch,
    to_client: UnsentBytes,
}

impl PluggedUart {
    /// An idle line with these settings.
    pub fn new(delivery: DeliveryMode, settings: SerialSettings) -> PluggedUart {
        PluggedUart {
            wire: Wire::new(CharacterTiming::LineRate, delivery, Time(0)),
            settings,
            received: Batch::new(RECEIVE_BYTES, 1),
            to_client: UnsentBytes::default(),
        }
    }
}

impl Party for PluggedUart {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.to_client.is_empty() {
            while self
                .wire
                .deliver(now, |_, characters| self.to_client.extend(characters.iter().copied()))
                .is_some()
            {}
        }
        if self.to_client.is_empty() {
            let until = self.wire.next_delivery().map_or(Time::NEVER, |next| next.at);
            return Step::Receive { into: &mut self.received, until };
        }
        self.to_client.step()
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.to_client.mark_sent(bytes);
    }

    fn on_received(&mut self, now: Time) {
        for characters in self.received.messages() {
            self.wire.offer(characters, &self.settings, now);
        }
        self.received.clear();
    }

    fn on_timeout(&mut self, _now: Time) {}
}
