//! What a monitor has stored: backups while it runs, windows for other programs, and its runs by the name of a link.

use std::path::Path;

use jiff::Timestamp;
use linkgauge::sample::Window;
use linkgauge::store::{Incident, Store};
use rustix::process::Signal;

use crate::program::{Ended, Running, Serving, run, wait_until};

fn with_store(store: &Path, arguments: &[&str]) -> Ended {
    run(&[arguments, &["--store", &store.display().to_string()]].concat())
}

/// Lines of CSV without their header.
fn rows(ended: &Ended) -> Vec<&str> {
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    ended.stdout.lines().skip(1).collect()
}

#[test]
#[ignore = "long"]
fn a_backup_of_a_running_monitor_restores_everything() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let [store, copy, other] =
        ["runs", "copy", "other"].map(|name| place.path().join(format!("{name}.sqlite")));
    let file = place.path().join("links.toml");
    let text = format!(
        "[defaults]\nurl = \"{}\"\n[[watch]]\nname = \"a link (1), probed\"\nrate = \"50/s\"\n\
         [[watch]]\nname = \"tests [x]\"\ncount = 5\nevery = \"1s\"\nthresholds = [\"p50 < 1ns\"]\n",
        serving.tcp
    );
    std::fs::write(&file, text).unwrap();
    let (file, path) = (file.display().to_string(), store.display().to_string());
    let mut monitor = Running::start(&["monitor", &file, "--store", &path, "--listen", "off"]);
    let windows = |store: &Path| with_store(store, &["windows", "--length", "1min", "a link (1), probed"]);
    wait_until("a window", || {
        let found = windows(&store);
        (found.status == Some(0) && found.stdout.lines().count() > 1).then_some(())
    });
    let backed_up = with_store(&store, &["backup", &copy.display().to_string()]);
    assert_eq!(backed_up.status, Some(0), "{}", backed_up.stderr);
    let again = with_store(&store, &["backup", &copy.display().to_string()]);
    assert!(again.status == Some(2) && again.stderr.contains("this file exists"), "{}", again.stderr);
    monitor.signal(Signal::KILL);
    monitor.wait();
    std::fs::remove_file(&store).unwrap();

    let restored = with_store(&other, &["restore", &copy.display().to_string()]);
    assert_eq!(restored.status, Some(0), "{}", restored.stderr);
    for arguments in
        [&["windows", "--length", "1min"][..], &["windows", "--incidents"], &["history", "-n", "0"]]
    {
        let [of_copy, of_other] = [&copy, &other].map(|store| with_store(store, arguments));
        assert_eq!((of_copy.status, &of_copy.stdout), (Some(0), &of_other.stdout), "{}", of_copy.stderr);
        assert!(of_copy.stdout.lines().count() > 1, "{arguments:?}: {}", of_copy.stdout);
    }
    let nothing = with_store(&other, &["restore", &copy.display().to_string()]);
    assert!(nothing.stderr.contains("0 runs, 0 windows, 0 incidents"), "{}", nothing.stderr);
    // The names as in the file, and the tags as they are stored.
    for name in ["tests [x]", "tests__x_", "tag"] {
        let found = with_store(&other, &["history", "--tag", name, "-n", "0", "--json"]);
        let runs: serde_json::Value = serde_json::from_str(&found.stdout).unwrap_or_default();
        let count = runs.as_array().map_or(0, Vec::len);
        assert_eq!(count > 0, name != "tag", "{name}: {}", found.stdout);
    }
    assert_eq!(with_store(&other, &["show", "tag:tests [x]"]).status, Some(0));
    let found = windows(&other);
    let first = rows(&found)[0];
    assert!(
        first.starts_with("\"a link (1), probed\",tcp://") && first.matches(',').count() == 13,
        "{first}"
    );
    let missed = with_store(&other, &["windows", "--incidents", "tests [x]"]);
    assert!(rows(&missed)[0].ends_with(",missed,p50 < 1 ns"), "{}", missed.stdout);
    // Other programs read the tables.
    let tables = rusqlite::Connection::open(&other).unwrap();
    let select = "SELECT sum(due), min(p50_ns), max(p99_ns) FROM window JOIN series ON number = series WHERE length = 60";
    let (due, p50, p99): (i64, f64, f64) =
        tables.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert!(due > 0 && p50 > 0.0 && p99 >= p50, "{due} {p50} {p99}");
}

#[test]
fn wrong_requests_for_windows_say_what_to_type() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("runs.sqlite");
    drop(linkgauge::store::Store::open(&store).unwrap());
    for (arguments, why) in [
        (&["windows", "--length", "5min"][..], "windows have 1min, 10min or 1h"),
        (&["windows", "nowhere"], "no link of this name"),
        (
            &["restore", "/nowhere/x"],
            "/nowhere/x: there is no such file: name one that 'linkgauge backup' wrote",
        ),
        (&["backup", "/nowhere/x"], "/nowhere/x.part: the backup cannot be written"),
    ] {
        let ended = with_store(&store, arguments);
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(with_store(&store, &["windows"]).stdout.lines().count(), 1, "its header");
}

/// Days of a probe a second, with losses of a fifth in an hour of the second one and an outage in the third.
fn history(path: &Path) {
    let mut store = Store::open(path).unwrap();
    let series = store.series("a link", "tcp://192.0.2.1").unwrap();
    let begin = Timestamp::now().as_second() - 3 * 86_400;
    let minutes: Vec<(i64, Window)> = (0..3 * 1440)
        .map(|minute| {
            let lost = match minute {
                2000..2060 => 12,
                4000..4010 => 60,
                _ => 0,
            };
            (begin + 60 * minute, Window::of_probes(&vec![1_000_000; 60 - lost], lost as u64))
        })
        .collect();
    store.add_windows(minutes.iter().map(|(second, window)| (series, *second, window))).unwrap();
    for (kind, minute) in [("down", 4000), ("up", 4010)] {
        let at = Timestamp::from_second(begin + 60 * minute).unwrap();
        store.add_incident(series, &Incident { at, kind: kind.to_owned(), text: String::new() }).unwrap();
    }
}

#[test]
fn a_rule_is_replayed_on_the_history() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("runs.sqlite");
    history(&store);
    let file = place.path().join("links.toml");
    let text = "[defaults]\nurl = \"tcp://192.0.2.1\"\nrate = \"1/s\"\n[[watch]]\nname = \"a link\"\n[[watch]]\nname = \"new\"";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let replay =
        |rule: &str, since: &str| with_store(&store, &["monitor", &file, "--replay", rule, "--since", since]);
    let ended = replay("loss > 5 %", "30d");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let lines = rows(&ended);
    assert_eq!(lines[0], "a link: 2 alarms in 12.0 h of probes, 1 without an outage near it");
    assert!(
        lines[1].ends_with("h: no outage near it") && lines[2].ends_with("min: near an outage"),
        "{lines:?}"
    );
    assert_eq!(lines[3..], ["new: no history", "all links: 2 alarms, 1 without an outage near it"]);
    assert_eq!(rows(&replay("loss > 5 %", "1d")).len(), 4, "the losses were before");
    for (rule, since, why) in [
        ("loss > 5 %", "0s", "the store has no probes of these links since"),
        ("loss", "30d", "it has no '>' with a share"),
    ] {
        let ended = replay(rule, since);
        assert!(ended.status == Some(2) && ended.stderr.contains(why), "{}", ended.stderr);
    }
}
