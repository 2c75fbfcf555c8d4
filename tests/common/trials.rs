//! The requirements of every transport, tried on all of them at every endpoint that they offer for tests. `it` makes a
//! test of each trial for this host; a guest of `interop` runs them all on the transports that this kernel may lack.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::STAND_INS;
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::link::party::Tuning;
use linkgauge::link::shaped::Shape;
use linkgauge::link::{Batch, Fault, Framing, Link, Transport};
use linkgauge::plan::{Plan, WaitMode};
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;

use super::echo_server::{EchoServer, GOODBYE};

/// Gives the names of all trials to a macro.
macro_rules! for_each {
    ($then:ident) => {
        $then! {
            is_available_here
            urls_print_back_as_typed
            unknown_options_are_refused
            caps_of_the_link_are_those_of_its_endpoint
            facts_are_reported
            streams_carry_bytes_whole_and_in_order
            messages_keep_their_boundaries
            reliable_messages_come_in_order
            one_byte_too_many_fails_cleanly
            the_server_sees_a_close
            the_client_sees_a_close
            receiving_times_out_in_time
            halves_share_the_link
            many_links_at_once_are_separate
            batches_arrive_whole
            many_flows_of_a_case_are_all_measured
            a_relay_passes_all_whole_and_not_too_early
        }
    };
}
pub(crate) use for_each;

/// Bounds every wait of these tests; only a broken link ever needs it.
const LONG: Duration = Duration::from_secs(30);

/// Transports whose modules a kernel may lack: their tests run in a guest that has them (`guest`).
pub const OF_MODULES: &[&str] = &["sctp", "vsock", "tipc", "rfcomm", "l2cap"];

/// Holds in that guest the schemes to try there, with commas.
pub const IN_THE_GUEST: &str = "LINKGAUGE_TEST_GUEST";

fn in_the_guest() -> bool {
    std::env::var_os(IN_THE_GUEST).is_some()
}

/// The transports to try here.
pub fn transports() -> impl Iterator<Item = &'static Transport> {
    let there = std::env::var(IN_THE_GUEST).ok();
    Registry::standard().transports.0.iter().filter(move |transport| match &there {
        Some(schemes) => schemes.split(',').any(|scheme| scheme == transport.scheme),
        None => !OF_MODULES.contains(&transport.scheme),
    })
}

/// Runs a trial on each transport's own test endpoints, with an echo listening there, and on those of the lab's
/// stand-ins for transports that cannot listen.
fn each(trial: impl Fn(&str, &EchoServer)) {
    for transport in transports() {
        let directory = tempfile::tempdir().unwrap();
        for url in (transport.loopback_urls)(directory.path().to_str().unwrap()) {
            let server = EchoServer::listen(&url);
            trial(&url, &server);
        }
    }
    for stand_in in STAND_INS.iter().filter(|_| !in_the_guest()) {
        let standing = (stand_in.start)().unwrap();
        for endpoint in standing.endpoints() {
            let url = endpoint.to_string();
            trial(&url, &EchoServer::standing(endpoint));
        }
    }
}

/// Endpoints of the stand-ins of a transport.
fn stand_ins(transport: &Transport) -> Vec<Endpoint> {
    let standing = STAND_INS.iter().map(|stand_in| (stand_in.start)().unwrap());
    let endpoints =
        standing.flat_map(|standing| [standing.endpoints(), standing.typical_endpoints()].concat());
    endpoints.filter(|endpoint| endpoint.scheme() == transport.scheme).collect()
}

/// Bytes that identify their position.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

fn send_all(link: &mut dyn Link, mut bytes: &[u8]) {
    let until = Instant::now() + LONG;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        bytes = &bytes[link.send(bytes, left).unwrap()..];
    }
}

/// One message, or as many bytes of a stream as the buffer holds.
fn receive_all(link: &mut dyn Link, into: &mut [u8]) -> usize {
    let until = Instant::now() + LONG;
    let mut length = 0;
    while length < into.len() {
        let left = until.saturating_duration_since(Instant::now());
        length += link.receive(&mut into[length..], left).unwrap();
        if link.caps().framing == Framing::Message {
            break;
        }
    }
    length
}

/// A short round trip: does the link work?
fn works(url: &str, link: &mut dyn Link) {
    let sent = pattern(14, 7);
    send_all(link, &sent);
    let room = if link.caps().framing == Framing::Stream { 14 } else { 100 };
    let mut got = vec![0; room];
    let length = receive_all(link, &mut got);
    assert_eq!(got[..length], sent, "{url}");
}

pub fn is_available_here() {
    assert!(
        OF_MODULES.iter().all(|scheme| Registry::standard()
            .transports
            .0
            .iter()
            .any(|transport| transport.scheme == *scheme))
    );
    for transport in transports() {
        assert_eq!((transport.available)(), Ok(()), "{}", transport.scheme);
        let stands_in = !stand_ins(transport).is_empty();
        assert!(
            transport.listen.is_some() || stands_in,
            "{}: it has neither a listener nor a stand-in",
            transport.scheme
        );
    }
}

pub fn urls_print_back_as_typed() {
    for transport in Registry::standard().transports.0 {
        let urls = (transport.loopback_urls)("/tmp");
        // A transport may have to ask the kernel for its addresses.
        let known = transports().any(|here| here.scheme == transport.scheme);
        assert!(!known || urls.is_empty() == transport.listen.is_none(), "{}", transport.scheme);
        let stand_ins: Vec<String> = stand_ins(transport).iter().map(Endpoint::to_string).collect();
        for url in urls.iter().chain(&stand_ins).map(String::as_str).chain([transport.example]) {
            let endpoint: Endpoint = url.parse().unwrap();
            assert_eq!(endpoint.to_string(), url);
            assert_eq!(endpoint.scheme(), transport.scheme);
            Registry::standard().transports.caps(&endpoint).unwrap();
        }
    }
}

pub fn unknown_options_are_refused() {
    for transport in Registry::standard().transports.0 {
        for url in (transport.loopback_urls)("/tmp").into_iter().chain([transport.example.to_owned()]) {
            let joint = if url.contains('?') { '&' } else { '?' };
            let endpoint: Endpoint = format!("{url}{joint}nonsense=1").parse().unwrap();
            let error = Registry::standard().transports.caps(&endpoint).unwrap_err().to_string();
            assert!(error.contains("unknown option 'nonsense'"), "{error}");
        }
    }
}

pub fn caps_of_the_link_are_those_of_its_endpoint() {
    each(|url, server| {
        let promised = Registry::standard().transports.caps(&server.endpoint).unwrap();
        let link = server.open();
        assert_eq!(link.caps(), &promised, "{url}");
        assert!(link.descriptor().is_some() || !promised.descriptor.can_share_thread(), "{url}");
        assert_eq!(promised.framing == Framing::Message, promised.max_message_bytes.is_some(), "{url}");
    });
}

pub fn facts_are_reported() {
    each(|url, server| {
        let mut link = server.open();
        works(url, &mut *link);
        assert!(!link.facts().is_empty(), "{url}");
    });
}

pub fn streams_carry_bytes_whole_and_in_order() {
    each(|url, server| {
        let caps = server.open().caps().clone();
        if caps.framing != Framing::Stream {
            return;
        }
        // On a line of 4 Mbit/s a mebibyte takes three seconds.
        let longest = if caps.link_rate.is_some() { 1 << 18 } else { 1 << 20 };
        for (seed, length) in [1, 1000, 65_537, longest].into_iter().enumerate() {
            let mut link = server.open();
            let mut half = link.second_handle().unwrap();
            let sent = pattern(length, seed as u64);
            let mut got = vec![0; length];
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut random = fastrand::Rng::with_seed(seed as u64);
                    let mut left = &sent[..];
                    while !left.is_empty() {
                        let chunk = random.usize(1..=20_000).min(left.len());
                        send_all(&mut *half, &left[..chunk]);
                        left = &left[chunk..];
                    }
                });
                assert_eq!(receive_all(&mut *link, &mut got), length, "{url}");
            });
            assert!(got == sent, "{url}: {length} bytes came back different");
        }
    });
}

pub fn messages_keep_their_boundaries() {
    each(|url, server| {
        let mut link = server.open();
        let Some(most) = link.caps().max_message_bytes else { return };
        for size in [1, 2, 14, 1000.min(most), most] {
            let sent = pattern(size, size as u64);
            let mut got = vec![0; most + 1];
            assert_eq!(link.send(&sent, LONG).unwrap(), size, "{url}");
            let length = link.receive(&mut got, LONG).unwrap();
            assert!(got[..length] == sent, "{url}: sent {size} bytes, got {length}");
        }
    });
}

pub fn reliable_messages_come_in_order() {
    each(|url, server| {
        let mut link = server.open();
        if link.caps().framing != Framing::Message || !link.caps().is_reliable {
            return;
        }
        let mut half = link.second_handle().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..500u32 {
                    send_all(&mut *half, &number.to_be_bytes());
                }
            });
            for number in 0..500u32 {
                let mut got = [0; 8];
                assert_eq!(link.receive(&mut got, LONG).unwrap(), 4, "{url}");
                assert_eq!(got[..4], number.to_be_bytes(), "{url}");
            }
        });
    });
}

pub fn one_byte_too_many_fails_cleanly() {
    each(|url, server| {
        let mut link = server.open();
        let Some(most) = link.caps().max_message_bytes else { return };
        let long = vec![0; most + 1];
        for _ in 0..2 {
            let error = link.send(&long, LONG).unwrap_err();
            assert!(
                matches!(error, Fault::TooLong { bytes, limit } if (bytes, limit) == (most + 1, most)),
                "{url}: {error}"
            );
            works(url, &mut *link);
        }
    });
}

pub fn the_server_sees_a_close() {
    each(|url, server| {
        let mut link = server.open();
        works(url, &mut *link);
        if !link.caps().can_signal_close {
            // Without connections there is nothing to see, and finishing changes nothing.
            link.finish_sending().unwrap();
            works(url, &mut *link);
            return;
        }
        link.finish_sending().unwrap();
        // The echo ends when it sees that, and with it the link.
        let error = link.receive(&mut [0; 10], LONG).unwrap_err();
        assert!(matches!(error, Fault::Closed), "{url}: {error}");
        if link.caps().can_half_close {
            assert_eq!(server.closes.load(SeqCst), 1, "{url}");
        }
        server.await_closes(1);
        let mut second = server.open();
        works(url, &mut *second);
        drop(second);
        server.await_closes(2);
    });
}

pub fn the_client_sees_a_close() {
    each(|url, server| {
        let mut link = server.open();
        works(url, &mut *link);
        if link.caps().is_device {
            // A device echoes all bytes.
            return;
        }
        assert!(!link.status().is_hung_up, "{url}");
        link.send(GOODBYE, LONG).unwrap();
        if link.caps().can_signal_close {
            for _ in 0..2 {
                let error = link.receive(&mut [0; 10], LONG).unwrap_err();
                assert!(matches!(error, Fault::Closed), "{url}: {error}");
            }
            assert!(link.status().is_hung_up, "{url}");
        } else {
            // Silence, or an error of the system: never data, never a clean end.
            let error = link.receive(&mut [0; 10], Duration::from_millis(20)).unwrap_err();
            assert!(matches!(error, Fault::TimedOut | Fault::System { .. }), "{url}: {error}");
        }
    });
}

pub fn receiving_times_out_in_time() {
    each(|url, server| {
        let mut link = server.open();
        works(url, &mut *link);
        for wait in [WaitMode::Block, WaitMode::BusyPoll] {
            link.tune(&Tuning { wait, ..Tuning::default() });
            for within in [0, 3, 60].map(Duration::from_millis) {
                let start = Instant::now();
                let error = link.receive(&mut [0; 10], within).unwrap_err();
                assert!(matches!(error, Fault::TimedOut), "{url}: {error}");
                let took = start.elapsed();
                assert!(took >= within && took < within + Duration::from_secs(2), "{url}: {took:?}");
                works(url, &mut *link);
            }
        }
    });
}

pub fn halves_share_the_link() {
    each(|url, server| {
        let mut sends = server.open();
        let mut receives = sends.second_handle().unwrap();
        for number in 0..20u8 {
            send_all(&mut *sends, &[number; 5]);
            let mut got = [0; 5];
            assert_eq!(receive_all(&mut *receives, &mut got), 5, "{url}");
            assert_eq!(got, [number; 5], "{url}");
        }
        drop(sends);
        works(url, &mut *receives);
    });
}

pub fn many_links_at_once_are_separate() {
    each(|url, server| {
        if !server.open().caps().can_open_parallel {
            return;
        }
        let mut links: Vec<_> = (0..4).map(|_| server.open()).collect();
        for round in 0..3u8 {
            for (number, link) in links.iter_mut().enumerate() {
                send_all(&mut **link, &[number as u8, round]);
            }
            for (number, link) in links.iter_mut().enumerate() {
                let mut got = [0; 2];
                assert_eq!(receive_all(&mut **link, &mut got), 2, "{url}");
                assert_eq!(got, [number as u8, round], "{url}");
            }
        }
    });
}

pub fn batches_arrive_whole() {
    const COUNT: usize = 40;
    each(|url, server| {
        let mut link = server.open();
        works(url, &mut *link);
        let size = link.caps().max_message_bytes.unwrap_or(usize::MAX).min(1000);
        link.tune(&Tuning { batch_message_bytes: Some(size as u32), ..Tuning::default() });
        // The last one is shorter.
        let sent = pattern(size * COUNT - 300, 3);
        let mut left = &sent[..];
        while !left.is_empty() {
            left = &left[link.send_batch(left, size, LONG).unwrap()..];
        }
        let mut got = Vec::new();
        let mut batch = Batch::new(size, COUNT);
        while got.len() < sent.len() {
            let received = link.receive_batch(&mut batch, LONG);
            received
                .unwrap_or_else(|fault| panic!("{url}: {fault} after {} bytes of {}", got.len(), sent.len()));
            assert!(!batch.is_empty(), "{url}");
            for message in batch.messages() {
                let whole = link.caps().framing == Framing::Stream
                    || message.len() == size.min(sent.len() - got.len());
                assert!(whole, "{url}: a message of {} bytes", message.len());
                got.extend_from_slice(message);
            }
        }
        assert!(got == sent, "{url}");
        // Single messages still come one by one.
        works(url, &mut *link);
        link.tune(&Tuning::default());
        works(url, &mut *link);
    });
}

/// More flows than CPUs, on one server, with the protocols that the link supports.
pub fn many_flows_of_a_case_are_all_measured() {
    const FLOWS: u64 = 100;
    for transport in transports().filter(|transport| transport.listen.is_some()) {
        let directory = tempfile::tempdir().unwrap();
        for url in (transport.loopback_urls)(directory.path().to_str().unwrap()) {
            let dialer = Registry::standard().dialer(Clock::System);
            let several =
                Registry::standard().transports.caps(&url.parse().unwrap()).unwrap().can_open_parallel;
            for protocol in ["linkgauge", "echo"].into_iter().filter(|_| several) {
                let server = Server::on(&url).protocol(protocol).start_with(&dialer);
                let Ok(server) = server else { continue };
                let plan = format!(
                    "[[case]]\nurl = \"{}\"\nworkload = \"latency\"\nprotocol = \"{protocol}\"\nparallel = {FLOWS}\n\
                     threads = 2\ncount = 5\nwarm_up_count = 0\nsize = 8\ntimeout = \"20s\"",
                    server.url()
                );
                let Ok(plan) = schedule::check(Plan::from_toml(&plan).unwrap(), Registry::standard()) else {
                    continue;
                };
                let run = schedule::run(&plan, &mut RunContext::new(dialer.clone(), &()));
                let case = &run.cases[0];
                assert!(run.is_complete(), "{url} {protocol}: {:?}", case.failures);
                assert_eq!(case.figures.counts.received, 5 * FLOWS, "{url} {protocol}");
                assert_eq!(case.figures.flows.as_ref().unwrap().min_max_ratio, 1.0, "{url} {protocol}");
            }
        }
    }
}

pub fn a_relay_passes_all_whole_and_not_too_early() {
    for transport in transports().filter(|transport| transport.scheme != "mem") {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let urls =
            |directory: &tempfile::TempDir| (transport.loopback_urls)(directory.path().to_str().unwrap());
        for (listen, server) in urls(&here).into_iter().zip(urls(&there)) {
            let server = EchoServer::listen(&server);
            let delayed = |ms| Shape { delay: Duration::from_millis(ms), ..Shape::default() };
            let (up, down) = (delayed(20), delayed(5));
            let options = ShaperOptions {
                listen: listen.parse().unwrap(),
                to: server.endpoint.clone(),
                up,
                down,
                seed: 1,
                log: None,
            };
            let dialer = Registry::standard().dialer(Clock::System);
            let shaper = Shaper::start(&options, &dialer).unwrap_or_else(|error| panic!("{error}"));
            let mut link = dialer.open(shaper.endpoint()).unwrap();
            let is_stream = link.caps().framing == Framing::Stream;
            let most = link.caps().max_message_bytes.unwrap_or(usize::MAX);
            let sizes =
                if is_stream { [1, 1000, 1 << 20] } else { [1, 1400, 60_000].map(|size| most.min(size)) };
            for (seed, size) in sizes.into_iter().enumerate() {
                let sent = pattern(size, seed as u64);
                let began = Instant::now();
                let mut half = link.second_handle().unwrap();
                let got = thread::scope(|scope| {
                    scope.spawn(|| send_all(&mut *half, &sent));
                    let (mut got, mut room) = (Vec::new(), vec![0; 70_000]);
                    while got.len() < size {
                        let length = link.receive(&mut room, LONG).unwrap();
                        got.extend_from_slice(&room[..length]);
                        if !is_stream {
                            break;
                        }
                    }
                    got
                });
                assert!(got == sent, "{listen}: {size} bytes came back different");
                assert!(began.elapsed() >= Duration::from_millis(25), "{listen}: too early");
            }
            if link.caps().can_signal_close {
                link.finish_sending().unwrap();
                assert!(matches!(link.receive(&mut [0; 10], LONG), Err(Fault::Closed)), "{listen}");
                server.await_closes(1);
            }
            let bytes = sizes.iter().sum::<usize>() as u64;
            assert_eq!(shaper.tallies().map(|tally| tally.bytes), [bytes, bytes], "{listen}");
        }
    }
}
