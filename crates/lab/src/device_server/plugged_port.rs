//! A port of a slow box with its line and a loopback plug, as one party: the whole device on the virtual clock.
//!
//! The party uses the processor and the line feed of the real device server, so both have the same times. Instead of threads
//! and a pseudo-terminal it has the characters on the line.

use std::collections::VecDeque;
use std::sync::Arc;

use super::line_feed::LineFeed;
use super::processor::{SharedProcessor, Transfer};
use crate::unsent::UnsentBytes;
use linkgauge_engine::link::party::{Party, PartyCost, Step};
use linkgauge_engine::link::{Batch, Fault};
use linkgauge_model::clock::Time;

/// Characters that went to the line together.
#[derive(Debug)]
struct LineRun {
    start: Time,
    length: usize,
    /// Characters that a transfer from the line has taken.
    taken: usize,
}

/// A port with a client.
pub struct PluggedPort {
    processor: Arc<SharedProcessor>,
    feed: LineFeed,
    received: Batch,
    /// Bytes from the client, and when they move to the line.
    to_line: Option<(Time, Vec<u8>)>,
    /// Runs of characters on the line or back from it, in order.
    runs: VecDeque<LineRun>,
    characters: VecDeque<u8>,
    /// Transfers from the line, with their time and size.
    from_line: VecDeque<(Time, usize)>,
    to_client: UnsentBytes,
    /// The client sends nothing more; what is on the line still returns.
    is_client_done: bool,
}

impl PluggedPort {
    /// A port of the box with this processor, on a line of this rate.
    pub fn new(processor: Arc<SharedProcessor>, line_bps: f64, bits_per_character: f64) -> PluggedPort {
        let costs = processor.costs();
        let feed = LineFeed::new(costs, line_bps, bits_per_character);
        let received = Batch::new(costs.block_bytes.max(1), 1);
        processor.open_session();
        PluggedPort {
            processor,
            feed,
            received,
            to_line: None,
            runs: VecDeque::new(),
            characters: VecDeque::new(),
            from_line: VecDeque::new(),
            to_client: UnsentBytes::default(),
            is_client_done: false,
        }
    }

    /// The next transfer from the line: when it is ready, and its bytes. A full block is ready at once, less when the line
    /// becomes idle.
    fn next_from_line(&self) -> Option<(Time, usize)> {
        let block = self.processor.costs().block_bytes.max(1);
        let mut count = 0;
        for (index, run) in self.runs.iter().enumerate() {
            let rest = run.length - run.taken;
            if count + rest >= block {
                return Some((run.start + self.feed.line_time(run.taken + block - count), block));
            }
            count += rest;
            let end = run.start + self.feed.line_time(run.length);
            if self.runs.get(index + 1).is_none_or(|next| next.start > end) {
                return Some((end, count));
            }
        }
        None
    }

    /// Marks characters as taken from the line.
    fn take_from_line(&mut self, mut bytes: usize) {
        while let Some(run) = self.runs.front_mut().filter(|_| bytes > 0) {
            let part = bytes.min(run.length - run.taken);
            run.taken += part;
            bytes -= part;
            if run.taken == run.length {
                self.runs.pop_front();
            }
        }
    }

    /// Performs everything that is due.
    fn advance(&mut self, now: Time) {
        if let Some((_, bytes)) = self.to_line.take_if(|(at, _)| *at <= now) {
            let next = Transfer { bytes: self.processor.costs().block_bytes, from_line: None };
            let start = self.feed.place(bytes.len(), self.processor.cost(next), now);
            self.runs.push_back(LineRun { start, length: bytes.len(), taken: 0 });
            self.characters.extend(bytes);
        }
        while let Some((_, bytes)) = self.next_from_line().filter(|(ready, _)| *ready <= now) {
            let transfer = Transfer { bytes, from_line: Some(self.feed.line_time(1)) };
            let at = self.processor.schedule_transfer(transfer, now).unwrap_or(now);
            self.take_from_line(bytes);
            self.from_line.push_back((at, bytes));
        }
        while let Some(&(_, bytes)) = self.from_line.front().filter(|(at, _)| *at <= now) {
            self.from_line.pop_front();
            self.to_client.extend(self.characters.drain(..bytes));
        }
    }

    /// The next time at which something is due.
    fn next_event(&self) -> Time {
        let times = [
            self.to_line.as_ref().map(|(at, _)| *at),
            self.next_from_line().map(|(ready, _)| ready),
            self.from_line.front().map(|(at, _)| *at),
        ];
        times.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }
}

impl Party for PluggedPort {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.advance(now);
        if !self.to_client.is_empty() {
            return self.to_client.step();
        }
        let event = self.next_event();
        if self.is_client_done && event == Time::NEVER {
            return Step::Done;
        }
        if self.is_client_done || self.to_line.is_some() {
            return Step::Sleep(event);
        }
        if self.feed.ready_at() > now {
            return Step::Sleep(event.min(self.feed.ready_at()));
        }
        Step::Receive { into: &mut self.received, until: event }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.to_client.mark_sent(bytes);
    }

    fn on_received(&mut self, now: Time) {
        let bytes: Vec<u8> = self.received.messages().flatten().copied().collect();
        self.received.clear();
        let transfer = Transfer { bytes: bytes.len(), from_line: None };
        let at = self.processor.schedule_transfer(transfer, now).unwrap_or(now);
        self.to_line = Some((at, bytes));
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_client_done = true;
        Ok(())
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.processor.close_session();
    }
}
