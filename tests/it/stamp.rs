//! STAMP and TWAMP-Light: both ends ours, on the virtual clock to the nanosecond, and reflectors that lie.

use std::net::UdpSocket;
use std::time::Duration;

use linkgauge::run::{OneWayFigures, Run};

use super::virtual_net::VirtualNet;
use crate::client::{ClientRun, linkgauge, serving};

fn ways(measured: &ClientRun) -> OneWayFigures {
    serde_json::from_value(measured.case()["one_way"].clone()).unwrap()
}

#[test]
#[ignore = "long"]
fn both_ends_are_ours() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (key, wrong) = (key("key", "secret\n"), key("wrong", "hex:00"));
    let (_open, open) = serving(&["--protocol", "stamp"]);
    let (_stateless, stateless) = serving(&["--protocol", "stamp", "--stateless"]);
    let (_light, light) = serving(&["--protocol", "twamp-light"]);
    let (_signed, signed) = serving(&["--protocol", "stamp", "--token-file", &key]);
    for line in [
        format!("{open} --protocol stamp"),
        format!("{open} --protocol stamp --rate 2000/s -P 3 --timeout 20s"),
        format!("{open} --protocol stamp --size 1472 --busy-poll"),
        format!("{open} --protocol twamp-light --size 44"),
        format!("{stateless} --protocol stamp"),
        format!("{light} --protocol twamp-light"),
        format!("{light} --protocol stamp --size 100"),
        format!("{signed} --protocol stamp --authenticated --token-file {key}"),
        format!("{signed} --protocol stamp --authenticated --token-file {key} --size 500"),
    ] {
        let measured = linkgauge(&format!("latency {line} -n 300 --warm-up 10")).clean();
        let count = if line.contains("-P 3") { 900 } else { 300 };
        assert_eq!((measured.count("received"), measured.count("lost")), (count, 0), "{line}");
        let ways = ways(&measured);
        assert_eq!((ways.path_ns.count, ways.turnaround_ns.count), (count, count));
        assert!(ways.turnaround_ns.max > 0 && ways.path_ns.min > 0, "{line}: {ways:?}");
        // Both ends use one clock, so the offset is within the bound.
        assert!(ways.clock_offset_ns.abs() <= ways.one_way_error_bound_ns + 50_000.0, "{line}: {ways:?}");
        assert_eq!(measured.case()["effective"]["authenticated"], line.contains("--authenticated"));
    }
    let lost = |line: &str| linkgauge(&format!("latency {line} -n 3 --warm-up 0 --timeout 200ms"));
    lost(&format!("{signed} --protocol stamp")).refused(&["none of 3 messages arrived"]);
    lost(&format!("{signed} --protocol stamp --authenticated --token-file {wrong}"))
        .refused(&["none of 3 messages arrived"]);
    lost(&format!("{open} --protocol stamp --authenticated")).refused(&["--token-file"]);
    lost(&format!("{open} --protocol stamp --size 43"))
        .refused(&["a packet of stamp has 44, or 48 and more bytes"]);
    // A reply would be longer than the request.
    lost(&format!("{light} --protocol twamp-light --size 14")).refused(&["none of 3 messages arrived"]);
    lost("tcp://127.0.0.1:862 --protocol stamp").refused(&["needs messages, not a stream"]);
    lost("udp://127.0.0.1:862 --protocol echo --authenticated")
        .refused(&["the protocol echo has no option 'authenticated'"]);
}

/// A run over an emulated network; `more` is appended to the client's URL.
fn virtually(peer: &str, url: &str, more: &str) -> Run {
    VirtualNet::serving(peer).run(&format!(
        "[[case]]\nurl = \"{url}\"\nworkload = \"latency\"\nprotocol = \"{peer}\"\nwarm_up_count = 0\n{more}"
    ))
}

#[test]
fn a_path_of_known_length_has_that_length() {
    for peer in ["stamp", "twamp-light"] {
        let run = virtually(peer, "mem://far-messages?type=message&delay=3ms", "count = 200\n");
        let figures = &run.cases[0].figures;
        let ways = figures.one_way.as_ref().unwrap();
        assert_eq!((ways.path_ns.min, ways.path_ns.max, ways.turnaround_ns.max), (6_000_000, 6_000_000, 0));
        assert_eq!((ways.forward_variation_ns.max, ways.reverse_variation_ns.max), (0, 0));
        assert_eq!((ways.one_way_error_bound_ns, ways.clock_drift_ppm), (3e6, 0.0));
        assert_eq!((ways.forward_p50_ns, ways.reverse_p50_ns), (3e6, 3e6));
    }
}

#[test]
fn losses_are_attributed_to_their_direction() {
    // Every fourth message is lost in each direction: of 100 requests 25, and of the 75 replies 18.
    let url = "mem://far-messages?type=message&delay=1ms&drop=4";
    let run = virtually("stamp", url, "count = 100\ntimeout = \"10ms\"\n");
    let figures = &run.cases[0].figures;
    let ways = figures.one_way.as_ref().unwrap();
    assert_eq!((figures.counts.sent, figures.counts.lost), (100, 43));
    let (there, back) = ways.forward_lost.zip(ways.reverse_lost).unwrap();
    // The direction of losses after the last reply is unknown.
    assert!(there + back == 43 && (23..=25).contains(&there), "{there} there, {back} back");
}

/// A server that replies to each packet with the result of `reply`, which gets the packet and the last reply of an
/// honest reflector; serves until the test program ends.
fn liar(reply: impl Fn(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut room = [0; 2000];
        for number in 0.. {
            let Ok((length, from)) = socket.recv_from(&mut room) else { return };
            for reply in reply(number, &room[..length]) {
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    url
}

/// A change of an honest reply.
type Change = fn(&mut Vec<u8>);

/// The immediate reply of an honest reflector.
fn honest(asked: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; 44];
    reply[..16].copy_from_slice(&asked[..16]);
    reply[16..24].copy_from_slice(&asked[4..12]);
    reply[24..28].copy_from_slice(&asked[..4]);
    reply[28..38].copy_from_slice(&asked[4..14]);
    reply
}

#[test]
#[ignore = "long"]
fn false_replies_are_counted_and_cost_no_time() {
    // Few requests with much time each: on a busy machine, too, every reply arrives in time.
    let waiting = |timeout: &str, url: &str| {
        linkgauge(&format!("latency {url} --protocol stamp -n 4 --warm-up 0 --timeout {timeout}"))
    };
    let patiently = |url: &str| waiting("10s", url);
    let measure = |url: &str| waiting("500ms", url);
    patiently(&liar(|_, asked| vec![honest(asked)])).got_all_replies(4);

    let with = |change: Change| {
        liar(move |_, asked| {
            let mut reply = honest(asked);
            change(&mut reply);
            vec![reply]
        })
    };
    // What is wrong, the counts of received and corrupt replies, and the change.
    let strange: [(&str, (u64, u64), Change); 6] = [
        ("too short", (0, 4), |reply| reply.truncate(20)),
        ("another session", (0, 4), |reply| reply[14] ^= 1),
        ("a number never sent", (0, 4), |reply| reply[24] = 0x80),
        // Times in the wrong order, and times that are none, leave the round trip.
        ("gone before it came", (4, 4), |reply| reply[4] -= 1),
        ("no error estimate", (4, 0), |reply| reply[13] = 0),
        ("no time of PTP", (4, 0), |reply| {
            reply[12..24].copy_from_slice(&[0x7f, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])
        }),
    ];
    for (what, counts, change) in strange {
        let measured = measure(&with(change));
        assert!(measured.took < Duration::from_secs(20), "{what}: {:?}", measured.took);
        assert_eq!(
            (measured.count("received"), measured.count("corrupt_messages")),
            counts,
            "{what}: {}",
            measured.run
        );
        if counts.0 == 0 {
            measured.refused(&["none of 4 messages got a reply", "check that the server uses stamp"]);
        }
    }
    let other = measure(&liar(|_, _| vec![b"220 mail.example ESMTP".to_vec()]));
    other.refused(&["none of 4 messages got a reply"]);
    measure(&liar(|_, _| Vec::new())).refused(&["the server does not reply"]);

    // A turn-around time of two hours in a round trip of microseconds: a reply, and corrupt.
    let measured = patiently(&with(|reply| reply[5] = reply[5].wrapping_add(1)));
    assert_eq!((measured.count("received"), measured.count("corrupt_messages")), (4, 4), "{}", measured.run);
    assert!(measured.case().get("one_way").is_none());

    // Every reply twice, and later repetitions of the first one.
    let measured = patiently(&liar(|_, asked| vec![honest(asked), honest(asked)]));
    assert_eq!(measured.count("received"), 4);
    assert!((3..=4).contains(&measured.count("duplicate")), "{}", measured.run);
    assert!(codes(&measured).contains(&"duplicate".to_owned()), "{}", measured.run);
    let first = std::sync::Mutex::new(None);
    let measured = waiting(
        "1s",
        &liar(move |_, asked| vec![first.lock().unwrap().get_or_insert_with(|| honest(asked)).clone()]),
    );
    assert_eq!(
        (measured.count("received"), measured.count("duplicate"), measured.count("lost")),
        (1, 3, 3),
        "{}",
        measured.run
    );
}

#[test]
fn unknown_senders_get_no_reply() {
    let (_server, url) = serving(&["--protocol", "stamp"]);
    let place = url.strip_prefix("udp://").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for stranger in [&b"hello"[..], &[0; 43], &[0; 44], &[0; 2000]] {
        socket.send_to(stranger, place).unwrap();
        assert!(socket.recv(&mut [0; 100]).is_err(), "{} bytes got a reply", stranger.len());
    }
    let mut asked = [0; 44];
    asked[13] = 1;
    socket.send_to(&asked, place).unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 44);
}

#[test]
fn a_reflector_that_vanishes_is_one_line() {
    let (server, url) = serving(&["--protocol", "stamp"]);
    // A link that is opened after the end of the reflector gets another error, so there is only one link.
    let command = format!("latency {url} --protocol stamp -t 20s --repeat 1 --timeout 500ms");
    let client = std::thread::spawn(move || linkgauge(&command));
    std::thread::sleep(Duration::from_secs(3));
    drop(server);
    let measured = client.join().unwrap();
    assert_eq!(measured.status, 2);
    assert!(measured.took < Duration::from_secs(15) && measured.count("received") > 0, "{}", measured.errors);
    assert!(
        measured.errors.lines().count() == 1 && measured.errors.contains("the remote stopped replying"),
        "{}",
        measured.errors
    );
}

fn codes(measured: &ClientRun) -> Vec<String> {
    let warnings = measured.case()["warnings"].as_array().unwrap();
    warnings.iter().map(|warning| warning["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_remote_clock_that_is_set_and_replies_before_their_request_are_reported() {
    let measure = |url: &str| {
        linkgauge(&format!("latency {url} --protocol stamp -n 40 --rate 100/s --warm-up 0 --timeout 10s"))
    };
    // By the time of day, so that nothing arrives before it was sent.
    let later = |reply: &mut [u8], seconds: u64| {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
        let time = (unix.as_secs() + 2_208_988_800 + seconds) << 32 | fraction;
        for at in [4, 16] {
            reply[at..at + 8].copy_from_slice(&time.to_be_bytes());
        }
    };
    // An hour forward, and back again.
    let measured = measure(&liar(move |number, asked| {
        let mut reply = honest(asked);
        later(&mut reply, if (10..30).contains(&number) { 3_600 } else { 0 });
        vec![reply]
    }));
    assert_eq!((measured.count("received"), ways(&measured).clock_steps), (40, 2), "{}", measured.run);
    assert!(ways(&measured).forward_variation_ns.max < 3_000_000_000, "{}", measured.run);
    assert!(codes(&measured).contains(&"remote_clock_set".to_owned()), "{}", measured.run);

    let steady = measure(&liar(move |_, asked| {
        let mut reply = honest(asked);
        later(&mut reply, 3_600);
        vec![reply]
    }));
    assert_eq!((steady.count("received"), ways(&steady).clock_steps), (40, 0), "{}", steady.run);
    for code in ["remote_clock_set", "early", "duplicate"] {
        assert!(!codes(&steady).contains(&code.to_owned()), "{}", steady.run);
    }

    // Beside each reply the one to a request that is due long after.
    let measured = measure(&liar(|_, asked| {
        let mut early = honest(asked);
        let number = u32::from_be_bytes(asked[..4].try_into().unwrap());
        early[24..28].copy_from_slice(&(number + 1_000).to_be_bytes());
        vec![honest(asked), early]
    }));
    assert_eq!(measured.count("received"), 40, "{}", measured.run);
    assert!((39..=40).contains(&measured.count("early")), "{}", measured.run);
    assert!(codes(&measured).contains(&"early".to_owned()), "{}", measured.run);
}

/// A packet of STAMP with the extension class of service, from a socket with DSCP 46: the reply has the class and the TTL on arrival.
#[test]
fn replies_state_the_class_and_the_ttl_of_the_request() {
    let (_server, url) = serving(&["--protocol", "stamp"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&socket).set_tos_v4(46 << 2).unwrap();
    socket.set_ttl(77).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    let mut request = [0; 52];
    request[13] = 1;
    request[44..48].copy_from_slice(&[0x80, 4, 0, 4]);
    let mut reply = [0; 100];
    let mut reply_to_request = || {
        socket.send(&request).unwrap();
        let length = socket.recv(&mut reply).unwrap();
        reply[..length].to_vec()
    };
    // The system does not report about the first packet.
    assert_eq!(reply_to_request()[44..48], [0x80, 4, 0, 4]);
    let reply = reply_to_request();
    assert_eq!(reply[44..], [0, 4, 0, 4, 46 >> 4, (46 << 4 & 0xff) as u8, 0, 0]);
    assert_eq!(reply[40], 77);
}

#[test]
fn our_packets_leave_with_the_largest_ttl() {
    let (_server, url) = serving(&["--protocol", "stamp"]);
    let ttl = |url: &str| {
        let measured = linkgauge(&format!("latency {url} --protocol stamp -n 5"));
        measured.case()["effective"]["ttl_at_server"].clone()
    };
    assert_eq!(ttl(&url), 255);
    assert_eq!(ttl(&format!("{url}?ttl=9")), 9);
}

#[test]
fn short_requests_get_a_reply_from_trusting_reflectors() {
    let (_server, url) = serving(&["--protocol", "stamp", "--trust-senders"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut request = [0; 20];
    request[13] = 1;
    socket.send_to(&request, url.strip_prefix("udp://").unwrap()).unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 44);
}
