//! Moves data from a client to the line: receives, and writes all of it. One party for each client of a port that clients do
//! not control.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::client::{PortClient, STALL_TIMEOUT, SessionEnd};
use super::line_feed::LineFeed;
use super::processor::Transfer;
use super::to_line::RECEIVE_BUFFER_BYTES;
use super::{DeviceServerEvent, ServedPort};
use linkgauge_engine::link::party::{Party, Step};
use linkgauge_engine::link::{Batch, Fault, Link};
use linkgauge_model::clock::Time;

/// Maximum time until a session notices that it has to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A full line is tried again after the time of this number of characters; its driver holds far more.
const RETRY_CHARACTERS: usize = 256;
const RETRY_INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// Next action of the party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    /// Receives until then.
    Receiving(Time),
    /// A slow box makes its transfer then, with what has arrived meanwhile.
    Turn(Time),
    /// Writes to the line.
    Writing,
    /// The line can take another block then.
    Feeding(Time),
}

/// The party on the link of a client.
pub(crate) struct Session {
    port: Arc<ServedPort>,
    client: Arc<PortClient>,
    line: Box<dyn Link>,
    state: SessionState,
    batch: Batch,
    /// Bytes for the line, and how many it has taken.
    to_line: Vec<u8>,
    written: usize,
    feed: LineFeed,
    /// The block of a slow box, or 0.
    block_bytes: usize,
    retry_interval: Duration,
    stuck_since: Option<Time>,
    /// Reason for the end of the session.
    end: Option<SessionEnd>,
}

impl Session {
    /// A session of this client; `line` is a handle of its own.
    pub fn new(port: &Arc<ServedPort>, client: &Arc<PortClient>, line: Box<dyn Link>) -> Session {
        let processor = &port.state.processor;
        processor.open_session();
        let (feed, block_bytes) = (port.line_feed(), processor.costs().block_bytes);
        let [shortest, longest] = RETRY_INTERVALS;
        Session {
            retry_interval: feed.line_time(RETRY_CHARACTERS).clamp(shortest, longest),
            port: port.clone(),
            client: client.clone(),
            line,
            state: SessionState::Feeding(Time(0)),
            batch: Batch::lent(0),
            to_line: Vec::new(),
            written: 0,
            feed,
            block_bytes,
            stuck_since: None,
            end: None,
        }
    }

    /// Ends the session after its party.
    pub fn end(mut self, result: Result<(), Fault>) {
        self.end.get_or_insert_with(|| match result {
            Err(Fault::Closed) => SessionEnd::Closed,
            Err(fault) => SessionEnd::Link(fault),
            Ok(()) if self.port.is_stopping() => SessionEnd::PortClosed,
            Ok(()) => SessionEnd::MadeRoom,
        });
    }

    fn max_bytes(&self) -> usize {
        if self.block_bytes == 0 { RECEIVE_BUFFER_BYTES } else { self.block_bytes }
    }

    fn receive(&mut self, until: Time) -> Step<'_> {
        self.batch.slot_bytes = self.max_bytes() - self.to_line.len();
        Step::Receive { into: &mut self.batch, until }
    }

    /// Writes to the line what it takes now. Returns the time of the next try, unless everything is written.
    fn write(&mut self, now: Time) -> Result<Option<Time>, SessionEnd> {
        while self.written < self.to_line.len() {
            match self.line.send(&self.to_line[self.written..], Duration::ZERO) {
                Ok(length) => {
                    self.written += length;
                    self.stuck_since = None;
                }
                Err(Fault::TimedOut) => {
                    let stuck = now - *self.stuck_since.get_or_insert(now);
                    // What a client has left behind is for the line, unless the line does not want it.
                    if stuck >= STALL_TIMEOUT && self.client.is_hung_up() {
                        return Err(SessionEnd::ClosedWithRest);
                    }
                    return Ok(Some(now + self.retry_interval));
                }
                Err(fault) => {
                    self.port.mark_lost(&fault);
                    return Ok(Some(now + self.retry_interval));
                }
            }
        }
        self.port.counters.to_line.fetch_add(self.written as u64, Relaxed);
        if self.block_bytes > 0 && self.written > 0 {
            self.port.place_block(&mut self.feed, self.written);
        }
        self.to_line.clear();
        self.written = 0;
        self.state = SessionState::Feeding(self.feed.ready_at());
        Ok(None)
    }
}

impl Party for Session {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.port.is_stopping() || self.client.has_ended() {
            return Step::Done;
        }
        if matches!(self.state, SessionState::Turn(at) if now >= at && self.to_line.len() >= self.max_bytes())
        {
            self.state = SessionState::Writing;
        }
        if self.state == SessionState::Writing {
            match self.write(now) {
                Ok(None) => {}
                Ok(Some(at)) => return Step::Sleep(at),
                Err(end) => {
                    self.end = Some(end);
                    return Step::Done;
                }
            }
        }
        match self.state {
            SessionState::Turn(at) | SessionState::Feeding(at) if now < at => {
                Step::Sleep(at.min(now + CHECK_INTERVAL))
            }
            SessionState::Turn(_) => self.receive(now),
            SessionState::Feeding(_) | SessionState::Writing => {
                let until = now + CHECK_INTERVAL;
                self.state = SessionState::Receiving(until);
                self.receive(until)
            }
            SessionState::Receiving(until) => self.receive(until),
        }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, now: Time) {
        let received = self.batch.messages().next().unwrap_or_default();
        self.to_line.extend_from_slice(received);
        self.batch.return_memory();
        let is_first = matches!(self.state, SessionState::Receiving(_));
        let transfer = Transfer { bytes: self.to_line.len(), from_line: None };
        let turn = is_first.then(|| self.port.state.processor.schedule_transfer(transfer, now)).flatten();
        self.state = turn.map_or(SessionState::Writing, SessionState::Turn);
    }

    fn on_timeout(&mut self, _now: Time) {
        self.state = match self.state {
            SessionState::Turn(_) => SessionState::Writing,
            _ => SessionState::Feeding(self.feed.ready_at()),
        };
    }

    /// An end after the first part of a transfer shows itself again.
    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        match self.state {
            SessionState::Turn(_) => {
                self.on_timeout(now);
                Ok(())
            }
            _ => Err(Fault::Closed),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // First, so that a new client that comes meanwhile waits for the place.
        self.client.end();
        self.port.state.processor.close_session();
        self.port.unregister_client(&self.client);
        self.client.finish_sending();
        if let Some(end) = &self.end {
            let (port, from, why) = (self.port.number, self.client.address.clone(), end.to_string());
            self.port.emit(DeviceServerEvent::Disconnected { port, from, why });
        }
        self.client.set_gone();
    }
}
