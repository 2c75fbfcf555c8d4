//! What a fleet does without a hub.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Signal, getuid};

use crate::client::free_port;
use crate::program::{Running, command, run, wait_until};

/// The files of an agent, where systemd puts credentials and with the mode that they have there.
fn write_credentials(place: &Path) {
    let path = |name: &str| place.join(name);
    let key = run(&["fleet", "key", &path("agent.seed").display().to_string()]).stdout;
    std::fs::write(path("fleet.key"), "a secret of the agents").unwrap();
    let limits = format!("operator = \"{}\"\nfleet_key = \"fleet.key\"\n", key.trim());
    std::fs::write(path("limits.toml"), limits).unwrap();
    // Credentials belong to the group of root.
    let mode = if getuid().is_root() { 0o440 } else { 0o400 };
    for file in ["agent.seed", "fleet.key", "limits.toml"] {
        std::fs::set_permissions(path(file), PermissionsExt::from_mode(mode)).unwrap();
    }
}

#[test]
fn the_shipped_unit_starts_an_agent_that_ends_with_success() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/linkgauge-agent.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/linkgauge ")).unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let place = tempfile::tempdir().unwrap();
        write_credentials(place.path());
        let folder = place.path().display().to_string();
        // No hub listens there.
        let hub = format!("nats://127.0.0.1:{}", free_port());
        let variables = [
            ("${HUB}", hub.as_str()),
            ("${NAME}", "a"),
            ("${CREDENTIALS_DIRECTORY}", folder.as_str()),
            ("${STATE_DIRECTORY}", folder.as_str()),
        ];
        let words = line.split_whitespace().map(|word| {
            variables.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
        });
        let words: Vec<String> = words.collect();
        let log = place.path().join("log");
        let mut agent = command(&words.iter().map(String::as_str).collect::<Vec<&str>>());
        agent.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let mut agent = Running(agent.spawn().unwrap());
        let printed = || std::fs::read_to_string(&log).unwrap();
        wait_until("the first attempt to connect", || {
            assert_eq!(agent.0.try_wait().unwrap(), None, "{}", printed());
            printed().contains("not connected: ").then_some(())
        });
        agent.signal(signal);
        assert_eq!(agent.wait().code(), Some(0), "{}", printed());
        assert!(place.path().join("outbox.sqlite").exists());
    }
}

#[test]
fn a_wrong_place_for_metrics_is_found_before_the_hub_is_asked() {
    let place = tempfile::tempdir().unwrap();
    let [seed, store] =
        ["operator.seed", "runs.sqlite"].map(|name| place.path().join(name).display().to_string());
    assert_eq!(run(&["fleet", "key", &seed]).status, Some(0));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet.toml");
    for (address, why) in [
        ("9464", "'9464' is not an address with a port. Write it like 127.0.0.1:9464"),
        ("0.0.0.0:0", "a token is needed. Try --page-token-file FILE"),
        ("192.0.2.1:9464", "a token is needed"),
    ] {
        let ended =
            run(&["fleet", "collect", file, "--seed", &seed, "--store", &store, "--metrics", address]);
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[test]
fn a_database_that_cannot_be_used_is_one_line() {
    let place = tempfile::tempdir().unwrap();
    let seed = place.path().join("operator.seed").display().to_string();
    assert_eq!(run(&["fleet", "key", &seed]).status, Some(0));
    let closed = format!("postgresql://u@127.0.0.1:{}/links", free_port());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet.toml");
    for (flags, why) in [
        (vec!["db.example"], "not the URL of a database. Write it like postgresql://"),
        (vec!["postgresql://u:hunter2@db.example/links"], "Set PGPASSWORD, or use --password-file"),
        (
            vec![closed.as_str()],
            "the database cannot be reached: error connecting to server: Connection refused",
        ),
        (vec![closed.as_str(), "--password-file", "/nowhere"], "/nowhere: the secret cannot be read"),
        (vec![closed.as_str(), "--password-file", file], "other users can read this secret. Try: chmod 600"),
    ] {
        let ended = run(&[&["fleet", "collect", file, "--seed", &seed, "--database"], &flags[..]].concat());
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{}", ended.stderr);
        assert!(ended.stderr.lines().count() == 1 && !ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn an_unknown_flag_names_the_help_of_its_command() {
    let ended = run(&["fleet", "collect", "fleet.toml", "--databse", "x"]);
    let line = "unknown flag '--databse'. Did you mean '--database'? 'linkgauge fleet collect --help' lists all flags";
    assert!(ended.status == Some(2) && ended.stderr.contains(line), "{}", ended.stderr);
}
