//! The figures of a twin by formula: what a fit minimises, because a simulation takes too long for thousands of trials.
//!
//! The formulas have no queues and only the polls that matter. The values of a twin are those of its simulation; a test keeps
//! both together.

use std::time::Duration;

use super::parts::node_costs;
use crate::study::{DeviceServerTwin, PlannedCase, RadioTwin, TwinFigure, TwinModel};
use linkgauge_model::units::Span;

/// Bits of a byte of payload.
const BYTE_BITS: f64 = 8.0;
/// Bytes of PakBus per chunk: a request and the rest of its reply, with the time that they share a bucket.
const PAKBUS_BYTES: f64 = 27.0;

/// The value of a figure, in its unit; `None` if there is no formula for it.
pub(super) fn value(model: &TwinModel, figure: &TwinFigure) -> Option<f64> {
    let case = &figure.case;
    match (figure.statistic(), model) {
        ("latency_mean_ms", _) => Some(1e3 * serial_round_trip(model, case)?),
        ("port_line_bps", _) => serial_rate(model, case),
        ("port_line_rate_percent", _) => Some(100.0 * serial_rate(model, case)? / case.line_rate()?.0),
        ("download_bytes_per_second", _) => download_rate(model, case),
        ("download_kbit_per_second", _) => Some(download_rate(model, case)? * BYTE_BITS / 1e3),
        ("sent_kbyte_per_second", _) => Some(board_rate(model, case)? / 1024.0),
        ("latency_mean_us", TwinModel::Messages(nodes)) => {
            Some(2e6 * node_costs(nodes).passage(case.point.value.into()).as_secs_f64())
        }
        ("message_us", TwinModel::Messages(nodes)) => {
            Some(1e6 * node_costs(nodes).interval(case.point.value.into()).as_secs_f64())
        }
        (statistic, TwinModel::Radio(radio)) => RoundTripShares::of_radio(radio).statistic(statistic),
        (statistic, TwinModel::Frames { base, frame, spike, spike_share }) => {
            RoundTripShares::of_frames([base.0, frame.0, spike.0], spike_share.0).statistic(statistic)
        }
        _ => None,
    }
}

fn seconds(span: Option<Span>) -> f64 {
    span.map_or(0.0, |span| span.0.as_secs_f64())
}

/// Seconds from a character to its return.
fn serial_round_trip(model: &TwinModel, case: &PlannedCase) -> Option<f64> {
    let (line_bps, bits) = case.line_rate()?;
    let character = bits / line_bps;
    match model {
        TwinModel::Uart { idle_characters, .. } => Some(character * (1.0 + f64::from(*idle_characters))),
        TwinModel::DeviceServer(server) => {
            let poll = server.poll.0.as_secs_f64() + f64::from(server.ports) * seconds(server.port_time);
            // The reply leaves at a poll, and the next request arrives two delays later: it waits for the poll after that.
            let polls = 1.0 + (2.0 * seconds(server.network_delay) / poll).ceil();
            let ports = f64::from(case.point.ports);
            let transfer = seconds(server.budget) + ports * seconds(server.port_time);
            Some((polls * poll).max(2.0 * ports * transfer))
        }
        TwinModel::Adapter { silence, .. } => Some(silence.0.as_secs_f64() + 3.0 * character),
        _ => None,
    }
}

/// Bits per second on the line of a port, start and stop bits included.
fn serial_rate(model: &TwinModel, case: &PlannedCase) -> Option<f64> {
    let (line_bps, bits) = case.line_rate()?;
    match model {
        TwinModel::DeviceServer(server) => {
            Some(device_server_rate(server, case.point.ports, (line_bps, bits)))
        }
        TwinModel::Adapter { length, ceiling, .. } => {
            let volume = case.spec().volume?.0 as f64;
            let last = f64::from(*length).min(volume);
            Some(bits * volume / (bits * volume / line_bps.min(ceiling.0) + bits * last / line_bps))
        }
        _ => None,
    }
}

fn device_server_rate(server: &DeviceServerTwin, ports: u32, (line_bps, bits): (f64, f64)) -> f64 {
    let (block, ports) = (f64::from(server.block), f64::from(ports));
    let block_on_line = block * bits / line_bps;
    let byte = server.byte_time.map_or(0.0, |time| time.0 / 1e9);
    let transfer = seconds(server.budget) + ports * seconds(server.port_time) + block * byte;
    let load = server.line_load.map_or(0.0, |share| share.0);
    let of_processor = block * bits / (2.0 * ports * transfer + ports * block_on_line * load);
    let rests = server.drain_pause.filter(|_| server.drain_from.is_none_or(|from| line_bps >= from.0));
    let of_line = rests.map_or(line_bps, |pause| {
        let poll = server.poll.0.as_secs_f64() + f64::from(server.ports) * seconds(server.port_time);
        let polls = ((block_on_line + pause.0.as_secs_f64()) / poll).ceil();
        block * bits / (poll * polls)
    });
    line_bps.min(of_line).min(of_processor)
}

/// Bytes of the file per second.
fn download_rate(model: &TwinModel, case: &PlannedCase) -> Option<f64> {
    let TwinModel::Logger { chunk, chunk_time, overhead, .. } = model else { return None };
    let link = case.download?.link;
    let chunk = f64::from(*chunk);
    let waited = link.map_or(0.0, |link| link.round_trip().as_secs_f64()) + chunk_time.0.as_secs_f64();
    let on_link =
        link.map_or(0.0, |link| (chunk + overhead.0 as f64 + PAKBUS_BYTES) * BYTE_BITS / link.rate_from);
    Some(chunk / waited.max(on_link))
}

/// Bytes per second.
fn board_rate(model: &TwinModel, case: &PlannedCase) -> Option<f64> {
    let TwinModel::Board { line, send_byte, receive_call } = model else { return None };
    let line = line.map_or(f64::INFINITY, |line| line.0 / BYTE_BITS);
    let sender = send_byte.map_or(f64::INFINITY, |byte| 1e9 / byte.0);
    let receiver =
        receive_call.map_or(f64::INFINITY, |_| f64::from(case.point.value) / seconds(*receive_call));
    Some(line.min(sender).min(receiver))
}

/// Steps of a continuous distribution.
const STEPS: usize = 300;
/// Mean waits that such a distribution covers.
const WAITS: f64 = 12.0;
/// Quantiles of a mean.
const MEAN_STEPS: u32 = 95;

/// Shares of the round trips that are over by a time, in ms and ascending. The rest is lost.
struct RoundTripShares(Vec<(f64, f64)>);

impl RoundTripShares {
    fn of_radio(radio: &RadioTwin) -> RoundTripShares {
        let ms = |span: Span| span.0.as_secs_f64() * 1e3;
        let (base, slot, wait) = (ms(radio.base), ms(radio.contention), ms(radio.wait));
        let (deferred, lost) = (radio.deferred.0, radio.lost.0);
        // The sum of two uniform waits, and with a probability an exponential one, both by their second integrals.
        let arrived = |time: f64| -> f64 {
            let parts = [(1.0, 0.0), (-2.0, 1.0), (1.0, 2.0)].map(|(sign, slots)| {
                let beyond = (time - base - slots * slot).max(0.0);
                let square = beyond * beyond / 2.0;
                let waited = square - wait * beyond + wait * wait * (1.0 - (-beyond / wait).exp());
                sign * ((1.0 - deferred) * square + deferred * waited)
            });
            (parts.iter().sum::<f64>() / (slot * slot)).clamp(0.0, 1.0)
        };
        let step = (2.0 * slot + WAITS * wait) / STEPS as f64;
        let body = (0..=STEPS).map(|index| base + index as f64 * step);
        let mut shares: Vec<(f64, f64)> = body.map(|time| (time, (1.0 - lost) * arrived(time))).collect();
        if let Some(later) = radio.retransmission {
            let repeated = shares
                .clone()
                .into_iter()
                .map(|(time, share)| (time + ms(later), (1.0 - lost) + lost / (1.0 - lost) * share));
            shares.extend(repeated.collect::<Vec<_>>());
        }
        RoundTripShares(shares)
    }

    /// Each direction takes one of two frames, and a share of the round trips a spike in one of them.
    fn of_frames([base, frame, spike]: [Duration; 3], spike_share: f64) -> RoundTripShares {
        let frame = frame.as_secs_f64() * 1e3;
        let frames = (base.as_secs_f64() * 1e3 / frame).round();
        let spike = spike.as_secs_f64() * 1e3 / frame;
        let one_way = 1.0 - (1.0 - spike_share).sqrt();
        let late = spike.fract();
        // Frames beyond the shortest, with their probability.
        let way = [
            (0.0, (1.0 - one_way) / 2.0),
            (1.0, (1.0 - one_way) / 2.0),
            (spike.floor(), one_way * (0.5 - late).max(0.0)),
            (spike.floor() + 1.0, one_way * (1.0 - (0.5 - late).abs())),
            (spike.floor() + 2.0, one_way * (late - 0.5).max(0.0)),
        ];
        let mut all: Vec<(f64, f64)> = way
            .iter()
            .flat_map(|up| way.iter().map(move |down| (frame * (frames + up.0 + down.0), up.1 * down.1)))
            .collect();
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut sum = 0.0;
        let shares = all.into_iter().flat_map(|(time, probability)| {
            let before = sum;
            sum += probability;
            [(time, before), (time, sum)]
        });
        RoundTripShares(shares.collect())
    }

    /// The time by which this share is over; `None` if the loss is larger.
    fn quantile(&self, share: f64) -> Option<f64> {
        let after = self.0.partition_point(|(_, known)| *known < share);
        let &(time, above) = self.0.get(after)?;
        let Some(&(before, below)) = after.checked_sub(1).and_then(|index| self.0.get(index)) else {
            return Some(time);
        };
        Some(before + (time - before) * (share - below) / (above - below).max(f64::MIN_POSITIVE))
    }

    /// The share that is not over by then.
    fn later_than(&self, time: f64) -> f64 {
        let after = self.0.partition_point(|(known, _)| *known <= time);
        (1.0 - after.checked_sub(1).map_or(0.0, |index| self.0[index].1)).max(0.0)
    }

    fn statistic(&self, name: &str) -> Option<f64> {
        let between = |start: &str, end: &str| -> Option<f64> {
            name.strip_prefix(start)?.strip_suffix(end)?.parse().ok()
        };
        if name == "latency_mean_fastest_95_percent_ms" {
            let middle = |step: u32| self.quantile((f64::from(step) + 0.5) / 100.0);
            let all: Option<Vec<f64>> = (0..MEAN_STEPS).map(middle).collect();
            return Some(all?.iter().sum::<f64>() / f64::from(MEAN_STEPS));
        }
        if name == "timeout_percent" {
            return Some(100.0 * (1.0 - self.0.last()?.1).max(0.0));
        }
        let percentile = between("latency_p", "_ms").and_then(|percent| self.quantile(percent / 100.0));
        percentile.or_else(|| Some(100.0 * self.later_than(between("latency_over_", "ms_percent")?)))
    }
}
