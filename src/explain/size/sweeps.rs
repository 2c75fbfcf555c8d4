//! The sweeps that lines are fitted to: times of messages by their size, from a run or from a study's tables.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::{Declared, NotExplained};
use crate::paper::{PublishedSize, Study};
use crate::plan::Direction;
use crate::run::{CaseResult, Run};

/// What a message of one size takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Number of the case in the run, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<usize>,
    pub message_bytes: u32,
    pub time_ns: f64,
}

impl Measured {
    /// Bytes and nanoseconds.
    pub fn point(&self) -> (f64, f64) {
        (f64::from(self.message_bytes), self.time_ns)
    }
}

/// What the line can carry, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    pub line_limit_bps: f64,
    pub line_by: LineBy,
}

/// Who says what the line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineBy {
    /// The user.
    Declared,
    /// The link, or the study.
    Line,
    /// The rate of the interface, as frames of its MTU carry it.
    Interface,
}

/// Cases or published figures that differ in nothing but the size.
#[derive(Debug, Default)]
pub struct Sweep {
    pub group: String,
    pub name: String,
    /// By size.
    pub measured: Vec<Measured>,
    pub limit: Option<Limit>,
    /// Sizes that link and interface told, by name.
    pub told: Vec<(String, u64)>,
}

impl Sweep {
    /// What of the sizes that were told lies there.
    pub fn told_between(&self, (low, high): (f64, f64)) -> Vec<String> {
        let between = self.told.iter().filter(|(_, bytes)| (low..=high).contains(&(*bytes as f64)));
        between.map(|(name, bytes)| format!("{name} {bytes}")).collect()
    }

    /// A document may hold any number of cases; all pairs of them are looked at.
    fn add(&mut self, measured: Measured) {
        if self.measured.len() < MOST_POINTS {
            self.measured.push(measured);
            self.measured.sort_by_key(|measured| measured.message_bytes);
        }
    }
}

/// Times that there can be, in nanoseconds; a document may say anything.
const TIMES_NS: std::ops::RangeInclusive<f64> = 1.0..=1e15;

/// More than anybody sweeps.
const MOST_POINTS: usize = 500;

/// The sweeps of a run.
pub fn measured(run: &Run, declared: &Declared) -> Vec<Sweep> {
    let mut sweeps: Vec<(Like, Sweep)> = Vec::new();
    let rows = run.paper.iter().flat_map(|paper| &paper.tables).flat_map(|table| &table.rows);
    let places: BTreeMap<usize, &str> =
        rows.filter_map(|row| Some((row.case?, place(&row.planned_case)?))).collect();
    for (index, case) in run.cases.iter().enumerate() {
        let Some(time_ns) = time_ns(case).filter(|time| TIMES_NS.contains(time)) else { continue };
        if !case.complete || case.message_bytes == 0 {
            continue;
        }
        let like = Like::of(case, places.get(&(index + 1)).copied());
        let at = sweeps.iter().position(|(other, _)| *other == like).unwrap_or_else(|| {
            let sweep = Sweep {
                group: like.group(),
                name: like.name(),
                limit: limit(case, declared),
                told: told(&case.got),
                ..Sweep::default()
            };
            sweeps.push((like, sweep));
            sweeps.len() - 1
        });
        sweeps[at].1.add(Measured { case: Some(index + 1), message_bytes: case.message_bytes, time_ns });
    }
    sweeps.into_iter().map(|(_, sweep)| sweep).collect()
}

/// The sweeps of a study's tables.
pub fn published(study: &Study, declared: &Declared) -> Result<Vec<Sweep>, NotExplained> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for published in study.published_sizes()? {
        let PublishedSize { table, series, message_bytes, time_ns, is_round_trip, line_bps } = published;
        let like = |sweep: &Sweep| sweep.group == table && sweep.name == series;
        let at = sweeps.iter().position(like).unwrap_or_else(|| {
            let by_study = line_bps.map(|bps| Limit { line_limit_bps: bps, line_by: LineBy::Line });
            sweeps.push(Sweep {
                group: table,
                name: series,
                limit: declared_limit(declared).or(by_study).filter(|_| !is_round_trip),
                ..Sweep::default()
            });
            sweeps.len() - 1
        });
        sweeps[at].add(Measured { case: None, message_bytes, time_ns });
    }
    Ok(sweeps)
}

/// The place of a study's case, without its size: `linx-inter/1` of `throughput:linx-inter/1@64`.
fn place(planned_case: &str) -> Option<&str> {
    planned_case.split_once(':')?.1.split('@').next()
}

/// A round trip, or from one message to the next where they were sent as fast as they went.
fn time_ns(case: &CaseResult) -> Option<f64> {
    let figures = &case.figures;
    match case.workload.as_str() {
        "latency" => {
            let latency = figures.latency_ns.as_ref()?;
            Some(latency.percentile("p50").map_or(latency.mean, |p50| p50 as f64))
        }
        "throughput" => {
            let kind = case.pacing().and_then(|pacing| pacing.get("kind")?.as_str());
            let rate = figures.throughput_bps.filter(|_| kind.is_none_or(|kind| kind == "closed"))?;
            Some(8e9 * f64::from(case.message_bytes) / rate)
        }
        _ => None,
    }
}

/// What cases of one sweep have in common.
#[derive(PartialEq)]
struct Like<'a> {
    /// A study's case without its size, else the endpoint: each case of a study has ports of its own.
    place: &'a str,
    peer: &'a str,
    peer_options: Option<&'a Value>,
    workload: &'a str,
    direction: Direction,
    ports: u32,
    parallel: u32,
    method: &'a str,
    settings: String,
    /// What is under it: links of one place may be of different rates.
    line: [Option<&'a Value>; 2],
    shaped: &'a Map<String, Value>,
}

impl<'a> Like<'a> {
    fn of(case: &'a CaseResult, planned: Option<&'a str>) -> Like<'a> {
        Like {
            place: planned.unwrap_or(&case.endpoint),
            peer: &case.peer,
            peer_options: case.asked.get("peer_options"),
            workload: &case.workload,
            direction: case.direction,
            ports: case.ports,
            parallel: case.parallel,
            method: &case.method,
            settings: case.settings(),
            // Not the whole line: how long a message is on it changes with the size.
            line: ["bits_per_second", "bits_per_byte"].map(|name| case.line.get(name)),
            shaped: &case.shaped,
        }
    }

    fn group(&self) -> String {
        match self.workload {
            "latency" => format!("Latency (round trips), peer {}", self.peer),
            _ => format!("Throughput, peer {}, direction {}", self.peer, self.direction.name()),
        }
    }

    fn name(&self) -> String {
        let count = |count: u32, of: &str| (count > 1).then(|| format!("{count} {of}"));
        let settings = Some(self.settings.clone()).filter(|settings| !settings.is_empty());
        let more = [count(self.ports, "ports"), count(self.parallel, "connections"), settings];
        let parts = std::iter::once(self.place.to_owned()).chain(more.into_iter().flatten());
        parts.collect::<Vec<String>>().join(", ")
    }
}

/// What the line under a case can carry. Round trips pass it twice, or once through a plug: they have none.
fn limit(case: &CaseResult, declared: &Declared) -> Option<Limit> {
    if case.workload == "latency" {
        return None;
    }
    let limit = |line_by| move |line_limit_bps| Limit { line_limit_bps, line_by };
    let shaped = if case.direction == Direction::Receive { "rate_from_bps" } else { "rate_to_bps" };
    let line = case.line.get("limit_bps").or_else(|| case.shaped.get(shaped)).and_then(Value::as_f64);
    declared_limit(declared)
        .or(line.filter(|bps| *bps > 0.0).map(limit(LineBy::Line)))
        .or_else(|| interface_bps(case.got.get("interface")?).map(limit(LineBy::Interface)))
}

fn declared_limit(declared: &Declared) -> Option<Limit> {
    Some(Limit { line_limit_bps: declared.line_bps?, line_by: LineBy::Declared })
}

/// Preamble, header, check sequence and gap of an Ethernet frame (IEEE 802.3).
const AROUND_A_FRAME: f64 = 38.0;

/// What an Ethernet interface carries in full frames, the headers within them counted. The rate of a virtual one is made
/// up, and of a wireless one it is seldom had.
fn interface_bps(interface: &Value) -> Option<f64> {
    let is = |name: &str| interface.get(name).and_then(Value::as_bool) == Some(true);
    let number = |name: &str| interface.get(name).and_then(Value::as_f64).filter(|number| *number > 0.0);
    let is_card = interface.get("kind")? == "ethernet" && interface.get("driver").is_some();
    let (megabits, frame) = (number("speed_mbit")?, number("mtu_bytes")?);
    (is_card && !is("stacked") && !is("wireless")).then(|| megabits * 1e6 * frame / (frame + AROUND_A_FRAME))
}

/// What limits one piece of a message, by the names in `got`.
const SIZES: [&str; 8] = [
    "mss_bytes",
    "mtu_bytes",
    "path_mtu_bytes",
    "fragment_bytes",
    "frame_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "vsock_buffer_bytes",
];

fn told(got: &Map<String, Value>) -> Vec<(String, u64)> {
    let interface = got.get("interface").and_then(Value::as_object);
    let facts = got.iter().chain(interface.into_iter().flatten());
    let sizes = facts.filter(|(name, _)| SIZES.contains(&name.as_str()));
    let mut sizes: Vec<(String, u64)> =
        sizes.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect();
    sizes.sort();
    sizes.dedup();
    sizes
}
