//! Warnings about everything that makes a result doubtful, with its remedy.
//!
//! Pure: warnings follow from the figures and the facts of the machine. Reports print them.

mod cpu;
mod host_busy;
mod marks;
mod path_mtu;
mod radio;
mod repetitions;
mod replies;
mod server_limit;
mod stamps;

use serde_json::{Map, Value};

use crate::plan::{Direction, WaitMode};
use crate::run::{CaseResult, DefectKind, MessageCounts, RequestCounts, Warning, WarningCode};
use crate::stats;
use crate::units::{format_bit_rate, format_count, format_nanoseconds, format_plural};
pub use host_busy::was_host_busy;
pub use radio::WEAK_WIFI_SIGNAL_DBM;

/// A latency below this multiple of the measurement overhead is partly overhead.
const MIN_OVERHEAD_RATIO: f64 = 20.0;

/// A change or excess below this is not worth a warning.
const MIN_NOTABLE_CHANGE: f64 = 0.05;

/// A trend needs at least this many samples.
const MIN_TREND_SAMPLES: usize = 200;

/// The lowest latency timer of a USB serial adapter, and the length of a USB frame.
pub const MIN_USB_TIMER_MS: i64 = 1;

/// The warnings of one case. `head` holds its first latencies in order.
pub fn case_warnings(case: &CaseResult, head: &[u64], overhead_ns: Option<f64>) -> Vec<Warning> {
    [
        default_rate(case),
        near_overhead(case, overhead_ns),
        slow_start(head),
        drift(head),
        cpu::cpu_saturated(case),
        cpu::sender_not_busy(case),
        busy_poll_on_one_cpu(case),
        corrupt(case),
        replies::duplicate_replies(case),
        replies::early_replies(case),
        replies::exceptions(case),
        replies::remote_clock_set(case),
        replies::remote_clock_unsuitable(case),
        replies::clocks_disagree(case),
        lost_bytes(case),
        line_errors(case),
        beyond_line(case),
        receiver_socket_drops(case),
        marks::marks_changed(case),
        path_mtu::divided(case),
        stamps::unstamped(case),
        load_stalled(case),
        missed_sends(case),
        server_limit::server_limit(case),
        few_samples(case),
        line_settings_not_granted(case),
        usb_latency_timer(&case.effective),
        interrupts_coalesced(case),
        record_numbers(case),
        window_reduced(case),
        requests_repeated(case),
        reconnected(case),
        emulated(case),
        radio::wifi_power_save(case),
        radio::wifi_band(&case.effective),
        radio::weak_signal(&case.effective),
        host_busy::host_busy(case),
        repetitions::groups(case),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Values in a server's report that are impossible, if any.
pub fn implausible_report(doubts: &[String]) -> Option<Warning> {
    let (first, others) = doubts.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    Some(Warning::new(
        WarningCode::ImplausibleReport,
        format!("the server's report cannot be true and is left out: {first}{others}"),
        "the figures are those that this client counted; check the server and the network with another program",
    ))
}

fn default_rate(case: &CaseResult) -> Option<Warning> {
    let per_second = case.pacing()?.get("per_second")?.as_f64()?;
    let rate = format_bit_rate(per_second * 8.0 * f64::from(case.message_bytes));
    let flows = f64::from(case.ports.max(1)) * f64::from(case.parallel.max(1));
    // Some servers choose their own rate, whatever the request.
    let took_effect = case.direction == Direction::Send
        || case.figures.delivery.throughput_bps.is_some_and(|bps| {
            bps <= flows * (1.0 + MIN_NOTABLE_CHANGE) * per_second * 8.0 * f64::from(case.message_bytes)
        });
    (took_effect && case.workload != "latency" && case.is_paced_by_default()).then(|| {
        Warning::new(
            WarningCode::DefaultRate,
            format!(
                "sent at {rate} on each connection, the default for datagrams to another host: it is not a maximum"
            ),
            "choose a rate, like --bit-rate 100M; --bit-rate max sends as fast as it goes",
        )
    })
}

fn near_overhead(case: &CaseResult, overhead_ns: Option<f64>) -> Option<Warning> {
    let (p50, overhead) = (case.figures.times.latency_ns.as_ref()?.percentile("p50")? as f64, overhead_ns?);
    (p50 < MIN_OVERHEAD_RATIO * overhead).then(|| {
        let times = p50 / overhead;
        Warning::new(
            WarningCode::NearOverhead,
            format!(
                "the median is only {times:.1} times the measurement overhead ({})",
                format_nanoseconds(overhead)
            ),
            "read it as an upper bound; nothing was subtracted",
        )
    })
}

fn drift(head: &[u64]) -> Option<Warning> {
    if head.len() < MIN_TREND_SAMPLES {
        return None;
    }
    let series: Vec<f64> = head.iter().map(|&ns| ns as f64).collect();
    let (first, second) = series.split_at(series.len() / 2);
    let (before, after) = (stats::median(first)?, stats::median(second)?);
    let change = after / before - 1.0;
    let drift = stats::detect_drift(&series);
    // In a long run even the smallest change is significant. Only a large one makes the figures doubtful.
    (drift.is_drifting && change.abs() > MIN_NOTABLE_CHANGE).then(|| {
        let way = if change > 0.0 { "rose" } else { "fell" };
        Warning::new(
            WarningCode::Drift,
            format!(
                "the median latency {way} from {} to {} within the first {}",
                format_nanoseconds(before),
                format_nanoseconds(after),
                format_plural(series.len() as u64, "round trip")
            ),
            "measure longer, with --warm-up and --repeat; look at the time series",
        )
    })
}

fn slow_start(head: &[u64]) -> Option<Warning> {
    let series: Vec<f64> = head.iter().map(|&ns| ns as f64).collect();
    let cut = stats::warm_up_samples(&series);
    if cut < series.len() / 20 || cut < MIN_TREND_SAMPLES {
        return None;
    }
    let change = stats::median(&series[..cut])? / stats::median(&series[cut..])? - 1.0;
    (change > MIN_NOTABLE_CHANGE && stats::starts_higher(&series, cut)).then(|| {
        Warning::new(
            WarningCode::SlowStart,
            format!("the first {cut} round trips were {} the rest", format_slower(change)),
            format!("leave them out with --warm-up {}", 2 * cut),
        )
    })
}

/// A share by which something is slower: `12 % slower than`, `34 times as slow as`.
fn format_slower(share: f64) -> String {
    match share {
        ..1.0 => format!("{:.0} % slower than", 100.0 * share),
        ..9.0 => format!("{:.1} times as slow as", 1.0 + share),
        _ => format!("{:.0} times as slow as", 1.0 + share),
    }
}

/// Whether the link preserves message boundaries.
pub fn sends_messages(case: &CaseResult) -> bool {
    case.effective.get("framing").and_then(Value::as_str) == Some("message")
}

fn busy_poll_on_one_cpu(case: &CaseResult) -> Option<Warning> {
    let [client, server] = case.placement.pinned_cpus();
    let is_busy_polling = case.placement.wait == Some(WaitMode::BusyPoll);
    (is_busy_polling && client.is_some() && client == server).then(|| {
        Warning::new(
            WarningCode::BusyPollOnOneCpu,
            "client and server busy-poll on the same CPU and take it from each other",
            "give --pin two different CPUs, or leave out --busy-poll",
        )
    })
}

/// Position of the first defect of these kinds.
fn first_defect(case: &CaseResult, kinds: &[DefectKind]) -> String {
    let parts = case.per_port.iter().map(|part| (Some(&part.endpoint), &part.figures));
    // With several ports the port matters.
    let mut places = parts.chain([(None, &case.figures)]);
    let first = places.find_map(|(endpoint, figures)| {
        let defect = figures.byte_errors.defects.iter().find(|defect| kinds.contains(&defect.kind))?;
        let on = endpoint.map_or(String::new(), |endpoint| format!(" of {endpoint}"));
        Some(format!("; the first at byte {}{on}: {} {}", defect.offset, defect.bytes, defect.kind.name()))
    });
    first.unwrap_or_default()
}

fn corrupt(case: &CaseResult) -> Option<Warning> {
    let figures = &case.figures;
    let remedy = match case.line.is_none() {
        true => {
            "the network changes or adds messages, or the server does not speak this protocol: compare with another \
                 protocol or host"
        }
        false => {
            "the line or the device changes bytes: check flow control, baud rate and character size; with --protocol \
                  ask, also the expected reply and its end"
        }
    };
    let counts = [(figures.byte_errors.corrupt_bytes, "byte"), (figures.counts.corrupt_messages, "message")];
    let what: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, of)| format_plural(*count, of)).collect();
    let what = what.join(" and ");
    (!what.is_empty()).then(|| {
        Warning::new(
            WarningCode::Corrupt,
            format!("{what} arrived changed{}", first_defect(case, &[DefectKind::Changed])),
            remedy,
        )
    })
}

/// Name of the count of FF that a device server did not double, among the facts of a link.
pub const UNDOUBLED_FACT: &str = "undoubled_ff_bytes";

fn lost_bytes(case: &CaseResult) -> Option<Warning> {
    let (lost, inserted) = (case.figures.byte_errors.lost_bytes, case.figures.byte_errors.inserted_bytes);
    if let Some(count) = case.effective.get(UNDOUBLED_FACT).and_then(Value::as_u64) {
        return Some(Warning::new(
            WarningCode::LostBytes,
            format!(
                "the device server sent the byte FF {} without doubling it, so the data around it is lost (Telnet, RFC 854)",
                format_plural(count, "time")
            ),
            "update the device server, or use its raw port with tcp://",
        ));
    }
    if case.figures.delivery.delivered_bytes == Some(0) {
        return None;
    }
    let what = match (lost, inserted) {
        (0, 0) => return None,
        (lost, 0) => format!("{} did not return", format_plural(lost, "byte")),
        (0, inserted) => {
            format!("{} arrived that had not been sent, or arrived twice", format_plural(inserted, "byte"))
        }
        (lost, inserted) => format!(
            "{} did not return, and {inserted} arrived that had not been sent, or arrived twice",
            format_plural(lost, "byte")
        ),
    };
    let text = what + &first_defect(case, &[DefectKind::Lost, DefectKind::Inserted]);
    // What was on its way when the link ended did not return either.
    let remedy = match case.failures.is_empty() {
        true => {
            "a buffer on the way was full, or the line is disturbed: check flow control at both ends, rate and cable"
        }
        false => {
            "the measurement ended early, while bytes were on their way: find out why, and measure again"
        }
    };
    Some(Warning::new(WarningCode::LostBytes, text, remedy))
}

fn line_errors(case: &CaseResult) -> Option<Warning> {
    let errors = case.figures.line_errors?;
    let counted = [
        (errors.framing, "framing error"),
        (errors.parity, "parity error"),
        (errors.breaks, "break"),
        (errors.overruns, "overrun"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    let counted: Vec<String> = counted.map(|(count, name)| format_plural(count, name)).collect();
    (!counted.is_empty()).then(|| {
        Warning::new(
            WarningCode::LineErrors,
            format!("the serial port counted {}", counted.join(", ")),
            "framing, parity: set the same rate and frame at both ends, check ground and cable; overruns: flow control",
        )
    })
}

fn beyond_line(case: &CaseResult) -> Option<Warning> {
    let p50 = case.figures.times.latency_ns.as_ref().and_then(|latency| latency.percentile("p50"));
    let minimum = case.line.and_then(|line| line.transmission_ns);
    let sooner = p50
        .zip(minimum)
        .is_some_and(|(p50, minimum)| (p50 as f64) < minimum as f64 * (1.0 - MIN_NOTABLE_CHANGE));
    let faster = case
        .figures
        .delivery
        .line_rate_percent
        .is_some_and(|percent| percent > 100.0 * (1.0 + MIN_NOTABLE_CHANGE));
    (sooner || faster).then(|| {
        Warning::new(
            WarningCode::BeyondLine,
            "the result is faster than the line can be",
            "the port ignores its rate (a pseudo-terminal does), or its rate differs: check baud, data, parity, stop",
        )
    })
}

fn receiver_socket_drops(case: &CaseResult) -> Option<Warning> {
    let lost = case.figures.counts.receiver_socket_drops.filter(|&lost| lost > 0)?;
    Some(Warning::new(
        WarningCode::ReceiverSocketDrops,
        format!(
            "the receiver's socket buffer was full for {} that had reached it",
            format_plural(lost, "packet")
        ),
        "the receiving program lost them, not the network: pace with --bit-rate, or use a larger ?rcvbuf=",
    ))
}

/// A shorter stall can be a retransmission timeout.
const MIN_NOTABLE_STALL_NS: f64 = 1e9;

fn load_stalled(case: &CaseResult) -> Option<Warning> {
    let stall_ns = case.figures.responsiveness?.longest_stall_ns?;
    (stall_ns >= MIN_NOTABLE_STALL_NS && case.failures.is_empty()).then(|| {
        Warning::new(
            WarningCode::LoadStalled,
            format!("the load stood still for {}: no connection moved anything", format_nanoseconds(stall_ns)),
            "the link or one end stopped for so long, which the RPM of the last seconds may not show: see the time series",
        )
    })
}

fn missed_sends(case: &CaseResult) -> Option<Warning> {
    let MessageCounts { sent, late_sends, missed_sends, .. } = case.figures.counts;
    let missed = late_sends.saturating_add(missed_sends);
    (missed.saturating_mul(100) > sent).then(|| {
        Warning::new(
            WarningCode::MissedSends,
            format!(
                "{} left more than one period late, and {} never left ({sent} sent)",
                format_plural(late_sends, "message"),
                format_count(missed_sends),
            ),
            match case.workload.as_str() {
                _ if lacks_numbers(case) => {
                    "messages as short as these have too few numbers for those that are lost or on their way at once: \
                     use --size 8"
                }
                "connect" if case.figures.counts.lost > 0 => {
                    "a connection that fails holds up the next ones until its timeout: the response time includes the delay. \
                     Use a shorter --timeout or more flows (-P)"
                }
                _ => "the rate is higher than this machine or link supports; the response time includes the delay",
            },
        )
    })
}

/// Whether the requests that were lost or in flight within a timeout may have had all numbers of their messages.
fn lacks_numbers(case: &CaseResult) -> bool {
    let read = |per_second: Option<&Value>| per_second.and_then(Value::as_f64);
    let per_second = read(case.pacing().and_then(|pacing| pacing.get("per_second")));
    let timeout = read(case.requested.get("timeout_ns"));
    let (Some(per_second), Some(timeout_ns)) = (per_second, timeout) else { return false };
    let numbers = 256f64.powf(case.message_bytes.min(8).into());
    let slowest_ns = case.figures.times.latency_ns.as_ref().map_or(0.0, |times| times.max as f64);
    let longest_ns = if case.figures.counts.lost > 0 { 2.0 * timeout_ns } else { slowest_ns };
    case.workload == "latency" && per_second * longest_ns / 1e9 > numbers
}

fn few_samples(case: &CaseResult) -> Option<Warning> {
    let latency = case.figures.times.latency_ns.as_ref()?;
    // A download ends with its file.
    let counted = case.figures.requests.is_none();
    (counted && !latency.percentiles.contains_key("p99")).then(|| {
        let sent = case.figures.counts.sent;
        Warning::new(
            WarningCode::FewSamples,
            format!("p99 needs 368 samples; got {sent}"),
            "raise --count or --time",
        )
    })
}

fn line_settings_not_granted(case: &CaseResult) -> Option<Warning> {
    let requested = case.effective.get("line_requested_bits_per_byte").and_then(Value::as_f64)?;
    let granted = case.line?.bits_per_byte;
    (requested != granted).then(|| {
        let text = |name: &str| case.effective.get(name).and_then(Value::as_str).unwrap_or_default();
        Warning::new(
            WarningCode::LineNotGranted,
            format!(
                "requested {} ({requested} bits a character), granted {} ({granted}); the line rate uses the granted one",
                text("line_requested"),
                text("line_granted")
            ),
            "request a setting that the port supports; a pseudo-terminal has eight data bits and no even parity",
        )
    })
}

fn usb_latency_timer(got: &Map<String, Value>) -> Option<Warning> {
    let milliseconds = got.get("usb_latency_timer_ms").and_then(Value::as_i64)?;
    (milliseconds > MIN_USB_TIMER_MS).then(|| {
        Warning::new(
            WarningCode::UsbLatencyTimer,
            format!("the USB adapter holds received bytes back for up to {milliseconds} ms"),
            "set ?low_latency=1; linkgauge doctor shows other ways",
        )
    })
}

/// Warning about coalesced interrupts, if the workload waits for each message or measures message times.
fn interrupts_coalesced(case: &CaseResult) -> Option<Warning> {
    let interface = case.effective.get("interface")?.as_object()?;
    let (name, delay) = (interface.get("interface")?.as_str()?, describe_coalescing(interface)?);
    (case.workload == "latency" || sends_messages(case)).then(|| {
        Warning::new(
            WarningCode::InterruptsCoalesced,
            format!(
                "{name} {delay}: a single message waits for its interrupt; published round trips over such a card were ten \
                 times as long"
            ),
            coalescing_remedy(name),
        )
    })
}

/// Description of how an interface with these facts coalesces its interrupts. `None` if it does not, or does not report it.
pub fn describe_coalescing(interface: &Map<String, Value>) -> Option<String> {
    let adaptive = interface.get("interrupt_delay_adaptive").and_then(Value::as_bool) == Some(true);
    let microseconds = interface.get("interrupt_delay_us").and_then(Value::as_u64).filter(|&us| us > 0);
    match (adaptive, microseconds) {
        (true, _) => Some("chooses itself how long it holds back interrupts (adaptive)".to_owned()),
        (false, Some(us)) => Some(format!("holds back interrupts for up to {us} µs")),
        (false, None) => None,
    }
}

/// The command that disables interrupt coalescing.
pub fn coalescing_remedy(name: &str) -> String {
    format!(
        "ethtool -C {name} adaptive-rx off rx-usecs 0 (as root; back with the values of ethtool -c {name})"
    )
}

fn record_numbers(case: &CaseResult) -> Option<Warning> {
    let records = case.figures.records.as_ref()?;
    let counted = [
        (records.missing, "missing"),
        (records.repeated, "repeated"),
        (records.out_of_order, "out of order"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    let counted: Vec<String> = counted.map(|(count, what)| format!("{count} {what}")).collect();
    let listed = records.faults.iter().take(MAX_LISTED_FAULTS).map(|fault| {
        let (first, last) = (fault.first_record, fault.first_record.saturating_add(fault.records - 1));
        let numbers = if first == last { first.to_string() } else { format!("{first}–{last}") };
        format!("{numbers} {}", fault.kind.name())
    });
    let listed: Vec<String> = listed.collect();
    (!counted.is_empty()).then(|| {
        Warning::new(
            WarningCode::RecordNumbers,
            format!("records by their numbers: {}; the first: {}", counted.join(", "), listed.join(", ")),
            "the logger omitted them, or its table was full and it overwrote the oldest: download again, or more often",
        )
    })
}

fn window_reduced(case: &CaseResult) -> Option<Warning> {
    let requested = case.requested.get("protocol_options")?.get("window")?.as_str()?;
    let RequestCounts { window, refusals, retransmissions, .. } = case.figures.requests?;
    (requested.parse::<u64>().ok()? > window).then(|| {
        Warning::new(
            WarningCode::WindowReduced,
            format!(
                "the server did not accept {requested} requests at once ({refusals} refused, {retransmissions} sent again): {window} at the end"
            ),
            format!("--window {window}"),
        )
    })
}

fn requests_repeated(case: &CaseResult) -> Option<Warning> {
    let RequestCounts { retransmissions: again, reconnects, .. } = case.figures.requests?;
    let is_known = reconnects > 0 || window_reduced(case).is_some();
    (again > 0 && !is_known).then(|| {
        Warning::new(
            WarningCode::RequestsRepeated,
            format!("{} had to be sent again", format_plural(again, "request")),
            "requests or replies are lost or late: check the line, and that --timeout is longer than the slowest reply",
        )
    })
}

fn reconnected(case: &CaseResult) -> Option<Warning> {
    let times = case.figures.requests?.reconnects;
    if times == 0 {
        return None;
    }
    Some(Warning::new(
        WarningCode::Reconnected,
        format!("the link was lost and reopened {}; the download continued", format_plural(times, "time")),
        "the rate includes the time without a link: find out which side closes it",
    ))
}

fn emulated(case: &CaseResult) -> Option<Warning> {
    (case.effective.get("emulated").and_then(Value::as_bool) == Some(true)).then(|| {
        Warning::new(
            WarningCode::Emulated,
            "the logger is emulated: the figures show the protocol and the link, not a product",
            "give the URL of a real logger",
        )
    })
}

/// Maximum number of faults in a warning. The document has more.
const MAX_LISTED_FAULTS: usize = 6;

/// The warnings about the machine, from its facts.
pub fn host_warnings(facts: &Map<String, Value>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default();
    if !matches!(text("clock_source"), "tsc" | "" | "arch_sys_counter" | "kvm-clock") {
        warnings.push(Warning::new(
            WarningCode::SlowClock,
            format!("the clock source is {}: reading it costs a system call", text("clock_source")),
            "linkgauge doctor shows how to change it",
        ));
    }
    if facts.get("emulated_cpu").and_then(Value::as_bool) == Some(true) {
        warnings.push(Warning::new(
            WarningCode::EmulatedCpu,
            "the CPU is emulated in software",
            "compare rows of this run with each other, not with other machines",
        ));
    }
    warnings
}

/// The outcome of writing the file of raw samples.
pub fn raw_file_warning(finished: std::io::Result<u64>) -> Option<Warning> {
    match finished {
        Ok(0) => None,
        Ok(left_out) => Some(Warning::new(
            WarningCode::RawIncomplete,
            format!("the raw file lacks {}: the disk was too slow", format_plural(left_out, "sample")),
            "write it to a faster disk or to memory; the figures are not affected",
        )),
        Err(error) => Some(Warning::new(
            WarningCode::RawIncomplete,
            format!("the raw file could not be written: {error}"),
            "free some disk space; the figures are not affected",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_doubling_is_named_instead_of_a_buffer() {
        let mut case = crate::run::sample_runs::full().cases.remove(0);
        case.figures.byte_errors.lost_bytes = 4;
        assert!(lost_bytes(&case).unwrap().remedy.contains("buffer on the way"));
        case.effective.insert(UNDOUBLED_FACT.to_owned(), 2.into());
        let warning = lost_bytes(&case).unwrap();
        assert!(warning.text.contains("FF 2 times without doubling it"), "{}", warning.text);
    }

    #[test]
    fn a_load_that_stood_still_is_named() {
        let mut run = crate::run::sample_runs::responsiveness();
        let case = &mut run.cases[0];
        assert_eq!(load_stalled(case), None, "a retransmission");
        case.figures.responsiveness.as_mut().unwrap().longest_stall_ns = Some(2.03e9);
        let text = load_stalled(case).unwrap().text;
        assert_eq!(text, "the load stood still for 2.030 s: no connection moved anything");
    }

    #[test]
    fn the_default_rate_is_named_whatever_the_size() {
        let mut case = crate::run::sample_runs::full().cases.remove(0);
        (case.workload, case.message_bytes) = ("throughput".to_owned(), 32_767);
        case.requested.insert("rate".to_owned(), serde_json::json!({ "kind": "default" }));
        let per_second = 1e6 / 8.0 / 32_767.0;
        case.effective
            .insert("pacing".to_owned(), serde_json::json!({ "kind": "fixed", "per_second": per_second }));
        // The first message takes no time.
        case.figures.delivery.throughput_bps = Some(1.33e6);
        case.direction = Direction::Send;
        assert!(default_rate(&case).is_some());
        case.direction = Direction::Receive;
        assert!(default_rate(&case).is_none(), "the server chose another rate");
    }

    #[test]
    fn a_late_schedule_names_the_numbers_of_short_messages() {
        let mut case = crate::run::sample_runs::full().cases.remove(0);
        case.workload = "latency".to_owned();
        case.effective.remove("pacing");
        case.requested
            .insert("pacing".to_owned(), serde_json::json!({ "kind": "fixed", "per_second": 500.0 }));
        case.requested.insert("timeout_ns".to_owned(), serde_json::json!(1_000_000_000));
        case.figures.counts.sent = 1024;
        (case.figures.counts.late_sends, case.figures.counts.missed_sends) = (256, 1476);
        for (bytes, lost, names_numbers) in [(1, 10, true), (1, 0, false), (2, 10, false), (8, 10, false)] {
            (case.message_bytes, case.figures.counts.lost) = (bytes, lost);
            let Warning { text, remedy, .. } = missed_sends(&case).unwrap();
            assert_eq!(text, "256 messages left more than one period late, and 1 476 never left (1024 sent)");
            assert_eq!(remedy.contains("--size 8"), names_numbers, "{bytes} {lost} {remedy}");
        }
    }

    #[test]
    fn interrupt_coalescing_matters_to_messages() {
        let warned = |workload: &str, framing: &str, interface: Value| {
            let case = serde_json::json!({
                "endpoint": "udp://a", "protocol": "linkgauge", "workload": workload, "direction": "send",
                "message_bytes": 64, "ports": 1, "parallel": 1, "method": "", "complete": true, "elapsed_ns": 1,
                "requested": {}, "effective": { "framing": framing, "interface": interface }, "placement": {}, "warnings": [],
            });
            interrupts_coalesced(&serde_json::from_value(case).unwrap())
        };
        let held = |us: u64, adaptive: bool| serde_json::json!({ "interface": "eth0", "interrupt_delay_us": us, "interrupt_delay_adaptive": adaptive });
        let warning = warned("latency", "stream", held(50, false)).unwrap();
        assert!(warning.text.starts_with("eth0 holds back interrupts for up to 50 µs"), "{}", warning.text);
        assert!(
            warning.remedy.starts_with("ethtool -C eth0 adaptive-rx off rx-usecs 0"),
            "{}",
            warning.remedy
        );
        assert!(warned("throughput", "message", held(0, true)).unwrap().text.contains("adaptive"));
        assert_eq!(warned("throughput", "stream", held(50, true)), None);
        assert_eq!(warned("latency", "message", held(0, false)), None);
        assert_eq!(warned("latency", "message", serde_json::json!({ "interface": "lo" })), None);
    }

    #[test]
    fn long_usb_timers_are_reported() {
        let warned = |milliseconds: Value| {
            let got = Map::from_iter([("usb_latency_timer_ms".to_owned(), milliseconds)]);
            usb_latency_timer(&got).map(|warning| warning.text)
        };
        assert_eq!(warned(1.into()), None);
        assert_eq!(warned(Value::Null), None);
        assert_eq!(
            warned(16.into()).as_deref(),
            Some("the USB adapter holds received bytes back for up to 16 ms")
        );
    }

    /// The warnings of a latency case with these facts, by code and text.
    fn radio_warnings(got: Value) -> Vec<String> {
        let case = serde_json::json!({
            "endpoint": "udp://a", "protocol": "echo", "workload": "latency", "direction": "loop", "message_bytes": 32,
            "ports": 1, "parallel": 1, "method": "latency/1", "complete": true, "elapsed_ns": 1, "requested": {},
            "effective": got, "placement": {}, "warnings": [],
        });
        let case: CaseResult = serde_json::from_value(case).unwrap();
        let found = [
            radio::wifi_power_save(&case),
            radio::wifi_band(&case.effective),
            radio::weak_signal(&case.effective),
        ]
        .into_iter()
        .flatten();
        found.map(|warning| format!("{}: {} ({})", warning.code, warning.text, warning.remedy)).collect()
    }

    #[test]
    fn radio_problems_are_reported() {
        let radio =
            |radio: Value| serde_json::json!({ "interface": { "interface": "wlan0", "radio": radio } });
        let worst = serde_json::json!({
            "power_save": true, "frequency_mhz": 2437, "channel": 6, "signal_dbm": -71, "bluetooth_adapter": true,
        });
        insta::assert_snapshot!(radio_warnings(radio(worst)).join("\n"), @r"
        wifi_power_save: wlan0 sleeps between messages: messages that arrive then wait for the next beacon, 100 ms and more (sudo iw dev wlan0 set power_save off)
        wifi_band_2_4_ghz: wlan0 is on channel 6 at 2.4 GHz, where the Bluetooth adapter of this host and neighbours send as well (use a network at 5 or 6 GHz, or switch Bluetooth off meanwhile: rfkill block bluetooth)
        weak_signal: wlan0 receives -71 dBm: frames are lost and sent again (move the two closer together, away from metal and walls)
        ");
        let good = serde_json::json!({ "power_save": false, "frequency_mhz": 5180, "signal_dbm": -70 });
        assert!(radio_warnings(radio(good)).is_empty() && radio_warnings(serde_json::json!({})).is_empty());
        assert!(radio_warnings(serde_json::json!({ "rssi_db": -10 })).is_empty());
        let weak = radio_warnings(serde_json::json!({ "rssi_db": -11 })).join("");
        assert!(weak.starts_with("weak_signal: the Bluetooth signal is 11 dB below"), "{weak}");
    }
}
