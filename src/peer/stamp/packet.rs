//! The packets of STAMP (RFC 8762) and, in their first bytes the same, of TWAMP-Test (RFC 5357): written and read.
//!
//! Not for what follows them: extensions are `tlv`, padding is nobody's.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::time::{ErrorEstimate, Ntp};

/// Bytes of a packet without a signature, both ways.
pub const OPEN: usize = 44;
/// Bytes of a signed packet, both ways.
pub const SIGNED: usize = 112;
/// The shortest request of TWAMP: number, time, error estimate.
pub const SHORTEST_REQUEST: usize = 14;
/// The whole answer of TWAMP, with the TTL.
pub const LIGHT: usize = 41;
/// The shortest answer that is about: without what follows the request's own fields.
const SHORTEST_REPLY: usize = 38;
/// The signature, half of what SHA-256 gives, ends the packet.
const SIGNATURE: usize = 16;

/// The key of the authenticated mode.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    pub fn new(key: &[u8]) -> Key {
        Key(<Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE] {
        let whole = self.0.clone().chain_update(bytes).finalize().into_bytes();
        *whole.first_chunk().expect("an HMAC has 32 bytes")
    }

    pub fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.0.clone().chain_update(bytes).verify_truncated_left(signature).is_ok()
    }
}

/// Bytes of a packet, extensions left out.
pub fn base(key: Option<&Key>) -> usize {
    if key.is_some() { SIGNED } else { OPEN }
}

/// What a sender says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub sequence: u32,
    /// T1, as written.
    pub sent: u64,
    pub error: ErrorEstimate,
    /// Which session it is (RFC 8972); 0 where the sender tells none.
    pub session: u16,
}

/// What a reflector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub sequence: u32,
    /// T3, as written.
    pub sent: u64,
    pub error: ErrorEstimate,
    pub session: u16,
    /// T2, as written.
    pub received: u64,
    pub request: Request,
    /// Of the request when it arrived; 0 where the reflector does not tell.
    pub ttl: u8,
}

/// Where the fields of a packet stand, in the open and in the signed form.
struct Places {
    time: usize,
    error: usize,
    session: usize,
    received: usize,
    sequence: usize,
    sent: usize,
    sent_error: usize,
    ttl: usize,
}

const OPEN_PLACES: Places =
    Places { time: 4, error: 12, session: 14, received: 16, sequence: 24, sent: 28, sent_error: 36, ttl: 40 };
const SIGNED_PLACES: Places = Places {
    time: 16,
    error: 24,
    session: 26,
    received: 32,
    sequence: 48,
    sent: 64,
    sent_error: 72,
    ttl: 80,
};

fn places(key: Option<&Key>) -> &'static Places {
    if key.is_some() { &SIGNED_PLACES } else { &OPEN_PLACES }
}

impl Request {
    /// Writes the first bytes of a packet, at least [`SHORTEST_REQUEST`] of them, or with a key [`SIGNED`]. What is not
    /// a field stays as it is.
    pub fn write(&self, into: &mut [u8], key: Option<&Key>) {
        let at = places(key);
        put(into, 0, self.sequence.to_be_bytes());
        put(into, at.time, self.sent.to_be_bytes());
        put(into, at.error, self.error.0.to_be_bytes());
        if into.len() >= at.session + 2 {
            put(into, at.session, self.session.to_be_bytes());
        }
        sign(into, key);
    }

    /// Reads a request; `None` where it is too short, broken, or not signed with the key.
    pub fn read(bytes: &[u8], key: Option<&Key>) -> Option<Request> {
        signed(bytes, key)?;
        let at = places(key);
        let request = Request {
            sequence: u32::from_be_bytes(get(bytes, 0)?),
            sent: u64::from_be_bytes(get(bytes, at.time)?),
            error: ErrorEstimate(u16::from_be_bytes(get(bytes, at.error)?)),
            session: get(bytes, at.session).map_or(0, u16::from_be_bytes),
        };
        request.error.is_valid().then_some(request)
    }
}

impl Reply {
    /// Writes the first bytes of a packet, at least [`LIGHT`] of them, or with a key [`SIGNED`].
    pub fn write(&self, into: &mut [u8], key: Option<&Key>) {
        let at = places(key);
        put(into, 0, self.sequence.to_be_bytes());
        put(into, at.time, self.sent.to_be_bytes());
        put(into, at.error, self.error.0.to_be_bytes());
        put(into, at.session, self.session.to_be_bytes());
        put(into, at.received, self.received.to_be_bytes());
        put(into, at.sequence, self.request.sequence.to_be_bytes());
        put(into, at.sent, self.request.sent.to_be_bytes());
        put(into, at.sent_error, self.request.error.0.to_be_bytes());
        into[at.ttl] = self.ttl;
        sign(into, key);
    }

    /// Reads an answer; `None` where it is too short, broken, or not signed with the key.
    pub fn read(bytes: &[u8], key: Option<&Key>) -> Option<Reply> {
        signed(bytes, key)?;
        if bytes.len() < SHORTEST_REPLY {
            return None;
        }
        let at = places(key);
        let session = u16::from_be_bytes(get(bytes, at.session)?);
        let request = Request {
            sequence: u32::from_be_bytes(get(bytes, at.sequence)?),
            sent: u64::from_be_bytes(get(bytes, at.sent)?),
            error: ErrorEstimate(u16::from_be_bytes(get(bytes, at.sent_error)?)),
            session,
        };
        let reply = Reply {
            sequence: u32::from_be_bytes(get(bytes, 0)?),
            sent: u64::from_be_bytes(get(bytes, at.time)?),
            error: ErrorEstimate(u16::from_be_bytes(get(bytes, at.error)?)),
            session,
            received: u64::from_be_bytes(get(bytes, at.received)?),
            request,
            ttl: bytes.get(at.ttl).copied().unwrap_or(0),
        };
        reply.error.is_valid().then_some(reply)
    }

    /// T2 and T3; `None` where they are no times, or the answer left before the question came.
    pub fn times(&self) -> Option<(Ntp, Ntp)> {
        let (received, sent) = (self.error.read(self.received)?, self.error.read(self.sent)?);
        (sent.since(received) >= 0).then_some((received, sent))
    }
}

fn put<const N: usize>(into: &mut [u8], at: usize, field: [u8; N]) {
    into[at..at + N].copy_from_slice(&field);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn sign(packet: &mut [u8], key: Option<&Key>) {
    if let Some(key) = key {
        let (said, signature) = packet.split_at_mut(SIGNED - SIGNATURE);
        signature[..SIGNATURE].copy_from_slice(&key.sign(said));
    }
}

/// Some where no signature is wanted, or a good one is there.
fn signed(packet: &[u8], key: Option<&Key>) -> Option<()> {
    let Some(key) = key else { return Some(()) };
    let (said, signature) = packet.get(..SIGNED)?.split_at(SIGNED - SIGNATURE);
    key.has_signed(said, signature).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ask::text;

    fn bytes(hex: &str) -> Vec<u8> {
        text::bytes(&format!("hex:{hex}")).unwrap()
    }

    fn key() -> Key {
        Key::new(&(0..32).collect::<Vec<u8>>())
    }

    fn request(sequence: u32, session: u16) -> Request {
        Request { sequence, sent: 0xeeab_5176_8000_0000, error: ErrorEstimate(0x8a05), session }
    }

    /// Received after 125 ms, sent on after as long.
    fn reply(sequence: u32, session: u16, session_in_request: u16) -> Reply {
        Reply {
            sequence,
            sent: 0xeeab_5176_c000_0000,
            error: ErrorEstimate(0x8a05),
            session,
            received: 0xeeab_5176_a000_0000,
            request: Request { session: session_in_request, ..request(sequence, 0) },
            ttl: 255,
        }
    }

    #[test]
    fn open_packets_are_those_of_others() {
        // Built with scapy's layers.
        let asked = bytes(&("00000001 EEAB517680000000 8A05 1234".to_owned() + &"00".repeat(28)));
        let answered = bytes(
            "00000001 EEAB5176C0000000 8A05 1234 EEAB5176A0000000 00000001 EEAB517680000000 8A05 0000 FF 000000",
        );
        let mut written = vec![0; OPEN];
        request(1, 0x1234).write(&mut written, None);
        assert_eq!(written, asked);
        assert_eq!(Request::read(&asked, None), Some(request(1, 0x1234)));
        written.fill(0);
        reply(1, 0x1234, 0x1234).write(&mut written, None);
        assert_eq!(written, answered);
        let read = Reply::read(&answered, None).unwrap();
        assert_eq!(read, reply(1, 0x1234, 0x1234));
        let (received, sent) = read.times().unwrap();
        assert_eq!(sent.since(received), 125_000_000);
    }

    #[test]
    fn signed_packets_are_those_of_the_vectors() {
        let zeros = |count: usize| "00".repeat(count);
        let asked = bytes(&format!(
            "00000007 {} EEAB517680000000 8A05 1234 {} 27FA1FBD1B7128AC4AB04734BF3196FE",
            zeros(12),
            zeros(68)
        ));
        let answered = bytes(&format!(
            "00000007 {0} EEAB5176C0000000 8A05 1234 {1} EEAB5176A0000000 {2} 00000007 {0} EEAB517680000000 8A05 {3} \
             FF {4} 10B19BEA1699E45871661320FDAAAF6C",
            zeros(12),
            zeros(4),
            zeros(8),
            zeros(6),
            zeros(15)
        ));
        let key = key();
        let mut written = vec![0; SIGNED];
        request(7, 0x1234).write(&mut written, Some(&key));
        assert_eq!(written, asked);
        assert_eq!(Request::read(&asked, Some(&key)), Some(request(7, 0x1234)));
        written.fill(0);
        reply(7, 0x1234, 0x1234).write(&mut written, Some(&key));
        assert_eq!(written, answered);
        assert_eq!(Reply::read(&answered, Some(&key)), Some(reply(7, 0x1234, 0x1234)));
    }

    #[test]
    fn what_is_changed_or_cut_is_nothing() {
        let key = key();
        let mut packet = vec![0; SIGNED];
        request(7, 1).write(&mut packet, Some(&key));
        for at in 0..SIGNED {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert_eq!(Request::read(&changed, Some(&key)), None, "byte {at}");
            assert_eq!(Request::read(&packet[..at], Some(&key)), None, "{at} bytes");
        }
        assert_eq!(Request::read(&packet, Some(&Key::new(b"another"))), None);
        let mut packet = vec![0; OPEN];
        reply(1, 1, 1).write(&mut packet, None);
        for length in 0..SHORTEST_REPLY {
            assert_eq!(Reply::read(&packet[..length], None), None, "{length} bytes");
        }
    }

    #[test]
    fn twamp_packets_of_others_are_read() {
        // twampy's responder: 38 bytes, and the time of receipt twice.
        let short =
            bytes("00000000 EEAB51438A85A7FF 0001 0000 EEAB51438A85A7FF 00000000 EEAB514389D667FF 3FFF");
        let (received, sent) = Reply::read(&short, None).unwrap().times().unwrap();
        assert_eq!(sent.since(received), 0);
        // perfSONAR's reflector.
        let whole = bytes(
            "00000000 EEAB524BBE087CA6 0001 0000 EEAB524BBE0780FD 00000000 EEAB524BBDEECBFB 0001 0000 FF",
        );
        let read = Reply::read(&whole, None).unwrap();
        let (received, sent) = read.times().unwrap();
        assert_eq!((sent.since(received), read.ttl), (15_000, 255));
        // And its sender, with padding that is none of its fields.
        let asked =
            bytes("00000000 EEAB524BBDEECBFB 0001 A2DA9EF2857364BB2B33AEF2C025B93EC4A6AAB5CF8B62FC9B246F");
        assert_eq!(Request::read(&asked[..SHORTEST_REQUEST], None).unwrap().error, ErrorEstimate(1));
    }

    #[test]
    fn absurd_times_are_none() {
        let backwards = Reply { sent: 0xeeab_5176_9000_0000, ..reply(1, 1, 1) };
        assert_eq!(backwards.times(), None);
        let no_time = Reply { error: ErrorEstimate(0x4001), ..reply(1, 1, 1) };
        assert_eq!(no_time.times(), None, "nanoseconds beyond a second");
        let mut packet = vec![0; OPEN];
        Reply { error: ErrorEstimate(0x8a00), ..reply(1, 1, 1) }.write(&mut packet, None);
        assert_eq!(Reply::read(&packet, None), None, "a multiplier of zero");
    }
}
