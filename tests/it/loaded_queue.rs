//! Latency under load beside the log of the queue that causes it, on the virtual clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkgauge::lab::shaper::{LinkProfile, PROFILES, default_queue_bytes};
use linkgauge::link::shaped::{MessageFate, MessageLog, MessageRecord, QueueManagement, Shape, SharedPath};
use linkgauge::run::CaseResult;

use crate::virtual_net::VirtualNet;

/// An asymmetric line: bits per second from the client and to it, half the round trip, and the time of its queues.
const RATES_BPS: [f64; 2] = [5e6, 20e6];
const DELAY: Duration = Duration::from_millis(10);
const QUEUE: Duration = Duration::from_millis(200);

/// Longer than any message of a probe.
const LOAD_BYTES: usize = 1000;

/// What a path did with each message.
type Log = Arc<Mutex<Vec<MessageRecord>>>;

/// One direction of the line.
fn shape(bits_per_second: f64, queue_management: QueueManagement) -> Shape {
    let queue_bytes = (bits_per_second / 8.0 * QUEUE.as_secs_f64()) as u64;
    Shape { delay: DELAY, bits_per_second, queue_bytes, queue_management, ..Shape::NONE }
}

fn logged_path(shape: Shape) -> (SharedPath, Log) {
    let (path, log) = (SharedPath::new(shape, 1), Log::default());
    let records = log.clone();
    path.set_log(Some(MessageLog(Box::new(move |record| records.lock().unwrap().push(record)))));
    (path, log)
}

/// Loads the line with a multiple of its rate for 4 s; the case, and the log of the loaded direction.
fn loaded(
    direction: &str,
    queue_management: QueueManagement,
    overload: f64,
) -> (CaseResult, Vec<MessageRecord>) {
    let shapes = RATES_BPS.map(|rate| shape(rate, queue_management));
    loaded_link(direction, shapes, (overload, "4s"))
}

/// Loads a link of these shapes, upload and download, with a multiple of its rate for a time.
fn loaded_link(
    direction: &str,
    shapes: [Shape; 2],
    (overload, time): (f64, &str),
) -> (CaseResult, Vec<MessageRecord>) {
    let url = "mem://far-messages?type=message&share=yes";
    let net = VirtualNet::serving("linkgauge");
    let rates = [shapes[0].bits_per_second, shapes[1].bits_per_second];
    let [(up, up_log), (down, down_log)] = shapes.map(logged_path);
    net.dialer.memory_network.share_paths(url, [up, down]);
    let (log, rate_bps) = if direction == "send" { (up_log, rates[0]) } else { (down_log, rates[1]) };
    let mut run = net.run(&format!(
        "[[case]]\nurl = \"{url}\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\ntime = \"{time}\"\n\
         bit_rate = \"{}bit/s\"\nsize = {LOAD_BYTES}\nprobe = \"50/s\"\nidle = \"1s\"\nprotocol = \"linkgauge\"\n\
         protocol_options = {{ one-way = \"1\" }}",
        rate_bps * overload
    ));
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    let records = std::mem::take(&mut *log.lock().unwrap());
    (run.cases.remove(0), records)
}

/// Times that the messages of the load waited in the queue, in nanoseconds and in the order of time.
fn waits_ns(log: &[MessageRecord], bits_per_second: f64, delay: Duration) -> Vec<f64> {
    let on_the_line = LOAD_BYTES as f64 * 8e9 / bits_per_second;
    let passed = log.iter().filter(|record| record.bytes == LOAD_BYTES && record.fate == MessageFate::Passed);
    passed.map(|record| (record.delay.unwrap() - delay).as_nanos() as f64 - on_the_line).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_added_latency_and_the_recovery_are_those_of_the_queue() {
    for (direction, rate) in [("send", RATES_BPS[0]), ("receive", RATES_BPS[1])] {
        let (case, log) = loaded(direction, QueueManagement::TailDrop, 1.2);
        let added = case.figures.added_latency.unwrap();
        let waits = waits_ns(&log, rate, DELAY);
        let wait_ns = median(waits.clone());
        assert!((wait_ns / QUEUE.as_nanos() as f64 - 1.0).abs() < 0.02, "{direction}: {wait_ns}");
        let close = |ns: Option<f64>, expected: f64| (ns.unwrap() / expected - 1.0).abs() < 0.05;
        assert!(close(added.added_p50_ns, wait_ns), "{direction}: {added:?}, the queue: {wait_ns}");
        let (loaded, other) = match direction {
            "send" => (added.added_forward_p50_ns, added.added_reverse_p50_ns),
            _ => (added.added_reverse_p50_ns, added.added_forward_p50_ns),
        };
        assert!(close(loaded, wait_ns) && other.unwrap() < 1e6, "{direction}: {added:?}");
        // The queue is empty when its last message has left.
        let last_wait_ns = *waits.last().unwrap();
        assert!((added.recovery_ns.unwrap() - last_wait_ns).abs() < 100e6, "{direction}: {added:?}");
    }
}

#[test]
fn codel_leaves_little_of_the_queue() {
    for (direction, rate) in [("send", RATES_BPS[0]), ("receive", RATES_BPS[1])] {
        // A sender that does not slow down needs more drops each second than CoDel begins with.
        let (case, log) = loaded(direction, QueueManagement::Codel, 1.02);
        let added_ns = case.figures.added_latency.unwrap().added_p50_ns.unwrap();
        let wait_ns = median(waits_ns(&log, rate, DELAY));
        assert!((added_ns - wait_ns).abs() < 2e6, "{direction}: {added_ns}, the queue: {wait_ns}");
        assert!(added_ns < 10e6, "{direction}: {added_ns}");
        assert!(log.iter().any(|record| record.fate == MessageFate::Managed), "{direction}");
        // Without it the queue grows.
        let (case, _) = loaded(direction, QueueManagement::TailDrop, 1.02);
        assert!(case.figures.added_latency.unwrap().added_p50_ns.unwrap() > 30e6, "{direction}");
    }
}

/// Links on which a load takes the longest to be seen: by their delay, or by their queue.
fn slow_profiles() -> impl Iterator<Item = &'static LinkProfile> {
    PROFILES.iter().filter(|profile| ["satellite", "dsl", "lte"].contains(&profile.name))
}

/// Both directions of a profile, with the queues that the shaper gives them.
fn profile_shapes(profile: &LinkProfile) -> [Shape; 2] {
    [profile.rate_up, profile.rate_down].map(|bits_per_second| {
        let queue_bytes = default_queue_bytes(bits_per_second);
        Shape { bits_per_second, queue_bytes, ..profile.shape.clone() }
    })
}

#[test]
fn a_profile_adds_the_latency_of_its_queue() {
    assert_eq!(slow_profiles().count(), 3);
    for profile in slow_profiles() {
        let shapes = profile_shapes(profile);
        for (direction, Shape { bits_per_second, delay, .. }) in
            [("send", &shapes[0]), ("receive", &shapes[1])]
        {
            let what = format!("{} {direction}", profile.name);
            // No multiple of the rate of the probes: one that arrived with a message would always find the queue full.
            let (case, log) = loaded_link(direction, shapes.clone(), (1.93, "10s"));
            let added = case.figures.added_latency.unwrap();
            let (idle_ns, least_ns) = (added.idle_p50_ns, 2.0 * delay.as_nanos() as f64);
            assert!(idle_ns >= least_ns && idle_ns < least_ns + 10e6, "{what}: {added:?}");
            let waits = waits_ns(&log, *bits_per_second, *delay);
            let wait_ns = median(waits.clone());
            let added_ns = added.added_p50_ns.unwrap_or_else(|| panic!("{what}: {added:?} {wait_ns}"));
            assert!((added_ns / wait_ns - 1.0).abs() < 0.05, "{what}: {added:?} {wait_ns}");
            // The queue is empty when its last message has left.
            let recovery_ns = added.recovery_ns.unwrap_or_else(|| panic!("{what}: {added:?}"));
            assert!((recovery_ns - waits.last().unwrap()).abs() < 100e6, "{what}: {added:?}");
        }
    }
}

/// A throughput test over the stream of a profile, whose buffers hold the queue; `times` are those of load and idle link. The
/// last value is the time that passed.
fn stream_over(
    profile: &LinkProfile,
    direction: &str,
    repeat: u32,
    times: [&str; 2],
) -> (CaseResult, Shape, Duration) {
    let [time, idle] = times;
    let shapes = profile_shapes(profile);
    let shape = shapes[usize::from(direction == "receive")].clone();
    // What a stream sends waits here: the bytes on the way take room as well.
    let in_transit = (shape.bits_per_second / 8.0 * shape.delay.as_secs_f64()) as u64;
    let url = format!("mem://far?share=yes&buffer={}", shape.queue_bytes + in_transit);
    let net = VirtualNet::serving("linkgauge");
    net.dialer.memory_network.share_paths(&url, shapes.map(|shape| SharedPath::new(shape, 1)));
    let began = net.dialer.now();
    let mut run = net.run(&format!(
        "repeat = {repeat}\n[[case]]\nurl = \"{url}\"\nworkload = \"throughput\"\ndirection = \"{direction}\"\n\
         time = \"{time}\"\nidle = \"{idle}\"\n\
         protocol = \"linkgauge\"\nsize = 1460"
    ));
    let case = run.cases.remove(0);
    assert!(case.complete, "{} {direction}: {:?}", profile.name, case.warnings);
    (case, shape, net.dialer.now().since(began))
}

/// Messages from the client and back before a measurement: hello, open, plan, attach and start.
const SET_UP_ROUND_TRIPS: u32 = 5;

#[test]
fn a_transfer_ends_when_its_queue_has_drained() {
    for profile in slow_profiles() {
        for direction in ["send", "receive"] {
            let (case, shape, elapsed) = stream_over(profile, direction, 1, ["3s", "500ms"]);
            let round_trip = 2 * shape.delay;
            let idle = Duration::from_millis(500).max(2 * round_trip);
            let drain = Duration::from_nanos(case.figures.delivery.drain_ns.unwrap());
            // One round trip sees that the queue is empty.
            let most = SET_UP_ROUND_TRIPS * round_trip
                + idle
                + Duration::from_secs(3)
                + drain.max(idle)
                + round_trip
                + Duration::from_millis(400);
            println!("{} {direction}: {elapsed:?} of {most:?}, drain {drain:?}", profile.name);
            assert!(elapsed <= most, "{} {direction}: {elapsed:?}, at most {most:?}", profile.name);
        }
    }
}

#[test]
fn a_queue_longer_than_the_load_arrives_as_a_whole() {
    // 8.4 s of data wait in the queue after 2 s.
    for direction in ["send", "receive"] {
        let mut run = VirtualNet::serving("linkgauge").run(&format!(
            "[[case]]\nurl = \"mem://far?rate=400kbit/s&buffer=420000\"\nworkload = \"throughput\"\n\
             direction = \"{direction}\"\ntime = \"2s\"\ninterval = \"500ms\"\nprotocol = \"linkgauge\"\nsize = 1460"
        ));
        let case = run.cases.remove(0);
        assert!(case.complete, "{direction}: {:?}", case.warnings);
        let delivery = case.figures.delivery;
        let drained = delivery.drain_ns.unwrap() as f64 / 1e9;
        assert!((8.0..9.0).contains(&drained), "{direction}: {drained}");
        assert!((delivery.throughput_bps.unwrap() / 400e3 - 1.0).abs() < 0.01, "{direction}: {delivery:?}");
        let whole = &case.series[..case.series.len() - 1];
        let arrived: u64 = case.series.iter().map(|entry| entry.bytes).sum();
        assert_eq!(Some(arrived), delivery.delivered_bytes, "{direction}");
        assert!(whole.iter().all(|entry| entry.bytes.abs_diff(25_000) < 3_000), "{direction}: {whole:?}");
    }
}

#[test]
#[ignore = "long"]
fn a_stream_over_a_profile_is_seen_idle_loaded_and_recovered() {
    for (profile, time, idle) in slow_profiles().flat_map(|profile| {
        // Short measurements have a short time on the idle link, unless its round trips are long.
        [("10s", "1s"), ("3s", "300ms")].map(|(time, idle)| (profile, time, idle))
    }) {
        for direction in ["send", "receive"] {
            let what = format!("{} {direction} {time}", profile.name);
            let (case, shape, _) = stream_over(profile, direction, 1, [time, idle]);
            let added = case.figures.added_latency.unwrap_or_else(|| panic!("{what}: no idle link"));
            let least_ns = 2.0 * shape.delay.as_nanos() as f64;
            assert!((least_ns..least_ns + 10e6).contains(&added.idle_p50_ns), "{what}: {added:?}");
            let queue_ns = shape.transmission_time(shape.queue_bytes).as_nanos() as f64;
            let added_ns = added.added_p50_ns.unwrap_or_else(|| panic!("{what}: {added:?}"));
            assert!((added_ns / queue_ns - 1.0).abs() < 0.05, "{what}: {added_ns} {queue_ns}");
            assert!(added.recovery_ns.is_some(), "{what}: {added:?}");
        }
    }
}

#[test]
fn repetitions_shorter_than_the_queue_wait_for_the_replies() {
    let dsl = slow_profiles().find(|profile| profile.name == "dsl").unwrap();
    let (case, shape, _) = stream_over(dsl, "send", 5, ["800ms", "1s"]);
    let queue_ns = shape.transmission_time(shape.queue_bytes).as_nanos() as f64;
    assert!(queue_ns > 800e6, "the queue is longer than a repetition");
    let added = case.figures.added_latency.expect("an idle link");
    // It fills during a repetition, so that the requests find a part of it.
    let added_ns = added.added_p50_ns.unwrap_or_else(|| panic!("{added:?}"));
    assert!((0.3..1.05).contains(&(added_ns / queue_ns)), "{added_ns} {queue_ns}");
}
