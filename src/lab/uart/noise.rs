//! What becomes of characters on their way: bits that flip, breaks, and ends that do not agree on the settings.
//!
//! Every choice comes from a seed, one after the other in the order of the characters, whenever they are looked at.

use crate::link::serial_line::{Parity, SerialSettings};
use crate::stats::SplitMix64;

/// How disturbed a line is. The default is not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LineNoise {
    /// Probability that a bit arrives as its opposite, from 0 to 1.
    pub bit_error_probability: f64,
    /// Breaks per second of characters on the line.
    pub breaks_per_second: f64,
    pub seed: u64,
}

/// What went wrong, in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineDefects {
    /// Arrived with other bits than they were sent with.
    pub changed: u64,
    /// Arrived with a parity that did not fit.
    pub parity: u64,
    /// Arrived without a stop bit, or at the wrong rate.
    pub framing: u64,
    /// Did not arrive because the start bit was not seen.
    pub lost: u64,
    /// Arrived as a break.
    pub breaks: u64,
}

/// A line's way of disturbing, and what it has done so far.
pub struct NoiseSource {
    noise: LineNoise,
    random: SplitMix64,
    /// Bits that will still arrive as they are.
    bits_until_error: u64,
    pub defects: LineDefects,
}

/// Receivers look at the middle of each bit; with more than this share between the rates they miss the last ones of a
/// character (half a bit in ten, with a margin for both clocks).
const MAX_RATE_MISMATCH: f64 = 0.03;

impl NoiseSource {
    pub fn new(noise: LineNoise) -> NoiseSource {
        let mut disturber = NoiseSource {
            noise,
            random: SplitMix64::new(noise.seed),
            bits_until_error: u64::MAX,
            defects: LineDefects::default(),
        };
        disturber.bits_until_error = disturber.draw_bits_until_error();
        disturber
    }

    /// Passes on characters that were sent at these settings to a receiver that may have others.
    pub fn transmit(
        &mut self,
        sent: &SerialSettings,
        receiver: &SerialSettings,
        characters: &[u8],
        arrive: &mut Vec<u8>,
    ) {
        if !settings_agree(sent, receiver) {
            self.defects.framing += characters.len() as u64;
            arrive.extend(characters.iter().map(|_| (self.random.uniform() * 256.0) as u8));
            return;
        }
        let mask = u8::MAX >> (8 - sent.data_bits.clamp(1, 8));
        if self.noise.bit_error_probability <= 0.0 && self.noise.breaks_per_second <= 0.0 {
            arrive.extend(characters.iter().map(|character| character & mask));
            return;
        }
        let breaks = self.noise.breaks_per_second * sent.transmission_time(1).as_secs_f64();
        for character in characters {
            if breaks > 0.0 && self.random.uniform() < breaks {
                self.defects.breaks += 1;
                arrive.push(0);
            } else {
                arrive.extend(self.disturb_character(sent, character & mask));
            }
        }
    }

    /// One character, bit by bit in the order of the line: start, data, parity, stop.
    fn disturb_character(&mut self, settings: &SerialSettings, character: u8) -> Option<u8> {
        let data = u64::from(settings.data_bits);
        let parity = u64::from(settings.parity != Parity::None);
        // A second stop bit is a pause to the receiver.
        let bits = 1 + data + parity + 1;
        if self.bits_until_error >= bits {
            self.bits_until_error -= bits;
            return Some(character);
        }
        let (mut flipped, mut odd) = (0u16, 0);
        while self.bits_until_error < bits {
            flipped |= 1 << self.bits_until_error;
            odd ^= u64::from((1..=data + parity).contains(&self.bits_until_error));
            self.bits_until_error =
                self.bits_until_error.saturating_add(1).saturating_add(self.draw_bits_until_error());
        }
        self.bits_until_error -= bits;
        if flipped & 1 != 0 {
            self.defects.lost += 1;
            return None;
        }
        if flipped >> (bits - 1) != 0 {
            self.defects.framing += 1;
            return Some(0);
        }
        self.defects.parity += odd & parity;
        let arrived = character ^ ((flipped >> 1) as u8 & (u8::MAX >> (8 - data)));
        self.defects.changed += u64::from(arrived != character);
        Some(arrived)
    }

    /// Bits until the next one that flips (geometric, by inversion).
    fn draw_bits_until_error(&mut self) -> u64 {
        if self.noise.bit_error_probability <= 0.0 {
            return u64::MAX;
        }
        let sound = (1.0 - self.random.uniform()).ln() / (-self.noise.bit_error_probability).ln_1p();
        // With a probability of one the quotient is 0 or not a number; both become 0.
        sound as u64
    }
}

/// Whether a receiver understands a sender. A stop bit more is a pause to it, and one less it does not miss.
fn settings_agree(sent: &SerialSettings, receiver: &SerialSettings) -> bool {
    let (slow, fast) = (sent.baud.min(receiver.baud), sent.baud.max(receiver.baud));
    let rates = f64::from(fast) <= f64::from(slow) * (1.0 + MAX_RATE_MISMATCH);
    rates && sent.data_bits == receiver.data_bits && sent.parity == receiver.parity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::serial_line::StopBits;

    fn transmit_all(
        noise: LineNoise,
        settings: &SerialSettings,
        characters: &[u8],
    ) -> (Vec<u8>, LineDefects) {
        let mut disturber = NoiseSource::new(noise);
        let mut arrive = Vec::new();
        disturber.transmit(settings, settings, characters, &mut arrive);
        (arrive, disturber.defects)
    }

    #[test]
    fn quiet_line_passes_data_bits_only() {
        let all: Vec<u8> = (0..=255).collect();
        let eight = SerialSettings::default();
        assert_eq!(transmit_all(LineNoise::default(), &eight, &all), (all.clone(), LineDefects::default()));
        let seven = SerialSettings { data_bits: 7, ..eight };
        let masked: Vec<u8> = all.iter().map(|byte| byte & 0x7f).collect();
        assert_eq!(transmit_all(LineNoise::default(), &seven, &all), (masked, LineDefects::default()));
    }

    #[test]
    fn bit_errors_match_the_probability_and_repeat_with_a_seed() {
        let settings = SerialSettings { parity: Parity::Odd, ..SerialSettings::default() };
        let noise = LineNoise { bit_error_probability: 1e-3, seed: 7, ..LineNoise::default() };
        let sent = vec![0x55; 100_000];
        let (arrived, defects) = transmit_all(noise, &settings, &sent);
        assert_eq!((arrived.clone(), defects), transmit_all(noise, &settings, &sent));
        assert_ne!(defects, transmit_all(LineNoise { seed: 8, ..noise }, &settings, &sent).1);
        // Of 100 000 characters 1 in 1000 per bit: one start, eight data, one parity and one stop bit each. Ten standard
        // deviations wide.
        for (name, count, expected) in [
            ("lost", defects.lost, 100.0),
            ("framing", defects.framing, 100.0),
            ("changed", defects.changed, 800.0),
            ("parity", defects.parity, 900.0),
        ] {
            let off = (count as f64 - expected).abs();
            assert!(off < 10.0 * f64::sqrt(expected), "{name}: {count}, not about {expected}");
        }
        assert_eq!(arrived.len() as u64, 100_000 - defects.lost);
        let wrong = arrived.iter().filter(|byte| **byte != 0x55).count() as u64;
        assert_eq!(wrong, defects.changed + defects.framing);
    }

    #[test]
    fn flipped_start_bits_lose_the_character() {
        let noise = LineNoise { bit_error_probability: 1.0, ..LineNoise::default() };
        let (arrived, defects) = transmit_all(noise, &SerialSettings::default(), &[1, 2, 3]);
        assert_eq!((arrived.len(), defects.lost), (0, 3));
    }

    #[test]
    fn breaks_arrive_as_zero() {
        // 96 characters a second of break, at 960 characters a second: every tenth.
        let noise = LineNoise { breaks_per_second: 96.0, seed: 1, ..LineNoise::default() };
        let (arrived, defects) = transmit_all(noise, &SerialSettings::default(), &[0xff; 10_000]);
        assert!((700..1300).contains(&defects.breaks), "{defects:?}");
        assert_eq!(arrived.iter().filter(|byte| **byte == 0).count() as u64, defects.breaks);
        assert_eq!(arrived.len(), 10_000);
    }

    #[test]
    fn mismatched_settings_deliver_garbage() {
        let sent = SerialSettings::default();
        let other = |settings: SerialSettings| {
            let mut disturber = NoiseSource::new(LineNoise::default());
            let mut arrive = Vec::new();
            disturber.transmit(&sent, &settings, &[0x41; 1000], &mut arrive);
            assert_eq!(arrive.len(), 1000);
            let garbage = arrive.iter().any(|byte| *byte != 0x41);
            assert_eq!(garbage, disturber.defects.framing == 1000);
            garbage
        };
        assert!(other(SerialSettings { baud: 19_200, ..sent }));
        assert!(other(SerialSettings { baud: 9_300, ..sent }));
        assert!(!other(SerialSettings { baud: 9_700, ..sent }));
        assert!(other(SerialSettings { parity: Parity::Odd, ..sent }));
        assert!(other(SerialSettings { data_bits: 7, ..sent }));
        assert!(!other(SerialSettings { stop_bits: StopBits::Two, ..sent }));
    }
}
