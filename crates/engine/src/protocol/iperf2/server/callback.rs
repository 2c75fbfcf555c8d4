//! Tests that the server runs on links of its own, because a client has asked for that (`-d`, `-r`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;

use super::super::PROTOCOL;
use super::super::datagram::{DatagramLayout, DatagramSender};
use super::super::stream::StreamSender;
use super::super::wire::{DatagramFormat, Settings, TestMode};
use super::{DATAGRAM_BYTES, NEEDS_TRUST, STREAM_BYTES, ServerFacts, sending_load};
use crate::link::party::{CANCEL_CHECK_INTERVAL, Party, drive};
use crate::link::{Caps, Dialer, Fault, Framing, Transports};
use crate::protocol::MemoryBudget;
use crate::protocol::stamp::time::WallClock;
use crate::transport::{tcp, udp};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::sample::Recorder;

/// The links of these tests.
const TRANSPORTS: Transports = Transports(&[tcp::TRANSPORT, udp::TRANSPORT]);

/// Tests of this kind that run at the same time at most.
const MAX_CALLBACKS: usize = 64;

/// The lowest port that a server connects to: those below belong to services.
const MIN_PORT: u16 = 1024;

/// All tests of this kind of a server. They end when it is dropped.
pub(super) struct Callbacks {
    should_stop: Arc<AtomicBool>,
    running: Arc<AtomicUsize>,
    memory: MemoryBudget,
}

impl Callbacks {
    pub fn new(memory: MemoryBudget) -> Callbacks {
        Callbacks { should_stop: Arc::default(), running: Arc::default(), memory }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.should_stop.store(true, Relaxed);
    }
}

/// Counts as a running test until it is dropped.
struct RunningCallback(Arc<AtomicUsize>);

impl Drop for RunningCallback {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Endpoint at which a client wants to be called: at the client's own address only.
fn endpoint_of(facts: &ServerFacts, settings: &Settings, framing: Framing) -> Option<Endpoint> {
    let from: SocketAddr = facts.from.parse().ok()?;
    let to = SocketAddr::new(from.ip(), settings.port);
    let urls = PROTOCOL.default_ports.iter().map(|(scheme, _)| format!("{scheme}://{to}"));
    let mut endpoints = urls.filter_map(|url| url.parse::<Endpoint>().ok());
    let has_framing =
        |endpoint: &Endpoint| TRANSPORTS.caps(endpoint).is_ok_and(|caps| caps.framing == framing);
    endpoints.find(has_framing).filter(|_| settings.port >= MIN_PORT)
}

/// Starts a test with the client of a connection.
pub(super) fn start(
    facts: &ServerFacts,
    settings: &Settings,
    (framing, format): (Framing, DatagramFormat),
) -> Result<(), Fault> {
    let refused = |why: &str| Err(Fault::Refused(why.to_owned()));
    if !facts.trusts_senders {
        return refused(NEEDS_TRUST);
    }
    let Some(endpoint) = endpoint_of(facts, settings, framing) else {
        return refused("the client wants to be called at a port below 1024, or has no IP address");
    };
    let callbacks = &facts.callbacks;
    let bytes = if framing == Framing::Stream { STREAM_BYTES } else { DATAGRAM_BYTES };
    let memory = match callbacks.memory.charge(bytes as u64) {
        Ok(memory) => memory,
        Err(refusal) => return refused(&refusal.to_string()),
    };
    let place = RunningCallback(callbacks.running.clone());
    if callbacks.running.fetch_add(1, Relaxed) >= MAX_CALLBACKS {
        return refused("too many tests run that their clients asked to be called for");
    }
    let (should_stop, load) = (callbacks.should_stop.clone(), sending_load(settings, &facts.limits, framing));
    let back = Settings {
        mode: TestMode::Plain,
        is_extended: format.is_wide && framing == Framing::Message,
        has_wide_numbers: format.is_wide,
        ..*settings
    };
    let run = move || {
        let _held = (memory, place);
        let clock = Clock::System;
        let dialer = Dialer { cancel: should_stop.clone(), ..Dialer::new(TRANSPORTS, &[], clock.clone()) };
        // A client that has gone, or does not listen, needs nothing.
        let Ok(mut link) = dialer.open(&endpoint) else { return };
        let caps: Caps = link.caps().clone();
        let mut party: Box<dyn Party> = match framing {
            Framing::Stream => {
                Box::new(StreamSender::new(&load, &caps, Recorder::for_counting(), back.encode(0)))
            }
            Framing::Message => {
                let settings = back.encode(format.header_bytes);
                let layout = DatagramLayout { format, settings, wall_clock: WallClock::now(&clock) };
                Box::new(DatagramSender::new(&load, &caps, Recorder::for_counting(), layout))
            }
        };
        // The client sees how it ended.
        let _ = drive(party.as_mut(), link.as_mut(), &clock, &should_stop, CANCEL_CHECK_INTERVAL);
    };
    let thread = Builder::new().name("iperf2 callback".to_owned()).spawn(run);
    thread.map(|_| ()).map_err(Fault::system("start a thread"))
}
