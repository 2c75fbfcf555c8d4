//! Signatures of control messages: HMAC-SHA256 with keys that client and server derive from a shared key and the time of the
//! setup request.
//!
//! The last 41 bytes of each message are the mode, the time, the signature, the number of the key, a reserved byte and a
//! checksum. The signature covers the message with zeros in place of signature and checksum.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

type KeyedHash = Hmac<Sha256>;

/// Bytes at the end of a message that belong to its signature.
const TRAILER_BYTES: usize = 41;
const DIGEST_BYTES: usize = 32;
/// Offsets in them.
const TIME: usize = 1;
const DIGEST: usize = 5;
const KEY_ID: usize = 37;
const CHECKSUM: usize = 39;

/// Mode of signed control messages.
pub(crate) const SIGNED_MODE: u8 = 1;

/// Difference of the clocks of client and server up to which a signature is valid, in seconds.
pub(super) const MAX_TIME_DIFFERENCE: u32 = 5;

/// Keys of one test.
#[derive(Clone)]
pub struct TestKeys {
    pub(super) client: TestKey,
    pub(super) server: TestKey,
}

/// Key of one end.
#[derive(Clone)]
pub(super) struct TestKey(KeyedHash);

impl TestKeys {
    /// Keys of the test whose setup request has this time: SP 800-108 in counter mode, two blocks.
    pub fn derive(shared: &[u8], setup_time: u32) -> TestKeys {
        let block = |counter: u32| {
            let context = setup_time.to_string();
            let parts: [&[u8]; 5] = [
                &counter.to_be_bytes(),
                b"UDPSTP",
                &[0],
                context.as_bytes(),
                &(2 * 8 * DIGEST_BYTES as u32).to_be_bytes(),
            ];
            let mac = parts.iter().fold(keyed(shared), |mac, part| mac.chain_update(part));
            TestKey(keyed(&mac.finalize().into_bytes()))
        };
        TestKeys { client: block(1), server: block(2) }
    }
}

fn keyed(key: &[u8]) -> KeyedHash {
    <KeyedHash as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length")
}

impl TestKey {
    /// The HMAC of a message with zeros in place of signature and checksum.
    fn mac(&self, message: &[u8]) -> KeyedHash {
        let (body, trailer) = message.split_at(message.len() - TRAILER_BYTES);
        let mac = self.0.clone().chain_update(body).chain_update(&trailer[..DIGEST]);
        let mac = mac.chain_update([0; DIGEST_BYTES]).chain_update(&trailer[KEY_ID..CHECKSUM]);
        mac.chain_update([0; TRAILER_BYTES - CHECKSUM])
    }

    /// Signs a message at this time.
    pub(super) fn sign(&self, message: &mut [u8], time: u32, key_id: u8) {
        let at = message.len() - TRAILER_BYTES;
        message[at] = SIGNED_MODE;
        message[at + TIME..at + DIGEST].copy_from_slice(&time.to_be_bytes());
        message[at + KEY_ID] = key_id;
        let digest = self.mac(message).finalize().into_bytes();
        message[at + DIGEST..at + KEY_ID].copy_from_slice(&digest);
    }

    /// Whether this key signed a message at about this time.
    pub(super) fn has_signed(&self, message: &[u8], now: u32) -> bool {
        let Some(trailer) = trailer_of(message) else { return false };
        is_near(time_of(message), now) && self.mac(message).verify_slice(&trailer[DIGEST..KEY_ID]).is_ok()
    }
}

fn trailer_of(message: &[u8]) -> Option<&[u8]> {
    message.get(message.len().checked_sub(TRAILER_BYTES)?..)
}

/// Whether the clocks may differ by so much.
pub(super) fn is_near(time: u32, now: u32) -> bool {
    time.abs_diff(now) <= MAX_TIME_DIFFERENCE
}

/// Mode of a message.
pub(super) fn mode_of(message: &[u8]) -> u8 {
    trailer_of(message).map_or(0, |trailer| trailer[0])
}

/// Time of a message in seconds since 1970.
pub(super) fn time_of(message: &[u8]) -> u32 {
    let time = trailer_of(message).and_then(|trailer| trailer[TIME..DIGEST].try_into().ok());
    time.map_or(0, u32::from_be_bytes)
}

/// Number of the key of a message.
pub(super) fn key_id_of(message: &[u8]) -> u8 {
    trailer_of(message).map_or(0, |trailer| trailer[KEY_ID])
}
