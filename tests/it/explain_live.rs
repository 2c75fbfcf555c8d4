//! `explain URL`: causes that the lab plants on purpose are named, and links without a cause are not accused.

use std::time::Duration;

use linkgauge::clock::Clock;
use linkgauge::explain::live::{CauseFinding, Explanation, LiveError, LiveOptions, Verdict, explain_live};
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use linkgauge::lab::uart::{LabUarts, UartOptions};
use linkgauge::link::Dialer;
use linkgauge::report::EXPLANATION_SCHEMA;
use serde_json::Value;

use crate::program::run;

const MS: Duration = Duration::from_millis(1);

/// The explanation of a link to a server with these faults, on the virtual clock.
fn explain(url: &str, faults: Faults) -> Explanation {
    let dialer = Dialer::new(Clock::new_virtual());
    let options =
        TroubleOptions { listen: vec![url.parse().unwrap()], faults, seed: 1, ..TroubleOptions::default() };
    let server = TroubledServer::start(&options, dialer.clone()).unwrap();
    let mut live = LiveOptions::new(url.parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    let explanation = explain_live(&live, &dialer, &|_, _| {}).unwrap();
    drop(server);
    let schema: Value = serde_json::from_str(EXPLANATION_SCHEMA).unwrap();
    let document = serde_json::to_value(&explanation).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    explanation
}

/// A millisecond each way.
const LINK: &str = "mem://trouble?delay=1ms";

/// The causes that take time, in order.
fn found(explanation: &Explanation) -> Vec<&CauseFinding> {
    explanation.causes.iter().filter(|cause| cause.verdict.is_found()).collect()
}

/// The only cause that takes time.
fn only(explanation: &Explanation) -> &CauseFinding {
    let found = found(explanation);
    assert_eq!(found.len(), 1, "{:#?}", explanation.causes);
    found[0]
}

#[test]
fn links_without_a_cause_are_not_accused() {
    for url in [LINK, "mem://trouble?delay=10us&type=message", "mem://trouble?delay=20ms"] {
        let explanation = explain(url, Faults { delay: 100 * MS / 1000, ..Faults::default() });
        assert!(found(&explanation).is_empty(), "{url}: {:#?}", explanation.causes);
        assert_eq!(explanation.unexplained_ns, explanation.median_ns);
        let ruled_out = explanation.causes.iter().filter(|cause| cause.verdict == Verdict::RuledOut);
        assert!(ruled_out.count() >= 1, "{url}: {:#?}", explanation.causes);
    }
}

#[test]
fn clocks_of_the_server_are_seen() {
    for (faults, period, cost_ms) in [
        (Faults { tick: Some(10 * MS), ..Faults::default() }, "10.00 ms", 8.0),
        (Faults { poll: Some(20 * MS), ..Faults::default() }, "20.00 ms", 18.0),
    ] {
        let explanation = explain(LINK, faults);
        let cause = only(&explanation);
        assert_eq!((cause.id, cause.verdict), ("remote_clock", Verdict::Seen));
        assert!(cause.evidence[0].contains(period), "{:?}", cause.evidence);
        // Without a pause each request just misses the previous tick.
        let cost = cause.cost_ns.unwrap() / 1e6;
        assert!((cost / cost_ms - 1.0).abs() < 0.1, "{cost} ms instead of {cost_ms}");
    }
}

#[test]
fn pauses_of_the_server_are_seen_with_their_period() {
    let stall = explain(LINK, Faults { stall: Some((50 * MS, 1000 * MS)), ..Faults::default() });
    let cause = only(&stall);
    assert_eq!((cause.id, cause.verdict), ("periodic_pause", Verdict::Seen));
    assert!(cause.evidence[0].contains("1.000 s"), "{:?}", cause.evidence);
    let random = explain(LINK, Faults { pause: Some((30 * MS, 0.05)), ..Faults::default() });
    let cause = only(&random);
    assert_eq!((cause.id, cause.verdict), ("random_pause", Verdict::Seen));
}

#[test]
fn a_server_that_sleeps_when_idle_is_seen() {
    let explanation = explain(LINK, Faults { after_idle: Some((40 * MS, 5 * MS)), ..Faults::default() });
    assert!(found(&explanation).iter().any(|cause| cause.id == "idle_server"), "{:#?}", explanation.causes);
}

#[test]
fn the_cost_of_each_byte_is_proved_by_sizes() {
    // A byte takes 1 ms each way at 8 kbit/s.
    let explanation = explain("mem://trouble?rate=8kbit/s", Faults::default());
    let cause = only(&explanation);
    assert_eq!((cause.id, cause.verdict), ("serial_line", Verdict::Proved));
    let cost = cause.cost_ns.unwrap() / 1e6;
    assert!((cost / 2.0 - 1.0).abs() < 0.02, "{cost} ms");
    assert!(explanation.unexplained_ns < 0.1e6, "{}", explanation.unexplained_ns);
}

#[test]
fn a_link_that_cannot_be_measured_is_an_error() {
    let dialer = Dialer::new(Clock::new_virtual());
    let live = LiveOptions::new("mem://nowhere".parse().unwrap());
    assert!(matches!(explain_live(&live, &dialer, &|_, _| {}), Err(LiveError::Measurement(_))));
    let too_large = LiveOptions { message_bytes: Some(100_000_000), ..live };
    let too_large = LiveOptions { endpoint: "udp://127.0.0.1:9".parse().unwrap(), ..too_large };
    assert!(matches!(explain_live(&too_large, &dialer, &|_, _| {}), Err(LiveError::InvalidCase(_))));
}

#[test]
fn the_command_explains_a_link() {
    let faults = Faults { tick: Some(20 * MS), ..Faults::default() };
    let options = TroubleOptions {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        faults,
        ..TroubleOptions::default()
    };
    let server = TroubledServer::start(&options, Dialer::new(Clock::System)).unwrap();
    let url = server.endpoints()[0].to_string();
    let ended = run(&["explain", &url, "--protocol", "echo", "--time", "12s", "--json", "-"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let schema: Value = serde_json::from_str(EXPLANATION_SCHEMA).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    let cause = document["causes"].as_array().unwrap().iter().find(|cause| cause["id"] == "remote_clock");
    assert_eq!(cause.unwrap_or_else(|| panic!("{document:#}"))["verdict"], "seen");
}

#[test]
fn a_delayed_acknowledgement_is_proved_by_its_setting() {
    let dialer = Dialer::new(Clock::System);
    let faults = Faults { split_write_bytes: Some(10), ..Faults::default() };
    let listen = vec!["tcp://127.0.0.1:0?nodelay=0".parse().unwrap()];
    let server = TroubledServer::start(
        &TroubleOptions { listen, faults, ..TroubleOptions::default() },
        dialer.clone(),
    )
    .unwrap();
    let port = server.endpoints()[0].host_port().unwrap().1.unwrap();
    let mut live = LiveOptions::new(format!("tcp://127.0.0.1:{port}").parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    live.budget = Duration::from_secs(18);
    let explanation = explain_live(&live, &dialer, &|_, _| {}).unwrap();
    let first = &explanation.causes[0];
    assert_eq!(
        (first.id, first.verdict),
        ("delayed_ack_nagle", Verdict::Proved),
        "{:#?}",
        explanation.causes
    );
}

#[test]
fn a_setting_that_the_link_refuses_cannot_be_tested() {
    // The driver of a pseudo-terminal has no low latency mode.
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let mut live =
        LiveOptions::new(format!("serial://{}?baud=115200", uarts.paths()[0].display()).parse().unwrap());
    live.budget = Duration::from_secs(5);
    let explanation = explain_live(&live, &Dialer::new(Clock::System), &|_, _| {}).unwrap();
    let timer = explanation.causes.iter().find(|cause| cause.id == "usb_latency_timer").unwrap();
    assert!(timer.evidence.iter().any(|text| text.contains("refuses low_latency=1")), "{timer:#?}");
    assert_eq!(timer.verdict, Verdict::CannotTest);
}

#[test]
fn wrong_arguments_get_one_line() {
    for (arguments, line) in [
        (
            &["explain", "loggernet", "--size", "64"][..],
            "error: --size needs a URL to measure, like tcp://192.0.2.7\n",
        ),
        (
            &["explain", "loggernet", "sena"],
            "error: only one run or study can be explained at a time. Name one\n",
        ),
        (
            &["explain", "tcp://127.0.0.1:9", "--time", "0"],
            "error: a time of 0 measures nothing: use a longer --time\n",
        ),
    ] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.stderr.as_str(), ended.stdout.as_str()), (Some(2), line, ""));
    }
}
