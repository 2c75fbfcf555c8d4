//! The server's side of linx_bmark: one party for each client. It finds out by itself which style the client speaks.

use super::super::Service;
use super::signal::{
    ALLOC_FINI, ALLOC_REQ, ATTACH_TEST_REQ, BURST_REQ, CONN_EST, CONN_TERM, ECHO, LONG, NUMBER,
    TERMINATE_REQ, number, word,
};
use crate::clock::Time;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault};

/// Largest signal where the link does not say.
const LARGEST: usize = 65_536;

pub struct Bench;

impl Service for Bench {
    fn fits(&self, caps: &Caps) -> Result<(), String> {
        super::needs_messages(caps)?;
        match caps.closes {
            true => Ok(()),
            false => {
                Err("bursts go only to clients that have connected: linx is usual, udp will not do"
                    .to_owned())
            }
        }
    }

    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(End::new(caps))
    }

    /// The original makes an end for each of them, and its clients tell them apart.
    fn begins_with(&self) -> Option<&'static [u8]> {
        const BEGINS: [u8; NUMBER] = CONN_EST.to_be_bytes();
        Some(&BEGINS)
    }
}

/// The end that serves one client.
pub struct End {
    tuning: Option<Tuning>,
    batch: Batch,
    largest: usize,
    saying: Saying,
    /// What is said: an answer, or a signal of a burst as often as it is due.
    words: Vec<u8>,
    /// The client is one of 2.6.8 or later.
    new: bool,
    /// Count, number and size of the signals that will be asked for.
    allocated: Option<[u32; 3]>,
    /// Nothing more is done once all is said.
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saying {
    Nothing,
    /// What came, as it came.
    Back,
    /// So many times the words.
    Words(u32),
}

impl End {
    pub fn new(caps: &Caps) -> End {
        let largest = caps.max_message.unwrap_or(LARGEST).min(LARGEST);
        End {
            tuning: Some(Tuning::default()),
            batch: Batch::new(largest, 1),
            largest,
            saying: Saying::Nothing,
            words: vec![0; largest],
            new: false,
            allocated: None,
            over: false,
        }
    }

    fn hear(&mut self) {
        let Some(signal) = self.batch.messages().next() else { return };
        let fields = || Some([word(signal, 1)?, word(signal, 2)?, word(signal, 3)?]);
        match number(signal) {
            Some(ECHO) => self.saying = Saying::Back,
            Some(CONN_EST) => {
                self.new |= signal.len() >= LONG;
                self.saying = Saying::Back;
            }
            Some(ALLOC_REQ) => {
                self.new = true;
                self.allocated = fields();
                self.words.resize(signal.len(), 0);
                self.words.copy_from_slice(signal);
                self.words[..NUMBER].copy_from_slice(&ALLOC_FINI.to_be_bytes());
                self.saying = Saying::Words(1);
            }
            Some(BURST_REQ) => {
                if let Some([count, number, size]) = self.allocated.take().or_else(fields) {
                    self.words.clear();
                    self.words.resize((size as usize).clamp(NUMBER, self.largest), 0);
                    self.words[..NUMBER].copy_from_slice(&number.to_be_bytes());
                    self.saying = Saying::Words(count);
                }
            }
            Some(ATTACH_TEST_REQ) => {
                // Those before 2.6.8 send it back first.
                self.saying = if self.new { Saying::Nothing } else { Saying::Back };
                self.over = true;
            }
            // What the server itself is told ends this end only: others use it, too.
            Some(TERMINATE_REQ | CONN_TERM) => self.over = true,
            _ => {}
        }
    }
}

impl Party for End {
    #[inline]
    fn next(&mut self, _now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        match self.saying {
            Saying::Back => {
                let bytes = self.batch.messages().next().unwrap_or_default();
                return Step::Send { bytes, message: bytes.len() };
            }
            Saying::Words(1..) => return Step::Send { bytes: &self.words, message: self.words.len() },
            _ => {}
        }
        if self.over {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    #[inline]
    fn sent(&mut self, _bytes: usize, _at: Time) {
        self.saying = match self.saying {
            Saying::Words(left @ 2..) => Saying::Words(left - 1),
            _ => Saying::Nothing,
        };
    }

    #[inline]
    fn received(&mut self, _now: Time) {
        self.hear();
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}
