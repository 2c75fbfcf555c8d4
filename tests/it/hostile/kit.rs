//! The behaviours of hostile ends, as a party that wraps an honest one, and as a thread with a socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use linkgauge::clock::Time;
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Batch, Fault};

/// The behaviour of a hostile end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Reads, and sends nothing.
    Silent,
    Close,
    /// Closes with unread bytes, so that the other end gets an error if the link supports it.
    Reset,
    Garbage,
    Zeros,
    /// The first half of each of its messages.
    Half,
    /// One byte at a time, with a pause.
    Drip,
    /// Each of its messages twice.
    Doubled,
    NeverReads,
    /// Talks as fast as the link carries it, and reads nothing.
    Endless,
    /// Its messages with other numbers in them: the largest, the smallest, negative, none.
    Absurd(u8),
}

use Manner::*;

pub const MANNERS: [Manner; 15] = [
    Silent,
    Close,
    Reset,
    Garbage,
    Zeros,
    Half,
    Drip,
    Doubled,
    NeverReads,
    Endless,
    Absurd(0),
    Absurd(1),
    Absurd(2),
    Absurd(3),
    Absurd(4),
];

/// Those that need no honest messages to start with.
pub const BARE: [Manner; 7] = [Silent, Close, Reset, Garbage, Zeros, NeverReads, Endless];

/// Numbers that no honest end sends, and the byte that stands for them in binary messages.
const NUMBERS: [(&str, u8); 5] =
    [("18446744073709551615", 0xFF), ("1e308", 0x7F), ("-1", 0x80), ("0", 0x00), ("5e-324", 0x01)];

/// Between two unrequested messages, and between two bytes of a dripping one.
const PAUSE: Duration = Duration::from_millis(50);

/// Length of an unrequested message.
const WORD: usize = 600;

/// The messages of an honest end with absurd numbers. Texts stay texts, with their length corrected.
pub fn absurd(words: &[u8], number: u8) -> Vec<u8> {
    let (text, byte) = NUMBERS[usize::from(number) % NUMBERS.len()];
    let Some(begin) = words.iter().position(|&byte| byte == b'{') else {
        // The first bytes give the kind of the message.
        let kept = words.len().min(4);
        return words[..kept].iter().copied().chain(std::iter::repeat_n(byte, words.len() - kept)).collect();
    };
    let mut damaged = words[..begin].to_vec();
    let (mut quoted, mut number) = (false, false);
    for &byte in &words[begin..] {
        quoted ^= byte == b'"';
        let of_number =
            !quoted && (byte.is_ascii_digit() || b"+-.".contains(&byte) || number && byte == b'e');
        if of_number && !number {
            damaged.extend(text.as_bytes());
        }
        if !of_number {
            damaged.push(byte);
        }
        number = of_number;
    }
    // Of our own frames and of iperf3's: the length stands before the text.
    let length = (damaged.len() - begin) as u32;
    for at in [begin.checked_sub(8), begin.checked_sub(4)].into_iter().flatten() {
        if damaged[at..at + 4] == ((words.len() - begin) as u32).to_be_bytes() {
            damaged[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    damaged
}

/// An unrequested message.
fn word(manner: Manner) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(3);
    (0..WORD).map(|_| if manner == Zeros { 0 } else { random.u8(..) }).collect()
}

/// An honest end that starts to misbehave after this number of its messages.
pub struct Meddler {
    inner: Box<dyn Party>,
    manner: Manner,
    after: usize,
    sent_messages: usize,
    batch: Batch,
    /// The last receipt was asked for by the honest end.
    inners: bool,
    /// The bytes of a message to send, the number already sent, and the number of bytes of the honest end that they
    /// replace.
    out: Vec<u8>,
    sent: usize,
    stands_for: usize,
    due: Time,
}

impl Meddler {
    pub fn boxed(inner: Box<dyn Party>, manner: Manner, after: usize) -> Box<dyn Party> {
        Box::new(Meddler {
            inner,
            manner,
            after,
            sent_messages: 0,
            batch: Batch::new(65_536, 1),
            inners: false,
            out: Vec::new(),
            sent: 0,
            stands_for: 0,
            due: Time(0),
        })
    }

    fn is_hostile(&self) -> bool {
        self.sent_messages >= self.after
    }

    /// The rest of the current message.
    fn rest(&mut self, now: Time) -> Step<'_> {
        if self.manner == Drip {
            if now < self.due {
                return Step::Sleep(self.due);
            }
            return Step::Send { bytes: &self.out[self.sent..=self.sent], message: 1 };
        }
        let rest = &self.out[self.sent..];
        Step::Send { bytes: rest, message: rest.len() }
    }
}

impl Party for Meddler {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        self.inners = false;
        if self.sent < self.out.len() {
            return self.rest(now);
        }
        if self.is_hostile() {
            match self.manner {
                Silent => return Step::Receive { into: &mut self.batch, until: Time::NEVER },
                Close | Reset => return Step::Done,
                NeverReads => return Step::Sleep(Time::NEVER),
                Endless => {
                    (self.out, self.sent) = (word(self.manner), 0);
                    return self.rest(now);
                }
                Garbage | Zeros => {
                    if now >= self.due {
                        (self.out, self.sent, self.due) = (word(self.manner), 0, now + PAUSE);
                        return self.rest(now);
                    }
                    return Step::Receive { into: &mut self.batch, until: self.due };
                }
                Half | Drip | Doubled | Absurd(_) => {}
            }
        }
        let hostile = self.sent_messages >= self.after;
        match self.inner.next_step(now) {
            Step::Send { bytes, .. } if hostile && !bytes.is_empty() => {
                self.stands_for = bytes.len();
                self.sent = 0;
                self.out = match self.manner {
                    Half => bytes[..bytes.len().div_ceil(2)].to_vec(),
                    Doubled => [bytes, bytes].concat(),
                    Absurd(number) => absurd(bytes, number),
                    _ => bytes.to_vec(),
                };
            }
            step => {
                self.inners = true;
                return step;
            }
        }
        // The next step sends it.
        Step::Sleep(now)
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.inners {
            self.sent_messages += 1;
            self.inner.on_sent(bytes, at);
            return;
        }
        self.sent += bytes;
        if self.manner == Drip {
            self.due = at + PAUSE;
        }
        if self.sent >= self.out.len() && self.stands_for > 0 {
            let stood_for = std::mem::take(&mut self.stands_for);
            self.inner.on_sent(stood_for, at);
        }
    }

    fn on_received(&mut self, now: Time) {
        if self.inners {
            self.inner.on_received(now);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.inners {
            self.inner.on_timeout(now);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        if self.inners { self.inner.on_closed(now) } else { Err(Fault::Closed) }
    }
}

/// Returns what it receives: the honest end of protocols that this program does not serve.
pub struct Mirror {
    batch: Batch,
    pending: usize,
    returned: usize,
}

impl Mirror {
    pub fn new() -> Mirror {
        Mirror { batch: Batch::new(65_536, 1), pending: 0, returned: 0 }
    }
}

impl Party for Mirror {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.returned < self.pending {
            let rest = &self.batch.bytes[self.returned..self.pending];
            return Step::Send { bytes: rest, message: rest.len() };
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.returned += bytes;
    }

    fn on_received(&mut self, _now: Time) {
        (self.pending, self.returned) = (self.batch.total_bytes() as usize, 0);
    }

    fn on_timeout(&mut self, _now: Time) {}
}

/// A hostile server on a TCP and a UDP port of this host; its threads end with it, as far as they are not blocked.
pub struct Sockets {
    pub tcp: String,
    pub udp: String,
    stop: Arc<AtomicBool>,
}

impl Sockets {
    pub fn listen(manner: Manner) -> Sockets {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let tcp = format!("tcp://{}", listener.local_addr().unwrap());
        let udp = format!("udp://{}", socket.local_addr().unwrap());
        let stopped = stop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Relaxed) {
                    return;
                }
                let stopped = stopped.clone();
                std::thread::spawn(move || stream_end(stream, manner, &stopped));
            }
        });
        let stopped = stop.clone();
        std::thread::spawn(move || datagram_end(&socket, manner, &stopped));
        Sockets { tcp, udp, stop }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // The listener is woken, and sees that it is over.
        let _ = TcpStream::connect(self.tcp.trim_start_matches("tcp://"));
    }
}

fn stream_end(mut stream: TcpStream, manner: Manner, stop: &AtomicBool) {
    let _ = stream.set_read_timeout(Some(PAUSE));
    let _ = stream.set_write_timeout(Some(PAUSE));
    let mut room = [0; 65_536];
    while !stop.load(Relaxed) {
        let read = match manner {
            NeverReads | Endless => {
                std::thread::sleep(if manner == Endless { Duration::from_millis(1) } else { PAUSE });
                Ok(1)
            }
            _ => stream.read(&mut room),
        };
        match manner {
            Close => return,
            Reset => return drop(socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
            Garbage | Zeros | Endless => {
                if let Err(error) = stream.write_all(&word(manner))
                    && error.kind() != std::io::ErrorKind::WouldBlock
                {
                    return;
                }
            }
            _ => {}
        }
        if matches!(read, Ok(0)) {
            return;
        }
    }
}

fn datagram_end(socket: &UdpSocket, manner: Manner, stop: &AtomicBool) {
    let _ = socket.set_read_timeout(Some(PAUSE));
    let mut room = [0; 65_536];
    let mut client = None;
    while !stop.load(Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut room) {
            client = Some(from);
        }
        let words = match manner {
            Garbage | Zeros => 1,
            Endless => 100,
            _ => 0,
        };
        for _ in 0..words {
            let _ = client.map(|client| socket.send_to(&word(manner), client));
        }
    }
}
