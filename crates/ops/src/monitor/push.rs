//! The receiver of pushed metrics, and one request to it.

use std::time::Duration;

use super::action::{check_http_url, without_password};
use linkgauge_model::units::format_period;

/// Time from one push to the next, unless given.
pub const DEFAULT_PUSH_INTERVAL: Duration = Duration::from_secs(15);

/// Shortest interval between two pushes. Shorter intervals have no new points: a slice takes longer.
const MIN_PUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Time for one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The head of a response may have this length.
const MAX_HEAD_BYTES: usize = 16_384;

/// A receiver of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    url: String,
    every: Duration,
}

impl Push {
    /// Pushes to this URL this often.
    ///
    /// # Errors
    ///
    /// The URL is not one of plain HTTP, or the interval is too short: what is wrong, and what to try.
    pub fn new(url: String, every: Duration) -> Result<Push, &'static str> {
        if !url.starts_with("http://") {
            return Err(
                "the URL of a receiver begins with http://. For others use a proxy or an agent on this host",
            );
        }
        check_http_url(&url)?;
        if every < MIN_PUSH_INTERVAL {
            return Err("the interval is shorter than 1 s: use a time like 15s");
        }
        Ok(Push { url, every })
    }

    /// Interval between two pushes.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Describes the push, for people.
    pub fn describe(&self) -> String {
        format!("are pushed to {} every {}", without_password(&self.url), format_period(self.every))
    }

    /// Sends the body of a request.
    pub(super) fn post(&self, body: &[u8]) -> Result<(), PushError> {
        let response = minreq::post(self.url.as_str())
            .with_header("Content-Type", "application/x-protobuf")
            .with_header("Content-Encoding", "snappy")
            .with_header("X-Prometheus-Remote-Write-Version", "0.1.0")
            .with_header("User-Agent", concat!("linkgauge/", env!("CARGO_PKG_VERSION")))
            .with_body(body)
            .with_timeout(TIMEOUT.as_secs())
            .with_max_redirects(0)
            .with_max_headers_size(MAX_HEAD_BYTES)
            .with_max_status_line_length(MAX_HEAD_BYTES)
            .send_lazy();
        let response = response.map_err(|error| PushError::Unreachable(error.to_string()))?;
        let status = format!("status {} {}", response.status_code, response.reason_phrase);
        match response.status_code {
            200..=299 => Ok(()),
            429 | 500.. => Err(PushError::Unreachable(status)),
            _ => Err(PushError::Refused(status)),
        }
    }
}

/// Error of points that were not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PushError {
    /// The receiver did not answer: the metrics can be sent again.
    Unreachable(String),
    /// The receiver refused: it would refuse the metrics again.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_a_url_of_plain_http() {
        let push = |url: &str, every| Push::new(url.to_owned(), every);
        assert!(push("https://there", DEFAULT_PUSH_INTERVAL).unwrap_err().contains("http://"));
        assert!(push("http://there", Duration::ZERO).unwrap_err().contains("15s"));
        let push = push("http://there/api/v1/write", DEFAULT_PUSH_INTERVAL).unwrap();
        assert_eq!(push.describe(), "are pushed to http://there/api/v1/write every 15 s");
    }
}
