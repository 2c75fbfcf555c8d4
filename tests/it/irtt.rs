//! irtt with both ends ours: on the virtual clock to the nanosecond, and at its limits.

use std::net::UdpSocket;
use std::time::Duration;

use linkgauge::protocol::ServerLimits;
use linkgauge::run::{Run, WarningCode};

use super::virtual_net::VirtualNet;
use crate::client::{linkgauge, serving};

/// A run over an emulated network; `more` is appended to the client's URL.
fn virtually(net: &VirtualNet, url: &str, more: &str) -> Run {
    net.run(&format!(
        "[[case]]\nurl = \"{url}\"\nworkload = \"latency\"\nprotocol = \"irtt\"\nwarm_up_count = 0\n{more}"
    ))
}

const MESSAGES: &str = "mem://far-messages?type=message&delay=3ms";

#[test]
fn a_path_of_known_length_has_that_length() {
    let run = virtually(&VirtualNet::serving("irtt"), MESSAGES, "count = 400\n");
    let case = &run.cases[0];
    let ways = case.figures.one_way.as_ref().unwrap();
    assert_eq!((ways.path_ns.min, ways.path_ns.max, ways.turnaround_ns.max), (6_000_000, 6_000_000, 0));
    assert_eq!((ways.forward_variation_ns.max, ways.reverse_variation_ns.max), (0, 0));
    assert_eq!((ways.one_way_error_bound_ns, ways.clock_drift_ppm), (3e6, 0.0));
    assert_eq!((ways.forward_p50_ns, ways.reverse_p50_ns), (3e6, 3e6));
    // The default rate is what servers allow.
    assert_eq!(case.pacing().unwrap()["per_second"], 100.0);
    assert_eq!((case.figures.counts.sent, case.elapsed_ns), (400, 3_990_000_000 + 6_000_000));
    assert!(case.warnings.is_empty(), "{:?}", case.warnings);
}

#[test]
fn losses_are_attributed_to_their_direction() {
    // Every fourth message is lost in each direction: of 100 requests 25, and of the 75 replies 18.
    let url = "mem://far-messages?type=message&delay=1ms&drop=4";
    let run = virtually(&VirtualNet::serving("irtt"), url, "count = 100\ntimeout = \"100ms\"\n");
    let figures = &run.cases[0].figures;
    let ways = figures.one_way.as_ref().unwrap();
    let (there, back) = ways.forward_lost.zip(ways.reverse_lost).unwrap();
    // The direction of losses after the last reply is unknown, and the open packet was among those that passed.
    assert_eq!(there + back, figures.counts.lost);
    assert!((23..=26).contains(&there) && (17..=20).contains(&back), "{there} there, {back} back");
}

#[test]
fn the_limits_of_a_server_are_kept_and_named() {
    let limits = ServerLimits { duration_s: 4, message_bytes: 100, ..ServerLimits::default() };
    let net = VirtualNet::serving_within("irtt", limits);
    let run = virtually(&net, MESSAGES, "rate = \"500/s\"\ntime = \"10s\"\n");
    let case = &run.cases[0];
    // The last one is due at the end.
    assert_eq!((case.figures.counts.sent, case.figures.counts.lost), (400, 0));
    assert_eq!(case.warnings.len(), 1, "{:?}", case.warnings);
    assert_eq!(case.warnings[0].code, WarningCode::ServerLimit);
    let text = "the server allows 100/s on a connection instead of 500/s and tests of 4.000 s, less than was requested";
    assert_eq!(case.warnings[0].text, text);
    let run = virtually(&net, MESSAGES, "size = 200\n");
    let refusal = "the server allows packets of 100 bytes, not 200: use --size 100";
    assert!(run.cases[0].failures[0].message.ends_with(refusal), "{:?}", run.cases[0].failures);
    let run = net.run(&format!(
        "[[case]]\nurl = \"{MESSAGES}\"\nworkload = \"latency\"\nprotocol = \"irtt\"\nwarm_up_time = \"5s\"\n"
    ));
    assert!(run.cases[0].failures[0].message.contains("--warm-up 0"), "{:?}", run.cases[0].failures);
}

#[test]
fn a_key_must_be_the_same_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (key, wrong) = (key("key", "secret\n"), key("wrong", "hex:00"));
    let (_signed, signed) = serving(&["--protocol", "irtt", "--token-file", &key]);
    let (_open, open) = serving(&["--protocol", "irtt"]);
    let measured =
        |line: &str| linkgauge(&format!("latency {line} --protocol irtt -n 5 --warm-up 0 --timeout 1s"));
    measured(&format!("{signed} --authenticated --token-file {key} --size 200")).got_all_replies(5);
    measured(&format!("{signed} --authenticated --token-file {wrong}")).refused(&["its key is another one"]);
    measured(&signed).refused(&["no server of irtt replied", "--token-file"]);
    measured(&format!("{open} --authenticated --token-file {key}")).refused(&["no server of irtt replied"]);
    measured(&format!("{open} --authenticated")).refused(&["use --token-file"]);
    measured(&format!("{open} --size 59")).refused(&["a packet of irtt has 60 bytes or more"]);
    measured(&format!("{open} --rate 100/s --poisson"))
        .refused(&["irtt sends at equal intervals, without random pauses"]);
    measured(&format!("{open} --every 51s")).refused(&["at least every 50 s"]);
    measured("tcp://127.0.0.1:2112").refused(&["needs messages, not a stream"]);
}

#[test]
fn strangers_get_no_reply_and_echoes_need_a_token() {
    let (_server, url) = serving(&["--protocol", "irtt"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(url.strip_prefix("udp://").unwrap()).unwrap();
    let reply_to = |packet: &[u8], patience: u64| {
        socket.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
        socket.send(packet).unwrap();
        let mut room = [0; 100];
        socket.recv(&mut room).ok().map(|length| room[..length].to_vec())
    };
    let head = [0x14, 0xa7, 0x5b];
    let echo = |token: &[u8]| [&head[..], &[0], token, &[0; 48]].concat();
    for stranger in [&b"hello"[..], &head, &echo(&[1; 8]), &echo(&[0; 8]), &[0; 60]] {
        assert_eq!(reply_to(stranger, 100), None, "{stranger:02x?}");
    }
    let open =
        [&head[..], &[1, 1, 2, 2, 0x80, 0x8c, 0x8d, 0x9e, 2, 3, 0x80, 0x84, 0xaf, 0x5f, 5, 6, 6, 6, 7, 6]]
            .concat();
    let grant = reply_to(&open, 20_000).unwrap();
    assert_eq!((grant.len(), grant[3], &grant[12..]), (open.len() + 8, 3, &open[4..]));
    let reply = reply_to(&echo(&grant[4..12]), 20_000).unwrap();
    assert_eq!((reply.len(), reply[3], &reply[4..12]), (60, 2, &grant[4..12]));
}

#[test]
fn a_server_of_another_protocol_is_named_by_its_port() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", silent.local_addr().unwrap());
    linkgauge(&format!("latency {url} --protocol irtt -n 3 --timeout 200ms"))
        .refused(&["no server of irtt replied: check that one runs there"]);
}
