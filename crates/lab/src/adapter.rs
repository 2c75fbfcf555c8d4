//! A serial adapter that packs the data of its client before it sends them over a radio, with a loopback plug behind the
//! radio: one party, for the virtual clock.

use std::collections::VecDeque;
use std::time::Duration;

use super::packing::{Packer, PackingRules};
use linkgauge_engine::link::party::{Party, Step};
use linkgauge_engine::link::{Batch, Fault};
use linkgauge_model::clock::Time;

/// Characters that return together, so that a stream of them is no stream of single ones.
const MAX_RETURNED_BYTES: usize = 64;

/// The adapter behind the client's own serial line.
pub struct PluggedAdapter {
    packer: Packer,
    /// Nanoseconds of a character on the slower of radio and line.
    character_ns: f64,
    received: Batch,
    free_at: Time,
    /// Characters on the way to the client, and the times when they have passed the plug.
    returning: VecDeque<(Time, Vec<u8>)>,
    sent: usize,
    /// The client sends nothing more; what the adapter holds still returns.
    is_client_done: bool,
}

impl PluggedAdapter {
    /// An adapter with these packing rules, whose slower part sends a character in this time, in nanoseconds.
    pub fn new(rules: &PackingRules, character_ns: f64) -> PluggedAdapter {
        PluggedAdapter {
            packer: Packer::new(rules),
            character_ns,
            received: Batch::new(MAX_RETURNED_BYTES, 1),
            free_at: Time(0),
            returning: VecDeque::new(),
            sent: 0,
            is_client_done: false,
        }
    }

    fn send_packets(&mut self, now: Time) {
        while let Some(packet) = self.packer.next_packet(now) {
            for bytes in packet.chunks(MAX_RETURNED_BYTES) {
                let time = Duration::from_nanos((bytes.len() as f64 * self.character_ns).round() as u64);
                self.free_at = self.free_at.max(now) + time;
                self.returning.push_back((self.free_at, bytes.to_vec()));
            }
        }
    }
}

impl Party for PluggedAdapter {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.send_packets(now);
        match self.returning.front() {
            Some((at, bytes)) if *at <= now => {
                Step::Send { bytes: &bytes[self.sent..], message: bytes.len() }
            }
            next => {
                let until = next.map_or(Time::NEVER, |(at, _)| *at).min(self.packer.due_time());
                match self.is_client_done {
                    true if until == Time::NEVER => Step::Done,
                    true => Step::Sleep(until),
                    false => Step::Receive { into: &mut self.received, until },
                }
            }
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.sent += bytes;
        if self.returning.front().is_some_and(|(_, all)| self.sent == all.len()) {
            self.returning.pop_front();
            self.sent = 0;
        }
    }

    fn on_received(&mut self, now: Time) {
        for bytes in self.received.messages() {
            self.packer.free_space()[..bytes.len()].copy_from_slice(bytes);
            self.packer.commit(bytes.len(), now);
        }
        self.received.clear();
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_client_done = true;
        Ok(())
    }
}
