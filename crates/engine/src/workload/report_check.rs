//! Checks a server's report against the client's own counts and times, for all protocols.
//!
//! A server may be wrong or dishonest. Impossible values are removed, and a problem names the reason. Limits that a
//! server *grants* are checked by each protocol; the client's own counts are not checked.

use std::time::Duration;

use super::{FlowReport, FlowResult, FlowRole, Load, ReceivedSeries, ServerReport, receiving_ns};
use crate::link::{Caps, Framing};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::units::{format_nanoseconds, format_number};

/// Bytes that both systems and the network may buffer for one flow: more than twice the sum of Linux's largest defaults
/// (`tcp_wmem`, `tcp_rmem`).
const MAX_IN_FLIGHT_BYTES: u64 = 64 << 20;

/// Maximum rate of one thread in bits per second: 125 GB/s is above the bandwidth of a core's caches.
const MAX_FLOW_BPS: f64 = 1e12;

/// Minimum share of the client's sending time for which a server receives, unless all data fits into buffers.
const MIN_TIME_SHARE: f64 = 0.25;

/// Maximum bytes of one receive.
const MAX_INITIAL_BYTES: u64 = 4 << 20;

/// Maximum ratio of the same time on two clocks.
const MAX_CLOCK_RATIO: f64 = 1.01;
const MAX_CLOCK_OFFSET: Duration = Duration::from_millis(20);

/// Packets from other programs that may arrive besides those of this client.
const MAX_FOREIGN_MESSAGES: u64 = 1_000;

/// Fault of a download of which more arrived than the server reports.
const ENDLESS: &str = "the server went on sending after the end of the download, or its report is wrong: restart it, or use another version \
                       of it";

/// Observations of the client itself.
pub(crate) struct LocalObservations<'a> {
    /// Endpoints of the case.
    pub(crate) endpoints: &'a [Endpoint],
    /// Load of each connection.
    pub(crate) load: &'a Load,
    /// Capabilities of the links of each endpoint.
    pub(crate) caps: &'a [Caps],
    /// The client's flows.
    pub(crate) flows: &'a [FlowResult],
    /// Time from before the first byte until the arrival of the report.
    pub(crate) elapsed: Duration,
    /// Whether a signal ended the flows early.
    pub(crate) was_interrupted: bool,
}

/// A report without impossible values.
pub(crate) struct CheckedReport {
    /// The report, with all impossible values removed.
    pub(crate) report: ServerReport,
    /// Removed values, one line each.
    pub(crate) problems: Vec<String>,
    /// Whether the delivered rate is unknown.
    pub(crate) is_rate_unknown: bool,
}

/// Removes impossible values.
pub(crate) fn check_report(mut report: ServerReport, known: &LocalObservations) -> CheckedReport {
    let mut doubts = std::mem::take(&mut report.contradictions);
    let mut is_rate_unknown = !doubts.is_empty();
    for port in 0..known.endpoints.len() {
        let endpoint = &known.endpoints[port];
        if let Some(doubt) = known.check_upload(&report, port) {
            doubts.push(format!("{endpoint}: {doubt}"));
            is_rate_unknown = true;
        }
        if let Some((doubt, own)) = known.check_download(&report, port) {
            doubts.push(format!("{endpoint}: {doubt}"));
            let reported = report.flows.iter().filter(|flow| flow.inward && flow.port == port);
            let is_endless = known.is_reliable_stream(port)
                && !known.was_interrupted
                && reported.fold(0, |sum: u64, flow| sum.saturating_add(flow.messages)) < own;
            let mut of_port = report.flows.iter_mut().filter(|flow| flow.inward && flow.port == port);
            // More bytes than this client sent cannot be verified.
            if let Some(first) = of_port.next() {
                first.messages = own;
                if is_endless {
                    first.fault.get_or_insert_with(|| format!("{endpoint}: {ENDLESS}"));
                }
            }
            of_port.for_each(|flow| flow.messages = 0);
        }
    }
    if is_rate_unknown {
        // A sum over some of the flows would be a different figure.
        report.flows.retain(|flow| flow.inward);
    }
    for flow in &mut report.flows {
        let has_gaps = |series: &mut Box<ReceivedSeries>| series.total_bytes() != flow.bytes;
        if flow.series.take_if(has_gaps).is_some() {
            let endpoint = known.endpoints.get(flow.port).map_or("server", Endpoint::as_str);
            doubts.push(format!("{endpoint}: its time series does not add up to {} bytes", flow.bytes));
        }
    }
    if let Some(seconds) = report.cpu_seconds
        && !known.is_plausible_cpu_time(seconds)
    {
        doubts.push(format!(
            "{} s of CPU time in {}",
            format_number(seconds),
            format_nanoseconds(known.elapsed.as_nanos() as f64)
        ));
        report.cpu_seconds = None;
    }
    CheckedReport { report, problems: doubts, is_rate_unknown }
}

impl LocalObservations<'_> {
    /// Flows of an endpoint in one direction.
    fn flows_of(&self, role: FlowRole, port: usize) -> impl Iterator<Item = &FlowResult> {
        self.flows.iter().filter(move |flow| flow.role == role && flow.endpoint_index == port)
    }

    /// Whether the link of an endpoint is a stream without loss.
    fn is_reliable_stream(&self, port: usize) -> bool {
        self.caps.get(port).is_some_and(|caps| caps.framing == Framing::Stream && caps.is_reliable)
    }

    fn has_warm_up(&self) -> bool {
        self.load.warm_up != StopCondition::default()
    }

    fn is_plausible_cpu_time(&self, seconds: f64) -> bool {
        // One thread for each flow, one for the session and one for the system.
        let threads = self.flows.len() + 2;
        let most = self.max_elapsed().as_secs_f64() * threads as f64;
        (0.0..=most).contains(&seconds)
    }

    fn max_elapsed(&self) -> Duration {
        self.elapsed.mul_f64(MAX_CLOCK_RATIO).saturating_add(MAX_CLOCK_OFFSET)
    }

    /// Maximum messages that this many flows can move in the elapsed time.
    fn max_messages(&self, flows: u64) -> u64 {
        let bytes = MAX_FLOW_BPS / 8.0 * self.max_elapsed().as_secs_f64() * flows as f64;
        (bytes / f64::from(self.load.message_bytes.max(1))) as u64
    }

    /// Finds impossible values in a receive report.
    fn check_upload(&self, report: &ServerReport, port: usize) -> Option<String> {
        let reported: Vec<&FlowReport> =
            report.flows.iter().filter(|flow| !flow.inward && flow.port == port).collect();
        let flows = self.flows_of(FlowRole::Upload, port).count() as u64;
        if flows == 0 || reported.is_empty() {
            return None;
        }
        let sent: u64 =
            self.flows_of(FlowRole::Upload, port).map(|flow| flow.recorder.counts.delivered_bytes).sum();
        let size = u64::from(self.load.message_bytes.max(1));
        let buffers = MAX_IN_FLIGHT_BYTES.saturating_mul(flows);
        // Messages of the warm-up may arrive later.
        let most = if self.has_warm_up() { sent.saturating_add(buffers) } else { sent };
        let sum = |get: fn(&FlowReport) -> u64| {
            reported.iter().fold(0, |sum: u64, flow| sum.saturating_add(get(flow)))
        };
        let (bytes, messages, head) =
            (sum(|flow| flow.bytes), sum(|flow| flow.messages), sum(|flow| flow.head_bytes));
        if bytes > most {
            return Some(format!("it reports {bytes} bytes received, {sent} were sent"));
        }
        let unlike = messages.saturating_mul(size).abs_diff(bytes);
        if !report.has_other_sizes && unlike > size.saturating_mul(2 * flows) {
            return Some(format!("it reports {messages} messages of {size} bytes, and {bytes} bytes"));
        }
        let counted = (most / size).saturating_mul(2).saturating_add(MAX_FOREIGN_MESSAGES);
        for (count, what) in [
            (sum(|flow| flow.duplicate), "duplicate"),
            (sum(|flow| flow.reordered), "reordered"),
            (sum(|flow| flow.corrupt_messages), "corrupt"),
        ] {
            if count > counted {
                return Some(format!("it reports {count} messages as {what}, {} were sent", sent / size));
            }
        }
        if bytes > 0 && (head > bytes || head > MAX_INITIAL_BYTES.max(2 * size).saturating_mul(flows)) {
            return Some(format!("it reports that {head} of {bytes} bytes arrived at once"));
        }
        self.check_elapsed(&reported, port, bytes - head.min(bytes))
            .or_else(|| self.check_missing(report, &reported, port, bytes))
    }

    /// Finds an impossible elapsed time for the bytes after the first receipt.
    fn check_elapsed(&self, reported: &[&FlowReport], port: usize, timed: u64) -> Option<String> {
        let elapsed_ns = receiving_ns(reported.iter().copied());
        let longest = self.max_elapsed();
        if u128::from(elapsed_ns) > longest.as_nanos() {
            return Some(format!(
                "it reports that it received for {elapsed_ns} ns, but the case took {:?}",
                self.elapsed
            ));
        }
        if elapsed_ns == 0 {
            // Too few bytes for a rate.
            return None;
        }
        let flows = self.flows_of(FlowRole::Upload, port).count() as u64;
        let rate = timed as f64 * 8e9 / elapsed_ns as f64;
        let sending_ns =
            self.flows_of(FlowRole::Upload, port).map(|flow| flow.recorder.elapsed_ns()).max().unwrap_or(0);
        let too_soon = timed > MAX_IN_FLIGHT_BYTES.saturating_mul(flows)
            && (elapsed_ns as f64) < sending_ns as f64 * MIN_TIME_SHARE;
        (rate > MAX_FLOW_BPS * flows as f64 || too_soon).then(|| {
            format!("it reports {timed} bytes received in {elapsed_ns} ns, they were sent in {sending_ns} ns")
        })
    }

    /// Finds missing bytes of a reliable stream.
    fn check_missing(
        &self,
        report: &ServerReport,
        reported: &[&FlowReport],
        port: usize,
        bytes: u64,
    ) -> Option<String> {
        let has_fault = reported.iter().any(|flow| flow.fault.is_some())
            || self.flows_of(FlowRole::Upload, port).any(|flow| flow.fault.is_some());
        if has_fault || self.was_interrupted || self.has_warm_up() || !self.is_reliable_stream(port) {
            return None;
        }
        let sent: u64 =
            self.flows_of(FlowRole::Upload, port).map(|flow| flow.recorder.counts.delivered_bytes).sum();
        let missing = sent.saturating_sub(bytes);
        let may_miss = match report.is_complete {
            true => 0,
            false => MAX_IN_FLIGHT_BYTES.saturating_mul(reported.len() as u64),
        };
        (missing > may_miss || bytes == 0 && sent > 0)
            .then(|| format!("it reports {bytes} bytes received, {sent} were sent on a stream without loss"))
    }

    /// Finds impossible values in a send report. Also returns the number of messages that this client received.
    fn check_download(&self, report: &ServerReport, port: usize) -> Option<(String, u64)> {
        let mut reported = report.flows.iter().filter(|flow| flow.inward && flow.port == port).peekable();
        reported.peek()?;
        let messages = reported.fold(0, |sum: u64, flow| sum.saturating_add(flow.messages));
        let flows = self.flows_of(FlowRole::Download, port).count() as u64;
        let own: u64 =
            self.flows_of(FlowRole::Download, port).map(|flow| flow.recorder.counts.received).sum();
        // At the end of the warm-up, and of a block, the counts may differ by one.
        let too_few = !self.has_warm_up() && messages.saturating_add(flows) < own;
        (too_few || messages > self.max_messages(flows.max(1)).max(own))
            .then(|| (format!("it reports {messages} messages sent, {own} were received"), own))
    }
}

#[cfg(test)]
mod tests;
