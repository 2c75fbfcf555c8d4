//! The links and servers of one process, and the order of their events.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::server_end::ServerEnd;
use super::{MemDirection, MemPath};
use crate::link::party::{Party, PartyCost, StepMode, StepOutcome, perform_step};
use crate::link::shaped::{Shape, SharedPath};
use crate::link::{Caps, Fault, Link, PartyFactory};
use linkgauge_model::clock::{Clock, Time};

/// Two pipes and the server at their end.
pub(crate) struct MemConnection {
    /// Path and pipe from the client to the server.
    pub(crate) forward: MemDirection,
    /// Path and pipe from the server to the client.
    pub(crate) reverse: MemDirection,
    /// The server's party; `None` once it has ended.
    pub(crate) server: Option<Box<dyn Party>>,
    /// The capabilities of both ends.
    pub(crate) caps: Caps,
    /// Handles of the client that are open.
    pub(crate) handle_count: usize,
}

pub(super) struct MemState {
    /// Shows the time up to which the servers have run, at most [`LAST_TIME`].
    server_clock: Clock,
    /// The listeners with their names.
    pub(crate) listeners: Vec<(String, PartyFactory)>,
    /// The shapes of links to listeners of these names, from the client and to it, and the seed of their faults.
    pub(crate) shapes: Vec<(String, [Shape; 2], u64)>,
    /// The connections, by number; `None` once one has ended.
    pub(crate) connections: Vec<Option<MemConnection>>,
    /// Connections that were ever opened.
    pub(crate) opened_count: u64,
    /// The paths that all connections of an endpoint share, by its URL.
    shared_paths: Vec<(String, [SharedPath; 2])>,
}

/// The servers' clock stops before [`Time::NEVER`], so that no server sees an event that never happens.
const LAST_TIME: Time = Time(Time::NEVER.0 - 1);

/// All `mem://` links and servers of a process. Clones are handles of the same network.
#[derive(Clone)]
pub struct MemNetwork {
    state: Arc<Mutex<MemState>>,
    pub(super) clock: Clock,
}

impl std::fmt::Debug for MemNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Net")
    }
}

impl MemNetwork {
    /// A network without servers, on this clock.
    pub fn new(clock: Clock) -> MemNetwork {
        let state = MemState {
            server_clock: Clock::new_virtual(),
            listeners: Vec::new(),
            shapes: Vec::new(),
            connections: Vec::new(),
            opened_count: 0,
            shared_paths: Vec::new(),
        };
        MemNetwork { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Gives all later links to the listener of this name these shapes, from the client and to it, instead of those of
    /// their URLs. The same seed has the same effect on the same messages.
    pub fn shape_links(&self, name: &str, shapes: [Shape; 2], seed: u64) {
        let mut state = self.lock_state();
        state.shapes.retain(|(other, ..)| other != name);
        state.shapes.push((name.to_owned(), shapes, seed));
    }

    /// Lets all connections of this URL, which has `share=yes`, share these paths, from the client and to it.
    pub fn share_paths(&self, url: &str, paths: [SharedPath; 2]) {
        let mut state = self.lock_state();
        state.shared_paths.retain(|(other, _)| other != url);
        state.shared_paths.push((url.to_owned(), paths));
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, MemState> {
        // After a panic of one server the state stays valid for the others.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs all servers up to the current time, then moves a virtual clock to the next event, at most to
    /// `limit`.
    pub fn advance(&self, limit: Time) {
        let now = self.clock.now();
        let next = self.lock_state().run_servers(now, None).min(limit).max(now);
        self.clock.sleep_until(next);
    }

    /// Retries `act` until it returns a value; runs the servers and waits meanwhile.
    pub(super) fn retry_within<T>(
        &self,
        id: usize,
        within: Duration,
        mut act: impl FnMut(&mut MemConnection, Time) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let until = self.clock.now() + within;
        loop {
            let now = self.clock.now();
            let next = {
                let mut state = self.lock_state();
                let next = state.run_servers(now, Some(id));
                let connection = state.connections[id].as_mut().ok_or(Fault::Closed)?;
                if let Some(done) = act(connection, now)? {
                    return Ok(done);
                }
                next
            };
            if now >= until {
                return Err(Fault::TimedOut);
            }
            match self.clock {
                // Another thread may use the network meanwhile, so real time passes in short sleeps.
                Clock::System => self.clock.sleep_until(next.min(until).min(now + Duration::from_millis(1))),
                Clock::Virtual(_) => self.clock.sleep_until(next.min(until)),
            }
        }
    }
}

impl MemState {
    /// The paths in both directions that all connections of this URL share; made of these shapes and seeds if there are none.
    pub(super) fn shared_paths(&mut self, url: &str, new: [(Shape, u64); 2]) -> [MemPath; 2] {
        let known = self.shared_paths.iter().position(|(known, _)| known == url);
        let index = known.unwrap_or_else(|| {
            let paths = new.map(|(shape, seed)| SharedPath::new(shape, seed));
            self.shared_paths.push((url.to_owned(), paths));
            self.shared_paths.len() - 1
        });
        self.shared_paths[index].1.clone().map(MemPath::Shared)
    }

    /// Runs the servers up to `now`; returns the time of the next event. An arrival at the client of
    /// connection `reader` (or of any connection) is an event.
    pub(crate) fn run_servers(&mut self, now: Time, reader: Option<usize>) -> Time {
        loop {
            let mut moved = false;
            let mut next = Time::NEVER;
            for (id, slot) in self.connections.iter_mut().enumerate() {
                let Some(connection) = slot else { continue };
                if connection.handle_count == 0 && connection.server.is_none() {
                    *slot = None;
                    continue;
                }
                match connection.step_server(&self.server_clock) {
                    MemStepOutcome::Progress => moved = true,
                    MemStepOutcome::Waiting(until) => next = next.min(until),
                }
                let arrival = connection.reverse.pipe.next_due().filter(|&due| due > now);
                if let Some(due) = arrival.filter(|_| reader.is_none_or(|reader| reader == id)) {
                    next = next.min(due);
                }
            }
            if moved {
                continue;
            }
            // At the end of time there is no later event.
            if next > now || next == Time::NEVER {
                self.server_clock.sleep_until(now.min(LAST_TIME));
                return next;
            }
            self.server_clock.sleep_until(next.min(LAST_TIME));
        }
    }
}

enum MemStepOutcome {
    Progress,
    Waiting(Time),
}

impl MemConnection {
    /// Runs one step of the server, at the time of its clock.
    fn step_server(&mut self, clock: &Clock) -> MemStepOutcome {
        let MemConnection { forward, reverse, server, caps, .. } = self;
        let Some(party) = server else { return MemStepOutcome::Waiting(Time::NEVER) };
        let now = clock.now();
        let mut end = ServerEnd { forward, reverse, caps, now };
        let mode = StepMode::Blocking(Duration::ZERO);
        match perform_step(party.as_mut(), &mut end, clock, &mut now.clone(), mode) {
            Ok(
                StepOutcome::Progress
                | StepOutcome::ReceivedLessThanFits
                | StepOutcome::Tuned(_)
                | StepOutcome::Reopened,
            ) => MemStepOutcome::Progress,
            Ok(StepOutcome::Sleeping(until)) => MemStepOutcome::Waiting(until),
            Ok(
                StepOutcome::Waiting(until) | StepOutcome::SendBlocked(until) | StepOutcome::Opening(until),
            ) => {
                let arrival = self.forward.pipe.next_due().filter(|&due| due > now);
                MemStepOutcome::Waiting(until.min(arrival.unwrap_or(Time::NEVER)))
            }
            Ok(StepOutcome::Done) | Err(_) => {
                party.on_ended(PartyCost::default());
                end.abort();
                self.server = None;
                MemStepOutcome::Progress
            }
        }
    }
}
