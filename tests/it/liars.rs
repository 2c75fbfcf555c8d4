//! Servers that reply to the hello correctly, and then send false messages: the client ends soon and names the reason.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkgauge::endpoint::Endpoint;
use linkgauge::protocol::ServerLimits;
use linkgauge::protocol::linkgauge::wire::{self, Attach, HANDSHAKE_BYTES, SessionReply, SessionRequest};
use linkgauge::run::Run;
use linkgauge::workload::{FlowReport, ReceivedSeries, ServerReport};
use serde_json::Map;

use crate::server::{failure, measure};

const KEY: [u8; 16] = [5; 16];

/// The replies of a dishonest server.
type Replies = dyn Fn(SessionRequest, u32, &mut TcpStream) -> Then + Send + Sync;
type Data = dyn Fn(&mut TcpStream) + Send + Sync;

/// The next action of a dishonest server after a request.
#[allow(clippy::large_enum_variant, reason = "one value at a time, in a test")]
enum Then {
    /// As an honest server would.
    Honestly,
    Say(SessionReply),
    /// It has already sent something itself.
    Sent,
    Close,
    /// Sends nothing more, and does not close.
    Stall,
}

/// A server that treats requests and flows so.
struct Liar {
    replies: Box<Replies>,
    data: Box<Data>,
}

impl Liar {
    fn new(replies: impl Fn(SessionRequest, u32, &mut TcpStream) -> Then + Send + Sync + 'static) -> Liar {
        Liar { replies: Box::new(replies), data: Box::new(echo) }
    }

    fn with_data(data: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Liar {
        Liar { replies: Box::new(|_, _, _| Then::Honestly), data: Box::new(data) }
    }

    /// Serves until the test program ends.
    fn listen(self) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let liar = Arc::new(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let liar = liar.clone();
                // A client that goes away ends the thread by an error.
                std::thread::spawn(move || liar.serve(stream));
            }
        });
        endpoint
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut first = [0; HANDSHAKE_BYTES];
        stream.read_exact(&mut first)?;
        if let Some(attach) = Attach::parse(&first) {
            stream.write_all(&attach.reply(&KEY))?;
            (self.data)(&mut stream);
            return Ok(());
        }
        stream.write_all(&wire::ready_reply(&first, &[1; 32], "liar", 0).expect("a hello"))?;
        let (mut received, mut chunk) = (Vec::new(), [0; 4096]);
        let mut flows = 0;
        loop {
            while let Some((number, request, used)) =
                wire::decode_frame::<SessionRequest>(&received, wire::MAX_JSON_BYTES).unwrap()
            {
                received.drain(..used);
                if let SessionRequest::Plan(plan) = &request {
                    flows = plan.flows.len();
                }
                let reply = match (self.replies)(request.clone(), number, &mut stream) {
                    Then::Honestly => honest(&request, flows),
                    Then::Say(reply) => Some(reply),
                    Then::Sent => None,
                    Then::Close => return Ok(()),
                    Then::Stall => {
                        let _ = stream.read_to_end(&mut Vec::new());
                        return Ok(());
                    }
                };
                if let Some(reply) = reply {
                    stream.write_all(&wire::encode_frame(number, &reply))?;
                }
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                length => received.extend_from_slice(&chunk[..length]),
            }
        }
    }
}

fn opened(version: u32) -> SessionReply {
    SessionReply::Opened {
        version,
        tool: "liar".to_owned(),
        capabilities: ["reflect", "receive", "send", "juggle"].map(str::to_owned).to_vec(),
        limits: ServerLimits::default(),
        session: "2a".to_owned(),
        key: Some(wire::encode_hex(&KEY)),
        environment: Map::new(),
    }
}

fn honest(request: &SessionRequest, flows: usize) -> Option<SessionReply> {
    match request {
        SessionRequest::Open { .. } => Some(opened(wire::VERSION)),
        SessionRequest::Plan(_) => {
            Some(SessionReply::Planned { per_second: None, busy_poll_flows: None, time_of_day: None })
        }
        SessionRequest::Start => Some(SessionReply::Started),
        SessionRequest::Finish | SessionRequest::Cut | SessionRequest::Rest { .. } => {
            Some(SessionReply::Report(report(flows, FlowReport::default())))
        }
        SessionRequest::Bye => None,
    }
}

fn report(flows: usize, flow: FlowReport) -> ServerReport {
    ServerReport { flows: vec![flow; flows], cpu_seconds: Some(0.0), ..ServerReport::default() }
}

/// Returns the received bytes.
fn echo(stream: &mut TcpStream) {
    let mut room = [0; 65_536];
    while let Ok(length @ 1..) = stream.read(&mut room) {
        if stream.write_all(&room[..length]).is_err() {
            return;
        }
    }
}

/// Long enough for a busy machine, short enough to be called bounded.
const BOUNDED: Duration = Duration::from_secs(20);

/// Runs a short latency case against a dishonest server; returns the client's message.
fn failure_of(liar: Liar) -> String {
    run(liar, "workload = \"latency\"\ncount = 20\nwarm_up_count = 0\ntimeout = \"1s\"").0
}

/// Runs a case against a dishonest server: the client's message without the endpoint, and the document.
fn run(liar: Liar, case: &str) -> (String, Run) {
    let endpoint = liar.listen();
    let began = Instant::now();
    let run = measure(&endpoint, &format!("protocol = \"linkgauge\"\n{case}"), None);
    assert!(began.elapsed() < BOUNDED, "it took {:?}", began.elapsed());
    let failure = failure(&run);
    assert_eq!(failure.lines().count(), 1, "{failure}");
    let head = format!("not measured as planned: {endpoint}: ");
    (failure.strip_prefix(&head).unwrap_or_else(|| panic!("{failure}")).to_owned(), run)
}

fn is_open(request: &SessionRequest) -> bool {
    matches!(request, SessionRequest::Open { .. })
}

#[test]
fn another_version_is_named() {
    let failure = failure_of(Liar::new(|request, _, _| match is_open(&request) {
        true => Then::Say(opened(3)),
        false => Then::Honestly,
    }));
    assert_eq!(
        failure,
        "the server uses session version 3, this program uses 2: use the same version of linkgauge on both hosts"
    );
}

#[test]
fn unknown_messages_are_refused() {
    let garbage: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "its message does not belong to a linkgauge session"),
        (b"LGframe1\xff\xff\xff\xff\0\0\0\x01", "it announces a message of 4294967295 bytes"),
        (
            b"LGframe1\0\0\0\x02\0\0\0\x01{}",
            "its content is invalid: missing field `reply` at line 1 column 2",
        ),
        (b"LGframe1\0\0\0\x04\0\0\0\x01[[[[", "its content is invalid: "),
    ];
    for (words, why) in garbage {
        let failure = failure_of(Liar::new(move |_, _, stream| {
            stream.write_all(words).unwrap();
            Then::Sent
        }));
        let expected = format!("the server's messages cannot be read: {why}");
        assert!(failure.starts_with(&expected), "{failure}");
    }
}

#[test]
fn a_reply_to_another_request_is_ignored() {
    let failure = failure_of(Liar::new(|_, number, stream| {
        stream.write_all(&wire::encode_frame(number + 7, &SessionReply::Started)).unwrap();
        Then::Sent
    }));
    assert_eq!(failure, "the server's messages cannot be read: its reply does not belong to the request");
    let failure = failure_of(Liar::new(|_, _, _| Then::Say(SessionReply::Started)));
    assert_eq!(failure, "the reply does not belong to the request: the server may have another version");
}

#[test]
fn an_endless_server_is_given_up() {
    let failure = failure_of(Liar::new(|_, _, stream| {
        let head = [&b"LGframe1"[..], &(1u32 << 20).to_be_bytes(), &1u32.to_be_bytes()].concat();
        let _ = stream.write_all(&head);
        while stream.write_all(&[b' '; 65_536]).is_ok() {}
        Then::Close
    }));
    assert!(failure.starts_with("the server's messages cannot be read: its content is invalid"), "{failure}");
}

#[test]
fn a_server_that_stalls_or_closes_is_given_up_at_every_step() {
    type Matches = fn(&SessionRequest) -> bool;
    let steps: [(&str, Matches); 4] = [
        ("open", is_open),
        ("plan", |request| matches!(request, SessionRequest::Plan(_))),
        ("start", |request| matches!(request, SessionRequest::Start)),
        ("finish", |request| matches!(request, SessionRequest::Finish)),
    ];
    for (name, is_step) in steps {
        let stalls = failure_of(Liar::new(move |request, _, _| match is_step(&request) {
            true => Then::Stall,
            false => Then::Honestly,
        }));
        assert_eq!(
            stalls,
            "no reply in time: the server does not reply. Check that it runs, firewalls, and --timeout",
            "{name}"
        );
        let closes = failure_of(Liar::new(move |request, _, _| match is_step(&request) {
            true => Then::Close,
            false => Then::Honestly,
        }));
        assert_eq!(
            closes, "the remote closed the link: check whether the server or device still runs, and its log",
            "{name}"
        );
    }
}

#[test]
#[ignore = "long"]
fn a_missing_report_ends_in_time_and_the_figures_stay() {
    let pending = || {
        Liar::new(|request, _, _| match request {
            SessionRequest::Finish | SessionRequest::Cut => {
                Then::Say(SessionReply::Pending { bytes: 0, measured: Default::default() })
            }
            _ => Then::Honestly,
        })
    };
    let case = "workload = \"latency\"\ncount = 20\nwarm_up_count = 0\ntimeout = \"1s\"";
    let (failure, run) = run(pending(), case);
    assert_eq!(
        failure,
        "no reply in time: the server does not reply. Check that it runs, firewalls, and --timeout"
    );
    assert_eq!((run.cases[0].figures.counts.sent, run.cases[0].figures.counts.received), (20, 20));
    assert!(run.cases[0].figures.times.latency_ns.is_some());
}

#[test]
fn a_report_about_another_run_is_ignored() {
    let failure = failure_of(Liar::new(|request, _, _| match request {
        SessionRequest::Finish => Then::Say(SessionReply::Report(report(3, FlowReport::default()))),
        _ => Then::Honestly,
    }));
    assert_eq!(failure, "the report does not belong to the flows of this case");
}

/// A part of a report has at most a megabyte, and a case may have thousands of flows.
#[test]
fn a_report_that_takes_more_memory_than_an_honest_one_is_refused() {
    let series = ReceivedSeries { interval_ns: 1_000_000, entries: vec![[0, 0, 0]; 301] };
    let long = FlowReport { series: Some(Box::new(series)), ..FlowReport::default() };
    let wordy = FlowReport { fault: Some("x".repeat(1001)), ..FlowReport::default() };
    for flow in [long, wordy] {
        for in_first_part in [true, false] {
            let flow = flow.clone();
            let failure = run(
                Liar::new(move |request, _, _| match request {
                    SessionRequest::Finish if in_first_part => {
                        Then::Say(SessionReply::Report(report(1, flow.clone())))
                    }
                    SessionRequest::Finish => {
                        Then::Say(SessionReply::Report(report(1, FlowReport::default())))
                    }
                    SessionRequest::Rest { .. } => Then::Say(SessionReply::Report(report(1, flow.clone()))),
                    _ => Then::Honestly,
                }),
                "workload = \"latency\"\ncount = 20\nwarm_up_count = 0\nparallel = 2\ntimeout = \"1s\"",
            );
            assert_eq!(failure.0, "the report does not belong to the flows of this case");
        }
    }
}

#[test]
fn absurd_figures_break_nothing() {
    let endpoint = Liar::new(|request, _, _| match request {
        SessionRequest::Finish => {
            let most = u64::MAX;
            let flow = FlowReport {
                bytes: most,
                messages: most,
                head_bytes: most,
                elapsed_ns: most,
                duplicate: most,
                reordered: most,
                corrupt_messages: most,
                socket_drops: Some(most),
                ..FlowReport::default()
            };
            Then::Say(SessionReply::Report(ServerReport { cpu_seconds: Some(f64::MAX), ..report(2, flow) }))
        }
        _ => Then::Honestly,
    })
    .listen();
    let run = measure(
        &endpoint,
        "protocol = \"linkgauge\"\nworkload = \"throughput\"\nvolume = \"100k\"\nparallel = 2\nprobe = false\ntimeout = \"1s\"",
        None,
    );
    let text = serde_json::to_string(&run).unwrap();
    Run::from_json(&text).unwrap();
    assert!(!text.contains("\"client_seconds\":null"));
    // The case has no such figure either.
    let case = &run.cases[0];
    assert!(!run.is_complete());
    assert_eq!((case.figures.delivery.throughput_bps, case.figures.delivery.delivered_bytes), (None, None));
    assert_eq!((case.figures.counts.sent, case.figures.counts.received, case.figures.counts.lost), (2, 0, 0));
    assert_eq!(case.cpu.as_ref().and_then(|cpu| cpu.server_seconds), None);
    let doubt = case
        .warnings
        .iter()
        .find(|warning| warning.code == linkgauge::run::WarningCode::ImplausibleReport)
        .unwrap();
    assert!(doubt.text.contains("18446744073709551615 bytes received, 200000 were sent"), "{}", doubt.text);
}

#[test]
fn a_stream_on_which_a_server_reports_loss_has_no_rate() {
    let (failure, run) = run(
        Liar::new(|_, _, _| Then::Honestly),
        "workload = \"throughput\"\nvolume = \"100k\"\nprobe = false\ntimeout = \"1s\"",
    );
    let why = "it reports 0 bytes received, 100000 were sent on a stream without loss: that is impossible, so \
               throughput is unknown";
    assert_eq!(failure, why);
    assert_eq!((run.cases[0].figures.counts.lost, run.cases[0].figures.delivery.throughput_bps), (0, None));
}

#[test]
fn a_reason_is_shown_on_one_line_without_control_characters() {
    let failure = failure_of(Liar::new(|_, _, _| {
        let reason = format!("\x1b[31mno\nway{}", "!".repeat(10_000));
        Then::Say(SessionReply::Refused { reason })
    }));
    assert!(failure.starts_with("the server refused:  [31mno way!!!") && failure.len() < 300, "{failure:?}");
}

#[test]
fn a_server_without_the_capability_is_refused_first() {
    let endpoint = Liar::new(|request, _, stream| match request {
        SessionRequest::Open { .. } => {
            let mut reply = opened(wire::VERSION);
            if let SessionReply::Opened { capabilities, .. } = &mut reply {
                capabilities.retain(|name| name != "reflect");
            }
            stream.write_all(&wire::encode_frame(1, &reply)).unwrap();
            Then::Sent
        }
        _ => Then::Honestly,
    });
    assert_eq!(
        failure_of(endpoint),
        "the server does not support reflect: use the same version of linkgauge on both hosts"
    );
}

#[test]
fn a_refused_connection_is_named() {
    let endpoint = Liar::new(|request, _, stream| match request {
        // Another key than it goes by.
        SessionRequest::Open { .. } => {
            let mut reply = opened(wire::VERSION);
            if let SessionReply::Opened { key, .. } = &mut reply {
                *key = Some(wire::encode_hex(&[6; 16]));
            }
            stream.write_all(&wire::encode_frame(1, &reply)).unwrap();
            Then::Sent
        }
        _ => Then::Honestly,
    });
    let failure = failure_of(endpoint);
    assert_eq!(
        failure,
        "the server refused another connection of this session: it may be overloaded. Try fewer connections"
    );
}

#[test]
#[ignore = "long"]
fn a_flow_that_closes_stalls_or_never_stops_ends_the_case() {
    let latency = "workload = \"latency\"\ncount = 5\nwarm_up_count = 0\ntimeout = \"1s\"\nsize = 100";
    let (failure, result) = run(Liar::with_data(|stream| drop(stream.read(&mut [0; 1000]))), latency);
    assert_eq!(
        failure,
        "the remote closed the link: check whether the server or device still runs, and its log"
    );
    assert_eq!((result.cases[0].figures.counts.sent, result.cases[0].figures.counts.lost), (1, 1));

    // Reads nothing: small messages get lost in its buffer, large ones do not fit.
    let stalls = || Liar::with_data(|_| std::thread::sleep(Duration::from_secs(60)));
    let (failure, _) = run(stalls(), &latency.replace("100", "\"50M\""));
    assert_eq!(
        failure,
        "no reply in time: the server does not reply. Check that it runs, firewalls, and --timeout"
    );
    let send = "workload = \"throughput\"\ntime = \"30s\"\nsize = 1000\nwarm_up_count = 0\nprobe = false\ntimeout = \"1s\"";
    let (failure, result) = run(stalls(), send);
    let (first, rest) = failure.split_once(": ").unwrap();
    assert!(first.starts_with("nothing has moved for "), "{failure}");
    assert_eq!(
        rest,
        "the link was lost, a firewall drops its packets, or the server stopped. The figures are those before"
    );
    assert!(result.cases[0].figures.counts.sent > 0);
    let receive =
        "workload = \"throughput\"\ndirection = \"receive\"\ntime = \"1s\"\nprobe = false\ntimeout = \"1s\"";
    let (failure, _) = run(stalls(), receive);
    assert_eq!(
        failure,
        "no reply in time: the server does not reply. Check that it runs, firewalls, and --timeout"
    );

    // Sends for ever.
    let floods = || Liar::with_data(|stream| while stream.write_all(&[0; 65_536]).is_ok() {});
    let (failure, result) = run(floods(), &receive.replace("time = \"1s\"", "volume = \"1M\""));
    assert!(failure.starts_with("the server went on sending after the end of the download"), "{failure}");
    assert!(result.cases[0].figures.counts.received > 0);
    // The result of a timed flow is the data of that time.
    let case = format!("protocol = \"linkgauge\"\n{}", receive.replace("time = \"1s\"", "time = \"200ms\""));
    let result = measure(&floods().listen(), &case, None);
    let figures = &result.cases[0].figures;
    assert!(result.cases[0].elapsed_ns < 10_000_000_000 && figures.delivery.throughput_bps.unwrap() > 0.0);
    assert_eq!(figures.counts.lost, 0);
}

#[test]
fn a_granted_rate_above_the_request_is_refused() {
    let grants = |per_second| {
        Liar::new(move |request, _, _| match request {
            SessionRequest::Plan(_) => Then::Say(SessionReply::Planned {
                per_second: Some(per_second),
                busy_poll_flows: None,
                time_of_day: None,
            }),
            _ => Then::Honestly,
        })
    };
    let latency = "workload = \"latency\"\ncount = 20\nwarm_up_count = 0\ntimeout = \"1s\"\nrate = \"2/s\"";
    let throughput = "workload = \"throughput\"\ntime = \"1s\"\nsize = 1000\nprobe = false\ntimeout = \"1s\"";
    for per_second in [0.0, -1.0, 1e-300, 5e-324, -1e308, 1e308] {
        for case in [latency, throughput] {
            let (failure, _) = run(grants(per_second), case);
            assert!(
                failure.starts_with("the server grants ") && failure.ends_with("on both hosts"),
                "{failure}"
            );
        }
    }
    let (failure, _) = run(grants(3.0), latency);
    let expected = "the server grants 3 messages/s where 2 were requested: use the same version of linkgauge on both hosts";
    assert_eq!(failure, expected);
    // Less than requested is what limits are for.
    let endpoint = grants(1.5).listen();
    let case = format!("protocol = \"linkgauge\"\n{}", latency.replace("= 20", "= 2"));
    assert!(measure(&endpoint, &case, None).is_complete());
}

#[test]
fn the_program_ends_with_status_2_and_one_line() {
    let endpoint = Liar::new(|_, _, _| Then::Stall).listen();
    let ended =
        crate::program::run(&["latency", endpoint.as_str(), "--protocol", "linkgauge", "--timeout", "1s"]);
    assert_eq!(ended.status, Some(2));
    let expected = format!(
        "error: {endpoint}: no reply in time: the server does not reply. Check that it runs, firewalls, and --timeout\n"
    );
    assert_eq!(ended.stderr, expected);
    assert_eq!(ended.stdout, "");
}
