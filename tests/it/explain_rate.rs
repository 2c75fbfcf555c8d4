//! `explain URL --workload throughput`: limits that are set on purpose are named and proved, and the free link is not accused.

use std::sync::Arc;
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::explain::live::rate::{RateExplanation, RateFinding, TransferOptions, explain_rate};
use linkgauge::explain::live::{CauseVerdict, LiveError, LiveOptions};
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use linkgauge::link::Dialer;
use linkgauge::link::shaped::{PolicedRate, Shape};
use linkgauge::plan::Direction;
use linkgauge::protocol::{ServerConfig, ServerLimits};
use linkgauge::report::RATE_EXPLANATION_SCHEMA;
use linkgauge::serve::Server;
use linkgauge::units::{BitRate, RateTarget};
use serde_json::Value;

use crate::program::run;

/// A server of this protocol.
fn serve(protocol: &str, url: &str, dialer: &Dialer) -> Server {
    let config = ServerConfig { secret: [9; 32], ..ServerConfig::default() };
    let service = Registry::standard().protocol(protocol).unwrap().serve.unwrap()(&Arc::new(config));
    Server::start(&[url.parse().unwrap()], &service, &ServerLimits::DEFAULT, dialer).unwrap()
}

fn explain(url: &str, protocol: &str, seconds: u64, dialer: &Dialer) -> RateExplanation {
    explain_upload(url, protocol, seconds, None, dialer)
}

fn explain_upload(
    url: &str,
    protocol: &str,
    seconds: u64,
    bits_per_second: Option<f64>,
    dialer: &Dialer,
) -> RateExplanation {
    let mut live = LiveOptions::new(url.parse().unwrap());
    protocol.clone_into(&mut live.protocol);
    live.budget = Duration::from_secs(seconds);
    let bit_rate = bits_per_second.map(|rate| RateTarget::Fixed(BitRate(rate)));
    let transfer = TransferOptions { direction: Some(Direction::Send), bit_rate };
    let explanation = explain_rate(&live, &transfer, dialer, &|_, _| {}).unwrap();
    let schema: Value = serde_json::from_str(RATE_EXPLANATION_SCHEMA).unwrap();
    let document = serde_json::to_value(&explanation).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    explanation
}

/// The explanation of an upload to a linkgauge server in memory, on the virtual clock.
fn in_memory(url: &str) -> RateExplanation {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let _server = serve("linkgauge", url, &dialer);
    explain(url, "linkgauge", 20, &dialer)
}

fn cause<'a>(explanation: &'a RateExplanation, id: &str) -> &'a RateFinding {
    let found = explanation.causes.iter().find(|finding| finding.id == id);
    found.unwrap_or_else(|| panic!("{id}: {:#?}", explanation.causes))
}

#[test]
fn a_window_is_proved_by_twice_the_buffer() {
    // 64 KiB for each 10 ms.
    let explanation = in_memory("mem://window?delay=10ms&buffer=64Ki");
    assert!((explanation.throughput_bps / 52.4e6 - 1.0).abs() < 0.1, "{}", explanation.throughput_bps);
    let window = &explanation.causes[0];
    assert_eq!(
        (window.id, window.verdict),
        ("send_buffer", CauseVerdict::Proved),
        "{:#?}",
        explanation.causes
    );
    assert!(explanation.pairs >= 6);
    let gain = window.effect.gain.unwrap();
    assert!((gain / 2.0 - 1.0).abs() < 0.1, "{gain}");
    assert_eq!(cause(&explanation, "message_cost").verdict, CauseVerdict::RuledOut);
    let changed = explanation.changed.unwrap();
    assert!((changed.throughput_bps / 104.8e6 - 1.0).abs() < 0.1, "{changed:?}");
}

#[test]
fn a_rate_is_not_called_a_window() {
    let explanation = in_memory("mem://rate?delay=1ms&rate=50Mbit/s");
    assert_eq!(
        cause(&explanation, "send_buffer").verdict,
        CauseVerdict::RuledOut,
        "{:#?}",
        explanation.causes
    );
    assert_eq!(cause(&explanation, "message_cost").verdict, CauseVerdict::RuledOut);
    // Each connection in memory has a line of its own.
    let limit = cause(&explanation, "link_rate_reached");
    assert_eq!(limit.verdict, CauseVerdict::Counted, "{limit:#?}");
}

#[test]
#[ignore = "long"]
fn the_receive_buffer_of_the_server_is_doubled() {
    let dialer = Registry::standard().dialer(Clock::System);
    let server = serve("linkgauge", "tcp://127.0.0.1:0?rcvbuf=4Ki", &dialer);
    let port = server.endpoints()[0].host_port().unwrap().1.unwrap();
    let explanation = explain(&format!("tcp://127.0.0.1:{port}"), "linkgauge", 25, &dialer);
    // Without a delay and with other programs on the CPUs the rate does not follow the window alone.
    let window = cause(&explanation, "receive_window");
    let possible = [CauseVerdict::Proved, CauseVerdict::Counted, CauseVerdict::NotShown];
    assert!(possible.contains(&window.verdict), "{:#?}", explanation.causes);
    assert!(
        (window.effect.factor.unwrap() - 2.0).abs() < 0.1 && window.effect.pairs_bps.len() >= 6,
        "{window:#?}"
    );
}

#[test]
fn a_program_that_reads_slowly_is_no_small_buffer() {
    let dialer = Registry::standard().dialer(Clock::System);
    let options = TroubleOptions {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        faults: Faults { read_bps: Some(80e6), never_replies: true, ..Faults::default() },
        ..TroubleOptions::default()
    };
    let server = TroubledServer::start(&options, dialer.clone()).unwrap();
    let explanation = explain(&server.endpoints()[0].to_string(), "discard", 12, &dialer);
    let reader = &explanation.causes[0];
    assert_eq!(reader.verdict, CauseVerdict::Counted, "{:#?}", explanation.causes);
    // With other programs on the CPUs the window is seldom read while it is closed. `counters/tests.rs` has the exact cases.
    assert!(["slow_reader", "receive_window"].contains(&reader.id), "{:#?}", explanation.causes);
}

#[test]
fn a_late_start_of_the_first_transfer_prevents_no_test() {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let (stall, once) = (Duration::from_secs(4), Duration::from_hours(1));
    let options = TroubleOptions {
        listen: vec!["mem://late".parse().unwrap()],
        faults: Faults { stall: Some((stall, once)), never_replies: true, ..Faults::default() },
        ..TroubleOptions::default()
    };
    let server = TroubledServer::start(&options, dialer.clone()).unwrap();
    let url = server.endpoints()[0].to_string();
    let explanation = explain_upload(&url, "discard", 25, Some(1e6), &dialer);
    assert!(explanation.pairs >= 6, "{:#?}", explanation.causes);
    assert_eq!(cause(&explanation, "send_buffer").verdict, CauseVerdict::RuledOut);
}

#[test]
#[ignore = "long"]
fn a_pacing_rate_is_proved_by_its_absence() {
    let dialer = Registry::standard().dialer(Clock::System);
    let server = serve("linkgauge", "tcp://127.0.0.1:0", &dialer);
    let url = server.endpoints()[0].with_option("pacing_rate", "100Mbit/s").unwrap().to_string();
    let explanation = explain(&url, "linkgauge", 20, &dialer);
    let pacing = cause(&explanation, "requested_pacing");
    assert_eq!(pacing.verdict, CauseVerdict::Proved, "{:#?}", explanation.causes);
    assert!(pacing.effect.gain.unwrap() > 1.5, "{pacing:#?}");
}

#[test]
#[ignore = "long"]
fn a_policer_is_proved_by_less_load() {
    let dialer = Registry::standard().dialer(Clock::System);
    let server = serve("linkgauge", "udp://127.0.0.1:0", &dialer);
    let police = Some(PolicedRate { bits_per_second: 4e6, burst_bytes: 20_000 });
    let options = ShaperOptions {
        listen: "udp://127.0.0.1:0".parse().unwrap(),
        to: server.endpoints()[0].clone(),
        up: Shape { police, ..Shape::NONE },
        down: Shape::NONE,
        seed: 1,
        log: None,
    };
    let shaper = Shaper::start(&options, &dialer).unwrap();
    let url = shaper.endpoint().to_string();
    let explanation = explain_upload(&url, "linkgauge", 25, Some(8e6), &dialer);
    let policer = &explanation.causes[0];
    assert_eq!(
        (policer.id, policer.verdict),
        ("policed_rate", CauseVerdict::Proved),
        "{:#?}",
        explanation.causes
    );
    assert!((explanation.throughput_bps / 4e6 - 1.0).abs() < 0.2, "{}", explanation.throughput_bps);
}

#[test]
#[ignore = "long"]
fn the_command_explains_a_rate() {
    let dialer = Registry::standard().dialer(Clock::System);
    let server = serve("linkgauge", "tcp://127.0.0.1:0", &dialer);
    let url = server.endpoints()[0].to_string();
    let ended =
        run(&["explain", &url, "--workload", "throughput", "-d", "download", "--time", "8s", "--json", "-"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let schema: Value = serde_json::from_str(RATE_EXPLANATION_SCHEMA).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    assert_eq!(document["direction"], "receive");
    assert!(document["observations"].as_array().is_some_and(|all| !all.is_empty()), "{document:#}");
}

#[test]
fn transfers_that_cannot_be_explained_are_errors() {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let nowhere = LiveOptions::new("mem://nowhere".parse().unwrap());
    let failed = explain_rate(&nowhere, &TransferOptions::default(), &dialer, &|_, _| {});
    assert!(matches!(failed, Err(LiveError::Measurement(_))), "{failed:?}");
    for (arguments, line) in [
        (
            &["explain", "loggernet", "--workload", "throughput"][..],
            "error: --workload needs a URL to measure, like tcp://192.0.2.7\n",
        ),
        (
            &["explain", "tcp://127.0.0.1:9", "--direction", "both"],
            "error: one direction can be explained at a time. Use --direction upload or download\n",
        ),
        (
            &["explain", "tcp://127.0.0.1:9", "-d", "download", "--html", "-", "--json", "-"],
            "error: --json - and --html - cannot share standard output: use a file for one of them\n",
        ),
        (
            &["explain", "serial:///dev/ttyS99", "-d", "upload", "--allow-change", "rx_trig_bytes=1"],
            "error: --allow-change is tested on round trips, not on a throughput. Leave it out\n",
        ),
    ] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.stderr.as_str(), ended.stdout.as_str()), (Some(2), line, ""));
    }
}
