//! Listeners of links without connections: their handling of first messages, and conflicts of addresses.

use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::link::party::Tuning;
use linkgauge::link::{Admission, Batch, Fault, Link, LinkError, Listener};

use crate::program::{ServingOn, run};

const LONG: Duration = Duration::from_secs(10);

fn listen(url: &str) -> Result<Box<dyn Listener>, LinkError> {
    Registry::standard().dialer(Clock::System).listen(&url.parse().unwrap())
}

fn dial(listener: &dyn Listener) -> Box<dyn Link> {
    Registry::standard()
        .dialer(Clock::System)
        .open(&listener.endpoint())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn is_in_use(result: Result<Box<dyn Listener>, LinkError>) -> bool {
    let Err(LinkError { fault: Fault::System { source, .. }, .. }) = result else { return false };
    source.kind() == std::io::ErrorKind::AddrInUse
}

fn next(link: &mut dyn Link) -> Vec<u8> {
    let mut room = vec![0; 2000];
    let length = link.receive(&mut room, LONG).unwrap();
    room.truncate(length);
    room
}

/// Endpoints of the kinds that have an accept filter.
fn filtered_urls(directory: &str) -> Vec<String> {
    let udp = ["127.0.0.1", "0.0.0.0", "[::1]", "[::]"].map(|host| format!("udp://{host}:0"));
    let unix = [format!("unix://{directory}/d?type=dgram"), format!("unix://@{directory}-d?type=dgram")];
    udp.into_iter().chain(unix).collect()
}

/// A port is served on IPv4 and IPv6 by one command, in any order; [::] alone serves both families.
#[test]
fn one_port_on_both_families() {
    for scheme in ["tcp", "udp"] {
        let port = crate::client::free_port();
        let [four, six] = ["0.0.0.0", "[::]"].map(|host| format!("{scheme}://{host}:{port}"));
        let near = ["127.0.0.1", "[::1]"].map(|host| format!("{scheme}://{host}:{port}"));
        for urls in [vec![&four, &six], vec![&six, &four], vec![&six]] {
            let urls: Vec<&str> = urls.into_iter().map(String::as_str).collect();
            let _server = ServingOn::start(&urls);
            for url in &near {
                let ended = run(&["latency", url, "-n", "2", "--warm-up", "0", "-q"]);
                assert_eq!(ended.status, Some(0), "{urls:?} {url}: {}", ended.stderr);
            }
        }
        let ended = run(&["serve", &four, &four]);
        assert!(ended.stderr.contains("this address and port are given twice"), "{}", ended.stderr);
    }
}

#[test]
fn the_accept_filter_decides() {
    let directory = tempfile::tempdir().unwrap();
    for url in filtered_urls(directory.path().to_str().unwrap()) {
        let mut listener = listen(&url).unwrap();
        let mut link = dial(&*listener);
        link.send(b"drop", LONG).unwrap();
        link.send(b"reply", LONG).unwrap();
        let admit = &mut |message: &[u8], _: &str, reply: &mut Vec<u8>| match message {
            b"drop" => Admission::Drop,
            b"reply" => {
                reply.extend_from_slice(b"cookie");
                Admission::Reply
            }
            _ => Admission::Open,
        };
        let accepted = listener.accept(Duration::from_millis(20), admit);
        assert!(matches!(accepted, Err(Fault::TimedOut)), "{url}");
        assert_eq!(next(&mut *link), b"cookie", "{url}");

        // A reply stores nothing, so the next message of the same sender is checked again; an admitted sender keeps
        // its link.
        link.send(b"first", LONG).unwrap();
        let (mut server, _) = listener.accept(LONG, admit).unwrap();
        assert_eq!(next(&mut *server), b"first", "{url}");
        for _ in 0..3 {
            server.send(b"there", LONG).unwrap();
            assert_eq!(next(&mut *link), b"there", "{url}");
            link.send(b"back", LONG).unwrap();
            assert_eq!(next(&mut *server), b"back", "{url}");
        }
        let again =
            listener.accept(Duration::ZERO, &mut |_, _, _| panic!("{url}: asked about a link that is open"));
        assert!(matches!(again, Err(Fault::TimedOut)), "{url}");
    }
}

#[test]
fn messages_before_the_link_go_to_that_link() {
    for host in ["127.0.0.1", "0.0.0.0"] {
        let mut listener = listen(&format!("udp://{host}:0")).unwrap();
        let (mut one, mut two) = (dial(&*listener), dial(&*listener));
        for number in 0..20u8 {
            one.send(&[1, number], LONG).unwrap();
            two.send(&[2, number], LONG).unwrap();
        }
        let filter = &mut |_: &[u8], _: &str, _: &mut Vec<u8>| Admission::Open;
        for name in [1, 2] {
            let (server, _) = listener.accept(LONG, filter).unwrap();
            let mut half = server.second_handle().unwrap();
            drop(server);
            for number in 0..20u8 {
                assert_eq!(next(&mut *half), [name, number], "{host}");
            }
        }
        assert!(matches!(listener.accept(Duration::ZERO, filter), Err(Fault::TimedOut)));
    }
}

#[test]
fn unidirectional_datagrams_reach_their_link_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut listener = listen(&format!("unix://{}/d?type=dgram", directory.path().display())).unwrap();
    let mut link = dial(&*listener);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200u8 {
                link.send(&[number], LONG).unwrap();
            }
        });
        let (mut server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Open).unwrap();
        for number in 0..200u8 {
            assert_eq!(next(&mut *server), [number]);
        }
    });
}

#[test]
fn every_kind_of_batching_gives_the_same_messages() {
    const SIZE: usize = 700;
    for options in ["", "?gso=0&gro=0", "?gso=1&gro=1", "?gso=1&gro=0", "?gso=0&gro=1"] {
        for host in ["127.0.0.1", "[::1]"] {
            let mut listener = listen(&format!("udp://{host}:0{options}")).unwrap();
            let mut client = dial(&*listener);
            client.send(b"open", LONG).unwrap();
            let (mut server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Open).unwrap();
            assert_eq!(next(&mut *server), b"open");
            let mut server_half = server.second_handle().unwrap();
            let tuning = Tuning { batch_message_bytes: Some(SIZE as u32), ..Tuning::default() };
            client.tune(&tuning);
            server.tune(&tuning);
            let sent: Vec<u8> = (0..SIZE * 30 - 5).map(|at| (at % 251) as u8).collect();
            let send = |client: &mut dyn Link| {
                let mut left = &sent[..];
                while !left.is_empty() {
                    left = &left[client.send_batch(left, SIZE, LONG).unwrap()..];
                }
            };
            // Rooms for all of them, for few, and for one; and a half that was not tuned.
            for messages in [64, 4, 1] {
                send(&mut *client);
                let (mut batch, mut got) = (Batch::new(SIZE, messages), Vec::new());
                while got.len() < sent.len() {
                    server.receive_batch(&mut batch, LONG).unwrap();
                    for message in batch.messages() {
                        assert_eq!(
                            message.len(),
                            SIZE.min(sent.len() - got.len()),
                            "{host} {options} {messages}"
                        );
                        got.extend_from_slice(message);
                    }
                }
                assert!(got == sent, "{host} {options} {messages}");
            }
            send(&mut *client);
            let mut got = Vec::new();
            while got.len() < sent.len() {
                got.extend(next(&mut *server_half));
            }
            assert!(got == sent, "{host} {options}");

            let (sends, receives) = (client.facts(), server.facts());
            if options == "?gso=1&gro=1" {
                assert_eq!(
                    (&sends["send_method"], &receives["receive_method"]),
                    (&"gso".into(), &"gro".into())
                );
            }
            // A single message is not cut.
            client.send(&[1; 1800], LONG).unwrap();
            assert_eq!(next(&mut *server), [1; 1800]);
            assert_eq!(server.status().socket_drops, Some(0));
        }
    }
}

#[test]
fn segments_of_one_byte_fill_a_batch() {
    let mut listener = listen("udp://127.0.0.1:0?gso=1&gro=1").unwrap();
    let mut client = dial(&*listener);
    client.send(b"open", LONG).unwrap();
    let (mut server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Open).unwrap();
    assert_eq!(next(&mut *server), b"open");
    for link in [&mut client, &mut server] {
        link.tune(&Tuning { batch_message_bytes: Some(1), ..Tuning::default() });
    }
    let sent: Vec<u8> = (0..64).collect();
    assert_eq!(client.send_batch(&sent, 1, LONG).unwrap(), 64);
    let mut batch = Batch::new(1, 128);
    let mut got = Vec::new();
    while got.len() < 64 {
        server.receive_batch(&mut batch, LONG).unwrap();
        batch.messages().for_each(|message| got.extend_from_slice(message));
        assert!(batch.messages().all(|message| message.len() == 1));
    }
    assert_eq!(got, sent);
}

#[test]
fn drops_of_a_full_socket_are_counted() {
    let mut listener = listen("udp://127.0.0.1:0?rcvbuf=10000").unwrap();
    let mut client = dial(&*listener);
    client.send(b"open", LONG).unwrap();
    let (server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Open).unwrap();
    for _ in 0..100 {
        client.send(&[0; 1000], LONG).unwrap();
    }
    assert!(server.status().socket_drops.unwrap() > 50, "{:?}", server.status().socket_drops);
}

#[test]
fn a_place_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().to_str().unwrap();
    let mut urls = filtered_urls(directory);
    urls.extend(["stream", "seqpacket"].map(|kind| format!("unix://{directory}/{kind}?type={kind}")));
    for url in urls {
        let first = listen(&url).unwrap();
        assert!(is_in_use(listen(first.endpoint().as_str())), "{url}");
        // Not for longer than it lasts.
        let endpoint = first.endpoint();
        drop(first);
        drop(listen(endpoint.as_str()).unwrap_or_else(|error| panic!("{error}")));
    }
    let foreign = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(is_in_use(listen(&format!("udp://{}", foreign.local_addr().unwrap()))));
}

#[test]
fn files_of_dead_servers_are_replaced_and_ours_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // A killed server leaves a socket file without a socket.
    drop(UnixListener::bind(path("stream")).unwrap());
    drop(UnixDatagram::bind(path("dgram")).unwrap());
    for kind in ["stream", "dgram"] {
        let url = format!("unix://{}?type={kind}", path(kind).display());
        let listener = listen(&url).unwrap_or_else(|error| panic!("{error}"));
        assert!(path(kind).exists());
        drop(listener);
        assert!(!path(kind).exists(), "{kind}");
    }
    // A file that is not a socket must not be removed.
    std::fs::write(path("text"), "kept").unwrap();
    assert!(is_in_use(listen(&format!("unix://{}", path("text").display()))));
    assert_eq!(std::fs::read_to_string(path("text")).unwrap(), "kept");
    // Another kind of server that lives is not a dead one.
    let _live = UnixListener::bind(path("live")).unwrap();
    assert!(is_in_use(listen(&format!("unix://{}?type=dgram", path("live").display()))));
    // A file that was replaced meanwhile belongs to another program.
    let listener = listen(&format!("unix://{}", path("replaced").display())).unwrap();
    std::fs::remove_file(path("replaced")).unwrap();
    std::fs::write(path("replaced"), "new").unwrap();
    drop(listener);
    assert!(path("replaced").exists());
}

#[test]
fn errors_in_unix_endpoints_are_one_clear_line() {
    let error = |url: &str| listen(url).map(|_| ()).unwrap_err().to_string();
    let long = format!("unix:///{}", "x".repeat(107));
    insta::assert_snapshot!([
        "unix://relative/path", "unix://@", "unix:///tmp/s?type=packet", &long,
    ].map(error).join("\n"), @r"
    unix://relative/path: needed is a path from the root, like unix:///run/socket, or an abstract name, like unix://@name
    unix://@: needed is a name after '@'
    unix:///tmp/s?type=packet: 'type=packet' is not stream, dgram or seqpacket
    unix:///xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: needed is a path or name of at most 107 bytes, as the kernel's address holds no more
    ");
}

#[test]
fn listeners_detect_vanished_clients_by_keepalive() {
    for (listens, dials, accepted, dialed) in [
        ("", "", Some(30), None),
        ("?keepalive=5s", "?keepalive=2min", Some(5), Some(120)),
        ("?keepalive=off", "?keepalive=1s", None, Some(1)),
        ("?mptcp=1&keepalive=7s", "", Some(7), None),
    ] {
        let mut listener = listen(&format!("tcp://127.0.0.1:0{listens}")).unwrap();
        let place = listener.endpoint().to_string();
        let url = format!("{}{dials}", place.split('?').next().unwrap());
        let client = Registry::standard().dialer(Clock::System).open(&url.parse().unwrap()).unwrap();
        let (server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Drop).unwrap();
        let idle =
            |link: &dyn Link| link.facts().get("keepalive_idle_seconds").and_then(|idle| idle.as_u64());
        assert_eq!((idle(&*server), idle(&*client)), (accepted, dialed), "{listens} {dials}");
    }
}

#[test]
fn accepted_connections_have_the_settings_of_their_listener() {
    for (options, nodelay, congestion, receive_buffer) in [
        ("", true, None, None),
        ("?nodelay=0&congestion=reno&rcvbuf=100000&sndbuf=90000", false, Some("reno"), Some(200_000)),
    ] {
        let mut listener = listen(&format!("tcp://127.0.0.1:0{options}")).unwrap();
        let place = listener.endpoint().to_string();
        let url = place.split('?').next().unwrap().parse().unwrap();
        let _client = Registry::standard().dialer(Clock::System).open(&url).unwrap();
        let (server, _) = listener.accept(LONG, &mut |_, _, _| Admission::Drop).unwrap();
        let facts = server.facts();
        assert_eq!(facts["nodelay"], nodelay, "{options}");
        assert!(congestion.is_none_or(|name| facts["congestion_control"] == name), "{facts:?}");
        assert!(receive_buffer.is_none_or(|bytes| facts["receive_buffer_bytes"] == bytes), "{facts:?}");
    }
}
