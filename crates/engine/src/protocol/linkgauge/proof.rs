//! Authentication of a session: server challenges, the token, session keys. No I/O.
//!
//! A server signs its challenges and does not store them. With a token, both sides derive the session key from the
//! token and from random values of both, and sign every frame with that key. So a server that forwards a client's proof
//! to another server gains nothing: it has no key to plan, or to attach a flow, in the session that it opens there.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::hex::{decode_hex, encode_hex};

/// Random bytes of a client in its hello.
pub(crate) const NONCE_BYTES: usize = 24;
/// Length of a server's challenge.
pub(crate) const CHALLENGE_BYTES: usize = 16;
/// Length of a session key.
pub(crate) const KEY_BYTES: usize = 16;

/// Lifetime of a challenge in seconds: several round trips over a satellite.
pub(super) const CHALLENGE_LIFETIME_S: u32 = 30;

/// Bytes of a challenge that contain its creation time.
const TIMESTAMP_BYTES: usize = 4;

type HmacSha256 = Hmac<Sha256>;

fn new_mac(key: &[u8], parts: &[&[u8]]) -> HmacSha256 {
    let mut mac = <HmacSha256 as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The MAC of all parts, concatenated; all but one of them must have a fixed length.
pub(super) fn compute_mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    new_mac(key, parts).finalize().into_bytes().into()
}

/// Whether `tag` is a prefix of that MAC, compared in constant time.
pub(super) fn is_valid_mac(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    new_mac(key, parts).verify_truncated_left(tag).is_ok()
}

/// Signs a challenge for a client at `from`, `now_s` seconds after the server's start. The server can verify it without
/// storing it.
pub(super) fn make_challenge(
    secret: &[u8; 32],
    from: &str,
    nonce: &[u8],
    now_s: u32,
) -> [u8; CHALLENGE_BYTES] {
    let time = now_s.to_be_bytes();
    let mac = compute_mac(secret, &[b"challenge", nonce, &time, from.as_bytes()]);
    let mut challenge = [0; CHALLENGE_BYTES];
    challenge[..TIMESTAMP_BYTES].copy_from_slice(&time);
    challenge[TIMESTAMP_BYTES..].copy_from_slice(&mac[..CHALLENGE_BYTES - TIMESTAMP_BYTES]);
    challenge
}

/// Whether the server with this secret issued that challenge to `from` within its lifetime.
pub(super) fn is_own_challenge(
    secret: &[u8; 32],
    from: &str,
    nonce: &[u8],
    challenge: &[u8],
    now_s: u32,
) -> bool {
    if nonce.len() != NONCE_BYTES || challenge.len() != CHALLENGE_BYTES {
        return false;
    }
    let (time, tag) = challenge.split_at(TIMESTAMP_BYTES);
    let made_s = u32::from_be_bytes(time.try_into().expect("four bytes"));
    made_s <= now_s
        && now_s - made_s <= CHALLENGE_LIFETIME_S
        && is_valid_mac(secret, &[b"challenge", nonce, time, from.as_bytes()], tag)
}

/// Number and key of a server's `count`-th session. They cannot be derived from those of other sessions.
pub(super) fn session_identity(secret: &[u8; 32], count: u64) -> (u64, [u8; KEY_BYTES]) {
    let mac = compute_mac(secret, &[b"session", &count.to_be_bytes()]);
    let (id, key) = mac[..8 + KEY_BYTES].split_at(8);
    (u64::from_be_bytes(id.try_into().expect("eight bytes")), key.try_into().expect("sixteen bytes"))
}

/// A token and the random values of client and server for one session.
#[derive(Clone, Copy)]
pub struct TokenProof<'a> {
    /// The secret that client and server share.
    pub token: &'a str,
    /// The client's, `NONCE_BYTES` bytes.
    pub nonce: &'a [u8],
    /// The server's, `CHALLENGE_BYTES` bytes.
    pub challenge: &'a [u8],
}

impl TokenProof<'_> {
    /// Proves that a client knows the token.
    pub fn proof(&self) -> String {
        encode_hex(&compute_mac(self.token.as_bytes(), &[b"token", self.nonce, self.challenge]))
    }

    /// Whether `proof` was made from the same token and random values; compared in constant time.
    pub(crate) fn is_proved_by(&self, proof: &str) -> bool {
        let parts: [&[u8]; 3] = [b"token", self.nonce, self.challenge];
        decode_hex(proof)
            .is_some_and(|proof| proof.len() == 32 && is_valid_mac(self.token.as_bytes(), &parts, &proof))
    }

    /// The key of the session opened with it; it is never sent.
    pub fn session_key(&self, session: u64) -> [u8; KEY_BYTES] {
        let parts: [&[u8]; 4] = [b"key", self.nonce, self.challenge, &session.to_be_bytes()];
        compute_mac(self.token.as_bytes(), &parts)[..KEY_BYTES].try_into().expect("sixteen bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];
    const CLIENT_NONCE: [u8; NONCE_BYTES] = [3; NONCE_BYTES];

    #[test]
    fn a_challenge_expires_and_is_bound_to_one_client() {
        let given = make_challenge(&SECRET, "10.0.0.1:4", &CLIENT_NONCE, 100);
        let holds = |from: &str, nonce: &[u8], given: &[u8], now_s| {
            is_own_challenge(&SECRET, from, nonce, given, now_s)
        };
        assert!(holds("10.0.0.1:4", &CLIENT_NONCE, &given, 100));
        assert!(holds("10.0.0.1:4", &CLIENT_NONCE, &given, 100 + CHALLENGE_LIFETIME_S));
        assert!(!holds("10.0.0.1:4", &CLIENT_NONCE, &given, 101 + CHALLENGE_LIFETIME_S), "too late");
        assert!(!holds("10.0.0.1:4", &CLIENT_NONCE, &given, 99), "from the future");
        assert!(!holds("10.0.0.1:5", &CLIENT_NONCE, &given, 100));
        assert!(!holds("10.0.0.1:4", &[4; NONCE_BYTES], &given, 100));
        assert!(!holds("10.0.0.1:4", &[3; NONCE_BYTES - 1], &given, 100));
        let mut later = given;
        later[3] += 1;
        assert!(!holds("10.0.0.1:4", &CLIENT_NONCE, &later, 101), "its time is signed");
        assert!(!is_own_challenge(&[8; 32], "10.0.0.1:4", &CLIENT_NONCE, &given, 100), "of another server");
    }

    #[test]
    fn a_token_is_proved_without_being_sent() {
        let (nonce, challenge) = ([1; NONCE_BYTES], [2; CHALLENGE_BYTES]);
        let token = TokenProof { token: "secret", nonce: &nonce, challenge: &challenge };
        let proof = token.proof();
        assert!(token.is_proved_by(&proof));
        assert!(!TokenProof { nonce: &[9; NONCE_BYTES], ..token }.is_proved_by(&proof));
        assert!(!TokenProof { challenge: &[9; CHALLENGE_BYTES], ..token }.is_proved_by(&proof));
        assert!(!TokenProof { token: "guess", ..token }.is_proved_by(&proof));
        assert!(!token.is_proved_by(&proof[..2]), "a part of it");
        assert!(!token.is_proved_by("") && !token.is_proved_by("no hexadecimal"));
        assert!(!proof.contains("secret") && !proof.contains(&encode_hex(&token.session_key(5))));
        assert_ne!(token.session_key(5), token.session_key(6));
    }
}
