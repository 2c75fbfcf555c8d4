//! The JSON of irtt (`irtt client -o FILE`), format version 1: the times of each round trip, by the clocks of both ends.
//!
//! The file is read round trip by round trip. Latency is the whole round trip, and server time stands beside it, as in a
//! live run; irtt subtracts it (`delay.rtt`). The statistics of the file are computed again, except for the counts that
//! the round trips do not hold.

use std::fmt;
use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::neighbours::RecentTimes;
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error,
    latency_recorder,
};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Warning, WarningCode};
use linkgauge_model::sample::{Recorder, Sample, ServerTimestamps};

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "irtt",
    summary: "results of irtt client -o FILE (.json, .json.gz)",
    flags: &[],
    read,
};

/// Maximum size of a file, in bytes: half a million round trips. The file is not held in memory, but a hostile file may be one
/// long text.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// A hundred years: no clock of a client counts longer.
const MAX_TIME_NS: u64 = 3_200_000_000_000_000_000;

/// Makes the numbers of replies differ from those of requests: irtt counts what it received.
const REPLY_NUMBER_BASE: u32 = 1 << 31;

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut log = RoundTripLog::new();
    let mut bounded = file.take(MAX_FILE_BYTES);
    let mut json = serde_json::Deserializer::from_reader(&mut bounded);
    let document = DocumentSeed(&mut log).deserialize(&mut json);
    let is_cut = bounded.limit() == 0;
    let document = match document {
        Ok(document) => document,
        Err(_) if is_cut => return Err(format_error("longer than 512 MiB: split the measurement")),
        Err(error) if error.is_eof() => {
            let text = "the file is empty or cut off: import the whole file that irtt client -o FILE wrote after its end";
            return Err(format_error(text));
        }
        Err(error) if error.is_io() => return Err(ImportError::Read(error.into())),
        Err(error) => {
            return Err(format_error(format!("not a result of irtt client -o FILE: {error}")));
        }
    };
    if log.requests == 0 {
        return Err(format_error("not a result of irtt client -o FILE: it contains no round trips"));
    }
    let (case, warnings) = log.into_case(&document, about);
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: match document.version.irtt {
            Some(version) => format!("irtt {version}"),
            None => "irtt".to_owned(),
        },
        started: document.stats.start_time.and_then(|text| text.parse::<Timestamp>().ok()),
        elapsed_ns: case.elapsed_ns,
        cases: vec![case],
        warnings,
    }))
}

/// Content of a file besides the round trips.
#[derive(Default)]
struct IrttDocument {
    version: Version,
    config: IrttConfig,
    stats: Stats,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    irtt: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IrttConfig {
    remote_address: Option<String>,
    params: TestParams,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestParams {
    length: u32,
    received_stats: String,
    stamp_at: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stats {
    start_time: Option<String>,
    packets_sent: Option<u64>,
    duplicates: u64,
    late_packets: u64,
}

#[derive(Deserialize)]
struct ListedRoundTrip {
    seqno: u32,
    lost: String,
    timestamps: ListedTimes,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedTimes {
    client: Ends,
    server: Ends,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ends {
    send: ClockReadings,
    receive: ClockReadings,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ClockReadings {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

/// Reads a document, and gives its round trips to a log.
struct DocumentSeed<'a>(&'a mut RoundTripLog);

impl<'de> DeserializeSeed<'de> for DocumentSeed<'_> {
    type Value = IrttDocument;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<IrttDocument, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DocumentSeed<'_> {
    type Value = IrttDocument;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IrttDocument, A::Error> {
        let mut document = IrttDocument::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" => document.version = map.next_value()?,
                "config" => {
                    document.config = map.next_value()?;
                    self.0.counts_received = document.config.params.received_stats != "none";
                    self.0.has_both_times = document.config.params.stamp_at == "both";
                }
                "stats" => document.stats = map.next_value()?,
                "round_trips" => map.next_value_seed(RoundTripsSeed(&mut *self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(document)
    }
}

/// Reads the list of round trips.
struct RoundTripsSeed<'a>(&'a mut RoundTripLog);

impl<'de> DeserializeSeed<'de> for RoundTripsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RoundTripsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of round trips")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(trip) = list.next_element::<ListedRoundTrip>()? {
            let number = trip.seqno;
            if self.0.add(&trip).is_none() {
                return Err(serde::de::Error::custom(format!(
                    "the times of round trip {number} are impossible"
                )));
            }
        }
        Ok(())
    }
}

/// The round trips of a file.
struct RoundTripLog {
    recorder: Recorder,
    recent: RecentTimes,
    /// The server counted what it received, so that it is known where packets were lost.
    counts_received: bool,
    /// The server stamped receipt and sending.
    has_both_times: bool,
    requests: u64,
    /// Requests that have reached the server, or may have.
    received: u32,
    /// The first request: the time of day minus the time of the client.
    offset_ns: Option<i64>,
    first_sent: Time,
    last: Time,
}

impl RoundTripLog {
    fn new() -> RoundTripLog {
        let mut recorder = latency_recorder();
        recorder.expect_server_timestamps();
        RoundTripLog {
            recorder,
            recent: RecentTimes::default(),
            counts_received: false,
            has_both_times: false,
            requests: 0,
            received: 0,
            offset_ns: None,
            first_sent: Time(0),
            last: Time(0),
        }
    }

    /// Adds a round trip. `None`: its times are impossible.
    fn add(&mut self, trip: &ListedRoundTrip) -> Option<()> {
        let ListedTimes { client, server } = &trip.timestamps;
        let is_possible = |ns: &u64| *ns <= MAX_TIME_NS;
        let time = |stamp: ClockReadings| u64::try_from(stamp.monotonic?).ok().filter(is_possible).map(Time);
        let sent = time(client.send)?;
        if self.requests == 0 {
            (self.first_sent, self.last) = (sent, sent);
            self.offset_ns = client.send.wall.map(|wall| wall.wrapping_sub(sent.0 as i64));
            self.recorder.begin(sent);
        }
        self.requests += 1;
        self.recorder.counts.sent += 1;
        self.received += u32::from(trip.lost != "true_up");
        if trip.lost != "false" {
            self.recorder.record_loss(sent);
            return Some(());
        }
        let received = time(client.receive).filter(|received| *received >= sent)?;
        self.last = self.last.max(received);
        let sample = Sample { sequence: trip.seqno.into(), intended: sent, sent, received };
        self.recent.record(&mut self.recorder, sample);
        if let Some(timestamps) = self.server_timestamps(trip.seqno, server) {
            self.recorder.record_server_timestamps(sample, timestamps);
        }
        Some(())
    }

    /// The times of the server, on the time line of the client. Its hold is that of the clock that is never set, if there
    /// is one.
    fn server_timestamps(&self, number: u32, server: &Ends) -> Option<ServerTimestamps> {
        let (received, sent) = (server.receive, server.send);
        let between = |from: Option<i64>, to: Option<i64>| Some(to?.wrapping_sub(from?));
        let hold_ns = between(received.monotonic, sent.monotonic).or(between(received.wall, sent.wall));
        let hold_ns = hold_ns.filter(|_| self.has_both_times)?;
        let of_day = received.wall.zip(self.offset_ns).map(|(wall, offset)| wall.wrapping_sub(offset));
        let received_ns = of_day.or(received.monotonic)?;
        let reply_number = match self.counts_received {
            true => self.received.wrapping_add(REPLY_NUMBER_BASE),
            false => number,
        };
        Some(ServerTimestamps { received_ns, sent_ns: received_ns.wrapping_add(hold_ns), reply_number })
    }

    /// The case, and warnings about the file.
    fn into_case(mut self, document: &IrttDocument, about: &ImportOptions) -> (CaseResult, Vec<Warning>) {
        let counts = &mut self.recorder.counts;
        (counts.duplicate, counts.reordered) = (document.stats.duplicates, document.stats.late_packets);
        self.recorder.finish();
        let mut figures = self.recorder.latency_figures(&about.late_limits);
        let mut warnings = Vec::new();
        if let Some(sent) = document.stats.packets_sent.filter(|sent| *sent != self.requests) {
            figures.counts.forget_losses();
            figures.one_way.iter_mut().for_each(|ways| (ways.forward_lost, ways.reverse_lost) = (None, None));
            let text = format!(
                "irtt counts {sent} packets sent, and the file holds {} round trips, so no loss is known",
                self.requests
            );
            let remedy = "import the whole file that irtt wrote after its end";
            warnings.push(Warning::new(WarningCode::Contradiction, text, remedy));
        }
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        let address = document.config.remote_address.as_ref().filter(|_| about.endpoint.is_none());
        let endpoint = address.map(|address| format!("udp://{address}"));
        case.endpoint = endpoint.filter(|url| url.parse::<Endpoint>().is_ok()).unwrap_or(case.endpoint);
        case.protocol = "irtt".to_owned();
        case.message_bytes = about.message_bytes.unwrap_or(document.config.params.length);
        case.elapsed_ns = self.last.since(self.first_sent).as_nanos() as u64;
        case.series = self.recorder.time_series.entries(case.elapsed_ns);
        (case, warnings)
    }
}

#[cfg(test)]
mod tests;
