//! Figures that need the link rate: share of the rate, line errors, fairness between ports.

use crate::link::LinkRate;
use crate::link::serial_line::UartErrors;
use crate::protocol::ReadyCase;
use crate::workload::FlowResult;
use linkgauge_model::run::{Figures, LineErrors, LineFacts, PartResult};

/// Adds the share of the link rate and the line errors of the ports.
pub(super) fn with_line_figures(
    mut figures: Figures,
    lines: &[Option<LinkRate>],
    flows: &[FlowResult],
) -> Figures {
    let limit = total_limit_bps(lines).filter(|limit| *limit > 0.0);
    let rate = figures.delivery.throughput_bps;
    figures.delivery.line_rate_percent = rate.zip(limit).map(|(rate, limit)| 100.0 * rate / limit);
    figures.line_errors = total_errors(flows).map(|errors| LineErrors {
        framing: errors.framing,
        parity: errors.parity,
        breaks: errors.breaks,
        overruns: errors.overruns,
    });
    figures
}

/// Payload rate of all lines together in bits per second; `None` if one is unknown.
fn total_limit_bps(lines: &[Option<LinkRate>]) -> Option<f64> {
    lines.iter().map(|line| line.map(|line| line.max_payload_bps())).sum()
}

/// Errors that the ports counted. Flows of one port read the same counters at slightly different times.
fn total_errors(flows: &[FlowResult]) -> Option<UartErrors> {
    let ports = flows.iter().map(|flow| flow.endpoint_index).max()?;
    let all = (0..=ports).filter_map(|port| {
        let of_port =
            flows.iter().filter(|flow| flow.endpoint_index == port).filter_map(|flow| flow.line_errors);
        of_port.reduce(|a, b| merge_errors(a, b, u64::max))
    });
    all.reduce(|a, b| merge_errors(a, b, u64::saturating_add))
}

fn merge_errors(a: UartErrors, b: UartErrors, join: fn(u64, u64) -> u64) -> UartErrors {
    UartErrors {
        framing: join(a.framing, b.framing),
        parity: join(a.parity, b.parity),
        breaks: join(a.breaks, b.breaks),
        overruns: join(a.overruns, b.overruns),
    }
}

/// Rate of the slowest port ÷ rate of the fastest; a port without data has rate 0.
pub(super) fn fairness(ports: &[PartResult]) -> Option<f64> {
    let rates: Vec<f64> =
        ports.iter().map(|port| port.figures.delivery.throughput_bps.unwrap_or(0.0)).collect();
    let slowest = rates.iter().copied().reduce(f64::min)?;
    let fastest = rates.iter().copied().reduce(f64::max)?;
    (fastest > 0.0).then(|| slowest / fastest)
}

/// Median of the slowest port ÷ median of the fastest; `None` unless every port has a median.
pub(super) fn port_latency_ratio(ports: &[PartResult]) -> Option<f64> {
    let median = |port: &PartResult| port.figures.times.latency_ns.as_ref()?.percentile("p50");
    let medians: Vec<u64> = ports.iter().map(median).collect::<Option<_>>()?;
    let (fastest, slowest) = (medians.iter().min()?, medians.iter().max()?);
    (*fastest > 0).then(|| *slowest as f64 / *fastest as f64)
}

/// The lines for the document; the first describes the settings of all.
pub(super) fn line_facts(case: &ReadyCase, lines: &[Option<LinkRate>]) -> Option<LineFacts> {
    let first = lines.first().copied().flatten()?;
    let times = lines.iter().flatten().map(|line| line.transmission_time(case.load.message_bytes.into()));
    let slowest = times.max().unwrap_or_default().as_nanos();
    Some(LineFacts {
        bits_per_second: first.bits_per_second,
        bits_per_byte: first.bits_per_byte,
        max_payload_bps: total_limit_bps(lines),
        transmission_ns: case.workload.is_round_trip().then(|| u64::try_from(slowest).unwrap_or(u64::MAX)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowRole;
    use linkgauge_model::run::Delivery;
    use linkgauge_model::sample::Recorder;

    fn flow(port: usize, line_errors: Option<UartErrors>) -> FlowResult {
        let flow = FlowResult::of_records(FlowRole::Download, Recorder::for_counting());
        FlowResult { endpoint_index: port, line_errors, ..flow }
    }

    #[test]
    fn errors_are_counted_once_a_port() {
        let errors = |framing, overruns| Some(UartErrors { framing, overruns, ..UartErrors::default() });
        let flows = [flow(0, errors(2, 0)), flow(0, errors(3, 0)), flow(2, errors(1, 7)), flow(2, None)];
        let figures = with_line_figures(Figures::default(), &[None], &flows);
        let all = LineErrors { framing: 4, parity: 0, breaks: 0, overruns: 7 };
        assert_eq!(figures.line_errors, Some(all));
        assert_eq!(with_line_figures(Figures::default(), &[None], &[flow(0, None)]).line_errors, None);
    }

    #[test]
    fn the_share_is_that_of_all_lines_together() {
        let line = |baud, bits_per_byte| Some(LinkRate { bits_per_byte, ..LinkRate::without_overhead(baud) });
        let delivery = Delivery { throughput_bps: Some(8000.0), ..Delivery::default() };
        let figures = || Figures { delivery, ..Figures::default() };
        let percent =
            |lines: &[Option<LinkRate>]| with_line_figures(figures(), lines, &[]).delivery.line_rate_percent;
        assert_eq!(percent(&[line(10_000.0, 10.0)]), Some(100.0));
        // 8000 and 16 000 bits of payload, whatever the frame format.
        assert_eq!(percent(&[line(10_000.0, 10.0), line(22_000.0, 11.0)]), Some(100.0 / 3.0));
        assert_eq!(percent(&[line(10_000.0, 10.0), None]), None);
    }
}
