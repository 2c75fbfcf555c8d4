//! Servers and clients of the small services (RFC 862 to 864) and of sockperf: ours against those of other people.

use std::process::{Command, Stdio};

use crate::client::{free_port, linkgauge};
use crate::peers::xinetd;
use crate::program::{Running, Serving, wait_until};

/// Runs socat in a shell; returns its output.
fn shell(line: &str) -> Vec<u8> {
    let child = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.unwrap());
    let mut printed = Vec::new();
    std::io::Read::read_to_end(child.0.stdout.as_mut().unwrap(), &mut printed).unwrap();
    child.wait();
    printed
}

#[test]
fn our_echo_replies_to_socat() {
    let serving = Serving::start(&["--protocol", "echo"]);
    let (tcp, udp) = (serving.tcp.address(), serving.udp.address());
    let printed =
        shell(&format!("head -c 1000000 /dev/zero | tr '\\0' x | socat -T 10 -t 10 STDIO TCP:{tcp}"));
    assert!(printed == vec![b'x'; 1_000_000], "{} bytes came back", printed.len());
    assert_eq!(shell(&format!("echo hello | socat -T 10 -t 2 STDIO UDP:{udp}")), b"hello\n");
}

#[test]
fn our_discard_sends_nothing() {
    let serving = Serving::start(&["--protocol", "discard"]);
    let (tcp, udp) = (serving.tcp.address(), serving.udp.address());
    assert_eq!(shell(&format!("head -c 1000000 /dev/zero | socat -T 10 -t 10 STDIO TCP:{tcp}")), b"");
    assert_eq!(shell(&format!("echo hello | socat -T 10 -t 0.3 STDIO UDP:{udp}")), b"");
}

/// The output of `sockperf`, with an end even if it would run for ever.
fn sockperf(arguments: &str) -> String {
    let printed = shell(&format!("timeout 30 sockperf {arguments} 2>&1"));
    String::from_utf8(printed).unwrap()
}

#[test]
fn a_sockperf_server_replies_to_us() {
    for (scheme, flag) in [("tcp", "--tcp"), ("udp", "")] {
        let port = free_port();
        let child = Command::new("sockperf")
            .args(format!("sr -i 127.0.0.1 -p {port} {flag}").split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sockperf is needed for this test: apt-get install sockperf");
        let _server = Running(child);
        let url = format!("{scheme}://127.0.0.1:{port} --protocol sockperf");
        // It prints nothing when it is ready: the first reply shows it.
        wait_until("a reply of sockperf", || {
            (linkgauge(&format!("latency {url} -n 1 --warm-up 0 --timeout 200ms")).status == 0).then_some(())
        });
        for size in ["14", "1000", "20000"] {
            linkgauge(&format!("latency {url} -n 300 --warm-up 5 --timeout 20s --size {size}"))
                .got_all_replies(300);
        }
        linkgauge(&format!("latency {url} -n 100 --rate 1000/s --timeout 20s")).got_all_replies(100);
        // And an echo it is not.
        linkgauge(&format!("latency {url} -n 3 --warm-up 0 --size 13")).refused(&["14 bytes or more"]);
    }
}

#[test]
fn our_server_replies_to_sockperf() {
    let serving = Serving::start(&["--protocol", "sockperf"]);
    // Its ping-pong goes no further where a datagram is lost, and any may be; under load it does not wait.
    let modes = [
        (serving.tcp.address(), "pp", "--tcp"),
        (serving.udp.address(), "ul --mps=1000 --reply-every=1", ""),
    ];
    for (place, mode, flag) in modes {
        let port = place.rsplit(':').next().unwrap();
        for size in [14, 1000] {
            let printed = sockperf(&format!("{mode} -i 127.0.0.1 -p {port} -t 1 -m {size} {flag}"));
            let line = printed.lines().find(|line| line.contains("[Valid Duration]")).expect(&printed);
            let of = |name: &str| -> u64 {
                let value = line.split(name).nth(1).and_then(|rest| rest.split(';').next()).expect(line);
                value.trim_matches(['=', ' ']).parse().unwrap()
            };
            let (sent, received) = (of("SentMessages"), of("ReceivedMessages"));
            assert!(received > 10 && received <= sent, "{line}");
            assert!(printed.contains("# duplicated messages = 0; # out-of-order messages = 0"), "{printed}");
        }
        // A sender that requests no replies is served silently.
        let printed = sockperf(&format!("tp -i 127.0.0.1 -p {port} -t 1 -m 1000 {flag}"));
        assert!(printed.contains("Total of ") && printed.contains("messages sent in"), "{printed}");
    }
}

#[test]
fn chargen_of_xinetd() {
    let (_xinetd, port) = xinetd("chargen");
    for parallel in [1, 3] {
        let url = format!("tcp://127.0.0.1:{port}");
        let measured = linkgauge(&format!(
            "throughput {url} --protocol chargen --volume 5M --warm-up 10ms -P {parallel}"
        ))
        .clean();
        assert_eq!((measured.count("delivered_bytes"), measured.count("lost")), (parallel * 5_000_000, 0));
        assert_eq!(measured.case()["direction"], "receive");
        assert!(measured.case()["throughput_bps"].as_f64().is_some_and(|rate| rate > 0.0));
    }
    // Requests that arrive between its reply and its next read are discarded.
    let udp = format!("udp://127.0.0.1:{port} --protocol chargen");
    let measured =
        linkgauge(&format!("latency {udp} -n 40 --warm-up 0 --rate 100/s --timeout 200ms")).clean();
    assert_eq!((measured.count("sent"), measured.count("received") + measured.count("lost")), (40, 40));
    assert!(measured.count("received") >= 10, "{}", measured.run);
    linkgauge(&format!("latency tcp://127.0.0.1:{port} --protocol chargen"))
        .refused(&["replies to nothing on a stream"]);
    linkgauge(&format!("throughput udp://127.0.0.1:{port} --protocol chargen"))
        .refused(&["sends no datagrams by itself"]);
}

#[test]
fn our_chargen_goes_on_for_ever() {
    let serving = Serving::start(&["--protocol", "chargen"]);
    let (tcp, udp) = (serving.tcp.address(), serving.udp.address());
    let printed = shell(&format!("socat -T 10 -u TCP:{tcp} STDOUT | head -c 1000000"));
    assert_eq!(printed.len(), 1_000_000);
    let mut lines = printed.split(|&byte| byte == b'\n');
    assert!(lines.next().is_some_and(|line| line.starts_with(b" !\"#") && line.ends_with(b"efg\r")));
    assert!(lines.next().is_some_and(|line| line.starts_with(b"!\"#$") && line.ends_with(b"fgh\r")));
    // No reply is longer than its request, or than the RFC allows.
    assert_eq!(shell(&format!("printf 12345 | socat -T 10 -t 2 STDIO UDP:{udp}")), b" !\"#$");
    assert_eq!(
        shell(&format!("head -c 2000 /dev/zero | socat -b 4000 -T 10 -t 2 STDIO UDP:{udp}")).len(),
        512
    );
    let measured = linkgauge(&format!("throughput {} --protocol chargen --volume 20M", serving.tcp)).clean();
    assert_eq!(measured.count("delivered_bytes"), 20_000_000);
    linkgauge(&format!("latency {} --protocol chargen -n 100 --size 64 --timeout 20s", serving.udp))
        .got_all_replies(100);
}

#[test]
fn our_chargen_enforces_its_limits() {
    let serving = Serving::start(&["--protocol", "chargen", "--max-rate", "8Mbit/s", "--max-time", "2s"]);
    // A megabyte a second for two seconds, and a quarter of one at once.
    let bytes: usize =
        String::from_utf8(shell(&format!("socat -T 10 -u TCP:{} STDOUT | wc -c", serving.tcp.address())))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
    assert!((100_000..=2_400_000).contains(&bytes), "{bytes}");
}
