//! Hostile ends against every protocol, in both roles: a case ends in bounded time and memory, without a panic and
//! without a false figure.
//!
//! [`ATTACKED_PROTOCOLS`] has a line for each protocol of the registry; a test compares the two. The workloads,
//! directions and links come from the protocol itself, so a new one needs only that line. Most rows run on the virtual
//! clock, each protocol in its own process, so that its peak memory can be measured and an endless loop ended.

mod kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Batch, Caps, Dialer, Fault, Link};
use linkgauge::plan::{Direction, Plan};
use linkgauge::protocol::{Protocol, ServerLimits, Service};
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{self, CheckedPlan, RunContext};
use linkgauge::serve::Server;

use crate::memory::status_kib;
use crate::virtual_net::service;
use kit::{BARE, MANNERS, Manner, Meddler, Mirror, Sockets, absurd};

/// The properties of a protocol that the rows need.
struct AttackedProtocol {
    name: &'static str,
    /// The options that a plan needs for it.
    options: &'static str,
    /// Time beyond the case's own time and the timeout that the protocol may take.
    more_time: Duration,
    /// Whatever comes is taken for a reply, because replies carry no number.
    believes_all: bool,
    /// A server that sends nothing is honest if it reads.
    one_way: bool,
    /// What its workloads need and the links of the virtual clock lack. Other tests run them.
    needs: Option<&'static str>,
}

const PLAIN: AttackedProtocol = AttackedProtocol {
    name: "",
    options: "",
    more_time: Duration::ZERO,
    believes_all: false,
    one_way: false,
    needs: None,
};

const ATTACKED_PROTOCOLS: &[AttackedProtocol] = &[
    // A server has the timeout and 2 s to end, and 3 s more after the request to cut it.
    AttackedProtocol {
        name: "linkgauge",
        options: "probe = false",
        more_time: Duration::from_secs(5),
        ..PLAIN
    },
    AttackedProtocol { name: "echo", ..PLAIN },
    AttackedProtocol { name: "discard", one_way: true, ..PLAIN },
    AttackedProtocol { name: "chargen", believes_all: true, ..PLAIN },
    AttackedProtocol { name: "stamp", ..PLAIN },
    AttackedProtocol { name: "twamp-light", ..PLAIN },
    // Its control connection is one of TCP: `twamp.rs` has hostile servers.
    AttackedProtocol { name: "twamp", needs: Some("TCP and UDP"), ..PLAIN },
    AttackedProtocol { name: "irtt", ..PLAIN },
    AttackedProtocol { name: "sockperf", ..PLAIN },
    AttackedProtocol {
        name: "ask",
        options: "protocol_options = { send = \"PING\\\\n\", reply-end = \"\\\\n\" }",
        believes_all: true,
        ..PLAIN
    },
    AttackedProtocol { name: "modbus", ..PLAIN },
    // Besides the timeout of each message, a server may take 5 s to receive the data in flight before it reports.
    AttackedProtocol { name: "iperf3", more_time: Duration::from_secs(5), ..PLAIN },
    AttackedProtocol { name: "iperf2", more_time: Duration::from_secs(5), believes_all: true, ..PLAIN },
    AttackedProtocol { name: "udpst", ..PLAIN },
    // Its server alone decides how long it sends: 10 s in old versions, and as long again for what slow links hold.
    AttackedProtocol {
        name: "netio",
        options: "size = 1024",
        more_time: Duration::from_secs(20),
        one_way: true,
        ..PLAIN
    },
    AttackedProtocol {
        name: "pakbus",
        options: "protocol_options = { retries = \"0\", reconnects = \"0\" }",
        ..PLAIN
    },
    // Its first generation speaks over any link with message boundaries.
    AttackedProtocol { name: "tipc-bench", needs: Some("TIPC"), ..PLAIN },
    AttackedProtocol { name: "linx-bmark", ..PLAIN },
    // Nothing is sent or read.
    AttackedProtocol { name: "device", more_time: Duration::from_secs(5), ..PLAIN },
    AttackedProtocol { name: "none", believes_all: true, one_way: true, ..PLAIN },
];

#[test]
fn every_protocol_is_attacked() {
    let attacked: Vec<&str> = ATTACKED_PROTOCOLS.iter().map(|protocol| protocol.name).collect();
    let known: Vec<&str> = Registry::standard().protocols.iter().map(|peer| peer.name).collect();
    assert_eq!(
        attacked, known,
        "each protocol of the registry has a line in ATTACKED_PROTOCOLS of tests/it/hostile.rs"
    );
}

/// The links of the virtual clock: slow, so that whatever happens there takes time.
const LINKS: [&str; 2] = [
    "mem://far?rate=1Mbit/s&delay=1ms&buffer=64Ki",
    "mem://far?type=message&rate=1Mbit/s&delay=1ms&buffer=64Ki",
];
const RATE_BPS: f64 = 1e6;
const ROUND_TRIP_NS: u64 = 2_000_000;
const BUFFERS: u64 = 2 * 65_536;

const PLANNED: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(1);
const LEEWAY: Duration = Duration::from_secs(2);
/// The time that the data in the buffers of a link takes in both directions.
const DRAINING: Duration = Duration::from_millis(1100);

/// Number of honest messages before an end becomes hostile.
const AFTER: [usize; 4] = [0, 1, 2, 5];

/// The plan of a case, if the protocol can do that on such a link.
fn plan(protocol: &AttackedProtocol, url: &str, workload: &str, direction: Direction) -> Option<CheckedPlan> {
    let options = match (protocol.name, workload) {
        ("pakbus", "download") => {
            "protocol_options = { retries = \"0\", reconnects = \"0\", table = \"Bench\" }"
        }
        _ => protocol.options,
    };
    let text = format!(
        "keep_going = true\n[[case]]\nurl = \"{url}\"\nprotocol = \"{}\"\nworkload = \"{workload}\"\ndirection = \"{}\"\n\
         timeout = \"1s\"\ntime = \"300ms\"\n{}\n{options}",
        protocol.name,
        direction.name(),
        if workload == "latency" { "warm_up_count = 0" } else { "" },
    );
    let plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    schedule::check(plan, Registry::standard()).ok()
}

/// All cases of a protocol on these links.
fn plans<'a>(
    protocol: &'a AttackedProtocol,
    urls: &'a [&'a str],
) -> impl Iterator<Item = (String, CheckedPlan)> + 'a {
    let workloads = Registry::standard().workloads_of(known(protocol));
    let cases = workloads.flat_map(|(workload, ways)| ways.iter().map(move |way| (workload.name, *way)));
    cases.flat_map(move |(workload, way)| {
        urls.iter().filter_map(move |url| {
            let name = format!("{workload} {} {url}", way.name());
            Some((name, plan(protocol, url, workload, way)?))
        })
    })
}

fn endpoint(plan: &CheckedPlan) -> &Endpoint {
    &plan.cases().next().unwrap().endpoints[0]
}

fn known(protocol: &AttackedProtocol) -> &'static Protocol {
    Registry::standard().protocol(protocol.name).unwrap()
}

#[test]
fn every_workload_and_direction_is_attacked() {
    for protocol in ATTACKED_PROTOCOLS.iter().filter(|protocol| protocol.needs.is_none()) {
        for (workload, ways) in Registry::standard().workloads_of(known(protocol)) {
            for way in ways {
                let workload = workload.name;
                let any = LINKS.iter().any(|url| plan(protocol, url, workload, *way).is_some());
                assert!(any, "{} {workload} {}", protocol.name, way.name());
            }
        }
    }
}

fn run(plan: &CheckedPlan, dialer: &Dialer) -> Run {
    schedule::run(plan, &mut RunContext::new(dialer.clone(), &()))
}

/// Why a figure of a case cannot be true of those links.
fn false_figure(case: &CaseResult, took: Duration, protocol: &AttackedProtocol) -> Option<String> {
    let figures = &case.figures;
    for rate in
        [figures.delivery.throughput_bps, figures.delivery.throughput_reverse_bps].into_iter().flatten()
    {
        if !(0.0..=1.05 * RATE_BPS).contains(&rate) {
            return Some(format!("{rate} bit/s"));
        }
    }
    let most = (RATE_BPS / 8.0 * took.as_secs_f64()) as u64 + BUFFERS;
    for bytes in
        [figures.delivery.delivered_bytes, figures.delivery.delivered_reverse_bytes].into_iter().flatten()
    {
        if bytes > most {
            return Some(format!("{bytes} bytes delivered in {took:?}"));
        }
    }
    let fastest = figures.times.latency_ns.as_ref().map(|latency| latency.min);
    if fastest.is_some_and(|fastest| fastest < ROUND_TRIP_NS) && !protocol.believes_all {
        return Some(format!("a round trip of {fastest:?} ns"));
    }
    let is_one_way = ["throughput", "capacity"].contains(&case.workload.as_str());
    if !is_one_way && figures.counts.received > figures.counts.sent {
        return Some(format!("{} replies to {} requests", figures.counts.received, figures.counts.sent));
    }
    let cpu = case.cpu.as_ref().and_then(|cpu| cpu.server_seconds);
    cpu.filter(|seconds| !(0.0..=100.0).contains(seconds)).map(|seconds| format!("{seconds} s of CPU"))
}

/// Whether a case may count as complete although the server was hostile from its first message.
fn may_be_complete(case: &CaseResult, protocol: &AttackedProtocol, manner: Manner) -> bool {
    let reads = !matches!(manner, Manner::NeverReads | Manner::Endless | Manner::Close | Manner::Reset);
    let flagged = |warning: &linkgauge::run::Warning| {
        ["corrupt", "lost_bytes", "implausible_report", "unconfirmed", "duplicate", "early"]
            .contains(&warning.code.name())
    };
    protocol.believes_all || protocol.one_way && reads || case.warnings.iter().any(flagged)
}

/// One case against a hostile server; returns the defects of its result.
fn attack(
    protocol: &AttackedProtocol,
    plan: &CheckedPlan,
    manner: Manner,
    after: usize,
) -> Result<(), String> {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let endpoint = endpoint(plan).clone();
    let caps = Registry::standard().transports.caps(&endpoint).unwrap();
    let honest = known(protocol).serve.map(|_| service(protocol.name, ServerLimits::default()));
    let mut listener = dialer.listen(&endpoint).unwrap();
    let hosted = listener.set_party_factory(Box::new(move |from| {
        let honest = honest.as_ref().map(|service| service.new_party(&caps, from));
        Meddler::boxed(honest.unwrap_or_else(|| Box::new(Mirror::new())), manner, after)
    }));
    assert!(hosted.is_ok());
    let began = dialer.now();
    let run = run(plan, &dialer);
    let took = dialer.now().since(began);
    let case = &run.cases[0];
    let most = PLANNED + TIMEOUT + LEEWAY + DRAINING + protocol.more_time;
    if took > most {
        return Err(format!("it took {took:?}, at most {most:?}: {:?}", case.warnings));
    }
    if let Some(what) = false_figure(case, took, protocol) {
        return Err(what);
    }
    if run.is_complete() && after == 0 && BARE.contains(&manner) && !may_be_complete(case, protocol, manner) {
        return Err(format!("complete: {:?}", case.figures));
    }
    let text = serde_json::to_string(&run).unwrap();
    Run::from_json(&text).map(|_| ()).map_err(|error| format!("{error}"))
}

/// The first messages of a client, as they arrive on its first connection.
struct Listens {
    batch: Batch,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Party for Listens {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, _now: Time) {
        let mut received = self.received.lock().unwrap();
        if received.is_empty() {
            received.extend(self.batch.messages().next().unwrap_or_default());
        }
    }

    fn on_timeout(&mut self, _now: Time) {}
}

fn first_words(plan: &CheckedPlan) -> Vec<u8> {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let mut listener = dialer.listen(endpoint(plan)).unwrap();
    let words = Arc::<Mutex<Vec<u8>>>::default();
    let received = words.clone();
    let hosted = listener.set_party_factory(Box::new(move |_| {
        Box::new(Listens { batch: Batch::new(65_536, 1), received: received.clone() })
    }));
    assert!(hosted.is_ok());
    run(plan, &dialer);
    let words = words.lock().unwrap().clone();
    words[..words.len().min(2000)].to_vec()
}

/// The limits of a server, after which it ends a connection.
const GRANTED: ServerLimits = ServerLimits {
    sessions: 100,
    duration_s: 2,
    bit_rate: None,
    message_bytes: 1 << 20,
    flows: 16,
    idle_s: 1,
    memory_bytes: 64 << 20,
    threads: None,
};

/// Some protocols let a connection complete its current transfer, for up to 10 s.
const GRACE: Duration = Duration::from_secs(12);

/// The next bytes of a hostile client, after this number of messages.
fn next_words(manner: Manner, words: &[u8], sent_messages: usize) -> Option<Vec<u8>> {
    let noise = || vec![if manner == Manner::Zeros { 0 } else { (sent_messages * 37 % 251) as u8 }; 600];
    match manner {
        Manner::Silent | Manner::Close | Manner::Reset => (sent_messages == 0).then(|| words.to_vec()),
        Manner::Half => (sent_messages == 0).then(|| words[..words.len() / 2].to_vec()),
        Manner::Doubled => (sent_messages < 2).then(|| words.to_vec()),
        Manner::Drip => words.get(sent_messages).map(|byte| vec![*byte]),
        Manner::Absurd(number) => (sent_messages == 0).then(|| absurd(words, number)),
        Manner::Garbage | Manner::Zeros => Some(noise()),
        Manner::NeverReads | Manner::Endless => Some(if words.is_empty() { noise() } else { words.to_vec() }),
    }
}

/// The connections of a service that otherwise listens beside them, on links that this host may lack.
struct Alone(Arc<dyn Service>);

impl Service for Alone {
    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        self.0.new_party(caps, from)
    }
}

/// One connection of a hostile client to an honest server; returns the defects of its result.
fn attack_server(
    service: &Arc<dyn Service>,
    endpoint: &Endpoint,
    words: &[u8],
    manner: Manner,
) -> Result<(), String> {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let _server = Server::start(std::slice::from_ref(endpoint), service, &GRANTED, &dialer)
        .map_err(|e| e.to_string())?;
    let mut link = dialer.open(endpoint).unwrap();
    let until = dialer.now() + Duration::from_secs(GRANTED.duration_s + GRANTED.idle_s) + GRACE;
    let reads = !matches!(manner, Manner::NeverReads | Manner::Endless);
    let (mut sent_messages, mut room) = (0, vec![0; 65_536]);
    let ended = loop {
        let pause = Duration::from_millis(if manner == Manner::Endless { 1 } else { 20 });
        if let Some(words) = next_words(manner, words, sent_messages) {
            match link.send(&words, Duration::ZERO) {
                Ok(_) => sent_messages += 1,
                Err(Fault::Closed) => break true,
                Err(_) => {}
            }
        }
        if matches!(manner, Manner::Close | Manner::Reset) {
            break true;
        }
        let now = dialer.now();
        let over = now >= until;
        if (reads || over) && drained(link.as_mut(), &mut room) {
            break true;
        }
        if over {
            break false;
        }
        dialer.clock.sleep_until(now + pause);
        dialer.memory_network.advance(now + pause);
    };
    if ended { Ok(()) } else { Err(format!("the connection is still open after {:?}", until.since(Time(0)))) }
}

/// Reads all available data; returns whether the server has closed.
fn drained(link: &mut dyn Link, room: &mut [u8]) -> bool {
    for _ in 0..1000 {
        match link.receive(room, Duration::ZERO) {
            Ok(_) => {}
            Err(fault) => return matches!(fault, Fault::Closed),
        }
    }
    false
}

/// Runs a row; a panic is a failure of it.
#[allow(clippy::print_stdout)] // Read by the process that started this one.
fn row(name: &str, failures: &mut Vec<String>, run: impl FnOnce() -> Result<(), String>) {
    // The last line of a killed process names the row that hung.
    println!("{name}");
    let result = catch_unwind(AssertUnwindSafe(run));
    let result = result.unwrap_or_else(|_| Err("panicked".to_owned()));
    failures.extend(result.err().map(|what| format!("{name}: {what}")));
}

const OF_ITS_OWN: &str = "LINKGAUGE_TEST_HOSTILE";

/// Does nothing, unless it is asked to.
#[test]
fn a_protocol_of_its_own() {
    let Ok(name) = std::env::var(OF_ITS_OWN) else { return };
    let protocol = ATTACKED_PROTOCOLS.iter().find(|protocol| protocol.name == name).unwrap();
    let mut failures = Vec::new();
    for (case, plan) in plans(protocol, &LINKS) {
        for manner in MANNERS {
            // Without an honest end there are no honest messages to start with.
            let after = if known(protocol).serve.is_some() { &AFTER[..] } else { &AFTER[..1] };
            for &after in after {
                let name = format!("{name} {case}: server {manner:?} after {after}");
                row(&name, &mut failures, || attack(protocol, &plan, manner, after));
            }
        }
    }
    let serves = known(protocol).serve.is_some();
    for url in LINKS.iter().filter(|_| serves) {
        let endpoint: Endpoint = url.parse().unwrap();
        let (service, caps) =
            (service(&name, GRANTED), Registry::standard().transports.caps(&endpoint).unwrap());
        if service.check_link(&caps).is_err() {
            continue;
        }
        let service = match service.extra_endpoints(&endpoint, &caps) {
            Ok(_) => service,
            Err(_) => Arc::new(Alone(service)),
        };
        let words = plans(protocol, &[url]).next().map(|(_, plan)| first_words(&plan)).unwrap_or_default();
        for manner in MANNERS {
            let name = format!("{name} {url}: client {manner:?}");
            row(&name, &mut failures, || attack_server(&service, &endpoint, &words, manner));
        }
    }
    println!("\npeak: {} KiB", status_kib("self", "VmHWM"));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// A process that runs the rows of one protocol, ended if it does not end.
fn start(protocol: &AttackedProtocol) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::a_protocol_of_its_own", "--nocapture", "--test-threads=1"])
        .env(OF_ITS_OWN, protocol.name)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Far more than any protocol needs, far less than a hostile end could make it take.
const MOST_KIB: u64 = 256 * 1024;

/// A row takes milliseconds; only an endless loop ever needs this.
const HANGS: Duration = Duration::from_secs(240);

#[test]
#[ignore = "long"]
fn every_protocol_survives_every_hostile_behaviour() {
    let began = Instant::now();
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for protocol in ATTACKED_PROTOCOLS {
            let wrong = &wrong;
            scope.spawn(move || {
                let child = start(protocol);
                let pid = rustix::process::Pid::from_child(&child);
                let (done, ended) = std::sync::mpsc::channel();
                // Its output is read while it runs, so that it never waits for that.
                let reader = std::thread::spawn(move || drop(done.send(child.wait_with_output())));
                let output = ended.recv_timeout(HANGS.saturating_sub(began.elapsed())).or_else(|_| {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    ended.recv()
                });
                reader.join().unwrap();
                let output = output.unwrap().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                let peak = text
                    .lines()
                    .find_map(|line| line.strip_prefix("peak: ")?.strip_suffix(" KiB")?.parse().ok());
                if !output.status.success() || peak.is_none_or(|peak: u64| peak > MOST_KIB) {
                    let last = text.lines().rfind(|line| line.starts_with(protocol.name)).unwrap_or_default();
                    let errors = String::from_utf8_lossy(&output.stderr);
                    wrong.lock().unwrap().push(format!(
                        "{}: {}, peak {peak:?} KiB, last row: {last}\n{errors}",
                        protocol.name, output.status
                    ));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Extra time beyond the limit of a case, for a machine that is busy with other tests.
const BUSY: Duration = Duration::from_secs(15);

#[test]
#[ignore = "long"]
fn clients_of_hostile_servers_end_in_time_on_real_sockets() {
    let wrong = Mutex::new(Vec::new());
    let servers = BARE.map(|manner| (manner, Sockets::listen(manner)));
    let protocols = || ATTACKED_PROTOCOLS.iter().filter(|protocol| protocol.needs.is_none());
    std::thread::scope(|scope| {
        for (manner, server) in &servers {
            // Zeros are blocks of NETIO without a last one: the virtual clock does not wait for their end.
            let protocols =
                protocols().filter(|protocol| protocol.name != "netio" || *manner != Manner::Zeros);
            for protocol in protocols {
                for (case, plan) in plans(protocol, &[&server.tcp, &server.udp]) {
                    let wrong = &wrong;
                    scope.spawn(move || {
                        let began = Instant::now();
                        let run = run(&plan, &Registry::standard().dialer(Clock::System));
                        let took = began.elapsed();
                        let most = PLANNED + TIMEOUT + LEEWAY + protocol.more_time + BUSY;
                        let name = format!("{} {case}: {manner:?}", protocol.name);
                        let fail = |what: String| wrong.lock().unwrap().push(format!("{name}: {what}"));
                        if took > most {
                            fail(format!("it took {took:?}"));
                        }
                        if run.is_complete() && !may_be_complete(&run.cases[0], protocol, *manner) {
                            fail(format!("complete: {:?}", run.cases[0].figures));
                        }
                    });
                }
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
