//! An agent that gets its orders from a test: what it does, and what it refuses.

use std::io::{BufReader, PipeReader, PipeWriter, pipe};
use std::thread::JoinHandle;

use super::*;
use crate::mesh::wire::{MAX_ANSWER_BYTES, parse_answer};
use linkgauge_engine::Registry;
use linkgauge_engine::link::shaped::Shape;
use linkgauge_lab::shaper::{Shaper, ShaperOptions};
use linkgauge_model::clock::Clock;

fn limits() -> AgentLimits {
    AgentLimits {
        time: Duration::from_secs(5),
        bits_per_second: None,
        bytes: None,
        allowed: Vec::new(),
        listen: "127.0.0.1".parse().unwrap(),
        port: None,
    }
}

struct Started {
    orders: Option<PipeWriter>,
    answers: BufReader<PipeReader>,
    thread: JoinHandle<Result<(), WireError>>,
}

impl Started {
    pub fn new(limits: AgentLimits) -> Started {
        let (input, orders) = pipe().unwrap();
        let (answers, output) = pipe().unwrap();
        let thread = std::thread::spawn(move || {
            let dialer = Registry::standard().dialer(Clock::System);
            run_agent(&mut BufReader::new(input), Box::new(output), limits, &dialer, Map::new())
        });
        let mut started = Started { orders: Some(orders), answers: BufReader::new(answers), thread };
        assert!(matches!(started.answer(), Answer::Ready { version: PROTOCOL_VERSION, .. }));
        started
    }

    fn send(&mut self, order: &Order) {
        self.orders.as_mut().unwrap().write_all(&to_line(order)).unwrap();
    }

    fn answer(&mut self) -> Answer {
        parse_answer(&read_line(&mut self.answers, MAX_ANSWER_BYTES).unwrap().unwrap()).unwrap()
    }

    fn ask(&mut self, order: &Order) -> Answer {
        self.send(order);
        self.answer()
    }

    fn serve(&mut self) -> u16 {
        let order = Order::Serve { id: 1, transport: "tcp".to_owned(), port: 0, token: "secret".to_owned() };
        match self.ask(&order) {
            Answer::Serving { id: 1, port, .. } => port,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the input, which ends the agent.
    pub fn end(mut self) -> Result<(), WireError> {
        drop(self.orders.take());
        self.thread.join().unwrap()
    }
}

const LATENCY: TestOrder = TestOrder::Latency { time_ms: 200, per_second: 100.0, message_bytes: 16 };

const UPLOAD: TestOrder = TestOrder::Throughput {
    time_ms: 200,
    direction: TestDirection::Send,
    parallel: 1,
    bits_per_second: Some(8e6),
};

/// Upload test as fast as the link allows.
fn fast_upload(time_ms: u64, parallel: u32) -> TestOrder {
    TestOrder::Throughput { time_ms, direction: TestDirection::Send, parallel, bits_per_second: None }
}

fn measure(port: u16, token: &str, test: TestOrder) -> Order {
    Order::Measure { id: 2, url: format!("tcp://127.0.0.1:{port}"), token: Some(token.to_owned()), test }
}

fn why(answer: Answer) -> String {
    match answer {
        Answer::Refused { id: 2, why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn agents_measure_each_other() {
    let (mut a, mut b) = (Started::new(limits()), Started::new(limits()));
    let port = b.serve();
    for test in [LATENCY, UPLOAD] {
        let Answer::Measured { id: 2, run } = a.ask(&measure(port, "secret", test)) else { panic!() };
        assert!(run.cases[0].complete && run.cases[0].series.is_empty(), "{:?}", run.cases[0].failures);
        assert!(run.cases[0].figures.has_measurements());
    }
    let Answer::Measured { run, .. } = a.ask(&measure(port, "wrong", LATENCY)) else { panic!() };
    assert!(!run.cases[0].complete);
    // The server has logged the throughput test, and only that.
    let Answer::ServedLoads { id: 5, now_ns, loads, left_out: 0 } = b.ask(&Order::ReportLoads { id: 5 })
    else {
        panic!()
    };
    let [[began, ended]] = loads.as_slice() else { panic!("{loads:?}") };
    assert!(
        *ended <= now_ns && (180_000_000..5_000_000_000).contains(&(ended - began)),
        "{began} to {ended}"
    );
    assert!(
        matches!(a.ask(&Order::ReportLoads { id: 6 }), Answer::ServedLoads { loads, .. } if loads.is_empty())
    );
    assert!(a.end().is_ok() && b.end().is_ok());
}

#[test]
fn orders_beyond_the_limits_are_refused() {
    let mut server = Started::new(limits());
    let port = server.serve();
    let refusal = |limits: AgentLimits, test| why(Started::new(limits).ask(&measure(port, "secret", test)));
    let slow = AgentLimits { bits_per_second: Some(1e3), ..limits() };
    assert!(refusal(slow, LATENCY).contains("--max-rate"));
    let short = AgentLimits { time: Duration::from_millis(100), ..limits() };
    assert!(refusal(short, LATENCY).contains("--max-time"));
    let elsewhere = AgentLimits { allowed: vec!["192.0.2.0/24".parse().unwrap()], ..limits() };
    assert!(refusal(elsewhere, LATENCY).contains("--allow"));
    let poor = AgentLimits { bytes: Some(10_000), ..limits() };
    let mut poor = Started::new(poor);
    let Answer::Measured { run, .. } = poor.ask(&measure(port, "secret", UPLOAD)) else { panic!() };
    assert!(run.cases[0].figures.delivery.delivered_bytes.unwrap() <= 10_000);
    assert!(why(poor.ask(&measure(port, "secret", UPLOAD))).contains("--max-bytes"));
}

/// Orders that arrive at once: the payload in both directions that their tests moved, and the reasons of the refusals.
fn all_at_once(limits: AgentLimits, port: u16, tests: &[TestOrder]) -> (u64, Vec<String>) {
    let mut agent = Started::new(limits);
    tests.iter().for_each(|test| agent.send(&measure(port, "secret", *test)));
    let (mut moved, mut refusals) = (0, Vec::new());
    for _ in tests {
        match agent.answer() {
            Answer::Measured { run, .. } => {
                let [case] = run.cases.as_slice() else { panic!("{run:?}") };
                let sent = case.figures.counts.sent * u64::from(case.message_bytes);
                let is_load = case.workload == "throughput";
                moved += if is_load { case.figures.delivery.delivered_bytes.unwrap() } else { 2 * sent };
            }
            other => refusals.push(why(other)),
        }
    }
    (moved, refusals)
}

#[test]
fn orders_at_the_same_time_share_the_limits() {
    let mut server = Started::new(limits());
    let port = server.serve();
    let latency = TestOrder::Latency { time_ms: 300, per_second: 100.0, message_bytes: 1000 };
    let poor = AgentLimits { bytes: Some(400_000), ..limits() };
    let (moved, refusals) = all_at_once(poor, port, &[latency; 40]);
    assert!((1..=400_000).contains(&moved), "{moved}");
    assert!(refusals.len() > 30 && refusals.iter().all(|why| why.contains("--max-bytes")), "{refusals:?}");
    // Each needs 1.6 Mbit/s in both directions.
    let slow = AgentLimits { bits_per_second: Some(5e6), ..limits() };
    let (_, refusals) = all_at_once(slow, port, &[latency; 10]);
    assert!(refusals.len() >= 5 && refusals.iter().all(|why| why.contains("--max-rate")), "{refusals:?}");
    let few = AgentLimits { bytes: Some(1_000_000), ..limits() };
    let (moved, refusals) = all_at_once(few, port, &[fast_upload(200, 16)]);
    assert!((1..=1_000_000).contains(&moved) && refusals.is_empty(), "{moved} {refusals:?}");
}

#[test]
fn the_clients_of_an_agent_share_its_rate() {
    let dialer = Registry::standard().dialer(Clock::System);
    let limited = Tester::new(AgentLimits { bits_per_second: Some(8e6), ..limits() });
    // A fleet has a server for each order.
    let servers = [(); 2].map(|()| limited.serve(("tcp", 0), "secret", &dialer).unwrap());
    let test = fast_upload(500, 1);
    let moved = std::thread::scope(|scope| {
        let moved = servers.each_ref().map(|(_, port)| {
            let (dialer, url) = (&dialer, format!("tcp://127.0.0.1:{port}"));
            scope.spawn(move || {
                let run =
                    Tester::new(limits()).measure(&url, Some("secret".to_owned()), test, dialer).unwrap();
                run.cases[0].figures.delivery.delivered_bytes.unwrap_or(0)
            })
        });
        moved.map(|thread| thread.join().unwrap()).iter().sum::<u64>()
    });
    // A megabyte per second, with a burst of a quarter, while what is in buffers arrives as well.
    assert!((1..6_000_000).contains(&moved), "{moved}");
}

#[test]
fn one_order_more_than_the_agent_has_threads_for_is_refused() {
    // It accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut agent = Started::new(limits());
    for _ in 0..MAX_AT_ONCE + 50 {
        agent.send(&measure(port, "secret", LATENCY));
    }
    for _ in 0..50 {
        insta::allow_duplicates! {
            insta::assert_snapshot!(why(agent.answer()), @"256 measurements run already: an agent makes no more at a time");
        }
    }
    // The other replies are not read.
    let Started { orders, answers, thread } = agent;
    drop((orders, answers));
    assert!(thread.join().unwrap().is_ok());
}

#[test]
fn an_order_reaches_no_file_and_no_device() {
    let mut agent = Started::new(limits());
    for url in [
        "serial:///dev/ttyS0",
        "unix:///tmp/socket",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:1?bind=127.0.0.1",
        "rfc2217://127.0.0.1:7001",
        "",
    ] {
        let order = Order::Measure { id: 2, url: url.to_owned(), token: None, test: LATENCY };
        let why = why(agent.ask(&order));
        assert!(!why.is_empty(), "{url}");
    }
    let mut limited = Started::new(limits());
    let order = Order::Serve { id: 2, transport: "tcp".to_owned(), port: 0, token: String::new() };
    assert!(why(limited.ask(&order)).contains("open to all"));
}

#[test]
fn a_line_that_is_no_order_ends_the_agent() {
    let mut agent = Started::new(limits());
    agent.orders.as_mut().unwrap().write_all(b"{\"order\": \"run\", \"command\": \"id\"}\n").unwrap();
    assert!(matches!(agent.end(), Err(WireError::Json(_))));
}

#[test]
fn the_end_of_the_input_ends_a_measurement() {
    let (mut a, mut b) = (Started::new(limits()), Started::new(limits()));
    let port = b.serve();
    let long = TestOrder::Latency { time_ms: 5000, per_second: 10.0, message_bytes: 16 };
    a.send(&measure(port, "secret", long));
    let began = std::time::Instant::now();
    assert!(a.end().is_ok());
    assert!(began.elapsed() < Duration::from_secs(4), "it waited for the measurement");
}

/// Measures a host with a round trip of 1.4 s, as to a host that has other work.
#[test]
fn a_host_that_replies_late_is_measured() {
    let dialer = Registry::standard().dialer(Clock::System);
    let tester = Tester::new(limits());
    let (_server, port) = tester.serve(("tcp", 0), "secret", &dialer).unwrap();
    let late = Shape { delay: Duration::from_millis(700), ..Shape::default() };
    let options = ShaperOptions {
        listen: "tcp://127.0.0.1:0".parse().unwrap(),
        to: format!("tcp://127.0.0.1:{port}").parse().unwrap(),
        up: late.clone(),
        down: late,
        seed: 1,
        log: None,
    };
    let relay = Shaper::start(&options, &dialer).unwrap();
    let test = TestOrder::Latency { time_ms: 100, per_second: 20.0, message_bytes: 16 };
    let run = tester.measure(relay.endpoint().as_str(), Some("secret".to_owned()), test, &dialer).unwrap();
    assert!(run.cases[0].complete, "{:?}", run.cases[0].failures);
}
