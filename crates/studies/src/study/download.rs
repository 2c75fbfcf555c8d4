//! A download by request and reply: the settings of a study, its published rates, and the rate that the settings predict.
//!
//! The prediction uses chunk size, frames, delay, rates and processing time only, never a measured figure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::{PublishedFigure, Study, StudyError, StudyLength};
use linkgauge_model::units::{BitRate, Span};

/// The download protocol of a study: one chunk of the file per request.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkProtocol {
    /// File bytes in each reply.
    pub chunk_bytes: u32,
    /// Bytes of a request and of a reply on the link.
    request_bytes: u32,
    reply_bytes: u32,
    /// Bytes of a chunk as the study counts them.
    pub published_chunk_bytes: u32,
    /// Processing time of the lab device per request. It processes one request at a time.
    pub processing: Span,
}

/// Rates of a link, to the remote and from it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkRates {
    rate_to: BitRate,
    rate_from: BitRate,
}

/// A link with a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayedLink {
    /// One-way delay.
    pub delay: Duration,
    /// Bits per second, towards the remote.
    pub rate_to: f64,
    /// Bits per second, from the remote.
    pub rate_from: f64,
}

/// The downloads of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DownloadPlan {
    /// The requests and replies of the protocol.
    pub protocol: ChunkProtocol,
    /// `None`: a direct connection.
    pub link: Option<DelayedLink>,
}

/// A published download rate.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedDownload {
    /// The name of its row.
    pub row: String,
    /// The published rate.
    pub bytes_per_second: f64,
    /// The settings that the rate was measured with.
    pub download: DownloadPlan,
}

impl Study {
    /// Published download rates with their links.
    ///
    /// # Errors
    ///
    /// Fails if the plan is invalid.
    pub fn published_downloads(&self) -> Result<Vec<PublishedDownload>, StudyError> {
        let cases = self.all_cases(StudyLength::Full)?;
        let mut seen = BTreeSet::new();
        let published = |row: &PublishedFigure| {
            let download = cases.iter().find(|case| case.name == row.case)?.download?;
            let bytes_per_second = row.published.parse().ok()?;
            // A statement of another source about a case is no further figure.
            (row.unit == "B/s" && seen.insert(row.case.clone())).then(|| PublishedDownload {
                row: row.row.clone(),
                bytes_per_second,
                download,
            })
        };
        Ok(self.selected_rows().filter_map(published).collect())
    }
}

impl LinkRates {
    pub(super) fn with_delay(self, delay: Duration) -> DelayedLink {
        DelayedLink { delay, rate_to: self.rate_to.0, rate_from: self.rate_from.0 }
    }
}

impl DelayedLink {
    /// Round trip of an empty message.
    pub fn round_trip(&self) -> Duration {
        2 * self.delay
    }
}

impl DownloadPlan {
    /// Predicted file bytes per second, for a file of `bytes` bytes and `window` requests in flight.
    pub(crate) fn predicted_rate(&self, window: u32, bytes: u64) -> f64 {
        let ChunkProtocol { chunk_bytes, request_bytes, reply_bytes, processing, .. } = self.protocol;
        let seconds = |bytes: u32, rate: fn(&DelayedLink) -> f64| {
            self.link.map_or(0.0, |path| f64::from(bytes) * 8.0 / rate(&path))
        };
        let delay = self.link.map_or(0.0, |path| path.round_trip().as_secs_f64());
        // Each stage handles one request at a time.
        let stages = [
            seconds(request_bytes, |path| path.rate_to),
            processing.0.as_secs_f64(),
            seconds(reply_bytes, |path| path.rate_from),
        ];
        let alone = delay + stages.iter().sum::<f64>();
        let busiest = stages.into_iter().fold(0.0, f64::max);
        let next = (alone / f64::from(window.max(1))).max(busiest);
        let chunks = (bytes as f64 / f64::from(chunk_bytes)).max(1.0);
        chunks * f64::from(chunk_bytes) / (alone + (chunks - 1.0) * next)
    }

    pub(super) fn without_processing(mut self) -> DownloadPlan {
        self.protocol.processing = Span(Duration::ZERO);
        self
    }

    /// Maximum file bytes per second of the link from the remote. Infinite without a link.
    pub(super) fn max_rate(&self) -> f64 {
        let share = f64::from(self.protocol.chunk_bytes) / f64::from(self.protocol.reply_bytes);
        self.link.map_or(f64::INFINITY, |path| share * path.rate_from / 8.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download_plan(path: Option<DelayedLink>) -> DownloadPlan {
        let protocol = ChunkProtocol {
            chunk_bytes: 1000,
            request_bytes: 50,
            reply_bytes: 1250,
            published_chunk_bytes: 1000,
            processing: Span(Duration::from_millis(20)),
        };
        DownloadPlan { protocol, link: path }
    }

    #[test]
    fn every_stage_counts_once_per_chunk() {
        let path = DelayedLink { delay: Duration::from_millis(400), rate_to: 8_000.0, rate_from: 80_000.0 };
        // 800 ms of delay, 50 ms for the request, 20 ms of processing, 125 ms for the reply.
        let slow = download_plan(Some(path));
        assert!((slow.predicted_rate(1, 1000) - 1000.0 / 0.995).abs() < 1e-6);
        assert!((slow.predicted_rate(1, 60_000) - 1000.0 / 0.995).abs() < 1e-6);
        // The first request waits for no other; each later one waits for a quarter of that.
        assert!((slow.predicted_rate(4, 5000) - 2500.0 / 0.995).abs() < 1e-6);
        // Here the replies fill the link.
        assert!((slow.predicted_rate(40, 9000) - 9000.0 / (0.995 + 8.0 * 0.125)).abs() < 1e-6);
        assert!((slow.max_rate() - 8000.0).abs() < 1e-6);
        assert!((download_plan(None).predicted_rate(1, 60_000) - 50_000.0).abs() < 1e-6);
    }
}
