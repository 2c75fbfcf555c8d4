//! Missed frames and losses of a schedule of 60 messages a second, against the shaper's own account of each datagram: the
//! same to the last one on the virtual clock; in real time every difference is a sample that came late.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::link::party::drive;
use linkgauge::link::shaped::{MessageLog, Occurrence, Shape, ShapedLink, SharedPath};
use linkgauge::plan::Plan;
use linkgauge::run::{Figures, MissedFrame, Run};
use linkgauge::sample::{RecordedTimes, Recorder};
use linkgauge::schedule;
use linkgauge::workload::RecordingParty;
use linkgauge::workload::latency::{EchoCodec, Pinger};
use rustix::process::Signal;

use super::echo_server::EchoServer;
use super::program::{Running, run};
use super::virtual_net::VirtualNet;

const MS: u64 = 1_000_000;
/// The default limits of a schedule.
const LIMITS: [(&str, u64); 3] = [("16.7", 16_700_000), ("50", 50 * MS), ("100", 100 * MS)];

/// How many missed each limit, by their responses; none is a lost one.
fn counts(responses: &[Option<u64>]) -> BTreeMap<String, u64> {
    let missed = |limit| responses.iter().filter(|response| response.is_none_or(|ns| ns > limit)).count();
    LIMITS.iter().map(|(name, limit)| ((*name).to_owned(), missed(*limit) as u64)).collect()
}

#[test]
fn on_the_virtual_clock_missed_frames_match_the_log() {
    let url = "mem://far-messages?type=message&delay=2ms";
    let plan = format!(
        "[[case]]\nurl = \"{url}\"\nprotocol = \"echo\"\nworkload = \"latency\"\nsize = 32\nrate = \"60/s\"\ncount = 3000\n\
         warm_up_count = 0"
    );
    let plan = schedule::check(Plan::from_toml(&plan).unwrap(), Registry::standard()).unwrap();
    let case = plan.cases().next().unwrap();
    let net = VirtualNet::serving("echo");
    let shape = Shape {
        delay: Duration::from_millis(2),
        tail: Duration::from_micros(150),
        loss: Occurrence::Share(0.02),
        spike_occurrence: Occurrence::Share(0.02),
        spike_delay: Duration::from_millis(300),
        ..Shape::NONE
    };
    let path = SharedPath::new(shape, 1);
    let deeds = Arc::new(Mutex::new(Vec::new()));
    let message = deeds.clone();
    path.set_log(Some(MessageLog(Box::new(move |deed| message.lock().unwrap().push(deed)))));
    let inner = net.dialer.open(&url.parse().unwrap()).unwrap();
    let mut link = ShapedLink::new(inner, &net.dialer.clock, &path);
    let caps = linkgauge::link::Link::caps(&link).clone();
    let mut recorder = Recorder::new(RecordedTimes::ServiceAndResponse, 1_000_000_000, Arc::default(), None);
    recorder.watch_missed_frames(&case.late_limits, None);
    let mut pinger = Pinger::new(Box::new(EchoCodec::new(&case.load, &caps)), &case.load, &caps, recorder);
    drive(&mut pinger, &mut link, &net.dialer.clock, &AtomicBool::new(false), Duration::MAX).unwrap();
    let figures = Box::new(pinger).into_recorder().latency_figures(&case.late_limits);

    let deeds = deeds.lock().unwrap();
    // The round trip without shaping.
    let plain = 4 * MS;
    let responses: Vec<Option<u64>> =
        deeds.iter().map(|deed| deed.delay.map(|delay| plain + delay.as_nanos() as u64)).collect();
    let lost = responses.iter().filter(|response| response.is_none()).count() as u64;
    assert!((20..120).contains(&lost), "{lost}");
    assert_eq!(
        (deeds.len() as u64, figures.counts.sent, figures.counts.lost, figures.counts.late_sends),
        (3000, 3000, lost, 0)
    );
    let missed = figures.times.missed_frames.unwrap();
    assert_eq!(missed.count_later_than_ms, counts(&responses));
    let late =
        deeds.iter().zip(&responses).filter(|(_, response)| response.is_none_or(|ns| ns > LIMITS[0].1));
    let listed: Vec<MissedFrame> = late
        .map(|(deed, response)| MissedFrame {
            repetition: None,
            sequence: deed.number,
            due_ns: (deed.arrival - deeds[0].arrival).as_nanos() as u64,
            response_ns: *response,
        })
        .collect();
    assert!(listed.len() > 60, "{}", listed.len());
    assert_eq!(missed.first, listed);
    let later = &figures.times.response_ns.unwrap().later_than_ms;
    assert!(missed.count_later_than_ms.iter().all(|(limit, count)| later[limit] == *count as f64 / 3000.0));
}

/// A line of the shaper's log: when it came and its delay, unless it did not arrive.
type Logged = (u64, Option<u64>);

/// The fate of the datagrams of a direction, by their numbers.
fn logged(log: &Path, direction: &str) -> Vec<Logged> {
    let mut reader = csv::Reader::from_path(log).unwrap();
    let all = reader.records().map(Result::unwrap).filter(|line| &line[0] == direction);
    all.enumerate()
        .map(|(number, line)| {
            assert_eq!((line[1].parse(), line[5].is_empty()), (Ok(number), &line[4] == "lost"), "{line:?}");
            (line[2].parse().unwrap(), line[5].parse().ok())
        })
        .collect()
}

/// The delay of each round trip by the log: the sum of both delays, unless one of the two datagrams was lost.
fn by_the_log(log: &Path) -> Vec<Option<u64>> {
    let (up, down) = (logged(log, "up"), logged(log, "down"));
    // The server replies in the order in which requests arrive.
    let mut out: Vec<usize> = (0..up.len()).filter(|number| up[*number].1.is_some()).collect();
    out.sort_by_key(|number| up[*number].0 + up[*number].1.unwrap_or(0));
    assert_eq!(out.len(), down.len(), "every request that arrives gets a reply");
    let mut responses = vec![None; up.len()];
    for (number, (_, back)) in out.into_iter().zip(down) {
        responses[number] = up[number].1.zip(back).map(|(there, back)| there + back);
    }
    responses
}

#[test]
#[ignore = "long"]
fn in_real_time_every_difference_is_a_sample_that_came_late() {
    const COUNT: usize = 180;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log.csv");
    let server = EchoServer::listen("udp://127.0.0.1:0");
    let mut shaper = Running::start(&[
        "lab",
        "shaper",
        "--listen",
        "udp://127.0.0.1:0",
        "--to",
        &server.endpoint.to_string(),
        "--delay",
        "2ms",
        "--loss",
        "2%",
        "--spike",
        "300ms@2%",
        "--log",
        log.to_str().unwrap(),
    ]);
    let mut first = String::new();
    BufReader::new(shaper.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let url = first.trim().rsplit(' ').next().unwrap();
    // A busy machine may delay a reply; it must not count as lost.
    let ended = run(&[
        "latency",
        url,
        "--protocol",
        "echo",
        "--size",
        "32",
        "--rate",
        "60/s",
        "--count",
        &COUNT.to_string(),
        "--warm-up",
        "0",
        "--timeout",
        "6s",
        "--repeat",
        "1",
        "--json",
        "-",
    ]);
    shaper.signal(Signal::TERM);
    assert_eq!(shaper.wait().code(), Some(0));
    let document: Run = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let figures: &Figures = &document.cases[0].figures;

    let logged = by_the_log(&log);
    let lost = logged.iter().filter(|response| response.is_none()).count();
    assert!((1..20).contains(&lost), "the seed decides: {lost}");
    assert_eq!((logged.len(), figures.counts.sent, figures.counts.lost), (COUNT, COUNT as u64, lost as u64));

    let missed = figures.times.missed_frames.as_ref().unwrap();
    let mut responses = logged.clone();
    for frame in &missed.first {
        let number = frame.sequence as usize;
        let logged = logged[number];
        assert_eq!(frame.response_ns.is_none(), logged.is_none(), "{frame:?}");
        // Nothing is early; a response time above that of the log is a delay of this machine.
        assert!(frame.response_ns >= logged, "{frame:?} {logged:?}");
        responses[number] = frame.response_ns;
    }
    assert_eq!(missed.count_later_than_ms, counts(&responses), "every difference is listed");
}
