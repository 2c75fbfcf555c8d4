//! Faults on the line: flipped bits, breaks, and mismatched settings.
//!
//! A seed determines every fault in the order of the characters, independent of when they are processed.

use linkgauge_engine::link::serial_line::{Parity, SerialSettings};
use linkgauge_model::stats::SplitMix64;

/// The noise on a line. The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LineNoise {
    /// Probability that a bit arrives inverted, 0 to 1.
    pub bit_error_probability: f64,
    /// Breaks per second of line time.
    pub breaks_per_second: f64,
    /// Seed of the faults: the same seed causes the same faults.
    pub seed: u64,
}

/// Defects, in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineDefects {
    /// Characters that arrived with changed bits.
    pub changed: u64,
    /// Characters that arrived with a parity error.
    pub parity: u64,
    /// Characters that arrived without a stop bit, or at the wrong rate.
    pub framing: u64,
    /// Characters lost because the start bit was missed.
    pub lost: u64,
    /// Characters that arrived as a break.
    pub breaks: u64,
}

/// The noise source of a line and its counters.
pub(crate) struct NoiseSource {
    noise: LineNoise,
    random: SplitMix64,
    /// Number of bits until the next flipped bit.
    bits_until_error: u64,
    /// Characters with defects so far.
    pub(crate) defects: LineDefects,
}

/// Receivers sample the middle of each bit. With a larger difference between the rates they miss the last bits of a
/// character (half a bit in ten, with a margin for both clocks).
const MAX_RATE_MISMATCH: f64 = 0.03;

impl NoiseSource {
    /// A source whose faults follow from the seed.
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

    /// Transmits characters at the sender's settings to a receiver whose settings may differ.
    pub(crate) fn transmit(
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

    /// One character in line order: start, data, parity, stop.
    fn disturb_character(&mut self, settings: &SerialSettings, character: u8) -> Option<u8> {
        let data = u64::from(settings.data_bits);
        let parity = u64::from(settings.parity != Parity::None);
        // A receiver treats a second stop bit as idle time.
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

    /// Bits until the next flipped bit (geometric distribution, by inversion).
    fn draw_bits_until_error(&mut self) -> u64 {
        if self.noise.bit_error_probability <= 0.0 {
            return u64::MAX;
        }
        let sound = (1.0 - self.random.uniform()).ln() / (-self.noise.bit_error_probability).ln_1p();
        // With a probability of 1 the quotient is 0 or NaN; both become 0.
        sound as u64
    }
}

/// Whether a receiver understands a sender. An additional stop bit is idle time, and a missing second one is not
/// noticed.
fn settings_agree(sent: &SerialSettings, receiver: &SerialSettings) -> bool {
    let (slow, fast) = (sent.baud.min(receiver.baud), sent.baud.max(receiver.baud));
    let rates = f64::from(fast) <= f64::from(slow) * (1.0 + MAX_RATE_MISMATCH);
    rates && sent.data_bits == receiver.data_bits && sent.parity == receiver.parity
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_engine::link::serial_line::StopBits;

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
        // 100 000 characters with an error rate of 1 in 1000 per bit: one start, eight data, one parity and one stop
        // bit each. The range is ten standard deviations wide.
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
        // 96 characters of break per second, at 960 characters per second: one in ten.
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
