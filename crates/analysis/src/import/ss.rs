//! The output of `ss -ti`, once or repeated: the TCP connections of a host. Each connection makes a case with the readings of the
//! system's counters. Lines with a time of day between the outputs (`date +%s.%N`, `date --iso-8601=ns`) give the readings their times.

use std::collections::BTreeMap;
use std::io::BufRead;

use jiff::Timestamp;

use super::by_name::ByName;
use super::line_reader::{LineReader, unfinished_line};
use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    ConnectionEvidence, ConnectionReading, EndEvidence, Evidence, Figures, Gauge, thin,
};

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "ss",
    summary: "output of ss -ti, repeated: round trips, windows and retransmissions of each TCP connection",
    flags: &[],
    read,
};

const MAX_LINE_BYTES: u64 = 1 << 16;
/// Maximum number of readings of one connection, so that a file of any length needs little memory.
const MAX_READINGS: usize = 100_000;
/// A day, and the largest number that counts.
const MAX_SECONDS: f64 = 86_400.0;
const MAX_NUMBER: f64 = 1e15;

/// Gauges with a name before a colon: name of ss, name here, and factor to its unit.
const GAUGES: [(&str, &str, f64); 10] = [
    ("rto", "tcp_retransmission_timeout_ns", 1e6),
    ("ato", "tcp_delayed_ack_timeout_ns", 1e6),
    ("mss", "tcp_segment_bytes", 1.0),
    ("pmtu", "tcp_path_mtu_bytes", 1.0),
    ("cwnd", "tcp_congestion_window_segments", 1.0),
    ("unacked", "tcp_unacknowledged_segments", 1.0),
    ("lost", "tcp_lost_segments", 1.0),
    ("notsent", "tcp_unsent_bytes", 1.0),
    ("minrtt", "tcp_min_rtt_ns", 1e6),
    ("snd_wnd", "tcp_send_window_bytes", 1.0),
];

/// Counters, in the same way.
const COUNTERS: [(&str, &str, f64); 8] = [
    ("bytes_sent", "tcp_sent_bytes", 1.0),
    ("bytes_acked", "tcp_acknowledged_bytes", 1.0),
    ("bytes_received", "tcp_received_bytes", 1.0),
    ("bytes_retrans", "tcp_retransmitted_bytes", 1.0),
    ("segs_out", "tcp_sent_segments", 1.0),
    ("segs_in", "tcp_received_segments", 1.0),
    ("data_segs_out", "tcp_sent_data_segments", 1.0),
    ("delivered", "tcp_delivered_segments", 1.0),
];

/// Counter of the retransmissions, which ss writes behind a slash.
const RETRANSMITTED: &str = "tcp_retransmitted_segments";
/// Gauge of the round trip, which has its deviation behind a slash.
const ROUND_TRIP: &str = "tcp_rtt_ns";
/// Gauges of the rates, which have their value behind a space.
const RATES: [(&str, &str); 2] = [("delivery_rate", DELIVERY_RATE), ("pacing_rate", "tcp_pacing_rate_bps")];
const DELIVERY_RATE: &str = "tcp_delivery_rate_bps";

/// Values of a connection by their names here.
type Values = BTreeMap<&'static str, u64>;

/// One output about a connection.
struct SocketReading {
    at: Option<Timestamp>,
    gauges: Values,
    counters: Values,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut connections: ByName<Vec<SocketReading>> = ByName::new();
    let (mut at, mut first_at, mut open, mut warnings) = (None, None, None::<String>, Vec::new());
    while let Some(line) = lines.next_lossy_line()? {
        let (line, is_indented) = (line.trim().to_owned(), line.starts_with([' ', '\t']));
        if let Some(time) = time_of_line(&line) {
            at = Some(time);
            first_at = first_at.or(at);
            continue;
        }
        let (name, values) = match is_indented {
            true => (open.take(), line.as_str()),
            false => connection_of_line(&line).map_or((None, ""), |(name, rest)| (Some(name), rest)),
        };
        let Some(name) = name else { continue };
        let Some(reading) = parse_values(values, at) else {
            open = Some(name);
            continue;
        };
        if lines.is_unfinished() {
            // A number may be cut off.
            warnings.push(unfinished_line());
            continue;
        }
        let readings = connections.entry(&name, Vec::new)?;
        if readings.len() == MAX_READINGS {
            return Err(lines.error(format!("more than {MAX_READINGS} outputs about {name}: split the file")));
        }
        readings.push(reading);
    }
    if connections.is_empty() {
        return Err(format_error(
            "not the output of ss -ti: no line of a connection has values like 'rtt:0.5/0.25 cwnd:10' behind it",
        ));
    }
    let cases =
        connections.into_values().into_iter().map(|(name, readings)| case_of(&name, &readings, about));
    let cases: Vec<_> = cases.collect();
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "ss".to_owned(),
        started: first_at,
        elapsed_ns: cases.iter().map(|case| case.elapsed_ns).max().unwrap_or(0),
        cases,
        warnings,
    }))
}

/// The time of day that is a whole line: seconds since 1970, or a date with its time zone.
fn time_of_line(line: &str) -> Option<Timestamp> {
    if let Ok(time) = line.parse() {
        return Some(time);
    }
    let (whole, fraction) = line.split_once('.').unwrap_or((line, ""));
    let is_number = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let whole: i64 = whole
        .parse()
        .ok()
        .filter(|seconds| is_number && (1_000_000_000..=99_999_999_999).contains(seconds))?;
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Timestamp::new(whole, nanoseconds).ok()
}

/// Both addresses of a connection, as `192.0.2.1:5 192.0.2.2:80`, and what follows them (`ss -O`).
fn connection_of_line(line: &str) -> Option<(String, &str)> {
    let mut rest = line;
    let mut next = || {
        rest = rest.trim_start();
        let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let first = next()?;
    // The kind of the socket may stand in front of its state, in lower case.
    let state = if first.bytes().all(|letter| letter.is_ascii_lowercase()) { next()? } else { first };
    let is_state = state.contains('-') || state.chars().all(|letter| letter.is_ascii_uppercase());
    let (queued, unsent) = (next()?, next()?);
    let has_counts = [queued, unsent].iter().all(|count| count.parse::<u64>().is_ok());
    let (local, remote) = (next()?, next()?);
    let are_addresses = [local, remote].iter().all(|address| address.contains(':'));
    (is_state && has_counts && are_addresses).then(|| (format!("{local} {remote}"), rest))
}

/// A number with a unit that ss may append, as `10Mbps`, `5ms`.
fn number(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..digits].parse().ok()?;
    let factor = match &text[digits..] {
        "Gbps" => 1e9,
        "Mbps" => 1e6,
        "Kbps" => 1e3,
        "" | "bps" | "ms" => 1.0,
        _ => return None,
    };
    Some(value * factor)
}

/// The values of a connection; `None` if there are none.
fn parse_values(text: &str, at: Option<Timestamp>) -> Option<SocketReading> {
    let mut reading = SocketReading { at, gauges: Values::new(), counters: Values::new() };
    let set = |values: &mut Values, name: &'static str, value: f64| {
        if (0.0..MAX_NUMBER).contains(&value) {
            values.insert(name, value.round() as u64);
        }
    };
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if let Some((_, name)) = RATES.iter().find(|(rate, _)| *rate == word) {
            if let Some(rate) = words.peek().and_then(|rate| number(rate)) {
                set(&mut reading.gauges, name, rate);
            }
            continue;
        }
        let Some((key, value)) = word.split_once(':') else { continue };
        match key {
            "rtt" => {
                let mut times = value.split('/').map(number);
                let time = times.next().flatten().filter(|ms| *ms < MAX_SECONDS * 1e3);
                if let Some(time) = time {
                    set(&mut reading.gauges, ROUND_TRIP, time * 1e6);
                }
                if let Some(Some(deviation)) = times.next() {
                    set(&mut reading.gauges, "tcp_rtt_deviation_ns", deviation * 1e6);
                }
            }
            "retrans" => {
                if let Some(all) = value.split_once('/').and_then(|(_, all)| number(all)) {
                    set(&mut reading.counters, RETRANSMITTED, all);
                }
            }
            _ => {
                let Some(value) = number(value) else { continue };
                let of = |list: &[(&str, &'static str, f64)]| {
                    let entry = list.iter().find(|(name, ..)| *name == key)?;
                    Some((entry.1, value * entry.2))
                };
                if let Some((name, value)) = of(&GAUGES) {
                    set(&mut reading.gauges, name, value);
                } else if let Some((name, value)) = of(&COUNTERS) {
                    set(&mut reading.counters, name, value);
                }
            }
        }
    }
    reading.gauges.contains_key(ROUND_TRIP).then_some(reading)
}

/// The case of a connection.
fn case_of(
    name: &str,
    readings: &[SocketReading],
    about: &ImportOptions,
) -> linkgauge_model::run::CaseResult {
    let mut figures = Figures::default();
    figures.counts.forget_losses();
    let mut case = base_case(about, &FORMAT, "throughput", Direction::Send, figures);
    let (local, remote) = name.split_once(' ').unwrap_or((name, name));
    if about.endpoint.is_none() {
        case.endpoint = format!("tcp://{}", remote.replace('%', "%25"));
    }
    case.effective.insert("local".to_owned(), local.into());
    case.effective.insert("readings".to_owned(), readings.len().into());
    let times: Option<Vec<Timestamp>> = readings.iter().map(|reading| reading.at).collect();
    let times = times.filter(|times| times.is_sorted()).unwrap_or_default();
    let since = |time: &Timestamp| time.duration_since(times[0]).as_nanos() as u64;
    case.elapsed_ns = times.last().map_or(0, since);
    let connections = ConnectionEvidence {
        count: 1,
        counters: change_of_counters(readings),
        gauges: gauges_of(readings),
        series: series_of(readings, &times.iter().map(since).collect::<Vec<u64>>()),
    };
    let client = EndEvidence { connections, observed_ns: case.elapsed_ns, ..EndEvidence::default() };
    case.evidence = Some(Evidence { client, ..Evidence::default() });
    case
}

/// The change of each counter from the first output to the last one; of one output, the counts since the connection was opened. ss leaves
/// out retransmissions while there is none.
fn change_of_counters(readings: &[SocketReading]) -> BTreeMap<String, u64> {
    let Some((first, last)) = readings.first().zip(readings.last()) else { return BTreeMap::new() };
    let is_one = readings.len() == 1;
    let before = |name: &str| if is_one { 0 } else { first.counters.get(name).copied().unwrap_or(0) };
    let change = |(name, value): (&&str, &u64)| ((*name).to_owned(), value.saturating_sub(before(name)));
    let mut all: BTreeMap<String, u64> = last.counters.iter().map(change).collect();
    all.entry(RETRANSMITTED.to_owned()).or_default();
    all
}

fn gauges_of(readings: &[SocketReading]) -> BTreeMap<String, Gauge> {
    let mut values = BTreeMap::<&str, Vec<u64>>::new();
    for (name, value) in readings.iter().flat_map(|reading| &reading.gauges) {
        values.entry(name).or_default().push(*value);
    }
    values.into_iter().filter_map(|(name, values)| Some((name.to_owned(), Gauge::of(&values)?))).collect()
}

/// The readings over time, at most as many as a run holds.
fn series_of(readings: &[SocketReading], times: &[u64]) -> Vec<ConnectionReading> {
    let gauge = |reading: &SocketReading, name: &str| reading.gauges.get(name).copied();
    let one = |(at_ns, reading): (&u64, &SocketReading)| ConnectionReading {
        at_ns: *at_ns,
        rtt_ns: gauge(reading, ROUND_TRIP).unwrap_or(0),
        congestion_window_segments: gauge(reading, "tcp_congestion_window_segments").unwrap_or(0),
        retransmitted_segments: reading.counters.get(RETRANSMITTED).copied().unwrap_or(0),
        delivery_rate_bps: gauge(reading, DELIVERY_RATE),
    };
    let mut series = times.iter().zip(readings).map(one).collect();
    thin(&mut series);
    series
}

#[cfg(test)]
mod tests;
