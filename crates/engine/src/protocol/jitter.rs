//! Jitter of arriving datagrams, smoothed as in RFC 3550.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linkgauge_model::clock::Time;

/// Current jitter of a flow, readable while it runs.
#[derive(Debug, Clone)]
pub struct SharedJitter(Arc<AtomicU64>);

impl Default for SharedJitter {
    fn default() -> SharedJitter {
        SharedJitter(Arc::new(AtomicU64::new(f64::NAN.to_bits())))
    }
}

impl SharedJitter {
    /// Jitter in seconds; `None` before the second datagram with a time.
    pub fn seconds(&self) -> Option<f64> {
        Some(f64::from_bits(self.0.load(Relaxed))).filter(|jitter| !jitter.is_nan())
    }
}

/// Computes the jitter of one flow.
#[derive(Debug, Default)]
pub(crate) struct JitterMeter {
    jitter: SharedJitter,
    /// Transit time of the last datagram in microseconds, between two unsynchronised clocks.
    transit_us: Option<i64>,
}

impl JitterMeter {
    /// Updates `jitter` with each datagram.
    pub fn new(jitter: SharedJitter) -> JitterMeter {
        JitterMeter { jitter, transit_us: None }
    }

    /// Notes the arrival of a datagram that was sent at this time of the sender's clock.
    pub(crate) fn observe(&mut self, sent_us: i64, now: Time) {
        // Some senders have no clock.
        if sent_us == 0 {
            return;
        }
        let transit = (now.0 / 1000) as i64 - sent_us;
        if let Some(last) = self.transit_us.replace(transit) {
            let (difference, jitter) =
                (transit.abs_diff(last) as f64 / 1e6, self.jitter.seconds().unwrap_or(0.0));
            self.jitter.0.store((jitter + (difference - jitter) / 16.0).to_bits(), Relaxed);
        }
    }

    /// Jitter in seconds; see [`SharedJitter::seconds`].
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.jitter.seconds()
    }
}
