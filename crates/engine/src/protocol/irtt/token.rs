//! Tokens that say what was granted: echoes do not, and a server that stored it for each open packet could be filled with
//! forged ones.
//!
//! A token holds the grant in 32 bits, and 32 bits of a MAC over it and the address of the client. So it shows that the
//! client has received the reply to its open packet.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::packet::{CLOCKS, Layout, MIDPOINT, STATS};
use linkgauge_model::clock::Time;

/// A token opens a connection within this time.
const MAX_AGE_S: u8 = 60;

/// Content that fills replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerFill {
    /// The letters `irtt`, again and again.
    Pattern,
    /// The data of the request.
    Echo,
    Random,
}

impl ServerFill {
    const ALL: [ServerFill; 3] = [ServerFill::Pattern, ServerFill::Echo, ServerFill::Random];

    /// The fill that a client requests. Other patterns are not granted.
    pub(crate) fn of_text(text: &[u8]) -> ServerFill {
        match text {
            b"none" => ServerFill::Echo,
            b"rand" => ServerFill::Random,
            _ => ServerFill::Pattern,
        }
    }
}

/// Settings of a test that a server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) layout: Layout,
    pub(crate) fill: ServerFill,
    pub(crate) traffic_class: u8,
    /// Granted duration. In a token, whole seconds that are at most an eighth longer.
    pub(crate) duration: Duration,
}

/// Values of the layout and the fill together, as one number.
const TIMES_VALUES: u8 = MIDPOINT + 1;
const CLOCKS_VALUES: u8 = CLOCKS + 1;
const FILL_VALUES: u8 = ServerFill::ALL.len() as u8;
const STATS_VALUES: u8 = STATS + 1;

impl Grant {
    /// The token for the client at this address; never 0, which means none.
    pub(crate) fn token(&self, secret: &[u8; 32], from: &str, now: Time) -> u64 {
        let Layout { stats, times, clocks } = self.layout;
        let kind =
            ((stats * TIMES_VALUES + times) * CLOCKS_VALUES + clocks) * FILL_VALUES + self.fill as u8 + 1;
        let grant = [kind, self.traffic_class, encode_seconds(self.duration), seconds_of(now)];
        let [a, b, c, d] = mac(secret, grant, from);
        let [e, f, g, h] = grant;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Grant that this token gives to the client at this address. `None` if it was made for another, or long ago.
    pub(crate) fn of_token(token: u64, secret: &[u8; 32], from: &str, now: Time) -> Option<Grant> {
        let [a, b, c, d, e, f, g, h] = token.to_le_bytes();
        let grant = [e, f, g, h];
        let [kind, traffic_class, duration, made_at] = grant;
        let age = seconds_of(now).wrapping_sub(made_at);
        if mac(secret, grant, from) != [a, b, c, d] || age > MAX_AGE_S {
            return None;
        }
        let kind = kind.checked_sub(1)?;
        let (kind, fill) = (kind / FILL_VALUES, ServerFill::ALL[usize::from(kind % FILL_VALUES)]);
        let (kind, clocks) = (kind / CLOCKS_VALUES, kind % CLOCKS_VALUES);
        let (stats, times) = (kind / TIMES_VALUES, kind % TIMES_VALUES);
        (stats < STATS_VALUES).then(|| Grant {
            layout: Layout { stats, times, clocks },
            fill,
            traffic_class,
            duration: Duration::from_secs(decode_seconds(duration)),
        })
    }
}

fn mac(secret: &[u8; 32], grant: [u8; 4], from: &str) -> [u8; 4] {
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("HMAC takes a key of any length");
    let whole = mac.chain_update(b"irtt").chain_update(grant).chain_update(from).finalize().into_bytes();
    *whole.first_chunk().expect("an HMAC has 32 bytes")
}

fn seconds_of(now: Time) -> u8 {
    (now.0 / 1_000_000_000) as u8
}

/// Seconds, rounded up to four bits and a power of two.
fn encode_seconds(duration: Duration) -> u8 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    let power = (u64::BITS - seconds.leading_zeros()).saturating_sub(4);
    let mantissa = seconds.div_ceil(1 << power);
    u8::try_from(u64::from(power) * 8 + mantissa).unwrap_or(u8::MAX)
}

fn decode_seconds(code: u8) -> u64 {
    let power = (code / 8).saturating_sub(1);
    u64::from(code - 8 * power) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];
    const NOW: Time = Time(1_000_000_000_000);

    #[test]
    fn tokens_hold_what_was_granted() {
        for stats in 0..STATS_VALUES {
            for times in 0..TIMES_VALUES {
                for clocks in 0..CLOCKS_VALUES {
                    for fill in ServerFill::ALL {
                        let layout = Layout { stats, times, clocks };
                        let grant =
                            Grant { layout, fill, traffic_class: 0xb8, duration: Duration::from_secs(60) };
                        let token = grant.token(&SECRET, "192.0.2.1:40000", NOW);
                        let read = |from| Grant::of_token(token, &SECRET, from, NOW);
                        assert_eq!(read("192.0.2.1:40000"), Some(grant));
                        assert_eq!(read("192.0.2.1:40001"), None);
                        assert_eq!(Grant::of_token(token, &[8; 32], "192.0.2.1:40000", NOW), None);
                        for bit in 0..u64::BITS {
                            let other = token ^ 1 << bit;
                            assert_eq!(Grant::of_token(other, &SECRET, "192.0.2.1:40000", NOW), None);
                        }
                        let later = |seconds| {
                            let now = NOW + Duration::from_secs(seconds);
                            Grant::of_token(token, &SECRET, "192.0.2.1:40000", now)
                        };
                        assert_eq!((later(60), later(61)), (Some(grant), None));
                    }
                }
            }
        }
    }

    #[test]
    fn seconds_are_at_most_an_eighth_longer() {
        for seconds in (0..5000).chain([86_399, 86_400, 1 << 31]) {
            let read = decode_seconds(encode_seconds(Duration::from_secs(seconds)));
            assert!(read >= seconds && read - seconds <= seconds / 8, "{seconds}: {read}");
        }
        assert_eq!(decode_seconds(encode_seconds(Duration::from_millis(1))), 1);
        assert_eq!(encode_seconds(Duration::MAX), u8::MAX);
    }
}
