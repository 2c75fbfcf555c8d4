//! What proves who is who in a session: the challenges of a server, the token, the keys of sessions. Pure: no I/O.
//!
//! A server signs its challenges instead of remembering them. With a token, both ends derive the key of a session from it
//! and from what both have made up, and sign every frame with that key. So a server that passes the proof of a client on
//! to another server gains nothing: it has no key to plan, or to attach a flow, in the session that it opens there.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::wire::{NONCE, hex, unhex};

pub const CHALLENGE: usize = 16;
pub const KEY: usize = 16;

/// A challenge holds for so many seconds: several round trips over a satellite.
pub const HOLDS_S: u32 = 30;

/// Bytes of a challenge that say when it was made.
const TIME: usize = 4;

type Sha = Hmac<Sha256>;

fn over(key: &[u8], parts: &[&[u8]]) -> Sha {
    let mut mac = <Sha as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The MAC of all parts, one after the other; all but one of them need a fixed length.
pub fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    over(key, parts).finalize().into_bytes().into()
}

/// Whether `tag` is the beginning of that MAC, in a time that does not depend on where they differ.
pub fn is_mac(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    over(key, parts).verify_truncated_left(tag).is_ok()
}

/// What a server signs to a client at `from`, `now_s` seconds after its start; it remembers nothing and can still check it.
pub fn challenge(secret: &[u8; 32], from: &str, nonce: &[u8], now_s: u32) -> [u8; CHALLENGE] {
    let time = now_s.to_be_bytes();
    let mac = mac(secret, &[b"challenge", nonce, &time, from.as_bytes()]);
    let mut challenge = [0; CHALLENGE];
    challenge[..TIME].copy_from_slice(&time);
    challenge[TIME..].copy_from_slice(&mac[..CHALLENGE - TIME]);
    challenge
}

/// Whether the server with this secret gave that challenge to `from`, not too long ago.
pub fn is_own_challenge(secret: &[u8; 32], from: &str, nonce: &[u8], challenge: &[u8], now_s: u32) -> bool {
    if nonce.len() != NONCE || challenge.len() != CHALLENGE {
        return false;
    }
    let (time, tag) = challenge.split_at(TIME);
    let made_s = u32::from_be_bytes(time.try_into().expect("four bytes"));
    made_s <= now_s
        && now_s - made_s <= HOLDS_S
        && is_mac(secret, &[b"challenge", nonce, time, from.as_bytes()], tag)
}

/// Number and key of a server's `count`-th session: they cannot be told from those of others.
pub fn session(secret: &[u8; 32], count: u64) -> (u64, [u8; KEY]) {
    let mac = mac(secret, &[b"session", &count.to_be_bytes()]);
    let (id, key) = mac[..8 + KEY].split_at(8);
    (u64::from_be_bytes(id.try_into().expect("eight bytes")), key.try_into().expect("sixteen bytes"))
}

/// A token beside what both ends made up for one session.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub token: &'a str,
    /// The client's, [`NONCE`] bytes.
    pub nonce: &'a [u8],
    /// The server's, [`CHALLENGE`] bytes.
    pub challenge: &'a [u8],
}

impl Token<'_> {
    /// What proves that a client knows the token.
    pub fn proof(&self) -> String {
        hex(&mac(self.token.as_bytes(), &[b"token", self.nonce, self.challenge]))
    }

    pub fn is_proved_by(&self, proof: &str) -> bool {
        let parts: [&[u8]; 3] = [b"token", self.nonce, self.challenge];
        unhex(proof).is_some_and(|proof| proof.len() == 32 && is_mac(self.token.as_bytes(), &parts, &proof))
    }

    /// The key of the session that was opened with it; it never goes over the wire.
    pub fn key(&self, session: u64) -> [u8; KEY] {
        let parts: [&[u8]; 4] = [b"key", self.nonce, self.challenge, &session.to_be_bytes()];
        mac(self.token.as_bytes(), &parts)[..KEY].try_into().expect("sixteen bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];
    const NONCE_OF_IT: [u8; NONCE] = [3; NONCE];

    #[test]
    fn a_challenge_holds_for_a_while_and_for_one_client() {
        let given = challenge(&SECRET, "10.0.0.1:4", &NONCE_OF_IT, 100);
        let holds = |from: &str, nonce: &[u8], given: &[u8], now_s| {
            is_own_challenge(&SECRET, from, nonce, given, now_s)
        };
        assert!(holds("10.0.0.1:4", &NONCE_OF_IT, &given, 100));
        assert!(holds("10.0.0.1:4", &NONCE_OF_IT, &given, 100 + HOLDS_S));
        assert!(!holds("10.0.0.1:4", &NONCE_OF_IT, &given, 101 + HOLDS_S), "too late");
        assert!(!holds("10.0.0.1:4", &NONCE_OF_IT, &given, 99), "from the future");
        assert!(!holds("10.0.0.1:5", &NONCE_OF_IT, &given, 100));
        assert!(!holds("10.0.0.1:4", &[4; NONCE], &given, 100));
        assert!(!holds("10.0.0.1:4", &[3; NONCE - 1], &given, 100));
        let mut later = given;
        later[3] += 1;
        assert!(!holds("10.0.0.1:4", &NONCE_OF_IT, &later, 101), "its time is signed");
        assert!(!is_own_challenge(&[8; 32], "10.0.0.1:4", &NONCE_OF_IT, &given, 100), "of another server");
    }

    #[test]
    fn a_token_is_proved_without_being_sent() {
        let (nonce, challenge) = ([1; NONCE], [2; CHALLENGE]);
        let token = Token { token: "secret", nonce: &nonce, challenge: &challenge };
        let proof = token.proof();
        assert!(token.is_proved_by(&proof));
        assert!(!Token { nonce: &[9; NONCE], ..token }.is_proved_by(&proof));
        assert!(!Token { challenge: &[9; CHALLENGE], ..token }.is_proved_by(&proof));
        assert!(!Token { token: "guess", ..token }.is_proved_by(&proof));
        assert!(!token.is_proved_by(&proof[..2]), "a part of it");
        assert!(!token.is_proved_by("") && !token.is_proved_by("no hexadecimal"));
        assert!(!proof.contains("secret") && !proof.contains(&hex(&token.key(5))));
        assert_ne!(token.key(5), token.key(6));
    }
}
