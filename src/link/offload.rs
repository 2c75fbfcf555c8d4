//! How many datagrams go best through the kernel at once: measured once per process on a pair of loop-back sockets.
//!
//! One thread sends a run of datagrams and takes it in again, so the rates weigh the work of both ends together. They
//! choose between ways; they are not a measurement of any link. Not for latency: links use this only for bulk.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::socket::{Wants, wait_for};
use super::{COALESCED, Facts, sys};
use crate::clock::Clock;

/// How several datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// One in each call.
    Single,
    /// Several in each call (`sendmmsg`).
    Many,
    /// One large one that is cut below (`UDP_SEGMENT`).
    Segments,
}

/// How several datagrams are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// One in each call.
    Single,
    /// Several in each call (`recvmmsg`).
    Many,
    /// Those that the kernel has joined (`UDP_GRO`).
    Coalesced,
}

impl Sending {
    pub const fn name(self) -> &'static str {
        match self {
            Sending::Single => "send",
            Sending::Many => "sendmmsg",
            Sending::Segments => "gso",
        }
    }
}

impl Receiving {
    pub const fn name(self) -> &'static str {
        match self {
            Receiving::Single => "recv",
            Receiving::Many => "recvmmsg",
            Receiving::Coalesced => "gro",
        }
    }
}

/// Whether a way of the kernel may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Where it measures better.
    Auto,
    Off,
    On,
}

/// What the endpoint allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    pub segments: Choice,
    pub coalesced: Choice,
}

impl Offload {
    /// Families without offloads.
    pub const NONE: Offload = Offload { segments: Choice::Off, coalesced: Choice::Off };

    /// The ways to use for messages of this size.
    pub fn best(self, message: usize) -> (Sending, Receiving) {
        // Few messages fit into a packet of 64 KiB then, and copying them outweighs the calls.
        let auto = if message > LARGE { Choice::Off } else { Choice::Auto };
        let settle = |choice| if choice == Choice::Auto { auto } else { choice };
        let (segments, coalesced) = (settle(self.segments), settle(self.coalesced));
        let allowed = |choice: Choice, used: bool| match choice {
            Choice::Auto => true,
            Choice::Off => !used,
            Choice::On => used,
        };
        let fits = |&&(sending, receiving, _): &&(Sending, Receiving, f64)| {
            allowed(segments, sending == Sending::Segments)
                && allowed(coalesced, receiving == Receiving::Coalesced)
                && sending != Sending::Single
        };
        if segments != Choice::Auto && coalesced != Choice::Auto {
            let sending = if segments == Choice::On { Sending::Segments } else { Sending::Many };
            let receiving = if coalesced == Choice::On { Receiving::Coalesced } else { Receiving::Many };
            return (sending, receiving);
        }
        let best = rates().iter().filter(fits).max_by(|a, b| a.2.total_cmp(&b.2));
        best.map_or((Sending::Many, Receiving::Many), |&(sending, receiving, _)| (sending, receiving))
    }

    /// Adds the measured rates to the facts, once they have been measured.
    pub fn note(self, facts: &mut Facts) {
        if let Some(rates) = RATES.get().filter(|_| self != Offload::NONE) {
            let rates = rates.iter().map(|(sending, receiving, rate)| {
                (format!("{}_{}", sending.name(), receiving.name()), Value::from(rate.round()))
            });
            facts.insert("batch_probe_messages_per_second".to_owned(), Value::Object(rates.collect()));
            facts.insert("batch_probe_message_bytes".to_owned(), MESSAGE.into());
        }
    }
}

/// From this message size on the offloads are left alone unless asked for.
const LARGE: usize = 16 * 1024;

/// What fits an Ethernet frame beside any header, and is usual for bulk over UDP.
const MESSAGE: usize = 1400;

/// As many as one packet of 64 KiB holds.
const RUN: usize = 46;

/// Time for each of the five combinations.
const EACH: Duration = Duration::from_millis(10);

const COMBINATIONS: [(Sending, Receiving); 5] = [
    (Sending::Single, Receiving::Single),
    (Sending::Many, Receiving::Many),
    (Sending::Many, Receiving::Coalesced),
    (Sending::Segments, Receiving::Many),
    (Sending::Segments, Receiving::Coalesced),
];

type Rates = Vec<(Sending, Receiving, f64)>;

static RATES: OnceLock<Rates> = OnceLock::new();

/// Messages per second of each combination that works here; takes about 50 ms the first time.
fn rates() -> &'static Rates {
    RATES.get_or_init(|| {
        let measured = |&(sending, receiving)| {
            Pair::new()
                .and_then(|mut pair| pair.rate(sending, receiving))
                .map(|rate| (sending, receiving, rate))
        };
        COMBINATIONS.iter().filter_map(measured).collect()
    })
}

struct Pair {
    sender: Socket,
    receiver: Socket,
    run: Vec<u8>,
    room: Vec<u8>,
}

impl Pair {
    fn new() -> Option<Pair> {
        let socket = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).ok()?;
            Some(socket)
        };
        let (sender, receiver) = (socket()?, socket()?);
        sender.connect(&receiver.local_addr().ok()?).ok()?;
        receiver.connect(&sender.local_addr().ok()?).ok()?;
        Some(Pair { sender, receiver, run: vec![0x5a; RUN * MESSAGE], room: vec![0; COALESCED] })
    }

    /// `None` where the kernel refuses or loses.
    fn rate(&mut self, sending: Sending, receiving: Receiving) -> Option<f64> {
        if receiving == Receiving::Coalesced {
            sys::set_udp_coalescing(&self.receiver, true).ok()?;
        }
        let clock = Clock::System;
        let start = clock.now();
        let mut moved = 0;
        loop {
            self.send(sending).ok()?;
            let mut bytes = 0;
            while bytes < self.run.len() {
                match self.receive(receiving) {
                    Ok(length) => bytes += length,
                    Err(Errno::AGAIN) => {
                        wait_for(&self.receiver, Wants::ToReceive, PATIENCE);
                        bytes += self.receive(receiving).ok()?;
                    }
                    Err(_) => return None,
                }
            }
            moved += RUN;
            let passed = clock.now() - start;
            if passed >= EACH {
                return Some(moved as f64 / passed.as_secs_f64());
            }
        }
    }

    fn send(&self, sending: Sending) -> Result<(), Errno> {
        let mut left = &self.run[..];
        while !left.is_empty() {
            let taken = match sending {
                Sending::Single => {
                    rustix::net::send(&self.sender, &left[..MESSAGE], rustix::net::SendFlags::DONTWAIT)
                }
                Sending::Many => {
                    sys::send_many(&self.sender, left, MESSAGE, false).map(|messages| messages * MESSAGE)
                }
                Sending::Segments => sys::send_segments(&self.sender, left, MESSAGE as u16, false),
            }?;
            left = &left[taken.min(left.len())..];
        }
        Ok(())
    }

    fn receive(&mut self, receiving: Receiving) -> Result<usize, Errno> {
        match receiving {
            Receiving::Single => {
                rustix::net::recv(&self.receiver, &mut self.room[..], rustix::net::RecvFlags::DONTWAIT)
                    .map(|(length, _)| length)
            }
            Receiving::Many => {
                let mut bytes = 0;
                sys::receive_many(&self.receiver, &mut self.room, MESSAGE, false, |_, length| {
                    bytes += length
                })?;
                Ok(bytes)
            }
            Receiving::Coalesced => {
                sys::receive_coalesced(&self.receiver, &mut self.room, false).map(|(length, _)| length)
            }
        }
    }
}

/// Loop-back delivers at once, but a softirq may be put off while the machine is busy.
const PATIENCE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_kept_and_large_messages_go_one_by_one() {
        let off = Offload { segments: Choice::Off, coalesced: Choice::Off };
        assert_eq!(off.best(1400), (Sending::Many, Receiving::Many));
        let on = Offload { segments: Choice::On, coalesced: Choice::On };
        assert_eq!(on.best(1400), (Sending::Segments, Receiving::Coalesced));
        let auto = Offload { segments: Choice::Auto, coalesced: Choice::Auto };
        assert_eq!(auto.best(60_000), (Sending::Many, Receiving::Many));
    }

    #[test]
    fn every_way_is_measured_here() {
        let rates = rates();
        assert!(rates.iter().any(|&(sending, receiving, rate)| {
            (sending, receiving) == (Sending::Single, Receiving::Single) && rate > 0.0
        }));
        let auto = Offload { segments: Choice::Auto, coalesced: Choice::Auto };
        assert_ne!(auto.best(1400).0, Sending::Single);
        let mut facts = Facts::new();
        auto.note(&mut facts);
        assert!(facts.contains_key("batch_probe_messages_per_second"));
    }
}
