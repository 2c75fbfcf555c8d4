//! The endpoints of the node: what the link handler (RLNH 2) says about them, and what they do with a signal.

use super::outbox::SHORT_BYTES;
use crate::field;

/// Addresses of the endpoints. Those of benchmark clients follow.
const SERVER: u32 = 1;
const ECHO: u32 = 2;
const DISCARD: u32 = 3;
const FIRST_SLAVE: u32 = 4;

/// Clients of the benchmark at once.
const SLAVES: usize = 4;

/// Signals of `linx_bmark`.
mod signal {
    pub(super) const CONN_EST: u32 = 0x2870;
    pub(super) const ECHO: u32 = 0x2873;
    pub(super) const TERMINATE_REQ: u32 = 0x2874;
    pub(super) const BURST_REQ: u32 = 0x2875;
    pub(super) const ALLOC_REQ: u32 = 0x287a;
    pub(super) const ALLOC_FINI: u32 = 0x287b;
}

/// A short message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    pub(super) addresses: [u32; 2],
    pub(super) bytes: [u8; SHORT_BYTES],
    pub(super) length: usize,
}

impl Short {
    /// Words, then a name with its terminator, padded to whole words; from one endpoint to another.
    fn new(addresses: [u32; 2], words: &[u32], name: Option<&[u8]>) -> Short {
        let mut short = Short { addresses, bytes: [0; SHORT_BYTES], length: 4 * words.len() };
        for (index, word) in words.iter().enumerate() {
            field::write(&mut short.bytes, 4 * index, word.to_be_bytes());
        }
        if let Some(name) = name {
            let name = &name[..name.len().min(SHORT_BYTES - 1 - short.length)];
            short.bytes[short.length..][..name.len()].copy_from_slice(name);
            short.length = (short.length + name.len() + 1).next_multiple_of(4).min(SHORT_BYTES);
        }
        short
    }

    /// The first message of a node: its version.
    pub(super) fn init() -> Short {
        Short::new([0, 0], &[5, 2], None)
    }
}

/// Effect of a signal.
#[derive(Debug, Clone, Copy)]
pub(super) enum SignalEffect {
    /// No effect: the signal is dropped.
    Drop,
    /// Messages to send, in order.
    Messages([Option<Short>; 2]),
    /// The signal goes back.
    Echo,
    /// Burst of `count` signals of this number and size.
    Burst { addresses: [u32; 2], count: u32, number: u32, length: u32 },
    /// The remote node breaks the protocol.
    Disconnect,
}

impl SignalEffect {
    fn message(short: Short) -> SignalEffect {
        SignalEffect::Messages([Some(short), None])
    }
}

/// The endpoint of one client of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slave {
    Free,
    Serving {
        client: u32,
        allocated: Option<[u32; 3]>,
    },
    /// Ended; the remote node has not confirmed it.
    Ended,
}

/// State of the link handler.
#[derive(Debug, Clone)]
pub(super) struct Endpoints {
    /// Messages of the handshake that came: INIT, then INIT_REPLY.
    greetings: u8,
    slaves: [Slave; SLAVES],
    /// Slaves so far, for their names.
    slave_count: u32,
}

impl Endpoints {
    pub(super) const fn new() -> Endpoints {
        Endpoints { greetings: 0, slaves: [Slave::Free; SLAVES], slave_count: 0 }
    }

    /// Handles a message of the remote node's link handler.
    pub(super) fn on_link_message(&mut self, bytes: &[u8]) -> SignalEffect {
        let Some(kind) = field::read_u32(bytes, 0).map(|word| word as u8) else {
            return SignalEffect::Disconnect;
        };
        let word = field::read_u32(bytes, 4).unwrap_or(0);
        // The order of the first two is fixed.
        match (kind, self.greetings) {
            (5, 0) => {
                self.greetings = 1;
                SignalEffect::message(Short::new([0, 0], &[6, u32::from(word > 2)], Some(b"")))
            }
            (6, 1) => {
                self.greetings = 2;
                SignalEffect::Drop
            }
            (_, 0 | 1) => SignalEffect::Disconnect,
            (1, _) => {
                let name = bytes.get(8..).and_then(|text| text.split(|&byte| byte == 0).next());
                let known = [(SERVER, &b"server"[..]), (ECHO, b"echo"), (DISCARD, b"discard")];
                let found = known.into_iter().find(|(_, known)| name == Some(known));
                found.map_or(SignalEffect::Drop, |(address, name)| {
                    SignalEffect::message(Short::new([0, 0], &[2, address], Some(name)))
                })
            }
            (3, _) => {
                for slave in &mut self.slaves {
                    if matches!(slave, Slave::Serving { client, .. } if *client == word) {
                        *slave = Slave::Free;
                    }
                }
                SignalEffect::message(Short::new([0, 0], &[4, word], None))
            }
            (4, _) => {
                if let Some(slave) = self.slave(word).filter(|slave| **slave == Slave::Ended) {
                    *slave = Slave::Free;
                }
                SignalEffect::Drop
            }
            _ => SignalEffect::Drop,
        }
    }

    fn slave(&mut self, address: u32) -> Option<&mut Slave> {
        self.slaves.get_mut(address.checked_sub(FIRST_SLAVE)? as usize)
    }

    /// A signal, whole or its beginning: `length` is that of the whole.
    pub(super) fn on_signal(&mut self, source: u32, destination: u32, bytes: &[u8]) -> SignalEffect {
        let number = field::read_u32(bytes, 0);
        match (destination, number) {
            (ECHO, Some(_)) => SignalEffect::Echo,
            (SERVER, Some(signal::CONN_EST)) => self.begin_slave(source, bytes),
            (FIRST_SLAVE.., Some(number)) => self.on_slave_signal(source, destination, number, bytes),
            _ => SignalEffect::Drop,
        }
    }

    /// Whether signals to this endpoint are dropped, so that they need no buffer.
    pub(super) fn is_dropped(&self, destination: u32) -> bool {
        destination == DISCARD || (destination as usize) >= FIRST_SLAVE as usize + SLAVES
    }

    fn begin_slave(&mut self, client: u32, bytes: &[u8]) -> SignalEffect {
        let Some(at) = self.slaves.iter().position(|slave| *slave == Slave::Free) else {
            return SignalEffect::Drop;
        };
        self.slaves[at] = Slave::Serving { client, allocated: None };
        self.slave_count = (self.slave_count + 1) % 100_000_000;
        let address = FIRST_SLAVE + at as u32;
        let mut name = *b"linx_bmark_00000000";
        let mut number = self.slave_count;
        for digit in name.iter_mut().rev().take(8) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let word = |index: usize| field::read_u32(bytes, 4 * index).unwrap_or(0);
        SignalEffect::Messages([
            Some(Short::new([0, 0], &[2, address], Some(&name))),
            Some(Short::new([address, client], &[signal::CONN_EST, word(1), word(2)], None)),
        ])
    }

    fn on_slave_signal(&mut self, source: u32, destination: u32, number: u32, bytes: &[u8]) -> SignalEffect {
        let fields =
            || Some([field::read_u32(bytes, 4)?, field::read_u32(bytes, 8)?, field::read_u32(bytes, 12)?]);
        let Some(slave) = self.slave(destination) else { return SignalEffect::Drop };
        let Slave::Serving { client, allocated } = slave else { return SignalEffect::Drop };
        if *client != source {
            return SignalEffect::Drop;
        }
        match number {
            signal::ECHO => SignalEffect::Echo,
            signal::ALLOC_REQ => {
                *allocated = fields();
                let [count, number, size] = allocated.unwrap_or_default();
                let words = [signal::ALLOC_FINI, count, number, size];
                SignalEffect::message(Short::new([destination, source], &words, None))
            }
            signal::BURST_REQ => match allocated.take().or_else(fields) {
                Some([count, number, length]) => {
                    SignalEffect::Burst { addresses: [destination, source], count, number, length }
                }
                None => SignalEffect::Drop,
            },
            signal::TERMINATE_REQ => {
                *slave = Slave::Ended;
                SignalEffect::message(Short::new([0, 0], &[3, destination], None))
            }
            _ => SignalEffect::Drop,
        }
    }
}
