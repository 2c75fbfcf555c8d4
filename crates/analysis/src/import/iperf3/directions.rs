//! Totals of one direction of a test, from the sums at the end of an iperf3 file.
//!
//! A file has the counts of one side; only a client's file includes the other side's. Versions differ: sums of
//! datagrams are separate for sender and receiver since about 3.2, and counts of an omitted start since 3.16. Counts may be
//! negative or wrapped, for example after duplicates: no loss is known then.

use linkgauge_model::units::format_number;
use serde_json::Value;

/// A sum of an interval, of a stream or of the whole test, as in the file. What the file lacks, or what is no such number, is absent.
#[derive(Debug, Default, Clone)]
pub(super) struct PacketSum {
    /// Start of the interval since the start of the test, in seconds.
    pub(super) start: f64,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// Payload bytes.
    pub bytes: Option<u64>,
    /// A number of bytes that cannot be one.
    impossible_bytes: Option<f64>,
    /// Payload rate.
    bits_per_second: Option<f64>,
    lost_packets: Option<f64>,
    packets: Option<f64>,
    /// Whether the interval is in the time that the statistics of iperf3 leave out.
    pub(super) omitted: bool,
    /// The side that wrote the file is the sender.
    pub(super) is_sender: Option<bool>,
}

/// Maximum count of datagrams or bytes. Larger floats are not exact.
const MAX_COUNT: f64 = 9e15;

/// A count near a multiple of this has wrapped: `-1` as 32 bits is one less.
const WRAP: f64 = 4_294_967_296.0;

/// Maximum distance of a wrapped count from the multiple: no real count of negative losses is larger.
const MAX_WRAPPED: f64 = 16_777_216.0;

/// Share by which the datagrams that the receiver expected may exceed those that the sender counted.
const MAX_EXCESS: f64 = 0.01;

/// Bytes, and share, by which the receiver's count may exceed the sender's besides a block of each stream: each ends its count at a
/// time of its own.
const MAX_EXCESS_BYTES: f64 = (4 << 20) as f64;
const MAX_EXCESS_SHARE: f64 = 0.1;

/// Share by which a rate may differ from bytes ÷ time.
const MAX_RATE_ERROR: f64 = 0.02;

impl PacketSum {
    /// The sum in this value; `None` if there is none.
    pub(super) fn of(value: &Value) -> Option<PacketSum> {
        let sum = value.as_object()?;
        let number = |name: &str| sum.get(name).and_then(Value::as_f64).filter(|number| number.is_finite());
        let is_count = |bytes: &f64| (0.0..MAX_COUNT).contains(bytes);
        let time = |name: &str| number(name).filter(|time| *time >= 0.0).unwrap_or(0.0);
        Some(PacketSum {
            start: time("start"),
            seconds: time("seconds"),
            bytes: number("bytes").filter(is_count).map(|bytes| bytes as u64),
            impossible_bytes: number("bytes").filter(|bytes| !is_count(bytes)),
            bits_per_second: number("bits_per_second").filter(|rate| *rate >= 0.0),
            lost_packets: number("lost_packets"),
            packets: number("packets"),
            omitted: sum.get("omitted").and_then(Value::as_bool).unwrap_or(false),
            is_sender: sum.get("sender").and_then(Value::as_bool),
        })
    }

    /// Adds the sum of another stream.
    pub fn add(&mut self, other: &PacketSum) {
        fn sum<T: std::ops::Add<Output = T>>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.zip(b).map(|(a, b)| a + b)
        }
        self.seconds = self.seconds.max(other.seconds);
        self.bytes = sum(self.bytes, other.bytes);
        self.impossible_bytes = self.impossible_bytes.or(other.impossible_bytes);
        self.bits_per_second = sum(self.bits_per_second, other.bits_per_second);
        self.lost_packets = sum(self.lost_packets, other.lost_packets);
        self.packets = sum(self.packets, other.packets);
    }

    /// Datagrams, if the count is possible.
    pub(super) fn packets(&self) -> Option<u64> {
        self.packets.filter(|packets| (0.0..MAX_COUNT).contains(packets)).map(|packets| packets as u64)
    }

    /// Lost datagrams; `None` if the count is missing or impossible: negative, wrapped, or more than there were.
    pub(super) fn lost_packets(&self) -> Option<u64> {
        let lost = self.lost_packets.filter(|lost| (0.0..MAX_COUNT).contains(lost))?;
        let from_wrap = (lost - (lost / WRAP).round() * WRAP).abs();
        let has_wrapped = lost > WRAP / 2.0 && from_wrap < MAX_WRAPPED;
        (!has_wrapped).then_some(lost as u64)
    }

    /// The rate, unless bytes and time contradict it.
    fn rate(&self) -> Option<f64> {
        let is_zero = self.bytes == Some(0) && self.seconds > 0.0;
        let rate = self.bits_per_second.filter(|rate| *rate > 0.0 || is_zero)?;
        if self.impossible_bytes.is_some() {
            return None;
        }
        let Some(bytes) = self.bytes.filter(|_| self.seconds > 0.0) else { return Some(rate) };
        let computed = bytes as f64 * 8.0 / self.seconds;
        ((rate - computed).abs() <= MAX_RATE_ERROR * computed).then_some(rate)
    }

    /// Whether these are datagrams.
    pub(super) fn has_datagrams(&self) -> bool {
        self.packets.is_some()
    }

    /// Whether these are datagrams whose losses are not known, as in the intervals of a sender.
    pub(super) fn lacks_losses(&self) -> bool {
        self.packets.is_some() && self.lost_packets.is_none()
    }

    /// Bytes by time.
    fn mean_rate(&self) -> Option<f64> {
        Some(self.bytes? as f64 * 8.0 / self.seconds).filter(|rate| rate.is_finite())
    }

    /// Whether the rate contradicts bytes and time.
    fn has_wrong_rate(&self) -> bool {
        self.bits_per_second.is_some_and(|rate| rate > 0.0) && self.rate().is_none()
    }
}

/// The sums of one direction.
pub(super) struct DirectionSums {
    /// The sum of the sender.
    pub(super) sent: Option<PacketSum>,
    /// The sum of the receiver.
    pub(super) received: Option<PacketSum>,
    /// The single sum of datagrams in files of old versions.
    pub(super) combined: Option<PacketSum>,
    /// The sum of the intervals, if this side received.
    pub(super) intervals: Option<PacketSum>,
    /// Whether this side knows the received counts.
    pub(super) knows_received: bool,
    /// Whether this side knows the sent counts.
    pub(super) knows_sent: bool,
    /// The file omits a time at the start.
    pub(super) omits_start: bool,
    /// Payload bytes of one datagram, or of one write.
    pub(super) datagram_bytes: u64,
    /// The streams in this direction.
    pub(super) streams: u64,
}

/// Datagrams of a direction.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) enum Datagrams {
    /// A stream has none.
    #[default]
    None,
    /// Sent datagrams and received datagrams.
    Counted(u64, u64),
    /// Received datagrams; the losses are not known.
    Received(u64),
}

/// Totals of one direction.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DirectionTotals {
    /// Bytes that were delivered; `None`: the file lacks the received bytes.
    pub(super) delivered_bytes: Option<u64>,
    /// Rate of the delivered payload.
    pub(super) throughput_bps: Option<f64>,
    /// Duration in seconds.
    pub(super) seconds: f64,
    pub(super) datagrams: Datagrams,
    /// The counts of datagrams cover another time than the bytes.
    pub(super) mixes_periods: bool,
    /// Statement of the file that cannot be true.
    pub(super) impossible: Option<String>,
}

impl DirectionSums {
    /// Totals of the direction; `None` if the file has no sum of this direction.
    pub(super) fn result(&self) -> Option<DirectionTotals> {
        let seconds = [&self.received, &self.combined, &self.sent].into_iter().flatten().next()?.seconds;
        if !self.knows_received {
            return Some(DirectionTotals { seconds, ..DirectionTotals::default() });
        }
        match (&self.received, &self.combined) {
            (Some(received), _) => Some(self.result_of_agreeing_sum(received)),
            (None, Some(all)) => Some(self.result_of_old_version(all)),
            (None, None) => None,
        }
    }

    /// The intervals decide where they cover the same time as the sum and have other bytes: an interrupted server adds bytes to
    /// its sum that arrived later.
    fn result_of_agreeing_sum(&self, received: &PacketSum) -> DirectionTotals {
        let differs = |a: f64, b: f64| (a - b).abs() > MAX_RATE_ERROR * a.max(b);
        let contradiction = self.intervals.as_ref().filter(|_| !self.omits_start).and_then(|intervals| {
            let (counted, bytes) = (intervals.bytes?, received.bytes?);
            let is_other =
                !differs(intervals.seconds, received.seconds) && differs(counted as f64, bytes as f64);
            let text = format!(
                "{bytes} bytes received in {} s, and {counted} in the intervals of this time, which count",
                received.seconds
            );
            is_other
                .then_some((PacketSum { bits_per_second: intervals.mean_rate(), ..intervals.clone() }, text))
        });
        match contradiction {
            Some((intervals, text)) => {
                DirectionTotals { impossible: Some(text), ..self.result_of_receiver(&intervals) }
            }
            None => self.result_of_receiver(received),
        }
    }

    fn result_of_receiver(&self, received: &PacketSum) -> DirectionTotals {
        let mut way = DirectionTotals {
            delivered_bytes: received.bytes,
            throughput_bps: received.rate(),
            seconds: received.seconds,
            impossible: impossible_bytes(received).or_else(|| wrong_rate(received)),
            ..DirectionTotals::default()
        };
        if let Some(excess) = self.excess(received) {
            way.impossible = Some(excess);
            (way.delivered_bytes, way.throughput_bps) = (None, None);
        }
        if received.packets.is_none() && received.lost_packets.is_none() {
            return way;
        }
        let blocks = received.bytes.unwrap_or(0) / self.datagram_bytes.max(1);
        let counted = received.packets().zip(received.lost_packets()).filter(|(all, lost)| lost <= all);
        let sent = self.sent.as_ref().filter(|_| self.knows_sent && !self.omits_start);
        let sent = sent.and_then(PacketSum::packets).filter(|sent| *sent > 0);
        let limit = sent.map(|sent| sent as f64 * (1.0 + MAX_EXCESS) + 100.0);
        let counted = counted.filter(|(all, _)| limit.is_none_or(|limit| *all as f64 <= limit));
        let Some((all, lost)) = counted else {
            way.mixes_periods = self.omits_start;
            way.impossible = way.impossible.or_else(|| impossible_loss(received));
            return DirectionTotals { datagrams: Datagrams::Received(blocks), ..way };
        };
        let arrived = all - lost;
        // Duplicates and late datagrams make the two differ slightly.
        if self.datagram_bytes > 0 && received.bytes.is_some() && arrived.abs_diff(blocks) > 1 + all / 100 {
            way.mixes_periods = self.omits_start;
            way.impossible = way.impossible.or_else(|| {
                let text = format!(
                    "{lost} of {all} datagrams lost, and the bytes of {blocks} received, so no loss is known"
                );
                (!self.omits_start).then_some(text)
            });
            return DirectionTotals { datagrams: Datagrams::Received(blocks), ..way };
        }
        // The bytes decide: both counts are those of one period, and one of them may have a datagram more at its edge.
        let arrived = if self.datagram_bytes > 0 && received.bytes.is_some() { blocks } else { arrived };
        // Datagrams after the last one that the receiver saw are lost as well. This is unknown if each side measured
        // its own time.
        let sent = sent.unwrap_or(0).max(arrived + lost);
        DirectionTotals { datagrams: Datagrams::Counted(sent, arrived), ..way }
    }

    /// Note that more bytes were received than sent, if they were.
    fn excess(&self, received: &PacketSum) -> Option<String> {
        let sent = self.sent.as_ref().filter(|_| self.knows_sent && !self.omits_start)?.bytes?;
        let received = received.bytes?;
        let sent_bytes = sent as f64;
        let late =
            MAX_EXCESS_BYTES.min(MAX_EXCESS_SHARE * sent_bytes) + (self.streams * self.datagram_bytes) as f64;
        let most = sent_bytes * (1.0 + MAX_EXCESS) + late;
        (sent > 0 && received as f64 > most)
            .then(|| format!("{received} bytes received of {sent} sent, so the delivered data is left out"))
    }

    /// The sender's bytes, if present.
    fn result_of_old_version(&self, all: &PacketSum) -> DirectionTotals {
        let seconds = all.seconds;
        if all.packets.is_none() && all.lost_packets.is_none() {
            return DirectionTotals {
                delivered_bytes: all.bytes,
                throughput_bps: all.rate(),
                seconds,
                impossible: impossible_bytes(all).or_else(|| wrong_rate(all)),
                ..DirectionTotals::default()
            };
        }
        let unknown =
            DirectionTotals { seconds, datagrams: Datagrams::Received(0), ..DirectionTotals::default() };
        if self.omits_start {
            return DirectionTotals { mixes_periods: true, ..unknown };
        }
        let counted = all.packets().zip(all.lost_packets()).filter(|(counted, lost)| lost <= counted);
        // The bytes are the sender's: more datagrams than that were not sent.
        let most = all.bytes.unwrap_or(0) / self.datagram_bytes.max(1);
        let limit = most as f64 * (1.0 + MAX_EXCESS) + 100.0;
        let is_possible = |counted: u64| !self.knows_sent || counted as f64 <= limit;
        let Some((counted, lost)) = counted.filter(|(counted, _)| is_possible(*counted)) else {
            return DirectionTotals { impossible: impossible_loss(all), ..unknown };
        };
        let arrived = counted - lost;
        let delivered = arrived.saturating_mul(self.datagram_bytes);
        DirectionTotals {
            delivered_bytes: Some(delivered),
            throughput_bps: Some(delivered as f64 * 8.0 / seconds)
                .filter(|rate| rate.is_finite() && *rate >= 0.0),
            seconds,
            datagrams: Datagrams::Counted(counted, arrived),
            mixes_periods: false,
            impossible: None,
        }
    }
}

fn impossible_bytes(sum: &PacketSum) -> Option<String> {
    let bytes = sum.impossible_bytes?;
    Some(format!("{bytes} bytes is no possible amount, so the delivered data is left out"))
}

fn wrong_rate(sum: &PacketSum) -> Option<String> {
    let rate = sum.bits_per_second.filter(|_| sum.has_wrong_rate())?;
    let bytes = sum.bytes.unwrap_or(0);
    let [rate, seconds] = [rate, sum.seconds].map(format_number);
    Some(format!("{rate} bit/s for {bytes} bytes in {seconds} s, so the rate is left out"))
}

fn impossible_loss(sum: &PacketSum) -> Option<String> {
    let count =
        |count: Option<f64>| count.map_or("an unknown number".to_owned(), |count| format!("{count:.0}"));
    let [lost, all] = [sum.lost_packets, sum.packets].map(count);
    Some(format!("{lost} of {all} datagrams lost, so no loss is known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_sum(bytes: u64, packets: f64, lost_packets: f64) -> PacketSum {
        PacketSum {
            seconds: 2.0,
            bytes: Some(bytes),
            bits_per_second: Some(bytes as f64 * 4.0),
            packets: Some(packets),
            lost_packets: Some(lost_packets),
            ..PacketSum::default()
        }
    }

    fn direction_sums(sent: &PacketSum, received: Option<&PacketSum>) -> DirectionSums {
        DirectionSums {
            sent: Some(sent.clone()),
            received: received.cloned(),
            combined: None,
            intervals: None,
            knows_received: true,
            knows_sent: true,
            omits_start: false,
            datagram_bytes: 1000,
            streams: 1,
        }
    }

    #[test]
    fn no_more_arrives_than_was_sent() {
        let bytes =
            |bytes: u64| PacketSum { packets: None, lost_packets: None, ..packet_sum(bytes, 0.0, 0.0) };
        let of =
            |sent: u64, received: u64| direction_sums(&bytes(sent), Some(&bytes(received))).result().unwrap();
        // The receiver may count a block that the sender did not, and what arrives late.
        assert_eq!(of(1_000_000, 1_100_000).delivered_bytes, Some(1_100_000));
        for (sent, received) in [(1_000_000, 2_000_000), (1_000_000_000, 1_100_000_000)] {
            let way = of(sent, received);
            assert_eq!((way.delivered_bytes, way.throughput_bps), (None, None));
            assert!(way.impossible.unwrap().contains("bytes received of"));
        }
    }

    #[test]
    fn datagrams_after_the_last_gap_count_as_lost() {
        let (sent, received) =
            (packet_sum(76_790_000, 76_790.0, 0.0), packet_sum(20_761_000, 76_781.0, 56_020.0));
        let way = direction_sums(&sent, Some(&received)).result().unwrap();
        assert_eq!(
            (way.datagrams, way.delivered_bytes),
            (Datagrams::Counted(76_790, 20_761), Some(20_761_000))
        );
        // A server's file has no valid values of the sender.
        let nothing = packet_sum(0, 0.0, 0.0);
        let way = DirectionSums { knows_sent: false, ..direction_sums(&nothing, Some(&received)) }
            .result()
            .unwrap();
        assert_eq!(way.datagrams, Datagrams::Counted(76_781, 20_761));
    }

    #[test]
    fn omitted_start_keeps_only_counts_of_one_period() {
        // 3.12: losses cover the whole time, received datagrams a part of it.
        let (sent, received) =
            (packet_sum(119_870_000, 119_870.0, 0.0), packet_sum(43_591_000, 119_870.0, 182_955.0));
        let way =
            DirectionSums { omits_start: true, ..direction_sums(&sent, Some(&received)) }.result().unwrap();
        assert_eq!((way.datagrams, way.mixes_periods), (Datagrams::Received(43_591), true));
        assert_eq!(way.delivered_bytes, Some(43_591_000));
        // 3.21: the receiver's time, not the sender's.
        let (sent, received) =
            (packet_sum(182_016_000, 182_016.0, 0.0), packet_sum(59_328_000, 182_475.0, 123_147.0));
        let way =
            DirectionSums { omits_start: true, ..direction_sums(&sent, Some(&received)) }.result().unwrap();
        assert_eq!((way.datagrams, way.mixes_periods), (Datagrams::Counted(182_475, 59_328), false));
    }

    #[test]
    fn a_datagram_at_the_edge_of_the_omitted_start_contradicts_nothing() {
        let counted = |bytes: u64, packets: f64, lost: f64, omits_start: bool| {
            let (sent, received) = (packet_sum(382_000, 382.0, 0.0), packet_sum(bytes, packets, lost));
            let way =
                DirectionSums { omits_start, ..direction_sums(&sent, Some(&received)) }.result().unwrap();
            (way.datagrams, way.impossible, way.mixes_periods)
        };
        for (bytes, packets, lost, wanted) in [
            (383_000, 382.0, 0.0, Datagrams::Counted(383, 383)),
            (381_000, 382.0, 0.0, Datagrams::Counted(381, 381)),
            (371_000, 382.0, 12.0, Datagrams::Counted(383, 371)),
        ] {
            assert_eq!(counted(bytes, packets, lost, true), (wanted, None, false), "{bytes}");
        }
        // A whole test: what the sender counted and the receiver did not get is lost.
        assert_eq!(counted(381_000, 382.0, 0.0, false).0, Datagrams::Counted(382, 381));
        assert_eq!(counted(383_000, 382.0, 0.0, false).0, Datagrams::Counted(383, 383));
        // A difference that no edge explains.
        let (datagrams, impossible, _) = counted(350_000, 382.0, 0.0, false);
        assert_eq!(datagrams, Datagrams::Received(350));
        assert!(impossible.unwrap().contains("0 of 382 datagrams lost, and the bytes of 350 received"));
    }

    #[test]
    fn old_versions_sum_the_sender_bytes() {
        let (all, nothing) = (packet_sum(159_980_000, 159_980.0, 99_719.0), packet_sum(0, 0.0, 0.0));
        let old = |all: &PacketSum| DirectionSums {
            sent: None,
            combined: Some(all.clone()),
            ..direction_sums(&nothing, None)
        };
        let way = old(&all).result().unwrap();
        assert_eq!(
            (way.delivered_bytes, way.datagrams),
            (Some(60_261_000), Datagrams::Counted(159_980, 60_261))
        );
        assert_eq!(way.throughput_bps, Some(60_261_000.0 * 4.0));
        let way = DirectionSums { omits_start: true, ..old(&all) }.result().unwrap();
        assert_eq!((way.delivered_bytes, way.mixes_periods), (None, true));
        // More datagrams than the bytes that were sent.
        let way = old(&packet_sum(159_980_000, 4_295_127_276.0, 4_294_967_296.0)).result().unwrap();
        assert_eq!((way.delivered_bytes, way.datagrams), (None, Datagrams::Received(0)));
    }

    #[test]
    fn sender_only_file_has_no_delivery() {
        let (sent, received) =
            (packet_sum(40_491_000, 40_492.0, 0.0), packet_sum(0, 18_446_744_073_709_381_146.0, 0.0));
        let way = DirectionSums { knows_received: false, ..direction_sums(&sent, Some(&received)) }
            .result()
            .unwrap();
        assert_eq!(way, DirectionTotals { seconds: 2.0, ..DirectionTotals::default() });
        assert_eq!(received.packets(), None);
    }

    #[test]
    fn impossible_counts_are_no_losses() {
        let sent = packet_sum(824_122_000, 824_122.0, 0.0);
        for (packets, lost) in [
            (4_295_791_417.0, 4_294_967_295.0),
            // A second stream lost 1000.
            (4_295_792_417.0, 4_294_968_295.0),
            (824_121.0, -1.0),
            (824_122.0, 900_000.0),
            (824_122.0, 1.8e19),
            (1.8e19, 0.0),
            // More than the sender sent.
            (2_824_122.0, 2_000_000.0),
        ] {
            let received = packet_sum(824_122_000, packets, lost);
            let way = direction_sums(&sent, Some(&received)).result().unwrap();
            assert_eq!(way.datagrams, Datagrams::Received(824_122), "{lost} of {packets}");
            assert!(way.impossible.unwrap().contains("datagrams lost"), "{lost} of {packets}");
            assert_eq!(way.delivered_bytes, Some(824_122_000));
        }
        let received = PacketSum { lost_packets: None, ..packet_sum(1000, 1.0, 0.0) };
        assert_eq!(
            direction_sums(&sent, Some(&received)).result().unwrap().datagrams,
            Datagrams::Received(1)
        );
    }

    #[test]
    fn a_rate_agrees_with_bytes_and_time() {
        let wrong = PacketSum {
            bits_per_second: Some(1e9),
            packets: None,
            lost_packets: None,
            ..packet_sum(1_000_000, 0.0, 0.0)
        };
        let way = direction_sums(&wrong, Some(&wrong)).result().unwrap();
        assert_eq!((way.throughput_bps, way.delivered_bytes), (None, Some(1_000_000)));
        assert!(way.impossible.unwrap().contains("1 000 000 000 bit/s for 1000000 bytes in 2 s"));
    }
}
