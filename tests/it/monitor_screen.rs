//! `linkgauge monitor --tui` on a terminal: what it shows, what its keys do, and that the terminal is as before at every end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::program::{Running, Serving, command, run, wait_until};

/// The program on a terminal of its own.
struct Session {
    process: Running,
    /// The side of a person: keys go in.
    keys: File,
    /// The side of the program, kept open so that its settings can be read at the end.
    side: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

/// The program on a new terminal: its process, the side of a person, and its own side.
fn on_terminal(arguments: &[&str]) -> (Running, File, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut command = command(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    let stdio = || Stdio::from(side.try_clone().unwrap());
    let process = Running(command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap());
    (process, File::from(terminal), side)
}

impl Session {
    fn start(arguments: &[&str]) -> Session {
        let (process, keys, side) = on_terminal(arguments);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, all) = (keys.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut chunk) {
                all.lock().unwrap().extend_from_slice(&chunk[..length]);
            }
        });
        Session { process, keys, side, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        wait_until(text, || self.shown().contains(text).then_some(()));
    }

    /// Waits until the whole screen, drawn again at another width, has the text: usually only what differs is drawn.
    fn wait_for_drawn(&self, text: &str) {
        let mut width = 80;
        wait_until(text, || {
            width = if width < 120 { width + 1 } else { 80 };
            let size = Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(&self.keys, size).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            self.shown().contains(text).then_some(())
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.side).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end; the terminal has its lines, its cursor and its screen again.
    fn ends_in_order(mut self, what: &str) {
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{what}: {}", self.shown());
        self.wait_for("\u{1b}[?1049l");
        let shown = self.shown();
        let last = |text: &str| {
            shown.rfind(text).unwrap_or_else(|| panic!("{what}: {text:?} is missing: {shown:?}"))
        };
        assert!(last("\u{1b}[?1049l") > last("\u{1b}[?1049h"), "{what}: {shown:?}");
        assert!(last("\u{1b}[?25h") > last("\u{1b}[?25l"), "{what}: {shown:?}");
        assert!(!self.is_raw(), "{what}");
    }
}

const FLAGS: [&str; 5] = ["--tui", "--rate", "50/s", "--listen", "off"];

fn watch(url: &str) -> Session {
    let session = Session::start(&[&["monitor", url], &FLAGS[..], &["--no-store"]].concat());
    session.wait_for("last hour");
    assert!(session.is_raw());
    session
}

#[test]
#[ignore = "long"]
fn links_are_shown_and_keys_open_and_end_them() {
    let serving = Serving::start(&[]);
    let mut session = watch(serving.tcp.as_str());
    session.wait_for_drawn("q quit");
    session.wait_for_drawn("The link replies");
    session.press("\r");
    session.wait_for_drawn("Esc back");
    session.wait_for_drawn("max");
    session.press("\u{1b}");
    session.press("ps");
    session.wait_for_drawn("PAUSED");
    session.press("q");
    session.ends_in_order("q");
}

#[test]
fn the_terminal_is_restored_at_every_end() {
    let mut session = watch("tcp://127.0.0.1:1");
    session.press("\u{3}");
    session.ends_in_order("Ctrl-C");
    for signal in [Signal::TERM, Signal::INT] {
        let session = watch("tcp://127.0.0.1:1");
        session.process.signal(signal);
        session.ends_in_order("a signal");
    }
}

#[test]
fn a_monitor_ends_with_its_terminal() {
    let arguments = [&["monitor", "tcp://127.0.0.1:1"], &FLAGS[..], &["--no-store"]].concat();
    let (mut process, mut keys, side) = on_terminal(&arguments);
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("last hour") {
        let mut chunk = [0; 4096];
        let length = keys.read(&mut chunk).unwrap();
        shown.extend_from_slice(&chunk[..length]);
    }
    drop((keys, side));
    assert_eq!(process.wait().code(), Some(2));
}

#[test]
fn a_terminal_is_required() {
    let ended = run(&[&["monitor", "tcp://127.0.0.1:1"], &FLAGS[..]].concat());
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("--tui needs a terminal"), "{}", ended.stderr);
}
