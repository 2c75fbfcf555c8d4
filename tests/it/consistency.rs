//! Every document satisfies the rules of `consistency`, whatever is measured over whatever link: random cases on the virtual
//! clock.

use std::collections::BTreeMap;

use linkgauge::Registry;
use linkgauge::run::{Run, WarningCode};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::virtual_net::VirtualNet;

/// Servers, and what can be measured with them.
const SERVERS: [(&str, &[&str]); 10] = [
    ("linkgauge", &["latency", "throughput", "throughput", "responsiveness", "connect"]),
    ("echo", &["latency", "throughput", "connect"]),
    ("discard", &["throughput"]),
    ("chargen", &["throughput"]),
    ("sockperf", &["latency"]),
    ("stamp", &["latency"]),
    ("device", &["latency", "throughput"]),
    ("irtt", &["latency"]),
    ("iperf3", &["throughput"]),
    ("iperf2", &["latency", "throughput"]),
];

/// A plan and its server.
#[derive(Debug, Clone)]
struct RandomPlan {
    server: &'static str,
    text: String,
}

/// One of these lines, or none.
fn maybe(lines: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), select(lines).prop_map(|line| format!("{line}\n"))]
}

/// The options of a link: its shape, and what it does to messages.
fn link(is_message: bool) -> impl Strategy<Value = String> {
    let shape = (
        select(
            &[
                "",
                "&delay=1ms",
                "&delay=20ms&jitter=15ms",
                "&delay=3ms&spike=300ms@2%",
                "&delay=2ms&slot=7ms",
            ][..],
        ),
        select(
            &[
                "&rate=5Mbit/s",
                "&rate=1Mbit/s",
                "&rate=3Mbit/s&buffer=20k",
                "&rate=300kbit/s&buffer=8k",
                "&rate=8Mbit/s&share=yes",
            ][..],
        ),
        0u64..100,
    );
    let damage = match is_message {
        true => {
            select(&["", "", "&drop=2", "&drop=17", "&double=3", "&swap=5", "&drop=7&double=5&swap=3"][..])
        }
        false => select(&["", ""][..]),
    };
    (shape, damage).prop_map(|((delay, rate, seed), damage)| format!("seed={seed}{delay}{rate}{damage}"))
}

fn plans() -> impl Strategy<Value = RandomPlan> {
    let server = select(&SERVERS[..]).prop_flat_map(|(server, workloads)| (Just(server), select(workloads)));
    (server, any::<bool>()).prop_flat_map(|((server, workload), is_message)| {
        let stop = select(&["count = 3", "count = 150", "time = \"300ms\"", "time = \"600ms\"", "volume = \"70k\""][..]);
        let case = (
            link(is_message),
            stop,
            // The default blocks take minutes of virtual time on the slow links.
            select(&["size = 1\n", "size = 100\n", "size = 1400\n"][..]),
            maybe(&["rate = \"40/s\"", "rate = \"900/s\"", "rate = \"9000/s\""]),
            maybe(&["direction = \"send\"", "direction = \"receive\"", "direction = \"both\"", "direction = \"loop\""]),
            maybe(&["parallel = 3", "parallel = 8"]),
            maybe(&["warm_up_time = \"100ms\"", "warm_up_count = 5"]),
            maybe(&["timeout = \"50ms\"", "timeout = \"2s\""]),
            maybe(&["repeat = 2", "repeat = 7"]),
        );
        case.prop_map(move |(options, stop, size, rate, direction, parallel, warm_up, timeout, repeat)| {
            let host = if is_message { "far-messages?type=message&" } else { "far?" };
            let url = format!("mem://{host}{options}");
            let rest = [size.to_owned(), rate, direction, parallel, warm_up, timeout].concat();
            let text =
                format!("{repeat}[[case]]\nurl = \"{url}\"\nprotocol = \"{server}\"\nworkload = \"{workload}\"\n{stop}\n{rest}");
            RandomPlan { server, text }
        })
    })
}

/// Runs the plan, if it is a valid one.
fn run(plan: &RandomPlan) -> Option<Run> {
    let parsed = linkgauge::plan::Plan::from_toml(&plan.text).ok()?;
    let checked = linkgauge::schedule::check(parsed.clone(), Registry::standard()).ok()?;
    drop(checked);
    Some(VirtualNet::serving(plan.server).run_plan(parsed))
}

fn contradictions(run: &Run) -> Vec<String> {
    let warnings = run.all_warnings().map(|(_, warning)| warning);
    warnings
        .filter(|warning| warning.code == WarningCode::Contradiction)
        .map(|warning| warning.text.clone())
        .collect()
}

/// Tries this many plans. Each kind of workload must have been measured.
fn try_plans(cases: u32) {
    let mut measured: BTreeMap<String, u32> = BTreeMap::new();
    // A failed plan is short enough as it is, and each step takes seconds.
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let counted = std::cell::RefCell::new(&mut measured);
    let result = runner.run(&plans(), |plan| {
        let Some(run) = run(&plan) else { return Ok(()) };
        for case in run.cases.iter().filter(|case| case.figures.has_measurements()) {
            *counted.borrow_mut().entry(case.workload.clone()).or_default() += 1;
        }
        prop_assert_eq!(contradictions(&run), Vec::<String>::new(), "{}", plan.text);
        // What was written is read as the same.
        let json = serde_json::to_string(&run).unwrap();
        prop_assert_eq!(Run::from_json(&json).unwrap(), run);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    for workload in ["latency", "throughput"] {
        assert!(measured.get(workload).is_some_and(|count| *count > 0), "{measured:?}");
    }
}

/// Messages of the warm-up that later ones overtake do not count as received after it.
#[test]
fn messages_of_the_warm_up_are_not_received_after_it() {
    let text = "repeat = 2\n[[case]]\nurl = \"mem://far-messages?type=message&delay=20ms&jitter=15ms&rate=1Mbit/s\"\n\
                protocol = \"echo\"\nworkload = \"throughput\"\ncount = 150\nrate = \"900/s\"\ndirection = \"loop\"\n\
                parallel = 3\nwarm_up_count = 5\n";
    let run = run(&RandomPlan { server: "echo", text: text.to_owned() }).unwrap();
    let counts = run.cases[0].figures.counts;
    assert_eq!((counts.sent, counts.lost), (counts.received, 0), "{counts:?}");
    assert_eq!(contradictions(&run), Vec::<String>::new());
}

/// Each reply comes twice, most of them late: the first one counts as late, the second as a duplicate.
#[test]
fn a_late_reply_counts_once() {
    let text = "[[case]]\nurl = \"mem://far-messages?type=message&delay=20ms&jitter=15ms&double=3\"\nprotocol = \"stamp\"\n\
                workload = \"latency\"\ncount = 150\ntimeout = \"50ms\"\n";
    let run = run(&RandomPlan { server: "stamp", text: text.to_owned() }).unwrap();
    let counts = run.cases[0].figures.counts;
    assert!(counts.late > 0 && counts.late <= counts.lost && counts.duplicate > 0, "{counts:?}");
    assert_eq!(contradictions(&run), Vec::<String>::new());
}

#[test]
#[ignore = "long"]
fn documents_of_many_random_cases_hold_no_contradiction() {
    try_plans(if std::env::var_os("LINKGAUGE_TEST_ALL_SIMULATIONS").is_some() { 300 } else { 60 });
}
