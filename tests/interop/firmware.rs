//! The server side for firmware: an image for a board that QEMU emulates, and the library for C. The host measures both.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use crate::client::linkgauge;
use crate::icmp::in_a_network;
use crate::modules::runs;
use crate::program::{Running, run_within};

const FIRMWARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/firmware");
const BOARD_TARGET: &str = "thumbv7m-none-eabi";

/// Builds packages of the workspace of firmware, for a target or for this host; returns the folder of the results.
fn build(target: Option<&str>, packages: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(FIRMWARE).args(["build", "--quiet", "--locked", "--release"]);
    // Of the test run, which has its own target directory.
    cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    cargo.args(target.iter().flat_map(|target| ["--target", target]));
    let ended = run_within(Duration::from_secs(300), &mut cargo);
    assert_eq!(ended.status, Some(0), "rustup target add {}\n{}", target.unwrap_or_default(), ended.stderr);
    Path::new(FIRMWARE).join("target").join(target.unwrap_or_default()).join("release")
}

static IMAGE: LazyLock<PathBuf> =
    LazyLock::new(|| build(Some(BOARD_TARGET), &["linkgauge-lm3s6965"]).join("lm3s6965"));

/// Boots the board in a network of its own and runs a script, with the serial ports in `$1` to `$3`.
fn on_the_board(options: &str, script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let ended = in_a_network(&format!(
        "cd {folder}
        ip tuntap add dev tap0 mode tap
        ip addr add 10.0.2.2/24 dev tap0
        ip link set tap0 up
        qemu-system-arm -M lm3s6965evb -display none -monitor none {options} -kernel {image} -serial pty -serial pty \
            -serial pty -nic tap,ifname=tap0,script=no,downscript=no >ports 2>/dev/null & board=$!
        trap 'kill $board' EXIT
        until [ $(grep -c redirected ports) = 3 ]; do kill -0 $board; sleep 0.05; done
        set -- $(sed -n 's/.* to \\([^ ]*\\) .*/\\1/p' ports)
        until $LG latency udp://10.0.2.15:7 --protocol echo -n 1 --warm-up 0 --timeout 1s -q; do kill -0 $board; done
        # A reply that is late because this host is busy is not lost.
        json='--timeout 10s -q --json -'
        {script}",
        folder = directory.path().display(),
        image = IMAGE.display(),
    ));
    assert_eq!(ended.status, Some(0), "apt-get install qemu-system-arm\n{}", ended.stderr);
    ended.stdout
}

/// A board that answers everywhere: the serial ports, UDP, LINX.
#[test]
fn a_board_answers_on_its_uarts_over_udp_and_over_linx() {
    const SCRIPT: &str = "
        $LG latency $1 --protocol device --size 1024 -n 5 $json
        $LG throughput $1 --protocol device --volume 4k --size 64 $json
        $LG latency $2 -n 50 $json
        for size in 16 1024; do $LG latency udp://10.0.2.15:5102 --protocol device --size $size -n 200 $json; done
        $LG throughput udp://10.0.2.15:5102 --protocol device --volume 140k --size 1400 $json
        $LG latency udp://10.0.2.15:862 --protocol stamp -n 200 $json
        linx=linx+eth://tap0/02:00:00:00:00:15
        for size in 4 1024 16384; do $LG latency $linx/server --protocol linx-bmark --size $size -n 100 $json; done
        $LG throughput $linx/server --protocol linx-bmark --volume 1M $json
        $LG latency $linx/echo --protocol echo --size 100 -n 100 $json";
    let printed = on_the_board("", SCRIPT);
    let all = runs(&printed, &printed);
    let cases: Vec<&Value> = all.iter().flat_map(|run| run["cases"].as_array().unwrap()).collect();
    let outcome = |case: &&Value| {
        let text = |name: &str| case[name].as_str().unwrap().to_owned();
        let count = |name: &str| case[name].as_u64().unwrap_or(0);
        (text("protocol"), text("workload"), count("lost"), count("corrupt_bytes"))
    };
    let expect = |protocol: &str, workload: &str| (protocol.to_owned(), workload.to_owned(), 0, 0);
    let (latency, throughput) = ("latency", "throughput");
    assert_eq!(
        cases.iter().map(outcome).collect::<Vec<_>>(),
        [
            expect("device", latency),
            expect("device", throughput),
            expect("echo", latency),
            expect("device", latency),
            expect("device", latency),
            expect("device", throughput),
            expect("stamp", latency),
            expect("linx-bmark", latency),
            expect("linx-bmark", latency),
            expect("linx-bmark", latency),
            expect("linx-bmark", throughput),
            expect("echo", latency),
        ],
    );
    assert_eq!(cases[1]["delivered_bytes"], 4032, "as the device counts them");
    assert_eq!(cases[5]["delivered_bytes"], 140_000);
    assert_eq!(all[5]["environment"]["server"]["clock_tick_ns"], 80);
}

/// Instructions, where the emulator counts them: one a nanosecond.
#[test]
fn the_cost_of_a_message_is_counted_in_instructions() {
    const SCRIPT: &str = "
        stty -F $3 raw -echo
        exec 3<>$3
        cost() { printf x >&3; read -r line <&3; echo $1 $line; }
        cost 0
        for size in 64 1024 4096 16384; do
            $LG latency linx+eth://tap0/02:00:00:00:00:15/server --protocol linx-bmark --size $size -n 100 --warm-up 0 --repeat 1 -q
            cost $size
        done";
    let printed = on_the_board("-icount shift=0", SCRIPT);
    // SIZE linx: N frames in N ns
    let field = |line: &str, at: usize| line.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
    let costs: Vec<(f64, f64)> = printed.lines().map(|line| (field(line, 0), field(line, 5))).collect();
    let per_message: Vec<(f64, f64)> =
        costs.windows(2).map(|pair| (pair[1].0, (pair[1].1 - pair[0].1) / 100.0)).collect();
    assert_eq!(per_message.len(), 4, "{printed}");
    for (bytes, instructions) in &per_message {
        println!(
            "{bytes} B: {instructions:.0} instructions a round trip, {:.1} a byte",
            instructions / bytes
        );
    }
    // Bounds far from what was measured: a copy too many, or a search that grows with the message, would exceed them.
    let (small, large) = (per_message[0].1, per_message[3].1);
    assert!((500.0..20_000.0).contains(&small), "{per_message:?}");
    assert!((3.0..60.0).contains(&((large - small) / 16_320.0)), "{per_message:?}");
}

/// The example in C, as a program of this host.
#[test]
fn a_program_in_c_is_measured() {
    let library = build(None, &["linkgauge-responder-c"]).join("liblinkgauge_responder.a");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("udp");
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-D_POSIX_C_SOURCE=200809L",
        "-Ic/include",
        "c/examples/udp.c",
    ]);
    cc.arg(&library).arg("-o").arg(&program).current_dir(FIRMWARE);
    let ended = run_within(Duration::from_secs(60), &mut cc);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let mut command = Command::new(&program);
    command.args(["0", "0"]).stdout(std::process::Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut port = || lines.next().unwrap().unwrap();
    let (device, stamp) = (port(), port());
    linkgauge(&format!("latency udp://127.0.0.1:{device} --protocol device --size 500 -n 500"))
        .got_all_replies(500);
    let upload = linkgauge(&format!(
        "throughput udp://127.0.0.1:{device} --protocol device --size 1000 --volume 100k --bit-rate 10Mbit/s"
    ))
    .clean();
    assert_eq!((upload.count("sent"), upload.count("received")), (100, 100));
    linkgauge(&format!("latency udp://127.0.0.1:{stamp} --protocol stamp -n 500")).got_all_replies(500);
}

/// The library for targets without an operating system has every function of the header, and the sizes are those of the page.
#[test]
fn the_library_is_built_for_small_targets_with_the_sizes_of_the_page() {
    let header = std::fs::read_to_string(format!("{FIRMWARE}/c/include/linkgauge_responder.h")).unwrap();
    let declared =
        |line: &&str| line.contains("lg_") && line.contains('(') && !line.starts_with(['/', ' ', '#', 't']);
    let names: Vec<&str> = header
        .lines()
        .filter(declared)
        .map(|line| line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap())
        .collect();
    assert!(names.len() >= 12, "{names:?}");
    for target in [BOARD_TARGET, "riscv32imac-unknown-none-elf"] {
        let library = build(Some(target), &["linkgauge-responder-c"]).join("liblinkgauge_responder.a");
        let bytes = std::fs::read(&library).unwrap();
        for name in &names {
            assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{target}: {name}");
        }
    }
    let ended = run_within(Duration::from_secs(300), &mut Command::new(format!("{FIRMWARE}/measure")));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/firmware.md")).unwrap();
    for line in ended.stdout.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (service, code, ram) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let (code, ram): (u32, u32) = (code.parse().unwrap(), ram.parse().unwrap());
        assert!(service == "linx" || code <= 24 * 1024 && ram <= 1024, "{line}");
        // Another compiler makes code of another size: near it.
        let row = page.lines().find(|row| row.starts_with(&format!("| `{service}` |"))).expect(service);
        let figures: Vec<u32> =
            row.split('|').filter_map(|cell| cell.trim().replace(' ', "").parse().ok()).collect();
        assert!(figures[0].abs_diff(code) <= figures[0] / 5 + 100, "{row}: {line}");
        assert_eq!(figures[1], ram, "{row}: {line}");
    }
}
