//! Figures of a transfer over TCP by RFC 6349, from the counters of the end that sends it.

use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, EndEvidence, TcpFigures};

/// The figures of a case in one direction, if its connections are those of TCP and their sender reported its counters.
pub(super) fn tcp_figures(case: &CaseResult) -> Option<TcpFigures> {
    let evidence = case.evidence.as_ref()?;
    let throughput_bps = case.figures.delivery.throughput_bps?;
    let sender = match case.direction {
        Direction::Send => &evidence.client,
        Direction::Receive => evidence.server.as_ref()?,
        Direction::Both | Direction::Loop => return None,
    };
    // The estimates of several connections at different times have no sum.
    let is_one_connection = case.parallel == 1 && case.ports == 1;
    of_sender(sender, throughput_bps, is_one_connection.then_some(OneConnection))
}

/// Largest ratio of the delivery rate to the throughput at which the delivery rate is that of the path: above it, behind a relay
/// or on loopback, it is that of bursts of acknowledgements.
const MAX_ESTIMATE_RATIO: f64 = 2.0;

/// Proof that the case has one connection at a time.
#[derive(Clone, Copy)]
struct OneConnection;

fn of_sender(sender: &EndEvidence, throughput_bps: f64, one: Option<OneConnection>) -> Option<TcpFigures> {
    let base_rtt_ns = sender.gauge("tcp_min_rtt_ns")?.min as f64;
    if base_rtt_ns <= 0.0 {
        return None;
    }
    let estimate = sender.gauge("tcp_delivery_rate_bps").map_or(0.0, |rate| rate.median as f64);
    let bottleneck_bps = one
        .filter(|OneConnection| estimate <= MAX_ESTIMATE_RATIO * throughput_bps)
        .map(|OneConnection| estimate.max(throughput_bps));
    let sent = sender.counter("tcp_sent_bytes").filter(|&sent| sent > 0);
    let retransmitted = sender.counter("tcp_retransmitted_bytes");
    let efficiency = sent.zip(retransmitted).map(|(sent, again)| 100.0 * (1.0 - again as f64 / sent as f64));
    let loaded: Vec<f64> = sender
        .connections
        .series
        .iter()
        .filter(|reading| reading.rtt_ns > 0)
        .map(|reading| reading.rtt_ns as f64)
        .collect();
    let mean_ns = loaded.iter().sum::<f64>() / loaded.len() as f64;
    Some(TcpFigures {
        base_rtt_ns,
        path_mtu_bytes: sender.gauge("tcp_path_mtu_bytes").map(|mtu| mtu.median),
        bottleneck_bps,
        bdp_bytes: bottleneck_bps.map(|bottleneck| bottleneck / 8.0 * base_rtt_ns / 1e9),
        transfer_time_ratio: bottleneck_bps
            .filter(|_| throughput_bps > 0.0)
            .map(|bottleneck| bottleneck / throughput_bps),
        tcp_efficiency_percent: efficiency,
        buffer_delay_percent: (!loaded.is_empty()).then(|| 100.0 * (mean_ns - base_rtt_ns) / base_rtt_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::run::{ConnectionReading, Gauge};

    fn sender() -> EndEvidence {
        let gauge = |value: u64| Gauge { min: value, median: value, max: value, readings: 9 };
        let mut sender = EndEvidence::default();
        let gauges = [
            ("tcp_min_rtt_ns", 20_000_000),
            ("tcp_delivery_rate_bps", 1_536_000),
            ("tcp_path_mtu_bytes", 1500),
        ];
        sender.connections.gauges = gauges.map(|(name, value)| (name.to_owned(), gauge(value))).into();
        let counters = [("tcp_sent_bytes", 102_000), ("tcp_retransmitted_bytes", 2_000)];
        sender.connections.counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
        let reading = |rtt_ns| ConnectionReading { rtt_ns, ..ConnectionReading::default() };
        sender.connections.series = vec![reading(0), reading(25_000_000), reading(35_000_000)];
        sender
    }

    #[test]
    fn the_numbers_are_those_of_the_standard() {
        // RFC 6349: 1.536 Mbit/s and 20 ms have a product of 3.84 kB; 2000 of 102000 bytes again are 98.03 %.
        let figures = of_sender(&sender(), 1_280_000.0, Some(OneConnection)).unwrap();
        assert_eq!((figures.path_mtu_bytes, figures.bdp_bytes), (Some(1500), Some(3840.0)));
        assert_eq!((figures.transfer_time_ratio, figures.buffer_delay_percent), (Some(1.2), Some(50.0)));
        assert!((figures.tcp_efficiency_percent.unwrap() - 98.039).abs() < 1e-3);
        // 44.21 Mbit/s and 10 ms: 55.26 kB. The throughput exceeds the estimate.
        let mut faster = sender();
        let gauges = &mut faster.connections.gauges;
        gauges.insert("tcp_min_rtt_ns".to_owned(), Gauge { min: 10_000_000, ..Gauge::default() });
        let figures = of_sender(&faster, 44_210_000.0, Some(OneConnection)).unwrap();
        assert!((figures.bdp_bytes.unwrap() - 55_262.5).abs() < 1e-6);
        assert_eq!(figures.transfer_time_ratio, Some(1.0));
    }

    #[test]
    fn bursts_of_acknowledgements_are_no_bottleneck() {
        let figures = of_sender(&sender(), 700_000.0, Some(OneConnection)).unwrap();
        assert_eq!((figures.bottleneck_bps, figures.transfer_time_ratio), (None, None));
        assert_eq!(figures.base_rtt_ns, 20_000_000.0);
    }

    #[test]
    fn several_connections_have_no_bottleneck() {
        let figures = of_sender(&sender(), 1e6, None).unwrap();
        assert_eq!(
            (figures.bottleneck_bps, figures.bdp_bytes, figures.transfer_time_ratio),
            (None, None, None)
        );
        assert_eq!(of_sender(&EndEvidence::default(), 1e6, None), None, "not TCP");
    }
}
