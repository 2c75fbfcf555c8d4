//! Chooses how many datagrams to pass to the kernel at once: measured once per process on a pair of loopback
//! sockets.
//!
//! One thread sends and receives a run of datagrams, so the rates include the work of both ends. The rates
//! only choose a method; they do not measure any link. Only bulk transfers use this, not latency
//! measurements.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::socket::{IoDirection, wait_ready};
use crate::link::{Facts, MAX_COALESCED_BYTES};
use linkgauge_model::clock::Clock;
use linkgauge_system::{self as system, Blocking, Errno};

/// Method of sending several datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMethod {
    /// One datagram per call.
    Single,
    /// Several datagrams per call (`sendmmsg`).
    Many,
    /// One large datagram that the kernel or the card segments (`UDP_SEGMENT`).
    Segments,
}

/// Method of receiving several datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveMethod {
    /// One datagram per call.
    Single,
    /// Several datagrams per call (`recvmmsg`).
    Many,
    /// Datagrams that the kernel has coalesced (`UDP_GRO`).
    Coalesced,
}

impl SendMethod {
    /// The name in run documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            SendMethod::Single => "send",
            SendMethod::Many => "sendmmsg",
            SendMethod::Segments => "gso",
        }
    }
}

impl ReceiveMethod {
    /// The name in run documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ReceiveMethod::Single => "recv",
            ReceiveMethod::Many => "recvmmsg",
            ReceiveMethod::Coalesced => "gro",
        }
    }
}

/// Whether an offload may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OffloadChoice {
    /// The offload is used if it measures faster.
    Auto,
    Off,
    On,
}

/// The offloads that the endpoint permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffloadOptions {
    /// Segmentation of sent datagrams by the kernel or the card.
    pub(crate) segments: OffloadChoice,
    /// Coalescing of received datagrams by the kernel.
    pub(crate) coalesced: OffloadChoice,
}

impl OffloadOptions {
    /// Options for address families without offloads.
    pub(crate) const NONE: OffloadOptions =
        OffloadOptions { segments: OffloadChoice::Off, coalesced: OffloadChoice::Off };

    /// The fastest permitted methods for messages of this size.
    pub(crate) fn best_methods(self, message: usize) -> (SendMethod, ReceiveMethod) {
        // A packet of 64 KiB holds few such messages, and copying them costs more than the calls.
        let auto = if message > MAX_OFFLOAD_MESSAGE_BYTES { OffloadChoice::Off } else { OffloadChoice::Auto };
        let settle = |choice| if choice == OffloadChoice::Auto { auto } else { choice };
        let (segments, coalesced) = (settle(self.segments), settle(self.coalesced));
        let allowed = |choice: OffloadChoice, used: bool| match choice {
            OffloadChoice::Auto => true,
            OffloadChoice::Off => !used,
            OffloadChoice::On => used,
        };
        let fits = |&&(sending, receiving, _): &&(SendMethod, ReceiveMethod, f64)| {
            allowed(segments, sending == SendMethod::Segments)
                && allowed(coalesced, receiving == ReceiveMethod::Coalesced)
                && sending != SendMethod::Single
        };
        if segments != OffloadChoice::Auto && coalesced != OffloadChoice::Auto {
            let sending = if segments == OffloadChoice::On { SendMethod::Segments } else { SendMethod::Many };
            let receiving =
                if coalesced == OffloadChoice::On { ReceiveMethod::Coalesced } else { ReceiveMethod::Many };
            return (sending, receiving);
        }
        let best = method_rates().iter().filter(fits).max_by(|a, b| a.2.total_cmp(&b.2));
        best.map_or((SendMethod::Many, ReceiveMethod::Many), |&(sending, receiving, _)| (sending, receiving))
    }

    /// Measures the methods if one of them may be chosen. A flow that measured them itself would lose what arrives meanwhile.
    pub(crate) fn prepare(self) {
        if [self.segments, self.coalesced].contains(&OffloadChoice::Auto) {
            method_rates();
        }
    }

    /// Adds the measured rates to the facts, once they have been measured.
    pub(crate) fn insert_facts(self, facts: &mut Facts) {
        if let Some(rates) = METHOD_RATES.get().filter(|_| self != OffloadOptions::NONE) {
            let rates = rates.iter().map(|(sending, receiving, rate)| {
                (format!("{}_{}", sending.name(), receiving.name()), Value::from(rate.round()))
            });
            facts.insert("batch_probe_messages_per_second".to_owned(), Value::Object(rates.collect()));
            facts.insert("batch_probe_message_bytes".to_owned(), PROBE_MESSAGE_BYTES.into());
        }
    }
}

/// Message size in bytes above which offloads are used only on request.
const MAX_OFFLOAD_MESSAGE_BYTES: usize = 16 * 1024;

/// Message size in bytes that fits an Ethernet frame with any headers; usual for bulk transfers over UDP.
const PROBE_MESSAGE_BYTES: usize = 1400;

/// Number of these messages that a packet of 64 KiB holds.
const PROBE_MESSAGES: usize = 46;

/// Time for each of the five combinations.
const PROBE_TIME: Duration = Duration::from_millis(10);

const METHOD_COMBINATIONS: [(SendMethod, ReceiveMethod); 5] = [
    (SendMethod::Single, ReceiveMethod::Single),
    (SendMethod::Many, ReceiveMethod::Many),
    (SendMethod::Many, ReceiveMethod::Coalesced),
    (SendMethod::Segments, ReceiveMethod::Many),
    (SendMethod::Segments, ReceiveMethod::Coalesced),
];

type MethodRates = Vec<(SendMethod, ReceiveMethod, f64)>;

static METHOD_RATES: OnceLock<MethodRates> = OnceLock::new();

/// Messages per second of each supported combination; the first call takes about 50 ms.
fn method_rates() -> &'static MethodRates {
    METHOD_RATES.get_or_init(|| {
        let measured = |&(sending, receiving)| {
            ProbePair::new()
                .and_then(|mut pair| pair.measure_rate(sending, receiving))
                .map(|rate| (sending, receiving, rate))
        };
        METHOD_COMBINATIONS.iter().filter_map(measured).collect()
    })
}

struct ProbePair {
    sender: Socket,
    receiver: Socket,
    payload: Vec<u8>,
    receive_buffer: Vec<u8>,
}

impl ProbePair {
    pub fn new() -> Option<ProbePair> {
        let socket = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).ok()?;
            system::prepare_socket(&socket).ok()?;
            Some(socket)
        };
        let (sender, receiver) = (socket()?, socket()?);
        sender.connect(&receiver.local_addr().ok()?).ok()?;
        receiver.connect(&sender.local_addr().ok()?).ok()?;
        Some(ProbePair {
            sender,
            receiver,
            payload: vec![0x5a; PROBE_MESSAGES * PROBE_MESSAGE_BYTES],
            receive_buffer: vec![0; MAX_COALESCED_BYTES],
        })
    }

    /// `None` if the kernel refuses the method or loses messages.
    fn measure_rate(&mut self, sending: SendMethod, receiving: ReceiveMethod) -> Option<f64> {
        if receiving == ReceiveMethod::Coalesced {
            system::set_udp_coalescing(&self.receiver, true).ok()?;
        }
        let clock = Clock::System;
        let start = clock.now();
        let mut moved = 0;
        loop {
            self.send(sending).ok()?;
            let mut bytes = 0;
            while bytes < self.payload.len() {
                match self.receive(receiving) {
                    Ok(length) => bytes += length,
                    Err(Errno::AGAIN) => {
                        wait_ready(&self.receiver, IoDirection::Receive, RECEIVE_TIMEOUT);
                        bytes += self.receive(receiving).ok()?;
                    }
                    Err(_) => return None,
                }
            }
            moved += PROBE_MESSAGES;
            let passed = clock.now() - start;
            if passed >= PROBE_TIME {
                return Some(moved as f64 / passed.as_secs_f64());
            }
        }
    }

    fn send(&self, sending: SendMethod) -> Result<(), Errno> {
        let mut left = &self.payload[..];
        while !left.is_empty() {
            let taken = match sending {
                SendMethod::Single => {
                    system::send(&self.sender, &left[..PROBE_MESSAGE_BYTES], Blocking::Never)
                }
                SendMethod::Many => {
                    system::send_many(&self.sender, left, PROBE_MESSAGE_BYTES, Blocking::Never)
                        .map(|messages| messages * PROBE_MESSAGE_BYTES)
                }
                SendMethod::Segments => {
                    system::send_segments(&self.sender, left, PROBE_MESSAGE_BYTES as u16, Blocking::Never)
                }
            }?;
            left = &left[taken.min(left.len())..];
        }
        Ok(())
    }

    fn receive(&mut self, receiving: ReceiveMethod) -> Result<usize, Errno> {
        match receiving {
            ReceiveMethod::Single => {
                system::receive(&self.receiver, &mut self.receive_buffer, Blocking::Never)
            }
            ReceiveMethod::Many => {
                let mut bytes = 0;
                system::receive_many(
                    &self.receiver,
                    &mut self.receive_buffer,
                    PROBE_MESSAGE_BYTES,
                    Blocking::Never,
                    |_, length| bytes += length,
                )?;
                Ok(bytes)
            }
            ReceiveMethod::Coalesced => {
                system::receive_with_info(&self.receiver, &mut self.receive_buffer, Blocking::Never)
                    .map(|(length, _)| length)
            }
        }
    }
}

/// Loopback delivers at once, but a softirq may be delayed on a busy machine.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Registry;

    #[test]
    fn the_choice_is_respected_and_large_messages_are_not_offloaded() {
        let off = OffloadOptions { segments: OffloadChoice::Off, coalesced: OffloadChoice::Off };
        assert_eq!(off.best_methods(1400), (SendMethod::Many, ReceiveMethod::Many));
        let on = OffloadOptions { segments: OffloadChoice::On, coalesced: OffloadChoice::On };
        assert_eq!(on.best_methods(1400), (SendMethod::Segments, ReceiveMethod::Coalesced));
        let auto = OffloadOptions { segments: OffloadChoice::Auto, coalesced: OffloadChoice::Auto };
        assert_eq!(auto.best_methods(60_000), (SendMethod::Many, ReceiveMethod::Many));
    }

    #[test]
    fn a_server_measures_before_its_first_flow() {
        let dialer = Registry::standard().dialer(Clock::System);
        assert!(dialer.listen(&"udp://127.0.0.1:0".parse().unwrap()).is_ok());
        assert!(METHOD_RATES.get().is_some());
    }

    #[test]
    fn every_method_is_measured_here() {
        let rates = method_rates();
        assert!(rates.iter().any(|&(sending, receiving, rate)| {
            (sending, receiving) == (SendMethod::Single, ReceiveMethod::Single) && rate > 0.0
        }));
        let auto = OffloadOptions { segments: OffloadChoice::Auto, coalesced: OffloadChoice::Auto };
        assert_ne!(auto.best_methods(1400).0, SendMethod::Single);
        let mut facts = Facts::new();
        auto.insert_facts(&mut facts);
        assert!(facts.contains_key("batch_probe_messages_per_second"));
    }
}
