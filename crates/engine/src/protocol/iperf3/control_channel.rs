//! The control connection for client and server: unparsed input and unsent output. The order of messages is in `client`
//! and `server`.

use super::wire::{self, Iperf3WireError};
use crate::link::Batch;
use crate::link::party::Step;
use linkgauge_model::clock::Time;

pub(crate) struct ControlChannel {
    input: Vec<u8>,
    output: Vec<u8>,
    output_sent: usize,
    batch: Batch,
}

impl ControlChannel {
    pub fn new() -> ControlChannel {
        ControlChannel { input: Vec::new(), output: Vec::new(), output_sent: 0, batch: Batch::new(4096, 1) }
    }

    pub(crate) fn queue(&mut self, words: &[u8]) {
        self.output.extend_from_slice(words);
    }

    /// Whether everything has been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.output_sent >= self.output.len()
    }

    /// Sends pending output; otherwise receives until `until`.
    pub(crate) fn step(&mut self, until: Time) -> Step<'_> {
        if !self.is_flushed() {
            return Step::Send { bytes: &self.output[self.output_sent..], message: self.output.len() };
        }
        Step::Receive { into: &mut self.batch, until }
    }

    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        self.output_sent += bytes;
        if self.is_flushed() {
            self.output.clear();
            self.output_sent = 0;
        }
    }

    /// Adds the last receive to the input. Fails if the unparsed input is too long.
    pub(crate) fn read_batch(&mut self) -> Result<(), Iperf3WireError> {
        for message in self.batch.messages() {
            self.input.extend_from_slice(message);
        }
        match self.input.len() > wire::MAX_RESULTS_BYTES + 4096 {
            true => Err(Iperf3WireError::TooLong(self.input.len())),
            false => Ok(()),
        }
    }

    /// The unparsed input.
    pub(crate) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Takes this many bytes, if they are available.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        (self.input.len() >= bytes).then(|| self.input.drain(..bytes).collect())
    }

    pub(crate) fn take_byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Takes the next JSON object, once it is complete.
    pub(crate) fn take_object(
        &mut self,
        longest: usize,
    ) -> Result<Option<wire::JsonObject>, Iperf3WireError> {
        let Some((object, used)) = wire::decode_framed(&self.input, longest)? else { return Ok(None) };
        self.input.drain(..used);
        Ok(Some(object))
    }
}
