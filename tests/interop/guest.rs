//! Tests that need a kernel with modules that this one may lack: they run in a guest with its own clock.
//!
//! The clock of these guests counts instructions, so the figures do not depend on the load of this host.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::program::{Ended, Running, command, run, run_within};
use super::shared_guests::NETWORKS;

pub const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/vm");

/// Longer than the limit below.
const LONGEST_GUEST: Duration = Duration::from_secs(1860);

/// Runs a shell script in a guest of its own. Tests whose scripts do not disturb each other share one (`shared_guests`).
pub fn guest(modules: &str, tools: &str, script: &str) -> Ended {
    let fixed = ["lab", "vm", "--virtual-time", "--limit", "30min", "--cache", CACHE];
    let arguments =
        [&fixed[..], &["--modules", modules, "--tools", tools, "--", "sh", "-c", script]].concat();
    run_within(LONGEST_GUEST, &mut command(&arguments))
}

#[test]
fn a_command_in_a_guest_behaves_as_on_the_host() {
    let ended = guest("", "", "id -u; echo \"it's\" >&2; sleep 100; linkgauge --version; exit 7");
    assert_eq!(ended.stdout, format!("0\nlinkgauge {}\n", env!("CARGO_PKG_VERSION")), "{}", ended.stderr);
    assert_eq!(ended.stderr, "it's\nerror: in the guest sh ended with status 7\n");
    assert_eq!(ended.status, Some(2));
}

#[test]
fn missing_tools_are_named() {
    let ended = guest("no_such_module", "", "true");
    assert!(ended.stderr.ends_with("error: no such kernel module: no_such_module\n"), "{}", ended.stderr);
    assert_eq!(ended.status, Some(2));
    let ended = guest("", "no-such-tool", "true");
    assert_eq!(
        (ended.status, ended.stderr.as_str()),
        (Some(2), "error: missing on this host: no-such-tool\n")
    );
}

fn median_ns(run: &Value, case: usize) -> f64 {
    run["cases"][case]["latency_ns"]["p50"].as_f64().unwrap_or_else(|| panic!("{run}"))
}

#[test]
fn a_guest_ends_with_the_command_that_started_it() {
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/vm");
    let script = "echo up; sleep 1000";
    let mut running = Running::start(&["lab", "vm", "--cache", cache, "--", "sh", "-c", script]);
    let mut stdout = running.0.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(130));
    // A process that still ran would hold it open.
    assert_eq!(stdout.read(&mut [0; 9]).unwrap(), 0);
    let ended = run(&["lab", "vm", "--cache", cache, "--limit", "1s", "--", "sleep", "1000"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(2), "error: the guest was not done after 1 s\n"));
}

/// Shapes the loopback device of the guest and measures over it; kills the shaper and starts it again.
pub const NETEM: &str = "
    linkgauge serve -q & server=$!
    sleep 1
    linkgauge lab shaper --netem lo --delay 50ms --rate 100kBps -q & shaper=$!
    sleep 1
    tc qdisc show dev lo
    linkgauge latency udp://127.0.0.1 tcp://127.0.0.1 --count 20 --warm-up 2 --size 64 --json -
    kill -INT $shaper; wait $shaper; echo
    tc qdisc show dev lo
    linkgauge lab shaper --netem lo --delay 50ms --jitter 5ms --loss 1% --duplicate 0.5% --reorder 2% -q & shaper=$!
    sleep 1
    kill -KILL $shaper; wait $shaper 2>/dev/null
    tc qdisc show dev lo
    linkgauge lab shaper --netem lo --delay 5ms
    tc qdisc del dev lo root
    tc qdisc add dev lo root pfifo
    linkgauge lab shaper --netem lo --delay 5ms
    tc qdisc show dev lo
    kill $server";

#[test]
fn netem_delays_outgoing_traffic_and_is_removed() {
    let ended = NETWORKS.ended("netem");
    let (before, rest) = ended.stdout.split_once('\n').unwrap_or_else(|| panic!("{}", ended.stderr));
    assert_eq!(before.trim(), "qdisc netem 7100: root refcnt 2 limit 1000 delay 50ms rate 800Kbit");
    let mut documents = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let run = documents.next().unwrap().unwrap();
    let after = &rest[documents.byte_offset()..];
    for (case, headers) in [(0, 14 + 20 + 8), (1, 14 + 20 + 32)] {
        let p50 = median_ns(&run, case);
        // Both directions: the delay, and message and headers at 100 kB/s.
        let expected = 2e6 * (50.0 + (64 + headers) as f64 / 100.0);
        assert!((p50 / expected - 1.0).abs() < 0.02, "{p50} ns, expected {expected}");
    }
    let lines: Vec<&str> = after.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "qdisc noqueue 0: root refcnt 2");
    assert_eq!(
        lines[1],
        "qdisc netem 7100: root refcnt 2 limit 100000 delay 50ms  5ms loss 1% duplicate 0.5% reorder 2% gap 1"
    );
    assert!(lines[2].starts_with("qdisc pfifo ") && lines.len() == 3, "queues of others stay: {lines:?}");
    let complaints: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error")).collect();
    assert!(complaints[0].starts_with("error: lo: 'lab shaper' already shapes it: "), "{}", ended.stderr);
    assert!(
        complaints[1].ends_with(": another program has installed a queue there. Remove it first"),
        "{}",
        ended.stderr
    );
    assert_eq!(complaints.len(), 2);
}

/// Relays without and with a delay, on streams and in messages, and on a slow line.
pub const RELAYS: &str = "
    linkgauge serve -q &
    for scheme in tcp udp; do
        linkgauge lab shaper --listen $scheme://127.0.0.1:7200 --to $scheme://127.0.0.1:7100 -q &
        linkgauge lab shaper --listen $scheme://127.0.0.1:7201 --to $scheme://127.0.0.1:7100 --delay 500ms -q &
        linkgauge lab shaper --listen $scheme://127.0.0.1:7202 --to $scheme://127.0.0.1:7100 --rate 1kBps -q &
    done
    sleep 1
    for scheme in tcp udp; do
        for port in 7200 7201 7202; do urls=\"$urls $scheme://127.0.0.1:$port\"; done
    done
    linkgauge latency $urls --count 20 --warm-up 2 --size 64 --timeout 5s --json -
    linkgauge throughput tcp://127.0.0.1:7202 --direction receive --size 1000 --volume 20k --timeout 20s --probe off --json -
    exit 0";

#[test]
fn a_relay_adds_the_requested_delay() {
    let ended = NETWORKS.ended("relays");
    let mut documents = serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>();
    let latency = documents.next().unwrap_or_else(|| panic!("{}", ended.stderr)).unwrap();
    for first in [0, 3] {
        let [plain, delayed, slow] = [0, 1, 2].map(|case| median_ns(&latency, first + case));
        for (added, expected) in [(delayed - plain, 1000e6), (slow - plain, 128e6)] {
            // A relay is never early; a busy host is late.
            assert!((expected - 200e3..expected + 10e6).contains(&added), "{added} ns, expected {expected}");
        }
    }
    let throughput = documents.next().unwrap_or_else(|| panic!("{}", ended.stderr)).unwrap();
    let rate = throughput["cases"][0]["throughput_bps"].as_f64().unwrap_or_else(|| panic!("{throughput}"));
    assert!((rate / 8000.0 - 1.0).abs() < 0.01, "{rate} bit/s");
}

#[test]
fn tools_that_are_missing_are_named_with_their_packages() {
    // A host with everything that a guest needs, except the Bluetooth tools.
    let path = tempfile::tempdir().unwrap();
    for tool in ["bash", "qemu-system-x86_64", "busybox", "cpio", "xz"] {
        let found = Command::new("which").arg(tool).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), path.path().join(tool)).unwrap();
    }
    let output = command(&["lab", "vm", "--tools", "btvirt,hciconfig", "--", "true"])
        .env("PATH", path.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    let packages = "apt-get install --no-install-recommends bluez-test-tools bluez";
    assert!(printed.contains("btvirt hciconfig") && printed.contains(packages), "{printed}");
}
