//! The program of another processor, run by QEMU, measures the links of the demo, and those between it and the program of this one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::client::free_port;
use crate::program::{Running, run_within, wait_until};

const TARGET: &str = "aarch64-unknown-linux-musl";
const EMULATOR: &str = "qemu-aarch64-static";

/// The program, built once.
fn built() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut build = Command::new(root.join("packaging/cross"));
        // Nothing here debugs it.
        let build = build.args([TARGET, "dev"]).env("CARGO_PROFILE_DEV_DEBUG", "0").stderr(Stdio::inherit());
        let output = build.output().unwrap();
        assert!(output.status.success(), "{TARGET} cannot be built");
        root.join(String::from_utf8(output.stdout).unwrap().trim())
    })
}

fn emulated(arguments: &[&str]) -> Command {
    let mut command = Command::new(EMULATOR);
    command.arg(built()).args(arguments).env("LINKGAUGE_STORE", "").stdin(Stdio::null());
    command
}

fn native(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    command.args(arguments).env("LINKGAUGE_STORE", "").stdin(Stdio::null());
    command
}

/// The only case of a measurement.
fn case(mut command: Command) -> Value {
    let ended = run_within(Duration::from_secs(60), &mut command);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let mut document: Value = serde_json::from_str(&ended.stdout).unwrap();
    document["cases"][0].take()
}

#[test]
fn the_demo_measures_its_links() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let mut demo = emulated(&["demo", "--quick", "--json", &path("demo.json"), "--html", &path("demo.html")]);
    let ended = run_within(Duration::from_secs(240), &mut demo);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    for link in ["tcp", "udp", "unix stream", "linx", "mem", "icmp", "serial 115200 bit/s", "tcp pakbus"] {
        let is_row = |line: &str| line.trim_start().starts_with(link);
        assert!(ended.stdout.lines().any(is_row), "{link}: {}", ended.stdout);
    }
}

#[test]
fn it_measures_and_serves_programs_of_another_processor() {
    type Program = fn(&[&str]) -> Command;
    for (serve, measure) in [(emulated as Program, native as Program), (native, emulated)] {
        let port = free_port();
        let urls = ["tcp", "udp"].map(|scheme| format!("{scheme}://127.0.0.1:{port}"));
        let place = tempfile::tempdir().unwrap();
        let printed = place.path().join("printed");
        let mut server = serve(&["serve", &urls[0], &urls[1]]);
        server.stdout(std::fs::File::create(&printed).unwrap()).stderr(Stdio::null());
        let _server = Running(server.spawn().unwrap());
        wait_until("the server", || {
            (std::fs::read_to_string(&printed).unwrap().lines().count() == 2).then_some(())
        });
        for url in &urls {
            let trips = case(measure(&["latency", url, "-n", "300", "--size", "100", "--json", "-", "-q"]));
            assert_eq!((&trips["received"], &trips["lost"]), (&300.into(), &0.into()), "{trips}");
            assert_eq!(trips["corrupt_bytes"], 0);
        }
        let sent = case(measure(&["throughput", &urls[0], "--volume", "4M", "--json", "-", "-q"]));
        assert_eq!(
            (&sent["delivered_bytes"], &sent["complete"]),
            (&4_000_000.into(), &true.into()),
            "{sent}"
        );
    }
}
