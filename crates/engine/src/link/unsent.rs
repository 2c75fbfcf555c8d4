//! Requests for a connection that TCP of this host repeats and cannot send: a rule of its own firewall discards them, and no call reports
//! that.

use std::time::Duration;

use super::Fault;
use super::reachability::{own_firewall_fault, silent_fault};
use crate::host::read;
use linkgauge_model::clock::Time;

/// Time after which an attempt is slow. TCP repeats its request for the first time a second after the first.
const SLOW_AFTER: Duration = Duration::from_millis(500);

/// An attempt to connect with TCP that has no reply yet.
pub(crate) struct SilentAttempt {
    slow_at: Time,
    /// The counts when the attempt became slow; `None` before.
    counts: Option<RepeatedRequests>,
}

impl SilentAttempt {
    /// An attempt that begins now.
    pub fn begin(now: Time) -> SilentAttempt {
        SilentAttempt { slow_at: now + SLOW_AFTER, counts: None }
    }

    /// Reads the counts if the attempt has become slow. Returns when it will be, if it is not.
    pub fn observe(&mut self, now: Time) -> Option<Time> {
        if self.counts.is_none() && now >= self.slow_at {
            self.counts = Some(RepeatedRequests::now().unwrap_or_default());
        }
        self.counts.is_none().then_some(self.slow_at)
    }

    /// The reason why the attempt has no reply, after its timeout.
    pub fn fault(&self) -> Fault {
        let unsent = self
            .counts
            .zip(RepeatedRequests::now())
            .is_some_and(|(before, now)| now.were_all_unsent_since(before));
        if unsent { own_firewall_fault() } else { silent_fault() }
    }
}

/// Counts of this host since its start; 0 if the kernel has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RepeatedRequests {
    /// Repeated requests for a connection.
    repeated: u64,
    /// Repeated packets that could not be sent.
    unsent: u64,
}

impl RepeatedRequests {
    /// The counts now; `None` if the kernel has none.
    fn now() -> Option<RepeatedRequests> {
        RepeatedRequests::parse(&read::text("/proc/thread-self/net/netstat")?)
    }

    /// Pairs of lines: `TcpExt: name name …`, then `TcpExt: number number …`.
    fn parse(text: &str) -> Option<RepeatedRequests> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, numbers) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
        let columns: Vec<(&str, &str)> = names.zip(numbers).collect();
        let of = |wanted| columns.iter().find(|(name, _)| *name == wanted)?.1.parse().ok();
        Some(RepeatedRequests { repeated: of("TCPSynRetrans")?, unsent: of("TCPRetransFail")? })
    }

    /// Whether this host repeated requests since then, and could send none of them.
    fn were_all_unsent_since(self, before: RepeatedRequests) -> bool {
        let unsent = self.unsent.saturating_sub(before.unsent);
        let repeated = self.repeated.saturating_sub(before.repeated);
        repeated > 0 && repeated <= unsent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_unsent_if_each_repetition_failed() {
        let counts = |repeated, unsent| RepeatedRequests { repeated, unsent };
        let text = "TcpExt: SyncookiesSent TCPRetransFail TCPSynRetrans\nTcpExt: 5 2 9\nIpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(RepeatedRequests::parse(text), Some(counts(9, 2)));
        assert_eq!(RepeatedRequests::parse("TcpExt: A\nTcpExt: 5\n"), None);
        let before = counts(9, 2);
        assert!(counts(11, 4).were_all_unsent_since(before));
        assert!(!counts(11, 3).were_all_unsent_since(before), "one of two left this host");
        assert!(!counts(9, 4).were_all_unsent_since(before), "no request was repeated");
    }
}
