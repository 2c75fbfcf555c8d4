//! Files that `linkgauge monitor` includes, files of targets that change, and what a reload says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;

use crate::program::{Running, Serving, run};

fn write(folder: &Path, name: &str, text: &str) {
    // As a program that never shows a half of it.
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let draft = folder.join("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, path).unwrap();
}

const FILE: &str = "include = \"conf.d\"\n[[watch]]\nname = \"rack\"\nfile_sd = [\"targets/*.json\", \"targets/*.yaml\"]\nrate = \"50/s\"\n";

#[test]
fn included_files_and_targets_are_checked() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    write(folder, "m.toml", FILE);
    write(
        folder,
        "conf.d/a.toml",
        "[defaults]\nrate = \"5/s\"\n[[watch]]\nname = \"own\"\nurl = \"tcp://192.0.2.7\"\n",
    );
    write(folder, "targets/b.json", "[{\"targets\": [\"192.0.2.1\", \"udp://192.0.2.2:7\"]}]");
    write(folder, "targets/c.yaml", "- targets: [192.0.2.3]\n  labels: {name: printer}\n");
    let file = folder.join("m.toml").display().to_string();
    let check = |more: &[&str]| run(&[&["monitor", &file, "--check"], more].concat());
    let good = check(&[]);
    let named: Vec<&str> = good.stdout.lines().filter(|line| line.starts_with("watching")).collect();
    assert_eq!(
        named,
        [
            "watching rack 192.0.2.1: 50 probes per second",
            "watching rack udp://192.0.2.2:7: 50 probes per second",
            "watching printer: 50 probes per second",
            "watching own: 5 probes per second",
        ],
        "{}",
        good.stderr
    );
    write(folder, "old.toml", "[[watch]]\nname = \"own\"\nurl = \"tcp://192.0.2.7\"\nrate = \"5/s\"\n");
    let changes = check(&["--against", &folder.join("old.toml").display().to_string()]);
    assert!(changes.stdout.contains("change: new link printer: 50 probes per second (tcp://192.0.2.3)\n"));
    assert!(!changes.stdout.contains("link own:"), "{}", changes.stdout);
    for (name, text, why) in [
        ("conf.d/a.toml", "[[watch]]\nname = \"x\"\nurl = \"tcp://a\"\nalert = \"loss\"", "line 1: "),
        ("conf.d/a.toml", "[[action]]\ncommand = [\"true\"]", "unknown field `action`"),
        (
            "conf.d/a.toml",
            "[[watch]]\nname = \"printer\"\nurl = \"tcp://a\"",
            "two watches are named 'printer'",
        ),
        ("targets/b.json", "[{\"targets\": [\"a b\"]}]", "'a b' is no HOST, HOST:PORT or URL"),
        ("targets/b.json", "{", "b.json: is no list of targets"),
        ("m.toml", "[[watch]]\nurl = \"tcp://a\"\nfile_sd = \"x.json\"", "remove one of both"),
        ("m.toml", "[[watch]]\nfile_sd = \"missing.json\"", "missing.json: cannot be read"),
        (
            "m.toml",
            "[[watch]]\nurl = \"tcp://a\"\nscheme = \"udp\"",
            "line 3: watch 1: a scheme is that of the targets",
        ),
    ] {
        let before = std::fs::read_to_string(folder.join(name)).unwrap();
        write(folder, name, text);
        let ended = check(&[]);
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{text}: {}", ended.stderr);
        write(folder, name, &before);
    }
    assert_eq!(check(&[]).status, Some(0));
}

/// Posts without a body; the status line.
fn post(address: &str, path: &str, authorization: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "long"]
fn a_reload_says_what_changes_and_a_wrong_file_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let serving = Serving::start(&[]);
    let target = serving.tcp.as_str().to_owned();
    write(folder, "m.toml", FILE);
    write(folder, "token", "secret");
    std::fs::create_dir(folder.join("conf.d")).unwrap();
    write(folder, "targets/a.json", &format!("[{{\"targets\": [\"{target}\"]}}]"));
    let (file, token) =
        (folder.join("m.toml").display().to_string(), folder.join("token").display().to_string());
    let listen = ["--listen", "127.0.0.1:0", "--no-store", "--page-token-file", &token];
    let mut monitor = Running::start(&[&["monitor", &file], &listen[..]].concat());
    let mut messages = BufReader::new(monitor.0.stderr.take().unwrap());
    let mut first = String::new();
    messages.read_line(&mut first).unwrap();
    let address =
        first.trim().strip_prefix("metrics: http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let mut wait_for = |text: &str| {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(messages.read_line(&mut line).unwrap() > 0, "it ends before it says: {text}");
        }
        line
    };
    // Without a signal, after some seconds.
    write(folder, "targets/b.json", "[{\"targets\": [\"192.0.2.1\"], \"labels\": {\"name\": \"new\"}}]");
    let change = wait_for("change: ");
    assert!(change.ends_with("change: new link new: 50 probes per second (tcp://192.0.2.1)\n"), "{change}");
    write(folder, "targets/b.json", "[{");
    let refused = wait_for("the monitor goes on as before");
    assert!(refused.starts_with("20") && refused.contains("b.json: is no list of targets"), "{refused}");
    write(folder, "targets/b.json", "[]");
    wait_for("change: no link new any more");
    wait_for("m.toml: read again");
    write(folder, "m.toml", &FILE.replace("50/s", "20/s"));
    for (authorization, status) in
        [("Basic eDpzZWNyZXQ=", "401"), ("Bearer other", "401"), ("Bearer secret", "200")]
    {
        let answer = post(&address, "/-/reload", authorization);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{authorization}: {answer}");
    }
    wait_for("schedule 50 probes per second becomes 20 probes per second");
    assert!(post(&address, "/metrics", "Bearer secret").starts_with("HTTP/1.1 405 "));
    monitor.signal(Signal::INT);
    assert_eq!(monitor.wait().code(), Some(0));
}
