//! Extensions of STAMP packets (RFC 8972): type, length and value behind the packet proper, answered in their place.

use super::packet::Key;

/// Flags, type, length.
const HEAD: usize = 4;

/// The reflector does not know this type.
const UNRECOGNISED: u8 = 0x80;
const MALFORMED: u8 = 0x40;
const INTEGRITY: u8 = 0x20;

const PADDING: u8 = 1;
const TIMESTAMP_INFORMATION: u8 = 3;
const DIRECT_MEASUREMENT: u8 = 5;
const FOLLOW_UP: u8 = 7;
const SIGNATURE: u8 = 8;
/// Bytes of the value of a signature.
const SIGNATURE_BYTES: usize = 16;

/// A clock that nobody is known to steer, read by a program.
const FREE_RUNNING: u8 = 5;
const BY_SOFTWARE: u8 = 2;

/// What a reflector knows of a session when it answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Packets received and sent before, this one included.
    pub received: u32,
    pub sent: u32,
    /// Number and time of the answer before, if there was one.
    pub last: Option<(u32, u64)>,
}

/// Turns the extensions of a request, which lie in `bytes`, into those of its answer; the length stays.
pub fn answer(bytes: &mut [u8], counts: &Counts, key: Option<&Key>) {
    if let Some(signature) = find_signature(bytes)
        && let Some(key) = key
        && !key.has_signed(&bytes[..signature], &bytes[signature + HEAD..][..SIGNATURE_BYTES])
    {
        each(bytes, |flags, _, _| *flags = *flags & !UNRECOGNISED | INTEGRITY);
        return;
    }
    each(bytes, |flags, kind, value| {
        let known = match (kind, value.len()) {
            (PADDING, _) => true,
            (TIMESTAMP_INFORMATION, 4) => {
                value.copy_from_slice(&[FREE_RUNNING, BY_SOFTWARE, FREE_RUNNING, BY_SOFTWARE]);
                true
            }
            (DIRECT_MEASUREMENT, 12) => {
                value[4..8].copy_from_slice(&counts.received.to_be_bytes());
                value[8..].copy_from_slice(&counts.sent.to_be_bytes());
                true
            }
            (FOLLOW_UP, 16) => {
                if let Some((sequence, sent)) = counts.last {
                    value[..4].copy_from_slice(&sequence.to_be_bytes());
                    value[4..12].copy_from_slice(&sent.to_be_bytes());
                    value[12] = BY_SOFTWARE;
                }
                true
            }
            (SIGNATURE, SIGNATURE_BYTES) => key.is_some(),
            (TIMESTAMP_INFORMATION | DIRECT_MEASUREMENT | FOLLOW_UP | SIGNATURE, _) => {
                *flags |= MALFORMED;
                true
            }
            _ => false,
        };
        *flags = if known { *flags & !UNRECOGNISED } else { *flags | UNRECOGNISED };
    });
    if let Some(signature) = find_signature(bytes)
        && let Some(key) = key
    {
        let signed = key.sign(&bytes[..signature]);
        bytes[signature + HEAD..][..SIGNATURE_BYTES].copy_from_slice(&signed);
    }
}

/// Shows each extension: its flags, its type and its value. One that is longer than what is there is marked as
/// malformed, and ends it.
fn each(bytes: &mut [u8], mut show: impl FnMut(&mut u8, u8, &mut [u8])) {
    let mut rest = bytes;
    while let Some(([flags, kind, high, low], after)) = rest.split_first_chunk_mut() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, next)) = after.split_at_mut_checked(length) else {
            *flags |= MALFORMED;
            return;
        };
        show(flags, *kind, value);
        // What is malformed by its length is still passed over by it; nothing behind it can be trusted.
        if *flags & MALFORMED != 0 {
            return;
        }
        rest = next;
    }
}

/// Where the signature begins, if there is a whole one.
fn find_signature(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some([_, kind, high, low]) = bytes.get(at..)?.first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let end = at + HEAD + length;
        if *kind == SIGNATURE && length == SIGNATURE_BYTES && end <= bytes.len() {
            return Some(at);
        }
        at = end;
    }
    None
}

/// Fills `into` with padding, and behind it a signature where there is a key. It has room for that, or none at all.
pub fn pad(into: &mut [u8], key: Option<&Key>) {
    if into.is_empty() {
        return;
    }
    let signature = if key.is_some() { HEAD + SIGNATURE_BYTES } else { 0 };
    let (padding, signed) = into.split_at_mut(into.len() - signature);
    head(padding, PADDING);
    if let Some(key) = key {
        head(signed, SIGNATURE);
        signed[HEAD..].copy_from_slice(&key.sign(padding));
    }
}

/// Bytes that [`pad`] needs at least, if it is to fill any.
pub fn least(signed: bool) -> usize {
    if signed { HEAD + HEAD + SIGNATURE_BYTES } else { HEAD }
}

fn head(extension: &mut [u8], kind: u8) {
    let [high, low] = ((extension.len() - HEAD) as u16).to_be_bytes();
    extension[..HEAD].copy_from_slice(&[UNRECOGNISED, kind, high, low]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts { received: 7, sent: 6, last: Some((5, 0xeeab_5176_c000_0000)) };

    fn answered(bytes: &[u8], key: Option<&Key>) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        answer(&mut bytes, &COUNTS, key);
        bytes
    }

    #[test]
    fn what_is_known_is_answered() {
        assert_eq!(answered(&[0x80, 1, 0, 2, 9, 9], None), [0, 1, 0, 2, 9, 9]);
        assert_eq!(answered(&[0x80, 3, 0, 4, 0, 0, 0, 0], None), [0, 3, 0, 4, 5, 2, 5, 2]);
        let counted = answered(&[&[0x80, 5, 0, 12, 0, 0, 0, 8][..], &[0; 8]].concat(), None);
        assert_eq!(counted, [0, 5, 0, 12, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 6]);
        let followed = answered(&[&[0x80, 7, 0, 16][..], &[0; 16]].concat(), None);
        assert_eq!(followed, [0, 7, 0, 16, 0, 0, 0, 5, 0xee, 0xab, 0x51, 0x76, 0xc0, 0, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn what_is_not_known_is_marked_and_what_is_broken_ends_it() {
        assert_eq!(answered(&[0, 200, 0, 1, 9, 0x80, 1, 0, 0], None), [0x80, 200, 0, 1, 9, 0, 1, 0, 0]);
        // Longer than the packet; a known one of another length; the rest comes back as it is.
        assert_eq!(answered(&[0x80, 1, 0, 9, 1, 2], None), [0xc0, 1, 0, 9, 1, 2]);
        assert_eq!(answered(&[0x80, 3, 0, 1, 0, 0x80, 1, 0, 0], None), [0x40, 3, 0, 1, 0, 0x80, 1, 0, 0]);
        assert_eq!(answered(&[1, 2, 3], None), [1, 2, 3]);
        assert_eq!(answered(&[0x80, 8, 0, 0], None), [0x40, 8, 0, 0]);
    }

    #[test]
    fn signatures_are_checked_and_renewed() {
        let key = Key::new(b"key");
        let mut request = vec![0; least(true) + 3];
        pad(&mut request, Some(&key));
        let reply = answered(&request, Some(&key));
        assert_eq!(reply[..8], [0, 1, 0, 3, 0, 0, 0, 0]);
        let at = find_signature(&reply).unwrap();
        assert!(key.has_signed(&reply[..at], &reply[at + HEAD..]));
        let reply = answered(&request, Some(&Key::new(b"another")));
        assert_eq!((reply[0], reply[at]), (INTEGRITY, INTEGRITY));
        assert_eq!(reply[at + HEAD..], request[at + HEAD..], "nothing is signed for a stranger");
        assert_eq!(answered(&request, None)[at], UNRECOGNISED, "without a key nothing is known of it");
    }
}
