//! The program of Windows, run by Wine, measures links to the program of this system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::client::free_port;
use crate::program::{Running, run_within, wait_until};

const TARGET: &str = "x86_64-pc-windows-gnu";
const WINE: &str = "/usr/lib/wine/wine64";

/// Wine 8 lacks a library with one function that programs in Rust call for random bytes.
const RANDOM_BYTES: &str = r#"#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }
"#;

/// The program and the files of Wine, made once.
struct Windows {
    program: PathBuf,
    prefix: PathBuf,
}

fn windows() -> &'static Windows {
    static MADE: OnceLock<Windows> = OnceLock::new();
    MADE.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("target").join(TARGET).join("debug");
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(root).args(["build", "--locked", "--bin", "linkgauge", "--target", TARGET]);
        // Nothing here debugs it.
        assert!(
            build.env("CARGO_PROFILE_DEV_DEBUG", "0").status().unwrap().success(),
            "{TARGET} cannot be built"
        );
        let source = folder.join("random_bytes.c");
        std::fs::write(&source, RANDOM_BYTES).unwrap();
        let mut compile = Command::new("x86_64-w64-mingw32-gcc");
        compile
            .args(["-shared", "-o"])
            .arg(folder.join("bcryptprimitives.dll"))
            .arg(&source)
            .arg("-ladvapi32");
        assert!(compile.status().unwrap().success());
        let prefix = folder.join("wine");
        let made = Windows { program: folder.join("linkgauge.exe"), prefix };
        let ended = run_within(Duration::from_secs(120), made.wine().args(["wineboot", "-i"]));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        made
    })
}

impl Windows {
    fn wine(&self) -> Command {
        let mut command = Command::new(WINE);
        command.env("WINEPREFIX", &self.prefix).env("WINEDEBUG", "-all").stdin(Stdio::null());
        command
    }
}

fn foreign(arguments: &[&str]) -> Command {
    let windows = windows();
    let mut command = windows.wine();
    command.arg(&windows.program).args(arguments).env("LINKGAUGE_STORE", "");
    command
}

fn native(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    command.args(arguments).env("LINKGAUGE_STORE", "").stdin(Stdio::null());
    command
}

/// The only case of a measurement.
fn case(mut command: Command) -> Value {
    let ended = run_within(Duration::from_secs(120), &mut command);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let mut document: Value = serde_json::from_str(&ended.stdout).unwrap();
    document["cases"][0].take()
}

#[test]
fn it_measures_servers_of_this_system() {
    let port = free_port();
    let urls = ["tcp", "udp"].map(|scheme| format!("{scheme}://127.0.0.1:{port}"));
    let place = tempfile::tempdir().unwrap();
    let printed = place.path().join("printed");
    let mut server = native(&["serve", &urls[0], &urls[1]]);
    server.stdout(std::fs::File::create(&printed).unwrap()).stderr(Stdio::null());
    let _server = Running(server.spawn().unwrap());
    wait_until("the server", || {
        (std::fs::read_to_string(&printed).unwrap().lines().count() == 2).then_some(())
    });
    for url in &urls {
        let trips = case(foreign(&["latency", url, "-n", "300", "--size", "100", "--json", "-", "-q"]));
        assert_eq!((&trips["received"], &trips["lost"]), (&300.into(), &0.into()), "{trips}");
        assert_eq!(trips["corrupt_bytes"], 0);
    }
    let sent = case(foreign(&["throughput", &urls[0], "--volume", "4M", "--json", "-", "-q"]));
    assert_eq!((&sent["delivered_bytes"], &sent["complete"]), (&4_000_000.into(), &true.into()), "{sent}");
}
