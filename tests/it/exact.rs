//! Whole runs on the virtual clock: every figure equals its computed value.

use linkgauge::protocol::ServerLimits;
use linkgauge::run::{CaseResult, Run};

use crate::virtual_net::VirtualNet;

/// Runs one case with the linkgauge protocol.
fn session(case: &str) -> CaseResult {
    one(VirtualNet::serving("linkgauge").run(&format!("[[case]]\n{case}")))
}

/// Runs one case against an echo.
fn echo(case: &str) -> CaseResult {
    one(VirtualNet::serving("echo").run(&format!("[[case]]\nprotocol = \"echo\"\n{case}")))
}

fn one(run: Run) -> CaseResult {
    assert_eq!(run.cases.len(), 1);
    assert_eq!(run.cases[0].evidence, None, "the system counts nothing on the virtual clock");
    // Where nothing came through, nothing was measured.
    assert_eq!(run.is_complete(), run.cases[0].figures.counts.received > 0, "{:?}", run.cases[0].warnings);
    run.cases.into_iter().next().unwrap()
}

fn counts(case: &CaseResult) -> (u64, u64, u64) {
    (case.figures.counts.sent, case.figures.counts.received, case.figures.counts.lost)
}

#[test]
fn latency_is_twice_the_delay_at_every_percentile() {
    for case in [
        session("url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ncount = 1000"),
        echo("url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ncount = 1000"),
        session("url = \"mem://far-messages?type=message&delay=1ms\"\nworkload = \"latency\"\ncount = 1000"),
    ] {
        assert_eq!(counts(&case), (1000, 1000, 0));
        let latency = case.figures.times.latency_ns.unwrap();
        assert_eq!((latency.min, latency.max, latency.mean), (2_000_000, 2_000_000, 2e6));
        assert_eq!(latency.standard_deviation, Some(0.0));
        assert!(latency.percentiles.len() >= 11);
        assert!(latency.percentiles.values().all(|value| *value == Some(2_000_000)));
        assert_eq!(case.figures.times.jitter_ns, Some(0.0));
        assert_eq!(case.figures.delivery.messages_per_second, Some(500.0));
        assert_eq!(case.figures.times.response_ns, None);
    }
}

#[test]
fn a_case_without_a_sample_is_not_complete() {
    // The only message of the first second belongs to the warm-up.
    let case = session(
        "url = \"mem://far-messages?type=message\"\nworkload = \"throughput\"\nrate = \"1/s\"\nsize = 1000\n\
         time = \"100ms\"\nwarm_up_time = \"200ms\"\nprobe = false",
    );
    assert_eq!(counts(&case), (0, 0, 0));
    assert!(!case.complete);
    let why = "mem://far-messages?type=message: nothing was sent or received within the measured 100ms: use a longer --time";
    assert!(case.warnings.iter().any(|warning| warning.text.contains(why)), "{:?}", case.warnings);
}

#[test]
fn a_character_takes_its_time_on_a_line_in_both_directions() {
    for (size, each_way_ns) in [(1, 833_333), (14, 11_666_667)] {
        let case = echo(&format!(
            "url = \"mem://far?rate=9600bit/s\"\nworkload = \"latency\"\ncount = 200\nsize = {size}"
        ));
        let latency = case.figures.times.latency_ns.unwrap();
        // Each delay is rounded to a nanosecond where it begins.
        assert!(latency.min.abs_diff(2 * each_way_ns) <= 2, "{}", latency.min);
        assert!(latency.max.abs_diff(2 * each_way_ns) <= 2, "{}", latency.max);
    }
}

#[test]
fn throughput_is_the_rate_of_the_line() {
    for link in ["mem://far?rate=8Mbit/s&delay=3ms", "mem://far-messages?type=message&rate=8Mbit/s&delay=3ms"]
    {
        for (direction, stop, bytes) in [
            ("send", "time = \"2s\"", None),
            ("receive", "time = \"2s\"", None),
            ("send", "volume = \"1M\"", Some(1_000_000)),
            ("receive", "volume = \"1M\"", Some(1_000_000)),
        ] {
            let case = session(&format!(
                "url = \"{link}\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\n{stop}\nsize = 1000\nprobe = false"
            ));
            let rate = case.figures.delivery.throughput_bps.unwrap();
            assert!((rate - 8e6).abs() < 1.0, "{link} {direction} {stop}: {rate}");
            assert_eq!(case.figures.counts.lost, 0, "{link} {direction} {stop}");
            assert_eq!(case.figures.counts.sent, case.figures.counts.received);
            assert!((case.figures.delivery.messages_per_second.unwrap() - 1000.0).abs() < 0.1);
            let delivered = case.figures.delivery.delivered_bytes.unwrap();
            assert_eq!(delivered / 1000, case.figures.counts.received);
            if let Some(bytes) = bytes {
                assert_eq!(delivered, bytes);
            }
            assert_eq!(case.figures.delivery.line_rate_percent.map(f64::round), Some(100.0));
        }
    }
}

/// The last byte waits in the queue as long as the others: only what the first one did not wait is the drain.
#[test]
fn the_queue_drains_after_the_last_byte_is_sent() {
    for direction in ["send", "receive"] {
        let case = session(&format!(
            "url = \"mem://far?rate=8Mbit/s&buffer=500000\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\n\
             time = \"2s\"\nsize = 1000\nprobe = false"
        ));
        let delivery = &case.figures.delivery;
        let queue_ns = 500_000.0 * 8e9 / 8e6;
        let drain_ns = delivery.drain_ns.unwrap() as f64;
        assert!((drain_ns - queue_ns).abs() < 2e6, "{direction}: {drain_ns}");
        assert!((delivery.throughput_bps.unwrap() - 8e6).abs() < 1.0, "{direction}");
    }
}

#[test]
fn both_directions_at_once_do_not_share_the_rate() {
    let case = session(
        "url = \"mem://far?rate=8Mbit/s\"\nworkload = \"throughput\"\ndirection = \"both\"\nvolume = \"500k\"\n\
         size = 1000\nprobe = false",
    );
    let figures = &case.figures;
    assert_eq!(
        (figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes),
        (Some(500_000), Some(500_000))
    );
    for rate in [figures.delivery.throughput_bps, figures.delivery.throughput_reverse_bps] {
        assert!((rate.unwrap() - 8e6).abs() < 1.0, "{rate:?}");
    }
    assert_eq!(counts(&case), (1000, 1000, 0));
}

#[test]
fn an_echo_returns_the_bytes_of_a_loop() {
    let case = echo(
        "url = \"mem://far?rate=8Mbit/s&delay=5ms\"\nworkload = \"throughput\"\nvolume = \"1M\"\nsize = 1000",
    );
    assert_eq!(counts(&case), (1000, 1000, 0));
    assert_eq!(case.figures.byte_errors.corrupt_bytes, 0);
    // From the first byte written to the last one back: the line's time, both delays, and one message more.
    let expected_ns = 1e9 + 10e6 + 1e6;
    let rate = case.figures.delivery.throughput_bps.unwrap();
    assert!((rate / (8e6 * 1e9 / expected_ns) - 1.0).abs() < 2e-3, "{rate}");
}

/// The messages of one direction of a link that loses every `drop`-th message, duplicates every `double`-th and lets
/// the next one overtake every `swap`-th: numbers in the order of arrival. All are sent before any arrives.
fn arrivals(count: u64, drop: u64, double: u64, swap: u64) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let mut marked = false;
    for number in 1..=count {
        let every = |n: u64| n != 0 && number % n == 0;
        if every(drop) {
            continue;
        }
        // The one that is overtaken is still the last; of two copies it is the second.
        let overtaken = if marked { out.pop() } else { None };
        out.push(number);
        if every(double) {
            out.push(number);
        }
        let end = out.len();
        out.extend(overtaken);
        marked = every(swap);
        assert!(!marked || end == out.len(), "two overtaken in a row are not modelled here");
    }
    out
}

/// Received, duplicate, reordered: a repeated number is a duplicate, and a number below an earlier one is late.
fn judged(arrivals: &[u64]) -> (u64, u64, u64) {
    let mut seen = std::collections::BTreeSet::new();
    let (mut duplicate, mut reordered) = (0, 0);
    for number in arrivals {
        let highest = seen.last().copied().unwrap_or(0);
        if !seen.insert(*number) {
            duplicate += 1;
        } else if *number < highest {
            reordered += 1;
        }
    }
    (seen.len() as u64, duplicate, reordered)
}

/// Tries to attach a connection within two seconds, of a timeout of five: the waits are 1, 2, 4 and 8 of 31 parts of it.
const ATTACH_TRIES: u64 = 4;

#[test]
fn losses_copies_and_overtaking_are_counted_exactly_in_throughput() {
    for (options, drop, double, swap) in
        [("drop=7", 7, 0, 0), ("double=5", 0, 5, 0), ("swap=9", 0, 0, 9), ("drop=7&double=5&swap=9", 7, 5, 9)]
    {
        // 900 messages of 100 bytes leave at the same time and are in flight for a second.
        let case = session(&format!(
            "url = \"mem://far-lossy?type=message&delay=1s&{options}\"\nworkload = \"throughput\"\n\
             count = 900\nsize = 100\nprobe = false\ntimeout = \"5s\""
        ));
        // The first messages of this connection were tries to attach it, until the reply came after two seconds.
        let arrived = arrivals(900 + ATTACH_TRIES, drop, double, swap);
        let arrived: Vec<u64> = arrived.into_iter().filter(|number| *number > ATTACH_TRIES).collect();
        let (received, duplicate, reordered) = judged(&arrived);
        assert_eq!(counts(&case), (900, received, 900 - received), "{options}");
        assert_eq!(
            (case.figures.counts.duplicate, case.figures.counts.reordered),
            (duplicate, reordered),
            "{options}"
        );
        assert_eq!(case.figures.delivery.delivered_bytes, Some(100 * received));
    }
}

#[test]
fn losses_are_counted_exactly_in_latency() {
    // One message at a time: requests 7, 14 … are lost, and every seventh of the replies.
    let case = echo(
        "url = \"mem://far-lossy?type=message&delay=1ms&drop=7\"\nworkload = \"latency\"\ncount = 700\n\
         warm_up_count = 0\ntimeout = \"10ms\"",
    );
    let there = 700 - 700 / 7;
    let back = there - there / 7;
    assert_eq!(counts(&case), (700, back, 700 - back));
    let latency = case.figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (2_000_000, 2_000_000));
    // 185 of 700 are lost: p70 is reached, p80 is not.
    assert_eq!(latency.percentiles["p70"], Some(2_000_000));
    assert_eq!(latency.percentiles["p80"], None);
    assert_eq!(latency.later_than_ms["50"], (700 - back) as f64 / 700.0);
    assert_eq!(case.elapsed_ns, back * 2_000_000 + (700 - back) * 10_000_000);
}

#[test]
fn copies_are_counted_exactly_in_latency() {
    // Every fifth request arrives twice, and so does every fifth of the 360 replies.
    let case = echo(
        "url = \"mem://far-lossy?type=message&delay=1ms&double=5\"\nworkload = \"latency\"\ncount = 300\n\
         warm_up_count = 0",
    );
    assert_eq!(counts(&case), (300, 300, 0));
    // Copies of the last reply would arrive after the end.
    let copies = 360 + 360 / 5 - 300;
    assert!(case.figures.counts.duplicate.abs_diff(copies) <= 3, "{}", case.figures.counts.duplicate);
    assert_eq!((case.figures.counts.reordered, case.figures.counts.late), (0, 0));
}

#[test]
fn overtaking_is_counted_exactly_in_latency_on_a_schedule() {
    // Sent every millisecond with a delay of 20 ms: every ninth request is overtaken, and nothing else happens.
    let case = echo(
        "url = \"mem://far-lossy?type=message&delay=20ms&swap=9\"\nworkload = \"latency\"\ncount = 90\n\
         rate = \"1k/s\"\nwarm_up_count = 0",
    );
    assert_eq!(counts(&case), (90, 90, 0));
    let there: Vec<u64> = arrivals(90, 0, 0, 9);
    let order = arrivals(90, 0, 0, 9).into_iter().map(|place| there[place as usize - 1]);
    let (_, duplicate, reordered) = judged(&order.collect::<Vec<_>>());
    assert_eq!((case.figures.counts.duplicate, case.figures.counts.reordered), (duplicate, reordered));
}

#[test]
fn a_stall_shows_in_the_response_time_of_every_delayed_message() {
    // 100 bytes take 100 ms on the line, one is wanted every 50 ms: message n waits 50 ms longer than the one before.
    let case = echo(
        "url = \"mem://far?rate=8kbit/s\"\nworkload = \"latency\"\nsize = 100\ncount = 20\nrate = \"20/s\"\n\
         warm_up_count = 0\ntimeout = \"10s\"",
    );
    assert_eq!(counts(&case), (20, 20, 0));
    for times in [case.figures.times.latency_ns.unwrap(), case.figures.times.response_ns.unwrap()] {
        // The buffer takes every message when it is due, so both start at the same instant.
        assert_eq!((times.min, times.max), (200_000_000, 200_000_000 + 19 * 50_000_000));
    }
    assert_eq!(case.figures.counts.late_sends, 0);
}

#[test]
fn a_full_link_delays_the_schedule_and_the_response_time() {
    // Messages of the buffer's size: the next one is taken only when the one before has left, a second later.
    let case = echo(
        "url = \"mem://far?rate=524288bit/s&buffer=64Ki\"\nworkload = \"latency\"\nsize = 65536\ncount = 5\n\
         rate = \"2/s\"\nwarm_up_count = 0\ntimeout = \"60s\"",
    );
    assert_eq!(counts(&case), (5, 5, 0));
    let (service, response) =
        (case.figures.times.latency_ns.unwrap(), case.figures.times.response_ns.unwrap());
    assert!(service.max < response.max, "{service:?} {response:?}");
    // The last was due after two seconds; four messages before it took four, its own round trip two.
    assert_eq!(response.max, 4_000_000_000);
    assert!(case.figures.counts.late_sends > 0);
}

#[test]
fn replies_after_the_timeout_are_named_as_such() {
    let case = echo(
        "url = \"mem://far?type=message&delay=75ms\"\nworkload = \"latency\"\nsize = 64\ncount = 100\nrate = \"50/s\"\n\
         warm_up_count = 0\ntimeout = \"100ms\"",
    );
    let late = case.figures.counts.late;
    assert_eq!((counts(&case), case.complete), ((100, 0, 100), false));
    // The last ones are not awaited.
    assert!((90..100).contains(&late), "{late}");
    let text = case.failures[0].to_string();
    let expected = format!(
        "mem://far?type=message&delay=75ms: none of 100 messages got a reply within 100ms, but {late} replies arrived later: use a \
         longer timeout, like --timeout 1s"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_seed_gives_the_same_schedule() {
    let run = |seed: u32| {
        session(&format!(
            "url = \"mem://far?rate=80kbit/s\"\nworkload = \"latency\"\nsize = 10\ncount = 400\nrate = \"500/s\"\n\
             poisson = true\nseed = {seed}\nwarm_up_count = 0"
        ))
    };
    let (a, b, other) = (run(3), run(3), run(4));
    assert_eq!(a.figures, b.figures);
    assert_eq!(a.elapsed_ns, b.elapsed_ns);
    assert_ne!(a.elapsed_ns, other.elapsed_ns);
    assert!(a.figures.times.response_ns.unwrap().max > 2_000_000, "some met on the line");
}

#[test]
fn a_fixed_schedule_takes_exactly_its_time() {
    let case = session(
        "url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ncount = 100\nrate = \"100/s\"\nwarm_up_count = 0",
    );
    assert_eq!(counts(&case), (100, 100, 0));
    let response = case.figures.times.response_ns.unwrap();
    assert_eq!((response.min, response.max), (2_000_000, 2_000_000));
    // The last of 100 is due after 990 ms.
    assert_eq!(case.figures.delivery.messages_per_second.map(|rate| (rate * 992.0).round()), Some(100_000.0));
}

#[test]
fn warm_up_is_left_out() {
    let by_count = echo(
        "url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ncount = 100\nwarm_up_count = 50\ninterval = \"10ms\"",
    );
    assert_eq!(counts(&by_count), (100, 100, 0));
    assert_eq!(by_count.elapsed_ns, 300_000_000);
    assert_eq!(by_count.figures.delivery.messages_per_second, Some(500.0));
    assert_eq!(by_count.series.iter().filter_map(|entry| entry.messages).sum::<u64>(), 100);
    assert_eq!((by_count.series[0].start_ns, by_count.series[0].messages), (0, Some(4)));

    let by_time = echo(
        "url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ntime = \"100ms\"\nwarm_up_time = \"60ms\"",
    );
    assert_eq!(counts(&by_time), (50, 50, 0));
    assert_eq!(by_time.elapsed_ns, 160_000_000);

    for link in ["mem://far?rate=8Mbit/s", "mem://far-messages?type=message&rate=8Mbit/s"] {
        let load = session(&format!(
            "url = \"{link}\"\nworkload = \"throughput\"\nsize = 1000\ncount = 500\nwarm_up_count = 200\nprobe = false"
        ));
        assert_eq!(counts(&load), (500, 500, 0), "{link}");
        assert_eq!(load.figures.delivery.delivered_bytes, Some(500_000), "{link}");
        assert!((load.figures.delivery.throughput_bps.unwrap() - 8e6).abs() < 1.0);
    }

    // Each end ends it by its own clock, and the messages between the two are not lost.
    for link in ["mem://far?rate=8Mbit/s", "mem://far-messages?type=message&rate=8Mbit/s"] {
        for direction in ["send", "receive", "both"] {
            let load = session(&format!(
                "url = \"{link}&delay=7ms\"\nworkload = \"throughput\"\nsize = 1000\ntime = \"100ms\"\n\
                 warm_up_time = \"33ms\"\nprobe = false\ndirection = \"{direction}\""
            ));
            let (sent, received, lost) = counts(&load);
            assert!(
                sent >= 100 && received == sent && lost == 0,
                "{link} {direction}: {sent} {received} {lost}"
            );
        }
    }
    let load = session(
        "url = \"mem://far-lossy?type=message&drop=9&rate=8Mbit/s&delay=7ms\"\nworkload = \"throughput\"\nsize = 1000\n\
         time = \"90ms\"\nwarm_up_time = \"33ms\"\nprobe = false",
    );
    let (sent, received, lost) = counts(&load);
    assert!(sent >= 90 && received + lost == sent, "{sent} {received} {lost}");
    assert!(lost.abs_diff(sent / 9) <= 1, "every ninth: {lost} of {sent}");
}

#[test]
fn a_silent_server_gets_a_few_requests_and_takes_exactly_their_timeouts() {
    // The delay is longer than every timeout together. By a time the measurement ends anyway; on a schedule no request
    // waits for another.
    for (stop, timeout_ms, sent, elapsed_ms) in [
        ("count = 200", 250, 5, 1250),
        ("volume = \"200\"", 250, 5, 1250),
        ("count = 200", 50, 20, 1000),
        ("count = 4", 250, 4, 1000),
        ("count = 200\ntime = \"5s\"", 250, 20, 5000),
        ("count = 200\nrate = 100", 250, 200, 2240),
    ] {
        let case = VirtualNet::serving("echo").run(&format!(
            "[[case]]\nurl = \"mem://far?delay=1h\"\nprotocol = \"echo\"\nworkload = \"latency\"\n{stop}\nsize = 8\n\
             timeout = \"{timeout_ms}ms\"\nwarm_up_count = 0",
        ));
        let case = &case.cases[0];
        assert_eq!(counts(case), (sent, 0, sent), "{stop}");
        assert_eq!(case.elapsed_ns, elapsed_ms * 1_000_000, "{stop}");
        // No reply arrived, so there is no distribution; the losses are complete.
        assert_eq!(case.figures.times.latency_ns, None);
        assert!(!case.complete);
    }

    // Half of the requests are lost: the median is the last one with a reply, and nothing above it is reached.
    let case = echo(
        "url = \"mem://far-lossy?type=message&drop=2&delay=1ms\"\nworkload = \"latency\"\ncount = 400\n\
         timeout = \"250ms\"\nwarm_up_count = 0",
    );
    // 200 requests arrive, and every second of their replies is lost.
    assert_eq!(counts(&case), (400, 100, 300));
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!(latency.percentiles["p20"], Some(2_000_000));
    assert_eq!(latency.percentiles["p50"], None);
    assert_eq!(latency.mean_fastest_95_percent, None);
}

#[test]
fn a_run_by_time_stops_at_the_exact_instant() {
    let case = echo(
        "url = \"mem://far?delay=1h\"\nworkload = \"latency\"\ntime = \"1s\"\ntimeout = \"300ms\"\nwarm_up_count = 0",
    );
    // The fourth leaves at 900 ms and is given up at 1200.
    assert_eq!(counts(&case), (4, 0, 4));
    assert_eq!(case.elapsed_ns, 1_200_000_000);
}

#[test]
fn late_replies_are_lost_and_counted_as_late() {
    let case = echo(
        "url = \"mem://far?delay=50ms\"\nworkload = \"latency\"\ncount = 50\ntimeout = \"10ms\"\nwarm_up_count = 0\nsize = 8",
    );
    // Requests are sent every 10 ms. All replies arrive after 100 ms, when ten further requests have been given up.
    assert_eq!(counts(&case), (50, 0, 50));
    assert_eq!(case.figures.counts.late, 40);
    assert_eq!((case.figures.counts.corrupt_messages, case.figures.byte_errors.corrupt_bytes), (0, 0));
}

#[test]
fn the_longest_measurement_of_a_server_may_drain_a_slow_link() {
    // Two megabytes wait in the buffer when the client has sent for 30 s: 17 s more at this rate.
    let limits = ServerLimits { duration_s: 30, ..ServerLimits::default() };
    let run = VirtualNet::serving_within("linkgauge", limits).run(
        "[[case]]\nurl = \"mem://far?rate=1Mbit/s&buffer=2Mi\"\nworkload = \"throughput\"\ntime = \"30s\"\nsize = 1000\n\
         probe = false",
    );
    let case = one(run);
    assert_eq!(case.figures.counts.sent, case.figures.counts.received);
    assert_eq!(case.figures.delivery.throughput_bps, Some(1e6));
    assert!(case.figures.delivery.delivered_bytes.unwrap() > 125_000 * 46);
}

#[test]
fn several_ports_and_connections_run_side_by_side() {
    let run = VirtualNet::serving("linkgauge").run(
        "[[case]]\nurl = \"mem://far0?delay=1ms\"\nports = 4\nparallel = 2\nworkload = \"latency\"\ncount = 100\n\
         warm_up_count = 0",
    );
    let case = one(run);
    assert_eq!(counts(&case), (800, 800, 0));
    assert_eq!((case.ports, case.parallel, case.per_port.len()), (4, 2, 4));
    // Side by side they take the time of one.
    assert_eq!(case.elapsed_ns, 200_000_000);
    let latency = case.figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (2_000_000, 2_000_000));
    for (number, port) in case.per_port.iter().enumerate() {
        assert_eq!(port.endpoint, format!("mem://far{number}?delay=1ms"));
        assert_eq!((port.figures.counts.sent, port.figures.counts.received), (200, 200));
    }

    let run = VirtualNet::serving("linkgauge").run(
        "[[case]]\nurl = \"mem://far0?rate=8Mbit/s\"\nports = 3\nworkload = \"throughput\"\ndirection = \"both\"\n\
         volume = \"200k\"\nsize = 1000\nprobe = false",
    );
    let case = one(run);
    assert_eq!(case.figures.delivery.delivered_bytes, Some(600_000));
    assert_eq!(case.figures.delivery.delivered_reverse_bytes, Some(600_000));
    for port in &case.per_port {
        assert!((port.figures.delivery.throughput_bps.unwrap() - 8e6).abs() < 1.0);
        assert!((port.figures.delivery.throughput_reverse_bps.unwrap() - 8e6).abs() < 1.0);
    }
    assert!((case.figures.delivery.throughput_bps.unwrap() - 24e6).abs() < 50e3, "less three first messages");
}

/// 1000 bytes take 1 ms on the line that all connections share, so requests that left together would wait for each other.
#[test]
fn connections_share_one_schedule_and_take_turns() {
    let link = "mem://far?rate=8Mbit/s&delay=1ms&share=yes";
    let case = session(&format!(
        "url = \"{link}\"\nworkload = \"latency\"\nsize = 1000\nparallel = 10\nrate = \"1000/s\"\ntime = \"2s\"\n\
         warm_up_time = \"100ms\""
    ));
    assert_eq!(counts(&case), (2000, 2000, 0));
    assert_eq!(case.figures.counts.late_sends, 0);
    let times = &case.figures.times;
    for times in [times.latency_ns.as_ref().unwrap(), times.response_ns.as_ref().unwrap()] {
        assert_eq!((times.min, times.max), (4_000_000, 4_000_000));
    }
    // From the first request to the last reply.
    let rate = case.figures.delivery.messages_per_second.unwrap();
    assert_eq!(rate, 2000.0 * 1e9 / (1_999_000_000.0 + 4_000_000.0));
    let flows = case.figures.flows.as_ref().unwrap();
    assert_eq!((flows.count, flows.fairness, flows.min_max_ratio), (10, 1.0, 1.0));
    assert_eq!((flows.mean_min_ns, flows.mean_max_ns), (Some(4e6), Some(4e6)));
    assert_eq!(flows.slowest_flows.len(), 5);
    assert_eq!(flows.slowest_flows[0].transferred, 200);
    assert_eq!(case.settings_label(), "1000/s");

    // Faster than the line: the response time holds the wait for it, and every connection gets the same part.
    let case = session(&format!(
        "url = \"{link}\"\nworkload = \"latency\"\nsize = 1000\nparallel = 10\nrate = \"1250/s\"\ntime = \"1s\"\n\
         warm_up_count = 0\ntimeout = \"9s\""
    ));
    assert_eq!(counts(&case), (1250, 1250, 0));
    let response = case.figures.times.response_ns.as_ref().unwrap();
    // Each request waits 0.2 ms longer than the one before.
    assert_eq!((response.min, response.max), (4_000_000, 4_000_000 + 1249 * 200_000));
    let flows = case.figures.flows.as_ref().unwrap();
    assert_eq!((flows.min_max_ratio, flows.mean_max_ns), (1.0, Some(4e6 + 629.0 * 2e5)));
}

/// A schedule slower than the time of the measurement gives few connections a turn, and none of them waits for it.
#[test]
fn a_shared_schedule_ends_with_the_time() {
    let case = session(
        "url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\nparallel = 20\nrate = \"10/s\"\ntime = \"1s\"\n\
         warm_up_count = 0",
    );
    assert_eq!(counts(&case), (10, 10, 0));
    assert!(case.elapsed_ns < 1_010_000_000, "{}", case.elapsed_ns);
    let flows = case.figures.flows.as_ref().unwrap();
    assert_eq!((flows.count, flows.fairness, flows.min_max_ratio), (20, 0.5, 0.0));
}

#[test]
fn connections_have_random_gaps_of_their_own() {
    let case = session(
        "url = \"mem://far?delay=1ms\"\nworkload = \"latency\"\nparallel = 20\nrate = \"2000/s\"\npoisson = true\n\
         time = \"5s\"\nwarm_up_count = 0",
    );
    let (sent, received, lost) = counts(&case);
    // The mean of the number is its variance.
    assert!(sent.abs_diff(10_000) < 400 && received == sent && lost == 0, "{sent}");
    let flows = case.figures.flows.as_ref().unwrap();
    assert!(flows.fairness > 0.99 && flows.min_max_ratio < 0.95, "{flows:?}");
    assert_eq!(case.figures.times.response_ns.as_ref().unwrap().max, 2_000_000);
}

#[test]
fn a_probe_runs_beside_a_load_and_ends_with_it() {
    let case = session(
        "url = \"mem://far?rate=8Mbit/s&delay=2ms\"\nworkload = \"throughput\"\ntime = \"1s\"\nsize = 1000\nprobe = \"100/s\"",
    );
    assert!((case.figures.delivery.throughput_bps.unwrap() - 8e6).abs() < 1.0);
    let probe = case.under_load.unwrap();
    assert_eq!(probe.counts.lost, 0, "what is on its way at the end is not lost");
    assert!(probe.counts.sent >= 100 && probe.counts.sent == probe.counts.received, "{:?}", probe.counts);
    let latency = probe.times.latency_ns.unwrap();
    // 14 bytes in both directions on its own line.
    assert_eq!((latency.min, latency.max), (4_028_000, 4_028_000));
}

#[test]
fn a_probe_shows_what_the_load_adds_and_when_the_link_has_recovered() {
    // All connections share a queue of 64 KiB at 1 Mbit/s: 524 ms, of which 20 ms are the delay behind it. Forward and
    // reverse delay: 20 ms each.
    let link = "mem://far?rate=1Mbit/s&delay=20ms&buffer=64Ki&share=yes";
    for direction in ["send", "receive"] {
        let case = session(&format!(
            "url = \"{link}\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\ntime = \"3s\"\n\
             size = 1000\nprobe = \"50/s\"\nidle = \"1s\""
        ));
        let added = case.figures.added_latency.unwrap();
        // 14 bytes in both directions.
        assert_eq!(added.idle_p50_ns, 40_224_000.0, "{direction}");
        // The buffer also holds what is on its way behind the queue.
        let queue_ns = (65_536.0 - 2_500.0) * 8e3;
        assert!((added.added_p50_ns.unwrap() / queue_ns - 1.0).abs() < 0.01, "{direction}: {added:?}");
        assert!(added.added_p95_ns >= added.added_p50_ns && added.added_p99_ns.is_none());
        // The sender at the server begins and ends one delay before the client sees it.
        assert!((added.recovery_ns.unwrap() - queue_ns).abs() < 41e6, "{direction}: {added:?}");
        let probes = |figures: &Option<linkgauge::run::Figures>| figures.as_ref().unwrap().counts.received;
        assert_eq!(probes(&case.idle), 48, "1 s at 50/s, without the last replies, which may meet the load");
        assert!(probes(&case.under_load) >= 150 && case.idle_series.len() == 10);
        // The rates and the time are those of the load alone.
        assert!((case.figures.delivery.throughput_bps.unwrap() / 1e6 - 1.0).abs() < 0.01);
        assert!((3_490_000_000..3_520_000_000).contains(&case.elapsed_ns), "{}", case.elapsed_ns);
        let recovery = &case.recovery_series;
        let start = recovery.first().unwrap().start_ns;
        assert!(start >= 2_990_000_000 && recovery.last().unwrap().latency_max_ns.unwrap() < 41_000_000);
    }
}

#[test]
fn repetitions_are_interleaved_and_their_rates_exclude_the_time_between() {
    let run = VirtualNet::serving("linkgauge").run(
        "repeat = 6\n[defaults]\nworkload = \"latency\"\ncount = 50\nwarm_up_count = 0\n\
         [[case]]\nurl = \"mem://far?delay=1ms\"\n[[case]]\nurl = \"mem://far?delay=5ms\"",
    );
    assert!(run.is_complete());
    for (case, round_trip) in run.cases.iter().zip([2_000_000, 10_000_000]) {
        assert_eq!(counts(case), (300, 300, 0));
        assert_eq!(case.repeats.len(), 6);
        assert_eq!(case.elapsed_ns, 300 * round_trip);
        assert_eq!(case.figures.delivery.messages_per_second, Some(1e9 / round_trip as f64));
        let interval = &case.figures.intervals["latency_ns.p50"];
        assert_eq!((interval.low, interval.high), (round_trip as f64, round_trip as f64));
    }
}

#[test]
fn too_few_repetitions_have_no_interval() {
    let run = VirtualNet::serving("linkgauge").run(
        "repeat = 2\n[[case]]\nurl = \"mem://far?delay=1ms\"\nworkload = \"latency\"\ncount = 500\nwarm_up_count = 0",
    );
    assert!(!run.cases[0].figures.intervals.contains_key("latency_ns.p50"));
}

#[test]
fn a_session_opens_through_losses_copies_and_overtaking() {
    for every in 2..12 {
        for options in ["drop", "double", "swap"] {
            let case = session(&format!(
                "url = \"mem://far-lossy?type=message&delay=1ms&{options}={every}\"\nworkload = \"throughput\"\n\
                 direction = \"both\"\ncount = 50\nsize = 32\nprobe = false"
            ));
            assert_eq!(case.figures.counts.sent, 100, "{options}={every}");
            assert_eq!(case.figures.counts.corrupt_messages, 0, "{options}={every}");
            assert!(
                case.figures.counts.received >= 40,
                "{options}={every}: {}",
                case.figures.counts.received
            );
        }
    }
}

#[test]
fn a_session_opens_over_a_link_slower_than_its_repetitions() {
    // A request is repeated after 200 ms; its reply takes 600 ms, and copies of it arrive for a while.
    let case = session(
        "url = \"mem://far-lossy?type=message&delay=300ms&drop=1000\"\nworkload = \"latency\"\ncount = 20\nsize = 8\n\
         warm_up_count = 0\ntimeout = \"1s\"",
    );
    assert_eq!(counts(&case), (20, 20, 0));
    assert_eq!(case.figures.times.latency_ns.unwrap().max, 600_000_000);
}

#[test]
fn a_message_larger_than_every_buffer_returns() {
    let case = echo(
        "url = \"mem://far?buffer=64Ki\"\nworkload = \"latency\"\nsize = \"3M\"\ncount = 3\nwarm_up_count = 0",
    );
    assert_eq!(counts(&case), (3, 3, 0));
    assert_eq!(case.figures.byte_errors.corrupt_bytes, 0);
}

#[test]
fn the_whole_document_is_as_it_was() {
    let run = VirtualNet::serving("linkgauge").run(
        "title = \"snapshot\"\nrepeat = 2\n[[case]]\nurl = \"mem://far0?delay=1ms&rate=8Mbit/s\"\nports = 2\n\
         workload = \"latency\"\nsize = 10\ncount = 4\nrate = \"100/s\"\nwarm_up_count = 1\n\
         [[case]]\nurl = \"mem://far-messages?type=message&rate=8Mbit/s\"\nworkload = \"throughput\"\nvolume = \"20k\"\n\
         size = 1000\nprobe = \"50/s\"",
    );
    insta::assert_json_snapshot!(run, {
        ".id" => "[id]",
        ".tool" => "[tool]",
        ".started" => "[started]",
        ".environment" => "[environment]",
        // It depends on the length of the session messages, which changes with the version.
        ".elapsed_ns" => "[elapsed]",
        ".cases[].effective.server_tool" => "[tool]",
    });
}
