//! Server of linx_bmark: one party for each client. It detects the style of the client.

use super::super::{CaseError, Service};
use super::signal::{
    ALLOC_FINI, ALLOC_REQ, ATTACH_TEST_REQ, BURST_REQ, CONN_EST, CONN_TERM, ECHO, SIGNAL_NUMBER_BYTES,
    TERMINATE_REQ, THREE_FIELD_SIGNAL_BYTES, read_word, signal_number,
};
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault};
use linkgauge_model::clock::Time;

/// Maximum signal in bytes if the link has no limit.
const MAX_SIGNAL_BYTES: usize = 65_536;

pub(crate) struct BmarkService;

impl Service for BmarkService {
    fn check_link(&self, caps: &Caps) -> Result<(), CaseError> {
        super::require_messages(caps)?;
        match caps.can_signal_close {
            true => Ok(()),
            false => Err(CaseError::Link("bursts need links with connections: use linx, not udp".to_owned())),
        }
    }

    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(BmarkConnection::new(caps))
    }

    /// Returns the number of a connect signal: the original creates an endpoint for each one; its clients distinguish them.
    fn opening_prefix(&self) -> Option<&'static [u8]> {
        const BEGINS: [u8; SIGNAL_NUMBER_BYTES] = CONN_EST.to_be_bytes();
        Some(&BEGINS)
    }
}

/// Endpoint that serves one client.
pub(crate) struct BmarkConnection {
    tuning: Option<Tuning>,
    batch: Batch,
    max_signal_bytes: usize,
    pending: PendingOutput,
    /// Output: a reply, or a signal that a burst repeats.
    output_signal: Vec<u8>,
    /// Whether the client is of release 2.6.8 or later.
    is_new_style: bool,
    /// Count, number and size of the allocated signals.
    allocated: Option<[u32; 3]>,
    /// Whether the connection ends once all output is sent.
    is_finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingOutput {
    Empty,
    /// Received signal, unchanged.
    Echo,
    /// Copies of the signal, of this number.
    Signals(u32),
}

impl BmarkConnection {
    pub fn new(caps: &Caps) -> BmarkConnection {
        let largest = caps.max_message_bytes.unwrap_or(MAX_SIGNAL_BYTES).min(MAX_SIGNAL_BYTES);
        BmarkConnection {
            tuning: Some(Tuning::default()),
            batch: Batch::new(largest, 1),
            max_signal_bytes: largest,
            pending: PendingOutput::Empty,
            output_signal: vec![0; largest],
            is_new_style: false,
            allocated: None,
            is_finished: false,
        }
    }

    fn handle_signal(&mut self) {
        let Some(signal) = self.batch.messages().next() else { return };
        let fields = || Some([read_word(signal, 1)?, read_word(signal, 2)?, read_word(signal, 3)?]);
        match signal_number(signal) {
            Some(ECHO) => self.pending = PendingOutput::Echo,
            Some(CONN_EST) => {
                self.is_new_style |= signal.len() >= THREE_FIELD_SIGNAL_BYTES;
                self.pending = PendingOutput::Echo;
            }
            Some(ALLOC_REQ) => {
                self.is_new_style = true;
                self.allocated = fields();
                self.output_signal.resize(signal.len(), 0);
                self.output_signal.copy_from_slice(signal);
                self.output_signal[..SIGNAL_NUMBER_BYTES].copy_from_slice(&ALLOC_FINI.to_be_bytes());
                self.pending = PendingOutput::Signals(1);
            }
            Some(BURST_REQ) => {
                if let Some([count, number, size]) = self.allocated.take().or_else(fields) {
                    self.output_signal.clear();
                    self.output_signal
                        .resize((size as usize).clamp(SIGNAL_NUMBER_BYTES, self.max_signal_bytes), 0);
                    self.output_signal[..SIGNAL_NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
                    self.pending = PendingOutput::Signals(count);
                }
            }
            Some(ATTACH_TEST_REQ) => {
                // Clients before 2.6.8 expect an echo of the signal first.
                self.pending = if self.is_new_style { PendingOutput::Empty } else { PendingOutput::Echo };
                self.is_finished = true;
            }
            // A signal that terminates the server ends only this endpoint, because other clients use the server too.
            Some(TERMINATE_REQ | CONN_TERM) => self.is_finished = true,
            _ => {}
        }
    }
}

impl Party for BmarkConnection {
    #[inline]
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        match self.pending {
            PendingOutput::Echo => {
                let bytes = self.batch.messages().next().unwrap_or_default();
                return Step::Send { bytes, message: bytes.len() };
            }
            PendingOutput::Signals(1..) => {
                return Step::Send { bytes: &self.output_signal, message: self.output_signal.len() };
            }
            _ => {}
        }
        if self.is_finished {
            return Step::Done;
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    #[inline]
    fn on_sent(&mut self, _bytes: usize, _at: Time) {
        self.pending = match self.pending {
            PendingOutput::Signals(left @ 2..) => PendingOutput::Signals(left - 1),
            _ => PendingOutput::Empty,
        };
    }

    #[inline]
    fn on_received(&mut self, _now: Time) {
        self.handle_signal();
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}
