//! What one direction of a test came to, by the sums at the end of a file of iperf3.
//!
//! A file is one end's: what the other end counted is in a client's file only. And versions differ: sums of datagrams have
//! been told apart by sender and receiver since 3.2 or so, and the counts of a time left out at the beginning since 3.16.

use serde::Deserialize;

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct Sum {
    pub start: f64,
    pub seconds: f64,
    pub bytes: u64,
    pub bits_per_second: f64,
    /// Some versions write −1, or 2⁶⁴ less a few.
    lost_packets: Option<f64>,
    packets: Option<f64>,
    pub omitted: bool,
}

/// No count of datagrams is larger; what no float holds exactly is none.
const MOST_PACKETS: f64 = 9e15;

impl Sum {
    pub fn packets(&self) -> Option<u64> {
        self.packets.filter(|packets| (0.0..MOST_PACKETS).contains(packets)).map(|packets| packets as u64)
    }

    pub fn lost_packets(&self) -> u64 {
        self.lost_packets.filter(|lost| (0.0..MOST_PACKETS).contains(lost)).map_or(0, |lost| lost as u64)
    }
}

/// The sums of one direction.
pub struct Sums<'a> {
    pub sent: Option<&'a Sum>,
    pub received: Option<&'a Sum>,
    /// The only sum of datagrams in files of old versions.
    pub all: Option<&'a Sum>,
    /// This end knows what was received.
    pub knows_received: bool,
    /// This end knows what was sent.
    pub knows_sent: bool,
    /// A time at the beginning was left out.
    pub omits: bool,
    pub datagram_bytes: u64,
}

/// What is known of one direction.
#[derive(Debug, Default, PartialEq)]
pub struct Way {
    /// None: the file does not say what was received.
    pub delivered_bytes: Option<u64>,
    pub throughput_bps: Option<f64>,
    pub seconds: f64,
    /// Datagrams sent and received, where these counts are of the same time.
    pub datagrams: Option<(u64, u64)>,
    /// There are counts of datagrams, but not of the same time as the bytes.
    pub is_mixed: bool,
}

fn rate(bits_per_second: f64) -> Option<f64> {
    Some(bits_per_second).filter(|rate| rate.is_finite() && *rate > 0.0)
}

impl Sums<'_> {
    /// None where the file has no sum of this direction.
    pub fn way(&self) -> Option<Way> {
        let seconds = [self.received, self.all, self.sent].into_iter().flatten().next()?.seconds;
        if !self.knows_received {
            return Some(Way { seconds, ..Way::default() });
        }
        match (self.received, self.all) {
            (Some(received), _) => Some(self.received(received)),
            (None, Some(all)) => Some(self.of_old(all)),
            (None, None) => None,
        }
    }

    fn received(&self, received: &Sum) -> Way {
        let way = Way {
            delivered_bytes: Some(received.bytes),
            throughput_bps: rate(received.bits_per_second),
            seconds: received.seconds,
            ..Way::default()
        };
        let Some(counted) = received.packets() else { return way };
        let arrived = counted.saturating_sub(received.lost_packets());
        // Duplicates, and what comes late, let the two differ by a little.
        let blocks = received.bytes / self.datagram_bytes.max(1);
        let fits = received.lost_packets() <= counted && arrived.abs_diff(blocks) <= 1 + counted / 100;
        if self.omits && !fits {
            return Way { is_mixed: true, ..way };
        }
        // What the receiver saw no gap behind is lost as well; of a time that both ends measure for themselves, nobody
        // knows.
        let sent = self.sent.filter(|_| self.knows_sent && !self.omits).and_then(Sum::packets);
        let sent = sent.map_or(counted, |sent| sent.max(arrived));
        Way { datagrams: Some((sent, arrived)), ..way }
    }

    /// Its bytes are the sender's, where there are any.
    fn of_old(&self, all: &Sum) -> Way {
        let seconds = all.seconds;
        let Some(counted) = all.packets() else {
            return Way {
                delivered_bytes: Some(all.bytes),
                throughput_bps: rate(all.bits_per_second),
                seconds,
                ..Way::default()
            };
        };
        if self.omits {
            return Way { seconds, is_mixed: true, ..Way::default() };
        }
        let arrived = counted.saturating_sub(all.lost_packets());
        let delivered = arrived.saturating_mul(self.datagram_bytes);
        Way {
            delivered_bytes: Some(delivered),
            throughput_bps: rate(delivered as f64 * 8.0 / seconds),
            seconds,
            datagrams: Some((counted, arrived)),
            is_mixed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: u64, packets: f64, lost_packets: f64) -> Sum {
        Sum {
            seconds: 2.0,
            bytes,
            bits_per_second: bytes as f64 * 4.0,
            packets: Some(packets),
            lost_packets: Some(lost_packets),
            ..Sum::default()
        }
    }

    fn sums<'a>(sent: &'a Sum, received: Option<&'a Sum>) -> Sums<'a> {
        Sums {
            sent: Some(sent),
            received,
            all: None,
            knows_received: true,
            knows_sent: true,
            omits: false,
            datagram_bytes: 1000,
        }
    }

    #[test]
    fn datagrams_behind_which_no_gap_was_seen_are_lost_as_well() {
        let (sent, received) = (sum(76_790_000, 76_790.0, 0.0), sum(20_761_000, 76_781.0, 56_020.0));
        let way = sums(&sent, Some(&received)).way().unwrap();
        assert_eq!((way.datagrams, way.delivered_bytes), (Some((76_790, 20_761)), Some(20_761_000)));
        // What a server's file says of the sender is nothing.
        let nothing = sum(0, 0.0, 0.0);
        let way = Sums { knows_sent: false, ..sums(&nothing, Some(&received)) }.way().unwrap();
        assert_eq!(way.datagrams, Some((76_781, 20_761)));
    }

    #[test]
    fn with_a_beginning_left_out_only_counts_of_one_time_count() {
        // 3.12: lost in all of the time, received in a part of it.
        let (sent, received) = (sum(119_870_000, 119_870.0, 0.0), sum(43_591_000, 119_870.0, 182_955.0));
        let way = Sums { omits: true, ..sums(&sent, Some(&received)) }.way().unwrap();
        assert_eq!((way.datagrams, way.is_mixed, way.delivered_bytes), (None, true, Some(43_591_000)));
        // 3.21: the receiver's time, not the sender's.
        let (sent, received) = (sum(182_016_000, 182_016.0, 0.0), sum(59_328_000, 182_475.0, 123_147.0));
        let way = Sums { omits: true, ..sums(&sent, Some(&received)) }.way().unwrap();
        assert_eq!((way.datagrams, way.is_mixed), (Some((182_475, 59_328)), false));
    }

    #[test]
    fn the_only_sum_of_old_versions_holds_the_bytes_of_the_sender() {
        let (all, nothing) = (sum(159_980_000, 159_980.0, 99_719.0), sum(0, 0.0, 0.0));
        let old = || Sums { sent: None, all: Some(&all), ..sums(&nothing, None) };
        let way = old().way().unwrap();
        assert_eq!((way.delivered_bytes, way.datagrams), (Some(60_261_000), Some((159_980, 60_261))));
        assert_eq!(way.throughput_bps, Some(60_261_000.0 * 4.0));
        let way = Sums { omits: true, ..old() }.way().unwrap();
        assert_eq!((way.delivered_bytes, way.datagrams, way.is_mixed), (None, None, true));
    }

    #[test]
    fn an_end_that_only_sent_knows_nothing_of_what_arrived() {
        let (sent, received) = (sum(40_491_000, 40_492.0, 0.0), sum(0, 18_446_744_073_709_381_146.0, 0.0));
        let way = Sums { knows_received: false, ..sums(&sent, Some(&received)) }.way().unwrap();
        assert_eq!(way, Way { seconds: 2.0, ..Way::default() });
        assert_eq!((received.packets(), sum(0, -1.0, -1.0).lost_packets()), (None, 0));
    }
}
