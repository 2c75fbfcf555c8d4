//! Timers of TCP.

/// A timer of TCP that a socket can set, in microseconds. The kernel rounds it up to its tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpTimer {
    /// The minimum time until a retransmission.
    RetransmissionMin,
    /// The maximum delay of an acknowledgement.
    DelayedAckMax,
}

impl TcpTimer {
    #[cfg(target_os = "linux")]
    /// The number of the option in linux/tcp.h, which libc does not have yet.
    pub(crate) fn number(self) -> i32 {
        match self {
            TcpTimer::RetransmissionMin => 45,
            TcpTimer::DelayedAckMax => 46,
        }
    }

    /// The name of the option in linux/tcp.h.
    pub fn name(self) -> &'static str {
        match self {
            TcpTimer::RetransmissionMin => "TCP_RTO_MIN_US",
            TcpTimer::DelayedAckMax => "TCP_DELACK_MAX_US",
        }
    }
}
