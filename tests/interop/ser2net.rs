//! ser2net between a network port and a pseudo-terminal, as a device server that none of us wrote.

use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use linkgauge::link::serial_line::SerialSettings;
use linkgauge::system::{Pty, PtyPacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::wait_until;

/// A pseudo-terminal whose other side returns the bytes that are written to it.
pub struct Plug {
    pty: Arc<Pty>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Plug {
    pub fn new() -> Plug {
        let (pty, stop) = (Arc::new(Pty::open().unwrap()), Arc::new(AtomicBool::new(false)));
        let (line, stopped) = (pty.clone(), stop.clone());
        let thread = Some(thread::spawn(move || send_back(&line, &stopped)));
        Plug { pty, stop, thread }
    }

    pub fn path(&self) -> String {
        self.pty.path.display().to_string()
    }

    /// The settings of the program on this side.
    pub fn settings(&self) -> SerialSettings {
        self.pty.settings().unwrap()
    }
}

fn send_back(pty: &Pty, stop: &AtomicBool) {
    let mut bytes = [0; 4096];
    let wait = |flags| {
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let _ = poll(&mut [PollFd::new(&pty.master.as_fd(), flags)], Some(&tick));
    };
    while !stop.load(SeqCst) {
        wait(PollFlags::IN);
        let Ok(length @ 1..) = rustix::io::read(&pty.master, &mut bytes) else { continue };
        let mut left = PtyPacket::parse(&bytes[..length]).data();
        while !left.is_empty() && !stop.load(SeqCst) {
            match rustix::io::write(&pty.master, left) {
                Ok(written) => left = &left[written..],
                Err(_) => wait(PollFlags::OUT),
            }
        }
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A running ser2net, ended by its process id with the test.
pub struct Ser2net {
    child: Child,
    pub port: u16,
    _directory: tempfile::TempDir,
}

impl Ser2net {
    /// Offers a terminal as `telnet(rfc2217),tcp` or `tcp`.
    pub fn start(accepter: &str, terminal: &str, port: u16) -> Ser2net {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ser2net.yaml");
        let text = format!(
            "%YAML 1.1\n---\nconnection: &one\n  accepter: {accepter},127.0.0.1,{port}\n  \
             connector: serialdev,{terminal},9600n81,local\n"
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new("/usr/sbin/ser2net")
            .args(["-n", "-c", file.to_str().unwrap()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ser2net is needed for this test: apt-get install ser2net");
        wait_until("ser2net's port", || is_listening(port).then_some(()));
        Ser2net { child, port, _directory: directory }
    }
}

impl Drop for Ser2net {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program listens on this loopback port. It does not connect, because a device server accepts one client.
pub fn is_listening(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let place = format!("0100007F:{port:04X} 00000000:0000 0A");
    table.contains(&place)
}
