//! Totals of one direction of a test, from the sums at the end of an iperf3 file.
//!
//! A file has the counts of one side; only a client's file includes the other side's. Versions differ: sums of
//! datagrams are separate for sender and receiver since about 3.2, and counts of an omitted start since 3.16.

use serde::Deserialize;

/// A sum of an interval or of the whole test, as in the file.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(crate) struct PacketSum {
    /// Start since the start of the test, in seconds.
    pub(crate) start: f64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// Payload rate.
    pub(crate) bits_per_second: f64,
    /// Some versions write −1, or a little less than 2⁶⁴.
    lost_packets: Option<f64>,
    packets: Option<f64>,
    /// In the time that the statistics of iperf3 leave out.
    pub(crate) omitted: bool,
}

/// Maximum count of datagrams. Larger floats are not exact.
const MAX_PACKETS: f64 = 9e15;

impl PacketSum {
    /// Datagrams, if the count is plausible.
    pub(crate) fn packets(&self) -> Option<u64> {
        self.packets.filter(|packets| (0.0..MAX_PACKETS).contains(packets)).map(|packets| packets as u64)
    }

    /// Lost datagrams; 0 if the count is missing or implausible.
    pub(crate) fn lost_packets(&self) -> u64 {
        self.lost_packets.filter(|lost| (0.0..MAX_PACKETS).contains(lost)).map_or(0, |lost| lost as u64)
    }
}

/// The sums of one direction.
pub(crate) struct DirectionSums<'a> {
    /// The sum of the sender.
    pub(crate) sent: Option<&'a PacketSum>,
    /// The sum of the receiver.
    pub(crate) received: Option<&'a PacketSum>,
    /// The single sum of datagrams in files of old versions.
    pub(crate) combined: Option<&'a PacketSum>,
    /// This side knows the received counts.
    pub(crate) knows_received: bool,
    /// This side knows the sent counts.
    pub(crate) knows_sent: bool,
    /// The file omits a time at the start.
    pub(crate) omits_start: bool,
    /// Payload bytes of one datagram.
    pub(crate) datagram_bytes: u64,
}

/// Totals of one direction.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct DirectionTotals {
    /// `None`: the file lacks the received bytes.
    pub(crate) delivered_bytes: Option<u64>,
    /// Rate of the delivered payload.
    pub(crate) throughput_bps: Option<f64>,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Datagrams sent and received, if both counts cover the same time.
    pub(crate) datagrams: Option<(u64, u64)>,
    /// The counts of datagrams cover another time than the bytes.
    pub(crate) mixes_periods: bool,
}

fn positive_rate(bits_per_second: f64) -> Option<f64> {
    Some(bits_per_second).filter(|rate| rate.is_finite() && *rate > 0.0)
}

impl DirectionSums<'_> {
    /// `None` if the file has no sum of this direction.
    pub(crate) fn result(&self) -> Option<DirectionTotals> {
        let seconds = [self.received, self.combined, self.sent].into_iter().flatten().next()?.seconds;
        if !self.knows_received {
            return Some(DirectionTotals { seconds, ..DirectionTotals::default() });
        }
        match (self.received, self.combined) {
            (Some(received), _) => Some(self.result_of_receiver(received)),
            (None, Some(all)) => Some(self.result_of_old_version(all)),
            (None, None) => None,
        }
    }

    fn result_of_receiver(&self, received: &PacketSum) -> DirectionTotals {
        let way = DirectionTotals {
            delivered_bytes: Some(received.bytes),
            throughput_bps: positive_rate(received.bits_per_second),
            seconds: received.seconds,
            ..DirectionTotals::default()
        };
        let Some(counted) = received.packets() else { return way };
        let arrived = counted.saturating_sub(received.lost_packets());
        // Duplicates and late datagrams make the two differ slightly.
        let blocks = received.bytes / self.datagram_bytes.max(1);
        let fits = received.lost_packets() <= counted && arrived.abs_diff(blocks) <= 1 + counted / 100;
        if self.omits_start && !fits {
            return DirectionTotals { mixes_periods: true, ..way };
        }
        // Datagrams after the last one that the receiver saw are lost as well. This is unknown if each side measured
        // its own time.
        let sent = self.sent.filter(|_| self.knows_sent && !self.omits_start).and_then(PacketSum::packets);
        let sent = sent.map_or(counted, |sent| sent.max(arrived));
        DirectionTotals { datagrams: Some((sent, arrived)), ..way }
    }

    /// The sender's bytes, if present.
    fn result_of_old_version(&self, all: &PacketSum) -> DirectionTotals {
        let seconds = all.seconds;
        let Some(counted) = all.packets() else {
            return DirectionTotals {
                delivered_bytes: Some(all.bytes),
                throughput_bps: positive_rate(all.bits_per_second),
                seconds,
                ..DirectionTotals::default()
            };
        };
        if self.omits_start {
            return DirectionTotals { seconds, mixes_periods: true, ..DirectionTotals::default() };
        }
        let arrived = counted.saturating_sub(all.lost_packets());
        let delivered = arrived.saturating_mul(self.datagram_bytes);
        DirectionTotals {
            delivered_bytes: Some(delivered),
            throughput_bps: positive_rate(delivered as f64 * 8.0 / seconds),
            seconds,
            datagrams: Some((counted, arrived)),
            mixes_periods: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_sum(bytes: u64, packets: f64, lost_packets: f64) -> PacketSum {
        PacketSum {
            seconds: 2.0,
            bytes,
            bits_per_second: bytes as f64 * 4.0,
            packets: Some(packets),
            lost_packets: Some(lost_packets),
            ..PacketSum::default()
        }
    }

    fn direction_sums<'a>(sent: &'a PacketSum, received: Option<&'a PacketSum>) -> DirectionSums<'a> {
        DirectionSums {
            sent: Some(sent),
            received,
            combined: None,
            knows_received: true,
            knows_sent: true,
            omits_start: false,
            datagram_bytes: 1000,
        }
    }

    #[test]
    fn datagrams_after_the_last_gap_count_as_lost() {
        let (sent, received) =
            (packet_sum(76_790_000, 76_790.0, 0.0), packet_sum(20_761_000, 76_781.0, 56_020.0));
        let way = direction_sums(&sent, Some(&received)).result().unwrap();
        assert_eq!((way.datagrams, way.delivered_bytes), (Some((76_790, 20_761)), Some(20_761_000)));
        // A server's file has no valid values of the sender.
        let nothing = packet_sum(0, 0.0, 0.0);
        let way = DirectionSums { knows_sent: false, ..direction_sums(&nothing, Some(&received)) }
            .result()
            .unwrap();
        assert_eq!(way.datagrams, Some((76_781, 20_761)));
    }

    #[test]
    fn omitted_start_keeps_only_counts_of_one_period() {
        // 3.12: losses cover the whole time, received datagrams a part of it.
        let (sent, received) =
            (packet_sum(119_870_000, 119_870.0, 0.0), packet_sum(43_591_000, 119_870.0, 182_955.0));
        let way =
            DirectionSums { omits_start: true, ..direction_sums(&sent, Some(&received)) }.result().unwrap();
        assert_eq!((way.datagrams, way.mixes_periods, way.delivered_bytes), (None, true, Some(43_591_000)));
        // 3.21: the receiver's time, not the sender's.
        let (sent, received) =
            (packet_sum(182_016_000, 182_016.0, 0.0), packet_sum(59_328_000, 182_475.0, 123_147.0));
        let way =
            DirectionSums { omits_start: true, ..direction_sums(&sent, Some(&received)) }.result().unwrap();
        assert_eq!((way.datagrams, way.mixes_periods), (Some((182_475, 59_328)), false));
    }

    #[test]
    fn old_versions_sum_the_sender_bytes() {
        let (all, nothing) = (packet_sum(159_980_000, 159_980.0, 99_719.0), packet_sum(0, 0.0, 0.0));
        let old = || DirectionSums { sent: None, combined: Some(&all), ..direction_sums(&nothing, None) };
        let way = old().result().unwrap();
        assert_eq!((way.delivered_bytes, way.datagrams), (Some(60_261_000), Some((159_980, 60_261))));
        assert_eq!(way.throughput_bps, Some(60_261_000.0 * 4.0));
        let way = DirectionSums { omits_start: true, ..old() }.result().unwrap();
        assert_eq!((way.delivered_bytes, way.datagrams, way.mixes_periods), (None, None, true));
    }

    #[test]
    fn sender_only_file_has_no_delivery() {
        let (sent, received) =
            (packet_sum(40_491_000, 40_492.0, 0.0), packet_sum(0, 18_446_744_073_709_381_146.0, 0.0));
        let way = DirectionSums { knows_received: false, ..direction_sums(&sent, Some(&received)) }
            .result()
            .unwrap();
        assert_eq!(way, DirectionTotals { seconds: 2.0, ..DirectionTotals::default() });
        assert_eq!((received.packets(), packet_sum(0, -1.0, -1.0).lost_packets()), (None, 0));
    }
}
