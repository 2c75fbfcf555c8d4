//! The rules for a rate, in the order in which they exclude each other.

use super::{CountedCause, Sender, counted, delayed_acknowledgement_count};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, EndEvidence};
use linkgauge_model::units::{format_bit_rate, format_nanoseconds, format_size};

/// A share of the time above this is the limit.
const MIN_LIMITED_SHARE: f64 = 0.5;
/// A share of the time above this is a limit beside others.
const MIN_PARTIAL_SHARE: f64 = 0.1;
/// A thread that used this share of the time was the limit.
const SATURATED_CPU_SHARE: f64 = 0.95;
/// Losses below this share do not limit a rate.
const MIN_LOSS_SHARE: f64 = 1e-4;
/// A round trip that grew by this factor under load waited in a queue.
const MIN_QUEUE_RATIO: f64 = 2.0;
/// A queue below this is that of the host itself.
const MIN_QUEUE_NS: f64 = 1e6;
/// The data in flight are the rate times the round trip, within these factors; more of them while a queue still grows.
const MAX_FLIGHT_RATIO: f64 = 2.0;
const MIN_FLIGHT_RATIO: f64 = 0.1;
/// Readings of a connection that show how it was most of the time; the last one is after its end.
const MIN_READINGS: u64 = 3;
/// Maximum ratio at which the path has no queue.
const MAX_EMPTY_RATIO: f64 = 1.5;
/// A rate this close to a configured one is limited by it.
const MAX_RATE_DEVIATION: f64 = 0.1;
/// Data on the path below this share of the window: the window does not wait for the path.
const MAX_SLOW_READER_SHARE: f64 = 0.25;
/// A smaller buffer is full soon, however fast the program reads.
const SMALL_BUFFER_BYTES: f64 = 32_768.0;
/// Time that a delayed acknowledgement of Linux takes, and the share of the time from which it matters.
const LINUX_DELAYED_ACK_NS: f64 = 40e6;
const MIN_DELAYED_SHARE: f64 = 0.5;
/// Maximum number of segments in flight for a delay; with more, a receiver acknowledges every second one at once.
const MAX_STOPPED_SEGMENTS: f64 = 2.0;
/// Minimum share of dropped datagrams that limits a rate.
const MIN_DATAGRAM_LOSS_SHARE: f64 = 0.01;
/// Losses from which a policer shows, the rate of the burst that passes it as a multiple of the later one, and the intervals
/// that show the later one.
const MIN_POLICED_LOSS_SHARE: f64 = 0.01;
const MIN_BURST_RATIO: f64 = 2.0;
const MIN_POLICED_INTERVALS: usize = 5;
/// Segments that a loss-based congestion control has in flight, times the root of the share of losses (Mathis et al. 1997), and
/// the multiple of them from which losses are not those of the path.
const LOSS_WINDOW: f64 = 1.22;
const MIN_POLICED_WINDOWS: f64 = 3.0;
/// Linux hands over the segments of this time, and this number at most, as one packet, which is lost as a whole (segmentation
/// offload).
const OFFLOAD_SECONDS: f64 = 1e-3;
const MAX_OFFLOAD_SEGMENTS: f64 = 45.0;
/// A policer drops nothing at this share of its rate.
const LESS_LOAD: f64 = 0.8;
/// Minimum share of a serial line, in percent, at which the line limits the rate.
const MIN_LINE_PERCENT: f64 = 90.0;

/// Causes that limit the rate of this case: all rules that hold, the deciding one first.
pub(in crate::explain) fn limits(case: &CaseResult) -> Vec<CountedCause> {
    let Some(rate) = case.figures.delivery.throughput_bps else { return Vec::new() };
    let (sender, receiver) = (sending_end(case).map(Sender), receiving_end(case).map(Sender));
    let of_sender = |rule: fn(&Sender, f64) -> Option<CountedCause>| rule(sender.as_ref()?, rate);
    let window = sender.as_ref().and_then(|sender| receive_window(sender, receiver.as_ref(), rate, case));
    let policer = sender.as_ref().and_then(|sender| policer(sender, case));
    let loss = if policer.is_some() { None } else { of_sender(loss) };
    let queue = of_sender(queue);
    // A kernel with a queue in front of the link has enough to send, and a thread without a pause cannot offer more.
    let cpu = saturated_cpu(case);
    let has_data = queue.is_some() || cpu.is_some();
    let application = sender.as_ref().filter(|_| !has_data).and_then(|sender| application(sender, case));
    let rules = [
        cpu,
        socket_overflow(case),
        requested_rate(case, rate),
        window,
        delayed_acknowledgements(case),
        application,
        pacing(case, rate),
        line_rate(case),
        policer,
        loss,
        queue,
    ];
    let partial = sender.iter().flat_map(|sender| partial_limits(sender, receiver.as_ref(), rate, case));
    rules.into_iter().flatten().chain(partial).collect()
}

/// Buffers that were full for a part of the time, the longer one first.
fn partial_limits(
    sender: &Sender,
    receiver: Option<&Sender>,
    rate: f64,
    case: &CaseResult,
) -> Vec<CountedCause> {
    let buffers = [
        ("tcp_receive_window_limited_ns", "receive_window", "the receiver's window", Buffer::Receive),
        ("tcp_send_buffer_limited_ns", "send_buffer", "the send buffer", Buffer::Send),
    ];
    let mut partial: Vec<CountedCause> = buffers
        .into_iter()
        .filter_map(|(counter, id, name, buffer)| {
            let share = sender.busy_share(counter)?;
            let slow_reader = match buffer {
                Buffer::Receive => slow_reader(sender, receiver, rate),
                Buffer::Send => None,
            };
            let (id, why) = match slow_reader {
                Some(why) => ("slow_reader", format!(", and {why}")),
                None => (id, format!(". A larger buffer decides: {}", buffer.larger(case))),
            };
            let evidence = format!("{name} was full for {:.0} % of the busy time{why}", 100.0 * share);
            (MIN_PARTIAL_SHARE..=MIN_LIMITED_SHARE).contains(&share).then_some(CountedCause {
                id,
                evidence,
                partial_share: Some(share),
            })
        })
        .collect();
    partial.sort_by(|a, b| b.partial_share.unwrap_or(0.0).total_cmp(&a.partial_share.unwrap_or(0.0)));
    partial
}

/// The buffer of one end of a transfer.
#[derive(Clone, Copy)]
enum Buffer {
    Receive,
    Send,
}

impl Buffer {
    /// Setting that enlarges the buffer.
    fn larger(self, case: &CaseResult) -> &'static str {
        match (self, case.direction == Direction::Receive) {
            (Buffer::Receive, false) => "--server-socket rcvbuf=4Mi",
            (Buffer::Receive, true) => "?rcvbuf=4Mi",
            (Buffer::Send, false) => "?sndbuf=4Mi",
            (Buffer::Send, true) => "--server-socket sndbuf=4Mi",
        }
    }
}

/// The counters of the end that sends the payload, if they are known.
pub(in crate::explain) fn sending_end(case: &CaseResult) -> Option<&EndEvidence> {
    let evidence = case.evidence.as_ref()?;
    if case.direction == Direction::Receive { evidence.server.as_ref() } else { Some(&evidence.client) }
}

/// The counters of the end that receives the payload, if they are known.
pub(in crate::explain) fn receiving_end(case: &CaseResult) -> Option<&EndEvidence> {
    let evidence = case.evidence.as_ref()?;
    if case.direction == Direction::Send { evidence.server.as_ref() } else { Some(&evidence.client) }
}

/// Datagrams that the receiver's socket dropped, rather than the network.
fn socket_overflow(case: &CaseResult) -> Option<CountedCause> {
    let counts = &case.figures.counts;
    let drops = counts.receiver_socket_drops? as f64;
    let belongs = drops > MIN_DATAGRAM_LOSS_SHARE * counts.sent as f64 && drops >= 0.5 * counts.lost as f64;
    let share = 100.0 * drops / counts.sent.max(1) as f64;
    let text = format!("the receiver's socket dropped {share:.1} % of the messages: its buffer was full");
    if belongs { counted("receiver_socket_overflow", text) } else { None }
}

/// The share of the time in which a delayed acknowledgement of the receiver can have stopped the sender, 0 to 1, if it matters.
pub(in crate::explain) fn delayed_acknowledgement_share(case: &CaseResult) -> Option<f64> {
    let end = receiving_end(case)?;
    let flight =
        sending_end(case).map(Sender).and_then(|sender| sender.median("tcp_unacknowledged_segments"));
    if flight.is_some_and(|segments| segments > MAX_STOPPED_SEGMENTS) {
        return None;
    }
    let delayed = delayed_acknowledgement_count(case, end)? as f64 * LINUX_DELAYED_ACK_NS;
    let share = delayed / end.observed_ns.max(1) as f64 / f64::from(case.parallel.max(1));
    (share >= MIN_DELAYED_SHARE).then_some(share.min(1.0))
}

fn delayed_acknowledgements(case: &CaseResult) -> Option<CountedCause> {
    let share = delayed_acknowledgement_share(case)?;
    let text = format!(
        "the receiver delayed acknowledgements for up to {:.0} % of the time. ?quickack=1 there decides",
        100.0 * share
    );
    counted("delayed_ack", text)
}

fn requested_rate(case: &CaseResult, rate: f64) -> Option<CountedCause> {
    let per_second = case.pacing()?.get("per_second")?.as_f64()?;
    let requested = per_second * 8.0 * f64::from(case.message_bytes) * f64::from(case.parallel * case.ports);
    let text = format!("{} was requested. A higher rate decides: --bit-rate", format_bit_rate(requested));
    if (rate / requested - 1.0).abs() <= MAX_RATE_DEVIATION {
        counted("application_limited", text)
    } else {
        None
    }
}

fn line_rate(case: &CaseResult) -> Option<CountedCause> {
    let percent = case.figures.delivery.line_rate_percent?;
    let text = format!("{percent:.0} % of the payload that the line can carry");
    if percent >= MIN_LINE_PERCENT { counted("link_rate_reached", text) } else { None }
}

fn saturated_cpu(case: &CaseResult) -> Option<CountedCause> {
    let (client, server) = case.cpu_shares()?;
    let share = client.max(server.unwrap_or(0.0));
    let text = format!("a thread used {:.0} % of its time to move the payload", 100.0 * share.min(1.0));
    if share >= SATURATED_CPU_SHARE { counted("cpu_saturated", text) } else { None }
}

fn receive_window(
    sender: &Sender,
    receiver: Option<&Sender>,
    rate: f64,
    case: &CaseResult,
) -> Option<CountedCause> {
    let share =
        sender.busy_share("tcp_receive_window_limited_ns").filter(|share| *share > MIN_LIMITED_SHARE)?;
    let share = 100.0 * share.min(1.0);
    if let Some(why) = slow_reader(sender, receiver, rate) {
        let text = format!("the receiver's window was full for {share:.0} % of the busy time, and {why}");
        return counted("slow_reader", text);
    }
    let text = format!(
        "the receiver's window was full for {share:.0} % of the busy time: its buffer is too small, or its program reads too \
         slowly. A larger buffer there decides: {}",
        Buffer::Receive.larger(case)
    );
    counted("receive_window", text)
}

/// Reason why a full window is not too small: its data wait in the receiver, not on the path.
fn slow_reader(sender: &Sender, receiver: Option<&Sender>, rate: f64) -> Option<String> {
    let unread = receiver.and_then(|receiver| {
        let gauge = receiver.0.gauge("socket_unread_bytes").filter(|gauge| gauge.readings >= MIN_READINGS)?;
        // The kernel counts twice the payload that a buffer holds.
        let buffer = receiver.median("socket_receive_buffer_bytes")? / 2.0;
        let is_full = gauge.median as f64 > MIN_LIMITED_SHARE * buffer && buffer >= SMALL_BUFFER_BYTES;
        is_full.then_some(gauge.median)
    });
    if let Some(unread) = unread {
        return Some(format!("{} wait unread in its socket: its program is slow", format_size(unread)));
    }
    let window = sender.0.gauge("tcp_send_window_bytes")?;
    if window.max > 0 && (window.max as f64) < SMALL_BUFFER_BYTES {
        return None;
    }
    if window.median == 0 && window.readings >= MIN_READINGS {
        return Some("closed in most readings: the receiving program is slow".to_owned());
    }
    let window = window.max as f64;
    let shortest = sender.0.gauge("tcp_min_rtt_ns")?.min as f64;
    let on_path = rate / sender.0.connections.count.max(1) as f64 / 8.0 * shortest * 1e-9;
    (on_path < MAX_SLOW_READER_SHARE * window).then(|| {
        format!(
            "{} are on the path at this rate, of a window of {}: the receiving program is slow",
            format_size(on_path as u64),
            format_size(window as u64)
        )
    })
}

fn application(sender: &Sender, case: &CaseResult) -> Option<CountedCause> {
    let readings = sender.0.gauge("tcp_application_limited")?.readings;
    let is_sampled = readings >= MIN_READINGS * sender.0.connections.count;
    let is_limited = is_sampled && sender.median("tcp_application_limited")? > 0.0;
    let is_full = sender.busy_share("tcp_send_buffer_limited_ns").unwrap_or(0.0) > MIN_LIMITED_SHARE;
    let text = format!(
        "the kernel had nothing to send: the program offers too little, or the send buffer is too small. A larger buffer \
         decides: {}",
        Buffer::Send.larger(case)
    );
    if is_limited || is_full { counted("application_limited", text) } else { None }
}

fn pacing(case: &CaseResult, rate: f64) -> Option<CountedCause> {
    let limit = case.effective.get("pacing_limit_bps")?.as_f64()?;
    let text = format!("{} is the requested pacing rate", format_bit_rate(limit));
    if (rate / limit - 1.0).abs() <= MAX_RATE_DEVIATION { counted("requested_pacing", text) } else { None }
}

/// The data in flight, in bytes.
fn flight_bytes(sender: &Sender) -> Option<f64> {
    Some(sender.median("tcp_unacknowledged_segments")? * sender.median("tcp_segment_bytes")?)
}

/// The round trip under load, as a multiple of the shortest.
fn queue_ratio(sender: &Sender) -> Option<f64> {
    let shortest = sender.0.gauge("tcp_min_rtt_ns")?.min as f64;
    (shortest > 0.0).then_some(sender.median("tcp_rtt_ns")? / shortest)
}

/// Whether data wait nowhere on the path.
fn has_no_queue(sender: &Sender) -> Option<bool> {
    let queue_ns = sender.median("tcp_rtt_ns")? - sender.0.gauge("tcp_min_rtt_ns")?.min as f64;
    Some(queue_ratio(sender)? < MAX_EMPTY_RATIO || queue_ns < MIN_QUEUE_NS)
}

/// Segments that a token bucket drops: the first ones pass, then the rate falls although no queue grows, and more data are on
/// their way than a loss-based congestion control would have with this share of losses elsewhere.
fn policer(sender: &Sender, case: &CaseResult) -> Option<CountedCause> {
    let sent = sender.count("tcp_sent_segments").filter(|sent| *sent > 0.0)?;
    let losses = sender.count("tcp_retransmitted_segments")? / sent;
    let is_empty = has_no_queue(sender)?;
    let rate = case.figures.delivery.throughput_bps? / f64::from(case.parallel.max(1));
    let at_once = rate / 8.0 * OFFLOAD_SECONDS / sender.median("tcp_segment_bytes")?;
    let in_flight = sender.median("tcp_unacknowledged_segments")? / at_once.clamp(1.0, MAX_OFFLOAD_SEGMENTS);
    let is_above_window = in_flight > MIN_POLICED_WINDOWS * LOSS_WINDOW / losses.sqrt();
    if losses < MIN_POLICED_LOSS_SHARE || !is_empty || !is_above_window || case.series_is_sent() {
        return None;
    }
    let (burst, later) =
        case.series.split_first().filter(|(_, later)| later.len() >= MIN_POLICED_INTERVALS)?;
    let rate_of = |bytes: u64, ns: u64| bytes as f64 * 8e9 / ns.max(1) as f64;
    let first = rate_of(burst.bytes, burst.length_ns);
    let then =
        rate_of(later.iter().map(|entry| entry.bytes).sum(), later.iter().map(|entry| entry.length_ns).sum());
    (first > MIN_BURST_RATIO * then).then_some(())?;
    let text = format!(
        "the rate fell from {} to {} after the first {}, {:.1} % of the segments were sent again, and no queue grew. Less \
         load decides: --bit-rate {}",
        format_bit_rate(first),
        format_bit_rate(then),
        format_nanoseconds(burst.length_ns as f64),
        100.0 * losses,
        format_bit_rate(LESS_LOAD * then).replace(' ', "")
    );
    counted("policed_rate", text)
}

fn loss(sender: &Sender, _rate: f64) -> Option<CountedCause> {
    let sent = sender.count("tcp_sent_segments").filter(|sent| *sent > 0.0)?;
    let share = sender.count("tcp_retransmitted_segments")? / sent;
    let is_empty = has_no_queue(sender)?;
    let text = format!("{:.2} % of the segments were sent again, and the path has no queue", 100.0 * share);
    if share > MIN_LOSS_SHARE && is_empty { counted("loss_limited_window", text) } else { None }
}

fn queue(sender: &Sender, rate: f64) -> Option<CountedCause> {
    let ratio = queue_ratio(sender).filter(|ratio| *ratio > MIN_QUEUE_RATIO)?;
    let round_trip_ns = sender.median("tcp_rtt_ns")?;
    let waiting_ns = round_trip_ns * (1.0 - 1.0 / ratio);
    // Other reasons of a long round trip, like a delayed acknowledgement, leave the path empty (Little's law).
    let fills =
        rate / sender.0.connections.count.max(1) as f64 / 8.0 * round_trip_ns * 1e-9 / flight_bytes(sender)?;
    if waiting_ns < MIN_QUEUE_NS || !(MIN_FLIGHT_RATIO..MAX_FLIGHT_RATIO).contains(&fills) {
        return None;
    }
    let text = format!(
        "the round trip of the kernel grew to {ratio:.1} times the shortest: a queue before a link of about {}",
        format_bit_rate(rate)
    );
    counted("bufferbloat", text)
}
