//! Servers for the tests of links: an echo as a party, hosted in memory or run in threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::party::{CANCEL_CHECK_INTERVAL, Party, Step, drive};
use linkgauge::link::{Admission, Batch, Dialer, Fault, Link};

use super::program::wait_until;

/// Returns what it receives, until it receives [`GOODBYE`].
pub struct Echo {
    batch: Batch,
    next: usize,
    offset: usize,
    done: bool,
    closes: Arc<AtomicUsize>,
}

/// Asks the echo to close the link.
pub const GOODBYE: &[u8] = b"goodbye!";

impl Echo {
    fn new(closes: Arc<AtomicUsize>) -> Echo {
        Echo { batch: Batch::new(1 << 20, 1), next: 0, offset: 0, done: false, closes }
    }
}

impl Party for Echo {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.done {
            return Step::Done;
        }
        if self.next >= self.batch.len() {
            return Step::Receive { into: &mut self.batch, until: Time::NEVER };
        }
        let message = self.batch.messages().nth(self.next).unwrap();
        Step::Send { bytes: &message[self.offset..], message: message.len() }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.offset += bytes;
        if self.offset >= self.batch.messages().nth(self.next).unwrap().len() {
            (self.next, self.offset) = (self.next + 1, 0);
        }
    }

    fn on_received(&mut self, _now: Time) {
        (self.next, self.offset) = (0, 0);
        self.done = self.batch.messages().any(|message| message == GOODBYE);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.closes.fetch_add(1, SeqCst);
        Err(Fault::Closed)
    }
}

/// An echo, and a dialer that reaches it: one of ours that listens, or whatever stands in for one.
pub struct EchoServer {
    pub dialer: Dialer,
    pub endpoint: Endpoint,
    /// How many connections the echo has seen closing.
    pub closes: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    pub fn listen(url: &str) -> EchoServer {
        let dialer = Registry::standard().dialer(Clock::System);
        let mut listener =
            dialer.listen(&url.parse().unwrap()).unwrap_or_else(|error| panic!("listen: {error}"));
        let endpoint = listener.endpoint();
        let (closes, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let counted = closes.clone();
        let hosted = listener.set_party_factory(Box::new(move |_| Box::new(Echo::new(counted.clone()))));
        let thread = hosted.err().map(|hosting| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut echoes = Vec::new();
                while !stop.load(SeqCst) {
                    let accepted = listener.accept(Duration::from_millis(50), &mut |_, _, _| Admission::Open);
                    let Ok((mut link, from)) = accepted else { continue };
                    let (mut party, stop) = (hosting(&from), stop.clone());
                    echoes.push(thread::spawn(move || {
                        let _ = drive(&mut *party, &mut *link, &Clock::System, &stop, CANCEL_CHECK_INTERVAL);
                    }));
                }
                echoes.into_iter().for_each(|echo| echo.join().unwrap());
            })
        });
        EchoServer { dialer, endpoint, closes, stop, thread }
    }

    /// The remote of a stand-in's endpoint; the stand-in runs elsewhere.
    pub fn standing(endpoint: Endpoint) -> EchoServer {
        let dialer = Registry::standard().dialer(Clock::System);
        EchoServer { dialer, endpoint, closes: Arc::default(), stop: Arc::default(), thread: None }
    }

    /// Waits until the echo has seen this number of connections close.
    pub fn await_closes(&self, closes: usize) {
        wait_until("the server to close the link", || (self.closes.load(SeqCst) >= closes).then_some(()));
    }

    pub fn open(&self) -> Box<dyn Link> {
        self.dialer.open(&self.endpoint).unwrap_or_else(|error| panic!("open: {error}"))
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the echo panicked");
        }
    }
}
