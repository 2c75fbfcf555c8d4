//! Checks what a server reports against what this client sent, received and timed itself. One place for all protocols.
//!
//! A server may be wrong, or lie. What cannot be true is no figure: a report of that kind is left out, and a doubt says
//! why. Not for what a server *grants* (each protocol checks that), nor for what this client counts itself.

use std::time::Duration;

use super::{FlowReport, FlowResult, FlowRole, ServerReport};
use crate::link::{Caps, Framing};
use crate::plan::{Case, StopCondition};

/// Bytes that the buffers of both systems and the network between them may hold for one flow: more than twice the largest
/// defaults of Linux (`tcp_wmem`, `tcp_rmem`) together.
const MAX_IN_FLIGHT_BYTES: u64 = 64 << 20;

/// No thread takes payload out of a socket faster: 125 GB/s is above the bandwidth of a core's caches.
const MAX_FLOW_BPS: f64 = 1e12;

/// A server receives for at least this share of the time for which the client sends, unless all fits into buffers.
const MIN_TIME_SHARE: f64 = 0.25;

/// Most that one receive operation brings.
const MAX_INITIAL_BYTES: u64 = 4 << 20;

/// Two clocks count the same time this far apart, at most.
const MAX_CLOCK_RATIO: f64 = 1.01;
const MAX_CLOCK_OFFSET: Duration = Duration::from_millis(20);

/// Packets that arrive without being sent by this client, from other programs.
const MAX_FOREIGN_MESSAGES: u64 = 1_000;

/// What the client knows.
pub struct LocalObservations<'a> {
    pub case: &'a Case,
    /// Of the links of each port.
    pub caps: &'a [Caps],
    pub flows: &'a [FlowResult],
    /// From before the first byte until the report was there.
    pub elapsed: Duration,
    /// A signal ended the flows early.
    pub was_interrupted: bool,
}

/// A report without what cannot be true.
pub struct CheckedReport {
    pub report: ServerReport,
    /// What was left out, one line each.
    pub problems: Vec<String>,
    /// Nothing is known of what the server received.
    pub is_rate_unknown: bool,
}

/// Leaves out what cannot be true.
pub fn check_report(mut report: ServerReport, known: &LocalObservations) -> CheckedReport {
    let (mut doubts, mut is_rate_unknown) = (Vec::new(), false);
    for port in 0..known.case.endpoints.len() {
        let endpoint = &known.case.endpoints[port];
        if let Some(doubt) = known.check_upload(&report, port) {
            doubts.push(format!("{endpoint}: {doubt}"));
            is_rate_unknown = true;
        }
        if let Some((doubt, own)) = known.check_download(&report, port) {
            doubts.push(format!("{endpoint}: {doubt}"));
            let mut of_port = report.flows.iter_mut().filter(|flow| flow.inward && flow.port == port);
            // What arrived has been sent, and more is not known.
            if let Some(first) = of_port.next() {
                first.messages = own;
            }
            of_port.for_each(|flow| flow.messages = 0);
        }
    }
    if is_rate_unknown {
        // The sum over some of the flows would be another figure.
        report.flows.retain(|flow| flow.inward);
    }
    if let Some(seconds) = report.cpu_seconds
        && !known.is_plausible_cpu_time(seconds)
    {
        doubts.push(format!("{seconds} s of CPU time in {:?}", known.elapsed));
        report.cpu_seconds = None;
    }
    CheckedReport { report, problems: doubts, is_rate_unknown }
}

impl LocalObservations<'_> {
    /// The flows of a port, in one direction.
    fn flows_of(&self, role: FlowRole, port: usize) -> impl Iterator<Item = &FlowResult> {
        self.flows.iter().filter(move |flow| flow.role == role && flow.endpoint_index == port)
    }

    /// Whether the link of a port is a stream that loses nothing.
    fn is_reliable_stream(&self, port: usize) -> bool {
        self.caps.get(port).is_some_and(|caps| caps.framing == Framing::Stream && caps.is_reliable)
    }

    fn has_warm_up(&self) -> bool {
        self.case.warm_up.is_some_and(|warm_up| warm_up != StopCondition::default())
    }

    fn is_plausible_cpu_time(&self, seconds: f64) -> bool {
        // A thread a flow, one for the session and one for the system's work.
        let threads = self.flows.len() + 2;
        let most = self.max_elapsed().as_secs_f64() * threads as f64;
        (0.0..=most).contains(&seconds)
    }

    fn max_elapsed(&self) -> Duration {
        self.elapsed.mul_f64(MAX_CLOCK_RATIO).saturating_add(MAX_CLOCK_OFFSET)
    }

    /// Messages that flows of this direction may have moved in all the time there was.
    fn max_messages(&self, flows: u64) -> u64 {
        let bytes = MAX_FLOW_BPS / 8.0 * self.max_elapsed().as_secs_f64() * flows as f64;
        (bytes / f64::from(self.case.message_bytes.max(1))) as u64
    }

    /// What cannot be true of what a server says it received.
    fn check_upload(&self, report: &ServerReport, port: usize) -> Option<String> {
        let told: Vec<&FlowReport> =
            report.flows.iter().filter(|flow| !flow.inward && flow.port == port).collect();
        let flows = self.flows_of(FlowRole::Upload, port).count() as u64;
        if flows == 0 || told.is_empty() {
            return None;
        }
        let sent: u64 =
            self.flows_of(FlowRole::Upload, port).map(|flow| flow.recorder.counts.delivered_bytes).sum();
        let size = u64::from(self.case.message_bytes.max(1));
        let buffers = MAX_IN_FLIGHT_BYTES.saturating_mul(flows);
        // What was sent to warm up may arrive later.
        let most = if self.has_warm_up() { sent.saturating_add(buffers) } else { sent };
        let sum =
            |get: fn(&FlowReport) -> u64| told.iter().fold(0, |sum: u64, flow| sum.saturating_add(get(flow)));
        let (bytes, messages, head) =
            (sum(|flow| flow.bytes), sum(|flow| flow.messages), sum(|flow| flow.head_bytes));
        if bytes > most {
            return Some(format!("it reports {bytes} bytes received, {sent} were sent"));
        }
        let unlike = messages.saturating_mul(size).abs_diff(bytes);
        if unlike > size.saturating_mul(2 * flows) {
            return Some(format!("it reports {messages} messages of {size} bytes, and {bytes} bytes"));
        }
        let counted = (most / size).saturating_mul(2).saturating_add(MAX_FOREIGN_MESSAGES);
        for (count, what) in [
            (sum(|flow| flow.duplicate), "twice"),
            (sum(|flow| flow.reordered), "out of order"),
            (sum(|flow| flow.corrupt_messages), "corrupt"),
        ] {
            if count > counted {
                return Some(format!(
                    "it reports {count} messages that came {what}, {} were sent",
                    sent / size
                ));
            }
        }
        if bytes > 0 && (head > bytes || head > MAX_INITIAL_BYTES.max(2 * size).saturating_mul(flows)) {
            return Some(format!("it reports that {head} of {bytes} bytes came at once"));
        }
        self.check_elapsed(&told, port, bytes - head.min(bytes))
            .or_else(|| self.check_missing(report, &told, port, bytes))
    }

    /// What cannot be true of the time in which a server says it received so many bytes behind the first.
    fn check_elapsed(&self, told: &[&FlowReport], port: usize, timed: u64) -> Option<String> {
        let elapsed_ns = told.iter().map(|flow| flow.elapsed_ns).max().unwrap_or(0);
        let longest = self.max_elapsed();
        if u128::from(elapsed_ns) > longest.as_nanos() {
            return Some(format!(
                "it reports that it received for {elapsed_ns} ns, all took {:?}",
                self.elapsed
            ));
        }
        if elapsed_ns == 0 {
            // No rate comes of this.
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

    /// What cannot be missing: a reliable stream loses nothing.
    fn check_missing(
        &self,
        report: &ServerReport,
        told: &[&FlowReport],
        port: usize,
        bytes: u64,
    ) -> Option<String> {
        let has_fault = told.iter().any(|flow| flow.fault.is_some())
            || self.flows_of(FlowRole::Upload, port).any(|flow| flow.fault.is_some());
        if has_fault || self.was_interrupted || self.has_warm_up() || !self.is_reliable_stream(port) {
            return None;
        }
        let sent: u64 =
            self.flows_of(FlowRole::Upload, port).map(|flow| flow.recorder.counts.delivered_bytes).sum();
        let missing = sent.saturating_sub(bytes);
        let may_miss = match report.is_complete {
            true => 0,
            false => MAX_IN_FLIGHT_BYTES.saturating_mul(told.len() as u64),
        };
        (missing > may_miss || bytes == 0 && sent > 0).then(|| {
            format!("it reports {bytes} bytes received, {sent} were sent on a stream that loses nothing")
        })
    }

    /// What cannot be true of what a server says it sent, and the messages that this client received.
    fn check_download(&self, report: &ServerReport, port: usize) -> Option<(String, u64)> {
        let mut told = report.flows.iter().filter(|flow| flow.inward && flow.port == port).peekable();
        told.peek()?;
        let messages = told.fold(0, |sum: u64, flow| sum.saturating_add(flow.messages));
        let flows = self.flows_of(FlowRole::Download, port).count() as u64;
        let own: u64 =
            self.flows_of(FlowRole::Download, port).map(|flow| flow.recorder.counts.received).sum();
        // At the border of a warm-up, and of a block, both ends may count one more or less.
        let too_few = !self.has_warm_up() && messages.saturating_add(flows) < own;
        (too_few || messages > self.max_messages(flows.max(1)).max(own))
            .then(|| (format!("it reports {messages} messages sent, {own} were received"), own))
    }
}

#[cfg(test)]
mod tests;
