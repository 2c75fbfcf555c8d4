//! Third-party servers, measured with the program as users run it: echo, discard and chargen of xinetd, a Modbus
//! server, a calculator. Counts and texts are asserted, but no time tighter than seconds.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use linkgauge::protocol::linkgauge::wire::Hello;

use crate::client::{free_port, linkgauge};
use crate::program::{Running, wait_until};
use crate::socat::Socat;
use crate::tools::interpreter;

/// Waits until a program listens there.
fn listening(port: u16, program: &mut Running, what: &str) {
    wait_until(what, || {
        let ended = program.0.try_wait().unwrap();
        assert!(ended.is_none(), "{what} ended before it listened");
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
}

/// A running xinetd and the directory of its files.
pub struct Xinetd {
    _process: Running,
    _directory: tempfile::TempDir,
}

/// xinetd with one of its internal services, over TCP and UDP.
pub fn xinetd(service: &str) -> (Xinetd, u16) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let port = free_port();
    let mut config = format!(
        "defaults\n{{\n bind = 127.0.0.1\n cps = 10000 1\n instances = UNLIMITED\n per_source = UNLIMITED\n \
         log_type = FILE {}\n}}\n",
        path("log")
    );
    for (socket, protocol, wait) in [("stream", "tcp", "no"), ("dgram", "udp", "yes")] {
        config += &format!(
            "service {service}\n{{\n id = {service}-{socket}\n type = INTERNAL UNLISTED\n port = {port}\n \
             socket_type = {socket}\n protocol = {protocol}\n wait = {wait}\n}}\n"
        );
    }
    fs::write(path("conf"), config).unwrap();
    let child = Command::new("/usr/sbin/xinetd")
        .args(["-f", &path("conf"), "-dontfork", "-pidfile", &path("pid")])
        .stdin(Stdio::null())
        .stdout(fs::File::create(path("out")).unwrap())
        .stderr(fs::File::create(path("err")).unwrap())
        .spawn()
        .expect("xinetd is needed for this test: apt-get install xinetd");
    let mut process = Running(child);
    listening(port, &mut process, "xinetd");
    (Xinetd { _process: process, _directory: directory }, port)
}

/// socat that runs `command` for each connection; it ends when nothing moves.
fn each_connection(command: &str) -> (Socat, String) {
    let (socat, place) = Socat::listening("TCP-LISTEN:0,bind=127.0.0.1,fork", command);
    (socat, format!("tcp://{place}"))
}

#[test]
fn echo_of_xinetd() {
    let (_xinetd, port) = xinetd("echo");
    let tcp = format!("tcp://127.0.0.1:{port} --protocol echo --timeout 20s");
    // It replies to a large message in several parts, and holds the last one until the others are acknowledged.
    for (size, count) in [("1", 300), ("14", 300), ("1000", 300), ("100k", 20)] {
        linkgauge(&format!("latency {tcp} -n {count} --warm-up 5 --size {size}")).got_all_replies(count);
    }
    linkgauge(&format!("latency {tcp} -n 50 --rate 500/s -P 3")).got_all_replies(150);

    let outcome = linkgauge(&format!("throughput {tcp} --volume 8M")).clean();
    assert_eq!((outcome.count("delivered_bytes"), outcome.count("lost")), (8_000_000, 0));
    assert_eq!(outcome.case()["direction"], "loop");

    // It discards requests that arrive between its reply and its next read, so some may be lost.
    let udp = format!("udp://127.0.0.1:{port} --protocol echo");
    let outcome = linkgauge(&format!("latency {udp} -n 40 --rate 100/s --timeout 500ms")).clean();
    assert_eq!((outcome.count("sent"), outcome.count("received") + outcome.count("lost")), (40, 40));
    assert!(outcome.count("received") >= 10, "{}", outcome.run);
    let outcome = linkgauge(&format!("throughput {udp} --volume 14k --bit-rate 1Mbit/s --size 1400")).clean();
    assert_eq!((outcome.count("sent"), outcome.count("received") + outcome.count("lost")), (10, 10));
}

#[test]
fn auto_finds_the_echo_of_xinetd() {
    let (_xinetd, port) = xinetd("echo");
    for scheme in ["tcp", "udp"] {
        let outcome = linkgauge(&format!("latency {scheme}://127.0.0.1:{port} -n 10 --rate 100/s")).clean();
        assert_eq!(outcome.case()["protocol"], "echo");
    }
}

#[test]
fn discard_of_xinetd() {
    let (_xinetd, port) = xinetd("discard");
    for parallel in [1, 3] {
        let url = format!("tcp://127.0.0.1:{port}");
        let outcome =
            linkgauge(&format!("throughput {url} --protocol discard --volume 5M -P {parallel}")).clean();
        assert_eq!((outcome.count("delivered_bytes"), outcome.count("lost")), (parallel * 5_000_000, 0));
        assert!(outcome.case()["throughput_bps"].as_f64().is_some_and(|rate| rate > 0.0));
    }
    linkgauge(&format!("throughput udp://127.0.0.1:{port} --protocol discard"))
        .refused(&["does not count datagrams", "--protocol linkgauge"]);
}

#[test]
fn auto_names_the_choices_without_a_reply() {
    let (_xinetd, port) = xinetd("discard");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // A server that accepts a connection is there. Over UDP there may be none.
    let choices = &["discard", "ask"][..];
    let urls = [
        (format!("tcp://127.0.0.1:{port}"), choices),
        (format!("udp://127.0.0.1:{port}"), &[]),
        (format!("tcp://{}", silent.local_addr().unwrap()), choices),
    ];
    for (url, choices) in urls {
        let outcome = linkgauge(&format!("latency {url} --timeout 1s"));
        assert!(outcome.took < Duration::from_secs(20), "{:?}", outcome.took);
        outcome.refused(&[&[&url, "no reply", "--protocol"], choices].concat());
    }
}

#[test]
fn auto_shows_the_first_bytes_of_another_protocol() {
    let (_xinetd, port) = xinetd("chargen");
    for scheme in ["tcp", "udp"] {
        let url = format!("{scheme}://127.0.0.1:{port}");
        linkgauge(&format!("latency {url}")).refused(&[&url, r##"it sent '!"#$%&'()*"##, "--protocol"]);
    }
    let (_socat, url) = each_connection("SYSTEM:echo 220 mail.example ESMTP; sleep 30");
    linkgauge(&format!("latency {url}")).refused(&[&url, "it sent '220 mail.example…'", "--protocol"]);
    // A server that has read the hello can close without a reset, which would overtake its reply.
    let hello = Hello::new().bytes().len();
    let (_socat, url) = each_connection(&format!("SYSTEM:head -c {hello} >/dev/null && echo hi"));
    linkgauge(&format!("latency {url}")).refused(&[&url, r"it sent 'hi\n'", "--protocol"]);
}

#[test]
fn loops_that_return_too_little_are_incomplete() {
    for (command, most) in [("head -c 100000", 100_000), ("tail -c +1001", 9_999_000), ("cat >/dev/null", 0)]
    {
        let (_socat, url) = each_connection(&format!("SYSTEM:{command}"));
        let outcome = linkgauge(&format!("throughput {url} --protocol echo --volume 10M --timeout 2s"));
        assert_eq!(outcome.status, 2, "{command}: {}", outcome.errors);
        assert!(outcome.errors.contains(&url), "{}", outcome.errors);
        assert_eq!(outcome.case()["complete"], false);
        assert!(outcome.count("delivered_bytes") <= most, "{command}: {}", outcome.run);
    }
}

#[test]
fn a_discard_that_closes_early_is_incomplete() {
    let (_socat, url) = each_connection("SYSTEM:head -c 100000 >/dev/null");
    let outcome = linkgauge(&format!("throughput {url} --protocol discard --volume 100M --timeout 2s"));
    assert_eq!(outcome.status, 2, "{}", outcome.errors);
    assert!(outcome.errors.contains("the remote closed the link"), "{}", outcome.errors);
    assert!(outcome.count("delivered_bytes") < 100_000_000, "{}", outcome.run);
}

#[test]
fn a_calculator_replies() {
    let (_socat, url) = each_connection("EXEC:bc -q");
    let ask = |more: &str| {
        linkgauge(&format!("latency {url} --protocol ask -n 200 --timeout 20s --send 1+1\\n {more}"))
    };
    ask(r"--reply-end 2\n").got_all_replies(200);
    ask("--reply-bytes 2 --reply-contains 2").got_all_replies(200);
    ask(r"--reply-end \n --rate 200/s").got_all_replies(200);
    let wrong = ask(r"--reply-end \n --reply-contains 3");
    assert_eq!((wrong.status, wrong.count("received"), wrong.count("corrupt_messages")), (0, 200, 200));

    // A reply longer than announced leaves extra bytes, which must not count as the next reply.
    let short = r"-n 50 --rate 50/s --send 10+1\n --reply-bytes 2 --reply-contains 11";
    let tail = linkgauge(&format!("latency {url} --protocol ask {short}"));
    assert_eq!((tail.count("received"), tail.count("corrupt_messages")), (50, 0), "{}", tail.run);
    assert!(tail.count("corrupt_bytes") >= 40, "{}", tail.run);
}

#[test]
fn a_silent_calculator_loses_requests() {
    let (_socat, url) = each_connection("EXEC:bc -q");
    // An assignment prints nothing.
    let silent = r"-n 5 --warm-up 0 --timeout 100ms --send a=1\n --reply-end \n";
    let outcome = linkgauge(&format!("latency {url} --protocol ask {silent}"));
    assert_eq!(
        (outcome.status, outcome.count("sent"), outcome.count("lost")),
        (2, 5, 5),
        "{} {}",
        outcome.errors,
        outcome.run
    );
}

/// Ten holding registers, the first of them 0x1234, over TCP with either framing. The server ends with this process.
const MODBUS: &str = r#"
import os, sys, threading, time
from pymodbus import FramerType
from pymodbus.server import StartTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

def watch(parent):
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)

threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
registers = SimData(0, values=[0x1234] * 10, datatype=DataType.REGISTERS)
framer = FramerType.RTU if sys.argv[2] == "rtu" else FramerType.SOCKET
StartTcpServer(SimDevice(1, simdata=[registers]), address=("127.0.0.1", int(sys.argv[1])), framer=framer)
"#;

fn modbus(framing: &str) -> (Running, String) {
    let port = free_port();
    let mut child = Command::new(interpreter())
        .args(["-", &port.to_string(), framing])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(MODBUS.as_bytes()).unwrap();
    let mut server = Running(child);
    listening(port, &mut server, "the Modbus server");
    (server, format!("tcp://127.0.0.1:{port}"))
}

#[test]
fn modbus_tcp_replies() {
    let (_server, url) = modbus("socket");
    let ask = |send: &str, expect: &str| {
        let reply = format!("--reply-length 4,2,big,6 --reply-contains hex:{expect}");
        linkgauge(&format!("latency {url} --protocol ask -n 200 --timeout 20s --send hex:{send} {reply}"))
    };
    // Two registers of unit 1, from the first one on.
    ask("000700000006010300000002", "00070000000701030412341234").got_all_replies(200);
    // A missing register: the reply is an exception, which has another length.
    ask("000800000006010300630001", "018302").got_all_replies(200);
}

#[test]
fn modbus_is_a_protocol() {
    let (_server, url) = modbus("socket");
    let host = url.trim_start_matches("tcp://");
    let ask = |options: &str| linkgauge(&format!("latency modbus://{host} -n 200 --timeout 20s {options}"));
    let outcome = ask("--registers 10");
    assert_eq!(outcome.count("corrupt_messages"), 0);
    assert_eq!(outcome.case()["effective"]["modbus_exceptions"], serde_json::Value::Null);
    outcome.got_all_replies(200);
    ask("--rate 500/s").got_all_replies(200);
    ask("--function 8").got_all_replies(200);
    let outcome = ask("--register 99 --warm-up 0");
    assert_eq!(outcome.case()["effective"]["modbus_exceptions"], serde_json::json!({ "2": 200 }));
    assert_eq!(outcome.count("corrupt_messages"), 0);
    outcome.got_all_replies(200);
}

#[test]
fn modbus_rtu_over_tcp_is_a_protocol() {
    let (_server, url) = modbus("rtu");
    let ask = |options: &str| {
        linkgauge(&format!("latency {url} --protocol modbus --mode rtu -n 200 --timeout 20s {options}"))
    };
    for options in ["", "--function 8", "--registers 10"] {
        let outcome = ask(options);
        assert_eq!(outcome.count("corrupt_messages"), 0, "{options}");
        outcome.got_all_replies(200);
    }
    let outcome = ask("--register 99 --warm-up 0");
    assert_eq!(outcome.case()["effective"]["modbus_exceptions"], serde_json::json!({ "2": 200 }));
    outcome.got_all_replies(200);
}

#[test]
fn modbus_rtu_replies() {
    let (_server, url) = modbus("rtu");
    let question = "--send hex:010300000001840A --reply-bytes 7 --reply-contains hex:0103021234";
    linkgauge(&format!("latency {url} --protocol ask -n 200 --timeout 20s {question}")).got_all_replies(200);
}
