//! Output on a terminal: printable text and the program's own colours, whatever a document, a server or a file name
//! contains.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use linkgauge::protocol::linkgauge::wire::{self, HANDSHAKE_BYTES};
use linkgauge::report::is_unprintable;
use linkgauge::run::Run;
use linkgauge::store::Store;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::program::{Ended, command};

const DOCUMENT: &str = include_str!("../data/run-v1-latency.json");
const PAPER: &str = include_str!("../data/run-v1-paper.json");

/// Title, screen, colour, the same with C1, bell, carriage return, direction, separators, invisible characters, a
/// forged line of ours.
const HOSTILE: &str = "x\u{1b}]0;gotcha\u{7}\u{1b}[2J\u{1b}[8m\u{9b}2J\u{9d}0;gotcha\u{9c}\r\u{202e}\u{2028}\u{2066}\u{feff}\u{e0041}\u{7f}\nerror: forged";

/// Runs the program on a terminal of its own; both of its outputs are in `stdout`, as the terminal gets them.
pub fn on_terminal(arguments: &[&str]) -> Ended {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut command = command(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command.stdout(side.try_clone().unwrap()).stderr(side).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It has copies of the program's side, which the terminal waits for.
    drop(command);
    let stdout = all_of(terminal);
    Ended { status: child.wait().unwrap().code(), stdout, stderr: String::new() }
}

/// The output to a terminal until no process has it open, which is a read error there.
fn all_of(terminal: OwnedFd) -> String {
    let (mut terminal, mut bytes) = (fs::File::from(terminal), Vec::new());
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = terminal.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..length]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Fails on anything that does more than show, but for ends of lines, tabs and the colours of this program.
fn shows_only(message: &str, what: &str) {
    let mut plain = message.replace("\r\n", "\n").replace('\t', " ");
    for colour in ["0", "1", "4", "31", "32", "33", "36"] {
        plain = plain.replace(&format!("\u{1b}[{colour}m"), "");
    }
    // The bar of the progress moves within its line.
    let bad = plain.chars().find(|c| *c != '\n' && is_unprintable(*c));
    assert!(bad.is_none(), "{what}: {bad:?} in {message:?}");
}

/// The same of messages, none of which begins in the middle of another.
fn says_only(message: &str, what: &str) {
    shows_only(message, what);
    assert!(!message.contains("\nerror: forged"), "{what}: {message:?}");
}

/// Fields whose texts are checked when a document is read.
const ENUMERATED: [&str; 11] = [
    "schema",
    "started",
    "direction",
    "id",
    "kind",
    "histogram_hdr_v2",
    "near_cpu",
    "far_cpu",
    "client_cpu",
    "server_cpu",
    "wait",
];

/// A document whose texts are all hostile, but for those that are one of a list.
fn hostile(document: &str) -> String {
    fn spoil(value: &mut Value, key: &str) {
        match value {
            Value::String(text) if !ENUMERATED.contains(&key) => {
                text.push_str(HOSTILE);
            }
            Value::Array(values) => values.iter_mut().for_each(|value| spoil(value, key)),
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| spoil(value, key)),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(document).unwrap();
    spoil(&mut value, "");
    let text = value.to_string();
    Run::from_json(&text).expect("it is a document still");
    text
}

#[test]
fn control_characters_of_a_document_are_not_printed() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (latency, paper) = (path("latency.json"), path("paper.json"));
    fs::write(&latency, hostile(DOCUMENT)).unwrap();
    fs::write(&paper, hostile(PAPER)).unwrap();
    for document in [&latency, &paper] {
        for format in ["text", "json", "csv", "html", "junit", "netio"] {
            let ended = on_terminal(&["show", document, "--format", format]);
            assert_eq!(ended.status, Some(0), "{format}: {}", ended.stdout);
            shows_only(&ended.stdout, format);
            if format == "json" {
                let shown = Run::from_json(&ended.stdout).unwrap();
                assert_eq!(shown, Run::from_json(&fs::read_to_string(document).unwrap()).unwrap());
            }
        }
        for arguments in [
            &["compare", document, document, "--force"][..],
            &["compare", document, document, "--force", "--json"],
            &["explain", document],
            &["show", document, document],
            &["import", "run", document, "--no-store"],
        ] {
            shows_only(&on_terminal(arguments).stdout, arguments[0]);
        }
    }
}

/// A terminal has names, too.
#[test]
fn files_that_are_the_terminal_get_safe_text() {
    let place = tempfile::tempdir().unwrap();
    let document = place.path().join("run.json");
    fs::write(&document, hostile(DOCUMENT)).unwrap();
    for format in ["--json", "--csv", "--html", "--junit"] {
        let ended = on_terminal(&["show", document.to_str().unwrap(), "--quiet", format, "/dev/stdout"]);
        assert_eq!(ended.status, Some(0), "{format}: {}", ended.stdout);
        assert!(ended.stdout.contains("gotcha"), "{format}: {}", ended.stdout);
        shows_only(&ended.stdout, format);
    }
}

#[test]
fn the_content_of_a_download_is_not_printed_on_a_terminal() {
    let ended = on_terminal(&["download", "pakbus://127.0.0.1:1", "--file", "CPU:a", "--output", "-"]);
    assert_eq!(ended.status, Some(2));
    assert!(
        ended.stdout.contains("--output -: the content may be binary, so it is not printed on a terminal")
    );
    assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
}

#[test]
fn control_characters_of_a_store_are_not_printed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let store = path.to_str().unwrap();
    let mut run = Run::from_json(&hostile(DOCUMENT)).unwrap();
    // The store refuses such an id.
    run.id = "20261120T100000Z-abcd".to_owned();
    let mut opened = Store::open(&path).unwrap();
    opened.save(&run).unwrap();
    opened.tag(&run.id, &[format!("tag{HOSTILE}")]).unwrap();
    let directory = place.path().join("out").display().to_string();
    for arguments in [
        &["history"][..],
        &["history", "--json"],
        &["history", "--metric", "p50"],
        &["history", "--metric", "p50", "--json"],
        &["show", "last"],
        &["export", &directory],
        &["prune", "--keep", "0", "--tagged", "--dry-run"],
    ] {
        let ended = on_terminal(&[arguments, &["--store", store]].concat());
        assert!(!ended.stdout.is_empty(), "{arguments:?}: {}", ended.stderr);
        shows_only(&ended.stdout, &arguments.join(" "));
    }
}

#[test]
fn control_characters_of_file_names_and_arguments_are_not_printed() {
    let place = tempfile::tempdir().unwrap();
    let evil = place.path().join(HOSTILE);
    fs::write(
        &evil,
        format!("[[case]]\n\"{}\" = 1\nurl = \"tcp://a:1\"\n", HOSTILE.replace(['\n', '\r'], "")),
    )
    .unwrap();
    let evil = evil.to_str().unwrap();
    let missing = format!("{evil}.missing");
    let json = place.path().join("evil.json").display().to_string();
    let unknown = r#"{"schema":"linkgauge.run.v1","id":"a","tool":"t","cases":[{"direction":"\u001b[2J\u009b2J\u202e\nerror: forged"}]}"#;
    fs::write(&json, unknown).unwrap();
    for arguments in [
        &["run", evil][..],
        &["run", &missing],
        &["show", &json],
        &["show", evil],
        &["show", &missing],
        &["import", "samples", evil, "--no-store"],
        &["latency", "tcp://127.0.0.1:1", "--json", &format!("{missing}/x")],
        &["latency", "tcp://127.0.0.1:1", "--token-file", &missing],
        &["latency", &format!("unix://{missing}")],
        &["latency", &format!("serial://{missing}")],
        &["lab", "logger", "--file", HOSTILE],
        &["latency", HOSTILE],
        &["latency", "tcp://127.0.0.1:1", "--protocol", HOSTILE],
        &[HOSTILE],
    ] {
        let ended = on_terminal(arguments);
        assert_eq!(ended.status, Some(2), "{arguments:?}: {}", ended.stdout);
        assert!(ended.stdout.contains("error"), "{arguments:?}: {}", ended.stdout);
        match ended.stdout.contains("--help") {
            // It repeats the input line by line.
            true => shows_only(&ended.stdout, &format!("{arguments:?}")),
            false => says_only(&ended.stdout, &format!("{arguments:?}")),
        }
    }
}

/// A server whose reply is of no kind that there is, with a name that a terminal would obey.
#[test]
fn control_characters_of_a_server_are_not_printed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut first = [0; HANDSHAKE_BYTES];
            let _ = stream.read_exact(&mut first);
            let Some(ready) = wire::ready_reply(&first, &[1; 32], "server", 0) else { continue };
            let _ = stream.write_all(&ready);
            let reply = serde_json::json!({ "reply": HOSTILE }).to_string();
            let mut head = [0; 16];
            let _ = stream.read_exact(&mut head);
            let mut frame = b"LGframe1".to_vec();
            frame.extend((reply.len() as u32).to_be_bytes());
            frame.extend(&head[12..]);
            frame.extend(reply.as_bytes());
            let _ = stream.write_all(&frame);
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    let ended = on_terminal(&["latency", &url, "--protocol", "linkgauge", "--no-store", "--quiet"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stdout);
    assert!(ended.stdout.contains("gotcha"), "it repeats what the server sent: {}", ended.stdout);
    says_only(&ended.stdout, "reply");
}

/// Output for programs is unchanged; a pipe is not a terminal.
#[test]
fn a_pipe_gets_every_byte() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.json");
    fs::write(&path, hostile(DOCUMENT)).unwrap();
    let path = path.to_str().unwrap();
    let csv = crate::program::run(&["show", path, "--format", "csv"]).stdout;
    assert!(csv.contains("gotcha") && !csv.contains('\u{1b}'), "{csv:?}");
    let file = Path::new(path).with_extension("csv");
    crate::program::run(&["show", path, "--quiet", "--csv", file.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(file).unwrap(), csv);
}
