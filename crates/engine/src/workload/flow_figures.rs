//! Figures over the flows of a repetition: whether they were served alike, and the slowest ones.

use super::{FlowRole, MeasuredFlows};
use linkgauge_model::run::{FlowFigures, SlowFlow};
use linkgauge_model::stats;

/// Maximum number of slowest flows that are listed.
const MAX_SLOWEST: usize = 5;

/// Figures over the flows; `None` if nothing was transferred.
pub(crate) fn flow_figures(measured: &MeasuredFlows) -> Option<FlowFigures> {
    let mut shares = flow_shares(measured);
    let amounts: Vec<f64> = shares.iter().map(|share| share.transferred as f64).collect();
    let fairness = stats::jain_index(&amounts)?;
    let (least, most) = amounts
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), &part| (least.min(part), most.max(part)));
    let mut means: Vec<f64> = shares.iter().filter_map(|share| share.mean_ns).collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |p: f64| {
        let count = means.len() as u64;
        (count > 0).then(|| means[(stats::nearest_rank(count, p) - 1) as usize])
    };
    // Without a reply a flow is the slowest.
    let slowness = |share: &SlowFlow| share.mean_ns.unwrap_or(f64::INFINITY);
    let has_round_trips = !means.is_empty();
    shares.sort_by(|a, b| match has_round_trips {
        true => slowness(b).total_cmp(&slowness(a)),
        false => a.transferred.cmp(&b.transferred),
    });
    shares.truncate(MAX_SLOWEST);
    Some(FlowFigures {
        count: amounts.len() as u64,
        fairness,
        min_max_ratio: least / most,
        mean_min_ns: means.first().copied(),
        mean_p50_ns: at(0.5),
        mean_p90_ns: at(0.9),
        mean_p99_ns: at(0.99),
        mean_max_ns: means.last().copied(),
        slowest_flows: shares,
    })
}

/// Share of each flow: its replies for round trips, the bytes at the receiver for a transfer. The server counts what it
/// received.
fn flow_shares(measured: &MeasuredFlows) -> Vec<SlowFlow> {
    let of_role =
        |role| measured.flows.iter().filter(move |flow| flow.role == role).map(|flow| &flow.recorder);
    let mut shares: Vec<SlowFlow> = of_role(FlowRole::RoundTrip)
        .map(|recorder| {
            let (times, received) = (&recorder.service_times, recorder.counts.received);
            SlowFlow {
                flow: 0,
                transferred: received,
                mean_ns: times.moments().mean().filter(|_| received > 0),
                max_ns: (received > 0).then(|| times.max()),
            }
        })
        .collect();
    let transfer = |transferred: u64| SlowFlow { flow: 0, transferred, mean_ns: None, max_ns: None };
    if shares.is_empty() {
        shares =
            of_role(FlowRole::Download).map(|recorder| transfer(recorder.counts.delivered_bytes)).collect();
    }
    if shares.is_empty() {
        let reported = measured.report.iter().flat_map(|report| &report.flows).filter(|flow| !flow.inward);
        shares = reported.map(|flow| transfer(flow.bytes)).collect();
    }
    shares.iter_mut().enumerate().for_each(|(index, share)| share.flow = index as u64 + 1);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{FlowReport, FlowResult, ServerReport};
    use linkgauge_model::clock::Time;
    use linkgauge_model::plan::Direction;
    use linkgauge_model::sample::{RecordedTimes, Recorder, Sample};

    fn flow(role: FlowRole, round_trips_ns: &[u64], bytes: u64) -> FlowResult {
        let mut recorder = Recorder::new(RecordedTimes::Service, 1_000_000, Default::default(), None);
        for (sequence, &time) in round_trips_ns.iter().enumerate() {
            let (sent, received) = (Time(0), Time(time));
            recorder.record_reply(Sample { sequence: sequence as u64, intended: sent, sent, received }, 1);
        }
        if bytes > 0 {
            recorder.record_delivery(Time(1), 1, bytes);
        }
        FlowResult::of_records(role, recorder)
    }

    pub fn figures(flows: &[FlowResult], report: Option<&ServerReport>) -> Option<FlowFigures> {
        flow_figures(&MeasuredFlows {
            direction: Direction::Loop,
            is_reliable_stream: true,
            late_limits: &[],
            message_bytes: 1,
            flows,
            report,
        })
    }

    #[test]
    fn round_trips_are_compared_by_their_replies_and_means() {
        let of = |times: &[u64]| flow(FlowRole::RoundTrip, times, 0);
        let flows = [of(&[10, 20]), of(&[]), of(&[100]), of(&[7; 4]), of(&[40]), of(&[50]), of(&[60])];
        let figures = figures(&flows, None).unwrap();
        assert_eq!((figures.count, figures.min_max_ratio), (7, 0.0));
        assert_eq!(figures.fairness, 100.0 / (7.0 * 24.0));
        let means = [figures.mean_min_ns, figures.mean_p50_ns, figures.mean_p99_ns, figures.mean_max_ns];
        assert_eq!(means.map(Option::unwrap), [7.0, 40.0, 100.0, 100.0]);
        let slowest: Vec<_> =
            figures.slowest_flows.iter().map(|flow| (flow.flow, flow.transferred, flow.max_ns)).collect();
        assert_eq!(
            slowest,
            [(2, 0, None), (3, 1, Some(100)), (7, 1, Some(60)), (6, 1, Some(50)), (5, 1, Some(40))]
        );
    }

    #[test]
    fn transfers_are_compared_by_the_bytes_at_their_receiver() {
        let downloads = [30, 10, 20].map(|bytes| flow(FlowRole::Download, &[], bytes));
        let received = figures(&downloads, None).unwrap();
        assert_eq!((received.min_max_ratio, received.mean_max_ns), (1.0 / 3.0, None));
        assert_eq!(received.slowest_flows.iter().map(|flow| flow.flow).collect::<Vec<_>>(), [2, 3, 1]);
        let reported = |bytes| FlowReport { bytes, ..FlowReport::default() };
        let report = ServerReport { flows: vec![reported(8), reported(2)], ..ServerReport::default() };
        let uploads = [0, 0].map(|_| flow(FlowRole::Upload, &[], 0));
        assert_eq!(figures(&uploads, Some(&report)).unwrap().min_max_ratio, 0.25);
        assert_eq!(figures(&uploads, None), None);
    }
}
