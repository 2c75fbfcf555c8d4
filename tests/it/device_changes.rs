//! Settings of devices that change while the program measures come back, however the program ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use linkgauge::system::Pty;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::{Running, command, wait_until};

/// A serial port without a device, a fake tree with its setting, and a store.
struct Port {
    pty: Pty,
    root: TempDir,
    timer: PathBuf,
}

impl Port {
    fn new() -> Port {
        let (pty, root) = (Pty::open().unwrap(), tempfile::tempdir().unwrap());
        let name = pty.path.file_name().unwrap();
        let folder = root.path().join("sys/bus/usb-serial/devices").join(name);
        fs::create_dir_all(&folder).unwrap();
        let timer = folder.join("latency_timer");
        fs::write(&timer, "16\n").unwrap();
        Port { pty, root, timer }
    }

    fn store(&self) -> PathBuf {
        self.root.path().join("data/runs.sqlite")
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.path().join("data/restore")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    }

    fn wait_for_timer(&self, value: &str) {
        let read = || fs::read_to_string(&self.timer).ok().filter(|text| text.trim() == value);
        wait_until(&format!("a latency timer of {value}"), read);
    }

    /// A measurement that waits for a reply for a long time.
    fn measure(&self, timeout: &str) -> Running {
        let url = format!("serial://{}?baud=115200", self.pty.path.display());
        let root = self.root.path().to_str().unwrap();
        let words = ["latency", &url, "--protocol", "echo", "--timeout", timeout, "-q", "--no-store"];
        let change = ["--allow-change", "latency_timer=1", "--settings-root", root];
        let mut command = command(&[&words[..], &change[..]].concat());
        command.env("LINKGAUGE_STORE", self.store());
        let streams = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Running(streams.spawn().unwrap())
    }

    /// The process that restores the settings.
    fn restorer(&self) -> Pid {
        let journal = self.journals().pop().expect("a journal");
        let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let words: Vec<&str> = line.split('\0').collect();
            let is_it =
                words.contains(&"restore-settings") && words.iter().any(|word| Path::new(word) == journal);
            is_it.then_some(number)
        });
        Pid::from_raw(processes.into_iter().next().expect("a restorer")).unwrap()
    }
}

#[test]
fn a_measurement_that_ends_restores_the_setting() {
    let port = Port::new();
    let ended = port.measure("100ms").ended();
    assert_eq!(ended.status, Some(2), "nothing replies: {}", ended.stderr);
    assert_eq!(fs::read_to_string(&port.timer).unwrap(), "16");
    assert!(port.journals().is_empty());
}

#[test]
fn the_setting_comes_back_when_the_program_is_killed() {
    let port = Port::new();
    let measurement = port.measure("60s");
    port.wait_for_timer("1");
    measurement.signal(Signal::KILL);
    port.wait_for_timer("16");
    wait_until("the removal of the journal", || port.journals().is_empty().then_some(()));
}

#[test]
fn the_next_start_restores_what_two_killed_processes_left() {
    let port = Port::new();
    let measurement = port.measure("60s");
    port.wait_for_timer("1");
    kill_process(port.restorer(), Signal::KILL).unwrap();
    measurement.signal(Signal::KILL);
    drop(measurement);
    assert_eq!((fs::read_to_string(&port.timer).unwrap().as_str(), port.journals().len()), ("1", 1));
    let ended = port.measure("100ms").ended();
    assert!(
        ended.stderr.contains("restored device settings that an earlier measurement"),
        "{}",
        ended.stderr
    );
    assert_eq!(fs::read_to_string(&port.timer).unwrap(), "16");
    assert!(port.journals().is_empty());
}

#[test]
fn a_planted_journal_changes_no_file() {
    let port = Port::new();
    let victim = port.root.path().join("victim");
    fs::write(&victim, "before").unwrap();
    let data = port.root.path().join("data");
    fs::create_dir(&data).unwrap();
    let journal = format!(r#"[{{"path":"{}","value":"after"}}]"#, victim.display());
    fs::write(data.join("restore-1-1.json"), &journal).unwrap();
    let ended = port.measure("100ms").ended();
    assert_eq!((ended.status, ended.stderr.contains("restored")), (Some(2), false), "{}", ended.stderr);
    let planted = data.join("restore/restore-1-1.json");
    fs::write(&planted, &journal).unwrap();
    let ended = port.measure("100ms").ended();
    assert!(ended.stderr.contains("other users have rights to it"), "{}", ended.stderr);
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)).unwrap();
    let ended = port.measure("100ms").ended();
    assert!(ended.stderr.contains("this program did not write it"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "before");
}

#[test]
fn a_port_without_the_setting_is_left_alone() {
    let port = Port::new();
    fs::remove_file(&port.timer).unwrap();
    let ended = port.measure("100ms").ended();
    let expected =
        format!("{} has no latency_timer: leave it out, or use another device", port.pty.path.display());
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
}
