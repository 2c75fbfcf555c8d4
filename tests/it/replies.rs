//! `latency --each`: a line for each reply.

use std::sync::Arc;

use linkgauge::Registry;
use linkgauge::plan::Plan;
use linkgauge::sample::{ReplyEventKind, ReplyLogs};
use linkgauge::schedule::{self, RunContext};

use crate::lab_logger::Logger;
use crate::program::{Serving, run};
use crate::virtual_net::VirtualNet;

/// The events of a run over a link that loses, repeats and delays messages, beside the counts of the run.
#[test]
fn every_measured_request_has_an_event() {
    let net = VirtualNet::serving("echo");
    let late = "delay=10ms&jitter=10ms";
    for options in ["delay=1ms", "drop=7", "double=5", late, &format!("{late}&drop=7&double=5")] {
        let logs = Arc::<ReplyLogs>::default();
        let mut context = RunContext::new(net.dialer.clone(), &());
        context.replies = Some(logs.clone());
        let plan = format!(
            "[[case]]\nurl = \"mem://far-lossy?type=message&{options}\"\nprotocol = \"echo\"\nworkload = \"latency\"\n\
             rate = \"100/s\"\ncount = 300\ntimeout = \"25ms\"\nwarm_up_count = 10"
        );
        let plan = schedule::check(Plan::from_toml(&plan).unwrap(), Registry::standard()).unwrap();
        let run = schedule::run(&plan, &mut context);
        let counts = run.cases[0].figures.counts;
        let log = logs.take_new().remove(0);
        let events: Vec<_> = std::iter::from_fn(|| log.take()).collect();
        let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u64;
        assert_eq!(count(ReplyEventKind::Reply), counts.received, "{options}");
        assert_eq!(count(ReplyEventKind::Lost), counts.lost, "{options}");
        assert_eq!(count(ReplyEventKind::Late), counts.late, "{options}");
        assert_eq!(count(ReplyEventKind::Duplicate), counts.duplicate, "{options}");
        assert_eq!(log.take_left_out(), 0, "{options}");
        let mut numbers: Vec<u64> = events
            .iter()
            .filter(|event| matches!(event.kind, ReplyEventKind::Reply | ReplyEventKind::Lost))
            .map(|event| event.number)
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=300), "{options}");
    }
}

#[test]
fn each_reply_is_a_line_and_the_summary_follows() {
    let serving = Serving::start(&[]);
    for url in [&serving.tcp, &serving.udp] {
        let got = run(&["latency", url.as_str(), "--each", "--rate", "200", "-n", "5", "-s", "64"]);
        assert_eq!(got.status, Some(0), "{}", got.stderr);
        let lines: Vec<&str> = got.stdout.lines().collect();
        for (number, line) in (1..=5).zip(&lines) {
            assert!(line.starts_with(&format!("reply {number} from {url}: 64 bytes, ")), "{}", got.stdout);
        }
        assert!(lines[5].contains("round trip to"), "{}", got.stdout);
    }
}

#[test]
fn other_protocols_have_lines_too() {
    let logger = Logger::on_tcp(&[]);
    let url = format!("tcp://{}", logger.place);
    let got = run(&["latency", &url, "--protocol", "pakbus", "--each", "--rate", "100", "-n", "3"]);
    assert_eq!(got.stdout.lines().filter(|line| line.starts_with("reply ")).count(), 3, "{}", got.stdout);
}

#[test]
fn the_lines_share_standard_output_with_nothing_else() {
    for other in
        [&["--json", "-"][..], &["--csv", "-"], &["--events", "-"], &["--quiet"], &["--format", "json"]]
    {
        let got = run(&[&["latency", "tcp://127.0.0.1:1", "--each"], other].concat());
        assert_eq!((got.status, got.stdout.as_str()), (Some(2), ""), "{other:?}");
        assert!(
            got.stderr.starts_with("error: --each prints its lines on standard output"),
            "{}",
            got.stderr
        );
        assert_eq!(got.stderr.lines().count(), 1, "{}", got.stderr);
    }
}
