//! The control connection as both ends use it: bytes that wait to be understood, words that wait to be sent. Knows no order
//! of things: `near` and `far` do.

use super::wire::{self, WireError};
use crate::clock::Time;
use crate::link::Batch;
use crate::link::party::Step;

pub struct Talk {
    heard: Vec<u8>,
    words: Vec<u8>,
    said: usize,
    batch: Batch,
}

impl Talk {
    pub fn new() -> Talk {
        Talk { heard: Vec::new(), words: Vec::new(), said: 0, batch: Batch::new(4096, 1) }
    }

    pub fn say(&mut self, words: &[u8]) {
        self.words.extend_from_slice(words);
    }

    /// Whether everything has been sent.
    pub fn is_said(&self) -> bool {
        self.said >= self.words.len()
    }

    /// Sends what is to be said; else listens, until then.
    pub fn step(&mut self, until: Time) -> Step<'_> {
        if !self.is_said() {
            return Step::Send { bytes: &self.words[self.said..], message: self.words.len() };
        }
        Step::Receive { into: &mut self.batch, until }
    }

    pub fn sent(&mut self, bytes: usize) {
        self.said += bytes;
        if self.is_said() {
            self.words.clear();
            self.said = 0;
        }
    }

    /// The bytes of the last receipt are heard. Whoever talks on and on without being understood is not listened to.
    pub fn received(&mut self) -> Result<(), WireError> {
        for message in self.batch.messages() {
            self.heard.extend_from_slice(message);
        }
        match self.heard.len() > wire::LONGEST_RESULTS + 4096 {
            true => Err(WireError::TooLong(self.heard.len())),
            false => Ok(()),
        }
    }

    /// What was heard and is not understood yet.
    pub fn heard(&self) -> &[u8] {
        &self.heard
    }

    /// Takes so many bytes, if they are there.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        (self.heard.len() >= bytes).then(|| self.heard.drain(..bytes).collect())
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Takes the JSON that comes next, once it is whole.
    pub fn object(&mut self, longest: usize) -> Result<Option<wire::Object>, WireError> {
        let Some((object, used)) = wire::read_framed(&self.heard, longest)? else { return Ok(None) };
        self.heard.drain(..used);
        Ok(Some(object))
    }
}
