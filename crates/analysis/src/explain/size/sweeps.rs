//! The sweeps that lines are fitted to: message times by size, from a run or from a study's tables.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::{DeclaredFacts, ExplainError};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Run, Shaping};
use linkgauge_studies::study::{PublishedTime, Study};

/// The time of a message of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SizeSample {
    /// Index of the case in the run, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) case: Option<usize>,
    /// Payload bytes of the message.
    pub message_bytes: u32,
    /// The median round trip, or the interval between messages at full speed.
    pub time_ns: f64,
}

impl SizeSample {
    /// Bytes and nanoseconds.
    pub(crate) fn as_point(&self) -> (f64, f64) {
        (f64::from(self.message_bytes), self.time_ns)
    }
}

/// The link rate and its source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LineLimit {
    /// Maximum payload rate of the link.
    pub(crate) line_limit_bps: f64,
    /// Source of the link rate.
    pub(crate) line_by: LineSource,
}

/// The source of the link rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineSource {
    /// The user.
    Declared,
    /// The link, or the study.
    Line,
    /// The interface rate, reduced by the overhead of frames of its MTU.
    Interface,
}

/// Cases or published figures that differ only in size.
#[derive(Debug, Default)]
pub(crate) struct SizeSweep {
    /// The table or the workload.
    pub(crate) group: String,
    /// The sweep of the group.
    pub name: String,
    /// Samples by size.
    pub(crate) samples: Vec<SizeSample>,
    /// The link rate, if it is known.
    pub(crate) line_limit: Option<LineLimit>,
    /// Named sizes that link and interface reported.
    pub(crate) reported_sizes: Vec<(String, u64)>,
}

impl SizeSweep {
    /// The reported sizes in this range.
    pub(crate) fn reported_sizes_between(&self, (low, high): (f64, f64)) -> Vec<String> {
        let between = self.reported_sizes.iter().filter(|(_, bytes)| (low..=high).contains(&(*bytes as f64)));
        between.map(|(name, bytes)| format!("{name} {bytes}")).collect()
    }

    /// Limits the samples, because a document may have any number of cases and all pairs are compared.
    pub fn push(&mut self, measured: SizeSample) {
        if self.samples.len() < MAX_SWEEP_SAMPLES {
            self.samples.push(measured);
            self.samples.sort_by_key(|measured| measured.message_bytes);
        }
    }
}

/// Plausible times in nanoseconds. A document may contain anything.
const PLAUSIBLE_TIMES_NS: std::ops::RangeInclusive<f64> = 1.0..=1e15;

/// Maximum number of samples of a sweep; no real sweep has more.
const MAX_SWEEP_SAMPLES: usize = 500;

/// The sweeps of a run.
pub(crate) fn sweeps_of_run(run: &Run, declared: &DeclaredFacts) -> Vec<SizeSweep> {
    let mut sweeps: Vec<(SweepKey, SizeSweep)> = Vec::new();
    let rows = run.study.iter().flat_map(|paper| &paper.tables).flat_map(|table| &table.rows);
    let places: BTreeMap<usize, &str> =
        rows.filter_map(|row| Some((row.case?, case_place(&row.planned_case)?))).collect();
    for (index, case) in run.cases.iter().enumerate() {
        let Some(time_ns) = message_time_ns(case).filter(|time| PLAUSIBLE_TIMES_NS.contains(time)) else {
            continue;
        };
        if !case.complete || case.message_bytes == 0 {
            continue;
        }
        let like = SweepKey::from_case(case, places.get(&(index + 1)).copied());
        let at = sweeps.iter().position(|(other, _)| *other == like).unwrap_or_else(|| {
            let sweep = SizeSweep {
                group: like.group_title(),
                name: like.series_name(),
                line_limit: line_limit(case, declared),
                reported_sizes: reported_sizes(&case.effective),
                ..SizeSweep::default()
            };
            sweeps.push((like, sweep));
            sweeps.len() - 1
        });
        sweeps[at].1.push(SizeSample { case: Some(index + 1), message_bytes: case.message_bytes, time_ns });
    }
    sweeps.into_iter().map(|(_, sweep)| sweep).collect()
}

/// The sweeps of a study's tables.
pub(crate) fn sweeps_of_study(
    study: &Study,
    declared: &DeclaredFacts,
) -> Result<Vec<SizeSweep>, ExplainError> {
    let mut sweeps: Vec<SizeSweep> = Vec::new();
    for published in study.published_sizes()? {
        let PublishedTime { table, series, message_bytes, time_ns, is_round_trip, line_bps } = published;
        let like = |sweep: &SizeSweep| sweep.group == table && sweep.name == series;
        let at = sweeps.iter().position(like).unwrap_or_else(|| {
            let by_study = line_bps.map(|bps| LineLimit { line_limit_bps: bps, line_by: LineSource::Line });
            sweeps.push(SizeSweep {
                group: table,
                name: series,
                line_limit: declared_line_limit(declared).or(by_study).filter(|_| !is_round_trip),
                ..SizeSweep::default()
            });
            sweeps.len() - 1
        });
        sweeps[at].push(SizeSample { case: None, message_bytes, time_ns });
    }
    Ok(sweeps)
}

/// The name of a study's case without its size: `linx-inter/1` of `throughput:linx-inter/1@64`.
fn case_place(planned_case: &str) -> Option<&str> {
    planned_case.split_once(':')?.1.split('@').next()
}

/// A round trip, or the interval between messages at full speed.
fn message_time_ns(case: &CaseResult) -> Option<f64> {
    let figures = &case.figures;
    match case.workload.as_str() {
        "latency" => {
            let latency = figures.times.latency_ns.as_ref()?;
            Some(latency.percentile("p50").map_or(latency.mean, |p50| p50 as f64))
        }
        "throughput" => {
            let kind = case.pacing().and_then(|pacing| pacing.get("kind")?.as_str());
            let rate =
                figures.delivery.throughput_bps.filter(|_| kind.is_none_or(|kind| kind == "closed"))?;
            Some(8e9 * f64::from(case.message_bytes) / rate)
        }
        _ => None,
    }
}

/// Properties that the cases of a sweep share.
#[derive(PartialEq)]
struct SweepKey<'a> {
    /// A study's case without its size, else the endpoint, because each case of a study has its own ports.
    place: &'a str,
    protocol: &'a str,
    protocol_options: Option<&'a Value>,
    workload: &'a str,
    direction: Direction,
    ports: u32,
    parallel: u32,
    method: &'a str,
    settings: String,
    /// The line: links of one place may have different rates.
    line: Option<[f64; 2]>,
    shaping: Option<Shaping>,
}

impl<'a> SweepKey<'a> {
    fn from_case(case: &'a CaseResult, planned: Option<&'a str>) -> SweepKey<'a> {
        SweepKey {
            place: planned.unwrap_or(&case.endpoint),
            protocol: &case.protocol,
            protocol_options: case.requested.get("protocol_options"),
            workload: &case.workload,
            direction: case.direction,
            ports: case.ports,
            parallel: case.parallel,
            method: &case.method,
            settings: case.settings_label(),
            // Not all line facts: the time of a message on the line depends on its size.
            line: case.line.map(|line| [line.bits_per_second, line.bits_per_byte]),
            shaping: case.shaped,
        }
    }

    fn group_title(&self) -> String {
        match self.workload {
            "latency" => format!("Latency (round trips), protocol {}", self.protocol),
            _ => format!("Throughput, protocol {}, direction {}", self.protocol, self.direction.name()),
        }
    }

    fn series_name(&self) -> String {
        let count = |count: u32, of: &str| (count > 1).then(|| format!("{count} {of}"));
        let settings = Some(self.settings.clone()).filter(|settings| !settings.is_empty());
        let more = [count(self.ports, "ports"), count(self.parallel, "connections"), settings];
        let parts = std::iter::once(self.place.to_owned()).chain(more.into_iter().flatten());
        parts.collect::<Vec<String>>().join(", ")
    }
}

/// The link rate of a case. Round trips cross the link twice, or once through a plug, so they have none.
fn line_limit(case: &CaseResult, declared: &DeclaredFacts) -> Option<LineLimit> {
    if case.workload == "latency" {
        return None;
    }
    let limit = |line_by| move |line_limit_bps| LineLimit { line_limit_bps, line_by };
    let shaped = case.shaped.map(|shaped| match case.direction {
        Direction::Receive => shaped.rate_from_bps,
        Direction::Loop | Direction::Send | Direction::Both => shaped.rate_to_bps,
    });
    let line = case.line.and_then(|line| line.max_payload_bps).or(shaped);
    declared_line_limit(declared)
        .or(line.filter(|bps| *bps > 0.0).map(limit(LineSource::Line)))
        .or_else(|| interface_bps(case.effective.get("interface")?).map(limit(LineSource::Interface)))
}

fn declared_line_limit(declared: &DeclaredFacts) -> Option<LineLimit> {
    Some(LineLimit { line_limit_bps: declared.line_bps?, line_by: LineSource::Declared })
}

/// Preamble, header, check sequence and interframe gap of an Ethernet frame (IEEE 802.3), in bytes.
const ETHERNET_FRAME_OVERHEAD_BYTES: f64 = 38.0;

/// Rate of an Ethernet interface in full frames, including the headers inside them. The rate of a virtual interface is
/// fictitious, and a wireless one rarely reaches its own.
fn interface_bps(interface: &Value) -> Option<f64> {
    let is = |name: &str| interface.get(name).and_then(Value::as_bool) == Some(true);
    let number = |name: &str| interface.get(name).and_then(Value::as_f64).filter(|number| *number > 0.0);
    let is_card = interface.get("kind")? == "ethernet" && interface.get("driver").is_some();
    let (megabits, frame) = (number("speed_mbit")?, number("mtu_bytes")?);
    (is_card && !is("stacked") && !is("wireless"))
        .then(|| megabits * 1e6 * frame / (frame + ETHERNET_FRAME_OVERHEAD_BYTES))
}

/// Limits on the size of a message or segment, by their names in `effective`.
const SIZE_FACTS: [&str; 8] = [
    "mss_bytes",
    "mtu_bytes",
    "path_mtu_bytes",
    "fragment_bytes",
    "frame_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "vsock_buffer_bytes",
];

fn reported_sizes(effective: &Map<String, Value>) -> Vec<(String, u64)> {
    let interface = effective.get("interface").and_then(Value::as_object);
    let facts = effective.iter().chain(interface.into_iter().flatten());
    let sizes = facts.filter(|(name, _)| SIZE_FACTS.contains(&name.as_str()));
    let mut sizes: Vec<(String, u64)> =
        sizes.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect();
    sizes.sort();
    sizes.dedup();
    sizes
}
