//! A redirector of the lab whose local port is in a directory of its own.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;

use linkgauge::lab::redirect::{Redirector, RedirectorEvent, RedirectorOptions};
use linkgauge::link::serial_line::SerialSettings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::{PATIENCE, wait_until};

/// A redirector with a link in a directory of its own.
pub struct Local {
    pub redirector: Redirector,
    pub directory: tempfile::TempDir,
    seen: Vec<RedirectorEvent>,
}

impl Local {
    pub fn start(remote: &str) -> Local {
        Local::with(remote, |_| {})
    }

    pub fn with(remote: &str, change: impl FnOnce(&mut RedirectorOptions)) -> Local {
        let directory = tempfile::tempdir().unwrap();
        let mut options = RedirectorOptions::new(remote.parse().unwrap());
        options.link = Some(directory.path().join("ttyV0"));
        change(&mut options);
        let redirector = Redirector::start(&options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(redirector.path(), directory.path().join("ttyV0"));
        Local { redirector, directory, seen: Vec::new() }
    }

    pub fn path(&self) -> PathBuf {
        self.redirector.path().to_owned()
    }

    /// The local port as a raw terminal, as a program opens it.
    pub fn open(&self) -> File {
        let terminal = OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        linkgauge::system::set_line(&terminal, &SerialSettings::default()).unwrap();
        terminal
    }

    /// Waits for an event.
    pub fn wait_for(&mut self, what: impl Fn(&RedirectorEvent) -> bool) {
        wait_until("an event", || {
            self.seen.extend(self.redirector.events());
            let place = self.seen.iter().position(&what)?;
            self.seen.drain(..=place);
            Some(())
        });
    }
}

/// Reads this number of bytes, or fails.
pub fn read(terminal: &mut File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut got = 0;
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    while got < length {
        let ready = poll(&mut [PollFd::new(&terminal.as_fd(), PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "{got} of {length} bytes came");
        got += terminal.read(&mut bytes[got..]).unwrap();
    }
    bytes
}
