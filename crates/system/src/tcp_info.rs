//! The state of a TCP connection as the kernel reports it (`struct tcp_info` of linux/tcp.h).
//!
//! Each kernel appends fields: 232 bytes in Linux 6.1, 280 in 6.18. A field exists if its end lies within the length
//! that the kernel returned.

/// Bytes of the fields known here.
const MAX_BYTES: usize = 280;

/// One reading of `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl std::fmt::Debug for TcpInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.counters()).entries(self.gauges()).finish()
    }
}

/// The width of a field.
#[derive(Clone, Copy)]
enum Width {
    U16,
    U32,
    U64,
}

/// A field: its name in documents, its offset, its width, and the factor from its unit to that of the name.
type Field = (&'static str, usize, Width, u64);

const MICROSECONDS: u64 = 1000;
const MILLISECONDS: u64 = 1_000_000;
/// Factor from bytes per second to bits per second.
const BYTE_RATE: u64 = 8;

/// Fields that only grow while a connection is open.
const COUNTERS: &[Field] = &[
    ("tcp_retransmitted_segments", 100, Width::U32, 1),
    ("tcp_acknowledged_bytes", 120, Width::U64, 1),
    ("tcp_received_bytes", 128, Width::U64, 1),
    ("tcp_sent_segments", 136, Width::U32, 1),
    ("tcp_received_segments", 140, Width::U32, 1),
    ("tcp_received_data_segments", 152, Width::U32, 1),
    ("tcp_sent_data_segments", 156, Width::U32, 1),
    ("tcp_busy_ns", 168, Width::U64, MICROSECONDS),
    ("tcp_receive_window_limited_ns", 176, Width::U64, MICROSECONDS),
    ("tcp_send_buffer_limited_ns", 184, Width::U64, MICROSECONDS),
    ("tcp_delivered_segments", 192, Width::U32, 1),
    ("tcp_delivered_ce_segments", 196, Width::U32, 1),
    ("tcp_sent_bytes", 200, Width::U64, 1),
    ("tcp_retransmitted_bytes", 208, Width::U64, 1),
    ("tcp_duplicate_sacks", 216, Width::U32, 1),
    ("tcp_reorderings_seen", 220, Width::U32, 1),
    ("tcp_out_of_order_segments", 224, Width::U32, 1),
    ("tcp_retransmission_timeouts", 240, Width::U16, 1),
    ("tcp_timeout_recoveries", 242, Width::U16, 1),
    ("tcp_timeout_ns", 244, Width::U32, MILLISECONDS),
    ("tcp_received_ce_segments", 248, Width::U32, 1),
];

/// Fields that rise and fall.
const GAUGES: &[Field] = &[
    ("tcp_retransmission_timeout_ns", 8, Width::U32, MICROSECONDS),
    ("tcp_delayed_ack_timeout_ns", 12, Width::U32, MICROSECONDS),
    ("tcp_segment_bytes", 16, Width::U32, 1),
    ("tcp_received_segment_bytes", 20, Width::U32, 1),
    ("tcp_unacknowledged_segments", 24, Width::U32, 1),
    ("tcp_lost_segments", 32, Width::U32, 1),
    ("tcp_path_mtu_bytes", 60, Width::U32, 1),
    ("tcp_rtt_ns", 68, Width::U32, MICROSECONDS),
    ("tcp_rtt_deviation_ns", 72, Width::U32, MICROSECONDS),
    ("tcp_congestion_window_segments", 80, Width::U32, 1),
    ("tcp_reordering_segments", 88, Width::U32, 1),
    ("tcp_receiver_rtt_ns", 92, Width::U32, MICROSECONDS),
    ("tcp_receiver_space_bytes", 96, Width::U32, 1),
    ("tcp_pacing_rate_bps", 104, Width::U64, BYTE_RATE),
    ("tcp_unsent_bytes", 144, Width::U32, 1),
    ("tcp_min_rtt_ns", 148, Width::U32, MICROSECONDS),
    ("tcp_delivery_rate_bps", 160, Width::U64, BYTE_RATE),
    ("tcp_send_window_bytes", 228, Width::U32, 1),
    ("tcp_receive_window_bytes", 232, Width::U32, 1),
];

impl TcpInfo {
    /// Parses what the kernel returned; the length decides which fields exist.
    pub fn from_bytes(bytes: &[u8]) -> TcpInfo {
        let length = bytes.len().min(MAX_BYTES);
        let mut info = TcpInfo { bytes: [0; MAX_BYTES], length };
        info.bytes[..length].copy_from_slice(&bytes[..length]);
        info
    }

    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes[..self.length].get(offset..offset + N)?.try_into().ok()
    }

    fn field(&self, (_, offset, width, factor): Field) -> Option<u64> {
        let value = match width {
            Width::U16 => u16::from_ne_bytes(self.array(offset)?).into(),
            Width::U32 => u32::from_ne_bytes(self.array(offset)?).into(),
            Width::U64 => u64::from_ne_bytes(self.array(offset)?),
        };
        // Without a measurement yet, and without a limit, the kernel stores the largest number.
        let is_unset = match width {
            Width::U16 => false,
            Width::U32 => value == u64::from(u32::MAX),
            Width::U64 => value == u64::MAX,
        };
        (!is_unset).then(|| value.saturating_mul(factor))
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_ne_bytes)
    }

    /// Smoothed round trip time in microseconds.
    pub fn rtt_us(&self) -> Option<u32> {
        self.u32(68)
    }

    /// Time since the last acknowledgement, in milliseconds.
    pub fn last_ack_ms(&self) -> Option<u32> {
        self.u32(56)
    }

    /// Segments retransmitted since the connection was opened.
    pub fn retransmits(&self) -> Option<u32> {
        self.u32(100)
    }

    /// Congestion window in segments.
    pub fn congestion_window(&self) -> Option<u32> {
        self.u32(80)
    }

    /// The kernel's estimate of the rate of delivery, in bits per second.
    pub fn delivery_rate_bps(&self) -> Option<u64> {
        self.array(160).map(u64::from_ne_bytes).map(|rate| rate.saturating_mul(BYTE_RATE))
    }

    /// Whether the sending program, not the network, limited that rate.
    pub fn is_application_limited(&self) -> Option<bool> {
        // The bit field after the window scales.
        self.array(7).map(|[bits]: [u8; 1]| bits & 1 != 0)
    }

    /// Whether both ends agreed to use ECN.
    fn uses_ecn(&self) -> Option<bool> {
        self.array(5).map(|[options]: [u8; 1]| options & ECN_OPTION != 0)
    }

    /// The fields that only grow: name and value.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTERS.iter().filter_map(|field| Some((field.0, self.field(*field)?)))
    }

    /// The fields that rise and fall: name and value.
    pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let fields = GAUGES.iter().filter_map(|field| Some((field.0, self.field(*field)?)));
        let flags = [(APPLICATION_LIMITED, self.is_application_limited()), (ECN, self.uses_ecn())];
        fields.chain(flags.into_iter().filter_map(|(name, is_set)| Some((name, is_set?.into()))))
    }
}

/// 1 if the sending program, not the network, limited the rate of delivery, else 0.
const APPLICATION_LIMITED: &str = "tcp_application_limited";

/// 1 if both ends agreed to use ECN, else 0.
const ECN: &str = "tcp_ecn";

/// `TCPI_OPT_ECN` of linux/tcp.h, in the byte of options.
const ECN_OPTION: u8 = 8;

/// The names of all counters and gauges.
pub fn names() -> impl Iterator<Item = &'static str> {
    COUNTERS.iter().chain(GAUGES).map(|field| field.0).chain([APPLICATION_LIMITED, ECN])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The structure with these values of 32 bits, and the byte at 7.
    fn info(length: usize, words: &[(usize, u32)], flags: u8) -> TcpInfo {
        let mut bytes = vec![0; length];
        for (offset, value) in words {
            bytes[*offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[7] = flags;
        TcpInfo::from_bytes(&bytes)
    }

    #[test]
    fn fields_stand_at_their_offsets() {
        let info = info(232, &[(68, 20_500), (100, 7), (80, 10), (168, 990_000), (228, 65_536)], 1);
        let counters: BTreeMap<_, _> = info.counters().collect();
        let gauges: BTreeMap<_, _> = info.gauges().collect();
        assert_eq!(
            (info.rtt_us(), info.retransmits(), info.congestion_window()),
            (Some(20_500), Some(7), Some(10))
        );
        assert_eq!((counters["tcp_busy_ns"], counters["tcp_retransmitted_segments"]), (990_000_000, 7));
        assert_eq!((gauges["tcp_rtt_ns"], gauges["tcp_send_window_bytes"]), (20_500_000, 65_536));
        assert_eq!(info.is_application_limited(), Some(true));
    }

    #[test]
    fn the_length_decides_which_fields_exist() {
        let names = |length| {
            let info = TcpInfo::from_bytes(&vec![1; length]);
            info.counters().chain(info.gauges()).map(|(name, _)| name).collect::<Vec<_>>()
        };
        // Linux 6.1 and 6.18.
        assert!(
            names(232).contains(&"tcp_send_window_bytes")
                && !names(232).contains(&"tcp_receive_window_bytes")
        );
        assert!(names(280).contains(&"tcp_received_ce_segments"));
        assert_eq!(names(280), super::names().collect::<Vec<_>>());
        assert_eq!(names(600), names(280));
        assert!(names(0).is_empty() && names(100).iter().all(|name| *name != "tcp_retransmitted_segments"));
        assert!(names(104).contains(&"tcp_receiver_space_bytes"));
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let unset = info(232, &[(148, u32::MAX), (68, 3)], 0);
        assert!(unset.gauges().all(|(name, _)| name != "tcp_min_rtt_ns"));
    }
}
