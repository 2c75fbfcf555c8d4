//! Causes planted on the virtual clock, and what `explain_live` finds: the part of the confusion matrix that is exact and
//! needs minutes instead of days. Prints one JSON document a run; `benches/planted.py --virtual` makes the tables.
//!
//! `cargo bench --bench planted -- [RUNS [NAME …]]`
//!
//! Links have random delays, so that no two runs are alike; every number follows from the seed of the run.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::explain::live::{LiveOptions, explain_live};
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use serde_json::json;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// A link with known causes.
#[derive(Clone)]
struct Plant {
    name: &'static str,
    /// What is planted, the most expensive first; empty for a control.
    causes: &'static [&'static str],
    /// What the first cause costs of the median, if that is known.
    cost: Option<Duration>,
    /// Also right on this link.
    accepted: &'static [&'static str],
    url: &'static str,
    faults: Faults,
    message_bytes: Option<u32>,
    budget: Duration,
}

/// Half a millisecond each way, more or less.
const NETWORK: &str = "mem://plant?delay=500us&jitter=100us";
/// Datagrams of a larger network.
const WIDE: &str = "mem://plant?delay=8ms&jitter=1ms&type=message";

fn base() -> Plant {
    Plant {
        name: "",
        causes: &[],
        cost: None,
        accepted: &[],
        url: NETWORK,
        faults: Faults::default(),
        message_bytes: None,
        budget: Duration::from_secs(60),
    }
}

/// A fault of the server, on a network.
fn server(name: &'static str, cause: &'static str, faults: Faults) -> Plant {
    Plant { name, causes: one(cause), faults, ..base() }
}

/// A property of the link.
fn link(name: &'static str, cause: &'static str, url: &'static str) -> Plant {
    Plant { name, causes: one(cause), url, ..base() }
}

fn control(name: &'static str, url: &'static str) -> Plant {
    Plant { name, url, ..base() }
}

fn one(cause: &'static str) -> &'static [&'static str] {
    match cause {
        "remote_clock" => &["remote_clock"],
        "periodic_pause" => &["periodic_pause"],
        "random_pause" => &["random_pause"],
        "idle_server" => &["idle_server"],
        "radio_slot" => &["radio_slot"],
        "wifi_power_save" => &["wifi_power_save"],
        "bluetooth_sniff" => &["bluetooth_sniff"],
        "serial_line" => &["serial_line"],
        other => unreachable!("{other} is not planted here"),
    }
}

fn tick(time: Duration) -> Faults {
    Faults { tick: Some(time), ..Faults::default() }
}

fn poll(time: Duration) -> Faults {
    Faults { poll: Some(time), ..Faults::default() }
}

fn pause(time: Duration, share: f64) -> Faults {
    Faults { pause: Some((time, share)), ..Faults::default() }
}

fn stall(time: Duration, period: Duration) -> Faults {
    Faults { stall: Some((time, period)), ..Faults::default() }
}

fn after_idle(idle: Duration, delay: Duration) -> Faults {
    Faults { after_idle: Some((idle, delay)), ..Faults::default() }
}

fn clocks() -> Vec<Plant> {
    // Without a pause a request waits for the tick after the one that released its predecessor.
    let ticked =
        |name, time: Duration| Plant { cost: Some(time - MS), ..server(name, "remote_clock", tick(time)) };
    let polled =
        |name, time: Duration| Plant { cost: Some(time - MS), ..server(name, "remote_clock", poll(time)) };
    vec![
        ticked("tick-4ms", 4 * MS),
        ticked("tick-10ms", 10 * MS),
        ticked("tick-15.6ms", 15_625 * US),
        ticked("tick-16ms", 16 * MS),
        ticked("tick-30ms", 30 * MS),
        ticked("tick-7.3ms", 7_300 * US),
        polled("poll-5ms", 5 * MS),
        polled("poll-20ms", 20 * MS),
        polled("poll-50ms", 50 * MS),
        Plant { url: WIDE, ..server("poll-100ms-wide", "remote_clock", poll(100 * MS)) },
        Plant { url: WIDE, ..server("tick-20ms-wide", "remote_clock", tick(20 * MS)) },
        link("slot-1.25ms", "radio_slot", "mem://plant?delay=500us&jitter=100us&slot=1.25ms&type=message"),
        link("slot-2.5ms", "radio_slot", "mem://plant?delay=500us&jitter=100us&slot=2.5ms&type=message"),
        link("slot-40ms", "radio_slot", "mem://plant?delay=500us&jitter=100us&slot=40ms&type=message"),
        link("beacon", "wifi_power_save", "mem://plant?delay=500us&jitter=100us&slot=102.4ms&type=message"),
        Plant {
            budget: Duration::from_secs(600),
            ..link(
                "sniff-640ms",
                "bluetooth_sniff",
                "mem://plant?delay=2ms&jitter=1ms&slot=640ms&type=message",
            )
        },
    ]
}

fn other_plants() -> Vec<Plant> {
    let line = |name, url, bytes, cost: Duration| Plant {
        message_bytes: Some(bytes),
        cost: Some(cost),
        ..link(name, "serial_line", url)
    };
    vec![
        server("pause-30ms-1%", "random_pause", pause(30 * MS, 0.01)),
        server("pause-100ms-2%", "random_pause", pause(100 * MS, 0.02)),
        server("pause-20ms-5%", "random_pause", pause(20 * MS, 0.05)),
        Plant { url: WIDE, ..server("pause-200ms-3%-wide", "random_pause", pause(200 * MS, 0.03)) },
        server("stall-50ms-1s", "periodic_pause", stall(50 * MS, 1000 * MS)),
        server("stall-100ms-500ms", "periodic_pause", stall(100 * MS, 500 * MS)),
        server("stall-20ms-200ms", "periodic_pause", stall(20 * MS, 200 * MS)),
        server("idle-40ms-100ms", "idle_server", after_idle(100 * MS, 40 * MS)),
        server("idle-10ms-20ms", "idle_server", after_idle(20 * MS, 10 * MS)),
        server("idle-5ms-50ms", "idle_server", after_idle(50 * MS, 5 * MS)),
        Plant { url: WIDE, ..server("idle-20ms-100ms-wide", "idle_server", after_idle(100 * MS, 20 * MS)) },
        line("line-9600", "mem://plant?type=line&baud=9600", 16, 16_667 * US),
        line("line-1200", "mem://plant?type=line&baud=1200", 4, 33_333 * US),
        line("line-115200", "mem://plant?type=line&baud=115200", 64, 5_556 * US),
        line("rate-64k", "mem://plant?delay=5ms&jitter=500us&rate=64kbit/s", 64, 16 * MS),
        line("rate-1M", "mem://plant?delay=500us&jitter=100us&rate=1Mbit/s", 1000, 16 * MS),
    ]
}

/// Two causes of different families; the more expensive one is the first.
fn pairs() -> Vec<Plant> {
    let both = |name, causes, faults| Plant { name, causes, faults, ..base() };
    let slow = |plant| Plant {
        url: "mem://plant?delay=500us&jitter=100us&rate=64kbit/s",
        message_bytes: Some(64),
        ..plant
    };
    let slotted =
        |plant| Plant { url: "mem://plant?delay=500us&jitter=100us&slot=40ms&type=message", ..plant };
    let clock = |faults| Faults { tick: Some(10 * MS), ..faults };
    let polling = |faults| Faults { poll: Some(20 * MS), ..faults };
    vec![
        both("tick+pause", &["remote_clock", "random_pause"], clock(pause(100 * MS, 0.02))),
        both("tick+stall", &["remote_clock", "periodic_pause"], clock(stall(100 * MS, 1000 * MS))),
        both("tick+idle", &["remote_clock", "idle_server"], clock(after_idle(80 * MS, 20 * MS))),
        both("poll+pause", &["remote_clock", "random_pause"], polling(pause(150 * MS, 0.02))),
        both("poll+stall", &["remote_clock", "periodic_pause"], polling(stall(150 * MS, 1000 * MS))),
        both("poll+idle", &["remote_clock", "idle_server"], polling(after_idle(100 * MS, 40 * MS))),
        both(
            "pause+idle",
            &["random_pause", "idle_server"],
            Faults { after_idle: Some((50 * MS, 5 * MS)), ..pause(100 * MS, 0.02) },
        ),
        both(
            "stall+idle",
            &["periodic_pause", "idle_server"],
            Faults { after_idle: Some((50 * MS, 5 * MS)), ..stall(50 * MS, 500 * MS) },
        ),
        slow(both("line+tick", &["serial_line", "remote_clock"], clock(Faults::default()))),
        slow(both("line+poll", &["serial_line", "remote_clock"], poll(5 * MS))),
        slow(both("line+pause", &["serial_line", "random_pause"], pause(150 * MS, 0.02))),
        slow(both("line+stall", &["serial_line", "periodic_pause"], stall(150 * MS, 1000 * MS))),
        // Larger messages take less than the time after which the server sleeps.
        Plant {
            url: "mem://plant?delay=500us&jitter=100us&rate=1Mbit/s",
            message_bytes: Some(64),
            ..both("line+idle", &["serial_line", "idle_server"], after_idle(80 * MS, 30 * MS))
        },
        slotted(both("slot+pause", &["radio_slot", "random_pause"], pause(300 * MS, 0.02))),
        slotted(both("slot+idle", &["radio_slot", "idle_server"], after_idle(150 * MS, 80 * MS))),
    ]
}

fn controls() -> Vec<Plant> {
    let delayed =
        |name, delay| Plant { faults: Faults { delay, ..Faults::default() }, ..control(name, NETWORK) };
    vec![
        control("control-stream", NETWORK),
        control("control-messages", "mem://plant?delay=500us&jitter=100us&type=message"),
        control("control-constant", "mem://plant?delay=1ms"),
        control("control-fast", "mem://plant?delay=10us&jitter=5us"),
        control("control-wide", WIDE),
        control("control-satellite", "mem://plant?delay=300ms&jitter=5ms&type=message"),
        control("control-wide-stream", "mem://plant?delay=20ms&jitter=20ms"),
        control("control-jitter", "mem://plant?delay=5ms&jitter=5ms&type=message"),
        delayed("control-slow-server", 5 * MS),
        delayed("control-slower-server", 40 * MS),
        control("control-delay-44ms", "mem://plant?delay=22ms&jitter=500us"),
        control("control-delay-10ms", "mem://plant?delay=5ms&jitter=10us"),
        Plant { message_bytes: Some(1400), ..control("control-1400", NETWORK) },
        // The network itself has these rare delays.
        Plant {
            accepted: &["random_pause"],
            ..control("control-spikes", "mem://plant?delay=5ms&jitter=1ms&spike=50ms@1%&type=message")
        },
    ]
}

fn plants() -> Vec<(&'static str, Plant)> {
    let kind = |kind: &'static str, plants: Vec<Plant>| plants.into_iter().map(move |plant| (kind, plant));
    let singles = [clocks(), other_plants()].concat();
    kind("plant", singles).chain(kind("pair", pairs())).chain(kind("control", controls())).collect()
}

/// One run as a JSON document.
fn explain(kind: &str, plant: &Plant, run: u64) -> serde_json::Value {
    let url = format!("{}&seed={}", plant.url, 1_000_003 * (run + 1));
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let listen = vec!["mem://plant".parse().expect("an endpoint")];
    let options = TroubleOptions { listen, faults: plant.faults, seed: run, ..TroubleOptions::default() };
    let server = TroubledServer::start(&options, dialer.clone()).expect("the plant starts");
    let mut live = LiveOptions::new(url.parse().expect("an endpoint"));
    "echo".clone_into(&mut live.protocol);
    (live.message_bytes, live.budget, live.seed) = (plant.message_bytes, plant.budget, run + 1);
    let explanation = explain_live(&live, &dialer, &|_, _| {}).map_err(|error| error.to_string());
    drop(server);
    let (explanation, error) = match explanation {
        Ok(explanation) => (Some(explanation), None),
        Err(error) => (None, Some(error)),
    };
    json!({
        "kind": kind, "plant": plant.name, "causes": plant.causes, "accepted": plant.accepted,
        "cost_ms": plant.cost.map(|cost| cost.as_secs_f64() * 1e3),
        "explanation": explanation, "error": error,
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|text| text != "--bench").collect();
    let runs = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(20);
    let names: Vec<&String> = arguments.iter().filter(|text| text.parse::<u64>().is_err()).collect();
    let is_wanted = |plant: &Plant| names.is_empty() || names.iter().any(|name| plant.name.contains(*name));
    let plants: Vec<_> = plants().into_iter().filter(|(_, plant)| is_wanted(plant)).collect();
    // One run of each at a time, so that what is interrupted is a matrix of fewer runs.
    for run in 0..runs {
        for (kind, plant) in &plants {
            println!("{}", explain(kind, plant, run));
        }
    }
}
