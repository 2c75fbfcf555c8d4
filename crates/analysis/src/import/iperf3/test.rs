//! One test of an iperf3 file, as a case.

use serde_json::Value;

use super::super::{ImportError, ImportOptions, base_case, format_error};
use super::FORMAT;
use super::directions::{Datagrams, DirectionSums, DirectionTotals, PacketSum};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    CaseResult, CpuUse, Delivery, Figures, MessageCounts, SeriesEntry, Warning, WarningCode,
};
use linkgauge_model::sample::append_entries;

/// A hundred years; no real test takes longer.
const MAX_DURATION_SECONDS: f64 = 3.2e9;

/// Minimum payload, in bytes, that says anything about the CPU time of a gigabyte.
const MIN_CPU_BYTES: f64 = 1e6;

/// Rounding of the CPU percentages.
const MAX_CPU_EXCESS: f64 = 1.1;

/// Maximum number of streams, and of the bytes of one write; iperf3 itself has these limits.
const MAX_STREAMS: u32 = 128;
const MAX_BLOCK_BYTES: u32 = 1 << 20;

/// A test: a document, or the events that make one up.
#[derive(Debug, Default)]
pub(super) struct TestDocument {
    pub(super) start: Value,
    pub(super) intervals: Vec<Value>,
    pub(super) end: Value,
    pub(super) error: Value,
    /// The events are mixed with those of another test.
    pub(super) is_mixed: bool,
}

impl TestDocument {
    pub(super) fn of(mut value: Value) -> TestDocument {
        let intervals = match value.get_mut("intervals").map(Value::take) {
            Some(Value::Array(intervals)) => intervals,
            _ => Vec::new(),
        };
        let mut field = |name: &str| value.get_mut(name).map(Value::take).unwrap_or_default();
        TestDocument {
            start: field("start"),
            intervals,
            end: field("end"),
            error: field("error"),
            is_mixed: false,
        }
    }

    /// Whether both documents belong to the same test.
    pub(super) fn is_same_test(&self, other: &TestDocument) -> bool {
        let cookie = |test: &TestDocument| {
            test.start["cookie"].as_str().filter(|cookie| !cookie.is_empty()).map(str::to_owned)
        };
        cookie(self).is_some() && cookie(self) == cookie(other)
    }

    /// The case; fails if no direction of the test has a result.
    pub(super) fn into_case(self, about: &ImportOptions) -> Result<CaseResult, ImportError> {
        if self.is_mixed {
            return Err(format_error(
                "the events of two tests are mixed, and no event names its test: write each test to a file of its own",
            ));
        }
        let error = match &self.error {
            Value::Null => None,
            Value::String(text) => Some(format!("iperf3 ended with an error: {text}")),
            other => Some(format!("iperf3 ended with an error: {other}")),
        };
        for (name, value) in [("start", &self.start), ("end", &self.end)] {
            if !value.is_object() {
                let missing = || format!("not a result of iperf3 --json: '{name}' is missing");
                return Err(format_error(error.unwrap_or_else(missing)));
            }
        }
        self.check_parameters()?;
        let direction = self.direction();
        let (ahead, back) = self.totals(direction, error.is_some());
        let (Some(ahead), true) = (ahead, back.is_some() || direction != Direction::Both) else {
            let none = || "iperf3 ended before it reported the received data".to_owned();
            return Err(format_error(error.unwrap_or_else(none)));
        };
        let ways = || [Some(&ahead), back.as_ref()].into_iter().flatten();
        if let Some(error) = error.as_ref().filter(|_| ways().all(|way| way.delivered_bytes.is_none())) {
            return Err(format_error(error.clone()));
        }
        let mut case = base_case(about, &FORMAT, "throughput", direction, figures(&ahead, back.as_ref()));
        case.protocol = "iperf3".to_owned();
        if let (None, Some(endpoint)) = (&about.endpoint, self.endpoint()) {
            case.endpoint = endpoint;
        }
        case.message_bytes = self.message_bytes();
        case.parallel = self.streams();
        case.elapsed_ns = to_nanoseconds(ahead.seconds);
        case.series = self.series(direction);
        let is_server = self.is_server();
        if ways().any(|way| way.datagrams != Datagrams::None) {
            case.effective.insert("framing".to_owned(), "message".into());
        }
        self.record_facts(&mut case);
        for way in ways() {
            case.warnings.extend(way_warnings(way, is_server));
        }
        case.warnings.dedup();
        if let Some(error) = error {
            case.complete = false;
            case.warnings.push(Warning::new(WarningCode::Incomplete, error, "let the test run to its end"));
        } else if ways().any(|way| way.delivered_bytes == Some(0)) {
            case.complete = false;
            case.warnings.push(Warning::new(
                WarningCode::Incomplete,
                "a direction of the test delivered nothing",
                "check the link and the firewalls of both hosts",
            ));
        }
        Ok(case)
    }

    fn parameter(&self, name: &str) -> f64 {
        self.start["test_start"][name].as_f64().unwrap_or(0.0)
    }

    /// Refuses parameters that no iperf3 has: no figure of such a file can be trusted.
    fn check_parameters(&self) -> Result<(), ImportError> {
        for (name, most) in [("num_streams", MAX_STREAMS), ("blksize", MAX_BLOCK_BYTES)] {
            let value = &self.start["test_start"][name];
            if value.as_f64().is_some_and(|value| !(1.0..=f64::from(most)).contains(&value)) {
                return Err(format_error(format!("'{name}' of the test is {value}: iperf3 has 1 to {most}")));
            }
        }
        Ok(())
    }

    fn message_bytes(&self) -> u32 {
        self.parameter("blksize") as u32
    }

    fn streams(&self) -> u32 {
        (self.parameter("num_streams") as u32).max(1)
    }

    fn omits_start(&self) -> bool {
        self.parameter("omit") > 0.0
    }

    /// Whether the file is that of a server.
    fn is_server(&self) -> bool {
        self.start["connecting_to"].is_null() && !self.start["accepted_connection"].is_null()
    }

    fn direction(&self) -> Direction {
        let is_both = self.parameter("bidir") != 0.0
            || !self.end["sum_received_bidir_reverse"].is_null()
            || !self.end["sum_bidir_reverse"].is_null()
            || [true, false].iter().all(|is_sender| self.sum_of_streams("sender", *is_sender).is_some());
        match (is_both, self.parameter("reverse") != 0.0) {
            (true, _) => Direction::Both,
            (false, false) => Direction::Send,
            (false, true) => Direction::Receive,
        }
    }

    /// The client's target. In a server's file it is the local address of the connections.
    fn endpoint(&self) -> Option<String> {
        let target = &self.start["connecting_to"];
        let own = &self.start["connected"][0];
        let (host, port) = match target.is_object() {
            true => (&target["host"], &target["port"]),
            false => (&own["local_host"], &own["local_port"]),
        };
        let (host, port) = (host.as_str()?, port.as_u64()?);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let address = format!("{host}:{port}");
        Some(match self.start["test_start"]["protocol"].as_str() {
            Some(protocol) if !protocol.is_empty() => format!("{}://{address}", protocol.to_lowercase()),
            _ => address,
        })
    }

    /// The sum of the streams in which this side sends or receives, as counted by the sender or the receiver (`side`). Of
    /// datagrams there is one count.
    fn sum_of_streams(&self, side: &str, is_sender: bool) -> Option<PacketSum> {
        let streams = self.end["streams"].as_array()?;
        let sums = streams.iter().take(2 * MAX_STREAMS as usize).filter_map(|stream| {
            let only = || stream.as_object().filter(|of| of.len() == 1)?.values().next();
            let sum = PacketSum::of(&stream[side]).or_else(|| PacketSum::of(only()?))?;
            (sum.is_sender == Some(is_sender)).then_some(sum)
        });
        sums.reduce(|mut all, sum| {
            all.add(&sum);
            all
        })
    }

    /// Totals of the named direction, and for `both` of the reverse direction.
    fn totals(
        &self,
        direction: Direction,
        has_error: bool,
    ) -> (Option<DirectionTotals>, Option<DirectionTotals>) {
        let is_server = self.is_server();
        let way = |end: &str, server_receives: bool| {
            let this_sends = is_server != server_receives;
            let sum = |name: &str| {
                let names = [format!("{name}{end}"), format!("{name}{}", other_end(end))];
                let [own, other] = names.map(|name| PacketSum::of(&self.end[name]));
                // The summary of the file says which sum belongs to which direction. In the two sums of datagrams it says
                // only which side counted: there the names decide.
                let says_only_counter = |sum: &PacketSum| name != "sum" && sum.has_datagrams();
                let is_own = |sum: &PacketSum| {
                    says_only_counter(sum) || sum.is_sender.is_none_or(|sends| sends == this_sends)
                };
                match direction == Direction::Both {
                    true => own.filter(is_own).or(other.filter(|sum| sum.is_sender == Some(this_sends))),
                    false => own,
                }
            };
            let (mut sent, mut received, combined) = (sum("sum_sent"), sum("sum_received"), sum("sum"));
            if direction == Direction::Both && received.is_none() && combined.is_none() {
                sent = self.sum_of_streams("sender", this_sends);
                received = self.sum_of_streams("receiver", this_sends);
            }
            let intervals = self.sum_of_intervals(end, this_sends).filter(|_| !this_sends);
            // After an error this side does not know what the other one counted.
            let is_client_and_knows = |of_own: bool| !is_server && (of_own || !has_error);
            let sums = DirectionSums {
                sent,
                received,
                combined,
                knows_received: is_client_and_knows(!server_receives) || is_server && server_receives,
                knows_sent: is_client_and_knows(server_receives) || is_server && !server_receives,
                intervals,
                omits_start: self.omits_start(),
                datagram_bytes: self.message_bytes().into(),
                streams: self.streams().into(),
            };
            sums.result()
        };
        let ahead = way("", direction != Direction::Receive);
        (ahead, (direction == Direction::Both).then(|| way(REVERSE, false)).flatten())
    }

    /// The intervals without those that are written twice, as the last one of an interrupted server.
    fn distinct_intervals(&self) -> impl Iterator<Item = &Value> {
        let span = |interval: &Value| PacketSum::of(&interval["sum"]).map(|sum| (sum.start, sum.seconds));
        let is_repeated =
            move |at: usize| at > 0 && span(&self.intervals[at]) == span(&self.intervals[at - 1]);
        self.intervals
            .iter()
            .enumerate()
            .filter_map(move |(at, interval)| (!is_repeated(at)).then_some(interval))
    }

    /// The sum of the intervals of a direction; `None` if the file has none.
    fn sum_of_intervals(&self, end: &str, is_sender: bool) -> Option<PacketSum> {
        let name = format!("sum{end}");
        let sums = self.distinct_intervals().filter_map(|interval| PacketSum::of(&interval[&name]));
        let own = sums.filter(|sum| !sum.omitted && sum.is_sender == Some(is_sender));
        own.reduce(|mut all, sum| {
            let seconds = all.seconds + sum.seconds;
            all.add(&sum);
            all.seconds = seconds;
            all
        })
    }

    /// The intervals. For direction both: received by the side that wrote the file.
    fn series(&self, direction: Direction) -> Vec<SeriesEntry> {
        let shown = |interval: &Value| {
            let [sum, reverse] = ["sum", "sum_bidir_reverse"].map(|name| PacketSum::of(&interval[name]));
            let mut both = [sum.clone(), reverse.clone()].into_iter().flatten();
            match direction {
                Direction::Both => both
                    .rfind(|sum| sum.is_sender == Some(false))
                    .or(reverse.filter(|_| !self.is_server()))
                    .or(sum),
                _ => sum,
            }
        };
        let is_shown = |sum: &PacketSum| !sum.omitted && sum.seconds > 0.0;
        let sums: Vec<PacketSum> = self.distinct_intervals().filter_map(shown).filter(is_shown).collect();
        // The sender of datagrams does not know which of them arrived.
        if sums.iter().any(PacketSum::lacks_losses) {
            return Vec::new();
        }
        let mut series = Vec::new();
        append_entries(&mut series, sums.iter().filter_map(series_entry).collect(), 0);
        series
    }

    /// Facts without a figure, and CPU time.
    fn record_facts(&self, case: &mut CaseResult) {
        for (name, value) in [
            ("mss_bytes", &self.start["tcp_mss_default"]),
            ("send_buffer_bytes", &self.start["sndbuf_actual"]),
            ("receive_buffer_bytes", &self.start["rcvbuf_actual"]),
        ] {
            let value = value.as_u64().filter(|value| *value > 0);
            case.effective.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        if let Some(name) = self.end["sender_tcp_congestion"].as_str() {
            case.effective.insert("congestion".to_owned(), name.into());
        }
        let cpu = &self.end["cpu_utilization_percent"];
        let streams = f64::from(case.parallel) * if case.direction == Direction::Both { 2.0 } else { 1.0 };
        // A thread for each stream, and one that controls.
        let most = 100.0 * (streams + 1.0) * MAX_CPU_EXCESS;
        let percents = [&cpu["host_total"], &cpu["remote_total"]].map(Value::as_f64);
        let is_possible = |percent: &f64| (0.0..=most).contains(percent);
        if let Some(wrong) = percents.into_iter().flatten().find(|percent| !is_possible(percent)) {
            let text = format!(
                "the file says {wrong:.0} % CPU, more than its threads can use, so CPU time is left out"
            );
            case.warnings.push(contradiction(text));
            return;
        }
        let [host, remote] = percents;
        // A server's file has no valid client values: they are absent or belong to the previous client.
        if self.is_server() {
            case.effective.extend(host.map(|host| ("server_cpu_percent".to_owned(), host.into())));
        } else if !self.omits_start() && case.elapsed_ns > 0 {
            // With --omit the percentages cover a longer time than the bytes. The remote's is 0 until it has reported it.
            let remote = remote.filter(|remote| *remote > 0.0);
            case.cpu = host.map(|host| cpu_use(host, remote, case));
        }
    }
}

const REVERSE: &str = "_bidir_reverse";

fn other_end(end: &str) -> &'static str {
    if end.is_empty() { REVERSE } else { "" }
}

fn contradiction(text: String) -> Warning {
    Warning::new(WarningCode::Contradiction, text, "measure again with a current iperf3")
}

pub fn figures(ahead: &DirectionTotals, back: Option<&DirectionTotals>) -> Figures {
    let delivery = Delivery {
        throughput_bps: ahead.throughput_bps,
        delivered_bytes: ahead.delivered_bytes,
        throughput_reverse_bps: back.and_then(|back| back.throughput_bps),
        delivered_reverse_bytes: back.and_then(|back| back.delivered_bytes),
        ..Delivery::default()
    };
    let mut counts = MessageCounts::default();
    for way in [Some(ahead), back].into_iter().flatten() {
        match way.datagrams {
            Datagrams::None => {}
            Datagrams::Counted(sent, received) => {
                counts.add(&MessageCounts { sent, received, lost: sent - received, ..Default::default() });
            }
            Datagrams::Received(received) => {
                counts.add(&MessageCounts { received, losses_unknown: true, ..Default::default() });
            }
        }
    }
    if counts.losses_unknown {
        counts.forget_losses();
    }
    Figures { counts, delivery, ..Figures::default() }
}

/// Warning about a doubtful direction.
fn way_warnings(way: &DirectionTotals, is_server: bool) -> Option<Warning> {
    if way.mixes_periods {
        let text = "datagrams were counted from the start and bytes without --omit, so no loss is known";
        return Some(Warning::new(
            WarningCode::LossesUnknown,
            text,
            "measure without --omit, or with iperf3 3.16 and later",
        ));
    }
    if let Some(what) = &way.impossible {
        return Some(contradiction(format!("the file contradicts itself: {what}")));
    }
    way.delivered_bytes.is_none().then(|| {
        let (text, remedy) = match is_server {
            true => (
                "the server's file lacks the data that the client received, so nothing counts as delivered",
                "import the client's file",
            ),
            false => ("the file lacks the data that the server received", "import the server's file"),
        };
        Warning::new(WarningCode::Unconfirmed, text, remedy)
    })
}

fn series_entry(sum: &PacketSum) -> Option<SeriesEntry> {
    let lost = sum.lost_packets().filter(|lost| sum.packets().is_some_and(|packets| *lost <= packets));
    Some(SeriesEntry {
        start_ns: to_nanoseconds(sum.start),
        length_ns: to_nanoseconds(sum.seconds),
        messages: sum.packets(),
        bytes: sum.bytes?,
        lost,
        ..SeriesEntry::default()
    })
}

/// CPU time from the shares of one CPU that iperf3 reports.
fn cpu_use(host: f64, remote: Option<f64>, case: &CaseResult) -> CpuUse {
    let seconds = case.elapsed_ns as f64 / 1e9;
    let client_seconds = host / 100.0 * seconds;
    let server_seconds = remote.map(|percent| percent / 100.0 * seconds);
    let delivery = &case.figures.delivery;
    let bytes =
        [delivery.delivered_bytes, delivery.delivered_reverse_bytes].map(|bytes| bytes.unwrap_or(0) as f64);
    let delivered = bytes[0] + bytes[1];
    let per_gigabyte = server_seconds.map(|server| (client_seconds + server) * 1e9 / delivered);
    CpuUse {
        client_seconds,
        client_busy_poll_seconds: None,
        server_seconds,
        seconds_per_gigabyte: per_gigabyte.filter(|_| delivered >= MIN_CPU_BYTES),
    }
}

fn to_nanoseconds(seconds: f64) -> u64 {
    if (0.0..MAX_DURATION_SECONDS).contains(&seconds) { (seconds * 1e9) as u64 } else { 0 }
}
