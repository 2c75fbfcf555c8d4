//! `explain URL`: causes that the lab plants on purpose are named, and links without a cause are not accused.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::explain::live::{
    CauseFinding, CauseVerdict, DEFAULT_BUDGET, Explanation, LiveError, LiveOptions, Stage, explain_live,
};
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use linkgauge::lab::uart::{LabUarts, UartOptions};
use linkgauge::report::EXPLANATION_SCHEMA;
use serde_json::Value;

use crate::program::{command, run};

const MS: Duration = Duration::from_millis(1);

/// The explanation of a link to a server with these faults, on the virtual clock.
fn explain(url: &str, faults: Faults) -> Explanation {
    explain_within(DEFAULT_BUDGET, url, faults)
}

/// The same within another time.
fn explain_within(budget: Duration, url: &str, faults: Faults) -> Explanation {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let options =
        TroubleOptions { listen: vec![url.parse().unwrap()], faults, seed: 1, ..TroubleOptions::default() };
    let server = TroubledServer::start(&options, dialer.clone()).unwrap();
    let mut live = LiveOptions::new(url.parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    live.budget = budget;
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
#[ignore = "long"]
fn links_without_a_cause_are_not_accused() {
    for url in [LINK, "mem://trouble?delay=10us&type=message", "mem://trouble?delay=20ms"] {
        let explanation = explain(url, Faults { delay: 100 * MS / 1000, ..Faults::default() });
        assert!(found(&explanation).is_empty(), "{url}: {:#?}", explanation.causes);
        assert_eq!(explanation.unexplained_ns, explanation.median_ns);
        let ruled_out = explanation.causes.iter().filter(|cause| cause.verdict == CauseVerdict::RuledOut);
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
        assert_eq!((cause.id, cause.verdict), ("remote_clock", CauseVerdict::Seen));
        assert!(cause.evidence[0].contains(period), "{:?}", cause.evidence);
        // Without a pause each request just misses the previous tick.
        let cost = cause.effect.cost_ns.unwrap() / 1e6;
        assert!((cost / cost_ms - 1.0).abs() < 0.1, "{cost} ms instead of {cost_ms}");
    }
}

#[test]
fn a_clock_is_seen_where_the_network_takes_most_of_its_period() {
    // Without a pause each request arrives 2 to 4 ms before the next tick.
    let link = "mem://trouble?delay=8ms&jitter=1ms&type=message";
    let explanation = explain(link, Faults { tick: Some(20 * MS), ..Faults::default() });
    assert_eq!(only(&explanation).id, "remote_clock");
}

#[test]
fn the_period_of_a_clock_is_found_in_a_short_time() {
    // Pauses that are short against the period would show only its parts, as 5 ms.
    for seconds in [5, 10] {
        let poll = Faults { poll: Some(20 * MS), ..Faults::default() };
        let explanation = explain_within(Duration::from_secs(seconds), LINK, poll);
        let cause = only(&explanation);
        assert!(cause.id == "remote_clock" && cause.evidence[0].contains(" 20.0"), "{:?}", cause.evidence);
    }
}

#[test]
fn the_period_of_long_pauses_is_found_among_shorter_ones() {
    // One of five requests is late by 12 ms, as on a busy host.
    let link = "mem://trouble?delay=1ms&spike=12ms@10%&type=message";
    let stall = explain(link, Faults { stall: Some((100 * MS, 1000 * MS)), ..Faults::default() });
    let cause = found(&stall)[0];
    assert_eq!((cause.id, cause.verdict), ("periodic_pause", CauseVerdict::Seen), "{:#?}", stall.causes);
    assert!(cause.evidence[0].contains("1.000 s"), "{:?}", cause.evidence);
    let random = explain(link, Faults::default());
    assert_eq!(only(&random).id, "random_pause");
}

#[test]
fn pauses_of_the_server_are_seen_with_their_period() {
    let stall = explain(LINK, Faults { stall: Some((50 * MS, 1000 * MS)), ..Faults::default() });
    let cause = only(&stall);
    assert_eq!((cause.id, cause.verdict), ("periodic_pause", CauseVerdict::Seen));
    assert!(cause.evidence[0].contains("1.000 s"), "{:?}", cause.evidence);
    let random = explain(LINK, Faults { pause: Some((30 * MS, 0.05)), ..Faults::default() });
    let cause = only(&random);
    assert_eq!((cause.id, cause.verdict), ("random_pause", CauseVerdict::Seen));
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
    assert_eq!((cause.id, cause.verdict), ("serial_line", CauseVerdict::Proved));
    let cost = cause.effect.cost_ns.unwrap() / 1e6;
    assert!((cost / 2.0 - 1.0).abs() < 0.02, "{cost} ms");
    assert!(explanation.unexplained_ns < 0.1e6, "{}", explanation.unexplained_ns);
}

#[test]
fn a_timer_of_characters_shows_beside_the_line() {
    // A byte takes 1 ms at 8 kbit/s, and each reply waits for the time of 3.5 bytes.
    let explanation =
        explain("mem://trouble?rate=8kbit/s", Faults { delay: 7 * MS / 2, ..Faults::default() });
    let found: Vec<_> = found(&explanation).iter().map(|cause| (cause.id, cause.verdict)).collect();
    assert_eq!(
        found,
        [("serial_turn_around", CauseVerdict::Seen), ("serial_line", CauseVerdict::Proved)],
        "{:#?}",
        explanation.causes
    );
    assert!(explanation.unexplained_ns < 0.1e6, "{}", explanation.unexplained_ns);
}

#[test]
fn rare_pauses_are_seen_where_requests_are_many() {
    // 3 of 300 requests after pauses, but 15 of 1500 without one.
    let link = "mem://trouble?delay=500us&jitter=100us";
    let random = explain(link, Faults { pause: Some((30 * MS, 0.01)), ..Faults::default() });
    assert_eq!(only(&random).id, "random_pause");
    // A period that no table has.
    let stall = explain(link, Faults { stall: Some((30 * MS, 330 * MS)), ..Faults::default() });
    assert_eq!(only(&stall).id, "periodic_pause");
    assert!(only(&stall).evidence[0].contains("one phase of 330"), "{:?}", only(&stall).evidence);
}

#[test]
fn the_parts_of_a_round_trip_add_up() {
    let faults = Faults { pause: Some((30 * MS, 0.02)), ..Faults::default() };
    let explanation = explain("mem://trouble?delay=500us&jitter=100us", faults);
    let accounting = &explanation.accounting;
    let sum: f64 = accounting.stages.iter().map(|stage| stage.mean_ns).sum();
    assert!((sum / accounting.mean_ns - 1.0).abs() < 1e-9, "{accounting:#?}");
    let columns: [fn(&Stage) -> f64; 3] =
        [|stage| stage.median_share, |stage| stage.spread_share.unwrap(), |stage| stage.tail_share.unwrap()];
    for column in columns {
        let sum: f64 = accounting.stages.iter().map(column).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{accounting:#?}");
    }
    let slow = accounting.stages.iter().find(|stage| stage.id == "slow").unwrap();
    assert!(slow.median_share == 0.0 && slow.tail_share.unwrap() > 0.8, "{slow:?}");
    // The causes and the rest are the median.
    let explained: f64 = found(&explanation).iter().filter_map(|cause| cause.effect.cost_ns).sum();
    assert!((explained + explanation.unexplained_ns - explanation.median_ns).abs() < 1.0);
}

#[test]
fn a_link_that_cannot_be_measured_is_an_error() {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let live = LiveOptions::new("mem://nowhere".parse().unwrap());
    assert!(matches!(explain_live(&live, &dialer, &|_, _| {}), Err(LiveError::Measurement(_))));
    let too_large = LiveOptions { message_bytes: Some(100_000_000), ..live };
    let too_large = LiveOptions { endpoint: "udp://127.0.0.1:9".parse().unwrap(), ..too_large };
    assert!(matches!(explain_live(&too_large, &dialer, &|_, _| {}), Err(LiveError::InvalidCase(_))));
}

#[test]
fn a_server_that_ends_during_the_tests_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    // Four connections for their first reply, one for each kind of round trips, and one for the first test; handshakes send nothing.
    let server = std::thread::spawn(move || {
        let echo = |stream: std::io::Result<TcpStream>| {
            let mut stream = stream.unwrap();
            std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap_or(1)
        };
        listener.incoming().map(echo).filter(|bytes| *bytes > 0).take(7).for_each(drop);
    });
    let ended = run(&["explain", &url, "--protocol", "echo", "--time", "3s"]);
    server.join().unwrap();
    assert_eq!(ended.status, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("connection refused"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Stopped early, not all causes were tested"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("refuses") && !ended.stdout.contains("slower than"), "{}", ended.stdout);
}

#[test]
#[ignore = "long"]
fn the_command_explains_a_link() {
    let faults = Faults { tick: Some(20 * MS), ..Faults::default() };
    let options = TroubleOptions {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        faults,
        ..TroubleOptions::default()
    };
    let server = TroubledServer::start(&options, Registry::standard().dialer(Clock::System)).unwrap();
    let url = server.endpoints()[0].to_string();
    let ended = run(&["explain", &url, "--protocol", "echo", "--time", "12s", "--json", "-"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let schema: Value = serde_json::from_str(EXPLANATION_SCHEMA).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    // What a busy host makes of 12 s is open; clocks_of_the_server_are_seen is exact.
    assert!(document["median_ns"].as_f64().unwrap() > 10e6, "{document:#}");
    assert!(!document["causes"].as_array().unwrap().is_empty(), "{document:#}");
}

#[test]
#[ignore = "long"]
fn a_delayed_acknowledgement_is_proved_by_its_setting() {
    let dialer = Registry::standard().dialer(Clock::System);
    let faults = Faults { split_write_bytes: Some(10), ..Faults::default() };
    let listen = vec!["tcp://127.0.0.1:0?nodelay=0".parse().unwrap()];
    let server = TroubledServer::start(
        &TroubleOptions { listen, faults, ..TroubleOptions::default() },
        dialer.clone(),
    )
    .unwrap();
    let port = server.endpoints()[0].host_port().unwrap().1.unwrap();
    // Nagle here has the same signature; changing an option that the URL has already separates the two.
    let mut live = LiveOptions::new(format!("tcp://127.0.0.1:{port}?nodelay=0").parse().unwrap());
    "echo".clone_into(&mut live.protocol);
    live.budget = Duration::from_secs(30);
    let explanation = explain_live(&live, &dialer, &|_, _| {}).unwrap();
    let here = explanation.causes.iter().find(|cause| cause.id == "nagle_here").unwrap();
    assert!(here.verdict != CauseVerdict::Proved, "{here:#?}");
    assert!(here.evidence.iter().all(|text| !text.contains("refuses")), "{here:#?}");
    let first = &explanation.causes[0];
    assert_eq!(
        (first.id, first.verdict),
        ("delayed_ack_nagle", CauseVerdict::Proved),
        "{:#?}",
        explanation.causes
    );
    // Kernels before 6.18 have no such option. Timers round up to ticks of up to 10 ms.
    if let Some(dose) = &first.effect.dose {
        assert_eq!((dose.knob, dose.points.len()), ("delack_max", 16));
        assert!((0.5..1.5).contains(&dose.slope), "{dose:?}");
        assert!(first.evidence.iter().any(|text| text.starts_with("each ms of delack_max costs ")));
    }
    let minimum = explanation.accounting.minimum_ns.unwrap();
    assert!(minimum < 0.5 * explanation.median_ns, "{:?}", explanation.accounting);
}

#[test]
fn a_setting_that_the_link_refuses_cannot_be_tested() {
    // The driver of a pseudo-terminal has no low latency mode.
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let mut live =
        LiveOptions::new(format!("serial://{}?baud=115200", uarts.paths()[0].display()).parse().unwrap());
    live.budget = Duration::from_secs(5);
    let explanation = explain_live(&live, &Registry::standard().dialer(Clock::System), &|_, _| {}).unwrap();
    let timer = explanation.causes.iter().find(|cause| cause.id == "usb_latency_timer").unwrap();
    assert!(timer.evidence.iter().any(|text| text.contains("refuses low_latency=1")), "{timer:#?}");
    // The tick of a busy host looks like a clock of the adapter, but nothing is proved.
    assert!(matches!(timer.verdict, CauseVerdict::CannotTest | CauseVerdict::Seen), "{timer:#?}");
}

#[test]
fn a_setting_of_the_device_changes_only_for_its_blocks() {
    let uarts = LabUarts::start(&UartOptions { ports: 1, ..UartOptions::default() }).unwrap();
    let path = &uarts.paths()[0];
    let root = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(path).unwrap();
    let folder = root.path().join("sys/class/tty").join(real.file_name().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let setting = folder.join("rx_trig_bytes");
    std::fs::write(&setting, "8\n").unwrap();
    let url = format!("serial://{}?baud=115200", path.display());
    let explain = |change: &str| {
        let mut command = command(&["explain", &url, "--time", "4s", "--json", "-", "--settings-root"]);
        command.arg(root.path()).args(["--allow-change", change]);
        command.env("LINKGAUGE_STORE", root.path().join("data/runs.sqlite"));
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, document, errors) = explain("rx_trig_bytes=1");
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&document).unwrap();
    let cause =
        document["causes"].as_array().unwrap().iter().find(|cause| cause["id"] == "uart_fifo_timeout");
    let cause = cause.unwrap_or_else(|| panic!("{document:#}"));
    assert!(!cause["pairs_ns"].as_array().unwrap().is_empty(), "it was tested: {cause:#}");
    assert_eq!(std::fs::read_to_string(&setting).unwrap(), "8", "restored");
    let (status, _, errors) = explain("latency_timer=1");
    assert_eq!(status, Some(2));
    assert!(errors.contains("has no latency_timer"), "{errors}");
}

#[test]
fn a_page_shows_the_causes() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let options = TroubleOptions {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        faults: Faults { delay: 2 * MS, ..Faults::default() },
        ..TroubleOptions::default()
    };
    let server = TroubledServer::start(&options, Registry::standard().dialer(Clock::System)).unwrap();
    let url = server.endpoints()[0].to_string();
    let ended =
        run(&["explain", &url, "--protocol", "echo", "--time", "3s", "--html", page.to_str().unwrap()]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains(" per request"), "{}", ended.stdout);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("class=\"stack\"") && page.contains("Parts of a round trip"));
}

#[test]
fn wrong_arguments_get_one_line() {
    for (arguments, line) in [
        (
            &["explain", "loggernet", "--size", "64"][..],
            "error: --size needs a URL to measure, like tcp://192.0.2.7\n",
        ),
        (
            &["explain", "loggernet", "--html", "x.html"],
            "error: --html needs a URL to measure, like tcp://192.0.2.7. Of a run: linkgauge show RUN --html FILE\n",
        ),
        (
            &["explain", "tcp://127.0.0.1:9", "--html", "-", "--json", "-"],
            "error: --json - and --html - cannot share standard output: use a file for one of them\n",
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
