//! Extensions of STAMP packets (RFC 8972): type, length and value after the base packet; the reply fills them in place.

use super::packet::HmacKey;

/// Flags, type, length.
const TLV_HEADER_BYTES: usize = 4;

/// The reflector does not support this type.
const UNRECOGNISED_FLAG: u8 = 0x80;
const MALFORMED_FLAG: u8 = 0x40;
const INTEGRITY_FLAG: u8 = 0x20;

const PADDING_TYPE: u8 = 1;
const TIMESTAMP_INFORMATION_TYPE: u8 = 3;
const CLASS_OF_SERVICE_TYPE: u8 = 4;
const DIRECT_MEASUREMENT_TYPE: u8 = 5;
const FOLLOW_UP_TYPE: u8 = 7;
const HMAC_TYPE: u8 = 8;
/// Bytes of the value of a signature.
const HMAC_VALUE_BYTES: usize = 16;

/// A free-running clock, read by a program.
const SYNC_SOURCE_FREE_RUNNING: u8 = 5;
const TIMESTAMP_METHOD_SOFTWARE: u8 = 2;

/// Session state for a reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionCounts {
    /// Packets received so far, including this one.
    pub received: u32,
    /// Packets sent so far, including this one.
    pub sent: u32,
    /// Number and time of the previous reply, if there was one.
    pub(crate) last_reply: Option<(u32, u64)>,
    /// Traffic class of the request, where the system reports it.
    pub(crate) traffic_class: Option<u8>,
}

/// Fills the class of service: the DSCP and ECN of the request as they arrived. The reply leaves with the class of this host, which is
/// stated if the sender wants another one.
fn write_class(value: &mut [u8], class: u8) {
    const REVERSE_PATH_DIFFERS: u16 = 1;
    let wanted = u16::from(value[0] >> 2);
    let (dscp, ecn) = (u16::from(class >> 2), u16::from(class & 3));
    let differs = if wanted == 0 { 0 } else { REVERSE_PATH_DIFFERS };
    value[..2].copy_from_slice(&(wanted << 10 | dscp << 4 | ecn << 2 | differs).to_be_bytes());
}

/// Turns the extensions of a request in `bytes` into those of its reply; the length stays the same. Without counts it does
/// not support the extensions that need them.
pub fn write_reply(bytes: &mut [u8], counts: Option<&SessionCounts>, key: Option<&HmacKey>) {
    if let Some(signature) = find_signature(bytes)
        && let Some(key) = key
        && !key.is_valid_signature(
            &bytes[..signature],
            &bytes[signature + TLV_HEADER_BYTES..][..HMAC_VALUE_BYTES],
        )
    {
        for_each_tlv(bytes, |flags, _, _| *flags = *flags & !UNRECOGNISED_FLAG | INTEGRITY_FLAG);
        return;
    }
    for_each_tlv(bytes, |flags, kind, value| {
        let answer = fill_value(kind, value, counts, key.is_some());
        *flags = *flags & !UNRECOGNISED_FLAG | answer;
    });
    if let Some(signature) = find_signature(bytes)
        && let Some(key) = key
    {
        let signed = key.sign(&bytes[..signature]);
        bytes[signature + TLV_HEADER_BYTES..][..HMAC_VALUE_BYTES].copy_from_slice(&signed);
    }
}

/// Fills the value of an extension; returns the flags of a reply to it.
fn fill_value(kind: u8, value: &mut [u8], counts: Option<&SessionCounts>, has_key: bool) -> u8 {
    let is_known = match (kind, value.len()) {
        (PADDING_TYPE, _) => true,
        (TIMESTAMP_INFORMATION_TYPE, 4) => {
            value.copy_from_slice(&[
                SYNC_SOURCE_FREE_RUNNING,
                TIMESTAMP_METHOD_SOFTWARE,
                SYNC_SOURCE_FREE_RUNNING,
                TIMESTAMP_METHOD_SOFTWARE,
            ]);
            true
        }
        (CLASS_OF_SERVICE_TYPE, 4) => {
            let class = counts.and_then(|counts| counts.traffic_class);
            if let Some(class) = class {
                write_class(value, class);
            }
            class.is_some()
        }
        (DIRECT_MEASUREMENT_TYPE, 12) => {
            if let Some(counts) = counts {
                value[4..8].copy_from_slice(&counts.received.to_be_bytes());
                value[8..].copy_from_slice(&counts.sent.to_be_bytes());
            }
            counts.is_some()
        }
        (FOLLOW_UP_TYPE, 16) => {
            if let Some((sequence, sent)) = counts.and_then(|counts| counts.last_reply) {
                value[..4].copy_from_slice(&sequence.to_be_bytes());
                value[4..12].copy_from_slice(&sent.to_be_bytes());
                value[12] = TIMESTAMP_METHOD_SOFTWARE;
            }
            counts.is_some()
        }
        (HMAC_TYPE, HMAC_VALUE_BYTES) => has_key,
        (
            TIMESTAMP_INFORMATION_TYPE
            | CLASS_OF_SERVICE_TYPE
            | DIRECT_MEASUREMENT_TYPE
            | FOLLOW_UP_TYPE
            | HMAC_TYPE,
            _,
        ) => {
            return MALFORMED_FLAG;
        }
        _ => false,
    };
    if is_known { 0 } else { UNRECOGNISED_FLAG }
}

/// Calls `show` with flags, type and value of each extension. An extension that exceeds the packet is marked as
/// malformed and is the last one.
fn for_each_tlv(bytes: &mut [u8], mut show: impl FnMut(&mut u8, u8, &mut [u8])) {
    let mut rest = bytes;
    while let Some(([flags, kind, high, low], after)) = rest.split_first_chunk_mut() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, next)) = after.split_at_mut_checked(length) else {
            *flags |= MALFORMED_FLAG;
            return;
        };
        show(flags, *kind, value);
        // An extension with a wrong length is still skipped by that length, but nothing after it can be trusted.
        if *flags & MALFORMED_FLAG != 0 {
            return;
        }
        rest = next;
    }
}

/// Offset of the signature, if it is complete.
fn find_signature(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some([_, kind, high, low]) = bytes.get(at..)?.first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let end = at + TLV_HEADER_BYTES + length;
        if *kind == HMAC_TYPE && length == HMAC_VALUE_BYTES && end <= bytes.len() {
            return Some(at);
        }
        at = end;
    }
    None
}

/// Fills `into` with padding, followed by a signature if there is a key. `into` is empty or has room for the signature.
pub(crate) fn write_padding(into: &mut [u8], key: Option<&HmacKey>) {
    if into.is_empty() {
        return;
    }
    let signature = if key.is_some() { TLV_HEADER_BYTES + HMAC_VALUE_BYTES } else { 0 };
    let (padding, signed) = into.split_at_mut(into.len() - signature);
    write_tlv_header(padding, PADDING_TYPE);
    if let Some(key) = key {
        write_tlv_header(signed, HMAC_TYPE);
        signed[TLV_HEADER_BYTES..].copy_from_slice(&key.sign(padding));
    }
}

/// Minimum non-empty length for [`write_padding`].
pub(crate) fn min_extension_bytes(signed: bool) -> usize {
    if signed { TLV_HEADER_BYTES + TLV_HEADER_BYTES + HMAC_VALUE_BYTES } else { TLV_HEADER_BYTES }
}

fn write_tlv_header(extension: &mut [u8], kind: u8) {
    let [high, low] = ((extension.len() - TLV_HEADER_BYTES) as u16).to_be_bytes();
    extension[..TLV_HEADER_BYTES].copy_from_slice(&[UNRECOGNISED_FLAG, kind, high, low]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: SessionCounts = SessionCounts {
        received: 7,
        sent: 6,
        last_reply: Some((5, 0xeeab_5176_c000_0000)),
        traffic_class: Some(0xb9),
    };

    fn reply_to(bytes: &[u8], key: Option<&HmacKey>) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        write_reply(&mut bytes, Some(&COUNTS), key);
        bytes
    }

    #[test]
    fn known_extensions_get_replies() {
        assert_eq!(reply_to(&[0x80, 1, 0, 2, 9, 9], None), [0, 1, 0, 2, 9, 9]);
        assert_eq!(reply_to(&[0x80, 3, 0, 4, 0, 0, 0, 0], None), [0, 3, 0, 4, 5, 2, 5, 2]);
        // DSCP 46 and ECT(1) arrived; the sender wants DSCP 0, then 10, which this host does not send.
        assert_eq!(reply_to(&[0x80, 4, 0, 4, 0, 0, 0, 0], None), [0, 4, 0, 4, 0x02, 0xe4, 0, 0]);
        assert_eq!(reply_to(&[0x80, 4, 0, 4, 0x28, 0, 0, 0], None), [0, 4, 0, 4, 0x2a, 0xe5, 0, 0]);
        let counted = reply_to(&[&[0x80, 5, 0, 12, 0, 0, 0, 8][..], &[0; 8]].concat(), None);
        assert_eq!(counted, [0, 5, 0, 12, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 6]);
        let followed = reply_to(&[&[0x80, 7, 0, 16][..], &[0; 16]].concat(), None);
        assert_eq!(followed, [0, 7, 0, 16, 0, 0, 0, 5, 0xee, 0xab, 0x51, 0x76, 0xc0, 0, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn unknown_extensions_are_marked_and_malformed_ones_end_parsing() {
        assert_eq!(reply_to(&[0, 200, 0, 1, 9, 0x80, 1, 0, 0], None), [0x80, 200, 0, 1, 9, 0, 1, 0, 0]);
        // Longer than the packet; a known type with another length; the rest is returned unchanged.
        assert_eq!(reply_to(&[0x80, 1, 0, 9, 1, 2], None), [0xc0, 1, 0, 9, 1, 2]);
        assert_eq!(reply_to(&[0x80, 3, 0, 1, 0, 0x80, 1, 0, 0], None), [0x40, 3, 0, 1, 0, 0x80, 1, 0, 0]);
        assert_eq!(reply_to(&[1, 2, 3], None), [1, 2, 3]);
        assert_eq!(reply_to(&[0x80, 8, 0, 0], None), [0x40, 8, 0, 0]);
    }

    #[test]
    fn signatures_are_checked_and_renewed() {
        let key = HmacKey::new(b"key");
        let mut request = vec![0; min_extension_bytes(true) + 3];
        write_padding(&mut request, Some(&key));
        let reply = reply_to(&request, Some(&key));
        assert_eq!(reply[..8], [0, 1, 0, 3, 0, 0, 0, 0]);
        let at = find_signature(&reply).unwrap();
        assert!(key.is_valid_signature(&reply[..at], &reply[at + TLV_HEADER_BYTES..]));
        let reply = reply_to(&request, Some(&HmacKey::new(b"another")));
        assert_eq!((reply[0], reply[at]), (INTEGRITY_FLAG, INTEGRITY_FLAG));
        assert_eq!(
            reply[at + TLV_HEADER_BYTES..],
            request[at + TLV_HEADER_BYTES..],
            "nothing is signed for a stranger"
        );
        assert_eq!(reply_to(&request, None)[at], UNRECOGNISED_FLAG, "without a key nothing is known of it");
    }
}
