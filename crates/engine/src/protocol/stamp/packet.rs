//! Encodes and decodes the packets of STAMP (RFC 8762) and of TWAMP-Test (RFC 5357), whose first bytes are the same.
//!
//! Extensions are in `tlv`; padding is not interpreted.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::time::{ErrorEstimate, NtpTime};

/// Bytes of an unsigned packet, request or reply.
pub const UNAUTHENTICATED_BYTES: usize = 44;
/// Bytes of a signed packet, request or reply.
pub const AUTHENTICATED_BYTES: usize = 112;
/// The shortest request of TWAMP: number, time, error estimate.
pub(crate) const MIN_REQUEST_BYTES: usize = 14;
/// The full reply of TWAMP, including the TTL.
pub(crate) const TWAMP_REPLY_BYTES: usize = 41;
/// The shortest reply in use: it lacks the fields after the copied request.
const MIN_REPLY_BYTES: usize = 38;
/// The signature at the end of the packet: half of an SHA-256 value.
const HMAC_BYTES: usize = 16;

/// The key of the authenticated mode.
#[derive(Clone)]
pub struct HmacKey(Hmac<Sha256>);

impl HmacKey {
    /// A key of any length.
    pub fn new(key: &[u8]) -> HmacKey {
        HmacKey(<Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    /// The first 16 bytes of the HMAC-SHA-256 of `bytes`, as in RFC 8762, section 4.4.
    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; HMAC_BYTES] {
        let whole = self.0.clone().chain_update(bytes).finalize().into_bytes();
        *whole.first_chunk().expect("an HMAC has 32 bytes")
    }

    /// Whether `signature` is a prefix of the HMAC of `bytes`; compared in constant time.
    pub(crate) fn is_valid_signature(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.0.clone().chain_update(bytes).verify_truncated_left(signature).is_ok()
    }
}

/// Bytes of a packet without extensions.
pub(crate) fn base_bytes(key: Option<&HmacKey>) -> usize {
    if key.is_some() { AUTHENTICATED_BYTES } else { UNAUTHENTICATED_BYTES }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderPacket {
    /// Number of the request.
    pub sequence: u32,
    /// T1 in wire format.
    pub sent: u64,
    /// Error estimate of the sender's clock.
    pub error_estimate: ErrorEstimate,
    /// Session number (RFC 8972); 0 if the sender does not use it.
    pub session_id: u16,
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// Number of the reply. A stateless reflector copies that of the request.
    pub sequence: u32,
    /// T3 in wire format.
    pub sent: u64,
    /// Error estimate of the reflector's clock.
    pub(crate) error_estimate: ErrorEstimate,
    /// Session number of the request (RFC 8972).
    pub session_id: u16,
    /// T2 in wire format.
    pub received: u64,
    /// Copy of the request's fields.
    pub request: SenderPacket,
    /// TTL of the request on arrival; 0 if unknown.
    pub ttl: u8,
}

/// Offsets of the fields in unsigned and signed packets.
struct FieldOffsets {
    time: usize,
    error: usize,
    session: usize,
    received: usize,
    sequence: usize,
    sent: usize,
    sent_error: usize,
    ttl: usize,
}

const UNAUTHENTICATED_OFFSETS: FieldOffsets = FieldOffsets {
    time: 4,
    error: 12,
    session: 14,
    received: 16,
    sequence: 24,
    sent: 28,
    sent_error: 36,
    ttl: 40,
};
const AUTHENTICATED_OFFSETS: FieldOffsets = FieldOffsets {
    time: 16,
    error: 24,
    session: 26,
    received: 32,
    sequence: 48,
    sent: 64,
    sent_error: 72,
    ttl: 80,
};

fn field_offsets(key: Option<&HmacKey>) -> &'static FieldOffsets {
    if key.is_some() { &AUTHENTICATED_OFFSETS } else { &UNAUTHENTICATED_OFFSETS }
}

impl SenderPacket {
    /// Writes the first bytes of a packet, at least `MIN_REQUEST_BYTES`, or [`AUTHENTICATED_BYTES`] with a key. Bytes
    /// between fields stay unchanged.
    pub fn write(&self, into: &mut [u8], key: Option<&HmacKey>) {
        let at = field_offsets(key);
        write_field(into, 0, self.sequence.to_be_bytes());
        write_field(into, at.time, self.sent.to_be_bytes());
        write_field(into, at.error, self.error_estimate.0.to_be_bytes());
        if into.len() >= at.session + 2 {
            write_field(into, at.session, self.session_id.to_be_bytes());
        }
        sign_packet(into, key);
    }

    /// Reads a request; `None` if it is too short, malformed, or not signed with the key.
    pub fn read(bytes: &[u8], key: Option<&HmacKey>) -> Option<SenderPacket> {
        verify_signature(bytes, key)?;
        let at = field_offsets(key);
        let request = SenderPacket {
            sequence: u32::from_be_bytes(read_field(bytes, 0)?),
            sent: u64::from_be_bytes(read_field(bytes, at.time)?),
            error_estimate: ErrorEstimate(u16::from_be_bytes(read_field(bytes, at.error)?)),
            session_id: read_field(bytes, at.session).map_or(0, u16::from_be_bytes),
        };
        request.error_estimate.is_valid().then_some(request)
    }
}

impl ReflectorPacket {
    /// Writes the first bytes of a packet, at least `TWAMP_REPLY_BYTES`, or [`AUTHENTICATED_BYTES`] with a key.
    pub fn write(&self, into: &mut [u8], key: Option<&HmacKey>) {
        let at = field_offsets(key);
        write_field(into, 0, self.sequence.to_be_bytes());
        write_field(into, at.time, self.sent.to_be_bytes());
        write_field(into, at.error, self.error_estimate.0.to_be_bytes());
        write_field(into, at.session, self.session_id.to_be_bytes());
        write_field(into, at.received, self.received.to_be_bytes());
        write_field(into, at.sequence, self.request.sequence.to_be_bytes());
        write_field(into, at.sent, self.request.sent.to_be_bytes());
        write_field(into, at.sent_error, self.request.error_estimate.0.to_be_bytes());
        into[at.ttl] = self.ttl;
        sign_packet(into, key);
    }

    /// Reads a reply; `None` if it is too short, or not signed with the key. Its times and its error estimate may be
    /// invalid: the round trip counts all the same.
    pub fn read(bytes: &[u8], key: Option<&HmacKey>) -> Option<ReflectorPacket> {
        verify_signature(bytes, key)?;
        if bytes.len() < MIN_REPLY_BYTES {
            return None;
        }
        let at = field_offsets(key);
        let session = u16::from_be_bytes(read_field(bytes, at.session)?);
        let request = SenderPacket {
            sequence: u32::from_be_bytes(read_field(bytes, at.sequence)?),
            sent: u64::from_be_bytes(read_field(bytes, at.sent)?),
            error_estimate: ErrorEstimate(u16::from_be_bytes(read_field(bytes, at.sent_error)?)),
            session_id: session,
        };
        Some(ReflectorPacket {
            sequence: u32::from_be_bytes(read_field(bytes, 0)?),
            sent: u64::from_be_bytes(read_field(bytes, at.time)?),
            error_estimate: ErrorEstimate(u16::from_be_bytes(read_field(bytes, at.error)?)),
            session_id: session,
            received: u64::from_be_bytes(read_field(bytes, at.received)?),
            request,
            ttl: bytes.get(at.ttl).copied().unwrap_or(0),
        })
    }

    /// Whether it lacks the fields of a request, as a returned request does.
    pub(crate) fn copies_nothing(&self) -> bool {
        let SenderPacket { sequence, sent, error_estimate, .. } = self.request;
        (sequence, sent, error_estimate.0) == (0, 0, 0)
    }

    /// T2 and T3; `None` if the reflector has no clock (one of them is zero), states no valid error, or if a time is
    /// invalid. T3 may be before T2.
    pub fn times(&self) -> Option<(NtpTime, NtpTime)> {
        let read = |bits: u64| self.error_estimate.read(bits).filter(|_| bits != 0);
        let times = read(self.received).zip(read(self.sent));
        times.filter(|_| self.error_estimate.is_valid())
    }
}

fn write_field<const N: usize>(into: &mut [u8], at: usize, field: [u8; N]) {
    into[at..at + N].copy_from_slice(&field);
}

fn read_field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn sign_packet(packet: &mut [u8], key: Option<&HmacKey>) {
    if let Some(key) = key {
        let (content, signature) = packet.split_at_mut(AUTHENTICATED_BYTES - HMAC_BYTES);
        signature[..HMAC_BYTES].copy_from_slice(&key.sign(content));
    }
}

/// `Some` if no signature is required or the signature is valid.
fn verify_signature(packet: &[u8], key: Option<&HmacKey>) -> Option<()> {
    let Some(key) = key else { return Some(()) };
    let (content, signature) = packet.get(..AUTHENTICATED_BYTES)?.split_at(AUTHENTICATED_BYTES - HMAC_BYTES);
    key.is_valid_signature(content, signature).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ask::text;

    fn bytes(hex: &str) -> Vec<u8> {
        text::parse_bytes(&format!("hex:{hex}")).unwrap()
    }

    fn key() -> HmacKey {
        HmacKey::new(&(0..32).collect::<Vec<u8>>())
    }

    fn request(sequence: u32, session: u16) -> SenderPacket {
        SenderPacket {
            sequence,
            sent: 0xeeab_5176_8000_0000,
            error_estimate: ErrorEstimate(0x8a05),
            session_id: session,
        }
    }

    /// Received after 125 ms, sent after another 125 ms.
    fn reply(sequence: u32, session: u16, session_in_request: u16) -> ReflectorPacket {
        ReflectorPacket {
            sequence,
            sent: 0xeeab_5176_c000_0000,
            error_estimate: ErrorEstimate(0x8a05),
            session_id: session,
            received: 0xeeab_5176_a000_0000,
            request: SenderPacket { session_id: session_in_request, ..request(sequence, 0) },
            ttl: 255,
        }
    }

    #[test]
    fn open_packets_are_those_of_others() {
        // Built with scapy's layers.
        let request_bytes = bytes(&("00000001 EEAB517680000000 8A05 1234".to_owned() + &"00".repeat(28)));
        let reply_bytes = bytes(
            "00000001 EEAB5176C0000000 8A05 1234 EEAB5176A0000000 00000001 EEAB517680000000 8A05 0000 FF 000000",
        );
        let mut written = vec![0; UNAUTHENTICATED_BYTES];
        request(1, 0x1234).write(&mut written, None);
        assert_eq!(written, request_bytes);
        assert_eq!(SenderPacket::read(&request_bytes, None), Some(request(1, 0x1234)));
        written.fill(0);
        reply(1, 0x1234, 0x1234).write(&mut written, None);
        assert_eq!(written, reply_bytes);
        let read = ReflectorPacket::read(&reply_bytes, None).unwrap();
        assert_eq!(read, reply(1, 0x1234, 0x1234));
        let (received, sent) = read.times().unwrap();
        assert_eq!(sent.since(received), 125_000_000);
    }

    #[test]
    fn signed_packets_are_those_of_the_vectors() {
        let zeros = |count: usize| "00".repeat(count);
        let request_bytes = bytes(&format!(
            "00000007 {} EEAB517680000000 8A05 1234 {} 27FA1FBD1B7128AC4AB04734BF3196FE",
            zeros(12),
            zeros(68)
        ));
        let reply_bytes = bytes(&format!(
            "00000007 {0} EEAB5176C0000000 8A05 1234 {1} EEAB5176A0000000 {2} 00000007 {0} EEAB517680000000 8A05 {3} \
             FF {4} 10B19BEA1699E45871661320FDAAAF6C",
            zeros(12),
            zeros(4),
            zeros(8),
            zeros(6),
            zeros(15)
        ));
        let key = key();
        let mut written = vec![0; AUTHENTICATED_BYTES];
        request(7, 0x1234).write(&mut written, Some(&key));
        assert_eq!(written, request_bytes);
        assert_eq!(SenderPacket::read(&request_bytes, Some(&key)), Some(request(7, 0x1234)));
        written.fill(0);
        reply(7, 0x1234, 0x1234).write(&mut written, Some(&key));
        assert_eq!(written, reply_bytes);
        assert_eq!(ReflectorPacket::read(&reply_bytes, Some(&key)), Some(reply(7, 0x1234, 0x1234)));
    }

    #[test]
    fn changed_or_truncated_packets_are_rejected() {
        let key = key();
        let mut packet = vec![0; AUTHENTICATED_BYTES];
        request(7, 1).write(&mut packet, Some(&key));
        for at in 0..AUTHENTICATED_BYTES {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert_eq!(SenderPacket::read(&changed, Some(&key)), None, "byte {at}");
            assert_eq!(SenderPacket::read(&packet[..at], Some(&key)), None, "{at} bytes");
        }
        assert_eq!(SenderPacket::read(&packet, Some(&HmacKey::new(b"another"))), None);
        let mut packet = vec![0; UNAUTHENTICATED_BYTES];
        reply(1, 1, 1).write(&mut packet, None);
        for length in 0..MIN_REPLY_BYTES {
            assert_eq!(ReflectorPacket::read(&packet[..length], None), None, "{length} bytes");
        }
    }

    #[test]
    fn twamp_packets_of_others_are_read() {
        // twampy's responder: 38 bytes, with the receive time twice.
        let short =
            bytes("00000000 EEAB51438A85A7FF 0001 0000 EEAB51438A85A7FF 00000000 EEAB514389D667FF 3FFF");
        let (received, sent) = ReflectorPacket::read(&short, None).unwrap().times().unwrap();
        assert_eq!(sent.since(received), 0);
        // perfSONAR's reflector.
        let whole = bytes(
            "00000000 EEAB524BBE087CA6 0001 0000 EEAB524BBE0780FD 00000000 EEAB524BBDEECBFB 0001 0000 FF",
        );
        let read = ReflectorPacket::read(&whole, None).unwrap();
        let (received, sent) = read.times().unwrap();
        assert_eq!((sent.since(received), read.ttl), (15_000, 255));
        // perfSONAR's sender, with padding that is not a field.
        let request_bytes =
            bytes("00000000 EEAB524BBDEECBFB 0001 A2DA9EF2857364BB2B33AEF2C025B93EC4A6AAB5CF8B62FC9B246F");
        assert_eq!(
            SenderPacket::read(&request_bytes[..MIN_REQUEST_BYTES], None).unwrap().error_estimate,
            ErrorEstimate(1)
        );
    }

    #[test]
    fn invalid_times_are_rejected() {
        let backwards = ReflectorPacket { sent: 0xeeab_5176_9000_0000, ..reply(1, 1, 1) };
        let (received, sent) = backwards.times().unwrap();
        assert!(sent.since(received) < 0, "the caller counts it as corrupt");
        for (received, sent) in [(0, 0), (0, 1), (1, 0)] {
            assert_eq!(ReflectorPacket { received, sent, ..reply(1, 1, 1) }.times(), None, "no clock");
        }
        let no_time = ReflectorPacket { error_estimate: ErrorEstimate(0x4001), ..reply(1, 1, 1) };
        assert_eq!(no_time.times(), None, "nanoseconds beyond a second");
        let no_error = ReflectorPacket { error_estimate: ErrorEstimate(0x8a00), ..reply(1, 1, 1) };
        assert_eq!(no_error.times(), None, "a multiplier of zero");
        let mut packet = vec![0; UNAUTHENTICATED_BYTES];
        no_error.write(&mut packet, None);
        assert_eq!(ReflectorPacket::read(&packet, None), Some(no_error));
    }
}
